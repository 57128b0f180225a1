"""Utilities: citations, discovery of estimators, and checks for detectors."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import TYPE_CHECKING

from skood.utils._optional import lazy_names

if TYPE_CHECKING:
    from skood.utils._estimator import citation

__all__ = ["citation"]

# Names that are imported on first use, and the file that defines them.
_LAZY = {"citation": "._estimator"}

__getattr__, __dir__ = lazy_names(__name__, __all__, _LAZY)
