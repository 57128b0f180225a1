"""EvidentialProbe on arrays: what it computes, reads, stops at and refuses."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import re

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import digamma, logsumexp, softmax
from scipy.stats import entropy, spearmanr
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import (
    LogisticRegression,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
)
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.base import UncertaintyDetector
from skood.detectors import Energy
from skood.evidential import EvidentialProbe, ProbeObjective
from skood.evidential import _probe as probe_module
from skood.metrics import make_misclassification_scorer, make_ood_scorer
from skood.model_selection import LeaveClassesOut
from skood.nn import TorchClassifier
from skood.nn._shared_forward import network_groups, shared_outputs
from tests.evidential._nested import nested
from tests.nn._conv_net import map_classifier

# Tiny networks that are stopped early.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RNG = np.random.default_rng(0)
Y = np.arange(90) % 3
X = RNG.normal(size=(90, 3)) + 2 * np.eye(3)[Y]
NETWORK = LogisticRegression().fit(X, Y)
FROZEN = FrozenEstimator(NETWORK)
QUICK = {"max_epochs": 20, "random_state": 0}
LOGITS = NETWORK.decision_function(X)


def _probe(estimator=FROZEN, **params):
    return EvidentialProbe(estimator).set_params(**nested({**QUICK, **params}))


# --- what it computes ---------------------------------------------------------------


def test_evidence_alpha_and_uncertainty_by_their_formulas():
    probe = _probe().fit(X, Y)
    p = softmax(LOGITS, axis=1)
    q = np.exp(np.minimum(LOGITS @ probe.coef_.T + probe.intercept_, np.log(1000)))
    e = q.sum(axis=1)
    assert_allclose(probe.predict_proba(X), p, rtol=1e-12)
    assert_array_equal(probe.predict(X), NETWORK.predict(X))
    assert_allclose(probe.predict_evidence(X), e, rtol=1e-12)
    alpha = probe.predict_alpha(X)
    assert_allclose(alpha, e[:, None] * p + 1, rtol=1e-12)
    uncertainty = probe.predict_uncertainty(X)
    assert_allclose(uncertainty.epistemic, 3 / (3 + e), rtol=1e-12)
    assert_allclose(uncertainty.aleatoric, -p.max(axis=1), rtol=1e-12)
    assert_allclose(uncertainty.total, entropy(alpha, axis=1), rtol=1e-10)


def test_the_start_on_logits_is_the_energy():
    probe = _probe(lr=1e-15, max_epochs=1, early_stopping=False).fit(X, Y)
    assert_allclose(
        np.log(probe.predict_evidence(X)), logsumexp(LOGITS, axis=1), rtol=1e-9
    )
    energy = Energy(FROZEN).fit(X, Y).score_samples(X)
    score = UncertaintyDetector(FrozenEstimator(probe)).fit(X, Y).score_samples(X)
    assert_array_equal(np.argsort(energy), np.argsort(score))


def test_training_lowers_its_objective_and_evidence_follows_confidence():
    objective = ProbeObjective(lambda_ice=0.0)
    probe = EvidentialProbe(LogisticRegression(), objective, random_state=0).fit(X, Y)
    losses = [done["valid_loss"] for done in probe.history_]
    assert min(losses) < 0.9 * losses[0]
    assert probe.n_iter_ == len(losses)
    confidence = softmax(LOGITS, axis=1).max(axis=1)
    e = probe.predict_evidence(X)
    assert spearmanr(confidence, e).statistic > 0.8
    assert e[confidence < 0.6].max() < 100 < e[confidence > 0.95].min() * 2


def test_without_regularizers_evidence_grows_to_the_cap():
    both = {"lambda_ice": 0.0, "lambda_pcl": 0.0, "early_stopping": False}
    short, long = (_probe(**both, max_epochs=n).fit(X, Y) for n in (50, 400))
    e_short, e_long = (probe.predict_evidence(X) for probe in (short, long))
    assert np.median(e_long) > 2 * np.median(e_short)
    assert e_long.max() <= 3 * 1000


def test_softplus():
    probe = _probe(activation="softplus").fit(X, Y)
    q = np.log1p(np.exp(LOGITS @ probe.coef_.T + probe.intercept_))
    assert_allclose(probe.predict_evidence(X), q.sum(axis=1), rtol=1e-12)


def test_usual_epochs_and_learning_rates(monkeypatch):
    train, asked = probe_module.train_probe, []

    def short(*args, max_epochs, **kwargs):
        asked.append(max_epochs)
        return train(*args, max_epochs=2, **kwargs)

    for activation, lr, epochs in (("exp", 1e-2, 800), ("softplus", 3e-2, 2000)):
        usual = _probe(activation=activation, early_stopping=False, max_epochs=None)
        with monkeypatch.context() as patch:
            patch.setattr(probe_module, "train_probe", short)
            assert usual.fit(X[:9], Y[:9]).n_iter_ == 2
        assert asked.pop() == epochs
        usual.set_params(max_epochs=2).fit(X, Y)
        fitted = clone(usual).set_params(lr=lr).fit(X, Y)
        assert_array_equal(fitted.coef_, usual.coef_)


def test_optimizer_and_schedule():
    usual = _probe().fit(X, Y)
    for option in ({"optimizer": "sgd"}, {"lr_schedule": "one_cycle"}):
        other = _probe(**option).fit(X, Y)
        assert np.isfinite(other.coef_).all()
        assert (other.coef_ != usual.coef_).any()


def test_single_sample_batch_is_exact():
    """Where the network's probabilities do not depend on the batch either."""
    forest = RandomForestClassifier(n_estimators=10, random_state=0).fit(X, Y)
    probe = _probe(FrozenEstimator(forest)).fit(X, Y)
    batch = probe.predict_uncertainty(X)
    for i in (0, 7, 89):
        uncertainty = probe.predict_uncertainty(X[i : i + 1])
        for name in ("total", "aleatoric", "epistemic"):
            assert uncertainty[name][0] == batch[name][i]


