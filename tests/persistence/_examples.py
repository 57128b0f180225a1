"""Fitted estimators with whatever skood's estimators may hold."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import inspect
import io
import os
from copy import deepcopy
from zipfile import ZipFile

import numpy as np
import sklearn
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import LocalOutlierFactor
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags

from skood import combine, rejection
from skood.combine import DetectorEnsemble
from skood.datasets import make_ood_graph
from skood.detectors import KNN, MSP, SSD, Mahalanobis, SklearnDetector, ViM
from skood.epistemic import QUAM, DeepEnsemble, LocalComponent
from skood.graph import GKDE, GraphClassifier, NodeSet
from skood.logic import ConstraintSearch, KnowledgeBase, MLNDetector
from skood.metrics import (
    make_cost_scorer,
    make_misclassification_scorer,
    make_ood_scorer,
    make_rate_scorer,
    make_selective_risk_scorer,
)
from skood.model_selection import LeaveClassesOut, OODStratifiedKFold
from skood.monitor import RateMonitor
from skood.nn import LinearHead, MultiHeadClassifier, TrainingOptions
from skood.persistence._files import seal
from skood.rejection import (
    BoundedAbstention,
    BoundedTPRFPR,
    Certificate,
    RejectOptionClassifier,
    RejectOptionRegressor,
    ScoreTable,
    Shift,
    Solver,
)
from skood.selection import LOND, ConditionalStepUp, NoveltySelector
from tests._instances import (
    detectors,
    documents,
    instances,
    instances_of,
    takes_documents,
)

# Instances of a class after the first, with other parameters, are tried at night.
VARIANTS = "SKOOD_NIGHTLY" in os.environ

_METRICS = (
    "auroc",
    "aupr_in",
    "aupr_out",
    "tnr_at_tpr",
    "f1_at_tpr",
    "max_f1",
    "fpr_at_tpr",
    "detection_error",
)


def npy(array):
    """The content of a file of an array."""
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def with_false_size(data, name, size):
    """An archive that states another size of a member."""
    with ZipFile(io.BytesIO(data)) as archive:
        local, directory = archive.getinfo(name).header_offset, archive.start_dir
    forged = bytearray(data)
    for at in (local + 22, data.index(name.encode(), directory) - 22):
        forged[at : at + 4] = size.to_bytes(4, "little")
    return bytes(forged)


def rewritten(data, changes, *, note=None, compress_type=None):
    """A file with other members, and a seal that fits.

    `changes` are names of members and their contents; None: it is left out.
    """
    stream = io.BytesIO()
    with ZipFile(io.BytesIO(data)) as old, ZipFile(stream, "w") as new:
        members = {name: old.read(name) for name in old.namelist()} | changes
        for name, content in members.items():
            if content is None or (name == "skood.json" and name not in changes):
                continue
            new.writestr(name, content, compress_type)
    seal(stream, {"estimator": "LinearHead", **(note or {})})
    return stream.getvalue()


def data_for(estimator, n_classes=3):
    """Classes around the unit vectors: features as well as logits."""
    rng = np.random.default_rng(0)
    y = np.arange(90) % n_classes
    X = rng.normal(size=(90, n_classes)) + 4 * np.eye(n_classes)[y]
    if estimator is not None and get_tags(estimator).input_tags.positive_only:
        X = np.abs(X)
    if estimator is not None and takes_documents(estimator):
        return documents(X), y
    return X, y


def score(estimator, X):
    """The numbers that an estimator is there for."""
    for method in ("update_values", "update"):  # of monitors, after the same samples
        if hasattr(estimator, method):
            return getattr(deepcopy(estimator), method)(X)
    for method in ("score_samples", "predict_proba", "transform", "predict"):
        if hasattr(estimator, method):
            return getattr(estimator, method)(X)
    raise TypeError(f"{type(estimator).__name__} has nothing to compare.")


def _strategies(module, base):
    """Instances of all combiners or rules that a module exports."""
    classes = (getattr(module, name) for name in module.__all__)
    return [
        cls([BoundedTPRFPR(0.2, 0.9)]) if cls is rejection.AllOf else cls()
        for cls in classes
        if inspect.isclass(cls)
        and issubclass(cls, base)
        and not inspect.isabstract(cls)
    ]


def _with_ood_rows():
    X, y = data_for(None)
    return np.concatenate([X, 3 - X[:30]]), np.concatenate([y, np.full(30, -1)])


def _fitted_rules():
    X, y = _with_ood_rows()
    loose = {
        "BoundedTPRFPR": {"tpr_min": 0.2, "fpr_max": 0.9},
        "BoundedPrecisionRecall": {"precision_min": 0.3, "recall_min": 0.2},
        "BoundedImprovement": {"risk_max": 0.9},
        "BoundedErrorRate": {"error_max": 0.9, "ood_prior": 0.1},
    }
    for rule in _strategies(rejection, rejection.BaseRule):
        rule.set_params(**loose.get(type(rule).__name__, {}))
        for randomize in (False, True):
            clf = RejectOptionClassifier(
                LogisticRegression(),
                ood_detector=KNN(n_neighbors=2),
                rule=rule,
                solver=Solver(randomize=randomize),
                random_state=0,
            )
            yield clf.fit(X, y), X
    clf = RejectOptionClassifier(
        LogisticRegression(),
        rule=BoundedTPRFPR(0.2, 0.9),
        guarantee=Certificate(delta=0.3, shift=Shift(tv=0.01)),
        calibration=0.5,
        random_state=0,
    )
    certified = RejectOptionClassifier(
        LogisticRegression(),
        ood_detector=KNN(n_neighbors=2),
        rule=BoundedTPRFPR(0.1, 0.95),
        guarantee=Certificate(delta=0.4),
        calibration=0.5,
        random_state=0,
    )
    yield certified.fit(X, np.where(np.arange(len(y)) % 3 == 0, -1, y)), X
    nearest = RejectOptionClassifier(
        LogisticRegression(),
        ood_detector=KNN(n_neighbors=2),
        rule=BoundedTPRFPR(1.0, 0.0),
        solver=Solver(infeasible="nearest"),
        random_state=0,
    )
    yield nearest.fit(X, np.where(np.arange(len(y)) % 9 == 0, -1, y)), X
    yield clf.fit(X, y), X
    for uncertainty in ("std", (BayesianRidge(), BayesianRidge())):
        reg = RejectOptionRegressor(BayesianRidge(), uncertainty, random_state=0)
        yield reg.fit(X, y), X
    options = {"loss": 1 - np.eye(3), "rule": BoundedAbstention(), "random_state": 0}
    for risk in (None, "loss") if HAS_BOOSTING else (None,):
        yield RejectOptionClassifier(LogisticRegression(), risk, **options).fit(X, y), X
    table = RejectOptionClassifier(
        ScoreTable(0, 1), rule=BoundedAbstention(), calibration="same"
    )
    yield table.fit(X, y % 2), X


# Of boosting in older versions of scikit-learn, skops does not trust all types.
HAS_BOOSTING = tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 9)


def _of_other_estimators():
    """Estimators of scikit-learn inside, and what is given in another way."""
    X, y = data_for(None)
    for inner in (
        MLPClassifier((4,), solver="sgd", max_iter=5, random_state=0),
        MLPClassifier((4,), solver="adam", max_iter=5, random_state=0),
        CalibratedClassifierCV(LogisticRegression(), cv=3),
    ):
        yield MSP(inner).fit(X, y), X
    if HAS_BOOSTING:
        boosting = HistGradientBoostingClassifier(max_iter=2)
        yield MSP(make_pipeline(SimpleImputer(), boosting)).fit(X, y), X
        codes = np.c_[y, X]
        inner = HistGradientBoostingClassifier(max_iter=2, categorical_features=[0])
        yield MSP(inner).fit(codes, y), codes
    for algorithm in ("ball_tree", "kd_tree"):
        inner = LocalOutlierFactor(3, novelty=True, algorithm=algorithm)
        yield SklearnDetector(detector=inner).fit(X), X
    for detector in (Mahalanobis(), SSD(), ViM(LinearHead().fit(X, y))):
        yield clone(detector).fit(X, y), X
    yield Mahalanobis().partial_fit(X, y), X
    yield KNN(n_neighbors=2).fit(csr_array(X)), csr_array(X)
    procedure = ConditionalStepUp(delta=0.2)
    selector = NoveltySelector(KNN(n_neighbors=2), procedure=procedure, random_state=0)
    yield selector.fit(X), X
    component = LocalComponent("laplace", n_samples=2)
    quam = QUAM(LogisticRegression(), scope="last", component=component, random_state=0)
    yield quam.fit(X, y), X[:2]
    heads = MultiHeadClassifier(
        module_params={"hidden": (4,)}, max_epochs=2, training=TrainingOptions()
    )
    head = heads.fit(X, np.c_[y, y]).head(1)
    yield Mahalanobis(head).fit(X, y), X


def _searches():
    X, y = _with_ood_rows()
    rejecting = RejectOptionClassifier(
        LogisticRegression(),
        ood_detector=KNN(n_neighbors=2),
        rule=BoundedAbstention(),
        random_state=0,
    )
    members = DeepEnsemble(LogisticRegression(), n_members=2, bootstrap=True)
    grids = (
        *((KNN(), {"n_neighbors": [2]}, make_ood_scorer(name)) for name in _METRICS),
        (members, {"random_state": [0]}, make_misclassification_scorer()),
        (rejecting, {"estimator__C": [1.0]}, make_selective_risk_scorer(0.2, 0.9)),
        (rejecting, {"estimator__C": [1.0]}, make_cost_scorer()),
        (rejecting, {"estimator__C": [1.0]}, make_rate_scorer("coverage")),
    )
    for i, (estimator, grid, scoring) in enumerate(grids):
        splitters = OODStratifiedKFold(2), LeaveClassesOut(1)
        for cv in splitters if VARIANTS else splitters[i % 2 :][:1]:
            search = GridSearchCV(estimator, grid, scoring=scoring, cv=cv)
            yield search.fit(X, y), X


def _of_sequences():
    """Monitors of rates, with alarms, and tests one after the other."""
    lost = np.arange(90) % 4 == 0
    for options in ({}, {"audit": 0.5, "min_audit": 0.25}):
        monitor = RateMonitor(quantity="tpr", bound=0.9, random_state=0, **options)
        monitor.update_values(lost)
        yield monitor, lost
    online = LOND(0.5)
    online.update(np.full(5, 0.01))
    yield online, np.linspace(0.01, 1.0, 9)


def _of_graphs():
    graph = make_ood_graph(60, random_state=0)
    nodes = NodeSet(graph) if not isinstance(graph, NodeSet) else graph
    y = np.asarray(nodes.labels)
    net = {"conv_params": {"hidden": (8,)}, "max_epochs": 2, "random_state": 0}
    for conv in ("gcn", "gat", "sage"):
        yield GraphClassifier(conv, **net).fit(nodes, y), nodes
    yield GKDE().fit(nodes, y), nodes


def _with_other_parts():
    """Return instances whose parts are of classes that no first instance holds."""
    classes = () if VARIANTS else (MLNDetector, ConstraintSearch, NoveltySelector)
    return [one for cls in classes for one in instances_of(cls.__name__, cls)[1:]]


def fitted_examples():
    """Yield fitted estimators, and rows for them.

    They are the instances of all public estimators, detectors of frozen networks,
    each combiner and each rule, and estimators of scikit-learn inside of ours.
    """
    for estimator in [*instances(VARIANTS), *_with_other_parts()]:
        X, y = data_for(estimator)
        yield clone(estimator).fit(X, y), X
    for estimator in detectors(VARIANTS)[-3:]:  # their network has five classes
        X, y = data_for(estimator, n_classes=5)
        yield clone(estimator).fit(X, y), X
    X, y = data_for(None)
    members = [("knn", KNN(n_neighbors=2)), ("ssd", SSD())]
    for combiner in _strategies(combine, combine.BaseCombiner):
        if isinstance(combiner, combine.DOSStorey):
            combiner.set_params(c_m=0.5)  # for two members
        ensemble = DetectorEnsemble(members, combiner, calibration=0.4, random_state=0)
        yield ensemble.fit(X, y), X
    yield from _fitted_rules()
    yield from _of_other_estimators()
    yield from _searches()
    yield from _of_sequences()
    yield from _of_graphs()


def knowledge_bases():
    """Yield knowledge bases with every operator, by every method."""
    rules = [
        "not a = x",
        "a = x and b",
        "a = x or b",
        "a = x xor b",
        "a = x -> b",
        "a = x <-> b",
        "a = c",
        "b",
    ]
    domains = {"a": ["x", "y"], "b": "bool", "c": ["x", "y"]}
    for method in ("auto", "enumeration", "grouping", "components", "elimination"):
        base = KnowledgeBase(rules, domains, method=method)
        base.log_partition(np.ones(len(rules)))
        yield base
    many = {f"c{i}": "bool" for i in range(40)}
    yield KnowledgeBase([" or ".join(many)], many)
