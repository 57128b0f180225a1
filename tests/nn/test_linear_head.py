"""Linear heads, and splitting networks."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import io
import pickle
import warnings

import joblib
import numpy as np
import pytest
import skops.io
import skorch
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from skood.detectors import MSP, Energy, ViM
from skood.nn import LinearHead, TorchClassifier, pretrained, split
from tests._loops import looped
from tests.nn._networks import Net as Layers
from tests.nn._outputs import fitted

X, y = load_iris(return_X_y=True)
X = ((X - X.mean(0)) / X.std(0)).astype(np.float32)
names = np.array(["setosa", "versicolor", "virginica"])[y]

W = np.array([[1.0, 0.5, 0.0, -1.0], [0.0, 2.0, 1.0, 0.5], [-1.0, 0.0, 0.5, 1.0]])
b = np.array([0.1, -0.2, 0.3])


# --- LinearHead ----------------------------------------------------------------


def test_weights_need_no_fit():
    head = LinearHead(W, b, ["x", "y", "z"])
    logits = np.array(
        [[sum(W[k, j] * x[j] for j in range(4)) + b[k] for k in range(3)] for x in X]
    )
    assert_allclose(head.predict_logits(X), logits, rtol=1e-4, atol=1e-5)
    assert_array_equal(head.decision_function(X), head.predict_logits(X))
    expected = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert_allclose(head.predict_proba(X), expected, rtol=1e-5, atol=1e-6)
    assert head.predict_proba(X).dtype == np.float64
    assert head.predict(X).tolist() == [["x", "y", "z"][i] for i in logits.argmax(1)]
    assert head.classes_.tolist() == ["x", "y", "z"]
    assert_array_equal(head.coef_, W)
    assert_array_equal(head.intercept_, b)


def test_logits_keep_the_precision_of_x():
    head = LinearHead(W, b)
    assert head.predict_logits(X).dtype == np.float32
    assert head.predict_logits(X.astype(float)).dtype == np.float64
    assert head.predict_logits(X.astype(int)).dtype == np.float64


def test_fit_does_not_change_weights():
    head = LinearHead(W, b).fit(X, y)
    assert_array_equal(head.coef_, W)
    assert head.n_features_in_ == 4
    assert_array_equal(head.predict_logits(X), LinearHead(W, b).predict_logits(X))


def test_number_of_features_of_weights():
    """It is that of the weights, before `fit` and after, and follows `set_params`."""
    for head in (LinearHead(W, b), LinearHead(W.tolist()), LinearHead(W, b).fit(X, y)):
        assert head.n_features_in_ == 4
        assert clone(head).n_features_in_ == 4
        assert pickle.loads(pickle.dumps(head)).n_features_in_ == 4
    assert LinearHead(W).set_params(coef=W[:, :2]).n_features_in_ == 2
    assert LinearHead().fit(X[:, :3], y).fit(X[:, :2], y).n_features_in_ == 2
    for head in (LinearHead(), LinearHead(coef=[1.0, 2.0])):
        assert not hasattr(head, "n_features_in_")


def test_weights_have_no_names_of_features():
    """A frame is an array to a head that was fitted on no data: nothing to warn of."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcd"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logits = LinearHead(W, b).predict_logits(frame)
        scores = MSP(FrozenEstimator(LinearHead(W, b))).fit(frame).score_samples(frame)
    assert_array_equal(logits, LinearHead(W, b).predict_logits(X))
    assert scores.shape == (150,)
    named = LinearHead(W, b).fit(frame, y)
    assert named.feature_names_in_.tolist() == list("abcd")
    with pytest.raises(ValueError, match="feature names should match"):
        named.predict(frame.rename(columns={"a": "e"}))


@pytest.mark.parametrize("detector", [MSP, Energy, ViM])
def test_detectors_of_weights_have_a_number_of_features(detector):
    head = LinearHead(W, b)
    assert detector(FrozenEstimator(head)).fit(X, y).n_features_in_ == 4


def test_defaults():
    head = LinearHead(W)
    assert_array_equal(head.intercept_, np.zeros(3))
    assert_array_equal(head.classes_, [0, 1, 2])
    assert_array_equal(LinearHead(W.tolist(), b.tolist()).coef_, W)
    assert LinearHead(W.astype(np.float32)).coef_.dtype == np.float32


def test_single_weight_vector_is_a_binary_margin():
    head = LinearHead(W[:1], b[:1])
    margin = X @ W[0] + b[0]
    assert_allclose(head.decision_function(X), margin, rtol=1e-4, atol=1e-6)
    assert_allclose(head.predict_proba(X)[:, 1], 1 / (1 + np.exp(-margin)), rtol=1e-5)
    assert_array_equal(head.coef_, [-W[0] / 2, W[0] / 2])
    assert_array_equal(head.intercept_, [-b[0] / 2, b[0] / 2])
    assert_array_equal(head.predict(X), (margin > 0).astype(int))


