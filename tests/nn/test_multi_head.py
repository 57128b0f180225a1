"""Tests of `MultiHeadClassifier`: what it learns and what it predicts."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from skood.nn import MultiHeadClassifier, TorchClassifier, TrainingOptions
from skood.nn._training_data import stratified_split
from skood.utils._torch import training
from tests._loops import looped
from tests.nn._networks import Body, Flat, margin_loss

EARLY = TrainingOptions(early_stopping=True)
SGD = TrainingOptions(optimizer="sgd")
ONE_CYCLE = TrainingOptions(lr_schedule="one_cycle")
FULL_BATCH = {"batch_size": 10**6, "device": "cpu", "random_state": 0}


# --- with one column it is a TorchClassifier -----------------------------------


def whole(input_shape, n_classes, width=8, dropout=0.0):
    """The body of the tests with a head."""
    return nn.Sequential(
        Body(input_shape, width, dropout), nn.Flatten(), nn.Linear(width, n_classes)
    )


@pytest.mark.parametrize(
    "form, with_body, params",
    [
        (np.ravel, False, {}),
        (np.atleast_2d, False, {"module_params": {"hidden": (7, 5), "dropout": 0.5}}),
        (pd.DataFrame, True, {"module_params": {"width": 6, "dropout": 0.3}}),
        (np.ravel, False, {"training": EARLY, "class_weight": "balanced"}),
        (np.atleast_2d, False, {"training": SGD, "class_weight": {0: 1, 1: 3, 2: 0.5}}),
        (pd.DataFrame, True, {"training": ONE_CYCLE, "criterion": margin_loss}),
    ],
)
def test_single_column_is_a_torch_classifier(form, with_body, params, iris3):
    body, network = (Body, whole) if with_body else (None, None)
    X, y = iris3[0], iris3[1][:, 0]
    weight = np.random.RandomState(0).randint(3, size=150)
    options = {"max_epochs": 4, "batch_size": 40, "random_state": 0, **params}
    expected = TorchClassifier(network, **options).fit(X, y, sample_weight=weight)
    y = form(y).T if form is np.atleast_2d else form(y)
    clf = MultiHeadClassifier(body, head_weights=[3.0], **options)
    clf.fit(X, y, sample_weight=weight)
    assert clf.history_ == expected.history_
    assert_array_equal(clf.classes_, expected.classes_)
    for method in ("predict_logits", "predict_proba", "decision_function", "predict"):
        result = getattr(clf, method)(X)
        assert_array_equal(result, getattr(expected, method)(X), strict=True)
    assert clf.score(X, y, sample_weight=weight) == pytest.approx(
        expected.score(X, y, sample_weight=weight), rel=1e-15
    )
    if params.get("class_weight") != "balanced":
        clf.set_params(training=None).partial_fit(X, y, classes=[0, 1, 2])
        expected.set_params(training=None).partial_fit(X, np.ravel(y))
        assert_array_equal(clf.predict_logits(X), expected.predict_logits(X))


def test_single_column_of_images():
    X, y = load_digits(return_X_y=True)
    X = X[:200].reshape(-1, 1, 8, 8) / 16
    options = {"max_epochs": 2, "random_state": 0}
    expected = TorchClassifier(**options).fit(X, y[:200])
    clf = MultiHeadClassifier(**options).fit(X, y[:200])
    assert_array_equal(clf.predict_logits(X), expected.predict_logits(X))
    assert clf.transform(X).shape == (200, 64)
    assert not hasattr(clf.module_.body, "head")


# --- the loss ------------------------------------------------------------------


def naive_loss(logits, codes, weights, shares):
    """Sum over heads and rows, in plain Python; weights are a list for each head."""
    total = 0.0
    for k, share in enumerate(shares):
        of_head = 0.0
        for i in range(len(codes)):
            log_sum = torch.logsumexp(logits[k][i], 0)
            of_head = of_head + weights[k][i] * (log_sum - logits[k][i][codes[i, k]])
        total = total + share / sum(shares) * of_head / sum(weights[k])
    return total


@looped("optimizer", ["sgd", "adam"])
@looped("head_weights", [None, [1.0, 5.0, 0.5]])
@looped("class_weight", [None, "balanced", "list"])
def test_naive_loop(optimizer, head_weights, class_weight, iris3):
    """The losses of each step, and what the network then says."""
    X, codes = iris3[0][::5], iris3[1][::5]
    own = np.random.RandomState(1).uniform(0.5, 2, size=len(X))
    weights = [own.copy() for _ in range(3)]
    if class_weight == "list":
        class_weight = [{0: 1, 1: 4, 2: 0}, None, "balanced"]
    kinds = class_weight if isinstance(class_weight, list) else 3 * [class_weight]
    for k, kind in enumerate(kinds):
        factors = dict.fromkeys(range(3), 1.0)
        if kind == "balanced":
            factors = {c: 1 / own[codes[:, k] == c].sum() for c in set(codes[:, k])}
        elif kind is not None:
            factors = kind
        weights[k] *= [factors[c] for c in codes[:, k]]
    clf = MultiHeadClassifier(
        Body,
        head_weights=head_weights,
        class_weight=class_weight,
        training=TrainingOptions(optimizer=optimizer, weight_decay=0.05),
        max_epochs=4,
        lr=0.1,
        **FULL_BATCH,
    ).fit(X, codes, sample_weight=own)

    seed = np.random.RandomState(0).randint(np.iinfo(np.int32).max)
    with training(int(seed)):
        body = Body((4,))
        heads = [nn.Linear(8, size) for size in (3, 3, 2)]
    parameters = [p for part in (body, *heads) for p in part.parameters()]
    step = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer]
    momentum = {"momentum": 0.9} if optimizer == "sgd" else {}
    step = step(parameters, lr=0.1, weight_decay=0.05, **momentum)
    samples, losses = torch.tensor(X, dtype=torch.float32), []
    for _ in range(4):
        step.zero_grad()
        logits = [head(body(samples)) for head in heads]
        loss = naive_loss(logits, codes, weights, head_weights or [1.0, 1.0, 1.0])
        loss.backward()
        step.step()
        losses.append(loss.item())
    assert_allclose([row["train_loss"] for row in clf.history_], losses, rtol=1e-5)
    for actual, head in zip(clf.predict_logits(X), heads, strict=True):
        assert_allclose(actual, head(body(samples)).detach(), rtol=1e-4, atol=1e-5)


def test_all_heads_train_the_body(iris3):
    """Features differ with the labels of any head; its weight says how much."""
    X, y = iris3
    other = y.copy()
    other[:, 1] = np.random.RandomState(2).permutation(y[:, 1])
    options = {"training": SGD, "lr": 0.1, "max_epochs": 20, **FULL_BATCH}
    alone = MultiHeadClassifier(Body, **options).fit(X, y[:, 0]).transform(X)

    def distances(head_weights):
        clf = MultiHeadClassifier(Body, head_weights=head_weights, **options)
        a, b = (clf.fit(X, labels[:, :2]).transform(X) for labels in (y, other))
        return abs(a - b).max(), abs(a - alone).max()

    assert min(distances([1, 1])) > 0.1
    assert max(distances([1, 1e-7])) < 1e-5  # of the first head there is only one


def linear(input_shape, n_classes):
    """A linear model with intercept."""
    return nn.Linear(*input_shape, n_classes)


def test_heads_that_share_nothing_are_trained_apart(iris3):
    """Without a body, scaling a loss by a is scaling its penalty by 1 / a."""
    X, y = iris3
    options = {"max_epochs": 200, "lr": 0.5, **FULL_BATCH}
    clf = MultiHeadClassifier(
        Flat,
        head_weights=[1, 3, 1],
        training=TrainingOptions(optimizer="sgd", weight_decay=0.05),
        **options,
    ).fit(X, y)
    for k, share in enumerate([0.2, 0.6, 0.2]):
        decay = TrainingOptions(optimizer="sgd", weight_decay=0.05 / share)
        one = TorchClassifier(linear, training=decay, **options)
        expected = one.fit(X, y[:, k]).predict_proba(X)
        assert_allclose(clf.predict_proba(X)[k], expected, atol=1e-4)


@pytest.mark.parametrize("head_weights", [{0: 2.0, 2: 0.5}, [4, 2, 1], (8, 4, 2)])
def test_only_the_ratio_of_head_weights_matters(head_weights, iris3, quick_heads):
    expected = clone(quick_heads).set_params(head_weights=np.array([2, 1, 0.5]))
    expected = expected.fit(*iris3).predict_logits(iris3[0])
    clf = quick_heads.set_params(head_weights=head_weights).fit(*iris3)
    assert_allclose(clf.predict_logits(iris3[0])[1], expected[1], rtol=1e-6)
    equal = clone(quick_heads).set_params(head_weights=None).fit(*iris3)
    assert abs(equal.predict_logits(iris3[0])[1] - expected[1]).max() > 1e-3
    quick_heads.set_params(head_weights=3 * [0.7]).fit(*iris3)
    assert_array_equal(
        quick_heads.predict_logits(iris3[0])[1], equal.predict_logits(iris3[0])[1]
    )


def test_criterion_of_each_head(iris3):
    """With a loss of ones own it is that which is averaged."""
    X, y = iris3
    clf = MultiHeadClassifier(
        Body,
        criterion=margin_loss,
        training=SGD,
        lr=1e-9,
        max_epochs=1,
        **FULL_BATCH,
    ).fit(X, y)  # which is barely trained: the loss is that at the end, too
    losses = []
    for logits, codes in zip(clf.predict_logits(X), y.T, strict=True):
        losses.append(
            np.mean(
                [
                    sum(max(0, a - z[c] + 1) for j, a in enumerate(z) if j != c)
                    for z, c in zip(logits, codes, strict=True)
                ]
            )
        )
    assert clf.history_[0]["train_loss"] == pytest.approx(np.mean(losses), rel=1e-5)


# --- weights of rows -----------------------------------------------------------


@pytest.mark.parametrize(
    "class_weight",
    [
        pytest.param(None, marks=pytest.mark.slow),
        pytest.param("balanced", marks=pytest.mark.slow),
        [{0: 1, 1: 5, 2: 0.5}, None, "balanced"],
    ],
)
def test_weights_are_repetitions(class_weight, iris3):
    X, y = iris3[0][::2], iris3[1][::2]
    weight = np.random.RandomState(0).randint(4, size=len(X))
    clf = MultiHeadClassifier(
        class_weight=class_weight, max_epochs=60, lr=0.01, **FULL_BATCH
    )
    weighted = clone(clf).fit(X, y, sample_weight=weight).predict_proba(X)
    repeated = clone(clf).fit(X.repeat(weight, 0), y.repeat(weight, 0)).predict_proba(X)
    unweighted = clone(clf).fit(X, y).predict_proba(X)
    for k in range(3):
        assert_allclose(weighted[k], repeated[k], rtol=1e-3, atol=1e-6)
    assert abs(unweighted[0] - repeated[0]).max() > 0.01


def test_class_weight_acts_on_its_head_only(iris3):
    """Rows of weight zero for one head train the others."""
    X, y = iris3
    options = {"training": SGD, "max_epochs": 30, "lr": 0.1, **FULL_BATCH}
    class_weight = [{0: 1, 1: 1, 2: 0}, None, None]
    clf = MultiHeadClassifier(Flat, class_weight=class_weight, **options).fit(X, y)
    plain = MultiHeadClassifier(Flat, **options).fit(X, y)
    for k in (1, 2):
        assert_allclose(
            clf.predict_logits(X)[k], plain.predict_logits(X)[k], rtol=1e-4, atol=1e-6
        )
    assert (clf.predict(X)[:, 0] < 2).all()


def test_samples_that_no_head_is_trained_on_are_left_out(iris3, quick_heads):
    X, y = iris3
    y = y[:, :2]
    class_weight = [{0: 1, 1: 1, 2: 0}, {0: 1, 1: 1, 2: 0}]
    clf = quick_heads.set_params(class_weight=class_weight).fit(X, y)
    left_out = (y == 2).all(axis=1)
    assert left_out.sum() > 20
    weight = np.where(left_out, 0.0, 1.0)
    again = clone(clf).fit(X, y, sample_weight=weight)
    assert_array_equal(clf.predict_logits(X)[0], again.predict_logits(X)[0])
    X, y = X[~left_out], y[~left_out]
    assert (clf.history_[0]["train_loss"]) == pytest.approx(
        clone(clf).set_params(max_epochs=1).fit(X, y).history_[0]["train_loss"]
    )


# --- early stopping ------------------------------------------------------------


def test_early_stopping(iris3):
    """Validation loss and exact matches are those of the rows held out."""
    X, y = iris3
    clf = MultiHeadClassifier(
        training=TrainingOptions(
            early_stopping=True, validation_fraction=0.25, n_iter_no_change=7
        ),
        head_weights=[1, 2, 1],
        max_epochs=60,
        lr=0.02,
        random_state=3,
    ).fit(X, y)
    seed = np.random.RandomState(3).randint(np.iinfo(np.int32).max)
    valid = stratified_split(y, 0.25, np.random.RandomState(seed))[1]
    best = min(clf.history_, key=lambda row: row["valid_loss"])
    assert 7 < clf.n_iter_ < 60
    assert best["epoch"] < clf.n_iter_
    losses = [
        -np.log(p[valid, codes[valid]]).mean()
        for p, codes in zip(clf.predict_proba(X), y.T, strict=True)
    ]
    loss = (losses[0] + 2 * losses[1] + losses[2]) / 4
    assert best["valid_loss"] == pytest.approx(loss, rel=1e-5)
    assert best["valid_accuracy"] == pytest.approx(clf.score(X[valid], y[valid]))


# --- what it predicts ----------------------------------------------------------


def tables(y):
    """The same labels in several forms, with the kinds of the columns."""
    species = np.array(["setosa", "versicolor", "virginica"])[y[:, 0]]
    chance = y[:, 2] == 1
    frame = pd.DataFrame({"species": species, "long": y[:, 1], "chance": chance})
    return {
        "frame": frame,
        "categories": frame.astype({"species": "category"}),
        "objects": frame.to_numpy(),
        "lists": frame.to_numpy().tolist(),
    }


@pytest.mark.parametrize("form", ["frame", "categories", "objects", "lists"])
def test_columns_of_several_kinds(form, iris3, quick_heads):
    X, y = iris3
    labels = tables(y)[form]
    clf = quick_heads.fit(X, labels)
    assert [classes.dtype.kind for classes in clf.classes_] == ["U", "i", "b"]
    expected = clone(quick_heads).fit(X, y)
    predicted = clf.predict(X)
    assert predicted.dtype == object
    names = np.array(["setosa", "versicolor", "virginica"])
    assert_array_equal(predicted[:, 0], names[expected.predict(X)[:, 0]])
    assert_array_equal(predicted[:, 1], expected.predict(X)[:, 1])
    assert_array_equal(predicted[:, 2], expected.predict(X)[:, 2] == 1)
    assert {type(value) for value in predicted[0]} == {str, int, bool}
    for proba, p in zip(clf.predict_proba(X), expected.predict_proba(X), strict=True):
        assert_array_equal(proba, p)
    assert clf.score(X, labels) == expected.score(X, y)
    assert hasattr(clf, "target_names_") == (form in ("frame", "categories"))


def test_columns_of_equal_kind(iris3, quick_heads):
    X, y = iris3
    clf = quick_heads.fit(X, torch.tensor(y))
    assert clf.predict(X).dtype == np.int64
    assert clf.n_outputs_ == 3
    text = np.char.add("label ", y.astype(str))
    assert quick_heads.fit(X, text).predict(X).dtype.kind == "U"
    assert set(quick_heads.predict(X)[:, 0]) <= {"label 0", "label 1", "label 2"}


def test_probabilities_logits_and_labels_agree(iris3, quick_heads):
    X, y = iris3
    clf = quick_heads.fit(X, y + np.array([5, 7, 9]))
    predicted = clf.predict(X)
    for k, (logits, p) in enumerate(
        zip(clf.predict_logits(X), clf.predict_proba(X), strict=True)
    ):
        assert logits.dtype == p.dtype == np.float64
        assert logits.shape == (150, len(clf.classes_[k]))
        e = np.exp(logits - logits.max(axis=1, keepdims=True))
        assert_allclose(p, e / e.sum(axis=1, keepdims=True), rtol=1e-12)
        assert_array_equal(predicted[:, k], clf.classes_[k][p.argmax(axis=1)])


def test_decision_function_is_of_a_single_column(iris3, quick_heads):
    assert hasattr(quick_heads, "decision_function")
    quick_heads.fit(*iris3)
    assert not hasattr(quick_heads, "decision_function")
    with pytest.raises(AttributeError, match="has no attribute 'decision_function'"):
        quick_heads.decision_function(iris3[0])
    with pytest.raises(NotFittedError):
        clone(quick_heads).decision_function(iris3[0])


def test_features_and_heads_are_the_network(iris3, quick_heads):
    X, y = iris3
    clf = quick_heads.set_params(module=Body).fit(X, y)
    Z = clf.transform(X)
    assert Z.shape == (150, 8)
    assert Z.dtype == np.float64
    for head, logits in zip(clf.module_.heads, clf.predict_logits(X), strict=True):
        W, b = head.weight.detach().double(), head.bias.detach().double()
        assert_allclose(Z @ W.numpy().T + b.numpy(), logits, rtol=1e-4, atol=1e-5)
    assert list(clf.get_feature_names_out()) == [
        f"multiheadclassifier{i}" for i in range(8)
    ]
    assert_array_equal(clone(clf).fit_transform(X, y), Z)


def test_features_with_more_axes_are_flattened():
    rng = np.random.RandomState(0)
    y = np.column_stack([np.arange(40) % 2, np.arange(40) % 3])
    X = rng.normal(size=(40, 2, 6, 6)) + y[:, :1, None, None]
    clf = MultiHeadClassifier(
        lambda shape: nn.Conv2d(shape[0], 3, 3), max_epochs=30, lr=0.01, random_state=0
    ).fit(X, y)
    assert clf.transform(X).shape == (40, 3 * 4 * 4)
    assert clf.score(X, y) > 0.3
    assert clf.predict_proba(X)[1].shape == (40, 3)


@pytest.mark.parametrize("weighted", [False, True])
def test_score_is_the_exact_match_ratio(weighted, iris3, quick_heads):
    X, y = iris3
    weight = np.random.RandomState(0).uniform(size=150) if weighted else None
    clf = quick_heads.set_params(max_epochs=30, lr=0.01).fit(X, y)
    matches = (clf.predict(X) == y).all(axis=1)
    assert 0.1 < matches.mean() < 0.9
    expected = np.average(matches, weights=weight)
    assert clf.score(X, y, sample_weight=weight) == pytest.approx(expected)
    reference = MultiOutputClassifier(LogisticRegression()).fit(X, y)
    exact = accuracy_score(
        [str(row) for row in y], [str(row) for row in reference.predict(X)]
    )
    assert reference.score(X, y) == exact  # which scikit-learn does as well


def test_unknown_labels_are_never_predicted(iris3, quick_heads):
    X, y = iris3
    clf = quick_heads.set_params(max_epochs=40, lr=0.01).fit(X, y[:, :2])
    labels = y[:, :2].copy()
    labels[:60, 1] = -1
    hits = (clf.predict(X) == labels).all(axis=1)
    assert not hits[:60].any()
    assert clf.score(X, labels) == hits.mean() > 0.3
    mixed = labels.astype(object)
    mixed[:60, 1] = "unknown"
    assert clf.score(X, mixed) == hits.mean()


# --- scikit-learn --------------------------------------------------------------


def test_cross_validation_and_search(iris3):
    X, y = iris3
    clf = make_pipeline(
        StandardScaler(), MultiHeadClassifier(Body, max_epochs=20, random_state=0)
    )
    frame = tables(y)["frame"][["species", "long"]]
    cv = KFold(2, shuffle=True, random_state=0)
    grid = {"multiheadclassifier__lr": [1e-4, 0.05]}
    search = GridSearchCV(clf, grid, cv=cv).fit(X, frame)
    assert search.best_params_ == {"multiheadclassifier__lr": 0.05}
    clf.set_params(multiheadclassifier__lr=0.05)
    scores = cross_val_score(clf, X, y[:, :2], cv=cv)
    assert scores.mean() == search.best_score_ > 0.7
    assert search.predict(X).shape == (150, 2)


def test_features_for_another_step(iris3):
    """Columns of labels make features that tell of all of them."""
    X, y = iris3
    body = MultiHeadClassifier(Body, max_epochs=60, lr=0.1, random_state=0)
    Z = body.fit_transform(X, y[:, :2])
    for labels in y[:, :2].T:
        assert LogisticRegression().fit(Z, labels).score(Z, labels) > 0.9


def test_a_row_does_not_depend_on_others(iris3, quick_heads):
    X, y = iris3
    clf = quick_heads.fit(X, y)
    for k, p in enumerate(clf.predict_proba(X)):
        assert_allclose(clf.predict_proba(X[7:8])[k], p[7:8], rtol=1e-12)
    assert_allclose(clf.transform(X[7:8]), clf.transform(X)[7:8], rtol=1e-12)


def test_same_seed_same_network(iris3, quick_heads):
    X, y = iris3
    before = torch.get_rng_state()
    a, b = (clone(quick_heads).fit(X, y).predict_logits(X)[2] for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert_array_equal(a, b)
    other = clone(quick_heads).set_params(random_state=1).fit(X, y).predict_logits(X)[2]
    assert abs(a - other).max() > 0.01
