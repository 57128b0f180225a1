"""The paper on evidential probes: printed ranks, and its tables on files of graphs."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import gzip
import json
from itertools import product

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

pytest.importorskip("benchmarks.reproduce", reason="only in the source tree")

from benchmarks.reproduce import _epn_ranks, epn
from benchmarks.reproduce._command import main
from benchmarks.reproduce._graph_models import MODELS
from benchmarks.reproduce._paper import Records
from benchmarks.reproduce._run import Run
from skood.datasets import make_ood_graph
from skood.evidential import EvidentialProbe, ProbeObjective
from tests.datasets.test_graphs import csr_arrays


def write_graph(path, n_classes):
    """A generated graph in the file of a published one: 40 nodes of each class."""
    nodes, y = make_ood_graph(
        40 * n_classes,
        n_classes=n_classes,
        features="words",
        average_degree=4.0,
        return_X_y=True,
        random_state=0,
    )
    path.parent.mkdir(parents=True)
    arrays = csr_arrays(attr=nodes.features, adj=nodes.adjacency)
    np.savez(path, labels=y, **arrays)


@pytest.fixture
def short(monkeypatch):
    """Short training, as in the small version."""
    monkeypatch.setattr(epn.Parts, "epochs", {"network": 30, "GPN": 3, "probe": 60})
    monkeypatch.setattr(epn.Parts, "grid", (0, 1e-3))


@pytest.fixture
def shortest(short, monkeypatch):
    """For what does not depend on how good the networks are."""
    monkeypatch.setattr(epn.Parts, "epochs", {"network": 5, "GPN": 1, "probe": 10})


def test_tables_of_a_graph(tmp_path, short):
    """The command on a file, and what is stored is not done again."""
    write_graph(tmp_path / "cora_ml/raw/cora_ml.npz", n_classes=7)
    command = ["epn", "10", "8", "--seeds", "1", "--quiet"]
    command += ["--data", str(tmp_path), "--out", str(tmp_path / "out")]
    command += ["--only", "CoraML/EPN-reg", "CoraML/EGNN*", "CoraML/combined"]
    assert main(command) == 0
    lines = (tmp_path / "out" / "records.jsonl").read_text().splitlines()
    assert len(lines) == 6 + 5
    cells = json.loads((tmp_path / "out" / "cells.json").read_text())["cells"]
    found = pd.DataFrame(cells).set_index(["table", "row", "column"])
    own = found.value.astype(float)
    assert own["10", "CoraML/EPN-reg", "OS-1/OOD-AUROC"] > 60
    assert own["8", "CoraML/EGNN", "clean accuracy"] > 60
    assert found.paper["10", "CoraML/EPN-reg", "OS-1/OOD-AUROC"] == 89.97
    assert main(command) == 0
    again = (tmp_path / "out" / "records.jsonl").read_text().splitlines()
    assert again == lines


def test_tables_of_arxiv(tmp_path, shortest):
    """Its compressed tables, with the published split."""
    nodes, y = make_ood_graph(
        400, n_classes=40, n_features=8, return_X_y=True, random_state=0
    )
    edges = np.argwhere(nodes.adjacency.toarray())
    train, rest = np.split(np.random.default_rng(0).permutation(400), [250])
    tables = {
        "raw/node-feat": nodes.features,
        "raw/edge": edges,
        "raw/node-label": y[:, None],
        "split/time/train": train[:, None],
        "split/time/valid": rest[:50, None],
        "split/time/test": rest[50:, None],
    }
    for name, values in tables.items():
        path = tmp_path / "ogbn_arxiv" / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (",".join(map(str, row)) for row in np.asarray(values).tolist())
        path.write_bytes(gzip.compress("\n".join(lines).encode() + b"\n"))
    out = tmp_path / "out"
    command = ["epn", "10", "3", "--seeds", "1", "--quiet", "--data", str(tmp_path)]
    command += ["--out", str(out), "--only", "OGBN-Arxiv/EPN", "EPN"]
    command += ["OGBN-Arxiv/SGNN-GKDE"]
    assert main(command) == 0
    cells = pd.DataFrame(json.loads((out / "cells.json").read_text())["cells"])
    found = cells.set_index(["table", "row", "column"])
    cell = found.loc[("10", "OGBN-Arxiv/EPN", "OS-1/OOD-AUROC")]
    assert 0 <= cell.value <= 100 and cell.verdict in {"agrees", "better", "worse"}
    cell = found.loc[("10", "OGBN-Arxiv/SGNN-GKDE", "OS-1/OOD-AUROC")]
    assert cell.n_unable == 1 and cell.verdict == ""  # the paper has not run it
    seconds = found.verdict["3", "EPN"]
    assert seconds["OGBN-Arxiv/seconds"] == "cannot follow"
    assert seconds["OGBN-Arxiv/ratio to VGNN-entropy"] == ""


def test_absent_graphs_are_named(tmp_path, capsys):
    command = ["epn", "10", "--data", str(tmp_path), "--out", str(tmp_path)]
    assert main(command) == 2
    assert "cora_ml/raw/cora_ml.npz" in capsys.readouterr().err


def test_networks_are_shared(shortest):
    """An ensemble has the network of its run, and those of the next runs of a split."""
    nodes = make_ood_graph(280, n_classes=7, random_state=0)

    class Parts(epn.Parts):
        settings = {"OS-1": (4, 5, 6)}

    Parts.nodes = nodes
    run = Run("nowhere", "out", device="cpu")
    parts = [Parts(run, seed, "CoraML") for seed in (0, 1, 5)]
    first, second, other_split = (part.case("OS-1") for part in parts)
    assert first.network(1)[0].estimator is second.network()[0].estimator
    assert first.network()[0].estimator is not other_split.network()[0].estimator
    model, seconds = first.fitted("VGNN-ensemble")
    members = [member.estimator for member in model.estimators_]
    assert members[0] is first.network()[0].estimator
    assert len({id(member) for member in members}) == 10
    assert seconds > first.network()[1] > 0
    assert set(first.train[1]) == set(first.valid["y_val"]) == {0, 1, 2, 3}
    np.testing.assert_array_equal(first.is_ood, np.isin(first.y_test, [4, 5, 6]))


def test_weights_are_searched(shortest):
    """The search of the first run, by test nodes or by the classes that are known."""
    nodes = make_ood_graph(280, n_classes=7, random_state=0)

    class Parts(epn.Parts):
        settings = {"OS-1": (4, 5, 6), "clean": ()}

    Parts.nodes = nodes
    run = Run("nowhere", "out", device="cpu")
    first, later = Parts(run, 0, "CoraML"), Parts(run, 3, "CoraML")
    case = first.case("OS-1")

    def auroc(network, case, weights):
        X, y = case.train
        probe = EvidentialProbe(network, ProbeObjective(**weights), random_state=0)
        probe.set_params(propagation="vacuity", max_epochs=10)
        probe.fit(X, y, **case.valid)
        found = probe.predict_uncertainty(case.test).epistemic
        return 100 * roc_auc_score(case.is_ood, found)

    network = case.network()[0]
    weights, best = first.searched("EPN-reg")
    names = "lambda_ice", "lambda_pcl"
    grid = [
        dict(zip(names, pair, strict=True)) for pair in product((0, 1e-3), repeat=2)
    ]
    values = [auroc(network, case, candidate) for candidate in grid]
    assert weights == grid[np.argmax(values)]
    assert best == pytest.approx(max(values), abs=1e-9)
    assert later.weights("EPN-reg", is_clean=False) == weights
    assert set(later.weights("EPN+ICE", is_clean=True)) == {"lambda_ice"}

    inner = case.without(2)
    assert set(inner.train[1]) == set(inner.valid["y_val"]) == {0, 1, 3}
    np.testing.assert_array_equal(inner.y_test, case.valid["y_val"])
    np.testing.assert_array_equal(inner.is_ood, inner.y_test == 2)
    kind = "EPN-reg, without OOD data"
    weights, best = first.searched(kind)
    values = [
        auroc(one.network()[0], one, weights) for one in map(case.without, range(4))
    ]
    assert best == pytest.approx(np.mean(values), abs=1e-9)
    columns = dict.fromkeys(row.name for row in epn.table_weights(first))
    assert list(columns)[-1] == f"CoraML/GCN/{kind}"


def test_ranks_of_printed_cells():
    """Tables 1 and 14 do not follow from the printed cells, of 40 settings."""
    printed = epn.Printed(None, 0)
    ranks = printed.ranks(("10", "11", "12", "13"), "OOD-AUROC")
    mean = dict(zip(ranks.methods, ranks.mean_rank.round(2), strict=True))
    assert (mean["EPN-reg"], mean["EGNN-vacuity-prop"]) == (3.71, 4.15)
    assert ranks.statistic == pytest.approx(138.197, abs=5e-4)
    assert ranks.n_blocks.max() == 40
    rows = {row.name: row.compute for row in epn.rank_table(printed, "1")}
    assert rows["EPN-reg"]() == {"average/rank": pytest.approx(3.71, abs=5e-3)}
    expected = {"critical difference": 2.8848, "Friedman statistic": 138.197}
    assert rows["all models"]() == pytest.approx(expected, abs=5e-4)
    ranks = printed.ranks(("15", "16", "17", "18"), "OOD-AUROC")
    assert ranks.methods[:2].tolist() == ["VGNN-gnnsafe", "EPN-reg"]
    assert ranks.mean_rank[:2].round(2).tolist() == [3.67, 4.21]


def records(values):
    """Records of Table 10 with one run: {(row, column): value}."""
    return Records(
        [
            {"table": "10", "row": row, "seed": 0, "values": {column: [v, None, None]}}
            for (row, column), v in values.items()
        ]
    )


def test_claim_on_ranks():
    """EPN-reg is first in one setting and third in the other; EPN second, first."""
    order = [model for model in MODELS if not model.startswith("EPN")]
    values = {}
    for setting, first in (
        ("OS-1", ["EPN-reg", "EPN"]),
        ("OS-2", ["EPN", order[0], "EPN-reg"]),
    ):
        ranked = [*first, *(m for m in MODELS if m not in first)]
        for rank, model in enumerate(ranked, start=1):
            values[f"CoraML/{model}", f"{setting}/OOD-AUROC"] = -rank
    found = epn.probe_is_first(records(values))
    assert found == pytest.approx([1.5 - 2.0])
    values["CoraML/GPN", "OS-2/OOD-AUROC"] = None  # infeasible: EPN-reg stays third
    assert epn.probe_is_first(records(values)) == pytest.approx([1.5 - 2.0])
    absent = {k: v for k, v in values.items() if k[0] != "CoraML/GPN"}
    assert epn.probe_is_first(records(absent)) is None
    generated = {
        (f"words/{row.partition('/')[2]}", column): value
        for (row, column), value in values.items()
    }
    assert epn.probe_is_first(records(generated)) is None


def test_figure_of_ranks():
    """Our ranks next to the printed ones, of the models that are there."""
    pytest.importorskip("matplotlib")
    values = {
        (f"{graph}/{model}", "OS-1/OOD-AUROC"): float(value)
        for graph in ("CoraML", "words")
        for value, model in enumerate(("GPN", "EPN", "EGNN", "combined"))
    }
    figure = _epn_ranks.FIGURES["10"](records(values))
    own, printed = figure.axes[0].lines
    assert own.get_xdata().tolist() == [1, 2, 3]  # "combined" is not the paper's
    ranks = _epn_ranks.Printed(None, 0).ranks(("10", "11", "12", "13"), "OOD-AUROC")
    expected = dict(zip(ranks.methods, ranks.mean_rank, strict=True))
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["EGNN", "EPN", "GPN"]
    actual = {
        names[int(y)]: x
        for x, y in zip(printed.get_xdata(), printed.get_ydata(), strict=True)
    }
    assert actual == {name: expected[name] for name in names}
    assert _epn_ranks.FIGURES["15"](records(values)) is None


def test_ratios_of_seconds():
    """The ratio to the plain network, next to that of the printed seconds."""

    class Parts:
        name = "OGBN-Arxiv"

        def scores(self, setting, model):
            seconds = {"VGNN-entropy": 8.0, "EPN": 2.0, "SGNN-GKDE": 12.0}[model]
            return type("Scores", (), {"seconds": seconds})

    rows = {row.name: row.compute for row in epn.table_3(Parts())}
    ratio = "OGBN-Arxiv/ratio to VGNN-entropy"
    assert rows["EPN"]() == {
        "OGBN-Arxiv/seconds": 2.0,
        ratio: 0.25,
        f"{ratio}, printed": pytest.approx(80.2 / 1117.9),
    }
    # not run in the paper
    assert rows["SGNN-GKDE"]() == {"OGBN-Arxiv/seconds": 12.0, ratio: 1.5}


def test_claims_on_differences():
    values = {
        ("CoraML/combined", "OS-1/OOD-AUROC"): 92.0,
        ("CoraML/VGNN-gnnsafe", "OS-1/OOD-AUROC"): 93.0,
        ("CoraML/combined", "OS-2/OOD-AUROC"): 94.0,
        ("CoraML/VGNN-gnnsafe", "OS-2/OOD-AUROC"): 91.0,
        ("words/combined", "OS-1/OOD-AUROC"): 50.0,
        ("words/VGNN-gnnsafe", "OS-1/OOD-AUROC"): 90.0,
    }
    models = {"model": "combined", "other": "VGNN-gnnsafe"}
    found = epn.is_ahead(records(values), **models, published=True)
    np.testing.assert_array_equal(found, [[-1.0, 3.0]])
    assert epn.is_ahead(records(values), **models).shape == (1, 3)
    assert epn.regularizers_help(records(values)) is None
    assert epn.probe_is_fastest(records(values)) is None


def test_seconds_of_epochs(monkeypatch):
    monkeypatch.setattr(epn.Epochs, "n_nodes", 600)
    run = type("Run", (), {"device": "cpu"})
    parts = epn.Epochs(run, 0)
    assert len(parts.data[1]) == 324
    found = {row.name: row.compute() for row in epn.table_epochs(parts)}
    assert list(found) == ["network", "EPN", "EPN-reg"]
    assert 0 < found["network"]["seconds of an epoch"] < 1


def test_models_of_images(tmp_path):
    """Blobs at three places are digits, their negatives the OOD letters."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.integers(0, 60, size=(60, 1, 28, 28)).astype(np.uint8)
    for image, label in zip(X, y, strict=True):
        image[0, 2:20, 2 + 8 * label : 8 + 8 * label] += 190

    class Digits(Run):
        def images(self, name, subset="test"):
            return (X, y) if name == "mnist" else (255 - X, y)

        def has(self, name):
            return False

    parts = epn.Images(Digits(None, tmp_path, device="cpu"), 0, "notmnist")
    parts.max_epochs = 20
    rows = {row.name: row.compute for row in epn.table_22(parts)}
    assert list(rows)[:2] == ["notmnist/ENN", "notmnist/EPN-reg"]
    assert len(parts.sets.train[1]) == 42
    for name in ("notmnist/Energy", "notmnist/EPN-reg"):
        values = rows[name]()
        assert set(values) == {"ID-ACC", "OOD-AUROC", "OOD-AUPR"}
        assert 0 <= values["OOD-AUROC"] <= 100
    assert values["ID-ACC"] > 80
