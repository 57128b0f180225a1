"""Tests of the fraction of known words."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle
from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.feature_extraction.text import (
    CountVectorizer,
    HashingVectorizer,
    TfidfVectorizer,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline

from skood.base import BaseDetector
from skood.combine import Bonferroni, DetectorEnsemble
from skood.detectors import KNN, KnownWords
from skood.metrics import auroc, make_ood_scorer
from skood.persistence import dumps, loads
from skood.rejection import RejectOptionClassifier, TwoThresholds
from skood.utils._ties import threshold_at
from skood.utils.estimator_checks import check_detector
from tests._instances import documents

INSTANCES = [
    KnownWords(),
    KnownWords(TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), min_df=2)),
]

TRAINING = [
    "gadepa pugilu gasugi gasugi nikudu sikebu",
    "nikudu nabese nimoge dapemo totopi",
    "gabona nukonu runapa gasugi gabona bepole poriso nonupu",
    "bepole nikudu nikudu ludema sarudi",
    "nikudu bepole tukegu nukonu gadepa migule gadepa pugilu",
    "pugilu runapa gabona nabese nukonu pugilu gasugi migule rolulu birili",
    "nikudu tukegu gabona tukegu nimono gasugi bepole kikubo neloso",
    "nikudu gadepa gabona gabona nabese bepole nabese ragope rikase",
    "nimono pugilu nikudu nabese pugilu kikubo mokopi",
    "migule nukonu nikudu nabese nabese bitaki kaluda",
    "tukegu gadepa gabona pugilu pugilu gabona tukegu gabona komidi latipa",
    "nabese nabese pugilu gabona pugilu runapa limodu",
]
NEW = [
    "nabese nikudu gasugi kikubo migule",
    "gadepa gabona nabese gadepa kamupa rerumi",
    "turona netuse simuma rugomo",
    "",
    "runapa nimono pugilu bepole gabona pugilu migule salara",
]
SCORES = [1, 4 / 6, 0, 0, 7 / 8]
LEFT_OUT = [5 / 6, 2 / 5, 6 / 8, 3 / 5, 1, 0.8, 8 / 9, 7 / 9, 6 / 7, 5 / 7, 0.8, 6 / 7]


@pytest.fixture
def training_scores(monkeypatch):
    """Collect the scores that thresholds are computed from."""
    collected = []
    set_offset = BaseDetector._set_offset

    def collect(self, scores):
        collected.append(scores)
        set_offset(self, scores)

    monkeypatch.setattr(BaseDetector, "_set_offset", collect)
    return collected


def test_scores(training_scores):
    detector = KnownWords(contamination=0.25).fit(TRAINING)
    np.testing.assert_allclose(training_scores[0], LEFT_OUT, rtol=1e-12)
    assert detector.offset_ == threshold_at(np.array(LEFT_OUT), 0.25)
    np.testing.assert_allclose(detector.score_samples(NEW), SCORES, rtol=1e-12)


@pytest.mark.parametrize(
    "vectorizer",
    [
        CountVectorizer(),
        CountVectorizer(min_df=3),
        CountVectorizer(min_df=0.3),
        TfidfVectorizer(stop_words=["nikudu"], ngram_range=(1, 2)),
        TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 3), min_df=2),
        CountVectorizer(analyzer=str.split),
    ],
    ids=repr,
)
def test_training_scores_are_those_of_fits_without_the_document(
    vectorizer, training_scores
):
    KnownWords(vectorizer).fit(TRAINING)
    for i, text in enumerate(TRAINING):
        others = TRAINING[:i] + TRAINING[i + 1 :]
        score = KnownWords(vectorizer).fit(others).score_samples([text])
        assert training_scores[0][i] == pytest.approx(score[0], rel=1e-12)


@pytest.mark.parametrize("how", ["vocabulary", "frozen"])
def test_vocabulary_that_is_not_fitted(how, training_scores):
    words = ["gadepa", "sikebu", "salara"]
    vectorizer = CountVectorizer(vocabulary=words)
    if how == "frozen":
        vectorizer = FrozenEstimator(CountVectorizer().fit([" ".join(words)]))
    detector = KnownWords(vectorizer).fit(TRAINING)
    np.testing.assert_allclose(training_scores[0][[0, 4]], [2 / 6, 2 / 8])
    np.testing.assert_allclose(detector.score_samples(NEW)[[1, 4]], [2 / 6, 1 / 8])


@pytest.mark.parametrize("weighted", [[0, 2], [5]])
def test_integer_weights_are_repeated_documents(weighted, training_scores):
    weight = np.ones(len(TRAINING), dtype=int)
    weight[weighted] = 3
    weight[7] = 0
    repeated = np.repeat(TRAINING, weight).tolist()
    expected = KnownWords(contamination=0.3).fit(repeated)
    detector = KnownWords(contamination=0.3).fit(TRAINING, sample_weight=weight)
    assert detector.offset_ == expected.offset_
    np.testing.assert_array_equal(
        detector.score_samples(NEW), expected.score_samples(NEW)
    )
    scores, counts = training_scores[1]
    copies = np.repeat(scores, counts.astype(int))
    np.testing.assert_array_equal(copies, training_scores[0])


# ---------------------------------------------------------------------------------
# Off-topic documents with words of their own.

SYLLABLES = np.array([a + b for a in "bdfgklmnprstvz" for b in "aeiou"])


def _words(n, rng):
    """Different words of two to four syllables."""
    words: dict = {}
    while len(words) < n:
        words["".join(rng.choice(SYLLABLES, size=rng.integers(2, 5)))] = None
    return np.array(list(words))


@cache
def _texts(kind, new, seed):
    """Training documents and test documents on three topics, off-topic documents."""
    rng = np.random.default_rng(seed)
    names, sizes = ("sport", "law", "med", "cook", "w"), (150, 150, 150, 150, 200)
    if kind == "prefix":
        groups = [
            np.array([f"{name}{i}" for i in range(size)])
            for name, size in zip(names, sizes, strict=True)
        ]
    else:
        groups = np.split(_words(800, rng), np.cumsum(sizes)[:-1])
    *topics, common = groups

    def document(topic):
        n = rng.integers(15, 40)
        on_topic = rng.random(n) < 0.3
        tokens = np.where(on_topic, rng.choice(topic, n), rng.choice(common, n))
        fresh = np.array([f"{word}x" for word in _words(n, rng)])
        return " ".join(np.where(rng.random(n) < new, fresh, tokens))

    def corpus(n):
        return [document(topic) for topic in topics[:3] for _ in range(n)]

    return corpus(250), corpus(80), [document(topics[3]) for _ in range(150)]


def _auroc(detector, known, off_topic):
    labels = [0] * len(known) + [-1] * len(off_topic)
    return auroc(labels, detector.score_samples([*known, *off_topic]))


def _neighbors(**options):
    return make_pipeline(TfidfVectorizer(**options), KNN())


def _ensemble(vectorizer=None, **options):
    members = [("words", KnownWords(vectorizer)), ("neighbors", _neighbors(**options))]
    return DetectorEnsemble(members, combiner=Bonferroni(), random_state=0)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3, 4))]
)
@pytest.mark.parametrize("new", [0.0, 0.05])
@pytest.mark.parametrize("kind", ["prefix", "syllables"])
def test_documents_with_unknown_words_are_off_topic(kind, new, seed):
    training, known, off_topic = _texts(kind, new, seed)
    ensemble = _ensemble().fit(training)
    assert _auroc(ensemble, known, off_topic) >= 0.95
    words = KnownWords().fit(training)
    assert 0.92 <= np.mean(words.predict(known) == 1) <= 1
    assert np.mean(words.predict(off_topic) == -1) > 0.9


@pytest.mark.parametrize("normalize", [True, False])
def test_neighbors_alone_take_documents_with_unknown_words_for_familiar(normalize):
    """The reason for the ensemble: the known words of such documents are common."""
    training, known, off_topic = _texts("syllables", 0.0, 0)
    neighbors = make_pipeline(TfidfVectorizer(), KNN(normalize=normalize))
    assert _auroc(neighbors.fit(training), known, off_topic) < 0.3


@pytest.mark.parametrize("normalize", [True, False])
def test_document_without_a_known_word(normalize):
    """TF-IDF maps it to the origin, which is nearer than documents of other words."""
    training, known, _ = _texts("syllables", 0.0, 0)
    neighbors = make_pipeline(TfidfVectorizer(), KNN(normalize=normalize)).fit(training)
    unknown = neighbors.score_samples(["xxx yyy", ""])
    np.testing.assert_allclose(unknown, -1, rtol=1e-6)
    ensemble = _ensemble().fit(training)
    assert np.all(ensemble.predict(["xxx yyy", ""]) == -1)
    assert np.mean(ensemble.predict(known) == 1) > 0.9


# ---------------------------------------------------------------------------------
# Input.


@pytest.mark.parametrize(
    "convert",
    [
        tuple,
        np.array,
        lambda texts: np.array(texts, dtype=object),
        lambda texts: pd.Series(texts, index=np.arange(len(texts))[::-1]),
        lambda texts: pd.Series(texts, dtype="string"),
        lambda texts: pd.Series(texts, dtype="category"),
    ],
)
def test_kinds_of_sequences(convert):
    detector = KnownWords().fit(convert(TRAINING))
    assert detector.offset_ == KnownWords().fit(TRAINING).offset_
    np.testing.assert_allclose(detector.score_samples(convert(NEW)), SCORES)


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        ("red wine", TypeError, r"for each document, got str\. Pass \[text\]"),
        (b"red wine", TypeError, "got bytes"),
        ({"a": "red"}, TypeError, "got a dict"),
        (map(str, [1, 2]), TypeError, "got map"),
        (pd.DataFrame({"text": TRAINING}), TypeError, r"got shape \(12, 1\).*column"),
        (np.array([TRAINING]), TypeError, r"got shape \(1, 12\)"),
        (np.array("red"), TypeError, r"got shape \(\)"),
        (np.eye(2), TypeError, r"got shape \(2, 2\)"),
        ([], ValueError, "got none: a minimum of 1 is required"),
        (["red", b"wine"], TypeError, "number 1 is b'wine', a bytes. Decode bytes"),
        (["red", None], TypeError, "number 1 is None, a NoneType.*missing documents"),
        (pd.Series(["red", np.nan]), TypeError, "number 1 is nan, a float"),
        ([1, 2], TypeError, "number 0 is 1, a int"),
        ([["red", "wine"], ["white"]], TypeError, r"number 0 is \['red', .*join the"),
    ],
)
def test_other_input(X, error, message):
    with pytest.raises(error, match=message):
        KnownWords().fit(X)
    with pytest.raises(error, match=message):
        KnownWords().fit(X, [0, 1])
    fitted = KnownWords().fit(TRAINING)
    for method in (fitted.score_samples, fitted.predict, fitted.explain):
        with pytest.raises(error, match=message):
            method(X)
    assert fitted.score_samples(NEW).tolist() == pytest.approx(SCORES)


def test_vectorizers_without_a_vocabulary():
    with pytest.raises(TypeError, match="HashingVectorizer has no vocabulary"):
        KnownWords(HashingVectorizer()).fit(TRAINING)
    with pytest.raises(ValueError, match="'vectorizer' parameter of KnownWords"):
        KnownWords(LogisticRegression()).fit(TRAINING)
    with pytest.raises(ValueError, match="write KNN"):
        KnownWords(CountVectorizer).fit(TRAINING)
    with pytest.raises(ValueError, match="empty vocabulary"):
        KnownWords().fit(["", "a"])


# ---------------------------------------------------------------------------------
# Explanations, and the tools that detectors work with.


def test_explanation():
    detector = KnownWords().fit(TRAINING)
    texts = pd.Series([*NEW, "xx yy xx pugilu"], index=list("abcdef"))
    frame = detector.explain(texts)
    assert list(frame) == ["score", "is_ood", "unknown_words"]
    assert list(frame.index) == list("abcdef")
    np.testing.assert_allclose(frame["score"], [*SCORES, 1 / 4])
    is_ood = detector.predict(texts) == -1
    np.testing.assert_array_equal(frame["is_ood"], is_ood)
    assert 0 < is_ood.sum() < len(texts)
    expected = [[], ["kamupa", "rerumi"], NEW[2].split(), [], ["salara"], ["xx", "yy"]]
    assert frame["unknown_words"].tolist() == expected


class _OfRows(KnownWords):
    """Rows of numbers as documents, for checks that fit on arrays."""

    def _fit_samples(self, X, y, sample_weight=None):
        X = self._validate(X, reset=True)
        if y is not None and len(y) != len(X):
            raise ValueError("inconsistent numbers of samples")
        return super()._fit_samples(documents(X), y, sample_weight)

    def _score(self, X):
        return super()._score(documents(self._validate(X, reset=False)))

    def __sklearn_tags__(self):
        return BaseDetector.__sklearn_tags__(self)


def test_conventions_of_detectors():
    check_detector(_OfRows())


def test_known_ood_documents_are_left_out():
    texts = [*TRAINING, "kamupa rerumi", "turona netuse"]
    labels = np.array(["a"] * 6 + ["b"] * 6 + ["off"] * 2)
    detector = KnownWords(ood_label="off").fit(texts, labels)
    expected = KnownWords().fit(TRAINING)
    assert detector.offset_ == expected.offset_
    assert detector.classes_.tolist() == ["a", "b"]
    np.testing.assert_allclose(detector.score_samples(NEW), SCORES)
    assert detector.score([*TRAINING, *NEW[2:4]], [*labels[:12], "off", "c"]) == 1


@pytest.mark.parametrize("detector", INSTANCES, ids=repr)
def test_files(detector):
    detector = clone(detector).fit(TRAINING)
    expected = detector.score_samples(NEW)
    for loaded in (pickle.loads(pickle.dumps(detector)), loads(dumps(detector))):
        np.testing.assert_array_equal(loaded.score_samples(NEW), expected)
        assert loaded.offset_ == detector.offset_
        assert loaded.vectorizer_.vocabulary_ == detector.vectorizer_.vocabulary_
    assert clone(detector).fit(NEW).vectorizer_ is not detector.vectorizer_


def test_search():
    training, known, off_topic = _texts("syllables", 0.05, 0)
    texts = [*training[::5], *known[::5], *off_topic[::5]]
    labels = np.array([0] * (len(texts) - 30) + [-1] * 30)
    search = GridSearchCV(
        KnownWords(CountVectorizer()),
        {"vectorizer__analyzer": ["word", "char"]},
        scoring=make_ood_scorer("auroc"),
        cv=StratifiedKFold(3, shuffle=True, random_state=0),
        error_score="raise",
    ).fit(texts, labels)
    assert search.best_params_ == {"vectorizer__analyzer": "word"}
    assert search.best_score_ > 0.9


@pytest.mark.parametrize("calibration", [0.3, 3])
def test_classifier_with_a_reject_option(calibration):
    training, known, off_topic = _texts("syllables", 0.0, 0)
    training, known = training[::2], known[::2]
    y, y_known = np.repeat([*"abc"], 125), np.repeat([*"abc"], 40)
    clf = RejectOptionClassifier(
        make_pipeline(TfidfVectorizer(), LogisticRegression()),
        ood_detector=_ensemble().set_params(calibration=calibration),
        rule=TwoThresholds(ood=0.1, risk=0.1),
        random_state=0,
    ).fit(training, y)
    assert np.mean(clf.predict(off_topic) == "reject") > 0.95
    accepted = clf.predict(known) != "reject"
    assert accepted.mean() > 0.7
    assert np.mean(clf.predict(known)[accepted] == y_known[accepted]) > 0.9
    sentences = clf.explain(off_topic).sentences
    reasons = [text for text in sentences if "out-of-distribution" in text]
    assert len(reasons) > 75
    assert all("words" in text for text in reasons)
