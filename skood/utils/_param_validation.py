"""Parameter validation: the only module that imports scikit-learn's private one.

``sklearn.utils._param_validation`` and ``sklearn.base._fit_context`` are private: all
modules that declare ``_parameter_constraints`` import them from here, so that a change
in scikit-learn requires a change in one place only.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from sklearn.base import _fit_context
from sklearn.utils._param_validation import HasMethods as _HasMethods
from sklearn.utils._param_validation import (  # noqa: F401 (for all other modules)
    Interval,
    InvalidParameterError,
    Options,
    StrOptions,
    validate_params,
)

from skood.utils._input import takes_input
from skood.utils._named_estimators import PYOD_ADVICE, missing_methods


class Number(Interval):
    """Interval of numbers, without True and False."""

    def is_satisfied_by(self, val):
        """Return whether a value is a number in the interval."""
        return not isinstance(val, bool) and super().is_satisfied_by(val)


class HasMethods(_HasMethods):
    """Constraint of a parameter: an object with methods, but not its class.

    An estimator that is to be fitted may get them from its `fit`.
    """

    def is_satisfied_by(self, val):
        """Return whether `val` is an object with the methods."""
        if val is None or isinstance(val, type):
            return False
        return super().is_satisfied_by(val) or (
            "fit" in self.methods and not missing_methods(val, self.methods)
        )

    def __str__(self):
        more = f"; {PYOD_ADVICE}" if "score_samples" in self.methods else ""
        return (
            f"{super().__str__()} (an object, not a class: write KNN(), not KNN{more})"
        )


def fit_context(*, prefer_skip_nested_validation):
    """Decorate a ``fit(self, X, y, ...)``: validate parameters and convert tensors.

    `prefer_skip_nested_validation`: nested estimators need not validate theirs.
    """

    context = _fit_context(prefer_skip_nested_validation=prefer_skip_nested_validation)
    return lambda fit: context(takes_input(fit, labels=True))


class Classifier(HasMethods):
    """Constraint of a parameter: a classifier with a ``fit``.

    Its error includes advice for users who pass a torch module.
    """

    def __init__(self):
        super().__init__("fit")

    def __str__(self):
        return (
            "a classifier implementing 'fit' (an object, not a class; wrap a trained "
            "torch module with skood.nn.pretrained)"
        )
