"""Tests of the helpers around torch."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from torch import nn

from skood.utils._torch import (
    check_tensor,
    evaluating,
    is_tensor,
    parameter_device,
    parameter_dtype,
    resolve_device,
    row_chunks,
    seeded,
    to_numpy,
    to_tensor,
    training,
)
from tests._loops import looped

needs_cuda = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA device"
)


def test_importing_the_files_does_not_import_torch():
    code = """
        import sys
        import numpy as np
        from skood.utils import _array_api, _batches, _progress, _torch

        x = np.ones((2, 3))
        assert not _torch.is_tensor(x)
        assert _torch.to_numpy(x) is x
        _array_api.unit_rows(x), _array_api.top_k(x, 1), _array_api.nearest(x, x)
        assert _array_api.array_device("cpu", x) is None
        assert _array_api.array_device("auto", x) is None
        assert not _batches.is_lazy(x)
        _batches.loaded(x)
        assert not {"torch", "dask", "skorch"} & set(sys.modules)
        """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


# --- devices -----------------------------------------------------------------


@pytest.fixture
def no_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def two_cudas(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)


def test_resolve_device_without_cuda(no_cuda):
    assert resolve_device() == torch.device("cpu")
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device(torch.device("cpu")) == torch.device("cpu")
    with pytest.raises(ValueError, match=r"'cuda:1' was requested, but torch finds no"):
        resolve_device("cuda:1")


def test_resolve_device_with_cuda(two_cudas):
    assert resolve_device("auto") == torch.device("cuda", 1)
    assert resolve_device("cuda") == torch.device("cuda", 1)
    assert resolve_device(torch.device("cuda:0")) == torch.device("cuda", 0)
    with pytest.raises(
        ValueError, match=r"only 2 CUDA device\(s\): pass an index from"
    ):
        resolve_device("cuda:2")


@pytest.mark.parametrize("device", ["gpu", "cuda:x", ""])
def test_resolve_device_unknown(device):
    with pytest.raises(ValueError, match=f"Unknown device '{device}'. Pass 'auto'"):
        resolve_device(device)


def test_resolve_device_that_holds_no_data():
    with pytest.raises(ValueError, match="Device 'meta' cannot hold data"):
        resolve_device("meta")


def test_resolve_device_of_another_kind(monkeypatch):
    monkeypatch.setattr(torch, "empty", lambda *args, device: torch.zeros(1))
    assert resolve_device("xpu:0") == torch.device("xpu:0")


@pytest.mark.parametrize("device", [None, 0])
def test_resolve_device_type(device):
    with pytest.raises(TypeError, match=f"Got {device} of type"):
        resolve_device(device)


# --- tensors -----------------------------------------------------------------


@pytest.mark.parametrize(
    "X",
    [
        np.array([[1.0, 2.0]]),
        torch.tensor([[1.0, 2.0]]),
        torch.tensor([[1.0, 2.0]], requires_grad=True),
        torch.tensor([[1.0, 2.0]], dtype=torch.bfloat16),
        torch.tensor([[1.0, 2.0]]).to_sparse(),
        torch.tensor([[1.0 + 0j, 2.0]]).conj(),
    ],
    ids=["array", "plain", "gradient", "bfloat16", "sparse", "conjugate"],
)
def test_to_numpy(X):
    array = to_numpy(X)
    assert isinstance(array, np.ndarray)
    assert_array_equal(array, [[1.0, 2.0]])
    assert is_tensor(X) == (not isinstance(X, np.ndarray))


def test_to_numpy_passes_other_things_through():
    X = [1, 2]
    assert to_numpy(X) is X


def test_to_tensor_shares_only_what_may_be_written_to():
    X = np.arange(6.0)
    assert to_tensor(X).data_ptr() == X.ctypes.data
    X.setflags(write=False)
    tensor = to_tensor(X)
    assert tensor.data_ptr() != X.ctypes.data
    assert_array_equal(to_tensor(X[::-1]), X[::-1])
    assert to_tensor(tensor) is tensor
    assert to_tensor(X, "cpu", torch.float16).dtype == torch.float16


def test_check_tensor_returns_detached_float32():
    X = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
    checked = check_tensor(X)
    assert checked.dtype == torch.float32
    assert not checked.requires_grad
    X = torch.ones(2, 3)
    assert check_tensor(X).data_ptr() == X.data_ptr()


def test_check_tensor_accepts_values_whose_sum_overflows():
    X = torch.full((2, 2), 3e38)
    assert torch.equal(check_tensor(X), X)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_check_tensor_not_finite(value):
    X = torch.ones(2, 3, dtype=torch.float64)
    X[1, 2] = value
    with pytest.raises(ValueError, match="Input X contains NaN, infinity or a value"):
        check_tensor(X)


@pytest.mark.parametrize("shape", [(), (3,), (0, 3), (3, 0), (2, 0, 4)])
def test_check_tensor_shape(shape):
    with pytest.raises(ValueError, match=r"got a tensor of shape \("):
        check_tensor(torch.ones(shape))


@pytest.mark.parametrize("X", [torch.eye(2).to_sparse(), torch.eye(2) + 0j])
def test_check_tensor_kind(X):
    with pytest.raises(TypeError, match="X must be a dense tensor of real numbers"):
        check_tensor(X)


# --- chunks ------------------------------------------------------------------


@looped("n_rows", [0, 1, 7, 8, 9])
@looped("bytes_per_row, longest", [(1, 8), (3, 2), (8, 1), (100, 1)])
def test_row_chunks_cover_all_samples_within_the_budget(n_rows, bytes_per_row, longest):
    chunks = list(row_chunks(n_rows, bytes_per_row, budget=8))
    rows = [row for chunk in chunks for row in range(n_rows)[chunk]]
    assert rows == list(range(n_rows))
    assert all(chunk.stop - chunk.start == longest for chunk in chunks[:-1])
    assert all(1 <= chunk.stop - chunk.start <= longest for chunk in chunks)


def test_row_chunks_default_budget():
    assert next(row_chunks(10**9, 1024)) == slice(0, 65536)
    assert next(row_chunks(5, 0)) == slice(0, 5)


# --- seeds -------------------------------------------------------------------


def test_seeded_is_reproducible_and_restores_the_generator():
    before = torch.get_rng_state()
    draws = []
    for random_state in (3, 3, np.random.RandomState(3), 4):
        with seeded(random_state) as seed:
            draws.append((seed, torch.rand(4)))
    assert torch.equal(torch.get_rng_state(), before)
    assert draws[0][0] == draws[1][0] == draws[2][0] != draws[3][0]
    assert torch.equal(draws[0][1], draws[1][1])
    assert torch.equal(draws[0][1], draws[2][1])
    assert not torch.equal(draws[0][1], draws[3][1])
    assert draws[0][0] == np.random.RandomState(3).randint(2**31 - 1)
    expected = torch.Generator().manual_seed(draws[0][0])
    assert torch.equal(draws[0][1], torch.rand(4, generator=expected))


def test_seeded_restores_the_generator_after_an_error():
    before = torch.get_rng_state()
    with pytest.raises(KeyboardInterrupt), seeded(0):
        torch.rand(1)
        raise KeyboardInterrupt
    assert torch.equal(torch.get_rng_state(), before)


def test_seeded_leaves_cuda_alone_unless_it_runs_or_is_asked_for(monkeypatch):
    calls = []
    running = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: bool(running))
    monkeypatch.setattr(torch.cuda, "init", lambda: running.append(True))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", calls.append)
    with seeded(0, "cpu"):
        pass
    assert calls == []
    with seeded(0, torch.device("cuda")) as seed:
        pass
    assert calls == [seed]


@pytest.mark.gpu
@needs_cuda
def test_seeded_on_cuda():
    torch.rand(1, device="cuda")
    before = torch.cuda.get_rng_state()
    with seeded(0, torch.device("cuda")):
        a = torch.rand(3, device="cuda")
    with seeded(0, torch.device("cuda")):
        b = torch.rand(3, device="cuda")
    assert torch.equal(a, b)
    assert torch.equal(torch.cuda.get_rng_state(), before)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_training_in_a_mode_of_the_caller(mode):
    before = torch.get_rng_state()
    with mode():
        with training(0) as seed:
            layer = nn.Linear(2, 1)
            layer(torch.ones(1, 2)).sum().backward()
            drawn = torch.rand(1)
        assert not torch.is_grad_enabled()
        assert torch.is_inference_mode_enabled() == (mode is torch.inference_mode)
    assert not layer.weight.is_inference()
    assert layer.weight.grad.tolist() == [[1.0, 1.0]]
    assert torch.equal(torch.get_rng_state(), before)
    with seeded(0) as same:
        nn.Linear(2, 1)
        assert torch.equal(drawn, torch.rand(1))
    assert seed == same


# --- modules -----------------------------------------------------------------


def test_evaluating_restores_the_mode_of_each_submodule():
    module = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(), nn.ReLU()))
    module[1].eval()
    module[1][1].train()
    modes = [part.training for part in module.modules()]
    with pytest.raises(RuntimeError), evaluating(module) as same:
        assert same is module
        assert not any(part.training for part in module.modules())
        raise RuntimeError
    assert [part.training for part in module.modules()] == modes


def test_evaluating_a_module_in_eval_mode_does_not_touch_it(monkeypatch):
    module = nn.Linear(2, 2).eval()
    monkeypatch.setattr(module, "eval", lambda: pytest.fail("eval was called"))
    with evaluating(module):
        assert not module.training


class _Buffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(1, dtype=torch.float64))


@pytest.mark.parametrize(
    "module, dtype",
    [
        (nn.Linear(2, 2), torch.float32),
        (nn.Linear(2, 2).half(), torch.float16),
        (_Buffer(), torch.float64),
        (nn.ReLU(), torch.float32),
    ],
)
def test_parameter_dtype(module, dtype):
    assert parameter_dtype(module) == dtype
    assert parameter_device(module) == torch.device("cpu")


def test_parameter_device_of_a_module_without_parameters_is_the_default():
    assert parameter_device(nn.ReLU(), "meta") == torch.device("meta")
    assert parameter_device(nn.Linear(1, 1, device="meta")) == torch.device("meta")
