"""Tests of the skorch net behind `TorchClassifier`."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from functools import partial

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from skorch.dataset import ValidSplit
from torch import nn

from skood.nn import TorchClassifier, _training
from skood.nn._training import (
    TrainingNet,
    WeightedCrossEntropy,
    forward,
    load_state,
    make_schedule,
    restored_on_error,
    state_to_numpy,
)
from skood.nn._training_data import TrainingSet
from skood.nn._training_options import training_options
from skood.utils._progress import progress

train = partial(TrainingNet.train_epochs, options=training_options(TorchClassifier()))

CONFIG = {
    "module": None,
    "module_params": None,
    "input_shape": (4,),
    "n_classes": 3,
    "optimizer": "adam",
    "lr": 0.01,
    "weight_decay": 0.0,
    "batch_size": 16,
    "max_epochs": 3,
    "seed": 0,
}


@pytest.fixture(autouse=True)
def seed():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.fixture
def X():
    return np.random.RandomState(0).normal(size=(40, 4)).astype(np.float32)


@pytest.fixture
def y(X):
    return X[:, :3].argmax(axis=1)


def net_of(**config):
    return TrainingNet.from_config({**CONFIG, **config}, torch.device("cpu"))


# --- loss --------------------------------------------------------------------


def test_weighted_cross_entropy_is_the_weighted_mean():
    rng = np.random.RandomState(0)
    logits, codes = rng.normal(size=(6, 3)), rng.randint(3, size=6)
    weight = rng.uniform(size=6)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    losses = -log_p[np.arange(6), codes]
    target = torch.tensor(codes), torch.tensor(weight)
    loss = WeightedCrossEntropy()(torch.tensor(logits), target)
    assert_allclose(loss, np.mean(weight * losses))
    loss = WeightedCrossEntropy()(torch.tensor(logits), torch.tensor(codes))
    assert_allclose(loss, np.mean(losses))


# --- schedules ---------------------------------------------------------------


def lrs(name, epochs, batches):
    """Learning rate of each batch under a schedule, from 0.5."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    schedule, by_batch = make_schedule(name, optimizer, epochs, batches)
    seen = []
    for _ in range(epochs):
        for _ in range(batches):
            seen.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            if by_batch:
                schedule.step()
        if schedule is not None and not by_batch:
            schedule.step()
    return seen


def test_no_schedule():
    assert lrs(None, 3, 2) == 6 * [0.5]


def test_cosine_schedule():
    expected = 0.25 * (1 + np.cos(np.pi * np.arange(10) / 10))
    assert_allclose(lrs("cosine", 10, 2), np.repeat(expected, 2))


def test_cosine_schedule_over_batches():
    expected = 0.25 * (1 + np.cos(np.pi * np.arange(20) / 20))
    assert_allclose(lrs("cosine_steps", 10, 2), expected)


