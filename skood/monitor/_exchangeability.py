"""Monitor of exchangeability: conformal test martingale on ranks of scores."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass, replace
from numbers import Integral, Real
from operator import attrgetter

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skood.stats._betting import Bettors, Capital, History, detectable_shift
from skood.stats._reference_ranks import SHAPES, ReferenceScores, stream_uniforms
from skood.utils._atomic_fit import fresh_fit
from skood.utils._estimator import SkoodEstimator
from skood.utils._folds import calibration_folds, warn_of_training_samples
from skood.utils._input import check_input, named_errors, takes_input
from skood.utils._metaestimators import (
    copy_input_attributes,
    n_rows,
    take_rows,
    wrapped_tags,
)
from skood.utils._param_validation import HasMethods, Number, StrOptions, fit_context
from skood.utils._scores import check_scores
from skood.utils._stored import stored
from skood.utils._warnings import warn

# Samples processed at once.
_CHUNK = 4096

# From this number of calibration samples no warning about delays is emitted.
_FEW = 30


@stored
@dataclass(frozen=True)
class Progress:
    """State of a monitor after some samples; replaced by every update.

    ``total`` of shape (n_shapes,) is S; `n_seen` counts all samples of the stream,
    `n_used` the samples that the monitor uses.
    """

    total: np.ndarray
    capital: Capital
    history: History
    n_seen: int = 0
    n_used: int = 0


class FittedMonitor(SkoodEstimator):
    """Base class of monitors that are fitted on samples of normal operation."""

    _state = "progress_"  # an attribute of fitted monitors

    @takes_input
    def partial_fit(self, X, y=None):
        """Add samples of the stream; the same as `fit` on an unfitted monitor.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New samples, or what else `update` takes.

        y : array-like of shape (n_samples,), default=None
            Labels for a first fit; ignored later.

        Returns
        -------
        self : object
            The monitor.
        """
        if not hasattr(self, self._state):
            return self.fit(X, y)
        self.update(X)
        return self


class ExchangeabilityMonitor(FittedMonitor):
    r"""Alarm, at any time, if scores after deployment differ from normal operation.

    A conformal test martingale [1]_, [2]_ on the ranks :math:`j_t \in \{0, \dots, n\}`
    of the scores of a stream among `n` calibration scores. If calibration samples and
    stream are exchangeable, then :math:`P(j_t = j \mid j_1, \dots, j_{t-1}) = (1 +
    c_j) / (n + t)` with :math:`c_j` earlier samples of rank `j`, for every
    distribution. Bets :math:`f` of mean one on ranks give factors

    .. math:: b_t = f(j_t) \frac{n + t}{S_{t-1}}, \qquad
       S_t = S_{t-1} + f(j_t), \quad S_0 = n + 1,

    of conditional mean one. The martingale is a mixture over seven bets and over the
    sample at which betting starts, so that :math:`P(M_t \ge 1/\alpha \text{ for any }
    t) \le \alpha` [3]_ with a calibration set of any size and a stream without end.

    The promise needs exchangeable samples: repeated or autocorrelated samples break it
    (see `every` and :func:`serial_dependence`).

    Read more in the :ref:`User Guide <monitor>`.

    Parameters
    ----------
    detector : object, callable or None, default=None
        A detector with ``score_samples`` (high for ID samples), which is cloned and
        fitted unless it is in a :class:`~sklearn.frozen.FrozenEstimator`; a callable
        from `X` to scores of shape (n_samples,); or None: `X` contains scores.

    alpha : float, default=0.01
        Probability of a false alarm, ever, in (0, 1).

    alternative : {"ood", "id", "any"}, default="ood"
        The change to detect: lower scores, higher scores, or both.

    guarantee : {"anytime", "run_length"}, default="anytime"
        "anytime": at most `alpha` as the probability of a false alarm. "run_length":
        the Shiryaev-Roberts e-detector [4]_, with at least `run_length` samples to a
        false alarm on average; it detects small changes earlier.

    run_length : float, default=10_000
        Mean number of samples to a false alarm for ``guarantee="run_length"``.

    time_scale : float, default=1000
        The prior probability of no change before sample t is ``1 / (1 + log(1 + t /
        time_scale))``; for ``guarantee="anytime"``.

    calibration : float, default=0.5
        Fraction of the samples of `fit` for calibration, in (0, 1), if the detector has
        to be fitted on the other samples.

    ties : {"random", "conservative"}, default="random"
        Equal scores are ranked at random, or such that the martingale is never above
        the martingale of any random ranking, which is weak for scores with few values.

    shuffle : bool, default=False
        Whether to permute the samples of each call: for batches in a meaningless order,
        such as sorted by class. The result then depends on how the stream is cut.

    every : int, default=1
        Use the samples 1, k + 1, 2 k + 1, ... of calibration and stream only, for
        autocorrelated streams.

    random_state : int, RandomState instance or None, default=None
        Seed of the split, tie-breakers and permutations.

    Attributes
    ----------
    detector_ : object
        The fitted detector, the callable, or None.

    n_calibration_ : int
        Number of calibration samples.

    reference_ : object
        Sorted calibration scores, and the bets.

    bettors_ : object
        Weights and names of the bets, and the threshold of the log martingale.

    seed_ : int
        Seed of the tie-breakers and permutations of the stream.

    progress_ : object
        State after the samples seen so far.

    n_seen_ : int
        Number of samples of the stream, including skipped ones.

    log_martingale_ : float
        Log martingale, or log statistic of the e-detector, now.

    max_log_martingale_ : float
        Its maximum since the fit or the last restart.

    threshold_ : float
        The log martingale at which the alarm is raised.

    leader_ : tuple of (str, str, int)
        Direction, shape and start of the bet with the largest capital now.

    alarm_ : Alarm or None
        The first alarm since the fit or the last restart.

    alarms_ : list of Alarm
        All alarms since the fit.

    history_ : Bunch
        Arrays ``row``, ``log_martingale`` and ``largest`` of at most 2048 blocks of
        samples: their last sample, and the last and largest log martingale in it.

    n_features_in_ : int
        Number of features seen in fit, if the detector has it.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, if the detector has them.

    See Also
    --------
    detectable_shift : The smallest shift that can be detected.
    serial_dependence : Test of scores in the order of time for dependence.

    Notes
    -----
    The probability is over the calibration samples and the stream: for a given
    calibration set it varies. Fewer than 30 calibration samples raise a warning.

    Monitors cannot be merged, since each sample is ranked among all samples before it.
    If a stream is split over several machines, give each a monitor of its own, and
    combine them with a :class:`MonitorPanel`.

    References
    ----------
    .. [1] V. Vovk, I. Nouretdinov, A. Gammerman. Testing exchangeability on-line. ICML,
       2003.

    .. [2] V. Vovk. Testing randomness online. Statistical Science, 2021.

    .. [3] J. Ville. Étude critique de la notion de collectif. Gauthier-Villars, 1939.

    .. [4] J. Shin, A. Ramdas, A. Rinaldo. E-detectors: a nonparametric framework for
       sequential change detection. arXiv:2203.03532, 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.monitor import ExchangeabilityMonitor
    >>> rng = np.random.default_rng(0)
    >>> monitor = ExchangeabilityMonitor(random_state=0).fit(rng.normal(size=500))
    >>> print(monitor.partial_fit(rng.normal(size=1000)).alarm_)
    None
    >>> monitor.partial_fit(rng.normal(size=300) - 1).alarm_
    Alarm(row=1021, start=999, direction='ood', shape='shift 1', log_evidence=4.845...)
    """

    _parameter_constraints: dict = {
        "detector": [HasMethods(["fit", "score_samples"]), callable, None],
        "alpha": [Number(Real, 0, 1, closed="neither")],
        "alternative": [StrOptions({"ood", "id", "any"})],
        "guarantee": [StrOptions({"anytime", "run_length"})],
        "run_length": [Number(Real, 1, None, closed="neither")],
        "time_scale": [Number(Real, 0, None, closed="neither")],
        "calibration": [Number(Real, 0, 1, closed="neither")],
        "ties": [StrOptions({"random", "conservative"})],
        "shuffle": ["boolean"],
        "every": [Number(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        detector=None,
        *,
        alpha=0.01,
        alternative="ood",
        guarantee="anytime",
        run_length=10_000,
        time_scale=1000,
        calibration=0.5,
        ties="random",
        shuffle=False,
        every=1,
        random_state=None,
    ):
        self.detector = detector
        self.alpha = alpha
        self.alternative = alternative
        self.guarantee = guarantee
        self.run_length = run_length
        self.time_scale = time_scale
        self.calibration = calibration
        self.ties = ties
        self.shuffle = shuffle
        self.every = every
        self.random_state = random_state

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y=None):
        """Fit the detector, if needed, and rank calibration samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples of normal operation, with their usual fraction of OOD samples, that
            the detector was not fitted on; scores of shape (n_samples,) or (n_samples,
            1) without a detector.

        y : array-like of shape (n_samples,), default=None
            Labels for a detector that has to be fitted.

        Returns
        -------
        self : object
            The fitted monitor.

        Raises
        ------
        ValueError
            If there are fewer than two calibration samples, or a score is NaN.

        Warns
        -----
        SkoodWarning
            If 5 % of the samples or more are training samples of a frozen detector, or
            there are fewer than 30 calibration samples.
        """
        with fresh_fit(self):
            rng = check_random_state(self.random_state)
            scores = self._calibrate(X, y, rng)[:: self.every]
            n = len(scores)
            if n < 2:
                raise ValueError(
                    f"A monitor needs at least 2 calibration samples, got n_samples={n}"
                    f" of {n_rows(X)} samples (every={self.every}). Give more samples."
                )
            if n < _FEW:
                warn(
                    f"Only {n} calibration samples: the alarm level holds, but shifts "
                    f"below {detectable_shift(n, self.alpha):.2g} standard deviations "
                    "will hardly be detected. Give more samples of normal operation."
                )
            conservative = self.ties == "conservative"
            ties = rng.random_sample(n)
            self.reference_ = ReferenceScores.make(
                scores, ties, self.alternative, conservative
            )
            self.bettors_ = self._bettors()
            self.seed_ = int(rng.randint(2**31 - 1))
            self.n_calibration_ = n
            total = np.full(self.reference_.table.shape[1], n + 1.0)
            capital = Capital.initial(self.bettors_)
            self.progress_ = Progress(total, capital, History.empty())
        return self

    def _calibrate(self, X, y, rng):
        """Fit the detector and return the scores of the calibration samples."""
        detector = self.detector
        if isinstance(detector, type):
            raise ValueError(
                f"detector must be an object, got the class {detector.__name__}. Write "
                f"{detector.__name__}(), with parentheses."
            )
        if hasattr(detector, "fit") and not isinstance(detector, FrozenEstimator):
            folds = calibration_folds(n_rows(X), None, float(self.calibration), rng)
            [(train, held_out)] = folds
            fitted = clone(detector)
            with named_errors(detector):
                fitted.fit(
                    *(take_rows(array, train) for array in (X, y) if array is not None)
                )
            X = take_rows(X, np.sort(held_out))
            detector = fitted
        self.detector_ = detector
        copy_input_attributes(self, detector)
        scores = self._scores(X)
        warn_of_training_samples(X, detector)
        return scores

    def _bettors(self):
        """Return weights, names and threshold of the bets."""
        sides = ("ood", "id") if self.alternative == "any" else (self.alternative,)
        labels = tuple((side, shape) for side in sides for shape in SHAPES)
        weight = np.full(len(labels), -np.log(len(labels)))
        if self.guarantee == "run_length":
            return Bettors(weight, labels, float(np.log(self.run_length)), None)
        return Bettors(
            weight, labels, float(-np.log(self.alpha)), float(self.time_scale)
        )

    def update(self, X):
        """Add samples of the stream, in the order given.

        Every sample counts, rejected ones as well.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New samples, or scores as in `fit`. An empty batch changes nothing.

        Returns
        -------
        log_martingale : ndarray of shape (n_samples,)
            Log martingale (log statistic of the e-detector for
            ``guarantee="run_length"``) after each sample; skipped samples repeat the
            last value.

        Raises
        ------
        ValueError
            If a score is NaN. The state is then as before.
        """
        if not hasattr(self, "detector_"):  # faster than check_is_fitted alone
            check_is_fitted(self)
        X = check_input(X)
        if n_rows(X) == 0:
            return np.empty(0)
        path, self.progress_ = self._advance(self._scores(X))
        return path

    def restart(self):
        """Continue after an alarm that was a false one.

        Bets start again, the ranks seen so far stay: the probability of an alarm from
        now on, given all before, is again at most `alpha`. For a new normal, call `fit`
        on samples of it instead.

        Returns
        -------
        self : object
            The monitor.
        """
        check_is_fitted(self)
        capital = Capital.initial(self.bettors_, self.progress_.capital.alarms)
        self.progress_ = replace(self.progress_, capital=capital)
        return self

    def _scores(self, X):
        """Return scores of shape (n_samples,) without NaN."""
        detector = self.detector_
        if detector is None:
            return check_scores(X, "X of a monitor without a detector")
        score = detector.score_samples if hasattr(detector, "fit") else detector
        return check_scores(score(X), "The output of the detector", n_samples=n_rows(X))

    def _advance(self, scores, times=None):
        """Return the path over samples, and the progress after them.

        `times` are numbers of the samples in the stream of a panel.
        """
        now, every = self.progress_, self.every
        if self.shuffle:
            rng = np.random.default_rng([self.seed_, now.n_seen, 1])
            scores = scores[rng.permutation(len(scores))]
        first = -now.n_seen % every  # the first sample to use
        used = scores[first::every] if every > 1 else scores
        if (
            len(scores) == 1 and first == 0 and times is None
        ):  # for the speed of small calls
            return self._chunk(now, scores, now.n_seen + 1)
        n_seen = now.n_seen
        paths = [np.full(min(first, len(scores)), now.capital.log_martingale)]
        for at in range(0, len(used), _CHUNK):
            block = slice(at, at + _CHUNK)
            numbers = None if times is None else times[block]
            path, now = self._chunk(now, used[block], n_seen, numbers)
            paths.append(np.repeat(path, every) if every > 1 else path)
        path = np.concatenate(paths)[: len(scores)]
        return path, replace(now, n_seen=n_seen + len(scores))

    def _chunk(self, now, scores, n_seen, times=None):
        """Return the path over samples that are used, and the new progress."""

        def draw_ties(positions):
            return stream_uniforms(self.seed_, now.n_used + positions)

        n_before = self.n_calibration_ + now.n_used
        bets, total = self.reference_.bets(scores, draw_ties, now.total, n_before)
        n_used = now.n_used + len(scores)
        if times is None:
            times = np.arange(now.n_used, n_used) * self.every + 1
        path, capital = now.capital.advance(self.bettors_, bets, times)
        history = now.history.extend(times, path)
        return path, Progress(total, capital, history, n_seen, n_used)

    # Documented by the class, not by `attrgetter`.
    n_seen_ = property(attrgetter("progress_.n_seen"), doc="")
    log_martingale_ = property(attrgetter("progress_.capital.log_martingale"), doc="")
    max_log_martingale_ = property(attrgetter("progress_.capital.largest"), doc="")
    threshold_ = property(attrgetter("bettors_.threshold"), doc="")
    alarm_ = property(attrgetter("progress_.capital.alarm"), doc="")

    @property
    def leader_(self):
        return self.progress_.capital.leader(self.bettors_)

    @property
    def alarms_(self):
        return list(self.progress_.capital.alarms)

    @property
    def history_(self):
        return self.progress_.history.table()

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        if hasattr(self.detector, "fit"):
            tags = wrapped_tags(tags, self.detector)
        return tags
