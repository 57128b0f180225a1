"""Sentences on decisions: numbers from numpy, names of the user, every detector."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import re
from datetime import datetime

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csc_array, csr_matrix
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, OneHotEncoder, StandardScaler

from skood.combine import BenjaminiHochberg, DetectorEnsemble
from skood.detectors import KNN, Energy, Mahalanobis, MaxLogit, Residual
from skood.logic import MLNDetector
from skood.rejection import (
    BoundedAbstention,
    BoundedTPRFPR,
    TwoThresholds,
)
from skood.rejection._explanation import _value
from tests.rejection._problem import Cells, selective

RNG = np.random.default_rng(0)
Y = np.repeat(["good", "poor"], 200)
INCOME = RNG.normal(0, 4000, 400) + np.where(Y == "good", 50000, 33000)
X = pd.DataFrame(
    {
        "income": INCOME,
        "city": RNG.choice(["Paris", "Rome", "Oslo"], 400),
        "unused": RNG.normal(size=400),
        "age": RNG.normal(44, 9, 400),
        "member": RNG.choice([True, False], 400),
    },
    index=np.arange(400) + 1000,
)
TABLE = ColumnTransformer(
    [
        ("cat", OneHotEncoder(drop="first"), ["city"]),
        ("num", make_pipeline(SimpleImputer(), StandardScaler()), ["income", "age"]),
        ("flag", "passthrough", ["member"]),
    ]
)
NEW = X.iloc[[0, 1, 300, 2]].assign(
    income=[182000.0, 50000.0, 33000.0, 41600.0], age=[44.0, 120.0, np.nan, 44.0]
)


def _clf(ood_detector=None, estimator=None, **params):
    estimator = LogisticRegression() if estimator is None else estimator
    params = {"rule": TwoThresholds(ood=0.05, risk=0.05), **params}
    return selective(
        make_pipeline(TABLE, estimator), ood_detector=ood_detector, **params
    )


@pytest.fixture(scope="module")
def fitted():
    return _clf(Mahalanobis()).fit(X, Y)


def test_sentences(fitted):
    explanation = fitted.explain(NEW)
    scale = fitted.estimator_[0].named_transformers_["num"][-1].scale_
    sd = np.sqrt(np.diag(fitted.ood_detector_.covariance_)[[2, 3]]) * scale
    gaps = NEW[["income", "age"]].to_numpy()[:2] - explanation.references[:2][:, [0, 2]]
    assert_allclose(explanation.deviations[:2][:, [0, 2]], gaps / sd, rtol=1e-9)
    income = explanation.references[0, 0], explanation.deviations[0, 0]
    age = explanation.references[1, 2], explanation.deviations[1, 2]
    proba = fitted.predict_proba(NEW)
    assert explanation.sentences == [
        f"rejected as out-of-distribution: income 182,000, {income[1]:.1f} sd above "
        f"the mean {income[0]:,.0f} of the nearest class 'good'",
        f"rejected as out-of-distribution: age 120, {age[1]:.1f} sd above the mean "
        f"{age[0]:.3g} of the nearest class 'good'",
        f"accepted as 'poor' with probability {proba[2].max():.2f}",
        f"rejected as likely misclassified: probability {proba[3].max():.2f} of "
        f"'{fitted.classes_[proba[3].argmax()]}' against {proba[3].min():.2f} of "
        f"'{fitted.classes_[proba[3].argmin()]}'",
    ]
    assert 45000 < income[0] < 55000 and 25 < income[1] < 40


def test_decisions_are_those_of_predict(fitted):
    explanation = fitted.explain(X[::7])
    rejected = fitted.predict(X[::7]) == "reject"
    assert_array_equal(explanation.reason, fitted.reject_reason(X[::7]).reason)
    starts = {"accepted": "accepted as ", "uncertain class": "rejected as likely "}
    starts["out-of-distribution"] = "rejected as out-of-distribution"
    for reason, sentence in zip(explanation.reason, explanation.sentences, strict=True):
        assert sentence.startswith(starts[reason])
    assert_array_equal(explanation.reason != "accepted", rejected)
    assert_array_equal(explanation.prediction, fitted.estimator_.predict(X[::7]))


def test_contributions_sum_to_the_squared_distance(fitted):
    explanation = fitted.explain(NEW)
    assert_array_equal(explanation.columns, ["income", "city", "age", "member"])
    score = fitted.score_pair(NEW)[1]
    assert_allclose(explanation.contributions.sum(axis=1), -score, rtol=1e-9)
    table = explanation.table(1)
    assert table.index[0] == "age"
    assert_allclose(table["contribution"].sum(), -score[1])
    assert table.loc["city", "value"] == NEW["city"].iloc[1]
    frame = explanation.to_frame()
    assert list(frame.index) == [1000, 1001, 1300, 1002]
    assert_allclose(frame["contribution_age"], explanation.contributions[:, 2])
    assert frame["sentence"].tolist() == explanation.sentences


def test_single_sample_is_explained_alone(fitted):
    explanation = fitted.explain(NEW)
    assert len(explanation) == 4 and len(list(explanation)) == 4
    for i, each in enumerate(explanation):
        alone = fitted.explain(NEW.iloc[i : i + 1])
        assert str(each) == str(alone) == f"{NEW.index[i]}: {explanation.sentences[i]}"
        assert_allclose(each.contributions, alone.contributions, rtol=1e-9, atol=1e-12)
    assert str(explanation[-1]) == str(explanation[3])
    assert str(explanation[1:3]).splitlines() == str(explanation).splitlines()[1:3]
    with pytest.raises(IndexError):
        explanation[4]


def test_number_of_columns(fitted):
    both = NEW.iloc[:1].assign(income=90000.0, age=140.0)
    for n_columns, names in ((0, []), (1, ["age"]), (3, ["age", "income"])):
        (sentence,) = fitted.explain(both, n_columns=n_columns).sentences
        assert re.findall(r"(\w+) \d[\d,]*, ", sentence) == names
    for n_columns in (-1, 1.5):
        with pytest.raises((ValueError, TypeError), match="n_columns"):
            fitted.explain(NEW, n_columns=n_columns)


def test_arrays_have_the_names_of_scikit_learn():
    Z = X[["income", "age"]].to_numpy()
    clf = selective(
        make_pipeline(StandardScaler(), LogisticRegression()),
        ood_detector=Mahalanobis(),
        rule=TwoThresholds(),
    ).fit(Z, np.where(Y == "good", 3, 5))
    explanation = clf.explain([[182000.0, 44.0], [50000.0, 44.0]])
    assert re.fullmatch(
        r"rejected as out-of-distribution: x0 182,000, \d+\.\d sd above the mean "
        r"[\d,]+ of the nearest class 3",
        explanation.sentences[0],
    )
    assert explanation.sentences[1] == "accepted as class 3 with probability 0.98"
    assert explanation.index == [0, 1]


def test_references_of_other_detectors():
    knn = _clf(KNN(n_neighbors=1, normalize=False)).fit(X, Y).explain(NEW)
    reference = f"{knn.references[0, 0]:,.0f}"
    assert X["income"].round().isin([round(knn.references[0, 0])]).any()
    assert knn.sentences[0] == (
        f"rejected as out-of-distribution: income 182,000 instead of {reference} in a "
        "near training sample"
    )
    residual = _clf(Residual(n_components=1)).fit(X, Y).explain(NEW)
    reference = f"{residual.references[0, 0]:,.0f}"
    assert residual.sentences[0].startswith(
        f"rejected as out-of-distribution: income 182,000 instead of {reference}, "
        "which follows from the other columns"
    )
    unit = _clf(KNN(normalize=True)).fit(X, Y).explain(NEW.assign(income=1e6))
    assert_allclose(
        unit.contributions.sum(axis=1),
        _distance(_clf(KNN(normalize=True)).fit(X, Y), 1e6) ** 2,
    )
    assert not any("instead" in sentence for sentence in unit.sentences)


def _distance(clf, income):
    return clf.ood_detector_.score_samples(NEW.assign(income=income))


def test_mixtures_are_called_mixtures():
    clf = selective(
        make_pipeline(StandardScaler(), PCA(2), LogisticRegression()),
        ood_detector=Mahalanobis(),
        rule=TwoThresholds(),
    ).fit(X[["income", "age"]], Y)
    (sentence,) = clf.explain(NEW[["income", "age"]].iloc[:1]).sentences
    assert re.match(
        r"rejected as out-of-distribution: pca\d \(a mixture of columns\) -?[\d.]+, "
        r"[\d.]+ sd (above|below) the mean -?[\d.]+ of the nearest class 'good'",
        sentence,
    )


def test_a_score_without_contributions():
    clf = _clf(Energy(), rule=TwoThresholds(ood=0.3, risk=0.05)).fit(X, Y)
    explanation = clf.explain(X)
    assert explanation.contributions.shape == (400, 0)
    percentile = clf.reject_reason(X).ood_percentile
    rejected = explanation.reason == "out-of-distribution"
    assert rejected.sum() > 20
    for i in np.flatnonzero(rejected):
        than = "all" if percentile[i] == 100 else f"{percentile[i]:.3g} % of"
        assert explanation.sentences[i] == (
            "rejected as out-of-distribution: the score of Energy is lower than for "
            f"{than} calibration samples"
        )
    assert explanation.to_frame().shape == (400, 3)


@pytest.mark.parametrize("has_proba", [True, False])
def test_risk_scores(has_proba):
    clf = _clf(
        estimator=LogisticRegression() if has_proba else RidgeClassifier(),
        risk_detector=MaxLogit(),
        rule=BoundedAbstention(0.8),
    ).fit(X, Y)
    explanation = clf.explain(X)
    i = int(np.flatnonzero(explanation.reason == "uncertain class")[0])
    percentile = clf.reject_reason(X).risk_percentile[i]
    start = (
        "rejected as likely misclassified: the score of MaxLogit is lower than for "
        f"{percentile:.3g} % of calibration samples"
    )
    rest = explanation.sentences[i].removeprefix(start)
    assert rest.startswith("; probability 0.") if has_proba else rest == ""
    i = int(np.flatnonzero(explanation.reason == "accepted")[0])
    assert (" with probability " in explanation.sentences[i]) == has_proba


def test_a_risk_detector_with_contributions():
    clf = _clf(risk_detector=Mahalanobis(), rule=BoundedAbstention(0.9)).fit(X, Y)
    explanation = clf.explain(NEW)
    assert explanation.sentences[0].startswith(
        "rejected as likely misclassified: income 182,000, "
    )
    assert "; probability 1.00 of 'good' against 0.00" in explanation.sentences[0]
    score = clf.score_pair(NEW)[0]
    assert_allclose(explanation.contributions.sum(axis=1), -score)


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
def test_members_of_an_ensemble():
    members = [
        ("near", KNN(normalize=False)),
        ("mean", Mahalanobis()),
        ("energy", Energy()),
    ]
    ensemble = DetectorEnsemble(members, BenjaminiHochberg(), random_state=0)
    outliers = X[:60].assign(age=150.0 + np.arange(60))
    clf = _clf(ensemble, rule=BoundedTPRFPR(0.7, 0.1), ood_label="ood")
    clf.fit(pd.concat([X, outliers]), np.r_[Y, ["ood"] * 60])
    explanation = clf.explain(outliers[:1])
    fitted = clf.ood_detector_
    pvalues = dict(
        zip(["near", "mean", "energy"], fitted.pvalues(outliers)[0], strict=True)
    )
    chosen = fitted.selected_detectors(outliers)[0]
    assert chosen.tolist() == [True, True, False]
    order = sorted(["near", "mean"], key=pvalues.get)
    shown = ", ".join(f"{name} (p = {pvalues[name]:.2g})" for name in order)
    assert explanation.sentences == [
        f"rejected as out-of-distribution by 2 of 3 detectors: {shown}"
    ]
    assert explanation.contributions.shape == (1, 0)


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
def test_a_rule_may_reject_what_no_member_rejects():
    members = [("near", KNN(normalize=False)), ("mean", Mahalanobis())]
    ensemble = DetectorEnsemble(members, BenjaminiHochberg(), random_state=0)
    clf = _clf(ensemble, rule=TwoThresholds(ood=0.5, risk=0.0)).fit(X, Y)
    samples = X[clf.reject_reason(X).reason == "out-of-distribution"]
    fitted = clf.ood_detector_
    indices = np.flatnonzero(~fitted.selected_detectors(samples).any(axis=1))
    assert len(indices) > 20
    pvalues, sentences = fitted.pvalues(samples), clf.explain(samples).sentences
    for i in indices:
        assert sentences[i] == (
            "rejected as out-of-distribution: no detector rejects it alone; "
            f"{['near', 'mean'][pvalues[i].argmin()]} has the smallest p-value, "
            f"{pvalues[i].min():.2g}"
        )


def test_constraints():
    signs = np.array([["stop", "red"], ["other", "red"], ["other", "blue"]])
    labels = signs[RNG.integers(3, size=600)]
    Z = np.where(labels == ["stop", "red"], 3.0, -3.0) + RNG.normal(size=labels.shape)
    logic = MLNDetector(
        ["class = stop -> color = red"],
        [("class", LogisticRegression()), ("color", LogisticRegression())],
        random_state=0,
    ).fit(Z, labels)
    clf = selective(
        ood_detector=FrozenEstimator(logic),
        ood_label="ood",
        rule=BoundedTPRFPR(0.9, 0.5),
    )
    blue_stop = np.array([[3.0, -3.0]]) + RNG.normal(size=(30, 2)) / 10
    clf.fit(np.r_[Z, blue_stop], np.r_[labels[:, 0], ["ood"] * 30])
    explanation = clf.explain([[3.0, -3.0], [3.0, 3.0]])
    (violation,) = logic.explain([[3.0, -3.0]])
    assert explanation.sentences[0] == (
        f"rejected as out-of-distribution: {violation.sentence}"
    )
    assert_array_equal(explanation.columns, ["class = stop -> color = red"])
    (expected,) = violation.contributions.values()
    assert explanation.contributions[0, 0] == expected > 1
    assert explanation.sentences[1].startswith("accepted as 'stop'")


def test_a_rule_that_was_chosen_later(fitted):
    new = fitted.with_rule(TwoThresholds(ood=0.1, risk=0.1), X, Y)
    assert new.explain(NEW).sentences[:2] == fitted.explain(NEW).sentences[:2]


def test_html_is_escaped():
    evil = "<script>alert('&')</script>"
    names = {"income": evil}
    y = np.where(Y == "good", "<b>good</b>", "poor")
    clf = selective(
        make_pipeline(StandardScaler(), LogisticRegression()),
        ood_detector=Mahalanobis(),
        rule=TwoThresholds(),
    ).fit(X[["income", "age"]].rename(columns=names), y)
    explanation = clf.explain(
        NEW[["income", "age"]].rename(columns=names, index={1000: "<i>0</i>"})[:1]
    )
    html = Cells(explanation._repr_html_())
    assert set(html.tags) == {"table", "thead", "tbody", "tr", "th", "td"}
    (sentence,) = explanation.sentences
    assert evil in sentence and "<b>good</b>" in sentence
    shown = [cell.strip() for cell in html.lines[-1]]
    assert shown == ["<i>0</i>", "out-of-distribution", sentence]
    many = Cells(clf.explain(X[["income", "age"]].rename(columns=names))._repr_html_())
    assert many.tags.count("tr") == 51
    assert many.caption == "and 350 more samples"


@pytest.mark.parametrize("container", [csr_matrix, csc_array])
@pytest.mark.parametrize("scaler", [None, MaxAbsScaler()])
def test_sparse_samples(container, scaler):
    """As of the same dense samples; the columns have the names of the matrix."""
    rng = np.random.default_rng(3)
    samples = np.where(rng.random((400, 8)) < 0.4, rng.normal(size=(400, 8)), 0)
    samples[Y == "good", 0] += 3
    new = np.where(np.arange(8) == 5, 40.0, samples[[0, 399]])
    steps = [scaler] if scaler else []
    clf = _clf(KNN(n_neighbors=5, normalize=False)).set_params(
        estimator=make_pipeline(*steps, LogisticRegression())
    )
    dense = clone(clf).fit(samples, Y).explain(new)
    sparse = clone(clf).fit(container(samples), Y).explain(container(new))
    assert sparse.sentences == dense.sentences
    assert sparse.sentences[0].startswith("rejected as out-of-distribution: x5 40")
    assert list(sparse.columns) == [f"x{j}" for j in range(8)]
    assert_allclose(sparse.contributions, dense.contributions, rtol=1e-9, atol=1e-12)
    assert_allclose(sparse.table(0)["contribution"].iloc[0], sparse.contributions[0, 5])


def test_polars_frames():
    polars = pytest.importorskip("polars")

    def frame(table):
        return polars.DataFrame({name: table[name].tolist() for name in table})

    shown = ["city", "income", "age", "member"]
    clf = _clf(Mahalanobis())
    ours = clone(clf).fit(frame(X[shown]), Y).explain(frame(NEW[shown]))
    theirs = clone(clf).fit(X[shown], Y).explain(NEW[shown])
    assert ours.sentences == theirs.sentences
    assert list(ours.columns) == list(theirs.columns)
    assert_allclose(ours.contributions, theirs.contributions)
    assert list(ours.index) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (182000.0, "182,000"),
        (np.int64(1234), "1,234"),
        (44.512, "44.5"),
        (-0.00123456, "-0.00123"),
        (0.0, "0"),
        (1e20, "1e+20"),
        ("Lima", "'Lima'"),
        (True, "True"),
        (np.nan, "missing"),
        (None, "missing"),
        (pd.NaT, "missing"),
        (pd.NA, "missing"),
        (datetime(2026, 1, 2), "2026-01-02 00:00:00"),
    ],
)
def test_values(value, text):
    assert _value(value) == text


def test_errors(fitted):
    without = _clf(Mahalanobis(), rule=None).fit(X, Y)
    with pytest.raises(AttributeError, match="no attribute 'explain'") as error:
        without.explain(NEW)
    assert "not available when rule=None" in str(error.value.__cause__)
    twice = pd.concat([NEW, NEW["age"]], axis=1)
    with pytest.raises(ValueError, match=r"differ in name; repeated: \['age'\]"):
        fitted.explain(twice)
    with pytest.raises(ValueError, match="columns are missing"):
        fitted.explain(NEW.drop(columns="age"))
