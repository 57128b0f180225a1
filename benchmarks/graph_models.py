"""The models that ``graph.py`` compares, and how one of them is judged.

A model is a function of a `Case` and the number of an initialization. It returns what
`fitted` does: a classifier, the seconds that its parts took to fit, and for each of its
rows in the table two scores of the test nodes, high for nodes that are ID, or that are
classified correctly. Detectors and probes are those of the example on CoraML, and more.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Bunch

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "graph"))

import _cora

from skood.datasets import split_nodes
from skood.detectors import Energy, Entropy
from skood.epistemic import DeepEnsemble, MCDropout
from skood.evidential import EvidentialClassifier, EvidentialProbe, ProbeObjective
from skood.graph import (
    GKDENetwork,
    GraphClassifier,
    GraphPosteriorNetwork,
    Propagation,
)
from skood.metrics import auroc, brier, expected_calibration_error, fpr_at_tpr

# Members of an ensemble; passes with dropout.
N_MEMBERS = 10

# Weights of the regularizers, and the schemes of propagation that each probe is read
# with; None is its row without a suffix.
PROBES = {
    **_cora.PROBES,
    "EPN-ICE": {"lambda_pcl": 0},
    "EPN-PCL": {"lambda_ice": 0},
}
PROBE_SCHEMES = None, "vacuity", "evidence", "evidence-sym", "vacuity-paper"
EGNN_SCHEMES = None, "vacuity", "evidence", "both"


class Case:
    """A choice of left-out classes, a split of the nodes, and the networks of both.

    Parameters
    ----------
    nodes : NodeSet
        All nodes, with labels.

    left_out : tuple
        The left-out classes.

    seed : int
        Of the split, and with the number of an initialization of what is random in it.

    conv : str, default="gcn"
        Kind of the networks.

    device : str, default="cpu"
        Where networks are trained.

    max_epochs : int, default=None
        Epochs of all training, at most. None: the defaults of the models.

    conv_params : dict, default=None
        Of the networks: widths, batch normalization.

    probe : dict, default=None
        ``layer`` and ``activation`` of evidential probes.

    split : str, default="random"
        "public": the parts that are published with the graph.
    """

    def __init__(
        self,
        nodes,
        left_out,
        seed,
        *,
        conv="gcn",
        device="cpu",
        max_epochs=None,
        conv_params=None,
        probe=None,
        split="random",
    ):
        y = nodes.labels
        split = split_nodes(nodes, left_out, split=split, random_state=seed)
        self.train, self.y_train = nodes[split.train], y[split.train]
        self.valid = {"X_val": nodes[split.valid], "y_val": y[split.valid]}
        self.test, self.y_test = nodes[split.test], y[split.test]
        self.is_ood = split.is_ood[split.test]
        self.seed, self.conv, self.device = seed, conv, device
        self.max_epochs = {} if max_epochs is None else {"max_epochs": max_epochs}
        self.conv_params = conv_params
        self.probe = {"layer": "last", "activation": "exp", **(probe or {})}
        self._networks: dict = {}

    def seeded(self, number):
        """Parameters of what is random in an initialization."""
        return {"random_state": 100 * self.seed + number, "device": self.device}

    def training(self, number):
        """Parameters of what is trained in an initialization."""
        return {**self.seeded(number), **self.max_epochs}

    def new_network(self, number):
        """Return an untrained network."""
        return GraphClassifier(
            self.conv, conv_params=self.conv_params, **self.training(number)
        )

    def network(self, number):
        """Return the trained network of a number, frozen, and its seconds."""
        if number not in self._networks:
            self._networks[number] = self.fit(self.new_network(number))
        network, seconds = self._networks[number]
        return FrozenEstimator(network), seconds

    def fit(self, estimator):
        """Fit on the training nodes; return that, and CPU seconds."""
        return timed(estimator, self.train, self.y_train, **self.valid)


def timed(estimator, *data, **named):
    """Return the fitted estimator, and the CPU seconds of its fit."""
    start = time.process_time()
    estimator.fit(*data, **named)
    return estimator, time.process_time() - start


def fitted(classifier, seconds, network_seconds, **rows):
    """What a model returns."""
    return Bunch(
        classifier=classifier,
        seconds=seconds,
        network_seconds=network_seconds,
        rows=rows,
    )


# --- models that read trained networks ---------------------------------------------


def detector(case, number, *, make, row):
    """A detector on the network; its score tells errors, too."""
    network, network_seconds = case.network(number)
    found, seconds = timed(make(network), case.train, case.y_train)
    score = found.score_samples(case.test)
    return fitted(network, seconds, network_seconds, **{row: (score, score)})


def walked(make):
    """A detector whose scores take the walk that the probe's vacuity takes."""
    return lambda network: Propagation(make(network), scheme="random-walk")


def combined(case, number):
    """The probe, the walked entropy and GNNSafe, combined by Fisher's test."""
    network, network_seconds = case.network(number)
    start = time.process_time()
    probe, _ = case.fit(EvidentialProbe(network, **case.training(number)))
    train, valid = (case.train, case.y_train), tuple(case.valid.values())
    ensemble = _cora.combined(network, probe, train, valid)
    seconds = time.process_time() - start
    score = ensemble.score_samples(case.test)
    return fitted(network, seconds, network_seconds, combined=(score, score))


