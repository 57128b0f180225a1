"""Scores that come from elsewhere, as the classifier of a reject option."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from skood.utils._estimator import SkoodEstimator
from skood.utils._labels import check_labels
from skood.utils._metaestimators import n_rows, unwrap, unwrapped
from skood.utils._param_validation import Classifier, fit_context
from skood.utils._scores import check_scores
from skood.utils._stored import stored
from skood.utils._warnings import warn


class ScoreTable(ClassifierMixin, SkoodEstimator):
    r"""Scores that come from elsewhere, such as of answers of a language model.

    It is the `estimator` of a `RejectOptionClassifier` whose samples have the scores as
    columns. Its prediction is `right` for every sample, so that zero-one losses mark
    wrong answers. The columns take the place of the detectors that are None.

    Read more in the :ref:`User Guide <answers>`.

    .. versionadded:: 0.2

    Parameters
    ----------
    risk : int, str or object, default=0
        The column of `X` with the risk score, high for answers to reject: its name, or
        its position. A classifier instead, such as a pipeline that selects columns,
        is fitted on the training samples, and gives one minus the probability p that
        the answer is right. In a :class:`~sklearn.frozen.FrozenEstimator` it is not
        fitted.

    ood : int or str, default=None
        The column with the OOD score, high for samples to reject. None: no second
        score, or the score of an `ood_detector` in a pipeline, which uses `X`.

    right : int or str, default=1
        Label of right answers in ``y``. Wrong ones have one other label.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels of right and of wrong answers.

    risk_ : object
        The fitted classifier, if `risk` is a classifier.

    See Also
    --------
    RejectOptionClassifier : The rule on the scores.
    certify : The same for arrays of scores, without an estimator.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.rejection import BoundedImprovement, RejectOptionClassifier
    >>> from skood.rejection import ScoreTable
    >>> rng = np.random.default_rng(0)
    >>> entropy = rng.uniform(size=500)
    >>> y = (rng.uniform(size=500) > entropy).astype(int)  # 1: right
    >>> rule = BoundedImprovement(risk_max=0.2)
    >>> clf = RejectOptionClassifier(ScoreTable(), rule=rule, calibration="same")
    >>> clf = clf.fit(entropy[:, None], y)
    >>> clf.predict([[0.1], [0.9]]), round(clf.operating_point_.tpr, 2)
    (array([ 1, -1]), 0.39)
    """

    _parameter_constraints: dict = {
        "risk": [Integral, str, Classifier()],
        "ood": [Integral, str, None],
        "right": [Integral, str],
    }

    # Labels and columns have a meaning, so that no data suit it as a classifier.
    _is_table = True

    def __init__(self, risk=0, ood=None, *, right=1):
        self.risk = risk
        self.ood = ood
        self.right = right

    @property
    def _fits_samples(self):
        return hasattr(self.risk, "fit") and not isinstance(self.risk, FrozenEstimator)

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y, sample_weight=None):
        """Check the columns and the labels; fit `risk` if it is a classifier.

        Parameters
        ----------
        X : {array-like, data frame} of shape (n_samples, n_columns)
            The scores, and other columns.

        y : array-like of shape (n_samples,)
            Labels of right and of wrong answers.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples, for `risk`.

        Returns
        -------
        self : object
            The fitted table.
        """
        classes = self._checked_classes(check_labels(y))
        if hasattr(self.risk, "fit"):
            weight = {} if sample_weight is None else {"sample_weight": sample_weight}
            self.risk_ = clone(self.risk).fit(X, y, **weight)
        self.classes_ = classes
        for name in ("risk", "ood"):
            if getattr(self, name) is not None:
                self._scores(X, name)
        return self

    def _checked_classes(self, y):
        """Return the labels of right and wrong answers, or raise."""
        classes = np.unique(y)
        labels = classes.tolist()
        if self.right not in labels:
            raise ValueError(
                f"y has no label of right answers, right={self.right!r}: its labels "
                f"are {labels[:5]}. Pass right=..., or samples of right answers."
            )
        if len(labels) > 2:
            raise ValueError(
                f"y of a ScoreTable has right={self.right!r}, one label of wrong "
                f"answers, and ood_label; got the labels {labels[:5]}."
            )
        if labels in ([0], [1]):  # the other label is not in doubt
            classes = np.array([0, 1], classes.dtype)
        return classes

    def _filled(self, parts):
        """Return parts with detectors of the columns in place of None."""
        estimator, *detectors = parts
        for i, name in enumerate(("risk", "ood")):
            if detectors[i] is None and getattr(self, name) is not None:
                detectors[i] = TableScore(name)
        return parts.like((estimator, *detectors))

    def _check(self, parts, y, calibration):
        """Raise for other detectors of the columns, or labels of no table."""
        self._checked_classes(y)
        for name, detector in zip(("risk", "ood"), parts[1:], strict=True):
            column = getattr(self, name)
            if column is not None and not isinstance(unwrapped(detector), TableScore):
                raise ValueError(
                    f"{name}_detector={detector!r}, but the score is "
                    f"{name}={column!r} of ScoreTable. Leave one of them out."
                )
        if not parts.learning() and not isinstance(calibration, str):
            warn(
                f"calibration={calibration!r} holds samples out, but a ScoreTable fits "
                "nothing: the rule is chosen on fewer samples than with "
                "calibration='same'."
            )

    def predict(self, X):
        """Predict that each answer is right.

        Parameters
        ----------
        X : {array-like, data frame} of shape (n_samples, n_columns)
            The scores.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            The label `right`.
        """
        check_is_fitted(self)
        return np.full(n_rows(X), self.right, dtype=self.classes_.dtype)

    def _scores(self, X, name):
        """Return the scores of "risk" or "ood", high for samples to reject."""
        column = getattr(self, name)
        if hasattr(column, "fit"):
            known = np.asarray(self.risk_.classes_)
            proba = self.risk_.predict_proba(X)[:, known == self.right]
            return 1 - proba.sum(axis=1)
        X = X if hasattr(X, "columns") else np.asarray(X)
        names = list(getattr(X, "columns", range(sum(X.shape[1:]))))
        if column not in names and column in range(-len(names), len(names)):
            column = names[column]  # a position
        if column not in names:
            raise ValueError(
                f"{name}={column!r} of ScoreTable is no column of X, whose columns are "
                f"{names}."
            )
        values = X[column] if hasattr(X, "columns") else X[:, column]
        try:
            values = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"The column {column!r} of X has values that are no numbers: {error}."
            ) from None
        return check_scores(values, f"The column {column!r} of X")


@stored
class TableScore(BaseEstimator):
    """Detector whose score is minus a column of the `ScoreTable` in `estimator`."""

    _fits_samples = False

    def __init__(self, name, estimator=None):
        self.name = name
        self.estimator = estimator

    def fit(self, X, y=None):
        """Store the table, which is fitted."""
        self.table_ = unwrapped(self.estimator)
        return self

    def score_samples(self, X):
        """Return the scores, high for samples to accept."""
        return -self.table_._scores(X, self.name)

    def _described(self, classifier):
        column = getattr(self.table_, self.name)
        if hasattr(column, "fit"):
            return f"1 - probability of right of {type(unwrap(column)[0]).__name__}"
        return f"column {column!r} of {classifier}"
