"""Splitters with ID and OOD samples in each test set, and fitting on ID samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.model_selection._id_only import IDOnly
from skood.model_selection._split import LeaveClassesOut, OODStratifiedKFold

__all__ = ["IDOnly", "LeaveClassesOut", "OODStratifiedKFold"]
