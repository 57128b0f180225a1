"""Tests of `TrainingOptions`."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skood.evidential import EvidentialProbe
from skood.nn import TorchClassifier, TrainingOptions
from skood.nn._training_options import training_options
from tests._loops import looped


class Patient(TorchClassifier):
    """A classifier with other defaults."""

    _training_defaults = {"early_stopping": True, "n_iter_no_change": 50}


def test_none_is_the_default_of_the_estimator():
    options = training_options(TorchClassifier())
    assert options.get_params() == {
        "optimizer": "adam",
        "weight_decay": 0.0,
        "lr_schedule": None,
        "early_stopping": False,
        "validation_fraction": 0.1,
        "n_iter_no_change": 10,
        "tol": 1e-4,
        "transform": None,
        "mixed_precision": False,
    }
    given = TrainingOptions(n_iter_no_change=3, tol=0.0)
    changed = training_options(Patient(training=given))
    assert (changed.early_stopping, changed.n_iter_no_change) == (True, 3)
    assert (changed.tol, changed.weight_decay) == (0.0, 0.0)
    assert given.early_stopping is None
    off = training_options(Patient(training=TrainingOptions(early_stopping=False)))
    assert not off.early_stopping


@pytest.mark.parametrize(
    "option, value",
    [
        ("optimizer", "lbfgs"),
        ("weight_decay", -1.0),
        ("lr_schedule", "linear"),
        ("early_stopping", "yes"),
        ("validation_fraction", 1.0),
        ("n_iter_no_change", 0),
        ("tol", -1e-4),
        ("transform", "flip"),
        ("mixed_precision", "bfloat16"),
    ],
)
@looped("method", ["fit", "partial_fit"])
def test_bad_values_leave_the_classifier_unchanged(option, value, method):
    X, y = [[0.0], [1.0], [0.1], [0.9]], [0, 1, 0, 1]
    clf = TorchClassifier(max_epochs=2, random_state=0).fit(X, y)
    clf.set_params(training=TrainingOptions(**{option: value}))
    before = {**vars(clf)}
    with pytest.raises(ValueError, match=f"'{option}' parameter of TrainingOptions"):
        getattr(clf, method)(X, y)
    assert vars(clf) == before


def test_nested_names_if_training_is_none():
    """Also in a search over a pipeline; a clone shares nothing."""
    clf = TorchClassifier(max_epochs=2, random_state=0)
    other = clone(clf).set_params(training__weight_decay=0.5, lr=0.1)
    assert other.training.weight_decay == 0.5
    assert other.lr == 0.1
    assert clf.training is None
    assert clone(other).training is not other.training
    given = TrainingOptions(tol=1.0)
    clf.set_params(training=given, training__optimizer="sgd")
    assert (clf.training, given.optimizer, given.tol) == (given, "sgd", 1.0)
    with pytest.raises(ValueError, match="Invalid parameter 'wd' for estimator Trai"):
        clf.set_params(training__wd=0.1)
    grid = {"torchclassifier__training__optimizer": ["sgd", "adamw"]}
    pipe = make_pipeline(TorchClassifier(max_epochs=2, random_state=0))
    search = GridSearchCV(pipe, grid, cv=2, refit=False, error_score="raise")
    search.fit([[0.0], [1.0], [0.1], [0.9]], [0, 1, 0, 1])
    assert search.cv_results_["params"] == [
        {"torchclassifier__training__optimizer": name} for name in ("sgd", "adamw")
    ]


def test_repr():
    clf = TorchClassifier(training=TrainingOptions(optimizer="sgd"))
    assert repr(clf) == "TorchClassifier(training=TrainingOptions(optimizer='sgd'))"


def test_transform_of_training_batches(X=((0.0,), (1.0,), (2.0,), (3.0,))):
    """It sees training batches only, and is seeded by the random state."""
    seen = []

    def shifted(batch):
        seen.append(batch.clone())
        return batch + torch.rand(len(batch), 1)

    options = TrainingOptions(
        transform=shifted, early_stopping=True, validation_fraction=0.5
    )
    clf = TorchClassifier(max_epochs=3, training=options, random_state=0)
    X, y = 4 * X, 8 * [0, 1]
    fits = [clf.fit(X, y).predict_logits(X) for _ in range(2)]
    np.testing.assert_array_equal(*fits)
    assert [len(batch) for batch in seen] == 6 * [8]  # three epochs of two fits
    np.testing.assert_array_equal(torch.stack(seen[:3]), torch.stack(seen[3:]))
    assert clf.net_.transform_ is None  # predictions are of samples as they are
    clf.set_params(training=TrainingOptions(transform=shifted)).partial_fit(X, y)
    assert [len(batch) for batch in seen[6:]] == [16]


def test_transform_that_trains_on_zeros():
    """A network that sees zeros only learns the class frequencies."""
    options = TrainingOptions(transform=torch.zeros_like)
    clf = TorchClassifier(max_epochs=200, lr=0.1, training=options, random_state=0)
    X, y = [[1.0]] * 2 + [[-1.0]] * 6, [0] * 2 + [1] * 6
    proba = clf.fit(X, y).predict_proba([[0.0]])
    np.testing.assert_allclose(proba, [[0.25, 0.75]], atol=1e-3)


@pytest.mark.parametrize(
    "transform", [lambda x: x[:1], lambda x: x.tolist()], ids=["shape", "type"]
)
def test_transform_of_another_shape(transform):
    clf = TorchClassifier(training=TrainingOptions(transform=transform))
    with pytest.raises(ValueError, match=r"transform\(batch\) must return a tensor of"):
        clf.fit([[0.0], [1.0]], [0, 1])


def test_options_without_effect():
    """Graphs are not trained in batches of images, nor are probes."""
    for name, value in (("transform", torch.neg), ("mixed_precision", True)):
        options = TrainingOptions(**{name: value})
        probe = EvidentialProbe(LogisticRegression(), training=options)
        with pytest.raises(ValueError, match=f"{name}=.* has no effect on Evidential"):
            probe.fit([[0.0, 1.0], [1.0, 0.0]], [0, 1])
