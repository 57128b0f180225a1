"""The demo on given samples: network, detectors, reject options."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import textwrap
from contextlib import contextmanager

import numpy as np
import torch
from sklearn.covariance import LedoitWolf
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Bunch
from threadpoolctl import threadpool_limits

from skood.benchmark._cells import timed
from skood.benchmark._hashing import versions
from skood.benchmark._output import write
from skood.benchmark._parts import OOD
from skood.detectors import (
    KNN,
    MSP,
    Energy,
    Entropy,
    Mahalanobis,
    MaxLogit,
    ViM,
)
from skood.exceptions import NotCertifiableError
from skood.metrics import aurc, oscr, ranking_metrics, selective_risk_at
from skood.nn import TorchClassifier, TrainingOptions, split
from skood.rejection import BoundedTPRFPR, RejectOptionClassifier
from skood.utils._progress import progress

#: Pairs of scores: name, score for misclassification, score for OOD.
PAIRS = (("KNN+MSP", "MSP", "KNN"), ("ViM+MSP", "MSP", "ViM"))

_N_PROCESSED = 80_000  # approximate number of samples processed in all epochs
_LEAST_EPOCHS, _MOST_EPOCHS = 10, 40


@contextmanager
def _one_thread():
    """Run torch and the libraries below NumPy on one thread each inside a block.

    Small networks gain little from more, and threads stall if the machine has other
    work.
    """
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        torch.set_num_threads(n_threads)


def _make_network(options, n_train, verbose):
    epochs = options.max_epochs
    if epochs is None:
        epochs = min(
            _MOST_EPOCHS, max(_LEAST_EPOCHS, math.ceil(_N_PROCESSED / n_train))
        )
    return TorchClassifier(
        module_params={"hidden": 128, "dropout": 0.2},
        max_epochs=epochs,
        lr=0.01,
        training=TrainingOptions(lr_schedule="one_cycle"),
        random_state=options.random_state,
        verbose=verbose,
    )


def _make_detectors(head, n_train):
    """Return the detectors by name; they use the features of `head`."""
    return {
        "MSP": MSP(head),
        "MaxLogit": MaxLogit(head),
        "Energy": Energy(head),
        "Entropy": Entropy(head),
        "KNN": KNN(head, n_neighbors=min(5, n_train)),
        # shrinkage, since inactive units of the network make it singular
        "Mahalanobis": Mahalanobis(head, covariance=LedoitWolf()),
        "ViM": ViM(head),
    }


def _single_record(name, score, result):
    """Return the metrics of one score."""
    y_true, y_pred = result.y_true, result.y_pred
    ranking = ranking_metrics(y_true, score)
    return {
        "method": name,
        "auroc": ranking["auroc"],
        "aupr_in": ranking["aupr_in"],
        "aupr_out": ranking["aupr_out"],
        "fpr95": ranking["fpr_at_tpr"],
        "oscr": oscr(y_true, y_pred, score),
        "aurc": aurc(y_true, y_pred, score),
    }


def _add_risks(records, scores, result, options):
    """Add selective risks to the records; return the FPR that all methods reach."""

    def point(score, fpr_max):
        return selective_risk_at(
            result.y_true,
            result.y_pred,
            *score,
            rule=BoundedTPRFPR(tpr_min=options.tpr_min, fpr_max=fpr_max),
        )

    for record, score in zip(records, scores, strict=True):
        record["risk"] = point(score, options.fpr_max).risk
        strictest = point(score, 0.0)
        record["min_fpr"] = (
            0.0 if strictest.feasible else strictest.attainable.min_fpr_at_tpr
        )
    common_fpr = max(record["min_fpr"] for record in records)
    for record, score in zip(records, scores, strict=True):
        record["risk_common"] = point(score, common_fpr).risk
    return common_fpr


def _compare(detectors, Z_train, y_train, Z_held, result, options, verbose):
    """Fit and evaluate all detectors, and their pairs; return records, common FPR."""
    records, seconds = [], {}
    for name, detector in progress(
        list(detectors.items()), desc="detectors", verbose=verbose
    ):
        _, fit_seconds = timed(detector.fit, Z_train, y_train)
        score, score_seconds = timed(detector.score_samples, Z_held)
        result.scores[name] = score
        seconds[name] = np.array([fit_seconds, score_seconds])
        records.append(_single_record(name, score, result))
    scores: list[tuple] = [(score,) for score in result.scores.values()]
    for name, risk, ood in PAIRS:
        records.append(dict.fromkeys(records[0], math.nan) | {"method": name})
        scores.append((result.scores[risk], result.scores[ood]))
        seconds[name] = seconds[risk] + seconds[ood]
    common_fpr = _add_risks(records, scores, result, options)
    for record in records:
        fit_seconds, score_seconds = seconds[record["method"]]
        record["fit_seconds"] = float(fit_seconds)
        record["score_seconds"] = float(score_seconds)
    return records, common_fpr


def _tune(head, risk, ood, Z_val, y_val, Z_test, y_test, options):
    """Certify a rule on the validation part, and evaluate it on the test part."""
    clf = RejectOptionClassifier(
        head,
        risk_detector=FrozenEstimator(risk),
        ood_detector=FrozenEstimator(ood),
        rule=BoundedTPRFPR(options.tpr_min, options.fpr_max),
        calibration="same",
        guarantee="high_probability",
        ood_label=OOD,
        random_state=options.random_state,
    )
    try:
        clf.fit(Z_val, y_val)
    except NotCertifiableError as error:
        return Bunch(classifier=None, report=None, reasons=None, error=error)
    reason = clf.reject_reason(Z_test).reason
    reasons = {
        kind: {
            name: int(np.sum(reason[mask] == name))
            for name in ("uncertain class", "out-of-distribution")
        }
        for kind, mask in (("id", y_test != OOD), ("ood", y_test == OOD))
    }
    return Bunch(
        classifier=clf, report=clf.report(Z_test, y_test), reasons=reasons, error=None
    )


def run(options, parts, *, verbose=0):
    """Run the demo on the `parts` of `prepare`; see `run_demo`."""
    result = Bunch(
        options=options.to_dict(),
        parts=parts.sizes,
        versions=versions(),
        y_true=parts.y_held,
        is_test=parts.is_test,
        scores={},
        reject_options={},
        files=[],
    )
    with _one_thread():
        network = _make_network(options, len(parts.y_train), verbose)
        _, result.train_seconds = timed(network.fit, parts.X_train, parts.y_train)
        body, head = split(network)
        inputs = (parts.X_train, parts.X_held, parts.X_val)
        (Z_train, Z_held, Z_val), result.feature_seconds = timed(
            lambda: [body.transform(X) for X in inputs]
        )
        result.y_pred = head.predict(Z_held)
        is_id = result.y_true != OOD
        result.accuracy = float(np.mean((result.y_pred == result.y_true)[is_id]))
        result.n_epochs = network.n_iter_
        detectors = _make_detectors(head, len(Z_train))
        result.table, result.common_fpr = _compare(
            detectors, Z_train, parts.y_train, Z_held, result, options, verbose
        )
        tuning = (Z_val, parts.y_val)
        evaluation = (Z_held[result.is_test], result.y_true[result.is_test])
        for name, risk, ood in PAIRS:
            result.reject_options[name] = _tune(
                head, detectors[risk], detectors[ood], *tuning, *evaluation, options
            )
    result.classifier, result.detectors = network, detectors
    result.text = format_report(result, options)
    if options.out is not None:
        result.files = write(result, options)
    return result


_WIDTH = 110


def format_columns(lines):
    """Align lists of cells, the header first: one line per list, and a rule.

    The first column is aligned to the left, the others to the right.
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()
        for cells in lines
    ]
    return "\n".join([aligned[0], "-" * len(aligned[0]), *aligned[1:]])


def _columns(options):
    """Return key, header and number of decimals of each column of the table."""
    requested = f"{options.tpr_min:.4g},{options.fpr_max:.4g}"
    return (
        ("auroc", "AUROC↑", 4),
        ("aupr_in", "AUPR-in↑", 4),
        ("aupr_out", "AUPR-out↑", 4),
        ("fpr95", "FPR95↓", 4),
        ("oscr", "OSCR↑", 4),
        ("aurc", "AURC↓", 5),
        ("risk", f"risk@{requested}↓", 5),
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
    lines = [["method", *(header for _, header, _ in columns)]]
    for record in result.table:
        cells = [_cell(key, record[key], decimals) for key, _, decimals in columns]
        lines.append([record["method"], *cells])
    return format_columns(lines)


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
    lines = [rule, chosen, *str(option.report).split("\n")]
    for kind, counts in option.reasons.items():
        named = ", ".join(f"{n:,} {name}" for name, n in counts.items())
        lines.append(
            f"rejected {sum(counts.values()):,} {kind.upper()} samples: {named}"
        )
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
