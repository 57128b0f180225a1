"""Conformal p-values: ranks of scores among the scores of calibration samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from dataclasses import dataclass
from itertools import product
from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_random_state

from skood.utils._parallel import map_chunks
from skood.utils._param_validation import Interval, StrOptions, validate_params
from skood.utils._scores import check_scores
from skood.utils._stored import stored
from skood.utils._ties import loosened, tie_scale_of_ranked, tolerance
from skood.utils._torch import row_chunks
from skood.utils._warnings import warn

# Number of scores of one member that a thread looks up at a time.
_CHUNK = 2**12

# Up to this number of scores of all members, threads take longer than the look-up.
_FEW = 2**12


def reaches(q, alpha):
    """Return whether statistics are at most a level, up to rounding."""
    return q <= loosened(alpha)


def pvalues_of(counts, n_calibration, method):
    """Return p-values from counts of calibration scores, see `conformal_pvalues`."""
    if method == "ecdf":
        return counts / n_calibration  # Eq. (6) of [2]
    return (1.0 + counts) / (n_calibration + 1.0)


def check_pair(scores, calibration_scores, ndim=2):
    """Return scores, and scores of calibration samples by the same detectors."""
    scores = check_scores(scores, "scores", ndim)
    calibration = check_scores(calibration_scores, "calibration_scores", ndim)
    if scores.shape[1:] != calibration.shape[1:]:
        raise ValueError(
            "scores and calibration_scores must be of the same detectors, in both one "
            f"axis for one detector or one column each. Got the shapes {scores.shape} "
            f"and {calibration.shape}."
        )
    if len(calibration) == 0:
        raise ValueError(
            "calibration_scores is empty: p-values are relative to the scores of at "
            "least one held-out ID sample."
        )
    return scores, calibration


@validate_params(
    {
        "scores": "no_validation",
        "calibration_scores": "no_validation",
        "method": [StrOptions({"conformal", "ecdf"})],
        "ties": [StrOptions({"conservative", "random"})],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def conformal_pvalues(
    scores,
    calibration_scores,
    *,
    method="conformal",
    ties="conservative",
    random_state=None,
):
    r"""Return conformal p-values, relative to the scores of held-out ID samples.

    With n calibration scores :math:`s_i` that are high for in-distribution (ID)
    samples,

    .. math:: p(x) = \frac{1 + \#\{i : s_i \le s(x)\}}{n + 1}

    is small for samples with a lower score than most of the calibration samples. For an
    ID sample that is exchangeable with these, :math:`P(p \le \alpha) \le \alpha` at
    every level and every n, with or without ties [1]_. Read more in the
    :ref:`User Guide <combine>`.

    Parameters
    ----------
    scores : array-like of shape (n_samples,) or (n_samples, n_detectors)
        Scores of one or several detectors: high = ID. Infinite scores are allowed.

    calibration_scores : array-like of shape (n_cal,) or (n_cal, n_detectors)
        Scores of ID samples that no detector was fitted on.

    method : {"conformal", "ecdf"}, default="conformal"
        "conformal": as above, at least 1 / (n + 1). "ecdf": the empirical distribution
        function :math:`\#\{i : s_i \le s\} / n` [2]_, which can be 0; small p-values
        are too frequent, especially for small n.

    ties : {"conservative", "random"}, default="conservative"
        "conservative": as above. "random": with independent tie-breakers u, uniform
        on (0, 1), of all calibration scores and scores,

        .. math:: p(x) = \frac{1 + \#\{i : (s_i, u_i) < (s(x), u(x))\}}{n + 1}

        in lexicographic order, so that :math:`P(p \le k / (n + 1)) = k / (n + 1)` for
        every k: pairs are exchangeable as scores are, and never equal. This gives power
        for scores with few values. The p-value of a sample depends on `random_state`
        and on its position in `scores`; for ``method="conformal"``.

    random_state : int, RandomState instance or None, default=None
        Seed of the tie-breakers.

    Returns
    -------
    pvalues : ndarray of the shape of `scores`, dtype float64
        In [0, 1], small = OOD.

    Raises
    ------
    ValueError
        If there is a NaN, no calibration score, or the shapes do not match.

    Warns
    -----
    SkoodWarning
        If there are more than ten times as many scores as calibration scores: the two
        may have been swapped.

    See Also
    --------
    min_calibration_size : Number of calibration scores that a combiner needs.
    DetectorEnsemble : Fits detectors, holds samples out, and combines p-values.

    References
    ----------
    .. [1] S. Bates, E. Candes, L. Lei, Y. Romano, M. Sesia. Testing for outliers with
       conformal p-values. Annals of Statistics 51, 2023.

    .. [2] J. Geng, Y. Zhang, J. Huang, F. Xue, F. Tan, C. Xie, S. Zhang. DSDE: using
       proportion estimation to improve model selection for out-of-distribution
       detection. arXiv:2411.01487, 2024. Equation 6.

    Examples
    --------
    >>> from skood.combine import conformal_pvalues
    >>> scores, calibration = [0, 2, 2.5, 6], [1, 2, 2, 3]
    >>> conformal_pvalues(scores=scores, calibration_scores=calibration).tolist()
    [0.2, 0.8, 0.8, 1.0]
    >>> conformal_pvalues(
    ...     scores=scores, calibration_scores=calibration, method="ecdf"
    ... ).tolist()
    [0.0, 0.75, 0.75, 1.0]
    """
    scores, calibration = check_pair(scores, calibration_scores, ndim=None)
    n = len(calibration)
    if len(scores) > 10 * n:
        warn(
            f"There are {len(scores)} scores, but only {n} calibration_scores: if they "
            "were swapped, call conformal_pvalues(scores=..., calibration_scores=...)."
        )
    ranked = sorted_calibration(calibration.reshape(n, -1))
    columns = scores.reshape(len(scores), ranked.shape[1])
    if ties == "random":
        if method == "ecdf":
            raise ValueError("ties='random' needs method='conformal', got 'ecdf'.")
        seed = check_random_state(random_state).randint(2**31 - 1)
        counts = untied_counts(ranked, columns, 0.0, np.random.default_rng(seed))
    else:
        counts = counts_at_most(ranked, columns)
    return pvalues_of(counts, n, method).reshape(scores.shape)


@validate_params(
    {
        "n_detectors": [Interval(Integral, 1, None, closed="left")],
        "alpha": [Interval(Real, 0, 1, closed="neither")],
    },
    prefer_skip_nested_validation=True,
)
def min_calibration_size(n_detectors, alpha):
    r"""Return how many calibration scores a single detector needs to reject a sample.

    The smallest conformal p-value of n calibration scores is :math:`1 / (n + 1)`.
    Combiners such as `Bonferroni`, `BenjaminiHochberg` and `DOSStorey` multiply it by
    the number m of detectors if only one rejects a sample, so that
    :math:`n + 1 \ge m / \alpha` is needed for the combiner to reject it. Read more in
    the :ref:`User Guide <combine>`.

    Parameters
    ----------
    n_detectors : int
        Number m of detectors.

    alpha : float
        Level, in (0, 1).

    Returns
    -------
    n_calibration : int
        The smallest such n, at least 1.

    See Also
    --------
    conformal_pvalues : The p-values.

    Examples
    --------
    >>> from skood.combine import min_calibration_size
    >>> min_calibration_size(7, alpha=0.05)
    139
    """
    return max(1, size_needed(n_detectors, alpha))


def size_needed(factor, alpha):
    """Return the smallest n for which ``factor / (n + 1)`` is at most a level."""
    return math.ceil(factor / loosened(alpha)) - 1


def correction_of(combiner, n_detectors):
    """Return a combiner's factor of the smallest p-value, None if it has none."""
    return getattr(combiner, "_correction", lambda m: None)(n_detectors)


def warn_if_few(combiner, n_calibration, n_detectors, alpha):
    """Warn if no detector can reject alone at the level `alpha` of the statistic."""
    correction = correction_of(combiner, n_detectors)
    if correction is None:
        return
    smallest = correction / (n_calibration + 1)
    if reaches(smallest, alpha):
        return
    less = " times its estimate of pi0," if hasattr(combiner, "pi0") else ""
    unless = ", unless that estimate is small" if less else ""
    warn(
        f"With {n_calibration} calibration samples the smallest p-value is 1/"
        f"{n_calibration + 1}, which {type(combiner).__name__} multiplies by "
        f"{correction:.4g}{less} if only one of {n_detectors} detectors rejects: "
        f"{smallest:.3g} is not rejected at the level {alpha:.3g}, so that no detector "
        f"can reject a sample on its own{unless}. Calibrate on at least "
        f"{size_needed(correction, alpha)} samples, "
        "or combine fewer detectors."
    )


def sorted_calibration(calibration_scores):
    """Sort each column of calibration scores of shape (n_calibration, n_detectors).

    The result is float64 in Fortran order, so that columns are contiguous.
    """
    ranked = np.array(calibration_scores, dtype=np.float64, order="F")
    ranked.T.sort(axis=1)
    return ranked


def counts_at_most(ranked, scores):
    """Count the calibration scores that are at most each score, per detector.

    `ranked`, of shape (n_calibration, n_detectors), is from `sorted_calibration`;
    `scores` and the counts have shape (n_samples, n_detectors).
    """
    counts = np.empty(scores.shape, dtype=np.int64)
    if scores.size <= _FEW:
        for j, column in enumerate(scores.T):
            counts[:, j] = ranked[:, j].searchsorted(column, side="right")
        return counts

    def count(chunk):
        samples, j = chunk
        column = scores[samples, j]
        order = np.argsort(column)  # sorted look-ups are faster: they share the cache
        at_most = ranked[:, j].searchsorted(column[order], side="right")
        counts[samples.start + order, j] = at_most

    chunks = row_chunks(len(scores), 1, _CHUNK)
    map_chunks(count, list(product(chunks, range(scores.shape[1]))))
    return counts


def untied_counts(ranked, scores, slack, rng):
    """Count the calibration scores below each score, with ties broken at random.

    Each calibration score and each score has a uniform tie-breaker. It decides between
    scores that differ by at most `slack`.
    """
    breakers, tie_breakers = rng.random(ranked.shape), rng.random(scores.shape)
    most = counts_at_most(ranked, scores + slack)
    counts = counts_at_most(ranked, np.nextafter(scores - slack, -np.inf))
    counts = np.minimum(counts, most)
    for j in range(scores.shape[1]):
        ends = np.column_stack([counts[:, j], most[:, j]])
        pairs, which = np.unique(ends, axis=0, return_inverse=True)
        for k, (low, high) in enumerate(pairs):
            if low < high:
                at = which.ravel() == k
                tied = np.sort(breakers[low:high, j])
                counts[at, j] += tied.searchsorted(tie_breakers[at, j])
    return counts


@stored
@dataclass(frozen=True)
class Calibration:
    """Sorted scores of held-out samples, and the scales of ties, see `tie_scale`.

    ``scores`` has shape (n_calibration, n_members), ``scale`` (2, n_members).
    """

    scores: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, scores):
        """Calibrate on scores of shape (n_calibration, n_members)."""
        scores = sorted_calibration(scores)
        return cls(scores, np.transpose([*map(tie_scale_of_ranked, scores.T)]))

    def __len__(self):
        return len(self.scores)

    def counts(self, scores, rng=None):
        """Count the calibration scores that are at most each score, up to ties.

        With a generator `rng`, ties are broken at random.
        """
        slack = tolerance(scores, *self.scale)
        if rng is not None:
            return untied_counts(self.scores, scores, slack, rng)
        return counts_at_most(self.scores, scores + slack)
