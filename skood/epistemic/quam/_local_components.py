"""Distributions around adversarial models, whose draws are members (QUAM)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from numbers import Integral, Real

import torch
from torch.func import jacrev

from skood.epistemic._vectorized import Vectorized
from skood.epistemic.quam._batched_gradients import make_steps
from skood.epistemic.quam._tails import DenseTail
from skood.nn._functional_network import symmetric
from skood.utils._estimator import SkoodEstimator
from skood.utils._param_validation import Interval, StrOptions
from skood.utils._torch import row_chunks

# Maximum number of weights of a full covariance; beyond it is diagonal.
_MOST_FULL = 2000

_MOMENTUM = 0.9


class LocalComponent(SkoodEstimator):
    r"""Distribution around each adversarial model, whose draws are members of QUAM.

    The part `component` of :class:`QUAM`. With the adversarial models
    :math:`\tilde w_k` of a point, one for each of K targets, members are drawn from the
    mixture :math:`q(w) = \frac1K \sum_k N(w; \tilde w_k, \Sigma_k)` [1]_.

    Read more in the :ref:`User Guide <quam_components>`.

    Parameters
    ----------
    kind : {"laplace", "subspace", "sgmcmc", "delta", "feasible"}, default="laplace"
        "laplace": :math:`\Sigma_k` is the inverse of the generalized Gauss-Newton
        matrix of the negative log posterior at :math:`\tilde w_k`, and the weights are
        :math:`\omega \propto p(D \mid w) \, p(w) / q(w)`. The matrix is full for a
        last layer with at most 2,000 weights, else diagonal.
        "subspace": the covariance of the last 20 models of the search, in `rank`
        directions, which has no density: the weights :math:`\omega \propto p(D \mid w)
        \, p(w)` are biased.
        "sgmcmc": a chain of stochastic-gradient Hamiltonian Monte Carlo from each
        model. Members of a chain have equal weights, chains
        :math:`e^{-L_{\text{train}} / T}` with their mean loss.
        "delta": all models along the searches are the members.
        "feasible": of each search the model with the largest divergence among the
        models that explain the training data, see :func:`feasible_divergence`.

    n_samples : int, default=10
        Number of draws from each component.

    n_evaluation_samples : int, default=None
        Number of training samples, the same for all models, whose loss determines the
        weights of "delta" and "feasible". None: 256 for "feasible" and for
        ``eta="adaptive"`` of the search, else the loss on the samples of the step, at
        no additional cost.

    prior_precision : float, default=1.0
        Precision of the normal prior of the searched weights.

    slack : float, default=None
        Maximum excess training loss of the adversarial models. None: `gamma` of the
        search, or ``2 / n_samples_fit_`` if this is larger: a decrease of the
        log-likelihood by two nats.

    include_reference : bool, default=False
        Whether the given network is a component, too; not with "subspace".

    lr : float, default=0.01
        Learning rate of the chains, see `CyclicalSGHMC`.

    thinning : int, default=10
        Number of steps for each draw of a chain.

    See Also
    --------
    QUAM : Search for adversarial models.
    importance_estimate : Error of the estimate.

    References
    ----------
    .. [1] K. Schweighofer, L. Aichberger, M. Ielanskyi, G. Klambauer, S. Hochreiter.
       Quantification of uncertainty with adversarial models. NeurIPS 2023.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.epistemic import QUAM, LocalComponent
    >>> X, y = load_iris(return_X_y=True)
    >>> component = LocalComponent("laplace", n_samples=50)
    >>> quam = QUAM(LogisticRegression(max_iter=500), component=component)
    >>> quam.set_params(random_state=0).fit(X, y).predict_members(X[:1]).shape
    (150, 1, 3)
    """

    _parameter_constraints: dict = {
        "kind": [StrOptions({"laplace", "subspace", "sgmcmc", "delta", "feasible"})],
        "n_samples": [Interval(Integral, 1, None, closed="left")],
        "n_evaluation_samples": [Interval(Integral, 1, None, closed="left"), None],
        "prior_precision": [Interval(Real, 0, None, closed="neither")],
        "slack": [Interval(Real, None, None, closed="both"), None],
        "include_reference": ["boolean"],
        "lr": [Interval(Real, 0, None, closed="neither")],
        "thinning": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        kind="laplace",
        *,
        n_samples=10,
        n_evaluation_samples=None,
        prior_precision=1.0,
        slack=None,
        include_reference=False,
        lr=0.01,
        thinning=10,
    ):
        self.kind = kind
        self.n_samples = n_samples
        self.n_evaluation_samples = n_evaluation_samples
        self.prior_precision = prior_precision
        self.slack = slack
        self.include_reference = include_reference
        self.lr = lr
        self.thinning = thinning


class Stored:
    """Training samples of a posterior: some of them, for all `n_samples`.

    `features` are the input of the searched layers, `batches` pairs of these and class
    indices, and the training loss of `task` is the negative log-likelihood.
    """

    def __init__(self, features, targets, batches, n_samples, task):
        self.features, self.targets = features, targets
        self.batches, self.n_samples, self.task = batches, n_samples, task

    def loss(self, tail, weights, point):
        """Return the mean loss (n_models,) of stacked weights, in float64."""
        n_models = len(tail.by_search(weights)[0])
        per_row = n_models * max(tail.bytes_per_row, self.features[0].nbytes)
        total = 0.0
        with torch.no_grad():
            for chunk in row_chunks(len(self.features), per_row):
                logits, _ = tail.logits(weights, self.features[chunk], point)
                loss = self.task.training_loss(logits, self.targets[chunk]).double()
                total = total + loss * len(self.targets[chunk])
        return total / len(self.features)


class NormalMixture:
    """Mixture of normal distributions; `precisions` are diagonals or matrices."""

    def __init__(self, means, precisions):
        self._means, self._is_full = means, precisions.ndim == 3
        self._roots = (
            torch.linalg.cholesky(precisions) if self._is_full else precisions.sqrt()
        )

    def draw(self, n_samples, generator):
        """Return draws (n_components * n_samples, n_weights), by components."""
        n_components, n_weights = self._means.shape
        shape = n_components, n_samples, n_weights
        z = torch.randn(shape, generator=generator, dtype=torch.float64)
        z = z.to(self._means.device)
        if self._is_full:
            z = torch.linalg.solve_triangular(self._roots.mT, z.mT, upper=True).mT
        else:
            z = z / self._roots[:, None]
        return (self._means[:, None] + z).flatten(0, 1)

    def log_density(self, theta):
        """Return the log density (n_models,) of the mixture."""
        of_each = []
        for mean, root in zip(self._means, self._roots, strict=True):
            scaled = (theta - mean) @ root if self._is_full else (theta - mean) * root
            scales = root.diagonal() if self._is_full else root
            of_each.append(scales.log().sum() - 0.5 * scaled.square().sum(1))
        constant = math.log(len(of_each)) + 0.5 * theta.shape[1] * math.log(2 * math.pi)
        return torch.logsumexp(torch.stack(of_each), 0) - constant


def draw_members(tail, stored, point, theta, iterates, options):
    """Return outputs (n_members, n_outputs) and log weights of the members of a point.

    `theta` (n_components, n_weights) are the adversarial models, and `iterates` the
    last models of their searches or None. `options` are a `LocalComponent`, the
    temperature, the rank and the seed.
    """
    component, temperature, rank, seed = options
    generator = torch.Generator().manual_seed(seed)
    precision, n_samples = component.prior_precision, component.n_samples
    if component.kind == "sgmcmc":
        draws = _chains(tail, stored, point, theta, component, generator)
        outputs, losses = _evaluate(tail, stored, point, draws)
        of_chains = losses.view(len(theta), n_samples).mean(dim=1)
        return outputs, (-of_chains / temperature).repeat_interleave(n_samples)
    theta = theta.double()
    if component.kind == "subspace":
        draws = _in_subspace(theta, iterates.double(), rank, n_samples, generator)
        log_q = 0.0
    else:
        mixture = normals_at(tail, stored, theta, precision)
        draws = mixture.draw(n_samples, generator)
        log_q = mixture.log_density(draws)
    outputs, losses = _evaluate(tail, stored, point, draws)
    log_prior = -0.5 * precision * draws.square().sum(1)
    return outputs, -stored.n_samples * losses + log_prior - log_q


def _evaluate(tail, stored, point, draws):
    """Return outputs at the point and mean losses on the stored samples of models."""
    outputs, losses = [], []
    each = 8 * draws.shape[1] * draws.element_size()
    for chunk in row_chunks(len(draws), each):
        weights = tail.stacked(draws[chunk])
        with torch.no_grad():
            _, logits = tail.logits(weights, stored.features[:1], point)
            outputs.append(stored.task.outputs(logits).double())
        losses.append(stored.loss(tail, weights, point))
    return torch.cat(outputs), torch.cat(losses)


def normals_at(tail, stored, theta, prior_precision):
    """Return Laplace's approximations at some models, as a `NormalMixture`.

    Precisions are n times the mean of sum_c p_c g_c g_c^T with the gradients g_c of log
    p_c, the generalized Gauss-Newton matrix, plus the prior's.
    """
    scale = stored.n_samples / len(stored.features)
    is_last = isinstance(tail, DenseTail) and len(tail.layers) == 1
    if is_last and theta.shape[1] <= _MOST_FULL:
        eye = torch.eye(theta.shape[1]).to(theta)
        matrices = [_full(tail, stored, weights) for weights in theta]
        return NormalMixture(
            theta, scale * torch.stack(matrices) + prior_precision * eye
        )
    diagonal = _dense_diagonal if isinstance(tail, DenseTail) else _any_diagonal
    return NormalMixture(theta, scale * diagonal(tail, stored, theta) + prior_precision)


def _full(tail, stored, theta):
    """Return the matrix of a last layer: (diag(p) - pp^T) ⊗ φφ^T, inputs first."""
    weights = tail.stacked(theta[None])
    (weight, *bias) = (view[0].detach().double() for view in tail.by_search(weights))
    width = weight.shape[1]
    total = theta.new_zeros(width * width, (len(weight) + len(bias)) ** 2)
    for chunk in row_chunks(len(stored.features), 8 * total.shape[1]):
        phi = stored.features[chunk].double()
        logits = phi @ weight + (bias[0] if bias else 0.0)
        p = torch.softmax(symmetric(logits), 1)[:, -width:]
        if bias:
            phi = torch.cat([phi, torch.ones_like(phi[:, :1])], dim=1)
        g = torch.diag_embed(p) - p[:, :, None] * p[:, None]
        total += g.flatten(1).T @ (phi[:, :, None] * phi[:, None]).flatten(1)
    n_in = math.isqrt(total.shape[1])
    blocks = total.view(width, width, n_in, n_in).permute(2, 0, 3, 1)
    return blocks.reshape(n_in * width, n_in * width)


def _dense_diagonal(tail, stored, theta):
    """Return diagonals (n_models, n_weights) for linear layers, by matrix products."""
    weights = tail.stacked(theta)
    total = torch.zeros_like(theta)
    per_row = 2 * len(theta) * tail.bytes_per_row
    for chunk in row_chunks(len(stored.features), per_row):
        with torch.enable_grad():
            inputs, outputs = _layers(tail, weights, stored.features[chunk])
            logits = outputs[-1]
            if logits.shape[2] == 1:
                logits = torch.cat([-logits, logits], dim=2) / 2
            log_p = torch.log_softmax(logits, dim=2)
        p = log_p.detach().exp()
        for c in range(log_p.shape[2]):
            signals = torch.autograd.grad(
                log_p[:, :, c].sum(), outputs, retain_graph=True
            )
            start = 0
            for h, signal, (_, bias) in zip(
                inputs, signals, tail.pairs(weights), strict=True
            ):
                squares = p[:, :, c, None] * signal.square()
                of_weight = (h.detach().square().mT @ squares).flatten(1).double()
                sums = [of_weight]
                if bias is not None:
                    sums.append(squares.sum(1).double())
                for square_sums in sums:
                    total[:, start : start + square_sums.shape[1]] += square_sums
                    start += square_sums.shape[1]
    return total


def _layers(tail, weights, features):
    """Return inputs and outputs of all layers, (n_models, n_rows, ...)."""
    views, inputs, outputs = iter(tail.by_search(weights)), [], []
    h = features
    for i, (_, bias) in enumerate(tail.layers):
        weight = next(views)
        h = h.expand(len(weight), *h.shape[-2:])
        inputs.append(h)
        h = h @ weight
        if bias is not None:
            h = h + next(views)[:, None]
        outputs.append(h)
        if i < len(tail.functions):
            h = tail.functions[i](h)
    return inputs, outputs


def _any_diagonal(tail, stored, theta):
    """Return diagonals (n_models, n_weights) by the derivatives for each sample."""

    def log_proba(weights, row):
        logits = tail.network.logits(row[None], tail.of_one(weights))
        return torch.log_softmax(logits, dim=1)[0]

    def squares(row, weights):
        jacobian = jacrev(log_proba)(weights, row)
        p = log_proba(weights, row).exp()
        return p @ jacobian.square()

    each, totals = Vectorized(squares), []
    n_outputs = len(tail.network.classes)
    for weights in theta.to(tail.network.dtype):
        total = torch.zeros_like(theta[0])
        for chunk in row_chunks(len(stored.features), 32 * n_outputs * len(weights)):
            total += each(stored.features[chunk], weights=weights).double().sum(0)
        totals.append(total)
    return torch.stack(totals)


def _in_subspace(theta, iterates, rank, n_samples, generator):
    """Return draws around models along the first directions of their iterates."""
    n_iterates = iterates.shape[1]
    deviations = iterates - iterates.mean(dim=1, keepdim=True)
    _, values, directions = torch.linalg.svd(deviations, full_matrices=False)
    axes = directions[:, :rank] * values[:, :rank, None] / math.sqrt(n_iterates - 1)
    shape = len(theta), n_samples, axes.shape[1]
    z = torch.randn(shape, generator=generator, dtype=torch.float64)
    return (theta[:, None] + z.to(theta.device) @ axes).flatten(0, 1)


def _chains(tail, stored, point, theta, component, generator):
    """Return thinned draws of chains by SGHMC at a constant learning rate."""
    weights = tail.stacked(theta)
    steps = make_steps(tail, weights)
    views = [view.detach() for view in tail.by_search(weights)]
    momenta = [torch.zeros_like(view) for view in views]
    step_size = math.sqrt(component.lr / stored.n_samples)
    noise_scale = math.sqrt(2 * (1 - _MOMENTUM))
    draws = []
    for step in range(component.n_samples * component.thinning):
        samples, targets = stored.batches[step % len(stored.batches)]
        row_logits, point_logits = steps.forward(samples, point)
        row_logits.requires_grad_()
        with torch.enable_grad():
            loss = stored.task.training_loss(row_logits, targets).sum()
        (gradient,) = torch.autograd.grad(stored.n_samples * loss, row_logits)
        steps.backward(gradient, torch.zeros_like(point_logits))
        gradients = tail.by_search([weight.grad for weight in weights])
        for view, momentum, gradient in zip(views, momenta, gradients, strict=True):
            noise = torch.randn(view.shape, generator=generator).to(view)
            force = gradient + component.prior_precision * view
            momentum.mul_(_MOMENTUM).sub_(step_size * force).add_(noise_scale * noise)
            view.add_(step_size * momentum)
        if (step + 1) % component.thinning == 0:
            draws.append(tail.flatten(weights))
    return torch.stack(draws, dim=1).flatten(0, 1)
