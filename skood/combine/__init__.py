"""Combination of detectors by multiple testing of their p-values."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.combine._base_combiner import BaseCombiner
from skood.combine._combination_tests import Cauchy, Fisher, HarmonicMean, Stouffer
from skood.combine._detector_ensemble import DetectorEnsemble
from skood.combine._dsde import DSDE, detector_library
from skood.combine._multiple_tests import (
    BenjaminiHochberg,
    BenjaminiYekutieli,
    Bonferroni,
    DOSStorey,
    Naive,
    Storey,
    Vote,
)
from skood.combine._pvalue_display import PValuePlotDisplay
from skood.stats._conformal import conformal_pvalues, min_calibration_size

__all__ = [
    "DSDE",
    "BaseCombiner",
    "BenjaminiHochberg",
    "BenjaminiYekutieli",
    "Bonferroni",
    "Cauchy",
    "DOSStorey",
    "DetectorEnsemble",
    "Fisher",
    "HarmonicMean",
    "Naive",
    "PValuePlotDisplay",
    "Storey",
    "Stouffer",
    "Vote",
    "conformal_pvalues",
    "detector_library",
    "min_calibration_size",
]
