"""Networks of the concepts of GTSRB and CelebA, trained on the owners' files."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from sklearn.utils import Bunch
from torch.nn import functional

from benchmarks.reproduce import _networks
from benchmarks.reproduce._gtsrb import gtsrb_constraints
from benchmarks.reproduce._mln_faces import FaceStudy
from benchmarks.reproduce._mln_signs import Readings, Study
from skood.nn import LinearHead, split

SOURCE = Path(__file__)

#: The recipe of the text. The authors' code has a learning rate of 0.001 for the
#: networks of concepts other than the class, and changes it once per epoch.
RECIPE = {"lr": 0.01, "max_epochs": 10, "batch_size": 32}

_OODS = {
    "LSUN crop": "lsun_crop",
    "LSUN resize": "lsun_resize",
    "Tiny ImageNet crop": "tin_crop",
    "Tiny ImageNet resize": "tin_resize",
    "Places365": "places365",
    "iNaturalist": "inaturalist",
    "Gaussian noise": "gaussian_noise",
    "uniform noise": "uniform_noise",
}
_FILES = tuple(name for name in _OODS.values() if not name.endswith("noise"))
GTSRB_NEEDS = ("gtsrb", *_FILES, "?tiny_images")
CELEBA_NEEDS = ("celeba", *_FILES, "textures", "?tiny_images")
_N_OOD, _N_TINY = 10_000, 50_000

# --- networks -------------------------------------------------------------------------


class Encoder(NamedTuple):
    """Network: ``make(n_outputs)``, size of images, and the name of its weights."""

    make: Callable
    size: int
    weights: str
    packages: tuple = ()


def _bytes(mean=(0.0,) * 3, std=(1.0,) * 3):
    """Return statistics of images in units of bytes."""
    return {"mean": [255 * v for v in mean], "std": [255 * v for v in std]}


_IMAGENET = _bytes(**_networks.IMAGENET)


def _own(factory, size, statistics, n_outputs):
    return factory((3, size, size), n_outputs, **statistics)


def _of_torchvision(name, n_outputs):
    return _networks.of_torchvision(name, n_outputs, **_IMAGENET)


_RESNET18 = partial(_networks.resnet, depth=18, small_images=False)

#: Encoders of Table 2.
ENCODERS = {
    "ResNet-18": Encoder(partial(_own, _RESNET18, 224, _IMAGENET), 224, "resnet18"),
    "ConvNeXt-Tiny": Encoder(
        partial(_of_torchvision, "convnext_tiny"),
        *(224, "convnext_tiny", ("torchvision",)),
    ),
    "WideResNet-40": Encoder(
        partial(_own, _networks.wide_resnet, 32, _bytes()), 32, "wide_resnet40_2"
    ),
    "ViT": Encoder(
        partial(_of_torchvision, "vit_b_16"), *(224, "vit_b_16", ("torchvision",))
    ),
}


class Images:
    """Some images of several arrays of bytes, which may be memory maps."""

    def __init__(self, *parts):
        self.parts = parts
        self._ends = np.cumsum([len(rows) for _, rows in parts])

    def __len__(self):
        return int(self._ends[-1])

    def __getitem__(self, index):
        index = np.asarray(index)
        place = np.searchsorted(self._ends, index, side="right")
        array = self.parts[0][0]
        found = np.empty((len(index), *array.shape[1:]), dtype=np.uint8)
        for i, (array, rows) in enumerate(self.parts):
            chosen = place == i
            start = self._ends[i] - len(rows)
            found[chosen] = array[rows[index[chosen] - start]]
        return found


def train(make, images, codes, sizes, *, seed, device="auto", recipe=RECIPE):
    """Return a network after training by cross entropy, summed over heads.

    SGD with Nesterov's momentum of 0.9, and half a cosine over steps; in bfloat16 on
    CUDA.

    Parameters
    ----------
    make : callable
        Returns the network; its outputs are the logits of all heads.

    images : Images
        The images.

    codes : ndarray of shape (n_samples, n_heads)
        Indices of classes.

    sizes : list of int
        Number of classes of each head.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    kind = torch.device(device).type
    codes, size = torch.as_tensor(codes), recipe["batch_size"]
    total = recipe["max_epochs"] * math.ceil(len(codes) / size)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = make().to(device).train()
        optimizer = torch.optim.SGD(
            module.parameters(), lr=recipe["lr"], momentum=0.9, nesterov=True
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: (1 + math.cos(math.pi * step / total)) / 2
        )
        for _ in range(recipe["max_epochs"]):
            for rows in torch.randperm(len(codes)).split(size):
                if len(rows) == 1 < size:  # no statistics for batch normalization
                    continue
                X = torch.from_numpy(images[rows]).to(device).float()
                with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
                    logits = module(X)
                loss = sum(
                    functional.cross_entropy(part, target.to(device))
                    for part, target in zip(
                        logits.float().split(sizes, dim=1), codes[rows].T, strict=True
                    )
                )
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
    return module.cpu().eval()


