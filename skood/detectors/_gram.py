"""Deviation of Gram matrices from their ranges in training (Gram)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import numpy as np
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits

from skood.detectors._common._base_network_detector import (
    NetworkDetector,
    check_layers,
    held_out_copies,
)
from skood.detectors._common._softmax import shifted_exponentials
from skood.utils._array_api import array_namespace, as_double, asarray_like, to_host
from skood.utils._param_validation import Interval, StrOptions
from skood.utils._sample_keys import SampleKeys
from skood.utils._torch import on_gpu, row_chunks
from skood.utils._warnings import warn
from skood.utils._weights import weighted

# Added to a bound in a denominator, since a bound may be 0.
_LEAST_BOUND = 1e-6

# An entry deviates from a bound if the difference is more than this fraction of the
# bound, and more than a tenth of this fraction of the square of the largest activation.
_ROUNDING = 1e-5


class Gram(NetworkDetector):
    r"""Deviation of Gram matrices from their ranges in training (Gram) [1]_.

    .. math:: s(x) = -\sum_l \frac{\delta_l(x)}{\mathbb E[\delta_l]}, \qquad
        \delta_l(x) = \sum_{p, i} \frac{\max(m_{lpi} - g_{lpi},\, 0)}{|m_{lpi}|} +
        \frac{\max(g_{lpi} - M_{lpi},\, 0)}{|M_{lpi}|}

    where :math:`g_{lpi}` are the entries of :math:`G_l^p = (F_l^p F_l^{p\top})^{1/p}`
    on and above the diagonal, :math:`F_l^p` is the elementwise power of the feature map
    (channels, positions) of layer l, and :math:`m, M` are the smallest and largest of
    each entry among the training samples with the same predicted class as x. Roots of
    negative numbers keep the sign. The expected deviation of a layer is the mean over
    samples that are held out of the ranges. The threshold is computed from the same
    samples, since all others have deviation 0. If `fit` trains the network, it is
    trained on the held-out samples too: ranges of another network would not be
    comparable, so that it is not trained again for the threshold as in other detectors.
    For `contamination` to hold on new samples in this case, freeze a network trained on
    other samples, or set the threshold by :class:`~skood.combine.DetectorEnsemble` with
    ``calibration=``.

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

    powers : array-like of int, default=(1, 2, 3, 4, 5)
        The powers p.

    entries : {"upper", "row_sums"}, default="upper"
        "upper": the entries of the paper, ``c * (c + 1) / 2`` for c channels; the
        ranges need 16 bytes for each entry, class and power. "row_sums": the roots of
        the c sums of the rows of :math:`F_l^p F_l^{p\top}`, as in the authors' code.

    divide_by_confidence : bool, default=False
        Whether deviations are divided by the largest softmax probability, as in the
        authors' code.

    validation_fraction : float, default=0.1
        Fraction of the ID training samples that are held out of the ranges. At least
        one sample of each class remains.

    random_state : int, RandomState instance or None, default=None
        Draws the samples that are held out.

    device : str, default="auto"
        Device of a torch network and of the matrices: "auto" is the device of its
        classifier, or of its weights. scikit-learn's models run on the CPU.

    contamination : float, default=0.05
        Fraction to reject of the held-out ID samples, and of new samples if the network
        was trained on other samples.

    ood_label : int or str, default=-1
        Label of known OOD samples in ``y``; they are left out of the fit.

    Attributes
    ----------
    layers_ : list of str or int
        The layers.

    minima_, maxima_ : list of ndarray of shape (n_classes, n_powers, n_entries)
        The ranges, for each layer.

    expected_deviations_ : ndarray of shape (n_layers,)
        Mean deviation of the held-out samples.

    estimator_ : object
        The fitted classifier.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of the held-out
        samples are below it, see :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`, if known.

    See Also
    --------
    MultiLayerMahalanobis : Mahalanobis distances of mean activations of layers.

    Notes
    -----
    1e-6 is added to a bound in a denominator, as in the authors' code. So an entry that
    is 0 in all training samples of a class, but not in a new sample, deviates by up to
    a million times its value. Deviations within rounding error count as 0: deviations
    below 1e-5 of the bound, or below 1e-6 of the squared largest activation.

    References
    ----------
    .. [1] C. S. Sastry and S. Oore. "Detecting out-of-distribution examples with Gram
       matrices". ICML 2020.

    Examples
    --------
    >>> from sklearn.neural_network import MLPClassifier
    >>> from skood.datasets import load_digits_ood
    >>> from skood.detectors import Gram
    >>> X, y = load_digits_ood(ood_label=-1, return_X_y=True)
    >>> network = MLPClassifier((20,), random_state=0, max_iter=100)
    >>> detector = Gram(network, powers=[1], random_state=0).fit(X[:1000], y[:1000])
    >>> detector.layers_, detector.minima_[0].shape
    ([0], (7, 1, 210))
    >>> round(detector.score(X[1000:], y[1000:]), 2)  # AUROC, other samples
    0.8
    """

    _parameter_constraints: dict = {
        **NetworkDetector._parameter_constraints,
        "layers": [StrOptions({"all"}), "array-like"],
        "powers": ["array-like"],
        "entries": [StrOptions({"upper", "row_sums"})],
        "divide_by_confidence": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "random_state": ["random_state"],
    }

    _keeps_contamination = False  # see the docstring

    def __init__(
        self,
        estimator,
        *,
        layers="all",
        powers=(1, 2, 3, 4, 5),
        entries="upper",
        divide_by_confidence=False,
        validation_fraction=0.1,
        random_state=None,
        device="auto",
        contamination=0.05,
        ood_label=-1,
    ):
        super().__init__(
            estimator, device=device, contamination=contamination, ood_label=ood_label
        )
        self.layers = layers
        self.powers = powers
        self.entries = entries
        self.divide_by_confidence = divide_by_confidence
        self.validation_fraction = validation_fraction
        self.random_state = random_state

    def _fit_network(self, network, samples, y, weight):
        self._check_powers()
        self.layers_ = check_layers(self.layers, network, samples)
        held_out, copy_weights, rest = held_out_copies(
            SampleKeys(samples),
            y,
            self.validation_fraction,
            check_random_state(self.random_state),
            weight,
        )
        if len(held_out) == 0:
            raise ValueError(
                "Gram needs samples to hold out, but with n_samples = "
                f"{samples.shape[0]} none is left in addition to one of each class. "
                "Give more samples."
            )
        self._fit_ranges(network, samples, rest > 0)
        deviations = np.concatenate(list(self._deviations(network, samples[held_out])))
        self.expected_deviations_ = np.average(deviations, axis=0, weights=copy_weights)
        zero = self.expected_deviations_ == 0
        if zero.any():
            names = [n for n, z in zip(self.layers_, zero, strict=True) if z]
            warn(
                f"None of the {len(held_out)} samples that were held out deviates in "
                f"the layers {names}, so that their deviations are taken as they are "
                "(divided by 1). Hold out more samples by validation_fraction."
            )
            self.expected_deviations_[zero] = 1.0
        return weighted(self._total(deviations), copy_weights)

    def _check_powers(self):
        try:
            powers = np.asarray(self.powers)
            valid = powers.ndim == 1 and powers.dtype.kind in "iu" and powers.min() > 0
        except ValueError:  # nested lists of different lengths
            valid = False
        if not valid:
            raise ValueError(
                f"powers must be integers above 0, got {self.powers!r}. Give a flat "
                "list of them, such as [1, 2, 3]."
            )

    def _fit_ranges(self, network, samples, mask):
        """Set the ranges of entries, by predicted class, of the samples of a mask."""
        ranges: list = []
        start, class_counts = 0, []
        for block in network.layers(samples, self.layers_, "maps"):
            stop = start + len(block.logits)
            used = np.flatnonzero(mask[start:stop])
            start = stop
            n_classes = block.logits.shape[1]
            predicted = block.logits[used].argmax(axis=1)
            class_counts.append(np.bincount(predicted, minlength=n_classes))
            for i, layer in enumerate(self.layers_):
                maps = _maps(block, layer)
                if i == len(ranges):
                    ranges.append(_Ranges(maps, n_classes, self.powers, self.entries))
                ranges[i].update(maps[used], predicted)
            del block, maps
        counts = np.sum(class_counts, axis=0)
        self._check_counts(counts)
        self.minima_, self.maxima_ = [], []
        for limits in ranges:
            minima, maxima = (
                to_host(array) for array in (limits.minima, limits.maxima)
            )
            minima[counts == 0] = minima.min(axis=0)
            maxima[counts == 0] = maxima.max(axis=0)
            self.minima_.append(minima)
            self.maxima_.append(maxima)

    def _check_counts(self, counts):
        """Warn of classes that no training sample is predicted to be."""
        empty = np.flatnonzero(counts == 0)
        if len(empty) == 0:
            return
        names = np.asarray(getattr(self.estimator_, "classes_", np.arange(len(counts))))
        if len(names) != len(counts):  # a skorch net may have more logits than classes
            names = np.arange(len(counts))
        warn(
            f"None of {counts.sum()} training samples is predicted as one of the "
            f"classes {names[empty].tolist()}: samples with such a prediction are "
            "compared with the ranges of all training samples. Give samples of these "
            "classes, or hold out fewer by validation_fraction."
        )

    def _deviations(self, network, samples):
        """Yield the deviations (n_rows, n_layers) of consecutive samples."""
        ranges: list = []
        for block in network.layers(samples, self.layers_, "maps"):
            predicted = block.logits.argmax(axis=1)
            columns = []
            for i, layer in enumerate(self.layers_):
                maps = _maps(block, layer)
                if i == len(ranges):
                    limits = _Ranges(
                        maps, len(self.minima_[i]), self.powers, self.entries
                    )
                    limits.minima = asarray_like(self.minima_[i], maps)
                    limits.maxima = asarray_like(self.maxima_[i], maps)
                    ranges.append(limits)
                columns.append(ranges[i].deviations(maps, predicted))
            deviations = np.stack(columns, axis=1)
            if self.divide_by_confidence:
                _, others, _ = shifted_exponentials(block.logits)
                deviations *= (1.0 + others)[:, None]
            del block, maps
            yield deviations

    def _total(self, deviations):
        return 0.0 - (deviations / self.expected_deviations_).sum(axis=1)

    def _score_network(self, network, samples):
        parts = self._deviations(network, samples)
        return np.concatenate([self._total(deviations) for deviations in parts])


def _maps(block, layer):
    """Return outputs: tensors on a GPU, else NumPy, which obeys limits of threads."""
    maps = block.outputs[layer]
    return maps if on_gpu(maps) else to_host(maps)


class _Ranges:
    """Smallest and largest entries of the Gram matrices of a layer, by class."""

    def __init__(self, maps, n_classes, powers, entries):
        n_channels = maps.shape[1]
        self.powers = powers
        self.upper = None
        n_entries = n_channels
        if entries == "upper":
            first, second = np.triu_indices(n_channels)
            self.upper = asarray_like(first * n_channels + second, maps)
            n_entries = len(first)
        shape = (n_classes, len(powers), n_entries)
        self.minima = asarray_like(np.full(shape, np.inf), maps)
        self.maxima = -self.minima

    def _chunks(self, maps, predicted):
        """Yield samples, ordered by class, with the slice of each class in them."""
        n_channels, n_positions = maps.shape[1:]
        n_entries = self.minima.shape[2]
        per_row = 4 * n_channels * n_positions + 2 * n_channels**2 + 4 * n_entries
        for chunk in row_chunks(maps.shape[0], 8 * per_row, 32 * 2**20):
            order = np.argsort(predicted[chunk], kind="stable")
            classes, starts = np.unique(predicted[chunk][order], return_index=True)
            stops = [*starts[1:].tolist(), len(order)]
            slices = [slice(*ends) for ends in zip(starts.tolist(), stops, strict=True)]
            indices = chunk.start + order
            yield (
                indices,
                as_double(maps[asarray_like(indices, maps)]),
                list(zip(classes.tolist(), slices, strict=True)),
            )

    def _entries(self, maps):
        """Yield entries (n_samples, n_entries), and their scale, for each power."""
        xp = array_namespace(maps)
        # With G(a F) = a² G(F) no power overflows.
        size = xp.max(xp.abs(maps), axis=(1, 2), keepdims=True)
        size = xp.where(size > 0, size, xp.ones_like(size))
        maps = maps / size
        area = (size * size)[:, 0, :]
        raised, last = maps, 1
        for power in self.powers:
            if power != last:
                raised = raised * maps if power == last + 1 else maps**power
                last = power
            if self.upper is None:  # F F' 1 = F (F' 1), without the matrix
                totals = xp.sum(raised, axis=1)[:, :, None]
                entries = (raised @ totals)[:, :, 0]
            else:
                products = raised @ xp.permute_dims(raised, (0, 2, 1))
                entries = xp.reshape(products, (maps.shape[0], -1))[:, self.upper]
            if power > 1:
                entries = xp.sign(entries) * xp.abs(entries) ** (1.0 / power)
            yield entries * area, area

    def update(self, maps, predicted):
        """Extend the ranges to include training samples."""
        # One thread: more threads slow down many small products.
        with threadpool_limits(limits=1):
            for _, chunk, classes in self._chunks(maps, predicted):
                for j, (entries, _) in enumerate(self._entries(chunk)):
                    for k, members in classes:
                        self._widen((k, j), entries[members])

    def _widen(self, place, entries):
        xp = array_namespace(entries)
        low, high = self.minima[place], self.maxima[place]
        self.minima[place] = xp.minimum(low, xp.min(entries, axis=0))
        self.maxima[place] = xp.maximum(high, xp.max(entries, axis=0))

    def deviations(self, maps, predicted):
        """Return the sum of deviations of each sample from the ranges of its class."""
        sums = np.zeros(maps.shape[0])
        with threadpool_limits(limits=1):
            for indices, chunk, classes in self._chunks(maps, predicted):
                for j, (entries, area) in enumerate(self._entries(chunk)):
                    for k, members in classes:
                        outside = self._outside((k, j), entries[members], area[members])
                        sums[indices[members]] += outside
        return sums

    def _outside(self, place, entries, area):
        """Return the total deviation of the entries of each sample from one range."""
        xp = array_namespace(entries)
        total = 0.0
        for bound, sign in ((self.minima[place], -1.0), (self.maxima[place], 1.0)):
            size = xp.abs(bound)
            excess = sign * (entries - bound)
            least = xp.maximum(_ROUNDING * size, 0.1 * _ROUNDING * area)
            excess = xp.where(excess > least, excess, 0.0 * excess)
            total = total + excess @ (1.0 / (size + _LEAST_BOUND))
        return to_host(total)
