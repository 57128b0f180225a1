"""The search for constraints: the estimator, its samples, and the greedy search."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from skood.exceptions import SkoodWarning
from skood.logic import (
    C,
    ConceptFusion,
    ConstraintContributionDisplay,
    ConstraintSearch,
    KnowledgeBase,
    MLNDetector,
    constraint_candidates,
)
from skood.logic.search import _incremental_network as state
from skood.logic.search._constraint_search import split_samples
from skood.metrics import auroc, make_ood_scorer
from tests.logic._planted import (
    NAMES,
    Column,
    LastColumn,
    naive_auroc,
    planted_data,
    planted_detector,
    planted_search,
    rows_of,
)

X, y = planted_data()

TREES = [(name, DecisionTreeClassifier(max_depth=1)) for name in NAMES]

# enough where it does not matter which constraints are found
FEW = ["a -> b", "c <-> d", "b or c", "not d"]


def test_planted_rule_is_selected_and_helps():
    X, y = planted_data(1500, 1000)
    search = planted_search(order="gain").fit(X, y)
    assert "a -> b" in search.found_
    assert search.n_validation_ == (300, 500)
    assert search.n_test_ == (300, 500)
    assert search.test_auroc_ > search.baseline_test_auroc_ + 0.1
    assert search.validation_auroc_ > search.baseline_validation_auroc_ + 0.1
    X, y = planted_data(500, 500, seed=9)
    new = np.where((y == -1).any(axis=1), -1, 0)
    alone = auroc(new, X[:, -1])
    assert search.score(X, y) > alone + 0.1
    assert auroc(new, search.score_samples(X)) == search.score(X, y)


def test_is_the_detector_with_these_constraints():
    """What a detector of these constraints, fitted on the same rows, is."""
    mln = planted_detector(contamination=0.3)  # the search has its own
    search = ConstraintSearch(mln, contamination=0.1, random_state=3).fit(X, y)
    rows = rows_of(y, 3)
    detector = clone(mln).set_params(
        constraints=search.found_, random_state=0, contamination=0.1
    )
    detector.fit(X[rows.train], y[rows.train])
    assert search.constraints_ == search.found_ == detector.constraints_
    np.testing.assert_allclose(search.weights_, detector.weights_, rtol=1e-7)
    np.testing.assert_allclose(search.score_samples(X), detector.score_samples(X))
    assert search.offset_ == pytest.approx(detector.offset_)
    np.testing.assert_array_equal(search.predict(X), detector.predict(X))
    np.testing.assert_array_equal(
        search.predict_concepts(X), detector.predict_concepts(X)
    )
    np.testing.assert_allclose(search.penalty(X), detector.penalty(X))
    sentences = [row.sentence for row in search.explain(X[:20])]
    assert sentences == [row.sentence for row in detector.explain(X[:20])]
    assert len(search.explain(X[:5], as_frame=True)) == 5
    np.testing.assert_array_equal(search.classes_, [False, True])
    assert isinstance(search.estimator_, MLNDetector)
    assert search.estimator_.constraints.constraints == search.found_
    validation = detector.score(X[rows.validation], y[rows.validation])
    assert search.validation_auroc_ == pytest.approx(validation)
    test = detector.score(X[rows.test], y[rows.test])
    assert search.test_auroc_ == pytest.approx(test)
    labels = np.where((y == -1).any(axis=1), -1, 0)
    alone = auroc(labels[rows.test], X[rows.test, -1])
    assert search.baseline_test_auroc_ == pytest.approx(alone)


def test_parts_that_are_fitted():
    """Weights are fitted to the rows that the estimator holds out."""
    mln = MLNDetector([], TREES, LastColumn(), random_state=7)
    search = ConstraintSearch(mln, candidates=FEW, random_state=3).fit(X, y)
    rows = rows_of(y, 3)
    detector = clone(mln).set_params(constraints=search.found_)
    detector.fit(X[rows.train], y[rows.train])
    np.testing.assert_allclose(search.weights_, detector.weights_, rtol=1e-7)
    np.testing.assert_allclose(search.score_samples(X), detector.score_samples(X))
    assert search.n_features_in_ == 5
    frame = pd.DataFrame(X, columns=list("pqrst"))
    targets = pd.DataFrame(y, columns=NAMES)
    again = clone(search).fit(frame, targets)
    assert again.found_ == search.found_
    assert list(again.feature_names_in_) == list("pqrst")
    np.testing.assert_array_equal(again.score_samples(frame), search.score_samples(X))
    other = clone(search).fit(X.tolist(), y.tolist())
    assert other.found_ == search.found_


def test_logic_alone():
    """Neither constraints nor a detector to start from."""
    search = planted_search(planted_detector(detector=False), candidates=FEW)
    search.fit(X, y)
    assert search.baseline_test_auroc_ == search.baseline_validation_auroc_ == 0.5
    assert search.test_auroc_ > 0.6
    assert search.estimator_.constraints.constraints == search.found_
    rows = rows_of(y, 0)
    value = naive_auroc(planted_detector(detector=False), search.found_, X, y, rows)
    assert search.validation_auroc_ == pytest.approx(value)
    with (
        pytest.raises(
            ValueError,
            match=r"No constraint was found, and the estimator has neither constraints "
            r"nor a detector: nothing is left to score samples by\. Give it a "
            r"detector, other candidates or a smaller min_improvement\.",
        ),
        pytest.warns(SkoodWarning, match="No constraint was found"),
    ):
        clone(search).set_params(search__min_improvement=1.0).fit(X, y)


@pytest.mark.parametrize(
    "constraints, weights",
    [
        (["c <-> d"], None),
        (["c <-> d"], [2.0]),
        (["c <-> d", "b"], [np.nan, 0.5]),
        ({"alike": "c <-> d", "a -> b": "d -> c"}, {"alike": 1.5}),
    ],
)
def test_start_with_constraints(constraints, weights):
    mln = planted_detector(constraints=constraints, weights=weights)
    search = ConstraintSearch(mln, candidates=FEW, random_state=3).fit(X, y)
    rules = list(constraints.values()) if weights == {"alike": 1.5} else constraints
    n = len(rules)
    start = KnowledgeBase(rules, dict.fromkeys(NAMES, "bool")).constraints
    assert search.constraints_ == [*start, *search.found_]
    assert "a -> b" in search.found_
    assert not set(start) & set(search.found_)
    if isinstance(weights, list):
        known = ~np.isnan(weights)
        np.testing.assert_array_equal(
            search.weights_[:n][known], np.array(weights)[known]
        )
    if isinstance(weights, dict):
        assert search.weights_[0] == 1.5
        found = search.estimator_.constraints.constraints
        assert list(found)[:2] == ["alike", "a -> b"]
        assert found["(a -> b)"] == "a -> b"
    # the history begins with the detector of the start
    rows = rows_of(y, 3)
    before = naive_auroc(mln, constraints, X, y, rows)
    assert search.search_history_["before"][0] == pytest.approx(before, abs=1e-6)
    assert search.baseline_validation_auroc_ == pytest.approx(
        auroc(
            np.where((y[rows.validation] == -1).any(axis=1), -1, 0),
            X[rows.validation, -1],
        )
    )


def test_supervised():
    """OOD rows of the training part are learned from, and is_id stays last."""
    params = {"id_estimator": GaussianNB(), "calibration": 0.2}
    mln = planted_detector(constraints=["c <-> d"], weights=[1.5], **params)
    search = planted_search(mln, candidates=["a -> b", "is_id -> a", "d"]).fit(X, y)
    assert search.constraints_ == ["c <-> d", *search.found_, "is_id"]
    assert search.weights_[0] == 1.5
    assert search.weights_[-1] > 0
    assert search.n_validation_ == (*search.n_test_[:1], 80) == (120, 80)
    default = ConstraintSearch(mln, search="gain", random_state=0).fit(X, y)
    assert not any("is_id" in text for text in default.found_)


def test_supervised_without_constraints_or_a_detector():
    """The classifier of ID rows scores, whether a constraint is found or not."""
    params = {"id_estimator": GaussianNB(), "calibration": 0.2}
    for weights in (None, [], [3.0], {"is_id": 3.0}):
        mln = planted_detector(detector=False, weights=weights, **params)
        search = planted_search(mln, candidates=["a -> b"]).fit(X, y)
        assert search.constraints_ == ["a -> b", "is_id"]
        if weights not in (None, []):
            assert search.weights_[-1] == 3.0
        search.set_params(search__min_improvement=1.0)
        with pytest.warns(SkoodWarning, match="No constraint was found"):
            search.fit(X, y)
        assert search.constraints_ == ["is_id"]
        assert search.test_auroc_ > 0.5


def test_weights_where_there_is_nothing_to_weigh():
    mln = planted_detector(detector=False, weights=[])
    search = ConstraintSearch(mln, candidates=FEW, random_state=0).fit(X, y)
    plain = planted_detector(detector=False)
    other = planted_search(plain, candidates=FEW).fit(X, y)
    np.testing.assert_array_equal(search.weights_, other.weights_)
    for weights, text in (
        ([1.0], "weights must hold one number"),
        ({"a -> b": 1.0}, "names 'a -> b', which is no constraint"),
    ):
        with pytest.raises(ValueError, match=text):
            clone(search).set_params(estimator__constraints__weights=weights).fit(X, y)


def test_weights_are_edited_by_hand():
    search = planted_search(candidates=FEW)
    with pytest.raises(NotFittedError):
        search.set_weights([1.0])
    search.fit(X, y)
    offset, rule = search.offset_, search.found_[0]
    assert search.set_weights({rule: 9.0}) is search
    assert search.weights_[0] == 9.0
    assert search.offset_ == search.estimator_.offset_ != offset
    flagged = [row.is_ood for row in search.explain(X)]
    np.testing.assert_array_equal(flagged, search.predict(X) == -1)
    with pytest.raises(ValueError, match="no constraint"):
        search.set_weights({"zebra": 1.0})
    assert search.weights_[0] == 9.0


def test_columns_of_labels_go_by_their_names():
    """Scorers know the concepts of a search, and displays its constraints."""
    frame = pd.DataFrame(y, columns=NAMES)[NAMES[::-1]].assign(rest="?")
    search = planted_search(candidates=FEW)
    search.fit(X, frame)
    assert search.concepts_ == NAMES
    assert search.knowledge_base_.constraints == search.constraints_
    expected = search.score(X, y)
    assert search.score(X, frame) == make_ood_scorer()(search, X, frame) == expected
    for actual, proba in zip(
        search.concept_proba(X), search.estimator_.concept_proba(X), strict=True
    ):
        np.testing.assert_array_equal(actual, proba)
    contributions = [list(row.contributions.values()) for row in search.explain(X[:5])]
    display = ConstraintContributionDisplay.from_estimator(search, X[:5])
    np.testing.assert_array_equal(display.contributions, contributions)
    display = ConstraintContributionDisplay.from_estimator(search, X, frame)
    assert display.contributions.shape == (2, len(search.constraints_))


def test_candidates_are_tried_once():
    """Constant ones and those that say the same as another are not."""
    candidates = [
        "a -> b",
        "a or not a",
        "not b -> not a",
        "a and not b",
        "c <-> d",
        C("d").eq(True),
        "d and not d",
        "c xor d",
        "b or c and a and not c",
        "b",
    ]
    search = planted_search(candidates=candidates)
    search.fit(X, y)
    assert list(search.search_history_["candidate"]) == [
        "a -> b",
        "c <-> d",
        "d = True",
        "b or c and a and not c",
    ]
    mln = planted_detector(constraints=["not d"])
    search.set_params(estimator=mln).fit(X, y)
    assert "d = True" not in list(search.search_history_["candidate"])


def test_orders():
    search = planted_search(order="random", random_state=1)
    first = search.fit(X, y).search_history_["candidate"]
    assert list(first) == list(search.fit(X, y).search_history_["candidate"])
    listed = [str(c) for c in constraint_candidates(dict.fromkeys(NAMES, "bool"))]
    assert sorted(first) == sorted(listed)
    assert list(first) != listed
    other = clone(search).set_params(random_state=2).fit(X, y)
    assert list(other.search_history_["candidate"]) != list(first)


@pytest.mark.parametrize("order", ["listed", "gain"])
def test_max_constraints(order):
    search = planted_search(order=order, prune=False)
    all_of_them = search.fit(X, y).found_
    assert len(all_of_them) > 2
    search.set_params(search__max_constraints=2).fit(X, y)
    assert search.found_ == all_of_them[:2]
    with pytest.warns(SkoodWarning, match="No constraint was found"):
        search.set_params(search__max_constraints=0).fit(X, y)
    assert search.found_ == []
    assert len(search.search_history_) == 0


def test_depth():
    search = planted_search(depth=1).fit(X, y)
    assert list(search.search_history_["candidate"]) == NAMES
    search.set_params(depth=3, search="gain").fit(X, y)
    tried = search.search_history_["candidate"]
    assert any(" and " in text for text in tried)


def test_nothing_to_find():
    """OOD rows that are like ID rows: no constraints, a warning, the detector alone."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 5))
    y = (X[:, :4] > 0).astype(object)
    y[200:] = -1
    search = planted_search(min_improvement=0.1)
    with pytest.warns(
        SkoodWarning,
        match=r"No constraint was found: of 28 candidates none raises the auroc of "
        r"0\.\d+ on validation samples by more than min_improvement=0\.1; the best "
        r"reached 0\.\d+\. Give other candidates, or a smaller min_improvement\.",
    ):
        search.fit(X, y)
    assert search.found_ == search.constraints_ == []
    assert search.weights_.shape == (0,)
    # the detector's scores but for ties, which the empirical survival function makes
    assert abs(search.test_auroc_ - search.baseline_test_auroc_) < 0.01
    assert not search.search_history_["accepted"].any()


