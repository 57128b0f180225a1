"""Ranks, p-values, e-values, bounds and betting: arrays in, arrays out.

Nothing here is public by itself: :mod:`skood.rejection`, :mod:`skood.combine`,
:mod:`skood.selection` and :mod:`skood.monitor` export what users call.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause
