"""Classifiers of scikit-learn, and boosted trees of other libraries, as networks."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import abstractmethod
from collections.abc import Callable
from contextlib import contextmanager
from functools import cached_property
from itertools import repeat

import numpy as np
from scipy.sparse import issparse
from sklearn import config_context
from sklearn.utils.validation import check_array, check_is_fitted

from skood.nn._network import Layers, Network
from skood.nn._outputs import (
    LaterLogits,
    NetworkOutputs,
    symmetric_head,
    symmetric_logits,
)
from skood.utils._array_api import cast_once, numpy_dtype, sent_once
from skood.utils._batches import loaded, loaded_blocks
from skood.utils._input import (
    is_as_fitted,
    is_float_matrix,
    is_shaped_as_fitted,
    new_samples,
)
from skood.utils._linalg import check_no_overflow
from skood.utils._optional import is_instance
from skood.utils._parallel import one_thread
from skood.utils._sparse import check_dense
from skood.utils._torch import (
    check_tensor,
    is_tensor,
    on_gpu,
    resolve_device,
    row_chunks,
    to_numpy,
)

# Activations of scikit-learn's networks, by name.
ACTIVATIONS: dict[str, Callable] = {
    "identity": lambda z: z,
    "relu": lambda z: np.maximum(z, 0),
    "tanh": np.tanh,
    "logistic": lambda z: 0.5 * (1.0 + np.tanh(0.5 * z)),
}

# Derivatives of the activations, from their values.
_SLOPES: dict[str, Callable] = {
    "identity": np.ones_like,
    "relu": lambda h: (h > 0).astype(h.dtype),
    "tanh": lambda h: 1.0 - h * h,
    "logistic": lambda h: h * (1.0 - h),
}


# Methods that return the product of samples and weights, and nothing else.
_PRODUCTS = {
    "skood.nn._linear_head.LinearHead.predict_logits",
    "skood.rectifiers._dice.DICE.predict_logits",
    "sklearn.linear_model._base.LinearClassifierMixin.decision_function",
}


def _finite(array, what):
    """Raise for NaN and infinity."""
    if is_float_matrix(array) or issparse(array):  # for the speed of small calls
        return array
    return check_array(array, dtype=[np.float64, np.float32], input_name=what)


@contextmanager
def _clear_errors(name):
    """Replace errors that suggest other classifiers than `name` for these features."""
    try:
        yield
    except ValueError as error:
        if "contains NaN" in str(error):
            raise ValueError(
                f"Input X contains NaN, and features must not, whether or not {name} "
                "takes missing values. Impute them, as in make_pipeline("
                f"SimpleImputer(), {name}()); a detector that uses only logits, such "
                "as MSP, takes NaN if its classifier does, and SklearnDetector if its "
                "detector does."
            ) from error
        if "could not convert" in str(error):  # a category
            raise ValueError(
                f"The features of {name} are the columns of X, which must be numbers "
                f"for a detector of features: {error}. Encode them before the "
                f"classifier, as in make_pipeline(ColumnTransformer(...), {name}()) "
                "with OneHotEncoder(handle_unknown='ignore'); a detector that uses "
                "only logits, such as MSP, takes what its classifier takes."
            ) from error
        raise


class ArrayNetwork(Network):
    """Base class of scikit-learn classifiers: X is their input."""

    takes_blocks = True

    # Whether samples are float arrays that have been checked.
    is_validated = False

    # As `_arrays`, of tensors on a GPU, if `_block` returns these.
    _tensors: Callable

    def __init__(self, estimator, device="auto"):
        is_fitted = getattr(estimator, "__sklearn_is_fitted__", bool)
        if not is_fitted():  # for the speed of small calls
            check_is_fitted(estimator)
        self.estimator = estimator
        self.device = device  # only validated: it runs on the CPU

    def outputs_together(self, X, wanted):
        """Yield the outputs of all samples of `X`."""
        # one block, for the speed of small calls
        blocks = [X] if type(X) is np.ndarray else map(self._block, loaded_blocks(X))
        for block in blocks:
            results = []
            on_host = type(block) is np.ndarray or not is_tensor(block)
            arrays = (self._arrays if on_host else self._tensors)(block, wanted)
            for (network, needs), (features, logits) in zip(
                wanted, arrays, strict=True
            ):
                if on_host and logits is not None and not is_float_matrix(logits):
                    logits = self._finite_logits(block, logits)
                head = network._head() if "head" in needs else None
                results.append(NetworkOutputs(features, logits, head))
            yield results

    def _block(self, X):
        """Return samples as the network takes them: as a NumPy array."""
        return to_numpy(X)

    def find_head(self):
        """Return the head without running samples, and the name of its layer."""
        return self._head(), "penultimate"

    def checked(self, X):
        """Return X as a float array, checked against the data of `fit`."""
        if self.is_validated or is_as_fitted(self.estimator, X):
            return X
        with _clear_errors(type(self.estimator).__name__):
            if hasattr(self.estimator, "_checked_input"):  # a LinearHead
                return self.estimator._checked_input(X)
            if is_instance(self.estimator, "catboost", "CatBoost") and not issparse(X):
                X = np.asarray(X)  # it has feature_names_, not feature_names_in_
            finite = {"ensure_all_finite": "allow-nan" if self.allows_nan else True}
            if getattr(self.estimator, "n_features_in_", 0):  # 0 in copies of CatBoost
                return new_samples(self.estimator, X, accept_sparse=True, **finite)
            dtype = [np.float64, np.float32]
            return check_array(X, dtype=dtype, input_name="X", **finite)

    def check_no_nan(self, features):
        """Raise for NaN in cached features, unless this reader allows it."""
        if not self.allows_nan:
            with _clear_errors(type(self.estimator).__name__):
                _finite(features, "X")

    @abstractmethod
    def _arrays(self, X, wanted):
        """Return (finite) features and logits per reader, None if not requested."""

    def _finite_logits(self, X, logits):
        """Return the logits of `X`; raise for NaN and infinity."""
        return _finite(logits, "logits")

    def _head(self):
        name = type(self.estimator).__name__
        raise ValueError(
            f"This needs the weights of a linear head, and a {name} has none. Use a "
            "linear classifier, an MLPClassifier or a network that ends in "
            "torch.nn.Linear, or a detector that uses features or logits only."
        )


def require_penultimate(estimator, layer):
    """Raise if another layer than the input is requested of a model without layers."""
    if layer != "penultimate":
        raise ValueError(
            f"layer={layer!r}, but a {type(estimator).__name__} has no layers: its "
            "features are its input. Use layer='penultimate'."
        )


class InputNetwork(ArrayNetwork):
    """Base class of classifiers without layers: their features are X."""

    features_are_inputs = True
    features_are_hidden = False

    def _arrays(self, X, wanted):
        [(_, needs)] = wanted  # there is only one layer
        features = self.checked(X) if "features" in needs else None
        if "logits" not in needs:
            return [(features, None)]
        if features is None:
            return [(None, self._logits(X))]
        return [(features, self._logits_of(features, X))]

    @abstractmethod
    def _logits(self, X):
        """Return the logits of the samples."""

    def _logits_of(self, samples, X):
        """Return the logits of `X`, which `checked` has returned as `samples`."""
        with config_context(assume_finite=True):
            return self._logits(X)


class LayeredNetwork(ArrayNetwork):
    """Base class of classifiers computed from their weights, in float64 on the CPU."""

    @abstractmethod
    def layer_index(self, layer):
        """Return the index of a layer of weights; -1 is the input."""

    def hidden(self):
        """Return weights, biases and activation of the hidden layers."""
        return [], "identity"

    def _forward(self, z, weights, replaced=None, function=None):
        """Yield index and output of the input, the hidden layers, and the last one."""
        activation = ACTIVATIONS[self.hidden()[1]]
        for i, layer in enumerate([None, *weights], -1):
            if layer is not None:
                with one_thread(z.shape[0] * layer[0].size):
                    z = z @ layer[0] + layer[1]
                z = activation(z) if i < len(weights) - 1 else z
            z = function(z) if i == replaced else z
            yield i, z

    @cached_property
    def _weights(self):
        """Weights and biases of all layers in float64, with one output per class."""
        head, _ = self.find_head()
        layers = [*self.hidden()[0], (head.coef.T, head.intercept)]
        return [(W.astype(np.float64), b.astype(np.float64)) for W, b in layers]

    def _run(self, samples, replaced=None, function=None):
        """Return the outputs of all layers: the input, the hidden ones, the logits."""
        with np.errstate(over="ignore", invalid="ignore"):  # reported below
            run = self._forward(samples, self._weights, replaced, function)
            outputs = [output for _, output in run]
        check_array(outputs[-1], input_name="logits")
        return outputs

    def _chunks(self, samples):
        width = samples.shape[1] + sum(len(b) for _, b in self._weights)
        return (samples[block] for block in row_chunks(len(samples), 4 * 8 * width))

    def prepare(self, X):
        """See `Network`."""
        if self.device != "auto":
            resolve_device(self.device)  # raises if there is no such device
        X = loaded(X)
        check_dense(X)
        return self.checked(X).astype(np.float64, copy=False)

    def layer_names(self, samples):
        """Return the indices of the hidden layers, "penultimate" if there are none."""
        return list(range(len(self.hidden()[0]))) or ["penultimate"]

    def layers(self, samples, names, pooling="mean"):
        """See `Network`."""
        indices = {name: self.layer_index(name) for name in names}
        for block in self._chunks(samples):
            all_outputs = self._run(block)
            outputs = {name: all_outputs[i + 1] for name, i in indices.items()}
            if pooling == "maps":
                outputs = {name: z[:, :, None] for name, z in outputs.items()}
            yield Layers(outputs, all_outputs[-1])

    def input_gradient(self, samples, function, move):
        """See `Network`."""
        slope = _SLOPES[self.hidden()[1]]
        *hidden, (coef, _) = self._weights
        for block in self._chunks(samples):
            *outputs, logits = self._run(block)
            gradient = function(logits) @ coef.T
            for (W, _), h in zip(hidden[::-1], outputs[:0:-1], strict=True):
                gradient = (gradient * slope(h)) @ W.T
            yield self._run(move(block, gradient))[-1]

    def replaced(self, samples, names, function):
        """See `Network`."""
        indices = [self.layer_index(name) for name in names]
        for block in self._chunks(samples):
            yield [self._run(block, i, function)[-1] for i in indices]

    def copied_module(self, one_margin=False):
        """See `Network`: the weights as a torch module."""
        from skood.nn._functional_network import perceptron

        head, _ = self.find_head()
        coef, intercept = head.coef, head.intercept
        if one_margin and self._has_margin():  # given as (-w/2, w/2)
            coef, intercept = np.diff(coef, axis=0), np.diff(intercept)
        if not getattr(self.estimator, "fit_intercept", True):
            intercept = None
        hidden, activation = self.hidden()
        return perceptron(hidden, activation, coef.T, intercept)

    @abstractmethod
    def _has_margin(self):
        """Return whether the weights belong to one binary margin."""


class LinearNetwork(InputNetwork, LayeredNetwork):
    """Linear classifier: features X, margins, and the weights."""

    _symmetric_head = None

    @staticmethod
    def serves(estimator):
        names = ("coef_", "intercept_", "classes_", "decision_function")
        if not all(map(hasattr, repeat(estimator), names)):
            return False
        # A linear SVC has a row per pair of classes, and margins that are votes.
        if hasattr(estimator, "support_vectors_"):
            return False
        shape, n_classes = np.shape(estimator.coef_), len(estimator.classes_)
        n_outputs = 1 if len(shape) == 1 else shape[0]  # 1-D: a binary RidgeClassifier
        return max(2, n_outputs) == n_classes

    def _block(self, X):
        stays = self.returns_tensors and on_gpu(X) and self._is_product()
        return X if stays else super()._block(X)

    def _tensors(self, X, wanted):
        [(_, needs)] = wanted
        X = self.checked(X)
        logits = None
        if "logits" in needs:
            head, kind = self._head(), numpy_dtype(X)
            coef, intercept = (
                sent_once(cast_once(array, kind), X.device)
                for array in (head.coef, head.intercept)
            )
            logits = X @ coef.T
            logits += intercept
            if not logits.sum().isfinite():
                check_no_overflow(to_numpy(logits), "A logit")
        return [(X if "features" in needs else None, logits)]

    def checked(self, X):
        if type(X) is np.ndarray or not on_gpu(X):
            X = super().checked(X)
        elif not self.is_validated:
            X = check_tensor(X, keep_double=True)
        width = np.shape(self.coef)[-1]
        if X.shape[1] != width:
            raise ValueError(
                f"X has {X.shape[1]} features, but {type(self.estimator).__name__} is "
                f"expecting {width} features as input."
            )
        return X

    def _logits(self, X):
        if self._is_product() and (
            self.is_validated or is_shaped_as_fitted(self.estimator, X)
        ):
            return self._product(X)  # `_finite_logits` checks X: one pass less
        return self._estimator_logits(X)

    def _estimator_logits(self, X):
        if hasattr(self.estimator, "predict_logits"):
            return self.estimator.predict_logits(X)
        return symmetric_logits(self.estimator.decision_function(X))

    def _logits_of(self, samples, X):
        if self._is_product():
            return self._product(samples)
        return super()._logits_of(samples, X)

    def _finite_logits(self, X, logits):
        """Raise for `X` first, as the estimator does: its logits are not finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            return super()._finite_logits(X, self._estimator_logits(X))

    @cached_property
    def coef(self):
        """Weights of the estimator, which may be validated each time they are read."""
        return self.estimator.coef_

    @cached_property
    def intercept(self):
        """Biases of the estimator."""
        return self.estimator.intercept_

    def _product(self, samples):
        """Return the logits from the weights, not finite if a sample is not."""
        coef, intercept = self.coef, self.intercept
        if hasattr(self.estimator, "predict_logits"):
            coef = coef.astype(samples.dtype, copy=False)
            intercept = intercept.astype(samples.dtype, copy=False)
        size = samples.shape[0] * coef.size
        with np.errstate(over="ignore", invalid="ignore"), one_thread(size):
            return symmetric_logits(samples @ coef.T + intercept)

    def later_logits(self, features):
        if self.memory is not None or not self._is_product():
            return None

        def logits_of(samples):
            logits = self._product(samples)
            if is_float_matrix(logits):
                return logits
            return self._finite_logits(samples, logits)

        return LaterLogits(features, logits_of, len(self.estimator.classes_))

    def _is_product(self):
        """Return whether the logits are known to be a product with the weights."""
        kind = type(self.estimator)
        method = getattr(kind, "predict_logits", kind.decision_function)
        return (
            f"{method.__module__}.{method.__qualname__}" in _PRODUCTS
            and type(self.coef) is np.ndarray  # not sparse
        )

    def layer_index(self, layer):
        """Return the index of a layer before the head: only -1, the input."""
        require_penultimate(self.estimator, layer)
        return -1

    def _has_margin(self):
        shape = np.shape(self.estimator.coef_)
        return len(shape) == 1 or shape[0] == 1

    def _head(self):
        if self._symmetric_head is not None:
            return self._symmetric_head
        coef, intercept = self.coef, self.intercept
        coef = np.atleast_2d(coef.toarray() if hasattr(coef, "toarray") else coef)
        if np.shape(intercept) != coef.shape[:1]:
            intercept = np.broadcast_to(intercept, coef.shape[:1])
        self._symmetric_head = symmetric_head(coef, intercept)
        return self._symmetric_head


