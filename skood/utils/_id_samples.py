"""Samples and labels that a detector is fitted on, without known OOD samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys
from numbers import Integral
from types import FrameType
from typing import Any

import numpy as np

from skood.utils._labels import is_nan
from skood.utils._left_out import is_fixed
from skood.utils._memory_maps import MappedRows, is_mapped
from skood.utils._metaestimators import take_rows
from skood.utils._optional import is_instance
from skood.utils._warnings import warn

# Fraction of samples from which it is unusual that they are labeled as OOD for a fit.
_MANY_OOD = 0.2


def warn_of_earlier_steps(owner):
    """Warn if the steps of a pipeline before `owner` are fitted on OOD samples.

    It is called in the fit of `owner`, on labels of OOD samples. A step has no access
    to its pipeline, which is therefore searched among the callers.
    """
    last = owner
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in ("fit", "fit_predict", "fit_transform"):
            pipe: Any = frame.f_locals.get("self")
            is_pipe = is_instance(pipe, "sklearn.pipeline", "Pipeline")
            if is_pipe and pipe.steps[-1][1] is last:
                steps = [one for one in pipe.steps if one[1] is not last]
                names = [name for name, one in steps if _learns(one, owner.ood_label)]
                if names:
                    _warn_of_steps(names, owner)
                    return
                last = pipe
        frame = frame.f_back


def _warn_of_steps(names, owner):
    label = owner.ood_label
    option = "" if label == -1 else f", ood_label={label!r}"
    remedy = f"Wrap each in skood.model_selection.IDOnly(...{option})"
    if is_nan(label):
        remedy = "Make the estimator a pipeline of them"
    warn(
        f"The steps {names} of the pipeline before {type(owner).__name__} are fitted "
        f"on the samples labeled ood_label={label!r} as well: a scaler uses their mean "
        f"and their standard deviation. {remedy}, so that they are fitted on ID "
        "samples only."
    )


def _learns(step, ood_label):
    """Return whether a transformer is fitted on samples labeled `ood_label`."""
    for name in ("steps", "transformers", "transformer_list"):
        if hasattr(step, name):
            steps = [inner[1] for inner in getattr(step, name)]
            steps.append(getattr(step, "remainder", None))
            return any(_learns(inner, ood_label) for inner in steps)
    if not hasattr(step, "get_params"):  # None, or a text
        return False
    params = step.get_params(deep=False)
    if "ood_label" in params:
        return params["ood_label"] != ood_label
    # of rectifiers, the ones with parameters to learn have an `ood_label`
    fixed = hasattr(step, "_rectify") or is_fixed(step)
    return not (fixed or ("estimator" in params and is_fixed(params["estimator"])))


def warn_of_binary_classes(y, y_id, detector):
    """Warn if many samples are left out, and the labels may be two classes -1 and 1."""
    label = detector.ood_label
    n_ood = np.count_nonzero(y == label) if isinstance(label, Integral) else 0
    if n_ood >= _MANY_OOD * len(y) and np.all(y_id == -label):
        warn(
            f"The labels in y are {label} and {-label}: {n_ood} of {len(y)} samples "
            f"are labeled ood_label={label} and left out of the fit, as known OOD "
            f"samples. If {label} is a class, set ood_label to a label that no class "
            "has."
        )


def chosen_samples(X, indices, copy):
    """Return samples by index; without `copy`, a memory-mapped file is not loaded."""
    lazy = not copy and is_mapped(X)
    return MappedRows(X, indices) if lazy else take_rows(X, indices)
