"""Models of the study of evidential probes on graphs, under the paper's names."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import time
from copy import copy
from functools import lru_cache, partial
from itertools import product

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Bunch

from benchmarks.reproduce._paper import own_method
from benchmarks.reproduce._recipes import printed_recipe
from benchmarks.reproduce._run import placed
from skood.base import UncertaintyDetector
from skood.combine import DetectorEnsemble, Fisher
from skood.datasets import split_nodes
from skood.detectors import MSP, Energy, Entropy, MaxLogit
from skood.epistemic import DeepEnsemble, MCDropout
from skood.evidential import EvidentialClassifier, EvidentialProbe, ProbeObjective
from skood.graph import (
    GKDE,
    GKDENetwork,
    GraphClassifier,
    GraphPosteriorNetwork,
    Propagation,
)
from skood.metrics import ranking_metrics
from skood.nn import TrainingOptions

N_SPLITS = N_INITS = 5
N_MEMBERS = 10
CONVOLUTIONS = {"GCN": None, "GAT": {"hidden": (64,), "heads": 8}}
EGNN_SCHEMES = {
    "EGNN": None,
    "EGNN-vacuity-prop": "vacuity",
    "EGNN-evidence-prop": "evidence",
    "EGNN-vacuity-evidence-prop": "both",
}
#: parameters of the objective; weights that are not here are searched, see `search`.
PROBES = {
    "EPN": {"lambda_ice": 0, "lambda_pcl": 0},
    "EPN+ICE": {"lambda_pcl": 0},
    "EPN-reg": {},
    "EPN-reg, without OOD data": {},
    "EPN-reg, default weights": {"lambda_ice": 1e-3, "lambda_pcl": 1e-3},
    "EPN+ICE, softplus": {"lambda_pcl": 0, "activation": "softplus"},
    "EPN+ICE, second-to-last": {"lambda_pcl": 0},
}
WEIGHTS = (0, 1e-4, 1e-3, 1e-2, 0.1)
MODELS = (
    *("VGNN-entropy", "VGNN-max-score", "VGNN-energy", "VGNN-gnnsafe"),
    *("VGNN-dropout", "VGNN-ensemble", "GPN", "SGNN-GKDE", *EGNN_SCHEMES),
    *("EPN", "EPN-reg"),
)
EXTRA = (
    *("VGNN-entropy, walk", "VGNN-energy, walk", "VGNN-max-logit, walk", "combined"),
    *("EPN-reg, default weights", "EPN-reg, without OOD data"),
)


def graph_recipe(graph):
    """Return the printed recipe with the settings of a graph; generated: CoraML's."""
    recipe = printed_recipe("epn")
    graph = graph if graph in recipe["network"] else "CoraML"
    recipe["network"] = recipe["network"][graph]
    recipe["baselines"]["GPN"] = recipe["baselines"]["GPN"][graph]
    return recipe


@lru_cache(maxsize=64)
def _trained(case_key, number):
    """Return a network trained on the nodes of a case, frozen, and its seconds."""
    case = case_key.case
    return timed(case.new_network(number), *case.train, **case.valid)


class _Key:
    """A case as the key of a cache: equal if what networks are trained on is."""

    def __init__(self, case, values):
        self.case, self.values = case, values

    def __hash__(self):
        return hash(self.values)

    def __eq__(self, other):
        return self.values == other.values


def timed(estimator, *data, **named):
    """Return a fitted estimator, and the CPU seconds of its fit."""
    start = time.process_time()
    estimator.fit(*data, **named)
    return estimator, time.process_time() - start


