"""Searches for adversarial models around the network of a QUAM estimator."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import operator
from contextlib import contextmanager
from functools import partial
from numbers import Real

import numpy as np
import torch
from joblib import Parallel, delayed, effective_n_jobs
from scipy.special import softmax
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Bunch, check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted

from skood.epistemic._measures import feasibility
from skood.epistemic.quam._adversarial_models import BestModels, Keep
from skood.epistemic.quam._adversarial_search import evaluated_steps, n_attacks, search
from skood.epistemic.quam._local_components import Stored, draw_members
from skood.epistemic.quam._searched_layers import find_tail, restored_tail
from skood.nn._outputs import halved
from skood.utils._array_api import sent_once
from skood.utils._batches import joined
from skood.utils._metaestimators import n_rows, take_rows
from skood.utils._optional import is_instance
from skood.utils._param_validation import Interval
from skood.utils._progress import progress
from skood.utils._torch import resolve_device, seeded, to_numpy, to_tensor

# Constraints of the parameters of `adversarial_models`.
MODEL_CONSTRAINTS: dict = {
    "slack": [Interval(Real, None, None, closed="both"), None],
    "log_posterior": ["boolean"],
}

# Searches advance together as long as their weights, gradients and moments fit
# approximately in the caches of a CPU; an accelerator holds many more.
_CPU_BUDGET = 40 * 2**20
_DEVICE_BUDGET = 2 * 2**30

_WEIGHT = "weight of "  # before the names of weights among other names


# Number of models of a search that span the subspace.
_N_ITERATES = 20

# Number of samples on which members are compared, where that is needed.
_N_EVALUATION = 256


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


def in_parallel(estimator, X, function, *args):
    """Apply a function to an estimator and parts of `X`, in several processes."""
    n_jobs = effective_n_jobs(estimator.n_jobs)
    if n_jobs == 1 or n_rows(X) <= 1:
        return function(estimator, X, *args)
    alone = copy.copy(estimator).set_params(n_jobs=None, verbose=0)
    size = n_rows(X)
    parts = np.array_split(np.arange(size), min(n_jobs, size))
    return joined(
        Parallel(n_jobs=estimator.n_jobs)(
            delayed(function)(alone, take_rows(X, indices), *args) for indices in parts
        )
    )


class Searches:
    """Training samples and searches of a `QUAM`, whose attributes hold the results."""

    def __init__(self, estimator):
        self.estimator = estimator
        self.options = estimator._search()
        self.component = component = estimator._part("component")
        estimator._check_component()
        is_feasible = component.kind == "feasible"
        is_adaptive = self.options.eta == "adaptive"
        # whether models are compared with the least loss on the evaluation samples
        self.is_bounded = is_adaptive or is_feasible
        self.n_evaluation_samples = component.n_evaluation_samples
        if self.n_evaluation_samples is None and self.is_bounded:
            self.n_evaluation_samples = _N_EVALUATION
        self.temperature = estimator.temperature
        if self.temperature is None:
            self.temperature = 1e-3 if is_feasible else 0.01 if is_adaptive else 0.1

    @contextmanager
    def plain(self):
        """Use ordinary tensors and full precision in any context of the caller."""
        kind = resolve_device(self.estimator.device).type
        with torch.inference_mode(False), torch.autocast(kind, enabled=False):
            yield

    # --- training samples ----------------------------------------------------

    def draw_samples(self, X, y):
        """Draw the training samples of all steps; store the searched layers' input."""
        quam = self.estimator
        if is_loader(X):
            n_samples = _length(X)
        else:
            check_consistent_length(X, y)
            y = quam.likelihood_.targets(y, quam)
            n_samples = len(y)
        rng = check_random_state(quam.random_state)
        n_batches, batch_size = self.options.n_steps + 1, self.options.batch_size
        index = _schedule(n_samples, n_batches, batch_size, rng)
        extra = np.arange(0)
        if self.n_evaluation_samples is not None:
            extra = rng.permutation(n_samples)[: self.n_evaluation_samples]
        quam._seed = int(rng.randint(2**31))  # of the searches' initial weights
        used, place = np.unique(np.r_[index.ravel(), extra], return_inverse=True)
        with self.plain():
            features, outputs, targets = self._read(quam._open(), X, y, used, rng)
        quam.penalty_features_ = features
        quam.penalty_targets_ = targets
        quam.penalty_index_ = place[: index.size].reshape(index.shape)
        quam.evaluation_index_ = place[index.size :]
        quam._structure = self._structure
        quam.n_samples_fit_ = n_samples
        means = partial(operator.itemgetter((slice(None), 0)), outputs)
        quam.likelihood_.fit_targets(targets, means)
        losses = quam.likelihood_.losses(outputs, targets)
        quam.reference_loss_ = losses[quam.penalty_index_].mean(axis=1)
        quam._drawn_for, quam._bounded_for = self._parameters_of_fit()
        quam.evaluation_loss_ = quam.least_loss_ = None
        if self.is_bounded:
            loss = float(losses[quam.evaluation_index_].mean())
            quam.evaluation_loss_ = loss
            quam.least_loss_ = min(loss, self._least_loss(outputs[:1]))

    def _least_loss(self, reference):
        """Return the least loss on the evaluation samples of a search without attack.

        It starts at the given network, with the outputs `reference` for the first
        stored sample.
        """
        with self.plain():
            tail = self._found_tail
            batches, held_out = self._batches(tail.network)
            task = self.estimator._task(np.zeros((1, 1), dtype=int), reference, tail)
            point = self.stored(tail.network.device).features[:1]
            control = search(
                tail, point, task, 1, batches, self.options, held_out, attack=0.0
            )
        return float(control.evaluated.min())

    def _parameters_of_fit(self):
        """Return the parameters of the stored samples and of the least loss."""
        options = self.options
        of_samples = self.estimator.scope, options.batch_size, self.n_evaluation_samples
        if not self.is_bounded:
            return of_samples, None
        names = ["n_steps", "lr", "weight_decay", "c0", "eta", "update_every"]
        names += ["gamma"] if options.eta == "adaptive" else []
        return of_samples, {name: getattr(options, name) for name in names}

    def _tail(self, network, samples):
        """Find the searched layers, and keep what `_opened` needs to know of them."""
        options = {"rank": self.options.rank, "seed": self.estimator._seed}
        batch = network.batch(samples[:2])
        tail = find_tail(network, self.estimator.scope, batch, **options)
        self._structure, self._found_tail = (network.probed(), tail.structure()), tail
        return tail

    def _opened(self, X):
        """Return the searched layers as in `fit`, and prepared samples."""
        quam = self.estimator
        network = quam._open()
        kind, structure = quam._structure
        network.restore(kind)
        samples = network.prepare(X)
        options = {"rank": self.options.rank, "seed": quam._seed}
        return restored_tail(network, structure, samples[:2], **options), samples

    def _run(self, tail, samples):
        """Return the searched layers' input and outputs, by one forward pass."""
        features = []

        def logits(batch):
            inputs, logits = tail.read(batch)
            features.append(inputs)
            return logits

        outputs = self.estimator.likelihood_.outputs(tail.network, samples, logits)
        return torch.cat(features), outputs

    def _read(self, network, X, y, used, rng):
        """Return searched layers' input for chosen samples, outputs, and targets."""
        if is_loader(X):
            with seeded(rng, network.device):  # the loader may shuffle
                return self._read_loader(network, X, used)
        if isinstance(X, np.memmap):  # the other samples are not loaded
            samples = network.prepare(take_rows(X, used))
        else:
            samples = take_rows(network.prepare(X), used)
        features, outputs = self._run(self._tail(network, samples), samples)
        return to_numpy(features), outputs, y[used]

    def _read_loader(self, network, loader, used):
        """Return the same as `_read` from a loader, batch by batch."""
        start, tail, parts = 0, None, []
        for X, y in loader:
            stop = start + len(X)
            wanted = used[(used >= start) & (used < stop)] - start
            if len(wanted):
                samples = network.prepare(X[torch.from_numpy(wanted)])
                tail = tail or self._tail(network, samples)
                features, outputs = self._run(tail, samples)
                quam = self.estimator
                targets = quam.likelihood_.targets(to_numpy(y), quam)
                parts.append((to_numpy(features), outputs, targets[wanted]))
            start = stop
        if start <= used[-1]:
            raise ValueError(
                f"The loader has {_length(loader)} samples, but returned {start}."
            )
        return joined(parts)

    def _batches(self, network):
        """Return the training samples of each step and of the models' weights."""
        quam, n_now = self.estimator, self.options.n_steps
        now, bounded = self._parameters_of_fit()
        n_steps = len(quam.penalty_index_) - 1
        if now != quam._drawn_for or n_now > n_steps:
            raise ValueError(
                "Training samples are drawn in fit, for scope, batch_size, "
                f"n_evaluation_samples = {quam._drawn_for} and at most {n_steps} "
                f"steps. They are {now} and {n_now} now: call fit again."
            )
        if bounded is not None and bounded != quam._bounded_for:
            raise ValueError(
                "The least loss on the evaluation samples is determined in fit, for "
                f"{quam._bounded_for}. The parameters are {bounded} now: call fit "
                "again."
            )
        stored = self.stored(network.device)
        held_out = None
        if self.n_evaluation_samples is not None:
            indices = sent_once(quam.evaluation_index_, network.device)
            held_out = [stored.features[indices], stored.targets[indices]]
            if bounded is not None:
                held_out.append(quam.evaluation_loss_ + self.options.gamma)
        return stored.batches[: n_now + 1], held_out

    # --- searches ------------------------------------------------------------

    def members(self, X):
        """Yield reference (n_points, n_outputs), outputs, weights and searches.

        These have the shapes (n_members, n_points, n_outputs), (n_members, n_points)
        and (n_members,): models along the same search are not independent.
        """
        if self.component.kind not in ("delta", "feasible"):
            yield from self._drawn_members(X)
            return
        for record in self.records(X):
            yield self.recorded_members(*record)

    def records(self, X):
        """Yield reference, outputs and losses of the models of blocks of points.

        The first axis of all is the points, the next are the targets and the models.
        """
        steps = evaluated_steps(self.options)
        for reference, _, block in self.blocks(X, self.estimator.verbose):
            outputs, losses = block.outputs[steps], block.evaluated
            yield reference, outputs.transpose(2, 1, 0, 3), losses.transpose(2, 1, 0)

    def recorded_members(self, reference, outputs, losses):
        """Return the same as `members` for models along searches, see `records`."""
        quam, kind = self.estimator, self.component.kind
        if kind not in ("delta", "feasible"):
            raise ValueError(
                f"component={kind!r} draws members around the models of a search: a "
                "record is for 'delta' and 'feasible'."
            )
        if kind == "feasible" and quam.least_loss_ is None:
            raise ValueError(
                "component='feasible' needs the least loss on samples that fit draws "
                "for it: fit with this component, or with eta='adaptive'."
            )
        outputs, losses = outputs.transpose(2, 1, 0, 3), losses.transpose(2, 1, 0)
        n_models, n_targets, n_points = losses.shape
        if kind == "delta":
            weights = self._weights(losses.reshape(-1, n_points))
            searches = np.tile(np.arange(n_targets), n_models)
            outputs = outputs.reshape(*weights.shape, outputs.shape[3])
            return reference, outputs, weights, searches
        place, weights = self._attaining(reference, outputs, losses)
        outputs = np.take_along_axis(outputs, place[None, ..., None], axis=0)[0]
        # the given network attains the divergence 0
        outputs = np.concatenate([outputs, reference[None]])
        weights = np.concatenate([weights, 1 - weights.sum(axis=0, keepdims=True)])
        return reference, outputs, weights, None

    def _attaining(self, reference, outputs, losses):
        """Return the model of each search that is a member, and its weight.

        It maximizes the discounted divergence, (n_models, n_targets, n_points).
        """
        discount = feasibility(
            losses - self.estimator.least_loss_, self.options.gamma, self.temperature
        )
        divergence = self.estimator.likelihood_.divergence(reference, outputs)
        place = np.argmax(discount * divergence, axis=0)
        attained = np.take_along_axis(discount, place[None], axis=0)[0]
        return place, attained / len(attained)

    def stored(self, device, task=None):
        """Return the training samples of the steps, as `Stored`."""
        quam = self.estimator
        features, targets, index = (
            sent_once(array, device)
            for array in (
                quam.penalty_features_,
                quam.penalty_targets_,
                quam.penalty_index_,
            )
        )
        if not targets.dtype.is_floating_point:
            targets = targets.long()
        batches = [(features[indices], targets[indices]) for indices in index]
        return Stored(features, targets, batches, quam.n_samples_fit_, task)

    def _drawn_members(self, X):
        """Yield the same as `members` for draws from the `LocalComponent`."""
        quam, component = self.estimator, self.component
        slack = component.slack
        if slack is None:
            slack = max(self.options.gamma, 2 / quam.n_samples_fit_)
        is_subspace = component.kind == "subspace"
        if is_subspace and component.include_reference:
            raise ValueError(
                "include_reference=True needs kind='laplace' or 'sgmcmc': there is no "
                "search of the given network whose models span a subspace."
            )

        def fields(tail, points, task, best):
            theta = {"theta": tail.flatten(best.weights)}
            return theta | ({"iterates": best.iterates} if is_subspace else {})

        keep = Keep(slack, fields, _N_ITERATES if is_subspace else 0)
        for reference, targets, block in self.blocks(X, quam.verbose, keep):
            draws = [
                self._draw(reference[i : i + 1], targets[i : i + 1], block, i)
                for i in range(len(reference))
            ]
            outputs, weights = (
                np.stack(arrays, axis=1) for arrays in zip(*draws, strict=True)
            )
            groups = None
            if component.kind == "sgmcmc":  # draws of a chain depend on each other
                groups = np.arange(len(weights)) // component.n_samples
            yield reference, outputs, weights, groups

    def _draw(self, reference, targets, block, i):
        """Return outputs and weights of the draws for a point of a block."""
        quam, component, tail = self.estimator, self.component, block.tail
        task, device = quam._task(targets, reference, tail), tail.network.device
        best = {name: to_tensor(a[:, i], device) for name, a in block.best.items()}
        if component.include_reference:
            best["theta"] = torch.cat([best["theta"], tail.flatten(tail.start(1))])
        options = component, self.temperature, self.options.rank, quam._seed
        point, stored = block.points[i : i + 1], self.stored(tail.network.device, task)
        with self.plain():
            outputs, log_weights = draw_members(
                tail, stored, point, best["theta"], best.get("iterates"), options
            )
        weights = softmax(log_weights.cpu().numpy())
        if not (torch.isfinite(outputs).all() and np.isfinite(weights).all()):
            raise ValueError(
                f"A draw of component={component.kind!r} has outputs of NaN or "
                f"infinity. Raise its prior_precision={component.prior_precision}, "
                f"lower its lr={component.lr}, or scale the features."
            )
        return outputs.cpu().numpy(), weights

    def _weights(self, losses):
        """Return weights of models, summing to one, from losses (n_members, ...)."""
        return softmax(-losses / self.temperature, axis=0)

    def models(self, X, slack, log_posterior):
        """Yield reference, targets, outputs and fields of the best models of points.

        The fields of `AdversarialModels` are arrays (n_targets, ...); for `slack`, by
        default `gamma`, see `BestModels`.
        """
        quam = self.estimator
        check_is_fitted(quam)
        slack = self.options.gamma if slack is None else slack
        fields = partial(self._fields, with_posterior=log_posterior)
        keep = Keep(slack, fields)
        for reference, targets, block in self.blocks(X, quam.verbose, keep):
            for i in range(len(targets)):
                model = {name: array[:, i] for name, array in block.best.items()}
                names = [name for name in model if name.startswith(_WEIGHT)]
                weights = {
                    name.removeprefix(_WEIGHT): model.pop(name) for name in names
                }
                step = model["step"]
                reference_loss = quam.reference_loss_[step] + self.options.gamma
                model |= {
                    "weights": weights,
                    "penalty": model["training_loss"] - reference_loss,
                    "log_posterior_drop": model.get("log_posterior_drop"),
                    "estimator": quam.estimator_,
                }
                outputs = block.outputs[step, np.arange(len(step)), i]
                yield reference[i : i + 1], targets[i], outputs, model

    def _fields(self, tail, points, task, best, *, with_posterior):
        """Return fields and weights of `BestModels` as tensors (n_searches, ...)."""
        named = tail.named(best.weights)
        fields = {
            "training_loss": best.training,
            "step": best.step,
            "is_feasible": best.feasible,
            **{_WEIGHT + name: tensor for name, tensor in named.items()},
        }
        if with_posterior:
            initial = tail.start(len(points))
            stored = self.stored(tail.network.device, task)
            loss = stored.loss(tail, best.weights, points)
            excess = loss - stored.loss(tail, initial, points)[0]
            change = _square_norm(named) - _square_norm(tail.named(initial))[0]
            prior = 0.5 * self.options.weight_decay * change
            n_samples = self.estimator.n_samples_fit_
            fields["log_posterior_drop"] = n_samples * excess + prior
        return fields

    def blocks(self, X, verbose, keep=None):
        """Yield reference, targets and arrays of `Found` for blocks of points.

        With `keep`, a `Keep`, also ``best``, its fields as arrays (n_targets, n_points,
        ...), and the searched layers ``tail`` and their input ``points``.
        """
        quam = self.estimator
        with self.plain():
            tail, samples = self._opened(X)
            batches, held_out = self._batches(tail.network)
        n_outputs = len(getattr(quam, "classes_", [0]))
        n_targets = quam._targets(np.zeros((1, n_outputs))).shape[1]
        n_held_out = 0 if held_out is None else len(held_out[0])
        size, group = self._block(tail, n_targets, len(batches[0][0]), n_held_out)
        n_points = len(samples)
        with progress(n_points, desc=type(quam).__name__, verbose=verbose) as bar:
            start = 0
            while start < n_points:
                chunk = samples[start : start + size]
                try:
                    with self.plain():
                        block = self._search(
                            tail, chunk, group, batches, held_out, keep
                        )
                except RuntimeError as error:
                    if size > 1:
                        size = halved(size, error)
                    else:
                        group = halved(group, error, "The search of a target")
                    continue
                yield block
                start += len(chunk)
                bar.update(len(chunk))

    def _search(self, tail, samples, group, batches, held_out, keep):
        """Search for points; arrays are (n_steps + 1, n_targets, n_points, ...)."""
        quam, options = self.estimator, self.options
        points, reference = self._run(tail, samples)
        targets = quam._targets(reference)
        parts, models = [], []
        best, reference_loss = None, quam.reference_loss_[: len(batches)]
        for first in range(0, targets.shape[1], group):
            of_group = targets[:, first : first + group]
            task = quam._task(of_group, reference, tail)
            if keep is not None:
                best = BestModels(tail, reference_loss, keep.slack, keep.n_iterates)
            result = search(
                tail, points, task, of_group.size, batches, options, held_out, best
            )
            parts.append(result.by_points(len(points)))
            if keep is not None:
                arrays = keep.fields(tail, points, task, best)
                models.append(
                    {name: _by_points(a, of_group.shape) for name, a in arrays.items()}
                )
        result = Bunch(**joined(parts, axis=1))
        if not (
            np.isfinite(result.outputs).all() and np.isfinite(result.evaluated).all()
        ):
            raise ValueError(
                "The weights of a search became so large that its model returns NaN or "
                f"infinity. Lower lr={options.lr}, or scale the features."
            )
        if models:
            result |= {"best": joined(models), "tail": tail, "points": points}
        return reference, targets, result

    def _block(self, tail, n_targets, n_penalty, n_held_out=0):
        """Return the numbers of points and of targets that are searched together."""
        if self.options.chunk_size != "auto":
            return self.options.chunk_size, n_targets
        on_cpu = tail.network.device.type == "cpu"
        budget = _CPU_BUDGET if on_cpu else _DEVICE_BUDGET
        # weights, gradients and two moments, and activations
        item = torch.finfo(tail.network.dtype).bits // 8
        n_samples = n_penalty + n_held_out // 2
        each = 4 * item * tail.n_weights() + n_samples * tail.bytes_per_row
        fitting = max(1, budget // each)
        if fitting < n_targets:
            n_groups = -(-n_targets // fitting)
            return 1, -(-n_targets // n_groups)
        most = max(1, n_penalty // 4 if on_cpu else n_penalty)
        if not on_cpu:  # each point runs through all searches, in as many launches
            each += 4 * n_penalty * tail.bytes_per_row
            most = max(most, min(4 * n_penalty, budget // each // n_targets))
        return min(fitting // n_targets, most), n_targets

    def trace(self, x):
        """Return all quantities of the searches of one point, outputs and reference."""
        check_is_fitted(self.estimator)
        if n_rows(x) != 1:
            raise ValueError(
                f"trace shows the searches of one point, got {n_rows(x)} samples. Pass "
                "X[i : i + 1]."
            )
        ((reference, targets, block),) = self.blocks(x, verbose=0)
        training, attack = block.training_loss[:, :, 0], block.attack_loss[:, :, 0]
        reference_loss = self.estimator.reference_loss_[: len(training), None]
        penalty = training - (reference_loss + self.options.gamma)
        attacked = np.arange(len(training))[:, None] < n_attacks(self.options)
        weights, losses = np.zeros(training.shape), block.evaluated
        steps = evaluated_steps(self.options)
        if self.component.kind == "feasible":
            place, attained = self._attaining(reference, block.outputs[steps], losses)
            np.put_along_axis(weights, np.array(steps)[place].T, attained.T, axis=0)
            weights[0] += (1 - weights.sum()) / weights.shape[1]
        else:
            weights[steps] = self._weights(losses.reshape(-1, 1)).reshape(
                losses.shape[:2]
            )
        trace = Bunch(
            targets=targets[0],
            attack_loss=attack,
            training_loss=training,
            penalty=penalty,
            loss=attacked * attack + block.c[:, :, 0] * penalty,
            weights=weights,
        )
        return trace, block.outputs[:, :, 0], reference


def _square_norm(named):
    """Return the squared norms (n_searches,) of weights by name, in float64."""
    return sum(w.double().flatten(1).square().sum(1) for w in named.values())


def _by_points(tensor, shape):
    """Return (n_targets, n_points, ...) of a tensor over searches of points."""
    array = tensor.cpu().numpy()
    return np.moveaxis(array.reshape(*shape, *array.shape[1:]), 1, 0)


def _length(loader):
    """Return the number of samples of a loader."""
    try:
        n_samples = len(loader.sampler)
    except TypeError:
        raise ValueError(
            "The DataLoader needs a dataset with a length, because training samples "
            "are drawn from it."
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
