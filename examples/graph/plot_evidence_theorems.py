r"""
====================================
Theorems on evidence, in two classes
====================================

The paper on evidential probes proves three statements about two classes with the
features :math:`z \sim N(\pm\mu, \Sigma)` and OOD samples from :math:`N(0, \Sigma)`, in
between. Here they are computed, with :math:`\sigma^2 = \mu^\top \Sigma^{-1} \mu`, and
the minima are found by gradients.

1. A network trained by the cross-entropy, with the evidence :math:`e^{\pm w^\top z}` of
   the classes, has the weights :math:`w = \Sigma^{-1} \mu`. Its uncertainty :math:`u =
   1 / (1 + \cosh w^\top z)` is larger for an OOD than for an ID sample with the
   probability :math:`\Phi(\sigma / \sqrt 2)^2 + (1 - \Phi(\sigma / \sqrt 2))^2`.
2. The loss of a probe without regularizers (UCE) decreases with a constant evidence,
   down to the cross-entropy, although a constant ranks no samples at all.
3. The regularizer of the evidence of each class (ICE) is least at :math:`w = 2
   \Sigma^{-1} \mu`, where the uncertainty has the same ranking as in 1.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Samples of both classes, and OOD samples
# ----------------------------------------
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize
from scipy.special import digamma, expit
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

rng = np.random.default_rng(0)
SIGMA = np.array([[1.0, 0.4], [0.4, 0.5]])
DIRECTION = np.array([1.0, 0.5])
ROOT = np.linalg.cholesky(SIGMA)
N_SAMPLES = 300_000


def mean(s):
    """Return the mean of a class at the distance s."""
    return s * DIRECTION / np.sqrt(DIRECTION @ np.linalg.solve(SIGMA, DIRECTION))


def samples(s):
    """Return ID samples with their signs, and OOD samples."""
    noise = rng.normal(size=(2, N_SAMPLES, 2)) @ ROOT.T
    sign = rng.choice([-1.0, 1.0], size=N_SAMPLES)
    return sign[:, None] * mean(s) + noise[0], sign, noise[1]


def uncertainty(w, z):
    with np.errstate(over="ignore"):
        return 1 / (1 + np.cosh(z @ w))


def ranking(s):
    """Return P(u_OOD > u_ID) by Theorem 1."""
    p = norm.cdf(s / np.sqrt(2))
    return p**2 + (1 - p) ** 2


# %%
# Theorem 1: weights by the cross-entropy
# ---------------------------------------
# The bound of the paper, :math:`1 - 8 / \sigma^2`, is negative up to :math:`\sigma =
# 2.8`; the probability itself is not below 1/2. At :math:`\sigma = 4` there are hardly
# any errors to learn from, and the weights are less accurate.
def cross_entropy(w, z, sign):
    """Return the loss of the evidence exp(w z) and exp(-w z), and its gradient."""
    margin = 2 * sign * (z @ w)
    gradient = -(2 * sign * expit(-margin)) @ z / len(z)
    return np.logaddexp(0, -margin).mean(), gradient


for s in (1.0, 2.0, 4.0):
    z, sign, ood = samples(s)
    w = minimize(cross_entropy, np.zeros(2), args=(z, sign), jac=True).x
    expected = np.linalg.solve(SIGMA, mean(s))
    u_id, u_ood = uncertainty(w, z), uncertainty(w, ood)
    is_ood = np.repeat([0, 1], N_SAMPLES)
    auroc = roc_auc_score(is_ood, np.concatenate([u_id, u_ood]))
    print(
        f"sigma = {s:g}: weights {w.round(2)}, expected {expected.round(2)}; "
        f"P(u_OOD > u_ID) = {auroc:.4f}, expected {ranking(s):.5f}"
    )

# %%
# Theorem 2: a constant evidence
# ------------------------------
# The expected loss by quadrature: a mean over samples is too small, as
# :math:`-\psi(\alpha) \approx 1 / \alpha` has a heavy tail.
t = np.linspace(-14, 18, 100_001)  # the projection of a sample of the class +1
density = norm.pdf(t, 2.0, 1.0) * (t[1] - t[0])
proba = expit(2 * 2.0 * t)


def constant_loss(n):
    """Return the expected UCE of the evidence e = 2 cosh n for sigma = 2."""
    e = 2 * np.cosh(n)
    return density @ (digamma(e + 2) - digamma((e + 2) * proba))


limit = density @ -np.log(proba)
losses = [f"{constant_loss(n):.5f}" for n in (0, 1, 2, 4, 8)]
print("UCE for n = 0, 1, 2, 4, 8:", *losses, f"; limit {limit:.5f}")


# %%
# Theorem 3: the regularizer of the evidence of each class
# --------------------------------------------------------
# With :math:`q = 1 + e^{\pm w^\top z}` the loss :math:`\|(C + e) \tilde p - q\|^2` is 0
# at the minimum. With :math:`q = e^{\pm w^\top z}`, as the paper defines it, the
# minimum is at the same weights, and the loss is 2 there.
def ice(scale, shift, s=2.0):
    """Return the expected ICE of w = scale * Sigma^-1 mu, q = shift + exp(+-w z)."""
    logit = scale * s * t
    evidence = np.exp(np.stack([logit, -logit]))
    alpha = (2 + evidence.sum(axis=0)) * np.stack([proba, 1 - proba])
    return density @ np.sum((alpha - shift - evidence) ** 2, axis=0)


for shift in (1.0, 0.0):
    best = minimize(lambda c, shift=shift: np.log1p(ice(c[0], shift)), [1.5])
    print(
        f"q = {shift:g} + exp: least at {best.x[0]:.3f} Sigma^-1 mu, "
        f"ICE {np.expm1(best.fun):.4f}"
    )

# %%
# The three statements in one figure.
fig, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
grid = np.linspace(0.05, 6, 200)
axes[0].plot(grid, ranking(grid), label="probability")
axes[0].plot(grid, np.maximum(1 - 8 / grid**2, 0), "--", label="bound of the paper")
axes[0].set(xlabel=r"$\sigma$", ylabel=r"$P(u_{OOD} > u_{ID})$", title="Theorem 1")
axes[0].legend()
constants = np.linspace(0, 8, 81)
axes[1].plot(constants, [constant_loss(n) for n in constants], label="UCE")
axes[1].axhline(limit, color="black", ls="--", label="cross-entropy")
axes[1].set(xlabel="n, for the evidence 2 cosh n", ylabel="loss", title="Theorem 2")
axes[1].legend()
scales = np.linspace(0.5, 3, 101)
axes[2].plot(scales, [1 + ice(c, 1.0) for c in scales], label=r"$q = 1 + e^{\pm wz}$")
axes[2].plot(scales, [1 + ice(c, 0.0) for c in scales], "--", label=r"$q = e^{\pm wz}$")
axes[2].set(
    xlabel=r"w, in multiples of $\Sigma^{-1} \mu$",
    ylabel="1 + ICE",
    title="Theorem 3",
    yscale="log",
)
axes[2].legend()
plt.show()
