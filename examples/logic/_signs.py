"""
====================================
Traffic signs: networks and the data
====================================

Helpers of the example on traffic signs and of ``benchmarks/logic_signs.py``: the
pictures, the networks of the concepts, the detectors and their evaluation. This file
has no figures.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Pictures
# --------
#
# A sign has a class, a color and a shape. Networks are trained on signs, calibrated on
# others, and tested on signs and on ``n_ood`` pictures of each kind of OOD sample. OOD
# pictures for training, which only the supervised variant uses, differ from the test
# pictures, but are of the same kinds.
import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import Bunch
from torch import nn

from skood.datasets import make_traffic_signs
from skood.detectors import MSP, SHE, Energy, Mahalanobis, ViM
from skood.metrics import aupr_in, auroc, fpr_at_tpr
from skood.nn import MultiHeadClassifier, TorchClassifier, TrainingOptions, split
from skood.rectifiers import DICE, ReAct

CONCEPTS = ["class", "color", "shape"]
KINDS = ["color", "shape", "pictogram", "texture", "noise", "natural"]


def draw(n_samples, n_ood=0, *, seed):
    """Return signs, and as many OOD pictures of each kind."""
    n = n_samples + n_ood * len(KINDS)
    shares = dict.fromkeys(KINDS, n_ood / n)
    return make_traffic_signs(n, ood=shares, random_state=seed)


def make_signs(seed, n_train=4000, n_calibration=1000, n_test=2000, n_ood=300):
    """Return signs for training, calibration and test, and OOD ones for training."""
    seeds = np.random.SeedSequence(seed).generate_state(4).tolist()
    return Bunch(
        train=draw(n_train, seed=seeds[0]),
        calibration=draw(n_calibration, seed=seeds[1]),
        test=draw(n_test, n_ood, seed=seeds[2]),
        outliers=draw(0, n_ood, seed=seeds[3]),
    )


# %%
# Networks
# --------
#
# Three blocks of convolutions and a layer of 64 units. Either each concept has a
# network of its own, or a linear head on a body that they share.


class Body(nn.Sequential):
    """The network without its last layer: 64 features of an image."""

    n_features = 64

    def __init__(self, input_shape):
        n_channels, height, width = input_shape
        layers = []
        for n_filters in (16, 32, 64):
            layers += [
                nn.Conv2d(n_channels, n_filters, 3, padding=1),
                nn.BatchNorm2d(n_filters),
                nn.ReLU(),
                nn.MaxPool2d(2),
            ]
            n_channels = n_filters
        n_last = n_channels * (height // 8) * (width // 8)
        linear = nn.Linear(n_last, self.n_features)
        super().__init__(*layers, nn.Flatten(), linear, nn.ReLU())


class Network(nn.Sequential):
    """A body and a linear head."""

    def __init__(self, input_shape, n_classes):
        super().__init__(Body(input_shape), nn.Linear(Body.n_features, n_classes))


def training(seed, max_epochs):
    """Return the parameters of the training of all networks."""
    return {
        "max_epochs": max_epochs,
        "lr": 3e-3,
        "batch_size": 64,
        "training": TrainingOptions(lr_schedule="one_cycle"),
        "random_state": seed,
    }


def train_networks(signs, seed, max_epochs=12):
    """Return a network for each concept, by name."""
    return {
        name: TorchClassifier(Network, **training(seed, max_epochs)).fit(
            signs.data, signs.concepts[:, j]
        )
        for j, name in enumerate(CONCEPTS)
    }


def train_heads(signs, seed, max_epochs=12):
    """Return a network with a head for each concept."""
    network = MultiHeadClassifier(Body, **training(seed, max_epochs))
    return network.fit(signs.data, signs.concepts)


def train_is_id(signs, outliers, kinds, seed, max_epochs=6):
    """Return a network that classifies signs against some kinds of OOD pictures."""
    chosen = np.isin(outliers.ood_kind, kinds)
    X = np.concatenate([signs.data, outliers.data[chosen]])
    is_id = np.arange(len(X)) < len(signs.data)
    return TorchClassifier(Network, **training(seed, max_epochs)).fit(X, is_id)


# %%
# Features
# --------
#
# A network is its body and its head, and the output of its body is computed once. In
# the study a sample is the concatenation of the outputs of all bodies: each classifier
# and each detector is a pipeline that starts by selecting its columns.


def pick(Z, start):
    """Return the columns of one body."""
    return Z[:, start : start + Body.n_features]


def from_column(start, *steps):
    """Return a pipeline of the columns of the body that starts there."""
    return make_pipeline(FunctionTransformer(pick, kw_args={"start": start}), *steps)


class Readings:
    """Features of all bodies, and the head of the columns of each.

    Parameters
    ----------
    groups : list of dict of str to object
        Classifiers by name. Classifiers in one dict are heads of one body.
    """

    def __init__(self, groups):
        self.bodies, self.heads, self.starts = [], {}, {}
        for j, group in enumerate(groups):
            pairs = [split(network) for network in group.values()]
            self.bodies.append(pairs[0][0])
            self.heads |= {
                name: head for name, (_, head) in zip(group, pairs, strict=True)
            }
            self.starts |= dict.fromkeys(group, j * Body.n_features)

    def of(self, X):
        """Return the features of images."""
        return np.concatenate([body.transform(X) for body in self.bodies], axis=1)

    def classifier(self, name):
        """Return a frozen classifier of these features."""
        return FrozenEstimator(from_column(self.starts[name], self.heads[name]))

    def concepts(self):
        """Return the classifiers of the concepts, as parameters of detectors."""
        return [(name, self.classifier(name)) for name in CONCEPTS]


# %%
# Detectors
# ---------
#
# Detectors of the class use its features, and the head that maps them to logits. The
# ensemble is the mean over the concepts of the largest probability.


def make_detectors(readings):
    """Return unfitted detectors by name; the ensemble is a name only."""
    head, start = readings.heads["class"], readings.starts["class"]
    steps = {
        "Mahalanobis": [Mahalanobis()],
        "MSP": [MSP(head)],
        "Energy": [Energy(head)],
        "ViM": [ViM(head)],
        "ReAct": [ReAct(), Energy(head)],
        "DICE": [Energy(DICE(head))],
        "SHE": [SHE(head)],
    }
    found = {name: from_column(start, *one) for name, one in steps.items()}
    return {"Ensemble": "confidence", **found}


# %%
# Metrics
# ---------


def judge(scores, ood_kind):
    """Return AUROC, AUPR of signs and FPR95, and the AUROC of each kind, in percent."""
    is_id = ood_kind == "id"
    y = np.where(is_id, 1, -1)
    found = {
        "auroc": auroc(y, scores),
        "aupr": aupr_in(y, scores),
        "fpr95": fpr_at_tpr(y, scores),
    }
    for kind in np.unique(ood_kind[~is_id]):
        rows = is_id | (ood_kind == kind)
        found[f"auroc {kind}"] = auroc(y[rows], scores[rows])
    return {name: 100 * float(value) for name, value in found.items()}
