"""The detector: errors, kinds of input, pipelines and searches."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.detectors import SSD
from skood.exceptions import ConstraintSyntaxError, SkoodWarning
from skood.logic import C, ConceptFusion, MLNDetector, WeightedConstraints
from skood.metrics import aupr_out, auroc, make_ood_scorer
from skood.model_selection import LeaveClassesOut, OODStratifiedKFold
from tests.logic._signs import NAMES, RULES, Column, columns, linear, mln, signs

pytestmark = pytest.mark.filterwarnings("ignore:normalizer='genextreme'")

GAUSSIAN = SSD()
X, y = signs(60)  # for errors


# ------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    "constraints, error, text",
    [
        ("class = yield", TypeError, "'constraints' parameter of MLNDetector must be"),
        ([], ValueError, r"constraints=\[\] and detector=None leave nothing"),
        (["class = zebra"], ConstraintSyntaxError, "zebra"),
        (["size = 3"], ConstraintSyntaxError, "size"),
        ([RULES[0], RULES[0]], ValueError, "distinct, got twice"),
        ([C("size").eq(3)], ValueError, "Unknown concept 'size'"),
        ([3], TypeError, "must be a str or a Formula"),
    ],
)
def test_bad_constraints(constraints, error, text):
    error = ValueError if error is TypeError and text.startswith("'") else error
    with pytest.raises((error, TypeError), match=text):
        mln(constraints).fit(X, y)


@pytest.mark.parametrize(
    "params, text",
    [
        ({"fusion": "sum"}, "fusion"),
        ({"gamma": -1.0}, "gamma' parameter of ConceptFusion"),
        ({"normalizer": "beta"}, "normalizer' parameter of ConceptFusion"),
        ({"calibration": 2}, "calibration"),
        ({"calibration": "other"}, "calibration"),
        ({"prior": -1}, "prior' parameter of WeightedConstraints"),
        ({"contamination": 0.7}, "contamination"),
        ({"detector": 3}, "detector"),
        ({"detector": "conf"}, "detector"),
        ({"domains": [1]}, "domains"),
        ({"id_estimator": 3}, "id_estimator"),
        ({"id_estimator": "first"}, "id_estimator"),
    ],
)
def test_bad_parameters(params, text):
    text = text if "'" in text else f"{text}' parameter of MLNDetector"
    with pytest.raises(ValueError, match=f"The '{text}"):
        mln(**params).fit(X, y)


def test_constraints_are_read_before_anything_is_fitted():
    class Slow(Column):
        def fit(self, X, y):
            raise AssertionError("fitted")

    X, y = signs(50)
    readers = [(name, Slow(j)) for j, name in enumerate(NAMES)]
    with pytest.raises(ConstraintSyntaxError):
        MLNDetector(["class ="], readers).fit(X, y)


def test_an_error_names_the_classifier():
    X, y = signs(50)
    with pytest.raises(ValueError) as raised:
        MLNDetector(RULES, [*columns()[:2], ("shape", LogisticRegression(C=-1))]).fit(
            X, y
        )
    assert "This happened in fitting 'shape'." in raised.value.__notes__
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        mln().fit(X, y[:-1])


def test_nested_ood_labels():
    for params in (
        {"detector": SSD(ood_label="yield")},
        {"concepts": [("class", MSPClassifier(ood_label="yield")), *columns()[1:]]},
    ):
        with pytest.raises(ValueError, match="ood_label='yield' is one of the classes"):
            mln().set_params(**params).fit(X, y)


class MSPClassifier(Column):
    """A classifier that leaves rows out of its fit."""

    def __init__(self, column=0, C=1.0, ood_label=-1):
        super().__init__(column, C)
        self.ood_label = ood_label


@pytest.mark.parametrize(
    "scores, text",
    [
        (np.zeros((3, 2)), r"scores of shape \(3, 2\) for 12 samples"),
        (np.full(12, np.nan), "NaN as the score of 12 of 12 samples"),
    ],
)
def test_bad_scores_of_the_detector(scores, text):
    class Bad(SSD):
        def score_samples(self, X):
            return scores

    with pytest.raises(ValueError, match=text):
        mln(RULES, Bad()).fit(X, y)


# -------------------------------------------------------------------------- input, use


def test_labels_as_data_frames_lists_and_tensors():
    X, y = signs(150, 50)
    expected = mln(RULES, GAUSSIAN).fit(X, y)
    frame = pd.DataFrame(y, columns=NAMES)
    scorer = make_ood_scorer()
    for labels in (frame, frame[NAMES[::-1]], y.tolist()):
        model = mln(RULES, GAUSSIAN).fit(X, labels)
        assert model.offset_ == expected.offset_
        assert model.score(X, labels) == expected.score(X, y)
        assert scorer(model, X, labels) == expected.score(X, y)
    assert aupr_out(frame, expected.score_samples(X)) > 0.9


def test_concepts_of_several_kinds():
    rng = np.random.default_rng(0)
    digit = rng.integers(0, 3, size=300)
    y = pd.DataFrame(
        {
            "digit": digit,
            "odd": digit % 2 == 1,
            "size": np.where(digit == 0, "small", "large"),
        }
    )
    X = np.stack([digit, digit % 2, digit == 0], axis=1) + 0.1 * rng.normal(
        size=(300, 3)
    )
    readers = [(name, Column(j)) for j, name in enumerate(y)]
    rules = ["odd <-> digit = 1", "digit = 0 -> size = small"]
    for labels in (y, y.to_numpy(), y.to_numpy().tolist()):
        model = MLNDetector(rules, readers, random_state=0).fit(X, labels)
        actual = model.predict_concepts(X[:2])
        assert actual.dtype == object
        assert model.classes_.tolist() == [0, 1, 2]
        assert type(model.explain(X[:1])[0].concepts["digit"]) is int
    assert model.explain([[0.0, 1.0, 0.0]])[0].sentence.startswith(
        "odd, but not digit 1 (0)"
    )


def test_single_concept_takes_flat_labels():
    X, y = signs(100, 20)
    model = MLNDetector(
        ["class != zebra"],
        columns()[:1],
        GAUSSIAN,
        domains={"class": ["yield", "stop_sign", "other", "zebra"]},
        random_state=0,
    )
    flat = model.fit(X, y[:, 0]).score_samples(X)
    frame = pd.DataFrame({"class": y[:, 0], "color": y[:, 1]})
    np.testing.assert_array_equal(model.fit(X, frame).score_samples(X), flat)
    assert model.knowledge_base_.domains["class"] == model.domains["class"]
    assert model.classes_.tolist() == ["other", "stop_sign", "yield"]
    with pytest.raises(ValueError, match="each of the 3 concepts"):
        mln().fit(X, y[:, 0])


def test_classes_that_are_left_out_are_ood():
    X, y = signs(300)
    model = mln(RULES[:1], GAUSSIAN).fit(X[y[:, 0] != "yield"], y[y[:, 0] != "yield"])
    expected = auroc(np.where(y[:, 0] == "yield", -1, 1), model.score_samples(X))
    assert model.score(X, y) == expected
    cv = LeaveClassesOut(random_state=0)
    rules = ["color = red or color = blue and not (color = red)"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkoodWarning)
        scores = cross_val_score(
            MLNDetector(rules, linear(), GAUSSIAN),
            X,
            y,
            cv=cv,
            scoring=make_ood_scorer(),
            error_score="raise",
        )
    assert scores.shape == (3,)
    assert np.isfinite(scores).all()


def test_images_and_tensors():
    X, y = signs(120, 40)
    images = X.reshape(-1, 1, 3, 1).astype(np.float32)

    class Image(Column):
        def predict_proba(self, X):
            return super().predict_proba(np.asarray(X).reshape(len(X), -1))

    readers = [(name, Image(j)) for j, name in enumerate(NAMES)]
    model = MLNDetector(RULES, readers, "confidence", random_state=0).fit(images, y)
    expected = mln(RULES, "confidence").fit(X.astype(np.float32), y)
    np.testing.assert_allclose(
        model.score_samples(images), expected.score_samples(X.astype(np.float32))
    )
    tensors = MLNDetector(RULES, readers, "confidence", random_state=0)
    tensors.fit(torch.from_numpy(images), y)
    assert tensors.offset_ == model.offset_
    assert len(tensors.explain(torch.from_numpy(images[:2]))) == 2


@pytest.mark.parametrize(
    "as_given",
    [
        pytest.param(np.asarray, marks=pytest.mark.slow),
        lambda y: pd.DataFrame(y, columns=NAMES),
    ],
    ids=["array", "frame"],
)
def test_pipelines_and_searches(as_given):
    X, y = signs(240, 60)
    labels = as_given(y)
    model = MLNDetector(
        WeightedConstraints(RULES),
        linear(),
        GAUSSIAN,
        fusion=ConceptFusion(),
        random_state=0,
    )
    cv = OODStratifiedKFold(2, shuffle=True, random_state=0)
    pipeline = make_pipeline(StandardScaler(), model)
    options = {"cv": cv, "scoring": make_ood_scorer(), "error_score": "raise"}
    scores = cross_val_score(pipeline, X, labels, **options)
    assert np.all(scores > 0.9)
    grid = {
        "mlndetector__fusion__gamma": [0.0, 1.0],
        "mlndetector__fusion__rule": ["log", "shifted_product"],
        "mlndetector__constraints__prior": [2.0],
        "mlndetector__color__C": [1.0],
    }
    search = GridSearchCV(pipeline, grid, **options).fit(X, labels)
    assert search.best_score_ > 0.95
    assert make_ood_scorer()(search, X, labels) > 0.95
    columns = NAMES[::-1] if isinstance(labels, pd.DataFrame) else slice(None)
    assert pipeline.fit(X, labels).score(X, labels[columns]) > 0.95


def test_methods_need_a_fit():
    X, _ = signs(5)
    for method in ("penalty", "predict_concepts", "concept_proba", "explain"):
        with pytest.raises(NotFittedError):
            getattr(mln(), method)(X)


def test_boolean_concepts_take_labels_of_the_first():
    """Labels of a concept of booleans are no mask."""
    X, y = signs(200, 60)
    is_ood = y[:, 0] == -1
    y[:, 0] = y[:, 0] == "stop_sign"
    y[is_ood] = -1
    model = MLNDetector(["class -> color = red"], linear(), random_state=0).fit(X, y)
    expected = auroc(np.where(is_ood, -1, 1), model.score_samples(X))
    frame = pd.DataFrame(y, columns=NAMES)
    for labels in (y, y[:, 0], frame, frame["class"], frame[["class"]]):
        assert model.score(X, labels) == expected
        assert make_ood_scorer()(model, X, labels) == expected


def test_single_column_with_two_axes_warns_of_nothing():
    X, y = signs(200, 60)
    model = MLNDetector(["class != yield"], columns()[:1], random_state=0)
    expected = model.fit(X, y[:, 0]).score(X, y[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataConversionWarning)
        for labels in (y[:, :1], pd.DataFrame(y[:, :1], columns=NAMES[:1])):
            assert model.fit(X, labels).score(X, labels) == expected
        assert mln().fit(X, y).score(X, y[:, :1]) > 0.5


def test_missing_labels_say_where():
    frame = pd.DataFrame(y, columns=NAMES)
    frame.loc[3, "color"] = None
    with pytest.raises(ValueError, match=r"Input y\['color'\] contains NaN or None"):
        mln().fit(X, frame)


def test_labels_of_different_kinds_that_a_forest_cannot_learn():
    X, y = signs(60)
    y[:, 1] = y[:, 1] == "red"
    forest = RandomForestClassifier(n_estimators=2)
    model = MLNDetector(
        ["color or class = yield"], [(("class", "color"), forest), ("shape", Column(2))]
    )
    with pytest.raises((TypeError, ValueError)) as caught:
        model.fit(X, y)
    name, kinds = caught.value.__notes__
    # where the validation of scikit-learn raises, skood raises a ValueError from that
    raised = caught.value.__cause__ or caught.value
    assert type(raised) is TypeError
    assert "'class_color'" in name
    assert "of different kinds" in kinds


KINDS, COLORS = np.array(["stop", "yield", "park"]), np.array(["red", "white", "blue"])
COLUMN_RULES = [f"class={KINDS[i]} -> color={COLORS[i]}" for i in range(3)]
COLUMNS = {"class": [0, 1, 2], "color": [3, 4, 5]}


def draw(n_samples, rng, breaks=False):
    """Signs: three columns show the class, three the color, a little less clearly."""
    kind = rng.integers(3, size=n_samples)
    color = (kind + breaks * rng.integers(1, 3, size=n_samples)) % 3
    X = np.hstack([4 * np.eye(3)[kind], 3 * np.eye(3)[color]])
    return X + rng.normal(size=X.shape), np.column_stack([KINDS[kind], COLORS[color]])


def areas(classifier, seed, **params):
    """AUROC of signs of a wrong color, with classifiers of all, and of own columns."""
    rng = np.random.default_rng(seed)
    X, y = draw(600, rng)
    X_id, y_id = draw(300, rng)
    X_ood, _ = draw(300, rng, breaks=True)
    X_test = np.vstack([X_id, X_ood])
    y_test = np.vstack([y_id, np.full((300, 2), -1, dtype=object)])
    own = {
        name: make_pipeline(
            make_column_transformer(("passthrough", columns)), classifier
        )
        for name, columns in COLUMNS.items()
    }
    readers = [(name, classifier) for name in COLUMNS], list(own.items())
    return [
        MLNDetector(COLUMN_RULES, concepts, random_state=0, **params)
        .fit(X, y)
        .score(X_test, y_test)
        for concepts in readers
    ]


@pytest.mark.parametrize(
    "classifier",
    [
        pytest.param(LogisticRegression(), id="linear"),
        pytest.param(
            RandomForestClassifier(20, random_state=0),
            id="forest",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_concepts_read_from_all_columns_contradict_nothing(classifier):
    """All ID signs keep the rules, so that the class gives the color away."""
    actual = np.array([areas(classifier, seed) for seed in range(3)])
    of_all, of_columns = actual.T
    assert (of_all < 0.55).all()
    assert (of_columns > 0.94).all()


def test_probabilities_still_show_the_contradiction():
    """Classifiers of all columns are less sure where the columns contradict."""
    of_all, of_columns = areas(LogisticRegression(), 0, marginalize=True)
    assert 0.9 < of_all < of_columns
