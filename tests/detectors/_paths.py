"""The path through torch, on a stand-in: the same values as the path through NumPy."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import torch
from sklearn.base import clone

from skood.exceptions import SkoodWarning
from tests._stand_in_device import stand_in_device


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
        wanted = expected.score_samples(X)
        with stand_in_device() as device:
            fitted = clone(detector).set_params(device="cuda").fit(X, y)
            scores = fitted.score_samples(X)
            crossed = expected.set_params(device="cuda").score_samples(X)
    assert device.counts.operators, "The detector computed on the CPU"
    for name, value in vars(fitted).items():
        assert not isinstance(value, torch.Tensor), f"{name} is a tensor"
    atol = rtol * max(np.std(wanted), np.abs(wanted).max())
    np.testing.assert_allclose(scores, wanted, rtol=0, atol=atol)
    np.testing.assert_allclose(crossed, wanted, rtol=0, atol=atol)
    np.testing.assert_allclose(fitted.offset_, expected.offset_, rtol=0, atol=atol)
