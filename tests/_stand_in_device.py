"""A CUDA device that is played by the CPU, and counts what a program asks of it.

Inside :func:`stand_in_device` torch has one CUDA device. Its tensors lie in the memory
of the CPU, but neither their values nor their storage are visible without a transfer:
they have the device ``cuda:0``, cannot become NumPy arrays, and do not go together with
tensors of the CPU. Views and results of operators on them are on the device as well.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import ClassVar
from unittest import mock

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode, resolve_name

DEVICE = torch.device("cuda", 0)
_CPU = torch.device("cpu")
_MEMORY = 8 * 2**30

# Functions whose result on a GPU is in the memory of the host, or has a shape that the
# host has to know.
_WAITING = frozenset(
    "item tolist __bool__ __float__ __int__ __index__ __contains__ nonzero argwhere "
    "masked_select unique unique_consecutive equal allclose is_nonzero bincount "
    "_local_scalar_dense".split()
)

_VIEWS = frozenset(
    "view view_as reshape expand expand_as transpose permute t mT T H mH squeeze "
    "unsqueeze detach select narrow split chunk unbind diagonal movedim swapaxes "
    "flatten unflatten ravel as_strided contiguous requires_grad_ real atleast_2d "
    "broadcast_to broadcast_tensors data grad __get__ __set__ __len__ size dim numel "
    "nelement stride storage_offset is_contiguous untyped_storage data_ptr "
    "element_size is_floating_point is_complex type_as retains_grad is_inference "
    "get_device is_pinned has_names register_hook __format__ __repr__ __hash__ "
    "__dir__ is_same_size result_type broadcast_shapes is_conj is_neg resolve_conj "
    "resolve_neg can_cast _has_compatible_shallow_copy_type".split()
)

_FACTORIES = frozenset("tensor as_tensor asarray from_numpy".split())


@dataclass
class Counts:
    """Numbers of transfers, their bytes, operators (without views) and waits."""

    to_device: int = 0
    to_host: int = 0
    transfers: int = 0
    operators: int = 0
    waits: int = 0


def _leaves(values):
    """Yield the tensors and arrays in (nested) arguments or results."""
    if isinstance(values, (torch.Tensor, np.ndarray)):
        yield values
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from _leaves(value)
    elif isinstance(values, dict):
        yield from _leaves(list(values.values()))


def _storage(tensor):
    """Return the storage of a tensor, also of one inside of a `vmap` or `grad`."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    if tensor.layout != torch.strided:
        tensor = tensor._values() if tensor.layout == torch.sparse_coo else tensor
    if tensor.layout != torch.strided:
        tensor = tensor.values()
    return tensor.untyped_storage()


def _is_cuda(device):
    return device is not None and torch.device(device).type == "cuda"


