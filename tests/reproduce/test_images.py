"""Tests of `load_images` on tiny files of the published forms, and on broken ones."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import gzip
import io
import pickle
import sys
import tarfile
import warnings
import zipfile

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import Image
from scipy.io import savemat

from benchmarks.reproduce._gtsrb import gtsrb_constraints
from benchmarks.reproduce._images import image_files, load_images
from skood.logic import parse_constraint
from tests._loops import looped
from tests.benchmark.conftest import idx_bytes

RNG = np.random.default_rng(0)
COLOR = RNG.integers(0, 256, (3, 3, 32, 32), dtype=np.uint8)
GRAY = RNG.integers(0, 256, (3, 5, 4), dtype=np.uint8)


def load(name, root, **kwargs):
    """Load images; the files here have fewer than the published ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return load_images(name, root, **kwargs)


def png(pixels):
    """An image file of pixels (h, w) or (c, h, w)."""
    pixels = pixels.transpose(1, 2, 0) if pixels.ndim == 3 else pixels
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def write(root, files):
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def tar(files, mode="w:gz"):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def zipped(files):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def cifar_batch(labels, **other):
    batch = {b"data": COLOR.reshape(3, -1), b"labels": labels}
    batch |= {name.encode(): values for name, values in other.items()}
    return pickle.dumps(batch, protocol=2)


CIFAR_TRAIN = {
    f"cifar-10-batches-py/data_batch_{i}": cifar_batch([i, 0, 9]) for i in range(1, 6)
}
CIFAR_TEST = {"cifar-10-batches-py/test_batch": cifar_batch([3, 0, 9])}


@pytest.mark.parametrize("packed", [False, True])
def test_cifar10_pickled(tmp_path, packed):
    files = CIFAR_TRAIN | CIFAR_TEST
    write(tmp_path, {"cifar-10-python.tar.gz": tar(files)} if packed else files)
    actual = load("cifar10", tmp_path)
    assert actual.data.dtype == np.uint8
    assert_array_equal(actual.data, COLOR)
    assert_array_equal(actual.target, [3, 0, 9])
    X, y = load("cifar10", tmp_path, subset="train", return_X_y=True)
    assert X.shape == (15, 3, 32, 32)
    assert_array_equal(y[::3], [1, 2, 3, 4, 5])
    assert len(load("cifar10", tmp_path, subset="all").data) == 18


def test_batch_of_python_2(tmp_path):
    """The published batches are of protocol 2, with strings of bytes as keys."""
    batch = pickle.dumps({"data": COLOR.reshape(3, -1), "labels": [3, 0, 9]}, 0)
    write(tmp_path, {"cifar-10-batches-py/test_batch": batch})
    assert_array_equal(load("cifar10", tmp_path).target, [3, 0, 9])


def test_cifar_binary(tmp_path):
    rows = COLOR.reshape(3, -1)
    ten = np.column_stack([[3, 0, 9], rows]).astype(np.uint8)
    hundred = np.column_stack([[1, 19, 2], [99, 0, 7], rows]).astype(np.uint8)
    write(
        tmp_path,
        {
            "cifar-10-batches-bin/test_batch.bin": ten.tobytes(),
            "cifar-100-binary/test.bin": hundred.tobytes(),
        },
    )
    actual = load("cifar10", tmp_path)
    assert_array_equal(actual.data, COLOR)
    assert_array_equal(actual.target, [3, 0, 9])
    assert_array_equal(load("cifar100", tmp_path).target, [99, 0, 7])
    coarse = load("cifar100", tmp_path, labels="coarse")
    assert_array_equal(coarse.target, [1, 19, 2])
    assert len(coarse.target_names) == 20
    path = tmp_path / "cifar-100-binary" / "test.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="3074 bytes per image, got 9221 bytes"):
        load("cifar100", tmp_path)


