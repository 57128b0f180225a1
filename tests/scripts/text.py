"""Text: three linear models of words, which reject off-topic paragraphs."""

import email.message
import http.client
import inspect
import re

import numpy as np
import scipy.linalg
import scipy.signal
import scipy.stats
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from skood.detectors import KNN, MSP
from skood.rejection import RejectOptionClassifier, TwoThresholds


def paragraphs(*modules):
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
for model in (LogisticRegression(), SGDClassifier(loss="log_loss"), LinearSVC()):
    clf = RejectOptionClassifier(
        make_pipeline(TfidfVectorizer(stop_words="english"), model),
        risk_detector=MSP(),
        ood_detector=KNN(),
        rule=TwoThresholds(ood=0.1, risk=0.1),
        guarantee="high_probability",
        random_state=0,
    ).fit(texts, y)
    answers = clf.predict(new)
    accepted = answers != "reject"
    rejected = np.mean(clf.predict(off_topic) == "reject")
    errors = np.mean(answers[accepted] != y_new[accepted])
    print(f"{type(model).__name__}: {1 - np.mean(accepted):.0%} of new paragraphs and")
    print(f"{rejected:.0%} of off-topic ones rejected, {errors:.1%} errors")
    assert np.mean(~accepted) <= 0.2
    assert rejected > 0.6
    assert errors < 1 - clf.estimator_.score(new, y_new)
