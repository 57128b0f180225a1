"""Detectors that read one network in every way, and how often it runs."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline, make_union

from skood.detectors import KNN, MSP, Energy, SklearnDetector, ViM
from skood.nn import FeatureExtractor, split
from skood.nn._shared_forward import shared_readings
from skood.rectifiers import DICE, ReAct
from skood.utils._left_out import unused_thresholds
from tests.nn._conv_net import conv_classifier, images

__all__ = ["NEW", "X", "check_same", "counted", "fit_all", "members", "score_all"]

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
    with shared_readings(detectors if shared else []), unused_thresholds():
        return [detector.fit(X, y) for detector in detectors]


def score_all(detectors, X, shared):
    with shared_readings(detectors if shared else []):
        return [detector.score_samples(X) for detector in detectors]


def check_same(detectors, X, y, new):
    """Fit and score, with and without sharing; return the fitted detectors."""
    alone, together = (fit_all(detectors, X, y, shared) for shared in (False, True))
    expected = score_all(alone, new, shared=False)
    for fitted in (alone, together):
        for shared in (False, True):
            for found, scores in zip(
                score_all(fitted, new, shared), expected, strict=True
            ):
                np.testing.assert_array_equal(found, scores)
    return together


def members(clf):
    """All the ways in which detectors read a frozen network."""
    body, head = split(clf, layer="input:head")
    frozen = FrozenEstimator(MSP(clf).fit(X, clf.predict(X)))
    search = GridSearchCV(
        KNN(clf), {"n_neighbors": [1, 2]}, scoring=lambda *args: 0.0, cv=2
    )
    return {
        "logits": MSP(clf),
        "features": KNN(clf, n_neighbors=3),
        "head": ViM(clf, n_components=2),
        "frozen detector": frozen,
        "scikit-learn": SklearnDetector(estimator=clf),
        "penultimate": make_pipeline(FeatureExtractor(clf), ReAct(), KNN()),
        "layer": make_pipeline(FeatureExtractor(clf, layer="conv1"), KNN()),
        "index": make_pipeline(FeatureExtractor(clf, layer=1), ReAct(), KNN()),
        "input": make_pipeline(FeatureExtractor(clf, layer="input:head"), KNN()),
        "pooling": make_pipeline(
            FeatureExtractor(clf, layer="conv1", pooling="max"), KNN()
        ),
        "body": make_pipeline("passthrough", body, ReAct(), Energy(head)),
        "classifier": Energy(make_pipeline(body, ReAct(), head)),
        "DICE": Energy(make_pipeline(body, DICE(head))),
        "union": make_pipeline(
            make_union(
                FeatureExtractor(clf, layer="conv1"),
                "drop",
                FeatureExtractor(clf, layer="conv2"),
            ),
            KNN(),
        ),
        "search": FrozenEstimator(search.fit(X, clf.predict(X))),
        "search to fit": clone(search).set_params(cv=[(np.arange(30), np.arange(30))]),
    }
