"""The objective of the probe and its training: naive loops, gradients, optima."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import approx_fprime
from scipy.special import digamma, softmax
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from skood.evidential import EvidentialProbe, ProbeObjective, _probe_objective
from skood.evidential._probe import train_probe
from skood.evidential._probe_objective import ObjectiveSamples, confidence, evidence_of
from skood.exceptions import SkoodWarning
from skood.nn import TrainingOptions
from skood.utils._progress import progress
from tests._loops import looped

CPU = torch.device("cpu")
RNG = np.random.default_rng(0)
LOGITS = 2 * RNG.normal(size=(30, 4))
CODES = RNG.integers(4, size=30)
W = 0.3 * RNG.normal(size=(4, 4))
B = RNG.normal(size=4)
LAMBDAS = [(0.0, 0.0), (1e-3, 0.0), (0.0, 2e-3), (1e-3, 2e-3)]
activations = pytest.mark.parametrize("activation", ["exp", "softplus"])


def _options(**params):
    usual = {"optimizer": "adam", "weight_decay": 0.0, "n_iter_no_change": 1000}
    return TrainingOptions(**{**usual, "tol": 0.0, **params})


def _part(z=LOGITS, codes=CODES, *, logits=None, regularized=True, corrected=True):
    return ObjectiveSamples(
        z,
        softmax(z if logits is None else logits, axis=1),
        codes,
        regularized=regularized,
        corrected=corrected,
        device=CPU,
    )


def _objective(lambda_ice, lambda_pcl, activation="exp", *, e_id=20.0, e_ood=0.0):
    return ProbeObjective(
        lambda_ice=lambda_ice,
        lambda_pcl=lambda_pcl,
        activation=activation,
        e_id=e_id,
        e_ood=e_ood,
    )


def _tensors(*arrays):
    return [torch.tensor(np.asarray(array, dtype=np.float64)) for array in arrays]


def _naive(W, b, z, logits, codes, objective, corrected=True):
    """The mean of the objective over rows, in plain Python."""
    total = 0.0
    n_classes = logits.shape[1]
    for i in range(len(z)):
        p = softmax(logits[i])
        r = p.max()
        if corrected:
            r = max((r - 1 / n_classes) / (1 - 1 / n_classes), 0.01)
        q = []
        for c in range(n_classes):
            s = sum(W[c, j] * z[i, j] for j in range(z.shape[1])) + b[c]
            if objective.activation == "exp":
                q.append(np.exp(min(s, np.log(10 * objective.e_id))))
            else:
                q.append(np.log1p(np.exp(s)))
        e = sum(q)
        if codes is not None:
            total += digamma(e + n_classes) - digamma(e * p[codes[i]] + 1)
        total += objective.lambda_ice * sum(
            ((n_classes + e) * p[c] - q[c]) ** 2 for c in range(n_classes)
        )
        total += objective.lambda_pcl * (
            max(0.0, objective.e_id - e) ** 2
            + (1 - r) / r * max(0.0, e - objective.e_ood) ** 2
        )
    return total / len(z)


@activations
@looped(("ice", "pcl"), LAMBDAS)
@looped("corrected", [False, True])
def test_value_of_a_naive_loop(activation, ice, pcl, corrected):
    objective = _objective(ice, pcl, activation, e_ood=2.0)
    value, none = objective(
        *_tensors(W, B), [_part(corrected=corrected)], gradient=False
    )
    expected = _naive(W, B, LOGITS, LOGITS, CODES, objective, corrected)
    assert_allclose(value, expected, rtol=1e-12)
    assert none == []


@activations
@looped(("ice", "pcl"), LAMBDAS)
def test_gradients_are_those_of_autograd(activation, ice, pcl):
    """Of the formula written in torch, to the last digits."""
    objective = _objective(ice, pcl, activation, e_ood=2.0)
    _, result = objective(*_tensors(W, B), [_part()])
    weight, bias = (tensor.requires_grad_() for tensor in _tensors(W, B))
    z, p = _tensors(LOGITS, softmax(LOGITS, axis=1))
    r = torch.tensor(confidence(softmax(LOGITS, axis=1), corrected=True))
    g = torch.exp if activation == "exp" else torch.nn.functional.softplus
    q = g(z @ weight.T + bias)
    e = q.sum(dim=1)
    alpha_y = p[torch.arange(30), torch.tensor(CODES)]
    samples = (
        torch.digamma(e + 4)
        - torch.digamma(e * alpha_y + 1)
        + ice * (((4 + e)[:, None] * p - q) ** 2).sum(dim=1)
        + pcl * ((20 - e).relu() ** 2 + (1 - r) / r * (e - 2).relu() ** 2)
    )
    samples.mean().backward()
    assert_allclose(result[0], weight.grad, rtol=1e-9, atol=1e-12)
    assert_allclose(result[1], bias.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "concentration, expected", [("shifted", 0.510354), ("paper", 0.373671)]
)
def test_cross_entropy_of_both_concentrations(concentration, expected):
    """e = 10 and the probabilities .7, .2, .1 of three classes, the first is right."""
    objective = ProbeObjective(
        lambda_ice=0.0, lambda_pcl=0.0, concentration=concentration
    )
    proba = np.array([[0.7, 0.2, 0.1]])
    terms = _part(np.zeros((1, 1)), np.array([0]), logits=np.log(proba))
    # three classes with the evidence 10 / 3 each
    W, b = _tensors(np.zeros((3, 1)), np.full(3, np.log(10 / 3)))
    assert_allclose(objective(W, b, [terms])[0], expected, atol=5e-7)
    alpha = _probe_objective.concentrations(np.array([10.0]), proba, concentration)
    alpha_y = [8.0, 3.0, 2.0] if concentration == "shifted" else [9.1, 2.6, 1.3]
    assert_allclose(alpha, [alpha_y], rtol=1e-12)
    assert_allclose(digamma(alpha.sum()) - digamma(alpha[0, 0]), expected, atol=5e-7)


def test_gradients_of_the_printed_concentration():
    """Finite differences, with samples whose class has no probability."""
    objective = _objective(1e-3, 2e-3).set_params(concentration="paper")
    logits = LOGITS.copy()
    logits[np.arange(3), CODES[:3]] -= 40.0
    parts = [_part(logits=logits)]

    def value(x):
        return objective(*_tensors(x[:16].reshape(4, 4), x[16:]), parts)[0]

    _, gradients = objective(*_tensors(W, B), parts)
    expected = approx_fprime(np.append(W.ravel(), B), value, 1e-5)
    result = np.append(gradients[0].numpy().ravel(), gradients[1].numpy())
    # three values of about a million have rounding errors
    assert_allclose(result, expected, rtol=1e-3, atol=2e-3 * np.abs(expected).max())


def test_a_class_without_probability_warns(iris):
    X, y = iris
    network = LogisticRegression(C=1e4, max_iter=5000).fit(X, y)
    objective = ProbeObjective(concentration="paper")
    probe = EvidentialProbe(FrozenEstimator(network), objective, max_epochs=5)
    wrong = np.where(y == 0, 2, y)
    with pytest.warns(SkoodWarning, match=r"the class of 4\d of 135 samples, whose"):
        probe.fit(X, wrong)
    alpha = probe.predict_alpha(X)
    e = probe.predict_evidence(X)[:, None]
    expected = np.maximum((e + 3) * network.predict_proba(X), 1e-6)
    assert_allclose(alpha, expected, rtol=1e-9)
    probe.set_params(objective__concentration="shifted").fit(X, y)
    e = probe.predict_evidence(X)[:, None]
    assert_allclose(probe.predict_alpha(X), e * network.predict_proba(X) + 1)


def test_terms_are_means_over_their_samples():
    """The first over rows with classes, the others over regularized ones."""
    objective = _objective(1e-3, 1e-3)
    labeled = _part(LOGITS[:5], CODES[:5], regularized=False)
    free = _part(LOGITS[3:], None)
    value, gradients = objective(*_tensors(W, B), [labeled, free])
    plain = _objective(0.0, 0.0)
    expected = _naive(W, B, LOGITS[:5], LOGITS[:5], CODES[:5], plain)
    expected += _naive(W, B, LOGITS[3:], LOGITS[3:], None, objective)
    assert_allclose(value, expected, rtol=1e-12)
    apart = [
        plain(*_tensors(W, B), [labeled])[1],
        objective(*_tensors(W, B), [free])[1],
    ]
    for result, item, other in zip(gradients, *apart, strict=True):
        assert_allclose(result, item + other, rtol=1e-10)


def test_chunks_change_nothing(monkeypatch):
    objective = _objective(1e-3, 1e-3)
    expected = objective(*_tensors(W, B), [_part()])
    monkeypatch.setattr(_probe_objective, "_CHUNK_BYTES", {"cpu": 7 * 8 * 4})
    assert [s.stop - s.start for s in _part().chunks()] == [7, 7, 7, 7, 2]
    result = objective(*_tensors(W, B), [_part()])
    assert_allclose(result[0], expected[0], rtol=1e-12)
    for a, b in zip(result[1], expected[1], strict=True):
        assert_allclose(a, b, rtol=1e-10, atol=1e-13)


# --- its parts -----------------------------------------------------------------------


def test_confidence():
    p = np.array([[0.25, 0.25, 0.25, 0.25], [0.255, 0.25, 0.25, 0.245], [1, 0, 0, 0]])
    assert_allclose(confidence(p, corrected=False), [0.25, 0.255, 1.0])
    assert_allclose(confidence(p, corrected=True), [0.01, 0.01, 1.0])
    half = np.array([[5.0, 1.0, 1.0, 1.0]]) / 8
    assert_allclose(confidence(half, corrected=True), (5 / 8 - 1 / 4) * 4 / 3)


def test_evidence_is_finite_and_capped():
    extremes = np.array([[1e4, -1e4, 0.0], [1e300, -1e300, 7.0]])
    q = evidence_of(extremes, "exp", e_id=100)
    assert_allclose(q, [[1000, 0, 1], [1000, 0, 1000]])
    q = evidence_of(extremes, "softplus", e_id=100)
    assert_allclose(q[0], [1e4, 0, np.log(2)])
    assert np.isfinite(q).all()


@pytest.mark.parametrize(
    "e_ood, corrected",
    [
        (0.0, True),
        (10.0, False),
        pytest.param(0.0, False, marks=pytest.mark.slow),
        pytest.param(10.0, True, marks=pytest.mark.slow),
    ],
)
def test_optimum_of_the_confidence_term(e_ood, corrected):
    """Of each row, where each has weights of its own: r e_id + (1 - r) e_ood."""
    logits = np.array([[0, 0, 0], [0.5, 0, 0], [1, 0, 1], [9, 0, 0.0]])
    terms = _part(np.eye(4), None, logits=logits, corrected=corrected)
    (weight, bias), _ = train_probe(
        _objective(0.0, 1e-3, e_id=50.0, e_ood=e_ood),
        [terms],
        None,
        (np.zeros((3, 4)), np.zeros(3)),
        lr=0.05,
        max_epochs=1000,
        options=_options(),
        bar=progress(0, desc="", verbose=0),
    )
    e = evidence_of(np.eye(4) @ weight.T + bias, "exp", 50.0).sum(axis=1)
    r = confidence(softmax(logits, axis=1), corrected)
    assert_allclose(e, 50.0 * r + e_ood * (1 - r), rtol=1e-3)


def test_optimum_of_the_term_of_classes():
    """Any total will do, if q = (C + e) p - 1; it cannot be below C."""
    objective = _objective(1.0, 0.0, e_id=100.0)
    p = np.array([0.5, 0.3, 0.2])
    for e in (4.0, 40.0):
        q = (3 + e) * p - 1
        terms = _part(np.log(q)[None], None, logits=np.log(p)[None])
        value, gradients = objective(*_tensors(np.eye(3), np.zeros(3)), [terms])
        assert_allclose(value, 3.0, rtol=1e-10)
        assert_allclose(gradients[1], np.zeros(3), atol=1e-10)
    for _ in range(20):
        q = RNG.gamma(1.0, 10.0, size=3)
        terms = _part(np.log(q)[None], None, logits=np.log(p)[None])
        assert objective(*_tensors(np.eye(3), np.zeros(3)), [terms])[0] >= 3.0


def test_a_class_at_the_cap_is_pulled_down_but_not_pushed_up():
    start = _tensors(np.eye(2), np.zeros(2))
    terms = _part(np.array([[1e4, 0.0]]), np.array([0]), logits=np.array([[1.0, 0.0]]))
    value, down = _objective(1e-3, 1e-3, e_id=10.0)(*start, [terms])
    assert np.isfinite(value)
    assert down[1][0] > 0.0  # a step against it lowers the bias
    # the first term alone wants more evidence where the class is right
    _, up = _objective(0.0, 0.0, e_id=10.0)(*start, [terms])
    assert up[1][0] == 0.0
    assert up[1][1] < 0.0


# --- training ------------------------------------------------------------------------


def _train(valid, *, lr=0.3, epochs=60, **options):
    objective = _objective(1e-3, 1e-3)
    weights, history = train_probe(
        objective,
        [_part(LOGITS[:15], CODES[:15])],
        valid,
        (W, B),
        lr=lr,
        max_epochs=epochs,
        options=_options(**options),
        bar=progress(epochs, desc="", verbose=0),
    )
    return objective, weights, history


def test_the_best_weights_are_restored():
    valid = [_part(LOGITS[15:], CODES[15:])]
    start = W.copy()
    objective, weights, history = _train(valid)
    losses = [done["valid_loss"] for done in history]
    assert len(losses) == 60
    best = int(np.argmin(losses))
    assert best < 59  # it overfits: the last weights are not the best
    assert_allclose(
        objective(*_tensors(*weights), valid, gradient=False)[0],
        losses[best],
        rtol=1e-12,
    )
    assert_array_equal(W, start)
    # fewer epochs pass through the same weights
    _, last, _ = _train(None, epochs=best + 1)
    assert_array_equal(last[0], weights[0])


def test_patience_and_tol():
    valid = [_part(LOGITS[15:], CODES[15:])]
    losses = [done["valid_loss"] for done in _train(valid)[2]]
    _, _, history = _train(valid, n_iter_no_change=3)
    gains = np.flatnonzero(np.minimum.accumulate([np.inf, *losses])[:-1] > losses)
    gap = np.flatnonzero(np.diff(np.append(gains, 60)) > 3)[0]
    assert len(history) == gains[gap] + 4 < 60
    # no gain is large enough: the first epoch, and then three more
    assert len(_train(valid, n_iter_no_change=3, tol=0.999)[2]) == 4


def test_all_epochs_without_validation_samples():
    _, weights, history = _train(None, epochs=5)
    assert [sorted(done) for done in history] == [["epoch", "train_loss"]] * 5
    assert [done["epoch"] for done in history] == [1, 2, 3, 4, 5]
    assert history[-1]["train_loss"] < history[0]["train_loss"]
    assert all(array.dtype == np.float64 for array in weights)


def test_weight_decay_is_that_of_adam():
    decayed = _train(None, epochs=30, weight_decay=10.0)[1]
    free = _train(None, epochs=30)[1]
    assert np.abs(decayed[0]).sum() < np.abs(free[0]).sum()


def test_divergence_is_an_error():
    objective = _objective(1e-3, 1e-3, "softplus", e_id=100.0)
    terms = _part(
        np.array([[1e200, 0.0]]), np.array([0]), logits=np.array([[1.0, 0.0]])
    )
    with pytest.raises(ValueError, match=r"objective of the probe is .* in epoch 1"):
        train_probe(
            objective,
            [terms],
            None,
            (np.eye(2), np.zeros(2)),
            lr=0.1,
            max_epochs=1,
            options=_options(),
            bar=progress(1, desc="", verbose=0),
        )
