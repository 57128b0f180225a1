"""Data frames of pandas and polars go in, and come out of transformers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone, is_regressor
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.base import BaseDetector
from skood.benchmark import compare
from skood.datasets import load_digit_concepts
from skood.detectors import KNN, MSP, Mahalanobis
from skood.exceptions import SkoodWarning
from skood.logic import MLNDetector
from skood.metrics import make_ood_scorer, ranking_metrics
from skood.model_selection import LeaveClassesOut, OODStratifiedKFold
from skood.rectifiers import ReAct
from skood.rejection import BoundedTPRFPR, RejectOptionClassifier
from skood.utils._labels import ood_mask
from skood.utils._metaestimators import take_rows
from skood.utils.discovery import all_estimators
from tests._instances import instances, instances_of, takes_documents
from tests._loops import looped
from tests.test_common import _data, _response, _seeded

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning"),
]

NAMES = ["a", "b", "c"]


def _polars():
    return pytest.importorskip("polars", reason="polars is not installed")


def _frame(library, X):
    """A data frame; of pandas, with an index that is not 0, 1, …"""
    if library == "polars":
        return _polars().DataFrame(X, schema=NAMES)
    return pd.DataFrame(X, columns=NAMES, index=np.arange(len(X))[::-1] + 7)


def _series(library, y):
    if library == "polars":
        return _polars().Series("y", y)
    return pd.Series(y, index=np.arange(len(y))[::-1] + 7)


@pytest.fixture(params=["pandas", "polars"])
def library(request):
    if request.param == "polars":
        _polars()
    return request.param


@pytest.fixture
def rows():
    """Three classes, the last one OOD, as an array and labels."""
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = rng.normal(size=(90, 3)) + 4 * np.eye(3)[y]
    return X, np.where(y == 2, -1, y)


@pytest.mark.parametrize(
    "estimator",
    [instances_of(name, cls)[-1] for name, cls in all_estimators()],
    ids=repr,
)
def test_polars_equals_array(estimator):
    """One instance of each class; all of them with pandas in tests/test_common.py."""
    pl = _polars()
    if takes_documents(estimator):
        pytest.skip("its samples are strings")
    X, y = _data(estimator)
    if not is_regressor(estimator):
        y = np.array(["ant", "bee", "cat"])[y]
    estimator = _seeded(estimator)
    frame = _frame("polars", X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", SkoodWarning)
        fitted = clone(estimator).fit(frame, pl.Series("y", y))
        response = _response(fitted, frame)
    expected = clone(estimator).fit(X, y)
    np.testing.assert_array_equal(response, _response(expected, X))
    assert list(fitted.feature_names_in_) == NAMES
    with pytest.raises(ValueError, match="feature names should match"):
        _response(fitted, frame.select("b", "a", "c"))
    if isinstance(estimator, BaseDetector):
        labels = np.where(np.arange(90) % 9 == 0, "other", y)  # in no class: OOD
        assert fitted.score(frame, pl.Series(labels)) == expected.score(X, labels)


@looped("estimator", [e for e in instances() if hasattr(e, "set_output")])
def test_output_of_transformers(estimator, library):
    X, y = _data(estimator)
    estimator, frame = _seeded(estimator), _frame(library, X)
    fitted = clone(estimator).fit(frame, y)
    plain = fitted.transform(frame)
    assert type(plain) is np.ndarray
    actual = fitted.set_output(transform=library).transform(frame)
    at_once = clone(estimator).set_output(transform=library).fit_transform(frame, y)
    for out in (actual, at_once):
        assert type(out) is type(frame)
        assert list(out.columns) == list(fitted.get_feature_names_out())
        np.testing.assert_array_equal(out.to_numpy(), plain)
        if library == "pandas":
            assert out.index.equals(frame.index)


def test_pipeline_of_frames(library, rows):
    """Frames between the steps change scores by rounding only: columns are apart."""
    X, y = rows
    frame, labels = _frame(library, X), _series(library, y)
    pipeline = make_pipeline(
        StandardScaler(), ReAct(quantile=0.9), Mahalanobis(ood_label=-1)
    )
    expected = clone(pipeline).fit(X, y).score_samples(X)
    pipeline.set_output(transform=library).fit(frame, labels)
    np.testing.assert_allclose(pipeline.score_samples(frame), expected, rtol=1e-12)
    assert list(pipeline[-1].feature_names_in_) == NAMES
    with config_context(transform_output=library):
        inner = KNN(
            make_pipeline(StandardScaler(), LogisticRegression()), n_neighbors=3
        ).fit(frame, labels)
        inside = inner.score_samples(frame)
    outside = clone(inner).fit(X, y).score_samples(X)
    np.testing.assert_allclose(inside, outside, rtol=1e-12)


def test_samples_are_taken(library):
    frame = _frame(library, np.arange(12.0).reshape(4, 3))
    taken = take_rows(frame, np.array([2, 0]))
    assert type(taken) is type(frame)
    np.testing.assert_array_equal(taken.to_numpy(), [[6, 7, 8], [0, 1, 2]])


def test_labels_of_polars():
    pl = _polars()
    y = pl.Series(["ant", "bee", "?"])
    for labels in (y, y.cast(pl.Categorical)):
        assert ood_mask(labels, ood_label="?").tolist() == [False, False, True]
        assert ood_mask(labels, ood_label="-", classes=["ant"]).tolist() == [0, 1, 1]
    table = pl.DataFrame({"kind": y, "size": [1, -1, 2]})
    assert ood_mask(table).tolist() == [False, True, False]
    with pytest.raises(ValueError, match="y contains NaN or None"):
        ood_mask(pl.Series(["ant", None]))
    with pytest.raises(ValueError, match="y contains NaN or infinity"):
        ood_mask(pl.Series([1, None]))


def test_scorers_and_splitters(library, rows):
    X, y = rows
    frame, labels = _frame(library, X), _series(library, y)
    score = make_ood_scorer("auroc")
    detector = KNN(n_neighbors=3)
    fitted = clone(detector).fit(frame, labels)
    assert score(fitted, frame, labels) == score(clone(detector).fit(X, y), X, y)
    scores = fitted.score_samples(frame)
    assert ranking_metrics(labels, _series(library, scores)) == ranking_metrics(
        y, scores
    )
    for cv in (
        OODStratifiedKFold(2, shuffle=True, random_state=0),
        LeaveClassesOut(1, random_state=0),
    ):
        for ours, theirs in zip(cv.split(frame, labels), cv.split(X, y), strict=True):
            np.testing.assert_array_equal(ours[1], theirs[1])
        actual, expected = (
            GridSearchCV(detector, {"n_neighbors": [2, 8]}, scoring=score, cv=cv)
            .fit(*data)
            .cv_results_["mean_test_score"]
            for data in ((frame, labels), (X, y))
        )
        np.testing.assert_array_equal(actual, expected)


def test_reject_option(library, rows):
    X, y = rows
    frame, labels = _frame(library, X), _series(library, y)
    train, test, y_train, y_test = train_test_split(
        frame, labels, stratify=y, random_state=0
    )
    clf = RejectOptionClassifier(
        LogisticRegression(),
        ood_detector=make_pipeline(KNN(n_neighbors=3)),
        rule=BoundedTPRFPR(tpr_min=0.8, fpr_max=0.2),
        random_state=0,
    )
    plain = clone(clf).fit(train.to_numpy(), y_train.to_numpy())
    clf = clf.fit(train, y_train)
    assert list(clf.feature_names_in_) == NAMES
    np.testing.assert_array_equal(clf.predict(test), plain.predict(test.to_numpy()))
    actual = clf.report(test, y_test)
    assert str(actual) == str(plain.report(test.to_numpy(), y_test.to_numpy()))


def test_compare(library, rows):
    X, y = rows
    known = y != -1
    detectors = {"knn": KNN(n_neighbors=3), "msp": MSP(LogisticRegression())}
    actual = compare(
        detectors,
        _frame(library, X[known]),
        _series(library, y[known]),
        {"third": _frame(library, X[~known])},
        random_state=0,
    )
    expected = compare(
        detectors, X[known], y[known], {"third": X[~known]}, random_state=0
    )
    numbers = ["detector", "metric", "value"]
    pd.testing.assert_frame_equal(actual[numbers], expected[numbers])


def test_table_of_concepts():
    """Rules are fitted on a polars table of labels, with a column per concept."""
    pl = _polars()
    digits = load_digit_concepts()
    X, labels = digits.data[:300], digits.concepts[:300].astype(str)
    detector = MLNDetector(
        [],
        [(name, LogisticRegression(max_iter=300)) for name in digits.concept_names],
        "confidence",
        random_state=0,
    )
    expected = clone(detector).fit(X, labels).score_samples(X[:9])
    table = pl.DataFrame(labels, schema=digits.concept_names)
    np.testing.assert_array_equal(detector.fit(X, table).score_samples(X[:9]), expected)


def test_frames_that_no_detector_reads(rows):
    pl = _polars()
    X, y = rows
    frame = _frame("polars", X)
    with pytest.raises(TypeError, match="LazyFrame"):
        KNN(n_neighbors=3).fit(frame.lazy(), y)
    nulls = frame.with_columns(a=pl.when(pl.col("a") > 0).then(None).otherwise(0.0))
    with pytest.raises(ValueError, match="contains NaN"):
        KNN(n_neighbors=3).fit(nulls)
    with pytest.raises(ValueError, match="could not convert string to float"):
        KNN(n_neighbors=3).fit(frame.with_columns(pl.lit("x").alias("a")))
