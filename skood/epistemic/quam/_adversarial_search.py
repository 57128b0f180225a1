"""Search for adversarial models of many points and targets at a time (QUAM)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from skood.epistemic.quam._batched_gradients import make_steps
from skood.nn._functional_network import symmetric
from skood.utils._estimator import SkoodEstimator
from skood.utils._param_validation import Interval, StrOptions

# Standard deviation of the noise of initial weights, in deviations of a tensor.
_NOISE = 1e-3

# Factor by which adaptive weights of the penalty change. Half as many evaluations as
# with a factor of 2 after every second step, with the same results.
_FACTOR = 4.0

# Learning rate of the last steps of adaptive searches, relative to the others'.
_REPAIR = 0.1


class AdversarialSearch(SkoodEstimator):
    r"""Optimization of the search for adversarial models.

    The part `search` of :class:`QUAM`. Parameters that are None have the default for
    classifiers or regressors, in parentheses.

    Read more in the :ref:`User Guide <quam>`.

    Parameters
    ----------
    n_steps : int, default=None
        Number of steps of each search (56, for regression 150: curves change slowly
        under the penalty, and 56 steps can miss a gap between training samples).

    lr : float, default=5e-3
        Learning rate of Adam.

    weight_decay : float, default=None
        Weight decay of Adam (1e-3, for regression 0.0).

    c0 : float, default=None
        Initial weight of the penalty (10.0, for regression 100.0).

    eta : float or "adaptive", default=1.0
        After each `update_every` steps the weight of the penalty is multiplied, and
        the learning rate divided, by it: :math:`c_k = c_0 \eta^k`.
        "adaptive": after each `update_every` steps the weight of each search is
        multiplied by 4 if its loss on the evaluation samples exceeds the loss of the
        given network by more than `gamma`, else divided by 4. In the last quarter of
        the steps only the training loss is minimized, with a tenth of the learning
        rate, so that the models return to the training data. Models after each
        `update_every` steps are compared. See the :ref:`User Guide <quam_settings>`.

    update_every : int, default=None
        See `eta` (14, for ``eta="adaptive"`` 4).

    gamma : float, default=None
        Tolerance of the training loss before the penalty counts as violated (0.0, for
        ``eta="adaptive"`` 0.003). Of a fixed schedule it shifts the loss in `trace` by
        a constant, and does not affect the search.

    batch_size : int, default=64
        Number of training samples in each step, the same for all searches.

    n_starts : int, default=4
        Number of searches for ``targets="untargeted"``.

    perturbation : float, default=0.1
        Initial shift of the mean of a regressor, in standard deviations.

    rank : int, default=4
        Rank of the searched changes of the layers for ``scope="adapter"``.

    chunk_size : {"auto"} or int, default="auto"
        Number of points whose searches advance together. "auto" bounds memory: about 40
        MiB on a CPU, close to the size of its caches, 2 GiB on an accelerator.

    See Also
    --------
    QUAM : Search for adversarial models.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.epistemic import QUAM, AdversarialSearch
    >>> quam = QUAM(LogisticRegression(), AdversarialSearch(n_steps=20))
    >>> quam.set_params(search__c0=3.0).search
    AdversarialSearch(c0=3.0, n_steps=20)
    """

    _parameter_constraints: dict = {
        "n_steps": [Interval(Integral, 1, None, closed="left"), None],
        "lr": [Interval(Real, 0, None, closed="neither")],
        "weight_decay": [Interval(Real, 0, None, closed="left"), None],
        "c0": [Interval(Real, 0, None, closed="left"), None],
        "eta": [StrOptions({"adaptive"}), Interval(Real, 1, None, closed="left")],
        "update_every": [Interval(Integral, 1, None, closed="left"), None],
        "gamma": [Interval(Real, 0, None, closed="left"), None],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "n_starts": [Interval(Integral, 1, None, closed="left")],
        "perturbation": [Interval(Real, 0, None, closed="neither")],
        "rank": [Interval(Integral, 1, None, closed="left")],
        "chunk_size": [
            StrOptions({"auto"}),
            Interval(Integral, 1, None, closed="left"),
        ],
    }

    def __init__(
        self,
        n_steps=None,
        *,
        lr=5e-3,
        weight_decay=None,
        c0=None,
        eta=1.0,
        update_every=None,
        gamma=None,
        batch_size=64,
        n_starts=4,
        perturbation=0.1,
        rank=4,
        chunk_size="auto",
    ):
        self.n_steps = n_steps
        self.lr = lr
        self.weight_decay = weight_decay
        self.c0 = c0
        self.eta = eta
        self.update_every = update_every
        self.gamma = gamma
        self.batch_size = batch_size
        self.n_starts = n_starts
        self.perturbation = perturbation
        self.rank = rank
        self.chunk_size = chunk_size


@dataclass(frozen=True)
class SearchResult:
    """Outputs (n_steps + 1, n_searches, n_outputs) and losses of the models.

    `evaluated` is the loss that determines the weights of the models, on the training
    samples of the step or on samples that are the same for all models. `weights` are
    the stacked weights at the end, `c` the weights of the penalty.
    """

    outputs: torch.Tensor
    training_loss: torch.Tensor
    attack_loss: torch.Tensor
    evaluated: torch.Tensor
    weights: list
    c: torch.Tensor | None = None

    def by_points(self, n_points):
        """Return a dict of float64 arrays (n_steps + 1, n_targets, n_points, ...)."""

        def shaped(tensor):
            array = tensor.double().cpu().numpy()
            array = array.reshape(len(array), n_points, -1, *array.shape[2:])
            return np.moveaxis(array, 1, 2)

        tensors = {
            name: value for name, value in vars(self).items() if name != "weights"
        }
        return {
            name: shaped(value) for name, value in tensors.items() if value is not None
        }


class Task:
    """Base class of search objectives, with the methods of `Classes`."""

    def start(self, tail, n_searches):
        """Return the stacked initial weights, copies of the given model's weights."""
        return tail.start(n_searches)


