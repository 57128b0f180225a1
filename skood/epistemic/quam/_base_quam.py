"""Mixin of QUAM classifiers and regressors: training samples, blocks, traces."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
from abc import abstractmethod
from collections.abc import Callable
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed, effective_n_jobs
from scipy.special import softmax
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Bunch, check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted

from skood.epistemic.quam._adversarial_search import Schedule, search
from skood.epistemic.quam._searched_layers import find_tail
from skood.utils._batches import is_instance
from skood.utils._metaestimators import n_rows, take_rows
from skood.utils._param_validation import Interval, StrOptions
from skood.utils._progress import progress
from skood.utils._torch import resolve_device, seeded, to_numpy, to_tensor

__all__ = ["SearchMixin", "check_loader", "is_loader", "member_weights"]

# Searches advance together as long as their weights, gradients and moments fit
# approximately in the caches of a CPU; an accelerator has room for many more.
_CPU_BUDGET = 40 * 2**20
_DEVICE_BUDGET = 2 * 2**30


def is_loader(X):
    """Return whether `X` is a torch ``DataLoader``, without importing torch."""
    return is_instance(X, "torch.utils.data", "DataLoader")


def check_loader(estimator, y):
    """Raise unless a loader may be passed as `X`."""
    if y is not None:
        raise ValueError("A DataLoader gives the targets: leave y out.")
    if not isinstance(estimator, FrozenEstimator):
        raise ValueError(
            "A DataLoader can be given to a fitted network only. Put it in a "
            "sklearn.frozen.FrozenEstimator, or wrap a trained module with "
            "skood.nn.pretrained."
        )


def member_weights(training_loss, temperature):
    """Return weights of models from their loss on training samples.

    Parameters
    ----------
    training_loss : ndarray of shape (n_members, n_points)
        Mean losses.

    temperature : float
        Temperature; high values give equal weights.

    Returns
    -------
    weights : ndarray of shape (n_members, n_points)
        Weights, summing to one over the members of each point.
    """
    return softmax(-training_loss / temperature, axis=0)


class SearchMixin:
    """Mixin for searches around a network, of `QUAM` and `QUAMRegressor`."""

    # parameters, and a method of `BaseEstimator`
    scope: str
    n_steps: int
    lr: float
    weight_decay: float
    c0: float
    eta: float
    update_every: int
    gamma: float
    temperature: float
    penalty_batch: int
    evaluation_rows: int | None
    chunk_size: Any
    n_jobs: int | None
    random_state: Any
    device: Any
    verbose: Any
    set_params: Callable

    _search_constraints: dict = {
        "scope": [StrOptions({"last", "dense", "full"})],
        "n_steps": [Interval(Integral, 1, None, closed="left")],
        "lr": [Interval(Real, 0, None, closed="neither")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "c0": [Interval(Real, 0, None, closed="left")],
        "eta": [Interval(Real, 1, None, closed="left")],
        "update_every": [Interval(Integral, 1, None, closed="left")],
        "gamma": [Interval(Real, 0, None, closed="left")],
        "temperature": [Interval(Real, 0, None, closed="right")],
        "penalty_batch": [Interval(Integral, 1, None, closed="left")],
        "evaluation_rows": [Interval(Integral, 1, None, closed="left"), None],
        "chunk_size": [
            StrOptions({"auto"}),
            Interval(Integral, 1, None, closed="left"),
        ],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "device": [str, torch.device],
        "verbose": ["verbose"],
    }

    @abstractmethod
    def _open(self):
        """Open the network of ``estimator_``."""

    @abstractmethod
    def _codes(self, y):
        """Return the targets of training samples as an array of numbers."""

    @abstractmethod
    def _losses(self, outputs, answers):
        """Return losses of the given model on samples, from outputs and targets."""

    @abstractmethod
    def _outputs(self, network, rows):
        """Return outputs of the given model for prepared samples, as float64."""

    @abstractmethod
    def _targets(self, reference):
        """Return the targets of each point: an int array (n_points, n_targets)."""

    @abstractmethod
    def _task(self, targets, reference, tail):
        """Return the `Task` of searches, from their targets and references."""

    # --- training samples ----------------------------------------------------

    def _keep_rows(self, X, y):
        """Draw the training samples of all steps; store the searched layers' input."""
        if is_loader(X):
            n_samples = _length(X)
        else:
            check_consistent_length(X, y)
            y = self._codes(y)
            n_samples = len(y)
        rng = check_random_state(self.random_state)
        index = _schedule(n_samples, self.n_steps + 1, self.penalty_batch, rng)
        extra = np.arange(0)
        if self.evaluation_rows is not None:
            extra = rng.permutation(n_samples)[: self.evaluation_rows]
        used, place = np.unique(np.r_[index.ravel(), extra], return_inverse=True)
        with _plain(self.device):
            features, outputs, answers = self._read(self._open(), X, y, used, rng)
        self.penalty_features_ = features
        self.penalty_answers_ = answers
        self.penalty_index_ = place[: index.size].reshape(index.shape)
        self.evaluation_index_ = place[index.size :]
        losses = self._losses(outputs, answers)
        self.reference_loss_ = losses[self.penalty_index_].mean(axis=1)
        self._searched = (self.scope, self.penalty_batch, self.evaluation_rows)

    def _read(self, network, X, y, used, rng):
        """Return searched layers' input for chosen samples, outputs, and targets."""
        if is_loader(X):
            with seeded(rng, network.device):  # the loader may shuffle
                return self._read_loader(network, X, used)
        if isinstance(X, np.memmap):  # the other samples are not loaded
            rows = network.prepare(take_rows(X, used))
        else:
            rows = take_rows(network.prepare(X), used)
        tail = find_tail(network, self.scope, network.batch(rows[:2]))
        features = to_numpy(tail.features(rows))
        return features, self._outputs(network, rows), y[used]

    def _read_loader(self, network, loader, used):
        """Return the same as `_read` from a loader, batch by batch."""
        start, tail = 0, None
        features, outputs, answers = [], [], []
        for X, y in loader:
            stop = start + len(X)
            wanted = used[(used >= start) & (used < stop)] - start
            if len(wanted):
                rows = network.prepare(X[torch.from_numpy(wanted)])
                tail = tail or find_tail(network, self.scope, network.batch(rows[:2]))
                features.append(to_numpy(tail.features(rows)))
                outputs.append(self._outputs(network, rows))
                answers.append(self._codes(to_numpy(y))[wanted])
            start = stop
        if start <= used[-1]:
            raise ValueError(
                f"The loader has {_length(loader)} samples, but returned {start}."
            )
        return (
            np.concatenate(features),
            np.concatenate(outputs),
            np.concatenate(answers),
        )

    def _batches(self, network):
        """Return the training samples of each step and of the models' weights."""
        asked = (self.scope, self.penalty_batch, self.evaluation_rows)
        n_steps = len(self.penalty_index_) - 1
        if asked != self._searched or self.n_steps > n_steps:
            raise ValueError(
                "Training rows are drawn in fit, for scope, penalty_batch, "
                f"evaluation_rows = {self._searched} and at most {n_steps} steps. They "
                f"are {asked} and {self.n_steps} now: call fit again."
            )
        features = to_tensor(self.penalty_features_, network.device)
        answers = to_tensor(self.penalty_answers_, network.device)
        if not answers.dtype.is_floating_point:
            answers = answers.long()
        batches = [
            (features[rows], answers[rows])
            for rows in torch.from_numpy(self.penalty_index_[: self.n_steps + 1])
        ]
        judges = None
        if self.evaluation_rows is not None:
            rows = torch.from_numpy(self.evaluation_index_)
            judges = features[rows], answers[rows]
        return batches, judges

    # --- searches ------------------------------------------------------------

    def _iter_found(self, X):
        """Yield (reference, targets, `Found`) for blocks of points.

        Arrays of `Found` have the shape (n_steps + 1, n_targets, n_points, ...).
        """
        with _plain(self.device):
            network = self._open()
            rows = network.prepare(X)
            tail = find_tail(network, self.scope, network.batch(rows[:2]))
            batches, judges = self._batches(network)
            n_targets = self._targets(self._outputs(network, rows[:1])).shape[1]
        size, group = self._block(tail, n_targets, len(batches[0][0]))
        n_points = len(rows)
        bar = progress(n_points, desc=type(self).__name__, verbose=self.verbose)
        with bar:
            for start in range(0, n_points, size):
                part = rows[start : start + size]
                with _plain(self.device):
                    block = self._search(tail, part, group, batches, judges)
                yield block
                bar.update(len(part))

    def _search(self, tail, rows, group, batches, judges):
        """Search for some points, `group` targets of each at a time."""
        schedule = Schedule(
            self.n_steps,
            self.lr,
            self.weight_decay,
            self.c0,
            self.eta,
            self.update_every,
        )
        reference = self._outputs(tail.network, rows)
        targets = self._targets(reference)
        points = tail.features(rows)
        found = []
        for first in range(0, targets.shape[1], group):
            some = targets[:, first : first + group]
            task = self._task(some, reference, tail)
            one = search(tail, points, task, some.size, batches, schedule, judges)
            found.append(one.shaped(len(points)))
            if not (
                np.isfinite(found[-1].outputs).all()
                and np.isfinite(found[-1].judged).all()
            ):
                raise ValueError(
                    "The weights of a search became so large that its model returns "
                    f"NaN or infinity. Lower lr={self.lr}, or scale the features."
                )
        return reference, targets, found

    def _block(self, tail, n_targets, n_penalty):
        """Return the numbers of points and of targets that are searched together."""
        if self.chunk_size != "auto":
            return self.chunk_size, n_targets
        on_cpu = tail.network.device.type == "cpu"
        budget = _CPU_BUDGET if on_cpu else _DEVICE_BUDGET
        # weights, gradients and two moments, and activations
        item = torch.finfo(tail.network.dtype).bits // 8
        each = 4 * item * tail.n_weights() + n_penalty * tail.bytes_per_row
        fitting = max(1, budget // each)
        if fitting < n_targets:
            n_groups = -(-n_targets // fitting)
            return 1, -(-n_targets // n_groups)
        most = max(1, n_penalty // 4) if on_cpu else max(1, n_penalty)
        return min(fitting // n_targets, most), n_targets

    def _in_parallel(self, X, function):
        """Apply a function to this estimator and parts of `X`, in several processes."""
        n_jobs = effective_n_jobs(self.n_jobs)
        if n_jobs == 1 or n_rows(X) <= 1:
            return [function(self, X)]
        alone = copy.copy(self).set_params(n_jobs=None, verbose=0)
        size = n_rows(X)
        parts = np.array_split(np.arange(size), min(n_jobs, size))
        return Parallel(n_jobs=self.n_jobs)(
            delayed(function)(alone, take_rows(X, rows)) for rows in parts
        )

    # --- one point -----------------------------------------------------------

    def _trace(self, x):
        """Run the searches of one point; return all recorded quantities."""
        check_is_fitted(self)
        if n_rows(x) != 1:
            raise ValueError(
                f"trace shows the searches of one point, got {n_rows(x)} rows. Pass "
                "X[i : i + 1]."
            )
        alone = copy.copy(self).set_params(verbose=0)
        ((reference, targets, found),) = alone._iter_found(x)
        training, attack, judged, outputs = (
            np.concatenate([getattr(one, name) for one in found], axis=1)[:, :, 0]
            for name in ("training_loss", "attack_loss", "judged", "outputs")
        )
        steps = np.arange(len(training))
        c = self.c0 * self.eta ** (steps // self.update_every)
        penalty = training - (self.reference_loss_[: len(steps), None] + self.gamma)
        weights = member_weights(judged.reshape(-1, 1), self.temperature)
        return (
            Bunch(
                targets=targets[0],
                attack_loss=attack,
                training_loss=training,
                penalty=penalty,
                loss=attack + c[:, None] * penalty,
                weights=weights.reshape(training.shape),
            ),
            outputs,
            reference,
        )


@contextmanager
def _plain(device):
    """Use ordinary tensors and full precision in any context of the caller."""
    kind = resolve_device(device).type
    with torch.inference_mode(False), torch.autocast(kind, enabled=False):
        yield


def _length(loader):
    """Return the number of samples of a loader."""
    try:
        n_samples = len(loader.sampler)
    except TypeError:
        raise ValueError(
            "The DataLoader must know how many rows it gives, because training rows "
            "are drawn among them: its dataset has no length."
        ) from None
    if loader.drop_last:
        n_samples -= n_samples % loader.batch_size
    return n_samples


def _schedule(n_samples, n_batches, batch_size, rng):
    """Return the samples of each batch: the data in random order, repeated."""
    batch_size = min(batch_size, n_samples)
    n_epochs = -(-n_batches * batch_size // n_samples)
    order = np.concatenate([rng.permutation(n_samples) for _ in range(n_epochs)])
    return order[: n_batches * batch_size].reshape(n_batches, batch_size)
