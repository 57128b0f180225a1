"""What the tests of displays share."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from sklearn.linear_model import LogisticRegression


class MarginDetector(LogisticRegression):
    """A detector around a classifier: scores by minus the norm of a row."""

    def fit(self, X, y):
        self.estimator_ = LogisticRegression(max_iter=500).fit(X, y)
        self.classes_ = self.estimator_.classes_
        self.offset_ = -8.0
        return self

    def score_samples(self, X):
        return -np.linalg.norm(X, axis=1)


def legend_texts(display):
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]
