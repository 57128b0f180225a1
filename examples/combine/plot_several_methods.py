r"""
=============================
Several methods, one network
=============================

Which detector is best for a network? Some use logits, some the last features,
some all layers, and each is best for other OOD images. An ensemble
avoids the choice. :class:`~skood.combine.DSDE` converts the score of each method to a
p-value, and decides by multiple testing. The example shows how such an ensemble is
fitted, that it is close to the best of its members, and how it explains single images.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Digits and others
# -----------------
#
# The digits included in scikit-learn, without 8 and 9 in the training. OOD samples are
# these two, and further images of :ref:`sphx_glr_auto_examples_combine__library.py`:
# mirrored digits, digits with permuted quarters, printed letters and
# pieces of photographs.
import numpy as np
from _library import divide

from skood.datasets import load_digits_ood

X, y = load_digits_ood(left_out=(), as_images=True, return_X_y=True)
parts = divide(X, y, (8, 9), n_train=600, seed=0)
X_train = np.concatenate([parts.X_train, parts.X_calibration])
y_train = np.concatenate([parts.y_train, parts.y_calibration])

# %%
# An ensemble of methods
# ----------------------
#
# Members without their own classifier use the classifier of the ensemble: it is trained
# once, and runs once for all. 40 % of the samples are held out. Half of these give the
# p-values, and half the level: the fraction of known images that are rejected is at
# most ``alpha`` on average, although the members depend on each other through the image
# and the network. One thread is enough for a small network, and does not wait for
# others on a busy machine.
from sklearn.covariance import LedoitWolf
from threadpoolctl import threadpool_limits

from skood.combine import DSDE
from skood.detectors import (
    GEN,
    KNN,
    MSP,
    Energy,
    Gram,
    Mahalanobis,
    MultiLayerMahalanobis,
    ViM,
)
from skood.nn import TorchClassifier, TrainingOptions

network = TorchClassifier(
    module_params={"hidden": 64, "dropout": 0.2},
    max_epochs=25,
    lr=0.01,
    training=TrainingOptions(lr_schedule="one_cycle"),
    random_state=0,
)
dsde = DSDE(
    [
        ("MSP", MSP()),
        ("Energy", Energy()),
        ("GEN", GEN()),
        ("KNN", KNN(n_neighbors=5)),
        ("Mahalanobis", Mahalanobis(covariance=LedoitWolf())),
        ("ViM", ViM()),
        ("Gram", Gram(None, random_state=0)),
        ("layers", MultiLayerMahalanobis(None, covariance=LedoitWolf())),
    ],
    estimator=network,
    calibration=0.4,
    random_state=0,
)
with threadpool_limits(limits=1):
    dsde.fit(X_train, y_train)
print(f"levels are {dsde.level_}: {dsde.n_calibration_} samples for p-values, ", end="")
print(f"{dsde.n_level_} for levels")

# %%
# Members and ensemble
# --------------------
#
# This is the fraction of OOD images accepted (FPR) at a TPR of 95 % on the known test
# images, in percent.
from skood.metrics import fpr_at_tpr

images = parts.images
kinds = [kind for kind in images if kind != "known"]


def fpr_of(detector):
    """Return the FPR for each kind of OOD images, in percent."""
    scores = {kind: detector.score_samples(rows) for kind, rows in images.items()}
    rates = []
    for kind in kinds:
        y_true = np.repeat([1, -1], [len(scores["known"]), len(scores[kind])])
        y_score = np.append(scores["known"], scores[kind])
        rates.append(100 * fpr_at_tpr(y_true, y_score, tpr=0.95))
    return np.array(rates)


with threadpool_limits(limits=1):
    rates = {name: fpr_of(member) for name, member in dsde.named_detectors_.items()}
    rates["DSDE"] = fpr_of(dsde)
print(f"{'':12}" + "".join(f"{kind:>10}" for kind in [*kinds, "mean", "worst"]))
for name, row in rates.items():
    cells = "".join(f"{rate:10.1f}" for rate in [*row, row.mean(), row.max()])
    print(f"{name:12}{cells}")

# %%
# Rejecting members
# -----------------
#
# The fraction of the images that a member rejects, and the fraction that is rejected.
print(f"{'':12}" + "".join(f"{kind:>10}" for kind in images))
with threadpool_limits(limits=1):
    selected = {kind: dsde.selected_detectors(rows) for kind, rows in images.items()}
fractions = np.array(
    [[*s.mean(axis=0), s.any(axis=1).mean()] for s in selected.values()]
)
for name, row in zip([*dsde.named_detectors_, "rejected"], fractions.T, strict=True):
    print(f"{name:12}" + "".join(f"{fraction:10.2f}" for fraction in row))

# %%
# Single images
# -------------
#
# ``explain`` has a row for each image, with the p-values and the decisions of all
# members. These are the first known digit, the first unknown one, and the first
# mirrored one.
examples = {kind: images[kind][0] for kind in ("known", "unknown", "mirrored")}
frame = dsde.explain(np.stack(list(examples.values())))
frame.index = list(examples)
print(frame.round(3).T.to_string())

# %%
# The same as p-value plots: p-values in ascending order. Members whose null hypothesis
# holds have p-values that are uniform between 0 and 1. Rejecting members are to
# the left of the bend: the change point, from which DSDE estimates the fraction of
# members whose null hypothesis holds. Filled members reject the image.
import matplotlib.pyplot as plt

from skood.combine import PValuePlotDisplay

fig, axes = plt.subplots(
    3, 2, figsize=(11, 11), width_ratios=[1, 4], layout="constrained"
)
for ax, (kind, image) in zip(axes[:, 0], examples.items(), strict=True):
    ax.imshow(image[0], cmap="gray_r", vmin=0, vmax=1)
    ax.set(xticks=[], yticks=[], title=kind)
PValuePlotDisplay.from_estimator(dsde, np.stack(list(examples.values())), ax=axes[:, 1])
plt.show()

# %%
# What we see
# -----------
#
# No method is the best for all kinds. Logits separate unknown digits from known ones,
# where detectors of all layers are weak. These detect mirrored digits, permuted
# quarters, letters and photographs, where logits are weak. DSDE is better than all
# members in the mean and in the worst case. For a single kind another method may be
# better, such as Energy for unknown digits and "layers" for mirrored ones: the ensemble
# includes members that do not detect this kind.
#
# The cost is some 400 images for the calibration, which are not used for training. The
# resolution of the level is limited by the number of calibration images.
#
# This is one network, and one split of the digits. For several see
# :ref:`sphx_glr_auto_examples_combine_plot_model_library.py`.
