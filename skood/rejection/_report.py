"""What a selective classifier does on given rows, with confidence intervals."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from dataclasses import asdict, dataclass
from html import escape
from typing import NamedTuple

import numpy as np
from scipy.stats import beta, norm

from skood.rejection._operating_point import precision_at

__all__ = [
    "Estimate",
    "RejectionReport",
    "clopper_pearson",
    "largest_loss",
    "make_report",
]


class Estimate(NamedTuple):
    """A number and its confidence interval.

    Parameters
    ----------
    value : float
        The estimate; NaN where it is undefined.

    low, high : float
        Ends of the interval.
    """

    value: float
    low: float
    high: float


_UNDEFINED = Estimate(math.nan, math.nan, math.nan)


def clopper_pearson(successes, trials, confidence_level=0.95):
    """Exact two-sided interval for a binomial proportion.

    Parameters
    ----------
    successes, trials : int
        Counts.

    confidence_level : float, default=0.95
        Least coverage of the interval.

    Returns
    -------
    estimate : Estimate
        The share and its interval; all NaN without trials.
    """
    if trials == 0:
        return _UNDEFINED
    tail = (1.0 - confidence_level) / 2
    low = beta.ppf(tail, successes, trials - successes + 1) if successes else 0.0
    high = 1.0
    if successes < trials:
        high = beta.ppf(1 - tail, successes + 1, trials - successes)
    return Estimate(successes / trials, float(low), float(high))


@dataclass(frozen=True)
class RejectionReport:
    """Rates of a selective classifier on given rows.

    Parameters
    ----------
    tpr : Estimate
        Accepted share of ID rows, with its Clopper-Pearson interval.

    fpr : Estimate
        Accepted share of OOD rows, likewise. NaN without OOD rows.

    coverage : Estimate
        Accepted share of all rows, likewise.

    risk : Estimate
        Selective risk: mean loss of the accepted ID rows. The interval is that of
        Clopper and Pearson if all losses are zero or the largest possible loss (1
        for a callable loss), else the normal one. NaN if no ID row was accepted.

    precision : Estimate
        Share of ID rows among accepted ones at `ood_prior`, with the interval that
        follows from two simultaneous ones for TPR and FPR. NaN if no prior is
        given: the mix of the rows at hand says nothing about use.

    n_id, n_ood : int
        Numbers of rows.

    n_accepted_id, n_accepted_ood : int
        Numbers of accepted rows.

    confidence_level : float
        Level of each interval.

    ood_prior : float or None
        Share of OOD rows in use.

    scores : dict of str to str or None, default=None
        Which scores the rule compares, "risk" and "ood", and what they are scores of.
    """

    tpr: Estimate
    fpr: Estimate
    coverage: Estimate
    risk: Estimate
    precision: Estimate
    n_id: int
    n_ood: int
    n_accepted_id: int
    n_accepted_ood: int
    confidence_level: float
    ood_prior: float | None
    scores: dict | None = None

    def to_dict(self):
        """Return everything as nested dicts and numbers, ready for JSON.

        Returns
        -------
        report : dict
            Estimates are dicts of value, low and high; undefined ones are None.
        """
        result = asdict(self)
        for name in ("tpr", "fpr", "coverage", "risk", "precision"):
            values = getattr(self, name)._asdict()
            result[name] = {
                k: v if math.isfinite(v) else None for k, v in values.items()
            }
        return result

    def _rows(self):
        """Name, estimate and meaning of each defined rate."""
        meanings = {
            "tpr": f"{self.n_accepted_id} of {self.n_id} ID rows accepted",
            "fpr": f"{self.n_accepted_ood} of {self.n_ood} OOD rows accepted",
            "coverage": "accepted share of all rows",
            "risk": "mean loss of the accepted ID rows",
            "precision": f"share of ID among accepted, {self.ood_prior} of rows OOD",
        }
        rows = [(name, getattr(self, name), text) for name, text in meanings.items()]
        return [row for row in rows if not math.isnan(row[1].value)]

    def _score_line(self):
        """Which scores the rule compares, in one line."""
        return "; ".join(f"{k} score: {v}" for k, v in (self.scores or {}).items())

    def __str__(self):
        level = f"{100 * self.confidence_level:g} %"
        lines = [f"{'':<10}{'value':>8}  {level + ' interval':<18}"]
        for name, (value, low, high), text in self._rows():
            interval = f"[{low:.4f}, {high:.4f}]"
            lines.append(f"{name:<10}{value:>8.4f}  {interval:<18}  {text}")
        return "\n".join([*lines, *filter(None, [self._score_line()])])

    def _repr_html_(self):
        """Return the table for notebooks."""
        level = f"{100 * self.confidence_level:g} % interval"
        rows = [
            f"<tr><th>{name}</th><td>{value:.4f}</td><td>[{low:.4f}, {high:.4f}]</td>"
            f"<td>{escape(text)}</td></tr>"
            for name, (value, low, high), text in self._rows()
        ]
        head = f"<tr><th></th><th>value</th><th>{level}</th><th></th></tr>"
        line = self._score_line()
        caption = f"<caption>{escape(line)}</caption>" if line else ""
        body = ["<tbody>", *rows, "</tbody>"]
        return "\n".join(
            ["<table>", caption, f"<thead>{head}</thead>", *body, "</table>"]
        )


def largest_loss(loss):
    """Return the largest value of the `loss` of a RejectOptionClassifier.

    Parameters
    ----------
    loss : "zero_one", callable or array-like of shape (n_classes, n_classes)
        The loss.

    Returns
    -------
    largest : float or None
        None if unknown: for a callable.
    """
    if isinstance(loss, str):
        return 1.0
    if callable(loss):
        return None
    if np.ndim(loss) != 2:
        raise ValueError(
            "loss must be 'zero_one', a callable or a matrix of shape (n_classes, "
            f"n_classes), got an array of shape {np.shape(loss)}."
        )
    return float(np.max(loss))


def make_report(accepted, loss, is_ood, *, confidence_level, ood_prior, max_loss=None):
    """Count, and put intervals on what was counted.

    Parameters
    ----------
    accepted : ndarray of shape (n_samples,), dtype bool
        The accepted rows.

    loss : ndarray of shape (n_id,)
        Losses of the ID rows.

    is_ood : ndarray of shape (n_samples,), dtype bool
        The OOD rows.

    confidence_level : float
        Level of each interval.

    ood_prior : float or None
        Share of OOD rows in use.

    max_loss : float or None
        Largest possible loss, None if unknown.

    Returns
    -------
    report : RejectionReport
        The rates.
    """
    n_ood = int(is_ood.sum())
    n_id = len(accepted) - n_ood
    n_accepted_id = int(accepted[~is_ood].sum())
    n_accepted_ood = int(accepted[is_ood].sum())
    level = confidence_level
    precision = _UNDEFINED
    if ood_prior is not None and n_id and n_ood:
        # Two intervals at half the error each hold together at the asked level.
        tpr = clopper_pearson(n_accepted_id, n_id, (1 + level) / 2)
        fpr = clopper_pearson(n_accepted_ood, n_ood, (1 + level) / 2)
        precision = Estimate(
            precision_at(ood_prior, tpr.value, fpr.value),
            precision_at(ood_prior, tpr.low, fpr.high),
            precision_at(ood_prior, tpr.high, fpr.low),
        )
    return RejectionReport(
        tpr=clopper_pearson(n_accepted_id, n_id, level),
        fpr=clopper_pearson(n_accepted_ood, n_ood, level),
        coverage=clopper_pearson(int(accepted.sum()), len(accepted), level),
        risk=_risk(loss[accepted[~is_ood]], level, max_loss),
        precision=precision,
        n_id=n_id,
        n_ood=n_ood,
        n_accepted_id=n_accepted_id,
        n_accepted_ood=n_accepted_ood,
        confidence_level=level,
        ood_prior=ood_prior,
    )


def _risk(loss, confidence_level, max_loss):
    """Mean loss with its interval: exact for two-valued losses, else normal."""
    if len(loss) == 0:
        return _UNDEFINED
    largest = max_loss or 1.0
    if np.isin(loss, (0.0, largest)).all():
        # the mean loss is at most `largest` times the share of losses that are not 0
        errors = int(np.count_nonzero(loss))
        share = clopper_pearson(errors, len(loss), confidence_level)
        return Estimate(*(largest * end for end in share))
    mean = float(loss.mean())
    top = math.inf if max_loss is None else max_loss
    if len(loss) == 1:
        return Estimate(mean, 0.0, top)
    half = (
        norm.ppf((1 + confidence_level) / 2) * loss.std(ddof=1) / math.sqrt(len(loss))
    )
    return Estimate(mean, max(0.0, float(mean - half)), min(float(mean + half), top))
