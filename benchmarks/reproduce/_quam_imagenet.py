"""Tables 2 and C.4 and Figure 4: the last layer of a network for ImageNet."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from functools import cached_property, partial

import numpy as np
import torch
from scipy.special import log_softmax
from sklearn.utils import Bunch
from torch import nn

from benchmarks.reproduce import _networks
from benchmarks.reproduce._paper import Row, own_method
from benchmarks.reproduce._quam_images import ranked
from benchmarks.reproduce._recipes import printed_recipe
from benchmarks.reproduce._run import Stored
from benchmarks.reproduce._training import prepare
from skood.epistemic import (
    QUAM,
    AdversarialSearch,
    CyclicalSchedule,
    CyclicalSGHMC,
    MCDropout,
    entropy,
    member_uncertainty,
)
from skood.metrics import aurc, auroc
from skood.nn import TorchClassifier, pretrained, split

METHODS = ("Reference", "cSG-HMC", "MCD", "DE (LL)", "DE (all)", "QUAM")

#: Networks of "DE (all)", and the sizes of their images; the first is the given one.
NETWORKS = {
    **{"efficientnet_v2_s": 384, "efficientnet_v2_m": 480, "efficientnet_b0": 224},
    **{"efficientnet_b1": 240, "efficientnet_b2": 288, "efficientnet_b3": 300},
    **{"efficientnet_b4": 380, "efficientnet_b5": 456, "efficientnet_b6": 528},
}

RECIPE = {
    **{"n_train": 32_768, "batch_size": 512, "n_targets": 1000, "n_passes": 2048},
    **{"n_id": {"ImageNet-O": 2000, "ImageNet-A": 7000}, "n_members": 10},
    "epochs": {"ImageNet-O": 4, "ImageNet-A": 3},
    "eta": {"ImageNet-O": 1.01, "ImageNet-A": 1.005},
    "targets": (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000),
}


class ImageNet:
    """Features of ImageNet by a frozen network; the runs are disjoint ID parts."""

    recipe, networks, n_classes = RECIPE, NETWORKS, 1000

    def __init__(self, run, seed):
        self.run, self.seed = run, seed
        self._results = {}

    def stored(self, name):
        """Return a network with the weights of its file in ``DATA/weights``."""
        net = _networks.of_torchvision(name, self.n_classes, **_networks.IMAGENET)
        path = self.run.data / "weights" / f"{name}.pth"
        net[1].load_state_dict(torch.load(path, weights_only=True))
        frozen = pretrained(
            net.eval(), np.arange(self.n_classes), device=self.run.device
        )
        return Stored(frozen, f"{name}-{self.run.digest(f'weights/{name}.pth')[:16]}")

    def features(self, name, set_name):
        """Return features and labels of a set by a network."""
        size = {"size": self.networks[name], "shorter_side": self.networks[name]}

        def load():
            if set_name == "train":
                return self.run.images("list", self.training_list(), **size)
            return self.run.images(set_name, **size)

        return self.run.features(self.stored(name), set_name, load, prepare=prepare)

    def training_list(self):
        """Write a list of as many training images of each class, and return its path.

        Classes are numbered in the order of the names of their folders.
        """
        [root] = [
            p for p in ("train", "imagenet/train") if (self.run.data / p).is_dir()
        ]
        folders = sorted(p for p in (self.run.data / root).iterdir() if p.is_dir())
        n = -(-self.recipe["n_train"] // len(folders))
        lines = [
            f"{path.relative_to(self.run.data)} {label}"
            for label, folder in enumerate(folders)
            for path in sorted(folder.iterdir())[:n]
        ]
        path = self.run.out / "lists" / "imagenet-train.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
        return path.resolve()

    @property
    def given(self):
        """Return the name of the given network."""
        return next(iter(self.networks))

    @cached_property
    def head(self):
        """Return the last layer of the given network, a frozen model of features."""
        return split(self.stored(self.given).network)[1]

    @cached_property
    def train(self):
        """Return features and labels for the penalty."""
        found = self.features(self.given, "train")
        return found.Z, found.y

    def id_rows(self, ood):
        """Return the ID samples of this run: a part of the validation images."""
        sizes = self.recipe["n_id"]
        n = len(self.features(self.given, "imagenet").y)
        order = np.random.default_rng(0).permutation(n)
        if ood == "ImageNet-A":
            order = order[3 * sizes["ImageNet-O"] :]
        return order[self.seed * sizes[ood] : (self.seed + 1) * sizes[ood]]

    def samples(self, name, ood):
        """Return features of the ID and OOD samples by a network."""
        known = self.features(name, "imagenet")
        other = self.features(name, ood.lower().replace("-", "_"))
        rows = self.id_rows(ood)
        return Bunch(id=known.Z[rows], y=known.y[rows], ood=other.Z)

    def ood_of(self, task):
        """Return the name of the OOD set of a task; of ID samples alone ImageNet-A."""
        return task if task in self.recipe["n_id"] else "ImageNet-A"

    def search(self, task, n_targets):
        """Return QUAM with the published settings.

        The printed numbers of models are the reference and the first steps.
        """
        recipe, temperature, ood = self.recipe, 1e-3, self.ood_of(task)
        steps = recipe["epochs"][ood] * recipe["n_train"] // recipe["batch_size"]
        if self.run.recipe == "printed":
            printed = printed_recipe("quam")["imagenet"][task]
            temperature = printed["temperature"]
            steps = min(steps, printed["n_models"] - 1)
        search = AdversarialSearch(
            max(1, steps),
            lr=1e-3,
            weight_decay=1e-4,
            c0=1.0,
            eta=recipe["eta"][ood],
            update_every=1,
            gamma=1e-3,
            batch_size=recipe["batch_size"],
        )
        return QUAM(
            self.head,
            search,
            scope="last",
            targets=n_targets,
            temperature=temperature,
            random_state=self.seed,
        )

    def dropout(self, n_passes):
        """Return dropout before the last layer, as when the network was trained."""
        coef, intercept = (
            torch.tensor(getattr(self.head, name), dtype=torch.float32)
            for name in ("coef", "intercept")
        )
        linear = nn.Linear(coef.shape[1], coef.shape[0])
        linear.load_state_dict({"weight": coef, "bias": intercept})
        module = nn.Sequential(nn.Dropout(0.2), linear)
        frozen = pretrained(module.eval(), self.head.classes_, device=self.run.device)
        return MCDropout(frozen, n_passes, random_state=self.seed)

    def scores(self, name, task):
        """Return uncertainties of the ID and OOD samples."""
        if self.run.recipe == "ours" or name != "QUAM":
            task = self.ood_of(task)
        if (name, task) not in self._results:
            self._results[name, task] = self._scores(name, task)
        return self._results[name, task]

    def _scores(self, name, task):
        ood = self.ood_of(task)
        sets = self.samples(self.given, ood)
        both = np.concatenate([sets.id, sets.ood])
        if name == "Reference":
            found = entropy(_log_proba(self.head, both))
        elif name.startswith("DE"):
            members = self._last_layers if name == "DE (LL)" else self._all_networks
            found = member_uncertainty(
                members(ood),
                reference=_log_proba(self.head, both),
                setting="b",
            ).epistemic
        else:
            method = self.run.placed(self.method(name, task)).fit(*self.train)
            if hasattr(method, "predict_uncertainty"):
                found = method.predict_uncertainty(both).epistemic
            else:
                found = -method.score_samples(both)
        return found[: len(sets.id)], found[len(sets.id) :]

    def method(self, name, task):
        """Return an unfitted method of features."""
        if name == "MCD":
            return self.dropout(self.recipe["n_passes"])
        if name == "cSG-HMC":
            schedule = CyclicalSchedule(n_cycles=4, epochs_per_cycle=10)
            return CyclicalSGHMC(self.head, schedule, random_state=self.seed)
        if name == "QUAM":
            return self.search(task, self.recipe["n_targets"])
        return own_method(self.run.methods[name], self.head)

    def _last_layers(self, ood):
        """Return log-probabilities by last layers trained on halves of the features."""
        sets, (Z, y) = self.samples(self.given, ood), self.train
        both, rng = (
            np.concatenate([sets.id, sets.ood]),
            np.random.default_rng(self.seed),
        )
        found = []
        for member in range(self.recipe["n_members"]):
            rows = rng.permutation(len(Z))[: len(Z) // 2]
            layer = TorchClassifier(
                _linear, max_epochs=10, random_state=member, device=self.run.device
            ).fit(Z[rows], y[rows])
            if len(layer.classes_) != self.n_classes:
                raise ValueError("A half of the training features lacks a class.")
            found.append(_log_proba(layer, both))
        return np.stack(found)

    def _all_networks(self, ood):
        """Return log-probabilities by the networks whose weights are there."""
        found = []
        for name in self.networks:
            if not self.run.has(f"weights/{name}.pth"):
                continue
            sets = self.samples(name, ood)
            head = split(self.stored(name).network)[1]
            found.append(_log_proba(head, np.concatenate([sets.id, sets.ood])))
        return np.stack(found)


def _log_proba(head, Z):
    return log_softmax(head.decision_function(Z).astype(np.float64), axis=1)


def _linear(input_shape, n_classes):
    return nn.Linear(input_shape[0], n_classes)


def _methods(parts):
    return {**dict.fromkeys(METHODS), **parts.run.methods}


def table_2(parts):
    """Yield AUROCs on OOD sets and wrong predictions, and selective prediction."""
    for name, own in _methods(parts).items():
        for ood in ("ImageNet-O", "ImageNet-A"):
            yield Row(ood, partial(_ood, parts, name, ood, ("AUROC",)), (name, own))
        yield Row(
            "Misclassification", partial(_wrong, parts, name, ("AUROC",)), (name, own)
        )
        yield Row("Selective prediction", partial(_retained, parts, name), (name, own))


def table_c4(parts):
    """Yield FPR95, AUROC and AUPR."""
    metrics = ("FPR95", "AUROC", "AUPR")
    for name, own in _methods(parts).items():
        for ood in ("ImageNet-O", "ImageNet-A"):
            yield Row(ood, partial(_ood, parts, name, ood, metrics), (name, own))
        yield Row(
            "Misclassification", partial(_wrong, parts, name, metrics), (name, own)
        )


def _ood(parts, name, ood, metrics):
    found = ranked(*parts.scores(name, ood))
    return {f"{name}/{metric}": found[metric] for metric in metrics}


def _predictions(parts):
    sets = parts.samples(parts.given, "ImageNet-A")
    return sets.y, parts.head.predict(sets.id)


def _wrong(parts, name, metrics):
    y, predicted = _predictions(parts)
    scores, _ = parts.scores(name, "Misclassification")
    found = ranked(scores[predicted == y], scores[predicted != y])
    return {f"{name}/{metric}": found[metric] for metric in metrics}


def _retained(parts, name):
    y, predicted = _predictions(parts)
    scores, _ = parts.scores(name, "Selective prediction")
    area = 1.0 - aurc(y, predicted, -scores)
    return {f"{name}/AUC of accuracy over retained fraction": area}


def figure_4(parts):
    """Yield QUAM with few targets, and dropout with as many forward passes."""
    for n_targets in parts.recipe["targets"]:
        yield Row(f"{n_targets} targets", partial(_budget, parts, n_targets))


def _budget(parts, n_targets):
    """Return AUROCs on ImageNet-O; a backward pass counts as two forward passes."""
    quam = parts.search("ImageNet-O", n_targets)
    n_passes = 3 * n_targets * quam.search.n_steps
    sets = parts.samples(parts.given, "ImageNet-O")
    both = np.concatenate([sets.id, sets.ood])
    y = np.repeat([0, -1], [len(sets.id), len(sets.ood)])
    found = {"forward passes": n_passes}
    for name, method in (("QUAM", quam), ("MCD", parts.dropout(n_passes))):
        method = parts.run.placed(method).fit(*parts.train)
        scores = method.predict_uncertainty(both).epistemic
        found[f"{name}/AUROC"] = auroc(y, -scores)
    return found
