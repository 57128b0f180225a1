"""Parameters of estimators that are made of named parts."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.metaestimators import _BaseComposition

from skood.utils._named_estimators import check_parts


class _Team(_BaseComposition):
    def __init__(self, parts, size=1):
        self.parts = parts
        self.size = size

    def get_params(self, deep=True):
        return self._get_params("parts", deep=deep)

    def set_params(self, **params):
        return self._set_params("parts", **params)


def _team():
    return _Team([("a", Ridge(alpha=2.0)), ("b", LogisticRegression())])


def test_parameters_of_parts():
    team = _team()
    assert set(team.get_params(deep=False)) == {"parts", "size"}
    params = team.get_params()
    assert params["a"] is team.parts[0][1]
    assert params["a__alpha"] == 2.0
    team.set_params(a__alpha=3.0, b__C=7.0, size=4)
    assert team.parts[0][1].alpha == 3.0
    assert team.parts[1][1].C == 7.0
    assert team.size == 4


def test_replace_an_estimator_and_set_its_parameters():
    team = _team().set_params(b=Ridge(), b__alpha=5.0)
    assert isinstance(team.parts[1][1], Ridge)
    assert team.parts[1][1].alpha == 5.0
    assert [name for name, _ in team.parts] == ["a", "b"]
    team.set_params(parts=[("c", Ridge())], c__alpha=9.0)
    assert team.parts[0][1].alpha == 9.0


def test_clone_is_independent():
    team = _team()
    copy = clone(team)
    copy.set_params(a__alpha=8.0)
    assert team.parts[0][1].alpha == 2.0


def test_drop():
    team = _team().set_params(a="drop")
    assert check_parts(team, "parts", ("fit",)) == (["b"], [team.parts[1][1]])
    assert team.get_params()["a"] == "drop"


def test_unknown_parameter():
    with pytest.raises(ValueError, match="Invalid parameter 'c'"):
        _team().set_params(c=1)


@pytest.mark.parametrize(
    "parts, error, says",
    [
        (None, TypeError, r"must be a list of \(name, estimator\), got None\. Write"),
        ([Ridge()], TypeError, r"parts must be a list of \(name, estimator\), got \["),
        ([("a", Ridge(), 1)], TypeError, r"parts must be a list of"),
        ([(1, Ridge())], TypeError, r"parts must be a list of"),
        ([], ValueError, r"parts=\[\] has no estimator"),
        ([("a", "drop")], ValueError, "at least one that is not 'drop'"),
        ([("a", Ridge()), ("a", Ridge())], ValueError, r"distinct, got twice: \['a'\]"),
        ([("a__b", Ridge())], ValueError, r"got \['a__b'\]\. Rename"),
        ([("", Ridge())], ValueError, "must not be empty"),
        ([("size", Ridge())], ValueError, "be a parameter of _Team"),
        ([("a", 3)], TypeError, "got 3 without fit"),
        ([("a", Ridge)], TypeError, "got <class .*: a class"),
        ([("a", "droop")], TypeError, "got 'droop' without fit"),
    ],
)
def test_bad_parts(parts, error, says):
    team = _Team(parts)
    repr(team)  # must not raise
    with pytest.raises(error, match=says):
        check_parts(team, "parts", ("fit",))
