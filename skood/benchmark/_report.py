"""Report of comparisons as a self-contained HTML page."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import os
import platform
from datetime import datetime
from html import escape

import numpy as np
from sklearn.metrics import auc

from skood.benchmark._cells import ID
from skood.benchmark._figures import curves, histogram, key, roc
from skood.benchmark._hashing import versions
from skood.benchmark._inputs import METRICS
from skood.benchmark._page import cell, html_page, table
from skood.metrics import RiskCoverageCurve
from skood.utils._files import write_text

_METRICS = {
    "auroc": (
        "AUROC",
        "area under the ROC curve: how often an ID sample has a higher score than an "
        "OOD row",
    ),
    "aupr_in": ("AUPR-in", "average precision of finding the ID samples"),
    "aupr_out": ("AUPR-out", "average precision of finding the OOD samples"),
    "fpr_at_tpr": (
        "FPR95",
        "share of the OOD samples that are accepted where 95 % of the ID samples are",
    ),
    "detection_error": (
        "Detection error",
        "error rate at the best threshold, if ID and OOD samples are equally frequent",
    ),
}

_TIE = 0.01 + 1e-9  # smaller differences of means do not decide

_BEST = '<span role="img" aria-label="best" title="best">★</span>'
_EQUAL = (
    '<span role="img" aria-label="not significantly worse than the best" '
    'title="not significantly worse than the best">☆</span>'
)


def write_report(path, comparisons, *, title="skood: comparison", command=None):
    """Write a list of (title, text, Comparison) to an HTML file, atomically."""
    parts = [_verdict(comparisons), _facts(comparisons, command)]
    if len(comparisons) > 1:
        parts.append(_overview(comparisons))
    parts.append(_how_to_read())
    for i, (name, text, comparison) in enumerate(comparisons):
        parts += _section(f"part-{i}", name, text, comparison)
    write_text(path, html_page(title, parts))


def leaders(comparison):
    """Return the first metric, and pairs (detector, mean over sets), the best first."""
    metric = comparison.rows[0]["metric"]
    values: dict = {}
    for row in comparison.rows:
        if row["metric"] == metric and not row["is_group"]:
            values.setdefault(row["detector"], []).append(row["value"])
    means = [(name, float(np.mean(found))) for name, found in values.items()]
    return metric, sorted(means, key=lambda pair: -METRICS[metric] * pair[1])


def tied(comparison):
    """Return the detectors whose mean is within 0.01 of the best, the best first."""
    means = leaders(comparison)[1]
    return [name for name, value in means if abs(value - means[0][1]) <= _TIE]


def _verdict(comparisons):
    """Return the best detector of each comparison, or those that tie."""
    lines = []
    for name, _, comparison in comparisons:
        (metric, means), best = leaders(comparison), tied(comparison)
        value = f"{_header(metric)} {means[0][1]:.3f} on average over the OOD sets"
        text = f"{best[0]} is best ({value})."
        if len(best) > 1:
            text = f"tie of {', '.join(best)} (within 0.01; the best has {value})."
        lines.append(f"<p><b>{escape(name)}:</b> {escape(text)}</p>")
    return "\n".join(lines)


def _header(metric):
    """Return the name of a metric, with an arrow towards better values."""
    return _METRICS[metric][0] + (" ↑" if METRICS[metric] > 0 else " ↓")


def _list(pairs):
    lines = [f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in pairs.items()]
    return '<dl class="facts">' + "\n".join(lines) + "</dl>"


def _facts(comparisons, command):
    """Return the date, the software, the machine, the seed and the command."""
    seeds = {str(found.settings["random_state"]) for *_, found in comparisons}
    machine = platform.system(), platform.machine(), f"{os.cpu_count()} CPUs"
    return _list(
        {
            "Date": datetime.now().astimezone().isoformat(" ", "minutes"),
            "Versions": ", ".join(f"{k} {v}" for k, v in versions().items()),
            "Machine": ", ".join(machine),
            "Seed": ", ".join(sorted(seeds)),
        }
        | ({"Command": command} if command else {})
    )


def _overview(comparisons):
    """Return a table with a row for each comparison."""
    rows = []
    for i, (name, _, comparison) in enumerate(comparisons):
        metric, means = leaders(comparison)
        first = comparison.rows[0]
        link = f'<a href="#part-{i}">{escape(name)}</a>'
        best, value = means[0]
        rows.append(
            [
                cell(link, "th", scope="row"),
                cell(f"{first['n_id']:,}"),
                cell(f"{sum(comparison.sets.values()):,}"),
                cell(str(len(means))),
                cell(f"{escape(best)} ({_header(metric)} {value:.3f})", name="text"),
            ]
        )
    columns = ("comparison", "ID samples", "OOD samples", "detectors")
    head = [cell(text, "th", scope="col") for text in columns]
    head.append(cell("best on average over the sets", "th", "text", "col"))
    return table("What is compared, and what came first.", head, rows)


def _how_to_read():
    lines = [
        f"<dt>{_header(metric)}</dt><dd>{escape(text)}.</dd>"
        for metric, (_, text) in _METRICS.items()
    ]
    return (
        "<details><summary>How to read this page</summary>"
        '<dl class="facts">' + "\n".join(lines) + "</dl>"
        "<p>ID: in-distribution; OOD: out-of-distribution. Scores are high for ID "
        "samples. In brackets are bootstrap intervals over the samples that are "
        f"scored. {_BEST} is the best of its column; {_EQUAL} is not significantly "
        "worse than the best, by p-values that take into account that the best was "
        "chosen on the same samples, and how many detectors there are. Do not name a "
        "winner among these.</p></details>"
    )


def _section(anchor, name, text, comparison):
    """Return the section of a comparison."""
    yield f'<section id="{anchor}"><h2>{escape(name)}</h2>'
    if text:
        yield f"<p>{escape(text)}</p>"
    yield _settings(comparison)
    yield _sets(comparison)
    metrics = list(dict.fromkeys(row["metric"] for row in comparison.rows))
    yield f"<h3>{_header(metrics[0])}</h3>"
    yield _metric_table(comparison, metrics[0], with_seconds=True)
    for metric in metrics[1:]:
        yield f"<details><summary>{_header(metric)}</summary>"
        yield _metric_table(comparison, metric)
        yield "</details>"
    yield "<h3>ROC curves and scores</h3>"
    for i, rows in enumerate(comparison.sets):
        yield f"<details{'' if i else ' open'}>"
        yield from _set_figures(comparison, rows)
        yield "</details>"
    yield from _risk_coverage(comparison)
    yield "</section>"


def _settings(comparison):
    """Return a description of the settings of the comparison."""
    given, first = comparison.settings, comparison.rows[0]
    n = len({row["detector"] for row in comparison.rows})
    fitted = (
        f"fitted on {comparison.n_train:,} ID samples"
        if comparison.n_train
        else "frozen"
    )
    many = given["repeats"] > 1
    return (
        f'<p class="soft">{n} {"detectors" if n > 1 else "detector"}, {fitted}, '
        f"evaluated on {first['n_id']:,} held-out ID samples; {given['repeats']} "
        f"{'repeats, of which values are averages' if many else 'repeat'}; seed "
        f"{escape(str(given['random_state']))}; {_percent(given)} intervals from "
        f"{given['n_resamples']:,} resamples.</p>"
    )


def _percent(given):
    return f"{100 * given['confidence_level']:.4g} %"


def _sets(comparison):
    """Return a table of the sets of OOD samples and their groups."""
    rows = []
    for name, n in comparison.sets.items():
        groups = [g for g, members in comparison.groups.items() if name in members]
        rows.append(
            [
                cell(escape(name), "th", scope="row"),
                cell(f"{n:,}"),
                cell(escape(", ".join(groups)) or "–", name="text"),
            ]
        )
    head = [
        cell("OOD set", "th", scope="col"),
        cell("samples", "th", scope="col"),
        cell("groups", "th", "text", "col"),
    ]
    return table("OOD sets", head, rows)


def _metric_table(comparison, metric, with_seconds=False):
    """Return a table of one metric: detectors by sets and groups."""
    rows = [row for row in comparison.rows if row["metric"] == metric]
    columns = {row["ood"]: row["is_group"] for row in rows}
    found = {(row["detector"], row["ood"]): row for row in rows}
    alpha = 1 - comparison.settings["confidence_level"]
    seconds = _second_columns(rows) if with_seconds else {}
    head = [cell("detector", "th", scope="col")]
    for name, is_group in columns.items():
        label = escape(name) + (" <small>mean of group</small>" if is_group else "")
        head.append(cell(label, "th", "group" if is_group else "", "col"))
    head += [cell(text, "th", "group", "col") for text in seconds.values()]
    lines = []
    for name in dict.fromkeys(row["detector"] for row in rows):
        line = [cell(escape(name), "th", scope="row")]
        line += [_value(found[name, column], alpha) for column in columns]
        any_row = found[name, next(iter(columns))]
        line += [cell(f"{any_row[k]:.3f}", name="group") for k in seconds]
        lines.append(line)
    what = _METRICS[metric][1]
    caption = (
        f"{what[0].upper()}{what[1:]}, with {_percent(comparison.settings)} intervals. "
        f"{_BEST} best, {_EQUAL} not significantly worse (p &gt; {alpha:.4g})."
    )
    return table(caption, head, lines)


def _second_columns(rows):
    """Return the columns of seconds, including network seconds if present."""
    columns = {"fit_seconds": "fit s", "score_seconds": "score s"}
    if any(row["network_seconds"] > 0 for row in rows):
        columns["network_seconds"] = "network s <small>shared</small>"
    return columns


def _value(row, alpha):
    """Return a cell with a value, its interval and its mark."""
    name = "group" if row["is_group"] else ""
    value = f"{row['value']:.3f}"
    if row["pvalue"] > alpha:
        value = f"{_BEST if row['is_best'] else _EQUAL} <b>{value}</b>"
        name = f"{name} best".strip()
    return cell(
        f"{value}<small>[{row['low']:.3f}, {row['high']:.3f}]</small>", "td", name
    )


def _chart(what, caption, lines, areas, axes, digits, **options):
    """Return curves, and a list of them with their areas, in the order of `areas`."""
    texts = {name: f"{area:.{digits}f}" for name, area in areas.items()}
    label = f"{what}: " + ", ".join(f"{name} {text}" for name, text in texts.items())
    # the best curve is drawn last, above the others
    drawn = curves(label, {k: lines[k] for k in reversed(texts)}, *axes, **options)
    legend = [
        f'<li class="k{(i := lines[name][0])}">{key(i)}<span>{escape(name)}</span>'
        f"<b>{text}</b></li>"
        for name, text in texts.items()
    ]
    return (
        f'<figure><figcaption>{caption}</figcaption><div class="both">{drawn}\n'
        '<ol class="legend">' + "\n".join(legend) + "</ol></div></figure>"
    )


def _detectors(comparison):
    return list(dict.fromkeys(row["detector"] for row in comparison.rows))


def _first_repeat(comparison):
    return " of the first repeat" if comparison.settings["repeats"] > 1 else ""


def _set_figures(comparison, rows):
    """Return ROC curves and histograms of one set of OOD samples."""
    scores = comparison.scores[0]
    lines, areas = {}, {}
    for i, name in enumerate(_detectors(comparison)):
        fpr, tpr = roc(scores[name, ID], scores[name, rows])
        lines[name], areas[name] = (i, fpr, tpr), auc(fpr, tpr)
    areas = dict(sorted(areas.items(), key=lambda pair: -pair[1]))
    best, area = next(iter(areas.items()))
    yield (
        f'<summary>{escape(rows)} <span class="soft">best AUROC {area:.3f}: '
        f"{escape(best)}</span></summary>"
    )
    yield _chart(
        f"ROC curves, ID samples against {rows}. AUROC",
        f"ROC curves{_first_repeat(comparison)}; AUROC behind the names",
        lines,
        areas,
        ("FPR (share of OOD samples accepted)", "TPR (share of ID samples accepted)"),
        digits=3,
        diagonal=True,
    )
    yield (
        f'<p class="soft">Scores{_first_repeat(comparison)}: ID samples filled, '
        f"{escape(rows)} dashed; high is ID. 95 % of the ID samples are right of the "
        "vertical line. Heights are square roots of shares.</p>"
        '<div class="grid-of">'
    )
    for name in _detectors(comparison):
        label = (
            f"Histograms of the scores of {name}: ID samples against {rows}, AUROC "
            f"{areas[name]:.3f}"
        )
        drawn = histogram(label, scores[name, ID], scores[name, rows])
        yield f"<figure><figcaption>{escape(name)}</figcaption>{drawn}</figure>"
    yield "</div>"


def _round_up(top):
    """Return the end of an axis whose quarters are short numbers."""
    power = 10.0 ** math.floor(math.log10(top))
    steps = (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10)
    return power * next(step for step in steps if step * power >= top * (1 - 1e-9))


def _risk_coverage(comparison):
    """Return risk-coverage curves of the classifier."""
    wrong = comparison.wrong
    if wrong is None:
        return
    yield "<h3>Risk and coverage</h3>"
    risk = float(np.mean(wrong))
    text = (
        f"The classifier of the detectors gives {int(wrong.sum()):,} of {len(wrong):,} "
        f"held-out ID samples a wrong class (risk {risk:.4f})."
    )
    if risk == 0:
        yield f"<p>{text} There is no risk to be lowered by rejecting samples.</p>"
        return
    truth = np.zeros(len(wrong), dtype=int)
    lines, areas = {}, {}
    for i, name in enumerate(_detectors(comparison)):
        ranks = np.unique(comparison.scores[0][name, ID], return_inverse=True)[1]
        given = truth, wrong.astype(int), ranks.astype(float)
        curve = RiskCoverageCurve.from_predictions(*given)
        lines[name], areas[name] = (i, curve.coverage, curve.risk), curve.aurc
    top = max(r[c >= 0.1].max() for _, c, r in lines.values())
    yield (
        f"<p>{text} If the samples with the lowest scores are rejected, so many of the "
        "others are wrong. OOD samples do not count here, for how many of them are met "
        "in use is not known.</p>"
    )
    yield _chart(
        "Risk-coverage curves. AURC",
        f"Risk{_first_repeat(comparison)}; the area under the curve (AURC, small is "
        "good) behind the names",
        lines,
        dict(sorted(areas.items(), key=lambda pair: pair[1])),
        ("coverage (share of ID samples accepted)", "risk (share of wrong labels)"),
        digits=4,
        y_max=_round_up(top),
    )
