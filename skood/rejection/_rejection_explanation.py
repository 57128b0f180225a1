"""Explanations of decisions: a sentence and a table of columns for each sample."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass
from html import escape

import numpy as np

from skood.utils._optional import import_pandas

# A notebook shows at most this many samples.
_MAX_ROWS = 50


@dataclass(frozen=True)
class RejectionExplanation:
    """Explanations of the decisions of a :class:`RejectOptionClassifier`.

    It is a sequence of explanations of single samples; ``print`` shows the sentences,
    and a notebook shows them in a table. The columns are the columns of the input, or
    mixtures of them, that contribute to the score of a detector, see
    :func:`skood.detectors.column_contributions`. They are empty if no detector has
    contributions.

    Parameters
    ----------
    sentences : list of str
        A sentence for each sample.

    reason : ndarray of shape (n_samples,)
        "accepted", "uncertain class" or "out-of-distribution".

    prediction : ndarray of shape (n_samples,)
        Predictions of the classifier, also for rejected samples.

    columns : ndarray of shape (n_columns,)
        Names of the columns.

    contributions : ndarray of shape (n_samples, n_columns)
        Contributions, which sum to the squared distance of the detector.

    observed, references : ndarray of shape (n_samples, n_columns)
        Values of the samples, and values that the detector compares them with.

    deviations : ndarray of shape (n_samples, n_columns)
        Differences from the references in standard deviations; NaN if undefined.

    index : list
        Labels of the samples: the index of a data frame, or 0, 1, ….

    See Also
    --------
    RejectOptionClassifier.explain : Returns it.
    skood.metrics.ContributionDisplay : Draws the contributions for one sample.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.rejection import RejectionExplanation
    >>> parts = np.array([[81.0, 0.2]])
    >>> RejectionExplanation(
    ...     sentences=["rejected as out-of-distribution: income 182,000"],
    ...     reason=np.array(["out-of-distribution"]),
    ...     prediction=np.array(["good"]),
    ...     columns=np.array(["income", "age"]),
    ...     contributions=parts,
    ...     observed=np.array([[182e3, 45.0]]),
    ...     references=np.array([[41e3, 44.0]]),
    ...     deviations=np.sqrt(parts),
    ...     index=["row 7"],
    ... )
    row 7: rejected as out-of-distribution: income 182,000
    """

    sentences: list
    reason: np.ndarray
    prediction: np.ndarray
    columns: np.ndarray
    contributions: np.ndarray
    observed: np.ndarray
    references: np.ndarray
    deviations: np.ndarray
    index: list

    def __len__(self):
        return len(self.sentences)

    def __getitem__(self, i):
        """Return the explanation of the i-th sample, or of the samples of a slice."""
        if not isinstance(i, slice):
            i = range(len(self))[i]  # raises an IndexError, which ends iterations
            i = slice(i, i + 1)
        samples = {name: value[i] for name, value in vars(self).items()}
        return type(self)(**{**samples, "columns": self.columns})

    def __str__(self):
        lines = zip(self.index, self.sentences, strict=True)
        return "\n".join(f"{label}: {sentence}" for label, sentence in lines)

    __repr__ = __str__

    def to_frame(self):
        """Return a data frame with a row for each sample.

        Returns
        -------
        frame : pandas.DataFrame
            Columns ``prediction``, ``reason``, ``sentence`` and ``contribution_NAME``
            for each column.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        pd = import_pandas("RejectionExplanation.to_frame")
        frame = pd.DataFrame(
            {
                "prediction": self.prediction,
                "reason": self.reason,
                "sentence": self.sentences,
            },
            index=self.index,
        )
        names = [f"contribution_{name}" for name in self.columns]
        parts = pd.DataFrame(self.contributions, index=self.index, columns=names)
        return pd.concat([frame, parts], axis=1)

    def table(self, i=0):
        """Return the columns of one sample, with the largest contributions first.

        Parameters
        ----------
        i : int, default=0
            Position of the sample.

        Returns
        -------
        table : pandas.DataFrame
            A row for each column, with its value, ``reference``, ``deviation`` and
            ``contribution``.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        pd = import_pandas("RejectionExplanation.table")
        order = np.argsort(-self.contributions[i], kind="stable")
        found = {
            "value": self.observed,
            "reference": self.references,
            "deviation": self.deviations,
            "contribution": self.contributions,
        }
        return pd.DataFrame(
            {name: rows[i][order] for name, rows in found.items()},
            index=pd.Index(self.columns[order], name="column"),
        )

    def _repr_html_(self):
        """Return a table of the sentences for notebooks."""
        cells = zip(self.index, self.reason, self.sentences, strict=True)
        left = 'style="text-align: left"'  # notebooks align cells to the right
        rows = [
            "".join(f"<td {left}>{escape(str(cell))}</td>" for cell in row)
            for row in list(cells)[:_MAX_ROWS]
        ]
        rows = [f"<tr>{row}</tr>" for row in rows]
        names = ("sample", "reason", "explanation")
        head = "".join(f"<th {left}>{name}</th>" for name in names)
        head = f"<tr>{head}</tr>"
        hidden = len(self) - len(rows)
        note = f"<caption>and {hidden} more samples</caption>" if hidden else ""
        body = ["<tbody>", *rows, "</tbody>"]
        return "\n".join(["<table>", note, f"<thead>{head}</thead>", *body, "</table>"])
