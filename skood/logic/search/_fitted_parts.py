"""A fitted detector with other constraints: only the logic is fitted again."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from contextlib import contextmanager

import numpy as np

from skood.metrics import auroc
from skood.utils._calibration import calibration_folds
from skood.utils._metaestimators import take_rows

__all__ = ["aurocs", "held_out_reading", "may_score_nothing", "set_constraints"]


@contextmanager
def may_score_nothing(detector):
    """Allow a detector without constraints and without a detector."""
    detector._may_score_nothing = True
    try:
        yield
    finally:
        del detector._may_score_nothing


def held_out_reading(detector, X, id_rows, seed):
    """Return the reading of the samples that a detector held out of its ID samples."""
    ((_, held_out),) = calibration_folds(len(id_rows), None, detector.calibration, seed)
    return detector._read(take_rows(X, id_rows[held_out]))


def set_constraints(detector, logic, calibration):
    """Set the constraints of a fitted detector, and fit their weights."""
    detector.set_params(constraints=logic)
    kb = detector.knowledge_base_
    detector._set_knowledge_base({k: kb.domains[k] for k in detector.concepts_})
    detector._set_offset(detector._calibrate(calibration))


def aurocs(detector, read, is_ood):
    """Return the AUROC of a detector, and of its outlier scores without logic."""
    labels = np.where(is_ood, -1, 0)
    penalty = detector._penalty_of(detector._truth(read))
    found = auroc(labels, -detector._fused(penalty, detector._log_sf(read)))
    own = np.zeros(len(labels)) if read.outlier is None else -read.outlier
    return found, auroc(labels, own)
