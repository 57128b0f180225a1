"""Rates of groups and sources in a report, beside the certified bounds."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np

from skood.decision import Estimate
from skood.stats._mean_intervals import UNDEFINED
from skood.utils._labels import column
from skood.utils._weights import check_weight

RATES = ("tpr", "fpr", "risk")


def evaluated_labels(owner, outputs, groups, sources, sample_weight):
    """Return groups and sources of the samples that are evaluated, or None.

    Without `groups` they are the classes for which the rule is certified, and then None
    for OOD samples. ``owner._evaluated`` returns `outputs`.
    """
    y, predicted, _, is_ood, weight = outputs
    if weight is not None and len(np.atleast_1d(sample_weight)) > len(weight):
        rows = check_weight(sample_weight, len(sample_weight)) > 0
    else:
        rows = np.ones(len(y), dtype=bool)
    found: list = []
    for labels, name in ((groups, "groups"), (sources, "ood_source")):
        if labels is None:
            found.append(None)
            continue
        labels = column(labels)
        if labels.shape != rows.shape:
            raise ValueError(
                f"{name} must have one label per sample, got {labels.size} for "
                f"{rows.size} samples."
            )
        found.append(labels[rows])
    within = getattr(getattr(owner, "_calibration", None), "within", None)
    if groups is None and within == "predicted_class":
        found[0] = np.asarray(predicted)
    elif groups is None and within == "class":
        found[0] = np.asarray(y, dtype=object).copy()
        found[0][is_ood] = None
    return found


def _names(labels):
    """Return the distinct labels in their order."""
    return np.unique(labels.tolist()).tolist() if len(labels) else []


def rates_of_labels(accepted, is_ood, labels, level, weight, share, risk):
    """Return the tables of groups and sources of a report, and the gaps.

    ``share(among, weight, level)`` and ``risk(rows, level)`` are estimates. All
    intervals hold simultaneously.
    """
    groups, sources = labels
    of_id, of_ood = weight[~is_ood], weight[is_ood]
    taken, leaked = accepted[~is_ood], accepted[is_ood]
    tables: dict = {"groups": None, "sources": None, "gaps": None}
    cells: list = []  # row of a table, rate, estimate at a level

    def add_share(row, rate, among, weights):
        cells.append((row, rate, lambda level: share(among, weights, level)))

    if groups is not None:
        tables["groups"] = {}
        group_id, group_ood = groups[~is_ood], groups[is_ood]
        for name in _names(group_id):
            rows, others = group_id == name, group_ood == name
            row = {
                "n_id": of_id[rows].sum().item(),
                "n_ood": of_ood[others].sum().item(),
            }
            tables["groups"][name] = {**row, "fpr": UNDEFINED}
            row = tables["groups"][name]
            add_share(row, "tpr", taken[rows], of_id[rows])
            if others.any():
                add_share(row, "fpr", leaked[others], of_ood[others])
            both = rows & taken
            cells.append((row, "risk", lambda level, both=both: risk(both, level)))
    if sources is not None:
        tables["sources"] = {}
        for name in _names(sources[is_ood]):
            others = sources[is_ood] == name
            row = tables["sources"][name] = {"n_ood": of_ood[others].sum().item()}
            add_share(row, "fpr", leaked[others], of_ood[others])
    for row, rate, estimate in cells:
        row[rate] = estimate(1 - (1 - level) / len(cells))
    if groups is not None:
        rows = list(tables["groups"].values())
        tables["gaps"] = {rate: _gap([row[rate] for row in rows]) for rate in RATES}
    return tables


def _gap(estimates):
    """Return the difference of the largest and the smallest of some rates."""
    found = np.array([one for one in estimates if not math.isnan(one.value)])
    if not len(found):
        return UNDEFINED
    (value, low, high), (least, least_low, least_high) = found.max(0), found.min(0)
    ends = np.maximum(0.0, low - least_high), high - least_low  # NaN stays NaN
    return Estimate(float(value - least), *map(float, ends))


def shown_interval(estimate):
    """Return the interval as text."""
    if math.isnan(estimate.low):
        return "unknown"
    return f"[{estimate.low:.4f}, {estimate.high:.4f}]"


def certified_texts(report, rate, group=None, source=None):
    """Return the certified bounds of a rate in a group or of a source, as text."""
    label = group, source
    found = [one for one in report.certified if (one.group, one.source) == label]
    texts = [one.text for one in found if one.rate == rate]
    return ", ".join(
        text.split(" in group ")[0].split(" for source ")[0] for text in texts
    )


def _shown(estimate):
    if math.isnan(estimate.value):
        return f"{'':<25}"
    return f"{f'{estimate.value:.4f} {shown_interval(estimate)}':<25}"


def group_lines(report):
    """Return the tables of groups and sources as lines of text."""
    lines = []
    if report.groups is not None:
        lines.append(
            f"{'group':<12}{'n':>8}  {'tpr':<25}  {'fpr':<25}  {'risk':<25}  certified"
        )
        for name, row in report.groups.items():
            rates = "  ".join(_shown(row[rate]) for rate in RATES)
            bounds = [
                certified_texts(report, rate, group=name) for rate in (*RATES, None)
            ]
            shown = ", ".join(filter(None, bounds))
            lines.append(f"{name!s:<12}{row['n_id']:>8.6g}  {rates}  {shown}".rstrip())
        rates = "  ".join(_shown(report.gaps[rate]) for rate in RATES)
        lines.append(f"{'gap':<12}{'':>8}  {rates}".rstrip())
    if report.sources is not None:
        lines.append(f"{'source':<12}{'n':>8}  {'fpr':<25}  certified")
        for name, row in report.sources.items():
            bounds = certified_texts(report, "fpr", source=name)
            shown = f"{name!s:<12}{row['n_ood']:>8.6g}  {_shown(row['fpr'])}  {bounds}"
            lines.append(shown.rstrip())
    return lines
