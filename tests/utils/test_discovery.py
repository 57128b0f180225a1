"""All public estimators are found, and nothing else."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import importlib
import pkgutil

import pytest
from sklearn.base import BaseEstimator, is_outlier_detector

import skood
from skood.base import BaseDetector
from skood.utils.discovery import all_estimators
from tests._instances import instances_of


def exported_estimators():
    """Everything with a fit in the `__all__` of any public module of skood."""
    found = {}
    for info in pkgutil.walk_packages(skood.__path__, "skood."):
        if any(part.startswith("_") for part in info.name.split(".")):
            continue
        module = importlib.import_module(info.name)
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if (
                isinstance(value, type)
                and issubclass(value, BaseEstimator)
                and hasattr(value, "fit")
            ):
                found[name] = value
    del found["BaseDetector"]  # cannot be used as it is
    del found["ScoreTable"]  # its labels are right and wrong
    return found


def test_it_finds_exactly_what_is_exported():
    assert dict(all_estimators()) == exported_estimators()


def test_sorted_by_name_and_without_duplicates():
    names = [name for name, _ in all_estimators()]
    assert names == sorted(set(names))
    assert all(name == cls.__name__ for name, cls in all_estimators())


@pytest.mark.parametrize(
    ("kind", "has", "has_not"),
    [
        ("detector", {"KNN", "MSP", "UncertaintyDetector"}, {"LinearHead"}),
        (
            "classifier",
            {"LinearHead", "TorchClassifier", "HMC", "SnapshotEnsemble"},
            {"KNN", "FeatureExtractor", "TorchRegressor"},
        ),
        (
            "regressor",
            {"TorchRegressor", "RejectOptionRegressor", "HMC"},
            {"KNN", "TorchClassifier", "SnapshotEnsemble", "MixtureLaplace"},
        ),
        ("transformer", {"FeatureExtractor"}, {"LinearHead", "KNN"}),
    ],
)
def test_kinds(kind, has, has_not):
    names = {name for name, _ in all_estimators(kind)}
    assert has <= names and not has_not & names
    assert names <= {name for name, _ in all_estimators()}


def test_detectors_are_outlier_detectors_with_our_base():
    for name, cls in all_estimators():
        is_detector = issubclass(cls, BaseDetector)
        assert (name in dict(all_estimators("detector"))) == is_detector
    for name, cls in all_estimators("detector"):
        for detector in instances_of(name, cls):
            assert is_outlier_detector(detector)


def test_there_are_36_detectors_and_rectifiers():
    rectifiers = {"ReAct", "VRA", "ASH", "SCALE", "LTS", "DICE"}
    names = {name for name, _ in all_estimators()}
    assert rectifiers <= names
    assert len(all_estimators("detector")) + len(rectifiers) >= 36


def test_unknown_kind():
    with pytest.raises(
        ValueError, match=r"one of \['classifier', 'detector', 'regress"
    ):
        all_estimators("cluster")
