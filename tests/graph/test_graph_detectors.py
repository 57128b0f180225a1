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

from skood.combine import DSDE, DetectorEnsemble, DOSStorey
from skood.detectors import (
    KNN,
    MSP,
    ODIN,
    SHE,
    Energy,
    Gram,
    Mahalanobis,
    MultiLayerMahalanobis,
    NNGuide,
    RankFeat,
    ViM,
)
from skood.graph import GraphClassifier, NodeSet, pretrained_graph
from skood.metrics import make_ood_scorer
from skood.model_selection import LeaveClassesOut
from skood.nn import FeatureExtractor, TrainingOptions, split
from skood.rectifiers import ASH, DICE, ReAct
from skood.rejection import RejectOptionClassifier
from tests._instances import output_detectors
from tests.nn._reading import read

pytestmark = pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")

N_ID = 90

ALL = output_detectors(n_neighbors=5, tail_size=5)
READ_LOGITS = [one for one in ALL if one._reads == {"logits"}]
READ_FEATURES = [one for one in ALL if one._reads == {"features"}]
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


@pytest.fixture(scope="module")
def nodes():
    return _nodes()


@pytest.fixture(scope="module")
def gnn(nodes):
    clf = GraphClassifier(
        conv_params={"hidden": (8,)},
        max_epochs=40,
        random_state=0,
        training=TrainingOptions(early_stopping=False),
    )
    return FrozenEstimator(clf.fit(nodes[:N_ID], nodes.labels[:N_ID]))


# ---- single detectors


@pytest.mark.parametrize("detector", ALL, ids=_name)
def test_scores_of_a_view(detector, gnn, nodes):
    """Of a subset, in any order and with repeats; of isolated nodes; pickled."""
    detector = clone(detector).set_params(estimator=gnn)
    detector.fit(nodes[:N_ID], nodes.labels[:N_ID])
    scores = detector.score_samples(nodes)
    assert scores.shape == (120,)
    assert scores.dtype == np.float64
    assert np.isfinite(scores).all()
    for rows in ([100], [5, 100, 3, 3], np.arange(119, 60, -2)):
        found = detector.score_samples(nodes[rows])
        assert_allclose(found, scores[rows], rtol=1e-6, atol=1e-9)
    other = _nodes(seed=1)
    assert not np.allclose(detector.score_samples(other), scores)
    again = pickle.loads(pickle.dumps(detector))
    assert_allclose(again.score_samples(nodes), scores)
    assert detector.n_features_in_ == 6
    assert detector.classes_.tolist() == [0, 1, 2]


@pytest.mark.parametrize("detector", READ_LOGITS, ids=_name)
def test_logit_detectors_are_those_of_the_logits(detector, gnn, nodes):
    logits = gnn.predict_logits(nodes)
    frozen = clone(detector).set_params(estimator=gnn)
    frozen.fit(nodes[:N_ID], nodes.labels[:N_ID])
    plain = clone(detector).fit(logits[:N_ID], nodes.labels[:N_ID])
    assert_allclose(frozen.score_samples(nodes), plain.score_samples(logits), rtol=1e-5)
    assert_allclose(frozen.offset_, plain.offset_, rtol=1e-5)


@pytest.mark.parametrize("detector", [*READ_FEATURES, *NEED_HEAD], ids=_name)
def test_feature_detectors_are_those_of_the_embeddings(detector, gnn, nodes):
    body, head = split(gnn)
    embeddings = body.transform(nodes)
    frozen = clone(detector).set_params(estimator=gnn)
    frozen.fit(nodes[:N_ID], nodes.labels[:N_ID])
    plain = clone(detector)
    if any(type(detector) is type(one) for one in NEED_HEAD):
        plain.set_params(estimator=head)
    plain.fit(embeddings[:N_ID], nodes.labels[:N_ID])
    assert_allclose(
        frozen.score_samples(nodes), plain.score_samples(embeddings), rtol=1e-4
    )


@pytest.mark.parametrize("detector", [Energy(), KNN(n_neighbors=5), ViM()], ids=_name)
def test_labels_of_ood_nodes(detector, gnn, nodes):
    """They are left out, and the rest is what it is without them."""
    detector = clone(detector).set_params(estimator=gnn)
    y = np.where(nodes.labels == 3, -1, nodes.labels)
    scores = detector.fit(nodes, y).score_samples(nodes)
    detector.fit(nodes[:N_ID], y[:N_ID])
    assert_allclose(detector.score_samples(nodes), scores)
    expected = roc_auc_score(y != -1, scores)
    assert detector.score(nodes, y) == pytest.approx(expected)
    # a class that is not among those of the training nodes is OOD as well
    assert detector.score(nodes, nodes.labels) == pytest.approx(expected)
    assert expected > 0.6


