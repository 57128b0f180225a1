"""Fitted regression network as a function of its weights."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys

import numpy as np
import torch
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from skood.nn._forward_hooks import primary_tensor
from skood.nn._functional_network import (
    OpenNetwork,
    copied,
    perceptron,
    plain_attention,
)
from skood.nn._torch_reader import ModuleReader, check_first_axis
from skood.utils._metaestimators import unwrapped

__all__ = ["OpenRegressor"]


class OpenRegressor(OpenNetwork):
    """Copy of a fitted regression network whose weights can be replaced.

    It supports an `MLPRegressor` or a linear regressor of scikit-learn, a skorch
    ``NeuralNetRegressor``, or a `Pipeline` that ends in one of these.

    Parameters
    ----------
    estimator : object
        A regressor fitted on one target.

    n_outputs : int
        Required number of outputs of the network.

    device, dtype
        See `OpenNetwork`.
    """

    def __init__(self, estimator, n_outputs, *, device="auto", dtype=None):
        model, self._steps = unwrapped(estimator), []
        while isinstance(model, Pipeline):
            self._steps += [step for _, step in model.steps[:-1]]
            model = unwrapped(model.steps[-1][1])
        check_is_fitted(model)
        self._model, self._n_outputs = model, n_outputs
        skorch = getattr(sys.modules.get("skorch.net"), "NeuralNet", ())
        if isinstance(model, skorch):
            self._reader = ModuleReader(
                model,
                is_skorch=True,
                layer="penultimate",
                pooling="mean",
                batch_size=256,
                device="auto",
            )
            module = copied(model.module_)
        else:
            self._reader = None
            module = _as_module(model)
        self._take(module, device, dtype)
        self.head_name = None
        self._probed = False

    def prepare(self, X):
        """Validate samples and apply the pipeline steps before the network."""
        for step in self._steps:
            if step is not None and step != "passthrough":
                X = step.transform(X)
        if self._reader is not None:
            rows = self._reader.prepare(X)
        else:
            rows = validate_data(self._model, X, reset=False, dtype=np.float64)
        if not self._probed:
            self._probe(self.batch(rows[:2]))
        return rows

    def _probe(self, batch):
        output, found = self._run_watched(batch)
        check_first_axis(output, batch, "The network")
        if not torch.isfinite(output).all():
            raise ValueError(
                f"The outputs of {type(self.module).__name__} contain NaN or infinity: "
                "its training failed, or the features need a scale."
            )
        shape = tuple(output.shape[1:]) or (1,)
        if shape != (self._n_outputs,):
            raise ValueError(
                f"The network {type(self.module).__name__} has outputs of the shape "
                f"{shape} for each row, expected ({self._n_outputs},): one mean, and "
                "with variance='network' also the logarithm of the variance."
            )
        if found is not None and torch.equal(found[3].reshape(output.shape), output):
            self.head_name = found[0]
        self._probed = True

    def logits(self, batch, weights=None):
        """Return the outputs of a batch, of shape (n_rows, n_outputs)."""
        with plain_attention():
            output = torch.func.functional_call(
                self.module, weights or {}, (batch.clone(),)
            )
        return primary_tensor(output).reshape(len(batch), self._n_outputs)

    def outputs(self, rows):
        """Return float64 outputs of prepared samples, (n_rows, n_outputs)."""
        with torch.no_grad():
            parts = [
                self.logits(batch).double().cpu().numpy()
                for batch in self.batches(rows)
            ]
        return check_array(np.concatenate(parts), input_name="outputs")


def _as_module(model):
    """Return a perceptron or linear regressor of scikit-learn as a module."""
    if hasattr(model, "coefs_") and hasattr(model, "out_activation_"):
        if model.out_activation_ != "identity":
            raise ValueError(
                f"The output of {type(model).__name__} is not a mean: its activation "
                f"is {model.out_activation_!r}."
            )
        hidden = list(zip(model.coefs_[:-1], model.intercepts_[:-1], strict=True))
        return perceptron(
            hidden, model.activation, model.coefs_[-1], model.intercepts_[-1]
        )
    if hasattr(model, "coef_") and hasattr(model, "intercept_"):
        coef = np.atleast_2d(model.coef_)
        intercept = None  # a bias of zero would be searched as well
        if getattr(model, "fit_intercept", True):
            intercept = np.broadcast_to(model.intercept_, coef.shape[:1])
        return perceptron([], "identity", coef.T, intercept)
    raise TypeError(
        f"Cannot search the weights of {type(model).__name__}: use an MLPRegressor or "
        "a linear regressor of scikit-learn, a skorch NeuralNetRegressor, or a "
        "Pipeline that ends in one of these."
    )
