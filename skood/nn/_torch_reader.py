"""Reader of features, logits and the head of a torch network."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from contextlib import ExitStack, contextmanager, nullcontext
from itertools import chain

import numpy as np
import torch
from torch import nn

from skood.nn._forward_hooks import Watcher, parse_layer, pool, primary_tensor
from skood.nn._outputs import Reader, Reading, symmetric_logits, symmetric_rows
from skood.utils._batches import is_torch_data, loaded, loaded_blocks
from skood.utils._locks import TORCH_LOCK
from skood.utils._torch import evaluating, parameter_dtype, resolve_device

__all__ = [
    "ModuleReader",
    "borrowed",
    "check_first_axis",
    "check_network_input",
    "finite_logits",
]

_EMBEDDING = (nn.Embedding, nn.EmbeddingBag)

# Readings are returned in blocks of about this many bytes.
_BLOCK_BYTES = 32 * 2**20


@contextmanager
def borrowed(module, device="auto"):
    """Run a module in eval mode, on a device, without gradients; then restore it.

    A ``torch.autocast`` of the caller is disabled: it would change the outputs. Threads
    take turns: the module has hooks, and is in eval mode.

    Parameters
    ----------
    module : torch.nn.Module
        Its training flags (of each submodule), buffers, gradients and device are
        restored.

    device : str or torch.device, default="auto"
        Device. "auto": the current device of the module if that is an accelerator, else
        CUDA if available. A module that is spread over devices stays so.

    Yields
    ------
    device : torch.device
        Device of the inputs.
    """
    with TORCH_LOCK:
        homes, target = _places(module, device)
        home = next(iter(homes), target)
        moves = len(homes) == 1 and target != home
        with ExitStack() as stack:
            stack.enter_context(evaluating(module))
            # Parameters moved in inference mode could never be trained again.
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.no_grad())
            for kind in {target.type, *(found.type for found in homes)}:
                stack.enter_context(_without_autocast(kind))
            try:
                if moves:
                    module.to(target)
                yield target
            finally:
                if moves:
                    module.to(home)


def _places(module, device):
    """Return the devices of a module, and the device of its input."""
    # In the order of definition: a module that is spread gets its input where it
    # starts.
    homes = dict.fromkeys(t.device for t in (*module.parameters(), *module.buffers()))
    home = next(iter(homes), torch.device("cpu"))
    if len(homes) > 1 or (device == "auto" and home.type != "cpu"):
        return homes, home
    return homes, resolve_device(device)


def _without_autocast(kind):
    try:
        return torch.autocast(kind, enabled=False)
    except RuntimeError:  # a kind of device that has no autocast
        return nullcontext()


class ModuleReader(Reader):
    """Reader of torch networks: skorch nets, `TorchClassifier`, `pretrained`.

    Parameters
    ----------
    estimator : object
        A fitted estimator with ``module_``: a skorch net, or one with
        ``_prepare_input``.

    is_skorch : bool
        Whether it is a skorch net.

    layer, pooling, batch_size, device
        See `FeatureExtractor`.
    """

    def __init__(self, estimator, *, is_skorch, layer, pooling, batch_size, device):
        self.estimator = estimator
        self.module = estimator.module_
        self.layer = layer
        self.pooling = pooling
        self.place = (layer, pooling)
        self.batch_size = min(
            batch_size, getattr(estimator, "max_batch_size_", batch_size)
        )
        if device == "auto":  # the device of the classifier
            device = getattr(estimator, "device", None) or "auto"
        self.device = device
        self._n_logits = None  # a skorch net may have more outputs than classes seen
        if is_skorch:
            self.prepare = check_network_input
            self.outputs_probabilities = _skorch_gives_probabilities(estimator)
        else:
            self.prepare = estimator._prepare_input
            self._n_logits = len(estimator.classes_)
            output = getattr(estimator, "output", "logits")
            self.outputs_probabilities = output == "probabilities"
        parse_layer(self.module, layer)  # an unknown name raises now

    @property
    def target(self):
        """Device of the input of the module."""
        return _places(self.module, self.device)[1]

    def iter_together(self, X, wanted):
        """Yield readings of blocks of samples, each batch in one forward pass.

        Between two blocks the module is restored. The batch size is the smallest of the
        readers.
        """
        n_rows = min(reader.batch_size for reader, _ in wanted)
        batches = self._batches(X, n_rows)
        for first in batches:
            yield self._read_block(chain([first], batches), wanted)

    def _batches(self, X, n_rows):
        """Yield batches of at most `n_rows` samples; `X` is loaded part by part."""
        for rows in loaded_blocks(X):
            rows = self.prepare(rows)
            for start in range(0, rows.shape[0], n_rows):
                yield rows[start : start + n_rows]

    def _read_block(self, batches, wanted):
        """Read batches until a block is full."""
        parts: list = [([], []) for _ in wanted]
        heads: list = [None] * len(wanted)
        size = 0
        with borrowed(self.module, self.device) as device, ExitStack() as stack:
            watchers = []  # one per layer, because they may differ in pooling
            for reader, _ in wanted:
                watchers.append(Watcher(self.module, [reader.layer], reader.pooling))
                stack.callback(watchers[-1].remove)
            for rows in batches:
                taken = self._forward(self.to_batch(rows, device), watchers, wanted)
                for i, (reader, want) in enumerate(wanted):
                    found, *arrays = taken[i]
                    if "head" in want and heads[i] is None:
                        heads[i] = reader._head(found)
                    for part, array in zip(parts[i], arrays, strict=True):
                        if array is not None:
                            part.append(array)
                            size += array.nbytes
                if size >= _BLOCK_BYTES:
                    break
        readings = []
        for head in heads:  # one after the other, so that batches are freed
            features, logits = parts.pop(0)
            readings.append(
                Reading(
                    np.concatenate(features) if features else None,
                    np.concatenate(logits) if logits else None,
                    head,
                )
            )
        return readings

    def blocks(self, reading):
        """Cut a reading of all samples as `iter_read` does."""
        arrays = [a for a in (reading.features, reading.logits) if a is not None]
        size = sum(array[: self.batch_size].nbytes for array in arrays)
        if size == 0:
            yield reading
            return
        step = self.batch_size * -(-_BLOCK_BYTES // size)
        for start in range(0, len(reading), step):
            yield reading.rows(slice(start, start + step))

    def to_batch(self, batch, device):
        """Move a batch to the device, floating input in the network's precision."""
        if is_torch_data(batch):
            batch = self.prepare(loaded(batch))
        is_tensor = isinstance(batch, torch.Tensor)
        if not is_tensor:
            batch = torch.from_numpy(np.array(batch, order="C"))
        dtype = parameter_dtype(self.module)
        if not batch.is_floating_point() and self._embeds():
            dtype = batch.dtype if batch.dtype == torch.int32 else torch.int64
        # Always a copy of the user's samples: a module may write to its input.
        return batch.to(device=device, dtype=dtype, copy=is_tensor)

    def _embeds(self):
        return any(isinstance(m, _EMBEDDING) for m in self.module.modules())

    def _forward(self, batch, watchers, wanted):
        """Run a batch; return the head's layer, features and logits for each reader."""
        for watcher in watchers:
            watcher.forget()
        output = primary_tensor(self.module(batch))
        taken = []
        for (reader, want), watcher in zip(wanted, watchers, strict=True):
            taken.append(reader._taken(output, batch, watcher, want))
            watcher.forget()
        return taken

    def _taken(self, output, batch, watcher, want):
        """Return the layer of the logits, features and logits of a forward pass."""
        found = watcher.head_of(output)
        z = logits = None
        if "features" in want:
            z = _finite(self.layer_output(self.layer, watcher, found), "features")
            check_first_axis(z, batch, f"layer={self.layer!r}")
        if "logits" in want:
            logits = finite_logits(self.logits_of(output, found, batch))
        return found, z, logits

    def layer_output(self, layer, watcher, found):
        """Return the pooled output of a layer in the recorded forward pass."""
        if layer == "penultimate":
            linear = found or watcher.last
            if linear is None:
                raise ValueError(
                    "layer='penultimate' is the input of the last torch.nn.Linear, "
                    "and none ran in this network. Name a layer: it has "
                    f"{', '.join(n for n, _ in self.module.named_modules() if n)}."
                )
            return pool(linear[2], watcher.pooling, channels_last=True)
        if layer not in watcher.taken:
            raise ValueError(
                f"The layer {layer!r} did not run in the forward pass of "
                f"{type(self.module).__name__}. Name a layer that does."
            )
        return watcher.taken[layer]

    def logits_of(self, output, found, batch):
        """Return the logits, as a tensor, of the recorded forward pass.

        One row per sample, and a column per class (one for a margin); else it raises.
        """
        if found is not None:
            logits = found[3]
        else:
            logits = output
            if self.outputs_probabilities:
                logits = _log_probabilities(output)
        if logits.ndim > 2:
            raise ValueError(
                f"The network returned logits of shape {tuple(logits.shape)}; expected "
                "(n_samples, n_classes)."
            )
        check_first_axis(logits, batch, "The network")
        n_logits = 1 if logits.ndim == 1 else logits.shape[1]
        if self._n_logits is not None and max(2, n_logits) != self._n_logits:
            classes = np.asarray(self.estimator.classes_).tolist()
            raise ValueError(
                f"The network {type(self.module).__name__} has {n_logits} outputs, but "
                f"classes names {len(classes)}: {classes}. Name one class per output, "
                "in their order."
            )
        return logits

    def _head(self, found):
        """Return the weights of the linear layer of the logits, if its input is `z`."""
        if found is not None and self.layer in ("penultimate", f"input:{found[0]}"):
            head = _weights(found[1])
            z = _finite(found[2], "features").astype(np.float64)
            logits = symmetric_logits(_finite(found[3], "logits"))
            # A layer that computes more than W z + b, or is followed by an operation in
            # place, is not a linear head.
            if np.allclose(
                z @ head.coef.T + head.intercept,
                logits,
                rtol=1e-2,
                atol=1e-3 * (1 + np.abs(logits).max()),
            ):
                return head
        raise ValueError(
            "This needs the weights of a linear head, but the logits of the network "
            f"{type(self.module).__name__} are not the output of a torch.nn.Linear on "
            f"the features of layer={self.layer!r}. Use a detector that reads features "
            "or logits only."
        )

    def find_head(self):
        """Return the head without running samples, and the name of its layer.

        If the input shape is known, one sample finds the linear layer that gives the
        logits; otherwise it is the only one with an output per class.
        """
        n_classes = len(getattr(self.estimator, "classes_", ()))
        linear = {
            name: child
            for name, child in self.module.named_modules()
            if isinstance(child, nn.Linear)
            and (n_classes == 0 or max(2, child.out_features) == n_classes)
        }
        shape = getattr(self.estimator, "input_shape_", None)
        why = "that gives the logits"
        name = None
        if self.layer != "penultimate":
            name = str(self.layer)
            name = name.removeprefix("input:") if name.startswith("input:") else None
        elif shape is not None:
            name = self._find_by_running(shape)
        elif len(linear) == 1:
            name = next(iter(linear))
        elif linear:
            why += ", and without the input shape it is unknown which one does"
        if name not in linear:
            raise ValueError(
                f"The network {type(self.module).__name__} cannot be split at layer="
                f"{self.layer!r}: a body and a head part at the input of the linear "
                f"layer {why}. Its linear layers with an output per class are: "
                f"{', '.join(linear) or 'none'}; use layer='input:NAME' for one."
            )
        return _weights(linear[name]), f"input:{name}"

    def _find_by_running(self, shape):
        """Return the name of the linear layer of the logits, None if there is none."""
        with borrowed(self.module, self.device) as device:
            watcher = Watcher(self.module)
            try:
                output = primary_tensor(self._run_one(shape, watcher, device))
                found = watcher.head_of(output)
            finally:
                watcher.remove()
        if found is not None:
            self._head(found)  # raises if it is not linear
        return None if found is None else found[0]

    def _run_one(self, shape, watcher, device):
        """Run an artificial sample with distinct entries: zeros might be padding."""
        size = int(np.prod(shape))
        numbers = torch.linspace(-1, 1, size).reshape(1, *shape)
        if not self._embeds():
            return self.module(self.to_batch(numbers, device))
        least = min(
            m.num_embeddings for m in self.module.modules() if isinstance(m, _EMBEDDING)
        )
        tokens = (torch.arange(size) % min(2, least)).reshape(1, *shape)
        try:
            return self.module(self.to_batch(tokens, device))
        except RuntimeError:  # the first floating input is not what it embeds
            watcher.forget()
            return self.module(self.to_batch(numbers, device))


