"""Files of the data sets: which are there, and a hash of them."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import hashlib
import os
from functools import cache
from pathlib import Path

from benchmarks.reproduce._images import IMAGE_SETS, find_image_files

_MIB = 2**20
# Of folders with more files names and sizes are hashed, not content.
_MOST_FILES = 1000

# Data sets whose training images are always needed.
_WHOLE = ("cifar10", "cifar100", "gtsrb")

#: Patterns of the files of graphs, which must all be there.
GRAPHS = {
    "CoraML": ("cora_ml/raw/cora_ml.npz",),
    "CiteSeerFull": ("citeseer/raw/citeseer.npz",),
    "PubMed": ("pubmed/raw/pubmed.npz",),
    "AmazonPhoto": ("Photo/raw/amazon_electronics_photo.npz",),
    "AmazonComputers": ("Computers/raw/amazon_electronics_computers.npz",),
    "CoauthorCS": ("CS/raw/ms_academic_cs.npz",),
    "CoauthorPhysics": ("Physics/raw/ms_academic_phy.npz",),
    "OGBN-Arxiv": ("ogbn_arxiv/raw/*.csv.gz", "ogbn_arxiv/split/time/*.csv.gz"),
}


def locate(name, root):
    """Return the files or folders of a data set below a folder, or raise.

    `name` is a name of `image_files`, with the ending "/train" for training images; a
    graph; or a pattern of paths relative to the folder.
    """
    root = Path(root).expanduser()
    base, _, part = name.partition("/")
    if base in IMAGE_SETS:
        subset = part or ("all" if base in _WHOLE else "test")
        # imagenet has no subset "all"
        subsets = ("train", subset) if base == "imagenet" else (subset,)
        return [path for one in subsets for path in find_image_files(base, root, one)]
    patterns = GRAPHS.get(name, (name,))
    groups = [sorted(root.glob(pattern)) for pattern in patterns]
    if not all(groups):
        names = " and ".join(str(root / pattern) for pattern in patterns)
        raise FileNotFoundError(f"There is no {names}.")
    return [path for group in groups for path in group]


def find(name, root):
    """Return the files or folders of a data set below a folder, or None.

    Noise is complete without files.
    """
    try:
        return None if root is None else locate(name, root)
    except FileNotFoundError:
        return None


def expected(name, root=None):
    """Return which files of a data set are absent, as text for a message."""
    try:
        locate(name, root or "DIR")
    except FileNotFoundError as error:
        return str(error)
    return "complete"


def missing(needs, root):
    """Return texts for the data sets that are not there."""
    return [
        f"{name}: {expected(name, root)}"
        for name in needs
        if not name.startswith("?") and find(name, root) is None
    ]


@cache
def digest(needs, root):
    """Return a hash of the files of data sets: name, size, first and last MiB.

    Of a folder with more than a thousand files it has names and sizes only.
    """
    found = hashlib.sha256()
    for name in needs:
        paths = [
            p for path in find(name.removeprefix("?"), root) or () for p in _files(path)
        ]
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
