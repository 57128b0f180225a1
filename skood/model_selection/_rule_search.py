"""Grid search that fits once for all candidates whose parameters fit nothing."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from functools import partial
from itertools import chain, count, product
from numbers import Number
from time import perf_counter
from traceback import format_exc
from types import NoneType
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.model_selection import GridSearchCV, ParameterGrid, check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import Bunch, indexable
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_memory

from skood.utils._estimator import SkoodEstimator
from skood.utils._metaestimators import n_rows, take_rows
from skood.utils._param_validation import fit_context


class RuleSearchCV(SkoodEstimator, GridSearchCV):
    """Grid search of rules, or combiners, that fits once per fold for all of them.

    A :class:`~sklearn.model_selection.GridSearchCV` with the same results. Candidates
    that differ only in parameters that fit nothing share the fit on a fold and the
    scores of its samples. These are `rule`, `guarantee` and `solver` of
    :class:`~skood.rejection.RejectOptionClassifier` and
    :class:`~skood.rejection.RejectOptionRegressor`; `combiner`, `c_m`, `beta`, `alpha`,
    `level` and `method` of :class:`~skood.combine.DetectorEnsemble` and
    :class:`~skood.combine.DSDE`; and nested ones, also in the last step of a pipeline.
    Read more in the :ref:`User Guide <rule_search>`.

    .. versionadded:: 0.2

    Parameters
    ----------
    estimator : object
        Any estimator. Parameters of others fit something.

    param_grid : dict or list of dict
        Lists of values by names of parameters.

    scoring, n_jobs : object, default=None
        As in GridSearchCV. A job is a fit on a fold, with all of its candidates.

    refit : bool, str or callable, default=True
        As in GridSearchCV.

    cv : int, CV splitter or iterable, default=None
        As in GridSearchCV.

    verbose : int, default=0
        Verbosity of joblib.

    pre_dispatch : int or str, default="2*n_jobs"
        As in GridSearchCV.

    error_score : "raise" or float, default=np.nan
        Score of a candidate whose fit, or choice of the rule, raises.

    return_train_score : bool, default=False
        As in GridSearchCV.

    Attributes
    ----------
    cv_results_ : dict of ndarray
        As in GridSearchCV. The time of a shared fit is that of its first candidate.

    best_estimator_, best_score_, best_params_, best_index_ : object
        As in GridSearchCV.

    scorer_, n_splits_, refit_time_, multimetric_ : object
        As in GridSearchCV.

    See Also
    --------
    skood.rejection.RejectOptionClassifier.with_rule : Another rule without a fit.
    OODStratifiedKFold : Folds with known OOD samples.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.datasets import load_digits_ood
    >>> from skood.metrics import make_cost_scorer
    >>> from skood.model_selection import RuleSearchCV
    >>> from skood.rejection import LinearRule, RejectOptionClassifier
    >>> X, y = load_digits_ood(left_out=[8, 9], return_X_y=True)
    >>> classifier = LogisticRegression(max_iter=200)
    >>> clf = RejectOptionClassifier(classifier, rule=LinearRule(), random_state=0)
    >>> grid = {"rule__lam": [0.1, 0.2, 0.3, 0.4, 0.5]}
    >>> scorer = make_cost_scorer(reject_id=0.3, ood_prior=0)
    >>> search = RuleSearchCV(clf, grid, scoring=scorer, cv=2).fit(X, y)  # three fits
    >>> search.best_params_, float(search.best_score_.round(3))
    ({'rule__lam': 0.4}, -0.065)
    """

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y=None, **params):
        """Search, and fit the best candidate on all samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        y : array-like of shape (n_samples,), default=None
            Labels or targets.

        **params : dict
            Weights, groups and other metadata, as in GridSearchCV.

        Returns
        -------
        self : object
            The fitted search.
        """
        scorer, _ = self._get_scorers()
        X, y = indexable(X, y)
        routed = self._get_routed_params_for_fit(params)
        cv = check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        folds = list(cv.split(X, y, **routed.splitter.split))
        candidates = list(ParameterGrid(self.param_grid))
        groups = self._groups(candidates)
        data = X, y, routed.estimator.fit, routed.scorer.score
        options = scorer, self.return_train_score, self.error_score == "raise"
        parallel = {"verbose": self.verbose, "pre_dispatch": self.pre_dispatch}
        results = Parallel(n_jobs=self.n_jobs, **parallel)(
            delayed(_outcomes)(
                self.estimator, [candidates[i] for i in group], data, fold, *options
            )
            for group, fold in product(groups, folds)
        )
        places = [(i, k) for group in groups for k in range(len(folds)) for i in group]
        outcomes = dict(zip(places, chain(*results), strict=True))
        search = self._repeated([outcomes[place] for place in sorted(places)], folds)
        fitted = {name: each for name, each in vars(search).items() if name[-1] == "_"}
        fitted["scorer_"] = getattr(scorer, "_scorers", scorer)  # of several metrics
        if self.refit:
            best = _candidate(self.estimator, search.best_params_)
            start = perf_counter()
            best.fit(*(X,) if y is None else (X, y), **routed.estimator.fit)
            fitted |= {"best_estimator_": best, "refit_time_": perf_counter() - start}
            if hasattr(best, "feature_names_in_"):
                fitted["feature_names_in_"] = best.feature_names_in_
        self.__dict__ |= fitted
        return self

    def _groups(self, candidates):
        """Return lists of the indices of candidates that share fits."""
        groups: dict = {}
        for i, params in enumerate(candidates):
            names, *key = _Shared().attach(_candidate(self.estimator, params))
            for name, value in sorted(params.items()):
                if not f"{name}__".startswith(tuple(f"{each}__" for each in names)):
                    plain = isinstance(value, str | Number | NoneType)
                    key.append((name, type(value), value if plain else id(value)))
            groups.setdefault(repr(key), []).append(i)
        return list(groups.values())

    def _repeated(self, outcomes, folds):
        """Return a fitted search of scikit-learn, whose fits repeat outcomes."""
        times: dict = {}
        for k, name in enumerate(("fit_time", "score_time")):
            seconds = np.reshape([each[k] for each in outcomes], (-1, len(folds)))
            times |= {f"mean_{name}": seconds.mean(1), f"std_{name}": seconds.std(1)}

        def refit(results):
            results |= times
            return self.refit(results)

        scoring: Any = _RepeatedFit.score
        if isinstance(self.scoring, list | tuple | set | dict):
            scoring = {name: partial(scoring, name=name) for name in self.scoring}
        search = GridSearchCV(
            _RepeatedFit(iter(outcomes)),
            self.param_grid,
            scoring=scoring,
            n_jobs=1,
            refit=refit if callable(self.refit) else self.refit,
            cv=[([1], [0])] * len(folds),
            error_score=self.error_score,
            return_train_score=self.return_train_score,
        ).fit([[0], [1]])
        search.cv_results_ |= times
        return search


class _RepeatedFit(BaseEstimator):
    """Estimator whose fits, in the order of a search, repeat outcomes."""

    _scores: Any = ()

    def __init__(self, outcomes):
        self.outcomes = outcomes

    def __sklearn_clone__(self):
        return self

    def set_params(self, **params):
        return self

    def fit(self, X, y=None):
        *_, error, self._scores = next(self.outcomes, (None, ()))
        if error is not None:
            raise RuntimeError(error)
        return self

    def score(self, X, y=None, name=None):
        """Return a score of test (X = 0) or training samples, or raise its error."""
        scores = self._scores[X[0][0]]
        if isinstance(scores, dict) and name is not None:
            scores = scores[name]
        if isinstance(scores, str):
            raise RuntimeError(scores)
        return scores


class _Shared:
    """Results of methods that candidates that share a fit."""

    def __init__(self):
        self.results = {}

    def __call__(self, owner, *names, by_samples=False, key=None):
        """Make methods return stored results: of their n-th calls, or for each `X`."""
        for name in names:
            vars(owner).pop(name, None)
            method = self._stored((name, key), getattr(owner, name), by_samples)
            vars(owner)[name] = method

    def _stored(self, key, function, by_samples=False):
        n_calls = count()

        def stored(X, *arguments, **params):
            of_call = key, id(X) if by_samples else next(n_calls)
            if of_call not in self.results:  # with X, so that its id stays unique
                self.results[of_call] = X, function(X, *arguments, **params)
            return self.results[of_call][1]

        return stored

    def attach(self, estimator, prefix=""):
        """Let a candidate share its fit; return what `__skood_share__` does."""
        if isinstance(estimator, Pipeline):
            memory = check_memory(estimator.memory)
            estimator.memory = Bunch(cache=partial(self._cached, prefix, memory))
            name, last = estimator.steps[-1]
            return self.attach(last, f"{prefix}{name}__")
        share = getattr(estimator, "__skood_share__", lambda shared: ((), None))
        names, kind = share(self)
        return tuple(f"{prefix}{name}" for name in names), kind

    def _cached(self, prefix, memory, function, **options):
        """Return a function that fits and transforms by steps, as of a memory."""
        function = memory.cache(function, **options)

        def fit_transform(*arguments, **params):
            outputs, step = function(*arguments, **params)
            self(step, "transform", by_samples=True, key=id(step))
            return outputs, step

        return self._stored(prefix, fit_transform)


def _candidate(estimator, params):
    return clone(estimator).set_params(**clone(params, safe=False))


def _outcomes(estimator, candidates, data, fold, scorer, with_train, raises):
    """Return times, the error and scores of candidates that share a fit on a fold."""
    X, y, fit_params, score_params = data

    def subset(indices, params):
        samples = [take_rows(each, indices) for each in (X, y) if each is not None]
        for name, values in params.items():
            if np.ndim(values) and n_rows(values) == n_rows(X):
                params = {**params, name: take_rows(values, indices)}
        return samples, params

    def timed(function, data):
        start = perf_counter()
        try:
            result = function(*data[0], **data[1])
        except Exception:
            if raises:
                raise
            result = format_exc()
        return perf_counter() - start, result

    train, shared, outcomes = subset(fold[0], fit_params), _Shared(), []
    scored = [subset(fold[k], score_params) for k in (1, 0)[: 1 + with_train]]
    for params in candidates:
        candidate = _candidate(estimator, params)
        shared.attach(candidate)
        fit_time, fitted = timed(candidate.fit, train)
        error = fitted if isinstance(fitted, str) else None
        score = partial(scorer, candidate)
        results = [timed(score, each) for each in scored if error is None]
        score_time = results[0][0] if results else 0.0
        outcomes.append((fit_time, score_time, error, [each for _, each in results]))
    return outcomes
