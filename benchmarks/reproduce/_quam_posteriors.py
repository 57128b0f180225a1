"""Methods for epistemic uncertainty against HMC: a sine, and two moons."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys
import warnings
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from scipy.stats import pearsonr, spearmanr
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from benchmarks.reproduce._paper import Row
from skood.epistemic import (
    QUAM,
    AdversarialSearch,
    CyclicalSchedule,
    CyclicalSGHMC,
    DeepEnsemble,
    HMCKernel,
    Laplace,
    MCDropout,
    MixtureLaplace,
    entropy,
)
from skood.exceptions import SkoodWarning

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "epistemic"))

import _sine
import _two_moons

# --- Fig. C.4 -------------------------------------------------------------------------


class Sine:
    """A network on a sine, and six methods with the settings of the paper."""

    grid = _sine.GRID

    def __init__(self, run, seed, variance):
        self.seed, self.variance = seed, variance
        self._stds = {}

    @cached_property
    def data(self):
        """Return training samples, in the first run the ones of the paper."""
        return _sine.make_sine(random_state=42 + self.seed)

    def untrained(self):
        """Return the network, not fitted."""
        return _sine.make_network((200, 200, 200), 500, 1e-3)

    def methods(self, network):
        """Return the methods by name."""
        return _sine.paper_methods(network, self.variance)

    @cached_property
    def all_methods(self):
        """Return the methods of this run."""
        network = self.untrained().set_params(random_state=self.seed).fit(*self.data)
        found = self.methods(network)
        return {k: m.set_params(random_state=self.seed) for k, m in found.items()}

    def std(self, name):
        """Return the standard deviation of the members on the grid."""
        if name not in self._stds:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SkoodWarning)  # R-hat is a column
                method = self.all_methods[name].fit(*self.data)
                points = self.grid[:, None]
                _, self._stds[name] = method.predict(points, return_std="epistemic")
        return self._stds[name]

    def measure(self, name):
        """Return the columns of a method."""
        std, inside = self.std(name), np.abs(self.grid) <= np.pi
        values = {"sd inside": std[inside].mean(), "sd outside": std[~inside].mean()}
        if name == "HMC":
            return {**values, "R-hat": self.all_methods["HMC"].r_hat_}
        truth = self.std("HMC")
        values["Pearson to HMC"] = pearsonr(std, truth)[0]
        values["Spearman to HMC"] = spearmanr(std, truth)[0]
        return values


class SmallSine(Sine):
    """The same with a small network, short chains and an eighth of the points."""

    grid = _sine.GRID[::8]

    def untrained(self):
        """Return a network with two layers of 50 units."""
        return _sine.make_network(n_epochs=100)

    def methods(self, network):
        """Return short versions of the methods."""
        methods = _sine.quick_methods(network, self.variance)
        methods["HMC"].set_params(
            kernel=HMCKernel(n_leapfrog=20, n_warmup=12), n_samples=12
        )
        methods["deep ensemble"].set_params(n_members=3)
        methods["MC dropout"].set_params(n_samples=50)
        methods["cSG-HMC"].set_params(
            schedule=CyclicalSchedule(
                n_cycles=2,
                epochs_per_cycle=100,
                samples_per_cycle=20,
                exploration=0.8,
                lr=1e-3,
            )
        )
        return methods


SINE = ("HMC", "QUAM", "deep ensemble", "MC dropout", "Laplace", "cSG-HMC")


def table_sine(parts):
    """Yield the six methods."""
    for name in SINE:
        yield Row(f"variance {parts.variance}/{name}", partial(parts.measure, name))


def grows_outside(records, name):
    """Return the standard deviation outside of the training samples minus inside."""
    rows = [row for row in records.rows("fig-C.4") if row.endswith(f"/{name}")]
    if not rows:
        return None
    outside, inside = (
        np.array([records.of("fig-C.4", row, f"sd {where}") for row in rows])
        for where in ("outside", "inside")
    )
    return (outside - inside).T


# --- Fig. 3 ---------------------------------------------------------------------------


class Moons:
    """A network on two moons, and maps of its epistemic uncertainty."""

    side = 40
    references = ("entropy of the network", "HMC, another seed")

    def __init__(self, run, seed, prior="unit"):
        self.seed, self.prior = seed, prior

    @cached_property
    def data(self):
        """Return training samples and labels."""
        return _two_moons.make_data(random_state=self.seed)

    @cached_property
    def grid(self):
        """Return the points of the maps."""
        return _two_moons.make_grid(self.side)

    @cached_property
    def network(self):
        """Return the given network."""
        return _two_moons.fit_network(*self.data, random_state=self.seed)

    def hmc(self, seed):
        """Return HMC, not fitted."""
        return _two_moons.make_hmc(self.network, self.prior, random_state=seed)

    def methods(self):
        """Return functions that make the methods, by name."""
        frozen, unfitted = FrozenEstimator(self.network), clone(self.network)
        seeded = {"random_state": self.seed}
        scale = _two_moons.PRIORS[self.prior]
        cycles = CyclicalSchedule(
            n_cycles=20, epochs_per_cycle=200, samples_per_cycle=10
        )
        return {
            "QUAM": lambda: QUAM(frozen, **seeded),
            # chosen by the maps of HMC for the first network, the best of some fifty
            "QUAM, tuned": lambda: QUAM(
                frozen,
                AdversarialSearch(n_steps=40, c0=30.0, weight_decay=1e-4),
                temperature=1.0,
                **seeded,
            ),
            "cSG-HMC": lambda: CyclicalSGHMC(
                frozen, schedule=cycles, prior_scale=scale, **seeded
            ),
            "deep ensemble": lambda: DeepEnsemble(
                unfitted, 50, reference=frozen, **seeded
            ),
            "MC dropout": lambda: MCDropout(self.with_dropout(), 500, **seeded),
            "Laplace": lambda: Laplace(frozen, **seeded),
            "Laplace, all weights": lambda: Laplace(
                frozen, subset="all", hessian="diag", **seeded
            ),
            "mixture of Laplace": lambda: MixtureLaplace(
                Laplace(unfitted, n_samples=20), 10, **seeded
            ),
        }

    def with_dropout(self):
        """Return the network with dropout, not fitted."""
        params = {**self.network.module_params, "dropout": 0.2}
        return clone(self.network).set_params(module_params=params)

    def maps(self, classifier):
        """Return the maps of a classifier, in settings "a" and "b"."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SkoodWarning)  # R-hat is a column
            return _two_moons.epistemic_maps(classifier.fit(*self.data), self.grid)

    @cached_property
    def truth(self):
        """Return the maps of HMC, and R-hat."""
        hmc = self.hmc(self.seed)
        return self.maps(hmc), hmc.r_hat_

    def of_hmc(self):
        """Return R-hat and the means of the maps."""
        maps, r_hat = self.truth
        means = {f"{setting}/mean": found.mean() for setting, found in maps.items()}
        return {**means, "R-hat": r_hat}

    def measure(self, name):
        """Return the correlations of the maps of a method to the maps of HMC."""
        if name == "entropy of the network":
            with np.errstate(divide="ignore"):
                log_proba = np.log(self.network.predict_proba(self.grid))
            found = dict.fromkeys("ab", entropy(log_proba))
        elif name == "HMC, another seed":
            found = self.maps(self.hmc(self.seed + 1000))
        else:
            found = self.maps(self.methods()[name]())
        values = {}
        for setting, truth in self.truth[0].items():
            pearson, spearman = _two_moons.agreement(found[setting], truth)
            values[f"{setting}/Pearson"] = pearson
            values[f"{setting}/Spearman"] = spearman
            values[f"{setting}/mean"] = found[setting].mean()
        return values


