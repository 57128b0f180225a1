"""The one door to scikit-learn's parameter validation.

``sklearn.utils._param_validation`` and ``sklearn.base._fit_context`` are private:
everything of skood that declares ``_parameter_constraints`` takes them from here,
so that a change there is a change in one place.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from sklearn.base import _fit_context as fit_context
from sklearn.utils._param_validation import (
    HasMethods,
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


class Classifier(HasMethods):
    """Constraint of a parameter that is a classifier to read: it can be fitted.

    Its error tells those who pass a torch module what to do.
    """

    def __init__(self):
        super().__init__("fit")

    def __str__(self):
        return (
            "a classifier implementing 'fit' (wrap a trained torch module with "
            "skood.nn.pretrained)"
        )
