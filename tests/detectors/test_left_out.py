"""Thresholds come from scores of samples that are left out of the fit."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import LocalOutlierFactor

from skood.base import BaseDetector
from skood.detectors import (
    GMM,
    KNN,
    MSP,
    NECO,
    PNML,
    SHE,
    SSD,
    Mahalanobis,
    NNGuide,
    Relation,
    RelativeMahalanobis,
    Residual,
    SklearnDetector,
    ViM,
)
from skood.detectors._common._base_output_detector import OutputDetector
from skood.detectors._common._class_moments import ClassMoments
from skood.exceptions import SkoodWarning
from skood.graph import Propagation
from skood.nn import LinearHead
from skood.utils._left_out import drawn_copies, folds, is_fixed
from skood.utils._sample_keys import SampleKeys
from skood.utils.estimator_checks import check_contamination
from tests._instances import output_detectors

_RNG = np.random.default_rng(0)
_N, _D, _C = 32, 4, 3
_Y = _RNG.integers(0, _C, _N)
_X = _RNG.normal(size=(_N, _D)) + 2 * np.eye(_C, _D)[_Y]
_HEAD = LinearHead(
    _RNG.normal(size=(_C, _D)) + 2 * np.eye(_C, _D), _RNG.normal(size=_C) + 3
)

_EXACT = [
    Mahalanobis(tied=False),
    KNN(n_neighbors=1),
    KNN(n_neighbors=4, algorithm="sklearn"),
    KNN(n_neighbors=4, algorithm="torch"),
    KNN(n_neighbors=3, metric="manhattan"),
    KNN(n_neighbors=_N - 1),
    NNGuide(_HEAD, n_neighbors=3),
    *(
        clone(one).set_params(estimator=_HEAD if "logits" in one._needs else None)
        for one in output_detectors(variants=True)
        if type(one)._score_left_out is not OutputDetector._score_left_out
        and getattr(one, "covariance", None) is None
    ),
]


def _variants_slow(estimators):
    """Mark all instances of a class, except the first, as slow."""
    known = set()
    for one in estimators:
        again = type(one) in known
        yield pytest.param(one, marks=pytest.mark.slow) if again else one
        known.add(type(one))


def _threshold_scores(monkeypatch, detector, X, y):
    """Fit a clone; return the scores that its threshold comes from."""
    collected = []
    original = BaseDetector._set_offset

    def kept(self, scores):
        collected.append(np.asarray(scores))
        return original(self, scores)

    monkeypatch.setattr(BaseDetector, "_set_offset", kept)
    clone(detector).fit(X, y)
    monkeypatch.undo()
    return collected[-1]


def _left_out(detector, X, y):
    """Score each sample with a detector that was fitted on all others."""
    return np.array(
        [
            clone(detector)
            .fit(np.delete(X, i, axis=0), np.delete(y, i))
            .score_samples(X[i : i + 1])[0]
            for i in range(len(X))
        ]
    )


@pytest.mark.parametrize(
    "detector",
    [*_EXACT[:7], *_variants_slow(_EXACT[7:])],
    ids=lambda d: repr(d)[:50],
)
def test_formulas_are_fits_without_each_sample(detector, monkeypatch):
    scores = _threshold_scores(monkeypatch, detector, _X, _Y)
    expected = _left_out(detector, _X, _Y)
    np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-9)


def test_relation_sums_as_many_relations_as_of_a_new_sample(monkeypatch):
    detector = Relation(_HEAD)
    scores = _threshold_scores(monkeypatch, detector, _X, _Y)
    expected = _left_out(detector, _X, _Y) * _N / (_N - 1)
    np.testing.assert_allclose(scores, expected, rtol=1e-9)


@pytest.mark.parametrize("algorithm", ["sklearn", "torch", "auto"])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_duplicates_are_other_samples(algorithm, k, monkeypatch):
    """Of three equal samples each has two neighbors at distance zero."""
    X = np.repeat(_RNG.normal(size=(10, 3)), 3, axis=0)
    detector = KNN(n_neighbors=k, algorithm=algorithm)
    scores = _threshold_scores(monkeypatch, detector, X, None)
    assert np.all(scores[:] < -1e-3) if k == 3 else np.all(np.abs(scores) < 1e-7)


def test_samples_outside_of_the_bank_keep_all_neighbors(monkeypatch):
    detector = KNN(n_neighbors=2, max_samples=20, random_state=0)
    fitted = clone(detector).fit(_X)
    scores = _threshold_scores(monkeypatch, detector, _X, None)
    others = np.setdiff1d(np.arange(_N), fitted.bank_rows_)
    np.testing.assert_allclose(scores[others], fitted.score_samples(_X[others]))
    in_bank = fitted.bank_rows_
    expected = KNN(n_neighbors=3).fit(_X[in_bank]).score_samples(_X[in_bank])
    # itself is the first of three
    np.testing.assert_allclose(scores[in_bank], expected)


def test_moments_without_samples():
    remaining, gone = _X[:18] + 1e4, _X[18:] + 1e4
    result = ClassMoments().updated(_X + 1e4, None).without(gone)
    expected = ClassMoments().updated(remaining, None)
    np.testing.assert_allclose(result.means, expected.means, rtol=1e-12)
    np.testing.assert_allclose(result.scatter, expected.scatter, rtol=1e-9, atol=1e-9)
    assert result.counts == expected.counts


def test_folds_leave_no_class_without_samples():
    y = np.array([0] * 7 + [1, 1] + [2])
    parts = [fold.positions for fold in folds(_keys(10), np.arange(10), y, 5)]
    samples = np.sort(np.concatenate(parts))
    np.testing.assert_array_equal(samples, np.arange(9))  # 9 is alone in its class
    for part in parts:
        assert len(part) <= 2
        assert set(np.delete(y, part)) == {0, 1, 2}


def test_folds_of_few_of_many_samples():
    (fold,) = folds(_keys(100_000), np.arange(0, 100_000, 20))
    assert len(fold.positions) == 5_000
    assert len(folds(_keys(10_000), np.arange(0, 10_000, 2))) == 5
    assert len(folds(_keys(50), np.arange(50), n_seen=500)) == 2
    assert folds(_keys(1), np.arange(1)) == []


def _keys(n_samples):
    return SampleKeys(np.arange(n_samples)[:, None])


def _folded(X, y, weight=None, **options):
    """Return the fold of each copy, and the folds, in the order of `numpy.repeat`."""
    keys = SampleKeys(X)
    indices, shares = drawn_copies(keys, weight)
    splits = folds(keys, indices, y, weight=weight, copy_weights=shares, **options)
    labels = np.full(len(indices), -1)
    for i, fold in enumerate(splits):
        labels[fold.positions] = i
    return indices, labels, splits


@pytest.mark.parametrize("seed", range(5))
def test_folds_depend_on_the_samples_not_on_their_order(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 2))
    y = rng.integers(0, 3, size=60)
    weight = rng.integers(0, 4, size=60)
    X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0].astype(float)
    indices, expected, splits = _folded(X, y, weight)
    shuffled = rng.permutation(len(indices))
    _, labels, _ = _folded(X[indices[shuffled]], y[indices[shuffled]])
    np.testing.assert_array_equal(labels, expected[shuffled])
    for i, fold in enumerate(splits):
        remaining, left = fold.others(weight, len(X))
        assert set(remaining).isdisjoint(indices[fold.positions])  # with all copies
        assert left.sum() == weight.sum() - (labels == i).sum()
        assert set(y[remaining]) == set(y)


def test_folds_are_balanced_by_weight():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(900, 2)), np.arange(900) % 3
    weight = rng.integers(1, 9, size=900).astype(float)
    indices, labels, splits = _folded(X, y, weight)
    assert len(splits) == 10
    for k in range(3):  # by at most one sample
        sizes = np.bincount(labels[y[indices] == k])
        assert sizes.max() - sizes.min() <= weight.max()
    assert np.ptp(np.bincount(labels)) <= 3 * weight.max()


def test_many_copies_are_split():
    """Half of the samples are one value: new samples have it as well."""
    X = np.append(np.zeros(100), np.arange(1, 101))[:, None]
    _, labels, splits = _folded(X, None)
    copies = np.bincount(labels[:100], minlength=20)
    assert len(splits) == 20 and copies.min() >= 1
    _, labels, splits = _folded(np.zeros((40, 1)), None)
    np.testing.assert_array_equal(np.bincount(labels), 2)
    y = np.repeat([0, 1], [37, 3])  # all samples of a class are equal
    X = np.append(np.arange(37), [99] * 3)[:, None]
    _, labels, splits = _folded(X, y)
    assert len(set(labels[37:])) > 1
    assert all(len(set(np.delete(y, fold.gone))) == 2 for fold in splits)


def test_copies_that_are_not_drawn_are_left_out():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(3000, 1)), 4, axis=0)
    keys = SampleKeys(X)
    indices, _ = drawn_copies(keys, limit=1000)
    splits = folds(keys, indices, n_folds=5)
    assert len(indices) == 1000 == sum(len(fold.positions) for fold in splits)
    for fold in splits:
        remaining, _ = fold.others(None, len(X))
        assert set(X[indices[fold.positions], 0]).isdisjoint(X[remaining, 0])
        assert len(remaining) >= 0.78 * len(X)


def test_labels_of_copies_may_differ():
    rng = np.random.default_rng(0)
    X, y = np.repeat(rng.normal(size=(30, 1)), 2, axis=0), np.tile([0, 1], 30)
    _, labels, splits = _folded(X, y, n_folds=5)
    np.testing.assert_array_equal(labels[::2], labels[1::2])
    assert len(splits) == 5 and labels.min() == 0


def test_draws_depend_on_the_samples_not_on_their_order():
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(500, 2)), rng.integers(1, 5, size=500).astype(float)
    indices, shares = drawn_copies(SampleKeys(X), weight, 300)
    assert len(indices) == 300 and (shares == 1).all()
    every = rng.permutation(np.repeat(np.arange(500), weight.astype(int)))
    drawn, none = drawn_copies(SampleKeys(X[every]), limit=300)
    assert none is None
    np.testing.assert_array_equal(np.sort(every[drawn]), indices)
    # copies are drawn one by one, so that a frequent value keeps its share
    X = np.append(np.zeros(5000), np.arange(1, 5001))[:, None]
    drawn, _ = drawn_copies(SampleKeys(X), limit=1000)
    assert abs(np.mean(drawn < 5000) - 0.5) < 0.05


def test_threshold_of_copies_is_for_new_samples():
    """Copies in other folds would score as seen samples do: .26 are then rejected."""
    detector = SklearnDetector(
        detector=LocalOutlierFactor(n_neighbors=5, novelty=True), contamination=0.1
    )
    rates = []
    for seed in range(12):
        X, new = np.split(np.random.default_rng(seed).normal(size=(1080, 4)), [80])
        fitted = clone(detector).fit(np.repeat(X, 4, axis=0))
        rates.append(np.mean(fitted.predict(new) == -1))
    # a quantile of 80 scores: three standard errors
    assert abs(np.mean(rates) - 0.1) < 3 * np.sqrt(0.1 * 0.9 / 80 / len(rates))


def test_copies_void_the_threshold_of_neighbors():
    """A copy is a neighbor at distance zero; weights are not."""
    rates, copied = [], []
    for seed in range(12):
        X, new = np.split(np.random.default_rng(seed).normal(size=(1080, 4)), [80])
        detector = KNN(n_neighbors=2, contamination=0.1)
        fitted = clone(detector).fit(X, sample_weight=np.full(80, 3))
        rates.append(np.mean(fitted.predict(new) == -1))
        copied.append(detector.fit(np.repeat(X, 3, axis=0)).predict(new))
    assert abs(np.mean(rates) - 0.1) < 3 * np.sqrt(0.1 * 0.9 / 80 / len(rates))
    assert np.all(np.array(copied) == -1)


def test_threshold_without_others_warns():
    with pytest.warns(SkoodWarning, match="none can be left out"):
        KNN(n_neighbors=1).fit([[1.0, 2.0]])


@pytest.mark.parametrize(
    "estimator, fixed",
    [
        (LogisticRegression(), False),
        (FrozenEstimator(LogisticRegression().fit(_X, _Y)), True),
        (_HEAD, True),
        (LinearHead(), False),
    ],
)
def test_what_is_fitted_again(estimator, fixed):
    assert is_fixed(estimator) is fixed


def test_a_frozen_classifier_is_not_fitted_again(monkeypatch):
    fits = []
    original = LogisticRegression.fit

    def counted(self, X, y):
        fits.append(len(X))
        return original(self, X, y)

    network = LogisticRegression().fit(_X, _Y)
    monkeypatch.setattr(LogisticRegression, "fit", counted)
    MSP(FrozenEstimator(network)).fit(_X, _Y)
    assert fits == []
    MSP(LogisticRegression()).fit(_X, _Y)
    assert fits[0] == _N
    assert len(fits) == 6
    assert sum(fits[1:]) == 4 * _N


# --- new samples -------------------------------------------------------------------


def _rejected(detector, draw, n_samples, n_fits, contamination=0.1):
    """Mean fraction of new samples that is rejected, and its standard error."""
    shares = []
    detector = clone(detector).set_params(contamination=contamination)
    for seed in range(n_fits):
        rng = np.random.default_rng([seed, n_samples])
        X, y = draw(n_samples, rng)
        new, _ = draw(2000, rng)
        shares.append(np.mean(clone(detector).fit(X, y).predict(new) == -1))
    return np.mean(shares), np.std(shares, ddof=1) / np.sqrt(n_fits)


def _draw_wide(n_samples, rng):
    """Two classes of as many features as a tenth of the samples, heavy tails."""
    y = rng.integers(2, size=n_samples)
    X = rng.standard_t(4, size=(n_samples, 20)) + y[:, None]
    return X.astype(np.float32), y


def _draw_normal(n_samples, rng):
    y = rng.integers(2, size=n_samples)
    return rng.normal(size=(n_samples, 60)) + y[:, None], y


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
@pytest.mark.parametrize(
    "detector",
    [
        KNN(n_neighbors=1),
        KNN(n_neighbors=2, normalize=False),
        KNN(n_neighbors=10),
        SklearnDetector(detector=LocalOutlierFactor(n_neighbors=3, novelty=True)),
        NNGuide(n_neighbors=1),
        Mahalanobis(),
        Mahalanobis(tied=False),
        RelativeMahalanobis(),
        SSD(),
        GMM(),
        ViM(),
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in (
                Propagation(KNN(n_neighbors=1)),
                Relation(),
                Residual(),
                NECO(n_components=10),
                PNML(),
                SHE(),
            )
        ),
    ],
    ids=lambda d: repr(d)[:60],
)
def test_share_of_new_samples_with_heavy_tails(detector):
    mean, error = _rejected(detector, _draw_wide, 200, 12)
    assert abs(mean - 0.1) < 4 * error + 1 / 201, mean


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
@pytest.mark.parametrize(
    "detector",
    [
        Mahalanobis(),
        pytest.param(SSD(), marks=pytest.mark.slow),
        pytest.param(RelativeMahalanobis(), marks=pytest.mark.slow),
    ],
    ids=repr,
)
def test_share_of_new_samples_with_nearly_as_many_features(detector):
    """Of 80 samples in 60 dimensions, the training samples are all near."""
    mean, error = _rejected(detector, _draw_normal, 80, 30)
    assert abs(mean - 0.1) < 4 * error + 1 / 81, mean


def test_share_of_new_samples_of_a_forest_that_is_fitted():
    """A forest is sure of the samples that it was grown on."""
    detector = MSP(RandomForestClassifier(10, max_features=1.0, random_state=0))
    mean, error = _rejected(detector, _draw_wide, 100, 6)
    assert mean < 0.1 + 4 * error + 1 / 101  # with ties it may be less


class _InSample(KNN):
    """A threshold from scores of samples that are their own neighbors."""

    def _left_out_scores(self, outputs, y, indices, copy_weights=None):
        return self._scores(outputs.take(indices))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_check_finds_thresholds_from_training_scores(k):
    with pytest.raises(AssertionError, match="of new ID samples"):
        check_contamination(_InSample(n_neighbors=k))
