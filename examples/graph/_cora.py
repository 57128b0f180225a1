"""
=============================================
CoraML with left-out classes: data and models
=============================================

Helpers of the examples on graphs: a citation graph with left-out classes, by the
protocol of the study of evidential probes [1]_, or a generated graph, and the models
that are compared. This file has no figures.

.. [1] L. Yu et al. Evidential uncertainty probes for graph neural networks.
   AISTATS 2025.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Cases
# -----
#
# A case is a graph with a choice of left-out classes. Twenty nodes of each class are
# for training, 20 % of all nodes for the test, and the others for early stopping; then
# the left-out classes are removed from the training and the validation part. A network
# is trained and frozen, for all models of a frozen network.
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Bunch
from threadpoolctl import threadpool_limits

from skood.base import UncertaintyDetector
from skood.combine import DetectorEnsemble, Fisher
from skood.datasets import load_graph, make_ood_graph, paper_ood_splits, split_nodes
from skood.detectors import MSP, Energy, Entropy
from skood.epistemic import DeepEnsemble, MCDropout
from skood.evidential import EvidentialClassifier, EvidentialProbe, ProbeObjective
from skood.graph import (
    GKDENetwork,
    GraphClassifier,
    GraphPosteriorNetwork,
    Propagation,
)


def cora_ml(folder):
    """Return CoraML, its labels, and the left-out classes of each setting."""
    nodes, y = load_graph("CoraML", folder, return_X_y=True)
    return nodes, y, paper_ood_splits("CoraML")


def generated():
    """Return a graph of 3,000 nodes like it, and two settings."""
    nodes, y = make_ood_graph(
        3000,
        n_classes=7,
        n_features=1000,
        average_degree=5,
        homophily=0.7,
        features="words",
        feature_signal=0.5,
        return_X_y=True,
        random_state=0,
    )
    return nodes, y, {"OS-1": (4, 5, 6), "OS-2": (0, 1, 2)}


def new_network(seed):
    """Return an untrained graph convolutional network."""
    return GraphClassifier(random_state=seed)


def make_case(nodes, y, left_out, seed=0):
    """Split the nodes, and train a network."""
    split = split_nodes(y, left_out, random_state=seed)
    case = Bunch(
        train=(nodes[split.train], y[split.train]),
        valid={"X_val": nodes[split.valid], "y_val": y[split.valid]},
        test=(nodes[split.test], y[split.test]),
        is_ood=split.is_ood[split.test],
        seed=seed,
    )
    network = new_network(seed).fit(*case.train, **case.valid)
    return Bunch(**case, network=FrozenEstimator(network))


# %%
# Models
# ------
#
# The models of the study, under its names: VGNN is the plain network, GPN the graph
# posterior network, SGNN-GKDE the network regularized towards the kernel estimate of
# evidence, EGNN the evidential one, and EPN the probe. The score of uncertainty
# classifiers is minus the vacuity, and for dropout and the ensemble minus the entropy
# of the mean. If only the propagation differs, nothing is fitted twice.


def gnnsafe(network):
    """Return the energy, propagated as by the authors of GNNSafe."""
    return Propagation(Energy(network), scheme="gnnsafe")


DETECTORS = {
    "VGNN-entropy": Entropy,
    "VGNN-max_score": MSP,
    "VGNN-energy": Energy,
    "VGNN-gnnsafe": gnnsafe,
}
PROBES = {"EPN": {"lambda_ice": 0, "lambda_pcl": 0}, "EPN-reg": {}}


def fitted(case, model):
    """Return a model after its fit to the nodes of a case."""
    return model.fit(*case.train, **case.valid)


def auroc_of(case, model, component="epistemic"):
    """Return the AUROC of left-out nodes for a detector, or a fitted classifier."""
    if hasattr(model, "predict_uncertainty"):
        model = UncertaintyDetector(FrozenEstimator(model), component=component)
    return model.fit(*case.train).score(*case.test)


def plain(case, n_members=10):
    """Return the AUROC of scores of the plain network, and of an ensemble."""
    of = case.network
    detectors = {name: make(of) for name, make in DETECTORS.items()}
    detectors["entropy, random walk"] = Propagation(Entropy(of))
    areas = {name: auroc_of(case, detector) for name, detector in detectors.items()}
    dropout = MCDropout(of, n_samples=10, setting="a", random_state=case.seed)
    others = [
        FrozenEstimator(fitted(case, new_network(case.seed + i)))
        for i in range(1, n_members)
    ]
    members = {"VGNN-dropout": dropout, "VGNN-ensemble": DeepEnsemble([of, *others])}
    for name, model in members.items():
        areas[name] = auroc_of(case, model.fit(*case.train), "total")
    return areas


def posterior(case):
    """Return the AUROC of GPN and of SGNN-GKDE."""
    gpn = GraphPosteriorNetwork(random_state=case.seed)
    gkde = GKDENetwork(teacher=case.network, random_state=case.seed)
    return {
        "GPN": auroc_of(case, fitted(case, gpn)),
        "SGNN-GKDE": auroc_of(case, fitted(case, gkde)),
    }


def evidential(case):
    """Return the AUROC of EGNN, by the propagated quantity."""
    model = fitted(case, EvidentialClassifier(new_network(case.seed)))
    return {
        name: auroc_of(case, model.set_params(propagation=propagation))
        for name, propagation in {
            "EGNN": None,
            "EGNN-vacuity": "vacuity",
            "EGNN-evidence": "evidence",
            "EGNN-both": "both",
        }.items()
    }


def probe(case, **weights):
    """Return the fitted probe of a case's network."""
    objective = ProbeObjective(**weights)
    return fitted(
        case, EvidentialProbe(case.network, objective, random_state=case.seed)
    )


