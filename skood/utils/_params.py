"""The one door to scikit-learn's parameter validation.

``sklearn.utils._param_validation`` and ``sklearn.base._fit_context`` are private:
everything of skood that declares ``_parameter_constraints`` takes them from here,
so that a change there is a change in one place.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from sklearn.base import _fit_context as fit_context
from sklearn.utils._param_validation import (
    HasMethods as _HasMethods,
)
from sklearn.utils._param_validation import (
    Interval,
    InvalidParameterError,
    Options,
    StrOptions,
    validate_params,
)

__all__ = [
    "Classifier",
    "HasMethods",
    "Interval",
    "InvalidParameterError",
    "Options",
    "StrOptions",
    "fit_context",
    "validate_params",
]


class HasMethods(_HasMethods):
    """Constraint of a parameter that is an object with methods, not its class."""

    def is_satisfied_by(self, val):
        """Tell whether `val` is an object with the methods."""
        return not isinstance(val, type) and super().is_satisfied_by(val)

    def __str__(self):
        return f"{super().__str__()} (an object, not a class: write KNN(), not KNN)"


class Classifier(HasMethods):
    """Constraint of a parameter that is a classifier to read: it can be fitted.

    Its error tells those who pass a torch module what to do.
    """

    def __init__(self):
        super().__init__("fit")

    def __str__(self):
        return (
            "a classifier implementing 'fit' (an object, not a class; wrap a trained "
            "torch module with skood.nn.pretrained)"
        )
