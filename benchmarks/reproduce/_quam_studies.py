"""Studies of the paper on QUAM that need no files: Figures B.1, 2, 3 and C.4."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from functools import cached_property, partial
from pathlib import Path

import numpy as np
from scipy.stats import norm
from torch import nn

from benchmarks.reproduce import _quam_posteriors as posteriors
from benchmarks.reproduce._paper import Claim, Experiment, Row
from skood.epistemic import SimplexDisplay, attainable_likelihood, importance_estimate

# --- Fig. B.1 -------------------------------------------------------------------------


def _integral(first, second, sampling):
    """Return the integral of N(a, A) N(b, B) / N(c, C) of (mean, variance) pairs."""
    moments = np.array([first, second, sampling])
    signs = np.array([1, 1, -1])
    precision = np.sum(signs / moments[:, 1])
    if precision <= 0:
        return np.inf
    h = np.sum(signs * moments[:, 0] / moments[:, 1])
    k = np.sum(signs * moments[:, 0] ** 2 / moments[:, 1])
    scale = sampling[1] / (first[1] * second[1] * precision)
    return np.sqrt(scale) * np.exp((h**2 / precision - k) / 2)


def asymptotic_variance(mean=3.0, mode_sd=1.0, sampling_sd=1.0):
    """Return N times the variance of the estimate of 1, by draws from N(0, sd**2)."""
    modes = [(0.0, 1.0), (mean, mode_sd**2)]
    sampling = (0.0, sampling_sd**2)
    pairs = [_integral(first, second, sampling) for first in modes for second in modes]
    return sum(pairs) / 4 - 1


def _ratio(w, density):
    return (norm.pdf(w) + norm.pdf(w, 3)) / 2 / density


class Sampling:
    """Two modes, N(0, 1) and N(3, 1), and draws from N(0, sd**2) or from both modes."""

    def __init__(self, run, seed, n_repetitions=4000):
        self.seed, self.n_repetitions = seed, n_repetitions

    def bounds(self, sampling_sd):
        """Return the exact value and the bounds of Theorem 1 and its corollary."""
        exact = asymptotic_variance(sampling_sd=sampling_sd)
        values = {"N variance": exact, "4 E": 4 * (exact + 1)}
        if sampling_sd > 1:  # else the ratio is not bounded
            w = np.linspace(-20, 20, 400_001)
            values["4 c^2"] = 4 * _ratio(w, norm.pdf(w, 0, sampling_sd)).max() ** 2
        return values

    def coverage(self, both_modes, sd):
        """Return the coverage of nominal 95 % intervals from 1,000 draws."""
        rng = np.random.default_rng(self.seed)
        covered = 0
        for _ in range(self.n_repetitions // 100):
            shape = (1000, 100)
            draws = rng.normal(0, sd, shape)
            if both_modes:
                draws += 3 * rng.integers(2, size=shape)
                density = (norm.pdf(draws, 0, sd) + norm.pdf(draws, 3, sd)) / 2
            else:
                density = norm.pdf(draws, 0, sd)
            ends = importance_estimate(_ratio(draws, density)).interval
            covered += np.sum((ends[:, 0] <= 1) & (ends[:, 1] >= 1))
        return {"coverage": covered / (self.n_repetitions // 100 * 100)}


DRAWS = {
    "draws from N(0, 1)": (False, 1.0),
    "draws from N(0, 4)": (False, 2.0),
    "draws from both modes": (True, 1.2),
}
PANELS = {
    "mode_sd": (0.5, 1.0, 1.3),
    "mean": (1.0, 2.0, 4.0, 5.0),
    "sampling_sd": (0.8, 1.5, 2.0, 2.667, 3.0, 5.0),
}


def table_sampling(parts):
    """Yield closed forms, bounds and coverages."""
    for name, values in PANELS.items():
        for value in values:
            row = f"{name.replace('_', ' ')} {value:g}"
            yield Row(row, partial(_closed_form, **{name: value}))
    for sd in (1.0, 2.0):
        yield Row(f"bounds, sampling sd {sd:g}", partial(parts.bounds, sd))
    for name, (both_modes, sd) in DRAWS.items():
        yield Row(name, partial(parts.coverage, both_modes, sd))


def _closed_form(**changes):
    return {"N variance": asymptotic_variance(**changes)}


def covers_too_rarely(records):
    """Return by how much draws from one mode cover less than those from both."""
    names = ("draws from N(0, 1)", "draws from both modes")
    if not set(names) <= set(records.rows("fig-B.1")):
        return None
    missed, both = (records.of("fig-B.1", name, "coverage") for name in names)
    return both - missed


def draw_sampling(records):
    """Draw N times the variance over the three settings."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), sharey=True)
    grids = {"mode_sd": (0.1, 1.3), "mean": (0.5, 5), "sampling_sd": (0.8, 5)}
    for ax, (name, ends) in zip(axes, grids.items(), strict=True):
        grid = np.linspace(*ends, 100)
        ax.plot(grid, [asymptotic_variance(**{name: value}) for value in grid])
        ax.set(xlabel=name.replace("_", " "), xscale="log", yscale="log")
        ticks = [
            tick for tick in (0.1, 0.2, 0.5, 1, 2, 5) if ends[0] <= tick <= ends[1]
        ]
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.set_xticks([], minor=True)
    axes[0].set_ylabel("N times the variance")
    figure.tight_layout()
    plt.close(figure)
    return figure


# --- Fig. 2 ---------------------------------------------------------------------------

