"""Forward passes that are shared by several detectors of the same network.

Detectors that are fitted on the same samples, or score them, one after the other, each
run their network. In a block of `shared_outputs` the first of them runs it for the
outputs that all of them need, and the others use the cached results.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import threading
from contextlib import contextmanager, nullcontext, suppress
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from scipy.special import expit, softmax
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils.extmath import softmax as sklearn_softmax

from skood.base import BaseDetector
from skood.nn._logits import LogitsMixin
from skood.nn._make_network import SHARING, make_network, plain_network
from skood.nn._outputs import NetworkOutputs, concatenate
from skood.nn._sklearn_network import LinearNetwork, MLPNetwork
from skood.utils._array_api import all_finite
from skood.utils._labels import single_column
from skood.utils._metaestimators import n_rows, take_rows, unwrapped
from skood.utils._optional import is_instance
from skood.utils._parallel import ONE_THREAD
from skood.utils._torch import row_chunks

# Number of samples at a time whose shared outputs are cached.
_SHARED_ROWS = 8192

# Up to this number of samples, the calls around scores take a share of their time.
_FEW_ROWS = 256


class _Use(NamedTuple):
    """Use of a network by an estimator.

    ``want`` are the outputs that it requests, with options of `make_network`. None: it
    runs the network itself.
    """

    network: object
    want: frozenset | None
    options: dict


def _named(pairs):
    """Return the estimators of (name, estimator) pairs, without dropped ones."""
    return [part for _, part in pairs if part is not None and not isinstance(part, str)]


def _parts(estimator):
    """Return the estimators inside another one that are given the same samples."""
    if isinstance(estimator, Pipeline):
        return _named(estimator.steps)[:1]
    if isinstance(estimator, FeatureUnion):
        return _named(estimator.transformer_list)
    if hasattr(estimator, "named_detectors_"):
        return list(estimator.named_detectors_.values())
    detectors = getattr(estimator, "detectors", None)
    if isinstance(detectors, list):
        return _named(detectors)
    return []


def _uses(estimator):
    """Yield the uses of networks by an estimator, fitted or not."""
    estimator = unwrapped(estimator)
    for part in _parts(estimator):
        yield from _uses(part)
    inner = getattr(estimator, "estimator_", None)
    is_fitted = inner is not None
    if not is_fitted:
        inner = getattr(estimator, "estimator", None)
        is_fitted = isinstance(inner, FrozenEstimator)
    if inner is None:
        return
    if is_fitted:
        options = getattr(estimator, "_network_options", {})
        yield _Use(unwrapped(inner), getattr(estimator, "_needs", None), options)
    # It may begin with another reader. An unfitted one runs the network twice: to be
    # fitted, and then to compute its outputs.
    for use in _uses(inner):
        yield from [use] * (1 if is_fitted else 2)


def network_groups(detectors):
    """Return sorted lists of indices of detectors, fitted or not, that use one network.

    Also in pipelines, searches and frozen estimators. A detector that uses no fitted
    network is a group of its own.
    """
    groups: list[tuple[list[int], set[int]]] = []
    for i, detector in enumerate(detectors):
        indices, networks = [i], {id(use.network) for use in _uses(detector)}
        rest = []
        for group in groups:
            if networks.isdisjoint(group[1]):
                rest.append(group)
            else:
                indices, networks = group[0] + indices, networks | group[1]
        groups = [*rest, (indices, networks)]
    return sorted(sorted(indices) for indices, _ in groups)


def distinct_uses(detectors):
    """Return the indices of detectors for which `shared_outputs` is as for all.

    With many detectors of one network, finding their uses takes longer than a block.
    """
    uses: dict = {}
    indices = []
    for i, detector in enumerate(detectors):
        is_new = False
        for use in _uses(detector):
            known = uses.setdefault(id(use.network), [])
            # outputs that are used twice are stored
            if use.want is not None and (len(known) < 2 or use not in known):
                known.append(use)
                is_new = True
        if is_new:
            indices.append(i)
    return indices


class _Memory:
    """Cache of a block for one network: its outputs for the most recent samples."""

    def __init__(self, uses):
        self.network = uses[0].network  # kept alive, so that its id stays unique
        self._wants: list = []  # pairs of options, and the outputs that all request
        for use in uses:
            for pair in self._wants:
                if pair[0] == use.options:
                    pair[1] |= use.want
                    break
            else:
                self._wants.append([use.options, use.want])
        self._networks: list = []  # pairs of options and the network opened with them
        self._keys: dict = {}  # target and place of a network by its id
        self._thread = threading.get_ident()
        self._open = True
        self.forget()

    def forget(self):
        """Release samples and outputs."""
        self._X: Any = None
        self._targets: set = set()  # where all outputs were read, or tried to be
        self._outputs: dict = {}  # from the target and place of a reader
        self._served: dict = {}  # parts of them, by the id of a network and their names

    def close(self):
        """Release everything, and store nothing from now on."""
        self.forget()
        self._networks, self._keys = [], {}
        self._open = False

    def is_open(self):
        """Return whether this thread is in the block."""
        return self._open and self._thread == threading.get_ident()

    def open(self, options):
        """Return the network with some options of `make_network`, opened once."""
        for known, network in self._networks:
            if known == options:
                return network
        network = plain_network(self.network, **options)
        network.memory = self
        self._keys[id(network)] = network.target, network.place
        self._networks.append((options, network))
        return network

    def read(self, reader, X, want):
        """Return read-only outputs of all samples, cached if they were read last."""
        if X is not self._X:
            self.forget()
            self._X = X
        want, key = frozenset(want), self._keys.get(id(reader))
        if (id(reader), want) in self._served:
            return self._served[id(reader), want]
        is_own = key is not None  # opened in the block, so that its id stays unique
        if key is None:
            key = reader.target, reader.place
        target, place = key
        if target not in self._targets:
            self._targets.add(target)
            own = {place: (reader, want)}
            wanted = self._all_wanted(own, target)
            if wanted != own:
                # If not all can be read, each reader reads only its own outputs: an
                # error is raised for the reader that causes it.
                with suppress(Exception):
                    self._keep(X, wanted, target)
        found = self._outputs.get(key, NetworkOutputs())
        if any(getattr(found, name) is None for name in want):
            self._keep(X, {place: (reader, want)}, target)
            found = self._outputs[key]
        outputs = NetworkOutputs(**{name: getattr(found, name) for name in want})
        if is_own:
            self._served[id(reader), want] = outputs
        return outputs

    def _all_wanted(self, own, target):
        """Return the outputs requested of a network on one device, by layer."""
        wanted = dict(own)
        for options, outputs in self._wants:
            with suppress(Exception):  # raised for the reader that requests it
                reader = self.open(options)
                if self._keys[id(reader)][0] == target:
                    known, want = wanted.get(reader.place, (reader, frozenset()))
                    known = min(known, reader, key=attrgetter("batch_size"))
                    wanted[reader.place] = (known, want | outputs)
        return wanted

    def _keep(self, X, wanted, target):
        """Read together, and store the result."""
        readers = [reader for reader, _ in wanted.values()]
        blocks = readers[0].outputs_together(X, list(wanted.values()))
        parts = [list(part) for part in zip(*blocks, strict=True)]
        for place in wanted:
            new = concatenate(parts.pop(0))
            old = self._outputs.get((target, place), NetworkOutputs())
            self._outputs[target, place] = NetworkOutputs(
                old.features if new.features is None else _read_only(new.features),
                old.logits if new.logits is None else _read_only(new.logits),
                old.head if new.head is None else new.head,
            )


def _read_only(array):
    """Return a read-only view; the array may belong to the caller."""
    if not issparse(array):
        array = array.view()
        array.flags.writeable = False
    return array


@contextmanager
def shared_outputs(detectors, classifiers=()):
    """Share the forward passes of detectors that use the same network.

    In the block, and in the thread that entered it, the first detector that uses a
    network runs it for the outputs that all need. They are stored until other samples
    are read, or the block ends: fit all detectors on one array before they score
    another, and score large data by `shared_blocks`. Samples are identified by the
    identity of `X`, which must not be modified; detectors copy it in `fit` if `y`
    contains OOD samples: leave these out.

    Scores are bitwise equal to the scores without a block, unless a `FeatureExtractor`
    has smaller batches: all then use the smallest. A network runs once on each device.
    If not all outputs can be read at once, each detector reads only its own.

    `detectors`, also in pipelines, searches and frozen estimators, are fitted or score
    in the block; `classifiers` are fitted, and predict by the functions `predict` and
    `predict_proba` of this file: a classifier is listed once for each of them. Of
    nested blocks, the outermost block of a network stores its outputs.
    """
    uses: dict = {}
    for network in map(unwrapped, classifiers):
        if _by_logits(network, "predict"):
            use = _Use(network, frozenset({"logits"}), {})
            uses.setdefault(id(network), []).append(use)
    for use in (use for detector in detectors for use in _uses(detector)):
        if use.want is not None:
            uses.setdefault(id(use.network), []).append(use)
    # Outputs that are used only once are not stored.
    memories = {key: _Memory(found) for key, found in uses.items() if len(found) > 1}
    token = SHARING.set((*SHARING.get(), memories))
    try:
        yield
    finally:
        SHARING.reset(token)
        for memory in memories.values():
            memory.close()


def shared_blocks(X, n_users=2):
    """Yield samples whose outputs are cached at once; a graph is not cut."""
    n_samples = n_rows(X)
    if n_users < 2 or n_samples <= _SHARED_ROWS or hasattr(X, "adjacency"):
        yield X
        return
    for rows in row_chunks(n_samples, 1, _SHARED_ROWS):
        yield take_rows(X, rows)


# --- few samples -----------------------------------------------------------------


def read_alike(detectors, network=None):
    """Return whether detectors use the outputs of one network for `X`, nothing else.

    It is the network of the first, or the one given.
    """
    if not all(
        hasattr(detector, "_score_outputs")
        and getattr(detector, "estimator", None) is not None
        and hasattr(detector, "estimator_")
        and not getattr(detector, "_keeps_names", False)
        and getattr(type(detector), "score_samples", None) is BaseDetector.score_samples
        for detector in detectors
    ):
        return False
    networks = [unwrapped(detector.estimator_) for detector in detectors]
    first = networks[0] if network is None else unwrapped(network)
    return all(one is first for one in networks)


def few_scores(detectors, X, needs=frozenset()):
    """Return scores of a few samples by detectors that `read_alike`, and outputs.

    These are the scores of `score_samples`, of shape (n_samples, n_detectors), without
    what it does around each: for a few samples this takes longer than the scores. The
    outputs also have the arrays `needs`. None, if there are many samples, or anything
    is wrong: then `score_samples` raises, or finds the same.
    """
    if type(X) is not np.ndarray or not X.shape[:1] <= (_FEW_ROWS,):
        return None
    with suppress(Exception):
        reads = [detector._needs for detector in detectors]
        network = make_network(detectors[0].estimator_)
        whole = network.outputs(X, needs.union(*reads)).to(None)
        parts = {
            own: NetworkOutputs(**{name: getattr(whole, name) for name in own})
            for own in set(reads)
        }
        alone = len(X) == 1 and not issparse(whole.features)
        scores = np.empty((len(X), len(detectors)))
        # a bank is large, whatever the samples are
        large = [hasattr(detector, "bank_") for detector in detectors]
        for is_large in set(large):
            with (
                nullcontext() if is_large else ONE_THREAD,
                np.errstate(over="ignore", invalid="ignore"),
            ):
                for j, detector in enumerate(detectors):
                    if large[j] is is_large:
                        score = detector._score_one if alone else detector._scores
                        scores[:, j] = score(parts[reads[j]])
        if all_finite(scores):
            return scores, whole
    return None


# --- predictions -----------------------------------------------------------------


def predict(classifier, X):
    """Return predicted classes: in a block of `shared_outputs`, from its logits."""
    logits = _shared_logits(classifier, X, "predict")
    if logits is None:
        return single_column(classifier.predict(X))  # of CatBoost
    return predicted_classes(classifier, logits)


def predicted_classes(classifier, logits):
    """Return the predictions of a classifier that `uses_network`, from its logits."""
    codes = logits.argmax(axis=1)
    last = _last(classifier)
    return codes if _is_skorch(last) else np.asarray(last.classes_)[codes]


def predict_proba(classifier, X):
    """Return probabilities: in a block of `shared_outputs`, from its logits."""
    logits = _shared_logits(classifier, X, "predict_proba")
    if logits is None:
        return classifier.predict_proba(X)
    if not is_instance(_last(classifier), "sklearn.linear_model", "LogisticRegression"):
        return softmax(np.asarray(logits, dtype=np.float64), axis=1)
    if logits.shape[1] > 2:
        return sklearn_softmax(logits)
    proba = expit(logits[:, 1] - logits[:, 0])
    return np.stack([1 - proba, proba], axis=1)


def uses_network(classifier):
    """Return whether predictions of a fitted classifier can be shared."""
    return _by_logits(classifier, "predict")


def _last(classifier):
    """Return a classifier without wrappers and the steps of a pipeline before it."""
    last = unwrapped(classifier)
    while isinstance(last, Pipeline):
        last = unwrapped(last[-1])
    return last


def _is_skorch(estimator):
    return is_instance(estimator, "skorch.net", "NeuralNet")


def _by_logits(classifier, method):
    """Return whether a method of a network is a function of its logits alone."""
    last = _last(classifier)
    own = getattr(type(last), method, None)
    if _is_skorch(last):
        from skorch import NeuralNetClassifier

        is_plain = getattr(last, "predict_nonlinearity", None) == "auto"
        return is_plain and own is getattr(NeuralNetClassifier, method)
    if own is getattr(LogitsMixin, method):
        return hasattr(last, "module_") or LinearNetwork.serves(last)
    if MLPNetwork.serves(last):
        from sklearn.neural_network import MLPClassifier

        return own is getattr(MLPClassifier, method)
    if LinearNetwork.serves(last):
        from sklearn.linear_model import LogisticRegression

        # it inherits `predict` from a base class of most linear classifiers
        return own is getattr(LogisticRegression, method)
    return False


def _shared_logits(classifier, X, method):
    """Return logits from the cache of a block, or None without one."""
    memories = [memory.get(id(unwrapped(classifier))) for memory in SHARING.get()]
    if not any(m is not None and m.is_open() for m in memories):
        return None
    if not _by_logits(classifier, method):
        return None
    return make_network(classifier).outputs(X, {"logits"}).logits
