"""The offline suite: five small comparisons on data of skood and scikit-learn.

A part has a network, or another classifier, trained on some ID samples. Detectors are
fitted on other samples, and evaluated on the remaining ones and on sets of OOD samples.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import json
import shlex
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from joblib import effective_n_jobs
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
from sklearn.utils.parallel import delayed

from skood.base import UncertaintyDetector
from skood.benchmark._compare import Output, run_comparison
from skood.benchmark._hashing import versions
from skood.benchmark._inputs import METRICS
from skood.benchmark._output import to_csv
from skood.benchmark._report import leaders, write_report
from skood.benchmark._run import _one_thread
from skood.combine import DSDE
from skood.datasets import load_digit_concepts, make_ood_graph
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
from skood.utils._files import write_text
from skood.utils._progress import as_they_come, progress


@dataclass(frozen=True)
class SuitePart:
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
    body, head = (FrozenEstimator(half) for half in split(network))
    forest = IsolationForest(random_state=seed)
    drawn = rng.choice(len(X_id), 200, replace=False)
    return SuitePart(
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
            "inverted": 1 - X_id[drawn],
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
    X_id, Z = (scaler.transform(samples) for samples in (X_id, X_net))
    lof = LocalOutlierFactor(novelty=True)
    forest = IsolationForest(random_state=seed)
    return SuitePart(
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


_RED, _BLUE, _YELLOW, _WHITE = range(4)
_RGB = np.array([[0.8, 0.1, 0.1], [0.1, 0.3, 0.7], [0.9, 0.7, 0.1], [0.9, 0.9, 0.9]])
# Distances of points from the center: 1 at the edge of a sign
_SHAPES = (
    lambda x, y: np.hypot(x, y),
    lambda x, y: 1.1 * np.maximum(abs(x), abs(y)),
    lambda x, y: 0.9 * (abs(x) + abs(y)),
    lambda x, y: np.maximum(1.5 * y, 1.2 * abs(x) - 0.6 * y + 0.3),
)
# Points of a pictogram
_PICTOGRAMS = (
    lambda x, y: np.maximum(abs(x) / 3, abs(y)) < 0.2,
    lambda x, y: np.hypot(x, y) < 0.4,
    lambda x, y: np.minimum(abs(x), abs(y)) < np.where(np.hypot(x, y) < 0.6, 0.15, 0.0),
)
# Color, shape and pictogram of signs; the last three groups are OOD.
_KNOWN_SIGNS = (
    *((_RED, 0, 0), (_RED, 1, 1), (_BLUE, 0, 1), (_BLUE, 1, 0)),
    *((_YELLOW, 2, 0), (_YELLOW, 3, 1), (_WHITE, 2, 1), (_WHITE, 3, 0)),
)
_OTHER_SIGNS = ((_RED, 3, 2), (_BLUE, 2, 2), (_YELLOW, 1, 2), (_WHITE, 0, 2))
_ODD_COLORS = ((_YELLOW, 0, 0), (_WHITE, 1, 1), (_RED, 2, 1), (_BLUE, 3, 0))
_ODD_SHAPES = ((_RED, 2, 0), (_BLUE, 3, 1), (_YELLOW, 0, 1), (_WHITE, 1, 0))
_SIDE = 32  # pixels


def _landscapes(n_images, rng):
    """Draw skies above darker grounds, (n, 3, 32, 32), with spots."""
    y = np.linspace(-1, 1, _SIDE)[:, None]
    sky, ground, spots = rng.random((3, n_images, 3, 1, 1))
    horizon = rng.uniform(-0.5, 0.5, (n_images, 1, 1, 1))
    images = np.where(y < horizon, 0.4 + 0.5 * sky, 0.1 + 0.5 * ground)
    is_spot = rng.random((n_images, 1, 8, 8)).repeat(4, axis=2).repeat(4, axis=3) < 0.1
    return np.where(is_spot, spots, images)


def _sign_pictures(kinds, n_images, rng):
    """Draw a sign of one of the kinds in front of each landscape; return its kind."""
    images = _landscapes(n_images, rng)
    drawn = rng.integers(len(kinds), size=n_images)
    y, x = np.mgrid[-1 : 1 : _SIDE * 1j, -1 : 1 : _SIDE * 1j]
    for image, kind in zip(images, drawn, strict=True):
        color, shape, pictogram = kinds[kind]
        left, top, tilt = rng.uniform(-0.15, 0.15, 3)
        radius = rng.uniform(0.65, 0.85)
        u, v = (x - left + tilt * y) / radius, (y - top - tilt * x) / radius
        distance = _SHAPES[shape](u, v)
        image[:, distance < 1] = _RGB[color][:, None]
        ink = _WHITE if color < _YELLOW else _RED
        image[:, _PICTOGRAMS[pictogram](u, v)] = _RGB[ink][:, None]
    return _photographed(images, rng), drawn


def _photographed(images, rng):
    """Return images with random light and noise."""
    light = rng.uniform(0.4, 1.0, (len(images), 1, 1, 1))
    noisy = light * images + 0.04 * rng.standard_normal(images.shape)
    return noisy.clip(0, 1).astype(np.float32)


def _gratings(n_images, rng):
    """Draw gratings of two colors and random directions."""
    y, x = np.mgrid[:_SIDE, :_SIDE]
    a, b, phase = rng.uniform(-1.5, 1.5, (3, n_images, 1, 1, 1))
    low, high = rng.random((2, n_images, 3, 1, 1))
    return low + (high - low) * (np.sin(a * x + b * y + 2 * phase) > 0)


def signs(seed):
    """Return generated traffic signs, and invalid or unseen signs."""
    rng = np.random.default_rng(seed)
    X, y = _sign_pictures(_KNOWN_SIGNS, 1500, rng)
    X_net, X_id, y_net, y_id = _halves(X, y, seed)
    network = TorchClassifier(
        max_epochs=30,
        lr=0.01,
        batch_size=64,
        training=TrainingOptions(lr_schedule="one_cycle"),
        random_state=seed,
    ).fit(X_net, y_net)
    net = FrozenEstimator(network)
    body, head = (FrozenEstimator(half) for half in split(network))
    return SuitePart(
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
            "other signs": _sign_pictures(_OTHER_SIGNS, 120, rng)[0],
            "color": _sign_pictures(_ODD_COLORS, 120, rng)[0],
            "shape": _sign_pictures(_ODD_SHAPES, 120, rng)[0],
            "texture": _photographed(_gratings(120, rng), rng),
            "natural": _photographed(_landscapes(120, rng), rng),
        },
        {"near": ["other signs", "color", "shape"], "far": ["texture", "natural"]},
    )


def graph(seed):
    """Return nodes of a graph with a left-out class, and nodes of another graph."""
    nodes, y = make_ood_graph(
        1200, feature_signal=1.5, left_out=3, return_X_y=True, random_state=seed
    )
    known = np.flatnonzero(y != -1)
    train, test = _halves(known, y[known], seed)[:2]
    network = GraphClassifier(max_epochs=150, random_state=seed)
    network.fit(nodes[train], y[train])
    net = FrozenEstimator(network)
    probe = EvidentialProbe(net, max_epochs=100, random_state=seed)
    other, _ = make_ood_graph(
        300, feature_signal=0, return_X_y=True, random_state=(seed + 1) % 2**32
    )
    return SuitePart(
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

    return SuitePart(
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


#: Names of the files: the page, the table and all numbers.
FILES = ("report.html", "benchmark.csv", "benchmark.json")


def run_suite(folder, names=None, *, seed=0, repeats=1, n_jobs=None, verbose=0):
    """Run parts of the suite, write report, table and numbers, and return a summary.

    Finished cells are in the subfolder ``cells``: the same call continues after an
    interruption. `names` are parts in order, None: all; `n_jobs` joblib jobs run parts.
    """
    names = list(PARTS) if names is None else list(names)
    folder.mkdir(parents=True, exist_ok=True)
    for path in (folder / name for name in FILES):
        if path.is_dir():
            raise IsADirectoryError(
                f"{path} is a folder, and a file of this name is to be written. Give "
                "another folder, or move it away."
            )
    arguments = str(folder / "cells"), seed, repeats
    if effective_n_jobs(n_jobs) == 1:
        components = dict(_run_component(name, *arguments, verbose) for name in names)
    else:
        parts = as_they_come(n_jobs)(
            delayed(_run_component)(name, *arguments, 0) for name in names
        )
        components = {}
        with progress(len(names), desc="parts", verbose=verbose) as bar:
            for name, component in parts:
                components[name] = component
                bar.update(1)
    components = {name: components[name] for name in names}
    _write(folder, components, seed, repeats)
    return "\n".join(
        _line(name, component[2]) for name, component in components.items()
    )


def _run_component(name, cells, seed, repeats, verbose):
    """Run a part; return its name, and its title, text and comparison."""
    with _one_thread():
        component = PARTS[name](seed)
        comparison = run_comparison(
            component.detectors,
            component.X,
            component.y,
            component.ood,
            metrics=list(METRICS),
            groups=component.groups,
            split=0.5,
            repeats=repeats,
            output=Output(resume=cells, verbose=verbose),
            random_state=seed,
            desc=name,
            predictions=True,
        )
    return name, (component.title, component.text, comparison)


def _line(name, comparison):
    """Return a line with the best detectors of a part."""
    metric, means, tied = leaders(comparison)
    best = ", ".join(f"{detector} {value:.3f}" for detector, value in means[:3])
    end = f" (tie: {', '.join(tied)})" if len(tied) > 1 else ""
    return f"{name + ':':<10}{metric} {best}{end}"


def _write(folder, components, seed, repeats):
    page, table, numbers = (folder / name for name in FILES)
    options = ["--out", str(folder), "--suite", ",".join(components)]
    options += ["--seed", str(seed), "--repeats", str(repeats)]
    command = shlex.join(["skood", "benchmark", *options])
    title = "skood: the offline suite"
    write_report(page, list(components.values()), title=title, command=command)
    entries = [
        {"part": name, **entry}
        for name, (_, _, comparison) in components.items()
        for entry in comparison.entries
    ]
    write_text(table, to_csv(entries))
    content = {
        "versions": versions(),
        "seed": seed,
        "repeats": repeats,
        "parts": {
            name: {
                "title": title,
                "text": text,
                "n_train": comparison.n_train,
                "sets": comparison.sets,
                "groups": comparison.groups,
                "settings": comparison.settings,
                "rows": comparison.entries,
            }
            for name, (title, text, comparison) in components.items()
        },
    }
    write_text(numbers, json.dumps(content, indent=1, allow_nan=False) + "\n")
