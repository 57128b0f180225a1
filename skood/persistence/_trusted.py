"""Names of types allowed in files of skood."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import importlib
import inspect
import sys

from skood.utils._estimator import SkoodEstimator
from skood.utils._stored import is_marked
from skood.utils.discovery import ROOMS

# Plain Python that skops does not trust by default; indices of sparse arrays are
# checked, no dtype gets a state, and a partial calls trusted functions.
_OF_LIBRARIES = (
    "functools.partial",
    "numpy.dtype",
    "scipy.sparse._csr.csr_array",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.utils._bunch.Bunch",
    "sklearn.utils.validation.check_array",
)

# Of scikit-learn, compiled: indices are not checked, so that a forged file could crash
# Python or read memory out of bounds.
_COMPILED = (
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
    "sklearn.neighbors._ball_tree.BallTree",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.tree._tree.Tree",
)


def trusted_types(*, compiled=False):
    """List the names of types in files of skood's estimators.

    They are the classes of skood's estimators and of their fitted attributes, and a few
    of scikit-learn and SciPy, in addition to the types that skops trusts by default.
    Creating them runs no program, imports no module except skood's own and opens no
    file, for any arguments.

    Read more in the :ref:`User Guide <persistence>`.

    Parameters
    ----------
    compiled : bool, default=False
        Whether to include the compiled trees of scikit-learn, which are used by
        forests, histogram boosting, ``IsolationForest`` and ``LocalOutlierFactor``.
        They do not check the indices in a file: a forged file can crash Python or
        read memory. Trust them only in files from a trusted source.

    Returns
    -------
    names : list of str
        Sorted names with modules, for `trusted` of :func:`skops.io.load`.

    See Also
    --------
    load : Load a file with these types trusted.

    Examples
    --------
    >>> from skood.persistence import trusted_types
    >>> "skood.detectors._knn.KNN" in trusted_types()
    True
    >>> set(trusted_types(compiled=True)) - set(trusted_types())
    {...'sklearn.tree._tree.Tree'...}
    """
    for name in (*ROOMS, "metrics", "persistence"):
        room = importlib.import_module(f"skood.{name}")
        for exported in room.__all__:
            getattr(room, exported)  # rooms import on first use
    ours = [
        f"{module}.{name}"
        for module, content in list(sys.modules.items())
        if module.startswith("skood.")
        for name, thing in vars(content).items()
        if _may_be_stored(thing, module)
    ]
    return sorted([*ours, *_OF_LIBRARIES, *(_COMPILED if compiled else ())])


def _may_be_stored(thing, module):
    """Return whether a thing is an exported estimator, or marked, in its own module."""
    if getattr(thing, "__module__", None) != module:
        return False
    if is_marked(thing):
        return True
    if not inspect.isclass(thing) or inspect.isabstract(thing):
        return False
    room = sys.modules[".".join(module.split(".")[:2])]
    return issubclass(thing, SkoodEstimator) and thing.__name__ in room.__all__


def is_trusted(name):
    """Return whether a type is in ``trusted_types()``; imports only its own module."""
    module, _, last = name.rpartition(".")
    if name in _OF_LIBRARIES:
        return True
    if not module.startswith("skood.") or "__main__" in module:
        return False
    try:
        thing = getattr(importlib.import_module(module), last, None)
    except ImportError:
        return False
    return _may_be_stored(thing, module)


def names_of(trusted):
    """Return the full names of a list of types, functions or names, or raise."""
    if isinstance(trusted, (list, tuple, set, frozenset)):
        names = [
            t
            if isinstance(t, str)
            else f"{getattr(t, '__module__', None)}.{getattr(t, '__name__', None)}"
            for t in trusted
        ]
        if not any("None" in name.split(".") for name in names):
            return names
    raise TypeError(
        "trusted must be a list of types, functions or their full names such as "
        f"'my_package.my_module.MyNetwork', got {trusted!r}."
    )


def is_compiled(name):
    """Return whether a type is in ``trusted_types(compiled=True)`` only."""
    return name in _COMPILED
