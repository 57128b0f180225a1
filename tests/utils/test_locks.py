"""Threads and forked children of fits and forward passes."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import os
import threading

import numpy as np
import pytest
import torch
from joblib import Parallel, delayed
from sklearn.base import clone

from skood.detectors import MSP
from skood.epistemic import DeepEnsemble, MCDropout
from skood.nn import TorchClassifier, pretrained
from skood.nn._borrowed_module import borrowed
from skood.nn._functional_network import plain_attention
from skood.utils._locks import TORCH_LOCK, ForkSafeLock
from skood.utils._torch import seeded
from tests._forks import forked, forks


def _data():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    return (rng.normal(size=(60, 3)) + 3 * np.eye(3)[y]).astype(np.float32), y


def test_a_lock_is_reentrant_and_excludes_other_threads():
    lock, order = ForkSafeLock(), []

    def other():
        with lock:
            order.append("other")

    thread = threading.Thread(target=other)
    with lock:
        with lock:
            thread.start()
        thread.join(0.2)
        order.append("this")
    thread.join(30)
    assert order == ["this", "other"]


def test_renewing_keeps_a_lock_of_this_thread():
    lock = ForkSafeLock()
    with lock:
        lock.renew()
    inside, done = threading.Event(), threading.Event()

    def other():
        with lock:
            inside.set()
            done.wait(30)

    # what the child sees: the lock of a thread that never goes on
    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(30)
    held = lock._lock
    lock.renew()
    with lock:
        assert lock._lock is not held
    lock._lock = held
    done.set()
    thread.join(30)


def test_seeded_blocks_of_threads_take_turns():
    """Draws of each block are those of its seed, and the caller's state returns."""
    with seeded(0):
        alone = [torch.rand(3) for _ in range(5)]
    torch.manual_seed(7)
    before = torch.get_rng_state()
    start = threading.Barrier(4)

    def draw():
        start.wait(30)
        actual = []
        with seeded(0):
            for _ in range(5):
                actual.append(torch.rand(3))
                threading.Event().wait(0.005)  # let the others run
        return actual

    actual = Parallel(n_jobs=4, backend="threading")(delayed(draw)() for _ in range(4))
    assert torch.equal(torch.get_rng_state(), before)
    for draws in actual:
        assert all(torch.equal(a, b) for a, b in zip(draws, alone, strict=True))


@pytest.mark.parametrize(
    "estimator",
    [
        TorchClassifier(max_epochs=3, batch_size=8),
        MCDropout(
            TorchClassifier(
                module_params={"dropout": 0.5}, max_epochs=3, random_state=0
            ),
            n_samples=3,
        ),
        DeepEnsemble(TorchClassifier(max_epochs=2), n_members=2),
    ],
    ids=lambda one: type(one).__name__,
)
def test_fits_in_threads_are_those_in_turn(estimator):
    X, y = _data()
    torch.manual_seed(7)
    before = torch.get_rng_state()

    def fitted(seed):
        one = clone(estimator).set_params(random_state=seed).fit(X, y)
        return one.predict_proba(X)

    seeds = [0, 1, 0]
    alone = [fitted(seed) for seed in seeds]
    threads = Parallel(n_jobs=len(seeds), backend="threading")(
        delayed(fitted)(seed) for seed in seeds
    )
    assert torch.equal(torch.get_rng_state(), before)
    for a, b in zip(alone, threads, strict=True):
        np.testing.assert_array_equal(a, b)


def test_ensemble_with_jobs_in_threads():
    from joblib import parallel_config

    X, y = _data()
    ensemble = DeepEnsemble(TorchClassifier(max_epochs=2), n_members=4, random_state=0)
    alone = clone(ensemble).fit(X, y).predict_proba(X)
    before = torch.get_rng_state()
    with parallel_config(backend="threading", n_jobs=4):
        actual = ensemble.set_params(n_jobs=4).fit(X, y).predict_proba(X)
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(actual, alone)


BLOCKS = [borrowed, lambda _: seeded(0), lambda _: plain_attention()]


@forks
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.filterwarnings("ignore")
def test_child_of_fork_while_another_thread_holds_the_lock(block):
    X, y = _data()
    with seeded(0):
        module = torch.nn.Linear(3, 2)
    detector = MSP(pretrained(module)).fit(X)
    inside, done = threading.Event(), threading.Event()

    def hold():
        with block(module):
            inside.set()
            done.wait(300)

    def child():
        torch.set_num_threads(1)
        detector.score_samples(X)
        TorchClassifier(max_epochs=1, random_state=0).fit(X, y)
        with plain_attention():
            pass
        assert torch.backends.mha.get_fastpath_enabled()

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    assert inside.wait(30)
    assert forked(child) == 0
    done.set()
    thread.join(30)
    assert torch.backends.mha.get_fastpath_enabled()


@forks
def test_child_of_fork_by_the_thread_that_holds_the_lock():
    """It still has the lock, and gives it back."""
    with TORCH_LOCK:
        child = os.fork()
        if child == 0:
            with TORCH_LOCK:
                pass
    if child == 0:
        with TORCH_LOCK:
            pass
        os._exit(0)
    with TORCH_LOCK:
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
