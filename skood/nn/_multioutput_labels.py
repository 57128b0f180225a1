"""Multi-output labels: validation, names, classes and weights of the columns."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.multiclass import check_classification_targets

from skood.nn._multi_head_network import HeadRows
from skood.nn._training_data import (
    check_same_classes,
    check_target,
    check_two_classes,
    check_weights,
    class_codes,
    normalized,
    with_class_weight,
)
from skood.utils._labels import check_label_rows, check_labels, plain_labels
from skood.utils._torch import to_numpy

if TYPE_CHECKING:
    from skood.nn._base_torch_estimator import BaseTorchEstimator as _Classifier
else:
    _Classifier = object


class LabelColumns(_Classifier):
    """Mixin of `MultiHeadClassifier` for `y` with one or several columns of labels."""

    classes_: Any
    n_outputs_: int
    target_names_: np.ndarray
    head_weights: Any

    def _each(self):
        """Return the classes of each column."""
        return [self.classes_] if self.n_outputs_ == 1 else self.classes_

    def _names(self):
        """Return the names of the columns, or their numbers if they have none."""
        return getattr(self, "target_names_", np.arange(self.n_outputs_)).tolist()

    def _number(self, column):
        """Return the index of a column that is given by its name or index."""
        names = self._names()
        if column in names:
            return names.index(column)
        if isinstance(column, Integral) and int(column) in range(
            -len(names), len(names)
        ):
            return int(column) % len(names)
        raise ValueError(
            f"There is no column {column!r} of y: give one of {names}, or a number in "
            f"[{-len(names)}, {len(names) - 1}]."
        )

    # --- y -------------------------------------------------------------------

    def _columns(self, y, reset):
        """Return the columns of `y`, a list of label arrays without missing values."""
        if y is None:
            return [check_target(y, self)]  # raises
        names = getattr(y, "columns", None)
        names = None if names is None else list(names)
        shape: tuple = getattr(y, "shape", ())
        if len(shape) == 2 and shape[1] == 0:
            raise ValueError(
                f"y has no columns, shape {tuple(shape)}: {type(self).__name__} needs "
                "at least one column of labels."
            )
        if len(shape) == 2 and shape[1] == 1:
            y = plain_labels(np.ravel(to_numpy(y)))
        try:
            y = check_label_rows(y)
        except ValueError as error:
            if "contains NaN" not in str(error):
                raise
            raise ValueError(
                f"{error} Each sample needs a label in every column: leave the others "
                "out."
            ) from error
        columns = [y] if y.ndim == 1 else [plain_labels(column) for column in y.T]
        self._check_outputs(len(columns), names, reset)
        return columns

    def _check_outputs(self, n_outputs, names, reset):
        """Store the number and names of the columns, or compare them."""
        if names is not None and not all(isinstance(name, str) for name in names):
            names = None
        if reset:
            if names is not None and len(set(names)) < len(names):
                raise ValueError(f"The columns of y must differ in name, got {names}.")
            self.n_outputs_ = n_outputs
            if names is not None:
                self.target_names_ = np.array(names, dtype=object)
            return
        if n_outputs != self.n_outputs_:
            raise ValueError(
                f"y has {n_outputs} column(s), but {type(self).__name__} was fitted on "
                f"{self.n_outputs_}."
            )
        known = getattr(self, "target_names_", None)
        if names is not None and known is not None and names != known.tolist():
            raise ValueError(
                f"y has the columns {names}, but {type(self).__name__} was fitted on "
                f"{known.tolist()}, in this order."
            )

    def _targets(self, y, reset):
        """Return the columns of `y`; raise if their labels cannot be learned."""
        columns = self._columns(y, reset)
        if self.n_outputs_ == 1:
            return [check_target(columns[0], self)]
        for name, column in zip(self._names(), columns, strict=True):
            if column.dtype.kind == "O":
                kinds = sorted({type(label).__name__ for label in column})
                raise ValueError(
                    f"The labels in column {name!r} of y are of several kinds: "
                    f"{', '.join(kinds)}. Make them all of one, and leave samples out "
                    "that are labeled as OOD."
                )
            try:
                check_classification_targets(column)
            except ValueError as error:
                raise ValueError(f"Column {name!r} of y: {error}") from error
        return columns

    # --- the classes given to partial_fit ---------------------------------------

    def _learn_classes(self, classes, y):
        if len(self._columns(y, reset=True)) == 1:
            super()._learn_classes(classes, y)
            return
        self._check_class_lists(classes)
        found = [np.unique(check_labels(given, "classes")) for given in classes]
        if min(len(labels) for labels in found) < 2:
            raise ValueError(
                f"At least two classes are needed for each column, got {classes!r}."
            )
        self.classes_ = found

    def _check_classes_again(self, classes):
        if self.n_outputs_ == 1 or classes is None:
            super()._check_classes_again(classes)
            return
        self._check_class_lists(classes)
        for given, known in zip(classes, self.classes_, strict=True):
            check_same_classes(given, known)

    def _check_class_lists(self, classes):
        """Raise if there is not one list of labels for each of several columns."""
        if (
            not isinstance(classes, (list, tuple))
            or len(classes) != self.n_outputs_
            or any(np.ndim(given) != 1 for given in classes)
        ):
            raise ValueError(
                f"y has {self.n_outputs_} columns: classes must be a list of as many "
                f"arrays of labels, got {classes!r}."
            )

    def _check_partial_options(self, options):
        super()._check_partial_options(options)
        if isinstance(self.class_weight, list) and "balanced" in self.class_weight:
            raise ValueError(
                "class_weight='balanced' needs all the data, which partial_fit does "
                "not see: pass the weights as dicts."
            )

    # --- training samples -------------------------------------------------------

    def _new_rows(self, X, y, sample_weight):
        columns = self._targets(y, reset=True)
        weights = self._class_weights(), self._shares()
        if self.n_outputs_ == 1:
            return super()._new_rows(X, columns[0], sample_weight)
        self.classes_ = [np.unique(column) for column in columns]
        rows = self._head_rows(X, columns, sample_weight, *weights)
        for k, name in enumerate(self._names()):
            codes = rows.codes[rows.weight[:, k] > 0, k]
            check_two_classes(codes, self.classes_[k], self, f" in column {name!r}")
        return rows

    def _rows_of_known_classes(self, X, y, sample_weight):
        columns = self._targets(y, reset=False)
        weights = self._class_weights(), self._shares()
        if self.n_outputs_ == 1:
            return super()._rows_of_known_classes(X, columns[0], sample_weight)
        return self._head_rows(X, columns, sample_weight, *weights)

    def _head_rows(self, X, columns, sample_weight, class_weights, shares):
        """Join samples, class indices and weights; leave out samples of weight zero."""
        check_consistent_length(X, columns[0])
        own = check_weights(sample_weight, len(columns[0]))
        codes = [
            class_codes(column, classes)
            for column, classes in zip(columns, self.classes_, strict=True)
        ]
        weights = [
            with_class_weight(own, *of_head)
            for of_head in zip(class_weights, codes, self.classes_, strict=True)
        ]
        for name, weight in zip(self._names(), weights, strict=True):
            if not weight.any():
                raise ValueError(
                    f"class_weight={self.class_weight!r} leaves only samples of weight "
                    f"zero for column {name!r} of y."
                )
        rows = HeadRows(X, np.column_stack(codes), np.column_stack(weights), shares)
        used = np.flatnonzero(rows.weight.any(axis=1))
        return rows if len(used) == len(rows) else rows.subset(used)

    # --- weights ---------------------------------------------------------------

    def _class_weights(self):
        """Return the class weights of each column."""
        given, n_outputs = self.class_weight, self.n_outputs_
        if given is None or isinstance(given, str):
            return [given] * n_outputs
        if n_outputs == 1 and isinstance(given, dict):
            return [given]
        if (
            n_outputs == 1
            or not isinstance(given, list)
            or len(given) != n_outputs
            or not all(
                one is None or one == "balanced" or isinstance(one, dict)
                for one in given
            )
        ):
            expected = (
                "'balanced', a dict or None"
                if n_outputs == 1
                else f"'balanced', None or a list of {n_outputs} of 'balanced', a dict "
                "or None"
            )
            raise ValueError(
                f"class_weight must be {expected}, because y has {n_outputs} "
                f"column(s); got {given!r}."
            )
        return given

    def _shares(self):
        """Return the weights of the heads, scaled to a mean of one."""
        weights, names = self.head_weights, self._names()
        if weights is None:
            return np.ones(len(names))
        if isinstance(weights, dict):
            unknown = [name for name in weights if name not in names]
            if unknown:
                raise ValueError(
                    f"head_weights has weights of {unknown}, but the columns of y are "
                    f"{names}."
                )
            weights = [weights.get(name, 1.0) for name in names]
        weights = check_array(
            weights, ensure_2d=False, dtype=np.float64, input_name="head_weights"
        )
        if weights.shape != (len(names),) or weights.min() <= 0:
            raise ValueError(
                f"head_weights must be {len(names)} numbers above zero, one for each "
                f"column of y; got {self.head_weights!r}."
            )
        return normalized(weights)
