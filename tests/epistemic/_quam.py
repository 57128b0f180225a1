"""QUAM estimators whose parts are given by their parameters."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import inspect

from skood.epistemic import QUAM, AdversarialSearch, Gaussian, LocalComponent

FIELDS = ("total", "aleatoric", "epistemic")
QUICK = {"n_steps": 5, "batch_size": 8, "random_state": 0, "device": "cpu"}
STEP = {"lr": 0.02, "weight_decay": 1e-2, "c0": 3.0, "eta": 1.6, "update_every": 2}

SEARCH_NAMES = tuple(inspect.signature(AdversarialSearch).parameters)


def make_quam(estimator, **params):
    """Return an estimator; parameters of its parts are passed to them."""
    search = {name: params.pop(name) for name in SEARCH_NAMES if name in params}
    if "variance" in params:
        params["likelihood"] = Gaussian(params.pop("variance"))
    if "n_evaluation_samples" in params:
        number = params.pop("n_evaluation_samples")
        params["component"] = LocalComponent("delta", n_evaluation_samples=number)
    return QUAM(estimator, AdversarialSearch(**search), **params)
