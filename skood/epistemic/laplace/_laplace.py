"""Laplace approximation of the posterior over the weights of a network."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from collections.abc import Callable
from functools import partial
from numbers import Integral, Real

import numpy as np
import torch
from scipy.special import log_softmax, logsumexp, softmax
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length

from skood.epistemic._base_uncertainty import BaseMembers
from skood.epistemic._likelihood import Block
from skood.epistemic.laplace._curvature import (
    STRUCTURES,
    Eigenbasis,
    GaussianFit,
    GaussianHead,
    Kronecker,
    LastLayer,
    Linearized,
    best_precision,
    check_full,
    exact_uncertainty,
    kronecker_curvature,
    laplace_torch,
    log_marginal_likelihood,
)
from skood.utils._array_api import copy_of
from skood.utils._atomic_fit import fresh_fit
from skood.utils._batches import joined
from skood.utils._linalg import check_no_overflow
from skood.utils._param_validation import Interval, StrOptions, fit_context
from skood.utils._progress import progress
from skood.utils._torch import row_chunks

# Forms of H by the names under which they are stored: arrays, no objects.
_KINDS: dict = {**STRUCTURES, "blocks": Eigenbasis}
_WIDE = "full", "blocks"  # with eigenvectors over all weights

# Bytes of draws that are made at a time, and of draws that a call may store.
_DRAW_BYTES = 64 * 2**20
_STORED_BYTES = 2 * 2**30

# From this number of classes on, covariances are computed for groups of samples with
# features and logits of this many bytes, in blocks that fit in the cache.
_MANY_CLASSES = 100
_GROUP_BYTES = 64 * 2**20
_BLOCK_BYTES = 2**20


class Laplace(BaseMembers):
    r"""Laplace approximation of the posterior over weights of a trained network.

    The weights w have a normal distribution around the trained weights :math:`\hat w`,

    .. math:: w \sim N\bigl(\hat w, (H + \tau I)^{-1}\bigr), \qquad
       H = \sum_i J_i^\top \bigl(\operatorname{diag}(p_i) - p_i p_i^\top\bigr) J_i,

    with :math:`J_i` the Jacobian of the logits at training sample i, :math:`p_i` its
    probabilities and :math:`\tau` the precision of the prior [1]_. For the last layer
    with features :math:`\phi`, where H is the Hessian itself, everything is in closed
    form. For a sample x the logits are normal with the logits of the network f(x) as
    mean and covariance :math:`\Sigma(x) = J(x) (H + \tau I)^{-1} J(x)^\top`.

    Of a regressor with the variance :math:`\sigma^2` of the targets, the weights of the
    last layer are uncertain, with :math:`H = \sum_i \phi_i \phi_i^\top / \sigma^2`. The
    mean is linear in them, so that this is no approximation where :math:`\hat w` is the
    mode [4]_, and the prediction for x is exact: normal with the output of the network
    as mean and the variance :math:`\sigma^2 + \phi(x)^\top (H + \tau I)^{-1} \phi(x)`.

    Read more in the :ref:`User Guide <epistemic>`, for regressors in :ref:`another
    section <epistemic_regression>`.

    Parameters
    ----------
    estimator : object
        A network: a `TorchClassifier` or `TorchRegressor`, a module wrapped by
        :func:`~skood.nn.pretrained`, a skorch net, a linear model, `MLPClassifier` or
        `MLPRegressor` of scikit-learn, or a `Pipeline` that ends in one. It is cloned
        and fitted, unless it is in a :class:`~sklearn.frozen.FrozenEstimator`: then its
        training samples should be passed to `fit`.

    subset : {"last_layer", "all"} or list of str, default="last_layer"
        Uncertain weights: of the linear layer that gives the logits, of all layers, or
        of the layers with these names. Except for "last_layer", the network is
        linearized in its weights, in float64. Of a regressor "last_layer" only.

    hessian : {"kron", "diag", "full"}, default="kron"
        Form of H: a Kronecker product per layer, its diagonal, or the full matrix (for
        some thousands of weights). "kron" with a `subset` other than "last_layer" needs
        the package laplace-torch. The output of a regressor has one matrix, which
        "kron" is, too; "diag" is not supported.

    prior_precision : "marglik" or float, default="marglik"
        Precision :math:`\tau` of the normal prior of each weight, including biases.
        "marglik" maximizes the marginal likelihood. A network that was trained with
        weight decay λ on the mean loss of n samples has τ = nλ.

    predictive : str, default="mean_field"
        Computation of the probabilities from the normal logits in setting "a" (a
        regressor has no such choice):
        "mean_field", from the variances of the differences of two logits [2]_;
        "probit", MacKay's approximation :math:`p_k \propto \exp(f_k / \sqrt{1 + \pi
        \Sigma_{kk} / 8})`; "mc", the mean over `n_samples` draws; "bridge", the mean of
        the Dirichlet of the Laplace bridge; "bridge_norm", the same after its variance
        correction [3]_.

    n_samples : int, default=100
        Number of draws of the weights, which are the members. Draws of more than 2 GiB
        are repeated for each block of samples. Of a regressor only `predict_members`
        depends on them.

    batch_size : int, default=256
        Maximum number of samples per forward pass.

    setting : {"auto", "a", "b"}, default="auto"
        "a": the mixture predicts. "b": the trained network predicts, and the
        uncertainty is how far it can be trusted. "auto" is "b" for a frozen
        `estimator`, else "a". The predictions of a regressor are the same; its
        epistemic uncertainty is twice as large in "a", see
        :func:`~skood.epistemic.gaussian_uncertainty`.

    likelihood : "auto", Categorical or Gaussian, default="auto"
        The distribution of the targets. "auto": :class:`Categorical` for a classifier,
        ``Gaussian("marglik")`` for a regressor, whose variance maximizes the marginal
        likelihood, together with `prior_precision` if this is "marglik". With a
        variance that the network predicts its weights are not uncertain, and each
        sample has its own :math:`\sigma_i^2` in the sum.

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

    likelihood_ : Categorical or Gaussian
        The fitted likelihood, with ``variance_``.

    prior_precision_ : float
        The prior precision.

    log_marginal_likelihood_ : float
        Laplace's approximation of the log marginal likelihood at `prior_precision_`, in
        nats.

    covariance_ : ndarray of shape (n_weights, n_weights)
        The covariance of the weights of the last layer of a regressor; the last weight
        is the bias, if there is one.

    classes_ : ndarray of shape (n_classes,)
        Class labels; only of a classifier.

    n_features_in_ : int
        Number of features, if the network has this attribute.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, only if all of them are strings.

    See Also
    --------
    MixtureLaplace : Laplace approximation around each member of an ensemble.
    skood.epistemic.DeepEnsemble : Members from several training runs.

    Notes
    -----
    Members are draws of the weights, the same for all samples and for any `predictive`:
    `predict_members` and `predict_uncertainty` use them. So the uncertainties of
    different predictives are the same, and in setting "a" the total uncertainty is the
    entropy of the mean of the draws, which `predict_proba` returns with
    ``predictive="mc"``.

    With ``hessian="kron"``, H of the last layer is
    :math:`\sum_i (\operatorname{diag}(p_i) - p_i p_i^\top) \otimes
    \frac1n \sum_i \phi_i \phi_i^\top`, where :math:`\phi` ends in a one for the bias.
    laplace-torch, for other subsets, has a separate block for the bias, which is
    treated as independent of the other weights.

    A binary margin m, of a network with one output or a binary classifier of
    scikit-learn, is one output with logits (-m/2, m/2) for any `subset`: τ is the
    precision of *its* weights. "mean_field" and "probit" are the same then.

    With ``"last_layer"`` the network runs in its own dtype: in float32 the result for a
    sample depends on the other samples of its batch in the seventh digit.

    A constant that is added to all logits changes no probability, but its variance,
    which is limited only by the prior, is in every :math:`\Sigma_{kk}`: "probit" treats
    it as uncertainty, "mean_field" does not. The time of "mean_field" is quadratic in
    the number of classes with ``hessian="kron"`` of the last layer, and cubic
    otherwise; the time of "probit" is linear.

    A regressor runs in float64. With n samples, the eigenvalues :math:`\lambda_j` of
    :math:`\sum_i \phi_i \phi_i^\top` and :math:`\gamma = \sum_j \lambda_j /
    (\lambda_j + \tau \sigma^2)`, the number of weights that the data determine, its
    marginal likelihood is largest at

    .. math:: \tau = \frac{\gamma}{\|\hat w\|^2}, \qquad
       \sigma^2 = \frac{\sum_i (y_i - \hat w^\top \phi_i)^2}{n - \gamma} .

    There is one solution, because :math:`\gamma` decreases with
    :math:`\tau \sigma^2`. It is the fixed point of
    :class:`~sklearn.linear_model.BayesianRidge` if the trained weights are the mode.

    References
    ----------
    .. [1] E. Daxberger, A. Kristiadi, A. Immer, R. Eschenhagen, M. Bauer, P. Hennig.
       Laplace redux - effortless Bayesian deep learning. NeurIPS 2021.
    .. [2] Z. Lu, E. Ie, F. Sha. Mean-field approximation to Gaussian-softmax integral
       with application to uncertainty estimation. 2020.
    .. [3] M. Hobbhahn, A. Kristiadi, P. Hennig. Fast predictive uncertainty for
       classification with Bayesian deep networks. UAI 2022.
    .. [4] D. J. C. MacKay. Bayesian interpolation. Neural Computation 1992.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from skood.epistemic import Laplace
    >>> from skood.nn import TorchClassifier
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> net = TorchClassifier(max_epochs=50, lr=0.01, random_state=0)
    >>> clf = Laplace(net, random_state=0).fit(X, y)
    >>> near_and_far = [[0.0, 1.0], [3.0, 3.0]]
    >>> clf.predict_uncertainty(near_and_far).epistemic.round(2)
    array([0.01, 0.5 ])
    >>> clf.predict_proba([[0.0, 1.0]]).shape
    (1, 2)

    The last layer of a regressor:

    >>> import numpy as np
    >>> from sklearn.neural_network import MLPRegressor
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
    >>> reg = Laplace(net, random_state=0).fit(X, y)
    >>> print(f"{np.sqrt(reg.likelihood_.variance_):.2f}")
    0.10
    >>> mean, std = reg.predict([[0.0], [6.0]], return_std="epistemic")
    >>> std.round(2)
    array([0.02, 0.2 ])
    """

    _parameter_constraints: dict = {
        **BaseMembers._parameter_constraints,
        **BaseMembers._network_constraints,
        "subset": [StrOptions({"last_layer", "all"}), list],
        "hessian": [StrOptions({"kron", "diag", "full"})],
        "prior_precision": [
            StrOptions({"marglik"}),
            Interval(Real, 0, None, closed="neither"),
        ],
        "predictive": [
            StrOptions({"mean_field", "probit", "mc", "bridge", "bridge_norm"})
        ],
        "n_samples": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
    }
    _auto_variance = "marglik"

    def __init__(
        self,
        estimator,
        *,
        subset="last_layer",
        hessian="kron",
        prior_precision="marglik",
        predictive="mean_field",
        n_samples=100,
        batch_size=256,
        setting="auto",
        likelihood="auto",
        random_state=None,
        device="auto",
        verbose=0,
    ):
        self.estimator = estimator
        self.subset = subset
        self.hessian = hessian
        self.prior_precision = prior_precision
        self.predictive = predictive
        self.n_samples = n_samples
        self.batch_size = batch_size
        self.setting = setting
        self.likelihood = likelihood
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=False)  # the estimator is the user's
    def fit(self, X, y):
        """Fit the network, then the normal distribution of its weights.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Training samples: input of the network.

        y : array-like of shape (n_samples,)
            Class labels, or targets of a regressor.

        Returns
        -------
        self : Laplace
            The fitted estimator.

        Raises
        ------
        ValueError
            If the logits are not the output of a linear layer (``"last_layer"``), a
            layer of `subset` does not exist, a frozen network does not have a class of
            `y`, or no prior precision or variance is optimal. The estimator then is
            left unchanged.

        ImportError
            If `hessian` needs laplace-torch, and it is not installed.
        """
        with fresh_fit(self):
            if self._is_classifier():
                check_installed(self.subset, self.hessian)
            else:
                self._check_subset_of_regressor()
            y = self._fit_estimator(X, y)
            subset = self.subset
            self._fitted_subset = subset if isinstance(subset, str) else list(subset)
            self._network_kind = None
            layers, samples = self._open(X)
            self._network_kind = layers.network.probed()
            if self.likelihood_.kind == "classifier":
                codes = self.likelihood_.targets(y, self)
                check_consistent_length(samples, codes)
                self._fit_softmax(layers, samples, codes)
            else:
                check_consistent_length(samples, y)
                self._fit_gaussian(layers, samples, y)
            random_state = check_random_state(self.random_state)
            self._seed = int(random_state.randint(np.iinfo(np.int32).max))
        return self

    def _check_subset_of_regressor(self):
        """Raise unless the uncertain weights are the last layer's, in a full matrix."""
        for name, values in (("subset", ["last_layer"]), ("hessian", ["kron", "full"])):
            value = getattr(self, name)
            if value not in values:
                raise ValueError(
                    f"{name}={value!r} is for classifiers: Laplace of a regressor is "
                    f"the exact posterior of its last layer. Use {name}={values[0]!r}."
                )

    def _open(self, X):
        """Return the uncertain weights with their network, and prepared samples."""
        is_classifier = self.likelihood_.kind == "classifier"
        is_last = self._fitted_subset == "last_layer"
        options: dict = {"one_margin": True} if is_classifier else {}
        if not (is_classifier and is_last):
            options["dtype"] = torch.float64
        network = self.likelihood_.open(self.estimator_, self.device, **options)
        if self._network_kind is not None:  # known from the fit
            network.restore(self._network_kind)
        samples = network.prepare(X)
        if not is_last:
            return Linearized(network, self._fitted_subset), samples
        if network.head_name is None and not is_classifier:
            raise ValueError(
                "Laplace of a regressor is about the torch.nn.Linear that gives the "
                f"output, but the output of {type(network.module).__name__} is not the "
                "output of one. Use HMC, MCDropout or DeepEnsemble."
            )
        return LastLayer(network), samples

    def _passes(self, layers, samples, n_arrays, is_wide=False):
        """Yield features and outputs of batches, for `n_arrays` numbers per output.

        Wide batches include Jacobians, with a number per weight, and derived arrays.
        """
        n_arrays += 2 * layers.weights.numel() if is_wide else 0
        n_outputs = len(vars(self).get("classes_", [0]))
        for chunk in row_chunks(len(samples), 16 * n_outputs * n_arrays):
            for batch in layers.network.batches(samples[chunk], self.batch_size):
                yield layers.read(batch)

    def _blocks(self, X):
        layers, samples = self._open(X)
        if self.likelihood_.kind == "classifier":
            return self._softmax_blocks(layers, samples)
        return self._gaussian_blocks(layers, samples)

    def _uncertainty(self, X, return_error):
        """Return the uncertainty, of a regressor in closed form and without error."""
        setting, is_classifier = self._setting(), self.likelihood_.kind == "classifier"
        if is_classifier:
            options = {"setting": setting, "return_error": return_error}
            uncertainty = partial(self.likelihood_.uncertainty, **options)
            return joined([*map(uncertainty, self._blocks(X))])
        exact = [
            exact_uncertainty(normals, spread, setting)
            for _, normals, spread in self._gaussian_passes(*self._open(X))
        ]
        result = joined(exact)
        if return_error:
            result.epistemic_error = np.zeros_like(result.epistemic)
            result.epistemic_interval = np.column_stack([result.epistemic] * 2)
            result.n_effective = np.full_like(result.epistemic, np.inf)
        return result

    # --- classifiers: curvature of the softmax -------------------------------

    def _fit_softmax(self, layers, samples, codes):
        """Fit the normal distribution of weights before a softmax."""
        curvature, log_likelihood = self._accumulate(layers, samples, codes)
        (self._form,) = (k for k, v in _KINDS.items() if type(curvature) is v)
        self._arrays = vars(curvature)
        h = curvature.eigenvalues
        square_norm = float((layers.weights**2).sum())
        precision = self.prior_precision
        if isinstance(precision, str):
            precision = best_precision(h, square_norm)
        self.prior_precision_ = float(precision)
        self.log_marginal_likelihood_ = log_marginal_likelihood(
            log_likelihood, h, square_norm, self.prior_precision_
        )

    @property
    def _curvature(self):
        """Return the form of H from its stored arrays."""
        curvature = object.__new__(_KINDS[self._form])
        vars(curvature).update(self._arrays)
        return curvature

    def _accumulate(self, layers, samples, codes):
        """Return curvature of the loss and log-likelihood of the training samples."""
        is_wide = isinstance(layers, Linearized)
        if is_wide and self.hessian == "kron":
            return kronecker_curvature(
                layers, samples, codes, self.batch_size, self.verbose
            )
        total: list = []
        log_likelihood, start = 0.0, 0
        name = type(self).__name__
        with progress(len(samples), desc=name, verbose=self.verbose) as bar:
            for features, logits in self._passes(layers, samples, 2, is_wide):
                sums = layers.sums(self.hessian, features, logits)
                total = [*map(torch.add, total, sums)] if total else [*sums]
                of_batch = torch.as_tensor(codes[start : start + len(logits)])
                log_p = torch.log_softmax(logits, 1)
                picked = log_p.gather(1, of_batch.to(log_p.device)[:, None])
                log_likelihood += float(picked.sum())
                start += len(logits)
                bar.update(len(logits))
        arrays = tuple(tensor.cpu().numpy() for tensor in total)
        return layers.curvature(self.hessian, arrays, len(samples)), log_likelihood

    def _draws(self, weights):
        """Yield changes of the weights, the same in each call, in parts."""
        rng, curvature = np.random.default_rng(self._seed), self._curvature
        for chunk in row_chunks(self.n_samples, 8 * weights.numel(), _DRAW_BYTES):
            normals = rng.standard_normal((chunk.stop - chunk.start, *weights.shape))
            on_device = torch.from_numpy(normals).to(weights.device)
            yield curvature.draw(on_device, self.prior_precision_)

    def _softmax_blocks(self, layers, samples):
        of = layers.weights
        draws, n_bytes = partial(self._draws, of), 8 * of.numel() * self.n_samples
        if n_bytes <= _DRAW_BYTES:  # stored for the next call
            key = of.device, self._seed, self.n_samples, self.prior_precision_
            stored = copy_of(self._arrays["eigenvalues"], "draws", dict)
            parts = stored.get(key)
            if parts is None:
                parts = [*draws()]
                stored.clear()  # of another number, or precision
                stored[key] = parts
            draws = partial(iter, parts)
        elif n_bytes <= _STORED_BYTES:
            draws = partial(iter, [*draws()])  # else they are drawn for each block
        is_wide = self._form in _WIDE
        for features, logits in self._passes(layers, samples, self.n_samples, is_wide):
            members = []
            for changes in draws():
                of_draws = logits + layers.changes(features, changes)
                members.append(torch.log_softmax(of_draws, 2).cpu())
            yield Block(
                torch.cat(members).numpy(),
                reference=torch.log_softmax(logits, 1).cpu().numpy(),
            )

    def _mixture_proba(self, X):
        """Return the class probabilities by `predictive`."""
        if self.predictive == "mc":
            return super()._mixture_proba(X)
        # the covariances of single samples would take too long
        curvature, n_classes = self._curvature, len(self.classes_)
        has_many_classes = (
            self.predictive == "mean_field"
            and isinstance(curvature, Kronecker)
            and n_classes >= _MANY_CLASSES
        )
        layers, samples = self._open(X)
        n_arrays = 2 if has_many_classes else 4 + 4 * n_classes
        passes = self._passes(layers, samples, n_arrays, self._form in _WIDE)
        if has_many_classes:
            proba = self._mean_field_of_many(curvature, passes)
        else:
            proba = [self._by_moments(layers, curvature, *batch) for batch in passes]
        proba = np.concatenate(proba)
        check_no_overflow(proba, "A logit, or its variance,")
        return proba

    def _mean_field_of_many(self, curvature, passes):
        """Return mean-field probabilities in groups of samples, blocks of classes."""
        proba, n_samples = [], 0
        group: list = []

        def finish():
            features, logits = map(torch.cat, zip(*group, strict=True))
            options = self.prior_precision_, _BLOCK_BYTES
            blocks = curvature.pair_variances(features, *options)
            proba.append(mean_field_of_blocks(logits, blocks))

        for features, logits in passes:
            group.append((features, logits))
            n_samples += len(logits)
            n_numbers = features.shape[1] + logits.shape[1]
            if n_samples >= max(1, _GROUP_BYTES // (8 * n_numbers)):
                finish()
                group, n_samples = [], 0
        if group:
            finish()
        return proba

    def _by_moments(self, layers, curvature, features, logits):
        """Return probabilities from the moments of each sample's logits."""
        how = features, self.prior_precision_
        if self.predictive == "mean_field":
            moments = (layers.class_covariances(curvature.covariances(*how)),)
        elif self.predictive == "probit":
            moments = (curvature.variances(*how),)
        else:
            variances, row_sums = curvature.variances(*how), curvature.row_sums(*how)
            moments = layers.class_moments(variances, row_sums)
        arrays = [tensor.cpu().numpy() for tensor in (logits, *moments)]
        return _CLOSED_FORMS[self.predictive](*arrays)

    # --- regressors: exact posterior of the last layer -----------------------

    def _fit_gaussian(self, layers, samples, y):
        """Fit the distribution of weights, and ``variance_`` of the likelihood."""
        check_full("full", layers.weights.shape[1])
        name = type(self).__name__
        with progress(len(samples), desc=name, verbose=self.verbose) as bar:
            passes = self._read(layers, samples, bar)
            weights, variance = layers.weights[0], self.likelihood_.variance
            fit = GaussianFit(passes, y, weights, variance, self.prior_precision)
        if fit.variance is not None:
            self.likelihood_.variance_ = fit.variance
        self.prior_precision_ = fit.precision
        self.log_marginal_likelihood_ = fit.log_marginal_likelihood
        self._vectors, self._eigenvalues = fit.head.vectors, fit.head.eigenvalues

    @property
    def _head(self):
        """Return the posterior from its stored arrays."""
        return GaussianHead(self._vectors, self._eigenvalues)

    @property
    def covariance_(self):
        """Covariance of the weights of the last layer of a regressor."""
        if self.likelihood_.kind == "classifier":
            raise AttributeError("covariance_ is an attribute of regressors only.")
        return self._head.covariance

    def _read(self, layers, samples, bar=None):
        """Yield float64 features and outputs of batches as ndarrays."""
        for features, outputs in self._passes(layers, samples, layers.weights.numel()):
            yield features.cpu().numpy(), outputs.cpu().numpy()
            if bar is not None:
                bar.update(len(outputs))

    def _gaussian_passes(self, layers, samples):
        """Yield features, the normals of the network, and the variance of its mean."""
        posterior = self._head
        for features, outputs in self._read(layers, samples):
            normals = self.likelihood_.predictions(outputs)
            yield features, normals, posterior.spread(features)

    def _gaussian_blocks(self, layers, samples):
        draws = self._head.draws(self.n_samples, self._seed)
        for features, (mean, variance), _ in self._gaussian_passes(layers, samples):
            yield Block((mean + draws @ features.T, variance))

    def _mean(self, X):
        return self._moments(X)[0]

    def _moments(self, X):
        """Return the mean, the variance of the targets and of the mean, exactly."""
        return joined(
            [
                (mean, np.broadcast_to(variance, mean.shape), spread)
                for _, (mean, variance), spread in self._gaussian_passes(*self._open(X))
            ]
        )


def check_installed(subset, hessian):
    """Raise before training if laplace-torch is needed and missing, see `Laplace`."""
    if subset != "last_layer" and hessian == "kron":
        laplace_torch()


def mean_field_proba(logits, covariances):
    """Return the pairwise mean-field approximation of the mean of the softmax.

    p_k is proportional to 1 / sum_l exp(-(f_k - f_l) / sqrt(1 + π V_kl / 8)), where
    V_kl = Σ_kk + Σ_ll - 2 Σ_kl. For two classes it is MacKay's approximation.
    """
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    spread = variances[:, :, None] + variances[:, None, :] - 2 * covariances
    scale = np.sqrt(1 + np.pi / 8 * np.maximum(spread, 0.0))
    differences = (logits[:, :, None] - logits[:, None, :]) / scale
    return softmax(-logsumexp(-differences, axis=2), axis=1)


def mean_field_of_blocks(logits, blocks):
    """Return `mean_field_proba` from blocks: slices, and V, which is overwritten."""
    log_sums = logits.clone()
    for chunk, classes, spread in blocks:
        scaled = spread.clamp_(min=0).mul_(np.pi / 8).add_(1).rsqrt_()
        scaled *= logits[chunk, None] - logits[chunk, classes, None]
        log_sums[chunk, classes] = scaled.logsumexp(2)
    return softmax(-log_sums.cpu().numpy(), axis=1)


def probit_proba(logits, variances):
    """Return p_k proportional to exp(f_k / sqrt(1 + π Σ_kk / 8)) (MacKay)."""
    return softmax(logits / np.sqrt(1 + np.pi / 8 * variances), axis=1)


def bridge_log_alpha(logits, variances, row_sums, *, normalize=False):
    """Return log parameters (n_rows, n_classes) of the Laplace bridge's Dirichlet.

    Its Laplace approximation has the moments of the logits, first conditioned on sum_k
    f_k = 0, which the inverse of the softmax implies; then alpha_k = 1 / Σ_kk (1 - 2/K
    + e^f_k / K^2 sum_l e^-f_l). `normalize` scales f and Σ first, by 1 / sqrt(c) and
    1/c with c the mean of the Σ_kk over sqrt(K/2).
    """
    n_classes = logits.shape[1]
    total = row_sums.sum(axis=1, keepdims=True)
    # row sums of zero up to rounding: no conditioning is needed
    is_conditioned = total > 1e-12 * variances.sum(axis=1, keepdims=True)
    factor = np.where(
        is_conditioned, row_sums / np.where(is_conditioned, total, 1.0), 1 / n_classes
    )
    mean = logits - factor * logits.sum(axis=1, keepdims=True)
    variances = variances - np.where(is_conditioned, factor * row_sums, 0.0)
    variances = np.maximum(variances, np.finfo(np.float64).tiny)
    if normalize:
        scale = variances.mean(axis=1, keepdims=True) / np.sqrt(n_classes / 2)
        mean, variances = mean / np.sqrt(scale), variances / scale
    grown = mean + logsumexp(-mean, axis=1, keepdims=True) - 2 * np.log(n_classes)
    with np.errstate(divide="ignore"):
        constant = np.log(1 - 2 / n_classes)  # minus infinity for two classes
    return np.logaddexp(constant, grown) - np.log(variances)


def bridge_proba(logits, variances, row_sums, *, normalize=False):
    """Return the mean of the Laplace bridge's Dirichlet, see `bridge_log_alpha`."""
    log_alpha = bridge_log_alpha(logits, variances, row_sums, normalize=normalize)
    return np.exp(log_softmax(log_alpha, axis=1))


_CLOSED_FORMS: dict[str, Callable] = {
    "mean_field": mean_field_proba,
    "probit": probit_proba,
    "bridge": bridge_proba,
    "bridge_norm": partial(bridge_proba, normalize=True),
}
