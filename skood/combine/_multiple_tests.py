"""Combiners that compare sorted p-values with a level."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from numbers import Real

import numpy as np
from sklearn.utils import check_array

from skood.combine._base_combiner import (
    BaseCombiner,
    StepUpCombiner,
    parameters_checked,
)
from skood.stats._conformal import reaches
from skood.stats._ranks import (
    LAMBDA_GRID,
    bootstrap_proportion,
    change_point,
    change_point_proportion,
    change_point_range,
    check_pvalues,
    proportion_curve,
    slope_differences,
    smoother_proportion,
    storey_proportion,
)
from skood.utils._param_validation import Interval, StrOptions
from skood.utils._ties import GUARD
from skood.utils._warnings import quiet, warn

# From this number of p-values on, a threshold estimated from them is accurate.
_MANY = 100


class BenjaminiHochberg(StepUpCombiner):
    r"""Simes statistic: the Benjamini-Hochberg procedure.

    With the p-values of a sample in ascending order,

    .. math:: q = \min_k \frac{m}{k} \, p_{(k)},

    and the members with the :math:`\hat k = \max \{k : m \, p_{(k)} / k \le \alpha\}`
    smallest p-values are selected. At least the fraction :math:`1 - \alpha` of ID
    samples is accepted if the detectors are positively dependent (PRDS), and exactly
    this fraction if they are independent [1]_ [2]_. As an OOD detector it is known as
    ZODE [3]_. Read more in the :ref:`User Guide <combine>`;
    :ref:`combine_nominal` compares formulas and levels.

    See Also
    --------
    DOSStorey : Benjamini-Hochberg times an estimated proportion of true nulls.
    BenjaminiYekutieli : Valid under any dependence.
    Bonferroni : Uses the smallest p-value only.

    References
    ----------
    .. [1] R. J. Simes. An improved Bonferroni procedure for multiple tests of
       significance. Biometrika 73, 1986.

    .. [2] Y. Benjamini, D. Yekutieli. The control of the false discovery rate in
       multiple testing under dependency. Annals of Statistics 29, 2001.

    .. [3] F. Xue, Z. He, Y. Zhang, C. Xie, Z. Li, F. Tan. Enhancing the power of OOD
       detection via sample-aware model selection. CVPR 2024.

    Examples
    --------
    >>> from skood.combine import BenjaminiHochberg
    >>> P = [[0.2, 0.02, 0.03, 0.9], [0.7, 0.4, 0.02, 0.5]]
    >>> BenjaminiHochberg().statistic(P)
    array([0.06, 0.08])
    >>> BenjaminiHochberg().selected(P, alpha=0.06).tolist()
    [[False, True, True, False], [False, False, False, False]]
    """

    def _factor(self, p):
        return len(p)


class BenjaminiYekutieli(StepUpCombiner):
    r"""Benjamini-Yekutieli procedure, valid under any dependence.

    .. math:: q = \Bigl(\sum_{i=1}^m \frac1i\Bigr) \min_k \frac{m}{k} \, p_{(k)}.

    At least the fraction :math:`1 - \alpha` of ID samples is accepted under any
    dependence between the detectors [1]_. Samples are ranked as by `BenjaminiHochberg`.
    Read more in the :ref:`User Guide <combine>`;
    :ref:`combine_nominal` compares formulas and levels.

    See Also
    --------
    BenjaminiHochberg : Without the factor.
    HarmonicMean : Another statistic that is valid under any dependence.

    References
    ----------
    .. [1] Y. Benjamini, D. Yekutieli. The control of the false discovery rate in
       multiple testing under dependency. Annals of Statistics 29, 2001.

    Examples
    --------
    >>> from skood.combine import BenjaminiYekutieli
    >>> BenjaminiYekutieli().statistic([[0.2, 0.02, 0.03, 0.9]]).round(6)
    array([0.125])
    """

    def _factor(self, p):
        return self._correction(len(p))

    def _correction(self, m):
        return m * math.fsum(1.0 / i for i in range(1, m + 1))


class _OneByOne(BaseCombiner):
    """Base class of combiners that compare each p-value with the same bound."""

    def _statistic(self, p):
        return p[0] * self._correction(len(p))

    def _n_selected(self, p, alpha):
        rejected = reaches(p * self._correction(len(p)), alpha)
        return np.count_nonzero(rejected, axis=0)


class Bonferroni(_OneByOne):
    r"""Bonferroni correction: the smallest p-value times the number of detectors.

    .. math:: q = m \, p_{(1)},

    and the members with :math:`p_j \le \alpha / m` are selected. At least the fraction
    :math:`1 - \alpha` of ID samples is accepted under any dependence. Read more in the
    :ref:`User Guide <combine>`;
    :ref:`combine_nominal` compares formulas and levels.

    See Also
    --------
    BenjaminiHochberg : Also uses several moderately small p-values together.
    Naive : Without the factor.

    Examples
    --------
    >>> from skood.combine import Bonferroni
    >>> Bonferroni().statistic([[0.2, 0.02, 0.03, 0.9]])
    array([0.08])
    """

    def _correction(self, m):
        return float(m)


class Naive(_OneByOne):
    r"""Smallest p-value, without a correction for multiple testing.

    .. math:: q = p_{(1)},

    and the members with :math:`p_j \le \alpha` are selected: a sample is rejected if
    any detector rejects it. More than the fraction :math:`\alpha` of ID samples is
    rejected: :math:`1 - (1 - \alpha)^m` if the detectors are independent. Intended for
    comparisons; samples are ranked as by `Bonferroni`. Read more in the
    :ref:`User Guide <combine>`;
    :ref:`combine_nominal` compares formulas and levels.

    See Also
    --------
    Bonferroni : With the correction.

    Examples
    --------
    >>> from skood.combine import Naive
    >>> Naive().statistic([[0.2, 0.02, 0.03, 0.9]])
    array([0.02])
    """

    def _correction(self, m):
        return 1.0


class Vote(BaseCombiner):
    r"""Vote of detectors: a sample is rejected if enough of them reject it.

    .. math:: q = p_{(\lceil s m \rceil)}

    with s = `fraction`. With :math:`r = \lceil s m \rceil` required votes, at most the
    fraction :math:`\alpha m / r` of ID samples is rejected under any dependence; it is
    far less than :math:`\alpha` for independent detectors and fractions near one half.
    Read more in the :ref:`User Guide <combine>`;
    :ref:`combine_nominal` compares formulas and levels.

    Parameters
    ----------
    fraction : float, default=0.5
        Fraction of the detectors that must reject a sample, in (0, 1].

    See Also
    --------
    Naive : One detector that rejects is enough.

    Notes
    -----
    The members with :math:`p_j \le \alpha` are selected, also if they are too few to
    reject the sample.

    Examples
    --------
    >>> from skood.combine import Vote
    >>> P = [[0.2, 0.02, 0.03, 0.9], [0.7, 0.4, 0.02, 0.5]]
    >>> Vote().statistic(P)
    array([0.03, 0.4 ])
    >>> Vote().selected(P).sum(axis=1)
    array([2, 1])
    """

    _parameter_constraints: dict = {"fraction": [Interval(Real, 0, 1, closed="right")]}

    def __init__(self, fraction=0.5):
        self.fraction = fraction

    def _statistic(self, p):
        return p[max(1, math.ceil(self.fraction * len(p) - GUARD)) - 1]

    def _n_selected(self, p, alpha):
        return np.count_nonzero(reaches(p, alpha), axis=0)


class Storey(StepUpCombiner):
    r"""Simes statistic times Storey's estimate at a fixed threshold.

    .. math:: q = \hat\pi_0 \min_k \frac{m}{k} \, p_{(k)}, \qquad
       \hat\pi_0 =
       \min\Bigl(1, \frac{\#\{j : p_j > \lambda\} + c}{m (1 - \lambda)}\Bigr)

    with :math:`\lambda` = `lam`, and c = 1 if `plus_one` [2]_, else 0 [1]_. It rejects
    more than `BenjaminiHochberg`, also more ID samples, and far more of them under
    dependence. Read more in the :ref:`User Guide <combine>`;
    :ref:`combine_nominal` compares formulas and levels.

    Parameters
    ----------
    lam : float, array-like or {"bootstrap", "smoother"}, default=0.5
        Threshold in [0, 1): most p-values above it belong to true null hypotheses.
        "bootstrap": for each sample the threshold with the least estimated mean squared
        error, of 0, .01, ..., .95 or of the thresholds in an array [3]_. "smoother":
        the value at .95 of a cubic fitted to the estimates at these thresholds [4]_.
        Unless it is a number it is for many detectors, with a warning below 100: for
        independent detectors and a level of .05 the bootstrap accepts .61 of ID samples
        with 7 detectors and .86 with 18.

    plus_one : bool, default=False
        Whether to add one to the number of p-values above the threshold.

    See Also
    --------
    DOSStorey : Chooses the threshold for each sample.

    Notes
    -----
    Without `plus_one`, the estimate is 0 if all p-values are at most `lam`, and then q
    is 0: the sample is rejected at every level, even if no single p-value is small.
    With m independent detectors this happens to the fraction :math:`\lambda^m` of ID
    samples.

    References
    ----------
    .. [1] J. D. Storey. A direct approach to false discovery rates. Journal of the
       Royal Statistical Society B 64, 2002.

    .. [2] J. D. Storey, J. E. Taylor, D. Siegmund. Strong control, conservative point
       estimation and simultaneous conservative consistency of false discovery rates.
       Journal of the Royal Statistical Society B 66, 2004.

    .. [3] J. D. Storey, A. J. Bass, A. Dabney, D. Robinson. qvalue: Q-value estimation
       for false discovery rate control. Bioconductor, 2015.

    .. [4] J. D. Storey, R. Tibshirani. Statistical significance for genomewide studies.
       PNAS 100, 2003.

    Examples
    --------
    >>> from skood.combine import Storey
    >>> P = [[0.2, 0.02, 0.03, 0.9], [0.1, 0.3, 0.4, 0.2]]
    >>> Storey().pi0(P)
    array([0.5, 0. ])
    >>> Storey().statistic(P)
    array([0.03, 0.  ])
    >>> Storey(plus_one=True).statistic(P)
    array([0.06, 0.2 ])
    """

    _parameter_constraints: dict = {
        "lam": [
            Interval(Real, 0, 1, closed="left"),
            StrOptions({"bootstrap", "smoother"}),
            "array-like",
        ],
        "plus_one": ["boolean"],
    }

    def __init__(self, lam=0.5, plus_one=False):
        self.lam = lam
        self.plus_one = plus_one

    @parameters_checked
    def pi0_curve(self, P):
        r"""Return the estimates at all thresholds, before the minimum with 1.

        Parameters
        ----------
        P : array-like of shape (n_samples, n_detectors)
            P-values, small = OOD.

        Returns
        -------
        curve : ndarray of shape (n_samples, n_thresholds), dtype float64
            The estimate at 0, .01, ..., .95, or at the thresholds in `lam`.
        """
        grid = self._grid()

        def curve(p):
            return proportion_curve(p, grid, self.plus_one)

        with quiet():
            return self._by_sample(
                check_pvalues(P, "P", ndim=2), curve, shape=(len(grid),)
            )

    def _check_members(self, m):
        if not isinstance(self.lam, Real) and m < _MANY:
            warn(
                f"lam={self.lam!r} estimates the threshold from {m} p-values, which "
                "rejects many more ID samples than the level, also if detectors are "
                f"independent: use it with {_MANY} detectors or more, else lam=0.5."
            )

    def _grid(self):
        """Return the thresholds."""
        if isinstance(self.lam, (Real, str)):
            return LAMBDA_GRID if isinstance(self.lam, str) else np.array([self.lam])
        grid = check_array(self.lam, ensure_2d=False, dtype=np.float64)
        if grid.ndim != 1 or grid.min() < 0 or grid.max() >= 1:
            raise ValueError(
                f"lam must be thresholds in [0, 1) of shape (n,), got {self.lam!r}."
            )
        return np.unique(grid)

    def _pi0(self, p):
        if isinstance(self.lam, Real):
            return storey_proportion(p, self.lam, self.plus_one)
        smoother = isinstance(self.lam, str) and self.lam == "smoother"
        estimate = smoother_proportion if smoother else bootstrap_proportion
        return estimate(p, self._grid(), self.plus_one)


class DOSStorey(StepUpCombiner):
    r"""Simes statistic times Storey's estimate at a change point (DOS-Storey).

    The sorted p-values of a sample rise slowly at first, for the detectors that detect
    a shift, and then like uniform p-values. The change point, where the difference of
    slopes (DOS) is largest,

    .. math:: \hat k = \arg\max_{m c_m \le i \le m/2} d(i), \qquad
       d(i) = \frac{p_{(2i)} - 2 p_{(i)}}{i^\beta},

    is the threshold of Storey's estimate [1]_, and

    .. math:: \hat\pi_0 = \min\Bigl(1, \frac{1 - \hat k / m}{1 - p_{(\hat k)}}\Bigr),
       \qquad q = \hat\pi_0 \min_k \frac{m}{k} \, p_{(k)}

    the statistic of DSDE [2]_. The members with the
    :math:`\max \{k : \hat\pi_0 m \, p_{(k)} / k \le \alpha\}` smallest p-values are
    selected. Read more in the :ref:`User Guide <combine>`;
    :ref:`combine_nominal` compares formulas and levels.

    Parameters
    ----------
    beta : float, default=1.0
        Exponent in [1/2, 1] that scales the differences: a smaller exponent gives a
        later change point.

    c_m : float, default=None
        The smallest fraction of the p-values that may be before the change point, in
        (0, 1/2] and at most floor(m / 2) / m. None: 2 / m, which needs 4 detectors.

    fallback : {"bh", "argmax"}, default="bh"
        The behavior if no difference is positive. "bh": there is no change point and
        :math:`\hat\pi_0` = 1, as in the authors' code. "argmax": the largest difference
        is used nevertheless, as in the paper.

    See Also
    --------
    BenjaminiHochberg : The statistic without the estimate.
    Storey : Has the same threshold for all samples.
    DSDE : Ensemble of detectors with this combiner.

    Notes
    -----
    As :math:`\hat\pi_0 \ge 1 - \lfloor m/2 \rfloor / m`, at least the fraction
    :math:`1 - \alpha m / (m - \lfloor m/2 \rfloor)` of ID samples is accepted if the
    Simes test is valid. For independent detectors and :math:`\alpha` = 0.05 it is 0.935
    for m = 7, and 0.941 for m = 18 with `c_m` = 2 / 15.

    The statistic is not monotone: a smaller p-value of one detector can move the change
    point and make q larger. Equation 15 of [2]_ prints a product with
    :math:`1 - p_{(\hat k)}` instead of the quotient, a misprint.

    References
    ----------
    .. [1] A. Kostic, P. Fryzlewicz. A change-point approach to estimating the
       proportion of false null hypotheses in multiple testing. arXiv:2309.10017, 2023.

    .. [2] J. Geng, Y. Zhang, J. Huang, F. Xue, F. Tan, C. Xie, S. Zhang. DSDE: using
       proportion estimation to improve model selection for out-of-distribution
       detection. arXiv:2411.01487, 2024.

    Examples
    --------
    >>> from skood.combine import DOSStorey
    >>> P = [[0.02, 0.024, 0.026, 0.5, 0.6, 0.8, 0.9]]
    >>> combiner = DOSStorey()
    >>> combiner.change_point(P), combiner.pi0(P).round(4)
    (array([3]), array([0.5867]))
    >>> combiner.statistic(P).round(4)
    array([0.0356])
    >>> int(combiner.selected(P).sum())
    3
    """

    _parameter_constraints: dict = {
        "beta": [Interval(Real, 0.5, 1, closed="both")],
        "c_m": [Interval(Real, 0, 0.5, closed="right"), None],
        "fallback": [StrOptions({"bh", "argmax"})],
    }

    def __init__(self, beta=1.0, c_m=None, fallback="bh"):
        self.beta = beta
        self.c_m = c_m
        self.fallback = fallback

    def _check_members(self, m):
        change_point_range(m, self.c_m)

    def _change_point(self, p):
        first, _ = change_point_range(len(p), self.c_m)
        return change_point(p, self.beta, first, self.fallback)

    def _pi0(self, p):
        return change_point_proportion(p, self._change_point(p))

    @parameters_checked
    def change_point(self, P):
        r"""Return the change point of the sorted p-values of each sample.

        Parameters
        ----------
        P : array-like of shape (n_samples, n_detectors)
            P-values, small = OOD.

        Returns
        -------
        k : ndarray of shape (n_samples,), dtype int
            Number of p-values up to the change point; 0 where no difference of slopes
            is positive, unless ``fallback="argmax"``.
        """
        return self._by_sample(
            check_pvalues(P, "P", ndim=2), self._change_point, dtype=np.intp
        )

    @parameters_checked
    def dos(self, P):
        r"""Return the differences of slopes, whose argmax is the change point.

        Parameters
        ----------
        P : array-like of shape (n_samples, n_detectors)
            P-values, small = OOD.

        Returns
        -------
        d : ndarray of shape (n_samples, n_detectors // 2), dtype float64
            d(1), d(2), …; NaN before the first index that `c_m` allows.
        """
        P = check_pvalues(P, "P", ndim=2)

        def differences(p):
            first, _ = change_point_range(len(p), self.c_m)
            d = slope_differences(p, self.beta)
            d[: first - 1] = np.nan
            return d

        return self._by_sample(P, differences, shape=(P.shape[1] // 2,))
