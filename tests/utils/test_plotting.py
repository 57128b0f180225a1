"""The base class of displays."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import fields
from importlib import import_module

import pytest

from skood.utils._plotting import BaseDisplay

DISPLAYS = [
    getattr(import_module(f"skood.{package}"), name)
    for package in ("metrics", "epistemic", "combine", "logic", "selection", "monitor")
    for name in import_module(f"skood.{package}").__all__
    if name.endswith("Display")
]


@pytest.mark.parametrize("display", DISPLAYS)
def test_parameters_of_displays_are_attributes(display):
    assert issubclass(display, BaseDisplay)
    values = {field.name: object() for field in fields(display)}
    instance = display(**values)
    assert {name: getattr(instance, name) for name in values} == values
    assert not hasattr(instance, "ax_")


def test_axes_are_stored_only_if_drawn():
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    plt.close("all")
    display = BaseDisplay()
    with pytest.raises(ZeroDivisionError), display._axes(None):
        1 / 0  # noqa: B018
    assert not hasattr(display, "ax_") and not plt.get_fignums()
    with display._axes(None) as ax:
        pass
    assert display.ax_ is ax and display.figure_ is ax.figure
    plt.close(ax.figure)
