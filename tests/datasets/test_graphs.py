"""Tests of the loader of published graphs, on files made here, and of their splits."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import gzip
import os
import pickle
import re
import sys
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from skood.datasets import (
    load_graph,
    make_ood_graph,
    paper_ood_splits,
    split_nodes,
)

# 5 nodes; node 3 has no word, node 4 no edge but a loop; 0 -> 1 and 1 -> 0, 2 -> 1
X = np.array(
    [[0.5, 0, 2.0], [0, 0.25, 0], [1.5, 0, 0], [0, 0, 0], [1.0, 1.0, 1.0]], np.float32
)
ADJACENCY = np.zeros((5, 5), np.float32)
ADJACENCY[[0, 1, 2, 4], [1, 0, 1, 4]] = 1
LABELS = np.array([1, 0, 1, 2, 0])
NAMES = np.array(["ant", "bee", "cow"])
SETS = (
    ("CoraML", "CitationFull", "Cora_ML"),
    ("CiteSeerFull", "CitationFull", "CiteSeer"),
    ("AmazonPhoto", "Amazon", "Photo"),
    ("AmazonComputers", "Amazon", "Computers"),
    ("CoauthorCS", "Coauthor", "CS"),
    ("CoauthorPhysics", "Coauthor", "Physics"),
    ("CiteSeer", "Planetoid", "CiteSeer"),
    ("PubMed", "Planetoid", "PubMed"),
)
FILES = {
    "CoraML": "cora_ml/raw/cora_ml.npz",
    "CiteSeerFull": "citeseer/raw/citeseer.npz",
    "AmazonPhoto": "Photo/raw/amazon_electronics_photo.npz",
    "AmazonComputers": "Computers/raw/amazon_electronics_computers.npz",
    "CoauthorCS": "CS/raw/ms_academic_cs.npz",
    "CoauthorPhysics": "Physics/raw/ms_academic_phy.npz",
}


def csr_arrays(**matrices):
    """The arrays of matrices in compressed sparse rows, by the format of a file."""
    arrays = {}
    for name, matrix in matrices.items():
        csr = sparse.csr_matrix(matrix)
        arrays[f"{name}_data"] = csr.data
        arrays[f"{name}_indices"] = csr.indices
        arrays[f"{name}_indptr"] = csr.indptr
        arrays[f"{name}_shape"] = np.array(csr.shape)
    return arrays


def npz_arrays(**changes):
    arrays = csr_arrays(attr=X, adj=ADJACENCY) | {"labels": LABELS}
    arrays |= {"class_names": NAMES, **changes}
    return {key: value for key, value in arrays.items() if value is not None}


def write_npz(root, name="CoraML", **changes):
    path = root / FILES[name]
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **npz_arrays(**changes))
    return path


# torch_geometric's reader of Planetoid wants 500 nodes for validation: as many, without
# words and edges, of class 0, are put between the nodes 2 and 3.
N_MORE = 500
PLACES = [0, 1, 2, N_MORE + 3, N_MORE + 4]


def write_planetoid(folder, name="PubMed", test_nodes=(N_MORE + 4, N_MORE + 3)):
    """x has the nodes 0 and 1, allx all but two, tx those two in another order."""
    one_hot = np.eye(3, dtype=np.int32)[LABELS]
    more = np.eye(3, dtype=np.int32)[np.zeros(N_MORE, int)]
    csr = sparse.csr_matrix
    parts = {
        "x": csr(X[:2]),
        "y": one_hot[:2],
        "allx": csr(np.vstack([X[:3], np.zeros((N_MORE, 3), np.float32)])),
        "ally": np.vstack([one_hot[:3], more]),
        "tx": csr(X[[4, 3]]),
        "ty": one_hot[[4, 3]],
        "graph": {0: [1], 1: [0], 2: [1], 3: [], N_MORE + 4: [N_MORE + 4]},
    }
    folder.mkdir(parents=True, exist_ok=True)
    for part, value in parts.items():
        path = folder / f"ind.{name.lower()}.{part}"
        path.write_bytes(pickle.dumps(value, protocol=2))
    listed = "\n".join(str(node) for node in test_nodes)
    (folder / f"ind.{name.lower()}.test.index").write_text(f"{listed}\n")


# --- loading ---------------------------------------------------------------------


def test_defaults(tmp_path):
    write_npz(tmp_path)
    nodes = load_graph("CoraML", tmp_path)
    assert sparse.issparse(nodes.features)
    assert nodes.dtype == np.float32
    third = 1 / 3
    expected = [[0.5, 0, 0.5], [0, 1, 0], [1, 0, 0], [0, 0, 0], [third] * 3]
    assert_allclose(nodes.features.toarray(), expected, rtol=1e-6)
    edges = np.zeros((5, 5))
    edges[[0, 1, 1, 2], [1, 0, 2, 1]] = 1
    assert_array_equal(nodes.adjacency.toarray(), edges)
    assert nodes.adjacency.nnz == 4
    assert_array_equal(nodes.labels, LABELS)


def test_as_the_file_has_it(tmp_path):
    write_npz(tmp_path)
    nodes = load_graph(
        "CoraML",
        str(tmp_path),
        binarize=False,
        row_normalize=False,
        symmetrize=False,
        drop_loops=False,
    )
    assert_array_equal(nodes.features.toarray(), X)
    assert_array_equal(nodes.adjacency.toarray(), ADJACENCY)


def test_each_option_alone(tmp_path):
    write_npz(tmp_path)
    shares = load_graph("CoraML", tmp_path, binarize=False).features
    assert_allclose(shares.toarray()[0], [0.2, 0, 0.8], rtol=1e-6)
    ones = load_graph("CoraML", tmp_path, row_normalize=False).features
    assert_array_equal(ones.toarray(), X > 0)
    directed = load_graph("CoraML", tmp_path, symmetrize=False).adjacency
    assert directed[2, 1] == 1
    assert directed[1, 2] == directed[4, 4] == 0
    looped = load_graph("CoraML", tmp_path, drop_loops=False).adjacency
    assert looped[4, 4] == looped[1, 2] == 1


def test_edges_have_unit_weight(tmp_path):
    weights = np.full(4, 0.5, np.float32)
    write_npz(tmp_path, adj_data=weights)
    assert_array_equal(load_graph("CoraML", tmp_path).adjacency.data, np.ones(4))


def test_repeated_entries_are_merged(tmp_path):
    # node 0 has the word 2 twice, and the edge 0 -> 1 twice
    write_npz(
        tmp_path,
        attr_data=np.ones(3, np.float32),
        attr_indices=np.array([2, 2, 0]),
        attr_indptr=np.array([0, 3, 3, 3, 3, 3]),
        adj_data=np.ones(2, np.float32),
        adj_indices=np.array([1, 1]),
        adj_indptr=np.array([0, 2, 2, 2, 2, 2]),
    )
    nodes = load_graph("CoraML", tmp_path)
    assert_array_equal(nodes.features.toarray()[0], [0.5, 0, 0.5])
    assert_array_equal(nodes.adjacency.data, [1, 1])


@pytest.mark.parametrize("name", sorted(FILES))
def test_each_compressed_graph_has_its_file(tmp_path, name):
    write_npz(tmp_path, name)
    nodes, y = load_graph(name, tmp_path, return_X_y=True)
    assert len(nodes) == 5
    assert_array_equal(y, LABELS)


def test_home_folder_is_understood(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    write_npz(tmp_path / "graphs")
    assert len(load_graph("CoraML", "~/graphs")) == 5


def test_names_of_classes(tmp_path):
    write_npz(tmp_path)
    y = load_graph("CoraML", tmp_path, label_names=True).labels
    assert_array_equal(y, ["bee", "ant", "bee", "cow", "ant"])


@pytest.mark.parametrize("class_names", [None, NAMES.astype(object), np.arange(3)])
def test_no_names_of_classes(tmp_path, class_names):
    """There are none; they are pickles, which are not read; they are no text."""
    write_npz(tmp_path, class_names=class_names)
    assert_array_equal(load_graph("CoraML", tmp_path).labels, LABELS)
    with pytest.raises(ValueError, match="raw files of CoraML do not name its classes"):
        load_graph("CoraML", tmp_path, label_names=True)


def test_nothing_is_written_and_torch_geometric_not_needed(tmp_path, monkeypatch):
    for module in ("torch_geometric", "torch_geometric.datasets", "torch_geometric.io"):
        monkeypatch.setitem(sys.modules, module, None)
    path = write_npz(tmp_path)
    path.parent.chmod(0o555)
    try:
        load_graph("CoraML", tmp_path)
    finally:
        path.parent.chmod(0o755)
    actual = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert actual == [path]


def test_planetoid(tmp_path):
    pytest.importorskip("torch_geometric.io")
    write_planetoid(tmp_path / "PubMed" / "raw")
    before = list(warnings.filters)
    nodes = load_graph("PubMed", tmp_path, binarize=False, row_normalize=False)
    assert warnings.filters == before
    assert nodes.shape == (N_MORE + 5, 3)
    assert sparse.issparse(nodes.features)
    assert_array_equal(nodes[PLACES].features.toarray(), X)
    assert_array_equal(nodes[PLACES].labels, LABELS)
    assert nodes[3 : N_MORE + 3].features.nnz == 0
    edges = np.zeros(nodes.adjacency.shape)
    edges[[0, 1, 1, 2], [1, 0, 2, 1]] = 1
    assert_array_equal(nodes.adjacency.toarray(), edges)
    directed = load_graph("PubMed", tmp_path, symmetrize=False, drop_loops=False)
    edges[1, 2] = 0
    assert_array_equal(directed.adjacency.toarray(), edges)  # the loop is gone
    with pytest.raises(ValueError, match="raw files of PubMed do not name"):
        load_graph("PubMed", tmp_path, label_names=True)


def test_citeseer_with_nodes_without_a_class(tmp_path):
    """Its list of test nodes has gaps: such nodes have neither words nor a class."""
    pytest.importorskip("torch_geometric.io")
    write_planetoid(tmp_path / "CiteSeer" / "raw", "CiteSeer", (N_MORE + 5, N_MORE + 3))
    nodes = load_graph("CiteSeer", tmp_path, row_normalize=False)
    assert nodes.n_nodes == N_MORE + 6
    last = nodes[-3:]
    assert_array_equal(last.features.toarray(), [X[3] > 0, [0, 0, 0], X[4] > 0])
    assert_array_equal(last.labels, [2, 0, 0])


def test_both_graphs_of_citeseer(tmp_path):
    """The one of the study is CitationFull's; Planetoid's is kept under its name."""
    pytest.importorskip("torch_geometric.io")
    write_npz(tmp_path, "CiteSeerFull")
    with pytest.raises(FileNotFoundError, match=r"CiteSeer needs .*ind\.citeseer\.x"):
        load_graph("CiteSeer", tmp_path)
    write_planetoid(tmp_path / "CiteSeer" / "raw", "CiteSeer")
    full, planetoid = (
        load_graph(name, tmp_path, binarize=False, row_normalize=False)
        for name in ("CiteSeerFull", "CiteSeer")
    )
    assert (len(full), len(planetoid)) == (5, 5 + N_MORE)
    assert_array_equal(full.features.toarray(), X)
    assert_array_equal(full.labels, LABELS)
    assert paper_ood_splits("CiteSeerFull")["OS-1"] == (4, 5)
    with pytest.raises(ValueError, match=r"'CiteSeerFull'.* Got 'CiteSeer' instead"):
        paper_ood_splits("CiteSeer")


@pytest.mark.parametrize("name", ["CoraML", "CiteSeerFull"])
def test_as_torch_geometric_reads_it(tmp_path, name):
    """Its binarized, symmetric version of the same file, dense."""
    pytest.importorskip("torch_geometric", minversion="2.6")  # older: old torch.load
    from torch_geometric import datasets

    write_npz(tmp_path, name)
    key = {"CoraML": "Cora_ML", "CiteSeerFull": "CiteSeer"}[name]
    theirs = datasets.CitationFull(str(tmp_path), key)[0]
    nodes = load_graph(name, tmp_path, row_normalize=False)
    assert_array_equal(nodes.features.toarray(), theirs.x.numpy())
    assert_array_equal(nodes.labels, theirs.y.numpy())
    edges = nodes.adjacency.tocoo()
    assert_array_equal(np.stack([edges.row, edges.col]), theirs.edge_index.numpy())


@pytest.mark.parametrize(("name", "dataset", "key"), SETS)
def test_download(tmp_path, monkeypatch, name, dataset, key):
    """torch_geometric fetches to where we read, and processes nothing."""
    datasets = pytest.importorskip("torch_geometric.datasets")
    calls = []

    def download(self):
        calls.append(self.name)
        if dataset == "Planetoid":
            write_planetoid(tmp_path / name / "raw", name)
        else:
            np.savez(self.raw_paths[0], **npz_arrays())

    monkeypatch.setattr(getattr(datasets, dataset), "download", download)
    with pytest.raises(FileNotFoundError, match=f"{name} needs "):
        load_graph(name, tmp_path)
    assert not calls
    nodes = load_graph(name, tmp_path, download=True)
    assert len(nodes) == 5 + N_MORE * (dataset == "Planetoid")
    assert [call.lower() for call in calls] == [key.lower()]
    load_graph(name, tmp_path, download=True)  # now it is there
    load_graph(name, tmp_path)
    assert len(calls) == 1
    assert not list(tmp_path.rglob("processed"))


def test_missing_files(tmp_path):
    path = tmp_path / FILES["CoraML"]
    with pytest.raises(FileNotFoundError) as caught:
        load_graph("CoraML", tmp_path)
    assert str(caught.value) == (
        f"CoraML needs {path}, which is not there. Put the raw files there, or set "
        "download=True to let torch_geometric fetch them."
    )
    folder = tmp_path / "PubMed" / "raw"
    write_planetoid(folder)
    (folder / "ind.pubmed.tx").unlink()
    (folder / "ind.pubmed.test.index").unlink()
    with pytest.raises(FileNotFoundError) as caught:
        load_graph("PubMed", tmp_path)
    names = [str(folder / f"ind.pubmed.{part}") for part in ("tx", "test.index")]
    assert f"PubMed needs {', '.join(names)}, which are not" in str(caught.value)


def test_without_torch_geometric(tmp_path, monkeypatch):
    for module in ("torch_geometric", "torch_geometric.datasets", "torch_geometric.io"):
        monkeypatch.setitem(sys.modules, module, None)
    message = r'not installed: pip install "torch-geometric>='
    with pytest.raises(ImportError, match=message):
        load_graph("CoraML", tmp_path, download=True)
    write_planetoid(tmp_path / "PubMed" / "raw")
    with pytest.raises(ImportError, match=message):
        load_graph("PubMed", tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"adj_data": None}, "adj_data is not a file in the archive"),
        ({"labels": None}, "labels is not a file in the archive"),
        ({"attr_indices": np.array([0, 2, 1, 0, 0, 1, 9])}, "must be < 3"),
        ({"labels": LABELS.astype(object)}, "allow_pickle=False"),
    ],
)
def test_other_files_are_refused(tmp_path, changes, message):
    path = write_npz(tmp_path, **changes)
    with pytest.raises(ValueError, match=message) as caught:
        load_graph("CoraML", tmp_path)
    assert f"{path} is not a graph in compressed sparse rows" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short", b"no archive"])
def test_broken_files_are_refused(tmp_path, content):
    path = write_npz(tmp_path)
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not a graph in compressed sparse rows"):
        load_graph("CoraML", tmp_path)


def test_archive_that_unpacks_to_much_more(tmp_path):
    path = write_npz(tmp_path)
    arrays = npz_arrays(
        attr_data=np.zeros(2**24, dtype=np.float32), more=np.zeros(2**10)
    )
    np.savez_compressed(path, **arrays)
    assert path.stat().st_size < 2**20
    with pytest.raises(ValueError, match=r"unpacks to .*at most 67108864 .*max_bytes"):
        load_graph("CoraML", tmp_path)
    with pytest.raises(ValueError, match="is not a graph in compressed sparse rows"):
        load_graph("CoraML", tmp_path, max_bytes=2**27)
    n_bytes = write_npz(tmp_path).stat().st_size
    assert len(load_graph("CoraML", tmp_path, max_bytes=n_bytes)) > 0
    with pytest.raises(ValueError, match="at most 100 are read"):
        load_graph("CoraML", tmp_path, max_bytes=100)


def test_sizes_that_differ_are_refused(tmp_path):
    write_npz(tmp_path, labels=LABELS[:4])
    with pytest.raises(ValueError, match="one label per node, 5; got 4"):
        load_graph("CoraML", tmp_path)


def test_unknown_graph(tmp_path):
    with pytest.raises(ValueError, match="'name' parameter of load_graph must be a st"):
        load_graph("Karate", tmp_path)


# --- OGBN-Arxiv ----------------------------------------------------------------------

# 5 nodes with two features; an edge is there twice, and one is a loop
ARXIV = {
    "raw/node-feat": "0.5,-1.5\n0,0.25\n-2,0\n0,0\n1e-3,1\n",
    "raw/edge": "0,1\n0,1\n2,1\n4,4\n",
    "raw/node-label": "1\n0\n1\n2\n0\n",
    "split/time/train": "3\n0\n",
    "split/time/valid": "4\n",
    "split/time/test": "2\n1\n",
}


def write_arxiv(root, **changes):
    """Compressed tables; a change of None leaves a file out."""
    for name, text in {**ARXIV, **changes}.items():
        path = root / "ogbn_arxiv" / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            content = text if isinstance(text, bytes) else gzip.compress(text.encode())
            path.write_bytes(content)
    return root / "ogbn_arxiv"


def test_arxiv(tmp_path):
    write_arxiv(tmp_path)
    nodes, y = load_graph("OGBN-Arxiv", tmp_path, return_X_y=True)
    features = np.array([[0.5, -1.5], [0, 0.25], [-2, 0], [0, 0], [1e-3, 1]])
    assert_array_equal(nodes.features, features.astype(np.float32))
    edges = np.zeros((5, 5))
    edges[[0, 1, 1, 2], [1, 0, 2, 1]] = 1
    assert_array_equal(nodes.adjacency.toarray(), edges)
    assert_array_equal(y, [1, 0, 1, 2, 0])
    changed = load_graph("OGBN-Arxiv", tmp_path, binarize=True, row_normalize=True)
    expected = [[1 / 2.5, -1.5 / 2.5], [0, 1], [-1, 0], [0, 0], [0.5, 0.5]]
    assert_allclose(changed.features, expected, rtol=1e-6)
    directed = load_graph("OGBN-Arxiv", tmp_path, symmetrize=False, drop_loops=False)
    assert_array_equal(
        np.argwhere(directed.adjacency.toarray()), [[0, 1], [2, 1], [4, 4]]
    )
    with pytest.raises(ValueError, match="OGBN-Arxiv do not name its classes"):
        load_graph("OGBN-Arxiv", tmp_path, label_names=True)


def test_public_split(tmp_path):
    write_arxiv(tmp_path)
    nodes = load_graph("OGBN-Arxiv", tmp_path)
    for some in (nodes, pickle.loads(pickle.dumps(nodes)), nodes[[2, 1]].whole()):
        split = split_nodes(some, split="public")
        assert [split[part].tolist() for part in ("train", "valid", "test")] == [
            [0, 3],
            [4],
            [1, 2],
        ]
        assert not split.is_ood.any()
    # 0 and 2 are of class 1
    split = split_nodes(nodes, [1], split="public")
    assert [split[part].tolist() for part in ("train", "valid", "test")] == [
        [3],
        [4],
        [1, 2],
    ]
    assert_array_equal(split.is_ood, [True, False, True, False, False])
    with pytest.raises(ValueError, match="None of the 2 test nodes is of the left-out"):
        split_nodes(nodes, [2], split="public")
    message = r"split='public' needs nodes of a graph with a public split as y: load_"
    with pytest.raises(ValueError, match=message):
        split_nodes(nodes.labels, split="public")
    with pytest.raises(ValueError, match=message):
        split_nodes(make_ood_graph(50, random_state=0), split="public")
    with pytest.raises(
        ValueError, match=r"all nodes of a graph, .* got NodeSet of 2 of"
    ):
        split_nodes(nodes[[0, 1]], split="public")


def test_nodes_in_place_of_labels():
    nodes, y = make_ood_graph(200, return_X_y=True, random_state=0)
    ours = split_nodes(nodes, [1], random_state=0)
    theirs = split_nodes(y, [1], random_state=0)
    for part in ("train", "valid", "test", "is_ood"):
        assert_array_equal(ours[part], theirs[part])


def test_public_split_of_planetoid(tmp_path):
    pytest.importorskip("torch_geometric.io")
    write_planetoid(tmp_path / "PubMed" / "raw")
    nodes = load_graph("PubMed", tmp_path)
    split = split_nodes(nodes, split="public")
    assert_array_equal(split.train, [0, 1])
    assert_array_equal(split.valid, np.arange(2, N_MORE + 2))
    assert_array_equal(split.test, [N_MORE + 3, N_MORE + 4])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("raw/edge", b"0,1\n", "edge.csv.gz is not a gzip file: Not a gzipped file"),
        (
            "raw/edge",
            gzip.compress(b"0,1\n" * 99, mtime=0)[:-9],
            "is not a gzip file: ",
        ),
        ("raw/edge", "0;1\n", "edge.csv.gz is not a table of numbers: could not conv"),
        ("raw/edge", "", "edge.csv.gz is empty"),
        ("raw/edge", "0,1,2\n", r"must have 2 column\(s\), got 3"),
        ("raw/edge", "0,5\n", r"nodes with features, from 0 to 4, got 0 to 5"),
        ("raw/edge", "-1,2\n", r"nodes with features, from 0 to 4, got -1 to 2"),
        ("raw/node-feat", "1,2\n3\n", "node-feat.csv.gz is not a table of numbers"),
        ("raw/node-label", "1\n" * 4, "label for each of the 5 nodes, got 4"),
        ("raw/node-label", "1.5\n" * 5, "node-label.csv.gz is not a table of numb"),
        (
            "split/time/test",
            "5\n",
            r"test.csv.gz must name nodes with features, from 0 to 4",
        ),
        ("split/time/test", "3\n", "time name a node more than once"),
        ("split/time/test", None, r"needs .*test.csv.gz, which is not there\. Downl"),
    ],
)
def test_broken_files_of_arxiv(tmp_path, name, content, message):
    write_arxiv(tmp_path, **{name: content})
    kind = FileNotFoundError if content is None else ValueError
    with pytest.raises(kind, match=message):
        load_graph("OGBN-Arxiv", tmp_path, download=True)


def test_tables_that_unpack_to_more_than_permitted(tmp_path):
    folder = write_arxiv(tmp_path)
    path = folder / "raw" / "node-feat.csv.gz"
    n_bytes = len(ARXIV["raw/node-feat"])
    assert len(load_graph("OGBN-Arxiv", tmp_path, max_bytes=n_bytes)) == 5
    message = rf"{re.escape(str(path))} has \d+ bytes and unpacks to {n_bytes} or more"
    with pytest.raises(ValueError, match=message):
        load_graph("OGBN-Arxiv", tmp_path, max_bytes=n_bytes - 1)


# --- on the real files ---------------------------------------------------------------

# Table 6 of the study of evidential probes: nodes, features, directed edges, classes
TABLE_6 = {
    "CoraML": (2995, 2879, 16316, 7),
    "CiteSeerFull": (4230, 602, 10674, 6),
    "PubMed": (19717, 500, 88648, 3),
    "AmazonComputers": (13752, 767, 491722, 10),
    "AmazonPhoto": (7650, 745, 238162, 8),
    "CoauthorCS": (18333, 6805, 163788, 15),
    "CoauthorPhysics": (34493, 8415, 495924, 5),
    "OGBN-Arxiv": (169343, 128, 2315598, 40),
}
COUNTS = {
    "CoraML": [354, 402, 452, 442, 857, 193, 295],
    "AmazonPhoto": [369, 1686, 703, 915, 882, 823, 1941, 331],
}
PUBLIC = {"OGBN-Arxiv": (90941, 29799, 48603), "PubMed": (60, 500, 1000)}


@pytest.mark.skipif("SKOOD_DATA" not in os.environ, reason="SKOOD_DATA is not set")
@pytest.mark.parametrize("name", TABLE_6)
def test_sizes_are_those_of_the_study(name):
    try:
        nodes = load_graph(name, os.environ["SKOOD_DATA"])
    except FileNotFoundError as error:
        pytest.skip(str(error))
    counts = np.bincount(nodes.labels)
    assert (*nodes.shape, nodes.adjacency.nnz, len(counts)) == TABLE_6[name]
    assert_array_equal(counts, COUNTS.get(name, counts))
    if name in PUBLIC:
        split = nodes.public_split
        assert (
            tuple(len(split[part]) for part in ("train", "valid", "test"))
            == (PUBLIC[name])
        )


# --- splits ------------------------------------------------------------------------


def test_paper_splits():
    assert paper_ood_splits("CoraML") == {
        "OS-1": (4, 5, 6),
        "OS-2": (0, 1, 2),
        "OS-3": (0, 2, 4),
        "OS-4": (1, 3, 5),
        "OS-5": (3, 4, 5),
    }
    assert list(paper_ood_splits("PubMed").values()) == [(2,), (0,), (1,)]
    splits = paper_ood_splits("OGBN-Arxiv")  # of Table 7
    assert splits["OS-1"] == tuple(range(25, 40))
    assert splits["OS-2"] == tuple(range(15))
    assert [sum(left) for left in splits.values()] == [480, 105, 303, 303, 321]
    with pytest.raises(
        ValueError, match="'name' parameter of paper_ood_splits must be"
    ):
        paper_ood_splits("Cora")


@pytest.mark.parametrize(
    ("name", "n_classes", "n_left", "n_splits"),
    [
        ("CoraML", 7, 3, 5),
        ("CiteSeerFull", 6, 2, 5),
        ("PubMed", 3, 1, 3),
        ("AmazonPhoto", 8, 3, 5),
        ("AmazonComputers", 10, 5, 5),
        ("CoauthorCS", 15, 4, 5),
        ("CoauthorPhysics", 5, 2, 5),
        ("OGBN-Arxiv", 40, 15, 5),
    ],
)
def test_paper_splits_leave_out_classes_that_exist(name, n_classes, n_left, n_splits):
    splits = paper_ood_splits(name)
    assert list(splits) == [f"OS-{i}" for i in range(1, n_splits + 1)]
    assert len(set(splits.values())) == n_splits
    for left in splits.values():
        assert len(set(left)) == len(left) == n_left
        assert set(left) <= set(range(n_classes))


Y = np.repeat([0, 1, 2, 3], [40, 60, 80, 20])[np.random.RandomState(0).permutation(200)]


def test_protocol():
    split = split_nodes(Y, [1, 3], n_train_per_class=10, random_state=0)
    assert_array_equal(split.is_ood, np.isin(Y, [1, 3]))
    assert len(split.test) == 40
    assert_array_equal(np.bincount(Y[split.train]), [10, 0, 10])
    assert set(Y[split.valid]) == {0, 2}
    assert set(Y[split.test]) == {0, 1, 2, 3}
    together = np.concatenate([split.train, split.valid, split.test])
    assert len(set(together)) == len(together)
    # what is in no part was for training or validation, and is left out
    missing = np.setdiff1d(np.arange(200), together)
    assert_array_equal(
        np.union1d(missing, split.test[split.is_ood[split.test]]),
        np.flatnonzero(split.is_ood),
    )
    # all nodes of the classes that stay are in some part
    assert_array_equal(
        np.sort(together[~split.is_ood[together]]), np.flatnonzero(~split.is_ood)
    )
    for part in (split.train, split.valid, split.test):
        assert_array_equal(part, np.sort(part))


def test_the_split_is_made_before_classes_leave():
    """All choices of left-out classes cut from one split."""
    whole = split_nodes(Y, random_state=3)
    assert not whole.is_ood.any()
    assert_array_equal(np.bincount(Y[whole.train]), [20] * 4)
    assert len(whole.train) + len(whole.valid) + len(whole.test) == 200
    for left in [(0,), (1, 2)]:
        split = split_nodes(Y, left, random_state=3)
        assert_array_equal(split.test, whole.test)
        assert_array_equal(split.train, whole.train[~np.isin(Y[whole.train], left)])
        assert_array_equal(split.valid, whole.valid[~np.isin(Y[whole.valid], left)])


def test_seeds():
    first = split_nodes(Y, [0], random_state=0)
    again = split_nodes(Y, [0], random_state=0)
    other = split_nodes(Y, [0], random_state=1)
    assert_array_equal(first.test, again.test)
    assert_array_equal(first.train, again.train)
    assert not np.array_equal(first.test, other.test)
    assert not np.array_equal(first.train, other.train)


def test_test_nodes_are_drawn_alike():
    """The fraction of each class in the test part follows what is left of it."""
    drawn = [split_nodes(Y, random_state=seed).test for seed in range(200)]
    counts = np.bincount(Y[np.concatenate(drawn)], minlength=4) / 200
    assert counts[3] == 0  # all 20 of class 3 are for training
    # of the 120 others, 40 are drawn: 20, 40 and 60 of each class, a third of them
    assert_allclose(counts[:3], np.array([20, 40, 60]) / 3, atol=0.6)


def test_test_size_as_a_number():
    assert len(split_nodes(Y, test_size=7, random_state=0).test) == 7
    assert len(split_nodes(Y, test_size=0.25, random_state=0).test) == 50
    all_others = split_nodes(Y, test_size=120, random_state=0)
    assert len(all_others.valid) == 0


def test_text_and_objects_as_labels():
    names = np.array(["ant", "bee", "cow", "doe"])[Y]
    ours = split_nodes(names, ["bee"], random_state=0)
    theirs = split_nodes(Y, [1], random_state=0)
    assert_array_equal(ours.test, theirs.test)
    assert_array_equal(ours.train, theirs.train)
    mixed = np.where(Y == 3, -1, names.astype(object))
    assert_array_equal(
        split_nodes(mixed, [-1, "cow"], random_state=1, n_train_per_class=5).is_ood,
        Y >= 2,
    )
    assert_array_equal(split_nodes(Y.tolist(), (1,), random_state=0).test, ours.test)


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        ([9], r"left_out must name classes of y, .*y has \[.*\]. Got \[9\]"),
        ([1, 3, 1], r"left_out must name each class once, got \[1, 3, 1\]"),
        (["1"], "left_out must name classes of y"),
        ([1.5], "left_out must name classes of y"),
        ([0, 1, 2, 3], "not all of them"),
        (1, "'left_out' parameter of split_nodes must be an array-like"),
        ("1", "'left_out' parameter of split_nodes must be an array-like"),
    ],
)
def test_left_out_that_is_no_class(left_out, message):
    with pytest.raises(ValueError, match=message):
        split_nodes(Y, left_out)


def test_text_is_not_cut_to_the_length_of_labels():
    with pytest.raises(ValueError, match="must name classes of y"):
        split_nodes(np.array(["a", "b"] * 30), ["abc"])


def test_too_few_nodes():
    with pytest.raises(
        ValueError, match="Class 3 has 20 nodes, fewer than n_train_per_class=21"
    ):
        split_nodes(Y, n_train_per_class=21)
    with pytest.raises(
        ValueError, match="Of 200 nodes, 80 are for training, so that 121 cannot be"
    ):
        split_nodes(Y, test_size=121)
    with pytest.raises(ValueError, match="so that 0 cannot be for testing"):
        split_nodes(Y, test_size=0.001)
    with pytest.raises(
        ValueError, match=r"None of the 40 test nodes is of the left-out classes \[3\]"
    ):
        split_nodes(Y, [3], random_state=0)


def test_as_a_cross_validation():
    nodes, y = make_ood_graph(400, feature_signal=6.0, return_X_y=True, random_state=0)
    X, left = nodes.features, [(0,), (1, 2)]
    splits = [split_nodes(y, classes, random_state=0) for classes in left]
    cv = [(split.train, split.test) for split in splits]

    def fraction_known(estimator, X, y):
        return np.isin(y, estimator.classes_).mean()

    shares = cross_val_score(LogisticRegression(), X, y, cv=cv, scoring=fraction_known)
    assert_allclose(shares, [1 - split.is_ood[split.test].mean() for split in splits])
    assert (shares < 1).all()
