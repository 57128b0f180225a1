"""The paper of QUAM on tiny files: Table 1, harder sets, and ImageNet."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

pytest.importorskip("benchmarks.reproduce", reason="only in the source tree")

from benchmarks.reproduce import _networks, _quam_hard, _quam_imagenet, reproduce
from benchmarks.reproduce._quam_images import FewImages, ranked
from benchmarks.reproduce._run import Run
from skood.detectors import MaxLogit
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
    found = {}
    for row in _quam_imagenet.table_2(parts[0]):
        found.setdefault(row.name, {}).update(row.compute())
    methods = (*_quam_imagenet.METHODS, "own")
    assert set(found["ImageNet-O"]) == {f"{name}/AUROC" for name in methods}
    assert len(found["Misclassification"]) == len(methods)
    sets = parts[0].samples("a", "ImageNet-A")
    wrong = parts[0].head.predict(sets.id) != sets.y
    p = parts[0].head.predict_proba(sets.id)
    expected = roc_auc_score(wrong, -(p * np.log(p)).sum(axis=1))
    assert found["Misclassification"]["Reference/AUROC"] == pytest.approx(expected)
    details = [row.compute() for row in _quam_imagenet.table_c4(parts[0])]
    columns = {column for values in details for column in values}
    assert len(columns) == 3 * len(methods)
    budget = [row.compute() for row in _quam_imagenet.figure_4(parts[0])]
    assert [one["forward passes"] for one in budget] == [30, 60]
