"""Many models of nodes: dropout and ensembles, and what takes the head instead."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import softmax
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from torch import nn

from skood.base import UncertaintyDetector
from skood.epistemic import (
    HMC,
    QUAM,
    AdversarialSearch,
    CyclicalSGHMC,
    DeepEnsemble,
    HMCKernel,
    Laplace,
    MCDropout,
    MixtureLaplace,
)
from skood.graph import GraphClassifier, NodeSet, pretrained_graph
from skood.metrics import make_ood_scorer
from skood.model_selection import LeaveClassesOut
from skood.nn import LinearHead, TrainingOptions, split
from skood.nn._make_network import make_network

pytest.importorskip("torch_geometric")

from torch_geometric.nn import GATConv, GCNConv

from tests._loops import looped

pytestmark = pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")

N_TRAIN = 45
QUICK = {
    "conv_params": {"hidden": (8,)},
    "max_epochs": 60,
    "training": TrainingOptions(early_stopping=False),
    "random_state": 0,
}


def _with_dropout(p):
    return GraphClassifier(**{**QUICK, "conv_params": {"hidden": (8,), "dropout": p}})


def _nodes(kind=np.asarray, n_nodes=60):
    """Nodes linked within their class; one has no edge. Features dense or sparse."""
    rng = np.random.default_rng(0)
    y = np.arange(n_nodes) % 3
    X = rng.random((n_nodes, 9)) < np.where(np.arange(9) % 3 == y[:, None], 0.8, 0.1)
    linked = np.triu(rng.random((n_nodes, n_nodes)) < 0.1 * (y[:, None] == y), 1)
    linked[7] = linked[:, 7] = False
    return NodeSet((kind(X.astype(np.float64)), linked | linked.T), labels=y)


NODES = _nodes()
Y = NODES.labels
DATA = NODES, Y
TRAIN = NODES[:N_TRAIN], Y[:N_TRAIN]


@pytest.fixture(scope="module")
def gnn():
    return FrozenEstimator(GraphClassifier(**QUICK).fit(*TRAIN))


# ---- dropout


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_members_are_networks_thinned_by_hand(kind):
    """A mask for all nodes, from the numbers of the member and of the call."""
    nodes = _nodes(kind)
    clf = _with_dropout(0.3).fit(nodes, nodes.labels)
    mc = MCDropout(FrozenEstimator(clf), n_samples=4, random_state=0)
    members = mc.fit(nodes, nodes.labels).predict_members(nodes)
    net = clf.module_
    A = nodes.graph.operator("symmetric")
    X = _nodes().graph.X
    W = net.layers[0].weight.detach().double().numpy()
    b = net.biases[0].detach().double().numpy()
    V = net.head.weight.detach().double().numpy()
    c = net.head.bias.detach().double().numpy()
    for member in range(4):
        first, second = (
            np.random.default_rng([mc._seed, member, call]).random(width) >= 0.3
            for call, width in ((0, 9), (1, 8))
        )
        h = np.maximum(A @ (X * first / 0.7) @ W.T + b, 0)
        expected = softmax(A @ (h * second / 0.7) @ V.T + c, axis=1)
        assert_allclose(members[member], expected, rtol=1e-4)


def test_members_do_not_depend_on_the_view_or_the_call(gnn):
    mc = MCDropout(gnn, n_samples=5, random_state=0).fit(*DATA)
    members = mc.predict_members(NODES)
    assert members.shape == (5, 60, 3)
    assert np.ptp(members, axis=0).max() > 0.05
    for samples in ([7], [7, 59, 3, 3], np.arange(59, 0, -7)):
        assert_array_equal(mc.predict_members(NODES[samples]), members[:, samples])
    more = MCDropout(gnn, n_samples=8, random_state=0).fit(*DATA)
    assert_array_equal(more.predict_members(NODES)[:5], members)
    other = MCDropout(gnn, n_samples=5, random_state=1).fit(*DATA)
    assert not np.allclose(other.predict_members(NODES), members)
    again = pickle.loads(pickle.dumps(mc))
    assert_array_equal(again.predict_members(NODES), members)


def test_array_samples_get_the_masks_of_nodes(gnn):
    mc = MCDropout(gnn, n_samples=5, random_state=0).fit(*DATA)
    alone = NodeSet((NODES.features, np.zeros((60, 60))))
    members = mc.predict_members(NODES.features)
    assert_allclose(members, mc.predict_members(alone), rtol=1e-5)
    assert_allclose(members[:, 7], mc.predict_members(NODES)[:, 7], rtol=1e-5)
    mc.set_params(batch_size=7)
    assert_allclose(mc.predict_members(NODES.features), members, rtol=1e-5)


def test_the_mean_over_many_masks():
    """Of a linear network the mean logits are those of the whole network."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop, self.conv = nn.Dropout(0.5), GCNConv(9, 3)

        def forward(self, x, edge_index):
            return self.conv(self.drop(x), edge_index)

    torch.manual_seed(0)
    clf = pretrained_graph(Net(), [0, 1, 2])
    mc = MCDropout(clf, n_samples=600, random_state=0).fit(*DATA)
    logits = np.log(mc.predict_members(NODES))
    logits -= logits.mean(axis=2, keepdims=True)
    expected = clf.predict_logits(NODES)
    expected -= expected.mean(axis=1, keepdims=True)
    standard_error = logits.std(axis=0) / np.sqrt(600)
    assert (np.abs(logits.mean(axis=0) - expected) < 5 * standard_error).all()


