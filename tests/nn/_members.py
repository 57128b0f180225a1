"""Detectors that read one network in every way, and how often it runs."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline, make_union

from skood.detectors import KNN, MSP, Energy, SklearnDetector, ViM
from skood.nn import FeatureExtractor, split
from skood.nn._shared_forward import shared_outputs
from skood.rectifiers import DICE, ReAct
from skood.utils._left_out import unused_thresholds
from tests.nn._conv_net import conv_classifier, images

X = images(60)
NEW = images(35, seed=1)


def counted():
    """A classifier, and a list that gets the number of rows of each forward pass."""
    net, clf = conv_classifier()
    sizes = []
    net.register_forward_hook(lambda module, args, output: sizes.append(len(args[0])))
    return clf, sizes


def fit_all(detectors, X, y, shared):
    """Fit clones of detectors, in a block or one by one, as an ensemble does."""
    detectors = [clone(detector) for detector in detectors]
    with shared_outputs(detectors if shared else []), unused_thresholds():
        return [detector.fit(X, y) for detector in detectors]


def score_all(detectors, X, shared):
    with shared_outputs(detectors if shared else []):
        return [detector.score_samples(X) for detector in detectors]


def check_same(detectors, X, y, new):
    """Fit and score, with and without sharing; return the fitted detectors."""
    scores = []
    for fit_shared in (False, True):
        fitted = fit_all(detectors, X, y, fit_shared)
        scores += [score_all(fitted, new, shared) for shared in (False, True)]
    for actual in scores[1:]:
        assert_array_equal(actual, scores[0])
    return fitted


def _body(clf):
    return split(clf, layer="input:head")[0]


def _head(clf):
    return split(clf, layer="input:head")[1]


def _layer(clf, layer, *steps, **options):
    return make_pipeline(FeatureExtractor(clf, layer=layer, **options), *steps, KNN())


def _search(clf, **options):
    grid = {"n_neighbors": [1, 2]}
    return GridSearchCV(KNN(clf), grid, scoring=lambda *args: 0.0, **options)


# All the ways in which detectors use a frozen network.
MEMBERS = {
    "logits": MSP,
    "features": lambda clf: KNN(clf, n_neighbors=3),
    "head": lambda clf: ViM(clf, n_components=2),
    "frozen detector": lambda clf: FrozenEstimator(MSP(clf).fit(X, clf.predict(X))),
    "scikit-learn": lambda clf: SklearnDetector(
        clf, detector=LocalOutlierFactor(novelty=True)
    ),
    "penultimate": lambda clf: _layer(clf, "penultimate", ReAct()),
    "layer": lambda clf: _layer(clf, "conv1"),
    "index": lambda clf: _layer(clf, 1, ReAct()),
    "input": lambda clf: _layer(clf, "input:head"),
    "pooling": lambda clf: _layer(clf, "conv1", pooling="max"),
    "body": lambda clf: make_pipeline(
        "passthrough", _body(clf), ReAct(), Energy(_head(clf))
    ),
    "classifier": lambda clf: Energy(make_pipeline(_body(clf), ReAct(), _head(clf))),
    "DICE": lambda clf: Energy(make_pipeline(_body(clf), DICE(_head(clf)))),
    "union": lambda clf: make_pipeline(
        make_union(
            FeatureExtractor(clf, layer="conv1"),
            "drop",
            FeatureExtractor(clf, layer="conv2"),
        ),
        KNN(),
    ),
    "search": lambda clf: FrozenEstimator(_search(clf, cv=2).fit(X, clf.predict(X))),
    "search to fit": lambda clf: _search(clf, cv=[(np.arange(30), np.arange(30))]),
}
