"""Audits of a stream, and the outcomes of their labels."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass

import numpy as np

from skood.utils._labels import ood_mask
from skood.utils._metaestimators import unwrap
from skood.utils._torch import to_numpy

# Default side, and the parameter of a rule that promises a bound.
QUANTITIES = {
    "acceptance": ("lower", "acceptance_min"),
    "tpr": ("lower", "tpr_min"),
    "fpr": ("upper", "fpr_max"),
    "ood_share": ("upper", None),
    "selective_risk": ("upper", "risk_max"),
    "precision": ("lower", "precision_min"),
}


@dataclass(frozen=True)
class Audit:
    """Samples for which a monitor needs labels.

    Parameters
    ----------
    ids : ndarray of shape (n_samples,)
        Numbers of the samples in the stream, from 1.

    audited : ndarray of bool of shape (n_samples,)
        Whether the label of the sample is needed.

    probability : ndarray of shape (n_samples,)
        Probability of an audit of each sample.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.monitor import Audit
    >>> Audit(np.array([7, 8]), np.array([True, False]), np.ones(2)).ids
    array([7, 8])
    """

    ids: np.ndarray
    audited: np.ndarray
    probability: np.ndarray


def waiting(pending, ids):
    """Return numbers of samples as a list, or raise if one is not waited for."""
    ids = np.asarray(to_numpy(ids)).tolist()
    if len(set(ids)) < len(ids):
        raise ValueError(f"ids must differ, got {ids!r:.80}.")
    for i in ids:
        if i not in pending or pending[i][3] is not None:
            raise ValueError(
                f"Sample {i!r} does not wait for a label: it was not audited, or its "
                "label has been given or written off. Give each label of an audited "
                "sample once."
            )
    return ids


def check_values(x, quantity, binary):
    """Raise if values are not in [0, 1], or not 0 or 1 where they have to be."""
    if x.ndim != 1 or not ((x >= 0) & (x <= 1)).all():
        ends = (x.min(), x.max()) if x.size else (None, None)
        raise ValueError(
            f"Values must be in [0, 1] and have the shape (n_samples,), got the shape "
            f"{x.shape}, {ends[0]} to {ends[1]}. Scale losses by their maximum."
        )
    if binary and not ((x == 0) | (x == 1)).all():
        raise ValueError(
            f"Values of {quantity!r} must be 0 or 1, got {x!r:.80}. For other losses "
            "set quantity='selective_risk' and a callable loss."
        )


def outcomes(entries, y, quantity, loss, classes):
    """Return a list of (x, included, False) for samples with labels `y`.

    `entries` are tuples of prediction, acceptance and more; `loss` is "zero_one" or a
    callable.
    """
    is_id = ~ood_mask(y, classes=classes)
    accepted = np.array([one[1] for one in entries])
    included, x = np.ones(len(y), dtype=bool), np.zeros(len(y))
    if quantity in ("tpr", "fpr"):
        included = is_id if quantity == "tpr" else ~is_id
        x[:] = accepted
    elif quantity == "selective_risk":
        included = is_id & accepted
        predicted = np.array([one[0] for one in entries])[included]
        true = y[included]
        if included.any():
            x[included] = loss(true, predicted) if callable(loss) else true != predicted
    else:
        x[:] = is_id if quantity == "precision" else ~is_id
    check_values(x, quantity, binary=False)
    return [(one, bool(g), False) for one, g in zip(x.tolist(), included, strict=True)]


def promised(estimator, quantity):
    """Return the bound that the rule of an estimator promises, or raise."""
    name = QUANTITIES[quantity][1]
    rule = getattr(unwrap(estimator)[0], "rule", None)
    bound = getattr(rule, name, None) if name else None
    if bound is None or not 0 < bound < 1:
        raise ValueError(
            f"bound=None needs an estimator whose rule promises a bound on {quantity!r}"
            f" in (0, 1), got {rule!r}. Give bound. A bound that was estimated from "
            "data is no promise: to compare with a calibration set, monitor accepted "
            "samples (0 or 1) with ExchangeabilityMonitor."
        )
    return bound


def reject_label(estimator):
    """Return the label of rejected samples, or raise."""
    estimator = unwrap(estimator)[0]
    if not hasattr(estimator, "reject_label_"):
        raise ValueError(
            f"update(X) needs a fitted classifier with a reject option, got "
            f"{type(estimator).__name__} without reject_label_. Give a "
            "RejectOptionClassifier, or call update_values(x)."
        )
    return estimator.reject_label_


def audit_weights(probability, n, least, fixed):
    """Return pi_min / pi_t, or raise if a probability is not valid.

    `least` is pi_min; unless `fixed` is None, all probabilities must be equal to it.
    """
    good = (
        probability.shape == (n,)
        and ((probability >= least) & (probability <= 1)).all()
    )
    if not good or (fixed is not None and (probability != fixed).any()):
        expected = f"in [{least}, 1]" if fixed is None else f"audit={fixed}"
        raise ValueError(
            f"Probabilities of audits must have the shape ({n},) and be {expected}, "
            f"got {probability!r:.80}. Set min_audit if they vary."
        )
    return least / probability