def test_likelihood_needs_no_ood_samples():
    is_id = ~(y == -1).any(axis=1)
    search = planted_search(
        objective="likelihood", order="gain", random_state=3, prune=False
    )
    search.fit(X[is_id], y[is_id].astype(bool))
    assert search.found_[0] in ("a -> b", "c -> d", "not c -> not d")
    assert search.validation_auroc_ is search.baseline_validation_auroc_ is None
    assert search.test_auroc_ is search.baseline_test_auroc_ is None
    assert search.n_validation_ == (120, 0)
    # the objective is the mean log-probability of the concepts of validation rows
    rows = rows_of(y[is_id], 3)
    Z = (X[is_id][:, :4] > 0).astype(int)
    kb = KnowledgeBase(search.found_, dict.fromkeys(NAMES, "bool"))
    weights = kb.fit_weights(Z[rows.train])
    np.testing.assert_allclose(search.weights_, weights)
    value = kb.log_probability(Z[rows.validation], weights).mean()
    history = search.search_history_
    accepted = history[history["accepted"]]
    assert accepted["after"].iloc[-1] == pytest.approx(value)
    assert accepted["before"].iloc[0] == pytest.approx(-4 * np.log(2))
    # OOD rows change nothing of it, and are reported
    both = clone(search).fit(X, y)
    assert both.found_ == search.found_
    np.testing.assert_allclose(both.score_samples(X), search.score_samples(X))
    assert both.test_auroc_ > 0.5
    # frozen concepts need no labels
    unlabeled = clone(search).fit(X[is_id])
    assert unlabeled.found_ == search.found_


