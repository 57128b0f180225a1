"""Training of the evidential probe in full-batch steps."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.evidential._probe_inputs import input_scale
from skood.evidential._probe_objective import LEAST, Part
from skood.nn._training import OPTIMIZERS, make_schedule
from skood.utils._progress import progress
from skood.utils._torch import resolve_device, to_tensor
from skood.utils._warnings import warn

# Default learning rate and number of epochs for each activation.
_LR = {"exp": 1e-2, "softplus": 3e-2}
_MAX_EPOCHS = {"exp": 800, "softplus": 2000}


def fit_probe(probe, objective, train, valid, options, random_state, *, is_graph):
    """Fit a probe to `Samples`; return `coef_`, `intercept_` and `history_`.

    On a graph, the terms without labels are averaged over all nodes. Other parameters
    are attributes of the `EvidentialProbe`; for `options` see `train_probe`.
    """
    device, is_logits = resolve_device(probe.device), probe.layer == "last"
    seen = train.seen if is_graph else train.own
    center, scale = input_scale(seen.inputs, is_logits, objective.e_id)

    def part(seen, codes, regularized=True):
        return Part(
            (seen.inputs - center) / scale,
            seen.proba,
            codes,
            regularized=regularized,
            corrected=objective.confidence == "corrected",
            device=device,
        )

    if objective.concentration == "paper" and train.codes is not None:
        _warn_of_poles(train.own.proba, train.codes)
    if not is_graph:
        parts = [part(seen, train.codes)]
    else:
        parts = [] if train.codes is None else [part(train.own, train.codes, False)]
        if objective.lambda_ice or objective.lambda_pcl:
            parts.append(part(seen, None))
    if valid is not None:
        valid = [part(valid.own, valid.codes)]
    start = _initial_weights(seen.proba.shape[1], len(scale), is_logits, random_state)
    max_epochs = probe.max_epochs or _MAX_EPOCHS[objective.activation]
    with progress(max_epochs, desc="EvidentialProbe", verbose=probe.verbose) as bar:
        (W, b), history = train_probe(
            objective,
            parts,
            valid,
            start,
            lr=probe.lr or _LR[objective.activation],
            max_epochs=max_epochs,
            options=options,
            bar=bar,
        )
    coef = W / scale
    return coef, b - coef @ center, history


def _warn_of_poles(proba, codes):
    """Warn if classes have nearly no probability: their digamma is about -1 / alpha."""
    own = proba[np.arange(len(codes)), codes]
    n_below = int(np.sum(own * proba.shape[1] < LEAST))
    if n_below:
        warn(
            f"concentration='paper' has the parameter {LEAST:g} in place of less for "
            f"the class of {n_below} of {len(codes)} samples, whose cross-entropy is "
            "about a million. Use concentration='shifted'."
        )


def _initial_weights(n_classes, n_inputs, is_logits, rng):
    """Return W and b before training: the identity for logits, else random W."""
    if is_logits:
        return np.eye(n_classes), np.zeros(n_classes)
    W = rng.uniform(-1.0, 1.0, size=(n_classes, n_inputs)) / np.sqrt(n_inputs)
    return W, np.zeros(n_classes)


def train_probe(objective, parts, valid, start, *, lr, max_epochs, options, bar):
    """Minimize a `ProbeObjective` in full-batch steps; return (W, b) and the history.

    `parts` and `valid` are lists of `Part`; validation samples, or None, determine the
    stopping epoch and the weights. `start` are W and b, `options` a `TrainingOptions`
    without None, whose `tol` is a fraction of the objective. The history has `epoch`,
    `train_loss` before the step and, with `valid`, `valid_loss` after it.
    """
    like = parts[0].proba
    weights = [to_tensor(array.copy(), like.device, like.dtype) for array in start]
    make, defaults = OPTIMIZERS[options.optimizer]
    optimizer = make(weights, lr=lr, weight_decay=options.weight_decay, **defaults)
    schedule, _ = make_schedule(options.lr_schedule, optimizer, max_epochs, 1)
    kept = [tensor.clone() for tensor in weights]
    best, waited_for, waited, history = np.inf, np.inf, 0, []
    for epoch in range(1, max_epochs + 1):
        loss, gradients = objective(*weights, parts)
        if not np.isfinite(loss):
            raise ValueError(
                f"The objective of the probe is {loss} in epoch {epoch}: training "
                "diverges. Lower lr or e_id, or scale the inputs of the probe."
            )
        for tensor, gradient in zip(weights, gradients, strict=True):
            tensor.grad = gradient
        optimizer.step()
        if schedule is not None:
            schedule.step()
        history.append({"epoch": epoch, "train_loss": loss})
        bar.update(1)
        if valid is None:
            bar.set_postfix(train_loss=loss)
            continue
        loss, _ = objective(*weights, valid, gradient=False)
        history[-1]["valid_loss"] = loss
        bar.set_postfix(valid_loss=loss)
        if loss < best:
            best, kept = loss, [tensor.clone() for tensor in weights]
        gained = loss < waited_for - options.tol * abs(waited_for)
        if gained or not np.isfinite(waited_for):
            waited_for, waited = loss, 0
        else:
            waited += 1
            if waited >= options.n_iter_no_change:
                break
    if valid is None:
        kept = weights
    return tuple(t.cpu().numpy().astype(np.float64) for t in kept), history
