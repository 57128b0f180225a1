"""Contributions of the columns of a table: sums, means and deviations."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from skood.detectors import (
    KNN,
    MSP,
    SSD,
    Mahalanobis,
    RelativeMahalanobis,
    Residual,
    ViM,
    column_contributions,
)

RNG = np.random.default_rng(0)
Y = np.repeat(["good", "poor"], 100)
FRAME = pd.DataFrame(
    {
        "income": RNG.lognormal(10, 0.3, 200) + 9000 * (Y == "good"),
        "unused": RNG.normal(size=200),
        "city": RNG.choice(["Paris", "Rome", "Oslo"], 200),
        "age": RNG.normal(40, 9, 200),
        "debt": RNG.normal(0, 2, 200),
    },
    index=np.arange(200) + 1000,
)
COLUMNS = ["income", "city", "age", "debt"]
TABLE = ColumnTransformer(
    [
        ("cat", OneHotEncoder(drop="first"), ["city"]),
        ("num", StandardScaler(), ["debt", "income", "age"]),
    ]
)
STRANGE = FRAME.iloc[:3].assign(income=[2e5, 3e4, 1e3], city="Oslo")
DETECTORS = [
    KNN(n_neighbors=5),
    KNN(normalize=False),
    Mahalanobis(),
    Mahalanobis(tied=False),
    RelativeMahalanobis(),
    Residual(n_components=2),
    SSD(),
    ViM(n_components=2),
]
each_detector = pytest.mark.parametrize("detector", DETECTORS, ids=repr)


def _squared_distance(detector, Z):
    """Return the sum of the contributions of features, as the User Guide defines it."""
    columns = detector.explain(Z, n_features=1)
    if "residual" in columns:
        return columns["residual"] ** 2
    if isinstance(detector, KNN):
        return detector.score_samples(Z) ** 2
    if isinstance(detector, RelativeMahalanobis):
        return columns["relative_distance"]
    return columns["squared_distance"]


@each_detector
def test_sums_are_those_of_features_by_column(detector):
    Z = TABLE.fit_transform(FRAME)
    alone = clone(detector).fit(Z, Y)
    result = column_contributions(
        make_pipeline(clone(TABLE), clone(detector)).fit(FRAME, Y), STRANGE
    )
    assert_array_equal(result.columns, COLUMNS)
    features = column_contributions(alone, TABLE.transform(STRANGE))
    assert_array_equal(features.columns, ["x0", "x1", "x2", "x3", "x4"])
    parts = features.contributions
    by_column = [parts[:, 3], parts[:, 0] + parts[:, 1], parts[:, 4], parts[:, 2]]
    assert_allclose(result.contributions, np.transpose(by_column), rtol=1e-9)
    expected = _squared_distance(alone, TABLE.transform(STRANGE))
    assert_allclose(result.contributions.sum(axis=1), expected, rtol=1e-7)
    order = np.argsort(-parts, axis=1, kind="stable")
    frame = alone.explain(TABLE.transform(STRANGE), n_features=5)
    names = frame[[f"feature_{j}" for j in range(1, 6)]].to_numpy()
    assert_array_equal(names.astype(int), order)
    assert_array_equal(result.observed, STRANGE[COLUMNS].to_numpy(object))
    assert not result.is_mixture.any()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("frozen", [True, False])
def test_class_means_and_deviations_in_units_of_the_table(tied, frozen):
    pipe = make_pipeline(clone(TABLE), Mahalanobis(tied=tied)).fit(FRAME, Y)
    result = column_contributions(FrozenEstimator(pipe) if frozen else pipe, STRANGE)
    assert result.reference_name == "class mean"
    assert_array_equal(result.nearest_class, ["good", "good", "poor"])
    numbers = ["income", "age", "debt"]
    means = FRAME[numbers].groupby(Y).mean()
    within = FRAME[numbers].groupby(Y).var(ddof=0)
    sd = np.sqrt(within if not tied else within * 0 + within.mean())
    for i, label in enumerate(result.nearest_class):
        at = [0, 2, 3]
        assert_allclose(result.references[i, at].astype(float), means.loc[label])
        gaps = STRANGE[numbers].iloc[i] - means.loc[label]
        assert_allclose(result.deviations[i, at], gaps / sd.loc[label])
    assert np.isnan(result.references[:, 1].astype(float)).all()
    assert np.isnan(result.deviations[:, 1]).all()


def test_other_references():
    Z = FRAME[["income", "age", "debt"]]
    knn = make_pipeline(StandardScaler(), KNN(n_neighbors=3, normalize=False)).fit(Z)
    result = column_contributions(knn, Z.iloc[:4])
    scaled = StandardScaler().fit_transform(Z)
    distances = np.linalg.norm(scaled[:4, None] - scaled, axis=2)
    third = np.argsort(distances, axis=1)[:, 2]
    assert_allclose(result.references.astype(float), Z.to_numpy()[third])
    assert np.isnan(result.deviations).all() and result.nearest_class is None
    assert result.reference_name == "neighbor"

    # with features of unit length: the neighbor at the length of the sample
    knn = KNN(n_neighbors=1, normalize=True).fit([[3.0, 4.0], [1.0, 0.0]])
    result = column_contributions(knn, [[0.0, 10.0]])
    assert_allclose(result.references.astype(float), [[6.0, 8.0]])
    assert_allclose(result.contributions, [[0.36, 0.04]])

    residual = make_pipeline(StandardScaler(), Residual(n_components=2)).fit(Z, Y)
    result = column_contributions(residual, Z.iloc[:4])
    gap = (Z.iloc[:4] - result.references.astype(float)) / Z.std(ddof=0)
    assert_allclose(result.contributions, gap**2)
    assert result.reference_name == "other columns"

    ssd = SSD().fit(Z)
    result = column_contributions(ssd, Z.iloc[:4])
    units = Z.to_numpy() / np.linalg.norm(Z, axis=1, keepdims=True)
    deviations = (units[:4] - units.mean(axis=0)) / units.std(axis=0)
    assert_allclose(result.deviations, deviations, rtol=1e-6)


def test_features_of_a_classifier_belong_to_its_columns():
    frozen = FrozenEstimator(
        make_pipeline(clone(TABLE), LogisticRegression(max_iter=500)).fit(FRAME, Y)
    )
    result = column_contributions(Mahalanobis(frozen).fit(FRAME, Y), STRANGE)
    alone = make_pipeline(clone(TABLE), Mahalanobis()).fit(FRAME, Y)
    expected = column_contributions(alone, STRANGE)
    assert_array_equal(result.columns, COLUMNS)
    assert_allclose(result.contributions, expected.contributions)
    assert_allclose(result.deviations, expected.deviations)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_features_of_a_layer_have_numbers():
    mlp = MLPClassifier((4,), max_iter=20, random_state=0)
    pipe = make_pipeline(clone(TABLE), mlp)
    detector = Residual(pipe, n_components=2).fit(FRAME, Y)
    result = column_contributions(detector, STRANGE)
    assert_array_equal(result.columns, [f"feature {j}" for j in range(4)])
    assert result.is_mixture.all()
    assert_allclose(
        result.contributions.sum(axis=1), _squared_distance(detector, STRANGE)
    )


@pytest.mark.parametrize("unnamed", [False, True])
def test_mixtures_stay_as_they_are(unnamed):
    numbers = FRAME[["income", "age", "debt"]]
    step = FunctionTransformer(np.arcsinh) if unnamed else PCA(2)
    table = ColumnTransformer(
        [("p", make_pipeline(StandardScaler(), step), ["age", "debt"])],
        remainder="passthrough",
    )
    detector = make_pipeline(table, Mahalanobis()).fit(numbers)
    result = column_contributions(detector, numbers.iloc[:5])
    step_name = "pipeline" if unnamed else "pca"
    names = ["income", f"{step_name}0", f"{step_name}1"]
    assert_array_equal(result.columns, names)
    assert_array_equal(result.is_mixture, [False, True, True])
    Z = table.transform(numbers)
    gaps = Z - Z.mean(axis=0)
    distance = np.einsum("ij,jk,ik->i", gaps, np.linalg.inv(np.cov(Z.T, ddof=0)), gaps)
    assert_allclose(result.contributions.sum(axis=1), distance[:5])
    if not unnamed:
        assert_allclose(result.observed[:, 1:].astype(float), Z[:5, :2])


def test_single_sample_as_array_and_words():
    pipe = make_pipeline(StandardScaler(), Mahalanobis())
    Z = FRAME[["income", "age"]].to_numpy()
    pipe.fit(Z, Y)
    together = column_contributions(pipe, Z[:9])
    for i in range(9):
        one = column_contributions(pipe, Z[i : i + 1])
        assert_allclose(
            one.contributions[0], together.contributions[i], rtol=1e-14, atol=1e-15
        )
        assert_array_equal(one.references[0], together.references[i])
    assert_array_equal(together.columns, ["x0", "x1"])
    dense = FunctionTransformer(
        lambda samples: samples.toarray(),
        accept_sparse=True,
        feature_names_out="one-to-one",
    )
    words = make_pipeline(TfidfVectorizer(), dense, KNN(n_neighbors=1))
    words.fit(["late train", "early train", "late"])
    result = column_contributions(words, ["late train", "early"])
    assert_array_equal(result.columns, ["early", "late", "train"])
    assert_allclose(result.contributions[0], 0.0, atol=1e-12)


def test_errors():
    with pytest.raises(TypeError, match="score of MSP is not a sum over features"):
        column_contributions(MSP().fit([[0.0, 1.0], [1.0, 0.0]]), [[0.0, 1.0]])
    manhattan = KNN(n_neighbors=1, metric="manhattan").fit([[0.0], [1.0]])
    with pytest.raises(TypeError, match="score of KNN is not a sum"):
        column_contributions(manhattan, [[0.0]])
    with pytest.raises(NotFittedError):
        column_contributions(Mahalanobis(), [[0.0]])
    pipe = make_pipeline(StandardScaler(), Mahalanobis()).fit(FRAME[["income", "age"]])
    twice = pd.DataFrame([[1.0, 2.0]], columns=["income", "income"])
    with pytest.raises(ValueError, match=r"differ in name; repeated: \['income'\]"):
        column_contributions(pipe, twice)
    with pytest.raises(ValueError, match="feature"):
        column_contributions(pipe, [[1.0, 2.0, 3.0]])


@pytest.mark.parametrize(
    "columns",
    [["income", "age"], [0, 3], [True, False, False, True], slice(0, 1), [-2]],
    ids=str,
)
def test_columns_of_a_reordered_table(columns):
    """As ColumnTransformer: by the names in the fit, if the transformer has them."""
    X = FRAME.drop(columns="city")
    table = ColumnTransformer([("s", StandardScaler(), columns)], remainder="drop")
    pipeline = make_pipeline(table, Mahalanobis()).fit(X)
    expected = column_contributions(pipeline, X)
    other = X[X.columns[::-1]].assign(more=0.0)
    result = column_contributions(pipeline, other[["more", *X.columns[::-1]]])
    order = [result.columns.tolist().index(name) for name in expected.columns]
    for key in ("columns", "contributions", "references", "observed"):
        assert_array_equal(result[key].T[order], expected[key].T)


def test_columns_of_nested_tables():
    """The second table selects by names that the first has given, with its prefix."""
    first = ColumnTransformer([("kept", "passthrough", ["debt", "age"])])
    second = ColumnTransformer([("s", StandardScaler(), ["kept__age"])])
    pipeline = make_pipeline(
        first.set_output(transform="pandas"), second, Mahalanobis()
    )
    result = column_contributions(pipeline.fit(FRAME), FRAME)
    assert result.columns.tolist() == ["age"]
