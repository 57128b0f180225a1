"""Tests of what users are told who pass the wrong thing to a detector."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import subprocess
import sys
import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import skood
from skood import detectors
from skood.benchmark import compare
from skood.combine import DSDE, DetectorEnsemble
from skood.detectors import KNN, MSP, Energy, Mahalanobis, SklearnDetector
from skood.exceptions import SkoodWarning
from skood.monitor import ExchangeabilityMonitor
from skood.rejection import RejectOptionClassifier, TwoThresholds
from skood.selection import NoveltySelector

X = np.random.default_rng(0).normal(size=(200, 4))
Y = np.random.default_rng(1).integers(0, 3, 200)


# --- classes that are taken for OOD samples -------------------------------------------


@pytest.mark.parametrize("make", [KNN, Mahalanobis, SklearnDetector])
def test_classes_minus_1_and_1(make):
    y = np.repeat([-1, 1], [40, 160])
    message = "-1 and 1: 40 of 200 samples are labeled ood_label=-1 .*set ood_label to"
    with pytest.warns(SkoodWarning, match=message) as record:
        make().fit(X, y)
    assert len(record) == 1
    assert record[0].filename == __file__
    with pytest.warns(SkoodWarning, match="5 and -5: 100 of 200"):
        make(ood_label=5).fit(X, np.repeat([-5.0, 5.0], 100))


def test_labels_that_no_binary_problem_has():
    labels = [
        np.repeat([-1, 1], [39, 161]),  # less than a fifth
        np.repeat([-1, 0], 100),
        np.repeat([-1, 0, 1], [100, 50, 50]),
        np.ones(200, dtype=int),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error", SkoodWarning)
        for y in labels:
            KNN().fit(X, y)
        KNN(ood_label=2).fit(X, np.repeat([-1, 1], 100))


# --- data of another kind -------------------------------------------------------------

TOKENS = {"input_ids": np.ones((200, 4), int), "attention_mask": np.ones((200, 4))}


@pytest.mark.parametrize(
    "make",
    [Energy, KNN, lambda: RejectOptionClassifier(LogisticRegression()), DSDE],
)
def test_dict_of_arrays(make):
    estimator = make() if make is not DSDE else DSDE([("msp", MSP()), ("knn", KNN())])
    message = r"got a dict with the keys \['input_ids', 'attention_mask'\].*pretrained"
    with pytest.raises(TypeError, match=message):
        estimator.fit(TOKENS, Y)
    with pytest.raises(TypeError, match="'input_ids'"):
        KNN().fit(X).score_samples(TOKENS)


@pytest.mark.parametrize("make", [Energy, KNN, Mahalanobis])
def test_maps(make):
    maps = np.random.default_rng(0).normal(size=(6, 3, 8, 8))
    message = r"dim 4.*row per pixel.*numpy.moveaxis\(X, 1, -1\).*segmentation"
    with pytest.raises(ValueError, match=message):
        make().fit(maps)
    samples = np.moveaxis(maps, 1, -1).reshape(-1, 3)  # as advised
    assert make().fit(samples).score_samples(samples).shape == (6 * 8 * 8,)


@pytest.mark.parametrize(
    "estimator",
    [
        KNN(),
        Energy(LogisticRegression()),
        RejectOptionClassifier(LogisticRegression()),
        DetectorEnsemble([("knn", KNN())]),
    ],
)
def test_columns_of_labels(estimator):
    table = np.column_stack([Y, Y])
    message = r"\(200, 2\) instead.*one label per sample.*y\[:, 0\].*head\(0\)"
    with pytest.raises(ValueError, match=message):
        estimator.fit(X, table)


# --- detectors of PyOD ----------------------------------------------------------------


class Distance:
    """Has the methods of PyOD's detectors: no tags, and high scores for outliers."""

    def __init__(self, contamination=0.1):
        self.contamination = contamination

    def get_params(self, deep=True):
        """Return the parameters."""
        return {"contamination": self.contamination}

    def set_params(self, **params):
        """Set the parameters."""
        vars(self).update(params)
        return self

    def fit(self, X, y=None):
        """Fit the mean."""
        self.mean_ = X.mean(axis=0)
        self.decision_scores_ = self.decision_function(X)
        return self

    def decision_function(self, X):
        """Return squared distances from the mean."""
        return np.square(X - self.mean_).sum(axis=1)


def _with(detector):
    rule = TwoThresholds()
    return [
        RejectOptionClassifier(LogisticRegression(), ood_detector=detector, rule=rule),
        RejectOptionClassifier(LogisticRegression(), risk_detector=detector),
        DetectorEnsemble([("a", detector), ("b", KNN())]),
        DSDE([("a", detector), ("b", KNN()), ("c", KNN()), ("d", KNN())]),
        NoveltySelector(detector),
        NoveltySelector([("a", detector), ("b", KNN())]),
        ExchangeabilityMonitor(detector),
    ]


@pytest.mark.parametrize("estimator", _with(Distance()), ids=lambda e: type(e).__name__)
def test_detector_of_pyod(estimator):
    with pytest.raises((TypeError, ValueError), match=r"SklearnDetector\(detector="):
        estimator.fit(X, Y)


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
def test_detector_of_pyod_as_advised():
    for estimator in _with(SklearnDetector(detector=Distance())):
        estimator.fit(X, Y)


def test_detector_of_pyod_in_a_comparison():
    with pytest.raises(TypeError, match=r"SklearnDetector\(detector="):
        compare({"a": Distance()}, X, Y, {"far": X + 9})


# --- imports --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line, message",
    [
        ("from skood import KNN", "'skood'. Use: from skood.detectors import KNN"),
        (
            "from skood.detectors import Knn",
            "did you mean KNN? Use: from skood.detectors import KNN",
        ),
        (
            "from skood.nn import RejectOptionClassifier",
            "Use: from skood.rejection import RejectOptionClassifier",
        ),
        (
            "from skood import RejectOptionClasifier",
            "did you mean RejectOptionClassifier? Use: from skood.rejection import",
        ),
        ("from skood import nope", "cannot import name 'nope' from 'skood' ("),
        ("from skood.detectors import nope", "'nope' from 'skood.detectors' ("),
    ],
)
def test_import_of_a_name_from_another_place(line, message):
    with pytest.raises(ImportError) as info:
        exec(line, {})
    assert message in str(info.value)


def test_attributes_are_absent():
    for name in ("Knn", "KNN", "nope"):
        assert not hasattr(skood, name)
    with pytest.raises(AttributeError, match=r"'skood.detectors' has no attribute 'Kn"):
        detectors.Knn  # noqa: B018
    assert getattr(detectors, "Knn", None) is None
    from skood.detectors import _knn  # a module, with a similar name

    assert _knn.KNN is KNN


def test_hint_of_an_import_needs_no_torch():
    code = (
        "import sys\n"
        "try:\n    from skood import KNN\n"
        "except ImportError:\n    sys.exit('torch' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
