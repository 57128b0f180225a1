r"""
================================
Which rectifier, which detector?
================================

A rectifier changes the features of a network before a detector uses them: it clips,
prunes or scales them. It is a transformer, so that any rectifier can be combined with
any detector. Here all of them are combined with four detectors, on small convolutional
networks. The example shows that the rectifiers that improve networks for ImageNet
do not improve these, unless they clip, and that a rectifier has to be tuned
like any other hyperparameter.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Networks
# --------
#
# Five networks, each trained without two of the ten digits. Each is split into
# its body, which maps an image to 64 features, and its head, which maps these to
# eight logits. One thread is enough for a small network, and does not wait for others
# on a busy machine.
import numpy as np
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from skood.datasets import load_digits_ood
from skood.nn import TorchClassifier, TrainingOptions, split

LEFT_OUT = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]

X, y = load_digits_ood(left_out=(), as_images=True, return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.5, stratify=y, random_state=0
)


def train(left_out):
    """Return body and head of a network trained without two digits."""
    known = ~np.isin(y_train, left_out)
    network = TorchClassifier(
        module_params={"hidden": 64, "dropout": 0.2},
        max_epochs=25,
        lr=0.01,
        training=TrainingOptions(lr_schedule="one_cycle"),
        random_state=0,
    )
    return split(network.fit(X_train[known], y_train[known]))


with threadpool_limits(limits=1):
    networks = [train(left_out) for left_out in LEFT_OUT]

# %%
# Rectifiers and detectors
# ------------------------
#
# All with their default parameters. :class:`~skood.rectifiers.LTS` needs the head to
# scale its logits exactly; :class:`~skood.rectifiers.DICE` *is* a head, and replaces
# the head of the network. :class:`~skood.detectors.KNN` does not use logits.
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from skood.detectors import KNN, MSP, Energy, MaxLogit
from skood.rectifiers import ASH, DICE, LTS, SCALE, VRA, ReAct

detectors = [MSP(), Energy(), MaxLogit(), KNN(n_neighbors=5)]


def rectified(head):
    """Return, by name, a rectifier and the head that follows it."""
    return {
        "none": ("passthrough", head),
        "ReAct": (ReAct(), head),
        "VRA": (VRA(), head),
        "ASH-P": (ASH(variant="p"), head),
        "ASH-S": (ASH(variant="s"), head),
        "ASH-B": (ASH(variant="b"), head),
        "SCALE": (SCALE(), head),
        "LTS": (LTS(head), head),
        "DICE": ("passthrough", DICE(head)),
    }


# %%
# There are two kinds of OOD images: the digits left out of the training of the network,
# and known ones with shuffled pixels, here of label -1. For ``score``, the AUROC, a
# sample is OOD if its label is not a class of the fit. A pipeline could start with the
# body; but since the features are the same for all, they are extracted once. The
# accuracy on known digits shows the effect of a rectifier on the classifier, if it is
# applied to rectified features.
KINDS = ["unknown digits", "shuffled pixels"]


def evaluate(left_out, body, head):
    """Return AUROCs (rectifiers, detectors, kinds) and accuracies (rectifiers,)."""
    known, is_ood = ~np.isin(y_train, left_out), np.isin(y_test, left_out)
    X_id, y_id = X_test[~is_ood], y_test[~is_ood]
    pixels = X_id.reshape(len(X_id), -1)
    shuffled = np.random.default_rng(0).permuted(pixels, axis=1).reshape(X_id.shape)
    Z_train, y_known = body.transform(X_train[known]), y_train[known]
    Z_id, Z_test, Z_shuffled = map(body.transform, (X_id, X_test, shuffled))
    tests = [
        (Z_test, y_test),
        (np.concatenate([Z_id, Z_shuffled]), np.append(y_id, np.full(len(X_id), -1))),
    ]
    areas, accuracies = [], []
    for rectifier, last in rectified(head).values():
        classifier = make_pipeline(rectifier, last).fit(Z_train, y_known)
        accuracies.append(classifier.score(Z_id, y_id))
        for detector in detectors:
            detector = clone(detector).set_params(estimator=last)
            model = make_pipeline(rectifier, detector).fit(Z_train, y_known)
            areas.append([model.score(*test) for test in tests])
    return np.reshape(areas, (-1, len(detectors), len(KINDS))), accuracies


with threadpool_limits(limits=1):
    results = [
        evaluate(left_out, *network)
        for left_out, network in zip(LEFT_OUT, networks, strict=True)
    ]
areas = np.array([table for table, _ in results])
accuracies = np.array([row for _, row in results])

# %%
# The grid
# --------
#
# Means over the five networks. A row of colors is a rectifier; blue is better and red
# is worse than the same detector without one.
import matplotlib.pyplot as plt

rectifiers = list(rectified(None))
names = [type(detector).__name__ for detector in detectors]
means = areas.mean(axis=0)
fig, axes = plt.subplots(1, 2, figsize=(9.5, 5), sharey=True, layout="constrained")
for ax, kind, table in zip(axes, KINDS, np.moveaxis(means, 2, 0), strict=True):
    gain = table - table[0]
    image = ax.imshow(gain, cmap="RdBu", vmin=-0.1, vmax=0.1, aspect="auto")
    for (i, j), value in np.ndenumerate(table):
        dark = abs(gain[i, j]) > 0.06
        ax.text(j, i, f"{value:.3f}", ha="center", va="center", c="w" if dark else "k")
    ax.set_xticks(range(len(names)), names)
    ax.set_yticks(range(len(rectifiers)), rectifiers)
    ax.set_title(f"AUROC, {kind}")
fig.colorbar(image, ax=axes, label="gain over no rectifier", extend="min")
plt.show()

# %%
# To estimate the variation, this is the gain of Energy on unknown digits, for each of
# the networks, and the accuracy on known digits as a mean.
print(f"{'':8}" + "".join(f"{f'no {a}, {b}':>9}" for a, b in LEFT_OUT) + " accuracy")
gains = areas[:, :, names.index("Energy"), 0] - areas[:, :1, names.index("Energy"), 0]
for name, row, accuracy in zip(
    rectifiers, gains.T, accuracies.mean(axis=0), strict=True
):
    print(f"{name:8}" + "".join(f"{gain:+9.3f}" for gain in row) + f"{accuracy:9.3f}")

# %%
# Clipping and scaling
# -----------------------------------------
#
# The energies behind three of these numbers, of the network without 4 and 5. Here
# the body is a step of the pipeline, which takes images. The dashed line is the
# threshold that rejects 5 % of the training digits.
from skood.metrics import ScoreHistogramDisplay, auroc

left_out, (body, head) = (4, 5), networks[LEFT_OUT.index((4, 5))]
known = ~np.isin(y_train, left_out)
fig, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
for ax, name in zip(axes, ("none", "ReAct", "LTS"), strict=True):
    rectifier, last = rectified(head)[name]
    model = make_pipeline(body, rectifier, Energy(last))
    model.fit(X_train[known], y_train[known])
    labels = np.where(np.isin(y_test, left_out), -1, y_test)
    ScoreHistogramDisplay.from_predictions(
        labels,
        model.score_samples(X_test),
        name=f"Energy, {name}",
        threshold=model[-1].offset_,
        ax=ax,
    )
    ax.set_ylim(top=1.5 * ax.get_ylim()[1])  # room for the legend
plt.show()

# %%
# Why
# ----
#
# Two properties of the features of known and unknown digits: the mean of the strongest
# unit of an image, and the AUROC of the factor by which SCALE multiplies an image. The
# factor is large for an image whose activity is spread over many units. It should be
# large for known digits; below 0.5 it is larger for unknown ones.
print(f"{'':10}{'strongest unit':>20}{'factor of SCALE':>18}")
print(f"{'':10}{'known':>10}{'unknown':>10}{'AUROC':>18}")
for left_out, (body, _) in zip(LEFT_OUT, networks, strict=True):
    Z = body.transform(X_test)
    is_ood = np.isin(y_test, left_out)
    factor = SCALE().fit_transform(Z).sum(axis=1) / Z.sum(axis=1)
    strongest = Z.max(axis=1)
    print(
        f"no {left_out[0]}, {left_out[1]}   {strongest[~is_ood].mean():10.1f}"
        f"{strongest[is_ood].mean():10.1f}"
        f"{auroc(np.where(is_ood, -1, 1), factor):18.3f}"
    )

# %%
# What we see
# -----------
#
# Clipping helps a little: with :class:`~skood.rectifiers.ReAct` or
# :class:`~skood.rectifiers.VRA`, Energy detects more of the unknown digits in
# most networks, and clearly more in two: the networks in which the strongest units
# respond to unknown digits as they do to known ones. MSP and the nearest neighbors gain
# little, and on shuffled pixels no detector gains much: units respond weakly to them,
# and few values are above the clip.
#
# Pruning and scaling do not help here. :class:`~skood.rectifiers.SCALE` and
# :class:`~skood.rectifiers.LTS` raise the logits of an image whose activity is spread
# over many units. In networks for ImageNet, their authors report, these are the known
# classes. Here they are the unknown ones, as the last column shows: the networks have
# learned to predict known digits with few units. The nearest neighbors are hardly
# affected by a factor, since they depend on directions. :class:`~skood.rectifiers.DICE`
# retains one weight in ten, which of 512 weights is too little for the accuracy as
# well.
#
# The best rectifier for wide networks is thus not the best for small ones, and the
# rectifier has to be tuned, with its parameters. In a pipeline this is a grid search,
# in which "passthrough" is a candidate. On unknown digits no rectifier makes a detector
# of logits as good as the nearest neighbors are alone.
