"""Tests of the scripts in ``benchmarks/``."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import importlib.util
import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Bunch

from skood.datasets import make_ood_graph
from skood.detectors import Energy
from skood.metrics import auroc

FOLDER = Path(__file__).parents[2] / "benchmarks"

NIGHTLY = "SKOOD_NIGHTLY" in os.environ
nightly = pytest.mark.skipif(not NIGHTLY, reason="SKOOD_NIGHTLY is not set")

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="benchmarks/ is only in the source tree"
)


@pytest.fixture(autouse=True)
def path(monkeypatch):
    """Scripts import each other, and add their folder to the path themselves."""
    monkeypatch.syspath_prepend(FOLDER)


def run(script, *arguments):
    return subprocess.run(
        [sys.executable, FOLDER / script, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def load(script):
    spec = importlib.util.spec_from_file_location(script, FOLDER / f"{script}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_import_time_is_printed():
    done = run("import_time.py", "skood", "--repeat", "1")
    assert done.returncode == 0, done.stderr
    cpu, wall = re.findall(r"^import skood +([\d.]+) +([\d.]+) s$", done.stdout, re.M)
    for least, median in (cpu, wall):
        assert 0 <= float(least) == float(median) < 1
    ratio = re.search(r"CPU seconds: ([\d.]+) \(at most 1.04\): (\w+)", done.stdout)
    assert ratio[2] == ("OK" if float(ratio[1]) <= 1.04 else "missed")


@pytest.fixture
def import_time(tmp_path, monkeypatch):
    """The script with quick imports instead of scikit-learn's and a detector's."""
    (tmp_path / "torch.py").touch()  # stands for torch, whose import takes long
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    script = load("import_time")
    monkeypatch.setattr(script, "PEER", "import json")
    monkeypatch.setattr(script, "DETECTOR", "import csv")
    return script


def test_import_of_torch_fails(import_time, capsys):
    assert import_time.main(["torch", "--repeat", "1"]) == 1
    shown = capsys.readouterr().out
    assert re.search(r"^import torch .* imports torch!$", shown, re.M)


def test_module_that_cannot_be_imported(import_time):
    message = "No module named 'skood.no_such_thing'"
    with pytest.raises(SystemExit, match=message) as error:
        import_time.main(["skood.no_such_thing", "--repeat", "1"])
    assert isinstance(error.value.code, str)  # Python prints it and returns 1


@pytest.mark.parametrize(
    ("accuracy", "pair_risk", "seconds", "failures"),
    [
        (0.98, 0.001, 30, []),
        (0.96, 0.001, 30, ["accuracy 0.9600"]),
        (0.98, 0.003, 30, ["risk of KNN+MSP"]),
        (0.98, 0.002, 200, ["200.0 s"]),
    ],
)
def test_what_mnist_must_reach(accuracy, pair_risk, seconds, failures):
    risks = {"MSP": 0.002, "KNN": 0.004, "KNN+MSP": pair_risk}
    result = Bunch(
        accuracy=accuracy,
        common_fpr=0.3,
        table=[{"method": k, "risk_common": v} for k, v in risks.items()],
        reject_options={"KNN+MSP": None},
        options={"tpr_min": 0.8},
    )
    outcomes = load("mnist_notmnist").checks(result, seconds)
    failed = [text for text, holds in outcomes if not holds]
    assert len(failed) == len(failures)
    for text, start in zip(failed, failures, strict=True):
        assert text.startswith(start)


def test_correlation_and_regret_of_substitutes_for_ood_samples(capsys, monkeypatch):
    script = load("selection_without_ood")
    monkeypatch.setattr(script, "CONSTANT", ("b",))
    truths = {
        "digits, near": [
            {"a": 0.9, "b": 0.8, "c": 0.5},
            {"a": 0.7, "b": 0.6, "c": 0.2},
        ],
        "wine, far": [{"a": 0.6, "b": 1.0, "c": 0.9}] * 2,
    }
    equal, wrong = {"a": 0.3, "b": 0.2, "c": 0.1}, {"a": 0.1, "b": 0.2, "c": 0.2}
    proxies = {
        "digits, near": [{"mixing": equal}, {"mixing": wrong}],
        "wine, far": [{"mixing": None}, {"mixing": {"b": 0.4, "c": 0.3}}],
    }
    table = script.summarize(truths, proxies)
    near, far = table["mixing"].values()
    ties = -np.sqrt(3) / 2  # Spearman's of the ranks 3, 2, 1 and 1, 2.5, 2.5
    np.testing.assert_allclose(near, [[1, 0], [ties, 100 * (0.7 - 0.4)]])
    np.testing.assert_allclose(far, [[1, 0]])
    regrets = [values[:, 1] for values in table["always b"].values()]
    np.testing.assert_allclose(regrets, [[10, 10], [0, 0]], atol=1e-12)
    regrets = [values[:, 1] for values in table["best on other tasks"].values()]
    np.testing.assert_allclose(regrets, [[10, 10], [40, 40]])
    regrets = [values[0, 1] for values in table["any"].values()]
    np.testing.assert_allclose(regrets, [100 * (0.9 - 2.2 / 3), 100 * (1 - 2.5 / 3)])
    script.report(truths, proxies)
    shown = capsys.readouterr().out
    # tasks, mean, SD and worst: (0 + 30) / 2 and 0
    assert re.search(r"^mixing +15\.0 +0\.0 +7\.5 +10\.6 +30\.0$", shown, re.M)
    assert re.search(r"^b +70\.0 +100\.0 +85\.0 +21\.2$", shown, re.M)


@pytest.mark.slow  # a process for each method
def test_detectors_are_timed(tmp_path, capsys):
    status = load("detectors").main(
        [
            *("--scale", "0.005", "--libraries", "skood", "--workloads", "F"),
            *("--methods", "Energy", "ReAct", "--repeat", "1", "--strict"),
            *("--json", str(tmp_path / "rows.json")),
        ]
    )
    printed = capsys.readouterr().out
    assert not status, printed
    _, title, _, energy, react, *_ = printed.splitlines()
    assert title.startswith("F: 250 training and 100 test rows, 512 features")
    assert energy.split()[:2] == ["Energy", "skood"]
    assert react.split()[:2] == ["ReAct", "skood"]
    assert "2 targets OK, 0 missed" in printed
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    for row in rows:
        assert 0 < row["score_cpu"] < 10 > row["score"] > 0
        assert row["auroc"] > 0.7
        assert row["score_mib"] < 50
    assert 0 < rows[0]["threshold"] < rows[0]["fit"]  # rectifiers have none
    assert "threshold" not in rows[1]


def test_unknown_methods(capsys):
    with pytest.raises(SystemExit) as error:
        load("detectors").main(["--methods", "NoSuchMethod"])
    assert error.value.code == 2
    assert "invalid choice: 'NoSuchMethod'" in capsys.readouterr().err


def _row(library, fit, score, mib=10, **more):
    row = {"workload": "F", "method": "KNN", "library": library, "fit_cpu": fit}
    row |= {"score": score, "score_cpu": score, "us_per_row": score}
    row |= {"fit_mib": mib, "score_mib": mib, "correct": True}
    return row | more


@pytest.mark.parametrize(
    ("ours", "missed"),
    [
        (_row("skood", 1.0, 0.5), []),
        # half of the fit is the threshold, which others do not set
        (_row("skood", 2.0, 0.5, threshold_cpu=1.0), []),
        (_row("skood", 1.2, 0.5), ["F KNN: fit 1.20000 CPU s, peer 1.00000"]),
        (
            _row("skood", 1.0, 1.2),
            [
                "F KNN: score 1.20000 CPU s, peer 1.00000",
                "F KNN: 1.7 times as fast as pytorch-ood to score, at least 2",
            ],
        ),
        (
            _row("skood", 1.0, 0.5, mib=300),
            [
                "F KNN: 300 MiB to score, at most 256",
                "F KNN: fit 300 MiB, peer 10 MiB",
                "F KNN: score 300 MiB, peer 10 MiB",
            ],
        ),
    ],
)
def test_what_detectors_must_reach(ours, missed):
    module = load("detectors")
    others = [
        _row("peer", 1.0, 1.0),
        _row("pytorch-ood", 3.0, 2.0),
        _row("wrong", 0.1, 0.1, correct=False),
        {"workload": "F", "method": "KNN", "library": "broken", "failed": "no"},
    ]
    rows = module.add_ratios([ours, *others])
    assert [text for text, met in module.targets(rows, 2) if not met] == missed
    fit = ours["fit_cpu"] - ours.get("threshold_cpu", 0)
    assert (rows[0]["x_fit"], rows[0]["x_score"]) == (fit, ours["score"])
    assert rows[3]["x_score"] == 0.1
    assert "x_score" not in rows[4]
    assert module.targets(others, 2) == []  # nothing of ours


def _write_cora(root, file="cora_ml/raw/cora_ml.npz", n_classes=7):
    """A generated graph in the file of Cora ML: seven classes of 40 nodes."""
    nodes, y = make_ood_graph(
        40 * n_classes,
        n_classes=n_classes,
        features="words",
        average_degree=4.0,
        return_X_y=True,
        random_state=0,
    )
    arrays = {"labels": y}
    for part, matrix in (("attr", nodes.features), ("adj", nodes.adjacency)):
        arrays[f"{part}_data"] = matrix.data
        arrays[f"{part}_indices"] = matrix.indices
        arrays[f"{part}_indptr"] = matrix.indptr
        arrays[f"{part}_shape"] = np.array(matrix.shape)
    path = root / file
    path.parent.mkdir(parents=True)
    np.savez(path, **arrays)


def _table(printed, title):
    """The rows of a table, by their names."""
    lines = printed[printed.index(title) :].split("\n\n")[0].splitlines()[2:]
    return {line.split()[0]: line.split()[1:] for line in lines}


def test_graph_models_are_compared(tmp_path, capsys):
    _write_cora(tmp_path)
    out = tmp_path / "rows.jsonl"
    smallest = (
        *("--data", str(tmp_path), "--settings", "OS-1,clean", "--max-epochs", "60"),
        *("--splits", "1", "--inits", "1", "--jobs", "1", "--out", str(out)),
    )
    some = ("--models", "VGNN-entropy/walk,EPN-reg")
    module = load("graph")
    status, first = module.main([*smallest, *some]), capsys.readouterr().out
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(records) == 2 * (1 + 5)
    for record in records:
        assert 0.6 < record["accuracy"] < 1
        assert 0 < record["brier"] < 1
        if record["setting"] == "clean":
            assert record["auroc"] is record["fpr95"] is None
        else:
            assert 0.7 < record["auroc"] < 1
    rows = _table(first, "OS-1: left-out classes 4, 5, 6; gcn; 1 runs")
    assert list(rows)[:3] == ["VGNN-entropy/walk", "EPN-reg", "EPN-reg/vacuity"]
    by_row = {record["row"]: record["auroc"] for record in records[:6]}
    for row, cells in rows.items():
        assert cells[:2] == [f"{100 * by_row[row]:.2f}", "-"]
    assert rows["EPN-reg/vacuity"][-2] == "89.97"
    assert set(_table(first, "clean: left-out classes none")) == set(rows)

    # what is in the file is not done again, and at night all models are there
    if NIGHTLY:
        before = out.read_text()
        module.main([*smallest])
        assert out.read_text().startswith(before)
        printed = capsys.readouterr().out
        names = [row for _, rows in module.MODELS.values() for row in rows]
        assert list(_table(printed, "OS-1:")) == names
        assert (
            len(out.read_text().splitlines()) == 2 * len(set(names)) == 2 * len(names)
        )
    n_lines = len(out.read_text().splitlines())
    assert module.main([*smallest, *some]) == status
    assert capsys.readouterr().out == first
    assert len(out.read_text().splitlines()) == n_lines


def test_models_on_another_graph(tmp_path, capsys):
    _write_cora(tmp_path, "Photo/raw/amazon_electronics_photo.npz", n_classes=8)
    out = tmp_path / "rows.jsonl"
    smallest = (
        *("--data", str(tmp_path), "--graph", "AmazonPhoto", "--settings", "OS-1"),
        *("--splits", "1", "--inits", "1", "--jobs", "1", "--max-epochs", "30"),
    )
    models = ("--models", "VGNN-gnnsafe,VGNN-entropy/walk,EPN-reg,combined")
    load("graph").main([*smallest, *models, "--out", str(out)])
    printed = capsys.readouterr().out
    rows = _table(printed, "AmazonPhoto, OS-1: left-out classes 5, 6, 7; gcn; 1 runs")
    assert list(rows)[-1] == "combined"
    assert {json.loads(line)["graph"] for line in out.read_text().splitlines()} == {
        "AmazonPhoto"
    }
    compared = [line for line in printed.splitlines() if line.startswith("mean combi")]
    ahead = float(rows["combined"][0]) - float(rows["VGNN-gnnsafe"][0])
    assert len(compared) == 3
    assert f"VGNN-gnnsafe: {ahead / 100:+.4f} " in compared[2]


def test_networks_of_a_graph_are_shared(tmp_path):
    module = load("graph_models")
    nodes = make_ood_graph(280, n_classes=7, random_state=0)
    case = module.Case(nodes, (4, 5, 6), 0, max_epochs=2)
    first = case.network(1)[0].estimator
    assert case.network(1)[0].estimator is first
    assert first.random_state == 1
    model = module.ensemble(case, 1)
    members = [member.estimator for member in model.classifier.estimators_]
    assert members[0] is first
    assert len({id(member) for member in members}) == 10
    assert model.network_seconds > case.network(1)[1] > 0
    assert set(case.y_train) == set(case.valid["y_val"]) == {0, 1, 2, 3}
    np.testing.assert_array_equal(case.is_ood, np.isin(case.y_test, [4, 5, 6]))


@pytest.mark.parametrize(
    ("aurocs", "conv", "missed"),
    [
        ({"OS-1": 0.92, "OS-2": 0.89}, "gcn", []),
        # near the smoothed entropy, and just not
        ({"OS-1": 0.938}, "gcn", []),
        ({"OS-1": 0.936}, "gcn", ["OS-1 EPN-reg/vacuity - VGNN-entropy/walk"]),
        ({"OS-1": 0.91}, "gcn", ["OS-1 EPN-reg/vacuity: 0.9100, at least 0.9200"]),
        ({"OS-1": 0.86}, "gcn", ["OS-1 EPN-reg/vacuity: 0.8600, at least 0.8697"] * 2),
        ({"OS-1": 0.86}, "gat", []),
        (dict.fromkeys(("OS-1", "OS-2", "OS-3", "OS-4", "OS-5"), 0.92), "gcn", []),
        (
            {"OS-1": 0.95, "OS-2": 0.9, "OS-3": 0.9, "OS-4": 0.9, "OS-5": 0.9},
            "gcn",
            ["mean EPN-reg/vacuity: 0.9100, at least 0.9150"],
        ),
    ],
)
def test_what_a_probe_must_reach(aurocs, conv, missed):
    module = load("graph")
    smoothed = 0.94 if aurocs["OS-1"] in (0.938, 0.936) else 0.86
    records = [
        {"setting": setting, "row": row, **dict.fromkeys(module.COLUMNS, value)}
        for setting, auroc in aurocs.items()
        for row, auroc in (("EPN-reg/vacuity", auroc), ("VGNN-entropy/walk", smoothed))
        for value in (auroc - 0.01, auroc + 0.01)  # of two runs
    ]
    found = list(module.targets(module.averaged(records), conv))
    texts = [text for text, met in found if not met]
    assert len(texts) == len(missed)
    assert all(text.startswith(missed[0].split(",")[0]) for text in texts)
    assert len(found) > len(texts)


def test_a_combination_must_be_ahead_of_its_parts():
    module = load("graph")
    of_rows = {
        "combined": (0.92, 0.94),
        "EPN-reg/vacuity": (0.91, 0.92),
        "VGNN-entropy/walk": (0.93, 0.91),
        "VGNN-gnnsafe": (0.95, 0.91),  # level in the mean
    }
    records = [
        {"setting": setting, "row": row, **dict.fromkeys(module.COLUMNS, auroc)}
        for row, aurocs in of_rows.items()
        for setting, auroc in zip(("OS-1", "OS-2"), aurocs, strict=True)
    ]
    found = dict(module.targets(module.averaged(records), "gcn", "AmazonPhoto"))
    assert list(found.values()) == [True, True, False]
    first = next(iter(found))
    assert first.startswith("mean combined - EPN-reg/vacuity: +0.0150 (standard error ")
    assert "error 0.0050)" in first


def test_speed_of_a_probe_is_told(capsys):
    smallest = ("--speed", "--scale", "0.005", "--repeat", "1", "--threads", "1")
    load("graph").main([*smallest])
    first, network, alone, _, _, *outcomes = capsys.readouterr().out.splitlines()
    assert first.startswith("847 nodes, 11520 directed edges, 457 training nodes")
    assert network.startswith("epoch of the network ")
    assert alone.startswith("epoch of a probe, UCE alone ")
    assert len(outcomes) == 3
    assert "of the network's, at most 1/60" in outcomes[0]
    assert "of the network's, at most 1/15" in outcomes[1]
    assert outcomes[2].startswith("peak memory: ")
    assert outcomes[2].endswith(" GiB, at most 6  OK")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give --data or --speed"),
        (("--data", ".", "--models", "GPN,MLP"), "invalid choice: 'MLP'"),
        (("--data", ".", "--settings", "OS-6"), "invalid choice: 'OS-6'"),
    ],
)
def test_what_graph_does_not_have_is_said(capsys, arguments, message):
    with pytest.raises(SystemExit) as error:
        load("graph").main(arguments)
    assert error.value.code == 2
    assert message in capsys.readouterr().err


def _blobs(y, rng):
    """Images of 28 x 28 with a bright blob, whose place tells the class."""
    images = rng.integers(0, 60, size=(len(y), 28, 28))
    for image, label in zip(images, y, strict=True):
        row, column = 2 + 9 * (label // 3), 2 + 9 * (label % 3)
        image[row : row + 6, column : column + 6] += 190
    return images


@nightly
def test_evidence_on_digits_and_letters(write_idx, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    y = np.arange(200) % 3
    write_idx("mnist", _blobs(y, rng), y)
    letters = np.arange(80) % 3
    folder = write_idx("notmnist", 255 - _blobs(letters, rng), letters)
    monkeypatch.delitem(sys.modules, "_mnist", raising=False)
    script = load("evidential_mnist")
    monkeypatch.setattr(script, "EPOCHS", 5)
    monkeypatch.setattr(script, "load", partial(script.load, n_train=120, n_test=30))
    monkeypatch.setattr(script, "lenet", partial(script.lenet, lr=3e-3, batch_size=12))

    # training, test and other digits have nothing in common
    parts = script.load(folder, seed=0)
    others, _ = script.held_out(folder, parts)
    assert [len(parts.X_train), len(parts.X_test), len(others)] == [120, 30, 50]
    digits = np.concatenate([parts.X_train, parts.X_test, others])
    assert len(np.unique(digits.reshape(200, -1), axis=0)) == 200

    status = script.main(["--data", str(folder), "--seeds", "1"])
    printed = capsys.readouterr().out
    number = r" +(\d\.\d{4})"
    rows = re.findall(rf"^(\S.*?){number}{number}{number}{number} +\S+$", printed, re.M)
    names = [name for name, *_ in rows]
    assert names[:4] == ["MSP", "Entropy", "Energy", "EPN (epistemic)"]
    assert len(names) == 2 * (3 + 2 * (6 + 2 + 2))  # of the seed, and the mean
    assert rows[: len(rows) // 2] == rows[len(rows) // 2 :]
    table = {name: [float(value) for value in values] for name, *values in rows}
    for name, (accuracy, *ranks) in table.items():
        # batches of 120 digits are too large for the ensembles to learn
        assert accuracy > 0.9 or "EnsembleClassifier" in name
        assert all(0 <= rank <= 1 for rank in ranks)
    ahead = table["EPN-reg (epistemic)"][1] - table["Energy"][1]
    last = printed.splitlines()[-1]
    assert float(last.split()[3]) == pytest.approx(ahead, abs=2e-4)
    assert last.endswith("OK" if status == 0 else "missed")


def _load_signs(monkeypatch):
    monkeypatch.delitem(sys.modules, "_signs", raising=False)
    return load("logic_signs")


def test_signs_of_a_study_are_read_once(monkeypatch):
    script = _load_signs(monkeypatch)
    case = script.Case(0, max_epochs=1, scale=0.03)
    pictures = np.concatenate([part.data for part in case.signs.values()])
    assert len(np.unique(pictures.reshape(len(pictures), -1), axis=0)) == len(pictures)
    assert [len(part.data) for part in case.signs.values()] == [120, 30, 114, 54]
    assert case.signs.outliers.is_ood.all()
    networks = script.train_networks(case.signs.train, 0, 1)
    network = script.train_heads(case.signs.train, 0, 1)
    assert case.is_id() is case.is_id()  # trained once
    heads = {name: network.head(j) for j, name in enumerate(script.CONCEPTS)}
    X = case.signs.test.data
    for groups in ([{name: one} for name, one in networks.items()], [heads]):
        readings = script.Readings([*groups, {"is_id": case.is_id()["is_id"]}])
        Z = readings.of(X)
        assert Z.shape == (114, 64 * (len(groups) + 1))
        for group in groups:
            for name, one in group.items():
                proba = readings.classifier(name).predict_proba(Z)
                np.testing.assert_allclose(proba, one.predict_proba(X), atol=1e-5)


@nightly
def test_logic_and_detectors_are_compared(tmp_path, monkeypatch, capsys):
    script = _load_signs(monkeypatch)
    out = tmp_path / "rows.jsonl"
    smallest = (
        *("--seeds", "2", "--scale", "0.05", "--max-epochs", "2", "--threads", "1"),
        *("--blocks", "networks", "--detectors", "Ensemble,Energy", "--out", str(out)),
    )
    status = script.main([*smallest])
    printed = capsys.readouterr().out
    assert printed.splitlines()[-3].endswith("missed" if status else "OK")
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(records) == 2 * (1 + 4 + 2 * (5 + 6))
    by_row = {(r["seed"], r["variant"], r["detector"]): r for r in records}
    for record in records:
        if record["variant"] == "facts":
            continue
        kinds = [record[f"auroc {kind}"] for kind in script.KINDS]
        assert record["auroc"] == pytest.approx(np.mean(kinds))  # as many of each
        assert (record["aupr"] is None) == (record["variant"] == "other kinds")
    # by hand: a network, and a detector that reads it
    case = script.Case(0, max_epochs=2, scale=0.05)
    network = script.train_networks(case.signs.train, 0, 2)["class"]
    test = case.signs.test
    signs = test.ood_kind == "id"
    accuracy = 100 * network.score(test.data[signs], test.target[signs])
    assert by_row[0, "facts", "none"]["class"] == pytest.approx(accuracy)
    detector = Energy(FrozenEstimator(network)).fit(case.signs.train.data)
    y = np.where(test.is_ood, -1, 1)
    expected = 100 * auroc(y, detector.score_samples(test.data))
    assert by_row[0, "alone", "Energy"]["auroc"] == pytest.approx(expected, abs=0.05)
    # the table holds means of the seeds
    rows = _table(f"{printed}\n", "\nAUROC")
    pair = [by_row[seed, "alone", "Energy"]["auroc"] for seed in (0, 1)]
    assert rows["Energy"][0] == f"{np.mean(pair):.2f}"
    # what is in the file is not done again
    before = out.read_text()
    assert script.main([*smallest]) == status
    assert capsys.readouterr().out == printed
    assert out.read_text() == before


@pytest.mark.parametrize(
    ("n_above", "met"), [(8, True), (6, True), (5, False), (0, False)]
)
def test_what_logic_must_reach(monkeypatch, n_above, met):
    script = _load_signs(monkeypatch)
    gains = {"alone": 0, "MLN": -1, "supervised": -1, "other kinds": 3, "Logic": 9}
    records = [
        {
            "variant": variant,
            "detector": detector,
            "auroc": 80 + noise + (abs(gain) if j < n_above else gain),
        }
        for variant, gain in gains.items()
        for j, detector in enumerate(script.DETECTORS)
        for noise in (-2, 2)  # of two seeds
    ]
    outcomes = list(script.targets(records, "heads", script.DETECTORS))
    text = f"detector alone: {n_above} of 8, at least 6"
    assert outcomes[0] == (f"heads: MLN + detector above the {text}", met)
    assert outcomes[1:] == [
        ("heads: supervised above that: 0 of 8", None),
        ("heads: the same, of kinds not seen in training: 8 of 8", None),
    ]


@pytest.fixture
def logic(monkeypatch):
    """Run parts of the script for logic on few rows."""
    script = load("logic")
    monkeypatch.setattr(script, "lbfgs", lambda kb, mean_truth: np.zeros(len(kb)))

    def run(parts, **changes):
        for name, value in changes.items():
            monkeypatch.setattr(script, name, value)
        arguments = ["logic.py", "--scale", "0.002", "--parts", parts]
        monkeypatch.setattr(sys, "argv", arguments)
        script.main()

    return run


@pytest.mark.parametrize(
    ("parts", "n_met"),
    [
        ("truth,partition,weights,overhead", 2),
        pytest.param("search", 2, marks=pytest.mark.slow),
    ],
)
def test_logic_is_timed(logic, capsys, parts, n_met):
    logic(parts)
    lines = capsys.readouterr().out.splitlines()
    assert sum("at most" in line and "OK" in line for line in lines) == n_met
    assert not any("missed" in line for line in lines)
    assert sum(line.startswith("search, ") for line in lines) == 2 * (parts == "search")


def test_logic_misses_a_target(logic):
    with pytest.raises(SystemExit, match="missed: truth, 2,000 rows x 43 rules"):
        logic("truth", seconds=lambda function, *_: (7.0, function()))
