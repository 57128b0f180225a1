"""Reject options: rules, their solver, and selective classifiers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.rejection._base import BaseRule, Linear
from skood.rejection._bounds import (
    max_accepted_ood,
    min_accepted_id,
    risk_upper_bound,
)
from skood.rejection._classifier import RejectOptionClassifier
from skood.rejection._cost import BoundedImprovement, CostBased, PlugInCost
from skood.rejection._finite import FiniteSolution, solve_finite
from skood.rejection._guarantee import certify
from skood.rejection._intervals import Estimate
from skood.rejection._operating_point import OperatingPoint, accept, accept_proba
from skood.rejection._report import RejectionReport
from skood.rejection._rules import (
    BoundedAbstention,
    BoundedPrecisionRecall,
    BoundedTPRFPR,
)
from skood.rejection._solver import solve

__all__ = [
    "BaseRule",
    "BoundedAbstention",
    "BoundedImprovement",
    "BoundedPrecisionRecall",
    "BoundedTPRFPR",
    "CostBased",
    "Estimate",
    "FiniteSolution",
    "Linear",
    "OperatingPoint",
    "PlugInCost",
    "RejectOptionClassifier",
    "RejectionReport",
    "accept",
    "accept_proba",
    "certify",
    "max_accepted_ood",
    "min_accepted_id",
    "risk_upper_bound",
    "solve",
    "solve_finite",
]
