"""Contributions of the columns of the input, traced to features, to a score."""

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
from scipy.sparse import issparse
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Bunch
from sklearn.utils.validation import check_is_fitted

from skood.detectors._common._base_output_detector import OutputDetector
from skood.detectors._common._explain import steps_to_features, transformers_of
from skood.utils._input import takes_input
from skood.utils._metaestimators import unwrapped

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
        lambda features: first.restore(second.restore(features)),
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
        fitted = list(getattr(transformer, "feature_names_in_", names))
        order = {name: j for j, name in enumerate(names)}
        # columns of a table are found by name; inside a pipeline they have other names
        at = np.array([order.get(name, j) for j, name in enumerate(fitted)], dtype=int)
        parts = [
            (inner, transformer.output_indices_[name], at[_positions(columns, fitted)])
            for name, inner, columns in transformer.transformers_
            if not (isinstance(inner, str) and inner == "drop")
        ]
        return _side_by_side(parts, names)
    if isinstance(getattr(transformer, "transformer_list", None), list):
        every = range(len(names))
        parts = [
            (inner, None, every)
            for _, inner in transformer.transformer_list
            if not (inner is None or (isinstance(inner, str) and inner == "drop"))
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
    labels = np.atleast_1d(np.asarray(columns))
    if labels.dtype.kind in "OUS":
        return [at[name] for name in labels.tolist()]
    return every[labels].tolist() if labels.size else []


def _side_by_side(parts, names):
    """Return the trace of transformers of the same input whose outputs are joined.

    `parts` has transformers, the slices of their features (None: one after the other),
    and the positions of their columns.
    """
    traces: list = []
    for transformer, where, positions in parts:
        if where is not None and where.start == where.stop:
            continue
        inside = [names[j] for j in positions]
        trace = _trace(transformer, inside)
        if trace is None and where is not None:
            trace = _unnamed(transformer, inside, where.stop - where.start)
        if trace is None:
            return None
        start = sum(len(trace_before.names) for _, trace_before, _ in traces)
        where = where or slice(start, start + len(trace.names))
        if where.stop - where.start != len(trace.names):
            return None
        traces.append((where, trace, list(positions)))
    n_features = max((where.stop for where, _, _ in traces), default=0)
    sources: list[frozenset] = [frozenset()] * n_features
    joined = [""] * n_features
    carriers: dict[int, int] = {}
    for where, trace, positions in traces:
        sources[where] = [frozenset(positions[j] for j in s) for s in trace.sources]
        joined[where] = trace.names
        for column, feature in trace.carriers.items():
            carriers.setdefault(positions[column], where.start + feature)

    def restore(features):
        features = np.asarray(features)
        columns = np.full((len(features), len(names)), np.nan)
        for where, trace, positions in traces:
            restored = trace.restore(features[:, where])
            unknown = np.isnan(columns[:, positions])
            columns[:, positions] = np.where(unknown, restored, columns[:, positions])
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
        lambda features: np.full((len(features), len(names)), np.nan),
    )


def _leaf(transformer, names):
    """Return the trace of a transformer without parts, by the names of its features."""
    if not hasattr(transformer, "get_feature_names_out"):
        return None
    anonymous = copy(transformer)
    vars(anonymous).pop("feature_names_in_", None)
    tokens = np.array([f"\x02{j}\x03" for j in range(len(names))], dtype=object)
    try:
        feature_names = [str(name) for name in anonymous.get_feature_names_out(tokens)]
    except (AttributeError, ValueError):  # of a step without names
        return None
    every = frozenset(range(len(names)))
    sources = [
        every if len(names) == 1 else frozenset(map(int, _TOKEN.findall(name))) or every
        for name in feature_names
    ]
    # A feature whose name has no column is a mixture of all, such as "pca0".
    column_names = [
        _TOKEN.sub(lambda token: str(names[int(token[1])]), name)
        for name in feature_names
    ]
    carriers = _carriers(transformer, sources)
    restore = partial(_restored, transformer, carriers, len(names))
    return ColumnTrace(sources, column_names, carriers, restore)


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
        column: candidates[0]
        for column, candidates in features.items()
        if len(candidates) == 1 or _keeps_values(transformer)
    }


