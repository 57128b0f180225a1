"""Trace of features of fitted transformers back to the columns of their input."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import re
import warnings
from collections import UserList
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import NamedTuple

import numpy as np
from sklearn.frozen import FrozenEstimator

# Names of columns that names of features are searched for: with characters that no
# category or prefix has.
_TOKEN = re.compile("\x02(\\d+)\x03")


class ColumnTrace(NamedTuple):
    """Origin of the features that fitted transformers return.

    `sources` has the set of input columns that each feature depends on, `names` the
    name of each feature. `carriers` maps an input column to the feature that is a
    number in its place, if there is one. `restore` returns input columns, (n_samples,
    n_columns), from features, (n_samples, n_features): NaN where there is no inverse.
    """

    sources: list[frozenset]
    names: list[str]
    carriers: dict[int, int]
    restore: Callable


def trace_columns(transformers, columns):
    """Return the trace of consecutive transformers, or None if it is not possible.

    `columns` are the names of the columns of the input of the first.
    """
    trace = _identity(list(columns))
    for transformer in transformers:
        following = _trace(transformer, trace.names)
        if following is None:
            return None
        trace = _composed(trace, following)
    return trace


def _identity(names):
    """Return the trace of columns that are passed on."""
    at = range(len(names))
    return ColumnTrace(
        [frozenset([j]) for j in at], names, dict(zip(at, at, strict=True)), np.asarray
    )


def _composed(first, second):
    """Return the trace of two consecutive transformers."""
    sources = [
        frozenset().union(*(first.sources[j] for j in source))
        for source in second.sources
    ]
    carriers = {
        column: second.carriers[feature]
        for column, feature in first.carriers.items()
        if feature in second.carriers
    }
    return ColumnTrace(
        sources,
        second.names,
        carriers,
        lambda rows: first.restore(second.restore(rows)),
    )


def _trace(transformer, names):
    """Return the trace of one transformer, of any kind, or None."""
    while isinstance(transformer, FrozenEstimator):
        transformer = transformer.estimator
    if transformer is None or isinstance(transformer, str):  # "passthrough"
        return _identity(names)
    if isinstance(getattr(transformer, "steps", None), list):
        return trace_columns([step for _, step in transformer.steps], names)
    if hasattr(transformer, "output_indices_") and hasattr(
        transformer, "transformers_"
    ):
        parts = [
            (part, transformer.output_indices_[name], _positions(columns, names))
            for name, part, columns in transformer.transformers_
            if not (isinstance(part, str) and part == "drop")
        ]
        return _side_by_side(parts, names)
    if isinstance(getattr(transformer, "transformer_list", None), list):
        every = range(len(names))
        parts = [
            (part, None, every)
            for _, part in transformer.transformer_list
            if not (part is None or (isinstance(part, str) and part == "drop"))
        ]
        return _side_by_side(parts, names)
    return _leaf(transformer, names)


def _positions(columns, names):
    """Return the positions of columns that are given as in a ColumnTransformer."""
    every = np.arange(len(names))
    at = {name: j for j, name in enumerate(names)}
    if isinstance(columns, slice):
        if isinstance(columns.start, str) or isinstance(columns.stop, str):
            start = 0 if columns.start is None else at[columns.start]
            stop = len(names) if columns.stop is None else at[columns.stop] + 1
            columns = slice(start, stop, columns.step)
        return every[columns].tolist()
    if isinstance(columns, UserList):  # scikit-learn < 1.7; reading items warns
        columns = columns.data
    given = np.atleast_1d(np.asarray(columns))
    if given.dtype.kind in "OUS":
        return [at[name] for name in given.tolist()]
    return every[given].tolist() if given.size else []


def _side_by_side(parts, names):
    """Return the trace of transformers of the same input whose outputs are joined.

    `parts` has transformers, the slices of their features (None: one after the other),
    and the positions of their columns.
    """
    found: list = []
    for part, where, positions in parts:
        if where is not None and where.start == where.stop:
            continue
        inside = [names[j] for j in positions]
        trace = _trace(part, inside)
        if trace is None and where is not None:
            trace = _unnamed(part, inside, where.stop - where.start)
        if trace is None:
            return None
        start = sum(len(one.names) for _, one, _ in found)
        where = where or slice(start, start + len(trace.names))
        if where.stop - where.start != len(trace.names):
            return None
        found.append((where, trace, list(positions)))
    n_features = max((where.stop for where, _, _ in found), default=0)
    sources: list[frozenset] = [frozenset()] * n_features
    joined = [""] * n_features
    carriers: dict[int, int] = {}
    for where, trace, positions in found:
        sources[where] = [frozenset(positions[j] for j in s) for s in trace.sources]
        joined[where] = trace.names
        for column, feature in trace.carriers.items():
            carriers.setdefault(positions[column], where.start + feature)

    def restore(rows):
        rows = np.asarray(rows)
        columns = np.full((len(rows), len(names)), np.nan)
        for where, trace, positions in found:
            part = trace.restore(rows[:, where])
            unknown = np.isnan(columns[:, positions])
            columns[:, positions] = np.where(unknown, part, columns[:, positions])
        return columns

    return ColumnTrace(sources, joined, carriers, restore)


def _unnamed(transformer, names, n_features):
    """Return the trace of a transformer whose features have no names."""
    kind = type(transformer).__name__.lower()
    every = frozenset(range(len(names)))
    # a single number of a single column, such as days since a date
    carriers = {0: 0} if len(names) == n_features == 1 else {}
    return ColumnTrace(
        [every] * n_features,
        [f"{kind}{j}" for j in range(n_features)],
        carriers,
        lambda rows: np.full((len(rows), len(names)), np.nan),
    )


def _leaf(transformer, names):
    """Return the trace of a transformer without parts, by the names of its features."""
    if not hasattr(transformer, "get_feature_names_out"):
        return None
    anonymous = copy(transformer)
    vars(anonymous).pop("feature_names_in_", None)
    tokens = np.array([f"\x02{j}\x03" for j in range(len(names))], dtype=object)
    try:
        found = [str(one) for one in anonymous.get_feature_names_out(tokens)]
    except (AttributeError, ValueError):  # of a step without names
        return None
    every = frozenset(range(len(names)))
    sources = [
        every if len(names) == 1 else frozenset(map(int, _TOKEN.findall(one))) or every
        for one in found
    ]
    # A feature whose name has no column is a mixture of all, such as "pca0".
    own = [_TOKEN.sub(lambda token: str(names[int(token[1])]), one) for one in found]
    carriers = _carriers(transformer, sources)
    restore = partial(_restored, transformer, carriers, len(names))
    return ColumnTrace(sources, own, carriers, restore)


def _carriers(transformer, sources):
    """Return the feature that is a number in the place of each column, if any."""
    features: dict[int, list] = {}
    for feature, source in enumerate(sources):
        if len(source) == 1:
            features.setdefault(min(source), []).append(feature)
    if hasattr(transformer, "categories_"):  # codes of categories have no mean
        return {}
    # indicators of missing values follow the values
    return {
        column: found[0]
        for column, found in features.items()
        if len(found) == 1 or _keeps_values(transformer)
    }


def _keeps_values(transformer):
    """Return whether features are columns: all, selected, or with values filled in."""
    is_imputer = type(transformer).__module__.startswith("sklearn.impute")
    is_identity = getattr(transformer, "func", transformer) is None
    return is_imputer or is_identity or hasattr(transformer, "get_support")


def _restored(transformer, carriers, n_columns, rows):
    """Return columns of one transformer from its features, NaN where unknown."""
    rows = np.asarray(rows, dtype=np.float64)
    columns = np.full((len(rows), n_columns), np.nan)
    has_inverse = getattr(transformer, "inverse_func", transformer) is not None
    if _keeps_values(transformer):
        columns[:, list(carriers)] = rows[:, list(carriers.values())]
    elif (
        len(carriers) == n_columns == rows.shape[1]
        and has_inverse
        and hasattr(transformer, "inverse_transform")
    ):
        with warnings.catch_warnings():  # about the names of columns
            warnings.simplefilter("ignore", UserWarning)
            columns[:] = transformer.inverse_transform(rows)
    return columns
