"""Raw files of published graphs: their paths, parsers and downloads."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import io
import warnings

import numpy as np
from scipy import sparse

from skood.utils._optional import import_optional
from skood.utils._untrusted import BoundedZip, decoding, read_gzip

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
_ARXIV_FILES = (
    *(f"raw/{part}.csv.gz" for part in ("edge", "node-feat", "node-label")),
    *(f"split/time/{part}.csv.gz" for part in ("train", "valid", "test")),
)
_PLANETOID_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")


def read_graph(name, root, *, download=False, max_bytes=None):
    """Return features, adjacency, labels, class names and public split of a graph.

    Features are a float32 csr_array, or an ndarray if they are real numbers; adjacency
    is a float32 csr_array, labels int64. Names and split may be None. For the arguments
    and errors see :func:`skood.datasets.load_graph`.
    """
    dataset, key, paths = _paths(name, root)
    missing = [str(path) for path in paths if not path.is_file()]
    if missing and (not download or dataset is None):
        remedy = (
            "Download it from https://ogb.stanford.edu and unpack it there."
            if dataset is None
            else "Put the raw files there, or set download=True to let "
            "torch_geometric fetch them."
        )
        raise FileNotFoundError(
            f"{name} needs {', '.join(missing)}, which {_is(missing)} not there. "
            f"{remedy}"
        )
    if missing:
        _fetch(dataset, root, key)
    if dataset is None:
        return _read_arxiv(paths, max_bytes)
    if dataset == "Planetoid":
        return _read_planetoid(paths[0].parent, name)
    return _read_npz(paths[0], max_bytes)


def _paths(name, root):
    """Return the class of torch_geometric, its name of a graph, and its files."""
    if name == "OGBN-Arxiv":
        return None, None, [root / "ogbn_arxiv" / file for file in _ARXIV_FILES]
    if name in _NPZ_FILES:
        dataset, key, folder, file = _NPZ_FILES[name]
        files = [f"{file}.npz"]
    else:
        dataset, key, folder = "Planetoid", name, name
        files = [f"ind.{name.lower()}.{part}" for part in _PLANETOID_PARTS]
    return dataset, key, [root / folder / "raw" / file for file in files]


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
    kind = "a graph in compressed sparse rows, with the arrays attr_*, adj_* and labels"
    with decoding(path, kind), BoundedZip(path, max_bytes) as file:
        X, adjacency = _rows(file, "attr"), _rows(file, "adj")
        labels = file.read_array("labels").astype(np.int64)
        class_names = _text(file, "class_names")
    adjacency.data[:] = 1
    return X, adjacency, labels, class_names, None


def _rows(file, part):
    """Return one of the two matrices, after validation of its parts."""
    matrix = sparse.csr_array(
        tuple(
            file.read_array(f"{part}_{what}") for what in ("data", "indices", "indptr")
        ),
        shape=tuple(int(n) for n in file.read_array(f"{part}_shape")),
        dtype=np.float32,
    )
    matrix.check_format(full_check=True)
    matrix.sum_duplicates()
    return matrix


def _text(file, key):
    """Return an array of strings, or None if there is none without pickle."""
    try:
        values = file.read_array(key)
    except (KeyError, ValueError):  # none, or pickled objects, which are not read
        return None
    return np.array(values.tolist()) if values.dtype.kind == "U" else None


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
    split = {
        part: np.flatnonzero(mask.numpy())
        for part, mask in (
            ("train", data.train_mask),
            ("valid", data.val_mask),
            ("test", data.test_mask),
        )
    }
    return X, adjacency, data.y.numpy(), None, split


def _read_arxiv(paths, max_bytes):
    """Read the tables of ogbn-arxiv: edges, features, labels and a split by years."""
    edges, X, labels, *parts = (
        _read_table(path, np.float32 if i == 1 else np.int64, max_bytes)
        for i, path in enumerate(paths)
    )
    n_nodes = len(X)
    for path, table, n_columns in zip(
        paths, (edges, X, labels, *parts), (2, X.shape[1], 1, 1, 1, 1), strict=True
    ):
        if table.shape[1] != n_columns:
            raise ValueError(
                f"{path} must have {n_columns} column(s), got {table.shape[1]}."
            )
        if path not in paths[1:3] and not _are_nodes(table, n_nodes):
            raise ValueError(
                f"{path} must name nodes with features, from 0 to {n_nodes - 1}, got "
                f"{table.min()} to {table.max()}."
            )
    if len(labels) != n_nodes:
        raise ValueError(
            f"{paths[2]} must have a label for each of the {n_nodes} nodes, got "
            f"{len(labels)}."
        )
    ones = np.ones(len(edges), dtype=np.float32)
    adjacency = sparse.coo_array((ones, tuple(edges.T)), shape=(n_nodes, n_nodes))
    adjacency = sparse.csr_array(adjacency)
    adjacency.data[:] = 1  # repeated edges
    split = {
        name: np.sort(part[:, 0])
        for name, part in zip(("train", "valid", "test"), parts, strict=True)
    }
    if len(np.unique(np.concatenate(list(split.values())))) < sum(map(len, parts)):
        raise ValueError(f"The files of {paths[3].parent} name a node more than once.")
    return X, adjacency, labels[:, 0], None, split


def _are_nodes(table, n_nodes):
    return len(table) == 0 or (table.min() >= 0 and table.max() < n_nodes)


def _read_table(path, dtype, max_bytes):
    """Return the numbers of a compressed file of comma-separated values, (n, m)."""
    with decoding(path, "a gzip file"):
        content = read_gzip(path, max_bytes)
    with decoding(path, "a table of numbers"), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of empty files, refused below
        table = np.loadtxt(io.BytesIO(content), dtype, delimiter=",", ndmin=2)
    if table.size == 0:
        raise ValueError(f"{path} is empty.")
    return table
