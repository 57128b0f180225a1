"""Layers and gradients of a torch network, which is restored afterwards."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from contextlib import contextmanager, nullcontext

import numpy as np
import torch
from torch import nn

from skood.nn._forward_hooks import Watcher, primary_tensor, replacing
from skood.nn._network import Layers, Network
from skood.nn._torch_reader import borrowed, check_first_axis, finite_logits
from skood.utils._batches import as_rows, is_torch_data, loaded

__all__ = ["ModuleNetwork"]

# Results are returned in blocks of about this many bytes.
_BLOCK_BYTES = 32 * 2**20

# The first batch determines the size of the maps of a sample.
_FIRST_ROWS = 8


class ModuleNetwork(Network):
    """Network of a skorch net, a `TorchClassifier`, or a module by `pretrained`.

    Between two blocks the module is restored: training modes, buffers, gradients,
    ``requires_grad``, hooks and device.
    """

    def __init__(self, reader, steps):
        super().__init__(reader, steps)
        self._module = reader.module

    def _checked(self, X):
        if is_torch_data(X):  # batches are loaded and checked when they are run
            return as_rows(X)
        return self.reader.prepare(loaded(X))

    @contextmanager
    def _watched(self, layers=(), pooling="mean"):
        """Put the module in eval mode with hooks; yield its device and the watcher."""
        with borrowed(self._module, self.reader.device) as device:
            watcher = Watcher(self._module, layers, pooling)
            try:
                yield device, watcher
            finally:
                watcher.remove()

    def _run(self, batch, watcher):
        """Return the logits of a batch, as a tensor, and the layer that gave them."""
        watcher.forget()
        output = primary_tensor(self._module(batch))
        found = watcher.head_of(output)
        return self.reader.logits_of(output, found, batch), found

    def layer_names(self, rows):
        """Return the linear and convolutional layers, without the head."""
        with self._watched() as (device, watcher):
            _, found = self._run(self.reader.to_batch(rows[:2], device), watcher)
            ran = list(watcher.ran)
        if not ran:
            names = [name for name, _ in self._module.named_modules() if name]
            raise ValueError(
                f"No linear or convolutional layer ran in the network "
                f"{type(self._module).__name__}: name the layers to read. It has "
                f"{', '.join(names) or 'no named modules'}."
            )
        names = [name for name in ran if found is None or name != found[0]]
        return names or ["penultimate"]

    def iter_layers(self, rows, layers, pooling="mean"):
        """See `Network`."""
        start, n_rows = 0, self.reader.batch_size
        if layers:
            n_rows = min(n_rows, _FIRST_ROWS)
        while start < rows.shape[0]:
            blocks: dict = {layer: [] for layer in layers}
            logits, size = [], 0
            with self._watched(layers, pooling) as (device, watcher):
                while start < rows.shape[0] and size < _BLOCK_BYTES:
                    batch = self.reader.to_batch(rows[start : start + n_rows], device)
                    outputs, z = self._read(batch, layers, watcher)
                    n_bytes = z.nbytes + sum(t.nbytes for t in outputs.values())
                    for layer, tensor in outputs.items():
                        blocks[layer].append(tensor)
                    logits.append(z)
                    size += n_bytes
                    start += len(batch)
                    fitting = _BLOCK_BYTES * len(batch) // n_bytes
                    n_rows = max(1, min(self.reader.batch_size, fitting))
            outputs = {
                layer: parts[0] if len(parts) == 1 else torch.cat(parts)
                for layer, parts in blocks.items()
            }
            del blocks  # free memory while the block is processed
            yield Layers(outputs, np.concatenate(logits))

    def _read(self, batch, layers, watcher):
        """Run a batch; return the outputs of layers, and the logits as an array."""
        logits, found = self._run(batch, watcher)
        outputs = {}
        for layer in layers:
            tensor = self.reader.layer_output(layer, watcher, found).detach()
            check_first_axis(tensor, batch, f"layer={layer!r}")
            if tensor.dtype not in (torch.float32, torch.float64):
                tensor = tensor.float()
            # The sum is finite unless a value is not, or the sum overflows.
            if not torch.isfinite(tensor.sum()) and not torch.isfinite(tensor).all():
                raise ValueError(f"layer={layer!r} gave NaN or infinity.")
            outputs[layer] = tensor
        watcher.forget()
        return outputs, finite_logits(logits)

    def _iter_batches(self, rows, function):
        """Yield blocks of the results of a function for batches of samples."""
        start, n_rows = 0, self.reader.batch_size
        while start < rows.shape[0]:
            results, size = [], 0
            with self._watched() as (device, watcher):
                while start < rows.shape[0] and size < _BLOCK_BYTES:
                    batch = self.reader.to_batch(rows[start : start + n_rows], device)
                    result = function(batch, watcher)
                    results.append(result)
                    size += sum(array.nbytes for array in result)
                    start += n_rows
            yield [np.concatenate(parts) for parts in zip(*results, strict=True)]

    def iter_moved(self, rows, cotangent, move):
        """See `Network`."""

        def moved_logits(batch, watcher):
            gradient = self._gradient(batch, watcher, cotangent)
            logits, _ = self._run(move(batch, gradient), watcher)
            watcher.forget()
            return [finite_logits(logits)]

        for (logits,) in self._iter_batches(rows, moved_logits):
            yield logits

    def _gradient(self, batch, watcher, cotangent):
        """Return the gradient of a function of the logits with respect to a batch."""
        if not batch.is_floating_point():
            raise TypeError(
                f"The network {type(self._module).__name__} reads numbers of "
                f"{str(batch.dtype).removeprefix('torch.')}, such as tokens: there is "
                "no gradient with respect to them."
            )
        with (
            torch.enable_grad(),
            _differentiable(self._module),
            _explaining_inference(self._module),
        ):
            leaf = batch.detach().requires_grad_()
            # a copy, because a module may write to its input
            logits, _ = self._run(leaf.clone(), watcher)
            if logits.ndim == 1:
                logits = logits[:, None]
            values = logits.detach().double()
            if values.shape[1] == 1:  # logits (-m/2, m/2) of a binary margin m
                both = cotangent(torch.cat([-values, values], dim=1) / 2)
                direction = (both[:, 1:] - both[:, :1]) / 2
            else:
                direction = cotangent(values)
            gradient = None
            if logits.requires_grad:
                (gradient,) = torch.autograd.grad(
                    logits, leaf, direction.to(logits.dtype), allow_unused=True
                )
        if gradient is None:
            raise ValueError(
                f"The logits of {type(self._module).__name__} have no gradient with "
                "respect to its input: its forward() detaches, or runs under "
                "torch.no_grad()."
            )
        if not torch.isfinite(gradient).all():
            raise ValueError(
                f"The gradient of {type(self._module).__name__} with respect to its "
                "input contains NaN or infinity."
            )
        return gradient

    def iter_replaced(self, rows, layers, function):
        """See `Network`."""

        def logits_each(batch, watcher):
            return [
                finite_logits(self._run_replaced(batch, watcher, layer, function))
                for layer in layers
            ]

        yield from self._iter_batches(rows, logits_each)

    def _run_replaced(self, batch, watcher, layer, function):
        with replacing(self._module, layer, function) as ran:
            # a copy, because a module may write to its input
            logits, _ = self._run(batch.clone(), watcher)
        watcher.forget()
        if not ran:
            raise ValueError(
                f"The layer {layer!r} did not run in the forward pass of "
                f"{type(self._module).__name__}. Name a layer that does."
            )
        return logits


@contextmanager
def _explaining_inference(module):
    """Explain in the error which tensors made in inference mode stop the gradient."""
    try:
        yield
    except RuntimeError as error:
        tensors = (*module.named_parameters(), *module.named_buffers())
        names = [name for name, tensor in tensors if tensor.is_inference()]
        if not names:
            raise
        raise ValueError(
            f"No gradient passes through {type(module).__name__}: {names[0]!r}"
            f"{' and others were' if len(names) > 1 else ' was'} made under "
            "torch.inference_mode(). Build the network outside of it, and load the "
            "weights by load_state_dict."
        ) from error


def _differentiable(module):
    """Disable cuDNN on CUDA: it cannot differentiate recurrent layers in eval mode."""
    if any(isinstance(child, nn.RNNBase) for child in module.modules()):
        return torch.backends.cudnn.flags(enabled=False)
    return nullcontext()