@pytest.mark.parametrize(
    "activation, size",
    [
        ("exp", 1e2),
        ("softplus", 1e4),
        pytest.param("exp", 1e4, marks=pytest.mark.slow),
        pytest.param("softplus", 1e2, marks=pytest.mark.slow),
    ],
)
def test_saturated_logits(activation, size):
    """They are divided by a temperature; results are finite, and tell near from far."""
    network = LogisticRegression().fit(X, Y)
    network.coef_ = size * network.coef_
    probe = EvidentialProbe(
        FrozenEstimator(network),
        ProbeObjective(activation=activation),
        max_epochs=300,
        random_state=0,
    ).fit(X, Y)
    e = probe.predict_evidence(np.concatenate([X, 100 * X]))
    assert np.isfinite(e).all()
    assert (e >= 0).all()
    assert np.isfinite(probe.predict_uncertainty(X).total).all()
    confident = np.ptp(LOGITS, axis=1) > np.quantile(np.ptp(LOGITS, axis=1), 0.8)
    unsure = np.ptp(LOGITS, axis=1) < np.quantile(np.ptp(LOGITS, axis=1), 0.2)
    assert np.median(e[:90][confident]) > np.median(e[:90][unsure])


def test_temperature_is_only_for_large_logits():
    large = LogisticRegression().fit(X, Y)
    large.coef_ = 100 * large.coef_
    options = {"lr": 1e-15, "max_epochs": 1, "early_stopping": False}
    probe = _probe(FrozenEstimator(large), **options).fit(X, Y)
    energy = np.quantile(logsumexp(large.decision_function(X), axis=1), 0.95)
    assert_allclose(np.diag(probe.coef_), np.log(1000) / energy, rtol=1e-9)
    probe = _probe(**options).fit(X, Y)
    assert_allclose(probe.coef_, np.eye(3), atol=1e-12)
    # with hardly any evidence to give, logits of ordinary size are not touched
    probe = _probe(e_id=0.01, **options).fit(X, Y)
    assert np.diag(probe.coef_).min() > 0.1


# --- what it reads -------------------------------------------------------------------


def test_features_are_standardized():
    """The scale and place of features do not count, if the logits are the same."""
    other = LogisticRegression().fit(X, Y)
    other.coef_ = NETWORK.coef_ / 50
    other.intercept_ = NETWORK.intercept_ - NETWORK.coef_ @ np.full(3, 2.0) / 50
    X_other = 50 * X + 2.0
    probes = [
        _probe(FrozenEstimator(net), layer="penultimate").fit(samples, Y)
        for net, samples in ((NETWORK, X), (other, X_other))
    ]
    assert probes[0].coef_.shape == (3, 3)
    assert_allclose(
        probes[1].predict_evidence(X_other), probes[0].predict_evidence(X), rtol=1e-7
    )


