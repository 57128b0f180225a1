"""Concepts of a detector: their classifiers, labels and values."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Bunch
from sklearn.utils.multiclass import type_of_target

from skood.logic.language._domains import check_domains
from skood.logic.language._encoding import is_frame
from skood.nn import _shared_forward
from skood.nn._shared_forward import shared_blocks, shared_outputs, uses_network
from skood.utils._labels import (
    check_label_rows,
    check_labels,
    id_rows,
    label_codes,
    ood_mask,
    plain_labels,
    single_column,
)
from skood.utils._metaestimators import check_one_column, n_rows, take_rows
from skood.utils._named_estimators import missing_methods
from skood.utils._stored import stored

# Longer lists of classes are shortened in errors.
_MAX_SHOWN = 200


@stored
class ConceptPart(NamedTuple):
    """A classifier and its concepts; `is_given`: it is in the parameter `concepts`."""

    name: str
    concepts: tuple
    classifier: Any
    is_given: bool = True


def part_name(key):
    """Return the name of the parameter of a concept, or of a tuple of concepts."""
    return key if isinstance(key, str) else "_".join(key)


def is_key(key):
    """Return whether an object is the name of a concept, or a tuple of names."""
    if isinstance(key, (tuple, list)):
        return len(key) > 0 and all(isinstance(name, str) for name in key)
    return isinstance(key, str)


def check_parts(pairs, owner):
    """Return a ConceptPart for each (name, classifier) pair of `owner`, or raise."""
    if not isinstance(pairs, (list, tuple)) or not all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 and is_key(pair[0])
        for pair in pairs
    ):
        raise TypeError(
            f"concepts must be a list of (name, classifier), got {pairs!r}. Write "
            "concepts=[('shape', LogisticRegression()), (('class', 'color'), net)], "
            "where net has two outputs."
        )
    if not pairs:
        raise ValueError(
            "concepts=[] has no classifier. Give at least one (name, classifier)."
        )
    parts = [
        ConceptPart(part_name(key), (key,) if isinstance(key, str) else tuple(key), one)
        for key, one in pairs
    ]
    own = set(BaseEstimator.get_params(owner, deep=False))
    concepts = [concept for part in parts for concept in part.concepts]
    names = list(dict.fromkeys([part.name for part in parts] + concepts))
    bad = [name for name in names if not name or "__" in name or name in own]
    if bad:
        raise ValueError(
            "Names in concepts must not be empty, contain '__' or be a parameter of "
            f"{type(owner).__name__}, got {bad}. Rename them."
        )
    several = [part.name for part in parts if len(part.concepts) > 1]
    twice = sorted(
        {name for name in concepts + several if (concepts + several).count(name) > 1}
    )
    if twice:
        raise ValueError(f"Names in concepts must be distinct, got twice: {twice}.")
    for part in parts:
        lacking = missing_methods(part.classifier, ("fit", "predict"))
        if lacking or isinstance(part.classifier, type):
            raise TypeError(
                f"{part.name!r} in concepts must be a classifier with fit and predict, "
                f"got {part.classifier!r}"
                + (f" without {', '.join(lacking)}." if lacking else ": a class.")
            )
    return parts


def label_columns(y, concepts, ood_label):
    """Return the labels of each concept, and a mask of the ID samples, see ``fit``."""
    if is_frame(y):
        missing = [name for name in concepts if name not in list(y.columns)]
        if missing:
            raise ValueError(
                f"y has no column for the concepts {missing}; its columns are "
                f"{[str(column) for column in y.columns]}. Name the columns as in "
                "concepts."
            )
        columns = [
            check_labels(np.asarray(y[name]), f"y[{name!r}]") for name in concepts
        ]
    else:
        table = check_label_rows(single_column(y))
        columns = [table] if table.ndim == 1 else list(table.T)
        if len(columns) != len(concepts):
            raise ValueError(
                f"y must have a column of labels for each of the {len(concepts)} "
                f"concepts {concepts}, in this order, or be a data frame with columns "
                f"of these names. Got {len(columns)} column(s)."
            )
    table = np.stack([column.astype(object) for column in columns], axis=1)
    return columns, id_rows(table if len(columns) > 1 else columns[0], ood_label)


def _known_values(part):
    """Return the classes of a frozen classifier, a list for each concept, or None."""
    if not isinstance(part.classifier, FrozenEstimator):
        return None
    classes = getattr(part.classifier, "classes_", None)
    if classes is None:
        return None
    n_concepts = len(part.concepts)
    if n_concepts == 1:
        check_one_column(part.classifier)
        return [np.asarray(classes)]
    if len(classes) != n_concepts or any(np.ndim(one) != 1 for one in classes):
        raise ValueError(
            f"The classifier of the concepts {list(part.concepts)} is frozen, and its "
            f"classes_ are not {n_concepts} arrays, one for each of them: "
            f"{_shown(classes)}. Name the columns of y that it was fitted on."
        )
    return [np.asarray(one) for one in classes]


def _shown(classes):
    """Return classes for an error message, shortened."""
    text = repr(classes)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _in_order(values):
    """Return distinct labels, sorted if possible; whole numbers as integers."""
    if all(isinstance(value, float) and value.is_integer() for value in values):
        values = [int(value) for value in values]
    values = list(dict.fromkeys(values))
    try:
        return sorted(values)
    except TypeError:  # numbers and strings
        return values


def concept_domains(parts, columns, given, ood_label):
    """Return the values of each concept: all, and the ones to be learned.

    `columns` are labels of ID samples by concept, if any; `given` the given domains.
    """
    given = {} if given is None else given
    concepts = [concept for part in parts for concept in part.concepts]
    unknown = [name for name in given if name not in concepts]
    if unknown:
        raise ValueError(
            f"domains names {unknown}, which are not among the concepts {concepts}."
        )
    domains, observed = {}, {}
    for part in parts:
        known = _known_values(part)
        for j, name in enumerate(part.concepts):
            found = [] if known is None else known[j].tolist()
            if name in columns:
                found += list(dict.fromkeys(columns[name].tolist()))
            if not found and name not in given:
                raise ValueError(
                    f"The values of the concept {name!r} are unknown: its classifier "
                    "is frozen and has no classes_. Give them in domains, or labels "
                    "in y."
                )
            if ood_mask(np.array(found, dtype=object), ood_label=ood_label).any():
                raise ValueError(
                    f"ood_label={ood_label!r} is a value of the concept {name!r}, so "
                    "that samples with this value would count as OOD. Pass another "
                    "ood_label."
                )
            observed[name] = _in_order(found)
            domains[name] = _with_given(name, observed[name], given)
    return domains, observed


def _with_given(name, observed, given):
    """Values of a concept: those given, which must comprise those observed."""
    if name not in given:
        return observed
    values = check_domains({name: given[name]})[name]
    lacking = [value for value in observed if value not in values]
    if lacking:
        raise ValueError(
            f"domains[{name!r}]={values} lacks {lacking}, which the labels or the "
            "classifier of the concept have. Add them."
        )
    return values


def part_labels(part, columns, rows):
    """Return what a classifier is fitted on: one column, or one for each concept."""
    chosen = [plain_labels(columns[name][rows]) for name in part.concepts]
    for name, labels in zip(part.concepts, chosen, strict=True):
        if type_of_target(labels).startswith("continuous"):
            raise ValueError(
                f"Unknown label type: continuous. The labels of the concept {name!r} "
                "must be classes."
            )
    if len(chosen) == 1:
        return chosen[0]
    table = np.stack(
        chosen
        if len({one.dtype.kind for one in chosen}) == 1
        else [one.astype(object) for one in chosen],
        axis=1,
    )
    return table


def predict_proba(part, X, domains):
    """Return probabilities, (n_samples, n_values), for each concept of a part."""
    if not hasattr(part.classifier, "predict_proba"):
        raise TypeError(
            f"The probabilities of the concept {part.name!r} are needed (by "
            "detector='confidence', marginalize=True or concept_proba), but its "
            f"classifier {part.classifier!r} has no predict_proba. Use another one, or "
            "wrap it in sklearn.calibration.CalibratedClassifierCV."
        )
    found = _shared_forward.predict_proba(part.classifier, X)
    classes = part.classifier.classes_
    if len(part.concepts) == 1:
        found, classes = [found], [classes]
    elif not isinstance(found, (list, tuple)):
        raise TypeError(
            f"The classifier of the concepts {list(part.concepts)} gives an array of "
            f"shape {np.shape(found)} as their probabilities, and not a list of "
            "arrays, one for each of them. Use another one, or a classifier for each "
            "concept."
        )
    spread = []
    for name, proba, known in zip(part.concepts, found, classes, strict=True):
        codes = _codes(np.asarray(known), name, domains)
        full = np.zeros((len(proba), len(domains[name])))
        full[:, codes] = proba
        spread.append(full)
    return spread


def predict_codes(part, X, domains):
    """Return the codes of the predicted values, (n_samples,), for each concept."""
    labels = np.asarray(_shared_forward.predict(part.classifier, X))
    if len(part.concepts) == 1:
        labels = labels.reshape(-1, 1)
    if labels.ndim != 2 or labels.shape[1] != len(part.concepts):
        raise ValueError(
            f"The classifier of the concepts {list(part.concepts)} predicts an array "
            f"of shape {labels.shape}, not one column for each of them."
        )
    return [
        _codes(column, name, domains)
        for name, column in zip(part.concepts, labels.T, strict=True)
    ]


def _codes(labels, name, domains):
    """Codes of labels, or an error that names the first that is unknown."""
    codes = label_codes(labels, np.array(domains[name], dtype=object))
    if (codes < 0).any():
        raise ValueError(
            f"The classifier of the concept {name!r} predicts "
            f"{labels[codes < 0][:1].tolist()[0]!r}, which is not among the concept's "
            f"values {domains[name]}. Add it to domains."
        )
    return codes


def some_rows(X, rows):
    """Return samples by index; the same object if these are all samples in order."""
    if np.array_equal(rows, np.arange(n_rows(X))):
        return X
    return take_rows(X, rows)


def fit_one(name, estimator, X, y):
    """Fit a clone; errors contain the name of the estimator."""
    fitted = clone(estimator)
    try:
        if y is not None:
            return fitted.fit(X, y)
        return fitted if isinstance(fitted, FrozenEstimator) else fitted.fit(X)
    except Exception as error:
        error.add_note(f"This happened in fitting {name!r}.")
        if getattr(y, "ndim", 1) == 2 and y.dtype == object:
            error.add_note(
                "The labels of its concepts are of different kinds, which many "
                "classifiers with several outputs cannot learn. Give them in one kind, "
                "such as text, or a classifier to each concept."
            )
        raise


def read_samples(parts, detector, X, domains, needs_proba):
    """Return a Bunch of codes (n_samples, n_concepts), a list of probabilities
    (n_samples, n_values), if needed, and outlier scores (n_samples,), if any.
    """
    networks = [
        part.classifier
        for part in parts
        if isinstance(part.classifier, FrozenEstimator)
        and uses_network(part.classifier)
    ]
    if not networks or not hasattr(detector, "score_samples"):
        return _outputs(parts, detector, X, domains, needs_proba)
    # a frozen network that a concept shares with the detector is run once
    with shared_outputs([detector], networks):
        blocks = [
            _outputs(parts, detector, block, domains, needs_proba)
            for block in shared_blocks(X)
        ]
    proba = None
    if needs_proba:
        columns = zip(*(block.proba for block in blocks), strict=True)
        proba = [np.concatenate(column) for column in columns]
    return Bunch(
        codes=np.concatenate([block.codes for block in blocks]),
        proba=proba,
        outlier=np.concatenate([block.outlier for block in blocks]),
    )


def _outputs(parts, detector, X, domains, needs_proba):
    """Return the outputs for a block of samples, see `read_samples`."""
    codes: list = []
    proba: list = []
    confidence: list = []
    for part in parts:
        found = predict_proba(part, X, domains) if needs_proba else []
        proba += found
        confidence += [p.max(axis=1) for p in found if part.is_given]
        if found and uses_network(part.classifier):
            codes += [np.argmax(p, axis=1) for p in found]  # a network runs once
        else:
            codes += predict_codes(part, X, domains)
    outlier = None
    if isinstance(detector, str):
        outlier = -np.mean(confidence, axis=0)
    elif detector is not None:
        outlier = _outlier_scores(detector, X)
    return Bunch(
        codes=np.stack(codes, axis=1),
        proba=proba if needs_proba else None,
        outlier=outlier,
    )


def _outlier_scores(detector, X):
    """Return minus the scores of a detector, of shape (n_samples,), without NaN."""
    scores = np.asarray(detector.score_samples(X), dtype=np.float64)
    if scores.shape != (n_rows(X),):
        raise ValueError(
            f"The detector gave scores of shape {scores.shape} for {n_rows(X)} "
            "samples: score_samples must return one score per sample."
        )
    if np.isnan(scores).any():
        raise ValueError(
            f"The detector gave NaN as the score of {int(np.isnan(scores).sum())} of "
            f"{len(scores)} samples: its features or logits overflow. Scale X, or look "
            "at the outputs of its classifier."
        )
    return -scores
