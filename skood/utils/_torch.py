"""Helpers for torch: devices, tensors, chunks and seeds.

Importing this module does not import torch; the functions that need it do.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import contextlib
import sys

import numpy as np
from sklearn.utils import check_random_state

from skood.utils._locks import TORCH_LOCK
from skood.utils._warnings import warn


def resolve_device(device="auto"):
    """Return a torch device by name, CUDA with its index; raise if not available.

    "auto" is the current CUDA device if available, else the CPU.
    """
    import torch

    if not isinstance(device, (str, torch.device)):
        raise TypeError(
            f"device must be 'auto', a string such as 'cpu' or 'cuda:0', or a "
            f"torch.device. Got {device!r} of type {type(device).__name__}."
        )
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        resolved = torch.device(device)
    except RuntimeError as error:
        raise ValueError(
            f"Unknown device {device!r}. Pass 'auto', 'cpu', 'cuda', 'cuda:<index>' "
            f"or another device name of torch."
        ) from error
    if resolved.type == "cuda":
        return _resolve_cuda(resolved)
    if resolved.type != "cpu":
        try:  # the only test that works for every type of device
            torch.empty(1, device=resolved).cpu()
        except (AssertionError, NotImplementedError, RuntimeError) as error:
            raise ValueError(
                f"Device {str(resolved)!r} cannot hold data on this machine. Pass "
                f"device='auto' or device='cpu'."
            ) from error
    return resolved


def double_device(device):
    """Return a torch device by name; warn and return the CPU for MPS: no float64."""
    import torch

    resolved = resolve_device(device)
    if resolved.type != "mps":
        return resolved
    warn("MPS has no float64, in which scores are computed: the CPU computes them.")
    return torch.device("cpu")


def _resolve_cuda(device):
    """Return a CUDA device with its index; raise if it does not exist."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        raise ValueError(
            f"Device {str(device)!r} was requested, but torch finds no CUDA device on "
            f"this machine. Pass device='auto' or device='cpu'."
        )
    index = torch.cuda.current_device() if device.index is None else device.index
    if index >= count:
        raise ValueError(
            f"Device {str(device)!r} was requested, but there are only {count} CUDA "
            f"device(s): pass an index from 0 to {count - 1}."
        )
    return torch.device("cuda", index)


def is_tensor(X):
    """Return whether `X` is a torch tensor, without importing torch."""
    if type(X) is np.ndarray:  # for the speed of small calls
        return False
    torch = sys.modules.get("torch")  # without torch there are no tensors
    return torch is not None and isinstance(X, torch.Tensor)


def on_gpu(X):
    """Return whether `X` is a tensor that is not on the CPU."""
    return is_tensor(X) and X.device.type != "cpu"


def check_has_values(X):
    """Raise a ValueError if a tensor is on the meta device, without values."""
    if X.device.type == "meta":
        raise ValueError(
            f"Got a tensor of shape {tuple(X.shape)} on the meta device, which holds "
            "no values. Pass a tensor on the CPU or a GPU."
        )


def with_numpy_dtype(X):
    """Return a tensor in a dtype of NumPy: bfloat16 and other floats become float32."""
    import torch

    if X.is_floating_point() and X.dtype not in (
        torch.float16,
        torch.float32,
        torch.float64,
    ):
        return X.float()
    return X


def check_tensor(X, *, keep_double=False):
    """Return samples of shape (n_samples, ...) as detached, finite float32, or raise.

    Float32 is not copied; with `keep_double`, float64 remains.
    """
    import torch

    check_has_values(X)
    X = X.detach()
    if X.is_complex() or X.layout != torch.strided:
        raise TypeError(
            f"X must be a dense tensor of real numbers, got dtype {X.dtype} and "
            f"layout {X.layout}."
        )
    if X.ndim < 2 or 0 in X.shape:
        raise ValueError(
            f"X must have the shape (n_samples, ...) with at least one sample and one "
            f"feature, got a tensor of shape {tuple(X.shape)}."
        )
    if not (keep_double and X.dtype == torch.float64):
        X = X.to(torch.float32)
    # the sum is finite unless a value is not, or the sum overflows
    if not torch.isfinite(X.sum()) and not torch.isfinite(X).all():
        raise ValueError(
            "Input X contains NaN, infinity or a value too large for float32."
        )
    return X


