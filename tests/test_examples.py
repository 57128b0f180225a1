"""Every example of the gallery runs."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*/plot_*.py"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_draws(path):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.close("all")
    runpy.run_path(str(path))
    assert pyplot.get_fignums()
    pyplot.close("all")
