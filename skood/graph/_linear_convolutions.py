"""Decomposition of layers of torch_geometric into aggregation and a linear map.

Such a layer maps linearly and aggregates, and the two commute: its output is W h + b
for aggregated values h.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
from collections import OrderedDict
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class LinearForm:
    """Linear map of a layer that also aggregates."""

    weight: torch.Tensor  # (n_outputs, n_inputs)
    bias: torch.Tensor | None  # (n_outputs,)


def linear_form(layer):
    """Return the linear map of a layer."""
    kind = _kind(layer)
    return None if kind is None else kind[0](layer)


def linear_features(layer, args, kwargs):
    """Return the input of the linear map of a layer, (n_nodes, n_inputs)."""
    return _kind(layer)[1](layer, *args, **kwargs)


def _kind(layer):
    """Return functions for a layer of torch_geometric, None for a subclass of one."""
    kind = type(layer)
    is_known = kind.__module__.startswith("torch_geometric.nn.conv.")
    return _KINDS.get(kind.__name__) if is_known else None


def _weight(linear):
    return getattr(linear, "weight", None)


def _changed(layer, modules, parameters):
    """Return a copy of a layer with some parts replaced, and without hooks."""
    twin = copy.copy(layer)
    twin._modules = {**layer._modules, **modules}
    twin._parameters = {**layer._parameters, **parameters}
    # the arguments have already passed the hooks
    twin._forward_hooks = OrderedDict()
    twin._forward_pre_hooks = OrderedDict()
    return twin


# --- GCNConv: sum over neighbors of weight * W x, plus b --------------------------


def _gcn(layer):
    weight = _weight(layer.lin)
    if weight is None or layer.aggr not in ("add", "sum", "mean"):
        return None
    return LinearForm(weight, layer.bias)


def _gcn_features(layer, x, edge_index, edge_weight=None):
    twin = _changed(layer, {"lin": torch.nn.Identity()}, {"bias": None})
    return twin(x, edge_index, edge_weight)


# --- SAGEConv: W_l (any aggregate of x) + b + W_r x --------------------------------


def _sage(layer):
    if layer.normalize or layer.project:
        return None
    weights = [_weight(layer.lin_l)]
    if layer.root_weight:
        weights.append(_weight(layer.lin_r))
    if any(weight is None for weight in weights):
        return None
    return LinearForm(torch.cat(weights, dim=1), layer.lin_l.bias)


def _sage_features(layer, x, edge_index, size=None):
    if not torch.is_tensor(x):
        return None
    twin = _changed(layer, {"lin_l": torch.nn.Identity()}, {})
    twin.root_weight = False
    features = twin(x, edge_index, size)
    return torch.cat([features, x], dim=1) if layer.root_weight else features


# --- GATConv: for each head, sum over neighbors of attention * W x ------------------


def _gat_map(layer):
    return layer.lin if layer.lin is not None else layer.lin_src


def _gat(layer):
    weight = _weight(_gat_map(layer))
    if weight is None or layer.aggr not in ("add", "sum"):
        return None
    weight = weight.view(layer.heads, -1, weight.shape[1])
    if layer.concat:
        weight = torch.block_diag(*weight)
    else:
        weight = torch.cat(list(weight / layer.heads), dim=1)
    if getattr(layer, "res", None) is not None:  # residual of the node's own values
        weight = torch.cat([weight, layer.res.weight], dim=1)
    return LinearForm(weight, layer.bias)


def _gat_features(
    layer, x, edge_index, edge_attr=None, size=None, return_attention_weights=None
):
    if not (torch.is_tensor(x) and torch.is_tensor(edge_index)):
        return None
    if edge_index.layout != torch.strided:
        return None
    twin = _changed(layer, {}, {})
    _, (edges, attention) = twin(
        x, edge_index, edge_attr, size, return_attention_weights=True
    )
    if layer.flow == "source_to_target":
        edges = edges.flip(0)
    shape = (x.shape[0], x.shape[0])
    features = [
        # torch warns if checks are neither enabled nor disabled
        torch.sparse_coo_tensor(
            edges, attention[:, head], shape, check_invariants=False
        )
        @ x
        for head in range(layer.heads)
    ]
    if getattr(layer, "res", None) is not None:
        features.append(x)
    return torch.cat(features, dim=1)


_KINDS = {
    "GATConv": (_gat, _gat_features),
    "GCNConv": (_gcn, _gcn_features),
    "SAGEConv": (_sage, _sage_features),
}
