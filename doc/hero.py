"""Draw the picture of the front page: ``python doc/hero.py``.

One picture for light and one for dark pages, with the same numbers, and both with the
panels below each other for narrow screens.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap, to_rgb
from PIL import Image
from sklearn.linear_model import LogisticRegression

from skood.detectors import KNN
from skood.rejection import BoundedTPRFPR, RejectOptionClassifier

CLASSES = ("#4c9be8", "#f2a541", "#58b368")
PAGES = {"light": ("#ffffff", "#222832"), "dark": ("#14181e", "#e6e9ee")}
BOX = (-5.2, 8.4, -4.2, 5.4)  # x from, to, y from, to


def data():
    """Return three classes, and samples of none, labeled -1."""
    rng = np.random.default_rng(7)
    centers = np.array([[-1.5, -1.2], [1.5, -1.2], [0.0, 1.7]])
    X = np.concatenate([c + 0.95 * rng.normal(size=(200, 2)) for c in centers])
    y = np.repeat([0, 1, 2], 200)
    strange = [6.1, 3.9] + [0.7, 0.45] * rng.normal(size=(150, 2))
    return np.concatenate([X, strange]), np.r_[y, np.full(150, -1)]


def fit(X, y):
    """Return a classifier, a detector and a classifier that rejects."""
    known = y != -1
    clf = LogisticRegression().fit(X[known], y[known])
    detector = KNN(n_neighbors=10).fit(X, y)
    rejecting = RejectOptionClassifier(
        LogisticRegression(),
        ood_detector=KNN(n_neighbors=10),
        rule=BoundedTPRFPR(tpr_min=0.85, fpr_max=0.01),
        random_state=0,
    ).fit(X, y)
    return clf, detector, rejecting


def mixed(color, page, alpha):
    """Return a color with the opacity `alpha` on the color of the page."""
    return alpha * np.array(to_rgb(color)) + (1 - alpha) * np.array(to_rgb(page))


def draw(name, X, y, models):
    """Draw the picture for light or dark pages into ``_static``."""
    page, ink = PAGES[name]
    clf, detector, rejecting = models
    u, v = np.meshgrid(np.linspace(*BOX[:2], 500), np.linspace(*BOX[2:], 340))
    grid = np.column_stack([u.ravel(), v.ravel()])
    regions = ListedColormap(
        [mixed(ink, page, 0.13), *(mixed(c, page, 0.35) for c in CLASSES)]
    )
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.55), facecolor=page)
    figure.subplots_adjust(left=0.005, right=0.995, top=0.87, bottom=0.01, wspace=0.03)
    titles = (
        "A classifier has an answer for everything",
        "A detector: how well is this place known?",
        "A classifier that rejects",
    )
    for ax, title in zip(axes, titles, strict=True):
        ax.set_title(title, color=ink, fontsize=13, pad=8)
        ax.set(xlim=BOX[:2], ylim=BOX[2:], xticks=[], yticks=[], facecolor=page)
        ax.spines[:].set_visible(False)
    for ax, model in ((axes[0], clf), (axes[2], rejecting)):
        answer = model.predict(grid).reshape(u.shape)
        ax.imshow(
            answer,
            extent=BOX,
            origin="lower",
            cmap=regions,
            vmin=-1,
            vmax=2,
            aspect="auto",
        )
    distance = np.sqrt(-detector.score_samples(grid)).reshape(u.shape)
    levels = np.linspace(distance.min(), distance.max(), 10)
    shades = [mixed(ink, page, s) for s in np.linspace(0.0, 0.5, 9)]
    axes[1].contourf(u, v, distance, levels=levels, colors=shades)
    axes[1].contour(
        u, v, detector.decision_function(grid).reshape(u.shape), [0.0], colors=[ink]
    )
    for ax in axes:
        for k, color in enumerate(CLASSES):
            ax.scatter(*X[y == k][::3].T, s=13, color=color, edgecolors=page, lw=0.4)
        ax.scatter(*X[y == -1][::3].T, s=18, color="#d1495b", marker="X", lw=0)
    note = {"color": ink, "fontsize": 11, "ha": "center"}
    axes[0].text(
        5.05, 2.0, "unlike the training data,\nbut surely “green”?", va="top", **note
    )
    axes[1].text(5.7, 2.0, "not at all", va="top", **note)
    axes[2].text(5.8, 2.0, "rejected: unlike\nthe training data", va="top", **note)
    axes[2].annotate(
        "rejected:\nbetween\nclasses",
        (0.05, -2.6),
        (6.4, -2.7),
        arrowprops={"arrowstyle": "-", "color": ink},
        va="center",
        **note,
    )
    file = Path(__file__).parent / "_static" / f"hero-{name}.png"
    figure.savefig(file, dpi=120, facecolor=page)
    plt.close(figure)
    if name == "light":  # the last panel: for examples that draw nothing
        Image.open(file).convert("RGB").crop((967, 55, 1433, 421)).quantize(64).save(
            file.with_name("thumb.png"), optimize=True
        )
    wide = Image.open(file).convert("RGB")
    width, height = wide.width // 3, wide.height
    stacked = Image.new("RGB", (width, 3 * height))
    for i in range(3):
        panel = wide.crop((i * width, 0, (i + 1) * width, height))
        stacked.paste(panel, (0, i * height))
    for image, path in (
        (wide, file),
        (stacked, file.with_name(f"hero-stacked-{name}.png")),
    ):
        image.quantize(128).save(path, optimize=True)


def main():
    """Draw both."""
    X, y = data()
    models = fit(X, y)
    for name in PAGES:
        draw(name, X, y, models)


if __name__ == "__main__":
    main()
