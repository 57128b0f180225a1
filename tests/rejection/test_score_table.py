"""Scores that come from elsewhere, in a classifier with a reject option."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skood import persistence
from skood.detectors import KNN
from skood.exceptions import SkoodWarning
from skood.metrics import make_rate_scorer
from skood.model_selection import OODStratifiedKFold
from skood.rejection import (
    BoundedErrorRate,
    BoundedImprovement,
    BoundedTPRFPR,
    Certificate,
    RejectOptionClassifier,
    ScoredSamples,
    ScoreTable,
    certify,
    solve,
)
from skood.utils.discovery import all_estimators


@pytest.fixture(scope="module")
def answers():
    """A frame of tied scores and texts, labels 1, 0 and -1, and the two scores."""
    rng = np.random.default_rng(0)
    off = rng.random(600) < 0.15
    z = rng.normal(size=600)
    right = rng.random(600) < 1 / (1 + np.exp(-1.2 - 1.6 * z))
    entropy = np.round(-z + 0.5 * rng.normal(size=600), 1)
    distance = np.round(2 * off + rng.normal(size=600), 1)
    X = pd.DataFrame({"text": ["why?"] * 600, "entropy": entropy, "distance": distance})
    return X, np.where(off, -1, right.astype(int))


def _samples(X, y, double=True):
    risk, ood = X["entropy"].to_numpy(), X["distance"].to_numpy()
    loss = np.where(y == 0, 1.0, 0.0)
    return ScoredSamples(risk, ood if double else None, loss, y == -1)


TABLE = ScoreTable("entropy", "distance")
RULE = BoundedTPRFPR(0.5, 0.6)


def _fit(X, y, table=TABLE, rule=RULE, calibration="same", **params):
    return RejectOptionClassifier(
        table, rule=rule, calibration=calibration, random_state=0, **params
    ).fit(X, y)


@pytest.mark.parametrize("table", [TABLE, ScoreTable("entropy"), ScoreTable(1, 2)])
def test_rule_is_solved_on_the_columns(table, answers):
    X, y = answers
    double = table.ood is not None
    clf, point = _fit(X, y, table), solve(RULE, _samples(X, y, double))
    assert clf.operating_point_.lam == point.lam
    assert clf.operating_point_.rates == point.rates
    risk, ood = X["entropy"], X["distance"] if double else None
    accepted = point.accept(risk, ood)
    assert_array_equal(clf.predict(X), np.where(accepted, 1, -1))
    assert_array_equal(clf.decide(X), np.ones(600))
    assert clf.report(X, y).risk[0] == pytest.approx(point.risk, abs=1e-12)
    scorer = make_rate_scorer("neg_error_rate")
    assert scorer(clf, X, y) == pytest.approx(-(y[accepted] != 1).mean())
    assert "column" in str(clf.report(X, y))
    assert len(clf.explain(X[:3]).sentences) == 3


@pytest.mark.parametrize("kind", [np.asarray, np.ndarray.tolist, pd.DataFrame])
def test_columns_by_position(kind, answers):
    X, y = answers
    expected = _fit(X, y).predict(X)
    numbers = kind(X[["distance", "entropy"]].to_numpy())
    for table in (ScoreTable(1, 0), ScoreTable(-1, -2)):
        assert_array_equal(_fit(numbers, y, table).predict(numbers), expected)


def test_names_that_are_integers_come_before_positions(answers):
    X, y = answers
    frame = X[["entropy", "distance"]].set_axis([1, 0], axis=1)
    assert_array_equal(
        _fit(frame, y, ScoreTable(1, 0)).predict(frame), _fit(X, y).predict(X)
    )


def test_certificate_of_a_mixture(answers):
    X, y = answers
    rule = BoundedErrorRate(0.3)
    clf = _fit(X, y, rule=rule, guarantee=Certificate(sampling="mixture"))
    accepted = clf.predict(X) == 1
    assert (y[accepted] != 1).mean() <= 0.3
    text = clf.operating_point_.certificate.statements[0].text
    assert text == "error rate <= 0.3"
    point = certify(
        rule, _samples(X, y), Certificate(sampling="mixture"), random_state=0
    )
    assert point.tpr > 0.3


@pytest.mark.parametrize(
    ("right", "wrong", "ood_label", "rejected"),
    [(True, False, -1, "reject"), ("yes", "no", "off", "reject"), (2, 7, 3, -1)],
)
def test_labels(right, wrong, ood_label, rejected, answers):
    X, y = answers
    names = {1: right, 0: wrong, -1: ood_label}
    labels = np.array([names[label] for label in y.tolist()], dtype=object)
    if right == "yes":
        labels = labels.astype(str)
    clf = _fit(X, labels, TABLE.set_params(right=right), ood_label=ood_label)
    TABLE.set_params(right=1)
    expected = _fit(X, y).predict(X) == 1
    assert_array_equal(clf.predict(X) == right, expected)
    assert set(clf.predict(X).tolist()) == {right, rejected}
    assert set(clf.classes_.tolist()) == {right, wrong}


def test_answers_that_are_all_right(answers):
    """A wrong answer is an error, not a sample of an unknown class, later on."""
    X, y = answers
    clf = _fit(X[y != 0], y[y != 0])
    assert clf.classes_.tolist() == [0, 1]
    report = clf.report(X, y)
    assert report.risk[0] > 0.05
    assert report.n_ood == (y == -1).sum()


def _model():
    columns = make_column_transformer(("passthrough", ["entropy"]))
    return make_pipeline(columns, LogisticRegression())


def test_classifier_of_right_answers(answers):
    X, y = answers
    table = ScoreTable(_model(), "distance")
    clf = _fit(X, y, table, calibration=0.5)
    fitted = clf.estimator_.risk_
    risk, ood = clf.score_pair(X)
    wrong = fitted.predict_proba(X)[:, 0]
    np.testing.assert_allclose(risk, -wrong, rtol=0, atol=1e-12)
    assert_array_equal(ood, -X["distance"])
    with pytest.raises(ValueError, match="calibration='same' needs frozen parts"):
        _fit(X, y, table)
    is_id = y != -1
    frozen = ScoreTable(FrozenEstimator(_model().fit(X[is_id], y[is_id])))
    assert _fit(X, y, frozen).estimator_.risk_ is frozen.risk
    weight = np.where(y == 1, 1.0, 3.0)
    model = RejectOptionClassifier(
        ScoreTable(LogisticRegression()), rule=RULE, calibration=0.5, random_state=0
    )
    numbers = X[["entropy", "distance"]]
    plain = model.fit(numbers, y).score_pair(numbers)[0]
    assert np.any(model.fit(numbers, y, weight).score_pair(numbers)[0] != plain)


def test_share_of_samples_held_out_warns(answers):
    X, y = answers
    for calibration in (0.3, 5):
        with pytest.warns(SkoodWarning, match=r"fits nothing.*calibration='same'"):
            _fit(X, y, calibration=calibration)
    with warnings.catch_warnings(action="error"):
        _fit(X, y)
        _fit(X, y, ScoreTable(_model()), calibration=0.3)
        numbers = X[["entropy", "distance"]]
        _fit(
            numbers,
            y,
            ScoreTable(0),
            calibration=0.3,
            ood_detector=make_pipeline(KNN()),
        )


def test_copies_files_and_other_rules(answers):
    X, y = answers
    clf = _fit(X, y)
    expected = clf.predict(X)
    file = pickle.loads(pickle.dumps(clf))
    assert_array_equal(file.predict(X), expected)
    assert_array_equal(clone(clf).fit(X, y).predict(X), expected)
    new = clf.with_rule(BoundedImprovement(0.1), X, y)
    point = solve(BoundedImprovement(0.1), _samples(X, y))
    assert new.operating_point_.rates == point.rates
    assert_array_equal(clone(new).fit(X, y).predict(X), new.predict(X))
    frozen = FrozenEstimator(ScoreTable("entropy", "distance").fit(X, np.maximum(y, 0)))
    assert_array_equal(_fit(X, y, frozen).predict(X), expected)


def test_file(tmp_path, answers):
    X, y = answers
    clf = _fit(X[["entropy", "distance"]].to_numpy(), y, ScoreTable(0, 1))
    path = tmp_path / "answers.skood"
    persistence.dump(clf, path)
    numbers = X[["entropy", "distance"]].to_numpy()
    loaded = persistence.load(path)
    assert_array_equal(loaded.predict(numbers), clf.predict(numbers))


def test_columns_are_searched(answers):
    X, y = answers
    search = GridSearchCV(
        RejectOptionClassifier(ScoreTable(), rule=RULE, calibration="same"),
        {"estimator__risk": ["entropy", "distance"], "estimator__ood": [None]},
        scoring=make_rate_scorer("neg_risk"),
        cv=OODStratifiedKFold(3),
        error_score="raise",
    ).fit(X, y)
    assert search.best_params_["estimator__risk"] == "entropy"


@pytest.mark.parametrize(
    ("table", "match"),
    [
        (
            ScoreTable("margin"),
            r"risk='margin' .* are \['text', 'entropy', 'distance'\]",
        ),
        (ScoreTable("entropy", "knn"), "ood='knn' of ScoreTable is no column"),
        (ScoreTable(3), "risk=3 of ScoreTable is no column"),
        (ScoreTable("text"), "column 'text' of X has values that are no numbers"),
        (
            ScoreTable("entropy", right=3),
            r"no label of right answers, right=3.*\[0, 1\]",
        ),
    ],
)
def test_bad_tables(table, match, answers):
    X, y = answers
    with pytest.raises(ValueError, match=match):
        _fit(X, y, table)


def test_bad_samples(answers):
    X, y = answers
    missing = X.assign(distance=np.where(np.arange(600) == 5, np.nan, X["distance"]))
    with pytest.raises(ValueError, match=r"column 'distance' of X contains 1 NaN"):
        _fit(missing, y)
    clf = _fit(X, y)
    with pytest.raises(ValueError, match=r"column 'distance' of X contains 1 NaN"):
        clf.predict(missing)
    with pytest.raises(ValueError, match="'distance' of ScoreTable is no column"):
        clf.predict(X[["entropy"]])
    with pytest.raises(ValueError, match=r"one label of wrong answers.*\[0, 1, 2\]"):
        _fit(X, np.where(np.arange(600) == 7, 2, y))
    with pytest.raises(ValueError, match="no label of right answers"):
        _fit(X, np.minimum(y, 0))
    with pytest.raises(ValueError, match="risk=0 of ScoreTable is no column of X"):
        ScoreTable().fit(np.zeros(5), np.ones(5))


@pytest.mark.parametrize("name", ["risk_detector", "ood_detector"])
def test_detector_of_a_column(name, answers):
    X, y = answers
    with pytest.raises(ValueError, match=f"{name}=KNN.*Leave one of them out"):
        _fit(X, y, **{name: KNN()})
    with pytest.raises(ValueError, match="risk_detector='loss', but the score is"):
        _fit(X, y, risk_detector="loss")


def test_a_loss_matrix_needs_no_probabilities(answers):
    X, y = answers
    loss = np.array([[0, 1], [3, 0]])
    with pytest.raises(ValueError, match=r"predict_proba. Use decision="):
        _fit(X, y, loss=loss)
    clf = _fit(X, y, loss=loss, decision="estimator")
    accepted = (clf.predict(X) != -1) & (y >= 0)
    losses = loss[y[accepted], 1]
    assert clf.report(X, y).risk.value == pytest.approx(losses.mean())


def test_table_is_not_listed():
    """Common checks have other labels."""
    assert "ScoreTable" not in dict(all_estimators())
