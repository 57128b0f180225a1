"""Checks over all public estimators: scikit-learn's, ours, and what both leave out."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import inspect
import io
import os
import pickle
import re
import warnings
from copy import deepcopy
from functools import cache

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
import skops.io as skops_io
import torch
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.fixes import parse_version

from skood.base import BaseDetector
from skood.detectors import KNN
from skood.exceptions import SkoodWarning
from skood.nn import LinearHead
from skood.utils.discovery import all_estimators
from skood.utils.estimator_checks import (
    check_detector,
    expected_failed_checks,
    takes_logits,
    yield_detector_checks,
)
from tests._instances import (
    detectors,
    documents,
    instances,
    instances_of,
    takes_documents,
)
from tests._loops import looped

# Warnings of scikit-learn's own estimators on the tiny data of its checks.
pytestmark = [
    pytest.mark.usefixtures("few_folds"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning"),
]

# Instances of a class after the first, with other parameters, are checked at night.
VARIANTS = "SKOOD_NIGHTLY" in os.environ

each_class = looped("cls", [cls for _, cls in all_estimators()])
each_instance = pytest.mark.parametrize(
    "estimator", instances(VARIANTS), ids=cache(repr)
)


def _public_methods(estimator):
    """Type of estimator, and public methods with their functions."""
    cls = type(estimator)
    return get_tags(estimator).estimator_type, frozenset(
        (name, inspect.getattr_static(cls, name))
        for name in dir(cls)
        if not name.startswith(("_", "set_")) and callable(getattr(cls, name, None))
    )


def _with_different_methods(estimators):
    """The first of the estimators that inherit the same methods; all at night."""
    if VARIANTS:
        return estimators
    return list({_public_methods(one): one for one in reversed(estimators)}.values())


@pytest.mark.parametrize(
    "estimator", _with_different_methods(instances(VARIANTS)), ids=cache(repr)
)
def test_scikit_learn_checks(estimator):
    """Nothing fails except checks with a reason, and these do."""
    results = check_estimator(
        estimator,
        expected_failed_checks=expected_failed_checks(estimator),
        on_skip=None,
        on_fail=None,
    )
    is_strict = parse_version(sklearn.__version__) >= parse_version("1.8")
    for result in results:
        expected = {"xfail"} if result["expected_to_fail"] else {"passed", "skipped"}
        # where the fraction of new samples is estimated, that of the training samples
        # may be the one of the check by chance
        by_chance = "new ones" in (result["expected_to_fail_reason"] or "")
        if by_chance or not is_strict:
            expected |= {"passed", "skipped"}
        if result["status"] not in expected:
            raise AssertionError(
                f"{result['check_name']}: {result['status']}"
            ) from result["exception"]


@pytest.fixture
def few_fits(monkeypatch):
    """Fits for 0.1 s for the mean of a check, in place of 0.5 s, as at night."""
    if not VARIANTS:
        monkeypatch.setattr("skood.utils.estimator_checks._SECONDS", 0.1)


@pytest.mark.usefixtures("few_fits")
@pytest.mark.parametrize("detector", detectors(VARIANTS), ids=cache(repr))
def test_detector_checks(detector):
    reasons = expected_failed_checks(detector, suite="skood")
    if not any("depends on the machine" in reason for reason in reasons.values()):
        check_detector(detector, expected_failed_checks=reasons)
        return
    for check in yield_detector_checks():
        if check.__name__ not in reasons:
            check(clone(detector))


@each_class
def test_every_class_has_an_instance(cls):
    instances = instances_of(cls.__name__, cls)
    assert instances, f"{cls.__name__} has no INSTANCES in its test file"
    assert all(type(one) is cls for one in instances)


def test_expected_failures_are_explained():
    for estimator in [*instances(), *detectors()]:
        for suite in ("scikit-learn", "skood"):
            for reason in expected_failed_checks(estimator, suite=suite).values():
                assert len(reason.split()) >= 6, reason
                assert reason.endswith("."), reason
    with pytest.raises(ValueError, match=r"suite must be .*, got 'pytest'"):
        expected_failed_checks(KNN(), suite="pytest")
    assert expected_failed_checks(LinearHead(), suite="skood") == {}


# ---------------------------------------------------------------------------------
# What the checks leave out, on data that fit every estimator.


def _data(estimator, dtype=np.float64):
    """Three classes around the unit vectors: features as well as logits."""
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = rng.normal(size=(90, 3)) + 4 * np.eye(3)[y]
    if get_tags(estimator).input_tags.positive_only:
        X = np.abs(X)
    if takes_documents(estimator):
        return documents(X), y
    return X.astype(dtype), y


def _skip_documents(estimator):
    if takes_documents(estimator):
        pytest.skip("its samples are strings")


def _fit(estimator, X, y):
    return clone(estimator).fit(X, y)


def _response(estimator, X):
    """The numbers that an estimator is there for."""
    if isinstance(estimator, Pipeline) and hasattr(estimator[-1], "update"):
        estimator, X = estimator[-1], estimator[:-1].transform(X)
    if hasattr(estimator, "update"):
        return deepcopy(estimator).update(X)  # a monitor remembers its samples
    if isinstance(estimator, BaseDetector):
        return estimator.score_samples(X)
    if is_classifier(estimator):
        return estimator.predict_proba(X)
    if is_regressor(estimator):
        return estimator.predict(X)
    return estimator.transform(X)


def _seeded(estimator):
    """The estimator itself, or a clone whose `random_state` makes it repeatable."""
    unseeded = {
        name: 0
        for name, value in estimator.get_params().items()
        if name.split("__")[-1] == "random_state" and value is None
    }
    return clone(estimator).set_params(**unseeded)


@cache
def _fitted(estimator):
    """A seeded clone, fitted on all data; shared by tests, none of which changes it."""
    return _fit(_seeded(estimator), *_data(estimator))


@each_instance
def test_clone_is_unfitted_and_equal(estimator):
    X, y = _data(estimator)
    fitted = _fitted(estimator)
    copy = clone(fitted)
    assert repr(copy.get_params()) == repr(fitted.get_params())
    if type(estimator).__name__ != "LinearHead" or estimator.coef is None:
        with pytest.raises(NotFittedError):
            _response(copy, X)
    np.testing.assert_array_equal(
        _response(copy.fit(X, y), X), _response(fitted, X), strict=True
    )


@each_instance
def test_serialization(estimator):
    X, _ = _data(estimator)
    fitted = _fitted(estimator)
    file = io.BytesIO()
    joblib.dump(fitted, file)
    file.seek(0)
    copies = [pickle.loads(pickle.dumps(fitted)), joblib.load(file), deepcopy(fitted)]
    data = skops_io.dumps(fitted)
    trusted = skops_io.get_untrusted_types(data=data)
    copies.append(skops_io.loads(data, trusted=trusted))
    expected = _response(fitted, X)
    for loaded in copies:
        assert set(vars(loaded)) == set(vars(fitted))
        np.testing.assert_array_equal(_response(loaded, X), expected)


@each_instance
def test_modes_of_torch(estimator):
    """In a mode of the caller without gradients, networks are trained all the same."""
    X, y = _data(estimator)
    expected = _response(_fitted(estimator), X)
    estimator = _seeded(estimator)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            fitted = _fit(estimator, X, y)
            loaded = pickle.loads(pickle.dumps(fitted))
            np.testing.assert_array_equal(_response(fitted, X), expected)
        np.testing.assert_array_equal(_response(fitted, X), expected)
        np.testing.assert_array_equal(_response(loaded, X), expected)


@each_instance
def test_string_labels(estimator):
    if is_regressor(estimator):
        pytest.skip("its targets are numbers")
    X, y = _data(estimator)
    names = np.array(["ant", "bee", "cat"])
    fitted = _fit(_seeded(estimator), X, names[y])
    expected = _fitted(estimator)
    np.testing.assert_allclose(
        _response(fitted, X), _response(expected, X), rtol=1e-12, atol=1e-12
    )
    if is_classifier(estimator):
        np.testing.assert_array_equal(fitted.predict(X), names[expected.predict(X)])
    if hasattr(fitted, "classes_"):
        np.testing.assert_array_equal(fitted.classes_, names)


@each_instance
def test_data_frame_equals_array(estimator):
    _skip_documents(estimator)
    X, y = _data(estimator)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", SkoodWarning)
        fitted = _fit(_seeded(estimator), frame, pd.Series(y))
        response = _response(fitted, frame)
    np.testing.assert_array_equal(response, _response(_fitted(estimator), X))
    assert list(fitted.feature_names_in_) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names should match"):
        _response(fitted, frame[["b", "a", "c"]])


@each_instance
def test_float32_is_close_to_float64(estimator):
    """float32 rows give the same up to rounding; so does fitting on them.

    A linear head is fitted by an iteration that stops earlier in float32, hence the
    wider tolerance there.
    """
    _skip_documents(estimator)
    if hasattr(estimator, "update"):
        pytest.skip("it ranks scores: of equal samples, which rounding does not tie")
    X, y = _data(estimator, np.float32)
    estimator = _seeded(estimator)
    double = _fit(estimator, X.astype(np.float64), y)
    expected = _response(double, X.astype(np.float64))
    spread = np.std(expected)
    np.testing.assert_allclose(_response(double, X), expected, atol=1e-5 * spread)
    single = _response(_fit(estimator, X, y), X)
    iterative = "estimator_" in vars(double) or not isinstance(double, BaseDetector)
    tolerance = (3e-2 if iterative else 1e-5) * spread
    np.testing.assert_allclose(single, expected, atol=tolerance)


@each_instance
def test_last_step_of_a_pipeline(estimator):
    _skip_documents(estimator)
    X, y = _data(estimator)
    estimator = _seeded(estimator)
    scaled = MaxAbsScaler().fit_transform(X)
    pipeline = make_pipeline(MaxAbsScaler(), estimator).fit(X, y)
    np.testing.assert_array_equal(
        _response(pipeline, X)
        if not isinstance(estimator, BaseDetector)
        else pipeline.score_samples(X),
        _response(_fit(estimator, scaled, y), scaled),
    )
    if isinstance(estimator, BaseDetector):
        labels = np.where(y == 2, -1, y)
        if takes_logits(estimator):
            with pytest.raises(ValueError, match="one per class"):
                pipeline.fit(X, labels)  # three logits, two classes
            return
        pipeline.fit(X, labels)  # the scaler sees all rows, the detector ID rows
        assert 0.0 <= pipeline.score(X, labels) <= 1.0


# ---------------------------------------------------------------------------------
# Documentation and declarations.


def _sections(doc):
    """Sections of a numpydoc docstring: title -> text."""
    parts = re.split(r"^(\S.*)\n-{3,}$", inspect.cleandoc(doc), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@each_class
def test_docstring_sections(cls):
    sections = _sections(cls.__doc__)
    assert {"Parameters", "Attributes", "Examples"} <= set(sections)
    assert {"References", "See Also"} & set(sections)
    assert ">>> " in sections["Examples"]


@each_class
def test_parameters_are_documented_in_order_with_their_defaults(cls):
    entries = re.findall(
        r"^(\w[\w, ]*) : (.+(?:\n(?!    |\n).+)*)$",
        _sections(cls.__doc__)["Parameters"],
        flags=re.MULTILINE,
    )
    documented = {name: kind for names, kind in entries for name in names.split(", ")}
    parameters = inspect.signature(cls).parameters
    assert list(documented) == list(parameters)
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty:
            assert "default" not in documented[name], name
            continue
        match = re.search(r"default=(.+)$", documented[name].replace("\n", " "))
        assert match, f"{name}: no default in {documented[name]!r}"
        value = _value(match[1])
        assert value is parameter.default or value == parameter.default, name


def _value(text):
    """Value of a default as it is written in a docstring."""
    try:
        return eval(text, {"__builtins__": {}, "np": np})
    except (NameError, SyntaxError):
        return text


@each_class
def test_constraints_cover_the_parameters(cls):
    assert set(cls._parameter_constraints) == set(inspect.signature(cls).parameters)


@pytest.mark.parametrize(
    "cls", [pytest.param(cls, id=name) for name, cls in all_estimators()]
)
def test_fitted_attributes_are_documented(cls):
    documented = set()
    for names in re.findall(
        r"^(\w[\w, ]*)(?: :|$)", _sections(cls.__doc__)["Attributes"], re.MULTILINE
    ):
        documented.update(names.split(", "))
    common = {"n_features_in_", "feature_names_in_"}
    for estimator in instances_of(cls.__name__, cls):
        fitted = {
            name
            for name in vars(_fitted(estimator))
            if name.endswith("_") and not name.startswith("_")
        }
        assert fitted - common <= documented
