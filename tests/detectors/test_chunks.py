"""Scores depend neither on the size of chunks nor on where they are computed."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from skood.nn import LinearHead
from tests._instances import output_detectors
from tests.detectors._paths import assert_torch_path_agrees

pytestmark = pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")

_RNG = np.random.default_rng(0)
_X = 2 * _RNG.normal(size=(200, 6)) + 0.5
_HEAD = FrozenEstimator(LinearHead(_RNG.normal(size=(4, 6)), np.full(4, 9.0)))
_Y = _HEAD.predict(_X)

DETECTORS = [
    one.set_params(estimator=_HEAD if "logits" in one._needs else None)
    for one in output_detectors(variants=True, tail_size=5)
    if not hasattr(one, "detector")  # which has no chunks
]


def _name(detector):
    return type(detector).__name__


@pytest.mark.parametrize("detector", DETECTORS, ids=_name)
def test_chunks_change_nothing(detector, monkeypatch):
    expected = clone(detector).fit(_X, _Y).score_samples(_X)
    monkeypatch.setattr(type(detector), "_chunk_bytes", 7 * 8 * 4 * 10)
    scores = clone(detector).fit(_X, _Y).score_samples(_X)
    rtol = 1e-13 if detector._elementwise else 1e-10
    np.testing.assert_allclose(scores, expected, rtol=rtol)


@pytest.mark.parametrize(
    "detector", [one for one in DETECTORS if one._device != "cpu"], ids=_name
)
def test_torch_path(detector):
    assert_torch_path_agrees(detector, _X, _Y, rtol=1e-11)
    # those that are not elementwise compute large matrix products in float32
    rtol = 1e-9 if detector._elementwise else 1e-5
    assert_torch_path_agrees(detector, _X.astype(np.float32), _Y, rtol)
