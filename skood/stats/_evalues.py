"""Selection of hypotheses by e-values, with a bounded false discovery rate."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import numpy as np

from skood.utils._param_validation import Number, validate_params
from skood.utils._ties import loosened


@validate_params(
    {"e": ["array-like"], "fdr": [Number(Real, 0, 1, closed="neither")]},
    prefer_skip_nested_validation=True,
)
def e_bh(e, fdr=0.05):
    r"""Select hypotheses by e-values with a bounded false discovery rate (e-BH).

    With :math:`\hat k = \max\{k : e_{(k)} \ge K / (\text{fdr} \cdot k)\}` for the
    k-th largest of K e-values, the :math:`\hat k` largest are selected [1]_, under any
    dependence. Equal e-values are selected together.

    Read more in the :ref:`User Guide <monitor_panel>`.

    Parameters
    ----------
    e : array-like of shape (n_hypotheses,)
        E-values, not negative; inf is allowed.

    fdr : float, default=0.05
        Bound of the false discovery rate in (0, 1).

    Returns
    -------
    selected : ndarray of bool of shape (n_hypotheses,)
        Whether each hypothesis is rejected.

    Raises
    ------
    ValueError
        If an e-value is negative or NaN.

    See Also
    --------
    skood.selection.evalue_selection : Makes e-values of the p-values of several splits.

    Notes
    -----
    E-values such as 30 / 7 often equal :math:`K / (\text{fdr} \cdot k)` exactly, but
    not in floating point numbers. An e-value that falls short by less than a relative
    1e-12 counts as equal, so that the rate is bounded by fdr (1 + 1e-12).

    References
    ----------
    .. [1] R. Wang, A. Ramdas. False discovery rate control with e-values. Journal of
       the Royal Statistical Society B, 2022.

    Examples
    --------
    >>> from skood.monitor import e_bh
    >>> e_bh([1, 300, 40, 250, 3])
    array([False,  True,  True,  True, False])
    """
    e = np.asarray(e, dtype=np.float64)
    if e.ndim != 1 or not (e >= 0).all():
        raise ValueError(
            f"e must be a sequence of numbers that are not negative, got {e!r:.80}. "
            "Take numpy.exp of log e-values."
        )
    ordered = np.sort(e)[::-1]
    enough = loosened(fdr * np.arange(1, len(e) + 1) * ordered) >= len(e)
    if not enough.any():
        return np.zeros(len(e), dtype=bool)
    return e >= ordered[np.flatnonzero(enough)[-1]]
