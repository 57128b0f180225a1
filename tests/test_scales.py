"""Samples of scales from denormal to the largest float: finite, or a clear error."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from skood.detectors import GMM, KNN, NECO, SSD, Mahalanobis, OpenMax, Residual, ViM
from skood.epistemic import HMC, HMCKernel, Laplace
from skood.nn import LinearHead
from skood.rectifiers import ASH, DICE, SCALE
from skood.utils._linalg import precision_cholesky, symmetric_eigh
from tests._loops import looped

RNG = np.random.default_rng(0)
Y = np.arange(60) % 3
X = np.abs(RNG.normal(size=(60, 3)) + 4 * np.eye(3)[Y])
SCALES = [1e-310, 1e-300, 1e-160, 1e-40, 1e40, 1e154, 1e160, 1e300, 4e306, 2e307]


def finite_or_clear(function):
    """Whether there is a result, which then is finite; else an error about scales."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            values = function()
        except ValueError as error:
            frame = error.__traceback__
            while frame.tb_next is not None:
                frame = frame.tb_next
            module = frame.tb_frame.f_globals["__name__"]
            assert module.startswith(("skood", "sklearn")), (module, error)
            assert len(str(error)) > 40
            return False
    assert np.isfinite(values).all()
    return True


@looped("scale", SCALES)
@pytest.mark.parametrize(
    "detector",
    [
        GMM(),
        GMM(n_components=2, random_state=0),
        KNN(n_neighbors=3, normalize=False),
        Mahalanobis(),
        NECO(n_components=1),
        OpenMax(tail_size=5),
        Residual(n_components=1),
        SSD(),
        ViM(LogisticRegression(), n_components=1),
    ],
    ids=repr,
)
def test_detectors(detector, scale):
    finite_or_clear(lambda: clone(detector).fit(X * scale, Y).score_samples(X * scale))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = clone(detector).fit(X, Y)
    finite_or_clear(lambda: fitted.score_samples(X * scale))


@looped("scale", SCALES)
@pytest.mark.parametrize(
    "classifier",
    [
        Laplace(LogisticRegression(), setting="a", random_state=0),
        HMC(
            LogisticRegression(),
            n_samples=4,
            kernel=HMCKernel(n_leapfrog=2, n_warmup=5),
        ),
        LinearHead(),
        DICE(LogisticRegression(), sparsity=0.0),
    ],
    ids=lambda e: type(e).__name__,
)
def test_classifiers(classifier, scale):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = clone(classifier).fit(X, Y)
    actual = finite_or_clear(lambda: fitted.predict_proba(X * scale))
    if scale < 1e100:
        assert actual


@pytest.mark.parametrize("rectifier", [ASH(), ASH(variant="b"), SCALE()], ids=repr)
@looped("scale", SCALES)
def test_rectifiers(rectifier, scale):
    fitted = clone(rectifier).fit(X)
    rows = X * scale / X.max() if scale == 2e307 else X * scale
    if scale == 2e307:
        rows = rows * 8  # up to 1.6e308
    finite_or_clear(lambda: fitted.transform(rows))


def test_matrices_that_overflow():
    for value in (np.nan, np.inf):
        matrix = np.diag([1.0, value])
        for function in (symmetric_eigh, precision_cholesky):
            with pytest.raises(ValueError, match="covariance matrix overflows float64"):
                function(matrix)