@pytest.mark.parametrize("conv", ["gat", "sage", "appnp"])
def test_other_networks(conv, nodes):
    clf = GraphClassifier(
        conv, conv_params={"hidden": (8,)}, max_epochs=30, random_state=0
    )
    gnn = FrozenEstimator(clf.fit(nodes[:N_ID], nodes.labels[:N_ID]))
    body, head = split(gnn)
    embeddings = body.transform(nodes)
    for detector in (Energy(), ViM(n_components=3), NNGuide(n_neighbors=5), SHE()):
        frozen = clone(detector).set_params(estimator=gnn)
        plain = clone(detector).set_params(estimator=head)
        y = nodes.labels[:N_ID]
        scores = frozen.fit(nodes[:N_ID], y).score_samples(nodes)
        expected = plain.fit(embeddings[:N_ID], y).score_samples(embeddings)
        assert_allclose(scores, expected, rtol=1e-4)


def test_rows_of_an_array_are_nodes_without_edges(gnn, nodes):
    detector = Energy(gnn).fit(nodes[:N_ID])
    scores = detector.score_samples(nodes.features)
    alone = NodeSet((nodes.features, np.zeros((120, 120))))
    assert_allclose(scores, detector.score_samples(alone), rtol=1e-6)
    found = detector.score_samples(nodes)
    assert_allclose(scores[[5, 100]], found[[5, 100]], rtol=1e-6)
    assert not np.allclose(scores, found)


@pytest.mark.parametrize("detector", [MSP(), KNN(n_neighbors=5), ViM()], ids=_name)
def test_an_empty_view(detector, gnn, nodes):
    detector = clone(detector).set_params(estimator=gnn)
    with pytest.raises(ValueError, match="NodeSet with 0 nodes of 120"):
        detector.fit(nodes[:0])
    with pytest.raises(ValueError, match="Found 0 samples in y while a min"):
        detector.fit(nodes[:0], [])
    detector.fit(nodes[:N_ID], nodes.labels[:N_ID])
    with pytest.raises(ValueError, match=r"0 nodes of 120 while a minimum of 1 is req"):
        detector.score_samples(nodes[:0])


def test_an_empty_view_elsewhere(gnn, nodes):
    with pytest.raises(ValueError, match="NodeSet with 0 nodes of 120"):
        FeatureExtractor(gnn).fit(nodes[:0])
    body = FeatureExtractor(gnn).fit(nodes)
    for call in (body.transform, gnn.predict, gnn.predict_logits):
        with pytest.raises(ValueError, match="NodeSet with 0 nodes of 120"):
            call(nodes[:0])


# ---- detectors that look into the network


@pytest.mark.parametrize(
    "detector",
    [
        Gram(None, random_state=0),
        MultiLayerMahalanobis(None),
        ODIN(None, epsilon=0.0, temperature=2.0),
    ],
    ids=_name,
)
def test_detectors_that_read_layers(detector, gnn, nodes, monkeypatch):
    detector = detector.set_params(estimator=gnn)
    detector.fit(nodes[:N_ID], nodes.labels[:N_ID])
    scores = detector.score_samples(nodes)
    rows = [100, 5, 3, 3]
    found = detector.score_samples(nodes[rows])
    assert_allclose(found, scores[rows], rtol=1e-6)
    # what is handed on in blocks is the same
    monkeypatch.setattr("skood.graph._graph_network._BLOCK_BYTES", 1000)
    assert_allclose(detector.score_samples(nodes), scores, rtol=1e-6)
    in_rows = detector.score_samples(nodes.features)
    assert_allclose(in_rows[[5, 100]], scores[[5, 100]], rtol=1e-5)


def test_layers_are_those_that_run(gnn, nodes):
    detector = MultiLayerMahalanobis(gnn).fit(nodes[:N_ID], nodes.labels[:N_ID])
    assert detector.layers_ == ["layers.0"]
    named = MultiLayerMahalanobis(gnn, layers=["input:dropouts.1", "penultimate"])
    named.fit(nodes[:N_ID], nodes.labels[:N_ID])
    total = sum(
        Mahalanobis()
        .fit(
            read(gnn, nodes[:N_ID], {"features"}, layer=layer).features,
            nodes.labels[:N_ID],
        )
        .score_samples(read(gnn, nodes, {"features"}, layer=layer).features)
        for layer in named.layers
    )
    assert_allclose(named.score_samples(nodes), total, rtol=1e-6)
    linear = GraphClassifier(conv_params={"hidden": ()}, max_epochs=5, random_state=0)
    linear.fit(nodes[:N_ID], nodes.labels[:N_ID])
    detector.set_params(estimator=FrozenEstimator(linear))
    assert detector.fit(nodes[:N_ID], nodes.labels[:N_ID]).layers_ == ["penultimate"]


def test_layers_of_a_network_of_torch_geometric(nodes):
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
        detector = MultiLayerMahalanobis(clf).fit(nodes[:N_ID], nodes.labels[:N_ID])
        assert detector.layers_ == ["map", "conv"]


