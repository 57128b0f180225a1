"""Fusion of the penalty of a logic and a detector's survival probability.

The penalty D(x) is minus the sum of the weights of the constraints that hold, and
p(x) the fraction of ID samples to which a detector gives as high an outlier score.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

__all__ = ["FUSIONS", "check_product", "fuse"]

FUSIONS = frozenset({"log", "product", "shifted_product"})

# Penalties that differ by at most this are equal up to rounding.
_ROUNDING = 1e-9

# Survivals of "none" are not probabilities; larger logarithms overflow.
_LARGEST_LOG = 700.0


def check_product(max_penalty):
    """Raise a ValueError if the product would invert the order of survivals.

    This is so if `max_penalty`, the largest penalty of any world, is positive.
    """
    if max_penalty > _ROUNDING:
        raise ValueError(
            "fusion='product' multiplies the penalty by the survival probability, "
            "which inverts its order where the penalty is positive: a sample would "
            "be the more outlying, the less outlying its detector score. With these "
            f"weights the penalty can be {max_penalty:.4g}, since a weight is "
            "negative. Use fusion='log', or 'shifted_product', which subtracts the "
            "largest penalty."
        )


def fuse(penalty, log_sf, *, fusion="log", gamma=1.0, max_penalty=0.0):
    r"""Fuse penalties and survivals into outlier scores.

    .. math::
       \text{log:} \quad \gamma D - \log p, \qquad
       \text{product:} \quad D\, p, \qquad
       \text{shifted product:} \quad (D - \max_z D(z))\, p.

    Parameters
    ----------
    penalty : ndarray of shape (n_samples,)
        Penalties D.

    log_sf : ndarray of shape (n_samples,) or float
        Logarithms of the survival probabilities p.

    fusion : {"log", "product", "shifted_product"}, default="log"
        Rule of fusion.

    gamma : float, default=1.0
        Weight of the penalty in "log". It does not change the order of products.

    max_penalty : float, default=0.0
        The largest penalty of any world.

    Returns
    -------
    outlier : ndarray of shape (n_samples,)
        Outlier scores, high = OOD.

    Raises
    ------
    ValueError
        If `fusion` is "product" and penalties can be positive, see `check_product`.
    """
    if fusion == "log":
        return gamma * penalty - log_sf
    if fusion == "product":
        check_product(max(max_penalty, np.max(penalty, initial=0.0)))
        shifted = penalty
    else:
        shifted = penalty - max_penalty
    # samples of the largest penalty are tied up to rounding of the sum
    shifted = np.where(shifted > -_ROUNDING * max(1.0, abs(max_penalty)), 0.0, shifted)
    return shifted * np.exp(np.minimum(log_sf, _LARGEST_LOG))
