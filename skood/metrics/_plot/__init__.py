"""Displays of metrics, drawn with matplotlib."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause
