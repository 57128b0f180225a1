"""Rule with one threshold for each of two scores, chosen on ID samples alone."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from skood.decision._base_rule import BaseRule, Linear, as_requested
from skood.decision._calibration_sample import Problem
from skood.decision._certified_path import CertifiedStatement, RuleCertificate
from skood.decision._group_thresholds import named_thresholds
from skood.decision._operating_point import Attainable, OperatingPoint
from skood.decision._path_certificates import POOLED, without_small
from skood.exceptions import NotCertifiableError
from skood.stats._binomial_bounds import (
    min_accepted_id,
    min_accepted_id_on_average,
    risk_upper_bound,
)
from skood.stats._mean_intervals import hoeffding_bentkus
from skood.stats._rate_tests import at_least
from skood.utils._param_validation import Number, StrOptions
from skood.utils._ties import (
    GUARD,
    ends_of_ties,
    merged_ties,
    merged_ties_of_ranked,
    ranked_scores,
    threshold_between,
)
from skood.utils._warnings import warn

# Number of thresholds that may be certified in sequence.
_CANDIDATES = 50


class TwoThresholds(BaseRule):
    r"""One threshold per score, from ID samples alone: no OOD samples are needed.

    A sample is accepted iff both its OOD score b and its risk score a are at most their
    thresholds,

    .. math:: b \le \tau_b \quad\text{and}\quad a \le \tau_a .

    The other rules weight both scores by what is known of errors and of OOD samples.
    Without OOD samples nothing is known about the latter, and the OOD score would get
    hardly any weight; here it has a threshold of its own. Read more in the
    :ref:`User Guide <two_thresholds>`.

    Parameters
    ----------
    ood : float, default=0.05
        Largest fraction of new ID samples that the OOD score rejects, in [0, 1).

    risk : float, default=0.05
        Bound of the kind `criterion`; not negative, and below 1 for "rejection".

    criterion : {"rejection", "selective_risk"}, default="rejection"
        The meaning of `risk`.

        - "rejection": largest fraction of new ID samples that the risk score rejects.
          Both scores together reject at most the fraction `ood` + `risk`.
        - "selective_risk": largest mean loss of the accepted ID samples, in the units
          of the loss. The risk score has the threshold with the largest coverage.

    See Also
    --------
    BoundedTPRFPR : With OOD samples, the best combination of both scores.
    BoundedAbstention : A single bound on the coverage of both scores together.

    Notes
    -----
    With n ID samples, :func:`solve` takes for :math:`\tau_b` the score of rank
    :math:`\lceil (n + 1)(1 - \text{ood}) \rceil`, the conformal quantile [1]_: on
    average over the draw of the samples, new ID samples are rejected with a probability
    of at most `ood`. The same holds for :math:`\tau_a` with `risk`. With a rank above n
    the threshold is infinite, with a warning. With ``criterion="selective_risk"``,
    :math:`\tau_a` is the largest threshold at which the mean loss of the given samples
    accepted by both is at most `risk`, without a guarantee.

    :func:`certify` guarantees both bounds together on new data. With
    "high_probability" and "ltt", each holds except with probability
    :math:`\delta / 2`: fractions of rejected samples by ranks from the exact binomial
    test (:func:`min_accepted_id`); the selective risk by learn then test [2]_.
    Fractions are also certified within G groups, from the ranks of each group: with
    ``thresholds="group"`` at :math:`\delta / (2 G)` (union bound); with "shared" the
    largest threshold of the groups, each at :math:`\delta / 2`, since it rejects too
    many samples of a group only if the threshold of the group that needs the largest
    one does. For the selective risk, the fraction `split` of the samples chooses
    :math:`\tau_b` and an order of risk thresholds, the others test in this order
    whether :func:`risk_upper_bound` is at most `risk`, until the first failure; the
    accepted threshold with the largest coverage is taken.
    The order depends on samples that the tests do not use, so that no correction for
    the number of tests is necessary. "expectation" is for "rejection" only.

    References
    ----------
    .. [1] V. Vovk, A. Gammerman, G. Shafer. Algorithmic learning in a random world.
       Springer, 2005.
    .. [2] A. N. Angelopoulos, S. Bates, E. J. Candès, M. I. Jordan, L. Lei. Learn
       then test: calibrating predictive algorithms to achieve risk control. 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.rejection import ScoredSamples, TwoThresholds, solve
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.uniform(size=(2, 1000))
    >>> wrong = rng.uniform(size=1000) < a / 2
    >>> samples = ScoredSamples.from_arrays(a, b, wrong, None, None)
    >>> point = solve(TwoThresholds(ood=0.1, risk=0.2), samples)
    >>> round(point.lam * point.scales[0], 2), round(point.ood_max, 2)
    (0.81, 0.9)
    >>> point.accept([0.1, 0.1, 0.85], [0.5, 0.95, 0.5])
    array([ True, False, False])
    """

    _parameter_constraints: dict = {
        "ood": [Number(Real, 0, 1, closed="left")],
        "risk": [Number(Real, 0, None, closed="left")],
        "criterion": [StrOptions({"rejection", "selective_risk"})],
    }

    is_searched = False

    def __init__(self, ood=0.05, risk=0.05, *, criterion="rejection"):
        self.ood = ood
        self.risk = risk
        self.criterion = criterion

    def check_params(self):
        super().check_params()
        if self._bounds_rejection and self.ood + self.risk >= 1:
            raise ValueError(
                f"ood + risk must be below 1, got {self.ood!r} + {self.risk!r}: both "
                "scores together could reject all ID samples."
            )

    @property
    def _bounds_rejection(self):
        return self.criterion == "rejection"

    def rates(self):
        if self._bounds_rejection:
            return (Linear(id=-1.0, constant=1.0 - self.ood - self.risk),)
        return (Linear(id=-self.risk, loss=1.0),)

    def cost(self):
        return None if self._bounds_rejection else Linear(id=-1.0)

    def _point(self, problem, certificate=None, samples=None, rng=None):
        if not problem.double:
            raise ValueError(
                "TwoThresholds requires two scores, got a risk score only. Pass the "
                "OOD score as well (ood_detector= in RejectOptionClassifier), or use "
                "BoundedAbstention."
            )
        if certificate is None:
            if not self._bounds_rejection:
                return self._least_risky(problem)
            risk_max = _conformal(problem.risk_id, problem.weight_id, self.risk, "risk")
            ood_max = _conformal(problem.ood_id, problem.weight_id, self.ood, "OOD")
            return self._at(problem, risk_max, ood_max)
        if self._bounds_rejection:
            return self._certified_fractions(problem, certificate, samples)
        if samples.group is not None:
            raise ValueError(
                "The selective risk of TwoThresholds is not certified within groups. "
                f"Use TwoThresholds(ood={self.ood!r}, risk=...), which bounds "
                f"fractions of rejected samples, or "
                f"AllOf([BoundedImprovement({self.risk!r}), "
                f"BoundedAbstention({1 - self.ood:g})]), which bounds the selective "
                "risk and the coverage."
            )
        return self._certified_risk(problem, certificate, samples, rng)

    def _certified_fractions(self, problem, certificate, samples):
        """Return the point whose scores reject certified fractions in each group."""
        by_group = certificate.thresholds == "group"
        of_risk = problem.risk_id, self.risk, "risk"
        of_ood = problem.ood_id, self.ood, "OOD"
        bounds = [bound for bound in (of_risk, of_ood) if bound[1] > 0]

        def error(n_groups):  # of one threshold
            if certificate.delta is None:
                return None
            return certificate.delta / max(1, len(bounds) * n_groups ** int(by_group))

        labels, labels_ood = samples.by_kind("group")
        labels_ood = np.empty(0, dtype=object) if labels_ood is None else labels_ood
        all_labels, groups, pooled, skipped = (labels, labels_ood), [None], (), ()
        if labels is not None:
            delta = error(len(np.unique(labels)))
            sizes = (_least_size(fraction, delta) for _, fraction, _ in bounds)
            options = max(sizes, default=0), 0.0, certificate
            large, groups, pooled, skipped = without_small(samples, *options)
            labels = large.by_kind("group")[0]
        delta = error(len(groups))
        limits: dict = {"risk": math.inf, "OOD": math.inf}
        statements = []
        for scores, fraction, name in bounds:
            thresholds = {
                group: self._certified(
                    scores[_in_group(labels, group)], fraction, delta, name, samples
                )
                for group in groups
            }
            limit_of = {group: limit for group, (limit, _) in thresholds.items()}
            limits[name] = limit_of if by_group else max(limit_of.values())
            for group, (_, pvalue) in thresholds.items():
                limit = limit_of[group] if by_group else limits[name]
                rejected = np.mean(scores[_in_group(labels, group)] > limit)
                statements.append(_statement(name, fraction, group, rejected, pvalue))
        for name, limit in limits.items() if by_group else ():
            by_name = limit if isinstance(limit, dict) else dict.fromkeys(groups, limit)
            limits[name] = named_thresholds(by_name, POOLED, pooled, skipped)
        about = {"not_certified": skipped, "pooled": pooled}
        point = self._at(problem, limits["risk"], limits["OOD"], all_labels)
        return _with_certificate(point, statements, certificate, samples, **about)

    def _certified(self, scores, fraction, delta, name, samples):
        """Return a threshold that rejects at most a fraction, with p-value, or raise.

        `delta` None: on average over the draw of the scores.
        """
        n, tpr = len(scores), 1.0 - fraction
        if delta is None:
            rank, pvalue = min_accepted_id_on_average(n, tpr), math.nan
        else:
            rank = min_accepted_id(n, tpr, delta)
            pvalue = math.nan if rank is None else at_least(rank, n, tpr)
        if rank is not None:
            return _above_rank(scores, rank, None), pvalue
        n_id, n_ood = samples.sizes
        raise NotCertifiableError(
            f"{as_requested(self)} is not certified: {_too_few(n, fraction, name)}.",
            math.ceil(_least_size(fraction, delta) * n_id / n),
            n_ood,
        )

    def _least_risky(self, problem):
        """Return the point of the largest coverage at a bounded selective risk."""
        ood_max = _conformal(problem.ood_id, problem.weight_id, self.ood, "OOD")
        thresholds, N, E = nested_regions(*_within(problem, ood_max))
        met = np.flatnonzero(self.risk * N - E >= -GUARD)
        if met.size:
            return self._at(problem, thresholds[met[-1]], ood_max)
        if not N.size:
            point = self._at(problem, -math.inf, ood_max)
            return point.infeasible(Attainable())
        least = float((E / N).min())
        k = np.flatnonzero(E / N == least)[-1]  # the largest coverage
        point = self._at(problem, thresholds[k], ood_max)
        return point.infeasible(Attainable(min_risk=least), least - self.risk)

    def _certified_risk(self, problem, certificate, samples, rng):
        """Return the point whose selective risk is certified by learn then test."""
        if certificate.method == "expectation":
            raise TypeError(
                "The selective risk of TwoThresholds cannot be bounded with "
                "guarantee='expectation': it does not change monotonically with the "
                "threshold. Use 'high_probability', or criterion='rejection'."
            )
        if problem.loss_id.max() > certificate.max_loss:
            raise ValueError(
                f"A certified selective risk requires losses in [0, max_loss="
                f"{certificate.max_loss!r}], got {float(problem.loss_id.max())!r}. "
                "Pass the largest possible loss, or clip losses to it."
            )
        first, second = map(Problem, samples.split((certificate.split, 0.0), rng))
        ood_max, delta, statements = math.inf, certificate.delta, []
        if self.ood > 0:
            delta /= 2
            ood_max, pvalue = self._certified(
                first.ood_id, self.ood, delta, "OOD", samples
            )
            rejected = np.mean(first.ood_id > ood_max)
            statements.append(_statement("OOD", self.ood, None, rejected, pvalue))
        regions = [_within(part, ood_max)[:2] for part in (first, second)]
        limits = self.risk, delta, certificate.max_loss
        risk_threshold = certified_threshold(self, (first, second), regions, *limits)
        point = self._at(second, risk_threshold, ood_max)
        about = {"pvalue": delta, "rate": "risk", "limit": self.risk}
        text = f"selective risk <= {self.risk:.4g}"
        statements.append(CertifiedStatement(text, estimate=point.risk, **about))
        return _with_certificate(point, statements, certificate, samples)

    def _at(self, problem, risk_max, ood_max, groups=(None, None)):
        """Return the operating point of both thresholds."""
        c_a, c_b = problem.scales
        if isinstance(risk_max, dict):
            lam: Any = {group: limit / c_a for group, limit in risk_max.items()}
        else:
            lam = risk_max / c_a
        point = OperatingPoint(theta=0.0, lam=lam, scales=(c_a, c_b), ood_max=ood_max)
        return problem.evaluated(self, point, groups)


def _in_group(labels, group):
    """Return the samples of a group; None: all."""
    return slice(None) if group is None else labels == group


def _least_size(fraction, delta):
    """Return how many samples a threshold needs; `delta` None: on average."""
    if delta is None:
        return math.ceil(1 / fraction - 1 - GUARD)
    return math.ceil(math.log(delta) / math.log(1.0 - fraction) - GUARD)


def _too_few(n, fraction, name):
    samples = "1 ID sample is" if n == 1 else f"{n} ID samples are"
    return (
        f"{samples} too few for a threshold of the {name} score that rejects at most a "
        f"fraction of {fraction:.4g} of new ID samples"
    )


def _statement(name, fraction, group, rejected, pvalue):
    """Return the statement that a score rejects at most a fraction of ID samples."""
    text = f"fraction rejected by the {name} score <= {fraction:.4g}"
    if group is not None:
        text += f" in group {group}"
    estimate = float(rejected)
    return CertifiedStatement(text, group, None, estimate, pvalue, limit=fraction)


def _with_certificate(point, statements, certificate, samples, **about):
    """Return the point with a certificate of statements."""
    n_id, n_ood = samples.sizes
    about |= {"n_candidates": 1, "n_certified": 1}
    about_rule = RuleCertificate(
        certificate.delta, tuple(statements), n_id, n_ood, **about
    )
    return replace(point, certificate=about_rule)


def _conformal(scores, weight, fraction, name):
    """Return the conformal threshold that rejects at most a fraction, or inf and warn.

    Whole weights count samples. With others the next sample has the largest weight.
    """
    if fraction == 0:
        return math.inf
    n, tpr = len(scores) if weight is None else weight.sum().item(), 1.0 - fraction
    unit = ""
    if weight is not None and weight.dtype.kind != "i":
        largest = weight.max().item()
        rank = (n + largest) * tpr * (1 - GUARD)
        rank = None if rank > n else rank
        unit = " of the largest weight"
    else:
        rank = min_accepted_id_on_average(n, tpr)
    if rank is not None:
        return _above_rank(scores, rank, weight)
    warn(
        f"{_too_few(len(scores), fraction, name)}: {_least_size(fraction, None)}{unit} "
        "are needed. The threshold is infinite, so that this score rejects nothing."
    )
    return math.inf


def _above_rank(scores, rank, weight):
    """Return a threshold that accepts the `rank` smallest scores and their ties.

    With weights, `rank` is the sum of the weights to accept.
    """
    merged = merged_ties(scores, weight)
    if weight is None:
        last = np.partition(merged, rank - 1)[rank - 1]
    else:
        order = np.argsort(merged)
        ends = np.cumsum(weight[order])
        last = merged[order[min(np.searchsorted(ends, rank), len(order) - 1)]]
    accepted = merged <= last
    low = scores[accepted].max()
    high = scores[~accepted].min(initial=math.inf)
    return threshold_between(low, high, scores, weight)


def _within(problem, ood_max):
    """Return risk scores, losses and weights of ID samples within the OOD threshold."""
    within = problem.ood_id <= ood_max
    weight = problem.weight_id
    weight = None if weight is None else weight[within]
    return problem.risk_id[within], problem.loss_id[within], weight


def nested_regions(scores, loss, weight=None):
    """Return all thresholds, ascending, with the counts N and E of the samples below.

    `weight` may be None; all have shape (n_id,).
    """
    if not scores.size:
        return scores, scores, scores
    order, ranked = ranked_scores(scores)
    if weight is not None:
        loss = loss * weight
        weight = weight[order]
    last = ends_of_ties(merged_ties_of_ranked(ranked, weight))
    above = np.append(ranked[last[:-1] + 1], math.inf)
    thresholds = [
        threshold_between(low, high, ranked, weight)
        for low, high in zip(ranked[last], above, strict=True)
    ]
    N = last + 1 if weight is None else np.cumsum(weight)[last]
    return np.array(thresholds), N, np.cumsum(loss[order])[last]


def certified_threshold(rule, parts, regions, risk_max, delta, max_loss):
    """Return the largest threshold with a certified selective risk, or raise.

    The first of the two `parts` of the samples sets an order of thresholds, the second
    tests them until a bound is above `risk_max`. `regions` are the scores and the
    losses of their ID samples that may be accepted.
    """
    first, second = regions
    n_id, n_ood = (parts[0].n_id + parts[1].n_id, parts[0].n_ood + parts[1].n_ood)
    thresholds, N, E = nested_regions(*first)
    # neither the method nor the order may depend on the tested samples
    counts = np.isin(parts[0].loss_id, (0.0, max_loss)).all()
    bound = partial(
        risk_upper_bound,
        delta=delta,
        method="clopper_pearson" if counts else "hoeffding_bentkus",
        max_loss=max_loss,
    )
    spread = np.linspace(0, len(thresholds) - 1, _CANDIDATES).round()
    candidates = thresholds[np.unique(spread.astype(int))] if len(N) else []
    passed = []
    for threshold in sorted(
        candidates, key=lambda t: (bound(_accepted_losses(first, t)), -t)
    ):
        if bound(_accepted_losses(second, threshold)) > risk_max:
            break
        passed.append(threshold)
    if passed:
        return float(max(passed))
    least, needed = math.inf, None
    if len(N):
        k = int(np.argmin(E / N))
        least = float(E[k] / N[k])
        size = len(_accepted_losses(second, thresholds[k]))
        times = _times_needed(size, least / max_loss, risk_max / max_loss, delta)
        needed = None if times is None else int(n_id * times)
    raise NotCertifiableError(
        f"{as_requested(rule)} is not certified: {parts[1].n_id} ID samples do not "
        f"show a selective risk of at most {risk_max:.4g}, with {least:.4g} on the "
        "samples that chose the thresholds.",
        needed,
        n_ood,
    )


def _accepted_losses(region, threshold):
    """Return the losses of the samples up to a threshold of scores and losses."""
    scores, loss = region
    return loss[scores <= threshold]


def _times_needed(n_accepted, risk, risk_max, delta):
    """Return by how much to multiply samples to certify an accepted `risk`, or None."""
    if risk >= risk_max or n_accepted == 0:
        return None
    for times in 2 ** np.arange(1, 30):
        n = int(n_accepted * times)
        if hoeffding_bentkus(risk * n, n, delta) <= risk_max:
            return times
    return None