def test_detectors_that_would_move_rows(gnn, nodes):
    with pytest.raises(
        TypeError, match=r"moves each sample of X .* network GCN.*split"
    ):
        ODIN(gnn).fit(nodes[:N_ID])
    with pytest.raises(
        TypeError, match=r"replaces what a layer gives for a sample, on"
    ):
        RankFeat(gnn, layer="layers.0").fit(nodes[:N_ID])
    body, head = split(gnn)
    embeddings = body.transform(nodes)
    odin = ODIN(head).fit(embeddings[:N_ID])
    assert odin.score_samples(embeddings).shape == (120,)


def test_layers_that_cannot_be_read(nodes):
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
        MultiLayerMahalanobis(clf, layers=["pool"]).fit(nodes)
    with pytest.raises(ValueError, match="layer='root' gave NaN or infinity"):
        MultiLayerMahalanobis(clf, layers=["root"]).fit(nodes)


# ---- compositions


def test_rectifiers_in_a_pipeline(gnn, nodes):
    body, head = split(gnn)
    embeddings = body.transform(nodes)
    y = nodes.labels[:N_ID]
    for rectifier in (ReAct(), ASH(variant="s", percentile=50)):
        pipe = make_pipeline(FeatureExtractor(gnn), rectifier, Energy(head))
        pipe.fit(nodes[:N_ID], y)
        by_hand = clone(rectifier).fit(embeddings[:N_ID], y)
        detector = Energy(head).fit(by_hand.transform(embeddings[:N_ID]), y)
        assert_allclose(
            pipe.score_samples(nodes),
            detector.score_samples(by_hand.transform(embeddings)),
            rtol=1e-6,
        )
    dice = make_pipeline(FeatureExtractor(gnn), Energy(DICE(head, sparsity=0.5)))
    assert dice.fit(nodes[:N_ID], y).score_samples(nodes).shape == (120,)


def test_ensembles_of_detectors_run_the_network_once(gnn, nodes, monkeypatch):
    """For a view all that read it are served from one forward pass."""
    members = [("energy", Energy(gnn)), ("knn", KNN(gnn, n_neighbors=5))]
    ensemble = DetectorEnsemble(members, calibration=0.3, random_state=0)
    ensemble.fit(nodes[:N_ID], nodes.labels[:N_ID])
    p_values = ensemble.score_samples(nodes)
    rows = [100, 5, 3]
    assert_allclose(ensemble.score_samples(nodes[rows]), p_values[rows])
    module, calls = gnn.estimator.module_, []
    handle = module.register_forward_hook(lambda *args: calls.append(None))
    try:
        ensemble.score_samples(nodes)
    finally:
        handle.remove()
    assert len(calls) == 1


def test_dsde(gnn, nodes):
    members = [("energy", Energy(gnn)), ("knn", KNN(gnn, n_neighbors=5))]
    detector = DSDE(members, DOSStorey(c_m=0.5), calibration=0.4, random_state=0)
    detector.fit(nodes[:N_ID], nodes.labels[:N_ID])
    assert detector.score_samples(nodes).shape == (120,)


def test_reject_option(gnn, nodes):
    clf = RejectOptionClassifier(gnn, ood_detector=KNN(n_neighbors=5), random_state=0)
    clf.fit(nodes[:N_ID], nodes.labels[:N_ID])
    assert_array_equal(clf.predict_proba(nodes), gnn.predict_proba(nodes))
    y_pred = clf.predict(nodes)
    assert_array_equal(clf.predict(nodes[[100, 5]]), y_pred[[100, 5]])


def test_search_over_a_network_in_a_detector(nodes):
    """Networks are trained without the left-out classes, which then are OOD."""
    gnn = GraphClassifier(
        conv_params={"hidden": (8,)},
        max_epochs=4,
        random_state=0,
        training=TrainingOptions(early_stopping=False),
    )
    search = GridSearchCV(
        Energy(gnn),
        {
            "estimator__conv_params": [{"hidden": (4,)}, {"hidden": (8,)}],
            "temperature": [1.0, 2.0],
        },
        cv=LeaveClassesOut(left_out=[(0,), (3,)], random_state=0),
        scoring=make_ood_scorer(),
    )
    search.fit(nodes, nodes.labels)
    assert 0.5 < search.best_score_ <= 1
    assert search.best_estimator_.classes_.tolist() == [0, 1, 2, 3]
    assert_array_equal(
        search.score_samples(nodes), search.best_estimator_.score_samples(nodes)
    )
    # a detector that reads the search reads its best network
    logits = Energy(
        FrozenEstimator(
            GridSearchCV(gnn, {"lr": [0.01]}, cv=2).fit(nodes, nodes.labels)
        )
    )
    assert logits.fit(nodes, nodes.labels).score_samples(nodes).shape == (120,)


def test_cross_validation_of_a_detector(gnn, nodes):
    scores = cross_val_score(
        MSP(gnn),
        nodes,
        nodes.labels,
        cv=LeaveClassesOut(left_out=[(3,)], random_state=0),
        scoring=make_ood_scorer(),
    )
    assert scores[0] > 0.6
