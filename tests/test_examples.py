"""Every example of the gallery runs."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import os
import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*/plot_*.py"))

# Without SKOOD_DATA these say so, and do nothing else.
NEED_DATA = {
    "plot_budget",
    "plot_cora_ml",
    "plot_mnist",
    "plot_model_library_mnist",
    "plot_select_mnist",
}

# These take some seconds or more.
SLOW = {
    "plot_ablation",
    "plot_adversarial",
    "plot_certified",
    "plot_certified_groups",
    "plot_compare_detectors",
    "plot_constraint_studies",
    "plot_cost_based",
    "plot_deployment",  # tests/monitor/test_deployment.py runs it
    "plot_digits",
    "plot_grid_search_rule",
    "plot_guarantees",
    "plot_image_probe",
    "plot_lambda_search",
    "plot_library_size",
    "plot_model_library",
    "plot_nodes",
    "plot_odin_search",
    "plot_pick_the_layer",
    "plot_rectifiers",
    "plot_regression",
    "plot_regression_methods",
    "plot_rejecting_regression",
    "plot_select_digits",
    "plot_select_table",
    "plot_several_methods",
    "plot_similarity",
    "plot_simplex",
    "plot_table_1",
    "plot_table_2_mnist",
    "plot_tabular",
    "plot_traffic_signs",
    "plot_two_moons",
}

# What an example imports next to skood's own dependencies.
NEEDS = {
    "plot_certified_groups": "pandas",
    "plot_conformal": "mapie",
    "plot_churn": "pandas",
    "plot_data_frame": "pandas",
    "plot_deployment": "pandas",
    "plot_select_digits": "pandas",
    "plot_select_table": "pandas",
}


def _cases():
    for path in EXAMPLES:
        marks = [pytest.mark.slow] if path.stem in SLOW else []
        yield pytest.param(path, marks=marks, id=path.stem)


@pytest.mark.no_cover
@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
@pytest.mark.parametrize("path", list(_cases()))
def test_example_draws(path, monkeypatch, capsys):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    if path.stem in NEEDS:
        pytest.importorskip(NEEDS[path.stem])
    pyplot.close("all")
    monkeypatch.syspath_prepend(path.parent)  # for what examples share
    runpy.run_path(str(path))
    if path.stem in NEED_DATA and not os.environ.get("SKOOD_DATA"):
        assert "SKOOD_DATA is not set" in capsys.readouterr().out
        assert not pyplot.get_fignums()
    else:
        assert pyplot.get_fignums()
    pyplot.close("all")