@pytest.mark.parametrize("conv", ["gat", "sage", "appnp"])
def test_other_networks(conv):
    clf = GraphClassifier(conv, **QUICK).fit(*DATA)
    mc = MCDropout(FrozenEstimator(clf), n_samples=3, random_state=0)
    members = mc.fit(*DATA).predict_members(NODES)
    assert not np.allclose(members[0], members[1])
    # dropout of the weights of attention, a function, stays off
    assert_array_equal(mc.predict_members(NODES), members)
    uncertainty = mc.predict_uncertainty(NODES)
    assert (uncertainty.epistemic >= 0).all()


def test_settings(gnn):
    trained = MCDropout(GraphClassifier(**QUICK), n_samples=20, random_state=0)
    trained.fit(*TRAIN)
    members = trained.predict_members(NODES)
    assert_allclose(trained.predict_proba(NODES), members.mean(axis=0))
    assert trained.score(*DATA) > 0.8
    frozen = MCDropout(gnn, n_samples=20, random_state=0).fit(*DATA)
    assert_allclose(frozen.predict_proba(NODES), gnn.predict_proba(NODES))
    assert_array_equal(frozen.predict_members(NODES), members)


def test_blocks_and_progress(gnn, monkeypatch, capsys):
    mc = MCDropout(gnn, n_samples=5, random_state=0, verbose=1)
    whole = mc.fit(*DATA).predict_uncertainty(NODES)
    assert "5/5" in capsys.readouterr().err
    monkeypatch.setattr("skood.epistemic._mc_dropout.GRAPH_BYTES", 25 * 32 * 5 * 3)
    assert [b.predictions.shape[1] for b in mc._blocks(NODES)] == [25, 25, 10]
    capsys.readouterr()
    parts = mc.predict_uncertainty(NODES)
    assert "15/15" in capsys.readouterr().err
    for name, submodule in parts.items():
        assert_array_equal(submodule, whole[name])
    mc.set_params(batch_size=20).predict_proba(NODES.features)
    mc.predict_uncertainty(NODES.features)
    assert "3/3" in capsys.readouterr().err


def test_in_a_pipeline_a_search_and_a_detector():
    pipe = make_pipeline(FunctionTransformer(), GraphClassifier(**QUICK))
    mc = MCDropout(pipe, n_samples=5, random_state=0)
    members = mc.fit(*TRAIN).predict_members(NODES)
    plain = MCDropout(GraphClassifier(**QUICK), n_samples=5, random_state=0)
    plain.fit(*TRAIN)
    assert_array_equal(members, plain.predict_members(NODES))
    grid = {"estimator__conv_params": [{"dropout": 0.2}, {"dropout": 0.5}]}
    plain.set_params(estimator__max_epochs=20)
    search = GridSearchCV(plain, grid, cv=2)
    assert search.fit(*DATA).best_params_.keys() == grid.keys()
    detector = UncertaintyDetector(search.best_estimator_, component="total")
    score = cross_val_score(
        detector,
        NODES,
        Y,
        cv=LeaveClassesOut(left_out=[(2,)], random_state=0),
        scoring=make_ood_scorer(),
    )
    assert score[0] > 0.6


