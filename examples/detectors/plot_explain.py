r"""
===========================
Explain OOD scores
===========================

Detectors whose score is a sum can be explained: ``explain`` returns a data
frame with a row per sample, which contains the nearest neighbor or class and the
features with the largest contributions. Here features are pixels of digits. The example
shows two such explanations, which explain the score, whether it is right or not.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Two detectors of pixels
# -----------------------
#
# They are fitted on the digits 0 to 7; 8 and 9 are unknown. Without a classifier a
# detector takes `X` as features. Pixels have names in a data frame, and
# numbers otherwise. Some pixels are black in all training images, so that the
# covariance is shrunk.
import numpy as np
from sklearn.covariance import LedoitWolf
from sklearn.model_selection import train_test_split

from skood.datasets import load_digits_ood
from skood.detectors import KNN, Mahalanobis

digits = load_digits_ood(left_out=(8, 9))
X_train, X_test, y_train, y_test = train_test_split(
    digits.data, digits.target, test_size=0.5, stratify=digits.target, random_state=0
)
known = y_train < 8
X_train, y_train = X_train[known], y_train[known]
knn = KNN(n_neighbors=5).fit(X_train, y_train)
mahalanobis = Mahalanobis(covariance=LedoitWolf()).fit(X_train, y_train)
for detector in (knn, mahalanobis):
    area = detector.score(X_test, y_test)
    print(f"{type(detector).__name__:12} AUROC of known against unknown: {area:.3f}")

# %%
# Four images
# -----------
#
# A test digit 3, the same with a bright pixel in the upper right corner, which
# has the number 7, and the 8 and the 9 with the lowest scores of the neighbors.
three = X_test[y_test == 3][0]
broken = three.copy()
broken[7] = 1.0
others = []
for digit in (8, 9):
    of_digit = X_test[y_test == digit]
    others.append(of_digit[knn.score_samples(of_digit).argmin()])
names = ["a 3", "a broken 3", "an 8", "a 9"]
images = np.stack([three, broken, *others])

# %%
# The nearest neighbors
# ----------------------
#
# Neighbors are identified by their index in the training data, and pixels by their
# number. A contribution is a term of the squared distance to the fifth neighbor, which
# is the score, between images that are scaled to unit length.
frame = knn.explain(images, n_features=2, n_neighbors=3)
frame.index = names
print(frame.round(3).T.to_string())

# %%
# The Mahalanobis distance
# ------------------------
#
# Here a sample is compared with the mean of the nearest class. A contribution is a term
# of the squared distance to it, in units of the training covariance.
frame = mahalanobis.explain(images, n_features=2)
frame.index = names
print(frame.round(1).T.to_string())

# %%
# As images
# ---------
#
# With all 64 pixels, contributions can be shown as images. Red
# pixels increase the outlier score. Blue ones, which only the Mahalanobis distance has,
# agree with the prediction from other pixels, and decrease it. Each map has its own
# scale. Scores in red are below the threshold.
import matplotlib.pyplot as plt


def maps(frame):
    """Return the contributions of all pixels, as images."""
    pixels = frame[[f"feature_{j}" for j in range(1, 65)]].to_numpy(dtype=int)
    values = frame[[f"contribution_{j}" for j in range(1, 65)]].to_numpy(dtype=float)
    table = np.empty_like(values)
    np.put_along_axis(table, pixels, values, axis=1)
    return table.reshape(-1, 8, 8)


def show(ax, image, title, *, signed=False, color="k"):
    """Draw an image, or a map of contributions."""
    limit = np.abs(image).max()
    style = {"cmap": "RdBu_r", "vmin": -limit} if signed else {"cmap": "gray_r"}
    ax.imshow(np.reshape(image, (8, 8)), vmax=limit, **style)
    ax.set_title(title, size="small", color=color)
    ax.set(xticks=[], yticks=[])


near = knn.explain(images, n_features=64, n_neighbors=3)
far = mahalanobis.explain(images, n_features=64)
fig, axes = plt.subplots(4, 6, figsize=(9, 6.8), layout="constrained")
for i, (row, name, image) in enumerate(zip(axes, names, images, strict=True)):
    show(row[0], image, name)
    for j in range(3):
        show(row[1 + j], X_train[near[f"neighbor_{j + 1}"][i]], f"neighbor {j + 1}")
    for ax, detector, frame in zip(
        row[4:], ("KNN", "Mahalanobis"), (near, far), strict=True
    ):
        color = "C3" if frame["is_ood"][i] else "k"
        title = f"{detector}: {frame['score'][i]:.3g}"
        show(ax, maps(frame)[i], title, signed=True, color=color)
plt.show()

# %%
# What we see
# -----------
#
# The neighbors show similar images. The bright corner has the largest part
# in the distance to the changed 3, but it is one of 64 pixels: they accept the image.
# In the Mahalanobis distance the corner dominates, since it is dark in
# almost all training images. The map shows that this is a broken pixel, and not
# another digit.
#
# The 8 and the 9 are outlying in several pixels, for both detectors, and the neighbors
# show the most similar digits.
#
# An explanation refers to the score, be it right or wrong. With an ``estimator``
# features are the outputs of its last layer, which have numbers and no place in the
# image: then the neighbors are most useful. The explanations of each detector are
# described in the :ref:`user guide <explanations>`.
