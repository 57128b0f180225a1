"""Members drawn from distributions around the adversarial models of points."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import torch
from scipy.special import softmax

from skood.epistemic.quam._adversarial_models import Keep
from skood.epistemic.quam._local_components import draw_members
from skood.utils._torch import to_tensor

# Number of models of a search that span the subspace.
_N_ITERATES = 20


def drawn_members(searches, X, component):
    """Yield the same as `Searches.members` for draws from a `LocalComponent`."""
    one, slack = searches.estimator, component.slack
    if slack is None:
        slack = max(searches.options.gamma, 2 / one.n_samples_fit_)
    is_subspace = component.kind == "subspace"
    if is_subspace and component.include_reference:
        raise ValueError(
            "include_reference=True needs kind='laplace' or 'sgmcmc': there is no "
            "search of the given network whose models span a subspace."
        )

    def fields(tail, points, task, best):
        found = {"theta": tail.flatten(best.weights)}
        return found | ({"iterates": best.iterates} if is_subspace else {})

    keep = Keep(slack, fields, _N_ITERATES if is_subspace else 0)
    for reference, targets, found in searches.blocks(X, one.verbose, keep):
        parts = [
            _draw(
                searches, reference[i : i + 1], targets[i : i + 1], found, i, component
            )
            for i in range(len(reference))
        ]
        outputs, weights = (np.stack(part, axis=1) for part in zip(*parts, strict=True))
        groups = None
        if component.kind == "sgmcmc":  # draws of a chain depend on each other
            groups = np.arange(len(weights)) // component.n_samples
        yield reference, outputs, weights, groups


def _draw(searches, reference, targets, found, i, component):
    """Return outputs and weights of the draws for a point of a block."""
    one, tail = searches.estimator, found.tail
    task, device = one._task(targets, reference, tail), tail.network.device
    best = {name: to_tensor(a[:, i], device) for name, a in found.best.items()}
    if component.include_reference:
        best["theta"] = torch.cat([best["theta"], tail.flatten(tail.start(1))])
    options = component, one.temperature, searches.options.rank, one._seed
    point, stored = found.points[i : i + 1], searches.stored(tail, task)
    with searches.plain():
        outputs, log_weights = draw_members(
            tail, stored, point, best["theta"], best.get("iterates"), options
        )
    weights = softmax(log_weights.cpu().numpy())
    if not (torch.isfinite(outputs).all() and np.isfinite(weights).all()):
        raise ValueError(
            f"A draw of component={component.kind!r} has outputs of NaN or infinity. "
            f"Raise its prior_precision={component.prior_precision}, lower its "
            f"lr={component.lr}, or scale the features."
        )
    return outputs.cpu().numpy(), weights
