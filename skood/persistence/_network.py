"""Estimators without the network that they read."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import json
import sys
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator

from skood.utils._metaestimators import unwrapped

__all__ = ["DetachedNetwork", "attach", "detach", "find_modules"]


class DetachedNetwork:
    """What is in a file in place of a network: how to know it again.

    Parameters
    ----------
    kind : {"module", "classifier"}
        Whether a torch module was here, or a classifier that trained one.

    name : str
        The class of what was here.

    tensors : str
        What `weight_table` of its weights returned, as JSON: a list in a file of skops
        takes half a page for each of its items.
    """

    def __init__(self, kind, name, tensors):
        self.kind = kind
        self.name = name
        self.tensors = tensors


def _is_module(value):
    torch = sys.modules.get("torch")  # without torch there are no modules
    return torch is not None and isinstance(value, torch.nn.Module)


def _has_own_network(value):
    """Tell whether a classifier has built its network itself.

    Such a classifier takes the place of its network: what it needs to run it, such as
    its optimizer, is its own. `skood.nn.pretrained` only holds one that it was given.
    """
    if not isinstance(value, BaseEstimator) or isinstance(value, FrozenEstimator):
        return False
    own = vars(value)
    given = _is_module(own.get("module")) and "module_" not in own
    return not given and _is_module(getattr(value, "module_", None))


# What has no parts that are looked into.
_LEAVES = (
    str,
    bytes,
    int,
    float,
    np.ndarray,
    np.generic,
    type,
    FunctionType,
    BuiltinFunctionType,
    MethodType,
    ModuleType,
)


class _Swap:
    """Copies an estimator where `swap` puts something else in place of a part.

    What has no such part is not copied but shared, and nothing is written into.
    `swap` is called with a value and its path, and returns what takes its place.
    """

    def __init__(self, swap):
        self.swap = swap
        self.done: dict = {}  # by id: the value, which is kept alive, and its copy

    def __call__(self, value, path):
        if value is None or isinstance(value, _LEAVES):
            return value
        if id(value) not in self.done:
            self.done[id(value)] = value, value  # ends cycles
            new = self.swap(value, path)
            if new is value:
                new = self._copied(value, path)
            self.done[id(value)] = value, new
        return self.done[id(value)][1]

    def _copied(self, value, path):
        if isinstance(value, dict):
            items = {k: self(v, f"{path}[{k!r}]") for k, v in value.items()}
            if all(items[k] is v for k, v in value.items()):
                return value
            new = copy.copy(value)
            new.update(items)
            return new
        if isinstance(value, (list, tuple)):
            parts = [self(v, f"{path}[{i}]") for i, v in enumerate(value)]
            if all(new is old for new, old in zip(parts, value, strict=True)):
                return value
            named = hasattr(value, "_fields")
            return type(value)(*parts) if named else type(value)(parts)
        if _is_module(value) or not hasattr(value, "__dict__"):
            return value
        own = vars(value)
        attributes = {k: self(v, f"{path}.{k}") for k, v in own.items()}
        if all(attributes[k] is v for k, v in own.items()):
            return value
        new = object.__new__(type(value))
        vars(new).update(attributes)
        return new


def find_modules(estimator):
    """Where an estimator holds torch modules that it has not built itself.

    Parameters
    ----------
    estimator : object
        The estimator.

    Returns
    -------
    paths : list of str
        Where they are.
    """
    found = []

    def note(value, path):
        if _is_module(value):
            found.append(path)
            return value
        return None if _has_own_network(value) else value  # not looked into

    _Swap(note)(estimator, type(estimator).__name__)
    return found


def detach(estimator):
    """Copy an estimator, with a note in place of the network that it reads.

    Parameters
    ----------
    estimator : object
        It stays as it is.

    Returns
    -------
    estimator : object
        A copy; it shares what it learned.

    Raises
    ------
    ValueError
        If it reads no network or several, or is one itself.
    """
    from skood.nn._weight_hash import weight_table

    found: dict = {}

    def swap(value, path):
        is_module = _is_module(value)
        if not is_module and not _has_own_network(value):
            return value
        if value is estimator:
            raise ValueError(
                f"{type(estimator).__name__} is the network itself: without it nothing "
                "is left to save. Save it with network=True, or by torch."
            )
        module = value if is_module else value.module_
        found[path] = new = DetachedNetwork(
            "module" if is_module else "classifier",
            type(value).__name__,
            json.dumps(weight_table(module)),
        )
        return new

    new = _Swap(swap)(estimator, type(estimator).__name__)
    if len(found) != 1:
        how_many = f"{len(found)} networks, at {list(found)}" if found else "no network"
        raise ValueError(
            "network=False saves an estimator without the one torch network that it "
            f"reads, and this {type(estimator).__name__} reads {how_many}. Save it "
            "with network=True."
        )
    return new


def attach(estimator, network):
    """Put a network back where `detach` left a note.

    Parameters
    ----------
    estimator : object
        What was loaded; it may be written into.

    network : object or None
        What the user gave.

    Returns
    -------
    estimator : object
        The estimator, complete.

    Raises
    ------
    TypeError
        If `network` is of another kind than what was there.
    ValueError
        If there is a note and no network, or the other way round, or the network is
        another one.
    """
    found = []

    def swap(value, path):
        if not isinstance(value, DetachedNetwork):
            return value
        found.append(path)
        if network is None:
            raise ValueError(
                f"The file was written with network=False: it has no {value.name}. "
                f"Pass the {value.kind} that was there, as load(file, network=...)."
            )
        return _matching(value, network)

    new = _Swap(swap)(estimator, type(estimator).__name__)
    if network is not None and not found:
        raise ValueError(
            "network was given, but the file was written with its network, or the "
            "estimator has none. Leave network out."
        )
    return new


def _matching(note, network):
    """What takes the place of a note, of what the user gave."""
    from skood.nn._weight_hash import first_difference, weight_table

    given = network if _is_module(network) else unwrapped(network)
    held = (given, getattr(given, "module", None), getattr(given, "module_", None))
    module = next((one for one in held if _is_module(one)), None)
    if module is None:
        raise TypeError(
            "network must be a torch module, or a fitted classifier that has one, got "
            f"{network!r}."
        )
    if note.kind == "classifier" and not _has_own_network(given):
        raise TypeError(
            f"The file was written with a fitted {note.name}, and network is a "
            f"{type(network).__name__}: pass the fitted {note.name}."
        )
    difference = first_difference(json.loads(note.tensors), weight_table(module))
    if difference:
        raise ValueError(
            f"network is not the {note.name} that the file was written with: "
            f"{difference}. Pass that network, with the weights that it had, or fit "
            "the estimator again on this one."
        )
    return module if note.kind == "module" else given
