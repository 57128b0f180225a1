"""Data and networks with which outputs of networks are tested."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import torch
from numpy.testing import assert_allclose
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from torch import nn

from skood.nn._make_network import make_network

ALL = {"features", "logits", "head"}


def data(n_classes=3, n_samples=80, n_features=5):
    X, y = make_classification(
        n_samples,
        n_features,
        n_informative=n_features - 1,
        n_redundant=0,
        n_classes=n_classes,
        random_state=0,
    )
    return X.astype(np.float32), y


def fitted(estimator, X, y):
    """Fit without warnings of convergence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(X, y)


def naive_mlp(clf, x):
    """The outputs of all layers of an MLPClassifier for one sample, unit by unit."""
    function = {
        "identity": lambda v: v,
        "relu": lambda v: max(v, 0.0),
        "tanh": np.tanh,
        "logistic": lambda v: 1 / (1 + np.exp(-v)),
    }[clf.activation]
    layers = []
    for i, (W, b) in enumerate(zip(clf.coefs_, clf.intercepts_, strict=True)):
        x = [sum(x[j] * W[j, k] for j in range(len(x))) + b[k] for k in range(len(b))]
        if i < len(clf.coefs_) - 1:
            x = [function(v) for v in x]
        layers.append(x)
    return layers


class Counter(nn.Module):
    """A network that counts forward passes and the rows of each."""

    def __init__(self, fails_at=None, n_inputs=5):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(
            nn.Linear(n_inputs, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5)
        )
        self.head = nn.Linear(8, 3)
        self.sizes = []
        self.fails_at = fails_at

    def forward(self, x):
        self.sizes.append(len(x))
        if len(self.sizes) == self.fails_at:
            raise KeyboardInterrupt
        return self.head(self.body(x))


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def run(*layers, X):
    """The layers one after the other, by hand."""
    tensor = torch.as_tensor(X)
    with torch.no_grad():
        for layer in layers:
            tensor = layer(tensor)
    return tensor.numpy()


def assert_head(outputs, **tolerance):
    """Assert that the logits are the head of its features."""
    logits = outputs.features @ outputs.head.coef.T + outputs.head.intercept
    assert_allclose(logits, outputs.logits, **tolerance)


def read(estimator, X, needs, **options):
    """Outputs of a fitted classifier for all samples."""
    return make_network(estimator, **options).outputs(X, needs)
