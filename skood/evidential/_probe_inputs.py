"""Inputs of the evidential probe: samples, class indices and scaling."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass
from math import log

import numpy as np
from scipy.special import logsumexp, softmax
from sklearn.base import is_regressor
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_consistent_length

from skood.evidential._probe_objective import CAP
from skood.graph import NodeSet
from skood.nn._make_network import make_network, predicts_softmax
from skood.nn._training_data import check_target, stratified_split
from skood.utils._labels import label_codes
from skood.utils._log_proba import log_proba_of
from skood.utils._sparse import check_dense
from skood.utils._torch import to_numpy


def check_options(probe, objective, options, y, X_val, y_val):
    """Raise for regressors, and for invalid combinations of parameters."""
    estimator = probe.estimator
    if hasattr(estimator, "__sklearn_tags__") and is_regressor(estimator):
        raise TypeError(
            f"{type(probe).__name__} adds evidence to the probabilities of a "
            f"classifier, and its estimator {estimator!r} is a regressor. Pass a "
            "classifier."
        )
    if objective.e_ood > objective.e_id:
        raise ValueError(
            f"e_ood={objective.e_ood} must not be above e_id={objective.e_id}: it is "
            "the evidence of samples that the network is not sure of."
        )
    if options.tol >= 1:
        raise ValueError(
            f"tol={options.tol} must be below 1: it is a fraction of the objective."
        )
    if y is None and not isinstance(probe.estimator, FrozenEstimator):
        raise ValueError(
            f"{type(probe).__name__} requires y to be passed, but the target y is "
            f"None: it fits its estimator {probe.estimator!r}. Pass class labels, "
            "or a fitted estimator inside sklearn.frozen.FrozenEstimator."
        )
    if y is None and not objective.lambda_ice and not objective.lambda_pcl:
        raise ValueError(
            "Without y only the terms that need no labels are trained, and both "
            "lambda_ice and lambda_pcl are 0. Pass y, or raise one of them."
        )
    if X_val is None and y_val is not None:
        raise ValueError("y_val was passed without X_val. Pass both, or neither.")
    if X_val is not None and (y is None) != (y_val is None):
        raise ValueError(
            "Pass y_val with X_val if y is given, and leave it out if not: the "
            "objective is the same for training and validation."
        )


def proba_of(network, X, logits=None, **options):
    """Return the float64 probabilities of a network, of shape (n_samples, n_classes).

    They are the softmax of the logits (computed if None, with the `options` of
    `make_network`), or the output of ``predict_proba`` if it is another function.
    """
    if not predicts_softmax(network):
        return np.exp(log_proba_of(network, to_numpy(X)))
    if logits is None:
        logits = make_network(network, **options).outputs(X, {"logits"}).logits
    return softmax(np.asarray(logits, dtype=np.float64), axis=1)


@dataclass(frozen=True)
class Seen:
    """Inputs of a probe and probabilities of the network for samples.

    Shapes: inputs (n_samples, n_inputs), proba (n_samples, n_classes).
    """

    inputs: np.ndarray
    proba: np.ndarray

    @classmethod
    def of(cls, network, X, want, **options):
        """Return the outputs of a fitted network for samples, from one pass.

        `want` is a set of {"features", "logits"}, see `read`; `options` see
        `make_network`.
        """
        outputs = make_network(network, **options).outputs(X, want)
        check_dense(outputs.array)
        return cls(
            np.asarray(outputs.array, dtype=np.float64),
            proba_of(network, X, outputs.logits),
        )

    def __len__(self):
        return len(self.proba)

    def rows(self, part):
        """Return the outputs for the samples `part`."""
        return Seen(self.inputs[part], self.proba[part])


@dataclass(frozen=True)
class Samples:
    """Samples with outputs of a network."""

    seen: Seen
    rows: np.ndarray
    codes: np.ndarray | None

    @classmethod
    def of(cls, X, y, seen, estimator):
        """Return the samples whose class is in the `classes_` of an estimator.

        `seen` are the outputs for all nodes of their graph, or for all samples.
        """
        rows = X.nodes if isinstance(X, NodeSet) else np.arange(len(seen))
        if y is None:
            return cls(seen, rows, None)
        y = check_target(y, estimator)
        check_consistent_length(rows, y)
        codes = label_codes(y, estimator.classes_)
        known = codes >= 0
        if not known.any():
            raise ValueError(
                "No sample of y is of a class of the network, whose classes_ are "
                f"{estimator.classes_.tolist()}; got labels such as "
                f"{y.tolist()[0]!r}. Pass samples of these classes, or no y."
            )
        return cls(seen, rows[known], codes[known])

    @property
    def own(self):
        """Return the outputs for the samples only."""
        return self.seen.rows(self.rows)

    def split(self, fraction, random_state):
        """Split into training and validation samples, stratified by class."""
        strata = self.codes
        if strata is None:
            strata = np.zeros(len(self.rows), dtype=np.int64)
        parts = stratified_split(strata, fraction, random_state)
        return tuple(
            Samples(
                self.seen,
                self.rows[part],
                None if self.codes is None else self.codes[part],
            )
            for part in parts
        )


def input_scale(z, is_logits, e_id):
    """Return the center and scale, of shape (n_inputs,), for the inputs of a probe.

    Logits are divided by one temperature, or not at all; features are standardized.
    `e_id` is the evidence of a sample with full confidence.
    """
    if not is_logits:
        scale = z.std(axis=0)
        return z.mean(axis=0), np.where(scale > 0, scale, 1.0)
    energy = np.quantile(logsumexp(z, axis=1), 0.95)
    temperature = max(1.0, energy / max(1.0, log(CAP * e_id)))
    return np.zeros(z.shape[1]), np.full(z.shape[1], temperature)
