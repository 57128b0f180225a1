r"""
================================
A deployment, and three failures
================================

A rejecting classifier recognizes the digits 0 to 7 and rejects others. It runs on
20,000 normal images, and then something breaks: a new digit appears, a light falls on
the left half of the images, or one member of the ensemble of detectors gets a wrong
input. Monitors raise the alarm, name the culprit and estimate the start; then the
classifier is recalibrated.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# A classifier with a promise
# ---------------------------
#
# Each image of the stream is a digit that nothing was fitted on, with noise of its own;
# one in twenty is a 9, which the classifier does not know.
import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from skood.combine import DSDE
from skood.datasets import load_digits_ood
from skood.detectors import GEN, KNN, Energy, Mahalanobis, ViM
from skood.rejection import BoundedTPRFPR, RejectOptionClassifier

digits, label = load_digits_ood(left_out=[8, 9], return_X_y=True)
rng = np.random.default_rng(0)
known = rng.permutation(np.flatnonzero(label < 8))
train, others = known[:700], known[700:]
eights, nines = np.flatnonzero(label == 8), np.flatnonzero(label == 9)


left_half = np.tile(np.arange(8) < 4, 8)


def images(n, fraction_of_eights=0.0, light=0.0, fraction_of_nines=0.05):
    """Return images, and their labels; -1 for unknown digits."""
    kind = rng.random(n)
    row = rng.choice(others, n)
    row = np.where(kind < fraction_of_nines, rng.choice(nines, n), row)
    row = np.where(kind > 1 - fraction_of_eights, rng.choice(eights, n), row)
    X = digits[row] + rng.normal(0, 0.1, (n, 64)) + light * left_half
    return X.astype(np.float32), np.where(label[row] < 8, label[row], -1)


X_train = digits[train] + rng.normal(0, 0.1, (700, 64)).astype(np.float32)
network = LogisticRegression(max_iter=500).fit(X_train, label[train])
members = [("knn", KNN(n_neighbors=5)), ("mahalanobis", Mahalanobis()), ("vim", ViM())]
members += [("energy", Energy()), ("gen", GEN())]
ensemble = DSDE(
    members, estimator=FrozenEstimator(network), calibration=0.4, random_state=0
)
ensemble.fit(X_train, label[train])

X_labeled, y_labeled = images(4000, fraction_of_nines=0.5)
classifier = RejectOptionClassifier(
    FrozenEstimator(network),
    ood_detector=FrozenEstimator(ensemble),
    rule=BoundedTPRFPR(tpr_min=0.85, fpr_max=0.5),
    guarantee="high_probability",
    calibration="same",
    random_state=0,
)
classifier.fit(X_labeled, y_labeled)


def rates(X, y):
    """Return the true and false positive rates."""
    accepted = classifier.predict(X) != classifier.reject_label_
    return accepted[y != -1].mean(), accepted[y == -1].mean()


print("TPR {:.3f}, FPR {:.3f}".format(*rates(*images(5000))))

# %%
# Monitors
# --------
#
# A panel monitors the score of each member, without labels. A second monitor compares
# the fraction of unknown digits with a bound of 7 %: it draws 5 % of the images, whose
# labels arrive 1,500 images later.
from skood.monitor import ExchangeabilityMonitor, MonitorPanel, RateMonitor


def monitors(X):
    """Return the panel, fitted on normal images, and the monitor of the rate."""
    panel = MonitorPanel(
        [
            (name, ExchangeabilityMonitor(FrozenEstimator(member), random_state=0))
            for name, member in ensemble.named_detectors_.items()
        ]
    )
    rate = RateMonitor(
        classifier, "ood_fraction", bound=0.07, audit=0.05, random_state=0
    )
    return panel.fit(X), rate


def run(panel, rate, n, broken=None, **changes):
    """Run the monitors on n images, in batches of 500."""
    late = []
    for _ in range(n // 500):
        X, y = images(500, **changes)
        given = dict.fromkeys(panel.named_monitors_, X)
        if broken is not None:
            given[broken] = 1.2 * X  # a wrong scale, for one member
        panel.update(given)
        audit = rate.update(X)
        late.append((audit.ids[audit.audited], y[audit.audited]))
        if len(late) > 3:
            rate.add_labels(*late.pop(0))
    for ids, y in late:
        rate.add_labels(ids, y)


def state(panel):
    alarm = panel.alarm_
    return alarm and f"{panel.alarm_name_}, image {alarm.row}, start {alarm.start}"


panel, rate = monitors(images(3000)[0])
run(panel, rate, 20_000)
print("alarms:", state(panel), rate.alarm_)
print(f"fraction of unknown digits {rate.estimate_:.3f}, of {rate.n_audited_} labels")

# %%
# Three failures
# --------------
#
# From the same state, which copies keep, three streams go on.
from copy import copy

failures = {
    "a new digit": {"fraction_of_eights": 0.1},
    "a light on the left": {"light": 0.35},
    "a broken member": {"broken": "mahalanobis"},
}
after = {}
for name, change in failures.items():
    after[name] = copy(panel), copy(rate)
    run(*after[name], 8000, **change)
    found = after[name][0]
    print(f"{name}: {state(found)}, culprits {found.culprits_}")
    print("    rate:", after[name][1].alarm_)

# %%
# The change is at image 20,001. A new digit and a light move several members, a broken
# member is named alone. The table shows the evidence of each.
print(after["a broken member"][0].explain())

# %%
import matplotlib.pyplot as plt

from skood.monitor import MartingaleDisplay, RateDisplay

figure, axes = plt.subplots(3, sharex=True, figsize=(7, 8), layout="constrained")
for ax, (name, (found, _)) in zip(axes, after.items(), strict=True):
    MartingaleDisplay.from_monitor(found, ax=ax)
    ax.set(title=name, xlim=(19_500, 21_000), ylim=(-3, 20), xlabel="")
axes[-1].set_xlabel("image")

# %%
# The monitor of the fraction of unknown digits needs labels and takes longer, but it
# states what has happened.
figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
RateDisplay.from_monitor(after["a new digit"][1], ax=ax)
ax.set(title="a new digit", ylim=(0, 0.2))

# %%
# Recalibration
# -------------
#
# The light breaks the promise: the true positive rate falls below 0.85. Nothing is
# fitted again: labeled images from after the change, half of them of unknown digits,
# certify the rule anew. The window leaves out all images from before the change.
# Further images, unlabeled, start a new panel.
broken = rates(*images(5000, light=0.35))
print("before: TPR {:.3f}, FPR {:.3f}".format(*broken))
X_new, y_new = images(4000, light=0.35, fraction_of_nines=0.5)
window = min((y_new == -1).sum(), (y_new != -1).sum())
classifier.recalibrate(X_new, y_new, window=int(window))
mended = rates(*images(5000, light=0.35))
print("after: TPR {:.3f}, FPR {:.3f}".format(*mended))

panel, rate = monitors(images(3000, light=0.35)[0])
run(panel, rate, 10_000, light=0.35)
print("alarms:", state(panel), rate.alarm_)
