"""
=============================================
How different are the models of an ensemble?
=============================================

Epistemic uncertainty is the disagreement of models that explain the training data. An
ensemble has networks of other initializations; QUAM searches adversarial models, which
explain the training data and predict another class at a point. Here both are compared
with the given network: by the features that they use, as in Figure C.9 of the paper on
QUAM, and by their predictions, as in Figure C.10. Only the titles of these figures are
available, so that the protocol is our own.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Models
# ------
#
# A perceptron on the digits 0 to 7, ten others of an ensemble, and the adversarial
# models of 30 known and 30 unknown digits (8 and 9): of each point the feasible model
# with the largest divergence.
import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import entr
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.manifold import smacof
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

from skood.datasets import load_digits_ood
from skood.epistemic import QUAM, integrated_gradients

X, y = load_digits_ood(left_out=[8, 9], ood_label=-1, return_X_y=True)
X_id, X_ood, y_id = X[y != -1], X[y == -1], y[y != -1]
X_train, X_test, y_train, y_test = train_test_split(
    X_id, y_id, test_size=500, stratify=y_id, random_state=0
)
points = {"known digits": X_test[:30], "unknown digits": X_ood[:30]}

network = MLPClassifier((32, 32), max_iter=150, random_state=0)
with warnings.catch_warnings(), threadpool_limits(limits=1):
    warnings.simplefilter("ignore", ConvergenceWarning)
    given = clone(network).fit(X_train, y_train)
    members = [
        clone(network).set_params(random_state=i).fit(X_train, y_train)
        for i in range(1, 11)
    ]
    quam = QUAM(FrozenEstimator(given), random_state=0).fit(X_train, y_train)
    adversarial = {
        kind: [
            models.model(
                models.targets[np.argmax(models.divergence * models.is_feasible)]
            )
            for models in quam.adversarial_models(rows)
        ]
        for kind, rows in points.items()
    }
scores = [
    model.score(X_test, y_test) for some in adversarial.values() for model in some
]
print(f"accuracy on {len(X_test)} test digits")
print(f"given network       {given.score(X_test, y_test):.3f}")
print(f"ensemble, mean      {np.mean([m.score(X_test, y_test) for m in members]):.3f}")
print(f"adversarial, mean   {np.mean(scores):.3f}, lowest {np.min(scores):.3f}")

# %%
# Mechanistic similarity
# ----------------------
#
# The cosine of the attributions of a model and of the given network to the pixels, by
# integrated gradients of the logit of the class that the given network predicts.


def cosine(A, B):
    """Return the cosine of each pair of rows."""
    return (A * B).sum(axis=1) / np.linalg.norm(A, axis=1) / np.linalg.norm(B, axis=1)


similarity = {}
with threadpool_limits(limits=1):
    for kind, rows in points.items():
        classes = given.predict(rows)
        own = integrated_gradients(given, rows, target=classes)
        similarity["ensemble", kind] = np.concatenate(
            [
                cosine(integrated_gradients(m, rows, target=classes), own)
                for m in members
            ]
        )
        at_points = [
            integrated_gradients(model, rows[i : i + 1], target=classes[i])[0]
            for i, model in enumerate(adversarial[kind])
        ]
        similarity["adversarial", kind] = cosine(np.array(at_points), own)
for (models, kind), values in similarity.items():
    print(f"{models:12} {kind:15} mean cosine {values.mean():.2f}")

fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
bins = np.linspace(0.3, 1, 36)
for ax, kind in zip(axes, points, strict=True):
    for models, hatch in (("ensemble", None), ("adversarial", "//")):
        values = similarity[models, kind]
        weights = np.full(len(values), 1 / len(values))
        ax.hist(values, bins, weights=weights, alpha=0.6, hatch=hatch, label=models)
    ax.set(title=kind, xlabel="cosine with the given network")
axes[0].set_ylabel("fraction of models and points")
axes[0].legend(loc="upper left")
plt.show()

# %%
# Prediction space
# ----------------
#
# The distance of two models is the root of the Jensen-Shannon divergence of their
# predictions, a mean over the 500 test digits. Metric multidimensional scaling draws
# these distances in two dimensions as well as it can.
groups = {"given network": [given], "ensemble": members, **adversarial}
proba = np.array([m.predict_proba(X_test) for some in groups.values() for m in some])
own = entr(proba).sum(axis=-1)
squared = [
    (entr((p + proba) / 2).sum(axis=-1) - (h + own) / 2).mean(axis=1)
    for p, h in zip(proba, own, strict=True)
]
distance = np.sqrt(np.maximum(squared, 0))
place, _ = smacof(distance, n_components=2, n_init=4, random_state=0)
error = np.abs(cdist(place, place) - distance)
print(f"mean error of the distances in two dimensions: {error.mean():.3f}")

fig, ax = plt.subplots(layout="constrained")
ends = np.cumsum([0, *map(len, groups.values())])
for (name, some), start, marker in zip(groups.items(), ends, "*os^", strict=False):
    rows = slice(start, start + len(some))
    label = name if name in ("given network", "ensemble") else f"adversarial, {name}"
    ax.scatter(
        *place[rows].T, marker=marker, s=160 if marker == "*" else 40, label=label
    )
    if len(some) > 1:
        within = distance[rows, rows][~np.eye(len(some), dtype=bool)].mean()
        print(
            f"{label:28} from given {distance[0, rows].mean():.3f}, within {within:.3f}"
        )
ax.set(title="distances of predictions on test digits", aspect="equal")
fig.legend(loc="outside lower center", ncols=2)
plt.show()

# %%
# What we see
# -----------
#
# An adversarial model is found from the given network, and explains its class at the
# point by nearly the same pixels: the mean cosine is above 0.9, of an ensemble, whose
# members start elsewhere, 0.8. Integrated gradients compare with an image of zeros, and
# depend on the network along the whole line; the search changes it near the point.
#
# In their predictions adversarial models are more different. Members of the ensemble
# are close to each other, all at the same distance from the given network.
# Adversarial models surround it, and their distances from each other are larger, up to
# twice as large for known digits, where a model must change more to predict another
# class. So they are diverse where it matters, with hardly less accuracy.
