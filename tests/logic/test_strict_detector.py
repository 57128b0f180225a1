"""The strict baseline."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from sklearn.covariance import LedoitWolf
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Bunch

from skood.detectors import SSD
from skood.exceptions import SkoodWarning
from skood.logic import LogicDetector
from tests.logic._signs import RULES, Column, holds, logic, mln, signs


class Given(Column):
    """A classifier whose largest probability is a column of X."""

    def predict_proba(self, X):
        X = np.asarray(X)
        return np.stack([1 - X[:, self.column], X[:, self.column]], axis=1)


def test_score_is_minus_the_published_outlier_score():
    """All constraints hold for the first row; the mean confidences are 0.8, 0.9."""
    X = np.array([[0.9, 0.7], [0.95, 0.85]])
    readers = [
        (name, FrozenEstimator(Given(j).fit(None, [False, True])))
        for j, name in enumerate(["a", "b"])
    ]
    for detector, expected in ((None, [-1.0, 0.0]), ("confidence", [-0.8, 0.0])):
        model = LogicDetector(["a and b"], readers, detector, calibration="same").fit(X)
        model._readers[1] = model._readers[1]._replace(
            classifier=_ButLast(readers[1][1])
        )
        np.testing.assert_allclose(-model.score_samples(X), expected, rtol=1e-12)


class _ButLast:
    """Reads b as False in the last row, with the same confidence."""

    def __init__(self, reader):
        self.reader, self.classes_ = reader, reader.classes_

    def predict_proba(self, X):
        p = self.reader.predict_proba(X)
        p[-1] = p[-1, ::-1]
        return p

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def test_scores_against_a_loop():
    X, y = signs(300, 60, noise=0.4)
    plain = logic().fit(X, y)
    Z = plain.predict_concepts(X)
    expected = np.array([all(holds(rule, z) for rule in RULES) for z in Z], dtype=float)
    np.testing.assert_array_equal(plain.score_samples(X), expected)
    confident = logic(RULES, "confidence").fit(X, y)
    mean = np.mean([p.max(axis=1) for p in confident.concept_proba(X)], axis=0)
    np.testing.assert_allclose(confident.score_samples(X), expected * mean, rtol=1e-12)
    assert confident.normalizer_ is None
    fused = logic(RULES, SSD(covariance=LedoitWolf()), normalizer="norm").fit(X, y)
    p = fused.normalizer_.sf(-fused.detector_.score_samples(X))
    np.testing.assert_allclose(fused.score_samples(X), expected * p, rtol=1e-9)


def test_threshold():
    X, y = signs(400, 50)
    model = logic().fit(X, y)
    assert 1 - 1.1e-5 < model.offset_ < 1.0  # below the tied scores, by the tolerance
    np.testing.assert_array_equal(model.predict(X) == 1, model.score_samples(X) == 1)
    np.testing.assert_array_equal(model.predict(X) == -1, model.score_samples(X) == 0)
    assert model.score(X, y) == 1.0
    # more ID signs than contamination are misread: nothing can be rejected
    X, y = signs(400, 50, noise=0.6)
    model = logic(contamination=0.01).fit(X, y)
    assert -1.1e-5 < model.offset_ <= 0.0
    assert np.all(model.predict(X) == 1)


def test_no_constraints():
    X, y = signs(100, 20)
    assert np.all(logic([]).fit(X, y).score_samples(X) == 1.0)


def test_weights_tell_more_than_a_product():
    """A constraint that ID rows often break costs the strict detector more."""
    X, y = signs(600, 100)
    rules = [*RULES, "color = red"]
    assert mln(rules).fit(X, y).score(X, y) > logic(rules).fit(X, y).score(X, y) + 0.1


def test_scores_that_are_logarithms_already():
    X, y = signs(100, 20)
    model = logic(RULES, SSD(covariance=LedoitWolf()), normalizer="none").fit(X, y)
    log_p = model.detector_.score_samples(X)
    holds = logic().fit(X, y).score_samples(X)
    np.testing.assert_allclose(model.score_samples(X), holds * np.exp(log_p), rtol=1e-9)
    reading = Bunch(codes=np.zeros((1, 3), dtype=int), proba=None)
    reading.outlier = np.array([-1e9])
    assert np.isfinite(model._scores(reading)).all()


@pytest.mark.filterwarnings("error")
def test_explain():
    X, y = signs(200, 30)
    model = logic(RULES, "confidence").fit(X, y)
    row = model.explain(X[-1:])[0]
    assert row.violated
    assert set(row.contributions.values()) <= {0.0, 1.0}
    assert row.penalty == 1.0
    assert row.detector == pytest.approx(
        -np.log(np.mean([p.max() for p in model.concept_proba(X[-1:])]))
    )
    assert row.is_ood
    assert "; detector: +" in row.sentence
    assert ": +1.0" not in row.sentence
    row = model.explain(X[:1])[0]
    assert row.sentence.startswith("all constraints hold; detector: +0")
    assert row.outlier == pytest.approx(-np.exp(-row.detector))


def test_warning_of_what_does_not_fit():
    X, y = signs(100)
    with pytest.warns(SkoodWarning, match="'genextreme' is replaced by 'empirical'"):
        logic(RULES, FlatDetector()).fit(X, y)


class FlatDetector(SSD):
    """A detector with one score."""

    def score_samples(self, X):
        return np.zeros(len(X))
