"""Messages of selective predictors: each contains what to write."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import re
import warnings

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

from skood.detectors import Mahalanobis
from skood.exceptions import SkoodWarning
from skood.metrics import make_ood_scorer, selective_risk_at
from skood.rejection import (
    BoundedAbstention,
    BoundedTPRFPR,
    RejectOptionClassifier,
    RejectOptionRegressor,
    TwoThresholds,
)
from tests.decision._scores import solved
from tests.rejection._problem import X_NEW, X, Y, make_clf

ID = Y >= 0


def test_rules_without_ood_samples():
    advice = re.escape("such as TwoThresholds(ood=0.05, risk=0.05).")
    with pytest.raises(ValueError, match=advice):
        make_clf().fit(X[ID], Y[ID])
    with pytest.raises(ValueError, match=advice):
        solved(BoundedTPRFPR(), [0.0, 1.0], None, [0, 1], None, None)


def test_text_label_of_ood_samples():
    names = np.array(["a", "b", "c", "oos"])[Y]
    with pytest.raises(ValueError, match=r"'oos' .* pass ood_label='oos'\. Give"):
        make_clf().fit(X, names)
    with pytest.raises(ValueError, match="needs OOD samples") as error:
        make_clf().fit(X[ID], names[ID])
    assert "pass ood_label" not in str(error.value)


def test_rules_that_are_classes_or_positional():
    with pytest.raises(TypeError, match=r"write BoundedAbstention\(\)"):
        make_clf(rule=BoundedAbstention).fit(X, Y)
    with pytest.raises(TypeError, match=r"write BoundedAbstention\(\)"):
        solved(BoundedAbstention, [0.0], None, [0], None, None)
    clf = RejectOptionClassifier(LogisticRegression(), BoundedAbstention())
    with pytest.raises(TypeError, match=r"give rules by keyword: rule=\.\.\."):
        clf.fit(X, Y)


def test_losses_in_a_dict():
    with pytest.raises(TypeError, match=r"got a dict, \{0: 5\}; a matrix such as"):
        make_clf(loss={0: 5}).fit(X, Y)
    with pytest.raises(TypeError, match=r"got a dict"):
        selective_risk_at([0, 1, -1], [0, 1, 0], [0.5, 0.4, 0.2], loss={0: 5})


def test_few_samples_warn_once_per_score():
    clf = make_clf(rule=TwoThresholds(0.05, 0.05))
    indices = np.flatnonzero(ID)[:45]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SkoodWarning)
        clf.fit(X[indices], Y[indices])
    texts = [
        str(warning.message) for warning in caught if warning.category is SkoodWarning
    ]
    assert len(texts) == 2
    assert sum("of the risk score" in text for text in texts) == 1
    assert sum("of the OOD score" in text for text in texts) == 1


@pytest.mark.parametrize(("reject_label", "rejected"), [("auto", "reject"), (-1, -1)])
def test_boolean_classes_stay_boolean(reject_label, rejected):
    y = Y == 2
    clf = make_clf(rule=BoundedAbstention(0.5), reject_label=reject_label)
    decisions = clf.fit(X[ID], y[ID]).predict(X_NEW)
    assert decisions.dtype == object
    accepted = clf.accept_proba(X_NEW) == 1
    assert {type(value) for value in decisions[accepted].tolist()} == {bool}
    assert set(decisions[~accepted].tolist()) == {rejected}
    assert (decisions[accepted] == clf.estimator_.predict(X_NEW)[accepted]).all()


def test_misspelled_metric():
    with pytest.raises(ValueError, match=r"Got 'auc': did you mean 'auroc'\?"):
        make_ood_scorer("auc")


def test_explanation_of_a_regressor_mentions_no_class():
    reg = RejectOptionRegressor(
        LinearRegression(),
        ood_detector=Mahalanobis(),
        rule=TwoThresholds(0.1, 0.1),
        random_state=0,
    ).fit(X[ID], X[ID] @ [1.0, 2.0])
    sentence = reg.explain([[30.0, 1.0]]).sentences[0]
    assert re.search(r"above the mean [\d.]+ of the training samples", sentence)
    assert "class" not in sentence