def _keeps_values(transformer):
    """Return whether features are columns: all, selected, or with values filled in."""
    is_imputer = type(transformer).__module__.startswith("sklearn.impute")
    is_identity = getattr(transformer, "func", transformer) is None
    return is_imputer or is_identity or hasattr(transformer, "get_support")


def _restored(transformer, carriers, n_columns, features):
    """Return columns of one transformer from its features, NaN where unknown."""
    features = np.asarray(features, dtype=np.float64)
    columns = np.full((len(features), n_columns), np.nan)
    has_inverse = getattr(transformer, "inverse_func", transformer) is not None
    if _keeps_values(transformer):
        columns[:, list(carriers)] = features[:, list(carriers.values())]
    elif (
        len(carriers) == n_columns == features.shape[1]
        and has_inverse
        and hasattr(transformer, "inverse_transform")
    ):
        with warnings.catch_warnings():  # about the names of columns
            warnings.simplefilter("ignore", UserWarning)
            columns[:] = transformer.inverse_transform(features)
    return columns


@takes_input
def column_contributions(detector, X):
    r"""Return the contributions of the columns of `X` to the score of a detector.

    The score of a detector with ``explain`` is a sum over features, which transformers
    of a pipeline may have made from the columns of `X`. Features are traced back
    through pipelines, column transformers and feature unions by their names: a feature
    of one column, such as a scaled number or one of several codes of a category,
    belongs to the column, and contributions of its features are added. A mixture of
    several columns, such as a principal component, stays a column of its own, and so
    does a feature of unknown origin. The contributions sum to the squared distance that
    the :ref:`User Guide <explanations>` defines for each detector.

    Parameters
    ----------
    detector : object
        A fitted detector with `explain`, such as :class:`Mahalanobis` or :class:`KNN`,
        or a pipeline with such a detector as its last step.

    X : array-like of shape (n_samples, n_columns)
        The samples.

    Returns
    -------
    result : Bunch
        - ``columns``: names of shape (n_columns,), in the order of `X`, then mixtures;
          columns without a feature are left out;
        - ``contributions``: shape (n_samples, n_columns);
        - ``is_mixture``: whether each column is a mixture, or a feature of unknown
          origin;
        - ``observed``: values of the samples, an array of objects; of a mixture its
          value as a feature;
        - ``references``: values that the detector compares with, in units of `X`; NaN
          for categories and where a transformer has no inverse;
        - ``deviations``: differences from the reference in standard deviations around
          it; NaN if the detector has none, and where a column has several features;
        - ``reference_name``: "class mean", "mean", "neighbor" (the k-th) or "other
          columns" (the values that follow from these in the principal space); "scaled
          mean" or "scaled neighbor" have the length of the sample, if the detector
          normalizes features;
        - ``nearest_class``: labels of shape (n_samples,), or None.

    Raises
    ------
    TypeError
        If the score of the detector is not a sum over features.

    See Also
    --------
    skood.rejection.RejectOptionClassifier.explain : Sentences from contributions.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skood.detectors import Mahalanobis, column_contributions
    >>> X = np.array([[0, 0], [2, 0], [0, 20], [2, 20]])
    >>> detector = make_pipeline(StandardScaler(), Mahalanobis()).fit(X)
    >>> result = column_contributions(detector, [[1, 90]])
    >>> result.columns.tolist(), result.references.tolist()
    (['x0', 'x1'], [[1.0, 10.0]])
    >>> result.contributions.round(6), result.deviations.round(6)
    (array([[ 0., 64.]]), array([[0., 8.]]))
    """
    outer, final = _outer_steps(detector)
    if not has_contributions(detector):
        raise TypeError(
            f"The score of {type(final).__name__} is not a sum over features. Use a "
            "detector with contributions, such as skood.detectors.Mahalanobis."
        )
    check_is_fitted(final, "offset_")
    Z = X
    for step in outer:
        Z = step.transform(Z)
    features, parts, reference, nearest = _explained(final, Z)
    trace = None
    inner = [] if final.estimator is None else steps_to_features(final.estimator_)
    names = _column_names(X)
    if inner is not None:
        trace = trace_columns([*outer, *inner], names)
    if trace is None or len(trace.names) != parts.shape[1]:
        origin: list = [frozenset()] * parts.shape[1]  # unknown
        labels = [f"feature {j}" for j in range(parts.shape[1])]
        trace = ColumnTrace(origin, labels, {}, lambda z: np.empty((len(z), 0)))
        names = []
    return Bunch(
        **_by_column(X, names, trace, features, parts, reference),
        reference_name="scaled " * reference.is_unit + reference.name,
        nearest_class=nearest,
    )


