"""Acceptance rules with certified bounds on new data."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from functools import partial
from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_random_state

from skood.decision._base_rule import BaseRule, check_rule
from skood.decision._check_problem import check_problem
from skood.decision._distribution_shift import (
    check_guarantee,
    check_shift,
    with_margin,
)
from skood.decision._group_thresholds import check_thresholds
from skood.decision._nested_certificates import (
    CertificateOptions,
    certify_nested,
    split_problem,
)
from skood.decision._path_certificates import certify_statements, check_labels
from skood.decision._solver import SOLVERS, warn_of_reversed
from skood.utils._param_validation import Interval, StrOptions, validate_params


def _at_priors(rule, ood_prior, unlabeled):
    """Return the rule at the ends of `ood_prior`, a number or a pair (low, high)."""
    if ood_prior is None:
        return [rule]
    if unlabeled is not None:
        raise ValueError(
            "Pass ood_prior or unlabeled, not both: with unlabeled samples the "
            "precision in use is certified without a prior."
        )
    if rule.ood_prior is None:
        raise ValueError(
            f"ood_prior is for rules such as BoundedPrecisionRecall; "
            f"{type(rule).__name__} bounds no precision. Leave it out."
        )
    ends = ood_prior if isinstance(ood_prior, tuple) else (ood_prior,)
    if isinstance(ood_prior, tuple) and not (
        len(ends) == 2 and 0 <= ends[0] <= ends[1]
    ):
        raise ValueError(
            f"ood_prior must be a number or a pair (low, high) with 0 <= low <= high, "
            f"got {ood_prior!r}."
        )
    return [rule._at_prior(end) for end in ends]


@validate_params(
    {
        "guarantee": [StrOptions({"high_probability", "ltt", "expectation"})],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "n_candidates": [Interval(Integral, 1, None, closed="left")],
        "split": [Interval(Real, 0, 1, closed="neither"), tuple],
        "n_angles": [Interval(Integral, 2, None, closed="left")],
        "ood_prior": [Real, tuple, None],
        "max_loss": [Interval(Real, 0, None, closed="neither")],
        "group_id": ["array-like", None],
        "source_ood": ["array-like", None],
        "group_ood": ["array-like", None],
        "thresholds": [StrOptions({"shared", "group"})],
        "small_groups": [StrOptions({"raise", "pool", "skip"})],
        "unlabeled": [tuple, list, None],
        "sample_weight_id": ["array-like", None],
        "sample_weight_ood": ["array-like", None],
        "weights": [StrOptions({"importance", "frequency"})],
        "weight_max": [Interval(Real, 0, None, closed="neither"), None],
        "tv": [Interval(Real, 0, 1, closed="left")],
        "solver": [StrOptions(set(SOLVERS))],
        "angles": [StrOptions({"quadrant", "full"})],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def certify(
    rule,
    risk_id,
    ood_id,
    loss_id,
    risk_ood,
    ood_ood,
    *,
    guarantee="high_probability",
    delta=0.1,
    n_candidates=1,
    split=0.4,
    n_angles=16,
    ood_prior=None,
    max_loss=1.0,
    group_id=None,
    source_ood=None,
    group_ood=None,
    thresholds="shared",
    small_groups="raise",
    unlabeled=None,
    sample_weight_id=None,
    sample_weight_ood=None,
    weights="importance",
    weight_max=None,
    tv=0.0,
    solver="bnb",
    angles="quadrant",
    random_state=None,
):
    r"""Find an acceptance rule whose bounds hold on new data.

    :func:`solve` returns the best rule on the given samples. On new samples this rule
    violates its bounds about half of the time. The rule returned here meets them with a
    probability of at least ``1 - delta`` over the draw of the given samples. New
    samples must come from the same distributions. Read more in the
    :ref:`User Guide <guarantees>`.

    Parameters
    ----------
    rule : BaseRule
        The rule whose bounds are certified, all together; :class:`AllOf` combines
        rules. :class:`CostBased` without a bound gets an upper bound on its cost. "ltt"
        and "expectation" are for bounds that follow from a lower bound on the TPR and
        an upper bound on the FPR, and for :class:`TwoThresholds`.

    risk_id : array-like of shape (n_id,)
        Scores a of ID samples, high for samples that are likely misclassified.

    ood_id : array-like of shape (n_id,) or None
        Scores b of ID samples, high for OOD samples. None (then also in `ood_ood`):
        there is only the score a.

    loss_id : array-like of shape (n_id,)
        Losses of ID samples, not negative. They select among certified rules; nothing
        is guaranteed about them unless the rule bounds the selective risk.

    risk_ood : array-like of shape (n_ood,) or None
        Scores a of OOD samples. None: no OOD samples, for rules that do not require
        them.

    ood_ood : array-like of shape (n_ood,) or None
        Scores b of OOD samples.

    guarantee : {"high_probability", "ltt", "expectation"}, default="high_probability"
        The kind of guarantee.

        - "high_probability": with a probability of at least ``1 - delta``, all bounds
          hold on new data. One part of the samples chooses a path of candidate rules,
          the others certify them in their order ("path" in the notes).
        - "ltt": the same guarantee. All samples certify thresholds at each of
          `n_angles` angles (learn then test), except for a tenth of the ID samples,
          which set the scales of the scores.
        - "expectation": the TPR and the FPR are within their bounds on average over
          the draw of the given samples, by conformal order statistics. About half of
          all draws break a bound. `delta` is not used.

        With one score, bounds on the TPR, FPR or precision alone, and neither groups
        nor sources, all samples certify thresholds ("interval" in the notes).

    delta : float, default=0.1
        Probability, in (0, 1), that the guarantee fails: that a rule is returned and
        breaks a bound. It is a share of all draws of the samples, not of the draws for
        which a rule is certified. Another `random_state` after a refusal voids it,
        unless it is one of the `n_candidates`.

    n_candidates : int, default=1
        Number of certificates from which one is chosen after they were tried on these
        samples, for example for several detectors, scores, rules or random states;
        `delta` is divided by it. Fix it before the first, and pass it to all.

    split : float or tuple of two masks, default=0.4
        Share of the ID and of the OOD samples that choose candidates; not for "ltt". An
        eighth of it with one score, a bounded selective risk and the coverage as the
        objective. Or masks of shape (n_id,) and (n_ood,), True for the samples that
        choose: these may be from other distributions, since only the others certify.

    n_angles : int, default=16
        Number of angles of "ltt". More angles come closer to the best one, but each is
        certified with ``delta / n_angles``.

    ood_prior : float or tuple (low, high), default=None
        For rules with a prior, such as BoundedPrecisionRecall: the share of OOD samples
        in use, or an interval for it; the guarantee holds for all of its values. None:
        the `ood_prior` of the rule.

    max_loss : float, default=1.0
        Largest possible loss, for a bound on the selective risk. It must be known
        beforehand: clip losses of unknown range to it.

    group_id : array-like of shape (n_id,), default=None
        Group of each ID sample, such as its class or an attribute. Bounds on the TPR
        and the risk are then certified within every group, with one rule for all.
        Bounds within every class hold for all class priors.

    source_ood : array-like of shape (n_ood,), default=None
        Source of each OOD sample. Bounds on the FPR are then certified for every
        source, and hence for every mixture of them.

    group_ood : array-like of shape (n_ood,), default=None
        Group of each OOD sample, for ``thresholds="group"``.

    thresholds : {"shared", "group"}, default="shared"
        "group": each group has its own threshold, at a common angle, and `lam` of the
        rule is a dict with the thresholds of the groups. Groups must be available for
        new samples, so that they cannot be true classes.

    small_groups : {"raise", "pool", "skip"}, default="raise"
        What happens to groups with too few samples to certify a bound even if all of
        them are accepted: an error, they become one group, or they are left out and
        named in the certificate. Groups that are left out have no threshold of their
        own: with ``thresholds="group"`` their samples are rejected.

    unlabeled : tuple (risk, ood) of array-like, default=None
        Scores of unlabeled samples in use, a mixture of ID and OOD samples; `ood` is
        None for one score. A bound on the precision is then certified for this
        mixture, and its share of OOD samples need not be known: `ood_prior` is not
        used.

    sample_weight_id : array-like of shape (n_id,), default=None
        Weights of ID samples, see `weights`. A weight of 0 leaves a sample out.

    sample_weight_ood : array-like of shape (n_ood,), default=None
        Weights of OOD samples, likewise.

    weights : {"importance", "frequency"}, default="importance"
        Meaning of the weights.

        - "importance": density ratio, up to a factor, of the distribution in use and
          of the samples (covariate shift). Bounds on the TPR, FPR and selective risk
          are certified for the distribution that the weights describe. This is exact
          for weights that are a fixed function of a sample, but **approximate** for
          the distribution in use if the function is an estimate.
        - "frequency": how many independent observations a sample stands for. Copies of
          one observation are no frequency, and would void the guarantee.

    weight_max : float, default=None
        Largest possible importance weight, fixed beforehand. Estimated weights can be
        clipped to it.

    tv : float, default=0.0
        Total variation distance, in [0, 1), between each distribution in use and the
        one of the samples, weighted if they have weights. Bounds are tested with a
        margin, so that they hold for all distributions within it.

    solver : {"bnb", "exact", "grid"}, default="bnb"
        How the angle is chosen, see :func:`solve`; not for "ltt".

    angles : {"quadrant", "full"}, default="quadrant"
        Angles to choose from, see :func:`solve`.

    random_state : int, RandomState instance or None, default=None
        Draws the parts of the samples.

    Returns
    -------
    point : OperatingPoint
        The rule. Its numbers are computed on the certifying samples; without a bound
        on it, its risk is the least of many, and therefore optimistic. It has a
        `certificate`, a :class:`RuleCertificate`.

    Raises
    ------
    NotCertifiableError
        If the samples are too few. Its text and attributes give the numbers needed.
    TypeError
        If the bounds of `rule` do not follow from bounds on the TPR and the FPR, with
        "ltt" or "expectation".
    ValueError
        As :func:`solve`.

    Warns
    -----
    SkoodWarning
        If the rule uses a score reversed.

    See Also
    --------
    certify_path : Certifies candidates of your own.
    min_accepted_id, max_accepted_ood : The numbers that certify.
    risk_upper_bound : A bound on the selective risk.
    solve : The best rule on the given samples.

    Notes
    -----
    **Path.** The first part of the samples chooses at most 200 candidates, angles and
    thresholds: the Pareto front of the margin by which all bounds are expected to pass
    their tests, and of the objective, the safest first. On the second part each
    candidate has a p-value, the largest over all bounds, groups and sources
    (intersection-union test [3]_), and candidates are tested at the full
    :math:`\delta` until the first is not certified (fixed sequence). The first
    candidate that breaks a bound passes with a probability of at most :math:`\delta`,
    so that this also bounds the probability that the returned one, the last that
    passed, breaks a bound. The p-values are exact for any number of samples: binomial
    for TPR, FPR, and the risk if losses are 0 or `max_loss`, an exact two-sample test
    for the precision, and by betting [4]_ for other losses and for costs. Ties do not
    matter. The split is random, within groups and sources and within nothing else.

    **One score.** If the largest coverage within a bound on the selective risk is
    searched, an eighth of the first part suffices: its scores are the thresholds of the
    candidates, in ascending order, and all others test them. There are two starts, the
    first with 95 % of :math:`\delta` at a coverage at which the bound can be shown, the
    other at 0.75 for scores whose least values have a large risk. A candidate is tested
    at the sum of its share of :math:`\delta` and, if the one before is certified, the
    level of that.

    **Distribution shift.** With importance weights :math:`w \le W` a statement is
    :math:`E[w Z] \le 0`, with :math:`Z` equal to :math:`\phi - A` for the TPR,
    :math:`(l - r) A` for the risk and :math:`A - \rho` for the FPR, for the decision
    A and the loss l. It is tested by betting, with the largest possible :math:`w Z` in
    place of the largest loss. With "expectation" thresholds are weighted conformal
    quantiles [5]_. With `unlabeled` samples, accepted at the rate q, the precision is
    :math:`t (q - f) / (q (t - f))`, which grows with q and falls with t and f: a
    candidate passes if its value at one-sided limits of the three rates, each with
    :math:`\delta / 3`, is not below the bound.

    **Thresholds of groups.** At level c the threshold of a group is a quantile of its
    scores in the first part, at :math:`t^* + c \sqrt{t^* (1 - t^*) (1 / n_1 + 1 /
    n_2)}`, where :math:`t^*` is about the least TPR that passes the test on the
    :math:`n_2` samples of the group in the second part. The candidates are levels in
    steps of 1/4 at all angles [6]_. Their order and their tests are as before.

    **Interval.** At a fixed angle TPR and FPR grow with the threshold
    :math:`\lambda`. Let k be :func:`min_accepted_id` and K :func:`max_accepted_ood`,
    each with :math:`\delta / 2` (with :math:`\delta` if one of the bounds always
    holds). All thresholds from the k-th smallest ID score to just below the (K+1)-th
    smallest OOD score are certified at once: TPR and FPR at the ends bound the rates of
    all thresholds in between. So
    the threshold with the smallest empirical risk may be chosen. Ties are resolved as
    by :func:`solve`. With "ltt" [1]_ there are `n_angles` such intervals, with
    :math:`\delta` divided by their number.

    With "expectation" the ends are the :math:`\lceil (n_I + 1) \phi \rceil`-th ID
    score and (not included) the :math:`\lfloor (n_O + 1) \rho \rfloor`-th OOD score
    [2]_. The average is over all draws of the given samples, also those for which the
    interval is empty and an error is raised.

    A precision of :math:`\kappa` at a recall of :math:`\phi` is guaranteed through
    :math:`\mathrm{TPR} \ge \phi` and :math:`\mathrm{FPR} \le \phi (1 - \pi)(1 -
    \kappa) / (\pi \kappa)`, which imply it for all priors up to :math:`\pi`.

    With two scores and "expectation", the first part chooses its best angle within
    tighter bounds: the bounds that the second part must meet, and a margin for the
    difference between two samples, if there are enough samples for it.

    References
    ----------
    .. [1] A. N. Angelopoulos, S. Bates, E. J. Candès, M. I. Jordan, L. Lei. Learn
       then test: calibrating predictive algorithms to achieve risk control. 2021.
    .. [2] V. Vovk, A. Gammerman, G. Shafer. Algorithmic learning in a random world.
       Springer, 2005.
    .. [3] R. L. Berger. Multiparameter hypothesis testing and acceptance sampling.
       Technometrics 24, 1982.
    .. [4] I. Waudby-Smith, A. Ramdas. Estimating means of bounded random variables by
       betting. Journal of the Royal Statistical Society B 86, 2024.
    .. [5] R. J. Tibshirani, R. Foygel Barber, E. J. Candès, A. Ramdas. Conformal
       prediction under covariate shift. NeurIPS 2019.
    .. [6] V. Vovk, D. Lindsay, I. Nouretdinov, A. Gammerman. Mondrian confidence
       machine. Technical report, Royal Holloway, 2003.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.rejection import BoundedTPRFPR, certify, solve
    >>> rng = np.random.default_rng(0)
    >>> risk_id, risk_ood = rng.normal(size=500), rng.normal(2.0, size=300)
    >>> loss_id = rng.uniform(size=500) < 0.1
    >>> rule = BoundedTPRFPR(tpr_min=0.7, fpr_max=0.2)
    >>> point = certify(rule, risk_id, None, loss_id, risk_ood, None, delta=0.1)
    >>> bool(point.tpr > 0.73 and point.fpr < 0.16)  # the bounds, and room for chance
    True
    """
    check_rule(rule)
    delta = delta / n_candidates
    rules = _at_priors(rule, ood_prior, unlabeled)
    rule = rules[-1]  # the upper end, where precision is least
    problem = check_problem(rule, risk_id, ood_id, loss_id, risk_ood, ood_ood)
    rng = check_random_state(random_state)
    labels = check_labels(problem, group_id, source_ood, group_ood)
    given = (sample_weight_id, sample_weight_ood), weights, weight_max, tv, unlabeled
    problem, labels, shift = check_shift(problem, labels, *given)
    is_labeled = any(one is not None for one in labels)
    needs_path = problem.double or is_labeled or not shift.is_none
    has_own = type(rule)._point is not BaseRule._point
    check_thresholds(thresholds, rule, guarantee, labels, problem, shift, has_own)
    check_guarantee(rule, guarantee, shift, labels, problem, has_own)
    # linear in the prior: statements hold in between if they hold at both ends
    bounds = _strictest(bound for one in rules for bound in one.statements())
    is_given = isinstance(split, tuple)
    if is_given:
        split = _checked_masks(split, problem, rule, guarantee, given)
    own = partial(split_problem, shares=(split, 0.0), rng=rng)
    sizes = problem.size_id, problem.size_ood
    largest = shift.largest_of(problem)
    options = CertificateOptions(
        guarantee,
        delta,
        *sizes,
        own,
        max_loss,
        largest,
        labels.group,
        labels.group_ood,
        thresholds,
        small_groups,
    )
    if has_own or guarantee != "high_probability":
        point = rule._point(problem, options)
        if point is not None:
            return point
    elif (
        needs_path or is_given or not rule.rates() or not all(map(_is_implied, bounds))
    ):
        point = certify_statements(
            rule,
            [with_margin(bound, tv, max_loss) for bound in bounds],
            problem,
            labels,
            shift,
            delta=delta,
            split=split,
            max_loss=max_loss,
            small_groups=small_groups,
            solver=solver,
            angles=angles,
            rng=rng,
            thresholds=thresholds,
        )
        warn_of_reversed(point)
        return point
    how = split, n_angles, solver, angles, rng
    return certify_nested(rules, bounds, problem, options, *how)


def _checked_masks(split, problem, rule, guarantee, given):
    """Return the masks of the samples that choose, or raise."""
    weights, *_, unlabeled = given
    if unlabeled is not None or any(weight is not None for weight in weights):
        raise ValueError(
            "split as masks excludes weights and unlabeled samples. Pass a share."
        )
    if guarantee != "high_probability" or type(rule)._point is not BaseRule._point:
        raise ValueError(
            f"split as masks is for guarantee='high_probability' and rules with linear "
            f"bounds, got guarantee={guarantee!r} and {type(rule).__name__}."
        )
    masks, sizes = (
        [np.asarray(mask) for mask in split],
        (problem.size_id, problem.size_ood),
    )
    if [mask.shape for mask in masks] != [(n,) for n in sizes] or any(
        mask.dtype != bool for mask in masks
    ):
        raise ValueError(
            f"split must be a share, or two Boolean masks of the {sizes[0]} ID and the "
            f"{sizes[1]} OOD samples, got arrays of shape "
            f"{[mask.shape for mask in masks]}."
        )
    if not masks[0].any() or masks[0].all():
        raise ValueError(
            "split must leave ID samples that choose and ID samples that certify, got "
            f"{int(masks[0].sum())} and {int((~masks[0]).sum())}."
        )
    return tuple(masks)


def _is_implied(bound):
    """Return whether a bound follows from bounds on the TPR and on the FPR."""
    return bound.loss == 0 and bound.id <= 0 <= bound.ood


def _strictest(bounds):
    """Return bounds without those that others imply, for all rates."""
    bounds = list(dict.fromkeys(bounds))
    return [
        bound
        for bound in bounds
        if not any(
            other != bound and all(a >= b for a, b in zip(other, bound, strict=True))
            for other in bounds
        )
    ]
