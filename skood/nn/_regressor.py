"""Scikit-learn regressor that trains a torch network."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils import check_consistent_length

from skood.nn._base_torch_estimator import BaseTorchEstimator
from skood.nn._default_modules import ModuleBuilder
from skood.nn._training import TrainingNet, WeightedCriterion
from skood.nn._training_data import TrainingSet, check_numbers
from skood.nn._training_options import training_options
from skood.utils._atomic_fit import fresh_fit
from skood.utils._param_validation import StrOptions, fit_context
from skood.utils._weights import check_weight


def _squared_error(outputs, targets):
    """Return squared errors (n_rows,) of outputs (n_rows, 1)."""
    return (targets.to(outputs.dtype) - outputs[:, 0]).square()


def _gaussian_nll(outputs, targets):
    """Return -log N(y; μ, e^v) (n_rows,) for outputs (μ, v) of shape (n_rows, 2)."""
    mean, log_variance = outputs[:, 0], outputs[:, 1]
    square = (targets.to(outputs.dtype) - mean).square()
    nll = square * torch.exp(-log_variance) + log_variance + math.log(2 * math.pi)
    return 0.5 * nll


# Losses of samples, and the number of outputs that they need, by `criterion`.
_LOSSES = {"squared_error": (_squared_error, 1), "gaussian_nll": (_gaussian_nll, 2)}


class _OutputsBuilder(ModuleBuilder):
    """Factory of a regression network, see `ModuleBuilder`."""

    _call = "input_shape, n_outputs"
    _meaning = "the shape of one sample and the number of outputs"
    _outputs, _width, _counted = "outputs", "n_outputs", "output(s)"


class _RegressionNet(TrainingNet):
    """Skorch net of a regression: its criterion is one of `_LOSSES`, by name."""

    _builder = _OutputsBuilder

    @staticmethod
    def _loss(criterion):
        return WeightedCriterion(_LOSSES[criterion][0])

    def _record_hits(self, outputs, targets):
        """There are no hits in a regression."""


class TorchRegressor(RegressorMixin, BaseTorchEstimator):
    r"""Regressor that builds and trains a torch network in `fit`.

    The network is given as a class or another factory that is called with the shape of
    one sample and the number of outputs. It is trained on the squared error of a mean,
    or on the negative log-likelihood of a normal distribution whose mean and variance
    are both outputs [1]_.

    Read more in the :ref:`User Guide <torch_regressor>`.

    Parameters
    ----------
    module : callable, default=None
        A module class or factory, called as ``module(input_shape, n_outputs,
        **module_params)`` with the shape of one sample (a tuple without the sample
        axis) and the number of outputs. The module returns a tensor of shape
        (n_samples, n_outputs): the mean, and with ``criterion="gaussian_nll"`` the
        logarithm of the variance. None: the default networks of
        :class:`TorchClassifier`.

    module_params : dict, default=None
        Further arguments of `module`, such as `hidden` and `dropout` of the default
        networks, see :class:`TorchClassifier`.

    criterion : {"squared_error", "gaussian_nll"}, default="squared_error"
        The loss. "squared_error": the network has one output, the mean.
        "gaussian_nll": it has two, the mean and the logarithm of the variance.

    max_epochs : int, default=200
        Number of passes over the training samples; with early stopping at most.

    lr : float, default=1e-3
        Learning rate, the start of a schedule (for "one_cycle": its peak).

    batch_size : int, default=128
        Number of samples per training step. A last batch of one sample is joined to the
        batch before it.

    training : TrainingOptions, default=None
        Optimizer, weight decay, learning rate schedule and early stopping, see
        :class:`TrainingOptions`. None: Adam with a constant learning rate, without
        weight decay and without early stopping.

    random_state : int, RandomState instance or None, default=None
        Seed of the initial weights, the order of the samples, dropout and the held-out
        samples. The generators of torch are left unchanged.

    device : {"auto"}, str or torch.device, default="auto"
        Device to train on: "auto" is CUDA if available, else the CPU.

    verbose : int, default=0
        1 shows a progress bar over the epochs.

    Attributes
    ----------
    input_shape_ : tuple of int
        Shape of one sample.

    n_features_in_ : int
        Length of the second axis of `X`: features, or channels.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, only if all of them are strings.

    net_ : skorch.NeuralNet
        The trained net.

    module_ : torch.nn.Module
        The trained network, in eval mode.

    n_iter_ : int
        Number of epochs trained.

    history_ : list of dict
        Results of each epoch: `epoch` (from 1), `train_loss` (mean while training),
        `lr` (of the last step) and, with early stopping, `valid_loss`.

    See Also
    --------
    TorchClassifier : The same for classification.
    skood.epistemic.DeepEnsemble : Several of these networks.

    Notes
    -----
    With outputs :math:`\mu(x; \theta)` and, for "gaussian_nll",
    :math:`v(x; \theta) = \log \sigma^2(x; \theta)`, and sample weights :math:`w_i`,
    training minimizes

    .. math::

        \frac{\sum_i w_i \, \ell_i}{\sum_i w_i} + \frac{\lambda}{2} \|\theta\|^2 ,
        \qquad \ell_i = (y_i - \mu_i)^2 \quad \text{or} \quad
        \ell_i = \tfrac12 \bigl(e^{-v_i} (y_i - \mu_i)^2 + v_i + \log 2 \pi \bigr) ,

    by steps on batches, where :math:`\lambda` is the weight decay. Features and targets
    should be scaled: the initial network predicts values around zero of the size of
    one.

    For reproducibility, precision, failures and pickles see :class:`TorchClassifier`.

    References
    ----------
    .. [1] D. A. Nix, A. S. Weigend. Estimating the mean and variance of the target
       probability distribution. ICNN 1994.

    Examples
    --------
    The noise of the targets grows with x:

    >>> import numpy as np
    >>> from skood.nn import TorchRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 3, size=(500, 1))
    >>> y = np.sin(X[:, 0]) + 0.2 * X[:, 0] * rng.normal(size=500)
    >>> reg = TorchRegressor(
    ...     criterion="gaussian_nll", max_epochs=50, lr=0.01, random_state=0
    ... )
    >>> mean, std = reg.fit(X, y).predict([[0.5], [2.5]], return_std=True)
    >>> std.round(1)
    array([0.1, 0.5])
    """

    _parameter_constraints: dict = {
        **BaseTorchEstimator._parameter_constraints,
        "criterion": [StrOptions(set(_LOSSES))],
    }
    _parameter_constraints.pop("class_weight")

    _net_kind = _RegressionNet

    def __init__(
        self,
        module=None,
        *,
        module_params=None,
        criterion="squared_error",
        max_epochs=200,
        lr=1e-3,
        batch_size=128,
        training=None,
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
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y, sample_weight=None):
        """Train for one epoch, starting from the current weights.

        The first call without a preceding `fit` builds the network.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Input samples, of the same shape as in the first call.

        y : array-like of shape (n_samples,)
            Targets.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights, relative to each other.

        Returns
        -------
        self : TorchRegressor
            The fitted regressor.
        """
        options = training_options(self).set_params(lr_schedule=None)
        self._check_partial_options(options)
        if hasattr(self, "net_"):
            X = self._check_samples(X, reset=False)
            samples = self._new_samples(X, y, sample_weight)
            self._train_on(samples, options)
            return self
        with fresh_fit(self):
            X = self._check_samples(X, reset=True)
            self._fit_new(self._new_samples(X, y, sample_weight), 1, options)
        return self

    def _new_samples(self, X, y, sample_weight):
        """Return the training samples; samples of weight zero are left out."""
        y = check_numbers(y, self)
        check_consistent_length(X, y)
        with np.errstate(over="ignore"):  # reported below
            targets = y.astype(np.float32)  # supported by every device
        if not np.isfinite(targets).all():
            raise ValueError(
                "Input y contains values that are too large for float32, up to "
                f"{np.abs(y).max():.3g}. Scale the targets."
            )
        weight = check_weight(sample_weight, len(y), default=1)
        samples, used = TrainingSet(X, targets, weight), np.flatnonzero(weight)
        return samples if len(used) == len(y) else samples.subset(used)

    def _strata(self, samples):
        return np.zeros(len(samples), dtype=int)

    def _n_logits(self):
        return _LOSSES[self.criterion][1]

    def predict(self, X, return_std=False):
        """Return the mean of the targets.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Input samples.

        return_std : bool, default=False
            Whether to return the standard deviation of the targets, too; only with
            ``criterion="gaussian_nll"``.

        Returns
        -------
        y : ndarray of shape (n_samples,), dtype float64
            Means.

        y_std : ndarray of shape (n_samples,), dtype float64
            Standard deviations. Only with `return_std`.

        Raises
        ------
        ValueError
            If `return_std` is set and the network predicts no variance.
        """
        outputs = self._outputs(X)
        if not return_std:
            return outputs[:, 0]
        if outputs.shape[1] == 1:
            raise ValueError(
                "return_std=True needs a network that predicts a variance, but this "
                "one was trained with criterion='squared_error'. Use "
                "criterion='gaussian_nll', or an estimator of skood.epistemic, such as "
                "DeepEnsemble."
            )
        return outputs[:, 0], std_of(outputs[:, 1])


def std_of(log_variance):
    """Return standard deviations of logarithms of variances, or raise."""
    with np.errstate(over="ignore"):
        std = np.exp(0.5 * log_variance)
    good = np.isfinite(std) & (std > 0)
    if not good.all():
        raise ValueError(
            "The logarithm of the variance that the network predicts is beyond the "
            f"range of numbers for {int((~good).sum())} of {len(std)} samples: their "
            "values are too large for it. Scale the features."
        )
    return std
