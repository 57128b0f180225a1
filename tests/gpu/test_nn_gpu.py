"""Outputs of networks on a GPU are those of the CPU, and leaves them at home."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle

import numpy as np
import pytest
import skorch
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

from skood.detectors import KNN, Energy
from skood.nn import FeatureExtractor, MultiHeadClassifier, pretrained, split
from skood.nn._make_network import make_network
from tests._loops import looped
from tests.nn._outputs import ALL, assert_head, read

pytestmark = pytest.mark.gpu


def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 16),
        nn.ReLU(),
        nn.Linear(16, 5),
    )


@pytest.fixture
def images():
    return np.random.default_rng(0).normal(size=(300, 3, 9, 9)).astype(np.float32)


@pytest.mark.parametrize("device", ["cuda", "cuda:0", torch.device("cuda"), "auto"])
def test_reader_equals_cpu(images, device):
    module = net()
    clf = pretrained(module)
    expected = read(clf, images, ALL, device="cpu")
    outputs = read(clf, images, ALL, device=device)
    assert_allclose(outputs.features, expected.features, rtol=1e-5, atol=1e-5)
    assert_allclose(outputs.logits, expected.logits, rtol=1e-5, atol=1e-5)
    assert_array_equal(outputs.head.coef, expected.head.coef)
    for layer in ("0", "2", "5"):
        a, b = (
            read(clf, images, {"features"}, layer=layer, device=d).features
            for d in (device, "cpu")
        )
        assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def state(module):
    tensors = [*module.parameters(), *module.buffers()]
    return (
        [t.detach().cpu().clone() for t in tensors],
        [t.device for t in tensors],
        [id(p) for p in module.parameters()],
        [m.training for m in module.modules()],
        [p.grad.cpu().clone() for p in module.parameters()],
        [p.grad.device for p in module.parameters()],
    )


@looped("home", ["cpu", "cuda"])
@looped("device", ["cpu", "cuda", "auto"])
@looped("fails", [False, True])
def test_module_comes_back(images, home, device, fails):
    module = net().to(home)
    module[1].eval()
    module(torch.as_tensor(images, device=home)).sum().backward()
    before = state(module)
    reader = make_network(pretrained(module), device=device, batch_size=64)
    where = []

    def look(module, args):
        where.append(args[0].device.type)
        if fails:
            raise KeyboardInterrupt

    handle = module[7].register_forward_pre_hook(look)
    try:
        list(reader.iter_outputs(images, ALL))
    except KeyboardInterrupt:
        assert fails
    handle.remove()
    assert set(where) == {home if device == "auto" else device}
    for a, b in zip(state(module), before, strict=True):
        for x, y in zip(a, b, strict=True):
            assert torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y


def test_samples_on_the_gpu(images):
    clf = pretrained(net())
    expected = read(clf, images, {"logits"}, device="cpu").logits
    samples = torch.as_tensor(images, device="cuda")
    for device in ("cuda", "cpu"):
        logits = read(clf, samples, {"logits"}, device=device).logits
        assert isinstance(logits, np.ndarray)
        assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)


def test_half_precision_on_the_gpu(images):
    module = net().cuda().half()
    outputs = read(pretrained(module), images, ALL)
    assert_head(outputs, rtol=1e-2, atol=1e-2)


def test_split_and_extractor(images):
    clf = pretrained(net(), input_shape=(3, 9, 9))
    body, head = split(clf)  # runs on the GPU
    Z = body.transform(images)
    assert_allclose(
        Energy(head).fit(Z).score_samples(Z),
        Energy(clf).fit(images).score_samples(images),
        rtol=1e-5,
        atol=1e-5,
    )
    on_cpu = FeatureExtractor(clf, device="cpu").fit(images).transform(images)
    assert_allclose(Z, on_cpu, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_skorch_net_runs_where_it_lives(images, device):
    y = np.arange(300) % 5
    clf = skorch.NeuralNetClassifier(
        net,
        criterion=nn.CrossEntropyLoss,
        max_epochs=1,
        verbose=0,
        train_split=None,
        device=device,
    ).fit(images, y)
    assert_allclose(
        read(clf, images, {"logits"}).logits,
        clf.forward(images).cpu().numpy(),
        rtol=1e-4,
        atol=1e-5,
    )
    assert {p.device.type for p in clf.module_.parameters()} == {device}


def test_several_heads(images):
    y = np.column_stack([np.arange(300) % 5, np.arange(300) % 2])
    options = {"max_epochs": 5, "batch_size": 300, "random_state": 0}
    options["class_weight"] = ["balanced", {0: 1, 1: 2}]
    on_cpu = MultiHeadClassifier(device="cpu", **options).fit(images, y)
    on_gpu = MultiHeadClassifier(device="cuda", **options)
    # torch draws other initial weights on CUDA only if a module asks it to
    on_gpu.fit(torch.as_tensor(images, device="cuda"), torch.as_tensor(y))
    assert all(head.weight.is_cuda for head in on_gpu.module_.heads)
    for a, b in zip(
        on_gpu.predict_logits(images), on_cpu.predict_logits(images), strict=True
    ):
        assert_allclose(a, b, rtol=1e-2, atol=1e-3)
    loaded = pickle.loads(pickle.dumps(on_gpu.head(1)))
    assert_array_equal(loaded.predict_proba(images), on_gpu.predict_proba(images)[1])
    scores = Energy(on_gpu.head(0)).fit(images).score_samples(images)
    expected = Energy(on_cpu.head(0)).fit(images).score_samples(images)
    assert_allclose(scores, expected, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("normalize", [True, False])
def test_knn_on_the_gpu_equals_cpu(normalize):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(5000, 32)).astype(np.float32)
    new = rng.normal(size=(700, 32)).astype(np.float32) * 2
    options = {"n_neighbors": 10, "normalize": normalize}
    on_gpu = KNN(algorithm="torch", device="cuda", **options).fit(Z)
    on_cpu = KNN(algorithm="sklearn", **options).fit(Z)
    assert_allclose(on_gpu.score_samples(new), on_cpu.score_samples(new), rtol=1e-5)
    assert on_gpu.offset_ == pytest.approx(on_cpu.offset_, rel=1e-5)


@pytest.mark.parametrize("home", ["cpu", "cuda"])
def test_batches_are_sent_ahead(images, home, monkeypatch):
    """Pinned memory is not used again before it was sent."""
    X = np.tile(images, (20, 1, 1, 1)) + np.arange(6000)[:, None, None, None] % 89
    for dtype in (np.float32, np.float64, np.float16):
        samples = X.astype(dtype)
        expected = pretrained(net(), device="cpu").predict_logits(samples)
        clf = pretrained(net().to(home), device="cuda", batch_size=100)
        for _ in range(3):
            assert_allclose(clf.predict_logits(samples), expected, rtol=1e-4, atol=1e-2)
    monkeypatch.setattr("skood.nn._torch_network._BLOCK_BYTES", 5000)  # many blocks
    assert_allclose(clf.predict_logits(samples), expected, rtol=1e-4, atol=1e-2)


def test_bfloat16(images):
    module = net().to("cuda", memory_format=torch.channels_last)
    expected = pretrained(module).predict_logits(images)
    half = pretrained(module, precision="bfloat16").predict_logits(images)
    assert 1e-5 < np.abs(half - expected).max() / np.abs(expected).max() < 0.03
