"""Metrics of OOD detection and of selective classification."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.metrics._displays import RiskCoverageDisplay
from skood.metrics._histograms import ScoreHistogramDisplay
from skood.metrics._ranking import (
    aupr_in,
    aupr_out,
    auroc,
    detection_error,
    fpr_at_tpr,
    ranking_metrics,
)
from skood.metrics._scorers import make_ood_scorer, make_selective_risk_scorer
from skood.metrics._selective import (
    aurc,
    oscr,
    risk_coverage_curve,
    selective_risk_at,
)

__all__ = [
    "RiskCoverageDisplay",
    "ScoreHistogramDisplay",
    "aupr_in",
    "aupr_out",
    "aurc",
    "auroc",
    "detection_error",
    "fpr_at_tpr",
    "make_ood_scorer",
    "make_selective_risk_scorer",
    "oscr",
    "ranking_metrics",
    "risk_coverage_curve",
    "selective_risk_at",
]
