"""Files of fitted estimators: a zip archive of skops with a note and a checksum.

The note, a member of the archive, has the versions of the libraries that wrote the
file. The seal is the comment of the archive: the SHA-256 of every byte before it. It
detects damage; it has no key, so that anyone can edit a file and seal it again. skops
can read the archive.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import hashlib
import importlib
import inspect
import io
import json
import os
import platform
import sys
import zlib
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

from skood.persistence._arrays import check_arrays
from skood.persistence._network import attach, detach, find_modules
from skood.utils._estimator import SkoodEstimator
from skood.utils._files import replacing
from skood.utils._optional import import_optional
from skood.utils._stored import is_marked
from skood.utils._untrusted import (
    BoundedZip,
    UntrustedFileError,
    check_unpacked_size,
    largest_content,
)
from skood.utils._warnings import warn
from skood.utils.discovery import SUBPACKAGES

# Plain Python that skops does not trust by default; indices of sparse arrays are
# checked, no dtype gets a state, and a partial calls trusted functions.
_OF_LIBRARIES = (
    "functools.partial",
    "numpy.dtype",
    "scipy.sparse._csr.csr_array",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.metrics._scorer._PassthroughScorer",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.utils._bunch.Bunch",
    "sklearn.utils._metadata_requests.MetadataRequest",
    "sklearn.utils._metadata_requests.MethodMetadataRequest",
    "sklearn.utils.validation.check_array",
)

# Of scikit-learn, compiled: indices are not checked, so that a forged file could crash
# Python or read memory out of bounds.
_COMPILED = (
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
    "sklearn.neighbors._ball_tree.BallTree",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.tree._tree.Tree",
)


def trusted_types(*, compiled=False):
    """List the names of types in files of skood's estimators.

    They are the classes of skood's estimators and of their fitted attributes, and a few
    of scikit-learn and SciPy, in addition to the types that skops trusts by default.
    Creating them runs no program, imports no module except skood's own and opens no
    file, for any arguments.

    Read more in the :ref:`User Guide <persistence>`.

    Parameters
    ----------
    compiled : bool, default=False
        Whether to include the compiled trees of scikit-learn, which are used by
        forests, histogram boosting, ``IsolationForest`` and ``LocalOutlierFactor``.
        They do not check the indices in a file: a forged file can crash Python or
        read memory. Trust them only in files from a trusted source.

    Returns
    -------
    names : list of str
        Sorted names with modules, for `trusted` of :func:`skops.io.load`.

    See Also
    --------
    load : Load a file with these types trusted.

    Examples
    --------
    >>> from skood.persistence import trusted_types
    >>> [name for name in trusted_types() if name.startswith("skood.detectors._kn")]
    ['skood.detectors._knn.KNN', 'skood.detectors._known_words.KnownWords']
    >>> set(trusted_types(compiled=True)) - set(trusted_types())
    {...'sklearn.tree._tree.Tree'...}
    """
    for name in (*SUBPACKAGES, "metrics", "persistence"):
        package = importlib.import_module(f"skood.{name}")
        for exported in package.__all__:
            getattr(package, exported)  # modules import on first use
    ours = [
        f"{module}.{name}"
        for module, content in list(sys.modules.items())
        if module.startswith("skood.")
        for name, thing in vars(content).items()
        if _may_be_stored(thing, module)
    ]
    return sorted([*ours, *_OF_LIBRARIES, *(_COMPILED if compiled else ())])


def _may_be_stored(thing, module):
    """Return whether a thing is an exported estimator, or marked, in its own module."""
    if getattr(thing, "__module__", None) != module:
        return False
    if is_marked(thing):
        return True
    if not inspect.isclass(thing) or inspect.isabstract(thing):
        return False
    package = sys.modules[".".join(module.split(".")[:2])]
    return issubclass(thing, SkoodEstimator) and thing.__name__ in package.__all__


def is_trusted(name):
    """Return whether a type is in ``trusted_types()``; imports only its own module."""
    module, _, last = name.rpartition(".")
    if name in _OF_LIBRARIES:
        return True
    if not module.startswith("skood.") or "__main__" in module:
        return False
    try:
        thing = getattr(importlib.import_module(module), last, None)
    except ImportError:
        return False
    return _may_be_stored(thing, module)


def names_of(trusted):
    """Return the full names of a list of types, functions or names, or raise."""
    if isinstance(trusted, (list, tuple, set, frozenset)):
        names = [
            t
            if isinstance(t, str)
            else f"{getattr(t, '__module__', None)}.{getattr(t, '__name__', None)}"
            for t in trusted
        ]
        if not any("None" in name.split(".") for name in names):
            return names
    raise TypeError(
        "trusted must be a list of types, functions or their full names such as "
        f"'my_package.my_module.MyNetwork', got {trusted!r}."
    )


def is_compiled(name):
    """Return whether a type is in ``trusted_types(compiled=True)`` only."""
    return name in _COMPILED


_NOTE = "skood.json"

# Format of the states of estimators. It is increased for incompatible changes; files of
# other formats are rejected. Version 0.1 wrote format 1.
FORMAT = 2

_MARK = b"skood-sha256:"
_HEX = 64  # digits of a SHA-256
_BLOCK_BYTES = 2**20

_UNKNOWN = "unknown"

# Number of components of a version that must be equal for compatible states.
_COMPARED = {"skood": 2, "scikit-learn": 2, "numpy": 1, "scipy": 1, "torch": 1}


def versions():
    """Return the versions of the libraries that write a file, by name."""
    import skood

    others = [name for name in (*_COMPARED, "skops") if name != "skood"]
    installed = {name: _version(name) for name in others}
    return {
        "skood": skood.__version__,
        **installed,
        "python": platform.python_version(),
    }


@lru_cache  # the metadata is a file to be found and parsed
def _version(name):
    """Return the version of an installed package, without importing it."""
    try:
        return version(name)
    except PackageNotFoundError:  # not installed, but on the path
        return _UNKNOWN


def _digest(stream, n_bytes):
    """Return the SHA-256 of the first bytes of a stream, in hexadecimal digits."""
    digest = hashlib.sha256()
    stream.seek(0)
    while n_bytes:
        block = stream.read(min(n_bytes, _BLOCK_BYTES))
        if not block:
            break
        digest.update(block)
        n_bytes -= len(block)
    return digest.hexdigest().encode()


def seal(stream, note):
    """Add a note, a dict for JSON, to an archive in a seekable file, and seal it."""
    note = {"format": FORMAT, "versions": versions(), **note}
    with ZipFile(stream, "a") as archive:
        archive.writestr(_NOTE, json.dumps(note, indent=2))
        archive.comment = _MARK + b"0" * _HEX
    n_bytes = stream.seek(0, 2) - _HEX
    digest = _digest(stream, n_bytes)
    stream.seek(n_bytes)
    stream.write(digest)


def check_seal(stream):
    """Raise a ValueError unless a seekable file has a seal that matches its content."""
    size = stream.seek(0, 2)
    n_bytes = max(0, size - _HEX)
    start = max(0, n_bytes - len(_MARK))
    stream.seek(start)
    if stream.read(len(_MARK)) != _MARK or start == 0:
        raise ValueError(
            "The file has no seal of skood.persistence.dump at its end: something else "
            f"wrote it, or its end is missing after {size} bytes. A file of "
            "skops.io.dump is loaded by skops.io.load(file, "
            "trusted=skood.persistence.trusted_types())."
        )
    expected = stream.read(_HEX)
    digest = _digest(stream, n_bytes)
    if digest != expected:
        digits = expected.decode("ascii", "replace")
        raise ValueError(
            "The file was changed or damaged after it was written: the SHA-256 of its "
            f"content is {digest.decode()}, and its seal has {digits}. "
            "Nothing of it was read. Take the file from where it was written again."
        )


def read_note(stream):
    """Return the note of a file with a valid seal, or raise a ValueError.

    It has the keys "format" and "versions", and the argument of `seal`.
    """
    stream.seek(0)
    try:
        with ZipFile(stream) as archive:
            note = json.loads(archive.read(_NOTE))
        for name in _COMPARED:
            _numbers(note["versions"][name], 1)
        if not isinstance(note["format"], int):
            raise TypeError(f"format is {note['format']!r}")
    except Exception as error:  # a file sealed by hand may contain anything
        raise unreadable(error, f"note {_NOTE}") from error
    return note


def unreadable(error, what="content"):
    """Return the error of a file with a valid seal that `dump` did not write."""
    return ValueError(
        f"The file has a seal, but its {what} cannot be read "
        f"({type(error).__name__}: {error}). skood.persistence.dump wrote no such "
        "file: do not trust it."
    )


def _numbers(text, count):
    """Return the first components of a version, as a string."""
    return tuple(text.split(".")[:count])


def check_note(note):
    """Compare the versions in the note of a file with the installed versions.

    Raises if the format is not supported; warns if the state may have another meaning.
    """
    here, there = versions(), note["versions"]
    if note["format"] != FORMAT:
        raise ValueError(
            f"The file was written by skood {there['skood']} in format "
            f"{note['format']}, and skood {here['skood']} loads format {FORMAT} only: "
            "classes or fitted attributes differ. Fit the estimator and dump it again, "
            f"or load the file with skood {there['skood']}."
        )
    other = [
        f"{name} {there[name]} (here {here[name]})"
        for name, count in _COMPARED.items()
        if _numbers(there[name], count) != _numbers(here[name], count)
        and _UNKNOWN not in (there[name], here[name])
    ]
    if other:
        warn(
            f"The file was written with {', '.join(other)}: fitted attributes may have "
            "another meaning. Compare predictions of some samples with those there, or "
            "fit the estimator again."
        )


_HEAD_BYTES = 2**14
_LEVEL = 3  # of zlib: twice as fast as its default, and 3 % larger

_skops = partial(import_optional, "skops.io", "skood.persistence", "persistence")


# --- writing ------------------------------------------------------------------------


def dump(estimator, file, *, network=True):
    """Write a fitted estimator to a file that is safe to load.

    The file is a zip archive in the format of skops: arrays, numbers, and names of
    types; no code. Members that shrink are compressed. The file contains the versions
    of the libraries that wrote it, and ends with the SHA-256 of all its bytes. An
    existing file is replaced after the new one is complete, with its permissions
    preserved.

    Read more in the :ref:`User Guide <persistence>`.

    Parameters
    ----------
    estimator : object
        An estimator of skood or scikit-learn, or a pipeline of them.

    file : str, path or binary file
        Path or binary file for the output.

    network : bool, default=True
        Whether to include the network of the estimator. False: only the state of the
        estimator, and the hashes of the network's weights (see
        :func:`skood.nn.weight_hash`); ``load(file, network=...)`` then requires the
        same network. A torch module of :func:`skood.nn.pretrained` can be saved only in
        this way, because it is code.

    Raises
    ------
    ImportError
        If skops is not installed.
    OSError
        If the file cannot be written, for instance on a full disk.
    TypeError
        If the estimator contains objects that cannot be stored: a torch module, or a
        type not supported by skops.
    ValueError
        If a function or class in it cannot be imported by name, or if
        ``network=False`` and it contains no network, or several.

    See Also
    --------
    load : Load the file.
    dumps : The same as bytes.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn.datasets import load_iris
    >>> from skood.detectors import KNN
    >>> from skood.persistence import dump, load
    >>> X, y = load_iris(return_X_y=True)
    >>> detector = KNN().fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dump(detector, Path(folder) / "knn.skood")
    ...     loaded = load(Path(folder) / "knn.skood")
    >>> detector.score_samples(X[:3]).round(2), loaded.score_samples(X[:3]).round(2)
    (array([-0.14, -0.17, -0.26]), array([-0.14, -0.17, -0.26]))
    """
    if isinstance(file, (str, os.PathLike)):
        with replacing(file) as stream:
            _write(estimator, stream, network)
    else:
        file.write(dumps(estimator, network=network))


def dumps(estimator, *, network=True):
    """Write a fitted estimator to bytes that are safe to load.

    Read more in the :ref:`User Guide <persistence>`.

    Parameters
    ----------
    estimator : object
        An estimator of skood or scikit-learn, or a pipeline of them.

    network : bool, default=True
        Whether to include the network of the estimator, see :func:`dump`.

    Returns
    -------
    data : bytes
        The content of the file that :func:`dump` writes.

    See Also
    --------
    loads : Load the bytes.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skood.detectors import SSD
    >>> from skood.persistence import dumps, loads
    >>> X, y = load_iris(return_X_y=True)
    >>> loads(dumps(SSD().fit(X))).score_samples(X).shape
    (150,)
    """
    stream = io.BytesIO()
    _write(estimator, stream, network)
    return stream.getvalue()


def _write(estimator, stream, network):
    skops_io, plain = _skops(), io.BytesIO()
    if not network:
        estimator = detach(estimator)
    elif paths := find_modules(estimator):
        raise TypeError(
            f"{type(estimator).__name__} contains a torch module at {paths[0]}. A "
            "module is code, and these files contain no code. Save the rest with "
            "dump(..., network=False) and the module's state_dict() by torch; or save "
            "all by pickle or joblib, whose files must come from a trusted source."
        )
    try:
        skops_io.dump(estimator, plain)
    except OSError:  # the disk is full: not an error of the estimator
        raise
    except Exception as error:
        raise TypeError(
            f"{type(estimator).__name__} contains objects that skops cannot save "
            f"({type(error).__name__}: {error}). Save it by pickle or joblib, whose "
            "files must come from a trusted source."
        ) from error
    with ZipFile(plain) as archive:
        nodes = [*_nodes(archive)]
        _check_names(estimator, nodes)
        n_bytes = _size_as_loaded(archive, nodes)
        _compress(archive, stream)
    n_plain, n_compressed = plain.seek(0, 2), stream.seek(0, 2)
    limit = largest_content(n_compressed)
    if limit < n_bytes <= largest_content(n_plain):  # load would refuse the file
        stream.seek(0)
        stream.write(plain.getbuffer())
    seal(stream, {"estimator": type(estimator).__name__})


def _compress(archive, stream):
    """Write an archive with its members compressed where it helps.

    The first bytes of a member decide: features in floating point do not shrink.
    """
    with ZipFile(stream, "w", compresslevel=_LEVEL) as new:
        for name in archive.namelist():
            content = archive.read(name)
            head = content[:_HEAD_BYTES]
            shrinks = len(content) < 4 * _HEAD_BYTES or (
                len(zlib.compress(head, 1)) < 0.8 * len(head)
            )
            new.writestr(name, content, ZIP_DEFLATED if shrinks else ZIP_STORED)


def _nodes(archive):
    """Yield the dicts of the schema of an archive."""
    todo = [json.loads(archive.read("schema.json"))]
    while todo:
        content = todo.pop()
        if isinstance(content, dict):
            yield content
            todo.extend(content.values())
        elif isinstance(content, list):
            todo.extend(content)


def _check_names(estimator, nodes):
    """Raise an error if a stored function or class cannot be imported again.

    skops stores a module and a name; the name of a lambda is not in its module.
    """
    lost = set()
    for node in nodes:
        module, name = node.get("__module__"), node.get("__class__", "")
        if module in sys.modules and not hasattr(sys.modules[module], name):
            lost.add(f"{module}.{name}")
    if lost:
        raise ValueError(
            f"{type(estimator).__name__} contains {sorted(lost)}, which cannot be "
            "imported by name: lambdas, and functions and classes that are defined in "
            "a function. Define them at the top of a module."
        )


# --- reading ------------------------------------------------------------------------


def load(file, *, network=None, trusted=(), max_bytes=None):
    """Load an estimator written by :func:`dump`, without running code of the file.

    The checksum of the file is verified first, then the types that it contains: each
    must be in :func:`trusted_types`, trusted by skops, or in `trusted`; otherwise no
    object is created. The checksum detects damage. It has no key and is not a
    signature: anyone can edit a file and write a matching checksum. Protection against
    code in a forged file is provided by the list of types. Arrays that compiled code of
    scikit-learn uses without checks are validated for consistency.

    Read more in the :ref:`User Guide <persistence>`.

    Parameters
    ----------
    file : str, path or binary file
        File written by :func:`dump`.

    network : object, default=None
        The network of the estimator, if the file was written with ``network=False``: a
        torch module, or a fitted classifier that has one. It must have the same weights
        as the original network.

    trusted : list of str, type or function, default=()
        Further types and functions to allow in the file, such as a custom module class;
        in a file from an untrusted source they may run any code.

    max_bytes : int, default=None
        Maximal size of the uncompressed content of the file in bytes. None: 100 times
        the size of the file, at least 64 MiB.

    Returns
    -------
    estimator : object
        The fitted estimator.

    Raises
    ------
    ImportError
        If skops is not installed.
    TypeError
        If `trusted` or `network` is of an invalid type.
    ValueError
        If the file is damaged, contains types that are not trusted, unpacks to more
        than `max_bytes`, contains inconsistent arrays, has an unsupported format, or if
        `network` is a different network.

    Warns
    -----
    SkoodWarning
        If the file was written with another minor version of skood or scikit-learn, or
        another major version of NumPy, SciPy or torch.

    See Also
    --------
    dump : Write a file; the example there loads it.
    """
    if isinstance(file, (str, os.PathLike)):
        with open(file, "rb") as stream:
            return _read(stream, network, trusted, max_bytes)
    options = {"network": network, "trusted": trusted, "max_bytes": max_bytes}
    return loads(file.read(), **options)


def loads(data, *, network=None, trusted=(), max_bytes=None):
    """Load an estimator from bytes, without running code in them.

    Read more in the :ref:`User Guide <persistence>`.

    Parameters
    ----------
    data : bytes
        Bytes returned by :func:`dumps`.

    network : object, default=None
        The network of the estimator, see :func:`load`.

    trusted : list of str, type or function, default=()
        Further types and functions to allow in the bytes, see :func:`load`.

    max_bytes : int, default=None
        Maximal size of the uncompressed content in bytes, see :func:`load`.

    Returns
    -------
    estimator : object
        The fitted estimator.

    See Also
    --------
    load : The same from a file, with a description of the checks.
    dumps : Write the bytes; the example there loads them.
    """
    return _read(io.BytesIO(data), network, trusted, max_bytes)


def _read(stream, network, trusted, max_bytes):
    skops_io = _skops()
    trusted = names_of(trusted)
    check_seal(stream)
    _check_members(stream, max_bytes)
    note = read_note(stream)
    check_note(note)
    names = _check_size(stream, max_bytes)
    stream.seek(0)
    try:
        trusted = [*trusted, *filter(is_trusted, names)]
        # all types are checked before any object is created
        estimator = skops_io.load(stream, trusted=trusted)
    except Exception as error:
        _check_types(skops_io, stream, trusted)
        raise ValueError(
            f"The estimator, {note.get('estimator')}, cannot be created from the "
            f"content of the file ({type(error).__name__}: {error}). It was written by "
            f"skood {note['versions']['skood']} with {_python(note)}: load it there, "
            "or fit the estimator again."
        ) from error
    check_arrays(estimator)
    return attach(estimator, network)


def _check_members(stream, max_bytes):
    """Raise an error if a member does not unpack to its stated size, or all to more.

    skops reads them by `ZipFile.read`, which ignores the stated size while inflating.
    """
    try:
        with BoundedZip(stream, max_bytes, name="The file") as archive:
            for info in archive.infolist():
                if info.compress_type != ZIP_STORED:
                    archive.read(info)
    except UntrustedFileError:
        raise
    except Exception as error:
        raise unreadable(error) from error


def _check_size(stream, max_bytes):
    """Raise an error if the file would take much more memory than its size.

    Return the names of the types and functions in the file.
    """
    try:
        with ZipFile(stream) as archive:
            nodes = [*_nodes(archive)]
            n_bytes = _size_as_loaded(archive, nodes)
    except Exception as error:
        raise unreadable(error) from error
    packed = stream.seek(0, 2)
    check_unpacked_size(n_bytes, packed, max_bytes, name="The file")
    return {f"{node.get('__module__')}.{node.get('__class__')}" for node in nodes}


def _size_as_loaded(archive, nodes):
    """Return the size of all arrays, per reference, with sparse ones uncompressed."""
    n_bytes, seen = 0, set()
    for node in nodes:
        name, key = node.get("file"), node.get("__id__")
        if not isinstance(name, str) or (name, key) in seen:
            continue
        n_bytes += archive.getinfo(name).file_size
        with archive.open(name) as member:
            is_archive = member.read(2) == b"PK"  # as NumPy decides, not by its name
        if is_archive:
            with ZipFile(io.BytesIO(archive.read(name))) as inner:
                n_bytes += sum(info.file_size for info in inner.infolist())
        if key and type(key) is int:  # others are loaded once per reference
            seen.add((name, key))
    return n_bytes


def _python(note):
    names = ("python", "scikit-learn", "skops")
    return ", ".join(f"{name} {note['versions'].get(name)}" for name in names)


def _check_types(skops_io, stream, trusted):
    """Raise an error if a file contains types that are not trusted."""
    stream.seek(0)
    try:
        unknown = skops_io.get_untrusted_types(file=stream)
    except Exception as error:  # a file sealed by hand may contain anything
        raise unreadable(error) from error
    refused = sorted(set(unknown) - set(trusted))
    if not refused:
        return
    message = (
        f"The file contains types that are not trusted: {refused}. No object was "
        "created. If you know who wrote the file, and these types are yours or you "
        f"have read their code, load it with trusted={refused}."
    )
    if compiled := [name for name in refused if is_compiled(name)]:
        message += (
            f" Of these, {compiled} are compiled trees of scikit-learn, which do not "
            "check the indices that they are given: in a forged file they can crash "
            "Python or read its memory. trusted_types(compiled=True) lists all of them."
        )
    raise ValueError(message)
