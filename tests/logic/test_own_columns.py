"""Tests that classifiers of concepts need columns of their own."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from skood.logic import MLNDetector

KINDS, COLORS = np.array(["stop", "yield", "park"]), np.array(["red", "white", "blue"])
RULES = [f"class={KINDS[i]} -> color={COLORS[i]}" for i in range(3)]
COLUMNS = {"class": [0, 1, 2], "color": [3, 4, 5]}


def draw(n_samples, rng, breaks=False):
    """Signs: three columns show the class, three the color, a little less clearly."""
    kind = rng.integers(3, size=n_samples)
    color = (kind + breaks * rng.integers(1, 3, size=n_samples)) % 3
    X = np.hstack([4 * np.eye(3)[kind], 3 * np.eye(3)[color]])
    return X + rng.normal(size=X.shape), np.column_stack([KINDS[kind], COLORS[color]])


def areas(classifier, seed, **params):
    """AUROC of signs of a wrong color, with classifiers of all, and of own columns."""
    rng = np.random.default_rng(seed)
    X, y = draw(600, rng)
    X_id, y_id = draw(300, rng)
    X_ood, _ = draw(300, rng, breaks=True)
    X_test = np.vstack([X_id, X_ood])
    y_test = np.vstack([y_id, np.full((300, 2), -1, dtype=object)])
    own = {
        name: make_pipeline(
            make_column_transformer(("passthrough", columns)), classifier
        )
        for name, columns in COLUMNS.items()
    }
    readers = [(name, classifier) for name in COLUMNS], list(own.items())
    return [
        MLNDetector(RULES, concepts, random_state=0, **params)
        .fit(X, y)
        .score(X_test, y_test)
        for concepts in readers
    ]


@pytest.mark.parametrize(
    "classifier",
    [
        pytest.param(LogisticRegression(), id="linear"),
        pytest.param(
            RandomForestClassifier(20, random_state=0),
            id="forest",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_concepts_read_from_all_columns_contradict_nothing(classifier):
    """All ID signs keep the rules, so that the class gives the color away."""
    found = np.array([areas(classifier, seed) for seed in range(3)])
    of_all, of_own = found.T
    assert (of_all < 0.55).all()
    assert (of_own > 0.94).all()


def test_probabilities_still_show_the_contradiction():
    """Classifiers of all columns are less sure where the columns contradict."""
    of_all, of_own = areas(LogisticRegression(), 0, marginalize=True)
    assert 0.9 < of_all < of_own