def to_numpy(X):
    """Return a tensor on any device as an ndarray; anything else unchanged.

    bfloat16, which NumPy does not have, becomes float32; the meta device raises.
    """
    if type(X) is np.ndarray or not is_tensor(X):
        return X
    import torch

    check_has_values(X)
    X = X.detach()
    if X.layout != torch.strided:
        X = X.to_dense()
    X = with_numpy_dtype(X)
    return X.cpu().resolve_conj().resolve_neg().numpy()


def to_tensor(X, device=None, dtype=None):
    """Return an array as a tensor; share memory where that is safe.

    A read-only array is copied, because torch would write to it.
    """
    import torch

    if not is_tensor(X):
        X = torch.from_numpy(np.require(X, requirements=["C", "W"]))
    return X.to(device=device, dtype=dtype)


def row_chunks(n_samples, bytes_per_row, budget=64 * 2**20):
    """Yield slices of consecutive rows that need at most `budget` bytes, or one row."""
    step = max(1, int(budget) // max(1, int(bytes_per_row)))
    for start in range(0, n_samples, step):
        yield slice(start, min(start + step, n_samples))


@contextlib.contextmanager
def seeded(random_state, device=None):
    """Seed torch inside a `with` block and restore its generators afterwards.

    Blocks in several threads run one after the other: torch has one generator per
    device for the whole process. A CUDA `device` is initialized first, so that its
    generators are seeded; others only if CUDA was initialized before. Yields the seed.
    """
    import torch

    seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    if device is not None and torch.device(device).type == "cuda":
        torch.cuda.init()
    # torch.manual_seed would defer seeding until CUDA is initialized
    cuda = torch.cuda.is_initialized()
    devices = list(range(torch.cuda.device_count())) if cuda else []
    with TORCH_LOCK, torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(seed)
        if cuda:
            torch.cuda.manual_seed_all(seed)
        yield seed


def autocast(kind, enabled=False):
    """Return a context with autocast to bfloat16 on a kind of device, or without any.

    Results do not depend on an autocast of the caller.
    """
    import torch

    try:
        if not (enabled or torch.is_autocast_enabled(kind)):
            return contextlib.nullcontext()
    except (RuntimeError, TypeError):  # a kind that has none, or an old torch
        pass
    try:
        return torch.autocast(kind, torch.bfloat16, enabled=enabled)
    except RuntimeError:  # a kind of device that has no autocast
        return contextlib.nullcontext()


@contextlib.contextmanager
def training(random_state, device=None):
    """Build and train networks inside a `with` block: `seeded`, with gradients.

    Parameters created in the caller's inference mode could never be trained.
    """
    import torch

    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        autocast(torch.device(device or "cpu").type),
        seeded(random_state, device) as seed,
    ):
        yield seed


@contextlib.contextmanager
def evaluating(module):
    """Set a module to eval mode inside a `with` block, then restore each submodule."""
    modes = [(submodule, submodule.training) for submodule in module.modules()]
    try:
        # Not module.eval(): a user-defined train() may do more than set the mode.
        for submodule, training in modes:
            if training:  # to set an attribute of a module is slow
                submodule.training = False
        yield module
    finally:
        for submodule, training in modes:
            if submodule.training is not training:
                submodule.training = training


def _first_float(module):
    """Return the first floating-point parameter, else buffer, else None."""
    for tensors in (module.parameters(), module.buffers()):
        for tensor in tensors:
            if tensor.is_floating_point():
                return tensor
    return None


def parameter_dtype(module):
    """Return the dtype of the first float parameter or buffer, or float32."""
    import torch

    tensor = _first_float(module)
    return torch.float32 if tensor is None else tensor.dtype


def parameter_device(module, default="cpu"):
    """Return the device of the first float parameter or buffer, or `default`."""
    import torch

    tensor = _first_float(module)
    return torch.device(default) if tensor is None else tensor.device
