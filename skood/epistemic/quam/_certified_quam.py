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
from skood.epistemic.laplace._curvature import Full, LastLayer
from skood.nn._make_network import make_network
from skood.nn._training_data import check_target, class_codes
from skood.utils._array_api import sent_once
from skood.utils._atomic_fit import fresh_fit
from skood.utils._batches import blockwise
from skood.utils._estimator import SkoodEstimator
from skood.utils._linalg import check_no_overflow
from skood.utils._metaestimators import check_one_column, fit_wrapped, wrapped_tags
from skood.utils._param_validation import HasMethods, Interval, fit_context
from skood.utils._torch import row_chunks, to_numpy, to_tensor
from skood.utils._warnings import warn

# Maximum size in bytes of the Hessian of the last layer.
_MATRIX_BYTES = 2**30

# Nats of log posterior by which a given head may be below the maximum.
_EXCESS = 1e-3


# Bytes of the probabilities of training samples that are computed at a time: larger
# blocks do not fit in the caches of a CPU.
_CPU_BYTES = 2 * 2**20

_DEVICE_BYTES = 512 * 2**20

# Bytes of the states of pairs that are searched at a time.
_STATE_BYTES = 128 * 2**20

# A Newton step is accepted with this fraction of the decrease that it predicts.
_ARMIJO = 0.25

_TINY = 1e-300


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
            head, samples = self._open(X)
            self._network_kind = head.network.probed()
            check_consistent_length(samples, y)
            codes = torch.from_numpy(class_codes(y, self.classes_))
            features = torch.cat([block for block, _ in _passes(head, samples)])
            self._fit_head(head, features, codes.long().to(features.device))
        return self

    def _fit_head(self, head, features, codes):
        """Fit the maximum of the posterior from the weights of the network."""
        initial = head.weights
        self._is_margin = len(initial) == 1
        if self._is_margin:
            initial = torch.cat([-initial, initial]) / 2
        # for a margin, ||W||^2 is half the square norm of its weights
        self._precision = float(self.prior_precision) * (1 + self._is_margin)
        if 8 * initial.numel() ** 2 > _MATRIX_BYTES:
            raise ValueError(
                "The Hessian of the last layer is a matrix over its "
                f"{initial.numel():,} weights, of {8e-9 * initial.numel() ** 2:.3g} "
                f"GB; at most {_MATRIX_BYTES / 1e9:.1f} GB are supported. Use fewer "
                "features, for example by a narrower last hidden layer, or "
                "QUAM(scope='last')."
            )
        posterior = HeadPosterior(features, codes, len(initial), self._precision)
        weights, inverse = maximum_posterior(posterior, initial.flatten())
        both = torch.stack([initial.flatten(), weights])
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
        self.weights_ = to_numpy(weights.view(initial.shape))
        self._inverse = to_numpy(inverse)
        self._features, self._codes = to_numpy(features), to_numpy(codes)

    def _open(self, X, kind=None):
        """Return the head of the network, of the kind in the fit, and samples."""
        network = make_network(self.estimator_).with_weights(
            device=self.device, one_margin=True
        )
        if kind is not None:
            network.restore(kind)
        samples = network.prepare(X)
        if network.head_name is None:
            raise ValueError(
                f"{type(self).__name__} needs a network whose logits are the output of "
                f"a linear layer. {type(network.module).__name__} has other logits: "
                "use QUAM(scope='full')."
            )
        return LastLayer(network), samples

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
        head, samples = self._open(X, self._network_kind)
        weights = sent_once(self.weights_, head.weights.device)
        blocks = (features for features, _ in _passes(head, samples))
        proba = [torch.softmax(features @ weights.T, 1) for features in blocks]
        return to_numpy(torch.cat(proba))

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
        bounds = self._bounds(X, all_classes=True)
        gap = _gap(bounds.lower, bounds.upper)
        self._warn_of_gaps(gap.max(axis=1))
        return Bunch(lower=bounds.lower, upper=bounds.upper, gap=gap)

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
        bounds = self._bounds(X, all_classes=False)
        indices, predicted = np.arange(len(bounds.lower)), bounds.proba.argmax(axis=1)
        for name in ("lower", "upper", "proba"):
            bounds[name][indices, predicted] = 0.0
        aleatoric = bounds.proba.max(axis=1)
        # not below it by a rounding error
        total = np.maximum(bounds.lower.max(axis=1), aleatoric)
        upper = np.maximum(bounds.upper.max(axis=1), total)
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
        head, samples = self._open(X, self._network_kind)
        device = head.weights.device
        features, codes, weights, inverse = (
            sent_once(array, device)
            for array in (self._features, self._codes, self.weights_, self._inverse)
        )
        posterior = HeadPosterior(features, codes, len(weights), self._precision)
        options = {
            "tol": self.tol,
            "max_evaluations": self.max_evaluations,
            "all_classes": all_classes,
        }
        points = torch.cat([features for features, _ in _passes(head, samples)])
        # states: weights, gradients and the products of H with C directions
        n_classes = len(weights)
        n_bytes = 8 * weights.numel() * (n_classes + 40) * n_classes
        log_bounds = [
            _BoundSearch(posterior, weights, inverse, points[chunk], self.gamma).run(
                options
            )
            for chunk in row_chunks(len(points), n_bytes, _STATE_BYTES)
        ]
        lower, upper = (
            to_numpy(torch.cat(bound).exp()) for bound in zip(*log_bounds, strict=True)
        )
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


