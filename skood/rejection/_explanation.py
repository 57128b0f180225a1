"""Explanations of decisions: reasons, sentences, and tables of columns."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass
from html import escape
from typing import NamedTuple

import numpy as np
from sklearn.utils import Bunch

from skood.decision._operating_point import of_groups, weights
from skood.utils._metaestimators import labels_before_rejection, unwrap, unwrapped
from skood.utils._optional import import_pandas
from skood.utils._stored import stored

# A notebook shows at most this many samples.
_MAX_SHOWN = 50

# Columns with less than this fraction of the largest contribution are not mentioned.
_LEAST_FRACTION = 0.1


@stored
class ScoreReference(NamedTuple):
    """Scores of the calibration ID samples, to which new scores are compared.

    `risk` and `ood` (None for a single score) are sorted, of shape (n_id,); `typical`,
    of shape (2,), has the mean terms of the rule over accepted samples (or over all);
    for thresholds of groups it is a dict of them.
    `risk_below` and `ood_below`, of shape (n_id + 1,), are the weights of the samples
    before each position; None for equal weights.
    """

    risk: np.ndarray
    ood: np.ndarray | None
    typical: np.ndarray | dict
    risk_below: np.ndarray | None = None
    ood_below: np.ndarray | None = None

    @classmethod
    def of(cls, point, risk, ood, weight=None, groups=None):
        """Return the reference of calibration ID samples; scores are (n_id,)."""
        terms = _terms(point, risk, ood)
        accepted = point.accept_proba(risk, ood, groups=groups) > 0
        if point.has_group_thresholds:
            typical: dict | np.ndarray = {
                name: _typical(terms, accepted, weight, groups == name)
                for name in np.unique(groups).tolist()
            }
        else:
            typical = _typical(terms, accepted, weight, np.ones_like(accepted))
        ood_ranked = None if ood is None else np.sort(ood)
        below = None if weight is None else (_below(risk, weight), _below(ood, weight))
        return cls(np.sort(risk), ood_ranked, typical, *(below or (None, None)))

    def explain(
        self, point, risk, ood, accepted=None, uncertain="uncertain class", groups=None
    ):
        """Return the Bunch of ``RejectOptionClassifier.reject_reason``.

        `risk`, `ood` (or None) and `accepted` have shape (n_samples,). Without
        `accepted`, all samples that may be accepted are. `uncertain` is the reason for
        a high risk, and `groups` are for thresholds of groups.
        """
        if accepted is None:
            accepted = point.accept_proba(risk, ood, groups=groups) > 0
        is_known = np.ones(len(accepted), dtype=bool)
        if point.has_group_thresholds:
            is_known = np.array(
                [name in point.lam for name in groups.tolist()], dtype=bool
            )
        with np.errstate(invalid="ignore"):
            if point.has_two_thresholds and point.theta == 0:
                limits = point.lam, point.ood_max
                risk_max, ood_max = (of_groups(limit, groups) for limit in limits)
                c_a, c_b = point.scales
                excess = np.stack([risk / c_a - risk_max, ood / c_b - ood_max / c_b])
                is_known &= np.broadcast_to(risk_max > -np.inf, is_known.shape)
                excess = np.where(is_known, np.maximum(excess, 0.0), 0.0)
            else:
                typical = self.typical
                if isinstance(typical, dict):
                    unknown = np.zeros(2)
                    means = [typical.get(name, unknown) for name in groups.tolist()]
                    typical = np.reshape(means, (-1, 2)).T
                else:
                    typical = typical[:, None]
                excess = _terms(point, risk, ood) - typical
                if point.has_two_thresholds:
                    excess[:, ood > point.ood_max] = [[0.0], [1.0]]
        excess[np.isnan(excess)] = 0.0  # infinite, as are accepted scores
        infinite = np.isposinf([risk, np.zeros_like(risk) if ood is None else ood])
        excess = np.where(infinite.any(axis=0), infinite, excess)
        # A rejected sample is above lam, the mean accepted one is not: positive up to
        # rounding.
        tiny = np.finfo(np.float64).tiny
        total = np.where(accepted, 1.0, np.maximum(excess.sum(axis=0), tiny))
        ood_fraction = np.where(accepted, 0.0, np.clip(excess[1] / total, 0, 1))
        reasons = np.where(ood_fraction > 0.5, "out-of-distribution", uncertain)
        reasons = np.where(is_known, reasons, "unknown group")
        counts = is_known & ~accepted
        return Bunch(
            reason=np.where(accepted, "accepted", reasons),
            risk_percentile=_percentile(self.risk, risk, self.risk_below),
            ood_percentile=(
                None if ood is None else _percentile(self.ood, ood, self.ood_below)
            ),
            risk_fraction=np.where(counts, 1.0 - ood_fraction, 0.0),
            ood_fraction=np.where(counts, ood_fraction, 0.0),
        )


def _terms(point, risk, ood):
    """Return the two terms whose sum the rule compares with lam, shape (2, n)."""
    (w_a, w_b), (c_a, c_b) = weights(point.theta), point.scales
    first = w_a * risk / c_a if w_a else np.zeros_like(risk)
    second = np.zeros_like(first) if ood is None or not w_b else w_b * ood / c_b
    return np.stack([first, second])


def _typical(terms, accepted, weight, among):
    """Return the mean terms over accepted samples among some, shape (2,)."""
    used = accepted & among
    used = used if used.any() else among
    finite = used & np.isfinite(terms).all(axis=0)
    # No finite scores: the threshold is infinite, and so is any excess over it.
    used = finite if finite.any() else used
    of_used = None if weight is None else weight[used]
    return np.average(terms[:, used], axis=1, weights=of_used)


def _below(score, weight):
    """Return the weights of the samples before each position in ascending order."""
    if score is None:
        return None
    return np.append(0, np.cumsum(weight[np.argsort(score)]))


def _percentile(reference, values, below):
    """Return the percentage of the sorted `reference` not larger than each value."""
    positions = np.searchsorted(reference, values, side="right")
    if below is None:
        return 100.0 * positions / len(reference)
    return 100.0 * below[positions] / below[-1]


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
        columns = {
            "value": self.observed,
            "reference": self.references,
            "deviation": self.deviations,
            "contribution": self.contributions,
        }
        return pd.DataFrame(
            {name: values[i][order] for name, values in columns.items()},
            index=pd.Index(self.columns[order], name="column"),
        )

    def _repr_html_(self):
        """Return a table of the sentences for notebooks."""
        cells = zip(self.index, self.reason, self.sentences, strict=True)
        left = 'style="text-align: left"'  # notebooks align cells to the right
        lines = [
            "".join(f"<td {left}>{escape(str(cell))}</td>" for cell in row)
            for row in list(cells)[:_MAX_SHOWN]
        ]
        lines = [f"<tr>{row}</tr>" for row in lines]
        names = ("sample", "reason", "explanation")
        head = "".join(f"<th {left}>{name}</th>" for name in names)
        head = f"<tr>{head}</tr>"
        hidden = len(self) - len(lines)
        note = f"<caption>and {hidden} more samples</caption>" if hidden else ""
        body = ["<tbody>", *lines, "</tbody>"]
        return "\n".join(["<table>", note, f"<thead>{head}</thead>", *body, "</table>"])


def explain_decisions(clf, X, n_columns, groups=None, table=None):
    """Return the `RejectionExplanation` of the decisions of a fitted predictor.

    `table` is the `LossTable` of a classifier, or None.
    """
    reasons = clf.reject_reason(X, groups)
    n_samples = len(reasons.reason)
    risk_detector = clf.risk_detector_
    regression = not hasattr(clf, "classes_")
    if hasattr(risk_detector, "_described"):  # a score of the estimator itself
        risk_detector = None
    detectors = {"ood": clf.ood_detector_, "risk": risk_detector}
    details = {
        name: _details(detector, X, n_samples, n_columns, regression)
        for name, detector in detectors.items()
        if detector is not None
    }
    predicted = np.asarray(labels_before_rejection(clf)(X))
    name, classes, values = "probability", getattr(clf, "classes_", None), None
    if table is not None and table.decides:
        name, classes = "expected loss", np.asarray(clf.estimator_.classes_)
        values = -table.risks(clf.estimator_.predict_proba(X), classes)
    elif hasattr(clf, "predict_proba"):
        values = clf.predict_proba(X)
    sentences = []
    for i, reason in enumerate(reasons.reason):
        if reason == "out-of-distribution":
            why = _why("ood", details, detectors, reasons, i)
            sentences.append(f"rejected as out-of-distribution{why}")
            continue
        if reason == "unknown group":
            sentences.append("rejected: the rule has no threshold for the group")
            continue
        likely = _likeliest(name, classes, values, i, reason)
        if reason == "accepted":
            shown = _value if regression else _label
            end = f" with {likely}" if likely else ""
            sentences.append(f"accepted as {shown(predicted[i])}{end}")
            continue
        why = end = ""
        if risk_detector is not None or not likely:
            why = _why("risk", details, detectors, reasons, i)
        if likely:
            end = f"; {likely}" if why else f": {likely}"
        is_likely = name == "probability" and not regression
        kind = "likely misclassified" if is_likely else "uncertain"
        sentences.append(f"rejected as {kind}{why}{end}")
    tables = [each for each in details.values() if "contributions" in each]
    table = tables[0] if tables else _empty(n_samples)
    names = ("columns", "contributions", "observed", "references", "deviations")
    return RejectionExplanation(
        sentences=sentences,
        reason=reasons.reason,
        prediction=predicted,
        **{name: table[name] for name in names},
        index=list(X.index) if hasattr(X, "iloc") else list(range(n_samples)),
    )


def _empty(n_samples):
    """Return a table without columns."""
    names = ("contributions", "observed", "references", "deviations")
    none = np.empty((n_samples, 0))
    return {"columns": np.empty(0, object), **dict.fromkeys(names, none)}


def _likeliest(name, classes, values, i, reason):
    """Return a phrase for the best classes, of the largest values, or None."""
    if values is None:
        return None
    order = np.argsort(-values[i], kind="stable")[:2]
    first, *others = [(f"{abs(values[i, k]):.2f}", _label(classes[k])) for k in order]
    if reason == "accepted" or not others:
        return f"{name} {first[0]}"
    (second,) = others
    return f"{name} {first[0]} of {first[1]} against {second[0]} of {second[1]}"


def _why(name, details, detectors, reasons, i):
    """Return the end of a sentence on the score of one detector."""
    if name in details and details[name].get("phrases") is not None:
        return details[name]["phrases"][i]
    percentile = reasons[f"{name}_percentile"][i]
    than = "all" if percentile == 100 else f"{percentile:.3g} % of"
    detector = detectors[name]
    if detector is None:
        return f": the risk score is higher than for {than} calibration samples"
    owner = type(_last(detector)).__name__
    return f": the score of {owner} is lower than for {than} calibration samples"


def _last(detector):
    """Return the last step of a detector in frozen estimators and pipelines."""
    return unwrap(unwrapped(detector))[0]


def _details(detector, X, n_samples, n_columns, regression):
    """Return contributions of columns, if there are any, and phrases about samples."""
    from skood.detectors import column_contributions, has_contributions

    final = _last(detector)
    if hasattr(final, "knowledge_base_"):
        return _violations(*unwrap(unwrapped(detector), X))
    if hasattr(final, "selected_detectors"):
        return {"phrases": _members(*unwrap(unwrapped(detector), X))}
    if not has_contributions(detector):
        return {}
    result = column_contributions(detector, X)
    if regression and result.reference_name == "class mean":
        # all samples are one class
        result = Bunch(**{**result, "reference_name": "training mean"})
    phrases = [_far(result, i, n_columns) for i in range(n_samples)]
    return {**result, "phrases": phrases}


def _members(ensemble, X):
    """Return phrases about the members of an ensemble that reject samples."""
    names = list(ensemble.named_detectors_)
    selected, pvalues = ensemble.selected_detectors(X), ensemble.pvalues(X)
    phrases = []
    for chosen, values in zip(selected, pvalues, strict=True):
        order = np.argsort(values, kind="stable")
        members = [f"{names[j]} (p = {values[j]:.2g})" for j in order if chosen[j]]
        if members:
            phrases.append(
                f" by {len(members)} of {len(names)} detectors: {', '.join(members)}"
            )
        else:
            least = order[0]
            phrases.append(
                f": no detector rejects it alone; {names[least]} has the smallest "
                f"p-value, {values[least]:.2g}"
            )
    return phrases


def _violations(detector, X):
    """Return contributions of constraints, and phrases about violated ones."""
    explanations = detector.explain(X)
    names = list(detector.knowledge_base_.names)
    terms = [[each.contributions[name] for name in names] for each in explanations]
    contributions = np.array(terms)
    unknown = np.full(contributions.shape, np.nan)
    return {
        "phrases": [f": {each.sentence}" for each in explanations],
        "columns": np.array(names, dtype=object),
        "contributions": contributions,
        **dict.fromkeys(("observed", "references", "deviations"), unknown),
    }


def _far(result, i, n_columns):
    """Return a phrase about the columns in which a sample is far from others."""
    parts = result.contributions[i]
    least = _LEAST_FRACTION * parts.max(initial=0.0)
    largest = np.argsort(-parts, kind="stable")[:n_columns]
    order = [j for j in largest if parts[j] > 0 and parts[j] >= least]
    if not order:
        return ""
    phrases = [_column(result, i, j, j == order[0]) for j in order]
    return f": {'; '.join(phrases)}"


def _column(result, i, j, is_first):
    """Return a phrase about one column of one sample."""
    name, reference = result.columns[j], result.references[i, j]
    if result.is_mixture[j]:
        name = f"{name} (a mixture of columns)"
    phrase = f"{name} {_value(result.observed[i, j])}"
    kind, deviation = result.reference_name, result.deviations[i, j]
    number = f" {_value(reference)}" if np.isfinite(reference) else ""
    if kind in ("class mean", "training mean", "mean") and np.isfinite(deviation):
        side = "above" if deviation > 0 else "below"
        phrase += f", {abs(deviation):.1f} sd {side} the mean{number}"
        if is_first and kind == "class mean":
            label = result.nearest_class
            shown = "" if label is None else f" {_plain(label[i])!r}"
            phrase += f" of the nearest class{shown}"
        elif is_first and kind == "training mean":
            phrase += " of the training samples"
    elif number and kind == "neighbor":
        phrase += f" instead of{number}"
        phrase += " in a near training sample" if is_first else ""
    elif number and kind == "other columns":
        phrase += f" instead of{number}"
        phrase += ", which follows from the other columns" if is_first else ""
    return phrase


def _label(label):
    """Return a class for a sentence: strings in quotes, numbers as they are."""
    label = _plain(label)
    return repr(label) if isinstance(label, str) else f"class {label}"


def _plain(value):
    """Return a scalar of NumPy as an object of Python."""
    return value.item() if hasattr(value, "item") else value


def _value(value):
    """Return a value for people: large numbers with commas, others rounded."""
    value = _plain(value)
    is_na = type(value).__name__ == "NAType"  # pandas' NA, which cannot be compared
    if value is None or is_na or value != value:  # NaN and NaT
        return "missing"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return repr(value) if isinstance(value, str) else str(value)
    is_whole = abs(value) >= 100 or isinstance(value, int)
    return f"{value:,.0f}" if is_whole and abs(value) < 1e15 else f"{value:.3g}"
