"""Scores of labeled samples on which the rule of a fitted predictor is chosen."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_scalar

from skood.decision import Rates, certify, projected, solve
from skood.exceptions import NotCertifiableError
from skood.rejection._calibration import labeled_scores, predicted_labels
from skood.rejection._checks import check_guarantee
from skood.rejection._explanation import make_reference
from skood.utils._stored import stored
from skood.utils._weights import row_weight


@stored
class ScorePool(NamedTuple):
    """Scores (high = reject), losses and labels of samples, in their order.

    Arrays of shape (n_id,) end with "id", of shape (n_ood,) with "ood"; all but the
    risk and the loss may be None. ``within`` is the kind of groups, ``n_certificates``
    counts the certificates that were tried, with ``cross_fitted`` several models
    computed the scores, and with ``accepted_only`` the rule accepts all samples.
    """

    risk_id: np.ndarray
    ood_id: np.ndarray | None
    loss_id: np.ndarray
    group_id: np.ndarray | None
    weight_id: np.ndarray | None
    risk_ood: np.ndarray
    ood_ood: np.ndarray | None
    group_ood: np.ndarray | None
    source_ood: np.ndarray | None
    weight_ood: np.ndarray | None
    within: str | None = None
    cross_fitted: bool = False
    accepted_only: bool = False
    n_certificates: int = 1

    def take(self, rows_id, rows_ood):
        """Return some of the samples, by masks or slices."""
        pairs = [(name, rows_id) for name in _OF_ID]
        pairs += [(name, rows_ood) for name in _OF_OOD]
        found: dict = {}
        for name, rows in pairs:
            array = getattr(self, name)
            found[name] = None if array is None else array[rows]
        return self._replace(**found)

    def latest(self, window):
        """Return the last `window` ID and OOD samples; None: all."""
        if window is None:
            return self
        return self.take(slice(-window, None), slice(-window, None))

    @property
    def sizes(self):
        """Numbers of ID and of OOD samples."""
        return len(self.risk_id), len(self.risk_ood)

    def followed_by(self, fresh):
        """Return these samples and `fresh` ones after them."""
        found: dict = {}
        kinds = zip((_OF_ID, _OF_OOD), self.sizes, fresh.sizes, strict=True)
        for names, *sizes in kinds:
            for name in names:
                old, new = getattr(self, name), getattr(fresh, name)
                if old is not None or new is not None:
                    found[name] = _joined(name, old, new, *sizes)
        return self._replace(**found)


# Arrays of ID and of OOD samples.
_OF_ID = ("risk_id", "ood_id", "loss_id", "group_id", "weight_id")
_OF_OOD = ("risk_ood", "ood_ood", "group_ood", "source_ood", "weight_ood")


def _joined(name, old, new, n_old, n_new):
    """Return an array of stored samples with that of new ones after it."""
    if name.startswith("weight"):
        old = np.ones(n_old) if old is None else old
        new = np.ones(n_new) if new is None else new
    if (n_old and old is None) or (n_new and new is None):
        label = "groups" if name.startswith("group") else "ood_source"
        raise ValueError(
            f"The {'stored' if old is None else 'given'} samples have no {label}, but "
            f"the others have: give {label} in each call of fit, with_rule and "
            "recalibrate, or in none."
        )
    given = [part for part, n in ((old, n_old), (new, n_new)) if n]
    return np.concatenate(given) if given else old


def calibrated_pool(owner, data, rows, scores, *, cross_fitted=False):
    """Return the pool of scores of samples; `rows` of ID and of OOD samples of `data`.

    The parameter `within` of the certificate determines the labels of groups.
    """
    of_id, of_ood = rows
    certificate = owner._options()[1]
    within = None if certificate is None else certificate.within
    by_group = certificate is not None and certificate.thresholds == "group"
    group_id = group_ood = None
    if within == "class":
        group_id = data.y[of_id]
    elif within == "predicted_class":
        group_id = np.asarray(scores.pred_id)
        if by_group and data.X_ood is not None:
            group_ood = predicted_labels(owner._parts(), data.X_ood)[of_ood]
    elif within == "groups":
        group_id = data.groups[of_id]
        group_ood = data.groups_ood[of_ood] if by_group else None
    return ScorePool(
        scores.risk_id,
        scores.ood_id,
        owner._losses(data.y[of_id], scores.pred_id) if len(data.y) else np.empty(0),
        group_id,
        row_weight(data.weight, of_id),
        scores.risk_ood,
        scores.ood_ood,
        group_ood,
        None if data.source_ood is None else data.source_ood[of_ood],
        row_weight(data.weight_ood, of_ood),
        within,
        cross_fitted=cross_fitted,
    )


def choose_rule(owner, pool, split=None, unlabeled=None):
    """Return the operating point of the rule on a pool of scores.

    `split` has masks of the ID and OOD samples that choose a path; None: a random part.
    `unlabeled` are both scores of samples in use.
    """
    rows = pool.risk_id, pool.ood_id, pool.loss_id, pool.risk_ood, pool.ood_ood
    solver, certificate = owner._options()
    if certificate is None:
        return solve(
            owner.rule,
            *rows,
            **solver._options(),
            sample_weight_id=pool.weight_id,
            sample_weight_ood=pool.weight_ood,
        )
    options = certificate._options(pool.n_certificates)
    if split is not None:
        options["split"] = split
    if unlabeled is not None:
        options["unlabeled"] = unlabeled
    return certify(
        owner.rule,
        *rows,
        solver=solver.method,
        angles=solver.angles,
        random_state=owner.random_state,
        max_loss=owner._largest_loss(),
        group_id=pool.group_id,
        group_ood=pool.group_ood,
        source_ood=pool.source_ood,
        **options,
    )


def set_rule(owner, point, pool, reference=None):
    """Set the attributes of a rule that was found on a pool of scores."""
    of_id = pool.risk_id, pool.ood_id, pool.weight_id, pool.group_id
    found = make_reference(point, *of_id)
    if reference is not None:
        found = reference._replace(typical=found.typical)
    owner.operating_point_ = point
    owner.theta_, owner.lambda_, owner.tau_ = point.theta, point.lam, point.tau
    owner.mu_, owner.gap_ = point.mu, point.gap
    owner.lower_bound_ = point.lower_bound
    owner._reference, owner._pool = found, pool


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
    unlabeled = risk, None if pool.ood_id is None else ood
    point = _counted(
        owner, certificate, lambda: choose_rule(owner, pool, None, unlabeled)
    )
    set_rule(owner, point, pool)


def _stored_pool(owner):
    """Return the stored scores of a predictor, or raise."""
    pool = getattr(owner, "_pool", None)  # absent in old files
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
            old = owner._pool
            owner._pool = old._replace(n_certificates=old.n_certificates + 1)
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
    fresh = _fresh_pool(owner, data)
    if accepted_only:
        _check_accepted(owner, fresh)
        stored_pool, fresh = (_accepted(owner, one) for one in (stored_pool, fresh))
    pool = stored_pool.followed_by(fresh).latest(window)
    pool = pool._replace(
        n_certificates=stored_pool.n_certificates + 1, accepted_only=accepted_only
    )
    split = None
    if only_fresh:
        split = tuple(
            np.arange(n) < n - n_fresh
            for n, n_fresh in zip(pool.sizes, fresh.sizes, strict=True)
        )
        if not split[0].any():
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


def _fresh_pool(owner, data):
    """Return the pool of new samples; ID or OOD samples may be missing."""
    X = data.X if len(data.y) else None
    scores = labeled_scores(owner._parts(), X, data.X_ood)
    return calibrated_pool(owner, data, (slice(None), slice(None)), scores)


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
    rejected = projected(point, fresh.risk_id, fresh.ood_id) > point.lam
    if rejected.any():
        raise ValueError(
            f"accepted_only=True, but the rule rejects {int(rejected.sum())} of "
            f"{rejected.size} ID samples. Give accepted samples, all whose labels are "
            "known; or set accepted_only=False if samples were labeled regardless of "
            "decisions."
        )


def _accepted(owner, pool):
    """Return the ID samples of a pool that the rule accepts."""
    point = owner.operating_point_
    accepted = projected(point, pool.risk_id, pool.ood_id) <= point.lam
    return pool.take(accepted, slice(0, 0))


def _choose_among_accepted(owner, pool, split):
    """Return a rule of the same angle that accepts some of the accepted samples.

    Of the samples that a rule accepts, any rule that accepts a subset has the same
    selective risk as among all samples.
    """
    old = owner.operating_point_
    values = projected(old, pool.risk_id, pool.ood_id)
    new = choose_rule(
        owner, pool._replace(risk_id=values, ood_id=None, ood_ood=None), split
    )
    return replace(
        new,
        theta=old.theta,
        lam=min(new.lam * new.scales[0], old.lam),
        scales=old.scales,
        rates=Rates(risk=new.risk),
    )
