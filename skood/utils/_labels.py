"""Validation of labels, and masks of ID and OOD samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import re
from contextlib import contextmanager
from numbers import Number, Real

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import column_or_1d

from skood.utils._torch import to_numpy
from skood.utils._warnings import warn


def _equals(y, label):
    """Return elementwise ``y == label``, False for types that cannot be equal."""
    if y.dtype.kind in "US" and not isinstance(label, str):
        return np.zeros(y.shape, dtype=bool)
    if y.dtype.kind in "biuf" and isinstance(label, str):
        return np.zeros(y.shape, dtype=bool)
    return np.asarray(y == label, dtype=bool)


def has_label(y, label):
    """Return whether a label is in `y`; text never equals a number."""
    return bool(_equals(np.asarray(y), label).any())


def is_missing(label):
    """Return whether a label is None, NaN or pandas' NA."""
    return label is None or type(label).__name__ == "NAType" or label != label


def column(y, *, warn=False):
    """Return `y` as a 1-D array: one that is plain as it is, `column_or_1d` is slow."""
    if type(y) is np.ndarray and y.ndim == 1 and y.dtype.kind != "c":
        return y
    return column_or_1d(to_numpy(y), warn=warn)


def is_nan(label):
    """Return whether a label is the number NaN, the target of OOD samples."""
    return isinstance(label, Real) and label != label


def check_targets(y, name="y"):
    """Return targets of a regression, float64 of shape (n_samples,), or raise.

    NaN, None and pandas' NA, the targets of OOD samples, give NaN.
    """
    if y is None:
        raise ValueError(f"{name} is required, got None.")
    y = column(y, warn=True)
    if y.dtype.kind == "O":
        y = np.array([np.nan if is_missing(v) else v for v in y])
    if y.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} must hold targets of a regression, numbers, got the dtype "
            f"{y.dtype}."
        )
    y = y.astype(np.float64, copy=False)
    if np.isinf(y).any():
        raise ValueError(
            f"Input {name} contains infinity. Targets are finite; only OOD samples "
            "have none, NaN."
        )
    return y


def check_y(y, ood_label):
    """Return labels or, if `ood_label` is NaN, targets of a regression, or raise."""
    return check_targets(y) if is_nan(ood_label) else check_labels(y)


def check_labels(y, name="y", *, where=slice(None)):
    """Return `y` of shape (n_samples,), or raise.

    `where` selects the samples whose labels must not be missing.
    """
    if y is None:
        raise ValueError(f"{name} is required, got None.")
    if isinstance(y, (list, tuple)) and len({isinstance(v, str) for v in y}) == 2:
        y = np.array(y, dtype=object)  # NumPy would turn the number -1 into text
    try:
        y = column(y, warn=True)
    except ValueError as error:
        if _as_table(y) is None:
            raise
        raise ValueError(
            f"{error} There must be one label per sample: fit one classifier or "
            f"detector per column, such as {name}[:, 0]. A MultiHeadClassifier takes "
            "all columns, and head(0) is the classifier of the first."
        ) from error
    if y.dtype.kind not in "biufOUSMm":
        raise ValueError(f"{name} must hold class labels, got the dtype {y.dtype}.")
    if y.dtype.kind == "f" and not np.all(np.isfinite(y[where])):
        raise ValueError(f"Input {name} contains NaN or infinity.")
    if y.dtype.kind == "O" and any(is_missing(v) for v in y[where]):
        raise ValueError(f"Input {name} contains NaN or None.")
    return y


def check_label_columns(y, name="y"):
    """Return labels, or a table of labels with a column per concept, or raise.

    One column is one label per sample. Columns of different types give objects.
    """
    table = _as_table(y)
    if table is None:
        return check_labels(y, name)
    if table.dtype.kind == "f" and not np.all(np.isfinite(table)):
        raise ValueError(f"Input {name} contains NaN or infinity.")
    if table.dtype.kind == "O" and any(is_missing(v) for v in table.ravel()):
        raise ValueError(f"Input {name} contains NaN or None.")
    return table


def single_column(y):
    """Return labels without the second axis if they have one column."""
    shape = tuple(getattr(y, "shape", ()))
    if len(shape) != 2 or shape[-1] != 1:
        return y
    return y[y.columns[0]] if hasattr(y, "columns") else y[:, 0]


