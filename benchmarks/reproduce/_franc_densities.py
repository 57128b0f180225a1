"""The 1-D example of Franc et al. from its densities: Table 1 and Figure 1."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from functools import cached_property, partial
from pathlib import Path

import numpy as np
from scipy.integrate import trapezoid

from benchmarks.reproduce._paper import Row
from skood.datasets import make_reject_option_1d
from skood.exceptions import InfeasibleError
from skood.rejection import BoundedPrecisionRecall, BoundedTPRFPR, solve_finite

#: This file, whose code affects values.
SOURCE = Path(__file__)

_PRIOR = 0.25
_RULES = {
    "selective risk at TPR .7, FPR .2": BoundedTPRFPR(tpr_min=0.7, fpr_max=0.2),
    "selective risk at precision .9, recall .7": BoundedPrecisionRecall(
        precision_min=0.9, recall_min=0.7, ood_prior=_PRIOR
    ),
}
_BOUNDS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6)


class Densities:
    """The problem on a fine grid: probabilities of cells, risk r and ratio g."""

    def __init__(self, run, seed):
        self.model = make_reject_option_1d(1, random_state=0).model
        self.grid = np.linspace(-7, 10, 4001)

    @cached_property
    def cells(self):
        """Return p_id, p_ood, r and g of the cells."""
        p, q = self.model.density_id(self.grid), self.model.density_ood(self.grid)
        r, g = self.model.risk(self.grid), self.model.likelihood_ratio(self.grid)
        return p / p.sum(), q / q.sum(), r, g

    def score(self, name):
        """Return the score of a model, high for cells to reject."""
        _, _, r, g = self.cells
        return {"A": g, "B": r + 0.2 * g, "C": r}[name]

    def curve(self, name):
        """Return TPR, FPR, selective risk and precision after each accepted cell."""
        p, q, r, _ = self.cells
        order = np.argsort(self.score(name))
        tpr, fpr = np.cumsum(p[order]), np.cumsum(q[order])
        risk = np.cumsum((p * r)[order]) / tpr
        precision = (1 - _PRIOR) * tpr / ((1 - _PRIOR) * tpr + _PRIOR * fpr)
        return tpr, fpr, risk, precision

    def least_risk(self, name, rule):
        """Return the least selective risk within the bounds of a rule, or None."""
        if name == "D":  # over all functions of r and g
            p, q, r, _ = self.cells
            try:
                return solve_finite(p, q, r, rule).risk
            except InfeasibleError:
                return None
        tpr, fpr, risk, precision = self.curve(name)
        if isinstance(rule, BoundedTPRFPR):
            meets = (tpr >= rule.tpr_min) & (fpr <= rule.fpr_max)
        else:
            meets = (tpr >= rule.recall_min) & (precision >= rule.precision_min)
        return float(risk[meets].min()) if meets.any() else None


def table_1(parts):
    """Yield the models A to D."""
    for name in "ABCD":
        yield Row(name, partial(_model_row, parts, name))


def _model_row(parts, name):
    values = {column: parts.least_risk(name, rule) for column, rule in _RULES.items()}
    if name == "D":  # two scores: no AUROC
        return values
    tpr, fpr, risk, precision = parts.curve(name)
    return values | {
        "AUROC": trapezoid(tpr, fpr),
        "AUPR": trapezoid(precision, tpr),
        "OSCR": trapezoid(1 - risk, fpr),
    }


def figure_1(parts):
    """Yield the least selective risk at a TPR of 0.7 for bounds on the FPR."""
    for name in "ABCD":
        yield Row(name, partial(_risk_curve, parts, name))


def _risk_curve(parts, name):
    return {
        f"FPR {bound:g}": parts.least_risk(name, BoundedTPRFPR(0.7, bound))
        for bound in _BOUNDS
    }


def draw_figure_1(records):
    """Return the figure of the least risks."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for name, style in zip("ABCD", ("-.", ":", "--", "-"), strict=True):
        risks = [
            np.nanmean(records.of("fig-1", name, column))
            if not np.isnan(records.of("fig-1", name, column)).all()
            else np.nan
            for column in records.columns("fig-1", name)
        ]
        axes.plot(_BOUNDS[: len(risks)], risks, style, marker=".", label=name)
    axes.set(xlabel="largest FPR", ylabel="least selective risk, TPR ≥ 0.7")
    axes.legend(title="model")
    return figure


def two_scores_are_best(records):
    """Return the least risk of A, B and C minus the risk of D, Table 1."""
    if not {*"ABCD"} <= set(records.rows("1")):
        return None
    risks = {
        name: np.array([records.of("1", name, column)[0] for column in _RULES])
        for name in "ABCD"
    }
    return np.nanmin([risks[name] for name in "ABC"], axis=0)[None] - risks["D"]
