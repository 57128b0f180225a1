"""DetectorEnsemble: detectors combined by multiple testing of their p-values."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.combine._base_ensemble import BaseDetectorEnsemble
from skood.combine._multiple_tests import BenjaminiHochberg
from skood.utils._param_validation import HasMethods

__all__ = ["DetectorEnsemble"]


class DetectorEnsemble(BaseDetectorEnsemble):
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
