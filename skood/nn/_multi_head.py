"""Multi-output classifier with a shared body and one head per label column."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import weakref
from numbers import Integral
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.base import (
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from skood.nn._base_torch_estimator import BaseTorchEstimator
from skood.nn._logits import LogitsMixin
from skood.nn._multi_head_network import (
    HeadClassifier,
    HeadSamples,
    MultiHeadFactory,
    MultiHeadNet,
)
from skood.nn._training_data import (
    check_same_classes,
    check_target,
    check_two_classes,
    class_codes,
    normalized,
    with_class_weight,
)
from skood.utils._batches import blockwise
from skood.utils._labels import (
    check_label_columns,
    check_labels,
    label_codes,
    plain_labels,
)
from skood.utils._param_validation import StrOptions
from skood.utils._torch import to_numpy
from skood.utils._weights import check_weight


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

    classes_: Any
    n_outputs_: int
    target_names_: np.ndarray

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
        return MultiHeadFactory(self.module, [len(labels) for labels in self._each()])

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

    # --- several columns of labels --------------------------------------------------

    def _each(self):
        """Return the classes of each column."""
        return [self.classes_] if self.n_outputs_ == 1 else self.classes_

    def _names(self):
        """Return the names of the columns, or their numbers if they have none."""
        return getattr(self, "target_names_", np.arange(self.n_outputs_)).tolist()

    def _number(self, column):
        """Return the index of a column that is given by its name or index."""
        names = self._names()
        if column in names:
            return names.index(column)
        if isinstance(column, Integral) and int(column) in range(
            -len(names), len(names)
        ):
            return int(column) % len(names)
        raise ValueError(
            f"There is no column {column!r} of y: give one of {names}, or a number in "
            f"[{-len(names)}, {len(names) - 1}]."
        )

    # --- y -------------------------------------------------------------------

    def _columns(self, y, reset):
        """Return the columns of `y`, a list of label arrays without missing values."""
        if y is None:
            return [check_target(y, self)]  # raises
        names = getattr(y, "columns", None)
        names = None if names is None else list(names)
        shape: tuple = getattr(y, "shape", ())
        if len(shape) == 2 and shape[1] == 0:
            raise ValueError(
                f"y has no columns, shape {tuple(shape)}: {type(self).__name__} needs "
                "at least one column of labels."
            )
        if len(shape) == 2 and shape[1] == 1:
            y = plain_labels(np.ravel(to_numpy(y)))
        try:
            y = check_label_columns(y)
        except ValueError as error:
            if "contains NaN" not in str(error):
                raise
            raise ValueError(
                f"{error} Each sample needs a label in every column: leave the others "
                "out."
            ) from error
        columns = [y] if y.ndim == 1 else [plain_labels(column) for column in y.T]
        self._check_outputs(len(columns), names, reset)
        return columns

    def _check_outputs(self, n_outputs, names, reset):
        """Store the number and names of the columns, or compare them."""
        if names is not None and not all(isinstance(name, str) for name in names):
            names = None
        if reset:
            if names is not None and len(set(names)) < len(names):
                raise ValueError(f"The columns of y must differ in name, got {names}.")
            self.n_outputs_ = n_outputs
            if names is not None:
                self.target_names_ = np.array(names, dtype=object)
            return
        if n_outputs != self.n_outputs_:
            raise ValueError(
                f"y has {n_outputs} column(s), but {type(self).__name__} was fitted on "
                f"{self.n_outputs_}."
            )
        known = getattr(self, "target_names_", None)
        if names is not None and known is not None and names != known.tolist():
            raise ValueError(
                f"y has the columns {names}, but {type(self).__name__} was fitted on "
                f"{known.tolist()}, in this order."
            )

    def _targets(self, y, reset):
        """Return the columns of `y`; raise if their labels cannot be learned."""
        columns = self._columns(y, reset)
        if self.n_outputs_ == 1:
            return [check_target(columns[0], self)]
        for name, column in zip(self._names(), columns, strict=True):
            if column.dtype.kind == "O":
                kinds = sorted({type(label).__name__ for label in column})
                raise ValueError(
                    f"The labels in column {name!r} of y are of several kinds: "
                    f"{', '.join(kinds)}. Make them all of one, and leave samples out "
                    "that are labeled as OOD."
                )
            try:
                check_classification_targets(column)
            except ValueError as error:
                raise ValueError(f"Column {name!r} of y: {error}") from error
        return columns

    # --- the classes given to partial_fit ---------------------------------------

    def _learn_classes(self, classes, y):
        if len(self._columns(y, reset=True)) == 1:
            super()._learn_classes(classes, y)
            return
        self._check_class_lists(classes)
        of_columns = [
            np.unique(check_labels(column_classes, "classes"))
            for column_classes in classes
        ]
        if min(len(labels) for labels in of_columns) < 2:
            raise ValueError(
                f"At least two classes are needed for each column, got {classes!r}."
            )
        self.classes_ = of_columns

    def _check_classes_again(self, classes):
        if self.n_outputs_ == 1 or classes is None:
            super()._check_classes_again(classes)
            return
        self._check_class_lists(classes)
        for column_classes, known in zip(classes, self.classes_, strict=True):
            check_same_classes(column_classes, known)

    def _check_class_lists(self, classes):
        """Raise if there is not one list of labels for each of several columns."""
        if (
            not isinstance(classes, (list, tuple))
            or len(classes) != self.n_outputs_
            or any(np.ndim(column_classes) != 1 for column_classes in classes)
        ):
            raise ValueError(
                f"y has {self.n_outputs_} columns: classes must be a list of as many "
                f"arrays of labels, got {classes!r}."
            )

    def _check_partial_options(self, options):
        super()._check_partial_options(options)
        if isinstance(self.class_weight, list) and "balanced" in self.class_weight:
            raise ValueError(
                "class_weight='balanced' needs all the data, which partial_fit does "
                "not see: pass the weights as dicts."
            )

    # --- training samples -------------------------------------------------------

    def _new_samples(self, X, y, sample_weight):
        columns = self._targets(y, reset=True)
        weights = self._class_weights(), self._factors()
        if self.n_outputs_ == 1:
            return super()._new_samples(X, columns[0], sample_weight)
        self.classes_ = [np.unique(column) for column in columns]
        samples = self._head_samples(X, columns, sample_weight, *weights)
        for k, name in enumerate(self._names()):
            codes = samples.codes[samples.weight[:, k] > 0, k]
            check_two_classes(codes, self.classes_[k], self, f" in column {name!r}")
        return samples

    def _samples_of_known_classes(self, X, y, sample_weight):
        columns = self._targets(y, reset=False)
        weights = self._class_weights(), self._factors()
        if self.n_outputs_ == 1:
            return super()._samples_of_known_classes(X, columns[0], sample_weight)
        return self._head_samples(X, columns, sample_weight, *weights)

    def _head_samples(self, X, columns, sample_weight, class_weights, factors):
        """Join samples, class indices and weights; leave out samples of weight zero."""
        check_consistent_length(X, columns[0])
        weight_of_samples = check_weight(sample_weight, len(columns[0]), default=1)
        codes = [
            class_codes(column, classes)
            for column, classes in zip(columns, self.classes_, strict=True)
        ]
        weights = [
            with_class_weight(weight_of_samples, *of_head)
            for of_head in zip(class_weights, codes, self.classes_, strict=True)
        ]
        for name, weight in zip(self._names(), weights, strict=True):
            if not weight.any():
                raise ValueError(
                    f"class_weight={self.class_weight!r} leaves only samples of weight "
                    f"zero for column {name!r} of y."
                )
        samples = HeadSamples(
            X, np.column_stack(codes), np.column_stack(weights), factors
        )
        used = np.flatnonzero(samples.weight.any(axis=1))
        return samples if len(used) == len(samples) else samples.subset(used)

    # --- weights ---------------------------------------------------------------

    def _class_weights(self):
        """Return the class weights of each column."""
        class_weight, n_outputs = self.class_weight, self.n_outputs_
        if class_weight is None or isinstance(class_weight, str):
            return [class_weight] * n_outputs
        if n_outputs == 1 and isinstance(class_weight, dict):
            return [class_weight]
        if (
            n_outputs == 1
            or not isinstance(class_weight, list)
            or len(class_weight) != n_outputs
            or not all(
                column_weight is None
                or column_weight == "balanced"
                or isinstance(column_weight, dict)
                for column_weight in class_weight
            )
        ):
            expected = (
                "'balanced', a dict or None"
                if n_outputs == 1
                else f"'balanced', None or a list of {n_outputs} of 'balanced', a dict "
                "or None"
            )
            raise ValueError(
                f"class_weight must be {expected}, because y has {n_outputs} "
                f"column(s); got {class_weight!r}."
            )
        return class_weight

    def _factors(self):
        """Return the weights of the heads, scaled to a mean of one."""
        weights, names = self.head_weights, self._names()
        if weights is None:
            return np.ones(len(names))
        if isinstance(weights, dict):
            unknown = [name for name in weights if name not in names]
            if unknown:
                raise ValueError(
                    f"head_weights has weights of {unknown}, but the columns of y are "
                    f"{names}."
                )
            weights = [weights.get(name, 1.0) for name in names]
        weights = check_array(
            weights, ensure_2d=False, dtype=np.float64, input_name="head_weights"
        )
        if weights.shape != (len(names),) or weights.min() <= 0:
            raise ValueError(
                f"head_weights must be {len(names)} numbers above zero, one for each "
                f"column of y; got {self.head_weights!r}."
            )
        return normalized(weights)
