"""Greedy search for constraints that improve a detector."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from functools import wraps
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skood.base import BaseDetector
from skood.logic._concepts import check_parts
from skood.logic._knowledge_base import KnowledgeBase
from skood.logic._mln_detector import MLNDetector
from skood.logic._weighted_constraints import WeightedConstraints
from skood.logic.search._candidates import constraint_candidates, truth_key
from skood.logic.search._greedy import (
    ORDERS,
    ConstraintCandidate,
    GreedySearch,
    Validation,
)
from skood.logic.search._incremental_network import Factor, SearchModel
from skood.utils._atomic_fit import fresh_fit
from skood.utils._metaestimators import copy_input_attributes, take_rows, wrapped_tags
from skood.utils._optional import import_pandas
from skood.utils._param_validation import Interval, StrOptions, fit_context
from skood.utils._torch import row_chunks
from skood.utils._warnings import warn


class SearchSplit(NamedTuple):
    """Sorted indices of the training, validation and test samples of a search."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def split_samples(id_indices, ood_indices, validation, test, rng, *, keep_ood):
    """Draw validation and test samples: fractions of the ID samples.

    OOD samples are divided in this proportion; with `keep_ood` by the same fractions.
    """
    # ID samples first, so that OOD samples do not affect their split
    parts = [_drawn(id_indices, validation, test, rng, "ID")]
    if len(ood_indices) and keep_ood:
        parts.append(_drawn(ood_indices, validation, test, rng, "OOD"))
    elif len(ood_indices):
        drawn = rng.permutation(ood_indices)
        n_validation = len(drawn) - _size(len(drawn), test / (validation + test))
        parts.append((drawn[:0], drawn[:n_validation], drawn[n_validation:]))
    return SearchSplit(
        *(np.sort(np.concatenate(indices)) for indices in zip(*parts, strict=True))
    )


def _size(n, fraction):
    """Return the size of a fraction of n samples, at least one if not zero."""
    return max(1, round(fraction * n)) if fraction > 0.0 else 0


def _drawn(indices, validation, test, rng, kind):
    n = len(indices)
    n_validation, n_test = _size(n, validation), _size(n, test)
    n_train = n - n_validation - n_test
    if n_train < 2:
        raise ValueError(
            f"validation={validation} and test={test} leave {max(n_train, 0)} {kind} "
            f"samples of n_samples={n} to fit the estimator on. Give more "
            "samples, or smaller fractions."
        )
    return np.split(rng.permutation(indices), [n_train, n_train + n_validation])


def candidates_of(kb, fixed, codes, truth):
    """Return a `ConstraintCandidate` for each constraint of `kb` that is not constant.

    `codes` are codes of calibration samples, `truth` the truth of the constraints, or
    its expectation, for kinds of validation samples.
    """
    total = np.zeros(len(kb))
    for chunk in row_chunks(len(codes), max(len(kb), 1)):
        total += kb.truth(codes[chunk]).sum(axis=0)
    truth = np.ascontiguousarray(truth.T)
    candidates = []
    for i, (scope, table) in enumerate(zip(kb.scopes, kb.tables, strict=True)):
        if table is None:
            raise ValueError(
                f"The constraint {kb.constraints[i]!r} names concepts with too "
                "many combinations of values for a search. Split it."
            )
        if truth_key(scope, table) is not None:
            factor = Factor(scope, table, float(total[i]) / len(codes), float(fixed[i]))
            candidates.append(ConstraintCandidate(kb.constraints[i], factor, truth[i]))
    return candidates


def distinct(candidates, known):
    """Return candidates not equivalent to an earlier one, or to its negation."""
    seen, new = set(), []
    for n, candidate in enumerate([*known, *candidates]):
        key = truth_key(candidate.factor.scope, candidate.factor.table)
        if n >= len(known) and key not in seen:
            new.append(candidate)
        seen.add(key)
    return new


def grown(model, start):
    """Return the fitted network with the initial constraints of a search, or raise."""
    for candidate in start:
        larger = model.extended(candidate.factor)
        if larger is None:
            raise ValueError(
                f"The constraint {candidate.text!r} connects too many concepts for an "
                "exact partition function, which a search needs. Split it, or leave it "
                "out."
            )
        model = larger.fit().settled()
    return model


def _attribute(name):
    """Return a property that is an attribute of ``estimator_``."""
    return property(
        lambda self: getattr(self.estimator_, name), doc=f"``estimator_.{name}``."
    )


def _method(name):
    """Return a method that calls the method of ``estimator_``."""

    @wraps(getattr(MLNDetector, name))
    def call(self, *args, **kwargs):
        check_is_fitted(self, "offset_")
        return getattr(self.estimator_, name)(*args, **kwargs)

    return call


