"""``python -m benchmarks.reproduce``."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys

from benchmarks.reproduce._command import main

if __name__ == "__main__":
    sys.exit(main())
