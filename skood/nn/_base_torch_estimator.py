"""Base class of estimators that train a torch network."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from skood.nn._training import (
    TrainingNet,
    forward,
    restore_net,
    restored_on_error,
    state_to_numpy,
)
from skood.nn._training_data import (
    check_same_classes,
    check_target,
    check_two_classes,
    class_codes,
    stratified_split,
    weighted_samples,
)
from skood.nn._training_options import TrainingOptions, training_options
from skood.utils._atomic_fit import fresh_fit
from skood.utils._batches import blockwise, is_torch_data
from skood.utils._estimator import SkoodEstimator
from skood.utils._input import is_float_matrix, is_shaped_as_fitted
from skood.utils._labels import check_labels
from skood.utils._param_validation import Interval, StrOptions, fit_context
from skood.utils._progress import progress
from skood.utils._torch import check_tensor, is_tensor, resolve_device, training


class BaseTorchEstimator(SkoodEstimator):
    """Base class of estimators that build and train a torch network in `fit`.

    A subclass predicts from ``_outputs``, and may override the hooks that follow from
    the form of `y`, which by default are for class labels, and ``_net_kind``,
    ``_n_logits`` and ``_module_factory``.
    """

    _parameter_constraints: dict = {
        "module": [callable, None],
        "module_params": [dict, None],
        "criterion": [callable, None],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "lr": [Interval(Real, 0, None, closed="neither")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "training": [TrainingOptions, None],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "random_state": ["random_state"],
        "device": [str, torch.device],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        module=None,
        *,
        module_params=None,
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
        self.module = module
        self.module_params = module_params
        self.criterion = criterion
        self.max_epochs = max_epochs
        self.lr = lr
        self.batch_size = batch_size
        self.training = training
        self.class_weight = class_weight
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None):
        """Build a network for the data and train it.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Samples: vectors, images (n_samples, channels, height, width), or arrays of
            any shape that `module` takes.

        y : array-like of shape (n_samples,)
            Targets: class labels, or numbers for a regressor.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights, which need not sum to anything.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        with fresh_fit(self):
            options = training_options(self)
            X = self._check_samples(X, reset=True)
            samples = self._new_samples(X, y, sample_weight)
            self._fit_new(samples, self.max_epochs, options)
        return self

    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Train for one epoch, starting from the current weights.

        The first call without a preceding `fit` builds the network.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Input samples, of the same shape as in the first call.

        y : array-like of shape (n_samples,)
            Class labels.

        classes : array-like of shape (n_classes,), default=None
            All classes that can occur. Required in the first call.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights, relative to each other.

        Returns
        -------
        self : object
            The fitted classifier.
        """
        options = training_options(self).set_params(lr_schedule=None)
        self._check_partial_options(options)
        if hasattr(self, "classes_"):
            self._check_classes_again(classes)
            X = self._check_samples(X, reset=False)
            samples = self._samples_of_known_classes(X, y, sample_weight)
            self._train_on(samples, options)
            return self
        if classes is None:
            raise ValueError(
                "classes must be passed on the first call to partial_fit: all labels "
                "that y will ever have."
            )
        with fresh_fit(self):
            self._learn_classes(classes, y)
            X = self._check_samples(X, reset=True)
            samples = self._samples_of_known_classes(X, y, sample_weight)
            self._fit_new(samples, 1, options)
        return self

    def _check_partial_options(self, options):
        """Raise if an option needs all the data."""
        if options.early_stopping:
            raise ValueError(
                "partial_fit trains for one epoch and cannot stop early: set "
                "early_stopping=False."
            )
        if isinstance(getattr(self, "class_weight", None), str):
            raise ValueError(
                "class_weight='balanced' needs all the data, which partial_fit does "
                "not see: pass the weights as a dict."
            )

    # --- checks of the input -------------------------------------------------

    def _check_samples(self, X, reset):
        """Return `X` as a finite float32 array or tensor of the right shape."""
        if is_torch_data(X):
            raise TypeError(
                f"{type(self).__name__} is trained on arrays, got a "
                f"{type(X).__name__}. Train the module in a loop of your own, or by "
                "skorch, and wrap it with skood.nn.pretrained, which accepts torch "
                "datasets and loaders."
            )
        if (
            not reset
            and is_shaped_as_fitted(self, X)
            and X.shape[1:] == self.input_shape_
        ):
            with np.errstate(over="ignore"):
                array = X.astype(np.float32, copy=False)
            if is_float_matrix(array):  # for small calls
                return array
        if is_tensor(X):
            array = check_tensor(X)
        else:
            with np.errstate(over="ignore"):  # overflow is reported as infinite below
                array = check_array(
                    X, dtype=np.float32, allow_nd=True, input_name="X", estimator=self
                )
        shape = tuple(array.shape[1:])
        if reset:
            self.input_shape_: tuple = shape
        elif shape != self.input_shape_ and len(shape + self.input_shape_) > 2:
            raise ValueError(
                f"X has samples of shape {shape}, but {type(self).__name__} was fitted "
                f"on samples of shape {self.input_shape_}."
            )
        # feature names and their number are taken from the caller's input
        validate_data(self, X, reset=reset, skip_check_array=True)
        return array

    def _new_samples(self, X, y, sample_weight):
        """Set `classes_` and return the training samples."""
        self.classes_, codes = np.unique(check_target(y, self), return_inverse=True)
        samples = weighted_samples(
            X, codes, sample_weight, self.class_weight, self.classes_
        )
        check_two_classes(samples.codes, self.classes_, self)
        return samples

    def _learn_classes(self, classes, y):
        """Set `classes_` from the first call of `partial_fit`."""
        self.classes_ = np.unique(check_labels(classes, "classes"))
        if len(self.classes_) < 2:
            raise ValueError(f"At least two classes are needed, got {classes!r}.")

    def _check_classes_again(self, classes):
        check_same_classes(classes, self.classes_)

    def _samples_of_known_classes(self, X, y, sample_weight):
        codes = class_codes(check_target(y, self), self.classes_)
        return weighted_samples(
            X, codes, sample_weight, self.class_weight, self.classes_
        )

    # --- training ------------------------------------------------------------

    # Class of the net, and defaults in place of the defaults of `TorchClassifier`.
    _net_kind = TrainingNet
    _training_defaults: dict = {}
    _default_parts: dict = {"training": TrainingOptions}
    _transforms_batches = True

    def _strata(self, samples):
        """Return integers (n_samples, ...) by which a held-out part is stratified."""
        return samples.codes

    def _n_logits(self):
        """Return the width of the output of the network."""
        return len(self.classes_)

    def _module_factory(self):
        """Return the network factory; a subclass may wrap the user's `module`."""
        return self.module

    def _fit_new(self, samples, epochs, options):
        """Build a network and train it; set the fitted attributes at the end."""
        random_state = check_random_state(self.random_state)
        seed = int(random_state.randint(np.iinfo(np.int32).max))
        valid = None
        if options.early_stopping:
            parts = stratified_split(
                self._strata(samples),
                options.validation_fraction,
                np.random.RandomState(seed),
            )
            samples, valid = (samples.subset(indices) for indices in parts)
        config = {
            "module": self._module_factory(),
            "module_params": copy.deepcopy(self.module_params),
            "input_shape": self.input_shape_,
            "n_classes": self._n_logits(),
            "criterion": copy.deepcopy(self.criterion),
            "seed": seed,
            "optimizer": options.optimizer,
            "lr": self.lr,
            "weight_decay": options.weight_decay,
            "batch_size": self.batch_size,
            "max_epochs": self.max_epochs,
        }
        device = resolve_device(self.device)
        bar = progress(epochs, desc=type(self).__name__, verbose=self.verbose)
        with training(seed, device), bar:
            net = self._net_kind.from_config(config, device)
            history = net.train_epochs(
                samples, valid=valid, epochs=epochs, options=options, bar=bar
            )
        self._net_config = config
        self._finish(net, [], history)

    def _train_on(self, samples, options):
        """Train the network for one more epoch; restore it if this fails."""
        net = self.net_
        net.batch_size = self.batch_size
        # a seed that depends only on the number of epochs trained
        seed = np.random.RandomState([self._net_config["seed"], self.n_iter_])
        bar = progress(1, desc=type(self).__name__, verbose=self.verbose)
        with training(seed, net.device), restored_on_error(net), bar:
            for group in net.optimizer_.param_groups:
                group.update(lr=self.lr, weight_decay=options.weight_decay)
            history = net.train_epochs(samples, options=options, epochs=1, bar=bar)
        self._finish(net, self.history_, history)

    def _finish(self, net, before, history):
        start = len(before) + 1
        self.net_ = net
        self.history_ = before + [
            {"epoch": epoch, **done} for epoch, done in enumerate(history, start)
        ]
        self.n_iter_ = len(self.history_)

    # --- prediction ----------------------------------------------------------

    @property
    def module_(self):
        """Trained network, in eval mode."""
        return self.net_.module_

    def _prepare_input(self, X):
        """Return `X` as a float32 array or tensor for the network."""
        check_is_fitted(self)
        return self._check_samples(X, reset=False)

    @blockwise
    def _outputs(self, X):
        """Return the output of the network, (n_samples, n_outputs), as float64."""
        return self._forward(self._prepare_input(X))

    def _forward(self, X, function=None, row_bytes=0, what="logits"):
        """Return finite logits of prepared samples by the network or `function`."""
        logits = forward(self.net_, X, function, row_bytes)
        if not np.isfinite(logits).all():
            n_bad = int((~np.isfinite(logits)).reshape(len(X), -1).any(axis=1).sum())
            raise ValueError(
                f"The network returned NaN or infinite {what} for {n_bad} of {len(X)} "
                f"samples: their values are too large for it. Scale the features."
            )
        return logits

    # --- persistence ---------------------------------------------------------

    def __getstate__(self):
        state = {**super().__getstate__()}
        if "net_" in state:
            net = state.pop("net_")
            state["_net_state"] = state_to_numpy(net), str(net.device)
        return state

    def __setstate__(self, state):
        state = dict(state)
        saved = state.pop("_net_state", None)
        super().__setstate__(state)
        if saved is not None:
            arrays, device = saved
            self.net_ = restore_net(self._net_config, arrays, device, self._net_kind)