def test_no_test_samples():
    search = planted_search(test=0.0, candidates=FEW)
    search.fit(X, y)
    assert search.n_validation_ == (120, 400)
    assert search.n_test_ == (0, 0)
    assert search.test_auroc_ is search.baseline_test_auroc_ is None
    assert search.validation_auroc_ > search.baseline_validation_auroc_


def test_pickled_history_and_search_over_it():
    search = planted_search(candidates=FEW).fit(X, y)
    loaded = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(loaded.score_samples(X), search.score_samples(X))
    pd.testing.assert_frame_equal(loaded.search_history_, search.search_history_)
    mln = MLNDetector(
        [],
        TREES,
        LastColumn(),
        fusion=ConceptFusion(normalizer="norm"),
        random_state=7,
    )
    grid = GridSearchCV(
        planted_search(mln, order="gain", depth=1),
        {"estimator__fusion__gamma": [0.0, 1.0]},
        scoring=make_ood_scorer(auroc),
        cv=2,
    )
    with pytest.warns(SkoodWarning, match="No constraint was found"):
        grid.fit(X, y)
    assert grid.best_params_ == {"estimator__fusion__gamma": 1.0}


def test_random_state_of_the_estimator():
    """None, or a generator, draws the rows that are held out; once."""
    for seed in (None, np.random.RandomState(0)):
        mln = MLNDetector([], TREES, LastColumn(), random_state=seed)
        search = ConstraintSearch(mln, candidates=FEW, random_state=3).fit(X, y)
        assert isinstance(search.estimator_.random_state, int)
        rows = rows_of(y, 3)
        again = clone(search.estimator_).fit(X[rows.train], y[rows.train])
        np.testing.assert_allclose(search.weights_, again.weights_, rtol=1e-7)


