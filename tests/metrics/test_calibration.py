"""Tests of calibration metrics."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from bisect import bisect_left
from fractions import Fraction

import numpy as np
import pytest
import torch
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss

from skood.metrics import brier
from skood.metrics import expected_calibration_error as ece
from tests._loops import looped

NORMS = ["l1", "l2", "max"]


def _sample(seed, n=80, n_classes=3, decimals=None):
    """Labels with OOD rows (-1), and probabilities that are NaN there."""
    rng = np.random.default_rng(seed)
    y_proba = rng.dirichlet(np.full(n_classes, 0.7), size=n)
    if decimals is not None:
        y_proba[:, 1:] = np.round(y_proba[:, 1:], decimals)
        y_proba[:, 0] = np.round(1 - y_proba[:, 1:].sum(axis=1), decimals)
        y_proba = np.maximum(y_proba, 0)
        y_proba /= y_proba.sum(axis=1, keepdims=True)
    y_true = rng.integers(-1, n_classes, size=n)
    y_true[: n_classes + 1] = np.arange(-1, n_classes)
    y_proba[y_true == -1] = np.nan
    return y_true, y_proba


def _edges(values, n_bins, strategy):
    """Upper edges of all bins except the last, in exact arithmetic."""
    if strategy == "uniform":
        # the float nearest to a fraction k / n_bins stands for it
        return [Fraction(float(Fraction(k, n_bins))) for k in range(1, n_bins)]
    ranked = sorted(values)
    return [
        Fraction(ranked[math.ceil(Fraction(k * len(ranked), n_bins)) - 1])
        for k in range(1, n_bins)
    ]


def _loop(values, happened, n_bins, strategy, norm):
    """Calibration error of one event, in plain Python."""
    bins, edges = {}, _edges(values, n_bins, strategy)
    for p, h in zip(values, happened, strict=True):
        bins.setdefault(bisect_left(edges, p), []).append((p, h))
    gaps = [
        (
            len(samples),
            abs(sum(p for p, _ in samples) - sum(h for _, h in samples)) / len(samples),
        )
        for samples in bins.values()
    ]
    if norm == "max":
        return max(gap for _, gap in gaps)
    power = 1 if norm == "l1" else 2
    mean = sum(count * gap**power for count, gap in gaps) / len(values)
    return mean ** (1 / power)


@looped("norm", NORMS)
@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
@looped("n_bins", [1, 4, 10, 15, 100])
def test_ece_by_a_loop(n_bins, strategy, norm):
    for seed, decimals in ((0, None), (1, 1), (2, 2)):
        y_true, y_proba = _sample(seed, decimals=decimals)
        is_id = y_true != -1
        params = {"n_bins": n_bins, "strategy": strategy, "norm": norm}
        labels, proba = y_true[is_id].tolist(), y_proba[is_id].tolist()
        top = [max(range(3), key=row.__getitem__) for row in proba]
        confidence = [max(row) for row in proba]
        right = [label == pred for label, pred in zip(labels, top, strict=True)]
        expected = _loop(confidence, right, **params)
        assert ece(y_true, y_proba, **params) == pytest.approx(expected, abs=1e-12)
        expected = np.mean(
            [
                _loop(
                    [row[k] for row in proba],
                    [label == k for label in labels],
                    **params,
                )
                for k in range(3)
            ]
        )
        assert ece(y_true, y_proba, classwise=True, **params) == pytest.approx(
            expected, abs=1e-12
        )


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_largest_gap_is_that_of_the_curve_of_sklearn(strategy):
    rng = np.random.default_rng(0)
    confidence = rng.uniform(size=1000)
    right = rng.uniform(size=1000) < confidence**2
    happens, predicted = calibration_curve(
        right, confidence, n_bins=8, strategy=strategy
    )
    # 1000 rows in 8 bins of 125; those of scikit-learn differ by a row at their ends
    tolerance = 1e-12 if strategy == "uniform" else 2 / 125
    assert ece(
        np.ones(1000),
        confidence,
        np.where(right, 1, 0),
        n_bins=8,
        strategy=strategy,
        norm="max",
    ) == pytest.approx(np.max(np.abs(happens - predicted)), abs=tolerance)


def test_edges_belong_to_the_bin_below():
    # rows at p = 0 and p = 0.5 are in the first of two bins, p = 1 in the second
    y_true, y_pred = np.zeros(4), np.array([0, 0, 1, 0])
    confidence = np.array([0.0, 0.5, 0.5, 1.0])
    # first bin: 2 of 3 right at the mean confidence 1/3; second: no gap
    assert ece(y_true, confidence, y_pred, n_bins=2) == (
        pytest.approx(3 / 4 * (2 / 3 - 1 / 3), abs=1e-15)
    )
    # every k / B is an edge, also where k * (1 / B) or p * B rounds away from it
    for n_bins in (10, 15, 49, 100):
        p = np.arange(1, n_bins + 1) / n_bins
        # two rows per bin, at its upper edge and in its middle, one right: the
        # bin's gap is |1/2 - mean confidence|, unless the edge is in another bin
        both = np.concatenate([p, p - 0.5 / n_bins])
        y_pred = np.repeat([0, 1], n_bins)
        gap = np.abs(0.5 - (p - 0.25 / n_bins))
        error = ece(np.zeros(2 * n_bins), both, y_pred, n_bins=n_bins)
        assert error == pytest.approx(gap.mean(), abs=1e-12)


def test_bins_of_equal_mass():
    # 7 distinct values in 3 bins: ranks (0, 3], (3, 5], (5, 7]
    confidence = np.array([0.1, 0.2, 0.3, 0.6, 0.7, 0.8, 0.9])
    right = np.array([1, 0, 0, 1, 1, 1, 1])
    gaps = np.array([abs(1 - 0.6), abs(2 - 1.3), abs(2 - 1.7)])
    args = np.ones(7), confidence, right
    params = {"n_bins": 3, "strategy": "quantile"}
    assert ece(*args, **params) == pytest.approx(gaps.sum() / 7, abs=1e-15)
    order = [3, 6, 0, 2, 5, 1, 4]
    shuffled = (a[order] for a in args)
    assert ece(*shuffled, **params) == pytest.approx(gaps.sum() / 7, abs=1e-15)


def test_tied_confidences_share_a_bin():
    # all tied: a single bin, whatever is asked
    right = np.array([1, 1, 1, 0])
    for n_bins in (1, 2, 4, 50):
        assert (
            ece(np.ones(4), np.full(4, 0.75), right, n_bins=n_bins, strategy="quantile")
            == 0.0
        )
    # the group of 0.5 ends in the second half, but is not cut: bins {0.5} and {0.9}
    confidence, right = np.array([0.5, 0.5, 0.5, 0.9]), np.array([0, 0, 1, 1])
    assert ece(
        np.ones(4), confidence, right, n_bins=2, strategy="quantile"
    ) == pytest.approx((0.5 + 0.1) / 4, abs=1e-15)


def test_ece_of_a_calibrated_and_of_an_overconfident_classifier():
    rng = np.random.default_rng(0)
    y_proba = rng.dirichlet(np.ones(3), size=100_000)
    y_true = (rng.uniform(size=(100_000, 1)) > y_proba.cumsum(axis=1)).sum(axis=1)
    sharper = y_proba**3 / np.sum(y_proba**3, axis=1, keepdims=True)
    for params in ({}, {"strategy": "quantile"}, {"classwise": True}):
        assert ece(y_true, y_proba, **params) < 0.01
        assert ece(y_true, sharper, **params) > 0.1
    # confident and always wrong
    wrong = np.eye(3)[[1, 2, 0]]
    assert ece([0, 1, 2], wrong) == 1.0
    assert ece([0, 1, 2], np.eye(3)) == 0.0


def test_confidence_with_predictions_is_that_of_the_largest_probability():
    y_true, y_proba = _sample(5)
    confidence = y_proba.max(axis=1)
    y_pred = np.where(y_true == -1, 0, y_proba.argmax(axis=1))
    assert ece(y_true, confidence, y_pred) == (ece(y_true, y_proba))


@pytest.mark.parametrize("seed", range(3))
def test_brier_by_a_loop(seed):
    y_true, y_proba = _sample(seed)
    total, n = 0.0, 0
    for label, row in zip(y_true.tolist(), y_proba.tolist(), strict=True):
        if label != -1:
            n += 1
            total += sum((p - (k == label)) ** 2 for k, p in enumerate(row))
    assert brier(y_true, y_proba) == pytest.approx(total / n, abs=1e-14)


def test_brier_of_sklearn():
    rng = np.random.default_rng(0)
    p = rng.uniform(size=50)
    y_true = rng.integers(2, size=50)
    two = np.column_stack([1 - p, p])
    assert brier(y_true, two) == pytest.approx(2 * brier_score_loss(y_true, p))
    y_true, y_proba = _sample(1)
    is_id = y_true != -1
    try:
        theirs = brier_score_loss(y_true[is_id], y_proba[is_id])
    except ValueError:  # before scikit-learn 1.7, two classes only
        pytest.skip("this scikit-learn has no Brier score of more than two classes")
    assert brier(y_true, y_proba) == pytest.approx(theirs)


@pytest.mark.parametrize("metric", [brier, ece])
def test_labels_and_columns(metric):
    y_true, y_proba = _sample(6)
    expected = metric(y_true, y_proba)
    names = np.array(["ant", "bee", "cat", "other"])
    columns = [2, 0, 1]
    for labels in (names[y_true], names[y_true].astype(object)):
        assert metric(labels, y_proba, ood_label="other") == expected
        assert metric(
            labels, y_proba[:, columns], classes=names[:3][columns]
        ) == pytest.approx(expected, abs=1e-15)
    assert metric(y_true, torch.as_tensor(y_proba)) == expected
    # a class without rows needs classes
    few = np.where(y_true == 2, -1, y_true)
    assert math.isfinite(metric(few, y_proba, classes=[0, 1, 2]))
    with pytest.raises(ValueError, match=r"3 columns for 2 classes \[0, 1\]; pass cla"):
        metric(few, y_proba)


@pytest.mark.parametrize("metric", [brier, ece])
def test_errors(metric):
    y_true, y_proba = _sample(7)
    with pytest.raises(ValueError, match=r"No ID samples.*all of its 80 labels"):
        metric(np.full(80, -1), y_proba)
    with pytest.raises(ValueError, match=r"\(80, n_classes\).*column_stack"):
        metric(y_true, y_proba[:, 0])
    with pytest.raises(ValueError, match=r"one row per label, got \(79, 3\)"):
        metric(y_true, y_proba[1:])
    with pytest.raises(ValueError, match=r"a label twice, got \[0, 1, 1\]"):
        metric(y_true, y_proba, classes=[0, 1, 1])
    logits = np.where(y_proba == y_proba[1, 1], 1.5, y_proba)
    with pytest.raises(ValueError, match=r"got 1.5 \(in 1 of .* softmax of logits"):
        metric(y_true, logits)
    with pytest.raises(ValueError, match="must sum to 1, got a row that is off by"):
        metric(y_true, y_proba / 2)
    y_proba[1] = np.nan
    with pytest.raises(ValueError, match=r"in \[0, 1\] on ID samples, got nan \(in 3"):
        metric(y_true, y_proba)


def test_errors_of_ece():
    y_true, y_proba = _sample(7)
    confidence, y_pred = np.full(80, 0.5), np.zeros(80)
    with pytest.raises(
        ValueError, match=r"must have shape \(80,\).*got \(80, 3\). Leave"
    ):
        ece(y_true, y_proba, y_pred)
    with pytest.raises(
        ValueError, match=r"must have shape \(80,\).*got \(79,\). Leave"
    ):
        ece(y_true, confidence[1:], y_pred)
    with pytest.raises(ValueError, match=r"in \[0, 1\] on ID samples, got 2.0"):
        ece(y_true, confidence + 1.5, y_pred)
    with pytest.raises(ValueError, match="classwise=True needs the probabilities of"):
        ece(y_true, confidence, y_pred, classwise=True)
    for n in (0, True):
        with pytest.raises(
            ValueError, match=f"'n_bins' parameter of exp.* Got {n} inst"
        ):
            ece(y_true, y_proba, n_bins=n)
    with pytest.raises(ValueError, match="'strategy' parameter of expected_calibra"):
        ece(y_true, y_proba, strategy="mass")
    with pytest.raises(ValueError, match="'norm' parameter of expected_calibration"):
        ece(y_true, y_proba, norm="l3")


def test_rounding_outside_of_the_range_is_clipped():
    """The mean of an ensemble in float32 may be a bit above 1."""
    y_true, above = [0, 1], np.nextafter(np.float32(1), np.float32(2))
    y_proba = np.array([[above, -1e-9], [0.25, 0.75]])
    clipped = np.array([[1.0, 0.0], [0.25, 0.75]])
    assert brier(y_true, y_proba) == brier(y_true, clipped)
    for params in ({}, {"classwise": True}):
        actual = ece(y_true, y_proba, **params)
        assert actual == ece(y_true, clipped, **params)
    confidence = [above, 0.75]
    assert ece(y_true, confidence, y_true) == 0.125


def test_more_than_rounding_is_refused():
    with pytest.raises(ValueError, match=r"must be in \[0, 1\] on .* got 1.00001"):
        brier([0, 1], [[1.00001, 0], [0, 1]])
    with pytest.raises(ValueError, match=r"must be in .* got -1e-05"):
        ece([0, 1], [0.5, -1e-5], [0, 1])
