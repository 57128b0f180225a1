"""Detectors of PyOD and of skood in one ensemble, with a bound on false alarms."""

import numpy as np
from pyod.models.knn import KNN as PyodKNN
from pyod.models.lof import LOF
from sklearn.covariance import LedoitWolf
from sklearn.model_selection import train_test_split

from skood.combine import DSDE
from skood.datasets import load_digits_ood
from skood.detectors import KNN, Mahalanobis, SklearnDetector

X, y = load_digits_ood(left_out=[8, 9], ood_label=-1, return_X_y=True)
X, X_new, y, y_new = train_test_split(X, y, test_size=0.4, stratify=y, random_state=0)
ensemble = DSDE(
    [
        ("pyod_knn", SklearnDetector(detector=PyodKNN(n_neighbors=5))),
        ("pyod_lof", SklearnDetector(detector=LOF(n_neighbors=10))),
        ("knn", KNN()),
        ("mahalanobis", Mahalanobis(covariance=LedoitWolf(), tied=False)),
    ],
    alpha=0.05,
    calibration=0.4,
    random_state=0,
).fit(X, y)

is_ood = ensemble.predict(X_new) == -1
false_alarms = np.mean(is_ood[y_new != -1])
detected = np.mean(is_ood[y_new == -1])
auroc = ensemble.score(X_new, y_new)
print(f"AUROC {auroc:.3f}, false alarms {false_alarms:.1%}, detected {detected:.0%}")
assert auroc > 0.9
assert false_alarms < 0.09
assert detected > 0.4