def test_too_large_components(monkeypatch):
    monkeypatch.setattr(state, "_MAX_WORLDS", 4)
    monkeypatch.setattr(state, "_MAX_TABLE", 4)
    search = planted_search()
    search.set_params(candidates=["a -> b", "c <-> d", "a and b and c -> d"])
    with pytest.warns(
        SkoodWarning,
        match="1 of 3 candidates were not tried, or not always: next to the "
        "constraints found before they connect too many concepts for an exact "
        "partition function. Give fewer candidates, or max_constraints.",
    ):
        search.fit(X, y)
    assert list(search.search_history_["candidate"]) == ["a -> b", "c <-> d"]
    with pytest.warns(SkoodWarning, match="1 of 3 candidates"):
        search.set_params(search__order="gain").fit(X, y)
    assert "a and b and c -> d" not in list(search.search_history_["candidate"])
    # what cannot be left out is kept
    monkeypatch.setattr(state.SearchModel, "without", lambda self, member: None)
    with pytest.warns(SkoodWarning, match="1 of 3 candidates"):
        kept = clone(search).fit(X, y).found_
    with pytest.warns(SkoodWarning, match="1 of 3 candidates"):
        assert kept == search.set_params(search__prune=False).fit(X, y).found_
    search.set_params(estimator=planted_detector(constraints=["a and b and c -> d"]))
    with pytest.raises(
        ValueError,
        match=r"The constraint 'a and b and c -> d' connects too many concepts for an "
        r"exact partition function, which a search needs\. Split it, or leave it out\.",
    ):
        search.fit(X, y)