def test_layers_of_a_network():
    net = MLPClassifier((8, 5), max_iter=50, random_state=0).fit(X, Y)
    result = {}
    for layer, width in (("last", 3), ("penultimate", 5), (0, 8)):
        probe = _probe(FrozenEstimator(net), layer=layer).fit(X, Y)
        assert probe.coef_.shape == (3, width)
        result[layer] = probe.predict_evidence(X)
    assert not np.allclose(result["last"], result[0])
    with pytest.raises(ValueError, match="layer='fc' is not a layer"):
        _probe(FrozenEstimator(net), layer="fc").fit(X, Y)


def test_a_constant_feature_does_no_harm():
    wide = np.c_[X, np.ones(90)]
    net = LogisticRegression().fit(wide, Y)
    probe = _probe(FrozenEstimator(net), layer="penultimate").fit(wide, Y)
    assert np.isfinite(probe.predict_evidence(wide)).all()


def test_images():
    images = RNG.normal(size=(40, 1, 6, 6)).astype(np.float32)
    y = np.arange(40) % 2
    images[y == 1, :, :3] += 2
    net = TorchClassifier(max_epochs=5, random_state=0).fit(images, y)
    probe = _probe(FrozenEstimator(net)).fit(images, y)
    assert_array_equal(probe.predict(images), net.predict(images))
    features = _probe(FrozenEstimator(net), layer="penultimate").fit(images, y)
    assert np.isfinite(features.predict_uncertainty(images).epistemic).all()


def test_other_layers_of_a_torch_network_are_pooled():
    probe = _probe(map_classifier(), layer="conv").fit(X, Y)
    assert probe.coef_.shape[0] == 3
    assert np.isfinite(probe.predict_evidence(X)).all()


def test_shared_forward_pass_of_the_network():
    net = TorchClassifier(max_epochs=2, random_state=0).fit(X, Y)
    calls = []
    net.module_.register_forward_hook(lambda *args: calls.append(1))
    frozen = FrozenEstimator(net)
    _probe(frozen).fit(X, Y)
    assert len(calls) == 1
    pair = [_probe(frozen, layer="penultimate"), Energy(frozen)]
    assert network_groups(pair) == [[0, 1]]
    calls.clear()
    with shared_outputs(pair):
        for estimator in pair:
            estimator.fit(X, Y)
    assert len(calls) == 1
    calls.clear()
    pair[0].predict_uncertainty(X)
    assert len(calls) == 1


def test_sparse_samples():
    from scipy import sparse

    samples = sparse.csr_array(np.abs(X))
    net = LogisticRegression().fit(samples, Y)
    dense = _probe(FrozenEstimator(net)).fit(samples.toarray(), Y)
    thin = _probe(FrozenEstimator(net)).fit(samples, Y)
    assert_allclose(
        thin.predict_evidence(samples), dense.predict_evidence(np.abs(X)), rtol=1e-9
    )


@pytest.mark.parametrize("layer", ["last", "penultimate"])
def test_probabilities_of_ovr_models_are_unchanged(layer):
    """They are not the softmax of the margins, which the probe reads."""
    X, y = load_iris(return_X_y=True)
    network = SGDClassifier(loss="log_loss", random_state=0).fit(X, y)
    logits, p = network.decision_function(X), network.predict_proba(X)
    assert np.abs(softmax(logits, axis=1) - p).max() > 0.1
    options = {"max_epochs": 1, "lr": 1e-12, "early_stopping": False, "layer": layer}
    probe = _probe(FrozenEstimator(network), **options).fit(X, y)
    assert_allclose(probe.predict_proba(X), p, rtol=1e-12)
    assert_array_equal(probe.predict(X), network.predict(X))
    z = logits if layer == "last" else X
    q = np.exp(np.minimum(z @ probe.coef_.T + probe.intercept_, np.log(1000)))
    e = q.sum(axis=1)
    assert_allclose(probe.predict_evidence(X), e, rtol=1e-10)
    assert_allclose(probe.predict_alpha(X), e[:, None] * p + 1, rtol=1e-10)
    assert_allclose(probe.predict_uncertainty(X).aleatoric, -p.max(axis=1), rtol=1e-12)
    # and all terms of the objective are of these
    r = np.maximum((p.max(axis=1) - 1 / 3) * 3 / 2, 0.01)
    separate = p[np.arange(150), y]
    samples = (
        digamma(e + 3)
        - digamma(e * separate + 1)
        + 1e-3 * (((3 + e)[:, None] * p - q) ** 2).sum(axis=1)
        + 1e-3 * (np.maximum(0, 100 - e) ** 2 + (1 - r) / r * e**2)
    )
    assert_allclose(probe.history_[0]["train_loss"], samples.mean(), rtol=1e-8)


