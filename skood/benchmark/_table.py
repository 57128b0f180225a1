"""Text report of the main job."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import textwrap

_WIDTH = 110


def format_columns(rows):
    """Align rows of cells, the header first: one line per row, and a rule.

    The first column is aligned to the left, the others to the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _columns(options):
    """Return key, header and number of decimals of each column of the table."""
    asked = f"{options.tpr_min:.4g},{options.fpr_max:.4g}"
    return (
        ("auroc", "AUROC↑", 4),
        ("aupr_in", "AUPR-in↑", 4),
        ("aupr_out", "AUPR-out↑", 4),
        ("fpr95", "FPR95↓", 4),
        ("oscr", "OSCR↑", 4),
        ("aurc", "AURC↓", 5),
        ("risk", f"risk@{asked}↓", 5),
        ("risk_common", "risk@common↓", 5),
        ("fit_seconds", "fit s", 3),
        ("score_seconds", "score s", 3),
    )


def _cell(key, value, decimals):
    if math.isnan(value):
        return "infeasible" if key == "risk" else "–"
    return f"{value:.{decimals}f}"


def _table(result, options):
    columns = _columns(options)
    rows = [["method", *(header for _, header, _ in columns)]]
    for row in result.table:
        cells = [_cell(key, row[key], decimals) for key, _, decimals in columns]
        rows.append([row["method"], *cells])
    return format_columns(rows)


def _notes(result, options):
    """Return explanations of the columns."""
    tpr, fpr = f"{options.tpr_min:.4g}", f"{options.fpr_max:.4g}"
    notes = (
        "↑ greater is better, ↓ smaller. FPR95: FPR at a TPR of 0.95. AURC and OSCR "
        "count the errors of the network on the samples accepted first.",
        f"risk@{tpr},{fpr}: the least error rate on accepted ID samples at TPR >= "
        f"{tpr} and FPR <= {fpr}, by the best rule on these very samples; "
        "'infeasible' if no rule meets both.",
        f"risk@common: the same at TPR >= {tpr} and FPR <= {result.common_fpr:.4f}, "
        "the smallest that all methods reach.",
        "A+B: the best rule on both scores; its seconds are those of both.",
    )
    return "\n".join(
        textwrap.fill(note, _WIDTH, subsequent_indent="  ") for note in notes
    )


def _parts(result):
    uses = {
        "train": ("training", "network and detectors"),
        "held_out": ("held out", "the table"),
        "validation": ("validation", "certifies the reject options"),
        "test": (
            "test",
            "evaluates them; held-out samples that are not for validation",
        ),
    }
    lines = [f"{'rows':<12}{'ID':>8}{'OOD':>8}"]
    for key, (name, use) in uses.items():
        size = result.parts[key]
        lines.append(f"{name:<12}{size['id']:>8,}{size['ood']:>8,}   {use}")
    return "\n".join(lines)


def _reasons(reasons):
    rows = []
    for kind in ("id", "ood"):
        counts = reasons[kind]
        named = ", ".join(f"{n:,} {name}" for name, n in counts.items())
        rows.append(
            f"rejected {sum(counts.values()):,} {kind.upper()} samples: {named}"
        )
    return rows


def _reject_option(name, option):
    """Return a description of one reject option."""
    if option.error is not None:
        return textwrap.fill(f"{name}: infeasible. {option.error}", _WIDTH)
    ood, risk = name.split("+")
    point = option.classifier.operating_point_
    left = f"{risk} risk + mu * {ood} OOD score"
    if point.mu == 0:
        left = f"{risk} risk"
    elif math.isinf(point.mu):
        left = f"{ood} OOD score"
    rule = (
        f"{name}: certified; accepts iff {left} <= threshold; "
        f"theta = {point.theta:.4f}, mu = {point.mu:.4g}"
    )
    chosen = (
        f"on the samples that certify: TPR {point.tpr:.4f}, FPR {point.fpr:.4f}, risk "
        f"{point.risk:.4f}; on the test part:"
    )
    lines = [rule, chosen, *str(option.report).split("\n"), *_reasons(option.reasons)]
    return "\n".join(
        textwrap.fill(line, _WIDTH, subsequent_indent="  ") for line in lines
    )


def _missed(option, options):
    """Return a line if the rates on the test part are outside of the bounds."""
    if option.error is not None:
        return ""
    tpr, fpr = option.report.tpr.value, option.report.fpr.value
    if tpr >= options.tpr_min and fpr <= options.fpr_max:
        return ""
    return f"\nmissed on the test part: TPR {tpr:.4f}, FPR {fpr:.4f}"


def format_report(result, options):
    """Return the report of ``python -m skood``, in some 40 lines."""
    n_classes = len(result.classifier.classes_)
    head = (
        f"skood {result.versions['skood']}: {options.id_data} (ID) against "
        f"{options.ood_name} (OOD), seed {options.random_state}"
    )
    network = (
        f"network: {n_classes} classes, {result.n_epochs} epochs in "
        f"{result.train_seconds:.1f} s, features in {result.feature_seconds:.1f} s, "
        f"accuracy {result.accuracy:.4f} on the held-out ID samples"
    )
    bounds = (
        f"Reject options at TPR >= {options.tpr_min:.4g} and FPR <= "
        f"{options.fpr_max:.4g}, certified on the validation part, with 95 % intervals"
    )
    blocks = [
        head,
        _parts(result),
        network,
        _table(result, options),
        _notes(result, options),
        bounds,
        *(
            _reject_option(name, option) + _missed(option, options)
            for name, option in result.reject_options.items()
        ),
    ]
    lines = "\n\n".join(blocks).splitlines()
    return "\n".join(line.rstrip() for line in lines)
