"""Why a row of a table is rejected, in the names and units of its columns."""

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skood.detectors import Mahalanobis
from skood.rejection import RejectOptionClassifier, TwoThresholds

rng = np.random.default_rng(0)
loans = pd.DataFrame(
    {
        "income": rng.normal(40_000, 9_000, 900),
        "age": rng.integers(20, 70, 900),
        "city": rng.choice(["Paris", "Rome", "Oslo"], 900),
    }
)
y = np.where(loans["income"] > 200 * loans["age"] + 30_000, "good", "poor")
to_numbers = make_column_transformer(
    (OneHotEncoder(drop="first"), ["city"]), (StandardScaler(), ["income", "age"])
)
clf = RejectOptionClassifier(
    make_pipeline(to_numbers, HistGradientBoostingClassifier(max_iter=20)),
    ood_detector=make_pipeline(to_numbers, Mahalanobis()),
    rule=TwoThresholds(ood=0.02, risk=0.05),
    random_state=0,
).fit(loans, y)

new = pd.DataFrame(
    {"income": [182_000.0, 48_000.0], "age": [45, 40], "city": ["Rome", "Oslo"]}
)
explanation = clf.explain(new)
print(explanation)
print(explanation.table(0))
assert explanation.sentences[0].startswith(
    "rejected as out-of-distribution: income 182,000, "
)
assert explanation.sentences[1].startswith("accepted as 'good'")
distance = -clf.score_pair(new)[1]
assert np.allclose(explanation.contributions.sum(axis=1), distance)
assert explanation.table(0).loc["income", "contribution"] > 0.9 * distance[0]