def test_probabilities_are_those_that_the_network_predicts():
    pipeline = make_pipeline(StandardScaler(), SGDClassifier(loss="log_loss"))
    networks = [
        pipeline,
        OneVsRestClassifier(LogisticRegression()),
        LinearDiscriminantAnalysis(),
        RandomForestClassifier(n_estimators=5, random_state=0),
        MLPClassifier((4,), max_iter=20, random_state=0),
        GridSearchCV(SGDClassifier(loss="log_loss"), {"alpha": [1e-4, 1e-3]}),
    ]
    for network in networks:
        frozen = FrozenEstimator(network.fit(X, Y))
        probe = _probe(frozen, max_epochs=2).fit(X, Y)
        assert_allclose(probe.predict_proba(X), network.predict_proba(X), atol=1e-12)
        assert_array_equal(probe.predict(X), network.predict(X))
        samples = torch.tensor(X)
        assert_allclose(probe.predict_proba(samples), probe.predict_proba(X), rtol=1e-9)


def test_without_probabilities_they_are_the_softmax():
    network = RidgeClassifier().fit(X, Y)
    probe = _probe(FrozenEstimator(network)).fit(X, Y)
    expected = softmax(network.decision_function(X), axis=1)
    assert_allclose(probe.predict_proba(X), expected, rtol=1e-12)


@pytest.mark.parametrize("activation", ["exp", "softplus"])
def test_parameters_are_those_of_fit(activation):
    net = MLPClassifier((8, 5), max_iter=50, random_state=0).fit(X, Y)
    frozen = FrozenEstimator(net)
    probe = _probe(frozen, activation=activation, e_id=5, layer=0).fit(X, Y)
    wild = np.concatenate([X, 100 * X])
    expected = probe.predict_evidence(wild)
    other = "exp" if activation == "softplus" else "softplus"
    probe.set_params(objective__activation=other, objective__e_id=1e4, layer="last")
    assert_array_equal(probe.predict_evidence(wild), expected)
    probe.fit(X, Y)
    assert probe.coef_.shape == (3, 3)
    assert (probe.predict_evidence(wild) != expected).any()


# --- rows and labels -----------------------------------------------------------------


def test_an_unfitted_estimator_is_cloned_and_fitted():
    inner = LogisticRegression()
    probe = _probe(inner).fit(X, Y)
    assert not hasattr(inner, "coef_")
    assert_allclose(probe.estimator_.coef_, NETWORK.coef_, rtol=1e-6)
    assert probe.n_features_in_ == 3


def test_samples_of_unknown_classes_are_left_out():
    labels = np.where(np.arange(90) < 60, Y, 7)
    fitted = _probe().fit(X, labels)
    expected = _probe().fit(X[:60], Y[:60])
    assert_array_equal(fitted.coef_, expected.coef_)
    assert_array_equal(fitted.classes_, [0, 1, 2])


def test_without_labels():
    probe = _probe(early_stopping=False, max_epochs=100).fit(X)
    labeled = _probe(early_stopping=False, max_epochs=100).fit(X, Y)
    assert_array_equal(probe.classes_, [0, 1, 2])
    # the expected cross-entropy hardly matters next to the regularizers
    e, expected = (item.predict_evidence(X) for item in (probe, labeled))
    assert np.corrcoef(e, expected)[0, 1] > 0.999
    held_out = _probe().fit(X)
    assert "valid_loss" in held_out.history_[0]


