"""QUAM estimators whose search parameters are given by name."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import inspect
from functools import partial

from skood.epistemic import QUAM, AdversarialSearch, QUAMRegressor

__all__ = ["SEARCH_NAMES", "make_quam", "make_regressor"]

SEARCH_NAMES = tuple(inspect.signature(AdversarialSearch).parameters)


def make_quam(estimator, kind=QUAM, **params):
    """Return an estimator; parameters of the search are passed to its search."""
    search = {name: params.pop(name) for name in SEARCH_NAMES if name in params}
    return kind(estimator, AdversarialSearch(**search), **params)


make_regressor = partial(make_quam, kind=QUAMRegressor)
