"""Utilities: citations, discovery of estimators, and checks for detectors."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.utils._citation import citation

__all__ = ["citation"]
