"""Laplace approximation of the last layer of a regression network."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real

import numpy as np
import torch
from scipy.optimize import brentq
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted

from skood.epistemic._base_regressor import (
    BaseMemberRegressor,
    Normals,
    check_residuals,
    check_return_std,
)
from skood.epistemic._measures import gaussian_uncertainty
from skood.epistemic.laplace._curvature import (
    LastLayer,
    best_precision,
    check_full,
    log_marginal_likelihood,
)
from skood.utils._atomic_fit import fresh_fit
from skood.utils._batches import blockwise, joined
from skood.utils._linalg import symmetric_eigh
from skood.utils._param_validation import Interval, StrOptions, fit_context
from skood.utils._progress import progress
from skood.utils._torch import row_chunks


class LaplaceRegressor(BaseMemberRegressor):
    r"""Laplace approximation of the last layer of a trained regression network.

    The weights w of the last layer, whose input are the features :math:`\phi(x)`, have
    a normal distribution around the trained weights :math:`\hat w`,

    .. math:: w \sim N(\hat w, \Sigma), \qquad
       \Sigma = \Bigl(\frac{1}{\sigma^2} \sum_i \phi_i \phi_i^\top
       + \tau I\Bigr)^{-1} ,

    with the variance :math:`\sigma^2` of the targets and the precision :math:`\tau` of
    the prior. The mean of the targets is linear in w, so that this is no approximation
    where :math:`\hat w` is the mode [1]_, and the prediction for x is exact: normal
    with the output of the network as mean and the variance
    :math:`\sigma^2 + \phi(x)^\top \Sigma \, \phi(x)`.

    Read more in the :ref:`User Guide <epistemic_regression>`.

    Parameters
    ----------
    estimator : object
        Regressor with a network: a :class:`~skood.nn.TorchRegressor`, a skorch
        ``NeuralNetRegressor``, an ``MLPRegressor`` or a linear regressor of
        scikit-learn, or a `Pipeline` that ends in one. It is cloned and fitted, unless
        it is in a :class:`~sklearn.frozen.FrozenEstimator`: then its training samples
        should be passed to `fit`.

    prior_precision : "marglik" or float, default="marglik"
        Precision :math:`\tau` of the normal prior of each weight, including the bias.
        "marglik" maximizes the marginal likelihood.

    n_samples : int, default=100
        Number of draws of the weights: the members of `predict_members`. Nothing else
        depends on it.

    batch_size : int, default=256
        Maximum number of samples per forward pass.

    setting : {"auto", "a", "b"}, default="auto"
        "a": the mixture predicts. "b": the trained network predicts, and the
        uncertainty is how far it can be trusted. The predictions are the same; the
        epistemic uncertainty is twice as large in "a", see
        :func:`~skood.epistemic.gaussian_uncertainty`. "auto" is "b" for a frozen
        `estimator`, else "a".

    variance : {"marglik", "residuals", "network"} or float, default="marglik"
        The variance :math:`\sigma^2` of the targets: the value that maximizes the
        marginal likelihood, together with `prior_precision` if this is "marglik"; the
        mean squared residual on the samples of `fit`; the exponential of the second
        output of the network, whose weights then are not uncertain, and each sample has
        its own :math:`\sigma_i^2` in the sum; or a number.

    random_state : int, RandomState instance or None, default=None
        Seed of the draws, which are the same for all samples; not used by `estimator`.

    device : {"auto"}, str or torch.device, default="auto"
        Device: "auto" is CUDA if available, else the CPU.

    verbose : int, default=0
        1 shows a progress bar over the training samples.

    Attributes
    ----------
    estimator_ : object
        The fitted network.

    variance_ : float
        Variance of the targets; not with ``variance="network"``.

    prior_precision_ : float
        The prior precision.

    log_marginal_likelihood_ : float
        Laplace's approximation of the log marginal likelihood, in nats.

    covariance_ : ndarray of shape (n_weights, n_weights)
        The covariance :math:`\Sigma`; the last weight is the bias, if there is one.

    n_features_in_ : int
        Number of features, if the network has this attribute.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, only if all of them are strings.

    See Also
    --------
    Laplace : The same for classifiers.
    HMCRegressor : Samples of all weights of a small network.

    Notes
    -----
    With n samples, the eigenvalues :math:`\lambda_j` of :math:`\sum_i \phi_i
    \phi_i^\top` and :math:`\gamma = \sum_j \lambda_j / (\lambda_j + \tau \sigma^2)`,
    the number of weights that the data determine, the marginal likelihood is largest at

    .. math:: \tau = \frac{\gamma}{\|\hat w\|^2}, \qquad
       \sigma^2 = \frac{\sum_i (y_i - \hat w^\top \phi_i)^2}{n - \gamma} .

    There is one solution, because :math:`\gamma` decreases with
    :math:`\tau \sigma^2`. It is the fixed point of
    :class:`~sklearn.linear_model.BayesianRidge` if the trained weights are the mode.

    The network runs in float64. One output has one matrix: the Kronecker factorization
    of `Laplace` would be the same.

    References
    ----------
    .. [1] D. J. C. MacKay. Bayesian interpolation. Neural Computation 1992.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.neural_network import MLPRegressor
    >>> from skood.epistemic import LaplaceRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(100, 1))
    >>> y = np.sin(X[:, 0]) + rng.normal(scale=0.1, size=100)
    >>> net = MLPRegressor(
    ...     hidden_layer_sizes=(50,),
    ...     activation="tanh",
    ...     solver="lbfgs",
    ...     alpha=0.1,
    ...     random_state=0,
    ... )
    >>> reg = LaplaceRegressor(net, random_state=0).fit(X, y)
    >>> print(f"{np.sqrt(reg.variance_):.2f}")
    0.10
    >>> mean, std = reg.predict([[0.0], [6.0]], return_std="epistemic")
    >>> bool(std[1] > 3 * std[0])
    True
    """

    _parameter_constraints: dict = {
        **BaseMemberRegressor._parameter_constraints,
        "variance": [
            StrOptions({"marglik", "residuals", "network"}),
            Interval(Real, 0, None, closed="neither"),
        ],
        "prior_precision": [
            StrOptions({"marglik"}),
            Interval(Real, 0, None, closed="neither"),
        ],
        "n_samples": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "device": [str, torch.device],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        estimator,
        *,
        prior_precision="marglik",
        n_samples=100,
        batch_size=256,
        setting="auto",
        variance="marglik",
        random_state=None,
        device="auto",
        verbose=0,
    ):
        self.estimator = estimator
        self.prior_precision = prior_precision
        self.n_samples = n_samples
        self.batch_size = batch_size
        self.setting = setting
        self.variance = variance
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=False)  # the estimator is the user's
    def fit(self, X, y):
        """Fit the network, then the normal distribution of its last layer.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Training samples: input of the network.

        y : array-like of shape (n_samples,)
            Targets.

        Returns
        -------
        self : LaplaceRegressor
            The fitted regressor.

        Raises
        ------
        ValueError
            If the outputs of the network are not the output of a linear layer, or no
            prior precision or variance is optimal. The estimator then is left
            unchanged.
        """
        with fresh_fit(self):
            y = self._fit_estimator(X, y)
            head, rows = self._open(X)
            check_consistent_length(rows, y)
            check_full("full", head.weights.shape[1])
            gram, residuals, variances = self._accumulate(head, rows, y)
            values, self._vectors, _ = symmetric_eigh(gram)
            values = np.maximum(values, 0.0)
            square_norm = float((head.weights[0] ** 2).sum())
            self._choose(values, square_norm, residuals, y)
            if self.variance != "network":
                values, variances = values / self.variance_, self.variance_
            self._eigenvalues = values + self.prior_precision_  # of the inverse of Σ
            log_p = -0.5 * (residuals**2 / variances + np.log(2 * np.pi * variances))
            self.log_marginal_likelihood_ = log_marginal_likelihood(
                log_p.sum(), values, square_norm, self.prior_precision_
            )
            random_state = check_random_state(self.random_state)
            self._seed = int(random_state.randint(np.iinfo(np.int32).max))
        return self

    @property
    def covariance_(self):
        """Covariance of the weights of the last layer."""
        return self._vectors / self._eigenvalues @ self._vectors.T

    def _open(self, X):
        """Return the last layer of the network, and prepared samples."""
        network = self._network(dtype=torch.float64)
        rows = network.prepare(X)
        if network.head_name is None:
            raise ValueError(
                "LaplaceRegressor is about the torch.nn.Linear that gives the output, "
                f"but the output of {type(network.module).__name__} is not the output "
                "of one. Use HMCRegressor, MCDropoutRegressor or "
                "DeepEnsembleRegressor."
            )
        return LastLayer(network), rows

    def _read(self, head, rows):
        """Yield float64 features and outputs of batches of prepared samples."""
        for batch in head.network.batches(rows, self.batch_size):
            features, outputs = head.read(batch)
            yield features.cpu().numpy(), outputs.cpu().numpy()

    def _accumulate(self, head, rows, y):
        """Return the sum of φφ^T / σ^2, residuals, and the σ^2, 1 if not predicted."""
        gram, residuals, variances, start = 0.0, [], [], 0
        name = type(self).__name__
        with progress(len(rows), desc=name, verbose=self.verbose) as bar:
            for features, outputs in self._read(head, rows):
                stop = start + len(outputs)
                residuals.append(y[start:stop] - outputs[:, 0])
                variance = np.ones(len(outputs))
                if self.variance == "network":
                    variance = np.exp(outputs[:, 1])
                variances.append(variance)
                gram = gram + (features / variance[:, None]).T @ features
                bar.update(len(outputs))
                start = stop
        return gram, np.concatenate(residuals), np.concatenate(variances)

    def _choose(self, values, square_norm, residuals, y):
        """Set ``variance_`` and ``prior_precision_``.

        `values` are the eigenvalues of the sum in `_accumulate`.
        """
        n_samples, square_error = len(residuals), float(np.sum(residuals**2))
        precision, variance = self.prior_precision, self.variance
        if variance in ("marglik", "residuals"):
            check_residuals(square_error / n_samples, y)
        if variance == "residuals":
            variance = square_error / n_samples
        if variance == "marglik":
            known = None if precision == "marglik" else precision
            variance = best_variance(
                values, square_norm, square_error, n_samples, known
            )
        if variance == "network":
            scaled = values
        else:
            self.variance_ = float(variance)
            scaled = values / self.variance_
        if precision == "marglik":
            precision = best_precision(scaled, square_norm)
        self.prior_precision_ = float(precision)

    # --- predictions ---------------------------------------------------------

    def _passes(self, X):
        """Yield features, the normals of the network, and the variance of its mean."""
        head, rows = self._open(X)
        half = self._vectors / np.sqrt(self._eigenvalues)
        for chunk in row_chunks(len(rows), 16 * len(self._vectors)):
            for features, outputs in self._read(head, rows[chunk]):
                spread = np.square(features @ half).sum(axis=1)
                yield features, self._normals(outputs), spread

    def _blocks(self, X):
        rng = np.random.default_rng(self._seed)
        normals = rng.standard_normal((self.n_samples, len(self._vectors)))
        # the symmetric root: eigenvectors are not unique where eigenvalues are equal
        turned = normals @ self._vectors / np.sqrt(self._eigenvalues)
        draws = turned @ self._vectors.T
        for features, (mean, variance), _ in self._passes(X):
            yield Normals(mean + draws @ features.T, variance)

    @blockwise
    def predict(self, X, return_std=False):
        r"""Return the mean of the targets.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input samples.

        return_std : bool or "epistemic", default=False
            Whether to return a standard deviation as well. True: of the prediction,
            :math:`\sqrt{\sigma^2 + \phi^\top \Sigma \phi}`; "epistemic": of the mean,
            :math:`\sqrt{\phi^\top \Sigma \phi}`.

        Returns
        -------
        y : ndarray of shape (n_samples,), dtype float64
            Output of the network.

        y_std : ndarray of shape (n_samples,), dtype float64
            Standard deviations. Only with `return_std`.
        """
        check_is_fitted(self)
        check_return_std(return_std)
        parts = [
            (mean, np.broadcast_to(variance, mean.shape), spread)
            for _, (mean, variance), spread in self._passes(X)
        ]
        mean, noise, spread = joined(parts)
        if not return_std:
            return mean
        return mean, np.sqrt(spread if return_std == "epistemic" else noise + spread)

    @blockwise
    def predict_uncertainty(self, X, return_error=False):
        """Return total, aleatoric and epistemic uncertainty, in closed form.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input samples.

        return_error : bool, default=False
            Whether to return the standard error of the epistemic part, which is zero:
            it is not estimated from members.

        Returns
        -------
        uncertainty : Bunch
            ``total``, ``aleatoric`` and ``epistemic``, each an ndarray of shape
            (n_samples,), in nats, larger for more uncertain samples. Entropies of
            densities can be negative. See
            :func:`~skood.epistemic.gaussian_uncertainty`. With `return_error` also
            ``epistemic_error``, zeros, and ``n_effective``, infinite, of shape
            (n_samples,), and ``epistemic_interval`` of shape (n_samples, 2).
        """
        check_is_fitted(self)
        found = joined([self._exact(*part[1:]) for part in self._passes(X)])
        if return_error:
            found.epistemic_error = np.zeros_like(found.epistemic)
            found.epistemic_interval = np.column_stack([found.epistemic] * 2)
            found.n_effective = np.full_like(found.epistemic, np.inf)
        return found

    def _exact(self, normals, spread):
        """Return the uncertainty for a normal distribution of the mean.

        The divergences are quadratic in the mean: their averages over the distribution
        and over two points, one standard deviation away, are the same.
        """
        (mean, variance), std = normals, np.sqrt(spread)
        members = np.stack([mean - std, mean + std])
        return gaussian_uncertainty(
            members,
            variance if np.ndim(variance) == 0 else np.stack([variance] * 2),
            reference=normals,
            setting=self._setting(),
        )


def best_variance(eigenvalues, square_norm, square_error, n_samples, precision=None):
    """Return the variance of the targets with the largest marginal likelihood.

    `eigenvalues` λ of the sum of φφ^T, `square_error` > 0 of the targets. With
    γ = sum_j λ_j / (λ_j + ρ) and ρ = τ σ^2 it is σ^2 = `square_error` / (n - γ); for an
    unknown `precision` τ = γ / `square_norm`. Each is one equation for ρ with one root:
    γ decreases with ρ.
    """
    values = eigenvalues[eigenvalues > 0]
    if len(values) == 0 or (precision is None and square_norm == 0):
        raise ValueError(
            "variance='marglik' finds no best value: the features, or the weights, of "
            "the last layer are zero. Pass numbers as variance and prior_precision."
        )

    def slope(log_ratio):
        ratio = np.exp(log_ratio)
        # n - γ, without cancellation
        shares = ratio / (values + ratio)
        left = n_samples - len(values) + shares.sum()
        if precision is None:
            return ratio * left * square_norm - (1 - shares).sum() * square_error
        return ratio * left - precision * square_error

    low = high = np.log(values.mean())
    while slope(low) > 0:
        low -= 5.0
    while slope(high) < 0:
        high += 5.0
    ratio = np.exp(brentq(slope, low, high, xtol=1e-13, rtol=1e-14))
    left = n_samples - len(values) + (ratio / (values + ratio)).sum()
    return square_error / left
