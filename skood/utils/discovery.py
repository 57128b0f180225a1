"""Discovery of the public estimators of skood."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import importlib
import inspect

from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin

from skood.base import BaseDetector

__all__ = ["all_estimators"]

ROOMS = (
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

_KINDS = {
    "detector": BaseDetector,
    "classifier": ClassifierMixin,
    "transformer": TransformerMixin,
}


def all_estimators(kind=None):
    """List the public estimators: all exported classes with a ``fit`` method.

    Parameters
    ----------
    kind : {"detector", "classifier", "transformer"}, default=None
        Return only these. None: all.

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
    found = {}
    for room in ROOMS:
        module = importlib.import_module(f"skood.{room}")
        for name in module.__all__:
            value = getattr(module, name)
            if (
                inspect.isclass(value)
                and issubclass(value, BaseEstimator)
                and hasattr(value, "fit")
                and not inspect.isabstract(value)
                and value is not BaseDetector
                and (kind is None or issubclass(value, _KINDS[kind]))
            ):
                found[name] = value
    return sorted(found.items())
