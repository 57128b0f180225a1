"""Cross-fitted scores of training samples, from which thresholds are estimated."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import heapq
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from skood.utils._optional import is_instance
from skood.utils._sample_keys import copy_numbers, mixed
from skood.utils._weights import remaining_weight, unit_counts, units, weighted

# For slow scores, the threshold is estimated from this many training samples. The
# standard error of a 5 % quantile's level is then .3 %. Samples are drawn, not evenly
# spaced: if classes alternate in the data, evenly spaced samples may all be of one
# class.
MAX_OFFSET_SAMPLES = 5000

# A network is refitted for each fold: fewer samples are scored.
MAX_REFITTED_SAMPLES = 1000
NETWORK_FOLDS = 5

# Number of samples on which the scores of two classifiers are compared.
_MAX_COMPARED = 1000

# Whether the thresholds of detectors fitted now, in this thread, are unused.
UNUSED: ContextVar[bool] = ContextVar("unused_thresholds", default=False)

# Below this number of samples more folds are used: a model of nine tenths of few
# samples scores worse than the model of all of them.
_FEW = 1000


@contextmanager
def unused_thresholds():
    """Skip refits for thresholds inside a ``with`` block, in this thread only.

    For members of an ensemble, which are used for scores: their thresholds are computed
    from scores of samples that they were fitted on.
    """
    token = UNUSED.set(True)
    try:
        yield
    finally:
        UNUSED.reset(token)


def drawn_copies(keys, weight=None, limit=MAX_OFFSET_SAMPLES):
    """Return samples for the threshold, sorted, and the weights of their copies.

    Without weights, each sample is one copy, and the weights are None. A sample of
    weight w is w copies, see `units`. If there are more than `limit` (None: any number)
    in all, those with the smallest `copy_numbers` are drawn.
    """
    if weight is None:
        indices, copy_weights, counts = np.arange(keys.n_samples), None, None
    else:
        indices, copy_weights = units(weight)
        counts = unit_counts(weight)
    if limit is None or len(indices) <= limit:
        return indices, copy_weights
    numbers = copy_numbers(keys.values, counts)
    drawn = np.sort(np.argpartition(numbers, limit)[:limit])
    return indices[drawn], None if copy_weights is None else copy_weights[drawn]


def drawn_in_order(n_samples, weight=None, limit=MAX_OFFSET_SAMPLES):
    """Return samples for the threshold as `drawn_copies`, without their keys.

    For scores that depend on no other sample: the draw is by the positions, so that no
    other sample is looked at.
    """
    n_copies = n_samples if weight is None else int(unit_counts(weight).sum())
    if n_copies <= limit:
        return np.arange(n_samples), weight
    numbers = np.random.RandomState(0).random_sample(n_copies)
    drawn = np.sort(np.argpartition(numbers, limit)[:limit])
    if weight is None:
        return drawn, None
    indices, copy_weights = units(weight)
    return indices[drawn], copy_weights[drawn]


@dataclass(frozen=True)
class LeftOutFold:
    """Copies that are scored by a fit without them: ``positions`` in `drawn`.

    ``gone`` are the samples of the copies that this fit leaves out, and
    ``copy_weights`` the weights of these copies, None without weights.
    """

    positions: np.ndarray
    gone: np.ndarray
    copy_weights: np.ndarray | None

    def others(self, weight, n_samples):
        """Return the samples of the fit, and their weights (None without weights)."""
        if self.copy_weights is None:
            return np.delete(np.arange(n_samples), self.gone), None
        return remaining_weight(weight, self.gone, self.copy_weights)


def folds(
    keys, drawn, y=None, n_folds=None, weight=None, copy_weights=None, n_seen=None
):
    """Split drawn samples into folds that are left out of fits.

    All copies of a sample are in one fold, by its key: a fit that has seen a copy would
    score it too high. Copies that are more than 1 / `n_folds` of all samples, or all
    samples of a class, are split between folds: as many new samples are equal to them.
    `n_folds` None: 20 for fewer than 1,000 samples, else 10.

    Folds are stratified and balanced. Each leaves out about 1 / `n_folds` of the
    samples, and of each class at least one sample is left. A sample that is alone in
    its class is in no fold. Empty if no sample can be left out.

    With weights (n_samples,), `drawn` and `copy_weights` are from `drawn_copies`.
    `n_seen`: the number of samples of the fit, if these are drawn from more.
    """
    counts = np.ones(keys.n_samples, np.intp) if weight is None else unit_counts(weight)
    n_copies = int(counts.sum()) if n_seen is None else n_seen
    n_folds = n_folds or (20 if n_copies < _FEW else 10)
    if n_copies < 2:
        return []
    _, codes = np.unique(
        np.zeros(keys.n_samples) if y is None else y, return_inverse=True
    )
    totals = np.bincount(codes, counts)
    _, contents = np.unique(keys.values, return_inverse=True)
    sizes = np.bincount(contents, counts).astype(np.intp)
    split = sizes > counts.sum() / n_folds
    split[_wholes(contents, codes, counts, totals)] = True
    single, numbers = split[contents[drawn]], mixed(keys.values[drawn])
    numbers[single] = copy_numbers(keys.values[drawn[single]])
    chosen = np.flatnonzero(totals[codes[drawn]] > 1)
    numbers, sizes = (
        numbers[chosen],
        np.where(single, 1, sizes[contents[drawn]])[chosen],
    )
    labels = codes[drawn[chosen]]
    left_out = []
    for members in _dealt(numbers, sizes, labels, n_folds / n_copies, n_copies):
        members = chosen[members]
        while True:
            whole = np.isin(
                contents, contents[drawn[members[~single[members]]]]
            ).nonzero()[0]
            ones = members[single[members]]
            gone = np.concatenate([whole, drawn[ones]])
            n_gone = np.concatenate([counts[whole], np.ones(len(ones))])
            lost = np.bincount(codes[gone], n_gone, minlength=len(totals)) == totals
            if n_seen is not None or not lost.any():
                break
            # a class would be gone: no fit leaves out its samples
            members = members[~lost[codes[drawn[members]]]]
        gone_weights = (
            None if weight is None else np.append(weight[whole], copy_weights[ones])
        )
        if len(members):
            left_out.append(LeftOutFold(members, gone, gone_weights))
    return left_out


def _wholes(contents, codes, counts, totals):
    """Return the contents whose copies are all samples of a class."""
    n_contents = contents.max(initial=0) + 1
    pairs, first = np.unique(codes * n_contents + contents, return_inverse=True)
    is_whole = np.bincount(first, counts) == totals[pairs // n_contents]
    return pairs[is_whole] % n_contents


def _dealt(numbers, sizes, codes, fraction, n_copies):
    """Deal copies into folds, equal numbers together; return their positions.

    `sizes`: how many copies of `n_copies` a fit loses with each number. There is a fold
    for each 1 / `fraction` of them.
    """
    _, first, items = np.unique(numbers, return_index=True, return_inverse=True)
    if len(first) == 0:
        return []
    sizes = sizes[first]
    lowest = np.full(len(first), codes.max())
    np.minimum.at(lowest, items, codes)  # copies may have different labels
    total = int(sizes.sum())
    n_piles = min(len(first), max(1, int(np.ceil(fraction * total - 1e-9))))
    if n_piles == 1 and total == n_copies:
        n_piles = 2
    order = np.argsort(lowest, kind="stable")
    fold = np.empty(len(first), dtype=np.intp)
    if sizes.max() == 1:
        fold[order] = np.arange(len(order)) % n_piles
    else:
        fold[order] = _balanced(sizes[order], lowest[order], n_piles)
    return [np.flatnonzero(fold[items] == k) for k in range(n_piles)]


def _balanced(sizes, codes, n_piles):
    """Return a fold for each item, in turn the one with the fewest copies of its class.

    Of several, it is the one with the fewest copies in all.
    """
    assigned, filled = np.empty(len(sizes), dtype=np.intp), [0] * n_piles
    for code in np.unique(codes):
        heap = [(0, n, fold) for fold, n in enumerate(filled)]
        heapq.heapify(heap)
        for i in np.flatnonzero(codes == code):
            n_same, n, fold = heap[0]
            size = int(sizes[i])
            heapq.heapreplace(heap, (n_same + size, n + size, fold))
            assigned[i], filled[fold] = fold, n + size
    return assigned


def valid_scores(scores, copy_weights=None):
    """Return scores that are not NaN, with their weights; None if there is none."""
    valid = ~np.isnan(scores)
    if not valid.any():
        return None
    return weighted(
        scores[valid], None if copy_weights is None else copy_weights[valid]
    )


def compared_samples(keys, chosen, weight):
    """Return, of the samples of a fit, those on which two fits are compared."""
    if weight is None and len(chosen) <= _MAX_COMPARED:
        return slice(None)
    return drawn_copies(keys.take(chosen), weight, _MAX_COMPARED)[0]


def is_fixed(estimator):
    """Return whether `fit` leaves a classifier unchanged, so that a clone is fitted.

    True as well if thresholds are unused, since only they need a refit.
    """
    if UNUSED.get():
        return True
    if is_instance(estimator, "sklearn.pipeline", "Pipeline"):
        return all(is_fixed(step) for _, step in estimator.steps)
    if estimator is None or isinstance(estimator, str):  # a step that is left out
        return True
    try:
        check_is_fitted(clone(estimator))
    except NotFittedError:
        return False
    return True


def rescaled(scores, copied, reference):
    """Rescale scores of a copy to the detector's, by quartiles on common samples.

    A classifier fitted on fewer samples has logits of another scale, and the score of a
    one-class SVM is a sum over its support vectors.
    """
    (low, middle, high), quartiles = np.percentile(
        [copied, reference], [25, 50, 75], axis=1
    ).T
    spread = high - low
    scale = (quartiles[2] - quartiles[0]) / spread if spread > 0 else 1.0
    return quartiles[1] + scale * (scores - middle)
