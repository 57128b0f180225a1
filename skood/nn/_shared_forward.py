"""Forward passes that are shared by several detectors of the same network.

Detectors that are fitted on the same samples, or score them, one after the other, each
run their network. In a block of `shared_outputs` the first of them runs it for the
outputs that all of them need, and the others use the cached results.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import threading
from contextlib import contextmanager, nullcontext, suppress
from functools import cached_property
from itertools import chain
from operator import attrgetter
from types import NoneType
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
from skood.utils._batches import joined, loaded_blocks
from skood.utils._labels import single_column
from skood.utils._memory_maps import in_memory
from skood.utils._metaestimators import n_rows, take_rows, unwrapped
from skood.utils._optional import is_instance
from skood.utils._parallel import NO_LIMIT, ONE_THREAD
from skood.utils._torch import row_chunks

# Number of samples at a time whose shared outputs are cached.
_SHARED_SAMPLES = 8192

# Up to this number of samples, the calls around scores take a fraction of their time.
_FEW_SAMPLES = 256


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
    return [inner for _, inner in pairs if not isinstance(inner, str | NoneType)]


def _nested(estimator):
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
    for nested in _nested(estimator):
        yield from _uses(nested)
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
                indices, networks = sorted(group[0] + indices), networks | group[1]
        groups = [*rest, (indices, networks)]
    return sorted(indices for indices, _ in groups)


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
        is_opened = key is not None  # opened in the block, so that its id stays unique
        if key is None:
            key = reader.target, reader.place
        target, place = key
        if target not in self._targets:
            self._targets.add(target)
            requested = {place: (reader, want)}
            wanted = self._all_wanted(requested, target)
            if wanted != requested:
                # If not all can be read, each reader reads only its own outputs: an
                # error is raised for the reader that causes it.
                with suppress(Exception):
                    self._keep(X, wanted, target)
        cached = self._outputs.get(key, NetworkOutputs())
        if any(getattr(cached, name) is None for name in want):
            self._keep(X, {place: (reader, want)}, target)
            cached = self._outputs[key]
        outputs = NetworkOutputs(**{name: getattr(cached, name) for name in want})
        if is_opened:
            self._served[id(reader), want] = outputs
        return outputs

    def _all_wanted(self, requested, target):
        """Return the outputs requested of a network on one device, by layer."""
        wanted = dict(requested)
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
        pairs = list(wanted.values())
        blocks = pairs[0][0].outputs_together(X, pairs)
        parts = list(map(list, zip(*blocks, strict=True)))
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
def shared_outputs(detectors, classifiers=(), known_uses=()):
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
    `predict_proba` of this file: a classifier is listed once for each of them.
    `known_uses` are the uses by other detectors. Of nested blocks, the outermost block
    of a network stores its outputs.
    """
    uses: dict = {}
    for network in map(unwrapped, classifiers):
        if _by_logits(network, "predict"):
            use = _Use(network, frozenset({"logits"}), {})
            uses.setdefault(id(network), []).append(use)
    for use in chain(known_uses, *map(_uses, detectors)):
        if use.want is not None:
            uses.setdefault(id(use.network), []).append(use)
    memories = {}
    for key, of_network in uses.items():
        if len(of_network) > 1:  # outputs that are used only once are not stored
            memories[key] = _Memory(of_network)
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
    if n_users < 2 or n_samples <= _SHARED_SAMPLES or hasattr(X, "adjacency"):
        yield X
        return
    for indices in row_chunks(n_samples, 1, _SHARED_SAMPLES):
        yield take_rows(X, indices)


# --- plans ------------------------------------------------------------------------


def _is_reader(detector, network):
    """Return whether a fitted detector uses the outputs of a network, nothing else."""
    return (
        hasattr(detector, "_score_outputs")
        and network is not None
        and getattr(detector, "estimator", None) is not None
        and unwrapped(getattr(detector, "estimator_", None)) is network
        and not getattr(detector, "_keeps_names", False)
        and getattr(type(detector), "score_samples", None) is BaseDetector.score_samples
    )


