"""Sentences on the decisions of a selective predictor."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from sklearn.utils import Bunch

from skood.detectors import column_contributions, has_contributions
from skood.rejection._rejection_explanation import RejectionExplanation
from skood.utils._labels import single_column
from skood.utils._metaestimators import unwrap, unwrapped

# Columns with less than this share of the largest contribution are not mentioned.
_LEAST_SHARE = 0.1


def explain_decisions(clf, X, n_columns, groups=None):
    """Return the `RejectionExplanation` of the decisions of a fitted predictor."""
    reasons = clf.reject_reason(X, groups)
    n_samples = len(reasons.reason)
    risk_detector = clf.risk_detector_
    regression = not hasattr(clf, "classes_")
    if hasattr(risk_detector, "_described"):  # a score of the estimator itself
        risk_detector = None
    detectors = {"ood": clf.ood_detector_, "risk": risk_detector}
    found = {
        name: _details(detector, X, n_samples, n_columns, regression)
        for name, detector in detectors.items()
        if detector is not None
    }
    predicted = np.asarray(single_column(clf.estimator_.predict(X)))
    probabilities = None
    if hasattr(clf, "predict_proba"):
        probabilities = clf.predict_proba(X)
    sentences = []
    for i, reason in enumerate(reasons.reason):
        if reason == "out-of-distribution":
            why = _why("ood", found, detectors, reasons, i)
            sentences.append(f"rejected as out-of-distribution{why}")
            continue
        if reason == "unknown group":
            sentences.append("rejected: the rule has no threshold for the group")
            continue
        likely = [None]
        if not regression:
            likely = [_probability(clf.classes_, probabilities, i, reason)]
        if reason == "accepted":
            shown = _value if regression else _label
            sentence = f"accepted as {shown(predicted[i])}"
            sentences.append(sentence + "".join(f" with {p}" for p in likely if p))
            continue
        why = ""
        if risk_detector is not None or not likely[0]:
            why = _why("risk", found, detectors, reasons, i)
        end = "".join(f"; {p}" if why else f": {p}" for p in likely if p)
        kind = "uncertain" if regression else "likely misclassified"
        sentences.append(f"rejected as {kind}{why}{end}")
    tables = [one for one in found.values() if "contributions" in one]
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


def _probability(classes, probabilities, i, reason):
    """Return a phrase for the probabilities of the likeliest classes, or None."""
    if probabilities is None:
        return None
    order = np.argsort(-probabilities[i], kind="stable")[:2]
    first, *others = [(f"{probabilities[i, k]:.2f}", _label(classes[k])) for k in order]
    if reason == "accepted" or not others:
        return f"probability {first[0]}"
    (second,) = others
    return f"probability {first[0]} of {first[1]} against {second[0]} of {second[1]}"


def _why(name, found, detectors, reasons, i):
    """Return the end of a sentence on the score of one detector."""
    if name in found and found[name].get("phrases") is not None:
        return found[name]["phrases"][i]
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
    rows = detector.explain(X)
    names = list(detector.knowledge_base_.names)
    parts = np.array([[row.contributions[name] for name in names] for row in rows])
    unknown = np.full(parts.shape, np.nan)
    return Bunch(
        phrases=[f": {row.sentence}" for row in rows],
        columns=np.array(names, dtype=object),
        contributions=parts,
        observed=unknown,
        references=unknown,
        deviations=unknown,
    )


def _far(result, i, n_columns):
    """Return a phrase about the columns in which a sample is far from others."""
    parts = result.contributions[i]
    least = _LEAST_SHARE * parts.max(initial=0.0)
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
