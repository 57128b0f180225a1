"""Selection, and the procedures StepUp and ConditionalStepUp."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from dataclasses import dataclass
from html import escape
from numbers import Real

import numpy as np

from skood.stats._fdp import bound_of_selection
from skood.stats._fdp_bands import local_band, simes_band
from skood.stats._ranks import (
    check_level,
    check_pvalues,
    check_size,
    min_selected,
    step_up,
)
from skood.utils._estimator import SkoodEstimator
from skood.utils._param_validation import Interval, StrOptions, fit_context
from skood.utils._ties import GUARD, loosened

# Number of samples in the table for notebooks.
_SHOWN = 10


@dataclass(frozen=True, eq=False, repr=False)
class Selection:
    """Samples of one batch that are selected as out-of-distribution (OOD).

    The functions and methods of :mod:`skood.selection` return it. Read more in the
    :ref:`User Guide <selection>`.

    Parameters
    ----------
    selected : ndarray of shape (n_samples,), dtype bool
        True for samples that are selected as OOD.

    pvalues : ndarray of shape (n_samples,), dtype float64
        The p-value of each sample; of several detectors, under the chosen one.

    alpha : float
        The level.

    n_calibration : int
        Number of calibration samples that the p-values refer to.

    qvalues : ndarray of shape (n_samples,) or None, default=None
        The smallest level at which each sample would be selected; it may exceed 1. None
        unless the procedure is a `StepUp`.

    pi0 : float or None, default=None
        Estimated proportion of ID samples in the batch, which may exceed 1. 1 for the
        procedure of Benjamini and Hochberg, None for procedures that have none.

    detector : ndarray of shape (n_samples,) or None, default=None
        The detector by which each sample was tested, its name or index.

    fdp_bound : float or None, default=None
        Upper bound on the fraction of ID samples among the selected ones, see
        `fdp_bound`. None if none was requested.

    See Also
    --------
    select_novelties : Selection by p-values.
    NoveltySelector : Selection by one or several detectors.

    Examples
    --------
    >>> from skood.selection import select_novelties
    >>> batch = select_novelties([0.01, 0.6, 0.02, 0.9], 99, alpha=0.1)
    >>> batch
    2 of 4 selected at alpha=0.1; smallest q-value 0.04
    >>> batch.labels
    array([-1,  1, -1,  1])
    >>> batch.n_selected, batch.threshold, batch.min_selected
    (2, 0.02, 1)
    >>> batch.qvalues
    array([0.04, 0.8 , 0.04, 0.9 ])
    """

    selected: np.ndarray
    pvalues: np.ndarray
    alpha: float
    n_calibration: int
    qvalues: np.ndarray | None = None
    pi0: float | None = None
    detector: np.ndarray | None = None
    fdp_bound: float | None = None

    @property
    def labels(self):
        """Labels as from ``predict``: -1 for selected samples, +1 for others."""
        return np.where(self.selected, -1, 1)

    @property
    def n_selected(self):
        """Number of selected samples."""
        return int(np.count_nonzero(self.selected))

    @property
    def threshold(self):
        """The largest selected p-value, 0 if no sample is selected."""
        return float(self.pvalues[self.selected].max(initial=0.0))

    @property
    def min_selected(self):
        """Smallest size of a selection by Benjamini-Hochberg that is not empty."""
        return min_selected(len(self.selected), self.n_calibration, self.alpha)

    def __repr__(self):
        text = f"{self.n_selected} of {len(self.selected)} selected at alpha="
        text += f"{self.alpha:g}"
        for name in ("q-value", "p-value"):
            values = getattr(self, name.replace("-", "") + "s")
            if values is not None and len(values):
                return f"{text}; smallest {name} {values.min():.2g}"
        return text

    def _repr_html_(self):
        """Return a table of the ten samples of the smallest p-values, for notebooks."""
        names = ["selected", "pvalues", "qvalues", "detector"]
        names = [name for name in names if getattr(self, name) is not None]
        smallest = np.argsort(self.pvalues, kind="stable")[:_SHOWN]
        head = "".join(f"<th>{name}</th>" for name in ["sample", *names])
        lines = []
        for i in smallest.tolist():
            values = [getattr(self, name)[i] for name in names]
            cells = [f"{v:.4g}" if isinstance(v, float) else str(v) for v in values]
            columns = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
            lines.append(f"<tr><th>{i}</th>{columns}</tr>")
        caption = f"<caption>{escape(repr(self))}</caption>"
        head = f"<thead><tr>{head}</tr></thead>"
        return "\n".join(
            ["<table>", caption, head, "<tbody>", *lines, "</tbody>", "</table>"]
        )


_checked = fit_context(prefer_skip_nested_validation=True)


class _BaseStepUp(SkoodEstimator):
    """Base class of procedures that implement ``_levels(ranks, n)``, as `step_up`."""

    @_checked
    def selected(self, pvalues, n_calibration, alpha=0.1):
        """Return which samples are selected as OOD.

        Parameters
        ----------
        pvalues : array-like of shape (n_samples,)
            Conformal p-values of the batch, small = OOD.

        n_calibration : int
            Number n of calibration samples that the p-values refer to.

        alpha : float, default=0.1
            The level of the false discovery rate, in (0, 1).

        Returns
        -------
        selected : ndarray of shape (n_samples,), dtype bool
            True for selected samples. Equal p-values are selected together.

        Raises
        ------
        TypeError, ValueError
            If an argument or parameter is invalid.
        """
        alpha = check_level(alpha)
        ranks = check_pvalues(pvalues, n_calibration=n_calibration)
        return self._levels(ranks, n_calibration)[ranks] <= loosened(alpha)


class StepUp(_BaseStepUp):
    r"""Step-up procedure on conformal p-values, of a batch of samples.

    With the p-values :math:`p_{(1)} \le \dots \le p_{(m)}` of a batch, the samples with
    a p-value of at most :math:`p_{(\hat k)}` are selected as out-of-distribution (OOD),

    .. math:: \hat k = \max \{k : \hat m_0 \, p_{(k)} \le \alpha k\}.

    :math:`\hat m_0` is m for the procedure of Benjamini and Hochberg (BH), or an
    estimate of the number of in-distribution (ID) samples in the batch. The false
    discovery rate, the mean over calibration sets and batches of the fraction of ID
    samples among the selected ones, is at most :math:`\alpha` if the ID samples of the
    batch are exchangeable with the n calibration samples. For BH it is at most
    :math:`\alpha m_0 / m` [1]_ [3]_, with or without ties.

    Read more in the :ref:`User Guide <selection>`.

    Parameters
    ----------
    pi0 : {"storey", "quantile"} or None, default=None
        The estimate :math:`\hat m_0`, which is not clipped at m. None: m. "storey"
        [2]_, with :math:`K = \lceil \lambda (n + 1) \rceil`:

        .. math:: \hat m_0 = \frac{1 + \#\{j : p_j \ge K / (n + 1)\}}{1 - K / (n + 1)}.

        "quantile", with :math:`k_0 = \lceil \text{fraction} \cdot m \rceil`:

        .. math:: \hat m_0 = \frac{m - k_0 + 1}{1 - p_{(k_0)}}.

    lam : float, default=0.5
        :math:`\lambda` in (0, 1), chosen before looking at the batch.

    fraction : float, default=0.5
        The fraction in (0, 1] of "quantile", chosen before looking at the batch.

    See Also
    --------
    ConditionalStepUp : Holds for most calibration sets, not on average over them.
    select_novelties : Applies a procedure.
    skood.combine.BenjaminiHochberg : The same test over the detectors of one sample.

    Notes
    -----
    `skood.combine.Storey` has another estimate: without the one in the numerator, and
    clipped. As a procedure over samples it exceeds the level: 0.32 at
    :math:`\alpha = 0.2` for 19 calibration samples and 4 ID samples.

    References
    ----------
    .. [1] S. Bates, E. Candes, L. Lei, Y. Romano, M. Sesia. Testing for outliers with
       conformal p-values. Annals of Statistics 51, 2023.

    .. [2] J. D. Storey, J. E. Taylor, D. Siegmund. Strong control, conservative point
       estimation and simultaneous conservative consistency of false discovery rates.
       Journal of the Royal Statistical Society B 66, 2004.

    .. [3] A. Marandon, L. Lei, D. Mary, E. Roquain. Adaptive novelty detection with
       false discovery rate guarantee. Annals of Statistics 52, 2024.

    Examples
    --------
    >>> from skood.selection import StepUp
    >>> p = [0.05, 0.1, 0.05, 0.2, 0.2, 0.25, 0.6, 1.0, 0.75, 0.4]
    >>> StepUp().selected(p, 19, alpha=0.3).nonzero()[0]
    array([0, 2])
    >>> StepUp("quantile").selected(p, 19, alpha=0.3).nonzero()[0]
    array([0, 1, 2, 3, 4])
    >>> StepUp().qvalues(p, 19)[:3].round(3)
    array([0.25 , 0.333, 0.25 ])
    """

    _parameter_constraints: dict = {
        "pi0": [StrOptions({"storey", "quantile"}), None],
        "lam": [Interval(Real, 0, 1, closed="neither")],
        "fraction": [Interval(Real, 0, 1, closed="right")],
    }

    def __init__(self, pi0=None, *, lam=0.5, fraction=0.5):
        self.pi0 = pi0
        self.lam = lam
        self.fraction = fraction

    @_checked
    def qvalues(self, pvalues, n_calibration):
        r"""Return the smallest level at which each sample is selected.

        .. math:: q_j = \min_{k : p_{(k)} \ge p_j} \hat m_0 \, p_{(k)} / k

        Parameters
        ----------
        pvalues : array-like of shape (n_samples,)
            Conformal p-values of the batch, small = OOD.

        n_calibration : int
            Number of calibration samples that the p-values refer to.

        Returns
        -------
        qvalues : ndarray of shape (n_samples,), dtype float64
            The levels. They may exceed 1, and may be infinite.

        Raises
        ------
        TypeError, ValueError
            If an argument or parameter is invalid.
        """
        ranks = check_pvalues(pvalues, n_calibration=n_calibration)
        return self._levels(ranks, n_calibration)[ranks]

    @_checked
    def n_id(self, pvalues, n_calibration):
        r"""Return the estimated number of ID samples in the batch.

        Parameters
        ----------
        pvalues : array-like of shape (n_samples,)
            Conformal p-values of the batch, small = OOD.

        n_calibration : int
            Number of calibration samples that the p-values refer to.

        Returns
        -------
        n_id : float
            The estimate :math:`\hat m_0`; the size of the batch if `pi0` is None. It
            may exceed the size of the batch, and may be infinite.

        Raises
        ------
        TypeError, ValueError
            If an argument or parameter is invalid.
        """
        return self._n_id(
            check_pvalues(pvalues, n_calibration=n_calibration), n_calibration
        )

    def _n_id(self, ranks, n):
        m = len(ranks)
        if self.pi0 is None or m == 0:
            return float(m)
        if self.pi0 == "storey":
            first = min(max(math.ceil(self.lam * (n + 1) - GUARD), 1), n)
            return (1 + np.count_nonzero(ranks >= first)) / (1 - first / (n + 1))
        k0 = max(1, math.ceil(self.fraction * m - GUARD))
        n_above = n + 1 - int(np.partition(ranks, k0 - 1)[k0 - 1])
        return (m - k0 + 1) * (n + 1) / n_above if n_above else math.inf

    def _levels(self, ranks, n):
        values = np.arange(n + 2) / (n + 1)
        return step_up(ranks, values, self._n_id(ranks, n))


class ConditionalStepUp(_BaseStepUp):
    r"""Benjamini-Hochberg procedure that holds given the calibration samples.

    The false discovery rate of `StepUp` is a mean over calibration sets: for a given
    one, it may be higher. Here the p-value :math:`r / (n + 1)` is replaced by
    :math:`b_r`, a simultaneous upper bound on the order statistics of n uniform
    variables,

    .. math:: P\bigl(U_{(r)} \le b_r \text{ for all } r\bigr) \ge 1 - \delta,
       \qquad b_{n + 1} = 1,

    before the procedure of Benjamini and Hochberg. With a probability of at least
    :math:`1 - \delta` over the calibration samples, the false discovery rate given
    these is at most :math:`\alpha`, if the samples are independent [1]_.

    Read more in the :ref:`User Guide <selection>`.

    Parameters
    ----------
    delta : float, default=0.1
        Probability in (0, 1) of calibration samples for which the rate may be exceeded.

    band : {"simes", "local"}, default="simes"
        "simes": the generalized Simes inequality, with :math:`k = \max(\lfloor n/2
        \rfloor, 1)`, which is tight for small p-values:

        .. math:: b_{n + 1 - i} = 1 - \delta^{1/k}
           \prod_{l=0}^{k-1} \Bigl(\frac{i - l}{n - l}\Bigr)^{1/k}.

        "local": :math:`b_r` is the quantile of :math:`\mathrm{Beta}(r, n + 1 - r)` at
        the same level for all r, which is found by a simulation with a fixed seed.

    See Also
    --------
    StepUp : The rate on average over calibration sets, with more selected samples.

    References
    ----------
    .. [1] S. Bates, E. Candes, L. Lei, Y. Romano, M. Sesia. Testing for outliers with
       conformal p-values. Annals of Statistics 51, 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.selection import ConditionalStepUp
    >>> p = np.array([1, 1, 1, 1, 2, 2, 3, 40, 100, 201]) / 201
    >>> ConditionalStepUp().pvalues(p, 200)[[0, 6, 7]].round(4)
    array([0.0228, 0.0363, 0.288 ])
    >>> ConditionalStepUp().selected(p, 200, alpha=0.1).sum()
    np.int64(7)
    """

    _parameter_constraints: dict = {
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "band": [StrOptions({"simes", "local"})],
    }

    def __init__(self, delta=0.1, band="simes"):
        self.delta = delta
        self.band = band

    @_checked
    def pvalues(self, pvalues, n_calibration):
        """Return the p-values that hold given the calibration samples.

        Parameters
        ----------
        pvalues : array-like of shape (n_samples,)
            Conformal p-values, small = OOD.

        n_calibration : int
            Number n of calibration samples that the p-values refer to.

        Returns
        -------
        pvalues : ndarray of shape (n_samples,), dtype float64
            The larger p-values :math:`b_r`.

        Raises
        ------
        TypeError, ValueError
            If an argument or parameter is invalid.
        """
        ranks = check_pvalues(pvalues, n_calibration=n_calibration)
        return self._band(n_calibration)[ranks]

    def _levels(self, ranks, n):
        return step_up(ranks, self._band(n), float(len(ranks)))

    def _band(self, n):
        band = simes_band if self.band == "simes" else local_band
        return band(int(n), float(self.delta))


def select_novelties(pvalues, n_calibration, alpha=0.1, procedure=None, *, delta=None):
    r"""Select the out-of-distribution samples of a batch by their p-values.

    The expected fraction of ID samples among the selected ones, the false discovery
    rate, is at most :math:`\alpha`. Read more in the :ref:`User Guide <selection>`.

    Parameters
    ----------
    pvalues : array-like of shape (n_samples,)
        Conformal p-values of the batch, such as from
        :func:`~skood.combine.conformal_pvalues`, or conformal levels of a
        :class:`~skood.combine.DetectorEnsemble` (with ``n_level_`` as `n_calibration`).

    n_calibration : int
        Number of calibration samples that the p-values refer to.

    alpha : float, default=0.1
        The level in (0, 1), chosen before looking at the batch.

    procedure : StepUp, ConditionalStepUp or object, default=None
        An object with ``selected(pvalues, n_calibration, alpha)``. None: ``StepUp()``,
        the procedure of Benjamini and Hochberg.

    delta : float, default=None
        If given, `Selection.fdp_bound` is an upper bound on the fraction of ID samples
        among the selected ones that holds with probability 1 - delta, see `fdp_bound`.

    Returns
    -------
    selection : Selection
        The selected samples.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid: p-values that are not multiples of 1 / (n + 1), such
        as of an empirical distribution function, have no guarantee.

    See Also
    --------
    NoveltySelector : Fits detectors, holds samples out, and selects.
    fdp_bound : Bounds for all numbers of selected samples at once.

    References
    ----------
    .. [1] S. Bates, E. Candes, L. Lei, Y. Romano, M. Sesia. Testing for outliers with
       conformal p-values. Annals of Statistics 51, 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.combine import conformal_pvalues
    >>> from skood.selection import select_novelties
    >>> rng = np.random.default_rng(0)
    >>> calibration = rng.normal(size=499)
    >>> scores = np.concatenate([rng.normal(size=80), rng.normal(-4, 1, size=20)])
    >>> pvalues = conformal_pvalues(scores=scores, calibration_scores=calibration)
    >>> batch = select_novelties(pvalues, 499, alpha=0.1)
    >>> int(batch.selected[:80].sum()), int(batch.selected[80:].sum())
    (0, 20)
    """
    alpha = check_level(alpha)
    n = check_size(n_calibration)
    ranks = check_pvalues(pvalues, n_calibration=n)
    procedure = StepUp() if procedure is None else procedure
    if isinstance(procedure, type) or not hasattr(procedure, "selected"):
        raise TypeError(
            "procedure must be an object with selected(pvalues, n_calibration, alpha), "
            f"such as StepUp() or ConditionalStepUp(), got {procedure!r}."
        )
    p = ranks / (n + 1)
    selected = np.asarray(procedure.selected(p, n, alpha))
    has_levels = isinstance(procedure, StepUp)
    n_id = procedure.n_id(p, n) if has_levels else math.nan
    return Selection(
        selected=selected,
        pvalues=p,
        alpha=alpha,
        n_calibration=n,
        qvalues=procedure.qvalues(p, n) if has_levels else None,
        pi0=n_id / max(len(p), 1) if has_levels else None,
        fdp_bound=bound_of_selection(ranks[:, None], n, selected, delta),
    )


def evalues_of(ranks, n, alpha):
    """Return the e-values of one split, of shape (n_samples,)."""
    m = len(ranks)
    levels = step_up(ranks, np.arange(n + 2) / (n + 1), float(m))
    n_selected = np.count_nonzero(levels[ranks] <= loosened(alpha))
    if n_selected == 0:
        return np.zeros(m)
    largest = np.floor(loosened(alpha * (n + 1) * n_selected / m))
    return np.where(ranks <= largest, (n + 1) / largest, 0.0)