def test_progress(capsys):
    planted_search(verbose=1).fit(X, y)
    assert re.search(r"constraints: 100%.* 28/28 ", capsys.readouterr().err)


def test_errors():
    search = planted_search(candidates=FEW)
    with pytest.raises(NotFittedError):
        search.search_history_  # noqa: B018
    for method in ("score_samples", "explain", "predict_concepts", "penalty"):
        with pytest.raises(NotFittedError):
            getattr(search, method)(X)
    with pytest.raises(NotFittedError):
        search.score(X, y)
    search.fit(X, y)
    before = search.score_samples(X)
    is_id = ~(y == -1).any(axis=1)
    with pytest.raises(
        ValueError,
        match=r"objective='auroc' needs OOD samples, at least 2 with test=0\.2, and y "
        r"has 0 that are labeled ood_label=-1\. Add some, such as samples of classes "
        r"that are left out, or search with objective='likelihood', which needs none\.",
    ):
        search.fit(X[is_id], y[is_id])
    np.testing.assert_array_equal(search.score_samples(X), before)
    one = is_id.copy()
    one[np.flatnonzero(~is_id)[0]] = True
    with pytest.raises(ValueError, match=r"at least 2 with test=0\.2, and y has 1 "):
        search.fit(X[one], y[one])
    with pytest.raises(
        ValueError,
        match=r"ConstraintSearch cannot search with fusion='product': it needs "
        r"non-negative weights, and candidates may have negative ones\. Use "
        r"fusion='log' or 'shifted_product'\.",
    ):
        ConstraintSearch(planted_detector(fusion="product")).fit(X, y)
    with pytest.raises(ValueError, match="The 'estimator' parameter"):
        ConstraintSearch(LastColumn()).fit(X, y)
    with pytest.raises(ValueError, match="The 'search' parameter"):
        ConstraintSearch(planted_detector(), search="best").fit(X, y)
    with pytest.raises(ValueError, match="The 'order' parameter of GreedySearch"):
        planted_search(order="best").fit(X, y)
    with pytest.raises(ValueError, match="Unknown concept 'q'"):
        planted_search(candidates=[C("q")]).fit(X, y)
    with pytest.raises(ValueError, match="No in-distribution samples"):
        ConstraintSearch(planted_detector()).fit(X[~is_id], y[~is_id])


