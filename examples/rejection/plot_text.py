"""
===================
Off-topic documents
===================

A linear model of words assigns each document to one of its topics, whatever it is
about. The distance to the nearest training documents, which stay sparse, shows which
documents are off the topics. The recipe :doc:`/recipes/text` has the details.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Paragraphs of docstrings
# ------------------------
#
# The topics are three modules of SciPy. Docstrings of the standard library about mail
# and the internet are off topic.
import email.message
import http.client
import inspect
import re

import matplotlib.pyplot as plt
import numpy as np
import scipy.linalg
import scipy.signal
import scipy.stats
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skood.detectors import KNN
from skood.metrics import AcceptanceRegionDisplay
from skood.rejection import RejectOptionClassifier, TwoThresholds


def paragraphs(*modules):
    """Return the paragraphs of docstrings with at least 15 words."""
    things = [thing for module in modules for _, thing in inspect.getmembers(module)]
    classes = [thing for thing in things if inspect.isclass(thing)]
    things += [part for one in classes for part in vars(one).values()]
    texts = {inspect.getdoc(one) or "" for one in things if inspect.isroutine(one)}
    parts = {part for text in texts for part in text.split("\n\n")}
    return sorted(part for part in parts if len(re.findall("[a-z]{3,}", part)) >= 15)


known = [paragraphs(module) for module in (scipy.linalg, scipy.signal, scipy.stats)]
y = np.repeat(["algebra", "signals", "statistics"], [len(texts) for texts in known])
texts = [text for texts in known for text in texts]
texts, new, y, y_new = train_test_split(texts, y, stratify=y, random_state=0)
off_topic = paragraphs(email.message, http.client)

# %%
# A threshold for each score
# --------------------------
#
# At most a tenth of the documents on the topics is rejected by each score, with a
# probability of 95 % over the calibration documents. No off-topic document is used.
clf = RejectOptionClassifier(
    make_pipeline(TfidfVectorizer(stop_words="english"), LogisticRegression()),
    ood_detector=KNN(),
    rule=TwoThresholds(ood=0.1, risk=0.1),
    guarantee="high_probability",
    ood_label="off topic",
    random_state=0,
).fit(texts, y)
both, labels = [*new, *off_topic], [*y_new, *["off topic"] * len(off_topic)]
print(clf.report(both, labels))

# %%
# Most off-topic documents are above the rectangle, or right of it: as far from the
# training documents as documents with hardly a word in common. The documents at the
# bottom near 0.5 have near neighbors, but in two topics: boilerplate of all modules.
AcceptanceRegionDisplay.from_estimator(clf, both, labels)
plt.show()
