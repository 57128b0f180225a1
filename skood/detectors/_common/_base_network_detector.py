"""Base class of detectors that need a network's layers or gradients."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import abstractmethod
from numbers import Integral

import numpy as np

from skood.base import BaseDetector
from skood.nn._make_network import make_network
from skood.utils._left_out import drawn_copies, is_fixed
from skood.utils._metaestimators import fit_wrapped, take_rows, wrapped_tags
from skood.utils._param_validation import Classifier
from skood.utils._sample_keys import SampleKeys, copy_numbers
from skood.utils._weights import remaining_weight, units, weighted


class NetworkDetector(BaseDetector):
    """Base class of detectors that use hidden layers or gradients of a network.

    A subclass implements ``_fit_network(network, rows, y, weight)``, which learns and
    returns the training scores for the threshold (with weights, a pair), or None if
    these come from networks that are fitted without the samples; and
    ``_score_network(network, rows)``. The rows are the prepared inputs of the network,
    see `Network.prepare`.
    """

    _parameter_constraints: dict = {
        **BaseDetector._parameter_constraints,
        "estimator": [Classifier()],
        "device": "no_validation",  # validated where it is used
    }

    def __init__(self, estimator, *, device="auto", contamination=0.05, ood_label=-1):
        super().__init__(contamination=contamination, ood_label=ood_label)
        self.estimator = estimator
        self.device = device

    def _fit(self, X, y, sample_weight=None):
        self.estimator_ = fit_wrapped(self, self.estimator, X, y, sample_weight)
        network = make_network(self.estimator_, device=self.device)
        scores = self._fit_network(network, network.prepare(X), y, sample_weight)
        if scores is not None:
            return scores
        return self._refitted_scores(X, y, sample_weight)

    def _refitted_scores(self, X, y, sample_weight):
        """Return scores of training samples, each from a network fitted without it."""

        def fit(other, X, y, weight):
            other.estimator_ = fit_wrapped(other, self.estimator, X, y, weight)
            network = make_network(other.estimator_, device=self.device)
            other._fit_network(network, network.prepare(X), y, weight)

        def score(other, left_out, copy_weights):
            return weighted(other._score(take_rows(X, left_out)), copy_weights)

        return self._scores_of_refits(X, y, fit, score, weight=sample_weight)

    def _score(self, X):
        network = make_network(self.estimator_, device=self.device)
        return self._score_network(network, network.prepare(X))

    @abstractmethod
    def _fit_network(self, network, samples, y, weight):
        """Learn from ID samples; return their scores for the threshold."""

    @abstractmethod
    def _score_network(self, network, samples):
        """Return scores of samples: float64, high = ID."""

    def _training_scores(self, network, samples, weight):
        """Return scores for the threshold; None if `fit` trained the network."""
        if not is_fixed(self.estimator):
            return None
        drawn, copy_weights = drawn_copies(SampleKeys(samples), weight)
        whole = len(drawn) == samples.shape[0] and weight is None
        scores = self._score_network(network, samples if whole else samples[drawn])
        return weighted(scores, copy_weights)

    def __sklearn_tags__(self):
        tags = wrapped_tags(super().__sklearn_tags__(), self.estimator)
        tags.input_tags.sparse = False
        return tags


def check_layers(layers, network, samples):
    """Return the distinct layers given by "all" (see `Gram`) or a list of str and int.

    For "all", two of the prepared `samples` are run through the network.
    """
    if isinstance(layers, str):
        return network.layer_names(samples)
    layers = list(layers)
    for layer in layers:
        if isinstance(layer, bool) or not isinstance(layer, (str, Integral)):
            raise TypeError(
                f"A layer is named by a str or an int, got {layer!r} of type "
                f"{type(layer).__name__} in {layers!r}. Name layers as in "
                "FeatureExtractor, such as 'conv1' or -1."
            )
    if not layers or len(set(layers)) != len(layers):
        raise ValueError(
            f"layers must be 'all' or a list of distinct layers, got {layers!r}."
        )
    return layers


def held_out_copies(keys, y, fraction, random_state, weight=None):
    """Draw a fraction of the samples, at least one of each class not among them.

    At least one is drawn if one can be spared. Copies of a sample are drawn together,
    by its key, unless they are more than half of those to draw. `y` is (n_samples,) or
    None.

    Returns the samples, sorted and with repeats by weight, the weights of their copies,
    None without `weight`, and the weights (n_samples,) that remain, 1 without.
    """
    copies, copy_weights = np.arange(keys.n_samples), np.ones(keys.n_samples)
    if weight is not None:
        copies, copy_weights = units(weight)
    size = max(1, round(fraction * len(copies)))
    seed = random_state.randint(np.iinfo(np.int32).max)
    _, contents = np.unique(keys.values[copies], return_inverse=True)
    numbers = copy_numbers(keys.values[copies], seed=seed)
    together = np.bincount(contents)[contents] <= size / 2
    first = np.full(contents.max(initial=0) + 1, np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(first, contents, numbers)
    numbers = np.where(together, first[contents], numbers)
    order = np.argsort(numbers, kind="stable")
    labels = np.zeros(len(copies)) if y is None else y[copies]
    stays = numbers[order[np.unique(labels[order], return_index=True)[1]]]
    order = order[~np.isin(numbers[order], stays)]
    # the last number is drawn as a whole, or not at all
    ends = np.flatnonzero(np.diff(numbers[order], append=0)) + 1
    n_drawn = ends[ends <= size].max(initial=0)
    drawn = np.sort(order[:n_drawn])
    rest = np.ones(keys.n_samples) if weight is None else np.zeros(keys.n_samples)
    if weight is None:
        rest[drawn] = 0.0
        return drawn, None, rest
    remaining, left = remaining_weight(weight, copies[drawn], copy_weights[drawn])
    rest[remaining] = left
    return copies[drawn], copy_weights[drawn], rest