def test_two_weight_vectors_have_their_logits():
    head = LinearHead(W[:2], b[:2])
    logits = head.predict_logits(X)
    assert_array_equal(head.decision_function(X), logits[:, 1] - logits[:, 0])
    assert_allclose(
        Energy(FrozenEstimator(head)).fit(X).score_samples(X),
        np.logaddexp(logits[:, 0], logits[:, 1]),
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_without_weights_it_is_a_logistic_regression(n_classes):
    mask = y < n_classes
    head = LinearHead().fit(X[mask], names[mask])
    model = LogisticRegression(max_iter=1000).fit(X[mask], names[mask])
    assert_allclose(head.predict_proba(X), model.predict_proba(X), rtol=1e-4, atol=1e-7)
    assert head.coef_.shape == (n_classes, 4)
    assert (head.predict(X) == model.predict(X)).all()


def test_refit_forgets():
    head = LinearHead().fit(X, y)
    head.fit(X[:100, :2], y[:100])
    assert head.coef_.shape == (2, 2) and head.classes_.tolist() == [0, 1]
    with pytest.raises(ValueError):
        head.fit(X[:50], y[:50])
    assert head.coef_.shape == (2, 2) and head.n_features_in_ == 2


def test_clone_and_persistence():
    given, learned = LinearHead(W, b, ["x", "y", "z"]), LinearHead().fit(X, names)
    copy = clone(given)
    assert_array_equal(copy.predict(X), given.predict(X))
    assert not hasattr(clone(learned), "coef_")
    for head in (given, learned):
        file = io.BytesIO()
        joblib.dump(head, file)
        file.seek(0)
        restored = joblib.load(file)
        assert_array_equal(restored.predict_logits(X), head.predict_logits(X))
        dump = skops.io.dumps(head)
        unknown = skops.io.get_untrusted_types(data=dump)
        assert unknown == ["skood.nn._linear_head.LinearHead"]
        restored = skops.io.loads(dump, trusted=unknown)
        assert_array_equal(restored.predict_logits(X), head.predict_logits(X))
        assert_array_equal(restored.predict(X), head.predict(X))


def test_head_errors():
    with pytest.raises(NotFittedError):
        LinearHead().predict(X)
    with pytest.raises(AttributeError, match="has no weights yet: call 'fit', or give"):
        _ = LinearHead().coef_
    for params, text in [
        ({"coef": W, "intercept": [0.0]}, r"shape \(1,\), expected \(3,\): one value"),
        ({"coef": W, "classes": ["a", "b"]}, "2 distinct labels, but coef has weights"),
        ({"coef": W, "classes": list("aab")}, "2 distinct labels, but coef has weigh"),
        ({"coef": W, "classes": list("abca")}, "3 distinct labels, but coef has weig"),
        ({"coef": W * np.nan}, "coef contains NaN"),
        ({"coef": W, "intercept": b * np.inf}, "intercept contains infinity"),
        ({"coef": [1.0, 2.0]}, "Expected 2D array"),
    ]:
        for use in (lambda h: h.predict(X), lambda h: h.fit(X, y)):
            with pytest.raises(ValueError, match=text):
                use(LinearHead(**params))
    with pytest.raises(ValueError, match="The 'coef' parameter of LinearHead must be"):
        LinearHead(coef="W").fit(X, y)
    with pytest.raises(ValueError, match="X has 3 features, but coef has 4 columns"):
        LinearHead(W).fit(X[:, :3], y)
    with pytest.raises(
        ValueError, match="X has 3 features, but LinearHead is expectin"
    ):
        LinearHead(W).predict(X[:, :3])
    with pytest.raises(ValueError, match="Unknown label type"):
        LinearHead(W).fit(X, np.linspace(0, 1, 150))


# --- split ---------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self, width=3):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
        self.head = nn.Linear(8, width)

    def forward(self, x):
        return self.head(self.body(x))


def quick_mlp(*hidden):
    return MLPClassifier(hidden, random_state=0, max_iter=20)


def skorch_net(width=3):
    return skorch.NeuralNetClassifier(
        Net,
        module__width=width,
        criterion=nn.CrossEntropyLoss,
        max_epochs=2,
        verbose=0,
        train_split=None,
    )


KINDS = {
    "linear": lambda: LogisticRegression(),
    "MLP": lambda: quick_mlp(9, 7),
    "MLP without hidden layers": lambda: quick_mlp(),
    "pipeline": lambda: make_pipeline(StandardScaler(), quick_mlp(9)),
    "search": lambda: GridSearchCV(quick_mlp(), {"hidden_layer_sizes": [(5,)]}, cv=2),
    "TorchClassifier": lambda: TorchClassifier(max_epochs=2, random_state=0),
    "pipeline with TorchClassifier": lambda: make_pipeline(
        StandardScaler(), TorchClassifier(max_epochs=2, random_state=0)
    ),
}


@looped("n_classes", [2, 3])
@looped("kind", KINDS)
def test_head_of_body_is_the_network(kind, n_classes):
    mask = y < n_classes
    net = fitted(KINDS[kind](), X[mask], names[mask])
    body, head = split(net)
    Z = body.transform(X)
    assert_allclose(head.predict_proba(Z), net.predict_proba(X), rtol=1e-4, atol=1e-6)
    assert (head.predict(Z) == net.predict(X)).all()
    assert head.classes_.tolist() == net.classes_.tolist()
    # both are frozen, and fitted
    assert clone(body) is body and clone(head) is head
    assert Z.shape == (150, len(body.get_feature_names_out()))
    assert head.coef_.shape == (n_classes, Z.shape[1])
    assert body.n_features_in_ == 4
    # a detector of the network is the same detector of head and features
    for detector in (MSP(FrozenEstimator(net)), Energy(FrozenEstimator(net))):
        of_head = clone(detector).set_params(estimator=head)
        assert_allclose(
            of_head.fit(Z).score_samples(Z),
            detector.fit(X).score_samples(X),
            rtol=1e-4,
            atol=1e-5,
        )


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("shape", [None, (4,)])
def test_split_of_a_torch_module(n_classes, shape):
    net = Net(n_classes)
    with torch.no_grad():  # true logits of two classes are not symmetric
        net.head.bias.add_(torch.arange(n_classes) + 5.0)
    clf = pretrained(net, classes=list("abc")[:n_classes], input_shape=shape)
    body, head = split(clf)
    Z = body.transform(X)
    assert_allclose(head.predict_logits(Z), clf.predict_logits(X), rtol=1e-4)
    assert_allclose(
        Energy(head).fit(Z).score_samples(Z),
        Energy(clf).fit(X).score_samples(X),
        rtol=1e-5,
    )
    assert_allclose(
        ViM(head, n_components=3).fit(Z).score_samples(Z),
        ViM(clf, n_components=3).fit(X).score_samples(X),
        rtol=1e-3,
        atol=1e-3,
    )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_split_of_a_skorch_net(n_classes):
    mask = y < n_classes
    net = skorch_net(n_classes).fit(X[mask], y[mask])
    body, head = split(net)
    logits = net.forward(X).numpy()
    assert_allclose(
        head.predict_logits(body.transform(X)), logits, rtol=1e-4, atol=1e-5
    )


def test_split_of_a_single_output():
    clf = pretrained(Net(1))
    body, head = split(clf)
    assert_allclose(
        head.predict_proba(body.transform(X)), clf.predict_proba(X), rtol=1e-5
    )


class TwoHeads(Net):
    """An auxiliary head that is defined and run last."""

    def __init__(self):
        super().__init__()
        self.aux = nn.Linear(8, 3)
        for layer in (self.body[0], self.head, self.aux):
            nn.init.zeros_(layer.bias)  # for a row of zeros both heads say the same

    def forward(self, x):
        z = self.body(x)
        out = self.head(z)
        self.aux(z)
        return out.softmax(1)


def test_split_at_a_name():
    clf = pretrained(TwoHeads())
    for layer, net in [("input:head", TwoHeads().head), ("input:aux", TwoHeads().aux)]:
        body, head = split(clf, layer=layer)
        assert_array_equal(head.coef_, net.weight.detach())
        assert body.transform(X).shape == (150, 8)
    # which of the two gives the logits is found by running one row
    body, head = split(pretrained(TwoHeads(), input_shape=(4,)))
    assert_array_equal(head.coef_, TwoHeads().head.weight.detach())
    assert_allclose(
        head.predict_proba(body.transform(X)), clf.predict_proba(X), rtol=1e-5
    )
    # ... and not guessed
    with pytest.raises(
        ValueError,
        match=r"without the input shape it is unknown .* are: head, aux; use lay",
    ):
        split(clf)


def embedded(run, n_tokens, close=lambda out: out):
    """Features of embeddings by a function, and two heads, the first of the logits."""

    def two_heads(net, x):
        z = run(net, x)
        out = net.head(z)
        net.aux(z)
        return close(out)

    torch.manual_seed(0)
    net = Layers(two_heads, embedding=nn.Embedding(n_tokens, 4))
    net.mix, net.head, net.aux = nn.Linear(2, 4), nn.Linear(4, 3), nn.Linear(4, 3)
    return net


@pytest.mark.parametrize("pad", [0, 1])
def test_split_runs_a_row_that_is_no_padding(pad):
    """The features are the mean of the embeddings that are no padding."""

    def masked_mean(net, ids):
        mask = (ids != pad).float()[:, :, None]
        return (net.embedding(ids) * mask).sum(1) / mask.sum(1)  # NaN of padding only

    net = embedded(masked_mean, 10, lambda out: out.softmax(1))
    body, head = split(pretrained(net, range(3), input_shape=(6,)))
    assert_array_equal(head.coef_, net.head.weight.detach())
    tokens = np.random.default_rng(0).integers(2, 10, size=(20, 6))
    assert_allclose(
        head.predict_proba(body.transform(tokens)),
        pretrained(net, range(3)).predict_proba(tokens),
        rtol=1e-5,
    )


def test_split_of_a_network_that_embeds_positions():
    def numbers_with_places(net, x):
        return torch.relu(net.mix(x) + net.embedding(torch.arange(5))).mean(1)

    net = embedded(numbers_with_places, 5)
    _, head = split(pretrained(net, input_shape=(5, 2)))
    assert_array_equal(head.coef_, net.head.weight.detach())


def test_split_of_a_network_that_reads_tokens():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Embedding(10, 4), nn.Flatten(), nn.Linear(12, 3), nn.Tanh(), nn.Linear(3, 3)
    )
    tokens = np.random.default_rng(0).integers(10, size=(20, 3))
    clf = pretrained(net, input_shape=(3,))
    body, head = split(clf)
    assert_array_equal(head.coef_, net[4].weight.detach())
    assert_allclose(
        head.predict_proba(body.transform(tokens)), clf.predict_proba(tokens), rtol=1e-5
    )


