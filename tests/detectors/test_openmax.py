"""Tests of OpenMax."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest
import torch
from scipy.stats import gumbel_l, weibull_min
from sklearn.datasets import load_iris
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from skood.detectors import MSP, OpenMax
from skood.detectors._openmax import fit_log_weibull, leading_columns
from skood.exceptions import SkoodWarning
from skood.nn import LinearHead
from tests._loops import looped
from tests.detectors._paths import assert_torch_path_agrees

# What the tests of all estimators check; at night, all of them.
INSTANCES = [
    OpenMax(),
    OpenMax(LogisticRegression(), tail_size=5),
    OpenMax(LogisticRegression(), tail_size=5, alpha=2, distance="euclidean"),
]


def _logits(n=400, n_classes=4, seed=0, dtype=np.float64):
    """Logits, some of which are largest in the wrong column, and labels."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    logits = rng.normal(size=(n, n_classes)) * (1 + y[:, None]) / 2
    logits[np.arange(n), y] += 3
    return logits.astype(dtype), y


def _distance(a, b, kind, weight):
    euclidean = math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)))
    lengths = math.hypot(*a) * math.hypot(*b)
    product = sum(x * y for x, y in zip(a, b, strict=True))
    cosine = 1 - product / lengths if lengths else 1.0
    return {
        "euclidean": euclidean,
        "cosine": cosine,
        "eucos": weight * euclidean + cosine,
    }[kind]


def _naive_weibull(values):
    """Shape and scale of the largest likelihood, by bisection, on the values."""
    largest = max(values)
    logs = [math.log(value / largest) for value in values]
    mean = math.fsum(logs) / len(logs)

    def slope(c):
        powers = [math.exp(c * u) for u in logs]
        tilted = math.fsum(p * u for p, u in zip(powers, logs, strict=True))
        return tilted / math.fsum(powers) - mean - 1 / c

    low, high = 1e-6, 1e12
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    power_mean = math.fsum(math.exp(low * u) for u in logs) / len(logs)
    return low, largest * power_mean ** (1 / low)


def _naive(train, y, queries, *, tail_size, alpha, kind, translation, weight=0.005):
    """The algorithm of the paper, as its authors coded it, row by row."""
    train, queries = train.astype(np.float64).tolist(), queries.tolist()
    n_classes = len(train[0])
    models = []
    for k in range(n_classes):
        own = [
            row
            for row, label in zip(train, y, strict=True)
            if label == k == row.index(max(row))
        ]
        mean = [math.fsum(column) / len(own) for column in zip(*own, strict=True)]
        distances = sorted(_distance(row, mean, kind, weight) for row in own)
        tail = distances[-tail_size:]
        shifted = [d - tail[0] + translation for d in tail]
        models.append((mean, tail[0], *_naive_weibull(shifted)))
    scores = []
    for row in queries:
        order = sorted(range(n_classes), key=lambda k: -row[k])[:alpha]
        revised, unknown = list(row), 0.0
        for rank, k in enumerate(order, start=1):
            mean, location, shape, scale = models[k]
            x = _distance(row, mean, kind, weight) - location + translation
            below = 1 - math.exp(-((x / scale) ** shape)) if x > 0 else 0.0
            omega = 1 - below * (len(order) + 1 - rank) / len(order)
            revised[k] = row[k] * omega
            unknown += row[k] * (1 - omega)
        known = math.fsum(math.exp(value) for value in revised)
        scores.append(math.log(known / (known + math.exp(unknown))))
    return np.array(scores)


@looped("dtype", [np.float32, np.float64])
@looped("kind", ["eucos", "euclidean", "cosine"])
@looped(
    "tail_size, alpha, translation",
    [(20, 10, 10000.0), (20, 4, 1.0), (7, 2, 0.01), (70, 1, 10000.0)],
)
def test_equals_naive_loop(dtype, kind, tail_size, alpha, translation):
    train, y = _logits(dtype=dtype)
    queries = np.concatenate([_logits(40, seed=1, dtype=dtype)[0], np.zeros((1, 4))])
    queries = queries.astype(dtype)
    detector = OpenMax(
        tail_size=tail_size, alpha=alpha, distance=kind, translation=translation
    ).fit(train, y)
    expected = _naive(
        train,
        y,
        queries.astype(np.float64),
        tail_size=tail_size,
        alpha=min(alpha, 4),
        kind=kind,
        translation=translation,
    )
    # the naive loop loses 1e-8 of a distance in 10000 to cancellation
    rtol = 1e-6 if translation == 10000.0 else 1e-9
    scores = detector.score_samples(queries)
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, expected, rtol=rtol)


