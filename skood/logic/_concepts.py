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
    check_id_mask,
    check_label_columns,
    check_labels,
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
class ConceptSource(NamedTuple):
    """A classifier and its concepts; `is_input`: it is in the parameter `concepts`."""

    name: str
    concepts: tuple
    classifier: Any
    is_input: bool = True


def source_name(key):
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
    sources = [
        ConceptSource(
            source_name(key), (key,) if isinstance(key, str) else tuple(key), classifier
        )
        for key, classifier in pairs
    ]
    reserved = set(BaseEstimator.get_params(owner, deep=False))
    concepts = [concept for source in sources for concept in source.concepts]
    names = list(dict.fromkeys([source.name for source in sources] + concepts))
    bad = [name for name in names if not name or "__" in name or name in reserved]
    if bad:
        raise ValueError(
            "Names in concepts must not be empty, contain '__' or be a parameter of "
            f"{type(owner).__name__}, got {bad}. Rename them."
        )
    several = [source.name for source in sources if len(source.concepts) > 1]
    twice = sorted(
        {name for name in concepts + several if (concepts + several).count(name) > 1}
    )
    if twice:
        raise ValueError(f"Names in concepts must be distinct, got twice: {twice}.")
    for source in sources:
        lacking = missing_methods(source.classifier, ("fit", "predict"))
        if lacking or isinstance(source.classifier, type):
            raise TypeError(
                f"{source.name!r} in concepts must be a classifier with fit and "
                f"predict, got {source.classifier!r}"
                + (f" without {', '.join(lacking)}." if lacking else ": a class.")
            )
    return sources


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
        table = check_label_columns(single_column(y))
        columns = [table] if table.ndim == 1 else list(table.T)
        if len(columns) != len(concepts):
            raise ValueError(
                f"y must have a column of labels for each of the {len(concepts)} "
                f"concepts {concepts}, in this order, or be a data frame with columns "
                f"of these names. Got {len(columns)} column(s)."
            )
    table = np.stack([column.astype(object) for column in columns], axis=1)
    return columns, check_id_mask(table if len(columns) > 1 else columns[0], ood_label)


def _known_values(source):
    """Return the classes of a frozen classifier, a list for each concept, or None."""
    if not isinstance(source.classifier, FrozenEstimator):
        return None
    classes = getattr(source.classifier, "classes_", None)
    if classes is None:
        return None
    n_concepts = len(source.concepts)
    if n_concepts == 1:
        check_one_column(source.classifier)
        return [np.asarray(classes)]
    if len(classes) != n_concepts or any(np.ndim(values) != 1 for values in classes):
        text = repr(classes)
        shown = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
        raise ValueError(
            f"The classifier of the concepts {list(source.concepts)} is frozen, and "
            f"its classes_ are not {n_concepts} arrays, one for each of them: "
            f"{shown}. Name the columns of y that it was fitted on."
        )
    return [np.asarray(values) for values in classes]


def _in_order(values):
    """Return distinct labels, sorted if possible; whole numbers as integers."""
    if all(isinstance(value, float) and value.is_integer() for value in values):
        values = [int(value) for value in values]
    values = list(dict.fromkeys(values))
    try:
        return sorted(values)
    except TypeError:  # numbers and strings
        return values


def concept_domains(sources, columns, user_domains, ood_label):
    """Return the values of each concept: all, and the ones to be learned.

    `columns` are labels of ID samples by concept, if any; `user_domains` their domains.
    """
    user_domains = {} if user_domains is None else user_domains
    concepts = [concept for source in sources for concept in source.concepts]
    unknown = [name for name in user_domains if name not in concepts]
    if unknown:
        raise ValueError(
            f"domains names {unknown}, which are not among the concepts {concepts}."
        )
    domains, observed = {}, {}
    for source in sources:
        known = _known_values(source)
        for j, name in enumerate(source.concepts):
            values = [] if known is None else known[j].tolist()
            if name in columns:
                values += list(dict.fromkeys(columns[name].tolist()))
            if not values and name not in user_domains:
                raise ValueError(
                    f"The values of the concept {name!r} are unknown: its classifier "
                    "is frozen and has no classes_. Give them in domains, or labels "
                    "in y."
                )
            if ood_mask(np.array(values, dtype=object), ood_label=ood_label).any():
                raise ValueError(
                    f"ood_label={ood_label!r} is a value of the concept {name!r}, so "
                    "that samples with this value would count as OOD. Pass another "
                    "ood_label."
                )
            observed[name] = _in_order(values)
            domains[name] = _values_of(name, observed[name], user_domains)
    return domains, observed


