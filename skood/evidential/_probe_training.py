"""Training of the evidential probe with closed-form gradients."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass
from math import log

import numpy as np
import torch

from skood.utils._torch import row_chunks, to_tensor

__all__ = ["CAP", "Objective", "Part", "confidence", "evidence_of", "train_probe"]

# Maximum evidence for one class, in units of e_id, of the activation "exp".
CAP = 10.0

# Bytes of an (n_rows, n_classes) chunk, to stay in the cache of a core.
_CHUNK_BYTES = {"cpu": 2**19, "cuda": 2**26}


def confidence(proba, corrected):
    r"""Return the largest probability r of each sample, or its correction for chance.

    The correction is :math:`(r - 1/C) / (1 - 1/C)`, but at least 0.01. The result is
    float64, of shape (n_samples,), in (0, 1].
    """
    r = np.asarray(proba, dtype=np.float64).max(axis=1)
    if not corrected:
        return r
    chance = 1.0 / proba.shape[1]
    return np.maximum((r - chance) / (1.0 - chance), 0.01)


def evidence_of(scores, activation, e_id):
    """Return the evidence for each class, from the scores W z + b of the linear map.

    Both are float64, of shape (n_samples, n_classes); the evidence is finite and not
    negative. With "exp", the evidence of a class is at most ten times `e_id`, the
    evidence of a sample with full confidence.
    """
    if activation == "exp":
        return np.exp(np.minimum(scores, log(CAP * e_id)))
    return np.logaddexp(0.0, scores)


class Part:
    """Samples over which terms of the objective are averaged.

    Parameters
    ----------
    features : ndarray of shape (n_rows, n_features)
        Inputs of the probe.

    proba : ndarray of shape (n_rows, n_classes)
        Probabilities of the network for the same samples.

    codes : ndarray of shape (n_rows,), dtype int, default=None
        Class indices, for the expected cross-entropy. None: not used in this term.

    regularized : bool, default=True
        Whether the samples are used in the regularizers.

    corrected : bool, default=True
        See `confidence`.

    device : torch.device
        Device of the tensors, which are float64, or float32 if it is not supported.
    """

    def __init__(self, features, proba, codes=None, *, regularized, corrected, device):
        dtype = torch.float32 if device.type == "mps" else torch.float64
        r = confidence(proba, corrected)

        def tensor(array):
            return to_tensor(np.ascontiguousarray(array), device, dtype)

        self.features = tensor(features)
        self.proba = tensor(proba)
        self.ood_weight = tensor((1.0 - r) / r)
        self.regularized = regularized
        self.proba_y = None
        if codes is not None:
            self.proba_y = tensor(proba[np.arange(len(codes)), codes])

    def __len__(self):
        return len(self.features)

    def chunks(self):
        """Return slices of samples that are processed one after the other."""
        budget = _CHUNK_BYTES.get(self.proba.device.type, 2**26)
        row_bytes = self.proba.element_size() * self.proba.shape[1]
        return row_chunks(len(self), row_bytes, budget)


@dataclass(frozen=True)
class Objective:
    r"""Expected cross-entropy and regularizers of the evidence of a linear probe.

    With :math:`q = g(W z + b)`, :math:`e = \sum_c q_c`, :math:`\tilde p` the
    probabilities and r the confidence of the network,

    .. math::

        \psi(e + C) - \psi(e \tilde p_y + 1)
        + \lambda_{ICE} \|(C + e) \tilde p - q\|^2
        + \lambda_{PCL} \bigl(\max(0, e_{ID} - e)^2
        + \tfrac{1 - r}{r} \max(0, e - e_{OOD})^2\bigr),

    averaged in the first term over the samples of parts with classes, and in the others
    over the samples of regularized parts.

    Parameters
    ----------
    lambda_ice, lambda_pcl : float
        Weights of the regularizers.

    activation : {"exp", "softplus"}
        The function g.

    e_id, e_ood : float
        Evidence of known and of unknown samples.
    """

    lambda_ice: float
    lambda_pcl: float
    activation: str
    e_id: float
    e_ood: float

    def __call__(self, W, b, parts, *, gradient=True):
        """Return the objective, and its gradients if requested.

        W has the shape (n_classes, n_features) and the dtype of the parts, b
        (n_classes,). Gradients of W and b are a list, empty if not requested.
        """
        n_labeled = sum(len(part) for part in parts if part.proba_y is not None)
        n_regularized = sum(len(part) for part in parts if part.regularized)
        value = W.new_zeros(())
        gradients = [torch.zeros_like(W), torch.zeros_like(b)] if gradient else []
        for part in parts:
            for rows in part.chunks():
                z = part.features[rows]
                scores = torch.addmm(b, z, W.T)
                row_values, slope = self._rows(
                    scores, part, rows, n_labeled, n_regularized, gradient
                )
                value += row_values.sum()
                if gradient:
                    gradients[0] += slope.T @ z
                    gradients[1] += slope.sum(dim=0)
        return float(value), gradients

    def _rows(self, scores, part, rows, n_labeled, n_regularized, gradient):
        """Return values and derivatives by the scores, which are overwritten."""
        n_classes, q = scores.shape[1], self._activate(scores)
        e = q.sum(dim=1)
        value, by_e = torch.zeros_like(e), torch.zeros_like(e)
        by_q = None
        if part.proba_y is not None:
            p = part.proba_y[rows]
            total, own = e + n_classes, e * p + 1.0
            value += (torch.digamma(total) - torch.digamma(own)) / n_labeled
            if gradient:
                trigamma = torch.polygamma(1, total) - p * torch.polygamma(1, own)
                by_e += trigamma / n_labeled
        if part.regularized and self.lambda_pcl:
            scale = self.lambda_pcl / n_regularized
            below, above = (self.e_id - e).relu_(), (e - self.e_ood).relu_()
            weighted = part.ood_weight[rows] * above
            value += scale * (below * below + weighted * above)
            by_e += (2.0 * scale) * (weighted - below)
        if part.regularized and self.lambda_ice:
            scale = self.lambda_ice / n_regularized
            proba = part.proba[rows]
            by_q = torch.addcmul(q, (e + n_classes)[:, None], proba, value=-1.0)
            value += scale * torch.linalg.vecdot(by_q, by_q)
            if gradient:
                by_e -= (2.0 * scale) * torch.linalg.vecdot(by_q, proba)
                by_q *= 2.0 * scale
        if not gradient:
            return value, None
        return value, self._chain(q, e, by_e, by_q)

    def _activate(self, scores):
        """Return the evidence for each class; overwrites the scores."""
        if self.activation == "exp":
            return scores.clamp_(max=log(CAP * self.e_id)).exp_()
        return torch.nn.functional.softplus(scores)

    def _chain(self, q, e, by_e, by_q):
        """Return the derivative by the scores from derivatives by e and by q."""
        by_q = by_e[:, None].expand_as(q) if by_q is None else by_q.add_(by_e[:, None])
        if self.activation != "exp":
            return -torch.expm1(-q) * by_q
        most = CAP * self.e_id * (1.0 - 1e-6)
        if float(e.max()) >= most:
            # A class at the cap can still decrease, but not increase.
            by_q = torch.where((q >= most) & (by_q < 0.0), 0.0, by_q)
        return q.mul_(by_q)


def train_probe(
    objective,
    parts,
    valid,
    start,
    *,
    lr,
    weight_decay,
    max_epochs,
    patience,
    tol,
    bar,
):
    """Minimize an objective by full-batch Adam.

    Parameters
    ----------
    objective : Objective
        The objective.

    parts : list of Part
        Training samples.

    valid : list of Part or None
        Validation samples that determine the stopping epoch and the weights. None: all
        epochs are trained, and the last weights are returned.

    start : tuple of ndarray
        Initial W and b.

    lr, weight_decay : float
        Learning rate and weight decay of Adam.

    max_epochs : int
        Maximum number of steps.

    patience : int
        Number of epochs without improvement before stopping.

    tol : float
        Smallest improvement that counts, as a fraction of the best objective so far.

    bar : progress
        Progress bar of the epochs.

    Returns
    -------
    weights : tuple of ndarray
        W and b, float64.

    history : list of dict
        For each epoch: `epoch`, `train_loss` before its step and, with `valid`,
        `valid_loss` after it.
    """
    like = parts[0].proba
    weights = [to_tensor(array.copy(), like.device, like.dtype) for array in start]
    optimizer = torch.optim.Adam(weights, lr=lr, weight_decay=weight_decay)
    kept = [tensor.clone() for tensor in weights]
    best, waited_for, waited, history = np.inf, np.inf, 0, []
    for epoch in range(1, max_epochs + 1):
        loss, gradients = objective(*weights, parts)
        if not np.isfinite(loss):
            raise ValueError(
                f"The objective of the probe is {loss} in epoch {epoch}: training "
                "diverges. Lower lr or e_id, or scale what the probe reads."
            )
        for tensor, gradient in zip(weights, gradients, strict=True):
            tensor.grad = gradient
        optimizer.step()
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
        if loss < waited_for - tol * abs(waited_for) or not np.isfinite(waited_for):
            waited_for, waited = loss, 0
        else:
            waited += 1
            if waited >= patience:
                break
    if valid is None:
        kept = weights
    return tuple(t.cpu().numpy().astype(np.float64) for t in kept), history
