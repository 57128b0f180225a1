"""Optimal acceptance on a decision boundary of positive probability."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from numbers import Real

import numpy as np
from sklearn.utils import Bunch, check_array

from skood.decision._bounded_rules import BoundedTPRFPR
from skood.utils._ties import GUARD


def boundary_acceptance(g_id, g_ood, rule, mu, *, weights_id=None, weights_ood=None):
    r"""Find the optimal acceptance where all combined scores are equal.

    The optimal rule for a bounded TPR and FPR accepts samples with :math:`r(x) + \mu
    g(x) < \lambda`, for the conditional risk r and the likelihood ratio :math:`g = p_O
    / p_I`. Where the sum equals :math:`\lambda` it depends on g alone [1]_: of samples
    that are all on this boundary, with TPR :math:`\varphi` and FPR :math:`\rho`, the
    selective risk is

    .. math:: R^S = \lambda - \mu \, \frac{\rho}{\varphi} .

    It is least if :math:`\rho / \varphi` is as small (:math:`\mu < 0`) or as large
    (:math:`\mu > 0`) as the bounds allow, for the acceptance of a window
    :math:`\gamma_1 \le g \le \gamma_2`.

    Read more in the :ref:`User Guide <boundary>`.

    Parameters
    ----------
    g_id : array-like of shape (n_id,)
        Likelihood ratios of ID samples, of atoms or of quadrature nodes.

    g_ood : array-like of shape (n_ood,)
        Likelihood ratios of OOD samples.

    rule : BoundedTPRFPR
        The bounds on :math:`\varphi` and :math:`\rho`.

    mu : float
        Weight of g in the combined score. 0: any acceptance that meets the bounds is
        optimal, and the one of the least FPR is returned.

    weights_id, weights_ood : array-like of shape (n_id,) and (n_ood,), default=None
        Weights of the samples, such as the probabilities of atoms or the density at
        quadrature nodes; they are divided by their sum. None: equal weights.

    Returns
    -------
    acceptance : Bunch
        ``gamma1`` and ``gamma2``, the ends of the window; ``chi1`` and ``chi2``, the
        acceptance probabilities at these values of g, while values in between are
        accepted; ``tpr`` and ``fpr``, the attained rates; and ``feasible``. If it is
        False, no acceptance meets the bounds, and the one of the required TPR and the
        least FPR is returned.

    Raises
    ------
    ValueError
        If values or weights are negative or not finite.
    TypeError
        If `rule` is not a :class:`BoundedTPRFPR`.

    See Also
    --------
    solve_finite : Solves the whole problem for a finite input space.

    Notes
    -----
    For :math:`\mu > 0` each lower end has a largest upper end with :math:`\rho \le
    \rho_{\max}`; the lower end is raised until :math:`\varphi = \varphi_{\min}`. The
    function :math:`F(\alpha, s)` of [1]_ is undefined if all of :math:`g \ge s` has
    less than :math:`\rho_{\max}`, and the printed recipe then stops too low.

    References
    ----------
    .. [1] V. Franc, D. Prusa, J. Paplham. Reject option models comprising
       out-of-distribution detection. 2023, Theorem 7.

    Examples
    --------
    ID samples are uniform on [0, 1], OOD samples have the density 2x, and g = 2x:

    >>> import numpy as np
    >>> from skood.rejection import BoundedTPRFPR, boundary_acceptance
    >>> x = (np.arange(10_000) + 0.5) / 10_000
    >>> rule = BoundedTPRFPR(tpr_min=0.6, fpr_max=0.5)
    >>> found = boundary_acceptance(2 * x, 2 * x, rule, mu=1.0, weights_ood=x)
    >>> round(found.gamma1, 3), round(found.gamma2, 3)
    (0.233, 1.433)
    >>> round(found.fpr / found.tpr, 4)
    0.8333
    """
    if not isinstance(rule, BoundedTPRFPR):
        raise TypeError(
            f"rule must be a BoundedTPRFPR, got {type(rule).__name__}: the acceptance "
            "on the boundary is known for bounds on TPR and FPR."
        )
    rule.check_params()
    if isinstance(mu, bool) or not isinstance(mu, Real) or not math.isfinite(mu):
        raise ValueError(f"mu must be a finite number, got {mu!r}.")
    g, id_mass, ood_mass = _atoms(g_id, g_ood, weights_id, weights_ood)
    # cumulative masses at the ends of the atoms; in between they are linear in the
    # fraction of an atom that is accepted
    tpr, fpr = (np.concatenate([[0.0], np.cumsum(m)]) for m in (id_mass, ood_mass))
    tpr[-1] = fpr[-1] = 1.0
    low, high = 0.0, _first_reaching(tpr, rule.tpr_min)
    feasible = np.interp(high, np.arange(len(fpr)), fpr) <= rule.fpr_max + GUARD
    if float(mu) > 0 and feasible:
        low, high = _highest_window(tpr, fpr, rule)
    return Bunch(**_window(g, tpr, fpr, low, high), feasible=feasible)


def _atoms(g_id, g_ood, weights_id, weights_ood):
    """Return the distinct values of g with their probabilities in ID and OOD data."""
    values, masses = [], []
    for g, weights, kind in ((g_id, weights_id, "id"), (g_ood, weights_ood, "ood")):
        g = check_array(g, ensure_2d=False, dtype=np.float64, input_name=f"g_{kind}")
        if g.ndim != 1 or g.min() < 0:
            raise ValueError(
                f"g_{kind} must be likelihood ratios >= 0 of shape (n_{kind},), got "
                f"the shape {g.shape} and the least value {g.min():.4g}."
            )
        if weights is None:
            weights = np.ones(len(g))
        name = f"weights_{kind}"
        mass = check_array(weights, ensure_2d=False, dtype=np.float64, input_name=name)
        if mass.shape != g.shape or mass.min() < 0 or not mass.any():
            raise ValueError(
                f"{name} must be weights >= 0 of shape {g.shape}, not all 0, got the "
                f"shape {mass.shape} and the least value {mass.min():.4g}."
            )
        values.append(g)
        masses.append(mass / mass.sum())
    g, codes = np.unique(np.concatenate(values), return_inverse=True)
    n_id = len(values[0])
    id_mass = np.bincount(codes[:n_id], masses[0], minlength=len(g))
    ood_mass = np.bincount(codes[n_id:], masses[1], minlength=len(g))
    return g, id_mass, ood_mass


def _first_reaching(cumulative, level):
    """Return the first position with a level: atoms, and a fraction of the next one."""
    k = int(np.searchsorted(cumulative, level - GUARD))
    if k == 0:
        return 0.0
    below, above = cumulative[k - 1 : k + 1]
    return k - 1 + min((level - below) / (above - below), 1.0)


def _highest_window(tpr, fpr, rule):
    """Return the ends of the window of largest FPR over TPR that meets both bounds."""
    n = len(tpr) - 1
    positions = np.arange(n + 1)
    # below each lower end s: the largest upper end, which moves linearly between kinks
    at_end = fpr - rule.fpr_max
    kinks = [_last_below(fpr, level) for level in at_end[at_end > 0]]
    lows = np.unique(np.concatenate([positions, kinks]))
    levels = np.interp(lows, positions, fpr) + rule.fpr_max
    highs = np.array([_last_below(fpr, level) for level in levels])
    widths = np.interp(highs, positions, tpr) - np.interp(lows, positions, tpr)
    last = np.flatnonzero(widths >= rule.tpr_min - GUARD)[-1]
    low, high = lows[last], highs[last]
    if last + 1 < len(lows) and widths[last] > rule.tpr_min:
        # between two kinks all are linear
        fraction = (widths[last] - rule.tpr_min) / (widths[last] - widths[last + 1])
        low += fraction * (lows[last + 1] - low)
        high += fraction * (highs[last + 1] - high)
    return float(low), float(high)


def _last_below(cumulative, level):
    """Return the last position with at most a level."""
    k = int(np.searchsorted(cumulative, level + GUARD, side="right"))
    if k == len(cumulative):
        return k - 1.0
    below, above = cumulative[k - 1 : k + 1]
    return k - 1 + min(max((level - below) / (above - below), 0.0), 1.0)


def _window(g, tpr, fpr, low, high):
    """Return the window between positions: ends, acceptance there, and masses."""
    first, last = min(int(low), len(g) - 1), max(int(np.ceil(high)) - 1, 0)
    chi1, chi2 = 1.0 - (low - first), high - last
    if first == last:
        chi1 = chi2 = high - low
    positions = np.arange(len(tpr))
    rates = [np.diff(np.interp([low, high], positions, m))[0] for m in (tpr, fpr)]
    return {
        "gamma1": float(g[first]),
        "gamma2": float(g[last]),
        "chi1": float(chi1),
        "chi2": float(chi2),
        "tpr": float(rates[0]),
        "fpr": float(rates[1]),
    }
