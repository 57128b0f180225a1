"""Collection of the pages: only they have doctests here."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# conf.py and the scripts beside it need Sphinx, which the tests do not install.
collect_ignore_glob = ["*.py"]