def test_constraints_without_a_table():
    """A constraint over more worlds than a truth table has cannot be tried."""
    names = [f"p{j}" for j in range(25)]
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 25))
    y = (X > 0).astype(object)
    y[40:] = -1
    concepts = [(name, FrozenEstimator(Column(j))) for j, name in enumerate(names)]
    mln = MLNDetector(
        [], concepts, LastColumn(), fusion=ConceptFusion(normalizer="norm")
    )
    search = planted_search(mln, candidates=[" or ".join(names)])
    with pytest.raises(
        ValueError,
        match=r"The constraint 'p0 or p1 .*' names concepts with too many combinations "
        r"of values for a search\. Split it\.",
    ):
        search.fit(X, y)


def test_split_of_samples():
    id_rows, ood_rows = np.arange(100), np.arange(100, 130)
    draw = np.random.RandomState
    rows = split_samples(id_rows, ood_rows, 0.2, 0.1, draw(0), keep_ood=False)
    assert [len(part) for part in rows] == [70, 20 + 20, 10 + 10]
    np.testing.assert_array_equal(np.sort(np.concatenate(rows)), np.arange(130))
    assert all((np.diff(part) > 0).all() for part in rows)
    kept = split_samples(id_rows, ood_rows, 0.2, 0.1, draw(0), keep_ood=True)
    assert [len(part) for part in kept] == [70 + 21, 20 + 6, 10 + 3]
    none = split_samples(id_rows, ood_rows[:0], 0.2, 0.1, draw(0), keep_ood=False)
    for part, other, alone in zip(rows, kept, none, strict=True):
        np.testing.assert_array_equal(part[part < 100], alone)
        np.testing.assert_array_equal(other[other < 100], alone)
    with pytest.raises(
        ValueError,
        match=r"validation=0\.6 and test=0\.5 leave 0 ID samples of n_samples=10 to "
        r"fit the estimator on\. Give more samples, or smaller fractions\.",
    ):
        split_samples(np.arange(10), ood_rows, 0.6, 0.5, draw(0), keep_ood=False)
    with pytest.raises(ValueError, match="leave 1 OOD samples of n_samples=3"):
        split_samples(id_rows, np.arange(3), 0.2, 0.1, draw(0), keep_ood=True)


def _naive_listed(mln, candidates, X, y, rows, min_improvement, start=()):
    found, tried = list(start), []
    best = naive_auroc(mln, found, X, y, rows)
    for candidate in candidates:
        value = naive_auroc(mln, [*found, candidate], X, y, rows)
        tried.append((str(candidate), best, value))
        if value > best + min_improvement:
            found.append(str(candidate))
            best = value
    return found[len(start) :], tried


