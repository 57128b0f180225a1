"""Instances of every public estimator, and the checks that each cannot pass."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import inspect
from importlib import import_module
from pathlib import Path

import numpy as np
from sklearn.base import clone
from sklearn.covariance import LedoitWolf
from sklearn.ensemble import IsolationForest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, SGDRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Binarizer, MaxAbsScaler
from sklearn.svm import OneClassSVM
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils import Bunch, get_tags

from skood.base import BaseDetector, UncertaintyDetector, UncertaintyMixin
from skood.combine import DSDE, DetectorEnsemble, Fisher
from skood.detectors import (
    KNN,
    MSP,
    SSD,
    Energy,
    SklearnDetector,
    ViM,
)
from skood.detectors._common._base_network_detector import NetworkDetector
from skood.detectors._common._base_output_detector import OutputDetector
from skood.epistemic import (
    HMC,
    QUAM,
    AdversarialSearch,
    BatchEnsemble,
    CertifiedQUAM,
    CyclicalSchedule,
    CyclicalSGHMC,
    DeepEnsemble,
    Gaussian,
    HMCKernel,
    Laplace,
    LocalComponent,
    MCDropout,
    MixtureLaplace,
    PackedEnsemble,
    SnapshotEnsemble,
)
from skood.evidential import EvidentialClassifier, EvidentialProbe, ProbeObjective
from skood.graph import (
    GKDE,
    GKDENetwork,
    GraphClassifier,
    GraphPosteriorNetwork,
    Propagation,
)
from skood.logic import (
    ConceptFusion,
    ConstraintSearch,
    GreedySearch,
    LogicDetector,
    MLNDetector,
    WeightedConstraints,
)
from skood.model_selection import IDOnly
from skood.nn import (
    FeatureExtractor,
    LinearHead,
    MultiHeadClassifier,
    TorchClassifier,
    TorchRegressor,
    TrainingOptions,
)
from skood.rectifiers import ASH, DICE, LTS, VRA
from skood.rejection import PlugInCost, RejectOptionClassifier
from skood.selection import ClassifierFusion, NoveltySelector
from skood.utils.discovery import all_estimators
from tests.nn._networks import Flat, margin_loss


class PlainUncertainty(UncertaintyMixin, LogisticRegression):
    """An uncertainty classifier: all of its entropy is called epistemic."""

    def predict_uncertainty(self, X):
        """Entropy of the predicted probabilities, none of it aleatoric."""
        log_p = np.maximum(self.predict_log_proba(X), -700.0)
        entropy = -np.sum(np.exp(log_p) * log_p, axis=1)
        return Bunch(total=entropy, aleatoric=np.zeros_like(entropy), epistemic=entropy)


_LINEAR = LogisticRegression()
_PERCEPTRON = MLPClassifier((8,), solver="lbfgs", random_state=0)

_REGRESSOR = MLPRegressor(
    hidden_layer_sizes=(8,), learning_rate_init=0.03, max_iter=300, random_state=0
)

_LINEAR_REGRESSOR = SGDRegressor(random_state=0)

_CLASS = [("class", _LINEAR)]

_MEMBERS = [("knn", KNN(n_neighbors=2)), ("gaussian", SSD(covariance=LedoitWolf()))]

# The networks of ensembles that train their members together.
_QUICK_NET = {"module_params": {"hidden": (16,)}, "max_epochs": 30, "lr": 0.03}

# The same, quicker, for those that train several, or in many parts.
_QUICKER_NET = {"module_params": {"hidden": (16,)}, "max_epochs": 8, "lr": 0.1}

# The network of classifiers of nodes, which is trained by itself.
_QUICK_GRAPH = {
    "conv_params": {"hidden": (16,), "dropout": 0.0},
    "max_epochs": 8,
    "lr": 0.1,
    "training": TrainingOptions(early_stopping=False),
    "random_state": 0,
}

# The parameters of training of regressors: as many steps as epochs.
_QUICK_REGRESSION = {
    "max_epochs": 30,
    "lr": 0.1,
    "batch_size": 256,
    "training": TrainingOptions(early_stopping=False),
    "random_state": 0,
}

_DROPOUT_NET = TorchClassifier(
    module_params={"hidden": (16,), "dropout": 0.2},
    max_epochs=15,
    lr=0.06,
    random_state=0,
)

_QUICK_CYCLES = CyclicalSchedule(n_cycles=2, epochs_per_cycle=10, samples_per_cycle=2)
_QUICK_CHAINS = {
    "kernel": HMCKernel(n_leapfrog=5, n_warmup=20),
    "n_samples": 6,
    "n_chains": 2,
}

_QUICK_POSTERIOR = {
    **_QUICK_GRAPH,
    "module_params": {**_QUICK_GRAPH["conv_params"], "latent_dim": 4, "flow_layers": 2},
    "max_epochs": 15,
    "lr": 0.05,
}
del _QUICK_POSTERIOR["conv_params"]

# Detectors have theirs, as `INSTANCES`, in their own test files. Classes without any
# are constructed without arguments.
_INSTANCES = {
    "DSDE": [
        DSDE(_MEMBERS, c_m=0.5, calibration=0.5, random_state=0),
        DSDE(
            [*_MEMBERS, ("energy", Energy()), ("vim", ViM())],
            beta=0.5,
            estimator=_LINEAR,
            random_state=0,
        ),
    ],
    "DetectorEnsemble": [
        DetectorEnsemble(_MEMBERS, calibration=0.4, random_state=0),
        DetectorEnsemble(_MEMBERS, Fisher(), level="nominal", random_state=0),
        DetectorEnsemble(_MEMBERS, calibration=2, method="ecdf", random_state=0),
    ],
    "NoveltySelector": [
        NoveltySelector(KNN(n_neighbors=2), random_state=0),
        NoveltySelector(_MEMBERS, random_state=0),
        NoveltySelector(_MEMBERS, choice=ClassifierFusion(), random_state=0),
        NoveltySelector(KNN(n_neighbors=2), n_splits=3, random_state=0),
    ],
    "ASH": [ASH(), ASH(percentile=50, variant="b"), ASH(variant="p")],
    "BatchEnsemble": [
        BatchEnsemble(TorchClassifier(**_QUICKER_NET, random_state=0), n_members=3),
        BatchEnsemble(
            TorchClassifier(**_QUICK_NET, random_state=0),
            factor_init="normal",
            setting="b",
        ),
    ],
    "ConstraintSearch": [
        ConstraintSearch(
            MLNDetector(
                [],
                _CLASS,
                SSD(covariance=LedoitWolf()),
                fusion=ConceptFusion(normalizer="norm"),
                random_state=0,
            ),
            objective="likelihood",
            validation=0.1,
            test=0.1,
            random_state=0,
        ),
        ConstraintSearch(
            MLNDetector(["class = class"], _CLASS, "confidence", random_state=0),
            objective="likelihood",
            search=GreedySearch("gain", min_improvement=0.0),
            test=0.0,
            random_state=0,
        ),
    ],
    "DICE": [  # others keep too few weights to tell the classes of the checks apart
        DICE(sparsity=0.0),
        DICE(_LINEAR, sparsity=0.0, ood_label=-9),
    ],
    "DeepEnsemble": [
        DeepEnsemble(TorchClassifier(**_QUICKER_NET), n_members=2, random_state=0),
        DeepEnsemble(
            _LINEAR, n_members=2, bootstrap=True, reference=_LINEAR, random_state=0
        ),
        DeepEnsemble(
            [_LINEAR, LogisticRegression(C=0.1), TorchClassifier(**_QUICK_NET)],
            random_state=0,
        ),
        DeepEnsemble(
            DecisionTreeRegressor(splitter="random", max_depth=4),
            n_members=3,
            likelihood=Gaussian(1.0),
            random_state=0,
        ),
        DeepEnsemble(_REGRESSOR, n_members=3, random_state=0),
    ],
    "CertifiedQUAM": [
        CertifiedQUAM(_LINEAR),
        CertifiedQUAM(_PERCEPTRON, gamma=1.0, prior_precision=0.1),
    ],
    "CyclicalSGHMC": [
        CyclicalSGHMC(_LINEAR, _QUICK_CYCLES),
        CyclicalSGHMC(_PERCEPTRON, _QUICK_CYCLES, setting="b"),
        CyclicalSGHMC(
            _REGRESSOR,
            CyclicalSchedule(
                n_cycles=1, epochs_per_cycle=2, samples_per_cycle=2, lr=1e-4
            ),
            random_state=0,
        ),
    ],
    "EvidentialClassifier": [
        EvidentialClassifier(TorchClassifier(**_QUICKER_NET, random_state=0)),
        EvidentialClassifier(
            GraphClassifier(
                conv_params={"hidden": (16,)}, max_epochs=30, lr=0.03, random_state=0
            ),
            evidence="exp",
            propagation="both",
        ),
    ],
    "EvidentialProbe": [
        EvidentialProbe(_LINEAR, max_epochs=10, random_state=0),
        EvidentialProbe(
            _PERCEPTRON,
            ProbeObjective(activation="softplus"),
            layer="penultimate",
            max_epochs=30,
            training=TrainingOptions(early_stopping=False),
            random_state=0,
        ),
        EvidentialProbe(
            GraphClassifier(
                conv_params={"hidden": (16,)}, max_epochs=30, lr=0.03, random_state=0
            ),
            ProbeObjective(lambda_ice=0.0),
            max_epochs=30,
            propagation="both",
            random_state=0,
        ),
    ],
    "FeatureExtractor": [
        FeatureExtractor(_LINEAR),
        FeatureExtractor(MLPClassifier((8,), solver="lbfgs", random_state=0)),
    ],
    "GKDE": [GKDE(), GKDE(0.5, cutoff=None, metric="euclidean")],
    "GKDENetwork": [
        GKDENetwork(GraphClassifier(**_QUICK_GRAPH)),
        GKDENetwork(
            GraphClassifier(**{**_QUICK_GRAPH, "max_epochs": 15, "lr": 0.05}),
            evidence="softplus",
            lambda_teacher=0.0,
        ),
    ],
    "GraphClassifier": [
        GraphClassifier(**_QUICK_GRAPH),
        GraphClassifier(
            "gat", conv_params={"hidden": (16,)}, max_epochs=30, lr=0.03, random_state=0
        ),
        GraphClassifier("sage", **{**_QUICK_GRAPH, "max_epochs": 15, "lr": 0.05}),
    ],
    "GraphPosteriorNetwork": [
        GraphPosteriorNetwork(**_QUICK_POSTERIOR),
        GraphPosteriorNetwork(
            **_QUICK_POSTERIOR, certainty_budget="latent-classes", warmup_epochs=0
        ),
    ],
    "HMC": [
        HMC(_LINEAR, **_QUICK_CHAINS),
        HMC(_PERCEPTRON, **_QUICK_CHAINS, init="estimator", setting="b"),
        HMC(
            _LINEAR_REGRESSOR,
            HMCKernel(n_leapfrog=4, n_warmup=8),
            n_samples=8,
            random_state=0,
        ),
    ],
    "IDOnly": [
        IDOnly(MaxAbsScaler()),
        IDOnly(make_pipeline(MaxAbsScaler(), Binarizer()), ood_label=-9),
    ],
    "LinearHead": [LinearHead()],
    "LTS": [LTS(), LTS(_LINEAR, top=0.5)],
    "Laplace": [
        Laplace(_LINEAR, random_state=0),
        Laplace(_PERCEPTRON, hessian="full", predictive="bridge_norm", random_state=0),
        Laplace(_PERCEPTRON, predictive="probit", prior_precision=1.0, setting="b"),
        Laplace(
            TorchClassifier(**_QUICK_NET, random_state=0),
            hessian="diag",
            predictive="mc",
            n_samples=10,
            random_state=0,
        ),
        Laplace(_REGRESSOR, n_samples=5, random_state=0),
        Laplace(_LINEAR_REGRESSOR, setting="b", likelihood=Gaussian(1.0)),
    ],
    "LogicDetector": [
        LogicDetector(["class = class"], _CLASS, "confidence", random_state=0),
        LogicDetector(
            {"itself": "class = class"},
            _CLASS,
            KNN(n_neighbors=2),
            normalizer="norm",
            random_state=0,
        ),
    ],
    "MLNDetector": [
        MLNDetector(
            [],
            _CLASS,
            SSD(covariance=LedoitWolf()),
            fusion=ConceptFusion(normalizer="norm"),
            random_state=0,
        ),
        MLNDetector([], _CLASS, SSD(covariance=LedoitWolf()), random_state=0),
        MLNDetector(
            WeightedConstraints(["class = class"], weights=[2.0]),
            _CLASS,
            "confidence",
            fusion=ConceptFusion("product", normalizer="none"),
            marginalize=True,
            random_state=0,
        ),
    ],
    "MCDropout": [
        MCDropout(_DROPOUT_NET, n_samples=5, random_state=0),
        MCDropout(_DROPOUT_NET, n_samples=5, setting="b", random_state=0),
        MCDropout(
            TorchRegressor(
                module_params={"hidden": (30,), "dropout": 0.05}, **_QUICK_REGRESSION
            ),
            n_samples=5,
            random_state=0,
        ),
    ],
    "MixtureLaplace": [
        MixtureLaplace(
            Laplace(MLPClassifier((8,), solver="lbfgs", max_iter=50), n_samples=5),
            n_members=2,
            random_state=0,
        ),
    ],
    "MultiHeadClassifier": [
        MultiHeadClassifier(**_QUICKER_NET),
        MultiHeadClassifier(Flat, criterion=margin_loss, max_epochs=60, lr=0.03),
    ],
    "PackedEnsemble": [
        PackedEnsemble(
            TorchClassifier(
                module_params={"hidden": (16,)}, max_epochs=15, lr=0.06, random_state=0
            )
        ),
        PackedEnsemble(
            TorchClassifier(**_QUICK_NET, random_state=0),
            n_members=3,
            alpha=1.5,
            gamma=2,
        ),
    ],
    "Propagation": [
        Propagation(Energy(_LINEAR)),
        Propagation(KNN(n_neighbors=3), scheme="gnnsafe", n_steps=3, alpha=0.5),
        Propagation(
            SklearnDetector(detector=OneClassSVM()), scheme="symmetric", teleport=0.2
        ),
    ],
    "QUAM": [
        QUAM(_PERCEPTRON, search=AdversarialSearch(n_steps=3), random_state=0),
        QUAM(
            _LINEAR,
            scope="last",
            setting="a",
            targets=2,
            search=AdversarialSearch(n_steps=2),
            random_state=0,
        ),
        QUAM(
            TorchClassifier(**_QUICK_NET, random_state=0),
            scope="full",
            search=AdversarialSearch(n_steps=2, batch_size=8),
            component=LocalComponent("delta", n_evaluation_samples=20),
            random_state=0,
        ),
        QUAM(
            _LINEAR,
            scope="bias",
            targets="untargeted",
            component="laplace",
            search=AdversarialSearch(n_steps=2, n_starts=2),
            random_state=0,
        ),
        QUAM(_REGRESSOR, search=AdversarialSearch(n_steps=3), random_state=0),
        QUAM(
            _LINEAR_REGRESSOR,
            setting="a",
            search=AdversarialSearch(n_steps=2),
            random_state=0,
        ),
    ],
    "TorchRegressor": [
        TorchRegressor(module_params={"hidden": (20,)}, **_QUICK_REGRESSION),
        TorchRegressor(
            module_params={"hidden": (20,)},
            criterion="gaussian_nll",
            max_epochs=100,
            lr=0.01,
            random_state=0,
        ),
    ],
    "RejectOptionClassifier": [
        RejectOptionClassifier(_LINEAR),
        RejectOptionClassifier(_LINEAR, ood_label=-9, reject_label=-9),
        RejectOptionClassifier(
            _LINEAR,
            # accepts everything, by way of a calibrated threshold
            rule=PlugInCost(reject_id=1.0, ood_prior=0.0),
            ood_label=-9,
            reject_label=-9,
            random_state=0,
        ),
    ],
    "SnapshotEnsemble": [
        SnapshotEnsemble(TorchClassifier(**_QUICKER_NET, random_state=0), n_members=2),
    ],
    "TorchClassifier": [
        TorchClassifier(**_QUICKER_NET, random_state=0),
        TorchClassifier(),
    ],
    "UncertaintyDetector": [
        UncertaintyDetector(PlainUncertainty()),
        UncertaintyDetector(PlainUncertainty(), component="total"),
    ],
    "VRA": [VRA(), VRA(below="clip", per_feature=False)],
}


def _in_own_test(cls):
    """Return ``INSTANCES`` of ``tests/ROOM/test_FILE.py`` for a class of that file."""
    *_, room, file = cls.__module__.split(".")
    path = Path(__file__).parent / room / f"test{file}.py"
    if not path.exists() or "INSTANCES = [" not in path.read_text():
        return []
    return import_module(f"tests.{room}.test{file}").INSTANCES


def instances_of(name, cls):
    """Instances of a public estimator; empty if nobody has registered any."""
    found = _INSTANCES.get(name) or _in_own_test(cls)
    if found:
        return found
    parameters = list(inspect.signature(cls).parameters.values())
    if any(p.default is p.empty for p in parameters):
        return []
    return [cls()]


def instances(variants=True):
    """Instances of all public estimators.

    Without variants the first of each class, and of each type of estimator that it is.
    """
    found = []
    for name, cls in all_estimators():
        of_class = instances_of(name, cls)
        types: dict = {}
        for instance in of_class:
            types.setdefault(get_tags(instance).estimator_type, instance)
        found += of_class if variants else types.values()
    return found


def detectors(variants=True):
    """Instances of all public detectors, and some that use a frozen network."""
    found = [
        instance
        for instance in instances(variants)
        if isinstance(instance, BaseDetector)
    ]
    rng = np.random.default_rng(0)
    y = np.arange(200) % 5
    X = rng.normal(size=(200, 5)) + 8 * np.eye(5)[y]
    network = MLPClassifier((16,), solver="lbfgs", random_state=0).fit(X, y)
    weighted = Energy(class_weight=[1.0, 2.0, 0.0, 1.0, 1.0])
    return [*found, KNN(n_neighbors=50), weighted, MSP(FrozenEstimator(network))]


def documents(X):
    """Return rows of numbers as documents: a word for each rounded value."""
    rounded = np.rint(X).astype(int) + 10**6
    return [" ".join(f"f{j}v{v}" for j, v in enumerate(row)) for row in rounded]


def takes_documents(estimator):
    """Return whether samples are strings."""
    return get_tags(estimator).input_tags.string


def output_detectors(*needs, variants=False, **options):
    """Detectors that use the outputs of a classifier: all, or those with such needs.

    `needs` are the outputs: "features", "logits" and "head". `options` are set in all
    classes that have them, such as ``n_neighbors=3`` for small data.
    """
    options = {"detector": IsolationForest(n_estimators=5, random_state=0)} | options
    found = [
        _with_options(instance, estimator=None, **options)
        for instance in instances(variants)
        if isinstance(instance, OutputDetector) and set(needs) <= instance._needs
    ]
    return list({repr(instance): instance for instance in found}.values())


def network_detectors(estimator=None, **options):
    """Detectors that use a whole network, one of each class; see `output_detectors`."""
    return [
        _with_options(instance, estimator=estimator, random_state=0, **options)
        for instance in instances(variants=False)
        if isinstance(instance, NetworkDetector)
    ]


def _with_options(instance, **options):
    """Return a clone with the options that its class has."""
    known = instance.get_params(deep=False)
    own = {name: value for name, value in options.items() if name in known}
    return clone(instance).set_params(**own)