def _passes(head, samples):
    """Yield features and logits of batches of prepared samples."""
    for batch in head.network.batches(samples):
        yield head.read(batch)


def _gap(lower, upper):
    """Return the relative gap between bounds, 0 where both are 0."""
    return 1.0 - np.divide(lower, upper, out=np.ones_like(lower), where=upper > 0)


class HeadPosterior:
    """Negative log posterior L of the weights W (C classes, D features) of a head.

    It is the sum of the cross entropies of the training samples, `features` (n_samples,
    D) with `codes` (n_samples,), plus τ/2 ||W||² with `precision` τ > 0, in float64.
    """

    def __init__(self, features, codes, n_classes, precision):
        self.features, self.codes = features, codes
        self.n_classes, self.precision = n_classes, precision
        self._transposed = features.T.contiguous()
        one_hot = features.new_zeros(len(codes), n_classes)
        one_hot.scatter_(1, codes[:, None], 1.0)
        self._sums = (one_hot.T @ features).flatten()

    def evaluate(self, weights):
        """Return L (n_models,) and its gradient, of weights (n_models, C * D)."""
        on_cpu = weights.device.type == "cpu"
        budget = _CPU_BYTES if on_cpu else _DEVICE_BYTES
        each = 8 * self.n_classes * len(self.codes)
        parts = [
            self._block(weights[chunk])
            for chunk in row_chunks(len(weights), each, budget)
        ]
        losses, gradients = zip(*parts, strict=True)
        return torch.cat(losses), torch.cat(gradients)

    def _block(self, weights):
        n_models, shape = len(weights), (-1, self.features.shape[1])
        logits = weights.reshape(shape) @ self._transposed
        proba = torch.softmax(logits.view(n_models, self.n_classes, -1), dim=1)
        of_label = proba.gather(1, self.codes.expand(n_models, 1, -1))
        prior = self.precision / 2 * weights.square().sum(1)
        losses = prior - of_label.log().sum((1, 2))
        gradients = proba.view(-1, len(self.codes)) @ self.features
        gradients = gradients.view(n_models, -1) - self._sums
        return losses, gradients + self.precision * weights

    def hessian(self, weights):
        """Return the Hessian (C * D, C * D) of L at weights (C * D,)."""
        logits = self.features @ weights.view(self.n_classes, -1).T
        grams = Full.sums(self.features, logits, self.n_classes)
        total = to_tensor(Full.matrix(*map(to_numpy, grams)), logits.device)
        total.diagonal().add_(self.precision)
        return total


