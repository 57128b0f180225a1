"""Contributions of the features to a logit of a network, by integrated gradients."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skood.nn._make_network import make_network
from skood.utils._batches import loaded
from skood.utils._labels import check_labels
from skood.utils._param_validation import Interval, validate_params
from skood.utils._torch import to_numpy


@validate_params(
    {"n_steps": [Interval(Integral, 1, None, closed="left")]},
    prefer_skip_nested_validation=True,
)
def integrated_gradients(
    estimator, X, *, target=None, baseline=0.0, n_steps=64, device="auto"
):
    r"""Attribute a logit of a network to the features by integrated gradients.

    Along the straight line from a baseline x' to a sample x,

    .. math:: A_j = (x_j - x'_j) \int_0^1
       \frac{\partial l_t}{\partial x_j}\bigl(x' + a (x - x')\bigr) \, da ,

    for the logit :math:`l_t` of a class t, by the midpoint rule [1]_. The attributions
    sum to :math:`l_t(x) - l_t(x')`, up to the error of the rule, and for a linear
    classifier they are the terms of its sum. Networks with alike attributions have
    learned alike mechanisms. Read more in the :ref:`User Guide <epistemic>`.

    Parameters
    ----------
    estimator : object
        A fitted network: a `TorchClassifier`, a module wrapped by
        :func:`skood.nn.pretrained`, a skorch net, a linear classifier or
        `MLPClassifier` of scikit-learn, or a `Pipeline` that ends in one.

    X : array-like of shape (n_samples, ...)
        The samples.

    target : scalar or array-like of shape (n_samples,), default=None
        The class t, for all samples or for each; None: the predicted class. A binary
        classifier with one margin m has the logits -m/2 and m/2.

    baseline : float or array-like, default=0.0
        The baseline x', which broadcasts with the samples. In a pipeline it is an input
        of the last step, as are the samples of the attributions.

    n_steps : int, default=64
        Number of midpoints.

    device : str or torch.device, default="auto"
        Device to run on: "auto" is CUDA if available, else the CPU.

    Returns
    -------
    attributions : ndarray of shape (n_samples, ...), dtype float64
        Contributions of the features, in units of the logit.

    Raises
    ------
    ValueError
        If a target is not a class, or the baseline has another shape.
    TypeError
        If the estimator is not a network.

    See Also
    --------
    QUAM : Finds networks with other predictions, whose mechanisms may be compared.

    References
    ----------
    .. [1] M. Sundararajan, A. Taly, Q. Yan. Axiomatic attribution for deep networks.
       ICML 2017, Eq. (1) and (3).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.epistemic import integrated_gradients
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = LogisticRegression(solver="newton-cholesky").fit(X, y)
    >>> attributions = integrated_gradients(clf, X[:1], target=0)
    >>> attributions.round(1)
    array([[-2.2,  3.4, -3.5, -0.2]])
    >>> (X[0] * clf.coef_[0]).round(1)  # the attributions of a linear model
    array([-2.2,  3.4, -3.5, -0.2])
    """
    check_is_fitted(estimator)
    network = make_network(estimator, device=device)
    prepared = network.prepare(loaded(X))
    samples = to_numpy(prepared)
    baseline = _baseline(baseline, samples)
    direction = samples - baseline
    targets = _targets(estimator, network, prepared, target)
    total = np.zeros(samples.shape)
    for step in range(n_steps):
        points = baseline + (step + 0.5) / n_steps * direction
        total += _gradients(network, points.astype(samples.dtype), targets)
    return direction * total / n_steps


def _baseline(baseline, samples):
    """Return the baseline as an array of the shape of the samples."""
    baseline = np.asarray(to_numpy(baseline))
    if baseline.dtype.kind not in "biuf" or not np.isfinite(baseline).all():
        raise ValueError("baseline must hold finite numbers.")
    try:
        return np.broadcast_to(baseline, samples.shape)
    except ValueError:
        raise ValueError(
            f"baseline has the shape {baseline.shape}, which does not broadcast with "
            f"the samples of the shape {samples.shape}."
        ) from None


def _targets(estimator, network, prepared, target):
    """Return the class index of each sample."""
    classes = np.asarray(estimator.classes_)
    if target is None:
        logits = [block.logits for block in network.layers(prepared, ())]
        return np.concatenate(logits).argmax(axis=1)
    n_samples = prepared.shape[0]
    labels = np.asarray(target)
    labels = np.full(n_samples, target) if labels.ndim == 0 else check_labels(target)
    if labels.shape != (n_samples,):
        raise ValueError(
            f"target must be a class or have the shape ({n_samples},), got the shape "
            f"{labels.shape}."
        )
    index = {label: k for k, label in enumerate(classes.tolist())}
    unknown = sorted(set(labels.tolist()) - set(index), key=str)
    if unknown:
        raise ValueError(
            f"target has {unknown[0]!r}, which is none of the classes "
            f"{classes.tolist()}."
        )
    return np.array([index[label] for label in labels.tolist()])


def _gradients(network, points, targets):
    """Return the gradients of the target logits at points, of the same shape."""
    gradients = []
    start = 0

    def one_hot(logits):
        nonlocal start
        n_samples = logits.shape[0]
        chosen = logits * 0
        for i, target in enumerate(targets[start : start + n_samples].tolist()):
            chosen[i, target] = 1.0
        start += n_samples
        return chosen

    def keep(moved, gradient):
        gradients.append(np.asarray(to_numpy(gradient), dtype=np.float64))
        return moved

    for _ in network.input_gradient(points, one_hot, keep):
        pass
    return np.concatenate(gradients)
