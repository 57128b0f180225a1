"""Features traced to the columns that they depend on, by changing these columns."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import VarianceThreshold
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    SplineTransformer,
    StandardScaler,
)

from skood.detectors._column_contributions import trace_columns

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        # one column has the name of a feature of the other
        "city": RNG.choice(["Paris", "Rome", "Rome_x"], 60),
        "city_Paris": RNG.choice(["a", "b", "Rome"], 60),
        "income": RNG.lognormal(10, 1, 60),
        "age": RNG.normal(40, 9, 60),
        "note": RNG.choice(["late late", "early", "on time"], 60),
        "constant": 1.0,
    }
)
NUMBERS = ["age", "income"]
LOG = FunctionTransformer(np.log, np.exp, feature_names_out="one-to-one")
FORGETS = FunctionTransformer(np.log, feature_names_out="one-to-one")


def _mixed(samples):
    return np.asarray(samples) @ [[1.0, 1.0], [1.0, -1.0]]


TRANSFORMERS = {
    "scaler": ColumnTransformer([("s", StandardScaler(), NUMBERS)]),
    "names of others": ColumnTransformer(
        [("cat", OneHotEncoder(), ["city_Paris", "city"])]
    ),
    "dropped first": ColumnTransformer(
        [("no", "drop", ["note"]), ("cat", OneHotEncoder(drop="first"), ["city"])]
    ),
    "remainder": ColumnTransformer(
        [("cat", OrdinalEncoder(), ["city", "city_Paris"]), ("no", "drop", ["note"])],
        remainder="passthrough",
    ),
    "remainder transformed": ColumnTransformer(
        [("no", "drop", make_column_selector(dtype_include=[object, "string"]))],
        remainder=PowerTransformer(),
    ),
    "slices and masks": ColumnTransformer(
        [
            ("a", StandardScaler(), slice("income", "age")),
            ("b", "passthrough", [False, False, True, False, False, True]),
            ("c", StandardScaler(), [-3]),
            ("d", LOG, slice(2, 3)),
        ]
    ),
    "text": ColumnTransformer([("t", TfidfVectorizer(), "note")]),
    "mixtures": ColumnTransformer(
        [
            ("p", make_pipeline(StandardScaler(), PCA(2)), NUMBERS),
            ("q", PolynomialFeatures(2, include_bias=False), NUMBERS),
        ]
    ),
    "several of one": ColumnTransformer(
        [
            ("s", SplineTransformer(), ["age"]),
            ("k", KBinsDiscretizer(3), ["income"]),
        ]
    ),
    "nested": make_pipeline(
        ColumnTransformer(
            [
                ("n", make_pipeline(LOG, SimpleImputer(), StandardScaler()), NUMBERS),
                ("k", "passthrough", ["constant"]),
            ]
        ),
        VarianceThreshold(),
        "passthrough",
    ),
    "union": ColumnTransformer(
        [
            (
                "u",
                FeatureUnion([("p", PCA(1)), ("no", "drop"), ("s", StandardScaler())]),
                NUMBERS,
            )
        ]
    ),
    "union alone": make_pipeline(
        ColumnTransformer([("s", "passthrough", NUMBERS)]),
        FeatureUnion([("a", "passthrough"), ("s", StandardScaler())]),
    ),
    "unnamed": ColumnTransformer(
        [
            ("one", make_pipeline(FunctionTransformer(np.log), StandardScaler()), [2]),
            ("two", FunctionTransformer(_mixed), NUMBERS),
            ("n", StandardScaler(), ["age"]),
        ]
    ),
    "frozen": None,
}
TRANSFORMERS["frozen"] = FrozenEstimator(
    TRANSFORMERS["nested"].fit(FRAME)  # tracing must look into it
)


@pytest.mark.parametrize("name", TRANSFORMERS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_sources_are_the_columns_whose_change_changes_a_feature(name):
    transformer = TRANSFORMERS[name].fit(FRAME, None)
    trace = trace_columns([transformer], FRAME.columns)
    Z = _dense(transformer.transform(FRAME))
    assert len(trace.names) == len(trace.sources) == Z.shape[1]
    for j, column in enumerate(FRAME.columns):
        changed = FRAME.copy()
        changed[column] = np.roll(FRAME[column], 1)
        if column == "constant":
            changed[column] = 2.0
        differs = (_dense(transformer.transform(changed)) != Z).any(axis=0)
        np.testing.assert_array_equal(differs, [j in s for s in trace.sources])


def _dense(Z):
    return np.asarray(Z.toarray() if hasattr(Z, "toarray") else Z, dtype=float)


@pytest.mark.parametrize("name", TRANSFORMERS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_restored_columns_are_the_input(name):
    transformer = TRANSFORMERS[name].fit(FRAME, None)
    trace = trace_columns([transformer], FRAME.columns)
    restored = trace.restore(_dense(transformer.transform(FRAME)))
    known = {FRAME.columns[j] for j in range(6) if not np.isnan(restored[:, j]).any()}
    for column in known:
        j = FRAME.columns.get_loc(column)
        assert_allclose(restored[:, j], FRAME[column], rtol=1e-9)
        assert trace.sources[trace.carriers[j]] == {j}
    expected = {
        "scaler": {"age", "income"},
        "remainder": {"age", "income", "constant"},
        "remainder transformed": {"age", "income", "constant"},
        "slices and masks": {"age", "income", "constant"},
        "nested": {"age", "income"},
        "unnamed": {"age"},
        "frozen": {"age", "income"},
        "union": {"age", "income"},
        "union alone": {"age", "income"},
    }
    assert known == expected.get(name, set())


def test_names_of_mixtures_have_the_names_of_columns():
    trace = trace_columns([TRANSFORMERS["mixtures"].fit(FRAME)], FRAME.columns)
    assert trace.names == [
        *("pca0", "pca1"),
        *("age", "income", "age^2", "age income", "income^2"),
    ]


def test_indicators_of_missing_values_belong_to_their_columns():
    frame = FRAME[NUMBERS].copy()
    frame.iloc[3, 1] = np.nan
    pipe = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()).fit(frame)
    trace = trace_columns([pipe], frame.columns)
    assert trace.sources == [{0}, {1}, {1}]
    restored = trace.restore(pipe.transform(frame))
    frame.iloc[3, 1] = frame["income"].mean()
    assert_allclose(restored, frame, rtol=1e-9)


def test_a_function_without_an_inverse_is_not_restored():
    trace = trace_columns([FORGETS.fit(FRAME[NUMBERS])], NUMBERS)
    assert trace.carriers == {0: 0, 1: 1}
    assert np.isnan(trace.restore(np.ones((3, 2)))).all()


def test_unnamed_features():
    trace = trace_columns([TRANSFORMERS["unnamed"].fit(FRAME)], FRAME.columns)
    assert trace.names == [
        "pipeline0",
        "functiontransformer0",
        "functiontransformer1",
        "age",
    ]
    assert trace.carriers == {2: 0, 3: 3}
    alone = make_pipeline(StandardScaler(), FunctionTransformer(np.abs))
    assert trace_columns([alone.fit(FRAME[NUMBERS])], NUMBERS) is None
