"""Fitted classifier as a network: outputs, layers, input gradients and weights.

Detectors and uncertainty methods use a classifier of any kind as a `Network`, which
:func:`skood.nn._make_network.make_network` returns. Torch is imported on use only.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from skood.nn._outputs import concatenate
from skood.utils._batches import loaded, loaded_blocks
from skood.utils._input import is_shaped_as_fitted
from skood.utils._metaestimators import unwrapped
from skood.utils._torch import on_gpu, row_chunks

# Bytes of samples that a pipeline of rectifiers transforms at a time.
_BLOCK_BYTES = 2 * 2**20


@dataclass(frozen=True)
class Layers:
    """Outputs of some layers, and the logits, for consecutive samples.

    ``outputs`` is a dict of arrays by layer: ndarrays, or tensors on the device of the
    network. ``logits`` is an ndarray of shape (n_samples, n_classes).
    """

    outputs: dict
    logits: np.ndarray


class Network(ABC):
    """Fitted classifier as a network.

    Every classifier has `outputs`: features, logits and a linear head. The other
    methods need layers and gradients, and raise a TypeError without them: `layers`,
    `input_gradient`, `replaced`, `with_weights`, `with_dropout`. They are given samples
    that `prepare` has validated. Results are returned in blocks of bounded memory.
    """

    estimator: Any

    # Cache of a block of `shared_outputs` for this classifier.
    memory: Any = None

    # Layer of the features.
    place: Any = "input"

    # Number of samples per forward pass.
    batch_size: float = float("inf")

    # Whether a large array may be given block by block, and whether features are its
    # samples themselves.
    takes_blocks: bool = False
    features_are_inputs: bool = False

    # Whether features are the outputs of a hidden layer, not the columns of samples.
    features_are_hidden: bool = True

    # Whether outputs for samples on a GPU may be tensors there.
    returns_tensors: bool = False

    # Whether features may be NaN, where the classifier takes it.
    allows_nan: bool = False

    @property
    def target(self):
        """Device of the classifier; networks on one device can be run together."""
        return None

    @property
    def core(self):
        """Network without the steps of a pipeline before it."""
        return self

    # --- features, logits and the head ---------------------------------------

    def outputs(self, X, needs):
        """Return the outputs of all samples of `X`, from one forward pass.

        `needs` is a set of {"features", "logits", "head"}; the others are None.
        """
        blocks = [*self.iter_outputs(X, needs)]
        return blocks[0] if len(blocks) == 1 else concatenate(blocks)

    def iter_outputs(self, X, needs):
        """Yield outputs of consecutive samples, see `outputs`; read-only if cached."""
        if self.memory is not None and self.memory.is_open():
            outputs = self.memory.read(self, X, needs)
            if "features" in needs and self.core.features_are_inputs:
                self.core.check_no_nan(outputs.features)
            yield from self.blocks(outputs)
        else:
            for (outputs,) in self.outputs_together(X, [(self, needs)]):
                yield outputs

    @abstractmethod
    def outputs_together(self, X, wanted):
        """Yield lists of outputs of several layers, from one forward pass per block.

        `wanted` is a list of pairs: a `Network` of this classifier, each with another
        layer of the features, and the outputs that it needs.
        """

    def blocks(self, outputs):
        """Cut the outputs of all samples as `iter_outputs` does."""
        yield outputs

    def later_logits(self, features):
        """Return `LaterLogits` of the features of validated samples, None if unknown.

        Only for a network whose features are its samples.
        """
        return None

    @abstractmethod
    def find_head(self):
        """Return the head without running samples, and the name of its layer."""

    # --- layers and gradients ------------------------------------------------

    def prepare(self, X):
        """Return validated samples, which can be indexed, for the methods below."""
        raise self._no_layers()

    def layer_names(self, samples):
        """Return the layers before the logits, in the order in which they run."""
        raise self._no_layers()

    def layers(self, samples, names, pooling="mean"):
        """Yield `Layers` of consecutive samples: outputs of layers, and the logits.

        For names and `pooling` see `FeatureExtractor`; with pooling="maps", maps
        are arrays (n_samples, n_channels, n_positions), and vectors have one position.
        A block may be dropped before the next is made.
        """
        raise self._no_layers()

    def input_gradient(self, samples, function, move):
        r"""Yield the logits (n_samples, n_classes) of samples moved along a gradient.

        ``function(logits)`` returns :math:`\partial f / \partial l`, of the shape of
        the logits, for the function f to differentiate; logits are float64, NumPy or
        torch. ``move(rows, gradient)`` returns the moved samples, from samples and
        :math:`\partial f / \partial x` of the same shape and kind.
        """
        raise self._no_layers()

    def replaced(self, samples, names, function):
        """Yield lists of logits, one array per layer, whose output was replaced.

        Each layer is replaced in a separate pass by ``function(output)``, which has the
        same shape and kind.
        """
        raise self._no_layers()

    # --- weights -------------------------------------------------------------

    def with_weights(self, **options):
        """Return a copy as a function of its weights, see `FunctionalNetwork`."""
        from skood.nn._functional_network import FunctionalNetwork

        return FunctionalNetwork(self, **options)

    def with_dropout(self, device, seed):
        """Return the networks that dropout makes of it, see `ThinnedNetwork`."""
        return self.core._thin(self, device, seed)

    def _thin(self, source, device, seed):
        """Return `with_dropout` for the samples of `source`, maybe a pipeline."""
        from skood.nn._dropout_masks import ThinnedNetwork
        from skood.nn._functional_network import FunctionalNetwork

        network = FunctionalNetwork(source, device=device)
        return ThinnedNetwork(network, source.estimator, seed)

    def copied_module(self, one_margin=False):
        """Return a copy as a torch module.

        With `one_margin`, a binary classifier of scikit-learn with the weights w of one
        margin has one output, instead of two with the weights -w/2 and w/2.
        """
        raise self._no_layers()

    def _no_layers(self):
        return TypeError(
            f"This needs a network, but a {type(self.estimator).__name__} has neither "
            "layers nor a gradient. Use a linear classifier or an MLPClassifier of "
            "scikit-learn, a torch network, or a detector that uses logits or features "
            "only."
        )


class WrappedNetwork(Network):
    """Base class of networks with another one inside, `_last`, for layers and head."""

    def __init__(self, estimator, last):
        self.estimator, self._last = estimator, last
        self.place, self.batch_size = last.place, last.batch_size
        self.takes_blocks = last.takes_blocks

    @property
    def core(self):
        """Network inside, without the steps of a pipeline."""
        return self._last.core

    @property
    def features_are_hidden(self):  # type: ignore[override]
        """Whether features of the network inside are outputs of a hidden layer."""
        return self._last.features_are_hidden

    @property
    def target(self):
        """Device of the network inside."""
        return self._last.target

    def blocks(self, outputs):
        """Cut the outputs of all samples as `iter_outputs` does."""
        yield from self._last.blocks(outputs)

    def find_head(self):
        """Return the head of the network inside, and the name of its layer."""
        return self._last.find_head()

    def prepare(self, X):
        """See `Network`."""
        return self._last.prepare(X)

    def layer_names(self, samples):
        """See `Network`."""
        return self._last.layer_names(samples)

    def layers(self, samples, names, pooling="mean"):
        """See `Network`."""
        return self._last.layers(samples, names, pooling)

    def input_gradient(self, samples, function, move):
        """See `Network`."""
        return self._last.input_gradient(samples, function, move)

    def replaced(self, samples, names, function):
        """See `Network`."""
        return self._last.replaced(samples, names, function)


class PipelineNetwork(WrappedNetwork):
    """Network of the last step of a pipeline, on samples transformed by the others.

    Layers, gradients and replacements refer to the last step.
    """

    def __init__(self, pipeline, last):
        super().__init__(pipeline, last)
        # whether all steps before the last are rectifiers, or may be a body as well,
        # before a classifier of scikit-learn or a linear head
        steps = [step for _, step in pipeline.steps[:-1]]
        before = hasattr(last, "is_validated")
        self._rectifies = before and all(hasattr(s, "_rectify") for s in steps)
        self._stays = before and all(hasattr(s, "_transform_tensor") for s in steps)

    @property
    def features_are_hidden(self):  # type: ignore[override]
        """Whether the last step, or a `FeatureExtractor` before it, has a layer."""
        return self._last.features_are_hidden or any(
            getattr(unwrapped(step), "_features_are_hidden", False)
            for _, step in self.estimator.steps[:-1]
        )

    def outputs_together(self, X, wanted):
        """Transform `X` by the steps before the last, then run the last."""
        inner = [(network._last, needs) for network, needs in wanted]
        for block in loaded_blocks(X):
            for samples in self._parts(block, wanted):
                samples = self._transform(samples)
                if self._stays:  # the steps have checked what they return
                    self._last.is_validated = on_gpu(samples) or is_shaped_as_fitted(
                        self._last.estimator, samples
                    )
                yield from self._last.outputs_together(samples, inner)

    def _parts(self, X, wanted):
        """Return an iterable over blocks of samples to transform one at a time.

        Without a large array of rectified features, which takes longer to allocate than
        to compute, unless features are wanted.
        """
        if (
            type(X) is not np.ndarray
            or X.nbytes <= 2 * _BLOCK_BYTES
            or not self._rectifies
            or any("features" in needs for _, needs in wanted)
        ):
            return (X,)
        return (X[block] for block in row_chunks(len(X), X[0].nbytes, _BLOCK_BYTES))

    def prepare(self, X):
        """Transform samples, and validate them."""
        return self._last.prepare(self._transform(X))

    def _transform(self, X):
        if len(self.estimator.steps) == 1:
            return X
        X = loaded(X)
        for _, step in self.estimator.steps[:-1]:
            if step is not None and not isinstance(step, str):
                stays = self._stays and self.core.returns_tensors
                stays = stays and (on_gpu(X) or not hasattr(step, "_rectify"))
                X = step._transform_tensor(X) if stays else step.transform(X)
        return X


class ScaledNetwork(WrappedNetwork):
    """Network whose logits are multiplied, such as by an inverse temperature."""

    def __init__(self, estimator, last, factor):
        super().__init__(estimator, last)
        self.features_are_inputs = last.features_are_inputs
        self._factor = factor

    def outputs_together(self, X, wanted):
        """See `Network`."""
        inner = [(network._last, needs) for network, needs in wanted]
        for block in self._last.outputs_together(X, inner):
            yield [outputs.scaled(self._factor) for outputs in block]

    def find_head(self):
        """Return the scaled head, and the name of its layer."""
        head, place = self._last.find_head()
        return head.scaled(self._factor), place

    def layers(self, samples, names, pooling="mean"):
        """See `Network`."""
        for block in self._last.layers(samples, names, pooling):
            yield Layers(block.outputs, self._factor * block.logits)

    def input_gradient(self, samples, function, move):
        """See `Network`."""

        def scaled(logits):
            return self._factor * function(self._factor * logits)

        for logits in self._last.input_gradient(samples, scaled, move):
            yield self._factor * logits

    def replaced(self, samples, names, function):
        """See `Network`."""
        for block in self._last.replaced(samples, names, function):
            yield [self._factor * logits for logits in block]

    def with_weights(self, **options):
        """Raise: the temperature is no weight of the network."""
        raise self._no_layers()

    def with_dropout(self, device, seed):
        """Raise: the temperature was fitted without dropout."""
        raise self._no_layers()