@pytest.mark.parametrize("epochs, third", [(9, 3), (10, 4), (2, 1), (1, 1)])
def test_step_schedule(epochs, third):
    expected = 0.5 * 0.1 ** (np.arange(epochs) // third)
    assert_allclose(lrs("step", epochs, 1), expected)


def test_1cycle_schedule():
    """A half cosine up to the peak at 30 % of the steps, and one down."""
    seen = lrs("one_cycle", 10, 10)
    peak = 29  # 0.3 * 100 - 1
    up = np.arange(peak + 1) / peak
    down = np.arange(1, 100 - peak) / (99 - peak)
    low, last = 0.5 / 25, 0.5 / 25 / 1e4
    expected = np.concatenate(
        [
            low + (0.5 - low) * (1 - np.cos(np.pi * up)) / 2,
            last + (0.5 - last) * (1 + np.cos(np.pi * down)) / 2,
        ]
    )
    assert_allclose(seen, expected)


@pytest.mark.parametrize("epochs, batches", [(1, 1), (1, 2), (2, 1)])
def test_1cycle_schedule_of_few_steps(epochs, batches):
    assert all(0 < lr <= 0.5 for lr in lrs("one_cycle", epochs, batches))


# --- the net -----------------------------------------------------------------


@pytest.mark.parametrize("precision", [torch.float32, torch.float64, torch.bfloat16])
def test_net_works_in_the_precision_of_its_module(X, y, precision):
    net = net_of(module=lambda shape, n: nn.Linear(*shape, n).to(precision))
    with progress(2, desc="", verbose=0) as bar:
        train(net, TrainingSet(X, y, np.ones(40)), epochs=2, bar=bar)
    assert net.module_.weight.dtype == precision
    logits = forward(net, X.astype(np.float64))
    assert logits.dtype == np.float64
    with torch.no_grad():
        expected = net.module_(torch.tensor(X).to(precision)).double()
    assert_allclose(logits, expected, rtol=1e-6, atol=1e-6)


def test_mixed_precision(X, y):
    """On a CPU nothing changes; bfloat16 has 8 bits, and its outputs are float32."""
    nets = [net_of(module=conv_net, input_shape=(1, 6, 6)) for _ in range(2)]
    images, logits = np.random.RandomState(0).rand(40, 1, 6, 6).astype("f4"), []
    for net, mixed in zip(nets, (False, True), strict=True):
        torch.manual_seed(0)
        net.initialize()
        options = training_options(TorchClassifier())
        options.set_params(mixed_precision=mixed)
        with progress(2, desc="", verbose=0) as bar:
            train(
                net,
                TrainingSet(images, y, np.ones(40)),
                epochs=2,
                bar=bar,
                options=options,
            )
        logits.append(forward(net, images))
    assert_array_equal(*logits)
    net.mixed_precision_ = True  # as on CUDA
    result = net.infer(images)
    assert result.dtype == torch.float32
    exact = net.module_(torch.from_numpy(images))
    assert 0 < (result - exact).abs().max() < 2**-6 * exact.abs().max()
    assert net.module_[0].weight.dtype == torch.float32


def conv_net(shape, n_classes):
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, n_classes)
    )


def test_net_serves_by_itself(X, y):
    """The skorch net also works on plain arrays, as skorch's nets do."""
    net = net_of(max_epochs=20, lr=0.03)
    net.fit(X, y)
    assert (net.predict(X) == y).mean() > 0.95
    proba = net.predict_proba(X.astype(np.float64))
    logits = forward(net, X)
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert_allclose(proba, expected, rtol=1e-4)
    # it holds a factory and no module, so that a clone is untrained
    again = clone(net).set_params(max_epochs=1, train_split=ValidSplit(2)).fit(X, y)
    assert again.module_ is not net.module_
    assert again.history[-1, "valid_batch_count"] == 2  # 20 rows


def test_training_loss_of_an_epoch_is_the_mean_over_samples(X, y):
    """With a rate that changes nothing it is the loss itself."""
    net = net_of(lr=1e-30)
    weight = np.linspace(1, 2, 40)
    with progress(1, desc="", verbose=0) as bar:
        history = train(
            net,
            TrainingSet(X, y, weight),
            epochs=1,
            bar=bar,
            valid=TrainingSet(X, y, weight),
        )
    logits = forward(net, X)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    expected = np.average(-log_p[np.arange(40), y], weights=weight)
    assert_allclose(history[0]["train_loss"], expected, rtol=1e-6)
    assert_allclose(history[0]["valid_loss"], expected, rtol=1e-6)
    assert history[0]["valid_accuracy"] == (logits.argmax(axis=1) == y).mean()
    assert history[0]["lr"] == 1e-30


def test_net_notes_the_epochs_and_forgets_the_batches(X, y):
    net = net_of()
    with progress(3, desc="", verbose=0) as bar:
        history = train(net, TrainingSet(X, y, np.ones(40)), epochs=3, bar=bar)
    assert net.history[:, "train_loss"] == [row["train_loss"] for row in history]
    assert net.history[:, "batches"] == [[], [], []]
    assert net.train_split is None  # which would keep the validation rows


@pytest.mark.parametrize(
    "optimizer, kind",
    [
        ("adam", torch.optim.Adam),
        ("adamw", torch.optim.AdamW),
        ("sgd", torch.optim.SGD),
        ("nesterov", torch.optim.SGD),
    ],
)
def test_optimizers(optimizer, kind):
    net = net_of(optimizer=optimizer, weight_decay=0.25, lr=0.125)
    assert type(net.optimizer_) is kind
    (group,) = net.optimizer_.param_groups
    assert group["lr"] == 0.125
    assert group["weight_decay"] == 0.25
    assert group.get("momentum", 0.9) == 0.9
    assert group.get("nesterov", False) == (optimizer == "nesterov")


