"""Adversarial models of the last layer with a certificate."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils import Bunch
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from skood.base import UncertaintyMixin
from skood.epistemic.laplace._curvature import LastLayer
from skood.epistemic.quam._attainable_probability import (
    HeadPosterior,
    attainable_bounds,
    maximum_posterior,
)
from skood.nn._make_network import make_network
from skood.nn._training_data import check_target, class_codes
from skood.utils._atomic_fit import fresh_fit
from skood.utils._batches import blockwise
from skood.utils._estimator import SkoodEstimator
from skood.utils._linalg import check_no_overflow
from skood.utils._metaestimators import check_one_column, fit_wrapped, wrapped_tags
from skood.utils._param_validation import HasMethods, Interval, fit_context
from skood.utils._torch import to_numpy, to_tensor
from skood.utils._warnings import warn

# Maximum size in bytes of the Hessian of the last layer.
_MATRIX_BYTES = 2**30

# Nats of log posterior by which a given head may be below the maximum.
_EXCESS = 1e-3


class CertifiedQUAM(UncertaintyMixin, ClassifierMixin, SkoodEstimator):
    r"""Largest class probabilities of all last layers that explain the training data.

    :class:`QUAM` with ``scope="last"`` searches for models with another prediction, and
    finds some of them. For the last layer the problem is convex: with the weights W,
    features :math:`\phi` and the negative log posterior

    .. math:: L(W) = \sum_i -\log \operatorname{softmax}(W \phi_i)_{y_i}
       + \frac{\tau}{2} \|W\|^2

    with its minimum :math:`L^*` at :math:`W^*`, the largest probability of class t at
    the point x among all models with a log posterior within :math:`\gamma` nats of the
    maximum,

    .. math:: q_t(x) = \max_{W :\, L(W) - L^* \le \gamma}
       \operatorname{softmax}(W \phi(x))_t ,

    is computed with a certificate: a lower bound, which is attained by a model, and an
    upper bound by duality that no model exceeds. This is the search of QUAM [1]_ with
    its penalty as a constraint, in the form of a profile likelihood.

    Read more in the :ref:`User Guide <certified_quam>`.

    Parameters
    ----------
    estimator : object
        The classifier: a `TorchClassifier`, a module wrapped by
        :func:`skood.nn.pretrained`, a skorch net, a linear classifier or
        `MLPClassifier` of scikit-learn, or a `Pipeline` that ends in one. It is
        cloned and fitted, unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`. It is never changed.

    gamma : float, default=3.0
        Decrease of the log posterior :math:`\gamma` that a model may have, in nats.

    prior_precision : float, default=1.0
        Precision :math:`\tau` of the normal prior of each weight of the last layer,
        including biases. A network that was trained with weight decay λ on the mean
        loss of n samples has τ = nλ, a `LogisticRegression` 1 / C.

    refit : bool, default=True
        Whether the weights of the last layer are fitted again, to the maximum of the
        posterior :math:`W^*`, which then predicts. If False, the given weights must be
        this maximum.

    tol : float, default=1e-3
        Largest relative gap between the two bounds.

    max_evaluations : int, default=200
        Maximum number of evaluations of L per point and class. A warning reports larger
        gaps.

    device : str or torch.device, default="auto"
        Device: "auto" is CUDA if available, else the CPU.

    Attributes
    ----------
    estimator_ : object
        The fitted classifier.

    classes_ : ndarray of shape (n_classes,)
        Class labels.

    weights_ : ndarray of shape (n_classes, n_head_features)
        :math:`W^*`; the last column are the biases, if the last layer has any.

    excess_ : float
        Decrease of the log posterior of the given last layer from its maximum, in nats.

    n_features_in_ : int
        Number of features, if the estimator has this attribute.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, if the estimator has this attribute.

    See Also
    --------
    QUAM : Search for adversarial models in all layers, without a certificate.
    Laplace : Normal approximation of the same posterior.

    Notes
    -----
    The class that is predicted, and a class with the probability 1 - `tol` or more, are
    no candidates of the maximum in `predict_uncertainty`; classes are left out once
    their upper bound is below an attained probability. So this method is faster than
    `attainable_proba`, which needs the bounds of each class.

    A binary margin m has the logits (-m/2, m/2), and τ is the precision of its weights.

    The Hessian of the last layer, a matrix over all its weights, is stored; it is in
    float64, as is the whole computation after the features of the network.

    References
    ----------
    .. [1] K. Schweighofer, L. Aichberger, M. Ielanskyi, G. Klambauer, S. Hochreiter.
       Quantification of uncertainty with adversarial models. NeurIPS 2023.

    Examples
    --------
    A point between the classes, and one where there are no training data:

    >>> from sklearn.datasets import make_blobs
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.epistemic import CertifiedQUAM
    >>> X, y = make_blobs(300, centers=[[-3, 0], [3, 0], [0, 5]], random_state=0)
    >>> quam = CertifiedQUAM(LogisticRegression()).fit(X, y)
    >>> points = [[-3.0, 0.0], [-9.0, 9.0]]
    >>> quam.predict_proba(points).round(2)
    array([[1.  , 0.  , 0.  ],
           [0.74, 0.  , 0.26]])
    >>> quam.attainable_proba(points).upper.round(2)
    array([[1.  , 0.  , 0.01],
           [1.  , 0.  , 1.  ]])
    """

    _parameter_constraints: dict = {
        "estimator": [HasMethods(["fit", "predict_proba"])],
        "gamma": [Interval(Real, 0, None, closed="left")],
        "prior_precision": [Interval(Real, 0, None, closed="neither")],
        "refit": ["boolean"],
        "tol": [Interval(Real, 0, 1, closed="neither")],
        "max_evaluations": [Interval(Integral, 1, None, closed="left")],
        "device": [str, torch.device],
    }

    def __init__(
        self,
        estimator,
        *,
        gamma=3.0,
        prior_precision=1.0,
        refit=True,
        tol=1e-3,
        max_evaluations=200,
        device="auto",
    ):
        self.estimator = estimator
        self.gamma = gamma
        self.prior_precision = prior_precision
        self.refit = refit
        self.tol = tol
        self.max_evaluations = max_evaluations
        self.device = device

    @fit_context(prefer_skip_nested_validation=False)  # the estimator is the user's
    def fit(self, X, y):
        """Fit the network, if it is not frozen, and the maximum of the posterior.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Training samples of the network.

        y : array-like of shape (n_samples,)
            Class labels.

        Returns
        -------
        self : CertifiedQUAM
            The fitted classifier.

        Raises
        ------
        ValueError
            If the logits are not the output of a linear layer, this layer has too many
            weights for their Hessian, or `refit` is False and the given weights are not
            the maximum of the posterior. The estimator then is left unchanged.
        """
        with fresh_fit(self):
            self.estimator_ = fit_wrapped(self, self.estimator, X, y)
            check_one_column(self.estimator_)
            self.classes_ = np.asarray(self.estimator_.classes_)
            y = check_target(y, self)
            head, rows = self._open(X)
            check_consistent_length(rows, y)
            codes = torch.from_numpy(class_codes(y, self.classes_))
            features = torch.cat([part for part, _ in _passes(head, rows)])
            self._fit_head(head, features, codes.long().to(features.device))
        return self

    def _fit_head(self, head, features, codes):
        """Fit the maximum of the posterior from the weights of the network."""
        given = head.weights
        self._is_margin = len(given) == 1
        if self._is_margin:
            given = torch.cat([-given, given]) / 2
        # for a margin, ||W||^2 is half the square norm of its weights
        self._precision = float(self.prior_precision) * (1 + self._is_margin)
        if 8 * given.numel() ** 2 > _MATRIX_BYTES:
            raise ValueError(
                f"The Hessian of the last layer is a matrix over its {given.numel():,} "
                f"weights, of {8e-9 * given.numel() ** 2:.3g} GB; at most "
                f"{_MATRIX_BYTES / 1e9:.1f} GB are supported. Use fewer features, for "
                "example by a narrower last hidden layer, or QUAM(scope='last')."
            )
        posterior = HeadPosterior(features, codes, len(given), self._precision)
        weights, inverse = maximum_posterior(posterior, given.flatten())
        both = torch.stack([given.flatten(), weights])
        losses, gradients = posterior.evaluate(both)
        check_no_overflow(to_numpy(losses), "The log posterior of the last layer")
        self.excess_ = max(0.0, float(losses[0] - losses[1]))
        if not self.refit and self.excess_ > _EXCESS:
            raise ValueError(
                "The log posterior of the given last layer is "
                f"{self.excess_:.3g} nats below its maximum, with a gradient of the "
                f"norm {float(gradients[0].norm()):.3g}: its weights are not the "
                f"maximum for prior_precision={self.prior_precision}. Use refit=True, "
                "or the prior precision of its training: n * weight_decay for the mean "
                "loss of n samples, and 1 / C of a LogisticRegression without an "
                "intercept (here biases have the prior, too)."
            )
        self.weights_ = to_numpy(weights.view(given.shape))
        self._inverse = to_numpy(inverse)
        self._features, self._codes = to_numpy(features), to_numpy(codes)

    def _open(self, X):
        """Return the head of the network, and prepared samples."""
        network = make_network(self.estimator_).with_weights(
            device=self.device, one_margin=True
        )
        rows = network.prepare(X)
        if network.head_name is None:
            raise ValueError(
                f"{type(self).__name__} needs a network whose logits are the output of "
                f"a linear layer. {type(network.module).__name__} has other logits: "
                "use QUAM(scope='full')."
            )
        return LastLayer(network), rows

    @blockwise
    def predict_proba(self, X):
        """Return the class probabilities of the model with the weights `weights_`.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input samples.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes), dtype float64
            Probabilities in the order of ``classes_``.
        """
        check_is_fitted(self)
        head, rows = self._open(X)
        weights = to_tensor(self.weights_, head.weights.device)
        parts = [
            torch.softmax(features @ weights.T, 1)
            for features, _ in _passes(head, rows)
        ]
        return to_numpy(torch.cat(parts))

    def predict(self, X):
        """Return the most probable class.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input samples.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Class labels.
        """
        proba = self.predict_proba(X)
        return self.classes_[proba.argmax(axis=1)]

    @blockwise
    def attainable_proba(self, X):
        """Return bounds on the largest attainable probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input samples.

        Returns
        -------
        bounds : Bunch
            Arrays of shape (n_samples, n_classes): ``lower``, attained by a model
            within `gamma` nats of the maximum; ``upper``, which no such model exceeds;
            and ``gap``, 1 - lower / upper, at most `tol` unless a warning is emitted.
        """
        found = self._bounds(X, all_classes=True)
        gap = _gap(found.lower, found.upper)
        self._warn_of_gaps(gap.max(axis=1))
        return Bunch(lower=found.lower, upper=found.upper, gap=gap)

    @blockwise
    def predict_uncertainty(self, X):
        """Return the largest attainable probability of another class.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input samples.

        Returns
        -------
        uncertainty : Bunch
            Probabilities, each an ndarray of shape (n_samples,), larger for more
            uncertain samples: ``total``, the largest probability of a class other than
            the predicted one that a model attains; ``aleatoric``, the largest
            probability of such a class at the maximum of the posterior; ``epistemic``,
            their difference. ``upper`` bounds the total from above, and ``gap`` is 1 -
            total / upper.
        """
        found = self._bounds(X, all_classes=False)
        rows, predicted = np.arange(len(found.lower)), found.proba.argmax(axis=1)
        for name in ("lower", "upper", "proba"):
            found[name][rows, predicted] = 0.0
        aleatoric = found.proba.max(axis=1)
        # not below it by a rounding error
        total = np.maximum(found.lower.max(axis=1), aleatoric)
        upper = np.maximum(found.upper.max(axis=1), total)
        self._warn_of_gaps(_gap(total, upper))
        return Bunch(
            total=total,
            aleatoric=aleatoric,
            epistemic=total - aleatoric,
            upper=upper,
            gap=_gap(total, upper),
        )

    def _bounds(self, X, all_classes):
        """Return bounds of all classes, and the probabilities of the model."""
        check_is_fitted(self)
        head, rows = self._open(X)
        device = head.weights.device
        features, codes, weights, inverse = (
            to_tensor(array, device)
            for array in (self._features, self._codes, self.weights_, self._inverse)
        )
        posterior = HeadPosterior(features, codes, len(weights), self._precision)
        options = {
            "tol": self.tol,
            "max_evaluations": self.max_evaluations,
            "all_classes": all_classes,
        }
        points = torch.cat([features for features, _ in _passes(head, rows)])
        log_bounds = attainable_bounds(
            posterior, weights.flatten(), inverse, points, self.gamma, options
        )
        lower, upper = (to_numpy(bound.exp()) for bound in log_bounds)
        proba = to_numpy(torch.softmax(points @ weights.T, 1))
        return Bunch(lower=lower, upper=upper, proba=proba)

    def _warn_of_gaps(self, gap):
        """Warn if some gaps (n_samples,) are larger than `tol`."""
        large = int(np.sum(gap > self.tol))
        if large:
            warn(
                f"The bounds of {large} of {len(gap)} samples have a relative gap "
                f"above tol={self.tol} (largest: {gap.max():.3g}) after max_evaluations"
                f"={self.max_evaluations}; they are valid. Raise max_evaluations."
            )

    def __sklearn_tags__(self):
        tags = wrapped_tags(super().__sklearn_tags__(), self.estimator)
        tags.input_tags.sparse = False  # networks that are opened read dense rows
        return tags


def _passes(head, rows):
    """Yield features and logits of batches of prepared samples."""
    for batch in head.network.batches(rows):
        yield head.read(batch)


def _gap(lower, upper):
    """Return the relative gap between bounds, 0 where both are 0."""
    return 1.0 - np.divide(lower, upper, out=np.ones_like(lower), where=upper > 0)
