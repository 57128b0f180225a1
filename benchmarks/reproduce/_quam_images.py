"""Tables 1 and C.1 to C.3: a LeNet on MNIST, against other images."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from functools import cached_property, partial
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import auc, precision_recall_curve
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.utils import Bunch

from benchmarks.reproduce import _networks
from benchmarks.reproduce._paper import Row, own_method
from benchmarks.reproduce._quam_similarity import Similarity
from benchmarks.reproduce._recipes import printed_recipe
from benchmarks.reproduce._run import replacing
from benchmarks.reproduce._training import prepare
from skood.benchmark import code_version, content_hash
from skood.epistemic import (
    QUAM,
    AdversarialSearch,
    BatchEnsemble,
    CyclicalSchedule,
    CyclicalSGHMC,
    DeepEnsemble,
    Laplace,
    MCDropout,
    MixtureLaplace,
    PackedEnsemble,
    entropy,
)
from skood.metrics import aurc, auroc, expected_calibration_error, fpr_at_tpr
from skood.nn import TorchClassifier, TrainingOptions

# The paper's names of OOD sets, and names of readers.
OOD_SETS = {
    "FMNIST": "fmnist",
    "KMNIST": "kmnist",
    "EMNIST": "emnist",
    "OMNIGLOT": "omniglot",
    "notMNIST": "notmnist",
}

#: Methods of Table 1; "QUAM" has the published search over all weights.
PRINTED = ("Reference", "cSG-HMC", "Laplace", "MCD", "DE", "QUAM")
#: QUAM with fewer steps, on cached features.
FAST = ("QUAM, dense", "QUAM, last")
MORE = ("MoLA", "batch ensemble", "packed ensemble")

#: The published search: 97 batches of 512 samples, twice.
PUBLISHED = {
    **{"n_steps": 194, "batch_size": 512, "c0": 6.0, "eta": 1.9, "update_every": 14},
    **{"lr": 5e-3, "weight_decay": 1e-3},
}

RECIPE = {
    **{"max_epochs": 30, "n_points": 10_000, "n_members": 10, "n_passes": 2048},
    **{"n_draws": 4000, "n_cycles": 4, "epochs_per_cycle": 20},
    "search": PUBLISHED,
}

#: For test files only: fewer samples, epochs and draws.
RECIPE_OF_TEST_FILES = {
    **{"max_epochs": 20, "n_points": 500, "n_members": 10, "n_passes": 100},
    **{"n_draws": 100, "n_cycles": 4, "epochs_per_cycle": 10},
    "search": PUBLISHED,
}


class Uncertainties:
    """Uncertainties of ID and OOD samples by every method, for one network.

    A subclass has `recipe`, `sets` (a Bunch with ``train``, ``test`` and ``ood``),
    `network` (frozen), and `new_network` (untrained).
    """

    methods = (*PRINTED, *FAST, *MORE)
    id_name, ood = "MNIST", ""

    def __init__(self, run, seed):
        self.run, self.seed = run, seed
        self._results = {}
        self.similarity = Similarity(self)

    def method(self, name):
        """Return an unfitted method."""
        recipe, network, seed = self.recipe, self.network, self.seed
        if name in self.run.methods:
            return own_method(self.run.methods[name], network)
        return {
            "cSG-HMC": lambda: CyclicalSGHMC(
                network,
                CyclicalSchedule(
                    n_cycles=recipe["n_cycles"],
                    epochs_per_cycle=recipe["epochs_per_cycle"],
                ),
                random_state=seed,
            ),
            "Laplace": lambda: Laplace(
                network,
                predictive="mc",
                n_samples=recipe["n_draws"],
                random_state=seed,
            ),
            "MCD": lambda: MCDropout(network, recipe["n_passes"], random_state=seed),
            "DE": lambda: DeepEnsemble(
                self.new_network(),
                recipe["n_members"],
                reference=network,
                setting="b",
                random_state=seed + 1,
            ),
            "MoLA": lambda: MixtureLaplace(
                Laplace(self.new_network(), n_samples=20),
                recipe["n_members"],
                random_state=seed + 1,
            ),
            "batch ensemble": lambda: BatchEnsemble(self.new_network()),
            "packed ensemble": lambda: PackedEnsemble(self.new_network()),
            "QUAM": lambda: QUAM(
                network,
                AdversarialSearch(**recipe["search"]),
                scope="full",
                temperature=1e-3,
                random_state=seed,
            ),
            "QUAM, dense": lambda: QUAM(
                network, AdversarialSearch(c0=3.0), random_state=seed
            ),
            "QUAM, last": lambda: QUAM(
                network,
                AdversarialSearch(c0=3.0),
                scope="last",
                temperature=0.01,
                random_state=seed,
            ),
        }[name]()

    @cached_property
    def ensemble(self):
        """Return the fitted deep ensemble, for tables and figures."""
        return self.run.placed(self.method("DE")).fit(*self.sets.train)

    def uncertainty(self, name):
        """Return scores of the test and OOD images, and probabilities of the former.

        The score is the epistemic part, in setting "b" if the method is given the
        network, else in setting "a". It is the entropy for the reference, and the
        negative score for a detector of the user's.
        """
        if name not in self._results:
            self._results[name] = self._uncertainty(name)
        return self._results[name]

    def _uncertainty(self, name):
        sets = self.sets
        if name == "Reference":
            proba = [self.network.predict_proba(X) for X in (sets.test[0], sets.ood)]
            with np.errstate(divide="ignore"):
                scores = [entropy(np.log(p)) for p in proba]
            return Bunch(id=scores[0], ood=scores[1], proba=proba[0])
        if name == "DE":
            method = self.ensemble
        else:
            method = self.run.placed(self.method(name)).fit(*sets.train)
        if not hasattr(method, "predict_uncertainty"):
            scores = [-method.score_samples(X) for X in (sets.test[0], sets.ood)]
            return Bunch(id=scores[0], ood=scores[1])
        known, ood = (method.predict_uncertainty(X) for X in (sets.test[0], sets.ood))
        found = Bunch(id=known.epistemic, ood=ood.epistemic)
        found.id_total, found.ood_total = known.total, ood.total
        if hasattr(method, "setting") and not name.startswith("QUAM"):
            found.proba = method.set_params(setting="a").predict_proba(sets.test[0])
        return found


def ranked(known, ood):
    """Return AUROC, FPR at a TPR of 0.95 and AUPR (trapezoids), OOD positive."""
    y = np.repeat([0, -1], [len(known), len(ood)])
    scores = np.concatenate([known, ood])
    precision, recall, _ = precision_recall_curve(y == -1, scores)
    return {
        "AUROC": auroc(y, -scores),
        "FPR95": fpr_at_tpr(np.where(y == 0, -1, 0), scores),
        "AUPR": auc(recall, precision),
    }


def _methods(parts, names):
    """Return the user's own methods by name, None for the others."""
    there = [name for name in names if name in parts.methods]
    return {**dict.fromkeys(there), **parts.run.methods}


