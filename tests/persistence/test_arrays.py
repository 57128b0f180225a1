"""Forged arrays of estimators whose predictions are compiled code."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import io
import json
import os
import sys
import warnings
from functools import partial
from zipfile import ZipFile

import numpy as np
import pytest
from scipy import sparse
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.neighbors import (
    KernelDensity,
    KNeighborsClassifier,
    LocalOutlierFactor,
    NearestNeighbors,
    RadiusNeighborsClassifier,
)
from sklearn.svm import SVC, SVR, NuSVC, NuSVR, OneClassSVM
from sklearn.tree import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
)

from skood.detectors import SklearnDetector
from skood.persistence import dumps, loads, trusted_types
from skood.persistence._arrays import check_arrays
from tests._forks import forked, forks
from tests.persistence._examples import npy, rewritten

pytest.importorskip("skops.io")

warnings.simplefilter("ignore")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4)) + 2 * np.eye(4)[np.arange(60) % 3]
Y = np.arange(60) % 3
CATEGORIES = np.c_[np.arange(60) % 5, X[:, :3]]
TRUSTED = [
    *trusted_types(compiled=True),
    "functools.partial",
    "scipy.sparse._csr.csr_array",
    "scipy.sparse._csr.csr_matrix",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.svm._classes.OneClassSVM",  # whose method a file may hold
    "sklearn.svm._classes.OneClassSVM.predict",
    "sklearn.utils.validation.check_array",
]

# Trusted by skops itself, but not by its oldest version.
OF_BOOSTING = [
    "_loss.CyHalfMultinomialLoss",
    "sklearn._loss.link.IdentityLink",
    "sklearn._loss.link.Interval",
    "sklearn._loss.link.LogitLink",
    "sklearn._loss.link.MultinomialLogit",
    "sklearn._loss.loss.HalfBinomialLoss",
    "sklearn._loss.loss.HalfMultinomialLoss",
    "sklearn._loss.loss.HalfSquaredError",
    "sklearn.compose._column_transformer._RemainderColsList",
    "sklearn.ensemble._hist_gradient_boosting.binning._BinMapper",
]
METHODS = (
    "predict",
    "predict_proba",
    "decision_function",
    "score_samples",
    "apply",
    "decision_path",
    "transform",
    "kneighbors",
)

ESTIMATORS = {
    "OneClassSVM": lambda: OneClassSVM().fit(X),
    "OneClassSVM, sparse": lambda: OneClassSVM().fit(sparse.csr_array(X)),
    "SVC": lambda: SVC().fit(X, Y),
    "SVC of two classes": lambda: SVC().fit(X, Y % 2),
    "SVC, linear": lambda: SVC(kernel="linear").fit(X, Y),
    "SVC, sparse": lambda: SVC().fit(sparse.csr_array(X), Y),
    "SVC, precomputed": lambda: SVC(kernel="precomputed").fit(X @ X.T, Y),
    "NuSVC": lambda: NuSVC(nu=0.2).fit(X, Y),
    "SVR": lambda: SVR().fit(X, Y),
    "NuSVR": lambda: NuSVR().fit(X, Y),
    "KMeans": lambda: KMeans(3, n_init=1, random_state=0).fit(X),
    "MiniBatchKMeans": lambda: MiniBatchKMeans(3, n_init=1, random_state=0).fit(X),
    "tree": lambda: DecisionTreeClassifier(random_state=0).fit(X, Y),
    "tree of several outputs": lambda: DecisionTreeRegressor().fit(X, X),
    "best-first tree": lambda: DecisionTreeClassifier(max_leaf_nodes=5).fit(X, Y),
    "extra tree": lambda: ExtraTreeClassifier(random_state=0).fit(X, Y),
    "stump": lambda: DecisionTreeClassifier().fit(X, np.zeros(60)),
    "forest": lambda: RandomForestClassifier(2, random_state=0).fit(X, Y),
    "forest of regressors": lambda: RandomForestRegressor(2).fit(X, Y),
    "IsolationForest": lambda: IsolationForest(n_estimators=2).fit(X),
    "GradientBoosting": lambda: GradientBoostingClassifier(n_estimators=2).fit(X, Y),
    "GradientBoosting, two": lambda: GradientBoostingClassifier(n_estimators=2).fit(
        X, Y % 2
    ),
    "GradientBoosting, number": lambda: GradientBoostingRegressor(n_estimators=2).fit(
        X, Y
    ),
    "HistGradientBoosting": lambda: HistGradientBoostingClassifier(
        max_iter=2, min_samples_leaf=5
    ).fit(X, Y),
    "HistGradientBoosting, categories": lambda: HistGradientBoostingRegressor(
        max_iter=2, min_samples_leaf=5, categorical_features=[0]
    ).fit(CATEGORIES, Y),
    "neighbors, brute": lambda: KNeighborsClassifier(3, algorithm="brute").fit(X, Y),
    "neighbors, kd_tree": lambda: KNeighborsClassifier(
        3, algorithm="kd_tree", leaf_size=5
    ).fit(X, Y),
    "neighbors, ball_tree": lambda: NearestNeighbors(
        n_neighbors=3, algorithm="ball_tree", leaf_size=5
    ).fit(X),
    "neighbors, radius": lambda: RadiusNeighborsClassifier(9.0, algorithm="brute").fit(
        X, Y
    ),
    "neighbors, sparse": lambda: KNeighborsClassifier(3, algorithm="brute").fit(
        sparse.csr_array(X), Y
    ),
    "LocalOutlierFactor": lambda: LocalOutlierFactor(3, novelty=True).fit(X),
    "KernelDensity": lambda: KernelDensity(leaf_size=5).fit(X),
    "detector": lambda: SklearnDetector(detector=OneClassSVM()).fit(X),
}


def rows_for(name):
    """What an estimator is given to predict."""
    if "precomputed" in name:
        return X @ X.T
    if "categories" in name:
        return CATEGORIES
    return sparse.csr_array(X) if "sparse" in name else X


def _with_array(data, member, array):
    return rewritten(data, {member: npy(array)})


def _with_arrays(data, member, arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return rewritten(data, {member: stream.getvalue()})


def _with_schema(data, schema):
    return rewritten(data, {"schema.json": json.dumps(schema)})


def mutated(array):
    """Yield names of changes and changed arrays: shapes, types and values."""
    far = 2**30
    if array.ndim:
        yield "no rows", array[:0]
        yield "half of the rows", array[: (len(array) + 1) // 2]
        yield "a thousand times the rows", np.repeat(array, 1000, axis=0)
        yield "another axis", array[None]
        yield "reversed", array[::-1].copy()
    if array.ndim > 1:
        yield "fewer columns", array[..., :1].copy()
        yield "no columns", array[..., :0].copy()
        yield "more columns", np.concatenate([array] * 3, axis=-1)
        yield "flat", array.ravel()
        yield "transposed", np.asfortranarray(array)
    if array.dtype.names:
        for field in array.dtype.names:
            kind = array.dtype[field].kind
            for value in (far, -far, 0, -1) if kind == "i" else (2**31, 0, 1, 255):
                changed = array.copy()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    try:
                        changed[field] = value
                    except OverflowError:
                        continue
                yield f"{field} = {value}", changed
                one = array.copy()
                one[field][0] = changed[field][0]
                yield f"{field} of the first = {value}", one
    elif array.dtype.kind in "if":
        for value in (far, -far, -1, 0):
            yield (
                f"all {value}",
                np.full_like(
                    array, min(value, 100) if (array.dtype.itemsize == 1) else value
                ),
            )
        for dtype in (np.int8, np.int64, np.float32, np.float64):
            yield (
                f"as {np.dtype(dtype)}",
                np.resize(np.nan_to_num(array), array.shape).astype(dtype),
            )


def forgeries(data):
    """Yield forgeries: each array changed, and each whole number of the schema.

    Each is a name, and a function that writes the file: before the next is requested.
    """
    with ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for member, content in members.items():
        if member.endswith(".npy"):
            array = np.load(io.BytesIO(content))
            for change, other in mutated(array):
                what = f"{array.dtype} {array.shape}: {change}"
                yield what, partial(_with_array, data, member, other)
        elif member.endswith(".npz"):
            with np.load(io.BytesIO(content)) as file:
                parts = dict(file)
            for name, array in parts.items():
                for change, other in mutated(array):
                    forge = partial(_with_arrays, data, member, parts | {name: other})
                    yield f"{name} {array.shape}: {change}", forge
    schema = json.loads(members["schema.json"])
    numbers = []
    todo = [((), schema)]
    while todo:
        path, part = todo.pop()
        if isinstance(part, dict):
            content = part.get("content")
            if part.get("__loader__") == "JsonNode" and content.lstrip("-").isdigit():
                numbers.append((path, part))
            todo += [((*path, key), value) for key, value in part.items()]
        elif isinstance(part, list):
            todo += [((*path, i), value) for i, value in enumerate(part)]
    for path, part in numbers:
        names = [str(step) for step in path if step not in ("content", "attrs")]
        if names and names[-1] in ("n_jobs", "max_iter", "verbose", "cache_size"):
            continue  # costs time, and nothing else
        before = part["content"]
        for value in ("0", "-1", "100000"):
            part["content"] = value
            yield f"{names}: {value}", partial(_with_schema, data, schema)
        part["content"] = before


def attack(names, path, n_forgeries=None):
    """Load forgeries, and predict by what is loaded; write how many were refused.

    Of each estimator are tried all, or by `n_forgeries` a sample: as many at a time
    until ten are refused.
    """
    found = {}
    for name in names:
        counts = {"refused": 0, "raised": 0, "predicted": 0}
        rows, data = rows_for(name), dumps(ESTIMATORS[name]())
        n = sum(1 for _ in forgeries(data))
        order = np.random.default_rng(0).permutation(n)
        size = n if n_forgeries is None else n_forgeries
        for first in range(0, n, size):
            if first and counts["refused"] >= 10:
                break
            chosen = set(order[first : first + size].tolist())
            for i, (what, forge) in enumerate(forgeries(data)):
                if i in chosen:
                    # the last line before a crash
                    print(f"{name}: {what}", file=sys.stderr, flush=True)
                    counts[_outcome(forge(), rows)] += 1
        found[name] = counts
    path.write_text(json.dumps(found))


def _outcome(data, rows):
    try:
        loaded = loads(data, trusted=TRUSTED)
    except ValueError:
        return "refused"
    outcome = "predicted"
    for method in METHODS:
        try:
            if hasattr(loaded, method):
                getattr(loaded, method)(rows)
        except Exception:
            outcome = "raised"
    return outcome


FAMILIES = {
    "libsvm": [name for name in ESTIMATORS if "SV" in name or name == "detector"],
    "clusters": [name for name in ESTIMATORS if "KMeans" in name],
    "boosting": [name for name in ESTIMATORS if "Boosting" in name],
    "neighbors": ["LocalOutlierFactor", "KernelDensity"]
    + [name for name in ESTIMATORS if "neighbors" in name],
}
FAMILIES["trees"] = [
    name for name in ESTIMATORS if not any(name in other for other in FAMILIES.values())
]


# All forgeries of all estimators take minutes and are tried at night; by day a sample
# of them, of one estimator for each kind of arrays.
NIGHTLY = "SKOOD_NIGHTLY" in os.environ
SAMPLE = [
    ["detector", "forest", "neighbors, kd_tree"],
    pytest.param(
        [
            "SVC, sparse",
            "KMeans",
            "GradientBoosting",
            "HistGradientBoosting, categories",
            "LocalOutlierFactor",
        ],
        marks=pytest.mark.slow,
    ),
]


@forks
@pytest.mark.parametrize("names", FAMILIES.values() if NIGHTLY else SAMPLE, ids=str)
def test_no_forgery_crashes(names, tmp_path):
    attempt = partial(attack, names, tmp_path / "a", None if NIGHTLY else 12)
    assert forked(attempt, seconds=1200) == 0
    counts = json.loads((tmp_path / "a").read_text())
    assert list(counts) == names
    for name in names:
        assert counts[name]["refused"] >= 10, counts


@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_is_not_forged_is_loaded(name):
    estimator, rows = ESTIMATORS[name](), rows_for(name)
    loaded = loads(dumps(estimator), trusted=[*TRUSTED, *OF_BOOSTING])
    for method in METHODS:
        if hasattr(estimator, method):
            actual, expected = (
                getattr(one, method)(rows) for one in (loaded, estimator)
            )
            if not isinstance(actual, tuple):
                actual, expected = [actual], [expected]
            for a, b in zip(actual, expected, strict=True):
                a, b = (c.toarray() if sparse.issparse(c) else c for c in (a, b))
                np.testing.assert_array_equal(a, b)


def _forged_vectors(change):
    detector = SklearnDetector(detector=OneClassSVM()).fit(X)
    (svm,) = detector.detectors_
    svm.support_vectors_ = change(svm.support_vectors_)
    return dumps(detector)


@pytest.mark.parametrize(
    "change",
    [
        lambda vectors: vectors[:, :1].copy(),
        lambda vectors: vectors[:1],
        lambda vectors: vectors.astype(np.float32),
        lambda vectors: vectors.ravel(),
        lambda vectors: np.repeat(vectors, 2, axis=1),
    ],
)
def test_support_vectors_of_another_shape_are_refused(change):
    expected = r"contains a OneClassSVM that no fit creates: support_vectors_ is "
    with pytest.raises(ValueError, match=expected + r".*expected float64 of shape \("):
        loads(_forged_vectors(change))


def test_nested_objects_are_checked():
    svm = OneClassSVM().fit(X)
    svm.support_vectors_ = svm.support_vectors_[:, :1].copy()
    places = [{"a": [(svm,)]}, np.array([svm, None], dtype=object), {"a": svm.predict}]
    for place in places:
        detector = SklearnDetector(detector=OneClassSVM()).fit(X)
        detector.more_ = place
        with pytest.raises(ValueError, match="a OneClassSVM that no fit creates"):
            loads(dumps(detector), trusted=TRUSTED)


def test_node_that_is_a_child_of_itself_is_refused():
    """A prediction would never end."""
    estimator = ESTIMATORS["HistGradientBoosting"]()
    check_arrays(estimator)
    estimator._predictors[0][0].nodes["left"][0] = 0
    with pytest.raises(ValueError, match="a child is not a later one"):
        check_arrays(estimator)


def test_unfitted_estimators_are_loaded():
    for kind in {type(fit()) for fit in ESTIMATORS.values()}:
        estimator = kind()
        assert repr(loads(dumps(estimator), trusted=TRUSTED)) == repr(estimator)
