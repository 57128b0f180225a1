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
    "HasMethods",
    "Interval",
    "InvalidParameterError",
    "Options",
    "StrOptions",
    "fit_context",
    "validate_params",
]
