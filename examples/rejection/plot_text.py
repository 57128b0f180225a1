"""
===================
Off-topic documents
===================

A linear model of words assigns each document to one of its topics, whatever it is
about. The fraction of known words and the distance to the nearest training documents
show which documents are off the topics. The recipe :doc:`/recipes/text` has the
details.
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
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skood.combine import Bonferroni, DetectorEnsemble
from skood.detectors import KNN, KnownWords
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
# TF-IDF drops words that no training document has, so that an off-topic document can be
# near the training documents by its few common words. Its unknown words are counted by
# a detector of their own; an ensemble rejects documents that either finds unusual.
#
# At most a tenth of the documents on the topics is rejected by each score, with a
# probability of 95 % over the calibration documents. No off-topic document is used.
words = KnownWords(CountVectorizer(stop_words="english"))
clf = RejectOptionClassifier(
    make_pipeline(TfidfVectorizer(stop_words="english"), LogisticRegression()),
    ood_detector=DetectorEnsemble(
        [("words", words), ("neighbors", KNN())], combiner=Bonferroni()
    ),
    rule=TwoThresholds(ood=0.1, risk=0.1),
    guarantee="high_probability",
    ood_label="off topic",
    random_state=0,
).fit(texts, y)
both, labels = [*new, *off_topic], [*y_new, *["off topic"] * len(off_topic)]
print(clf.report(both, labels))

# %%
# The unknown words of the off-topic document with the smallest fraction of known words:
explanation = clf.ood_detector_.named_detectors_["words"].explain(off_topic)
row = explanation["score"].argmin()
print(off_topic[row])
print("unknown:", ", ".join(explanation["unknown_words"][row]))
print(clf.explain([off_topic[row]]).sentences[0])

# %%
# Most off-topic documents are above the rectangle: their minus log level under the
# ensemble is high. Levels are ranks among calibration documents, hence the horizontal
# lines. The documents at the bottom near 0.5 have near neighbors, but in two topics:
# boilerplate of all modules.
AcceptanceRegionDisplay.from_estimator(clf, both, labels)
plt.show()
