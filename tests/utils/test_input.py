"""Tests of what happens to samples before they reach an estimator."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from skood.detectors import KNN, MSP, Mahalanobis, ViM
from skood.epistemic import Laplace
from skood.nn import TorchClassifier
from skood.rectifiers import DICE, ReAct
from skood.rejection import RejectOptionClassifier
from skood.utils._input import (
    check_input,
    is_as_fitted,
    is_float_matrix,
    named_errors,
    new_samples,
    takes_input,
)
from tests._loops import looped

RNG = np.random.default_rng(0)
Y = np.arange(60) % 3
X = RNG.normal(size=(60, 3)) + 4 * np.eye(3)[Y]

ESTIMATORS = [
    KNN(n_neighbors=3),
    MSP(LogisticRegression()),
    ViM(LogisticRegression()),
    Mahalanobis(MLPClassifier((4,), solver="lbfgs", random_state=0)),
    Laplace(LogisticRegression(), random_state=0),
    RejectOptionClassifier(LogisticRegression()),
    TorchClassifier(max_epochs=2, random_state=0),
    ReAct(),
    DICE(),
]
each = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)


def results(estimator, rows):
    for name in ("score_samples", "predict_proba", "transform"):
        if hasattr(estimator, name):
            return getattr(estimator, name)(rows)
    raise AssertionError(estimator)


@each
def test_tensors_with_gradients_are_detached(estimator):
    with_grad = torch.tensor(X, requires_grad=True)
    expected = results(estimator.fit(X, Y), X)
    fitted = estimator.fit(with_grad * 1.0, torch.tensor(Y))
    np.testing.assert_allclose(results(fitted, with_grad), expected, rtol=1e-4)
    assert with_grad.grad is None
    assert with_grad.requires_grad


@each
def test_bfloat16_is_read_as_float32(estimator):
    rounded = torch.tensor(X).bfloat16()
    expected = results(estimator.fit(rounded.float().numpy(), Y), X)
    fitted = estimator.fit(rounded, Y)
    np.testing.assert_allclose(results(fitted, X), expected, rtol=1e-4)
    few = list(torch.tensor(X[:4]).bfloat16())
    assert len(results(fitted, few)) == 4


@each
@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (lambda: torch.empty(60, 3, device="meta"), ValueError, "meta device"),
        (lambda: torch.tensor(X).to_sparse(), TypeError, "sparse|dense"),
        (lambda: torch.tensor(X).to_sparse_csr(), TypeError, "sparse|dense"),
    ],
)
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
def test_tensors_that_cannot_be_read(estimator, make, kind, text):
    with pytest.raises(kind, match=text):
        estimator.fit(make(), Y)
    estimator.fit(X, Y)
    with pytest.raises(kind, match=text):
        results(estimator, make())


@each
def test_repeated_column_names(estimator):
    frame = pd.DataFrame(X, columns=["a", "b", "a"])
    with pytest.raises(ValueError, match=r"must differ in name; repeated: \['a'\]"):
        estimator.fit(frame, Y)
    with pytest.raises(ValueError, match=r"must differ in name; repeated: \['a'\]"):
        results(estimator.fit(X, Y), frame)


@pytest.mark.parametrize(
    "rows",
    [
        np.zeros((2, 3), dtype="datetime64[s]"),
        [[None, 1.0, 2.0]],
        np.array([[10**400, 1, 2]], dtype=object),
    ],
    ids=["dates", "None", "huge integer"],
)
@pytest.mark.parametrize("estimator", ESTIMATORS[1:6:4], ids=["MSP", "Reject"])
def test_what_is_no_number(estimator, rows):
    """scikit-learn's linear models multiply such objects, or pass them to NumPy."""
    with pytest.raises(
        (TypeError, ValueError), match=r"must hold numbers|NaN|array of numbers"
    ):
        results(estimator.fit(X, Y), rows)


def test_pipelines_may_take_dates():
    days = X.astype("datetime64[D]")
    pipeline = make_pipeline(
        FunctionTransformer(lambda d: d.astype(float)), LogisticRegression()
    )
    scores = MSP(pipeline).fit(days, Y).score_samples(days)
    expected = MSP(pipeline).fit(days.astype(float), Y).score_samples(days)
    np.testing.assert_allclose(scores, expected)


def test_arrays_pass_unchanged():
    for rows in (X, X.tolist(), pd.DataFrame(X), "text", None):
        assert check_input(rows) is rows


def test_errors_about_numbers_stay_as_they_are():
    def method(self, X):
        raise self

    for raised in (ValueError("of skood"), TypeError("of a user"), KeyError("x")):
        with pytest.raises(type(raised)) as info:
            takes_input(method)(raised, X)
        assert info.value is raised