def test_weight_of_the_euclidean_distance():
    train, y = _logits()
    options = {"tail_size": 20, "alpha": 4, "translation": 1.0}
    expected = _naive(train, y, train[:30], kind="eucos", weight=0.3, **options)
    scores = OpenMax(euclidean_weight=0.3, **options).fit(train, y).score_samples(train)
    np.testing.assert_allclose(scores[:30], expected, rtol=1e-9)


# ---------------------------------------------------------------------------------
# The fit of a Weibull distribution.


@looped("shape", [0.5, 1.0, 3.0, 40.0, 1e4])
@looped("scale", [1e-3, 2.0, 1e5])
def test_weibull_distribution_is_recovered(shape, scale):
    values = weibull_min.rvs(shape, scale=scale, size=20000, random_state=0)
    result, log_scale = fit_log_weibull(np.log(values))
    # standard errors: .0055 of the shape, .0074 / shape of the scale
    assert result == pytest.approx(shape, rel=0.02)
    assert log_scale == pytest.approx(np.log(scale), abs=0.03 / shape)


@looped("size", [2, 3, 20, 500])
@looped("shape", [0.3, 1.5, 200.0])
def test_the_likelihood_is_largest(size, shape):
    values = weibull_min.rvs(shape, size=size, random_state=1)
    c, log_scale = fit_log_weibull(np.log(values))
    best = weibull_min.logpdf(values, c, scale=np.exp(log_scale)).sum()
    for dc in (1 - 1e-3, 1, 1 + 1e-3):
        for ds in (-1e-3 / c, 0, 1e-3 / c):
            other = weibull_min.logpdf(values, c * dc, scale=np.exp(log_scale + ds))
            assert best >= other.sum() - 1e-9
    by_scipy = weibull_min.fit(values, floc=0)
    other = weibull_min.logpdf(values, *by_scipy).sum()
    assert best >= other - 1e-7 * abs(other)


def test_fit_does_not_depend_on_the_unit():
    logs = np.log(weibull_min.rvs(2.0, size=50, random_state=0))
    shape, log_scale = fit_log_weibull(logs)
    assert fit_log_weibull(logs + 30) == pytest.approx((shape, log_scale + 30))
    assert fit_log_weibull(3 * logs) == pytest.approx((shape / 3, 3 * log_scale))


def test_tails_with_an_isolated_value():
    """One far above, or below, many equal ones: the root is bracketed."""
    for n in (1, 7, 48, 49, 5000):
        for logs in ([0.0] * n + [1.0], [1.0] * n + [0.0]):
            shape, log_scale = fit_log_weibull(np.array(logs))
            powers = np.exp(shape * (np.array(logs) - 1))
            tilted = powers @ logs / powers.sum()
            assert tilted - np.mean(logs) == pytest.approx(1 / shape, rel=1e-10)
            assert log_scale == pytest.approx(1 + np.log(powers.mean()) / shape)


def test_large_translation_is_a_gumbel_distribution():
    """Then the distribution function does not depend on the unit of the distances."""
    train, y = _logits()
    detector = OpenMax(distance="euclidean", tail_size=50).fit(train, y)
    correct = (y == 2) & (train.argmax(axis=1) == 2)
    d = np.linalg.norm(train[correct] - train[correct].mean(axis=0), axis=1)
    np.testing.assert_allclose(detector.means_[2], train[correct].mean(axis=0))
    tail = np.sort(d)[-50:]
    assert detector.location_[2] == pytest.approx(tail[0], rel=1e-12)
    loc, scale = gumbel_l.fit(tail)
    ours = weibull_min.cdf(
        tail - tail[0] + 1e4, detector.shape_[2], scale=detector.scale_[2]
    )
    np.testing.assert_allclose(ours, gumbel_l.cdf(tail, loc, scale), atol=1e-3)


# ---------------------------------------------------------------------------------
# Properties, and what is special.


def test_far_samples_are_unknown_and_means_are_known():
    train, y = _logits(1200)
    detector = OpenMax(distance="euclidean").fit(train, y)
    assert np.all(detector.score_samples(detector.means_) > -0.1)
    far = detector.means_ * np.array([1, 10, 100, 1000])[:, None]
    scores = detector.score_samples(far[1:])
    assert np.all(scores < -3)
    assert np.all(np.diff(scores) < 0)