class LastToken(nn.Module):
    """Logits of each token, of which the last one's are returned, as GPT-2 has it."""

    def __init__(self):
        super().__init__()
        self.embedding, self.score = nn.Embedding(10, 4), nn.Linear(4, 3)

    def forward(self, ids):
        return self.score(self.embedding(ids))[:, -1]


@pytest.mark.parametrize("build", [LastToken, lambda: nn.Sequential(Net(), Scale())])
def test_a_head_that_was_guessed_is_compared_with_the_logits(build):
    """One layer has an output per class, and it is not what gives the logits."""
    torch.manual_seed(0)
    body, _ = split(pretrained(build()))
    samples = np.arange(60).reshape(15, 4) % 10
    for again in (body, pickle.loads(pickle.dumps(body))):
        with pytest.raises(ValueError, match=r"the logits of .* are not the output of"):
            again.transform(samples if build is LastToken else X)


def test_a_head_is_compared_in_the_same_forward_pass():
    passes = []
    net = Net()
    net.register_forward_hook(lambda *_: passes.append(1))
    body, _ = split(pretrained(net, batch_size=50))
    body.transform(X)
    assert len(passes) == 3


def test_body_keeps_the_names_of_features():
    import pandas as pd

    frame = pd.DataFrame(X, columns=list("abcd"))
    body, _ = split(LogisticRegression().fit(frame, y))
    assert body.feature_names_in_.tolist() == list("abcd")
    with pytest.raises(ValueError, match="feature names should match"):
        body.transform(frame[["b", "a", "c", "d"]])


