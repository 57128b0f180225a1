"""Fraction of the words of a document that occur in the training documents."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from collections import Counter
from itertools import repeat
from numbers import Integral

import numpy as np
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator

from skood.base import BaseDetector
from skood.utils._input import takes_input
from skood.utils._optional import import_pandas
from skood.utils._param_validation import HasMethods
from skood.utils._weights import unit_counts


class KnownWords(BaseDetector):
    r"""Fraction of the words of a document that occur in the training documents.

    .. math:: s(x) = \frac{\#\{j : t_j \in V\}}{n}

    for a document x of the tokens :math:`t_1, \dots, t_n` and the vocabulary V of the
    training documents; 0 without tokens. A bag of words, such as TF-IDF, loses words
    outside V: a document of many unknown and few common words has the vector of its
    common words.

    Read more in the :ref:`User Guide <known_words>`.

    Parameters
    ----------
    vectorizer : object, default=None
        :class:`~sklearn.feature_extraction.text.CountVectorizer` or a subclass, which
        is cloned and fitted: its analyzer splits documents into tokens, and V is its
        vocabulary. None: ``CountVectorizer()``. One in a
        :class:`~sklearn.frozen.FrozenEstimator`, or with `vocabulary`, keeps its own V.
        A ``HashingVectorizer`` has none.

    contamination : float, default=0.05
        Fraction of new ID documents to reject; a smaller one if scores are tied, as
        the scores of short documents are.

    ood_label : int or str, default=-1
        Label of known OOD documents in ``y``; they are excluded from the fit.

    Attributes
    ----------
    vectorizer_ : object
        The fitted vectorizer.

    offset_ : float
        Threshold: at most a fraction `contamination` of scores of training documents,
        each left out of the fit, are below it, see :ref:`ties`. In its document, a word
        that no other document has is unknown.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`, if known.

    See Also
    --------
    KNN : In a pipeline after a ``TfidfVectorizer``, the nearest neighbor among
        training documents by their known words.
    skood.combine.DetectorEnsemble : Combines both.

    Notes
    -----
    `X` of all methods is a list, array or Series of strings. Weights count as repeated
    documents for the threshold, not for `min_df` and `max_df` of the vectorizer.

    References
    ----------
    .. [1] I. J. Good. The population frequencies of species and the estimation of
       population parameters. Biometrika 40, 1953.

    Examples
    --------
    >>> from skood.detectors import KnownWords
    >>> texts = ["red wine and cheese", "white wine", "cheese and bread", "red bread"]
    >>> detector = KnownWords().fit(texts)
    >>> detector.score_samples(["red wine or beer", "white bread"])
    array([0.5, 1. ])
    >>> detector.explain(["red wine or beer"])["unknown_words"][0]
    ['or', 'beer']
    """

    _parameter_constraints: dict = {
        "vectorizer": [HasMethods(["fit", "build_analyzer"]), None],
        **BaseDetector._parameter_constraints,
    }

    _keeps_contamination = False  # ratios of small numbers are tied

    def __init__(self, vectorizer=None, *, contamination=0.05, ood_label=-1):
        super().__init__(contamination=contamination, ood_label=ood_label)
        self.vectorizer = vectorizer

    def _fit_samples(self, X, y, sample_weight=None):
        return super()._fit_samples(_documents(X), y, sample_weight)

    def _fit(self, X, y, sample_weight=None):
        vectorizer = CountVectorizer() if self.vectorizer is None else self.vectorizer
        fitted = clone(vectorizer).fit(X, y)
        if not hasattr(fitted, "vocabulary_"):
            raise TypeError(
                f"{type(vectorizer).__name__} has no vocabulary, so that no word is "
                "unknown to it. Use KnownWords(CountVectorizer())."
            )
        self.vectorizer_ = fitted
        tokens, known = self._tokens(X), fitted.vocabulary_
        if not (isinstance(vectorizer, FrozenEstimator) or fitted.fixed_vocabulary_):
            # The vocabulary of all other documents, as in Good-Turing estimation [1].
            copies = repeat(1) if sample_weight is None else unit_counts(sample_weight)
            frequency: Counter = Counter()
            for words, n_copies in zip(tokens, copies, strict=False):
                frequency.update(dict.fromkeys(words, n_copies))
            is_number = isinstance(fitted.min_df, Integral)
            least = max(fitted.min_df * (1 if is_number else len(X) - 1), 1)
            known = {word for word in known if frequency[word] - 1 >= least}
        return _known_fractions(tokens, known)

    def _tokens(self, documents):
        return [*map(list, map(self.vectorizer_.build_analyzer(), documents))]

    def _score(self, X):
        return _known_fractions(
            self._tokens(_documents(X)), self.vectorizer_.vocabulary_
        )

    @takes_input
    def explain(self, X):
        """Return the unknown words of each document.

        Parameters
        ----------
        X : array-like of str of shape (n_samples,)
            The documents.

        Returns
        -------
        explanation : pandas.DataFrame
            One row per document, with the index of `X` if it is a Series: ``score``,
            ``is_ood``, and ``unknown_words``, the list of tokens that are not in the
            vocabulary, in the order of their first occurrence.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        scores, known = self.score_samples(X), self.vectorizer_.vocabulary_
        unknown = [
            [word for word in dict.fromkeys(words) if word not in known]
            for words in self._tokens(X)
        ]
        return import_pandas("explain").DataFrame(
            {
                "score": scores,
                "is_ood": scores < self.offset_,
                "unknown_words": unknown,
            },
            index=X.index if hasattr(X, "iloc") else None,
        )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags


def _known_fractions(tokens, known):
    """Return the fraction of known tokens of each document; 0 without tokens."""
    n_known = [sum(map(known.__contains__, words)) for words in tokens]
    return np.array(n_known) / np.maximum([len(words) for words in tokens], 1)


def _documents(X):
    """Return documents as a list of strings, or raise."""
    expected = "X must be a list, array or Series of strings, one for each document"
    shape = getattr(X, "shape", None)
    if len(shape) != 1 if shape is not None else not isinstance(X, (list, tuple)):
        remedy = "[text] for one document" if isinstance(X, str) else "X['column']"
        kind = type(X).__name__ if shape is None else f"shape {tuple(shape)}"
        raise TypeError(f"{expected}, got {kind}. Pass {remedy}.")
    if not len(X):
        raise ValueError(f"{expected}, got none: a minimum of 1 is required.")
    for i, text in enumerate(X):
        if not isinstance(text, str):
            raise TypeError(
                f"{expected}, but number {i} is {text!r:.40}, a {type(text).__name__}. "
                "Decode bytes, join the tokens of a document by spaces, and replace "
                "missing documents by ''."
            )
    return list(X)
