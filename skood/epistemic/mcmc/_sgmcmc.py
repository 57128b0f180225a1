"""Cyclical stochastic-gradient Hamiltonian Monte Carlo (SGHMC)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from numbers import Integral, Real

import numpy as np
import torch

from skood.epistemic.mcmc._base_sampler import BaseSampler
from skood.utils._estimator import SkoodEstimator
from skood.utils._param_validation import Interval
from skood.utils._progress import progress
from skood.utils._warnings import warn

# Samples have diverged if their log density is lower than the log density of the given
# model by this value per weight and sample. 0.5 per weight is expected.
_FAR = 10.0


class CyclicalSchedule(SkoodEstimator):
    r"""Cyclical learning rate of a sampler, and the samples that are stored.

    The learning rate follows cycles of K steps,

    .. math:: l_k = \frac{l_0}{2} \Bigl(\cos \frac{\pi \, (k \bmod K)}{K} + 1\Bigr) .

    Read more in the :ref:`User Guide <epistemic>`.

    Parameters
    ----------
    n_cycles : int, default=5
        Number of cycles.

    epochs_per_cycle : int, default=50
        Number of passes over the training samples in each cycle.

    samples_per_cycle : int, default=3
        Number of samples stored per cycle, after each of its last epochs.

    exploration : float, default=0.0
        Fraction of the steps at the beginning of each cycle that are without noise.
        They find a mode, which is far from the mass of the posterior if there are many
        weights: the remaining steps must be enough to return to it.

    lr : float, default=0.05
        Learning rate :math:`l_0` at the beginning of a cycle. The mean loss of a
        regressor is :math:`(y - \mu)^2 / (2 \sigma^2)`: with a small variance a smaller
        learning rate is needed, by the same factor.

    momentum : float, default=0.9
        Momentum :math:`\mu` of the steps.

    See Also
    --------
    CyclicalSGHMC : Sampling of the weights of a network.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.epistemic import CyclicalSchedule, CyclicalSGHMC
    >>> schedule = CyclicalSchedule(n_cycles=2)
    >>> CyclicalSGHMC(LogisticRegression(), schedule).set_params(schedule__lr=0.1)
    CyclicalSGHMC(estimator=LogisticRegression(),
                  schedule=CyclicalSchedule(lr=0.1, n_cycles=2))
    """

    _parameter_constraints: dict = {
        "n_cycles": [Interval(Integral, 1, None, closed="left")],
        "epochs_per_cycle": [Interval(Integral, 1, None, closed="left")],
        "samples_per_cycle": [Interval(Integral, 1, None, closed="left")],
        "exploration": [Interval(Real, 0, 1, closed="both")],
        "lr": [Interval(Real, 0, None, closed="neither")],
        "momentum": [Interval(Real, 0, 1, closed="left")],
    }

    def __init__(
        self,
        *,
        n_cycles=5,
        epochs_per_cycle=50,
        samples_per_cycle=3,
        exploration=0.0,
        lr=0.05,
        momentum=0.9,
    ):
        self.n_cycles = n_cycles
        self.epochs_per_cycle = epochs_per_cycle
        self.samples_per_cycle = samples_per_cycle
        self.exploration = exploration
        self.lr = lr
        self.momentum = momentum

    def _rate(self, fraction):
        """Return the learning rate after a fraction of a cycle."""
        return 0.5 * self.lr * (math.cos(math.pi * fraction) + 1.0)


class CyclicalSGHMC(BaseSampler):
    r"""Cyclical stochastic-gradient Hamiltonian Monte Carlo over a network's weights.

    The weights w of the network of the given model, and a momentum r, advance by
    mini-batches B of the N training samples [1]_, [2]_:

    .. math::

        r &\leftarrow \mu r + h_k \nabla \Bigl(\frac{N}{|B|} \sum_{i \in B}
        \log p(y_i \mid x_i, w) + \log p(w)\Bigr) + \sqrt{2 (1 - \mu) T} \, \xi,
        \qquad \xi \sim N(0, I), \\
        w &\leftarrow w + h_k r, \qquad h_k = \sqrt{l_k / N},

    which at a constant step is gradient descent with the momentum :math:`\mu` and the
    learning rate :math:`l_k` on the mean loss, plus noise that turns it into a sampler
    of :math:`p(w \mid D)^{1/T}`. The learning rate follows the cycles of a
    :class:`CyclicalSchedule`: the large steps at the beginning of a cycle move to
    another mode; the small steps at its end sample this mode.

    Read more in the :ref:`User Guide <epistemic>`, for regressors in :ref:`another
    section <epistemic_regression>`.

    Parameters
    ----------
    estimator : object
        Classifier or regressor with a network: a :class:`~skood.nn.TorchClassifier` or
        :class:`~skood.nn.TorchRegressor`, a module wrapped by
        :func:`skood.nn.pretrained`, a skorch net, a linear model, ``MLPClassifier`` or
        ``MLPRegressor`` of scikit-learn, or a `Pipeline` that ends in one. It is
        cloned and fitted, unless it is in a :class:`~sklearn.frozen.FrozenEstimator`.

    schedule : CyclicalSchedule, default=None
        Cycles of the learning rate, the momentum, and how many samples are stored.
        None: the defaults of :class:`CyclicalSchedule`.

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
        "a": the samples predict, and the epistemic uncertainty is the mutual
        information. "b": the given model predicts, and the epistemic uncertainty is its
        divergence from the samples. "auto" is "b" for a frozen estimator. For
        regressors see :func:`~skood.epistemic.gaussian_uncertainty`.

    likelihood : "auto", Categorical or Gaussian, default="auto"
        The distribution of the targets. "auto": :class:`Categorical` for a classifier,
        :class:`Gaussian` for a regressor. The variance of the targets is not sampled.

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

    likelihood_ : Categorical or Gaussian
        The fitted likelihood, with ``variance_``.

    classes_ : ndarray of shape (n_classes,)
        Class labels; only of a classifier.

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
    CyclicalSchedule : Parameters of the cycles.
    HMC : Exact sampling up to the number of samples, for small networks.

    Notes
    -----
    The sampled distribution differs from the posterior by terms that vanish with the
    learning rate, at any momentum: by the step size, and by the noise of the
    mini-batches, which is not corrected.

    Layers run in eval mode: batch normalization keeps the statistics of the given
    model, and there is no dropout. All parameters of the network are sampled. The
    network of a binary classifier of scikit-learn has one logit per class, so that the
    prior of its margin, their difference, has :math:`\sqrt 2` times `prior_scale`.
    Networks in half precision are sampled in float32.

    References
    ----------
    .. [1] R. Zhang, C. Li, J. Zhang, C. Chen, A. G. Wilson. Cyclical stochastic
       gradient MCMC for Bayesian deep learning. ICLR 2020.
    .. [2] T. Chen, E. Fox, C. Guestrin. Stochastic gradient Hamiltonian Monte Carlo.
       ICML 2014.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from sklearn.neural_network import MLPClassifier
    >>> from skood.epistemic import CyclicalSGHMC
    >>> X, y = make_moons(100, noise=0.1, random_state=0)
    >>> network = MLPClassifier((20,), solver="lbfgs", random_state=0)
    >>> clf = CyclicalSGHMC(network, batch_size=20, random_state=0).fit(X, y)
    >>> clf.predict_members(X).shape
    (15, 100, 2)
    >>> near_and_far = [X[0], [4.0, 4.0]]
    >>> clf.predict_uncertainty(near_and_far).epistemic.round(1)
    array([0. , 0.4])

    Samples of the weights of a regressor:

    >>> import numpy as np
    >>> from sklearn.neural_network import MLPRegressor
    >>> from skood.epistemic import CyclicalSchedule, Gaussian
    >>> X = np.linspace(-2, 2, 40)[:, None]
    >>> network = MLPRegressor(
    ...     hidden_layer_sizes=(20,), activation="tanh", solver="lbfgs", random_state=0
    ... )
    >>> schedule, likelihood = CyclicalSchedule(lr=1e-3), Gaussian(0.01)
    >>> reg = CyclicalSGHMC(network, schedule, likelihood=likelihood, random_state=0)
    >>> reg = reg.fit(X, np.sin(X[:, 0]))
    >>> mean, std = reg.predict([[0.0], [9.0]], return_std="epistemic")
    >>> std.round(1)
    array([0. , 0.2])
    """

    _parameter_constraints: dict = {
        **BaseSampler._parameter_constraints,
        "schedule": [CyclicalSchedule, None],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
    }

    _default_parts: dict = {**BaseSampler._default_parts, "schedule": CyclicalSchedule}

    def __init__(
        self,
        estimator,
        schedule=None,
        *,
        batch_size=128,
        init="estimator",
        prior_scale=1.0,
        temperature=1.0,
        setting="auto",
        likelihood="auto",
        random_state=None,
        device="auto",
        verbose=0,
    ):
        self.estimator = estimator
        self.schedule = schedule
        self.batch_size = batch_size
        self.init = init
        self.prior_scale = prior_scale
        self.temperature = temperature
        self.setting = setting
        self.likelihood = likelihood
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _options(self):
        schedule = self._part("schedule")
        if schedule.samples_per_cycle > schedule.epochs_per_cycle:
            raise ValueError(
                "A cycle gives one sample after each of its last epochs: "
                f"samples_per_cycle={schedule.samples_per_cycle} must not be "
                f"larger than epochs_per_cycle={schedule.epochs_per_cycle}."
            )
        return schedule

    def _sample(self, schedule, posterior, generator):
        theta = posterior.initial
        if self.init == "prior":
            noise = torch.empty_like(theta).normal_(generator=generator)
            theta = posterior.scales * noise
        momentum = torch.zeros_like(theta)
        n_batches = math.ceil(posterior.n_samples / self.batch_size)
        samples, values = [], []
        n_epochs = schedule.n_cycles * schedule.epochs_per_cycle
        name = type(self).__name__
        with progress(n_epochs, desc=name, verbose=self.verbose) as bar:
            for number in range(n_epochs):
                epoch = number % schedule.epochs_per_cycle
                order = torch.randperm(
                    posterior.n_samples, generator=generator, device=theta.device
                )
                for i, indices in enumerate(order.tensor_split(n_batches)):
                    done = epoch * n_batches + i
                    fraction = done / (n_batches * schedule.epochs_per_cycle)
                    state = theta, momentum
                    theta, momentum = self._step(
                        schedule, posterior, *state, indices, fraction, generator
                    )
                self._check_finite(theta, number, schedule.lr)
                if epoch >= schedule.epochs_per_cycle - schedule.samples_per_cycle:
                    samples.append(theta)
                    values.append(posterior.value_and_grad(theta)[0])
                bar.update(1)
        self.log_density_ = torch.cat(values).cpu().numpy()
        self._check_density(posterior, schedule.lr)
        return torch.cat(samples)

    def _step(self, schedule, posterior, theta, momentum, indices, fraction, generator):
        """Make a step on a batch; `fraction` is the fraction of the cycle completed."""
        step = math.sqrt(schedule._rate(fraction) / posterior.n_samples)
        _, grad = posterior.likelihood_and_grad(theta, indices)
        grad = grad * (posterior.n_samples / len(indices)) + posterior.grad_log_prior(
            theta
        )
        momentum = schedule.momentum * momentum + step * grad
        if fraction >= schedule.exploration:
            noise = torch.empty_like(theta).normal_(generator=generator)
            scale = math.sqrt(2.0 * (1.0 - schedule.momentum) * self.temperature)
            momentum = momentum + scale * noise
        return theta + step * momentum, momentum

    def _check_density(self, posterior, lr):
        """Warn if samples have diverged from the mass of the posterior."""
        initial, n_weights = posterior.initial, posterior.models.n_weights
        value = float(posterior.value_and_grad(initial)[0])
        least = value - _FAR * (n_weights + posterior.n_samples)
        n_far = np.sum(~(self.log_density_ >= least))  # includes NaN
        if n_far:
            warn(
                f"{type(self).__name__} diverged: the log density of {n_far} of "
                f"{len(self.log_density_)} samples is as low as "
                f"{self.log_density_.min():.3g}. It is {value:.3g} at the given model, "
                f"and samples of {n_weights} weights should be about {n_weights / 2:g} "
                f"below the mode. Lower lr={lr}, or scale the features (for "
                "instance with sklearn.preprocessing.StandardScaler)."
            )

    def _check_finite(self, theta, epoch, lr):
        if not torch.isfinite(theta).all():
            raise ValueError(
                f"The weights of {type(self).__name__} became infinite in epoch "
                f"{epoch + 1}: lr={lr} is too large. Lower lr, or scale the features "
                "(for instance with sklearn.preprocessing.StandardScaler)."
            )
