"""Data frames with categories, missing values and dates, through one preprocessing."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.covariance import LedoitWolf
from sklearn.ensemble import HistGradientBoostingClassifier, IsolationForest
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)
from sklearn.utils import get_tags

from skood.combine import DSDE, DetectorEnsemble
from skood.detectors import KNN, MSP, Energy, Mahalanobis, SklearnDetector
from skood.metrics import make_ood_scorer
from skood.model_selection import IDOnly, LeaveClassesOut
from skood.rejection import BoundedTPRFPR, RejectOptionClassifier, TwoThresholds

pytestmark = pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")

KINDS = np.array(["farm", "flat", "house"])


def _days(frame):
    """Days since 1970 of each column of a pandas frame; NaN where there is none."""
    return pd.DataFrame({k: (frame[k] - pd.Timestamp(0)).dt.days for k in frame})


def _frame(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    X = pd.DataFrame(
        {
            "kind": KINDS[np.where(rng.random(n) < 0.9, y, rng.integers(0, 3, n))],
            "area": rng.normal(100 + 40 * y, 15),
            "sold": pd.Timestamp("2001-03-01")
            + pd.to_timedelta(rng.integers(0, 3000, n), unit="D"),
        },
        index=rng.permutation(n) + 100,
    )
    return X, np.array(["cheap", "dear", "fair"])[y]


def _prep(*, imputes=True):
    numbers = [StandardScaler()] + [SimpleImputer()] * imputes
    return ColumnTransformer(
        [
            ("kind", OneHotEncoder(handle_unknown="ignore", sparse_output=False), [0]),
            ("area", make_pipeline(*numbers), ["area"]),
            ("sold", make_pipeline(FunctionTransformer(_days), *numbers), ["sold"]),
        ]
    )


def _trees():
    return HistGradientBoostingClassifier(max_iter=5, max_leaf_nodes=5)


def _forest():
    return IsolationForest(n_estimators=5, random_state=0)


@pytest.fixture
def table():
    """300 samples with 10 % of the areas and one date missing."""
    X, y = _frame(300, 0)
    X.iloc[::10, 1] = np.nan
    X.iloc[3, 2] = pd.NaT
    return X, y


def _strange(n=40):
    """Samples that would change a preprocessing that is fitted on them."""
    X, _ = _frame(n, 1)
    late = X["sold"] + pd.Timedelta(days=70_000)
    return X.assign(kind="castle", area=1e6, sold=late)


def _states(prep):
    kind, *numbers = [step for _, step, _ in prep.transformers_]
    actual = [kind.categories_[0].tolist()]
    return actual + [part[-2].mean_.tolist() for part in numbers]


@pytest.mark.parametrize("is_outer", [False, True])
def test_ood_samples_do_not_change_the_preprocessing(table, is_outer):
    X, y = table
    inner = _trees() if is_outer else make_pipeline(_prep(), _trees())
    detector = Mahalanobis(covariance=LedoitWolf())
    clf = RejectOptionClassifier(
        inner,
        ood_detector=make_pipeline(detector) if is_outer else detector,
        rule=BoundedTPRFPR(0.8, 0.2),
        ood_label="ood",
        random_state=0,
    )
    model = make_pipeline(IDOnly(_prep(), ood_label="ood"), clf) if is_outer else clf
    plain = clone(model)
    plain.set_params(**{f"{'rejectoptionclassifier__' * is_outer}rule": None})
    plain.set_params(**{f"{'rejectoptionclassifier__' * is_outer}calibration": 0.3})
    both = pd.concat([X, _strange()]), np.append(y, ["ood"] * 40)
    model.fit(*both)
    if is_outer:
        prep, alone = model[0].transformer_, plain.fit(X, y)[0].transformer_
        assert _states(prep) == _states(alone)
        return
    prep = model.estimator_[0]
    assert _states(prep)[0] == KINDS.tolist()
    # the areas and dates of the ID samples that are not held out
    assert abs(_states(prep)[1][0] - np.nanmean(X["area"])) < 5
    assert _states(prep)[2][0] < _days(X[["sold"]]).max().item()
    same = plain.fit(*both).estimator_[0]
    assert _states(same) == _states(plain.fit(X, y).estimator_[0])


def test_detectors_use_the_preprocessing_of_the_classifier(table):
    X, y = table
    clf = RejectOptionClassifier(
        make_pipeline(_prep(), _trees()),
        ood_detector=Mahalanobis(covariance=LedoitWolf()),
        random_state=0,
    ).fit(X, y)
    Z = _prep().fit(X, y).transform(X)
    expected = Mahalanobis(covariance=LedoitWolf()).fit(Z, y).score_samples(Z)
    np.testing.assert_allclose(clf.ood_detector_.score_samples(X), expected)
    frozen = FrozenEstimator(clf.estimator_)
    new = _frame(60, 2)
    for calibration in (0.3, "same"):
        again = RejectOptionClassifier(
            frozen,
            ood_detector=FrozenEstimator(clf.ood_detector_)
            if calibration == "same"
            else Mahalanobis(covariance=LedoitWolf()),
            rule=TwoThresholds(),
            calibration=calibration,
            random_state=0,
        ).fit(*new)
        assert again.estimator_[0].transformers_ == clf.estimator_[0].transformers_
    np.testing.assert_allclose(
        -again.score_pair(X)[1], -expected
    )  # frozen: the same scores


def test_unknown_categories(table):
    """They are zeros after one-hot encoding: a shrunk covariance sees them."""
    X, y = table
    rng = np.random.default_rng(7)
    X["kind"] = rng.choice(KINDS, len(X))
    frozen = FrozenEstimator(make_pipeline(_prep(), LogisticRegression()).fit(X, y))
    shrunk = Mahalanobis(frozen, covariance=LedoitWolf()).fit(X, y)
    plain = Mahalanobis(frozen).fit(X, y)
    new = _frame(200, 3)[0].assign(kind=rng.choice(KINDS, 200))
    odd = new.assign(kind="castle")
    assert not frozen[0].transform(odd)[:, :3].any()
    assert np.mean(shrunk.predict(new) == 1) > 0.9
    assert (shrunk.predict(odd) == -1).all()
    # columns of known categories sum to 1: the pseudo-inverse leaves that
    # direction without variance out
    assert np.mean(plain.predict(odd) == -1) < 0.1


def test_ordinal_categories_and_trees(table):
    X, y = table
    encoder = OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=np.nan
    ).set_output(transform="pandas")
    prep = ColumnTransformer([("kind", encoder, ["kind"])], remainder="passthrough")
    model = make_pipeline(prep, _trees())
    X = X.drop(columns="sold")
    clf = RejectOptionClassifier(
        model, ood_detector=Energy(), rule=TwoThresholds(), random_state=0
    ).fit(X, y)
    odd = X.assign(kind="castle")
    assert np.isfinite(clf.score_pair(odd)[1]).all()
    assert set(clf.predict(odd)) <= {*clf.classes_, "reject"}


NAN = "Input X contains NaN, and features must not, whether or not Hist"


def test_missing_values(table):
    """They go through trees to logit detectors, and to forests; others raise."""
    X, y = table
    holes = make_pipeline(_prep(imputes=False), _trees())
    for detector in (Energy(), MSP(), SklearnDetector(detector=_forest())):
        clf = RejectOptionClassifier(
            holes, ood_detector=detector, rule=TwoThresholds(), random_state=0
        ).fit(X, y)
        assert np.isfinite(clf.score_pair(X)[1]).all()
    Z = clf.estimator_[0].transform(X)
    assert np.isnan(Z).sum() == 31
    expected = clf.ood_detector_.detectors_[0].score_samples(Z)
    np.testing.assert_array_equal(clf.score_pair(X)[1], expected)
    for detector in (
        Mahalanobis(),
        SklearnDetector(detector=LocalOutlierFactor(novelty=True)),
    ):
        clf.set_params(ood_detector=detector)
        with pytest.raises(ValueError, match=NAN) as error:
            clf.fit(X, y)
        assert "Impute them, as in make_pipeline(SimpleImputer(), " in str(error.value)
    imputed = make_pipeline(_prep(), _trees())
    clf.set_params(estimator=imputed, ood_detector=Mahalanobis()).fit(X, y)


def test_missing_values_without_a_classifier(table):
    Z = _prep(imputes=False).fit_transform(table[0])
    forest = SklearnDetector(detector=_forest()).fit(Z)
    expected = _forest().fit(Z).score_samples(Z)
    np.testing.assert_array_equal(forest.score_samples(Z), expected)
    np.testing.assert_array_equal(forest.score_samples(Z[:1]), expected[:1])
    with pytest.raises(ValueError, match="infinity"):
        forest.score_samples(np.where(np.isnan(Z), np.inf, Z))
    with pytest.raises(ValueError, match="Input X contains NaN, which KNN does") as e:
        KNN().fit(Z)
    assert "as in make_pipeline(SimpleImputer(), KNN()), or leave" in str(e.value)


@pytest.mark.parametrize("first", ["forest", "gauss"])
def test_missing_values_in_shared_features(table, first):
    """Members of an ensemble that share features do not get NaN from one another."""
    X, y = table
    frozen = FrozenEstimator(make_pipeline(_prep(imputes=False), _trees()).fit(X, y))
    members = {
        "forest": SklearnDetector(frozen, detector=_forest()),
        "gauss": Mahalanobis(frozen),
    }
    members = sorted(members.items(), key=lambda pair: pair[0] != first)
    with pytest.raises(ValueError, match=NAN):
        DetectorEnsemble(members, random_state=0).fit(X, y)
    members = [
        (k, SklearnDetector(frozen, detector=_forest(), per_class=k == "b"))
        for k in "ab"
    ]
    members += [("energy", Energy(frozen)), ("msp", MSP(frozen))]
    ensemble = DSDE(members, random_state=0).fit(X, y)
    actual = ensemble.named_detectors_["a"]
    expected = actual.detectors_[0].score_samples(frozen[0].transform(X))
    np.testing.assert_array_equal(actual.score_samples(X), expected)
    assert set(ensemble.predict(X)) <= {-1, 1}


def _allows_nan(estimator):
    return get_tags(estimator).input_tags.allow_nan


def test_tags():
    lof = LocalOutlierFactor(novelty=True)
    trees, linear = _trees(), LogisticRegression()
    assert _allows_nan(SklearnDetector())
    assert _allows_nan(SklearnDetector(trees))
    assert _allows_nan(MSP(trees))
    assert _allows_nan(RejectOptionClassifier(trees, ood_detector=Energy()))
    assert _allows_nan(RejectOptionClassifier(trees, SklearnDetector()))
    assert _allows_nan(DSDE([("a", SklearnDetector()), ("b", MSP(trees))]))
    for estimator in (
        SklearnDetector(detector=lof),
        SklearnDetector(trees, detector=lof),
        SklearnDetector(linear),
        MSP(),
        MSP(linear),
        Mahalanobis(trees),
        RejectOptionClassifier(linear),
        RejectOptionClassifier(trees, ood_detector=Mahalanobis()),
        RejectOptionClassifier(trees, lof, Energy()),
        DSDE([("a", SklearnDetector()), ("b", KNN())]),
    ):
        assert not _allows_nan(estimator), estimator


def test_categories_without_a_step(table):
    X, y = table
    X = X.drop(columns="sold").astype({"kind": "category"})
    trees = HistGradientBoostingClassifier(
        max_iter=5, categorical_features="from_dtype"
    )
    scores = Energy(trees).fit(X, y).score_samples(X)
    assert np.isfinite(scores).all()
    with pytest.raises(ValueError, match="The features of HistGradientBoosting") as e:
        Mahalanobis(trees).fit(X, y)
    assert "OneHotEncoder(handle_unknown='ignore')" in str(e.value)


@pytest.mark.parametrize(
    "estimator",
    [
        KNN(),
        MSP(_trees()),
        RejectOptionClassifier(_trees()),
        DetectorEnsemble([("a", KNN())]),
    ],
    ids=lambda e: type(e).__name__,
)
def test_text_without_an_encoder(table, estimator):
    X, y = table
    with pytest.raises(ValueError, match="could not convert string to float") as error:
        estimator.fit(X[["kind", "area"]], y)
    assert str(error.value).endswith(
        "Encode columns of text in a step before, such as "
        "OneHotEncoder(handle_unknown='ignore') in a ColumnTransformer."
    )


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_searches(library):
    X, y = _frame(60, 4)
    dates = FunctionTransformer(_days)
    if library == "polars":
        pl = pytest.importorskip("polars", minversion="1", reason="not installed")
        X = pl.DataFrame({name: X[name].to_numpy() for name in X.columns})
        dates = FunctionTransformer(lambda f: f.select(pl.all().dt.epoch("d")))
    prep = ColumnTransformer(
        [
            ("kind", OneHotEncoder(handle_unknown="ignore", sparse_output=False), [0]),
            ("area", StandardScaler(), ["area"]),
            ("sold", make_pipeline(dates, StandardScaler()), ["sold"]),
        ]
    )
    pipeline = make_pipeline(prep, LogisticRegression())
    search = GridSearchCV(
        Mahalanobis(pipeline),
        {"covariance": [None, LedoitWolf()]},
        cv=LeaveClassesOut(1),
        scoring=make_ood_scorer("auroc"),
        error_score="raise",
    ).fit(X, y)
    assert search.best_score_ > 0.5
    assert len(search.predict(X)) == 60
