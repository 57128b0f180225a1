"""Cyclical stochastic-gradient Hamiltonian Monte Carlo for regression networks."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real

from skood.epistemic.mcmc._base_sampler import BaseRegressionSampler
from skood.epistemic.mcmc._sgmcmc import CyclicalSchedule, checked_schedule, run_cycles
from skood.utils._param_validation import Interval


class CyclicalSGHMCRegressor(BaseRegressionSampler):
    r"""Cyclical stochastic-gradient HMC over the weights of a regression network.

    The weights w of the network of the given model are sampled from

    .. math:: p(w \mid D)^{1/T} \propto \Bigl(\prod_i N\bigl(y_i; \mu(x_i, w),
       \sigma^2\bigr) \prod_j N(w_j; 0, s_j^2)\Bigr)^{1/T}

    by steps on mini-batches whose size follows cycles [1]_, see `CyclicalSGHMC` for
    the steps.

    Read more in the :ref:`User Guide <epistemic_regression>`.

    Parameters
    ----------
    estimator : object
        Regressor with a network: a :class:`~skood.nn.TorchRegressor`, a skorch
        ``NeuralNetRegressor``, an ``MLPRegressor`` or a linear regressor of
        scikit-learn, or a `Pipeline` that ends in one. It is cloned and fitted, unless
        it is in a :class:`~sklearn.frozen.FrozenEstimator`.

    schedule : CyclicalSchedule, default=None
        Cycles of the learning rate, and how many samples are stored. None: the defaults
        of :class:`CyclicalSchedule`. The mean loss of a sample is
        :math:`(y - \mu)^2 / (2 \sigma^2)`: with a small variance a smaller learning
        rate is needed, by the same factor.

    momentum : float, default=0.9
        Momentum :math:`\mu`.

    batch_size : int, default=128
        Maximum number of samples per step: batches of an epoch have similar sizes.

    init : {"estimator", "prior"}, default="estimator"
        Start of the first cycle: the given model, or a draw from the prior.

    prior_scale : float, "he" or dict, default=1.0
        Standard deviation of the normal priors: one for all weights; "he" is
        :math:`\sqrt{2 / \text{fan-in}}`, and 1 for biases; or a dict with one for
        each parameter of the network, by the keys of ``samples_``.

    temperature : float, default=1.0
        Temperature T. Below 1 the posterior is sharper than by Bayes' rule.

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
        Seed of the noise and the batches.

    device : str or torch.device, default="auto"
        Device to sample on: "auto" is CUDA if available, else the CPU.

    verbose : int, default=0
        1 shows a progress bar over the epochs.

    Attributes
    ----------
    estimator_ : object
        The given model, fitted.

    variance_ : float
        Variance of the targets; not with ``variance="network"``.

    samples_ : dict of str to ndarray of shape (n_cycles * samples_per_cycle, ...)
        Sampled parameters of the network, by name, cycle after cycle.

    log_density_ : ndarray of shape (n_cycles * samples_per_cycle,)
        Log posterior of the samples, up to a constant.

    n_features_in_ : int
        Number of features, if the estimator has this attribute.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, if the estimator has them.

    See Also
    --------
    CyclicalSGHMC : The same for classifiers, with the equations of the steps.
    HMCRegressor : Exact sampling up to the number of samples, for small networks.

    References
    ----------
    .. [1] R. Zhang, C. Li, J. Zhang, C. Chen, A. G. Wilson. Cyclical stochastic
       gradient MCMC for Bayesian deep learning. ICLR 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.neural_network import MLPRegressor
    >>> from skood.epistemic import CyclicalSchedule, CyclicalSGHMCRegressor
    >>> X = np.linspace(-2, 2, 40)[:, None]
    >>> network = MLPRegressor(
    ...     hidden_layer_sizes=(20,), activation="tanh", solver="lbfgs", random_state=0
    ... )
    >>> reg = CyclicalSGHMCRegressor(
    ...     network, CyclicalSchedule(lr=1e-3), variance=0.01, random_state=0
    ... )
    >>> reg = reg.fit(X, np.sin(X[:, 0]))
    >>> mean, std = reg.predict([[0.0], [5.0]], return_std="epistemic")
    >>> bool(std[1] > 2 * std[0])
    True
    """

    _parameter_constraints: dict = {
        **BaseRegressionSampler._parameter_constraints,
        "schedule": [CyclicalSchedule, None],
        "momentum": [Interval(Real, 0, 1, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
    }

    _default_parts: dict = {"schedule": CyclicalSchedule}

    def __init__(
        self,
        estimator,
        schedule=None,
        *,
        momentum=0.9,
        batch_size=128,
        init="estimator",
        prior_scale=1.0,
        temperature=1.0,
        setting="auto",
        variance="residuals",
        random_state=None,
        device="auto",
        verbose=0,
    ):
        self.estimator = estimator
        self.schedule = schedule
        self.momentum = momentum
        self.batch_size = batch_size
        self.init = init
        self.prior_scale = prior_scale
        self.temperature = temperature
        self.setting = setting
        self.variance = variance
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _options(self):
        return checked_schedule(self)

    def _sample(self, schedule, posterior, generator):
        return run_cycles(self, schedule, posterior, generator)
