"""DSDE: detectors combined with an estimated proportion of true null hypotheses."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

from skood.combine._base_ensemble import BaseDetectorEnsemble
from skood.combine._multiple_tests import DOSStorey
from skood.utils._param_validation import Interval, StrOptions

__all__ = ["DSDE"]


class DSDE(BaseDetectorEnsemble):
    r"""DSDE: detectors combined by DOS-Storey multiple testing (Geng et al., 2024).

    A `DetectorEnsemble` whose combiner is `DOSStorey`. Among the sorted p-values
    :math:`p_{(1)} \le \dots \le p_{(m)}` of a sample, the index with the largest
    difference of slopes (DOS),

    .. math:: \hat k = \arg\max_{m c_m \le i \le m/2}
       \frac{p_{(2i)} - 2 p_{(i)}}{i^\beta}, \qquad
       \hat\pi_0 = \min\Bigl(1, \frac{1 - \hat k / m}{1 - p_{(\hat k)}}\Bigr),

    gives an estimate of the proportion of members for which the sample is ID, and
    :math:`q = \min_k \hat\pi_0\, m\, p_{(k)} / k` [1]_. If a part of a large library of
    members detects a shift, this rejects more than Benjamini-Hochberg.

    Read more in the :ref:`User Guide <combine>`.

    Parameters
    ----------
    detectors : list of (str, object)
        Names and detectors; see `DetectorEnsemble`.

    beta : float, default=1.0
        Exponent in [1/2, 1] of the difference of slopes.

    c_m : float, default=None
        The smallest share of members that may be the change point. None: 2 / m, which
        needs four members or more.

    fallback : {"bh", "argmax"}, default="bh"
        The behavior if no difference is positive; see `DOSStorey`.

    estimator : object, default=None
        A classifier that is fitted once, and used by all members whose own
        ``estimator`` is None. None: these members are given `X` itself.

    alpha : float, default=0.05
        Level in (0, 1): the share of ID samples that may be rejected.

    calibration : float, int, CV splitter or "same", default=0.2
        The ID samples that p-values and levels refer to; see `DetectorEnsemble`.

    level : {"auto", "conformal", "nominal"}, default="auto"
        The kind of the levels; see `DetectorEnsemble`. "nominal" is the paper's: at
        most :math:`\alpha m / (m - \lfloor m/2 \rfloor)` of the ID samples are rejected
        if the members are independent.

    method : {"conformal", "ecdf"}, default="conformal"
        The kind of the p-values; the paper uses "ecdf".

    n_jobs : int, default=None
        Number of groups of members that are fitted, or score, at once (joblib).

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
    DetectorEnsemble : Ensemble with any combiner.
    DOSStorey : The combiner alone.

    Notes
    -----
    The statistic is not monotone in a single p-value: a larger p-value of one member
    can move the change point, and thereby decrease the statistic.

    References
    ----------
    .. [1] J. Geng et al. DSDE: using proportion estimation to improve model selection
       for out-of-distribution detection. arXiv:2411.01487, 2024.

    .. [2] A. Kostic, P. Fryzlewicz. A change-point approach to estimating the
       proportion of false null hypotheses in multiple testing. arXiv:2309.10017, 2023.

    Examples
    --------
    One method on four networks:

    >>> from sklearn.neural_network import MLPClassifier
    >>> from skood.combine import DSDE
    >>> from skood.datasets import load_digits_ood
    >>> from skood.detectors import KNN
    >>> X, y = load_digits_ood(left_out=[8, 9], ood_label=-1, return_X_y=True)
    >>> library = [
    ...     (
    ...         f"net{i}",
    ...         KNN(MLPClassifier((32,), max_iter=60, random_state=i), n_neighbors=10),
    ...     )
    ...     for i in range(4)
    ... ]
    >>> dsde = DSDE(library, random_state=0).fit(X, y)
    >>> round(dsde.score(X, y), 2)
    0.95
    >>> dsde.pi0(X[y == -1]).shape
    (354,)
    """

    _parameter_constraints: dict = {
        **BaseDetectorEnsemble._parameter_constraints,
        "beta": [Interval(Real, 0.5, 1, closed="both")],
        "c_m": [Interval(Real, 0, 0.5, closed="right"), None],
        "fallback": [StrOptions({"bh", "argmax"})],
    }

    def __init__(
        self,
        detectors,
        beta=1.0,
        c_m=None,
        *,
        fallback="bh",
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
        super().__init__(
            detectors,
            estimator=estimator,
            alpha=alpha,
            calibration=calibration,
            level=level,
            method=method,
            n_jobs=n_jobs,
            verbose=verbose,
            random_state=random_state,
            ood_label=ood_label,
        )
        self.beta = beta
        self.c_m = c_m
        self.fallback = fallback

    def _combiner(self):
        return DOSStorey(beta=self.beta, c_m=self.c_m, fallback=self.fallback)
