"""Scores of labeled samples on which the rule of a fitted predictor is chosen."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_scalar

from skood.decision import (
    Rates,
    ScoredSamples,
    certify,
    solve,
)
from skood.decision._operating_point import projected
from skood.exceptions import NotCertifiableError
from skood.rejection._calibration import labeled_scores, predicted_labels
from skood.rejection._checks import check_guarantee
from skood.rejection._explanation import make_reference
from skood.utils._stored import stored
from skood.utils._weights import row_weight


@stored
class CalibrationRecord(NamedTuple):
    """Samples on which a rule was chosen.

    ``within`` is the kind of groups, ``n_certificates`` counts the certificates that
    were tried, with ``cross_fitted`` several models computed the scores, and with
    ``accepted_only`` the rule accepts all samples.
    """

    samples: ScoredSamples
    within: str | None = None
    cross_fitted: bool = False
    accepted_only: bool = False
    n_certificates: int = 1


def _followed_by(stored_samples, fresh):
    """Return stored samples and fresh ones after them, or raise if labels differ."""
    sizes = list(zip(stored_samples.sizes, fresh.sizes, strict=True))
    for name, label in (("group", "groups"), ("source", "ood_source")):
        pairs = zip(stored_samples.by_kind(name), fresh.by_kind(name), strict=True)
        for (old, new), (n_old, n_new) in zip(pairs, sizes, strict=True):
            if n_old and n_new and (old is None) != (new is None):
                raise ValueError(
                    f"The {'stored' if old is None else 'given'} samples have no "
                    f"{label}, but the others have: give {label} in each call of fit, "
                    "with_rule and recalibrate, or in none."
                )
    return stored_samples + fresh


def labeled_samples(owner, data, indices, samples, predicted):
    """Return scored samples with losses, groups, sources and weights.

    `indices` of ID and of OOD samples are positions in `data`, and `predicted` are the
    predictions for ID samples. The parameter `within` of the certificate determines the
    labels of groups.
    """
    of_id, of_ood = indices
    certificate = owner._options()[1]
    within = None if certificate is None else certificate.within
    by_group = certificate is not None and certificate.thresholds == "group"
    group_id = group_ood = None
    if within == "class":
        group_id = data.y[of_id]
    elif within == "predicted_class":
        group_id = np.asarray(predicted)
        if by_group and data.X_ood is not None:
            group_ood = predicted_labels(owner._parts(), data.X_ood)[of_ood]
    elif within == "groups":
        group_id = data.groups[of_id]
        group_ood = data.groups_ood[of_ood] if by_group else None
    (risk_id, risk_ood), (ood_id, ood_ood) = map(samples.by_kind, ("risk", "ood"))
    losses = owner._losses(data.y[of_id], predicted) if len(data.y) else np.empty(0)
    return ScoredSamples.from_arrays(
        *(risk_id, ood_id, losses, risk_ood, ood_ood),
        group_id=group_id,
        group_ood=group_ood,
        source_ood=None if data.source_ood is None else data.source_ood[of_ood],
        weight_id=row_weight(data.weight, of_id),
        weight_ood=row_weight(data.weight_ood, of_ood),
    )


def choose_rule(owner, calibration, split=None, unlabeled=None):
    """Return the operating point of the rule on calibration samples.

    `split` is a mask of the samples that choose a path; None: a random part.
    `unlabeled` are both scores of samples in use.
    """
    solver, certificate = owner._options()
    if certificate is None:
        return solve(owner.rule, calibration.samples, solver)
    certificate = certificate._of(calibration.n_certificates, owner._largest_loss())
    if split is not None:
        certificate.set_params(split=split)
    return certify(
        owner.rule,
        calibration.samples,
        certificate,
        solver,
        unlabeled=unlabeled,
        random_state=owner.random_state,
    )


def set_rule(owner, point, calibration, reference=None):
    """Set the attributes of a rule that was found on calibration samples."""
    names = "risk", "ood", "weight", "group"
    of_id = [calibration.samples.by_kind(name)[0] for name in names]
    found = make_reference(point, *of_id)
    if reference is not None:
        found = reference._replace(typical=found.typical)
    owner.operating_point_ = point
    owner.theta_, owner.lambda_, owner.tau_ = point.theta, point.lam, point.tau
    owner.mu_, owner.gap_ = point.mu, point.gap
    owner.lower_bound_ = point.lower_bound
    owner._reference, owner._calibration = found, calibration


def adapted(owner, scores):
    """Certify the precision of a fitted predictor with scores of unlabeled samples."""
    pool = _stored_pool(owner)
    certificate = owner._options()[1]
    _check_stored(owner, certificate, pool, only_fresh=False, accepted_only=False)
    if certificate is None or certificate.method != "high_probability":
        raise ValueError(
            "adapt is for guarantee='high_probability', got "
            f"guarantee={owner.guarantee!r}."
        )
    risk, ood = scores
    pool = pool._replace(n_certificates=pool.n_certificates + 1)
    unlabeled = risk, None if pool.samples.ood is None else ood
    point = _counted(
        owner, certificate, lambda: choose_rule(owner, pool, None, unlabeled)
    )
    set_rule(owner, point, pool)


def _stored_pool(owner):
    """Return the stored scores of a predictor, or raise."""
    pool = getattr(owner, "_calibration", None)  # absent in old files
    if owner.rule is None or pool is None:
        raise ValueError(
            "There is no rule to recalibrate, or it has no stored scores. Use "
            "with_rule(rule, X, y), which chooses a rule for the fitted parts."
        )
    return pool


def _counted(owner, certificate, choose):
    """Return the rule that is chosen; a refused certificate counts if all must hold."""
    try:
        return choose()
    except NotCertifiableError:
        if certificate.schedule == "all":  # what was tried is spent
            old = owner._calibration
            owner._calibration = old._replace(n_certificates=old.n_certificates + 1)
        raise


def recalibrated(owner, data, *, window, choose, accepted_only):
    """Choose the rule of a fitted predictor again, with fresh samples."""
    stored_pool = _stored_pool(owner)
    if choose not in ("split", "previous"):
        raise ValueError(f"choose must be 'split' or 'previous', got {choose!r}.")
    if window is not None:
        check_scalar(window, "window", int, min_val=1)
    solver, certificate = owner._options()
    check_guarantee(owner, data, solver, certificate)
    # stored samples have chosen the rule that determines which samples are accepted
    only_fresh = choose == "previous" or accepted_only
    _check_stored(owner, certificate, stored_pool, only_fresh, accepted_only)
    old, fresh = stored_pool.samples, _fresh_samples(owner, data)
    if accepted_only:
        _check_accepted(owner, fresh)
        old, fresh = (_accepted(owner, samples) for samples in (old, fresh))
    samples = _followed_by(old, fresh).latest(window)
    pool = stored_pool._replace(
        samples=samples,
        n_certificates=stored_pool.n_certificates + 1,
        accepted_only=accepted_only,
    )
    split = None
    if only_fresh:
        n_fresh = sum(fresh.latest(window).sizes)
        split = np.arange(sum(samples.sizes)) < sum(samples.sizes) - n_fresh
        if not (split & ~samples.is_ood).any():
            raise ValueError(
                f"Earlier samples choose the candidates, but window={window} has "
                f"only the {fresh.sizes[0]} new ID samples. Use a larger window."
            )
    chosen = _choose_among_accepted if accepted_only else choose_rule
    point = _counted(owner, certificate, lambda: chosen(owner, pool, split))
    set_rule(owner, point, pool, owner._reference if accepted_only else None)


def _check_stored(owner, certificate, pool, only_fresh, accepted_only):
    """Raise unless the stored scores suit the kind of calibration."""
    if certificate is not None and pool.cross_fitted:
        raise ValueError(
            f"guarantee={owner.guarantee!r} needs scores of the final models, but the "
            f"stored ones were cross-fitted, with calibration={owner.calibration!r}. "
            "Use with_rule(rule, X, y), which starts with the samples given to it."
        )
    if only_fresh and (certificate is None or certificate.method != "high_probability"):
        raise ValueError(
            "choose='previous' and accepted_only=True are for "
            f"guarantee='high_probability', got guarantee={owner.guarantee!r}."
        )
    if pool.accepted_only and not accepted_only:
        raise ValueError(
            "The stored samples are accepted samples only, from a call with "
            "accepted_only=True. Use with_rule(rule, X, y) to start with samples "
            "labeled regardless of decisions."
        )


def _fresh_samples(owner, data):
    """Return new samples with their scores; ID or OOD samples may be missing."""
    X = data.X if len(data.y) else None
    scored = labeled_scores(owner._parts(), X, data.X_ood)
    return labeled_samples(owner, data, (slice(None), slice(None)), *scored)


def _check_accepted(owner, fresh):
    """Raise unless labels of accepted samples alone can certify the rule."""
    point = owner.operating_point_
    statements = owner.rule.statements()
    if not statements or any(
        bound.loss <= 0 or bound.id > 0 or bound.ood or bound.constant
        for bound in statements
    ):
        raise ValueError(
            f"accepted_only=True: labels of accepted samples certify bounds on the "
            f"selective risk alone, but {owner.rule!r} has other ones, or none: TPR "
            "and FPR are shares of all samples. Use BoundedImprovement, or label "
            "samples regardless of decisions."
        )
    if point.tau != 1 or point.has_two_thresholds or point.has_group_thresholds:
        raise ValueError(
            "accepted_only=True is for rules with one threshold that accept all "
            f"samples below it, got {point!r}."
        )
    scores = [fresh.by_kind(name)[0] for name in ("risk", "ood")]
    rejected = projected(point, *scores) > point.lam
    if rejected.any():
        raise ValueError(
            f"accepted_only=True, but the rule rejects {int(rejected.sum())} of "
            f"{rejected.size} ID samples. Give accepted samples, all whose labels are "
            "known; or set accepted_only=False if samples were labeled regardless of "
            "decisions."
        )


def _accepted(owner, samples):
    """Return the ID samples that the rule accepts."""
    point = owner.operating_point_
    accepted = projected(point, samples.risk, samples.ood) <= point.lam
    return samples.take(accepted & ~samples.is_ood)


def _choose_among_accepted(owner, calibration, split):
    """Return a rule of the same angle that accepts some of the accepted samples.

    Of the samples that a rule accepts, any rule that accepts a subset has the same
    selective risk as among all samples.
    """
    old, samples = owner.operating_point_, calibration.samples
    values = projected(old, samples.risk, samples.ood)
    samples = replace(samples, risk=values, ood=None)
    new = choose_rule(owner, calibration._replace(samples=samples), split)
    return replace(
        new,
        theta=old.theta,
        lam=min(new.lam * new.scales[0], old.lam),
        scales=old.scales,
        rates=Rates(risk=new.risk),
    )
