"""Features of a network as a transformer."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral

import numpy as np
from scipy.sparse import issparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from skood.nn._make_network import make_network, plain_network
from skood.utils._atomic_fit import fresh_fit
from skood.utils._batches import as_rows
from skood.utils._estimator import SkoodEstimator
from skood.utils._input import takes_input
from skood.utils._metaestimators import fit_wrapped, n_rows, take_rows, wrapped_tags
from skood.utils._param_validation import Classifier, Interval, StrOptions, fit_context


class FeatureExtractor(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, SkoodEstimator
):
    r"""Transformer that returns the features of a classifier.

    For a network that computes :math:`l(x) = W z(x) + b`, ``transform`` returns
    :math:`z(x)`, or the output of another layer.

    Read more in the :ref:`User Guide <nn>`.

    Parameters
    ----------
    estimator : object
        A classifier: a linear model (its features are its input), an
        `MLPClassifier`, a `Pipeline` ending in a classifier (whose features are taken
        from the last step), a skorch net, a `TorchClassifier`, or a torch module
        wrapped by `pretrained`. It is cloned and fitted, unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`.

    layer : str or int, default="penultimate"
        Where the features are taken:

        - "penultimate": the input of the linear layer that gives the logits or,
          if no linear layer does, of the linear layer that runs last;
        - a dotted module name: the output of that module;
        - "input:NAME": the input of that module;
        - an int: the output of that linear or convolutional layer, in the order
          of definition; -1 is the last one. Of an `MLPClassifier`: after its
          activation.

    pooling : {"mean", "max", "flatten"} or None, default="mean"
        Pooling of feature maps (n, c, h, w) and tokens (n, tokens, d) to vectors. None
        returns them unchanged.

    batch_size : int, default=256
        Number of samples per forward pass of a network.

    device : str, default="auto"
        Device of the network: "auto" is the `device` of the classifier if it has one,
        else the device of the network if that is an accelerator, else CUDA if
        available, else the CPU.

    Attributes
    ----------
    estimator_ : object
        The fitted classifier.

    n_features_in_ : int
        Number of features seen in fit, if the classifier has this attribute.

    See Also
    --------
    split : Body and head of a fitted network.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.neural_network import MLPClassifier
    >>> from skood.nn import FeatureExtractor
    >>> X, y = load_digits(return_X_y=True)
    >>> net = MLPClassifier(hidden_layer_sizes=(32,), random_state=0, max_iter=30)
    >>> FeatureExtractor(net).fit(X / 16, y).transform(X / 16).shape
    (1797, 32)
    """

    _parameter_constraints: dict = {
        "estimator": [Classifier()],
        "layer": [str, Integral],
        "pooling": [StrOptions({"mean", "max", "flatten"}), None],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "device": "no_validation",  # validated where it is used
    }

    # Whether `split` took its head from a layer without running it: then each pass
    # compares the head with the logits, which the network computes anyway.
    _checks_head = False

    def __init__(
        self,
        estimator,
        *,
        layer="penultimate",
        pooling="mean",
        batch_size=256,
        device="auto",
    ):
        self.estimator = estimator
        self.layer = layer
        self.pooling = pooling
        self.batch_size = batch_size
        self.device = device

    @fit_context(
        # The wrapped classifier validates itself.
        prefer_skip_nested_validation=False
    )
    def fit(self, X, y=None):
        """Fit the classifier, unless it is frozen.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input of the classifier.

        y : array-like of shape (n_samples,), default=None
            Class labels; not needed if the classifier is frozen.

        Returns
        -------
        self : object
            The fitted transformer.
        """
        with fresh_fit(self):
            X = as_rows(X, for_fit=True)
            self._fit_estimator(X, y)
            network = plain_network(self.estimator_, **self._network_options)
            one = take_rows(X, np.arange(min(1, n_rows(X))))
            self._n_features_out = network.outputs(one, self._needs).features.shape[1]
        return self

    @fit_context(
        # The wrapped classifier validates itself.
        prefer_skip_nested_validation=False
    )
    def fit_transform(self, X, y=None):
        """Fit the classifier, unless it is frozen, and compute the features.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input of the classifier.

        y : array-like of shape (n_samples,), default=None
            Class labels; not needed if the classifier is frozen.

        Returns
        -------
        Z : ndarray of shape (n_samples, n_features_out)
            Features, or feature maps with ``pooling=None``.
        """
        with fresh_fit(self):
            self._fit_estimator(X, y)
            Z = self._read(X)
            self._n_features_out = Z.shape[1]
        return Z

    def _fit_estimator(self, X, y):
        self.estimator_ = fit_wrapped(self, self.estimator, X, y)
        if hasattr(self, "classes_"):
            del self.classes_  # a transformer has none

    @property
    def _needs(self):
        """Return what is computed, see `read`."""
        return {"features", "head"} if self._checks_head else {"features"}

    @property
    def _network_options(self):
        """Options of the network, see `make_network`."""
        names = ("layer", "pooling", "batch_size", "device")
        return {name: getattr(self, name) for name in names}

    @property
    def _features_are_hidden(self):
        """Return whether the features are not the input of the classifier."""
        network = make_network(self.estimator_, **self._network_options)
        return network.features_are_hidden

    def _read(self, X):
        network = make_network(self.estimator_, **self._network_options)
        Z = network.outputs(X, self._needs).features
        # Shared results are read-only, but the next step may write to its input.
        if issparse(Z):
            return Z.copy()
        return Z if Z.flags.writeable else Z.copy(order="K")

    @takes_input
    def transform(self, X):
        """Compute the features.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input of the classifier.

        Returns
        -------
        Z : ndarray of shape (n_samples, n_features_out)
            Features, or feature maps with ``pooling=None``.

        Raises
        ------
        ValueError
            If there is no such layer, or X holds NaN or infinity.
        """
        check_is_fitted(self, "estimator_")
        return self._read(X)

    def __sklearn_tags__(self):
        tags = wrapped_tags(super().__sklearn_tags__(), self.estimator)
        tags.transformer_tags.preserves_dtype = []
        return tags
