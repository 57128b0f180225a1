"""Decision rules on scores, their optimal thresholds, and certificates.

All functions take arrays of scores; estimators are not used here.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.decision._base_rule import BaseRule, Linear
from skood.decision._bounded_rules import (
    AllOf,
    BoundedAbstention,
    BoundedErrorRate,
    BoundedPrecisionRecall,
    BoundedTPRFPR,
)
from skood.decision._certified_path import CertifiedStatement, RuleCertificate
from skood.decision._certify import certify
from skood.decision._certify_path import certify_path
from skood.decision._class_priors import class_prior, shift_posteriors
from skood.decision._cost_rules import (
    BoundedImprovement,
    CostBased,
    LinearRule,
    PlugInCost,
)
from skood.decision._finite_space import (
    FiniteSolution,
    boundary_acceptance,
    solve_finite,
)
from skood.decision._ood_fraction import ood_prior_interval
from skood.decision._operating_point import OperatingPoint, Rates
from skood.decision._options import Certificate, Shift, Solver
from skood.decision._scored_samples import ScoredSamples
from skood.decision._solver import solve
from skood.decision._two_thresholds import TwoThresholds
from skood.stats._binomial_bounds import (
    max_accepted_ood,
    min_accepted_id,
    risk_upper_bound,
)
from skood.stats._mean_intervals import Estimate

__all__ = [
    "AllOf",
    "BaseRule",
    "BoundedAbstention",
    "BoundedErrorRate",
    "BoundedImprovement",
    "BoundedPrecisionRecall",
    "BoundedTPRFPR",
    "Certificate",
    "CertifiedStatement",
    "CostBased",
    "Estimate",
    "FiniteSolution",
    "Linear",
    "LinearRule",
    "OperatingPoint",
    "PlugInCost",
    "Rates",
    "RuleCertificate",
    "ScoredSamples",
    "Shift",
    "Solver",
    "TwoThresholds",
    "boundary_acceptance",
    "certify",
    "certify_path",
    "class_prior",
    "max_accepted_ood",
    "min_accepted_id",
    "ood_prior_interval",
    "risk_upper_bound",
    "shift_posteriors",
    "solve",
    "solve_finite",
]
