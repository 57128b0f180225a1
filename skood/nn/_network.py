"""Layers, gradients and replaced layers of a fitted classifier.

A reader returns the features and logits that most detectors need. A `Network` provides
what other detectors need, for all classifiers that have layers:

- the outputs of several layers and the logits, from one forward pass;
- the logits of samples that were moved along the gradient of a function of the logits;
- the logits after the output of a layer was replaced.

Results are returned in blocks of bounded memory. This file never imports torch.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.utils.validation import check_array

from skood.nn._sklearn_network import ACTIVATIONS
from skood.utils._batches import loaded
from skood.utils._torch import row_chunks

__all__ = ["LayeredNetwork", "Layers", "Network"]

# Derivatives of the activations, from their values.
_SLOPES: dict[str, Callable] = {
    "identity": np.ones_like,
    "relu": lambda h: (h > 0).astype(h.dtype),
    "tanh": lambda h: 1.0 - h * h,
    "logistic": lambda h: h * (1.0 - h),
}


@dataclass(frozen=True)
class Layers:
    """Outputs of some layers, and the logits, for consecutive samples.

    Parameters
    ----------
    outputs : dict
        Outputs of the requested layers: each an ndarray, or a tensor on the device of
        the network.

    logits : ndarray of shape (n_samples, n_classes)
        One column per class.
    """

    outputs: dict
    logits: np.ndarray


class Network(ABC):
    """Base class of networks.

    Parameters
    ----------
    reader : object
        The reader of the classifier, without the steps of a pipeline.

    steps : list of objects
        Transformers before it. Layers, gradients and replacements refer to the last
        step of the pipeline.
    """

    # Whether the output for a sample depends on other samples.
    reads_graphs = False

    def __init__(self, reader, steps):
        self.reader = reader
        self._steps = steps

    def prepare(self, X):
        """Return validated samples as input of the last step.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input of the classifier.

        Returns
        -------
        rows : ndarray or torch.Tensor of shape (n_samples, ...)
            Prepared samples, which can be indexed and passed to the other methods.
        """
        for step in self._steps:
            X = step.transform(loaded(X))
        return self._checked(X)

    @abstractmethod
    def _checked(self, X):
        """Validate the input of the last step."""

    @abstractmethod
    def layer_names(self, rows):
        """Return the layers before the logits, in the order in which they run."""

    @abstractmethod
    def iter_layers(self, rows, layers, pooling="mean"):
        """Yield the outputs of layers and the logits, block by block.

        Parameters
        ----------
        rows : ndarray or torch.Tensor
            See `prepare`.

        layers : sequence of str or int
            See `FeatureExtractor`. Empty: only the logits are computed.

        pooling : {"mean", "max", "flatten", "maps"} or None, default="mean"
            Pooling of maps to vectors. With "maps" they become arrays (n_samples,
            n_channels, n_positions); vectors are maps of one position.

        Yields
        ------
        block : Layers
            Results of consecutive samples. It may be dropped before the next is made.
        """

    @abstractmethod
    def iter_moved(self, rows, cotangent, move):
        r"""Yield the logits of samples that were moved along a gradient.

        Parameters
        ----------
        rows : ndarray or torch.Tensor
            See `prepare`.

        cotangent : callable
            ``cotangent(logits)`` returns :math:`\partial f / \partial l`, of the
            shape of the logits, for the function f to differentiate. The logits are
            float64, NumPy or torch.

        move : callable
            ``move(rows, gradient)`` returns the moved samples, from samples and
            :math:`\partial f / \partial x` of the same shape and kind.

        Yields
        ------
        logits : ndarray of shape (n_rows, n_classes)
            Logits of consecutive samples, one column per class.
        """

    @abstractmethod
    def iter_replaced(self, rows, layers, function):
        """Yield the logits after the output of a layer was replaced.

        Parameters
        ----------
        rows : ndarray or torch.Tensor
            See `prepare`.

        layers : sequence of str or int
            Layers; each is replaced separately, in a separate pass.

        function : callable
            Returns the replacement of an output, of the same shape and kind.

        Yields
        ------
        logits : list of ndarray of shape (n_rows, n_classes)
            Logits of consecutive samples, one array per layer.
        """


class LayeredNetwork(Network):
    """Linear classifier or perceptron of scikit-learn, computed from its weights.

    Everything is computed in float64, on the CPU.
    """

    def __init__(self, reader, steps):
        super().__init__(reader, steps)
        hidden, activation = reader.hidden()
        self._hidden = [(W.astype(np.float64), b.astype(np.float64)) for W, b in hidden]
        self._activation = ACTIVATIONS[activation]
        self._slope = _SLOPES[activation]
        head, _ = reader.find_head()
        self._coef = head.coef.astype(np.float64)
        self._intercept = head.intercept.astype(np.float64)

    def _checked(self, X):
        return self.reader.rows(loaded(X)).astype(np.float64, copy=False)

    def layer_names(self, rows):
        """Return the indices of the hidden layers, "penultimate" if there are none."""
        return list(range(len(self._hidden))) or ["penultimate"]

    def _run(self, rows, replaced=None, function=None):
        """Return the outputs of all layers: the input, the hidden ones, the logits."""
        outputs: list = []
        with np.errstate(over="ignore", invalid="ignore"):  # reported below
            for i in range(-1, len(self._hidden) + 1):
                if i == -1:
                    output = rows
                elif i < len(self._hidden):
                    W, b = self._hidden[i]
                    output = self._activation(outputs[-1] @ W + b)
                else:
                    output = outputs[-1] @ self._coef.T + self._intercept
                outputs.append(function(output) if i == replaced else output)
        check_array(outputs[-1], input_name="logits")
        return outputs

    def _chunks(self, rows):
        width = rows.shape[1] + sum(len(b) for _, b in self._hidden) + len(self._coef)
        return (rows[part] for part in row_chunks(len(rows), 4 * 8 * width))

    def iter_layers(self, rows, layers, pooling="mean"):
        """See `Network`."""
        indices = {layer: self.reader.layer_index(layer) for layer in layers}
        for part in self._chunks(rows):
            all_outputs = self._run(part)
            outputs = {layer: all_outputs[i + 1] for layer, i in indices.items()}
            if pooling == "maps":
                outputs = {layer: z[:, :, None] for layer, z in outputs.items()}
            yield Layers(outputs, all_outputs[-1])

    def iter_moved(self, rows, cotangent, move):
        """See `Network`."""
        for part in self._chunks(rows):
            *outputs, logits = self._run(part)
            gradient = cotangent(logits) @ self._coef
            for (W, _), h in zip(self._hidden[::-1], outputs[:0:-1], strict=True):
                gradient = (gradient * self._slope(h)) @ W.T
            yield self._run(move(part, gradient))[-1]

    def iter_replaced(self, rows, layers, function):
        """See `Network`."""
        indices = [self.reader.layer_index(layer) for layer in layers]
        for part in self._chunks(rows):
            yield [self._run(part, i, function)[-1] for i in indices]
