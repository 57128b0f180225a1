"""The one door to scikit-learn's parameter validation.

``sklearn.utils._param_validation`` and ``sklearn.base._fit_context`` are private:
everything of skood that declares ``_parameter_constraints`` takes them from here,
so that a change there is a change in one place.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import functools

from sklearn.base import _fit_context
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

from skood.utils._input import takes_input
from skood.utils._torch import to_numpy

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


def fit_context(*, prefer_skip_nested_validation):
    """Decorate a ``fit``: validate parameters, and make tensors fit for any estimator.

    Parameters
    ----------
    prefer_skip_nested_validation : bool
        Whether estimators that are fitted inside need not validate their parameters.

    Returns
    -------
    decorator : callable
        Of methods that take ``(self, X, y, ...)``.
    """

    def decorate(fit):
        @functools.wraps(fit)
        def on_arrays(self, X, *args, **kwargs):
            if args:
                args = (to_numpy(args[0]), *args[1:])
            elif "y" in kwargs:
                kwargs["y"] = to_numpy(kwargs["y"])
            return fit(self, X, *args, **kwargs)

        return _fit_context(
            prefer_skip_nested_validation=prefer_skip_nested_validation
        )(takes_input(on_arrays))

    return decorate


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
