"""Weighted sum of the Mahalanobis scores of several layers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.utils import check_array

from skood.detectors._common._base_network_detector import (
    NetworkDetector,
    check_layers,
    held_out_copies,
)
from skood.detectors._mahalanobis import Mahalanobis
from skood.nn._make_network import make_network
from skood.nn._outputs import NetworkOutputs
from skood.utils._array_api import to_host
from skood.utils._batches import labeled_rows
from skood.utils._labels import ood_mask
from skood.utils._left_out import drawn_copies, is_fixed
from skood.utils._metaestimators import fit_wrapped, take_rows
from skood.utils._param_validation import HasMethods, StrOptions
from skood.utils._sample_keys import SampleKeys
from skood.utils._warnings import quiet, warn
from skood.utils._weights import row_weight, weighted

# Fraction of the ID samples on which weights are learned.
_LEARNING_FRACTION = 0.2


class MultiLayerMahalanobis(NetworkDetector):
    r"""Weighted sum of the Mahalanobis scores of several layers [1]_.

    .. math:: s(x) = \sum_l \alpha_l s_l(x), \qquad
        s_l(x) = -\min_k (z_l - \mu_{lk})^\top \Sigma_l^{-1} (z_l - \mu_{lk})

    where :math:`z_l` is the output of layer l, averaged over positions, and
    :math:`s_l` the score of :class:`Mahalanobis`.

    This detector learns from known OOD samples: with ``alphas="auto"``, if `y` has
    samples labeled `ood_label`, the weights are the coefficients of a logistic
    regression that separates ID from OOD samples; otherwise they are all 1. A fifth of
    the ID samples, drawn with a fixed seed, is used for the regression, scored by
    Gaussians that were not fitted on them; then the Gaussians are fitted on all ID
    samples. OOD samples affect only the weights.

    Read more in the :ref:`User Guide <detectors_network>`.

    Parameters
    ----------
    estimator : object
        A torch network, `MLPClassifier` or linear classifier, or a `Pipeline` ending
        in one; cloned and fitted unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`.

    layers : "all" or list of str or int, default="all"
        The layers to use, as in `FeatureExtractor`. "all" are the linear and
        convolutional layers before the layer of the logits; the hidden layers of an
        `MLPClassifier`; the input of a linear classifier.

    covariance : object, default=None
        A covariance estimator of scikit-learn, see :class:`Mahalanobis`.

    alphas : "auto" or array-like of shape (n_layers,), default="auto"
        The weights :math:`\alpha_l`.

    device : str, default="auto"
        Device of a torch network: "auto" is the device of its classifier, else CUDA if
        available, else the CPU. Distances are computed there if it is given, else as in
        :class:`Mahalanobis`.

    contamination : float, default=0.05
        Fraction of new ID samples to reject.

    ood_label : int or str, default=-1
        Label of known OOD samples in ``y``. Only the weights are learned from them.

    Attributes
    ----------
    layers_ : list of str or int
        The layers.

    alphas_ : ndarray of shape (n_layers,)
        The weights.

    detectors_ : list of Mahalanobis
        The fitted detectors of the averaged outputs of each layer.

    estimator_ : object
        The fitted classifier.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of training samples,
        each left out of the fit, are below it, see :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`, if known.

    See Also
    --------
    Mahalanobis : Score of the last layer alone.
    Gram : Uses more of each layer than its mean.

    Notes
    -----
    The averaged outputs of all layers are in memory during the fit. The input
    perturbation of the authors, as in :class:`ODIN`, is not implemented.

    References
    ----------
    .. [1] K. Lee, K. Lee, H. Lee, J. Shin. "A simple unified framework for detecting
       out-of-distribution samples and adversarial attacks". NeurIPS 2018.

    Examples
    --------
    >>> from sklearn.neural_network import MLPClassifier
    >>> from sklearn.covariance import LedoitWolf
    >>> from skood.datasets import load_digits_ood
    >>> from skood.detectors import MultiLayerMahalanobis
    >>> X, y = load_digits_ood(ood_label=-1, return_X_y=True)
    >>> network = MLPClassifier((20, 10), random_state=0, max_iter=100)
    >>> detector = MultiLayerMahalanobis(network, covariance=LedoitWolf())
    >>> detector.fit(X[:1000], y[:1000]).alphas_.shape
    (2,)
    >>> round(detector.score(X[1000:], y[1000:]), 2)  # AUROC, other samples
    0.88
    """

    _parameter_constraints: dict = {
        **NetworkDetector._parameter_constraints,
        "layers": [StrOptions({"all"}), "array-like"],
        "covariance": [HasMethods("fit"), None],
        "alphas": [StrOptions({"auto"}), "array-like"],
    }

    def __init__(
        self,
        estimator,
        *,
        layers="all",
        covariance=None,
        alphas="auto",
        device="auto",
        contamination=0.05,
        ood_label=-1,
    ):
        super().__init__(
            estimator, device=device, contamination=contamination, ood_label=ood_label
        )
        self.layers = layers
        self.covariance = covariance
        self.alphas = alphas

    def _fit_samples(self, X, y, sample_weight=None):
        X, y = labeled_rows(X, y, sample_weight)
        known_ood = None
        if y is not None and isinstance(self.alphas, str):
            is_ood = ood_mask(y, ood_label=self.ood_label)
            if sample_weight is not None:
                is_ood &= sample_weight > 0
            if is_ood.any():
                known_ood = np.flatnonzero(is_ood)
        X_id, y_id, id_indices = self._id_samples(X, y, sample_weight)
        weight = row_weight(sample_weight, id_indices)
        self.estimator_ = fit_wrapped(self, self.estimator, X_id, y_id, weight)
        network = make_network(self.estimator_, device=self.device)
        features = self._fit_layers(network, network.prepare(X_id), y_id, weight)
        if not isinstance(self.alphas, str):
            self.alphas_ = self._checked_alphas()
        elif known_ood is None:
            self.alphas_ = np.ones(len(self.layers_))
        else:
            network = make_network(self.estimator_, device=self.device)
            samples = network.prepare(take_rows(X, known_ood))
            ood_scores = self._layer_scores(network, samples)
            scores = self._scores_of(self.detectors_, features)
            ood_weight = row_weight(sample_weight, known_ood)
            self.alphas_ = self._learned_alphas(
                features, y_id, scores, ood_scores, weight, ood_weight
            )
        if not is_fixed(self.estimator):
            return self._refitted_scores(X_id, y_id, weight)
        columns, copy_weights = self._left_out_scores(features, y_id, weight)
        return weighted(columns @ self.alphas_, copy_weights)

    def _fit_network(self, network, samples, y, weight):
        # the weights of layers are not changed
        self._fit_layers(network, samples, y, weight)

    def _fit_layers(self, network, samples, y, weight):
        """Fit a detector per layer; return the features of the samples."""
        self.layers_ = check_layers(self.layers, network, samples)
        features = self._features(network, samples)
        self.detectors_ = self._fit_detectors(features, y, weight)
        return features

    def _left_out_scores(self, features, y, weight):
        """Return leave-one-out training scores, (n_samples, n_layers), and weights."""
        keys = SampleKeys(features[0])
        drawn, copy_weights = drawn_copies(keys, weight)
        columns = [
            detector._left_out_scores(
                NetworkOutputs(features=Z, weight=weight, keys=keys),
                y,
                drawn,
                copy_weights,
            )
            for detector, Z in zip(self.detectors_, features, strict=True)
        ]
        if weight is not None:
            copy_weights = columns[0][1]
            columns = [scores for scores, _ in columns]
        if len({len(column) for column in columns}) > 1:  # not all could leave one out
            scores = self._scores_of(self.detectors_, features)
            return self._in_sample((scores, weight))
        return np.stack(columns, axis=1), copy_weights

    def _features(self, network, samples):
        """Return the averaged outputs of each layer."""
        blocks = [
            [to_host(block.outputs[layer]) for layer in self.layers_]
            for block in network.layers(samples, self.layers_)
        ]
        return [np.concatenate(parts) for parts in zip(*blocks, strict=True)]

    def _fit_detectors(self, features, y, weight):
        detectors = []
        for layer, Z in zip(self.layers_, features, strict=True):
            detector = Mahalanobis(
                covariance=self.covariance, device=self.device, ood_label=self.ood_label
            )
            try:
                detectors.append(detector.fit(Z, y, weight))
            except ValueError as error:
                raise ValueError(f"layer={layer!r}: {error}") from error
        return detectors

    @staticmethod
    def _scores_of(detectors, features):
        columns = [
            detector.score_samples(Z)
            for detector, Z in zip(detectors, features, strict=True)
        ]
        return np.stack(columns, axis=1)

    def _layer_scores(self, network, samples):
        """Return scores (n_samples, n_layers) of each layer, computed in blocks."""
        return np.concatenate(
            [
                self._scores_of(
                    self.detectors_,
                    [to_host(block.outputs[layer]) for layer in self.layers_],
                )
                for block in network.layers(samples, self.layers_)
            ]
        )

    def _score_network(self, network, samples):
        return self._layer_scores(network, samples) @ self.alphas_

    def _checked_alphas(self):
        alphas = check_array(
            self.alphas, ensure_2d=False, dtype=np.float64, input_name="alphas"
        )
        if alphas.shape != (len(self.layers_),):
            raise ValueError(
                f"alphas has shape {alphas.shape}, expected ({len(self.layers_)},): "
                f"one weight for each of the layers {self.layers_}."
            )
        return alphas

    def _learned_alphas(
        self, features, y, id_scores, ood_scores, weight=None, ood_weight=None
    ):
        """Return the weights of layers that best separate ID from OOD samples."""
        seed = np.random.RandomState(0)
        keys = SampleKeys(features[0])
        held_out, copy_weights, rest = held_out_copies(
            keys, y, _LEARNING_FRACTION, seed, weight
        )
        training = np.flatnonzero(rest)
        left = None if weight is None else rest[training]
        try:
            with quiet():  # the fit on all samples gives the warnings
                others = [Z[training] for Z in features]
                labels = None if y is None else y[training]
                detectors = self._fit_detectors(others, labels, left)
            id_weight = copy_weights
            id_scores = self._scores_of(detectors, [Z[held_out] for Z in features])
        except ValueError:
            id_weight = weight
            warn(
                f"With n_samples = {len(id_scores)} ID samples the weights are learned "
                "on samples that the Gaussians were fitted on, which favors layers "
                "with many channels. Give more samples, or alphas."
            )
        scores = np.concatenate([id_scores, ood_scores])
        both = None if weight is None else np.concatenate([id_weight, ood_weight])
        mean = np.average(scores, axis=0, weights=both)
        spread = np.sqrt(np.average((scores - mean) ** 2, axis=0, weights=both))
        # Scores that are equal up to rounding have no information: weight 0.
        spread[spread <= 1e-9 * np.abs(scores).max(axis=0)] = np.inf
        is_id = np.arange(len(scores)) < len(id_scores)
        model = LogisticRegression(class_weight="balanced", max_iter=1000)
        model.fit((scores - mean) / spread, is_id, both)
        return model.coef_[0] / spread
