"""Measures of total, aleatoric and epistemic uncertainty.

All functions are pure, compute in float64 from log-probabilities, and return nats.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import numpy as np
from scipy.special import ndtri
from sklearn.utils import Bunch

from skood.utils._linalg import check_no_overflow
from skood.utils._log_proba import normalized
from skood.utils._param_validation import Interval, StrOptions, validate_params
from skood.utils._torch import row_chunks, to_numpy

# The smallest normal number: finite logarithm of a zero probability.
_TINY = float(np.finfo(np.float64).tiny)
_LOG_TINY = float(np.log(_TINY))

# Bytes of log-probabilities of members that are decomposed at a time, in the cache.
_CHUNK_BYTES = 2**19


def as_real(array, name):
    """Return an array as float64 without NaN, or raise."""
    array = np.asarray(to_numpy(array))
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold real numbers, got dtype {array.dtype}.")
    array = array.astype(np.float64, copy=False)
    if np.isnan(array).any():
        raise ValueError(
            f"{name} has {int(np.isnan(array).sum())} NaN among {array.size} values."
        )
    return array


def member_weights(weights, shape):
    """Return weights of shape `shape`, or (n_members, 1, ...), that sum to one."""
    if weights is None:
        return np.full((shape[0],) + (1,) * (len(shape) - 1), 1.0 / shape[0])
    weights = as_real(weights, "weights")
    if weights.shape not in (shape, shape[:1]):
        raise ValueError(
            f"weights must have the shape {shape}, or {shape[:1]} for the same weights "
            f"of all samples. Got the shape {weights.shape}."
        )
    if weights.ndim < len(shape):
        weights = weights.reshape(shape[:1] + (1,) * (len(shape) - 1))
    total = weights.sum(axis=0)
    if (weights < 0).any() or not np.allclose(total, 1.0, rtol=0, atol=1e-6):
        raise ValueError(
            "weights must be non-negative and sum to one over the members, got sums "
            f"from {float(total.min()):.6g} to {float(total.max()):.6g}."
        )
    return weights / total


@validate_params(
    {"confidence_level": [Interval(Real, 0, 1, closed="neither")]},
    prefer_skip_nested_validation=True,
)
def importance_estimate(values, weights=None, *, groups=None, confidence_level=0.95):
    r"""Estimate a mean by weighted draws, with the standard error of the estimate.

    With draws n of weight :math:`\omega_n`, which sum to one, and values :math:`v_n`,

    .. math:: \hat v = \sum_{n=1}^N \omega_n v_n, \qquad
       SE^2 = \frac{N}{N - 1} \sum_n \omega_n^2 (v_n - \hat v)^2, \qquad
       n_{\text{eff}} = \frac{1}{\sum_n \omega_n^2} ,

    the delta method for self-normalized importance sampling [1]_. Draws that depend on
    each other, such as the models along one search, are one draw if they are in one
    group: with :math:`S_j = \sum_{n \in j} \omega_n (v_n - \hat v)` for J groups,
    :math:`SE^2 = \frac{J}{J - 1} \sum_j S_j^2` and :math:`1 / n_{\text{eff}} = \sum_j
    (\sum_{n \in j} \omega_n)^2`.

    Read more in the :ref:`User Guide <importance_estimate>`.

    Parameters
    ----------
    values : array-like of shape (n_draws, ...)
        Values of the draws. For draws from a known density q and a normalized density p
        these are :math:`D_n \, p(w_n) / q(w_n)`, without weights.

    weights : array-like of shape (n_draws,) or (n_draws, ...), default=None
        Weights of the draws, which sum to one over the first axis. None: equal weights.

    groups : array-like of shape (n_draws,), default=None
        Group of each draw. None: all draws are independent.

    confidence_level : float, default=0.95
        Coverage of the interval, for many independent draws.

    Returns
    -------
    result : Bunch
        ``estimate``, ``standard_error`` and ``n_effective`` (the effective number of
        draws, from 1 to the number of draws or groups), each of shape (...); and
        ``interval`` of shape (..., 2): the estimate plus and minus a multiple of the
        standard error, cut at 0 if no value is negative. With a single draw or group
        the standard error is infinite.

    Raises
    ------
    ValueError
        If the weights do not sum to one or the shapes do not match.

    See Also
    --------
    member_uncertainty : Weighted sums over the members of an ensemble.

    Notes
    -----
    The interval is computed from the draws alone: if they miss a region that
    contributes to the mean, it is short and wrong.

    References
    ----------
    .. [1] A. B. Owen. Monte Carlo theory, methods and examples. 2013, chapter 9.

    Examples
    --------
    >>> from skood.epistemic import importance_estimate
    >>> found = importance_estimate([1.0, 2.0, 6.0])
    >>> float(found.estimate), round(float(found.standard_error), 4)
    (3.0, 1.5275)
    >>> importance_estimate([1.0, 2.0, 6.0], [0.5, 0.25, 0.25]).n_effective.round(2)
    np.float64(2.67)
    """
    values = as_real(values, "values")
    if values.ndim == 0 or len(values) == 0:
        raise ValueError(
            f"values must have draws along its first axis, got the shape "
            f"{values.shape}."
        )
    if not np.isfinite(values).all():
        raise ValueError("values has infinite values.")
    weights = np.broadcast_to(member_weights(weights, values.shape), values.shape)
    estimate = np.sum(weights * values, axis=0)
    terms = weights * (values - estimate)
    if groups is not None:
        terms, weights = _sums(groups, terms), _sums(groups, weights)
    n_draws = len(terms)
    if n_draws > 1:
        error = np.sqrt(n_draws / (n_draws - 1) * np.sum(terms**2, axis=0))
    else:
        error = np.full(estimate.shape, np.inf)
    half = ndtri(0.5 + confidence_level / 2) * error
    low, high = estimate - half, estimate + half
    if values.min() >= 0:
        low = np.maximum(low, 0.0)
    return Bunch(
        estimate=estimate,
        standard_error=error,
        interval=np.stack([low, high], axis=-1),
        n_effective=1.0 / np.sum(weights**2, axis=0),
    )


def _sums(groups, values):
    """Return the sums of values (n_draws, ...) over the draws of each group."""
    groups = np.asarray(groups)
    if groups.shape != values.shape[:1]:
        raise ValueError(
            f"groups must have the shape {values.shape[:1]}, one group for each draw, "
            f"got {groups.shape}."
        )
    return np.stack([values[groups == g].sum(axis=0) for g in np.unique(groups)])


def _log_proba(log_proba, name="log_proba"):
    """Return finite log-probabilities over the last axis, and probabilities."""
    log_proba = as_real(log_proba, name)
    if log_proba.ndim == 0 or log_proba.shape[-1] == 0:
        raise ValueError(
            f"{name} must have classes along its last axis, got the shape "
            f"{log_proba.shape}."
        )
    if np.isposinf(log_proba).any():
        raise ValueError(f"{name} has infinite values: give log-probabilities.")
    log_proba, proba = normalized(log_proba, name)
    if proba.all():  # none is -inf
        return log_proba, proba
    return np.where(np.isneginf(log_proba), _LOG_TINY, log_proba), proba


def entropy(log_proba):
    r"""Return the entropy of categorical distributions, in nats.

    .. math:: H[p] = -\sum_k p_k \log p_k, \qquad 0 \log 0 = 0.

    Read more in the :ref:`User Guide <epistemic>`.

    Parameters
    ----------
    log_proba : array-like of shape (..., n_classes)
        Log-probabilities; ``-inf`` is the logarithm of 0.

    Returns
    -------
    entropy : ndarray of shape (...), dtype float64
        From 0 to ``log(n_classes)``.

    Raises
    ------
    ValueError
        If the probabilities do not sum to one.

    See Also
    --------
    member_uncertainty : Total, aleatoric and epistemic uncertainty.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.epistemic import entropy
    >>> entropy(np.log([[0.5, 0.5], [0.25, 0.75]])).round(4)
    array([0.6931, 0.5623])
    """
    return _entropy(*_log_proba(log_proba))


def _entropy(log_p, p):
    return 0.0 - np.einsum("...k,...k->...", p, log_p)


def kl_divergence(log_p, log_q):
    r"""Return the Kullback-Leibler divergence of categorical distributions, in nats.

    .. math:: KL(p \,\|\, q) = \sum_k p_k \log \frac{p_k}{q_k}.

    Read more in the :ref:`User Guide <epistemic>`.

    Parameters
    ----------
    log_p, log_q : array-like of shape (..., n_classes)
        Log-probabilities, of shapes that broadcast.

    Returns
    -------
    divergence : ndarray of shape (...), dtype float64
        At least 0, and finite: a log-probability of ``-inf`` counts as the logarithm of
        2.2e-308, finite ones are unchanged. Nearly equal distributions lose no digits.

    Raises
    ------
    ValueError
        If probabilities do not sum to one.

    See Also
    --------
    kl_divergence_gaussian : Divergence of normal distributions.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.epistemic import kl_divergence
    >>> round(float(kl_divergence(np.log([0.5, 0.5]), np.log([0.9, 0.1]))), 4)
    0.5108
    """
    log_p, p = _log_proba(log_p, "log_p")
    return _kl(log_p, p, _log_proba(log_q, "log_q")[0])


def _kl(log_p, p, log_q):
    """Return the sum of p (exp(-d) - 1 + d), d = log p - log q: no term is negative."""
    # exp(-d), where p underflows, must not overflow
    minus_d = np.minimum(log_q - log_p, np.maximum(log_q - _LOG_TINY, 0.0))
    terms = np.expm1(minus_d)
    terms -= minus_d
    return np.einsum("...k,...k->...", np.maximum(p, _TINY), terms)


def feasibility(excess_loss, gamma, temperature):
    """Return factors of models, 1 for an excess loss of at most gamma."""
    excess = np.maximum(excess_loss - gamma, 0.0)
    if temperature is None:
        return (excess == 0).astype(np.float64)
    return np.exp(-excess / temperature)


@validate_params(
    {
        "gamma": [Interval(Real, 0, None, closed="left")],
        "temperature": [Interval(Real, 0, None, closed="right"), None],
    },
    prefer_skip_nested_validation=True,
)
def feasible_divergence(divergence, excess_loss, *, gamma=0.0, temperature=None):
    r"""Return the largest divergence of models that explain the training data.

    With the divergence :math:`D_{mt}` of model m of the search t, and the excess
    :math:`x_{mt}` of its training loss over the least attainable loss,

    .. math:: \frac1K \sum_{t=1}^K \max_m D_{mt}
       \exp\bigl(-\max(x_{mt} - \gamma, 0) / T\bigr).

    Read more in the :ref:`User Guide <quam_settings>`.

    Parameters
    ----------
    divergence : array-like of shape (n_models, n_targets, ...)
        Divergences, at least 0, such as :math:`KL(p \,\|\, p_m)`.

    excess_loss : array-like of shape (n_models, n_targets, ...)
        Training losses of the models, minus the least attainable loss.

    gamma : float, default=0.0
        Tolerance of the excess loss.

    temperature : float, default=None
        Temperature T. None: models beyond the tolerance do not count.

    Returns
    -------
    divergence : ndarray of shape (...), dtype float64
        At least 0.

    See Also
    --------
    QUAM : Search for the models.

    Examples
    --------
    Two models of a search; the second has a larger training loss:

    >>> from skood.epistemic import feasible_divergence
    >>> feasible_divergence([[[0.2]], [[3.0]]], [[[0.0]], [[0.4]]], gamma=0.1)
    array([0.2])
    """
    divergence = as_real(divergence, "divergence")
    excess_loss = as_real(excess_loss, "excess_loss")
    if divergence.shape != excess_loss.shape or divergence.ndim < 2:
        raise ValueError(
            "divergence and excess_loss must have the same shape (n_models, n_targets, "
            f"...), got {divergence.shape} and {excess_loss.shape}."
        )
    discount = feasibility(excess_loss, gamma, temperature)
    return np.max(divergence * discount, axis=0).mean(axis=0)


@validate_params(
    {"setting": [StrOptions({"a", "b"})], "return_error": ["boolean"]},
    prefer_skip_nested_validation=True,
)
def member_uncertainty(
    log_proba,
    *,
    weights=None,
    reference=None,
    setting="a",
    return_error=False,
    groups=None,
):
    r"""Decompose the uncertainty of a classification by many models.

    With members' probabilities :math:`p_n` and weights :math:`\omega_n` that sum to
    one, in setting "a", where any of the models may be the one that is used,

    .. math:: \underbrace{H[\bar p]}_{\text{total}} =
       \underbrace{\sum_n \omega_n H[p_n]}_{\text{aleatoric}} +
       \underbrace{\sum_n \omega_n KL(p_n \,\|\, \bar p)}_{\text{epistemic}},
       \qquad \bar p = \sum_n \omega_n p_n,

    and in setting "b", where a given model with the probabilities p is used,

    .. math:: \underbrace{\sum_n \omega_n CE(p, p_n)}_{\text{total}} =
       \underbrace{H[p]}_{\text{aleatoric}} +
       \underbrace{\sum_n \omega_n KL(p \,\|\, p_n)}_{\text{epistemic}}

    [1]_. Read more in the :ref:`User Guide <epistemic>`.

    Parameters
    ----------
    log_proba : array-like of shape (n_members, n_samples, n_classes)
        Log-probabilities of the members.

    weights : array-like of shape (n_members,) or (n_members, n_samples), default=None
        Weights of the members, for each sample or for all. None: equal weights.

    reference : array-like of shape (n_samples, n_classes), default=None
        Log-probabilities of the given model, needed in setting "b".

    setting : {"a", "b"}, default="a"
        Whether it is uncertain which model will be used ("a"), or how far a given one
        can be trusted ("b").

    return_error : bool, default=False
        Whether to return the standard error of the epistemic part, too.

    groups : array-like of shape (n_members,), default=None
        Members of the same group are not independent, see `importance_estimate`.

    Returns
    -------
    uncertainty : Bunch
        ``total``, ``aleatoric`` and ``epistemic``, each an ndarray of shape
        (n_samples,), at least 0, in nats; the first is the sum of the others.
        With `return_error` also ``epistemic_error``, its standard error,
        ``epistemic_interval`` of shape (n_samples, 2), which covers 95 % for many
        independent members, and ``n_effective``, the effective number of members.

    Raises
    ------
    ValueError
        If the probabilities or the weights do not sum to one, the shapes do not match,
        or the reference is missing.

    See Also
    --------
    gaussian_uncertainty : Decomposition for regression.
    importance_estimate : Standard error of a weighted mean.

    References
    ----------
    .. [1] K. Schweighofer, L. Aichberger, M. Ielanskyi, G. Klambauer, S. Hochreiter.
       Quantification of uncertainty with adversarial models. NeurIPS 2023.

    Examples
    --------
    Two models that are confident in different classes:

    >>> import numpy as np
    >>> from skood.epistemic import member_uncertainty
    >>> log_proba = np.log([[[0.99, 0.01]], [[0.01, 0.99]]])
    >>> found = member_uncertainty(log_proba)
    >>> found.total.round(3), found.epistemic.round(3)
    (array([0.693]), array([0.637]))
    >>> found = member_uncertainty(log_proba, reference=log_proba[0], setting="b")
    >>> found.aleatoric.round(3), found.epistemic.round(3)
    (array([0.056]), array([2.252]))
    """
    log_proba = as_real(log_proba, "log_proba")
    if log_proba.ndim != 3 or log_proba.shape[0] == 0 or log_proba.shape[2] == 0:
        _log_proba(log_proba)  # raises if there are no classes, or no probabilities
        raise ValueError(
            "log_proba must have the shape (n_members, n_samples, n_classes), got "
            f"{log_proba.shape}."
        )
    n_members, n_samples, n_classes = log_proba.shape
    weights = member_weights(weights, (n_members, n_samples))
    if setting == "b":
        if reference is None:
            raise ValueError(
                "setting='b' is about a given model: pass its log-probabilities as "
                "reference, or use setting='a'."
            )
        log_reference, p_reference = _log_proba(reference, "reference")
        if log_reference.shape != log_proba.shape[1:]:
            raise ValueError(
                f"reference must have the shape {log_proba.shape[1:]} of a member's "
                f"log-probabilities, got {log_reference.shape}."
            )
        aleatoric = _entropy(log_reference, p_reference)
    n_bytes = 8 * n_members * n_classes
    entropy_of = np.empty((n_members, n_samples))
    divergence = np.empty((n_members, n_samples))
    of_member = np.broadcast_to(weights, divergence.shape)
    for block in row_chunks(n_samples, n_bytes, _CHUNK_BYTES):
        log_p, p = _log_proba(log_proba[:, block])
        if setting == "b":
            of_block = log_reference[block], p_reference[block]
            divergence[:, block] = _kl(*of_block, log_p)
            continue
        mixture = np.einsum("mn,mnk->nk", of_member[:, block], p)
        entropy_of[:, block] = _entropy(log_p, p)
        # the derivative of the sum with respect to the mixture is 0, so that the
        # divergences are the influences of the members in this setting, too
        divergence[:, block] = _kl(log_p, p, np.log(np.maximum(mixture, _TINY)))
    if setting == "a":
        aleatoric = np.sum(weights * entropy_of, axis=0)
    epistemic = np.sum(weights * divergence, axis=0)
    total = aleatoric + epistemic
    result = Bunch(total=total, aleatoric=aleatoric, epistemic=epistemic)
    if return_error:
        result.update(_error(epistemic, divergence, weights, groups))
    return result


def _error(epistemic, influence, weights, groups):
    """Return the standard error of the epistemic part from the members' influences."""
    estimate = importance_estimate(
        influence, np.broadcast_to(weights, influence.shape), groups=groups
    )
    # the influences may have another mean than the epistemic part
    shift = (epistemic - estimate.estimate)[:, None]
    return {
        "epistemic_error": estimate.standard_error,
        "epistemic_interval": np.maximum(estimate.interval + shift, 0.0),
        "n_effective": estimate.n_effective,
    }


