"""Tests of the ranking metrics."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit, ndtr, ndtri
from sklearn.metrics import auc as sk_auc
from sklearn.metrics import (
    average_precision_score,
    f1_score,
    precision_recall_curve,
    roc_auc_score,
)

from skood.metrics import (
    aupr_in,
    aupr_out,
    auroc,
    bootstrap_ci,
    detection_error,
    f1_at_tpr,
    fpr_at_tpr,
    make_ood_scorer,
    max_f1,
    ranking_metrics,
    tnr_at_tpr,
)
from tests._loops import looped

METRICS = [auroc, aupr_in, aupr_out, fpr_at_tpr, detection_error, f1_at_tpr, max_f1]


def _tied(seed, n=80):
    """Labels of three ID classes and OOD (-1), scores with heavy ties."""
    rng = np.random.default_rng(seed)
    y_true = rng.integers(-1, 3, size=n)
    y_true[:2] = -1, 0
    return y_true, rng.integers(0, 7, size=n) + (y_true >= 0)


@pytest.mark.parametrize("seed", range(10))
def test_equals_scikit_learn_with_ties(seed):
    y_true, y_score = _tied(seed)
    is_id = y_true != -1
    assert auroc(y_true, y_score) == pytest.approx(
        roc_auc_score(is_id, y_score), abs=1e-12
    )
    for metric, positive, score in (
        (aupr_in, is_id, y_score),
        (aupr_out, ~is_id, -y_score),
    ):
        assert metric(y_true, y_score) == pytest.approx(
            average_precision_score(positive, score), abs=1e-12
        )
        precision, recall, _ = precision_recall_curve(positive, score)
        assert metric(y_true, y_score, interpolation="trapezoid") == pytest.approx(
            sk_auc(recall, precision), abs=1e-12
        )


def _naive_fpr(positive, score, tpr):
    rates = [
        (np.mean(score[positive] >= t), np.mean(score[~positive] >= t))
        for t in np.unique(score)
    ]
    return min(f for t, f in rates if t >= tpr - 1e-12)


@looped("tpr", [0.05, 0.3, 0.5, 0.8, 0.95, 1.0])
@looped("seed", range(5))
def test_fpr_at_tpr_brute_force(seed, tpr):
    y_true, y_score = _tied(seed)
    is_id = y_true != -1
    assert fpr_at_tpr(y_true, y_score, tpr=tpr) == pytest.approx(
        _naive_fpr(is_id, y_score, tpr), abs=1e-14
    )
    assert fpr_at_tpr(y_true, y_score, tpr=tpr, positive="ood") == pytest.approx(
        _naive_fpr(~is_id, -y_score, tpr), abs=1e-14
    )


@pytest.mark.parametrize("tpr", [5e-324, 1e-12, 1e-9, 1e-3, 1 - 1e-9, 1.0])
def test_fpr_at_extreme_tpr_brute_force(tpr):
    """A TPR above 0 is not reached where no ID sample is accepted."""
    assert fpr_at_tpr([-1, 0, -1], [3.0, 2.0, 1.0], tpr=tpr) == 0.5
    assert fpr_at_tpr([-1, -1, 0], [3.0, 2.0, 1.0], tpr=tpr) == 1.0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        y_true = np.r_[-1, 0, rng.integers(-1, 1, size=rng.integers(0, 12))]
        y_score = rng.integers(0, rng.integers(1, 9), size=y_true.size)
        for positive in (0, -1):
            chosen, score = y_true == positive, (y_score if positive == 0 else -y_score)
            counts = [
                (np.sum(score[chosen] >= t), np.mean(score[~chosen] >= t))
                for t in np.unique(score)
            ]
            # of fewer than 1e9 samples, the count is 1 or more, or all of them
            least = 1 if tpr <= 1e-3 else chosen.sum()
            expected = min(fpr for n, fpr in counts if n >= least)
            actual = fpr_at_tpr(
                y_true, y_score, tpr=tpr, positive="id" if positive == 0 else "ood"
            )
            assert actual == expected


@pytest.mark.parametrize("seed", range(5))
def test_detection_error_brute_force(seed):
    y_true, y_score = _tied(seed)
    is_id = y_true != -1
    errors = [
        0.5 * np.mean(y_score[is_id] < t) + 0.5 * np.mean(y_score[~is_id] >= t)
        for t in np.unique(y_score)
    ]
    assert detection_error(y_true, y_score) == pytest.approx(min(errors), abs=1e-14)


def test_share_times_count_is_guarded_against_rounding():
    # 0.1 + 0.2 + 0.4 is a little more than 0.7, and 7 of 10 rows still are enough
    y_true = np.r_[np.zeros(10), [-1]]
    y_score = np.r_[np.arange(10, 0, -1), [3.5]]
    assert fpr_at_tpr(y_true, y_score, tpr=0.7) == 0.0
    assert fpr_at_tpr(y_true, y_score, tpr=0.1 + 0.2 + 0.4) == 0.0
    assert fpr_at_tpr(y_true, y_score, tpr=0.7 + 1e-6) == 1.0


def test_gaussian_closed_form():
    # ID ~ N(d, 1), OOD ~ N(0, 1) at exact quantiles
    d, n = 1.5, 20_001
    z = ndtri((np.arange(n) + 0.5) / n)
    y_true, y_score = np.r_[np.zeros(n), -np.ones(n)], np.r_[z + d, z]
    res = ranking_metrics(y_true, y_score)
    assert res["auroc"] == pytest.approx(ndtr(d / np.sqrt(2)), abs=2e-4)
    assert res["fpr_at_tpr"] == pytest.approx(1 - ndtr(d + ndtri(0.05)), abs=2e-4)
    assert res["detection_error"] == pytest.approx(ndtr(-d / 2), abs=2e-4)


@pytest.mark.parametrize("constant", [0.0, np.inf])
def test_constant_score(constant):
    y_true, y_score = [0, 0, 1, -1], [constant] * 4
    res = ranking_metrics(y_true, y_score)
    assert res == {
        "auroc": 0.5,
        "aupr_in": 0.75,
        "aupr_out": 0.25,
        "fpr_at_tpr": 1.0,
        "detection_error": 0.5,
        "tnr_at_tpr": 0.0,
        "f1_at_tpr": 6 / 7,
        "max_f1": 6 / 7,
    }


def test_perfect_and_reversed():
    y_true = [0, 1, -1, -1]
    assert ranking_metrics(y_true, [4, 3, 2, 1]) == {
        "auroc": 1.0,
        "aupr_in": 1.0,
        "aupr_out": 1.0,
        "fpr_at_tpr": 0.0,
        "detection_error": 0.0,
        "tnr_at_tpr": 1.0,
        "f1_at_tpr": 1.0,
        "max_f1": 1.0,
    }
    res = ranking_metrics(y_true, [1, 2, 3, 4])
    assert (res["auroc"], res["fpr_at_tpr"], res["detection_error"]) == (0, 1, 0.5)


@pytest.mark.parametrize(
    "transform",
    [expit, lambda s: 3 * s - 100, lambda s: s**3, lambda s: np.exp(s / 5)],
    ids=["sigmoid", "affine", "cube", "exp"],
)
def test_invariant_under_increasing_transforms(transform):
    y_true, y_score = _tied(4)
    assert ranking_metrics(y_true, transform(y_score.astype(float))) == ranking_metrics(
        y_true, y_score
    )


def test_infinite_scores_are_the_largest_and_smallest():
    y_true, y_score = _tied(5)
    infinite = y_score.astype(float)
    infinite[y_score == y_score.max()] = np.inf
    infinite[y_score == y_score.min()] = -np.inf
    assert ranking_metrics(y_true, infinite) == ranking_metrics(y_true, y_score)


@pytest.mark.parametrize("positive", ["id", "ood"])
@pytest.mark.parametrize("interpolation", ["step", "trapezoid"])
def test_ranking_metrics_equals_each(positive, interpolation):
    y_true, y_score = _tied(6)
    assert ranking_metrics(
        y_true, y_score, tpr=0.6, positive=positive, interpolation=interpolation
    ) == {
        "auroc": auroc(y_true, y_score),
        "aupr_in": aupr_in(y_true, y_score, interpolation=interpolation),
        "aupr_out": aupr_out(y_true, y_score, interpolation=interpolation),
        "fpr_at_tpr": fpr_at_tpr(y_true, y_score, tpr=0.6, positive=positive),
        "detection_error": detection_error(y_true, y_score),
        "tnr_at_tpr": tnr_at_tpr(y_true, y_score, tpr=0.6, positive=positive),
        "f1_at_tpr": f1_at_tpr(y_true, y_score, tpr=0.6),
        "max_f1": max_f1(y_true, y_score),
    }


@pytest.mark.parametrize("metric", [*METRICS, ranking_metrics])
def test_ood_label_and_classes(metric):
    y_true, y_score = _tied(7)
    expected = metric(y_true, y_score)
    assert metric(np.where(y_true == -1, 9, y_true), y_score, ood_label=9) == expected
    # a left-out class needs no relabeling, and ood_label still counts
    left_out = np.where(y_true == -1, np.arange(y_true.size) % 2 * 10 - 1, y_true)
    assert set(left_out[y_true == -1]) == {-1, 9}
    assert metric(left_out, y_score, classes=[0, 1, 2]) == expected
    names = np.array(["a", "b", "c", "other"])[y_true]
    assert metric(names, y_score, ood_label="other") == expected
    assert metric(names, y_score, classes=["a", "b", "c"]) == expected
    assert metric(names.astype(object), y_score, ood_label="other") == expected


@pytest.mark.parametrize("metric", [*METRICS, ranking_metrics])
def test_errors(metric):
    for y_true in ([True, False], np.array([True, False], dtype=object)):
        with pytest.raises(ValueError, match=r"pass labels.*np.where\(is_ood, -1, 1\)"):
            metric(y_true, [0.1, 0.2])
    with pytest.raises(ValueError, match="y_score contains 1 NaN"):
        metric([0, -1], [0.1, np.nan])
    with pytest.raises(ValueError, match="array of real numbers, got dtype <U1"):
        metric([0, -1], ["1", "2"])
    with pytest.raises(ValueError, match=r"y_score must .*\(2,\), .* got .*\(3,\)\.$"):
        metric([0, -1], [0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match=r"No OOD samples.*ood_label=7"):
        metric([0, 1], [0.1, 0.2], ood_label=7)
    with pytest.raises(ValueError, match=r"No OOD samples.*ood_label=-1"):
        metric(["a", "b"], [0.1, 0.2])
    with pytest.raises(ValueError, match=r"No ID samples.*ood_label=-1"):
        metric([-1, -1], [0.1, 0.2])
    with pytest.raises(ValueError, match="y_true is required"):
        metric(None, [0.1, 0.2])


def test_errors_of_parameters():
    data = [0, -1], [0.2, 0.1]
    with pytest.raises(ValueError, match="interpolation must be 'step' or 'trapez"):
        aupr_in(*data, interpolation="linear")
    with pytest.raises(ValueError, match="positive must be 'id' or 'ood', got 1"):
        fpr_at_tpr(*data, positive=1)
    for tpr in (0, 1.01, np.nan):
        with pytest.raises(ValueError, match=r"tpr must be in \(0, 1\]"):
            fpr_at_tpr(*data, tpr=tpr)
    for tpr in ("95%", True):
        with pytest.raises(TypeError, match=r"tpr must be a number in \(0, 1\]"):
            fpr_at_tpr(*data, tpr=tpr)


def test_reads_tensors():
    torch = pytest.importorskip("torch")
    score = torch.tensor([0.2, 0.1, 0.3], requires_grad=True)
    assert auroc(torch.tensor([0, -1, 1]), score) == 1.0


@pytest.mark.parametrize("metric", METRICS)
def test_ood_label_among_the_classes(metric):
    message = r"ood_label=-1 is one of classes=\[-1, 0, 1\], so it is ambiguous"
    with pytest.raises(ValueError, match=message):
        metric([0, 1, -1], [3.0, 2.0, 1.0], classes=[-1, 0, 1])
    with pytest.raises(ValueError, match=r"ood_label='x' is one of classes=.*'x'"):
        metric(["a", "x"], [3.0, 2.0], ood_label="x", classes=["a", "x"])
    score = metric([0, 1, -1], [3.0, 2.0, 1.0], ood_label=-2, classes=[0, 1])
    assert score == metric([0, 1, -1], [3.0, 2.0, 1.0])


@pytest.mark.parametrize("metric", METRICS)
def test_scores_of_several_columns(metric):
    with pytest.raises(ValueError, match=r"y_score must .* got .* shape \(3, 2\)"):
        metric([0, 1, -1], np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"y_score must .* got the shape \(\)\.$"):
        metric([0, 1, -1], 0.5)


@pytest.mark.parametrize("metric", [auroc, aupr_in, aupr_out, fpr_at_tpr])
def test_labels_of_several_concepts(metric):
    """A row is OOD if any label is `ood_label`, or the first is not a class."""
    rng = np.random.default_rng(0)
    samples = [["cat", 1], ["dog", 2], ["cat", -1], ["cow", 3]]
    y = [samples[i] for i in rng.integers(4, size=50)]
    score = rng.normal(size=50)
    flat = [-1 if -1 in row else row[0] for row in y]
    for classes in (None, ["cat", "dog"]):
        expected = metric(flat, score, classes=classes)
        assert metric(y, score, classes=classes) == expected


def test_labels_of_boolean_classes():
    """With classes that are booleans, True is a class and no mask."""
    y, score = [True, False, -1, True], [3.0, 2.0, 1.0, 0.5]
    expected = auroc([1, 0, -1, 1], score)
    labels = np.array(y, dtype=object)
    for classes in ([False, True], np.array([False, True], dtype=object)):
        assert auroc(labels, score, classes=classes) == expected
    assert auroc(np.array(y[:2]), score[:2], classes=[True]) == 1.0
    with pytest.raises(ValueError, match="No OOD samples"):
        auroc(np.array(y[:2]), score[:2], classes=[False, True])
    for classes in (None, [0, 1]):
        with pytest.raises(ValueError, match="y_true is boolean"):
            auroc(labels, score, classes=classes)


def _rounded(seed, n=200):
    rng = np.random.default_rng(seed)
    y_true = np.where(rng.random(n) < 0.3, -1, 1)
    return y_true, np.round(rng.normal(y_true * 0.5, 1), 1)


def test_value_by_hand():
    """TPR .95, FPR .2 and a prior of 1/2."""
    y_true = np.repeat([1, -1], [100, 50])
    y_score = np.repeat([1.0, 0.0, 1.0, 0.0], [95, 5, 10, 40])
    assert_allclose(f1_at_tpr(y_true, y_score, ood_prior=0.5), 0.883721, atol=5e-7)
    assert_allclose(tnr_at_tpr(y_true, y_score), 0.8, rtol=1e-12)


@looped("seed", range(5))
def test_f1_of_scikit_learn(seed):
    y_true, y_score = _rounded(seed)
    accepted = np.where(y_score >= np.unique(y_score)[::-1, None], 1, -1)
    values = [f1_score(y_true, labels) for labels in accepted]
    assert_allclose(max_f1(y_true, y_score), max(values), rtol=1e-12)
    share, tprs = np.mean(y_true == -1), np.mean(accepted[:, y_true == 1] == 1, axis=1)
    for tpr in (0.3, 0.95, 1.0):
        first = values[np.argmax(tprs >= tpr - 1e-12)]
        for prior in (None, share):
            f1 = f1_at_tpr(y_true, y_score, tpr=tpr, ood_prior=prior)
            assert_allclose(f1, first, rtol=1e-12)
        fpr = fpr_at_tpr(y_true, y_score, tpr=tpr)
        assert tnr_at_tpr(y_true, y_score, tpr=tpr) == 1 - fpr


def test_the_prior():
    y_true, y_score = _rounded(0)
    # without OOD samples at deployment the precision is 1, and all samples are accepted
    assert max_f1(y_true, y_score, ood_prior=0.0) == 1
    values = [max_f1(y_true, y_score, ood_prior=p) for p in (0.1, 0.5, 0.9, 0.99)]
    assert values == sorted(values, reverse=True)
    for prior in (1, 1.5, -0.1):
        with pytest.raises(ValueError, match=r"ood_prior must be in \[0, 1\), got"):
            max_f1(y_true, y_score, ood_prior=prior)
    with pytest.raises(TypeError, match="ood_prior must be a number"):
        f1_at_tpr(y_true, y_score, ood_prior="half")


@pytest.mark.parametrize("metric", [tnr_at_tpr, f1_at_tpr, max_f1])
def test_scorers_and_intervals(metric, iris):
    from skood.detectors import KNN

    X, y = iris
    detector = KNN().fit(X[y < 2], y[y < 2])
    expected = metric(np.where(y < 2, 1, -1), detector.score_samples(X))
    assert make_ood_scorer(metric.__name__)(detector, X, y) == expected
    assert make_ood_scorer(metric)(detector, X, y) == expected
    y_true, y_score = _rounded(3)
    interval = bootstrap_ci(metric, y_true, y_score, n_resamples=99, random_state=0)
    assert interval.low < metric(y_true, y_score) < interval.high <= 1
