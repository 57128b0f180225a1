"""ID sets, image lists and networks of OpenOOD v1.5."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.reproduce import _networks

SOURCE = Path(__file__)

CLASSIC, LARGE = "images_classic", "images_largescale"


def _list(folder, name, images=CLASSIC):
    """Return the path of an image list, and the folder of its images."""
    return f"benchmark_imglist/{folder}/{name}.txt", images


@dataclass(frozen=True)
class Benchmark:
    """An ID set of OpenOOD; sets are (path of an image list, folder of the images).

    ``id_sets`` are "train" and "test", and ``groups`` "near", "far" and "csid" of named
    sets.
    """

    id_sets: dict
    groups: dict
    n_classes: int
    network: partial
    weights: str  # with {seed}
    size: int
    shorter_side: int
    n_train: int | None = None

    @property
    def std(self):
        """Standard deviations by which the network divides channels."""
        return self.network.keywords["std"]


def _cifar(name, statistics, n_classes, near, csid):
    def lists(**names):
        return {label: _list(name, file) for label, file in names.items()}

    return Benchmark(
        id_sets=lists(train=f"train_{name}", test=f"test_{name}"),
        groups={
            "near": lists(**near, TIN="test_tin"),
            "far": lists(
                MNIST="test_mnist",
                SVHN="test_svhn",
                Textures="test_texture",
                Places365="test_places365",
            ),
            "csid": lists(**csid),
        },
        n_classes=n_classes,
        network=partial(_networks.resnet, **statistics),
        weights=f"weights/openood-{name}-{{seed}}.pth",
        size=32,
        shorter_side=32,
    )


def _imagenet(name, n_classes, depth, weights, csid):
    near = {"SSB-hard": "test_ssb_hard", "NINCO": "test_ninco"}
    far = {"iNaturalist": "test_inaturalist", "OpenImage-O": "test_openimage_o"}
    return Benchmark(
        id_sets={p: _list(name, f"{p}_{name}", LARGE) for p in ("train", "test")},
        groups={
            "near": {k: _list("imagenet", v, LARGE) for k, v in near.items()},
            "far": {
                **{k: _list("imagenet", v, LARGE) for k, v in far.items()},
                "Textures": _list("imagenet", "test_textures"),
            },
            "csid": {
                f"ImageNet-{k.upper()}": _list(name, f"test_{csid}_{k}", LARGE)
                for k in ("v2", "c", "r")
            },
        },
        n_classes=n_classes,
        network=partial(
            _networks.resnet, depth=depth, small_images=False, **_networks.IMAGENET
        ),
        weights=weights,
        size=224,
        shorter_side=256,
        n_train=50_000,
    )


BENCHMARKS = {
    "cifar10": _cifar(
        *("cifar10", _networks.CIFAR10, 10),
        near={"CIFAR-100": "test_cifar100"},
        csid={"CIFAR-10-C": "test_cifar10c"},
    ),
    "cifar100": _cifar(
        *("cifar100", _networks.CIFAR100, 100),
        near={"CIFAR-10": "test_cifar10"},
        csid={},
    ),
    "imagenet200": _imagenet(
        *("imagenet200", 200, 18, "weights/openood-imagenet200-{seed}.pth"),
        csid="imagenet200",
    ),
    "imagenet": _imagenet(
        *("imagenet", 1000, 50, "weights/resnet50.pth"), csid="imagenet"
    ),
}
