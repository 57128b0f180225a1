"""Readers of features, logits and the head of scikit-learn classifiers.

Each `Reader` serves one kind of classifier; :func:`make_reader` chooses among them.
This file never imports torch: given a torch model, torch is already imported.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import abstractmethod
from collections.abc import Callable
from contextvars import ContextVar

import numpy as np
from sklearn import config_context
from sklearn.base import is_classifier, is_regressor
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from skood.nn._outputs import (
    Reader,
    Reading,
    concatenate,
    symmetric_logits,
    symmetric_rows,
)
from skood.utils._batches import is_instance, loaded_blocks
from skood.utils._metaestimators import check_one_column, unwrapped
from skood.utils._torch import to_numpy

__all__ = [
    "ACTIVATIONS",
    "SHARING",
    "PipelineReader",
    "make_reader",
    "plain_reader",
    "predicts_softmax",
    "read",
]

# Caches of blocks of `shared_readings`, the outermost first: dicts from the id of a
# classifier to its cache.
SHARING: ContextVar = ContextVar("SHARING", default=())

# Activations of scikit-learn's networks, by name.
ACTIVATIONS: dict[str, Callable] = {
    "identity": lambda z: z,
    "relu": lambda z: np.maximum(z, 0),
    "tanh": np.tanh,
    "logistic": lambda z: 0.5 * (1.0 + np.tanh(0.5 * z)),
}


def _finite(array, what):
    """Raise for NaN and infinity."""
    return check_array(array, dtype=[np.float64, np.float32], input_name=what)


class _ArrayReader(Reader):
    """Base class of the readers of scikit-learn classifiers: X is their input."""

    takes_blocks = True

    def __init__(self, estimator):
        check_is_fitted(estimator)
        self.estimator = estimator

    def iter_together(self, X, wanted):
        """Yield the readings of all samples of `X`."""
        for block in loaded_blocks(X):
            arrays = zip(wanted, self._arrays(to_numpy(block), wanted), strict=True)
            yield [
                Reading(
                    features,
                    None if logits is None else _finite(logits, "logits"),
                    reader._head() if "head" in want else None,
                )
                for (reader, want), (features, logits) in arrays
            ]

    def find_head(self):
        """Return the head without running samples, and the name of its layer."""
        return self._head(), "penultimate"

    def rows(self, X):
        """Return X as a float array, checked against the data of `fit`."""
        try:
            return self._checked_rows(X)
        except ValueError as error:
            # scikit-learn's message suggests classifiers that accept missing values
            if "contains NaN" not in str(error):
                raise
            name = type(self.estimator).__name__
            raise ValueError(
                f"Input X contains NaN, and features must not, whether or not {name} "
                "takes missing values. Impute them, as in make_pipeline("
                f"SimpleImputer(), {name}()); a detector that uses only logits, such "
                "as MSP, takes NaN if its classifier does."
            ) from error

    def _checked_rows(self, X):
        if hasattr(self.estimator, "_checked_input"):  # a LinearHead
            return self.estimator._checked_input(X)
        if hasattr(self.estimator, "n_features_in_"):
            return validate_data(
                self.estimator, X, reset=False, dtype=[np.float64, np.float32]
            )
        return check_array(X, dtype=[np.float64, np.float32], input_name="X")

    @abstractmethod
    def _arrays(self, X, wanted):
        """Return (finite) features and logits per reader, None if not requested."""

    def _head(self):
        name = type(self.estimator).__name__
        raise ValueError(
            f"This needs the weights of a linear head, and a {name} has none. Use a "
            "linear classifier, an MLPClassifier or a network that ends in "
            "torch.nn.Linear, or a detector that reads features or logits only."
        )


def _require_penultimate(estimator, layer):
    """Raise if another layer than the input is requested of a model without layers."""
    if layer != "penultimate":
        raise ValueError(
            f"layer={layer!r}, but a {type(estimator).__name__} has no layers: its "
            "features are its input. Use layer='penultimate'."
        )


class _InputReader(_ArrayReader):
    """Base class of the readers of classifiers without layers: their features are X."""

    features_are_rows = True

    def _arrays(self, X, wanted):
        [(_, want)] = wanted  # there is only one layer
        features = self.rows(X) if "features" in want else None
        if "logits" not in want:
            return [(features, None)]
        if features is None:
            return [(None, self._logits(X))]
        with config_context(assume_finite=True):  # it has just been checked
            return [(features, self._logits(X))]

    @abstractmethod
    def _logits(self, X):
        """Return the logits of the samples."""


class _LinearReader(_InputReader):
    """Reader of linear classifiers: features X, margins, and the weights."""

    @staticmethod
    def serves(estimator):
        if not all(
            hasattr(estimator, name)
            for name in ("coef_", "intercept_", "classes_", "decision_function")
        ):
            return False
        # A linear SVC has a row per pair of classes, and margins that are votes.
        if hasattr(estimator, "support_vectors_"):
            return False
        shape, n_classes = np.shape(estimator.coef_), len(estimator.classes_)
        n_rows = 1 if len(shape) == 1 else shape[0]  # a binary RidgeClassifier is 1-D
        return max(2, n_rows) == n_classes

    def rows(self, X):
        X = super().rows(X)
        width = np.shape(self.estimator.coef_)[-1]
        if X.shape[1] != width:
            raise ValueError(
                f"X has {X.shape[1]} features, but {type(self.estimator).__name__} is "
                f"expecting {width} features as input."
            )
        return X

    def _logits(self, X):
        if hasattr(self.estimator, "predict_logits"):
            return self.estimator.predict_logits(X)
        return symmetric_logits(self.estimator.decision_function(X))

    def layer_index(self, layer):
        """Return the index of a layer before the head: only -1, the input."""
        _require_penultimate(self.estimator, layer)
        return -1

    def hidden(self):
        """Return weights, biases and activation of the hidden layers: none."""
        return [], "identity"

    def _head(self):
        coef = self.estimator.coef_
        coef = np.atleast_2d(coef.toarray() if hasattr(coef, "toarray") else coef)
        intercept = np.broadcast_to(self.estimator.intercept_, coef.shape[:1])
        return symmetric_rows(coef, intercept)


class _MLPReader(_ArrayReader):
    """Reader of scikit-learn's MLPClassifier: a forward pass by its public weights."""

    def __init__(self, estimator, layer):
        super().__init__(estimator)
        self.layer = self.place = self.layer_index(layer)
        if getattr(estimator, "out_activation_", "softmax") == "logistic" and (
            estimator.n_outputs_ > 1
        ):
            raise ValueError(
                "The MLPClassifier was fitted on multilabel targets; skood reads "
                "classifiers with one label per row."
            )

    @staticmethod
    def serves(estimator):
        return hasattr(estimator, "coefs_") and hasattr(estimator, "out_activation_")

    def layer_index(self, layer):
        """Return the index of a layer of weights; -1 is the input."""
        n_layers = len(self.estimator.coefs_)
        if layer == "penultimate":
            return n_layers - 2  # -1, without hidden layers: the input
        if isinstance(layer, (int, np.integer)) and -n_layers <= layer < n_layers:
            return int(layer) % n_layers
        raise ValueError(
            f"layer={layer!r} is not a layer of the MLPClassifier. Use 'penultimate' "
            f"or an index in [{-n_layers}, {n_layers - 1}]."
        )

    def hidden(self):
        """Return weights, biases and activation of the hidden layers."""
        weights = self.estimator.coefs_[:-1], self.estimator.intercepts_[:-1]
        return list(zip(*weights, strict=True)), self.estimator.activation

    def _arrays(self, X, wanted):
        layers = {reader.layer for reader, want in wanted if "features" in want}
        needs_logits = any("logits" in want for _, want in wanted)
        outputs, logits = self._run(self.rows(X), layers, needs_logits)
        return [
            (
                _finite(outputs[reader.layer], "features")
                if "features" in want
                else None,
                symmetric_logits(logits) if "logits" in want else None,
            )
            for reader, want in wanted
        ]

    def _run(self, hidden, layers, needs_logits):
        """Return outputs of some layers and, if they are needed, of the last one."""
        estimator = self.estimator
        activation = ACTIVATIONS[estimator.activation]
        outputs = {-1: hidden}
        last = len(estimator.coefs_) - 1
        stop = last if needs_logits else max(layers, default=-1)
        for i, (W, b) in enumerate(
            zip(
                estimator.coefs_[: stop + 1],
                estimator.intercepts_[: stop + 1],
                strict=True,
            )
        ):
            hidden = hidden @ W + b
            if i < last:
                hidden = activation(hidden)
            if i in layers:
                outputs[i] = hidden
        return outputs, hidden

    def _head(self):
        estimator = self.estimator
        if self.layer != len(estimator.coefs_) - 2:
            raise ValueError("The head reads the penultimate layer, not another one.")
        return symmetric_rows(estimator.coefs_[-1].T, estimator.intercepts_[-1])


