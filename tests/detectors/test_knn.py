"""Tests of the distance to the k-th nearest training feature."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle
import sys
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skood.detectors._knn as module
import skood.utils._array_api as arrays
from skood.detectors import KNN
from skood.detectors._common import _memory_bank
from skood.detectors._common._memory_bank import half_squares, kth_distances
from skood.metrics import auroc
from skood.nn import FeatureExtractor, LinearHead, TorchClassifier
from skood.utils._torch import row_chunks
from tests._loops import looped
from tests._thresholds import middle_of_gap

# What the tests of all estimators check; at night, all of them.
INSTANCES = [
    KNN(),
    KNN(n_neighbors=3, algorithm="sklearn", normalize=False),
    KNN(n_neighbors=3, algorithm="torch", normalize=True),
    KNN(n_neighbors=3, metric="manhattan"),
    KNN(n_neighbors=3, max_samples=0.8, random_state=0, normalize=True),
    KNN(LogisticRegression(), n_neighbors=3),
]


@pytest.fixture(params=["auto", "sklearn", "torch", "faiss"])
def algorithm(request):
    if request.param == "faiss":
        pytest.importorskip("faiss")
    return request.param


def _naive(bank, queries, k, normalize=True):
    """Minus the distance to the k-th nearest row of the bank, row by row."""
    bank, queries = (np.asarray(a, dtype=np.float64) for a in (bank, queries))
    if normalize:
        bank, queries = (
            [r / np.linalg.norm(r) if r.any() else r for r in samples]
            for samples in (bank, queries)
        )
    scores = []
    for q in queries:
        distances = sorted(np.sqrt(np.sum((q - r) ** 2)) for r in bank)
        scores.append(-distances[k - 1])
    return np.array(scores)


def _data(dtype=np.float64):
    rng = np.random.default_rng(0)
    bank, queries = rng.normal(size=(120, 6)), rng.normal(size=(15, 6))
    return bank.astype(dtype), queries.astype(dtype)


@looped("k", [1, 5, 120])
@looped("normalize", [True, False])
@looped("dtype", [np.float32, np.float64])
def test_equals_naive_loop(algorithm, k, normalize, dtype):
    bank, queries = _data(dtype)
    knn = KNN(n_neighbors=k, normalize=normalize, algorithm=algorithm).fit(bank)
    scores = knn.score_samples(queries)
    assert scores.dtype == np.float64
    rtol = 1e-12 if dtype is np.float64 or not normalize else 1e-6
    np.testing.assert_allclose(scores, _naive(bank, queries, k, normalize), rtol=rtol)


def test_known_distances_on_a_circle():
    """Unit vectors at angle a are 2 sin(a / 2) apart, whatever their lengths."""
    angle = np.deg2rad([0, 10, 20, 30])
    length = np.array([1, 7, 0.1, 3])
    bank = length[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    knn = KNN(n_neighbors=3, normalize=True).fit(bank)
    expected = -2 * np.sin(np.deg2rad([20, 10, 10, 20]) / 2)
    np.testing.assert_allclose(knn.score_samples(5 * bank), expected, rtol=1e-14)


def test_training_sample_is_its_first_neighbor(algorithm):
    bank, _ = _data()
    knn = KNN(n_neighbors=1, algorithm=algorithm).fit(bank)
    np.testing.assert_array_equal(knn.score_samples(bank), 0)
    others = KNN(n_neighbors=2, algorithm=algorithm).fit(bank).score_samples(bank)
    assert knn.offset_ == middle_of_gap(others, 0.05)  # not its own for the threshold


def test_normalizing_makes_scores_independent_of_lengths(algorithm):
    bank, queries = _data()
    knn = KNN(n_neighbors=4, algorithm=algorithm, normalize=True)
    scores = knn.fit(bank).score_samples(queries)
    scaled = bank * np.linspace(0.01, 100, len(bank))[:, None]
    np.testing.assert_allclose(
        knn.fit(scaled).score_samples(queries * 1e-3), scores, rtol=1e-10
    )


def test_zero_vectors_stay_zero(algorithm):
    """They are at distance 1 from every unit vector, and at 0 from each other."""
    bank, queries = _data()
    queries[0] = 0
    knn = KNN(n_neighbors=2, algorithm=algorithm, normalize=True)
    assert knn.fit(bank).score_samples(queries)[0] == pytest.approx(-1, rel=1e-12)
    bank[:2] = 0
    assert knn.fit(bank).score_samples(queries)[0] == 0


# Far from the origin squared norms are large and nearly equal: what float32 leaves of
# their difference is noise.
@pytest.mark.parametrize("offset", [1e2, 1e4])
def test_data_far_from_the_origin(algorithm, offset):
    bank, queries = (a + np.float32(offset) for a in _data(np.float32))
    knn = KNN(n_neighbors=7, normalize=False, algorithm=algorithm).fit(bank)
    np.testing.assert_allclose(
        knn.score_samples(queries), _naive(bank, queries, 7, False), rtol=1e-5
    )


@looped("spread", [0.1, 0.01, 1e-3])
def test_features_in_tight_clusters(algorithm, spread):
    """As networks make them: within a class nearly all the same direction."""
    rng = np.random.default_rng(0)
    centers = np.abs(rng.normal(size=(5, 256)))

    def draw(n_samples):
        noise = rng.normal(size=(n_samples, 256))
        samples = centers[rng.integers(0, 5, n_samples)] + spread * noise
        return np.maximum(samples, 0).astype(np.float32)

    bank, queries = draw(500), draw(600)
    knn = KNN(n_neighbors=20, algorithm=algorithm, normalize=True).fit(bank)
    expected = -np.sort(cdist(knn._prepared(queries), knn.bank_), axis=1)[:, 19]
    scores = knn.score_samples(queries)
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    # a few queries take another way through faiss
    np.testing.assert_allclose(knn.score_samples(queries[:3]), scores[:3], rtol=1e-5)


@looped("dtype", [np.float32, np.float64])
@looped("size", [1e-30, 1e-17, 1e17, 1e30])
def test_size_of_the_features_does_not_matter(algorithm, dtype, size):
    """Squares of float32 underflow or overflow; scikit-learn takes 1e-17 for zero."""
    bank, queries = _data()
    knn = KNN(n_neighbors=4, algorithm=algorithm, normalize=True).fit(
        (bank * size).astype(dtype)
    )
    norms = np.linalg.norm(knn.bank_.astype(np.float64), axis=1)
    np.testing.assert_allclose(norms, 1, rtol=1e-6)
    np.testing.assert_allclose(
        knn.score_samples((queries * size).astype(dtype)),
        _naive(bank, queries, 4),
        rtol=1e-5,
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tensors_are_scaled_as_arrays_are(dtype):
    X = np.random.default_rng(0).normal(size=(50, 6)).astype(dtype)
    X *= np.logspace(-35, 35, 50)[:, None].astype(dtype)
    X[7] = 0
    knn = KNN(normalize=True).fit(_data()[0])
    units = knn._prepared(X)
    assert units.dtype == dtype and not units[7].any()
    from_tensor = knn._prepared(torch.as_tensor(X))
    np.testing.assert_allclose(
        from_tensor, units, rtol=1e-6 if dtype == "f4" else 1e-15
    )


@pytest.mark.parametrize("kinds", [("f4", "f8"), ("f8", "f4")])
def test_bank_and_queries_of_different_precision(algorithm, kinds):
    bank, queries = _data()
    bank, queries = bank.astype(kinds[0]), queries.astype(kinds[1])
    knn = KNN(n_neighbors=4, normalize=False, algorithm=algorithm).fit(bank)
    expected = _naive(bank, queries, 4, normalize=False)
    np.testing.assert_allclose(knn.score_samples(queries), expected, rtol=1e-12)


def test_queries_that_float32_cannot_hold(algorithm):
    bank, queries = _data(np.float32)
    queries = queries.astype(np.float64) * 1e40
    knn = KNN(n_neighbors=4, normalize=False, algorithm=algorithm).fit(bank)
    expected = _naive(bank, queries, 4, normalize=False)
    np.testing.assert_allclose(knn.score_samples(queries), expected, rtol=1e-12)


@pytest.mark.parametrize("k", [1, 7, 40])
def test_torch_searches_the_bank_in_tiles(monkeypatch, k):
    """Tiles of 10 rows, of which a tile may hold fewer than k."""
    bank, queries = _data()
    bank[100:104] = bank[3:7]  # ties in different tiles
    knn = KNN(n_neighbors=k, algorithm="torch", normalize=False).fit(bank)
    monkeypatch.setattr(module, "CPU_BYTES", 10 * 8 * 6)
    collected = []
    original = _memory_bank.distances_of_tiles
    monkeypatch.setattr(
        module,
        "distances_of_tiles",
        lambda q, b, tiles, *rest: (
            collected.append(len(tiles)) or original(q, b, tiles, *rest)
        ),
    )
    expected = _naive(bank, queries, k, normalize=False)
    np.testing.assert_allclose(knn.score_samples(queries), expected, rtol=1e-12)
    assert set(collected) == {12} and len(collected) > 1


def _status(name):
    """Return an entry of the memory of this process, in MiB."""
    with open("/proc/self/status") as file:
        return int(file.read().split(name)[1].split()[0]) / 1024


@pytest.mark.skipif(sys.platform != "linux", reason="uses /proc")
@pytest.mark.parametrize(
    "params, kind",
    [
        ({"metric": "cosine"}, "f4"),
        ({"algorithm": "sklearn"}, "f8"),
        ({"algorithm": "torch", "device": "cpu"}, "f4"),
    ],
)
def test_memory_of_scoring_is_bounded(params, kind):
    """300 MiB and more if all distances are in memory at once."""
    rng = np.random.default_rng(0)
    bank = rng.normal(size=(20_000, 16)).astype(np.float32)
    queries = rng.normal(size=(1_500, 16)).astype(kind)
    knn = KNN(**params).fit(bank[:100])
    knn.bank_, knn._neighbors = bank, None
    knn._halves = half_squares(bank)
    knn.score_samples(queries[:50])
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pytest.skip("the peak of memory cannot be reset here")
    before = _status("VmRSS:")
    knn.score_samples(queries)
    assert _status("VmHWM:") - before < 200


def test_chunks_change_nothing(algorithm, monkeypatch):
    bank, queries = _data()
    knn = KNN(n_neighbors=9, algorithm=algorithm, normalize=True).fit(bank)
    scores = knn.score_samples(queries)
    for place in (_memory_bank, module):
        monkeypatch.setattr(
            place,
            "row_chunks",
            lambda n, size, _=0: row_chunks(n, size, budget=3 * size),
        )
    np.testing.assert_array_equal(knn.score_samples(queries), scores)


@pytest.mark.parametrize("metric", ["manhattan", "chebyshev", "cosine", "l2"])
@pytest.mark.parametrize("algorithm", ["auto", "sklearn"])
def test_other_metrics(metric, algorithm):
    bank, queries = _data()
    knn = KNN(n_neighbors=6, metric=metric, normalize=False, algorithm=algorithm)
    names = {"manhattan": "cityblock", "l2": "euclidean"}
    distances = cdist(queries, bank, metric=names.get(metric, metric))
    np.testing.assert_allclose(
        knn.fit(bank).score_samples(queries), -np.sort(distances, axis=1)[:, 5]
    )


def test_unknown_metric():
    with pytest.raises(ValueError, match="'metric' parameter of NearestNeighbors"):
        KNN(n_neighbors=2, metric="furlong").fit(_data()[0])


@pytest.mark.parametrize(
    "metric, advice",
    [
        ("mahalanobis", "Whiten the features"),
        ("seuclidean", "Scale the features, such as by StandardScaler"),
        ("precomputed", "Give the features"),
        ("pyfunc", "Name another metric"),
    ],
)
def test_metrics_of_more_than_two_samples(metric, advice):
    with pytest.raises(ValueError, match=f"metric='{metric}' needs more.*{advice}"):
        KNN(n_neighbors=2, metric=metric).fit(_data()[0])


@pytest.mark.parametrize(
    "max_samples, kept", [(30, 30), (0.25, 30), (1e-6, 1), (120, 120), (9999, 120)]
)
def test_max_samples(max_samples, kept):
    bank, queries = _data()
    knn = KNN(n_neighbors=1, normalize=False, max_samples=max_samples, random_state=0)
    knn.fit(bank)
    assert knn.bank_.shape == (kept, 6)
    # distinct rows of the training data, in their order
    indices = [int(np.flatnonzero((bank == row).all(axis=1))[0]) for row in knn.bank_]
    assert indices == sorted(set(indices))
    expected = _naive(knn.bank_, queries, 1, normalize=False)
    np.testing.assert_allclose(knn.score_samples(queries), expected, rtol=1e-12)
    # the threshold is that of all training samples, those of the bank without them
    scores = _naive(knn.bank_, bank, 1, normalize=False)
    if kept > 1:
        scores[knn.bank_rows_] = _naive(knn.bank_, knn.bank_, 2, normalize=False)
    else:
        scores = np.delete(scores, knn.bank_rows_)
    assert knn.offset_ == pytest.approx(middle_of_gap(scores, 0.05), rel=1e-9)


def test_max_samples_is_reproducible():
    bank, _ = _data()
    banks = [
        KNN(n_neighbors=3, max_samples=50, random_state=seed).fit(bank).bank_
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(banks[0], banks[1])
    assert not np.array_equal(banks[0], banks[2])


@pytest.mark.parametrize("max_samples", [None, 10, 0.1])
def test_more_neighbors_than_samples(max_samples):
    n_samples = 40 if max_samples is None else max_samples
    n_samples = 4 if n_samples == 0.1 else n_samples
    message = (
        f"n_neighbors=41 is more than the training samples.*n_samples = {n_samples}"
    )
    with pytest.raises(ValueError, match=message):
        KNN(n_neighbors=41, max_samples=max_samples).fit(_data()[0][:40])


@pytest.mark.parametrize("algorithm", ["faiss", "torch"])
def test_algorithms_that_are_euclidean_only(algorithm):
    message = f"algorithm='{algorithm}' needs metric='euclidean', got 'manhattan'"
    with pytest.raises(ValueError, match=message):
        KNN(n_neighbors=2, metric="manhattan", algorithm=algorithm).fit(_data()[0])


def _without_metadata(name):
    raise PackageNotFoundError(name)


def test_faiss_that_is_not_installed(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    bank, queries = _data()
    with pytest.raises(ValueError, match=r'pip install "faiss-cpu>='):
        KNN(n_neighbors=2, algorithm="faiss").fit(bank)
    with monkeypatch.context() as patch:  # a clone that is not installed
        patch.setattr("importlib.metadata.distribution", _without_metadata)
        with pytest.raises(ValueError, match=r'pip install "\.\[faiss\]"'):
            KNN(n_neighbors=2, algorithm="faiss").fit(bank)
    scores = (
        KNN(n_neighbors=2, normalize=True).fit(bank).score_samples(queries)
    )  # "auto" does without
    np.testing.assert_allclose(scores, _naive(bank, queries, 2), rtol=1e-12)


@pytest.mark.parametrize(
    "device, n_rows, cuda, faiss, chosen",
    [
        ("auto", 1_000, True, True, "faiss"),  # too few rows for a GPU
        ("auto", 500_000, True, True, "torch"),
        ("auto", 500_000, False, True, "faiss"),
        ("auto", 500_000, False, False, "sklearn"),
        ("cpu", 500_000, True, False, "sklearn"),
        ("cuda", 10, True, True, "torch"),  # the user requested it
    ],
)
def test_automatic_choice(monkeypatch, device, n_rows, cuda, faiss, chosen):
    monkeypatch.setattr(arrays, "_cuda_is_there", lambda: cuda)
    monkeypatch.setattr(
        arrays,
        "double_device",
        lambda name: torch.device("cuda" if cuda and name != "cpu" else "cpu"),
    )
    monkeypatch.setattr(module, "find_spec", lambda name: object() if faiss else None)
    assert KNN(device=device)._choose(np.empty((n_rows, 5))) == chosen


def test_device_that_is_not_there():
    with pytest.raises(ValueError, match="Unknown device 'abacus'"):
        KNN(n_neighbors=2, algorithm="torch", device="abacus").fit(_data()[0])


def test_threshold_is_estimated_from_at_most_1000_samples(monkeypatch):
    scored = []
    original = module.kth_distances
    monkeypatch.setattr(
        module,
        "kth_distances",
        lambda samples, *options: (
            scored.append(len(samples)) or original(samples, *options)
        ),
    )
    X = np.random.default_rng(0).normal(size=(6_000, 2))
    knn = KNN(n_neighbors=5, normalize=False, contamination=0.05).fit(X)
    assert sum(scored) == 1000
    rejected = np.mean(knn.predict(X) == -1)
    # five standard errors of the level of a quantile estimated from 1,000 samples
    assert abs(rejected - 0.05) < 5 * np.sqrt(0.05 * 0.95 / 1000)
    assert knn.fit(X).offset_ == KNN(n_neighbors=5, normalize=False).fit(X).offset_


def test_threshold_sees_all_classes_that_take_turns():
    """Every second row would be of one class here."""
    rng = np.random.default_rng(0)
    y = np.arange(10_000) % 2
    X = rng.normal(size=(10_000, 2)) * np.where(y, 10.0, 1.0)[:, None] + 50 * y[:, None]
    knn = KNN(n_neighbors=5, normalize=False).fit(X, y)
    rejected = np.mean(knn.predict(X[:3000]) == -1)
    assert abs(rejected - 0.05) < 5 * np.sqrt(0.05 * 0.95 / 1000)


def test_pickle_holds_the_bank_once(algorithm):
    bank = np.random.default_rng(0).normal(size=(1000, 50))
    knn = KNN(algorithm=algorithm, normalize=True).fit(bank)
    data = pickle.dumps(knn)
    assert len(data) < 1.1 * bank.nbytes
    np.testing.assert_array_equal(
        pickle.loads(data).score_samples(bank[:30]), knn.score_samples(bank[:30])
    )


def test_ranks_the_far_below_the_near():
    rng = np.random.default_rng(0)
    bank = rng.normal(size=(300, 8)) + 4
    knn = KNN(n_neighbors=10, normalize=True).fit(bank)
    direction = np.ones(8)
    rotated = np.linspace(0, np.pi, 20)
    other = np.array([1.0, -1, 1, -1, 1, -1, 1, -1])
    path = np.cos(rotated)[:, None] * direction + np.sin(rotated)[:, None] * other
    assert np.all(np.diff(knn.score_samples(path)) < 0)


def test_explain_names_as_many_neighbors_as_there_are():
    bank, queries = _data()
    for k, named in ((3, 3), (9, 5)):
        frame = KNN(n_neighbors=k, normalize=True).fit(bank).explain(queries)
        assert [c for c in frame if c.startswith("neighbor_")] == [
            f"neighbor_{j + 1}" for j in range(named)
        ]


@pytest.mark.parametrize("n_neighbors", [-1, 4, 2.0])
def test_explain_cannot_name_more_neighbors_than_the_score_has(n_neighbors):
    bank, queries = _data()
    knn = KNN(n_neighbors=3, normalize=True).fit(bank)
    message = f"name from 0 to 3 .*got n_neighbors={n_neighbors}. Name fewer, or fit"
    with pytest.raises(ValueError, match=message):
        knn.explain(queries, n_neighbors=n_neighbors)


def test_other_metrics_have_no_contributions():
    bank, queries = _data()
    knn = KNN(n_neighbors=3, metric="manhattan").fit(bank)
    with pytest.raises(
        ValueError, match="metric='manhattan' a distance is no sum over"
    ):
        knn.explain(queries)


def test_default_works_on_30_samples():
    X = np.random.default_rng(0).normal(loc=3, size=(30, 4))
    detector = KNN().fit(X)
    assert detector.score_samples(-X).max() < detector.score_samples(X).min()
    np.testing.assert_array_equal(
        detector.score_samples(X), KNN(n_neighbors=5).fit(X).score_samples(X)
    )


@looped("kind", ["f4", "f8"])
@looped("n, n_neighbors", [(7, 7), (300, 1), (3000, 5), (3000, 60)])
@looped("search_bytes", [2**14, 2**23])
def test_candidates_have_the_distances_of_a_loop(
    kind, n, n_neighbors, search_bytes, monkeypatch
):
    monkeypatch.setattr(_memory_bank, "_SEARCH_BYTES", search_bytes)
    rng = np.random.default_rng(n)
    bank = 1 + rng.normal(size=(n, 6)).astype(kind)
    bank[: n // 6] = bank[0]  # ties
    own = np.append(np.full(9, -1), [n - 1, n - 2, 0, n // 2])
    near = np.vstack([rng.normal(size=(9, 6)), bank[own[9:]]])
    halves, searched = half_squares(bank), []
    for queries, left_out in ((bank[-1:], None), (near, None), (near, own)):
        actual = kth_distances(queries, bank, halves, n_neighbors, left_out)
        gaps = queries[:, None].astype(float) - bank
        distances = np.linalg.norm(gaps, axis=2)
        if left_out is not None:
            distances[np.arange(9, 13), own[9:]] = np.inf
        distances = np.sort(distances, axis=1)[:, n_neighbors - 1]
        searched.append(actual is not None)
        if searched[-1]:
            np.testing.assert_allclose(actual, distances, rtol=1e-15)
    few = n < 3000 or search_bytes > 2**14  # of the ties, at most 100 per sample
    # without itself, a sample of seven has six neighbors only
    assert searched == [True, few, few and n > 7]


def test_many_candidates_are_left_to_a_search():
    bank = np.ones((2000, 3), dtype=np.float32)
    halves = half_squares(bank)
    assert kth_distances(bank[:1], bank, halves, 2) is None  # all are candidates
    assert kth_distances(np.ones((5000, 3)), bank, halves, 2) is None
    assert half_squares(np.float32([[1e30]])) is None
    assert kth_distances(np.array([[1e200, 0, 0]]), bank, halves, 2) is None


@pytest.mark.parametrize("scale", [1e-19, 1e-22])
def test_candidates_with_underflow(scale):
    bank = np.random.default_rng(0).normal(size=(100, 4)).astype("f4")
    bank *= np.float32(scale)
    actual = kth_distances(bank[:9], bank, half_squares(bank), 2)
    distances = np.linalg.norm(bank[:9, None].astype(float) - bank, axis=2)
    np.testing.assert_allclose(actual, np.sort(distances, axis=1)[:, 1], rtol=1e-12)


def _refused(detector, X, ood):
    """AUROC of new against OOD samples, and the rejected fraction of OOD samples."""
    truth = np.repeat([1, -1], [len(X), len(ood)])
    scores = detector.score_samples(np.concatenate([X, ood]))
    return auroc(truth, scores), np.mean(detector.predict(ood) == -1)


def test_sees_the_size_of_inputs():
    rng = np.random.default_rng(0)
    A, new, far = rng.normal(size=(300, 5)), *rng.normal(size=(2, 100, 5))
    far[:, 0] += rng.choice([-30, 30], 100)
    assert _refused(KNN().fit(A), new, far) == (1.0, 1.0)
    A, new, wide = rng.normal(size=(300, 2)), *rng.normal(size=(2, 500, 2))
    assert _refused(KNN().fit(A), new, 6 * wide)[0] > 0.95


def test_left_out_wines():
    X, y = load_wine(return_X_y=True)
    for left_out in range(3):
        train, test = train_test_split(X[y != left_out], random_state=0)
        knn = make_pipeline(StandardScaler(), KNN()).fit(train)
        assert _refused(knn, test, X[y == left_out])[0] > 0.9


def test_trees_and_linear_models_give_inputs():
    rng = np.random.default_rng(0)
    A, far = rng.normal(size=(300, 5)), rng.normal(size=(100, 5))
    far[:, 0] += 30
    y = (A[:, 1] > 0).astype(int)
    for classifier in (
        LogisticRegression(),
        RandomForestClassifier(10, random_state=0),
        make_pipeline(StandardScaler(), LogisticRegression()),
        MLPClassifier((), max_iter=20, random_state=0),  # without a hidden layer
    ):
        knn = KNN(classifier).fit(A, y)
        assert knn.normalize_ is False
        assert np.all(knn.predict(far) == -1)


def _networks():
    """Classifiers whose features are a layer of a network."""
    mlp = MLPClassifier((8,), max_iter=30, random_state=0)
    torch_net = TorchClassifier(
        module_params={"hidden": (8,)}, max_epochs=2, random_state=0
    )
    return {
        "mlp": mlp,
        "frozen pipeline": make_pipeline(StandardScaler(), mlp),
        "torch": torch_net,
        "body": make_pipeline(FeatureExtractor(mlp), LogisticRegression()),
        "head": LinearHead(),
    }


@pytest.mark.parametrize("name", _networks())
def test_features_of_networks_have_unit_length(name):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(200, 5)).astype(np.float32)
    y = (A[:, 1] > 0).astype(int)
    network = _networks()[name].fit(A, y)
    if name.startswith("frozen"):
        network = FrozenEstimator(network)
    knn = KNN(network, n_neighbors=3).fit(A, y)
    unit = KNN(network, n_neighbors=3, normalize=True).fit(A, y)
    assert knn.normalize_ is True
    lengths = np.linalg.norm(knn.bank_, axis=1)
    np.testing.assert_allclose(lengths[lengths > 0], 1, rtol=1e-5)
    np.testing.assert_array_equal(knn.score_samples(A), unit.score_samples(A))


def test_inputs_of_a_body_are_inputs():
    """A `FeatureExtractor` of a linear model returns its input."""
    A, _ = _data()
    y = (A[:, 0] > 0).astype(int)
    body = FeatureExtractor(LogisticRegression())
    knn = KNN(make_pipeline(body, LogisticRegression())).fit(A, y)
    assert knn.normalize_ is False
