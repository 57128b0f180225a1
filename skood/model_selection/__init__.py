"""Cross-validation splitters whose test parts hold ID and OOD rows."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.model_selection._split import LeaveClassesOut, OODStratifiedKFold

__all__ = ["LeaveClassesOut", "OODStratifiedKFold"]
