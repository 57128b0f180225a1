"""Paired tests with options of their resamples by name."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.metrics import Resampling, paired_test

OPTIONS = ("n_resamples", "method", "confidence_level", "stratify")


def paired(*args, **params):
    """Return the result of `paired_test`."""
    options = {name: params.pop(name) for name in OPTIONS if name in params}
    return paired_test(*args, resampling=Resampling(**options), **params)
