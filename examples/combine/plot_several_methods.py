r"""
=============================
Several methods, one network
=============================

Which detector should read a network? Some look at logits, some at the last features,
some at all layers, and each is best for other foreign (OOD) images. An ensemble of them
needs no choice. :class:`~skood.combine.DSDE` turns the score of each method into a
p-value, and decides by multiple testing. The reader will see how such an ensemble is
fitted, that it follows the best of its members, and what it says about single images.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Digits and others
# -----------------
#
# The digits that come with scikit-learn, without 8 and 9 in the training. Foreign are
# these two, and further images of :ref:`sphx_glr_auto_examples_combine__library.py`:
# digits in a mirror, digits whose quarters have changed places, printed letters and
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
# Members without a classifier of their own read that of the ensemble: it is trained
# once, and runs once for all. Of the rows, 40 % are held out. Half of these give the
# p-values, and half the level: the share of known images that are rejected is at most
# ``alpha`` on average, although the members look at the same image with the same
# network. One thread is enough for a small network, and does not wait for others on a
# busy machine.
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
from skood.nn import TorchClassifier

network = TorchClassifier(
    module_params={"hidden": 64, "dropout": 0.2},
    max_epochs=25,
    lr=0.01,
    lr_schedule="one_cycle",
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
print(f"levels are {dsde.level_}: {dsde.n_calibration_} rows for p-values, ", end="")
print(f"{dsde.n_level_} for levels")

# %%
# Members and ensemble
# --------------------
#
# This is the share of foreign images that come in (FPR) when 95 % of the known images
# of the test do, in percent.
from skood.metrics import fpr_at_tpr

images = parts.images
kinds = [kind for kind in images if kind != "known"]


def fpr_of(detector):
    """Return the FPR for each kind of foreign images, in percent."""
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
# Which members vote
# ------------------
#
# The share of the images for which a member says OOD, and the share that is rejected.
print(f"{'':12}" + "".join(f"{kind:>10}" for kind in images))
with threadpool_limits(limits=1):
    selected = {kind: dsde.selected_detectors(rows) for kind, rows in images.items()}
shares = np.array([[*s.mean(axis=0), s.any(axis=1).mean()] for s in selected.values()])
for name, row in zip([*dsde.named_detectors_, "rejected"], shares.T, strict=True):
    print(f"{name:12}" + "".join(f"{share:10.2f}" for share in row))

# %%
# Single images
# -------------
#
# ``explain`` has a row for each image, with the p-values and the votes of all members.
# These are the first known digit, the first unknown one, and the first one in a mirror.
examples = {kind: images[kind][0] for kind in ("known", "unknown", "mirrored")}
frame = dsde.explain(np.stack(list(examples.values())))
frame.index = list(examples)
print(frame.round(3).T.to_string())

# %%
# The same as p-value plots: p-values in ascending order. Members to which an image
# looks known have p-values that are uniform between 0 and 1. Those that object are to
# the left of the bend: the change point, from which DSDE estimates to which share of
# the members the image looks known. Filled members vote against it.
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
# No method is the best for all kinds. Logits tell unknown digits from known ones, which
# detectors of all layers hardly do. These find mirrored digits, moved quarters, letters
# and photographs, which logits hardly do. DSDE is ahead of all members in the mean and
# in the worst case. For a single kind another may be ahead, such as Energy for unknown
# digits and "layers" for mirrored ones: an ensemble pays for what the others do not
# see.
#
# The price is some 400 images for the calibration, which do not train. And a level is a
# fraction of the images behind it: none is smaller than one in their number.
#
# One network, and one division of the digits, is an anecdote. In
# :ref:`sphx_glr_auto_examples_combine_plot_model_library.py` there are more.
