"""OOD detector with a Markov logic network over predicted concepts, and its fusion.

The penalty D(x) is minus the sum of the weights of the constraints that hold, and p(x)
the fraction of ID samples to which a detector gives as high an outlier score.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from skood.logic._concept_detector import ConceptDetector
from skood.logic._concepts import ConceptSource
from skood.logic._weighted_constraints import WeightedConstraints, user_weights
from skood.metrics import auroc
from skood.stats._survival import NORMALIZERS
from skood.utils._atomic_fit import kept_state
from skood.utils._estimator import SkoodEstimator
from skood.utils._folds import calibration_folds, check_same
from skood.utils._metaestimators import take_rows
from skood.utils._param_validation import HasMethods, Interval, StrOptions

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


# The concept that is added by `id_estimator`, and its constraint.
_IS_ID = "is_id"


class MLNDetector(ConceptDetector):
    r"""OOD detector with a Markov logic network over predicted concepts.

    Classifiers predict the concepts :math:`z(x)` of a sample, such as its class, its
    color and its shape. A Markov logic network [1]_ evaluates constraints
    :math:`\varphi_i` with weights :math:`w_i` that are fitted to in-distribution (ID)
    samples, and penalizes improbable combinations:

    .. math:: D(x) = -\sum_i w_i \varphi_i(z(x)).

    A detector covers deviations that the concepts do not describe: a
    :class:`ConceptFusion` combines its outlier score with the penalty.

    Read more in the :ref:`User Guide <logic>`.

    Parameters
    ----------
    constraints : list or dict of (str or Formula), or WeightedConstraints
        The constraints, with names if it is a dict; see `parse_constraint`. ``[]``
        requires a `detector`. :class:`WeightedConstraints` have given weights, or
        another prior on the weights to be fitted.

    concepts : list of (str or tuple of str, object)
        Names of concepts and their classifiers. A classifier with several outputs has a
        tuple of names. Classifiers are cloned and fitted on the columns of `y`, unless
        wrapped in a :class:`~sklearn.frozen.FrozenEstimator`. A classifier that uses
        all columns of `X` may predict its concept from the columns of another concept,
        so that no constraint is violated: restrict each classifier to its own columns,
        as a Pipeline that begins with a :class:`~sklearn.compose.ColumnTransformer`.
        ``set_params(color__C=2)`` sets a parameter of one classifier; the names of
        several concepts are joined by "_".

    detector : object, "confidence" or None, default=None
        An OOD detector, used as given: a detector with ``estimator=None`` takes `X`. It
        is fitted on the ID samples and the labels of the first concept, unless frozen.
        "confidence": the mean over concepts of the largest probability. None: only the
        logic is used.

    fusion : {"log", "product", "shifted_product"} or ConceptFusion, default="log"
        Rule that fuses penalty and survival. A :class:`ConceptFusion` also has the
        weight :math:`\gamma` of the penalty, and the distribution of outlier scores.
        "product" raises an error if the penalty of some world is positive.

    calibration : float or "same", default=0.2
        Fraction of the ID samples to hold out: weights, the survival function and the
        threshold are fitted on them, classifiers and the detector on the others.
        "same": all samples are used for calibration; all classifiers and detectors must
        be frozen, and fitted on *other* samples.

    marginalize : bool, default=False
        Whether the truth of a constraint is its expectation over the probabilities of
        the classifiers instead of its truth for the predicted values. Weights are
        fitted to predicted values.

    id_estimator : object or "clone", default=None
        A classifier of ID against OOD samples, to learn from the OOD samples in `y`. It
        is fitted on labels False (OOD) and True (ID), and the constraint "is_id", which
        holds if it predicts ID, is added. Constraints may contain the concept
        ``is_id``. "clone": a clone of the classifier of the first concept. None: OOD
        samples are not used.

    domains : dict of str to list, default=None
        Values of concepts, in addition to the values in the labels and classifiers, and
        in this order; "bool" is short for ``[False, True]``.

    contamination : float, default=0.05
        Fraction of the held-out ID samples to reject.

    ood_label : int or str, default=-1
        A sample with this label in any column of `y` is OOD, and excluded from all ID
        statistics.

    n_jobs : int, default=None
        Number of classifiers to fit in parallel. :class:`joblib.parallel_config` sets
        the backend, and reports the progress with ``verbose=10``.

    random_state : int, RandomState instance or None, default=None
        Draws the held-out samples, and seeds the classifiers and detectors with
        `random_state` None.

    Attributes
    ----------
    knowledge_base_ : KnowledgeBase
        The constraints over the concepts' values.

    constraints_ : list of str
        The constraints as strings.

    weights_ : ndarray of shape (n_constraints,)
        Weights of the constraints.

    concepts_ : list of str
        Names of the concepts.

    named_concepts_ : Bunch
        The fitted classifiers by name.

    id_estimator_ : object
        The fitted classifier of ID against OOD samples; None without `id_estimator`.

    detector_ : object
        The fitted detector, "confidence" or None.

    normalizer_ : object
        The fitted survival function; None without a detector.

    n_calibration_ : int
        Number of ID samples used to fit weights, survival function and threshold.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of these samples is
        below it, see :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes of the first concept, without `ood_label`.

    See Also
    --------
    LogicDetector : Rejects samples that violate any constraint.
    WeightedConstraints : Constraints with given weights, or another prior.
    ConceptFusion : Weight of the penalty, and distribution of the detector's scores.
    ConstraintSearch : Searches for constraints.
    ConstraintContributionDisplay : Plots contributions of violated constraints.

    Notes
    -----
    With the constraints ``[]`` the detector reduces to `detector` with normalized
    scores.

    A frozen network that a concept shares with the detector is run once per call of a
    method.

    References
    ----------
    .. [1] K. Kirchheim, F. Ortmeier. Improving out-of-distribution detection with
       Markov logic networks. ICML 2025.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.logic import MLNDetector
    >>> rng = np.random.default_rng(0)
    >>> signs = np.array([["stop", "red"], ["other", "red"], ["other", "blue"]])
    >>> y = signs[rng.integers(3, size=600)]
    >>> X = np.where(y == ["stop", "red"], 3.0, -3.0) + rng.normal(size=y.shape)
    >>> detector = MLNDetector(
    ...     ["class = stop -> color = red"],
    ...     [("class", LogisticRegression()), ("color", LogisticRegression())],
    ...     random_state=0,
    ... ).fit(X, y)
    >>> detector.weights_.round(1)
    array([5.1])
    >>> detector.explain([[3.0, -3.0]])[0].sentence
    'stop, but not red (blue): +5.1'
    """

    _default_parts: dict = {"fusion": ConceptFusion}

    _parameter_constraints: dict = {
        **ConceptDetector._parameter_constraints,
        "constraints": [list, tuple, dict, WeightedConstraints],
        "fusion": [StrOptions(set(RULES)), ConceptFusion],
        "marginalize": ["boolean"],
        "id_estimator": [HasMethods(["fit", "predict"]), StrOptions({"clone"}), None],
    }

    # Whether constraints and a detector may be missing, at the start of a search.
    _may_score_nothing = False

    def __init__(
        self,
        constraints,
        concepts,
        detector=None,
        *,
        fusion="log",
        calibration=0.2,
        marginalize=False,
        id_estimator=None,
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
        self.fusion = fusion
        self.marginalize = marginalize
        self.id_estimator = id_estimator

    @property
    def _logic(self):
        """Return the constraints with their weights and prior."""
        if isinstance(self.constraints, WeightedConstraints):
            return self.constraints
        return WeightedConstraints(self.constraints)

    @property
    def _fusion(self):
        return self._as_part("fusion", self.fusion)

    @property
    def _normalizer(self):
        return self._fusion.normalizer

    @property
    def _is_supervised(self):
        return self.id_estimator is not None

    # -- fit

    def _set_knowledge_base(self, domains):
        self._logic._validate_params()
        self._fusion._validate_params()
        if self._is_supervised:
            if _IS_ID in domains:
                raise ValueError(
                    f"id_estimator adds the concept {_IS_ID!r}, and one of concepts "
                    "has this name. Rename it."
                )
            domains = {**domains, _IS_ID: [False, True]}
        super()._set_knowledge_base(domains)
        is_empty = len(self.knowledge_base_) == 0 and self.detector is None
        if is_empty and not self._may_score_nothing:
            raise ValueError(
                "constraints=[] and detector=None leave nothing to score samples by. "
                "Give constraints, or a detector."
            )
        # before a long fit: raises for unknown constraints
        self._fixed = self._user_weights(self._logic.weights)

    def _all_constraints(self):
        constraints = self._logic.constraints
        if not self._is_supervised:
            return constraints
        if _IS_ID in map(str, constraints):
            raise ValueError(
                f"id_estimator adds the constraint {_IS_ID!r}, and one of "
                "constraints has this name. Rename it, or leave it out."
            )
        if isinstance(constraints, dict):
            return {**constraints, _IS_ID: _IS_ID}
        return [*constraints, _IS_ID]

    def _user_weights(self, weights):
        kb = self.knowledge_base_
        return user_weights(kb, weights, len(kb) - self._is_supervised)

    def _jobs(self, sources, X, columns, train, ood_indices):
        jobs = super()._jobs(sources, X, columns, train, ood_indices)
        if self._is_supervised and not isinstance(self.id_estimator, FrozenEstimator):
            jobs.append(self._id_job(sources, X, train, ood_indices))
        return jobs

    def _id_job(self, sources, X, train, ood_indices):
        """Return the job that fits the classifier of ID samples."""
        estimator = self.id_estimator
        if isinstance(estimator, str):  # "clone"
            first = sources[0]
            if isinstance(first.classifier, FrozenEstimator) or len(first.concepts) > 1:
                kind = "has several outputs" if len(first.concepts) > 1 else "is frozen"
                raise ValueError(
                    "id_estimator='clone' needs a classifier to clone: the one of the "
                    f"first concept, {first.name!r}, {kind}. Give a classifier of ID "
                    "against OOD samples."
                )
            estimator = first.classifier
        if len(ood_indices) == 0:
            raise ValueError(
                "id_estimator learns from OOD samples, and no sample of y has "
                f"ood_label={self.ood_label!r}. Add some, or pass id_estimator=None."
            )
        indices = np.sort(np.concatenate([train, ood_indices]))
        return (
            "id_estimator",
            estimator,
            take_rows(X, indices),
            ~np.isin(indices, ood_indices),
        )

    def _check_same(self, sources):
        super()._check_same(sources)
        if self.calibration == "same" and self._is_supervised:
            check_same(["id_estimator"], [self.id_estimator])

    def _store_rest(self, fitted):
        self.id_estimator_ = None
        if not self._is_supervised:
            return
        self.id_estimator_ = fitted[0] if fitted else self.id_estimator
        classes = getattr(self.id_estimator_, "classes_", [False, True])
        if list(classes) != [False, True]:
            raise ValueError(
                "id_estimator must have the classes False (or 0) for OOD and True (or "
                f"1) for ID samples, got the frozen classes {list(classes)}."
            )
        self._readers.append(
            ConceptSource(_IS_ID, (_IS_ID,), self.id_estimator_, is_input=False)
        )

    def _calibrate(self, outputs):
        kb = self.knowledge_base_
        self.weights_ = self._fixed
        if np.isnan(self._fixed).any():
            self.weights_ = kb.fit_weights(
                outputs.codes, self._logic.prior, fixed=self._fixed
            )
        self._set_max_penalty()
        self._calibration_truth = self._truth(outputs)
        self._calibration_log_sf = self._log_sf(outputs)
        return self._calibration_scores()

    def _set_max_penalty(self):
        # needed by products only; not available for very large knowledge bases
        self._max_penalty = None
        rule = self._fusion.rule
        if rule != "log":
            self._max_penalty = self._largest_penalty()
        if rule == "product":
            check_product(self._max_penalty)

    def _largest_penalty(self):
        return float(self.knowledge_base_.max_penalty(self.weights_))

    def _calibration_scores(self):
        return -self._fused(
            self._penalty_of(self._calibration_truth), self._calibration_log_sf
        )

    def set_weights(self, weights):
        """Set weights of constraints, and recompute the threshold.

        Parameters
        ----------
        weights : array-like of shape (n_constraints,) or dict of str to float
            Weights by constraint, or by its name or string in a dict. Missing or NaN
            weights are left unchanged.

        Returns
        -------
        self : object
            The detector, with updated `weights_` and `offset_`.

        Raises
        ------
        ValueError
            If there is no such constraint.
        """
        check_is_fitted(self, "offset_")
        with kept_state(self):
            changed = self._user_weights(weights)
            self.weights_ = np.where(np.isnan(changed), self.weights_, changed)
            self._set_max_penalty()
            self._set_offset(self._calibration_scores())
        return self

    # -- scores

    @property
    def _needs_proba(self):
        return super()._needs_proba or self.marginalize

    def _truth(self, outputs):
        """Return the truth of the constraints, or its expectation."""
        if self.marginalize:
            return self.knowledge_base_.expected(outputs.proba)
        return self.knowledge_base_.truth(outputs.codes)

    def _penalty_of(self, truth):
        # summed in the same order for any number of samples
        return -np.einsum("ij,j->i", truth.astype(np.float64), self.weights_)

    def _fused(self, penalty, log_sf):
        fusion, largest = self._fusion, self._max_penalty
        if largest is None:  # "log" at the time of the fit
            largest = 0.0 if fusion.rule == "log" else self._largest_penalty()
        return fusion.fuse(penalty, log_sf, largest)

    def _score(self, X):
        outputs = self._read(X)
        return -self._fused(
            self._penalty_of(self._truth(outputs)), self._log_sf(outputs)
        )

    def penalty(self, X):
        """Return the penalty of each sample by the constraints.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        Returns
        -------
        penalty : ndarray of shape (n_samples,), dtype float64
            Minus the sum of the weights of the constraints that hold: high = OOD.
        """
        check_is_fitted(self, "offset_")
        return self._penalty_of(self._truth(self._read(X)))

    def _held_out(self, X, indices):
        """Return the outputs for the samples held out in the fit, of ID samples."""
        ((_, held_out),) = calibration_folds(
            len(indices), None, self.calibration, self.random_state
        )
        return self._read(take_rows(X, indices[held_out]))

    def _set_constraints(self, logic, outputs):
        """Set the constraints of the fitted detector, and fit their weights."""
        self.set_params(constraints=logic)
        domains = self.knowledge_base_.domains
        self._set_knowledge_base({name: domains[name] for name in self.concepts_})
        self._set_offset(self._calibrate(outputs))

    def _aurocs(self, outputs, is_ood):
        """Return the AUROC of the scores, and of the detector's without logic."""
        labels = np.where(is_ood, -1, 0)
        penalty = self._penalty_of(self._truth(outputs))
        fused = auroc(labels, -self._fused(penalty, self._log_sf(outputs)))
        if outputs.outlier is None:
            return fused, 0.5
        return fused, auroc(labels, -outputs.outlier)

    def _explained(self, outputs):
        soft = self._truth(outputs)
        hard = self.knowledge_base_.truth(outputs.codes)
        penalty, log_sf = self._penalty_of(soft), self._log_sf(outputs)
        counts = self._fusion.gamma if self._fusion.rule == "log" else 1.0
        return (
            self._fused(penalty, log_sf),
            penalty,
            counts * _contributions(soft, self.weights_),
            _contributions(hard, self.weights_),
            -log_sf,
        )


def _contributions(truth, weights):
    """Return the contribution of each constraint to the penalty."""
    truth = np.clip(truth.astype(np.float64), 0.0, 1.0)  # an expectation is rounded
    return np.maximum(weights, 0.0) * (1.0 - truth) + np.maximum(-weights, 0.0) * truth
