"""Tests of fitting and scoring on memory-mapped files, and of the memory it takes.

The test of a large file runs where ``SKOOD_SCALE_ROWS`` says of how many rows; it takes
minutes, and 2 KiB of disk for each row.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import json
import os
import pickle
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline

import skood.detectors._common._base_output_detector as base
from skood.detectors import (
    GMM,
    KNN,
    SSD,
    Energy,
    Mahalanobis,
    NNGuide,
    Residual,
    ViM,
)
from skood.nn import LinearHead
from tests._instances import output_detectors
from tests._loops import looped
from tests._scale import write_rows

CHILD = Path(__file__).with_name("_scale.py")
ROWS = int(os.environ.get("SKOOD_SCALE_ROWS", "0"))
NIGHTLY = "SKOOD_NIGHTLY" in os.environ
N_ROWS = 2000 if NIGHTLY else 600
FORMER = 3 * N_ROWS // 5  # rows that are fitted on
FEW = 20  # columns

pytestmark = pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")


def _rows():
    rng = np.random.default_rng(0)
    y = rng.integers(FEW, size=N_ROWS)  # columns are features, or logits
    y[rng.random(N_ROWS) < 0.1] = -1
    X = rng.normal(size=(N_ROWS, FEW)) + 3 * np.eye(FEW)[y]
    return X.round(1), y


@cache
def _fitted():
    """Fitted classifiers by name."""
    X, y = _rows()
    X, y = X[y >= 0], y[y >= 0]
    body = make_pipeline(PCA(10), LogisticRegression())
    return {
        "linear": LogisticRegression(max_iter=500).fit(X, y),
        "head": LinearHead(np.eye(FEW), np.ones(FEW)).fit(X, y),
        "pipeline": body.fit(X, y),
        "network": MLPClassifier((8,), max_iter=200, random_state=0).fit(X, y),
    }


_SMALL = {"n_neighbors": 3, "max_samples": 0.5, "random_state": 0}
_DETECTORS = output_detectors(variants=NIGHTLY, **_SMALL)
FITS_HEAD = [one for one in _DETECTORS if one._fits_head]
ALONE = [one for one in _DETECTORS if one not in FITS_HEAD]


@pytest.fixture(params=[False, True], ids=["one_block", "many_blocks"])
def blocks(request, monkeypatch):
    """Whether the rows are more than a block, and than a chunk of scores."""
    if request.param:
        monkeypatch.setattr(base, "BLOCK_BYTES", 8 * 256 * 100)
        monkeypatch.setattr(base.OutputDetector, "_chunk_bytes", 8 * 4 * FEW * 70)
    return request.param


def _mapped(X, folder):
    np.save(folder / "X.npy", X)
    mapped = np.load(folder / "X.npy", mmap_mode="r")
    assert isinstance(mapped, np.memmap)
    return mapped


def _assert_same(detector, X, y, folder):
    """Fit and score a file, and the same rows in memory."""
    mapped = _mapped(X, folder)
    expected = clone(detector).fit(X[:FORMER], y[:FORMER])
    actual = clone(detector).fit(mapped[:FORMER], y[:FORMER])
    assert actual.offset_ == expected.offset_
    # a triangular product is rounded by the number of samples
    rtol = 1e-12 if isinstance(detector, GMM) else 0
    scores = expected.score_samples(X)
    np.testing.assert_allclose(actual.score_samples(mapped), scores, rtol=rtol, atol=0)
    assert actual.n_features_in_ == FEW


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("detector", ALONE, ids=repr)
def test_a_file_is_as_good_as_an_array(detector, tmp_path):
    X, y = _rows()
    _assert_same(detector, X.astype(np.float32), y, tmp_path)


@pytest.mark.usefixtures("blocks")
@looped("dtype", ["float64", "float16", ">f4", "int8", "uint16", "?"])
@pytest.mark.parametrize("detector", [Energy(), Mahalanobis(), ViM()], ids=repr)
def test_a_file_of_another_kind_of_number(detector, dtype, tmp_path):
    X, y = _rows()
    X = (np.abs(X) if dtype == "uint16" else X - (dtype == "?")).astype(dtype)
    _assert_same(detector, X, y, tmp_path)


@pytest.mark.usefixtures("blocks")
@looped("dtype", ["float32", "float16"])
@pytest.mark.parametrize("detector", FITS_HEAD, ids=repr)
def test_the_head_of_a_frozen_classifier(detector, dtype, tmp_path):
    X, y = _rows()
    head = _fitted()["head"]
    detector = clone(detector).set_params(estimator=FrozenEstimator(head))
    _assert_same(detector, X.astype(dtype), y, tmp_path)


@pytest.mark.usefixtures("blocks")
@looped("dtype", ["float32", "float16"])
@looped("name", ["linear", "head", "pipeline", "network"])
@pytest.mark.parametrize("detector", [Energy(), KNN(n_neighbors=3), ViM()], ids=repr)
def test_a_frozen_classifier(detector, name, dtype, tmp_path):
    X, y = _rows()
    frozen = FrozenEstimator(_fitted()[name])
    detector = clone(detector).set_params(estimator=frozen)
    _assert_same(detector, X.astype(dtype), y, tmp_path)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_classifier_that_is_fitted(dtype, tmp_path):
    X, y = _rows()
    detector = NNGuide(LogisticRegression(), n_neighbors=3)
    _assert_same(detector, X.astype(dtype), y, tmp_path)


def test_blocks_change_no_more_than_the_order_of_sums(monkeypatch):
    X, y = _rows()
    network = FrozenEstimator(_fitted()["network"])
    whole = Energy(network).fit(X, y).score_samples(X)
    monkeypatch.setattr(base, "BLOCK_BYTES", 8 * 256 * 100)
    parts = Energy(network).fit(X, y).score_samples(X)
    np.testing.assert_allclose(parts, whole, rtol=1e-12)


@pytest.mark.parametrize("frozen", [False, True])
def test_partial_fit_on_parts_of_a_file(frozen, tmp_path):
    X, y = _rows()
    mapped = _mapped(X, tmp_path)
    one = Residual(FrozenEstimator(_fitted()["head"])) if frozen else SSD()
    two = clone(one)
    for rows in (slice(0, N_ROWS // 2), slice(N_ROWS // 2, N_ROWS)):
        one.partial_fit(X[rows], y[rows])
        two.partial_fit(mapped[rows], y[rows])
    assert one.offset_ == two.offset_
    np.testing.assert_array_equal(one.score_samples(X), two.score_samples(mapped))


def test_explain_samples_of_a_file(tmp_path):
    pd = pytest.importorskip("pandas")
    X, y = _rows()
    X = X.astype(np.float16)
    detector = ViM(FrozenEstimator(_fitted()["head"])).fit(X, y)
    expected = detector.explain(X[:50])
    pd.testing.assert_frame_equal(detector.explain(_mapped(X[:50], tmp_path)), expected)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_fitted_state_does_not_grow_with_the_samples(method):
    X, y = _rows()
    X, y = np.tile(X, (12_000 // N_ROWS, 1)), np.tile(y, 12_000 // N_ROWS)
    few, many = (
        getattr(SSD(), method)(X[:n], y[:n]) for n in (len(X) // 2 + 10, len(X))
    )
    assert len(pickle.dumps(many)) < len(pickle.dumps(few)) + 1000


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_ood_samples_may_have_any_values(dtype, tmp_path):
    X, y = _rows()
    X = X.astype(dtype)
    X[np.flatnonzero(y == -1)[-1]] = np.nan
    detector = Mahalanobis().fit(_mapped(X, tmp_path), y)
    assert np.isfinite(detector.offset_)
    X[np.flatnonzero(y >= 0)[-1]] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        detector.fit(_mapped(X, tmp_path), y)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        detector.score_samples(_mapped(X, tmp_path))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_another_number_of_columns(dtype, tmp_path):
    X, y = _rows()
    X = X.astype(dtype)
    for detector in (SSD(), Energy(FrozenEstimator(_fitted()["linear"]))):
        detector.fit(X, y)
        with pytest.raises(ValueError, match=f"X has {FEW - 1} features, but "):
            detector.score_samples(_mapped(X[:, 1:], tmp_path))


def _run(path, names, **limits):
    """Run the script; return what it printed and its error."""
    job = {"path": str(path), "names": names, "chunk": None, "limit": None}
    job |= {"total": None, **limits}
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(CHILD.parent.parent),
        # memory that is freed is given back, and none is reserved
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_MMAP_THRESHOLD_": "65536",
    }
    done = subprocess.run(
        [sys.executable, CHILD, json.dumps(job)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    return [json.loads(line) for line in done.stdout.splitlines()], done


FOR_ROWS = [
    "MSP",
    "Energy",
    "Energy of a head",
    "Energy of a pipeline",
    "Mahalanobis",
    "RelativeMahalanobis",
    "SSD",
    "Residual",
    "ViM",
    "KNN",
]
on_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="limits the data segment of a process"
)


@on_linux
@pytest.mark.slow
def test_memory_is_bounded(tmp_path):
    """Half of the file does not fit: a detector that copies the rows fails."""
    path = tmp_path / "X.npy"
    write_rows(path, 100_000, 64)
    limits = {"chunk": 2**21, "limit": path.stat().st_size // 2}
    names = FOR_ROWS if NIGHTLY else FOR_ROWS[::3]
    actual, done = _run(path, [*names, "Copies"], **limits)
    assert [line["name"] for line in actual] == names, done.stderr[-2000:]
    assert "in _fit_outputs\n    self.copy = np.array(" in done.stderr
    assert "MemoryError: Unable to allocate 23.2 MiB" in done.stderr


@on_linux
@pytest.mark.slow
@pytest.mark.skipif(ROWS == 0, reason="SKOOD_SCALE_ROWS is not set")
def test_a_large_file_in_two_gib(tmp_path, capsys):
    """All private memory of the process, with what it imports, counts."""
    path = tmp_path / "X.npy"
    write_rows(path, ROWS, 512)
    try:
        actual, done = _run(path, FOR_ROWS, total=2 * 2**30)
    finally:
        path.unlink()
    with capsys.disabled():
        for line in actual:
            print("\n{name}: {seconds:.0f} s, {mib:.0f} MiB".format(**line), end="")
    assert [line["name"] for line in actual] == FOR_ROWS, done.stderr[-2000:]
    assert max(line["mib"] for line in actual) < 2048
