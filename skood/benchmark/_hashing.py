"""SHA-256 of the content of objects."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import functools
import hashlib
import platform
import sys
import types
from importlib.metadata import version
from pathlib import Path

import numpy as np
import scipy
import sklearn
from scipy.sparse import issparse
from sklearn.frozen import FrozenEstimator

from skood.utils._batches import is_lazy, loaded_blocks
from skood.utils._torch import is_tensor, to_numpy

_PLAIN = (type(None), bool, int, float, complex, str, bytes)

# Libraries whose code is determined by their version.
_LIBRARIES = {"builtins", "copyreg", "numpy", "scipy", "sklearn", "skorch", "torch"}

_CHUNK_BYTES = 16 * 2**20

# Attributes of an estimator that are timings, not results.
_NOT_CONTENT = ("history", "history_")


def content_hash(*things):
    """Return the SHA-256 of the content of objects.

    Arrays and tensors are hashed by values, dtype and shape; estimators by class and
    parameters; the content of a :class:`~sklearn.frozen.FrozenEstimator` by all its
    attributes, including the weights of a network; functions, and classes of no
    library, by their code.

    Parameters
    ----------
    *things : object
        Inputs of a computation.

    Returns
    -------
    hash : str
        64 hexadecimal digits.

    Raises
    ------
    TypeError
        If the content of an object cannot be determined, such as of an open file.

    See Also
    --------
    code_version : The code, another input of a computation.
    Journal : Records of computations by such keys.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.benchmark import content_hash
    >>> from skood.detectors import KNN
    >>> X = np.eye(3)
    >>> content_hash(KNN(), X) == content_hash(KNN(n_neighbors=5), X.copy())
    True
    >>> content_hash(KNN(), X) == content_hash(KNN(n_neighbors=6), X)
    False
    """
    return _Digests().of(list(things)).hex()


def versions():
    """Return the versions of Python and of the libraries that affect results."""
    import skood

    libraries = {"skood": skood, "numpy": np, "scipy": scipy, "scikit-learn": sklearn}
    numbers = {name: str(library.__version__) for name, library in libraries.items()}
    # not imported, which takes seconds
    numbers |= {name: version(name) for name in ("torch", "skorch")}
    return {**numbers, "python": platform.python_version()}


@functools.cache
def _hash_of_sources(folder):
    """Return the SHA-256 of the Python files in a folder: names and content."""
    files = sorted(folder.rglob("*.py"))
    names = (file.relative_to(folder).as_posix() for file in files)
    contents = (file.read_bytes() for file in files)
    return _join("sources", *names, *contents).hex()


def code_version():
    """Return versions of skood and of the libraries that affect its results.

    Returns
    -------
    versions : dict of str to str
        Versions of Python, skood, NumPy, SciPy, scikit-learn, torch and skorch. A
        development version of skood changes without a new number, and has the hash of
        its files as "sources".

    See Also
    --------
    content_hash : Hash of this and of other inputs.
    skood.show_versions : Print versions for a report of a bug.

    Examples
    --------
    >>> from skood.benchmark import code_version
    >>> sorted(code_version())[:3]
    ['numpy', 'python', 'scikit-learn']
    """
    import skood

    numbers = versions()
    if "dev" in numbers["skood"]:
        numbers["sources"] = _hash_of_sources(Path(skood.__file__).parent)
    return numbers


def _join(kind, *items):
    """Return the digest of a kind and of parts, with unambiguous boundaries."""
    digest = hashlib.sha256()
    for item in (kind, *items):
        item = item.encode() if isinstance(item, str) else item
        digest.update(len(item).to_bytes(8, "little"))
        digest.update(item)
    return digest.digest()


def _is_library(thing):
    module = getattr(thing, "__module__", None) or "builtins"
    return module.split(".")[0] in {*_LIBRARIES, "skood"}


class _Digests:
    """Digests of nested objects, each computed once."""

    def __init__(self):
        self._known = {}  # (id, is fitted): (object, digest)
        self._within = []  # ids of objects in progress
        self._is_fitted = False

    def of(self, thing):
        """Return the digest of anything."""
        if type(thing) in _PLAIN:
            return _join(type(thing).__name__, repr(thing))
        if isinstance(thing, np.ndarray | np.generic):
            return self._array(np.asarray(thing))
        if is_tensor(thing):
            return self._tensor(thing)
        if isinstance(thing, type):
            return self._class(thing)
        if isinstance(thing, types.ModuleType | np.ufunc):
            return _join(type(thing).__name__, thing.__name__)
        if isinstance(thing, types.CodeType):
            return self._code(thing)
        return self._nested(thing)

    def _nested(self, thing):
        """Return the digest of an object that may contain itself."""
        key = id(thing), self._is_fitted
        if key in self._known:
            return self._known[key][1]
        if key in self._within:
            return _join("cycle", str(len(self._within) - self._within.index(key)))
        self._within.append(key)
        try:
            if isinstance(thing, dict | list | tuple | set | frozenset):
                return self._container(thing)
            digest = self._object(thing)
        finally:
            self._within.pop()
        self._known[key] = thing, digest  # a reference keeps its id unique
        return digest

    def _container(self, thing):
        kind = self.of(type(thing))
        if isinstance(thing, dict):
            items = sorted((self.of(key), self.of(thing[key])) for key in thing)
            return _join("dict", kind, *(digest for item in items for digest in item))
        digests = [self.of(entry) for entry in thing]
        if isinstance(thing, set | frozenset):
            digests.sort()
        return _join("sequence", kind, *digests)

    def _object(self, thing):
        if isinstance(thing, types.FunctionType):
            return self._function(thing)
        if is_lazy(thing):
            return self._lazy_samples(thing)
        if issparse(thing):
            X = thing.tocsr().sorted_indices()
            parts = thing.format, X.shape, X.data, X.indices, X.indptr
            return _join("sparse", *map(self.of, parts))
        if hasattr(thing, "iloc"):
            if getattr(thing, "ndim", 1) == 1:
                return _join("series", self.of(thing.name), self.of(thing.to_numpy()))
            columns = [(name, thing[name].to_numpy()) for name in thing.columns]
            return _join("frame", self.of(columns))
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(thing, torch.nn.Module):
            return self._module(thing)
        if hasattr(thing, "get_params"):
            return self._estimator(thing)
        return self._reduced(thing)

    def _array(self, array):
        kind = str(array.dtype), repr(array.shape)
        if array.dtype.names:  # bytes between the fields are undefined
            fields = [self.of(array[name]) for name in array.dtype.names]
            return _join("fields", *kind, *fields)
        if array.dtype.hasobject:
            return _join("objects", *kind, *(self.of(v) for v in array.ravel()))
        digest = hashlib.sha256(_join("array", *kind))
        blocks = array if array.ndim else array[None]
        step = max(1, _CHUNK_BYTES // max(1, blocks[:1].nbytes))
        for start in range(0, len(blocks), step):
            digest.update(blocks[start : start + step].tobytes())
        return digest.digest()

    def _lazy_samples(self, X):
        """Return the digest of samples that are loaded batch by batch."""
        digest, n_samples, kind = hashlib.sha256(b"rows"), 0, None
        for block in loaded_blocks(X):
            block = to_numpy(block)
            if kind != (str(block.dtype), repr(block.shape[1:])):
                kind = str(block.dtype), repr(block.shape[1:])
                digest.update(_join("kind", *kind))
            digest.update(block.tobytes())
            n_samples += len(block)
        return _join("rows", str(n_samples), digest.digest())

    def _tensor(self, tensor):
        import torch

        kind = str(tensor.dtype), repr(tuple(tensor.shape))
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        return _join("tensor", *kind, self._array(flat.view(torch.uint8).numpy()))

    def _class(self, cls):
        parts = [cls.__module__, cls.__qualname__]
        for base in cls.__mro__:
            if not _is_library(base):
                members = vars(base).values()
                members = [getattr(member, "__func__", member) for member in members]
                code = [f for f in members if isinstance(f, types.FunctionType)]
                parts += [base.__qualname__, self.of(code)]
        return _join("class", *parts)

    def _function(self, function):
        name = function.__module__ or "", function.__qualname__
        if _is_library(function) and function.__closure__ is None:
            return _join("function", *name)
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        variables = function.__defaults__, function.__kwdefaults__, cells
        return _join(
            "function", *name, self._code(function.__code__), self.of(variables)
        )

    def _code(self, code):
        return _join("code", code.co_code, self.of([code.co_names, code.co_consts]))

    def _module(self, module):
        """Return the digest of a torch module: weights, buffers, settings and parts."""
        tensors = {**module._parameters, **module._buffers}
        settings = {
            name: value
            for name, value in vars(module).items()
            if not name.startswith("_") and name != "training"
        }
        parts = type(module), tensors, settings, dict(module._modules)
        return _join("network", *map(self.of, parts))

    def _estimator(self, estimator):
        if isinstance(estimator, FrozenEstimator):
            was_fitted, self._is_fitted = self._is_fitted, True
            try:
                return _join("frozen", self.of(estimator.estimator))
            finally:
                self._is_fitted = was_fitted
        if self._is_fitted:
            return self._reduced(estimator)
        params = estimator.get_params(deep=False)
        return _join("estimator", self.of(type(estimator)), self.of(params))

    def _reduced(self, thing):
        """Return the digest of the pickle representation of an object."""
        try:
            reduced = thing.__reduce_ex__(4)
        except Exception as error:
            raise TypeError(
                f"The content of a {type(thing).__qualname__} is unknown: {error}. "
                "Leave it out of what is compared, or pass resume=None and cache=None."
            ) from error
        if isinstance(reduced, str):
            return _join("global", self.of(type(thing)), reduced)
        make, args, state, *items = [*reduced, None] if len(reduced) == 2 else reduced
        if isinstance(state, dict):
            state = {k: v for k, v in state.items() if k not in _NOT_CONTENT}
        items = [None if item is None else list(item) for item in items[:2]]
        return _join("object", *map(self.of, (type(thing), make, args, state, items)))
