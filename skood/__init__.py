"""skood: classifiers that know when not to answer.

Out-of-distribution detection, epistemic uncertainty and the reject option as
scikit-learn estimators. Sub-packages are imported on first use, so that
``import skood`` stays light and never imports torch.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import importlib

__version__ = "0.1.0.dev0"

_SUBMODULES = (
    "base",
    "benchmark",
    "combine",
    "datasets",
    "detectors",
    "epistemic",
    "evidential",
    "exceptions",
    "graph",
    "logic",
    "metrics",
    "model_selection",
    "nn",
    "onnx",
    "persistence",
    "rectifiers",
    "rejection",
    "utils",
)

__all__ = ["__version__", *_SUBMODULES]


def __getattr__(name):
    if name in _SUBMODULES:
        return importlib.import_module(f"skood.{name}")
    raise AttributeError(f"module 'skood' has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *__all__})
