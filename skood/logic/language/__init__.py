"""The language of constraints: concepts, formulas, parser and compiler."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause
