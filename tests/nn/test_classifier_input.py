"""Tests of what `TorchClassifier` accepts, and of its errors."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError
from torch import nn

from tests._loops import looped

# --- input -------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["float32", "float64", "gradient", "fortran", "list"])
def test_kinds_of_input(kind, iris, quick):
    X, y = iris[0].astype(np.float32), iris[1]
    expected = clone(quick).fit(X, y).predict_logits(X)
    given = {
        "float32": lambda: torch.tensor(X),
        "float64": lambda: torch.tensor(X, dtype=torch.float64),
        "gradient": lambda: torch.tensor(X, requires_grad=True),
        "fortran": lambda: np.asfortranarray(X),
        "list": lambda: X.tolist(),
    }[kind]()
    labels = torch.tensor(y) if torch.is_tensor(given) else y
    clf = quick.fit(given, labels)
    assert clf.n_features_in_ == 4
    logits = clf.predict_logits(given)
    assert isinstance(logits, np.ndarray)
    assert_allclose(logits, expected, rtol=1e-5, atol=1e-6)


def test_tensors_and_arrays_of_images(digits, quick):
    X, y = digits[0][:100].reshape(-1, 1, 8, 8), digits[1][:100]
    logits = clone(quick).fit(X, y).predict_logits(X)
    clf = quick.fit(torch.tensor(X), y)
    assert_array_equal(clf.predict_logits(torch.tensor(X)), logits)
    assert_array_equal(clf.predict_logits(X), logits)


def test_pandas(iris, quick):
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(iris[0], columns=list("abcd"))
    y = pd.Series(iris[1]).map({0: "x", 1: "y", 2: "z"})
    clf = quick.fit(X, y)
    assert_array_equal(clf.feature_names_in_, list("abcd"))
    assert_array_equal(clf.classes_, ["x", "y", "z"])
    assert clf.predict(X).shape == (150,)
    with pytest.raises(ValueError, match="feature names should match"):
        clf.predict(X[list("dcba")])
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        clf.predict(torch.tensor(iris[0]))


def test_prepare_input(iris, quick):
    with pytest.raises(NotFittedError):
        quick._prepare_input(iris[0])
    quick.fit(*iris)
    X = quick._prepare_input(iris[0])
    assert X.dtype == np.float32
    assert_allclose(X, iris[0], rtol=1e-6)
    tensor = torch.tensor(X)
    assert quick._prepare_input(tensor).data_ptr() == tensor.data_ptr()


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_wrong_shapes(kind, iris, digits, quick):
    images = digits[0][:50].reshape(-1, 1, 8, 8)
    clf = clone(quick).fit(images, digits[1][:50])
    with pytest.raises(
        ValueError,
        match=r"X has samples of shape \(1, 8, 4\), but TorchClassifier was fitted on "
        r"samples of shape \(1, 8, 8\)",
    ):
        clf.predict(kind(images[..., :4]))
    with pytest.raises(ValueError, match=r"shape \(64,\), but .* shape \(1, 8, 8\)"):
        clf.predict(kind(digits[0]))
    clf = quick.fit(*iris)
    with pytest.raises(ValueError, match=r"shape \(2, 2\), but .* of shape \(4,\)"):
        clf.predict(kind(iris[0].reshape(-1, 2, 2)))
    with pytest.raises(
        ValueError, match="X has 3 features, but TorchClassifier is exp"
    ):
        clf.predict(kind(iris[0][:, :3]))
    with pytest.raises(ValueError, match=r"1D array|got a tensor of shape \(4,\)"):
        clf.predict(kind(iris[0][0]))


@looped("kind", [np.asarray, torch.as_tensor])
@looped("value", [np.nan, np.inf, 1e300])
@looped("shape", [(150, 4), (150, 1, 2, 2)])
def test_values_that_are_not_finite(kind, value, shape, iris, quick):
    X = iris[0].reshape(shape)
    bad = X.copy()
    bad.flat[-1] = value
    with pytest.raises(ValueError, match="Input X contains"):
        quick.fit(kind(bad), iris[1])
    quick.fit(kind(X), iris[1])
    with pytest.raises(ValueError, match="Input X contains"):
        quick.predict(kind(bad))


def test_labels(iris, quick):
    X, y = iris
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        quick.fit(X, y[:, None])
    for bad, match in [
        (None, "requires y to be passed"),
        (X[:, 0], "Unknown label type: continuous"),
        (y[:-1], "inconsistent numbers of samples"),
        (np.zeros(150), r"at least two classes .* got 1 class: 0\.0"),
        (np.full(150, "a", dtype=object), r"got 1 class: 'a'"),
    ]:
        with pytest.raises(ValueError, match=match):
            quick.fit(X, bad)


def test_single_class_with_weight(iris, quick):
    with pytest.raises(ValueError, match="two classes with a weight above zero"):
        quick.fit(*iris, sample_weight=iris[1] == 2)


@pytest.mark.parametrize(
    "params, error, match",
    [
        ({"module": nn.Linear(4, 3)}, TypeError, r"skood\.nn\.pretrained\(module"),
        ({"module": nn.Identity}, ValueError, r"\(2, 3\), got \(2, 4\)"),
        ({"module_params": {"width": 3}}, TypeError, "module_params={'width': 3}"),
        ({"module": "mlp"}, ValueError, "'module' parameter of TorchClassifier must"),
        ({"lr": 0}, ValueError, "'lr' parameter of TorchClassifier must be"),
        ({"training": {"tol": 1}}, ValueError, "'training' parameter of TorchClass"),
        ({"training__optimizer": "lbfgs"}, ValueError, "'optimizer' parameter of Tra"),
        ({"device": "gpu"}, ValueError, "Unknown device 'gpu'"),
        ({"class_weight": {7: 1.0}}, ValueError, "are not in class_weight"),
    ],
)
def test_parameter_errors(params, error, match, iris, quick):
    quick.set_params(**params)
    with pytest.raises(error, match=match):
        quick.fit(*iris)
    assert not [name for name in vars(quick) if name.endswith("_")]
