"""SkoodEstimator: base class of all estimators of skood."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import estimator_html_repr
from sklearn.utils._pprint import _EstimatorPrettyPrinter
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skood.utils._param_validation import InvalidParameterError
from skood.utils._warnings import warn

_STAMP = "_skood_version"  # present in pickled states only

# The module of scikit-learn's private class differs between versions.
_VisualBlock = estimator_html_repr.__globals__["_VisualBlock"]


def _is_fitted(estimator):
    """Return whether an object is a fitted estimator."""
    try:
        check_is_fitted(estimator)
    except (NotFittedError, TypeError):
        return False
    return True


class SkoodEstimator(BaseEstimator):
    """Base class of estimators, with a `citation`, and skood's version in pickles.

    ``_default_parts`` maps parameters that hold a part, an estimator with parameters,
    to the class of the part. None stands for a part with its defaults, a str for a part
    with this first argument.
    """

    _default_parts: dict = {}

    def __repr__(self, N_CHAR_MAX=700):
        # The weights of a head are parameters: print a few numbers only.
        with np.printoptions(threshold=8, edgeitems=1, precision=3):
            return super().__repr__(N_CHAR_MAX)

    def _drawn_parts(self):
        """Return the parts that a notebook shows for the fitted estimator, by name."""
        return {
            name: getattr(self, f"{name}_", estimator)
            for name, estimator in self.get_params(deep=False).items()
            if hasattr(estimator, "get_params")
            and hasattr(estimator, "fit")
            and not isinstance(estimator, type)
        }

    # Without it, scikit-learn draws parameters: unfitted parts of a fitted estimator,
    # whose names of features may raise errors.
    @available_if(lambda self: _is_fitted(self) and bool(self._drawn_parts()))
    def _sk_visual_block_(self):
        """Return the picture of the fitted parts; text stands for other parts."""
        names, parts = [], []
        for name, estimator in self._drawn_parts().items():
            drawn = not isinstance(estimator, str) and _is_fitted(estimator)
            names.append(f"{name}: {type(estimator).__name__}" if drawn else name)
            parts.append(estimator if drawn else str(estimator))
        return _VisualBlock(
            "parallel", parts, names=names, name_details=list(map(str, parts))
        )

    def __getstate__(self):
        from skood import __version__

        return {**super().__getstate__(), _STAMP: __version__}

    def __setstate__(self, state):
        state = dict(state)
        if _STAMP in state:
            _check_version(state.pop(_STAMP))
        super().__setstate__(state)

    def set_params(self, **params):
        """Set parameters.

        Parameters
        ----------
        **params : dict
            Parameters, and nested ones as ``part__name``, also of a part that is None
            or a str.

        Returns
        -------
        self : object
            The estimator.
        """
        for name in self._default_parts:
            if any(key.startswith(f"{name}__") for key in params):
                value = params.get(name, getattr(self, name))
                params = {**params, name: self._as_part(name, value)}
        return super().set_params(**params)

    def _as_part(self, name, value):
        """Return a part for a value of its parameter."""
        if value is None:
            return self._default_parts[name]()
        return self._default_parts[name](value) if isinstance(value, str) else value

    def _part(self, name, **defaults):
        """Return the part of a parameter, or its default; raise if it is not valid.

        With `defaults` it is a copy, with these in place of parameters that are None.
        """
        component = self._as_part(name, getattr(self, name))
        component._validate_params()
        if not defaults:
            return component
        params = component.get_params(deep=False)
        params = {key: value for key, value in params.items() if value is not None}
        return type(component)(**{**defaults, **params})

    def citation(self, format="text"):
        """Return the references to cite for this estimator, and skood.

        Parameters
        ----------
        format : {"text", "bibtex"}, default="text"
            One line per reference, or a BibTeX entry.

        Returns
        -------
        text : str
            See :func:`skood.utils.citation`.
        """
        from skood.utils._citation import citation

        return citation(self, format=format)


class _InvalidOptionError(ValueError, TypeError):
    """A parameter of a rule or of options is out of its range, or of another type."""


def check_options(options):
    """Raise if a parameter of a rule, or of other options, is not valid."""
    try:
        options._validate_params()
    except InvalidParameterError as error:
        # scikit-learn's decorator of functions would replace the name of the class
        raise _InvalidOptionError(str(error)) from None


class BaseOptions(SkoodEstimator):
    """Base class of options that a function takes as one object."""

    @classmethod
    def _checked(cls, options):
        """Return valid options, the defaults for None, or raise."""
        if options is None:
            return cls()
        if not isinstance(options, cls):
            raise TypeError(f"Expected a {cls.__name__} or None, got {options!r}.")
        check_options(options)
        return options


# Without this, nested estimators are printed in one line: scikit-learn's private
# printer finds the layout by the __repr__ method.
_EstimatorPrettyPrinter._dispatch[SkoodEstimator.__repr__] = (
    _EstimatorPrettyPrinter._pprint_estimator
)


def _check_version(written):
    """Warn if another minor version wrote a state, which may be incompatible."""
    from skood import __version__

    if str(written).split(".")[:2] != __version__.split(".")[:2]:
        warn(
            f"An estimator that skood {written} pickled is loaded by skood "
            f"{__version__}: its fitted attributes may have another meaning. Load it "
            f"with skood {written}, fit it again, or compare predictions of some "
            "samples."
        )
