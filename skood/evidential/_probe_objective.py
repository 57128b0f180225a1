"""Objective of the evidential probe, with closed-form gradients."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from math import log
from numbers import Real

import numpy as np
import torch

from skood.utils._estimator import SkoodEstimator
from skood.utils._param_validation import Interval, StrOptions
from skood.utils._torch import row_chunks, to_tensor

# Maximum evidence for one class, in units of e_id, of the activation "exp".
CAP = 10.0

# Least concentration of a class with "paper", whose digamma has a pole at 0.
LEAST = 1e-6

# Bytes of an (n_rows, n_classes) chunk, to stay in the cache of a core.
_CHUNK_BYTES = {"cpu": 2**19, "cuda": 2**26}


def confidence(proba, corrected):
    """Return the largest probability r, or at least 0.01 of (r - 1/C) / (1 - 1/C)."""
    r = np.asarray(proba, dtype=np.float64).max(axis=1)
    if not corrected:
        return r
    chance = 1.0 / proba.shape[1]
    return np.maximum((r - chance) / (1.0 - chance), 0.01)


def evidence_of(scores, activation, e_id):
    """Return finite evidence (n, n_classes) of scores W z + b; "exp" has a cap."""
    if activation == "exp":
        return np.exp(np.minimum(scores, log(CAP * e_id)))
    return np.logaddexp(0.0, scores)


def concentrations(evidence, proba, kind):
    """Return the Dirichlet parameters (n_samples, n_classes) of total evidences."""
    if kind == "shifted":
        return evidence[:, None] * proba + 1.0
    return np.maximum((evidence[:, None] + proba.shape[1]) * proba, LEAST)


class ObjectiveSamples:
    """Samples over which terms of the objective are averaged, on a device."""

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


class ProbeObjective(SkoodEstimator):
    r"""Objective of an evidential probe: evidence, and its regularizers.

    With the evidence :math:`q = g(W z + b)` of the classes, :math:`e = \sum_c q_c`,
    :math:`\tilde p` the probabilities of the network and r its confidence, it is

    .. math::

        \psi(e + C) - \psi(e \tilde p_y + 1)
        &+ \lambda_{ICE} \|(C + e) \tilde p - q\|^2 \\
        &+ \lambda_{PCL} \Bigl(\max(0, e_{ID} - e)^2
        + \frac{1 - r}{r} \max(0, e - e_{OOD})^2\Bigr),

    with the mean of the first line over the samples of `y`, and of the others, which
    need no labels, over all samples (all nodes of a graph) [1]_.

    Read more in the :ref:`User Guide <evidential>`.

    Parameters
    ----------
    lambda_ice : float, default=1e-3
        The weight :math:`\lambda_1` (``lambda_1`` in the paper) of the term that
        regularizes the evidence of each class towards the probabilities: evidence then
        follows the energy of the network. Values above 1e-2 dominate the next term.

    lambda_pcl : float, default=1e-3
        The weight :math:`\lambda_2` (``lambda_2`` in the paper) of the term for large
        evidence where the network is confident, and small evidence where it is not. If
        both weights are zero, evidence only grows with training, up to a cap.

    activation : {"exp", "softplus"}, default="exp"
        The function g. With "exp" the evidence of a class is at most ten times `e_id`.

    e_id : float, default=100
        Evidence of a sample with full confidence.

    e_ood : float, default=0
        Evidence of a sample without confidence, at most `e_id`.

    confidence : {"corrected", "max"}, default="corrected"
        The confidence r: the largest probability of the network, or this value
        corrected for chance, :math:`(\max_c \tilde p_c - 1/C) / (1 - 1/C)`, but at
        least 0.01.

    concentration : {"shifted", "paper"}, default="shifted"
        The parameters of the Dirichlet distribution: :math:`\alpha = e \tilde p + 1`,
        or :math:`\alpha = (C + e) \tilde p` as printed in [1]_, Eq. (11), at least 1e-6
        each, with a warning if labeled samples are below it.

    See Also
    --------
    EvidentialProbe : Minimizes it.

    Notes
    -----
    With the objective divided by constants of the samples, the optimal evidence is

    .. math:: e^* = r\, e_{ID} + (1 - r)\, e_{OOD}

    if only the last term is used: the probe learns the confidence of the network as a
    linear function of its input, and nothing else. The first term alone has no minimum:
    it decreases with e almost everywhere. On logits the probe is initialized with W = I
    and b = 0, where with "exp" the evidence is determined by the energy, :math:`e =
    \sum_c e^{z_c}`, up to the cap. Logits whose energy is above the cap for more than 5
    % of the samples are divided by a temperature first, which `coef_` of the probe
    includes.

    References
    ----------
    .. [1] L. Yu, K. Li, P. K. Saha, Y. Lou, F. Chen. Evidential uncertainty probes for
       graph neural networks. AISTATS 2025.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.evidential import EvidentialProbe, ProbeObjective
    >>> network = LogisticRegression(max_iter=1000)
    >>> probe = EvidentialProbe(network, ProbeObjective(lambda_ice=0.0), max_epochs=20)
    >>> probe.fit(*load_iris(return_X_y=True)).n_iter_
    20
    """

    _parameter_constraints: dict = {
        "lambda_ice": [Interval(Real, 0, None, closed="left")],
        "lambda_pcl": [Interval(Real, 0, None, closed="left")],
        "activation": [StrOptions({"exp", "softplus"})],
        "e_id": [Interval(Real, 0, None, closed="neither")],
        "e_ood": [Interval(Real, 0, None, closed="left")],
        "confidence": [StrOptions({"corrected", "max"})],
        "concentration": [StrOptions({"shifted", "paper"})],
    }

    def __init__(
        self,
        *,
        lambda_ice=1e-3,
        lambda_pcl=1e-3,
        activation="exp",
        e_id=100,
        e_ood=0,
        confidence="corrected",
        concentration="shifted",
    ):
        self.lambda_ice = lambda_ice
        self.lambda_pcl = lambda_pcl
        self.activation = activation
        self.e_id = e_id
        self.e_ood = e_ood
        self.confidence = confidence
        self.concentration = concentration

    def __call__(self, W, b, parts, *, gradient=True):
        """Return the objective, and its gradients by W and b if requested.

        W has the shape (n_classes, n_features) and the dtype of the parts, b
        (n_classes,). Gradients of W and b are a list, empty if not requested.
        """
        n_labeled = sum(
            len(samples) for samples in parts if samples.proba_y is not None
        )
        n_regularized = sum(len(samples) for samples in parts if samples.regularized)
        value = W.new_zeros(())
        gradients = [torch.zeros_like(W), torch.zeros_like(b)] if gradient else []
        for samples in parts:
            for chunk in samples.chunks():
                z = samples.features[chunk]
                scores = torch.addmm(b, z, W.T)
                row_values, slope = self._terms(
                    scores, samples, chunk, n_labeled, n_regularized, gradient
                )
                value += row_values.sum()
                if gradient:
                    gradients[0] += slope.T @ z
                    gradients[1] += slope.sum(dim=0)
        return float(value), gradients

    def _terms(self, scores, samples, chunk, n_labeled, n_regularized, gradient):
        """Return values and derivatives by the scores, which are overwritten."""
        n_classes, q = scores.shape[1], self._activate(scores)
        e = q.sum(dim=1)
        value, by_e = torch.zeros_like(e), torch.zeros_like(e)
        by_q = None
        if samples.proba_y is not None:
            p = samples.proba_y[chunk]
            total = e + n_classes
            if self.concentration == "shifted":
                alpha_y = e * p + 1.0
            else:
                alpha_y = (total * p).clamp_(min=LEAST)
                p = torch.where(alpha_y > LEAST, p, 0.0)
            value += (torch.digamma(total) - torch.digamma(alpha_y)) / n_labeled
            if gradient:
                trigamma = torch.polygamma(1, total) - p * torch.polygamma(1, alpha_y)
                by_e += trigamma / n_labeled
        if samples.regularized and self.lambda_pcl:
            scale = self.lambda_pcl / n_regularized
            below, above = (self.e_id - e).relu_(), (e - self.e_ood).relu_()
            weighted = samples.ood_weight[chunk] * above
            value += scale * (below * below + weighted * above)
            by_e += (2.0 * scale) * (weighted - below)
        if samples.regularized and self.lambda_ice:
            scale = self.lambda_ice / n_regularized
            proba = samples.proba[chunk]
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
        # on a GPU without a wait
        if q.device.type != "cpu" or float(e.max()) >= most:
            # A class at the cap can still decrease, but not increase.
            by_q = torch.where((q >= most) & (by_q < 0.0), 0.0, by_q)
        return q.mul_(by_q)
