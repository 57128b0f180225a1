"""What the tests of metrics and displays share."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys

import pytest


@pytest.fixture(autouse=True)
def close_figures():
    """Close all figures of a test; matplotlib may not be installed."""
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")