def maximum_posterior(posterior, weights, max_iter=200):
    """Return the weights that minimize L, from initial weights, by Newton's method.

    Returns weights (C * D,), and the inverse of the Hessian there.
    """
    (loss,), (gradient,) = posterior.evaluate(weights[None])
    for _ in range(max_iter):
        factor = torch.linalg.cholesky(posterior.hessian(weights))
        step = torch.cholesky_solve(gradient[:, None], factor)[:, 0]
        decrement = float(step @ gradient)  # twice the decrease of the quadratic model
        # below the rounding error of L, and always after a full step
        if decrement <= 1e-20 * max(1.0, float(loss)):
            break
        fraction = 1.0
        while fraction > 1e-10:
            (new,), (at,) = posterior.evaluate((weights - fraction * step)[None])
            if new <= loss - _ARMIJO * fraction * decrement + 1e-13 * abs(loss):
                break
            fraction /= 2
        else:
            break
        weights, loss, gradient = weights - fraction * step, new, at
    return weights, torch.cholesky_inverse(factor).contiguous()


class _BoundSearch:
    """Bounds on the largest probability of a class under a bound on L.

    Around the minimum W* of L, with L* = L(W*), the problem "minimize f(W) = -log
    softmax(W x)_t subject to L(W) - L* <= γ" is convex. It is solved by sequential
    quadratic programming (SQP) for many pairs of a point x and a class t at a time; a
    pair is a row of each state. The model of L has the Hessian H of W* with the BFGS
    updates of each pair [1, chapter 18]. Steps in W then depend on C numbers u only,
    W = W_k - H⁻¹ g + H⁻¹ (u ⊗ x) with u = (e_t - p(x)) / λ, which minimize f on an
    ellipsoid; H is factored once for all points.

    Each evaluation of L and its gradient g at any W bounds the minimum of f:

    - the segment from W* to W, as L is convex, has L - L* <= γ up to its fraction
      min(1, γ / (L(W) - L*)), whose end gives an upper bound;
    - for any λ > 0 and any W' with L(W') - L* <= γ, as L is strongly convex, f(W') >=
      f(W) + λ (L(W) - L* - γ) - ||∇f(W) + λ g||² / (2 λ τ), with its maximum over λ in
      closed form.

    [1] J. Nocedal, S. J. Wright. Numerical Optimization. Springer, 2nd edition 2006.
    """

    def __init__(self, posterior, center, inverse, points, gamma):
        self.posterior, self.center, self.inverse = posterior, center, inverse
        self.points, self.gamma = points, gamma
        (self.least,), _ = posterior.evaluate(center.view(1, -1))
        self.logits = points @ center.T
        self.lower = torch.log_softmax(self.logits, 1)
        self.upper = torch.zeros_like(self.lower)
        self.predicted = self.logits.argmax(1)

    def run(self, options):
        """Return log-probabilities (n_points, C): attained, and those none exceeds.

        `options` has ``tol``, ``max_evaluations`` and ``all_classes``: whether to
        search until the bounds of each class, or only of the maximum over the classes
        that are not predicted, are within the relative gap `tol`.
        """
        if self.gamma == 0:
            return self.lower, self.lower.clone()
        pairs = self._open_pairs(options)
        state = self._start(pairs)
        for _ in range(options["max_evaluations"]):
            trial = self._step(state)
            self._update_bounds(state, trial)
            is_open = self._open_pairs(options)[state["point"], state["target"]]
            indices = is_open.nonzero()[:, 0]  # one wait for a GPU
            if len(indices) == 0:
                break
            if len(indices) < len(is_open):
                state, trial = _taken(state, indices), _taken(trial, indices)
            self._accept(state, trial)
        return self.lower, self.upper

    def _open_pairs(self, options):
        """Return which pairs (n_points, C) are searched, as a mask."""
        tol = options["tol"]
        is_open = -torch.expm1(self.lower - self.upper) > tol
        if options["all_classes"]:
            return is_open
        other = torch.ones_like(is_open).scatter_(1, self.predicted[:, None], False)
        best = self.lower.masked_fill(~other, -torch.inf).amax(1, keepdim=True)
        # a class that cannot exceed the best one by more than the gap is settled
        return other & is_open & (-torch.expm1(best - self.upper) > tol)

    def _start(self, pairs):
        """Return the state of the pairs before the first step, at the center."""
        n_classes, width = self.center.shape
        point, target = pairs.nonzero(as_tuple=True)
        x = self.points[point]
        # H⁻¹ (e_c ⊗ x) for each class c
        products = self.inverse.view(-1, width) @ self.points.T
        products = products.view(-1, n_classes, len(self.points)).permute(2, 1, 0)
        zeros = self.center.new_zeros(len(x), self.center.numel())
        one_hot = torch.nn.functional.one_hot(target, n_classes).to(x)
        logits = self.logits[point]
        return {
            "point": point,
            "target": target,
            "x": x,
            "directions": products.contiguous()[point],
            "weights": self.center.flatten().expand(len(x), -1),
            "gradient": zeros,
            "newton": zeros,  # inverse of the updated Hessian times the gradient
            "plain": zeros,  # inverse of the Hessian at the center times it
            "excess": zeros[:, 0],
            "loss": -self.lower[point, target],
            "u": one_hot - torch.softmax(logits, 1),
            "multiplier": zeros[:, 0],
            "fraction": torch.ones_like(zeros[:, 0]),
            "updates": [],
        }

    def _step(self, state):
        """Return the next weights of each pair, evaluated."""
        x, shape = state["x"], (len(state["x"]), *self.center.shape)
        # logits of the point along the directions, (n_pairs, C, C)
        matrix = (
            state["directions"].reshape(*shape[:2], *shape[1:]) @ x[:, None, :, None]
        )
        matrix = matrix[..., 0]
        center = state["weights"] - state["newton"]
        decrease = 0.5 * (state["gradient"] * state["newton"]).sum(1)
        slack = self.gamma - state["excess"] + decrease
        slack = slack.clamp_min(0.1 * self.gamma)
        u, multiplier = on_ellipsoid(
            _logits(center, x), matrix, state["target"], slack, state["u"]
        )
        state["u"], state["multiplier"] = u, multiplier
        aim = center + torch.einsum("pc,pce->pe", u, state["directions"])
        fraction = state["fraction"][:, None]
        weights = torch.where(
            fraction == 1, aim, torch.lerp(state["weights"], aim, fraction)
        )
        losses, gradients = self.posterior.evaluate(weights)
        logits = _logits(weights, x)
        log_proba = torch.log_softmax(logits, 1)
        return {
            "weights": weights,
            "gradient": gradients,
            "excess": losses - self.least,
            "logits": logits,
            "log_proba": log_proba,
            "loss": -_of_target(log_proba, state["target"]),
        }

    def _update_bounds(self, state, trial):
        """Update the bounds by the evaluated weights."""
        point, target, excess = state["point"], state["target"], trial["excess"]
        finite = torch.isfinite(excess)
        fraction = (self.gamma / excess.clamp_min(_TINY)).clamp_max(1.0)[:, None]
        start = self.logits[point]
        logits = torch.where(
            finite[:, None], torch.lerp(start, trial["logits"], fraction), start
        )
        attained = _of_target(torch.log_softmax(logits, 1), target)
        tau, x = self.posterior.precision, state["x"]
        slope = trial["log_proba"].exp()
        # of f in the logits of x
        slope[torch.arange(len(slope), device=slope.device), target] -= 1.0
        gradient = trial["gradient"]
        # maximum over λ of λ (L - L* - γ) - ||∇f + λ g||² / (2 λ τ)
        cross = (slope * _logits(gradient, x)).sum(1) / tau
        a = slope.square().sum(1) * x.square().sum(1) / (2 * tau)
        b = gradient.square().sum(1) / (2 * tau) - (excess - self.gamma)
        dual = trial["loss"] - cross - 2 * (a * b.clamp_min(0)).sqrt()
        dual = torch.where(finite & (b > 0), dual, 0.0).clamp_min(0)
        self.lower[point, target] = torch.maximum(self.lower[point, target], attained)
        self.upper[point, target] = torch.minimum(self.upper[point, target], -dual)

    def _accept(self, state, trial):
        """Update the Hessian of each pair, and move where the merit decreases."""
        gamma, penalty = self.gamma, 2 * state["multiplier"]
        before = state["loss"] + penalty * (state["excess"] - gamma).clamp_min(0)
        after = trial["loss"] + penalty * (trial["excess"] - gamma).clamp_min(0)
        better = (after <= before) & (trial["excess"] <= 2 * gamma)
        state["fraction"] = torch.where(
            better, (2 * state["fraction"]).clamp_max(1), state["fraction"] / 2
        )
        plain = trial["gradient"] @ self.inverse
        self._update_hessian(state, trial, plain)
        move = better[:, None]
        for name in ("weights", "gradient"):
            state[name] = torch.where(move, trial[name], state[name])
        for name in ("excess", "loss"):
            state[name] = torch.where(better, trial[name], state[name])
        state["plain"] = torch.where(move, plain, state["plain"])
        state["newton"] = _inverse_times(
            state["updates"], state["gradient"], state["plain"]
        )

    def _update_hessian(self, state, trial, plain):
        """Store a BFGS update of each pair, and update the directions by it."""
        s = trial["weights"] - state["weights"]
        y = trial["gradient"] - state["gradient"]
        product = (s * y).sum(1)
        # not after an overflow, or rounding errors: L is convex
        usable = torch.isfinite(y).all(1) & (product > 1e-14)
        s = torch.where(usable[:, None], s, 0.0)
        y = torch.where(usable[:, None], y, 0.0)
        plain_y = torch.where(usable[:, None], plain - state["plain"], 0.0)
        rho = torch.where(usable, 1 / product, 0.0)
        inverse_y = _inverse_times(state["updates"], y, plain_y)
        # (I - ρ s yᵀ) H⁻¹ (I - ρ y sᵀ) + ρ s sᵀ, times e_c ⊗ x
        along = rho[:, None] * _logits(s, state["x"])
        state["directions"] -= along[:, :, None] * inverse_y[:, None]
        across = (state["directions"] @ y[:, :, None])[..., 0]
        along = along - rho[:, None] * across
        state["directions"] += along[:, :, None] * s[:, None]
        state["updates"].append({"s": s, "y": y, "plain": plain_y, "rho": rho})


