"""Search for constraints that improve a detector."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause
