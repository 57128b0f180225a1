"""Numbers of the theorems on evidence, from the example of the gallery."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def example():
    """The functions of the example, without its loops and its figure."""
    path = Path(__file__).parents[2] / "examples/graph/plot_evidence_theorems.py"
    code = path.read_text().replace("N_SAMPLES = 300_000", "N_SAMPLES = 20_000")
    names = {}
    exec(compile(code.split("fig, axes")[0], str(path), "exec"), names)
    return names


@pytest.mark.parametrize("s, expected", [(1, 0.63546), (2, 0.85507), (4, 0.99533)])
def test_probability_of_a_right_ranking(example, s, expected):
    assert_allclose(example["ranking"](s), expected, atol=5e-6)
    # by simulation, with the weights of the theorem
    z, _, ood = example["samples"](s)
    w = np.linalg.solve(example["SIGMA"], example["mean"](s))
    u_id, u_ood = example["uncertainty"](w, z), example["uncertainty"](w, ood)
    assert_allclose(np.mean(u_ood > u_id), expected, atol=4 * 0.5 / np.sqrt(20_000))


def test_the_cross_entropy_has_the_weights_of_theorem_1(example):
    z, sign, _ = example["samples"](1.0)
    args = (z, sign)
    result = minimize(example["cross_entropy"], np.zeros(2), args=args, jac=True)
    expected = np.linalg.solve(example["SIGMA"], example["mean"](1.0))
    assert_allclose(result.x, expected, atol=0.05)


def test_loss_of_a_constant_evidence(example):
    results = [example["constant_loss"](n) for n in (0, 1, 2, 4, 8)]
    assert_allclose(results, [0.29386, 0.24269, 0.15576, 0.07532, 0.06065], atol=6e-6)
    assert_allclose(example["limit"], 0.06043, atol=6e-6)


@pytest.mark.parametrize("shift, least", [(1.0, 0.0), (0.0, 2.0)])
def test_minimum_of_ice(example, shift, least):
    ice = example["ice"]
    assert_allclose(ice(2.0, shift), least, atol=1e-9)
    for scale in (1.0, 1.9, 2.1, 3.0):
        assert ice(scale, shift) > least + 1e-3
