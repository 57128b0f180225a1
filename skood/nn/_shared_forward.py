"""One forward pass for all that read the same network.

Detectors that are fitted one after the other on the same rows, or score them, each run
the network that they read. In a block of `shared_readings` the first of them runs it,
for what all of them want, and the others are served from memory.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline

from skood.nn._outputs import Reading, concatenate
from skood.nn._sklearn_network import SHARING, plain_reader
from skood.utils._metaestimators import unwrapped

__all__ = ["network_groups", "shared_readings"]


@dataclass(frozen=True)
class _Use:
    """What an estimator does with a network, given rows as the caller has them.

    Parameters
    ----------
    network : object
        What it reads.

    want : frozenset of str or None
        What it asks a reader for. None: it runs the network itself.

    options : dict
        Of its reader.
    """

    network: object
    want: frozenset | None = None
    options: dict = field(default_factory=dict)


def _named(pairs):
    """The estimators of (name, estimator) pairs, without what is left out."""
    return [part for _, part in pairs if part is not None and not isinstance(part, str)]


def _parts(estimator):
    """Estimators inside another one that are given the rows that it is given."""
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
    """Yield what an estimator, fitted or not, does with networks."""
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
        options = getattr(estimator, "_reader_options", {})
        yield _Use(unwrapped(inner), getattr(estimator, "_reads", None), options)
    # It may begin with another reader. One that is yet to be fitted reads twice: to be
    # fitted, and then to be read.
    for use in _uses(inner):
        yield from [use] * (1 if is_fitted else 2)


def network_groups(detectors):
    """Group detectors that read the same network.

    Parameters
    ----------
    detectors : list of object
        Detectors, fitted or not, also in pipelines, searches and frozen estimators.

    Returns
    -------
    groups : list of list of int
        Indices, ascending in each group; groups in the order of their first index. A
        detector that reads no network that is fitted already is a group of its own.
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


class _Memory:
    """What a block keeps of one network: readings of the rows that were read last.

    Parameters
    ----------
    uses : list of _Use
        What the estimators of the block want of the network.
    """

    def __init__(self, uses):
        self.network = uses[0].network  # kept alive, so that its id stays its own
        self._uses = uses
        self._thread = threading.get_ident()
        self._open = True
        self.forget()

    def forget(self):
        """Let go of rows and readings."""
        self._X: Any = None
        self._targets: set = set()  # where all that is wanted was read, or tried to be
        self._readings: dict = {}  # from the target and place of a reader

    def close(self):
        """Forget, and keep nothing from now on."""
        self.forget()
        self._open = False

    def is_open(self):
        """Tell whether this thread is in the block."""
        return self._open and self._thread == threading.get_ident()

    def read(self, reader, X, want):
        """Return the reading of all rows, from memory if they were read last.

        Parameters
        ----------
        reader : Reader
            Of the network.

        X : array-like of shape (n_samples, ...)
            What the network reads.

        want : set of {"features", "logits", "head"}
            What to return; the rest is None.

        Returns
        -------
        reading : Reading
            With read-only arrays.
        """
        if X is not self._X:
            self.forget()
            self._X = X
        own, target = {reader.place: (reader, frozenset(want))}, reader.target
        if target not in self._targets:
            self._targets.add(target)
            wanted = self._all_wanted(own, target)
            if wanted != own:
                # Where not all can be read, each reads what it alone wants: an error
                # is that of the one that asks for it.
                with suppress(Exception):
                    self._keep(X, wanted, target)
        found = self._readings.get((target, reader.place), Reading())
        if any(getattr(found, name) is None for name in want):
            self._keep(X, own, target)
            found = self._readings[target, reader.place]
        return Reading(**{name: getattr(found, name) for name in want})

    def _all_wanted(self, own, target):
        """What is wanted of a network on one device, by place."""
        wanted = dict(own)
        for use in self._uses:
            with suppress(Exception):  # the one that asks for it will get it
                reader = plain_reader(self.network, **use.options)
                if reader.target == target:
                    known, want = wanted.get(reader.place, (reader, frozenset()))
                    known = min(known, reader, key=attrgetter("batch_size"))
                    wanted[reader.place] = (known, want | use.want)
        return wanted

    def _keep(self, X, wanted, target):
        """Read together, and remember."""
        readers = [reader for reader, _ in wanted.values()]
        blocks = readers[0].iter_together(X, list(wanted.values()))
        parts = [list(part) for part in zip(*blocks, strict=True)]
        for place in wanted:
            new = concatenate(parts.pop(0))
            new = Reading(_read_only(new.features), _read_only(new.logits), new.head)
            found = {name: part for name, part in vars(new).items() if part is not None}
            old = self._readings.get((target, place), Reading())
            self._readings[target, place] = replace(old, **found)


def _read_only(array):
    """Return a view that nobody can write to; the array may be the caller's rows."""
    if array is not None:
        array = array.view()
        array.flags.writeable = False
    return array


@contextmanager
def shared_readings(detectors):
    """Have each network run once over an array, for all detectors that read it.

    In the block, and in the thread that entered it, the first detector that reads a
    network runs it for what all of them want: features of one or several layers,
    logits and the head. What was read is kept until other rows are read, or the block
    ends, and later readings of the same rows are served from it. So fit all detectors
    on one array before they score another one, and give rows that are to be scored in
    chunks: what is kept is as long as what is read.

    Which rows are the same is told by the identity of `X`, which must not be written
    to: hand on the same object. Detectors make another one of it in `fit` if `y` has
    OOD rows: leave these out before.

    Scores are bitwise those without a block, unless a `FeatureExtractor` asks for
    smaller batches than the others: all then run in the smallest ones. A network that
    several devices are asked for runs once on each. Detectors that look into a network,
    or differentiate it, run it themselves. If not all can be read at once, because one
    detector asks for what the network has not, each reads what it alone wants.

    Parameters
    ----------
    detectors : list of object
        What will be fitted, or score, in the block; also in pipelines, searches and
        frozen estimators. Others work as without it.

    Yields
    ------
    None
        Blocks can be nested: a network that an outer one is for is kept by that.
    """
    uses: dict = {}
    for use in (use for detector in detectors for use in _uses(detector)):
        if use.want is not None:
            uses.setdefault(id(use.network), []).append(use)
    # What is read once only is not kept.
    memories = {key: _Memory(found) for key, found in uses.items() if len(found) > 1}
    token = SHARING.set((*SHARING.get(), memories))
    try:
        yield
    finally:
        SHARING.reset(token)
        for memory in memories.values():
            memory.close()
