"""Hashes of the weights of a network."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import hashlib
import json


def weight_table(module):
    """Return a list of [name, shape, dtype, SHA-256] of the state, sorted by name."""
    import torch

    table = []
    for name, tensor in sorted(module.state_dict().items()):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(
                f"The state {name!r} of {type(module).__name__} is a "
                f"{type(tensor).__name__} and no tensor, and only tensors are hashed. "
                "Keep it in a buffer."
            )
        values = tensor.detach().to("cpu").resolve_conj().resolve_neg()
        values = values.to_dense() if values.layout != torch.strided else values
        octets = values.contiguous().reshape(-1).view(torch.uint8).numpy()
        digest = hashlib.sha256(octets.data).hexdigest()
        table.append([name, list(tensor.shape), str(tensor.dtype), digest])
    return table


def weight_hash(module):
    """Return a hash of the weights of a torch module.

    It is the SHA-256 of the names, shapes, dtypes and bytes of all tensors in
    ``module.state_dict()``: parameters and buffers. It does not depend on the device,
    on training mode, or on the order in which submodules were defined. Nor does it
    depend on the computation: two modules with different activations and the same
    weights have the same hash.

    Read more in the :ref:`User Guide <persistence>`.

    Parameters
    ----------
    module : torch.nn.Module
        The module.

    Returns
    -------
    digest : str
        64 hexadecimal digits.

    Raises
    ------
    TypeError
        If `module` is not a torch module, or its state contains anything but tensors.

    See Also
    --------
    skood.persistence.dump : Saves detectors without their network by this hash.

    Examples
    --------
    >>> import torch
    >>> from skood.nn import weight_hash
    >>> net = torch.nn.Linear(3, 2)
    >>> before = weight_hash(net)
    >>> weight_hash(net.eval()) == before
    True
    >>> _ = torch.nn.init.zeros_(net.bias)
    >>> weight_hash(net) == before
    False
    """
    from torch import nn

    if not isinstance(module, nn.Module):
        raise TypeError(
            f"module must be a torch.nn.Module, got {type(module).__name__}. Of a "
            "fitted classifier, pass its module_."
        )
    return hashlib.sha256(json.dumps(weight_table(module)).encode()).hexdigest()


def first_difference(expected, actual):
    """Return the first difference between two tables, or an empty string."""
    there, here = ({row[0]: row[1:] for row in table} for table in (expected, actual))
    missing = [name for name in there if name not in here]
    if missing:
        return f"it has no {missing[0]!r}"
    more = [name for name in here if name not in there]
    if more:
        return f"it has {more[0]!r}, which was not there"
    for index, what in enumerate(("shape", "dtype", "values")):
        for name in there:
            old, new = there[name][index], here[name][index]
            if old != new and what == "values":
                return f"{name!r} has other values"
            if old != new:
                old, new = (tuple(v) if what == "shape" else v for v in (old, new))
                return f"{name!r} has the {what} {new}, and had {old}"
    return ""
