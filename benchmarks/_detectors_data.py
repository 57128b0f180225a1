"""Workloads of ``benchmarks/detectors.py``: features, a linear head, OOD rows."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

# name: training rows, test rows, features, classes
WORKLOADS = {
    "F": (50_000, 20_000, 512, 10),
    "G": (50_000, 20_000, 1024, 100),
    "L": (1_000_000, 1_000_000, 0, 10),
    "tiny": (1_000, 200, 128, 5),
}


@dataclass
class Inputs:
    """What a method reads. Test rows: the first half ID, the second OOD.

    `Z` and `T` are the features of training and test rows, `L` and `M` their logits,
    ``T @ coef.T + intercept``, all float32. Workload L has logits only.
    """

    Z: np.ndarray
    y: np.ndarray
    T: np.ndarray
    coef: np.ndarray
    intercept: np.ndarray
    L: np.ndarray
    M: np.ndarray

    @property
    def is_id(self):
        """Which test rows are ID."""
        return np.arange(len(self.M)) < len(self.M) // 2


def make(name, scale=1.0, seed=0):
    """Draw a workload with `scale` times its rows."""
    n_train, n_test, n_features, n_classes = WORKLOADS[name]
    n_train, n_test = (max(2, round(scale * n)) for n in (n_train, n_test))
    rng = np.random.default_rng(seed)
    if n_features == 0:
        return _logits_only(rng, n_train, n_test, n_classes)
    return _features(rng, n_train, n_test, n_features, n_classes)


def _features(rng, n_train, n_test, n_features, n_classes):
    """Rectified mixtures of latent clusters; OOD clusters lie between the classes.

    Within a class the latent variables have decaying variances, so that features are
    correlated; features are non-negative, about 60 % of them zero, and of different
    size. Methods separate the OOD rows at an AUROC of .65 to .99.
    """

    def normal(*shape):
        return rng.normal(size=shape).astype(np.float32)

    n_latent = max(n_classes + 8, n_features // 8)
    spread = (1 + np.arange(n_latent, dtype=np.float32)) ** -0.5
    spread *= 0.7 / np.sqrt(np.mean(spread**2))
    mix = normal(n_latent, n_features) / np.float32(np.sqrt(n_latent))
    gain = rng.lognormal(0, 0.4, n_features).astype(np.float32)
    centers = 0.6 * normal(n_classes, n_latent)
    between = 0.7 * centers + 0.71 * 0.6 * normal(n_classes, n_latent)

    def draw(clusters, noise):
        out = (clusters + spread * normal(*clusters.shape)) @ mix
        out += np.float32(noise) * normal(*out.shape)
        out -= np.float32(0.3)
        return np.maximum(out, 0, out=out) * gain

    y = rng.permutation(np.arange(n_train) % n_classes)
    n_id = n_test // 2
    Z = draw(centers[y], 0.8)
    known = draw(centers[rng.integers(0, n_classes, n_id)], 0.8)
    novel = draw(between[rng.integers(0, n_classes, n_test - n_id)], 0.84)
    T = np.concatenate([known, novel])
    coef, intercept = _head(Z, y, n_classes)
    L, M = Z @ coef.T + intercept, T @ coef.T + intercept
    return Inputs(Z, y, T, coef, intercept, L, M)


def _head(Z, y, n_classes):
    """Ridge regression of the class indicators, scaled to sure probabilities."""
    rows = slice(0, 20_000)
    mean = Z[rows].mean(axis=0, dtype=np.float64)
    centered = Z[rows] - mean
    ridge = 0.1 * len(centered) * centered.var() * np.eye(Z.shape[1])
    hits = (y[rows, None] == np.arange(n_classes)) - 1 / n_classes
    coef = np.linalg.solve(centered.T @ centered + ridge, centered.T @ hits).T
    scale = 10 if n_classes <= 10 else 20
    intercept = scale / 4 - scale * coef @ mean
    return (scale * coef).astype(np.float32), intercept.astype(np.float32)


def _logits_only(rng, n_train, n_test, n_classes):
    """Logits of which one is raised, in OOD rows by less."""
    none = np.zeros((0, 0), dtype=np.float32)
    drawn = []
    for n_rows, n_id in ((n_train, n_train), (n_test, n_test // 2)):
        logits = rng.normal(size=(n_rows, n_classes)).astype(np.float32)
        labels = rng.integers(0, n_classes, n_rows)
        lift = np.where(np.arange(n_rows) < n_id, 6, 3).astype(np.float32)
        logits[np.arange(n_rows), labels] += lift
        drawn.append((logits, labels))
    (L, y), (M, _) = drawn
    return Inputs(none, y, none, none, none.ravel(), L, M)


def save(inputs, folder):
    """Write one ``.npy`` file per array."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    for field in fields(inputs):
        np.save(folder / f"{field.name}.npy", getattr(inputs, field.name))


def load(folder):
    """Read the arrays into memory."""
    names = [field.name for field in fields(Inputs)]
    return Inputs(*(np.load(Path(folder) / f"{name}.npy") for name in names))


def on_device(inputs, device):
    """Return inputs whose features and logits are tensors on a device of torch."""
    import torch

    names = ("Z", "T", "L", "M")
    arrays = {name: torch.as_tensor(getattr(inputs, name)) for name in names}
    return replace(inputs, **{name: a.to(device) for name, a in arrays.items()})
