"""Writing and reading files: places, what cannot be written, what stays as it was."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import io
import sys

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skood.detectors import SSD, Mahalanobis
from skood.persistence import _files, dump, dumps, load, loads
from tests.persistence._examples import data_for

pytest.importorskip("skops.io")

X, Y = data_for(None)
DETECTOR = Mahalanobis().fit(X, Y)


def _same(loaded):
    np.testing.assert_array_equal(loaded.score_samples(X), DETECTOR.score_samples(X))
    assert loaded.offset_ == DETECTOR.offset_
    assert set(vars(loaded)) == set(vars(DETECTOR))


@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_file_of_a_name(kind, tmp_path):
    path = tmp_path / "detector.skood"
    dump(DETECTOR, kind(path))
    _same(load(kind(path)))
    assert [one.name for one in tmp_path.iterdir()] == ["detector.skood"]


def test_open_files(tmp_path):
    with open(tmp_path / "one", "wb") as file:
        dump(DETECTOR, file)
    with open(tmp_path / "one", "rb") as file:
        _same(load(file))
    memory = io.BytesIO()
    dump(DETECTOR, memory)
    memory.seek(0)
    _same(load(memory))


def test_bytes():
    data = dumps(DETECTOR)
    assert isinstance(data, bytes)
    _same(loads(data))
    _same(loads(dumps(loads(data))))


def test_a_file_that_is_there_is_replaced(tmp_path):
    path = tmp_path / "detector.skood"
    path.write_bytes(b"long " * 10**5)
    dump(DETECTOR, path)
    _same(load(path))


def test_a_file_that_is_there_stays_if_writing_fails(tmp_path, monkeypatch):
    path = tmp_path / "detector.skood"
    dump(DETECTOR, path)

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(_files, "seal", interrupted)
    with pytest.raises(KeyboardInterrupt):
        dump(SSD().fit(X), path)
    assert [one.name for one in tmp_path.iterdir()] == ["detector.skood"]
    _same(load(path))


def test_no_such_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing.skood")
    with pytest.raises(FileNotFoundError):
        dump(DETECTOR, tmp_path / "no folder" / "detector.skood")


def test_an_estimator_is_not_changed():
    before = {name: id(value) for name, value in vars(DETECTOR).items()}
    dumps(DETECTOR)
    assert {name: id(value) for name, value in vars(DETECTOR).items()} == before


def test_pipelines_and_unfitted_estimators():
    pipeline = make_pipeline(StandardScaler(), SSD()).fit(X)
    loaded = loads(dumps(pipeline))
    np.testing.assert_array_equal(loaded.score_samples(X), pipeline.score_samples(X))
    assert repr(loads(dumps(SSD(contamination=0.2)))) == repr(SSD(contamination=0.2))


def test_without_skops(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "skops", None)
    monkeypatch.setitem(sys.modules, "skops.io", None)
    message = (
        "skood.persistence needs skops, which is not installed: "
        'pip install "skood[persistence]".'
    )
    with pytest.raises(ImportError) as error:
        dump(DETECTOR, tmp_path / "detector.skood")
    assert str(error.value) == message
    with pytest.raises(ImportError, match="needs skops, which is not installed"):
        loads(b"")


def _local():
    """A function and a class that have no name in their module."""

    def scaled(X):
        return 2 * X

    class Scaler(StandardScaler):
        pass

    return scaled, Scaler


@pytest.mark.parametrize("kind", ["lambda", "function", "class"])
def test_what_has_no_name_is_refused(kind):
    scaled, Scaler = _local()
    step, name = {
        "lambda": (FunctionTransformer(lambda X: 2 * X), "<lambda>"),
        "function": (FunctionTransformer(scaled), "scaled"),
        "class": (Scaler(), "Scaler"),
    }[kind]
    pipeline = make_pipeline(step, SSD()).fit(X)
    message = rf"Pipeline contains \['{__name__}.{name}'\], which cannot be imported by"
    with pytest.raises(ValueError, match=message):
        dumps(pipeline)


def test_what_skops_cannot_save_is_refused():
    detector = SSD().fit(X)
    detector.extra_ = (i for i in range(3))
    message = r"SSD contains objects that skops cannot save \(TypeError: .*generator"
    with pytest.raises(TypeError, match=message):
        dumps(detector)
