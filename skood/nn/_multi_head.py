"""A classifier of several columns of labels: one body, and a head for each."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from scipy.special import softmax
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_consistent_length
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skood.nn._classifier import TorchClassifier
from skood.nn._heads import MultiHeadFactory, MultiHeadNet
from skood.nn._multioutput_labels import LabelColumns
from skood.nn._one_head import HeadClassifier, copy_with_same_net
from skood.utils._batches import blockwise
from skood.utils._labels import label_codes
from skood.utils._param_validation import StrOptions

__all__ = ["MultiHeadClassifier"]


def _has_one_head(estimator):
    if getattr(estimator, "n_outputs_", 1) > 1:
        raise AttributeError(
            "decision_function is there for one column of labels only. Use "
            "predict_logits(X), or head(k).decision_function(X)."
        )
    return True


class MultiHeadClassifier(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, LabelColumns, TorchClassifier
):
    r"""A network with one body and a linear head per column of labels.

    The columns of `y` are labels of different kinds for the same rows, such as the
    class, the color and the shape of a traffic sign. A body, which all of them share,
    turns rows into features, and a linear head for each column turns features into
    logits. Body and heads are trained together, as :class:`TorchClassifier` trains a
    network, on the weighted mean of the heads' losses. With one column it is a
    `TorchClassifier`.

    Read more in the :ref:`User Guide <multi_head>`.

    Parameters
    ----------
    module : callable, default=None
        Class or factory of the body, called as ``module(input_shape,
        **module_params)`` with the shape of one row. It returns features of shape
        (n_samples, ...), which are flattened. None: the default network of
        `TorchClassifier` without its last layer.

    module_params : dict, default=None
        Further arguments of `module`; those of the default ones are said at
        `TorchClassifier`.

    head_weights : array-like of shape (n_outputs,), dict or None, default=None
        Weights of the heads' losses, which need not sum to anything; a dict maps
        names of columns to them, and those that it leaves out have 1. None: equal.

    criterion : callable, default=None
        The loss, called as ``criterion(logits, codes)`` for each head; returns the
        losses of the rows. None: the cross-entropy.

    max_epochs : int, default=200
        Number of passes over the training rows; with early stopping at most.

    lr : float, default=1e-3
        Learning rate, which `lr_schedule` starts from.

    batch_size : int, default=128
        Rows per training step.

    optimizer : {"adam", "adamw", "sgd"}, default="adam"
        The optimizer. "sgd" has a momentum of 0.9.

    weight_decay : float, default=0.0
        Strength of the penalty on all parameters.

    lr_schedule : {"cosine", "step", "one_cycle"} or None, default=None
        How `fit` changes the learning rate, see `TorchClassifier`.

    early_stopping : bool, default=False
        Hold out validation rows, stop when their loss no longer falls, and
        return to the weights with the smallest validation loss.

    validation_fraction : float, default=0.1
        Share of the rows held out, stratified by their combination of labels.

    n_iter_no_change : int, default=10
        Early stopping waits for this many epochs without a gain of `tol`.

    tol : float, default=1e-4
        The gain in validation loss that counts.

    class_weight : {"balanced"}, dict, list or None, default=None
        Weights of the classes, which multiply `sample_weight`. For several columns a
        list with one of the others for each: a class weight acts on the loss of its
        head only. "balanced" gives each class of a column the same total weight.

    random_state : int, RandomState instance or None, default=None
        Seeds the initial weights, the order of the rows, dropout and the held-out
        rows.

    device : {"auto"}, str or torch.device, default="auto"
        Where to train: "auto" is CUDA if there is one, else the CPU.

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
        Shape of one row.

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
        What each epoch did, see `TorchClassifier`. `valid_accuracy` is the share of
        rows of which all labels are right.

    See Also
    --------
    TorchClassifier : A network for one column of labels.
    sklearn.multioutput.MultiOutputClassifier : A classifier of its own for each column.

    Notes
    -----
    With :math:`z(x; \theta)` the features, :math:`l_k = W_k z + b_k` the logits of
    head k and :math:`w_{ik}` the product of sample and class weight, training
    minimizes

    .. math::

        \sum_k a_k \frac{\sum_i w_{ik} \, \ell(l_k(x_i), y_{ik})}{\sum_i w_{ik}}
        + \frac{\lambda}{2} \|\theta, W, b\|^2

    where :math:`a_k` are the `head_weights` scaled to a sum of one, :math:`\ell` is the
    cross-entropy or the `criterion`, and :math:`\lambda` is `weight_decay`: hard
    parameter sharing [1]_. All else is as for `TorchClassifier`: seeds, interrupts,
    pickles, precision.

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

    A detector reads one head, and the body below it:

    >>> Energy(clf.head(0)).fit(X / 16).score_samples(X[:3] / 16).shape
    (3,)
    """

    _parameter_constraints = {
        "module": [callable, None],
        "module_params": [dict, None],
        "head_weights": ["array-like", dict, None],
        **{
            name: constraint
            for name, constraint in TorchClassifier._parameter_constraints.items()
            if name not in ("module", "module_params")
        },
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
        optimizer="adam",
        weight_decay=0.0,
        lr_schedule=None,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        tol=1e-4,
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
            optimizer=optimizer,
            weight_decay=weight_decay,
            lr_schedule=lr_schedule,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            tol=tol,
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
            Rows.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Labels; a data frame names its columns, which may be of different kinds.
            One column is the same as none: labels then are 1-D.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, which need not sum to anything.

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
        """Train for one epoch, from where the network stands.

        The first call, without a `fit` before, builds the network.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Rows, shaped as in the first call.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Labels.

        classes : array-like of shape (n_classes,) or list of such, default=None
            All classes there will be; for several columns a list, one for each.
            Required in the first call.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, relative to each other.

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
        """Logits of the heads.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Rows.

        Returns
        -------
        logits : ndarray of shape (n_samples, n_classes) or list of such arrays
            Logits as float64; with several columns a list, one array for each.
        """
        logits = super().predict_logits(X)
        if self.n_outputs_ == 1:
            return logits
        stops = np.cumsum([len(classes) for classes in self.classes_])[:-1]
        return np.split(logits, stops, axis=1)

    @available_if(_has_one_head)
    def decision_function(self, X):
        """Logits, or for two classes the second minus the first; of one column only.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Rows.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            High for the class; for two classes above zero is ``classes_[1]``.
        """
        return super().decision_function(X)

    def predict_proba(self, X):
        """Softmax of the logits of each head.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Rows.

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
        """Classes with the largest logit.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Rows.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Labels. Columns of different kinds make an array of objects.
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
        """Return the predicted class numbers of each head."""
        logits = self.predict_logits(X)
        each = [logits] if self.n_outputs_ == 1 else logits
        return [of_head.argmax(axis=1) for of_head in each]

    def score(self, X, y, sample_weight=None):
        """Share of the rows of which all labels are predicted.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Rows.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            True labels. One that was not there in `fit` is never predicted.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        accuracy : float
            With one column the accuracy, with several the exact-match ratio, as of
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
        """Features of the body, which all heads read.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Rows.

        Returns
        -------
        Z : ndarray of shape (n_samples, n_features_out)
            What the body returns, flattened, as float64.
        """
        X = self._prepare_input(X)
        return self._forward(X, self.module_.features, what="features")

    @property
    def _n_features_out(self):
        return self.module_.heads[0].in_features

    def head(self, column):
        """One head with the body, as a fitted classifier of one column of labels.

        What reads classifiers reads it: detectors, :func:`skood.nn.split`,
        :class:`skood.nn.FeatureExtractor`. No weights are copied: `partial_fit` of this
        classifier goes on to train them, and another `fit` makes new ones and leaves
        those of the head alone. Heads that are pickled together hold the network once.

        Parameters
        ----------
        column : int or str
            Number or name of the column.

        Returns
        -------
        estimator : FrozenEstimator
            With ``classes_``, ``predict``, ``predict_proba``, ``decision_function`` and
            ``predict_logits`` of the head; ``clone`` returns it unchanged. To have the
            network run once for several detectors in a block of shared readings, give
            all of them the same object.

        Raises
        ------
        ValueError
            If there is no such column.
        """
        check_is_fitted(self)
        number = self._number(column)
        return FrozenEstimator(HeadClassifier(copy_with_same_net(self), number))

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
