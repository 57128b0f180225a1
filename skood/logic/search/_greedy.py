"""Greedy search: constraints are added one by one while the objective increases."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real
from time import perf_counter
from typing import NamedTuple

import numpy as np

from skood.logic.search._incremental_network import Factor, SearchModel
from skood.metrics import auroc
from skood.utils._estimator import SkoodEstimator
from skood.utils._param_validation import Interval, Options, StrOptions
from skood.utils._progress import progress

ORDERS = frozenset({"listed", "random", "gain"})


class ConstraintCandidate(NamedTuple):
    """A constraint, its `Factor`, and its truth (n_kinds,) in validation samples."""

    text: str
    factor: Factor
    truth: np.ndarray


class Validation:
    """Validation samples, of ``kinds`` by their concepts, and the objective on them."""

    def __init__(self, is_ood, kinds, log_sf, *, fusion, objective):
        self._labels = np.where(is_ood, -1, 0)
        self._kinds = kinds
        self._log_sf = log_sf
        self._fusion = fusion
        self._objective = objective
        n_kinds = int(kinds.max()) + 1
        self._rates = np.bincount(kinds[~is_ood], minlength=n_kinds) / np.sum(~is_ood)

    def value(self, model, candidates):
        """Return the objective of a fitted network of these constraints."""
        penalty = np.zeros(len(self._rates))
        for weight, candidate in zip(model.weights, candidates, strict=True):
            penalty -= weight * candidate.truth
        if self._objective == "likelihood":
            return float(-self._rates @ penalty - model.log_partition())
        outlier = self._fusion.fuse(
            penalty[self._kinds], self._log_sf, model.max_penalty()
        )
        return auroc(self._labels, -outlier)


class GreedySearch(SkoodEstimator):
    r"""Options of a greedy search for constraints: order, stopping and pruning.

    With the objective J of the constraints S accepted so far, a candidate c is accepted
    if :math:`J(S \cup \{c\}) > J(S) + \delta_{\min}`.

    Read more in the :ref:`User Guide <logic>`.

    Parameters
    ----------
    order : {"listed", "random", "gain"}, default="listed"
        Order in which candidates are tried. "listed" and "random" try each candidate
        once. "gain" ranks them by the increase of the likelihood of the held-out ID
        samples, which is the Kullback-Leibler divergence of their observed from their
        predicted truth [1]_; the best of the first `n_refits` is added, then all others
        are ranked again, until no candidate improves the objective.

    n_refits : int, default=20
        Number of candidates to try in each round of the order "gain".

    min_improvement : float, default=0.001
        :math:`\delta_{\min}`, at least 0.

    max_constraints : int, default=None
        Maximal number of constraints to add. None: no limit.

    prune : bool, default=True
        Whether to remove constraints at the end if the objective does not decrease
        without them.

    See Also
    --------
    ConstraintSearch : Uses it as `search`.

    References
    ----------
    .. [1] S. Della Pietra, V. Della Pietra, J. Lafferty. Inducing features of random
       fields. IEEE Transactions on Pattern Analysis and Machine Intelligence, 1997.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from skood.logic import ConstraintSearch, GreedySearch, MLNDetector
    >>> mln = MLNDetector([], [("a", DecisionTreeClassifier())], "confidence")
    >>> search = ConstraintSearch(mln, search=GreedySearch("gain", max_constraints=5))
    >>> search.set_params(search__n_refits=10).search
    GreedySearch(max_constraints=5, n_refits=10, order='gain')
    """

    _parameter_constraints: dict = {
        "order": [StrOptions(set(ORDERS))],
        "n_refits": [Interval(Integral, 1, None, closed="left")],
        "min_improvement": [Interval(Real, 0, None, closed="left")],
        "max_constraints": [Interval(Integral, 0, None, closed="left"), None],
        "prune": [Options(bool, {True, False})],
    }

    def __init__(
        self,
        order="listed",
        *,
        n_refits=20,
        min_improvement=0.001,
        max_constraints=None,
        prune=True,
    ):
        self.order = order
        self.n_refits = n_refits
        self.min_improvement = min_improvement
        self.max_constraints = max_constraints
        self.prune = prune

    def _run(self, model, start, candidates, validation, rng, verbose):
        """Return the `Greedy` state after the search."""
        n = len(candidates)
        greedy = Greedy(
            model,
            start,
            candidates,
            validation,
            self.min_improvement,
            n if self.max_constraints is None else self.max_constraints,
        )
        with progress(n, desc="constraints", verbose=verbose) as bar:
            if self.order == "gain":
                greedy.by_gain(self.n_refits, bar)
            else:
                order = range(n) if self.order == "listed" else rng.permutation(n)
                greedy.in_order(order, bar)
        if self.prune:
            greedy.prune()
        return greedy


class Greedy:
    """A network of ``start`` constraints, and at most ``n_most`` candidates."""

    def __init__(self, model, start, candidates, validation, min_improvement, n_most):
        self.model: SearchModel = model
        self.start = list(start)
        self.candidates = candidates
        self.validation = validation
        self.min_improvement = min_improvement
        self.n_most = n_most
        self.selected: list = []
        self.inexact: set = set()
        self.before = self.value = validation.value(model, self.start)
        self.history: dict = {
            name: []
            for name in ("candidate", "gain", "before", "after", "accepted", "seconds")
        }

    def _chosen(self, indices):
        return self.start + [self.candidates[i] for i in indices]

    def _try(self, i, model, started):
        """Fit the network with a candidate, and record the result."""
        gain = self.model.gain(self.candidates[i].factor)
        value = self.validation.value(model.fit(), self._chosen([*self.selected, i]))
        accepted = value > self.value + self.min_improvement
        row = (i, gain, self.value, value, accepted, perf_counter() - started)
        for column, entry in zip(self.history.values(), row, strict=True):
            column.append(entry)
        return value, accepted

    def _accept(self, i, model, value):
        self.selected.append(i)
        self.model, self.value = model.settled(), value

    def _extended(self, i):
        model = self.model.extended(self.candidates[i].factor)
        if model is None:
            self.inexact.add(i)
        return model

    def _gain(self, i):
        """Return the gain of a candidate, or None."""
        gain = self.model.gain(self.candidates[i].factor)
        if gain is None:
            self.inexact.add(i)
        return gain

    def in_order(self, order, bar):
        """Try candidates once in an order, and add the ones that help."""
        for i in order:
            if len(self.selected) >= self.n_most:
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
        """Add the best of the `n_refits` largest gains, until none improves."""
        rest = list(range(len(self.candidates)))
        while rest and len(self.selected) < self.n_most:
            gains = {i: self._gain(i) for i in rest}
            rest = [i for i in rest if gains[i] is not None]
            ranked = sorted(rest, key=lambda i: -gains[i])  # stable for ties
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
        """Remove constraints, the least useful first, unless the objective falls."""
        while self.selected:
            best = None
            for place in reversed(range(len(self.selected))):  # of ties, the last added
                model = self.model.without(len(self.start) + place)
                if model is None:
                    continue
                rest = [i for k, i in enumerate(self.selected) if k != place]
                value = self.validation.value(model.fit(), self._chosen(rest))
                if value >= self.value and (best is None or value > best[0]):
                    best = value, model, rest
            if best is None:
                return
            self.value, model, self.selected = best
            self.model = model.settled()

    def written(self):
        """Return the history of the search as a dict of columns of equal lengths."""
        tried = self.history["candidate"]
        accepted = np.array(self.history["accepted"], dtype=bool)
        return {
            "candidate": [self.candidates[i].text for i in tried],
            "gain": np.array(self.history["gain"], dtype=np.float64),
            "before": np.array(self.history["before"], dtype=np.float64),
            "after": np.array(self.history["after"], dtype=np.float64),
            "accepted": accepted,
            "kept": accepted & np.isin(tried, self.selected),
            "seconds": np.array(self.history["seconds"], dtype=np.float64),
        }

    def _show(self, bar):
        bar.set_postfix(found=len(self.selected), objective=f"{self.value:.4f}")
