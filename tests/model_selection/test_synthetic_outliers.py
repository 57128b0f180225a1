"""Tests of synthetic outliers: each definition is recomputed from its formula."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.stats import chi2, kstest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score

from skood.datasets import load_digits_ood
from skood.detectors import KNN, Energy
from skood.metrics import make_ood_scorer
from skood.model_selection import OODStratifiedKFold, make_synthetic_outliers

KINDS = ("mixing", "swapping", "dropout", "boundary", "uniform")


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [5, 20, 35])
    return rng.normal(size=(60, 4)) + 10 * y[:, None], y


def outliers(X, y, kind, **options):
    X_all, y_all = make_synthetic_outliers(X, y, kind=kind, **options)
    assert_array_equal(np.asarray(X_all)[: len(X)], X)
    assert_array_equal(y_all[: len(y)], y)
    return X_all[len(X) :]


@pytest.mark.parametrize("kind", KINDS)
def test_samples_and_labels(data, kind):
    X, y = data
    drawn = outliers(X, y, kind, random_state=3)
    assert drawn.shape == (60, 4)
    assert_array_equal(outliers(X, y, kind, random_state=3), drawn)
    assert not np.array_equal(outliers(X, y, kind, random_state=4), drawn)
    _, labels = make_synthetic_outliers(X, y, kind=kind, n_samples=7)
    assert_array_equal(labels[60:], np.full(7, -1))


def test_mixing_is_the_mean_of_two_classes(data):
    X, y = data
    drawn = outliers(X, y, "mixing", n_samples=500, random_state=0)
    i, j = np.nonzero(y[:, None] < y)
    pairs = (X[i] + X[j]) / 2
    distance = np.abs(drawn[:, None] - pairs).max(axis=2)
    assert distance.min(axis=1).max() < 1e-12


def test_pairs_are_uniform_over_samples_of_other_classes(data):
    _, y = data
    X = np.eye(60)  # the mean of a pair shows the pair
    bits = outliers(X, y, "mixing", n_samples=30_000, random_state=0) == 0.5
    assert_array_equal(bits.sum(axis=1), 2)
    # sample i is first with probability 1 / 60, or second after another class
    count = np.bincount(y)
    share = count / 60
    second = [sum(share[k] / (60 - count[k]) for k in range(3) if k != c) for c in y]
    expected = 1 / 60 + np.array(second)
    deviation = (bits.mean(axis=0) - expected) / np.sqrt(expected / 30_000)
    assert np.abs(deviation).max() < 4


def test_swapping_takes_half_of_the_columns_of_another_class():
    y = np.repeat([0, 1], [3, 4])
    X = np.arange(7 * 5).reshape(7, 5)  # integers stay integers
    drawn = outliers(X, y, "swapping", n_samples=200, random_state=0)
    assert drawn.dtype == X.dtype
    samples = drawn // 5
    assert_array_equal(drawn % 5, np.tile(np.arange(5), (200, 1)))  # columns stay
    for row in samples:
        values, counts = np.unique(row, return_counts=True)
        assert sorted(counts) == [2, 3]
        assert set(y[values]) == {0, 1}
    minority = [values[counts.argmin()] for values, counts in map(_counted, samples)]
    assert len(set(minority)) == 7
    taken = samples == np.array(minority)[:, None]
    assert np.abs(taken.mean(axis=0) - 0.4).max() < 0.14  # four standard deviations


def _counted(row):
    return np.unique(row, return_counts=True)


def test_dropout_sets_half_of_the_columns_to_their_means(data):
    X, y = data
    drawn = outliers(X, y, "dropout", n_samples=300, random_state=0)
    is_mean = np.isclose(drawn, X.mean(axis=0), rtol=1e-12, atol=0)
    assert_array_equal(is_mean.sum(axis=1), 2)
    for row, mean in zip(drawn, is_mean, strict=True):
        assert (X[:, ~mean] == row[~mean]).all(axis=1).any()


def test_uniform_samples_are_in_the_range_and_uniform(data):
    X, y = data
    drawn = outliers(X, y, "uniform", n_samples=5000, random_state=0)
    unit = (drawn - X.min(axis=0)) / (X.max(axis=0) - X.min(axis=0))
    assert min(kstest(unit[:, j], "uniform").pvalue for j in range(4)) > 1e-3
    assert np.abs(np.corrcoef(unit.T) - np.eye(4)).max() < 4 / np.sqrt(5000)


def test_boundary_samples_are_the_tail_of_gaussian_classes(data):
    X, y = data
    drawn = outliers(X, y, "boundary", n_samples=5000, random_state=0)
    centers = np.stack([X[y == k].mean(axis=0) for k in range(3)])
    residuals = X - centers[y]
    precision = np.linalg.inv(residuals.T @ residuals / (60 - 3))
    delta = drawn[:, None] - centers
    squares = np.einsum("nki,ij,nkj->nk", delta, precision, delta).min(axis=1)
    # the tail of a chi-squared variable beyond its quantile is uniform in P
    tail = chi2.sf(squares, 4) / 1e-4
    assert tail.max() < 1 + 1e-6
    assert kstest(tail, "uniform").pvalue > 1e-3
    of_class = np.bincount(
        np.einsum("nki,ij,nkj->nk", delta, precision, delta).argmin(axis=1)
    )
    assert_allclose(of_class / 5000, np.bincount(y) / 60, atol=0.03)


def test_boundary_of_a_singular_covariance_stays_in_its_span():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 3)) @ rng.normal(size=(3, 40)) + 5
    y = np.repeat([0, 1], 6)
    drawn = outliers(X, y, "boundary", n_samples=50, random_state=0)
    centers = np.stack([X[y == k].mean(axis=0) for k in (0, 1)])
    basis = np.linalg.svd(X - centers[y])[2][:3]
    delta = (drawn[:, None] - centers).reshape(-1, 40)
    off = np.linalg.norm(delta - delta @ basis.T @ basis, axis=1).reshape(50, 2)
    assert off.min(axis=1).max() < 1e-9


@pytest.mark.parametrize("kind", ["mixing", "dropout", "uniform", "swapping"])
def test_units_of_columns_do_not_matter(data, kind):
    X, y = data
    scale, shift = np.array([1e-3, 1.0, 7.0, 1e4]), np.array([0.0, -3.0, 1.0, 5.0])
    expected = outliers(X, y, kind, random_state=0) * scale + shift
    actual = outliers(X * scale + shift, y, kind, random_state=0)
    assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_known_ood_samples_are_returned_and_not_used(data, kind):
    X, y = data
    far = np.full((2, 4), 1e6)
    with_far, labels = np.concatenate([far, X]), np.concatenate([[-1, -1], y])
    actual = outliers(with_far, labels, kind, random_state=0)
    assert_array_equal(actual, outliers(X, y, kind, random_state=0))


@pytest.mark.parametrize("kind", KINDS)
def test_frames_images_tensors_and_dtypes(data, kind):
    torch = pytest.importorskip("torch")
    X, y = data
    expected = outliers(X, y, kind, random_state=0)
    frame = pd.DataFrame(X, columns=list("abcd"), index=np.arange(60) + 7)
    actual = outliers(frame, y, kind, random_state=0)
    assert list(actual.columns) == list("abcd")
    assert_array_equal(actual, expected)
    images = outliers(X.reshape(60, 1, 2, 2), y, kind, random_state=0)
    assert_array_equal(images.reshape(60, 4), expected)
    tensor, _ = make_synthetic_outliers(torch.tensor(X), y, kind=kind, random_state=0)
    assert_array_equal(tensor[60:], expected)
    floats = outliers(X.astype(np.float32), y, kind, random_state=0)
    assert floats.dtype == np.float32
    assert_allclose(floats, expected, rtol=1e-3, atol=1e-3)


def test_swapping_frames_of_any_columns():
    frame = pd.DataFrame(
        {
            "color": pd.Categorical(["red", "blue"] * 3),
            "when": pd.date_range("2026-01-01", periods=6),
            "size": [1.0, np.nan, 3.0, 4.0, 5.0, 6.0],
            "name": list("uvwxyz"),
        }
    )
    y = np.array(["a", "a", "a", "b", "b", "b"])
    X_all, y_all = make_synthetic_outliers(
        frame, y, kind="swapping", n_samples=40, random_state=0, ood_label="other"
    )
    assert_array_equal(X_all.dtypes, frame.dtypes)
    assert_array_equal(y_all, np.repeat(["a", "b", "other"], [3, 3, 40]))
    first = X_all["name"].map(dict(zip("uvwxyz", y, strict=True)))
    when = X_all["when"].map(dict(zip(frame["when"], y, strict=True)))
    differs = (first != when)[6:]
    assert 0.4 < differs.mean() < 0.95  # 2 of 3 pairs of columns are split
    with pytest.raises(ValueError, match=r"\['color', 'when', 'name'\] are not"):
        make_synthetic_outliers(frame, y, kind="uniform")


def test_a_search_over_detectors_of_a_frozen_network():
    X, y = load_digits_ood(left_out=[8, 9], ood_label=-1, return_X_y=True)
    X, y = X[y != -1][:600], y[y != -1][:600]
    network = FrozenEstimator(LogisticRegression(max_iter=500).fit(X[:300], y[:300]))
    options = {"kind": "swapping", "random_state": 0}

    def scorer(detector, X, y):
        return make_ood_scorer()(detector, *make_synthetic_outliers(X, y, **options))

    search = GridSearchCV(
        KNN(network),
        {"n_neighbors": [1, 200]},
        cv=StratifiedKFold(3),
        scoring=scorer,
        error_score="raise",
    ).fit(X[300:], y[300:])
    assert search.best_params_ == {"n_neighbors": 1}
    X_all, y_all = make_synthetic_outliers(X[300:], y[300:], **options)
    scores = cross_val_score(
        Energy(network),
        X_all,
        y_all,
        cv=OODStratifiedKFold(3),
        scoring=make_ood_scorer(),
        error_score="raise",
    )
    assert scores.min() > 0.6


@pytest.mark.parametrize(
    ("X", "y", "options", "error", "message"),
    [
        (np.eye(3), [0, 0, 0], {"kind": "mixing"}, ValueError, "only the class 0. Use"),
        (np.eye(3), ["a"] * 3, {"kind": "swapping"}, ValueError, "only the class 'a'"),
        (np.eye(3), [0, "a", 1], {}, ValueError, "of one kind, text or numbers"),
        (np.eye(3), [-1, -1, -1], {}, ValueError, "every label in y equals"),
        (np.eye(3), None, {}, ValueError, "y is required"),
        (np.eye(3), [0, 1], {}, ValueError, "inconsistent numbers of samples"),
        (np.eye(3), [0, 1, 2], {"kind": "boundary"}, ValueError, "two different"),
        (np.ones((3, 2)), [0, 0, 1], {"kind": "boundary"}, ValueError, "two different"),
        (np.eye(3)[:, :1], [0, 1, 1], {"kind": "swapping"}, ValueError, "X has 1"),
        (np.eye(3)[:, :1], [0, 1, 1], {"kind": "dropout"}, ValueError, "X has 1"),
        (np.eye(3), [0, 1, 1], {"kind": "mixed"}, ValueError, "'kind' parameter"),
        (np.eye(3), [0, 1, 1], {"n_samples": 0}, ValueError, "'n_samples' parameter"),
        (np.eye(3) * np.nan, [0, 1, 1], {"kind": "uniform"}, ValueError, "NaN"),
        (np.arange(3), [0, 1, 1], {}, ValueError, "Expected 2D array"),
        (sparse.eye(3), [0, 1, 1], {}, TypeError, "TruncatedSVD"),
        (np.eye(3), ["0", "1", "-1"], {}, ValueError, "ood_label='-1'"),
    ],
)
def test_errors(X, y, options, error, message):
    with pytest.raises(error, match=message):
        make_synthetic_outliers(X, y, **options)


def test_other_frames_are_named():
    polars = pytest.importorskip("polars")
    with pytest.raises(TypeError, match=r"Pass X\.to_pandas\(\)"):
        make_synthetic_outliers(polars.DataFrame({"a": [1.0, 2.0]}), [0, 1])
