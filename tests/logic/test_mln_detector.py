"""The detector: scores against loops, calibration, weights, supervision."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import joblib
import numpy as np
import pytest
from sklearn.ensemble import IsolationForest
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.svm import LinearSVC

from skood.detectors import MSP, SSD
from skood.exceptions import SkoodWarning
from skood.logic import C, ConceptFusion, MLNDetector, WeightedConstraints
from skood.logic._mln_detector import check_product
from skood.metrics import auroc
from tests._thresholds import middle_of_gap
from tests.logic._signs import NAMES, RULES, Column, columns, holds, linear, mln, signs

pytestmark = pytest.mark.filterwarnings("ignore:normalizer='genextreme'")

GAUSSIAN = SSD()
X, y = signs(200, 50)


# ----------------------------------------------------------------------------- scores


def test_penalty_and_scores_against_a_loop():
    X, y = signs(300, 60)
    model = mln().fit(X, y)
    Z = model.predict_concepts(X)
    np.testing.assert_array_equal(Z[:300], y[:300])
    expected = [
        -sum(w * holds(rule, z) for w, rule in zip(model.weights_, RULES, strict=True))
        for z in Z
    ]
    np.testing.assert_allclose(model.penalty(X), expected, rtol=1e-12)
    np.testing.assert_allclose(model.score_samples(X), -np.array(expected), rtol=1e-12)
    assert model.score(X, y) == auroc(
        np.where(y[:, 0] == -1, -1, 1), -np.array(expected)
    )
    assert model.score(X, y) == 1.0
    assert np.all(model.weights_ > 0)


@pytest.mark.parametrize("fusion", ["log", "product", "shifted_product"])
@pytest.mark.parametrize("normalizer", ["empirical", "norm", "genextreme"])
def test_fused_scores(fusion, normalizer):
    X, y = signs(400, 80)
    model = mln(RULES, GAUSSIAN, fusion=fusion, gamma=0.5, normalizer=normalizer).fit(
        X, y
    )
    penalty = model.penalty(X)
    o = -model.detector_.score_samples(X)
    p = model.normalizer_.sf(o)
    expected = {
        "log": 0.5 * penalty - np.log(p),
        "product": penalty * p,
        # no sign breaks both rules: the larger penalty leaves out the larger weight
        "shifted_product": (penalty + min(model.weights_)) * p,
    }[fusion]
    np.testing.assert_allclose(-model.score_samples(X), expected, rtol=1e-9, atol=1e-12)
    if fusion == "log":
        alone = mln([], GAUSSIAN, normalizer=normalizer).fit(X, y)
        assert model.score(X, y) > alone.score(X, y) + 0.1


def test_a_detector_alone():
    X, y = signs(300, 60)
    model = mln([], GAUSSIAN, normalizer="norm").fit(X, y)
    o = -model.detector_.score_samples(X)
    np.testing.assert_allclose(
        -model.score_samples(X), -model.normalizer_.log_sf(o), rtol=1e-12
    )
    assert model.constraints_ == []
    assert model.weights_.shape == (0,)
    np.testing.assert_array_equal(model.penalty(X), 0.0)


def test_confidence_is_the_mean_of_the_largest_probabilities():
    X, y = signs(300, 60, noise=0.3)
    model = mln([], "confidence", normalizer="none").fit(X, y)
    expected = np.mean(
        [
            c[1].fit(X, labels).predict_proba(X).max(axis=1)
            for c, labels in zip(columns(), y[:300].T, strict=True)
        ],
        axis=0,
    )
    np.testing.assert_allclose(model.score_samples(X), expected, rtol=1e-12)
    assert model.detector_ == "confidence"


def test_frozen_detector_is_not_copied():
    """On ID rows that are not held out, and the labels of the first concept."""
    model = mln(RULES, MSP(LogisticRegression())).fit(X, y)
    assert model.detector_.classes_.tolist() == ["other", "stop_sign", "yield"]
    assert model.detector_.estimator_.n_features_in_ == 3
    frozen = FrozenEstimator(GAUSSIAN.fit(X[:100]))
    used = mln(RULES, frozen).fit(X, y).detector_
    assert used is frozen
    forest = IsolationForest(random_state=0)  # of scikit-learn
    assert mln(RULES, forest).fit(X, y).score(X, y) > 0.9


def test_marginalize_against_a_loop():
    X, y = signs(200, 50, noise=0.35)
    model = mln(marginalize=True).fit(X, y)
    p_class, p_color, p_shape = model.concept_proba(X)
    domains = model.knowledge_base_.domains
    truth = np.zeros((len(X), 2))
    for i, class_ in enumerate(domains["class"]):
        for j, color in enumerate(domains["color"]):
            for k, shape in enumerate(domains["shape"]):
                p = p_class[:, i] * p_color[:, j] * p_shape[:, k]
                for m, rule in enumerate(RULES):
                    truth[:, m] += p * holds(rule, (class_, color, shape))
    np.testing.assert_allclose(model.penalty(X), -truth @ model.weights_, rtol=1e-9)
    hard = mln().fit(X, y)
    np.testing.assert_array_equal(hard.weights_, model.weights_)
    assert len(np.unique(model.penalty(X))) > len(np.unique(hard.penalty(X)))


def test_marginalize_needs_probabilities():
    X, y = signs(60)
    readers = [*columns()[:2], ("shape", LinearSVC())]
    MLNDetector(RULES, readers).fit(X, y)
    for params in ({"marginalize": True}, {"detector": "confidence"}):
        with pytest.raises(TypeError, match=r"'shape' are needed .* no predict_proba"):
            MLNDetector(RULES, readers, **params).fit(X, y)
    with pytest.raises(TypeError, match="no predict_proba"):
        MLNDetector(RULES, readers).fit(X, y).concept_proba(X)


def test_classifier_of_several_concepts():
    X, y = signs(300, 40)
    several = MultiOutputClassifier(LogisticRegression())
    model = MLNDetector(
        RULES,
        [("class", Column()), (("color", "shape"), several)],
        marginalize=True,
        random_state=0,
    ).fit(X, y)
    assert model.concepts_ == NAMES
    assert list(model.named_concepts_) == ["class", "color_shape"]
    np.testing.assert_array_equal(
        model.predict_concepts(X)[:, 1:], model.named_concepts_.color_shape.predict(X)
    )
    assert model.score(X, y) > 0.95


@pytest.mark.parametrize("fusion", ["log", "shifted_product"])
def test_negated_constraints_give_the_same_order(fusion):
    """... with weights of the opposite sign; the product then is refused."""
    X, y = signs(400, 60, noise=0.45)
    params = {"detector": GAUSSIAN, "fusion": fusion, "normalizer": "norm"}
    weights = [3.0, 1.5]
    model = mln(RULES, weights=weights, **params).fit(X, y)
    negated = [f"not ({rule})" for rule in RULES]
    other = mln(negated, weights=[-3.0, -1.5], **params).fit(X, y)
    moved = model.score_samples(X) - other.score_samples(X)
    np.testing.assert_allclose(moved, moved[0], atol=1e-9)
    np.testing.assert_array_equal(model.predict(X), other.predict(X))
    soft, hard = model.explain(X[-3:]), other.explain(X[-3:])
    for a, b in zip(soft, hard, strict=True):
        np.testing.assert_allclose(
            list(a.contributions.values()), list(b.contributions.values())
        )
    with pytest.raises(ValueError, match=r"can be 3, .*'shifted_product'"):
        mln(negated, weights=[-3.0, -1.5], fusion="product").fit(X, y)


def test_relabeled_constraints_rank_alike_by_shifted_product():
    """With fitted weights, and rows of the largest penalty, which are tied."""
    X, y = signs(600, 200, noise=0.6, seed=3)
    rules = [
        *RULES,
        "color = red",
        "shape = octagon <-> class = stop_sign",
        "color = red xor shape = octagon",
    ]
    negated = [f"not ({rule})" for rule in rules]
    params = {"detector": GAUSSIAN, "fusion": "shifted_product", "normalizer": "norm"}
    model, other = mln(rules, **params).fit(X, y), mln(negated, **params).fit(X, y)
    np.testing.assert_allclose(other.weights_, -model.weights_, rtol=1e-6)
    worst = model.score_samples(X) == 0.0
    assert worst.sum() > 5
    np.testing.assert_array_equal(other.score_samples(X) == 0.0, worst)
    assert model.score(X, y) == other.score(X, y)


# ------------------------------------------------------------------------ calibration


def test_calibration_samples_are_held_out():
    """Weights, survival and threshold come from rows that nothing is fitted on."""
    model = mln(RULES, GAUSSIAN, calibration=0.25, contamination=0.1).fit(X, y)
    assert model.n_calibration_ == 50
    held_out = np.random.RandomState(0).permutation(200)[:50]
    train = np.setdiff1d(np.arange(200), held_out)
    np.testing.assert_array_equal(
        model.detector_.score_samples(X), GAUSSIAN.fit(X[train]).score_samples(X)
    )
    kb = model.knowledge_base_
    Z = kb.encode(model.predict_concepts(X[held_out]))
    np.testing.assert_allclose(model.weights_, kb.fit_weights(Z), rtol=1e-9)
    scores = model.score_samples(X[held_out])
    assert model.offset_ == pytest.approx(middle_of_gap(scores, 0.1), abs=1e-12)


def test_frozen_estimators_may_be_calibrated_on_all_samples():
    fitted = [
        (name, FrozenEstimator(concept.fit(X, labels)))
        for (name, concept), labels in zip(columns(), y[:200].T, strict=True)
    ]
    detector = FrozenEstimator(GAUSSIAN.fit(X[:100]))
    model = MLNDetector(RULES, fitted, detector, calibration="same").fit(X, y)
    assert model.n_calibration_ == 200
    assert model.named_concepts_.color is fitted[1][1]
    # labels are not needed then
    assert MLNDetector(RULES, fitted, detector, calibration="same").fit(
        X[:200]
    ).offset_ == pytest.approx(model.offset_)
    assert model.classes_.tolist() == ["other", "stop_sign", "yield"]
    unlabeled = MLNDetector(RULES, fitted, GAUSSIAN).fit(X[:200])
    assert unlabeled.classes_.tolist() == model.classes_.tolist()
    for concepts, unfitted, name in (
        (columns(), detector, "class"),
        (fitted, GAUSSIAN, "detector"),
    ):
        with pytest.raises(ValueError, match=f"needs frozen members, but '{name}'"):
            MLNDetector(RULES, concepts, unfitted, calibration="same").fit(X, y)


def test_labels_are_required():
    X, _ = signs(50)
    with pytest.raises(ValueError, match=r"requires y to be passed.*'class'"):
        mln().fit(X)


def test_ood_samples_change_nothing():
    for detector in (None, GAUSSIAN):
        with_ood = mln(RULES, detector).fit(X, y)
        without = mln(RULES, detector).fit(X[:200], y[:200])
        np.testing.assert_array_equal(
            with_ood.score_samples(X), without.score_samples(X)
        )
        assert with_ood.offset_ == without.offset_
    one_entry = y.copy()
    one_entry[200:] = ["stop_sign", "blue", -1]
    again = mln().fit(X, one_entry)
    np.testing.assert_array_equal(again.weights_, mln().fit(X, y).weights_)


def test_same_seed_same_numbers():
    X, y = signs(200, noise=0.45)
    scores = [mln(RULES, GAUSSIAN, random_state=s).fit(X, y).offset_ for s in (0, 0, 1)]
    assert scores[0] == scores[1] != scores[2]
    with joblib.parallel_config(backend="threading"):
        two = mln(RULES, GAUSSIAN, n_jobs=2).fit(X, y)
    assert two.offset_ == scores[0]


# ---------------------------------------------------------------------------- weights


def test_weights_of_the_user():
    X, y = signs(200)
    fitted = mln().fit(X, y).weights_
    given = [
        ([4.0, np.nan], [4.0, None]),
        ({RULES[0]: 4.0}, [4.0, None]),
        ({"class=yield -> (shape=triangle)": 2.0}, [None, 2.0]),
        ({C("class").eq("yield") >> C("shape").eq("triangle"): 2.0}, [None, 2.0]),
        ([1.0, -1.0], [1.0, -1.0]),
    ]
    for weights, expected in given:
        actual = mln(weights=weights).fit(X, y).weights_
        for weight, value, free in zip(actual, expected, fitted, strict=True):
            if value is not None:
                assert weight == value
            else:
                assert weight != free  # the other one is refitted next to it
                assert weight == pytest.approx(free, rel=0.5)
    named = {"stop": RULES[0], "yield": RULES[1]}
    assert mln(named, weights={"yield": 7.0}).fit(X, y).weights_[1] == 7.0


@pytest.mark.parametrize(
    "weights, text",
    [
        ([1.0], r"one number for each of the 2 constraints.*shape \(1,\)"),
        ([[1.0, 2.0]], r"shape \(1, 2\)"),
        ([1.0, np.inf], "must be finite, got infinity"),
        ({"class": 1.0}, "names 'class', which is no constraint"),
        ({"class = stop_sign": 1.0}, "which is no constraint"),
        ({C("zzz").eq(1): 1.0}, "which is no constraint"),
        ({3: 1.0}, "names 3, which is no constraint"),
        ({RULES[1]: 1.0, f"({RULES[1]})": 2.0}, "'class = yield -> .*' twice, by its"),
        ({RULES[1]: "much"}, "must be numbers, NaN or None.*'much'"),
        ([1.0, "much"], "must be numbers, NaN or None.*'much'"),
        ([1.0, [2.0]], "must be numbers, NaN or None"),
    ],
)
def test_bad_weights(weights, text):
    X, y = signs(50)
    with pytest.raises(ValueError, match=text):
        mln(weights=weights).fit(X, y)


def test_set_weights():
    X, y = signs(300, 50, noise=0.45)
    model = mln(RULES, GAUSSIAN, contamination=0.1).fit(X, y)
    before = model.weights_.copy()
    assert model.set_weights({RULES[1]: 0.5}) is model
    np.testing.assert_array_equal(model.weights_, [before[0], 0.5])
    fresh = mln(RULES, GAUSSIAN, contamination=0.1, weights=model.weights_).fit(X, y)
    assert model.offset_ == pytest.approx(fresh.offset_, rel=1e-12)
    np.testing.assert_allclose(
        model.score_samples(X), fresh.score_samples(X), rtol=1e-12
    )
    model.set_weights([np.nan, 2.0])
    np.testing.assert_array_equal(model.weights_, [before[0], 2.0])
    with pytest.raises(ValueError, match="no constraint"):
        model.set_weights({"zzz": 1.0})
    with pytest.raises(NotFittedError):
        mln().set_weights([1.0, 1.0])


def test_set_weights_that_the_product_refuses_change_nothing():
    X, y = signs(100)
    model = mln(fusion="product").fit(X, y)
    weights, offset = model.weights_.copy(), model.offset_
    with pytest.raises(ValueError, match="inverts its order"):
        model.set_weights([-1.0, -1.0])
    np.testing.assert_array_equal(model.weights_, weights)
    assert model.offset_ == offset


def test_prior():
    X, y = signs(200)
    weak, strong = (mln(prior=a).fit(X, y).weights_ for a in (0.5, 50.0))
    assert np.all(weak > strong)
    with pytest.warns(SkoodWarning):  # no calibration row breaks a rule
        assert np.isfinite(mln(prior=0).fit(X, y).weights_).all()


# -------------------------------------------------------------------------- supervised


def test_supervised():
    X, y = signs(400, 100, noise=0.2)
    X = np.column_stack([X, np.where(y[:, 0] == -1, 2.0, 0.0)])
    # OOD signs that no rule tells, but the last column does
    obeying, _ = signs(50, seed=3)
    hidden = np.column_stack([obeying, np.full(50, 2.0)])
    model = mln(id_estimator=LogisticRegression()).fit(X, y)
    assert model.constraints_ == [*mln().fit(X, y).constraints_, "is_id"]
    assert model.id_estimator_.classes_.tolist() == [False, True]
    assert model.concepts_ == NAMES
    assert model.predict_concepts(X).shape == (500, 3)
    assert len(model.concept_proba(X)) == 3
    plain = mln().fit(X, y)
    assert np.mean(model.predict(hidden) == -1) > 0.95
    assert np.mean(plain.predict(hidden) == -1) < 0.1
    np.testing.assert_array_equal(
        model.penalty(hidden)[:3], -np.sum(model.weights_[:2]) * np.ones(3)
    )


def test_weight_of_the_classifier_of_id_samples():
    """n = 1000, 97 % of held-out ID rows are taken for ID: its logit, smoothed."""
    X = np.zeros((1020, 1))
    X[:970] = 1.0
    y = np.append(np.resize(["a", "b"], 1000).astype(object), [-1] * 20)
    is_id = FrozenEstimator(Column().fit(None, [False, True]))
    reader = FrozenEstimator(Column().fit(None, ["a", "b"]))
    model = MLNDetector(
        [],
        [("class", reader)],
        "confidence",
        id_estimator=is_id,
        calibration="same",
        fusion=ConceptFusion(normalizer="empirical"),
    ).fit(X, y)
    np.testing.assert_allclose(model.weights_, [3.4600847189956982], atol=1e-8)


def test_supervised_by_a_clone_of_the_first_classifier():
    X, y = signs(200, 80)
    model = MLNDetector(
        WeightedConstraints({"stop": RULES[0]}, weights=[2.0]),
        linear(),
        "confidence",
        id_estimator="clone",
        marginalize=True,
        random_state=0,
    ).fit(X, y)
    assert type(model.id_estimator_) is LogisticRegression
    assert model.knowledge_base_.names == ["stop", "is_id"]
    assert model.weights_[0] == 2.0
    # the confidence is that of the concepts alone
    proba = np.mean([p.max(axis=1) for p in model.concept_proba(X)], axis=0)
    np.testing.assert_allclose(-model._read(X).outlier, proba, rtol=1e-12)


def test_constraints_may_name_the_concept():
    X, y = signs(200, 80)
    model = mln(["is_id -> class = stop_sign"], id_estimator=Column()).fit(X, y)
    assert model.constraints_ == ["is_id -> class = stop_sign", "is_id"]


@pytest.mark.parametrize(
    "params, concepts, text",
    [
        ({}, [("is_id", Column())], "adds the concept 'is_id', and one of concepts"),
        (
            {"constraints": {"is_id": "class = stop_sign"}},
            None,
            "adds the constraint 'is_id', and one of constraints",
        ),
        ({"constraints": ["is_id"]}, None, "Rename it, or leave it out"),
        ({"constraints": [C("is_id")]}, None, "adds the constraint 'is_id'"),
        ({}, "frozen", "of the first concept, 'class', is frozen. Give a"),
        ({}, "several", "'class_color', has several outputs. Give a"),
        ({"y": "id"}, None, "no sample of y has ood_label=-1. Add some"),
        (
            {"id_estimator": FrozenEstimator(Column().fit(None, [-1, 1]))},
            None,
            r"got the frozen classes \[.*-1.*1.*\]",
        ),
        ({"calibration": "same"}, "all frozen", "but 'id_estimator' would be"),
    ],
)
def test_supervised_errors(params, concepts, text):
    X, y = signs(60, 20)
    y = y[:, :1] if concepts and concepts[0][0] == "is_id" else y
    frozen = [
        (name, FrozenEstimator(concept.fit(X, labels)))
        for (name, concept), labels in zip(columns(), signs(60)[1].T, strict=True)
    ]
    several = (("class", "color"), MultiOutputClassifier(LogisticRegression()))
    concepts = (
        {
            "frozen": [frozen[0], *columns()[1:]],
            "all frozen": frozen,
            "several": [several, columns()[2]],
        }.get(concepts, concepts)
        if isinstance(concepts, str)
        else concepts
    )
    params = {"constraints": [], "id_estimator": "clone", **params}
    if params.pop("y", None):
        X, y = X[:60], y[:60]
    model = MLNDetector(concepts=concepts or columns(), detector="confidence", **params)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a column vector y
        with pytest.raises(ValueError, match=text):
            model.fit(X, y)


# ------------------------------------------------------------- the largest penalty


def test_logarithms_do_without_the_largest_penalty():
    """Thirty concepts in one rule: exact sums cannot be had, scores can."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=(200, 30))
    names = [f"c{j}" for j in range(30)]
    rules = {"odd": " xor ".join(names), "first": "c0 -> c1"}
    readers = [
        (name, FrozenEstimator(Column(j).fit(y, y[:, j])))
        for j, name in enumerate(names)
    ]
    rules = WeightedConstraints(rules, weights=[1.0, 2.0])
    model = MLNDetector(rules, readers, calibration="same").fit(y, y)
    odd, first = y.sum(axis=1) % 2, (y[:, 0] == 0) | (y[:, 1] == 1)
    np.testing.assert_allclose(model.penalty(y), -1.0 * odd - 2.0 * first)
    with pytest.raises(ValueError, match="log Z and what follows from it"):
        model.set_params(fusion="shifted_product").fit(y, y)


