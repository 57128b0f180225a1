"""Generated data: a graph of the size of OGBN-Arxiv, and Gaussians of Theorem 1."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from functools import cached_property, partial

import numpy as np
from scipy.stats import norm
from sklearn.frozen import FrozenEstimator

from benchmarks.reproduce._graph_models import timed
from benchmarks.reproduce._paper import Row
from skood.datasets import make_ood_graph
from skood.evidential import EvidentialProbe, ProbeObjective
from skood.graph import GraphClassifier
from skood.nn import TrainingOptions


class Epochs:
    """A generated graph of the size of OGBN-Arxiv, and seconds of epochs."""

    n_nodes = 169_343

    def __init__(self, run, seed):
        self.shared = {"random_state": seed, "device": run.device}

    @cached_property
    def data(self):
        """Return training nodes, 54 % of all, and their labels."""
        nodes, y = make_ood_graph(
            self.n_nodes,
            n_classes=40,
            n_features=128,
            average_degree=13.6,
            return_X_y=True,
            random_state=0,
        )
        order = np.random.default_rng(0).permutation(len(y))
        rows = np.sort(order[: round(0.54 * len(y))])
        return nodes[rows], y[rows]

    def network(self, max_epochs):
        """Return an untrained network."""
        return GraphClassifier(
            conv_params={"hidden": (256, 128)},
            max_epochs=max_epochs,
            training=TrainingOptions(early_stopping=False),
            **self.shared,
        )

    @cached_property
    def frozen(self):
        """Return a trained network, frozen."""
        return FrozenEstimator(self.network(2).fit(*self.data))

    def probe(self, max_epochs, **weights):
        """Return an untrained probe."""
        return EvidentialProbe(
            self.frozen,
            ProbeObjective(**weights),
            max_epochs=max_epochs,
            training=TrainingOptions(early_stopping=False),
            **self.shared,
        )

    def seconds(self, make, n_epochs):
        """Return the CPU seconds of an epoch, from fits of n and of 2 n epochs."""
        first, second = (timed(make(k * n_epochs), *self.data)[1] for k in (1, 2))
        return {"seconds of an epoch": (second - first) / n_epochs}


_UCE = {"lambda_ice": 0, "lambda_pcl": 0}


def table_epochs(parts):
    """Yield a network and two probes of it."""
    yield Row("network", partial(parts.seconds, parts.network, 2))
    for name, weights in (("EPN", _UCE), ("EPN-reg", {})):
        make = partial(parts.probe, **weights)
        yield Row(name, partial(parts.seconds, make, 40))


class Gaussians:
    """Two ID classes N(±mu, 1) and OOD samples N(0, 1), with known answers."""

    def __init__(self, run, seed):
        self.seed = seed

    def ordered(self, sigma):
        """Return P(u_OOD > u_ID) of the optimal evidential network, and its formula."""
        rng = np.random.default_rng(self.seed)
        z_ood = rng.standard_normal(400_000)
        z_id = rng.standard_normal(400_000) + sigma
        u_ood, u_id = (1 / (1 + np.cosh(sigma * z)) for z in (z_ood, z_id))
        right = norm.cdf(sigma / np.sqrt(2))
        return {
            "P(u_OOD > u_ID)": np.mean(u_ood > u_id),
            "closed form": right**2 + (1 - right) ** 2,
        }


def theorem_1(parts):
    """Yield distances of the means in standard deviations."""
    for sigma in (1, 2, 4):
        yield Row(f"sigma {sigma}", partial(parts.ordered, sigma))


def theorem_holds(records):
    """Return .003, above four standard errors, minus the error of the formula."""
    if not records.rows("theorem-1"):
        return None
    return np.array(
        [
            0.003
            - abs(
                records.of("theorem-1", row, "P(u_OOD > u_ID)")
                - records.of("theorem-1", row, "closed form")
            )
            for row in records.rows("theorem-1")
        ]
    ).T
