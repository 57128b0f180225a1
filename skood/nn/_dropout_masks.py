"""Networks that result from the dropout masks of one network (MC dropout)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import contextlib
import weakref
from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from skood.nn._functional_network import plain_attention, symmetric
from skood.utils._metaestimators import unwrapped

_UNITS = (nn.Dropout, nn.AlphaDropout)
_CHANNELS = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.FeatureAlphaDropout)
_ALPHA = (nn.AlphaDropout, nn.FeatureAlphaDropout)

# What alpha dropout sets a unit to: the limit of SELU for large negative inputs.
_SELU_LIMIT = -1.0507009873554804934193349852946 * 1.6732632423543772848170429916717

# With fewer samples a matrix product uses other kernels, which round differently.
_MIN_SAMPLES = 32

# Copies of samples, and their numbers, that thinned networks run as one batch: with
# more, to run what they have in common once saves more.
_MAX_COPIES, _MAX_NUMBERS = 4096, 2**16

# Weights and masks that may be stored for the next call.
_STORED_BYTES = 2**24


class ThinnedModule:
    """Copy of a network whose dropout modules run ``_drop(name, module, input)``.

    A mask depends on `seed`, the number of the thinned network, and the number of the
    call of dropout in a forward pass. Raises a ValueError without active dropout.
    """

    # Whether they take little memory, and can be stored for the next call.
    is_small: Any = False

    def __init__(self, module, estimator, seed):
        self._seed = seed
        self._member = 0
        self._calls = 0
        self._masks: dict = {}  # that are stored
        layers = {
            name: layer
            for name, layer in module.named_modules()
            if isinstance(layer, (*_UNITS, *_CHANNELS)) and layer.p > 0
        }
        if not layers:
            raise ValueError(
                "MCDropout found no torch.nn dropout module with a probability above "
                f"zero in the network of {unwrapped(estimator)!r}. Train a network "
                "that has one, such as "
                "skood.nn.TorchClassifier(module_params={'dropout': 0.2}), or "
                "TorchRegressor; "
                "torch.nn.functional.dropout cannot be seen."
            )
        for name, layer in layers.items():
            forward = partial(self._drop, name, layer)
            layer.forward = forward  # type: ignore[method-assign]

    @abstractmethod
    def _drop(self, name, module, input):
        """Forward pass of a dropout module."""

    def _shape(self, module, x):
        """Return the shape of a mask, without the first axis."""
        shape = tuple(x.shape[1:])
        if isinstance(module, _CHANNELS):
            shape = (*shape[:1], *(1 for _ in shape[1:]))
        return shape

    def _mask(self, call, shape, p, device):
        """Return the mask (1, ...) of this network in this call, True for kept units.

        It is drawn on the CPU, to be the same for any device, and sent to a GPU once.
        """
        key = self._member, call, shape
        if key in self._masks:
            return self._masks[key]
        rng = np.random.default_rng([self._seed, self._member, call])
        mask = torch.from_numpy(rng.random((1, *shape)) >= p).to(device)
        if device.type != "cpu":
            self._masks[key] = mask
        return mask


def check_log_proba(log_proba):
    """Return log-probabilities, or raise if they are not finite."""
    if not np.isfinite(log_proba).all():
        raise ValueError(
            "A thinned network returned NaN or infinite logits: its inputs are too "
            "large for it. Scale the features."
        )
    return log_proba


def logits_come_first(name):
    """Return the error for a dropout module that would have no effect."""
    return ValueError(
        f"The dropout module {name!r} runs after the layer that gives the logits, "
        "between it and the probabilities, and would have no effect. Build the network "
        "so that it returns the logits, or has dropout before its last layer."
    )


def does_not_run(module):
    """Return the error for a network that predicts without its dropout modules."""
    return ValueError(
        f"The dropout modules of {type(module).__name__} do not run when it predicts: "
        "MCDropout has nothing to draw."
    )


class ThinnedNetwork(ThinnedModule):
    """Thinned networks of a network, indexed by their number.

    `network` is a `FunctionalNetwork` or `FunctionalRegressor` of a fitted `estimator`.
    All samples share the masks of a network; the part before the first dropout module
    is computed once for a batch.
    """

    def __init__(self, network, estimator, seed):
        self._network, self._estimator = network, unwrapped(estimator)
        self._dropped: list = []
        self._kept = None  # the logits, if they are computed before the last dropout
        self._shapes: Any = None  # names and shapes of the masks, in order of the calls
        self._shapes_are_new = False  # found since the last call of `prepare`
        self._prefix = _Prefix()
        self._reuses: bool | None = None
        self._n_copied = (0, 0)  # numbers of samples and members
        self._members: torch.Tensor | None = None  # of the copies, if not the same
        super().__init__(network.module, estimator, seed)

    def is_of(self, estimator, device, seed):
        """Return whether these still are the networks of a fitted estimator."""
        is_same = unwrapped(estimator) is self._estimator and seed == self._seed
        return is_same and self._network.is_of(estimator, device)

    @property
    def is_small(self):
        """Whether all batches were run as copies, on the CPU, in little memory."""
        if self._reuses is not None or self._network.device.type != "cpu":
            return False
        stored = *self._network.module.parameters(), *self._masks.values()
        return sum(tensor.nbytes for tensor in stored) <= _STORED_BYTES

    def prepare(self, X):
        """Validate samples, and apply the pipeline steps before the network."""
        self._shapes_are_new = False
        return self._network.prepare(X)

    # --- masks ---------------------------------------------------------------

    def _drop(self, name, module, input):
        """Forward pass of a dropout module."""
        self._prefix.end()
        call, self._calls = self._calls, self._calls + 1
        shape = self._shape(module, input)
        if self._shapes is None:
            self._dropped.append((name, shape))
            self._kept = getattr(self._network, "_kept", None)
            return input
        if self._shapes[call : call + 1] != [(name, shape)]:
            raise ValueError(_masks_differ(name))
        if self._members is None:
            mask = self._mask(call, shape, module.p, input.device)
        else:
            mask = self._all_masks(call, shape, module.p, input.device)[self._members]
        new = dropped(input, mask, module)
        return input.copy_(new) if module.inplace else new

    def _all_masks(self, call, *options):
        """Return the masks of all networks in this call, one below the other."""
        masks, (_, n_members) = self._masks.get(call), self._n_copied
        if masks is None or len(masks) != n_members:
            masks = []
            for self._member in range(n_members):
                masks.append(self._mask(call, *options))
            masks = self._masks[call] = torch.cat(masks)
        return masks

    def _try(self, batch):
        """Record the shapes of the masks, which must not depend on the batch."""
        self._masks, self._shapes, self._shapes_are_new = {}, None, True
        attempts = []
        for inputs in (batch[:1].repeat_interleave(2, 0), batch[:1]):
            self._dropped, self._calls, self._kept = [], 0, None
            logits = self._network.logits(inputs)
            attempts.append(self._dropped)
            if self._kept is not None and torch.equal(symmetric(self._kept), logits):
                raise logits_come_first(self._dropped[-1][0])
        if not attempts[0]:
            raise does_not_run(self._network.module)
        if attempts[0] != attempts[1]:
            both = zip_longest(*attempts)
            name = next((a or b)[0] for a, b in both if a != b)
            raise ValueError(_masks_differ(name))
        self._shapes = attempts[0]

    def _can_replay(self, batch):
        """Return whether reusing the part before dropout gives the same result."""
        self._reuses = False
        plain = self._logits(batch, 0)
        self._reuses = True
        try:
            passes = [self._logits(batch, 0, anew) for anew in (True, False)]
        except Exception:  # operations that are not torch functions cannot be replayed
            return False
        finally:
            self._prefix.forget()
        return all(torch.equal(logits, plain) for logits in passes)

    # --- predictions ---------------------------------------------------------

    def _logits(self, batch, member, anew=True):
        """Return the logits of a batch by one of the thinned networks."""
        self._member, self._calls = member, 0
        if not self._reuses:
            return self._network.logits(batch)
        with self._prefix.started(anew):
            return self._network.logits(batch)

    def _of_copies(self, batch, n_members):
        """Return the logits (n_members, n, n_classes) of a batch, run as copies."""
        n_samples, n_copies = len(batch), len(batch) * n_members
        if self._n_copied != (n_samples, n_members):
            self._n_copied = n_samples, n_members
            copies = torch.arange(max(n_copies, _MIN_SAMPLES), device=batch.device)
            copies.clamp_(max=n_copies - 1)
            self._copies = copies // n_samples, copies % n_samples
        self._members, indices = self._copies
        try:
            logits = self._logits(batch[indices], 0)
        finally:
            self._members = None
        if self._calls < len(self._shapes) and not self._shapes_are_new:
            raise ValueError("Earlier samples passed more dropout modules.")
        return logits[:n_copies].unflatten(0, (n_members, n_samples))

    def log_proba(self, samples, n_members, bar=None):
        """Return log-probabilities (n_members, n_rows, n_classes) of networks.

        `samples` are prepared samples, one batch; the progress bar is updated by one.
        """
        logits = self._run(samples, n_members, bar)
        return check_log_proba(torch.log_softmax(logits, dim=2).cpu().numpy())

    def outputs(self, samples, n_members, bar=None):
        """Return outputs (n_members, n_rows, n_outputs), see `log_proba`."""
        return check_log_proba(self._run(samples, n_members, bar).cpu().numpy())

    def _run(self, samples, n_members, bar):
        """Return the float64 logits of a batch by each network."""
        n_samples = len(samples)
        with torch.inference_mode(False), torch.no_grad(), plain_attention():
            batch = self._network.batch(samples)
            n_copies, most = n_samples * n_members, _MAX_NUMBERS // batch[0].numel()
            is_small = n_copies <= min(_MAX_COPIES, max(_MIN_SAMPLES, most))
            if self._shapes is None or not (is_small or self._shapes_are_new):
                self._try(batch)
            if is_small:
                try:
                    logits = self._of_copies(batch, n_members)
                except ValueError:
                    if self._shapes_are_new:
                        raise
                    self._try(batch)  # the shapes were of earlier samples
                    logits = self._of_copies(batch, n_members)
            else:
                batch = padded(batch)
                if self._reuses is None:
                    self._reuses = self._can_replay(batch[:2])
                passes = (self._logits(batch, k, anew=k == 0) for k in range(n_members))
                logits = torch.stack([logits[:n_samples] for logits in passes])
        self._prefix.forget()
        if bar is not None:
            bar.update(1)
        return logits.double()


def padded(batch):
    """Return a batch of enough samples, by repeating the last."""
    n_missing = _MIN_SAMPLES - len(batch)
    if n_missing <= 0:
        return batch
    return torch.cat([batch, batch[-1:].repeat_interleave(n_missing, 0)])


def dropped(x, mask, module):
    """Return `x` after dropout with a `mask` (1, ...), True for kept units."""
    if isinstance(module, _ALPHA):
        if module.p == 1:
            return torch.zeros_like(x)
        # keeps mean and variance where these are zero and one
        scale = ((1 - module.p) * (1 + module.p * _SELU_LIMIT**2)) ** -0.5
        shift = -scale * module.p * _SELU_LIMIT
        return torch.where(mask, x, x.new_tensor(_SELU_LIMIT)) * scale + shift
    if module.p == 1:
        return torch.zeros_like(x)
    return torch.where(mask, x / (1 - module.p), x.new_zeros(()))


def _masks_differ(name):
    """Return the error text for a dropout module whose mask depends on the samples."""
    return (
        f"The input of the dropout module {name!r} changes its shape, beyond the first "
        "axis, with the samples: its mask would depend on the other samples of the "
        "call. Build the network so that samples are the first axis in all of its "
        "layers."
    )


# --- the part shared by all thinned networks -------------------------------------


@dataclass(frozen=True)
class _Seen:
    """Weak reference to a tensor, with a tensor of its shape without content."""

    reference: weakref.ref
    shadow: torch.Tensor


def _seen(leaf):
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return _Seen(weakref.ref(leaf), torch.empty_like(leaf, device="meta"))


def _mapped(function, tree):
    """Apply a function to the leaves of nested lists and tuples."""
    if isinstance(tree, (list, tuple)):
        return type(tree)([_mapped(function, leaf) for leaf in tree])
    return function(tree)


class _Prefix(TorchFunctionMode):
    """Cached results of a network for a batch before its first dropout.

    The first pass records the result of every torch function, later passes return it.
    At the first dropout, tensors that are no longer referenced become mere shapes.
    """

    def __init__(self):
        super().__init__()
        self.forget()

    def forget(self):
        """Release the results of a batch."""
        self._made: list = []
        self._results: list | None = None
        self._alive: list = []
        self._call = 0
        self._ended = True

    @contextlib.contextmanager
    def started(self, anew):
        """Start a forward pass, of a new batch or of the previous one."""
        if anew or any(t._version != version for t, version in self._alive):
            self.forget()  # later layers may have written to a result
        self._call, self._ended = 0, False
        with self:
            yield
        self._ended = True

    def end(self):
        """End the part that is shared by all thinned networks."""
        if self._ended:
            return
        self._ended = True
        if self._results is None:
            self._results = [_mapped(self._held, made) for made in self._made]
            self._made = []

    def _held(self, leaf):
        """Return the tensor if it is still referenced, else one of its shape."""
        if not isinstance(leaf, _Seen):
            return leaf
        tensor = leaf.reference()
        if tensor is None:
            return leaf.shadow
        self._alive.append((tensor, tensor._version))
        return tensor

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if self._ended:
            return func(*args, **(kwargs or {}))
        call, self._call = self._call, self._call + 1
        if self._results is not None:
            return self._results[call]
        output = func(*args, **(kwargs or {}))
        self._made.append(_mapped(_seen, output))
        return output
