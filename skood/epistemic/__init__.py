"""Epistemic uncertainty: measures, and classifiers that estimate it.

Estimators, and torch with them, are imported on first use: the measures need neither.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import TYPE_CHECKING

from skood.epistemic._measures import (
    entropy,
    feasible_divergence,
    gaussian_uncertainty,
    importance_estimate,
    kl_divergence,
    kl_divergence_gaussian,
    member_uncertainty,
)
from skood.utils._optional import lazy_names

if TYPE_CHECKING:
    from skood.epistemic._attainable_likelihood import attainable_likelihood
    from skood.epistemic._deep_ensemble import DeepEnsemble, SnapshotEnsemble
    from skood.epistemic._integrated_gradients import integrated_gradients
    from skood.epistemic._likelihood import Categorical, Gaussian
    from skood.epistemic._mc_dropout import MCDropout
    from skood.epistemic._simplex_display import SimplexDisplay
    from skood.epistemic.implicit._batch_ensemble import BatchEnsemble
    from skood.epistemic.implicit._packed_ensemble import PackedEnsemble
    from skood.epistemic.laplace._laplace import Laplace
    from skood.epistemic.laplace._mixture_laplace import MixtureLaplace
    from skood.epistemic.mcmc._hmc import HMC, HMCKernel
    from skood.epistemic.mcmc._sgmcmc import CyclicalSchedule, CyclicalSGHMC
    from skood.epistemic.quam._adversarial_models import AdversarialModels, SearchRecord
    from skood.epistemic.quam._adversarial_search import AdversarialSearch
    from skood.epistemic.quam._certified_quam import CertifiedQUAM
    from skood.epistemic.quam._display import AdversarialModelDisplay
    from skood.epistemic.quam._local_components import LocalComponent
    from skood.epistemic.quam._quam import QUAM

__all__ = [
    "HMC",
    "QUAM",
    "AdversarialModelDisplay",
    "AdversarialModels",
    "AdversarialSearch",
    "BatchEnsemble",
    "Categorical",
    "CertifiedQUAM",
    "CyclicalSGHMC",
    "CyclicalSchedule",
    "DeepEnsemble",
    "Gaussian",
    "HMCKernel",
    "Laplace",
    "LocalComponent",
    "MCDropout",
    "MixtureLaplace",
    "PackedEnsemble",
    "SearchRecord",
    "SimplexDisplay",
    "SnapshotEnsemble",
    "attainable_likelihood",
    "entropy",
    "feasible_divergence",
    "gaussian_uncertainty",
    "importance_estimate",
    "integrated_gradients",
    "kl_divergence",
    "kl_divergence_gaussian",
    "member_uncertainty",
]

# Names that are imported on first use, and the file that defines them.
_LAZY = {
    "AdversarialModelDisplay": ".quam._display",
    "AdversarialModels": ".quam._adversarial_models",
    "AdversarialSearch": ".quam._adversarial_search",
    "BatchEnsemble": ".implicit._batch_ensemble",
    "Categorical": "._likelihood",
    "CertifiedQUAM": ".quam._certified_quam",
    "CyclicalSGHMC": ".mcmc._sgmcmc",
    "CyclicalSchedule": ".mcmc._sgmcmc",
    "DeepEnsemble": "._deep_ensemble",
    "Gaussian": "._likelihood",
    "HMC": ".mcmc._hmc",
    "HMCKernel": ".mcmc._hmc",
    "Laplace": ".laplace._laplace",
    "LocalComponent": ".quam._local_components",
    "MCDropout": "._mc_dropout",
    "MixtureLaplace": ".laplace._mixture_laplace",
    "PackedEnsemble": ".implicit._packed_ensemble",
    "QUAM": ".quam._quam",
    "SearchRecord": ".quam._adversarial_models",
    "SimplexDisplay": "._simplex_display",
    "SnapshotEnsemble": "._deep_ensemble",
    "attainable_likelihood": "._attainable_likelihood",
    "integrated_gradients": "._integrated_gradients",
}

__getattr__, __dir__ = lazy_names(__name__, __all__, _LAZY)