def dropout(case, number):
    """The entropy of the mean over passes with dropout."""
    network, network_seconds = case.network(number)
    model = MCDropout(network, n_samples=N_MEMBERS, setting="a", **case.seeded(number))
    model, seconds = timed(model, case.train, case.y_train)
    scores = of_uncertainty(model, case, "total")
    return fitted(model, seconds, network_seconds, **{"VGNN-dropout": scores})


def ensemble(case, number):
    """The entropy of the mean of networks; ensembles share networks."""
    members = [case.network(number + i) for i in range(N_MEMBERS)]
    networks, network_seconds = zip(*members, strict=True)
    model, seconds = timed(DeepEnsemble(list(networks)), case.train, case.y_train)
    scores = of_uncertainty(model, case, "total")
    total = sum(network_seconds)
    return fitted(model, seconds, total, **{"VGNN-ensemble": scores})


def probe(case, number, *, name, weights):
    """Evidential probe of the network, read by all schemes of propagation."""
    network, network_seconds = case.network(number)
    objective = ProbeObjective(activation=case.probe["activation"], **weights)
    model = EvidentialProbe(
        network, objective, layer=case.probe["layer"], **case.training(number)
    )
    model, seconds = case.fit(model)
    rows = by_scheme(model, case, name, PROBE_SCHEMES)
    return fitted(model, seconds, network_seconds, **rows)


def distilled(case, number):
    """A network that is drawn to the kernel estimate, and to the trained network."""
    teacher, network_seconds = case.network(number)
    model = GKDENetwork(case.new_network(number), teacher=teacher)
    model, seconds = case.fit(model)
    scores = of_uncertainty(model, case)
    return fitted(model, seconds, network_seconds, **{"SGNN-GKDE": scores})


# --- models that train their own ---------------------------------------------------


def posterior(case, number):
    """Graph posterior network, which has no convolutions."""
    model, seconds = case.fit(GraphPosteriorNetwork(**case.training(number)))
    return fitted(model, seconds, 0.0, GPN=of_uncertainty(model, case))


def evidential(case, number):
    """Evidential graph network, read by all schemes of propagation."""
    model, seconds = case.fit(EvidentialClassifier(case.new_network(number)))
    return fitted(model, seconds, 0.0, **by_scheme(model, case, "EGNN", EGNN_SCHEMES))


# --- scores ------------------------------------------------------------------------


def of_uncertainty(model, case, component="epistemic"):
    """Scores of test nodes: minus one uncertainty, and for errors the aleatoric."""
    uncertainty = model.predict_uncertainty(case.test)
    return -uncertainty[component], -uncertainty.aleatoric


def by_scheme(model, case, name, schemes):
    """Scores of all schemes of propagation, which need no other fit."""
    return {
        row: of_uncertainty(model.set_params(propagation=scheme), case)
        for row, scheme in zip(scheme_rows(name, schemes), schemes, strict=True)
    }


def scheme_rows(name, schemes):
    """Names of the rows of a model that is read by several schemes."""
    return [name if scheme is None else f"{name}/{scheme}" for scheme in schemes]


_DETECTORS = {
    **_cora.DETECTORS,
    "VGNN-entropy/walk": walked(Entropy),
    "VGNN-energy/walk": walked(Energy),
}

# Each model, and the names of its rows.
MODELS: dict = {
    **{
        row: (partial(detector, make=make, row=row), [row])
        for row, make in _DETECTORS.items()
    },
    "combined": (combined, ["combined"]),
    "VGNN-dropout": (dropout, ["VGNN-dropout"]),
    "VGNN-ensemble": (ensemble, ["VGNN-ensemble"]),
    "GPN": (posterior, ["GPN"]),
    "SGNN-GKDE": (distilled, ["SGNN-GKDE"]),
    "EGNN": (evidential, scheme_rows("EGNN", EGNN_SCHEMES)),
    **{
        name: (
            partial(probe, name=name, weights=weights),
            scheme_rows(name, PROBE_SCHEMES),
        )
        for name, weights in PROBES.items()
    },
}


def judged(model, case):
    """Return for each row what is in the table.

    Parameters
    ----------
    model : Bunch
        What a model returned.

    case : Case
        What it is for.

    Returns
    -------
    rows : dict of str to dict
        Metrics, None where there are none, and seconds.
    """
    is_id = ~case.is_ood
    y = case.y_test[is_id]
    proba = model.classifier.predict_proba(case.test)[is_id]
    classes = model.classifier.classes_
    correct = classes[proba.argmax(axis=1)] == y
    shared = {
        "accuracy": float(correct.mean()),
        "brier": float(brier(y, proba, classes=classes)),
        "ece": float(expected_calibration_error(y, proba, classes=classes)),
        "seconds": model.seconds,
        "network_seconds": model.network_seconds,
    }
    return {
        row: {
            "auroc": of_two(auroc, is_id, score),
            "fpr95": of_two(fpr_at_tpr, is_id, score),
            "errors": of_two(auroc, correct, certainty[is_id]),
            **shared,
        }
        for row, (score, certainty) in model.rows.items()
    }


def of_two(metric, positive, score):
    """A metric of two groups, which are told by a mask; None if one is empty."""
    if positive.all() or not positive.any():
        return None
    return float(metric(np.where(positive, 1, -1), score))
