"""Files of the results of the demo: table, numbers and plots."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import csv
import io
import json
import math
import warnings

import numpy as np
from sklearn.metrics import roc_curve

from skood.benchmark._parts import OOD
from skood.exceptions import SkoodWarning
from skood.metrics import (
    AcceptanceRegionDisplay,
    RiskCoverageDisplay,
    ScoreHistogramDisplay,
)
from skood.rejection import OperatingPoint
from skood.utils._files import replacing, write_text
from skood.utils._optional import pip_install
from skood.utils._plotting import COLORS, DASHES

_MORE_COLORS = ("black", "0.55")
_LEAST_RISK = 1e-12  # lower bound of risks on a logarithmic axis


def _new_figure(width, height):
    """Return a figure outside pyplot: no window, and it need not be closed."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=120, layout="constrained")


def _title(options):
    title = f"{options.id_data} (ID) against {options.ood_name} (OOD)"
    return title.replace("$", r"\$")  # no math mode


def _within(score):
    """Clip the most extreme 0.5 % on either side."""
    return np.clip(score, *np.quantile(score, [0.005, 0.995]))


def _style(i):
    """Return color and dashes of the i-th method, the same in all plots."""
    colors = (*COLORS, *_MORE_COLORS)
    return {"color": colors[i % len(colors)], "linestyle": DASHES[i % len(DASHES)]}


def _row(result, name):
    return next(row for row in result.table if row["method"] == name)


def _histograms(result, options):
    """Return histograms of all scores."""
    from matplotlib.ticker import MaxNLocator, NullFormatter

    figure = _new_figure(12.5, 6.6)
    axes = figure.subplots(2, -(-len(result.scores) // 2))
    for ax, (name, score) in zip(axes.ravel(), result.scores.items(), strict=False):
        ScoreHistogramDisplay.from_predictions(
            result.y_true, _within(score), ax=ax, log=True
        )
        auroc = _row(result, name)["auroc"]
        ax.set_title(f"{name} (AUROC = {auroc:.4f})", fontsize=10)
        handles, labels = ax.get_legend_handles_labels()
        ax.get_legend().remove()
        ax.set(xlabel="", ylabel="")
        ax.xaxis.set_major_locator(MaxNLocator(4))
        ax.yaxis.set_minor_formatter(NullFormatter())
    for ax in axes.ravel()[len(result.scores) :]:
        ax.remove()
    for ax in axes.ravel()[: len(result.scores)][-axes.shape[1] :]:  # lowest of columns
        ax.set_xlabel("score (high = in-distribution)")
    for ax in axes[:, 0]:
        ax.set_ylabel("density (log scale)")
    figure.suptitle(f"Scores: {_title(options)}", fontsize=12)
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


def _roc(result, options):
    """Return ROC curves of all scores: the full range, and a detail."""
    figure = _new_figure(12.5, 5.2)
    axes = figure.subplots(1, 2)
    tpr_min, fpr_max = options.tpr_min, options.fpr_max
    for ax in axes:
        ax.fill_between(
            [0, fpr_max],
            tpr_min,
            1,
            color="0.9",
            zorder=0,
            label=f"TPR ≥ {tpr_min:.4g}, FPR ≤ {fpr_max:.4g}",
        )
        for i, (name, score) in enumerate(result.scores.items()):
            fpr, tpr, _ = roc_curve(result.y_true != OOD, score)
            label = f"{name} (AUROC = {_row(result, name)['auroc']:.4f})"
            ax.plot(fpr, tpr, label=label, **_style(i))
        ax.plot(
            [0, 1], [0, 1], color="0.45", linestyle=":", linewidth=1, label="random"
        )
        ax.set_xlabel("FPR (fraction of OOD samples accepted)")
        ax.set_ylabel("TPR (fraction of ID samples accepted)")
    axes[0].set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), title="whole")
    axes[1].set(xlim=(-0.003, 0.3), ylim=(0.7, 1.003), title="upper left corner")
    figure.suptitle(f"ROC curves: {_title(options)}", fontsize=12)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper")
    return figure