@pytest.mark.parametrize(
    "params",
    [
        {},
        pytest.param({"gamma": 0.5, "prior": 5.0}, marks=pytest.mark.slow),
        {"fusion": "shifted_product"},
        {"marginalize": True},
    ],
    ids=str,
)
def test_listed_equals_a_naive_loop(params):
    mln = planted_detector(**params)
    candidates = constraint_candidates(dict.fromkeys(NAMES, "bool"))[2:11]
    search = planted_search(mln, candidates=candidates, prune=False, random_state=3)
    search.fit(X, y)
    rows = rows_of(y, 3)
    found, tried = _naive_listed(mln, candidates, X, y, rows, 0.001)
    assert search.found_ == found
    assert "a -> b" in found or params
    history = search.search_history_
    assert list(history["candidate"]) == [text for text, _, _ in tried]
    np.testing.assert_allclose(history["before"], [b for _, b, _ in tried], atol=1e-6)
    np.testing.assert_allclose(history["after"], [a for _, _, a in tried], atol=1e-6)
    assert list(history["candidate"][history["accepted"]]) == found
    assert (history["kept"] == history["accepted"]).all()
    assert (history["seconds"] >= 0).all()


def test_by_gain_equals_a_naive_loop():
    """Each round: the best of those with the largest divergence, from scratch."""
    mln = planted_detector()
    search = planted_search(mln, order="gain", n_refits=4, prune=False, random_state=3)
    search.set_params(search__min_improvement=0.002).fit(X, y)
    rows = rows_of(y, 3)
    is_id = ~(y[rows.train] == -1).any(axis=1)
    assert is_id.all()
    domains = dict.fromkeys(NAMES, "bool")
    rest = [str(c) for c in constraint_candidates(domains)]
    Z = (X[rows.train, :4] > 0).astype(int)
    found, tried = [], []
    best = naive_auroc(mln, [], X, y, rows)
    while True:
        kb = KnowledgeBase(found, domains)
        weights = kb.fit_weights(Z)
        gains = []
        for text in rest:
            larger = KnowledgeBase([*found, text], domains)
            p = larger.expected_truth(np.append(weights, 0.0))[-1]
            uniform = larger.expected_truth(np.zeros(len(larger)))[-1]
            q = (larger.truth(Z)[:, -1].sum() + uniform) / (len(Z) + 1)
            gains.append(q * np.log(q / p) + (1 - q) * np.log((1 - q) / (1 - p)))
        first = sorted(range(len(rest)), key=lambda i: -gains[i])[:4]
        values = [naive_auroc(mln, [*found, rest[i]], X, y, rows) for i in first]
        tried += [(rest[i], gains[i], v) for i, v in zip(first, values, strict=True)]
        if max(values) <= best + 0.002:
            break
        best = max(values)
        found.append(rest.pop(first[int(np.argmax(values))]))
    assert search.found_ == found
    assert len(found) > 1
    history = search.search_history_
    assert list(history["candidate"]) == [text for text, _, _ in tried]
    np.testing.assert_allclose(history["gain"], [g for _, g, _ in tried], atol=1e-7)
    np.testing.assert_allclose(history["after"], [v for _, _, v in tried], atol=1e-6)
    assert list(history["candidate"][history["accepted"]]) == found


def test_prune():
    """Without any of what is left the objective is lower, and it never fell."""
    params = {"min_improvement": 0.0, "random_state": 3}
    full = planted_search(prune=False, **params).fit(X, y)
    search = planted_search(**params).fit(X, y)
    assert set(search.found_) < set(full.found_)
    order = [text for text in full.found_ if text in search.found_]
    assert search.found_ == order
    assert search.validation_auroc_ >= full.validation_auroc_
    rows = rows_of(y, 3)
    for text in search.found_:
        rest = [other for other in search.found_ if other != text]
        value = naive_auroc(planted_detector(), rest, X, y, rows)
        assert value < search.validation_auroc_
    history = search.search_history_
    assert list(history["candidate"][history["accepted"]]) == full.found_
    assert list(history["candidate"][history["kept"]]) == search.found_