def test_scores_do_not_round_to_1():
    """P(unknown) is 1 - 1e-400 there, and 1e-300: the logarithm tells them apart."""
    train, y = _logits(dtype=np.float32)
    detector = OpenMax(distance="euclidean", alpha=1).fit(train, y)
    gap = np.array([500.0, 1000.0, 5000.0, 1e4])
    with np.errstate(all="raise", under="ignore"):
        scores = detector.score_samples(np.outer(gap, [1.0, 0, 0, 0]))
    # all of the logit goes to the unknown class: log(4 / (4 + exp(gap)))
    np.testing.assert_allclose(scores, np.log(4) - gap, rtol=1e-12)


def test_samples_far_inside_of_a_tail_are_known():
    """Nearer than `location_ - translation`: the distribution function is 0."""
    train, y = _logits()
    detector = OpenMax(distance="euclidean", translation=1e-3, alpha=1).fit(train, y)
    assert np.all(detector.location_ > 1)
    means = detector.means_
    expected = [-math.log1p(1 / sum(math.exp(v) for v in row)) for row in means]
    np.testing.assert_allclose(detector.score_samples(means), expected, rtol=1e-13)


def test_permuting_the_classes_changes_nothing():
    train, y = _logits()
    order = np.array([2, 0, 3, 1])
    expected = OpenMax().fit(train, y).score_samples(train)
    permuted = OpenMax().fit(train[:, order], np.argsort(order)[y])
    np.testing.assert_allclose(
        permuted.score_samples(train[:, order]), expected, rtol=1e-9
    )


def test_only_correct_samples_count():
    train, y = _logits()
    correct = train.argmax(axis=1) == y
    assert 0 < (~correct).sum() < len(y)
    subset = OpenMax().fit(train[correct], y[correct])
    every = OpenMax().fit(train, y)
    np.testing.assert_allclose(every.means_, subset.means_, rtol=1e-12)
    np.testing.assert_allclose(every.shape_, subset.shape_, rtol=1e-6)


def test_a_class_without_a_correct_sample():
    """What is predicted to be of it is unknown, whatever the distances."""
    train, y = _logits(300, 3)
    train[y == 1, 1] = -50
    message = r"sample of 1 of the 3 classes \(columns \[1\] of the logits\) is"
    with pytest.warns(SkoodWarning, match=message):
        detector = OpenMax(distance="euclidean", alpha=1).fit(train, y)
    assert detector.location_[1] == -np.inf
    np.testing.assert_array_equal(detector.means_[1], 0)
    with np.errstate(all="raise", under="ignore"):
        score = detector.score_samples([[0.0, 6.0, 0.0]])
    assert score[0] == pytest.approx(math.log(3 / (3 + math.exp(6))), rel=1e-13)
    many = np.eye(14)[np.arange(280) % 3] * np.linspace(1, 2, 280)[:, None]
    with pytest.warns(SkoodWarning, match=r"11 of the 14 .*11, 12\], … of the"):
        OpenMax().fit(many, np.r_[np.arange(3), np.arange(277) % 14])


def test_a_class_whose_distances_are_equal():
    """Two samples: it takes the distribution of the largest distances of all."""
    train, y = _logits(300, 3)
    keep = (y != 2) | (np.cumsum((y == 2) & (train.argmax(axis=1) == 2)) <= 2)
    train, y = train[keep], y[keep]
    with pytest.warns(SkoodWarning) as caught:
        detector = OpenMax(distance="euclidean").fit(train, y)
    texts = [str(one.message) for one in caught]
    assert "equal in the classes of columns [2]: these take" in texts[0]
    assert "1 of the 3 classes have fewer" in texts[1]
    assert "(2 at the least) than tail_size=20" in texts[1]
    distances = []
    for k in range(3):
        own = train[(y == k) & (train.argmax(axis=1) == k)]
        distances.append(np.linalg.norm(own - own.mean(axis=0), axis=1))
    tail = np.sort(np.concatenate(distances))[-20:]
    shape, log_scale = fit_log_weibull(np.log1p((tail - tail[0]) / 1e4))
    assert detector.location_[2] == pytest.approx(tail[0], rel=1e-12)
    assert detector.shape_[2] == pytest.approx(shape, rel=1e-6)
    assert detector.scale_[2] == pytest.approx(1e4 * math.exp(log_scale), rel=1e-12)


def test_many_classes_with_two_samples_each():
    rng = np.random.default_rng(0)
    y = np.r_[np.repeat(np.arange(12), 2), np.zeros(40, dtype=int)]
    train = 9 * np.eye(12)[y] + rng.normal(size=(len(y), 12))
    with pytest.warns(SkoodWarning, match=r"columns \[1, .*, 10\], …: these take"):
        OpenMax(distance="euclidean", tail_size=2).fit(train, y)


