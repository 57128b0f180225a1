"""
====================================
Traffic signs: networks and the data
====================================

Helpers of the example on traffic signs and of ``benchmarks/reproduce/mln.py``: the
pictures, the network of the concepts, and the evaluation. This file has no figures.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Pictures
# --------
#
# A sign has a class, a color and a shape. Networks are trained on signs, calibrated on
# others, and tested on signs and on ``n_ood`` pictures of each kind of OOD sample. OOD
# pictures for training, which only a supervised detector uses, differ from the test
# pictures, but are of the same kinds. Options are parameters of ``make_traffic_signs``.
import numpy as np
from _traffic_signs import make_traffic_signs
from sklearn.utils import Bunch
from torch import nn

from skood.metrics import aupr_in, auroc, fpr_at_tpr
from skood.nn import MultiHeadClassifier, TrainingOptions

CONCEPTS = ["class", "color", "shape"]
KINDS = ["color", "shape", "pictogram", "texture", "noise", "natural"]


def draw(n_samples, n_ood=0, *, seed, **options):
    """Return signs, and as many OOD pictures of each kind."""
    n = n_samples + n_ood * len(KINDS)
    fractions = dict.fromkeys(KINDS, n_ood / n)
    return make_traffic_signs(n, ood=fractions, random_state=seed, **options)


def make_signs(
    seed, n_train=4000, n_calibration=1000, n_test=2000, n_ood=300, **options
):
    """Return signs for training, calibration and test, and OOD ones for training."""
    seeds = np.random.SeedSequence(seed).generate_state(4).tolist()
    return Bunch(
        train=draw(n_train, seed=seeds[0], **options),
        calibration=draw(n_calibration, seed=seeds[1], **options),
        test=draw(n_test, n_ood, seed=seeds[2], **options),
        outliers=draw(0, n_ood, seed=seeds[3], **options),
    )


# %%
# Network
# -------
#
# Three blocks of convolutions and a layer of 64 units: a body, on which each concept
# has a linear head.


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


def training(seed, max_epochs):
    """Return the parameters of the training of all networks."""
    return {
        "max_epochs": max_epochs,
        "lr": 3e-3,
        "batch_size": 64,
        "training": TrainingOptions(lr_schedule="one_cycle"),
        "random_state": seed,
    }


def train_heads(signs, seed, max_epochs=12, body=Body):
    """Return a network with a head for each concept."""
    network = MultiHeadClassifier(body, **training(seed, max_epochs))
    return network.fit(signs.data, signs.concepts)


# %%
# Metrics
# ---------


def evaluate(scores, ood_kind):
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
