"""Base class of detectors that use features, logits or the head of a classifier."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import validate_data

from skood.base import BaseDetector
from skood.nn._linear_head import LinearHead
from skood.nn._make_network import make_network
from skood.nn._outputs import Reading, concatenate
from skood.utils._array_api import array_device, as_double, to_host
from skood.utils._batches import is_lazy, is_torch_data, labeled_rows, loaded
from skood.utils._left_out import (
    cross_fitted,
    is_fixed,
    offset_rows,
    refitted_scores,
)
from skood.utils._memory_maps import (
    MappedRows,
    float_rows,
    in_memory,
    is_mapped,
    is_matrix,
    row_blocks,
)
from skood.utils._metaestimators import fit_wrapped, take_rows, wrapped_tags
from skood.utils._parallel import map_chunks
from skood.utils._param_validation import Classifier
from skood.utils._torch import check_tensor, is_tensor, row_chunks

__all__ = ["ReadingDetector"]

# Bytes, in float64, of a block of samples that a classifier is given. A memory bank is
# copied to a GPU once per block.
_BLOCK_BYTES = 32 * 2**20
_GPU_BLOCK_BYTES = 256 * 2**20


class ReadingDetector(BaseDetector):
    """Base class of detectors that use the outputs of a classifier.

    A subclass names in ``_reads`` the outputs that it needs ("features", "logits",
    "head"), and implements ``_fit_reading(reading, y)`` and
    ``_score_reading(reading)``. With ``estimator=None``, `X` holds features if the
    subclass needs features, else logits. A subclass that needs features, and logits or
    a head, then gets a `LinearHead` that is fitted on ``(X, y)``.

    Both methods work on chunks of samples whose arrays are NumPy arrays, or torch
    tensors on a GPU: ``reading.xp`` is the array namespace, and ``reading.asarray``
    moves fitted arrays, which are NumPy, to the device of the chunk.

    Parameters
    ----------
    estimator : object, default=None
        A classifier, cloned and fitted unless frozen.

    device : str, default="auto"
        Where scores are computed: "auto" is CUDA for large arrays if there is one,
        else the CPU. A network runs on the device of its classifier.

    contamination : float, default=0.05
        Share of new ID samples to reject.

    ood_label : int or str, default=-1
        Label of known OOD samples in ``y``.
    """

    _parameter_constraints: dict = {
        **BaseDetector._parameter_constraints,
        "estimator": [Classifier(), None],
        "device": "no_validation",  # validated where it is used
    }

    _reads: ClassVar[frozenset] = frozenset()

    # Whether scores of features need no large matrix product.
    _elementwise: ClassVar[bool] = False

    # Whether the detector learns from the training samples, besides the classifier, so
    # that their scores differ from scores of new samples.
    _learns: ClassVar[bool] = True

    # Number of cross-validation folds that the detector is refitted on for the
    # threshold. None: 20 for fewer than 1,000 samples, else 10.
    _n_folds: ClassVar[int | None] = None

    # Number of training samples for the threshold, drawn with a fixed seed. None: all.
    _max_offset_rows: ClassVar[int | None] = None

    # Bytes of float64 temporaries per chunk. Few logits per sample are fast if a chunk
    # fits into the cache, matrix products if it is large.
    _chunk_bytes: ClassVar[int] = 64 * 2**20
    _logit_chunk_bytes: ClassVar[int] = 4 * 2**20
    _logit_chunk_rows: ClassVar[int] = 2048  # at least, for many classes

    def __init__(
        self, estimator=None, *, device="auto", contamination=0.05, ood_label=-1
    ):
        super().__init__(contamination=contamination, ood_label=ood_label)
        self.estimator = estimator
        self.device = device

    def _fit(self, X, y):
        if self.estimator is None:
            X = self._validate(X, reset=True)
            if self._fits_head:
                if y is None:
                    raise ValueError(
                        f"{type(self).__name__}() requires y to be passed, but the "
                        "target y is None: with estimator=None it fits a linear head "
                        "on (X, y). Pass class labels, or estimator=."
                    )
                X = in_memory(X)  # the solver iterates over all samples many times
                self.estimator_ = LinearHead().fit(X, y)
            elif "features" not in self._reads and y is not None:
                self._check_columns(X.shape[1])
        else:
            if not isinstance(self.estimator, FrozenEstimator):
                X = in_memory(X)
            self.estimator_ = self._fit_estimator(X, y)
        reading = self._read_all(X)
        if y is None and is_torch_data(X):  # its labels have been loaded by now
            _, y = self._only_id(X, X.labels())
            reading = reading if self._id_rows is None else reading.rows(self._id_rows)
        self._fit_reading(reading, y)
        if self._fits_head or not is_fixed(self.estimator):
            return self._refitted_scores(X, y)
        return self._training_scores(reading, y)

    def _check_columns(self, n_columns):
        """Raise if X cannot be logits of the classes in y, for example features."""
        n_classes = len(self.classes_)
        # a single class only marks ID samples; a single column is rejected elsewhere
        if n_classes in (1, n_columns) or n_columns == 1:
            return
        name = type(self).__name__
        raise ValueError(
            f"X has n_features = {n_columns} columns, but y has {n_classes} classes: "
            f"with estimator=None {name} takes the columns of X for logits, one per "
            f"class. For features, pass the classifier: {name}(estimator=classifier). "
            "For logits of a network with other classes than those in y, pass "
            f"estimator=LinearHead(numpy.eye({n_columns}), "
            f"numpy.zeros({n_columns}), classes=...) with one class per column, or, "
            "where no labels are needed, fit without y."
        )

    def _labeled_rows(self, X, y):
        """Return samples and labels; a torch dataset yields its labels when loaded."""
        is_frozen = isinstance(self.estimator, FrozenEstimator)
        rows, labels = labeled_rows(X, y, wait=self.estimator is None or is_frozen)
        if self.estimator is not None or not is_lazy(X):
            return rows, labels
        array = loaded(rows)  # the detector learns from the array itself
        return array, rows.labels() if y is None and is_torch_data(rows) else y

    @property
    def _reads_blocks(self):
        """Return whether a classifier is applied to the samples, block by block."""
        return self.estimator is not None

    def _chosen(self, X, rows):
        """Return the samples to learn from; a memory-mapped file is not copied yet."""
        return MappedRows(X, rows) if is_mapped(X) else take_rows(X, rows)

    def _fit_estimator(self, X, y):
        """Fit the classifier; store the names of columns if the classifier does not."""
        fitted = fit_wrapped(self, self.estimator, X, y)
        self._keeps_names = hasattr(X, "columns") and not hasattr(
            self, "feature_names_in_"
        )
        if self._keeps_names:
            validate_data(self, X, reset=True, skip_check_array=True)
        return fitted

    def _training_scores(self, reading, y):
        """Return scores for the threshold, distributed like scores of new samples."""
        rows = np.arange(len(reading))
        if self._max_offset_rows is not None:
            rows = rows[offset_rows(len(reading), self._max_offset_rows)]
        return self._left_out_scores(reading, y, rows)

    def _left_out_scores(self, reading, y, rows):
        """Return scores of training samples, each from a fit without it."""
        if not self._learns:
            whole = len(rows) == len(reading)  # then a file is not copied
            return self._score_rows(reading if whole else reading.rows(rows))
        return cross_fitted(self, reading, y, rows, self._n_folds, self._rescales)

    def _refitted_scores(self, X, y):
        """Return training scores, each from a classifier and a fit without it."""

        def fit(other, X, y):
            if self.estimator is None:
                other.estimator_ = LinearHead().fit(X, y)
            else:
                other.estimator_ = fit_wrapped(other, self.estimator, X, y)

        def score(other, left_out):
            whole = other._read_all(X)
            other._fit_reading(whole, y)
            return other._left_out_scores(whole, y, left_out)

        return refitted_scores(self, X, y, fit, score)

    @abstractmethod
    def _fit_reading(self, reading, y):
        """Learn from the outputs for the ID training samples (`y` may be None)."""

    @abstractmethod
    def _score_reading(self, reading):
        """Score a chunk of samples: float64, high = ID."""

    def _parts(self, reading, y=None):
        """Yield chunks of a reading, on the device for computations, and labels."""
        device = reading.device_for(self._device)
        for rows in self._chunks(reading, device):
            part = reading.rows(rows).to(device)
            yield part, None if y is None else y[rows]

    @property
    def _fits_head(self):
        """Return whether X holds features, and a linear head is fitted on them."""
        if self.estimator is not None:
            return False
        return "head" in self._reads or {"features", "logits"} <= self._reads

    @property
    def _rescales(self):
        """Return whether scores scale with the number of samples and are corrected."""
        return False

    @property
    def _device(self):
        return getattr(self, "device", "cpu")  # some detectors compute on the CPU only

    def _read(self, X, *, validated=False):
        """Yield readings of consecutive samples of `X`."""
        if self.estimator is None and not validated:
            X = self._validate(X, reset=False)
        if hasattr(self, "estimator_"):
            keeps_names = getattr(self, "_keeps_names", False)
            if keeps_names and not (validated or is_lazy(X)):
                validate_data(self, X, reset=False, skip_check_array=True)
            network = make_network(self.estimator_)
            for block in self._blocks(X, network):
                yield from network.iter_outputs(block, self._reads)
        elif "features" in self._reads:
            yield Reading(features=X)
        else:
            yield Reading(logits=check_logits(X))

    def _blocks(self, X, network):
        """Return input blocks for the classifier: several for a large array."""
        if not network.takes_blocks or network.memory is not None or not is_matrix(X):
            return [in_memory(X)]
        on_gpu = array_device(self._device, X) is not None
        return row_blocks(X, _GPU_BLOCK_BYTES if on_gpu else _BLOCK_BYTES)

    def _read_all(self, X, *, validated=True):
        """Return one reading of all samples of `X`."""
        readings = self._read(X, validated=validated)
        if not self._features_are_rows_of(X):
            return concatenate(readings)
        # The features of the blocks are left out: they may be copies.
        logits = [Reading(None, part.logits, part.head) for part in readings]
        return replace(concatenate(logits), features=float_rows(X))

    def _features_are_rows_of(self, X):
        """Return whether the features of the classifier are rows of a matrix."""
        return (
            hasattr(self, "estimator_")
            and "features" in self._reads
            and is_matrix(X)
            and make_network(self.estimator_).features_are_rows
        )

    def _column_labels(self, n_columns):
        """Return the class label of each column of the logits.

        There may be more labels than ``classes_`` (the ID classes in `y`), in another
        order.
        """
        source = getattr(self, "estimator_", self)
        labels = np.asarray(getattr(source, "classes_", np.arange(n_columns)))
        if len(labels) != n_columns:
            raise ValueError(
                f"{type(self).__name__} got {n_columns} logits for {len(labels)} "
                f"classes: {labels.tolist()}. Give one logit per class, in the order "
                "of classes_."
            )
        return labels

    def _score(self, X):
        return np.concatenate([self._score_rows(part) for part in self._read(X)])

    def _score_validated(self, X):
        return self._score_rows(self._read_all(X))

    def _bytes_per_row(self, reading):
        """Return the size of the float64 temporaries for scoring one sample."""
        width = sum(
            array.shape[1]
            for array in (reading.features, reading.logits)
            if array is not None
        )
        # comparing features with all classes needs one column per class
        n_classes = (
            0 if reading.features is None else len(getattr(self, "classes_", ()))
        )
        return 8 * (4 * width + 3 * n_classes)

    def _chunks(self, reading, device=None):
        per_row, size = self._bytes_per_row(reading), self._chunk_bytes
        if reading.features is None and device is None:
            least = self._logit_chunk_rows * per_row
            size = min(size, max(self._logit_chunk_bytes, least))
        return row_chunks(len(reading), per_row, size)

    def _score_rows(self, reading):
        device = reading.device_for(self._device)

        def scores_of(rows):
            with np.errstate(over="ignore", invalid="ignore"):  # NaN raises in the end
                scores = self._score_reading(reading.rows(rows).to(device))
            return to_host(as_double(scores))

        chunks = list(self._chunks(reading, device))
        if device is None and self._is_elementwise(reading):
            scores = map_chunks(scores_of, chunks)
        else:
            scores = [scores_of(rows) for rows in chunks]
        return scores[0] if len(scores) == 1 else np.concatenate(scores)

    def _is_elementwise(self, reading):
        """Return whether scoring involves no large matrix product with own threads."""
        return self._elementwise or reading.features is None

    def _validate(self, X, *, reset):
        """Validate `X` that is used without a classifier; keep tensors on the GPU."""
        if is_mapped(X) and X.dtype not in (np.float32, np.float64):
            X = MappedRows(X)
        if isinstance(X, MappedRows):
            return self._validate_mapped(X, reset=reset)
        if not on_gpu(X) or self._fits_head:
            return super()._validate(X, reset=reset)
        X = check_tensor(X, keep_double=True)
        if reset:
            self.n_features_in_ = X.shape[1]
            self.__dict__.pop("feature_names_in_", None)
        elif X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {X.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input."
            )
        return X

    def _validate_mapped(self, X, *, reset):
        """Validate samples of a memory-mapped file block by block."""
        if 0 in X.shape:
            return super()._validate(np.asarray(X[:]), reset=reset)  # raises
        for block in row_blocks(X, _BLOCK_BYTES):
            super()._validate(block, reset=reset)
            reset = False
        return float_rows(X)

    def __sklearn_tags__(self):
        tags = wrapped_tags(super().__sklearn_tags__(), self.estimator)
        if self.estimator is None:
            tags.target_tags.required = self._fits_head
        elif "features" in self._reads:
            tags.input_tags.sparse = tags.input_tags.allow_nan = False
        return tags


def constraints_without_device():
    """Return constraints of a detector without `device`, which uses the CPU only."""
    constraints = dict(ReadingDetector._parameter_constraints)
    del constraints["device"]
    return constraints


def on_gpu(X):
    """Return whether `X` is a tensor that is not on the CPU."""
    return is_tensor(X) and X.device.type != "cpu"


def check_logits(logits):
    """Return logits; raise if there are fewer than two classes."""
    if logits.shape[1] < 2:
        raise ValueError(
            "With estimator=None X holds logits, one column per class, but got "
            f"n_features = {logits.shape[1]}. Give a binary margin m as the two "
            "columns -m/2 and m/2, or pass the classifier as estimator=."
        )
    return logits
