"""Similarity of models, Figures C.9 and C.10 of the QUAM paper, on tiny files."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from scipy.spatial.distance import cdist, jensenshannon

pytest.importorskip("benchmarks.reproduce", reason="only in the source tree")

from benchmarks.reproduce import _quam_similarity as similarity
from benchmarks.reproduce import reproduce
from benchmarks.reproduce._quam_images import Digits, FewImages
from benchmarks.reproduce._run import Run
from skood.epistemic import integrated_gradients
from tests.reproduce.test_quam_studies import records
from tests.reproduce.test_stored import data

__all__ = ["data"]  # a fixture


def test_distances_are_those_of_scipy():
    proba = np.random.default_rng(0).dirichlet(np.ones(3), size=(4, 6))
    proba[0, 0] = [1, 0, 0]
    proba[1, 0] = [0, 1, 0]  # log 2: the largest divergence
    found = similarity.distances(proba)
    for i, p in enumerate(proba):
        for j, q in enumerate(proba):
            divergence = np.nan_to_num(jensenshannon(p, q, axis=1)) ** 2
            expected = np.sqrt(divergence.mean())
            assert found[i, j] == pytest.approx(expected, abs=1e-7)


@pytest.mark.filterwarnings("ignore")  # of networks that are not trained
def test_similarity_of_digits(tmp_path, monkeypatch):
    """Against loops over the models."""
    monkeypatch.setattr(similarity, "N_POINTS", 3)
    monkeypatch.setattr(similarity, "N_DRAWN", 2)
    recipe = {"n_members": 2, "search": {"n_steps": 5, "batch_size": 64}}
    monkeypatch.setattr(Digits, "recipe", recipe)
    parts = Digits(Run(None, tmp_path, device="cpu", small=True), 0)
    found = {row.name: row.compute() for row in similarity.table_c9(parts)}
    X, network = parts.sets.test[0][:3], parts.network
    own = integrated_gradients(network, X)
    cosines = []
    for member in parts.ensemble.estimators_:
        A = integrated_gradients(member, X, target=network.predict(X))
        cosines += [
            a @ b / np.sqrt(a @ a * (b @ b)) for a, b in zip(A, own, strict=True)
        ]
    row = found["digits/ensemble"]
    assert row["mean cosine"] == pytest.approx(np.mean(cosines))
    assert row["50 %"] == pytest.approx(np.median(cosines))
    for kind in ("digits", "shuffled digits"):
        row = found[f"{kind}/adversarial"]
        assert -1 <= row["5 %"] <= row["mean cosine"] < 1
        assert 0 <= row["share of feasible models"] <= 1
    models = parts.similarity.adversarial["digits"]
    assert len(models) == 3
    A = [
        integrated_gradients(clf, x[None], target=network.predict(x[None]))[0]
        for (clf, _), x in zip(models, X, strict=True)
    ]
    expected = [a @ b / np.sqrt(a @ a * (b @ b)) for a, b in zip(A, own, strict=True)]
    assert found["digits/adversarial"]["mean cosine"] == pytest.approx(
        np.mean(expected)
    )

    found = {row.name: row.compute() for row in similarity.table_c10(parts)}
    run = "digits against shuffled digits"
    distance = parts.similarity.distance
    assert distance.shape == (9, 9)  # the network, 2 members, 3 models of each kind
    expected = {"from the network": distance[0, 1:3].mean(), "within": distance[1, 2]}
    assert found[f"{run}/ensemble"] == pytest.approx(expected)
    last = found[f"{run}/adversarial, shuffled digits"]
    assert last["from the network"] == pytest.approx(distance[0, 6:].mean())
    pairs = [distance[6, 7], distance[6, 8], distance[7, 8]]
    assert last["within"] == pytest.approx(np.mean(pairs))
    # the map has the network at zero, and distances near the given ones
    assert found[f"{run}/network/0"] == {"horizontal": 0, "vertical": 0}
    drawn = [0, 1, 2, 3, 4, 6, 7]
    places = np.concatenate(list(parts.similarity.places.values()))
    given = distance[np.ix_(drawn, drawn)]
    stress = np.sum((cdist(places, places) - given) ** 2) / np.sum(given**2)
    assert stress < 0.1
    parts.seed = 1
    assert len(list(similarity.table_c10(parts))) == 3  # the map is of the first run


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