def _as_table(y):
    """Return `y` as an array if it has two axes and several columns, else None."""
    if isinstance(y, (list, tuple)):
        lists = [to_numpy(row).tolist() if hasattr(row, "shape") else row for row in y]
        if not lists or not all(isinstance(row, (list, tuple)) for row in lists):
            return None
        lengths = sorted({len(row) for row in lists})
        if len(lengths) > 1:
            raise ValueError(
                f"y must have the same number of labels for each sample, got from "
                f"{lengths[0]} to {lengths[-1]}."
            )
        kinds = {isinstance(value, str) for row in lists for value in row}
        # NumPy would turn numbers next to text into text
        table = np.array(lists, dtype=object if len(kinds) == 2 else None)
    else:
        table = np.asarray(to_numpy(y))
    return table if table.ndim == 2 and table.shape[1] > 1 else None


def plain_labels(y):
    """Return an array of objects in their common type, if they have one."""
    if y.dtype.kind != "O":
        return y
    values = [v.item() if isinstance(v, np.generic) else v for v in y.tolist()]
    kinds = {type(value) for value in values}
    if kinds in ({str}, {bool}, {int}, {float}, {int, float}):
        return np.array(values)
    return y


def sortable_labels(y):
    """Return labels that can be classes, all text or all numbers, or raise."""
    if y.dtype.kind != "O" or all(isinstance(label, str) for label in y):
        return y
    y = plain_labels(y)
    if y.dtype.kind != "O":
        return y
    examples = {type(label).__name__: label for label in y.tolist()}
    kinds = ", ".join(f"{kind} ({label!r:.40})" for kind, label in examples.items())
    raise ValueError(
        f"The labels of ID samples in y must be of one kind, text or numbers; got "
        f"{kinds}. Convert them. Known OOD samples carry the ood_label of an "
        "estimator that has one, and are left out for others."
    )


def check_one_kind(y):
    """Raise a ValueError if `y`, of any shape or None, has both text and numbers."""
    is_list = isinstance(y, (list, tuple)) and not any(np.ndim(v) for v in y)
    kind = getattr(getattr(y, "dtype", None), "kind", None)
    if is_list or (kind == "O" and np.ndim(y) == 1):
        labels = np.empty(len(y), dtype=object)
        labels[:] = list(y)
        if len({isinstance(label, str) for label in labels}) == 2:
            sortable_labels(labels)


def _label_kinds(labels):
    """Return the kinds of labels: a set of "text", "numbers" and "other"."""
    if labels.dtype.kind in "US":
        return {"text"} if labels.size else set()
    if labels.dtype.kind in "biuf":
        return {"numbers"} if labels.size else set()
    return {
        "text"
        if isinstance(v, str)
        else "numbers"
        if isinstance(v, Number)
        else "other"
        for v in labels.ravel().tolist()
    }


def _same_in_print(y, label):
    """Return the label of the other kind that prints as `label`, or None."""
    if isinstance(label, str):
        try:
            number = float(label)
        except ValueError:
            return None
        equal = y[y == number]
        return equal.tolist()[0] if len(equal) else None
    return str(label) if (y == str(label)).any() else None


def _check_kinds(y, is_ood, ood_label, classes):
    """Raise if labels cannot equal `ood_label`, or a class, due to their type alone.

    Files, or ``y.astype(str)``, have the text "-1" or "0" instead of the number: all
    samples would be ID, or all OOD, without an error.
    """
    if classes is not None:
        known, others = _label_kinds(classes), y[~is_ood]
        of_y = _label_kinds(others)
        if sorted([*known, *of_y]) == ["numbers", "text"] and len(known) == 1:
            raise ValueError(
                f"The labels are {of_y.pop()}, such as {others.tolist()[0]!r}, but "
                f"the classes are {known.pop()}, such as {classes.tolist()[0]!r}: "
                "every sample would be OOD. Give the labels as they were in fit, and "
                f"known OOD samples the label ood_label={ood_label!r}."
            )
    kinds = _label_kinds(y) if y.dtype.kind in "UOiuf" else set()
    if kinds == {"numbers" if isinstance(ood_label, str) else "text"}:
        alike = _same_in_print(y, ood_label)
        if alike is not None:
            raise ValueError(
                f"The labels are {kinds.pop()} and contain {alike!r}, but ood_label="
                f"{ood_label!r} is of another kind, so that no sample has it. Set "
                f"ood_label={alike!r} if these samples are OOD; else set an ood_label "
                "that no class has, of the kind of the labels."
            )


def ood_mask(y, *, ood_label=-1, classes=None):
    """Return a mask of the OOD samples in `y`, of shape (n_samples,).

    A sample is OOD if any of its labels is `ood_label`, or its label in the first
    column is not among `classes`, if given: left-out-class protocols need no
    relabeling. With `ood_label` NaN, OOD samples are those without a target.
    """
    y = check_targets(y) if is_nan(ood_label) else check_label_columns(y)
    return checked_ood_mask(y, ood_label, classes)


