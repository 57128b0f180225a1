"""Metrics on resamples, and significance of differences from the best detector."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.benchmark._cells import ID
from skood.metrics import aupr_in, aupr_out, auroc, detection_error, fpr_at_tpr
from skood.metrics._intervals import exact_interval, has_closed_form
from skood.metrics._ranking import (
    _aupr,
    _auroc,
    _detection_error,
    _flip,
    _fpr_at_tpr,
)
from skood.metrics._resampling import make_system, seed_of
from skood.metrics._unseen import unseen_interval
from skood.utils._ties import ends_of_ties

__all__ = ["FUNCTIONS", "METRICS", "Resamples", "holm", "pvalues_of_best"]

#: Name of a metric: its sign, +1 if greater is better, and its function of the numbers
#: of accepted ID and OOD samples.
METRICS = {
    "auroc": (1, _auroc),
    "aupr_in": (1, lambda counts: _aupr(counts, "step")),
    "aupr_out": (1, lambda counts: _aupr(_flip(counts), "step")),
    "fpr_at_tpr": (-1, lambda counts: _fpr_at_tpr(counts, 0.95)),
    "detection_error": (-1, _detection_error),
}

#: Name of a metric: its function of labels and scores.
FUNCTIONS = {
    function.__name__: function
    for function in (auroc, aupr_in, aupr_out, fpr_at_tpr, detection_error)
}


class _Ranking:
    """Held-out ID samples and OOD samples in decreasing order of their scores."""

    def __init__(self, id_scores, ood_scores):
        scores = np.concatenate([id_scores, ood_scores])
        order = np.argsort(scores)[::-1]
        self.scores = scores
        self.order = order.astype(np.int32)
        self.is_ood = order >= len(id_scores)
        self.last = ends_of_ties(scores[order])

    def counts(self, id_weights, ood_weights):
        """Return numbers of ID and OOD samples accepted at each distinct score."""
        weights = np.concatenate([id_weights, ood_weights])[self.order]
        accepted = np.cumsum(weights)[self.last]
        accepted_ood = np.cumsum(np.where(self.is_ood, weights, 0))[self.last]
        drawn = np.diff(accepted, prepend=0) > 0
        return (accepted - accepted_ood)[drawn], accepted_ood[drawn]


class Resamples:
    """Metrics of all detectors on the i-th resample, for joblib.

    ID samples held out in any repeat, and each set of OOD samples, are resampled with
    replacement to their original size. A sample that is drawn twice counts twice in
    each repeat in which it is held out: repeats share samples, and so are not
    independent. ``scores`` is the result of `run_cells`, ``repeats`` has the held-out
    ID samples, ``names`` are the detectors, ``sets`` the sets of OOD samples,
    ``groups`` lists of sets whose metrics are averaged, ``metrics`` names among
    `METRICS`, and ``random_state`` a RandomState for the resamples.
    """

    def __init__(self, scores, repeats, names, sets, groups, metrics, random_state):
        self.rankings = [
            [[_Ranking(s[name, ID], s[name, rows]) for rows in sets] for name in names]
            for s in scores
        ]
        self.tests = [repeat.test for repeat in repeats]
        self.held_out = np.unique(np.concatenate(self.tests))
        self.n_id = int(self.held_out[-1]) + 1
        self.n_ood = [len(scores[0][names[0], rows]) for rows in sets]
        self.groups = groups
        self.metrics = metrics
        self.entropy = seed_of(random_state)

    def __call__(self, i):
        return self._values(*self._draw(i)).mean(axis=0)

    def each(self):
        """Return the metrics on the samples without resampling.

        They have shape (n_repeats, n_detectors, n_columns, n_metrics); columns are the
        sets, and then the groups.
        """
        return self._values(
            np.ones(self.n_id, dtype=np.int64),
            [np.ones(n, dtype=np.int64) for n in self.n_ood],
        )

    def ends(self, confidence_level):
        """Return minimal ends of intervals.

        The shape is (n_detectors, n_columns, n_metrics, 2). They are the ends of exact
        intervals of metrics, and the values that unseen samples do not exclude;
        averages over repeats and groups, since the deviation of a mean is at most the
        mean of the deviations. Columns are the sets, and then the groups.
        """
        ends = np.mean(
            [
                [
                    [self._ends(ranking, confidence_level) for ranking in row]
                    for row in rankings
                ]
                for rankings in self.rankings
            ],
            axis=0,
        )
        means = [ends[:, group].mean(axis=1) for group in self.groups]
        return (
            np.concatenate([ends, np.stack(means, axis=1)], axis=1) if means else ends
        )

    def _ends(self, ranking, confidence_level):
        """Return the ends of all metrics of one detector on one set."""
        n_id, n_ood = np.sum(~ranking.is_ood), np.sum(ranking.is_ood)
        strata = [np.arange(n_id), n_id + np.arange(n_ood)]
        is_ood = np.repeat([False, True], [n_id, n_ood])
        y_true = np.where(is_ood, -1, 0)
        ends = []
        for name in self.metrics:
            system = make_system(
                FUNCTIONS[name], y_true, (ranking.scores,), {}, -1, None
            )
            if has_closed_form(system):
                ends.append(exact_interval(system, confidence_level))
                continue
            given = system.value(), system, strata, is_ood, (0.0, 1.0)
            ends.append(unseen_interval(*given, confidence_level))
        return ends

    def _draw(self, i):
        """Return how often each sample is drawn; ID samples separately per repeat."""
        rng = np.random.default_rng([*self.entropy, i])
        n = self.held_out.size
        while True:
            drawn = self.held_out[rng.integers(n, size=n)]
            id_weights = np.bincount(drawn, minlength=self.n_id)
            if all(id_weights[test].any() for test in self.tests):
                break
        return id_weights, [
            np.bincount(rng.integers(n, size=n), minlength=n) for n in self.n_ood
        ]

    def _values(self, id_weights, ood_weights):
        values = np.array(
            [
                [
                    [
                        self._metrics(ranking.counts(id_weights[test], weights))
                        for ranking, weights in zip(row, ood_weights, strict=True)
                    ]
                    for row in rankings
                ]
                for rankings, test in zip(self.rankings, self.tests, strict=True)
            ]
        )
        means = [values[:, :, group].mean(axis=2) for group in self.groups]
        if not means:
            return values
        return np.concatenate([values, np.stack(means, axis=2)], axis=2)

    def _metrics(self, counts):
        return [METRICS[name][1](counts) for name in self.metrics]


def pvalues_of_best(values, draws):
    r"""Return p-values of being one of the best systems, 1 for the best.

    The lag of system i behind another is measured in standard errors, and its largest
    lag, :math:`\max_j (\hat\theta_j - \hat\theta_i) / s_{ij}`, is compared with the
    same of the resampled errors :math:`\theta^*_j - \hat\theta_j`. If no system is
    better than i, its lag is at most that of the errors, independent of the observed
    best system. Without :math:`s_{ij}`, the standard deviation of the difference of two
    errors, one system of high variance would hide the differences of all others.
    `values` have shape (n_systems,), greater is better; `draws`, of shape (n_draws,
    n_systems), are values on common resamples.
    """
    errors = draws - values
    rounding = 1e-12 * max(1.0, np.abs(values).max())
    pvalues = np.ones(len(values))
    for i in range(len(values)):
        behind, differences = values - values[i], errors - errors[:, [i]]
        scale = differences.std(axis=0)
        varies = scale > rounding
        if (behind[~varies] > rounding).any():  # worse by a constant on every resample
            hits = 0
        elif varies.any():
            largest = (differences[:, varies] / scale[varies]).max(axis=1)
            # the lag of a system behind itself is 0
            lag = max(0.0, (behind[varies] / scale[varies]).max())
            hits = (np.maximum(largest, 0.0) >= lag - 1e-12 * max(1.0, lag)).sum()
        else:
            continue
        pvalues[i] = (1 + hits) / (1 + len(draws))
    return pvalues


def holm(pvalues):
    r"""Return p-values, of shape (n_tests,), adjusted by Holm's method.

    .. math:: \tilde p_{(i)} = \max_{j \le i} \min(1, (m - j + 1) \, p_{(j)})

    If hypotheses with adjusted p-value of at most alpha are rejected, the family-wise
    error rate is at most alpha.
    """
    order = np.argsort(pvalues, kind="stable")
    scaled = pvalues[order] * np.arange(len(pvalues), 0, -1)
    adjusted = np.empty(len(pvalues))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return adjusted
