"""
========================
Defects of tile surfaces
========================

A convolutional network recognizes three defects in images of tiles. It must pass on
tiles that it has no class for. Later a machine causes a new kind of defect, and a
monitor raises an alarm.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Images
# ------
#
# Gray images of 24 x 24 pixels: texture, noise, and a scratch, a spot or a chipped
# corner. The defect that comes later is a grid of fine cracks.
import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.frozen import FrozenEstimator
from torch import nn

from skood.detectors import ViM
from skood.metrics import AcceptanceRegionDisplay
from skood.monitor import ExchangeabilityMonitor, MartingaleDisplay
from skood.nn import pretrained, split
from skood.rejection import RejectOptionClassifier, TwoThresholds

rng = np.random.default_rng(0)
u, v = np.meshgrid(np.linspace(-1, 1, 24), np.linspace(-1, 1, 24))


def tile(kind):
    """Return one image."""
    image = (
        0.6 + 0.05 * np.sin(9 * u + rng.uniform(0, 6)) + rng.normal(0, 0.04, u.shape)
    )
    x, y = rng.uniform(-0.6, 0.6, 2)
    angle, dark = rng.uniform(0, np.pi), rng.uniform(0.15, 0.4)
    line = (u - x) * np.sin(angle) - (v - y) * np.cos(angle)
    along = (u - x) * np.cos(angle) + (v - y) * np.sin(angle)
    if kind == "scratch":
        image -= dark * ((abs(line) < 0.06) & (abs(along) < rng.uniform(0.3, 0.8)))
    elif kind == "spot":
        radius = rng.uniform(0.1, 0.3)
        image -= dark * np.exp(-((u - x) ** 2 + (v - y) ** 2) / radius**2)
    elif kind == "chip":
        s, t = rng.choice([-1, 1], 2)
        image -= (dark + 0.2) * (s * u + t * v > rng.uniform(1.3, 1.7))
    elif kind == "cracks":
        image -= dark * (abs(np.sin(9 * line)) < 0.15) + dark * (
            abs(np.sin(9 * along)) < 0.15
        )
    return image


def tiles(n, new=0.0):
    """Return n images, a fraction `new` of them with cracks, and their labels."""
    y = rng.choice(["fine", "scratch", "spot", "chip"], n)
    y = np.where(rng.random(n) < new, "cracks", y)
    X = 10 * np.stack([tile(kind) for kind in y])[:, None] - 6
    return X.astype(np.float32), np.where(y == "cracks", "unknown", y)


kinds = ("fine", "scratch", "spot", "chip", "cracks")
figure, axes = plt.subplots(2, 5, figsize=(8, 3.4), layout="constrained")
for column, kind in zip(axes.T, kinds, strict=True):
    column[0].set_title(kind)
    for ax in column:
        ax.imshow(tile(kind), cmap="gray", vmin=0, vmax=1)
        ax.axis("off")

# %%
# A network
# ---------
#
# It is trained in torch as always. :func:`~skood.nn.pretrained` makes it a fitted
# classifier, :func:`~skood.nn.split` separates its features from the last layer.
X_train, y_train = tiles(3000)
classes, targets = np.unique(y_train, return_inverse=True)
torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(),
    nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
    nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 4),
)  # fmt: skip
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
images, targets = torch.from_numpy(X_train), torch.from_numpy(targets)
for _ in range(12):
    for batch in torch.randperm(3000).split(50):
        loss = nn.functional.cross_entropy(net(images[batch]), targets[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
body, head = split(pretrained(net.eval(), classes=classes, input_shape=(1, 24, 24)))

# %%
# A class, or a person
# --------------------
#
# The detector is fitted on the features of the training images, the thresholds on new
# images without any unknown defect: at most 5 % of the tiles are rejected by each
# score, each with a probability of 95 % over these images.
detector = ViM(head).fit(body.transform(X_train), y_train)
X_calibration, y_calibration = tiles(1000)
clf = RejectOptionClassifier(
    head,
    ood_detector=FrozenEstimator(detector),
    rule=TwoThresholds(ood=0.05, risk=0.05),
    guarantee="high_probability",
    calibration="same",
    ood_label="unknown",
).fit(body.transform(X_calibration), y_calibration)
X, y = tiles(1000, new=0.2)
Z, known = body.transform(X), y != "unknown"
errors = clf.estimator_.predict(Z)[known] != y[known]
print(f"errors of the network alone: {errors.mean():.3f}, and all unknown tiles")
print(clf.report(Z, y))

# %%
figure, ax = plt.subplots(figsize=(6.5, 4.5), layout="constrained")
AcceptanceRegionDisplay.from_estimator(clf, Z, y, ax=ax)

# %%
# A new kind of defect
# --------------------
#
# The monitor compares the scores of the detector with the calibration scores,
# without labels; a false alarm has a probability of at most 1 % over all time. After
# 600 tiles, one of ten has cracks.
monitor = ExchangeabilityMonitor(FrozenEstimator(detector), random_state=0)
monitor.fit(body.transform(X_calibration))
monitor.update(body.transform(tiles(600)[0]))
print("alarm before the change:", monitor.alarm_)
monitor.update(body.transform(tiles(1000, new=0.1)[0]))
print("alarm at tile", monitor.alarm_.row, "estimated start", monitor.alarm_.start)
figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
MartingaleDisplay.from_monitor(monitor, ax=ax)
plt.show()
