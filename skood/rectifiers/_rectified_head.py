"""Fit of the linear head that a rectifier needs."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from copy import copy

from sklearn.frozen import FrozenEstimator

from skood.nn._make_network import make_network
from skood.nn._sklearn_network import LinearNetwork
from skood.utils._labels import check_labels
from skood.utils._metaestimators import fit_wrapped, unwrapped
from skood.utils._weights import row_weight


def fit_head(owner, estimator, X, y, mask, weight=None):
    """Fit a linear classifier on ID samples, unless frozen; return it and its `Head`.

    `owner` has validated `X` (n_samples, n_features). `mask` is the mask of ID samples
    (None: all).
    """
    if mask is not None and not isinstance(estimator, FrozenEstimator):
        X, y = X[mask], None if y is None else check_labels(y)[mask]
        weight = row_weight(weight, mask)
    # a copy gets the attributes of the input, which a frozen head may lack
    fitted = fit_wrapped(copy(owner), estimator, X, y, weight)
    network = make_network(fitted)
    if not isinstance(network, LinearNetwork):
        raise ValueError(
            f"{type(owner).__name__} needs a linear classifier of X itself, and a "
            f"{type(unwrapped(estimator)).__name__} is none. Take a network apart by "
            "body, head = skood.nn.split(network), pass estimator=head, and put body "
            "before it in the pipeline."
        )
    head, _ = network.find_head()
    if head.coef.shape[1] != X.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} features, but the head that {type(owner).__name__} "
            f"uses is expecting {head.coef.shape[1]} features as input."
        )
    return fitted, head
