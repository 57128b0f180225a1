"""Certified selective risk: thresholds tested in sequence (learn then test)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from functools import partial

import numpy as np

from skood.decision._base_rule import as_asked
from skood.exceptions import NotCertifiableError
from skood.stats._binomial_bounds import risk_upper_bound
from skood.stats._mean_intervals import hoeffding_bentkus
from skood.utils._ties import (
    ends_of_ties,
    merged_ties_of_ranked,
    ranked_scores,
    threshold_between,
)

# Number of thresholds that may be certified in sequence.
_CANDIDATES = 50


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


def check_losses(rule, problem, certificate):
    """Raise if the selective risk of a rule cannot be certified on these losses."""
    if certificate.method == "expectation":
        other = ", or criterion='rejection'" if hasattr(rule, "criterion") else ""
        raise TypeError(
            f"The selective risk of {type(rule).__name__} cannot be bounded with "
            "guarantee='expectation': it does not change monotonically with the "
            f"threshold. Use 'high_probability'{other}."
        )
    if problem.loss_id.max() > certificate.max_loss:
        raise ValueError(
            f"A certified selective risk requires losses in [0, max_loss="
            f"{certificate.max_loss!r}], got {float(problem.loss_id.max())!r}. Pass "
            "the largest possible loss, or clip losses to it."
        )


def certified_threshold(rule, parts, region, risk_max, delta, max_loss):
    """Return the largest threshold with a certified selective risk, or raise.

    The first of the two `parts` of the samples sets an order of thresholds, the second
    tests them until a bound is above `risk_max`. ``region(part)`` returns the scores
    and the losses of the ID samples that may be accepted.
    """
    first, second = region(parts[0]), region(parts[1])
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
        f"{as_asked(rule)} is not certified: {parts[1].n_id} ID samples do not show a "
        f"selective risk of at most {risk_max:.4g}, with {least:.4g} on the samples "
        "that chose the thresholds.",
        needed,
        n_ood,
    )


def _accepted_losses(part, threshold):
    """Return the losses of the samples up to a threshold of scores and losses."""
    scores, loss = part
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
