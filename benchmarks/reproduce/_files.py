"""Files of the data sets, as their owners publish them."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import hashlib
import os
from functools import cache
from pathlib import Path

_MIB = 2**20
# Of folders with more files names and sizes are hashed, not content.
_MOST_FILES = 1000

_IDX = ("{part}-images*idx3-ubyte*", "{part}-labels*idx1-ubyte*")


def _idx(folder, part):
    return tuple(f"{folder}/{name.format(part=part)}" for name in _IDX)


def _images(*folders):
    """Return alternatives: a folder, or an archive of it."""
    return [(folder,) for folder in folders] + [
        (f"{folder}{suffix}",)
        for folder in folders
        for suffix in (".tar", ".tar.gz", ".tgz", ".zip")
    ]


#: Alternatives for each data set: tuples of patterns that must all be there.
DATA_SETS = {
    **{
        f"{name}{suffix}": [_idx(name, part), _idx(f"{raw}/raw", part)]
        for name, raw in (
            *(("mnist", "MNIST"), ("fmnist", "FashionMNIST"), ("kmnist", "KMNIST")),
            ("notmnist", "notMNIST"),
        )
        for suffix, part in (("", "t10k"), ("/train", "train"))
    },
    "emnist": [
        _idx("emnist", "emnist-letters-test"),
        _idx("EMNIST/raw", "emnist-letters-test"),
    ],
    "omniglot": _images("images_evaluation", "omniglot/images_evaluation"),
    "cifar10": [
        ("cifar-10-batches-py/data_batch_[1-5]", "cifar-10-batches-py/test_batch"),
        ("cifar-10-batches-bin/*.bin",),
    ],
    "cifar100": [
        ("cifar-100-python/train", "cifar-100-python/test"),
        ("cifar-100-binary/*.bin",),
    ],
    "svhn": [("test_32x32.mat",), ("svhn/test_32x32.mat",)],
    "lsun_crop": _images("LSUN"),
    "lsun_resize": _images("LSUN_resize"),
    "tin_crop": _images("Imagenet"),
    "tin_resize": _images("Imagenet_resize"),
    "isun": _images("iSUN"),
    "textures": _images("dtd"),
    "places365": _images("places365_standard", "places365"),
    "inaturalist": _images("iNaturalist"),
    "tiny_images": [("300K_random_images.npy",)],
    "imagenet": [("train", "val"), ("imagenet/train", "imagenet/val")],
    "imagenet_o": _images("imagenet-o"),
    "imagenet_a": _images("imagenet-a"),
    "gtsrb": [
        ("Train.csv", "Test.csv", "Meta.csv"),
        ("gtsrb/Train.csv", "gtsrb/Test.csv", "gtsrb/Meta.csv"),
        ("GTSRB/Final_Training", "GTSRB/Final_Test"),
    ],
    "celeba": [
        (f"{folder}img_align_celeba*", f"{folder}list_attr_celeba.*")
        for folder in ("", "celeba/")
    ],
    "CoraML": [("cora_ml/raw/cora_ml.npz",)],
    "CiteSeerFull": [("citeseer/raw/citeseer.npz",)],
    "PubMed": [("pubmed/raw/pubmed.npz",)],
    "AmazonPhoto": [("Photo/raw/amazon_electronics_photo.npz",)],
    "AmazonComputers": [("Computers/raw/amazon_electronics_computers.npz",)],
    "CoauthorCS": [("CS/raw/ms_academic_cs.npz",)],
    "CoauthorPhysics": [("Physics/raw/ms_academic_phy.npz",)],
    "OGBN-Arxiv": [("ogbn_arxiv/raw/*.csv.gz", "ogbn_arxiv/split/time/*.csv.gz")],
}


def expected(name):
    """Return the files of a data set, as text for a message."""
    alternatives = DATA_SETS.get(name, [(name,)])
    shown = [" and ".join(patterns) for patterns in alternatives[:2]]
    return " or ".join(shown) + (" or …" if len(alternatives) > 2 else "")


def find(name, root):
    """Return the files or folders of a data set below a folder, or an empty list.

    A name that is not in `DATA_SETS` is a path relative to the folder.
    """
    if root is None:
        return []
    for patterns in DATA_SETS.get(name, [(name,)]):
        found = [sorted(Path(root).glob(pattern)) for pattern in patterns]
        if all(found):
            return [path for paths in found for path in paths]
    return []


def missing(needs, root):
    """Return texts for the data sets that are not there."""
    return [
        f"{name}: {expected(name)}"
        for name in needs
        if not name.startswith("?") and not find(name, root)
    ]


@cache
def digest(needs, root):
    """Return a hash of the files of data sets: name, size, first and last MiB.

    Of a folder with more than a thousand files it has names and sizes only.
    """
    found = hashlib.sha256()
    for name in needs:
        paths = [p for path in find(name.removeprefix("?"), root) for p in _files(path)]
        found.update(f"{name} {len(paths)}\n".encode())
        for path in paths:
            size = os.path.getsize(path)
            relative = os.path.relpath(path, root)
            found.update(f"{relative} {size}\n".encode())
            if len(paths) <= _MOST_FILES:
                with open(path, "rb") as file:
                    found.update(file.read(_MIB))
                    file.seek(max(0, size - _MIB))
                    found.update(file.read(_MIB))
    return found.hexdigest()


def _files(path):
    """Return a file, or all files of a folder, sorted."""
    if not path.is_dir():
        return [path]
    return sorted(
        Path(folder, name) for folder, _, names in os.walk(path) for name in names
    )
