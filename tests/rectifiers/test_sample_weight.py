"""Sample weights of rectifiers: integers equal repeated samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from skood.rectifiers import ASH, DICE, LTS, VRA, ReAct
from tests._loops import looped

rng = np.random.default_rng(0)
Y = np.arange(60) % 3
X = np.maximum(rng.normal(size=(60, 4)) + np.eye(3, 4)[Y], 0.0)  # ties at zero
X[5:9] = X[4]
Y[[7, 20]] = -1
WEIGHT = rng.integers(0, 4, size=60)
ROWS = np.repeat(np.arange(60), WEIGHT)
ID = Y >= 0
FROZEN = FrozenEstimator(LogisticRegression().fit(X[ID], Y[ID]))


@looped("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "rectifier",
    [
        ReAct(quantile=0.83),
        VRA(),
        VRA(low=0.3, high=0.77, per_feature=False),
        ASH(),
        LTS(LogisticRegression()),
        DICE(sparsity=0.5),
        DICE(FROZEN, sparsity=0.5),
    ],
    ids=repr,
)
def test_weighted_is_repeated(rectifier, dtype):
    Z = X.astype(dtype)
    weighted = clone(rectifier).fit(Z, Y, sample_weight=WEIGHT)
    repeated = clone(rectifier).fit(Z[ROWS], Y[ROWS])
    method = "predict_logits" if isinstance(rectifier, DICE) else "transform"
    result, expected = (getattr(one, method)(Z) for one in (weighted, repeated))
    exact = dtype == np.float64
    # logits are sums in float32, which may cancel: a few units of the largest one
    atol = 0 if exact else 8 * np.finfo(np.float32).eps * np.abs(expected).max()
    rtol = 1e-8 if exact else 1e-5
    np.testing.assert_allclose(result, expected, rtol=rtol, atol=atol)


def test_weights_change_what_is_learned():
    plain, weighted = ReAct().fit(X, Y), ReAct().fit(X, Y, sample_weight=X[:, 0] ** 4)
    assert weighted.threshold_ > plain.threshold_ + 0.1
    mean = np.average(X[ID], axis=0, weights=WEIGHT[ID])
    contributions = FROZEN.coef_ * mean
    expected = contributions > np.quantile(contributions, 0.5)
    dice = DICE(FROZEN, sparsity=0.5).fit(X, Y, sample_weight=WEIGHT)
    np.testing.assert_array_equal(dice.mask_, expected)


def test_invalid_weights():
    for rectifier in (ReAct(), ASH(), DICE(FROZEN)):
        with pytest.raises(ValueError, match=r"sample_weight has shape \(3,\)"):
            rectifier.fit(X, Y, sample_weight=[1, 1, 1])
        with pytest.raises(ValueError, match="Negative values"):
            rectifier.fit(X, Y, sample_weight=np.where(ID, -1.0, 1.0))
    with pytest.raises(ValueError, match="weights of all ID samples are zero"):
        ReAct().fit(X, Y, sample_weight=np.where(ID, 0.0, 1.0))
    with pytest.raises(ValueError, match=r"KNeighborsClassifier has no sample_weight"):
        DICE(KNeighborsClassifier()).fit(X, Y, sample_weight=np.ones(60))
