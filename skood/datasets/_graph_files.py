"""Raw files of published graphs: their paths, parsers and downloads."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings
import zipfile
from contextlib import suppress

import numpy as np
from scipy import sparse

from skood.utils._files import archive_size, check_unpacked_size
from skood.utils._optional import import_optional

__all__ = ["read_graph"]

# Class of torch_geometric.datasets, its name of the graph, folder, file
_NPZ_FILES = {
    "CoraML": ("CitationFull", "Cora_ML", "cora_ml", "cora_ml"),
    "CiteSeerFull": ("CitationFull", "CiteSeer", "citeseer", "citeseer"),
    "AmazonPhoto": ("Amazon", "Photo", "Photo", "amazon_electronics_photo"),
    "AmazonComputers": (
        "Amazon",
        "Computers",
        "Computers",
        "amazon_electronics_computers",
    ),
    "CoauthorCS": ("Coauthor", "CS", "CS", "ms_academic_cs"),
    "CoauthorPhysics": ("Coauthor", "Physics", "Physics", "ms_academic_phy"),
}
_PLANETOID_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")


def read_graph(name, root, *, download=False, max_bytes=None):
    """Return features, adjacency, labels and class names (or None) of a graph.

    The first two are float32 csr_arrays, labels int64. For the arguments and errors see
    :func:`skood.datasets.load_graph`.
    """
    if name in _NPZ_FILES:
        dataset, key, folder, file = _NPZ_FILES[name]
        files = [f"{file}.npz"]
    else:
        dataset, key, folder = "Planetoid", name, name
        files = [f"ind.{name.lower()}.{part}" for part in _PLANETOID_PARTS]
    paths = [root / folder / "raw" / file for file in files]
    missing = [str(path) for path in paths if not path.is_file()]
    if missing and not download:
        raise FileNotFoundError(
            f"{name} needs {', '.join(missing)}, which {_is(missing)} not there. Put "
            "the raw files there, or set download=True to let torch_geometric fetch "
            "them."
        )
    if missing:
        _fetch(dataset, root, key)
    if name in _NPZ_FILES:
        return _read_npz(paths[0], max_bytes)
    return _read_planetoid(paths[0].parent, name)


def _is(things):
    return "is" if len(things) == 1 else "are"


def _fetch(dataset, root, key):
    """Download the raw files of a torch_geometric dataset, without processing."""
    datasets = import_optional("torch_geometric.datasets", "download=True", "graph")
    base = getattr(datasets, dataset)
    only_raw = {"has_process": False, "load": lambda self, path: None}
    type(dataset, (base,), only_raw)(str(root), key)


def _read_npz(path, max_bytes):
    """Read the three parts of a graph in compressed sparse format."""
    if zipfile.is_zipfile(path):
        with suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
            check_unpacked_size(
                archive_size(archive), path.stat().st_size, max_bytes, name=path
            )
    try:
        with np.load(path, allow_pickle=False) as file:
            X, adjacency = _rows(file, "attr"), _rows(file, "adj")
            labels = file["labels"].astype(np.int64)
            class_names = _text(file, "class_names")
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} is not a graph in compressed sparse rows, with the arrays attr_*, "
            f"adj_* and labels: {error}"
        ) from error
    adjacency.data[:] = 1
    return X, adjacency, labels, class_names


def _rows(file, part):
    """Return one of the two matrices, after validation of its parts."""
    matrix = sparse.csr_array(
        tuple(file[f"{part}_{what}"] for what in ("data", "indices", "indptr")),
        shape=tuple(int(n) for n in file[f"{part}_shape"]),
        dtype=np.float32,
    )
    matrix.check_format(full_check=True)
    matrix.sum_duplicates()
    return matrix


def _text(file, key):
    """Return an array of strings, or None if there is none without pickle."""
    if key not in file.files:
        return None
    try:
        values = file[key]
    except ValueError:  # pickled objects, not read
        return None
    return values if values.dtype.kind == "U" else None


def _read_planetoid(folder, name):
    """Read the eight files of Planetoid, which are pickles, with torch_geometric."""
    io = import_optional(
        "torch_geometric.io", f"Reading {name}, a graph of Planetoid,", "graph"
    )
    with warnings.catch_warnings():  # the reader adds a permanent filter
        data = io.read_planetoid_data(str(folder), name)
    X = sparse.csr_array(data.x.numpy())
    edges = data.edge_index.numpy()
    ones = np.ones(edges.shape[1], dtype=np.float32)
    shape = (X.shape[0], X.shape[0])
    adjacency = sparse.csr_array(sparse.coo_array((ones, tuple(edges)), shape=shape))
    return X, adjacency, data.y.numpy(), None