def test_cifar100_pickled(tmp_path):
    content = cifar_batch([], fine_labels=[99, 0, 7], coarse_labels=[1, 19, 2])
    write(tmp_path, {"cifar-100-python/test": content})
    assert_array_equal(load("cifar100", tmp_path).target, [99, 0, 7])
    assert_array_equal(load("cifar100", tmp_path, labels="coarse").target, [1, 19, 2])


class Malicious:
    def __reduce__(self):
        return eval, ("1 + 1",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps({b"data": Malicious(), b"labels": []}), "holds a builtins.eval"),
        (pickle.dumps({b"data": COLOR.reshape(3, -1)}), "has no entry b'labels'"),
        (pickle.dumps({b"data": COLOR, b"labels": [1, 2, 3]}), "images of 3072 bytes"),
        (cifar_batch([1, 2]), "has 3 images and 2 labels"),
        (cifar_batch([1, 2, 10]), "labels from 0 to 9, got 1 to 10"),
        (cifar_batch([1, 2, 3])[:500], "is not a batch of CIFAR-10"),
        (b"no pickle", "is not a batch of CIFAR-10"),
    ],
)
def test_broken_cifar(tmp_path, content, message):
    write(tmp_path, {"cifar-10-batches-py/test_batch": content})
    with pytest.raises(ValueError, match=message):
        load("cifar10", tmp_path)


def test_svhn(tmp_path):
    path = tmp_path / "test_32x32.mat"
    savemat(path, {"X": COLOR.transpose(2, 3, 1, 0), "y": np.array([[10], [1], [9]])})
    actual = load("svhn", tmp_path)
    assert_array_equal(actual.data, COLOR)
    assert_array_equal(actual.target, [0, 1, 9])
    savemat(path, {"X": COLOR, "y": np.array([[10], [1], [9]])})
    with pytest.raises(ValueError, match=r"shape \(32, 32, 3, 3\), got uint8"):
        load("svhn", tmp_path)
    path.write_bytes(b"no file of MATLAB")
    with pytest.raises(ValueError, match="not a file of MATLAB 5"):
        load("svhn", tmp_path)


def idx_files(prefix, images, labels):
    return {
        f"{prefix}-images-idx3-ubyte.gz": gzip.compress(idx_bytes(images)),
        f"{prefix}-labels-idx1-ubyte": idx_bytes(np.array(labels)),
    }


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("mnist", "mnist"),
        ("fmnist", "FashionMNIST/raw"),
        ("kmnist", "KMNIST/raw"),
        ("notmnist", "notmnist"),
    ],
)
def test_idx(tmp_path, name, folder):
    write(tmp_path / folder, idx_files("t10k", GRAY, [7, 0, 1]))
    actual = load(name, tmp_path)
    assert_array_equal(actual.data, GRAY[:, None])
    assert_array_equal(actual.target, [7, 0, 1])
    color = load(name, tmp_path, gray=False)
    assert_array_equal(color.data, np.repeat(GRAY[:, None], 3, axis=1))
    with pytest.raises(FileNotFoundError, match="no files of subset='train'"):
        load(name, tmp_path, subset="train")


def test_emnist_is_transposed(tmp_path):
    images = GRAY.transpose(0, 2, 1)
    write(tmp_path / "emnist", idx_files("emnist-letters-test", images, [26, 1, 2]))
    write(tmp_path / "emnist", idx_files("emnist-digits-test", images, [0, 1, 2]))
    actual = load("emnist", tmp_path)
    assert_array_equal(actual.data[:, 0], GRAY)
    assert [actual.target_names[i - 1] for i in actual.target] == ["z", "a", "b"]


def test_tiny_images_are_mapped(tmp_path):
    path = tmp_path / "300K_random_images.npy"
    np.save(path, COLOR.transpose(0, 2, 3, 1))
    actual = load("tiny_images", tmp_path, max_samples=2)
    assert_array_equal(actual.data, COLOR[:2])
    assert_array_equal(actual.target, [-1, -1])
    np.save(path, COLOR)
    with pytest.raises(ValueError, match=r"shape \(n, 32, 32, 3\), got uint8 of shape"):
        load("tiny_images", tmp_path)
    path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="is not an array of NumPy"):
        load("tiny_images", tmp_path)


