"""Weighted metrics: repeated samples, scale of the weights, scikit-learn, errors."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import (
    average_precision_score,
    brier_score_loss,
    roc_auc_score,
    roc_curve,
)

from skood import metrics
from skood.rejection import BoundedPrecisionRecall, BoundedTPRFPR, CostBased, Solver
from tests._loops import looped


def _of_scores(name, **params):
    """Return a metric of scores; arguments are labels to probabilities."""
    return lambda y, p, s, q, **kw: getattr(metrics, name)(y, s, **params, **kw)


def _of_predictions(name, **params):
    """Return a metric of predictions and scores."""
    return lambda y, p, s, q, **kw: getattr(metrics, name)(y, p, s, **params, **kw)


def _of_probabilities(name, **params):
    """Return a metric of probabilities."""
    return lambda y, p, s, q, **kw: getattr(metrics, name)(y, q, **params, **kw)


def _risk_coverage(y, p, s, q, **kw):
    curve = metrics.RiskCoverageCurve.from_predictions(y, p, s, **kw)
    return np.concatenate([curve.coverage, curve.risk, curve.thresholds])


def _curve(curve):
    """Return the area of a curve, and its values at some bounds."""
    return np.r_[curve.area, curve.at(np.linspace(0.013, 0.987, 9))]


def _two(kind, **params):
    """Return a metric of two scores; the second score is the first probability."""

    def metric(y, p, s, q, **kw):
        options = {"kind": kind, "solver": Solver("grid", n_angles=9), **params, **kw}
        return _curve(
            metrics.TwoScoreCurve.from_predictions(y, p, s, q[:, 0], **options)
        )

    return metric


def _costs(y, p, s, q, **kw):
    """Return the costs of two scores; the second score is the first probability."""
    rules = [CostBased(reject_id=cost) for cost in (0.1, 0.4, 0.7)]
    make = metrics.SCODCurve.from_predictions
    return make(
        y, p, s, q[:, 0], rules=rules, solver=Solver("grid", n_angles=9), **kw
    ).costs


RULE = BoundedPrecisionRecall(precision_min=0.55, recall_min=0.5)
METRICS = {
    name: _of_scores(name)
    for name in ("auroc", "aupr_in", "aupr_out", "max_f1", "detection_error")
}
METRICS |= {name: _of_predictions(name) for name in ("aurc", "e_aurc", "augrc")}
METRICS |= {
    f"{name} {definition}": _of_predictions(name, definition=definition)
    for name in ("oscr", "ccr_at_fpr")
    for definition in ("selective_risk", "dhamija")
}
METRICS |= {
    f"ece {strategy} {norm} {classwise}": _of_probabilities(
        "expected_calibration_error",
        n_bins=7,
        strategy=strategy,
        norm=norm,
        classwise=classwise,
    )
    for strategy in ("uniform", "quantile")
    for norm, classwise in (("l1", False), ("max", False), ("l2", True))
}
METRICS |= {
    "aupr_in trapezoid": _of_scores("aupr_in", interpolation="trapezoid"),
    "fpr_at_tpr": _of_scores("fpr_at_tpr", tpr=0.7),
    "fpr_at_tpr ood": _of_scores("fpr_at_tpr", positive="ood"),
    "tnr_at_tpr": _of_scores("tnr_at_tpr", tpr=0.7),
    "f1_at_tpr": _of_scores("f1_at_tpr", tpr=0.7),
    "f1_at_tpr prior": _of_scores("f1_at_tpr", ood_prior=0.2),
    "ranking_metrics": lambda *samples, **kw: list(
        _of_scores("ranking_metrics")(*samples, **kw).values()
    ),
    "risk_coverage_curve": _risk_coverage,
    "risk_at_coverage": _of_predictions("risk_at_coverage", coverage=0.6),
    "coverage_at_risk": _of_predictions("coverage_at_risk", risk=0.3),
    "brier": _of_probabilities("brier"),
    "selective_risk_at": lambda y, p, s, q, **kw: (
        metrics.selective_risk_at(
            y, p, s, q[:, 0], rule=BoundedTPRFPR(tpr_min=0.6, fpr_max=0.5), **kw
        ).objective
    ),
    "selective_risk_at_precision_recall": lambda *samples, **kw: (
        _of_predictions("selective_risk_at", rule=RULE)(*samples, **kw).rates
    ),
    "least risk": _two("risk_coverage"),
    "roc": _two("roc"),
    "precision_recall": _two("precision_recall"),
    "ccr": _two("ccr", tpr_min=0.3),
    "ccr dhamija": _two("dhamija"),
    "scod": _two("scod", ood_prior=0.2),
    "scod costs": _costs,
}


def _samples(seed, n=80, n_scores=20):
    """Return labels, predictions, scores with ties, probabilities and weights."""
    rng = np.random.default_rng(seed)
    y = rng.choice([0, 1, 2, -1], size=n)
    proba = rng.dirichlet(np.ones(3), size=n).round(1)
    proba[:, 2] = 1 - proba[:, :2].sum(axis=1)
    score = rng.integers(n_scores, size=n) + 2.0 * (y != -1)
    return (y, proba.argmax(axis=1), score, proba), rng.integers(5, size=n)


@pytest.mark.parametrize("name", METRICS)
@looped("n_scores", [3, 20, 10**6])
def test_whole_weights_are_repeated_samples(name, n_scores):
    samples, weight = _samples(0, n_scores=n_scores)
    assert (weight == 0).any()
    expected = METRICS[name](*(np.repeat(a, weight, axis=0) for a in samples))
    actual = METRICS[name](*samples, sample_weight=weight)
    assert_allclose(actual, expected, rtol=0, atol=1e-9)
    as_floats = METRICS[name](*samples, sample_weight=weight.astype(np.float32))
    assert_array_equal(as_floats, actual)


@pytest.mark.parametrize("name", METRICS)
def test_other_weights_have_no_scale(name):
    samples, _ = _samples(1)
    weight = np.random.default_rng(1).exponential(size=80)
    weight[:5] = 0
    actual = METRICS[name](*samples, sample_weight=weight)
    for factor in (1e-200, 0.1, 1e200):
        scaled = METRICS[name](*samples, sample_weight=factor * weight)
        assert_allclose(scaled, actual, rtol=0, atol=1e-12)
    # equal weights are no weights
    expected = METRICS[name](*samples)
    actual = METRICS[name](*samples, sample_weight=np.full(80, 0.3))
    assert_allclose(actual, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", METRICS)
def test_weights_near_whole_ones_are_near_them(name):
    # whole weights are counted, others are summed: no jump between the two
    samples, weight = _samples(2, n_scores=10**6)
    near = weight * (1 + 1e-12 * np.arange(80))
    if name in ("aurc", "e_aurc"):  # their steps are samples, of a mean weight of 1
        near, weight = near / 1.5, weight / 1.5
    actual = METRICS[name](*samples, sample_weight=weight)
    assert_allclose(
        METRICS[name](*samples, sample_weight=near), actual, rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("name", ["aurc", "e_aurc", "augrc", "brier"])
def test_weights_of_ood_samples_do_not_matter_to_metrics_of_id_samples(name):
    samples, weight = _samples(7)
    expected = METRICS[name](*samples, sample_weight=weight)
    other = np.where(samples[0] == -1, np.linspace(0, 99, 80), weight)
    assert METRICS[name](*samples, sample_weight=other) == expected


def test_rankings_are_those_of_scikit_learn():
    (y, _, score, _), _ = _samples(3)
    weight = np.random.default_rng(3).exponential(size=80)
    is_id = y != -1
    assert_allclose(
        metrics.auroc(y, score, sample_weight=weight),
        roc_auc_score(is_id, score, sample_weight=weight),
        rtol=1e-12,
    )
    for metric, truth, sign in (
        (metrics.aupr_in, is_id, 1),
        (metrics.aupr_out, ~is_id, -1),
    ):
        assert_allclose(
            metric(y, score, sample_weight=weight),
            average_precision_score(truth, sign * score, sample_weight=weight),
            rtol=1e-12,
        )
    fpr, tpr, _ = roc_curve(is_id, score, sample_weight=weight, drop_intermediate=False)
    for least in (0.3, 0.7, 0.95, 1.0):
        assert_allclose(
            metrics.fpr_at_tpr(y, score, tpr=least, sample_weight=weight),
            fpr[tpr >= least - 1e-12][0],
            rtol=1e-12,
        )


def test_brier_is_that_of_scikit_learn():
    rng = np.random.default_rng(4)
    y, p, weight = (
        rng.integers(2, size=50),
        rng.uniform(size=50),
        rng.exponential(size=50),
    )
    expected = 2 * brier_score_loss(y, p, sample_weight=weight)
    actual = metrics.brier(y, np.column_stack([1 - p, p]), sample_weight=weight)
    assert_allclose(actual, expected, rtol=1e-12)


def test_weighted_calibration_error_of_two_bins():
    y, confidence, weight = [0, 1, 0, 1], [0.2, 0.4, 0.8, 0.9], [1.5, 0.5, 2.5, 0.5]
    right = [0, 1, 1, 1]
    # bin means: confidence .25, right .25; confidence .8166.., right 1
    actual = metrics.expected_calibration_error(
        y,
        confidence,
        [1 - label if not hit else label for label, hit in zip(y, right, strict=True)],
        n_bins=2,
        sample_weight=weight,
    )
    assert_allclose(actual, 3 / 5 * (1 - 2.45 / 3), rtol=1e-12)


def test_losses_of_absent_samples_are_never_computed():
    def loss(y_true, y_pred):
        assert 7 not in y_true.tolist()
        return (y_true != y_pred).astype(float)

    y, p, s = [0, 1, 7, 1], [0, 1, 0, 0], [4.0, 3.0, 2.0, 1.0]
    actual = metrics.aurc(y, p, s, loss=loss, sample_weight=[1, 1, 0, 2])
    assert actual == pytest.approx(
        metrics.aurc([0, 1, 1, 1], [0, 1, 0, 0], [4, 3, 1, 1])
    )
    # the losses given as an array too
    assert actual == metrics.aurc(
        y, None, s, loss=[0, 0, 99, 1], sample_weight=[1, 1, 0, 2]
    )


@looped(
    ("weight", "message"),
    [
        (np.ones(79), r"shape \(79,\), expected \(80,\)"),
        (np.r_[-1.0, np.ones(79)], "Negative values.*sample_weight"),
        (np.r_[np.nan, np.ones(79)], "NaN"),
        (np.r_[np.inf, np.ones(79)], "infinity"),
        (np.zeros(80), "sample weights are zero"),
    ],
)
@pytest.mark.parametrize("name", METRICS)
def test_invalid_weights(name, weight, message):
    samples, _ = _samples(5)
    with pytest.raises(ValueError, match=message):
        METRICS[name](*samples, sample_weight=weight)


@pytest.mark.parametrize("name", METRICS)
def test_no_id_samples_of_positive_weight(name):
    samples, _ = _samples(6)
    with pytest.raises(ValueError, match="ID samples"):
        METRICS[name](*samples, sample_weight=(samples[0] == -1).astype(float))


def test_interval_of_a_weighted_metric_covers_the_weighted_mean():
    # the AUROC 1/2 + shift of a population that is sampled with another density
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(60):
        is_ood = np.repeat([False, True], [60, 40])
        group = rng.integers(2, size=100)  # half of the samples, a tenth of the use
        score = np.where(is_ood, 0.0, 2.0 * group) + rng.normal(size=100)
        weight = np.where(group, 0.1, 0.9)
        result = metrics.bootstrap_ci(
            metrics.auroc,
            np.where(is_ood, -1, 0),
            score,
            sample_weight=weight,
            n_resamples=30,
            random_state=rng.integers(99),
        )
        covered.append(result.low <= _TRUTH <= result.high)
        assert result.value == metrics.auroc(
            np.where(is_ood, -1, 0), score, sample_weight=weight
        )
    assert np.mean(covered) >= 0.88


# .9 of the weight has AUROC 1/2, .1 the AUROC of normal scores that differ by 2
_TRUTH = 0.9 * 0.5 + 0.1 * 0.9213504


@pytest.mark.parametrize("metric", [metrics.fpr_at_tpr, metrics.detection_error])
def test_intervals_ignore_absent_samples(metric):
    (y, _, score, _), _ = _samples(8)
    weight = np.random.default_rng(8).exponential(size=80)
    extended = np.r_[y, np.zeros(20), -np.ones(20)]
    arguments = np.r_[score, np.full(40, 99.0)], np.r_[weight, np.zeros(40)]
    kwargs = {"n_resamples": 20, "random_state": 0}
    expected = metrics.bootstrap_ci(metric, y, score, sample_weight=weight, **kwargs)
    interval = metrics.bootstrap_ci(
        metric, extended, arguments[0], sample_weight=arguments[1], **kwargs
    )
    assert_allclose(interval, expected, rtol=1e-12)
    assert expected.low < expected.value < expected.high


def test_no_interval_of_a_weighted_coverage_at_a_risk():
    (y, p, s, _), _ = _samples(9)
    with pytest.raises(ValueError, match=r"sample_weight has no interval.*percentile"):
        metrics.bootstrap_ci(
            metrics.coverage_at_risk, y, p, s, sample_weight=np.ones(80), n_resamples=5
        )


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_interval_of_a_weighted_calibration_error(strategy):
    # whole weights: noise of the gaps of samples with their weights
    (y, _, _, proba), _ = _samples(10)
    kwargs = {"strategy": strategy, "n_resamples": 50, "random_state": 0}
    ece = metrics.expected_calibration_error
    plain = metrics.bootstrap_ci(ece, y, proba, **kwargs)
    ones = metrics.bootstrap_ci(ece, y, proba, sample_weight=np.ones(80), **kwargs)
    assert_allclose(ones, plain, rtol=1e-12)
    rare = np.where(np.arange(80) < 70, 0.01, 5.0)
    wide = metrics.bootstrap_ci(ece, y, proba, sample_weight=rare, **kwargs)
    assert wide.high - wide.low > plain.high - plain.low
