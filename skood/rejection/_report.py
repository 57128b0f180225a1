"""Report of the rates of a selective predictor, with confidence intervals."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from dataclasses import dataclass, field, fields
from html import escape

import numpy as np

from skood.decision import Estimate
from skood.decision._operating_point import precision_at
from skood.stats._mean_intervals import UNDEFINED, clopper_pearson, mean_interval
from skood.utils._losses import REGRESSION_LOSSES, check_no_dict
from skood.utils._optional import import_pandas
from skood.utils._plotting import COLORS, get_axes

# Rates of all samples, and of groups.
_OF_ALL = ("tpr", "fpr", "coverage", "risk", "precision", "error_rate")
_RATES = ("tpr", "fpr", "risk")

# Losses of whole weights are repeated up to this number, to bound memory.
_MAX_REPEATED = 10_000_000


@dataclass(frozen=True)
class RejectionReport:
    """Rates of a selective classifier or regressor on given samples.

    Parameters
    ----------
    tpr : Estimate
        Accepted fraction of ID samples, with its Clopper-Pearson interval.

    fpr : Estimate
        Accepted fraction of OOD samples, likewise. NaN without OOD samples.

    coverage : Estimate
        Accepted fraction of all samples, likewise.

    risk : Estimate
        Selective risk: mean loss of the accepted ID samples. It has the Clopper-Pearson
        interval if the loss has two values, else an interval for losses of a known
        range, which holds for any number of samples: by the inequalities of Hoeffding
        and Bentkus and by betting. For a callable loss of unknown range the ends are
        NaN. NaN if no ID sample was accepted.

    precision : Estimate
        Fraction of ID samples among accepted samples at `ood_prior`, with an interval
        from two simultaneous intervals of TPR and FPR. NaN without a prior: the
        fraction of OOD samples in the data is not the fraction in deployment.

    n_id, n_ood : int
        Numbers of samples, or the sums of their weights.

    n_accepted_id, n_accepted_ood : int
        Numbers of accepted samples, likewise.

    confidence_level : float
        Level of each interval.

    ood_prior : float or None
        Fraction of OOD samples in deployment.

    scores : dict of str to str or None, default=None
        The scores of the rule, "risk" and "ood", and their inputs. "bounds" describes
        bounds that are violated since no rule met them on the calibration samples,
        "certified" bounds that hold on new data.

    Attributes
    ----------
    certified : tuple of CertifiedStatement
        The bounds that hold on new data, next to the rates in the report.

    groups : dict or None
        For each group of ID samples, a dict of the estimates "tpr", "fpr" (NaN without
        OOD samples of the group) and "risk", and of the numbers "n_id" and "n_ood". All
        intervals of groups and sources hold simultaneously at the level.

    sources : dict or None
        For each source of OOD samples, a dict of the estimate "fpr" and of "n_ood".

    gaps : dict or None
        Largest minus smallest rate of the groups, for "tpr", "fpr" and "risk", with an
        interval from the ones of the groups.

    error_rate : Estimate
        Error rate of all accepted samples, where an OOD sample has the largest loss, at
        `ood_prior`; without a prior that of the given samples as a mixture, with a
        Clopper-Pearson interval if the loss has two values. NaN without OOD samples.

        .. versionadded:: 0.2

    limits : tuple of (str, float)
        Names of rates and bounds of the rule on them, whether they are certified or
        not.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.rejection import BoundedAbstention, RejectOptionClassifier
    >>> X, y = np.arange(-40.0, 40.0)[:, None], np.repeat([0, 1], 40)
    >>> clf = RejectOptionClassifier(
    ...     LogisticRegression(), rule=BoundedAbstention(0.8), random_state=0
    ... )
    >>> report = clf.fit(X[::2], y[::2]).report(X[1::2], y[1::2], confidence_level=0.9)
    >>> report.to_frame().round(3)
               value    low   high
    rate
    tpr         0.95  0.851  0.991
    fpr          NaN    NaN    NaN
    coverage    0.95  0.851  0.991
    risk        0.00  0.000  0.076
    precision    NaN    NaN    NaN
    error_rate   NaN    NaN    NaN
    >>> ax = report.plot()  # marks the bound 0.8 of the TPR
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
    certified: tuple = field(default=(), init=False)
    groups: dict | None = field(default=None, init=False)
    sources: dict | None = field(default=None, init=False)
    gaps: dict | None = field(default=None, init=False)
    limits: tuple = field(default=(), init=False)
    error_rate: Estimate = field(default=UNDEFINED, init=False)

    def to_dict(self):
        """Return the report as nested dicts and numbers, ready for JSON.

        Returns
        -------
        report : dict
            Estimates are dicts of value, low and high; undefined values are None.
        """
        result = {each.name: _plain(getattr(self, each.name)) for each in fields(self)}
        return {**result, "certified": [bound._asdict() for bound in self.certified]}

    def to_frame(self):
        """Return a data frame with a row for each rate.

        Returns
        -------
        frame : pandas.DataFrame
            Columns ``value``, ``low`` and ``high``, NaN where undefined, and an index
            with the name of the rate. With groups or sources, there are rows for each
            of them, rows ``tpr_gap``, ``fpr_gap`` and ``risk_gap``, and first columns
            ``group`` and ``source``, which are missing in rows for all samples.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        pd = import_pandas("RejectionReport.to_frame")
        rates, groups, sources, estimates = zip(*self._estimates(), strict=True)
        frame = pd.DataFrame(estimates, pd.Index(rates, name="rate"), Estimate._fields)
        if self.sources is not None:
            frame.insert(0, "source", pd.Series(sources, frame.index, dtype=object))
        if self.groups is not None:
            frame.insert(0, "group", pd.Series(groups, frame.index, dtype=object))
        return frame

    def plot(self, ax=None):
        """Plot each rate with its interval, and the bounds of the rule.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on; None makes a new figure.

        Returns
        -------
        ax : matplotlib Axes
            The axes. If a risk is above 1, it has an axis of its own at the top.
        """
        cells = [cell for cell in self._estimates() if not math.isnan(cell[3].value)]
        with get_axes(ax, "RejectionReport") as axes:
            if ax is None:
                axes.figure.set_size_inches(7.2, 1.5 + 0.35 * len(cells))
                axes.figure.set_layout_engine("constrained")
            losses = "risk", "error"
            risks = [cell[3] for cell in cells if cell[0].startswith(losses)]
            is_large = np.any(np.array(risks) > 1)
            risk_axes = axes.twiny() if is_large else axes
            handles, labels = {}, []
            for y, (rate, group, source, (value, *ends)) in enumerate(cells):
                target = risk_axes if rate.startswith(losses) else axes
                error = np.abs(np.subtract(ends, value))[:, None]
                color = COLORS[int(target is not axes)]
                target.errorbar(value, y, xerr=error, fmt="o", capsize=3, color=color)
                kind, limits = self._limits_of(rate, group, source)
                color = "black" if kind == "certified bound" else "0.6"
                for limit in limits:
                    (handles[kind],) = target.plot(limit, y, "|", ms=20, mew=2, c=color)
                label = rate.replace("_", " ")
                label += "" if group is None else f", group {group}"
                labels.append(label if source is None else f"{label}, source {source}")
            axes.set_yticks(range(len(cells)), labels, parse_math=False)
            axes.set_ylim(len(cells) - 0.5, -0.5)
            axes.set_xlabel(f"value and {100 * self.confidence_level:g} % interval")
            if is_large:
                risk_axes.set_xlabel("risk", color=COLORS[1])
            if handles:
                place = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
                axes.legend(handles.values(), handles, markerscale=0.4, **place)
        return axes

    def _estimates(self):
        """Return rate, group, source and estimate of each rate."""
        cells = [(rate, None, None, getattr(self, rate)) for rate in _OF_ALL]
        for group, row in (self.groups or {}).items():
            cells += [(rate, group, None, row[rate]) for rate in _RATES]
        for rate, estimate in (self.gaps or {}).items():
            cells.append((f"{rate}_gap", None, None, estimate))
        for source, row in (self.sources or {}).items():
            cells.append(("fpr", None, source, row["fpr"]))
        return cells

    def _limits_of(self, rate, group, source):
        """Return the kind of the bounds on a rate, and the bounds."""
        key = rate, group, source
        certified = [x for x in self.certified if (x.rate, x.group, x.source) == key]
        limits = [x.limit for x in certified if not math.isnan(x.limit)]
        if not limits and group is None and source is None:
            limits = [limit for name, limit in self.limits if name == rate]
        return "certified bound" if certified else "bound of the rule", limits

    def _lines(self):
        """Return name, estimate and meaning of each defined rate."""
        meanings = {
            "tpr": f"{self.n_accepted_id:.6g} of {self.n_id:.6g} ID samples accepted",
            "fpr": (
                f"{self.n_accepted_ood:.6g} of {self.n_ood:.6g} OOD samples accepted"
            ),
            "coverage": "accepted fraction of all samples",
            "risk": "mean loss of the accepted ID samples",
            "precision": f"ID fraction of accepted, {self.ood_prior} of samples OOD",
            "error_rate": "mean loss of all accepted samples",
        }
        lines = []
        for name, text in meanings.items():
            estimate, bounds = getattr(self, name), _certified_texts(self, name)
            if bounds:
                text += f"; certified: {bounds}"
            lines.append((name, estimate, text))
        return [row for row in lines if not math.isnan(row[1].value)]

    def _notes(self):
        """Return lines on the scores of the rule, and on bounds that it violates."""
        texts = dict(self.scores or {})
        others = {name: texts.pop(name, None) for name in ("bounds", "certified")}
        scores = "; ".join(f"{k} score: {v}" for k, v in texts.items())
        notes = [f"{name}: {text}" for name, text in others.items() if text]
        return [scores, *notes] if scores else notes

    def __str__(self):
        level = f"{100 * self.confidence_level:g} %"
        lines = [f"{'':<10}{'value':>8}  {level + ' interval':<18}"]
        for name, estimate, text in self._lines():
            interval = _shown_interval(estimate)
            lines.append(f"{name:<10}{estimate.value:>8.4f}  {interval:<18}  {text}")
        return "\n".join([*lines, *_group_lines(self), *self._notes()])

    def _repr_html_(self):
        """Return the table for notebooks."""
        level = f"{100 * self.confidence_level:g} % interval"
        lines = [
            f"<tr><th>{name}</th><td>{estimate.value:.4f}</td>"
            f"<td>{_shown_interval(estimate)}</td>"
            f'<td style="text-align: left">{escape(text)}</td></tr>'
            for name, estimate, text in self._lines()
        ]
        head = f"<tr><th></th><th>value</th><th>{level}</th><th></th></tr>"
        line = "<br/>".join(map(escape, self._notes()))
        caption = f"<caption>{line}</caption>" if line else ""
        body = ["<tbody>", *lines, "</tbody>"]
        table = ["<table>", caption, f"<thead>{head}</thead>", *body, "</table>"]
        more = _group_lines(self)
        if more:
            table += ["<pre>", *map(escape, more), "</pre>"]
        return "\n".join(table)


def _plain(value):
    """Return a value with estimates as dicts, in which undefined values are None."""
    if isinstance(value, Estimate):
        numbers = value._asdict().items()
        return {k: v if math.isfinite(v) else None for k, v in numbers}
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value


def possible_losses(loss, max_loss=None):
    """Return the values that a loss can take; None: unknown.

    Shapes: loss (n_classes, n_classes).
    """
    check_no_dict(loss)
    if callable(loss) or (isinstance(loss, str) and loss in REGRESSION_LOSSES):
        if max_loss is None:
            return None
        if not 0 < max_loss < math.inf:
            raise ValueError(
                f"max_loss must be positive and finite, got {max_loss!r}; pass the "
                f"largest value that the loss can take."
            )
        return np.array([0.0, max_loss / 2, max_loss])
    if max_loss is not None:
        raise ValueError(
            f"max_loss={max_loss!r} is for a callable loss; that of loss={loss!r} "
            f"is known. Leave it out."
        )
    if isinstance(loss, str):
        return np.array([0.0, 1.0])
    if np.ndim(loss) != 2:
        raise ValueError(
            "loss must be 'zero_one', a callable or a matrix of shape (n_classes, "
            f"n_classes), got an array of shape {np.shape(loss)}."
        )
    return np.unique(np.asarray(loss, dtype=np.float64))


def make_report(
    accepted,
    loss,
    is_ood,
    *,
    confidence_level,
    ood_prior,
    possible,
    weight=None,
    labels=(None, None),
    scores=None,
    certified=(),
    rule=None,
):
    """Return the rates of decisions, with intervals.

    Shapes: accepted (n_samples,), loss (n_id,), is_ood (n_samples,), weight
    (n_samples,), positive, or None. `labels` are groups and sources (n_samples,);
    `scores` and `certified` are attributes of the report, `rule` has its `limits`.
    """
    level, ones = confidence_level, weight is None
    weight = np.ones(len(accepted), dtype=np.int64) if ones else weight
    of_id, of_ood = weight[~is_ood], weight[is_ood]

    # Two or three intervals at equal errors hold simultaneously at the level.
    precision = dict.fromkeys((2, 3), UNDEFINED)
    for n in precision if ood_prior is not None and of_id.size and of_ood.size else ():
        tpr = _fraction(accepted[~is_ood], of_id, 1 - (1 - level) / n)
        fpr = _fraction(accepted[is_ood], of_ood, 1 - (1 - level) / n)
        precision[n] = Estimate(
            precision_at(ood_prior, tpr.value, fpr.value),
            precision_at(ood_prior, tpr.low, fpr.high),
            precision_at(ood_prior, tpr.high, fpr.low),
        )
    taken = accepted[~is_ood]

    def risk(among, confidence_level=level):
        weights = None if ones else of_id[among]
        return _risk(loss[among], weights, possible, confidence_level)

    error_rate, with_ood = UNDEFINED, possible is not None and of_ood.size
    if with_ood and ood_prior is None:
        losses = np.full(len(accepted), possible.max())
        losses[~is_ood] = loss
        weights = None if ones else weight[accepted]
        error_rate = _risk(losses[accepted], weights, possible, level)
    elif with_ood:
        p, r = precision[3], risk(taken, 1 - (1 - level) / 3)
        pairs = zip((p.value, p.high, p.low), r, strict=True)
        error_rate = Estimate(*(a * b + (1 - a) * possible.max() for a, b in pairs))
    tables = _rates_of_labels(accepted, is_ood, labels, level, weight, risk)
    report = RejectionReport(
        tpr=_fraction(taken, of_id, level),
        fpr=_fraction(accepted[is_ood], of_ood, level),
        coverage=_fraction(accepted, weight, level),
        risk=risk(taken),
        precision=precision[2],
        n_id=of_id.sum().item(),
        n_ood=of_ood.sum().item(),
        n_accepted_id=of_id[taken].sum().item(),
        n_accepted_ood=of_ood[accepted[is_ood]].sum().item(),
        confidence_level=level,
        ood_prior=ood_prior,
        scores=scores,
    )
    limits = () if rule is None else tuple(_limits(rule, ood_prior))
    others = {"certified": certified, "limits": limits, "error_rate": error_rate}
    for name, value in {**tables, **others}.items():
        object.__setattr__(report, name, value)  # frozen
    return report


def _limits(rule, ood_prior):
    """Yield rate and bound for each bound of a rule on a single rate."""
    for error_max in rule.error_rates:
        yield "error_rate", error_max
    for a, b, c, d in rule.statements():
        if b > 0 >= a and c == d == 0:
            yield "risk", -a / b
        elif a and b == c == 0:
            yield "tpr", -d / a
        elif c and a == b == 0:
            yield "fpr", -d / c
        elif a < 0 < c and b == d == 0 and ood_prior is not None:
            yield "precision", precision_at(ood_prior, 1.0, -a / c)  # least TPR : FPR


def _fraction(among, weight, confidence_level):
    """Return the fraction of samples with a property, and its interval.

    Whole weights count samples. There is no interval for others: a weighted fraction is
    no count, and an effective number of samples does not make it one.
    """
    hits, total = weight[among].sum(), weight.sum()
    if weight.dtype.kind == "i" or not weight.size:
        return clopper_pearson(int(hits), int(total), confidence_level)
    return Estimate(float(hits / total), math.nan, math.nan)


def _risk(loss, weight, possible, confidence_level):
    """Return the mean loss with its interval."""
    if possible is not None and len(loss) and loss.max() > possible.max():
        raise ValueError(
            f"A loss of {float(loss.max())!r} is above max_loss="
            f"{float(possible.max())!r}. Pass the largest value that the loss can take."
        )
    if weight is None or not len(loss):
        return mean_interval(loss, possible, confidence_level)
    values = np.unique([] if possible is None else possible)
    mean = float(np.average(loss, weights=weight))
    if len(values) == 2:
        fraction = _fraction(loss > values[0], weight, confidence_level)
        ends = (float(values[0] + np.ptp(values) * end) for end in fraction[1:])
        return Estimate(mean, *ends)
    if weight.dtype.kind == "i" and weight.sum() <= _MAX_REPEATED:
        return mean_interval(np.repeat(loss, weight), possible, confidence_level)
    return Estimate(mean, math.nan, math.nan)


# --- groups and sources -------------------------------------------------------------


def _names(labels):
    """Return the distinct labels in their order, numbers first."""
    return sorted(set(labels.tolist()), key=lambda name: (isinstance(name, str), name))


def _rates_of_labels(accepted, is_ood, labels, level, weight, risk):
    """Return the tables of groups and sources of a report, and the gaps.

    ``risk(among, level)`` is an estimate. All intervals hold simultaneously.
    """
    groups, sources = labels
    of_id, of_ood = weight[~is_ood], weight[is_ood]
    taken, leaked = accepted[~is_ood], accepted[is_ood]
    tables: dict = {"groups": None, "sources": None, "gaps": None}
    cells: list = []  # row of a table, rate, estimate at a level

    def add_fraction(row, rate, among, weights):
        cells.append((row, rate, lambda level: _fraction(among, weights, level)))

    if groups is not None:
        tables["groups"] = {}
        group_id, group_ood = groups[~is_ood], groups[is_ood]
        for name in _names(group_id):
            in_group, others = group_id == name, group_ood == name
            row = tables["groups"][name] = {
                "n_id": of_id[in_group].sum().item(),
                "n_ood": of_ood[others].sum().item(),
                "fpr": UNDEFINED,
            }
            add_fraction(row, "tpr", taken[in_group], of_id[in_group])
            if others.any():
                add_fraction(row, "fpr", leaked[others], of_ood[others])
            both = in_group & taken
            cells.append((row, "risk", lambda level, both=both: risk(both, level)))
    if sources is not None:
        tables["sources"] = {}
        for name in _names(sources[is_ood]):
            others = sources[is_ood] == name
            row = tables["sources"][name] = {"n_ood": of_ood[others].sum().item()}
            add_fraction(row, "fpr", leaked[others], of_ood[others])
    for row, rate, estimate in cells:
        row[rate] = estimate(1 - (1 - level) / len(cells))
    if groups is not None:
        every = list(tables["groups"].values())
        tables["gaps"] = {rate: _gap([row[rate] for row in every]) for rate in _RATES}
    return tables


def _gap(estimates):
    """Return the difference of the largest and the smallest of some rates."""
    values = np.array([each for each in estimates if not math.isnan(each.value)])
    if not len(values):
        return UNDEFINED
    (value, low, high), (least, least_low, least_high) = values.max(0), values.min(0)
    ends = np.maximum(0.0, low - least_high), high - least_low  # NaN stays NaN
    return Estimate(float(value - least), *map(float, ends))


def _shown_interval(estimate):
    """Return the interval as text."""
    if math.isnan(estimate.low):
        return "unknown"
    return f"[{estimate.low:.4f}, {estimate.high:.4f}]"


def _certified_texts(report, rate, group=None, source=None):
    """Return the certified bounds of a rate in a group or of a source, as text."""
    label = group, source
    bounds = [bound for bound in report.certified if bound.rate == rate]
    texts = [bound.text for bound in bounds if (bound.group, bound.source) == label]
    return ", ".join(
        text.split(" in group ")[0].split(" for source ")[0] for text in texts
    )


def _shown(estimate):
    if math.isnan(estimate.value):
        return f"{'':<25}"
    return f"{f'{estimate.value:.4f} {_shown_interval(estimate)}':<25}"


def _group_lines(report):
    """Return the tables of groups and sources as lines of text."""
    lines = []
    if report.groups is not None:
        lines.append(
            f"{'group':<12}{'n':>8}  {'tpr':<25}  {'fpr':<25}  {'risk':<25}  certified"
        )
        for name, row in report.groups.items():
            rates = "  ".join(_shown(row[rate]) for rate in _RATES)
            bounds = [
                _certified_texts(report, rate, group=name) for rate in (*_RATES, None)
            ]
            shown = ", ".join(filter(None, bounds))
            lines.append(f"{name!s:<12}{row['n_id']:>8.6g}  {rates}  {shown}".rstrip())
        rates = "  ".join(_shown(report.gaps[rate]) for rate in _RATES)
        lines.append(f"{'gap':<12}{'':>8}  {rates}".rstrip())
    if report.sources is not None:
        lines.append(f"{'source':<12}{'n':>8}  {'fpr':<25}  certified")
        for name, row in report.sources.items():
            bounds = _certified_texts(report, "fpr", source=name)
            shown = f"{name!s:<12}{row['n_ood']:>8.6g}  {_shown(row['fpr'])}  {bounds}"
            lines.append(shown.rstrip())
    return lines
