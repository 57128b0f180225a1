# Certified class probabilities of all last layers that explain the training data
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from skood.base import UncertaintyDetector
from skood.epistemic import CertifiedQUAM

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, random_state=0)
X_test = X_test[:30]
turned = np.rot90(X_test.reshape(-1, 8, 8), axes=(1, 2)).reshape(-1, 64)

quam = CertifiedQUAM(LogisticRegression(max_iter=1000)).fit(X_train, y_train)
bounds = quam.attainable_proba(turned[:3])
known, unknown = quam.predict_uncertainty(X_test), quam.predict_uncertainty(turned)

assert bounds.gap.max() <= 1e-3
assert (bounds.lower >= quam.predict_proba(turned[:3]) - 1e-12).all()
assert np.median(known.total) < 0.5 < 0.9 < np.median(unknown.total)
detector = UncertaintyDetector(quam, component="total")
assert detector.get_params()["estimator__gamma"] == 3.0
