"""Fixtures of the tests of metrics and displays."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys

import pytest

from skood.datasets import make_reject_option_1d


@pytest.fixture(autouse=True)
def close_figures():
    """Close all figures of a test; matplotlib may not be installed."""
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


@pytest.fixture(scope="session")
def densities():
    """Labels, predictions, risks and likelihood ratios: A-dens-2.0-0.2-0.25."""
    data = make_reject_option_1d((30_000, 10_000), random_state=0)
    y_pred = data.posteriors.argmax(axis=1) + 1
    return data.target, y_pred, data.risk, data.likelihood_ratio
