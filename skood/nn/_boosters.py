"""Raw scores of gradient-boosted trees, whose softmax are the probabilities."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from collections.abc import Callable

import numpy as np

from skood.nn._outputs import symmetric_logits
from skood.nn._sklearn_network import InputNetwork
from skood.utils._optional import is_instance


def _lightgbm_objective(model):
    is_scaled = model.get_params().get("sigmoid", 1.0) != 1.0
    return None if is_scaled else model.objective_


# Class of a library: its objective, the objectives whose raw scores have the
# probabilities as their softmax, and the argument of `predict` for raw scores. Other
# objectives normalize one model per class, or are functions of the user.
_LIBRARIES: dict[tuple, tuple[Callable, set, dict]] = {
    ("lightgbm", "LGBMClassifier"): (
        _lightgbm_objective,
        {"binary", "multiclass", "softmax"},
        {"raw_score": True},
    ),
    ("xgboost", "XGBClassifier"): (
        lambda model: model.objective,
        {"binary:logistic", "multi:softprob", "multi:softmax"},
        {"output_margin": True},
    ),
    ("catboost", "CatBoostClassifier"): (
        lambda model: model.get_all_params().get("loss_function"),
        {"Logloss", "CrossEntropy", "MultiClass"},
        {"prediction_type": "RawFormulaVal"},
    ),
}

_HISTOGRAM = "sklearn.ensemble", "HistGradientBoostingClassifier"
_EXACT = "sklearn.ensemble", "GradientBoostingClassifier"


def _raw_scores(estimator):
    """Return the function of samples whose softmax is predict_proba, or None."""
    if is_instance(estimator, *_HISTOGRAM):
        return estimator.decision_function
    if is_instance(estimator, *_EXACT):  # the margins of "exponential" are halved
        return estimator.decision_function if estimator.loss == "log_loss" else None
    for kind, (objective, softmax, options) in _LIBRARIES.items():
        if is_instance(estimator, *kind):
            if objective(estimator) not in softmax:
                return None
            return lambda X: estimator.predict(X, **options)
    return None


class BoosterNetwork(InputNetwork):
    """Gradient-boosted trees: logits are raw scores, of higher precision than log p."""

    @staticmethod
    def serves(estimator):
        return _raw_scores(estimator) is not None

    def _logits(self, X):
        raw = np.asarray(_raw_scores(self.estimator)(X), dtype=np.float64)
        return symmetric_logits(raw)
