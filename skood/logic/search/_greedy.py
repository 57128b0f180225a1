"""The greedy search itself: constraints go in one by one while the objective grows."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from time import perf_counter
from typing import NamedTuple

import numpy as np

from skood.logic._fusion import fuse
from skood.logic.search._incremental_network import Factor, SearchModel
from skood.metrics import auroc

__all__ = ["Candidate", "Greedy", "Validation"]


class Candidate(NamedTuple):
    """A constraint that may be added.

    Parameters
    ----------
    text : str
        The constraint.

    factor : Factor
        What the network sees of it.

    truth : ndarray of shape (n_kinds,), dtype float64
        Its truth in each kind of validation row.
    """

    text: str
    factor: Factor
    truth: np.ndarray


class Validation:
    """Rows that decide.

    Parameters
    ----------
    is_ood : ndarray of shape (n_samples,), dtype bool
        Which rows are OOD.

    kinds : ndarray of shape (n_samples,), dtype int
        Rows of the same kind have the same concepts.

    log_sf : ndarray of shape (n_samples,) or float
        What the detector adds, see `fuse`.

    fusion, gamma
        See `fuse`.

    objective : {"auroc", "likelihood"}
        What is to grow.
    """

    def __init__(self, is_ood, kinds, log_sf, *, fusion, gamma, objective):
        self._labels = np.where(is_ood, -1, 0)
        self._kinds = kinds
        self._log_sf = log_sf
        self._fusion = fusion
        self._gamma = gamma
        self._objective = objective
        n_kinds = int(kinds.max()) + 1
        self._share = np.bincount(kinds[~is_ood], minlength=n_kinds) / np.sum(~is_ood)

    def value(self, model, candidates):
        """The objective of a fitted network of these constraints."""
        penalty = np.zeros(len(self._share))
        for weight, candidate in zip(model.weights, candidates, strict=True):
            penalty -= weight * candidate.truth
        if self._objective == "likelihood":
            return float(-self._share @ penalty - model.log_partition())
        outlier = fuse(
            penalty[self._kinds],
            self._log_sf,
            fusion=self._fusion,
            gamma=self._gamma,
            max_penalty=model.max_penalty(),
        )
        return auroc(self._labels, -outlier)


class Greedy:
    """A network that constraints are added to while an objective grows.

    Parameters
    ----------
    model : SearchModel
        The fitted network of the start.

    start : list of Candidate
        Its constraints, which stay.

    candidates : list of Candidate
        What may be added.

    validation : Validation
        What is to grow.

    min_improvement : float
        By how much it has to.

    max_constraints : int or None
        How many constraints may be added.
    """

    def __init__(
        self, model, start, candidates, validation, min_improvement, max_constraints
    ):
        self.model: SearchModel = model
        self.start = list(start)
        self.candidates = candidates
        self.validation = validation
        self.min_improvement = min_improvement
        self.n_most = len(candidates) if max_constraints is None else max_constraints
        self.found: list = []
        self.inexact: set = set()
        self.value = validation.value(model, self.start)
        self.history: dict = {
            name: []
            for name in ("candidate", "gain", "before", "after", "accepted", "seconds")
        }

    def _chosen(self, found):
        return self.start + [self.candidates[i] for i in found]

    def _try(self, i, model, started):
        """Fit the network with a candidate, and write down what comes of it."""
        gain = self.model.gain(self.candidates[i].factor)
        value = self.validation.value(model.fit(), self._chosen([*self.found, i]))
        accepted = value > self.value + self.min_improvement
        row = (i, gain, self.value, value, accepted, perf_counter() - started)
        for column, entry in zip(self.history.values(), row, strict=True):
            column.append(entry)
        return value, accepted

    def _accept(self, i, model, value):
        self.found.append(i)
        self.model, self.value = model.settled(), value

    def _extended(self, i):
        model = self.model.extended(self.candidates[i].factor)
        if model is None:
            self.inexact.add(i)
        return model

    def _gain(self, i):
        """Gain of a candidate, or None."""
        gain = self.model.gain(self.candidates[i].factor)
        if gain is None:
            self.inexact.add(i)
        return gain

    def in_order(self, order, bar):
        """Try each candidate once, and keep it if the objective grows.

        Parameters
        ----------
        order : iterable of int
            The candidates.

        bar : progress
            Is told.
        """
        for i in order:
            if len(self.found) >= self.n_most:
                return
            started = perf_counter()
            model = self._extended(i)
            if model is not None:
                value, accepted = self._try(i, model, started)
                if accepted:
                    self._accept(i, model, value)
                    self._show(bar)
            bar.update(1)

    def by_gain(self, n_refits, bar):
        """Add the best of the candidates with the largest gains, until none is good.

        Parameters
        ----------
        n_refits : int
            How many candidates are fitted in each round.

        bar : progress
            Is told.
        """
        rest = list(range(len(self.candidates)))
        while rest and len(self.found) < self.n_most:
            gains = {i: self._gain(i) for i in rest}
            rest = [i for i in rest if gains[i] is not None]
            ranked = sorted(rest, key=lambda i: -gains[i])  # of equal gains, the first
            best = None
            for i in ranked[:n_refits]:
                started = perf_counter()
                model = self._extended(i)
                value, accepted = self._try(i, model, started)
                self.history["accepted"][-1] = False
                if accepted and (best is None or value > best[2]):
                    best = i, model, value, len(self.history["accepted"]) - 1
                bar.update(1)
            if best is None:
                return
            i, model, value, row = best
            self.history["accepted"][row] = True
            self._accept(i, model, value)
            rest.remove(i)
            self._show(bar)

    def prune(self):
        """Take constraints out again while the objective does not fall.

        The one without which it is highest is the first to go; of several, the one that
        was added last.
        """
        while self.found:
            best = None
            for place in reversed(range(len(self.found))):
                model = self.model.without(len(self.start) + place)
                if model is None:
                    continue
                rest = [i for k, i in enumerate(self.found) if k != place]
                value = self.validation.value(model.fit(), self._chosen(rest))
                if value >= self.value and (best is None or value > best[0]):
                    best = value, model, rest
            if best is None:
                return
            self.value, model, self.found = best
            self.model = model.settled()

    def written(self):
        """What was tried, with whether it is still there.

        Returns
        -------
        columns : dict of str to (list or ndarray)
            Of equal lengths.
        """
        tried = self.history["candidate"]
        accepted = np.array(self.history["accepted"], dtype=bool)
        return {
            "candidate": [self.candidates[i].text for i in tried],
            "gain": np.array(self.history["gain"], dtype=np.float64),
            "before": np.array(self.history["before"], dtype=np.float64),
            "after": np.array(self.history["after"], dtype=np.float64),
            "accepted": accepted,
            "kept": accepted & np.isin(tried, self.found),
            "seconds": np.array(self.history["seconds"], dtype=np.float64),
        }

    def _show(self, bar):
        bar.set_postfix(found=len(self.found), objective=f"{self.value:.4f}")
