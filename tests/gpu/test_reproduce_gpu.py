"""The command on CUDA: the values of the CPU, on the same trained networks."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import json

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

pytest.importorskip("benchmarks.reproduce", reason="only in the source tree")

from benchmarks.reproduce import _networks
from benchmarks.reproduce._command import main
from benchmarks.reproduce._run import Run
from benchmarks.reproduce._training import openood_classifier
from skood.detectors import ODIN

pytestmark = pytest.mark.gpu


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
@pytest.mark.parametrize("paper", ["franc", "openood"])
def test_small_versions(paper, tmp_path):
    """Same claims, and values to three digits; networks are of scikit-learn."""
    result = {}
    for device in ("cpu", "cuda"):
        options = ["--small", "--quiet", "--device", device, "--out"]
        assert main([paper, *options, str(tmp_path / device)]) == 0
        result[device] = json.loads((tmp_path / device / "cells.json").read_text())
    cpu, cuda = result["cpu"], result["cuda"]
    for cell, other in zip(cpu["cells"], cuda["cells"], strict=True):
        for name in ("table", "row", "column", "n_unable"):
            assert cell[name] == other[name]
        values = [np.nan if c["value"] is None else c["value"] for c in (cell, other)]
        assert_allclose(*values, rtol=1e-3, atol=1e-3)
    verdicts = [[c["verdict"] for c in item["claims"]] for item in (cpu, cuda)]
    assert verdicts[0] == verdicts[1]


def test_stored_network_and_features(tmp_path):
    """A network of one device, trained in half precision, has its features on both."""
    rng = np.random.default_rng(0)
    X, y = rng.random((60, 3, 28, 28), dtype=np.float32), np.arange(60) % 3
    X[np.arange(60), :, 4 * y] += 1

    def train():
        recipe = {"max_epochs": 2, "lr": 0.01}
        made = openood_classifier(_networks.lenet, seed=0, device="cuda", recipe=recipe)
        return made.fit(X, y)

    parts = {}
    for device in ("cuda", "cpu"):
        run = Run(None, tmp_path / "shared", device=device)
        stored = run.network(
            "net",
            train=train,
            module=lambda: _networks.lenet((3, 28, 28), 3),
            classes=[0, 1, 2],
            depends=(),
        )
        odin = run.placed(ODIN(stored.network)).fit(X, y)
        size = 10 * X[0].nbytes
        item = Run(None, tmp_path / device, device=device, max_bytes=size)
        parts[device] = item.features(
            *(stored, "X", lambda: (X, y)),
            lambda samples, odin=odin: {"odin": odin.score_samples(samples)},
        )
    weights = torch.load(*(tmp_path / "shared" / "networks").iterdir())
    assert {value.device.type for value in weights.values()} == {"cpu"}
    assert parts["cpu"].Z.max() > 0
    for name in ("Z", "odin"):
        assert_allclose(parts["cuda"][name], parts["cpu"][name], rtol=2e-3, atol=1e-3)