@pytest.mark.parametrize(
    ("name", "mean", "sd"),
    [("gaussian_noise", 127.5, 91.6), ("uniform_noise", 127.5, 74)],
)
def test_noise(name, mean, sd):
    """N(128, 128^2) clipped to one sd: .516 of its variance remain."""
    X = load_images(name, None, max_samples=3).data
    assert X.shape == (3, 3, 224, 224)
    assert abs(X.mean() - mean) < 1
    assert abs(X.std() - sd) < 1
    assert_array_equal(load_images(name, None, max_samples=2).data, X[:2])


PICTURES = {f"{i}.png": png(image) for i, image in enumerate(COLOR)}
FOLDERS = [
    ("lsun_crop", "LSUN/test/x"),
    ("lsun_resize", "LSUN_resize"),
    ("tin_crop", "Imagenet/test"),
    ("tin_resize", "Imagenet_resize/Imagenet_resize"),
    ("isun", "iSUN/iSUN_patches"),
    ("places365", "places365_standard/val/a/b"),
    ("inaturalist", "iNaturalist/images"),
    ("imagenet_o", "imagenet-o/n01443537"),
]


@looped("form", ["folder", "tar", "tar.gz", "zip"])
@looped(("name", "folder"), FOLDERS)
def test_folders_and_archives(tmp_path, name, folder, form):
    files = {f"{folder}/{file}": content for file, content in PICTURES.items()}
    files = dict(reversed(files.items()))  # the order of an archive does not matter
    files[f"{folder}/.DS_Store"] = b"hidden"
    files[f"{folder}/readme.txt"] = b"no image"
    if form != "folder":
        archive = {
            "tar": lambda: tar(files, "w:"),
            "tar.gz": lambda: tar(files),
            "zip": lambda: zipped(files),
        }[form]()
        files = {f"{folder.split('/')[0]}.{form}": archive}
    write(tmp_path, files)
    actual = load(name, tmp_path)
    assert_array_equal(actual.data, COLOR)
    assert_array_equal(actual.target, [-1, -1, -1])


@pytest.mark.parametrize(
    ("name", "folder"), [("textures", "dtd/images"), ("imagenet_a", "imagenet-a")]
)
def test_classes_are_folders(tmp_path, name, folder):
    files = {f"{folder}/{'bab'[i]}/{i}.png": png(x) for i, x in enumerate(COLOR)}
    write(tmp_path, files)
    actual = load(name, tmp_path)
    assert_array_equal(actual.data, COLOR[[1, 0, 2]])
    assert_array_equal(actual.target, [0, 1, 1])
    assert actual.target_names == ["a", "b"]
    write(tmp_path, {f"{folder}/lost.png": png(COLOR[0])})
    with pytest.raises(ValueError, match=r"but lost.png is in none"):
        load(name, tmp_path)


def test_folder_of_the_user(tmp_path):
    write(tmp_path / "flat", PICTURES)
    assert_array_equal(load_images("folder", tmp_path / "flat").target, [-1, -1, -1])
    write(tmp_path / "deep", {f"{c}/x/0.png": png(COLOR[0]) for c in "qp"})
    actual = load_images("folder", tmp_path / "deep")
    assert_array_equal(actual.target, [0, 1])
    assert actual.target_names == ["p", "q"]