class ConstraintSearch(BaseDetector):
    r"""OOD detector that learns its constraints by a greedy search.

    Candidates are added to the constraints of an :class:`MLNDetector` if they improve
    it on validation samples [1]_. With the accepted constraints :math:`S`, and J the
    objective of the detector with weights fitted to held-out ID samples, a candidate c
    is accepted if

    .. math:: J(S \cup \{c\}) > J(S) + \delta_{\min}.

    J is the area under the ROC curve of the fused score on ID and OOD validation
    samples. The classifiers of the concepts and the detector are fitted once, on
    separate samples; results are reported on test samples that the search does not
    use.

    Read more in the :ref:`User Guide <logic>`.

    Parameters
    ----------
    estimator : MLNDetector
        The detector to improve. Its constraints, if any, are the start of the search,
        and are never removed; their weights and prior, and its `fusion` and
        `calibration`, are used for the result. Its fusion must not be "product".

    candidates : list of (str or Formula), default=None
        Constraints that may be added. None: :func:`constraint_candidates` of the
        concepts, up to `depth`. Constant candidates, and candidates that are equivalent
        to another one or to its negation, are not tried.

    depth : int, default=2
        Maximal number of literals of a candidate, if `candidates` is None.

    objective : {"auroc", "likelihood"}, default="auroc"
        Objective to maximize. "auroc" requires OOD samples in ``y``. "likelihood", the
        mean log-probability of the concepts of ID validation samples, requires none: it
        finds dependencies between concepts, which may or may not help to detect OOD
        samples.

    search : {"listed", "random", "gain"} or GreedySearch, default="listed"
        Order in which candidates are tried: each once as listed, each once in random
        order, or the largest gain in likelihood first. A
        :class:`GreedySearch` also has :math:`\delta_{\min}` and the other options.

    validation : float, default=0.2
        Fraction of the ID samples used for the objective.

    test : float, default=0.2
        Fraction of the ID samples held out for the report; may be 0. OOD samples are
        divided between validation and test in the same proportion, and with an
        `estimator` that learns from them (`id_estimator`) by the same fractions.

    contamination : float, default=0.05
        Fraction of the held-out ID samples to reject. Overrides the estimator's.

    ood_label : int or str, default=-1
        Label of OOD samples in ``y``. Overrides the estimator's.

    random_state : int, RandomState instance or None, default=None
        Controls the splits and the order "random". The estimator has its own
        `random_state`.

    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    estimator_ : MLNDetector
        The detector with the constraints of the search.

    constraints_ : list of str
        Its constraints: the initial ones, then the ones found.

    found_ : list of str
        The constraints found, in the order in which they were added.

    weights_ : ndarray of shape (n_constraints,)
        Weights of the constraints.

    validation_auroc_, baseline_validation_auroc_ : float or None
        AUROC on the validation samples, of the result and of the detector's own scores
        without logic (0.5 without a detector). None without OOD samples. The first is
        optimistic, since constraints were selected by it.

    test_auroc_, baseline_test_auroc_ : float or None
        The same on the test samples, which the search does not use. None if there are
        no such samples.

    n_validation_, n_test_ : tuple of (int, int)
        Numbers of ID and OOD samples.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of the ID samples
        that the estimator holds out for calibration is below it, see :ref:`ties`.

    concepts_ : list of str
        Names of the concepts.

    knowledge_base_ : KnowledgeBase
        The constraints over the concepts' values.

    See Also
    --------
    MLNDetector : The detector that is improved.
    GreedySearch : Options of the search.
    constraint_candidates : The default candidates.

    References
    ----------
    .. [1] K. Kirchheim, F. Ortmeier. Improving out-of-distribution detection with
       Markov logic networks. ICML 2025.

    Examples
    --------
    Two concepts, each predicted from a feature; the second follows from the first,
    except in OOD samples:

    >>> import numpy as np
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from skood.logic import ConstraintSearch, MLNDetector
    >>> rng = np.random.default_rng(0)
    >>> y = np.array([[0, 0], [0, 1], [1, 1]])[rng.integers(3, size=400)]
    >>> y[300:] = [1, 0]
    >>> X = y + rng.normal(scale=0.2, size=y.shape)
    >>> y[300:] = -1
    >>> stump = DecisionTreeClassifier(max_depth=1)
    >>> mln = MLNDetector([], [("a", stump), ("b", stump)], random_state=0)
    >>> search = ConstraintSearch(mln, search="gain", random_state=0).fit(X, y)
    >>> search.constraints_
    ['a -> b']
    >>> search.baseline_test_auroc_, search.test_auroc_
    (0.5, 1.0)
    """

    _default_parts: dict = {"search": GreedySearch}

    _parameter_constraints: dict = {
        **BaseDetector._parameter_constraints,
        "estimator": [MLNDetector],
        "candidates": [list, tuple, None],
        "depth": [Interval(Integral, 1, None, closed="left")],
        "objective": [StrOptions({"auroc", "likelihood"})],
        "search": [StrOptions(set(ORDERS)), GreedySearch],
        "validation": [Interval(Real, 0, 1, closed="neither")],
        "test": [Interval(Real, 0, 1, closed="left")],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        estimator,
        *,
        candidates=None,
        depth=2,
        objective="auroc",
        search="listed",
        validation=0.2,
        test=0.2,
        contamination=0.05,
        ood_label=-1,
        random_state=None,
        verbose=0,
    ):
        super().__init__(contamination=contamination, ood_label=ood_label)
        self.estimator = estimator
        self.candidates = candidates
        self.depth = depth
        self.objective = objective
        self.search = search
        self.validation = validation
        self.test = test
        self.random_state = random_state
        self.verbose = verbose

    knowledge_base_ = _attribute("knowledge_base_")
    constraints_ = _attribute("constraints_")
    weights_ = _attribute("weights_")
    concepts_ = _attribute("concepts_")
    classes_ = _attribute("classes_")
    offset_ = _attribute("offset_")

    score = _method("score")
    predict_concepts = _method("predict_concepts")
    concept_proba = _method("concept_proba")
    penalty = _method("penalty")
    explain = _method("explain")

    # -- fit

    @fit_context(
        # The estimator comes from the user and is validated by its own fit.
        prefer_skip_nested_validation=False
    )
    def fit(self, X, y=None):
        """Fit the estimator once, and search for constraints.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Training data for the classifiers and the detector.

        y : array-like of shape (n_samples, n_concepts) or (n_samples,), default=None
            Labels of the concepts, as in :meth:`MLNDetector.fit`. A sample is OOD if
            any of its labels is `ood_label`.

        Returns
        -------
        self : object
            The fitted detector.

        Raises
        ------
        ValueError
            If there are no OOD samples and the objective requires them, or if data,
            parameters or candidates are invalid. The estimator is then left unchanged.
        """
        with fresh_fit(self):
            self._fit(X, y)
        return self

    def _fit(self, X, y):
        rng = check_random_state(self.random_state)
        search = self._part("search")
        detector = self._unfitted()
        parts = check_parts(detector.concepts, detector)
        _, id_indices, ood_indices = detector._labels_and_indices(X, y, parts)
        self._check_n_ood(ood_indices)
        split = split_samples(
            id_indices,
            ood_indices,
            self.validation,
            self.test,
            rng,
            keep_ood=detector._is_supervised,
        )
        y_train = None if y is None else take_rows(y, split.train)
        detector.fit(take_rows(X, split.train), y_train)
        # outputs for its held-out samples, to which weights are fitted
        train_id = np.setdiff1d(split.train, ood_indices)
        calibration = detector._held_out(X, train_id)
        read = detector._read(take_rows(X, split.validation))
        is_ood = np.isin(split.validation, ood_indices)
        self._find(search, detector, calibration, read, is_ood, rng)
        self._finish(detector, calibration)
        self._report("validation", read, is_ood)
        if len(split.test):
            read = detector._read(take_rows(X, split.test))
        self._report("test", read, np.isin(split.test, ood_indices))

    def _unfitted(self):
        """Return a clone of the estimator, whose logic is replaced at the end."""
        if self.estimator._fusion.rule == "product":
            raise ValueError(
                "ConstraintSearch cannot search with fusion='product': it needs "
                "non-negative weights, and candidates may have negative ones. Use "
                "fusion='log' or 'shifted_product'."
            )
        detector = clone(self.estimator)
        seed = detector.random_state
        if not isinstance(seed, Integral):  # the held-out samples are drawn twice
            seed = int(check_random_state(seed).randint(np.iinfo(np.int32).max))
        detector._may_score_nothing = True  # until constraints are found
        return detector.set_params(
            constraints=detector._logic,
            contamination=self.contamination,
            ood_label=self.ood_label,
            random_state=seed,
        )

    def _check_n_ood(self, ood_indices):
        """Raise an error if samples required by the objective are missing."""
        needed = 2 if self.test > 0.0 else 1
        if self.objective == "auroc" and len(ood_indices) < needed:
            raise ValueError(
                f"objective='auroc' needs OOD samples, at least {needed} with test="
                f"{self.test}, and y has {len(ood_indices)} that are labeled ood_label="
                f"{self.ood_label!r}. Add some, such as samples of classes that are "
                "left out, or search with objective='likelihood', which needs none."
            )

    def _find(self, search, detector, calibration, read, is_ood, rng):
        """Run the search, and store its history and result."""
        kb = detector.knowledge_base_
        codes, kinds = read.codes, np.arange(len(read.codes))
        if not detector.marginalize:
            codes, kinds = np.unique(codes, axis=0, return_inverse=True)

        def listed(kb, fixed):
            marginal = detector.marginalize
            truth = kb.expected(read.proba) if marginal else kb.truth(codes)
            return candidates_of(kb, fixed, calibration.codes, truth)

        start = listed(kb, detector._fixed)
        formulas = self.candidates
        if formulas is None:
            domains = {name: kb.domains[name] for name in detector.concepts_}
            formulas = constraint_candidates(domains, self.depth)
        others = KnowledgeBase(list(formulas), kb.domains)
        candidates = listed(others, np.full(len(others), np.nan))
        candidates = distinct(candidates, start)
        validation = Validation(
            is_ood,
            np.ravel(kinds),
            detector._log_sf(read),
            fusion=detector._fusion,
            objective=self.objective,
        )
        prior = detector.constraints.prior
        model = grown(SearchModel(kb.sizes, len(calibration.codes), prior), start)
        greedy = search._run(model, start, candidates, validation, rng, self.verbose)
        self._warn(greedy)
        self.found_ = [candidates[i].text for i in greedy.selected]
        self._history = greedy.written()

    def _warn(self, greedy):
        """Warn if nothing was found, or some candidates were not tried."""
        if greedy.inexact:
            warn(
                f"{len(greedy.inexact)} of {len(greedy.candidates)} candidates were "
                "not tried, or not always: next to the constraints found before they "
                "connect too many concepts for an exact partition function. Give "
                "fewer candidates, or max_constraints."
            )
        if not greedy.selected:
            values = greedy.history["after"]
            best = f"; the best reached {max(values):.4f}" if values else ""
            warn(
                f"No constraint was found: of {len(greedy.candidates)} candidates none "
                f"raises the {self.objective} of {greedy.before:.4f} on validation "
                f"samples by more than min_improvement={greedy.min_improvement}{best}. "
                "Give other candidates, or a smaller min_improvement."
            )

    def _finish(self, detector, calibration):
        """Set the constraints of the detector, and fit their weights."""
        logic = self.estimator._logic
        constraints, weights = logic.constraints, logic.weights
        del detector._may_score_nothing
        has_constraints = len(detector.knowledge_base_) or self.found_
        if not has_constraints and detector.detector is None:
            raise ValueError(
                "No constraint was found, and the estimator has neither constraints "
                "nor a detector: nothing is left to score samples by. Give it a "
                "detector, other candidates or a smaller min_improvement."
            )
        if isinstance(constraints, dict):
            names = [
                text if text not in constraints else f"({text})" for text in self.found_
            ]
            extended: dict | list = {
                **constraints,
                **dict(zip(names, self.found_, strict=True)),
            }
        else:
            extended = [*constraints, *self.found_]
        if weights is not None and not isinstance(weights, dict):
            # found constraints are placed after the given ones and before "is_id"
            unknown = np.full(len(self.found_), np.nan)
            weights = np.insert(detector._fixed, len(constraints), unknown)
        logic = WeightedConstraints(extended, weights=weights, prior=logic.prior)
        detector._set_constraints(logic, calibration)
        self.estimator_ = detector
        copy_input_attributes(self, detector)

    def _report(self, name, read, is_ood):
        """Store AUROCs with and without logic, if there are ID and OOD samples."""
        fused = baseline = None
        if is_ood.any() and not is_ood.all():
            fused, baseline = self.estimator_._aurocs(read, is_ood)
        setattr(self, f"{name}_auroc_", fused)
        setattr(self, f"baseline_{name}_auroc_", baseline)
        setattr(self, f"n_{name}_", (int(np.sum(~is_ood)), int(np.sum(is_ood))))

    def _score(self, X):
        return self.estimator_._score(X)

    def set_weights(self, weights):
        """Set weights of constraints; see :meth:`MLNDetector.set_weights`.

        Parameters
        ----------
        weights : array-like of shape (n_constraints,) or dict of str to float
            Weights by constraint, or by its name or string in a dict.

        Returns
        -------
        self : object
            The detector, with updated `weights_` and `offset_`. The reported validation
            and test results are not recomputed.
        """
        check_is_fitted(self, "offset_")
        self.estimator_.set_weights(weights)
        return self

    @property
    def search_history_(self):
        """Return the candidates that were tried, in order, as a pandas.DataFrame.

        Columns: ``candidate``; ``gain``, see `order`; the objective ``before`` and
        ``after``; ``accepted``; ``kept``, whether it was not removed by pruning;
        ``seconds``.
        """
        check_is_fitted(self, "offset_")
        return import_pandas("search_history_").DataFrame(self._history)

    def __sklearn_tags__(self):
        tags = wrapped_tags(super().__sklearn_tags__(), self.estimator)
        tags.target_tags.multi_output = True
        tags.target_tags.required |= self.objective == "auroc"
        return tags
