"""What several detectors share: base classes, sums over samples, memory banks."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause
