"""Tests of the IDX reader and of `fetch_mnist`, on files written here."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import gzip
import struct
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.utils import Bunch

from skood.datasets import _idx_files as _files
from skood.datasets import fetch_mnist, load_idx_images

RNG = np.random.RandomState(0)
TRAIN = (RNG.randint(0, 256, (6, 3, 4), dtype=np.uint8), np.arange(6) % 3)
TEST = (RNG.randint(0, 256, (4, 3, 4), dtype=np.uint8), np.array([2, 1, 0, 0]))


def idx_bytes(array, type_code=8, shape=None):
    """The IDX file of an array, by the format's description."""
    shape = array.shape if shape is None else shape
    head = struct.pack(f">BBBB{len(shape)}I", 0, 0, type_code, len(shape), *shape)
    return head + array.astype(np.uint8).tobytes()


def write(folder, prefix, pair, *, compress=False, dot="-"):
    for kind, array in zip((f"images{dot}idx3", f"labels{dot}idx1"), pair, strict=True):
        content = idx_bytes(array)
        name = f"{prefix}{kind}-ubyte"
        if compress:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))
        else:
            (folder / name).write_bytes(content)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("dot", ["-", "."])
@pytest.mark.parametrize("prefix", ["t10k-", "emnist-letters-test-", "", "mine-"])
def test_pixels_and_labels_come_back(tmp_path, compress, dot, prefix):
    write(tmp_path, prefix, TEST, compress=compress, dot=dot)
    dataset = load_idx_images(tmp_path)
    assert dataset.data.dtype == np.float32
    assert dataset.data.shape == (4, 1, 3, 4)
    assert_allclose(dataset.data[:, 0], TEST[0] / 255.0, rtol=1e-6)
    assert_array_equal(dataset.target, TEST[1])
    assert_array_equal(dataset.target_names, [0, 1, 2])
    assert not dataset.is_ood.any()
    assert len(dataset.filenames) == 2
    assert dataset.filenames[0] in dataset.DESCR


def test_flat_unscaled_return_X_y(tmp_path):
    write(tmp_path, "t10k-", TEST)
    X, y = load_idx_images(
        str(tmp_path), scaled=False, as_images=False, return_X_y=True
    )
    assert X.dtype == np.float32
    assert_array_equal(X, TEST[0].reshape(4, 12))
    assert_array_equal(y, TEST[1])


def test_subsets(tmp_path):
    write(tmp_path, "train-", TRAIN)
    write(tmp_path, "t10k-", TEST, compress=True)
    (tmp_path / "readme.txt").write_text("not ours")
    for subset, images, labels in (
        ("train", *TRAIN),
        ("test", *TEST),
        ("all", np.concatenate([TRAIN[0], TEST[0]]), np.append(TRAIN[1], TEST[1])),
    ):
        dataset = load_idx_images(tmp_path, subset=subset, scaled=False)
        assert_array_equal(dataset.data[:, 0], images)
        assert_array_equal(dataset.target, labels)


def test_uncompressed_twin_is_preferred(tmp_path):
    write(tmp_path, "t10k-", TEST)
    write(tmp_path, "t10k-", TRAIN, compress=True)
    assert_array_equal(load_idx_images(tmp_path).target, TEST[1])


def test_files_by_name(tmp_path):
    (tmp_path / "x.bin").write_bytes(idx_bytes(TEST[0]))
    (tmp_path / "y.bin").write_bytes(idx_bytes(TEST[1]))
    dataset = load_idx_images(tmp_path, images="x.bin", labels=tmp_path / "y.bin")
    assert_array_equal(dataset.target, TEST[1])
    with pytest.raises(ValueError, match="images= was given without labels="):
        load_idx_images(tmp_path, images="x.bin")
    with pytest.raises(ValueError, match="labels= was given without images="):
        load_idx_images(tmp_path, labels="x.bin")
    with pytest.raises(ValueError, match="subset='test' has no meaning"):
        load_idx_images(tmp_path, images="x.bin", labels="y.bin", subset="test")
    with pytest.raises(FileNotFoundError, match=r"z\.bin"):
        load_idx_images(tmp_path, images="z.bin", labels="y.bin")


