"""Table 22: models of evidence on images."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from functools import cached_property, partial

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import Bunch

from benchmarks.reproduce import _networks
from benchmarks.reproduce._paper import Row, own_method
from benchmarks.reproduce._training import prepare
from skood.detectors import Energy
from skood.epistemic import BatchEnsemble, PackedEnsemble
from skood.evidential import EvidentialClassifier, EvidentialProbe
from skood.metrics import ranking_metrics
from skood.nn import TorchClassifier


class Images:
    """A LeNet on MNIST, and models of evidence around it."""

    max_epochs = 50

    def __init__(self, run, seed, ood):
        self.run, self.seed, self.ood = run, seed, ood

    @cached_property
    def sets(self):
        """Return train, test and OOD images, and labels of the digits."""
        X_test, y_test = self.run.images("mnist")
        if self.run.has("mnist/train"):
            X, y = self.run.images("mnist", "train")
        else:  # 7,000 of the test images
            X, X_test, y, y_test = train_test_split(
                X_test,
                y_test,
                train_size=0.7,
                stratify=y_test,
                random_state=self.seed,
            )
        X_ood, _ = self.run.images(self.ood)
        return Bunch(
            train=(prepare(X), y),
            test=(prepare(X_test), y_test),
            ood=prepare(X_ood, 28, 1),
        )

    def lenet(self):
        """Return an untrained network."""
        return TorchClassifier(
            _networks.lenet,
            lr=1e-3,
            max_epochs=self.max_epochs,
            random_state=self.seed,
            device=self.run.device,
        )

    @cached_property
    def network(self):
        """Return the trained network, frozen."""
        return FrozenEstimator(self.lenet().fit(*self.sets.train))

    def scores(self, name, method=None):
        """Return predictions of the test images and scores of all images."""
        sets = self.sets
        both = np.concatenate([sets.test[0], sets.ood])
        if method is not None or name == "Energy":
            detector = self.run.placed(own_method(method or Energy, self.network))
            detector.fit(*sets.train)
            return self.network.predict(sets.test[0]), detector.score_samples(both)
        model = {
            "ENN": lambda: EvidentialClassifier(self.lenet(), random_state=self.seed),
            "EPN-reg": lambda: EvidentialProbe(self.network, random_state=self.seed),
            "Batch-ensemble": lambda: BatchEnsemble(self.lenet()),
            "Packed-ensemble": lambda: PackedEnsemble(self.lenet()),
        }[name]()
        self.run.placed(model).fit(*sets.train)
        component = "total" if name.endswith("ensemble") else "epistemic"
        score = -model.predict_uncertainty(both)[component]
        return model.predict(sets.test[0]), score


def table_22(parts):
    """Yield the models of images."""
    names = ("ENN", "EPN-reg", "Energy", "Batch-ensemble", "Packed-ensemble")
    for name, method in {**dict.fromkeys(names), **parts.run.methods}.items():
        row = name if parts.ood == "omniglot" else f"{parts.ood}/{name}"
        yield Row(row, partial(_image_values, parts, name, method), method)


def _image_values(parts, name, method):
    predicted, score = parts.scores(name, method)
    y_test, n_ood = parts.sets.test[1], len(parts.sets.ood)
    ranks = ranking_metrics(np.r_[y_test, np.full(n_ood, -1)], score)
    return {
        "ID-ACC": 100 * np.mean(predicted == y_test),
        "OOD-AUROC": 100 * ranks["auroc"],
        "OOD-AUPR": 100 * ranks["aupr_out"],
    }