class Net(nn.Module):
    """A network of the user."""

    def __init__(self, drop=None, closing=None, last=GCNConv, heads=1):
        super().__init__()
        self.first, self.last = GCNConv(9, 6), last(6, 3)
        self.drop = drop or nn.Dropout(0.5)
        self.closing = closing or nn.Identity()

    def forward(self, x, edge_index):
        """Logits, or what comes behind them."""
        h = self.drop(torch.relu(self.first(x, edge_index)))
        return self.closing(self.last(h, edge_index))


def _wrapped(make=Net, **options):
    torch.manual_seed(0)
    return pretrained_graph(make().double(), [0, 1, 2], **options)


def test_network_of_the_user_is_unchanged():
    clf = _wrapped()
    module = clf.estimator.module.train()
    before = {name: set(vars(submodule)) for name, submodule in module.named_modules()}
    weights = {name: w.clone() for name, w in module.state_dict().items()}
    mc = MCDropout(clf, n_samples=3).fit(*DATA)
    mc.predict_uncertainty(NODES)
    assert all(submodule.training for submodule in module.modules())
    for name, submodule in module.named_modules():
        assert set(vars(submodule)) == before[name]
        assert not submodule._forward_hooks
    assert all(p.requires_grad and p.grad is None for p in module.parameters())
    for name, weight in module.state_dict().items():
        assert torch.equal(weight, weights[name])


def _by_hand(module, nodes, mask):
    """Probabilities of a `Net` with a given mask."""
    edges = torch.tensor(np.stack(nodes.adjacency.nonzero()).astype(np.int64))
    with torch.no_grad():
        h = torch.relu(module.first(torch.tensor(nodes.graph.X), edges))
        logits = module.last(h * torch.tensor(mask / 0.5), edges)
    return softmax(logits.numpy(), axis=1)


@looped("inplace", [True, False])
@looped("closing", [None, nn.Softmax(1), nn.LogSoftmax(1)])
@looped("last", [GCNConv, GATConv])
def test_networks_of_torch_geometric(last, closing, inplace):
    clf = _wrapped(lambda: Net(nn.Dropout(0.5, inplace), closing, last))
    mc = MCDropout(clf, n_samples=3, random_state=0).fit(*DATA)
    for member, proba in enumerate(mc.predict_members(NODES)):
        mask = np.random.default_rng([mc._seed, member, 0]).random(6) >= 0.5
        expected = _by_hand(clf.estimator.module, NODES, mask)
        assert_allclose(proba, expected, rtol=1e-10)


def test_digits_behind_a_softmax_are_preserved():
    """Sure predictions: the probabilities alone would not tell the logits."""
    clf = _wrapped(lambda: Net(closing=nn.Softmax(1)))
    with torch.no_grad():
        clf.estimator.module.last.lin.weight *= 1e4
    mc = MCDropout(clf, n_samples=3, random_state=0).fit(*DATA)
    (block,) = mc._blocks(NODES)
    assert np.isfinite(block.predictions).all()
    assert block.predictions.min() < -800


def test_outputs_that_are_probabilities():
    class Powers(nn.Module):
        def forward(self, x):
            p = torch.softmax(x, 1) ** 2
            return p / p.sum(1, keepdim=True)

    clf = _wrapped(lambda: Net(closing=Powers()), output="probabilities")
    plain = _wrapped()
    with torch.no_grad():
        plain.estimator.module.last.lin.weight *= 2
    result, expected = (
        MCDropout(item, n_samples=3, random_state=0).fit(*DATA).predict_members(NODES)
        for item in (clf, plain)
    )
    assert_allclose(result, expected, rtol=1e-6)


