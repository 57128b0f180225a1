"""Tests of the transformer that is fitted on ID samples only."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    Normalizer,
    OneHotEncoder,
    StandardScaler,
)
from sklearn.utils import get_tags

from skood.detectors import KNN
from skood.exceptions import SkoodWarning
from skood.model_selection import IDOnly, OODStratifiedKFold
from tests._loops import looped

RNG = np.random.default_rng(0)
Y = np.repeat([0, 1, -1], [150, 150, 100])
X = RNG.normal(size=(400, 6)) + 3 * np.eye(6)[Y]
X[Y == -1, 0] += 1000.0  # far, in a feature that also tells other OOD samples
IS_ID = Y != -1
X_NEW = RNG.normal(size=(400, 6)) + 3 * np.eye(6)[Y]
X_NEW[Y == -1, 0] += 6.0
KNN_5 = KNN(n_neighbors=5, normalize=False)


def test_ood_samples_do_not_change_a_pipeline():
    """A scaler that sees far OOD samples squeezes the feature that they are far in."""
    clean = make_pipeline(StandardScaler(), KNN_5).fit(X[IS_ID], Y[IS_ID])
    with pytest.warns(SkoodWarning, match="IDOnly"):
        plain = make_pipeline(StandardScaler(), KNN_5).fit(X, Y)
    accepted = make_pipeline(IDOnly(StandardScaler()), KNN_5).fit(X, Y)
    assert_array_equal(accepted.score_samples(X_NEW), clean.score_samples(X_NEW))
    assert accepted.score(X_NEW, Y) > 0.9
    assert plain.score(X_NEW, Y) < accepted.score(X_NEW, Y) - 0.2


def test_categories_of_ood_samples_are_not_learned():
    """A category that only training OOD samples have is as unknown as any other."""
    words = np.array(["ant", "bee", "elk"])[Y][:, None]
    encoder = OneHotEncoder(handle_unknown="ignore")
    fitted = IDOnly(encoder).fit(words, Y)
    assert fitted.transformer_.categories_[0].tolist() == ["ant", "bee"]
    assert fitted.transform([["elk"]]).toarray().tolist() == [[0.0, 0.0]]
    assert clone(encoder).fit(words, Y).transform([["elk"]]).toarray().sum() == 1.0


@looped("transformer", [StandardScaler(), PCA(2), SelectKBest(k=2), MaxAbsScaler()])
@looped("as_given", [np.asarray, pd.DataFrame, csr_array, list])
def test_equals_a_fit_on_id_samples(transformer, as_given):
    if as_given is csr_array:
        transformer = MaxAbsScaler()
    samples, new = as_given(X), as_given(X_NEW)
    expected = clone(transformer).fit(as_given(X[IS_ID]), Y[IS_ID]).transform(new)
    for labels in (Y, Y.tolist(), pd.Series(Y, index=Y + 7)):
        fitted = IDOnly(transformer).fit(samples, labels)
        actual = fitted.transform(new)
        if as_given is csr_array:
            actual, wanted = actual.toarray(), expected.toarray()
        else:
            wanted = expected
        assert_array_equal(actual, wanted)
        assert fitted.n_features_in_ == 6
    assert vars(transformer).keys() == vars(clone(transformer)).keys()  # untouched


def test_labels():
    names = np.where(IS_ID, np.array(["ant", "bee", "?"])[Y], "ood")
    expected = StandardScaler().fit(X[IS_ID]).mean_
    assert_array_equal(
        IDOnly(StandardScaler(), ood_label="ood").fit(X, names).transformer_.mean_,
        expected,
    )
    table = np.stack([np.abs(Y), Y], axis=1)  # the second column marks OOD samples
    assert_array_equal(
        IDOnly(StandardScaler()).fit(X, table).transformer_.mean_, expected
    )
    for y in (None, np.abs(Y)):
        fitted = IDOnly(StandardScaler()).fit(X, y)
        assert_array_equal(fitted.transformer_.mean_, X.mean(axis=0))
    with pytest.raises(ValueError, match="No in-distribution samples to fit"):
        IDOnly(StandardScaler()).fit(X, np.full(len(X), -1))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        IDOnly(StandardScaler()).fit(X, Y[:-1])
    with pytest.raises(ValueError, match="contain '-1', but ood_label=-1"):
        IDOnly(StandardScaler()).fit(X, Y.astype(str))
    with pytest.raises(ValueError, match="X is required, got None"):
        IDOnly(StandardScaler()).fit(None, Y)


def test_in_a_search_and_frozen():
    pipe = make_pipeline(IDOnly(PCA()), KNN_5)
    search = GridSearchCV(
        pipe,
        {"idonly__transformer__n_components": [1, 6]},
        cv=OODStratifiedKFold(3),
        error_score="raise",
    ).fit(X, Y)
    assert search.best_score_ > 0.9
    frozen = FrozenEstimator(StandardScaler().fit(X_NEW))
    fitted = IDOnly(frozen).fit(X, Y)
    assert_array_equal(fitted.transform(X), frozen.transform(X))


def test_names_and_output_of_frames():
    frame = pd.DataFrame(X, columns=list("abcdef"))
    fitted = IDOnly(StandardScaler()).set_output(transform="pandas").fit(frame, Y)
    out = fitted.transform(frame)
    assert list(out.columns) == list(fitted.feature_names_in_) == list("abcdef")
    # sums of a frame's columns are in another order than those of an array's
    assert_allclose(out, StandardScaler().fit(X[IS_ID]).transform(X), rtol=1e-9)
    mixed = IDOnly(make_column_transformer((StandardScaler(), ["b", "a"])))
    mixed.set_output(transform="pandas").fit(frame, Y)
    assert list(mixed.transform(frame).columns) == [
        "standardscaler__b",
        "standardscaler__a",
    ]
    assert mixed.get_feature_names_out().tolist() == list(mixed.transform(frame))


def test_methods_and_tags_follow_the_transformer():
    fitted = IDOnly(StandardScaler()).fit(X, Y)
    assert np.allclose(fitted.inverse_transform(fitted.transform(X_NEW)), X_NEW)
    assert not hasattr(IDOnly(Normalizer()), "inverse_transform")
    for inner in (StandardScaler(), PCA(), SelectKBest(), MaxAbsScaler()):
        ours, theirs = get_tags(IDOnly(inner)), get_tags(inner)
        assert ours.input_tags == theirs.input_tags
        assert ours.target_tags == theirs.target_tags
        assert ours.transformer_tags == theirs.transformer_tags
    for method in ("transform", "inverse_transform"):
        with pytest.raises(NotFittedError):
            getattr(IDOnly(StandardScaler()), method)(X)


def test_what_is_no_transformer():
    for arguments in (KNN_5, StandardScaler, None):
        with pytest.raises(ValueError, match="'transformer' parameter of IDOnly must"):
            IDOnly(arguments).fit(X, Y)
