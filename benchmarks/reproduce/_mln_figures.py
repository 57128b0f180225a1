"""Figures of the study of Markov logic networks: their values, and drawings."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import time
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.reproduce._ablation import (
    ablate_constraints,
    ood_transfer,
    search_path,
)
from benchmarks.reproduce._paper import Row
from skood.logic import ConceptFusion, MLNDetector
from skood.metrics import cohen_d

SOURCE = Path(__file__)


def number_of_constraints(parts):
    """Yield the first k constraints: Figure 3."""
    found = {}

    def row(k):
        for detector in ("Ensemble", "Mahalanobis"):
            if detector not in found:
                found[detector] = _ablation(parts, detector)
        return {f"MLN+{name}/AUROC": values[k] for name, values in found.items()}

    for k in range(len(parts.constraints) + 1):
        yield Row(f"{parts.prefix}{k} constraints", partial(row, k))


def _ablation(parts, detector):
    """Return the mean AUROC over OOD sets with the first k constraints, for each k."""
    model = MLNDetector(
        *(parts.constraints, parts.named_concepts(), parts.detector(detector)),
        calibration="same",
    )
    calibration = parts.Z("calibration"), parts.labels("calibration")
    Z, y = parts.Z("ID"), parts.labels("ID").astype(object)
    sets = {}
    for name in parts.oods:  # the mean over sets of one size is the AUROC of all
        sets.setdefault(len(parts.Z(name)), []).append(parts.Z(name))
    total = 0.0
    for n, others in sets.items():
        marked = np.full((n * len(others), y.shape[1]), -1)
        test = np.concatenate([Z, *others]), np.concatenate([y, marked])
        table = ablate_constraints(model, *calibration, *test, n_repeats=1)
        total = total + 100 * len(others) * table.auroc.to_numpy()
    return total / len(parts.oods)


def least_improvements(parts):
    """Yield least improvements of a search: Figure 4."""
    found = []

    def row(k):
        if not found:
            found.append(search_path(parts.search, *parts.searched()))
        one = found[0].iloc[k]
        return {
            "constraints": one.n_found,
            "AUROC, validation": 100 * one.validation_auroc,
            "AUROC": 100 * one.test_auroc,
            "AUROC, detector alone": 100 * one.baseline_auroc,
        }

    for k, value in enumerate((0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05)):
        yield Row(f"{parts.prefix}{value:g}", partial(row, k))


def transfer(parts):
    """Yield OOD sets of a search, evaluated on the others: Figure 6."""
    found = []

    def table():
        if not found:
            found.append(ood_transfer(parts.search, *parts.transferred()))
        return found[0]

    def row(name):
        some = table()[lambda frame: frame.searched == name]
        return {"constraints": some.n_found.iloc[0]} | {
            f"{one.tested}/AUROC": 100 * one.auroc for one in some.itertuples()
        }

    def alone():
        pairs = table().groupby("tested").baseline_auroc.first()
        return {f"{name}/AUROC": 100 * value for name, value in pairs.items()}

    for name in parts.transfer_sets:
        yield Row(f"{parts.prefix}search with {name}", partial(row, name))
    yield Row(f"{parts.prefix}detector alone", alone)


_BATCHES = tuple(2**k for k in range(11))


def batches(parts):
    """Yield seconds of batches of images: Figure 5."""
    fitted = cache(partial(_on_images, parts))
    for size in _BATCHES if parts.n_batches > 10 else _BATCHES[::4]:
        row = partial(batch_row, parts, size, fitted)
        yield Row(f"{parts.prefix}batch of {size}", row)


def _on_images(parts):
    """Return detectors without and with constraints, fitted to images."""
    return [
        MLNDetector(
            *(constraints, parts.image_concepts(), "confidence"),
            calibration="same",
            fusion=ConceptFusion(normalizer="norm"),
        ).fit(parts.some_images())
        for constraints in ([], parts.constraints)
    ]


def batch_row(parts, size, fitted):
    """Return mean seconds of a batch: networks, then with detector and constraints.

    Scores are copied to the host, which waits for the device.
    """
    images, concepts = parts.some_images(), parts.image_concepts()
    X = np.concatenate([images] * -(-size // len(images)))[:size]
    ensemble, mln = fitted()

    def with_partition(X):
        mln.score_samples(X)
        mln.knowledge_base_.log_partition(mln.weights_)

    steps = {
        "networks": lambda X: [one.predict_proba(X) for _, one in concepts],
        "+Ensemble": ensemble.score_samples,
        "+MLN": mln.score_samples,
        "+MLN, partition function": with_partition,
    }
    return {
        f"{name}/seconds": _seconds(step, X, parts.n_batches)
        for name, step in steps.items()
    }


def _seconds(step, X, n_batches):
    for _ in range(max(1, n_batches // 10)):
        step(X)
    start = time.perf_counter()
    for _ in range(n_batches):
        step(X)
    return (time.perf_counter() - start) / n_batches


# --- drawings -------------------------------------------------------------------------


def effect_sizes(records):
    """Return Cohen's d of the AUROC with the MLN against the detector alone.

    A data frame with d and its interval for each data set, detector and unit: over
    seeds, each a mean over OOD sets, and over OOD sets, each a mean over seeds, as the
    standard errors of the paper are.
    """
    found = []
    for row in records.rows("3"):
        oods = [
            column.removesuffix("/detector")
            for column in records.columns("3", row)
            if column.endswith("/detector") and column != "AUROC/detector"
        ]
        alone, mln = (
            np.array([records.of("3", row, f"{ood}/{name}") for ood in oods])
            for name in ("detector", "+MLN")
        )
        for unit, axis in (("seeds", 0), ("OOD sets", 1)):
            a, b = mln.mean(axis=axis), alone.mean(axis=axis)
            if len(a) > 1 and np.ptp(a) + np.ptp(b) > 0:
                d = cohen_d(a, b)
                found.append((row, unit, d.value, d.low, d.high))
    return pd.DataFrame(found, columns=["row", "unit", "d", "low", "high"])


def _axes(records, table):
    """Return a figure, and a list of (axes, rows) for each data set."""
    import matplotlib.pyplot as plt

    groups = {}
    for row in records.rows(table):
        groups.setdefault(row.split("/")[0], []).append(row)
    n = len(groups)
    figure, axes = plt.subplots(
        1, n, figsize=(5 * n, 4), layout="constrained", squeeze=False
    )
    for ax, name in zip(axes[0], groups, strict=True):
        ax.set_title(name)
    return figure, list(zip(axes[0], groups.values(), strict=True))


def draw(records, table, column, **labels):
    """Return a figure of means over runs: a line for each column with a word."""
    figure, axes = _axes(records, table)
    axes[0][0].set_ylabel(column)
    for ax, rows in axes:
        for name in records.columns(table, rows[0]):
            if column in name:
                means = [np.nanmean(records.of(table, row, name)) for row in rows]
                ax.plot([_number(row) for row in rows], means, ".-", label=name)
        ax.legend(fontsize="small")
        ax.set(**labels)
    return figure


def _number(row):
    """Return the number in the name of a row, which names its data set before it."""
    return next(float(w) for w in row.split("/")[1].split() if w[0].isdigit())


def draw_transfer(records):
    """Return Figure 6."""
    figure, axes = _axes(records, "fig-6")
    for ax, rows in axes:
        # the row of all OOD sets first: it sets their order
        for row in sorted(rows, key=lambda row: not row.endswith("alone")):
            columns = [c for c in records.columns("fig-6", row) if c.endswith("AUROC")]
            means = [np.nanmean(records.of("fig-6", row, c)) for c in columns]
            style = "k_" if row.endswith("alone") else "o"
            names = [c.split("/")[0] for c in columns]
            ax.plot(names, means, style, label=row.split("/")[1])
        ax.tick_params("x", rotation=45)
        ax.set(xlabel="OOD set of the test", ylabel="AUROC")
        ax.legend(fontsize="small")
    return figure


def draw_effects(records):
    """Return a figure of the effect sizes."""
    found = effect_sizes(records)
    figure, axes = _axes(records, "3")
    for ax, rows in axes:
        for shift, unit in ((-0.15, "seeds"), (0.15, "OOD sets")):
            some = found[found.row.isin(rows) & (found.unit == unit)]
            place = np.array([rows.index(row) for row in some.row]) + shift
            error = [some.d - some.low, some.high - some.d]
            ax.errorbar(some.d, place, xerr=error, fmt="o", label=f"over {unit}")
        ax.set_yticks(np.arange(len(rows)), [row.split("/")[1] for row in rows])
        ax.set_xlabel("Cohen's d of the MLN")
        ax.axvline(0, color="0.7")
        ax.legend(fontsize="small")
    return figure


#: Drawings by table.
FIGURES = {
    "3": draw_effects,
    "fig-3": partial(
        draw, table="fig-3", column="AUROC", xlabel="number of constraints"
    ),
    "fig-4": partial(draw, table="fig-4", column="AUROC", xlabel="least improvement"),
    "fig-5": partial(
        draw, table="fig-5", column="seconds", xlabel="images", xscale="log"
    ),
    "fig-6": draw_transfer,
}
