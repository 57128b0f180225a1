"""Libraries of networks for DSDE: small ones on digits, and ResNets on CIFAR."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from sklearn.utils import Bunch

from benchmarks.reproduce import _networks
from benchmarks.reproduce._paper import own_method
from benchmarks.reproduce._recipes import printed_recipe
from benchmarks.reproduce._training import (
    OPENOOD,
    SUPCON,
    prepare,
    train_supcon,
    trained_openood,
)
from skood.combine import DOSStorey, conformal_pvalues
from skood.datasets import load_digits_ood
from skood.detectors import KNN, MSP, ODIN, Energy
from skood.nn import split

#: Files whose code affects values: this one, and the networks of the examples.
SOURCES = (
    Path(__file__),
    Path(__file__).parents[2] / "examples" / "combine" / "_library.py",
)
sys.path.insert(0, str(SOURCES[1].parent))

from _library import contrastive_loss, divide, parts_of, train_library  # noqa: E402

__all__ = [
    "CIFAR_OOD",
    "METHODS",
    "MNIST",
    "RESIZED_OOD",
    "SOURCES",
    "Digits",
    "SmallDigits",
    "Stored",
    "contrastive_loss",
    "parts_of",
]

METHODS = ("MSP", "ODIN", "Energy", "KNN")


class Library:
    """Scores of a library of networks on calibration, ID and OOD images.

    A subclass has ``prefix`` of the names of rows, ``models``, the names of networks,
    ``c_m`` and ``pvalue_method``, and ``scores_of(method)``: by set ("calibration",
    "ID", and the OOD sets) an array (n_samples, n_models).
    """

    prefix = ""
    c_m = None
    pvalue_method = "conformal"
    n_neighbors = 50

    def __init__(self, run, seed):
        self.run, self.seed = run, seed
        self._scores, self._pvalues = {}, {}
        if run.recipe == "printed":
            recipe = printed_recipe("dsde")
            self.c_m = float(Fraction(recipe["c_m"]))
            self.pvalue_method, self.n_neighbors = recipe["method"], recipe["knn"]

    def scores(self, method):
        """Return scores by set."""
        if method not in self._scores:
            self._scores[method] = self.scores_of(method)
        return self._scores[method]

    def pvalues(self, method):
        """Return p-values by set."""
        if method not in self._pvalues:
            scores = dict(self.scores(method))
            calibration = scores.pop("calibration")
            self._pvalues[method] = {
                name: conformal_pvalues(S, calibration, method=self.pvalue_method)
                for name, S in scores.items()
            }
        return self._pvalues[method]

    def dsde(self):
        """Return the combiner."""
        return DOSStorey(c_m=self.c_m)


# --- small networks: digits, and MNIST ------------------------------------------------

_LEFT_OUT = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))


class Digits(Library):
    """Eight small networks of four structures and two losses, trained on digits.

    The sets of OOD images are of ``examples/combine``: left-out digits, mirrored
    digits, digits with permuted quarters, letters, and pieces of photographs.
    """

    prefix = "digits/"
    n_views, n_neighbors, n_most = 64, 5, 300

    def divided(self):
        """Return the parts of the images, see `divide`."""
        X, y = load_digits_ood(left_out=(), as_images=True, return_X_y=True)
        left_out = _LEFT_OUT[self.seed % len(_LEFT_OUT)]
        return divide(X, y, left_out, n_train=600, seed=self.seed, n_most=self.n_most)

    @cached_property
    def images(self):
        """Return the images by part."""
        return self.divided()

    @cached_property
    def library(self):
        """Return the trained networks by name."""
        X, y = self.images.X_train, self.images.y_train
        return train_library(X, y, n_views=self.n_views, seed=self.seed)

    @property
    def models(self):
        """Names of the networks, which are not trained for them."""
        return [
            f"{body} {loss}"
            for loss in ("CE", "SupCon")
            for body in ("perceptron", "plain", "residual", "dense")
        ]

    def detector(self, method, network):
        """Return an unfitted detector of a network."""
        if method == "KNN":
            return KNN(network, n_neighbors=self.n_neighbors)
        if method in METHODS:
            return {"MSP": MSP, "ODIN": ODIN, "Energy": Energy}[method](network)
        return own_method(self.run.methods[method], network)

    def scores_of(self, method):
        """Return the scores of all networks by set."""
        parts = self.images
        sets = {"calibration": parts.X_calibration, "ID": parts.images["known"]}
        sets |= {name: X for name, X in parts.images.items() if name != "known"}
        detectors = [
            self.run.placed(self.detector(method, self.library[name])).fit(
                parts.X_train, parts.y_train
            )
            for name in self.models
        ]
        return {
            name: np.column_stack([d.score_samples(X) for d in detectors])
            for name, X in sets.items()
        }


class SmallDigits(Digits):
    """The same with few steps of training, and fewer OOD images."""

    n_views, n_most = 8, 150


class MNIST(Digits):
    """The same on MNIST, with notMNIST as letters."""

    prefix = "MNIST/"
    n_views, n_neighbors, n_most = 16, 10, 1000

    def divided(self):
        """Return the parts of the images."""
        X, y = self.run.images("mnist")
        letters = prepare(self.run.images("notmnist")[0])
        left_out = _LEFT_OUT[self.seed % len(_LEFT_OUT)]
        options = {"n_train": 4000, "letters": letters, "n_most": self.n_most}
        return divide(prepare(X), y, left_out, seed=self.seed, **options)


# --- CIFAR ----------------------------------------------------------------------------

CIFAR_OOD = {
    "SVHN": "svhn",
    "LSUN": "lsun_crop",
    "iSUN": "isun",
    "DTD": "textures",
    "Places365": "places365",
}
#: LSUN as it is also published.
RESIZED_OOD = {
    "LSUN resized" if name == "LSUN" else name: reader.replace(
        "lsun_crop", "lsun_resize"
    )
    for name, reader in CIFAR_OOD.items()
}
_DEPTHS = (18, 34, 50, 101, 152)
_RESNETS = {
    f"ResNet{depth}": partial(_networks.resnet, depth=depth) for depth in _DEPTHS
}


class Stored(Library):
    """Networks that are stored with their features."""

    c_m = 2 / 7
    pvalue_method = "ecdf"
    n_calibration = 5000

    def __init__(
        self, run, seed, id_name, statistics, n_classes, supcon, oods=CIFAR_OOD
    ):
        super().__init__(run, seed)
        self.id_name, self.statistics, self.n_classes = id_name, statistics, n_classes
        self.oods = oods
        self.prefix = "" if "LSUN" in oods else "LSUN resized/"
        self.factories = {
            **({"ResNet18*": _networks.resnet} if supcon else {}),
            **_RESNETS,
            "DenseNet": _networks.densenet100,
        }

    @property
    def models(self):
        """Names of the networks."""
        return list(self.factories)

    @cached_property
    def training(self):
        """Return training and calibration images with labels."""
        X, y = self.run.images(self.id_name, "train")
        parts = train_test_split(
            *(prepare(X), y),
            test_size=self.n_calibration,
            stratify=y,
            random_state=self.seed,
        )
        return Bunch(train=(parts[0], parts[2]), calibration=(parts[1], parts[3]))

    def stored(self, name):
        """Return a trained network."""
        factory = partial(self.factories[name], **self.statistics)
        supcon, shape = name.endswith("*"), (3, 32, 32)
        device = self.run.device

        def train():
            X, y = self.training.train
            if not supcon:
                return trained_openood(
                    *(factory, X, y),
                    seed=self.seed,
                    device=device,
                    verbose=self.run.verbose,
                )
            with torch.random.fork_rng():
                torch.manual_seed(self.seed)
                module = factory(shape, self.n_classes)
            train_supcon(
                *(module[:-1], module[-1], X, y, contrastive_loss),
                seed=self.seed,
                device=device,
            )
            return Bunch(module_=module)

        return self.run.network(
            f"dsde-{self.id_name}-{name}-{self.seed}".replace("*", "-supcon"),
            train=train,
            module=lambda: factory(shape, self.n_classes),
            classes=np.arange(self.n_classes),
            depends=(
                *("dsde", name, self.seed, SUPCON if supcon else OPENOOD),
                self.run.digest(self.id_name),
            ),
        )

    def loaders(self):
        """Return functions that load images and labels, by set."""

        def load(name):
            X, y = self.run.images(name, size=32)
            return prepare(X, n_channels=3), y

        return {
            "train": lambda: self.training.train,
            "calibration": lambda: self.training.calibration,
            "ID": partial(load, self.id_name),
            **{ood: partial(load, name) for ood, name in self.oods.items()},
        }

    @cached_property
    def features(self):
        """Return the head, and features by set, of each network."""
        found = {}
        for name in self.models:
            stored = self.stored(name)
            scale = 1 / np.array(self.statistics["std"])
            odin = ODIN(stored.network, scale=scale, device=self.run.device)
            X, y = self.training.calibration
            odin.fit(X[:500], y[:500])  # only for its threshold, which is not used

            def extra(X, odin=odin):
                return {"odin": odin.score_samples(X)}

            sets = {
                part: self.run.features(
                    stored, part, load, None if part == "train" else extra
                )
                for part, load in self.loaders().items()
            }
            found[name] = Bunch(head=split(stored.network)[1], **sets)
        return found

    def scores_of(self, method):
        """Return the scores of all networks by set."""
        columns = {name: [] for name in ("calibration", "ID", *self.oods)}
        for part in self.features.values():
            detector = self.detector(method, part.head)
            if detector is not None:
                self.run.placed(detector).fit(part.train.Z, part.train.y)
            for name, found in columns.items():
                given = part[name]
                found.append(
                    given.odin if detector is None else detector.score_samples(given.Z)
                )
        return {name: np.column_stack(found) for name, found in columns.items()}

    def detector(self, method, head):
        """Return an unfitted detector of features; None for ODIN, which is stored."""
        if method == "ODIN":
            return None
        if method == "KNN":
            return KNN(n_neighbors=self.n_neighbors, normalize=True)
        if method in METHODS:
            return {"MSP": MSP, "Energy": Energy}[method](head)
        return own_method(self.run.methods[method], head)
