"""Evidential uncertainty: classifiers and probes that predict Dirichlet distributions.

The closed forms need NumPy and SciPy only. Estimators and losses, and torch with them,
are imported on first use.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import TYPE_CHECKING

from skood.evidential._dirichlet import (
    dirichlet_entropy,
    dirichlet_expected_entropy,
    dirichlet_expected_log,
    dirichlet_expected_nll,
    dirichlet_kl,
    dirichlet_log_normalizer,
    dirichlet_mutual_information,
    dissonance,
    uniform_kl,
    vacuity,
)
from skood.utils._optional import lazy_names

if TYPE_CHECKING:
    from skood.evidential._classifier import EvidentialClassifier
    from skood.evidential._probe import EvidentialProbe
    from skood.evidential._probe_objective import ProbeObjective
    from skood.nn._evidential_loss import EvidentialLoss

__all__ = [
    "EvidentialClassifier",
    "EvidentialLoss",
    "EvidentialProbe",
    "ProbeObjective",
    "dirichlet_entropy",
    "dirichlet_expected_entropy",
    "dirichlet_expected_log",
    "dirichlet_expected_nll",
    "dirichlet_kl",
    "dirichlet_log_normalizer",
    "dirichlet_mutual_information",
    "dissonance",
    "uniform_kl",
    "vacuity",
]

# Names that are imported on first use, and the file that defines them.
_LAZY = {
    "EvidentialClassifier": "._classifier",
    "EvidentialLoss": "..nn._evidential_loss",
    "EvidentialProbe": "._probe",
    "ProbeObjective": "._probe_objective",
}

__getattr__, __dir__ = lazy_names(__name__, __all__, _LAZY)