def _rows(parts, names, values):
    """Yield a row of an OOD set for each method, which is a column."""
    for name, own in _methods(parts, names).items():
        yield Row(parts.ood, partial(values, parts, name), (name, own))


def table_1(parts):
    """Yield AUROCs of the methods of Table 1, and of QUAM on cached features."""
    yield from _rows(parts, (*PRINTED, *FAST), _auroc)


def table_c1(parts):
    """Yield AUROCs of further methods beside the printed ones."""
    yield from _rows(parts, (*PRINTED, *FAST, *MORE), _auroc)


def _auroc(parts, name):
    found = parts.uncertainty(name)
    values = {f"{name}/AUROC": ranked(found.id, found.ood)["AUROC"]}
    if "id_total" in found and name not in parts.run.methods:
        total = ranked(found.id_total, found.ood_total)
        values[f"{name}, total/AUROC"] = total["AUROC"]
    return values


def table_c2(parts):
    """Yield FPRs and AUPRs."""
    yield from _rows(parts, (*PRINTED, *FAST, *MORE), _details)


def _details(parts, name):
    found = parts.uncertainty(name)
    values = ranked(found.id, found.ood)
    return {f"{name}/{column}": values[column] for column in ("FPR95", "AUPR")}


def table_c3(parts):
    """Yield calibration, misclassification and selective prediction of ID samples."""
    for name, own in _methods(parts, parts.methods).items():
        yield Row(f"{parts.id_name}/{name}", partial(_id_values, parts, name), own)


def _id_values(parts, name):
    """Return ECE, accuracy, AUROC of wrong predictions, area of the accuracy."""
    y, found = parts.sets.test[1], parts.uncertainty(name)
    predicted = parts.network.predict(parts.sets.test[0])
    wrong = predicted != y
    values = {
        "wrong predictions/AUROC": auroc(np.where(wrong, -1, 0), -found.id)
        if wrong.any()
        else None,
        "AUC of accuracy over retained fraction": 1.0 - aurc(y, predicted, -found.id),
    }
    if "proba" in found:
        labels = parts.network.classes_
        values["ECE of the mean"] = expected_calibration_error(
            y, found.proba, classes=labels
        )
        values["accuracy of the mean"] = np.mean(labels[found.proba.argmax(1)] == y)
    return values


