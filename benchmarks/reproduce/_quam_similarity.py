"""Figures C.9 and C.10: how much the models of an ensemble and of QUAM differ.

Only their titles are in the stored text of the paper; the protocol is ours. Of each
point one adversarial model: the feasible one with the largest divergence.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from functools import cached_property, partial
from pathlib import Path

import numpy as np
from scipy.special import entr
from sklearn.manifold import smacof

from benchmarks.reproduce._paper import Claim, Row
from skood.epistemic import integrated_gradients

#: Points of each kind, ID samples for predictions, models of each kind on the map.
N_POINTS, N_ROWS, N_DRAWN = 100, 500, 10

#: Quantiles of the cosine.
QUANTILES = (5, 25, 50, 75, 95)


def cosine(A, B):
    """Return the cosine of each pair of samples."""
    A, B = (np.reshape(Z, (len(Z), -1)) for Z in (A, B))
    return (A * B).sum(axis=1) / np.linalg.norm(A, axis=1) / np.linalg.norm(B, axis=1)


def distances(proba):
    """Return the roots of mean Jensen-Shannon divergences of models, in nats.

    `proba` is of shape (n_models, n_samples, n_classes).
    """
    own = entr(proba).sum(axis=-1)
    squared = [
        (entr((p + proba) / 2).sum(axis=-1) - (h + own) / 2).mean(axis=1)
        for p, h in zip(proba, own, strict=True)
    ]
    return np.sqrt(np.maximum(squared, 0))


class Similarity:
    """The given network, an ensemble, and adversarial models of ID and OOD points.

    ``parts`` are `Uncertainties`, whose networks are used.
    """

    def __init__(self, parts):
        self.parts = parts
        self.attributions = partial(integrated_gradients, device=parts.run.device)

    @cached_property
    def points(self):
        """Return ID and OOD points by name."""
        sets = self.parts.sets
        return {
            self.parts.id_name: sets.test[0][:N_POINTS],
            self.parts.ood: sets.ood[:N_POINTS],
        }

    @cached_property
    def adversarial(self):
        """Return the adversarial models of the points: classifier, is it feasible."""
        parts = self.parts
        name = "QUAM" if "QUAM" in parts.methods else "QUAM, dense"
        quam = parts.run.placed(parts.method(name)).fit(*parts.sets.train)
        found = {kind: [] for kind in self.points}
        for kind, X in self.points.items():
            for start in range(0, len(X), 10):  # weights of all targets are large
                for models in quam.adversarial_models(X[start : start + 10]):
                    best = np.argmax(models.divergence * models.is_feasible)
                    clf = models.model(models.targets[best])
                    found[kind].append((clf, models.is_feasible[best]))
        return found

    def similarity(self, models, kind):
        """Return the distribution of the cosine with the network's attributions."""
        X, network = self.points[kind], self.parts.network
        classes = network.predict(X)
        own = self.attributions(network, X, target=classes)
        values = {}
        if models == "ensemble":
            found = np.concatenate(
                [
                    cosine(self.attributions(member, X, target=classes), own)
                    for member in self.parts.ensemble.estimators_
                ]
            )
        else:
            at_points = [
                self.attributions(clf, X[i : i + 1], target=classes[i])[0]
                for i, (clf, _) in enumerate(self.adversarial[kind])
            ]
            found = cosine(np.array(at_points), own)
            feasible = [ok for _, ok in self.adversarial[kind]]
            values["fraction of feasible models"] = np.mean(feasible)
        return {
            "mean cosine": found.mean(),
            **{f"{q} %": np.percentile(found, q) for q in QUANTILES},
            **values,
        }

    @cached_property
    def models(self):
        """Return classifiers by kind; the first is the given network."""
        return {
            "network": [self.parts.network],
            "ensemble": self.parts.ensemble.estimators_,
            **{
                f"adversarial, {kind}": [clf for clf, _ in found]
                for kind, found in self.adversarial.items()
            },
        }

    @cached_property
    def distance(self):
        """Return the distances of all models, in the order of `models`."""
        X = self.parts.sets.test[0][:N_ROWS]
        models = [clf for some in self.models.values() for clf in some]
        return distances(np.array([clf.predict_proba(X) for clf in models], float))

    def rows_of(self, kind):
        """Return where the models of a kind are in `distance`."""
        ends = np.cumsum([0, *map(len, self.models.values())])
        k = list(self.models).index(kind)
        return slice(ends[k], ends[k + 1])

    def mean_distance(self, kind):
        """Return mean distances from the network, and within the kind."""
        rows = self.rows_of(kind)
        within = self.distance[rows, rows]
        n_pairs = len(within) * (len(within) - 1)
        return {
            "from the network": self.distance[0, rows].mean(),
            "within": within.sum() / n_pairs if n_pairs else None,
        }

    @cached_property
    def places(self):
        """Return places in the plane of up to `N_DRAWN` models of each kind."""
        rows = [
            range(len(self.distance))[self.rows_of(kind)][:N_DRAWN]
            for kind in self.models
        ]
        index = np.concatenate(rows)
        given = self.distance[np.ix_(index, index)]
        found = smacof(given, n_components=2, n_init=4, random_state=self.parts.seed)[0]
        places = np.split(found - found[0], np.cumsum(list(map(len, rows)))[:-1])
        return dict(zip(self.models, places, strict=True))

    def place(self, kind, i):
        """Return the place of a model relative to the network."""
        x, y = self.places[kind][i]
        return {"horizontal": x, "vertical": y}


