"""Data sets with known out-of-distribution samples.

Loaders of arrays return a :class:`sklearn.utils.Bunch`. Loaders of real images mark the
samples of left-out classes, and `make_reject_option_1d` provides the true posteriors.
Loaders of graphs return a :class:`skood.graph.NodeSet`.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.datasets._churn import make_churn
from skood.datasets._digit_concepts import digit_concepts, load_digit_concepts
from skood.datasets._digits_ood import load_digits_ood
from skood.datasets._graphs import load_graph, paper_ood_splits, split_nodes
from skood.datasets._idx_files import fetch_mnist, load_idx_images
from skood.datasets._ood_graph import make_ood_graph
from skood.datasets._synthetic import make_reject_option_1d

__all__ = [
    "digit_concepts",
    "fetch_mnist",
    "load_digit_concepts",
    "load_digits_ood",
    "load_graph",
    "load_idx_images",
    "make_churn",
    "make_ood_graph",
    "make_reject_option_1d",
    "paper_ood_splits",
    "split_nodes",
]
