"""Regularization of a `GKDENetwork`: targets of the nodes and divergences from them.

Divergences are differentiable: they are a part of its loss.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass

import torch

__all__ = ["Targets", "dirichlet_divergence", "divergence_of_means"]


def dirichlet_divergence(alpha, beta):
    """Return KL(Dir(alpha) || Dir(beta)) in nats, (n_rows,), differentiable."""
    total = alpha.sum(dim=1, keepdim=True)
    gain = torch.digamma(alpha) - torch.digamma(total)
    return (
        torch.lgamma(total[:, 0])
        - torch.lgamma(beta.sum(dim=1))
        + (torch.lgamma(beta) - torch.lgamma(alpha) + (alpha - beta) * gain).sum(dim=1)
    )


def divergence_of_means(alpha, log_teacher):
    """Return the KL divergence of Dir(alpha)'s mean from a teacher, differentiable.

    In nats, of shape (n_rows,); `log_teacher` are log-probabilities.
    """
    mean = alpha / alpha.sum(dim=1, keepdim=True)
    return (mean * (mean.log() - log_teacher)).sum(dim=1)


@dataclass(frozen=True)
class Targets:
    """Regularization targets of the Dirichlet distributions of all nodes of a graph.

    Parameters
    ----------
    prior : torch.Tensor of shape (n_nodes, n_classes) or None
        Parameters of the distributions estimated by GKDE.

    log_teacher : torch.Tensor of shape (n_nodes, n_classes) or None
        Log-probabilities predicted by the teacher.
    """

    prior: torch.Tensor | None
    log_teacher: torch.Tensor | None

    def distance(self, alpha, numbers, lambda_gkde, lambda_teacher):
        """Return the mean over nodes of the weighted divergences, differentiable.

        Parameters
        ----------
        alpha : torch.Tensor of shape (n_rows, n_classes)
            Parameters of the distributions of nodes, in float64.

        numbers : ndarray of int or slice
            Indices of these nodes in the graph.

        lambda_gkde, lambda_teacher : float
            Weights of the two divergences.

        Returns
        -------
        distance : torch.Tensor of shape ()
            Zero without targets.
        """
        distance = alpha.new_zeros(())
        if self.prior is not None:
            divergence = dirichlet_divergence(alpha, self.prior[numbers])
            distance = distance + lambda_gkde * divergence.mean()
        if self.log_teacher is not None:
            divergence = divergence_of_means(alpha, self.log_teacher[numbers])
            distance = distance + lambda_teacher * divergence.mean()
        return distance
