"""Writing and reading files: places, what cannot be written, what stays as it was."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import hashlib
import io
import json
import pickle
import sys
import tracemalloc
import warnings
from importlib.metadata import PackageNotFoundError
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.ensemble import IsolationForest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import skood
from skood.detectors import KNN, SSD, Mahalanobis, SklearnDetector
from skood.exceptions import SkoodWarning
from skood.nn import LinearHead
from skood.persistence import _files, dump, dumps, load, loads
from tests.persistence._examples import data_for, npy, rewritten, with_false_size

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
        'pip install "skops>=0.13".'
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


HEAD = LinearHead().fit(X, Y)
DATA = dumps(HEAD)


def _schema(data=DATA):
    with ZipFile(io.BytesIO(data)) as archive:
        return json.loads(archive.read("schema.json"))


def forged(change=None, *, note=None, drop=()):
    """A file with another schema, or fewer members, and a seal that fits it."""
    changes = dict.fromkeys(drop)
    if change is not None:
        changes["schema.json"] = json.dumps(change(_schema()))
    return rewritten(DATA, changes, note=note)


def test_an_edited_file_can_be_sealed_again():
    """The checksum finds damage and no more: it has no key."""
    with ZipFile(io.BytesIO(DATA)) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".npy"))
        array = np.load(io.BytesIO(archive.read(name)))
    loaded = loads(rewritten(DATA, {name: npy(np.zeros_like(array))}))
    assert any((part == 0).all() for part in (loaded.coef_, loaded.intercept_))


def test_what_is_forged_without_a_change_is_loaded():
    """The tests below refuse what they change, and nothing else."""
    loaded = loads(forged(lambda schema: schema))
    np.testing.assert_array_equal(loaded.predict_proba(X), HEAD.predict_proba(X))


def test_the_seal_is_the_hash_of_all_before_it():
    assert DATA[-64:].decode() == hashlib.sha256(DATA[:-64]).hexdigest()
    with ZipFile(io.BytesIO(DATA)) as archive:
        assert archive.testzip() is None
        note = json.loads(archive.read("skood.json"))
    assert note["estimator"] == "LinearHead"
    assert note["format"] == 2
    assert note["versions"]["skood"] == skood.__version__
    assert note["versions"]["scikit-learn"] == sklearn.__version__
    assert set(note["versions"]) >= {"numpy", "scipy", "torch", "skops", "python"}


def test_every_damaged_byte_is_detected():
    for position in range(len(DATA)):
        changed = bytearray(DATA)
        changed[position] ^= 1
        with pytest.raises(ValueError, match=r"The file (was changed|has no seal)"):
            _files.check_seal(io.BytesIO(changed))


def test_every_cut_is_detected():
    for n_bytes in range(len(DATA)):
        with pytest.raises(ValueError, match=rf"its end is missing after {n_bytes} by"):
            _files.check_seal(io.BytesIO(DATA[:n_bytes]))
    with pytest.raises(ValueError, match="The file has no seal"):
        loads(DATA + b"\0")


def test_a_cut_while_it_is_read(monkeypatch):
    """A stream that ends before its size says so does not run for ever."""

    class Short(io.BytesIO):
        def read(self, size=-1):
            if self.tell() >= 100 and size > 64:
                return b""
            return super().read(min(size, 100) if size > 64 else size)

    with pytest.raises(ValueError, match="was changed or damaged"):
        _files.check_seal(Short(DATA))


def test_a_changed_byte_has_a_message():
    changed = DATA[:500] + bytes([DATA[500] ^ 1]) + DATA[501:]
    found = hashlib.sha256(changed[:-64]).hexdigest()
    message = (
        f"The file was changed or damaged after it was written: the SHA-256 of its "
        f"content is {found}, and its seal has {DATA[-64:].decode()}. Nothing of it "
        "was read. Take the file from where it was written again."
    )
    with pytest.raises(ValueError) as error:
        loads(changed)
    assert str(error.value) == message


# --- forged, and sealed again: the checksum has no key --------------------------------


def _call(module, name, arguments):
    """What skops would call, if it trusted it."""
    return {
        "__module__": module,
        "__class__": name,
        "__loader__": "ConstructorFromReduceNode",
        "content": {
            "__module__": "builtins",
            "__class__": "tuple",
            "__loader__": "TupleNode",
            "content": [
                {
                    "__module__": "builtins",
                    "__class__": "str",
                    "__loader__": "JsonNode",
                    "content": json.dumps(argument),
                    "is_json": True,
                }
                for argument in arguments
            ],
        },
    }


def _function(module, name):
    return {"__module__": module, "__class__": name, "__loader__": "FunctionNode"}


def _type(module, name):
    return {"__module__": module, "__class__": name, "__loader__": "TypeNode"}


def _with(node):
    """A change that adds an attribute to the estimator."""

    def change(schema):
        schema["content"]["content"]["extra_"] = node
        schema["content"]["key_types"]["content"].append(
            _type("builtins", "str") | {"__id__": 1}
        )
        return schema

    return change


@pytest.mark.parametrize(
    "evil",
    [
        lambda path: _call("os", "system", [f"touch {path}"]),
        lambda path: _call("posix", "system", [f"touch {path}"]),
        lambda path: _call("builtins", "eval", [f"open({str(path)!r}, 'w')"]),
        lambda path: _call("builtins", "open", [str(path), "w"]),
        lambda path: _call("subprocess", "Popen", [f"touch {path}"]),
        lambda path: _call("skood.persistence._files", "os.system", [str(path)]),
        lambda path: _function("os", "system"),
        lambda path: _type("subprocess", "Popen"),
        lambda path: _call("skood.benchmark", "run_demo", [str(path)]),
    ],
)
def test_nothing_of_a_forged_file_is_run(evil, tmp_path):
    path = tmp_path / "was_here"
    node = evil(path)
    name = f"{node['__module__']}.{node['__class__']}"
    with pytest.raises(ValueError, match=rf"not trusted: \['{name}'\]. No object"):
        loads(forged(_with(node)))
    with pytest.raises(ValueError, match=rf"not trusted: \['{name}'\]"):
        loads(forged(lambda schema: node | {k: schema[k] for k in ("protocol",)}))
    assert not path.exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda schema: {},
        lambda schema: [],
        lambda schema: {**schema, "__loader__": "NoSuchNode"},
        lambda schema: {k: v for k, v in schema.items() if k != "__module__"},
    ],
)
def test_a_schema_that_makes_no_sense(change):
    with pytest.raises(ValueError, match=r"its content cannot be read \(\w+: "):
        loads(forged(change))


def test_members_that_are_missing():
    arrays = [n for n in ZipFile(io.BytesIO(DATA)).namelist() if n.endswith(".npy")]
    with pytest.raises(ValueError, match="its content cannot be read"):
        loads(forged(drop=arrays))


def test_what_cannot_be_made():
    def change(schema):
        schema["content"]["key_types"] = _type("builtins", "str")
        return schema

    message = (
        r"The estimator, LinearHead, cannot be created from the content of the file "
        rf"\(\w+: .*\). It was written by skood {skood.__version__} with python \S+, "
        rf"scikit-learn {sklearn.__version__}, skops \S+: load it there, or fit the"
    )
    with pytest.raises(ValueError, match=message):
        loads(forged(change))


@pytest.mark.parametrize(
    "note",
    [
        {"format": "1"},
        {"versions": {}},
        {"versions": []},
        {"versions": {"skood": 3}},
    ],
)
def test_a_note_that_makes_no_sense(note):
    with pytest.raises(ValueError, match=r"its note skood.json cannot be read \(\w+: "):
        loads(forged(note=note))


def test_a_sealed_file_without_a_note():
    stream = io.BytesIO()
    with ZipFile(stream, "w") as archive:
        archive.comment = b"skood-sha256:" + b"0" * 64
    data = stream.getvalue()[:-64]
    data += hashlib.sha256(data).hexdigest().encode()
    with pytest.raises(ValueError, match=r"its note skood.json cannot be read \(KeyE"):
        loads(data)


# --- other versions -------------------------------------------------------------------


def _written_with(**other):
    return forged(note={"versions": {**_files.versions(), **other}})


def _raised(version, index):
    numbers = version.split(".")
    numbers[index] = str(int(numbers[index]) + 1)
    return ".".join(numbers)


HERE = _files.versions()


@pytest.mark.parametrize(
    "name, index",
    [
        ("skood", 0),
        ("skood", 1),
        ("scikit-learn", 0),
        ("scikit-learn", 1),
        ("numpy", 0),
        ("scipy", 0),
        ("torch", 0),
    ],
)
def test_another_version_warns(name, index):
    if HERE[name] == "unknown":
        pytest.skip(f"{name} has no metadata here")
    there = _raised(HERE[name], index)
    expected = (
        f"The file was written with {name} {there} (here {HERE[name]}): fitted "
        "attributes may have another meaning. Compare predictions of some samples with "
        "those there, or fit the estimator again."
    )
    with pytest.warns(SkoodWarning) as record:
        loaded = loads(_written_with(**{name: there}))
    assert [str(one.message) for one in record] == [expected]
    assert record[0].filename == __file__
    np.testing.assert_array_equal(loaded.predict_proba(X), HEAD.predict_proba(X))


def test_all_other_versions_are_in_a_single_warning():
    old = {"skood": "0.0.1", "numpy": "0.9.0"}
    with pytest.warns(SkoodWarning) as record:
        loads(_written_with(**old))
    (one,) = record
    here = f"(here {HERE['skood']}), numpy 0.9.0 (here {HERE['numpy']}): fitted"
    assert f"skood 0.0.1 {here}" in str(one.message)


@pytest.mark.parametrize(
    "other",
    [
        {"skood": ".".join([*HERE["skood"].split(".")[:2], "99"])},
        {"scikit-learn": ".".join([*HERE["scikit-learn"].split(".")[:2], "99"])},
        {"numpy": HERE["numpy"].split(".")[0] + ".99.0"},
        {"python": "3.99.0", "skops": "9.9"},
    ],
)
def test_a_close_version_does_not_warn(other):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loads(_written_with(**other))


def test_metadata_of_packages_is_parsed_once(monkeypatch):
    parsed = []
    monkeypatch.setattr(_files, "version", lambda name: parsed.append(name) or "1.0")
    _files._version.cache_clear()
    loads(dumps(SSD().fit(X)))
    _files._version.cache_clear()
    assert sorted(parsed) == sorted(set(parsed)) and "scikit-learn" in parsed


def test_a_version_that_is_not_known(monkeypatch):
    """Packages without metadata can be used, and are not compared."""

    def version(name):
        if name == "torch":
            raise PackageNotFoundError(name)
        return HERE[name]

    monkeypatch.setattr(_files, "version", version)
    monkeypatch.setattr(_files, "_version", _files._version.__wrapped__)  # no cache
    assert _files.versions() == {**HERE, "torch": "unknown"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loads(forged(note={"versions": {**HERE, "torch": "99.0"}}))
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loads(_written_with(torch="unknown"))


@pytest.mark.parametrize("number, version", [(1, "0.1.0"), (3, "9.1.0")])
def test_another_format_is_refused_before_its_types(number, version):
    """Files of version 0.1 contain classes that have other modules now."""

    message = (
        f"The file was written by skood {version} in format {number}, and skood "
        f"{skood.__version__} loads format 2 only: classes or fitted attributes "
        "differ. Fit the estimator and dump it again, or load the file with skood "
        f"{version}."
    )
    note = {"format": number, "versions": {**HERE, "skood": version}}
    with pytest.raises(ValueError) as error:
        loads(forged(_with(_type("skood.nn._outputs", "Reading")), note=note))
    assert str(error.value) == message


# --- small files that unpack to large ones --------------------------------------------

_LIMIT = 64 * 2**20


def _refused_before_it_fills_memory(data, message=f"at most {_LIMIT} are read"):
    tracemalloc.start()
    with pytest.raises(ValueError, match=message):
        loads(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 2**20


@pytest.mark.parametrize("member", ["more.npy", "skood.json", "schema.json"])
def test_member_that_unpacks_to_much_more(member):
    zeros = bytes(80 * 2**20)
    data = rewritten(DATA, {member: zeros}, compress_type=ZIP_DEFLATED)
    assert len(data) < 2**19
    _refused_before_it_fills_memory(data)


@pytest.mark.parametrize("member", ["more.npy", "schema.json", "skood.json"])
def test_member_of_a_false_size(member):
    """It states 1,000 bytes and has 80 MB, which `ZipFile.read` inflates at once."""
    zeros = {member: bytes(80 * 2**20)}
    data = rewritten(DATA, zeros, compress_type=ZIP_DEFLATED)
    data = with_false_size(data, member, 1000)[:-64]
    data += hashlib.sha256(data).hexdigest().encode()
    _files.check_seal(io.BytesIO(data))
    _refused_before_it_fills_memory(data, f"{member} has a false size, 1000")


def _with_large_arrays(nodes):
    """A file with these nodes, and the array of 100 kB that they name."""
    schema = json.dumps(_schema() | {"more": {"content": nodes}})
    return rewritten(DATA, {"schema.json": schema, "large.npy": npy(np.zeros(12_500))})


@pytest.mark.parametrize("identifier", [{}, {"__id__": 0}, {"__id__": True}])
def test_array_that_is_named_many_times_without_an_id(identifier):
    """skops reads the file again for each node that has no true id."""
    node = _ARRAY | identifier
    _refused_before_it_fills_memory(_with_large_arrays([node] * 2_000))


_ARRAY = {
    "__class__": "ndarray",
    "__module__": "numpy",
    "__loader__": "NdArrayNode",
    "type": "numpy",
    "file": "large.npy",
}


def test_array_that_is_named_many_times():
    """2,000 arrays, all of them the one of 100 kB that the file holds."""
    content = [dict(_ARRAY, __id__=i) for i in range(2_000)]
    _refused_before_it_fills_memory(_with_large_arrays(content))


@pytest.mark.parametrize("ending", [".npz", ".npy"])
def test_sparse_matrix_that_unpacks_to_much_more(ending):
    """skops writes sparse matrices as archives of their own, which are compressed.

    NumPy unpacks them by their first bytes, whatever their name.
    """
    detector = SSD().fit(X)
    detector.more_ = sparse.csr_array(np.zeros((3, 3)))
    detector.more_.data = np.zeros(_LIMIT // 8 + 1)
    detector.more_.indices = np.zeros(_LIMIT // 8 + 1, dtype=np.int32)
    detector.more_.indptr = np.array([0, 0, 0, _LIMIT // 8 + 1], dtype=np.int32)
    data = dumps(detector)
    if len(data) > _LIMIT:
        pytest.skip("this version of skops does not compress sparse matrices")
    assert len(data) < 2**19
    with ZipFile(io.BytesIO(data)) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".npz"))
        content, schema = archive.read(name), archive.read("schema.json").decode()
    members = {name: None, name[:-4] + ending: content}
    members["schema.json"] = schema.replace(".npz", ending)
    _refused_before_it_fills_memory(rewritten(data, members))


def test_limit_of_the_user():
    with ZipFile(io.BytesIO(DATA)) as archive:
        n_bytes = sum(info.file_size for info in archive.infolist())
    assert isinstance(loads(DATA, max_bytes=n_bytes), LinearHead)
    with pytest.raises(ValueError, match=f"at most {n_bytes - 1} are read"):
        loads(DATA, max_bytes=n_bytes - 1)
    message = f"has {len(DATA)} bytes and unpacks to .* at most 100 are read. If you"
    with pytest.raises(ValueError, match=message):
        loads(DATA, max_bytes=100)
    with pytest.raises(ValueError, match=message):
        load(io.BytesIO(DATA), max_bytes=100)


def test_a_large_file_is_within_its_limit(tmp_path):
    """What is written is loaded, however large, without max_bytes."""
    detector = SSD().fit(X)
    detector.more_ = np.zeros(_LIMIT // 8 + 1)
    detector.same_ = detector.more_
    dump(detector, tmp_path / "large")
    loaded = load(tmp_path / "large")
    assert loaded.more_ is loaded.same_
    assert len(loaded.more_) == _LIMIT // 8 + 1


def test_what_shrinks_is_compressed():
    """Trees are, and features in floating point are not, which would take long."""
    forest = SklearnDetector(detector=IsolationForest(n_estimators=20)).fit(X)
    assert len(dumps(forest)) < 1.5 * len(pickle.dumps(forest))
    bank = KNN().fit(np.random.default_rng(0).normal(size=(2000, 64)))
    with ZipFile(io.BytesIO(dumps(bank))) as archive:
        (largest,) = (m for m in archive.infolist() if m.file_size > 10**6)
        assert largest.compress_type == ZIP_STORED
        assert archive.getinfo("schema.json").compress_type == ZIP_DEFLATED


def test_a_file_without_compression_is_loaded():
    """As `skops.io.dump` writes it."""
    data = rewritten(DATA, {}, compress_type=ZIP_STORED)
    with ZipFile(io.BytesIO(data)) as archive:
        assert {m.compress_type for m in archive.infolist()} == {ZIP_STORED}
    np.testing.assert_array_equal(loads(data).predict_proba(X), HEAD.predict_proba(X))
