"""DSDE: detectors combined with an estimated proportion of true null hypotheses."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from sklearn.base import clone

from skood.combine._base_committee import BaseCommittee
from skood.combine._detector_ensemble import DetectorEnsemble
from skood.combine._multiple_tests import DOSStorey
from skood.utils._metaestimators import unwrapped


class DSDE(DetectorEnsemble):
    r"""DSDE: detectors combined by DOS-Storey multiple testing (Geng et al., 2024).

    A `DetectorEnsemble` whose combiner is `DOSStorey`, of four members or more. Among
    the sorted p-values
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

    c_m : float, default=None
        The smallest fraction of members that may be the change point, in (0, 0.5]; see
        `DOSStorey`. None: its default.

        .. versionadded:: 0.2

    beta : float, default=1.0
        The exponent, in [0.5, 1].

        .. versionadded:: 0.2

    estimator : object, default=None
        A classifier for the members; see `DetectorEnsemble`.

    alpha : float, default=0.05
        Level in (0, 1): the fraction of ID samples that may be rejected.

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
    detector_library : Members for several networks.
    DOSStorey : The combiner alone.

    Notes
    -----
    The statistic is not monotone in a single p-value: a larger p-value of one member
    can move the change point, and thereby decrease the statistic.

    References
    ----------
    .. [1] J. Geng, Y. Zhang, J. Huang, F. Xue, F. Tan, C. Xie, S. Zhang. DSDE: using
       proportion estimation to improve model selection for out-of-distribution
       detection. arXiv:2411.01487, 2024.

    .. [2] A. Kostic, P. Fryzlewicz. A change-point approach to estimating the
       proportion of false null hypotheses in multiple testing. arXiv:2309.10017, 2023.

    Examples
    --------
    One method on four networks:

    >>> from sklearn.neural_network import MLPClassifier
    >>> from skood.combine import DSDE, detector_library
    >>> from skood.datasets import load_digits_ood
    >>> from skood.detectors import KNN
    >>> X, y = load_digits_ood(left_out=[8, 9], ood_label=-1, return_X_y=True)
    >>> nets = [MLPClassifier((32,), max_iter=60, random_state=i) for i in range(4)]
    >>> library = detector_library(KNN(n_neighbors=10), nets)
    >>> dsde = DSDE(library, random_state=0).fit(X[:1000], y[:1000])
    >>> round(dsde.score(X[1000:], y[1000:]), 2)
    0.87
    >>> dsde.pi0(X[y == -1][:4]).round(2)
    array([1.  , 0.51, 1.  , 1.  ])
    """

    _default_parts: dict = {"combiner": DOSStorey}
    _combiner_params = ("c_m", "beta")

    _parameter_constraints: dict = {
        **BaseCommittee._parameter_constraints,
        "level": DetectorEnsemble._parameter_constraints["level"],
        "method": DetectorEnsemble._parameter_constraints["method"],
        "c_m": DOSStorey._parameter_constraints["c_m"],
        "beta": DOSStorey._parameter_constraints["beta"],
    }

    def __init__(
        self,
        detectors,
        *,
        c_m=None,
        beta=1.0,
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
        self.c_m = c_m
        self.beta = beta

    @classmethod
    def as_published(cls, detectors, *, c_m=2 / 7, beta=1.0, **params):
        """Make the published ensemble: ECDF p-values and nominal levels.

        Parameters
        ----------
        detectors, c_m, beta, **params : object
            As of `DSDE`, except `level` and `method`.

        Returns
        -------
        ensemble : DSDE
            The ensemble, not fitted.
        """
        params = {"c_m": c_m, "beta": beta, **params}
        return cls(detectors, level="nominal", method="ecdf", **params)


def detector_library(detectors, estimators):
    """Make the members of an ensemble: each detector on each network.

    .. versionadded:: 0.2

    Parameters
    ----------
    detectors : object, list or dict
        A detector whose `estimator` is None, or several.

    estimators : list or dict
        The networks: classifiers to fit, or in a
        :class:`~sklearn.frozen.FrozenEstimator`.

    Returns
    -------
    library : list of (str, object)
        Clones of the detectors, by the name of the network, or ``DETECTOR_NETWORK`` if
        there are several detectors. Names are the keys of a dict, or lowercase names of
        classes, numbered if a class occurs more than once.

    See Also
    --------
    DSDE : Ensemble of the members.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.combine import detector_library
    >>> from skood.detectors import KNN, MSP
    >>> nets = {"weak": LogisticRegression(C=0.01), "strong": LogisticRegression()}
    >>> [name for name, _ in detector_library([KNN(), MSP()], nets)]
    ['knn_weak', 'knn_strong', 'msp_weak', 'msp_strong']
    """
    is_single = not isinstance(detectors, (list, tuple, dict))
    library = []
    for name, detector in _named([detectors] if is_single else detectors):
        has_params = hasattr(detector, "get_params") and not isinstance(detector, type)
        params = detector.get_params(deep=False) if has_params else {}
        if "estimator" not in params or params["estimator"] is not None:
            raise ValueError(
                "Each detector of a library needs a parameter estimator that is None, "
                f"for the networks, got {detector!r}. Pass for example KNN()."
            )
        for network, estimator in _named(estimators):
            member = clone(detector).set_params(estimator=estimator)
            library.append((network if is_single else f"{name}_{network}", member))
    return library


def _named(parts):
    """Return names and estimators: of a dict, or made of the names of classes."""
    if isinstance(parts, dict):
        return parts.items()
    kinds = [type(unwrapped(part)).__name__.lower() for part in parts]
    names = [
        f"{kind}-{kinds[: i + 1].count(kind)}" if kinds.count(kind) > 1 else kind
        for i, kind in enumerate(kinds)
    ]
    return list(zip(names, parts, strict=True))
