"""Entry point of the demo: ``python -m skood``, or the console script ``skood``."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys

from skood.benchmark import main

if __name__ == "__main__":
    sys.exit(main())