def has_contributions(detector):
    """Return whether :func:`column_contributions` explains the score of a detector.

    Parameters
    ----------
    detector : object
        A detector, or a pipeline with a detector as its last step.

    Returns
    -------
    has_contributions : bool
        Whether the score is a sum over features.

    See Also
    --------
    column_contributions : The contributions.

    Examples
    --------
    >>> from skood.detectors import KNN, MSP, has_contributions
    >>> has_contributions(KNN()), has_contributions(MSP())
    (True, False)
    """
    _, final = _outer_steps(detector)
    is_sum = getattr(final, "metric", "euclidean") == "euclidean"
    return isinstance(final, OutputDetector) and hasattr(final, "explain") and is_sum


def _outer_steps(detector):
    """Return the transformers in front of a detector, and the detector."""
    steps: list = []
    final = unwrapped(detector)
    while isinstance(getattr(final, "steps", None), list):
        steps += transformers_of(final)
        final = unwrapped(final.steps[-1][1])
    return steps, final


def _explained(detector, Z):
    """Return features, contributions, the reference, and nearest classes or None."""
    blocks = list(detector._explained_blocks(detector._new_outputs(Z)))
    features = np.concatenate(
        [block.toarray() if issparse(block) else block for block, _ in blocks]
    ).astype(np.float64)
    columns, parts, references = zip(
        *(explained for _, explained in blocks), strict=True
    )
    points = np.concatenate([block.point for block in references])
    spread = None
    if references[0].spread is not None:
        spread = np.concatenate(
            [np.broadcast_to(block.spread, block.point.shape) for block in references]
        )
    if references[0].is_unit:
        lengths = np.linalg.norm(features, axis=1, keepdims=True)
        points = points * lengths
        spread = None if spread is None else spread * lengths
    nearest = None
    if "nearest_class" in columns[0]:
        nearest = np.concatenate([block["nearest_class"] for block in columns])
    reference = references[0]._replace(point=points, spread=spread)
    return features, np.concatenate(parts), reference, nearest


def _column_names(X):
    """Return the names of the columns of samples; none if they are no table."""
    if hasattr(X, "columns"):
        return [str(name) for name in X.columns]
    shape = X.shape if hasattr(X, "shape") else np.shape(X)
    return [f"x{j}" for j in range(shape[1])] if len(shape) == 2 else []


def _by_column(X, names, trace, features, parts, reference):
    """Return the results of each column, and of each mixture of columns."""
    single = [min(s) if len(s) == 1 else None for s in trace.sources]
    columns = sorted({j for j in single if j is not None})
    mixtures = [f for f, j in enumerate(single) if j is None]
    group = {j: g for g, j in enumerate(columns)}
    group.update((-1 - f, len(columns) + g) for g, f in enumerate(mixtures))
    sums = np.zeros((len(group), len(parts)))
    for f, j in enumerate(single):
        sums[group[-1 - f if j is None else j]] += parts[:, f]
    deviations = np.full(features.shape, np.nan)
    if reference.spread is not None:
        np.divide(
            features - reference.point,
            reference.spread,
            out=deviations,
            where=reference.spread > 0,
        )
    deviation = np.full((len(parts), len(columns)), np.nan)
    for g, j in enumerate(columns):
        if j in trace.carriers:
            deviation[:, g] = deviations[:, trace.carriers[j]]
    restored = trace.restore(reference.point)[:, columns]
    values = _cells(X)[:, columns] if columns else np.empty((len(parts), 0), object)
    return {
        "columns": np.array(
            [names[j] for j in columns] + [trace.names[f] for f in mixtures], object
        ),
        "is_mixture": np.arange(len(group)) >= len(columns),
        "contributions": sums.T,
        "observed": np.hstack([values, features[:, mixtures].astype(object)]),
        "references": np.hstack([restored, reference.point[:, mixtures]]),
        "deviations": np.hstack([deviation, deviations[:, mixtures]]),
    }


def _cells(X):
    """Return the values of a table as objects."""
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=object)