def _taken(state, indices):
    """Return the pairs of a state by their indices."""
    return {
        name: [_taken(update, indices) for update in value]
        if isinstance(value, list)
        else value[indices]
        for name, value in state.items()
    }


def _of_target(values, target):
    """Return the value of the target of each row."""
    return values.gather(1, target[:, None])[:, 0]


def _logits(weights, x):
    """Return the logits (n, C) of weights (n, C * D), each of its own point (n, D)."""
    return (weights.view(len(x), -1, x.shape[1]) @ x[:, :, None])[..., 0]


def _inverse_times(updates, vector, plain):
    """Return inverse updated Hessians times vectors (Nocedal and Wright, Alg. 7.4)."""
    coefficients = []
    for update in reversed(updates):
        coefficient = update["rho"] * (update["s"] * vector).sum(1)
        coefficients.append(coefficient)
        vector = vector - coefficient[:, None] * update["y"]
        plain = plain - coefficient[:, None] * update["plain"]
    for update, coefficient in zip(updates, reversed(coefficients), strict=True):
        back = update["rho"] * (update["y"] * plain).sum(1)
        plain = plain + (coefficient - back)[:, None] * update["s"]
    return plain


def on_ellipsoid(center, matrix, target, slack, u, max_iter=60, tol=1e-6):
    """Minimize -log softmax(center + B u)_t for uᵀ B u / 2 <= r, row by row.

    `center` (n, C), `matrix` B (n, C, C), `target` t (n,), `slack` r (n,), and `u` (n,
    C) to start from. The minimum is on the boundary, with λ u = e_t - p. Newton's
    method on these equations, with steps back to the boundary that are halved until
    the loss decreases. Returns u, and the multipliers λ (n,).
    """
    n_classes = center.shape[1]
    one_hot = torch.nn.functional.one_hot(target, n_classes).to(center)
    solutions = u.clone()
    multipliers = torch.zeros_like(slack)
    indices = torch.arange(len(u), device=u.device)

    def scaled(u, center, matrix, one_hot, slack):
        product = (matrix @ u[:, :, None])[..., 0]
        length = (slack / (0.5 * (u * product).sum(1)).clamp_min(_TINY)).sqrt()[:, None]
        log_proba = torch.log_softmax(center + length * product, 1)
        return length * u, length * product, log_proba, -(log_proba * one_hot).sum(1)

    data = [center, matrix, one_hot, slack]
    state = scaled(u, *data)
    size = torch.ones_like(slack)
    for _ in range(max_iter):
        u, product, log_proba, loss = state
        center, matrix, one_hot, slack = data
        proba = log_proba.exp()
        slope = one_hot - proba
        # the best multiplier for u: uᵀ B (λ u - slope) = 0, uᵀ B u = 2 r
        multiplier = ((product * slope).sum(1) / (2 * slack)).clamp_min(_TINY)
        error = multiplier[:, None] * u - slope
        solutions[indices], multipliers[indices] = u, multiplier
        scale = slope.abs().amax(1)
        # nothing is left to gain where the class is certain, or no step succeeds
        todo = (error.abs().amax(1) > tol * scale) & (scale > 1e-9) & (size > 1e-6)
        n_before, todo = len(todo), todo.nonzero()[:, 0]  # one wait for a GPU
        if len(todo) == 0:
            break
        if len(todo) < n_before:
            indices, size = indices[todo], size[todo]
            state = [tensor[todo] for tensor in state]
            data = [tensor[todo] for tensor in data]
            u, product, log_proba, loss = state
            center, matrix, one_hot, slack = data
            proba, multiplier, error = proba[todo], multiplier[todo], error[todo]
        step = _newton_step(matrix, proba, u, product, multiplier, error)
        new = scaled(u + size[:, None] * step, *data)
        better = new[3] <= loss
        state = [
            torch.where(better.view(-1, *[1] * (old.ndim - 1)), tensor, old)
            for tensor, old in zip(new, state, strict=True)
        ]
        size = torch.where(better, (2 * size).clamp_max(1.0), size / 2)
    return solutions, multipliers


def _newton_step(matrix, proba, u, product, multiplier, error):
    """Return the Newton step of λ u + p(center + B u) = e_t along the boundary."""
    n, n_classes = u.shape
    system = u.new_zeros(n, n_classes + 1, n_classes + 1)
    curvature = proba[:, :, None] * (matrix - (proba[:, None] @ matrix))
    system[:, :n_classes, :n_classes] = curvature
    system[:, :n_classes, :n_classes].diagonal(dim1=1, dim2=2).add_(multiplier[:, None])
    system[:, :n_classes, -1] = u
    system[:, -1, :n_classes] = product
    right = torch.cat([-error, u.new_zeros(n, 1)], dim=1)
    return torch.linalg.solve_ex(system, right)[0][:, :n_classes]
