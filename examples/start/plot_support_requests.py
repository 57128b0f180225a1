"""
==========================
Requests to a support desk
==========================

A classifier sends each request to one of four desks. It must not send requests that no
desk handles, and requests it is unsure of go to a person. No such request is known in
advance. Later, customers write about a new product, and a monitor raises an alarm.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Requests
# --------
#
# The requests are generated: an opening, a sentence of the desk, and a closing. Three
# of ten sentences name a second desk as well, which makes the classifier unsure.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skood.combine import Bonferroni, DetectorEnsemble
from skood.detectors import KNN, KnownWords
from skood.metrics import AcceptanceRegionDisplay
from skood.monitor import ExchangeabilityMonitor, MartingaleDisplay
from skood.rejection import RejectOptionClassifier, TwoThresholds

rng = np.random.default_rng(0)
WORDS = {
    "card": "card pin lost stolen blocked withdrawal machine magnetic replacement chip",
    "loan": "loan mortgage interest instalment repayment house credit rate term lender",
    "login": "password login browser locked username screen code reset app account",
    "transfer": "transfer payment recipient iban abroad currency pending fee sum",
    "coins": "bitcoin wallet blockchain mining token exchange ledger staking coin",
}
OPENINGS = ("hello", "dear team", "good morning", "hi there", "please help")
PHRASES = (
    "i have a question about my",
    "there is a problem with the",
    "what about the",
)
CLOSINGS = ("thanks a lot", "please call me back", "i need this today", "best regards")


def request(desk, other=None):
    """Return one request to a desk; with `other`, it also concerns that desk."""
    words = list(rng.choice(WORDS[desk].split(), 3, replace=False))
    words += [] if other is None else list(rng.choice(WORDS[other].split(), 3))
    sentence = f"{rng.choice(PHRASES)} {' '.join(words)}"
    return f"{rng.choice(OPENINGS)} {sentence} {rng.choice(CLOSINGS)}"


def requests(n, new=0.0):
    """Return n requests, a fraction `new` of them about coins, and their desks."""
    desks = rng.choice(["card", "loan", "login", "transfer"], n)
    others = rng.permuted(desks)
    mixed = rng.random(n) < 0.3
    desks = np.where(rng.random(n) < new, "coins", desks)
    pairs = zip(desks, others, mixed, strict=True)
    texts = [request(d, o if m and d != "coins" else None) for d, o, m in pairs]
    return texts, np.where(desks == "coins", "unknown", desks)


texts, desks = requests(2000)
train, held_out, y_train, y_held_out = train_test_split(texts, desks, random_state=0)
print(train[0], "->", y_train[0])

# %%
# A desk, or a person
# -------------------
#
# At most 5 % of the requests to the four desks are rejected as unlike the training data
# and at most 25 % as uncertain, each with a probability of 95 % over the calibration
# requests. Two detectors complement each other: the fraction of known words, and the
# distance to the nearest training requests.
words = KnownWords(CountVectorizer(stop_words="english"))
clf = RejectOptionClassifier(
    make_pipeline(TfidfVectorizer(stop_words="english"), LogisticRegression()),
    ood_detector=DetectorEnsemble(
        [("words", words), ("neighbors", KNN())], combiner=Bonferroni()
    ),
    rule=TwoThresholds(ood=0.05, risk=0.25),
    guarantee="high_probability",
    ood_label="unknown",
    random_state=0,
).fit(train, y_train)
test, y_test = requests(1000, new=0.15)
known = y_test != "unknown"
errors = clf.estimator_.predict(test)[known] != y_test[known]
print(f"errors of the classifier alone: {errors.mean():.3f}")
print(clf.report(test, y_test))

# %%
# A request is answered by a desk, or with the reason why it is not:
for text in (
    "please help, my card is lost and the pin blocked",
    "hello, what about the loan and the interest, and the app and its code",
    "dear team, can i put a bitcoin wallet and its ledger on my blocked card",
):
    print(text, "->", clf.predict([text])[0])
    print("   ", clf.explain([text]).sentences[0])

# %%
# The scores of both rules. Requests about coins are above the upper bound.
figure, ax = plt.subplots(figsize=(6.5, 4.5), layout="constrained")
AcceptanceRegionDisplay.from_estimator(clf, test, y_test, ax=ax)

# %%
# A new product
# -------------
#
# A monitor compares the scores of incoming requests with the scores of requests that
# nothing was fitted on. It needs no labels; a false alarm has a probability of at most
# 1 % over all time. After 600 requests, one of ten concerns coins.
detector = FrozenEstimator(clf.ood_detector_)
monitor = ExchangeabilityMonitor(detector, random_state=0).fit(held_out)
monitor.update(requests(600)[0])
print("alarm before the change:", monitor.alarm_)
monitor.update(requests(600, new=0.1)[0])
print("alarm at request", monitor.alarm_.row, "estimated start", monitor.alarm_.start)
figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
MartingaleDisplay.from_monitor(monitor, ax=ax)
plt.show()
