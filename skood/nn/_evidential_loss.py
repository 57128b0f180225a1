"""Losses of evidential networks in torch, one value per sample."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import torch
from torch.nn import functional

from skood.utils._param_validation import Interval, StrOptions, validate_params
from skood.utils._stored import stored

# The exponential function is continued by its tangent above this: evidence of 22,026.
_MAX_EXPONENT = 10.0


# --- evidence ----------------------------------------------------------------------


def exp_evidence(outputs):
    """Return exp, continued by its tangent from 10 on: it cannot overflow."""
    return outputs.clamp(max=_MAX_EXPONENT).exp() * (
        1.0 + (outputs - _MAX_EXPONENT).clamp(min=0.0)
    )


EVIDENCES = {"softplus": functional.softplus, "exp": exp_evidence, "relu": torch.relu}


# --- losses of parameters ----------------------------------------------------------


def _of_class(alpha, codes):
    """Return the parameter of the class of each sample."""
    return alpha.gather(1, codes[:, None])[:, 0]


def expected_cross_entropy(alpha, codes):
    """Return the expected cross-entropy, (n_rows,), for class indices `codes`."""
    # Eq. (4) of [1] in `EvidentialLoss`
    return torch.digamma(alpha.sum(dim=1)) - torch.digamma(_of_class(alpha, codes))


def marginal_nll(alpha, codes):
    """Return the negative log expected probability, (n_rows,)."""
    # Eq. (3) of [1] in `EvidentialLoss`
    return alpha.sum(dim=1).log() - _of_class(alpha, codes).log()


def expected_squared_error(alpha, codes):
    """Return the expected squared error, squared bias plus variance, (n_rows,)."""
    total = alpha.sum(dim=1, keepdim=True)
    mean = alpha / total
    # Eq. (5) of [1] in `EvidentialLoss`
    truth = functional.one_hot(codes, alpha.shape[1]).to(alpha.dtype)
    variance = mean * (1.0 - mean) / (total + 1.0)
    return ((truth - mean).square() + variance).sum(dim=1)


# --- penalties of parameters -------------------------------------------------------


def dirichlet_divergence(alpha, beta):
    """Return KL(Dir(alpha) || Dir(beta)) in nats, (n_rows,), differentiable."""
    total = alpha.sum(dim=1, keepdim=True)
    gain = torch.digamma(alpha) - torch.digamma(total)
    return (
        torch.lgamma(total[:, 0])
        - torch.lgamma(beta.sum(dim=1))
        + (torch.lgamma(beta) - torch.lgamma(alpha) + (alpha - beta) * gain).sum(dim=1)
    )


def uniform_kl(alpha, codes):
    """Return KL(Dir(alpha) || Dir(1)), (n_rows,), which no class affects."""
    return dirichlet_divergence(alpha, torch.ones_like(alpha))


def misleading_kl(alpha, codes):
    """Return KL(Dir(a) || Dir(1)), (n_rows,), where a is alpha with a_y = 1."""
    return uniform_kl(alpha.scatter(1, codes[:, None], 1.0), codes)


PENALTIES = {"misleading": misleading_kl, "uniform": uniform_kl}

LOSSES = {
    "cross_entropy": expected_cross_entropy,
    "squared_error": expected_squared_error,
    "log_likelihood": marginal_nll,
}


# --- the loss of a network ---------------------------------------------------------


@stored
class EvidentialLoss:
    r"""Loss of an evidential network.

    The outputs l of the network for a sample are mapped to evidence :math:`e = g(l) \ge
    0`, and to the parameters :math:`\alpha = e + 1` of a Dirichlet distribution with
    the total S. With the default `loss`, the loss of a sample of class y is

    .. math:: \psi(S) - \psi(\alpha_y) + \lambda \, KL\bigl(\mathrm{Dir}(\tilde\alpha)
       \,\|\, \mathrm{Dir}(1)\bigr), \qquad
       \tilde\alpha_y = 1, \quad \tilde\alpha_c = \alpha_c \text{ for } c \neq y

    [1]_: the expected cross-entropy, and a penalty of the evidence for wrong classes.

    Read more in the :ref:`User Guide <evidential>`.

    Parameters
    ----------
    evidence : {"softplus", "exp", "relu"}, default="softplus"
        The function g. "exp" is continued by its tangent for outputs above 10, so that
        it does not overflow. Where "relu" is zero it has no gradient: samples without
        evidence are not learned.

    loss : {"cross_entropy", "squared_error", "log_likelihood"}, default="cross_entropy"
        The expected cross-entropy; the expected squared error
        :math:`\sum_c (y_c - m_c)^2 + m_c (1 - m_c) / (S + 1)` with the mean
        :math:`m = \alpha / S`; or :math:`-\log m_y`, the marginal likelihood.

    lambda_kl : float, default=0.1
        Weight of the divergence.

    penalty : {"misleading", "uniform"}, default="misleading"
        The divergence: of the evidence for wrong classes; or
        :math:`KL(\mathrm{Dir}(\alpha) \,\|\, \mathrm{Dir}(1))`, of all evidence.

    See Also
    --------
    EvidentialClassifier : Trains a network with this loss.
    dirichlet_expected_nll : Expected cross-entropy in NumPy.
    dirichlet_kl : Divergence in NumPy.

    Notes
    -----
    It can be the `criterion` of :class:`~skood.nn.TorchClassifier`, whose probabilities
    however are not the mean of the distribution. It computes in float64, and returns
    the dtype of the outputs.

    References
    ----------
    .. [1] M. Sensoy, L. Kaplan, M. Kandemir. Evidential deep learning to quantify
       classification uncertainty. NeurIPS 2018.

    Examples
    --------
    >>> import torch
    >>> from skood.evidential import EvidentialLoss
    >>> loss = EvidentialLoss(evidence="relu")
    >>> loss(torch.tensor([[8.0, 0.0, 0.0], [8.0, 0.0, 0.0]]), torch.tensor([0, 1]))
    tensor([0.2111, 3.1407])
    """

    @validate_params(
        {
            "self": "no_validation",
            "evidence": [StrOptions(set(EVIDENCES))],
            "loss": [StrOptions(set(LOSSES))],
            "lambda_kl": [Interval(Real, 0, None, closed="left")],
            "penalty": [StrOptions(set(PENALTIES))],
        },
        prefer_skip_nested_validation=True,
    )
    def __init__(
        self,
        *,
        evidence="softplus",
        loss="cross_entropy",
        lambda_kl=0.1,
        penalty="misleading",
    ):
        self.evidence = evidence
        self.loss = loss
        self.lambda_kl = lambda_kl
        self.penalty = penalty

    def alpha(self, outputs):
        """Return the parameters of the Dirichlet distributions from outputs.

        Parameters
        ----------
        outputs : torch.Tensor of shape (n_rows, n_classes)
            Outputs of the network.

        Returns
        -------
        alpha : torch.Tensor of shape (n_rows, n_classes), dtype float64
            At least one.
        """
        return EVIDENCES[self.evidence](outputs.to(torch.float64)) + 1.0

    def __call__(self, outputs, codes):
        """Return the loss of each sample.

        Parameters
        ----------
        outputs : torch.Tensor of shape (n_rows, n_classes)
            Outputs of the network.

        codes : torch.Tensor of shape (n_rows,), dtype int64
            Class indices.

        Returns
        -------
        losses : torch.Tensor of shape (n_rows,)
            Losses in the dtype of the outputs.
        """
        alpha = self.alpha(outputs)
        losses = LOSSES[self.loss](alpha, codes)
        if self.lambda_kl > 0:
            losses = losses + self.lambda_kl * PENALTIES[self.penalty](alpha, codes)
        return losses.to(outputs.dtype)

    def __eq__(self, other):
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self):
        return hash((type(self), *vars(self).values()))

    def __repr__(self):
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({values})"
