"""Exceptions and warnings of skood.

Every error also is the built-in kind that a scikit-learn user would catch
(``ValueError``, ``TypeError``), every warning a ``UserWarning``.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

__all__ = ["InfeasibleError", "SkoodError", "SkoodWarning"]


class SkoodError(Exception):
    """Root of all errors that are special to skood."""


class SkoodWarning(UserWarning):
    """Root of all warnings that are special to skood."""


class InfeasibleError(SkoodError, ValueError):
    """No acceptance rule meets the asked bounds on the given data.

    Parameters
    ----------
    message : str
        What was asked for; the attainable bounds are appended to it.

    max_tpr_at_fpr : float, default=nan
        Largest true positive rate attainable within the asked false positive
        rate.

    min_fpr_at_tpr : float, default=nan
        Smallest false positive rate attainable with the asked true positive
        rate.

    Attributes
    ----------
    max_tpr_at_fpr : float
        See above.

    min_fpr_at_tpr : float
        See above.

    Examples
    --------
    >>> from skood.exceptions import InfeasibleError
    >>> str(InfeasibleError("No rule.", max_tpr_at_fpr=0.5, min_fpr_at_tpr=0.25))
    'No rule. Attainable on this data: a TPR of at most 0.5 within the asked FPR, \
and an FPR of at least 0.25 with the asked TPR.'
    """

    def __init__(
        self, message, max_tpr_at_fpr=float("nan"), min_fpr_at_tpr=float("nan")
    ):
        self.message = message
        self.max_tpr_at_fpr = float(max_tpr_at_fpr)
        self.min_fpr_at_tpr = float(min_fpr_at_tpr)
        super().__init__(message, max_tpr_at_fpr, min_fpr_at_tpr)

    def __str__(self):
        return (
            f"{self.message} Attainable on this data: a TPR of at most "
            f"{self.max_tpr_at_fpr:.4g} within the asked FPR, and an FPR of at least "
            f"{self.min_fpr_at_tpr:.4g} with the asked TPR."
        )
