"""Fixtures of the tests of QUAM: samples, a network, and a fitted estimator."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pytest
from sklearn.datasets import make_blobs
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier


@pytest.fixture(scope="module")
def data():
    return make_blobs(60, 5, centers=3, cluster_std=4.0, random_state=0)


@pytest.fixture(scope="module")
def mlp(data):
    return MLPClassifier((6,), solver="lbfgs", max_iter=8, random_state=0).fit(*data)


@pytest.fixture
def quam(data, mlp):
    from tests.epistemic._quam import QUICK, STEP, make_quam

    return make_quam(FrozenEstimator(mlp), **QUICK, **STEP).fit(*data)
