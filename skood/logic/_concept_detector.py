"""Base class of OOD detectors that compare predicted concepts with constraints."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import abstractmethod
from numbers import Integral, Real

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Bunch, check_random_state, get_tags
from sklearn.utils.metaestimators import _BaseComposition
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from skood.base import BaseDetector
from skood.logic._concepts import (
    ConceptSource,
    check_parts,
    concept_domains,
    fit_named,
    is_key,
    label_columns,
    predict_codes,
    predict_proba,
    read_samples,
    samples_at,
    source_labels,
    source_name,
)
from skood.logic._explain import Sample, explanation_frame, offense, signed
from skood.logic._knowledge_base import KnowledgeBase
from skood.logic.language._encoding import decode
from skood.logic.language._formulas import C
from skood.stats._survival import fit_survival
from skood.utils._folds import calibration_folds, check_same, warn_of_training_samples
from skood.utils._id_samples import warn_of_earlier_steps
from skood.utils._input import takes_input
from skood.utils._labels import check_nested_ood_labels, plain_labels
from skood.utils._metaestimators import (
    concept_columns,
    copy_input_attributes,
    join_input_tags,
    n_rows,
    with_seeds,
)
from skood.utils._param_validation import HasMethods, Interval, StrOptions


class ConceptDetector(_BaseComposition, BaseDetector):
    """Base class of OOD detectors that compare predicted concepts with constraints.

    A subclass implements ``_calibrate(outputs)``, which returns the scores of the
    held-out samples, and ``_score(X)``.
    """

    # Whether constraints have weights, so that explanations contain numbers.
    _is_weighted = True

    _parameter_constraints: dict = {
        "constraints": [list, tuple, dict],
        "concepts": "no_validation",  # validated by check_parts
        "detector": [
            HasMethods(["fit", "score_samples"]),
            StrOptions({"confidence"}),
            None,
        ],
        "calibration": [Interval(Real, 0, 1, closed="neither"), StrOptions({"same"})],
        "domains": [dict, None],
        "contamination": [Interval(Real, 0, 0.5, closed="right")],
        "ood_label": [Integral, str],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        constraints,
        concepts,
        detector=None,
        *,
        calibration=0.2,
        domains=None,
        contamination=0.05,
        ood_label=-1,
        n_jobs=None,
        random_state=None,
    ):
        self.contamination = contamination
        self.ood_label = ood_label
        self.constraints = constraints
        self.concepts = concepts
        self.detector = detector
        self.calibration = calibration
        self.domains = domains
        self.n_jobs = n_jobs
        self.random_state = random_state

    # -- parameters of the classifiers

    @property
    def _named_concepts(self):
        """The classifiers by name; names of several concepts are joined by "_"."""
        try:
            return [
                (source_name(key), classifier)
                for key, classifier in self.concepts
                if is_key(key)
            ]
        except (TypeError, ValueError):  # reported by fit
            return []

    @_named_concepts.setter
    def _named_concepts(self, pairs):
        new = dict(pairs)
        self.concepts = [
            (key, new[source_name(key)] if is_key(key) else classifier)
            for key, classifier in self.concepts
        ]

    def get_params(self, deep=True):
        """Get the parameters, including the classifiers by name.

        Parameters
        ----------
        deep : bool, default=True
            Whether to include the classifiers, and their parameters.

        Returns
        -------
        params : dict
            Values by name. The name of a classifier of several concepts is their names
            joined by "_".
        """
        return self._get_params("_named_concepts", deep=deep)

    def set_params(self, **params):
        """Set parameters of the detector, classifiers by name, or their parameters.

        Parameters
        ----------
        **params : dict
            Values by name, see `get_params`.

        Returns
        -------
        self : object
            The estimator.

        Raises
        ------
        ValueError
            If there is no such parameter.
        """
        if "concepts" in params:  # it defines the names of the others
            self.concepts = params.pop("concepts")
        return self._set_params("_named_concepts", **params)

    # -- fit

    def fit(self, X, y=None):
        """Fit the classifiers, the detector and the logic.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Training data for the classifiers and the detector.

        y : array-like of shape (n_samples, n_concepts) or (n_samples,), default=None
            Labels of the concepts: a data frame with a column for each concept, or an
            array with columns in the order of `concepts`; a single column may be 1d. A
            sample is OOD if any of its labels is `ood_label`. None: all samples are ID,
            and all classifiers must be frozen.

        Returns
        -------
        self : object
            The fitted detector.

        Raises
        ------
        ValueError
            If the data or the constraints are invalid. The estimator is then left
            unchanged.

        TypeError
            If `concepts` is not a list of (name, classifier), or if probabilities are
            needed that a classifier does not provide.
        """
        return super().fit(X, y)

    def _fit_samples(self, X, y, sample_weight=None):
        return self._fit(X, y)  # it uses OOD samples, too

    def _fit(self, X, y):
        sources = check_parts(self.concepts, self)
        self._check_same(sources)
        columns, indices, ood_indices = self._labels_and_indices(X, y, sources)
        domains, observed = concept_domains(
            sources,
            {name: column[indices] for name, column in columns.items()},
            self.domains,
            self.ood_label,
        )
        self.concepts_ = list(domains)
        first = self.concepts_[0]
        self.classes_ = plain_labels(np.array(observed[first], dtype=object))
        self._set_knowledge_base(domains)
        self._check_nested_labels(sources, columns, indices)
        rng = check_random_state(self.random_state)
        ((train, held_out),) = calibration_folds(
            len(indices), None, self.calibration, rng
        )
        train = indices if train is None else indices[train]
        jobs = self._jobs(sources, X, columns, train, ood_indices)
        self._fit_parts(sources, jobs, None if self.random_state is None else rng)
        self.n_calibration_ = len(held_out)
        outputs = self._read(samples_at(X, indices[held_out]))
        warn_of_training_samples(X, self.detector_, indices=indices[held_out])
        self._fit_normalizer(outputs.outlier)
        return self._calibrate(outputs)

    @abstractmethod
    def _calibrate(self, outputs):
        """Calibrate on outputs for held-out ID samples, and return their scores."""

    def _fit_normalizer(self, outlier):
        """Fit the survival function of the detector's outlier scores, if any."""
        self.normalizer_ = None
        if outlier is not None:
            self.normalizer_ = fit_survival(self._normalizer, outlier)

    def _log_sf(self, outputs):
        """Return the log survival probabilities; 0 without a detector."""
        if self.normalizer_ is None:
            return np.zeros(len(outputs.codes))
        return self.normalizer_.log_sf(outputs.outlier)

    def _check_same(self, sources):
        """Raise an error if a part is fitted on calibration samples."""
        if self.calibration == "same":
            pairs = [(source.name, source.classifier) for source in sources]
            if self._fits_detector:
                pairs.append(("detector", self.detector))
            check_same(*zip(*pairs, strict=True))

    @property
    def _fits_detector(self):
        return self.detector is not None and not isinstance(self.detector, str)

    def _labels_and_indices(self, X, y, sources):
        """Return labels by concept, indices of ID samples, indices of OOD samples."""
        if y is None:
            fitted = [
                p for p in sources if not isinstance(p.classifier, FrozenEstimator)
            ]
            if fitted:
                raise ValueError(
                    f"{type(self).__name__} requires y to be passed, but the target y "
                    f"is None: it fits the classifier of {fitted[0].name!r}. Pass "
                    "labels of the concepts, or fitted classifiers inside "
                    "sklearn.frozen.FrozenEstimator."
                )
            return {}, np.arange(n_rows(X)), np.arange(0)
        names = [concept for source in sources for concept in source.concepts]
        columns, is_id = label_columns(y, names, self.ood_label)
        check_consistent_length(X, columns[0])
        if not is_id.all():
            warn_of_earlier_steps(self)
        columns = dict(zip(names, columns, strict=True))
        return columns, np.flatnonzero(is_id), np.flatnonzero(~is_id)

    def _set_knowledge_base(self, domains):
        """Parse the constraints."""
        self.knowledge_base_ = KnowledgeBase(self._all_constraints(), domains)
        names = self.knowledge_base_.names
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"constraints must be distinct, got twice: {twice}.")
        self.constraints_ = list(self.knowledge_base_.constraints)

    def _all_constraints(self):
        """Return the constraints, including the ones added to them."""
        return self.constraints

    def _check_nested_labels(self, sources, columns, indices):
        """Raise an error if a nested fit would leave out all samples of a class."""
        uses = [
            (source.name, source.classifier, c)
            for source in sources
            for c in source.concepts
        ]
        if self._fits_detector:
            uses.append(("detector", self.detector, sources[0].concepts[0]))
        for name, estimator, concept in uses if columns else ():
            labels = columns[concept][indices]
            check_nested_ood_labels(name, estimator, labels, type(self).__name__)

    def _fit_parts(self, sources, jobs, random_state):
        """Fit classifiers and the detector on ID samples that are not held out."""
        names, estimators, *data = zip(*jobs, strict=True)
        jobs = zip(names, with_seeds(estimators, random_state), *data, strict=True)
        fitted = Parallel(n_jobs=self.n_jobs)(delayed(fit_named)(*job) for job in jobs)
        self._readers = [
            source._replace(classifier=estimator)
            for source, estimator in zip(sources, fitted, strict=False)
        ]
        self.named_concepts_ = Bunch(
            **{source.name: source.classifier for source in self._readers}
        )
        rest = fitted[len(sources) :]
        self.detector_ = self.detector
        if self._fits_detector:
            self.detector_ = rest.pop(0)
        self._store_rest(rest)
        members = [source.classifier for source in reversed(self._readers)]
        if self._fits_detector:
            members.insert(0, self.detector_)
        for estimator in members:
            copy_input_attributes(self, estimator)

    def _jobs(self, sources, X, columns, train, ood_indices):
        """Return the fits to run: (name, estimator, rows, labels)."""
        X = samples_at(X, train)
        if self._fits_detector:
            first = sources[0].concepts[:1]
            sources = [*sources, ConceptSource("detector", first, self.detector)]
        return [
            (
                source.name,
                source.classifier,
                X,
                source_labels(source, columns, train) if columns else None,
            )
            for source in sources
        ]

    def _store_rest(self, fitted):
        """Store the remaining fitted estimators."""

    def score(self, X, y):
        """Return the area under the ROC curve of ID against OOD samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        y : array-like of shape (n_samples, n_concepts) or (n_samples,)
            Labels, as in `fit`. A sample is OOD if any of its labels is `ood_label`, or
            if its label of the first concept is not in ``classes_``.

        Returns
        -------
        auroc : float
            Probability that an ID sample scores above an OOD one, ties counting one
            half.
        """
        return super().score(X, concept_columns(y, self))

    # -- outputs

    @property
    def _needs_proba(self):
        """Return whether scores need the probabilities of concepts."""
        return isinstance(self.detector_, str)

    def _read(self, X):
        """Return codes, probabilities (None if not needed) and outlier scores."""
        return read_samples(
            self._readers,
            self.detector_,
            X,
            self.knowledge_base_.domains,
            self._needs_proba,
        )

    # -- methods of concepts

    @takes_input
    def predict_concepts(self, X):
        """Predict the value of each concept.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        Returns
        -------
        concepts : ndarray of shape (n_samples, n_concepts)
            The predicted value of each concept, in the order of ``concepts_``; of dtype
            object if the values of the concepts have different types.
        """
        check_is_fitted(self, "offset_")
        domains = self.knowledge_base_.domains
        codes: list = []
        for source in self._readers:
            if source.is_input:
                codes += predict_codes(source, X, domains)
        return decode(
            np.stack(codes, axis=1), {name: domains[name] for name in self.concepts_}
        )

    def concept_proba(self, X):
        """Return the probabilities of the values of each concept.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        Returns
        -------
        proba : list of ndarray of shape (n_samples, n_values)
            One array for each of ``concepts_``, with columns in the order of
            ``knowledge_base_.domains``; 0 for values not seen by the classifier.

        Raises
        ------
        TypeError
            If a classifier has no ``predict_proba``.
        """
        check_is_fitted(self, "offset_")
        proba: list = []
        for source in self._readers:
            if source.is_input:
                proba += predict_proba(source, X, self.knowledge_base_.domains)
        return proba

    @abstractmethod
    def _explained(self, outputs):
        """Return outlier scores, penalties, two arrays of contributions and fractions.

        Contributions are of shape (n_samples, n_constraints): first the terms of the
        penalty, then the contributions of the predicted values. They differ if the
        truth of constraints is an expectation. Fractions are the terms of the detector.
        """

    @takes_input
    def explain(self, X, *, as_frame=False):
        """Return the constraints that each sample violates and their contributions.

        A constraint of weight w that holds to the degree :math:`\\varphi` contributes

        .. math:: \\max(w, 0) (1 - \\varphi) + \\max(-w, 0) \\varphi \\ge 0,

        which is the same for the negated constraint with weight -w. Contributions sum
        to the penalty minus the penalty of a sample that violates nothing; with
        the `fusion` "log" both are multiplied by `gamma`, as in the score.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        as_frame : bool, default=False
            Whether to return a pandas.DataFrame.

        Returns
        -------
        explanation : list of Bunch, or pandas.DataFrame
            For each sample: ``concepts``, a dict of the predicted values;
            ``violated``, the names of the constraints that it violates (or satisfies,
            if the weight is negative), in decreasing order of contribution;
            ``contributions``, a dict of all contributions; ``penalty``; ``detector``,
            minus the logarithm of the detector's part of the score; ``outlier``, the
            outlier score; ``is_ood``; ``sentence``. The data frame has a row for each
            sample, with the index of `X` if it is a data frame, and columns
            ``concept_NAME`` and ``contribution_NAME``.

        Raises
        ------
        ImportError
            If `as_frame` is True and pandas is not installed.
        """
        check_is_fitted(self, "offset_")
        explanations = self._explanations(self._read(X))
        if not as_frame:
            return explanations
        return explanation_frame(explanations, self, X)

    def _explanations(self, outputs):
        kb = self.knowledge_base_
        outlier, penalty, soft, hard, terms = self._explained(outputs)
        all_hold = kb.truth(outputs.codes).all(axis=1)
        explanations = []
        for i, codes in enumerate(outputs.codes):
            sample = Sample(codes, kb.domains)
            broken = np.flatnonzero(hard[i] > 0)
            broken = broken[np.argsort(-soft[i, broken], kind="stable")]
            clauses = []
            for j in broken:
                formula = kb.formulas[j]
                phrase = "the classifier of ID samples takes it for OOD"
                if not isinstance(formula, C) or formula.name in self.concepts_:
                    phrase = offense(formula, sample)
                size = f": {signed(soft[i, j])}" if self._is_weighted else ""
                clauses.append(phrase + size)
            if len(kb) and not clauses:
                clauses.append(
                    "all constraints hold" if all_hold[i] else "no constraint counts"
                )
            if self.detector_ is not None:
                clauses.append(f"detector: {signed(terms[i])}")
            explanations.append(
                Bunch(
                    concepts=sample.values,
                    violated=[kb.names[j] for j in broken],
                    contributions=dict(zip(kb.names, soft[i].tolist(), strict=True)),
                    penalty=float(penalty[i]),
                    detector=float(terms[i]),
                    outlier=float(outlier[i]),
                    is_ood=bool(-outlier[i] < self.offset_),
                    sentence="; ".join(clauses),
                )
            )
        return explanations

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        estimators = [estimator for _, estimator in self._named_concepts]
        estimators = [
            estimator for estimator in estimators if hasattr(estimator, "get_params")
        ]
        fits = any(
            not isinstance(estimator, FrozenEstimator) for estimator in estimators
        )
        if hasattr(self.detector, "get_params"):
            estimators.append(self.detector)
        inner = [get_tags(estimator) for estimator in estimators]
        join_input_tags(tags, inner)
        tags.target_tags.required = fits or any(t.target_tags.required for t in inner)
        tags.target_tags.multi_output = True
        tags.non_deterministic = any(estimator.non_deterministic for estimator in inner)
        return tags
