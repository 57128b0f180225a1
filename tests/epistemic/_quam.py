"""QUAM estimators whose search parameters are given by name."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import inspect
from functools import partial

from skood.epistemic import QUAM, AdversarialSearch, QUAMRegressor

FIELDS = ("total", "aleatoric", "epistemic")
QUICK = {"n_steps": 5, "batch_size": 8, "random_state": 0, "device": "cpu"}
STEP = {"lr": 0.02, "weight_decay": 1e-2, "c0": 3.0, "eta": 1.6, "update_every": 2}

SEARCH_NAMES = tuple(inspect.signature(AdversarialSearch).parameters)


def make_quam(estimator, kind=QUAM, **params):
    """Return an estimator; parameters of the search are passed to its search."""
    search = {name: params.pop(name) for name in SEARCH_NAMES if name in params}
    return kind(estimator, AdversarialSearch(**search), **params)


make_regressor = partial(make_quam, kind=QUAMRegressor)
