"""Forged and damaged files of all formats: a clear error, in bounded memory."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import gzip
import io
import json
import os
import pickle
import sys
import tarfile
import traceback
import warnings
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

import skood
from skood.benchmark._cells import Journal, ScoreJournal, read_arrays
from skood.datasets import load_graph
from skood.persistence import dumps, loads
from tests._forks import forked, forks
from tests._loops import looped
from tests.datasets import test_graphs as graphs
from tests.persistence._examples import npy, rewritten, with_false_size
from tests.reproduce import test_images as images

pytestmark = [
    forks,
    pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc"),
]

MEMORY = 192 * 2**20  # more than the limit on unpacked bytes, 64 MiB, for copies
ROOT = Path(__file__).parents[1]
READERS = (str(Path(skood.__file__).parent), str(ROOT / "benchmarks" / "reproduce"))
COLOR, png, zipped = images.COLOR, images.png, images.zipped


def limit_memory():
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def unclean(load):
    """Return what is wrong with the error of a reader in a damaged file, or None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            load()
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error}"[:300]
        while error.__cause__ is not None:
            error = error.__cause__
        if isinstance(error, MemoryError):
            return f"too much memory: {text}"
        if text.startswith("FileNotFoundError"):  # with the path that a table names
            return None
        of_reader = text.startswith(("ValueError", "UntrustedFileError"))
        if not of_reader or not frame.filename.startswith(READERS):
            return f"raw {text} in {frame.filename}:{frame.lineno}"
    return None


def check_refused(load, message):
    """Call a reader in a process with limited memory; it must raise the message."""

    def attempt():
        limit_memory()
        assert unclean(load) is None
        with pytest.raises(ValueError, match=message):
            load()

    assert forked(attempt) == 0


# --- forged files --------------------------------------------------------------------


def bomb(name, method=zipfile.ZIP_DEFLATED, n_bytes=256 * 2**20):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        with archive.open(name, "w") as member:
            for _ in range(n_bytes // 2**20):
                member.write(bytes(2**20))
    return with_false_size(stream.getvalue(), name, 1000)


class Reduced:
    """What a pickle calls, and the state that it sets."""

    def __init__(self, *reduced):
        self.reduced = reduced

    def __reduce__(self):
        return self.reduced


def memory_corruption():
    """Return 200 bytes in which NumPy takes 32 bytes of the file for pointers."""
    state = (3, "|", None, None, None, -1, -1, 0)  # 0: no references
    dtype = Reduced(np.dtype, ("O8", False, True), state)
    buffer = Reduced(np._core.numeric._frombuffer, (b"\x41" * 32, dtype, 4, "C"))
    return pickle.dumps({b"data": buffer, b"labels": [1, 2, 3, 4]}, 4)


PICKLES = {
    "object pointers": memory_corruption(),
    "memo": b"\x80\x02K\x01r\x00\x00\x00\x04.",
    "nested key": b"\x80\x02})" + b"\x85" * 10**6 + b"K\x01s.",
    "many dicts": b"\x80\x02(" + b"}" * 5 * 10**6 + b"l.",
    "nested labels": pickle.dumps(
        {b"data": COLOR.reshape(3, -1), b"labels": [[[1, 2], [3, 4]]] * 3}, 2
    ),
    "state of a list": b"\x80\x02]}U\x01aK\x01sb.",
    "long numbers": pickle.dumps(
        {b"data": COLOR.reshape(3, -1), b"labels": [1, 2, 2**80]}, 2
    ),
    "another encoding": b"\x80\x02}c_codecs\nencode\n(X\x01\x00\x00\x00a"
    b"X\x03\x00\x00\x00hextRK\x01s.",
    "an object array": pickle.dumps(
        {b"data": np.array([print]), b"labels": [1]}, 2
    ).replace(b"builtins", b"__main__"),
}


@pytest.mark.parametrize("name", PICKLES)
def test_forged_pickle(tmp_path, name):
    images.write(tmp_path, {"cifar-10-batches-py/test_batch": PICKLES[name]})
    message = r"test_batch is not a batch of CIFAR-10 pickled by Python: "
    check_refused(partial(images.load, "cifar10", tmp_path), message)


@looped("protocol", [0, 1, 2, 3, 4, 5])
@looped("dtype", [None, "u1", "<i8", ">i4"])
def test_pickles_of_all_protocols_are_read(tmp_path, protocol, dtype):
    """Labels in a list, or in an array of integers; images also in Fortran order."""
    labels = [3, 0, 9] if dtype is None else np.array([3, 0, 9], dtype=dtype)
    pixels = COLOR.reshape(3, -1)
    pixels = pixels if dtype is None else np.asfortranarray(pixels)
    content = pickle.dumps({b"data": pixels, "labels": labels}, protocol)
    images.write(tmp_path, {"cifar-10-batches-py/test_batch": content})
    bunch = images.load("cifar10", tmp_path)
    np.testing.assert_array_equal(bunch.data, COLOR)
    np.testing.assert_array_equal(bunch.target, [3, 0, 9])


def test_batch_larger_than_published(tmp_path):
    path = tmp_path / "cifar-10-batches-py" / "test_batch"
    images.write(tmp_path, {"cifar-10-batches-py/test_batch": b""})
    os.truncate(path, 2**30)  # takes no space
    message = "test_batch has 1073741824 bytes, and the largest published file"
    check_refused(partial(images.load, "cifar10", tmp_path), message)


def encrypted():
    data = bytearray(zipped({"LSUN_resize/0.png": png(COLOR[0])}))
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + at] |= 1
    return bytes(data)