def test_broken_archives_and_images(tmp_path):
    path = tmp_path / "LSUN_resize.tar.gz"
    path.write_bytes(tar({f"LSUN_resize/{k}": v for k, v in PICTURES.items()})[:-400])
    with pytest.raises(ValueError, match=r"LSUN_resize.tar.gz is not a whole archive"):
        load("lsun_resize", tmp_path)
    path.write_bytes(tar({"LSUN_resize/../../x.png": PICTURES["0.png"]}))
    with pytest.raises(ValueError, match="a member outside of its folder"):
        load("lsun_resize", tmp_path)
    path.write_bytes(tar({"LSUN_resize/0.png": PICTURES["0.png"][:-100]}))
    with pytest.raises(ValueError, match=r"0.png is not a whole image file"):
        load("lsun_resize", tmp_path)
    path.write_bytes(tar({"LSUN_resize/0.txt": b"no image"}))
    with pytest.raises(FileNotFoundError, match="has no image files"):
        load("lsun_resize", tmp_path)
    path.write_bytes(tar({"LSUN_resize/0.png": bytes(2**21)}))
    with pytest.raises(ValueError, match="at most 1000 are read"):
        load("lsun_resize", tmp_path, max_bytes=1000)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="neither as a folder nor as an archiv"):
        load("lsun_resize", tmp_path)


