"""Detectors whose p-values are combined by multiple testing."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.combine._base_ensemble import BaseDetectorEnsemble
from skood.combine._multiple_tests import BenjaminiHochberg
from skood.utils._param_validation import HasMethods

__all__ = ["DetectorEnsemble"]


class DetectorEnsemble(BaseDetectorEnsemble):
    r"""Detectors combined into one, by multiple testing.

    Each member, a detector with a network, features or a method of its own, turns a
    sample into a p-value: the share of held-out in-distribution (ID) rows that look as
    bad to it,

    .. math:: p_j(x) = \frac{1 + \#\{i : s_j(x_i) \le s_j(x)\}}{n + 1}.

    The `combiner` makes one statistic q(x) of these, the smallest level at which it
    rejects. With ``level="conformal"`` this statistic is ranked among those of other
    held-out rows, whose members share the images just as those of the sample do:

    .. math:: \ell(x) = \frac{1 + \#\{i : q(x_i) \le q(x)\}}{n_2 + 1}, \qquad
       P\bigl(\ell(x) \le \alpha \mid x \text{ is ID}\bigr) \le \alpha,

    under any dependence between the members, if the held-out samples are exchangeable
    with x given the members. With cross-conformal calibration only about
    :math:`2 \alpha` is proved. A sample is rejected where :math:`\ell(x) \le \alpha`,
    and its score is :math:`\log \ell(x)`; samples of equal conformal level are ranked
    by q.

    Read more in the :ref:`User Guide <combine>`.

    Parameters
    ----------
    detectors : list of (str, object)
        Names and detectors: of skood, of scikit-learn (with ``score_samples`` that is
        high for inliers), or pipelines that end in one. They are cloned and fitted,
        unless in a :class:`~sklearn.frozen.FrozenEstimator`. A member can be replaced
        or left out: ``set_params(NAME="drop")``.

    combiner : object, default=None
        Makes one statistic of a sample's p-values, such as `DOSStorey`. None:
        `BenjaminiHochberg`.

    estimator : object, default=None
        A classifier that is fitted once, and read by all members whose own
        ``estimator`` is None. None: these read `X` itself.

    alpha : float, default=0.05
        Level in (0, 1): the share of ID samples that may be rejected.

    calibration : float, int, CV splitter or "same", default=0.2
        Which ID samples p-values and levels refer to. A float in (0, 1): this share of
        the samples is held out, and no member is fitted on it. An int (shuffled folds)
        or a splitter: cross-conformal calibration; members are fitted once per fold,
        each sample calibrates those that were not fitted on it, and a new sample is
        scored by all. "same": all samples, for members that are all frozen, and were
        fitted on *other* samples. Samples are drawn without regard to classes; with
        folds that are stratified by a splitter, levels are not valid.

    level : {"auto", "conformal", "nominal"}, default="auto"
        "nominal": the level is the statistic, as published; the share of rejected ID
        samples is `alpha` only as far as the combiner keeps it. "conformal": half of
        the calibration rows give the p-values, and half rank the statistic.
        "auto": "conformal" where the rows suffice, with cross-conformal calibration
        those of each fold, else "nominal", with a warning.

    method : {"conformal", "ecdf"}, default="conformal"
        The p-values: as above, or those of the empirical distribution, which can be 0;
        see `conformal_pvalues`.

    n_jobs : int, default=None
        How many groups of members are fitted, or score, at once (joblib). Members
        that read the same network are one group.

    verbose : int, default=0
        Whether joblib shows the progress of the fit.

    random_state : int, RandomState instance or None, default=None
        Draws the samples that are held out, and seeds `estimator` and the members
        where their own `random_state` is None.

    ood_label : int or str, default=-1
        Label of known OOD rows in ``y``; they are left out of the fit.

    Attributes
    ----------
    named_detectors_ : Bunch
        The fitted members by name; with cross-conformal calibration those of the first
        fold.

    estimator_ : object
        The fitted classifier, if `estimator` is given; of the first fold.

    combiner_ : object
        The combiner that was calibrated.

    level_ : {"conformal", "nominal"}
        What the levels are.

    n_calibration_ : int
        Number of rows that p-values refer to.

    n_level_ : int
        Number of rows that conformal levels refer to; 0 if they are nominal.

    offset_ : float
        The logarithm of `alpha`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`. Only if `y` was given, or a member knows them.

    See Also
    --------
    DSDE : The same with the estimated proportion of true null hypotheses.
    PValuePlotDisplay : The p-values of a sample, and what the combiner makes of them.
    conformal_pvalues : The p-values alone.

    Notes
    -----
    Members that read the same frozen network, or `estimator`, share one forward pass;
    with cross-conformal calibration, one for each fold in the fit.

    Scores that differ by less than 1e-5 of themselves and of their interquartile range
    count as equal, so that rounding in float32 networks does not move p-values.

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
    0.92
    >>> ensemble.selected_detectors(X[y == -1]).mean(axis=0).round(2)
    array([0.43, 0.08, 0.04])
    """

    _parameter_constraints: dict = {
        **BaseDetectorEnsemble._parameter_constraints,
        "combiner": [HasMethods(["statistic", "selected"]), None],
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
        self.combiner = combiner

    def _combiner(self):
        return BenjaminiHochberg() if self.combiner is None else self.combiner
