"""Estimators from flat parameters, also those of their training and their network."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.nn import TrainingOptions


def flat_params(cls, **params):
    """Sort parameters into those of the class, of `training`, and of the network."""
    name = "module_params" if "module_params" in cls().get_params() else "conv_params"
    own = cls().get_params(deep=False)
    options = TrainingOptions().get_params()
    training = {key: params.pop(key) for key in list(params) if key in options}
    network = {key: params.pop(key) for key in list(params) if key not in own}
    network.update(params.pop(name, None) or {})
    if training:
        params["training"] = TrainingOptions(**training)
    return {**params, name: network} if network else params
