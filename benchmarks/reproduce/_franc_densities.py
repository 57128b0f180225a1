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
from skood.metrics import TwoScoreCurve
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
# Kinds of the curves of two scores, and the names of their areas.
_AREAS = {"roc": "AUROC", "precision_recall": "AUPR", "ccr": "OSCR"}
_PANELS = {
    "RC at FPR .2/TPR": ("TPR", "selective risk, FPR ≤ 0.2"),
    "ROC/FPR": ("FPR", "TPR"),
    "PR/recall": ("recall", f"precision, OOD prior {_PRIOR}"),
}
_GRID = np.arange(1, 20) / 20


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

    def best_of_both(self, kind):
        """Return the curve of the best rule on r and g, section 3.2 of the paper.

        Each cell is a correct, a misclassified and an OOD sample, with their weights.
        """
        p, q, r, g = self.cells
        y_true, y_pred = np.repeat([0, 1, -1], len(r)), np.zeros(3 * len(r), int)
        scores = np.tile(-r, 3), np.tile(-np.minimum(g, 1e9), 3)
        return TwoScoreCurve.from_predictions(
            *(y_true, y_pred, *scores),
            kind=kind,
            ood_prior=_PRIOR,
            sample_weight=np.concatenate([p * (1 - r), p * r, q]),
        )

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
    if name == "D":
        roc, precision, ccr = (parts.best_of_both(kind) for kind in _AREAS)
        areas = 1 - roc.area, precision.area, ccr.area
    else:
        tpr, fpr, risk, precision = parts.curve(name)
        areas = trapezoid(tpr, fpr), trapezoid(precision, tpr), trapezoid(1 - risk, fpr)
    return values | dict(zip(_AREAS.values(), areas, strict=True))


def figure_1(parts):
    """Yield the three panels: selective risk, ROC, and precision against recall."""
    for name in "ABCD":
        yield Row(name, partial(_panels, parts, name))


def _panels(parts, name):
    """Return the three curves on the grid, and the attainable TPR at FPR 0.2."""
    if name == "D":
        roc, pr = (parts.best_of_both(kind) for kind in ("roc", "precision_recall"))
        fpr, tpr = roc.values, roc.bounds
        precision = pr.at(_GRID)
    else:
        tpr, fpr, _, all_precisions = parts.curve(name)
        precision = np.interp(_GRID, tpr, all_precisions)
    values = {"attainable TPR at FPR 0.2": tpr[fpr <= 0.2].max(initial=0.0)}
    for bound, best in zip(_GRID, precision, strict=True):
        rule = BoundedTPRFPR(tpr_min=bound, fpr_max=0.2)
        values[f"RC at FPR .2/TPR {bound:g}"] = parts.least_risk(name, rule)
        values[f"ROC/FPR {bound:g}"] = tpr[fpr <= bound].max(initial=0.0)
        values[f"PR/recall {bound:g}"] = best
    return values


def draw_figure_1(records):
    """Return the figure of the three panels."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), layout="constrained")
    panels = zip(figure.subplots(1, 3), _PANELS.items(), strict=True)
    for axes, (start, (x_label, y_label)) in panels:
        for name, style in zip("ABCD", ("-.", ":", "--", "-"), strict=True):
            columns = [f"{start} {bound:g}" for bound in _GRID]
            values = [records.of("fig-1", name, column)[0] for column in columns]
            label = name
            if start.startswith("RC"):
                tpr = records.of("fig-1", name, "attainable TPR at FPR 0.2")[0]
                label = f"{name}, TPR up to {tpr:.2f}"
            axes.plot(_GRID, values, style, marker=".", label=label)
        axes.set(xlabel=x_label, ylabel=y_label)
        axes.legend(loc="lower left" if start.startswith("PR") else "lower right")
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
