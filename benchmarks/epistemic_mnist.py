"""Epistemic uncertainty on MNIST against notMNIST, over several seeds.

::

    python benchmarks/epistemic_mnist.py --data DIR [--seeds 3] [--threads 1] [--all]
    python benchmarks/epistemic_mnist.py --data DIR --hard [--points 80]

DIR holds the folders ``mnist`` and ``notmnist`` of IDX files. For each seed a LeNet is
trained on 7,000 digits, and all methods tell 500 other digits from 500 letters, in
setting "b" where they know the given network, else in "a". The script fails if, on
average, the AUROC of QUAM's epistemic uncertainty is not at least .02 above that of the
network's entropy and of MC dropout, or more than .005 below that of a deep ensemble of
ten networks.

``--hard`` compares QUAM with the outputs of the same network on harder sets as well:
generated characters of pen strokes, scikit-learn's digits of 8 x 8 pixels, and MNIST's
digits blurred, rotated, or composed of halves of two digits. It prints the AUROC with
its standard error, the length of the network's features and the uncertainty of each
set, which explain where QUAM does not help. It fails if the smaller p-value of QUAM and
`Energy` is more than .02 below the better of the two on any set.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import sys
from pathlib import Path

import numpy as np
from scipy.ndimage import gaussian_filter, rotate, zoom
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Bunch
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "epistemic"))

from _mnist import HEADER, compare, lenet, load, print_rows

from skood.combine import conformal_pvalues
from skood.detectors import Energy
from skood.epistemic import QUAM, AdversarialSearch
from skood.nn import FeatureExtractor

# The methods that are compared below.
ASKED = "QUAM, dense", "QUAM, last", "MC dropout", "deep ensemble"

# By how much QUAM must be ahead, in AUROC.
MARGINS = {
    "entropy of the network": 0.02,
    "MC dropout (epistemic)": 0.02,
    "MC dropout (total)": 0.02,
    "deep ensemble (epistemic)": -0.005,
    "deep ensemble (total)": -0.005,
}

HARD = "letters", "strokes", "other digits", "blurred", "rotated", "mixed"

# The defaults; then a strong penalty, or a weak one and a low temperature.
HARD_QUAMS = {
    "QUAM, dense": ("dense", None, 0.1),
    "QUAM, last": ("last", None, 0.1),
    "QUAM, last, c0=1000": ("last", AdversarialSearch(c0=1000.0), 0.1),
    "QUAM, last, c0=1, T=.01": ("last", AdversarialSearch(c0=1.0), 0.01),
}

# Digits that the p-values of `--hard` refer to.
N_CALIBRATION = 150

# By how much the smaller p-value may be behind the better detector, in AUROC.
MOST_BEHIND = 0.02


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


def hard_sets(parts, n, rng):
    """Return images by name, `n` for each; the digits are not in the training set."""
    digits, y = np.array_split(parts.X_test, 4), np.array_split(parts.y_test, 4)
    given = digits[1][:n]
    angles = rng.uniform(45, 90, n) * rng.choice([-1, 1], n)
    turned = [
        rotate(image[0], angle, reshape=False, order=1)
        for image, angle in zip(given, angles, strict=True)
    ]
    differ = np.flatnonzero(y[2] != y[3])[:n]
    mixed = digits[2][differ]
    mixed[:, :, 14:] = digits[3][differ][:, :, 14:]  # the lower halves
    other = rng.permutation(load_digits().images / 16)[:n]
    other = np.pad(zoom(other, (1, 2.5, 2.5), order=1), ((0, 0), (4, 4), (4, 4)))
    sets = {
        "digits": digits[0][:n],
        "letters": parts.letters[:n],
        "strokes": strokes(n, rng),
        "other digits": other[:, None],
        "blurred": gaussian_filter(given, (0, 0, 2, 2)),
        "rotated": np.stack(turned)[:, None],
        "mixed": mixed,
    }
    return {name: np.clip(X, 0, 1).astype(np.float32) for name, X in sets.items()}


def auroc_error(inside, outside):
    """Return the AUROC of scores, high for digits, and its error (DeLong 1988)."""
    above = inside[:, None] - outside
    wins = (above > 0) + 0.5 * (above == 0)
    parts = [wins.mean(axis=k) for k in (0, 1)]
    return wins.mean(), np.sqrt(sum(p.var(ddof=1) / len(p) for p in parts))


def hard_scores(frozen, parts, sets, seed):
    """Return scores, high for digits, by name of the method and of the set."""
    table = {}
    energy = Energy(frozen).fit(parts.X_train, parts.y_train)
    table["Energy"] = {name: energy.score_samples(X) for name, X in sets.items()}
    for label, (scope, search, temperature) in HARD_QUAMS.items():
        quam = QUAM(
            frozen, search, scope=scope, temperature=temperature, random_state=seed
        )
        quam.fit(parts.X_train, parts.y_train)
        found = {name: quam.predict_uncertainty(X) for name, X in sets.items()}
        table["entropy"] = {name: -u.aleatoric for name, u in found.items()}
        for part in ("epistemic", "total"):
            table[f"{label} ({part})"] = {name: -u[part] for name, u in found.items()}
    for name in ("QUAM, dense", "QUAM, last, c0=1000"):
        pair = table["Energy"], table[f"{name} (epistemic)"]
        both = {key: np.column_stack([one[key] for one in pair]) for key in sets}
        table[f"smaller p: Energy, {name}"] = {
            key: conformal_pvalues(both[key], both["held out"]).min(axis=1)
            for key in sets
        }
    return table


def hard(folder, n, seed):
    """Return AUROCs and errors, (n_sets, 2), by method; print what explains them."""
    parts = load(folder, n_test=4 * (n + N_CALIBRATION), seed=seed)
    sets = hard_sets(parts, n, np.random.default_rng(seed))
    sets["held out"] = parts.X_test[n : n + N_CALIBRATION]
    given = FrozenEstimator(lenet(seed).fit(parts.X_train, parts.y_train))
    body = FeatureExtractor(given, layer="body").fit(parts.X_train[:2])
    scores = hard_scores(given, parts, sets, seed)
    print(f"seed {seed}: length of the features; medians of QUAM, dense, in nats")
    for name, X in sets.items():
        length = np.linalg.norm(body.transform(X), axis=1).mean()
        parts = "QUAM, dense (epistemic)", "entropy"
        nats = [-np.median(scores[part][name]) for part in parts]
        print(
            f"{name:14} {length:5.1f}; epistemic {nats[0]:.2f}, entropy {nats[1]:.2f}"
        )
    return {
        method: np.array([auroc_error(found["digits"], found[name]) for name in HARD])
        for method, found in scores.items()
    }


def print_hard(tables):
    """Print means over seeds; return whether the smaller p-value keeps its promise."""
    print(f"{'mean AUROC and error':38}" + "".join(f"{name:>13}" for name in HARD))
    mean = {}
    for method in tables[0]:
        found = np.array([table[method] for table in tables])
        mean[method] = found[:, :, 0].mean(axis=0)
        errors = np.sqrt((found[:, :, 1] ** 2).sum(axis=0)) / len(tables)
        pairs = zip(mean[method], errors, strict=True)
        print(f"{method:38}" + "".join(f"{m:7.3f} {e:.3f}" for m, e in pairs))
    better = np.maximum(mean["Energy"], mean["QUAM, dense (epistemic)"])
    behind = (better - mean["smaller p: Energy, QUAM, dense"]).max()
    ok = behind <= MOST_BEHIND
    print(f"smaller p-value: behind by {behind:.3f}  {'OK' if ok else 'missed'}")
    return ok


def averaged(rows):
    """Means of the judgments of one method."""
    return Bunch(**{key: np.mean([row[key] for row in rows]) for key in rows[0]})


def main(argv=None):
    """Print the tables; return 1 if QUAM is not ahead by the margins."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, metavar="DIR", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--all", action="store_true", help="all methods, not only those asked for"
    )
    parser.add_argument("--hard", action="store_true", help="the harder sets")
    parser.add_argument("--points", type=int, default=80, help="of each harder set")
    arguments = parser.parse_args(argv)
    if arguments.hard:
        if arguments.points > 550:
            parser.error("MNIST's test set is enough for --points of at most 550")
        rows = []
        with threadpool_limits(arguments.threads):
            for seed in range(arguments.seeds):
                rows.append(hard(arguments.data, arguments.points, seed))
                ok = print_hard(rows[-1:])
        if len(rows) > 1:
            ok = print_hard(rows)
        return 0 if ok else 1
    tables = []
    with threadpool_limits(arguments.threads):
        for seed in range(arguments.seeds):
            print(f"seed {seed}\n{HEADER}")
            parts = load(arguments.data, seed=seed)
            tables.append(compare(parts, seed, None if arguments.all else ASKED))
    mean = {name: averaged([table[name] for table in tables]) for name in tables[0]}
    print(f"mean of {len(tables)} seeds\n{HEADER}")
    print_rows(mean)
    ok, quam = True, mean["QUAM, dense (epistemic)"].auroc
    for name, margin in MARGINS.items():
        ahead = quam - mean[name].auroc
        ok &= ahead >= margin
        words = "OK" if ahead >= margin else "missed"
        print(f"QUAM - {name}: {ahead:+.4f}, asked {margin:+.3f}  {words}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
