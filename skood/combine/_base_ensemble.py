"""Base class of ensembles of detectors, independent of the combiner."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import abstractmethod
from numbers import Integral, Real

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Bunch, check_random_state, check_scalar, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skood.base import BaseDetector
from skood.combine._members import fit_committees, score_committees
from skood.combine._pvalues import correction_of, loosened, reaches, warn_if_few
from skood.combine._splits import with_levels
from skood.utils._batches import blockwise
from skood.utils._calibration import Calibration, calibration_folds, check_same
from skood.utils._input import takes_input
from skood.utils._labels import check_nested_ood_labels
from skood.utils._metaestimators import copy_input_attributes, n_rows, with_seeds
from skood.utils._named_estimators import NamedParts
from skood.utils._pandas import import_pandas
from skood.utils._param_validation import Classifier, HasMethods, Interval, StrOptions
from skood.utils._warnings import warn

__all__ = ["BaseDetectorEnsemble"]

# Conformal levels take few values. This weight of a tie-break separates samples of the
# same level without changing the order of different levels.
_TIE_BREAK = 1e-9


def _combiner_has_pi0(self):
    return hasattr(getattr(self, "combiner_", self._combiner()), "pi0")


class BaseDetectorEnsemble(NamedParts, BaseDetector):
    """Base class of detectors that combine the p-values of their members.

    A subclass implements ``_combiner()``, which returns a combiner.

    Parameters
    ----------
    detectors : list of (str, object)
        The members.

    estimator, alpha, calibration, level, method, n_jobs, verbose, random_state, \
    ood_label
        See `DetectorEnsemble`.
    """

    _parts_parameter = "detectors"

    _parameter_constraints: dict = {
        "detectors": "no_validation",  # validated by _check_parts
        "estimator": [Classifier(), None],
        "alpha": [Interval(Real, 0, 1, closed="neither")],
        "calibration": [
            Interval(Real, 0, 1, closed="neither"),
            Interval(Integral, 2, None, closed="left"),
            HasMethods(["split", "get_n_splits"]),  # a str has split
            StrOptions({"same"}),
        ],
        "level": [StrOptions({"auto", "nominal", "conformal"})],
        "method": [StrOptions({"conformal", "ecdf"})],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
        "ood_label": [Integral, str],
    }

    def __init__(
        self,
        detectors,
        *,
        estimator=None,
        alpha=0.05,
        calibration=0.2,
        level="auto",
        method="conformal",
        n_jobs=None,
        verbose=0,
        random_state=None,
        ood_label=-1,
    ):
        self.detectors = detectors
        self.estimator = estimator
        self.alpha = alpha
        self.calibration = calibration
        self.level = level
        self.method = method
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state
        self.ood_label = ood_label

    @abstractmethod
    def _combiner(self):
        """Return the combiner."""

    def _fit(self, X, y):
        X = _as_rows(X)
        names, detectors = self._check_parts(("fit", "score_samples"))
        combiner = self._combiner()
        # a combiner that does not support so many members raises here, before the fit
        combiner.statistic(np.full((1, len(names)), 0.5))
        n_samples = n_rows(X)
        self._check_members(names, detectors, y)
        rng = check_random_state(self.random_state)
        rows = calibration_folds(n_samples, y, self.calibration, rng)
        seeds = None if self.random_state is None else rng
        estimator, *detectors = with_seeds([self.estimator, *detectors], seeds)
        correction = correction_of(combiner, len(names)) or 1.0
        folds, level = with_levels(rows, self.level, self.alpha, correction)
        committees, estimators, scores = fit_committees(
            names,
            detectors,
            estimator,
            X,
            y,
            [(fold.train, np.concatenate(fold[1:])) for fold in folds],
            n_jobs=self.n_jobs,
            verbose=self.verbose,
        )
        self._committees = committees
        self.named_detectors_ = Bunch(**dict(zip(names, committees[0], strict=True)))
        self.level_ = level
        if self.estimator is not None:
            self.estimator_ = estimators[0]
        self._store_inputs([estimators[0], *committees[0]], y)
        self.combiner_ = clone(combiner, safe=False)
        self._alpha, self._method = float(self.alpha), self.method
        self._calibrate(folds, scores)
        # A level that equals alpha up to rounding is rejected.
        self.offset_ = float(np.log(loosened(self._alpha)))

    def _check_members(self, names, detectors, y):
        """Raise, before a long fit, errors that would otherwise occur after it."""
        if isinstance(self.calibration, str):
            check_same(names, detectors)
        if y is None:
            if self._fits_estimator and get_tags(self.estimator).target_tags.required:
                raise ValueError(
                    f"{type(self).__name__} requires y to be passed, but the target y "
                    f"is None: it fits estimator={self.estimator!r}. Pass class "
                    "labels, or a fitted classifier inside "
                    "sklearn.frozen.FrozenEstimator."
                )
            return
        for name, detector in zip(names, detectors, strict=True):
            check_nested_ood_labels(name, detector, y, type(self).__name__)

    @property
    def _fits_estimator(self):
        return self.estimator is not None and not isinstance(
            self.estimator, FrozenEstimator
        )

    def _store_inputs(self, fitted, y):
        """Copy attributes of the input from the first member that has them."""
        for one in reversed(fitted):
            if one is not None:
                copy_input_attributes(self, one)
        if y is None:
            for one in fitted:
                if hasattr(one, "classes_"):
                    self.classes_ = np.asarray(one.classes_)
                    break

    def _calibrate(self, folds, scores):
        """Store the calibration scores of p-values and the statistics of levels."""
        self._calibrations = []
        statistics = []
        for fold, fold_scores in zip(folds, scores, strict=True):
            n_pvalues = len(fold.pvalue_rows)
            calibration = Calibration.of(fold_scores[:n_pvalues])
            self._calibrations.append(calibration)
            if self.level_ == "conformal" and n_pvalues < len(fold_scores):
                counts = calibration.counts(fold_scores[n_pvalues:])
                P = self._pvalues_of(counts, n_pvalues)
                statistics.append(np.sort(self._statistic(P)))
            else:
                statistics.append(np.empty(0))
        self._statistics = statistics
        self.n_calibration_ = sum(len(c) for c in self._calibrations)
        self.n_level_ = sum(len(q) for q in statistics)
        smallest = self.n_calibration_
        if self.level_ == "conformal":  # the statistics are of one fold each
            smallest = min(len(c) for c in self._calibrations)
        self._warn_if_deaf(smallest)

    def _statistic(self, P):
        """Return the combiner's statistic of p-values; raise if it is NaN."""
        q = np.asarray(self.combiner_.statistic(P), dtype=np.float64)
        if np.isnan(q).any():
            raise ValueError(
                f"{self.combiner_!r} made NaN of the p-values of "
                f"{int(np.isnan(q).sum())} of {len(q)} samples. Repair its statistic()."
            )
        return q

    def _warn_if_deaf(self, n_calibration):
        """Warn if no sample, or no sample that one member rejects, can be rejected."""
        combiner, m = self.combiner_, len(self.named_detectors_)
        level = self._nominal_level(self._alpha)
        if self.level_ == "conformal":
            least = self._pvalues_of(np.zeros((1, m)), n_calibration)
            (q,) = self._statistic(least)
            if q > level or level <= 0.0:
                n_tied = sum(_at_most(ranked, q) for ranked in self._statistics)
                remedy = (
                    "Give more calibration samples, fewer members, or another combiner."
                    if q > 0.0
                    else "Use a combiner whose statistic is seldom 0, such as "
                    "BenjaminiHochberg() or Storey(plus_one=True), and "
                    "method='conformal'."
                )
                warn(
                    f"No sample can be rejected at alpha={self._alpha}: the smallest "
                    f"statistic of {type(combiner).__name__}, {q:.3g}, is that of "
                    f"{n_tied} of the {self.n_level_} calibration samples that levels "
                    f"refer to. {remedy}"
                )
                return
        if self._method == "conformal":
            warn_if_few(combiner, n_calibration, m, level)

    def _pvalues_of(self, counts, n_calibration):
        """Return p-values from counts of scores, see `conformal_pvalues`."""
        if self._method == "ecdf":
            return counts / n_calibration
        return (1.0 + counts) / (n_calibration + 1.0)

    @blockwise
    def _evaluate(self, X):
        """Return the p-values, the statistic and the level of each sample."""
        check_is_fitted(self, "offset_")
        X = _as_rows(X)
        counts, n_below = 0, 0
        all_scores = score_committees(
            list(self.named_detectors_), self._committees, X, n_jobs=self.n_jobs
        )
        for calibration, statistics, scores in zip(
            self._calibrations, self._statistics, all_scores, strict=True
        ):
            found = calibration.counts(scores)
            counts = counts + found
            if self.level_ == "conformal":
                q = self._statistic(self._pvalues_of(found, len(calibration)))
                n_below = n_below + _at_most(statistics, q)
        P = self._pvalues_of(counts, self.n_calibration_)
        if self.level_ == "nominal":
            q = self._statistic(P)
            return Bunch(pvalues=P, statistic=q, level=q)
        if len(self._committees) > 1:
            q = self._statistic(P)
        level = (1.0 + n_below) / (self.n_level_ + 1.0)
        return Bunch(pvalues=P, statistic=q, level=level)

    def _score(self, X):
        return self._scores(self._evaluate(X))

    def _scores(self, found):
        """Return the logarithm of the level, with the statistic as tie-break."""
        scores = np.log(np.maximum(found.level, np.finfo(np.float64).tiny))
        if self.level_ == "conformal":
            with np.errstate(divide="ignore", over="ignore"):
                evidence = np.log1p(1.0 / found.statistic)  # about -log q for small q
            scores -= _TIE_BREAK * (1.0 - 1.0 / (1.0 + evidence))
        return scores

    def levels(self, X):
        """Return the smallest level at which each sample is rejected as OOD.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        Returns
        -------
        levels : ndarray of shape (n_samples,), dtype float64
            The levels. ``score_samples`` returns their logarithm (among equal conformal
            levels, a smaller statistic gives a score smaller by less than 1e-9), and
            ``predict`` rejects samples with a level of at most `alpha`. A conformal
            level is a p-value of the sample; a nominal level can exceed 1.
        """
        return self._evaluate(X).level

    @takes_input
    def pvalues(self, X):
        """Return the p-value of each sample under each member.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        Returns
        -------
        pvalues : ndarray of shape (n_samples, n_members), dtype float64
            Columns in the order of ``named_detectors_``. Small p-values indicate OOD.
        """
        return self._evaluate(X).pvalues

    def selected_detectors(self, X, alpha=None):
        """Return which members reject each sample as OOD.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        alpha : float, default=None
            The level, in (0, 1). None: the level given at fit time.

        Returns
        -------
        selected : ndarray of shape (n_samples, n_members), dtype bool
            The selection of the combiner at the nominal level that corresponds to
            `alpha`; see the :ref:`User Guide <combine>`. With cross-conformal levels,
            accepted samples have no selected members.
        """
        return self._selected(self._evaluate(X), self._checked_alpha(alpha))

    def _checked_alpha(self, alpha):
        check_is_fitted(self, "offset_")
        if alpha is None:
            return self._alpha
        return check_scalar(
            alpha, "alpha", Real, min_val=0, max_val=1, include_boundaries="neither"
        )

    def _selected(self, found, alpha):
        level = self._nominal_level(alpha)
        if level <= 0.0:  # nothing is rejected
            return np.zeros(found.pvalues.shape, dtype=bool)
        selected = self.combiner_.selected(found.pvalues, level)
        if self.level_ == "conformal" and len(self._committees) > 1:
            # levels refer to statistics of single folds, p-values to all samples
            selected &= reaches(found.level, alpha)[:, None]
        return selected

    def _nominal_level(self, alpha):
        """Return the level of the combiner that corresponds to `alpha`."""
        if self.level_ == "nominal":
            return alpha
        # (1 + n_below) / (n + 1) <= alpha: fewer than r statistics are at most q
        r = min(int(np.floor(loosened(alpha * (self.n_level_ + 1)))), self.n_level_)
        if r == 0:
            return 0.0
        pooled = np.sort(np.concatenate(self._statistics))
        return float(pooled[r - 1]) * (1 - 1e-11)

    @available_if(_combiner_has_pi0)
    def pi0(self, X):
        """Return the estimated proportion of members for which each sample is ID.

        Available only if the combiner estimates it.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        Returns
        -------
        pi0 : ndarray of shape (n_samples,), dtype float64
            The estimated proportion of true null hypotheses.
        """
        return self.combiner_.pi0(self._evaluate(X).pvalues)

    @takes_input
    def explain(self, X):
        """Return the p-values and the decision for each sample as a data frame.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        Returns
        -------
        explanation : pandas.DataFrame
            One row per sample, with the index of `X` if it is a data frame. Columns:
            ``score``, ``is_ood``, ``level``, ``statistic`` (of the combiner), ``pi0``
            if the combiner estimates it, ``n_selected``, and ``pvalue_NAME`` and
            ``selected_NAME`` for each member.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        found = self._evaluate(X)
        pd = import_pandas("explain")
        selected = self._selected(found, self._alpha)
        score = self._scores(found)
        columns = {
            "score": score,
            "is_ood": score - self.offset_ < 0,
            "level": found.level,
            "statistic": found.statistic,
        }
        if hasattr(self.combiner_, "pi0"):
            columns["pi0"] = self.combiner_.pi0(found.pvalues)
        columns["n_selected"] = selected.sum(axis=1)
        for j, name in enumerate(self.named_detectors_):
            columns[f"pvalue_{name}"] = found.pvalues[:, j]
        for j, name in enumerate(self.named_detectors_):
            columns[f"selected_{name}"] = selected[:, j]
        return pd.DataFrame(columns, index=X.index if hasattr(X, "iloc") else None)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        members = [one for _, one in self._named_parts() if not isinstance(one, str)]
        inner = [get_tags(one) for one in members if hasattr(one, "get_params")]
        for name, of in (
            ("sparse", all),
            ("allow_nan", all),
            ("positive_only", any),
            ("three_d_array", any),
        ):
            value = bool(inner) and of(getattr(one.input_tags, name) for one in inner)
            setattr(tags.input_tags, name, value)
        if self._fits_estimator:
            inner.append(get_tags(self.estimator))
        tags.target_tags.required = any(one.target_tags.required for one in inner)
        tags.non_deterministic = any(one.non_deterministic for one in inner)
        return tags


def _as_rows(X):
    """Return `X` with a length or a shape; raise for a scalar."""
    X = X if hasattr(X, "shape") or hasattr(X, "__len__") else np.asarray(X)
    if getattr(X, "shape", None) == ():
        raise ValueError(f"Expected 2D array, got scalar array instead: X={X!r}.")
    return X


def _at_most(ranked, q):
    """Count the sorted statistics that are at most `q`, up to rounding."""
    return np.searchsorted(ranked, loosened(q), side="right")
