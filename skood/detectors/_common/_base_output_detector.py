"""Base class of detectors that use features, logits or the head of a classifier."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
from abc import abstractmethod
from functools import partial
from itertools import chain
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import issparse
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_scalar
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data

from skood.base import BaseDetector
from skood.detectors._common._explain import leading_columns
from skood.detectors._common._inputs import (
    BLOCK_BYTES,
    check_columns,
    check_logits,
    labels_later,
    stored_columns,
    with_dense_features,
)
from skood.detectors._common._partial_fit import NotEnoughRows, RowSample, on_host
from skood.nn._linear_head import LinearHead
from skood.nn._make_network import has_dense_features, make_network
from skood.nn._outputs import (
    SIXTEENTHS,
    NetworkOutputs,
    concatenate,
    map_samples,
    with_halved_chunks,
)
from skood.utils._array_api import array_device, chunk_bytes
from skood.utils._atomic_fit import kept_state
from skood.utils._batches import (
    array_batches,
    is_lazy,
    is_torch_data,
    labeled_rows,
    loaded,
)
from skood.utils._input import is_as_fitted, takes_input
from skood.utils._left_out import (
    MAX_OFFSET_SAMPLES,
    NETWORK_FOLDS,
    UNUSED,
    compared_samples,
    drawn_copies,
    drawn_in_order,
    folds,
    is_fixed,
    rescaled,
    valid_scores,
)
from skood.utils._memory_maps import (
    MappedRows,
    float_rows,
    in_memory,
    is_mapped,
    is_matrix,
    row_blocks,
    without,
)
from skood.utils._metaestimators import fit_wrapped, n_rows, take_rows, wrapped_tags
from skood.utils._optional import import_pandas
from skood.utils._parallel import NO_LIMIT, ONE_THREAD, one_thread
from skood.utils._param_validation import Classifier, fit_context
from skood.utils._sample_keys import SampleKeys, merged_keys, stored_keys
from skood.utils._sparse import float_samples
from skood.utils._torch import check_tensor, on_gpu, row_chunks, to_numpy
from skood.utils._warnings import quiet
from skood.utils._weights import check_weight, row_weight, weighted

# Bytes of contributions to sparse features that are computed at a time.
_SPARSE_BYTES = 64 * 2**20

# Up to this number of samples, products are faster on one thread where cores are busy.
_FEW_SAMPLES = 256

# Distances of a shrunk covariance change fast with the number of samples, so that a
# fold leaves out few of them, where fits are fast: with up to this number of features.
_SHRUNK_FOLDS = 100
_NARROW = 256

# A head of four fifths of few samples overfits more than the head of all: it is fitted
# this often to fewer than this number of samples.
_HEAD_FOLDS = 20
_FEW_HEAD_SAMPLES = 1000


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

    # Number of cross-validation folds that the detector is refitted on for the
    # threshold. None: 20 for fewer than 1,000 samples, else 10.
    _n_folds: ClassVar[int | None] = None

    # Whether this is a fit without some samples, for the threshold: it shrinks what the
    # fit on all samples shrinks.
    _is_fold: bool = False

    # Whether covariances were shrunk, for few samples.
    _shrinks: Any = False

    # Number of training samples for the threshold, drawn with a fixed seed. None: all.
    _max_offset_samples: ClassVar[int | None] = MAX_OFFSET_SAMPLES

    # Sums over samples, and a random sample of them, see `partial_fit`.
    _sums: Any
    _sample: Any
    classes_: Any

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
    _logit_chunk_samples: ClassVar[int] = 2048  # at least, for many classes

    def __init__(
        self, estimator=None, *, device="auto", contamination=0.05, ood_label=-1
    ):
        super().__init__(contamination=contamination, ood_label=ood_label)
        self.estimator = estimator
        self.device = device

    def _fit_samples(self, X, y, sample_weight=None):
        if sample_weight is None:
            if type(X) is not np.ndarray:
                X, y = labels_later(X, y, self.estimator)
        else:
            X, y = labeled_rows(X, y, sample_weight)
            X = X if self.estimator is not None else loaded(X)
        with self._id_only(X, y, sample_weight, copy=False) as training:
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
        samples, weight = X, sample_weight
        # only samples for the threshold need outputs, unless other detectors share them
        on_few = not (self._learns or self.estimator is None or is_lazy(X))
        on_few = on_few and make_network(self.estimator_).memory is None
        if on_few:
            drawn, weight = drawn_in_order(n_rows(X), sample_weight)
            if len(drawn) < n_rows(X) or weight is not sample_weight:
                samples = take_rows(X, drawn)
        outputs = self._all_outputs(samples)._replace(weight=weight)
        # labels of torch data have been loaded by now
        if y is None and type(X) is not np.ndarray and is_torch_data(X):
            _, y, self._id_indices = self._id_samples(X, X.labels())
            if self._id_indices is not None:
                outputs = outputs.take(self._id_indices)
        few_threads = one_thread(outputs.n_samples * outputs.array.shape[1] ** 2)
        with few_threads:
            try:  # again only if it fails: for the depth of calls
                self._fit_outputs(outputs, y)
            except RuntimeError as error:
                with_halved_chunks(self._fit_outputs, outputs, y, error=error)
        is_fitted = self.estimator is not None and not is_fixed(self.estimator)
        if self._fits_head or is_fitted:
            return self._refitted_scores(X, y, sample_weight, on_few)
        with few_threads:
            try:
                return self._training_scores(outputs, y)
            except RuntimeError as error:
                return with_halved_chunks(
                    self._training_scores, outputs, y, error=error
                )

    def _fit_estimator(self, X, y, sample_weight=None):
        """Fit the classifier; store the names of columns if the classifier does not."""
        fitted = fit_wrapped(self, self.estimator, X, y, sample_weight)
        has_names = hasattr(self, "feature_names_in_")
        self._keeps_names = hasattr(X, "columns") and not has_names
        if self._keeps_names:
            validate_data(self, X, reset=True, skip_check_array=True)
        return fitted

    def _fit_outputs(self, outputs, y):
        """Learn from the outputs for the ID training samples (`y` may be None)."""
        if hasattr(self, "_added"):
            self._start_sums(outputs, y)
            self._include(outputs, y)
            self._settle(outputs, y)

    # --- sums over samples ----------------------------------------------------

    def _start_sums(self, outputs, y):
        self._labeled = y is not None
        self._weighs = outputs.weight is not None
        self._summed_with = {name: getattr(self, name) for name in self._sums_need}
        self._sums, self._sample = None, RowSample()
        self._begin(outputs, y)

    def _begin(self, outputs, y):
        """Set attributes that sums depend on; raise if `y` is needed."""

    def _include(self, outputs, y):
        """Add samples to the sums and to the random sample."""
        sums = self._sums  # restored if this call fails
        summed = outputs if self._sums_logits else outputs._replace(logits=None)
        for chunk, labels in self._chunks(summed, y):
            sums = self._added(sums, chunk, labels)
        self._sums = on_host(sums)
        self._sample = self._sample.updated(outputs, y)

    def _can_add(self):
        """Return whether it learns from sums; raise if none can be added now."""
        if not hasattr(self, "_added"):
            return False
        fitted = isinstance(self.estimator, FrozenEstimator)
        name = type(self).__name__
        if self._fits_head or not (fitted or self.estimator is None):
            raise AttributeError(
                f"{name}.partial_fit needs a classifier that is fitted already and "
                "stays as it is: pass estimator=FrozenEstimator(classifier), or the "
                f"head of skood.nn.split. Got estimator={self.estimator!r}."
            )
        covariance = getattr(self, "covariance", None)
        if covariance is not None:
            raise AttributeError(
                f"{name}.partial_fit needs covariance=None, the maximum likelihood "
                f"covariance, which is a sum over samples. {covariance!r} needs all "
                "samples at once: use fit."
            )
        return True

    @available_if(lambda self: self._can_add())
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
            self._add_samples(X, y, check_weight(sample_weight, n_rows(X)))
        return self

    def _add_samples(self, X, y, weight):
        """Add samples to the sums and to the random sample, and update the model."""
        X, y = labeled_rows(X, y, weight)
        if self.estimator is None:
            X = loaded(X)
        first = not hasattr(self, "_sums")
        if not first:
            self._check_as_before(y, weight)
        earlier: Any = [] if first or y is None else self.classes_
        X, y, indices = self._id_samples(X, y, weight)
        weight = row_weight(weight, indices)
        added = stored_keys(X)
        if self.estimator is None:
            X = self._validate(X, reset=first)
        elif first:  # a frozen one
            self.estimator_ = self._fit_estimator(X, y)
        else:
            (X,) = self._checked(X)
        if len(earlier):
            self.classes_ = np.union1d(earlier, self.classes_)
        outputs = self._all_outputs(X).weighted(weight)
        if first:
            self._start_sums(outputs, y)
        with_halved_chunks(self._include, outputs, y)
        earlier_keys = getattr(self, "_training_keys", None)
        self._training_keys = added if first else merged_keys(earlier_keys, added)
        sample = self._sample.outputs(outputs.head)
        try:
            with_halved_chunks(self._settle, sample, None)
        except NotEnoughRows:
            self.__dict__.pop("offset_", None)
        else:
            labels = self._sample.labels
            self._set_offset(with_halved_chunks(self._training_scores, sample, labels))

    def _check_as_before(self, y, weight):
        """Raise unless samples can be added to the sums of earlier calls."""
        pairs = (("sample_weight", weight, self._weighs), ("y", y, self._labeled))
        for name, array, before in pairs:
            if (array is not None) != before:
                raise ValueError(
                    f"{name} must be given in every call of partial_fit or in none: it "
                    f"was {'given' if before else 'not given'} before."
                )
        for name, value in self._summed_with.items():
            now = getattr(self, name)
            if now is not value and (name == "estimator" or now != value):
                raise ValueError(
                    f"{name}={now!r} was set after samples had been learned from with "
                    f"{name}={value!r}: their sums do not go together. Call fit to "
                    "start anew."
                )

    # --- scores of training samples -------------------------------------------

    def _training_scores(self, outputs, y):
        """Return scores for the threshold, distributed like scores of new samples."""
        scores = None
        if hasattr(self, "_sample"):  # of the samples that sums were taken of
            sample = self._sample.outputs(outputs.head)
            scores = self._scores_by_formula(sample, self._sample.labels)
        if scores is None:
            if self._learns:
                drawn, copy_weights = drawn_copies(
                    outputs.content, outputs.weight, self._max_offset_samples
                )
            else:
                drawn, copy_weights = drawn_in_order(outputs.n_samples, outputs.weight)
            scores = self._left_out_scores(outputs, y, drawn, copy_weights)
        if hasattr(self, "_sample") and not hasattr(self, "partial_fit"):
            del self._sample  # no more samples can be added
        return scores

    def _left_out_scores(self, outputs, y, drawn, copy_weights=None):
        """Return scores of training samples, each from a fit without it.

        With weights, `drawn` are copies with `copy_weights`, and the result is a pair.
        """
        if self._learns and hasattr(self, "_added"):
            scores = self._scores_by_formula(
                outputs.take(drawn).weighted(copy_weights),
                None if y is None else y[drawn],
            )
            if scores is not None:
                return scores
        if self._learns and not UNUSED.get():
            return self._cross_fitted(outputs, y, drawn, copy_weights)
        # all samples, once each, need no copy
        whole = copy_weights is outputs.weight and len(drawn) == outputs.n_samples
        scored = outputs if whole else outputs.take(drawn)
        return weighted(self._scores(scored), copy_weights)

    def _cross_fitted(self, outputs, y, drawn, copy_weights):
        """Return scores of samples, each from a copy that is fitted without it.

        The `outputs` of the classifier, fitted on all samples, are reused. If no copy
        can be fitted, warns and returns the scores of this fit.
        """
        scores, reason = np.full(len(drawn), np.nan), None
        n_folds = self._n_folds
        if self._shrinks and outputs.features.shape[1] <= _NARROW:
            n_folds = _SHRUNK_FOLDS
        try:
            with quiet():
                keys = outputs.content
                weights = outputs.weight, copy_weights
                for fold in folds(keys, drawn, y, n_folds, *weights):
                    other = copy.copy(self)
                    other._is_fold = True
                    chosen, weight = fold.others(outputs.weight, outputs.n_samples)
                    gone = np.setdiff1d(np.arange(outputs.n_samples), chosen)
                    training = outputs.without(gone).weighted(weight)
                    other._fit_outputs(training, without(y, gone))
                    left_out = other._scores(outputs.take(drawn[fold.positions]))
                    if self._rescales:
                        compared = compared_samples(keys, chosen, weight)
                        seen = outputs.take(chosen[compared])
                        pair = other._scores(seen), self._scores(seen)
                        left_out = rescaled(left_out, *pair)
                    scores[fold.positions] = left_out
        except ValueError as error:
            scores, reason = scores[:0], str(error)
        numbers = valid_scores(scores, copy_weights)
        if numbers is not None:
            return numbers
        scores = self._scores(outputs.take(drawn))
        return self._in_sample(weighted(scores, copy_weights), reason)

    def _scores_by_formula(self, outputs, y):
        """Return scores and weights of samples that can be left out, or None."""
        scores = self._without_each(outputs, y)
        return None if scores is None else valid_scores(scores, outputs.weight)

    def _without_each(self, outputs, y):
        """Return leave-one-out training scores from the sums, or None if impossible.

        A score is NaN if its sample cannot be left out.
        """
        scores = []
        for chunk, labels in self._chunks(outputs, y):
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                left_out = self._score_left_out(chunk.to(None), labels)
            if left_out is None:
                return None
            scores.append(left_out)
        return np.concatenate(scores)

    def _score_left_out(self, chunk, labels):
        """Return leave-one-out scores (NumPy; NaN: alone in its class), or None."""
        return None

    def _without_blocks(self, outputs, y):
        """Return scores of training samples, from the sums without a block of them.

        For a subclass with ``_removed(sums, chunk)``, which returns the sums without a
        chunk. None if the samples are too few to leave any out.
        """
        scores = np.full(outputs.n_samples, np.nan)
        indices, n_seen = np.arange(outputs.n_samples), self._sample.n_seen
        try:
            with quiet():
                for fold in folds(outputs.content, indices, y, n_seen=n_seen):
                    left_out = outputs.take(fold.positions)
                    other = copy.copy(self)
                    other.n_components = self.n_components_
                    other.device = "cpu"  # where the few samples and each space are
                    for chunk, _ in other._chunks(left_out):
                        other._sums = other._removed(other._sums, chunk)
                    other._settle_space()
                    scores[fold.positions] = other._scores(left_out)
        except ValueError:
            return None
        return scores

    def _refitted_scores(self, X, y, sample_weight, on_few):
        """Return training scores, each from a classifier and a fit without it.

        `on_few`: other samples do not matter, and their outputs are not computed.
        """
        keys = SampleKeys(X)

        def fit(other, *training):
            if self.estimator is None:
                other.estimator_ = LinearHead().fit(*training)
            else:
                other.estimator_ = fit_wrapped(other, self.estimator, *training)

        def score(other, left_out, copy_weights):
            if on_few:
                outputs = other._all_outputs(take_rows(X, left_out))
                other._fit_outputs(outputs, y)
                return weighted(other._scores(outputs), copy_weights)
            whole = other._all_outputs(X).keyed(keys).weighted(sample_weight)
            other._fit_outputs(whole, y)
            return other._left_out_scores(whole, y, left_out, copy_weights)

        n_folds = NETWORK_FOLDS
        if self.estimator is None and n_rows(X) < _FEW_HEAD_SAMPLES:
            n_folds = _HEAD_FOLDS
        score, options = partial(with_halved_chunks, score), {"weight": sample_weight}
        return self._scores_of_refits(X, y, fit, score, n_folds, keys=keys, **options)

    # --- scores -----------------------------------------------------------------

    @abstractmethod
    def _score_outputs(self, outputs):
        """Score a chunk of samples: float64, high = ID.

        A class that also defines ``_onnx_score(outputs)`` can be exported: it returns
        the same scores, (n_samples, 1), of a `skood.onnx._export.GraphOutputs`.
        """

    @property
    def _fits_head(self):
        """Return whether X holds features, and a linear head is fitted on them."""
        if self.estimator is not None:
            return False
        return "head" in self._needs or {"features", "logits"} <= self._needs

    @property
    def _fits_parts(self):
        return self._fits_head or super()._fits_parts

    @property
    def _rescales(self):
        """Return whether scores scale with the number of samples and are corrected."""
        return False

    @property
    def _device(self):
        return getattr(self, "device", "cpu")  # some detectors compute on the CPU only

    def _block_bytes(self, X):
        """Return the size of a block of a large matrix."""
        device = array_device(self._device, X)
        return BLOCK_BYTES if device is None else chunk_bytes(device, BLOCK_BYTES)

    def _validate(self, X, *, reset):
        """Validate samples for use without a classifier; keep tensors on a GPU."""
        if type(X) is np.ndarray:
            if not reset and is_as_fitted(self, X):  # for the speed of small calls
                return X
            return validate_data(self, X, reset=reset, **self._validation)
        if is_mapped(X) and X.dtype not in (np.float64, np.float32):
            X = MappedRows(X)
        if isinstance(X, MappedRows) and 0 not in X.shape:
            for block in row_blocks(X, BLOCK_BYTES):
                validate_data(self, block, reset=reset, **self._validation)
                reset = False
            return float_rows(X)
        if not on_gpu(X) or (reset and self._fits_head):
            X = to_numpy(in_memory(X))
            validate = float_samples if self._sparse else validate_data
            return validate(self, X, reset=reset, **self._validation)
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

    def _checked(self, X):
        """Return batches of new samples, validated if there is no classifier."""
        if self.estimator is not None:  # which loads and validates X itself
            if getattr(self, "_keeps_names", False) and not is_lazy(X):
                validate_data(self, X, reset=False, skip_check_array=True)
            return (X,)
        if type(X) is np.ndarray:  # for the speed of small calls
            return (self._validate(X, reset=False),)
        return (
            self._validate(batch, reset=False)
            for batch in array_batches(X, self._block_bytes)
        )

    def _outputs(self, X, needs=None, stays=False):
        """Return an iterable over outputs for consecutive validated samples.

        Outputs of a network on a GPU may stay there, as for samples on a GPU.
        """
        if not hasattr(self, "estimator_"):
            if "features" in self._needs:
                return (NetworkOutputs(features=X),)
            return (NetworkOutputs(logits=check_logits(X)),)
        needs = self._needs if needs is None else needs
        network = make_network(self.estimator_)
        network.is_validated = self.estimator is None  # by `_checked`
        if self._allows_nan or network.memory is not None:
            network.core.allows_nan = self._allows_nan
        if stays or on_gpu(X):
            network.core.returns_tensors = network.memory is None
        in_blocks = network.takes_blocks and network.memory is None
        if in_blocks and _is_small(X) and X.ndim == 2 and len(X):
            return network.iter_outputs(X, needs)  # one block
        if in_blocks and is_matrix(X):
            return chain.from_iterable(
                network.iter_outputs(block, needs)
                for block in row_blocks(X, self._block_bytes(X))
            )
        outputs = network.iter_outputs(in_memory(X), needs)
        return outputs if self._sparse else map(with_dense_features, outputs)

    def _all_outputs(self, X):
        """Return the outputs for all validated samples of `X`."""
        if not hasattr(self, "estimator_"):
            (outputs,) = self._outputs(X)
            return outputs
        in_blocks = "features" in self._needs and is_matrix(X)
        network = make_network(self.estimator_) if in_blocks else None
        if network is None or not network.features_are_inputs:
            return concatenate([*self._outputs(X)])
        features = float_rows(X)
        later = None if self._sums_logits else network.later_logits(features)
        needs = self._needs if later is None else self._needs - {"logits"}
        blocks = []
        for block in self._outputs(X, needs):
            blocks.append(block._replace(features=None))  # which may be copies
        others = concatenate(blocks)
        logits = others.logits if later is None else later
        return NetworkOutputs(features, logits, others.head)

    def _score(self, X):
        # a bank is large, however few the samples are
        is_small = not hasattr(self, "bank_") and _is_small(X)
        with ONE_THREAD if is_small else NO_LIMIT:
            scores = [*map(self._scores, self._outputs(X, stays=True))]
        return scores[0] if len(scores) == 1 else np.concatenate(scores)

    def _score_validated(self, X):
        return self._scores(self._all_outputs(X))

    def _scores(self, outputs):
        """Return the scores of all samples, from chunks of their outputs."""
        return map_samples(self._score_outputs, outputs, *self._chunking(outputs))

    def _score_one(self, outputs):
        """Score a sample in dense NumPy arrays; for the speed of small calls."""
        if self._device not in ("auto", "cpu"):
            return self._scores(outputs)
        return self._score_outputs(outputs)

    def _chunking(self, outputs):
        """Return the options of `map_samples`: size, device, threads and sparse."""
        device = array_device(self._device, outputs.array)
        size = chunk_bytes(device, self._chunk_bytes) if device else self._chunk_bytes
        per_row = self._bytes_per_row(outputs)
        if outputs.features is None and device is None:
            least = self._logit_chunk_samples * per_row
            size = min(size, max(self._logit_chunk_bytes, least))
        # threads, unless there is a large matrix product, which has its own
        threads = device is None and (self._elementwise or outputs.features is None)
        size = max(1, size // max(1, per_row))
        return size, device, threads, self._sparse == "kept"

    def _bytes_per_row(self, outputs):
        """Return the size of the float64 temporaries for scoring one sample."""
        width = 0 if outputs.logits is None else outputs.logits.shape[1]
        features = outputs.features
        if features is None:
            return 8 * 4 * width
        stays_sparse = self._sparse == "kept"
        width += stored_columns(features) if stays_sparse else features.shape[1]
        # comparing features with all classes needs one column per class
        return 8 * (4 * width + 3 * len(getattr(self, "classes_", ())))

    def _chunks(self, outputs, y=None):
        """Yield chunks of outputs, on the device for computations, and labels."""
        size, device, _, sparse = self._chunking(outputs)
        size = max(1, size * SIXTEENTHS.get() // 16)
        for indices in row_chunks(outputs.n_samples, 1, size):
            chunk = outputs.chunk(indices, device, sparse)
            yield chunk, None if y is None else y[indices]

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
        return self._explanation(X, n_features)

    def _explanation(self, X, n_features, **options):
        """Return the data frame of `explain`; `options`: of ``_explained``."""
        self._check_fitted()
        check_scalar(n_features, "n_features", Integral, min_val=0)
        pd = import_pandas("explain")
        outputs = self._new_outputs(X)
        blocks = self._explained_blocks(outputs, **options)
        frames = [
            pd.DataFrame(leading_columns(self, columns, contributions, n_features))
            for _, (columns, contributions, _) in blocks
        ]
        frame, scores = pd.concat(frames, ignore_index=True), self._scores(outputs)
        frame.insert(0, "score", scores)
        frame.insert(1, "is_ood", scores < self.offset_)
        if hasattr(X, "iloc"):
            frame.index = X.index
        return frame

    def _new_outputs(self, X):
        """Return the outputs for all samples of `X`, which are validated."""
        return concatenate(chain.from_iterable(map(self._outputs, self._checked(X))))

    def _explained_blocks(self, outputs, **options):
        """Yield the features of blocks of samples, and their explanations.

        An explanation consists of a dict of columns, of contributions of shape
        (n_samples, n_features) and of `ReferencePoints`.
        """
        size = self._chunking(outputs)[0]
        if issparse(outputs.features):  # their contributions are dense
            size = max(1, _SPARSE_BYTES // (32 * outputs.features.shape[1]))
        for indices in row_chunks(outputs.n_samples, 1, size):
            block = outputs.take(indices).to(None)
            yield block.features, self._explained(block, **options)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        if self.estimator is None:
            tags.target_tags.required = self._fits_head
            tags.input_tags.sparse = self._sparse is not None
            return tags
        tags = wrapped_tags(tags, self.estimator)
        if "features" in self._needs:
            tags.input_tags.allow_nan &= self._allows_nan
            if self._sparse is None:
                tags.input_tags.sparse &= has_dense_features(self.estimator)
        return tags


def _is_small(X):
    """Return whether an array has few samples: one block, for one thread."""
    return isinstance(X, np.ndarray) and X.shape[:1] <= (_FEW_SAMPLES,)
