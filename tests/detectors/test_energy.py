"""Tests of the energy score."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import warnings

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from skood.detectors import Energy, MaxLogit
from skood.exceptions import SkoodWarning
from tests._loops import looped

# What the tests of all estimators check; at night, all of them.
INSTANCES = [Energy(), Energy(LogisticRegression(), temperature=2.0)]


def _naive(logits, temperature=1.0, weight=None):
    """T log sum w exp(l / T), by loops and exact sums in float64."""
    scores = []
    for row in np.asarray(logits, dtype=np.float64).tolist():
        weights = [1.0] * len(row) if weight is None else weight
        terms = [
            w * math.exp(value / temperature)
            for w, value in zip(weights, row, strict=True)
        ]
        scores.append(temperature * math.log(math.fsum(terms)))
    return np.array(scores)


def _logits(scale=3.0, n_classes=6):
    return np.random.default_rng(0).normal(scale=scale, size=(80, n_classes))


@looped("temperature", [0.5, 1.0, 7.0])
@looped("weight", [None, [0.1, 2.0, 3.0, 1.0, 1.0, 0.0]])
@looped("dtype", [np.float32, np.float64])
def test_equals_naive_loop(temperature, weight, dtype):
    logits = _logits().astype(dtype)
    energy = Energy(temperature=temperature, class_weight=weight).fit(logits)
    scores = energy.score_samples(logits)
    assert scores.dtype == np.float64
    is_single = dtype == np.float32 and temperature == 1.0 and weight is None
    exact = {"rtol": 0, "atol": 3e-7} if is_single else {"rtol": 1e-12, "atol": 1e-12}
    expected = _naive(logits, temperature, weight)
    np.testing.assert_allclose(scores, expected, **exact)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sign", [1, -1])
def test_logits_of_ten_thousand_do_not_overflow(dtype, sign):
    logits = np.full((4, 5), sign * 1e4, dtype=dtype)
    weight = [1.0, 0.0, 2.0, 0.0, 1.0]
    with np.errstate(all="raise", under="ignore"):
        plain = Energy().fit(logits).score_samples(logits)
        weighted = Energy(class_weight=weight).fit(logits).score_samples(logits)
    np.testing.assert_allclose(plain, sign * 1e4 + math.log(5), rtol=1e-14)
    np.testing.assert_allclose(weighted, sign * 1e4 + math.log(4), rtol=1e-14)


def test_lies_between_max_logit_and_that_plus_log_n_classes():
    logits = _logits()
    top = MaxLogit().fit(logits).score_samples(logits)
    for temperature in (0.01, 1.0, 10.0):
        energy = Energy(temperature=temperature).fit(logits).score_samples(logits)
        assert np.all(energy >= top - 1e-12)
        assert np.all(energy <= top + temperature * math.log(6) + 1e-12)
    cold = Energy(temperature=1e-9).fit(logits).score_samples(logits)
    np.testing.assert_allclose(cold, top, atol=1e-8)


def test_shift_moves_the_energy_by_as_much():
    logits = _logits()
    energy = Energy(temperature=2.0).fit(logits)
    np.testing.assert_allclose(
        energy.score_samples(logits + 11), energy.score_samples(logits) + 11
    )


def test_class_of_weight_zero_is_not_there():
    logits = _logits()
    logits[:, 2] += 1e4
    without = np.delete(logits, 2, axis=1)
    weighted = Energy(class_weight=[1, 1, 0, 1, 1, 1]).fit(logits)
    plain = Energy().fit(without)
    np.testing.assert_allclose(
        weighted.score_samples(logits), plain.score_samples(without), rtol=1e-13
    )


def test_scaling_the_weights_adds_a_constant():
    logits = _logits()
    weight = np.array([0.5, 1.0, 2.0, 0.0, 1.0, 1.0])
    one = Energy(class_weight=weight, temperature=3.0).fit(logits)
    ten = Energy(class_weight=10 * weight, temperature=3.0).fit(logits)
    gap = ten.score_samples(logits) - one.score_samples(logits)
    np.testing.assert_allclose(gap, 3 * math.log(10), rtol=1e-12)
    np.testing.assert_array_equal(one.predict(logits), ten.predict(logits))


def test_unit_weights_change_nothing():
    logits = _logits()
    np.testing.assert_allclose(
        Energy(class_weight=np.ones(6)).fit(logits).score_samples(logits),
        Energy().fit(logits).score_samples(logits),
        rtol=1e-14,
    )


def test_weights_are_read_at_every_fit():
    logits = _logits()
    energy = Energy(class_weight=[1, 0, 0, 0, 0, 0]).fit(logits)
    np.testing.assert_allclose(energy.score_samples(logits), logits[:, 0])
    energy.set_params(class_weight=None).fit(logits)
    np.testing.assert_allclose(energy.score_samples(logits), _naive(logits))


@pytest.mark.parametrize(
    "weight, message",
    [
        ([1.0, 2.0], r"class_weight has shape \(2,\), expected \(6,\): one weight per"),
        (np.ones((6, 1)), r"class_weight has shape \(6, 1\), expected \(6,\)"),
        ([0.0] * 6, r"non-negative and not all zero, got \[0.0, 0.0, 0.0"),
        ([1, 1, 1, 1, 1, -1], r"non-negative and not all zero, got \[1.0, .*-1.0\]"),
        ([1, 1, 1, 1, 1, np.nan], r"must be finite, .*got \[1.0, .*nan\]"),
        ([1, 1, 1, 1, 1, np.inf], r"must be finite, .*got \[1.0, .*inf\]"),
    ],
)
def test_bad_weights(weight, message):
    with pytest.raises(ValueError, match=message):
        Energy(class_weight=weight).fit(_logits())


def test_warns_of_log_probabilities():
    """Their energy is 0: a forest has no logits."""
    X, y = load_iris(return_X_y=True)
    forest = RandomForestClassifier(n_estimators=5, random_state=0)
    with pytest.warns(SkoodWarning, match=r"0 up to rounding: .* Use MSP or Entropy"):
        Energy(forest).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Energy(forest, temperature=2.0).fit(X, y)
        Energy(LogisticRegression(max_iter=500)).fit(X, y)


def test_class_weight_must_be_numbers():
    with pytest.raises(ValueError, match="could not convert string to float"):
        Energy(class_weight=["a", "b"]).fit(np.eye(2))
