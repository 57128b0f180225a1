"""Options of `solve` and `certify`, also as parameters of an estimator."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from numbers import Integral, Real

from skood.decision._bounded_rules import BoundedErrorRate
from skood.utils._estimator import BaseOptions
from skood.utils._param_validation import Interval, Number, StrOptions


class Solver(BaseOptions):
    """Search for the best operating point: the options of :func:`solve`.

    Read more in the :ref:`User Guide <rejection_solvers>`.

    Parameters
    ----------
    method : {"bnb", "exact", "grid"}, default="bnb"
        How angles are searched; at each angle, all thresholds are evaluated.

        - "bnb": branch and bound over all angles, down to a certified gap of `tol` (or,
          after 5000 intervals, the remaining gap). The result is never worse than the
          result of "grid".
        - "exact": all angles at which two samples change order, for at most 5000
          samples.
        - "grid": `n_angles` angles; nothing is certified.

    angles : {"quadrant", "full"}, default="quadrant"
        "quadrant": [0, pi/2], so that both scores count against acceptance. "full":
        [-pi, pi), so that a score may be used reversed, with a warning.

    n_angles : int, default=None
        Number of angles of "grid", which "bnb" also evaluates where a better rule is
        possible. Both ends of a quadrant are included, so that two scores are never
        worse than either of them alone (if all are finite). With "full" it is rounded
        up to a multiple of 4. None: 360, and 16 for a :class:`Certificate` with "ltt",
        which certifies each angle with ``delta / n_angles``.

    tol : float, default=1e-5
        Gap of the objective at which "bnb" stops.

    randomize : bool, default=False
        Accept the samples at the threshold with a probability, if this is better. The
        bounds then hold for expected counts and are not rounded to whole samples. The
        gap covers the angles at which only equal samples are tied.

    infeasible : {"raise", "nearest"}, default="raise"
        Behavior if no rule meets the bounds. "nearest": return the rule closest to
        them, with a warning, see the notes of :func:`solve`; not with a guarantee.

    See Also
    --------
    solve : The function.
    RejectOptionClassifier : Has a solver as a parameter.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.rejection import RejectOptionClassifier, Solver
    >>> clf = RejectOptionClassifier(LogisticRegression(), solver=Solver(tol=1e-4))
    >>> clf.set_params(solver__randomize=True).solver
    Solver(randomize=True, tol=0.0001)
    """

    _parameter_constraints: dict = {
        "method": [StrOptions({"bnb", "exact", "grid"})],
        "angles": [StrOptions({"quadrant", "full"})],
        "n_angles": [Interval(Integral, 2, None, closed="left"), None],
        "tol": [Number(Real, 0, None, closed="left")],
        "randomize": ["boolean"],
        "infeasible": [StrOptions({"raise", "nearest"})],
    }

    def __init__(
        self,
        method="bnb",
        *,
        angles="quadrant",
        n_angles=None,
        tol=1e-5,
        randomize=False,
        infeasible="raise",
    ):
        self.method = method
        self.angles = angles
        self.n_angles = n_angles
        self.tol = tol
        self.randomize = randomize
        self.infeasible = infeasible

    def _check_certifiable(self):
        """Raise if a guarantee excludes an option."""
        if self.randomize:
            raise ValueError(
                "randomize=True and a guarantee exclude each other: certified "
                "thresholds are scores. Set one of them back."
            )
        if self.infeasible == "nearest":
            raise ValueError(
                "infeasible='nearest' and a guarantee exclude each other: bounds that "
                "no rule meets cannot be certified. Set one of them back."
            )


class Shift(BaseOptions):
    """Difference between the distributions in deployment and of the samples.

    Read more in the :ref:`User Guide <guarantees_shift>`.

    Parameters
    ----------
    weights : {"importance", "frequency"}, default="importance"
        Meaning of the weights of the samples.

        - "importance": density ratio, up to a factor, of the distributions in
          deployment and of the samples (covariate shift). Bounds on the TPR, FPR and
          selective risk are certified for the distribution that the weights describe.
          This is exact for weights that are a fixed function of a sample, but
          **approximate** for the distribution in deployment if the function is an
          estimate.
        - "frequency": how many independent observations a sample stands for. Copies of
          one observation are no frequency, and would void the guarantee.

    weight_max : float, default=None
        Largest possible importance weight, fixed beforehand. Estimated weights can be
        clipped to it.

    tv : float, default=0.0
        Total variation distance, in [0, 1), between each distribution in deployment and
        the distribution of the samples, weighted if they have weights. Bounds are
        tested with a margin, so that they hold for all distributions within it.

    See Also
    --------
    Certificate : Has a shift as a parameter.

    Examples
    --------
    >>> from skood.rejection import Certificate, Shift
    >>> Certificate(shift=Shift(tv=0.1)).set_params(shift__tv=0.05)
    Certificate(shift=Shift(tv=0.05))
    """

    _parameter_constraints: dict = {
        "weights": [StrOptions({"importance", "frequency"})],
        "weight_max": [Interval(Real, 0, None, closed="neither"), None],
        "tv": [Interval(Real, 0, 1, closed="left")],
    }

    def __init__(self, weights="importance", *, weight_max=None, tv=0.0):
        self.weights = weights
        self.weight_max = weight_max
        self.tv = tv


class Certificate(BaseOptions):
    r"""Kind of guarantee for new data: the options of :func:`certify`.

    Read more in the :ref:`User Guide <guarantees>`.

    Parameters
    ----------
    method : {"high_probability", "ltt", "expectation"}, default="high_probability"
        Kind of guarantee.

        - "high_probability": with a probability of at least ``1 - delta``, all bounds
          hold on new data. One part of the samples chooses a path of candidate rules,
          the others certify them in their order ("path" in the notes of
          :func:`certify`).
        - "ltt": the same guarantee. All samples certify thresholds at each of
          the `n_angles` angles of a :class:`Solver` (learn then test), except for a
          tenth of the ID samples, which set the scales of the scores.
        - "expectation": the TPR and the FPR are within their bounds on average over
          the draw of the given samples, by conformal order statistics. About half of
          all draws break a bound. `delta` is not used.

        With one score, bounds on the TPR, FPR or precision alone, and neither groups
        nor sources, all samples certify thresholds ("interval" in these notes).

    delta : float, default=0.1
        Probability, in (0, 1), that the guarantee fails: that a rule is returned and
        breaks a bound. It is a fraction of all draws of the samples, not of the draws
        for which a rule is certified. Another `random_state` after a refusal voids it,
        unless it is one of the `n_candidates`.

    n_candidates : int, default=1
        Number of certificates from which one is chosen after they were tried on these
        samples, for example for several predictors, scores, rules or random states;
        `delta` is divided by it. Fix it before the first, and pass it to all.

    sampling : {"separate", "mixture"}, default="separate"
        How the samples were drawn.

        - "separate": ID and OOD samples are two independent sets.
        - "mixture": they came together, independent draws from the mixture in
          deployment, so that :class:`BoundedErrorRate` needs no prior.

        .. versionadded:: 0.2

    split : float, ndarray of shape (n_samples,) or None, default=None
        Fraction of the ID and of the OOD samples that choose candidates; not for "ltt".
        None: 0.4, and 0.2 for :class:`BoundedErrorRate` and a mixture. An eighth of it
        with one score, a bounded selective risk and the coverage as the objective. Or a
        mask, True for the samples that choose: these may be from other distributions,
        since only the others certify.

    ood_prior : float or tuple (low, high), default=None
        For rules with a prior, such as BoundedPrecisionRecall: the fraction of OOD
        samples in deployment, or an interval for it; the guarantee holds for all of its
        values. None: the `ood_prior` of the rule.

    max_loss : float, default=None
        Largest possible loss, for a bound on the selective risk. It must be known
        beforehand: clip losses of unknown range to it. None: 1, or the largest loss of
        the estimator that has the certificate.

    shift : Shift, default=None
        Difference between the distributions in deployment and of the samples. None:
        ``Shift()``.

    within : {"class", "predicted_class", "groups"} or None, default=None
        Bounds on the TPR and the risk then hold within every true class, within every
        predicted class, or within every group of the `groups` given to `fit`. Bounds
        within every true class hold for all class priors. None: for all ID samples
        together. For estimators: :func:`certify` takes groups from its samples.

    thresholds : {"shared", "group"}, default="shared"
        "group": each group, such as a predicted class, has its own threshold, at a
        common angle, and `lam` of the rule is a dict with them. Groups must be
        available for new samples, so that they cannot be true classes; samples of other
        groups are rejected.

    small_groups : {"raise", "pool", "skip"}, default="raise"
        What happens to groups with too few samples to certify a bound even if all of
        them are accepted: an error, they become one group, or they are left out and
        named in the certificate. Groups that are left out have no threshold of their
        own: with ``thresholds="group"`` their samples are rejected.

    schedule : {"each", "all"}, default="each"
        Guarantee of several certificates, of `fit` and of each call of `recalibrate`.
        "each": each certificate fails with a probability of at most `delta`. "all":
        any of them does, without an end: the m-th fails with a probability of at most
        :math:`6 \delta / (\pi^2 m^2)`, where refused ones count as well.

    See Also
    --------
    certify : The function.
    RejectOptionClassifier : Has a guarantee as a parameter.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.rejection import Certificate, RejectOptionClassifier
    >>> clf = RejectOptionClassifier(
    ...     LogisticRegression(), guarantee=Certificate(delta=0.05)
    ... )
    >>> clf.set_params(guarantee__delta=0.01).guarantee
    Certificate(delta=0.01)
    """

    _parameter_constraints: dict = {
        "method": [StrOptions({"high_probability", "ltt", "expectation"})],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "n_candidates": [Interval(Integral, 1, None, closed="left")],
        "sampling": [StrOptions({"separate", "mixture"})],
        "split": [Interval(Real, 0, 1, closed="neither"), "array-like", None],
        "ood_prior": [Real, tuple, None],
        "max_loss": [Interval(Real, 0, None, closed="neither"), None],
        "shift": [Shift, None],
        "within": [StrOptions({"class", "predicted_class", "groups"}), None],
        "thresholds": [StrOptions({"shared", "group"})],
        "small_groups": [StrOptions({"raise", "pool", "skip"})],
        "schedule": [StrOptions({"each", "all"})],
    }

    _default_parts: dict = {"shift": Shift}

    def __init__(
        self,
        method="high_probability",
        *,
        delta=0.1,
        n_candidates=1,
        sampling="separate",
        split=None,
        ood_prior=None,
        max_loss=None,
        shift=None,
        within=None,
        thresholds="shared",
        small_groups="raise",
        schedule="each",
    ):
        self.method = method
        self.delta = delta
        self.n_candidates = n_candidates
        self.sampling = sampling
        self.split = split
        self.ood_prior = ood_prior
        self.max_loss = max_loss
        self.shift = shift
        self.within = within
        self.thresholds = thresholds
        self.small_groups = small_groups
        self.schedule = schedule

    def _of(self, m, max_loss):
        """Return the m-th certificate of an estimator with a largest loss."""
        params = self.get_params(deep=False)
        if self.schedule == "all":  # sums to delta over all m
            params["delta"] = 6 * self.delta / (math.pi * m) ** 2
        if self.max_loss is None:
            params["max_loss"] = max_loss
        return Certificate(**params)

    def _checked_rule(self, rule, **samples):
        """Return the rule at a prior if samples of a mixture, or `ood_prior`, have it.

        Raise if the rule, an option or a part of the samples excludes a mixture.
        """
        if self.sampling == "separate":
            return rule if self.ood_prior is None else rule._at_prior(0.5)
        shift, largest = self.shift, self.max_loss or math.inf
        excluded = {
            f"guarantee={self.method!r}": self.method != "high_probability",
            "thresholds='group'": self.thresholds == "group",
            "ood_prior": self.ood_prior is not None,
            f"the prior of {type(rule).__name__}": rule.ood_prior is not None,
            "within": self.within is not None,
            "tv": shift is not None and shift.tv > 0,
            **{name: values is not None for name, values in samples.items()},
        }
        for name in filter(excluded.get, excluded):
            raise ValueError(
                f"sampling='mixture' excludes {name}: all samples are one mixture, as "
                "in deployment. Leave it out, or use sampling='separate'."
            )
        if not all(0 < rate < largest for rate in rule.error_rates):
            raise ValueError(
                f"error_max must be above 0 and below the largest loss {largest:g}, "
                f"got {rule.error_rates}: 0 cannot be certified, others always hold."
            )
        return rule._at_prior(0.0)


def checked_certificate(certificate, rule=None):
    """Return a certificate without a None, whose `delta` is of one candidate."""
    certificate = Certificate._checked(certificate)
    params = certificate.get_params(deep=False)
    params["delta"] = certificate.delta / certificate.n_candidates
    params["shift"] = Shift._checked(certificate.shift)
    if certificate.split is None:
        of_mixture = certificate.sampling == "mixture"
        by_order = of_mixture and isinstance(rule, BoundedErrorRate)
        params["split"] = 0.2 if by_order else 0.4
    if certificate.max_loss is None:
        params["max_loss"] = 1.0
    return Certificate(**params)