def _risk_coverage(result, options):
    """Return risk-coverage curves of all scores: whole, and near full coverage."""
    figure = _new_figure(12.5, 5.2)
    axes = figure.subplots(1, 2)
    for ax in axes:
        display = RiskCoverageDisplay.from_predictions(
            result.y_true,
            result.y_pred,
            result.scores,
            ood_label=OOD,
            ax=ax,
            plot_oracle=True,
            plot_random=True,
        )
        for i, (line, name) in enumerate(zip(display.line_, display.name, strict=True)):
            line.set(**_style(i), label=f"{name} (AURC = {display.aurc[i]:.5f})")
        ax.get_legend().remove()
    axes[0].set_title("whole")
    axes[1].set(xlim=(0.8, 1), title="near full coverage")
    if display.full_risk > 0:
        axes[1].set_ylim(0, 1.3 * display.full_risk)
    figure.suptitle(f"Risk-coverage curves: {_title(options)}", fontsize=12)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper")
    return figure


def _acceptance(result, options):
    """Return a plot of reject options on the two scores of the test samples."""
    figure = _new_figure(11.5, 5.4)
    axes = figure.subplots(1, len(result.reject_options))
    test = result.is_test
    for ax, (name, option) in zip(axes, result.reject_options.items(), strict=True):
        ood, risk = name.split("+")
        title, point = "infeasible", OperatingPoint(theta=0.0, lam=-math.inf)
        if option.error is None:
            point, report = option.classifier.operating_point_, option.report
            title = (
                f"TPR {report.tpr.value:.3f}, FPR {report.fpr.value:.3f}, risk "
                f"{report.risk.value:.4f}"
            )
        AcceptanceRegionDisplay.from_predictions(
            result.y_true[test],
            result.y_pred[test],
            np.minimum(result.scores[risk][test], -_LEAST_RISK),
            result.scores[ood][test],
            point=point,
            score_names=(f"{risk} risk, 1 - max probability", f"{ood} OOD score"),
            ax=ax,
            xscale="log",
        )
        ax.set_title(f"{name}: {title}", fontsize=11)
    figure.suptitle(f"Accepted on the test part: {_title(options)}", fontsize=12)
    return figure


def plot(result, options):
    """Write all plots as PNG to the folder `out` of the options; return the files."""
    figures = {
        "score_histograms.png": _histograms,
        "roc_curves.png": _roc,
        "risk_coverage.png": _risk_coverage,
        "acceptance.png": _acceptance,
    }
    files = []
    for name, draw in figures.items():
        path = options.out / name
        with replacing(path) as file:
            draw(result, options).savefig(file, format="png")
        files.append(path)
    return files


def _number(value):
    """Return a float that JSON can represent; None if it is NaN or infinite."""
    return float(value) if math.isfinite(value) else None


def _reject_option(option):
    if option.error is not None:
        return {"feasible": False, "error": str(option.error)}
    point = option.classifier.operating_point_
    return {
        "feasible": True,
        "theta": _number(point.theta),
        "mu": _number(point.mu),
        "lambda": _number(point.lam),
        "scales": [_number(scale) for scale in point.scales],
        "validation": {
            "tpr": _number(point.tpr),
            "fpr": _number(point.fpr),
            "risk": _number(point.risk),
        },
        "test": option.report.to_dict(),
        "reasons": option.reasons,
    }


def to_csv(records):
    """Return a CSV string of at least one dict, all with the same keys."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(records[0]))
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def to_json(result):
    """Return the numbers of a result for JSON; None for undefined or infinite ones."""
    return {
        "versions": result.versions,
        "options": result.options,
        "parts": result.parts,
        "network": {
            "classes": result.classifier.classes_.tolist(),
            "n_epochs": result.n_epochs,
            "accuracy": result.accuracy,
            "train_seconds": result.train_seconds,
            "feature_seconds": result.feature_seconds,
        },
        "common_fpr": result.common_fpr,
        "table": [
            {k: v if isinstance(v, str) else _number(v) for k, v in row.items()}
            for row in result.table
        ],
        "reject_options": {
            name: _reject_option(option)
            for name, option in result.reject_options.items()
        },
    }


def write(result, options):
    """Write table.csv, results.json and plots to the folder `out`; return the files.

    Without matplotlib plots are omitted, with a warning.
    """
    content = to_json(result)
    files = [options.out / "table.csv", options.out / "results.json"]
    write_text(files[0], to_csv(content["table"]))
    write_text(files[1], json.dumps(content, indent=2, allow_nan=False) + "\n")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        warnings.warn(
            "Plots were not written: matplotlib is not installed. Install it by "
            f"{pip_install('plot')}.",
            SkoodWarning,
            stacklevel=2,
        )
        return files
    return files + plot(result, options)
