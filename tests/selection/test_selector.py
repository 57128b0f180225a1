"""NoveltySelector: batches and single samples, detectors of any kind, options."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.ensemble import IsolationForest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, StratifiedShuffleSplit
from sklearn.neighbors import KernelDensity, LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.combine import DSDE, DetectorEnsemble, Fisher, conformal_pvalues
from skood.detectors import KNN, SSD, Energy
from skood.exceptions import SkoodWarning
from skood.selection import (
    BestOf,
    ClassifierFusion,
    ConditionalStepUp,
    NoveltySelector,
    StepUp,
    evalue_selection,
    fdp_power,
    select_novelties,
)
from tests.combine._members import Column, frozen_columns

TWO = [("knn", KNN(n_neighbors=3, normalize=False)), ("density", KernelDensity())]


@pytest.fixture
def data(rng):
    """400 ID samples, a batch of 100 with 25 OOD samples, and which they are."""
    X, batch = rng.normal(size=(400, 3)), rng.normal(size=(100, 3))
    batch[:25] -= 4.5
    return X, batch, np.arange(100) < 25


def _column(j=0):
    return FrozenEstimator(Column(j).fit(np.zeros((2, 3))))


def test_select_is_the_procedure_on_the_pvalues_of_held_out_samples(data):
    X, batch, _ = data
    for procedure in (None, StepUp("storey"), ConditionalStepUp(0.2)):
        selector = NoveltySelector(
            _column(), procedure=procedure, calibration="same", delta=0.1
        ).fit(X)
        p = conformal_pvalues(batch[:, 0], X[:, 0])
        expected = select_novelties(p, 400, 0.1, procedure, delta=0.1)
        actual = selector.select(batch)
        assert_allclose(actual.pvalues, p, rtol=1e-12)
        assert_array_equal(actual.selected, expected.selected)
        assert actual.fdp_bound == expected.fdp_bound
        assert actual.pi0 == expected.pi0
        if procedure is None:
            assert_allclose(actual.qvalues, expected.qvalues, rtol=1e-12)
        assert set(actual.detector) == {"detector"}
        assert_array_equal(selector.pvalues(batch)[:, 0], p)


def test_several_detectors_are_the_choice_on_their_scores(data):
    X, batch, _ = data
    members = frozen_columns(3)
    for choice in (None, BestOf(combiners=()), ClassifierFusion()):
        selector = NoveltySelector(
            members, choice=choice, calibration="same", random_state=0
        ).fit(X)
        actual = selector.select(batch, alpha=0.2)
        order = np.random.RandomState(0).permutation(400)
        direct = (choice or BestOf()).select(
            batch, X[order], 0.2, random_state=selector._seed
        )
        assert_array_equal(actual.selected, direct.selected)
        assert 0 < actual.n_selected < 100
        if not isinstance(choice, ClassifierFusion):
            assert set(actual.detector) <= {"Fisher", *dict(members)}


@pytest.mark.parametrize(
    "detectors",
    [
        KNN(n_neighbors=3, normalize=False),
        IsolationForest(n_estimators=20, random_state=0),
        LocalOutlierFactor(novelty=True),
        make_pipeline(StandardScaler(), KernelDensity()),
        TWO,
    ],
    ids=lambda detector: type(detector).__name__,
)
def test_detectors_of_any_kind(detectors, data):
    X, batch, is_ood = data
    selector = NoveltySelector(detectors, alpha=0.2, random_state=0)
    actual = selector.fit(X).select(batch)
    fdp, power = fdp_power(actual.selected, is_ood)
    assert power > 0.7
    assert fdp < 0.45
    assert selector.score(batch, np.where(is_ood, -1, 0)) > 0.95


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
def test_ensembles(rng):
    """As a detector, or by its levels, which are conformal p-values themselves."""
    X, batch = rng.normal(size=(1600, 3)), rng.normal(size=(100, 3))
    batch[:25] -= 4.5
    is_ood = np.arange(100) < 25
    members = [
        *TWO,
        ("a", LocalOutlierFactor(novelty=True)),
        ("b", KernelDensity(bandwidth=0.5)),
    ]
    dsde = DSDE(members, calibration=0.5, random_state=0)
    actual = NoveltySelector(dsde, alpha=0.2, random_state=0).fit(X).select(batch)
    assert fdp_power(actual.selected, is_ood).power > 0.7
    ensemble = DetectorEnsemble(TWO, calibration=0.5, random_state=0).fit(X)
    assert ensemble.level_ == "conformal"
    actual = select_novelties(ensemble.levels(batch), ensemble.n_level_, 0.2)
    fdp, power = fdp_power(actual.selected, is_ood)
    assert power > 0.7 and fdp < 0.4


def test_a_classifier_is_fitted_once_for_all(data):
    X, batch, _ = data
    y = (X[:, 0] > 0).astype(int)
    selector = NoveltySelector(
        [("energy", Energy()), ("knn", KNN())],
        estimator=LogisticRegression(),
        random_state=0,
    ).fit(X, np.where(y, "right", "left"))
    assert selector.estimator_.classes_.tolist() == ["left", "right"]
    assert selector.select(batch).n_selected >= 0
    assert selector.n_calibration_ == 200 and selector.guarantee_ == "fdr"


def test_rate_of_selections(rng):
    """Over calibration sets and batches, at the nominal level of an exact case."""
    rates = []
    for _ in range(150):
        X, batch = rng.normal(size=(298, 1)), rng.normal(size=(20, 1))
        batch[:5] -= 3
        selector = NoveltySelector(_column(), calibration="same", alpha=0.2)
        actual = selector.fit(X[:199]).select(batch)
        rates.append(fdp_power(actual.selected, np.arange(20) < 5).fdp)
    assert abs(np.mean(rates) - 0.15) < 3 * np.std(rates) / np.sqrt(150)


def test_rate_in_windows_of_a_stream(rng):
    """ID samples only, ties broken at random: each window fails at alpha, any more."""
    alpha, n_runs, is_selected = 0.2, 150, []
    for seed in range(n_runs):
        selector = NoveltySelector(
            _column(), alpha=alpha, calibration="same", random_state=seed
        ).fit(rng.integers(40, size=(200, 1)))
        windows = rng.integers(40, size=(5, 20, 1))
        batches = [selector.select(window, ties="random") for window in windows]
        is_selected.append([batch.n_selected > 0 for batch in batches])
    limit = alpha + 3 * np.sqrt(alpha * (1 - alpha) / n_runs)
    assert (np.mean(is_selected, axis=0) <= limit).all()
    # the mean over windows has at most the variance of one window
    assert alpha / 2 < np.mean(is_selected) <= limit
    assert np.any(is_selected, axis=1).mean() > limit  # the union has no such bound


def test_order_of_the_batch_does_not_matter_and_nothing_changes(data, rng):
    X, batch, _ = data
    order = rng.permutation(100)
    for selector in (
        NoveltySelector(TWO, random_state=0),
        NoveltySelector(TWO, choice=ClassifierFusion(), random_state=0),
        NoveltySelector(KNN(), n_splits=3, random_state=0, alpha=0.3),
    ):
        selector.fit(X)
        actual = selector.select(batch)
        before = {name: id(value) for name, value in vars(selector).items()}
        again = selector.select(batch[order])
        assert_array_equal(again.selected, actual.selected[order])
        assert_allclose(again.pvalues, actual.pvalues[order], rtol=1e-12)
        assert {name: id(value) for name, value in vars(selector).items()} == before
        loaded = pickle.loads(pickle.dumps(selector)).select(batch)
        assert_array_equal(loaded.selected, actual.selected)


def test_single_sample_and_empty_batch(data):
    X, batch, _ = data
    selector = NoveltySelector(KNN(n_neighbors=3, normalize=False), random_state=0).fit(
        X
    )
    for row in batch[20:30]:
        actual = selector.select(row[None])
        assert actual.selected[0] == (actual.pvalues[0] <= 0.1)
        assert selector.predict(row[None])[0] == actual.labels[0]
    for fitted in (selector, NoveltySelector(TWO, random_state=0).fit(X)):
        empty = fitted.select(batch[:0])
        assert empty.selected.shape == (0,) and empty.threshold == 0.0


def test_predict_accepts_the_promised_share(rng):
    """Each sample alone, also by several detectors and splits."""
    X, new = rng.normal(size=(600, 3)), rng.normal(size=(3000, 3))
    for selector in (
        NoveltySelector(KernelDensity(), alpha=0.2, random_state=0),
        NoveltySelector(TWO, alpha=0.2, random_state=0),
        NoveltySelector(KernelDensity(), n_splits=4, alpha=0.2, random_state=0),
    ):
        accepted = (selector.fit(X).predict(new) == 1).mean()
        assert accepted > 0.8 - 3 * np.sqrt(0.2 * 0.8 / 300)
    # equal p-values are ranked by scores
    scores = selector.score_samples(new)
    assert len(np.unique(scores)) == len(new)


def test_splits_by_evalues(data):
    X, batch, is_ood = data
    selector = NoveltySelector(
        KernelDensity(), n_splits=5, alpha=0.2, random_state=0
    ).fit(X)
    actual = selector.select(batch)
    P = selector._ranks.pvalues(selector._member_scores(batch))[:, :, 0]
    expected = evalue_selection(P, selector.n_calibration_, 0.2)
    assert_array_equal(actual.selected, expected)
    assert fdp_power(actual.selected, is_ood).power > 0.7
    several = NoveltySelector(TWO, n_splits=3, alpha=0.3, random_state=0).fit(X)
    actual = several.select(batch)
    assert actual.qvalues is None and actual.n_selected < 60
    assert fdp_power(actual.selected, is_ood).power > 0.5


def test_cross_conformal_has_no_guarantee(data):
    """Each sample is compared with the held-out samples of a fold by its detector."""
    X, batch, is_ood = data
    for calibration in (4, KFold(4)):
        selector = NoveltySelector(
            KernelDensity(), calibration=calibration, random_state=0
        )
        selector.fit(X)
        assert selector.guarantee_ == "none" and selector.n_calibration_ == 400
        actual = selector.select(batch)
        assert fdp_power(actual.selected, is_ood).power > 0.7
        assert selector.predict(batch[:1])[0] == (1 if actual.pvalues[0] > 0.1 else -1)
    counts = np.zeros(100)
    for train, held_out in KFold(4).split(X):
        density = KernelDensity().fit(X[train])
        held_out = density.score_samples(X[held_out])
        counts += (held_out <= density.score_samples(batch)[:, None]).sum(axis=1)
    assert_array_equal(actual.pvalues, (1 + counts) / 401)
    assert_array_equal(actual.selected, StepUp().selected(actual.pvalues, 400, 0.1))
    stratified = StratifiedShuffleSplit(1, random_state=0)  # not exchangeable
    selector = NoveltySelector(KernelDensity(), calibration=stratified)
    assert selector.fit(X, np.arange(400) % 2).guarantee_ == "none"


@pytest.mark.parametrize("y", [None, np.arange(400) % 3, np.arange(400) // 134])
def test_held_out_samples_do_not_depend_on_classes(data, y):
    """Class counts that mirrored the counts in training would not be exchangeable."""
    X, batch, _ = data
    selector = NoveltySelector(KernelDensity(), random_state=0).fit(X, y)
    order = np.random.RandomState(0).permutation(400)
    density = KernelDensity().fit(X[np.sort(order[200:])])
    p = conformal_pvalues(
        density.score_samples(batch), density.score_samples(X[order[:200]])
    )
    assert_array_equal(selector.select(batch).pvalues, p)


def test_infinite_scores(data):
    """Equal ones share a p-value, in a batch and alone."""
    X, batch, is_ood = data
    tophat = KernelDensity(kernel="tophat", bandwidth=0.8)
    assert np.isneginf(tophat.fit(X).score_samples(batch)[is_ood]).any()
    for detectors in (tophat, [("tophat", tophat), ("knn", TWO[0][1])]):
        selector = NoveltySelector(detectors, alpha=0.3, random_state=0).fit(X)
        assert fdp_power(selector.select(batch).selected, is_ood).power > 0.7
        alone = np.concatenate([selector.score_samples(row[None]) for row in batch])
        assert_allclose(selector.score_samples(batch), alone, rtol=1e-12)


def test_a_classifier_of_samples(data):
    X, batch, is_ood = data
    fusion = ClassifierFusion(classifier=LogisticRegression())
    selector = NoveltySelector(
        KernelDensity(), choice=fusion, random_state=0, alpha=0.2
    ).fit(X)
    actual = selector.select(batch)
    assert actual.n_calibration == 140
    assert fdp_power(actual.selected, is_ood).power > 0.7


def test_known_ood_samples_are_left_out(data):
    X, batch, _ = data
    both, y = np.concatenate([X, batch[:25]]), np.repeat([0, -1], [400, 25])
    with_ood = NoveltySelector(KernelDensity(), random_state=0).fit(both, y)
    without = NoveltySelector(KernelDensity(), random_state=0).fit(
        X, np.zeros(400, int)
    )
    assert_array_equal(with_ood.score_samples(batch), without.score_samples(batch))


def test_weights_are_repetitions_of_held_out_samples(rng):
    X, weight = rng.normal(size=(30, 3)), rng.integers(1, 4, 30)
    selector = NoveltySelector(_column(), calibration="same")
    weighted = selector.fit(X, sample_weight=weight).pvalues(X)
    repeated = clone(selector).fit(np.repeat(X, weight, axis=0)).pvalues(X)
    assert_array_equal(weighted, repeated)


def test_inputs_of_other_kinds(data):
    X, batch, _ = data
    selector = NoveltySelector(TWO, random_state=0).fit(X)
    expected = selector.select(batch).selected
    frame = pd.DataFrame(X, columns=list("abc"))
    named = NoveltySelector(TWO, random_state=0).fit(frame)
    tested = pd.DataFrame(batch, columns=list("abc"), index=np.arange(100) + 7)
    assert_array_equal(named.select(tested).selected, expected)
    with pytest.raises(ValueError, match="feature names should match"):
        named.select(tested[["b", "a", "c"]])
    for dtype in (torch.float64, torch.float32):
        actual = selector.select(torch.tensor(batch, dtype=dtype)).selected
        assert_array_equal(actual, expected)
    frame = named.explain(tested, alpha=0.2)
    assert frame.index[0] == 7
    assert list(frame) == [
        "selected",
        "pvalue",
        "detector",
        "pvalue_knn",
        "pvalue_density",
        "rejects_knn",
        "rejects_density",
    ]
    n_selected = frame["selected"].sum()
    assert n_selected == named.select(tested, alpha=0.2).n_selected > 10
    rejects = frame["selected"] & (frame["pvalue_knn"] <= 0.2 * n_selected / 100)
    assert (frame["rejects_knn"] == rejects).all()


def test_parameters_of_a_frozen_detector(data):
    frozen = FrozenEstimator(KNN().fit(data[0]))
    selector = NoveltySelector(frozen).set_params(alpha=0.2)
    assert selector.get_params()["detectors__estimator"] is frozen.estimator
    assert clone(selector).alpha == 0.2
    selector.set_params(detectors=SSD()).set_params(detectors__contamination=0.2)
    assert selector.detectors.contamination == 0.2


def test_parameters(data):
    selector = NoveltySelector(TWO).set_params(knn__n_neighbors=7, choice__tau=0.5)
    assert selector.get_params()["knn__n_neighbors"] == 7
    assert selector.choice.tau == 0.5
    single = NoveltySelector(KNN()).set_params(
        detectors__n_neighbors=7, procedure__pi0="storey"
    )
    assert single.detectors.n_neighbors == 7 and single.procedure.pi0 == "storey"
    dropped = NoveltySelector([*TWO, ("forest", "drop")], random_state=0).fit(data[0])
    assert list(dropped.named_detectors_) == ["knn", "density"]


@pytest.mark.parametrize(
    "options, n_too_few",
    [
        ({}, 8),  # n + 1 < 1 / alpha
        ({"procedure": StepUp("storey")}, 1),  # all of a batch with few ID samples
        ({"procedure": StepUp("quantile")}, 5),
        ({"procedure": ConditionalStepUp(0.1)}, 43),  # 1 - 0.1^(1/21) > 0.1
        ({"choice": BestOf(combiners=())}, 8),
        ({"choice": BestOf(combiners=(Fisher(),))}, 12),  # 30 % are reference samples
        ({"choice": ClassifierFusion(reference=0.5)}, 16),
    ],
)
def test_a_warning_if_nothing_can_be_selected(options, n_too_few):
    """At exactly the numbers of samples for which not even the extremes are."""
    extreme = np.full((500, 3), -9.0)
    for n in (n_too_few, n_too_few + 1):
        X = np.arange(3 * n).reshape(n, 3)
        selector = NoveltySelector(_column(), calibration="same", **options)
        with warnings.catch_warnings(record=True, action="always") as caught:
            selector.fit(X)
        few = [
            warning
            for warning in caught
            if "No sample can be selected" in str(warning.message)
        ]
        assert len(few) == (n == n_too_few)
        assert (selector.select(extreme).n_selected == 0) == (n == n_too_few)


def test_text_of_the_warning():
    with pytest.warns(
        SkoodWarning,
        match=r"No sample can be selected: with 8 calibration samples, p-values are at "
        r"least 1/9, too large for alpha=0.1. Hold out more samples.",
    ):
        NoveltySelector(_column(), calibration="same").fit(np.eye(8, 3))
    with pytest.warns(SkoodWarning, match="with 12 calibration samples"):
        NoveltySelector(KernelDensity(), n_splits=2, random_state=0).fit(np.eye(24, 3))


@pytest.mark.parametrize(
    "detectors, options, message",
    [
        (TWO, {"procedure": StepUp()}, "there are 2 detectors"),
        (TWO, {"calibration": 3}, "is cross-conformal"),
        (TWO[1][1], {"calibration": 3, "delta": 0.1}, "delta bounds the fraction"),
        (
            TWO,
            {"n_splits": 2, "delta": 0.1},
            "delta bounds the fraction of false discoveries for one random split",
        ),
        (TWO[1][1], {"n_splits": 2, "calibration": 3}, "is cross-con"),
        (
            _column(),
            {"n_splits": 2, "calibration": "same"},
            "'same' has one split, got n_splits=2",
        ),
        (
            TWO[1][1],
            {"n_splits": 2, "procedure": StepUp()},
            "selects by e-values, and uses no procedure",
        ),
        (
            TWO,
            {"n_splits": 2, "choice": ClassifierFusion()},
            "needs e-values, which BestOf has",
        ),
        (TWO, {"choice": BestOf(tau=2)}, "'tau' parameter"),
        (KNN, {}, "must be a detector with fit and score_s"),
        (TWO[1][1], {"calibration": "same"}, "needs frozen members"),
        (TWO[1][1], {"alpha": 0.0}, "'alpha' parameter"),
    ],
)
def test_invalid_options(detectors, options, message, data):
    selector = NoveltySelector(detectors, **options)
    with pytest.raises(TypeError if detectors is KNN else ValueError, match=message):
        selector.fit(data[0])
    assert not hasattr(selector, "offset_")


def test_invalid_levels_and_scores(data):
    X, batch, _ = data
    selector = NoveltySelector(KernelDensity(), random_state=0).fit(X)
    for alpha in (0.0, 1.0, np.nan):
        with pytest.raises(ValueError, match=r"alpha must be in \(0, 1\)"):
            selector.select(batch, alpha=alpha)
    with pytest.raises(ValueError, match="NaN"):
        selector.select(np.full((3, 3), np.nan))
    with pytest.raises(ValueError, match="features"):
        selector.select(batch[:, :2])
