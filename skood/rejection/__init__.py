"""Reject options: rules, their solver, and selective classifiers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.decision import (
    BaseRule,
    BoundedAbstention,
    BoundedImprovement,
    BoundedPrecisionRecall,
    BoundedTPRFPR,
    Certificate,
    CostBased,
    Estimate,
    FiniteSolution,
    Linear,
    OperatingPoint,
    PlugInCost,
    Rates,
    Solver,
    TwoThresholds,
    accept,
    accept_proba,
    boundary_acceptance,
    certify,
    max_accepted_ood,
    min_accepted_id,
    risk_upper_bound,
    solve,
    solve_finite,
)
from skood.rejection._classifier import RejectOptionClassifier
from skood.rejection._regressor import RejectOptionRegressor
from skood.rejection._rejection_explanation import RejectionExplanation
from skood.rejection._report import RejectionReport

__all__ = [
    "BaseRule",
    "BoundedAbstention",
    "BoundedImprovement",
    "BoundedPrecisionRecall",
    "BoundedTPRFPR",
    "Certificate",
    "CostBased",
    "Estimate",
    "FiniteSolution",
    "Linear",
    "OperatingPoint",
    "PlugInCost",
    "Rates",
    "RejectOptionClassifier",
    "RejectOptionRegressor",
    "RejectionExplanation",
    "RejectionReport",
    "Solver",
    "TwoThresholds",
    "accept",
    "accept_proba",
    "boundary_acceptance",
    "certify",
    "max_accepted_ood",
    "min_accepted_id",
    "risk_upper_bound",
    "solve",
    "solve_finite",
]