class _ProbabilityReader(_InputReader):
    """Reader of classifiers with only predict_proba: logits are log-probabilities."""

    def _logits(self, X):
        proba = np.asarray(self.estimator.predict_proba(X), dtype=np.float64)
        # Clipped at the smallest positive (normal) float, so that log is finite.
        return np.log(np.maximum(proba, np.finfo(np.float64).tiny))


class _MarginReader(_InputReader):
    """Reader of classifiers with only decision_function: logits are the margins."""

    def _logits(self, X):
        logits = symmetric_logits(self.estimator.decision_function(X))
        n_classes = len(self.estimator.classes_)
        if logits.shape[1] != n_classes:
            raise ValueError(
                f"The decision_function of {type(self.estimator).__name__} gives "
                f"{logits.shape[1]} margins for {n_classes} classes, expected one per "
                "class: for an SVC set decision_function_shape='ovr'."
            )
        return logits


class PipelineReader(Reader):
    """Reader of a pipeline: transforms the input by all steps before the last one."""

    def __init__(self, pipeline, reader):
        self.pipeline = pipeline
        self.reader = reader
        self.place, self.batch_size = reader.place, reader.batch_size
        self.takes_blocks = reader.takes_blocks

    @property
    def target(self):
        """Device of the classifier of the last step."""
        return self.reader.target

    def iter_together(self, X, wanted):
        """Transform `X` by the steps before the last, then read."""
        inner = [(reader.reader, want) for reader, want in wanted]
        for block in loaded_blocks(X):
            if len(self.pipeline.steps) > 1:
                block = self.pipeline[:-1].transform(block)
            yield from self.reader.iter_together(block, inner)

    def blocks(self, reading):
        """Cut a reading of all samples as `iter_read` does."""
        yield from self.reader.blocks(reading)

    def find_head(self):
        """Return the head of the last step, and the name of its layer."""
        return self.reader.find_head()