def tar_of_a_long_header():
    """A header of 256 MB, which tarfile reads while it lists the members."""
    header = tarfile.TarInfo("header")
    header.type, header.size = tarfile.XHDTYPE, 256 * 2**20
    stream = io.BytesIO()
    with gzip.GzipFile(fileobj=stream, mode="w") as file:
        file.write(header.tobuf(tarfile.USTAR_FORMAT))
        for _ in range(257):
            file.write(bytes(2**20))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("zip", lambda: bomb("LSUN_resize/0.png"), "has a false size, 1000"),
        (
            *("zip", lambda: bomb("LSUN_resize/0.png", zipfile.ZIP_BZIP2, 2**20)),
            "compressed by another method",
        ),
        ("zip", encrypted, "is encrypted"),
        ("tar.gz", tar_of_a_long_header, "unpacks to .* at most 67108864 are read"),
    ],
)
def test_forged_archive(tmp_path, name, make, message):
    images.write(tmp_path, {f"LSUN_resize.{name}": make()})
    message = rf"LSUN_resize\.{name} .*{message}"
    check_refused(partial(images.load, "lsun_resize", tmp_path), message)


def test_member_within_its_limit(tmp_path):
    """The same archive with its true size is read."""
    data = zipped({"LSUN_resize/0.png": png(COLOR[0])})
    images.write(tmp_path, {"LSUN_resize.zip": data})
    np.testing.assert_array_equal(images.load("lsun_resize", tmp_path).data, COLOR[:1])


@pytest.mark.parametrize("form", ["folder", "zip"])
@pytest.mark.parametrize("path", ["../../x.png", "/x.png", "Test/../../../x.png"])
def test_table_leaves_its_folder(tmp_path, path, form):
    """Image files next to the folder, and anywhere on the disk."""
    images.write(tmp_path, {"x.png": png(COLOR[0])})
    root = tmp_path / "a"
    path = path if path[0] != "/" else str(tmp_path / path[1:])
    table = f"ClassId,Path\n1,{path}\n".encode()
    images.write(root / "gtsrb", {"Test/0.png": png(COLOR[1]), "Test.csv": table})
    for cache in (None, tmp_path / "cache"):
        with pytest.raises(ValueError, match="gtsrb has no file outside of it"):
            images.load("gtsrb", root, cache=cache)


def test_table_with_an_image_that_the_archive_lacks(tmp_path):
    """Pixels of an image that is not there would be those of unused memory."""
    folder, head = "GTSRB/Final_Test/Images", "Filename;ClassId\n"
    images.write(
        tmp_path,
        {
            "GTSRB.zip": zipped({f"{folder}/0.ppm": png(COLOR[0])}),
            "GT-final_test.csv": f"{head}0.ppm;1\n1.ppm;2\n".encode(),
        },
    )
    with pytest.raises(FileNotFoundError, match=r"Images has no file 1\.ppm"):
        images.load("gtsrb", tmp_path)


