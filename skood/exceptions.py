"""Exceptions and warnings of skood.

Every error is also a subclass of the built-in error that scikit-learn would raise
(``ValueError``, ``TypeError``), every warning of ``UserWarning``.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

__all__ = [
    "ConstraintSyntaxError",
    "InfeasibleError",
    "NotCertifiableError",
    "SkoodError",
    "SkoodWarning",
]


# Characters of a line that an error shows on each side of the position.
_SHOWN = 60


class SkoodError(Exception):
    """Base class of the errors of skood."""


class SkoodWarning(UserWarning):
    """Base class of the warnings of skood."""


class ConstraintSyntaxError(SkoodError, ValueError):
    """Syntax error in the text of a constraint over the given concepts.

    Parameters
    ----------
    message : str
        Description of the error; the line and a caret at the position are appended. For
        a long line only the part around the position is shown.

    text : str
        The text.

    position : int
        Index of the character at the error, at most the length of the text.

    Attributes
    ----------
    message, text, position
        See above.

    lineno, column : int
        The position, counted from 1.

    Examples
    --------
    >>> from skood.exceptions import ConstraintSyntaxError
    >>> print(ConstraintSyntaxError("expected a value", "color = ->", 8))
    expected a value
        color = ->
                ^
    """

    def __init__(self, message, text, position):
        self.message = message
        self.text = text
        self.position = position
        before = text[:position]
        self.lineno = before.count("\n") + 1
        self.column = position - (before.rfind("\n") + 1) + 1
        super().__init__(message, text, position)

    def __str__(self):
        line = self.text.split("\n")[self.lineno - 1]
        line = "".join(c if c.isprintable() or c == "\t" else " " for c in line)
        before, after = line[: self.column - 1], line[self.column - 1 :]
        if len(before) > _SHOWN:
            before = f"…{before[-_SHOWN:]}"
        if len(after) > _SHOWN:
            after = f"{after[:_SHOWN]}…"
        # tabs remain tabs, so that the caret is aligned
        space = "".join("\t" if c == "\t" else " " for c in before)
        place = f" (line {self.lineno})" if "\n" in self.text else ""
        return f"{self.message}{place}\n    {before}{after}\n    {space}^"


class InfeasibleError(SkoodError, ValueError):
    """No acceptance rule meets the bounds on the given data.

    Parameters
    ----------
    message : str
        The problem; the attainable bounds are appended.

    max_tpr_at_fpr : float, default=nan
        Largest true positive rate attainable within the bound on the false positive
        rate.

    min_fpr_at_tpr : float, default=nan
        Smallest false positive rate attainable with the bound on the true positive
        rate.

    min_risk : float, default=nan
        Smallest selective risk attainable.

    bounded : str, default="FPR"
        Name of the other bounded quantity besides the TPR, for the text.

    Attributes
    ----------
    max_tpr_at_fpr, min_fpr_at_tpr, min_risk : float
        See above; NaN if not relevant.

    Examples
    --------
    >>> from skood.exceptions import InfeasibleError
    >>> str(InfeasibleError("No rule.", max_tpr_at_fpr=0.5, min_fpr_at_tpr=0.25))
    'No rule. Attainable on this data: a TPR of at most 0.5 within the given FPR, \
and an FPR of at least 0.25 with the given TPR.'
    """

    def __init__(
        self,
        message,
        max_tpr_at_fpr=float("nan"),
        min_fpr_at_tpr=float("nan"),
        min_risk=float("nan"),
        bounded="FPR",
    ):
        self.message = message
        self.max_tpr_at_fpr = float(max_tpr_at_fpr)
        self.min_fpr_at_tpr = float(min_fpr_at_tpr)
        self.min_risk = float(min_risk)
        self.bounded = bounded
        super().__init__(message, max_tpr_at_fpr, min_fpr_at_tpr, min_risk, bounded)

    def __str__(self):
        facts = {
            "a TPR of at most {} within the given " + self.bounded: self.max_tpr_at_fpr,
            "an FPR of at least {} with the given TPR": self.min_fpr_at_tpr,
            "a selective risk of at least {}": self.min_risk,
        }
        known = [k.format(f"{v:.4g}") for k, v in facts.items() if not math.isnan(v)]
        return f"{self.message} Attainable on this data: {', and '.join(known)}."


class NotCertifiableError(SkoodError, ValueError):
    """The given samples are too few to certify the bounds of a rule.

    Parameters
    ----------
    message : str
        The problem and the reason of the failure; the sizes are appended.

    n_id_needed, n_ood_needed : int or None, default=None
        Estimated numbers of ID and of OOD samples that suffice, if the rates of the
        thresholds equal the rates on the given samples; about half of all samples of
        this size suffice, fewer if the estimate is based on only some tens of samples.
        None if no number suffices.

    factor : float or None, default=None
        The same as a multiple of the given samples; None if it is not known, NaN if
        the samples disagree, so that the numbers cannot be estimated.

    Attributes
    ----------
    n_id_needed, n_ood_needed, factor
        See above.

    Examples
    --------
    >>> from skood.exceptions import NotCertifiableError
    >>> str(NotCertifiableError("Too few.", n_id_needed=400, n_ood_needed=900))
    'Too few. About 400 ID and 900 OOD samples suffice, if rates are as on these \
samples.'
    """

    def __init__(self, message, n_id_needed=None, n_ood_needed=None, factor=None):
        self.message = message
        self.n_id_needed = n_id_needed
        self.n_ood_needed = n_ood_needed
        self.factor = factor
        super().__init__(message, n_id_needed, n_ood_needed, factor)

    def __str__(self):
        if self.n_id_needed is None and self.factor is not None:
            return (
                f"{self.message} More samples may suffice, but their number cannot be "
                f"estimated from these."
            )
        if self.n_id_needed is None:
            return (
                f"{self.message} No number of samples suffices if rates are as on "
                f"these samples; use weaker bounds, or other scores."
            )
        times = "" if self.factor is None else f" ({self.factor:.3g} times as many)"
        return (
            f"{self.message} About {self.n_id_needed} ID and {self.n_ood_needed} OOD "
            f"samples suffice{times}, if rates are as on these samples."
        )