def test_the_estimator_is_named_where_its_library_fails():
    with pytest.raises(ValueError, match=r"The fit of LogisticRegression failed"):
        with named_errors(LogisticRegression()):
            np.zeros(4).reshape(3)


def test_nan_for_features_of_a_classifier_that_takes_nan():
    boosting = HistGradientBoostingClassifier(max_iter=3)
    broken = X.copy()
    broken[0, 0] = np.nan
    assert np.isfinite(MSP(boosting).fit(broken, Y).score_samples(broken)).all()
    with pytest.raises(ValueError, match="contains NaN, and features must not") as info:
        KNN(boosting, n_neighbors=3).fit(broken, Y)
    assert "SimpleImputer(), HistGradientBoostingClassifier())" in str(info.value)
    assert "consider using" not in str(info.value)
    assert "you might want to consider" not in str(info.value)


def test_list_of_tensors_is_an_array():
    few = check_input(list(torch.tensor(X[:4])))
    assert type(few) is np.ndarray
    np.testing.assert_array_equal(few, X[:4])
    ragged = check_input([torch.ones(2), torch.ones(3)])
    assert [one.shape for one in ragged] == [(2,), (3,)]
    # the text of scikit-learn's error holds the samples: an array is abbreviated
    many = list(torch.ones(40, 3000, dtype=torch.complex64))
    with pytest.raises(ValueError, match="Complex data not supported") as raised:
        KNN(n_neighbors=3).fit(many, Y[:40])
    assert len(str(raised.value)) < 1000


def test_notes_of_an_error_are_preserved():
    huge = np.array([[10**400, 1]], dtype=object)

    def method(self, X):
        try:
            check_array(X)
        except OverflowError as error:
            error.add_note("This happened in fitting 'a'.")
            raise

    with pytest.raises(ValueError, match="cannot be converted") as raised:
        takes_input(method)(None, huge)
    assert raised.value.__notes__ == ["This happened in fitting 'a'."]


# --- new samples -----------------------------------------------------------------

HUGE = np.full((2, 3), np.finfo(np.float32).max, dtype=np.float32)
NEW_SAMPLES = [
    X,
    X[:1],
    X[:0],
    X[:, :2],
    X[:, :0],
    X[0],
    X[None],
    X.astype(np.float32),
    np.asfortranarray(X),
    X[::2, ::-1],
    X.astype(np.float16),
    X.astype(int),
    X.astype(object),
    X.astype(">f4"),
    X.astype(complex),
    X > 0,
    np.where(X > 2, np.nan, X),
    np.where(X > 2, np.inf, X),
    np.array([[np.inf, -np.inf, 0.0]]),
    HUGE,  # the sum overflows
    X.tolist(),
    np.ma.masked_array(X, X > 0),
    pd.DataFrame(X),
    pd.DataFrame(X, columns=list("abc")),
    X.view(type("Subclass", (np.ndarray,), {})),
]


@looped("fitted_on", [X, pd.DataFrame(X, columns=list("abc"))])
@looped("rows", NEW_SAMPLES)
def test_new_samples_are_validated_as_by_scikit_learn(fitted_on, rows):
    def result(function):
        with warnings.catch_warnings(record=True) as actual:
            warnings.simplefilter("always")
            try:
                array = function()
            except (TypeError, ValueError) as error:
                return type(error), str(error)
        return array, [str(warning.message) for warning in actual]

    model = LogisticRegression().fit(fitted_on, Y)
    floats = [np.float64, np.float32]
    expected, why = result(
        lambda: validate_data(model, rows, dtype=floats, reset=False)
    )
    actual, found_why = result(lambda: new_samples(model, rows))
    assert found_why == why
    if isinstance(expected, type):
        assert actual is expected
    else:
        assert type(actual) is type(expected)
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)
        assert (actual is rows) == (expected is rows)
    if is_as_fitted(model, rows):
        assert expected is rows
        assert why == []


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (1, 30_000), (30_000, 1), (3000, 70)])
def test_nan_and_infinity_in_any_layout(shape, dtype):
    X = np.random.default_rng(0).normal(size=shape).astype(dtype)
    layouts = (np.copy, lambda X: X.copy("F"), lambda X: X.repeat(2, 1)[::-1, ::2])
    for layout in layouts:
        assert is_float_matrix(layout(X))
        for value in (np.nan, np.inf, -np.inf):
            for index in ((0, 0), (-1, -1)):
                wrong = layout(X)
                wrong[index] = value
                assert not is_float_matrix(wrong)
    assert not is_float_matrix(np.float16(X)) and not is_float_matrix(X[:0])
