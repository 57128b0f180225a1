"""What the distributions of a `GKDENetwork` are drawn to, and how far they are.

Divergences are differentiable: they are a part of its loss.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass

import torch

__all__ = ["Targets", "dirichlet_divergence", "divergence_of_means"]


def dirichlet_divergence(alpha, beta):
    """KL divergence of Dir(alpha) from Dir(beta), differentiable.

    Parameters
    ----------
    alpha, beta : torch.Tensor of shape (n_rows, n_classes)
        Parameters, positive.

    Returns
    -------
    divergence : torch.Tensor of shape (n_rows,)
        In nats.
    """
    total = alpha.sum(dim=1, keepdim=True)
    gain = torch.digamma(alpha) - torch.digamma(total)
    return (
        torch.lgamma(total[:, 0])
        - torch.lgamma(beta.sum(dim=1))
        + (torch.lgamma(beta) - torch.lgamma(alpha) + (alpha - beta) * gain).sum(dim=1)
    )


def divergence_of_means(alpha, log_teacher):
    """KL divergence of the mean of Dir(alpha) from a teacher, differentiable.

    Parameters
    ----------
    alpha : torch.Tensor of shape (n_rows, n_classes)
        Parameters, positive.

    log_teacher : torch.Tensor of shape (n_rows, n_classes)
        Log-probabilities.

    Returns
    -------
    divergence : torch.Tensor of shape (n_rows,)
        In nats.
    """
    mean = alpha / alpha.sum(dim=1, keepdim=True)
    return (mean * (mean.log() - log_teacher)).sum(dim=1)


@dataclass(frozen=True)
class Targets:
    """What the Dirichlet distributions of all nodes of a graph are drawn to.

    Parameters
    ----------
    prior : torch.Tensor of shape (n_nodes, n_classes) or None
        Parameters of the distributions that GKDE estimates.

    log_teacher : torch.Tensor of shape (n_nodes, n_classes) or None
        Log-probabilities that the teacher predicts.
    """

    prior: torch.Tensor | None
    log_teacher: torch.Tensor | None

    def distance(self, alpha, numbers, lambda_gkde, lambda_teacher):
        """Mean over nodes of the weighted divergences, differentiable.

        Parameters
        ----------
        alpha : torch.Tensor of shape (n_rows, n_classes)
            Parameters of the distributions of nodes, in float64.

        numbers : ndarray of int or slice
            Numbers of these nodes in the graph.

        lambda_gkde, lambda_teacher : float
            Weights of the two divergences.

        Returns
        -------
        distance : torch.Tensor of shape ()
            Zero where there is nothing to be drawn to.
        """
        distance = alpha.new_zeros(())
        if self.prior is not None:
            divergence = dirichlet_divergence(alpha, self.prior[numbers])
            distance = distance + lambda_gkde * divergence.mean()
        if self.log_teacher is not None:
            divergence = divergence_of_means(alpha, self.log_teacher[numbers])
            distance = distance + lambda_teacher * divergence.mean()
        return distance
