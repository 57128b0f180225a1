"""Nested names of the parameters of a probe."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.evidential import ProbeObjective
from skood.nn import TrainingOptions


def nested(params):
    """Return parameters; parameters of the parts of a probe have nested names."""
    parts = {"objective": ProbeObjective(), "training": TrainingOptions()}
    owner = {
        name: component for component in parts for name in parts[component].get_params()
    }
    return {
        f"{owner[name]}__{name}" if name in owner else name: value
        for name, value in params.items()
    }