class MLPNetwork(LayeredNetwork):
    """MLPClassifier of scikit-learn: a forward pass by its public weights."""

    def __init__(self, estimator, layer, device="auto"):
        super().__init__(estimator, device)
        self.layer = self.place = self.layer_index(layer)
        self.features_are_hidden = self.layer >= 0  # -1: the input
        if getattr(estimator, "out_activation_", "softmax") == "logistic" and (
            estimator.n_outputs_ > 1
        ):
            raise ValueError(
                "The MLPClassifier was fitted on multilabel targets; pass a classifier "
                "with one label per sample."
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
        layers = {network.layer for network, needs in wanted if "features" in needs}
        last = len(self.estimator.coefs_) - 1
        stop = max(layers, default=-1)
        if any("logits" in needs for _, needs in wanted):
            stop = last
        weights = zip(self.estimator.coefs_, self.estimator.intercepts_, strict=True)
        outputs = {}
        for i, output in self._forward(self.checked(X), list(weights)):
            if i in layers or i == last:
                outputs[i] = output
            if i == stop:
                break
        return [
            (
                _finite(outputs[network.layer], "features")
                if "features" in needs
                else None,
                symmetric_logits(outputs[last]) if "logits" in needs else None,
            )
            for network, needs in wanted
        ]

    def _has_margin(self):
        return self.estimator.coefs_[-1].shape[1] == 1

    def _head(self):
        estimator = self.estimator
        if self.layer != len(estimator.coefs_) - 2:
            raise ValueError("The head uses the penultimate layer, not another one.")
        return symmetric_head(estimator.coefs_[-1].T, estimator.intercepts_[-1])


class ProbabilityNetwork(InputNetwork):
    """Classifier with only predict_proba: logits are log-probabilities."""

    def _logits(self, X):
        proba = np.asarray(self.estimator.predict_proba(X), dtype=np.float64)
        # Clipped at the smallest positive (normal) float, so that log is finite.
        return np.log(np.maximum(proba, np.finfo(np.float64).tiny))


class CalibratedNetwork(ProbabilityNetwork):
    """CalibratedClassifierCV without a single temperature: probabilities alone."""

    def _no_layers(self):
        return TypeError(
            "This needs the layers or the linear head of one classifier, which a "
            "CalibratedClassifierCV has with a single temperature only: pass "
            "CalibratedClassifierCV(classifier, method='temperature', ensemble=False) "
            f"in place of {self.estimator!r}, or a detector that uses logits only."
        )

    def _head(self):
        raise self._no_layers()


class MarginNetwork(InputNetwork):
    """Classifier with only decision_function: logits are the margins."""

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


def _lightgbm_objective(model):
    is_scaled = model.get_params().get("sigmoid", 1.0) != 1.0
    return None if is_scaled else model.objective_


# Class of a library: its objective, the objectives whose raw scores have the
# probabilities as their softmax, and the argument of `predict` for raw scores. Other
# objectives normalize one model per class, or are functions of the user.
_LIBRARIES: dict[tuple, tuple[Callable, set, dict]] = {
    ("lightgbm", "LGBMClassifier"): (
        _lightgbm_objective,
        {"binary", "multiclass", "softmax"},
        {"raw_score": True},
    ),
    ("xgboost", "XGBClassifier"): (
        lambda model: model.objective,
        {"binary:logistic", "multi:softprob", "multi:softmax"},
        {"output_margin": True},
    ),
    ("catboost", "CatBoostClassifier"): (
        lambda model: model.get_all_params().get("loss_function"),
        {"Logloss", "CrossEntropy", "MultiClass"},
        {"prediction_type": "RawFormulaVal"},
    ),
}

_HISTOGRAM = "sklearn.ensemble", "HistGradientBoostingClassifier"
_EXACT = "sklearn.ensemble", "GradientBoostingClassifier"


def _raw_scores(estimator):
    """Return the function of samples whose softmax is predict_proba, or None."""
    if is_instance(estimator, *_HISTOGRAM):
        return estimator.decision_function
    if is_instance(estimator, *_EXACT):  # the margins of "exponential" are halved
        return estimator.decision_function if estimator.loss == "log_loss" else None
    for kind, (objective, softmax, options) in _LIBRARIES.items():
        if is_instance(estimator, *kind):
            if objective(estimator) not in softmax:
                return None
            return lambda X: estimator.predict(X, **options)
    return None


class BoosterNetwork(InputNetwork):
    """Gradient-boosted trees: logits are raw scores, of higher precision than log p."""

    @staticmethod
    def serves(estimator):
        return _raw_scores(estimator) is not None

    def _logits(self, X):
        raw = np.asarray(_raw_scores(self.estimator)(X), dtype=np.float64)
        return symmetric_logits(raw)
