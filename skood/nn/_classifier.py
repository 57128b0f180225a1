"""Scikit-learn classifier that trains a torch network."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from sklearn.base import ClassifierMixin

from skood.nn._base_torch_estimator import BaseTorchEstimator
from skood.nn._logits import LogitsMixin


class TorchClassifier(LogitsMixin, ClassifierMixin, BaseTorchEstimator):
    r"""Classifier that builds and trains a torch network in `fit`.

    The network is given as a class or another factory that is called with the shape of
    one sample and the number of classes. It is trained by a seeded skorch net on the
    weighted cross-entropy of its logits, or on another loss of the logits.

    Read more in the :ref:`User Guide <torch_classifier>`.

    Parameters
    ----------
    module : callable, default=None
        A module class or factory, called as ``module(input_shape, n_classes,
        **module_params)`` with the shape of one sample (a tuple without the sample
        axis) and the number of classes. The module returns logits of shape (n_samples,
        n_classes). None: for images (n, channels, height, width) a small convolutional
        network, else a multi-layer perceptron with one hidden layer of 100 units. A
        trained module is wrapped by :func:`skood.nn.pretrained` instead.

    module_params : dict, default=None
        Further arguments of `module`. The default perceptron takes `hidden` and
        `dropout`, the default convolutional network `channels`, `hidden` and
        `dropout`.

    criterion : callable, default=None
        The loss, called as ``criterion(logits, codes)`` with tensors of shape
        (n_samples, n_classes) and (n_samples,), the latter with class indices; it
        returns the losses of the samples, a tensor of shape (n_samples,), which are
        averaged with the sample weights. If it has parameters of its own, they are not
        trained. None: the cross-entropy. `predict_proba` is the softmax of the logits
        for any loss.

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

    class_weight : {"balanced"}, dict or None, default=None
        Weights of the classes, multiplied with `sample_weight`. "balanced" gives
        each class the same total weight.

    random_state : int, RandomState instance or None, default=None
        Seed of the initial weights, the order of the samples, dropout and the held-out
        samples. The generators of torch are left unchanged.

    device : {"auto"}, str or torch.device, default="auto"
        Device to train on: "auto" is CUDA if available, else the CPU.

    verbose : int, default=0
        1 shows a progress bar over the epochs.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.

    input_shape_ : tuple of int
        Shape of one sample.

    n_features_in_ : int
        Length of the second axis of `X`: features, or channels.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, only if all of them are strings.

    net_ : skorch.NeuralNetClassifier
        The trained net. It uses class indices in place of labels.

    module_ : torch.nn.Module
        The trained network, in eval mode.

    n_iter_ : int
        Number of epochs trained.

    history_ : list of dict
        Results of each epoch: `epoch` (from 1), `train_loss` (mean while training),
        `lr` (of the last step) and, with early stopping, `valid_loss` (weighted like
        the training loss) and `valid_accuracy` (unweighted).

    See Also
    --------
    skood.nn.pretrained : Wrap a network that is already trained.
    skood.nn.FeatureExtractor : Output of one of the layers of a network.

    Notes
    -----
    With :math:`l(x; \theta)` the logits and :math:`w_i` the product of sample and
    class weight, training minimizes

    .. math::

        \frac{\sum_i w_i \left(\log \sum_k e^{l_k(x_i; \theta)} -
        l_{y_i}(x_i; \theta)\right)}{\sum_i w_i} + \frac{\lambda}{2} \|\theta\|^2

    by steps on batches, where :math:`\lambda` is the weight decay; with a `criterion`,
    its losses replace the cross-entropies. Samples of weight zero are left out.
    Features should be scaled.

    The same integer `random_state` gives bitwise equal networks on one machine
    (on CUDA as far as its kernels are deterministic). Logits are computed in the
    precision of the network, usually float32, and returned as float64. Batches that
    are too small to be divided are trained on one thread.

    If `fit` or `partial_fit` fails or is interrupted, the classifier is left unchanged.
    A pickle contains the weights as arrays and rebuilds the network from `module`, so a
    classifier trained on CUDA can be loaded on a machine without CUDA.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skood.nn import TorchClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = make_pipeline(StandardScaler(), TorchClassifier(random_state=0))
    >>> round(clf.fit(X[::2], y[::2]).score(X[1::2], y[1::2]), 2)
    0.93
    >>> clf.predict_proba(X[:2]).shape
    (2, 3)
    """

    def predict_logits(self, X):
        """Return the logits of the network.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Input samples.

        Returns
        -------
        logits : ndarray of shape (n_samples, n_classes)
            Output of the network, as float64.
        """
        return self._outputs(X)
