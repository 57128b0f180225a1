"""Small data in IDX files, and one run of the demo that many tests look at."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import struct

import numpy as np
import pytest
from sklearn.model_selection import StratifiedShuffleSplit

from skood.benchmark import Output, compare, run_demo
from skood.benchmark._options import Options
from skood.metrics import Resampling
from tests._forks import killed_if


def idx_bytes(array):
    """The IDX file of an array of bytes, by the format's description."""
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return head + array.astype(np.uint8).tobytes()


DEFAULTS = {
    "id_data": "digits",
    "ood_data": None,
    "folder": None,
    "left_out": None,
    "n_train": None,
    "n_test": None,
    "max_epochs": None,
    "tpr_min": 0.8,
    "fpr_max": 0.2,
    "random_state": 0,
    "out": None,
}


#: The demo, trained too little to be without errors, and bounds that it meets.
QUICK = {"max_epochs": 4, "n_train": 300, "tpr_min": 0.6, "fpr_max": 0.3}


def make_options(**changes):
    """Options of the demo: the defaults, with some exceptions."""
    return Options(**DEFAULTS | changes)


def kill_after(n_lines, journal, function):
    """Run a function in a forked process, which is killed at so many lines."""

    def is_written():
        return journal.exists() and journal.read_bytes().count(b"\n") == n_lines

    killed_if(is_written, function)


def compared(*args, **params):
    """`compare`, with options of the resamples, files and repeats by name."""
    for kind, parameter, names in (
        (Resampling, "resampling", ("n_resamples", "confidence_level")),
        (Output, "output", ("cache", "resume", "report", "verbose")),
    ):
        options = {name: params.pop(name) for name in names if name in params}
        params[parameter] = kind(**options)
    if "repeats" in params:
        n_repeats, size = params.pop("repeats"), params.get("split", 0.3)
        splitter = StratifiedShuffleSplit(n_repeats, test_size=size, random_state=0)
        params["split"] = splitter
    return compare(*args, **params)


@pytest.fixture
def write_idx(tmp_path):
    """A function that writes images and labels to a folder of the data folder."""

    def write(name, images, labels):
        folder = tmp_path / "data" / name
        folder.mkdir(parents=True)
        (folder / "t10k-images-idx3-ubyte").write_bytes(idx_bytes(images))
        (folder / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.asarray(labels)))
        return tmp_path / "data"

    return write


@pytest.fixture
def numbered():
    """A function that makes images of which no two are alike."""

    def make(n_samples, first=0):
        number = np.arange(first, first + n_samples)
        images = np.zeros((n_samples, 4, 4), dtype=np.uint8)
        images[:, 0, 0], images[:, 0, 1] = number // 200, number % 200
        return images

    return make


@pytest.fixture(scope="session")
def digits_result(tmp_path_factory):
    """The demo on the digits, trained too little to be without errors."""
    out = tmp_path_factory.mktemp("out")
    return run_demo(**QUICK, out=out)
