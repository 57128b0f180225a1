"""Ensembles of detectors, combined by multiple testing of their p-values."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Bunch, check_random_state, check_scalar
from sklearn.utils.metaestimators import _BaseComposition, available_if

from skood.base import BaseDetector
from skood.combine._levels import Levels, repeated, with_levels
from skood.combine._members import (
    check_members,
    committee_groups,
    fit_committees,
    member_tags,
    member_weights,
    score_committees,
    store_inputs,
)
from skood.combine._multiple_tests import BenjaminiHochberg
from skood.stats._conformal import correction_of
from skood.utils._batches import blockwise
from skood.utils._folds import calibration_folds
from skood.utils._input import takes_input
from skood.utils._metaestimators import n_rows, with_seeds
from skood.utils._named_estimators import check_parts, named_parts
from skood.utils._optional import import_pandas
from skood.utils._param_validation import Classifier, HasMethods, Interval, StrOptions
from skood.utils._ties import loosened


def _combiner_has_pi0(self):
    return hasattr(getattr(self, "combiner_", self._combiner()), "pi0")


class DetectorEnsemble(_BaseComposition, BaseDetector):
    r"""Ensemble of detectors combined by multiple testing of their p-values.

    Each member is a detector, possibly with its own network, features or method, and
    gives each sample a p-value: the share of held-out in-distribution (ID) samples with
    a score that is at most the score of the sample,

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
        Level in (0, 1): the share of ID samples that may be rejected.

    calibration : float, int, CV splitter or "same", default=0.2
        The ID samples that p-values and levels refer to. A float in (0, 1): this share
        of the samples is held out, and no member is fitted on it. An int (shuffled
        folds) or a splitter: cross-conformal calibration; members are fitted once per
        fold, each sample calibrates the members that were not fitted on it, and a new
        sample is scored by all. "same": all samples, for members that are all frozen,
        and were fitted on *other* samples. Samples are drawn without regard to classes;
        with folds that are stratified by a splitter, levels are not valid.

    level : {"auto", "conformal", "nominal"}, default="auto"
        "nominal": the level is the statistic, as published; the share of rejected ID
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
    ... ).fit(X, y)
    >>> round(ensemble.score(X, y), 2)
    0.93
    >>> ensemble.selected_detectors(X[y == -1]).mean(axis=0).round(2)
    array([0.41, 0.09, 0.04])
    """

    _default_parts: dict = {"combiner": BenjaminiHochberg}

    _parameter_constraints: dict = {
        "detectors": "no_validation",  # validated by check_parts
        "combiner": [HasMethods(["statistic", "selected"]), None],
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

    _depends_on_samples = BaseDetector._fits_parts

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

    def get_params(self, deep=True):
        """Get the parameters, including the members by name.

        Parameters
        ----------
        deep : bool, default=True
            Whether to include the members, and their parameters.

        Returns
        -------
        params : dict
            Values by name.
        """
        return self._get_params("detectors", deep=deep)

    def set_params(self, **params):
        """Set parameters of the ensemble, members by name, or parameters of members.

        Parameters
        ----------
        **params : dict
            Values by name.

        Returns
        -------
        self : object
            The estimator.
        """
        return self._set_params("detectors", **params)

    def _combiner(self):
        # not `_part`: a combiner need not be one of ours
        return self._as_part("combiner", self.combiner)

    def _fit(self, X, y, sample_weight=None):
        X = _as_rows(X)
        names, detectors = check_parts(self, "detectors", ("fit", "score_samples"))
        combiner = self._combiner()
        # a combiner that does not support so many members raises here, before the fit
        combiner.statistic(np.full((1, len(names)), 0.5))
        n_samples = n_rows(X)
        check_members(self, names, detectors, y)
        params, counts = member_weights(self, names, detectors, sample_weight)
        rng = check_random_state(self.random_state)
        rows = calibration_folds(n_samples, y, self.calibration, rng)
        seeds = None if self.random_state is None else rng
        estimator, *detectors = with_seeds([self.estimator, *detectors], seeds)
        correction = correction_of(combiner, len(names)) or 1.0
        folds, level = with_levels(rows, self.level, self.alpha, correction, counts)
        committees, estimators, scores = fit_committees(
            names,
            detectors,
            estimator,
            X,
            y,
            [(fold.train, np.concatenate(fold[1:])) for fold in folds],
            params=params,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
        )
        if counts is not None:
            pairs = [repeated(*one, counts) for one in zip(folds, scores, strict=True)]
            folds, scores = zip(*pairs, strict=True)
        self._committees = committees
        self._groups = committee_groups(committees)
        self.named_detectors_ = Bunch(**dict(zip(names, committees[0], strict=True)))
        self.level_ = level
        if self.estimator is not None:
            self.estimator_ = estimators[0]
        store_inputs(self, [estimators[0], *committees[0]], y)
        self.combiner_ = clone(combiner, safe=False)
        self._alpha = float(self.alpha)
        self._levels = Levels.of(self.combiner_, self.method, level, folds, scores)
        self.n_calibration_ = self._levels.n_calibration
        self.n_level_ = self._levels.n_level
        self._levels.warn_if_deaf(self._alpha, len(names))
        # A level that equals alpha up to rounding is rejected.
        self.offset_ = float(np.log(loosened(self._alpha)))

    def _fitted_parts(self):
        return {**super()._fitted_parts(), **dict(named_parts(self.detectors))}

    @property
    def _fits_estimator(self):
        return self.estimator is not None and not isinstance(
            self.estimator, FrozenEstimator
        )

    @blockwise
    def _evaluate(self, X):
        """Return the p-values, the statistic and the level of each sample."""
        self._check_fitted()
        X = _as_rows(X)
        names = list(self.named_detectors_)
        scores = score_committees(
            names, self._committees, self._groups, X, n_jobs=self.n_jobs
        )
        return self._levels.evaluate(scores)

    def _score(self, X):
        found = self._evaluate(X)
        return self._levels.log_level(found)

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
        found, alpha = self._evaluate(X), self._checked_alpha(alpha)
        return self._levels.selected(found, alpha)

    def _checked_alpha(self, alpha):
        self._check_fitted()
        if alpha is None:
            return self._alpha
        return check_scalar(
            alpha, "alpha", Real, min_val=0, max_val=1, include_boundaries="neither"
        )

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
        selected = self._levels.selected(found, self._alpha)
        score = self._levels.log_level(found)
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
        return member_tags(tags, self, [one for _, one in named_parts(self.detectors)])


def _as_rows(X):
    """Return `X` with a length or a shape; raise for a scalar."""
    X = X if hasattr(X, "shape") or hasattr(X, "__len__") else np.asarray(X)
    if getattr(X, "shape", None) == ():
        raise ValueError(f"Expected 2D array, got scalar array instead: X={X!r}.")
    return X
