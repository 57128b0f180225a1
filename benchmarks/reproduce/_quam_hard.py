"""Harder OOD sets than other characters, beside the outputs of the given network.

Generated characters of pen strokes, digits of 8 x 8 pixels, and digits of MNIST that
are blurred, rotated by 45 to 90 degrees, or composed of the halves of two.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from functools import cached_property, partial

import numpy as np
from scipy.ndimage import gaussian_filter, rotate, zoom
from sklearn.datasets import load_digits

from benchmarks.reproduce._paper import Row
from benchmarks.reproduce._quam_images import FewImages
from benchmarks.reproduce._training import prepare
from skood.combine import conformal_pvalues
from skood.detectors import Energy
from skood.epistemic import QUAM, AdversarialSearch
from skood.nn import FeatureExtractor

SETS = ("letters", "strokes", "other digits", "blurred", "rotated", "mixed")

#: The defaults; then a strong penalty, or a weak one and a low temperature.
QUAMS = {
    "QUAM, dense": ("dense", None, 0.1),
    "QUAM, last": ("last", None, 0.1),
    "QUAM, last, c0=1000": ("last", 1000.0, 0.1),
    "QUAM, last, c0=1, T=.01": ("last", 1.0, 0.01),
}

#: Images of each set, and digits that the p-values refer to.
N_POINTS, N_CALIBRATION = 80, 150


def strokes(n, rng):
    """Return characters of two to four connected pen strokes, as in Omniglot."""
    t = np.linspace(0, 1, 80)[:, None]
    bezier = np.hstack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3])
    pixels = (np.stack(np.meshgrid(*2 * [np.arange(28)]), axis=-1) + 0.5) / 28
    images = np.empty((n, 1, 28, 28), dtype=np.float32)
    for image in images:
        lines = [rng.uniform(size=(1, 2))]
        for _ in range(rng.integers(2, 5)):
            control = rng.uniform(size=(4, 2))
            if rng.random() < 0.5:  # the stroke starts on the last one
                control[0] = rng.choice(lines[-1])
            straight = rng.random() < 0.3
            weights = np.hstack([1 - t, 0 * t, 0 * t, t]) if straight else bezier
            lines.append(weights @ control)
        points = np.concatenate(lines[1:])
        low, high = points.min(axis=0), points.max(axis=0)
        points = 0.5 + 0.7 * (points - (low + high) / 2) / (high - low).max()
        distance = np.linalg.norm(pixels[:, :, None] - points, axis=-1).min(axis=-1)
        image[0] = np.clip((rng.uniform(0.03, 0.05) - distance) * 28 + 0.5, 0, 1)
    return images


def hard_sets(X, y, letters, n, rng):
    """Return images by name, `n` of each, from digits that are not for training."""
    digits, labels = np.array_split(X, 4), np.array_split(y, 4)
    given = digits[1][:n]
    angles = rng.uniform(45, 90, n) * rng.choice([-1, 1], n)
    turned = [
        rotate(image[0], angle, reshape=False, order=1)
        for image, angle in zip(given, angles, strict=True)
    ]
    n_pairs = min(map(len, labels[2:]))
    differ = np.flatnonzero(labels[2][:n_pairs] != labels[3][:n_pairs])[:n]
    mixed = digits[2][differ]
    mixed[:, :, 14:] = digits[3][differ][:, :, 14:]  # the lower halves
    other = rng.permutation(load_digits().images / 16)[:n]
    other = np.pad(zoom(other, (1, 2.5, 2.5), order=1), ((0, 0), (4, 4), (4, 4)))
    sets = {
        "digits": digits[0][:n],
        "held out": digits[0][n : n + N_CALIBRATION],
        "letters": letters[:n],
        "strokes": strokes(n, rng),
        "other digits": other[:, None],
        "blurred": gaussian_filter(given, (0, 0, 2, 2)),
        "rotated": np.stack(turned)[:, None],
        "mixed": mixed,
    }
    return {name: np.clip(X, 0, 1).astype(np.float32) for name, X in sets.items()}


class Hard(FewImages):
    """Digits and harder sets by the same network as the other tables."""

    def __init__(self, run, seed):
        super().__init__(run, seed, "notMNIST")

    @cached_property
    def hard(self):
        """Return images by name."""
        _, X_test, _, y_test = self.id_images()
        letters, _ = self.run.images("notmnist", size=28)
        rng = np.random.default_rng(self.seed)
        n = 4 * (N_POINTS + N_CALIBRATION)
        return hard_sets(
            prepare(X_test[:n]),
            y_test[:n],
            prepare(letters[rng.permutation(len(letters))[:N_POINTS]], 28, 1),
            N_POINTS,
            rng,
        )

    @cached_property
    def energy(self):
        """Return scores of `Energy` by set, high for digits."""
        detector = Energy(self.network, device=self.run.device).fit(*self.sets.train)
        return {name: detector.score_samples(X) for name, X in self.hard.items()}

    def quam(self, name):
        """Return uncertainties of QUAM by set."""
        if name not in self._results:
            scope, c0, temperature = QUAMS[name]
            search = None if c0 is None else AdversarialSearch(c0=c0)
            method = QUAM(
                self.network,
                search,
                scope=scope,
                temperature=temperature,
                random_state=self.seed,
            )
            self.run.placed(method).fit(*self.sets.train)
            self._results[name] = {
                key: method.predict_uncertainty(X) for key, X in self.hard.items()
            }
        return self._results[name]


def auroc_error(inside, outside):
    """Return the AUROC of scores, high for digits, and its error (DeLong 1988)."""
    above = inside[:, None] - outside
    wins = (above > 0) + 0.5 * (above == 0)
    parts = [wins.mean(axis=k) for k in (0, 1)]
    return wins.mean(), np.sqrt(sum(p.var(ddof=1) / len(p) for p in parts))


def _aurocs(scores):
    """Return the AUROC of each set with the ends of its 95 % interval."""
    values = {}
    for name in SETS:
        value, error = auroc_error(scores["digits"], scores[name])
        low, high = value - 1.96 * error, min(1.0, value + 1.96 * error)
        values[f"{name}/AUROC"] = value, low, high
    return values


def table_hard(parts):
    """Yield methods, the smaller p-value of two, and what explains the differences."""
    yield Row("Energy", lambda: _aurocs(parts.energy))
    yield Row("Reference", partial(_of_quam, parts, "QUAM, last", "aleatoric"))
    for name in QUAMS:
        for part in ("epistemic", "total"):
            yield Row(f"{name}, {part}", partial(_of_quam, parts, name, part))
    for name in ("QUAM, dense", "QUAM, last, c0=1000"):
        yield Row(f"smaller p: Energy, {name}", partial(_smaller, parts, name))
    yield Row("length of the features", partial(_lengths, parts))


def _of_quam(parts, name, part):
    return _aurocs({key: -u[part] for key, u in parts.quam(name).items()})


def _smaller(parts, name):
    """Return AUROCs of the smaller of the conformal p-values of two detectors."""
    both = {
        key: np.column_stack([parts.energy[key], -u.epistemic])
        for key, u in parts.quam(name).items()
    }
    return _aurocs(
        {
            key: conformal_pvalues(scores, both["held out"]).min(axis=1)
            for key, scores in both.items()
        }
    )


def _lengths(parts):
    """Return the mean length of the input of the dense layers."""
    body = FeatureExtractor(parts.network, layer="6").fit(parts.sets.train[0][:2])
    return {
        f"{name}/mean length": np.linalg.norm(body.transform(X), axis=1).mean()
        for name, X in parts.hard.items()
    }


def smaller_is_near_the_better(records):
    """Return .02 minus how far the smaller p-value is behind the better of two."""
    rows = ("Energy", "QUAM, dense, epistemic", "smaller p: Energy, QUAM, dense")
    if not set(rows) <= set(records.rows("hard")):
        return None
    energy, quam, both = (
        np.stack([records.of("hard", row, f"{name}/AUROC") for name in SETS], axis=1)
        for row in rows
    )
    return 0.02 - (np.maximum(energy, quam) - both).max(axis=1)