CENTERS = np.array([[-4.0, -2.0], [4.0, -2.0], [0.0, 2 * np.sqrt(2)]])


class Simplex:
    """Three classes in the plane, and networks with a given prediction at a point.

    The draw 1 has the corner of the class nearest to the point as the cheapest; which
    corner is cheapest depends on the draw.
    """

    def __init__(self, run, seed, n_refinements=5, n_runs=20, n_steps=500):
        self.run, self.seed, self.n_refinements = run, seed, n_refinements
        self.options = {"n_runs": n_runs, "n_steps": n_steps}

    @cached_property
    def losses(self):
        """Return the vertices and the loss that networks attain at each."""
        rng = np.random.default_rng(1)
        X = np.concatenate([rng.normal(center, 1.5, (21, 2)) for center in CENTERS])
        grid = SimplexDisplay.grid(self.n_refinements)
        layers = [nn.Linear(2, 10), nn.ReLU(), nn.Linear(10, 10), nn.ReLU()]
        loss = attainable_likelihood(
            nn.Sequential(*layers, nn.Linear(10, 3)),
            X,
            np.repeat([0, 1, 2], 21),
            np.array([-6.0, 2.0]),
            grid,
            **self.options,
            random_state=self.seed,
            device=self.run.device,
        )
        return grid, loss

    def vertex(self, target):
        """Return the training loss at a vertex."""
        grid, loss = self.losses
        return {"training loss": loss[np.isclose(grid, target).all(axis=1)][0]}

    def all_vertices(self):
        """Return the least and largest loss, and the number of vertices."""
        loss = self.losses[1]
        return {"least": loss.min(), "largest": loss.max(), "vertices": len(loss)}


def table_simplex(parts):
    """Yield the corners and all vertices."""
    for k, corner in enumerate(np.eye(3)):
        yield Row(f"corner of class {k}", partial(parts.vertex, corner))
    yield Row("all", parts.all_vertices)


def nearest_is_cheapest(records):
    """Return how much more the other corners cost than that of the nearest class."""
    names = [f"corner of class {k}" for k in range(3)]
    if not set(names) <= set(records.rows("fig-2")):
        return None
    near, *others = (records.of("fig-2", name, "training loss") for name in names)
    return np.min(others, axis=0) - near


# --- for quam.py ----------------------------------------------------------------------

EXPERIMENTS = [
    Experiment(
        "two modes", Sampling, {"fig-B.1": table_sampling}, seeds=3, time="20 seconds"
    ),
    Experiment(
        "simplex", Simplex, {"fig-2": table_simplex}, seeds=3, time="minutes a run"
    ),
    *(
        Experiment(
            f"sine, variance {variance}",
            partial(posteriors.Sine, variance=variance),
            {"fig-C.4": posteriors.table_sine},
            seeds=3,
            time="15 minutes a run on a CPU",
        )
        for variance in (0.01, 0.1)
    ),
    *(
        Experiment(
            f"two moons, prior {prior}",
            partial(posteriors.Moons, prior=prior),
            {"fig-3": posteriors.table_moons},
            seeds=3,
            time="10 minutes a run on a CPU",
        )
        for prior in ("unit", "he")
    ),
]

SMALL = [
    Experiment(
        "two modes",
        partial(Sampling, n_repetitions=1000),
        {"fig-B.1": table_sampling},
    ),
    Experiment(
        "simplex",
        partial(Simplex, n_refinements=2, n_runs=3, n_steps=100),
        {"fig-2": table_simplex},
    ),
    Experiment(
        "sine",
        partial(posteriors.SmallSine, variance=0.01),
        {"fig-C.4": posteriors.table_sine},
    ),
    Experiment("two moons", posteriors.SmallMoons, {"fig-3": posteriors.table_moons}),
]

CLAIMS = [
    Claim(
        "Intervals from draws of one mode cover too rarely",
        "fig-B.1",
        covers_too_rarely,
    ),
    Claim("The nearest class is the cheapest prediction", "fig-2", nearest_is_cheapest),
    *(
        Claim(
            f"Not the paper's: the sd of {name} is larger outside of the samples",
            "fig-C.4",
            partial(posteriors.grows_outside, name=name),
        )
        for name in ("deep ensemble", "QUAM")
    ),
    Claim(
        "QUAM ranks points more like HMC than the deep ensemble",
        "fig-3",
        partial(posteriors.is_closer, other="deep ensemble"),
    ),
    Claim(
        "QUAM ranks points more like HMC than MC dropout",
        "fig-3",
        partial(posteriors.is_closer, other="MC dropout"),
    ),
]

NOTES = {
    "fig-B.1": "N times the variance of an estimate of 1, in closed form, and the "
    "coverage of nominal 95 % intervals from 1,000 draws.",
    "fig-2": "Median training loss of networks that make a prediction at (-6, 2). Data "
    "are drawn by default_rng(1): which corner is cheapest depends on the draw.",
    "fig-C.4": "Mean standard deviation of members in [-pi, pi] and in the rest of "
    "[-6, 6]. The paper's HMC assumes a variance of 0.1, its data have 0.01.",
    "fig-3": "Correlations to HMC of maps of the epistemic uncertainty, in settings a "
    "and b, under normal priors of unit variance and of He's.",
}

FIGURES = {"fig-B.1": draw_sampling}

SOURCES = [
    Path(__file__),
    Path(posteriors.__file__),
    *(Path(module.__file__) for module in (posteriors._sine, posteriors._two_moons)),
]