class Case:
    """A split of the nodes of a graph, with left-out classes, and its models."""

    def __init__(self, graph, left_out, seed, conv, device, key):
        nodes = graph.nodes
        y = nodes.labels
        split_seed, self.init = divmod(seed, N_INITS)
        split = split_nodes(nodes, left_out, split=graph.split, random_state=split_seed)
        self.train = nodes[split.train], y[split.train]
        self.valid = {"X_val": nodes[split.valid], "y_val": y[split.valid]}
        self.test, self.y_test = nodes[split.test], y[split.test]
        self.is_ood = split.is_ood[split.test]
        self.conv, self.options = conv, graph.options
        self.device, self.epochs = device, graph.epochs
        self.n_members = graph.n_members
        self.first = 100 * split_seed
        self.weights = graph.weights
        self.is_clean = not left_out
        self.printed = graph.printed
        is_printed = self.printed is not None
        self.key = _Key(self, (*key, left_out, split_seed, conv, is_printed))
        self._fitted = {}

    def training(self, kind, number=None):
        """Return parameters of training; a number is the one of a network."""
        number = self.init if number is None else number
        params = {"random_state": self.first + number, "device": self.device}
        if kind in self.epochs:
            params["max_epochs"] = self.epochs[kind]
        elif self.printed is not None and kind != "probe":
            params["max_epochs"] = 10_000  # the patience ends the training
        if self.printed is not None:
            recipe = self.printed["training"]
            own = self.printed["baselines"].get(kind, recipe)
            decay = own["weight_decay"]
            if kind == "GPN":  # of a sum over nodes, where our loss is their mean
                decay /= len(self.train[1])
            params["lr"] = recipe["lr"]
            params["training"] = TrainingOptions(
                optimizer=recipe["optimizer"],
                weight_decay=decay,
                n_iter_no_change=self.printed["network"]["patience"],
            )
        return params

    def new_network(self, number, hidden=None):
        """Return an untrained network, with other hidden layers if given."""
        params = self.options or CONVOLUTIONS[self.conv]
        if self.printed is not None:
            network = self.printed["network"]
            params = {
                **(params or {}),
                "hidden": hidden or network["hidden"],
                "batch_norm": network["batch_norm"],
                "dropout": self.printed["hidden_dropout"],
                "input_dropout": self.printed["input_dropout"],
            }
        return GraphClassifier(
            self.conv.lower(), conv_params=params, **self.training("network", number)
        )

    def network(self, number=0):
        """Return a trained network, frozen, and its seconds."""
        network, seconds = _trained(self.key, self.init + number)
        return FrozenEstimator(network), seconds

    def fitted(self, kind):
        """Return a fitted model, and its seconds; models with one fit share it."""
        key, fit = kind, partial(_fit, self, kind)
        if kind in PROBES:
            weights = PROBES[kind]
            if not {"lambda_ice", "lambda_pcl"} <= weights.keys():
                weights = weights | self.weights(kind, self.is_clean)
            key = _layer(kind), *sorted(weights.items())
            fit = partial(_probe, self, kind, weights)
        if key not in self._fitted:
            self._fitted[key] = fit()
        return self._fitted[key]

    def without(self, label):
        """Return the case without a class, tested on the validation nodes."""
        inner = copy(self)
        X, y = self.train
        inner.train = X[y != label], y[y != label]
        X, y = self.valid["X_val"], self.valid["y_val"]
        inner.test, inner.y_test, inner.is_ood = X, y, y == label
        inner.valid = {"X_val": X[y != label], "y_val": y[y != label]}
        inner.key = _Key(inner, (*self.key.values, label))
        inner._fitted = {}
        return inner

    def scores(self, name, method=None):
        """Return a Bunch: score and certainty of the test nodes, classifier, seconds.

        Scores are high for ID nodes, certainty is high for correct predictions.
        """
        network, network_seconds = self.network()
        detector = _detector(name, self, network, method)
        if detector is not None:
            detector, seconds = timed(placed(detector, self.device), *self.train)
            score = detector.score_samples(self.test)
            if name.startswith("VGNN"):
                seconds += network_seconds
            return Bunch(
                score=score, certainty=score, classifier=network, seconds=seconds
            )
        kind = "EGNN" if name.startswith("EGNN") else name
        model, seconds = self.fitted(kind)
        if kind == "EGNN":
            model.set_params(propagation=EGNN_SCHEMES[name])
        if self.printed is not None and name.startswith("VGNN"):
            largest = model.predict_proba(self.test).max(axis=1)
            return Bunch(
                score=largest, certainty=largest, classifier=model, seconds=seconds
            )
        component = "total" if name.startswith("VGNN") else "epistemic"
        uncertainty = model.predict_uncertainty(self.test)
        return Bunch(
            score=-uncertainty[component],
            certainty=-uncertainty.aleatoric,
            classifier=model,
            seconds=seconds,
        )


def _detector(name, case, network, method):
    """Return an unfitted detector of a network, or None for an uncertainty."""
    if method is not None:
        return own_method(method, network)
    if name == "combined":
        return _Combined(case, network)
    make = {
        "VGNN-entropy": Entropy,
        "VGNN-max-score": MSP,
        "VGNN-energy": Energy,
        "VGNN-gnnsafe": lambda given: Propagation(Energy(given), scheme="gnnsafe"),
        "VGNN-entropy, walk": lambda given: Propagation(Entropy(given)),
        "VGNN-energy, walk": lambda given: Propagation(Energy(given)),
        "VGNN-max-logit, walk": lambda given: Propagation(MaxLogit(given)),
    }.get(name)
    return None if make is None else make(network)


