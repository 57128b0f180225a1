"""Contributions of the columns of the input to the score of a detector."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import Bunch
from sklearn.utils.validation import check_is_fitted

from skood.detectors._common._base_output_detector import OutputDetector
from skood.detectors._common._explain import (
    steps_to_features,
    transformers_of,
)
from skood.utils._column_trace import ColumnTrace, trace_columns
from skood.utils._input import takes_input
from skood.utils._metaestimators import unwrapped


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
        names, trace = [], _untraced(parts.shape[1])
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
    columns, parts, references = zip(*(found for _, found in blocks), strict=True)
    points = np.concatenate([one.point for one in references])
    spread = None
    if references[0].spread is not None:
        spread = np.concatenate(
            [np.broadcast_to(one.spread, one.point.shape) for one in references]
        )
    if references[0].is_unit:
        lengths = np.linalg.norm(features, axis=1, keepdims=True)
        points = points * lengths
        spread = None if spread is None else spread * lengths
    nearest = None
    if "nearest_class" in columns[0]:
        nearest = np.concatenate([one["nearest_class"] for one in columns])
    reference = references[0]._replace(point=points, spread=spread)
    return features, np.concatenate(parts), reference, nearest


def _column_names(X):
    """Return the names of the columns of samples; none if they are no table."""
    if hasattr(X, "columns"):
        return [str(name) for name in X.columns]
    shape = X.shape if hasattr(X, "shape") else np.shape(X)
    return [f"x{j}" for j in range(shape[1])] if len(shape) == 2 else []


def _untraced(n_features):
    """Return the trace of features of unknown origin."""
    names = [f"feature {j}" for j in range(n_features)]
    return ColumnTrace([frozenset()] * n_features, names, {}, _restore_nothing)


def _restore_nothing(rows):
    return np.empty((len(rows), 0))


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
