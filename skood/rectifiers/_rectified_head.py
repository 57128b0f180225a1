"""The linear head that a rectifier needs."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from sklearn.frozen import FrozenEstimator

from skood.nn._sklearn_network import _LinearReader, make_reader
from skood.utils._labels import check_labels
from skood.utils._metaestimators import fit_wrapped, unwrapped

__all__ = ["fit_head"]


def fit_head(owner, estimator, X, y, rows):
    """Fit a linear classifier on ID rows, unless it is frozen, and read its weights.

    The fitted classifier is stored as ``estimator_`` on `owner`.

    Parameters
    ----------
    owner : object
        Has validated `X`.

    estimator : object
        A linear classifier of `X`.

    X : ndarray of shape (n_samples, n_features)
        Features.

    y : array-like of shape (n_samples,) or None
        Labels.

    rows : ndarray of shape (n_samples,), dtype bool, or None
        Which rows are ID. None: all.

    Returns
    -------
    head : Head
        Weights and biases, one row per class.

    Raises
    ------
    ValueError
        If the classifier is no linear function of `X`.
    """
    if rows is not None and not isinstance(estimator, FrozenEstimator):
        X, y = X[rows], check_labels(y)[rows]
    names = vars(owner).get("feature_names_in_")
    owner.estimator_ = fit_wrapped(owner, estimator, X, y)
    # the owner has seen `X`, a frozen head and the names of its features maybe not
    for name in ("feature_names_in_", "classes_"):
        vars(owner).pop(name, None)
    if names is not None:
        owner.feature_names_in_ = names
    reader = make_reader(owner.estimator_)
    if not isinstance(reader, _LinearReader):
        raise ValueError(
            f"{type(owner).__name__} needs a linear classifier of X itself, and a "
            f"{type(unwrapped(estimator)).__name__} is none. Take a network apart by "
            "body, head = skood.nn.split(network), pass estimator=head, and put body "
            "before it in the pipeline."
        )
    head, _ = reader.find_head()
    if head.coef.shape[1] != X.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} features, but the head that {type(owner).__name__} "
            f"reads is expecting {head.coef.shape[1]} features as input."
        )
    return head
