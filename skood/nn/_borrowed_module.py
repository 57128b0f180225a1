"""Run a torch module and leave it as it was; its input and output."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import chain

import numpy as np
import torch
from torch import nn

from skood.nn._outputs import symmetric_logits
from skood.utils._batches import is_torch_data, loaded
from skood.utils._locks import TORCH_LOCK
from skood.utils._torch import autocast, evaluating, parameter_dtype, resolve_device


@contextmanager
def borrowed(module, device="auto", precision="auto"):
    """Run a module in eval mode, on a device, without gradients; then restore it.

    Yields the device of the inputs: with "auto" the device of the module, which is not
    moved. With the precision "bfloat16" torch's autocast chooses the operators that run
    in it. Threads take turns: the module has hooks.
    """
    with TORCH_LOCK:
        homes, target = places(module, device)
        home = next(iter(homes), target)
        moves = len(homes) == 1 and target != home
        # Parameters moved in inference mode could never be trained again.
        inference, is_half = torch.inference_mode(False), precision == "bfloat16"
        with evaluating(module), inference, torch.no_grad(), ExitStack() as stack:
            for kind in {target.type, *(found.type for found in homes)}:
                stack.enter_context(autocast(kind, is_half))
            try:
                if moves:
                    module.to(target)
                yield target
            finally:
                if moves:
                    module.to(home)


def places(module, device):
    """Return the devices of a module, and the device of its input."""
    # In the order of definition: a module that is spread gets its input where it
    # starts.
    homes = dict.fromkeys(t.device for t in (*module.parameters(), *module.buffers()))
    if homes and (len(homes) > 1 or device == "auto"):
        return homes, next(iter(homes))
    return homes, resolve_device(device)


def log_probabilities(output):
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
    return symmetric_logits(finite_array(logits, "logits"))


def finite_array(tensor, what):
    """Convert to NumPy; half precision becomes float32; NaN and infinity raise."""
    array = detached(tensor).cpu().numpy()
    if not np.isfinite(array).all():
        raise ValueError(f"The network's {what} contain NaN or infinity.")
    return array


def detached(tensor):
    """Return a tensor without gradient; half precision becomes float32."""
    tensor = tensor.detach()
    is_half = tensor.dtype not in (torch.float32, torch.float64)
    return tensor.float() if is_half else tensor


def check_network_input(X):
    """Return samples as numbers, at least 2-D and finite, or raise."""
    if not isinstance(X, torch.Tensor):
        if isinstance(X, list) and X and isinstance(X[0], (tuple, dict)):
            raise TypeError(
                f"X is a list of items such as a {type(X[0]).__name__}, which is what "
                "scikit-learn makes of a torch dataset when it chooses samples. Give "
                "it skorch.helper.SliceDataset(dataset), and the labels as y."
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


@contextmanager
def explaining_inference(module):
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


def differentiable(module):
    """Disable cuDNN on CUDA: it cannot differentiate recurrent layers in eval mode."""
    if any(isinstance(child, nn.RNNBase) for child in module.modules()):
        return torch.backends.cudnn.flags(enabled=False)
    return nullcontext()


def copied(module):
    """Return a copy of a module whose weights may require a gradient."""
    with torch.inference_mode(False), torch.no_grad():
        return copy.deepcopy(module)


def is_copy(copied, original):
    """Return whether a copied module still equals the original, except for its mode.

    The copy is on the CPU; its modules may have their own ``forward``. Attributes that
    cannot be compared are not equal, or raise.
    """
    if type(copied) is not type(original) or original is None:
        return copied is original
    state, tensors, modules = _contents(original)
    copied_state, copied_tensors, copied_modules = _contents(copied)
    if "forward" not in state:
        copied_state.pop("forward", None)
    return (
        copied_state == state
        and all(map(_equal, copied_tensors, tensors))
        and all(map(is_copy, copied_modules, modules))
    )


def _contents(module):
    """Return the attributes of a module with names of others, tensors, and modules."""
    state = {**vars(module), "training": False}
    parts = [state[name] for name in ("_parameters", "_buffers", "_modules")]
    state["_parameters"], state["_buffers"], state["_modules"] = map(list, parts)
    return state, chain(*(part.values() for part in parts[:2])), parts[2].values()


def _equal(a, b):
    """Return whether two tensors, or None, are equal; `a` is on the CPU."""
    if a is None or b is None or a.dtype != b.dtype or a.shape != b.shape:
        return a is b
    return np.array_equal(a.detach().numpy(), b.detach().cpu().numpy())


def embeddings(module):
    """Return the embeddings among the submodules of a module."""
    kinds = (nn.Embedding, nn.EmbeddingBag)
    return [child for child in module.modules() if isinstance(child, kinds)]


def to_batch(samples, module, device, check_input):
    """Return samples, checked if they are loaded, as an input of a module."""
    if is_torch_data(samples):
        samples = check_input(loaded(samples))
    is_tensor = isinstance(samples, torch.Tensor)
    batch = samples if is_tensor else torch.from_numpy(np.array(samples, order="C"))
    dtype = parameter_dtype(module)
    if not batch.is_floating_point() and embeddings(module):
        dtype = batch.dtype if batch.dtype == torch.int32 else torch.int64
    # Always a copy of the user's samples: a module may write to its input.
    return batch.to(device=device, dtype=dtype, copy=is_tensor)
