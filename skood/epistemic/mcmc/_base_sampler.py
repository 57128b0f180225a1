"""Base class of samplers of the weights of a network."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import abstractmethod
from numbers import Real

import numpy as np
import torch
from sklearn.utils import check_array, check_consistent_length, check_random_state

from skood.epistemic._base_uncertainty import BaseMembers
from skood.epistemic._likelihood import Block, Categorical, taken
from skood.epistemic._vectorized import Vectorized, stacked_linear
from skood.epistemic.quam._searched_layers import find_tail, restored_tail
from skood.epistemic.quam._tails import DenseTail
from skood.utils._array_api import sent_once
from skood.utils._atomic_fit import fresh_fit
from skood.utils._param_validation import Interval, StrOptions, fit_context
from skood.utils._torch import autocast, resolve_device, row_chunks

# Memory of activations in bytes that a computation may need.
_BUDGET = 64 * 2**20


class BaseSampler(BaseMembers):
    """Base class of estimators whose members are samples of a network's weights."""

    _parameter_constraints: dict = {
        **BaseMembers._parameter_constraints,
        **BaseMembers._network_constraints,
        "prior_scale": [
            Interval(Real, 0, None, closed="neither"),
            StrOptions({"he"}),
            dict,
        ],
        "temperature": [Interval(Real, 0, None, closed="neither")],
        "init": [StrOptions({"prior", "estimator"})],
    }

    @abstractmethod
    def _options(self):
        """Return the valid part of the options, or its default."""

    @abstractmethod
    def _sample(self, options, posterior, generator):
        """Return the weights (n_members, n_weights), and set attributes of the run."""

    @fit_context(prefer_skip_nested_validation=False)  # the estimator is the user's
    def fit(self, X, y):
        """Fit the given model, then sample the weights of its network.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Training samples: input of the estimator.

        y : array-like of shape (n_samples,)
            Class labels, or targets of a regressor.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        with fresh_fit(self):
            options = self._options()
            y = self._fit_estimator(X, y)
            check_consistent_length(X, y)
            self._fit_targets(X, y)
            targets = self.likelihood_.targets(y, self)
            random_state = check_random_state(self.random_state)
            seed = random_state.randint(np.iinfo(np.int32).max)
            # the caller may be in inference mode, which has no gradients, or autocast
            plain = autocast(resolve_device(self.device).type)
            with torch.inference_mode(False), torch.no_grad(), plain:
                posterior = Posterior(
                    self.estimator_,
                    X,
                    targets,
                    self.likelihood_,
                    prior_scale=self.prior_scale,
                    temperature=self.temperature,
                    device=self.device,
                )
                generator = torch.Generator(posterior.device).manual_seed(int(seed))
                theta = self._sample(options, posterior, generator)
                samples = posterior.models.split(theta)
            self._network_kind = posterior.models.kind()
            self.samples_ = {k: w.cpu().numpy().copy() for k, w in samples.items()}
        return self

    def _blocks(self, X):
        reference, start = None, 0
        if self._setting() == "b":
            reference = self._reference(X)
        likelihood = self.likelihood_
        # in float64, so that the result for a sample does not depend on the others
        network = likelihood.open(self.estimator_, self.device, dtype=torch.float64)
        for outputs in member_outputs(network, self.samples_, X, self._network_kind):
            if likelihood.kind == "classifier":
                check_array(outputs, input_name="logits", allow_nd=True)
            indices = slice(start, start + outputs.shape[1])
            predictions = likelihood.predictions(outputs)
            yield Block(predictions, reference=taken(reference, indices))
            start = indices.stop


class StackedWeights:
    """Stacked models of one `FunctionalNetwork`, each a row of weights.

    Networks of linear layers with elementwise functions between them run as batched
    matrix products, others by `Vectorized`. `shapes` are the shapes of the parameters.
    `kind` is what another copy of the network has found, from the method of this name.
    """

    def __init__(self, network, samples, kind=None):
        self.network = network
        self.shapes = {name: w.shape for name, w in network.weights().items()}
        self.n_weights = sum(shape.numel() for shape in self.shapes.values())
        batch = network.batch(samples[:2])
        self.n_outputs = network.logits(batch).shape[1]
        if kind is None:
            self._tail = find_tail(network, "full", batch)
        else:
            self._tail = restored_tail(network, kind[1], samples[:2])
        self._is_chain = isinstance(self._tail, DenseTail)
        self._each = Vectorized(self._one)
        if self._is_chain:
            self.bytes_per_row = self._tail.bytes_per_row
        else:
            # activations are unknown; assumed to be a multiple of the input size
            self.bytes_per_row = 64 * batch[0].numel() * batch.element_size()

    def kind(self):
        """Return what was found of the network, as plain values."""
        return self.network.probed(), self._tail.structure()

    def features(self, samples):
        """Return the input of the first layer with weights for prepared samples."""
        return self._tail.features(samples)

    def flatten(self, weights):
        """Return stacked parameters, given by name, as rows of weights."""
        return torch.cat(
            [
                torch.as_tensor(weights[name]).reshape(-1, shape.numel())
                for name, shape in self.shapes.items()
            ],
            dim=1,
        ).to(device=self.network.device, dtype=self.network.dtype)

    def split(self, theta):
        """Return rows of weights as stacked parameters by name: views."""
        flats = theta.split([shape.numel() for shape in self.shapes.values()], dim=-1)
        return {
            name: flat.reshape(*theta.shape[:-1], *shape)
            for (name, shape), flat in zip(self.shapes.items(), flats, strict=True)
        }

    def logits(self, theta, features):
        """Return logits (n_models, n, n_classes) by models (n_models, n_weights)."""
        if not self._is_chain:
            return self._each(theta, features=features)
        weights, n_models = self.split(theta), len(theta)
        h = features.expand(n_models, *features.shape)
        functions = [None, *self._tail.functions]
        for (name, bias), function in zip(self._tail.layers, functions, strict=True):
            if function is not None:
                h = function(h.flatten(0, 1)).view(n_models, len(features), -1)
            biases = None if bias is None else weights[bias][:, None]
            h = stacked_linear(h, weights[name].mT, biases)
        return torch.cat([-h, h], dim=2) / 2 if self.network.is_margin else h

    def _one(self, theta, features):
        """Return the logits by one model, whose weights have the shape (n_weights,)."""
        return self.network.logits(features, self.split(theta))


def prior_scales(prior_scale, shapes):
    """Return standard deviations (n_weights,); "he" is 1 for biases, of one axis."""
    if isinstance(prior_scale, dict):
        if set(prior_scale) != set(shapes):
            raise ValueError(
                "prior_scale must have the scale of each parameter of the network, "
                f"{sorted(shapes)}; got {sorted(prior_scale, key=str)}."
            )
        for name, scale in prior_scale.items():
            if not isinstance(scale, Real) or not 0 < float(scale) < np.inf:
                raise ValueError(
                    "Scales of priors are numbers, which must be positive and finite, "
                    f"got {scale!r:.80} for {name!r}."
                )
    scales = []
    for name, shape in shapes.items():
        if isinstance(prior_scale, dict):
            scale = float(prior_scale[name])
        elif isinstance(prior_scale, str):  # "he"
            scale = np.sqrt(2 / np.prod(shape[1:])) if len(shape) > 1 else 1.0
        else:
            scale = float(prior_scale)
        scales.append(np.full(int(np.prod(shape)), scale))
    return np.concatenate(scales)


class Posterior:
    r"""Log posterior of stacked models, and its gradient.

    .. math:: \log p(w \mid D) = \frac1T \Bigl(\sum_i \log p(y_i \mid x_i, w) -
       \sum_j \frac{w_j^2}{2 s_j^2}\Bigr) + \text{const}

    `X` and `targets`, class indices or numbers, are the training samples of a fitted
    estimator, `prior_scale` is an argument of `prior_scales`.
    """

    def __init__(
        self,
        estimator,
        X,
        targets,
        likelihood=None,
        *,
        prior_scale=1.0,
        temperature=1.0,
        device="auto",
    ):
        self.likelihood = Categorical() if likelihood is None else likelihood
        network = self.likelihood.open(estimator, device, for_steps=True)
        samples = network.prepare(X)
        self.models = StackedWeights(network, samples)
        self.features = self.models.features(samples)
        self.targets = torch.as_tensor(targets, device=network.device)
        if self.targets.dtype.is_floating_point:
            self.targets = self.targets.to(network.dtype)
        self.temperature = float(temperature)
        scales = prior_scales(prior_scale, self.models.shapes)
        self.scales = torch.as_tensor(
            scales, dtype=network.dtype, device=network.device
        )

    @property
    def n_samples(self):
        """Number of training samples."""
        return len(self.targets)

    @property
    def device(self):
        """Device of the weights."""
        return self.scales.device

    @property
    def initial(self):
        """Weights of the estimator, of shape (1, n_weights)."""
        return self.models.flatten(self.models.network.weights())

    def log_likelihood(self, theta, indices=slice(None)):
        """Return the sum of log p(y|x, w) over samples, for each model, in float64."""
        outputs = self.models.logits(theta, self.features[indices])
        log_p = self.likelihood.log_density(outputs, self.targets[indices])
        return log_p.double().sum(dim=1)

    def log_prior(self, theta):
        """Return the log prior density of each model up to a constant, in float64."""
        return -0.5 * (theta / self.scales).double().square().sum(dim=1)

    def grad_log_prior(self, theta):
        """Return the gradient of the log prior density."""
        return -theta / self.scales.square()

    def value_and_grad(self, theta):
        """Return each model's log posterior, up to a constant, and its gradient."""
        grad = self.grad_log_prior(theta)
        value = self.log_prior(theta)
        n_bytes = len(theta) * self.models.bytes_per_row
        for indices in row_chunks(self.n_samples, n_bytes, _BUDGET):
            value_of_chunk, grad_of_chunk = self.likelihood_and_grad(theta, indices)
            value, grad = value + value_of_chunk, grad + grad_of_chunk
        return value / self.temperature, grad / self.temperature

    def likelihood_and_grad(self, theta, indices=slice(None)):
        """Return the log-likelihood of samples by each model, and its gradient."""
        with torch.inference_mode(False), torch.enable_grad():
            theta = theta.detach().requires_grad_()
            value = self.log_likelihood(theta, indices)
            (grad,) = torch.autograd.grad(value.sum(), theta)
        return value.detach(), grad

    def predictions(self, theta, indices=slice(None)):
        """Return probabilities, or means, of training samples by each model."""
        outputs = _outputs(self.models, theta, self.features[indices])
        return self.likelihood.location(self.likelihood.predictions(outputs))


def _outputs(models, theta, features):
    """Return float64 outputs (n_models, n_rows, n_outputs), computed in chunks."""
    outputs_of_chunks = []
    per_chunk = len(features) * models.bytes_per_row
    with torch.no_grad():
        for chunk in row_chunks(len(theta), per_chunk, _BUDGET):
            outputs = models.logits(theta[chunk], features).double()
            outputs_of_chunks.append(outputs.cpu().numpy())
    return np.concatenate(outputs_of_chunks)


def member_outputs(network, weights, X, kind=None):
    """Yield float64 outputs (n_models, n, n_outputs) by sampled weights.

    For `kind` see `StackedWeights`.
    """
    if kind is not None:
        network.restore(kind[0])
    samples = network.prepare(X)
    models = StackedWeights(network, samples, kind)
    theta = models.flatten(
        {name: sent_once(array, network.device) for name, array in weights.items()}
    )
    per_row = 8 * len(theta) * models.n_outputs + models.bytes_per_row
    for chunk in row_chunks(len(samples), per_row, _BUDGET // 4):
        features = models.features(samples[chunk])
        yield _outputs(models, theta, features)
