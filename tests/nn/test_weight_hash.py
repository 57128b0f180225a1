"""The hash of a network's weights."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import hashlib
import json
from collections import OrderedDict

import pytest
import torch
from torch import nn

from skood.nn import weight_hash
from skood.nn._weight_hash import first_difference, weight_table


def _net():
    torch.manual_seed(0)
    return nn.Sequential(
        OrderedDict(first=nn.Linear(3, 4), norm=nn.BatchNorm1d(4), last=nn.Linear(4, 2))
    )


def _digest(data):
    return hashlib.sha256(data).hexdigest()


def test_hash_is_that_of_names_shapes_dtypes_and_bytes():
    net = _net()
    table = [
        [name, list(value.shape), f"torch.{value.numpy().dtype}", value.numpy()]
        for name, value in net.state_dict().items()
    ]
    table = [[*row[:3], _digest(row[3].tobytes())] for row in sorted(table)]
    assert weight_table(net) == table
    assert len(table) == 9  # two linear layers of 2, batch norm 2 and its 3 buffers
    assert weight_hash(net) == _digest(json.dumps(table).encode())


def test_hash_of_the_same_weights_is_the_same():
    net = _net()
    digest = weight_hash(net)
    assert weight_hash(copy.deepcopy(net)) == digest
    assert weight_hash(net.eval()) == digest
    assert weight_hash(net.requires_grad_(False)) == digest
    parts = dict(reversed(list(_net().named_children())))
    assert weight_hash(nn.Sequential(OrderedDict(parts))) == digest
    # a transposed view has other strides and the same values
    net.first.weight.data = net.first.weight.data.T.contiguous().T
    assert not net.first.weight.is_contiguous()
    assert weight_hash(net) == digest


@pytest.mark.parametrize(
    "change",
    [
        lambda net: net.double(),
        lambda net: net.first.weight.data[1, 2].add_(1e-6),
        lambda net: net.norm.running_mean.add_(1.0),
        lambda net: net.norm(torch.ones(2, 4)),  # counts a batch
        lambda net: setattr(net, "more", nn.Linear(1, 1)),
        lambda net: setattr(net, "last", nn.Linear(4, 2, bias=False)),
    ],
)
def test_hash_of_other_weights_is_another(change):
    net = _net()
    digest = weight_hash(net)
    change(net)
    assert weight_hash(net) != digest


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.complex64])
def test_kinds_of_numbers(dtype):
    net = nn.Module()
    net.register_buffer("a", torch.arange(6).reshape(2, 3).to(dtype))
    ((name, shape, kind, digest),) = weight_table(net)
    assert (name, shape, kind) == ("a", [2, 3], str(dtype))
    if dtype != torch.bfloat16:
        assert digest == _digest(net.a.numpy().tobytes())
    changed = copy.deepcopy(net)
    changed.a[1, 2] = 7
    assert weight_hash(changed) != weight_hash(net)


def test_odd_tensors():
    net = nn.Module()
    net.register_buffer("empty", torch.zeros(0, 3))
    net.register_buffer("flag", torch.tensor(True))
    net.register_buffer("number", torch.tensor(3.0))
    dense = torch.tensor([[0.0, 2.0], [0.0, 0.0]])
    net.register_buffer("sparse", dense.to_sparse())
    net.register_buffer("turned", torch.tensor([1 + 2j]).conj())
    table = {row[0]: row[1:] for row in weight_table(net)}
    assert table["empty"] == [[0, 3], "torch.float32", _digest(b"")]
    assert table["flag"] == [[], "torch.bool", _digest(b"\1")]
    assert table["number"][2] == _digest(torch.tensor(3.0).numpy().tobytes())
    assert table["sparse"][2] == _digest(dense.numpy().tobytes())
    assert table["turned"][2] == _digest(torch.tensor([1 - 2j]).numpy().tobytes())


def test_no_weights():
    assert weight_hash(nn.ReLU()) == _digest(b"[]")


class _WithMore(nn.Linear):
    def get_extra_state(self):
        return {"version": 1}


def test_errors():
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.Module, got func"):
        weight_hash(_net)
    message = "The state '_extra_state' of _WithMore is a dict and no tensor, and only"
    with pytest.raises(TypeError, match=message):
        weight_hash(_WithMore(2, 2))


A = ["a", [2, 3], "torch.float32", "00"]
B = ["b", [2], "torch.float32", "11"]


@pytest.mark.parametrize(
    "found, difference",
    [
        ([A, B], ""),
        ([B, A], ""),
        ([A], "it has no 'b'"),
        ([], "it has no 'a'"),
        ([A, B, ["c", [1], "x", "y"]], "it has 'c', which was not there"),
        ([A, ["b", [3], "z", "z"]], "'b' has the shape (3,), and had (2,)"),
        (
            [["a", [2, 3], "torch.int8", "z"], B],
            "'a' has the dtype torch.int8, and had torch.float32",
        ),
        ([[*A[:3], "22"], B], "'a' has other values"),
        # a shape counts before values
        ([[*A[:3], "22"], ["b", [], "z", "z"]], "'b' has the shape (), and had (2,)"),
    ],
)
def test_first_difference(found, difference):
    assert first_difference([A, B], found) == difference
