"""Values that parameters of detectors and rectifiers do not take."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest

from skood import detectors, rectifiers

# By file, values of parameters, which are validated before data are.
_DIMENSIONS = [0, 0.0, 1.0, -1, "half", None]
BAD = {
    "ash": {"percentile": [100, -1], "variant": ["S"]},
    "cadref": {"logit_score": ["GEN"]},
    "dice": {"sparsity": [1.0, -0.1, "most"]},
    "energy": {"temperature": [0.0]},
    "fdbd": {"normalizer": ["norm", 1, True]},
    "gen": {"gamma": [0, -1.0], "top": [0]},
    "gmm": {
        "n_components": [0],
        "covariance_type": ["banded"],
        "reg_covar": [-1.0],
        "tol": [-1.0],
        "max_iter": [0],
        "n_init": [0],
    },
    "grad_norm": {"temperature": [0, -1.0, "hot"]},
    "lts": {"top": [0, 1.1, None]},
    "msp": {"temperature": [0, -1.0]},
    "mahalanobis": {"covariance": ["ledoit"]},
    "nci": {"alpha": [-0.1, "auto", None]},
    "neco": {"n_components": [0, 0.0, 1.0, -1, "all", None]},
    "nn_guide": {"n_neighbors": [0], "max_samples": [0.0, 1.5, -1]},
    "openmax": {
        "tail_size": [1],
        "alpha": [0],
        "distance": ["manhattan"],
        "euclidean_weight": [0],
        "translation": [0.0],
    },
    "pnml": {"normalize_logits": ["yes"]},
    "react": {"quantile": [-0.1, 1.1, "high", None]},
    "relation": {
        "power": [0, -1.0],
        "threshold": [1.0, -0.1],
        "max_samples": [0, 1.0],
    },
    "relative_mahalanobis": {"covariance": ["ledoit"]},
    "residual": {"n_components": _DIMENSIONS},
    "scale": {"percentile": [100, -1, "most"]},
    "she": {"metric": ["manhattan"]},
    "ssd": {"covariance": ["ledoit"]},
    "sklearn": {"detector": ["forest"]},
    "vim": {"n_components": _DIMENSIONS},
    "vra": {
        "low": [-0.1],
        "high": [1.5],
        "below": ["cut"],
        "per_feature": ["yes"],
    },
}


CLASSES = {
    cls.__module__.split("._")[-1]: cls
    for package in (detectors, rectifiers)
    for cls in (getattr(package, name) for name in package.__all__)
}


@pytest.mark.parametrize("file", BAD)
def test_bad_parameters(file):
    cls = CLASSES[file]
    for name, values in BAD[file].items():
        for value in values:
            message = f"The '{name}' parameter of {cls.__name__} must be"
            with pytest.raises(ValueError, match=message):
                cls(**{name: value}).fit(np.eye(3), [0, 1, 2])
