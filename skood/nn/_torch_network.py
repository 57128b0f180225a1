"""Torch networks: outputs, layers and gradients of a module, which is restored."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from contextlib import ExitStack, contextmanager
from itertools import chain

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import nn

from skood.nn._borrowed_module import (
    borrowed,
    check_first_axis,
    check_network_input,
    copied,
    detached,
    differentiable,
    embeddings,
    explaining_inference,
    finite_array,
    finite_logits,
    log_probabilities,
    places,
    to_batch,
)
from skood.nn._forward_hooks import (
    Watcher,
    parse_layer,
    pool,
    primary_tensor,
    replacing,
)
from skood.nn._network import Layers, Network
from skood.nn._outputs import Head, LaterHead, NetworkOutputs, symmetric_logits
from skood.utils._batches import as_rows, is_torch_data, loaded, loaded_blocks
from skood.utils._torch import parameter_dtype

# Results are returned in blocks of about this many bytes.
_BLOCK_BYTES = 32 * 2**20

# The first batch determines the size of the maps of a sample.
_FIRST_SAMPLES = 8


class TorchNetwork(Network):
    """Network of a skorch net, a `TorchClassifier`, or a module by `pretrained`.

    Between two blocks of results the module is restored, see `borrowed`; for the
    options see `FeatureExtractor`. Only a skorch net has no ``_prepare_input``.
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
        self.precision = "auto"
        self._n_logits = None  # a skorch net may have more outputs than classes seen
        if is_skorch:
            self.check_input = check_network_input
            self.outputs_probabilities = _skorch_gives_probabilities(estimator)
        else:
            self.check_input = estimator._prepare_input
            self._n_logits = len(estimator.classes_)
            self.precision = getattr(estimator, "precision", "auto")
            output = getattr(estimator, "output", "logits")
            self.outputs_probabilities = output == "probabilities"
        parse_layer(self.module, layer)  # an unknown name raises now

    @property
    def target(self):
        """Device of the input of the module."""
        return places(self.module, self.device)[1]

    @contextmanager
    def _watched(self, *requests):
        """Yield the device, and a `Watcher` for each request, its arguments."""
        with ExitStack() as stack:
            module = borrowed(self.module, self.device, self.precision)
            device, watchers = stack.enter_context(module), []
            for request in requests:
                watchers.append(Watcher(self.module, *request))
                stack.callback(watchers[-1].remove)
            yield device, watchers

    # --- features, logits and the head ---------------------------------------

    def outputs_together(self, X, wanted):
        """See `Network`; the batch size is the smallest one of the networks."""
        n_samples = min(network.batch_size for network, _ in wanted)
        batches = self._batches(X, n_samples)
        if torch.cuda.is_available() and self.target.type == "cuda":
            batches = self._sent_ahead(batches)
        heads: list = [None] * len(wanted)
        for first in batches:
            yield self._block_of_outputs(chain([first], batches), wanted, heads)

    def _batches(self, X, n_samples):
        """Yield batches of at most `n_samples` samples; `X` is loaded part by part."""
        for samples in loaded_blocks(X):
            samples = self.check_input(samples)
            for start in range(0, samples.shape[0], n_samples):
                yield samples[start : start + n_samples]

    def _sent_ahead(self, batches):
        """Yield batches on a GPU; the next is sent while the network computes.

        They are copied to pinned memory, which torch uses again once it was sent.
        """
        device, ahead = self.target, None
        stream = torch.cuda.Stream(device)
        for samples in batches:
            if not isinstance(samples, torch.Tensor):
                samples = torch.from_numpy(np.require(samples, requirements=["C", "W"]))
            if samples.device.type == "cpu":
                pinned = torch.empty(
                    samples.shape, dtype=self._sent_dtype(samples), pin_memory=True
                ).copy_(samples)
                with torch.cuda.stream(stream):
                    samples = pinned.to(device, non_blocking=True)
            done = stream.record_event()
            if ahead is not None:
                yield _arrived(*ahead)
            ahead = samples, done
        if ahead is not None:
            yield _arrived(*ahead)

    def _sent_dtype(self, samples):
        """Return float32 for float64 samples of a network with shorter weights."""
        is_double = samples.dtype == torch.float64
        is_short = parameter_dtype(self.module) != torch.float64
        return torch.float32 if is_double and is_short else samples.dtype

    def _block_of_outputs(self, batches, wanted, heads):
        """Run batches until a block is full; the first of all checks the heads."""
        parts: list = [([], []) for _ in wanted]
        size = 0
        requests = [
            ([network.layer], network.pooling)
            if "features" in needs
            else (None, None, network._n_logits)
            for network, needs in wanted
        ]
        with self._watched(*requests) as (device, watchers):
            for samples in batches:
                batch = self.to_batch(samples, device)
                for watcher in watchers:
                    watcher.forget()
                output = primary_tensor(self.module(batch))
                for i, (network, needs) in enumerate(wanted):
                    of_head, *arrays = network._taken(output, batch, watchers[i], needs)
                    if "head" in needs and heads[i] is None:
                        heads[i] = network._head(of_head)
                    watchers[i].forget()
                    for batches_of_outputs, array in zip(parts[i], arrays, strict=True):
                        if array is not None:
                            batches_of_outputs.append(array)
                            size += array.nbytes
                if size >= _BLOCK_BYTES:
                    break
        results = []
        # one after the other, so that batches are freed
        for head, (network, _) in zip(heads, wanted, strict=True):
            features, logits = parts.pop(0)
            stays = network.returns_tensors
            results.append(
                NetworkOutputs(
                    _finite(features, "features", stays) if features else None,
                    symmetric_logits(_finite(logits, "logits", stays))
                    if logits
                    else None,
                    head,
                )
            )
        return results

    def blocks(self, outputs):
        """Cut the outputs of all samples as `iter_outputs` does."""
        if outputs.n_samples <= self.batch_size:  # for the speed of small calls
            yield outputs
            return
        arrays = [a for a in (outputs.features, outputs.logits) if a is not None]
        size = sum(array[: self.batch_size].nbytes for array in arrays)
        if size == 0:
            yield outputs
            return
        step = self.batch_size * -(-_BLOCK_BYTES // size)
        for start in range(0, outputs.n_samples, step):
            yield outputs.take(slice(start, start + step))

    def to_batch(self, samples, device):
        """Return samples as an input of the module, see `to_batch`."""
        return to_batch(samples, self.module, device, self.check_input)

    def _taken(self, output, batch, watcher, needs):
        """Return the layer of the logits, features and logits, not checked yet."""
        of_head = watcher.head_of(output)
        z = logits = None
        if "features" in needs:
            z = detached(self.layer_output(self.layer, watcher, of_head))
            check_first_axis(z, batch, f"layer={self.layer!r}")
        if "logits" in needs:
            logits = detached(self.logits_of(output, of_head, batch))
        return of_head, z, logits

    def layer_output(self, layer, watcher, of_head):
        """Return the pooled output of a layer in the recorded forward pass."""
        if layer == "penultimate":
            linear = of_head or watcher.last
            if linear is None:
                raise ValueError(
                    "layer='penultimate' is the input of the last torch.nn.Linear, "
                    "and none ran in this network. Name a layer: it has "
                    f"{', '.join(n for n, _ in self.module.named_modules() if n)}."
                )
            return pool(linear[2], watcher.pooling, channels_last=True)
        if layer not in watcher.taken:
            raise self._did_not_run(layer)
        return watcher.taken[layer]

    def _did_not_run(self, layer):
        return ValueError(
            f"The layer {layer!r} did not run in the forward pass of "
            f"{type(self.module).__name__}. Name a layer that does."
        )

    def logits_of(self, output, of_head, batch):
        """Return the logits of the forward pass: one row per sample, or it raises."""
        if of_head is not None:
            logits = of_head[3]
        else:
            logits = output
            if self.outputs_probabilities:
                logits = log_probabilities(output)
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

    def _head(self, of_head):
        """Return the weights of the linear layer of the logits, if its input is `z`."""
        if of_head is not None and self.layer in ("penultimate", f"input:{of_head[0]}"):
            _, linear, z, logits = of_head
            product = z.double() @ linear.weight.double().T
            if linear.bias is not None:
                product += linear.bias.double()
            exact = symmetric_logits(logits.double())
            atol = 8e-3 if self.precision == "bfloat16" else 1e-3
            allowed = 1e-2 * exact.abs() + atol * (1 + exact.abs().max())
            gap = (symmetric_logits(product) - exact).abs()
            # A layer that computes more than W z + b, or is followed by an operation in
            # place, is not a linear head.
            if ((gap <= allowed) & allowed.isfinite()).all():  # one wait for a GPU
                return LaterHead(linear)
            finite_array(z, "features")
            finite_array(logits, "logits")
        raise ValueError(
            "This needs the weights of a linear head, but the logits of the network "
            f"{type(self.module).__name__} are not the output of a torch.nn.Linear on "
            f"the features of layer={self.layer!r}. Use a detector that uses features "
            "or logits only."
        )

    def find_head(self):
        """Return the head, and the name of its layer, running one sample at most.

        Without the input shape it is the only linear layer with an output per class.
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
        return Head.of_linear(linear[name]), f"input:{name}"

    def _find_by_running(self, shape):
        """Return the name of the linear layer of the logits, None if there is none."""
        with self._watched(((), None)) as (device, [watcher]):
            output = primary_tensor(self._run_one(shape, watcher, device))
            of_head = watcher.head_of(output)
        if of_head is not None:
            self._head(of_head)  # raises if it is not linear
        return None if of_head is None else of_head[0]

    def _run_one(self, shape, watcher, device):
        """Run an artificial sample with distinct entries: zeros might be padding."""
        size = int(np.prod(shape))
        numbers = torch.linspace(-1, 1, size).reshape(1, *shape)
        if not embeddings(self.module):
            return self.module(self.to_batch(numbers, device))
        least = min(m.num_embeddings for m in embeddings(self.module))
        tokens = (torch.arange(size) % min(2, least)).reshape(1, *shape)
        try:
            return self.module(self.to_batch(tokens, device))
        except RuntimeError:  # the first floating input is not what it embeds
            watcher.forget()
            return self.module(self.to_batch(numbers, device))

    # --- layers and gradients ------------------------------------------------

    def prepare(self, X):
        if is_torch_data(X):  # batches are loaded and checked when they are run
            return as_rows(X)
        return self.check_input(loaded(X))

    def _run(self, batch, watcher):
        """Return the logits of a batch, as a tensor, and the layer that gave them."""
        watcher.forget()
        output = primary_tensor(self.module(batch))
        of_head = watcher.head_of(output)
        return self.logits_of(output, of_head, batch), of_head

    def layer_names(self, samples):
        """Return the linear and convolutional layers, without the head."""
        with self._watched(((), None)) as (device, [watcher]):
            _, of_head = self._run(self.to_batch(samples[:2], device), watcher)
            ran = list(watcher.ran)
        if not ran:
            names = [name for name, _ in self.module.named_modules() if name]
            raise ValueError(
                f"No linear or convolutional layer ran in the network "
                f"{type(self.module).__name__}: name the layers to use. It has "
                f"{', '.join(names) or 'no named modules'}."
            )
        names = [name for name in ran if of_head is None or name != of_head[0]]
        return names or ["penultimate"]

    def layers(self, samples, names, pooling="mean"):
        """See `Network`."""

        def logits_and_layers(batch, watcher):
            return self._outputs_of(batch, names, watcher)

        n_samples = min(self.batch_size, _FIRST_SAMPLES) if names else self.batch_size
        blocks = self._iter_blocks(
            samples, logits_and_layers, (names, pooling), n_samples
        )
        for logits, *parts in blocks:
            # one after the other, so that batches are freed
            outputs = {name: _joined(parts.pop(0)) for name in names}
            yield Layers(outputs, np.concatenate(logits))

    def _outputs_of(self, batch, names, watcher):
        """Run a batch; return the logits as an array, and the outputs of layers."""
        logits, of_head = self._run(batch, watcher)
        outputs = []
        for layer in names:
            tensor = self.layer_output(layer, watcher, of_head).detach()
            check_first_axis(tensor, batch, f"layer={layer!r}")
            if tensor.dtype not in (torch.float32, torch.float64):
                tensor = tensor.float()
            # The sum is finite unless a value is not, or the sum overflows.
            if not torch.isfinite(tensor.sum()) and not torch.isfinite(tensor).all():
                raise ValueError(f"layer={layer!r} gave NaN or infinity.")
            outputs.append(tensor)
        watcher.forget()
        return finite_logits(logits), *outputs

    def _iter_blocks(self, samples, function, request=((), None), n_samples=None):
        """Yield lists of the results (n_results, n_batches) of a function for batches.

        The first batch has `n_samples` samples, the others as many as fit into a block.
        """
        start, n_samples = 0, n_samples or self.batch_size
        while start < samples.shape[0]:
            results: list = []
            size = 0
            with self._watched(request) as (device, [watcher]):
                while start < samples.shape[0] and size < _BLOCK_BYTES:
                    batch = self.to_batch(samples[start : start + n_samples], device)
                    results.append(function(batch, watcher))
                    n_bytes = sum(array.nbytes for array in results[-1])
                    size += n_bytes
                    start += len(batch)
                    fitting = _BLOCK_BYTES * len(batch) // max(1, n_bytes)
                    n_samples = max(1, min(self.batch_size, fitting))
            yield _columns(results)

    def input_gradient(self, samples, function, move):
        """See `Network`."""

        def moved_logits(batch, watcher):
            gradient = self._gradient(batch, watcher, function)
            logits, _ = self._run(move(batch, gradient), watcher)
            watcher.forget()
            return [finite_logits(logits)]

        for (logits,) in self._iter_blocks(samples, moved_logits):
            yield np.concatenate(logits)

    def _gradient(self, batch, watcher, function):
        """Return the gradient of a function of the logits with respect to a batch."""
        if not batch.is_floating_point():
            raise TypeError(
                f"The network {type(self.module).__name__} reads numbers of "
                f"{str(batch.dtype).removeprefix('torch.')}, such as tokens: there is "
                "no gradient with respect to them."
            )
        with (
            torch.enable_grad(),
            differentiable(self.module),
            explaining_inference(self.module),
        ):
            leaf = batch.detach().requires_grad_()
            # a copy, because a module may write to its input
            logits, _ = self._run(leaf.clone(), watcher)
            if logits.ndim == 1:
                logits = logits[:, None]
            values = logits.detach().double()
            if values.shape[1] == 1:  # logits (-m/2, m/2) of a binary margin m
                both = function(torch.cat([-values, values], dim=1) / 2)
                direction = (both[:, 1:] - both[:, :1]) / 2
            else:
                direction = function(values)
            gradient = None
            if logits.requires_grad:
                (gradient,) = torch.autograd.grad(
                    logits, leaf, direction.to(logits.dtype), allow_unused=True
                )
        if gradient is None:
            raise ValueError(
                f"The logits of {type(self.module).__name__} have no gradient with "
                "respect to its input: its forward() detaches, or runs under "
                "torch.no_grad()."
            )
        if not torch.isfinite(gradient).all():
            raise ValueError(
                f"The gradient of {type(self.module).__name__} with respect to its "
                "input contains NaN or infinity."
            )
        return gradient

    def replaced(self, samples, names, function):
        """See `Network`."""

        def logits_each(batch, watcher):
            return [
                finite_logits(self._run_replaced(batch, watcher, layer, function))
                for layer in names
            ]

        for block in self._iter_blocks(samples, logits_each):
            yield [np.concatenate(logits) for logits in block]

    def _run_replaced(self, batch, watcher, layer, function):
        with replacing(self.module, layer, function) as ran:
            # a copy, because a module may write to its input
            logits, _ = self._run(batch.clone(), watcher)
        watcher.forget()
        if not ran:
            raise self._did_not_run(layer)
        return logits

    # --- weights -------------------------------------------------------------

    def copied_module(self, one_margin=False):
        """See `Network`."""
        check_is_fitted(self.estimator)
        return copied(self.module)


def _arrived(tensor, done):
    """Return a tensor whose transfer the kernels that follow wait for."""
    current = torch.cuda.current_stream(tensor.device)
    current.wait_event(done)
    tensor.record_stream(current)  # its memory is used again after these kernels
    return tensor


def _finite(batches, what, stays):
    """Return tensors of batches as one array; NaN and infinity raise.

    With a GPU it waits once for all of them, and the array may stay there.
    """
    if batches[0].device.type == "cpu":
        array = np.concatenate([batch.numpy() for batch in batches])
        is_finite = np.isfinite(array).all()
    else:
        joined = _joined(batches)
        is_finite = torch.isfinite(joined).all()
        array = joined if stays else joined.cpu().numpy()
    if not is_finite:
        raise ValueError(f"The network's {what} contain NaN or infinity.")
    return array


def _columns(results):
    """Return lists of the results of each kind; empty the list of results."""
    columns = [list(column) for column in zip(*results, strict=True)]
    results.clear()  # free memory while the block is processed
    return columns


def _joined(parts):
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _skorch_gives_probabilities(net):
    """Return whether the module of a skorch net returns probabilities.

    `NeuralNetClassifier`, not `NeuralNet`, takes the logarithm before `NLLLoss`.
    """
    from skorch import NeuralNetClassifier

    criterion = getattr(net, "criterion_", None)
    if isinstance(criterion, nn.NLLLoss):
        return isinstance(net, NeuralNetClassifier)
    return isinstance(criterion, nn.BCELoss)
