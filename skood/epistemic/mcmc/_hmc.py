"""Hamiltonian Monte Carlo over the weights of a small network."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from itertools import pairwise
from numbers import Integral, Real

import numpy as np
import torch
from scipy.special import ndtri
from scipy.stats import rankdata
from sklearn.utils import Bunch

from skood.epistemic.mcmc._base_sampler import BaseSampler
from skood.utils._estimator import SkoodEstimator
from skood.utils._param_validation import Interval, StrOptions
from skood.utils._progress import progress
from skood.utils._torch import row_chunks
from skood.utils._warnings import warn

# Chains whose predictions have a larger R-hat have not converged.
_R_HAT = 1.1

# Maximum number of training samples whose probabilities are compared.
_N_COMPARED = 1000

# Noise around the given model at the start of the chains, in scales of the prior.
_NOISE = 0.1


# A larger error of the energy counts as a divergence.
_DIVERGED = 1000.0

# Number of arrays of the size of the draws that R-hat needs.
_COPIES = 10


class HMCKernel(SkoodEstimator):
    """Transition kernel of Hamiltonian Monte Carlo: trajectories and their adaptation.

    Read more in the :ref:`User Guide <epistemic>`.

    Parameters
    ----------
    n_leapfrog : int, default=50
        Mean number of gradients of a transition, drawn for each one between 0.5 and 1.5
        times the mean. A good value lets a trajectory cross the prior: about 1.5
        divided by the ``step_size_`` of `HMC`.

    step_size : float or "auto", default="auto"
        Step size, in scales of the prior. "auto" adapts it for each chain.

    target_accept : float, default=0.8
        Target acceptance rate of the step size adaptation in the warm-up. The rate is
        larger afterwards, when step sizes no longer vary.

    adapt_mass : bool, default=False
        Whether weights with a small variance in the warm-up get a larger mass. It needs
        a long warm-up and has no effect if `step_size` is a number.

    n_warmup : int, default=100
        Number of warm-up transitions of each chain, which are discarded.

    thin : int, default=1
        Number of transitions per stored sample.

    See Also
    --------
    HMC : Sampling of the weights of a network.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.epistemic import HMC, HMCKernel
    >>> HMC(LogisticRegression(), kernel=HMCKernel(n_leapfrog=20)).kernel
    HMCKernel(n_leapfrog=20)
    """

    _parameter_constraints: dict = {
        "n_leapfrog": [Interval(Integral, 1, None, closed="left")],
        "step_size": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "target_accept": [Interval(Real, 0, 1, closed="neither")],
        "adapt_mass": ["boolean"],
        "n_warmup": [Interval(Integral, 0, None, closed="left")],
        "thin": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        *,
        n_leapfrog=50,
        step_size="auto",
        target_accept=0.8,
        adapt_mass=False,
        n_warmup=100,
        thin=1,
    ):
        self.n_leapfrog = n_leapfrog
        self.step_size = step_size
        self.target_accept = target_accept
        self.adapt_mass = adapt_mass
        self.n_warmup = n_warmup
        self.thin = thin


class HMC(BaseSampler):
    r"""Hamiltonian Monte Carlo (HMC) over the weights of a small network.

    The given model defines the network. Its weights w are drawn from the posterior

    .. math:: p(w \mid D) \propto \Bigl(\prod_i p(y_i \mid x_i, w)
       \prod_j N(w_j; 0, s_j^2)\Bigr)^{1/T}

    by chains that simulate Hamiltonian dynamics with the gradient over all training
    samples. The ends of the trajectories are accepted or rejected, so that the only
    approximation is the finite number of samples [1]_. This is the ground truth for
    other methods; each sample costs some hundred passes over all training samples.

    All chains advance together. Step sizes are adapted in the warm-up by dual averaging
    [2]_. Convergence is measured by R-hat [3]_, mainly of the predictions: weights with
    the same predictions have many permutations, which no chain will visit.

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

    kernel : HMCKernel, default=None
        Trajectories, their step size and its adaptation in the warm-up. None: the
        defaults of :class:`HMCKernel`.

    n_samples : int, default=100
        Number of samples stored per chain.

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

    temperature : float, default=1.0
        Temperature T. Below 1 the posterior is sharper than by Bayes' rule. Of a
        regressor it is the same as :math:`T \sigma^2` in place of the variance and
        :math:`\sqrt T s` in place of the scales of the prior.

    setting : {"auto", "a", "b"}, default="auto"
        "a": the samples predict, and the epistemic uncertainty is the mutual
        information. "b": the given model predicts, and the epistemic uncertainty is its
        divergence from the samples. "auto" is "b" for a frozen estimator. For
        regressors see :func:`~skood.epistemic.gaussian_uncertainty`.

    likelihood : "auto", Categorical or Gaussian, default="auto"
        The distribution of the targets. "auto": :class:`Categorical` for a classifier,
        :class:`Gaussian` for a regressor. The variance of the targets is not sampled.

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

    likelihood_ : Categorical or Gaussian
        The fitted likelihood, with ``variance_``.

    classes_ : ndarray of shape (n_classes,)
        Class labels; only of a classifier.

    samples_ : dict of str to ndarray of shape (n_chains * n_samples, ...)
        Sampled parameters of the network, by their names, chain after chain.

    log_density_ : ndarray of shape (n_chains, n_samples)
        Log posterior of the samples, up to a constant.

    r_hat_ : float
        The largest R-hat of the probabilities, or means, of training samples.

    r_hat_proba_ : ndarray of shape (n_compared_rows, n_classes)
        R-hat of each probability by a classifier: of all training samples in their
        order, or, if there are more than 1000, of a fixed random subset of 1000.

    r_hat_mean_ : ndarray of shape (n_compared_rows,)
        R-hat of each mean by a regressor.

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
    HMCKernel : Parameters of the trajectories.
    CyclicalSGHMC : Approximate sampling of the posterior by mini-batches.

    Notes
    -----
    Layers run in eval mode: batch normalization keeps the statistics of the given
    model, and there is no dropout. All parameters of the network are sampled. The
    network of a binary classifier of scikit-learn has one logit per class, so that the
    prior of its margin, their difference, has :math:`\sqrt 2` times `prior_scale`.
    Networks in half precision are sampled in float32.

    References
    ----------
    .. [1] R. M. Neal. MCMC using Hamiltonian dynamics. Handbook of Markov chain Monte
       Carlo, 2011.
    .. [2] M. D. Hoffman, A. Gelman. The No-U-Turn sampler: adaptively setting path
       lengths in Hamiltonian Monte Carlo. JMLR 2014.
    .. [3] A. Vehtari, A. Gelman, D. Simpson, B. Carpenter, P.-C. Bürkner.
       Rank-normalization, folding, and localization: an improved R-hat for assessing
       convergence of MCMC. Bayesian Analysis 2021.

    Examples
    --------
    The epistemic uncertainty is high at a point far away from the training data:

    >>> import numpy as np
    >>> from sklearn.datasets import make_moons
    >>> from sklearn.neural_network import MLPClassifier
    >>> from skood.epistemic import HMC, HMCKernel
    >>> X, y = make_moons(50, noise=0.1, random_state=0)
    >>> network = MLPClassifier((8,), solver="lbfgs", random_state=0)
    >>> kernel = HMCKernel(n_leapfrog=20)
    >>> hmc = HMC(network, kernel, n_samples=50, random_state=0).fit(X, y)
    >>> hmc.samples_["0.weight"].shape
    (200, 8, 2)
    >>> near_and_far = [X[0], [-3.0, -3.0]]
    >>> hmc.predict_uncertainty(near_and_far).epistemic.round(1)
    array([0.1, 0.5])

    Samples of the weights of a regressor:

    >>> from sklearn.neural_network import MLPRegressor
    >>> from skood.epistemic import Gaussian
    >>> X = np.linspace(-2, 2, 20)[:, None]
    >>> network = MLPRegressor(
    ...     hidden_layer_sizes=(8,), activation="tanh", solver="lbfgs", random_state=0
    ... )
    >>> hmc = HMC(network, kernel, n_samples=50, likelihood=Gaussian(0.01))
    >>> hmc = hmc.set_params(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> mean, std = hmc.predict([[0.0], [4.0]], return_std=True)
    >>> std.round(1)
    array([0.1, 0.5])
    """

    _parameter_constraints: dict = {
        **BaseSampler._parameter_constraints,
        "kernel": [HMCKernel, None],
        "n_samples": [Interval(Integral, 4, None, closed="left")],
        "n_chains": [Interval(Integral, 1, None, closed="left")],
    }

    _default_parts: dict = {**BaseSampler._default_parts, "kernel": HMCKernel}

    def __init__(
        self,
        estimator,
        kernel=None,
        *,
        n_samples=100,
        n_chains=4,
        init="prior",
        prior_scale=1.0,
        temperature=1.0,
        setting="auto",
        likelihood="auto",
        random_state=None,
        device="auto",
        verbose=0,
    ):
        self.estimator = estimator
        self.kernel = kernel
        self.n_samples = n_samples
        self.n_chains = n_chains
        self.init = init
        self.prior_scale = prior_scale
        self.temperature = temperature
        self.setting = setting
        self.likelihood = likelihood
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _options(self):
        return self._part("kernel")

    def _sample(self, kernel, posterior, generator):
        scales = posterior.scales

        def value_and_grad(z):
            value, grad = posterior.value_and_grad(z * scales)
            return value, grad * scales

        noise = scales.new_empty((self.n_chains, len(scales)))
        start = noise.normal_(generator=generator)
        if self.init == "estimator":
            start = posterior.initial / scales + _NOISE * start
        n_transitions = kernel.n_warmup + self.n_samples * kernel.thin
        name = type(self).__name__
        with progress(n_transitions, desc=name, verbose=self.verbose) as bar:
            chains = sample(
                value_and_grad,
                start,
                n_samples=self.n_samples,
                generator=generator,
                bar=bar,
                **kernel.get_params(),
            )
        theta = chains.samples * scales
        self.log_density_ = chains.log_density.cpu().numpy()
        self.acceptance_rate_ = chains.acceptance_rate
        self.step_size_ = chains.step_size
        self.n_divergences_ = chains.n_divergences
        r_hats = _r_hat_of_predictions(posterior, theta)
        self.r_hat_ = float(r_hats.max())
        self.r_hat_log_density_ = float(r_hat(self.log_density_))
        self.r_hat_weights_ = {
            name: r_hat(stacked.cpu().numpy())
            for name, stacked in posterior.models.split(theta).items()
        }
        self._warn_if_unreliable(r_hats, self.n_samples * kernel.thin * self.n_chains)
        if self.likelihood_.kind == "classifier":
            self.r_hat_proba_ = r_hats
        else:
            self.r_hat_mean_ = r_hats
        return theta.flatten(0, 1)

    def _warn_if_unreliable(self, r_hats, n_transitions):
        """Warn about divergences, and chains that do not agree."""
        if self.n_divergences_.any():
            warn(
                f"HMC diverged in {self.n_divergences_.sum()} of {n_transitions} "
                f"transitions: steps of {self.step_size_.max():.3g} are too long in "
                "places. Raise target_accept or n_warmup, or lower step_size."
            )
        if self.r_hat_ > _R_HAT:
            fraction = np.mean((r_hats > _R_HAT).reshape(len(r_hats), -1).any(axis=1))
            who = "chains" if self.n_chains > 1 else "halves of the chain"
            warn(
                f"The {who} of HMC do not agree: R-hat of the predictions is up to "
                f"{self.r_hat_:.3g}, and above {_R_HAT} at {fraction:.1%} of "
                f"{len(r_hats)} training samples (step sizes "
                f"{self.step_size_.min():.2g} to {self.step_size_.max():.2g}, "
                f"acceptance {self.acceptance_rate_.mean():.0%}). Raise n_leapfrog, "
                "n_warmup or n_samples."
            )


def _r_hat_of_predictions(posterior, theta):
    """Return R-hat (n_rows, ...) of predictions for training samples, or some."""
    indices = np.arange(posterior.n_samples)
    if len(indices) > _N_COMPARED:
        indices = np.random.default_rng(0).choice(indices, _N_COMPARED, replace=False)
        indices.sort()
    row_bytes = 8 * theta.shape[0] * theta.shape[1] * posterior.models.n_outputs
    parts = []
    for chunk in row_chunks(len(indices), 2 * row_bytes):
        predictions = [posterior.predictions(chain, indices[chunk]) for chain in theta]
        parts.append(r_hat(np.stack(predictions)))
    return np.concatenate(parts)


def leapfrog(value_and_grad, z, r, value, grad, step, n_steps, inverse_mass):
    """Return position, momentum, value and gradient of all chains after `n_steps`."""
    r = r + 0.5 * step * grad
    for i in range(n_steps):
        z = z + step * inverse_mass * r
        value, grad = value_and_grad(z)
        r = r + (step if i + 1 < n_steps else 0.5 * step) * grad
    return z, r, value, grad


class _DualAveraging:
    """Dual averaging of step sizes (Hoffman & Gelman 2014, Sec. 3.2)."""

    gamma, t0, kappa = 0.05, 10.0, 0.75

    def __init__(self, step, target):
        self.target = target
        self.mu = torch.log(10.0 * step)
        self.h = torch.zeros_like(step)
        self.log_mean = torch.zeros_like(step)
        self.n = 0
        self.step = step

    def update(self, accept):
        self.n += 1
        weight = 1.0 / (self.n + self.t0)  # Eq. (6)
        self.h = (1 - weight) * self.h + weight * (self.target - accept)
        log_step = self.mu - math.sqrt(self.n) / self.gamma * self.h
        weight = self.n**-self.kappa
        self.log_mean = weight * log_step + (1 - weight) * self.log_mean
        self.step = torch.exp(log_step)

    def mean(self):
        return torch.exp(self.log_mean) if self.n else self.step


class _Sampler:
    """State and transitions of the chains."""

    def __init__(self, value_and_grad, start, generator, n_leapfrog=1, bar=None):
        self.value_and_grad = value_and_grad
        self.generator = generator
        self.n_leapfrog = n_leapfrog
        self.bar = bar
        self.z = start.clone()
        self.value, self.grad = value_and_grad(self.z)
        self.inverse_mass = torch.ones_like(start[0])

    def _energy(self, value, r):
        return 0.5 * (r.square() * self.inverse_mass).double().sum(dim=1) - value

    def _propose(self, step, n_steps):
        """Return the end of a random trajectory and the decrease of the energy."""
        noise = torch.empty_like(self.z).normal_(generator=self.generator)
        r = noise / self.inverse_mass.sqrt()
        state = self.z, r, self.value, self.grad
        options = step[:, None].to(r.dtype), n_steps, self.inverse_mass
        end = leapfrog(self.value_and_grad, *state, *options)
        gain = self._energy(self.value, r) - self._energy(end[2], end[1])
        return end, torch.nan_to_num(gain, nan=-math.inf)

    def transition(self, step):
        """Move each chain; return acceptance probabilities and divergences.

        The number of steps is drawn between about 0.5 and 1.5 times `n_leapfrog`.
        """
        n = self.n_leapfrog
        low, high = (n + 1) // 2, n + n // 2
        if low < high:
            place = {"generator": self.generator, "device": self.z.device}
            low = int(torch.randint(low, high + 1, (1,), **place))
        (z, _, value, grad), gain = self._propose(step, low)
        self.bar.update(1)
        accept = gain.clamp(max=0.0).exp()
        u = torch.empty_like(accept).uniform_(generator=self.generator)
        moved = u < accept
        self.z = torch.where(moved[:, None], z, self.z)
        self.grad = torch.where(moved[:, None], grad, self.grad)
        self.value = torch.where(moved, value, self.value)
        return accept, gain < -_DIVERGED

    def first_step(self, step):
        """Double or halve the step sizes until one step is accepted half the time."""
        up = None
        for _ in range(100):
            _, gain = self._propose(step, 1)
            good = gain > math.log(0.5)
            if up is None:
                up, going = good, torch.ones_like(good)
            going &= good == up
            if not going.any():
                break
            factor = torch.where(up, 2.0, 0.5).to(step.dtype)
            step = torch.where(going, step * factor, step)
        return step

    def warm_up(self, n_warmup, target_accept, adapt_mass):
        """Adapt the step sizes and, optionally, the masses; return the step sizes."""
        step = torch.full_like(self.value, 0.1)
        # growing windows, so that late values dominate
        ends = [n_warmup * fraction // 8 for fraction in (0, 1, 2, 4, 8)]
        for start, end in pairwise(ends):
            step = self.first_step(step)
            averaging = _DualAveraging(step, target_accept)
            draws = []
            for i in range(end - start):
                accept, _ = self.transition(averaging.step)
                averaging.update(accept)
                if adapt_mass and i >= (end - start) // 2:
                    draws.append(self.z)
            step = averaging.mean()
            if len(draws) > 1 and end < n_warmup:
                self.inverse_mass = _shrunk_variance(torch.stack(draws))
        return step


def _shrunk_variance(draws):
    """Return the variance within the chains, shrunk towards a small one as in Stan."""
    n_draws = draws.shape[0] * draws.shape[1]
    variance = draws.double().var(dim=0).mean(dim=0)
    return ((n_draws * variance + 5e-3) / (n_draws + 5)).to(draws.dtype)


def sample(
    value_and_grad,
    start,
    *,
    n_samples,
    n_warmup,
    n_leapfrog,
    generator,
    bar,
    thin=1,
    target_accept=0.8,
    step_size="auto",
    adapt_mass=False,
):
    """Sample from a density by Hamiltonian Monte Carlo, all chains in parallel.

    ``value_and_grad(z)`` maps positions (n_chains, n_dims), independent of each other,
    to log densities (n_chains,), up to a constant and in float64, and their gradients.
    The number of steps is drawn around `n_leapfrog`, to avoid periodic orbits. Returns
    samples (n_chains, n_samples, n_dims), and statistics after the warm-up.
    """
    sampler = _Sampler(value_and_grad, start, generator, n_leapfrog, bar)
    if step_size == "auto":
        step = sampler.warm_up(n_warmup, target_accept, adapt_mass)
    else:
        step = torch.full_like(sampler.value, step_size)
        for _ in range(n_warmup):
            sampler.transition(step)
    n_chains, n_dims = start.shape
    samples = start.new_empty((n_chains, n_samples, n_dims))
    log_density = step.new_empty((n_chains, n_samples))
    accepted, diverged = torch.zeros_like(step), torch.zeros_like(step)
    for i in range(n_samples * thin):
        accept, bad = sampler.transition(step)
        accepted += accept
        diverged += bad
        if (i + 1) % thin == 0:
            samples[:, i // thin] = sampler.z
            log_density[:, i // thin] = sampler.value
    return Bunch(
        samples=samples,
        log_density=log_density,
        acceptance_rate=(accepted / (n_samples * thin)).cpu().numpy(),
        step_size=step.cpu().numpy(),
        n_divergences=diverged.cpu().numpy().astype(int),
    )


# --- convergence diagnostics -----------------------------------------------


def r_hat(draws):
    """Return the rank-normalized split R-hat (...) of draws (n_chains, n_draws, ...).

    The halves of the chains are compared as separate chains, for the bulk and, by the
    distances of the draws from their median, for the tails (Vehtari et al. 2021).
    """
    draws = np.asarray(draws)
    flat = draws.reshape(*draws.shape[:2], -1)
    n_bytes = _COPIES * 8 * flat.shape[0] * flat.shape[1]
    parts = [
        _split_r_hat(flat[:, :, chunk].astype(np.float64))
        for chunk in row_chunks(flat.shape[2], n_bytes)
    ]
    return np.concatenate(parts).reshape(draws.shape[2:])


def _split_r_hat(draws):
    n_draws = draws.shape[1] // 2
    halves = np.concatenate([draws[:, :n_draws], draws[:, -n_draws:]])
    folded = np.abs(halves - np.median(halves, axis=(0, 1)))
    return np.maximum(_rank_r_hat(halves), _rank_r_hat(folded))


def _rank_r_hat(draws):
    shape = draws.shape
    flat = draws.reshape(shape[0] * shape[1], -1)
    ranks = rankdata(flat, axis=0)
    scores = ndtri((ranks - 0.375) / (len(flat) + 0.25)).reshape(shape)
    n = shape[1]
    # Eqs. (3) and (4) of Vehtari et al. 2021, with B / n = between
    within = scores.var(axis=1, ddof=1).mean(axis=0)
    between = scores.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(within > 0, between / within, np.where(between > 0, np.inf, 0))
        # all draws are the same
        return np.where(
            (within == 0) & (between == 0), 1.0, np.sqrt((n - 1) / n + ratio)
        )
