"""The problem on which RejectOptionClassifier is tested."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from html.parser import HTMLParser

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from skood.detectors import KNN
from skood.rejection import BoundedTPRFPR, RejectOptionClassifier

RULE = BoundedTPRFPR(tpr_min=0.6, fpr_max=0.4)


def make_data(seed=0, n_per_class=50, n_ood=40):
    """Three overlapping classes in the plane, and OOD rows next to one of them."""
    rng = np.random.default_rng(seed)
    means = np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 2.0]])
    y = np.repeat([0, 1, 2, -1], [n_per_class] * 3 + [n_ood])
    X = rng.normal(size=(len(y), 2))
    X[y >= 0] += means[y[y >= 0]]
    X[y < 0] += [4.0, -1.5]
    order = rng.permutation(len(y))
    return X[order], y[order]


X, Y = make_data()
X_NEW, Y_NEW = make_data(seed=1)
PLAIN_KNN = KNN(n_neighbors=3, normalize=False)


def make_clf(estimator=None, **params):
    params = {"rule": RULE, "ood_detector": PLAIN_KNN, "random_state": 0, **params}
    clf = RejectOptionClassifier(
        LogisticRegression() if estimator is None else estimator, **params
    )
    return clone(clf)  # so that no test writes to the objects above


def selective(estimator=None, *detectors, **params):
    """RejectOptionClassifier of logistic regression, with its other defaults."""
    estimator = LogisticRegression() if estimator is None else estimator
    return RejectOptionClassifier(estimator, *detectors, random_state=0, **params)


class Cells(HTMLParser):
    """Text of the cells of a table by line, and tags, with checked nesting."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.lines, self.caption = [], [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.append(tag)
        if tag == "tr":
            self.lines.append([])
        elif tag in ("td", "th"):
            self.lines[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.lines[-1][-1] += data
        elif self.open and self.open[-1] == "caption":
            self.caption += data
