"""Multi-output classifier with a shared body and one head per label column."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import weakref

import numpy as np
from scipy.special import softmax
from sklearn.base import (
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_consistent_length
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skood.nn._base_torch_estimator import BaseTorchEstimator
from skood.nn._logits import LogitsMixin
from skood.nn._multi_head_network import (
    HeadClassifier,
    MultiHeadFactory,
    MultiHeadNet,
)
from skood.nn._multioutput_labels import LabelColumns
from skood.utils._batches import blockwise
from skood.utils._labels import label_codes
from skood.utils._param_validation import StrOptions


def _has_one_head(estimator):
    if getattr(estimator, "n_outputs_", 1) > 1:
        raise AttributeError(
            "decision_function is available for one column of labels only. Use "
            "predict_logits(X), or head(k).decision_function(X)."
        )
    return True


class MultiHeadClassifier(
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    ClassifierMixin,
    LabelColumns,
    BaseTorchEstimator,
):
    r"""Network with one body and a linear head per column of labels.

    The columns of `y` are labels of different kinds for the same samples, such as the
    class, the color and the shape of a traffic sign. A shared body maps samples to
    features, and a linear head for each column maps features to logits. Body and heads
    are trained together, as :class:`TorchClassifier` trains a network, on the weighted
    mean of the heads' losses. With one column it is a `TorchClassifier`.

    Read more in the :ref:`User Guide <multi_head>`.

    Parameters
    ----------
    module : callable, default=None
        Class or factory of the body, called as ``module(input_shape, **module_params)``
        with the shape of one sample. It returns features of shape (n_samples, ...),
        which are flattened. None: the default network of `TorchClassifier` without its
        last layer.

    module_params : dict, default=None
        Further arguments of `module`; see `TorchClassifier` for the arguments of the
        default networks.

    head_weights : array-like of shape (n_outputs,), dict or None, default=None
        Weights of the heads' losses, which need not sum to anything; a dict maps column
        names to weights, with weight 1 for omitted columns. None: equal.

    criterion : callable, default=None
        The loss, called as ``criterion(logits, codes)`` for each head; returns the
        losses of the samples. None: the cross-entropy.

    max_epochs : int, default=200
        Number of passes over the training samples; with early stopping at most.

    lr : float, default=1e-3
        Learning rate, the start of a schedule.

    batch_size : int, default=128
        Number of samples per training step.

    training : TrainingOptions, default=None
        Optimizer, weight decay, learning rate schedule and early stopping, see
        :class:`TrainingOptions`; validation samples are stratified by their combination
        of labels. None: as in `TorchClassifier`.

    class_weight : {"balanced"}, dict, list or None, default=None
        Weights of the classes, multiplied with `sample_weight`. For several columns, a
        list with one of these values for each: a class weight acts on the loss of its
        head only. "balanced" gives each class of a column the same total weight.

    random_state : int, RandomState instance or None, default=None
        Seed of the initial weights, the order of the samples, dropout and the held-out
        samples.

    device : {"auto"}, str or torch.device, default="auto"
        Device to train on: "auto" is CUDA if available, else the CPU.

    verbose : int, default=0
        1 shows a progress bar over the epochs.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,) or list of such arrays
        Class labels, sorted; with several columns a list, one array for each.

    n_outputs_ : int
        Number of columns of `y`.

    target_names_ : ndarray of shape (n_outputs,)
        Names of the columns. Defined if `y` is a data frame whose columns are named by
        strings.

    input_shape_ : tuple of int
        Shape of one sample.

    n_features_in_ : int
        Length of the second axis of `X`: features, or channels.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, only if all of them are strings.

    net_ : skorch.NeuralNetClassifier
        The trained net. It returns the logits of all heads side by side.

    module_ : torch.nn.Module
        The trained network with its parts `body` and `heads`, in eval mode.

    n_iter_ : int
        Number of epochs trained.

    history_ : list of dict
        Results of each epoch, see `TorchClassifier`. `valid_accuracy` is the
        exact-match ratio, the fraction of samples for which all labels are correct.

    See Also
    --------
    TorchClassifier : A network for one column of labels.
    sklearn.multioutput.MultiOutputClassifier : A separate classifier for each column.

    Notes
    -----
    With :math:`z(x; \theta)` the features, :math:`l_k = W_k z + b_k` the logits of
    head k and :math:`w_{ik}` the product of sample and class weight, training
    minimizes

    .. math::

        \sum_k a_k \frac{\sum_i w_{ik} \, \ell(l_k(x_i), y_{ik})}{\sum_i w_{ik}}
        + \frac{\lambda}{2} \|\theta, W, b\|^2

    where :math:`a_k` are the `head_weights` scaled to a sum of one, :math:`\ell` is the
    cross-entropy or the `criterion`, and :math:`\lambda` is the weight decay: hard
    parameter sharing [1]_. Seeds, interrupts, pickles and precision are as in
    `TorchClassifier`.

    References
    ----------
    .. [1] R. Caruana, "Multitask Learning", Machine Learning 28, 41-75, 1997.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from skood.detectors import Energy
    >>> from skood.nn import MultiHeadClassifier
    >>> X, digit = load_digits(return_X_y=True)
    >>> y = np.column_stack([digit, digit % 2, digit < 5])
    >>> clf = MultiHeadClassifier(max_epochs=10, lr=0.01, random_state=0).fit(X / 16, y)
    >>> clf.predict(X[:3] / 16)
    array([[0, 0, 1],
           [1, 1, 1],
           [2, 0, 1]])
    >>> [proba.shape for proba in clf.predict_proba(X / 16)]
    [(1797, 10), (1797, 2), (1797, 2)]

    A detector uses one head and the shared body:

    >>> Energy(clf.head(0)).fit(X / 16).score_samples(X[:3] / 16).shape
    (3,)
    """

    _parameter_constraints = {
        **BaseTorchEstimator._parameter_constraints,
        "head_weights": ["array-like", dict, None],
        "class_weight": [StrOptions({"balanced"}), dict, list, None],
    }

    _net_kind = MultiHeadNet

    def __init__(
        self,
        module=None,
        *,
        module_params=None,
        head_weights=None,
        criterion=None,
        max_epochs=200,
        lr=1e-3,
        batch_size=128,
        training=None,
        class_weight=None,
        random_state=None,
        device="auto",
        verbose=0,
    ):
        super().__init__(
            module,
            module_params=module_params,
            criterion=criterion,
            max_epochs=max_epochs,
            lr=lr,
            batch_size=batch_size,
            training=training,
            class_weight=class_weight,
            random_state=random_state,
            device=device,
            verbose=verbose,
        )
        self.head_weights = head_weights

    def fit(self, X, y, sample_weight=None):
        """Build a network for the data and train it.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Input samples.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Labels; the columns of a data frame are named and may be of different kinds.
            A single column is the same as 1-D labels.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights, which need not sum to anything.

        Returns
        -------
        self : MultiHeadClassifier
            The fitted classifier.

        Raises
        ------
        ValueError
            If a label is missing, or a column has less than two classes.
        """
        return super().fit(X, y, sample_weight=sample_weight)

    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Train for one epoch, starting from the current weights.

        The first call without a preceding `fit` builds the network.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Input samples, of the same shape as in the first call.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Labels.

        classes : array-like of shape (n_classes,) or list of such, default=None
            All classes that can occur; for several columns a list, one array for each.
            Required in the first call.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights, relative to each other.

        Returns
        -------
        self : MultiHeadClassifier
            The fitted classifier.
        """
        return super().partial_fit(X, y, classes=classes, sample_weight=sample_weight)

    # --- training ------------------------------------------------------------

    def _n_logits(self):
        return sum(len(classes) for classes in self._each())

    def _module_factory(self):
        return MultiHeadFactory(self.module, [len(one) for one in self._each()])

    # --- prediction ----------------------------------------------------------

    def predict_logits(self, X):
        """Return the logits of the heads.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Input samples.

        Returns
        -------
        logits : ndarray of shape (n_samples, n_classes) or list of such arrays
            Logits as float64; with several columns a list, one array for each.
        """
        logits = self._outputs(X)
        if self.n_outputs_ == 1:
            return logits
        stops = np.cumsum([len(classes) for classes in self.classes_])[:-1]
        return np.split(logits, stops, axis=1)

    @available_if(_has_one_head)
    def decision_function(self, X):
        """Return the logits, or the difference for two classes; for one column only.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Input samples.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            Larger for the class; with two classes, above zero means ``classes_[1]``.
        """
        return LogitsMixin.decision_function(self, X)

    def predict_proba(self, X):
        """Return the softmax of the logits of each head.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Input samples.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes) or list of such arrays
            Probability of each class, in the order of `classes_`; with several columns
            a list, one array for each.
        """
        logits = self.predict_logits(X)
        if self.n_outputs_ == 1:
            return softmax(logits, axis=1)
        return [softmax(of_head, axis=1) for of_head in logits]

    def predict(self, X):
        """Return the classes with the largest logit.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Input samples.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Labels. Columns of different kinds give an array of objects.
        """
        codes = self._codes(X)
        columns = [
            classes[of_head]
            for classes, of_head in zip(self._each(), codes, strict=True)
        ]
        if len(columns) == 1:
            return columns[0]
        if len({column.dtype.kind for column in columns}) > 1:
            columns = [column.astype(object) for column in columns]
        return np.column_stack(columns)

    def _codes(self, X):
        """Return the predicted class indices of each head."""
        logits = self.predict_logits(X)
        each = [logits] if self.n_outputs_ == 1 else logits
        return [of_head.argmax(axis=1) for of_head in each]

    def score(self, X, y, sample_weight=None):
        """Return the accuracy, for several columns the exact-match ratio.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Input samples.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            True labels. A label that did not occur in `fit` is never predicted.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        Returns
        -------
        accuracy : float
            With one column the accuracy. With several, the fraction of samples for
            which all labels are predicted, as in
            :class:`~sklearn.multioutput.MultiOutputClassifier`.
        """
        codes = self._codes(X)
        columns = self._columns(y, reset=False)
        check_consistent_length(codes[0], columns[0], sample_weight)
        hits = [
            label_codes(column, classes) == of_head
            for column, classes, of_head in zip(
                columns, self._each(), codes, strict=True
            )
        ]
        return float(np.average(np.all(hits, axis=0), weights=sample_weight))

    @blockwise
    def transform(self, X):
        """Return the features of the body, the input of all heads.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Input samples.

        Returns
        -------
        Z : ndarray of shape (n_samples, n_features_out)
            Output of the body, flattened, as float64.
        """
        X = self._prepare_input(X)
        return self._forward(X, self.module_.features, what="features")

    @property
    def _n_features_out(self):
        return self.module_.heads[0].in_features

    def head(self, column):
        """Return one head with the body, as a fitted single-output classifier.

        It can be used like any classifier by detectors, :func:`skood.nn.split` and
        :class:`skood.nn.FeatureExtractor`. No weights are copied: `partial_fit` of this
        classifier continues to train them, and another `fit` makes new weights and
        leaves the weights of the head unchanged. Heads that are pickled together
        contain the network once.

        Parameters
        ----------
        column : int or str
            Index or name of the column.

        Returns
        -------
        estimator : FrozenEstimator
            With ``classes_``, ``predict``, ``predict_proba``, ``decision_function`` and
            ``predict_logits`` of the head; ``clone`` returns it unchanged. To run the
            network once for several detectors in a block of shared outputs, pass all
            of them the same object.

        Raises
        ------
        ValueError
            If there is no such column.
        """
        check_is_fitted(self)
        number = self._number(column)
        return FrozenEstimator(HeadClassifier(self._shared_copy(), number))

    def _shared_copy(self):
        """Return a copy of the fitted classifier that shares its network.

        All heads get the same copy, stored weakly, until parameters or the network
        change: so pickles contain it once.
        """
        state = {k: v for k, v in vars(self).items() if k != "_copy_of_heads"}
        copied = getattr(self, "_copy_of_heads", lambda: None)()
        if copied is not None and vars(copied).keys() == state.keys():
            if all(value is state[name] for name, value in vars(copied).items()):
                return copied
        copied = object.__new__(type(self))
        copied.__dict__.update(state)
        self._copy_of_heads = weakref.ref(copied)
        return copied

    def __getstate__(self):
        state = super().__getstate__()
        state.pop("_copy_of_heads", None)
        return state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.classifier_tags.multi_label = True
        tags.transformer_tags.preserves_dtype = []
        return tags
