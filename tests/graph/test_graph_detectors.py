"""Detectors of arrays, and what is built on them, on nodes of a frozen network."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from skood.combine import DetectorEnsemble
from skood.detectors import (
    KNN,
    MSP,
    ODIN,
    Energy,
    Mahalanobis,
    MultiLayerMahalanobis,
    RankFeat,
    ViM,
)
from skood.graph import GraphClassifier, NodeSet, pretrained_graph
from skood.metrics import make_ood_scorer
from skood.model_selection import LeaveClassesOut
from skood.nn import FeatureExtractor, TrainingOptions, split
from skood.rectifiers import ASH, DICE, ReAct
from skood.rejection import RejectOptionClassifier
from tests._instances import network_detectors, output_detectors
from tests.nn._outputs import read

pytestmark = pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")

N_ID = 90

ALL = output_detectors(n_neighbors=5, tail_size=5)
READ_LOGITS = [one for one in ALL if one._needs == {"logits"}]
READ_FEATURES = [one for one in ALL if one._needs == {"features"}]
NEED_HEAD = [one for one in ALL if one not in READ_LOGITS + READ_FEATURES]


def _name(detector):
    return type(detector).__name__


def _nodes(seed=0, n_nodes=120):
    """Nodes of three known classes and a fourth, linked within their class."""
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(n_nodes) < n_nodes * 3 // 4, np.arange(n_nodes) % 3, 3)
    X = 2 * np.eye(4, 6)[y] + rng.normal(size=(n_nodes, 6))
    linked = np.triu(rng.random((n_nodes, n_nodes)) < 0.15 * (y[:, None] == y), 1)
    linked[[5, 100]] = linked[:, [5, 100]] = False  # nodes without edges
    return NodeSet((X, linked | linked.T), labels=y)


NODES = _nodes()
Y = NODES.labels
ID = NODES[:N_ID], Y[:N_ID]


QUICK = {
    "conv_params": {"hidden": (8,)},
    "max_epochs": 40,
    "random_state": 0,
    "training": TrainingOptions(early_stopping=False),
}


def _fitted(detector, network):
    """A clone of a detector, fitted on nodes of the known classes."""
    return clone(detector).set_params(estimator=network).fit(*ID)


@pytest.fixture(scope="module")
def gnn():
    clf = GraphClassifier(**QUICK)
    return FrozenEstimator(clf.fit(*ID))


# ---- single detectors


@pytest.mark.parametrize("detector", ALL, ids=_name)
def test_scores_of_a_view(detector, gnn):
    """Of a subset, in any order and with repeats; of isolated nodes; pickled."""
    detector = _fitted(detector, gnn)
    scores = detector.score_samples(NODES)
    assert scores.shape == (120,)
    assert scores.dtype == np.float64
    assert np.isfinite(scores).all()
    for samples in ([100], [5, 100, 3, 3], np.arange(119, 60, -2)):
        result = detector.score_samples(NODES[samples])
        assert_allclose(result, scores[samples], rtol=1e-6, atol=1e-9)
    other = _nodes(seed=1)
    assert not np.allclose(detector.score_samples(other), scores)
    again = pickle.loads(pickle.dumps(detector))
    assert_allclose(again.score_samples(NODES), scores)
    assert detector.n_features_in_ == 6
    assert detector.classes_.tolist() == [0, 1, 2]


@pytest.mark.parametrize("detector", READ_LOGITS, ids=_name)
def test_logit_detectors_are_those_of_the_logits(detector, gnn):
    logits = gnn.predict_logits(NODES)
    frozen = _fitted(detector, gnn)
    plain = clone(detector).fit(logits[:N_ID], Y[:N_ID])
    assert_allclose(frozen.score_samples(NODES), plain.score_samples(logits), rtol=1e-5)
    assert_allclose(frozen.offset_, plain.offset_, rtol=1e-5)


@pytest.mark.parametrize("detector", [*READ_FEATURES, *NEED_HEAD], ids=_name)
def test_feature_detectors_are_those_of_the_embeddings(detector, gnn):
    body, head = split(gnn)
    embeddings = body.transform(NODES)
    frozen = _fitted(detector, gnn)
    plain = clone(detector)
    if isinstance(detector, KNN):
        plain.set_params(normalize=True)  # X holds features of a network
    if any(type(detector) is type(item) for item in NEED_HEAD):
        plain.set_params(estimator=head)
    plain.fit(embeddings[:N_ID], Y[:N_ID])
    assert_allclose(
        frozen.score_samples(NODES), plain.score_samples(embeddings), rtol=1e-4
    )


@pytest.mark.parametrize("detector", [Energy(), KNN(n_neighbors=5), ViM()], ids=_name)
def test_labels_of_ood_nodes(detector, gnn):
    """They are left out, and the rest is what it is without them."""
    detector = clone(detector).set_params(estimator=gnn)
    y = np.where(Y == 3, -1, Y)
    scores = detector.fit(NODES, y).score_samples(NODES)
    detector.fit(NODES[:N_ID], y[:N_ID])
    assert_allclose(detector.score_samples(NODES), scores)
    expected = roc_auc_score(y != -1, scores)
    assert detector.score(NODES, y) == pytest.approx(expected)
    # a class that is not among those of the training nodes is OOD as well
    assert detector.score(NODES, Y) == pytest.approx(expected)
    assert expected > 0.6


@pytest.mark.parametrize("conv", ["gat", "sage", "appnp"])
def test_other_networks(conv):
    clf = GraphClassifier(
        conv, conv_params={"hidden": (8,)}, max_epochs=30, random_state=0
    )
    gnn = FrozenEstimator(clf.fit(*ID))
    body, head = split(gnn)
    embeddings = body.transform(NODES)
    options = {"n_neighbors": 5, "tail_size": 5, "n_components": 3, "random_state": 0}
    for detector in output_detectors(**options):
        frozen = clone(detector).set_params(estimator=gnn)
        plain = clone(detector).set_params(estimator=head)
        y = Y[:N_ID]
        scores = frozen.fit(NODES[:N_ID], y).score_samples(NODES)
        expected = plain.fit(embeddings[:N_ID], y).score_samples(embeddings)
        assert_allclose(scores, expected, rtol=1e-4)


def test_array_samples_are_nodes_without_edges(gnn):
    detector = Energy(gnn).fit(NODES[:N_ID])
    scores = detector.score_samples(NODES.features)
    alone = NodeSet((NODES.features, np.zeros((120, 120))))
    assert_allclose(scores, detector.score_samples(alone), rtol=1e-6)
    result = detector.score_samples(NODES)
    assert_allclose(scores[[5, 100]], result[[5, 100]], rtol=1e-6)
    assert not np.allclose(scores, result)


@pytest.mark.parametrize("detector", [MSP(), KNN(n_neighbors=5), ViM()], ids=_name)
def test_an_empty_view(detector, gnn):
    detector = clone(detector).set_params(estimator=gnn)
    with pytest.raises(ValueError, match="NodeSet with 0 nodes of 120"):
        detector.fit(NODES[:0])
    with pytest.raises(ValueError, match="Found 0 samples in y while a min"):
        detector.fit(NODES[:0], [])
    detector.fit(*ID)
    with pytest.raises(ValueError, match=r"0 nodes of 120 while a minimum of 1 is req"):
        detector.score_samples(NODES[:0])


def test_an_empty_view_elsewhere(gnn):
    with pytest.raises(ValueError, match="NodeSet with 0 nodes of 120"):
        FeatureExtractor(gnn).fit(NODES[:0])
    body = FeatureExtractor(gnn).fit(NODES)
    for call in (body.transform, gnn.predict, gnn.predict_logits):
        with pytest.raises(ValueError, match="NodeSet with 0 nodes of 120"):
            call(NODES[:0])


# ---- detectors that look into the network


@pytest.mark.parametrize(
    "detector",
    [
        detector
        for detector in network_detectors(epsilon=0.0, temperature=2.0)
        if not hasattr(detector, "layer")  # a node has no matrix of features
    ],
    ids=_name,
)
def test_detectors_that_read_layers(detector, gnn, monkeypatch):
    detector = detector.set_params(estimator=gnn)
    detector.fit(*ID)
    scores = detector.score_samples(NODES)
    samples = [100, 5, 3, 3]
    result = detector.score_samples(NODES[samples])
    assert_allclose(result, scores[samples], rtol=1e-6)
    # what is handed on in blocks is the same
    monkeypatch.setattr("skood.graph._graph_network._BLOCK_BYTES", 1000)
    assert_allclose(detector.score_samples(NODES), scores, rtol=1e-6)
    in_samples = detector.score_samples(NODES.features)
    assert_allclose(in_samples[[5, 100]], scores[[5, 100]], rtol=1e-5)


def test_layers_are_those_that_run(gnn):
    detector = MultiLayerMahalanobis(gnn).fit(*ID)
    assert detector.layers_ == ["layers.0"]
    named = MultiLayerMahalanobis(gnn, layers=["input:dropouts.1", "penultimate"])
    named.fit(*ID)
    total = 0.0
    for layer in named.layers:
        features = read(gnn, NODES, {"features"}, layer=layer).features
        detector = Mahalanobis().fit(features[:N_ID], Y[:N_ID])
        total = total + detector.score_samples(features)
    assert_allclose(named.score_samples(NODES), total, rtol=1e-6)
    linear = GraphClassifier(conv_params={"hidden": ()}, max_epochs=5, random_state=0)
    linear.fit(*ID)
    detector = MultiLayerMahalanobis(FrozenEstimator(linear))
    assert detector.fit(*ID).layers_ == ["penultimate"]


def test_layers_of_a_network_of_torch_geometric():
    torch = pytest.importorskip("torch")
    from torch_geometric.nn import GATConv, GATv2Conv, Linear

    class Net(torch.nn.Module):
        def __init__(self, last):
            super().__init__()
            self.map = Linear(6, 5)
            self.conv = GATConv(5, 4)
            self.last = last(4, 3)

        def forward(self, x, edge_index):
            h = torch.tanh(self.conv(self.map(x), edge_index))
            return self.last(h, edge_index)

    for last in (GATConv, GATv2Conv):
        torch.manual_seed(0)
        clf = pretrained_graph(Net(last), [0, 1, 2])
        detector = MultiLayerMahalanobis(clf).fit(*ID)
        assert detector.layers_ == ["map", "conv"]


def test_detectors_that_would_move_samples(gnn):
    message = r"moves each sample of X .* network GCN.*split"
    with pytest.raises(TypeError, match=message):
        ODIN(gnn).fit(NODES[:N_ID])
    message = r"replaces what a layer gives for a sample, on"
    with pytest.raises(TypeError, match=message):
        RankFeat(gnn, layer="layers.0").fit(NODES[:N_ID])
    body, head = split(gnn)
    embeddings = body.transform(NODES)
    odin = ODIN(head).fit(embeddings[:N_ID])
    assert odin.score_samples(embeddings).shape == (120,)


def test_layers_that_cannot_be_read():
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.pool = torch.nn.Identity()
            self.root = torch.nn.Identity()
            self.head = torch.nn.Linear(6, 3)

        def forward(self, x, edge_index):
            self.pool(x.mean(0)[None])
            return self.head(x + 0 * self.root(x / 0).nan_to_num())

    clf = pretrained_graph(Net(), [0, 1, 2])
    with pytest.raises(ValueError, match="layer='pool' gave 1 rows for a batch of 120"):
        MultiLayerMahalanobis(clf, layers=["pool"]).fit(NODES)
    with pytest.raises(ValueError, match="layer='root' gave NaN or infinity"):
        MultiLayerMahalanobis(clf, layers=["root"]).fit(NODES)


# ---- compositions


def test_rectifiers_in_a_pipeline(gnn):
    body, head = split(gnn)
    embeddings = body.transform(NODES)
    y = Y[:N_ID]
    for rectifier in (ReAct(), ASH(variant="s", percentile=50)):
        pipe = make_pipeline(FeatureExtractor(gnn), rectifier, Energy(head))
        pipe.fit(NODES[:N_ID], y)
        by_hand = clone(rectifier).fit(embeddings[:N_ID], y)
        detector = Energy(head).fit(by_hand.transform(embeddings[:N_ID]), y)
        assert_allclose(
            pipe.score_samples(NODES),
            detector.score_samples(by_hand.transform(embeddings)),
            rtol=1e-6,
        )
    dice = make_pipeline(FeatureExtractor(gnn), Energy(DICE(head, sparsity=0.5)))
    assert dice.fit(NODES[:N_ID], y).score_samples(NODES).shape == (120,)


def test_ensembles_of_detectors_run_the_network_once(gnn, monkeypatch):
    """For a view all that read it are served from one forward pass."""
    members = [("energy", Energy(gnn)), ("knn", KNN(gnn, n_neighbors=5))]
    ensemble = DetectorEnsemble(members, calibration=0.3, random_state=0)
    ensemble.fit(*ID)
    p_values = ensemble.score_samples(NODES)
    samples = [100, 5, 3]
    assert_allclose(ensemble.score_samples(NODES[samples]), p_values[samples])
    module, calls = gnn.estimator.module_, []
    handle = module.register_forward_hook(lambda *args: calls.append(None))
    try:
        ensemble.score_samples(NODES)
    finally:
        handle.remove()
    assert len(calls) == 1


def test_reject_option(gnn):
    clf = RejectOptionClassifier(gnn, ood_detector=KNN(n_neighbors=5), random_state=0)
    clf.fit(*ID)
    assert_array_equal(clf.predict_proba(NODES), gnn.predict_proba(NODES))
    y_pred = clf.predict(NODES)
    assert_array_equal(clf.predict(NODES[[100, 5]]), y_pred[[100, 5]])


def test_search_over_a_network_in_a_detector():
    """Networks are trained without the left-out classes, which then are OOD."""
    gnn = GraphClassifier(**{**QUICK, "max_epochs": 4})
    search = GridSearchCV(
        Energy(gnn),
        {
            "estimator__conv_params": [{"hidden": (4,)}, {"hidden": (8,)}],
            "temperature": [1.0, 2.0],
        },
        cv=LeaveClassesOut(left_out=[(0,), (3,)], random_state=0),
        scoring=make_ood_scorer(),
    )
    search.fit(NODES, Y)
    assert 0.5 < search.best_score_ <= 1
    assert search.best_estimator_.classes_.tolist() == [0, 1, 2, 3]
    assert_array_equal(
        search.score_samples(NODES), search.best_estimator_.score_samples(NODES)
    )
    # a detector that reads the search reads its best network
    logits = Energy(
        FrozenEstimator(GridSearchCV(gnn, {"lr": [0.01]}, cv=2).fit(NODES, Y))
    )
    assert logits.fit(NODES, Y).score_samples(NODES).shape == (120,)


def test_cross_validation_of_a_detector(gnn):
    scores = cross_val_score(
        MSP(gnn),
        NODES,
        Y,
        cv=LeaveClassesOut(left_out=[(3,)], random_state=0),
        scoring=make_ood_scorer(),
    )
    assert scores[0] > 0.6
