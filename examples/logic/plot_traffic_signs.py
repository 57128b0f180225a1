r"""
==================================
Rules for traffic signs
==================================

A network of traffic signs may classify a speed limit with a yellow rim as "50", with
high confidence. But the look of a speed limit is known, and can be written as
a rule. Here a network predicts class, color and shape, and a Markov logic network
compares them with rules. The example shows which OOD signs the rules detect, that rules
and a detector together detect more than the detector alone, and the explanations by
rules.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Signs
# -----
#
# Generated pictures of 32 x 32 pixels: signs of 29 classes, and six kinds of OOD
# pictures: a sign in the color of another class, or in another shape; a sign with
# a pictogram of no class; textures, noise, and landscapes without a sign.
import matplotlib.pyplot as plt
import numpy as np
from _signs import CONCEPTS, KINDS, evaluate, make_signs, train_heads

signs = make_signs(seed=0, n_train=3000, n_calibration=1000, n_test=1000, n_ood=150)
test = signs.test


def show(ax, image, title=""):
    """Draw one picture."""
    ax.imshow(image.transpose(1, 2, 0), interpolation="bilinear")
    ax.set_title(title, fontsize="small")
    ax.axis("off")


fig, axes = plt.subplots(3, 7, figsize=(9, 4.4), layout="constrained")
for column, kind in zip(axes.T, ["id", *KINDS], strict=True):
    for ax, row in zip(column, np.flatnonzero(test.ood_kind == kind), strict=False):
        show(ax, test.data[row], kind if ax is column[0] else "")
plt.show()

# %%
# Rules
# ------------
#
# A rule for each class, in the syntax of :mod:`skood.logic`. Rules do not refer to
# pixels.
from skood.logic import KnowledgeBase

rules = test.constraints
knowledge = KnowledgeBase(rules, test.domains)
for rule in rules[:5]:
    print(rule)
print(f"... and {len(rules) - 5} more")

# %%
# Predicted concepts
# ----------------------
#
# One convolutional network with a head for each concept. It is trained on 3,000 signs
# without OOD signs. If it misclassifies an ID sign,
# a rule may be violated as well: "id" below.
from sklearn.frozen import FrozenEstimator
from threadpoolctl import threadpool_limits

with threadpool_limits(limits=1):
    network = train_heads(signs.train, seed=0)
    is_sign = test.ood_kind == "id"
    read = network.predict(test.data)
right = (read[is_sign] == test.concepts[is_sign]).mean(axis=0)
for name, fraction in zip(CONCEPTS, right, strict=True):
    print(f"{name:8} right on {fraction:.1%} of the signs")
breaks = ~knowledge.truth(knowledge.encode(read)).all(axis=1)
print("fraction that breaks a rule:")
for kind in ["id", *KINDS]:
    print(f"  {kind:10} {breaks[test.ood_kind == kind].mean():6.1%}")

# %%
# Logic and detectors
# -------------------
#
# :class:`~skood.logic.MLNDetector` weights the rules by how often 1,000 other signs
# violate them, and adds a detector on the head of the class: here
# :class:`~skood.detectors.Energy`, and :class:`~skood.detectors.Mahalanobis`, the
# distance of the features from the class means. (Some units never respond to a
# sign, so that the covariance is shrunk.) With ``marginalize=True`` the truth of a rule
# is its expectation over the probabilities of the heads.
# :class:`~skood.logic.LogicDetector` is the strict baseline: samples that violate a
# rule are rejected first. Everything is trained and frozen: ``calibration="same"``.
from functools import partial

from sklearn.covariance import LedoitWolf

from skood.detectors import Energy, Mahalanobis
from skood.logic import LogicDetector, MLNDetector

LOGICS = {
    "Logic": LogicDetector,
    "MLN": MLNDetector,
    "MLN, marginalized": partial(MLNDetector, marginalize=True),
}
concepts = [(tuple(CONCEPTS), FrozenEstimator(network))]
head = network.head(0)
detectors = {
    "Energy": Energy(head),
    "Mahalanobis": Mahalanobis(head, covariance=LedoitWolf()),
}
table, models = {}, {}
with threadpool_limits(limits=1):
    for name, detector in detectors.items():
        detector.fit(signs.train.data, signs.train.target)
        models[name, "alone"] = detector
    for name, detector in {"no detector": None, **detectors}.items():
        frozen = detector and FrozenEstimator(detector)
        for logic, make in LOGICS.items():
            model = make(rules, concepts, frozen, calibration="same")
            models[name, logic] = model.fit(
                signs.calibration.data, signs.calibration.concepts
            )
    for key, model in models.items():
        table[key] = evaluate(model.score_samples(test.data), test.ood_kind)

print(f"{'AUROC':30}{'all':>7}" + "".join(f"{kind:>11}" for kind in KINDS) + "  FPR95")
for (name, logic), found in table.items():
    cells = "".join(f"{found[f'auroc {kind}']:11.1f}" for kind in KINDS)
    print(f"{name:12} {logic:17}{found['auroc']:7.1f}{cells}{found['fpr95']:7.1f}")

# %%
# The reason for the gain by marginalization: if the class is uncertain, its largest
# probability below 90 %, these are the fractions of pictures whose two most probable
# classes look the same, so that no rule is violated.
look = dict(
    zip(signs.train.target, map(tuple, signs.train.concepts[:, 1:]), strict=True)
)
proba = head.predict_proba(test.data)
uncertain = proba.max(axis=1) < 0.9
pairs = head.classes_[np.argsort(proba, axis=1)[:, -2:]]
same = np.array([look[one] == look[other] for one, other in pairs])
for kind in ["id", *KINDS]:
    print(f"{kind:10} {same[uncertain & (test.ood_kind == kind)].mean():6.1%}")

# %%
# Explanations
# --------------------
#
# ``explain`` returns the predicted values, and the violated rules. Each number is the
# contribution of a rule, or the detector, to the outlier score. The last picture is an
# ID sign that was rejected.
from textwrap import fill

mln = models["Energy", "MLN"]
with threadpool_limits(limits=1):
    rows = mln.explain(test.data)
rejected = np.array([row.is_ood for row in rows])
broken = np.array([len(row.violated) > 0 for row in rows])
print(
    f"rejected: {rejected[is_sign].mean():.1%} of the signs, "
    f"{rejected[~is_sign].mean():.1%} of the others"
)


def some(kind, n):
    """Return the first pictures of a kind that are rejected for violating a rule."""
    return np.flatnonzero((test.ood_kind == kind) & rejected & broken)[:n].tolist()


def shown(i):
    """Return a description of a picture."""
    words = " ".join(test.drawn[i, [1, 2]]).replace("_", " ")
    name = test.drawn[i, 0].replace("_", " ")
    return f"{test.ood_kind[i]}: {words}, {name}" if words.strip() else test.ood_kind[i]


chosen = [*some("color", 3), *some("shape", 3), *some("natural", 1), *some("id", 1)]
fig, axes = plt.subplots(
    4, 4, figsize=(10, 6.5), width_ratios=[1, 2.4, 1, 2.4], layout="constrained"
)
for (picture, text), i in zip(axes.reshape(-1, 2), chosen, strict=True):
    show(picture, test.data[i])
    text.axis("off")
    text.text(0, 0.72, shown(i), weight="bold", transform=text.transAxes)
    sentence = fill(rows[i].sentence, 34)
    text.text(0, 0.62, sentence, va="top", transform=text.transAxes)
plt.show()

# %%
# The contributions of the rules as bars, for the same pictures, row by row.
from skood.logic import ConstraintContributionDisplay

fig, ax = plt.subplots(figsize=(8, 5.5), layout="constrained")
labels = [f"{i + 1}: {test.ood_kind[row]}" for i, row in enumerate(chosen)]
ConstraintContributionDisplay.from_estimator(
    mln, test.data[chosen], labels=labels, ax=ax
)
plt.show()

# %%
# What we see
# -----------
#
# The rules alone detect a third of the wrong colors, and a quarter of the wrong shapes:
# for a sign in a wrong color, the network often predicts a class of
# this color, and then no rule is violated. OOD pictograms violate no rule of color and
# shape at all, unless the network errs. But combined with a detector the rules are
# useful: the area under the ROC curve rises from 85 to 87 % with the energy,
# most for wrong colors and shapes, and from 73 to 82 % with the distance, which is a
# poor detector here. Every rule is hardly ever violated by other signs, so that all
# weights are large, and the strict logic is as good. Where the energy is nearly perfect
# already, on noise and landscapes, 2 % of misclassified signs cost a little.
#
# Using the probability that a rule is violated, instead of its truth, has the largest
# effect: 90 % without any detector. If the class is uncertain
# between signs of different looks, one of them must violate its rule, which
# the expectation takes into account. Uncertainty between two speed limits violates
# none; this holds for four of five uncertain signs, and only for one of six pictures
# in a wrong color; a detector of the class does not distinguish the two.
#
# Rules also provide explanations. A rejected sign has a reason, and
# if it is wrong, as in the last picture, it shows that the network
# has misclassified a hidden sign.
