"""Selection of the OOD samples of a batch, with a bound on the false discovery rate."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.selection._best_of import BestOf
from skood.selection._display import SelectionDisplay
from skood.selection._fusion import ClassifierFusion
from skood.selection._selector import NoveltySelector
from skood.selection._step_up import (
    ConditionalStepUp,
    Selection,
    StepUp,
    select_novelties,
)
from skood.selection._variants import LOND, evalue_selection, weighted_selection
from skood.stats._fdp import FDPPower, fdp_bound, fdp_power

__all__ = [
    "LOND",
    "BestOf",
    "ClassifierFusion",
    "ConditionalStepUp",
    "FDPPower",
    "NoveltySelector",
    "Selection",
    "SelectionDisplay",
    "StepUp",
    "evalue_selection",
    "fdp_bound",
    "fdp_power",
    "select_novelties",
    "weighted_selection",
]
