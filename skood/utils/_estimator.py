"""What all estimators of skood share."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._pprint import _EstimatorPrettyPrinter

from skood.utils._warnings import warn

__all__ = ["SkoodEstimator"]

_STAMP = "_skood_version"  # a name in pickled states only


class SkoodEstimator(BaseEstimator):
    """Base of skood's estimators, in place of scikit-learn's.

    Their pickles are stamped with the version of skood, as scikit-learn stamps those
    of its own, and they know whom to cite.
    """

    def __repr__(self, N_CHAR_MAX=700):
        # The weights of a head are parameters, of which a few numbers are enough.
        with np.printoptions(threshold=8, edgeitems=1, precision=3):
            return super().__repr__(N_CHAR_MAX)

    def __getstate__(self):
        from skood import __version__

        return {**super().__getstate__(), _STAMP: __version__}

    def __setstate__(self, state):
        state = dict(state)
        if _STAMP in state:
            _check_version(state.pop(_STAMP))
        super().__setstate__(state)

    def citation(self, format="text"):
        """Whom to cite: the papers of what is computed here, and skood.

        Parameters
        ----------
        format : {"text", "bibtex"}, default="text"
            A line for each reference, or an entry for BibTeX.

        Returns
        -------
        text : str
            See :func:`skood.utils.citation`.
        """
        from skood.utils._citation import citation

        return citation(self, format=format)


# Otherwise nested estimators are printed in one line: the printer, which is private,
# looks up how to lay them out by their __repr__.
_EstimatorPrettyPrinter._dispatch[SkoodEstimator.__repr__] = (
    _EstimatorPrettyPrinter._pprint_estimator
)


def _check_version(written):
    """Warn if a state may be laid out otherwise: another minor version wrote it."""
    from skood import __version__

    if str(written).split(".")[:2] != __version__.split(".")[:2]:
        warn(
            f"An estimator that skood {written} pickled is loaded by skood "
            f"{__version__}: what it learned may be read otherwise. Load it with "
            f"skood {written}, fit it again, or compare predictions of some rows."
        )
