"""Inference in Markov logic networks: partition function, expectations, weights."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause
