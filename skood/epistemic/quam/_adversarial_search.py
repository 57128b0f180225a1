"""Search for adversarial models of many points and targets at a time (QUAM)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from skood.epistemic.quam._batched_gradients import make_steps
from skood.nn._functional_network import symmetric

__all__ = ["Classes", "Found", "Means", "Schedule", "Task", "search"]


@dataclass(frozen=True)
class Schedule:
    """Optimization parameters of the search, see `QUAM`."""

    n_steps: int
    lr: float
    weight_decay: float
    c0: float
    eta: float
    update_every: int

    def factor(self, step):
        """Return eta to the power of the number of updates before a step."""
        return self.eta ** (step // self.update_every)


@dataclass(frozen=True)
class Found:
    """Outputs and losses of the models along the searches, the given one first.

    Parameters
    ----------
    outputs : torch.Tensor of shape (n_steps + 1, n_searches, n_outputs)
        Outputs for the points: log-probabilities, or means.

    training_loss : torch.Tensor of shape (n_steps + 1, n_searches)
        Mean loss on the training samples.

    attack_loss : torch.Tensor of shape (n_steps + 1, n_searches)
        Loss of the attack.

    judged : torch.Tensor of shape (n_steps + 1, n_searches)
        The loss that determines the weights of the models: on the training samples of
        the step, or on samples that are the same for all models.

    weights : list of torch.Tensor
        Stacked weights at the end.
    """

    outputs: torch.Tensor
    training_loss: torch.Tensor
    attack_loss: torch.Tensor
    judged: torch.Tensor
    weights: list

    def shaped(self, n_points):
        """Return float64 arrays by points, (n_steps + 1, n_targets, n_points, ...)."""

        def by_points(tensor):
            array = tensor.double().cpu().numpy()
            array = array.reshape(len(array), n_points, -1, *array.shape[2:])
            return np.moveaxis(array, 1, 2)

        return Found(
            by_points(self.outputs),
            by_points(self.training_loss),
            by_points(self.attack_loss),
            by_points(self.judged),
            self.weights,
        )


class Task(ABC):
    """Base class of search objectives: the class of a point, or its mean."""

    @abstractmethod
    def outputs(self, logits):
        """Return the recorded outputs of a model, from the outputs of the network."""

    @abstractmethod
    def training_loss(self, row_logits, answers):
        """Return the mean loss on training samples, of each search."""

    @abstractmethod
    def attack_loss(self, outputs):
        """Return the loss of the attack, of each search."""

    def start(self, tail, n_searches):
        """Return the stacked initial weights, copies of the given model's weights."""
        return tail.start(n_searches)


class Classes(Task):
    """Objective that moves the prediction of a point to one class.

    Parameters
    ----------
    targets : torch.Tensor of shape (n_searches,)
        The classes.
    """

    def __init__(self, targets):
        self.targets = targets[:, None]

    def outputs(self, logits):
        return torch.log_softmax(symmetric(logits), dim=1)

    def training_loss(self, row_logits, answers):
        n_searches, n_rows = row_logits.shape[:2]
        logits = symmetric(row_logits.flatten(0, 1))
        losses = functional.cross_entropy(
            logits, answers.repeat(n_searches), reduction="none"
        )
        return losses.view(n_searches, n_rows).mean(dim=1)

    def attack_loss(self, outputs):
        return -outputs.gather(1, self.targets)[:, 0]


class Means(Task):
    r"""Objective that moves the mean of a point up or down.

    Parameters
    ----------
    shifts : torch.Tensor of shape (n_searches,)
        Initial shift of the mean, in standard deviations.

    mean, variance : torch.Tensor of shape (n_searches,)
        Prediction of the given network.

    fixed : bool
        Whether the variance is the same for all samples and models, or the exponential
        of the second output.
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


def search(tail, points, task, n_searches, batches, schedule, judges=None):
    r"""Search adversarial models for some points, all searches in parallel.

    Each step is an Adam step on

    .. math:: L_{\text{attack}}(\tilde w) + c_k L_{\text{train}}(\tilde w),

    with weight decay; :math:`c_k = c_0 \eta^k` and the learning rate is
    :math:`\eta^{-k}` times the initial one in the k-th stage.

    Parameters
    ----------
    tail : Tail
        The part of the network whose weights are searched.

    points : torch.Tensor of shape (n_points, ...)
        Input of the tail for the points.

    task : Task
        Objective of the searches.

    n_searches : int
        A multiple of the number of points.

    batches : sequence of (torch.Tensor, torch.Tensor)
        Input of the tail for training samples, and their targets, for each step and for
        the model after the last one.

    schedule : Schedule
        Parameters of the optimization.

    judges : (torch.Tensor, torch.Tensor), default=None
        Training samples and targets that weight the models. None: the batch of the
        step.

    Returns
    -------
    found : Found
        Results of all models along the searches.
    """
    weights = task.start(tail, n_searches)
    optimizer = _adam(weights, schedule)
    steps = make_steps(tail, weights, len(points))
    predicted, training, attacks, judged = [], [], [], []
    for step in range(schedule.n_steps + 1):
        rows, answers = batches[step]
        logits = steps.forward(rows, points)
        for part in logits:
            part.requires_grad_()
        with torch.enable_grad():
            outputs = task.outputs(logits[1])
            training_loss = task.training_loss(logits[0], answers)
            attack = task.attack_loss(outputs)
        predicted.append(outputs.detach().clone())  # the steps reuse their memory
        training.append(training_loss.detach())
        attacks.append(attack.detach())
        if judges is not None:
            with torch.no_grad():
                row_logits, _ = tail.logits(weights, judges[0], points)
                judged.append(task.training_loss(row_logits, judges[1]))
        if step < schedule.n_steps:
            factor = schedule.factor(step)
            for group in optimizer.param_groups:
                group["lr"] = schedule.lr / factor
            loss = (attack + schedule.c0 * factor * training_loss).sum()
            steps.backward(*torch.autograd.grad(loss, logits))
            optimizer.step()
    return Found(
        torch.stack(predicted),
        torch.stack(training),
        torch.stack(attacks),
        torch.stack(judged or training),
        weights,
    )


def _adam(weights, schedule):
    """Return fused Adam where torch supports it (not on a CPU in torch 2.3)."""
    options = {"lr": schedule.lr, "weight_decay": schedule.weight_decay}
    try:
        return torch.optim.Adam(weights, fused=True, **options)
    except RuntimeError:
        return torch.optim.Adam(weights, **options)
