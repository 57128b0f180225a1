"""Out-of-distribution detection, uncertainty and reject options for scikit-learn.

Out-of-distribution detection, epistemic uncertainty and the reject option as
scikit-learn estimators. Sub-packages are imported on first use, so that
``import skood`` stays light and never imports torch.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from importlib import import_module as _import_module

__version__ = "0.2.0"

# Shown by show_versions: required dependencies, then dependencies of extras.
_DEPENDENCIES = (
    "numpy",
    "scipy",
    "scikit-learn",
    "torch",
    "skorch",
    "joblib",
    "threadpoolctl",
    "array-api-compat",
    "tqdm",
    "matplotlib",
    "pandas",
    "polars",
    "torch-geometric",
    "networkx",
    "laplace-torch",
    "pyod",
    "skops",
    "onnx",
    "skl2onnx",
    "dask",
    "faiss-cpu",
)

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
    "monitor",
    "nn",
    "onnx",
    "persistence",
    "rectifiers",
    "rejection",
    "selection",
    "utils",
)

__all__ = ["__version__", "show_progress", "show_versions", *_SUBMODULES]


def __getattr__(name):
    if name in _SUBMODULES:
        return _import_module(f"skood.{name}")
    if name == "show_progress":
        return _import_module("skood.utils._progress").show_progress
    from skood.utils._optional import missing_name

    raise missing_name(__name__, name)


def __dir__():
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def show_versions():
    """Print the versions of skood, its dependencies, Python and the machine.

    For bug reports. Threads are reported for libraries that are already loaded.

    Examples
    --------
    >>> import skood
    >>> skood.show_versions()  # doctest: +SKIP
    skood        0.2.0
    python       3.11.9
    ...
    """
    import os
    import platform
    import sys
    from importlib.metadata import PackageNotFoundError, version

    from threadpoolctl import threadpool_info

    facts = {"skood": __version__, "python": sys.version.split()[0]}
    for name in _DEPENDENCIES:
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            facts[name] = "not installed"
    facts["machine"] = platform.platform()
    facts["cpus"] = str(os.cpu_count())
    facts["threads"] = ", ".join(
        f"{one['internal_api']} {one['version']} ({one['num_threads']})"
        for one in threadpool_info()
    )
    if "torch" in sys.modules:  # torch itself is not imported for this
        facts["cuda"] = str(sys.modules["torch"].version.cuda)
    for name, found in facts.items():
        print(f"{name:<16} {found}")
