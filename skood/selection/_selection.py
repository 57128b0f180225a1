"""Selection: the samples of a batch that are selected as OOD."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass
from html import escape

import numpy as np

from skood.stats._ranks import min_selected

# Number of samples in the table for notebooks.
_SHOWN = 10


@dataclass(frozen=True, eq=False, repr=False)
class Selection:
    """Samples of one batch that are selected as out-of-distribution (OOD).

    The functions and methods of :mod:`skood.selection` return it. Read more in the
    :ref:`User Guide <selection>`.

    Parameters
    ----------
    selected : ndarray of shape (n_samples,), dtype bool
        True for samples that are selected as OOD.

    pvalues : ndarray of shape (n_samples,), dtype float64
        The p-value of each sample; of several detectors, under the chosen one.

    alpha : float
        The level.

    n_calibration : int
        Number of calibration samples that the p-values refer to.

    qvalues : ndarray of shape (n_samples,) or None, default=None
        The smallest level at which each sample would be selected; it may exceed 1. None
        unless the procedure is a `StepUp`.

    pi0 : float or None, default=None
        Estimated proportion of ID samples in the batch, which may exceed 1. 1 for the
        procedure of Benjamini and Hochberg, None for procedures that have none.

    detector : ndarray of shape (n_samples,) or None, default=None
        The detector by which each sample was tested, its name or index.

    fdp_bound : float or None, default=None
        Upper bound on the share of ID samples among the selected ones, see `fdp_bound`.
        None if none was asked for.

    See Also
    --------
    select_novelties : Selection by p-values.
    NoveltySelector : Selection by one or several detectors.

    Examples
    --------
    >>> from skood.selection import select_novelties
    >>> batch = select_novelties([0.01, 0.6, 0.02, 0.9], 99, alpha=0.1)
    >>> batch
    2 of 4 selected at alpha=0.1; smallest q-value 0.04
    >>> batch.labels
    array([-1,  1, -1,  1])
    >>> batch.n_selected, batch.threshold, batch.min_selected
    (2, 0.02, 1)
    >>> batch.qvalues
    array([0.04, 0.8 , 0.04, 0.9 ])
    """

    selected: np.ndarray
    pvalues: np.ndarray
    alpha: float
    n_calibration: int
    qvalues: np.ndarray | None = None
    pi0: float | None = None
    detector: np.ndarray | None = None
    fdp_bound: float | None = None

    @property
    def labels(self):
        """Labels as from ``predict``: -1 for selected samples, +1 for others."""
        return np.where(self.selected, -1, 1)

    @property
    def n_selected(self):
        """Number of selected samples."""
        return int(np.count_nonzero(self.selected))

    @property
    def threshold(self):
        """The largest selected p-value, 0 if no sample is selected."""
        return float(self.pvalues[self.selected].max(initial=0.0))

    @property
    def min_selected(self):
        """Smallest size of a selection by Benjamini-Hochberg that is not empty."""
        return min_selected(len(self.selected), self.n_calibration, self.alpha)

    def __repr__(self):
        text = f"{self.n_selected} of {len(self.selected)} selected at alpha="
        text += f"{self.alpha:g}"
        for name in ("q-value", "p-value"):
            values = getattr(self, name.replace("-", "") + "s")
            if values is not None and len(values):
                return f"{text}; smallest {name} {values.min():.2g}"
        return text

    def _repr_html_(self):
        """Return a table of the ten samples of the smallest p-values, for notebooks."""
        names = ["selected", "pvalues", "qvalues", "detector"]
        names = [name for name in names if getattr(self, name) is not None]
        rows = np.argsort(self.pvalues, kind="stable")[:_SHOWN]
        head = "".join(f"<th>{name}</th>" for name in ["sample", *names])
        lines = []
        for i in rows.tolist():
            values = [getattr(self, name)[i] for name in names]
            cells = [f"{v:.4g}" if isinstance(v, float) else str(v) for v in values]
            columns = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
            lines.append(f"<tr><th>{i}</th>{columns}</tr>")
        caption = f"<caption>{escape(repr(self))}</caption>"
        head = f"<thead><tr>{head}</tr></thead>"
        return "\n".join(
            ["<table>", caption, head, "<tbody>", *lines, "</tbody>", "</table>"]
        )
