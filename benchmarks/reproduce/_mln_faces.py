"""Searches for rules of faces, and generated attributes of faces with soft rules.

The rules (12) to (16) of the paper on CelebA hold for most faces, but not for all.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from copy import copy
from functools import cached_property
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import Bunch

from benchmarks.reproduce._mln_signs import Readings, Study, pick
from skood.logic import (
    ConstraintSearch,
    GreedySearch,
    MLNDetector,
    constraint_candidates,
)

SOURCE = Path(__file__)

#: The predicates of the search, in the order of the paper.
PREDICATES = (
    *("blond_hair", "gray_hair", "receding_hairline", "heavy_makeup", "brown_hair"),
    *("young", "wearing_lipstick", "mustache", "male", "goatee", "attractive"),
    *("bald", "no_beard"),
)
OODS = ("noise", "uniform", "faded", "texture", "mixed")
_IMAGE_NOISE = 0.45

# --- data -----------------------------------------------------------------------------


def make_face_attributes(n, *, label_noise=0.0, ood=None, random_state=None):
    """Return generated faces with 13 attributes, or OOD samples.

    An image has two columns for each attribute: a unit vector of the seed, with the
    sign + for 1 and - for 0, plus normal noise. Sets with the same seed have the same
    unit vectors, and otherwise independent samples.

    Parameters
    ----------
    n : int
        Number of samples.

    label_noise : float, default=0.0
        Probability that a label is flipped.

    ood : {"noise", "uniform", "faded", "texture", "mixed"}, default=None
        Kind of OOD samples: normal or uniform noise; images of low contrast, all with
        the same background; points near a subspace of three dimensions; images with
        each attribute of another face. None: faces.

    random_state : int, default=None
        The seed.

    Returns
    -------
    faces : Bunch
        ``data``, float32 (n, 26); ``attributes``, (n, 13), 0 or 1; ``labels``, the
        attributes with flips, or -1 of OOD samples; ``names`` of the attributes.
    """
    if ood is not None and ood not in OODS:
        raise ValueError(f"ood must be None or one of {', '.join(OODS)}, got {ood!r}.")
    streams = np.random.SeedSequence(random_state).spawn(2 + len(OODS))
    angle = 2 * np.pi * np.random.default_rng(streams[0]).random(len(PREDICATES))
    directions = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    rng = np.random.default_rng(streams[1 if ood is None else 2 + OODS.index(ood)])
    attributes = _attributes(n, rng)
    if ood == "mixed":
        attributes = rng.permuted(attributes, axis=0)
    clean = ((2 * attributes - 1)[:, :, None] * directions).reshape(n, -1)
    noise = rng.normal(size=clean.shape)
    if ood == "noise":
        data = noise
    elif ood == "uniform":
        data = rng.uniform(-1.5, 1.5, size=clean.shape)
    elif ood == "faded":
        background = rng.normal(size=clean.shape[1])
        data = 0.3 * clean + _IMAGE_NOISE * noise + 0.3 * background
    elif ood == "texture":
        subspace = rng.normal(size=(3, clean.shape[1]))
        data = rng.normal(size=(n, 3)) @ subspace / np.sqrt(3) + 0.2 * noise
    else:
        data = clean + _IMAGE_NOISE * noise
    labels = attributes ^ (rng.random(attributes.shape) < label_noise)
    return Bunch(
        data=data.astype(np.float32),
        attributes=attributes,
        labels=labels if ood is None else np.full_like(labels, -1),
        names=list(PREDICATES),
    )


def _attributes(n, rng):
    """Return attributes of faces, (n, 13), in the order of `PREDICATES`."""

    def draw(p):
        return rng.random(n) < p

    male, young = draw(0.42), draw(0.78)
    gray = draw(np.where(young, 0.005, 0.18))
    blond = draw(np.where(male, 0.02, 0.24)) & ~gray
    brown = draw(0.2) & ~blond & ~gray
    receding = draw(np.where(young, 0.04, 0.2))
    makeup = draw(np.where(male, 0.003, 0.66))
    lipstick = draw(np.where(male, 0.006, 0.8)) & (makeup | draw(0.5))
    mustache = draw(np.where(male, 0.1, 0.0005))
    goatee = draw(np.where(male, 0.15, 0.0005))
    attractive = draw(np.where(young, 0.6, 0.2))
    bald = draw(np.where(male, 0.05, 0.0002))
    shaved = draw(np.where(male, 0.7, 0.998)) & ~(male & (mustache | goatee))
    columns = (blond, gray, receding, makeup, brown, young, lipstick)
    columns += (mustache, male, goatee, attractive, bald, shaved)
    return np.stack(columns, axis=1).astype(np.int64)


# --- studies --------------------------------------------------------------------------


class FaceStudy(Study):
    """Faces with 13 attributes; detectors read the network of brown hair."""

    values = {
        name: np.array([0, 1])
        for name in ("brown_hair", *(n for n in PREDICATES if n != "brown_hair"))
    }
    #: (12) to (16)
    constraints: tuple | list = (
        "young",
        "heavy_makeup -> gray_hair",
        "wearing_lipstick -> gray_hair",
        "wearing_lipstick -> no_beard",
        "not male -> no_beard",
    )
    min_improvement, search_set = 0.01, "textures"
    methods_of_search: tuple = ("MLN+Ensemble",)

    @property
    def concepts(self):
        """Names of the concepts."""
        return tuple(self.values)

    @property
    def search(self):
        """Return the search for constraints of MLN+Ensemble."""
        return ConstraintSearch(
            MLNDetector([], self.named_concepts(), "confidence", calibration="same"),
            candidates=constraint_candidates({n: [0, 1] for n in PREDICATES}),
            search=GreedySearch(
                min_improvement=self.min_improvement, prune=self.run.recipe == "ours"
            ),
            validation=0.5,
            test=0.0,
            random_state=self.seed,
        )

    def _with_ood(self, name, *oods):
        """Return features and labels of an ID set and of OOD sets."""
        Z, y = self.Z(name), self.labels(name)
        other = [self.Z(ood) for ood in oods]
        marked = np.full((sum(map(len, other)), y.shape[1]), -1)
        return np.concatenate([Z, *other]), np.concatenate([y, marked])

    def searched(self):
        """Return samples of a search with an OOD set, and of the test on all sets."""
        return (
            *self._with_ood("calibration", self.search_set),
            *self._with_ood("ID", *self.oods),
        )

    def transferred(self):
        """Return ID samples and OOD sets of the search, and ID samples of the test."""
        sets = {name: self.Z(name) for name in self.oods}
        return self.Z("calibration"), self.labels("calibration"), sets, self.Z("ID")

    def searched_constraints(self):
        """Return the constraints of a search with the OOD set."""
        return self.search.fit(*self.searched()[:2]).constraints_

    @cached_property
    def of_search(self):
        """Return the same study with the constraints of a search."""
        study = copy(self)
        study.constraints, study._scores = self.searched_constraints(), {}
        return study


class Faces(FaceStudy):
    """Generated faces: a logistic regression on the two columns of each attribute.

    Half of the faces are for training, with flipped labels, a quarter for calibration
    and the search, and a quarter for the test. OOD samples of the search are half
    "texture", half "mixed".
    """

    oods = transfer_sets = OODS
    is_supervised, min_improvement, search_set = False, 0.002, "search"
    methods_of_search = ("Logic", "Logic+Ensemble", "MLN", "MLN+Ensemble")

    def __init__(self, run, seed, label_noise=0.04, n=6000):
        super().__init__(run, seed)
        self.label_noise, self.n = label_noise, n
        self.prefix = f"faces {label_noise:g}/"

    @cached_property
    def samples(self):
        """Return (images, labels) by set."""
        faces = make_face_attributes(
            self.n, label_noise=self.label_noise, random_state=self.seed
        )
        index = [PREDICATES.index(name) for name in self.concepts]
        half, end = self.n // 2, 3 * self.n // 4
        sets = {
            "train": (faces.data[:half], faces.labels[:half, index]),
            "calibration": (faces.data[half:end], faces.attributes[half:end, index]),
            "ID": (faces.data[end:], faces.attributes[end:, index]),
        }
        n_test, n_search = self.n // 10, self.n // 8
        of_search = []
        for kind in OODS:
            other = make_face_attributes(
                n_test + n_search, ood=kind, random_state=self.seed
            )
            sets[kind] = other.data[:n_test], other.labels[:n_test]
            if kind in ("texture", "mixed"):
                of_search.append(other.data[n_test:])
        X = np.concatenate(of_search)
        sets["search"] = X, np.full((len(X), len(index)), -1)
        return sets

    @cached_property
    def readings(self):
        """Return the classifiers, each on the two columns of its attribute."""
        X, labels = self.samples["train"]
        groups = []
        for name, y in zip(self.concepts, labels.T, strict=True):
            start = 2 * PREDICATES.index(name)
            body = FunctionTransformer(pick, kw_args={"columns": (start, start + 2)})
            head = LogisticRegression().fit(body.fit_transform(X), y)
            groups.append({name: (body, head)})
        return Readings(groups)

    def Z(self, name):
        """Return the columns of a set, in the order of the concepts."""
        return self.readings.of(self.samples[name][0])

    def labels(self, name):
        """Return the labels of a set."""
        return self.samples[name][1]
