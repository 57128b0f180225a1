"""Loaders of images in MNIST's IDX format, and of MNIST from OpenML."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import os
import re
from numbers import Integral
from pathlib import Path

import numpy as np
from sklearn.datasets import fetch_openml
from sklearn.utils import Bunch

from skood.datasets._digits_ood import ood_bunch
from skood.utils._param_validation import Interval, StrOptions, validate_params
from skood.utils._untrusted import decoding, read_gzip

_GZIP_MAGIC = b"\x1f\x8b"
_UBYTE = 0x08
# "train-images-idx3-ubyte.gz", "t10k-labels.idx1-ubyte", "emnist-letters-test-…"
_IDX_NAME = re.compile(
    r"(?P<prefix>.*?)-?(?P<kind>images|labels)[-.]idx[13]-ubyte(?P<gz>\.gz)?"
)
# OpenML's "mnist_784" has MNIST's own training samples first.
_N_MNIST_TRAIN = 60_000


def _read_bytes(path, max_bytes):
    """Return the content of a file, decompressed if it is a gzip file."""
    with open(path, "rb") as file:
        is_packed = file.read(2) == _GZIP_MAGIC
    if not is_packed:
        return path.read_bytes()
    with decoding(path, "a whole gzip file"):
        return bytes(read_gzip(path, max_bytes))


def _read_idx(path, ndim, max_bytes):
    """Read an IDX file of unsigned bytes with `ndim` dimensions.

    Two zero bytes, type, `ndim`, and the shape as big-endian 32-bit integers come
    first.
    """
    content = _read_bytes(path, max_bytes)
    if len(content) < 4 or content[:2] != b"\x00\x00":
        raise ValueError(
            f"{path} is not an IDX file: it starts with {content[:4]!r}, where two "
            "zero bytes, the type and the number of dimensions should be."
        )
    if content[2] != _UBYTE:
        raise ValueError(
            f"{path} holds values of type 0x{content[2]:02x}, only unsigned bytes "
            "(type 0x08) can be read."
        )
    if content[3] != ndim:
        raise ValueError(
            f"{path} has {content[3]} dimensions, expected {ndim}: images have 3 "
            "(number, height, width) and labels 1. Are the two files exchanged?"
        )
    n_header = 4 + 4 * ndim
    if len(content) < n_header:
        raise ValueError(
            f"{path} is truncated: it ends after {len(content)} bytes, within its "
            f"header of {n_header}. Copy or download it again."
        )
    shape = tuple(int(n) for n in np.frombuffer(content, ">u4", ndim, offset=4))
    n_expected, n_bytes = math.prod(shape), len(content) - n_header
    if n_bytes != n_expected:
        what = "truncated" if n_bytes < n_expected else "too long"
        raise ValueError(
            f"{path} is {what}: its header has shape {shape}, that is {n_expected} "
            f"bytes, but {n_bytes} follow. Copy or download it again."
        )
    return np.frombuffer(content, np.uint8, offset=n_header).reshape(shape)


def _subset_of(prefix):
    """Return the subset of a file by its name."""
    if prefix.endswith("train"):
        return "train"
    if prefix.endswith(("t10k", "test")):
        return "test"
    return "unnamed"


def _find_pairs(folder):
    """Return {subset: (images, labels)} of the IDX files in `folder`."""
    by_prefix: dict[str, dict[str, Path]] = {}
    # sorted: "a" comes before "a.gz", and the first of the two is used
    for path in sorted(folder.iterdir()):
        match = _IDX_NAME.fullmatch(path.name)
        if match is not None and path.is_file():
            by_prefix.setdefault(match["prefix"], {}).setdefault(match["kind"], path)
    if not by_prefix:
        raise FileNotFoundError(
            f"No IDX files in {folder}: expected names such as "
            "'t10k-images-idx3-ubyte.gz' and 't10k-labels-idx1-ubyte.gz'. Name the "
            "files by images= and labels= if they are called otherwise."
        )
    pairs: dict[str, tuple[Path, Path]] = {}
    for prefix, files in by_prefix.items():
        for kind, other in (("images", "labels"), ("labels", "images")):
            if kind not in files:
                raise FileNotFoundError(
                    f"{files[other]} has no {kind} file next to it. Put it there or "
                    f"name it by {kind}=."
                )
        subset = _subset_of(prefix)
        if subset in pairs:
            raise ValueError(
                f"{folder} holds more than one data set: both "
                f"{pairs[subset][0].name} and {files['images'].name}. Name the files "
                "by images= and labels=."
            )
        pairs[subset] = (files["images"], files["labels"])
    return pairs


def choose_pairs(folder, subset, images=None, labels=None):
    """Return the (images, labels) paths to read, training files first."""
    if (images is None) != (labels is None):
        name, missing = ("images", "labels")[:: 1 if labels is None else -1]
        raise ValueError(f"{name}= was given without {missing}=. Give both or none.")
    if images is not None:
        if subset != "all":
            raise ValueError(
                f"subset={subset!r} has no meaning when the files are named by "
                "images= and labels=. Leave it out."
            )
        pairs = {"named": (folder / images, folder / labels)}
    else:
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is not a folder.")
        pairs = _find_pairs(folder)
        if subset != "all":
            if subset not in pairs:
                names = sorted(path.name for pair in pairs.values() for path in pair)
                raise FileNotFoundError(
                    f"{folder} has no files of subset={subset!r}, only {names}."
                )
            pairs = {subset: pairs[subset]}
    order = ("named", "unnamed", "train", "test")
    return [pairs[key] for key in order if key in pairs]


def _read_pair(images_path, labels_path, max_bytes):
    """Read one images file and its labels file."""
    images = _read_idx(images_path, 3, max_bytes)
    labels = _read_idx(labels_path, 1, max_bytes)
    if len(images) != len(labels):
        raise ValueError(
            f"{images_path} holds {len(images)} images but {labels_path} holds "
            f"{len(labels)} labels. Are they of the same data set?"
        )
    if len(images) == 0:
        raise ValueError(f"{images_path} holds no images.")
    return images, labels


@validate_params(
    {
        "folder": [str, os.PathLike],
        "subset": [StrOptions({"all", "train", "test"})],
        "images": [str, os.PathLike, None],
        "labels": [str, os.PathLike, None],
        "left_out": [Integral, "array-like", StrOptions({"all"})],
        "scaled": ["boolean"],
        "as_images": ["boolean"],
        "ood_label": [Integral, None],
        "return_X_y": ["boolean"],
        "max_bytes": [Interval(Integral, 0, None, closed="left"), None],
    },
    prefer_skip_nested_validation=True,
)
def load_idx_images(
    folder,
    *,
    subset="all",
    images=None,
    labels=None,
    left_out=(),
    scaled=True,
    as_images=True,
    ood_label=None,
    return_X_y=False,
    max_bytes=None,
):
    r"""Load labeled gray images from files in MNIST's IDX format.

    MNIST, Fashion-MNIST, KMNIST, EMNIST and notMNIST are distributed in this format.
    Files are read with NumPy alone, compressed by gzip or not.

    Read more in the :ref:`User Guide <datasets>`.

    Parameters
    ----------
    folder : str or path-like
        Folder with files called ``*-images-idx3-ubyte`` and
        ``*-labels-idx1-ubyte``, with ``.gz`` appended if compressed; the second dash
        may be a dot. If a file exists both compressed and uncompressed, the latter is
        read.

    subset : {"all", "train", "test"}, default="all"
        Which of the files named ``train-…`` and ``t10k-…`` (or ``test-…``) to read.
        ``"all"`` reads all that exist, training samples first.

    images, labels : str or path-like, default=None
        The two files, if they have other names; relative to `folder`.

    left_out : int, sequence of int or "all", default=()
        The classes whose samples are OOD. ``"all"`` marks the whole data set as OOD,
        for a model trained on another data set.

    scaled : bool, default=True
        Whether to divide gray values by 255, so that they lie in [0, 1].

    as_images : bool, default=True
        Whether `data` has shape (n_samples, 1, height, width) instead of
        (n_samples, height * width).

    ood_label : int, default=None
        Target of OOD samples. None: their target is their label.

    return_X_y : bool, default=False
        Whether to return `(data, target)` instead of a Bunch.

    max_bytes : int, default=None
        Maximal size of the content of a compressed file in bytes. None: 100 times the
        size of the file, at least 64 MiB.

    Returns
    -------
    dataset : :class:`~sklearn.utils.Bunch`
        data : ndarray of shape (n_samples, 1, height, width) or flat, dtype float32
            Gray values.
        target : ndarray of shape (n_samples,), dtype int64
            Labels.
        is_ood : ndarray of shape (n_samples,), dtype bool
            True for samples of the left-out classes.
        left_out : tuple of int
            The left-out classes, sorted.
        target_names : ndarray of shape (n_classes,)
            All labels of the files.
        filenames : list of str
            The files that were read.
        DESCR : str
            Description and source of the data.

    (data, target) : tuple if ``return_X_y=True``
        The two arrays.

    Raises
    ------
    FileNotFoundError
        If the folder or a file is missing.
    ValueError
        If a file is not a complete IDX file of unsigned bytes with the right number of
        dimensions, unpacks to more than `max_bytes`, or images and labels do not
        match.

    See Also
    --------
    fetch_mnist : Download MNIST.
    load_digits_ood : Small digits, without files.

    Examples
    --------
    Two images of 1 x 2 pixels, as bytes:

    >>> import tempfile
    >>> from pathlib import Path
    >>> from skood.datasets import load_idx_images
    >>> with tempfile.TemporaryDirectory() as name:
    ...     folder = Path(name)
    ...     head = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2])
    ...     _ = (folder / "test-images-idx3-ubyte").write_bytes(
    ...         head + bytes([0, 255, 51, 102])
    ...     )
    ...     head = bytes([0, 0, 8, 1, 0, 0, 0, 2])
    ...     _ = (folder / "test-labels-idx1-ubyte").write_bytes(head + bytes([3, 7]))
    ...     X, y = load_idx_images(folder, as_images=False, return_X_y=True)
    >>> X
    array([[0. , 1. ],
           [0.2, 0.4]], dtype=float32)
    >>> y
    array([3, 7])
    """
    folder = Path(folder).expanduser()
    paths = choose_pairs(folder, subset, images, labels)
    parts = [_read_pair(first, second, max_bytes) for first, second in paths]
    sizes = {part[0].shape[1:] for part in parts}
    if len(sizes) > 1:
        raise ValueError(
            f"The images in {folder} differ in size: {sorted(sizes)}. Read them "
            "apart, by subset= or by images= and labels=."
        )
    filenames = [str(path) for pair in paths for path in pair]
    bunch = ood_bunch(
        np.concatenate([part[0] for part in parts]),
        np.concatenate([part[1] for part in parts]),
        left_out=left_out,
        ood_label=ood_label,
        scale=255.0 if scaled else 1.0,
        as_images=as_images,
        descr="Gray images read from the IDX files\n" + "\n".join(filenames),
    )
    bunch.filenames = filenames
    return (bunch.data, bunch.target) if return_X_y else bunch


@validate_params(
    {
        "subset": [StrOptions({"all", "train", "test"})],
        "left_out": [Integral, "array-like", StrOptions({"all"})],
        "data_home": [str, os.PathLike, None],
        "cache": ["boolean"],
        "scaled": ["boolean"],
        "as_images": ["boolean"],
        "ood_label": [Integral, None],
        "return_X_y": ["boolean"],
    },
    prefer_skip_nested_validation=True,
)
def fetch_mnist(
    *,
    subset="all",
    left_out=(),
    data_home=None,
    cache=True,
    scaled=True,
    as_images=True,
    ood_label=None,
    return_X_y=False,
):
    """Load MNIST from OpenML, downloading it the first time.

    70,000 gray images of handwritten digits, 28 x 28 pixels: 60,000 for training,
    then 10,000 for testing. The download and its cache are handled by
    :func:`sklearn.datasets.fetch_openml`; reading the file requires pandas.

    Read more in the :ref:`User Guide <datasets>`.

    Parameters
    ----------
    subset : {"all", "train", "test"}, default="all"
        Samples to return.

    left_out : int, sequence of int or "all", default=()
        The classes whose samples are OOD.

    data_home : str or path-like, default=None
        Folder of the cache; None is the default of scikit-learn,
        ``~/scikit_learn_data``.

    cache : bool, default=True
        Whether to cache the download.

    scaled : bool, default=True
        Whether to divide gray values by 255, so that they lie in [0, 1].

    as_images : bool, default=True
        Whether `data` has shape (n_samples, 1, 28, 28) instead of
        (n_samples, 784).

    ood_label : int, default=None
        Target of OOD samples. None: their target is the digit.

    return_X_y : bool, default=False
        Whether to return `(data, target)` instead of a Bunch.

    Returns
    -------
    mnist : :class:`~sklearn.utils.Bunch`
        As returned by :func:`load_idx_images`, without `filenames`.

    (data, target) : tuple if ``return_X_y=True``
        The two arrays.

    See Also
    --------
    load_idx_images : Load MNIST and similar data sets from files on disk.

    Examples
    --------
    >>> from skood.datasets import fetch_mnist
    >>> mnist = fetch_mnist(subset="test", left_out=(8, 9))  # doctest: +SKIP
    >>> mnist.data.shape  # doctest: +SKIP
    (10000, 1, 28, 28)
    """
    raw: Bunch = fetch_openml(
        "mnist_784", version=1, as_frame=False, data_home=data_home, cache=cache
    )
    samples = {
        "all": slice(None),
        "train": slice(_N_MNIST_TRAIN),
        "test": slice(_N_MNIST_TRAIN, None),
    }[subset]
    data = np.asarray(raw.data)[samples]
    bunch = ood_bunch(
        data.reshape(len(data), 28, 28),
        np.asarray(raw.target)[samples].astype(np.int64),
        left_out=left_out,
        ood_label=ood_label,
        scale=255.0 if scaled else 1.0,
        as_images=as_images,
        descr=raw.DESCR,
    )
    return (bunch.data, bunch.target) if return_X_y else bunch