class SmallMoons(Moons):
    """The same with a small network, short chains and 100 points."""

    side = 10
    references = ("entropy of the network",)

    @cached_property
    def network(self):
        """Return a network with two layers of 30 units."""
        return _two_moons.fit_network(
            *self.data, random_state=self.seed, hidden=(30, 30), max_epochs=150
        )

    def hmc(self, seed):
        """Return shorter trajectories."""
        return (
            super()
            .hmc(seed)
            .set_params(n_samples=15, kernel=HMCKernel(n_leapfrog=40, n_warmup=15))
        )

    def methods(self):
        """Return four of the methods, with fewer members."""
        made = super().methods()
        return {
            "QUAM": lambda: QUAM(
                FrozenEstimator(self.network),
                AdversarialSearch(n_steps=40),
                random_state=self.seed,
            ),
            "deep ensemble": lambda: made["deep ensemble"]().set_params(n_members=3),
            "MC dropout": lambda: made["MC dropout"]().set_params(n_samples=50),
            "Laplace": made["Laplace"],
        }


def table_moons(parts):
    """Yield HMC, and the methods that are compared with it."""
    yield Row(f"{parts.prior}/HMC", parts.of_hmc)
    for name in (*parts.references, *parts.methods()):
        yield Row(f"{parts.prior}/{name}", partial(parts.measure, name))


def is_closer(records, other):
    """Return the gain of QUAM in the rank correlations, with unit priors."""
    rows = [f"unit/{name}" for name in ("QUAM", other)]
    if not set(rows) <= set(records.rows("fig-3")):
        return None
    quam, others = (
        np.array([records.of("fig-3", row, f"{setting}/Spearman") for setting in "ab"])
        for row in rows
    )
    return (quam - others).T