def test_another_fusion_after_the_fit():
    X, y = signs(300, 60)
    model = mln(weights=[-1.0, 2.0], detector=GAUSSIAN).fit(X, y)
    expected = mln(
        weights=[-1.0, 2.0], detector=GAUSSIAN, fusion="shifted_product"
    ).fit(X, y)
    changed = model.set_params(fusion="shifted_product").score_samples(X)
    np.testing.assert_array_equal(changed, expected.score_samples(X))


D = np.array([-3.0, -3.0, 0.0, 1.5])
P = np.array([0.9, 0.001, 0.5, 0.5])


def test_log():
    for gamma in (1.0, 2.0):
        fused = ConceptFusion(gamma=gamma).fuse(D, np.log(P))
        np.testing.assert_allclose(fused, gamma * D - np.log(P), rtol=1e-12)


def test_log_has_the_order_of_the_exponential_form():
    rng = np.random.default_rng(0)
    penalty, p = rng.normal(size=500, scale=3), rng.random(500)
    exponential = -np.exp(-penalty) * p
    np.testing.assert_array_equal(
        np.argsort(ConceptFusion().fuse(penalty, np.log(p))), np.argsort(exponential)
    )


def test_product():
    found = ConceptFusion("product").fuse(D[:3], np.log(P[:3]))
    np.testing.assert_allclose(found, [-2.7, -0.003, 0.0], rtol=1e-12)
    text = r"inverts its order .* can be 1\.5.*fusion='log'.*'shifted_product'"
    with pytest.raises(ValueError, match=text):
        ConceptFusion("product").fuse(D, np.log(P))
    with pytest.raises(ValueError, match=text):
        ConceptFusion("product").fuse(D[:1], np.log(P[:1]), max_penalty=1.5)
    check_product(0.0)
    check_product(1e-12)  # rounding


