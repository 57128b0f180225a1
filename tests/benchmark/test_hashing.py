"""Tests of the content hash: equal for equal content, different for any other."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import functools
import math
import pickle
import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.ensemble import IsolationForest, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skood
from skood.benchmark import _hashing
from skood.benchmark._hashing import (
    _hash_of_sources,
    _join,
    code_version,
    content_hash,
    versions,
)
from skood.detectors import KNN, MSP, Energy
from skood.nn import TorchClassifier, pretrained

X = np.arange(12.0).reshape(4, 3)
Y = np.array([0, 1, 0, 1])


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.2)
    )


def forest():
    return FrozenEstimator(RandomForestClassifier(3, random_state=0).fit(X, Y))


def trained():
    return FrozenEstimator(TorchClassifier(max_epochs=1, random_state=0).fit(X, Y))


class Plain:
    def __init__(self, value):
        self.value = value


def scaled(factor):
    return lambda x: factor * x


THINGS = {
    "number": lambda: 3,
    "text": lambda: "a",
    "none": lambda: None,
    "array": lambda: X.copy(),
    "columns first": lambda: np.asfortranarray(X + 1),
    "read-only view": lambda: np.broadcast_to(np.float64(2), (4, 3)),
    "scalar array": lambda: np.array(5.0),
    "NumPy number": lambda: np.float32(5),
    "text array": lambda: np.array(["ant", "bee"]),
    "dates": lambda: np.array(["2020-01-01"], dtype="datetime64[D]"),
    "objects": lambda: np.array(["ant", 3, None], dtype=object),
    "fields": lambda: np.array([(1, 2.0)], dtype=[("a", "i1"), ("b", "f8")]),
    "tensor": lambda: torch.arange(5),
    "bfloat16": lambda: torch.ones(3, dtype=torch.bfloat16),
    "sparse": lambda: sp.csr_matrix(X),
    "frame": lambda: pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}),
    "series": lambda: pd.Series([1, 2], name="a"),
    "list": lambda: [1, [2, "three"]],
    "tuple": lambda: (1, [2, "three"]),
    "dict": lambda: {"b": 1, "a": X},
    "set": lambda: {"ant", "bee", "cow"},
    "range": lambda: range(3),
    "class": lambda: Plain,
    "module": lambda: math,
    "library function": lambda: np.mean,
    "builtin": lambda: len,
    "ufunc": lambda: np.exp,
    "closure": lambda: scaled(3),
    "partial": lambda: functools.partial(scaled, 3),
    "object": lambda: Plain(3),
    "RandomState": lambda: np.random.RandomState(0),
    "Generator": lambda: np.random.default_rng(0),
    "detector": lambda: KNN(n_neighbors=3),
    "pipeline": lambda: make_pipeline(StandardScaler(), KNN()),
    "forest": forest,
    "torch module": network,
    "trained": trained,
    "pretrained": lambda: pretrained(
        torch.nn.Sequential(network(), torch.nn.Linear(4, 2))
    ),
    "reads": lambda: Energy(trained()),
}


@pytest.mark.parametrize("name", THINGS)
def test_equal_content_has_an_equal_hash(name):
    assert content_hash(THINGS[name]()) == content_hash(THINGS[name]())


def test_different_content_has_a_different_hash():
    hashes = [content_hash(make()) for make in THINGS.values()]
    assert len(set(hashes)) == len(THINGS)


def changed_network():
    net = network()
    with torch.no_grad():
        net[1].running_mean[2] += 1e-6
    return net


def other_dropout():
    net = network()
    net[2].p = 0.3
    return net


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (X, X.astype(np.float32)),
        (X, X.reshape(3, 4)),
        (np.array([1, 2]), [1, 2]),
        (1, 1.0),
        (1, True),
        (["ab", "c"], ["a", "bc"]),
        ([[1], 2], [[1, 2]]),
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, [("a", 1)]),
        (scaled(3), scaled(4)),
        (lambda x: x + 1, lambda x: x + 2),
        (lambda x, a=1: x, lambda x, a=2: x),
        (network(), changed_network()),
        (network(), other_dropout()),
        (KNN(), KNN(contamination=0.1)),
        (MSP(KNN()), MSP(KNN(n_neighbors=2))),
        (IsolationForest(), FrozenEstimator(IsolationForest())),
        (np.random.RandomState(0), np.random.RandomState(1)),
        (pd.Series([1, 2], name="a"), pd.Series([1, 2], name="b")),
        (pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [1.0]})),
        (sp.csr_matrix(X), sp.csc_matrix(X)),
    ],
)
def test_what_counts(one, other):
    assert content_hash(one) != content_hash(other)
    assert content_hash(one, other) != content_hash(other, one)


def test_what_does_not_count():
    assert content_hash({"a": 1, "b": 2}) == content_hash({"b": 2, "a": 1})
    assert content_hash(np.asfortranarray(X)) == content_hash(X)
    # an estimator that will be cloned counts by its parameters, a frozen one by its fit
    fitted = IsolationForest(n_estimators=5, random_state=0).fit(X)
    assert content_hash(fitted) == content_hash(
        IsolationForest(n_estimators=5, random_state=0)
    )
    frozen = content_hash(FrozenEstimator(fitted))
    other = clone(fitted).fit(X[:3])
    assert frozen != content_hash(FrozenEstimator(other))
    assert frozen == content_hash(FrozenEstimator(pickle.loads(pickle.dumps(fitted))))
    # the mode of a network, and its hooks
    net = network()
    net.register_forward_hook(print)
    assert content_hash(net.eval()) == content_hash(network())


def test_how_long_an_epoch_took_does_not_count():
    def frozen(seconds, n_epochs=1):
        fitted = KNN()
        fitted.history_ = [{"seconds": seconds}]
        fitted.n_epochs_ = n_epochs
        return FrozenEstimator(fitted)

    assert content_hash(frozen(1.0)) == content_hash(frozen(2.0))
    assert content_hash(frozen(1.0)) != content_hash(frozen(1.0, n_epochs=2))


def test_parts_do_not_run_into_each_other():
    assert _join("a", "bc") != _join("ab", "c")


def test_memory_map(tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert content_hash(mapped) == content_hash(X)


def test_large_arrays_are_read_in_chunks(monkeypatch):
    whole = content_hash(X)
    monkeypatch.setattr(_hashing, "_CHUNK_BYTES", 30)  # of one row
    assert content_hash(X) == whole
    assert content_hash(X[:0]) != content_hash(X[:0, :0])


def test_what_holds_itself():
    def loop(value):
        things = [value]
        things.append(things)
        return things

    assert content_hash(loop(1)) == content_hash(loop(1))
    assert content_hash(loop(1)) != content_hash(loop(2))


def test_what_is_there_twice_is_looked_at_once():
    subset = Plain(X)
    assert content_hash([subset, subset]) == content_hash([subset, Plain(X.copy())])


def test_code_of_a_class_counts():
    def make(body):
        names = {"__name__": "a_user"}
        exec(f"class A:\n    def f(self):\n        return {body}", names)
        return names["A"]

    assert content_hash(make("1")) == content_hash(make("1"))
    assert content_hash(make("1")) != content_hash(make("2"))


def test_order_of_a_set_does_not_count():
    first, other = {0, 8}, {8, 0}  # of one bucket: what came first is first
    assert list(first) != list(other)
    assert content_hash(first) == content_hash(other)


@pytest.mark.slow  # strings have another hash there
def test_another_process_gets_the_same():
    code = (
        "import numpy as np; from skood.detectors import KNN\n"
        "from skood.benchmark._hashing import content_hash\n"
        "rng = np.random.RandomState(0)\n"
        "print(content_hash({'a', 'b', 'c'}, KNN(), np.arange(3), rng))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    here = content_hash({"a", "b", "c"}, KNN(), np.arange(3), np.random.RandomState(0))
    assert done.stdout.decode().strip() == here


def test_unknown_content():
    with pytest.raises(TypeError, match=r"The content of a lock is unknown: .*Leave"):
        content_hash(KNN(n_neighbors=threading.Lock()))


def test_versions():
    actual = versions()
    assert actual["skood"] == skood.__version__
    assert actual["numpy"] == np.__version__
    libraries = {"numpy", "python", "scikit-learn", "scipy", "skood", "skorch", "torch"}
    assert set(actual) == libraries


def test_sources_count_in_a_development_version(monkeypatch):
    monkeypatch.setattr(skood, "__version__", "1.2.0.dev0")
    actual = code_version()
    assert len(actual.pop("sources")) == 64
    assert actual == versions()
    monkeypatch.setattr(skood, "__version__", "1.2.0")
    assert code_version() == versions()


def test_hash_of_sources(tmp_path):
    def of(**files):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        for name, text in files.items():
            (folder / name).mkdir(parents=True)
            (folder / name / "a.py").write_text(text)
            (folder / name / "a.pyc").write_text(str(folder))
        return _hash_of_sources(folder)

    first = of(x="1", y="2")
    assert of(y="2", x="1") == first  # whatever the folder
    assert len({first, of(x="1", y="3"), of(x="1", z="2"), of(x="1"), of(x="12")}) == 5
