"""The detector that the developers' page builds, built from its code."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import importlib
import re
import textwrap
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from skood.utils.estimator_checks import check_detector

PAGE = Path(__file__).parents[2] / "doc" / "developers" / "contributing.rst"


@pytest.fixture
def code(tmp_path, monkeypatch):
    """The module whose text is on the page."""
    blocks = re.findall(
        r"^\.\. code-block:: python\n\n((?:    .*\n|\n)+)", PAGE.read_text(), re.M
    )
    file, _ = (textwrap.dedent(block) for block in blocks)
    (tmp_path / "_nearest_mean.py").write_text(file)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("_nearest_mean")


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
def test_a_detector_has_two_hooks(code):
    check_detector(code.NearestMean())
    hooks = [name for name in vars(code.NearestMean) if name.endswith("_outputs")]
    assert hooks == ["_fit_outputs", "_score_outputs"]
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 4)) + 3 * np.eye(3, 4)[y]
    detector = code.NearestMean(LogisticRegression()).fit(X, y)
    means = [X[y == k].mean(axis=0) for k in range(3)]
    expected = [-min(np.sum((x - m) ** 2) for m in means) for x in X]
    np.testing.assert_allclose(detector.score_samples(X), expected)