def _skorch_gives_probabilities(net):
    """Return whether the module of a skorch net returns probabilities.

    `NeuralNetClassifier` takes the logarithm before `NLLLoss`; the plain
    `NeuralNet` does not.
    """
    from skorch import NeuralNetClassifier

    criterion = getattr(net, "criterion_", None)
    if isinstance(criterion, nn.NLLLoss):
        return isinstance(net, NeuralNetClassifier)
    return isinstance(criterion, nn.BCELoss)


def _log_probabilities(output):
    """Return log-probabilities, or log odds of a single one, clipped to be finite."""

    def log(p):
        return p.clamp_min(torch.finfo(torch.float64).tiny).log()

    p = output.double()
    if p.ndim == 1 or p.shape[1] == 1:
        return log(p) - log(1 - p)
    return log(p)


def check_first_axis(array, batch, what):
    """Raise if an array of a batch does not have one row per sample."""
    if array.shape[0] != batch.shape[0]:
        raise ValueError(
            f"{what} gave {array.shape[0]} rows for a batch of {batch.shape[0]}: its "
            "first axis is not the samples."
        )


def finite_logits(logits):
    """Return logits as NumPy, one column per class; NaN and infinity raise."""
    return symmetric_logits(_finite(logits, "logits"))


def _weights(linear):
    """Return a torch.nn.Linear as a float64 head with one row per class."""
    weight = linear.weight.detach().double().cpu().numpy()
    if linear.bias is None:
        return symmetric_rows(weight, np.zeros(len(weight)))
    return symmetric_rows(weight, linear.bias.detach().double().cpu().numpy())


