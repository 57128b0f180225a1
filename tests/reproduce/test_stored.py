"""Networks that are trained, stored and used again: franc and dsde on tiny files."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from functools import partial

import numpy as np
import pytest
import torch
from scipy.io import savemat

pytest.importorskip("benchmarks.reproduce", reason="only in the source tree")

from benchmarks.reproduce import (
    _dsde_libraries,
    _networks,
    _training,
    franc,
    reproduce,
)
from benchmarks.reproduce._training import supcon_views, train_supcon
from tests.benchmark.conftest import idx_bytes
from tests.reproduce.test_images import png, tar


def images(n, size, seed, n_channels=1):
    """Images with a bar at the place of their class, and labels."""
    rng, y = np.random.default_rng(seed), np.arange(n) % 10
    X = rng.integers(60, size=(n, n_channels, size, size), dtype=np.uint8)
    X[np.arange(n), :, 2 * y, :] = 255
    return X, y


@pytest.fixture
def data(tmp_path):
    """MNIST without training files, and another set, in IDX files."""
    for seed, name in enumerate(("mnist", "notmnist")):
        folder = tmp_path / "data" / name
        folder.mkdir(parents=True)
        X, y = images(200, 28, seed)
        X = X if name == "mnist" else X.transpose(0, 1, 3, 2)
        for kind, array in (("images-idx3", X[:, 0]), ("labels-idx1", y)):
            (folder / f"t10k-{kind}-ubyte").write_bytes(idx_bytes(array))
    return tmp_path / "data"


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
def test_franc_on_files(data, tmp_path, monkeypatch):
    monkeypatch.setitem(_training.OPENOOD, "max_epochs", 2)
    monkeypatch.setattr(_training, "AT_CHANCE", -1)
    only = ["MNIST/MSP", "MNIST/KNN+MSP"]
    run = partial(reproduce, "franc", ["2"], data=data, out=tmp_path, seeds=1)
    result = run(only=only)
    assert set(result.skipped) == {
        *("MNIST against FashionMNIST", "MNIST against CIFAR-10"),
        *(
            f"CIFAR-10 against {name}"
            for name in ("MNIST", "TinyImageNet", "CIFAR-100")
        ),
    }
    cells = result.cells.set_index(["row", "column"])
    printed = "notMNIST/selective risk at TPR .8, FPR .08"
    assert set(cells.loc["MNIST/MSP"].verdict[[printed, "notMNIST/AUROC"]]) <= {
        *("agrees", "better", "worse")
    }
    assert cells.loc[("MNIST/MSP", "notMNIST/common FPR"), "verdict"] == ""
    [network] = (tmp_path / "networks").iterdir()
    features = tmp_path / "features" / network.stem
    sizes = {path.stem: len(np.load(path)["Z"]) for path in features.iterdir()}
    assert sizes == {"train": 140, "test": 60, "notmnist": 200}

    # other rows use the network and the features that are stored
    def fails(*_, **__):
        raise AssertionError("trained twice")

    monkeypatch.setattr(franc, "trained_openood", fails)
    assert set(run(only=["MNIST/KNN"]).cells.row) == {"MNIST/KNN"}


def write_cifar_and_ood(root):
    """A hundred images of each set in the forms in which they are published."""
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for seed, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test"]):
        X, y = images(100 if seed > 4 else 20, 32, seed, n_channels=3)
        name = "test_batch" if seed > 4 else name
        rows = np.column_stack([y, X.reshape(len(X), -1)]).astype(np.uint8)
        (folder / f"{name}.bin").write_bytes(rows.tobytes())
    X, y = images(100, 32, 6, n_channels=3)
    savemat(
        root / "test_32x32.mat", {"X": X.transpose(2, 3, 1, 0), "y": y[:, None] + 1}
    )
    folders = ("LSUN/test", "LSUN_resize", "dtd/images/dots", "places365/sea")
    for seed, name in enumerate(folders, start=7):
        (root / name).mkdir(parents=True)
        for i, image in enumerate(images(100, 32, seed, n_channels=3)[0]):
            (root / name / f"{i}.png").write_bytes(png(image))
    patches = enumerate(images(100, 32, 11, n_channels=3)[0])
    files = {f"iSUN_patches/{i}.png": png(image) for i, image in patches}
    (root / "iSUN.tar.gz").write_bytes(tar(files))


@pytest.mark.filterwarnings("ignore:.* was published with:UserWarning")
def test_dsde_on_images(tmp_path, monkeypatch):
    """The library of CIFAR-10, with small networks in place of ResNets."""
    monkeypatch.setitem(_training.OPENOOD, "max_epochs", 1)
    for name, value in (("max_epochs", 1), ("batch_size", 40), ("warm_up", 1)):
        monkeypatch.setitem(_training.SUPCON, name, value)
    monkeypatch.setattr(_dsde_libraries, "_RESNETS", {"ResNet18": _networks.lenet})
    monkeypatch.setattr(_networks, "resnet", _networks.lenet)
    monkeypatch.setattr(_networks, "densenet100", _networks.lenet)
    monkeypatch.setattr(_dsde_libraries.Stored, "n_calibration", 40)

    data = tmp_path / "data"
    write_cifar_and_ood(data)
    result = reproduce(
        "dsde",
        ["1", "2"],
        data=data,
        out=tmp_path / "out",
        seeds=1,
        only=["ResNet18*", "DSDE", "LSUN resized/DSDE", "KNN", "ODIN"],
    )
    cells = result.cells.set_index(["table", "row", "column"])
    assert cells.loc["1"].index.get_level_values(0).unique().tolist() == [
        *("ResNet18*", "ResNet18", "DSDE", "LSUN resized/DSDE")
    ]
    cropped, resized = (
        cells.loc["1"].loc["DSDE"],
        cells.loc["1"].loc["LSUN resized/DSDE"],
    )
    assert "LSUN/FPR" in cropped.index and "LSUN resized/FPR" in resized.index
    assert cropped.value["SVHN/AUC"] == resized.value["SVHN/AUC"]
    assert cropped.value["LSUN/AUC"] != resized.value["LSUN resized/AUC"]
    assert set(resized.verdict) == {""}
    assert cells.loc[("2", "KNN", "average/FPR"), "verdict"] == "cannot follow"
    assert cells.loc[("1", "DSDE", "SVHN/FPR"), "verdict"] != ""
    assert len(list((tmp_path / "out" / "networks").iterdir())) == 3
    # a bootstrap of the samples of the single run
    known = cells.loc[("1", "DSDE", "DTD/AUC")]
    assert known.low <= known.value <= known.high and known.error > 0
    mean, one = (
        cells.loc[("2", "KNN", "DTD/AUC")],
        cells.loc[("1", "ResNet18", "DTD/AUC")],
    )
    assert mean.low < mean.high and one.low < one.high
    singles = ["ResNet18*", "ResNet18"]
    values = [cells.loc[("1", row, "DTD/AUC"), "value"] for row in singles]
    assert all(0 <= value <= 100 for value in values)


def test_contrastive_training_separates_classes():
    """Its loss falls, and a linear head then tells the classes from each other."""
    rng = np.random.default_rng(0)
    X = rng.random((60, 3, 8, 8), dtype=np.float32) / 4
    y = np.arange(60) % 2
    X[y == 1, :, ::2] += 0.6
    losses = []

    def loss(z, codes, temperature):
        losses.append(_dsde_libraries.contrastive_loss(z, codes, temperature))
        return losses[-1]

    def train(seed):
        torch.manual_seed(0)
        body = torch.nn.Sequential(
            *(torch.nn.Conv2d(3, 8, 3), torch.nn.LeakyReLU(), torch.nn.Flatten())
        )
        head = torch.nn.Linear(288, 2)
        recipe = {**_training.SUPCON, "max_epochs": 10, "batch_size": 30, "lr": 0.02}
        recipe["warm_up"] = 1
        train_supcon(body, head, X, y, loss, seed=seed, device="cpu", recipe=recipe)
        with torch.no_grad():
            return head(body(torch.from_numpy(X))).numpy()

    logits = train(0)
    found = [float(value.detach()) for value in losses]
    assert np.mean(found[-4:]) < np.mean(found[:2]) - 0.1
    assert np.mean(logits.argmax(axis=1) == y) > 0.95
    np.testing.assert_array_equal(train(0), logits)


def test_views():
    """Values stay in [0, 1]; a fifth of the views is gray; gray images stay gray."""
    torch.manual_seed(0)
    X = torch.rand(2000, 3, 8, 8)
    views = supcon_views(X)
    assert views.shape == X.shape and views.min() >= 0 and views.max() <= 1
    spread = (views - views.mean(dim=1, keepdim=True)).abs().amax(dim=(1, 2, 3))
    assert abs((spread < 1e-6).float().mean() - 0.2) < 4 * np.sqrt(0.16 / 2000)
    gray = X[:100, :1].expand(100, 3, 8, 8)
    views = supcon_views(gray)
    torch.testing.assert_close(views[:, 0], views[:, 2], atol=1e-5, rtol=0)


def test_turn_of_colors():
    """A third of a turn about the gray axis permutes red, green and blue."""
    X = torch.rand(4, 3, 2, 2)
    turned = _training._with_hue(X, torch.full((4, 1, 1, 1), 1 / 3))
    torch.testing.assert_close(turned, X.roll(1, dims=1))
    again = _training._with_hue(X, torch.ones(4, 1, 1, 1))
    torch.testing.assert_close(again, X)
