"""Frozen classifier from a trained torch module."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from operator import attrgetter

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import column_or_1d

from skood.nn._logits import LogitsMixin
from skood.nn._make_network import make_network
from skood.utils._estimator import SkoodEstimator
from skood.utils._stored import stored


@stored
class _PretrainedClassifier(LogitsMixin, ClassifierMixin, SkoodEstimator):
    """Trained torch module with the methods of a fitted classifier."""

    def __init__(
        self, module, classes, output, input_shape, batch_size, device, precision
    ):
        self.module = module
        self.classes = classes
        self.output = output
        self.input_shape = input_shape
        self.batch_size = batch_size
        self.device = device
        self.precision = precision

    def __sklearn_is_fitted__(self):
        return True

    module_ = property(attrgetter("module"))
    classes_ = property(attrgetter("classes"))
    input_shape_ = property(attrgetter("input_shape"))
    max_batch_size_ = property(attrgetter("batch_size"))

    def _prepare_input(self, X):
        from skood.nn._borrowed_module import check_network_input

        X = check_network_input(X)
        if self.input_shape is not None and tuple(X.shape[1:]) != self.input_shape:
            raise ValueError(
                f"X has samples of shape {tuple(X.shape[1:])}, but the network is "
                f"expecting samples of shape {self.input_shape}."
            )
        return X

    def fit(self, X, y=None):
        """Raise, because the module is already trained."""
        raise TypeError(
            "A pretrained module is not fitted again. Keep it in the FrozenEstimator "
            "that skood.nn.pretrained returned, or train a skood.nn.TorchClassifier."
        )

    def predict_logits(self, X):
        """Return the logits, an ndarray of shape (n_samples, n_classes)."""
        network = make_network(self, batch_size=self.batch_size, device=self.device)
        return network.outputs(X, {"logits"}).logits.astype(np.float64)


def pretrained(
    module,
    classes=None,
    *,
    output="logits",
    input_shape=None,
    batch_size=256,
    device="auto",
    precision="auto",
):
    """Wrap a trained torch module as a frozen scikit-learn classifier.

    The module is run in eval mode and without gradients, and is restored afterwards:
    training mode of each submodule, buffers, gradients, hooks, device. It is not
    copied.

    Parameters
    ----------
    module : torch.nn.Module
        A trained network. It returns logits of shape (n_samples, n_classes), a
        tuple that starts with them, or an object with ``.logits``.

    classes : array-like of shape (n_classes,), default=None
        Class labels in the order of the outputs. None: 0, 1, …, as many as the
        last linear layer has outputs.

    output : {"logits", "probabilities"}, default="logits"
        Output of the module. A softmax or log-softmax directly after the last linear
        layer is recognized in any case.

    input_shape : tuple of int, default=None
        Shape of one sample. If given, other input raises, and `split` finds the head by
        running one sample instead of taking the last one defined.

    batch_size : int, default=256
        Maximum number of samples per forward pass.

    device : str, default="auto"
        Device of the module: "auto" is the device of its weights, from which it is not
        moved.

    precision : {"auto", "bfloat16"}, default="auto"
        Precision of forward passes and of gradients with respect to inputs: "auto" is
        the precision of the weights; with "bfloat16" convolutions and matrix products
        run in it, as chosen by :class:`torch.autocast`, and outputs have two to three
        digits. Models with other weights, such as of QUAM, do not use it.

    Returns
    -------
    estimator : FrozenEstimator
        With ``classes_``, ``predict``, ``predict_proba``, ``decision_function``
        and ``predict_logits``; ``clone`` returns it unchanged.

    Raises
    ------
    TypeError
        If `module` is not a torch module.
    ValueError
        If `classes` has duplicates, or cannot be inferred, or another parameter is
        invalid.

    See Also
    --------
    TorchClassifier : Train a network.
    FeatureExtractor : Features of the network.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from skood.detectors import Energy
    >>> from skood.nn import pretrained
    >>> _ = torch.manual_seed(0)
    >>> net = torch.nn.Sequential(
    ...     torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)
    ... )
    >>> clf = pretrained(net, classes=["cat", "dog", "owl"])
    >>> X = np.random.default_rng(0).normal(size=(20, 4))
    >>> Energy(estimator=clf).fit(X).score_samples(X).shape
    (20,)
    """
    from torch import nn

    if not isinstance(module, nn.Module):
        raise TypeError(
            f"module must be a trained torch.nn.Module, got {type(module).__name__}. "
            "Pass a module class to skood.nn.TorchClassifier to train one."
        )
    if output not in ("logits", "probabilities"):
        raise ValueError(
            f"output must be 'logits' or 'probabilities', got {output!r} instead."
        )
    if precision not in ("auto", "bfloat16"):
        raise ValueError(
            f"precision must be 'auto' or 'bfloat16', got {precision!r} instead."
        )
    linear = [m for m in module.modules() if isinstance(m, nn.Linear)]
    if classes is None:
        if not linear:
            raise ValueError(
                "The module has no torch.nn.Linear that determines the number of "
                "classes: pass classes=[...]."
            )
        classes = np.arange(max(2, linear[-1].out_features))
    classes = column_or_1d(classes)
    if len(np.unique(classes)) != len(classes) or len(classes) < 2:
        raise ValueError(
            f"classes must be at least two distinct labels, got {classes.tolist()}."
        )
    if input_shape is not None:
        input_shape = tuple(int(size) for size in input_shape)
    return FrozenEstimator(
        _PretrainedClassifier(
            module, classes, output, input_shape, batch_size, device, precision
        )
    )
