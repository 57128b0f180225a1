"""Training data: samples with targets and weights, batches, validation split."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import torch
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from skood.utils._labels import check_labels, label_codes, sortable_labels
from skood.utils._torch import to_numpy
from skood.utils._weights import check_weight


def check_target(y, estimator):
    """Return class labels as a 1-D array, or raise."""
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is "
            f"None."
        )
    y = sortable_labels(check_labels(y))
    check_classification_targets(y)
    return y


def check_numbers(y, estimator):
    """Return targets of a regression as a finite 1-D float64 array, or raise."""
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is "
            f"None."
        )
    y = column_or_1d(to_numpy(y), warn=True)
    return check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")


def check_same_classes(labels, classes):
    """Raise if classes that are given again differ from the known classes."""
    if labels is None:
        return
    if not np.array_equal(np.unique(check_labels(labels, "classes")), classes):
        raise ValueError(
            f"classes={labels!r} differs from the classes of the first call, "
            f"{classes.tolist()!r}. Call fit to start anew."
        )


def class_codes(y, classes):
    """Return the index of each label in `classes`; an unknown label raises."""
    codes = label_codes(y, classes)
    if (codes < 0).any():
        raise ValueError(
            f"y contains the label {y.tolist()[codes.argmin()]!r}, which is not among "
            f"the classes {classes.tolist()!r} of the network. Leave its samples out, "
            "or fit the network anew."
        )
    return codes


def check_two_classes(codes, classes, estimator, where=""):
    """Raise if all samples are of one class; `where` is for the message."""
    if len(np.unique(codes)) == 1:
        raise ValueError(
            f"{type(estimator).__name__} needs samples of at least two classes with a "
            f"weight above zero to fit, got 1 class{where}: "
            f"{classes.tolist()[codes[0]]!r}."
        )


def with_class_weight(weight, class_weight, codes, classes):
    """Multiply sample weights by the weights of the classes.

    "balanced" gives all classes that occur the same total weight.
    """
    if class_weight is None:
        return weight
    if class_weight == "balanced":
        totals = np.bincount(codes, weights=weight, minlength=len(classes))
        occurs = totals > 0
        per_class = np.zeros(len(classes))
        per_class[occurs] = weight.sum() / (occurs.sum() * totals[occurs])
    else:
        per_class = compute_class_weight(
            class_weight, classes=classes, y=classes[codes]
        ).astype(np.float64)
        if not np.isfinite(per_class).all() or per_class.min() < 0:
            raise ValueError(
                f"class_weight must be finite and not negative, got {class_weight!r}."
            )
    return weight * per_class[codes]


def normalized(weight):
    """Scale weights, or columns that are not zero, to mean one; equal ones exactly."""
    if weight.ndim == 2:
        columns = [w if not w.any() else normalized(w) for w in weight.T]
        return np.column_stack(columns)
    if weight.min() == weight.max():
        return np.ones(len(weight))
    return weight * (len(weight) / weight.sum())


class TrainingSet(torch.utils.data.Dataset):
    """Dataset of samples with class and weight, (n_samples,) or (n_samples, n_heads).

    Weights have mean one; `inputs` are not copied. For a regression `codes` are the
    targets, float32.
    """

    def __init__(self, inputs, codes, weight):
        self.inputs = inputs
        self.codes = codes
        self.weight = normalized(weight)

    def __len__(self):
        return len(self.codes)

    def __getitem__(self, i):
        weight = self.weight[i].astype(np.float32)  # supported by every device
        return self.inputs[i], (self.codes[i], weight)

    def subset(self, indices):
        """Return some of the samples, with rescaled weights."""
        return TrainingSet(
            self.inputs[indices], self.codes[indices], self.weight[indices]
        )


def weighted_samples(X, codes, sample_weight, class_weight, classes):
    """Join samples, class indices and weights; leave out samples of weight zero."""
    check_consistent_length(X, codes)
    weight = check_weight(sample_weight, len(codes), default=1)
    weight = with_class_weight(weight, class_weight, codes, classes)
    used = np.flatnonzero(weight)
    if len(used) == 0:
        raise ValueError(
            f"class_weight={class_weight!r} leaves only samples of weight zero."
        )
    samples = TrainingSet(X, codes, weight)
    return samples if len(used) == len(codes) else samples.subset(used)


def stratified_split(codes, fraction, random_state):
    """Split sample indices into training and validation samples, ascending, or raise.

    Systematic sampling in the order of classes (of several columns: of combinations),
    at random within: each gets its fraction up to one sample. A sample of each class
    stays in training.
    """
    n = len(codes)
    columns = codes.reshape(n, -1).T
    order = np.lexsort((random_state.uniform(size=n), *columns[::-1]))
    marks = np.floor(np.arange(n + 1) * fraction + random_state.uniform())
    chosen = np.zeros(n, dtype=bool)
    chosen[order] = np.diff(marks) > 0
    for column in columns:
        by_class = order[np.argsort(column[order], kind="stable")]
        last_of_class = np.append(np.diff(column[by_class]) > 0, True)
        remaining = np.bincount(column, weights=~chosen, minlength=column.max() + 1)
        for row in by_class[last_of_class]:  # its class would be validated entirely
            if remaining[column[row]] == 0:
                chosen[row] = False
    if not chosen.any():
        raise ValueError(
            f"early_stopping=True needs validation samples, but validation_fraction="
            f"{fraction} of {n} samples leaves none but one training sample of each "
            f"class. Raise validation_fraction, or set early_stopping=False."
        )
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)


def row_batches(n_samples, batch_size, shuffle):
    """Yield the sample indices of each batch of an epoch.

    A last batch of one sample is joined to the one before: batch normalization cannot
    train on one. A single batch is not shuffled.
    """
    order = np.arange(n_samples)
    if shuffle and n_samples > batch_size:
        order = torch.randperm(n_samples).numpy()
    stops = list(range(batch_size, n_samples, batch_size))
    if stops and batch_size > 1 and n_samples - stops[-1] == 1:
        stops.pop()
    yield from np.split(order, stops)