def test_sizes(tmp_path):
    write(tmp_path, {"0.png": png(COLOR[0]), "1.png": png(COLOR[1][:, :20])})
    with pytest.raises(ValueError, match=r"1.png has height and width \(20, 32\), oth"):
        load_images("folder", tmp_path)
    X = load_images("folder", tmp_path, size=(8, 4)).data
    assert X.shape == (2, 3, 8, 4)
    picture = Image.fromarray(COLOR[0].transpose(1, 2, 0))
    expected = np.asarray(picture.resize((4, 8), Image.Resampling.BILINEAR))
    assert_array_equal(X[0], expected.transpose(2, 0, 1))
    gray = load_images("folder", tmp_path, size=8, gray=True).data
    weights = np.array([0.299, 0.587, 0.114])
    constant = np.full((3, 6, 6), [[[200]], [[50]], [[10]]], dtype=np.uint8)
    write(tmp_path / "constant", {"0.png": png(constant)})
    gray = load_images("folder", tmp_path / "constant", gray=True, size=3).data
    assert_array_equal(gray, np.full((1, 1, 3, 3), weights @ [200, 50, 10] // 1))


@pytest.mark.parametrize("turned", [False, True])
def test_center_is_cropped(tmp_path, turned):
    """Of 20 x 47 pixels, resized to 10 x 23, columns 7 to 16 are left."""
    pixels = np.random.default_rng(0).integers(256, size=(20, 47), dtype=np.uint8)
    pixels = pixels.T if turned else pixels
    write(tmp_path, {"0.png": png(pixels)})
    size, shape = ((8, 9), (23, 10)) if not turned else ((9, 8), (10, 23))
    X = load_images("folder", tmp_path, gray=True, size=size, shorter_side=10).data
    whole = np.asarray(Image.fromarray(pixels).resize(shape, Image.Resampling.BILINEAR))
    whole = whole.T if turned else whole
    expected = whole[1:9, 7:16]
    assert_array_equal(X[0, 0].T if turned else X[0, 0], expected)
    noise = load_images("uniform_noise", None, size=8, max_samples=2).data
    cropped = load_images(
        "uniform_noise", None, size=8, shorter_side=8, max_samples=2
    ).data
    assert_array_equal(cropped, noise)
    for size in (None, 11):
        with pytest.raises(
            ValueError, match=r"shorter_side=10 needs a size that is at"
        ):
            load_images("folder", tmp_path, size=size, shorter_side=10)


def test_antialiasing(tmp_path):
    """Half the size of a chessboard is gray, not black or white."""
    board = (np.indices((32, 32)).sum(axis=0) % 2 * 255).astype(np.uint8)
    write(tmp_path, {"0.png": png(board)})
    X = load_images("folder", tmp_path, size=8, gray=True).data
    assert abs(X.astype(float) - 127.5).max() < 10


@pytest.mark.parametrize("packed", [False, True])
def test_cache(tmp_path, packed):
    files = {f"LSUN_resize/{k}": v for k, v in PICTURES.items()}
    write(tmp_path, {"LSUN_resize.zip": zipped(files)} if packed else files)
    cache = tmp_path / "cache"
    X = load("lsun_resize", tmp_path, cache=cache, size=8).data
    assert isinstance(X, np.memmap)
    assert_array_equal(X, load("lsun_resize", tmp_path, size=8).data)
    (stored,) = cache.iterdir()
    time = stored.stat().st_mtime_ns
    load("lsun_resize", tmp_path, cache=cache, size=8)
    assert stored.stat().st_mtime_ns == time
    load("lsun_resize", tmp_path, cache=cache, size=9)
    assert len([*cache.iterdir()]) == 2
    files["LSUN_resize/0.png"] = png(COLOR[1][:, :31])
    write(tmp_path, {"LSUN_resize.zip": zipped(files)} if packed else files)
    X = load("lsun_resize", tmp_path, cache=cache, size=8).data
    assert_array_equal(X, load("lsun_resize", tmp_path, size=8).data)


def test_failed_cache_leaves_nothing(tmp_path):
    write(tmp_path / "x", {"0.png": png(COLOR[0]), "1.png": b"broken"})
    with pytest.raises(ValueError, match="not a whole image file"):
        load_images("folder", tmp_path / "x", cache=tmp_path / "cache")
    assert not [*(tmp_path / "cache").iterdir()]


def test_omniglot_is_inverted(tmp_path):
    ink = {f"images_evaluation/Latin/{c}/0.png": png(GRAY[0]) for c in ("c2", "c1")}
    write(tmp_path, {"images_evaluation.zip": zipped(ink)})
    actual = load("omniglot", tmp_path)
    assert_array_equal(actual.data, np.broadcast_to(255 - GRAY[0], (2, 1, 5, 4)))
    assert_array_equal(actual.target, [0, 1])
    assert actual.target_names == ["Latin/c1", "Latin/c2"]
    with pytest.raises(ValueError, match=r"has the subsets \['train', 'test'\]"):
        load("omniglot", tmp_path, subset="all")


def imagenet_meta(path):
    dtype = [("ILSVRC2012_ID", object), ("WNID", object), ("num_children", object)]
    synsets = np.array([(1, "n3", 0), (2, "n1", 0), (3, "n2", 0), (4, "n0", 2)], dtype)
    savemat(path, {"synsets": synsets[:, None]})


def test_imagenet(tmp_path):
    home = tmp_path / "imagenet"
    folders = {
        f"val/{c}/{i}.JPEG": png(COLOR[i]) for i, c in enumerate(["n2", "n1", "n2"])
    }
    write(home, folders)
    actual = load("imagenet", tmp_path)
    assert_array_equal(actual.target, [0, 1, 1])
    for name in folders:
        (home / name).unlink()
    for name in ("n1", "n2"):
        (home / "val" / name).rmdir()
    write(home, {f"val/ILSVRC2012_val_{i}.JPEG": png(x) for i, x in enumerate(COLOR)})
    with pytest.raises(FileNotFoundError, match=r"need the files .* and .*meta.mat"):
        load("imagenet", tmp_path)
    imagenet_meta(home / "meta.mat")
    truth = home / "ILSVRC2012_validation_ground_truth.txt"
    truth.write_text("1\n2\n3\n")
    actual = load("imagenet", tmp_path)
    assert_array_equal(actual.data, COLOR)
    assert_array_equal(actual.target, [2, 0, 1])
    assert actual.target_names == ["n1", "n2", "n3"]
    truth.write_text("1\n2\n")
    with pytest.raises(ValueError, match="has 2 labels for 3 images"):
        load("imagenet", tmp_path)
    truth.write_text("1\n2\n9\n")
    with pytest.raises(ValueError, match="not the ground truth and the synsets"):
        load("imagenet", tmp_path)


SIGNS = {f"Test/{i}.png": png(image) for i, image in enumerate(COLOR)}


def test_gtsrb_of_kaggle(tmp_path):
    table = "Width,ClassId,Path\n1,14,Test/2.png\n1,0,Test/0.png\n1,38,Test/1.png\n"
    write(tmp_path / "gtsrb", SIGNS | {"Test.csv": table.encode()})
    actual = load("gtsrb", tmp_path)
    assert_array_equal(actual.data, COLOR[[2, 0, 1]])
    assert_array_equal(actual.target, [14, 0, 38])
    assert_array_equal(
        load("gtsrb", tmp_path, labels="color").target, ["red", "red", "blue"]
    )
    assert_array_equal(
        load("gtsrb", tmp_path, labels="shape").target, ["octagon", "circle", "circle"]
    )
    path = tmp_path / "gtsrb" / "Test.csv"
    path.write_text(table.replace("38", "43"))
    with pytest.raises(ValueError, match=r"the classes 0 to 42, got \[43\]"):
        load("gtsrb", tmp_path)
    path.write_text(table.replace("ClassId", "Class"))
    with pytest.raises(ValueError, match="columns Path and ClassId, separated by ','"):
        load("gtsrb", tmp_path)


@pytest.mark.parametrize("folder", [".", "gtsrb"])
def test_gtsrb_as_published(tmp_path, folder):
    head = "Filename;Width;Height;Roi.X1;ClassId\n"
    home = tmp_path / folder
    train = "Final_Training/Images"
    write(
        home,
        {
            f"{train}/00000/0.ppm": png(COLOR[0]),
            f"{train}/00013/0.ppm": png(COLOR[1]),
            f"{train}/00000/GT-00000.csv": f"{head}0.ppm;1;1;0;0\n".encode(),
            f"{train}/00013/GT-00013.csv": f"{head}0.ppm;1;1;0;13\n".encode(),
            "Final_Test/Images/0.ppm": png(COLOR[2]),
        },
    )
    actual = load("gtsrb", tmp_path, subset="train")
    assert_array_equal(actual.data, COLOR[:2])
    assert_array_equal(actual.target, [0, 13])
    with pytest.raises(FileNotFoundError, match="with the classes of the test images"):
        load("gtsrb", tmp_path)
    write(home, {"GT-final_test.csv": f"{head}0.ppm;1;1;0;42\n".encode()})
    actual = load("gtsrb", tmp_path)
    assert_array_equal(actual.data, COLOR[2:])
    assert_array_equal(actual.target, [42])


def test_constraints_of_gtsrb():
    constraints = gtsrb_constraints()
    assert len(set(constraints)) == 43
    assert [c.split()[0] for c in constraints[::42]] == ["class=1", "class=0"]
    kinds = {
        ("red", "circle"): [*range(6), *range(7, 11), 15, 16, 17],
        ("red", "triangle"): [11, *range(18, 32)],
        ("yellow", "square"): [12],
        ("red", "inverse_triangle"): [13],
        ("red", "octagon"): [14],
        ("white", "circle"): [6, 32, 41, 42],
        ("blue", "circle"): range(33, 41),
    }
    assert set(constraints) == {
        f"class={i} -> color={color} and shape={shape}"
        for (color, shape), numbers in kinds.items()
        for i in numbers
    }
    domains = {
        "class": [str(i) for i in range(43)],
        "color": ["red", "blue", "yellow", "white"],
        "shape": ["circle", "triangle", "square", "octagon", "inverse_triangle"],
    }
    for constraint in constraints:
        parse_constraint(constraint, domains)


@pytest.mark.parametrize("ending", ["txt", "csv"])
def test_celeba(tmp_path, ending):
    files = {f"img_align_celeba/{i}.jpg": png(x) for i, x in enumerate(COLOR)}
    rows = [["0.jpg", "-1", "1"], ["2.jpg", "1", "-1"], ["1.jpg", "1", "1"]]
    if ending == "txt":
        text = "3\nBald Young\n" + "\n".join("  ".join(row) for row in rows)
    else:
        text = "image_id,Bald,Young\n" + "\n".join(",".join(row) for row in rows)
    table = f"list_attr_celeba.{ending}"
    write(tmp_path / "celeba", files | {table: text.encode()})
    actual = load("celeba", tmp_path)
    assert_array_equal(actual.data, COLOR[[0, 2, 1]])
    assert_array_equal(actual.target, [[0, 1], [1, 0], [1, 1]])
    assert actual.target_names == ["Bald", "Young"]
    assert_array_equal(load("celeba", tmp_path, labels="Young").target, [1, 0, 1])
    with pytest.raises(ValueError, match="labels='Old' is no attribute"):
        load("celeba", tmp_path, labels="Old")
    (tmp_path / "celeba" / table).write_text(text.replace("-1", "0"))
    with pytest.raises(ValueError, match="must be -1 or 1"):
        load("celeba", tmp_path)
    (tmp_path / "celeba" / table).write_text(text.replace("1.jpg", "9.jpg"))
    with pytest.raises(FileNotFoundError, match=r"1 images .* 9.jpg among them"):
        load("celeba", tmp_path)


def test_image_list(tmp_path):
    write(tmp_path, {f"images/a b/{k}": v for k, v in PICTURES.items()})
    path = tmp_path / "lists" / "test.txt"
    path.parent.mkdir()
    path.write_text("images/a b/2.png 5\nimages/a b/0.png -1\n")
    for subset in ("lists/test.txt", path):
        actual = load_images("list", tmp_path, subset=subset)
        assert_array_equal(actual.data, COLOR[[2, 0]])
        assert_array_equal(actual.target, [5, -1])
        assert actual.target_names == [5]
    path.write_text("images/a b/2.png 5\nimages/a b/0.png\n")
    with pytest.raises(ValueError, match=r"Line 2 of .* must be a path and an integer"):
        load_images("list", tmp_path, subset=path)
    path.write_text("../2.png 5\n")
    with pytest.raises(ValueError, match="leaves the folder"):
        load_images("list", tmp_path, subset=path)
    path.write_text("images/9.png 5\n")
    with pytest.raises(FileNotFoundError, match=r"images/9.png among them"):
        load_images("list", tmp_path, subset=path)
    with pytest.raises(FileNotFoundError, match="is the path of the list"):
        load_images("list", tmp_path)


@pytest.mark.parametrize("function", [load_images, image_files])
def test_arguments(tmp_path, function):
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        function("cifar10", tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"textures has the subsets \['test'\], got"):
        function("textures", tmp_path, subset="train")
    with pytest.raises(ValueError, match="The 'name' parameter"):
        function("cifar11", tmp_path)
    with pytest.raises(ValueError, match="root=None is for noise only"):
        load_images("cifar10", None)
    with pytest.raises(ValueError, match=r"svhn has the labels \['class'\], got"):
        load_images("svhn", tmp_path, labels="color")
    assert image_files("gaussian_noise", None) == []


def test_pillow_is_needed(tmp_path, monkeypatch):
    write(tmp_path / "x", PICTURES)
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ImportError, match=r"load_images of image files needs PIL"):
        load_images("folder", tmp_path / "x")


def test_number_of_images_is_compared(tmp_path):
    write(tmp_path, CIFAR_TEST)
    with pytest.warns(UserWarning, match=r"with 10000 images; 3 were found") as caught:
        load_images("cifar10", tmp_path)
    assert caught[0].filename == __file__


FOUND = [
    ("cifar10", "test", ["cifar-10-batches-bin/test_batch.bin"], []),
    ("cifar10", "all", ["cifar-10-python.tar.gz"], []),
    ("cifar100", "all", [f"cifar-100-python/{p}" for p in ("train", "test")], []),
    ("svhn", "all", ["svhn/train_32x32.mat", "test_32x32.mat"], []),
    (
        *("mnist", "test"),
        [f"mnist/t10k-{k}-ubyte" for k in ("images-idx3", "labels-idx1")],
        ["mnist/train-images-idx3-ubyte", "mnist/train-labels-idx1-ubyte"],
    ),
    (
        *("emnist", "train"),
        [
            "EMNIST/raw/emnist-letters-train-images-idx3-ubyte.gz",
            "EMNIST/raw/emnist-letters-train-labels-idx1-ubyte",
        ],
        [],
    ),
    ("tiny_images", "test", ["300K_random_images.npy"], []),
    ("imagenet_a", "test", ["imagenet-a/"], []),
    ("lsun_crop", "test", ["LSUN.tgz"], []),
    ("imagenet", "train", ["imagenet/train/"], ["imagenet/val/"]),
    ("omniglot", "test", ["omniglot/images_evaluation/"], []),
    ("gtsrb", "all", ["Train.csv", "Train/", "Test.csv", "Test/"], ["Meta.csv"]),
    (
        *("gtsrb", "test"),
        ["GTSRB/Final_Test/Images/", "GTSRB/Final_Test/Images/GT-final_test.csv"],
        [],
    ),
    ("celeba", "test", ["list_attr_celeba.csv", "img_align_celeba.zip"], []),
    ("list", "lists/a.txt", ["lists/a.txt", "./"], []),
    ("folder", "test", ["./"], []),
]


@pytest.mark.parametrize(("name", "subset", "files", "others"), FOUND)
def test_files(tmp_path, name, subset, files, others):
    """What is there is found, without reading it; what is absent raises."""
    for file in (*files, *others):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(exist_ok=True) if file.endswith("/") else path.touch()
    actual = image_files(name, tmp_path, subset=subset)
    assert actual == [str(tmp_path / file) for file in files]
    if name != "folder":
        (tmp_path / files[-1 if name != "list" else 0]).rename(tmp_path / "moved")
        if name == "gtsrb" and subset == "all":  # the table is what is needed
            assert image_files(name, tmp_path, subset=subset) == actual[:-1]
            (tmp_path / "Test.csv").unlink()
        with pytest.raises(FileNotFoundError, match="no"):
            image_files(name, tmp_path, subset=subset)


@pytest.mark.parametrize(
    ("name", "prefix"), [("kmnist", "t10k"), ("emnist", "emnist-letters-test")]
)
def test_broken_idx(tmp_path, name, prefix):
    files = idx_files(prefix, GRAY, [7, 1, 1])
    [(images, content), (labels, _)] = files.items()
    write(tmp_path / name, files | {images: gzip.decompress(content)[:-1]})
    with pytest.raises(ValueError, match=r"images-idx3-ubyte\.gz"):
        load(name, tmp_path)
    write(tmp_path / name, files | {labels: idx_files(prefix, GRAY, [7, 1])[labels]})
    with pytest.raises(ValueError, match=r"3 images .* 2 labels"):
        load(name, tmp_path)
    (tmp_path / name / labels).unlink()
    with pytest.raises(FileNotFoundError, match="labels"):
        load(name, tmp_path)


def test_broken_omniglot(tmp_path):
    write(tmp_path, {"images_evaluation/lost.png": png(GRAY[0])})
    with pytest.raises(ValueError, match=r"but lost.png is in none"):
        load("omniglot", tmp_path)
    write(tmp_path, {"images_evaluation.zip": b"no archive"})
    (tmp_path / "images_evaluation" / "lost.png").unlink()
    (tmp_path / "images_evaluation").rmdir()
    with pytest.raises(ValueError, match="is not a whole archive"):
        load("omniglot", tmp_path)


def test_broken_official_signs(tmp_path):
    head = "Filename;Width;Height;Roi.X1;ClassId\n"
    home, table = "GTSRB/Final_Training/Images/00000", "GT-00000.csv"
    write(tmp_path, {f"{home}/0.ppm": png(COLOR[0]), f"{home}/{table}": b""})
    for content, message in (
        (f"{head}0.ppm;1;1;0;43\n", r"the classes 0 to 42, got \[43\]"),
        (f"{head}0.ppm;1;1;0;x\n", "columns Filename and ClassId, separated by ';'"),
    ):
        write(tmp_path, {f"{home}/{table}": content.encode()})
        with pytest.raises(ValueError, match=message):
            load("gtsrb", tmp_path, subset="train")