def test_left_out_and_ood_label(tmp_path):
    write(tmp_path, "t10k-", TEST)
    some = load_idx_images(tmp_path, left_out=(0,), ood_label=-1)
    assert_array_equal(some.target, [2, 1, -1, -1])
    assert_array_equal(some.is_ood, [False, False, True, True])
    everything = load_idx_images(tmp_path, left_out="all", ood_label=-1)
    assert_array_equal(everything.target, [-1] * 4)
    assert everything.is_ood.all()
    assert everything.left_out == (0, 1, 2)


def replace(folder, kind, content):
    (folder / f"t10k-{kind}-idx{3 if kind == 'images' else 1}-ubyte").write_bytes(
        content
    )


IMAGES, LABELS = idx_bytes(TEST[0]), idx_bytes(TEST[1])


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("images", b"\x89PNG1234", "is not an IDX file: it starts with b'.*PNG'"),
        ("images", b"\x00\x00", "is not an IDX file"),
        ("images", idx_bytes(TEST[0], type_code=0x0D), "values of type 0x0d, only"),
        ("images", LABELS, "has 1 dimensions, expected 3.*exchanged"),
        ("labels", IMAGES, "has 3 dimensions, expected 1.*exchanged"),
        ("images", IMAGES[:10], "truncated: it ends after 10 bytes, within"),
        ("images", IMAGES[:-1], "truncated: its header has .* 48 bytes, but 47 fol"),
        ("images", IMAGES + b"\x00", "too long: its header has .* but 49 follow"),
        ("labels", LABELS[:-1], r"labels-idx1-ubyte is truncated"),
        (
            "images",
            idx_bytes(TEST[0], shape=(2**32 - 1,) * 3),
            "truncated: its header has",
        ),
        ("images", gzip.compress(IMAGES, mtime=0)[:-9], "is not a whole gzip file"),
        ("images", b"\x1f\x8bnonsense", "is not a whole gzip file"),
        ("labels", idx_bytes(TEST[1][:3]), "holds 4 images but .* holds 3 labels"),
        ("images", idx_bytes(TEST[0][:0]), "holds 0 images but"),
    ],
)
def test_bad_files(tmp_path, kind, content, message):
    """Each error names the file."""
    write(tmp_path, "t10k-", TEST)
    replace(tmp_path, kind, content)
    with pytest.raises(ValueError, match=message) as caught:
        load_idx_images(tmp_path)
    assert f"t10k-{kind}-idx" in str(caught.value)