@pytest.mark.parametrize(
    "train, y, message",
    [
        (np.eye(3), [0, 1, 2], r"\(n_samples = 3 in 3 classes\). Give at least 3"),
        (np.tile(np.eye(3), (9, 1)), [0, 1, 2] * 9, "all at one distance"),
        (np.eye(3), [1, 2, 0], "None of the n_samples = 3 is classified correctly"),
    ],
)
def test_nothing_to_fit(train, y, message):
    with pytest.raises(ValueError, match=message):
        OpenMax().fit(train, y)


def test_rounding_is_no_spread():
    """Two far logit vectors, or parallel ones, are at equal distances but for it."""
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(3, 3)) + 5 * np.eye(3)
    y = np.arange(60) % 3
    parallel = directions[y] * rng.uniform(0.1, 10, size=(60, 1))
    with pytest.raises(ValueError, match="all at one distance"):
        OpenMax(distance="cosine").fit(parallel, y)
    pairs = 1e3 * directions[y[:6]] + rng.normal(size=(6, 3))
    with pytest.warns(
        SkoodWarning, match=r"equal in the classes of columns \[0, 1, 2\]"
    ):
        OpenMax(distance="euclidean").fit(pairs, y[:6])


def test_two_logits_have_no_angle():
    X, y = load_iris(return_X_y=True)
    model = LogisticRegression(max_iter=500)
    with pytest.raises(ValueError, match="two logits -m and m have no angle, use dist"):
        OpenMax(model, distance="cosine").fit(X[50:], y[50:])
    assert np.isfinite(OpenMax(model).fit(X[50:], y[50:]).score_samples(X)).all()


def test_needs_labels():
    logits, y = _logits()
    with pytest.raises(ValueError, match="OpenMax requires y to be passed"):
        OpenMax().fit(logits)
    head = FrozenEstimator(LinearHead(np.eye(4)))
    with pytest.raises(ValueError, match="the target y is None"):
        OpenMax(head).fit(logits)
    assert np.isfinite(OpenMax(head).fit(logits, y).offset_)


def test_columns_of_labels():
    """Of a classifier, its classes; else sorted labels, all of which are needed."""
    logits, y = _logits()
    expected = OpenMax().fit(logits, y)
    names = np.array(["d", "a", "c", "b"])
    head = FrozenEstimator(LinearHead(np.eye(4), classes=names))
    with_names = OpenMax(head).fit(logits, names[y])
    np.testing.assert_array_equal(with_names.means_, expected.means_)
    # a label that the classifier does not know is never classified correctly
    unheard = np.where(np.arange(len(y)) < 8, "z", names[y])
    subset = OpenMax(head).fit(logits, unheard)
    np.testing.assert_allclose(subset.means_, OpenMax().fit(logits[8:], y[8:]).means_)
    left_out = y != 1
    with pytest.warns(SkoodWarning, match=r"1 of the 4 classes \(columns \[1\]"):
        numbered = FrozenEstimator(LinearHead(np.eye(4)))
        without = OpenMax(numbered).fit(logits[left_out], y[left_out])
    np.testing.assert_allclose(without.means_[3], expected.means_[3], rtol=1e-13)
    np.testing.assert_array_equal(without.means_[1], 0)
    for labels in (y, names[y]):
        with pytest.raises(
            ValueError, match="X has n_features = 4 columns, but y has 3 classes"
        ):
            OpenMax().fit(logits[left_out], labels[left_out])


def test_tail_larger_than_a_class():
    train, y = _logits(100)
    counts = np.bincount(y[train.argmax(axis=1) == y], minlength=4)
    message = rf"4 of the 4 .*\({counts.min()} at the least\) than tail_size=50"
    with pytest.warns(SkoodWarning, match=message):
        detector = OpenMax(tail_size=50).fit(train, y)
    expected = _naive(
        train, y, train, tail_size=50, alpha=4, kind="eucos", translation=1e4
    )
    np.testing.assert_allclose(detector.score_samples(train), expected, rtol=1e-6)


def test_alpha_beyond_the_number_of_classes():
    train, y = _logits()
    np.testing.assert_array_equal(
        OpenMax(alpha=99).fit(train, y).score_samples(train),
        OpenMax(alpha=4).fit(train, y).score_samples(train),
    )


@pytest.mark.parametrize("kind", ["eucos", "euclidean", "cosine"])
def test_torch_path(kind):
    assert_torch_path_agrees(OpenMax(distance=kind, alpha=3), *_logits(), rtol=1e-6)


