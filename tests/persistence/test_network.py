"""What is learned from a network, saved without it."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy

import numpy as np
import pytest
import torch
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier
from torch import nn

from skood.combine import DetectorEnsemble
from skood.detectors import KNN, MSP, Mahalanobis, MultiLayerMahalanobis
from skood.graph import GraphClassifier, NodeSet
from skood.nn import TorchClassifier, pretrained
from skood.persistence import _network, dumps, loads
from tests.persistence._examples import data_for

pytest.importorskip("skops.io")

pytestmark = pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")

X, Y = data_for(None)
LABELS = np.array(["ant", "bee", "cat"])


def _net(hidden=8, activation=nn.ReLU, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, hidden), activation(), nn.Linear(hidden, 3))


NET = _net()
PRETRAINED = pretrained(NET, LABELS, batch_size=7)
DETECTOR = Mahalanobis(PRETRAINED).fit(X, LABELS[Y])
DATA = dumps(DETECTOR, network=False)


def _equal(loaded, detector):
    np.testing.assert_array_equal(loaded.score_samples(X), detector.score_samples(X))
    assert set(vars(loaded)) == set(vars(detector))


@pytest.mark.parametrize("given", ["module", "copy", "pretrained", "frozen"])
def test_pretrained_network_comes_back(given):
    other = copy.deepcopy(NET)
    network = {
        "module": NET,
        "copy": other,
        "pretrained": pretrained(other),
        "frozen": FrozenEstimator(pretrained(other)),
    }[given]
    loaded = loads(DATA, network=network)
    _equal(loaded, DETECTOR)
    assert loaded.estimator is loaded.estimator_  # a frozen one, as it was
    classifier = loaded.estimator.estimator
    assert classifier.module is (NET if given == "module" else other)
    assert classifier.classes_.tolist() == LABELS.tolist()
    assert classifier.batch_size == 7


def test_detector_is_left_as_it_is():
    before = {name: id(value) for name, value in vars(DETECTOR).items()}
    dumps(DETECTOR, network=False)
    assert {name: id(value) for name, value in vars(DETECTOR).items()} == before
    assert DETECTOR.estimator.estimator.module is NET


def test_file_does_not_hold_the_weights():
    """It is as long for a network that is a thousand times as large, but for digits."""
    sizes = []
    for hidden in (8, 8_000):
        detector = MSP(pretrained(_net(hidden), LABELS)).fit(X, LABELS[Y])
        sizes.append(len(dumps(detector, network=False)))
        ours = TorchClassifier(module_params={"hidden": (hidden,)}, max_epochs=1)
        detector = MSP(ours).fit(X, Y)
        sizes.append(len(dumps(detector, network=False)))
        whole = len(dumps(detector))
    assert abs(sizes[0] - sizes[2]) < 100
    assert abs(sizes[1] - sizes[3]) < 100
    assert whole > sizes[3] + 4 * 8_000 * 6


def test_trained_network_comes_back():
    clf = TorchClassifier(max_epochs=2, random_state=0)
    detector = Mahalanobis(clf).fit(X, Y)
    data = dumps(detector, network=False)
    network = copy.deepcopy(clf).fit(X, Y)
    loaded = loads(data, network=network)
    _equal(loaded, detector)
    assert loaded.estimator_ is network
    _equal(loads(data, network=FrozenEstimator(network)), detector)
    with pytest.raises(TypeError, match="a fitted TorchClassifier, and network is a"):
        loads(data, network=network.module_)
    with pytest.raises(TypeError, match="a fitted TorchClassifier, and network is a"):
        loads(data, network=pretrained(network.module_))
    with pytest.raises(ValueError, match=r"is not the TorchClassifier .* other values"):
        loads(data, network=copy.deepcopy(clf).set_params(random_state=1).fit(X, Y))


def test_skorch_net_comes_back():
    net = NeuralNetClassifier(
        _net, criterion=nn.CrossEntropyLoss, max_epochs=1, verbose=0, train_split=None
    ).fit(X.astype(np.float32), Y)
    detector = Mahalanobis(FrozenEstimator(net)).fit(X, Y)
    loaded = loads(dumps(detector, network=False), network=net)
    _equal(loaded, detector)
    assert loaded.estimator_.estimator is net


def test_graph_network_comes_back():
    nodes = NodeSet((X, np.roll(np.eye(len(X)), 1, axis=1)))
    clf = GraphClassifier(conv_params={"hidden": (8,)}, max_epochs=2, random_state=0)
    detector = MSP(clf).fit(nodes, Y)
    loaded = loads(dumps(detector, network=False), network=detector.estimator_)
    expected = detector.score_samples(nodes)
    np.testing.assert_array_equal(loaded.score_samples(nodes), expected)


def test_network_in_many_places():
    """One network in several detectors, in lists, tuples and a pipeline, is one."""
    members = [("knn", KNN(PRETRAINED)), ("layers", MultiLayerMahalanobis(PRETRAINED))]
    ensemble = DetectorEnsemble(members, calibration=0.4, random_state=0)
    pipeline = make_pipeline(StandardScaler(), ensemble).fit(X, LABELS[Y])
    data = dumps(pipeline, network=False)
    loaded = loads(data, network=copy.deepcopy(NET))
    np.testing.assert_array_equal(loaded.score_samples(X), pipeline.score_samples(X))
    given = [part for _, part in loaded[-1].detectors]
    assert len({id(part.estimator.estimator.module) for part in given}) == 1


def test_module_is_refused_with_its_place():
    message = (
        "Mahalanobis contains a torch module at Mahalanobis.estimator.estimator.module."
        r" A module is code, .* with dump\(..., network=False\) and the module's st"
    )
    with pytest.raises(TypeError, match=message):
        dumps(DETECTOR)


@pytest.mark.parametrize(
    "network, difference",
    [
        (_net(seed=1), "'0.bias' has other values"),
        (_net(hidden=9), r"'0.bias' has the shape \(9,\), and had \(8,\)"),
        (
            _net().double(),
            "'0.bias' has the dtype torch.float64, and had torch.float32",
        ),
        (nn.Linear(3, 3), "it has no '0.bias'"),
        (nn.Sequential(*_net(), nn.PReLU()), "it has '3.weight', which was not there"),
    ],
)
def test_another_network_is_refused(network, difference):
    message = (
        f"network is not the Sequential that the file was written with: {difference}. "
        r"Pass that network, with the weights that it had, or fit the estimator again"
    )
    with pytest.raises(ValueError, match=message):
        loads(DATA, network=network)


def test_network_is_missing_or_too_much():
    message = (
        "The file was written with network=False: it has no Sequential. Pass the "
        r"module that was there, as load\(file, network=...\)."
    )
    with pytest.raises(ValueError, match=message):
        loads(DATA)
    data = dumps(KNN().fit(X))
    with pytest.raises(ValueError, match=r"network was given, .* Leave network out\."):
        loads(data, network=NET)


@pytest.mark.parametrize("network", [3, "net", nn.Linear, KNN(), TorchClassifier()])
def test_network_of_another_kind(network):
    message = "network must be a torch module, or a fitted classifier that has one, got"
    with pytest.raises(TypeError, match=message):
        loads(DATA, network=network)


@pytest.mark.parametrize("tensors", ["no JSON", "null", "[[1]]", None])
def test_forged_hashes_of_a_network(tensors, monkeypatch):
    monkeypatch.setattr(_network.json, "dumps", lambda table: tensors)
    detached = _network.detach(DETECTOR)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="cannot be created from the content of the"):
        loads(dumps(detached), network=NET)


def test_no_network_or_several():
    with pytest.raises(ValueError, match=r"this KNN uses no network\. Save it"):
        dumps(KNN().fit(X), network=False)
    members = [("a", MSP(PRETRAINED)), ("b", MSP(pretrained(_net(seed=1), LABELS)))]
    ensemble = DetectorEnsemble(members, calibration=0.4, random_state=0)
    ensemble.fit(X, LABELS[Y])
    message = r"uses 2 networks, at \['DetectorEnsemble.detectors\[0\]\[1\].estimator."
    with pytest.raises(ValueError, match=message):
        dumps(ensemble, network=False)
    clf = TorchClassifier(max_epochs=1).fit(X, Y)
    with pytest.raises(ValueError, match="TorchClassifier is the network itself"):
        dumps(clf, network=False)


def test_cycles_and_what_is_shared():
    detector = copy.copy(DETECTOR)
    detector.bank_ = bank = {"rows": [X, X]}
    detector.again_ = bank
    loaded = loads(dumps(detector, network=False), network=NET)
    assert loaded.again_ is loaded.bank_
    from skood.persistence._network import find_modules

    bank["itself"] = bank
    assert find_modules(detector) == ["Mahalanobis.estimator.estimator.module"]
