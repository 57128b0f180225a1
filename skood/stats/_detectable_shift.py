"""The smallest change that any valid monitor can detect."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real

import numpy as np

from skood.utils._param_validation import Number, validate_params


@validate_params(
    {
        "n": [Number(Integral, 1, None, closed="left")],
        "alpha": [Number(Real, 0, 1, closed="neither")],
    },
    prefer_skip_nested_validation=True,
)
def detectable_shift(n, alpha=0.01):
    r"""Return the smallest shift of the mean that a monitor can be expected to detect.

    For *every* valid monitor, after `n` calibration and normal samples from :math:`P`
    and then samples from :math:`Q`, :math:`E[\log M_t] \le n\, KL(P \| Q)`: the
    martingale is an e-value for the hypothesis that all samples are from :math:`Q`, and
    Jensen's inequality applies. For a normal score whose mean moves by :math:`\delta`
    standard deviations the bound is :math:`n \delta^2 / 2`; below
    :math:`\log(1/\alpha)` an alarm is unlikely, for any method:

    .. math:: \delta = \sqrt{2 \log(1 / \alpha) / n}.

    Read more in the :ref:`User Guide <monitor_ceiling>`.

    Parameters
    ----------
    n : int
        Number of calibration samples and normal samples of the stream.

    alpha : float, default=0.01
        Level of the monitor in (0, 1).

    Returns
    -------
    shift : float
        The shift in standard deviations.

    Raises
    ------
    ValueError
        If `n` is less than 1 or `alpha` is not in (0, 1).

    Examples
    --------
    >>> from skood.monitor import detectable_shift
    >>> round(detectable_shift(60), 2), round(detectable_shift(1000), 2)
    (0.39, 0.1)
    """
    return float(np.sqrt(2 * np.log(1 / alpha) / n))
