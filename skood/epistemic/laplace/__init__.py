"""Laplace approximations of the posterior over the weights of a network."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause
