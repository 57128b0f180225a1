"""Images stored as arrays: CIFAR, SVHN, tiny images, the IDX format, and noise."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import io
import pickle
import pickletools
import reprlib
from dataclasses import dataclass, field

import numpy as np

from benchmarks.reproduce._file_trees import FileTree, find_tree
from benchmarks.reproduce._mat_files import read_mat
from skood.datasets._idx_files import choose_pairs, load_idx_images
from skood.utils._untrusted import decoding


@dataclass
class Request:
    """The arguments of `load_images` that readers need."""

    subset: str
    labels: str
    max_samples: int | None
    max_bytes: int | None

    @property
    def parts(self):
        """The parts of the data set."""
        return ("train", "test") if self.subset == "all" else (self.subset,)


@dataclass
class FoundImages:
    """Images of a data set before they are decoded and resized.

    Either `images` (n, c, h, w) is given, or the names of n image files in `tree`.
    """

    target: np.ndarray
    target_names: list
    filenames: list
    images: np.ndarray | None = None
    tree: FileTree | None = None
    names: list = field(default_factory=list)
    gray: bool = False
    inverted: bool = False


_FIELDS = {
    (10, "class"): b"labels",
    (100, "class"): b"fine_labels",
    (100, "coarse"): b"coarse_labels",
}
_LARGEST_BATCH = 160 * 10**6  # the training part of CIFAR-100 has 155 MB

# What a pickled batch of CIFAR consists of. Stand-ins take the place of functions.
_NAMES = {
    ("_codecs", "encode"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.numeric", "_frombuffer"),
    ("numpy._core.numeric", "_frombuffer"),
}
_OPCODES = set(
    """PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1
    STRING BINSTRING SHORT_BINSTRING UNICODE SHORT_BINUNICODE BINUNICODE BINUNICODE8
    SHORT_BINBYTES BINBYTES BINBYTES8 BYTEARRAY8 EMPTY_LIST LIST APPEND APPENDS
    EMPTY_DICT DICT SETITEM SETITEMS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3
    GET BINGET LONG_BINGET PUT BINPUT LONG_BINPUT MEMOIZE GLOBAL STACK_GLOBAL
    REDUCE BUILD""".split()
)
_MAX_ENTRIES = 20
_MAX_OPCODES = 10**6  # CIFAR-100 needs 400,000
_MAX_TUPLES = 100  # an array needs four; deeply nested ones overflow the stack
_INTEGERS = {"i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"}


class _StandIn:
    """Inert record of a function of `_NAMES`, its arguments, and a state."""

    def __init__(self, name, arguments=()):
        self.name, self.arguments = name, arguments
        self.state: tuple = ()

    def __call__(self, *arguments):
        return _StandIn(self.name, arguments)

    def __setstate__(self, state):
        self.state = state


class _InertUnpickler(pickle.Unpickler):
    """Unpickler of lists, numbers, bytes, strings and stand-ins; it calls nothing."""

    def find_class(self, module, name):
        if (module, name) not in _NAMES:
            raise pickle.UnpicklingError(f"it holds a {module}.{name}")
        return _StandIn(name)


def _unpickled(content):
    """Return a pickle with stand-ins for its arrays, or raise some error."""
    n_tuples = 0
    for i, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        if opcode.name not in _OPCODES:
            raise pickle.UnpicklingError(f"it holds a {opcode.name}")
        n_tuples += "TUPLE" in opcode.name
        is_far = (
            "PUT" in opcode.name and (argument or 0) > i
        )  # the memo has this length
        if is_far or i > _MAX_OPCODES or n_tuples > _MAX_TUPLES:
            raise pickle.UnpicklingError("it is longer than batches are")
    return _InertUnpickler(io.BytesIO(content), encoding="bytes").load()


def _decoded(value):
    """Return the bytes or the array of integers for a stand-in, else the value."""
    if not isinstance(value, _StandIn):
        return value
    if value.name == "encode":
        text, encoding = value.arguments
        if encoding not in ("latin1", b"latin1"):
            raise ValueError(f"it is encoded in {encoding!r}")
        return text.encode("latin-1")
    if value.name == "_reconstruct":
        _, shape, dtype, is_fortran, raw = value.state
    elif value.name == "_frombuffer":
        raw, dtype, shape, order = value.arguments
        is_fortran = order == "F"
    else:
        raise ValueError(f"it holds a {value.name}")
    code, byte_order = _text(dtype.arguments[0]), _text(dtype.state[1])
    if dtype.name != "dtype" or code not in _INTEGERS or byte_order not in "<>|":
        raise ValueError(f"it holds an array of {code!r}")
    array = np.frombuffer(_decoded(raw), np.dtype(byte_order + code))
    return array.reshape(shape, order="F" if is_fortran else "C")


def _text(value):
    """Return a short string that Python 2 or 3 wrote."""
    value = _decoded(value) if isinstance(value, _StandIn) else value
    return value.decode("latin-1") if isinstance(value, bytes) else value


def find_cifar(root, request, *, n_classes):
    """Return the batches, or the archive of them."""
    tree, files = _cifar_batches(root, request, n_classes)
    if not tree.path.is_dir():
        return [tree.path]
    for name in files:
        if name not in tree.names:
            raise FileNotFoundError(f"{tree} has no file {name}.")
    return [tree.path / name for name in files]


def _cifar_batches(root, request, n_classes):
    """Return the tree of CIFAR, and the names of the batches of the parts."""
    if n_classes == 10:
        folders = ("cifar-10-batches-py", "cifar-10-batches-bin")
        archives = ("cifar-10-python", "cifar-10-binary")
        stems = {"train": [f"data_batch_{i}" for i in range(1, 6)]}
        stems["test"] = ["test_batch"]
    else:
        folders = ("cifar-100-python", "cifar-100-binary")
        archives = folders
        stems = {"train": ["train"], "test": ["test"]}
    tree = _find_cifar(root, folders, archives, request.max_bytes)
    if not tree.path.is_dir():
        binary = tree.path.name.startswith((archives[1], folders[1]))
    else:
        binary = any(name.endswith(".bin") for name in tree.names)
    ending = ".bin" if binary else ""
    return tree, [stem + ending for part in request.parts for stem in stems[part]]


def read_cifar(root, request, *, n_classes):
    """Read CIFAR-10 or CIFAR-100, pickled by Python or in the binary version."""
    labels = request.labels
    tree, files = _cifar_batches(root, request, n_classes)
    binary = files[0].endswith(".bin")
    read = _read_binary_batch if binary else _read_pickled_batch
    batches = [
        read(tree.read_file(file, _LARGEST_BATCH), f"{tree}/{file}", n_classes, labels)
        for file in files
    ]
    images, target = (np.concatenate(part) for part in zip(*batches, strict=True))
    n_labels = 20 if labels == "coarse" else n_classes
    _check_labels(target, n_labels, tree)
    return FoundImages(
        target=target,
        target_names=list(range(n_labels)),
        filenames=[f"{tree}/{file}" for file in files],
        images=images.reshape(-1, 3, 32, 32),
    )


def _find_cifar(root, folders, archives, max_bytes):
    """Return the tree of a CIFAR folder, or of the archive in which it is published."""
    for archive, folder in zip(archives, folders, strict=True):
        path = root / f"{archive}.tar.gz"
        if path.is_file():
            return FileTree(path, folder, max_bytes)
    return find_tree(root, folders, max_bytes=max_bytes)


def _read_pickled_batch(content, path, n_classes, labels):
    """Return pixels (n, 3072) and labels of a batch pickled by Python."""
    key = _FIELDS[n_classes, labels]
    with decoding(path, f"a batch of CIFAR-{n_classes} pickled by Python"):
        pickled = _unpickled(content)
        if type(pickled) is not dict or len(pickled) > _MAX_ENTRIES:
            raise ValueError("it holds no dict of a few entries")
        batch = {_text(name).encode(): value for name, value in pickled.items()}
        if missing := {b"data", key} - {*batch}:
            raise ValueError(
                f"it has no entry {min(missing)!r}, only {reprlib.repr([*batch])}"
            )
        images, target = _decoded(batch[b"data"]), _decoded(batch[key])
        if isinstance(target, list):  # flat: nested lists could repeat each other
            if not all(type(label) is int for label in target):
                raise ValueError("a label is no integer")
            target = np.array(target, dtype=np.int64)
        if not all(isinstance(array, np.ndarray) for array in (images, target)):
            raise ValueError("its entries are no arrays")
    if images.dtype != np.uint8 or images.ndim != 2 or images.shape[1] != 3072:
        raise ValueError(
            f"{path} must have images of 3072 bytes, got {images.dtype} of shape "
            f"{images.shape}."
        )
    if target.shape != (len(images),):
        raise ValueError(f"{path} has {len(images)} images and {target.size} labels.")
    return images, target.astype(np.int64)


def _read_binary_batch(content, path, n_classes, labels):
    """Return pixels (n, 3072) and labels of a batch of the binary version."""
    n_labels = 1 if n_classes == 10 else 2  # coarse and fine
    n_bytes = n_labels + 3072
    if len(content) % n_bytes:
        raise ValueError(
            f"{path} must have {n_bytes} bytes per image, got {len(content)} bytes, "
            "which is no multiple. Copy or download it again."
        )
    batch = np.frombuffer(content, np.uint8).reshape(-1, n_bytes)
    column = 0 if labels == "coarse" else n_labels - 1
    return batch[:, n_labels:], batch[:, column].astype(np.int64)


def _check_labels(target, n_classes, path):
    """Raise unless all labels are from 0 to `n_classes` - 1."""
    if len(target) and (target.min() < 0 or target.max() >= n_classes):
        raise ValueError(
            f"{path} must have labels from 0 to {n_classes - 1}, got {target.min()} "
            f"to {target.max()}."
        )


def find_svhn(root, request):
    """Return the files of the parts."""
    return [_file(root, f"{part}_32x32.mat", "svhn") for part in request.parts]


def read_svhn(root, request):
    """Read the cropped digits of SVHN from files of MATLAB 5; label 10 is digit 0."""
    paths = find_svhn(root, request)
    images, targets = [], []
    for path in paths:
        with decoding(path, "a file of MATLAB 5 with arrays X and y"):
            content = read_mat(path, request.max_bytes)
            X, y = (np.asarray(content[name]) for name in "Xy")
        if X.dtype != np.uint8 or X.shape != (32, 32, 3, y.size):
            raise ValueError(
                f"{path} must have uint8 images of shape (32, 32, 3, {y.size}), got "
                f"{X.dtype} of shape {X.shape}."
            )
        images.append(X.transpose(3, 2, 0, 1))
        targets.append(y.ravel().astype(np.int64))
    target = np.concatenate(targets)
    target[target == 10] = 0
    _check_labels(target, 10, paths[0])
    return FoundImages(
        target=target,
        target_names=list(range(10)),
        filenames=[str(path) for path in paths],
        images=np.concatenate(images),
    )


def _file(root, name, folder):
    """Return the path of a file in `root`, or in a folder in it."""
    for path in (root / name, root / folder / name):
        if path.is_file():
            return path
    raise FileNotFoundError(f"There is no {root / name}, nor {root / folder / name}.")


def find_tiny_images(root, request):
    """Return the file of the array."""
    del request
    return [_file(root, "300K_random_images.npy", "tiny_images")]


def read_tiny_images(root, request):
    """Map the array of 300,000 random tiny images."""
    [path] = find_tiny_images(root, request)
    with decoding(path, "an array of NumPy"):
        images = np.lib.format.open_memmap(path, mode="r")
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != (32, 32, 3):
        raise ValueError(
            f"{path} must have uint8 images of shape (n, 32, 32, 3), got "
            f"{images.dtype} of shape {images.shape}."
        )
    return FoundImages(
        target=np.full(len(images), -1),
        target_names=[],
        filenames=[str(path)],
        images=images.transpose(0, 3, 1, 2),
    )


def find_idx(root, request, *, folders, prefix=""):
    """Return the files of images and of labels of the parts."""
    return [
        path for pair in _idx_pairs(root, request, folders, prefix) for path in pair
    ]


def _idx_pairs(root, request, folders, prefix):
    """Return (images, labels) of the parts, or raise."""
    for folder in folders:
        if (root / folder).is_dir():
            break
    else:
        names = " or ".join(str(root / folder) for folder in folders)
        raise FileNotFoundError(f"There is no folder {names}.")
    if not prefix:
        return choose_pairs(root / folder, request.subset)
    return [
        tuple(
            _packed_or_not(root / folder / f"{prefix}-{part}-{kind}-ubyte")
            for kind in ("images-idx3", "labels-idx1")
        )
        for part in request.parts
    ]


def _packed_or_not(path):
    """Return the path of a file that may be compressed, or raise."""
    for found in (path, path.with_name(f"{path.name}.gz")):
        if found.is_file():
            return found
    raise FileNotFoundError(f"There is no {path}, nor with the ending .gz.")


def read_idx(root, request, *, folders, prefix=""):
    """Read gray images in MNIST's format; EMNIST's, with a prefix, are transposed."""
    pairs = _idx_pairs(root, request, folders, prefix)
    parts = [
        load_idx_images(
            images.parent,
            images=images.name,
            labels=labels.name,
            scaled=False,
            max_bytes=request.max_bytes,
        )
        for images, labels in pairs
    ]
    images = np.concatenate([part.data for part in parts]).astype(np.uint8)
    target = np.concatenate([part.target for part in parts])
    return FoundImages(
        target=target,
        target_names=[chr(96 + i) for i in range(1, 27)] if prefix else list(range(10)),
        filenames=[file for part in parts for file in part.filenames],
        images=images.transpose(0, 1, 3, 2) if prefix else images,
        gray=True,
    )


def make_noise(root, request, *, kind):
    """Draw 1,000 images of 224 x 224 pixels of Gaussian or uniform noise."""
    del root
    rng = np.random.default_rng(0)
    n_images = min(1000, request.max_samples or 1000)
    images = np.empty((n_images, 3, 224, 224), dtype=np.uint8)
    for image in images:
        if kind == "gaussian":
            noise = rng.normal(128, 128, image.shape)
            image[:] = noise.clip(0, 255).round()
        else:
            image[:] = rng.integers(0, 256, image.shape)
    return FoundImages(
        target=np.full(len(images), -1), target_names=[], filenames=[], images=images
    )
