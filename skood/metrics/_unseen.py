"""Values of a metric under possible unseen samples, and the ranges of metrics."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import functools
import itertools
import math

import numpy as np

from skood.metrics._calibration import brier, expected_calibration_error
from skood.metrics._ranking import GREATER_IS_BETTER
from skood.metrics._resampling import parameters_of
from skood.metrics._risk_coverage import (
    augrc,
    aurc,
    ccr_at_fpr,
    coverage_at_risk,
    e_aurc,
    oscr,
    risk_at_coverage,
)

# Metrics of scores that are largest or smallest with additional samples at the ends of
# the scale of the scores.
_OF_BOTH = *GREATER_IS_BETTER, oscr, ccr_at_fpr
_OF_LOSSES = aurc, e_aurc, augrc, risk_at_coverage, coverage_at_risk
_OF_ID = *_OF_LOSSES, expected_calibration_error, brier
_RANGES = {brier: (0.0, 2.0)}
_WITHOUT_SCORES = expected_calibration_error, brier


def known_metric(system):
    """Return the skood metric of a system (None if it is another) and its parameters.

    The metric may be a `functools.partial`; parameters include the defaults.
    """
    arguments: dict = {}
    metric = system.metric
    while isinstance(metric, functools.partial) and not metric.args:
        arguments = metric.keywords | arguments
        metric = metric.func
    if not (callable(metric) and any(metric is m for m in (*_OF_BOTH, *_OF_ID))):
        return None, {}
    defaults = {name: p.default for name, p in parameters_of(metric).items()}
    return metric, defaults | arguments | system.params


def range_of(system):
    """Return the least and the largest value of the metric, None if unknown."""
    metric, params = known_metric(system)
    if metric is None:
        return None
    if metric not in _OF_LOSSES:
        return _RANGES.get(metric, (0.0, 1.0))
    loss = params["loss"]
    if "loss" in system.row_params or callable(loss):
        return None
    if isinstance(loss, str) or metric is coverage_at_risk:
        return 0.0, 1.0
    return 0.0, float(np.max(loss))


def relevant_strata(system, strata, is_ood):
    """Return the strata that the metric uses: ID strata only, if it ignores OOD."""
    if known_metric(system)[0] not in _OF_ID:
        return strata
    return [indices for indices in strata if not is_ood[indices].all()]


def _unseen_fraction(n, tail):
    """Return the population fraction that `n` samples miss with probability `tail`."""
    return 1 - tail ** (1 / n)


def _label_pairs(system, params, row):
    """Return (label, prediction) pairs of a right and of a wrong decision."""
    label = system.y_true[row]
    loss = params.get("loss", "zero_one")
    if np.ndim(loss) == 2 and not isinstance(loss, str):
        cells = [
            np.unravel_index(i, np.shape(loss))
            for i in (np.argmin(loss), np.argmax(loss))
        ]
        classes = np.asarray(params["classes"])
        return [(classes[i], classes[j]) for i, j in cells]
    others = [p for p in np.unique(system.y_true) if p != label]
    other = (
        others[0]
        if others
        else (f"not {label}" if isinstance(label, str) else label + 1)
    )
    return [(label, label), (label, other)]


def _extreme_samples(system, params, row, bounds, is_ood):
    """Yield arrays by name: possible inputs of an unseen sample like `row`."""
    names = list(parameters_of(system.metric))[1:]
    inputs = dict(zip(names, system.arrays, strict=False)) | system.row_params
    inputs = {name: array for name, array in inputs.items() if array is not None}
    values = {
        name: (-np.inf, np.inf)
        for name in ("y_score", "ood_score")
        if name in inputs and inputs[name].ndim == 1
    }
    if "loss" in inputs:
        values["loss"] = 0.0, max(bounds[1], float(np.max(inputs["loss"])))
    pairs = [(system.y_true[row], None)]
    if not is_ood and "y_pred" in inputs:
        pairs = _label_pairs(system, params, row)
    for (label, predicted), chosen in itertools.product(
        pairs, itertools.product(*values.values())
    ):
        sample = dict(zip(values, chosen, strict=True))
        if predicted is not None:
            sample["y_pred"] = predicted
        yield label, sample


def _extended(system, row, label, sample, copies):
    """Return the system with copies of `row` added, except the entries in `sample`."""
    names = list(parameters_of(system.metric))[1:]

    def extend(name, array):
        if array is None:
            return None
        entry = np.asarray([sample[name]]) if name in sample else array[row][None]
        return np.concatenate([array, np.repeat(entry, copies, axis=0)])

    return system._replace(
        y_true=np.concatenate([system.y_true, np.repeat([label], copies)]),
        arrays=tuple(
            extend(name, a) for name, a in zip(names, system.arrays, strict=False)
        ),
        row_params={name: extend(name, a) for name, a in system.row_params.items()},
    )


def unseen_values(system, strata, is_ood, bounds, confidence_level):
    """Return lists of values of the metric with added unseen samples, by kind.

    They have extreme scores, predictions and losses. Two-sided: each side is missed
    with half the error.
    """
    params, value = known_metric(system)[1], system.value()
    kinds = []
    for indices in strata:
        fraction = _unseen_fraction(indices.size, (1 - confidence_level) / 2)
        copies = math.ceil(indices.size * fraction / (1 - fraction))
        # the fraction of whole copies is larger; their effect is about proportional to
        # it
        weight = fraction * (1 + indices.size / copies)
        for kind in (False, True):
            alike = indices[is_ood[indices] == kind]
            if alike.size == 0:
                continue
            row = alike[0]
            samples = _extreme_samples(system, params, row, bounds, kind)
            weights = system.row_params.get("sample_weight")
            mean = {} if weights is None else {"sample_weight": weights[alike].mean()}
            values = [
                _extended(system, row, label, sample | mean, copies).value()
                for label, sample in samples
            ]
            kinds.append([value + weight * (end - value) for end in values])
    return kinds


def unseen_interval(value, system, strata, is_ood, bounds, confidence_level):
    """Return the values of the metric that unseen samples do not rule out.

    For a metric without scores, the ends are the ends of a mean: a fraction 1 -
    tail^(1/n) of samples is at either end of the range.
    """
    metric, _ = known_metric(system)
    if metric is not None and metric not in _WITHOUT_SCORES:
        of_kinds = unseen_values(system, strata, is_ood, bounds, confidence_level)
        values = [value, *itertools.chain.from_iterable(of_kinds)]
        return min(values), max(values)
    return _towards(bounds, value, strata, confidence_level)


def _towards(ends, value, strata, confidence_level):
    """Return a mean with the unseen samples of the smallest stratum at either end."""
    smallest = min(indices.size for indices in strata)
    fraction = _unseen_fraction(smallest, (1 - confidence_level) / 2)
    return tuple(value + fraction * (end - value) for end in ends)


def unseen_difference(pair, values, strata, is_ood, bounds, confidence_level):
    """Return the differences that unseen samples do not rule out."""
    difference = values[0] - values[1]
    metric, _ = known_metric(pair[0])
    if metric is None or metric in _WITHOUT_SCORES:
        width = bounds[1] - bounds[0]
        return _towards((-width, width), difference, strata, confidence_level)
    first, second = (
        unseen_values(system, strata, is_ood, bounds, confidence_level)
        for system in pair
    )
    kinds = list(zip(first, second, strict=True))
    low = min(min(a) - max(b) for a, b in kinds)
    high = max(max(a) - min(b) for a, b in kinds)
    return min(low, difference), max(high, difference)