def test_small_batches_are_trained_on_a_single_thread(X, y, monkeypatch):
    seen = []
    net = net_of(batch_size=20)
    net.module_.register_forward_hook(lambda *_: seen.append(torch.get_num_threads()))
    training_set = TrainingSet(X, y, np.ones(40))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for least_work in (20 * 803 + 1, 20 * 803):  # 803 = 4 * 100 + 100 + 100 * 3 + 3
            monkeypatch.setattr(_training, "_MIN_WORK_FOR_THREADS", least_work)
            with progress(1, desc="", verbose=0) as bar:
                train(net, training_set, epochs=1, bar=bar)
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 1, 2, 2]


# --- forward -----------------------------------------------------------------


def sizes_seen(net):
    seen = []
    net.module_.register_forward_hook(lambda m, args, out: seen.append(len(args[0])))
    return seen


def test_forward_bounds_memory():
    def factory(shape, n):
        return nn.Sequential(nn.Flatten(), nn.Linear(2**14, n))

    # 64 bytes for each of the 2 ** 14 numbers: 64 rows in 64 MiB
    X = np.random.RandomState(0).normal(size=(150, 4, 64, 64)).astype(np.float32)
    for batch_size, expected in [(16, [64, 64, 22]), (100, [100, 50])]:
        net = net_of(module=factory, input_shape=(4, 64, 64), batch_size=batch_size)
        seen = sizes_seen(net)
        logits = forward(net, X)
        assert seen == expected
        with torch.no_grad():
            assert_allclose(logits, net.module_(torch.tensor(X)), atol=1e-5)


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_logits_of_a_row_do_not_depend_on_the_others(X, kind):
    net = net_of()
    logits = forward(net, kind(X))
    seen = sizes_seen(net)
    single = np.concatenate([forward(net, kind(X[i : i + 1])) for i in range(40)])
    assert seen == 40 * [32]
    assert_allclose(single, logits, rtol=0, atol=1e-6)


def test_forward_does_not_change_its_input(X):
    net = net_of(
        module=lambda shape, n: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, n))
    )
    before = X.copy()
    forward(net, X)
    assert_array_equal(X, before)
    forward(net, torch.from_numpy(X))
    assert_array_equal(X, before)


# --- state -------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_state_round_trip(X, y, optimizer, precision):
    def factory(shape, n):
        module = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, n))
        return module.to(precision)

    training_set = TrainingSet(X, y, np.ones(40))
    net, other = (net_of(module=factory, optimizer=optimizer) for _ in range(2))

    def fit(net):
        torch.manual_seed(1)
        with progress(2, desc="", verbose=0) as bar:
            train(net, training_set, epochs=2, bar=bar)

    fit(net)
    state = state_to_numpy(net)
    assert all(isinstance(value, np.ndarray) for value in state["module"].values())
    load_state(other, state)
    assert_array_equal(forward(other, X), forward(net, X))
    before = state["module"]["1.weight"].copy()
    fit(net)
    fit(other)  # with the same moments of the optimizer
    assert_array_equal(forward(other, X), forward(net, X))
    assert_array_equal(state["module"]["1.weight"], before)  # the state is a copy


def test_restored_on_error(X, y):
    training_set = TrainingSet(X, y, np.ones(40))
    net = net_of(module=lambda s, n: nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, n)))
    with progress(2, desc="", verbose=0) as bar:
        train(net, training_set, epochs=2, bar=bar)
    before = state_to_numpy(net)
    with pytest.raises(KeyboardInterrupt), restored_on_error(net):
        net.fit_loop(training_set, epochs=3)
        raise KeyboardInterrupt
    after = state_to_numpy(net)
    for name, value in before["module"].items():
        assert_array_equal(after["module"][name], value)
    for name, value in before["optimizer"]["state"][0].items():
        assert_array_equal(after["optimizer"]["state"][0][name], value)
    assert not net.module_.training