# --- data sets ------------------------------------------------------------------------


class Stored(Study):
    """Networks and features that are stored.

    A subclass has ``id_name``, ``encoder``, ``values`` (the classes of each concept),
    and ``samples``: by part ("train", "calibration", "ID") images and labels.
    """

    oods, n_batches, encoder = tuple(_OODS), 100, "WideResNet-40"
    id_name = ""
    values: dict = {}

    def __init__(self, run, seed, encoder=None, is_shared=False):
        super().__init__(run, seed)
        self.encoder = encoder or self.encoder
        self._is_shared, self._Z = is_shared, {}

    @property
    def concepts(self):
        """Names of the concepts."""
        return tuple(self.values)

    @property
    def is_supervised(self):
        """Whether there are OOD images for a network of ID samples."""
        return not self._is_shared and self.run.has("tiny_images")

    @property
    def size(self):
        """Height and width of images."""
        return ENCODERS[self.encoder].size

    @property
    def weights(self):
        """Name of the file of weights, relative to the folder of the data."""
        return f"weights/{ENCODERS[self.encoder].weights}.pth"

    def read(self, name, subset="test", **options):
        """Return images of a size, and labels."""
        return self.run.images(name, subset, size=self.size, **options)

    def read_labeled(self, subset, names):
        """Return the images of a part of the ID set, and a column of labels by name."""
        read = [self.read(self.id_name, subset, labels=name) for name in names]
        return read[0][0], np.column_stack([y.astype(object) for _, y in read])

    def load(self, name):
        """Return the images of a set."""
        if name in self.samples:
            return self.samples[name].images
        X, _ = self.read(_OODS.get(name, name), max_samples=_N_OOD)
        return Images((X, np.arange(len(X))))

    def labels(self, name):
        """Return the labels of an ID set."""
        return self.samples[name].labels

    def _training(self, name):
        """Return images, codes and numbers of classes to train a network."""
        images, labels = self.samples["train"].images, self.labels("train")
        if name == "is_id":
            tiny = self.read("tiny_images", max_samples=_N_TINY)[0]
            both = Images(*images.parts, (tiny, np.arange(len(tiny))))
            codes = np.arange(len(both)) < len(images)
            return both, codes.astype(np.int64)[:, None], [2]
        names = self.concepts if self._is_shared else [name]
        codes = [
            np.searchsorted(self.values[one], labels[:, self.concepts.index(one)])
            for one in names
        ]
        return images, np.column_stack(codes), [len(self.values[n]) for n in names]

    def classes(self, name):
        """Return the classes of a network; numbers for a shared one."""
        if self._is_shared:
            return np.arange(sum(map(len, self.values.values())))
        return np.array([False, True]) if name == "is_id" else self.values[name]

    def stored(self, name):
        """Return the network of a concept, "is_id", or all concepts, "shared"."""
        classes = self.classes(name)
        weights = self.run.has(self.weights)

        def make(pretrained=weights):
            module = ENCODERS[self.encoder].make(len(classes))
            if pretrained:
                path = self.run.data / self.weights
                _networks.load_weights(module, path, head=False)
            return module

        def trained():
            options = {"seed": self.seed, "device": self.run.device}
            return Bunch(module_=train(make, *self._training(name), **options))

        needs = (self.id_name, self.weights, *["tiny_images"] * (name == "is_id"))
        return self.run.network(
            f"mln-{self.id_name}-{self.encoder}-{name}-{self.seed}",
            train=trained,
            module=partial(make, pretrained=False),
            classes=classes,
            depends=(
                "mln",
                name,
                self.encoder,
                RECIPE,
                self.seed,
                self.run.digest(*needs),
            ),
        )

    @cached_property
    def networks(self):
        """Return the stored networks by name."""
        if self._is_shared:
            return {"shared": self.stored("shared")}
        names = (*self.concepts, *["is_id"] * self.is_supervised)
        return {name: self.stored(name) for name in names}

    def image_concepts(self):
        """Return classifiers of images, as parameters of detectors."""
        return [(name, self.networks[name].network) for name in self.concepts]

    def some_images(self):
        """Return ID images."""
        images = self.load("ID")
        return images[np.arange(min(1024, len(images)))]

    @cached_property
    def readings(self):
        """Return the heads of all networks."""
        pairs = {name: split(one.network) for name, one in self.networks.items()}
        if not self._is_shared:
            return Readings([{name: pair} for name, pair in pairs.items()])
        body, head = pairs["shared"]
        ends = np.cumsum([len(values) for values in self.values.values()])[:-1]
        parts = zip(
            self.values.items(),
            np.split(head.coef_, ends),
            np.split(head.intercept_, ends),
            strict=True,
        )
        return Readings(
            [{name: (body, LinearHead(W, b, v)) for (name, v), W, b in parts}]
        )

    def Z(self, name):
        """Return the features of a set; of the training images by the first network."""
        if name not in self._Z:
            networks = list(self.networks.values())

            def load():
                images = self.load(name)
                return images[np.arange(len(images))], np.zeros(len(images))

            if name == "train":
                networks = networks[:1]
            found = [self.run.features(one, name, load).Z for one in networks]
            self._Z[name] = np.concatenate(found, axis=1)
        return self._Z[name]

    @cached_property
    def _heads(self):
        return type(self)(self.run, self.seed, self.encoder, is_shared=True)

    def shared(self):
        """Return the same study with one body for all concepts."""
        return self._heads


