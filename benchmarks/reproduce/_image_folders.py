"""Folders, archives and lists of image files."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import io

import numpy as np

from benchmarks.reproduce._file_trees import (
    FileTree,
    find_path,
    find_tree,
    leaves_folder,
    lines_of,
)
from benchmarks.reproduce._mat_files import read_mat
from benchmarks.reproduce._packed_images import FoundImages
from skood.utils._untrusted import check_unpacked_size, decoding

_ENDINGS = (".png", ".jpg", ".jpeg", ".ppm", ".pgm", ".bmp", ".gif", ".webp")
_FORMATS = ("PNG", "JPEG", "PPM", "BMP", "GIF", "WEBP")  # others may start programs
_LONGEST = 100  # times the shorter side, which is resized


# Folders of the parts of data sets, under alternative names.
IMAGENET_FOLDERS = {
    "train": ("imagenet/train", "train"),
    "test": ("imagenet/val", "val"),
}
OMNIGLOT_FOLDERS = {
    "train": ("images_background", "omniglot/images_background"),
    "test": ("images_evaluation", "omniglot/images_evaluation"),
}


def find_folders(root, request, *, folders):
    """Return the folder or archive of each part; `folders` are by part, or of all."""
    by_part = folders if isinstance(folders, dict) else {request.subset: folders}
    return [find_path(root, by_part[part])[0] for part in request.parts]


def image_names(tree):
    """Return the names of the image files of a tree, or raise if there are none."""
    names = [name for name in tree.names if name.lower().endswith(_ENDINGS)]
    if not names:
        raise FileNotFoundError(f"{tree} has no image files ({', '.join(_ENDINGS)}).")
    return names


def read_folder(root, request, *, folders, depth=0):
    """Read all images of a folder; the first `depth` folders of a path are its class.

    Without classes, all targets are -1.
    """
    tree = find_tree(root, folders, max_bytes=request.max_bytes)
    return _images_of(tree, image_names(tree), depth)


def _images_of(tree, names, depth):
    """Return images of a tree; the first `depth` folders of a path are its class."""
    target, classes = np.full(len(names), -1), np.empty(0, dtype=str)
    if depth:
        labels = ["/".join(name.split("/")[:-1][:depth]) for name in names]
        if "" in labels:
            outside = names[labels.index("")]
            raise ValueError(
                f"{tree} must have a folder for each class, but {outside} is in none."
            )
        classes, target = np.unique(labels, return_inverse=True)
    return FoundImages(
        target=target,
        target_names=list(map(str, classes)),
        filenames=[f"{tree}/{name}" for name in names],
        tree=tree,
        names=names,
    )


def read_own_folder(root, request):
    """Read the images of `root` itself; folders in it are classes."""
    tree = FileTree(root, max_bytes=request.max_bytes)
    names = image_names(tree)
    flat = all("/" not in name for name in names)
    return _images_of(tree, names, depth=0 if flat else 1)


def read_omniglot(root, request):
    """Read characters, with black ink on white: inverted, as MNIST's digits are."""
    folders = OMNIGLOT_FOLDERS[request.subset]
    found = read_folder(root, request, folders=folders, depth=2)
    found.gray = found.inverted = True
    return found


def read_imagenet(root, request):
    """Read ImageNet; validation images are in folders of classes, or in one folder."""
    folders = IMAGENET_FOLDERS[request.subset]
    tree = find_tree(root, folders, max_bytes=request.max_bytes)
    names = image_names(tree)
    if request.subset == "train" or any("/" in name for name in names):
        return _images_of(tree, names, depth=1)
    home = root / "imagenet" if (root / "imagenet").is_dir() else root
    classes, target = _imagenet_truth(home, len(names))
    return FoundImages(
        target=target,
        target_names=classes,
        filenames=[f"{tree}/{name}" for name in names],
        tree=tree,
        names=names,
    )


def _imagenet_truth(folder, n_images):
    """Return the names of the classes, sorted, and the class of validation images."""
    truth = folder / "ILSVRC2012_validation_ground_truth.txt"
    meta = folder / "meta.mat"
    missing = [str(path) for path in (truth, meta) if not path.is_file()]
    if missing:
        raise FileNotFoundError(
            "Validation images of ImageNet in one folder need the files "
            f"{' and '.join(missing)}; or put them into a folder for each class."
        )
    files = f"{truth} and {meta}"
    with decoding(files, "the ground truth and the synsets of ILSVRC 2012"):
        numbers = [int(line) for line in lines_of(truth.read_bytes(), truth)]
        synsets = read_mat(meta)["synsets"]
        columns = ("ILSVRC2012_ID", "WNID", "num_children")
        codes = {
            int(i.item()): code
            for i, code, n_children in zip(*map(synsets.get, columns), strict=True)
            if n_children.item() == 0
        }
        order = {code: i for i, code in enumerate(sorted(codes.values()))}
        target = np.array([order[codes[i]] for i in numbers])
    if len(target) != n_images:
        raise ValueError(
            f"{truth} has {len(target)} labels for {n_images} images in the folder."
        )
    return sorted(order), target


