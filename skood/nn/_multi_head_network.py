"""Network with several heads on one body, the net that trains it, and one head."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from functools import partial

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from torch import nn

from skood.nn._default_modules import ModuleBuilder, default_module
from skood.nn._logits import LogitsMixin
from skood.nn._training import TrainingNet
from skood.nn._training_data import TrainingSet
from skood.utils._estimator import SkoodEstimator
from skood.utils._stored import stored
from skood.utils._torch import parameter_device, parameter_dtype


class HeadNetwork(nn.Module):
    """Body and one linear head: a plain network for classification."""

    def __init__(self, body, head):
        super().__init__()
        self.body = body
        self.head = head

    def forward(self, x):
        """Return logits of shape (n_rows, n_classes)."""
        return self.head(self.body(x).flatten(1))


class MultiHeadNetwork(nn.Module):
    """Body and several linear heads, see `HeadNetwork`."""

    def __init__(self, body, heads):
        super().__init__()
        self.body = body
        self.heads = nn.ModuleList(heads)

    def features(self, x):
        """Return the input of the heads, of shape (n_rows, n_features)."""
        return self.body(x).flatten(1)

    def forward(self, x):
        """Return the logits of all heads side by side."""
        z = self.features(x)
        logits = [head(z) for head in self.heads]
        return logits[0] if len(logits) == 1 else torch.cat(logits, dim=1)

    def split(self, logits):
        """Return the logits of each head."""
        return logits.split([head.out_features for head in self.heads], dim=1)

    def one_head(self, k):
        """Return a network of the body and one head, which are not copied."""
        return HeadNetwork(self.body, self.heads[k])


class _BodyBuilder(ModuleBuilder):
    """Factory of a body for samples of a given shape, and the width of its features."""

    _call = "input_shape"
    _meaning = "the shape of one sample"

    def _default(self):
        return partial(default_module(self.input_shape), n_classes=None)

    def _arguments(self):
        return (self.input_shape,)

    def _check_output(self, features):
        if not isinstance(features, torch.Tensor):
            raise TypeError(
                "The module is the body of the network and must return one tensor of "
                f"features, got an object of type {type(features).__name__}."
            )
        if features.ndim < 2 or len(features) != 2 or features.numel() == 0:
            raise ValueError(
                "The module is the body of the network and must return features of "
                f"shape (n_samples, n_features): for 2 samples of shape "
                f"{self.input_shape} it returned {tuple(features.shape)}."
            )
        self.width = features[0].numel()


@stored
class MultiHeadFactory:
    """Factory of a body (see `_BodyBuilder`) with a head for each of the label columns.

    `sizes` are their numbers of classes. `module` None: the default network, headless.
    """

    def __init__(self, module, sizes):
        self.module = module
        self.sizes = sizes

    def __call__(self, input_shape, n_classes, **module_params):
        """Return a new network; torch must be seeded."""
        builder = _BodyBuilder(self.module, module_params, input_shape, None)
        body = builder()
        options = {"device": parameter_device(body), "dtype": parameter_dtype(body)}
        heads = [nn.Linear(builder.width, size, **options) for size in self.sizes]
        return MultiHeadNetwork(body, heads)


class HeadSamples(TrainingSet):
    """Training set with classes and weights of shape (n_samples, n_heads).

    `factors` of shape (n_heads,) are the weights of the heads, of mean one.
    """

    def __init__(self, inputs, codes, weight, factors):
        super().__init__(inputs, codes, weight)
        self.weight = self.weight * factors
        self.factors = factors

    def subset(self, indices):
        """Return some of the samples, with the weights of each head rescaled."""
        weight = self.weight[indices]
        return HeadSamples(
            self.inputs[indices], self.codes[indices], weight, self.factors
        )


class MultiHeadNet(TrainingNet):
    """Net for `HeadSamples` (or `TrainingSet`): the loss is the mean over the heads."""

    def get_loss(self, y_pred, y_true, X=None, training=False):
        """Return the mean of the criterion over the heads."""
        codes, weight = y_true
        if codes.ndim == 1:
            return super().get_loss(y_pred, y_true, X=X, training=training)
        losses = [
            super(MultiHeadNet, self).get_loss(
                logits, (codes[:, k], weight[:, k]), X=X, training=training
            )
            for k, logits in enumerate(self.module_.split(y_pred))
        ]
        return torch.stack(losses).mean()

    def hits(self, logits, codes):
        """Return the number of samples for which all classes are predicted."""
        if codes.ndim == 1:
            return super().hits(logits, codes)
        parts = self.module_.split(logits)
        predicted = [logits_k.argmax(dim=1).cpu().numpy() for logits_k in parts]
        return int((np.column_stack(predicted) == codes).all(axis=1).sum())


@stored
class HeadClassifier(LogitsMixin, ClassifierMixin, SkoodEstimator):
    """Head `column` of a fitted `MultiHeadClassifier`, see its method ``head``."""

    def __init__(self, classifier, column):
        self.classifier = classifier
        self.column = column

    def __sklearn_is_fitted__(self):
        return True

    def __getattr__(self, name):
        # attributes of the fitted classifier, such as the feature names
        if name in ("input_shape_", "n_features_in_", "feature_names_in_", "device"):
            return getattr(self.classifier, name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}.")

    @property
    def classes_(self):
        """Class labels of the column."""
        return self.classifier._each()[self.column]

    @property
    def module_(self):
        """Return the body and the head, as a torch module."""
        return self.classifier.module_.one_head(self.column)

    def _prepare_input(self, X):
        return self.classifier._prepare_input(X)

    def fit(self, X, y=None):
        """Raise, because a head is not trained alone."""
        raise TypeError(
            "A head is trained together with the others, by fit of the "
            "MultiHeadClassifier. Keep it in the FrozenEstimator that its method head "
            "returned."
        )

    def predict_logits(self, X):
        """Return the logits, an ndarray of shape (n_samples, n_classes)."""
        logits = self.classifier.predict_logits(X)
        return logits if self.classifier.n_outputs_ == 1 else logits[self.column]
