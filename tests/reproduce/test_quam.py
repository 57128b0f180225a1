"""The paper of QUAM on tiny files: tables, harder sets, ImageNet and similarity."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist, jensenshannon
from sklearn.metrics import roc_auc_score
from torch import nn

pytest.importorskip("benchmarks.reproduce", reason="only in the source tree")

from benchmarks.reproduce import _networks, _quam_hard, _quam_imagenet, reproduce
from benchmarks.reproduce import _quam_posteriors as posteriors
from benchmarks.reproduce import _quam_similarity as similarity
from benchmarks.reproduce import _quam_studies as studies
from benchmarks.reproduce._paper import Records
from benchmarks.reproduce._quam_images import Digits, FewImages, ranked
from benchmarks.reproduce._run import Run
from skood.detectors import MaxLogit
from skood.epistemic import integrated_gradients
from tests.reproduce.test_stored import data, images

__all__ = ["data"]  # a fixture


@pytest.mark.filterwarnings("ignore")  # of networks that are not trained
def test_mnist_on_files(data, tmp_path, monkeypatch):
    recipe = {
        **FewImages.recipe,
        **{"max_epochs": 3, "n_points": 20, "n_members": 2, "n_passes": 4},
        **{"n_draws": 4, "n_cycles": 1, "epochs_per_cycle": 3},
    }
    monkeypatch.setattr(FewImages, "recipe", recipe)
    names = ("Reference", "Laplace", "MCD", "DE", "QUAM, last")
    monkeypatch.setattr(FewImages, "methods", names)
    given = {"data": data, "out": tmp_path, "seeds": 1}
    own = {"own": MaxLogit}
    result = reproduce("quam", ["1", "C.2", "C.3"], methods=own, **given)
    assert "MNIST against FMNIST" in result.skipped
    cells = result.cells.set_index(["table", "row", "column"]).value
    assert set(cells["1"]["notMNIST"].index) == {
        *(f"{name}/AUROC" for name in (*names, "own")),
        *(f"{name}, total/AUROC" for name in names[1:]),
    }
    # from the stored uncertainties, by scikit-learn
    files = (tmp_path / "features" / FewImages.prefix).glob("*.npz")
    found = set()
    for path in files:
        with np.load(path) as file:
            scores = np.r_[file["id"], file["ood"]]
        assert len(scores) == 40
        found.add(round(roc_auc_score(np.repeat([0, 1], 20), scores), 9))
    cell = cells["1"]["notMNIST"]
    assert found == {round(cell[f"{name}/AUROC"], 9) for name in (*names, "own")}
    assert "ECE of the mean" not in cells["C.3"][f"{FewImages.id_name}/QUAM, last"]
    assert 0 <= cells["C.3"][f"{FewImages.id_name}/DE"]["ECE of the mean"] <= 1

    monkeypatch.setattr(_quam_hard, "N_POINTS", 5)
    monkeypatch.setattr(_quam_hard, "N_CALIBRATION", 8)
    monkeypatch.setattr(
        _quam_hard, "QUAMS", {"QUAM, dense": ("last", 3.0, 0.1), "QUAM, last": _LAST}
    )
    only = ["Energy", "QUAM*", "smaller p: Energy, QUAM, dense"]
    hard = reproduce("quam", ["hard"], only=only, **given).cells
    at = hard.set_index(["row", "column"]).value
    energy, dense, both = (
        at[row] for row in ("Energy", "QUAM, dense, epistemic", only[2])
    )
    assert len(energy) == len(both) == len(_quam_hard.SETS)
    [claim] = [c for c in reproduce_claims(given) if "smaller p-value" in c["claim"]]
    assert claim["mean"] == pytest.approx(
        0.02 - (np.maximum(energy, dense) - both).max()
    )


_LAST = ("last", None, 0.1)


def reproduce_claims(given):
    only = ["Energy", "QUAM, dense, epistemic", "smaller p: Energy, QUAM, dense"]
    return reproduce("quam", ["hard"], only=only, **given).claims


def test_ranked_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    known, ood = rng.normal(size=200).round(1), rng.normal(1, size=300).round(1)
    found = ranked(known, ood)
    y = np.repeat([0, 1], [200, 300])
    scores = np.r_[known, ood]
    assert found["AUROC"] == pytest.approx(roc_auc_score(y, scores))
    rates = [
        np.mean(known >= t) for t in np.unique(scores) if np.mean(ood >= t) >= 0.95
    ]
    assert found["FPR95"] == pytest.approx(min(rates))


@pytest.mark.filterwarnings("ignore")  # of networks that are not trained
def test_imagenet_on_files(tmp_path, monkeypatch):
    """Four classes, and two small networks in place of EfficientNets."""
    sizes = {"a": 28, "b": 32}
    recipe = {
        **{"n_train": 40, "batch_size": 8, "n_targets": 2, "n_passes": 5},
        **{"n_id": {"ImageNet-O": 6, "ImageNet-A": 12}, "n_members": 2},
        **{"epochs": {"ImageNet-O": 2, "ImageNet-A": 1}, "targets": (1, 2)},
        "eta": {"ImageNet-O": 1.01, "ImageNet-A": 1.005},
    }

    def network(name, n_classes, **_):
        shape = (3, sizes[name], sizes[name])
        return nn.Sequential(nn.Identity(), _networks.lenet(shape, n_classes))

    monkeypatch.setattr(_networks, "of_torchvision", network)
    (tmp_path / "weights").mkdir()
    for name in sizes:
        torch.manual_seed(0)
        weights = network(name, 4)[1].state_dict()
        torch.save(weights, tmp_path / "weights" / f"{name}.pth")
    for label in range(4):
        (tmp_path / "train" / f"n{label}").mkdir(parents=True)
        for i in range(12):
            (tmp_path / "train" / f"n{label}" / f"{i}.JPEG").touch()

    def load(self, name, subset="test", size=32, shorter_side=None):
        assert shorter_side == size
        if name == "list":
            lines = subset.read_text().splitlines()
            assert len(lines) == 40
            y = np.array([int(line.split()[1]) for line in lines])
            assert np.bincount(y).tolist() == [10] * 4
            return images(40, size, 0, n_channels=3)[0], y
        n = {"imagenet": 60, "imagenet_o": 9, "imagenet_a": 7}[name]
        X, y = images(n, size, len(name), n_channels=3)
        return X, y % 4

    monkeypatch.setattr(Run, "images", load)

    class Small(_quam_imagenet.ImageNet):
        networks, n_classes = sizes, 4

    Small.recipe = recipe
    run = Run(tmp_path, tmp_path / "out", methods={"own": MaxLogit})
    parts = [Small(run, seed) for seed in range(3)]
    for ood, n in recipe["n_id"].items():
        rows = np.concatenate([part.id_rows(ood) for part in parts])
        assert len(set(rows)) == 3 * n  # disjoint
    actual = {}
    for row in _quam_imagenet.table_2(parts[0]):
        actual.setdefault(row.name, {}).update(row.compute())
    methods = (*_quam_imagenet.METHODS, "own")
    assert set(actual["ImageNet-O"]) == {f"{name}/AUROC" for name in methods}
    assert len(actual["Misclassification"]) == len(methods)
    sets = parts[0].samples("a", "ImageNet-A")
    wrong = parts[0].head.predict(sets.id) != sets.y
    p = parts[0].head.predict_proba(sets.id)
    expected = roc_auc_score(wrong, -(p * np.log(p)).sum(axis=1))
    assert actual["Misclassification"]["Reference/AUROC"] == pytest.approx(expected)
    details = [row.compute() for row in _quam_imagenet.table_c4(parts[0])]
    columns = {column for values in details for column in values}
    assert len(columns) == 3 * len(methods)
    budget = [row.compute() for row in _quam_imagenet.figure_4(parts[0])]
    assert [one["forward passes"] for one in budget] == [30, 60]


def rows(name, out):
    """Return functions for the rows of a small experiment with one table."""
    (experiment,) = (one for one in studies.SMALL if one.name == name)
    parts = experiment.prepare(Run(None, out, device="cpu", small=True), 0)
    ((_, table),) = experiment.tables.items()
    return {row.name: row.compute for row in table(parts)}


def records(table, values):
    """Return records of one run: {row: {column: value}}."""
    return Records(
        [
            {
                "table": table,
                "row": row,
                "seed": 0,
                "values": {column: [v, None, None] for column, v in columns.items()},
            }
            for row, columns in values.items()
        ]
    )


def test_variance_of_importance_sampling(tmp_path):
    """Values of the specification, and half a unit of their last digits."""
    actual = rows("two modes", tmp_path)
    expected = {
        "mode sd 0.5": (64.459, 5e-4),
        "mode sd 1": (2025.521, 5e-4),
        "mode sd 1.3": (1.402e12, 5e8),
        "mean 1": (0.42957, 5e-6),
        "mean 2": (13.3995, 5e-5),
        "mean 4": (2.22153e6, 5),
        "mean 5": (1.80012e10, 5e4),
        "sampling sd 0.8": (2.754e13, 5e9),
        "sampling sd 1.5": (3.35532, 5e-6),
        "sampling sd 2": (0.855035, 5e-7),
        "sampling sd 2.667": (0.576774, 5e-7),
        "sampling sd 3": (0.603588, 5e-7),
        "sampling sd 5": (1.16279, 5e-6),
    }
    for name, (value, error) in expected.items():
        assert actual[name]()["N variance"] == pytest.approx(value, abs=error)
    narrow, wide = (actual[f"bounds, sampling sd {sd}"]() for sd in (1, 2))
    assert narrow == pytest.approx({"N variance": 2025.521, "4 E": 8106.08}, rel=1e-5)
    expected = {"N variance": 0.855035, "4 E": 7.42014, "4 c^2": 80.431}
    assert wide == pytest.approx(expected, rel=1e-5)
    # the second integral does not exist: wide modes and narrow draws
    assert studies.asymptotic_variance(mode_sd=1.5) == np.inf


def test_coverage(tmp_path):
    """The exact coverages within three standard errors of 1,000 repetitions."""
    actual = rows("two modes", tmp_path)
    values = {name: actual[name]() for name in studies.DRAWS}
    for row, expected in zip(values.values(), (0.602, 0.953, 0.954), strict=True):
        error = np.sqrt(expected * (1 - expected) / 1000)
        assert row["coverage"] == pytest.approx(expected, abs=3 * error)
    (gain,) = studies.covers_too_rarely(records("fig-B.1", values))
    one, _, both = (row["coverage"] for row in values.values())
    assert gain == both - one


def test_simplex(tmp_path):
    found = {name: row() for name, row in rows("simplex", tmp_path).items()}
    corners = [found[f"corner of class {k}"]["training loss"] for k in range(3)]
    assert found["all"]["vertices"] == 15
    assert found["all"]["least"] <= min(corners) == corners[0]
    (gain,) = studies.nearest_is_cheapest(records("fig-2", found))
    assert gain == min(corners[1:]) - corners[0] > 0


def test_columns_of_the_sine():
    """Standard deviations that are known: |x|, and another that grows outside."""
    parts = posteriors.SmallSine(None, 0, variance=0.01)
    x = np.abs(parts.grid)
    parts._stds = {"HMC": x, "Laplace": x**2}
    found = parts.measure("Laplace")
    assert found["sd inside"] == pytest.approx(np.mean(x[x <= np.pi] ** 2))
    assert found["sd outside"] == pytest.approx(np.mean(x[x > np.pi] ** 2))
    assert found["Spearman to HMC"] == pytest.approx(1)
    assert found["Pearson to HMC"] == pytest.approx(np.corrcoef(x, x**2)[0, 1])


def test_claims_on_posteriors():
    sine = records(
        "fig-C.4",
        {
            f"variance {variance}/QUAM": {"sd inside": 0.5, "sd outside": outside}
            for variance, outside in ((0.01, 2.5), (0.1, 0.25))
        },
    )
    np.testing.assert_array_equal(
        posteriors.grows_outside(sine, "QUAM"), [[2.0, -0.25]]
    )
    assert posteriors.grows_outside(sine, "Laplace") is None
    moons = records(
        "fig-3",
        {
            "unit/QUAM": {"a/Spearman": 0.75, "b/Spearman": 0.5},
            "unit/Laplace": {"a/Spearman": 0.25, "b/Spearman": 0.625},
        },
    )
    np.testing.assert_array_equal(
        posteriors.is_closer(moons, "Laplace"), [[0.5, -0.125]]
    )
    assert posteriors.is_closer(moons, "MC dropout") is None


def test_distances_are_those_of_scipy():
    proba = np.random.default_rng(0).dirichlet(np.ones(3), size=(4, 6))
    proba[0, 0] = [1, 0, 0]
    proba[1, 0] = [0, 1, 0]  # log 2: the largest divergence
    actual = similarity.distances(proba)
    for i, p in enumerate(proba):
        for j, q in enumerate(proba):
            divergence = np.nan_to_num(jensenshannon(p, q, axis=1)) ** 2
            expected = np.sqrt(divergence.mean())
            assert actual[i, j] == pytest.approx(expected, abs=1e-7)


@pytest.mark.filterwarnings("ignore")  # of networks that are not trained
def test_similarity_of_digits(tmp_path, monkeypatch):
    """Against loops over the models."""
    monkeypatch.setattr(similarity, "N_POINTS", 3)
    monkeypatch.setattr(similarity, "N_DRAWN", 2)
    recipe = {"n_members": 2, "search": {"n_steps": 5, "batch_size": 64}}
    monkeypatch.setattr(Digits, "recipe", recipe)
    parts = Digits(Run(None, tmp_path, device="cpu", small=True), 0)
    actual = {row.name: row.compute() for row in similarity.table_c9(parts)}
    X, network = parts.sets.test[0][:3], parts.network
    own = integrated_gradients(network, X)
    cosines = []
    for member in parts.ensemble.estimators_:
        A = integrated_gradients(member, X, target=network.predict(X))
        cosines += [
            a @ b / np.sqrt(a @ a * (b @ b)) for a, b in zip(A, own, strict=True)
        ]
    row = actual["digits/ensemble"]
    assert row["mean cosine"] == pytest.approx(np.mean(cosines))
    assert row["50 %"] == pytest.approx(np.median(cosines))
    for kind in ("digits", "shuffled digits"):
        row = actual[f"{kind}/adversarial"]
        assert -1 <= row["5 %"] <= row["mean cosine"] < 1
        assert 0 <= row["fraction of feasible models"] <= 1
    models = parts.similarity.adversarial["digits"]
    assert len(models) == 3
    A = [
        integrated_gradients(clf, x[None], target=network.predict(x[None]))[0]
        for (clf, _), x in zip(models, X, strict=True)
    ]
    expected = [a @ b / np.sqrt(a @ a * (b @ b)) for a, b in zip(A, own, strict=True)]
    assert actual["digits/adversarial"]["mean cosine"] == pytest.approx(
        np.mean(expected)
    )

    actual = {row.name: row.compute() for row in similarity.table_c10(parts)}
    run = "digits against shuffled digits"
    distance = parts.similarity.distance
    assert distance.shape == (9, 9)  # the network, 2 members, 3 models of each kind
    expected = {"from the network": distance[0, 1:3].mean(), "within": distance[1, 2]}
    assert actual[f"{run}/ensemble"] == pytest.approx(expected)
    last = actual[f"{run}/adversarial, shuffled digits"]
    assert last["from the network"] == pytest.approx(distance[0, 6:].mean())
    pairs = [distance[6, 7], distance[6, 8], distance[7, 8]]
    assert last["within"] == pytest.approx(np.mean(pairs))
    # the map has the network at zero, and distances near the given ones
    assert actual[f"{run}/network/0"] == {"horizontal": 0, "vertical": 0}
    drawn = [0, 1, 2, 3, 4, 6, 7]
    places = np.concatenate(list(parts.similarity.places.values()))
    given = distance[np.ix_(drawn, drawn)]
    stress = np.sum((cdist(places, places) - given) ** 2) / np.sum(given**2)
    assert stress < 0.1
    parts.seed = 1
    assert len(list(similarity.table_c10(parts))) == 3  # the map is of the first run


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of networks that are not trained
def test_figures_on_files(data, tmp_path, monkeypatch):
    monkeypatch.setattr(similarity, "N_POINTS", 2)
    monkeypatch.setattr(similarity, "N_DRAWN", 2)
    recipe = {**FewImages.recipe, "max_epochs": 2, "n_points": 20, "n_members": 2}
    monkeypatch.setattr(FewImages, "recipe", recipe)
    method = FewImages.method

    def quicker(self, name):
        found = method(self, name)
        return found.set_params(search__n_steps=2) if name == "QUAM, dense" else found

    monkeypatch.setattr(FewImages, "method", quicker)
    tables = ["fig-C.9", "fig-C.10"]
    result = reproduce("quam", tables, data=data, out=tmp_path, seeds=1)
    cells = result.cells.set_index(["table", "row", "column"]).value
    rows = cells["fig-C.9"].index.unique("row")
    assert list(rows) == [
        f"{kind}/{models}"
        for kind in (FewImages.id_name, "notMNIST")
        for models in ("ensemble", "adversarial")
    ]
    by_claim = {claim["table"]: claim["mean"] for claim in result.claims}
    means = cells["fig-C.9"].xs("mean cosine", level="column")
    gain = means[rows[::2]].mean() - means[rows[1::2]].mean()
    assert by_claim["fig-C.9"] == pytest.approx(gain)
    (boxes,), (ax,) = (result.paper.figures[t](result.records).axes for t in tables)
    labels = [label.get_text() for label in boxes.get_yticklabels()]
    assert labels == list(rows)
    # two members, two models of each kind, and the network
    assert [len(points.get_offsets()) for points in ax.collections] == [2, 2, 2, 1]


def test_claims():
    attributions = records(
        "fig-C.9",
        {
            "a/ensemble": {"mean cosine": 0.75},
            "a/adversarial": {"mean cosine": 0.5},
            "b/ensemble": {"mean cosine": 0.5},
            "b/adversarial": {"mean cosine": 1.0},
            "c/ensemble": {"mean cosine": 1.0},
        },
    )
    np.testing.assert_array_equal(similarity.less_alike(attributions), [[0.25, -0.5]])
    predictions = records(
        "fig-C.10",
        {
            "a against b/ensemble": {"from the network": 0.25},
            "a against b/adversarial, a": {"from the network": 0.5},
            "a against b/adversarial, b": {"from the network": 0.125},
            "a against b/adversarial, b/0": {"horizontal": 1, "vertical": 2},
        },
    )
    np.testing.assert_array_equal(similarity.farther(predictions), [[0.25, -0.125]])
    assert similarity.less_alike(predictions) is None
    assert similarity.farther(attributions) is None