def probes(case):
    """Return the AUROC of EPN, without and with its regularizers."""
    return {
        name: auroc_of(case, probe(case, **weights)) for name, weights in PROBES.items()
    }


# %%
# Combination
# -----------
#
# The default over graphs recommended by the user guide: the probe, the propagated
# entropy, the same with logarithms of p-values, and GNNSafe with logarithms of p-values
# of the energy, which unlike energies are bounded. The validation nodes are used for
# p-values.


def log_pvalues(detector, train, valid):
    """Return a fitted detector whose scores are logarithms of p-values."""
    members = [("detector", FrozenEstimator(detector.fit(*train)))]
    single = DetectorEnsemble(members, calibration="same", level="nominal")
    return FrozenEstimator(single.fit(*valid))


def combined(network, probe, train, valid):
    """Return the fitted combination around a network and a probe of it."""
    entropy = log_pvalues(Entropy(network), train, valid)
    energy = log_pvalues(Energy(network), train, valid)
    members = {
        "probe": UncertaintyDetector(FrozenEstimator(probe)),
        "entropy": Propagation(Entropy(network)),
        "p-value of entropy": Propagation(entropy),
        "p-value of energy": Propagation(energy, scheme="gnnsafe"),
    }
    members = [
        (name, FrozenEstimator(one.fit(*train))) for name, one in members.items()
    ]
    ensemble = DetectorEnsemble(members, Fisher(), calibration="same", random_state=0)
    return ensemble.fit(*valid)


def combination(case):
    """Return the AUROC of the combination."""
    valid = tuple(case.valid.values())
    ensemble = combined(case.network, probe(case), case.train, valid)
    return {"combined": ensemble.score(*case.test)}


def all_models(nodes, y, left_out):
    """Return the AUROC of all models by name, for left-out classes, on one thread."""
    with threadpool_limits(1):
        case = make_case(nodes, y, left_out)
        return {
            **plain(case),
            **posterior(case),
            **evidential(case),
            **probes(case),
            **combination(case),
        }
