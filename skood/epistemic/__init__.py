"""Uncertainty that more training data would cure, and the models that show it."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.epistemic._measures import (
    entropy,
    gaussian_uncertainty,
    kl_divergence,
    kl_divergence_gaussian,
    member_uncertainty,
)

__all__ = [
    "entropy",
    "gaussian_uncertainty",
    "kl_divergence",
    "kl_divergence_gaussian",
    "member_uncertainty",
]