class Classes(Task):
    """Objective that moves the prediction of a point to one class, (n_searches,)."""

    def __init__(self, targets):
        self.targets = targets[:, None]

    def outputs(self, logits):
        """Return the recorded outputs of a model, from the outputs of the network."""
        return torch.log_softmax(symmetric(logits), dim=1)

    def training_loss(self, row_logits, answers):
        """Return the mean loss on training samples, of each search."""
        if row_logits.shape[2] == 1:
            row_logits = symmetric(row_logits.flatten(0, 1)).view(
                *row_logits.shape[:2], 2
            )
        return _MeanCrossEntropy.apply(row_logits, answers)

    def attack_loss(self, outputs):
        """Return the loss of the attack, of each search."""
        return -outputs.gather(1, self.targets)[:, 0]


class Untargeted(Classes):
    """Objective that moves the prediction away from the given one, `reference`.

    `starts` (n_searches,) are numbers of initial weights: the given ones with noise,
    because the divergence is stationary there; it is the same for all points.
    """

    def __init__(self, starts, reference, seed):
        self.starts = starts
        self.reference = reference
        self.seed = seed

    def start(self, tail, n_searches):
        weights = tail.start(n_searches)
        views, scales = tail.by_search(weights), tail.scales()
        with torch.no_grad():
            for start in self.starts.unique().tolist():
                generator = torch.Generator().manual_seed(self.seed + start)
                of_start = self.starts == start
                for view, scale in zip(views, scales, strict=True):
                    noise = torch.randn(view.shape[1:], generator=generator)
                    view[of_start] += _NOISE * scale * noise.to(view)
        return weights

    def attack_loss(self, outputs):
        proba = self.reference.exp()
        return -(proba * (self.reference - outputs)).sum(dim=1)


class _MeanCrossEntropy(torch.autograd.Function):
    """Mean cross entropy (n_searches,) of logits (n_searches, n_samples, n_classes).

    The first axis of the computation is the classes: torch vectorizes over the last
    one, and reductions over a few classes in it take several times as long.
    """

    @staticmethod
    def forward(ctx, logits, targets):
        log_proba = torch.log_softmax(logits.permute(2, 0, 1).contiguous(), dim=0)
        ctx.place = targets.expand(1, *logits.shape[:2])
        ctx.save_for_backward(log_proba)
        return -log_proba.gather(0, ctx.place)[0].mean(dim=1)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        (log_proba,) = ctx.saved_tensors
        proba = log_proba.exp()
        minus_one = proba.new_full((), -1.0).expand(ctx.place.shape)
        proba.scatter_add_(0, ctx.place, minus_one)
        proba *= gradient[:, None] / proba.shape[2]
        return proba.permute(1, 2, 0), None


