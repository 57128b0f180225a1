"""Validation of the samples that a rule is chosen on."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.decision._base_rule import check_rule
from skood.decision._calibration_sample import Problem
from skood.decision._operating_point import check_pair
from skood.utils._labels import column
from skood.utils._weights import check_weight


def _check_loss(loss_id, n_id):
    """Return the losses as float64 of shape (n_id,), or raise."""
    loss_id = column(loss_id).astype(np.float64, copy=False)
    if loss_id.size != n_id:
        raise ValueError(
            f"loss_id must have one entry per ID sample, got {loss_id.size} for {n_id} "
            f"samples."
        )
    bad = ~(np.isfinite(loss_id) & (loss_id >= 0))
    if bad.any():
        raise ValueError(
            f"loss_id must be finite and not negative, got {float(loss_id[bad][0])!r}."
        )
    return loss_id


def _present(weight, name, risk, *others):
    """Return the arrays and the weights of samples of positive weight."""
    weight = check_weight(weight, risk.size, name)
    if weight is None or weight.all():
        return risk, *others, weight
    rows = weight > 0
    arrays = risk, *others, weight
    return tuple(None if array is None else array[rows] for array in arrays)


def check_problem(
    rule,
    risk_id,
    ood_id,
    loss_id,
    risk_ood,
    ood_ood,
    sample_weight_id=None,
    sample_weight_ood=None,
):
    """Return the samples as a checked problem, or raise."""
    check_rule(rule)
    double = ood_id is not None
    risk_id, ood_id = check_pair(risk_id, ood_id, ("risk_id", "ood_id"), False)
    if risk_id.size == 0:
        raise ValueError("No ID samples: risk_id is empty; a rule needs ID samples.")
    loss_id = _check_loss(loss_id, risk_id.size)
    if risk_ood is None:
        if ood_ood is not None:
            raise ValueError(
                "ood_ood is given although risk_ood is None; pass both scores of the "
                "OOD samples, or none."
            )
        risk_ood, ood_ood = np.empty(0), np.empty(0) if double else None
    risk_ood, ood_ood = check_pair(risk_ood, ood_ood, ("risk_ood", "ood_ood"), double)
    if ood_ood is not None and not double:
        raise ValueError(
            "ood_ood is given although ood_id is None; pass both scores for ID and "
            "for OOD samples, or one for both."
        )
    risk_id, ood_id, loss_id, weight_id = _present(
        sample_weight_id, "sample_weight_id", risk_id, ood_id, loss_id
    )
    if risk_ood.size:
        risk_ood, ood_ood, weight_ood = _present(
            sample_weight_ood, "sample_weight_ood", risk_ood, ood_ood
        )
    else:
        weight_ood = None
    if rule.needs_ood and risk_ood.size == 0:
        raise ValueError(
            f"{type(rule).__name__} needs OOD samples, since it depends on the share "
            f"of them that is accepted; got none. Add OOD samples, or use a rule that "
            f"needs none, such as TwoThresholds(ood=0.05, risk=0.05)."
        )
    rows = risk_id, ood_id, loss_id, risk_ood, ood_ood
    return Problem(*rows, weight_id, weight_ood)
