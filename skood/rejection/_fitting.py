"""Fit of a selective predictor: its parts, then its rule."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from numbers import Real

from skood.decision import TwoThresholds
from skood.rejection._calibration import calibrate, fit_parts
from skood.rejection._checks import check_calibration, fit_arguments
from skood.rejection._inputs import detector_input
from skood.rejection._regression_scores import reads_samples
from skood.rejection._score_pool import (
    CalibrationRecord,
    choose_rule,
    labeled_samples,
    set_rule,
)
from skood.utils._metaestimators import with_seeds
from skood.utils._warnings import warn


def fit_predictor(owner, X, y, sample_weight, groups, ood_source):
    """Fit the parts of a predictor, and choose its rule."""
    parts = owner._given_parts()
    owner._possible_losses()  # raises if the loss is of another kind
    data = owner._separated(X, y, sample_weight, groups, ood_source)
    owner._check_data(data, parts)
    if owner.rule is not None:
        check_calibration(owner, parts, data, *owner._options())
    owner.detector_inputs_ = {
        name: "X" if reads_samples(parts, detector) else detector_input(detector)
        for name, detector in zip(("risk", "ood"), parts[1:], strict=True)
        if detector is not None
    }
    with owner._naming_ood_label(data):
        calibrated = _fit_parts(owner, parts, data)
    if owner.rule is None:
        owner.operating_point_ = owner._reference = owner._calibration = None
        return
    indices, scored = calibrated
    share = owner.calibration
    once = isinstance(share, str) or (isinstance(share, Real) and share < 1)
    samples = labeled_samples(owner, data, indices, *scored)
    certificate = owner._options()[1]
    within = None if certificate is None else certificate.within
    stored = CalibrationRecord(samples, within, cross_fitted=not once)
    set_rule(owner, choose_rule(owner, stored), stored)
    # than the risk score; TwoThresholds has no weights, also if it lacks a threshold
    weighs_less = abs(owner.theta_) < math.pi / 4
    weighs_less &= not isinstance(owner.rule, TwoThresholds)
    if data.X_ood is None and owner.ood_detector is not None and weighs_less:
        _warn_of_weight(owner)


def _fit_parts(owner, parts, data):
    """Store the fitted parts; return the calibration data of the rule."""
    certificate = owner._options()[1]
    if certificate is not None and certificate.within == "groups":
        # they are no groups of dependent samples, which are held out together
        data = data._replace(groups=None, groups_ood=None)
    data = data._replace(arguments=fit_arguments(owner, parts, data))
    if owner.rule is None:
        parts = type(parts)(*with_seeds(parts, owner.random_state))
        fitted = fit_parts(parts, data.X, data.y, data.arguments)
        owner._store(fitted, data.y, data.y[:0])
        return None
    fitted, *calibrated, unfitted = calibrate(
        parts,
        data,
        calibration=owner.calibration,
        random_state=owner.random_state,
        n_jobs=owner.n_jobs,
    )
    owner._store(fitted, data.y, unfitted)
    return calibrated


def _warn_of_weight(owner):
    """Warn that only errors on ID samples determine the weight of the OOD score."""
    warn(
        "y has no OOD samples, so that the weight of ood_detector was chosen by "
        f"the errors on ID samples alone: theta_ = {owner.theta_:.3g} (at 0 only "
        f"the risk score counts, at pi / 2 only the OOD score), mu_ = "
        f"{owner.mu_:.3g}. OOD samples may be accepted, however low the detector "
        f"scores them. Add known OOD samples, {owner._marked_ood()}, and use a rule "
        "that bounds their rate, such as BoundedTPRFPR; or use "
        "rule=TwoThresholds(), which has a threshold for each score."
    )
