"""Constraints with given weights, and a prior on the others."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from contextlib import suppress
from numbers import Real

import numpy as np

from skood.logic.language._compiler import bind
from skood.logic.language._domains import known
from skood.logic.language._formulas import Formula
from skood.logic.language._parser import parse
from skood.utils._estimator import SkoodEstimator
from skood.utils._param_validation import Interval


class WeightedConstraints(SkoodEstimator):
    """Constraints with given weights, and a prior on the weights to be fitted.

    Read more in the :ref:`User Guide <logic>`.

    Parameters
    ----------
    constraints : list of (str or Formula), or dict of str to (str or Formula)
        The constraints, with names if it is a dict; see `parse_constraint`.

    weights : array-like of shape (n_constraints,) or dict of str to float, default=None
        Weights by constraint, or by its name or string in a dict. Missing or NaN
        weights are fitted; None: all weights are fitted.

    prior : float, default=1.0
        Strength of the prior on the weights, in samples; see
        :meth:`KnowledgeBase.fit_weights`.

    See Also
    --------
    MLNDetector : Uses it as `constraints`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.logic import MLNDetector, WeightedConstraints
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=(300, 2))
    >>> X = y + rng.normal(scale=0.2, size=y.shape)
    >>> rules = WeightedConstraints(["a -> b", "b -> a"], weights={"a -> b": 2.0})
    >>> concepts = [("a", LogisticRegression()), ("b", LogisticRegression())]
    >>> MLNDetector(rules, concepts, random_state=0).fit(X, y).weights_.round(1)
    array([2. , 0.1])
    """

    _parameter_constraints: dict = {
        "constraints": [list, tuple, dict],
        "weights": [dict, "array-like", None],
        "prior": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(self, constraints, *, weights=None, prior=1.0):
        self.constraints = constraints
        self.weights = weights
        self.prior = prior


def user_weights(kb, weights, n_user):
    """Return weights by constraint, NaN if not given; an array has `n_user` or all."""
    by_constraint = np.full(len(kb), np.nan)
    if weights is None:
        return by_constraint
    if isinstance(weights, dict):
        places = [_constraint_index(kb, key) for key in weights]
        twice = [kb.names[i] for i in places if places.count(i) > 1]
        if twice:
            raise ValueError(
                f"weights names the constraint {twice[0]!r} twice, by its name and "
                "by its text. Leave one of them out."
            )
        by_constraint[places] = _numbers(list(weights.values()))
    else:
        weights = _numbers(weights)
        if weights.ndim != 1 or len(weights) not in (n_user, len(kb)):
            raise ValueError(
                f"weights must hold one number for each of the {n_user} "
                "constraints, NaN for those that are to be fitted, or be a dict "
                f"with their names. Got an array of shape {weights.shape}."
            )
        by_constraint[: len(weights)] = weights
    if np.isinf(by_constraint).any():
        raise ValueError(
            "weights must be finite, got infinity. A constraint that must not be "
            "violated has a large weight, such as 20; or use LogicDetector."
        )
    return by_constraint


def _numbers(weights):
    try:
        return np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"weights must be numbers, NaN or None for those that are to be fitted: "
            f"{error}."
        ) from error


def _constraint_index(kb, key):
    """Return the index of the constraint with a name, or with a string."""
    if isinstance(key, str) and key in kb.names:
        return kb.names.index(key)
    texts, text = kb.constraints, None
    with suppress(ValueError):  # not parsable: not a constraint
        if isinstance(key, str):
            text = str(parse(key, kb.domains))
        elif isinstance(key, Formula):
            text = str(bind(key, kb.domains))
    if text not in texts:
        raise ValueError(
            f"weights names {key!r}, which is no constraint. "
            + known("Constraints", key, kb.names)
        )
    return texts.index(text)
