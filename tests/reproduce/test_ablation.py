"""Studies of constraints, each against fits of single detectors and searches."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.naive_bayes import GaussianNB

from benchmarks.reproduce._ablation import (
    ablate_constraints,
    ood_transfer,
    search_path,
)
from skood.detectors import KNN
from skood.exceptions import SkoodWarning
from skood.logic import (
    ConceptFusion,
    ConstraintSearch,
    MLNDetector,
    WeightedConstraints,
)
from skood.metrics import auroc
from tests.logic._planted import NAMES, planted_data, planted_detector, planted_search

X, Y = planted_data(300, 200)
X_TEST, Y_TEST = planted_data(200, 200, seed=1)
IS_OOD = (Y_TEST == -1).any(axis=1)
RULES = ["a -> b", "c <-> d", "b or c"]
NORMAL = ConceptFusion(normalizer="norm")  # "empirical" has ties


def _classifiers():
    return [(name, GaussianNB()) for name in NAMES]


def _values(results, k):
    return results.auroc[results.n_constraints == k].to_numpy()


# -- the first k constraints


@pytest.mark.parametrize("marginalize", [False, True])
def test_no_constraints_are_the_detector_and_all_are_the_estimator(marginalize):
    mln = MLNDetector(
        RULES, _classifiers(), KNN(), fusion=NORMAL, marginalize=marginalize
    )
    results = ablate_constraints(mln, X, Y, X_TEST, Y_TEST, n_repeats=2, random_state=3)
    assert results.n_constraints.tolist() == [0, 1, 2, 3] * 2
    assert results.constraint.tolist() == ["", *RULES] * 2
    assert results.repeat.tolist() == [0] * 4 + [1] * 4
    seeds = np.random.RandomState(3).randint(np.iinfo(np.int32).max, size=2)
    for repeat, seed in enumerate(seeds):
        actual = results.auroc[results.repeat == repeat].to_numpy()
        for k in range(4):
            model = clone(mln).set_params(constraints=RULES[:k], random_state=int(seed))
            model.fit(X, Y)
            assert_allclose(actual[k], model.score(X_TEST, Y_TEST), atol=1e-12)
        alone = model.detector_.score_samples(X_TEST)
        assert_allclose(actual[0], auroc(np.where(IS_OOD, -1, 0), alone), atol=1e-12)
    assert (_values(results, 3) > _values(results, 0) + 0.01).all()
    assert len(set(_values(results, 3))) == 2  # the seeds differ


@pytest.mark.parametrize("kind", ["list", "dict", "named weights", "array"])
def test_weights_and_names_of_the_user(kind):
    """Weights belong to constraints, and the prior to all of them."""
    rules = (
        RULES
        if kind in ("list", "array")
        else {f"r{i}": r for i, r in enumerate(RULES)}
    )
    weights = {
        "list": None,
        "dict": None,
        "named weights": {"r1": 0.5},
        "array": [np.nan, 0.5, np.nan],
    }[kind]
    logic = WeightedConstraints(rules, weights=weights, prior=5.0)
    mln = planted_detector(constraints=logic)
    results = ablate_constraints(mln, X, Y, X_TEST, Y_TEST, n_repeats=1)
    for k in range(4):
        some = dict(list(rules.items())[:k]) if isinstance(rules, dict) else rules[:k]
        given = weights
        if isinstance(weights, dict):
            given = weights if k > 1 else None
        elif weights:
            given = weights[:k]
        model = planted_detector(
            constraints=WeightedConstraints(some, weights=given, prior=5.0)
        )
        assert_allclose(_values(results, k), model.fit(X, Y).score(X_TEST, Y_TEST))


def test_classifier_of_id_samples_belongs_to_any_number_of_constraints():
    mln = MLNDetector(
        RULES[:1], _classifiers(), KNN(), fusion=NORMAL, id_estimator=GaussianNB()
    )
    results = ablate_constraints(mln, X, Y, X_TEST, Y_TEST, n_repeats=1, random_state=0)
    seed = int(np.random.RandomState(0).randint(np.iinfo(np.int32).max, size=1)[0])
    for k in (0, 1):
        model = (
            clone(mln).set_params(constraints=RULES[:k], random_state=seed).fit(X, Y)
        )
        assert model.constraints_ == [*RULES[:k], "is_id"]
        assert_allclose(_values(results, k), model.score(X_TEST, Y_TEST), atol=1e-12)


def test_without_a_detector_no_constraints_rank_nothing():
    mln = planted_detector(False, constraints=RULES)
    results = ablate_constraints(mln, X, Y, X_TEST, Y_TEST, n_repeats=1)
    assert _values(results, 0) == 0.5
    assert _values(results, 1) > 0.55
    assert mln.constraints == RULES
    assert not hasattr(mln, "weights_")


def test_labels_in_data_frames():
    frames = [pd.DataFrame(y, columns=NAMES)[NAMES[::-1]] for y in (Y, Y_TEST)]
    mln = planted_detector(constraints=RULES)
    results = ablate_constraints(mln, X, Y, X_TEST, Y_TEST, n_repeats=1)
    named = ablate_constraints(mln, X, frames[0], X_TEST, frames[1], n_repeats=1)
    pd.testing.assert_frame_equal(results, named)


# -- least improvements of a search


def test_path_equals_single_searches():
    search = planted_search(max_constraints=3)
    values = [0.0, 0.01, 1.0]
    results = search_path(search, X, Y, X_TEST, Y_TEST, min_improvements=values)
    assert results.min_improvement.tolist() == values
    for row in results.itertuples():
        model = clone(search).set_params(search__min_improvement=row.min_improvement)
        if row.min_improvement == 1.0:
            with pytest.warns(SkoodWarning, match="No constraint was found"):
                model.fit(X, Y)
        else:
            model.fit(X, Y)
        assert row.n_found == len(model.found_)
        assert row.validation_auroc == model.validation_auroc_
        assert_allclose(row.test_auroc, model.score(X_TEST, Y_TEST), atol=1e-12)
    assert results.n_found.tolist()[::2] == [3, 0]
    baseline = auroc(np.where(IS_OOD, -1, 0), X_TEST[:, -1])
    assert_allclose(results.baseline_auroc, baseline)
    assert_allclose(results.test_auroc[2], baseline, atol=1e-3)  # ties of "empirical"


def test_searches_without_a_seed_share_their_splits():
    mln = MLNDetector([], _classifiers(), KNN(), fusion=NORMAL)
    search = ConstraintSearch(mln, candidates=["a -> b"])
    results = search_path(search, X, Y, X_TEST, Y_TEST, min_improvements=[1.0] * 3)
    assert results.validation_auroc.nunique() == results.baseline_auroc.nunique() == 1
    assert search.random_state is mln.random_state is None


def test_order_of_a_search_by_name():
    search = planted_search()
    few = {"candidates": ["a -> b", "b or c"]}
    by_name = clone(search).set_params(search="random", **few)
    results = search_path(by_name, X, Y, X_TEST, Y_TEST, min_improvements=[0.001])
    model = clone(search).set_params(search__order="random", **few).fit(X, Y)
    assert_allclose(results.test_auroc, model.score(X_TEST, Y_TEST))


# -- other sets of OOD samples


def _ood_sets():
    rng = np.random.default_rng(5)
    sets = {}
    for name, signs in {
        "a": [1, -1, 1, 1],
        "c": [-1, 1, 1, -1],
        "": [1, 1, 1, 1],
    }.items():
        some = np.array([*signs, -0.3]) + rng.normal(scale=0.3, size=(120, 5))
        sets[name] = some
    return sets


def test_transfer_has_an_empty_diagonal_and_equals_single_searches():
    is_id = (Y != -1).all(axis=1)
    X_id, y_id = X[is_id], Y[is_id]
    X_test = X_TEST[~IS_OOD]
    search = planted_search(candidates=[*RULES, "not a", "d"])
    sets = _ood_sets()
    results = ood_transfer(search, X_id, y_id, sets, X_test)
    matrix = results.pivot(index="searched", columns="tested", values="auroc")
    assert (matrix.isna().to_numpy() == np.eye(3, dtype=bool)).all()
    for name, ood in sets.items():
        labels = np.vstack([y_id, np.full((120, 4), -1, dtype=object)])
        model = clone(search).fit(np.vstack([X_id, ood]), labels)
        for other, test in sets.items():
            if other == name:
                continue
            y = np.repeat([0, -1], [len(X_test), len(test)])
            expected = auroc(y, model.score_samples(np.vstack([X_test, test])))
            baseline = auroc(y, np.append(X_test[:, -1], test[:, -1]))
            row = results[(results.searched == name) & (results.tested == other)]
            assert_allclose(row.auroc, expected, atol=1e-12)
            assert_allclose(row.baseline_auroc, baseline, atol=1e-12)
            assert row.n_found.tolist() == [len(model.found_)]
    frame = pd.DataFrame(y_id, columns=NAMES)[NAMES[::-1]]
    frames = {name: pd.DataFrame(ood) for name, ood in sets.items()}
    named = ood_transfer(
        search, pd.DataFrame(X_id), frame, frames, pd.DataFrame(X_test)
    )
    pd.testing.assert_frame_equal(named, results)


# -- errors


def test_errors():
    mln = planted_detector(constraints=RULES)
    with pytest.raises(ValueError, match=r"All 200 samples of X_test are ID\. Give ID"):
        ablate_constraints(mln, X, Y, X_TEST[~IS_OOD], Y_TEST[~IS_OOD], n_repeats=1)
    with pytest.raises(
        ValueError, match=r"X_test has 400 samples, and y_test labels of"
    ):
        ablate_constraints(mln, X, Y, X_TEST, Y_TEST[:-1], n_repeats=1)
    with pytest.raises(ValueError, match="The 'estimator' parameter"):
        ablate_constraints(planted_search(), X, Y, X_TEST, Y_TEST)
    search = planted_search()
    with pytest.raises(ValueError, match="The 'min_improvement' parameter"):
        search_path(search, X, Y, X_TEST, Y_TEST, min_improvements=[-1])
    sets = _ood_sets()
    with pytest.raises(ValueError, match=r"at least two sets, got \['a'\]"):
        ood_transfer(search, X, Y, {"a": sets["a"]}, X_TEST)
    with pytest.raises(
        ValueError,
        match=r"ID samples only, and 200 labels of y are ood_label=-1\. Pass",
    ):
        ood_transfer(search, X, Y, sets, X_TEST)


def test_detectors_that_cannot_be_searched():
    mln = planted_detector(fusion="product")
    search = ConstraintSearch(mln, random_state=0)
    with pytest.raises(ValueError, match="cannot search with fusion='product'"):
        search_path(search, X, Y, X_TEST, Y_TEST)
