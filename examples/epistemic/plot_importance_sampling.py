r"""
==============================================
Error of an expectation by draws from one mode
==============================================

A posterior with two modes, :math:`p = \frac12 N(0, 1) + \frac12 N(\mu_2, s_2)`, and
draws from a normal distribution :math:`q = N(0, s_q)` around one of them, as from a
Laplace approximation. The mean of :math:`p(w_n) / q(w_n)` estimates :math:`\int p =
1`, and N times its variance is

.. math:: \int \frac{p(w)^2}{q(w)} dw - 1 ,

a sum over pairs of modes in closed form. It is figure B.1 of the paper on QUAM: the
farther a mode is from the draws, the larger the error, by orders of magnitude.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# The closed form
# ---------------
# For normal densities with means a, b, c and variances A, B, C the integral of
# :math:`N(a, A) N(b, B) / N(c, C)` is :math:`\sqrt{C / (A B P)} \, e^{(h^2 / P - k) /
# 2}` with :math:`P = 1/A + 1/B - 1/C`, :math:`h = a/A + b/B - c/C` and :math:`k = a^2/A
# + b^2/B - c^2/C`; it is infinite for :math:`P \le 0`.
import matplotlib.pyplot as plt
import numpy as np

from skood.epistemic import importance_estimate


def pair(a, A, b, B, c, C):
    """Return the integral of N(a, A) N(b, B) / N(c, C)."""
    P = 1 / A + 1 / B - 1 / C
    if P <= 0:
        return np.inf
    h = a / A + b / B - c / C
    k = a**2 / A + b**2 / B - c**2 / C
    return np.sqrt(C / (A * B * P)) * np.exp((h**2 / P - k) / 2)


def variance(mu2=3.0, s2=1.0, sq=1.0):
    """Return N times the variance; `s2` and `sq` are variances."""
    modes = [(0.0, 1.0), (mu2, s2)]
    pairs = [pair(*u, *v, 0.0, sq) for u in modes for v in modes]
    return sum(pairs) / 4 - 1


def normal(w, mean, s):
    return np.exp(-((w - mean) ** 2) / (2 * s)) / np.sqrt(2 * np.pi * s)


# %%
# Theorem 1 of the paper bounds N times the expected squared error by :math:`4 E_q[(p /
# q)^2]`, and by :math:`4 c^2` if :math:`p \le c q`.
def bounds(sq=1.0):
    """Return both bounds for modes at 0 and 3 of variance 1."""
    w = np.linspace(-20, 20, 400_001)
    ratio = (normal(w, 0, 1) + normal(w, 3, 1)) / (2 * normal(w, 0, sq))
    c = ratio.max() if sq > 1 else np.inf
    return 4 * (variance(sq=sq) + 1), 4 * c**2


for sq in (1.0, 4.0):
    first, second = bounds(sq)
    print(f"s_q = {sq:g}: {variance(sq=sq):.4g} <= {first:.4g} <= {second:.4g}")

fig, axes = plt.subplots(1, 3, figsize=(10, 3.2), sharey=True, layout="constrained")
panels = [
    (r"sd of the second mode, $\sqrt{s_2}$", np.linspace(0.1, 1.3, 100), "s2", 2),
    (r"mean of the second mode, $\mu_2$", np.linspace(0.5, 5, 100), "mu2", 1),
    (r"sd of the draws, $\sqrt{s_q}$", np.linspace(0.8, 5, 100), "sq", 2),
]
for ax, (label, grid, name, power) in zip(axes, panels, strict=True):
    ax.plot(grid, [variance(**{name: value**power}) for value in grid])
    ax.set(xlabel=label, yscale="log")
axes[0].set_ylabel("N times the variance")

# %%
# Standard error from the draws
# -----------------------------
# :func:`skood.epistemic.importance_estimate` computes the standard error from the
# draws. With wide draws the interval covers the true value 1. Draws from one mode only
# hardly ever reach the other: the interval is short, and mostly wrong.
rng = np.random.default_rng(0)


for sq in (1.0, 4.0):
    draws = rng.normal(0, np.sqrt(sq), size=(1000, 2000))
    p = 0.5 * normal(draws, 0, 1) + 0.5 * normal(draws, 3, 1)
    found = importance_estimate(p / normal(draws, 0, sq))
    covers = (found.interval[:, 0] <= 1) & (1 <= found.interval[:, 1])
    print(
        f"s_q = {sq:g}: standard error {np.sqrt(variance(sq=sq) / 1000):.3f}, "
        f"estimated {np.median(found.standard_error):.3f} (median); the 95 % interval "
        f"covers the truth in {covers.mean():.1%} of 2,000 repetitions"
    )

# %%
# The same holds for ensembles: members that all explain the data in the same way agree
# on the uncertainty, and its error is small whether or not they miss other models.
plt.show()