def read_celeba(root, request):
    """Read aligned faces with 40 attributes, 0 or 1, or one of the attributes."""
    path = _celeba_table(root)
    names, attributes, values = _attributes(path)
    tree = find_tree(path.parent, _CELEBA_FOLDERS, max_bytes=request.max_bytes)
    inner = {name.rsplit("/", 1)[-1]: name for name in image_names(tree)}
    absent = [name for name in names if name not in inner]
    if absent:
        raise FileNotFoundError(
            f"{len(absent)} images of {path} are not in {tree}, {absent[0]} among them."
        )
    if request.labels != "class":
        if request.labels not in attributes:
            raise ValueError(
                f"labels={request.labels!r} is no attribute of {path}. Choose among "
                f"{attributes}."
            )
        values = values[:, attributes.index(request.labels)]
    return FoundImages(
        target=values,
        target_names=attributes if values.ndim == 2 else [0, 1],
        filenames=[f"{tree}/{inner[name]}" for name in names],
        tree=tree,
        names=[inner[name] for name in names],
    )


_CELEBA_FOLDERS = ("img_align_celeba",)


def find_celeba(root, request):
    """Return the table of attributes, and the folder or archive of the faces."""
    del request
    path = _celeba_table(root)
    return [path, find_path(path.parent, _CELEBA_FOLDERS)[0]]


def _celeba_table(root):
    """Return the path of the table of attributes, or raise."""
    for home in (root, root / "celeba"):
        for ending in ("txt", "csv"):
            path = home / f"list_attr_celeba.{ending}"
            if path.is_file():
                return path
    raise FileNotFoundError(
        f"There is no {root / 'list_attr_celeba.txt'}, nor one in {root / 'celeba'}, "
        "nor with the ending .csv."
    )


def _attributes(path):
    """Return image names, attribute names and 0/1 values (n, n_attributes)."""
    lines = lines_of(path.read_bytes(), path)
    try:
        if path.suffix == ".txt":
            attributes = lines[1].split()
            rows = [line.split() for line in lines[2:]]
            if int(lines[0]) != len(rows):
                raise ValueError(f"{lines[0]} images announced, {len(rows)} listed")
        else:
            attributes = lines[0].split(",")[1:]
            rows = [line.split(",") for line in lines[1:]]
        values = np.array([row[1:] for row in rows], dtype=np.int64)
        if values.shape[1:] != (len(attributes),) or not np.isin(values, (-1, 1)).all():
            raise ValueError("each attribute of each image must be -1 or 1")
    except (IndexError, ValueError) as error:
        raise ValueError(
            f"{path} is not a list of CelebA's attributes: {error}."
        ) from error
    return [row[0] for row in rows], attributes, (values + 1) // 2


def find_list(root, request):
    """Return the path of the list, and the folder of the images."""
    path = root / request.subset
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no {path}: the subset of name='list' is the path of the list, "
            "relative to the folder of the images or absolute."
        )
    return [path, root]


def read_list(root, request):
    """Read the images of a list: a path relative to `root` and a label per line."""
    path, _ = find_list(root, request)
    names, labels = [], []
    for number, line in enumerate(lines_of(path.read_bytes(), path), start=1):
        try:
            name, label = line.rsplit(maxsplit=1)
            labels.append(int(label))
        except ValueError:
            raise ValueError(
                f"Line {number} of {path} must be a path and an integer, got {line!r}."
            ) from None
        if leaves_folder(name):
            raise ValueError(
                f"Line {number} of {path} leaves the folder of the images: {name!r}."
            )
        names.append(name)
    absent = [
        name for name in names[: request.max_samples] if not (root / name).is_file()
    ]
    if absent:
        raise FileNotFoundError(
            f"{len(absent)} images of {path} are not in {root}, {absent[0]} among them."
        )
    return FoundImages(
        target=np.array(labels, dtype=np.int64),
        target_names=sorted(set(labels) - {-1}),
        filenames=[str(root / name) for name in names],
        tree=FileTree(root, max_bytes=request.max_bytes),
        names=names,
    )


def decode(content, name, *, size, gray, inverted, max_bytes=None):
    """Return an image file as an array (c, h, w), `resized` if `size` is given."""
    from PIL import Image

    with decoding(name, "a whole image file"):
        image = Image.open(io.BytesIO(content), formats=_FORMATS)
        n_bytes = 4 * image.width * image.height  # in memory, for any number of bands
        check_unpacked_size(n_bytes, len(content), max_bytes, name=name)
        converted = image.convert("L" if gray else "RGB")
    pixels = np.asarray(resized(converted, size))
    pixels = 255 - pixels if inverted else pixels
    return pixels[None] if gray else pixels.transpose(2, 0, 1)


def resized(image, size):
    """Return an image of Pillow resized bilinearly, with antialiasing, to (h, w).

    With a third number in `size`, the shorter side is resized to it, and the center
    (h, w) is cropped.
    """
    from PIL import Image

    if size is None or image.size == size[::-1]:
        return image
    height, width, *shorter = size
    if not shorter:
        return image.resize((width, height), Image.Resampling.BILINEAR)
    least = min(image.size)
    if max(image.size) > _LONGEST * least:
        raise ValueError(
            f"An image of {image.size} pixels is too long for a center of {size[:2]}: "
            f"one side is more than {_LONGEST} times the other."
        )
    whole = tuple(int(shorter[0] * side / least) for side in image.size)
    image = image.resize(whole, Image.Resampling.BILINEAR)
    left, top = round((whole[0] - width) / 2), round((whole[1] - height) / 2)
    return image.crop((left, top, left + width, top + height))