class Means(Task):
    """Objective that moves the mean of a point up or down.

    `shifts` (n_searches,) are initial, in standard deviations. The variance is `fixed`,
    the same for all samples and models, or the exponential of the second output.
    """

    def __init__(self, shifts, mean, variance, *, fixed):
        self.shifts = shifts
        self.mean = mean
        self.variance = variance
        self.fixed = fixed

    def start(self, tail, n_searches):
        weights = tail.start(n_searches)
        tail.move_outputs(weights, self.shifts * self.variance.sqrt())
        return weights

    def outputs(self, logits):
        return logits

    def _log_variance(self, outputs, variance):
        return variance.log() if self.fixed else outputs[..., 1]

    def training_loss(self, row_logits, answers):
        # a fixed variance of the targets is the same for all points
        log_variance = self._log_variance(row_logits, self.variance[:1])
        square = (answers.to(row_logits.dtype) - row_logits[..., 0]) ** 2
        nats = square * torch.exp(-log_variance) + log_variance + np.log(2 * np.pi)
        return 0.5 * nats.mean(dim=1)

    def attack_loss(self, outputs):
        log_variance = self._log_variance(outputs, self.variance)
        log_ratio = self.variance.log() - log_variance
        distance = (outputs[:, 0] - self.mean) ** 2 * torch.exp(-log_variance)
        return -0.5 * (distance + torch.expm1(log_ratio) - log_ratio)


def growth(options, step):
    """Return eta to the power of the number of updates before a step."""
    return options.eta ** (step // options.update_every)


def evaluated_steps(options):
    """Return the numbers of steps before the models that are members."""
    every = options.update_every if options.eta == "adaptive" else 1
    return [*range(0, options.n_steps, every), options.n_steps]


def n_attacks(options):
    """Return the number of steps with an attack; the others repair the models."""
    if options.eta != "adaptive":
        return options.n_steps + 1
    return options.n_steps - options.n_steps // 4


def search(
    tail,
    points,
    task,
    n_searches,
    batches,
    options,
    held_out=None,
    best=None,
    attack=1.0,
):
    """Search adversarial models for some points, all searches in parallel.

    `tail` is the searched part of the network, `points` its input (n_points, ...), and
    `n_searches` a multiple of n_points. `batches` are inputs and targets of training
    samples for each step, and for the model after the last one; `held_out` are those
    that weight the models, and the largest loss on them that does not violate an
    adaptive penalty, or None for the batch of the step; `best`, of `BestModels`, stores
    models. Without `attack` only the training loss is minimized. Returns a
    `SearchResult`.
    """
    weights = task.start(tail, n_searches)
    optimizer = _adam(weights, options)
    steps = make_steps(tail, weights)
    predicted, training, attacks, evaluated, penalties = [], [], [], [], []
    adaptive, lr = options.eta == "adaptive", options.lr
    last = n_attacks(options)
    c = torch.full((n_searches,), float(options.c0), device=points.device)
    c = c.to(weights[0])
    of_held_out = set(evaluated_steps(options)) if held_out is not None else ()
    for step in range(options.n_steps + 1):
        if step in of_held_out:
            row_logits = steps.evaluate(held_out[0], points)
            evaluated.append(task.training_loss(row_logits, held_out[1]))
        if not adaptive:
            factor = growth(options, step)
            c, lr = torch.full_like(c, options.c0 * factor), options.lr / factor
        elif step == last:
            attack, lr = 0.0, options.lr * _REPAIR
        elif step % options.update_every == 0 and 0 < step < last:
            c = torch.where(evaluated[-1] > held_out[2], _FACTOR * c, c / _FACTOR)
        penalties.append(c)
        samples, answers = batches[step]
        logits = steps.forward(samples, points)
        for tensor in logits:
            tensor.requires_grad_()
        with torch.enable_grad():
            outputs = task.outputs(logits[1])
            training_loss = task.training_loss(logits[0], answers)
            attack_loss = task.attack_loss(outputs)
        predicted.append(outputs.detach().clone())  # the steps reuse their memory
        training.append(training_loss.detach())
        attacks.append(attack_loss.detach())
        if best is not None:
            best.update(step, weights, attacks[-1], training[-1])
        if step < options.n_steps:
            for group in optimizer.param_groups:
                group["lr"] = lr
            # the objective of [1] in `QUAM`, up to a constant
            loss = (attack * attack_loss + c * training_loss).sum()
            steps.backward(*torch.autograd.grad(loss, logits))
            optimizer.step()
    return SearchResult(
        torch.stack(predicted),
        torch.stack(training),
        torch.stack(attacks),
        torch.stack(evaluated or training),
        weights,
        torch.stack(penalties),
    )


def _adam(weights, options):
    """Return fused Adam where torch supports it (not on a CPU in torch 2.3)."""
    adam_options = {"lr": options.lr, "weight_decay": options.weight_decay}
    try:
        return torch.optim.Adam(weights, fused=True, **adam_options)
    except RuntimeError:
        return torch.optim.Adam(weights, **adam_options)
