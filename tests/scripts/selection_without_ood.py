"""The choice of a detector for a frozen network, without OOD samples."""

from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline

from skood.datasets import load_digits_ood
from skood.detectors import KNN, MSP, Energy, Mahalanobis
from skood.metrics import auroc, make_ood_scorer
from skood.model_selection import make_synthetic_outliers

X, y = load_digits_ood(left_out=[8, 9], ood_label=-1, return_X_y=True)
X, y, unknown = X[y != -1] / 16, y[y != -1], X[y == -1] / 16
X, X_new, y, _ = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)
X, X_fit, y, y_fit = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)
network = MLPClassifier((64,), max_iter=200, random_state=0).fit(X, y)


def scorer(detector, X, y):
    """AUROC of held-out samples against outliers made of them."""
    return make_ood_scorer()(detector, *make_synthetic_outliers(X, y, random_state=0))


frozen = FrozenEstimator(network)
candidates = [MSP(frozen), Energy(frozen), KNN(frozen), Mahalanobis(frozen)]
search = GridSearchCV(
    Pipeline([("detector", MSP(frozen))]),
    {"detector": candidates},
    scoring=scorer,
    cv=3,
).fit(X_fit, y_fit)

truth = {}
for detector in candidates:
    scores = [detector.fit(X_fit, y_fit).score_samples(Z) for Z in (X_new, unknown)]
    is_id = [1] * len(X_new) + [-1] * len(unknown)
    truth[type(detector).__name__] = auroc(is_id, [*scores[0], *scores[1]])
chosen = type(search.best_params_["detector"]).__name__
print(f"chosen: {chosen}, on samples of unknown classes:", truth)
assert truth[chosen] > max(truth.values()) - 0.05
