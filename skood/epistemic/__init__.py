"""Uncertainty that more training data would cure, and the models that show it.

Estimators are imported on first use, and torch with them: the measures need neither.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from importlib import import_module
from typing import TYPE_CHECKING

from skood.epistemic._measures import (
    entropy,
    gaussian_uncertainty,
    kl_divergence,
    kl_divergence_gaussian,
    member_uncertainty,
)

if TYPE_CHECKING:
    from skood.epistemic._batch_ensemble import BatchEnsembleClassifier
    from skood.epistemic._display import AdversarialModelDisplay
    from skood.epistemic._dropout import MCDropout
    from skood.epistemic._ensembles import DeepEnsemble
    from skood.epistemic._hmc import HMC
    from skood.epistemic._laplace import Laplace
    from skood.epistemic._mixture_laplace import MixtureLaplace
    from skood.epistemic._packed_ensemble import PackedEnsembleClassifier
    from skood.epistemic._quam import QUAM
    from skood.epistemic._quam_regressor import QUAMRegressor
    from skood.epistemic._sgmcmc import CyclicalSGHMC
    from skood.epistemic._snapshots import SnapshotEnsemble

__all__ = [
    "HMC",
    "QUAM",
    "AdversarialModelDisplay",
    "BatchEnsembleClassifier",
    "CyclicalSGHMC",
    "DeepEnsemble",
    "Laplace",
    "MCDropout",
    "MixtureLaplace",
    "PackedEnsembleClassifier",
    "QUAMRegressor",
    "SnapshotEnsemble",
    "entropy",
    "gaussian_uncertainty",
    "kl_divergence",
    "kl_divergence_gaussian",
    "member_uncertainty",
]

# The files that are imported on first use, and what they define.
_LAZY: dict = {
    "_batch_ensemble": ("BatchEnsembleClassifier",),
    "_dropout": ("MCDropout",),
    "_ensembles": ("DeepEnsemble",),
    "_hmc": ("HMC",),
    "_laplace": ("Laplace",),
    "_mixture_laplace": ("MixtureLaplace",),
    "_packed_ensemble": ("PackedEnsembleClassifier",),
    "_display": ("AdversarialModelDisplay",),
    "_quam": ("QUAM",),
    "_quam_regressor": ("QUAMRegressor",),
    "_sgmcmc": ("CyclicalSGHMC",),
    "_snapshots": ("SnapshotEnsemble",),
}


def __getattr__(name):
    for file, names in _LAZY.items():
        if name in names:
            return getattr(import_module(f"skood.epistemic.{file}"), name)
    raise AttributeError(f"module 'skood.epistemic' has no attribute {name!r}")