def picture(size, form="PNG"):
    stream = io.BytesIO()
    mode = "1" if form == "PNG" else "RGB"
    Image.new(mode, size).save(stream, form)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (picture((12000, 12000)), {"size": 8}, "unpacks to 576000000 or more"),
        (picture((60000, 1)), {"size": 64, "shorter_side": 256}, "is too long for a"),
        (picture((8, 8), "EPS"), {}, "is not a whole image file"),  # starts a program
        (picture((20000, 20000)), {"size": 8}, "is not a whole image file"),
    ],
    ids=["large", "long", "EPS", "bomb"],
)
def test_forged_image(tmp_path, content, options, message):
    images.write(tmp_path, {"0.png": content})
    check_refused(partial(images.load, "folder", tmp_path, **options), message)


def test_large_image_is_read_with_max_bytes(tmp_path):
    images.write(tmp_path, {"0.png": picture((5000, 5000))})
    load = partial(images.load, "folder", tmp_path, size=8, gray=True)
    with pytest.raises(ValueError, match=r"0\.png has .* at most 67108864 are read"):
        load()
    assert load(max_bytes=4 * 5000**2).data.shape == (1, 1, 8, 8)


def svhn(**options):
    stream = io.BytesIO()
    pixels = np.concatenate([COLOR, COLOR[:1]]).transpose(2, 3, 1, 0)
    savemat(stream, {"X": pixels, "y": np.array([[10], [1], [9], [2]])}, **options)
    return stream.getvalue()


def test_forged_mat_file(tmp_path):
    """SciPy's reader ends Python by signal 11."""
    content = bytearray(svhn())
    content[150], content[184], content[280] = 58, 202, 66
    images.write(tmp_path, {"test_32x32.mat": bytes(content)})
    check_refused(
        partial(images.load, "svhn", tmp_path), r"test_32x32\.mat is not a file of MATL"
    )


def test_mat_file_that_unpacks_to_much_more(tmp_path):
    stream = io.BytesIO()
    pixels = np.zeros((32, 32, 3, 30_000), dtype=np.uint8)
    savemat(stream, {"X": pixels, "y": np.ones(30_000)}, do_compression=True)
    images.write(tmp_path, {"test_32x32.mat": stream.getvalue()})
    load = partial(images.load, "svhn", tmp_path)
    check_refused(load, r"test_32x32\.mat has .* at most 67108864 are read")
    assert len(load(max_bytes=2**27, max_samples=2).data) == 2


@pytest.mark.parametrize("compressed", [False, True])
def test_mat_file_is_as_scipy_reads_it(tmp_path, compressed):
    images.write(tmp_path, {"test_32x32.mat": svhn(do_compression=compressed)})
    bunch = images.load("svhn", tmp_path)
    np.testing.assert_array_equal(bunch.data[:3], COLOR)
    np.testing.assert_array_equal(bunch.target, [0, 1, 9, 2])


