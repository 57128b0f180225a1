"""What all tests share."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import gc
import os

import pytest

collect_ignore = ["scripts"]  # test_scripts.py runs them

os.environ.setdefault("MPLBACKEND", "Agg")  # no test opens a window

# The arrays of tests are tiny, and tests run in several processes: threads would
# only wait for each other. Set before NumPy and torch are imported.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")


@pytest.fixture(scope="session")
def iris():
    """Scaled features of irises, and their species."""
    from sklearn.datasets import load_iris
    from sklearn.preprocessing import scale

    X, y = load_iris(return_X_y=True)
    return scale(X), y


@pytest.fixture
def few_folds(monkeypatch):
    """Thresholds from 4 heads in place of 20, which are fitted at night."""
    if "SKOOD_NIGHTLY" not in os.environ:
        path = "skood.detectors._common._base_output_detector._HEAD_FOLDS"
        monkeypatch.setattr(path, 4)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect no garbage while tests are collected, and never look at tests again.

    They are a million objects and contain no garbage: a fifth of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items):
    """Skip tests that need a GPU where there is none."""
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu:
        return
    import torch

    if not torch.cuda.is_available():
        for item in gpu:
            item.add_marker(pytest.mark.skip(reason="torch finds no CUDA device"))
