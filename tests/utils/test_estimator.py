"""What all estimators of skood share: the stamp of their pickles."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import inspect
import io
import pickle
import re
import warnings
from html import escape

import joblib
import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import skood
from skood.base import BaseDetector, UncertaintyDetector
from skood.combine import BaseCombiner, DetectorEnsemble
from skood.detectors import KNN, MSP, ViM
from skood.epistemic import QUAM, DeepEnsemble
from skood.exceptions import SkoodWarning
from skood.logic import ConstraintSearch, MLNDetector
from skood.model_selection import IDOnly
from skood.monitor import ExchangeabilityMonitor
from skood.nn import FeatureExtractor, LinearHead, TorchClassifier
from skood.rejection import BaseRule, RejectOptionClassifier
from skood.selection import NoveltySelector
from skood.utils._estimator import SkoodEstimator
from skood.utils.discovery import all_estimators
from tests._loops import looped

X = np.random.default_rng(0).normal(size=(90, 3))
y = np.arange(90) % 3


@looped("cls", [cls for _, cls in all_estimators()])
def test_every_estimator_is_stamped(cls):
    """The base is there, and no class in between leaves its methods out."""
    assert cls.__mro__.index(SkoodEstimator) < cls.__mro__.index(BaseEstimator)
    stamped = object.__new__(cls)
    stamped.some_ = 1
    state = stamped.__getstate__()
    assert state["_skood_version"] == skood.__version__
    assert vars(stamped) == {"some_": 1}
    assert inspect.signature(cls.citation) == inspect.signature(KNN.citation)


@pytest.mark.parametrize("cls", [BaseDetector, BaseCombiner, BaseRule])
def test_subclasses_of_the_user_are_stamped(cls):
    assert issubclass(cls, SkoodEstimator)


@pytest.mark.parametrize(
    "estimator",
    [
        KNN(),
        make_pipeline(StandardScaler(), MSP(LogisticRegression())),
        TorchClassifier(max_epochs=1),
    ],
    ids=["KNN", "pipeline", "TorchClassifier"],
)
def test_same_version_is_quiet_and_leaves_nothing(estimator):
    fitted = clone(estimator).fit(X, y)
    file = io.BytesIO()
    joblib.dump(fitted, file)
    file.seek(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SkoodWarning)
        for again in (
            pickle.loads(pickle.dumps(fitted)),
            joblib.load(file),
            copy.deepcopy(fitted),
            copy.copy(fitted),
        ):
            assert set(vars(again)) == set(vars(fitted))
            assert "_skood_version" not in vars(clone(again))


@pytest.mark.parametrize("other", ["0.0.7", "0.2.0.dev0", "1.1.0"])
def test_other_minor_version_warns(other, monkeypatch):
    here = skood.__version__
    with monkeypatch.context() as patch:
        patch.setattr(skood, "__version__", other)
        data = pickle.dumps(make_pipeline(StandardScaler(), KNN()).fit(X, y))
    message = (
        f"An estimator that skood {other} pickled is loaded by skood {here}: its "
        f"fitted attributes may have another meaning. Load it with skood {other}, fit "
        "it again, or compare predictions of some samples."
    )
    with pytest.warns(SkoodWarning, match=f"^{re.escape(message)}$") as caught:
        loaded = pickle.loads(data)
    assert [one.filename for one in caught] == [__file__]
    assert "_skood_version" not in vars(loaded[-1])
    np.testing.assert_array_equal(loaded.predict(X), loaded.fit(X, y).predict(X))


def test_other_patch_version_is_quiet(monkeypatch):
    data = pickle.dumps(KNN().fit(X))
    monkeypatch.setattr(skood, "__version__", "0.1.99")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pickle.loads(data)


def test_state_without_a_stamp_is_taken():
    fitted = KNN().fit(X)
    again = KNN()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again.__setstate__(vars(fitted))
    np.testing.assert_array_equal(again.score_samples(X), fitted.score_samples(X))


def test_state_that_is_set_is_not_changed():
    state = KNN().__getstate__()
    KNN().__setstate__(state)
    assert state["_skood_version"] == skood.__version__


def test_skops_keeps_the_stamp(monkeypatch):
    skops_io = pytest.importorskip("skops.io")
    with monkeypatch.context() as patch:
        patch.setattr(skood, "__version__", "0.0.7")
        data = skops_io.dumps(KNN().fit(X))
    trusted = skops_io.get_untrusted_types(data=data)
    with pytest.warns(SkoodWarning, match=r"skood 0\.0\.7 pickled") as caught:
        skops_io.loads(data, trusted=trusted)
    assert [one.filename for one in caught] == [__file__]


def test_weights_are_not_printed():
    head = LinearHead(np.ones((10, 512)), np.zeros(10))
    text = repr(ViM(head, contamination=0.125))
    assert len(text) < 250
    assert "coef=array([[1., ..., 1.]," in text
    assert "contamination=0.125" in text
    # nested estimators are laid out in lines, as scikit-learn does it
    nested = KNN(LogisticRegression(C=0.5, max_iter=250), max_samples=0.25)
    lines = repr(make_pipeline(StandardScaler(), nested)).splitlines()
    assert len(lines) > 1
    assert max(len(line) for line in lines) <= 80


@pytest.mark.parametrize(
    ("estimator", "name", "before", "after"),
    [
        (MLNDetector([], [], fusion="product"), "fusion__gamma", "product", "product"),
        (
            ConstraintSearch(KNN(), search="gain"),
            "search__min_improvement",
            "gain",
            "gain",
        ),
        (RejectOptionClassifier(None, solver="grid"), "solver__tol", "grid", "grid"),
        (RejectOptionClassifier(None), "guarantee__delta", None, "high_probability"),
        (QUAM(None), "search__n_steps", None, None),
    ],
)
def test_nested_names_of_parts_that_are_none_or_text(estimator, name, before, after):
    part, option = name.split("__")
    assert getattr(estimator, part) == before
    estimator.set_params(**{name: 0.25})
    found = getattr(estimator, part).get_params()
    assert found[option] == 0.25
    assert after is None or after in found.values()


def _same(X):
    return X


def _pipeline(*final):
    """Return a pipeline that scikit-learn draws only if it is fitted."""
    named = FunctionTransformer(_same, feature_names_out="one-to-one")
    columns = make_pipeline(StandardScaler(), named)
    columns = ColumnTransformer([("scaled", columns, ["x0", "x1", "x2"])])
    return make_pipeline(columns, *final)


_HEAD = _pipeline(LogisticRegression())
_ENSEMBLE = DeepEnsemble(_HEAD, n_members=2)


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
@pytest.mark.parametrize(
    "estimator",
    [
        MSP(_HEAD),
        KNN(_HEAD),
        ViM(_HEAD),
        _ENSEMBLE,
        DeepEnsemble(_pipeline(LinearRegression()), n_members=2),
        UncertaintyDetector(_ENSEMBLE),
        IDOnly(_pipeline()),
        FeatureExtractor(_HEAD),
        ExchangeabilityMonitor(MSP(_HEAD)),
        DetectorEnsemble([("msp", MSP()), ("knn", KNN())], estimator=_HEAD),
        NoveltySelector([("msp", MSP()), ("knn", KNN())], estimator=_HEAD),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_fitted_estimator_is_drawn_with_fitted_parts(estimator):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["x0", "x1", "x2"])
    fitted = clone(estimator).fit(frame, y)
    html = fitted._repr_html_()
    names = "estimator", "detector", "transformer"
    (name,) = (name for name in names if hasattr(fitted, name))
    part = getattr(fitted, f"{name}_")
    assert f"{name}: {type(part).__name__}" in html
    vars(fitted)[f"{name}_"] = clone(part)  # not fitted, so that text stands for it
    html = fitted._repr_html_()
    assert f"{name}: {type(part).__name__}" not in html
    assert escape(str(clone(part)).split("(")[0]) in html
    assert clone(estimator)._repr_html_()  # the parameters
