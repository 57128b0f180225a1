"""Options of training that are rarely changed."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real

from skood.utils._estimator import SkoodEstimator
from skood.utils._param_validation import Interval, StrOptions

_DEFAULTS = {
    "optimizer": "adam",
    "weight_decay": 0.0,
    "early_stopping": False,
    "validation_fraction": 0.1,
    "n_iter_no_change": 10,
    "tol": 1e-4,
    "mixed_precision": False,
}


class TrainingOptions(SkoodEstimator):
    """Optimizer, learning rate schedule, early stopping and augmentation.

    Options of estimators that train a torch network, in their parameter `training`.
    Each option is None by default, the default of the estimator. The values in
    parentheses are defaults of :class:`TorchClassifier`; other estimators document
    theirs where they differ.

    Read more in the :ref:`User Guide <torch_classifier>`.

    Parameters
    ----------
    optimizer : {"adam", "adamw", "sgd", "nesterov"}, default=None
        The optimizer ("adam"). "sgd" has a momentum of 0.9, and "nesterov" is SGD with
        Nesterov's momentum of 0.9.

    weight_decay : float, default=None
        Strength of the penalty on all parameters (0.0); for "adamw" decoupled from the
        gradient.

    lr_schedule : {"cosine", "cosine_steps", "step", "one_cycle"} or None, default=None
        How `fit` changes the learning rate: to zero along a half cosine, after each
        epoch or after each batch ("cosine_steps"); by 1/10 after each third of
        `max_epochs`; up to `lr` and down again, batch by batch. None: not at all.
        `partial_fit` always uses `lr`.

    early_stopping : bool, default=None
        Hold out validation samples, stop when their loss no longer falls, and
        return to the weights with the smallest validation loss (False).

    validation_fraction : float, default=None
        Fraction of the samples held out, stratified by class (0.1).

    n_iter_no_change : int, default=None
        Number of epochs without an improvement by `tol` before early stopping (10).

    tol : float, default=None
        Smallest decrease of the validation loss that counts (1e-4).

    transform : callable, default=None
        Augmentation of each batch of training samples: called with a tensor on the
        device of the network, it returns a tensor of the same shape. Random numbers of
        torch are seeded by the `random_state` of the estimator. Only for estimators of
        :mod:`skood.nn`. None: no augmentation.

    mixed_precision : bool, default=None
        Whether to train on CUDA in bfloat16 where that is precise enough, with images
        in the memory layout that is fastest there (False). Weights and predictions
        remain in float32; no effect on a CPU. Only for estimators of :mod:`skood.nn`.

    See Also
    --------
    TorchClassifier : Classifier that trains a network.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import GridSearchCV
    >>> from skood.nn import TorchClassifier, TrainingOptions
    >>> X, y = load_iris(return_X_y=True)
    >>> options = TrainingOptions(optimizer="adamw", lr_schedule="cosine")
    >>> clf = TorchClassifier(max_epochs=20, training=options, random_state=0)
    >>> search = GridSearchCV(clf, {"training__weight_decay": [0.0, 0.1]}, cv=2)
    >>> sorted(search.fit(X, y).best_params_)
    ['training__weight_decay']
    """

    _parameter_constraints: dict = {
        "optimizer": [StrOptions({"adam", "adamw", "sgd", "nesterov"}), None],
        "weight_decay": [Interval(Real, 0, None, closed="left"), None],
        "lr_schedule": [
            StrOptions({"cosine", "cosine_steps", "step", "one_cycle"}),
            None,
        ],
        "early_stopping": ["boolean", None],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither"), None],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left"), None],
        "tol": [Interval(Real, 0, None, closed="left"), None],
        "transform": [callable, None],
        "mixed_precision": ["boolean", None],
    }

    def __init__(
        self,
        *,
        optimizer=None,
        weight_decay=None,
        lr_schedule=None,
        early_stopping=None,
        validation_fraction=None,
        n_iter_no_change=None,
        tol=None,
        transform=None,
        mixed_precision=None,
    ):
        self.optimizer = optimizer
        self.weight_decay = weight_decay
        self.lr_schedule = lr_schedule
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.transform = transform
        self.mixed_precision = mixed_precision


def training_options(estimator):
    """Return valid options, None replaced by the estimator's ``_training_defaults``."""
    options = estimator._part(
        "training", **{**_DEFAULTS, **estimator._training_defaults}
    )
    if not getattr(estimator, "_transforms_batches", False):
        for name in ("transform", "mixed_precision"):
            if getattr(options, name):
                raise ValueError(
                    f"{name}={getattr(options, name)!r} is an option of estimators in "
                    f"skood.nn, and has no effect on {type(estimator).__name__}: leave "
                    "it out."
                )
    return options
