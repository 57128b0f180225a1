"""Uncertainty of predicted Dirichlet distributions, with propagation on graphs."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.evidential._dirichlet import check_alpha
from skood.graph import NodeSet
from skood.nn._dirichlet import dirichlet_uncertainty

# Steps and teleport of the walk for each kind of propagated values. The last two are
# equations 91 and 90 of L. Yu et al., "Evidential uncertainty probes for graph neural
# networks", AISTATS 2025.
WALKS = {
    "vacuity": (30, 0.02),
    "log-evidence": (30, 0.02),
    "evidence": (10, 0.1),
    "evidence-sym": (10, 0.1),
    "vacuity-paper": (2, 0.5),
}


def whole_graph(X, estimator=None):
    """Return all nodes of the graph of a `NodeSet`; other samples unchanged."""
    if not isinstance(X, NodeSet):
        return X
    if len(X) == 0:
        raise ValueError(
            f"Found a NodeSet with 0 nodes of {X.n_nodes} while a minimum of 1 is "
            f"required by {type(estimator).__name__}."
        )
    return X.whole()


def evidential_uncertainty(
    alpha, X, *, propagation=None, n_steps=None, teleport=None, proba=None
):
    """Return total, aleatoric and epistemic uncertainty of Dirichlet distributions.

    `alpha` and `proba` are for all nodes of the graph of `X`, or for the samples of an
    array. `propagation` is a key of `WALKS`, "both" or None. Unless alpha is
    propagated, the aleatoric uncertainty is minus the largest of `proba`, if given.
    With "log-evidence" the epistemic uncertainty is the logarithm of the vacuity.
    """
    is_graph = isinstance(X, NodeSet)
    nodes = X.nodes if is_graph else slice(None)
    kind = propagation if is_graph else None

    def walk(values, kind):
        from skood.graph import propagate

        usual_steps, usual_teleport = WALKS[kind]
        return propagate(
            values,
            X,
            scheme="symmetric" if kind == "evidence-sym" else "random-walk",
            n_steps=usual_steps if n_steps is None else n_steps,
            teleport=usual_teleport if teleport is None else teleport,
        )

    if kind in ("evidence", "both"):
        alpha = walk(alpha, "evidence")
    elif kind == "evidence-sym":
        alpha = walk(alpha, kind)
    elif kind == "vacuity-paper":
        total = alpha.sum(axis=1)
        alpha = alpha * (walk(total, kind) / total)[:, None]
    alpha = check_alpha(alpha)
    vacuity = alpha.shape[1] / alpha.sum(axis=1)
    if propagation == "log-evidence":
        vacuity = np.log(vacuity)
    if kind in ("vacuity", "both", "log-evidence"):
        vacuity = walk(vacuity, "vacuity")
    uncertainty = dirichlet_uncertainty(alpha[nodes], vacuity[nodes])
    if proba is not None and kind not in ("evidence", "evidence-sym", "both"):
        uncertainty.aleatoric = -proba[nodes].max(axis=1)
    return uncertainty
