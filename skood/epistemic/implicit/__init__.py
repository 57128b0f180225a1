"""Ensembles inside one network: BatchEnsemble and packed ensembles."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause
