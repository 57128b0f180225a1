"""Dim digits have short features: QUAM accepts them, together with the energy rejects.

The two detectors are combined by the smaller of their p-values on held-out digits.
"""

from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from skood.base import UncertaintyDetector
from skood.combine import Bonferroni, DetectorEnsemble
from skood.detectors import Energy
from skood.epistemic import QUAM, AdversarialSearch

X, y = load_digits(return_X_y=True)
X = X / 16
train, held_out, test = slice(0, 120), slice(120, 220), slice(220, 250)
net = FrozenEstimator(LogisticRegression(max_iter=1000).fit(X[train], y[train]))

quam = QUAM(net, AdversarialSearch(n_steps=20), random_state=0)
members = {"energy": Energy(net), "quam": UncertaintyDetector(quam)}
frozen = [
    (name, FrozenEstimator(detector.fit(X[train], y[train])))
    for name, detector in members.items()
]
both = DetectorEnsemble(frozen, Bonferroni(), calibration="same", level="nominal")
both.fit(X[held_out])

dim = 0.3 * X[test]
members["both"] = both
rejected = {name: (one.predict(dim) == -1).mean() for name, one in members.items()}
print(rejected)
assert rejected["quam"] == 0 and rejected["energy"] > 0.9 and rejected["both"] > 0.8
assert (both.predict(X[test]) == -1).mean() < 0.15