def test_a_convolution_that_returns_its_attention_too():
    class Attentive(Net):
        def forward(self, x, edge_index):
            h = self.drop(torch.relu(self.first(x, edge_index)))
            logits, _ = self.last(h, edge_index, return_attention_weights=True)
            return torch.log_softmax(logits, 1)

    clf = _wrapped(lambda: Attentive(last=GATConv))
    mc = MCDropout(clf, n_samples=2, random_state=0).fit(*DATA)
    mask = np.random.default_rng([mc._seed, 1, 0]).random(6) >= 0.5
    expected = _by_hand(clf.estimator.module, NODES, mask)
    assert_allclose(mc.predict_members(NODES)[1], expected, rtol=1e-10)


def test_dropout_of_edges():
    """A mask for all edges; loops that the network adds are rows like others."""

    class Edges(Net):
        def forward(self, x, edge_index):
            h = torch.relu(self.first(x, edge_index))
            weights = self.drop(torch.ones(edge_index.shape[1], 1, dtype=x.dtype))
            return self.last(h, edge_index, weights[:, 0])

    clf = _wrapped(Edges)
    mc = MCDropout(clf, n_samples=20, random_state=0).fit(*DATA)
    members = mc.predict_members(NODES)
    assert len(np.unique(members[:, 0, 0])) == 2  # with all edges, or without any
    assert_allclose(members[:, 7], members[[0] * 20, 7])  # has none


def test_networks_without_dropout():
    for clf in (
        GraphClassifier(**QUICK).set_params(
            conv_params={"hidden": (8,), "dropout": 0.0}
        ),
        _wrapped(lambda: Net(nn.ReLU())),
    ):
        with pytest.raises(ValueError, match=r"found no torch\.nn dropout module"):
            MCDropout(clf).fit(*DATA)

    class Unused(Net):
        def forward(self, x, edge_index):
            return self.last(self.first(x, edge_index), edge_index)

    mc = MCDropout(_wrapped(Unused)).fit(*DATA)
    message = "modules of Unused do not run when it predict"
    with pytest.raises(ValueError, match=message):
        mc.predict_members(NODES)


def test_dropout_that_comes_too_late():
    class Late(Net):
        def forward(self, x, edge_index):
            logits = self.last(self.first(x, edge_index), edge_index)
            return torch.softmax(self.drop(logits), 1)

    class Twice(Net):  # the last layer also runs before dropout
        def forward(self, x, edge_index):
            h = self.first(x, edge_index)
            h = self.drop(h) + self.last(h, edge_index).mean()
            return torch.softmax(self.last(h, edge_index), 1)

    mc = MCDropout(_wrapped(Late)).fit(*DATA)
    message = "'drop' runs after the layer that gives the l"
    with pytest.raises(ValueError, match=message):
        mc.predict_members(NODES)
    mc = MCDropout(_wrapped(Twice), n_samples=4).fit(*DATA)
    assert np.ptp(mc.predict_members(NODES), axis=0).max() > 0


def test_dropout_over_another_axis():
    class Turned(Net):
        def forward(self, x, edge_index):
            h = torch.relu(self.first(x, edge_index))
            return self.last(self.drop(h.T).T, edge_index)

    mc = MCDropout(_wrapped(Turned), n_samples=2).fit(*DATA)
    with pytest.raises(ValueError, match=r"array of shape \(6, 60\), on a graph of 60"):
        mc.predict_members(NODES)


def test_logits_that_are_not_finite():
    clf = _wrapped(lambda: Net(nn.Dropout(0.9)))
    with torch.no_grad():
        clf.estimator.module.last.lin.weight *= 1e308
    mc = MCDropout(clf, n_samples=8, setting="a", random_state=0)
    with pytest.raises(ValueError, match="A thinned network returned NaN or infinite"):
        mc.fit(*DATA).predict_proba(NODES)


def test_progress_is_optional(gnn):
    networks = make_network(gnn).with_dropout("cpu", 0)
    samples = networks.prepare(NODES)
    assert networks.log_proba(samples, 2).shape == (2, 60, 3)


# ---- ensembles


