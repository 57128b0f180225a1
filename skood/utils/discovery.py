"""Discovery of the public estimators of skood."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import importlib
import inspect

from sklearn.base import BaseEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.utils import get_tags

from skood.base import BaseDetector

__all__ = ["all_estimators"]

SUBPACKAGES = (
    "base",
    "combine",
    "detectors",
    "epistemic",
    "evidential",
    "graph",
    "logic",
    "model_selection",
    "monitor",
    "nn",
    "rectifiers",
    "rejection",
    "selection",
)

# Types of estimators in scikit-learn's tags; "transformer" is our name.
_KINDS = {
    "detector": "outlier_detector",
    "classifier": "classifier",
    "regressor": "regressor",
    "transformer": "transformer",
}


def _types(cls):
    """Return the types that instances of a class have, by their tags.

    A meta-estimator may be what its estimator is: a classifier or a regressor.
    """
    parameters = inspect.signature(cls).parameters.values()
    required = [p.name for p in parameters if p.default is p.empty]
    types = set()
    for estimator in (LogisticRegression(), LinearRegression()):
        tags = get_tags(cls(**dict.fromkeys(required, estimator)))
        types.add(tags.estimator_type)
        if tags.transformer_tags is not None:
            types.add("transformer")
    return types


def all_estimators(kind=None):
    """List the public estimators: all exported classes with a ``fit`` method.

    :class:`~skood.rejection.ScoreTable` is left out, which is no classifier of samples.

    Parameters
    ----------
    kind : {"detector", "classifier", "regressor", "transformer"}, default=None
        Return only these, by their tags; an estimator that is what its `estimator` is,
        such as `DeepEnsemble`, is a classifier and a regressor. None: all.

    Returns
    -------
    estimators : list of (str, type)
        Names and classes, sorted by name.

    Raises
    ------
    ValueError
        If `kind` is unknown.

    Examples
    --------
    >>> from skood.utils.discovery import all_estimators
    >>> [name for name, _ in all_estimators("transformer")]
    ['ASH', 'FeatureExtractor', 'IDOnly', 'LTS', 'MultiHeadClassifier', 'ReAct', \
'SCALE', 'VRA']
    """
    if kind is not None and kind not in _KINDS:
        raise ValueError(f"kind must be None or one of {sorted(_KINDS)}, got {kind!r}.")
    estimators = {}
    for package in SUBPACKAGES:
        module = importlib.import_module(f"skood.{package}")
        for name in module.__all__:
            value = getattr(module, name)
            if (
                inspect.isclass(value)
                and issubclass(value, BaseEstimator)
                and hasattr(value, "fit")
                and not inspect.isabstract(value)
                and value is not BaseDetector
                and not hasattr(value, "_is_table")
                and (kind is None or _KINDS[kind] in _types(value))
            ):
                estimators[name] = value
    return sorted(estimators.items())
