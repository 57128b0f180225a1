"""Energy after removal of the largest singular component of features (RankFeat)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real

import numpy as np
from threadpoolctl import threadpool_limits

from skood.detectors._common._base_network_detector import NetworkDetector, check_layers
from skood.detectors._common._softmax import log_sum_exp
from skood.nn._sklearn_network import LayeredNetwork
from skood.utils._param_validation import Interval, StrOptions
from skood.utils._torch import row_chunks

# Bytes of float64 temporaries: on the CPU, and elsewhere.
_CPU_BYTES = 32 * 2**20
_GPU_BYTES = 256 * 2**20


class RankFeat(NetworkDetector):
    r"""Energy without the rank-1 component of a feature map (RankFeat) [1]_.

    .. math:: s(x) = T \log \sum_k e^{l'_k / T}, \qquad
        F' = F - \sigma_1 u_1 v_1^\top

    where F is the feature map of a layer as a matrix (channels, positions),
    :math:`\sigma_1, u_1, v_1` its largest singular value with the singular vectors, and
    :math:`l'` the logits that the rest of the network computes from :math:`F'`. With
    several layers each is replaced separately, and the logits are averaged.

    Only torch networks have feature maps. Vectors, maps of one channel and maps of one
    position are matrices of rank 1, from which nothing would remain: layers with such
    outputs raise an error.

    Read more in the :ref:`User Guide <detectors_network>`.

    Parameters
    ----------
    estimator : object
        A torch network with feature maps (n, c, h, w) or tokens (n, tokens, d);
        cloned and fitted unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`.

    layer : str, int or list of these
        The layer whose output is replaced, as in `FeatureExtractor`; the authors use
        the output of the last block of a network, or of the last two. A layer that runs
        more than once is replaced each time.

    method : {"svd", "power"}, default="svd"
        Algorithm for the component: exact, by an eigendecomposition of the smaller of
        :math:`F F^\top` and :math:`F^\top F`, or power iteration on this matrix.

    n_iterations : int, default=20
        Number of steps of the power iteration.

    temperature : float, default=1.0
        Temperature T > 0 of the energy.

    device : str, default="auto"
        Device of the network: "auto" is the device of its classifier, or of its
        weights.

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
    Energy : Without the removal of a component.

    Notes
    -----
    If the largest singular value is not unique, the removed component is not uniquely
    defined; power iteration then, and if the first two values are close, removes a
    mixture of both.

    References
    ----------
    .. [1] Y. Song, N. Sebe and W. Wang. "RankFeat: Rank-1 feature removal for
       out-of-distribution detection". NeurIPS 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from skood.detectors import RankFeat
    >>> from skood.nn import TorchClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> X = (X / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    >>> y[y >= 7] = -1  # known OOD: left out of the fit
    >>> network = TorchClassifier(max_epochs=5, random_state=0)
    >>> detector = RankFeat(network, layer="relu_2").fit(X, y)
    >>> detector.score_samples(X).shape
    (1797,)
    """

    _parameter_constraints: dict = {
        **NetworkDetector._parameter_constraints,
        "layer": [str, Integral, "array-like"],
        "method": [StrOptions({"svd", "power"})],
        "n_iterations": [Interval(Integral, 1, None, closed="left")],
        "temperature": [Interval(Real, 0, None, closed="neither")],
    }

    _learns = False

    def __init__(
        self,
        estimator,
        *,
        layer,
        method="svd",
        n_iterations=20,
        temperature=1.0,
        device="auto",
        contamination=0.05,
        ood_label=-1,
    ):
        super().__init__(
            estimator, device=device, contamination=contamination, ood_label=ood_label
        )
        self.layer = layer
        self.method = method
        self.n_iterations = n_iterations
        self.temperature = temperature

    def _fit_network(self, network, samples, y, weight):
        if isinstance(network.core, LayeredNetwork):
            raise TypeError(
                f"RankFeat needs a torch network with feature maps, and a "
                f"{type(network.core.estimator).__name__} has none."
            )
        return self._training_scores(network, samples, weight)

    def _score_network(self, network, samples):
        layers = self.layer
        if isinstance(layers, (str, Integral)):
            layers = [layers]
        layers = check_layers(layers, network, samples)
        scores = []
        for logits in network.replaced(samples, layers, self._without_rank_one):
            mean = np.mean(logits, axis=0, dtype=np.float64)
            scores.append(self.temperature * log_sum_exp(mean / self.temperature))
        return np.concatenate(scores)

    def _without_rank_one(self, maps):
        """Remove the largest singular component of each map of a torch tensor."""
        if maps.ndim < 3 or min(maps.shape[1], maps[0, 0].numel()) == 1:
            raise ValueError(
                f"RankFeat needs feature maps (n, c, h, w) or tokens (n, tokens, d), "
                f"but layer={self.layer!r} gave an array of shape {tuple(maps.shape)}, "
                "from which nothing would remain. Name a layer before the pooling of a "
                "convolutional network, or of a transformer."
            )
        reduced = maps.new_empty(maps.shape)
        n_channels, n_positions = maps.shape[1], maps[0, 0].numel()
        # four copies of the maps, and three of their products
        values = 4 * n_channels * n_positions + 3 * min(n_channels, n_positions) ** 2
        budget = _CPU_BYTES if maps.device.type == "cpu" else _GPU_BYTES
        with threadpool_limits(limits=1):  # threads slow down many small products
            for chunk in row_chunks(len(maps), 8 * values, budget):
                reduced[chunk] = self._without_first(maps[chunk]).reshape(
                    maps[chunk].shape
                )
        return reduced

    def _without_first(self, maps):
        """Return matrices (n, c, positions), float64, without the first component."""
        matrix = maps.double().flatten(2)
        wide = matrix.shape[1] <= matrix.shape[2]
        if not wide:  # use v_1 in place of u_1
            matrix = matrix.mT
        # Scaled, so that no square overflows. A map of zeros is unchanged.
        size = matrix.abs().amax((1, 2), keepdim=True)
        if not size.isfinite().all():
            raise ValueError(
                f"layer={self.layer!r} gave NaN or infinity, so that no component can "
                "be removed. Scale X, or look at the weights of the network."
            )
        unit = matrix / size.clamp_min(1e-300)
        first = self._leading_vector(unit @ unit.mT)
        # F - u u' F: the part orthogonal to the first left singular vector
        matrix = matrix - first @ (first.mT @ matrix)
        if not wide:
            matrix = matrix.mT
        return matrix

    def _leading_vector(self, products):
        """Return eigenvectors (n, c, 1) of the largest eigenvalues of matrices."""
        if self.method == "svd":
            import torch

            return torch.linalg.eigh(products)[1][:, :, -1:]
        # The longest column is not orthogonal to the leading vector, unless the matrix
        # is zero.
        longest = products.diagonal(dim1=1, dim2=2).argmax(1)[:, None, None]
        vector = products.gather(2, longest.expand(-1, products.shape[1], 1))
        for _ in range(self.n_iterations):
            norm = vector.norm(dim=1, keepdim=True).clamp_min(1e-300)
            vector = products @ (vector / norm)
        return vector / vector.norm(dim=1, keepdim=True).clamp_min(1e-300)
