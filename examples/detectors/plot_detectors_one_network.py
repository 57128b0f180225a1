"""
===============================
One network, many OOD detectors
===============================

A detector uses the outputs of a trained network: its logits, its features, or
both. The network is therefore trained once, and detectors are fitted like any
other scikit-learn estimator. Here seven of them are evaluated on two kinds of
out-of-distribution (OOD) images: digits of left-out classes, and noise.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# A network of eight digits
# ---------------------------------
#
# The digits 8 and 9 are left out of the training. Wrapped in a
# :class:`~sklearn.frozen.FrozenEstimator`, the trained network is not fitted again.
import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split

from skood.datasets import load_digits_ood
from skood.nn import TorchClassifier

X, y = load_digits_ood(left_out=(8, 9), ood_label=-1, return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.5, stratify=y, random_state=0
)
known = y_train >= 0
network = TorchClassifier(max_epochs=40, lr=3e-3, random_state=0)
network.fit(X_train[known], y_train[known])
network = FrozenEstimator(network)

X_id, y_id = X_test[y_test >= 0], y_test[y_test >= 0]
print(f"accuracy on known digits: {network.score(X_id, y_id):.3f}")

# %%
# Seven detectors
# ---------------
#
# The first four use the logits, the next two the features, the last one both. Their
# scores are high for in-distribution (ID) images. Some of the 100 features of this
# small network are constant, so that their covariance is shrunk.
from sklearn.covariance import LedoitWolf

from skood.detectors import KNN, MSP, Energy, Entropy, Mahalanobis, MaxLogit, ViM

detectors = [
    MSP(network),
    Entropy(network),
    MaxLogit(network),
    Energy(network),
    KNN(network, n_neighbors=5),
    Mahalanobis(network, covariance=LedoitWolf()),
    ViM(network),
]
for detector in detectors:
    detector.fit(X_train[known], y_train[known])

# %%
# Two kinds of OOD images
# -----------------------
#
# The area under the ROC curve is the probability that a known digit scores above an
# OOD image; 0.5 is chance.
from skood.metrics import auroc

rng = np.random.default_rng(0)
kinds = {
    "unknown digits": X_test[y_test < 0],
    "noise": rng.uniform(size=(300, X.shape[1])).astype(np.float32),
}
areas = np.empty((len(detectors), len(kinds)))
for j, X_ood in enumerate(kinds.values()):
    rows = np.concatenate([X_id, X_ood])
    labels = np.concatenate([y_id, np.full(len(X_ood), -1)])
    for i, detector in enumerate(detectors):
        areas[i, j] = auroc(labels, detector.score_samples(rows))

names = [type(detector).__name__ for detector in detectors]
print(f"{'AUROC':12}" + "".join(f"{kind:>16}" for kind in kinds))
for name, row in zip(names, areas, strict=True):
    print(f"{name:12}" + "".join(f"{area:16.3f}" for area in row))

# %%
import matplotlib.pyplot as plt

fig, ax = plt.subplots(figsize=(6.5, 3.5), layout="constrained")
position = np.arange(len(names))
ax.hlines(position, areas.min(axis=1), areas.max(axis=1), color="0.8", lw=3, zorder=0)
for kind, column, marker in zip(kinds, areas.T, "os", strict=True):
    ax.scatter(column, position, marker=marker, label=kind)
ax.set(yticks=position, yticklabels=names, xlabel="AUROC", xlim=(0.75, 1.01))
ax.invert_yaxis()
ax.legend(loc="lower left")
ax.set_title("No detector is the best on both")
plt.show()

# %%
# The scores behind two of these numbers:
from skood.metrics import ScoreHistogramDisplay

fig, axes = plt.subplots(2, 2, figsize=(9, 6), layout="constrained")
for row, name in zip(axes, ("Energy", "Mahalanobis"), strict=True):
    detector = detectors[names.index(name)]
    for ax, (kind, X_ood) in zip(row, kinds.items(), strict=True):
        scores = detector.score_samples(np.concatenate([X_id, X_ood]))
        labels = np.concatenate([y_id, np.full(len(X_ood), -1)])
        ScoreHistogramDisplay.from_predictions(
            labels, scores, name=f"{name}: {kind}", threshold=detector.offset_, ax=ax
        )
        ax.set_ylim(top=1.6 * ax.get_ylim()[1])  # room for the legend
plt.show()

# %%
# The dashed line is the threshold of ``predict``, the 5 % quantile of the scores of
# training samples, set by ``contamination``. Known test digits
# are rejected a little more often, since the network and the detector were fitted on
# the training digits.
energy = detectors[names.index("Energy")]
for kind, rows in {"known digits": X_id, **kinds}.items():
    print(f"{kind:15}: {np.mean(energy.predict(rows) == 1):.2f} accepted by Energy")

# %%
# What we see
# -----------
#
# Detectors of logits detect low confidence, which most unknown digits have. Noise may
# have high confidence, if it matches the weights of some class. Detectors of features
# detect samples far from the training samples. Noise is far away. But a network trained
# to separate eight digits maps an eight or a nine close to one of these, too close for
# the Mahalanobis distance and for ViM.
#
# The choice of a detector depends on the expected OOD samples. Here the nearest
# neighbors are a safe choice: close to the best on either kind. To reject samples that
# are likely to be misclassified as well, see
# :class:`~skood.rejection.RejectOptionClassifier`, which combines two scores.
