"""Base classes of combiners, which turn p-values of detectors into one statistic."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import ABCMeta, abstractmethod
from numbers import Real

import numpy as np
from sklearn.utils.metaestimators import available_if

from skood.stats._conformal import reaches
from skood.stats._ranks import check_pvalues
from skood.utils._estimator import SkoodEstimator
from skood.utils._parallel import map_chunks
from skood.utils._param_validation import fit_context
from skood.utils._torch import row_chunks

# Bytes that a chunk of samples and its intermediate results may take ...
_BUDGET = 4 * 2**20

# ... at this many bytes for each p-value.
_BYTES = 32

# Decorator of public methods that validates the parameters of the combiner there, since
# a combiner has no fit.
parameters_checked = fit_context(prefer_skip_nested_validation=True)


def _check_level(alpha):
    """Return a level as a float, or raise."""
    if isinstance(alpha, bool) or not isinstance(alpha, Real):
        raise TypeError(f"alpha must be a number, got {alpha!r}.")
    level = float(alpha)
    if not level >= 0:
        raise ValueError(f"alpha must not be negative, got {alpha!r}.")
    return level


class BaseCombiner(SkoodEstimator, metaclass=ABCMeta):
    r"""Base class of combiners of p-values.

    A combiner computes one statistic q of the p-values :math:`p_1, \dots, p_m` of a
    sample, one from each of m detectors. The statistic is the smallest level at which
    the combiner rejects the sample: the sample is classified as out-of-distribution
    (OOD) iff :math:`q \le \alpha`. Both are rounded fractions, so a q that exceeds
    :math:`\alpha` by less than a relative 1e-12 counts as equal. The statistic is not
    clipped, so that it still ranks samples beyond 1. A combiner has no state, treats
    each sample independently, and is invariant to the order of the p-values. Read more
    in the :ref:`User Guide <combine>`.

    A subclass implements two methods, which take p-values of shape
    (n_detectors, n_samples) that ascend along the first axis:

    - ``_statistic(p)`` returns q, of shape (n_samples,);
    - ``_n_selected(p, alpha)`` returns how many of the smallest p-values of each sample
      are selected, of shape (n_samples,).

    It declares the ranges of its parameters in ``_parameter_constraints``, and may
    override ``_check_members(m)``, which raises if m detectors are too few, and
    ``_correction(m)``: the factor of the smallest of m p-values if all others are large
    (None: no such factor).

    See Also
    --------
    BenjaminiHochberg : The default combiner of `DetectorEnsemble`.
    DOSStorey : Benjamini-Hochberg times an estimated proportion of true nulls.
    DetectorEnsemble : Fits detectors, and combines their p-values.

    Examples
    --------
    A combiner that uses the second smallest p-value:

    >>> import numpy as np
    >>> from skood.combine import BaseCombiner
    >>> class SecondSmallest(BaseCombiner):
    ...     def _statistic(self, p):
    ...         return p[1]
    ...
    ...     def _n_selected(self, p, alpha):
    ...         return np.where(p[1] <= alpha, np.sum(p <= alpha, axis=0), 0)
    >>> P = np.array([[0.7, 0.02, 0.04], [0.9, 0.8, 0.01]])
    >>> SecondSmallest().statistic(P).tolist()
    [0.04, 0.8]
    >>> SecondSmallest().selected(P, alpha=0.05).tolist()
    [[False, True, True], [False, False, False]]
    """

    _parameter_constraints: dict = {}

    @abstractmethod
    def _statistic(self, p):
        """Return q for sorted p-values of shape (n_detectors, n_samples)."""

    @abstractmethod
    def _n_selected(self, p, alpha):
        """Return how many of the smallest p-values of each sample are selected."""

    def _check_members(self, m):
        """Raise a ValueError if `m` detectors are too few."""
        return

    def _correction(self, m):
        """Return the factor of the smallest of `m` p-values, or None."""
        return

    def _by_sample(self, P, function, *, dtype=np.float64, shape=()):
        """Apply a function to p-values in chunks of samples and in threads.

        P-values (n_samples, n_detectors) are sorted to (n_detectors, chunk_size).
        """
        n, m = P.shape
        if m == 0:
            raise ValueError(
                f"P must have one column for each detector, got the shape {P.shape}."
            )
        self._check_members(m)
        results = np.empty((n, *shape), dtype=dtype)

        def apply(chunk):
            p = np.add(P[chunk], 0.0, dtype=np.float64)  # a copy; -0.0 becomes 0.0
            p.sort(axis=1)
            # samples are contiguous: NumPy is slow along many short axes
            results[chunk] = np.asarray(function(np.ascontiguousarray(p.T))).T

        chunks = list(row_chunks(n, m * _BYTES, _BUDGET))
        if len(chunks) == 1:
            apply(chunks[0])
        else:
            map_chunks(apply, chunks)
        return results

    @parameters_checked
    def statistic(self, P):
        """Return the smallest level at which each sample is rejected.

        Parameters
        ----------
        P : array-like of shape (n_samples, n_detectors)
            P-values, small = OOD.

        Returns
        -------
        q : ndarray of shape (n_samples,), dtype float64
            The levels, small = OOD. They may exceed 1.

        Raises
        ------
        ValueError
            If `P` does not have two axes, or has a value outside [0, 1]; if a
            parameter is out of its range.
        """
        return self._by_sample(check_pvalues(P, "P", ndim=2), self._statistic)

    @parameters_checked
    def selected(self, P, alpha=0.05):
        """Return which detectors reject each sample.

        Parameters
        ----------
        P : array-like of shape (n_samples, n_detectors)
            P-values, small = OOD.

        alpha : float, default=0.05
            The level, not negative. It may exceed 1, as the statistic may.

        Returns
        -------
        selected : ndarray of shape (n_samples, n_detectors), dtype bool
            True for the detectors that reject: none, or the ones with the smallest
            p-values. Equal p-values of a sample are selected together.

        Raises
        ------
        TypeError, ValueError
            If `P`, `alpha` or a parameter is invalid.
        """
        alpha = _check_level(alpha)

        def largest_selected(p):
            k = np.asarray(self._n_selected(p, alpha))
            if k.shape != p.shape[1:] or k.max() > len(p):
                raise ValueError(
                    f"{type(self).__name__}._n_selected must return a number from 0 to "
                    f"{len(p)} for each of {p.shape[1]} samples, got {k!r}."
                )
            largest = p[np.maximum(k, 1) - 1, np.arange(p.shape[1])]
            return np.where(k > 0, largest, -1.0)

        P = check_pvalues(P, "P", ndim=2)
        return self._by_sample(P, largest_selected)[:, None] >= P


def _estimates_pi0(combiner):
    """Return whether a combiner estimates the proportion of true null hypotheses."""
    return hasattr(combiner, "_pi0")


class StepUpCombiner(BaseCombiner):
    """Base class of combiners that compare ``factor * p_(k)`` with ``k * alpha``.

    A subclass implements ``_factor(p)``, or ``_pi0(p)`` to estimate the proportion.
    """

    @available_if(_estimates_pi0)
    @parameters_checked
    def pi0(self, P):
        """Return the estimated proportion of detectors for which each sample is ID.

        Parameters
        ----------
        P : array-like of shape (n_samples, n_detectors)
            P-values, small = OOD.

        Returns
        -------
        pi0 : ndarray of shape (n_samples,), dtype float64
            In [0, 1].
        """
        return self._by_sample(check_pvalues(P, "P", ndim=2), self._pi0)

    def _factor(self, p):
        """Return the factor: a scalar, or one value per sample."""
        return len(p) * self._pi0(p)

    def _scaled(self, p):
        """Return ``factor * p_(k) / k``, rounded the same way wherever it is used."""
        return p / np.arange(1, len(p) + 1)[:, None] * self._factor(p)

    def _statistic(self, p):
        return self._scaled(p).min(axis=0)

    def _n_selected(self, p, alpha):
        rejected = reaches(self._scaled(p), alpha)
        last = len(p) - rejected[::-1].argmax(axis=0)
        return np.where(rejected.any(axis=0), last, 0)

    def _correction(self, m):
        if not _estimates_pi0(self):
            return float(m)
        p = np.ones((m, 1))
        p[0] = 0.0
        return float(m * self._pi0(p)[0])
