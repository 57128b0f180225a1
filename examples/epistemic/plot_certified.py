r"""
==============================================
Certified predictions of all good last layers
==============================================

Which probabilities can a class have, among all last layers that explain the training
data nearly as well as the best one? For a softmax layer this is a convex problem.
:class:`~skood.epistemic.CertifiedQUAM` solves it for each class, with a certificate: a
model that attains a probability, and a bound that no model exceeds. Here the layer is a
logistic regression on the pixels of handwritten digits, and unknown images are digits
that are turned by a quarter, mixed from two digits, or inverted.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Data and the model
# ------------------
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

from skood.epistemic import CertifiedQUAM

X, y = load_digits(return_X_y=True)
X = X / 16.0
rng = np.random.default_rng(0)
order = rng.permutation(len(X))
train, test = order[:1500], order[1500:1600]

known = X[test].reshape(-1, 8, 8)
turned = np.rot90(known, axes=(1, 2))
mixed = known.copy()
mixed[:, 4:] = known[rng.permutation(len(known)), 4:]
unknown = {"turned": turned, "mixed": mixed, "inverted": 1 - known}
unknown = {name: images.reshape(-1, 64) for name, images in unknown.items()}

quam = CertifiedQUAM(LogisticRegression(max_iter=1000)).fit(X[train], y[train])
accuracy = quam.score(X[test], y[test])
print(f"accuracy {accuracy:.3f}; the last layer was fitted again, which changed its")
print(f"log posterior by {quam.excess_:.1f} nats, as biases have a prior, too")

# %%
# Bounds of two images
# --------------------
#
# The dark bars are the probabilities of the model, the light ones the largest
# probability that any model attains whose log posterior is at most 3 nats below the
# maximum. Lower and upper bounds differ by less than the width of a line.
images = np.stack([X[test][6], unknown["turned"][6]])
bounds, proba = quam.attainable_proba(images), quam.predict_proba(images)
print(f"largest relative gap of the bounds: {bounds.gap.max():.1e}")

fig, axes = plt.subplots(
    2, 2, figsize=(7.5, 4.4), width_ratios=[1, 3], layout="constrained"
)
titles = "known digit", "turned"
for i, (shown, panel) in enumerate(axes):
    shown.imshow(images[i].reshape(8, 8), cmap="gray_r")
    shown.set_title(titles[i])
    shown.axis("off")
    classes = quam.classes_
    panel.bar(classes, bounds.upper[i], color="#56B4E9", label="largest attainable")
    panel.bar(classes, proba[i], width=0.4, color="#0072B2", label="the model")
    panel.set(xticks=classes, ylim=(0, 1.02), ylabel="probability")
axes[1, 1].set_xlabel("class")
fig.legend(*axes[0, 1].get_legend_handles_labels(), loc="outside upper right", ncols=2)
plt.show()

# %%
# How far models may be from the best one
# ---------------------------------------
#
# The score is the largest attainable probability of a class other than the predicted
# one, `total`. For :math:`\gamma = 0` it is that of the model.
gammas = [0, 0.1, 0.3, 1, 3, 10]
median = {"known": []} | {name: [] for name in unknown}
auroc = {name: [] for name in unknown}
with threadpool_limits(limits=1):
    for gamma in gammas:
        quam.set_params(gamma=gamma)
        of_known = quam.predict_uncertainty(X[test]).total
        median["known"].append(np.median(of_known))
        for name, rows in unknown.items():
            total = quam.predict_uncertainty(rows).total
            median[name].append(np.median(total))
            is_ood = np.repeat([0, 1], [len(of_known), len(total)])
            auroc[name].append(roc_auc_score(is_ood, np.r_[of_known, total]))

COLORS = {
    "known": "0.3",
    "turned": "#D55E00",
    "mixed": "#009E73",
    "inverted": "#CC79A7",
}
MARKERS = {"known": "o", "turned": "s", "mixed": "D", "inverted": "^"}
fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for ax, curves in zip(axes, (median, auroc), strict=True):
    for name, values in curves.items():
        style = {"color": COLORS[name], "marker": MARKERS[name]}
        ax.plot(np.arange(len(gammas)), values, label=name, **style)
    ax.set_xticks(np.arange(len(gammas)), gammas)
    ax.set(xlabel="γ (nats)", ylim=(0, 1.02))
axes[0].set_ylabel("median of the largest probability\nof another class")
axes[1].set_ylabel("AUROC against known digits")
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper")
plt.show()

for name, values in auroc.items():
    print(f"{name:10}", *(f"{value:6.3f}" for value in values))

# %%
# The model itself is more certain of the turned digits than of known ones; the models
# around it disagree on them. With a large :math:`\gamma` other models predict other
# classes for known digits, too.
