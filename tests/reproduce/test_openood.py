"""The protocol of OpenOOD on tiny image lists."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import roc_auc_score

pytest.importorskip("benchmarks.reproduce", reason="only in the source tree")

from benchmarks.reproduce import _networks, _training, openood, reproduce

SETS = {
    **{"train_cifar10": 40, "test_cifar10": 20, "test_cifar10c": 30},
    **{"test_cifar100": 20, "test_tin": 25},
    **{"test_mnist": 10, "test_svhn": 10, "test_texture": 10},
}


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Lists of images with a bar at the place of their class; Places365 is absent."""
    lists = tmp_path / "data" / "benchmark_imglist" / "cifar10"
    lists.mkdir(parents=True)
    for seed, (name, n) in enumerate(SETS.items()):
        folder = tmp_path / "data" / "images_classic" / name
        folder.mkdir(parents=True)
        rng, y = np.random.default_rng(seed), np.arange(n) % 10
        size = (20, 30, 3) if name == "test_texture" else (32, 32, 3)
        X = rng.integers(200, size=(n, *size), dtype=np.uint8)
        if name.endswith(("_cifar10", "_cifar10c")):
            X = X // 2
            X[np.arange(n), 2 * y] = 255
        else:
            y = np.full(n, -1)
        for i, image in enumerate(X):
            Image.fromarray(image).save(folder / f"{i}.png")
        lines = [f"{name}/{i}.png {label}\n" for i, label in enumerate(y)]
        (lists / f"{name}.txt").write_text("".join(lines))
    monkeypatch.setitem(_training.OPENOOD, "max_epochs", 2)
    monkeypatch.setattr(_training, "AT_CHANCE", -1)
    settings = {"n_neighbors": 5, "n_components": 20}
    monkeypatch.setattr(openood.Stored, "settings", settings)
    network = partial(_networks.lenet, **_networks.CIFAR10)
    small = replace(openood.BENCHMARKS["cifar10"], network=network)
    monkeypatch.setitem(openood.BENCHMARKS, "cifar10", small)
    return tmp_path / "data"


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
def test_lists(data, tmp_path):
    """Rates by the stored features, for sets that are there."""
    run = partial(reproduce, "openood", data=data, out=tmp_path, seeds=1)
    only = ["network", "MaxLogit", "ODIN", "KNN"]
    result = run(["cifar10", "cifar10-fs", "cifar100"], only=only)
    assert list(result.skipped) == ["cifar100"]
    cells = result.cells.set_index(["table", "row", "column"]).value
    cells = cells.sort_index()
    groups = {"near": ("CIFAR-100", "TIN"), "far": ("MNIST", "SVHN", "Textures")}
    rates = ("FPR95", "AUROC", "AUPR-in", "AUPR-out")
    expected = {
        f"{g}/{s}/{r}" for g, sets in groups.items() for s in sets for r in rates
    }
    expected |= {f"near/mean/{rate}" for rate in rates}
    for table in ("cifar10", "cifar10-fs"):
        assert set(cells[table, "KNN"].index) == expected

    [network] = (tmp_path / "networks").iterdir()
    weights = torch.load(network, weights_only=True)
    head = [weights[name].numpy() for name in [*weights][-2:]]
    parts = {
        path.stem: dict(np.load(path))
        for path in (tmp_path / "features" / network.stem).iterdir()
    }
    logits = {
        name: part["Z"].astype(np.float32) @ head[0].T + head[1]
        for name, part in parts.items()
    }
    scores = {name: z.max(axis=1) for name, z in logits.items()}
    for end, known in (("", ["ID"]), ("-fs", ["ID", "CIFAR-10-C"])):
        a, b = np.concatenate([scores[name] for name in known]), scores["TIN"]
        area = roc_auc_score(np.repeat([1, 0], [len(a), len(b)]), np.append(a, b))
        actual = cells[f"cifar10{end}", "MaxLogit", "near/TIN/AUROC"]
        assert actual == pytest.approx(100 * area)
        a = np.concatenate([parts[name]["odin"] for name in known])
        b = parts["TIN"]["odin"]
        area = roc_auc_score(np.repeat([1, 0], [len(a), len(b)]), np.append(a, b))
        assert cells[f"cifar10{end}", "ODIN", "near/TIN/AUROC"] == pytest.approx(
            100 * area
        )
    right = logits["CIFAR-10-C"].argmax(axis=1) == parts["CIFAR-10-C"]["y"]
    actual = cells["cifar10", "network", "CIFAR-10-C/accuracy"]
    assert actual == pytest.approx(100 * right.mean())
    # the claim on far sets needs all of them
    assert [claim["table"] for claim in result.claims] == ["cifar10-fs"]


def test_weights_of_the_user(data, tmp_path):
    """They replace training; ImageNet is not run without."""
    module = _networks.lenet((3, 32, 32), 10)
    path = data / "weights" / "openood-cifar10-0.pth"
    path.parent.mkdir()
    names = {f"other.{name}": value for name, value in module.state_dict().items()}
    torch.save({"state_dict": names}, path)
    run = partial(reproduce, "openood", data=data, out=tmp_path, seeds=1)
    assert set(run(["cifar10"], only=["MSP"]).cells.row) == {"MSP"}
    [network] = (tmp_path / "networks").iterdir()
    used = torch.load(network, weights_only=True)
    for one, other in zip(used.values(), names.values(), strict=True):
        torch.testing.assert_close(one, other)
    assert "weights/resnet50.pth" in run(["imagenet"]).skipped["imagenet"]
    with pytest.raises(ValueError, match="must have the weights of Sequential"):
        openood.load_weights(_networks.lenet((3, 28, 28), 10), path)


def test_long_lists_are_drawn_from(data, tmp_path):
    from benchmarks.reproduce._run import Run

    parts = openood.Stored(Run(data, tmp_path), 0, "cifar10")
    files = parts.benchmark.id_sets["train"]
    X, y = parts.images(files)
    part, labels = parts.images(files, 7)
    assert len(part) == len(labels) == 7
    for image, label in zip(part, labels, strict=True):
        at = np.flatnonzero((X == image).all(axis=(1, 2, 3)))
        assert len(at) == 1 and y[at[0]] == label