def test_split_errors():
    clf = pretrained(Net())
    for layer, text in [
        ("input:fc", "no layer named 'fc'"),
        ("input:body", "cannot be split at layer='input:body'"),
        ("input:body.0", r"cannot be split at .* an output per class are: head; use"),
        ("head", "cannot be split at layer='head'.*use layer='input:NAME'"),
        (1, "cannot be split at layer=1"),
    ]:
        with pytest.raises(ValueError, match=text):
            split(clf, layer=layer)
    scaled = nn.Sequential(Net(), Scale())
    with pytest.raises(ValueError, match="cannot be split at layer='penultimate'"):
        split(pretrained(scaled, input_shape=(4,)))
    in_place = nn.Sequential(Net(), nn.Hardtanh(0, 1, inplace=True))
    with pytest.raises(ValueError, match=r"are not the output of a torch\.nn\.Linear"):
        split(pretrained(in_place, input_shape=(4,)))
    no_linear = nn.Sequential(nn.Conv2d(1, 3, 1), nn.Flatten())
    with pytest.raises(ValueError, match="per class are: none"):
        split(pretrained(no_linear, classes=[0, 1, 2]))
    with pytest.raises(ValueError, match="RandomForestClassifier has none"):
        split(RandomForestClassifier(2).fit(X, y))
    with pytest.raises(
        TypeError, match=r"bare torch module Net.*pretrained\(module, c"
    ):
        split(Net())
    with pytest.raises(NotFittedError):
        split(LogisticRegression())


class Scale(nn.Module):
    def forward(self, x):
        return x / 2


def test_head_needs_two_classes():
    with pytest.raises(ValueError, match=r"one class: y holds only \['a'\]"):
        LinearHead().fit(np.eye(3), ["a", "a", "a"])
