"""Combination tests: Fisher, Stouffer, harmonic mean and Cauchy."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import abstractmethod

import numpy as np
from scipy.special import gammaincc, gammainccinv, ndtr, ndtri

from skood.combine._base_combiner import BaseCombiner
from skood.utils._ties import loosened


class GlobalTest(BaseCombiner):
    """Base class of combiners whose statistic is a function of a sum over p-values.

    Its terms decrease with p, and are infinite at p = 0, which prevails over p = 1.
    """

    @abstractmethod
    def _evidence(self, p):
        """Return the terms of the sum."""

    @abstractmethod
    def _combined(self, total, size):
        """Return the combined p-value for the sum over `size` p-values."""

    @abstractmethod
    def _critical(self, alpha, size):
        """Return the sum over `size` p-values whose combined p-value is `alpha`."""

    def _totals(self, p):
        """Return the terms, and the sums over the 1, 2, … largest p-values."""
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            evidence = self._evidence(p)
            # accumulate has a fixed order for any number of samples; sum() has not
            totals = np.add.accumulate(evidence[::-1], axis=0)
        totals[np.isnan(totals)] = np.inf
        return evidence, totals

    def _statistic(self, p):
        _, totals = self._totals(p)
        return self._combined(totals[-1], len(p))

    def _n_selected(self, p, alpha):
        # Closed testing [2]: a member is selected if the test rejects each intersection
        # hypothesis that contains it. Among intersections of `size` members, the one
        # with the largest other p-values is rejected last, so only it is tested.
        m = len(p)
        evidence, totals = self._totals(p)
        k = np.full(p.shape[1], m)
        for size in range(1, m + 1):
            with np.errstate(divide="ignore", invalid="ignore"):
                critical = self._critical(loosened(alpha), size)
                missing = critical - totals[size - 2] if size > 1 else critical
            passed = np.count_nonzero(evidence[: m - size] >= missing, axis=0)
            # If the largest p-values are rejected together, all are; so they are where
            # `missing` is NaN from inf - inf.
            passed[totals[size - 1] >= critical] = m
            np.minimum(k, passed, out=k)
        return k


class Fisher(GlobalTest):
    r"""Fisher's combined p-value, for independent detectors.

    .. math:: q = P\Bigl(\chi^2_{2m} \ge -2 \sum_j \log p_j\Bigr).

    Powerful if many detectors have moderately small p-values. The statistic q is a
    p-value only if the detectors are independent. Detectors of the same images are not,
    and then far more than the fraction :math:`\alpha` of ID samples is rejected; see
    the notes. Read more in the :ref:`User Guide <combine>`;
    :ref:`combine_nominal` compares formulas and levels.

    See Also
    --------
    Stouffer : Sums normal quantiles.
    BenjaminiHochberg : Valid under positive dependence.
    DetectorEnsemble : Its conformal level is valid under any dependence.

    Notes
    -----
    With equicorrelated normal scores of 7 detectors and a correlation of 0.3 / 0.6 /
    0.9, the fraction of accepted ID samples at :math:`\alpha = 0.05` is 0.88 / 0.84 /
    0.82 instead of 0.95.

    A p-value of 0 gives q = 0. `selected` is determined by closed testing: a member is
    selected if the test rejects every set of members that contains it. So a sample can
    be rejected without any selected member.

    References
    ----------
    .. [1] R. A. Fisher. Statistical Methods for Research Workers, 4th edition. 1932.

    .. [2] R. Marcus, E. Peritz, K. R. Gabriel. On closed testing procedures with
       special reference to ordered analysis of variance. Biometrika 63, 1976.

    Examples
    --------
    >>> from skood.combine import Fisher
    >>> P = [[0.1, 0.2, 0.1, 0.05], [0.001, 0.7, 0.7, 0.9]]
    >>> Fisher().statistic(P).round(4)
    array([0.0183, 0.0509])
    >>> Fisher().selected(P).any(axis=1)
    array([False, False])
    """

    def _evidence(self, p):
        return -np.log(p)

    def _combined(self, total, size):
        return gammaincc(size, total)

    def _critical(self, alpha, size):
        return gammainccinv(size, min(alpha, 1.0))


class Stouffer(GlobalTest):
    r"""Stouffer's combined p-value, for independent detectors.

    .. math:: q = \Phi\Bigl(\frac1{\sqrt m} \sum_j \Phi^{-1}(p_j)\Bigr)

    with the normal distribution function :math:`\Phi`. The most powerful of the
    combination tests if all detectors observe the same small shift, the least powerful
    if only a few observe a large one. The statistic q is a p-value only if the
    detectors are independent. Read more in the :ref:`User Guide <combine>`;
    :ref:`combine_nominal` compares formulas and levels.

    See Also
    --------
    Fisher : Sums logarithms.
    DetectorEnsemble : Its conformal level is valid under any dependence.

    Notes
    -----
    A p-value of 0 gives q = 0; otherwise a p-value of 1 gives q = 1, so the largest
    conformal p-value is a veto.

    With equicorrelated normal scores of 7 detectors and a correlation of 0.3 / 0.6 /
    0.9, the fraction of accepted ID samples at :math:`\alpha = 0.05` is 0.84 / 0.78 /
    0.74 instead of 0.95. `selected` is determined by closed testing, see `Fisher`: a
    sample can be rejected without any selected member.

    References
    ----------
    .. [1] S. A. Stouffer, E. A. Suchman, L. C. DeVinney, S. A. Star, R. M. Williams.
       The American Soldier, volume 1. Princeton University Press, 1949.

    Examples
    --------
    >>> from skood.combine import Stouffer
    >>> P = [[0.1, 0.2, 0.1, 0.05], [0.001, 0.7, 0.7, 0.9]]
    >>> Stouffer().statistic(P).round(4)
    array([0.0058, 0.352 ])
    """

    def _evidence(self, p):
        return -ndtri(p)

    def _combined(self, total, size):
        return ndtr(-total / np.sqrt(size))

    def _critical(self, alpha, size):
        return -ndtri(min(alpha, 1.0)) * np.sqrt(size)


class HarmonicMean(GlobalTest):
    r"""Harmonic mean p-value, scaled to be valid under any dependence.

    .. math:: q = a_m \, \frac{m}{\sum_j 1 / p_j},
       \qquad a_1 = 1,\quad a_2 = 2,\quad a_m = e \log m \text{ for } m \ge 3.

    With these factors q is a p-value under any dependence between the detectors [1]_,
    and therefore conservative. Read more in the :ref:`User Guide <combine>`;
    :ref:`combine_nominal` compares formulas and levels.

    See Also
    --------
    Cauchy : Almost the same for small p-values, without the factor.
    BenjaminiYekutieli : Another statistic that is valid under any dependence.

    Notes
    -----
    For two p-values the factor :math:`e \log 2 < 2` would be too small: if :math:`p_1`
    is uniform on :math:`[0, \alpha]` and :math:`p_2 = \alpha - p_1` there, then
    :math:`2 \cdot 2 / (1/p_1 + 1/p_2)` reaches, but does not exceed, :math:`\alpha`.

    A p-value of 0 gives q = 0. Where only the ranks of samples matter, as for the AUROC
    or a conformal level, the factor has no effect. `selected` is determined by closed
    testing, see `Fisher`: a sample can be rejected without any selected member.

    References
    ----------
    .. [1] V. Vovk, R. Wang. Combining p-values via averaging. Biometrika 107, 2020.

    Examples
    --------
    >>> from skood.combine import HarmonicMean
    >>> P = [[0.1, 0.2, 0.1, 0.05], [0.001, 0.7, 0.7, 0.9]]
    >>> HarmonicMean().statistic(P).round(4)
    array([0.335, 0.015])
    >>> HarmonicMean().selected(P).tolist()
    [[False, False, False, False], [True, False, False, False]]
    """

    @staticmethod
    def _scale(size):
        return size * (size if size < 3 else np.e * np.log(size))

    def _evidence(self, p):
        return 1.0 / p

    def _combined(self, total, size):
        return self._scale(size) / total

    def _critical(self, alpha, size):
        return self._scale(size) / np.float64(alpha)


class Cauchy(GlobalTest):
    r"""Cauchy combination test (Liu and Xie, 2020).

    .. math:: T = \frac1m \sum_j \cot(\pi p_j), \qquad
       q = \frac12 - \frac1\pi \arctan T.

    If the detectors are independent or identical, T has the Cauchy distribution, and q
    is a p-value; otherwise q is approximately a p-value, more accurately so for smaller
    levels [1]_. Read more in the :ref:`User Guide <combine>`;
    :ref:`combine_nominal` compares formulas and levels.

    See Also
    --------
    HarmonicMean : Valid under any dependence.
    BenjaminiHochberg : Valid under positive dependence.

    Notes
    -----
    A p-value of 0 gives q = 0; otherwise a p-value of 1 gives q = 1: p-values near 1
    outweigh p-values near 0, and the largest conformal p-value is a veto. Small q are
    as precise as the p-values. `selected` is determined by closed testing, see
    `Fisher`: a sample can be rejected without any selected member.

    References
    ----------
    .. [1] Y. Liu, J. Xie. Cauchy combination test: a powerful test with analytic
       p-value calculation under arbitrary dependency structures. Journal of the
       American Statistical Association 115, 2020.

    Examples
    --------
    >>> from skood.combine import Cauchy
    >>> P = [[0.1, 0.2, 0.1, 0.05], [0.001, 0.7, 0.7, 0.9]]
    >>> Cauchy().statistic(P).round(4)
    array([0.0895, 0.0041])
    >>> Cauchy().selected(P).tolist()
    [[False, False, False, False], [True, False, False, False]]
    """

    def _evidence(self, p):
        # computed from the smaller of p and 1 - p, so that no digit is lost near 1
        return np.copysign(1.0 / np.tan(np.pi * np.minimum(p, 1.0 - p)), 0.5 - p)

    def _combined(self, total, size):
        return np.arctan2(size, total) / np.pi

    def _critical(self, alpha, size):
        return size * self._evidence(np.float64(min(alpha, 1.0)))
