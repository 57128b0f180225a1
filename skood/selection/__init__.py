"""Selection of the OOD samples of a batch, with a bound on the false discovery rate."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.selection._fdp import FDPPower, fdp_bound, fdp_power
from skood.selection._selection import Selection
from skood.selection._step_up import ConditionalStepUp, StepUp, select_novelties

__all__ = [
    "ConditionalStepUp",
    "FDPPower",
    "Selection",
    "StepUp",
    "fdp_bound",
    "fdp_power",
    "select_novelties",
]