class NetworkPlan:
    """How detectors, and predictions of a classifier, share forward passes.

    Made once after a fit, and not stored in files. Detectors are direct if all use the
    outputs of one network for `X`, and nothing else: the network of `estimator` or, if
    it is None, of the first detector. Others share passes by `shared_outputs`.
    """

    def __init__(self, estimator, detectors):
        self.estimator, self.detectors = estimator, detectors
        first = getattr(detectors[0], "estimator_", None) if estimator is None else None
        self.network = unwrapped(estimator if first is None else first)
        # methods of the classifier that are functions of its logits
        self.methods = set()
        for name in ("predict", "predict_proba"):
            if estimator is not None and _by_logits(estimator, name):
                self.methods.add(name)
        self.is_direct = True
        self._needs: list = []
        self._large: list = []
        for detector in detectors:
            self.is_direct = self.is_direct and _is_reader(detector, self.network)
            self._needs.append(getattr(detector, "_needs", frozenset()))
            # a bank is large, whatever the samples are
            self._large.append(hasattr(detector, "bank_"))

    @cached_property
    def uses(self):
        """Uses of networks by the detectors; finding many takes longer than a block."""
        return list(chain.from_iterable(map(_uses, self.detectors)))

    def run(self, X, methods=()):
        """Return a list of the scores of each detector, and of results of methods.

        `methods` of the estimator are "predict" and "predict_proba". The network runs
        once for all of them.
        """
        results = self.direct(X, methods)
        if results is not None:
            return results
        shares = "predict" in self.methods
        results = [
            self._run_shared(in_memory(block) if shares else block, methods)
            for samples in loaded_blocks(X)
            for block in (shared_blocks(samples) if shares else (samples,))
        ]
        if len(results) == 1:
            return results[0]
        return [joined(list(column)) for column in zip(*results, strict=True)]

    def _run_shared(self, X, methods):
        """Return `run`, by the methods of the detectors and the estimator."""
        users, shares = [self.estimator] * len(methods), "predict" in self.methods
        with shared_outputs((), users, self.uses) if shares else nullcontext():
            scores = [detector.score_samples(X) for detector in self.detectors]
            functions = {"predict": predict, "predict_proba": predict_proba}
            return scores + [functions[name](self.estimator, X) for name in methods]

    def direct(self, X, methods=()):
        """Return `run` of a NumPy array by direct detectors, from one forward pass.

        These are the scores of `score_samples`, without the calls around each, which
        take longer than the scores of a few samples. None, if it is not possible or
        anything is wrong: then `score_samples` raises, or returns the same.
        """
        is_block = type(X) is np.ndarray and X.shape[:1] <= (_SHARED_SAMPLES,)
        if not (self.is_direct and is_block and self.methods.issuperset(methods)):
            return None
        for detector in self.detectors:
            if unwrapped(detector.estimator_) is not self.network:  # fitted since then
                return None
        with suppress(Exception):
            needs = frozenset({"logits"} if methods else ()).union(*self._needs)
            network = make_network(self.network)
            if network.memory is not None:
                outputs = network.outputs(X, needs)
            else:
                blocks = []
                for (block,) in network.outputs_together(X, [(network, needs)]):
                    blocks.append(block)
                outputs = blocks[0] if len(blocks) == 1 else concatenate(blocks)
            results = self._scores(network, outputs, len(X))
            if not all(map(all_finite, results)):
                return None
            last = _last(self.estimator) if methods else None
            for name in methods:
                function = _classes_of if name == "predict" else _proba_of
                results.append(function(last, outputs.logits))
            return results
        return None

    def _scores(self, network, outputs, n_samples):
        """Return the scores by direct detectors from their common outputs."""
        if n_samples <= _FEW_SAMPLES:
            outputs = outputs.to(None)
        used: dict = {}
        for names in set(self._needs):
            others = {"features", "logits", "head"} - names
            used[names] = outputs._replace(**dict.fromkeys(others))
        scores: list = [None] * len(self.detectors)
        if n_samples > _FEW_SAMPLES:
            for j, detector in enumerate(self.detectors):
                blocks = network.blocks(used[self._needs[j]])
                scores[j] = np.concatenate([*map(detector._scores, blocks)])
            return scores
        alone = n_samples == 1 and not issparse(outputs.features)
        for is_large in set(self._large):
            with (
                NO_LIMIT if is_large else ONE_THREAD,
                np.errstate(over="ignore", invalid="ignore"),
            ):
                for j, detector in enumerate(self.detectors):
                    if self._large[j] is is_large:
                        score = detector._score_one if alone else detector._scores
                        scores[j] = score(used[self._needs[j]])
        return scores


# --- predictions -----------------------------------------------------------------


def predict(classifier, X):
    """Return predicted classes: in a block of `shared_outputs`, from its logits."""
    logits = _shared_logits(classifier, X, "predict")
    if logits is None:
        return single_column(classifier.predict(X))  # of CatBoost
    return _classes_of(_last(classifier), logits)


def _classes_of(last, logits):
    """Return the predictions of a classifier `_by_logits`."""
    codes = logits.argmax(axis=1)
    return codes if _is_skorch(last) else np.asarray(last.classes_)[codes]


def predict_proba(classifier, X):
    """Return probabilities: in a block of `shared_outputs`, from its logits."""
    logits = _shared_logits(classifier, X, "predict_proba")
    if logits is None:
        return classifier.predict_proba(X)
    return _proba_of(_last(classifier), logits)


def _proba_of(last, logits):
    """Return the probabilities of a classifier `_by_logits`."""
    if not is_instance(last, "sklearn.linear_model", "LogisticRegression"):
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
    function = getattr(type(last), method, None)
    if _is_skorch(last):
        from skorch import NeuralNetClassifier

        is_plain = getattr(last, "predict_nonlinearity", None) == "auto"
        return is_plain and function is getattr(NeuralNetClassifier, method)
    if function is getattr(LogitsMixin, method):
        return hasattr(last, "module_") or LinearNetwork.serves(last)
    if MLPNetwork.serves(last):
        from sklearn.neural_network import MLPClassifier

        return function is getattr(MLPClassifier, method)
    if LinearNetwork.serves(last):
        from sklearn.linear_model import LogisticRegression

        # it inherits `predict` from a base class of most linear classifiers
        return function is getattr(LogisticRegression, method)
    return False


def _shared_logits(classifier, X, method):
    """Return logits from the cache of a block, or None without one."""
    memories = [memory.get(id(unwrapped(classifier))) for memory in SHARING.get()]
    if not any(m is not None and m.is_open() for m in memories):
        return None
    if not _by_logits(classifier, method):
        return None
    return make_network(classifier).outputs(X, {"logits"}).logits
