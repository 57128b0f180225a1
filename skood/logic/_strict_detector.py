"""OOD detector that rejects every sample that violates a constraint."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.logic._concept_detector import ConceptDetector
from skood.stats._survival import NORMALIZERS
from skood.utils._param_validation import StrOptions


class LogicDetector(ConceptDetector):
    r"""OOD detector that rejects every sample that violates a constraint.

    Classifiers predict the concepts :math:`z(x)` of a sample, and its score is

    .. math:: s(x) = c(x) \prod_i \varphi_i(z(x)),

    where :math:`\varphi_i` is 1 if the constraint i holds, else 0, and :math:`c(x)` in
    (0, 1] is the confidence of a detector [1]_, or 1 without a detector. All samples
    that violate a constraint therefore have the same score, 0, and constraints that
    in-distribution (ID) samples sometimes violate, or whose concepts are predicted
    wrongly, cost as much as constraints that ID samples never violate; `MLNDetector`
    weights the constraints.

    Read more in the :ref:`User Guide <logic>`.

    Parameters
    ----------
    constraints : list of (str or Formula), or dict of str to (str or Formula)
        The constraints, with names if it is a dict; see `parse_constraint`.

    concepts : list of (str or tuple of str, object)
        Names of concepts and their classifiers, as in `MLNDetector`.

    detector : object, "confidence" or None, default=None
        "confidence": c is the mean over concepts of the largest probability. An OOD
        detector, as in `MLNDetector`: c is the survival probability of its outlier
        score under the scores of held-out ID samples. None: c is 1.

    normalizer : str, default="genextreme"
        The distribution of outlier scores, as in :class:`ConceptFusion`; not used with
        "confidence".

    calibration : float or "same", default=0.2
        Fraction of the ID samples to hold out for the survival function and the
        threshold; "same": all samples, and everything must be frozen.

    domains : dict of str to list, default=None
        Values of concepts, as in `MLNDetector`.

    contamination : float, default=0.05
        Fraction of the held-out ID samples to reject. Without a detector there are two
        scores only: if more than this fraction violates a constraint, nothing is
        rejected.

    ood_label : int or str, default=-1
        A sample with this label in any column of `y` is OOD, and excluded.

    n_jobs : int, default=None
        Number of classifiers to fit in parallel, as in `MLNDetector`.

    random_state : int, RandomState instance or None, default=None
        Draws the held-out samples, and seeds the classifiers and detectors with
        `random_state` None.

    Attributes
    ----------
    knowledge_base_ : KnowledgeBase
        The constraints over the concepts' values.

    constraints_ : list of str
        The constraints as strings.

    concepts_ : list of str
        Names of the concepts.

    named_concepts_ : Bunch
        The fitted classifiers by name.

    detector_ : object
        The fitted detector, "confidence" or None.

    normalizer_ : object
        The fitted survival function, or None.

    n_calibration_ : int
        Number of ID samples used to fit survival function and threshold.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of these samples is
        below it, see :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes of the first concept, without `ood_label`.

    See Also
    --------
    MLNDetector : Weights constraints by how often ID samples violate them.

    References
    ----------
    .. [1] K. Kirchheim, T. Gonschorek, F. Ortmeier. Out-of-distribution detection with
       logical reasoning. WACV 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.logic import LogicDetector
    >>> rng = np.random.default_rng(0)
    >>> signs = np.array([["stop", "red"], ["other", "red"], ["other", "blue"]])
    >>> y = signs[rng.integers(3, size=600)]
    >>> X = np.where(y == ["stop", "red"], 3.0, -3.0) + rng.normal(size=y.shape)
    >>> detector = LogicDetector(
    ...     ["class = stop -> color = red"],
    ...     [("class", LogisticRegression()), ("color", LogisticRegression())],
    ...     random_state=0,
    ... ).fit(X, y)
    >>> detector.score_samples([[3.0, 3.0], [3.0, -3.0]])
    array([1., 0.])
    >>> detector.predict([[3.0, 3.0], [3.0, -3.0]])
    array([ 1, -1])
    """

    _is_weighted = False

    _parameter_constraints: dict = {
        **ConceptDetector._parameter_constraints,
        "normalizer": [StrOptions(set(NORMALIZERS))],
    }

    def __init__(
        self,
        constraints,
        concepts,
        detector=None,
        *,
        normalizer="genextreme",
        calibration=0.2,
        domains=None,
        contamination=0.05,
        ood_label=-1,
        n_jobs=None,
        random_state=None,
    ):
        super().__init__(
            constraints,
            concepts,
            detector,
            calibration=calibration,
            domains=domains,
            contamination=contamination,
            ood_label=ood_label,
            n_jobs=n_jobs,
            random_state=random_state,
        )
        self.normalizer = normalizer

    @property
    def _normalizer(self):
        return self.normalizer

    def _fit_normalizer(self, outlier):
        # confidence is already in (0, 1]
        super()._fit_normalizer(None if isinstance(self.detector, str) else outlier)

    def _calibrate(self, outputs):
        return self._scores(outputs)

    def _log_confidence(self, outputs):
        """Return the logarithm of c."""
        if isinstance(self.detector_, str):
            return np.log(-outputs.outlier)
        return self._log_sf(outputs)

    def _scores(self, outputs):
        satisfied = self.knowledge_base_.truth(outputs.codes).all(axis=1)
        confidence = np.exp(np.minimum(self._log_confidence(outputs), 700.0))
        return np.where(satisfied, confidence, 0.0)

    def _score(self, X):
        return self._scores(self._read(X))

    def _explained(self, outputs):
        broken = 1.0 - self.knowledge_base_.truth(outputs.codes)
        return (
            -self._scores(outputs),
            (broken.sum(axis=1) > 0).astype(np.float64),
            broken,
            broken,
            -self._log_confidence(outputs),
        )
