"""Factory of `Network` objects for any fitted classifier."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.nn._network import LayeredNetwork
from skood.nn._sklearn_network import PipelineReader, make_reader
from skood.utils._torch import resolve_device

__all__ = ["make_network"]


def make_network(estimator, *, device="auto"):
    """Return the network of a fitted classifier.

    Parameters
    ----------
    estimator : object
        A linear classifier or `MLPClassifier` of scikit-learn, a skorch net, a
        `TorchClassifier`, a module wrapped by `pretrained`, or a `Pipeline` that ends
        in one of these.

    device : str, default="auto"
        Device of a torch network, see `FeatureExtractor`. The others run on the CPU.

    Returns
    -------
    network : Network
        Access to layers, gradients and replacements.

    Raises
    ------
    TypeError
        If the classifier has neither layers nor a gradient.
    """
    reader, steps = make_reader(estimator, device=device), []
    while isinstance(reader, PipelineReader):
        if len(reader.pipeline.steps) > 1:
            steps.append(reader.pipeline[:-1])
        reader = reader.reader
    if hasattr(reader, "open_network"):  # of a graph
        return reader.open_network(steps)
    if hasattr(reader, "module"):
        from skood.nn._torch_network import ModuleNetwork

        return ModuleNetwork(reader, steps)
    if hasattr(reader, "hidden"):
        if device != "auto":
            resolve_device(device)  # raises if there is no such device
        return LayeredNetwork(reader, steps)
    raise TypeError(
        f"This needs a network, but a {type(reader.estimator).__name__} has neither "
        "layers nor a gradient. Use a linear classifier or an MLPClassifier of "
        "scikit-learn, a torch network, or a detector that reads logits or features "
        "only."
    )