def _values_of(name, observed, user_domains):
    """Values of a concept: those given, which must comprise those observed."""
    if name not in user_domains:
        return observed
    values = check_domains({name: user_domains[name]})[name]
    lacking = [value for value in observed if value not in values]
    if lacking:
        raise ValueError(
            f"domains[{name!r}]={values} lacks {lacking}, which the labels or the "
            "classifier of the concept have. Add them."
        )
    return values


def source_labels(source, columns, indices):
    """Return what a classifier is fitted on: one column, or one for each concept."""
    chosen = [plain_labels(columns[name][indices]) for name in source.concepts]
    for name, labels in zip(source.concepts, chosen, strict=True):
        if type_of_target(labels).startswith("continuous"):
            raise ValueError(
                f"Unknown label type: continuous. The labels of the concept {name!r} "
                "must be classes."
            )
    if len(chosen) == 1:
        return chosen[0]
    table = np.stack(
        chosen
        if len({column.dtype.kind for column in chosen}) == 1
        else [column.astype(object) for column in chosen],
        axis=1,
    )
    return table


def predict_proba(source, X, domains):
    """Return probabilities, (n_samples, n_values), for each concept of a part."""
    if not hasattr(source.classifier, "predict_proba"):
        raise TypeError(
            f"The probabilities of the concept {source.name!r} are needed (by "
            "detector='confidence', marginalize=True or concept_proba), but its "
            f"classifier {source.classifier!r} has no predict_proba. Use another one, "
            "or wrap it in sklearn.calibration.CalibratedClassifierCV."
        )
    predicted = _shared_forward.predict_proba(source.classifier, X)
    classes = source.classifier.classes_
    if len(source.concepts) == 1:
        predicted, classes = [predicted], [classes]
    elif not isinstance(predicted, (list, tuple)):
        raise TypeError(
            f"The classifier of the concepts {list(source.concepts)} gives an array of "
            f"shape {np.shape(predicted)} as their probabilities, and not a list of "
            "arrays, one for each of them. Use another one, or a classifier for each "
            "concept."
        )
    spread = []
    for name, proba, known in zip(source.concepts, predicted, classes, strict=True):
        codes = _codes(np.asarray(known), name, domains)
        full = np.zeros((len(proba), len(domains[name])))
        full[:, codes] = proba
        spread.append(full)
    return spread


def predict_codes(source, X, domains):
    """Return the codes of the predicted values, (n_samples,), for each concept."""
    labels = np.asarray(_shared_forward.predict(source.classifier, X))
    if len(source.concepts) == 1:
        labels = labels.reshape(-1, 1)
    if labels.ndim != 2 or labels.shape[1] != len(source.concepts):
        raise ValueError(
            f"The classifier of the concepts {list(source.concepts)} predicts an array "
            f"of shape {labels.shape}, not one column for each of them."
        )
    return [
        _codes(column, name, domains)
        for name, column in zip(source.concepts, labels.T, strict=True)
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


def samples_at(X, indices):
    """Return samples by index; the same object if these are all samples in order."""
    if np.array_equal(indices, np.arange(n_rows(X))):
        return X
    return take_rows(X, indices)


def fit_named(name, estimator, X, y):
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


def read_samples(sources, detector, X, domains, needs_proba):
    """Return a Bunch of codes (n_samples, n_concepts), a list of probabilities
    (n_samples, n_values), if needed, and outlier scores (n_samples,), if any.
    """
    networks = [
        source.classifier
        for source in sources
        if isinstance(source.classifier, FrozenEstimator)
        and uses_network(source.classifier)
    ]
    if not networks or not hasattr(detector, "score_samples"):
        return _outputs(sources, detector, X, domains, needs_proba)
    # a frozen network that a concept shares with the detector is run once
    with shared_outputs([detector], networks):
        blocks = [
            _outputs(sources, detector, block, domains, needs_proba)
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


def _outputs(sources, detector, X, domains, needs_proba):
    """Return the outputs for a block of samples, see `read_samples`."""
    codes: list = []
    proba: list = []
    confidence: list = []
    for source in sources:
        predicted = predict_proba(source, X, domains) if needs_proba else []
        proba += predicted
        confidence += [p.max(axis=1) for p in predicted if source.is_input]
        if predicted and uses_network(source.classifier):
            codes += [np.argmax(p, axis=1) for p in predicted]  # a network runs once
        else:
            codes += predict_codes(source, X, domains)
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
