"""NoveltySelector: detectors that select the OOD samples of a batch."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import clone

from skood.combine._base_committee import METHODS, BaseCommittee, Fold
from skood.selection._best_of import BestOf
from skood.selection._scores import as_matrix
from skood.selection._step_up import Selection, StepUp, evalues_of, select_novelties
from skood.stats._conformal import Calibration
from skood.stats._evalues import e_bh
from skood.stats._ranks import check_level
from skood.utils._batches import loaded_blocks
from skood.utils._input import takes_input
from skood.utils._metaestimators import take_rows
from skood.utils._named_estimators import PYOD_ADVICE
from skood.utils._optional import import_pandas
from skood.utils._param_validation import HasMethods, Interval
from skood.utils._stored import stored
from skood.utils._ties import loosened
from skood.utils._warnings import warn

# Samples of equal p-values are ranked by their scores, with differences below this.
_TIE_BREAK = 1e-9

# Scores are clipped here, so that differences are finite.
_LARGE = 1e300

# Size of a batch with the smallest p-values only, from which some are selected.
_MANY = 1000


class NoveltySelector(BaseCommittee):
    r"""Selector of the OOD samples of a batch, with a bound on false discoveries.

    Holds in-distribution (ID) samples out, fits one or several detectors on the others,
    and turns scores into conformal p-values, relative to the n held-out samples. For a
    batch of m samples, :math:`m_0` of them ID, :meth:`select` returns samples such that
    the false discovery rate, the expected fraction of ID samples among the selected
    ones,

    .. math:: \mathrm{FDR} = E\Bigl[\frac{V}{\max(R, 1)}\Bigr] \le \alpha,

    if the ID samples of the batch are exchangeable with the held-out samples. Nothing
    is assumed of OOD samples. Duplicates, time series, drift, and held-out samples that
    a frozen detector was trained on violate the assumption.

    :meth:`select` is the only method for which the samples of a call depend on each
    other. ``score_samples`` and ``predict`` decide each sample alone: a sample is OOD
    if its p-value is at most `alpha`, as is the fraction of rejected ID samples.

    Read more in the :ref:`User Guide <selection>`.

    Parameters
    ----------
    detectors : object or list of (str, object)
        A detector, or names and detectors: of skood (also a
        :class:`~skood.combine.DSDE`), of scikit-learn (with a ``score_samples`` that is
        high for inliers), or pipelines that end in one. They are cloned and fitted,
        unless in a :class:`~sklearn.frozen.FrozenEstimator`.

    estimator : object, default=None
        A classifier that is fitted once, and used by all detectors whose own
        ``estimator`` is None. None: these detectors are given `X` itself.

    procedure : StepUp, ConditionalStepUp or object, default=None
        How samples are selected by the p-values of one detector. None: ``StepUp()``,
        the procedure of Benjamini and Hochberg, which is the only one for several.

    choice : BestOf, ClassifierFusion or object, default=None
        How several detectors are used. None: ``BestOf()`` for a list of two or more.

    alpha : float, default=0.1
        Level in (0, 1), chosen before looking at the batch.

    calibration : float, int, CV splitter or "same", default=0.5
        The held-out samples. A float in (0, 1): this fraction, drawn without regard to
        classes. "same": all samples, for detectors that are all frozen, and were fitted
        on *other* samples. An int (shuffled folds) or a splitter: cross-conformal
        calibration of one detector, for which no bound is proved.

    n_splits : int, default=1
        Number of random splits. With several, e-values are averaged over splits, see
        `evalue_selection`: selections vary less between runs, and have less power.

    delta : float, default=None
        If given, :meth:`select` also returns an upper bound on the fraction of ID
        samples among the selected ones that holds with probability 1 - delta, also if
        `alpha` is chosen after looking. One split only.

    n_jobs : int, default=None
        Number of groups of detectors that are fitted, or score, at once (joblib).

    verbose : int, default=0
        Verbosity of joblib during the fit.

    random_state : int, RandomState instance or None, default=None
        Draws the held-out samples and the numbers of `choice` and `ties`, and seeds
        `estimator` and the detectors where their own `random_state` is None.

    ood_label : int or str, default=-1
        Label of known OOD samples in ``y``; they are left out of the fit.

    Attributes
    ----------
    named_detectors_ : Bunch
        The fitted detectors by name, of the first split. The name of a single one is
        "detector".

    estimator_ : object
        The fitted classifier, if `estimator` is given; of the first split.

    n_calibration_ : int
        Number of held-out samples; with several splits, of the smallest.

    guarantee_ : {"fdr", "none"}
        Whether the false discovery rate is bounded: not with folds or a splitter.

    choice_, procedure_ : object
        The choice among detectors (None for one detector), and the procedure.

    offset_ : float
        The logarithm of `alpha`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`. Only if `y` was given, or a detector has them.

    See Also
    --------
    select_novelties : Selection by given p-values.
    skood.combine.DetectorEnsemble : Several detectors decide on single samples.

    Notes
    -----
    To find OOD samples that are a fraction :math:`\pi` of the batch, about
    :math:`3 / (\alpha \pi)` held-out samples are needed. The false discovery rate is
    bounded for new samples, not for the training samples.

    References
    ----------
    .. [1] S. Bates, E. Candes, L. Lei, Y. Romano, M. Sesia. Testing for outliers with
       conformal p-values. Annals of Statistics 51, 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.datasets import load_digits_ood
    >>> from skood.detectors import KNN
    >>> from skood.selection import NoveltySelector, fdp_power
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, y = load_digits_ood(left_out=[8, 9], ood_label=-1, return_X_y=True)
    >>> is_test = np.random.default_rng(0).random(len(X)) < 0.3
    >>> knn = KNN(n_neighbors=5, normalize=True)  # contrast does not matter
    >>> scaled = make_pipeline(StandardScaler(), knn)
    >>> selector = NoveltySelector(
    ...     [("knn", knn), ("scaled", scaled)], alpha=0.2, random_state=0
    ... ).fit(X[~is_test], y[~is_test])
    >>> batch = selector.select(X[is_test])
    >>> fdp_power(batch.selected, y[is_test] == -1)
    FDPPower(fdp=0.0769..., power=0.4067...)
    """

    _default_parts: dict = {"procedure": StepUp, "choice": BestOf}

    _parameter_constraints: dict = {
        **BaseCommittee._parameter_constraints,
        "procedure": [HasMethods(["selected"]), None],
        "choice": [HasMethods(["select"]), None],
        "n_splits": [Interval(Integral, 1, None, closed="left")],
        "delta": [Interval(Real, 0, 1, closed="neither"), None],
    }

    def __init__(
        self,
        detectors,
        *,
        estimator=None,
        procedure=None,
        choice=None,
        alpha=0.1,
        calibration=0.5,
        n_splits=1,
        delta=None,
        n_jobs=None,
        verbose=0,
        random_state=None,
        ood_label=-1,
    ):
        self.detectors = detectors
        self.estimator = estimator
        self.procedure = procedure
        self.choice = choice
        self.alpha = alpha
        self.calibration = calibration
        self.n_splits = n_splits
        self.delta = delta
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state
        self.ood_label = ood_label

    def _named_members(self):
        detector = self.detectors
        if isinstance(detector, (list, tuple)):
            return super()._named_members()
        if isinstance(detector, type) or not all(hasattr(detector, m) for m in METHODS):
            raise TypeError(
                "detectors must be a detector with fit and score_samples, or a list of "
                f"(name, detector), got {detector!r}. Instead {PYOD_ADVICE}."
            )
        return ["detector"], [detector]

    @property
    def _is_cross(self):
        """Return whether folds, or a splitter, calibrate: without a proof."""
        calibration = self.calibration
        is_fraction = isinstance(calibration, (str, Real))
        return isinstance(calibration, Integral) or not is_fraction

    def _check_members(self, names, detectors, y):
        self.choice_: Any = None
        if len(names) > 1 or self.choice is not None:
            choice = self._as_part("choice", self.choice)
            self.choice_ = clone(choice, safe=False)
        several = self.choice_ is not None
        if several and self.procedure is not None:
            raise ValueError(
                "procedure is for the p-values of one detector, but there are "
                f"{len(names)} detectors or a choice. Leave it out: a choice among "
                "detectors uses the procedure of Benjamini and Hochberg."
            )
        is_cross = self._is_cross
        if is_cross and (several or self.n_splits > 1):
            raise ValueError(
                f"calibration={self.calibration!r} is cross-conformal, and for one "
                "detector without a choice and n_splits=1. Hold a fraction of the "
                "samples out, such as calibration=0.5."
            )
        if self.n_splits > 1 and isinstance(self.calibration, str):
            raise ValueError(
                f"calibration='same' has one split, got n_splits={self.n_splits}."
            )
        if self.n_splits > 1 and self.procedure is not None:
            raise ValueError(
                "n_splits > 1 selects by e-values, and uses no procedure. Leave "
                "procedure or n_splits out."
            )
        if self.n_splits > 1 and several and not isinstance(self.choice_, BestOf):
            raise ValueError(
                "n_splits > 1 needs e-values, which BestOf has, got "
                f"choice={self.choice!r}."
            )
        if self.delta is not None and (is_cross or self.n_splits > 1):
            raise ValueError(
                "delta bounds the fraction of false discoveries for one random split. "
                "Leave it out, or hold a fraction of the samples out once, such as "
                "calibration=0.5."
            )
        if hasattr(self.choice_, "_validate_params"):
            self.choice_._validate_params()
        super()._check_members(names, detectors, y)

    def _folds(self, n_members, n_samples, y, counts, rng):
        folds = []
        for _ in range(self.n_splits):
            folds += super()._folds(n_members, n_samples, y, counts, rng)
        return folds

    def _calibrate(self, X, folds, scores, rng):
        self._held_out = list(map(Fold.repeated, folds, scores))
        self.procedure_ = clone(self._as_part("procedure", self.procedure), safe=False)
        self._samples = None
        if getattr(self.choice_, "classifier", None) is not None:
            held_out = folds[0].repeated(folds[0].held_out)
            self._samples = as_matrix(take_rows(X, held_out))
        self._ranks = SplitRanks.of(self._held_out, self._is_cross)
        self._delta = self.delta
        self.guarantee_ = "none" if self._is_cross else "fdr"
        self.n_calibration_ = self._ranks.n_calibration
        self._warn_if_few()
        self._seed = int(rng.randint(np.iinfo(np.int32).max))

    def _warn_if_few(self):
        """Warn if no sample of any batch is selected."""
        n, choice, alpha = self.n_calibration_, self.choice_, self._alpha
        if choice is not None and hasattr(choice, "_n_calibration"):
            # it takes reference samples
            n = choice._n_calibration(n, len(self.named_detectors_))
        level = alpha if self.n_splits == 1 else alpha / 2
        smallest = np.full(_MANY, 1.0 / (n + 1))
        if not np.any(self.procedure_.selected(smallest, n, level)):
            warn(
                f"No sample can be selected: with {n} calibration samples, p-values "
                f"are at least 1/{n + 1}, too large for alpha={alpha:g}. Hold out more "
                "samples."
            )

    def _score(self, X):
        return self._ranks.log_pvalues(self._member_scores(X))

    @takes_input
    def pvalues(self, X):
        """Return the p-value of each sample under each detector.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        Returns
        -------
        pvalues : ndarray of shape (n_samples, n_detectors), dtype float64
            Columns in the order of ``named_detectors_``. Small p-values indicate OOD.
            With several splits, twice the mean over splits, at most 1.
        """
        self._check_fitted()
        return over_splits(self._ranks.pvalues(self._batch_scores(X)))

    def _batch_scores(self, X):
        if getattr(X, "shape", (1,))[:1] == (0,):  # detectors take one sample or more
            return np.empty((len(self._held_out), 0, len(self.named_detectors_)))
        return np.concatenate([*map(self._member_scores, loaded_blocks(X))], axis=1)

    @takes_input
    def select(self, X, *, alpha=None, ties="conservative"):
        r"""Select the OOD samples of a batch.

        The samples of the call depend on each other: they are the batch that the false
        discovery rate refers to. The fitted selector does not change.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The batch.

        alpha : float, default=None
            The level in (0, 1), chosen before looking at the batch. None: the level
            given at fit time.

        ties : {"conservative", "random"}, default="conservative"
            "random": ties with calibration scores are broken at random, see
            :func:`~skood.combine.conformal_pvalues`, which gives power for scores with
            few values. The bound holds. The selection depends on the `random_state` of
            the fit and on the order of the batch. For one detector and one split.

        Returns
        -------
        selection : Selection
            The selected samples, with p-values, the chosen detector of each sample, and
            with a single detector q-values.

        Raises
        ------
        TypeError, ValueError
            If `X` or `alpha` is invalid.
        """
        self._check_fitted()
        alpha = self._alpha if alpha is None else check_level(alpha)
        self._check_ties(ties)
        return self._select(X, self._batch_scores(X), alpha, ties)

    def _check_ties(self, ties):
        """Raise if ties are not broken in one of two ways, or need one p-value."""
        if ties not in ("conservative", "random"):
            raise ValueError(f"ties must be 'conservative' or 'random', got {ties!r}.")
        several = self.choice_ is not None or len(self._held_out) > 1
        if ties == "random" and several:
            raise ValueError(
                "ties='random' is for the p-values of one detector and one split, got "
                f"{len(self.named_detectors_)} detectors, choice={self.choice_!r} and "
                f"{len(self._held_out)} splits or folds."
            )

    def _select(self, X, scores, alpha, ties):
        names: list | None = list(self.named_detectors_)
        choice = self.choice_
        if len(self._held_out) > 1 and not self._ranks.is_cross:
            return self._select_by_evalues(scores, alpha)
        if choice is None:
            is_random = ties == "random"
            rng = np.random.default_rng([self._seed, 1]) if is_random else None
            p = self._ranks.pvalues(scores, rng)[0, :, 0]
            selection = select_novelties(
                p, self.n_calibration_, alpha, self.procedure_, delta=self._delta
            )
            return replace(
                selection, detector=np.full(len(p), next(iter(self.named_detectors_)))
            )
        test, calibration = scores[0], self._held_out[0]
        if self._samples is not None:
            test, calibration, names = as_matrix(X), self._samples, None
        options = {} if self._delta is None else {"delta": self._delta}
        options |= {"names": names, "random_state": self._seed}
        return choice.select(test, calibration, alpha, **options)

    def _select_by_evalues(self, scores, alpha):
        """Select by the mean of the e-values of each split."""
        P, evalues = self._ranks.pvalues(scores), []
        for b, calibration in enumerate(self._held_out):
            if self.choice_ is None:
                n = len(calibration)
                ranks = np.rint(P[b, :, 0] * (n + 1)).astype(np.intp)
                evalues.append(evalues_of(ranks, n, alpha / 2))
                continue
            rng = np.random.RandomState([self._seed, b])
            choose = self.choice_.evalues
            evalues.append(choose(scores[b], calibration, alpha / 2, random_state=rng))
        return Selection(
            selected=e_bh(np.mean(evalues, axis=0), alpha),
            pvalues=sample_pvalues(P),
            alpha=alpha,
            n_calibration=self.n_calibration_,
        )

    @takes_input
    def explain(self, X, *, alpha=None, ties="conservative"):
        r"""Return the selection of a batch, and the detectors that reject, as a frame.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The batch.

        alpha : float, default=None
            The level; see `select`.

        ties : {"conservative", "random"}, default="conservative"
            See `select`.

        Returns
        -------
        explanation : pandas.DataFrame
            One row per sample, with the index of `X` if it is a data frame. Columns:
            ``selected``, ``pvalue``, ``qvalue`` and ``detector`` where the selection
            has them; for each detector ``pvalue_NAME`` and ``rejects_NAME``: the sample
            is selected, and its p-value under the detector is at most
            :math:`\alpha R / m`, for R selected samples of m. This is a description,
            after Benjamini and Bogomolov (2014), without a proof.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        self._check_fitted()
        pd = import_pandas("explain")
        alpha = self._alpha if alpha is None else check_level(alpha)
        self._check_ties(ties)
        scores = self._batch_scores(X)
        batch = self._select(X, scores, alpha, ties)
        P = over_splits(self._ranks.pvalues(scores))
        if ties == "random":  # of one detector
            P = batch.pvalues[:, None]
        columns = {"selected": batch.selected, "pvalue": batch.pvalues}
        if batch.qvalues is not None:
            columns["qvalue"] = batch.qvalues
        if batch.detector is not None:
            columns["detector"] = batch.detector
        level = loosened(alpha * batch.n_selected / max(len(P), 1))
        for j, name in enumerate(self.named_detectors_):
            columns[f"pvalue_{name}"] = P[:, j]
        for j, name in enumerate(self.named_detectors_):
            columns[f"rejects_{name}"] = batch.selected & (P[:, j] <= level)
        return pd.DataFrame(columns, index=X.index if hasattr(X, "iloc") else None)


@stored
@dataclass(frozen=True)
class SplitRanks:
    """Calibration scores of each split, or of each fold of a cross-conformal one."""

    calibrations: list
    spreads: list  # medians and interquartile ranges of each
    is_cross: bool

    @classmethod
    def of(cls, held_out, is_cross):
        """Calibrate on the scores of each split, (n_held_out, n_detectors)."""
        calibrations = list(map(Calibration.of, held_out))
        ranked = [calibration.scores for calibration in calibrations]
        return cls(calibrations, list(map(_spread, ranked)), is_cross)

    @property
    def n_calibration(self):
        """Number of held-out samples; of the smallest split if there are several."""
        sizes = list(map(len, self.calibrations))
        return sum(sizes) if self.is_cross else min(sizes)

    def pvalues(self, scores, rng=None):
        """Return p-values by each split, (n_splits, n_samples, n_detectors).

        With a generator `rng`, ties are broken at random.
        """
        pairs = list(zip(self.calibrations, scores, strict=True))
        counts = [
            calibration.counts(split_scores, rng) for calibration, split_scores in pairs
        ]
        if self.is_cross:
            total = np.sum(counts, axis=0, keepdims=True)
            return (1.0 + total) / (self.n_calibration + 1.0)
        return np.stack(
            [
                (1.0 + split_counts) / (len(calibration) + 1.0)
                for split_counts, (calibration, _) in zip(counts, pairs, strict=True)
            ]
        )

    def log_pvalues(self, scores):
        """Return the logarithm of the p-value of each sample, ties broken by scores."""
        p = sample_pvalues(self.pvalues(scores))
        pairs = zip(scores, self.spreads, strict=True)
        above = [_fraction(split_scores, *spread) for split_scores, spread in pairs]
        return np.log(p) - _TIE_BREAK * (1 - np.mean(above, axis=(0, 2)))


def over_splits(P):
    """Return p-values of all splits: twice the mean is valid under any dependence."""
    return P[0] if len(P) == 1 else np.minimum(1.0, 2.0 * P.mean(axis=0))


def sample_pvalues(P):
    """Return one p-value per sample, by Bonferroni over detectors, then over splits."""
    smallest = np.minimum(1.0, P.shape[2] * P.min(axis=2))
    return over_splits(smallest)


def _spread(ranked):
    """Return medians and interquartile ranges (1 if 0) of sorted columns of scores."""
    ranked = np.clip(ranked, -_LARGE, _LARGE)
    low, center, high = np.quantile(ranked, [0.25, 0.5, 0.75], axis=0)
    return center, np.where(high > low, high - low, 1.0)


def _fraction(scores, center, spread):
    """Return a strictly increasing function of scores with values in [0, 1]."""
    with np.errstate(over="ignore"):
        z = (np.clip(scores, -_LARGE, _LARGE) - center) / spread
    z = np.clip(z, -_LARGE, _LARGE)
    return 0.5 + 0.5 * z / (1.0 + np.abs(z))
