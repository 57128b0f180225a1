"""The offline suite: five small comparisons on data of skood and scikit-learn.

A part has a network, or another classifier, trained on some ID samples. Detectors are
fitted on other samples, and evaluated on the remaining ones and on sets of OOD samples.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.covariance import LedoitWolf
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import ExtraTreesClassifier, IsolationForest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.base import UncertaintyDetector
from skood.combine import DSDE
from skood.datasets import load_digit_concepts, make_ood_graph, make_traffic_signs
from skood.detectors import (
    FDBD,
    GEN,
    GMM,
    KNN,
    MSP,
    ODIN,
    Energy,
    Entropy,
    GradNorm,
    Gram,
    KLMatching,
    Mahalanobis,
    MaxLogit,
    SklearnDetector,
    ViM,
)
from skood.evidential import EvidentialProbe
from skood.graph import GraphClassifier, Propagation
from skood.logic import MLNDetector
from skood.nn import TorchClassifier, TrainingOptions, split
from skood.rectifiers import ASH, ReAct

__all__ = ["PARTS", "Part"]


@dataclass(frozen=True)
class Part:
    """A part of the suite: its description, detectors, samples and groups of sets.

    ``X`` and ``y`` are ID samples not used for the network, and their classes; ``ood``
    maps names to sets of OOD samples, ``groups`` names to lists of them.
    """

    title: str
    text: str
    detectors: dict
    X: Any
    y: np.ndarray
    ood: dict
    groups: dict = field(default_factory=dict)


def _halves(X, y, seed):
    """Return samples for the classifier, and samples for the comparison."""
    return train_test_split(X, y, test_size=0.6, stratify=y, random_state=seed)


def digits(seed):
    """Return handwritten digits with two left-out classes, and other images."""
    X, y = load_digits(return_X_y=True)
    images = (X / 16).reshape(-1, 1, 8, 8).astype(np.float32)
    is_id = y < 8
    X_net, X_id, y_net, y_id = _halves(images[is_id], y[is_id], seed)
    rng = np.random.default_rng(seed)
    network = TorchClassifier(
        module_params={"hidden": 64, "dropout": 0.2},
        max_epochs=40,
        lr=0.01,
        training=TrainingOptions(lr_schedule="one_cycle"),
        random_state=seed,
    ).fit(X_net, y_net)
    net = FrozenEstimator(network)
    body, head = (FrozenEstimator(part) for part in split(network))
    forest = IsolationForest(random_state=seed)
    some = rng.choice(len(X_id), 200, replace=False)
    return Part(
        "Handwritten digits",
        "A convolutional network is trained on the digits 0 to 7. Near-OOD are the "
        "left-out classes; far-OOD are ID digits with black and white exchanged, and "
        "noise.",
        {
            "MSP": MSP(net),
            "MaxLogit": MaxLogit(net),
            "Energy": Energy(net),
            "Entropy": Entropy(net),
            "GEN": GEN(net),
            "KLMatching": KLMatching(net),
            "fDBD": FDBD(net),
            "GradNorm": GradNorm(net),
            "ViM": ViM(net),
            "KNN": KNN(net, n_neighbors=10),
            "Mahalanobis": Mahalanobis(net, covariance=LedoitWolf()),
            "ReAct + Energy": make_pipeline(body, ReAct(), Energy(head)),
            "IsolationForest": SklearnDetector(detector=forest, estimator=net),
            "DSDE": DSDE(
                [
                    ("msp", MSP()),
                    ("energy", Energy()),
                    ("knn", KNN(n_neighbors=10)),
                    ("mahalanobis", Mahalanobis(covariance=LedoitWolf())),
                ],
                estimator=net,
                calibration=0.5,
                random_state=seed,
            ),
        },
        X_id,
        y_id,
        {
            "eights": images[y == 8],
            "nines": images[y == 9],
            "inverted": 1 - X_id[some],
            "noise": rng.random((200, 1, 8, 8), dtype=np.float32),
        },
        {"near": ["eights", "nines"], "far": ["inverted", "noise"]},
    )


def tabular(seed):
    """Return tabular data, and samples that violate its dependencies."""
    X, y = load_breast_cancer(return_X_y=True)
    X_net, X_id, y_net, y_id = _halves(X, y, seed)
    rng = np.random.default_rng(seed)
    scaler = StandardScaler().fit(X_net)
    classifier = LogisticRegression(max_iter=500).fit(scaler.transform(X_net), y_net)
    head = FrozenEstimator(classifier)
    X_id, Z = (scaler.transform(part) for part in (X_id, X_net))
    lof = LocalOutlierFactor(novelty=True)
    forest = IsolationForest(random_state=seed)
    return Part(
        "A table",
        "Logistic regression on 30 measurements of tumors. In shuffled samples each "
        "measurement is of another patient; in coarse samples a third of them is "
        "missing and replaced by the average; in converted samples ten features are "
        "in another unit.",
        {
            "MSP": MSP(head),
            "Energy": Energy(head),
            "KNN": KNN(n_neighbors=10),
            "Mahalanobis": Mahalanobis(covariance=LedoitWolf()),
            "GMM": GMM(random_state=seed),
            "LOF": SklearnDetector(detector=lof),
            "IsolationForest": SklearnDetector(detector=forest),
        },
        X_id,
        y_id,
        _odd_tables(Z, rng),
        {"near": ["shuffled", "coarse"], "far": ["converted"]},
    )


def _odd_tables(Z, rng):
    """Return standardized samples with broken dependencies or measurement errors."""
    coarse, converted = Z.copy(), Z.copy()
    coarse[rng.random(Z.shape) < 1 / 3] = 0.0
    columns = rng.choice(Z.shape[1], 10, replace=False)
    converted[:, columns] = 2.54 * converted[:, columns] + 1.0
    return {
        "shuffled": rng.permuted(Z, axis=0),
        "coarse": coarse,
        "converted": converted,
    }


_KNOWN_SIGNS = ["ahead", "no_entry", "parking", "priority_road"]
_KNOWN_SIGNS += ["speed_80", "stop", "toxic", "yield"]


def signs(seed):
    """Return generated traffic signs, and invalid or unseen signs."""
    kinds = ("color", "shape", "texture", "natural")
    data = make_traffic_signs(
        6000,
        ood=dict.fromkeys(kinds, 0.02),
        rotation=8.0,
        occlusion=0.1,
        clutter=0.5,
        lighting=0.5,
        random_state=seed,
    )
    is_known = np.isin(data.target.astype(str), _KNOWN_SIGNS)
    is_other = ~is_known & ~data.is_ood
    X_net, X_id, y_net, y_id = _halves(
        data.data[is_known], data.target[is_known].astype(str), seed
    )
    network = TorchClassifier(
        max_epochs=30,
        lr=0.01,
        batch_size=64,
        training=TrainingOptions(lr_schedule="one_cycle"),
        random_state=seed,
    ).fit(X_net, y_net)
    net = FrozenEstimator(network)
    body, head = (FrozenEstimator(part) for part in split(network))
    return Part(
        "Generated images",
        "A small network is trained on eight traffic signs. Near-OOD are other signs, "
        "and signs of an invalid color or shape; far-OOD are textures, and backgrounds "
        "without a sign.",
        {
            "MSP": MSP(net),
            "MaxLogit": MaxLogit(net),
            "Energy": Energy(net),
            "ODIN": ODIN(net),
            "Gram": Gram(net),
            "ViM": ViM(net),
            "KNN": KNN(net, n_neighbors=10),
            "Mahalanobis": Mahalanobis(net, covariance=LedoitWolf()),
            "ASH + Energy": make_pipeline(body, ASH(), Energy(head)),
        },
        X_id,
        y_id,
        {
            "other signs": data.data[np.flatnonzero(is_other)[:120]],
            **{kind: data.data[data.ood_kind == kind] for kind in kinds},
        },
        {"near": ["other signs", "color", "shape"], "far": ["texture", "natural"]},
    )


def graph(seed):
    """Return nodes of a graph with a left-out class, and nodes of another graph."""
    nodes, y = make_ood_graph(
        1200, feature_signal=1.5, left_out=3, return_X_y=True, random_state=seed
    )
    rows = np.flatnonzero(y != -1)
    train, test = _halves(rows, y[rows], seed)[:2]
    network = GraphClassifier(max_epochs=150, random_state=seed)
    network.fit(nodes[train], y[train])
    net = FrozenEstimator(network)
    probe = EvidentialProbe(net, max_epochs=100, random_state=seed)
    other, _ = make_ood_graph(
        300, feature_signal=0, return_X_y=True, random_state=(seed + 1) % 2**32
    )
    return Part(
        "A graph",
        "A graph network is trained on three classes of nodes. Near-OOD are the nodes "
        "of a fourth class of the same graph; far-OOD is another graph, whose features "
        "are noise.",
        {
            "MSP": MSP(net),
            "Energy": Energy(net),
            "KNN": KNN(net, n_neighbors=10),
            "Mahalanobis": Mahalanobis(net, covariance=LedoitWolf()),
            "GNNSafe": Propagation(Energy(net), scheme="gnnsafe"),
            "KNN, propagated": Propagation(KNN(net, n_neighbors=10)),
            "Evidential probe": UncertaintyDetector(probe),
        },
        nodes[np.sort(test)],
        y[np.sort(test)],
        {"left-out class": nodes[np.flatnonzero(y == -1)], "other graph": other},
        {"near": ["left-out class"], "far": ["other graph"]},
    )


class _OfClasses(BaseEstimator):
    """Detector fitted on the first of several concepts, the class."""

    def __init__(self, detector):
        self.detector = detector

    def fit(self, X, y):
        """Fit the detector."""
        self.detector_ = clone(self.detector).fit(X, y[:, 0])
        return self

    def score_samples(self, X):
        """Return the scores of the detector."""
        return self.detector_.score_samples(X)


def concepts(seed):
    """Return digits with concepts, and the rules between them."""
    data = load_digit_concepts(left_out=(8, 9))
    X_id, y_id = data.data[~data.is_ood], data.concepts[~data.is_ood]
    forest = ExtraTreesClassifier(40, random_state=seed)
    readers = [(name, forest) for name in data.concept_names]
    rng = np.random.default_rng(seed)

    def rules(detector=None, **params):
        return MLNDetector(
            list(data.constraints), readers, detector, random_state=seed, **params
        )

    return Part(
        "Concepts and rules",
        "Forests predict the class of a digit, whether it is odd, has a loop, …; rules "
        "relate these concepts. Near-OOD are the digits 8 and 9, which are in no rule; "
        "far-OOD is noise.",
        {
            "rules": rules(),
            "rules, marginalized": rules(marginalize=True),
            "rules + KNN": rules(KNN(n_neighbors=5), marginalize=True),
            "KNN": _OfClasses(KNN(n_neighbors=5)),
            "Mahalanobis": _OfClasses(Mahalanobis(covariance=LedoitWolf())),
            "MSP": _OfClasses(MSP(forest)),
        },
        X_id,
        y_id,
        {
            "eights and nines": data.data[data.is_ood],
            "noise": rng.integers(0, 17, size=(200, 64)).astype(X_id.dtype),
        },
        {"near": ["eights and nines"], "far": ["noise"]},
    )


#: The parts of the suite, functions of a seed.
PARTS = {
    "digits": digits,
    "tabular": tabular,
    "signs": signs,
    "graph": graph,
    "concepts": concepts,
}
