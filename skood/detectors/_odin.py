"""Temperature scaling and input perturbation (ODIN)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import numpy as np
from sklearn.utils import check_array

from skood.detectors._common._base_network_detector import NetworkDetector
from skood.detectors._common._softmax import shifted_exponentials
from skood.utils._array_api import array_namespace, as_double, asarray_like, row_indices
from skood.utils._param_validation import Interval

# Components of a gradient below this fraction of the largest one count as zero.
_ROUNDING = 1e-5


class ODIN(NetworkDetector):
    r"""Temperature scaling and input perturbation (ODIN) [1]_.

    .. math:: s(x) = \max_k p_k(\tilde x) - 1, \qquad
        \tilde x = x + \varepsilon \operatorname{sign} \nabla_x \log p_{\hat y}(x),
        \qquad p = \operatorname{softmax}(l / T)

    The step increases the probability of the predicted class :math:`\hat y`, which is
    expected to have a larger effect for ID than for OOD samples. It needs a forward and
    a backward pass, and another forward pass; the gradient is exact, also for
    scikit-learn's models.

    Perturbed samples are not clipped: they may be outside the range of the training
    data, such as pixels below 0. In a `Pipeline` the input of the last step is
    perturbed, so that `epsilon` is in its units.

    Read more in the :ref:`User Guide <detectors_network>`.

    Parameters
    ----------
    estimator : object
        A torch network, `MLPClassifier` or linear classifier, or a `Pipeline` ending
        in one; cloned and fitted unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`.

    temperature : float, default=1000.0
        Temperature T > 0.

    epsilon : float, default=0.0014
        Length :math:`\varepsilon` of the step in each feature. With 0 no gradient is
        computed.

    scale : array-like of shape (n_features,) or (n_channels,), default=None
        Divisor of `epsilon`, per feature or per channel: if inputs were divided by
        these standard deviations, `epsilon` is in the original units.

    device : str, default="auto"
        Device of a torch network: "auto" is the device of its classifier, or of its
        weights. scikit-learn's models run on the CPU.

    contamination : float, default=0.05
        Fraction of new ID samples to reject. With more than 5,000 training samples
        the threshold is estimated from 5,000, drawn with a fixed seed.

    ood_label : int or str, default=-1
        Label of known OOD samples in ``y``; they are left out of the fit.

    Attributes
    ----------
    estimator_ : object
        The fitted classifier.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of training samples,
        each left out of the fit, are below it, see :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`, if known.

    See Also
    --------
    MSP : Without the perturbation.
    Energy : Uses the logits without normalizing them.

    Notes
    -----
    The gradient is computed from :math:`l_{\hat y} - \sum_{j \ne \hat y} q_j l_j` with
    :math:`q` the softmax of the other logits over T. This equals the gradient of
    :math:`\log p_{\hat y}` up to a positive factor, hence has the same sign, and does
    not vanish if a probability is rounded to 1.

    The authors' code treats a gradient of 0 as positive; here such a feature is not
    perturbed, nor is a feature whose gradient is less than 1e-5 of the largest one of
    the sample, since its sign is a rounding error.

    References
    ----------
    .. [1] S. Liang, Y. Li and R. Srikant. "Enhancing the reliability of
       out-of-distribution image detection in neural networks". ICLR 2018.

    Examples
    --------
    >>> from sklearn.neural_network import MLPClassifier
    >>> from skood.datasets import load_digits_ood
    >>> from skood.detectors import ODIN
    >>> X, y = load_digits_ood(ood_label=-1, return_X_y=True)
    >>> network = MLPClassifier(random_state=0, max_iter=50)
    >>> detector = ODIN(network, temperature=10.0).fit(X[:1000], y[:1000])
    >>> round(detector.score(X[1000:], y[1000:]), 2)  # AUROC, other samples
    0.93
    """

    _parameter_constraints: dict = {
        **NetworkDetector._parameter_constraints,
        "temperature": [Interval(Real, 0, None, closed="neither")],
        "epsilon": [Interval(Real, 0, None, closed="left")],
        "scale": ["array-like", None],
    }

    _learns = False

    def __init__(
        self,
        estimator,
        *,
        temperature=1000.0,
        epsilon=0.0014,
        scale=None,
        device="auto",
        contamination=0.05,
        ood_label=-1,
    ):
        super().__init__(
            estimator, device=device, contamination=contamination, ood_label=ood_label
        )
        self.temperature = temperature
        self.epsilon = epsilon
        self.scale = scale

    def _fit_network(self, network, samples, y, weight):
        return self._training_scores(network, samples, weight)

    def _score_network(self, network, samples):
        step = self._step(samples)
        if self.epsilon == 0:
            parts = (block.logits for block in network.layers(samples, ()))
        else:
            parts = network.input_gradient(
                samples, self._cotangent, lambda chunk, g: _moved(chunk, g, step)
            )
        return np.concatenate([self._max_probability(logits) for logits in parts])

    def _step(self, samples):
        """Return the step length: a scalar, or an array that broadcasts with rows."""
        if self.scale is None:
            return np.asarray(float(self.epsilon))
        scale = check_array(
            self.scale, ensure_2d=False, dtype=np.float64, input_name="scale"
        )
        if scale.shape != (samples.shape[1],):
            raise ValueError(
                f"scale has shape {scale.shape}, but the network is expecting samples "
                f"of shape {tuple(samples.shape[1:])}: expected ({samples.shape[1]},), "
                "one value per feature or channel."
            )
        if scale.min() <= 0:
            raise ValueError(
                f"scale must be positive, got {scale.min():g}: it is what features "
                "were divided by, such as their standard deviations."
            )
        return (self.epsilon / scale).reshape(1, -1, *[1] * (len(samples.shape) - 2))

    def _cotangent(self, logits):
        """Return the gradient of log p of the prediction by the logits, times c > 0."""
        xp = array_namespace(logits)
        indices, top = row_indices(logits), xp.argmax(logits, axis=1)
        others = as_double(logits) / self.temperature
        others[indices, top] = -xp.inf
        others = xp.exp(others - xp.max(others, axis=1, keepdims=True))
        direction = -others / xp.sum(others, axis=1, keepdims=True)
        direction[indices, top] = 1.0
        return direction

    def _max_probability(self, logits):
        _, others, _ = shifted_exponentials(logits, self.temperature)
        # Eq. (1) of [1] minus 1, which does not round: see MSP
        return -others / (1.0 + others)


def _moved(samples, gradient, step):
    """Return samples after a step of a length along the signs of a gradient."""
    xp = array_namespace(samples)
    step = xp.astype(asarray_like(step, samples), samples.dtype)
    size = xp.abs(gradient)
    largest = xp.max(size, axis=tuple(range(1, size.ndim)), keepdims=True)
    sign = xp.where(size > _ROUNDING * largest, xp.sign(gradient), 0 * gradient)
    return samples + step * sign  # Eq. (2) of [1]
