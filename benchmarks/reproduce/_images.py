"""Images of the data sets that studies of OOD detection use, from their own files."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import hashlib
import json
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from pathlib import Path

import numpy as np
from numpy.lib import format as npy_format
from sklearn.utils import Bunch

from benchmarks.reproduce import _gtsrb
from benchmarks.reproduce import _image_folders as folders
from benchmarks.reproduce import _packed_images as packed
from benchmarks.reproduce._file_trees import folder_of
from skood.utils._files import replacing
from skood.utils._optional import import_optional
from skood.utils._param_validation import Interval, StrOptions, validate_params


@dataclass(frozen=True)
class _ImageSet:
    """The reader of a data set, its files, and the number of images of its parts."""

    read: Callable
    find: Callable
    sizes: dict
    labels: tuple = ("class",)


def _set(name, module, sizes, *, labels=("class",), **kwargs):
    """A data set with functions read_… and find_… of a module."""
    read, find = (getattr(module, f"{verb}_{name}") for verb in ("read", "find"))
    read, find = partial(read, **kwargs), partial(find, **kwargs)
    return _ImageSet(read, find, sizes, labels)


def _idx(n_train, n_test, *names, prefix=""):
    sizes = {"train": n_train, "test": n_test}
    return _set("idx", packed, sizes, folders=names, prefix=prefix)


def _folder(n_images, *names, depth=0):
    """A data set with one part, which is for testing, in one of some folders."""
    return _ImageSet(
        partial(folders.read_folder, folders=names, depth=depth),
        partial(folders.find_folders, folders=names),
        {"test": n_images},
    )


def _noise(kind):
    make = partial(packed.make_noise, kind=kind)
    return _ImageSet(make, lambda root, request: [], {"test": 1000})


_CIFAR = {"train": 50_000, "test": 10_000}
IMAGE_SETS = {
    "cifar10": _set("cifar", packed, _CIFAR, n_classes=10),
    "cifar100": _set(
        "cifar", packed, _CIFAR, labels=("class", "coarse"), n_classes=100
    ),
    "svhn": _set("svhn", packed, {"train": 73_257, "test": 26_032}),
    "mnist": _idx(60_000, 10_000, "mnist", "MNIST/raw"),
    "fmnist": _idx(60_000, 10_000, "fmnist", "FashionMNIST/raw"),
    "kmnist": _idx(60_000, 10_000, "kmnist", "KMNIST/raw"),
    "notmnist": _idx(None, None, "notmnist"),
    "emnist": _idx(124_800, 20_800, "emnist", "EMNIST/raw", prefix="emnist-letters"),
    "tiny_images": _set("tiny_images", packed, {"test": 300_000}),
    "gaussian_noise": _noise("gaussian"),
    "uniform_noise": _noise("uniform"),
    "lsun_crop": _folder(10_000, "LSUN/test", "LSUN"),
    "lsun_resize": _folder(10_000, "LSUN_resize"),
    "tin_crop": _folder(10_000, "Imagenet/test", "Imagenet"),
    "tin_resize": _folder(10_000, "Imagenet_resize"),
    "isun": _folder(8_925, "iSUN/iSUN_patches", "iSUN"),
    "textures": _folder(5_640, "dtd/images", "images", depth=1),
    "places365": _folder(None, "places365_standard/val", "places365"),
    "inaturalist": _folder(10_000, "iNaturalist/images", "iNaturalist"),
    "imagenet_o": _folder(2_000, "imagenet-o"),
    "imagenet_a": _folder(7_500, "imagenet-a", depth=1),
    "imagenet": _ImageSet(
        folders.read_imagenet,
        partial(folders.find_folders, folders=folders.IMAGENET_FOLDERS),
        {"train": 1_281_167, "test": 50_000},
    ),
    "omniglot": _ImageSet(
        folders.read_omniglot,
        partial(folders.find_folders, folders=folders.OMNIGLOT_FOLDERS),
        {"train": 19_280, "test": 13_180},
    ),
    "gtsrb": _set(
        *("gtsrb", _gtsrb, {"train": 39_209, "test": 12_630}),
        labels=("class", "color", "shape"),
    ),
    "celeba": _set("celeba", folders, {"test": 202_599}, labels=()),
    "folder": _ImageSet(
        folders.read_own_folder, lambda root, request: [root], {"test": None}
    ),
    "list": _set("list", folders, {}),
}
_WITHOUT_ALL = {"imagenet", "omniglot"}


@validate_params(
    {
        "name": [StrOptions({*IMAGE_SETS})],
        "root": [str, os.PathLike, None],
        "subset": [str, os.PathLike],
        "labels": [str],
        "size": [Interval(Integral, 1, None, closed="left"), tuple, None],
        "shorter_side": [Interval(Integral, 1, None, closed="left"), None],
        "gray": ["boolean", None],
        "max_samples": [Interval(Integral, 1, None, closed="left"), None],
        "cache": [str, os.PathLike, None],
        "max_bytes": [Interval(Integral, 0, None, closed="left"), None],
        "return_X_y": ["boolean"],
    },
    prefer_skip_nested_validation=True,
)
def load_images(
    name,
    root,
    *,
    subset="test",
    labels="class",
    size=None,
    shorter_side=None,
    gray=None,
    max_samples=None,
    cache=None,
    max_bytes=None,
    return_X_y=False,
):
    """Load images of a published data set from the files of its owners.

    Nothing is downloaded. Folders are found in `root` under the names with which the
    data sets are published, and are read in place; an archive (.tar, .tar.gz, .tgz or
    .zip) is read without being unpacked. Numbers of images, shapes and labels are
    compared with the published ones.

    Parameters
    ----------
    name : str
        One of

        - "cifar10", "cifar100", "svhn", "mnist", "fmnist", "kmnist", "emnist"
          (letters), "notmnist", "omniglot", "imagenet", "gtsrb", "celeba";
        - OOD sets "lsun_crop", "lsun_resize", "tin_crop", "tin_resize", "isun",
          "textures", "places365", "inaturalist", "tiny_images", "imagenet_o",
          "imagenet_a", and "gaussian_noise" and "uniform_noise", which need no files;
        - "folder": all images below `root`, where folders in `root` are classes;
        - "list": the images of an image list of OpenOOD.

    root : str, path-like or None
        Folder of the data sets. None for noise only.

    subset : {"train", "test", "all"} or path of a list, default="test"
        Part of the data set. Data sets with one part only have it under "test";
        ImageNet's is the validation part, and Omniglot's the evaluation part. For
        ``name="list"``, the path of a text file, relative to `root` or absolute, with
        the path of an image, relative to `root`, and its label in each line.

    labels : str, default="class"
        Kind of the labels: also "coarse" for CIFAR-100, "color" and "shape" for
        GTSRB, and the name of one attribute for CelebA.

    size : int or (int, int), default=None
        Height and width to which images are resized, bilinearly and with
        antialiasing. Required if images differ in size.

    shorter_side : int, default=None
        Length to which the shorter side of an image is resized first, which keeps the
        proportions; the center of `size`, which is not larger, is then cropped.
        ImageNet's usual one is 256, with ``size=224``.

    gray : bool, default=None
        Whether images have one channel instead of three. None: True for MNIST,
        its relatives and Omniglot.

    max_samples : int, default=None
        Only the first samples, in the order of the files.

    cache : str or path-like, default=None
        Folder for the decoded images, which are then read as a memory map; they are
        decoded again if a file or a parameter changes.

    max_bytes : int, default=None
        Maximal size of the content of a compressed file or an archive in bytes, and of
        each image, with four bytes a pixel. None: 100 times the size of the file, at
        least 64 MiB.

    return_X_y : bool, default=False
        Whether to return `(data, target)` instead of a Bunch.

    Returns
    -------
    dataset : :class:`~sklearn.utils.Bunch`
        data : ndarray of shape (n_samples, n_channels, height, width), dtype uint8
            The images; a read-only memory map with `cache`.
        target : ndarray of shape (n_samples,)
            Labels, integers except for colors and shapes. -1 for data sets without
            classes. For CelebA, an array of shape (n_samples, 40) with 0 and 1.
        target_names : list
            Names of the classes, in the order of their numbers, or of the attributes.
        filenames : list of str
            The files that were read.
        DESCR : str
            Name and source of the data.

    (data, target) : tuple if ``return_X_y=True``
        The two arrays.

    Raises
    ------
    FileNotFoundError
        If a folder or a file is missing.
    ImportError
        If image files have to be decoded or resized and Pillow is not installed.
    ValueError
        If a file is damaged or has another form than published, if images differ in
        size and `size` is None, if `size` is larger than `shorter_side`, or if the
        data set has no such `subset` or `labels`.

    Warns
    -----
    UserWarning
        If the number of images differs from the published one.

    See Also
    --------
    image_files : The files, without reading them.
    load_idx_images : Gray images in MNIST's format under other names.
    gtsrb_constraints : Rules between the concepts of GTSRB.
    """
    image_set = IMAGE_SETS[name]
    _check_request(name, image_set, root, subset, labels)
    request = packed.Request(str(subset), labels, max_samples, max_bytes)
    where = None if root is None else folder_of(root)
    found = image_set.read(where, request)
    if name != "list":
        _check_number(name, image_set, request, len(found.target))
    gray = found.gray if gray is None else gray
    size = (size, size) if isinstance(size, Integral) else size
    if shorter_side is not None:
        if size is None or max(size) > shorter_side:
            raise ValueError(
                f"shorter_side={shorter_side} needs a size that is at most as large; "
                f"got size={size}."
            )
        size = (*size, shorter_side)
    n_samples = len(found.target[:max_samples])
    data = _stored(found, n_samples, size, gray, cache)
    target = found.target[:n_samples]
    if return_X_y:
        return data, target
    return Bunch(
        data=data,
        target=target,
        target_names=found.target_names,
        filenames=found.filenames[:n_samples],
        DESCR=f"{name}, {subset}: {n_samples} images from {root}",
    )


@validate_params(
    {
        "name": [StrOptions({*IMAGE_SETS})],
        "root": [str, os.PathLike, None],
        "subset": [str, os.PathLike],
    },
    prefer_skip_nested_validation=True,
)
def image_files(name, root, *, subset="test"):
    """Find the files of a published data set, without reading images.

    Use it to check that the data of a long study are complete before it starts.

    Parameters
    ----------
    name : str
        Name of a data set for :func:`load_images`.

    root : str, path-like or None
        Folder of the data sets. None for noise only.

    subset : {"train", "test", "all"} or path of a list, default="test"
        Part of the data set.

    Returns
    -------
    files : list of str
        Paths of files, of an archive, or of folders of image files; of GTSRB and CelebA
        also of the tables of labels.

    Raises
    ------
    FileNotFoundError
        If a file or folder is missing; the message names the expected ones.
    ValueError
        If the data set has no such `subset`.

    See Also
    --------
    load_images : Load the images.
    """
    where = None if root is None else folder_of(root)
    return list(map(str, find_image_files(name, where, subset)))


def find_image_files(name, root, subset):
    """Return the paths of the files of a data set; `root` need not be there.

    An absent file or folder raises FileNotFoundError with the names of expected ones.
    """
    image_set = IMAGE_SETS[name]
    labels = image_set.labels[0] if image_set.labels else "class"
    _check_request(name, image_set, root, subset, labels)
    return image_set.find(root, packed.Request(str(subset), labels, None, None))


def _check_request(name, image_set, root, subset, labels):
    """Raise if the data set has no such part or labels."""
    if root is None and not name.endswith("_noise"):
        raise ValueError(f"root=None is for noise only: name the folder of {name}.")
    if name == "list":
        return
    parts = [*image_set.sizes]
    if len(parts) > 1 and name not in _WITHOUT_ALL:
        parts.append("all")
    if subset not in parts:
        raise ValueError(f"{name} has the subsets {parts}, got subset={subset!r}.")
    if image_set.labels and labels not in image_set.labels:
        raise ValueError(
            f"{name} has the labels {list(image_set.labels)}, got labels={labels!r}."
        )


def _check_number(name, image_set, request, n_found):
    """Warn if there are more or fewer images than published."""
    sizes = [image_set.sizes[part] for part in request.parts]
    if request.max_samples and name.endswith("_noise"):
        return
    if None not in sizes and n_found != sum(sizes):
        warnings.warn(
            f"{name}, {request.subset}, was published with {sum(sizes)} images; "
            f"{n_found} were found.",
            UserWarning,
            stacklevel=4,
        )


def _stored(found, n_samples, size, gray, cache):
    """Return decoded images, from a file in `cache` if one is given."""
    if cache is None:
        return _decoded(found, n_samples, size, gray)
    key = [found.filenames[:n_samples], n_samples, size, gray, found.inverted]
    if found.tree is not None:
        key.append(found.tree.signature(found.names[:n_samples]))
    else:
        stats = [os.stat(file) for file in found.filenames]
        key.append([(stat.st_size, stat.st_mtime_ns) for stat in stats])
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]
    path = Path(cache).expanduser() / f"{digest}.npy"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as stream:
            _decoded(found, n_samples, size, gray, stream)
    return np.load(path, mmap_mode="r", allow_pickle=False)


def _decoded(found, n_samples, size, gray, stream=None):
    """Return images (n, c, h, w), written to a file of NumPy if one is given."""
    pixels = _packed_pixels if found.images is not None else _file_pixels
    data: np.ndarray | None = None
    for i, image in pixels(found, n_samples, size, gray):
        if data is None:
            shape = (n_samples, *image.shape)
            data = _empty(shape, stream)
        if image.shape != data.shape[1:]:
            raise ValueError(
                f"Images differ in size: {found.filenames[i]} has height and width "
                f"{image.shape[1:]}, others have {data.shape[2:]}. Pass size=."
            )
        data[i] = image
    if isinstance(data, np.memmap):
        data.flush()
    return data


def _empty(shape, stream):
    """Return an array of bytes, in a file of NumPy if one is given."""
    if stream is None:
        return np.empty(shape, dtype=np.uint8)
    header = {"descr": "|u1", "fortran_order": False, "shape": shape}
    npy_format.write_array_header_1_0(stream, header)
    stream.flush()
    return np.memmap(stream, np.uint8, "r+", offset=stream.tell(), shape=shape)


def _file_pixels(found, n_samples, size, gray):
    """Yield (position, image (c, h, w)) of image files."""
    import_optional("PIL.Image", "load_images of image files")
    for i, content in found.tree.read(found.names[:n_samples]):
        yield (
            i,
            folders.decode(
                content,
                found.filenames[i],
                size=size,
                gray=gray,
                inverted=found.inverted,
                max_bytes=found.tree.max_bytes,
            ),
        )


def _packed_pixels(found, n_samples, size, gray):
    """Yield (position, image (c, h, w)) of stored arrays."""
    images = found.images[:n_samples]
    unchanged = size is None or size == images.shape[2:]
    if unchanged and gray == found.gray:
        yield from enumerate(images)
        return
    module = import_optional("PIL.Image", "load_images with size or gray")
    for i, image in enumerate(images):
        pixels = image[0] if found.gray else image.transpose(1, 2, 0)
        picture = module.fromarray(np.ascontiguousarray(pixels))
        picture = folders.resized(picture.convert("L" if gray else "RGB"), size)
        pixels = np.asarray(picture)
        yield i, pixels[None] if gray else pixels.transpose(2, 0, 1)
