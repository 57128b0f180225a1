"""Epistemic uncertainty of a given regressor by adversarial models (QUAM)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils import column_or_1d
from sklearn.utils.validation import check_is_fitted

from skood.base import UncertaintyMixin
from skood.epistemic._base_regressor import check_return_std
from skood.epistemic._base_uncertainty import warn_of_few_members
from skood.epistemic._measures import gaussian_uncertainty, kl_divergence_gaussian
from skood.epistemic.quam._adversarial_models import AdversarialRegressionModels
from skood.epistemic.quam._adversarial_search import AdversarialSearch, Means
from skood.epistemic.quam._searches import (
    MODEL_CONSTRAINTS,
    QUAM_CONSTRAINTS,
    Searches,
    check_loader,
    in_parallel,
    is_loader,
)
from skood.nn._functional_network import FunctionalRegressor
from skood.utils._atomic_fit import fresh_fit
from skood.utils._batches import blockwise, joined, labeled_rows
from skood.utils._estimator import SkoodEstimator
from skood.utils._metaestimators import fit_wrapped, wrapped_tags
from skood.utils._param_validation import (
    HasMethods,
    Interval,
    StrOptions,
    fit_context,
    validate_params,
)
from skood.utils._torch import to_numpy


class QUAMRegressor(RegressorMixin, UncertaintyMixin, SkoodEstimator):
    r"""Epistemic uncertainty of a regression network by adversarial models (QUAM).

    The network predicts a normal distribution :math:`N(\mu, \sigma^2)`. For each point
    two searches, one to a higher and one to a lower mean, take Adam steps on

    .. math:: -KL\bigl(N(\mu, \sigma^2) \,\|\, N(\tilde\mu, \tilde\sigma^2)\bigr) +
       c_k \bigl(L_{\text{train}}(\tilde w) - (L_{\text{train}}(w) + \gamma)\bigr),

    where L is the negative log-likelihood. The divergence has a stationary point at the
    given weights, so that the searches start with a shifted bias of the last layer
    [1]_. Otherwise it is as in `QUAM`.

    Read more in the :ref:`User Guide <quam>`.

    Parameters
    ----------
    estimator : object
        The regressor: a :class:`~skood.nn.TorchRegressor`, an `MLPRegressor` or a
        linear regressor of scikit-learn, a skorch ``NeuralNetRegressor``, or a
        `Pipeline` that ends in one. It is cloned and fitted, unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`.

    search : AdversarialSearch, default=None
        Optimization of the searches. None: the defaults of :class:`AdversarialSearch`.

    scope : {"dense", "last", "full", "bias", "norm", "adapter"}, default="dense"
        Searched weights, see `QUAM`. Searches begin with a shift of the bias of the
        last layer, which "norm" and "adapter" do not contain: they raise.

    setting : {"b", "a"}, default="b"
        Whether the uncertainty is about the given network ("b") or about which
        network will be used ("a"); see :func:`gaussian_uncertainty`.

    variance : {"residuals", "network"} or float, default="residuals"
        The variance of the targets: the mean squared residual on the samples of `fit`
        that are used in the steps, which should not be the training samples of a frozen
        network that overfits; the exponential of the second output of the network; or a
        number.

    perturbation : float, default=0.1
        Initial shift of the mean, in standard deviations.

    temperature : float, default=0.1
        Temperature T of the members' weights, in nats. ``np.inf``: equal weights.

    n_evaluation_samples : int, default=None
        Number of training samples, the same for all models, whose loss determines the
        weights. None: the loss on the samples of the step.

    n_jobs : int, default=None
        Number of processes that share the points, see :class:`joblib.Parallel`.

    random_state : int, RandomState instance or None, default=None
        Seed of the choice of training samples in `fit`.

    device : str or torch.device, default="auto"
        Device to search on: "auto" is CUDA if available, else the CPU.

    verbose : int, default=0
        1 shows a progress bar over the points.

    Attributes
    ----------
    estimator_ : object
        The given network.

    variance_ : float
        Variance of the targets; not with ``variance="network"``.

    n_samples_fit_ : int
        Number of training samples.

    penalty_features_, penalty_targets_, penalty_index_ : ndarray
        The training samples of the steps, see `QUAM`.

    evaluation_index_, reference_loss_ : ndarray
        Indices of the samples that weight the models, and the loss of the given network
        on each batch, see `QUAM`.

    n_features_in_ : int
        Number of features, if the estimator has this attribute.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, if the estimator has this attribute.

    See Also
    --------
    AdversarialSearch : Parameters of the searches.
    QUAM : Adversarial models for classifiers.
    AdversarialRegressionModels : The models of one point.
    gaussian_uncertainty : Decomposition of the uncertainty.

    References
    ----------
    .. [1] K. Schweighofer, L. Aichberger, M. Ielanskyi, G. Klambauer, S. Hochreiter.
       Quantification of uncertainty with adversarial models. NeurIPS 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.neural_network import MLPRegressor
    >>> from skood.epistemic import QUAMRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(200, 1))
    >>> y = np.sin(X[:, 0]) + rng.normal(scale=0.1, size=200)
    >>> net = MLPRegressor(hidden_layer_sizes=(50, 50), random_state=0)
    >>> quam = QUAMRegressor(net, random_state=0).fit(X, y)
    >>> found = quam.predict_uncertainty([[0.0], [6.0]])
    >>> bool(found.epistemic[1] > 5 * found.epistemic[0])
    True
    """

    _parameter_constraints: dict = {
        **QUAM_CONSTRAINTS,
        "estimator": [HasMethods(["fit", "predict"])],
        "setting": [StrOptions({"a", "b"})],
        "variance": [
            StrOptions({"residuals", "network"}),
            Interval(Real, 0, None, closed="neither"),
        ],
        "perturbation": [Interval(Real, 0, None, closed="neither")],
    }

    _default_parts: dict = {"search": AdversarialSearch}
    _search_defaults: dict = {"n_steps": 150, "weight_decay": 0.0, "c0": 100.0}

    def __init__(
        self,
        estimator,
        search=None,
        *,
        scope="dense",
        setting="b",
        variance="residuals",
        perturbation=0.1,
        temperature=0.1,
        n_evaluation_samples=None,
        n_jobs=None,
        random_state=None,
        device="auto",
        verbose=0,
    ):
        self.estimator = estimator
        self.search = search
        self.scope = scope
        self.setting = setting
        self.variance = variance
        self.perturbation = perturbation
        self.temperature = temperature
        self.n_evaluation_samples = n_evaluation_samples
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Fit the network, if it is not frozen, and draw the training samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...) or torch.utils.data.DataLoader
            Training samples of the network.

        y : array-like of shape (n_samples,), default=None
            Targets; None with a loader, which contains them.

        Returns
        -------
        self : QUAMRegressor
            The fitted estimator.
        """
        with fresh_fit(self):
            searches = Searches(self)
            if is_loader(X):
                check_loader(self.estimator, y)
                self.estimator_ = self.estimator
            else:
                X, y = labeled_rows(X, y)
                if y is None:
                    raise ValueError(
                        "QUAMRegressor requires y to be passed, but the target y is "
                        "None."
                    )
                self._codes(y)  # raises before the fit
                self.estimator_ = fit_wrapped(self, self.estimator, X, y)
            searches.draw_samples(X, y)
        return self

    # --- objective of the searches -------------------------------------------

    def _open(self):
        n_outputs = 2 if self.variance == "network" else 1
        return FunctionalRegressor(
            self.estimator_, n_outputs, device=self.device, for_steps=True
        )

    def _codes(self, y):
        y = column_or_1d(to_numpy(y), dtype=np.float64)
        if not np.isfinite(y).all():
            raise ValueError("Input y contains NaN or infinity.")
        return y

    def _outputs(self, network, rows, logits):
        return network.outputs(rows, logits=logits)

    def _moments(self, outputs):
        """Return means and variances from outputs of any shape (..., n_outputs)."""
        if self.variance == "network":
            return outputs[..., 0], np.exp(outputs[..., 1])
        return outputs[..., 0], np.full(outputs.shape[:-1], self.variance_)

    def _losses(self, outputs, targets):
        if self.variance == "residuals":
            self.variance_ = float(np.mean((outputs[:, 0] - targets) ** 2))
            if self.variance_ == 0:
                raise ValueError(
                    f"The network meets all samples (n_samples={len(targets)}) "
                    "exactly, which leaves no variance of the targets. Pass variance "
                    "as a number."
                )
        elif self.variance != "network":
            self.variance_ = float(self.variance)
        mean, variance = self._moments(outputs)
        return 0.5 * ((targets - mean) ** 2 / variance + np.log(2 * np.pi * variance))

    def _targets(self, reference):
        return np.tile([1, -1], (len(reference), 1))

    def _task(self, targets, reference, tail):
        each = targets.shape[1]
        mean, variance = (np.repeat(m, each) for m in self._moments(reference))
        return Means(
            *(
                torch.from_numpy(np.asarray(array, dtype=np.float64)).to(
                    tail.network.device, tail.network.dtype
                )
                for array in (targets.ravel() * self.perturbation, mean, variance)
            ),
            fixed=self.variance != "network",
        )

    # --- predictions ---------------------------------------------------------

    @blockwise
    def predict(self, X, return_std=False):
        """Return the mean of the targets, by the given network.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input samples.

        return_std : bool or "epistemic", default=False
            Whether to search adversarial models and to return a standard deviation.
            True: of the prediction, the root of the variance of the targets plus the
            weighted mean squared distance of the models from the mean. "epistemic": the
            root of the latter alone.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Means.

        y_std : ndarray of shape (n_samples,)
            Standard deviations. Only with `return_std`.
        """
        check_is_fitted(self)
        check_return_std(return_std)
        if return_std:
            return in_parallel(self, X, QUAMRegressor._mean_and_std, return_std)
        network = self._open()
        return network.outputs(network.prepare(X))[:, 0]

    def _mean_and_std(self, X, return_std):
        parts = []
        for reference, outputs, weights, _ in Searches(self).members(X):
            mean, variance = self._moments(reference)
            square = np.square(self._moments(outputs)[0] - mean)
            spread = np.sum(weights * square, axis=0)
            parts.append((mean, np.sqrt(spread + variance * (return_std is True))))
        return joined(parts)

    @blockwise
    def predict_uncertainty(self, X, return_error=False):
        """Search adversarial models for each point, and measure their uncertainty.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input samples.

        return_error : bool, default=False
            Whether to return the standard error of the epistemic part, see
            :func:`~skood.epistemic.importance_estimate`.

        Returns
        -------
        uncertainty : Bunch
            ``total``, ``aleatoric`` and ``epistemic``, each an ndarray of shape
            (n_samples,), in nats, larger for more uncertain samples. Entropies of
            densities can be negative. With `return_error` also ``epistemic_error`` and
            ``n_effective`` of shape (n_samples,), and ``epistemic_interval`` of shape
            (n_samples, 2).
        """
        check_is_fitted(self)
        found = in_parallel(self, X, QUAMRegressor._uncertainty, return_error)
        if return_error:
            warn_of_few_members(self, found.n_effective)
        return found

    def _uncertainty(self, X, return_error):
        return joined(
            [
                gaussian_uncertainty(
                    *self._moments(outputs),
                    weights=weights,
                    reference=self._moments(reference),
                    setting=self.setting,
                    return_error=return_error,
                    groups=searches,
                )
                for reference, outputs, weights, searches in Searches(self).members(X)
            ]
        )

    def trace(self, x):
        """Return the details of the searches of one point.

        Parameters
        ----------
        x : array-like of shape (1, ...)
            The point, as a batch of one sample.

        Returns
        -------
        trace : Bunch
            As returned by `QUAM.trace`; ``targets`` are "higher" and "lower", and in
            place of probabilities there are ``mean`` and ``variance`` of shape (n_steps
            + 1, 2), and ``reference``, the mean and variance of the given network.
        """
        trace, outputs, reference = Searches(self).trace(x)
        trace.targets = np.where(trace.targets > 0, "higher", "lower")
        trace.mean, trace.variance = self._moments(outputs)
        mean, variance = self._moments(reference)
        trace.divergence = kl_divergence_gaussian(
            mean, variance, trace.mean, trace.variance
        )
        trace.reference = float(mean[0]), float(variance[0])
        return trace

    @validate_params(MODEL_CONSTRAINTS, prefer_skip_nested_validation=True)
    def adversarial_models(self, X, *, slack=None, log_posterior=False):
        """Return the adversarial models of points, to be examined or used.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input samples.

        slack : float, default=None
            Maximum excess training loss of the models, see `QUAM.adversarial_models`.

        log_posterior : bool, default=False
            Whether to evaluate the log posterior.

        Returns
        -------
        models : list of AdversarialRegressionModels
            The models of each sample, "higher" and "lower".
        """
        models = []
        for given, targets, outputs, fields in Searches(self).models(
            X, slack, log_posterior
        ):
            mean, variance = self._moments(outputs)
            given_mean, given_variance = self._moments(given)
            divergence = kl_divergence_gaussian(
                given_mean, given_variance, mean, variance
            )
            fields |= {"mean": mean, "variance": variance, "divergence": divergence}
            fields["targets"] = np.where(targets > 0, "higher", "lower")
            models.append(AdversarialRegressionModels(**fields))
        return models

    def __sklearn_tags__(self):
        tags = wrapped_tags(super().__sklearn_tags__(), self.estimator)
        tags.input_tags.sparse = False  # networks take dense input
        return tags
