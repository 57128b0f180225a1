"""Tests of `TorchClassifier`."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle

import numpy as np
import pytest
import sklearn
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from skood.nn import TorchClassifier, TrainingOptions
from skood.nn._training_data import stratified_split
from tests._loops import looped
from tests.nn._networks import DoublePerceptron, Linear, Normalized

FULL_BATCH = {"batch_size": 10**6, "device": "cpu", "random_state": 0}


# --- it learns ---------------------------------------------------------------


@pytest.mark.parametrize(
    "data, least", [("iris", 0.93), pytest.param("blobs", 0.99, marks=pytest.mark.slow)]
)
def test_defaults_learn(data, least, iris):
    X, y = iris if data == "iris" else make_blobs(300, cluster_std=0.5, random_state=0)
    clf = make_pipeline(StandardScaler(), TorchClassifier(random_state=0))
    assert cross_val_score(clf, X, y, cv=3).mean() > least


@pytest.mark.slow
def test_digits(digits):
    X, X_test, y, y_test = train_test_split(*digits, stratify=digits[1], random_state=0)
    clf = TorchClassifier(random_state=0).fit(X, y)
    assert clf.score(X_test, y_test) > 0.95


def test_digits_as_images(digits):
    X, X_test, y, y_test = train_test_split(
        digits[0].reshape(-1, 1, 8, 8), digits[1], stratify=digits[1], random_state=0
    )
    clf = TorchClassifier(random_state=0, max_epochs=8, lr=0.01).fit(X, y)
    assert clf.score(X_test, y_test) > 0.95
    assert clf.input_shape_ == (1, 8, 8)
    assert type(clf.module_).__name__ == "SmallConvNet"


def test_larger_images():
    rng = np.random.RandomState(0)
    y = np.arange(40) % 2
    X = rng.normal(size=(40, 1, 28, 28)) + y[:, None, None, None]
    clf = TorchClassifier(random_state=0, max_epochs=15).fit(X, y)
    assert clf.score(X, y) == 1
    assert clf.predict_proba(X).shape == (40, 2)


def test_samples_of_any_shape():
    rng = np.random.RandomState(0)
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 4, 5)) + y[:, None, None]
    clf = TorchClassifier(random_state=0, max_epochs=40, lr=0.01).fit(X, y)
    assert clf.score(X, y) > 0.95
    assert clf.input_shape_ == (4, 5)
    assert clf.n_features_in_ == 4


def test_without_hidden_layer_it_is_logistic_regression(iris):
    """Weight decay is the penalty of scikit-learn with C = 1 / (n * decay)."""
    X, y = iris
    decay = 0.03
    clf = TorchClassifier(
        Linear,
        training=TrainingOptions(
            optimizer="sgd", lr_schedule="cosine", weight_decay=decay
        ),
        lr=1.0,
        max_epochs=400,
        **FULL_BATCH,
    ).fit(X, y)
    reference = LogisticRegression(
        C=1 / (len(X) * decay), fit_intercept=False, tol=1e-10, max_iter=10000
    ).fit(X, y)
    assert_allclose(clf.module_.weight.detach(), reference.coef_, atol=1e-4)
    assert_allclose(clf.predict_proba(X), reference.predict_proba(X), atol=1e-4)


@looped("optimizer", ["adam", "adamw", "sgd"])
@looped("schedule", [None, "cosine", "step", "one_cycle"])
def test_each_optimizer_with_each_schedule_learns(optimizer, schedule, iris):
    X, y = iris
    clf = TorchClassifier(
        training=TrainingOptions(
            optimizer=optimizer, lr_schedule=schedule, weight_decay=1e-4
        ),
        lr=0.3 if optimizer == "sgd" else 0.05,
        max_epochs=25,
        random_state=0,
    )
    assert clf.fit(X, y).score(X, y) > 0.95


# --- weights -----------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 1, 1: 5, 2: 0.5}])
def test_weights_are_repetitions(optimizer, class_weight, iris):
    X, y = iris[0][::2], iris[1][::2]
    weight = np.random.RandomState(0).randint(4, size=len(X))
    clf = TorchClassifier(
        DoublePerceptron,  # Adam amplifies the rounding of float32 sums
        training=TrainingOptions(optimizer=optimizer, weight_decay=0.1),
        class_weight=class_weight,
        max_epochs=40,
        lr=0.01,
        **FULL_BATCH,
    )
    weighted = clone(clf).fit(X, y, sample_weight=weight)
    repeated = clone(clf).fit(X.repeat(weight, axis=0), y.repeat(weight))
    unweighted = clone(clf).fit(X, y)
    expected = repeated.predict_proba(X)
    assert_allclose(weighted.predict_proba(X), expected, rtol=1e-6)
    assert abs(unweighted.predict_proba(X) - expected).max() > 0.01


@pytest.mark.parametrize("early_stopping", [False, True])
def test_equal_weights_are_no_weights(early_stopping, iris, quick):
    X, y = iris
    quick.set_params(training__early_stopping=early_stopping)
    expected = clone(quick).fit(X, y).predict_logits(X)
    for weight in (np.ones(150), np.full(150, 0.1), 150 * [7]):
        logits = clone(quick).fit(X, y, sample_weight=weight).predict_logits(X)
        assert_array_equal(logits, expected)


def test_samples_of_weight_0_do_not_exist(iris, quick):
    X, y = iris
    weight = np.ones(150)
    weight[::3] = 0
    quick.set_params(module=Normalized, batch_size=32)
    dirty = X.copy()
    dirty[::3] = 1e6
    weighted = clone(quick).fit(dirty, y, sample_weight=weight)
    remaining = weight > 0
    removed = clone(quick).fit(X[remaining], y[remaining])
    assert_array_equal(weighted.predict_logits(X), removed.predict_logits(X))


def test_balanced_class_weight(iris, quick):
    X, y = iris[0][20:], iris[1][20:]
    weight = 1 / np.bincount(y)[y]
    balanced = clone(quick).set_params(class_weight="balanced").fit(X, y)
    weighted = clone(quick).fit(X, y, sample_weight=weight)
    expected = weighted.predict_logits(X)
    assert_allclose(balanced.predict_logits(X), expected, rtol=1e-5, atol=1e-6)


def test_class_weight_multiplies_sample_weight(iris, quick):
    X, y = iris
    weight = np.random.RandomState(0).uniform(size=150)
    labels = np.array(["x", "y", "z"])[y]
    both = clone(quick).set_params(class_weight={"x": 1, "y": 3, "z": 0.5})
    both.fit(X, labels, sample_weight=weight)
    product = clone(quick).fit(X, y, sample_weight=weight * np.array([1, 3, 0.5])[y])
    expected = product.predict_logits(X)
    assert_allclose(both.predict_logits(X), expected, rtol=1e-5, atol=1e-6)


# --- early stopping and history ----------------------------------------------


def test_early_stopping_returns_to_the_best_weights():
    rng = np.random.RandomState(0)
    X, y = rng.normal(size=(120, 10)), rng.randint(3, size=120)  # nothing to learn
    weight = rng.uniform(size=120)
    clf = TorchClassifier(
        training=TrainingOptions(
            early_stopping=True, validation_fraction=0.25, n_iter_no_change=4, tol=0
        ),
        lr=0.01,
        random_state=0,
    ).fit(X, y, sample_weight=weight)
    losses = [row["valid_loss"] for row in clf.history_]
    assert clf.n_iter_ == len(losses) < clf.max_epochs
    assert clf.n_iter_ - 1 - np.argmin(losses) == 4

    seed = np.random.RandomState(clf._net_config["seed"])
    _, valid = stratified_split(y, 0.25, seed)
    log_p = np.log(clf.predict_proba(X[valid]))
    loss = np.average(-log_p[np.arange(len(valid)), y[valid]], weights=weight[valid])
    assert_allclose(loss, min(losses), rtol=1e-6)
    accuracy = clf.history_[np.argmin(losses)]["valid_accuracy"]
    assert_allclose(clf.score(X[valid], y[valid]), accuracy)


def test_early_stopping_counts_only_gains_above_tol(iris):
    X, y = iris
    clf = TorchClassifier(
        training=TrainingOptions(early_stopping=True, tol=10.0, n_iter_no_change=3),
        random_state=0,
    ).fit(X, y)
    assert clf.n_iter_ == 4  # the first epoch is a gain over nothing
    losses = [row["valid_loss"] for row in clf.history_]
    assert np.argmin(losses) == 3  # the best weights are kept all the same


def test_early_stopping_with_a_class_of_a_single_sample(iris):
    X, y = np.vstack([iris[0], [[9.0, 9, 9, 9]]]), np.append(iris[1], 3)
    clf = TorchClassifier(
        training=TrainingOptions(early_stopping=True), max_epochs=5, random_state=0
    ).fit(X, y)
    assert_array_equal(clf.classes_, [0, 1, 2, 3])
    assert clf.predict_proba(X).shape == (151, 4)


def test_early_stopping_without_validation_samples(quick):
    quick.set_params(training__early_stopping=True)
    with pytest.raises(ValueError, match=r"0\.1 of 2 samples leaves none but"):
        quick.fit([[0.0], [1.0]], [0, 1])


def test_history(iris, quick):
    quick.set_params(training__lr_schedule="cosine", lr=0.02).fit(*iris)
    assert quick.n_iter_ == 5
    assert [row["epoch"] for row in quick.history_] == [1, 2, 3, 4, 5]
    expected = 0.01 * (1 + np.cos(np.pi * np.arange(5) / 5))
    assert_allclose([row["lr"] for row in quick.history_], expected)
    losses = [row["train_loss"] for row in quick.history_]
    assert losses == sorted(losses, reverse=True)
    assert set(quick.history_[0]) == {"epoch", "train_loss", "lr"}


# --- randomness --------------------------------------------------------------


@pytest.mark.parametrize("early_stopping", [False, True])
def test_same_seed_same_network_and_global_generator_untouched(
    early_stopping, iris, quick
):
    X, y = iris
    quick.set_params(
        module=Normalized, batch_size=32, training__early_stopping=early_stopping
    )
    logits = []
    for torch_seed in (1, 2):
        with torch.random.fork_rng():
            torch.manual_seed(torch_seed)
            before = torch.get_rng_state()
            clf = clone(quick).fit(X, y)
            logits.append(clf.predict_logits(X))
            pickle.loads(pickle.dumps(clf))
            clf.set_params(training__early_stopping=False).partial_fit(X, y)
            assert torch.equal(torch.get_rng_state(), before)
    assert_array_equal(logits[0], logits[1])
    other = clone(quick).set_params(random_state=1).fit(X, y)
    assert abs(other.predict_logits(X) - logits[0]).max() > 0.01


def test_random_state_instance_moves_on(iris, quick):
    X, y = iris
    quick.set_params(random_state=np.random.RandomState(0))
    first = quick.fit(X, y).predict_logits(X)
    assert abs(quick.fit(X, y).predict_logits(X) - first).max() > 0.01


def test_refit_is_a_fresh_fit(iris, digits, quick):
    expected = clone(quick).fit(*iris).predict_logits(iris[0])
    quick.fit(*digits).fit(*iris)
    assert_array_equal(quick.predict_logits(iris[0]), expected)
    assert quick.n_iter_ == 5


# --- predictions -------------------------------------------------------------


def test_outputs_agree(iris, quick):
    X, y = iris
    labels = np.array(["setosa", "versicolor", "virginica"])[y]
    clf = quick.fit(X, labels)
    logits = clf.predict_logits(X)
    assert logits.dtype == np.float64
    with torch.no_grad():
        expected = clf.module_(torch.tensor(X, dtype=torch.float32))
    assert_allclose(logits, expected, atol=1e-5)
    proba = clf.predict_proba(X)
    assert_allclose(proba.sum(axis=1), 1, rtol=1e-14)
    assert_allclose(np.log(proba[:, 1] / proba[:, 0]), logits[:, 1] - logits[:, 0])
    assert_array_equal(clf.predict(X), clf.classes_[logits.argmax(axis=1)])
    assert_array_equal(clf.decision_function(X), logits)


def test_two_classes(iris, quick):
    X, y = iris[0][50:], iris[1][50:] * 10
    clf = quick.fit(X, y)
    assert_array_equal(clf.classes_, [10, 20])
    logits = clf.predict_logits(X)
    assert logits.shape == (100, 2)
    decision = clf.decision_function(X)
    assert_array_equal(decision, logits[:, 1] - logits[:, 0])
    assert_array_equal(clf.predict(X), np.where(decision > 0, 20, 10))


def test_module_is_left_in_the_mode_it_is_in(iris, quick):
    X, y = iris
    clf = quick.set_params(module=Normalized).fit(X, y)
    assert not clf.module_.training
    expected = clf.predict_logits(X)
    mean = clf.module_[1].running_mean.clone()
    clf.module_.train()
    clf.module_[0].eval()
    assert_array_equal(clf.predict_logits(X), expected)
    assert [layer.training for layer in clf.module_] == [False, True, True, True]
    assert torch.equal(clf.module_[1].running_mean, mean)
    assert clf.predict_logits(X[:1]).shape == (1, 3)


@pytest.mark.parametrize("batch_size", [16, 149])
def test_batch_normalization_and_a_last_batch_of_a_single_sample(
    batch_size, iris, quick
):
    X, y = iris[0][:-5], iris[1][:-5]
    quick.set_params(module=Normalized, batch_size=batch_size)
    if batch_size == 149:
        X, y = iris
    assert len(X) % batch_size == 1
    assert quick.fit(X, y).n_iter_ == 5


def test_infinite_logits(iris, quick):
    clf = quick.fit(*iris)
    X = np.vstack([iris[0][:2], np.full((1, 4), 3e38)])
    with pytest.raises(ValueError, match="infinite logits for 1 of 3 samples"):
        clf.predict_proba(X)


def test_diverging_training(iris, quick):
    quick.set_params(training__optimizer="sgd", lr=1e30)
    with pytest.raises(ValueError, match=r"Training diverged: in epoch 1 .* Lower lr"):
        quick.fit(*iris)
    assert not hasattr(quick, "classes_")


# --- in scikit-learn's company -----------------------------------------------


def test_grid_search(iris):
    search = GridSearchCV(
        TorchClassifier(max_epochs=20, random_state=0),
        {"lr": [1e-6, 5e-2], "module_params": [{"hidden": ()}, {"hidden": (16,)}]},
        cv=2,
    ).fit(*iris)
    assert search.best_params_["lr"] == 5e-2
    assert search.best_score_ > 0.9
    hidden = search.best_params_["module_params"]["hidden"]
    assert len(search.best_estimator_.module_) == 2 + 2 * len(hidden)


def test_metadata_routing(iris, quick):
    with sklearn.config_context(enable_metadata_routing=True):
        clf = quick.set_fit_request(sample_weight=True)
        pipe = make_pipeline(MaxAbsScaler(), clf)  # which takes no weights
        pipe.fit(*iris, sample_weight=iris[1] + 1.0)
        X = pipe[0].transform(iris[0])
        logits = pipe[-1].predict_logits(X)
    expected = clone(clf).fit(X, iris[1], sample_weight=iris[1] + 1.0)
    assert_allclose(logits, expected.predict_logits(X))


def test_verbose(iris, quick, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # the bar shows what fits
    quick.set_params(verbose=1, training__early_stopping=True).fit(*iris)
    quick.set_params(training__early_stopping=False).partial_fit(*iris)
    out, err = capsys.readouterr()
    assert out == ""
    assert "TorchClassifier" in err
    assert "5/5" in err and "1/1" in err
    assert "valid_accuracy=" in err
    quick.set_params(verbose=0).fit(*iris)
    assert capsys.readouterr() == ("", "")
