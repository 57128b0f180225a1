"""A new rule for fitted parts: the same as a fit on frozen parts, nothing refitted."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import astuple

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.detectors import Mahalanobis, MaxLogit
from skood.exceptions import InfeasibleError, NotCertifiableError
from skood.persistence import dump, load
from skood.rejection import (
    BoundedAbstention,
    BoundedTPRFPR,
    CostBased,
    Solver,
    TwoThresholds,
)
from tests.rejection._problem import X_NEW, Y_NEW, X, Y, make_clf, make_data, selective

X_CAL, Y_CAL = make_data(seed=2, n_per_class=80)
RULES = [
    BoundedTPRFPR(tpr_min=0.8, fpr_max=0.5),
    BoundedAbstention(0.7),
    CostBased(reject_id=0.2, ood_prior=0.3),
    TwoThresholds(ood=0.1, risk=0.1),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("risk_detector", [None, MaxLogit()], ids=["none", "logit"])
@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
def test_equals_a_fit_on_frozen_parts(rule, risk_detector):
    clf = make_clf(
        make_pipeline(StandardScaler(), LogisticRegression()),
        risk_detector=risk_detector,
        ood_detector=Mahalanobis(),
    ).fit(X, Y)
    before = vars(clf).copy()
    point, decisions = clf.operating_point_, clf.predict(X_NEW)
    new = clf.with_rule(rule, X_CAL, Y_CAL)

    detectors = [
        None if detector is None else FrozenEstimator(detector)
        for detector in (clf.risk_detector_, clf.ood_detector_)
    ]
    same = selective(FrozenEstimator(clf.estimator_), *detectors, rule, "same").fit(
        X_CAL, Y_CAL
    )
    assert astuple(new.operating_point_) == astuple(same.operating_point_)
    assert (new.theta_, new.lambda_) == (same.theta_, same.lambda_)
    assert_array_equal(new.predict(X_NEW), same.predict(X_NEW))
    assert_array_equal(
        new.reject_reason(X_NEW).ood_fraction, same.reject_reason(X_NEW).ood_fraction
    )
    again = clone(new).fit(X_CAL, Y_CAL)  # the parts are frozen
    assert astuple(again.operating_point_) == astuple(new.operating_point_)

    assert vars(clf).keys() == before.keys()
    assert all(vars(clf)[name] is value for name, value in before.items())
    assert clf.operating_point_ == point
    assert_array_equal(clf.predict(X_NEW), decisions)
    assert new.estimator_ is clf.estimator_
    assert new.ood_detector_ is clf.ood_detector_
    assert new.detector_inputs_ == clf.detector_inputs_
    assert new.report(X_NEW, Y_NEW).scores == clf.report(X_NEW, Y_NEW).scores


def test_repeated_rules_do_not_nest():
    clf = make_clf().fit(X, Y)
    once = clf.with_rule(RULES[0], X_CAL, Y_CAL)
    back = once.with_rule(clf.rule, X_CAL, Y_CAL).with_rule(RULES[0], X_CAL, Y_CAL)
    assert back.estimator_ is clf.estimator_
    assert astuple(back.operating_point_) == astuple(once.operating_point_)


def test_rule_for_a_classifier_without_rule():
    clf = make_clf(rule=None).fit(X, Y)
    assert clf.operating_point_ is None
    new = clf.with_rule(BoundedAbstention(0.5), X_CAL, Y_CAL)
    assert new.operating_point_.tpr >= 0.5
    assert new.with_rule(None, X_CAL, Y_CAL).operating_point_ is None


def test_string_classes_and_their_labels():
    names = np.array(["ood", "a", "b", "c"])
    clf = make_clf(ood_label="ood").fit(X, names[Y + 1])
    new = clf.with_rule(RULES[0], X_CAL, names[Y_CAL + 1])
    plain = make_clf().fit(X, Y).with_rule(RULES[0], X_CAL, Y_CAL)
    assert new.theta_ == plain.theta_ and new.lambda_ == plain.lambda_
    assert set(new.predict(X_NEW)) <= {"a", "b", "c", "reject"}


def test_guarantee_of_the_new_rule():
    clf = make_clf(rule=None, guarantee="high_probability").fit(X, Y)
    rule = BoundedAbstention(0.6)
    certified = clf.with_rule(rule, X_CAL, Y_CAL)
    plain = clf.with_rule(rule, X_CAL, Y_CAL, guarantee=None)
    assert certified.guarantee == "high_probability" and plain.guarantee is None
    assert plain.operating_point_.tpr < certified.operating_point_.tpr
    with pytest.raises(NotCertifiableError, match="too few for TPR"):
        clf.with_rule(BoundedAbstention(0.999), X_CAL[:60], Y_CAL[:60])
    with pytest.raises(ValueError, match="guarantee"):
        clf.with_rule(rule, X_CAL, Y_CAL, guarantee="always")


def test_a_nearest_rule_in_a_file(tmp_path):
    pytest.importorskip("skops")
    clf = make_clf(solver=Solver(infeasible="nearest")).fit(X, Y)
    with pytest.warns(UserWarning, match="nearest rule"):
        near = clf.with_rule(BoundedTPRFPR(0.99, 0.01), X_CAL, Y_CAL)
    dump(near, tmp_path / "near.skood")
    again = load(tmp_path / "near.skood")
    point = near.operating_point_
    assert repr(again.operating_point_) == repr(point) and point.violation > 0
    assert_array_equal(again.predict(X_NEW), near.predict(X_NEW))
    assert again.explain(X_NEW).sentences == near.explain(X_NEW).sentences


def test_errors():
    clf = make_clf().fit(X, Y)
    with pytest.raises(NotFittedError):
        make_clf().with_rule(RULES[0], X_CAL, Y_CAL)
    with pytest.raises(ValueError, match="X has 1 features"):
        clf.with_rule(RULES[0], X_CAL[:, :1], Y_CAL)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        clf.with_rule(RULES[0], X_CAL, Y_CAL[:-1])
    with pytest.raises(ValueError, match="needs OOD samples"):
        clf.with_rule(RULES[0], X_CAL[Y_CAL >= 0], Y_CAL[Y_CAL >= 0])
    with pytest.raises(ValueError, match=r"y has the labels \[7\], which are none of"):
        clf.with_rule(RULES[0], X_CAL, np.where(Y_CAL == 2, 7, Y_CAL))
    with pytest.raises(ValueError, match="'rule' parameter"):
        clf.with_rule("strict", X_CAL, Y_CAL)
    with pytest.raises(InfeasibleError):
        clf.with_rule(BoundedTPRFPR(0.99, 0.01), X_CAL, Y_CAL)
    clf.set_params(solver=Solver(infeasible="nearest"))
    with pytest.warns(UserWarning, match="nearest rule"):
        near = clf.with_rule(BoundedTPRFPR(0.99, 0.01), X_CAL, Y_CAL)
    assert near.operating_point_.violation > 0