class Images(Uncertainties):
    """MNIST with its training files."""

    recipe = RECIPE
    prefix = "quam-MNIST"

    def __init__(self, run, seed, ood):
        super().__init__(run, seed)
        self.ood = ood

    @property
    def module_params(self):
        """Return arguments of the LeNet."""
        if self.run.recipe == "ours":
            return {"dropout": 0.2}
        recipe = printed_recipe("quam")["lenet"]
        return {
            "padding": recipe["padding"],
            "dropout": recipe["dropout_before_last"],
            **{name: (recipe[name],) for name in ("mean", "std")},
        }

    def new_network(self):
        """Return an untrained LeNet; early stopping holds out a sixth."""
        return TorchClassifier(
            _networks.lenet,
            module_params=self.module_params,
            lr=1e-3,
            max_epochs=self.recipe["max_epochs"],
            training=TrainingOptions(early_stopping=True, validation_fraction=1 / 6),
            random_state=self.seed,
            device=self.run.device,
            verbose=self.run.verbose,
        )

    def id_images(self):
        """Return training and test images with labels."""
        (X, y), (X_test, y_test) = (
            self.run.images("mnist", subset) for subset in ("train", "test")
        )
        return X, X_test, y, y_test

    @cached_property
    def sets(self):
        """Return images for the network: `n_points` of the test set and of the OOD."""
        X, X_test, y, y_test = self.id_images()
        X_ood, _ = self.run.images(OOD_SETS[self.ood], size=28)
        rng, n = np.random.default_rng(self.seed), self.recipe["n_points"]
        test, ood = (rng.permutation(len(Z))[:n] for Z in (X_test, X_ood))
        return Bunch(
            train=(prepare(X), y),
            test=(prepare(X_test[test]), y_test[test]),
            ood=prepare(X_ood[ood], 28, 1),
        )

    @cached_property
    def network(self):
        """Return the given network, which is stored."""
        return self.run.network(
            f"{self.prefix}-{self.seed}",
            train=lambda: self.new_network().fit(*self.sets.train),
            module=lambda: _networks.lenet((1, 28, 28), 10, **self.module_params),
            classes=np.arange(10),
            depends=(
                *("quam", self.recipe["max_epochs"], self.seed, self.module_params),
                self.run.digest("mnist", "?mnist/train"),
            ),
        ).network

    def _uncertainty(self, name):
        """Return the uncertainties, from a file of this version if there is."""
        key = content_hash(
            *(name, self.recipe, self.seed, self.run.methods.get(name)),
            self.module_params,
            self.run.digest("mnist", "?mnist/train", OOD_SETS[self.ood]),
            *(code_version(), Path(__file__).read_text()),
        )
        path = self.run.out / "features" / self.prefix / f"{self.ood}-{key[:16]}.npz"
        if not path.exists():
            found = super()._uncertainty(name)
            with replacing(path) as file:
                np.savez(file, **found)
        with np.load(path) as file:
            return Bunch(**file)


class FewImages(Images):
    """MNIST's test files only: 7,000 images train, 500 of the others are the test."""

    recipe = RECIPE_OF_TEST_FILES
    prefix = "quam-MNIST-test-files"
    methods = tuple(name for name in Images.methods if name != "QUAM")
    id_name = "MNIST, 7,000 training images"

    def id_images(self):
        """Return two parts of the test files."""
        X, y = self.run.images("mnist")
        return train_test_split(
            X, y, train_size=0.7, stratify=y, random_state=self.seed
        )


class Digits(Uncertainties):
    """Digits by a perceptron; digits with shuffled pixels are OOD."""

    id_name, ood = "digits", "shuffled digits"
    methods = ("Reference", "Laplace", "DE", "QUAM")
    recipe = {
        **{"n_members": 3, "n_draws": 100},
        "search": {"n_steps": 40, "c0": 3.0, "batch_size": 64},
    }

    @cached_property
    def sets(self):
        """Return 600 digits to train, 30 for the test, and 30 with shuffled pixels."""
        X, y = load_digits(return_X_y=True)
        X = X.astype(np.float32) / 16
        X_train, X_test, y_train, y_test = train_test_split(
            X, y, train_size=600, random_state=self.seed
        )
        rng = np.random.default_rng(self.seed)
        ood = rng.permuted(X_test[30:60], axis=1)
        return Bunch(train=(X_train, y_train), test=(X_test[:30], y_test[:30]), ood=ood)

    def new_network(self):
        """Return an untrained perceptron."""
        return MLPClassifier(
            (32,), learning_rate_init=0.01, max_iter=100, random_state=self.seed
        )

    @cached_property
    def network(self):
        """Return the given network."""
        return FrozenEstimator(self.new_network().fit(*self.sets.train))
