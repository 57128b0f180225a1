"""Tests of `skood.datasets.make_churn` against the probabilities of its docstring."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit

from skood.datasets import make_churn

KINDS = ["new plan", "other currency", "test account"]


def _tenure(data):
    return (pd.Timestamp("2025-01-01") - data["signup"]).dt.days / 30


def _leaving(data):
    logit = -2.6 + 0.9 * data["support_calls"] + 0.16 * data["days_idle"]
    return expit(logit - 0.04 * _tenure(data) - 0.7 * (data["plan"] == "premium"))


@pytest.fixture(scope="module")
def large():
    return make_churn(200_000, random_state=0)


def test_frequency_and_bayes_error(large):
    p = _leaving(large.data)
    assert_allclose(np.mean(large.target == "leave"), 0.22, atol=0.005)
    assert_allclose(np.minimum(p, 1 - p).mean(), 0.138, atol=0.001)
    bayes = np.where(p > 0.5, "leave", "stay")
    assert_allclose(np.mean(bayes != large.target), 0.138, atol=0.003)
    for low in (0.0, 0.2, 0.4, 0.6, 0.8):  # calibrated probabilities
        bin_ = (p >= low) & (p < low + 0.2)
        assert_allclose(
            np.mean(large.target[bin_] == "leave"), p[bin_].mean(), atol=0.015
        )


def test_distribution_of_columns(large):
    data = large.data
    fractions = data["plan"].value_counts(normalize=True)[["basic", "plus", "premium"]]
    assert_allclose(fractions, [0.5, 0.35, 0.15], atol=0.005)
    regions = data["region"].value_counts(normalize=True)
    names = ["north", "south", "east", "west"]
    assert_allclose(regions[names], [0.4, 0.3, 0.2, 0.1], atol=0.005)
    calls = data.groupby("plan")["support_calls"].agg(["mean", "var"])
    assert_allclose(calls.loc["basic"], 1.4, atol=0.03)
    assert_allclose(calls.loc[["plus", "premium"]], 0.8, atol=0.03)
    assert_allclose(data["monthly_spend"].isna().mean(), 0.05, atol=0.002)
    spend = np.log(data["monthly_spend"]).groupby(data["plan"]).agg(["mean", "std"])
    assert_allclose(spend["mean"], np.log([20, 45, 90]), atol=0.01)
    assert_allclose(spend["std"], 0.25, atol=0.005)
    idle = data["days_idle"].groupby(data["support_calls"]).mean()
    assert_allclose(idle[[0, 1, 2]], [3, 6, 9], rtol=0.03)
    tenure = _tenure(data)
    assert_array_equal(tenure, np.round(tenure))
    assert tenure.min() == 1
    assert_allclose(tenure.mean(), 1 + 28 - 0.5, atol=0.2)  # the floor takes one half


def test_unknown_kinds():
    churn = make_churn(3000, ood=0.3, random_state=1)
    data, kind = churn.data, churn.kind
    assert_array_equal(churn.target == "unknown", kind != "customer")
    assert [np.sum(kind == name) for name in KINDS] == [300, 300, 300]
    new, currency, test = (data[kind == name] for name in KINDS)
    assert_array_equal(kind == KINDS[0], data["plan"] == "student")
    assert set(_tenure(new)) == {1, 2, 3}
    assert_allclose(new["monthly_spend"].median(), 8, rtol=0.05)
    assert new["monthly_spend"].notna().all()
    assert currency["monthly_spend"].min() > 180  # of customers: 20 to 90 on average
    assert_allclose(test["support_calls"].mean(), 50, atol=1)
    assert test["support_calls"].min() >= 30
    assert (test["days_idle"] == 0).all()
    # the kinds are not in blocks of rows
    assert np.ptp(np.flatnonzero(kind == KINDS[1])) > 2700


def test_seed_and_return_value():
    X, y = make_churn(50, ood=0.1, random_state=0, return_X_y=True)
    churn = make_churn(50, ood=0.1, random_state=0)
    pd.testing.assert_frame_equal(X, churn.data)
    assert_array_equal(y, churn.target)
    assert X.columns[0] == "signup" and X["signup"].dtype.kind == "M"
    assert not make_churn(50, random_state=1).data.equals(make_churn(50).data)
    assert set(make_churn(9, ood=1.0).target) == {"unknown"}
    with pytest.raises(ValueError, match="'ood' parameter of make_churn"):
        make_churn(ood=1.5)