def checked_ood_mask(y, ood_label=-1, classes=None):
    """Return `ood_mask` of labels or targets that are checked, an array."""
    if is_nan(ood_label):
        return np.isnan(y)
    is_ood = _equals(y, ood_label)
    if y.ndim == 2:
        is_ood, y = is_ood.any(axis=1), y[:, 0]
    classes = None if classes is None else np.asarray(classes)
    is_text = y.dtype.kind in "US"
    is_usual = y.dtype.kind != "O" and is_text == isinstance(ood_label, str)
    if classes is not None or not is_usual:
        _check_kinds(y, is_ood, ood_label, classes)
    if classes is not None:
        if "O" in (y.dtype.kind, classes.dtype.kind):
            known_labels = set(classes.tolist())
            known = np.array([v in known_labels for v in y.tolist()], dtype=bool)
        elif is_text == (classes.dtype.kind in "US"):
            known = np.isin(y, classes)
        else:
            known = np.zeros(y.shape, dtype=bool)
        is_ood |= ~known
    return is_ood


def check_id_mask(y, ood_label=-1):
    """Return a mask of the ID samples, which `fit` may learn from; raise if none.

    `y` are labels or targets that are checked, an array.
    """
    is_id = ~checked_ood_mask(y, ood_label)
    if is_id.size == 0:
        raise ValueError("Found 0 samples in y while a minimum of 1 is required.")
    if not is_id.any() and is_nan(ood_label):
        raise ValueError(
            "No in-distribution samples to fit: every target in y is NaN, the target "
            "of known OOD samples. Pass samples with targets."
        )
    if not is_id.any():
        raise ValueError(
            f"No in-distribution samples to fit: every label in y equals "
            f"ood_label={ood_label!r}. Known OOD samples are left out of the fit; pass "
            f"samples of at least one class, or another ood_label."
        )
    return is_id


@contextmanager
def naming_ood_label(y, n_left_out, ood_label, *, warns=False):
    """Add `ood_label` to the error of a fit with only one remaining class.

    With `warns`, a fit that succeeds warns, because it fits a classifier.
    """
    why = ""
    if y is not None and n_left_out and not np.any(y[1:] != y[:1]):
        why = (
            f"Only the class {y[:1].tolist()[0]!r} is left in y, because the "
            f"{n_left_out} samples labeled ood_label={ood_label!r} are taken for "
            f"known OOD samples. If {ood_label!r} is a class, set ood_label to a label "
            "that no class has."
        )
    try:
        yield
    except ValueError as error:
        message = str(error).rstrip(". ")
        if not why or not re.search(r"\b(class|classes|labels?)\b", message):
            raise
        raise ValueError(f"{message}. {why}") from error
    if why and warns:
        warn(why)


def check_nested_ood_labels(name, estimator, y, owner):
    """Raise if a part would treat samples of an ID class as OOD and leave them out.

    `name` is the parameter of the class `owner` that contains the part, `y` are labels
    that are checked.
    """
    if isinstance(estimator, FrozenEstimator):
        return
    for key, label in getattr(estimator, "get_params", dict)().items():
        if key.split("__")[-1] == "ood_label" and checked_ood_mask(y, label).any():
            raise ValueError(
                f"{name}__{key}={label!r} is one of the classes, so that samples of "
                "this class would be left out of its fit. Set it to the ood_label "
                f"of the {owner}."
            )


def label_codes(y, labels):
    """Return the index of each entry of `y` in `labels`, -1 if it has none."""
    index = {label: code for code, label in enumerate(labels.tolist())}
    codes = [index.get(label, -1) for label in y.tolist()]
    return np.array(codes, dtype=np.int64)


def unique_codes(y):
    """Return the sorted classes, and the index of the class of each label.

    Few integers are counted, which is faster than sorting.
    """
    if y.dtype.kind == "i":
        low = int(y.min())
        if int(y.max()) - low < len(y):
            offsets = y.astype(np.int64, copy=False) - low
            occurs = np.bincount(offsets) > 0
            classes = (np.flatnonzero(occurs) + low).astype(y.dtype)
            return classes, (np.cumsum(occurs) - 1)[offsets]
    return np.unique(y, return_inverse=True)


def put_label(y, where, label):
    """Return labels with some replaced by a label of any type.

    Text among numbers, or a number among texts or Booleans, gives an array of objects.
    """
    text = y.dtype.kind in "US"
    if text != isinstance(label, str) or y.dtype.kind == "b":
        y = y.astype(object)
    elif text:
        y = y.astype(np.result_type(y.dtype, np.asarray(label).dtype))
    else:
        y = y.astype(np.int64 if y.dtype.kind in "biu" else y.dtype)
    y[where] = label
    return y
