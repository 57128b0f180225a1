"""Schweighofer et al.: uncertainty by adversarial models, QUAM (2023).

Table 1 has a LeNet on MNIST against other images, Tables 2 and C.4 the last layer of an
EfficientNetV2-S on ImageNet. Scores are the epistemic part in setting "b", in which the
given network is judged, and the entropy of the network as a reference. Tables C.1 to
C.3 are not in the stored text of the paper: columns without printed values. Figures
C.9 and C.10 use the networks of Table 1; others have data sets of their own, which need
no files.

Where the paper is silent: early stopping on a sixth of the training images; three
networks; four cycles of cSG-HMC. ``--recipe printed`` has the LeNet of the authors'
code, and on ImageNet their temperatures and numbers of models.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.reproduce import _quam_hard, _quam_imagenet, _quam_images
from benchmarks.reproduce import _quam_similarity as similarity
from benchmarks.reproduce import _quam_studies as studies
from benchmarks.reproduce._paper import Claim, Experiment, Paper
from benchmarks.reproduce._quam_images import OOD_SETS, Digits, FewImages, Images

_IMAGE_TABLES = {
    "1": _quam_images.table_1,
    "C.1": _quam_images.table_c1,
    "C.2": _quam_images.table_c2,
    "C.3": _quam_images.table_c3,
    **similarity.TABLES,
}

# --- claims ---------------------------------------------------------------------------


def _aurocs(records, row):
    """Return AUROCs of Table 1 by method."""
    return {
        column.removesuffix("/AUROC"): records.of("1", row, column)
        for column in records.columns("1", row)
        if column.endswith("/AUROC") and ", total/" not in column
    }


def _quam(found):
    """Return the name of the QUAM that is judged: the published one if there."""
    return next((name for name in ("QUAM", "QUAM, dense") if name in found), None)


def quam_is_first(records):
    """Return by how much QUAM is ahead of the best of the others."""
    gains = []
    for row in records.rows("1"):
        found = _aurocs(records, row)
        others = [v for k, v in found.items() if k in _quam_images.PRINTED[:-1]]
        if _quam(found) and others:
            gains.append(found[_quam(found)] - np.max(others, axis=0))
    return np.stack(gains, axis=1) if gains else None


def is_above_reference(records, method, sign=1):
    """Return by how much a method is above the entropy of the network.

    With ``sign=-1`` by how much it is below, on the sets of the paper.
    """
    gains = []
    for row in records.rows("1"):
        if sign < 0 and row not in OOD_SETS:
            continue
        found = _aurocs(records, row)
        name = _quam(found) if method == "QUAM" else method
        if name in found and "Reference" in found:
            gains.append(sign * (found[name] - found["Reference"]))
    return np.stack(gains, axis=1) if gains else None


def is_first_on_imagenet(records, row, metric="AUROC"):
    """Return by how much QUAM is ahead of the best other method of Table 2."""
    columns = records.columns("2", row) if row in records.rows("2") else []
    others = [f"{name}/{metric}" for name in _quam_imagenet.METHODS if name != "QUAM"]
    others = [column for column in others if column in columns]
    if f"QUAM/{metric}" not in columns or not others:
        return None
    best = np.max([records.of("2", row, column) for column in others], axis=0)
    return records.of("2", row, f"QUAM/{metric}") - best


# --- the paper ------------------------------------------------------------------------


def _image_experiments():
    for ood, reader in OOD_SETS.items():
        yield Experiment(
            f"MNIST against {ood}",
            partial(Images, ood=ood),
            _IMAGE_TABLES,
            needs=("mnist", "mnist/train", reader),
            seeds=3,
            recipe=_quam_images.RECIPE,
            time="a day of a GPU",
        )


_WEIGHTS = tuple(f"weights/{name}.pth" for name in _quam_imagenet.NETWORKS)

PAPER = Paper(
    name="quam",
    title="Quantification of uncertainty with adversarial models",
    experiments=[
        *_image_experiments(),
        Experiment(
            "MNIST's test files against notMNIST",
            partial(FewImages, ood="notMNIST"),
            _IMAGE_TABLES,
            needs=("mnist", "notmnist"),
            seeds=3,
            recipe=_quam_images.RECIPE_OF_TEST_FILES,
            time="20 minutes a run on a CPU",
        ),
        Experiment(
            "MNIST's test files against harder sets",
            _quam_hard.Hard,
            {"hard": _quam_hard.table_hard},
            needs=("mnist", "notmnist"),
            seeds=2,
            recipe=_quam_images.RECIPE_OF_TEST_FILES,
            time="10 minutes a run on a CPU",
        ),
        Experiment(
            "ImageNet-1K",
            _quam_imagenet.ImageNet,
            {
                "2": _quam_imagenet.table_2,
                "C.4": _quam_imagenet.table_c4,
                "fig-4": _quam_imagenet.figure_4,
            },
            needs=(
                *("imagenet", "imagenet_o", "imagenet_a", _WEIGHTS[0]),
                *(f"?{name}" for name in _WEIGHTS[1:]),
            ),
            seeds=3,
            recipe=_quam_imagenet.RECIPE,
            time="two days of a GPU",
        ),
        *(replace(study, recipes=("ours",)) for study in studies.EXPERIMENTS),
    ],
    small=[
        Experiment(
            "digits",
            Digits,
            {"1": _quam_images.table_1, "C.3": _quam_images.table_c3},
            seeds=2,
            recipe=Digits.recipe,
            recipes=("ours",),
        ),
        *(replace(study, recipes=("ours",)) for study in studies.SMALL),
    ],
    claims=[
        Claim("QUAM has the largest AUROC on all sets", "1", quam_is_first),
        Claim(
            "QUAM is above the entropy of the network",
            "1",
            partial(is_above_reference, method="QUAM"),
        ),
        Claim(
            "A deep ensemble is above the entropy of the network",
            "1",
            partial(is_above_reference, method="DE"),
        ),
        *(
            Claim(
                f"{method} is below the entropy of the network",
                "1",
                partial(is_above_reference, method=method, sign=-1),
            )
            for method in ("cSG-HMC", "Laplace", "MCD")
        ),
        *(
            Claim(
                f"QUAM is first: {row}",
                "2",
                partial(is_first_on_imagenet, row=row, metric=metric),
            )
            for row, metric in (
                ("ImageNet-O", "AUROC"),
                ("Misclassification", "AUROC"),
                ("Selective prediction", "AUC of accuracy over retained fraction"),
            )
        ),
        Claim(
            "Not the paper's: the smaller p-value of two is within .02 of the better",
            "hard",
            _quam_hard.smaller_is_near_the_better,
        ),
        *similarity.CLAIMS,
        *studies.CLAIMS,
    ],
    notes={
        "1": "QUAM has the published search over all weights; in QUAM, dense and QUAM, "
        "last few steps on cached features. With MNIST's test files only, 7,000 images "
        "are for training and 500 of the others are the test: rows of ours.",
        "2": "Runs are disjoint parts of the ID images, as in the paper. The shorter "
        "side of images is resized, and the center cropped. DE (all) has the networks "
        "whose weights are there.",
        "C.3": "In setting b QUAM predicts as the given network: it has no mean.",
        "hard": "QUAM with the defaults, if no option is named. Intervals of a single "
        "run are DeLong's.",
        **similarity.NOTES,
        **studies.NOTES,
    },
    cannot_follow={
        ("1", "*", "cSG-HMC/*"): "the released sampler has one cycle and no momentum, "
        "and stores 4,000 samples of 6,000 steps",
        ("2", "*", "cSG-HMC/*"): "the released sampler has one cycle and no momentum",
        ("C.4", "*", "cSG-HMC/*"): "the released sampler has one cycle and no momentum",
    },
    figures={**similarity.FIGURES, **studies.FIGURES},
    sources=[
        *(
            Path(module.__file__)
            for module in (_quam_images, _quam_hard, _quam_imagenet, similarity)
        ),
        *studies.SOURCES,
    ],
)
