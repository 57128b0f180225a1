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

# What is imported on first use, and the file that defines it.
_LAZY = {
    "AdversarialModelDisplay": "_display",
    "BatchEnsembleClassifier": "_batch_ensemble",
    "CyclicalSGHMC": "_sgmcmc",
    "DeepEnsemble": "_ensembles",
    "HMC": "_hmc",
    "Laplace": "_laplace",
    "MCDropout": "_dropout",
    "MixtureLaplace": "_mixture_laplace",
    "PackedEnsembleClassifier": "_packed_ensemble",
    "QUAM": "_quam",
    "QUAMRegressor": "_quam_regressor",
    "SnapshotEnsemble": "_snapshots",
}


def __getattr__(name):
    if name in _LAZY:
        return getattr(import_module(f"skood.epistemic.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'skood.epistemic' has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
