"""Hamiltonian Monte Carlo over the weights of a small regression network."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral

from skood.epistemic.mcmc._base_sampler import BaseRegressionSampler
from skood.epistemic.mcmc._hmc import HMCKernel, run_chains
from skood.utils._param_validation import Interval


class HMCRegressor(BaseRegressionSampler):
    r"""Hamiltonian Monte Carlo (HMC) over the weights of a small regression network.

    The given model defines the network. Its weights w are drawn from the posterior

    .. math:: p(w \mid D) \propto \prod_i N\bigl(y_i; \mu(x_i, w), \sigma^2\bigr)
       \prod_j N(w_j; 0, s_j^2) ,

    by chains that follow the gradient over all training samples, see `HMC`. The only
    approximation is the finite number of samples [1]_: this is the ground truth for
    other methods.

    Read more in the :ref:`User Guide <epistemic_regression>`.

    Parameters
    ----------
    estimator : object
        Regressor with a network: a :class:`~skood.nn.TorchRegressor`, a skorch
        ``NeuralNetRegressor``, an ``MLPRegressor`` or a linear regressor of
        scikit-learn, or a `Pipeline` that ends in one. It is cloned and fitted, unless
        it is in a :class:`~sklearn.frozen.FrozenEstimator`.

    kernel : HMCKernel, default=None
        Trajectories, their step size and its adaptation. None: the defaults of
        :class:`HMCKernel`.

    n_samples : int, default=100
        Number of samples stored per chain.

    n_warmup : int, default=100
        Number of warm-up transitions of each chain, which are discarded.

    n_chains : int, default=4
        Number of chains.

    init : {"prior", "estimator"}, default="prior"
        Initial positions of the chains: draws from the prior, far from each other, so
        that R-hat can detect whether they have converged; or the given model, plus
        noise of a tenth of the prior's scale.

    prior_scale : float, "he" or dict, default=1.0
        Standard deviation s of the priors: one for all weights; "he" is :math:`\sqrt{2
        / \text{fan-in}}`, and 1 for biases; or a dict with one for each parameter of
        the network, by the keys of ``samples_``.

    setting : {"auto", "a", "b"}, default="auto"
        "a": the samples predict, and it is uncertain which of them is right. "b": the
        given model predicts, and the epistemic uncertainty is its divergence from the
        samples. "auto" is "b" for a frozen estimator. See
        :func:`~skood.epistemic.gaussian_uncertainty`.

    variance : {"residuals", "network"} or float, default="residuals"
        The variance :math:`\sigma^2` of the targets, which is not sampled: the mean
        squared residual of the given model on the samples of `fit`, which is too small
        if it overfits; the exponential of the second output of the sampled network; or
        a number.

    random_state : int, RandomState instance or None, default=None
        Seed of the chains.

    device : str or torch.device, default="auto"
        Device to sample on: "auto" is CUDA if available, else the CPU.

    verbose : int, default=0
        1 shows a progress bar over the transitions.

    Attributes
    ----------
    estimator_ : object
        The given model, fitted.

    variance_ : float
        Variance of the targets; not with ``variance="network"``.

    samples_ : dict of str to ndarray of shape (n_chains * n_samples, ...)
        Sampled parameters of the network, by their names, chain after chain.

    log_density_ : ndarray of shape (n_chains, n_samples)
        Log posterior of the samples, up to a constant.

    r_hat_ : float
        The largest R-hat of the means of training samples.

    r_hat_mean_ : ndarray of shape (n_compared_rows,)
        R-hat of each of these means: of all training samples in their order, or, if
        there are more than 1000, of a fixed random subset of 1000.

    r_hat_log_density_ : float
        R-hat of the log posterior.

    r_hat_weights_ : dict of str to ndarray
        R-hat of the parameters. Large values are expected.

    acceptance_rate_ : ndarray of shape (n_chains,)
        Mean acceptance probability after the warm-up.

    step_size_ : ndarray of shape (n_chains,)
        Step sizes.

    n_divergences_ : ndarray of shape (n_chains,)
        Number of transitions after the warm-up whose energy rose by more than 1000.

    n_features_in_ : int
        Number of features, if the estimator has this attribute.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, if the estimator has them.

    See Also
    --------
    HMC : The same for classifiers, with references for the chains.
    LaplaceRegressor : The exact posterior of the last layer.

    Notes
    -----
    A temperature T, as of `HMC`, has no parameter: it is the same as :math:`T \sigma^2`
    in place of the variance and :math:`\sqrt T s` in place of the scales of the prior.

    References
    ----------
    .. [1] R. M. Neal. MCMC using Hamiltonian dynamics. Handbook of Markov chain Monte
       Carlo, 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.neural_network import MLPRegressor
    >>> from skood.epistemic import HMCKernel, HMCRegressor
    >>> X = np.linspace(-2, 2, 20)[:, None]
    >>> network = MLPRegressor(
    ...     hidden_layer_sizes=(8,), activation="tanh", solver="lbfgs", random_state=0
    ... )
    >>> kernel = HMCKernel(n_leapfrog=20)
    >>> hmc = HMCRegressor(
    ...     network, kernel, n_samples=50, variance=0.01, random_state=0
    ... )
    >>> hmc = hmc.fit(X, np.sin(X[:, 0]))
    >>> mean, std = hmc.predict([[0.0], [4.0]], return_std=True)
    >>> bool(std[1] > 3 * std[0])
    True
    """

    _parameter_constraints: dict = {
        **BaseRegressionSampler._parameter_constraints,
        "kernel": [HMCKernel, None],
        "n_samples": [Interval(Integral, 4, None, closed="left")],
        "n_warmup": [Interval(Integral, 0, None, closed="left")],
        "n_chains": [Interval(Integral, 1, None, closed="left")],
    }
    _parameter_constraints.pop("temperature")

    _default_parts: dict = {"kernel": HMCKernel}

    def __init__(
        self,
        estimator,
        kernel=None,
        *,
        n_samples=100,
        n_warmup=100,
        n_chains=4,
        init="prior",
        prior_scale=1.0,
        setting="auto",
        variance="residuals",
        random_state=None,
        device="auto",
        verbose=0,
    ):
        self.estimator = estimator
        self.kernel = kernel
        self.n_samples = n_samples
        self.n_warmup = n_warmup
        self.n_chains = n_chains
        self.init = init
        self.prior_scale = prior_scale
        self.setting = setting
        self.variance = variance
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _options(self):
        return self._part("kernel")

    def _sample(self, kernel, posterior, generator):
        theta, r_hats = run_chains(self, kernel, posterior, generator)
        self.r_hat_mean_ = r_hats[:, 0]
        return theta
