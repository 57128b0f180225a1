"""Base classes and helpers of detectors: sums over samples, memory banks, softmax."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause
