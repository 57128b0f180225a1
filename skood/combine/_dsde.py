"""DSDE: detectors combined with an estimated proportion of true null hypotheses."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.combine._detector_ensemble import DetectorEnsemble
from skood.combine._multiple_tests import DOSStorey


class DSDE(DetectorEnsemble):
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

    combiner : object, default=None
        None: ``DOSStorey()``, which needs four members or more. The exponent `beta`,
        the smallest share `c_m` of members that may be the change point, and the
        `fallback` without a change point are parameters of `DOSStorey`.

    estimator : object, default=None
        A classifier for the members; see `DetectorEnsemble`.

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
        See `DetectorEnsemble`.

    verbose : int, default=0
        See `DetectorEnsemble`.

    random_state : int, RandomState instance or None, default=None
        See `DetectorEnsemble`.

    ood_label : int or str, default=-1
        Label of known OOD samples in ``y``; they are left out of the fit.

    Attributes
    ----------
    named_detectors_, estimator_, combiner_, level_ : object
        See `DetectorEnsemble`.

    n_calibration_, n_level_, offset_, classes_ : object
        See `DetectorEnsemble`.

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

    _default_parts: dict = {"combiner": DOSStorey}
