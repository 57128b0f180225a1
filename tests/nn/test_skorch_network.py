"""Outputs of skorch nets and `TorchClassifier`."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import skorch
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, log_softmax, softmax
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from torch import nn

from skood.detectors import KNN, MSP
from skood.nn import TorchClassifier, pretrained
from skood.nn._make_network import make_network
from tests.nn._outputs import ALL, assert_head, data, read


class Net(nn.Module):
    def __init__(self, width=3, close=None):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(5, 8), nn.Tanh())
        self.head = nn.Linear(8, width)
        self.close = close

    def forward(self, x):
        logits = self.head(self.body(x))
        return logits if self.close is None else self.close(logits)


def skorch_net(kind=skorch.NeuralNetClassifier, **params):
    params = {"max_epochs": 3, "lr": 0.1, "verbose": 0, "train_split": None, **params}
    return kind(Net, **params)


def softmax_rows(v):
    return v.softmax(1)


def log_softmax_rows(v):
    return v.log_softmax(1)


def sigmoid_of_one(v):
    return torch.sigmoid(v)[:, 0]


def first_column(v):
    return v[:, 0]


def sharpened(v):
    return (2 * v).softmax(1)


def sharpened_logs(v):
    return (2 * v).log_softmax(1)


def sharpened_sigmoid(v):
    return torch.sigmoid(2 * v)[:, 0]


def by_hand(net, X):
    """Features and logits of a `Net`, by NumPy."""
    net = net.double()
    W, b = (net.body[0].weight.detach().numpy(), net.body[0].bias.detach().numpy())
    V, c = (net.head.weight.detach().numpy(), net.head.bias.detach().numpy())
    z = np.tanh(X @ W.T + b)
    return z, z @ V.T + c


@pytest.mark.parametrize(
    ("close", "criterion"),
    [
        (None, nn.CrossEntropyLoss),
        (softmax_rows, nn.NLLLoss),  # the logits are what goes into the softmax
        (log_softmax_rows, nn.CrossEntropyLoss),
    ],
)
def test_skorch_classifier(close, criterion):
    X, y = data()
    net = skorch_net(criterion=criterion, module__close=close).fit(X, y)
    outputs = read(net, X, ALL)
    assert_allclose(
        softmax(outputs.logits.astype(float), axis=1), net.predict_proba(X), rtol=1e-4
    )
    z, logits = by_hand(net.module_, X.astype(float))
    assert_allclose(outputs.features, z, rtol=1e-4, atol=1e-5)
    assert_allclose(outputs.logits, logits, rtol=1e-4, atol=1e-5)
    assert_head(outputs, rtol=1e-4, atol=1e-5)


def test_skorch_probabilities_without_a_head_become_logs():
    X, y = data()
    net = skorch_net(module__close=sharpened).fit(X, y)  # NLLLoss is the default
    assert_allclose(
        read(net, X, {"logits"}).logits, np.log(net.predict_proba(X)), rtol=1e-5
    )
    with pytest.raises(ValueError, match=r"are not the output of a torch\.nn\.Linear"):
        read(net, X, ALL)


@pytest.mark.parametrize(
    ("close", "criterion", "has_head"),
    [
        (None, nn.BCEWithLogitsLoss, True),
        (first_column, nn.BCEWithLogitsLoss, True),
        (sigmoid_of_one, nn.BCELoss, True),
        (sharpened_sigmoid, nn.BCELoss, False),
    ],
)
def test_skorch_binary_classifier(close, criterion, has_head):
    X, y = data(2)
    net = skorch_net(
        skorch.NeuralNetBinaryClassifier,
        criterion=criterion,
        module__close=close,
        module__width=1,
    ).fit(X, y.astype(np.float32))
    logits = read(net, X, {"logits"}).logits.astype(float)
    assert_allclose(softmax(logits, axis=1), net.predict_proba(X), rtol=1e-4, atol=1e-6)
    assert_array_equal(logits[:, 0], -logits[:, 1])
    if has_head:
        outputs = read(net, X, ALL)
        assert_allclose(
            expit(
                outputs.features @ (2 * outputs.head.coef[1])
                + 2 * outputs.head.intercept[1]
            ),
            net.predict_proba(X)[:, 1],
            rtol=1e-4,
        )


@pytest.mark.parametrize("close", [log_softmax_rows, sharpened_logs])
def test_plain_skorch_net_with_log_probabilities(close):
    """NeuralNet hands the module's output to NLLLoss as it is: log probabilities."""
    X, y = data()
    net = skorch_net(skorch.NeuralNet, criterion=nn.NLLLoss, module__close=close)
    assert not hasattr(net.fit(X, y), "classes_")
    actual = read(net, X, {"logits"}).logits
    if close is log_softmax_rows:
        head = read(net, X, ALL).head
        assert_array_equal(head.coef, net.module_.head.weight.detach())
    _, logits = by_hand(net.module_, X.astype(float))
    if close is sharpened_logs:  # which no linear layer gives
        logits = log_softmax(2 * logits, axis=1)
    assert_allclose(actual, logits, rtol=1e-4, atol=1e-5)


def test_skorch_net_in_detectors():
    X, y = data()
    net = FrozenEstimator(skorch_net(criterion=nn.CrossEntropyLoss).fit(X, y))
    scores = MSP(net).fit(X).score_samples(X)
    assert_allclose(scores + 1, net.predict_proba(X).max(1), rtol=1e-4)
    z, _ = by_hand(net.estimator.module_, X.astype(float))
    net.estimator.module_.float()
    assert_allclose(
        KNN(net, n_neighbors=5).fit(X).score_samples(X),
        KNN(n_neighbors=5, normalize=True).fit(z).score_samples(z),
        rtol=1e-4,
        atol=1e-6,
    )


def test_skorch_errors():
    X, y = data()
    regressor = skorch_net(skorch.NeuralNetRegressor, module__width=1)
    with pytest.raises(TypeError, match="got the regressor NeuralNetRegressor"):
        make_network(regressor.fit(X, X[:, :1]))
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        make_network(skorch_net())
    with pytest.raises(ValueError, match="no layer named 'fc'"):
        make_network(skorch_net(criterion=nn.CrossEntropyLoss).fit(X, y), layer="fc")


def test_torch_classifier():
    X, y = data()
    clf = TorchClassifier(max_epochs=2, random_state=0).fit(X, np.array(list("abc"))[y])
    outputs = read(clf, X, ALL)
    assert_allclose(outputs.logits, clf.predict_logits(X), rtol=1e-5)
    assert_head(outputs, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="4 features"):
        read(clf, X[:, :4], {"logits"})


def test_device_of_the_classifier_is_taken_for_auto():
    X, y = data()
    net = skorch_net(criterion=nn.CrossEntropyLoss).fit(X, y)
    assert make_network(net).device == "cpu"
    assert make_network(net.set_params(device=None)).device == "auto"
    assert make_network(pretrained(Net(), device="cpu")).device == "cpu"
    reader = make_network(pretrained(Net(), device="cuda"), device="cpu")
    assert reader.device == "cpu"


def test_skorch_net_with_more_logits_than_it_has_seen_classes():
    """OOD rows may be left out of its fit: its width is not what `classes_` says."""
    X, y = data()
    net = skorch_net(criterion=nn.CrossEntropyLoss, module__width=5).fit(X, y)
    assert len(net.classes_) == 3
    _, logits = by_hand(net.module_, X.astype(float))
    assert_allclose(read(net, X, {"logits"}).logits, logits, rtol=1e-4, atol=1e-5)
