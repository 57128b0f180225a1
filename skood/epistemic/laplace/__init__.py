"""Laplace approximations of the posterior of a network's weights."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause
