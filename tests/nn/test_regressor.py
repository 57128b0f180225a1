"""Regression networks: losses, weights, inputs and state."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.linear_model import LinearRegression
from torch import nn

from skood.nn import TorchRegressor, TrainingOptions

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
y = X @ [1.0, -2.0, 0.5] + 0.3 + 0.1 * RNG.normal(size=60)
LINEAR = {"hidden": ()}


def _linear(**params):
    params = {"lr": 0.05, "max_epochs": 400, "batch_size": 60, **params}
    options = TrainingOptions(lr_schedule="cosine")
    return TorchRegressor(
        module_params=LINEAR, training=options, random_state=0, **params
    )


def test_squared_error_is_weighted_least_squares():
    weight = RNG.uniform(size=60) * (np.arange(60) % 4 > 0)
    expected = LinearRegression().fit(X, y + X[:, 0] ** 2, sample_weight=weight)
    reg = _linear().fit(X, y + X[:, 0] ** 2, sample_weight=weight)
    assert_allclose(reg.predict(X), expected.predict(X), atol=2e-4)
    # of the weights before the last step
    residuals = (y + X[:, 0] ** 2 - expected.predict(X)) ** 2
    loss = np.average(residuals, weights=weight)
    assert reg.history_[-1]["train_loss"] == pytest.approx(loss, rel=1e-4)


def test_gaussian_nll_is_the_likelihood():
    """One group of samples: the maximum is their mean and variance."""
    group = np.arange(60) % 2
    ones = np.eye(2)[group]
    reg = _linear(criterion="gaussian_nll", max_epochs=800).fit(ones, y)
    mean, std = reg.predict(np.eye(2), return_std=True)
    assert_allclose(mean, [y[group == g].mean() for g in (0, 1)], atol=1e-4)
    assert_allclose(std, [y[group == g].std() for g in (0, 1)], rtol=1e-4)
    loss = -np.mean(norm.logpdf(y, mean[group], std[group]))
    assert reg.history_[-1]["train_loss"] == pytest.approx(loss, rel=1e-5)
    assert_array_equal(reg.predict(np.eye(2)), mean)


def test_seed_partial_fit_and_state():
    params = {"max_epochs": 3, "batch_size": 16, "random_state": 3}
    reg = TorchRegressor(**params).fit(X, y)
    assert_array_equal(TorchRegressor(**params).fit(X, y).predict(X), reg.predict(X))
    loaded = pickle.loads(pickle.dumps(reg))
    assert_array_equal(loaded.predict(X), reg.predict(X))
    for one in (reg, loaded):
        one.partial_fit(X, y)
    assert reg.n_iter_ == 4
    assert_array_equal(loaded.predict(X), reg.predict(X))
    first = TorchRegressor(**params).partial_fit(X, y)
    assert first.n_iter_ == 1
    assert first.net_.optimizer_.param_groups[0]["lr"] == 1e-3
    before = reg.predict(X)
    with pytest.raises(ValueError, match="NaN"):
        reg.fit(X, np.where(y > 1, np.nan, y))
    assert_array_equal(reg.predict(X), before)


def test_early_stopping_holds_out_a_share():
    """Validation losses are of samples that are not trained on, at random."""
    options = TrainingOptions(early_stopping=True, validation_fraction=0.25)
    seen = []

    class Recorder(nn.Linear):
        def __init__(self, input_shape, n_outputs):
            super().__init__(input_shape[0], n_outputs)

        def forward(self, x):
            seen.append((self.training, len(x)))
            return super().forward(x)

    reg = TorchRegressor(Recorder, training=options, max_epochs=3, random_state=0)
    reg.fit(X, y)
    assert (True, 45) in seen
    assert (False, 15) in seen
    assert set(reg.history_[0]) == {"epoch", "train_loss", "valid_loss", "lr"}


def test_kinds_of_input():
    reg = TorchRegressor(max_epochs=3, random_state=0).fit(X, y)
    expected = reg.predict(X)
    tensors = torch.from_numpy(X), torch.from_numpy(y)
    fitted = TorchRegressor(max_epochs=3, random_state=0).fit(*tensors)
    assert_array_equal(fitted.predict(tensors[0]), expected)
    assert_array_equal(reg.predict(X[:1]), expected[:1])
    images = RNG.normal(size=(20, 1, 6, 6))
    means = images.mean(axis=(1, 2, 3))
    reg = TorchRegressor(max_epochs=2, random_state=0).fit(images, means)
    assert reg.predict(images).shape == (20,)


def test_errors():
    reg = TorchRegressor(max_epochs=1)
    with pytest.raises(ValueError, match="TorchRegressor requires y to be passed"):
        reg.fit(X, None)
    with pytest.raises(ValueError, match="too large for float32, up to 1e\\+39"):
        reg.fit(X, np.full(60, 1e39))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        reg.fit(X, y[:-1])
    with pytest.raises(ValueError, match="was trained with criterion='squared_error'"):
        reg.fit(X, y).predict(X, return_std=True)
    with pytest.raises(ValueError, match="cannot stop early"):
        reg.set_params(training__early_stopping=True).partial_fit(X, y)
    wide = TorchRegressor(lambda shape, n: nn.Linear(shape[0], 3))
    with pytest.raises(
        ValueError,
        match=r"return outputs of shape \(n_samples, n_outputs\): .*\(2, 3\)",
    ):
        wide.fit(X, y)
    with pytest.raises(TypeError, match="as module\\(input_shape, n_outputs, \\*\\*"):
        TorchRegressor(module_params={"width": 3}).fit(X, y)


def test_overflowing_variance():
    reg = TorchRegressor(criterion="gaussian_nll", max_epochs=1, random_state=0)
    reg.fit(X, y)
    far = 1e6 * X[:8]
    assert np.abs(reg._outputs(far)[:, 1]).max() > 1500
    with pytest.raises(ValueError, match=r"variance .* for \d of 8 samples"):
        reg.predict(far, return_std=True)