def _moments(mean, variance, name):
    """Return means and positive variances of the same shape."""
    mean = as_real(mean, f"the mean of {name}")
    variance = as_real(variance, f"the variance of {name}")
    if not np.isfinite(mean).all():
        raise ValueError(f"The mean of {name} has infinite values.")
    if not np.isfinite(variance).all() or (variance <= 0).any():
        raise ValueError(
            f"The variance of {name} must be positive and finite, got values from "
            f"{float(variance.min()):.3g} to {float(variance.max()):.3g}."
        )
    return mean, variance


def kl_divergence_gaussian(mean_p, variance_p, mean_q, variance_q):
    r"""Return the Kullback-Leibler divergence of normal distributions, in nats.

    .. math:: KL(p \,\|\, q) = \frac12 \Bigl(\frac{(\mu_p - \mu_q)^2}{\sigma_q^2}
       + \frac{\sigma_p^2}{\sigma_q^2} - 1 - \log \frac{\sigma_p^2}{\sigma_q^2}\Bigr).

    Read more in the :ref:`User Guide <epistemic>`.

    Parameters
    ----------
    mean_p, variance_p, mean_q, variance_q : array-like of shape (...)
        Means and variances, of shapes that broadcast.

    Returns
    -------
    divergence : ndarray of shape (...), dtype float64
        At least 0.

    Raises
    ------
    ValueError
        If a variance is not positive.

    See Also
    --------
    kl_divergence : Divergence of categorical distributions.

    Examples
    --------
    >>> from skood.epistemic import kl_divergence_gaussian
    >>> float(kl_divergence_gaussian(1.0, 1.0, 0.0, 1.0))
    0.5
    """
    mean_p, variance_p = _moments(mean_p, variance_p, "p")
    mean_q, variance_q = _moments(mean_q, variance_q, "q")
    log_ratio = np.log(variance_p) - np.log(variance_q)
    distance = (mean_p - mean_q) ** 2 / variance_q
    return 0.5 * (distance + np.maximum(np.expm1(log_ratio) - log_ratio, 0.0))


