"""German traffic signs, with the colors and shapes of their classes."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import csv
import io

import numpy as np

from benchmarks.reproduce._file_trees import FileTree, find_path, find_tree, lines_of
from benchmarks.reproduce._packed_images import FoundImages
from skood.utils._untrusted import decoding

_COLORS = ("red", "blue", "yellow", "white")
_SHAPES = ("triangle", "circle", "square", "octagon", "inverse_triangle")
# Color, shape and class numbers
_SIGNS = (
    ("red", "circle", (*range(6), *range(7, 11), 15, 16, 17)),
    ("red", "triangle", (11, *range(18, 32))),
    ("yellow", "square", (12,)),
    ("red", "inverse_triangle", (13,)),
    ("red", "octagon", (14,)),
    ("white", "circle", (6, 32, 41, 42)),
    ("blue", "circle", tuple(range(33, 41))),
)
_CONCEPTS = {
    number: {"class": number, "color": color, "shape": shape}
    for color, shape, numbers in _SIGNS
    for number in numbers
}
_N_CLASSES = len(_CONCEPTS)


def gtsrb_constraints():
    """Return the rules between class, color and shape of German traffic signs.

    One rule for each of the 43 classes of the German Traffic Sign Recognition
    Benchmark [1]_, for estimators of :mod:`skood.logic`. ``load_images("gtsrb", …,
    labels="color")`` returns the colors, and ``labels="shape"`` the shapes.

    Returns
    -------
    constraints : list of str of length 43
        The rules of the classes 1, …, 42, 0.

    See Also
    --------
    load_images : The pictures of the signs.
    make_traffic_signs : Generated pictures, without files.

    References
    ----------
    .. [1] J. Stallkamp, M. Schlipsing, J. Salmen, C. Igel. Man vs. computer:
       benchmarking machine learning algorithms for traffic sign recognition. Neural
       Networks, 2012.
    """
    rule = "class={class} -> color={color} and shape={shape}"
    order = (*range(1, _N_CLASSES), 0)
    return [rule.format(**_CONCEPTS[number]) for number in order]


def find_gtsrb(root, request):
    """Return the table of each part on Kaggle, or the folder or archive of its signs.

    Beside the published test images there is a table of their classes.
    """
    home, found = _home(root), []
    for part in request.parts:
        table = home / f"{part.capitalize()}.csv"
        if table.is_file():
            found += [table, *home.glob(part.capitalize())]
            continue
        path, _ = find_path(root, _folders(home, part))
        found.append(path)
        if part == "test":
            found.append(_truth(home, path))
    return found


def _home(root):
    return root / "gtsrb" if (root / "gtsrb").is_dir() else root


def _folders(home, part):
    """Return the folder of a part as published, under alternative names."""
    folder = {"train": "Final_Training/Images", "test": "Final_Test/Images"}[part]
    return f"{home.name}/{folder}", f"GTSRB/{folder}", folder


def _truth(home, folder):
    """Return the path of the table of the published test images, or raise."""
    for path in (folder / "GT-final_test.csv", home / "GT-final_test.csv"):
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"There is no {home / 'Test.csv'}, nor {home / 'GT-final_test.csv'} with "
        "the classes of the test images."
    )


def read_gtsrb(root, request):
    """Read the traffic signs, as on Kaggle (Train.csv) or as published (GT-….csv)."""
    home = _home(root)
    names, numbers = [], []
    tree = FileTree(home, max_bytes=request.max_bytes)
    for part in request.parts:
        table = home / f"{part.capitalize()}.csv"
        if table.is_file():
            found = _table(table.read_bytes(), table, ",", "Path")
        else:
            tree, found = _official(root, home, part, request.max_bytes)
        names += found[0]
        numbers += found[1]
    outside = sorted(set(numbers) - set(_CONCEPTS))
    if outside:
        raise ValueError(
            f"{home} must have the classes 0 to {_N_CLASSES - 1}, got {outside}."
        )
    names_of: dict[str, list] = {
        "class": list(range(_N_CLASSES)),
        "color": list(_COLORS),
        "shape": list(_SHAPES),
    }
    return FoundImages(
        target=np.array([_CONCEPTS[number][request.labels] for number in numbers]),
        target_names=names_of[request.labels],
        filenames=[f"{tree}/{name}" for name in names],
        tree=tree,
        names=names,
    )


def _official(root, home, part, max_bytes):
    """Return the tree, names and classes of a part as published."""
    tree = find_tree(root, _folders(home, part), max_bytes=max_bytes)
    if part == "test":
        path = _truth(home, tree.path)
        return tree, _table(path.read_bytes(), path, ";", "Filename")
    names, numbers = [], []
    for table in (name for name in tree.names if name.endswith(".csv")):
        parent = table.rpartition("/")[0]
        found = _table(tree.read_file(table), f"{tree}/{table}", ";", "Filename")
        names += [f"{parent}/{name}" for name in found[0]]
        numbers += found[1]
    return tree, (names, numbers)


def _table(content, path, delimiter, column):
    """Return the files and the classes that a table lists."""
    text = "\n".join(lines_of(content, path))
    kind = f"a table with the columns {column} and ClassId, separated by {delimiter!r}"
    with decoding(path, kind):
        rows = list(csv.DictReader(io.StringIO(text), delimiter=delimiter))
        return [row[column] for row in rows], [int(row["ClassId"]) for row in rows]