def false_shape():
    """A file of an array of three numbers, whose header states 2**33."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": "<f8", "fortran_order": False, "shape": (2**33,)}
    )
    return stream.getvalue() + bytes(24)


@pytest.mark.parametrize("attack", ["size", "shape", "header"])
def test_forged_graph(tmp_path, attack):
    path = graphs.write_npz(tmp_path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    content = {
        "shape": false_shape(),
        "header": b"\x93NUMPY\x01\x00\x00\x10" + b"(" * 4096,
    }
    if attack == "size":
        data = bomb("labels.npy")
    else:
        data = zipped(members | {"attr_data.npy": content[attack]})
    path.write_bytes(data)
    message = "cora_ml.npz is not a graph in compressed sparse rows"
    check_refused(partial(load_graph, "CoraML", tmp_path), message)


def test_forged_table_of_a_graph(tmp_path):
    stream = io.BytesIO()
    with gzip.GzipFile(fileobj=stream, mode="w") as file:
        for _ in range(256):
            file.write(b"0\n" * 2**19)
    graphs.write_arxiv(tmp_path, **{"raw/edge": stream.getvalue()})
    message = r"edge\.csv\.gz has .* at most 67108864 are read"
    check_refused(partial(load_graph, "OGBN-Arxiv", tmp_path), message)


@pytest.mark.parametrize("attack", ["size", "shape"])
def test_forged_cache(tmp_path, attack):
    path = tmp_path / "a.npz"
    path.write_bytes(
        bomb("x.npy") if attack == "size" else zipped({"x.npy": false_shape()})
    )

    def attempt():
        limit_memory()
        reason = "false size" if attack == "size" else "has 24 bytes"
        with pytest.warns(skood.exceptions.SkoodWarning, match=reason):
            assert read_arrays(path, "x") is None

    assert forked(attempt) == 0


def test_nested_line_of_a_journal(tmp_path):
    path = tmp_path / "a.jsonl"
    Journal(path).add("a", value=1)
    with path.open("ab") as file:
        file.write(b"[" * 10**6 + b'\n{"key": "b", "value": ' + b"[" * 10**6 + b"\n")
    journal = Journal(path)
    assert journal.get("a")["value"] == 1
    assert journal.get("b") is None


# --- damaged files -------------------------------------------------------------------


def archive_of(files, damage):
    return damage(zipped({name: damage(content) for name, content in files.items()}))


def cifar_tar(damage):
    batch = damage(images.CIFAR_TEST["cifar-10-batches-py/test_batch"])
    plain = images.tar({"cifar-10-batches-py/test_batch": batch}, "w:")
    return {"cifar-10-python.tar.gz": damage(gzip.compress(damage(plain), 1))}


def idx_files(damage):
    files = images.idx_files("t10k", images.GRAY, [7, 0, 1])
    packed, labels = files
    content = damage(gzip.decompress(files[packed]))
    return {
        f"mnist/{packed}": damage(gzip.compress(content, 1)),
        f"mnist/{labels}": damage(files[labels]),
    }


def pictures(damage):
    forms = {"png": "PNG", "jpg": "JPEG", "gif": "GIF", "bmp": "BMP", "ppm": "PPM"}
    return {
        f"{ending}.{ending}": damage(picture((32, 32), form))
        for ending, form in (forms | {"webp": "WEBP"}).items()
    }


def signs(damage):
    table = "Width,ClassId,Path\n1,14,Test/2.png\n1,0,Test/0.png\n"
    files = {f"gtsrb/{name}": damage(x) for name, x in images.SIGNS.items()}
    return files | {"gtsrb/Test.csv": damage(table.encode())}


def faces(damage):
    table = "2\nBald Young\n0.jpg -1 1\n1.jpg 1 1\n"
    files = {f"img_align_celeba/{i}.jpg": damage(png(COLOR[i])) for i in range(2)}
    return files | {"list_attr_celeba.txt": damage(table.encode())}


def imagenet(damage):
    stream = io.BytesIO()
    images.imagenet_meta(stream)
    return {
        "imagenet/val/0.JPEG": png(COLOR[0]),
        "imagenet/meta.mat": damage(stream.getvalue()),
        "imagenet/ILSVRC2012_validation_ground_truth.txt": damage(b"1\n"),
    }


def graph_file(damage):
    arrays = {f"{k}.npy": npy(v) for k, v in graphs.npz_arrays().items()}
    return {graphs.FILES["CoraML"]: archive_of(arrays, damage)}


def graph_tables(damage):
    return {
        f"ogbn_arxiv/{name}.csv.gz": damage(gzip.compress(damage(text.encode()), 1))
        for name, text in graphs.ARXIV.items()
    }


def dumped(damage):
    """A file of an estimator, with damaged members and a seal that fits."""
    data = dumps(skood.detectors.KNN(n_neighbors=1).fit(COLOR[0, 0] / 256))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members = {name: damage(content) for name, content in members.items()}
    return {"a.skood": damage(rewritten(data, members))}


def cell(damage):
    stream = io.BytesIO()
    np.savez(stream, scores=np.ones(2))
    seconds = dict.fromkeys(("fit_seconds", "score_seconds", "network_seconds"), 1.0)
    line = json.dumps({"key": "a", "sha256": "", **seconds})
    return {
        "a.npz": damage(stream.getvalue()),
        "cells.jsonl": damage(f"{line}\n{line}\n".encode()),
    }


def load_cell(root):
    ScoreJournal(root).get("a", 2)
    read_arrays(root / "a.npz", "scores")


def of(name, **options):
    return lambda root: images.load(name, root, **options)


ROWS = COLOR.reshape(3, -1)
BINARY = np.column_stack([[3, 0, 9], ROWS]).astype(np.uint8).tobytes()
LSUN = {f"LSUN_resize/{i}.png": png(COLOR[i]) for i in range(2)}
# For each format, the files, in which each content is damaged on its own, and a reader
FORMATS = {
    "cifar10": (
        lambda damage: {k: damage(v) for k, v in images.CIFAR_TEST.items()},
        of("cifar10"),
    ),
    "cifar10, tar": (cifar_tar, of("cifar10")),
    "cifar10, protocol 5": (
        lambda damage: {
            "cifar-10-batches-py/test_batch": damage(
                pickle.dumps({"data": ROWS, "labels": np.arange(3)}, 5)
            )
        },
        of("cifar10"),
    ),
    "cifar10, binary": (
        lambda damage: {"cifar-10-batches-bin/test_batch.bin": damage(BINARY)},
        of("cifar10"),
    ),
    "svhn": (lambda damage: {"test_32x32.mat": damage(svhn())}, of("svhn")),
    "svhn, compressed": (
        lambda damage: {"test_32x32.mat": damage(svhn(do_compression=True))},
        of("svhn"),
    ),
    "mnist": (idx_files, of("mnist")),
    "tiny images": (
        lambda damage: {
            "300K_random_images.npy": damage(npy(COLOR.transpose(0, 2, 3, 1)))
        },
        of("tiny_images"),
    ),
    "zip": (
        lambda damage: {"LSUN_resize.zip": archive_of(LSUN, damage)},
        of("lsun_resize"),
    ),
    "tar": (
        lambda damage: {"LSUN_resize.tar": damage(images.tar(LSUN, "w:"))},
        of("lsun_resize"),
    ),
    "pictures": (pictures, of("folder", size=8)),
    "signs": (signs, of("gtsrb")),
    "faces": (faces, of("celeba")),
    "imagenet": (imagenet, of("imagenet")),
    "graph": (graph_file, lambda root: load_graph("CoraML", root, label_names=True)),
    "tables": (graph_tables, lambda root: load_graph("OGBN-Arxiv", root)),
    "estimator": (dumped, lambda root: loads((root / "a.skood").read_bytes())),
    "cell": (cell, load_cell),
}


class Damage:
    """Damages one of the contents that pass; -1: none, which are counted."""

    def __init__(self, rng, target=-1):
        self.rng, self.target, self.count = rng, target, 0

    def __call__(self, content):
        self.count += 1
        if self.count - 1 != self.target or not content:
            return content
        data, rng = bytearray(content), self.rng
        # most of what is checked is at the start and at the end
        length = len(data)
        span = min(length, 300) if rng.random() < 0.7 else length
        at = int(rng.integers(span))
        at = at if rng.random() < 0.7 else length - 1 - at
        kind = rng.integers(6)
        if kind < 3:
            for _ in range(kind + 1):
                data[int(rng.integers(span))] = int(rng.integers(256))
        elif kind == 3:
            del data[at:]
        elif kind == 4:
            size = int(rng.integers(1, 9))
            data[at : at + size] = rng.choice([0, 255, 127, 128], size).tolist()
        else:
            other = int(rng.integers(length))
            data[at:at] = data[other : other + int(rng.integers(1, 40))]
        return bytes(data)


def read_damaged(root, seeds):
    """Read a damaged file for each seed; print each with an unclean outcome."""
    limit_memory()
    failures = []
    for seed in seeds:
        name = list(FORMATS)[seed % len(FORMATS)]
        make, load = FORMATS[name]
        rng = np.random.default_rng(seed)
        counted = Damage(rng)
        make(counted)
        folder = root / str(seed)
        images.write(folder, make(Damage(rng, int(rng.integers(counted.count)))))
        (root / "last").write_text(f"{name}, seed {seed}")
        if problem := unclean(partial(load, folder)):
            failures.append(f"{name}, seed {seed}: {problem}")
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_not_damaged_is_read(tmp_path, name):
    make, load = FORMATS[name]
    images.write(tmp_path, make(lambda content: content))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        load(tmp_path)


@pytest.mark.parametrize("n_files", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_damaged_files(tmp_path, n_files):
    """No signal, no raw error and bounded memory."""
    chunks = [range(i, min(i + 100, n_files)) for i in range(0, n_files, 100)]
    codes = [forked(partial(read_damaged, tmp_path, chunk)) for chunk in chunks]
    assert not any(codes), (codes, (tmp_path / "last").read_text())
