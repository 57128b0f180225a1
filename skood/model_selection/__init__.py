"""Splitters with ID and OOD samples in each test set, and a search without refits."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.model_selection._id_only import IDOnly
from skood.model_selection._rule_search import RuleSearchCV
from skood.model_selection._split import LeaveClassesOut, OODStratifiedKFold
from skood.model_selection._synthetic_outliers import make_synthetic_outliers

__all__ = [
    "IDOnly",
    "LeaveClassesOut",
    "OODStratifiedKFold",
    "RuleSearchCV",
    "make_synthetic_outliers",
]
