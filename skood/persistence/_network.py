"""Removal of the network from an estimator, and its reattachment."""

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
from skood.utils._stored import stored


@stored
class DetachedNetwork:
    """Placeholder in a file that identifies a network.

    ``kind`` is "module" or "classifier", ``name`` its class, ``tensors`` the result of
    `weight_table` as JSON: a list in a file of skops takes half a page per item.
    """

    def __init__(self, kind, name, tensors):
        self.kind = kind
        self.name = name
        self.tensors = tensors

    def __setstate__(self, state):
        self.__init__(**state)  # type: ignore[misc]
        for name, shape, _, _ in json.loads(self.tensors):  # forged files raise
            hash((name, tuple(shape)))


def _is_module(value):
    torch = sys.modules.get("torch")  # not imported: no modules
    return torch is not None and isinstance(value, torch.nn.Module)


def _has_built_network(value):
    """Return whether a classifier has built its network, unlike a pretrained one.

    Its placeholder replaces the network only: the other state, such as the optimizer,
    is its own.
    """
    if not isinstance(value, BaseEstimator) or isinstance(value, FrozenEstimator):
        return False
    attributes = vars(value)
    is_pretrained = _is_module(attributes.get("module")) and "module_" not in attributes
    return not is_pretrained and _is_module(getattr(value, "module_", None))


# Types without parts to search.
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


class _Replacement:
    """Copy of an estimator in which ``swap(value, path)`` replaces parts.

    Objects without such a part are shared, not copied, and nothing is modified.
    """

    def __init__(self, swap):
        self.swap = swap
        self.done: dict = {}  # id: (value, copy); references keep ids unique

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
        before = vars(value)
        attributes = {k: self(v, f"{path}.{k}") for k, v in before.items()}
        if all(attributes[k] is v for k, v in before.items()):
            return value
        new = object.__new__(type(value))
        vars(new).update(attributes)
        return new


def find_modules(estimator):
    """Return paths of torch modules that an estimator has not built itself."""
    paths = []

    def note(value, path):
        if _is_module(value):
            paths.append(path)
            return value
        return None if _has_built_network(value) else value  # not searched

    _Replacement(note)(estimator, type(estimator).__name__)
    return paths


def detach(estimator):
    """Return a copy of an estimator with a placeholder for its network.

    Raises a ValueError if it has no network or several, or is a network itself.
    """
    from skood.nn._weight_hash import weight_table

    removed: dict = {}

    def swap(value, path):
        is_module = _is_module(value)
        if not is_module and not _has_built_network(value):
            return value
        if value is estimator:
            raise ValueError(
                f"{type(estimator).__name__} is the network itself: without it nothing "
                "is left to save. Save it with network=True, or by torch."
            )
        module = value if is_module else value.module_
        removed[path] = new = DetachedNetwork(
            "module" if is_module else "classifier",
            type(value).__name__,
            json.dumps(weight_table(module)),
        )
        return new

    new = _Replacement(swap)(estimator, type(estimator).__name__)
    if len(removed) != 1:
        how_many = "no network"
        if removed:
            how_many = f"{len(removed)} networks, at {list(removed)}"
        raise ValueError(
            "network=False saves an estimator without the one torch network that it "
            f"uses, and this {type(estimator).__name__} uses {how_many}. Save it with "
            "network=True."
        )
    return new


def attach(estimator, network):
    """Replace the placeholder of `detach` in a loaded estimator; return it.

    Raises a TypeError for a network of another kind, a ValueError for another network,
    a missing or a needless one.
    """
    paths = []

    def swap(value, path):
        if not isinstance(value, DetachedNetwork):
            return value
        paths.append(path)
        if network is None:
            raise ValueError(
                f"The file was written with network=False: it has no {value.name}. "
                f"Pass the {value.kind} that was there, as load(file, network=...)."
            )
        return _matching(value, network)

    new = _Replacement(swap)(estimator, type(estimator).__name__)
    if network is not None and not paths:
        raise ValueError(
            "network was given, but the file was written with its network, or the "
            "estimator has none. Leave network out."
        )
    return new


def _matching(note, network):
    """Return the replacement of a placeholder from the given network."""
    from skood.nn._weight_hash import first_difference, weight_table

    classifier = network if _is_module(network) else unwrapped(network)
    held = (
        classifier,
        getattr(classifier, "module", None),
        getattr(classifier, "module_", None),
    )
    module = next((candidate for candidate in held if _is_module(candidate)), None)
    if module is None:
        raise TypeError(
            "network must be a torch module, or a fitted classifier that has one, got "
            f"{network!r}."
        )
    if note.kind == "classifier" and not _has_built_network(classifier):
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
    return module if note.kind == "module" else classifier
