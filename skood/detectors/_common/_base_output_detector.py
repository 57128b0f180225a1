"""Base class of detectors that use features, logits or the head of a classifier."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import abstractmethod
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data

from skood.base import BaseDetector
from skood.detectors._common._explain import explanation
from skood.detectors._common._inputs import (
    BLOCK_BYTES,
    check_columns,
    check_logits,
    checked_features,
    labels_later,
    stored_columns,
    validated,
)
from skood.detectors._common._partial_fit import add_samples, check_adds, fit_sums
from skood.detectors._common._training_scores import (
    left_out_scores,
    refitted_training_scores,
    scores_of_formula,
    training_scores,
)
from skood.nn._linear_head import LinearHead
from skood.nn._make_network import has_dense_features, make_network
from skood.nn._outputs import NetworkOutputs, concatenate
from skood.utils._array_api import array_device, as_double, to_host
from skood.utils._atomic_fit import kept_state
from skood.utils._batches import (
    array_batches,
    is_lazy,
    is_torch_data,
    loaded,
    weighted_rows,
)
from skood.utils._id_samples import id_only, id_samples
from skood.utils._input import takes_input
from skood.utils._left_out import MAX_OFFSET_ROWS, is_fixed
from skood.utils._memory_maps import float_rows, in_memory, is_matrix, row_blocks
from skood.utils._metaestimators import fit_wrapped, wrapped_tags
from skood.utils._parallel import ONE_THREAD, map_chunks, one_thread
from skood.utils._param_validation import Classifier, fit_context
from skood.utils._torch import row_chunks

# Bytes of a block on a GPU, which a memory bank is copied to once per block.
_GPU_BLOCK_BYTES = 256 * 2**20

# Up to this number of samples, products are faster on one thread where cores are busy.
_FEW_ROWS = 256


class OutputDetector(BaseDetector):
    """Base class of detectors that use the outputs of a classifier.

    A subclass names in ``_needs`` the outputs that it needs ("features", "logits",
    "head"), and implements ``_score_outputs(outputs)`` and, if it learns,
    ``_fit_outputs(outputs, y)``, which uses ``outputs.weight``. One that learns from
    sums over samples implements ``_added(sums, part, labels)`` and ``_settle(outputs,
    y)`` instead, and gets `partial_fit`; one whose score is a sum over features has
    ``_explained(outputs)``, and gets `explain`.

    With ``estimator=None``, `X` holds features if the subclass needs features, else
    logits. A subclass that needs features, and logits or a head, then gets a
    `LinearHead` that is fitted on ``(X, y)``.

    Both methods work on chunks of samples whose arrays are NumPy arrays, or torch
    tensors on a GPU: ``outputs.xp`` is the array namespace, and ``outputs.asarray``
    moves fitted arrays, which are NumPy, to the device of the chunk.
    """

    _parameter_constraints: dict = {
        **BaseDetector._parameter_constraints,
        "estimator": [Classifier(), None],
        "device": "no_validation",  # validated where it is used
    }

    _needs: ClassVar[frozenset] = frozenset()

    # Features of a CSR array are "kept" sparse, or made dense in "chunks" of samples.
    # None: they raise an error.
    _sparse: ClassVar[str | None] = None

    # Whether scores of features need no large matrix product.
    _elementwise: ClassVar[bool] = False

    # Whether the detector learns from the training samples, besides the classifier, so
    # that their scores differ from scores of new samples.
    _learns: ClassVar[bool] = True

    # Number of cross-validation folds that the detector is refitted on for the
    # threshold. None: 20 for fewer than 1,000 samples, else 10.
    _n_folds: ClassVar[int | None] = None

    # Whether this is a fit without some samples, for the threshold: it shrinks what the
    # fit on all samples shrinks.
    _is_fold: ClassVar[bool] = False

    # Whether covariances were shrunk, for few samples.
    _shrinks: Any = False

    # Number of training samples for the threshold, drawn with a fixed seed. None, or
    # for detectors that do not learn: all.
    _max_offset_rows: ClassVar[int | None] = MAX_OFFSET_ROWS

    # Parameters that sums over samples depend on: they must not change between calls
    # of `partial_fit`.
    _sums_need: ClassVar[tuple] = ("estimator",)

    # Whether the sums depend on the logits. Else a linear classifier only computes the
    # logits of samples for the threshold.
    _sums_logits: ClassVar[bool] = True

    # Bytes of float64 temporaries per chunk. Few logits per sample are fast if a chunk
    # fits into the cache, matrix products if it is large.
    _chunk_bytes: ClassVar[int] = 64 * 2**20
    _logit_chunk_bytes: ClassVar[int] = 2 * 2**20
    _logit_chunk_rows: ClassVar[int] = 2048  # at least, for many classes

    def __init__(
        self, estimator=None, *, device="auto", contamination=0.05, ood_label=-1
    ):
        super().__init__(contamination=contamination, ood_label=ood_label)
        self.estimator = estimator
        self.device = device

    def _fit_samples(self, X, y, sample_weight=None):
        if sample_weight is None:
            X, y = labels_later(X, y, self.estimator)
        else:
            X, y = weighted_rows(X, y)
            X = X if self.estimator is not None else loaded(X)
        with id_only(self, X, y, sample_weight, copy=False) as training:
            return self._fit(*training)

    def _fit(self, X, y, sample_weight=None):
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
                self.estimator_ = LinearHead().fit(X, y, sample_weight)
            elif "features" not in self._needs and y is not None:
                check_columns(self, X.shape[1])
        else:
            if not isinstance(self.estimator, FrozenEstimator):
                X = in_memory(X)
            self.estimator_ = self._fit_estimator(X, y, sample_weight)
        outputs = self._read_all(X)
        if sample_weight is not None:
            outputs = outputs.weighted(sample_weight)
        if y is None and is_torch_data(X):  # its labels have been loaded by now
            _, y, self._id_rows = id_samples(self, X, X.labels())
            outputs = outputs if self._id_rows is None else outputs.rows(self._id_rows)
        with self._few_threads(outputs):
            self._fit_outputs(outputs, y)
        if self._fits_head or not is_fixed(self.estimator):
            return refitted_training_scores(self, X, y, sample_weight)
        with self._few_threads(outputs):
            return self._training_scores(outputs, y)

    def _fit_estimator(self, X, y, sample_weight=None):
        """Fit the classifier; store the names of columns if the classifier does not."""
        fitted = fit_wrapped(self, self.estimator, X, y, sample_weight)
        self._keeps_names = hasattr(X, "columns") and not hasattr(
            self, "feature_names_in_"
        )
        if self._keeps_names:
            validate_data(self, X, reset=True, skip_check_array=True)
        return fitted

    @available_if(check_adds)
    @fit_context(
        # Nested estimators come from the user and are validated by their own fit.
        prefer_skip_nested_validation=False
    )
    def partial_fit(self, X, y=None, sample_weight=None):
        """Fit incrementally on a batch of samples.

        Available if the detector learns from sums over samples. The result equals one
        `fit` on all samples of all calls, except ``alpha_`` of :class:`ViM`, which is
        then computed from at most 5,000 samples. Memory does not depend on the number
        of earlier samples. Each call costs a factorization and, for the threshold, the
        scores of up to 5,000 stored samples: pass thousands of samples at a time.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            More training data.

        y : array-like of shape (n_samples,), default=None
            Class labels, given in every call or in no call. Samples labeled
            `ood_label` are left out, and at least one sample must have another label.
            New classes may occur in any call.

        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights, given in every call or in no call, see `fit`.

        Returns
        -------
        self : object
            The detector. While the samples do not determine the model (such as one
            sample per class for a covariance) it is not fitted yet.

        Raises
        ------
        ValueError
            If the data are invalid, or a parameter was changed that the previous sums
            depend on. The detector is then unchanged by the call.

        AttributeError
            If there is an `estimator` that is not fitted, in a
            :class:`~sklearn.frozen.FrozenEstimator`.
        """
        with kept_state(self):
            add_samples(self, X, y, sample_weight)
        return self

    def _training_scores(self, outputs, y):
        """Return scores for the threshold, distributed like scores of new samples."""
        return training_scores(self, outputs, y)

    def _left_out_scores(self, outputs, y, rows, shares=None):
        """Return scores of training samples, each from a fit without it.

        With weights, `rows` are copies of weights `shares`, and the result is a pair.
        """
        return left_out_scores(self, outputs, y, rows, shares)

    def _without_each(self, outputs, y):
        """Return leave-one-out training scores from the sums, or None if impossible.

        A score is NaN if its sample cannot be left out.
        """
        return scores_of_formula(self, outputs, y)

    def _score_left_out(self, part, labels):
        """Return leave-one-out scores (NumPy; NaN: alone in its class), or None."""
        return None

    def _fit_outputs(self, outputs, y):
        """Learn from the outputs for the ID training samples (`y` may be None)."""
        if hasattr(self, "_added"):
            fit_sums(self, outputs, y)

    def _begin(self, outputs, y):
        """Set attributes that sums depend on; raise if `y` is needed."""

    @abstractmethod
    def _score_outputs(self, outputs):
        """Score a chunk of samples: float64, high = ID.

        A class that also defines ``_onnx_score(outputs)`` can be exported: it returns
        the same scores, (n_samples, 1), of a `skood.onnx._graph.GraphOutputs`.
        """

    def _parts(self, outputs, y=None):
        """Yield chunks of outputs, on the device for computations, and labels."""
        device = outputs.device_for(self._device)
        for rows in self._chunks(outputs, device):
            part = self._placed(outputs.rows(rows), device)
            yield part, None if y is None else y[rows]

    def _placed(self, part, device):
        """Return a chunk for computations on a device."""
        return (part if self._sparse == "kept" else part.dense()).to(device)

    @property
    def _fits_head(self):
        """Return whether X holds features, and a linear head is fitted on them."""
        if self.estimator is not None:
            return False
        return "head" in self._needs or {"features", "logits"} <= self._needs

    @property
    def _depends_on_samples(self):
        return self._fits_head or super()._depends_on_samples

    @property
    def _rescales(self):
        """Return whether scores scale with the number of samples and are corrected."""
        return False

    @property
    def _device(self):
        return getattr(self, "device", "cpu")  # some detectors compute on the CPU only

    def _batches(self, X):
        # a network loads X itself; an array is returned here for speed
        if self.estimator is not None or type(X) is np.ndarray:
            return (X,)
        return array_batches(X, self._block_bytes)

    def _block_bytes(self, X):
        """Return the size of a block of a large matrix."""
        on_gpu = array_device(self._device, X) is not None
        return _GPU_BLOCK_BYTES if on_gpu else BLOCK_BYTES

    def _checked(self, X):
        """Return new samples after validation: by their classifier, if there is one."""
        if self.estimator is None:
            return self._validate(X, reset=False)
        if getattr(self, "_keeps_names", False) and not is_lazy(X):
            validate_data(self, X, reset=False, skip_check_array=True)
        return X

    def _read(self, X, needs=None):
        """Return an iterable over outputs of consecutive validated samples."""
        needs = self._needs if needs is None else needs
        if not hasattr(self, "estimator_"):
            if "features" in self._needs:
                return (NetworkOutputs(features=X),)
            return (NetworkOutputs(logits=check_logits(X)),)
        network = make_network(self.estimator_)
        network.is_validated = self.estimator is None  # by `_checked`
        network.core.allows_nan = self._allows_nan
        if not network.takes_blocks or network.memory is not None or not is_matrix(X):
            return checked_features(self, network.iter_outputs(in_memory(X), needs))
        blocks = row_blocks(X, self._block_bytes(X))
        return chain.from_iterable(
            network.iter_outputs(block, needs) for block in blocks
        )

    def _read_all(self, X):
        """Return the outputs of all validated samples of `X`."""
        if not self._features_are_rows_of(X):
            return concatenate(self._read(X))
        features, later = float_rows(X), None
        if not self._sums_logits:
            later = make_network(self.estimator_).later_logits(features)
        needs = self._needs if later is None else self._needs - {"logits"}
        # The features of the blocks are left out: they may be copies.
        others = concatenate(
            NetworkOutputs(None, part.logits, part.head)
            for part in self._read(X, needs)
        )
        return NetworkOutputs(
            features, others.logits if later is None else later, others.head
        )

    def _features_are_rows_of(self, X):
        """Return whether the features of the classifier are rows of a matrix."""
        return (
            hasattr(self, "estimator_")
            and "features" in self._needs
            and is_matrix(X)
            and make_network(self.estimator_).features_are_rows
        )

    def _score(self, X):
        is_small = isinstance(X, np.ndarray) and X.shape[:1] <= (_FEW_ROWS,)
        # a bank is large, whatever the samples are
        if is_small and not hasattr(self, "bank_"):
            with ONE_THREAD:
                return self._score_any(X)
        return self._score_any(X)

    def _score_any(self, X):
        scores = [self._score_rows(one) for one in self._read(self._checked(X))]
        return scores[0] if len(scores) == 1 else np.concatenate(scores)

    def _score_validated(self, X):
        return self._score_rows(self._read_all(X))

    def _bytes_per_row(self, outputs):
        """Return the size of the float64 temporaries for scoring one sample."""
        is_kept = self._sparse == "kept"
        width = sum(
            stored_columns(array) if is_kept else array.shape[1]
            for array in (outputs.features, outputs.logits)
            if array is not None
        )
        # comparing features with all classes needs one column per class
        n_classes = (
            0 if outputs.features is None else len(getattr(self, "classes_", ()))
        )
        return 8 * (4 * width + 3 * n_classes)

    def _chunks(self, outputs, device=None):
        per_row, size = self._bytes_per_row(outputs), self._chunk_bytes
        if outputs.features is None and device is None:
            least = self._logit_chunk_rows * per_row
            size = min(size, max(self._logit_chunk_bytes, least))
        return row_chunks(len(outputs), per_row, size)

    def _score_rows(self, outputs):
        device = outputs.device_for(self._device)

        def scores_of(rows):
            with np.errstate(over="ignore", invalid="ignore"):  # NaN raises in the end
                scores = self._score_outputs(self._placed(outputs.rows(rows), device))
            return to_host(as_double(scores))

        if len(outputs) == 1:  # for the speed of small calls
            return scores_of(slice(0, 1))
        chunks = list(self._chunks(outputs, device))
        # without a large matrix product, which has threads of its own
        if device is None and (self._elementwise or outputs.features is None):
            scores = map_chunks(scores_of, chunks)
        else:
            with self._few_threads(outputs):
                scores = [scores_of(rows) for rows in chunks]
        return scores[0] if len(scores) == 1 else np.concatenate(scores)

    def _score_one(self, outputs):
        """Score a sample in dense NumPy arrays; for the speed of small calls."""
        if self._device not in ("auto", "cpu"):
            return self._score_rows(outputs)
        return self._score_outputs(outputs)

    def _few_threads(self, outputs):
        """Limit threads of products of samples with a square matrix, if small."""
        values = outputs.logits if outputs.features is None else outputs.features
        return one_thread(len(outputs) * values.shape[1] ** 2)

    def _validate(self, X, *, reset):
        return validated(self, X, reset=reset)

    @available_if(lambda self: hasattr(self, "_explained"))
    @takes_input
    def explain(self, X, *, n_features=3):
        """Explain the score of each sample by its reference and feature contributions.

        Available if the score is a sum over features.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples.

        n_features : int, default=3
            Number of features to report, with the largest contributions first.

        Returns
        -------
        explanation : pandas.DataFrame
            One row per sample, with the index of `X` if it is a data frame: the
            columns ``score`` and ``is_ood``, the columns of each detector described in
            the :ref:`User Guide <explanations>`, and ``feature_1``,
            ``contribution_1``, …: a feature (its name, or its index if the features
            have no names) and its contribution to the squared distance.

        Raises
        ------
        ImportError
            If pandas is not installed.

        ValueError
            If `n_features` is negative or more than the number of features.

        NotFittedError
            If the detector is not fitted.
        """
        return explanation(self, X, n_features)

    def __sklearn_tags__(self):
        tags = wrapped_tags(super().__sklearn_tags__(), self.estimator)
        if self.estimator is None:
            tags.target_tags.required = self._fits_head
            tags.input_tags.sparse = self._sparse is not None
        elif "features" in self._needs:
            tags.input_tags.allow_nan &= self._allows_nan
            if self._sparse is None:
                tags.input_tags.sparse &= has_dense_features(self.estimator)
        return tags


def constraints_without_device():
    """Return constraints of a detector without `device`, which uses the CPU only."""
    constraints = dict(OutputDetector._parameter_constraints)
    del constraints["device"]
    return constraints
