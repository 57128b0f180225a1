"""HTML pages: curves as SVG, tables, and the report of comparisons.

The same drawing is used for light mode, dark mode and print, and has few kilobytes.
A page has no script.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import os
import platform
from datetime import datetime
from html import escape
from importlib.resources import files
from string import Template

import numpy as np
from sklearn.metrics import auc

from skood.benchmark._cells import ID
from skood.benchmark._hashing import versions
from skood.benchmark._inputs import METRICS
from skood.metrics import RiskCoverageCurve
from skood.utils._files import write_text
from skood.utils._ties import ends_of_ties

#: Number of colors and dashes of the page: the classes c0, … and d0, ….
N_COLORS, N_DASHES = 8, 4

_BOX = (460, 360, 62, 10, 8, 42)  # width, height, and margins: left, right, top, bottom
_SMALL = (220, 120, 6, 6, 4, 20)
_N_BINS = 40
_TAIL = 0.005  # fraction of the scores on either side in the outermost bins
_PIXEL = 0.4  # largest distance of a drawn line from its points


def style(i):
    """Return classes of the i-th curve; 32 combinations of color and dashes."""
    return f"s{i} c{i % N_COLORS} d{(i + i // N_COLORS) % N_DASHES}"


def key(i):
    """Return a segment of the i-th curve, for a legend."""
    return (
        '<svg class="key" viewBox="0 0 34 8" aria-hidden="true">'
        f'<polyline class="curve {style(i)}" points="0,4 34,4"/></svg>'
    )


def roc(id_scores, ood_scores):
    """Return fpr and tpr of an ROC curve, from (0, 0) to (1, 1)."""
    scores = np.concatenate([id_scores, ood_scores])
    order = np.argsort(scores)[::-1]
    is_ood, last = order >= len(id_scores), ends_of_ties(scores[order])
    accepted = [np.cumsum(mask)[last] for mask in (is_ood, ~is_ood)]
    fpr, tpr = (np.append(0.0, n / n[-1]) for n in accepted)
    return fpr, tpr


def curves(label, lines, x_label, y_label, y_max=1.0, diagonal=False):
    """Return an SVG element with curves, without references to other files.

    `lines` maps names to (number of the style, x in [0, 1], y); curves are cut at
    `y_max`. With `diagonal`, the line from (0, 0) to (1, `y_max`) is drawn.
    """
    parts = [_opening(label, _BOX, "chart"), *_axes(x_label, y_label, y_max)]
    if diagonal:
        parts.append(f'<polyline class="guide" points="{_points([0, 1], [0, 1], 1)}"/>')
    for name, (i, x, y) in lines.items():
        parts.append(
            f'<polyline class="curve {style(i)}" points="{_points(x, y, y_max)}">'
            f"<title>{escape(name)}</title></polyline>"
        )
    return "\n".join([*parts, "</svg>"])


def histogram(label, id_scores, ood_scores):
    """Return an SVG histogram of scores of ID (filled) and OOD samples (dashed).

    Heights are square roots of fractions: small sets are visible next to large ones.
    The line is at the 5 % quantile of the ID scores; extreme scores are in the
    outermost bins.
    """
    low, high = _range(np.concatenate([id_scores, ood_scores]))
    edges = np.linspace(low, high, _N_BINS + 1)
    fractions = [
        np.sqrt(np.histogram(np.clip(scores, low, high), edges)[0] / len(scores))
        for scores in (id_scores, ood_scores)
    ]
    top = max(scores.max() for scores in fractions)
    width, height, left, right, _, bottom = _SMALL
    parts = [_opening(label, _SMALL, "small")]
    for scores, kind in zip(fractions, ("id", "ood"), strict=True):
        x = np.repeat(np.linspace(0, 1, _N_BINS + 1), 2)
        y = np.concatenate([[0], np.repeat(scores, 2), [0]])
        points = _points(x, y, top, _SMALL)
        parts.append(f'<polygon class="{kind}" points="{points}"/>')
    cut = np.quantile(np.clip(id_scores, low, high), 0.05)
    at = [(cut - low) / (high - low)] * 2
    ends = [_short(0.0 if abs(e) < 1e-3 * (high - low) else e) for e in (low, high)]
    parts += [
        f'<polyline class="cut" points="{_points(at, [0, top], top, _SMALL)}"/>',
        f'<text class="start" x="{left}" y="{height - 4}">{ends[0]}</text>',
        f'<text class="end" x="{width - right}" y="{height - 4}">{ends[1]}</text>',
        f'<path class="axis" d="M{left} {height - bottom}H{width - right}"/>',
    ]
    return "\n".join([*parts, "</svg>"])


def _range(scores):
    """Return the range of a histogram without extreme scores, of positive length."""
    finite = scores[np.isfinite(scores)]
    if not finite.size:
        return -1.0, 1.0
    low, high = np.quantile(finite, [_TAIL, 1 - _TAIL])
    least = 1e-9 * max(1.0, abs(low), abs(high))
    return (low, high) if high - low > least else (low - 0.5, low + 0.5 + least)


def _short(number):
    return f"{number:.3g}".replace("-", "−")


def _opening(label, box, kind):
    return (
        f'<svg class="{kind}" viewBox="0 0 {box[0]} {box[1]}" role="img" '
        f'aria-label="{escape(label)}">'
    )


def _points(x, y, y_max, box=_BOX):
    """Return the points of a line in the coordinates of the frame."""
    width, height, left, right, top, bottom = box
    across = left + np.asarray(x, dtype=float) * (width - left - right)
    fraction = np.minimum(np.asarray(y, dtype=float) / y_max, 1.0)
    down = height - bottom - fraction * (height - top - bottom)
    places = np.column_stack([across, down])
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in places[_corners(places)])


def _corners(places):
    """Return the points needed to draw a line (Ramer, Douglas and Peucker)."""
    corner = np.zeros(len(places), dtype=bool)
    corner[[0, -1]] = True
    pieces = [(0, len(places) - 1)]
    while pieces:
        first, last = pieces.pop()
        if last - first < 2:
            continue
        along = places[last] - places[first]
        inner = places[first + 1 : last] - places[first]
        length = along @ along
        fraction = (
            np.clip(inner @ along / length, 0, 1) if length else np.zeros(len(inner))
        )
        off = np.linalg.norm(inner - fraction[:, None] * along, axis=1)
        farthest = int(np.argmax(off))
        if off[farthest] > _PIXEL:
            middle = first + 1 + farthest
            corner[middle] = True
            pieces += [(first, middle), (middle, last)]
    return corner


def _axes(x_label, y_label, y_max):
    """Return the frame, five ticks on either axis, and labels."""
    width, height, left, right, top, bottom = _BOX
    right, bottom = width - right, height - bottom
    yield (
        f'<rect class="frame" x="{left}" y="{top}" width="{right - left}" '
        f'height="{bottom - top}"/>'
    )
    for fraction in (0, 0.25, 0.5, 0.75, 1):
        x = left + fraction * (right - left)
        y = bottom - fraction * (bottom - top)
        if 0 < fraction < 1:
            yield f'<path class="grid" d="M{x:.1f} {top}V{bottom}"/>'
            yield f'<path class="grid" d="M{left} {y:.1f}H{right}"/>'
        anchor = "end" if fraction == 1 else "tick"
        yield (
            f'<text class="{anchor}" x="{x:.1f}" y="{bottom + 16}">{fraction:g}</text>'
        )
        yield (
            f'<text class="end" x="{left - 5}" y="{y + 4:.1f}">'
            f"{fraction * y_max:.3g}</text>"
        )
    middle = (left + right) / 2
    yield f'<text class="tick" x="{middle}" y="{height - 6}">{escape(x_label)}</text>'
    x, y = 12, (top + bottom) / 2
    yield (
        f'<text class="tick" x="{x}" y="{y}" transform="rotate(-90 {x} {y})">'
        f"{escape(y_label)}</text>"
    )


def cell(content, kind="td", name="", scope=""):
    """Return a cell of a table; the content is HTML."""
    name = f' class="{name}"' if name else ""
    scope = f' scope="{scope}"' if scope else ""
    return f"<{kind}{name}{scope}>{content}</{kind}>"


def _heads(*names, kind=""):
    """Return the heads of columns; the names are HTML."""
    return [cell(name, "th", kind, "col") for name in names]


def table(caption, head, rows):
    """Return a table that can be scrolled; caption, head and rows are HTML."""
    lines = ["<tr>" + "".join(row) + "</tr>" for row in rows]
    return "\n".join(
        [
            '<div class="wide"><table>',
            f'<caption><span class="text">{caption}</span></caption>',
            f"<thead><tr>{''.join(head)}</tr></thead>",
            "<tbody>",
            *lines,
            "</tbody></table></div>",
        ]
    )


def html_table(frame, caption=""):
    """Return a table of HTML from a data frame, for a page of `html_page`.

    On narrow screens it scrolls, and its first column stays visible.

    Parameters
    ----------
    frame : pandas.DataFrame
        The cells, as HTML: text has to be escaped. Names of rows and columns are text.

    caption : str, default=""
        Caption above the table, as HTML.

    Returns
    -------
    table : str
        HTML.

    See Also
    --------
    html_page : A page with tables.

    Examples
    --------
    >>> import pandas as pd
    >>> from skood.benchmark import html_table
    >>> frame = pd.DataFrame({"AUROC": ["<b>0.97</b>"]}, index=["KNN"])
    >>> html_table(frame, caption="Digits").splitlines()[4]
    '<tr><th scope="row">KNN</th><td><b>0.97</b></td></tr>'
    """
    head = _heads("", *(escape(str(name)) for name in frame.columns))
    rows = [
        [cell(escape(str(name)), "th", scope="row"), *map(cell, map(str, values))]
        for name, *values in frame.itertuples(name=None)
    ]
    return table(caption, head, rows)


def html_page(title, parts):
    """Return a self-contained HTML page: style for light mode, dark mode and print.

    The page that :func:`compare` writes as a report, for other results.

    Parameters
    ----------
    title : str
        Title, as text.

    parts : sequence of str
        Content in HTML, such as ``"<h2>Digits</h2>"``, tables of `html_table`, or
        figures of matplotlib as SVG.

    Returns
    -------
    page : str
        The page, without a script and without references to other files.

    See Also
    --------
    html_table : A table for it.

    Examples
    --------
    >>> from skood.benchmark import html_page
    >>> page = html_page("My results", ["<p>All methods are equally good.</p>"])
    >>> page.splitlines()[:2]
    ['<!DOCTYPE html>', '<html lang="en">']
    """
    fade = [  # of the other curves, where one is pointed at in the legend
        f"figure:has(.k{i}:hover) .chart .curve:not(.s{i}) {{ opacity: .12; }}"
        for i in range(N_COLORS * N_DASHES)
    ]
    template = files("skood.benchmark").joinpath("template.html").read_text("utf-8")
    return Template(template).substitute(
        title=escape(title), rules="\n".join(fade), parts="\n".join(parts)
    )


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
        "fraction of the OOD samples that are accepted where 95 % of the ID samples "
        "are",
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
    """Return the first metric, means over sets by detector, and detectors that tie.

    The best mean is first; the detectors whose mean is within 0.01 of it tie with it.
    """
    metric = comparison.entries[0]["metric"]
    values: dict = {}
    for row in comparison.entries:
        if row["metric"] == metric and not row["is_group"]:
            values.setdefault(row["detector"], []).append(row["value"])
    means = [(name, float(np.mean(numbers))) for name, numbers in values.items()]
    means.sort(key=lambda pair: -METRICS[metric] * pair[1])
    tied = [name for name, value in means if abs(value - means[0][1]) <= _TIE]
    return metric, means, tied


def _verdict(comparisons):
    """Return the best detector of each comparison, or those that tie."""
    lines = []
    for name, _, comparison in comparisons:
        metric, means, best = leaders(comparison)
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
    seeds = {str(comparison.settings["random_state"]) for *_, comparison in comparisons}
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
        metric, means, _ = leaders(comparison)
        first = comparison.entries[0]
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
    head = _heads("comparison", "ID samples", "OOD samples", "detectors")
    head += _heads("best on average over the sets", kind="text")
    return table("What is compared, and what came first.", head, rows)


def _how_to_read():
    metrics = {_header(name): f"{text}." for name, (_, text) in _METRICS.items()}
    return (
        f"<details><summary>How to read this page</summary>{_list(metrics)}"
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
    metrics = list(dict.fromkeys(row["metric"] for row in comparison.entries))
    yield f"<h3>{_header(metrics[0])}</h3>"
    yield _metric_table(comparison, metrics[0], with_seconds=True)
    for metric in metrics[1:]:
        yield f"<details><summary>{_header(metric)}</summary>"
        yield _metric_table(comparison, metric)
        yield "</details>"
    yield "<h3>ROC curves and scores</h3>"
    for i, set_name in enumerate(comparison.sets):
        yield f"<details{'' if i else ' open'}>"
        yield from _set_figures(comparison, set_name)
        yield "</details>"
    yield from _risk_coverage(comparison)
    yield "</section>"


def _settings(comparison):
    """Return a description of the settings of the comparison."""
    settings, first = comparison.settings, comparison.entries[0]
    n = len(_detectors(comparison))
    fitted = (
        f"fitted on {comparison.n_train:,} ID samples"
        if comparison.n_train
        else "frozen"
    )
    many = settings["repeats"] > 1
    return (
        f'<p class="soft">{n} {"detectors" if n > 1 else "detector"}, {fitted}, '
        f"evaluated on {first['n_id']:,} held-out ID samples; {settings['repeats']} "
        f"{'repeats, of which values are averages' if many else 'repeat'}; seed "
        f"{escape(str(settings['random_state']))}; {_percent(settings)} intervals from "
        f"{settings['n_resamples']:,} resamples.</p>"
    )


def _percent(settings):
    return f"{100 * settings['confidence_level']:.4g} %"


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
    head = [*_heads("OOD set", "samples"), *_heads("groups", kind="text")]
    return table("OOD sets", head, rows)


def _metric_table(comparison, metric, with_seconds=False):
    """Return a table of one metric: detectors by sets and groups."""
    entries = [entry for entry in comparison.entries if entry["metric"] == metric]
    columns = {entry["ood"]: entry["is_group"] for entry in entries}
    cells = {(entry["detector"], entry["ood"]): entry for entry in entries}
    alpha = 1 - comparison.settings["confidence_level"]
    seconds = {"fit_seconds": "fit s", "score_seconds": "score s"}
    if any(entry["network_seconds"] > 0 for entry in entries):
        seconds["network_seconds"] = "network s <small>shared</small>"
    seconds = seconds if with_seconds else {}
    head = _heads("detector")
    for name, is_group in columns.items():
        label = escape(name) + (" <small>mean of group</small>" if is_group else "")
        head += _heads(label, kind="group" if is_group else "")
    head += _heads(*seconds.values(), kind="group")
    lines = []
    for name in _detectors(comparison):
        line = [cell(escape(name), "th", scope="row")]
        line += [_value(cells[name, column], alpha) for column in columns]
        any_row = cells[name, next(iter(columns))]
        line += [cell(f"{any_row[k]:.3f}", name="group") for k in seconds]
        lines.append(line)
    what = _METRICS[metric][1]
    caption = (
        f"{what[0].upper()}{what[1:]}, with {_percent(comparison.settings)} intervals. "
        f"{_BEST} best, {_EQUAL} not significantly worse (p &gt; {alpha:.4g})."
    )
    return table(caption, head, lines)


def _value(entry, alpha):
    """Return a cell with a value, its interval and its mark."""
    name = "group" if entry["is_group"] else ""
    value = f"{entry['value']:.3f}"
    if entry["pvalue"] > alpha:
        value = f"{_BEST if entry['is_best'] else _EQUAL} <b>{value}</b>"
        name = f"{name} best".strip()
    return cell(
        f"{value}<small>[{entry['low']:.3f}, {entry['high']:.3f}]</small>", "td", name
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
    return list(dict.fromkeys(entry["detector"] for entry in comparison.entries))


def _first_repeat(comparison):
    return " of the first repeat" if comparison.settings["repeats"] > 1 else ""


def _set_figures(comparison, set_name):
    """Return ROC curves and histograms of one set of OOD samples."""
    scores = comparison.scores[0]
    lines, areas = {}, {}
    for i, name in enumerate(_detectors(comparison)):
        fpr, tpr = roc(scores[name, ID], scores[name, set_name])
        lines[name], areas[name] = (i, fpr, tpr), auc(fpr, tpr)
    areas = dict(sorted(areas.items(), key=lambda pair: -pair[1]))
    best, area = next(iter(areas.items()))
    yield (
        f'<summary>{escape(set_name)} <span class="soft">best AUROC {area:.3f}: '
        f"{escape(best)}</span></summary>"
    )
    yield _chart(
        f"ROC curves, ID samples against {set_name}. AUROC",
        f"ROC curves{_first_repeat(comparison)}; AUROC behind the names",
        lines,
        areas,
        (
            "FPR (fraction of OOD samples accepted)",
            "TPR (fraction of ID samples accepted)",
        ),
        digits=3,
        diagonal=True,
    )
    yield (
        f'<p class="soft">Scores{_first_repeat(comparison)}: ID samples filled, '
        f"{escape(set_name)} dashed; high is ID. 95 % of the ID samples are right of "
        "the vertical line. Heights are square roots of fractions.</p>"
        '<div class="grid-of">'
    )
    for name in _detectors(comparison):
        label = (
            f"Histograms of the scores of {name}: ID samples against {set_name}, AUROC "
            f"{areas[name]:.3f}"
        )
        drawn = histogram(label, scores[name, ID], scores[name, set_name])
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
        predictions = truth, wrong.astype(int), ranks.astype(float)
        curve = RiskCoverageCurve.from_predictions(*predictions)
        lines[name], areas[name] = (i, curve.coverage, curve.risk), curve.aurc
    top = max(r[c >= 0.1].max() for _, c, r in lines.values())
    yield (
        f"<p>{text} If the samples with the lowest scores are rejected, so many of the "
        "others are wrong. OOD samples do not count here, for how many of them are met "
        "at deployment is not known.</p>"
    )
    yield _chart(
        "Risk-coverage curves. AURC",
        f"Risk{_first_repeat(comparison)}; the area under the curve (AURC, small is "
        "good) behind the names",
        lines,
        dict(sorted(areas.items(), key=lambda pair: pair[1])),
        (
            "coverage (fraction of ID samples accepted)",
            "risk (fraction of wrong labels)",
        ),
        digits=4,
        y_max=_round_up(top),
    )
