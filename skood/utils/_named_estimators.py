"""Mixin for estimators with a list of named parts."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator as _Estimator
else:
    _Estimator = object

__all__ = ["NamedParts"]


class NamedParts(_Estimator):
    """Mixin for estimators with a parameter that is a list of (name, part).

    Each part is a parameter with its name, and has nested parameters:
    ``set_params(knn=KNN())`` replaces it, ``set_params(knn__n_neighbors=5)`` changes
    it.
    """

    # The name of the parameter.
    _parts_parameter: ClassVar[str]

    def get_params(self, deep=True):
        """Get the parameters, including the parts by name.

        Parameters
        ----------
        deep : bool, default=True
            Whether to include the parts, and their parameters.

        Returns
        -------
        params : dict
            Values by name.
        """
        params = super().get_params(deep=deep)
        if deep:
            for name, part in self._named_parts():
                params[name] = part
                if hasattr(part, "get_params") and not isinstance(part, type):
                    inner = part.get_params(deep=True).items()
                    params.update((f"{name}__{key}", value) for key, value in inner)
        return params

    def set_params(self, **params):
        """Set parameters of the estimator, parts by name, or parameters of parts.

        Parameters
        ----------
        **params : dict
            Values by name.

        Returns
        -------
        self : object
            The estimator.

        Raises
        ------
        ValueError
            If a parameter does not exist.
        """
        if self._parts_parameter in params:  # it may define the names of the others
            setattr(self, self._parts_parameter, params.pop(self._parts_parameter))
        pairs = list(self._named_parts())
        replaced = {name: params.pop(name) for name, _ in pairs if name in params}
        if replaced:
            pairs = [(name, replaced.get(name, part)) for name, part in pairs]
            setattr(self, self._parts_parameter, pairs)
        return super().set_params(**params)

    def _named_parts(self):
        """Return the list of pairs, empty if it is invalid, which `fit` reports."""
        parts = getattr(self, self._parts_parameter)
        try:
            return [(name, part) for name, part in parts if isinstance(name, str)]
        except (TypeError, ValueError):
            return []

    def _check_parts(self, methods):
        """Return names and parts that are not "drop", or raise.

        `methods` are the methods that each part must have. Raises a TypeError if the
        parameter is no list of pairs of a string and an estimator, a ValueError if
        there is no part, or a name is a duplicate or not allowed.
        """
        what = self._parts_parameter
        pairs = getattr(self, what)
        if not isinstance(pairs, (list, tuple)) or not all(
            isinstance(pair, (list, tuple))
            and len(pair) == 2
            and isinstance(pair[0], str)
            for pair in pairs
        ):
            raise TypeError(
                f"{what} must be a list of (name, estimator), got {pairs!r}. Write "
                f"{what}=[('knn', KNN()), ('vim', ViM())]."
            )
        names = [name for name, _ in pairs]
        own = set(super().get_params(deep=False))
        bad = [name for name in names if not name or "__" in name or name in own]
        if bad:
            raise ValueError(
                f"Names in {what} must not be empty, contain '__' or be a parameter of "
                f"{type(self).__name__}, got {bad}. Rename them."
            )
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"Names in {what} must be distinct, got twice: {twice}.")
        kept = [(n, p) for n, p in pairs if not (isinstance(p, str) and p == "drop")]
        if not kept:
            raise ValueError(
                f"{what}={pairs!r} has no estimator. Give at least one that is not "
                "'drop'."
            )
        for name, part in kept:
            lacking = [method for method in methods if not hasattr(part, method)]
            if lacking or isinstance(part, type):
                raise TypeError(
                    f"{name!r} in {what} must be an estimator with "
                    f"{' and '.join(methods)}, or 'drop', got {part!r}"
                    + (f" without {', '.join(lacking)}." if lacking else ": a class.")
                )
        return [name for name, _ in kept], [part for _, part in kept]