@validate_params(
    {"setting": [StrOptions({"a", "b"})], "return_error": ["boolean"]},
    prefer_skip_nested_validation=True,
)
def gaussian_uncertainty(
    mean,
    variance,
    *,
    weights=None,
    reference=None,
    setting="a",
    return_error=False,
    groups=None,
):
    r"""Decompose the uncertainty of a regression by many models with Gaussian heads.

    The entropy of a normal distribution is :math:`\frac12 \log(2 \pi e \sigma^2)`. In
    setting "b", with the given model :math:`N(\mu, \sigma^2)`,

    .. math:: \underbrace{\tfrac12 \log(2 \pi e \sigma^2)}_{\text{aleatoric}}, \qquad
       \underbrace{\sum_n \omega_n KL\bigl(N(\mu, \sigma^2) \,\|\,
       N(\mu_n, \sigma_n^2)\bigr)}_{\text{epistemic}}.

    In setting "a" the mixture, whose entropy has no closed form, is replaced by another
    member drawn with the same weights: the epistemic part is :math:`\sum_{n, k}
    \omega_n \omega_k KL(N_n \,\|\, N_k)` [1]_. Read more in the :ref:`User Guide
    <epistemic>`.

    Parameters
    ----------
    mean : array-like of shape (n_members, n_samples)
        Means of the members.

    variance : float or array-like of shape (n_members, n_samples)
        Variances of the members. A single number: the variance of the residuals on
        held-out samples, for networks that predict a mean only.

    weights : array-like of shape (n_members,) or (n_members, n_samples), default=None
        Weights of the members. None: equal weights.

    reference : tuple of (mean, variance), default=None
        Prediction of the given model, each of shape (n_samples,) (the variance may be
        one number), needed in setting "b".

    setting : {"a", "b"}, default="a"
        See `member_uncertainty`.

    return_error : bool, default=False
        Whether to return the standard error of the epistemic part, too.

    groups : array-like of shape (n_members,), default=None
        Members of the same group are not independent, see `importance_estimate`.

    Returns
    -------
    uncertainty : Bunch
        ``total``, ``aleatoric`` and ``epistemic``, each of shape (n_samples,), in nats;
        the first is the sum of the others. Entropies of densities can be negative; the
        epistemic part cannot.
        With `return_error` also the fields of `member_uncertainty`.

    Raises
    ------
    ValueError
        If shapes do not match, variances are not positive, the reference is missing, or
        a divergence overflows.

    See Also
    --------
    member_uncertainty : Decomposition for classification.

    References
    ----------
    .. [1] K. Schweighofer, L. Aichberger, M. Ielanskyi, S. Hochreiter. Introducing an
       improved information-theoretic measure of predictive uncertainty. 2023.

    Examples
    --------
    >>> from skood.epistemic import gaussian_uncertainty
    >>> found = gaussian_uncertainty([[0.0, 0.0], [0.0, 2.0]], 1.0)
    >>> found.epistemic
    array([0., 1.])
    """
    mean, variance = _moments(mean, variance, "the members")
    if mean.ndim != 2 or mean.shape[0] == 0 or variance.shape not in ((), mean.shape):
        raise ValueError(
            "mean must have the shape (n_members, n_samples), and variance the same or "
            f"be a number, got {mean.shape} and {variance.shape}."
        )
    variance = np.broadcast_to(variance, mean.shape)
    weights = member_weights(weights, mean.shape)
    if setting == "a":
        entropies = 0.5 * np.log(2 * np.pi * np.e * variance)
        aleatoric = np.sum(weights * entropies, axis=0)
        # sum over pairs of members, one member at a time: linear memory
        from_n, to_n = np.zeros(mean.shape), np.zeros(mean.shape)
        for n in range(len(mean)):
            divergence = kl_divergence_gaussian(mean[n], variance[n], mean, variance)
            from_n[n] = np.sum(weights * divergence, axis=0)
            to_n += weights[n] * divergence
        epistemic = np.sum(weights * from_n, axis=0)
        divergence = from_n + to_n  # influence of a member of a sum over pairs
    else:
        if reference is None:
            raise ValueError(
                "setting='b' is about a given model: pass its (mean, variance) as "
                "reference, or use setting='a'."
            )
        if not isinstance(reference, (tuple, list)) or len(reference) != 2:
            raise ValueError(
                "reference must be a tuple (mean, variance) of the given model, got "
                f"{type(reference).__name__}."
            )
        reference_mean, reference_variance = reference
        mu, sigma2 = _moments(reference_mean, reference_variance, "the reference")
        if mu.shape != mean.shape[1:] or sigma2.shape not in ((), mu.shape):
            raise ValueError(
                f"reference must be a mean of shape {mean.shape[1:]} and a variance of "
                f"the same shape or a number, got {mu.shape} and {sigma2.shape}."
            )
        aleatoric = 0.5 * np.log(2 * np.pi * np.e * np.broadcast_to(sigma2, mu.shape))
        divergence = kl_divergence_gaussian(mu, sigma2, mean, variance)
        epistemic = np.sum(weights * divergence, axis=0)
    total = aleatoric + epistemic
    check_no_overflow(total, "A divergence of members")
    result = Bunch(total=total, aleatoric=aleatoric, epistemic=epistemic)
    if return_error:
        result.update(_error(epistemic, divergence, weights, groups))
    return result
