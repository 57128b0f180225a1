"""Parameters by name, sorted into the parts of a classifier of nodes."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.nn import TrainingOptions


def flat_params(cls, **params):
    """Return parameters of the class, with `training` and the network as parts."""
    name = "module_params" if "module_params" in cls().get_params() else "conv_params"
    separate = cls().get_params(deep=False)
    options = TrainingOptions().get_params()
    training = {key: params.pop(key) for key in list(params) if key in options}
    network = {key: params.pop(key) for key in list(params) if key not in separate}
    network.update(params.pop(name, None) or {})
    if training:
        params["training"] = TrainingOptions(**training)
    return {**params, name: network} if network else params
