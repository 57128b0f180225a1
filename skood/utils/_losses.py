"""Per-sample losses of predictions, from a name, a callable, an array or a matrix."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import NamedTuple

import numpy as np

from skood.utils._labels import check_labels, label_codes
from skood.utils._stored import stored

# Expected losses that differ by less than this relative amount are tied.
_ROUNDING = 1e-12

REGRESSION_LOSSES = {"absolute_error": np.abs, "squared_error": np.square}


def is_regression_loss(loss):
    """Return whether a loss is the name of a loss of regression."""
    return isinstance(loss, str) and loss in REGRESSION_LOSSES


def check_no_dict(loss):
    """Raise a TypeError if losses are given as a dict."""
    if isinstance(loss, dict):
        raise TypeError(
            f"loss must be a name, a callable or an array, got a dict, {loss!r:.80}; a "
            "matrix such as [[0, 1], [5, 0]] has the true classes in rows and the "
            "predicted ones in columns."
        )


def implied_ood_label(loss, ood_label):
    """Return NaN, the target of OOD samples, for a loss of regression."""
    return np.nan if is_regression_loss(loss) else ood_label


def _zero_one(y_true, y_pred, where):
    """Return 1.0 where the labels differ, also between strings and numbers."""
    if (y_true.dtype.kind in "US") != (y_pred.dtype.kind in "US"):
        y_true, y_pred = y_true.astype(object), y_pred.astype(object)
    if "O" in (y_true.dtype.kind, y_pred.dtype.kind):  # others may not be comparable
        y_true, y_pred, where = y_true[where], y_pred[where], slice(None)
    return np.asarray(y_true != y_pred, dtype=bool)[where].astype(np.float64)


def _codes(y, classes, name):
    """Return the index of every label in `classes`."""
    codes = label_codes(y, classes)
    if (codes < 0).any():
        unknown = sorted({repr(label) for label in y[codes < 0].tolist()})
        raise ValueError(
            f"{name} contains labels that are not in classes={classes.tolist()}: "
            f"{', '.join(unknown[:5])}. A loss matrix needs a row and a column for "
            f"every label."
        )
    return codes


def _from_matrix(y_true, y_pred, matrix, classes):
    """Return losses from a (true, predicted) matrix."""
    if classes is None:
        raise ValueError(
            "A loss matrix needs classes, the labels of its rows and columns; got "
            "classes=None."
        )
    classes = np.asarray(classes)
    _check_shape(matrix, len(classes))
    where = _codes(y_true, classes, "y_true")
    columns = _codes(y_pred, classes, "y_pred")
    return matrix[where, columns]


def _check_shape(matrix, n_classes):
    """Raise unless a loss matrix has an entry for each pair of classes."""
    if matrix.shape != (n_classes, n_classes):
        raise ValueError(
            f"A loss matrix for {n_classes} classes must have shape "
            f"({n_classes}, {n_classes}), got {matrix.shape}."
        )


def _check_pred(y_pred, n_samples, where):
    y_pred = check_labels(y_pred, "y_pred", where=where)
    if y_pred.shape[0] != n_samples:
        raise ValueError(
            f"y_pred has {y_pred.shape[0]} entries, but y_true has {n_samples}; pass "
            f"one prediction per label."
        )
    return y_pred


def _per_row(values, n_samples):
    """Return an array of losses, or the result of a callable, as float64."""
    values = np.asarray(values, dtype=np.float64)
    if values.shape != (n_samples,):
        raise ValueError(
            f"loss must give one number per sample, shape ({n_samples},), got an array "
            f"of shape {values.shape}."
        )
    return values


def _named(y_true, y_pred, loss, where):
    """Return the losses of ID samples by name."""
    if loss == "zero_one":
        return _zero_one(y_true, y_pred, where)
    if not is_regression_loss(loss):
        names = ", ".join(map(repr, ["zero_one", *REGRESSION_LOSSES]))
        raise ValueError(
            f"loss must be {names}, a callable, an array of losses or a loss matrix, "
            f"got {loss!r}."
        )
    for values, name in ((y_true, "y_true"), (y_pred, "y_pred")):
        if values.dtype.kind not in "biuf":
            raise ValueError(
                f"A loss of regression is for numbers, got {name} of the dtype "
                f"{values.dtype}."
            )
    with np.errstate(over="ignore"):
        residuals = y_true[where].astype(np.float64) - y_pred[where].astype(np.float64)
        return REGRESSION_LOSSES[loss](residuals)


def per_sample_loss(
    y_true, y_pred, loss="zero_one", *, is_id=None, classes=None, max_loss=None
):
    """Return the loss of every ID sample, of shape (n_id,).

    `loss` is the name of a loss, a callable of true and predicted labels, an array of
    one loss per sample, or a matrix (true classes in rows, predicted in columns, both
    as `classes`). `y_pred` is None if losses are given; `is_id` is None if all samples
    are ID. Losses are clipped to `max_loss`, unless it is None.
    """
    check_no_dict(loss)
    where: slice | np.ndarray = slice(None)
    if is_id is not None and not is_id.all():
        where = np.flatnonzero(is_id)  # faster than the mask
    y_true = check_labels(y_true, "y_true", where=where)
    n_samples = y_true.shape[0]
    if isinstance(loss, str):
        values = _named(y_true, _check_pred(y_pred, n_samples, where), loss, where)
    elif callable(loss):
        id_true, id_pred = y_true[where], _check_pred(y_pred, n_samples, where)[where]
        values = _per_row(loss(id_true, id_pred), id_true.shape[0])
    else:
        array = np.asarray(loss, dtype=np.float64)
        if array.ndim == 2:
            y_pred = _check_pred(y_pred, n_samples, where)
            values = _from_matrix(y_true[where], y_pred[where], array, classes)
        else:
            values = _per_row(array, n_samples)[where]
    if max_loss is not None:
        values = np.minimum(values, max_loss)
    good = np.isfinite(values) & (values >= 0)
    if not good.all():
        bad = ~good
        raise ValueError(
            f"loss must be finite and not negative for ID samples, got "
            f"{float(values[bad][0])!r} (in {int(bad.sum())} of {values.size} samples)."
        )
    return values


@stored
class LossTable(NamedTuple):
    """Losses of all pairs of classes, which determine decisions and their risks.

    `losses` has the shape (n_classes, n_classes), true classes in rows, both in the
    order of `classes`. With `decides` labels are Bayes decisions, else predictions.
    """

    classes: np.ndarray
    losses: np.ndarray
    decides: bool

    @classmethod
    def of(cls, loss, classes, decides):
        """Return the table of a loss; raise if it is no loss of each pair."""
        n_classes = len(classes)
        pairs = np.repeat(classes, n_classes), np.tile(classes, n_classes)
        if isinstance(loss, str):  # "zero_one"
            losses = 1.0 - np.eye(n_classes)
        elif callable(loss):
            losses = _of_pairs(loss, *pairs).reshape(n_classes, n_classes)
        else:
            losses = np.array(loss, dtype=np.float64)
            _check_shape(losses, n_classes)
        bad = np.flatnonzero(~(np.isfinite(losses) & (losses >= 0)))
        if bad.size:
            raise ValueError(
                f"loss must be finite and not negative, got {losses.item(bad[0])!r} "
                f"for {_shown_pair(*pairs, bad[0])}."
            )
        return cls(np.asarray(classes), losses, decides)

    def risks(self, proba, classes):
        r"""Return the expected loss of each class as the decision, (n_samples, n).

        These are :math:`\rho_k(x) = \sum_y p(y | x) L[y, k]`, Franc et al., eq. (4),
        for probabilities of `classes`, all classes of the table or a subset.
        """
        codes = _codes(np.asarray(classes), self.classes, "classes_ of the estimator")
        losses = self.losses[np.ix_(codes, codes)]
        # unlike a product of matrices, independent of the other samples
        return np.einsum("ny,yk->nk", np.asarray(proba, dtype=np.float64), losses)

    def decided(self, proba, classes, predicted=None):
        """Return the labels of samples, and the expected losses of these labels."""
        classes, risks = np.asarray(classes), self.risks(proba, classes)
        if self.decides:
            risk = risks.min(axis=1)
            tied = risks <= (1 + _ROUNDING) * risk[:, None]
            return classes[tied.argmax(axis=1)], risk
        codes = label_codes(np.asarray(predicted), classes)
        return predicted, risks[np.arange(len(risks)), codes]


def _of_pairs(loss, y_true, y_pred):
    """Return the values of a callable; an error names a pair that causes it."""
    try:
        return _per_row(loss(y_true, y_pred), y_true.size)
    except Exception as error:
        for i in range(y_true.size):
            try:
                loss(y_true[i : i + 1], y_pred[i : i + 1])
            except Exception as cause:
                raise ValueError(
                    "loss must be defined for each pair of classes, but it raises "
                    f"{cause!r} for {_shown_pair(y_true, y_pred, i)}."
                ) from error
        raise


def _shown_pair(y_true, y_pred, i):
    """Return a pair of labels as text."""
    pair = y_true[i : i + 1].tolist() + y_pred[i : i + 1].tolist()
    return "the true class {!r} and the decision {!r}".format(*pair)