def _is(estimator, kind):
    """Return whether scikit-learn's tags, if any, have an estimator type."""
    return hasattr(estimator, "__sklearn_tags__") and kind(estimator)


def make_reader(
    estimator, *, layer="penultimate", pooling="mean", batch_size=256, device="auto"
):
    """Return the reader of a fitted classifier.

    Parameters
    ----------
    estimator : object
        A fitted classifier of any supported kind.

    layer : str or int, default="penultimate"
        Layer of the features; see `FeatureExtractor`.

    pooling : {"mean", "max", "flatten"} or None, default="mean"
        Pooling of feature maps to vectors.

    batch_size : int, default=256
        Number of samples per forward pass of a network.

    device : str, default="auto"
        Device of a network.

    Returns
    -------
    reader : Reader
        In a block of `shared_readings` for this classifier, it uses the cache of the
        block.

    Raises
    ------
    TypeError
        If this kind of object is not supported.
    ValueError
        If there is no such layer.
    """
    estimator = unwrapped(estimator)
    reader = plain_reader(
        estimator, layer=layer, pooling=pooling, batch_size=batch_size, device=device
    )
    reader.memory = next(
        (
            memories[id(estimator)]
            for memories in SHARING.get()
            if id(estimator) in memories and memories[id(estimator)].is_open()
        ),
        None,
    )
    return reader


def plain_reader(
    estimator, *, layer="penultimate", pooling="mean", batch_size=256, device="auto"
):
    """Return the reader of a fitted classifier that runs it at each reading.

    For the parameters see `make_reader`.
    """
    estimator = unwrapped(estimator)
    options = {
        "layer": layer,
        "pooling": pooling,
        "batch_size": batch_size,
        "device": device,
    }
    if isinstance(estimator, Pipeline):
        return PipelineReader(estimator, plain_reader(estimator[-1], **options))
    if is_instance(estimator, "torch.nn", "Module"):
        raise TypeError(
            f"Got the bare torch module {type(estimator).__name__}. Wrap a trained one "
            "with skood.nn.pretrained(module, classes=...), or pass its class to "
            "skood.nn.TorchClassifier(module=...) to have it trained."
        )
    if hasattr(estimator, "__skood_network__"):
        return estimator.__skood_network__(**options)
    if _is(estimator, is_regressor):
        raise TypeError(
            f"Cannot read {type(estimator).__name__}: it is a regressor, and skood "
            "reads classifiers."
        )
    check_one_column(estimator)
    is_skorch = is_instance(estimator, "skorch.net", "NeuralNet")
    has_logits = hasattr(estimator, "_prepare_input") and hasattr(
        estimator, "predict_logits"
    )
    if is_skorch or has_logits:
        from skood.nn._torch_reader import ModuleReader

        check_is_fitted(estimator)
        return ModuleReader(estimator, is_skorch=is_skorch, **options)
    if _MLPReader.serves(estimator):
        return _MLPReader(estimator, layer)
    _require_penultimate(estimator, layer)
    if _LinearReader.serves(estimator):
        return _LinearReader(estimator)
    if hasattr(estimator, "predict_proba"):
        return _ProbabilityReader(estimator)
    if _is(estimator, is_classifier) and hasattr(estimator, "decision_function"):
        return _MarginReader(estimator)
    raise TypeError(
        f"Cannot read {type(estimator).__name__}: it must be a classifier with "
        "predict_proba or decision_function, a Pipeline that ends in one, a skorch "
        "net, or a torch module wrapped by skood.nn.pretrained(module, classes=...)."
    )


def predicts_softmax(estimator):
    """Return whether probabilities of a classifier are the softmax of its logits.

    They need not be for scikit-learn's linear classifiers: some have one classifier for
    each class, and their probabilities are normalized. They are not for a network that
    predicts evidence. If not, use ``predict_proba``. True also without such a method.
    """
    estimator = unwrapped(estimator)
    if isinstance(estimator, Pipeline):
        return predicts_softmax(estimator[-1])
    if hasattr(estimator, "predict_logits") or not hasattr(estimator, "predict_proba"):
        return True
    return not (
        hasattr(estimator, "__skood_network__") or _LinearReader.serves(estimator)
    )


def read(estimator, X, want, **options):
    """Return the reading of all samples of `X`, from one forward pass.

    `want` is a set of {"features", "logits", "head"}; the others are None. For the
    options see `make_reader`.
    """
    return concatenate(make_reader(estimator, **options).iter_read(X, want))
