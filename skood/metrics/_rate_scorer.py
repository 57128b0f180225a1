"""Scorers of rates of decisions."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings
from numbers import Real

import numpy as np
from sklearn.exceptions import UndefinedMetricWarning

from skood.metrics._base_scorers import (
    ScoredFold,
    WeightedScorer,
    check_kind,
    check_scored_loss,
)
from skood.utils._labels import is_nan, ood_mask
from skood.utils._metaestimators import (
    estimator_kind,
    labels_before_rejection,
    unwrap,
)
from skood.utils._param_validation import Number, validate_params
from skood.utils._stored import stored

_RATES = "tpr", "coverage", "precision", "neg_fpr", "neg_risk", "neg_error_rate"


@stored
class _RateScorer(WeightedScorer):
    """Scorer of `make_rate_scorer`."""

    def __init__(self, rate, **options):
        self._rate = rate
        self._options = options

    def __call__(self, estimator, X, y, sample_weight=None):
        """Score a fitted estimator; greater is better."""
        rate, (loss, max_loss, prior, ood_label) = self._rate, self._options.values()
        final, X = unwrap(estimator, X)
        fold = ScoredFold(final, y, sample_weight, ood_label)
        is_ood = ood_mask(fold.y, ood_label=fold.ood_label, classes=fold.classes)
        losses = np.zeros(is_ood.shape)
        if rate in ("neg_risk", "neg_error_rate"):
            predict = labels_before_rejection(final)
            if predict is None:
                raise TypeError(
                    f"{self!r} counts the errors of a classifier in estimator_, but "
                    f"{fold.owner} has none. Use another rate."
                )
            check_kind(loss, is_nan(fold.ood_label), fold.owner)
            losses = fold.losses(predict(X), loss, max_loss, is_ood)
        N, E, F, n_id, n_ood = fold.sums(self._accepted(final, X), losses, is_ood)
        per_id = per_ood = 1.0
        if prior is not None:  # without ID or OOD samples, NaN
            per_id = (1 - prior) / (n_id or np.nan)
            per_ood = prior and prior / (n_ood or np.nan)
        accepted = per_id * N + per_ood * F
        numerator, denominator = {
            "tpr": (N, n_id),
            "neg_fpr": (-F, n_ood),
            "coverage": (accepted, per_id * n_id + per_ood * n_ood),
            "precision": (per_id * N, accepted),
            "neg_risk": (-E, N),
            "neg_error_rate": (-per_id * E - (max_loss or 1) * per_ood * F, accepted),
        }[rate]
        if denominator > 0:
            return float(numerator / denominator)
        warnings.warn(
            f"The {rate.removeprefix('neg_')} is undefined on a fold with {n_id:g} ID "
            f"and {n_ood:g} OOD samples, where {N:g} and {F:g} are accepted: {self!r} "
            "returns NaN. skood.model_selection.OODStratifiedKFold makes folds with "
            "samples of both kinds.",
            UndefinedMetricWarning,
            stacklevel=2,
        )
        return np.nan

    def _accepted(self, estimator, X):
        """Return the probability with which each sample is accepted."""
        if hasattr(estimator, "accept_proba"):
            return estimator.accept_proba(X)
        if estimator_kind(estimator) == "outlier_detector":
            return np.asarray(estimator.predict(X)) == 1
        raise TypeError(
            f"{self!r} needs an estimator that accepts samples by accept_proba, such "
            "as skood.rejection.RejectOptionClassifier, or a detector. Got "
            f"{type(estimator).__name__}."
        )

    def __repr__(self):
        loss = self._options["loss"]
        options = {**self._options, "loss": getattr(loss, "__name__", loss)}
        shown = [f"{name}={value!r}" for name, value in options.items()]
        return f"make_rate_scorer({', '.join([repr(self._rate), *shown])})"


@validate_params(
    {"ood_prior": [Number(Real, 0, 1, closed="left"), None]},
    prefer_skip_nested_validation=True,
)
def make_rate_scorer(
    rate, *, loss="zero_one", max_loss=None, ood_prior=None, ood_label=-1
):
    r"""Make a scorer of a rate of decisions: TPR, FPR, coverage, precision or errors.

    The scorer is a callable ``scorer(estimator, X, y)`` for ``scoring=``, also one of
    several; greater is better. Read more in the :ref:`User Guide <model_selection>`.

    .. versionadded:: 0.2

    Parameters
    ----------
    rate : {"tpr", "coverage", "precision", "neg_fpr", "neg_risk", "neg_error_rate"}
        The rate; ``neg_`` is for minus the rate.

    loss, ood_label
        As in :func:`make_selective_risk_scorer`; the risk and the error rate depend on
        the loss.

    max_loss : float, default=None
        The loss of an accepted OOD sample, for the error rate; larger losses are
        clipped to it. None: 1, and losses are not clipped.

    ood_prior : float, default=None
        Fraction of OOD samples at deployment, in [0, 1), for the coverage, the
        precision and the error rate. None: these are of the samples of the fold.

    Returns
    -------
    scorer : callable
        ``scorer(estimator, X, y, sample_weight=None)`` returns a float. Samples are
        accepted by the ``accept_proba`` of the estimator, or by a detector if it
        predicts 1. A rate without samples of a kind, or without accepted samples, is
        NaN, with an :class:`~sklearn.exceptions.UndefinedMetricWarning`.

    See Also
    --------
    make_selective_risk_scorer : Scores the risk within bounds.

    Notes
    -----
    With acceptance :math:`c_i \in [0, 1]`, loss :math:`\ell_i`, :math:`\pi` =
    `ood_prior` and L = `max_loss`, the coverage, the precision and the error rate are

    .. math::
        A = (1 - \pi) \mathrm{TPR} + \pi \, \mathrm{FPR}, \quad
        \frac{(1 - \pi) \mathrm{TPR}}{A}, \quad
        \frac{1}{A} \left( (1 - \pi) \frac{1}{n_I} \sum_{i \in I} c_i \ell_i +
        L \, \pi \, \mathrm{FPR} \right)

    Without a prior, :math:`\pi` is the fraction of OOD samples in the fold.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_validate
    >>> from skood.detectors import MSP
    >>> from skood.metrics import make_rate_scorer
    >>> from skood.model_selection import LeaveClassesOut
    >>> X, y = load_iris(return_X_y=True)
    >>> scoring = {name: make_rate_scorer(name) for name in ("tpr", "neg_fpr")}
    >>> msp, cv = MSP(LogisticRegression()), LeaveClassesOut(random_state=0)
    >>> scores = cross_validate(msp, X, y, scoring=scoring, cv=cv)
    >>> [round(float(scores[f"test_{name}"].mean()), 2) for name in scoring]
    [0.97, -0.69]
    """
    if rate not in _RATES:
        negated = f"neg_{rate}" in _RATES
        raise ValueError(
            f"The rate {rate!r} is lower for better decisions. Pass 'neg_{rate}'."
            if negated
            else f"rate must be one of {', '.join(map(repr, _RATES))}, got {rate!r}."
        )
    check_scored_loss(loss, max_loss)
    options = {"max_loss": max_loss, "ood_prior": ood_prior, "ood_label": ood_label}
    return _RateScorer(rate, loss=loss, **options)
