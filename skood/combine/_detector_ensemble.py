"""Ensembles of detectors, combined by multiple testing of their p-values."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.base import clone
from sklearn.utils import Bunch, check_scalar
from sklearn.utils.metaestimators import available_if

from skood.combine._base_combiner import BaseCombiner
from skood.combine._base_committee import BaseCommittee
from skood.combine._multiple_tests import BenjaminiHochberg
from skood.stats._conformal import (
    Calibration,
    correction_of,
    pvalues_of,
    reaches,
    size_needed,
    warn_if_few,
)
from skood.utils._batches import blockwise
from skood.utils._input import takes_input
from skood.utils._optional import import_pandas
from skood.utils._param_validation import HasMethods, StrOptions
from skood.utils._stored import stored
from skood.utils._ties import loosened
from skood.utils._warnings import warn

# Conformal levels take few values. This weight of a tie-break separates samples of the
# same level without changing the order of different levels.
_TIE_BREAK = 1e-9

# Held-out samples for p-values, and those for levels.
_HALVES = slice(None, None, 2), slice(1, None, 2)


class DetectorEnsemble(BaseCommittee):
    r"""Ensemble of detectors combined by multiple testing of their p-values.

    Each member is a detector, possibly with its own network, features or method, and
    gives each sample a p-value: the fraction of held-out in-distribution (ID) samples
    with a score that is at most the score of the sample,

    .. math:: p_j(x) = \frac{1 + \#\{i : s_j(x_i) \le s_j(x)\}}{n + 1}.

    The `combiner` computes one statistic q(x) of these p-values, the smallest level at
    which it rejects. With ``level="conformal"`` this statistic is ranked among the
    statistics of other held-out samples, for which the members are dependent in the
    same way as for x:

    .. math:: \ell(x) = \frac{1 + \#\{i : q(x_i) \le q(x)\}}{n_2 + 1}, \qquad
       P\bigl(\ell(x) \le \alpha \mid x \text{ is ID}\bigr) \le \alpha,

    under any dependence between the members, if the held-out samples are exchangeable
    with x given the members. With cross-conformal calibration, only a bound of about
    :math:`2 \alpha` is proved. A sample is rejected if :math:`\ell(x) \le \alpha`, and
    its score is :math:`\log \ell(x)`; samples of equal conformal level are ranked by q.

    Read more in the :ref:`User Guide <combine>`.

    Parameters
    ----------
    detectors : list of (str, object)
        Names and detectors: detectors of skood, of scikit-learn (with a
        ``score_samples`` that is high for inliers), or pipelines that end in one. They
        are cloned and fitted, unless in a :class:`~sklearn.frozen.FrozenEstimator`. A
        member can be replaced or left out: ``set_params(NAME="drop")``.

    combiner : object, default=None
        Computes one statistic of a sample's p-values, such as `DOSStorey`. None:
        `BenjaminiHochberg`.

    estimator : object, default=None
        A classifier that is fitted once, and used by all members whose own
        ``estimator`` is None. None: these members are given `X` itself.

    alpha : float, default=0.05
        Level in (0, 1): the fraction of ID samples that may be rejected.

    calibration : float, int, CV splitter or "same", default=0.2
        The ID samples that p-values and levels refer to. A float in (0, 1): this
        fraction of the samples is held out, and no member is fitted on it. An int
        (shuffled folds) or a splitter: cross-conformal calibration; members are fitted
        once per fold, each sample calibrates the members that were not fitted on it,
        and a new sample is scored by all. "same": all samples, for members that are all
        frozen, and were fitted on *other* samples. Samples are drawn without regard to
        classes; with folds that are stratified by a splitter, levels are not valid.

    level : {"auto", "conformal", "nominal"}, default="auto"
        "nominal": the level is the statistic, as published; the fraction of rejected ID
        samples is at most `alpha` only where the combiner guarantees it. "conformal":
        half of the calibration samples give the p-values, and half rank the statistic.
        "auto": "conformal" if there are enough calibration samples (with
        cross-conformal calibration, in each fold), else "nominal", with a warning.

    method : {"conformal", "ecdf"}, default="conformal"
        The p-values: "conformal" is the formula above, "ecdf" the empirical
        distribution function, which can be 0; see `conformal_pvalues`.

    n_jobs : int, default=None
        Number of groups of members that are fitted, or score, at once (joblib). Members
        that use the same network form one group.

    verbose : int, default=0
        Verbosity of joblib during the fit.

    random_state : int, RandomState instance or None, default=None
        Draws the samples that are held out, and seeds `estimator` and the members
        where their own `random_state` is None.

    ood_label : int or str, default=-1
        Label of known OOD samples in ``y``; they are left out of the fit.

    Attributes
    ----------
    named_detectors_ : Bunch
        The fitted members by name; with cross-conformal calibration, the members of the
        first fold. Only their scores are used: their own thresholds come from
        training samples and may reject more than `contamination` of new ID samples.

    estimator_ : object
        The fitted classifier, if `estimator` is given; with folds, that of the first.

    combiner_ : object
        The combiner that was calibrated.

    level_ : {"conformal", "nominal"}
        The kind of the levels.

    n_calibration_ : int
        Number of samples that p-values refer to.

    n_level_ : int
        Number of samples that conformal levels refer to; 0 if they are nominal.

    offset_ : float
        The logarithm of `alpha`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`. Only if `y` was given, or a member has them.

    See Also
    --------
    DSDE : Ensemble with an estimated proportion of true null hypotheses.
    PValuePlotDisplay : Plot of the p-values of a sample and their combination.
    conformal_pvalues : The p-values alone.

    Notes
    -----
    Members that use the same frozen network, or `estimator`, share one forward pass;
    with cross-conformal calibration, one for each fold in the fit.

    Scores whose difference is less than 1e-5 of their magnitude and of their
    interquartile range count as equal, so that rounding in float32 networks does not
    change p-values.

    References
    ----------
    .. [1] S. Bates, E. Candes, L. Lei, Y. Romano, M. Sesia. Testing for outliers with
       conformal p-values. Annals of Statistics 51, 2023.

    .. [2] V. Vovk. Cross-conformal predictors. Annals of Mathematics and Artificial
       Intelligence 74, 2015.

    Examples
    --------
    >>> from sklearn.ensemble import IsolationForest
    >>> from skood.combine import DetectorEnsemble
    >>> from skood.datasets import load_digits_ood
    >>> from skood.detectors import KNN, Mahalanobis
    >>> from sklearn.covariance import LedoitWolf
    >>> X, y = load_digits_ood(left_out=[8, 9], ood_label=-1, return_X_y=True)
    >>> ensemble = DetectorEnsemble(
    ...     [
    ...         ("knn", KNN(n_neighbors=5)),
    ...         ("mahalanobis", Mahalanobis(covariance=LedoitWolf())),
    ...         ("forest", IsolationForest(random_state=0)),
    ...     ],
    ...     random_state=0,
    ... ).fit(X[:1000], y[:1000])
    >>> round(ensemble.score(X[1000:], y[1000:]), 2)
    0.86
    >>> ensemble.selected_detectors(X[y == -1]).mean(axis=0).round(2)
    array([0.6 , 0.59, 0.24])
    """

    _default_parts: dict = {"combiner": BenjaminiHochberg}
    _combiner_params: tuple = ()  # of a preset, which has no other combiner

    _parameter_constraints: dict = {
        **BaseCommittee._parameter_constraints,
        "combiner": [HasMethods(["statistic", "selected"]), None],
        "level": [StrOptions({"auto", "nominal", "conformal"})],
        "method": [StrOptions({"conformal", "ecdf"})],
    }

    def __init__(
        self,
        detectors,
        combiner=None,
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
        self.combiner = combiner
        self.estimator = estimator
        self.alpha = alpha
        self.calibration = calibration
        self.level = level
        self.method = method
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state
        self.ood_label = ood_label

    def _make_combiner(self):
        if self.combiner is not None:
            return self.combiner
        params = {name: getattr(self, name) for name in self._combiner_params}
        return self._default_parts["combiner"](**params)

    def _check_members(self, names, detectors, y):
        combiner = self._make_combiner()
        # a combiner that does not support so many members raises here, before the fit
        combiner.statistic(np.full((1, len(names)), 0.5))
        self.combiner_ = clone(combiner, safe=False)
        super()._check_members(names, detectors, y)

    def _folds(self, n_members, n_samples, y, counts, rng):
        """Return the folds; choose the kind of the levels by their sizes."""
        folds = super()._folds(n_members, n_samples, y, counts, rng)
        sizes = [
            len(fold.repeated(fold.held_out, half))
            for fold in folds
            for half in _HALVES
        ]
        self.level_ = kind_of_levels(
            np.reshape(sizes, (-1, 2)),
            self.level,
            self.alpha,
            correction_of(self.combiner_, n_members) or 1.0,
        )
        return folds

    def _calibrate(self, X, folds, scores, rng):
        levels = Levels(self.combiner_, self.method, self.level_, [], [])
        for fold, fold_scores in zip(folds, scores, strict=True):
            levels.add_fold(fold, fold_scores)
        self._levels = levels
        self.n_calibration_ = levels.n_calibration
        self.n_level_ = levels.n_level
        levels.warn_if_deaf(self._alpha, len(self.named_detectors_))

    def __skood_share__(self, shared):
        """Share the fit with other candidates of a search, see `RuleSearchCV`.

        Returns names of parameters that fit nothing, and what else a fit depends on.
        """
        shared(self, "_calibration_folds", "_in_parallel")
        shared(self, "_member_scores", by_samples=True)
        return ("combiner", "alpha", "level", "method", *self._combiner_params), None

    @blockwise
    def _evaluate(self, X):
        """Return the p-values, the statistic and the level of each sample."""
        self._check_fitted()
        return self._levels.evaluate(self._member_scores(X))

    def _score(self, X):
        return self._levels.log_level(self._levels.evaluate(self._member_scores(X)))

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
        evaluation, alpha = self._evaluate(X), self._checked_alpha(alpha)
        return self._levels.selected(evaluation, alpha)

    def _checked_alpha(self, alpha):
        self._check_fitted()
        if alpha is None:
            return self._alpha
        return check_scalar(
            alpha, "alpha", Real, min_val=0, max_val=1, include_boundaries="neither"
        )

    def _has_pi0(self):
        return hasattr(getattr(self, "combiner_", self._make_combiner()), "pi0")

    @available_if(_has_pi0)
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
        evaluation = self._evaluate(X)
        pd = import_pandas("explain")
        selected = self._levels.selected(evaluation, self._alpha)
        score = self._levels.log_level(evaluation)
        columns = {
            "score": score,
            "is_ood": score - self.offset_ < 0,
            "level": evaluation.level,
            "statistic": evaluation.statistic,
        }
        if hasattr(self.combiner_, "pi0"):
            columns["pi0"] = self.combiner_.pi0(evaluation.pvalues)
        columns["n_selected"] = selected.sum(axis=1)
        for j, name in enumerate(self.named_detectors_):
            columns[f"pvalue_{name}"] = evaluation.pvalues[:, j]
        for j, name in enumerate(self.named_detectors_):
            columns[f"selected_{name}"] = selected[:, j]
        return pd.DataFrame(columns, index=X.index if hasattr(X, "iloc") else None)


def kind_of_levels(sizes, level, alpha, correction=1.0):
    """Return "conformal" or "nominal"; warn if "auto" cannot be conformal, or raise.

    `sizes` (n_folds, 2) are the numbers of held-out samples that would give p-values,
    and that would rank statistics. `correction` is the combiner's factor of a single
    small p-value, which in each fold must reach `alpha` for "auto".
    """
    if level == "nominal":
        return "nominal"
    n_level, needed = sizes[:, 1].sum(), size_needed(1.0, alpha)
    if n_level < needed:
        least = (
            f"needs {needed} samples at alpha={alpha} to rank the combined statistics "
            f"among, and as many for p-values; of the {sizes.sum()} samples held out "
            f"{n_level} can be had. Give more samples, a larger calibration fraction"
        )
        if level == "conformal":
            raise ValueError(
                f"level='conformal' {least}, a larger alpha, or level='nominal'."
            )
        warn(
            f"The level is nominal: it holds only if the combiner is valid under "
            f"dependence: level='conformal' {least} or a larger alpha."
        )
        return "nominal"
    smallest = sizes[:, 0].min()
    if level == "auto" and len(sizes) > 1 and smallest < size_needed(correction, alpha):
        warn(
            "The level is nominal, which is kept only as far as the combiner keeps it "
            f"under dependence: with level='conformal' only {smallest} samples of a "
            f"fold would give p-values, and at alpha={alpha} no single member can "
            f"reject a sample with fewer than {size_needed(correction, alpha)}. Give "
            "more samples, or fewer folds."
        )
        return "nominal"
    return "conformal"


@stored
@dataclass(frozen=True)
class Levels:
    """A combiner with the calibration scores and statistics of each fold."""

    combiner: Any
    method: str
    kind: str
    calibrations: list
    statistics: list  # sorted, empty unless levels are conformal

    def add_fold(self, fold, scores):
        """Calibrate on the scores of the held-out samples of a fold.

        If levels are conformal, every second one ranks statistics.
        """
        is_conformal = self.kind == "conformal"
        for_pvalues, for_levels = _HALVES if is_conformal else (slice(None), slice(0))
        calibration = Calibration.of(fold.repeated(scores, for_pvalues))
        scores, statistics = fold.repeated(scores, for_levels), np.empty(0)
        if len(scores):
            counts = calibration.counts(scores)
            P = pvalues_of(counts, len(calibration), self.method)
            statistics = np.sort(self.statistic(P))
        self.calibrations.append(calibration)
        self.statistics.append(statistics)

    @property
    def n_calibration(self):
        """Number of samples that p-values refer to."""
        return sum(map(len, self.calibrations))

    @property
    def n_level(self):
        """Number of samples that conformal levels refer to."""
        return sum(map(len, self.statistics))

    def statistic(self, P):
        """Return the combiner's statistic of p-values; raise if it is NaN."""
        # the fit has validated the parameters, and P is made of p-values
        if getattr(type(self.combiner), "statistic", None) is BaseCombiner.statistic:
            q = self.combiner._by_sample(P, self.combiner._statistic)
        else:
            with config_context(skip_parameter_validation=True):
                q = np.asarray(self.combiner.statistic(P), dtype=np.float64)
        if np.isnan(q).any():
            raise ValueError(
                f"{self.combiner!r} made NaN of the p-values of "
                f"{int(np.isnan(q).sum())} of {len(q)} samples. Repair its statistic()."
            )
        return q

    def evaluate(self, scores):
        """Return p-values, statistics and levels from the scores of each committee."""
        counts = n_calibration = n_below = n_level = 0
        for calibration, statistics, fold_scores in zip(
            self.calibrations, self.statistics, scores, strict=True
        ):
            fold_counts = calibration.counts(fold_scores)
            counts = counts + fold_counts
            n_fold, n_level = len(calibration.scores), n_level + len(statistics)
            n_calibration += n_fold
            if self.kind == "conformal":
                q = self.statistic(pvalues_of(fold_counts, n_fold, self.method))
                n_below += np.searchsorted(statistics, loosened(q), side="right")
        P = pvalues_of(counts, n_calibration, self.method)
        if self.kind == "nominal":
            q = self.statistic(P)
            return Bunch(pvalues=P, statistic=q, level=q)
        if len(self.calibrations) > 1:
            q = self.statistic(P)
        level = (1.0 + n_below) / (n_level + 1.0)
        return Bunch(pvalues=P, statistic=q, level=level)

    def log_level(self, evaluation):
        """Return the logarithm of the level, with the statistic as tie-break."""
        scores = np.log(np.maximum(evaluation.level, np.finfo(np.float64).tiny))
        if self.kind == "conformal":
            with np.errstate(divide="ignore", over="ignore"):
                # about -log q for small q
                evidence = np.log1p(1.0 / evaluation.statistic)
            scores -= _TIE_BREAK * (1.0 - 1.0 / (1.0 + evidence))
        return scores

    def nominal(self, alpha):
        """Return the level of the combiner that corresponds to `alpha`."""
        if self.kind == "nominal":
            return alpha
        # (1 + n_below) / (n + 1) <= alpha: fewer than r statistics are at most q
        r = min(int(np.floor(loosened(alpha * (self.n_level + 1)))), self.n_level)
        if r == 0:
            return 0.0
        pooled = np.sort(np.concatenate(self.statistics))
        return float(pooled[r - 1]) * (1 - 1e-11)

    def selected(self, evaluation, alpha):
        """Return the members that reject each sample, (n_samples, n_members)."""
        level = self.nominal(alpha)
        if level <= 0.0:  # nothing is rejected
            return np.zeros(evaluation.pvalues.shape, dtype=bool)
        selected = self.combiner.selected(evaluation.pvalues, level)
        if self.kind == "conformal" and len(self.calibrations) > 1:
            # levels refer to statistics of single folds, p-values to all samples
            selected &= reaches(evaluation.level, alpha)[:, None]
        return selected

    def warn_if_deaf(self, alpha, n_members):
        """Warn if no sample, or no sample that one member rejects, can be rejected."""
        n_calibration, level = self.n_calibration, self.nominal(alpha)
        if self.kind == "conformal":  # the statistics are of one fold each
            n_calibration = min(map(len, self.calibrations))
            least = pvalues_of(np.zeros((1, n_members)), n_calibration, self.method)
            (q,) = self.statistic(least)
            if q > level or level <= 0.0:
                n_tied = sum(
                    np.sum(ranked <= loosened(q)) for ranked in self.statistics
                )
                remedy = (
                    "Give more calibration samples, fewer members, or another combiner."
                    if q > 0.0
                    else "Use a combiner whose statistic is seldom 0, such as "
                    "BenjaminiHochberg() or Storey(plus_one=True), and "
                    "method='conformal'."
                )
                warn(
                    f"No sample can be rejected at alpha={alpha}: the smallest "
                    f"statistic of {type(self.combiner).__name__}, {q:.3g}, is that of "
                    f"{n_tied} of the {self.n_level} calibration samples that levels "
                    f"refer to. {remedy}"
                )
                return
        if self.method == "conformal":
            warn_if_few(self.combiner, n_calibration, n_members, level)