def _finite(tensor, what):
    """Convert to NumPy; half precision becomes float32; NaN and infinity raise."""
    tensor = tensor.detach()
    if tensor.dtype not in (torch.float32, torch.float64):
        tensor = tensor.float()
    array = tensor.cpu().numpy()
    if not np.isfinite(array).all():
        raise ValueError(f"The network's {what} contain NaN or infinity.")
    return array


def check_network_input(X):
    """Return samples, at least 2-D, for a network of unknown input shape.

    X is anything that NumPy converts to numbers. Raises if there are no samples, or NaN
    or infinity among them.
    """
    if not isinstance(X, torch.Tensor):
        if isinstance(X, list) and X and isinstance(X[0], (tuple, dict)):
            raise TypeError(
                f"X is a list of items such as a {type(X[0]).__name__}, which is what "
                "scikit-learn makes of a torch dataset when it chooses rows. Give it "
                "skorch.helper.SliceDataset(dataset), and the labels as y."
            )
        X = np.asarray(X)
        if X.dtype.kind not in "biuf":
            raise ValueError(f"X must hold numbers, got an array of dtype {X.dtype}.")
        X = X.astype(X.dtype.newbyteorder("="), copy=False)
    if X.ndim < 2 or X.shape[0] == 0:
        raise ValueError(
            f"X must have shape (n_samples, ...) with at least one sample, got "
            f"{tuple(X.shape)}. Reshape a single sample to (1, ...)."
        )
    finite = torch.isfinite(X).all() if isinstance(X, torch.Tensor) else np.isfinite(X)
    if not bool(finite.all()):
        raise ValueError("Input X contains NaN or infinity.")
    return X