def test_chunks_change_nothing(monkeypatch):
    train, y = _logits()
    expected = OpenMax(translation=1.0).fit(train, y).score_samples(train)
    monkeypatch.setattr(OpenMax, "_logit_chunk_bytes", 1)
    cut = OpenMax(translation=1.0).fit(train[:41], y[:41])  # one row each
    monkeypatch.undo()
    whole = OpenMax(translation=1.0).fit(train[:41], y[:41])
    np.testing.assert_allclose(
        cut.score_samples(train), whole.score_samples(train), rtol=1e-9
    )
    monkeypatch.setattr(OpenMax, "_logit_chunk_bytes", 7 * 8 * 4 * 4)
    cut = OpenMax(translation=1.0).fit(train, y)
    np.testing.assert_allclose(cut.score_samples(train), expected, rtol=1e-9)


def test_pytorch_ood():
    """Fitted on correct samples only, as ours is; its scores depend on the batch."""
    torch = pytest.importorskip("torch")
    peer = pytest.importorskip("pytorch_ood.detector")
    train, y = _logits()
    correct = train.argmax(axis=1) == y
    train, y = train[correct], y[correct]
    queries = _logits(60, seed=1)[0]
    theirs = peer.OpenMax(None, tailsize=20, alpha=4)
    theirs.fit_logits(torch.from_numpy(train), torch.from_numpy(y))
    expected = theirs.predict_logits(torch.from_numpy(queries)).numpy()
    ours = OpenMax(distance="euclidean", alpha=4).fit(train, y)
    # their fit of the distribution stops early
    unknown = -np.expm1(ours.score_samples(queries))
    np.testing.assert_allclose(unknown, expected, atol=0.05)
    # a class that is not predicted in the call is at distance 0 there
    alone = [theirs.predict_logits(torch.from_numpy(row[None])) for row in queries[:9]]
    assert np.max(np.abs(np.concatenate(alone) - expected[:9])) > 0.01


def test_saturated_and_all_equal_logits_are_finite():
    train, y = _logits()
    detector = OpenMax().fit(train * 1e4, y)
    samples = np.array([[1e4, 1e4, 1e4, 1e4], [0, 0, 0, 0], [-1e4, -1e4, 1e4, 0]])
    assert np.isfinite(detector.score_samples(samples)).all()
    msp = MSP().fit(train)
    assert msp.score_samples(samples)[0] == -0.75


def _naive_order(row, k):
    return sorted(range(len(row)), key=lambda j: (-row[j], j))[:k]


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("n_classes, k", [(5, 4), (40, 10), (40, 1)])
def test_leading_columns(kind, n_classes, k):
    """With many ties, also at the border of what is taken."""
    rng = np.random.default_rng(0)
    logits = rng.integers(0, 4, size=(200, n_classes)).astype(float)
    logits[:50] = rng.normal(size=(50, n_classes))
    expected = [_naive_order(row, k) for row in logits.tolist()]
    array = logits if kind == "numpy" else torch.from_numpy(logits)
    np.testing.assert_array_equal(np.asarray(leading_columns(array, k)), expected)


@pytest.mark.parametrize("distance", ["euclidean", "eucos", "cosine"])
def test_near_points_far_from_the_origin(distance):
    """Expanded squares would cancel: a row alone would score otherwise."""
    rng = np.random.default_rng(0)
    y = np.arange(200) % 5
    logits = 1e4 * np.eye(5)[y] + 1e-3 * rng.normal(size=(200, 5))
    fitted = OpenMax(tail_size=10, distance=distance).fit(logits, y)
    scores = fitted.score_samples(logits)
    alone = np.concatenate([fitted.score_samples(row[None]) for row in logits[:20]])
    np.testing.assert_allclose(alone, scores[:20], rtol=1e-12)


def test_a_chunk_without_a_correct_row(monkeypatch):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    logits = rng.normal(size=(60, 3)) + 6 * np.eye(3)[y]
    logits[20:30] *= -1  # a chunk of its own, all of it wrong
    expected = OpenMax(tail_size=5).fit(logits, y)
    monkeypatch.setattr(OpenMax, "_logit_chunk_samples", 10)
    monkeypatch.setattr(OpenMax, "_logit_chunk_bytes", 1)
    fitted = OpenMax(tail_size=5).fit(logits, y)
    np.testing.assert_allclose(
        fitted.score_samples(logits), expected.score_samples(logits), rtol=1e-12
    )
