"""Detectors with and without constraints, and generated signs and digits as data."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils import Bunch
from torch import nn

from benchmarks.reproduce._paper import own_method
from benchmarks.reproduce._recipes import printed_recipe
from skood.datasets import load_digit_concepts
from skood.detectors import MSP, SHE, Energy, Mahalanobis, ViM
from skood.logic import (
    C,
    ConceptFusion,
    ConstraintSearch,
    GreedySearch,
    LogicDetector,
    MLNDetector,
    WeightedConstraints,
)
from skood.nn import TorchClassifier, split
from skood.rectifiers import DICE, ReAct

#: Files whose code affects values: this one, and the signs and networks of the example.
_EXAMPLE = Path(__file__).parents[2] / "examples" / "logic"
_HELPERS = ("_signs.py", "_traffic_signs.py", "_sign_images.py", "_sign_glyphs.py")
SOURCES = (Path(__file__), *(_EXAMPLE / name for name in _HELPERS))
sys.path.insert(0, str(_EXAMPLE))

from _signs import (  # noqa: E402
    CONCEPTS,
    KINDS,
    Body,
    make_signs,
    train_heads,
    training,
)
from _traffic_signs import make_traffic_signs  # noqa: E402

#: In the order and by the names of Table 1.
DETECTORS = (*("MSP", "EBO", "Ensemble", "SHE", "Mahalanobis", "ViM", "DICE", "ReAct"),)

# --- networks and features ------------------------------------------------------------


def pick(Z, columns):
    """Return some columns, from the first one to before the second."""
    return Z[:, slice(*columns)]


def _from_columns(columns, *steps):
    """Return a pipeline of some columns, from the first one to before the second."""
    return make_pipeline(
        FunctionTransformer(pick, kw_args={"columns": columns}), *steps
    )


class Readings:
    """Heads of networks on their features, of all networks side by side.

    Parameters
    ----------
    groups : list of dict of str to tuple
        Body and head by name. Heads in one dict are on one body.
    """

    def __init__(self, groups):
        self.bodies, self.heads, self.columns = [], {}, {}
        start = 0
        for group in groups:
            body, head = next(iter(group.values()))
            self.bodies.append(body)
            columns = start, start + head.n_features_in_
            self.heads |= {name: head for name, (_, head) in group.items()}
            self.columns |= dict.fromkeys(group, columns)
            start = columns[1]

    def of(self, X):
        """Return the features of images."""
        return np.concatenate([body.transform(X) for body in self.bodies], axis=1)

    def pipeline(self, name, *steps):
        """Return a pipeline on the features of a network."""
        return _from_columns(self.columns[name], *steps)

    def classifier(self, name):
        """Return a frozen classifier of these features."""
        return FrozenEstimator(self.pipeline(name, self.heads[name]))


# --- methods --------------------------------------------------------------------------


def printed_weights(kb, Z):
    """Return weights by the printed recipe: few epochs of L-BFGS on codes of samples.

    An epoch has the 20 iterations of torch's default.
    """
    recipe, mean = printed_recipe("mln"), kb.truth(Z).mean(axis=0)
    w = torch.full((len(kb),), recipe["w0"], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([w], lr=recipe["lr"])

    def negative_log_likelihood():
        weights = w.detach().numpy()
        w.grad = torch.from_numpy(kb.expected_truth(weights) - mean)
        return torch.tensor(kb.log_partition(weights) - weights @ mean)

    for _ in range(recipe["epochs"]):
        optimizer.step(negative_log_likelihood)
    return w.detach().numpy()


class Study:
    """Scores of detectors, alone and with constraints, on ID samples and OOD sets.

    A method is a detector, "Logic", "MLN", or both as in "MLN+Ensemble". It ends in "+"
    if it also uses a network of ID against OOD samples.

    A subclass has ``prefix`` of the names of rows, ``oods`` (names of OOD sets),
    ``concepts`` (names; the detectors are of the first one), ``constraints``,
    ``readings``, and features ``Z(name)`` of the sets "train" (of the first network, or
    of all), "calibration", "ID", and the OOD sets, with ``labels(name)``, an array
    (n_samples, n_concepts).
    """

    prefix = ""
    is_supervised = True
    #: For Table 5 and variants.
    few_detectors = ("Ensemble", "ViM")
    #: Names of networks for subsets of the OOD sets, of whose kinds they have seen none
    unseen: dict = {}

    def __init__(self, run, seed):
        self.run, self.seed = run, seed
        self._scores, self._detectors, self._weights = {}, {}, {}

    @property
    def sets(self):
        """Names of the sets of the test."""
        return ("ID", *self.oods)

    def named_concepts(self):
        """Return the classifiers of the concepts, as parameters of detectors."""
        return [(name, self.readings.classifier(name)) for name in self.concepts]

    def detector(self, name):
        """Return a detector, fitted to the training samples; None for None."""
        if name is None or name == "Ensemble":
            return name and "confidence"
        if name not in self._detectors:
            first = self.concepts[0]
            head = self.readings.heads[first]
            steps = {
                "Mahalanobis": [Mahalanobis()],
                "MSP": [MSP(head)],
                "EBO": [Energy(head)],
                "ViM": [ViM(head)],
                "ReAct": [ReAct(), Energy(head)],
                "DICE": [Energy(DICE(head))],
                "SHE": [SHE(head)],
            }.get(name)
            if steps is None:
                steps = [own_method(self.run.methods[name], head)]
            found = self.readings.pipeline(first, *steps)
            found.fit(self.Z("train"), self.labels("train")[:, 0])
            self._detectors[name] = FrozenEstimator(found)
        return self._detectors[name]

    def fitted(self, kind, name, constraints=None, **options):
        """Return a logical detector, fitted to the samples for calibration."""
        if constraints is None:
            constraints = self.constraints
        model = kind(
            *(constraints, self.named_concepts(), self.detector(name)),
            calibration="same",
            **options,
        )
        return model.fit(self.Z("calibration"))

    def mln(self, name, id_network=None, **options):
        """Return a detector with the constraints, and a network of ID samples."""
        constraints = options.pop("constraints", self.constraints)
        if id_network is not None:
            options["id_estimator"] = self.readings.classifier(id_network)
        has_weights = isinstance(constraints, WeightedConstraints)
        if self.run.recipe == "printed" and constraints and not has_weights:
            key = id_network, *map(str, constraints)
            if key not in self._weights:
                self._weights[key] = self._printed_weights(constraints, id_network)
            weights = self._weights[key]
            constraints = WeightedConstraints(constraints, weights=weights)
        return self.fitted(MLNDetector, name, constraints, **options)

    def _printed_weights(self, constraints, id_network):
        """Return weights fitted to predictions of the samples for calibration."""
        options, Z = {}, self.Z("calibration")
        if id_network is not None:
            options["id_estimator"] = self.readings.classifier(id_network)
        model = self.fitted(MLNDetector, None, constraints, **options)
        labels = model.predict_concepts(Z).astype(object)
        for classifier in options.values():  # its concept is the last one
            labels = np.column_stack([labels, classifier.predict(Z)])
        kb = model.knowledge_base_
        return printed_weights(kb, kb.encode(labels))

    def model(self, method, id_network=None):
        """Return an estimator with `score_samples`."""
        if method == "Ensemble":
            none = ConceptFusion(normalizer="none")
            return self.fitted(MLNDetector, method, [], fusion=none)
        logic, _, detector = method.partition("+")
        if logic == "MLN":
            return self.mln(detector or None, id_network)
        if logic == "Logic":
            return self.fitted(LogicDetector, detector or None)
        return self.detector(method)

    def scores(self, method, id_network="is_id"):
        """Return the scores of a method by set."""
        key = method, id_network
        if key not in self._scores:
            is_supervised = method.endswith("+")
            name = method.removesuffix("+")
            model = self.model(name, id_network if is_supervised else None)
            found = model.score_samples(self._test)
            if is_supervised and name.startswith("Logic"):
                # the constraint that the network must predict ID
                is_id = self.readings.classifier(id_network).predict(self._test)
                found = np.where(is_id, found, 0.0)
            self._scores[key] = self.by_set(found)
        return self._scores[key]

    @cached_property
    def _test(self):
        """Features of all sets of the test."""
        return np.concatenate([self.Z(name) for name in self.sets])

    def by_set(self, scores):
        """Return scores of all samples of the test by set."""
        ends = np.cumsum([len(self.Z(name)) for name in self.sets])[:-1]
        return dict(zip(self.sets, np.split(scores, ends), strict=True))

    def score_samples(self, model):
        """Return the scores of an estimator by set."""
        return self.by_set(model.score_samples(self._test))

    def shared(self):
        """Return the same study with one body for all concepts."""
        raise NotImplementedError


# --- generated signs ------------------------------------------------------------------


class Network(nn.Sequential):
    """A body and a linear head."""

    def __init__(self, input_shape, n_classes, body):
        super().__init__(body(input_shape), nn.Linear(body.n_features, n_classes))


class Signs(Study):
    """Networks of class, color and shape on 4,000 generated signs.

    The networks of ID samples have seen other OOD pictures: of all kinds, or of three
    of the six kinds.
    """

    prefix = "signs/"
    oods, concepts = tuple(KINDS), tuple(CONCEPTS)
    unseen = {
        "half 0": ("shape", "texture", "natural"),
        "half 1": ("color", "pictogram", "noise"),
    }
    sizes: dict = {}
    body, max_epochs, n_batches = Body, 12, 100
    few_detectors = DETECTORS

    def __init__(self, run, seed, images=None, is_shared=False):
        super().__init__(run, seed)
        self._images, self._is_shared, self._Z = images, is_shared, {}

    @cached_property
    def images(self):
        """Return the pictures for training, calibration and test."""
        return self._images or make_signs(self.seed, **self.sizes)

    @cached_property
    def constraints(self):
        """A rule for each class."""
        return make_traffic_signs(1, random_state=0).constraints

    def some_images(self):
        """Return images of signs."""
        return self.images.test.data[:1024]

    def train(self, y, X=None, fraction=1.0):
        """Return a network of the training pictures, or of others."""
        epochs = max(1, round(fraction * self.max_epochs))
        made = TorchClassifier(
            Network, module_params={"body": self.body}, **training(self.seed, epochs)
        )
        return made.fit(self.images.train.data if X is None else X, y)

    @cached_property
    def networks(self):
        """Return the networks by concept."""
        labels = self.labels("train")
        return {name: self.train(y) for name, y in zip(CONCEPTS, labels.T, strict=True)}

    def image_concepts(self):
        """Return classifiers of pictures, as parameters of detectors."""
        return [(name, FrozenEstimator(one)) for name, one in self.networks.items()]

    def train_is_id(self, kinds):
        """Return a network of signs against some kinds of OOD pictures."""
        train, outliers = self.images.train, self.images.outliers
        X = np.concatenate(
            [train.data, outliers.data[np.isin(outliers.ood_kind, kinds)]]
        )
        return self.train(np.arange(len(X)) < len(train.data), X, fraction=0.5)

    @cached_property
    def readings(self):
        """Return the heads of all networks."""
        if self._is_shared:
            made = train_heads(self.images.train, self.seed, self.max_epochs, self.body)
            heads = [split(made.head(j)) for j in range(len(CONCEPTS))]
            return Readings([dict(zip(CONCEPTS, heads, strict=True))])
        networks = {**self.networks, "is_id": self.train_is_id(KINDS)}
        for name, kinds in self.unseen.items():
            networks[name] = self.train_is_id([k for k in KINDS if k not in kinds])
        return Readings([{name: split(one)} for name, one in networks.items()])

    def _rows(self, name):
        """Return the part with a set, and a mask of its samples."""
        if name in self.images:
            part = self.images[name]
            return part, np.full(len(part.data), True)
        part = self.images.test
        return part, part.ood_kind == ("id" if name == "ID" else name)

    def Z(self, name):
        """Return the features of a set."""
        if name not in self._Z:
            part, rows = self._rows(name)
            self._Z[name] = self.readings.of(part.data[rows])
        return self._Z[name]

    def labels(self, name):
        """Return the labels of a set."""
        part, rows = self._rows(name)
        return part.concepts[rows]

    @cached_property
    def _heads(self):
        return type(self)(self.run, self.seed, self.images, is_shared=True)

    def shared(self):
        """Return the same study with one body for all concepts."""
        return self._heads


class SmallBody(nn.Sequential):
    """A small body: 32 features of a picture of half the size."""

    n_features = 32

    def __init__(self, input_shape):
        layers, n = [nn.AvgPool2d(2)], input_shape[0]
        for n_filters in (12, 24):
            layers += [nn.Conv2d(n, n_filters, 3, stride=2, padding=1)]
            layers += [nn.BatchNorm2d(n_filters), nn.ReLU()]
            n = n_filters
        linear = nn.Linear(16 * n, self.n_features)
        super().__init__(*layers, nn.Flatten(), linear, nn.ReLU())


class SmallSigns(Signs):
    """Few pictures, taken in good light."""

    sizes = {
        **{"n_train": 1200, "n_calibration": 600, "n_test": 300, "n_ood": 60},
        **{"rotation": 5.0, "occlusion": 0.0, "clutter": 0.5},
        **{"lighting": 0.5, "blur": 0.3, "noise": 0.03},
    }
    body, max_epochs, n_batches = SmallBody, 8, 3
    few_detectors, unseen = Study.few_detectors, {}


# --- constraints that a search finds for digits ---------------------------------------


class Digits:
    """A search for constraints: 0 to 5 are known, the others are four OOD sets.

    Classifiers and the detector are fitted to a quarter of the samples, the search uses
    another one.
    """

    prefix = "digits/"
    search_set, transfer_sets = "8", ("6", "7", "8", "9")

    def __init__(self, run, seed):
        self.run, self.seed = run, seed

    @cached_property
    def parts(self):
        """Return the digits, and samples for the detector, the search and the test."""
        digits = load_digit_concepts(left_out=[6, 7, 8, 9])
        rows = np.arange(len(digits.data))
        rest, test = train_test_split(rows, test_size=0.5, random_state=self.seed)
        train, search = train_test_split(rest, test_size=0.5, random_state=self.seed)
        train = train[digits.digit[train] < 6]
        return Bunch(digits=digits, train=train, search=search, test=test)

    @cached_property
    def search(self):
        """Return the search, whose parts are frozen."""
        digits, train = self.parts.digits, self.parts.train
        X, y = digits.data[train], digits.concepts[train]
        concepts = []
        for j, name in enumerate(digits.concept_names):
            made = make_pipeline(StandardScaler(), LogisticRegression(C=0.1))
            concepts.append((name, FrozenEstimator(made.fit(X, y[:, j]))))
        candidates = [
            C("class").eq(d) >> C(name).eq(value)
            for d in digits.domains["class"]
            for name in digits.concept_names[1:]
            for value in digits.domains[name]
        ]
        return ConstraintSearch(
            MLNDetector(
                *([], concepts, FrozenEstimator(ViM().fit(X, y[:, 0]))),
                marginalize=True,
                fusion=ConceptFusion(normalizer="norm"),
                calibration="same",
                domains=digits.domains,
            ),
            candidates=candidates,
            search=GreedySearch(prune=self.run.recipe == "ours"),
            validation=0.5,
            test=0.0,
            random_state=self.seed,
        )

    def _samples(self, part, *chosen):
        """Return images and labels of the known digits, or of others."""
        digits, rows = self.parts.digits, self.parts[part]
        kinds = np.where(digits.digit < 6, "ID", digits.digit.astype(str))
        rows = rows[np.isin(kinds[rows], chosen)]
        return digits.data[rows], digits.concepts[rows]

    def searched(self):
        """Return samples of a search with an OOD set, and of a test with the others."""
        others = {*self.transfer_sets} - {self.search_set}
        return (
            *self._samples("search", "ID", self.search_set),
            *self._samples("test", "ID", *others),
        )

    def transferred(self):
        """Return ID samples and OOD sets of the search, and ID samples of the test."""
        sets = {name: self._samples("search", name)[0] for name in self.transfer_sets}
        return *self._samples("search", "ID"), sets, self._samples("test", "ID")[0]
