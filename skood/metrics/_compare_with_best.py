"""Comparison of several detectors with the best of them, on the same samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from collections.abc import Mapping
from itertools import chain
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from skood.metrics._intervals import covering_interval, exact_interval, has_closed_form
from skood.metrics._ranking import (
    _aupr,
    _auroc,
    _detection_error,
    _flip,
    _fpr_at_tpr,
    aupr_in,
    aupr_out,
    auroc,
    detection_error,
    fpr_at_tpr,
)
from skood.metrics._resampling import finite_values, make_system, seed_of
from skood.metrics._unseen import unseen_interval
from skood.utils._param_validation import Number, validate_params
from skood.utils._ties import ends_of_ties
from skood.utils._warnings import warn

# Name of a metric: its sign, +1 if greater is better, its function of the numbers of
# accepted ID and OOD samples, and its function of labels and scores.
METRICS = {
    "auroc": (1, _auroc, auroc),
    "aupr_in": (1, lambda counts: _aupr(counts, "step"), aupr_in),
    "aupr_out": (1, lambda counts: _aupr(_flip(counts), "step"), aupr_out),
    "fpr_at_tpr": (-1, lambda counts: _fpr_at_tpr(counts, 0.95), fpr_at_tpr),
    "detection_error": (-1, _detection_error, detection_error),
}


class BestComparison(NamedTuple):
    """Result of :func:`compare_with_best`.

    Parameters
    ----------
    values : ndarray of shape (n_repeats, n_detectors, n_columns, n_metrics)
        The metrics. Columns are the sets of OOD samples, and then the groups.

    low, high : ndarray of shape (n_detectors, n_columns, n_metrics)
        Ends of the intervals of the averages over repeats.

    pvalues : ndarray of shape (n_detectors, n_columns, n_metrics)
        Adjusted p-values of being among the best.

    See Also
    --------
    compare_with_best : Compares detectors.
    """

    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    pvalues: np.ndarray


@validate_params(
    {
        "id_scores": [list, tuple],
        "ood_scores": [Mapping],
        "held_out": [list, tuple, None],
        "groups": [Mapping, None],
        "metrics": [list, tuple],
        "n_resamples": [Number(Integral, 1, None, closed="left")],
        "confidence_level": [Number(Real, 0, 1, closed="neither")],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
    },
    prefer_skip_nested_validation=True,
)
def compare_with_best(
    id_scores,
    ood_scores,
    *,
    held_out=None,
    groups=None,
    metrics=("auroc", "aupr_in", "aupr_out", "fpr_at_tpr"),
    n_resamples=999,
    confidence_level=0.95,
    random_state=None,
    n_jobs=None,
):
    r"""Compare ranking metrics of several detectors with the best, on the same samples.

    Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    id_scores : list of array-like of shape (n_detectors, n_id)
        Scores of ID samples by every detector, high for ID; one array for each repeat
        of an experiment, such as a split.

    ood_scores : dict of str to list of array-like of shape (n_detectors, n_ood)
        Scores of sets of OOD samples, likewise one array for each repeat.

    held_out : list of array-like of shape (n_id,), default=None
        Indices of the ID samples that are scored in each repeat: repeats may share
        samples. None: every repeat has the same samples.

    groups : dict of str to list of str, default=None
        Groups of sets, over which the metrics are averaged.

    metrics : list of str
        Among "auroc", "aupr_in", "aupr_out", "fpr_at_tpr" (of 0.95) and
        "detection_error". The default is all but the last.

    n_resamples, confidence_level, random_state, n_jobs
        As in :func:`bootstrap_ci`.

    Returns
    -------
    result : BestComparison
        The `values` of the metrics, the ends `low` and `high` of their intervals, and
        `pvalues` of the hypothesis that no detector is better.

    Raises
    ------
    ValueError
        If a metric or a set is unknown, or shapes do not match.

    See Also
    --------
    paired_test : Compares two systems that were selected beforehand.
    skood.benchmark.compare : Fits detectors, and compares them by this function.

    Notes
    -----
    ID samples held out in any repeat, and each set of OOD samples, are resampled with
    replacement to their original size. A sample that is drawn twice counts twice in
    each repeat in which it is held out.

    *Intervals* are from :func:`bootstrap_ci`; of averages over repeats and groups,
    the parts that are exact or account for unseen samples are averages too, since the
    deviation of a mean is at most the mean of the deviations.

    *Significance.* For a metric :math:`\theta` that is high for good detectors, the
    largest lag of detector i behind another, in standard errors, is compared with the
    largest lag of the resampled errors :math:`e_{bj} = \theta^*_{bj} - \hat\theta_j`,

    .. math::
        p_i = \frac{1}{1 + B} \Big( 1 + \max_{\sigma = \pm 1} \# \Big\{ b : \max_j
        \frac{\sigma (e_{bj} - e_{bi})}{s_{ij}} \ge \max_j
        \frac{\hat\theta_j - \hat\theta_i}{s_{ij}} \Big\} \Big),
        \quad s_{ij} = \operatorname{sd}_b (e_{bj} - e_{bi}),

    so that the selection of the best detector on the same samples is accounted for
    [1]_ [2]_. The sign :math:`\sigma = -1` corresponds to percentile intervals: the FPR
    at a TPR depends on a quantile, whose resampled errors are the mirror image of its
    errors on few or tied samples [4]_. The p-values of a metric and a set are adjusted
    by Holm's method [3]_, p-values of different sets or metrics are not.

    References
    ----------
    .. [1] J. C. Hsu. Constrained simultaneous confidence intervals for multiple
       comparisons with the best. Annals of Statistics, 1984.
    .. [2] J. P. Romano and M. Wolf. Stepwise multiple testing as formalized data
       snooping. Econometrica, 2005.
    .. [3] S. Holm. A simple sequentially rejective multiple test procedure.
       Scandinavian Journal of Statistics, 1979.
    .. [4] M. Falk and E. Kaufmann. Coverage probabilities of bootstrap-confidence
       intervals for quantiles. Annals of Statistics, 1991.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.metrics import compare_with_best
    >>> rng = np.random.default_rng(0)
    >>> id_scores = rng.normal([[2.0], [1.9], [0.5]], size=(3, 100))
    >>> ood_scores = {"ood": [rng.normal(size=(3, 100))]}
    >>> result = compare_with_best(
    ...     [id_scores], ood_scores, metrics=["auroc"], n_resamples=199, random_state=0
    ... )
    >>> result.values[0, :, 0, 0].round(2)
    array([0.95, 0.9 , 0.58])
    >>> result.pvalues[:, 0, 0] > 0.05
    array([ True,  True, False])
    """
    sets, groups = list(ood_scores), groups or {}
    if not all([id_scores, sets, metrics, *map(len, groups.values())]):
        raise ValueError(
            "id_scores, ood_scores, metrics and each group must have one entry or more."
        )
    ids, oods, held_out = _checked(id_scores, ood_scores, held_out)
    unknown = [name for name in metrics if name not in METRICS]
    unknown += [name for group in groups.values() for name in group if name not in sets]
    if unknown:
        raise ValueError(
            f"metrics must be names among {list(METRICS)} and groups must have sets "
            f"among {sets}, got {unknown}."
        )
    n_id = min(test.size for test in held_out)
    if "fpr_at_tpr" in metrics and n_id < 20 and len(ids[0]) > 5:
        warn(
            f"The p-values of fpr_at_tpr of {len(ids[0])} detectors may be too small "
            f"on few ID samples: have at least 20, got {n_id}. Otherwise compare at "
            f"most 5 detectors, or use metrics=['auroc']."
        )
    members = [[sets.index(name) for name in group] for group in groups.values()]
    rng = check_random_state(random_state)
    resamples = Resamples(ids, oods, held_out, members, metrics, rng)
    draws = finite_values(resamples, n_resamples, n_jobs, "resamples")
    each = resamples.each()
    intervals = resamples.intervals(each.mean(axis=0), draws, confidence_level)
    signs = np.array([METRICS[name][0] for name in metrics])
    values, draws = signs * each.mean(axis=0), signs * draws
    pvalues = np.empty_like(values)
    for column, k in np.ndindex(values.shape[1:]):
        unadjusted = pvalues_of_best(values[:, column, k], draws[..., column, k])
        pvalues[:, column, k] = holm(unadjusted)
    return BestComparison(each, intervals[..., 0], intervals[..., 1], pvalues)


def _checked(id_scores, ood_scores, held_out):
    """Return scores as arrays by repeat, and the indices of ID samples."""
    ids = [np.asarray(scores, dtype=np.float64) for scores in id_scores]
    if held_out is None:
        held_out = [np.arange(scores.shape[-1]) for scores in ids]
    oods = [
        [np.asarray(scores[r], dtype=np.float64) for scores in ood_scores.values()]
        for r in range(min(len(ids), *(len(scores) for scores in ood_scores.values())))
    ]
    every = [*ids, *chain(*oods)]
    shapes = [scores.shape[:-1] for scores in every]
    sizes = [(len(test),) for test in held_out]
    lengths = {
        len(ids),
        len(held_out),
        *(len(scores) for scores in ood_scores.values()),
    }
    if (
        len(lengths) > 1
        or len(set(shapes)) > 1
        or len(shapes[0]) != 1
        or not all(scores.size for scores in every)
        or sizes != [scores.shape[1:] for scores in ids]
    ):
        raise ValueError(
            "id_scores, the lists in ood_scores and held_out must have one entry per "
            "repeat; scores must have the shape (n_detectors, n_samples), not empty, "
            "with the same detectors everywhere. Got the shapes "
            f"{[scores.shape for scores in ids]} in id_scores, "
            f"{[[scores.shape for scores in sets] for sets in oods]} in ood_scores and "
            f"{len(held_out)} repeats in held_out."
        )
    return ids, oods, [np.asarray(test) for test in held_out]


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

    `id_scores` has an array of shape (n_detectors, n_id) for each repeat, `ood_scores`
    a list of such arrays, `tests` the indices of the ID samples; `groups` are lists of
    positions of sets, and `metrics` names among `METRICS`.
    """

    def __init__(self, id_scores, ood_scores, tests, groups, metrics, random_state):
        self.rankings = [
            [[_Ranking(a, b[j]) for b in oods] for j, a in enumerate(ids)]
            for ids, oods in zip(id_scores, ood_scores, strict=True)
        ]
        self.tests = tests
        self.held_out = np.unique(np.concatenate(tests))
        self.n_id = int(self.held_out[-1]) + 1
        self.n_ood = [scores.shape[1] for scores in ood_scores[0]]
        self.groups = groups
        self.metrics = metrics
        self.entropy = seed_of(random_state)

    def __call__(self, i):
        return self._values(*self._draw(i)).mean(axis=0)

    def each(self):
        """Return metrics without resampling: repeats, detectors, columns, metrics."""
        return self._values(
            np.ones(self.n_id, dtype=np.int64),
            [np.ones(n, dtype=np.int64) for n in self.n_ood],
        )

    def intervals(self, values, draws, confidence_level):
        """Return intervals of shape (n_detectors, n_columns, n_metrics, 2).

        `values` are averages over repeats, `draws` the values on resamples.
        """
        ends = self._ends(confidence_level)
        sizes = self.n_ood + [min(self.n_ood[k] for k in g) for g in self.groups]
        for j, column, k in np.ndindex(values.shape):
            name, least = self.metrics[k], [len(self.tests[0]), sizes[column]]
            if name == "fpr_at_tpr":
                continue  # exact
            if min(least) < 2:
                ends[j, column, k] = 0.0, 1.0
            else:
                ends[j, column, k] = covering_interval(
                    METRICS[name][2],
                    float(values[j, column, k]),
                    draws[:, j, column, k],
                    least,
                    (0.0, 1.0),
                    ends[j, column, k],
                    confidence_level,
                )
        return ends

    def _ends(self, confidence_level):
        """Return the ends of exact intervals, or that unseen samples do not exclude."""
        ends = np.mean(
            [
                [
                    [self._ends_of(ranking, confidence_level) for ranking in row]
                    for row in rankings
                ]
                for rankings in self.rankings
            ],
            axis=0,
        )
        return self._with_groups(ends, axis=1)

    def _ends_of(self, ranking, confidence_level):
        """Return the ends of all metrics of one detector on one set."""
        n_id, n_ood = np.sum(~ranking.is_ood), np.sum(ranking.is_ood)
        strata = [np.arange(n_id), n_id + np.arange(n_ood)]
        is_ood = np.repeat([False, True], [n_id, n_ood])
        y_true = np.where(is_ood, -1, 0)
        ends = []
        for name in self.metrics:
            system = make_system(
                METRICS[name][2], y_true, (ranking.scores,), {}, -1, None
            )
            if has_closed_form(system):
                ends.append(exact_interval(system, confidence_level))
                continue
            arguments = system.value(), system, strata, is_ood, (0.0, 1.0)
            ends.append(unseen_interval(*arguments, confidence_level))
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
        return self._with_groups(values, axis=2)

    def _with_groups(self, values, axis):
        """Append the averages over groups of sets to an axis of columns."""
        means = [values.take(g, axis).mean(axis, keepdims=True) for g in self.groups]
        return np.concatenate([values, *means], axis=axis)

    def _metrics(self, counts):
        return [METRICS[name][1](counts) for name in self.metrics]


