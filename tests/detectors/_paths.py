"""The path through torch, on the CPU: it computes what the path through NumPy does."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import torch
from sklearn.base import clone

import skood.detectors._common._base_output_detector as base
from skood.exceptions import SkoodWarning


def assert_torch_path_agrees(detector, X, y, rtol=1e-9):
    """Fit and score a detector with tensors in place of arrays, and compare.

    Parameters
    ----------
    detector : object
        An unfitted `OutputDetector`.

    X, y : ndarray
        What it is fitted on, and `X` scored.

    rtol : float, default=1e-9
        Relative to the spread of the scores; 1e-5 suits float32.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkoodWarning)
        expected = clone(detector).fit(X, y)
        seen = []

        def array_device(device, array):
            seen.append(device)
            return torch.device("cpu")

        original = base.array_device
        base.array_device = array_device
        try:
            fitted = clone(detector).fit(X, y)
            scores = fitted.score_samples(X)
            crossed = expected.score_samples(X)
        finally:
            base.array_device = original
    assert seen, "The detector never asked where to compute"
    for name, value in vars(fitted).items():
        assert not isinstance(value, torch.Tensor), f"{name} is a tensor"
    wanted = expected.score_samples(X)
    atol = rtol * max(np.std(wanted), np.abs(wanted).max())
    np.testing.assert_allclose(scores, wanted, rtol=0, atol=atol)
    np.testing.assert_allclose(crossed, wanted, rtol=0, atol=atol)
    np.testing.assert_allclose(fitted.offset_, expected.offset_, rtol=0, atol=atol)
