"""A score learned from the batch, symmetric in calibration and test samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import has_fit_parameter

from skood.selection._scores import n_reference, split_reference
from skood.selection._step_up import Selection
from skood.stats._conformal import Calibration, check_pair
from skood.stats._fdp import bound_of_selection
from skood.stats._ranks import check_level, step_up
from skood.utils._estimator import SkoodEstimator
from skood.utils._metaestimators import with_seeds
from skood.utils._param_validation import HasMethods, Interval, fit_context
from skood.utils._ties import loosened

# Scores are clipped here, so that differences are finite.
_LARGE = 1e300

# The mean of the features decides where the learned score is equal.
_TIE_BREAK = 1e-9


class ClassifierFusion(SkoodEstimator):
    r"""Score learned from the batch, as in AdaDetect, with a valid rate.

    A classifier separates reference samples, which are in-distribution (ID), from the
    calibration and test samples together. What it learns depends on the set of these,
    and not on which of them are calibration samples; so conformal p-values of its
    score, and the procedure of Benjamini and Hochberg on them, remain valid [1]_. The
    features are

    .. math:: \varphi_k(x) = \operatorname{arsinh}
       \frac{\mathrm{median}_k - s_k(x)}{\mathrm{IQR}_k}

    for the score of detector k, with median and interquartile range of the reference
    samples. The classifier is a logistic regression with weights :math:`w \ge 0`,
    penalty :math:`\|w\|^2 / (2 C)`, and both sides of equal total weight; the score is
    :math:`-w^\top \varphi(x)`.

    Since calibration samples dilute the OOD samples, it gains over `BestOf` only in
    large batches with many OOD samples. Read more in the
    :ref:`User Guide <selection>`.

    Parameters
    ----------
    C : float, default=1.0
        Inverse of the strength of the penalty, positive.

    classifier : object, default=None
        A classifier with ``predict_proba``, which is trained on samples in place of
        scores: ``NoveltySelector`` passes the samples, a matrix of numbers. None: the
        logistic regression of scores.

    reference : float, default=0.3
        Fraction in (0, 1) of the held-out samples that are reference samples.

    See Also
    --------
    BestOf : A choice among detectors.

    References
    ----------
    .. [1] A. Marandon, L. Lei, D. Mary, E. Roquain. Adaptive novelty detection with
       false discovery rate guarantee. Annals of Statistics 52, 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.selection import ClassifierFusion
    >>> rng = np.random.default_rng(0)
    >>> calibration, scores = rng.normal(size=(500, 3)), rng.normal(size=(500, 3))
    >>> scores[:150] -= 2
    >>> fusion = ClassifierFusion()
    >>> batch = fusion.select(scores, calibration, alpha=0.1, random_state=0)
    >>> int(batch.selected[:150].sum()), int(batch.selected[150:].sum())
    (145, 16)
    """

    _parameter_constraints: dict = {
        "C": [Interval(Real, 0, None, closed="neither")],
        "classifier": [HasMethods(["fit", "predict_proba"]), None],
        "reference": [Interval(Real, 0, 1, closed="neither")],
    }

    def __init__(self, C=1.0, *, classifier=None, reference=0.3):
        self.C = C
        self.classifier = classifier
        self.reference = reference

    @fit_context(prefer_skip_nested_validation=True)
    def select(
        self,
        scores,
        calibration_scores,
        alpha=0.1,
        *,
        names=None,
        delta=None,
        random_state=None,
    ):
        """Select the OOD samples of a batch.

        Parameters
        ----------
        scores : array-like of shape (n_samples, n_detectors)
            Scores of the batch, high = ID; with a `classifier`, the samples.

        calibration_scores : array-like of shape (n_calibration, n_detectors)
            Scores of held-out ID samples; with a `classifier`, the samples.

        alpha : float, default=0.1
            The level of the false discovery rate, in (0, 1).

        names : list of str, default=None
            Not used.

        delta : float, default=None
            If given, `Selection.fdp_bound` is an upper bound on the fraction of ID
            samples among the selected ones that holds with probability 1 - delta, see
            `fdp_bound`.

        random_state : int, RandomState instance or None, default=None
            Draws the reference samples, and seeds the classifier.

        Returns
        -------
        selection : Selection
            The selected samples.

        Raises
        ------
        TypeError, ValueError
            If an argument or parameter is invalid.
        """
        alpha = check_level(alpha)
        test, held_out = check_pair(scores, calibration_scores)
        rng = check_random_state(random_state)
        reference, calibration = split_reference(held_out, self.reference, rng)
        n, m = len(calibration), len(test)
        mixed = np.concatenate([calibration, test])
        if self.classifier is None:
            fused = fused_scores(reference, mixed, self.C)
        else:
            fused = _classified(reference, mixed, self.classifier, rng)
        counts = Calibration.of(fused[:n, None]).counts(fused[n:, None])[:, 0]
        ranks = 1 + counts
        levels = step_up(ranks, np.arange(n + 2) / (n + 1), float(m))
        selected = levels[ranks] <= loosened(alpha)
        return Selection(
            selected=selected,
            pvalues=ranks / (n + 1),
            alpha=alpha,
            n_calibration=n,
            qvalues=levels[ranks],
            pi0=1.0,
            fdp_bound=bound_of_selection(ranks[:, None], n, selected, delta),
        )

    def _n_calibration(self, n_held_out, n_detectors):
        return n_held_out - n_reference(n_held_out, self.reference)


def _balanced(n_reference, n_mixed):
    """Return labels, and weights with which both sides have half of the total."""
    n = n_reference + n_mixed
    labels = np.repeat([0, 1], [n_reference, n_mixed])
    return labels, np.where(labels, n / (2 * n_mixed), n / (2 * n_reference))


def _in_order(samples):
    """Return rows sorted by value: learning must not depend on their order."""
    return samples[np.lexsort(samples.T[::-1])]


def _features(reference, scores):
    """Return asinh((median - s) / IQR), (n_rows, n_detectors); high = OOD."""
    reference = np.clip(reference, -_LARGE, _LARGE)
    low, median, high = np.percentile(reference, [25, 50, 75], axis=0)
    spread = np.where(high > low, high - low, 1.0)
    return np.arcsinh((median - np.clip(scores, -_LARGE, _LARGE)) / spread)


def fused_scores(reference, mixed, C):
    """Return the learned scores, high = ID, of calibration and test samples.

    `reference` has shape (n_reference, n_detectors), `mixed` (n_mixed, n_detectors).
    """
    features = _features(reference, mixed)
    X = np.concatenate([_features(reference, reference), _in_order(features)])
    labels, weights = _balanced(len(reference), len(mixed))
    sign = 2.0 * labels - 1.0

    def loss(theta):
        w, intercept = theta[:-1], theta[-1]
        margin = sign * (X @ w + intercept)
        slope = -weights * sign * expit(-margin)
        value = weights @ np.logaddexp(0.0, -margin) + w @ w / (2 * C)
        return value, np.append(X.T @ slope + w / C, slope.sum())

    bounds = [(0, None)] * X.shape[1] + [(None, None)]
    start = np.zeros(X.shape[1] + 1)
    options = {"ftol": 1e-12, "gtol": 1e-8, "maxiter": 1000}
    fit = minimize(
        loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )
    return -(features @ fit.x[:-1]) - _TIE_BREAK * features.mean(axis=1)


def _classified(reference, mixed, classifier, rng):
    """Return minus the probability that samples are not reference samples."""
    labels, weights = _balanced(len(reference), len(mixed))
    (fitted,) = with_seeds([clone(classifier)], rng)
    takes_weights = has_fit_parameter(fitted, "sample_weight")
    params = {"sample_weight": weights} if takes_weights else {}
    fitted.fit(np.concatenate([reference, _in_order(mixed)]), labels, **params)
    return -np.asarray(fitted.predict_proba(mixed))[:, 1]