def pvalues_of_best(values, draws):
    """Return p-values of being one of the best systems, 1 for the best.

    `values` have shape (n_systems,), greater is better; `draws`, of shape (n_draws,
    n_systems), are values on common resamples.
    """
    # If no system is better than i, the lag of i is at most the lag of the errors,
    # whichever system is best on the data. Without the standard deviation of the
    # difference of two errors, one system of high variance would hide the differences
    # of all others. The errors of quantiles are skewed, and resamples mirror them [4].
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
            scaled = differences[:, varies] / scale[varies]
            # the lag of a system behind itself is 0
            lag = max(0.0, (behind[varies] / scale[varies]).max())
            least = lag - 1e-12 * max(1.0, lag)
            hits = max(
                (np.maximum(side.max(axis=1), 0.0) >= least).sum()
                for side in (scaled, -scaled)
            )
        else:
            continue
        pvalues[i] = (1 + hits) / (1 + len(draws))
    return pvalues


def holm(pvalues):
    """Return p-values, of shape (n_tests,), adjusted by Holm's method [3]."""
    # max over j <= i of min(1, (m - j + 1) p_(j)), for the sorted p-values
    order = np.argsort(pvalues, kind="stable")
    scaled = pvalues[order] * np.arange(len(pvalues), 0, -1)
    adjusted = np.empty(len(pvalues))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return adjusted
