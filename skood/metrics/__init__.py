"""Metrics of OOD detection and of selective classification.

Curves, displays, scorers and tests are imported on first use, with the rules that they
need.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import TYPE_CHECKING

from skood.metrics._calibration import brier, expected_calibration_error
from skood.metrics._ranking import (
    aupr_in,
    aupr_out,
    auroc,
    detection_error,
    f1_at_tpr,
    fpr_at_tpr,
    max_f1,
    ranking_metrics,
    tnr_at_tpr,
)
from skood.metrics._risk_coverage import (
    RiskCoverageCurve,
    augrc,
    aurc,
    ccr_at_fpr,
    coverage_at_risk,
    e_aurc,
    oscr,
    risk_at_coverage,
)
from skood.utils._optional import lazy_names

if TYPE_CHECKING:
    from skood.metrics._compare_with_best import BestComparison, compare_with_best
    from skood.metrics._intervals import bootstrap_ci
    from skood.metrics._paired_test import PairedTestResult, cohen_d, paired_test
    from skood.metrics._plot._acceptance_region_display import AcceptanceRegionDisplay
    from skood.metrics._plot._contribution_display import ContributionDisplay
    from skood.metrics._plot._reliability_display import ReliabilityDisplay
    from skood.metrics._plot._risk_coverage_display import RiskCoverageDisplay
    from skood.metrics._plot._score_histogram_display import ScoreHistogramDisplay
    from skood.metrics._plot._two_score_displays import (
        DoubleScoreROCDisplay,
        PrecisionRecallDisplay,
    )
    from skood.metrics._resampling import Resampling
    from skood.metrics._scorers import (
        make_cost_scorer,
        make_misclassification_scorer,
        make_ood_scorer,
        make_rate_scorer,
        make_rule_scorer,
        make_selective_risk_scorer,
    )
    from skood.metrics._selective_risk import selective_risk_at
    from skood.metrics._two_score_curves import SCODCurve, TwoScoreCurve

__all__ = [
    "AcceptanceRegionDisplay",
    "BestComparison",
    "ContributionDisplay",
    "DoubleScoreROCDisplay",
    "PairedTestResult",
    "PrecisionRecallDisplay",
    "ReliabilityDisplay",
    "Resampling",
    "RiskCoverageCurve",
    "RiskCoverageDisplay",
    "SCODCurve",
    "ScoreHistogramDisplay",
    "TwoScoreCurve",
    "augrc",
    "aupr_in",
    "aupr_out",
    "aurc",
    "auroc",
    "bootstrap_ci",
    "brier",
    "ccr_at_fpr",
    "cohen_d",
    "compare_with_best",
    "coverage_at_risk",
    "detection_error",
    "e_aurc",
    "expected_calibration_error",
    "f1_at_tpr",
    "fpr_at_tpr",
    "make_cost_scorer",
    "make_misclassification_scorer",
    "make_ood_scorer",
    "make_rate_scorer",
    "make_rule_scorer",
    "make_selective_risk_scorer",
    "max_f1",
    "oscr",
    "paired_test",
    "ranking_metrics",
    "risk_at_coverage",
    "selective_risk_at",
    "tnr_at_tpr",
]

# Names that are imported on first use, and the file that defines them.
_LAZY = {
    "AcceptanceRegionDisplay": "._plot._acceptance_region_display",
    "BestComparison": "._compare_with_best",
    "ContributionDisplay": "._plot._contribution_display",
    "DoubleScoreROCDisplay": "._plot._two_score_displays",
    "PairedTestResult": "._paired_test",
    "PrecisionRecallDisplay": "._plot._two_score_displays",
    "ReliabilityDisplay": "._plot._reliability_display",
    "Resampling": "._resampling",
    "RiskCoverageDisplay": "._plot._risk_coverage_display",
    "SCODCurve": "._two_score_curves",
    "ScoreHistogramDisplay": "._plot._score_histogram_display",
    "TwoScoreCurve": "._two_score_curves",
    "bootstrap_ci": "._intervals",
    "cohen_d": "._paired_test",
    "compare_with_best": "._compare_with_best",
    "make_cost_scorer": "._scorers",
    "make_misclassification_scorer": "._scorers",
    "make_ood_scorer": "._scorers",
    "make_rate_scorer": "._scorers",
    "make_rule_scorer": "._scorers",
    "make_selective_risk_scorer": "._scorers",
    "paired_test": "._paired_test",
    "selective_risk_at": "._selective_risk",
}

__getattr__, __dir__ = lazy_names(__name__, __all__, _LAZY)
