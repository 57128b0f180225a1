"""Utilities of skood: discovery of estimators and the checks for detectors."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause
