"""False discovery proportion: bounds for all selections at once, and measurement."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import NamedTuple

import numpy as np

from skood.stats._fdp_bands import local_envelope
from skood.stats._ranks import check_level, check_pvalues, check_size
from skood.utils._ties import loosened
from skood.utils._torch import to_numpy

_METHODS = ("local", "simes")


class FDPPower(NamedTuple):
    """False discovery proportion and power of a selection."""

    fdp: float
    power: float


def fdp_bound(pvalues, n_calibration, delta=0.1, method="local"):
    r"""Return upper bounds on the false discovery proportion of all selections.

    The false discovery proportion of a selection is the fraction of in-distribution
    (ID) samples in it. The bounds for the k samples with the smallest p-values hold for
    all k at once, with a probability of at least :math:`1 - \delta`: so k, or the level
    of a procedure, may be chosen after looking at the batch. One minus the bound is a
    certified precision. Read more in the :ref:`User Guide <selection>`.

    Parameters
    ----------
    pvalues : array-like of shape (n_samples,)
        Conformal p-values of the batch, small = OOD.

    n_calibration : int
        Number n of calibration samples that the p-values refer to.

    delta : float, default=0.1
        Probability in (0, 1) that a bound is exceeded.

    method : {"local", "simes"}, default="local"
        "simes" [1]_, which is better if few samples are OOD:

        .. math:: V(S) \le \min_j \{j - 1 + \#\{i \in S : p_i > \delta j / m\}\}.

        "local": :math:`V(S) \le \min_r \{B_r + \#\{i \in S : r_i > r\}\}` with ranks
        :math:`r_i = (n + 1) p_i`, and :math:`B_r` the largest number of ID samples
        below the r-th smallest calibration score: an upper quantile of
        :math:`\mathrm{BetaBinomial}(m, r, n + 1 - r)`, at a level that is the same for
        all r and is found by a simulation with a fixed seed.

    Returns
    -------
    bounds : ndarray of shape (n_samples,), dtype float64
        The bound for the k smallest p-values, k = 1, ..., n_samples, in [0, 1]. With
        ties, for all samples with a p-value of at most the k-th smallest.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid.

    See Also
    --------
    select_novelties : A rate that holds on average, at one level chosen before.

    Notes
    -----
    All ID samples must be jointly exchangeable with the calibration samples.

    References
    ----------
    .. [1] J. J. Goeman, A. Solari. Multiple testing for exploratory research.
       Statistical Science 26, 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.selection import fdp_bound
    >>> p = np.array([1, 1, 1, 1, 1, 2, 2, 3, 60, 150]) / 201
    >>> fdp_bound(p, 200, delta=0.1)[[4, 7, 9]].round(2)
    array([0.2 , 0.12, 0.3 ])
    """
    ranks, n = (
        check_pvalues(pvalues, n_calibration=n_calibration),
        check_size(n_calibration),
    )
    delta = check_level(delta, "delta")
    if len(ranks) == 0:
        return np.empty(0)
    within, allowed = _allowed(len(ranks), n, delta, method)
    n_at_most = np.cumsum(np.bincount(ranks, minlength=n + 2))
    ends = np.unique(n_at_most[n_at_most > 0])  # samples up to each distinct p-value
    bounds = _n_id(ends, allowed, n_at_most[within]) / ends
    return bounds[ends.searchsorted(np.arange(1, len(ranks) + 1))]


def _allowed(m, n, delta, method):
    """Return ranks r, and how many ID samples may have a rank of at most r.

    Both are non-decreasing. For "simes", there is one pair for each j = 1, ..., m.
    """
    if method not in _METHODS:
        raise ValueError(f"method must be one of {list(_METHODS)}, got {method!r}.")
    if method == "local":
        return local_envelope(n, m, delta)
    allowed = np.arange(m)  # j - 1
    within = np.floor(loosened(delta * (allowed + 1) / m * (n + 1)))
    return within.astype(np.intp), allowed


def _n_id(sizes, allowed, counts):
    """Return min_j {allowed_j + max(0, size - counts_j)}, clipped, for each size.

    A set of the smallest p-values has ``size - counts_j`` members beyond the j-th
    bound. Both `allowed` and `counts` are non-decreasing in j.
    """
    inside = counts.searchsorted(sizes, side="right")  # counts_j <= size before here
    # beyond it, the set has no member outside, and the first bound is the smallest
    beyond = np.append(allowed, np.iinfo(np.int64).max)[inside]
    smallest = np.minimum.accumulate(allowed - counts)
    partial = sizes + np.append(0, smallest)[inside]
    return np.minimum(np.minimum(partial, beyond), sizes)


def bound_of_selection(ranks, n, selected, delta, choice=None):
    """Return the bound on the fraction of ID samples in a selection, or None.

    `ranks` has shape (m, K). The bounds for each of the K detectors, at delta / K, hold
    for all sets and all detectors at once. So the smallest bound holds, and also the
    sum of bounds for the parts that were selected by each detector, as in `choice`, of
    shape (m,).
    """
    if delta is None:
        return None
    delta = check_level(delta, "delta")
    n_selected = int(np.count_nonzero(selected))
    if n_selected == 0:
        return 0.0
    m, n_detectors = ranks.shape
    within, allowed = _allowed(m, n, delta / n_detectors, "local")

    def n_id(mask, k):
        counts = np.cumsum(np.bincount(ranks[mask, k], minlength=n + 2))[within]
        size = np.count_nonzero(mask)
        return min(int((allowed + size - counts).min()), size)

    least = min(n_id(selected, k) for k in range(n_detectors))
    if choice is not None:
        chosen = np.unique(choice[selected])
        least = min(least, sum(n_id(selected & (choice == k), k) for k in chosen))
    return least / n_selected


def fdp_power(selected, is_ood):
    r"""Return the false discovery proportion and the power of a selection.

    With R selected samples, V of them in-distribution, and :math:`m_1` OOD samples,

    .. math:: \mathrm{FDP} = \frac{V}{\max(R, 1)}, \qquad
       \mathrm{power} = \frac{R - V}{m_1}.

    The false discovery rate is the mean of the first over batches. Read more in the
    :ref:`User Guide <selection>`.

    Parameters
    ----------
    selected : array-like of shape (n_samples,), dtype bool
        True for samples that are selected as OOD.

    is_ood : array-like of shape (n_samples,), dtype bool
        True for samples that are OOD.

    Returns
    -------
    fdp : float
        The fraction of ID samples among the selected ones, 0 if none is selected.

    power : float
        The fraction of OOD samples that are selected, NaN if there is none.

    Raises
    ------
    ValueError
        If the arrays are not boolean, or differ in length.

    Examples
    --------
    >>> from skood.selection import fdp_power
    >>> fdp_power([True, True, True, False], [True, False, True, True])
    FDPPower(fdp=0.3333333333333333, power=0.6666666666666666)
    """
    selected, is_ood = (np.asarray(to_numpy(array)) for array in (selected, is_ood))
    for name, array in (("selected", selected), ("is_ood", is_ood)):
        if array.ndim != 1 or (array.dtype.kind != "b" and array.size):
            raise ValueError(
                f"{name} must be a boolean array of shape (n_samples,), got the dtype "
                f"{array.dtype} and the shape {array.shape}."
            )
    if len(selected) != len(is_ood):
        raise ValueError(
            "selected and is_ood must have the same length, got "
            f"{len(selected)} and {len(is_ood)}."
        )
    selected, is_ood = selected.astype(bool), is_ood.astype(bool)
    n_selected, n_ood = int(selected.sum()), int(is_ood.sum())
    n_detected = int((selected & is_ood).sum())
    power = n_detected / n_ood if n_ood else float("nan")
    return FDPPower((n_selected - n_detected) / max(n_selected, 1), power)