def test_validation_samples_are_held_out_of_training():
    """The loss of the first epoch is that of the rows that were not held out."""
    probe = _probe(max_epochs=1, validation_fraction=0.2).fit(X, Y)
    again = _probe(max_epochs=1, validation_fraction=0.2).fit(X, Y)
    assert probe.history_ == again.history_
    other = _probe(max_epochs=1, validation_fraction=0.2, random_state=1).fit(X, Y)
    assert other.history_[0]["train_loss"] != probe.history_[0]["train_loss"]
    everything = _probe(max_epochs=1, early_stopping=False).fit(X, Y)
    assert "valid_loss" not in everything.history_[0]


def test_validation_samples_of_the_user():
    """They stop it, and all others are trained on."""
    fitted = _probe(max_epochs=5).fit(X[:60], Y[:60], X_val=X[60:], y_val=Y[60:])
    plain = _probe(max_epochs=5, early_stopping=False).fit(X[:60], Y[:60])
    for item, other in zip(fitted.history_, plain.history_, strict=True):
        assert item["train_loss"] == other["train_loss"]
        assert "valid_loss" in item
    unlabeled = _probe(max_epochs=5).fit(X[:60], X_val=X[60:])
    assert "valid_loss" in unlabeled.history_[0]


def test_validation_samples_reach_a_network_that_takes_them():
    class Recorder(LogisticRegression):
        def fit(self, X, y, X_val=None, y_val=None):
            self.n_val_ = None if X_val is None else len(X_val)
            return super().fit(X, y)

    probe = _probe(Recorder()).fit(X[:60], Y[:60], X_val=X[60:], y_val=Y[60:])
    assert probe.estimator_.n_val_ == 30
    assert probe.n_features_in_ == 3
    assert _probe(Recorder()).fit(X, Y).estimator_.n_val_ is None


@pytest.mark.parametrize("layer", ["last", "penultimate"])
def test_random_state_and_the_generators_of_torch(layer):
    state = torch.get_rng_state()
    first = _probe(layer=layer).fit(X, Y)
    assert torch.equal(torch.get_rng_state(), state)
    assert_array_equal(first.fit(X, Y).coef_, _probe(layer=layer).fit(X, Y).coef_)
    other = _probe(layer=layer, random_state=1).fit(X, Y)
    assert not np.array_equal(other.coef_, first.coef_)


# --- errors --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "fit", "message"),
    [
        ({"e_ood": 101}, (X, Y), "e_ood=101 must not be above e_id=100"),
        ({"estimator": LogisticRegression()}, (X,), "requires y to be passed"),
        (
            {"lambda_ice": 0, "lambda_pcl": 0},
            (X,),
            "both lambda_ice and lambda_pcl are 0. Pass y",
        ),
        ({}, (X, Y + 7), r"whose classes_ are \[0, 1, 2\]; got labels such as 7"),
        ({}, (X, Y[:-1]), "inconsistent numbers of samples"),
        ({}, (X[:, :2], Y), "2 features"),
        ({"e_id": 0}, (X, Y), "'e_id' parameter of ProbeObjective"),
        ({"propagation": "walk"}, (X, Y), "'propagation' parameter of EvidentialProbe"),
        (
            {"validation_fraction": 1e-3},
            (X, Y),
            "leaves none but one training sample",
        ),
        ({"tol": 1.0}, (X, Y), "tol=1.0 must be below 1: it is a fraction"),
    ],
)
def test_errors_of_fit(params, fit, message):
    probe = _probe(**params).set_params(random_state=3)
    with pytest.raises(ValueError, match=message):
        probe.fit(*fit)
    assert not hasattr(probe, "coef_")


@pytest.mark.parametrize(
    "estimator",
    [
        Ridge(),
        FrozenEstimator(Ridge().fit(X, Y)),
        make_pipeline(StandardScaler(), Ridge()),
        GridSearchCV(Ridge(), {"alpha": [1.0]}),
    ],
)
def test_regressors_are_refused_before_they_are_fitted(estimator):
    probe = _probe(estimator)
    with pytest.raises(TypeError, match=r"(?s)its estimator .*Ridge.* is a regressor"):
        probe.fit(None, None)  # it is not looked at
    assert not hasattr(probe, "estimator_")


