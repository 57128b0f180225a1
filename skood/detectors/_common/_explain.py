"""Explanations of scores by feature contributions."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import NamedTuple

import numpy as np

from skood.nn._make_network import make_network
from skood.utils._metaestimators import unwrapped


class ReferencePoints(NamedTuple):
    """Points that features are compared with, shape (n_samples, n_features).

    `name` describes them, `spread` has the standard deviations of the features around
    them, if known. With `is_unit` they are compared with features of unit length.
    """

    point: np.ndarray
    name: str
    spread: np.ndarray | None = None
    is_unit: bool = False


def leading_columns(detector, columns, contributions, n_features):
    """Return columns with the leading features of a chunk, and their contributions."""
    if n_features > contributions.shape[1]:
        raise ValueError(
            f"n_features={n_features}, but there are only "
            f"{contributions.shape[1]} features."
        )
    # the largest first, ties in the order of the features
    order = np.argsort(-contributions, axis=1, kind="stable")[:, :n_features]
    names = _feature_names(detector, contributions.shape[1])
    values = np.take_along_axis(contributions, order, axis=1)
    for j in range(n_features):
        columns[f"feature_{j + 1}"] = names[order[:, j]]
        columns[f"contribution_{j + 1}"] = values[:, j]
    return columns


def _feature_names(detector, n_features):
    """Return the names of the features, or indices if they have no names."""
    names = getattr(detector, "feature_names_in_", None)
    if names is not None and detector.estimator is not None:
        steps = steps_to_features(detector.estimator_)
        names = None if steps is None else _names_after(steps, names)
    return np.arange(n_features) if names is None else names


def _names_after(steps, names):
    """Return the names of the features that transformers return, or None."""
    for step in steps:
        if not hasattr(step, "get_feature_names_out"):
            return None
        names = step.get_feature_names_out(names)
    return names


def steps_to_features(estimator):
    """Return the transformers whose outputs are the features of a classifier.

    None if the features are the outputs of a layer of a network.
    """
    steps: list = []
    estimator = unwrapped(estimator)
    while isinstance(getattr(estimator, "steps", None), list):
        steps += transformers_of(estimator)
        estimator = unwrapped(estimator.steps[-1][1])
    return steps if make_network(estimator).features_are_inputs else None


def transformers_of(pipeline):
    """Return the transformers of a pipeline, in front of its last step."""
    steps = [step for _, step in pipeline.steps[:-1]]
    return [s for s in steps if s is not None and not isinstance(s, str)]
