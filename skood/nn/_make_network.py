"""Factory of `Network` objects for any fitted classifier."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from contextvars import ContextVar

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.utils.validation import check_is_fitted

from skood.nn._network import PipelineNetwork, ScaledNetwork
from skood.nn._sklearn_network import (
    BoosterNetwork,
    CalibratedNetwork,
    LinearNetwork,
    MarginNetwork,
    MLPNetwork,
    ProbabilityNetwork,
    require_penultimate,
)
from skood.utils._metaestimators import check_one_column, unwrap, unwrapped
from skood.utils._optional import is_instance

# Caches of blocks of `shared_outputs`, the outermost first: dicts from the id of a
# classifier to its cache.
SHARING: ContextVar = ContextVar("SHARING", default=())


def make_network(estimator, **options):
    """Return the `Network` of a fitted classifier of any supported kind, or raise.

    A method ``__skood_network__(**options)`` of the estimator takes precedence; for the
    options see `FeatureExtractor`. In a block of `shared_outputs` it uses the cache.
    """
    estimator = unwrapped(estimator)
    for memories in SHARING.get():
        memory = memories.get(id(estimator))
        if memory is not None and memory.is_open():
            return memory.open(options)
    return plain_network(estimator, **options)


def plain_network(
    estimator, *, layer="penultimate", pooling="mean", batch_size=256, device="auto"
):
    """Return the network of a fitted classifier without a cache, see `make_network`."""
    estimator = unwrapped(estimator)
    options = {"layer": layer, "pooling": pooling}
    options |= {"batch_size": batch_size, "device": device}
    if is_instance(estimator, "sklearn.pipeline", "Pipeline"):
        return PipelineNetwork(estimator, plain_network(estimator[-1], **options))
    if is_instance(estimator, "torch.nn", "Module"):
        raise TypeError(
            f"Got the bare torch module {type(estimator).__name__}. Wrap a trained one "
            "with skood.nn.pretrained(module, classes=...), or pass its class to "
            "skood.nn.TorchClassifier(module=...) to have it trained."
        )
    if hasattr(estimator, "__skood_network__"):
        return estimator.__skood_network__(**options)
    has_tags = hasattr(estimator, "__sklearn_tags__")
    if has_tags and is_regressor(estimator):
        raise TypeError(
            "estimator must be a classifier, got the regressor "
            f"{type(estimator).__name__}."
        )
    check_one_column(estimator)
    if is_instance(estimator, "sklearn.calibration", "CalibratedClassifierCV"):
        return _calibrated_network(estimator, options)
    is_skorch = is_instance(estimator, "skorch.net", "NeuralNet")
    has_logits = hasattr(estimator, "_prepare_input") and hasattr(
        estimator, "predict_logits"
    )
    if is_skorch or has_logits:
        from skood.nn._torch_network import TorchNetwork

        check_is_fitted(estimator)
        return TorchNetwork(estimator, is_skorch=is_skorch, **options)
    if MLPNetwork.serves(estimator):
        return MLPNetwork(estimator, layer, device)
    require_penultimate(estimator, layer)
    if LinearNetwork.serves(estimator):
        return LinearNetwork(estimator, device)
    if BoosterNetwork.serves(estimator):
        return BoosterNetwork(estimator)
    if hasattr(estimator, "predict_proba"):
        return ProbabilityNetwork(estimator)
    if (
        has_tags
        and is_classifier(estimator)
        and hasattr(estimator, "decision_function")
    ):
        return MarginNetwork(estimator)
    raise TypeError(
        "estimator must be a classifier with predict_proba or decision_function, a "
        "Pipeline that ends in one, a skorch net, or a torch module wrapped by "
        "skood.nn.pretrained(module, classes=...), got "
        f"{type(estimator).__name__}."
    )


def _calibrated_network(estimator, options):
    """Return the network of a CalibratedClassifierCV, of its classifier if possible.

    A single temperature multiplies the logits. It is fitted to the margins (-d, d) of a
    binary decision function d, which are twice those of a network.
    """
    check_is_fitted(estimator)
    entry, *others = estimator.calibrated_classifiers_
    if others or entry.method != "temperature":
        require_penultimate(estimator, options["layer"])
        return CalibratedNetwork(estimator)
    inner = entry.estimator
    network = plain_network(inner, **options)
    has_margins = hasattr(inner, "decision_function")
    if isinstance(network.core, ProbabilityNetwork) or not (
        has_margins or predicts_softmax(inner)
    ):
        return ProbabilityNetwork(estimator)
    is_binary = len(estimator.classes_) == 2
    beta = float(entry.calibrators[0].beta_)
    return ScaledNetwork(estimator, network, beta * (1 + (is_binary and has_margins)))


def has_dense_features(estimator):
    """Return whether features of a classifier, maybe not fitted, are a hidden layer."""
    estimator, _ = unwrap(estimator)
    is_network = is_instance(estimator, "sklearn.neural_network", "MLPClassifier")
    return is_network and np.size(estimator.hidden_layer_sizes) > 0


def predicts_softmax(estimator):
    """Return whether probabilities of a classifier are the softmax of its logits.

    False for evidence, and for linear classifiers of scikit-learn: some normalize one
    model per class. True also without ``predict_proba``.
    """
    estimator = unwrapped(estimator)
    if is_instance(estimator, "sklearn.pipeline", "Pipeline"):
        return predicts_softmax(estimator[-1])
    if hasattr(estimator, "predict_logits") or not hasattr(estimator, "predict_proba"):
        return True
    return not (
        hasattr(estimator, "__skood_network__") or LinearNetwork.serves(estimator)
    )
