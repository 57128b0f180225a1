"""Comparison of detectors on tables in files: ``skood compare``."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import difflib
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

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
from skood.benchmark._compare import Output, run_comparison
from skood.benchmark._inputs import METRICS
from skood.benchmark._output import to_csv
from skood.benchmark._report import leaders, write_report
from skood.utils._files import write_text
from skood.utils._metaestimators import with_seeds
from skood.utils._optional import import_optional

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
        classifier = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"--classifier {name} cannot be imported: {error}.") from error
    classifier = classifier() if callable(classifier) else classifier
    if not (hasattr(classifier, "__sklearn_tags__") and is_classifier(classifier)):
        raise ValueError(
            f"--classifier {name} must be a classifier of scikit-learn, or a function "
            f"or class that returns one without arguments, got {classifier!r}."
        )
    return clone(classifier)


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
        train=(X, y),
        metrics=list(METRICS),
        groups=None,
        predictions=True,
        output=Output(verbose=verbose),
        n_jobs=n_jobs,
        random_state=seed,
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
    write_text(out / FILES[1], to_csv(comparison.entries))
    return "\n".join([text, "", *_summary(comparison)])


def _summary(comparison):
    """Return lines: AUROC of each detector on each set, the best on average first.

    Detectors within 0.01 of the best are marked as a tie.
    """
    _, means, best = leaders(comparison)
    areas = {
        (row["detector"], row["ood"]): row["value"]
        for row in comparison.entries
        if row["metric"] == "auroc"
    }
    width = max(len(name) for name, _ in means) + 2
    yield "AUROC".ljust(width) + "  ".join(f"{name:>8}" for name in comparison.sets)
    for name, _ in means:
        values = (areas[name, ood] for ood in comparison.sets)
        columns = zip(values, comparison.sets, strict=True)
        numbers = "  ".join(f"{v:>{max(8, len(ood))}.3f}" for v, ood in columns)
        tie = "  tie" if len(best) > 1 and name in best else ""
        yield name.ljust(width) + numbers + tie


_SUFFIXES = (".csv", ".npz", ".parquet", ".tsv")
_MIN_SAMPLES = 10
_SHOWN = 5

# Text that is a date if all values of its column are.
_DATE = r"\d{4}-\d{2}-\d{2}(?:[T ].*)?"


class Tables(NamedTuple):
    """ID samples with codes of classes, OOD samples by name, and kinds of columns."""

    X: Any
    y: np.ndarray
    ood: dict
    numbers: list
    categories: list


def read_tables(id_file, ood_files, label=None, drop=()):
    """Read and validate the files; errors name the file and the column."""
    import_optional("pandas", "skood compare")
    path = Path(id_file).expanduser()
    X = _read(path)
    y, X = _split_label(X, path, label)
    X = _without(X, drop, path)
    _check_labels(y, path)
    X, kinds = _with_kinds(X, path)
    # codes, since -1 is the default label of OOD samples, and for XGBoost
    codes = np.unique(y.astype(str).to_numpy(dtype=object), return_inverse=True)[1]
    ood = {}
    for name, file in _named(ood_files).items():
        table = _read(file)
        for column in (label or "y", *drop):
            table = table.drop(columns=column, errors="ignore")
        _check_columns(table, X, file, path)
        ood[name] = _as_kinds(table[list(X.columns)], kinds, file, path)
        if not len(table):
            raise ValueError(f"{file} has no rows: OOD samples are needed.")
    numbers = [name for name, kind in kinds.items() if kind != "text"]
    return Tables(
        X, codes, ood, numbers, [name for name in kinds if name not in numbers]
    )


def _read(path):
    """Return the table of a file, as a data frame."""
    import pandas as pd

    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise ValueError(
            f"{path} has the suffix {suffix!r}; tables are read from "
            f"{', '.join(_SUFFIXES)} files."
        )
    if not path.is_file():
        files = path.parent.iterdir() if path.parent.is_dir() else ()
        near = _near(path.name, [f.name for f in files if f.suffix in _SUFFIXES])
        raise FileNotFoundError(f"{path} is not a file{near}.")
    try:
        if suffix == ".parquet":
            return pd.read_parquet(path)
        if suffix == ".npz":
            return _from_arrays(path)
        return pd.read_csv(path, sep="\t" if suffix == ".tsv" else ",")
    except ImportError as error:
        raise ImportError(
            f"{path}: pandas reads parquet files by pyarrow, which is not installed: "
            "pip install pyarrow. Or save the table as a CSV file."
        ) from error
    except (ValueError, OSError, BadZipFile, KeyError) as error:
        raise ValueError(
            f"{path} cannot be read as a {suffix} file: {error}"
        ) from error


def _from_arrays(path):
    """Return X of an npz file, with y as a column if there is one."""
    import pandas as pd

    with np.load(path, allow_pickle=False) as arrays:
        if "X" not in arrays:
            raise ValueError(f"it has the arrays {sorted(arrays)}, but no array X")
        X = arrays["X"]
        if X.ndim != 2:
            raise ValueError(f"X must have two axes, got the shape {X.shape}")
        table = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])
        if "y" in arrays:
            table["y"] = arrays["y"]  # raises if lengths differ
    return table


def _near(name, names):
    """Return the most similar of some names, or all of a few, for an error."""
    near = difflib.get_close_matches(str(name), [str(other) for other in names], n=3)
    if near:
        return f"; similar: {', '.join(near)}"
    shown = [str(other) for other in list(names)[: 2 * _SHOWN]]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return f"; there are: {', '.join(shown)}{more}" if shown else ""


def _listed(names):
    names = [str(name) for name in names]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _split_label(table, path, label):
    """Return the column of labels, and the others."""
    if label is None and path.suffix.lower() != ".npz":
        raise ValueError(
            f"The column of {path} with the classes is needed: --label COLUMN"
            f"{_near('', table.columns)}."
        )
    label = "y" if label is None else label
    if label not in table.columns:
        hint = ""
        if table.shape[1] == 1 and any(c in str(table.columns[0]) for c in ";\t"):
            hint = " Columns must be separated by commas, or by tabs in a .tsv file."
        raise ValueError(
            f"{path} has no column {label!r} of labels{_near(label, table.columns)}."
            f"{hint}"
        )
    return table[label], table.drop(columns=label)


def _without(table, drop, path):
    for column in drop:
        if column not in table.columns:
            raise ValueError(
                f"{path} has no column {column!r} to drop"
                f"{_near(column, table.columns)}."
            )
    return table.drop(columns=list(drop))


def _check_labels(y, path):
    """Raise unless there are two classes or more, of at least two samples."""
    name = f"the label column {y.name!r} of {path}"
    if len(y) < _MIN_SAMPLES:
        raise ValueError(
            f"{path} has {len(y)} rows; at least {_MIN_SAMPLES} are needed to fit and "
            "to hold out."
        )
    if y.isna().any():
        raise ValueError(
            f"{int(y.isna().sum())} of {len(y)} rows of {name} have no value. Remove "
            "these rows, or give them a class."
        )
    counts = y.value_counts()
    if len(counts) < 2:
        raise ValueError(
            f"All rows of {name} have the class {y.iloc[0]}; a classifier needs two "
            "classes or more."
        )
    if len(counts) > len(y) / 2:
        raise ValueError(
            f"There are {len(counts)} different values in {len(y)} rows of {name}: it "
            "must hold classes, not numbers of a regression or names of rows."
        )
    if counts.min() < 2:
        alone = counts.index[counts < 2]
        raise ValueError(
            f"The classes {_listed(alone)} of {name} have one row each; at least two "
            "are needed, to fit and to hold out. Remove or merge them."
        )


def _kind(column):
    """Return "number", "date", "text", or the dtype of another column."""
    import pandas as pd
    from pandas.api import types

    if types.is_numeric_dtype(column) and not types.is_complex_dtype(column):
        return "number"
    if types.is_datetime64_any_dtype(column):
        return "date"
    values = column.dropna()
    if isinstance(column.dtype, pd.CategoricalDtype):
        values = values.astype(object)
    if not all(isinstance(value, (str, bool, int, float)) for value in values):
        return str(column.dtype)
    text = values.astype(str)
    return "date" if len(text) and text.str.fullmatch(_DATE).all() else "text"


def _with_kinds(X, path):
    """Return converted ID samples, and the kind of each column."""
    kinds = {name: _kind(X[name]) for name in X.columns}
    other = [f"{k} ({v})" for k, v in kinds.items() if v not in _CONVERT]
    if other:
        raise ValueError(
            f"Columns of {path} are neither numbers, text nor dates: {_listed(other)}. "
            f"Leave them out: --drop {other[0].split(' (')[0]}"
        )
    if "number" not in kinds.values() and "date" not in kinds.values():
        raise ValueError(
            f"{path} has no numeric columns next to the labels, only text: "
            f"{_listed(kinds) or 'nothing'}. Detectors compare numbers; encode the "
            "text in Python, as in the recipes for embeddings."
        )
    constant = [name for name in X.columns if X[name].nunique() < 2]
    if constant:
        raise ValueError(
            f"Columns of {path} have a single value or none: {_listed(constant)}. "
            "Detectors learn nothing from them; leave them out: --drop "
            f"{','.join(map(str, constant))}"
        )
    return _as_kinds(X, kinds, path, path), kinds


def _check_columns(table, X, file, path):
    """Raise unless a table of OOD samples has the columns of the ID samples."""
    missing = [name for name in X.columns if name not in table.columns]
    extra = [name for name in table.columns if name not in X.columns]
    if missing or extra:
        problems = [f"no {_listed(missing)}"] * bool(missing)
        problems += [f"also {_listed(extra)}"] * bool(extra)
        raise ValueError(
            f"{file} must have the columns of {path}, but it has "
            f"{', and '.join(problems)}. Rename columns, or leave some out by --drop."
        )


def _numbers(column):
    values = column.astype(float)
    if np.isinf(values).any():
        raise ValueError("it has infinite values")
    return values


def _days(column):
    """Return days since 1970 of dates, ISO 8601 if they are text."""
    import pandas as pd

    dates = pd.to_datetime(column, utc=True, format="ISO8601")
    return (dates - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)


def _text(column):
    values = column.astype(object)
    return values.where(values.isna(), values.map(str)).fillna("missing")


_CONVERT = {"number": _numbers, "date": _days, "text": _text}


def _as_kinds(table, kinds, file, path):
    """Return the table with numbers, days and text, as the ID samples have them."""
    converted = {}
    for name, kind in kinds.items():
        try:
            converted[name] = _CONVERT[kind](table[name])
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"The column {name!r} of {file} must hold {kind}s, as in {path}: "
                f"{error}."
            ) from error
    return type(table)(converted)


def _named(files):
    """Return paths by their names without suffix, or by whole paths if not unique."""
    paths = [Path(file).expanduser() for file in files]
    stems = [path.stem for path in paths]
    if len(set(stems)) < len(stems):
        stems = [str(path) for path in paths]
    if len(set(stems)) < len(stems):
        raise ValueError(f"A file is given twice as OOD samples: {_listed(stems)}.")
    return dict(zip(stems, paths, strict=True))
