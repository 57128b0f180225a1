"""Body and linear head of a network: features, logits, and both apart."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from itertools import zip_longest
from numbers import Integral
from weakref import WeakKeyDictionary

import numpy as np
from scipy.sparse import issparse
from sklearn.base import (
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_array,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from skood.nn._logits import LogitsMixin
from skood.nn._make_network import make_network, plain_network
from skood.nn._outputs import linear_logits, symmetric_head
from skood.nn._sklearn_network import LinearNetwork, require_penultimate
from skood.utils._atomic_fit import fresh_fit
from skood.utils._batches import as_rows, blockwise
from skood.utils._estimator import SkoodEstimator
from skood.utils._input import new_samples, takes_input
from skood.utils._labels import check_one_kind
from skood.utils._metaestimators import (
    copy_input_attributes,
    fit_wrapped,
    n_rows,
    take_rows,
    wrapped_tags,
)
from skood.utils._param_validation import Classifier, Interval, StrOptions, fit_context
from skood.utils._torch import is_tensor, to_numpy
from skood.utils._weights import check_weight

# Validated weights of heads that are not fitted, with the parameters that they are of.
_VALIDATED: WeakKeyDictionary = WeakKeyDictionary()


class LinearHead(LogitsMixin, ClassifierMixin, SkoodEstimator):
    r"""Linear last layer of a network, as a classifier of its features.

    .. math:: l(z) = W z + b, \qquad p(y | z) = \operatorname{softmax}(l(z))_y

    If weights are given, it is fitted from the start, and `fit` changes nothing.
    Without weights, `fit` learns them as a multinomial
    :class:`~sklearn.linear_model.LogisticRegression`.

    Read more in the :ref:`User Guide <nn>`.

    Parameters
    ----------
    coef : array-like of shape (n_classes, n_features), default=None
        Weights W. A single row is the weight of a binary margin.

    intercept : array-like of shape (n_classes,), default=None
        Biases b. None: zeros.

    classes : array-like of shape (n_classes,), default=None
        Class labels in the order of the rows. None: 0, 1, …

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features)
        Weights, with two (symmetric) rows for two classes.

    intercept_ : ndarray of shape (n_classes,)
        Biases.

    classes_ : ndarray of shape (n_classes,)
        Class labels.

    n_features_in_ : int
        Number of features.

    See Also
    --------
    split : Split a network into its body and its head.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.nn import LinearHead
    >>> head = LinearHead(coef=[[1.0, 0.0], [0.0, 1.0]], classes=["a", "b"])
    >>> head.predict([[2.0, 1.0], [0.0, 3.0]])
    array(['a', 'b'], dtype='<U1')
    """

    _parameter_constraints: dict = {
        "coef": [None, "array-like"],
        "intercept": [None, "array-like"],
        "classes": [None, "array-like"],
    }

    def __init__(self, coef=None, intercept=None, classes=None):
        self.coef = coef
        self.intercept = intercept
        self.classes = classes

    def _checked_weights(self):
        """Validate the given weights; return coef, intercept, classes, as given."""
        coef = check_array(self.coef, dtype=[np.float64, np.float32], input_name="coef")
        intercept = np.zeros(len(coef), coef.dtype)
        if self.intercept is not None:
            intercept = check_array(
                self.intercept,
                dtype=coef.dtype,
                ensure_2d=False,
                input_name="intercept",
            )
        if intercept.shape != (len(coef),):
            raise ValueError(
                f"intercept has shape {intercept.shape}, expected ({len(coef)},): one "
                "value per row of coef."
            )
        n_classes = max(2, len(coef))  # one row is a binary margin
        classes = np.arange(n_classes)
        if self.classes is not None:
            classes = column_or_1d(self.classes)
        if len(np.unique(classes)) != n_classes or len(classes) != n_classes:
            raise ValueError(
                f"classes has {len(np.unique(classes))} distinct labels, but coef has "
                f"weights for {n_classes} classes."
            )
        return coef, intercept, classes

    def __sklearn_is_fitted__(self):
        return self.coef is not None or hasattr(self, "_fitted")

    def _weights(self):
        """Return coef, intercept and classes: as fitted, or else as given."""
        if hasattr(self, "_fitted"):
            return self._fitted
        if self.coef is None:
            raise AttributeError(
                f"This {type(self).__name__} has no weights yet: call 'fit', or give "
                "coef."
            )
        coef, intercept, classes = self._validated()
        if len(coef) == 1:
            head = symmetric_head(coef, intercept)
            return head.coef, head.intercept, classes
        return coef, intercept, classes

    def _validated(self):
        """Return the given weights, validated again only if others are given.

        They are stored outside of the estimator, whose state scoring does not change,
        and only where they are the given arrays, so that a change in place is not lost.
        """
        parameters = self.coef, self.intercept, self.classes
        if isinstance(self.classes, (list, tuple)):
            parameters = *parameters[:2], tuple(self.classes)
        known = _VALIDATED.get(self)
        if known is not None and _same(known[0], parameters):
            return known[1]
        weights = self._checked_weights()
        if all(_shares(a, b) for a, b in zip(parameters, weights, strict=True)):
            _VALIDATED[self] = parameters, weights
        return weights

    @property
    def coef_(self):
        """Weights, one row per class."""
        return self._weights()[0]

    @property
    def intercept_(self):
        """Biases, one per class."""
        return self._weights()[1]

    @property
    def classes_(self):
        """Class labels."""
        return self._weights()[2]

    @property
    def n_features_in_(self):
        """Number of features: of the data, or before `fit` of `coef`."""
        if hasattr(self, "_fitted"):
            return self._fitted[0].shape[1]
        shape = np.shape(self.coef)
        if len(shape) != 2:
            raise AttributeError(
                f"This {type(self).__name__} has no weights of shape (n_classes, "
                "n_features) yet: call 'fit', or give coef."
            )
        return shape[1]

    @n_features_in_.setter
    def n_features_in_(self, value):
        """Ignore the value set by `validate_data`: the weights determine it."""

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None):
        """Fit the weights, or check the given weights against the data.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Features.

        y : array-like of shape (n_samples,)
            Class labels.

        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights; given weights of the head do not depend on them.

        Returns
        -------
        self : object
            The fitted head.
        """
        with fresh_fit(self):
            self._fit(X, y, sample_weight)
        return self

    def _fit(self, X, y, sample_weight):
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32]
        )
        weight = check_weight(sample_weight, len(y))
        if weight is not None and not weight.all():
            X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        check_one_kind(y)
        check_classification_targets(y)
        if self.coef is None:
            if len(np.unique(y)) < 2:
                raise ValueError(
                    f"A linear head cannot be fitted on one class: y holds only "
                    f"{np.unique(y).tolist()} (n_samples = {len(y)}). Give samples of "
                    "at least two classes, or a head with weights."
                )
            model = LogisticRegression(max_iter=1000).fit(X, y, weight)
            head = symmetric_head(model.coef_, model.intercept_)
            self._fitted = (head.coef, head.intercept, model.classes_)
            return
        coef, intercept, classes = self._checked_weights()
        if X.shape[1] != coef.shape[1]:
            raise ValueError(
                f"X has {X.shape[1]} features, but coef has {coef.shape[1]} columns."
            )
        head = symmetric_head(coef, intercept)
        self._fitted = (head.coef, head.intercept, classes)

    def _checked_input(self, X):
        """Return X as a float array with the number of features of the weights."""
        X = to_numpy(X)
        if not hasattr(self, "_fitted") and type(X) is not np.ndarray:
            # given weights have no feature names
            X = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32])
        return new_samples(self, X, accept_sparse=True)

    def __skood_network__(self, *, layer="penultimate", device="auto", **options):
        require_penultimate(self, layer)
        network = LinearNetwork(self, device)
        network.features_are_hidden = True  # the input of a network's last layer
        network.coef, network.intercept, _ = self._weights()
        return network

    @blockwise
    def predict_logits(self, X):
        """Return the logits of each class.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Features.

        Returns
        -------
        logits : ndarray of shape (n_samples, n_classes)
            ``X @ coef_.T + intercept_``, in the precision of `X`.

        Raises
        ------
        ValueError
            If `X` is invalid, or a logit overflows.
        """
        if not self.__sklearn_is_fitted__():  # for the speed of small calls
            check_is_fitted(self)
        coef, intercept, _ = self._weights()
        X = self._checked_input(X)
        return linear_logits(X, coef, intercept)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _same(old, new):
    """Return whether parameters are the same objects; the classes may be in a list."""
    if old[0] is not new[0] or old[1] is not new[1]:
        return False
    if isinstance(old[2], tuple) and isinstance(new[2], tuple):
        # equal labels may be of other types
        return all(a is b for a, b in zip_longest(old[2], new[2]))
    return old[2] is new[2]


def _shares(parameter, used):
    """Return whether a change of a parameter in place changes the array `used`."""
    if parameter is None or isinstance(parameter, tuple):
        return True
    return isinstance(parameter, np.ndarray) and np.may_share_memory(parameter, used)


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
        else the device of the weights of the network.

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
            sample = take_rows(X, np.arange(min(1, n_rows(X))))
            Z = network.outputs(sample, self._needs).features
            self._n_features_out = Z.shape[1]
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
        """Return what is computed, see `Network.outputs`."""
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

    def _read(self, X, stays=False):
        network = make_network(self.estimator_, **self._network_options)
        network.core.returns_tensors = stays and network.memory is None
        Z = network.outputs(X, self._needs).features
        # Shared results are read-only, but the next step may write to its input.
        if issparse(Z):
            return Z.copy()
        return Z if is_tensor(Z) or Z.flags.writeable else Z.copy(order="K")

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

    @takes_input
    def _transform_tensor(self, X):
        """Return the features of `transform` where the network computes them."""
        return self._read(X, stays=True)

    def __sklearn_tags__(self):
        tags = wrapped_tags(super().__sklearn_tags__(), self.estimator)
        tags.transformer_tags.preserves_dtype = []
        return tags


def split(estimator, layer="penultimate"):
    """Split a fitted classifier into a frozen body and a frozen head.

    Several detectors then share one feature extraction: compute ``Z =
    body.transform(X)`` once, and give each detector the features, and the head where it
    needs one.

    Parameters
    ----------
    estimator : object
        A fitted classifier that ends in a linear layer: a scikit-learn linear
        model, an `MLPClassifier`, a `Pipeline` ending in one, a skorch net, a
        `TorchClassifier`, or a module wrapped by `pretrained`.

    layer : str, default="penultimate"
        Where to split a torch network: "penultimate" is the input of the
        ``torch.nn.Linear`` that gives the logits, "input:NAME" the input of the one
        called NAME, whether or not it gives the logits. A network of unknown input
        shape (a skorch net, or `pretrained` without `input_shape`) needs the name if
        several of its linear layers have one output per class; if only one has, the
        body raises at run time if the logits are not the output of the head.

    Returns
    -------
    body : FrozenEstimator
        A fitted `FeatureExtractor`.

    head : FrozenEstimator
        A fitted `LinearHead` on the features of `body`.

    Raises
    ------
    ValueError
        If there is no linear head at that layer.

    See Also
    --------
    FeatureExtractor : The body.
    LinearHead : The head.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.neural_network import MLPClassifier
    >>> from skood.detectors import MSP, KNN
    >>> from skood.nn import split
    >>> X, y = load_digits(return_X_y=True)
    >>> net = MLPClassifier(random_state=0, max_iter=50).fit(X / 16, y)
    >>> body, head = split(net)
    >>> Z = body.transform(X / 16)
    >>> Z.shape
    (1797, 100)
    >>> msp = MSP(estimator=head).fit(Z, y)
    >>> knn = KNN(n_neighbors=10, normalize=True).fit(Z, y)
    """
    weights, place = make_network(estimator, layer=layer).find_head()
    frozen = FrozenEstimator(estimator)
    body = FeatureExtractor(frozen, layer=place)
    body.estimator_ = frozen
    body._n_features_out = weights.coef.shape[1]
    if layer == "penultimate":
        body._checks_head = True
    copy_input_attributes(body, estimator)
    classes = getattr(estimator, "classes_", None)
    head = LinearHead(weights.coef, weights.intercept, classes)
    return FrozenEstimator(body), FrozenEstimator(head)
