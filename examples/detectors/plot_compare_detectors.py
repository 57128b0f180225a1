r"""
===========================
Comparison of the detectors
===========================

The detectors of skood on the same small convolutional networks: detectors of
logits, of features, of features and the head, and of the whole network.
A network is trained once, and its features are extracted
once; most detectors need milliseconds in addition. They are evaluated on left-out
classes (near OOD) and on images with shuffled pixels (far OOD). The example shows
that no detector is the best everywhere, and compares the groups.

The images are the digits included in scikit-learn. With the environment variable
``SKOOD_DATA`` set to a folder with the folders ``mnist`` and ``notmnist`` of IDX
files MNIST is used instead, and letters are a third kind of OOD images.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Data
# ----
#
# Two of ten digits are left out of the training of a network, and are OOD for it: 0 and
# 1 for the first network, 2 and 3 for the second, and so on, to estimate the variation
# between networks.
import os
from pathlib import Path

import numpy as np

from skood.datasets import load_digits_ood, load_idx_images

LEFT_OUT = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]

folder = os.environ.get("SKOOD_DATA")
letters = None
if folder:
    X, y = load_idx_images(Path(folder) / "mnist", return_X_y=True)
    letters = load_idx_images(Path(folder) / "notmnist").data[:1000]
    n_train, n_test, n_epochs = 3000, 2000, 8
else:
    X, y = load_digits_ood(left_out=(), as_images=True, return_X_y=True)
    n_train, n_test, n_epochs = 898, 899, 25
print(f"{n_train} training and {n_test} test images of {X.shape[2]} x {X.shape[3]}")

# %%
# Detectors
# ---------
#
# Parameters are the defaults, except for a few that must suit a hundred images per
# class: fewer neighbors and components, a shorter tail, a shrunk covariance. None was
# tuned on the OOD images. ``head`` is the last layer of the network, as a classifier of
# its features. Detectors of the last group take ``network``, and images.
from sklearn.covariance import LedoitWolf
from sklearn.ensemble import IsolationForest

from skood import detectors


def make_detectors(network, head):
    """Return pairs of the kind of input and a detector."""
    shrunk = LedoitWolf()
    by_group = {
        "logits": [
            detectors.MSP(head),
            detectors.Entropy(head),
            detectors.MaxLogit(head),
            detectors.Energy(head),
            detectors.GEN(head),
            detectors.KLMatching(head),
            detectors.OpenMax(head, tail_size=5),
        ],
        "features": [
            detectors.KNN(n_neighbors=5, normalize=True),
            detectors.Mahalanobis(covariance=shrunk),
            detectors.RelativeMahalanobis(covariance=shrunk),
            detectors.SSD(covariance=shrunk),
            detectors.GMM(reg_covar=0.01),
            detectors.SklearnDetector(detector=IsolationForest(random_state=0)),
        ],
        "features and head": [
            detectors.Residual(head),
            detectors.ViM(head),
            detectors.SHE(head),
            detectors.NNGuide(head),
            detectors.NCI(head),
            detectors.FDBD(head),
            detectors.PNML(head),
            detectors.Relation(head),
            detectors.NECO(head, n_components=16),
            detectors.CARef(head),
            detectors.CADRef(head),
            detectors.GradNorm(head),
        ],
        "whole network": [
            detectors.ODIN(network),
            detectors.RankFeat(network, layer="relu_2"),
            detectors.Gram(network, random_state=0),
            detectors.MultiLayerMahalanobis(network, covariance=shrunk),
        ],
    }
    return [(group, detector) for group, row in by_group.items() for detector in row]


def name_of(detector):
    """Return the name of a detector, or of the one that it wraps."""
    return type(getattr(detector, "detector", detector)).__name__


# %%
# One network
# -----------
#
# Its body computes features of images once, for all detectors except the last
# group. One thread is enough for a small network, and does not wait for others on a
# busy machine.
import warnings
from time import perf_counter

from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from skood.metrics import auroc, fpr_at_tpr
from skood.nn import TorchClassifier, TrainingOptions, split


def ood_images(X_id, X_unknown):
    """Return the images of each kind of OOD."""
    pixels = X_id.reshape(len(X_id), -1)
    shuffled = np.random.default_rng(0).permuted(pixels, axis=1).reshape(X_id.shape)
    kinds = {"unknown digits": X_unknown, "shuffled pixels": shuffled}
    return kinds if letters is None else {**kinds, "letters": letters}


def timed(function, *args):
    """Return the result of a function, and the seconds."""
    start = perf_counter()
    return function(*args), perf_counter() - start


def evaluate(detector, X_train, y_train, rows):
    """Return AUROC and FPR for each kind of OOD, then seconds to fit and to score."""
    _, fit_time = timed(detector.fit, X_train, y_train)
    id_scores, score_time = timed(detector.score_samples, rows["known"])
    cells = []
    for kind, rows_ood in rows.items():
        if kind != "known":
            scores = np.append(id_scores, detector.score_samples(rows_ood))
            y_true = np.repeat([1, -1], [len(id_scores), len(rows_ood)])
            cells += [auroc(y_true, scores), fpr_at_tpr(y_true, scores, tpr=0.95)]
    return [*cells, fit_time, score_time]


def run(left_out):
    """Train a network without two digits; return a row for each detector."""
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, train_size=n_train, test_size=n_test, stratify=y, random_state=0
    )
    known, unknown = ~np.isin(y_train, left_out), np.isin(y_test, left_out)
    X_train, y_train = X_train[known], y_train[known]
    network, train_time = timed(
        TorchClassifier(
            module_params={"hidden": 64, "dropout": 0.2},
            max_epochs=n_epochs,
            lr=0.01,
            training=TrainingOptions(lr_schedule="one_cycle"),
            random_state=0,
        ).fit,
        X_train,
        y_train,
    )
    body, head = split(network)
    images = {"known": X_test[~unknown]}
    images |= ood_images(images["known"], X_test[unknown])
    Z_train, extract_time = timed(body.transform, X_train)
    Z = {kind: body.transform(rows) for kind, rows in images.items()}
    print(
        f"without {left_out}: accuracy {head.score(Z['known'], y_test[~unknown]):.3f}, "
        f"trained in {train_time:.1f} s, features of {len(X_train)} images in "
        f"{extract_time:.3f} s, {np.sum(Z_train.max(axis=0) == 0)} of "
        f"{Z_train.shape[1]} units never fire"
    )
    table, said = {}, {}
    for group, detector in make_detectors(FrozenEstimator(network), head):
        data = (X_train, images) if group == "whole network" else (Z_train, Z)
        name = name_of(detector)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            table[group, name] = evaluate(detector, data[0], y_train, data[1])
        for warning in caught:
            said[name] = warning.message
    return table, said, list(images)[1:]


with threadpool_limits(limits=1):
    tables, sayings, (kinds, *_) = zip(*map(run, LEFT_OUT), strict=True)

# %%
# Units that never fire are common in small networks. Two detectors report this
# (for the first network):
for name, message in sayings[0].items():
    print(f"{name}: {message}")

# %%
# The table
# ---------
#
# Means over the five networks. The AUROC is the probability that a known digit scores
# above an OOD image; the FPR is the fraction of OOD images accepted at a TPR of 95 % on
# known digits. Seconds are for fitting, and for scoring the known test digits;
# in the last group these include the passes through the network.
groups, names = zip(*tables[0], strict=True)
groups = np.array(groups)
results = np.array([list(table.values()) for table in tables])
means = results.mean(axis=0)
areas, rates = results[:, :, 0:-2:2], means[:, 1:-2:2]

print(f"{'':23}" + "".join(f"{kind:>18}" for kind in kinds) + f"{'seconds':>17}")
print(f"{'':23}" + f"{'AUROC':>11}{'FPR':>7}" * len(kinds) + f"{'fit':>10}{'score':>7}")
for i, name in enumerate(names):
    if i == 0 or groups[i] != groups[i - 1]:
        print(f"-- {groups[i]}")
    cells = [f"{value:{11 - 4 * (j % 2)}.3f}" for j, value in enumerate(means[i, :-2])]
    print(f"{name:23}" + "".join(cells) + f"{means[i, -2]:10.3f}{means[i, -1]:7.3f}")

# %%
# Sorted by AUROC
# ---------------
#
# A dot is the mean over the networks, a line goes from the worst to the best of them.
import matplotlib.pyplot as plt

styles = dict(
    zip(
        dict.fromkeys(groups),
        (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "D"), ("#CC79A7", "^")),
        strict=True,
    )
)
fig, axes = plt.subplots(
    1, len(kinds), figsize=(5 * len(kinds), 7.5), layout="constrained"
)
for j, (ax, kind) in enumerate(zip(axes, kinds, strict=True)):
    order = areas[:, :, j].mean(axis=0).argsort()
    for position, i in enumerate(order):
        area, (color, marker) = areas[:, i, j], styles[groups[i]]
        ax.hlines(position, area.min(), area.max(), color=color, alpha=0.4, lw=3)
        ax.plot(area.mean(), position, marker, color=color)
    ax.set_yticks(range(len(names)), [names[i] for i in order])
    ax.axvline(0.5, color="0.5", ls=":")
    ax.grid(axis="x", color="0.9")
    ax.set(title=kind, xlabel="AUROC", axisbelow=True)
    ax.margins(y=0.02)
lines = [plt.Line2D([], [], color=c, marker=m, ls="") for c, m in styles.values()]
labels = [f"uses {group}" for group in styles]
fig.legend(lines, labels, loc="outside lower center", ncols=4)
plt.show()

# %%
# Groups
# ------
#
# The median of each group, and the best of it:
for group in styles:
    rows = np.flatnonzero(groups == group)
    print(group)
    for j, kind in enumerate(kinds):
        area = areas[:, rows, j].mean(axis=0)
        best = names[rows[area.argmax()]]
        print(f"  {kind:16} median {np.median(area):.3f}, best {area.max():.3f} {best}")

# %%
# These are the best detectors of the unknown digits of each network:
for left_out, area in zip(LEFT_OUT, areas[:, :, 0], strict=True):
    best = area.argsort()[::-1][:4]
    print(left_out, ", ".join(f"{names[i]} {area[i]:.3f}" for i in best))

# %%
# What we see
# -----------
#
# On unknown digits detectors of features are best. Networks trained to separate
# eight digits map unknown ones close to a known one, so that the head predicts a class,
# but not so close that the nearest neighbors, or a Gaussian per class, could not detect
# them. Among the detectors that also use the head :class:`~skood.detectors.ViM` is
# close to them. Detectors of logits follow. They differ less from each other than the
# networks do. An isolation forest is last, since it detects extreme features, but the
# features of OOD images are smaller here, not larger. GradNorm and SHE, which were
# designed for wide networks, are not good here either; this does not apply to wide
# networks.
#
# Shuffled pixels are detected best by the two detectors that compare the outputs of
# early layers with training. Strokes are missing in the output of a convolution; this
# information is lost before the head. Detectors of the whole network require passes
# through it, and cannot share the extracted features.
#
# The order depends on the data. On MNIST the same two are perfect, or nearly so, for
# shuffled pixels and for letters, but worse than most detectors of logits for unknown
# digits. The Mahalanobis distance detects letters and misses shuffled pixels; for
# detectors of logits it is the reverse. The best of many detectors is also subject to
# selection: it differs between the five networks.
#
# Therefore choose by the expected kind of OOD samples, or use a detector that is never
# far from the best, such as the nearest neighbors here. How to choose without the test
# data is shown in :ref:`sphx_glr_auto_examples_detectors_plot_pick_the_layer.py`.
