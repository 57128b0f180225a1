"""Comparison of detectors on tables in files: ``skood compare``."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.compose import ColumnTransformer
from sklearn.covariance import LedoitWolf
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import skood.detectors
from skood.benchmark._compare import run_comparison
from skood.benchmark._inputs import METRICS
from skood.benchmark._output import to_csv
from skood.benchmark._own_files import read_tables
from skood.benchmark._report import leaders, tied, write_report
from skood.utils._files import write_text
from skood.utils._metaestimators import with_seeds

#: Names of the files written to the folder of the results.
FILES = ("report.html", "table.csv")

CLASSIFIERS = {
    "boosting": HistGradientBoostingClassifier(),
    "forest": RandomForestClassifier(min_samples_leaf=5),
    "logistic": LogisticRegression(max_iter=1000),
    "mlp": MLPClassifier(early_stopping=True, max_iter=200),
}

# A shrunk covariance sees categories that were not in the fit.
_OPTIONS = {"Mahalanobis": {"covariance": LedoitWolf()}}

_MAX_CATEGORIES = 50


def prepare(id_file, ood_files, *, label, drop, classifier, detectors):
    """Read the files, and make the classifier and the detectors; or raise."""
    model = _classifier(classifier)
    made = {name: _detector_class(name) for name in detectors}
    return read_tables(id_file, ood_files, label, drop), model, made


def _classifier(name):
    """Return a classifier by its name, or by ``module:object``."""
    if name in CLASSIFIERS:
        return clone(CLASSIFIERS[name])
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ValueError(
            f"--classifier must be one of {', '.join(CLASSIFIERS)}, or "
            f"module:object, got {name!r}."
        )
    if "" not in sys.path:
        sys.path.insert(0, "")  # modules in the current folder
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"--classifier {name} cannot be imported: {error}.") from error
    found = found() if callable(found) else found
    if not (hasattr(found, "__sklearn_tags__") and is_classifier(found)):
        raise ValueError(
            f"--classifier {name} must be a classifier of scikit-learn, or a function "
            f"or class that returns one without arguments, got {found!r}."
        )
    return clone(found)


def _detector_class(name):
    if name not in skood.detectors.__all__:
        raise ValueError(
            f"--detectors must be names of skood.detectors with commas between them, "
            f"got {name!r}; there are {', '.join(skood.detectors.__all__)}."
        )
    return getattr(skood.detectors, name)


def _preprocessing(tables):
    """Return the encoder of categories, and the scaler of numbers."""
    encoder = OneHotEncoder(
        handle_unknown="ignore", max_categories=_MAX_CATEGORIES, sparse_output=False
    )
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    return ColumnTransformer(
        [("numbers", numbers, tables.numbers), ("text", encoder, tables.categories)]
    )


def run(prepared, out, *, id_file, test_size=0.3, seed=0, n_jobs=None, verbose=0):
    """Compare the detectors, write `FILES` to a folder, and return a summary."""
    tables, model, classes = prepared
    X, X_test, y, y_test = train_test_split(
        tables.X, tables.y, test_size=test_size, stratify=tables.y, random_state=seed
    )
    [model] = with_seeds([make_pipeline(_preprocessing(tables), model)], seed)
    frozen = FrozenEstimator(model.fit(X, y))
    detectors = {
        name: kind(frozen, **_OPTIONS.get(name, {})) for name, kind in classes.items()
    }
    comparison = run_comparison(
        detectors,
        X_test,
        y_test,
        tables.ood,
        X_train=X,
        y_train=y,
        metrics=list(METRICS),
        groups=None,
        predictions=True,
        cache=None,
        resume=None,
        n_jobs=n_jobs,
        random_state=seed,
        verbose=verbose,
    )
    name = Path(id_file).name
    accuracy = float(np.mean(model.predict(X_test).reshape(-1) == y_test))
    text = (
        f"{len(tables.X):,} ID samples of {len(np.unique(tables.y))} classes, "
        f"{len(tables.numbers)} columns of numbers and {len(tables.categories)} of "
        f"text; accuracy of {type(model[-1]).__name__} on held-out samples: "
        f"{accuracy:.3f}."
    )
    page = [(f"{name} against {', '.join(tables.ood)}", text, comparison)]
    write_report(out / FILES[0], page, title=f"skood: {name}")
    write_text(out / FILES[1], to_csv(comparison.rows))
    return "\n".join([text, "", *_summary(comparison)])


def _summary(comparison):
    """Return lines: AUROC of each detector on each set, the best on average first.

    Detectors within 0.01 of the best are marked as a tie.
    """
    (_, means), best = leaders(comparison), tied(comparison)
    found = {
        (row["detector"], row["ood"]): row["value"]
        for row in comparison.rows
        if row["metric"] == "auroc"
    }
    width = max(len(name) for name, _ in means) + 2
    yield "AUROC".ljust(width) + "  ".join(f"{name:>8}" for name in comparison.sets)
    for name, _ in means:
        values = (found[name, ood] for ood in comparison.sets)
        columns = zip(values, comparison.sets, strict=True)
        numbers = "  ".join(f"{v:>{max(8, len(ood))}.3f}" for v, ood in columns)
        tie = "  tie" if len(best) > 1 and name in best else ""
        yield name.ljust(width) + numbers + tie