def _fit(case, kind):
    """Return a fitted model of uncertainty, and its CPU seconds."""
    network, network_seconds = case.network()
    if kind == "VGNN-dropout":
        model = MCDropout(network, n_samples=case.n_members, setting="a")
        model.set_params(random_state=case.first + case.init)
        model, seconds = timed(model, *case.train)
        return model, seconds + network_seconds
    if kind == "VGNN-ensemble":
        members = [case.network(number) for number in range(case.n_members)]
        networks, seconds = zip(*members, strict=True)
        return DeepEnsemble(list(networks)).fit(*case.train), sum(seconds)
    recipe = {} if case.printed is None else case.printed["baselines"][kind]
    if kind == "GPN":
        model = GraphPosteriorNetwork(**case.training("GPN"))
        if recipe:
            names = "hidden", "latent_dim", "dropout", "teleport", "n_steps"
            model.set_params(
                module_params={name: recipe[name] for name in names},
                certainty_budget=recipe["certainty_budget"],
                lambda_entropy=recipe["lambda_entropy"],
                warmup_epochs=recipe["warmup_epochs"],
            )
    elif kind == "SGNN-GKDE":
        hidden = recipe.get("backbone_hidden")
        model = GKDENetwork(case.new_network(case.init, hidden), teacher=network)
        if recipe:
            model.set_params(
                gkde=GKDE(recipe["sigma"], cutoff=recipe["cutoff"]),
                lambda_gkde=recipe["lambda_gkde"],
                **{"lambda_teacher": 1.0, "ramp": 200},  # min(1, t / 200)
            )
    else:
        model = EvidentialClassifier(case.new_network(case.init), **recipe)
    return timed(model, *case.train, **case.valid)


def _layer(kind):
    return "penultimate" if kind.endswith("second-to-last") else "last"


def _probe(case, kind, weights):
    """Return a fitted probe with parameters of its objective, and its CPU seconds."""
    objective = ProbeObjective(**weights)
    if case.printed is not None:  # equation 11
        ends = {name: case.printed["probe"][name] for name in ("e_id", "e_ood")}
        objective.set_params(concentration="paper", **ends)
    probe = EvidentialProbe(
        case.network()[0],
        objective,
        layer=_layer(kind),
        propagation="vacuity",
        **case.training("probe"),
    )
    return timed(probe, *case.train, **case.valid)


def search(case, kind, grid):
    """Return the weights of the regularizers with the largest AUROC, and the AUROC.

    As in the paper, it is that of the test nodes, with OOD nodes among them; without
    left-out classes, that of the errors on validation nodes. "without OOD data" is the
    mean over the known classes, each left out of the training nodes, among validation
    nodes. The first of equal values counts.
    """
    fixed = PROBES[kind]
    names = [name for name in ("lambda_ice", "lambda_pcl") if name not in fixed]
    cases = [case]
    if kind.endswith("without OOD data"):
        cases = [case.without(label) for label in np.unique(case.train[1])]
    candidates = [
        dict(zip(names, values, strict=True))
        for values in product(grid, repeat=len(names))
    ]
    found = [
        np.mean([_auroc(one, kind, fixed | weights) for one in cases])
        for weights in candidates
    ]
    best = int(np.argmax(found))
    return candidates[best], float(found[best])


def _auroc(case, kind, weights):
    """Return the AUROC, in percent, that weights are searched by."""
    probe, _ = _probe(case, kind, weights)
    if case.is_clean:
        X, y = case.valid["X_val"], case.valid["y_val"]
        positive = probe.predict(X) == y
        score = -probe.predict_uncertainty(X).aleatoric
    else:
        positive = ~case.is_ood
        score = -probe.predict_uncertainty(case.test).epistemic
    if positive.all():
        return 100.0
    return 100 * ranking_metrics(np.where(positive, 1, -1), score)["auroc"]


class _Combined:
    """Probe, propagated entropy and GNNSafe, combined by Fisher's test of p-values."""

    def __init__(self, case, network):
        self.case, self.network = case, network

    def fit(self, X, y):
        """Fit the members on training nodes, p-values on validation nodes."""
        valid = tuple(self.case.valid.values())
        probe, _ = self.case.fitted("EPN-reg, default weights")

        def log_pvalues(detector):
            members = [("detector", FrozenEstimator(detector.fit(X, y)))]
            single = DetectorEnsemble(members, calibration="same", level="nominal")
            return FrozenEstimator(single.fit(*valid))

        of = self.network
        members = {
            "probe": UncertaintyDetector(FrozenEstimator(probe)),
            "entropy": Propagation(Entropy(of)),
            "p-value of entropy": Propagation(log_pvalues(Entropy(of))),
            "p-value of energy": Propagation(log_pvalues(Energy(of)), scheme="gnnsafe"),
        }
        members = [(k, FrozenEstimator(one.fit(X, y))) for k, one in members.items()]
        self.ensemble = DetectorEnsemble(
            members, Fisher(), calibration="same", random_state=0
        ).fit(*valid)
        return self

    def score_samples(self, X):
        """Return scores, high for ID nodes."""
        return self.ensemble.score_samples(X)
