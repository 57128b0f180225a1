"""Fusion of the penalty of a logic and a detector's survival probability.

The penalty D(x) is minus the sum of the weights of the constraints that hold, and
p(x) the fraction of ID samples to which a detector gives as high an outlier score.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import numpy as np

from skood.stats._survival import NORMALIZERS
from skood.utils._estimator import SkoodEstimator
from skood.utils._param_validation import Interval, StrOptions

RULES = frozenset({"log", "product", "shifted_product"})

# Penalties that differ by at most this are equal up to rounding.
_ROUNDING = 1e-9

# Survivals of "none" are not probabilities; larger logarithms overflow.
_LARGEST_LOG = 700.0


class ConceptFusion(SkoodEstimator):
    r"""Fusion of the penalty of constraints and the outlier score of a detector.

    The outlier score :math:`o(x)` becomes a survival probability
    :math:`p(x) = P(O_{\text{ID}} \ge o(x))`, at least :math:`10^{-12}`, and is fused
    with the penalty :math:`D(x)` of an :class:`MLNDetector`:

    .. math::
       \text{log:} \quad \gamma D - \log p, \qquad
       \text{product:} \quad D\, p, \qquad
       \text{shifted product:} \quad (D - \max_z D(z))\, p.

    "log" has the order of :math:`-e^{-D} p`, which the code of [1]_ computes. Equation
    8 of [1]_, the product, inverts the order of p where :math:`D > 0`, and changes if a
    constraint is replaced by its negation and its weight by minus the weight, although
    the network is the same; "log" and "shifted_product" do not have these problems.

    Read more in the :ref:`User Guide <logic>`.

    Parameters
    ----------
    rule : {"log", "product", "shifted_product"}, default="log"
        The formula. "product" raises an error if the penalty of some world is positive.

    gamma : float, default=1.0
        Weight of the penalty in "log". It does not change the order of products.

    normalizer : str, default="genextreme"
        Distribution of the outlier scores of ID samples, fitted to held-out samples:
        "genextreme", "norm", "gennorm", "lognorm", "uniform" or "empirical".
        "genextreme" is replaced by "empirical", with a warning, if it does not fit:
        its shape is at least 1, or its distance from the scores is above 0.1. "none":
        the scores of the detector are already logarithms of p.

    See Also
    --------
    MLNDetector : Uses it as `fusion`.

    References
    ----------
    .. [1] K. Kirchheim, F. Ortmeier. Improving out-of-distribution detection with
       Markov logic networks. ICML 2025.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.logic import ConceptFusion
    >>> penalty, log_p = np.array([-5.0, -5.0, 0.0]), np.log([0.5, 0.01, 0.5])
    >>> ConceptFusion(gamma=2.0).fuse(penalty, log_p).round(1)
    array([-9.3, -5.4,  0.7])
    """

    _parameter_constraints: dict = {
        "rule": [StrOptions(set(RULES))],
        "gamma": [Interval(Real, 0, None, closed="left")],
        "normalizer": [StrOptions(set(NORMALIZERS))],
    }

    def __init__(self, rule="log", *, gamma=1.0, normalizer="genextreme"):
        self.rule = rule
        self.gamma = gamma
        self.normalizer = normalizer

    def fuse(self, penalty, log_sf, max_penalty=0.0):
        """Fuse penalties and survival probabilities into outlier scores.

        Parameters
        ----------
        penalty : ndarray of shape (n_samples,)
            Penalties D.

        log_sf : ndarray of shape (n_samples,) or float
            Logarithms of the survival probabilities p.

        max_penalty : float, default=0.0
            The largest penalty of any world; not used by "log".

        Returns
        -------
        outlier : ndarray of shape (n_samples,)
            Outlier scores, high = OOD.

        Raises
        ------
        ValueError
            If `rule` is "product" and penalties can be positive.
        """
        if self.rule == "log":
            return self.gamma * penalty - log_sf
        if self.rule == "product":  # Eq. (8) of [1]
            check_product(max(max_penalty, np.max(penalty, initial=0.0)))
            shifted = penalty
        else:
            shifted = penalty - max_penalty
        # samples of the largest penalty are tied up to rounding of the sum
        is_largest = shifted > -_ROUNDING * max(1.0, abs(max_penalty))
        return np.where(is_largest, 0.0, shifted) * np.exp(
            np.minimum(log_sf, _LARGEST_LOG)
        )


def check_product(max_penalty):
    """Raise if a product would invert the order of survivals: penalties are > 0."""
    if max_penalty > _ROUNDING:
        raise ValueError(
            "fusion='product' multiplies the penalty by the survival probability, "
            "which inverts its order where the penalty is positive: a sample would "
            "be the more outlying, the less outlying its detector score. With these "
            f"weights the penalty can be {max_penalty:.4g}, since a weight is "
            "negative. Use fusion='log', or 'shifted_product', which subtracts the "
            "largest penalty."
        )