def table_c9(parts):
    """Yield the similarity of attributions."""
    for kind in (parts.id_name, parts.ood):
        for models in ("ensemble", "adversarial"):
            compute = partial(parts.similarity.similarity, models, kind)
            yield Row(f"{kind}/{models}", compute)


def table_c10(parts):
    """Yield the distances of predictions, and a map of the first run."""
    similarity, run = parts.similarity, f"{parts.id_name} against {parts.ood}"
    adversarial = [f"adversarial, {kind}" for kind in (parts.id_name, parts.ood)]
    for kind in ("ensemble", *adversarial):
        yield Row(f"{run}/{kind}", partial(similarity.mean_distance, kind))
    if parts.seed:
        return
    numbers = {
        "ensemble": parts.recipe["n_members"],
        **dict.fromkeys(adversarial, N_POINTS),
        "network": 1,
    }
    for kind, n in numbers.items():
        for i in range(min(n, N_DRAWN)):
            yield Row(f"{run}/{kind}/{i}", partial(similarity.place, kind, i))


def less_alike(records):
    """Return by how much adversarial models are less alike than the ensemble."""
    gains, rows = [], records.rows("fig-C.9")
    for row in rows:
        kind, models = row.split("/")
        if models == "adversarial" and f"{kind}/ensemble" in rows:
            alike, own = (
                records.of("fig-C.9", name, "mean cosine")
                for name in (f"{kind}/ensemble", row)
            )
            gains.append(alike - own)
    return np.stack(gains, axis=1) if gains else None


def farther(records):
    """Return how much farther adversarial models are from the network."""
    gains = []
    for row in records.rows("fig-C.10"):
        run, kind, *place = row.split("/")
        members = f"{run}/ensemble"
        if place or kind == "ensemble" or members not in records.rows("fig-C.10"):
            continue
        far, near = (
            records.of("fig-C.10", name, "from the network") for name in (row, members)
        )
        gains.append(far - near)
    return np.stack(gains, axis=1) if gains else None


def draw_similarity(records):
    """Draw the distribution of the cosine: quartiles, and 5 and 95 %."""
    import matplotlib.pyplot as plt

    rows = records.rows("fig-C.9")
    figure, ax = plt.subplots(figsize=(7, 0.8 + 0.5 * len(rows)))
    for i, row in enumerate(rows):
        low, q1, median, q3, high = (
            np.nanmean(records.of("fig-C.9", row, f"{q} %")) for q in QUANTILES
        )
        color = "C0" if row.endswith("/ensemble") else "C1"
        ax.hlines(i, low, high, color=color)
        ax.hlines(i, q1, q3, color=color, linewidth=10)
        ax.plot(median, i, "k|", markersize=14)
    ax.set_yticks(range(len(rows)), rows)
    ax.invert_yaxis()
    ax.set_xlabel("cosine with the attributions of the network")
    figure.tight_layout()
    plt.close(figure)
    return figure


def draw_map(records):
    """Draw the models of each kind in the plane, the network last."""
    import matplotlib.pyplot as plt

    places = {}
    for row in records.rows("fig-C.10"):
        run, kind, *place = row.split("/")
        if place:
            at = [
                records.of("fig-C.10", row, name)[0]
                for name in ("horizontal", "vertical")
            ]
            places.setdefault(run, {}).setdefault(kind, []).append(at)
    n_runs = max(len(places), 1)
    figure, axes = plt.subplots(
        *(1, n_runs), figsize=(7 * n_runs, 6), squeeze=False, layout="constrained"
    )
    for ax, (run, kinds) in zip(axes[0], places.items(), strict=False):
        for (kind, found), marker in zip(kinds.items(), "os^*", strict=False):
            size = 200 if kind == "network" else 40
            ax.scatter(*np.transpose(found), marker=marker, s=size, label=kind)
        ax.set(title=run, aspect="equal")
        ax.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.08))
    plt.close(figure)
    return figure


TABLES = {"fig-C.9": table_c9, "fig-C.10": table_c10}

CLAIMS = [
    Claim(
        "Attributions of adversarial models are less like the network's than an "
        "ensemble's",
        "fig-C.9",
        less_alike,
    ),
    Claim(
        "Predictions of adversarial models are farther from the network's than an "
        "ensemble's",
        "fig-C.10",
        farther,
    ),
]

NOTES = {
    "fig-C.9": "Cosine of integrated gradients of a model and of the given network, "
    "for the class that the network predicts, at 100 ID and 100 OOD points; of the "
    "models of the ensemble all, of QUAM one for each point. Boxes are quartiles, "
    "lines end at 5 and 95 %. The protocol is ours.",
    "fig-C.10": "Root of the Jensen-Shannon divergence of predictions, a mean over up "
    "to 500 ID test samples. The map is of the first run, by metric multidimensional "
    "scaling of ten models of each kind. The protocol is ours.",
}

FIGURES = {"fig-C.9": draw_similarity, "fig-C.10": draw_map}

SOURCE = Path(__file__)
