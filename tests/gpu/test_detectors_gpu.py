"""Detectors on CUDA: the scores of the CPU, for arrays and for tensors on the GPU."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.base import clone

from skood.detectors._common._base_output_detector import OutputDetector
from skood.exceptions import SkoodWarning
from tests._instances import instances
from tests._loops import looped

pytestmark = pytest.mark.gpu


def _data():
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    return rng.normal(size=(300, 3)) + 4 * np.eye(3)[y], y


def _with_device():
    return [
        instance
        for instance in instances()
        if "device" in instance.get_params(deep=False)
    ]


def _fit(detector, X, y, device):
    """Fit a clone on a device; some have a random state."""
    parameters = {"device": device}
    if "random_state" in detector.get_params():
        parameters["random_state"] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkoodWarning)
        return clone(detector).set_params(**parameters).fit(X, y)


def _detectors():
    return [item for item in _with_device() if hasattr(type(item), "score_samples")]


@pytest.mark.parametrize("detector", _detectors(), ids=repr)
def test_cuda_scores_equal_those_of_the_cpu(detector):
    X, y = _data()
    expected = _fit(detector, X, y, "cpu")
    fitted = _fit(detector, X, y, "cuda")
    wanted = expected.score_samples(X)
    # scikit-learn's classifiers compute on the CPU in float64, networks in float32
    atol = 1e-9 * max(1.0, np.abs(wanted).max())
    assert_allclose(fitted.score_samples(X), wanted, rtol=0, atol=atol)
    assert_allclose(fitted.offset_, expected.offset_, rtol=0, atol=atol)
    # fitted on one, scored on the other
    moved = expected.set_params(device="cuda").score_samples(X)
    assert_allclose(moved, wanted, rtol=0, atol=atol)


@pytest.mark.parametrize(
    "detector", [d for d in _detectors() if isinstance(d, OutputDetector)], ids=repr
)
@looped("dtype", [torch.float32, torch.float64])
def test_tensors_on_the_gpu(detector, dtype):
    """They may be given as they are; the scores come back as NumPy arrays."""
    X, y = _data()
    tensor = torch.tensor(X, dtype=dtype, device="cuda")
    expected = _fit(detector, X.astype(str(dtype).split(".")[-1]), y, "cpu")
    fitted = _fit(detector, tensor, y, "auto")
    scores = fitted.score_samples(tensor)
    assert isinstance(scores, np.ndarray)
    assert scores.dtype == np.float64
    wanted = expected.score_samples(X.astype(str(dtype).split(".")[-1]))
    share = 1e-9 if dtype == torch.float64 else 1e-4
    assert_allclose(scores, wanted, rtol=0, atol=share * max(1.0, np.abs(wanted).max()))


@pytest.mark.parametrize(
    "detector",
    [d for d in _detectors() if hasattr(d, "partial_fit") and d.estimator is None],
    ids=repr,
)
def test_partial_fit_on_the_gpu(detector):
    X, y = _data()
    if getattr(detector, "covariance", None) is not None:
        pytest.skip("needs all samples at once")
    if "head" in type(detector)._needs:
        pytest.skip("needs a frozen estimator")
    expected = _fit(detector, X, y, "cpu")
    parts = clone(detector).set_params(device="cuda")
    for samples in np.array_split(np.arange(len(y)), 7):
        parts.partial_fit(torch.tensor(X[samples], device="cuda"), y[samples])
    wanted = expected.score_samples(X)
    assert_allclose(
        parts.score_samples(X), wanted, rtol=0, atol=1e-9 * np.abs(wanted).max()
    )


def test_memory_of_the_gpu_ends_with_the_detector():
    from skood.detectors import KNN, Mahalanobis

    X = np.random.default_rng(0).normal(size=(20_000, 256)).astype(np.float32)
    for make in (KNN, Mahalanobis):
        before = torch.cuda.memory_allocated()
        make(device="cuda").fit(X).score_samples(X[:5000])  # the bank stays meanwhile
        assert torch.cuda.memory_allocated() == before
