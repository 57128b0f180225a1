"""Quantification of model uncertainty by adversarial models (QUAM)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause
