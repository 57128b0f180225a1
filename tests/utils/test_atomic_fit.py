"""A fit that fails never happened."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pytest
from sklearn.base import BaseEstimator

from skood.utils._atomic_fit import fresh_fit, kept_state


class Estimator(BaseEstimator):
    def __init__(self, a=1, b_=2):
        self.a = a
        self.seen_ = "from an earlier fit"
        self._private = "kept"
        self.__dict__["_odd_"] = "kept"


def test_a_fit_starts_from_nothing():
    estimator = Estimator()
    with fresh_fit(estimator):
        assert not hasattr(estimator, "seen_")
        assert estimator._private == estimator._odd_ == "kept"
        estimator.new_ = 1
    assert vars(estimator) == {"a": 1, "_private": "kept", "_odd_": "kept", "new_": 1}


def test_fits_may_be_nested():
    outer, inner = Estimator(), Estimator()
    with pytest.raises(ValueError):
        with fresh_fit(outer):
            with fresh_fit(inner):
                inner.done_ = True
            outer.done_ = True
            raise ValueError
    assert inner.done_ and not hasattr(inner, "seen_")
    assert outer.seen_ and not hasattr(outer, "done_")


def test_state_after_a_block_that_does_not_raise():
    estimator = Estimator()
    with kept_state(estimator):
        assert estimator.seen_ == "from an earlier fit"
        estimator.new_, estimator.seen_ = 1, 2
        del estimator._private
    assert estimator.new_ == 1 and estimator.seen_ == 2
    assert not hasattr(estimator, "_private")


@pytest.mark.parametrize("context", [kept_state, fresh_fit])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_state_comes_back_after_an_error(error, context):
    estimator = Estimator()
    before = dict(vars(estimator))
    with pytest.raises(error):
        with context(estimator):
            estimator.new_, estimator.seen_ = 1, 2
            estimator.a = 5
            del estimator._private
            raise error
    assert vars(estimator) == before
    assert list(vars(estimator)) == list(before)
    assert all(vars(estimator)[name] is value for name, value in before.items())
