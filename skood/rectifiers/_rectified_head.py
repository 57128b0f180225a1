"""Fit of the linear head that a rectifier needs."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from sklearn.frozen import FrozenEstimator

from skood.nn._make_network import make_network
from skood.nn._sklearn_network import LinearNetwork
from skood.utils._labels import check_labels
from skood.utils._metaestimators import fit_wrapped, unwrapped
from skood.utils._weights import row_weight


def fit_head(owner, estimator, X, y, rows, weight=None):
    """Fit a linear classifier on ID samples, unless frozen, and return its `Head`.

    It is stored as ``estimator_`` on `owner`, which has validated `X` (n_samples,
    n_features). `rows` is the mask of ID samples (None: all).
    """
    if rows is not None and not isinstance(estimator, FrozenEstimator):
        X, y = X[rows], None if y is None else check_labels(y)[rows]
        weight = row_weight(weight, rows)
    names = vars(owner).get("feature_names_in_")
    owner.estimator_ = fit_wrapped(owner, estimator, X, y, weight)
    # `X` was given to the owner; a frozen head may lack its feature names
    for name in ("feature_names_in_", "classes_"):
        vars(owner).pop(name, None)
    if names is not None:
        owner.feature_names_in_ = names
    network = make_network(owner.estimator_)
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
    return head