def test_shifted_product():
    found = ConceptFusion("shifted_product").fuse(D, np.log(P), max_penalty=1.5)
    np.testing.assert_allclose(found, (D - 1.5) * P, rtol=1e-12)


@pytest.mark.parametrize("fusion", ["log", "product", "shifted_product"])
def test_outliers_are_more_outlying(fusion):
    """Each grows with the penalty, and with a falling survival."""
    penalty, log_p = np.meshgrid(np.linspace(-4, -1, 9), np.linspace(-20, 0, 7))
    found = ConceptFusion(fusion).fuse(penalty, log_p)
    assert np.all(np.diff(found, axis=1) > 0)
    assert np.all(np.diff(found, axis=0) < 0)


def test_logarithms_that_are_too_large():
    found = ConceptFusion("product").fuse(np.array([-1.0, 0.0]), np.array([1e4, 1e4]))
    assert np.isfinite(found).all()
    assert found[0] < found[1] == 0


@pytest.mark.parametrize("fusion", ["product", "shifted_product"])
def test_the_largest_penalty_is_tied_whatever_its_rounding(fusion):
    """Summed up in another way it is off by a rounding error, which p must not order.

    Products of 0 are equal for all p; those of -4e-16 are not.
    """
    weights = np.array([0.1, 0.7, 1.3])
    log_p = np.log([0.9, 0.1, 0.5])
    for largest in (0.0, 123.4) if fusion == "shifted_product" else (0.0,):
        rounded = largest - np.abs(np.spacing(largest + weights.sum()))
        found = ConceptFusion(fusion).fuse(
            np.array([rounded, largest, largest - 0.1]), log_p, largest
        )
        assert found[0] == found[1] == 0.0
        assert found[2] == pytest.approx(-0.05)
