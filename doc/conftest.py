"""Collection of the pages: only they have doctests here, and figures have labels."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import re
import sys

import pytest

# conf.py and the scripts next to it need Sphinx, which the tests do not install.
collect_ignore_glob = ["*.py"]


def _unlabeled(ax):
    """Yield what the axes of a figure lack; ticks that are words need no label."""
    if not ax.axison or not ax.has_data():
        return
    for axis in ax.xaxis, ax.yaxis:
        ticks = " ".join(label.get_text() for label in axis.get_ticklabels())
        if not axis.get_label_text() and not re.search("[A-Za-z]{2}", ticks):
            yield f"label of {axis.axis_name}"
    legend = ax.get_legend() or ax.figure.legends
    if len(ax.get_legend_handles_labels()[1]) > 1 and not legend:
        yield "legend"


@pytest.fixture(autouse=True)
def _figures_have_labels(request):
    """Check the figures that a page draws, and close all."""
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")  # of earlier tests
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
        pyplot.close("all")
        lacking = [
            (number, *lacks)
            for number, figure in enumerate(figures, 1)
            for ax in figure.axes
            if ax.get_label() != "<colorbar>" and (lacks := [*_unlabeled(ax)])
        ]
        assert not lacking, f"{request.node.name}: figures lack {lacking}"