class StandInDevice(TorchFunctionMode):
    """Torch functions with one CUDA device; see `stand_in_device`."""

    # Weak references to the storages on the device, in all contexts, by address.
    _storages: ClassVar[dict] = {}

    def __init__(self):
        super().__init__()
        self.counts = Counts()

    @contextmanager
    def counted(self):
        """Yield `Counts` of what happens inside of the block."""
        before, self.counts = self.counts, Counts()
        try:
            yield self.counts
        finally:
            self.counts = before

    def holds(self, tensor):
        """Return whether a tensor is on the device."""
        with torch._C.DisableTorchFunction():
            storage = _storage(tensor)
        weak = self._storages.get(storage._cdata)
        return weak is not None and not weak.expired()

    def put(self, tensor):
        """Put the storage of a tensor on the device."""
        with torch._C.DisableTorchFunction():
            storage = _storage(tensor)
        if storage._cdata not in self._storages:
            if len(self._storages) > 4096:
                for key, weak in list(self._storages.items()):
                    if weak.expired():
                        del self._storages[key]
        # a weak reference keeps the address from being used again
        self._storages[storage._cdata] = StorageWeakRef(storage)
        return tensor

    def _sent(self, array):
        self.counts.to_device += array.nbytes
        self.counts.transfers += 1

    def _fetched(self, tensor):
        self.counts.to_host += tensor.nbytes
        self.counts.transfers += 1
        self.counts.waits += 1

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name == "_parse_to":
            return func(*args, **kwargs)
        kwargs.pop("pin_memory", None)
        arguments = [*_leaves(args), *_leaves(kwargs)]
        tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
        inside = [value for value in tensors if self.holds(value)]
        if name == "__get__":
            return self._attribute(func, args, inside)
        if name in ("to", "cpu", "cuda") and tensors:
            return self._moved(name, args, kwargs)
        if name in ("double", "float", "half", "type", "type_as") and inside:
            result = func(*args, **kwargs)
            self.counts.operators += 1
            return self.put(result) if isinstance(result, torch.Tensor) else result
        if name == "copy_":
            return self._copied(func, args, kwargs)
        if name in _FACTORIES:
            return self._made(func, args, kwargs, inside)
        if name in ("numpy", "__array__") and inside:
            raise TypeError(
                "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to "
                "copy the tensor to host memory first."
            )
        device = kwargs.get("device")
        if device is not None:
            kwargs["device"] = _CPU
        on_device = bool(inside) if device is None else _is_cuda(device)
        if inside:
            self._check(func, name, args, kwargs, tensors, inside)
        result = func(*args, **kwargs)
        if on_device:
            for leaf in _leaves(result):
                if isinstance(leaf, torch.Tensor) and not self.holds(leaf):
                    self.put(leaf)
        return result

    def _check(self, func, name, args, kwargs, tensors, inside):
        """Count an operator on tensors of the device; raise for tensors of the CPU."""
        if name in _VIEWS:
            return
        self.counts.operators += 1
        if name in _WAITING or (name == "where" and len(args) == 1):
            self.counts.waits += 1
            return
        others = [x for x in tensors if x.ndim and not any(x is y for y in inside)]
        if name in ("__getitem__", "__setitem__", "index_put", "index_put_"):
            if name != "__setitem__" or isinstance(args[2], torch.Tensor):
                self._count_index(args)  # a number is set without a wait
            else:
                before = self.counts.waits
                self._count_index(args)
                self.counts.waits = before
            if name == "__setitem__" and others and others[-1] is args[-1]:
                self._sent(args[-1])
            if not self.holds(args[0]):
                raise RuntimeError("indices on cuda:0 of a tensor on the CPU")
            return
        if any(func is split for split in (torch.vmap,)):
            return
        if others:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but got one on cuda:0 "
                f"and one of shape {tuple(others[0].shape)} on cpu, in {name}: "
                f"{resolve_name(func)}"
            )

    def _count_index(self, args):
        """Count the transfers and waits for indices."""
        if not self.holds(args[0]):
            return
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        for value in index:
            if isinstance(value, list):
                value = np.asarray(value)
            if isinstance(value, np.ndarray) or (
                isinstance(value, torch.Tensor) and not self.holds(value) and value.ndim
            ):
                self._sent(value)
            if isinstance(value, (np.ndarray, torch.Tensor)) and value.dtype in (
                np.bool_,
                torch.bool,
                torch.uint8,
            ):
                self.counts.waits += 1

    def _attribute(self, func, args, inside):
        name = resolve_name(func) or ""
        name = name.removesuffix(".__get__").rpartition(".")[2]
        if inside and name == "device":
            return DEVICE
        if inside and name == "is_cuda":
            return True
        if inside and name == "is_cpu":
            return False
        result = func(*args)
        if inside and isinstance(result, torch.Tensor) and not self.holds(result):
            self.put(result)
        return result

    def _moved(self, name, args, kwargs):
        tensor, *others = args
        inside = self.holds(tensor)
        if name == "cpu":
            device, dtype, copy, options = _CPU, None, False, {}
        elif name == "cuda":
            device, dtype, copy, options = DEVICE, None, False, {}
        else:
            copy = kwargs.pop("copy", False)
            if others and isinstance(others[0], torch.Tensor):
                device = DEVICE if self.holds(others[0]) else _CPU
                dtype, options = others[0].dtype, {}
            else:
                device, dtype, _, memory = torch._C._nn._parse_to(*others, **kwargs)
                options = {} if memory is None else {"memory_format": memory}
        to_device = inside if device is None else _is_cuda(device)
        dtype = tensor.dtype if dtype is None else dtype
        if to_device == inside:
            result = tensor.to(dtype=dtype, copy=copy, **options)
            if inside and result is not tensor:
                self.counts.operators += 1
                self.put(result)
            return result
        # a cast runs before a transfer to the host, and after one to the device
        result = tensor.to(dtype=dtype, copy=True, **options)
        if to_device:
            self._sent(tensor)
            return self.put(result)
        self._fetched(tensor)
        return result

    def _copied(self, func, args, kwargs):
        target, source = args[0], args[1] if len(args) > 1 else kwargs["src"]
        if self.holds(target) and not self.holds(source):
            self._sent(source)
        elif self.holds(source) and not self.holds(target):
            self._fetched(source)
        return func(*args, **kwargs)

    def _made(self, func, args, kwargs, inside):
        device = kwargs.pop("device", None)
        data = args[0] if args else kwargs.get("data")
        is_inside = isinstance(data, torch.Tensor) and self.holds(data)
        to_device = is_inside if device is None else _is_cuda(device)
        if is_inside or isinstance(data, torch.Tensor):
            options = {k: v for k, v in kwargs.items() if k in ("dtype", "copy")}
            target = DEVICE if to_device else _CPU
            return self._moved("to", (data,), {"device": target, **options})
        if inside:  # a list of tensors is read one by one
            self.counts.waits += len(inside)
        result = func(*args, **kwargs)
        if not to_device:
            return result
        if isinstance(data, np.ndarray) and np.may_share_memory(
            data, result.detach().numpy()
        ):
            result = result.clone()
        self._sent(result)
        return self.put(result)


class Stream:
    """A stream that is done at once."""

    def __init__(self, device=None):
        pass

    def record_event(self):
        """Return no event."""

    def wait_event(self, event):
        """Do not wait."""


@contextmanager
def stand_in_device():
    """Let torch have one CUDA device; yields the `StandInDevice`."""
    device = StandInDevice()
    generator = torch.Generator

    class Generator(generator):
        """A generator of the CPU; the device is ignored."""

        def __new__(cls, device=None):
            return generator.__new__(generator)

    cuda = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "is_initialized": lambda: False,
        "init": lambda: None,
        "synchronize": lambda *args: None,
        "mem_get_info": lambda *args: (_MEMORY, _MEMORY),
        "empty_cache": lambda: None,
        "Stream": Stream,
        "stream": lambda stream: nullcontext(),
        "current_stream": Stream,
    }
    with ExitStack() as stack:
        for name, function in cuda.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, function))
        stack.enter_context(mock.patch.object(torch, "Generator", Generator))
        stack.enter_context(
            mock.patch.object(torch.Tensor, "record_stream", lambda *args: None)
        )
        stack.enter_context(device)
        yield device