class StoredGTSRB(Stored):
    """Traffic signs: class, color and shape, with a rule for each class."""

    id_name, prefix = "gtsrb", "GTSRB/"
    values = {
        "class": np.arange(43),
        "color": np.array(["blue", "red", "white", "yellow"]),
        "shape": np.array(
            ["circle", "inverse_triangle", "octagon", "square", "triangle"]
        ),
    }

    @property
    def constraints(self):
        """A rule for each class."""
        return gtsrb_constraints()

    @cached_property
    def samples(self):
        """Return images and labels by part; 4,209 of 39,209 are for calibration."""
        X, y = self.read_labeled("train", self.values)
        X_test, y_test = self.read_labeled("test", self.values)
        train, calibration = train_test_split(
            np.arange(len(X)), test_size=round(len(X) * 4209 / 39209), random_state=123
        )
        return {
            "train": Bunch(images=Images((X, train)), labels=y[train]),
            "calibration": Bunch(
                images=Images((X, calibration)), labels=y[calibration]
            ),
            "ID": Bunch(images=Images((X_test, np.arange(len(X_test)))), labels=y_test),
        }


class CelebA(FaceStudy, Stored):
    """Faces with 13 attributes; detectors read the network of brown hair."""

    id_name, prefix, encoder = "celeba", "CelebA/", "ResNet-18"
    transfer_sets = tuple(_OODS)
    sizes = (150_000, 2_599, 50_000)

    @cached_property
    def samples(self):
        """Return images and labels by part; of fewer images the same fractions."""
        X, y = self.read_labeled("test", [name.title() for name in self.values])
        rows = np.random.default_rng(self.seed).permutation(len(X))
        ends = np.cumsum(self.sizes)[:2] * len(X) // sum(self.sizes)
        parts = zip(("train", "calibration", "ID"), np.split(rows, ends), strict=True)
        return {
            name: Bunch(images=Images((X, some)), labels=y[some])
            for name, some in parts
        }
