"""Files of the results of the main job."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import csv
import io
import json
import math
import warnings

from skood.benchmark._plots import plot
from skood.exceptions import SkoodWarning
from skood.utils._files import write_text


def _number(value):
    """Return a float that JSON can represent; None if it is NaN or infinite."""
    return float(value) if math.isfinite(value) else None


def _reject_option(option):
    if option.error is not None:
        return {
            "feasible": False,
            "error": str(option.error),
        }
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


def to_csv(rows):
    """Return a CSV string of at least one dict, all with the same keys."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
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
            'pip install "skood[plot]".',
            SkoodWarning,
            stacklevel=2,
        )
        return files
    return files + plot(result, options)