@pytest.mark.parametrize(
    ("y", "params", "message"),
    [
        (Y, {"y_val": Y}, "y_val was passed without X_val"),
        (Y, {"X_val": X}, "Pass y_val with X_val if y is given"),
        (None, {"X_val": X, "y_val": Y}, "Pass y_val with X_val if y is given"),
        (Y, {"X_val": X, "y_val": Y + 7}, "No sample of y is of a class"),
    ],
)
def test_errors_of_validation_samples(y, params, message):
    with pytest.raises(ValueError, match=message):
        _probe().fit(X, y, **params)


def test_network_of_a_single_class():
    network = DummyClassifier().fit(X, np.ones(90))
    with pytest.raises(ValueError, match=r"at least two classes, got 1 class: 1\.0"):
        _probe(FrozenEstimator(network)).fit(X, np.ones(90))


def test_progress(capsys):
    _probe(verbose=1, max_epochs=3).fit(X, Y)
    assert "EvidentialProbe" in capsys.readouterr().err


# --- in use --------------------------------------------------------------------------


def test_digits_of_left_out_classes_have_little_evidence():
    X, y = load_digits(return_X_y=True)
    X = X / 16
    train = np.random.default_rng(0).random(len(y)) < 0.5
    known = train & (y < 7)
    net = MLPClassifier((64,), alpha=1.0, solver="lbfgs", random_state=0)
    frozen = FrozenEstimator(net.fit(X[known], y[known]))
    probe = EvidentialProbe(frozen, random_state=0).fit(X[known], y[known])
    is_id = y[~train] < 7
    energy = Energy(frozen).fit(X[known], y[known]).score_samples(X[~train])
    u = probe.predict_uncertainty(X[~train]).epistemic
    auroc = roc_auc_score(is_id, -u)
    assert auroc > 0.95
    assert auroc > roc_auc_score(is_id, energy) - 0.01


def test_search_with_left_out_classes():
    X, y = load_digits(n_class=6, return_X_y=True)
    X, y = X[::3] / 16, y[::3]
    pipeline = make_pipeline(
        StandardScaler(), EvidentialProbe(LogisticRegression(C=0.1), **QUICK)
    )
    grid = {"evidentialprobe__objective__lambda_ice": [1e-3, 1.0]}
    scoring = make_ood_scorer("auroc")
    cv = LeaveClassesOut(2, random_state=0)
    search = GridSearchCV(
        pipeline, grid, scoring=scoring, cv=cv, error_score="raise"
    ).fit(X, y)
    for i, (train, test) in enumerate(cv.split(X, y)):
        best = clone(pipeline).set_params(**search.cv_results_["params"][0])
        best.fit(X[train], y[train])
        u = best[-1].predict_uncertainty(best[:-1].transform(X[test])).epistemic
        expected = roc_auc_score(np.isin(y[test], best.classes_), -u)
        cv_results = search.cv_results_[f"split{i}_test_score"][0]
        assert_allclose(cv_results, expected, rtol=1e-12)
    assert search.cv_results_["mean_test_score"].max() > 0.8


def test_scores_of_errors_without_ood_samples():
    scores = cross_val_score(
        _probe(LogisticRegression()),
        X,
        Y,
        scoring=make_misclassification_scorer(),
        cv=3,
        error_score="raise",
    )
    assert scores.mean() > 0.6


@pytest.mark.parametrize(
    ("aliases", "name"),
    [
        (("lambda_1", "lambda1", "lambda_ice"), "objective__lambda_ice"),
        (("lambda_2", "lambda2", "lambda_pcl"), "objective__lambda_pcl"),
    ],
)
def test_aliases_of_weights(aliases, name):
    """The errors contain the call that sets the weight."""
    probe = EvidentialProbe(LogisticRegression())
    for alias in aliases:
        message = re.escape(f"no parameter {alias!r}. Its name is {name!r}: use ")
        message += re.escape(f"set_params({name}=0.5).")
        with pytest.raises(TypeError, match=message):
            EvidentialProbe(LogisticRegression(), **{alias: 0.5})
        with pytest.raises(ValueError, match=message):
            probe.set_params(**{alias: 0.5})
        with pytest.raises(ValueError, match=message):
            make_pipeline(probe).set_params(**{f"evidentialprobe__{alias}": 0.5})
    probe.set_params(**{name: 0.5})
    assert getattr(probe.objective, name.removeprefix("objective__")) == 0.5
    with pytest.raises(TypeError, match="unexpected keyword argument 'lambda_3'"):
        EvidentialProbe(LogisticRegression(), lambda_3=0.5)
