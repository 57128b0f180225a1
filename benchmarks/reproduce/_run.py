"""One run of the command: its folders, device and options, networks and features."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import os
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Bunch

from benchmarks.reproduce import _files
from benchmarks.reproduce._images import load_images
from skood.benchmark import content_hash
from skood.nn import pretrained, split


def placed(estimator, device):
    """Set the `device` of a detector, or of the steps of a pipeline; return it."""
    if not hasattr(estimator, "get_params"):
        return estimator
    names = [
        name
        for name in estimator.get_params()
        if name == "device" or (name.count("__") == 1 and name.endswith("__device"))
    ]
    names = [name for name in names if not name.startswith("estimator__")]
    return estimator.set_params(**dict.fromkeys(names, device))


class Stored(NamedTuple):
    """Trained network, and the name of its file."""

    network: FrozenEstimator
    name: str


@dataclass(frozen=True)
class Run:
    """Options that all experiments share.

    ``methods`` are the user's own, by name, ``max_bytes`` is the maximal size of a
    chunk of float32 images whose features are computed at a time, ``seeds`` is the
    number of runs of the experiment: if it is 1, rows may bootstrap their samples, and
    ``recipe`` is "ours" or "printed".
    """

    data: Path | None
    out: Path
    device: str = "auto"
    small: bool = False
    methods: Mapping[str, Any] = field(default_factory=dict)
    verbose: int = 0
    max_bytes: int = 2**31
    seeds: int | None = None
    recipe: str = "ours"

    def has(self, name):
        """Return whether the files of a data set are there."""
        return _files.find(name, self.data) is not None

    def images(self, name, subset="test", **options):
        """Return images, uint8 (n, channels, height, width), and labels.

        ``options`` are of `load_images`, such as ``size``. Decoded images are stored in
        ``OUT/cache``.
        """
        given = {"root": self.data, "subset": subset, "cache": self.out / "cache"}
        return load_images(name, return_X_y=True, **{**given, **options})

    def placed(self, estimator):
        """Set the device of a detector, see `placed`; return it."""
        return placed(estimator, self.device)

    def network(self, name, *, train, module, classes, depends):
        """Return a trained network, frozen, which is trained only if it is not stored.

        Parameters
        ----------
        name : str
            Start of the name of its file.

        train : callable
            Returns a fitted classifier with a ``module_``.

        module : callable
            Returns a new module, for the weights.

        classes : array-like
            Class labels.

        depends : object
            All that training depends on: recipe, seed, data (``digest``).

        Returns
        -------
        stored : Stored
            The network, a frozen classifier, and the name of its file.
        """
        stored = f"{name}-{content_hash(depends)[:16]}"
        path = self.out / "networks" / f"{stored}.pt"
        if not path.exists():
            weights = train().module_.state_dict()
            with replacing(path) as file:
                torch.save({k: v.cpu() for k, v in weights.items()}, file)
        net = module()
        net.load_state_dict(torch.load(path, weights_only=True))
        return Stored(pretrained(net.eval(), classes, device=self.device), stored)

    def features(self, stored, name, load, extra=None, *, prepare=None):
        """Return features of a data set by a stored network, from a file if there is.

        Parameters
        ----------
        stored : Stored
            From `network`.

        name : str
            Name of the set, such as "mnist/test".

        load : callable
            Returns images as the network needs them, and labels.

        extra : callable, default=None
            Called with the images, it returns a dict of further arrays.

        prepare : callable, default=None
            Converts loaded images to what the network needs, in chunks of `max_bytes`:
            only one is in memory, and on the device, at a time.

        Returns
        -------
        features : Bunch
            ``Z``, float32 (n, n_features), rounded to float16 as in the file, ``y``,
            and the extra arrays.
        """
        path = self.out / "features" / stored.name / f"{name.replace('/', '-')}.npz"
        if not path.exists():
            X, y = load()
            body, chunks = split(stored.network)[0], []
            size = max(1, self.max_bytes // (4 * math.prod(X.shape[1:])))
            for start in range(0, len(X), size):
                chunk = X[start : start + size]
                chunk = chunk if prepare is None else prepare(chunk)
                Z = body.transform(chunk).astype(np.float16)
                chunks.append({"Z": Z, **({} if extra is None else extra(chunk))})
            arrays = {
                key: np.concatenate([c[key] for c in chunks]) for key in chunks[0]
            }
            with replacing(path) as file:
                np.savez(file, y=y, **arrays)
        with np.load(path) as file:
            found = Bunch(**dict(file))
        found.Z = found.Z.astype(np.float32)
        return found

    def digest(self, *needs):
        """Return a hash of the files of data sets."""
        return _files.digest(needs, self.data)


@contextmanager
def replacing(path):
    """Write a binary file that gets its name when it is complete."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as file:
            yield file
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