def test_ensembles(monkeypatch):
    net = GraphClassifier(**{**QUICK, "random_state": None})
    ensemble = DeepEnsemble(net, n_members=3, random_state=0)
    ensemble.fit(*TRAIN)
    members = ensemble.predict_members(NODES)
    for member, clf in zip(members, ensemble.estimators_, strict=True):
        assert_allclose(member, clf.predict_proba(NODES), rtol=1e-10)
    assert not np.allclose(members[0], members[1])
    assert_allclose(ensemble.predict_proba(NODES), members.mean(axis=0))
    samples = [7, 59, 3, 3]
    assert_allclose(ensemble.predict_members(NODES[samples]), members[:, samples])
    again = pickle.loads(pickle.dumps(ensemble))
    assert_allclose(again.predict_members(NODES), members, rtol=1e-6)
    monkeypatch.setattr("skood.epistemic._deep_ensemble.GRAPH_BYTES", 25 * 32 * 3 * 3)
    assert len(list(ensemble._blocks(NODES))) == 3
    assert_allclose(ensemble.predict_members(NODES), members)


@pytest.mark.slow
def test_ensembles_in_processes():
    net = GraphClassifier(**{**QUICK, "max_epochs": 5})
    result, expected = (
        DeepEnsemble(net, n_members=2, random_state=0, n_jobs=n_jobs)
        .fit(*TRAIN)
        .predict_proba(NODES)
        for n_jobs in (2, None)
    )
    assert_allclose(result, expected, rtol=1e-5)


def test_ensembles_of_frozen_networks_and_bootstrap(gnn):
    other = GraphClassifier("sage", **QUICK).fit(*TRAIN)
    ensemble = DeepEnsemble([gnn, FrozenEstimator(other)]).fit(*DATA)
    expected = (gnn.predict_proba(NODES) + other.predict_proba(NODES)) / 2
    assert_allclose(ensemble.predict_proba(NODES), expected)
    drawn = DeepEnsemble(
        GraphClassifier(**QUICK), n_members=2, bootstrap=True, random_state=0
    ).fit(*TRAIN)
    detector = UncertaintyDetector(FrozenEstimator(drawn)).fit(*DATA)
    scores = detector.score_samples(NODES)
    assert_allclose(scores, -drawn.predict_uncertainty(NODES).epistemic)


# ---- models of the head


@pytest.mark.parametrize("kind", [HMC, Laplace, QUAM, CyclicalSGHMC, MixtureLaplace])
def test_members_that_replace_weights_refuse_a_graph_network(kind, gnn):
    new = Laplace(GraphClassifier(**QUICK))
    estimator = new if kind is MixtureLaplace else gnn
    with pytest.raises(TypeError, match=r"Split it, body, head = .*Laplace\(head\)"):
        kind(estimator).fit(*TRAIN)


@pytest.mark.parametrize(
    "make",
    [
        lambda head: Laplace(head, random_state=0),
        lambda head: QUAM(head, search=AdversarialSearch(n_steps=3), random_state=0),
        lambda head: HMC(
            head, HMCKernel(n_warmup=10), n_samples=4, n_chains=1, random_state=0
        ),
        lambda head: Laplace(LinearHead(), random_state=0),
    ],
    ids=["Laplace", "QUAM", "HMC", "Laplace-new"],
)
def test_they_take_the_head_on_embeddings(make, gnn):
    body, head = split(gnn)
    embeddings = body.transform(NODES)
    clf = make(head).fit(embeddings[:N_TRAIN], Y[:N_TRAIN])
    assert clf.score(embeddings, Y) > 0.8
    # all in one, on nodes
    pipe = make_pipeline(body, make(head)).fit(*TRAIN)
    assert_allclose(pipe.predict_proba(NODES), clf.predict_proba(embeddings), rtol=1e-5)


@pytest.mark.parametrize("kind", [MCDropout, DeepEnsemble])
def test_an_empty_view(kind):
    clf = kind(GraphClassifier(**{**QUICK, "random_state": None}), 2, random_state=0)
    with pytest.raises(ValueError, match="NodeSet with 0 nodes of 60"):
        clf.fit(NODES[:0], [])
    clf.fit(*DATA)
    for call in (clf.predict, clf.predict_members, clf.predict_uncertainty):
        with pytest.raises(ValueError, match="NodeSet with 0 nodes of 60"):
            call(NODES[:0])
