"""Networks of concepts on tiny files of GTSRB and CelebA, and effect sizes."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("benchmarks.reproduce", reason="only in the source tree")

from benchmarks.reproduce import _mln_stored, _networks, mln, reproduce
from benchmarks.reproduce._mln_faces import (
    OODS,
    PREDICATES,
    Faces,
    make_face_attributes,
)
from benchmarks.reproduce._mln_figures import effect_sizes
from benchmarks.reproduce._mln_signs import CONCEPTS, SmallSigns
from benchmarks.reproduce._mln_stored import (
    ENCODERS,
    Encoder,
    Images,
    train,
)
from benchmarks.reproduce._paper import Records
from benchmarks.reproduce._run import Run
from skood.logic import KnowledgeBase
from skood.metrics import cohen_d
from tests.reproduce.test_images import png

SIDE = 12


def linear_network(n_outputs):
    """A network with batch normalization, for images of `SIDE` pixels."""
    return nn.Sequential(
        _networks.Standardize((0.0,) * 3, (255.0,) * 3),
        nn.Flatten(),
        nn.Linear(3 * SIDE**2, 24),
        nn.BatchNorm1d(24),
        nn.ReLU(),
        nn.Linear(24, n_outputs),
    )


def write(path, image):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png(image))


def bright(number, rng):
    """An image in which the pixels of a number are bright."""
    image = rng.integers(60, size=(3, SIDE, SIDE), dtype=np.uint8)
    image.reshape(3, -1)[number % 3, 3 * number : 3 * number + 3] = 255
    return image


@pytest.fixture
def data(tmp_path, monkeypatch):
    """OOD sets and networks; files of the ID sets are added by the tests."""
    root, rng = tmp_path / "data", np.random.default_rng(0)
    for folder in ("LSUN/test", "LSUN_resize", "Imagenet/test", "Imagenet_resize"):
        for i in range(4):
            noise = rng.integers(256, size=(3, SIDE, SIDE), dtype=np.uint8)
            write(root / folder / f"{i}.png", noise)
    for folder in ("places365", "iNaturalist/images", "dtd/images/a"):
        for i in range(6):
            write(root / folder / f"{i}.png", bright(47 - i, rng))
    tiny = rng.integers(256, size=(30, 32, 32, 3), dtype=np.uint8)
    np.save(root / "300K_random_images.npy", tiny)
    for name in ("WideResNet-40", "ResNet-18"):
        small = Encoder(linear_network, SIDE, ENCODERS[name].weights)
        monkeypatch.setitem(ENCODERS, name, small)
    monkeypatch.setattr(_mln_stored, "_N_OOD", 8)
    monkeypatch.setitem(_mln_stored.RECIPE, "max_epochs", 2)
    monkeypatch.setitem(_mln_stored.RECIPE, "lr", 0.1)
    return root


@pytest.mark.filterwarnings("ignore")  # numbers of images, distributions of few scores
def test_gtsrb_on_files(data, tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    for part, n in (("Train", 8), ("Test", 2)):
        lines = ["ClassId,Path"]
        for i in range(43 * n):
            write(data / f"{part}/{i}.png", bright(i % 43, rng))
            lines.append(f"{i % 43},{part}/{i}.png")
        (data / f"{part}.csv").write_text("\n".join(lines))
    (data / "Meta.csv").write_text("ClassId\n")
    only = [f"GTSRB/{name}" for name in ("MLN", "MLN+Ensemble+", "MSP", "ID")]
    result = reproduce(
        *("mln", ["1", "2", "3", "4", "5", "concepts"]),
        only=[*only, "MLN", "GED", "GTSRB/batch of 2"],
        data=data,
        out=tmp_path,
        seeds=1,
    )
    for name in ("ViT", "ConvNeXt-Tiny"):
        skipped = result.skipped.get(f"GTSRB, {name}", "")
        there = find_spec("torchvision") is not None
        assert skipped.endswith("no package torchvision") == (not there)
    cells = result.cells.set_index(["table", "row", "column"])
    for place in (
        ("1", "GTSRB/MLN+Ensemble+", "AUROC"),
        ("2", "MLN", "WideResNet-40/FPR95"),
        ("3", "GTSRB/MSP", "difference/+supervision"),
        ("4", "MLN", "AUROC/difference"),
        ("5", "GED", "MLN+ViM/AUROC"),
    ):
        assert cells.verdict[place] in {"agrees", "better", "worse", "differs"}
    values = cells.value
    assert (
        values["2", "MLN", "WideResNet-40/AUROC"] == values["1", "GTSRB/MLN", "AUROC"]
    )
    own, shared = values["1", "GTSRB/MLN", "AUROC"], values["4", "MLN", "AUROC"]
    assert values["4", "MLN", "AUROC/difference"] == pytest.approx(shared - own)
    assert values["concepts", "GTSRB/ID", "color/accuracy"] > 40
    # of each encoder a network for each concept and one of ID samples; a shared one
    networks = [path.name.split("-0-")[0] for path in (tmp_path / "networks").iterdir()]
    names = ("class", "color", "shape", "is_id")
    assert set(networks) == {
        *(f"mln-gtsrb-{e}-{n}" for e in ("WideResNet-40", "ResNet-18") for n in names),
        "mln-gtsrb-WideResNet-40-shared",
    }
    # a rule for each class, fulfilled by all labels
    parts = mln.StoredGTSRB(Run(data, tmp_path), 0)
    kb = KnowledgeBase(parts.constraints, {k: list(v) for k, v in parts.values.items()})
    for name, n in (("train", 307), ("calibration", 37), ("ID", 86)):
        labels = parts.labels(name)
        assert len(labels) == len(parts.load(name)) == n
        assert kb.truth(kb.encode(labels)).all()


@pytest.mark.filterwarnings("ignore")
def test_celeba_on_files(data, tmp_path, monkeypatch):
    rng, names = np.random.default_rng(2), list(mln.CelebA.values)
    values = rng.random((120, len(names))) < 0.5
    lines = ["120", " ".join(name.title() for name in names)]
    for i, row in enumerate(values):
        image = rng.integers(60, size=(3, SIDE, SIDE), dtype=np.uint8)
        image.reshape(3, -1)[:, 5 * np.flatnonzero(row)] = 255
        write(data / f"img_align_celeba/{i}.jpg", image)
        lines.append(f"{i}.jpg " + " ".join(np.where(row, "1", "-1")))
    (data / "list_attr_celeba.txt").write_text("\n".join(lines))
    monkeypatch.setattr(mln.CelebA, "sizes", (60, 30, 30))
    monkeypatch.setitem(_mln_stored.RECIPE, "max_epochs", 10)
    only = [f"CelebA/{name}" for name in ("MLN+Ensemble", "ID", "0.01")]
    result = reproduce(
        *("mln", ["1", "3", "concepts", "fig-4"]),
        only=only,
        data=data,
        out=tmp_path,
        seeds=1,
    )
    cells = result.cells.set_index(["table", "row", "column"])
    assert cells.verdict["1", "CelebA/MLN+Ensemble", "AUPR-OOD"] in {
        *("agrees", "better", "worse")
    }
    shares = cells.value["concepts", "CelebA/ID"].filter(like="accuracy")
    assert len(shares) == 13
    assert shares.mean() > 60
    parts = mln.CelebA(Run(data, tmp_path), 0)
    y = np.concatenate([parts.labels(name) for name in ("train", "calibration", "ID")])
    assert sorted(map(tuple, y.tolist())) == sorted(map(tuple, values.tolist()))
    actual = cells.value["fig-4", "CelebA/0.01", "constraints"]
    assert actual == len(parts.searched_constraints())


def test_weights_of_a_file(tmp_path):
    """All but the last layer are copied in their order, whatever their names are."""
    torch.manual_seed(0)
    theirs = linear_network(7)
    state = {f"layer_{k}": v for k, v in theirs.state_dict().items()}
    torch.save(state, tmp_path / "a.pth")
    mine = _networks.load_weights(linear_network(3), tmp_path / "a.pth", head=False)
    torch.testing.assert_close(mine[:-1].state_dict(), theirs[:-1].state_dict())
    wide = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    with pytest.raises(ValueError, match="has 8 tensors, the network 4"):
        _networks.load_weights(wide, tmp_path / "a.pth", head=False)


def test_training_and_images_of_several_arrays():
    rng, y = np.random.default_rng(0), np.arange(80) % 4
    X = np.stack([bright(i, rng) for i in y])
    images = Images((X[:50], np.arange(50)), (X, np.arange(50, 80)))
    order = rng.permutation(80)
    np.testing.assert_array_equal(images[order], X[order])
    recipe = {"lr": 0.1, "max_epochs": 8, "batch_size": 16}
    codes = np.column_stack([y, y // 2])

    def trained(**changed):
        return train(
            *(lambda: linear_network(6), images, codes, [4, 2]),
            seed=0,
            device="cpu",
            recipe={**recipe, **changed},
        )

    networks = [trained(), trained()]
    with torch.no_grad():
        logits, again = (one(torch.from_numpy(X).float()) for one in networks)
    np.testing.assert_array_equal(logits, again)
    for part, labels in zip(logits.split([4, 2], dim=1), codes.T, strict=True):
        assert np.mean(part.argmax(dim=1).numpy() == labels) > 0.9


def test_features_of_signs(tmp_path, monkeypatch):
    """All parts have other pictures; heads on features are the networks."""
    monkeypatch.setattr(SmallSigns, "max_epochs", 1)
    monkeypatch.setitem(SmallSigns.sizes, "n_train", 150)
    parts = SmallSigns(Run(None, tmp_path), 0)
    pictures = np.concatenate([part.data for part in parts.images.values()])
    assert len(np.unique(pictures.reshape(len(pictures), -1), axis=0)) == len(pictures)
    assert parts.constraints == parts.images.train.constraints
    test = parts.images.test
    X = test.data[test.ood_kind == "color"]
    Z = parts.Z("color")
    assert Z.shape == (60, 4 * 32)
    for name in CONCEPTS:
        proba = parts.readings.classifier(name).predict_proba(Z)
        expected = parts.networks[name].predict_proba(X)
        np.testing.assert_allclose(proba, expected, atol=1e-5)
    shared = parts.shared()
    assert shared.Z("color").shape == (60, 32)
    assert shared.images is parts.images
    head = shared.readings.classifier("shape")
    assert head.classes_.tolist() == parts.networks["shape"].classes_.tolist()


def test_effect_sizes():
    """Over seeds and over OOD sets, of means over the other."""
    rng = np.random.default_rng(0)
    alone, mln_ = rng.normal(size=(2, 4, 3))  # seeds, OOD sets
    actual = [
        {"table": "3", "row": "signs/MSP", "seed": seed, "values": {}}
        for seed in range(4)
    ]
    for record, pair in zip(actual, zip(alone, mln_, strict=True), strict=True):
        for name, some in zip(("detector", "+MLN"), pair, strict=True):
            record["values"] |= {
                f"{ood}/{name}": [value, None, None]
                for ood, value in zip("abc", some, strict=True)
            }
            record["values"][f"AUROC/{name}"] = [some.mean(), None, None]
    table = effect_sizes(Records(actual)).set_index("unit")
    for unit, axis in (("seeds", 1), ("OOD sets", 0)):
        d = cohen_d(mln_.mean(axis=axis), alone.mean(axis=axis))
        np.testing.assert_allclose(table.d[unit], d.value)
        np.testing.assert_allclose(table.low[unit], d.low)


def test_shares_of_face_attributes():
    """The shares, and the rules that hold for most faces, but not for all."""
    faces = make_face_attributes(6000, random_state=0)
    shares = dict(zip(faces.names, faces.attributes.mean(axis=0), strict=True))
    expected = {
        **{"blond_hair": 0.142, "gray_hair": 0.043, "receding_hairline": 0.076},
        **{"heavy_makeup": 0.384, "brown_hair": 0.163, "young": 0.779},
        **{"wearing_lipstick": 0.386, "mustache": 0.042, "male": 0.42},
        **{"goatee": 0.063, "attractive": 0.512, "bald": 0.021, "no_beard": 0.804},
    }
    assert list(shares) == list(expected)
    assert shares == pytest.approx(expected, abs=0.025)
    of = dict(zip(faces.names, faces.attributes.T.astype(bool), strict=True))
    hair = [of[name] for name in ("blond_hair", "gray_hair", "brown_hair")]
    assert np.sum(hair, axis=0).max() == 1
    assert not (of["no_beard"] & of["male"] & (of["mustache"] | of["goatee"])).any()
    shaved = of["no_beard"][of["wearing_lipstick"]].mean()
    assert 0.98 < shaved < 1


def test_images_of_faces():
    """Two columns for each attribute, along a unit vector of the seed."""
    clean = make_face_attributes(4000, random_state=1)
    signs = 2 * clean.attributes - 1
    pairs = clean.data.reshape(-1, 13, 2)
    vectors = (signs[:, :, None] * pairs).mean(axis=0)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=0.03)
    noise = pairs - signs[:, :, None] * vectors
    np.testing.assert_allclose(noise.std(axis=(0, 2)), 0.45, atol=0.02)
    flipped = make_face_attributes(4000, label_noise=0.1, random_state=1)
    np.testing.assert_array_equal(flipped.data, clean.data)
    np.testing.assert_array_equal(clean.labels, clean.attributes)
    share = np.mean(flipped.labels != flipped.attributes, axis=0)
    np.testing.assert_allclose(share, 0.1, atol=0.02)
    other = make_face_attributes(4000, random_state=2)
    assert np.abs(other.data[:10] - clean.data[:10]).max() > 1


def test_kinds_of_ood_faces():
    sets = {kind: make_face_attributes(6000, ood=kind, random_state=1) for kind in OODS}
    assert all((faces.labels == -1).all() for faces in sets.values())
    X = {kind: faces.data.astype(np.float64) for kind, faces in sets.items()}
    assert X["noise"].std() == pytest.approx(1, abs=0.01)
    assert np.abs(X["uniform"]).max() <= 1.5
    assert X["uniform"].std() == pytest.approx(3 / np.sqrt(12), abs=0.01)
    # three dimensions, and a variance of 0.04 in the others
    spectrum = np.linalg.eigvalsh(np.cov(X["texture"].T))
    np.testing.assert_allclose(spectrum[:-3], 0.04, atol=0.006)
    assert spectrum[-3] > 1
    faces = make_face_attributes(6000, random_state=1)
    vectors = (2 * faces.attributes - 1)[:, :, None] * faces.data.reshape(-1, 13, 2)
    vectors = vectors.mean(axis=0)
    # a part of each image, and one background
    signs = 2 * sets["faded"].attributes - 1
    rest = X["faded"] - 0.3 * (signs[:, :, None] * vectors).reshape(6000, 26)
    np.testing.assert_allclose(rest.std(axis=0), 0.45, atol=0.02)
    assert rest.mean(axis=0).std() == pytest.approx(0.3, abs=0.15)
    # each attribute alone is one of faces, and together they are independent
    mixed = sets["mixed"].attributes
    np.testing.assert_allclose(
        mixed.mean(axis=0), faces.attributes.mean(axis=0), atol=0.03
    )
    correlation = np.corrcoef(mixed.T) - np.eye(13)
    assert np.abs(correlation).max() < 0.06
    signs = 2 * mixed - 1
    rest = X["mixed"] - (signs[:, :, None] * vectors).reshape(6000, 26)
    np.testing.assert_allclose(rest.std(axis=0), 0.45, atol=0.02)
    with pytest.raises(ValueError, match="one of noise, uniform, faded"):
        make_face_attributes(5, ood="blurred")


def test_parts_of_faces(tmp_path):
    """Only training labels are flipped; OOD samples of the search are no test's."""
    parts = Faces(Run(None, tmp_path), 0, label_noise=0.3, n=800)
    faces = make_face_attributes(800, label_noise=0.3, random_state=0)
    assert parts.concepts[0] == "brown_hair"
    order = [PREDICATES.index(name) for name in parts.concepts]
    labels = [parts.labels(name) for name in ("train", "calibration", "ID")]
    assert [len(y) for y in labels] == [400, 200, 200]
    np.testing.assert_array_equal(labels[0], faces.labels[:400, order])
    np.testing.assert_array_equal(
        np.concatenate(labels[1:]), faces.attributes[400:, order]
    )
    columns = np.ravel([[2 * j, 2 * j + 1] for j in order])
    np.testing.assert_array_equal(parts.Z("ID"), faces.data[600:, columns])
    accuracy = np.mean(
        [
            parts.readings.classifier(name).predict(parts.Z("ID")) == y
            for name, y in zip(parts.concepts, labels[2].T, strict=True)
        ]
    )
    assert accuracy > 0.9
    search = parts.Z("search")
    assert len(search) == 2 * 100
    for half, kind in ((search[:100], "texture"), (search[100:], "mixed")):
        known = {row.tobytes() for row in parts.Z(kind)}
        assert len(known) == 80
        assert not known & {row.tobytes() for row in half}
    same = make_face_attributes(180, ood="mixed", random_state=0)
    np.testing.assert_array_equal(search[100:], same.data[80:, columns])
    study = parts.of_search
    assert study.constraints == parts.searched_constraints() != parts.constraints
    for method in ("Logic", "MLN"):
        own, other = parts.scores(method), study.scores(method)
        assert not np.array_equal(own["ID"], other["ID"])
