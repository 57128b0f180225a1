"""
===================================
Guarantees within groups of a table
===================================

A rule that accepts 75 % of all samples may accept far fewer of one group. Here machines
have sensors of three makes, one of them noisier than the others. A bound on the TPR is
certified for all samples together, then within every make: with one threshold for all,
which is refused, and with a threshold for each make.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# The table
# ---------
#
# A classifier finds machines that are about to fail. The labels of some measurements
# are "broken": the sensor is, and the measurement is out-of-distribution (OOD).
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

MAKES = ("Alto", "Brio", "Corda")


def measurements(n, seed):
    rng = np.random.default_rng(seed)
    make = rng.integers(3, size=n)
    failing = rng.random(n) < 0.4
    noise = np.array([1.0, 1.4, 2.6])[make]
    table = pd.DataFrame(
        {
            "temperature": 60 + 12 * failing + 4 * noise * rng.normal(size=n),
            "vibration": 3 + 2 * failing + noise * rng.normal(size=n),
            "current": 9 + 0.5 * noise * rng.normal(size=n),
            "make": np.array(MAKES)[make],
        }
    )
    label = np.where(failing, "failing", "sound").astype(object)
    broken = rng.random(n) < 0.35
    table.loc[broken, "current"] += 2.2 * noise[broken]
    label[broken] = "broken"
    return table, label.astype(str)


table, label = measurements(4000, 0)
new, label_new = measurements(20_000, 1)
print(table.head())

# %%
# All samples together
# --------------------
#
# At least 75 % of intact measurements are to be accepted, at most 30 % of broken ones.
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.detectors import Mahalanobis
from skood.exceptions import NotCertifiableError
from skood.rejection import BoundedTPRFPR, Certificate, RejectOptionClassifier

columns = ["temperature", "vibration", "current"]


def classifier(**options):
    clf = RejectOptionClassifier(
        make_pipeline(StandardScaler(), LogisticRegression()),
        ood_detector=make_pipeline(StandardScaler(), Mahalanobis()),
        rule=BoundedTPRFPR(tpr_min=0.75, fpr_max=0.3),
        calibration=0.6,
        ood_label="broken",
        guarantee=Certificate(delta=0.1, **options),
        random_state=0,
    )
    return clf.fit(table[columns], label, groups=table["make"] if options else None)


together = classifier()
report = together.report(new[columns], label_new, groups=new["make"])
print(report)

# %%
# The bound holds for all measurements together, but not for the noisy make: 75 % of all
# is not 75 % of each. The gap is the largest difference between makes, with an
# interval; all intervals of groups hold simultaneously.
#
# Within every make
# -----------------
#
# ``within="groups"`` certifies the TPR and, if it is bounded, the risk within every
# group that ``fit`` is given. One threshold for all makes is refused here: if it
# accepts 75 % of the noisy measurements, it accepts most broken sensors of the first
# make, so that many more samples are needed to certify both bounds.
try:
    classifier(within="groups")
except NotCertifiableError as error:
    print(error)

# %%
# With ``thresholds="group"`` each make has its own threshold. Then ``predict`` needs
# the make of each measurement. The report shows the certified bounds and the rates on
# new data; the bound on the FPR is for all makes together.
by_make = classifier(within="groups", thresholds="group")
certified = by_make.report(new[columns], label_new, groups=new["make"])
print(by_make.operating_point_.lam)
print(certified)

# %%
fig, ax = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
for k, (one, name) in enumerate(((report, "one threshold"), (certified, "by make"))):
    tpr = [row["tpr"] for row in one.groups.values()]
    values = np.array([t.value for t in tpr])
    errors = [[t.value - t.low for t in tpr], [t.high - t.value for t in tpr]]
    places = np.arange(3) + 0.3 * k
    hatch = "//" if k else None
    ax.bar(places, values, 0.28, yerr=errors, capsize=3, hatch=hatch, label=name)
ax.axhline(0.75, color="0.3", lw=1, label="certified bound")
ax.set(ylim=(0.4, 1), ylabel="TPR on new measurements", xticks=np.arange(3) + 0.15)
ax.set_xticklabels(MAKES)
fig.legend(loc="outside lower center", ncols=3)
plt.show()

# %%
# The scores
# ----------
#
# The rule compares one projection of both scores, at an angle that all makes share,
# with the threshold of the make (dashed).


def projected(clf, rows):
    point = clf.operating_point_
    risk, ood = (-score for score in clf.score_pair(new[columns][rows]))
    cos, sin = np.cos(point.theta), np.sin(point.theta)
    return cos * risk / point.scales[0] + sin * ood / point.scales[1]


point = by_make.operating_point_
bins = np.linspace(0.0, 4.0, 61)
fig, axes = plt.subplots(3, figsize=(6.5, 5), sharex=True, layout="constrained")
for ax, make in zip(axes, MAKES, strict=True):
    of_make = (new["make"] == make).to_numpy()
    for broken, name in ((False, "intact"), (True, "broken sensor")):
        rows = of_make & ((label_new == "broken") == broken)
        values = np.clip(projected(by_make, rows), bins[0], bins[-1])
        hatch = "//" if broken else None
        ax.hist(values, bins, density=True, alpha=0.6, hatch=hatch, label=name)
    ax.axvline(point.lam[make], color="k", ls="--", label="threshold of the make")
    ax.set(ylabel=make, yticks=[])
axes[-1].set_xlabel("projected score; larger values are rejected, all above 4 at 4")
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
plt.show()

# %%
# Later
# -----
#
# Sensors of a new make have no threshold: these measurements are rejected with a
# warning. ``recalibrate`` certifies again, with measurements whose labels have become
# known; nothing is fitted. Its samples here are from all four makes.
import warnings

later, label_later = measurements(4000, 2)
later.loc[::5, "make"] = "Duo"
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    decisions = by_make.predict(later[columns], groups=later["make"])
print(caught[0].message)
by_make.recalibrate(later[columns], label_later, groups=later["make"])
print(by_make.operating_point_.lam)
