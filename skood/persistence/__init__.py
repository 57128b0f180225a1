"""Safe files of fitted estimators: loading them runs no code of the file."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.persistence._files import dump, dumps, load, loads, trusted_types

__all__ = ["dump", "dumps", "load", "loads", "trusted_types"]