def test_corrupt_gzip_body(tmp_path):
    """A flipped byte fails by zlib's own check or by the checksum."""
    content = bytearray(gzip.compress(IMAGES, mtime=0))
    content[len(content) // 2] ^= 0xFF
    write(tmp_path, "t10k-", TEST)
    replace(tmp_path, "images", bytes(content))
    with pytest.raises(ValueError, match="is not a whole gzip file"):
        load_idx_images(tmp_path)


def test_empty_dataset(tmp_path):
    write(tmp_path, "t10k-", (TEST[0][:0], TEST[1][:0]))
    with pytest.raises(ValueError, match="holds no images"):
        load_idx_images(tmp_path)


def test_folder_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        load_idx_images(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="No IDX files in"):
        load_idx_images(tmp_path)
    write(tmp_path, "t10k-", TEST)
    with pytest.raises(FileNotFoundError, match="no files of subset='train', only"):
        load_idx_images(tmp_path, subset="train")
    write(tmp_path, "other-test-", TEST)
    with pytest.raises(ValueError, match="holds more than one data set"):
        load_idx_images(tmp_path)


@pytest.mark.parametrize("kind", ["images", "labels"])
def test_missing_partner(tmp_path, kind):
    write(tmp_path, "t10k-", TEST)
    next(tmp_path.glob(f"*{kind}*")).unlink()
    with pytest.raises(FileNotFoundError, match=f"has no {kind} file next to it"):
        load_idx_images(tmp_path)


def test_sizes_differ(tmp_path):
    write(tmp_path, "t10k-", TEST)
    write(tmp_path, "train-", (TRAIN[0][:, :2], TRAIN[1]))
    with pytest.raises(ValueError, match=r"differ in size: \[\(2, 4\), \(3, 4\)\]"):
        load_idx_images(tmp_path)


@pytest.fixture
def openml(monkeypatch):
    """Replace the download by twelve random images; record the calls."""
    raw = Bunch(
        data=RNG.randint(0, 256, (12, 784)),
        target=np.array([str(i % 10) for i in range(12)], dtype=object),
        DESCR="from OpenML",
    )
    calls = []

    def fake(*args, **kwargs):
        calls.append((args, kwargs))
        return raw

    monkeypatch.setattr(_files, "fetch_openml", fake)
    monkeypatch.setattr(_files, "_N_MNIST_TRAIN", 8)
    return raw, calls


def test_fetch_mnist(openml, tmp_path):
    raw, calls = openml
    mnist = fetch_mnist(data_home=tmp_path, cache=False)
    assert calls == [
        (
            ("mnist_784",),
            {"version": 1, "as_frame": False, "data_home": tmp_path, "cache": False},
        )
    ]
    assert mnist.data.shape == (12, 1, 28, 28)
    assert mnist.data.dtype == np.float32
    assert_allclose(mnist.data.reshape(12, 784), raw.data / 255.0, rtol=1e-6)
    assert mnist.target.dtype == np.int64
    assert_array_equal(mnist.target, np.arange(12) % 10)
    assert mnist.DESCR == "from OpenML"
    fetch_mnist()
    assert calls[1][1]["data_home"] is None
    assert calls[1][1]["cache"] is True


def test_fetch_mnist_options(openml):
    raw, _ = openml
    train = fetch_mnist(subset="train", as_images=False, scaled=False)
    assert_array_equal(train.data, raw.data[:8])
    X, y = fetch_mnist(subset="test", left_out=(0, 1), ood_label=-1, return_X_y=True)
    assert_allclose(X.reshape(4, 784), raw.data[8:] / 255.0, rtol=1e-6)
    assert_array_equal(y, [8, 9, -1, -1])
    with pytest.raises(ValueError, match="'subset' parameter of fetch_mnist"):
        fetch_mnist(subset="valid")


def test_gzip_that_unpacks_to_much_more(tmp_path):
    """Its header is right: 65 MiB of black images in a file of 65 kB."""
    shape = (65, 1024, 1024)
    head = struct.pack(">BBBB3I", 0, 0, 8, 3, *shape)
    path = tmp_path / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(head + bytes(65 * 2**20), mtime=0))
    assert path.stat().st_size < 2**17
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.zeros(65)))
    with pytest.raises(ValueError, match=r"unpacks to .*at most 67108864 .*max_bytes"):
        load_idx_images(tmp_path)
    n_bytes = len(head) + 65 * 2**20
    with pytest.raises(ValueError, match=f"at most {n_bytes - 1} are read"):
        load_idx_images(tmp_path, max_bytes=n_bytes - 1)
    assert len(_files._read_idx(path, 3, n_bytes)) == 65


def test_gzip_is_not_unpacked_beyond_the_limit(tmp_path):
    """64 MiB are not in memory for a moment."""
    path = tmp_path / "a.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(64):
            file.write(bytes(2**20))
    tracemalloc.start()
    with pytest.raises(ValueError, match="unpacks to"):
        _files._read_bytes(path, 2**20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * 2**20
