"""Published graphs, from their raw files, and splits with left-out classes."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import io
import os
import warnings
from numbers import Integral, Real
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.preprocessing import normalize
from sklearn.utils import Bunch, check_random_state

from skood.utils._labels import check_labels, label_codes
from skood.utils._optional import import_optional
from skood.utils._param_validation import Interval, StrOptions, validate_params
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
    *(f"raw/{name}.csv.gz" for name in ("edge", "node-feat", "node-label")),
    *(f"split/time/{name}.csv.gz" for name in ("train", "valid", "test")),
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
            f"{name} needs {', '.join(missing)}, which "
            f"{'is' if len(missing) == 1 else 'are'} not there. {remedy}"
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
        files = [f"ind.{name.lower()}.{suffix}" for suffix in _PLANETOID_PARTS]
    return dataset, key, [root / folder / "raw" / file for file in files]


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
        X, adjacency = _matrix(file, "attr"), _matrix(file, "adj")
        labels = file.read_array("labels").astype(np.int64)
        class_names = _text(file, "class_names")
    adjacency.data[:] = 1
    return X, adjacency, labels, class_names, None


def _matrix(file, name):
    """Return one of the two matrices, after validation of its parts."""
    matrix = sparse.csr_array(
        tuple(
            file.read_array(f"{name}_{what}") for what in ("data", "indices", "indptr")
        ),
        shape=tuple(int(n) for n in file.read_array(f"{name}_shape")),
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
        subset: np.flatnonzero(mask.numpy())
        for subset, mask in (
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
        names_nodes = path not in paths[1:3] and len(table)
        if names_nodes and (table.min() < 0 or table.max() >= n_nodes):
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
        name: np.sort(nodes[:, 0])
        for name, nodes in zip(("train", "valid", "test"), parts, strict=True)
    }
    if len(np.unique(np.concatenate(list(split.values())))) < sum(map(len, parts)):
        raise ValueError(f"The files of {paths[3].parent} name a node more than once.")
    return X, adjacency, labels[:, 0], None, split


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


# Left-out classes of OS-1, OS-2, …
_OOD_SPLITS = {
    "CoraML": ((4, 5, 6), (0, 1, 2), (0, 2, 4), (1, 3, 5), (3, 4, 5)),
    "CiteSeerFull": ((4, 5), (0, 1), (1, 2), (3, 4), (0, 5)),
    "PubMed": ((2,), (0,), (1,)),
    "AmazonPhoto": ((5, 6, 7), (0, 1, 2), (3, 4, 5), (1, 4, 6), (2, 3, 7)),
    "AmazonComputers": (
        (5, 6, 7, 8, 9),
        (0, 1, 2, 3, 4),
        (2, 3, 4, 5, 7),
        (1, 2, 3, 6, 7),
        (2, 4, 5, 8, 9),
    ),
    "CoauthorCS": (
        (11, 12, 13, 14),
        (0, 1, 2, 3),
        (1, 2, 9, 12),
        (3, 6, 10, 13),
        (2, 3, 6, 10),
    ),
    "CoauthorPhysics": ((3, 4), (0, 1), (2, 3), (0, 4), (1, 2)),
    "OGBN-Arxiv": (
        tuple(range(25, 40)),
        tuple(range(15)),
        (0, 1, 5, 9, 10, 11, 15, 24, 25, 30, 32, 33, 34, 36, 38),
        (4, 7, 12, 15, 16, 17, 18, 21, 22, 25, 26, 28, 29, 31, 32),
        (5, 9, 10, 11, 12, 13, 19, 22, 24, 25, 29, 34, 35, 36, 37),
    ),
}

# Planetoid's CiteSeer differs from the study's: other nodes, other class numbers.
_GRAPHS = {*_OOD_SPLITS, "CiteSeer"}


@validate_params(
    {"name": [StrOptions(set(_OOD_SPLITS))]}, prefer_skip_nested_validation=True
)
def paper_ood_splits(name):
    """Return the choices of left-out classes for a published graph.

    These are the choices of the study of evidential probes [1]_: five for each graph,
    three for PubMed. :func:`split_nodes` computes the split for each of them.

    Read more in the :ref:`User Guide <datasets>`.

    Parameters
    ----------
    name : str
        "CoraML", "CiteSeerFull", "PubMed", "AmazonPhoto", "AmazonComputers",
        "CoauthorCS", "CoauthorPhysics" or "OGBN-Arxiv". The CiteSeer of the study is
        "CiteSeerFull",
        with 4,230 nodes. Planetoid's "CiteSeer" has 3,327 nodes and other class
        numbers, so that there are no choices for it.

    Returns
    -------
    splits : dict of str to tuple of int
        Left-out classes of "OS-1", "OS-2" and so on.

    See Also
    --------
    load_graph : The graphs.
    split_nodes : Training, validation and test nodes.

    References
    ----------
    .. [1] L. Yu, K. Li, P. K. Saha, Y. Lou, F. Chen, "Evidential uncertainty probes for
       graph neural networks", 2025.

    Examples
    --------
    >>> from skood.datasets import paper_ood_splits
    >>> paper_ood_splits("PubMed")
    {'OS-1': (2,), 'OS-2': (0,), 'OS-3': (1,)}
    """
    return {f"OS-{i}": left for i, left in enumerate(_OOD_SPLITS[name], start=1)}


@validate_params(
    {
        "y": ["array-like"],
        "left_out": ["array-like"],
        "n_train_per_class": [Interval(Integral, 1, None, closed="left")],
        "test_size": [
            Interval(Real, 0, 1, closed="neither"),
            Interval(Integral, 1, None, closed="left"),
        ],
        "split": [StrOptions({"random", "public"})],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def split_nodes(
    y,
    left_out=(),
    *,
    n_train_per_class=20,
    test_size=0.2,
    split="random",
    random_state=None,
):
    """Split the nodes of a graph by the protocol of left-out classes.

    First over all classes: `n_train_per_class` nodes of each class are for training; a
    random part of the other nodes is for testing and the rest for validation. Then the
    nodes of the left-out classes are removed from the training and the validation part.
    In the test part they are the out-of-distribution nodes.

    Read more in the :ref:`User Guide <datasets>`.

    Parameters
    ----------
    y : array-like of shape (n_nodes,) or NodeSet
        Labels of all nodes, or all nodes with labels.

    left_out : sequence of labels, default=()
        The left-out classes.

    n_train_per_class : int, default=20
        Number of training nodes of each class.

    test_size : float or int, default=0.2
        Fraction of all nodes, or number of nodes, for testing.

    split : {"random", "public"}, default="random"
        "public": the parts that are published with the graph, without the nodes of the
        left-out classes as above; `n_train_per_class`, `test_size` and `random_state`
        are not used. `y` must be the nodes of :func:`load_graph`, of
        "OGBN-Arxiv" (split by years) or of Planetoid.

    random_state : int, RandomState instance or None, default=None
        Determines the split. For a fixed seed, the test nodes do not depend on the
        left-out classes.

    Returns
    -------
    split : :class:`~sklearn.utils.Bunch`
        train, valid, test : ndarray of int
            Numbers of the nodes, in ascending order.
        is_ood : ndarray of shape (n_nodes,), dtype bool
            True for all nodes of the left-out classes.

    Raises
    ------
    ValueError
        If a class has too few nodes, or no test node is of a left-out class.

    See Also
    --------
    skood.model_selection.LeaveClassesOut : Cross-validation with left-out classes.

    Notes
    -----
    ``[(split.train, split.test)]`` is a `cv` of one split for scikit-learn.

    Examples
    --------
    >>> from skood.datasets import make_ood_graph, split_nodes
    >>> nodes, y = make_ood_graph(200, return_X_y=True, random_state=0)
    >>> split = split_nodes(y, left_out=[3], random_state=0)
    >>> len(split.train), len(split.valid), len(split.test)
    (60, 61, 40)
    >>> int(split.is_ood[split.test].sum())
    11
    """
    nodes = y if hasattr(y, "public_split") else None
    y = check_labels(y if nodes is None else _labels_of(nodes))
    classes = np.array(list(dict.fromkeys(y.tolist())), dtype=y.dtype)
    left_codes = label_codes(check_labels(left_out, "left_out"), classes)
    if (left_codes < 0).any() or len(set(left_codes)) == len(classes):
        raise ValueError(
            "left_out must name classes of y, but not all of them. y has "
            f"{classes.tolist()}. Got {left_out!r}."
        )
    if len(set(left_codes)) < len(left_codes):
        raise ValueError(f"left_out must name each class once, got {left_out!r}.")
    codes = label_codes(y, classes)
    if split == "public":
        train, valid, test = _public_parts(nodes)
    else:
        train, valid, test = _random_parts(
            classes, codes, n_train_per_class, test_size, random_state
        )
    is_ood = np.isin(codes, left_codes)
    if len(left_codes) and not is_ood[test].any():
        raise ValueError(
            f"None of the {len(test)} test nodes is of the left-out classes "
            f"{left_out!r}. Raise test_size or give more nodes."
        )
    return Bunch(
        train=np.sort(train[~is_ood[train]]),
        valid=np.sort(valid[~is_ood[valid]]),
        test=np.sort(test),
        is_ood=is_ood,
    )


def _labels_of(nodes):
    """Return the labels of all nodes of a graph, or raise."""
    if nodes.labels is None or not np.array_equal(
        nodes.nodes, np.arange(nodes.n_nodes)
    ):
        raise ValueError(
            f"split_nodes splits all nodes of a graph, with labels, got {nodes!r}"
            f"{' without labels' if nodes.labels is None else ''}."
        )
    return nodes.labels


def _public_parts(nodes):
    """Return training, validation and test nodes as published."""
    split = None if nodes is None else nodes.public_split
    if split is None:
        raise ValueError(
            "split='public' needs nodes of a graph with a public split as y: "
            "load_graph('OGBN-Arxiv', root), or one of Planetoid. Pass split='random' "
            "for other graphs."
        )
    return split["train"], split["valid"], split["test"]


def _random_parts(classes, codes, n_train_per_class, test_size, random_state):
    """Draw training, validation and test nodes."""
    n_nodes = len(codes)
    n_test = (
        test_size if isinstance(test_size, Integral) else round(test_size * n_nodes)
    )
    _check_counts(classes, codes, n_train_per_class, n_test)
    rng = check_random_state(random_state)
    train = np.concatenate(
        [
            rng.permutation(np.flatnonzero(codes == code))[:n_train_per_class]
            for code in range(len(classes))
        ]
    )
    others = rng.permutation(np.setdiff1d(np.arange(n_nodes), train))
    return train, others[n_test:], others[:n_test]


def _check_counts(classes, codes, n_train_per_class, n_test):
    """Raise an error if there are too few nodes for the parts."""
    counts = np.bincount(codes)
    if counts.min() < n_train_per_class:
        raise ValueError(
            f"Class {classes[counts.argmin()].item()!r} has {counts.min()} nodes, "
            f"fewer than n_train_per_class={n_train_per_class}. Lower it, or drop the "
            "nodes of this class."
        )
    n_train = n_train_per_class * len(classes)
    if not 0 < n_test <= len(codes) - n_train:
        raise ValueError(
            f"Of {len(codes)} nodes, {n_train} are for training, so that {n_test} "
            "cannot be for testing. Change test_size or n_train_per_class."
        )


@validate_params(
    {
        "name": [StrOptions(_GRAPHS)],
        "root": [str, os.PathLike],
        "download": ["boolean"],
        "binarize": ["boolean", None],
        "row_normalize": ["boolean", None],
        "symmetrize": ["boolean"],
        "drop_loops": ["boolean"],
        "label_names": ["boolean"],
        "return_X_y": ["boolean"],
        "max_bytes": [Interval(Integral, 0, None, closed="left"), None],
    },
    prefer_skip_nested_validation=True,
)
def load_graph(
    name,
    root,
    *,
    download=False,
    binarize=None,
    row_normalize=None,
    symmetrize=True,
    drop_loops=True,
    label_names=False,
    return_X_y=False,
    max_bytes=None,
):
    """Load a published graph from its raw files.

    The files must be in the layout of ``torch_geometric.datasets``, for instance
    ``root/cora_ml/raw/cora_ml.npz``. They are read without conversion: nothing is
    written to `root`, and nothing is downloaded unless `download` is True.

    Read more in the :ref:`User Guide <datasets>`.

    Parameters
    ----------
    name : str
        "CoraML" or "CiteSeerFull" (of ``CitationFull``), "CiteSeer" or "PubMed" (of
        ``Planetoid``), "AmazonPhoto" or "AmazonComputers" (of ``Amazon``), "CoauthorCS"
        or "CoauthorPhysics" (of ``Coauthor``), or "OGBN-Arxiv", in the layout of
        Open Graph Benchmark [1]_. There are two graphs of CiteSeer:
        "CiteSeerFull" has 4,230 nodes and 602 features, and is used in the study of
        evidential probes (:func:`paper_ood_splits`); "CiteSeer" has 3,327 nodes and
        3,703 features.

    root : str or path-like
        Folder of all graphs.

    download : bool, default=False
        Whether torch_geometric downloads missing raw files; not of "OGBN-Arxiv".

    binarize : bool, default=None
        Whether to replace positive features by ones. None: unless features are real
        numbers, as the averages of word embeddings of "OGBN-Arxiv".

    row_normalize : bool, default=None
        Whether to divide the features of each node, binarized or not, by the sum of
        their magnitudes. None: as `binarize`.

    symmetrize : bool, default=True
        Whether to add the reverse of each edge.

    drop_loops : bool, default=True
        Whether to drop edges from a node to itself; torch_geometric always drops
        them for Planetoid.

    label_names : bool, default=False
        Whether labels are the names of the classes, if the file has them, instead of
        their numbers.

    return_X_y : bool, default=False
        Whether to return `(nodes, y)`.

    max_bytes : int, default=None
        Maximal size of the arrays of a compressed file in bytes. None: 100 times the
        size of the file, at least 64 MiB.

    Returns
    -------
    nodes : :class:`~skood.graph.NodeSet`
        All nodes, with features, sparse except for "OGBN-Arxiv", and labels. Edges have
        a weight of one. Graphs of Planetoid and "OGBN-Arxiv" have a ``public_split``.

    (nodes, y) : tuple if ``return_X_y=True``
        The nodes and their labels.

    Raises
    ------
    FileNotFoundError
        If files are missing; the message names them.

    ValueError
        If a file is not such a graph, unpacks to more than `max_bytes`, or has no class
        names.

    See Also
    --------
    paper_ood_splits : Classes to leave out of these graphs.
    make_ood_graph : A generated graph, without files.

    Notes
    -----
    The files of Planetoid are pickles, which can run any code when they are loaded: use
    such files only from a trusted source. Planetoid's CiteSeer has nodes without
    features and without a class, which get the class 0.

    References
    ----------
    .. [1] W. Hu, M. Fey, M. Zitnik, Y. Dong, H. Ren, B. Liu, M. Catasta, J. Leskovec,
       "Open graph benchmark: datasets for machine learning on graphs", NeurIPS 2020.

    Examples
    --------
    >>> from skood.datasets import load_graph
    >>> load_graph("CoraML", "data")  # doctest: +SKIP
    NodeSet of 2995 of 2995 nodes with 2879 features and 16316 edges
    """
    from skood.datasets._graphs import read_graph
    from skood.graph import NodeSet

    X, adjacency, labels, class_names, split = read_graph(
        name, Path(root).expanduser(), download=download, max_bytes=max_bytes
    )
    if label_names:
        if class_names is None:
            raise ValueError(
                f"The raw files of {name} do not name its classes. Leave label_names "
                "at False, for their numbers."
            )
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(class_names):
            raise ValueError(
                f"The raw files of {name} name {len(class_names)} classes, and labels "
                f"are from {labels.min()} to {labels.max()}."
            )
        labels = class_names[labels]
    are_words = sparse.issparse(X)
    if are_words if binarize is None else binarize:
        values = X.data if are_words else X
        values[values > 0] = 1
    if are_words if row_normalize is None else row_normalize:
        X = normalize(X, norm="l1")
    if symmetrize:
        adjacency = sparse.csr_array(adjacency.maximum(adjacency.T))
    if drop_loops:
        first = np.repeat(np.arange(adjacency.shape[0]), np.diff(adjacency.indptr))
        adjacency.data[first == adjacency.indices] = 0  # removes the edge
    nodes = NodeSet((X, adjacency), labels=labels)
    nodes.graph.public_split = split
    return (nodes, nodes.labels) if return_X_y else nodes
