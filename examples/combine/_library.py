"""
=====================
A library of networks
=====================

Networks of different depth, width, structure and loss, and the OOD images of the
examples of this section. This file has no figures.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Bodies
# ------
#
# A body maps images to features. Perceptrons take pixels. Convolutional bodies have
# two stages with a pooling between them, and end in a map of 2 x 2 pixels; large images
# are downsampled first.
from functools import partial
from itertools import combinations, product

import numpy as np
import torch
from sklearn.datasets import load_sample_images
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.utils import Bunch
from torch import nn
from torch.nn import functional

from skood.combine import (
    BenjaminiHochberg,
    BenjaminiYekutieli,
    Bonferroni,
    Cauchy,
    DOSStorey,
    Fisher,
    HarmonicMean,
    Naive,
    Storey,
    Stouffer,
    Vote,
    conformal_pvalues,
)
from skood.metrics import auroc, fpr_at_tpr
from skood.nn import TorchClassifier, TrainingOptions, pretrained


def convolution(n_in, n_out, *, stride=1, norm=True):
    """Return a 3 x 3 convolution, optional batch normalization, and ReLU."""
    layers = [nn.Conv2d(n_in, n_out, 3, stride, padding=1, bias=not norm)]
    return nn.Sequential(*layers, *[nn.BatchNorm2d(n_out)] * norm, nn.ReLU())


class Residual(nn.Module):
    """Two convolutions that are added to their input."""

    def __init__(self, width):
        super().__init__()
        self.block = nn.Sequential(
            convolution(width, width),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x):
        return torch.relu(x + self.block(x))


class Dense(nn.Module):
    """A convolution whose output is concatenated to its input."""

    def __init__(self, n_in, growth):
        super().__init__()
        self.block = convolution(n_in, growth)

    def forward(self, x):
        return torch.cat([x, self.block(x)], dim=1)


def perceptron(input_shape, hidden, norm):
    """Return hidden layers on pixels, and the number of features."""
    layers, width = [nn.Flatten()], int(np.prod(input_shape))
    for size in hidden:
        layers += [nn.Linear(width, size), *[nn.BatchNorm1d(size)] * norm, nn.ReLU()]
        width = size
    return nn.Sequential(*layers), width


def convolutional(input_shape, kind, width):
    """Return two stages of convolutions, and the number of features."""
    n_channels, height, _ = input_shape
    stride = 1 if height <= 16 else 2
    growth = width // 2
    stages = {
        "plain": ([], [convolution(width, 2 * width, norm=False)]),
        "residual": (
            [Residual(width)],
            [convolution(width, 2 * width), Residual(2 * width)],
        ),
        "dense": (
            [Dense(width, growth), Dense(width + growth, growth)],
            [convolution(2 * width, 2 * width)],
        ),
    }
    first, second = stages[kind]
    return nn.Sequential(
        convolution(n_channels, width, stride=stride, norm=kind != "plain"),
        *first,
        nn.MaxPool2d(2),
        *second,
        nn.AvgPool2d(height // stride // 2 // 2),
        nn.Flatten(),
    ), 8 * width


# %%
# Four structures, of different depth and width, each of which is trained with two
# losses: eight networks.
BODIES = {
    "perceptron": partial(perceptron, hidden=(256, 128), norm=True),
    "plain": partial(convolutional, kind="plain", width=16),
    "residual": partial(convolutional, kind="residual", width=16),
    "dense": partial(convolutional, kind="dense", width=16),
}


def with_head(input_shape, n_classes, body):
    """Return a body and a linear head, as a module for ``TorchClassifier``."""
    body, n_features = body(input_shape)
    return nn.Sequential(body, nn.Linear(n_features, n_classes))


# %%
# Losses
# ------
#
# All networks are trained on images with small rotations, scalings and shifts, drawn
# in each epoch for the contrastive loss, and in copies for the cross-entropy.


def jittered(X, rng):
    """Return images after small random affine maps."""
    n = len(X)
    angle, zoom = rng.uniform(-0.2, 0.2, n), rng.uniform(0.9, 1.1, n)
    maps = np.empty((n, 2, 3), dtype=np.float32)
    maps[:, 0, 0] = maps[:, 1, 1] = zoom * np.cos(angle)
    maps[:, 0, 1], maps[:, 1, 0] = -zoom * np.sin(angle), zoom * np.sin(angle)
    maps[:, :, 2] = rng.uniform(-0.12, 0.12, (n, 2))  # in half images
    X = torch.as_tensor(X)
    grid = functional.affine_grid(torch.from_numpy(maps), X.shape, align_corners=False)
    return functional.grid_sample(X, grid, align_corners=False)


def contrastive_loss(z, y, temperature=0.1):
    """Return the supervised contrastive loss of unit vectors.

    The mean over i of minus the mean over the other vectors p of its class of
    log(exp(z_i z_p / t) / sum_{a != i} exp(z_i z_a / t)).
    """
    itself = torch.eye(len(z), dtype=torch.bool)
    similarity = (z @ z.T / temperature).masked_fill(itself, -torch.inf)
    log_p = similarity - similarity.logsumexp(dim=1, keepdim=True)
    same = (y[:, None] == y) & ~itself
    return -(log_p.masked_fill(~same, 0).sum(dim=1) / same.sum(dim=1)).mean()


def train_contrastive(body, X, y, *, n_views, seed, lr=0.01, batch_size=128):
    """Train a body on two views of each image, then fit a linear head to it."""
    classes, codes = np.unique(y, return_inverse=True)
    codes, rng = torch.from_numpy(codes), np.random.default_rng(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        body, n_features = body(X.shape[1:])
        project = nn.Sequential(
            nn.Linear(n_features, n_features), nn.ReLU(), nn.Linear(n_features, 32)
        )
        optimizer = torch.optim.Adam([*body.parameters(), *project.parameters()])
        n_batches = len(X) // batch_size
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=lr, total_steps=n_views // 2 * n_batches
        )
        for _ in range(n_views // 2):
            order = rng.permutation(len(X))[: n_batches * batch_size]
            for rows in np.split(order, n_batches):
                views = torch.cat([jittered(X[rows], rng) for _ in range(2)])
                z = functional.normalize(project(body(views)))
                loss = contrastive_loss(z, codes[rows].repeat(2))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
        head = nn.Linear(n_features, len(classes))
    body.eval()
    with torch.no_grad():
        features = body(torch.as_tensor(X)).numpy()
        model = LogisticRegression(max_iter=1000).fit(features, y)
        head.weight.copy_(torch.from_numpy(model.coef_))
        head.bias.copy_(torch.from_numpy(model.intercept_))
    network = nn.Sequential(body, head).eval()
    return pretrained(network, classes, input_shape=X.shape[1:])


def train_cross_entropy(body, X, y, *, n_views, seed, n_copies=8):
    """Train a body and a linear head together, on copies of the images."""
    rng = np.random.default_rng(seed)
    copies = torch.cat([jittered(X, rng) for _ in range(n_copies)])
    network = TorchClassifier(
        with_head,
        module_params={"body": body},
        max_epochs=n_views // n_copies,
        lr=0.01,
        training=TrainingOptions(lr_schedule="one_cycle"),
        random_state=seed,
    ).fit(copies.numpy(), np.tile(y, n_copies))
    return FrozenEstimator(network)


def train_library(X, y, *, n_views=64, seed=0):
    """Return the trained networks of the library, frozen, by name."""
    losses = {"CE": train_cross_entropy, "SupCon": train_contrastive}
    return {
        f"{name} {loss}": train(body, X, y, n_views=n_views, seed=100 * seed + i)
        for loss, train in losses.items()
        for i, (name, body) in enumerate(BODIES.items())
    }


# %%
# OOD images
# ----------
#
# In addition to left-out classes: mirrored digits, digits with permuted quarters,
# letters of printed fonts, and pieces of photographs.


def mirrored(X, y):
    """Return mirrored images of the digits without symmetry."""
    return X[np.isin(y, (2, 3, 4, 5, 6, 7, 9))][..., ::-1].copy()


def with_moved_quarters(X, rng):
    """Return images with permuted quarters, none at its place."""
    half = X.shape[2] // 2
    corners = [
        (slice(i, i + half), slice(j, j + half)) for i in (0, half) for j in (0, half)
    ]
    moved, orders = X.copy(), [(1, 2, 3, 0), (2, 3, 1, 0), (3, 0, 1, 2), (1, 0, 3, 2)]
    for image, order in zip(moved, rng.integers(len(orders), size=len(X)), strict=True):
        parts = [image[0][corner].copy() for corner in corners]
        for corner, i in zip(corners, orders[order], strict=True):
            image[0][corner] = parts[i]
    return moved


def printed_letters(n_images, size, rng):
    """Return letters unlike all digits, in twelve fonts, slightly rotated."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    letters = []
    for family in ("DejaVu Sans", "DejaVu Serif", "DejaVu Sans Mono"):
        for weight, style in product(("normal", "bold"), ("normal", "italic")):
            for letter in "ACEFHJKMNPRUVWX":
                # as in the digits: the fraction of ink in squares of 4 x 4 pixels
                figure = Figure(figsize=(1, 1), dpi=4 * size)
                canvas = FigureCanvasAgg(figure)
                place = {"ha": "center", "va": "center_baseline", "fontsize": 84}
                font = {"family": family, "weight": weight, "style": style}
                figure.text(0.5, 0.5, letter, **place, **font)
                canvas.draw()
                gray = 1 - np.asarray(canvas.buffer_rgba())[..., 0] / 255
                letters.append(gray.reshape(size, 4, size, 4).mean(axis=(1, 3)))
    rows = rng.integers(len(letters), size=n_images)
    return jittered(np.array(letters, dtype=np.float32)[rows, None], rng).numpy()


def pieces_of_photographs(n_images, size, rng):
    """Return squares of the photographs of scikit-learn, gray and of full contrast."""
    pieces = np.empty((n_images, 1, size, size), dtype=np.float32)
    photographs = [image.mean(axis=2) for image in load_sample_images().images]
    for piece in pieces:
        image = photographs[rng.integers(len(photographs))]
        row, column = (rng.integers(length - 4 * size) for length in image.shape)
        square = image[row : row + 4 * size, column : column + 4 * size]
        square = square.reshape(size, 4, size, 4).mean(axis=(1, 3))
        piece[0] = (square - square.min()) / (np.ptp(square) + 1)
    return pieces


def divide(X, y, left_out, *, n_train, seed, letters=None, n_most=300):
    """Divide images into parts, and add OOD images to the test part.

    Parameters
    ----------
    X, y : ndarray
        Digits and their labels.

    left_out : tuple of int
        The left-out digits.

    n_train : int
        Number of training images. One half of the others is for calibration.

    seed : int
        Draws the rows.

    letters : ndarray, default=None
        Images of letters. None: printed ones.

    n_most : int, default=300
        Maximal number of OOD images of a kind.

    Returns
    -------
    parts : Bunch
        With `X_train`, `X_calibration` and `X_test`, `y_train` and so on, and `images`,
        a dict with the "known" test images and OOD images by kind.
    """
    is_ood, rng = np.isin(y, left_out), np.random.default_rng(seed)
    X_train, X_rest, y_train, y_rest = train_test_split(
        X[~is_ood],
        y[~is_ood],
        train_size=n_train,
        stratify=y[~is_ood],
        random_state=seed,
    )
    X_calibration, X_test, y_calibration, y_test = train_test_split(
        X_rest, y_rest, test_size=0.5, stratify=y_rest, random_state=seed
    )
    if letters is None:
        letters = printed_letters(500, X.shape[2], rng)
    images = {
        "unknown": X[is_ood],
        "mirrored": mirrored(X_test, y_test),
        "quarters": with_moved_quarters(X_test, rng),
        "letters": letters,
        "photos": pieces_of_photographs(500, X.shape[2], rng),
    }
    images = {kind: rng.permutation(rows)[:n_most] for kind, rows in images.items()}
    return Bunch(
        X_train=X_train,
        y_train=y_train,
        X_calibration=X_calibration,
        y_calibration=y_calibration,
        X_test=X_test,
        y_test=y_test,
        images={"known": X_test, **images},
    )


# %%
# Evaluation
# ----------
#
# A table has a row for each network and for each combiner. Single networks are
# ranked by their scores and not by their p-values, which have ties.
COMBINERS = {
    "DSDE": DOSStorey(),
    "BH": BenjaminiHochberg(),
    "BY": BenjaminiYekutieli(),
    "Bonferroni": Bonferroni(),
    "Naive": Naive(),
    "Storey": Storey(),
    "Vote": Vote(),
    "Fisher": Fisher(),
    "Stouffer": Stouffer(),
    "HarmonicMean": HarmonicMean(),
    "Cauchy": Cauchy(),
}


def frozen_members(detector, library, X, y):
    """Return a detector of each network, fitted, as members of an ensemble."""
    return [
        (name, FrozenEstimator(detector(network).fit(X, y)))
        for name, network in library.items()
    ]


def accepted(level, alpha):
    """Return which images are accepted, at a level with a tolerance for rounding."""
    return level > alpha * (1 + 1e-12)


def scores_of(members, X):
    """Return the scores of all members, a column each."""
    return np.column_stack([member.score_samples(X) for _, member in members])


def evaluate(members, X_calibration, images, alpha=0.05):
    """Return metrics of single members and combiners on known and OOD images.

    Parameters
    ----------
    members : list of (str, detector)
        Fitted detectors.

    X_calibration : ndarray
        ID images for p-values.

    images : dict of str to ndarray
        The "known" images and, by kind, OOD images.

    alpha : float, default=0.05
        The level.

    Returns
    -------
    table : dict of str to Bunch
        For members and combiners the `tpr` at `alpha`; and for each kind of OOD
        images the `fpr` at `alpha`, the `auroc`, and the FPR at the TPR of DSDE.
    """
    calibration = scores_of(members, X_calibration)
    scores = {kind: scores_of(members, rows) for kind, rows in images.items()}
    pvalues = {kind: conformal_pvalues(S, calibration) for kind, S in scores.items()}
    rows = {
        name: tuple(
            {kind: S[:, j] for kind, S in of.items()} for of in (pvalues, scores)
        )
        for j, (name, _) in enumerate(members)
    }
    for name, combiner in COMBINERS.items():
        levels = {kind: combiner.statistic(P) for kind, P in pvalues.items()}
        rows[name] = levels, levels
    tpr = accepted(rows["DSDE"][0]["known"], alpha).mean()
    return {name: rates(*row, tpr, alpha) for name, row in rows.items()}


def rates(levels, scores, tpr, alpha):
    """Return a row of the table, and the FPRs at some TPR."""
    known, kinds = scores["known"], [kind for kind in scores if kind != "known"]
    tasks = [
        (
            np.repeat([1, -1], [len(known), len(scores[kind])]),
            np.append(known, scores[kind]),
        )
        for kind in kinds
    ]
    return Bunch(
        tpr=accepted(levels["known"], alpha).mean(),
        fpr=np.array([accepted(levels[kind], alpha).mean() for kind in kinds]),
        auroc=np.array([auroc(*task) for task in tasks]),
        fpr_at_dsde=np.array([fpr_at_tpr(*task, tpr=tpr) for task in tasks]),
    )


def mean_table(tables):
    """Return the means of tables with the same rows, and the names of its singles."""
    return {
        name: Bunch(**{key: np.mean([t[name][key] for t in tables], 0) for key in row})
        for name, row in tables[0].items()
    }


def print_table(table, kinds):
    """Print TPR, FPR and AUROC of each row, in percent."""
    heads = "".join(f"{kind:>9}" for kind in [*kinds, "mean"])
    print(f"{'':18}{'TPR':>6}  {'FPR':-<54} {'AUROC':-<54}")
    print(f"{'':24} {heads}{heads}")
    for name, row in table.items():
        cells = [*row.fpr, row.fpr.mean(), *row.auroc, row.auroc.mean()]
        numbers = "".join(f"{100 * cell:9.1f}" for cell in cells)
        print(f"{name:18}{100 * row.tpr:6.1f} {numbers}")


def best_single(table):
    """Return the name of the network with the least mean FPR at the TPR of DSDE."""
    singles = [name for name in table if name not in COMBINERS]
    return min(singles, key=lambda name: table[name].fpr_at_dsde.mean())


# %%
# Parts of a library
# ------------------
#
# A part of a library needs no new p-values. Of each size there are all parts, or some
# at random. :math:`c_m` bounds the change point of DSDE from below; with 2/m two
# networks have none.
FRACTIONS = {"2/m": None, "2/7": 2 / 7, "2/15": 2 / 15}


def parts_of(n_members, size, n_most, rng):
    """Return the parts of a size, or `n_most` of them, as columns of members."""
    parts = np.array(list(combinations(range(n_members), size)))
    if len(parts) > n_most:
        parts = parts[np.sort(rng.choice(len(parts), n_most, replace=False))]
    return parts


def evaluate_sizes(members, X_calibration, images, *, n_most=70, alpha=0.05, seed=0):
    """Return the rates of DSDE on parts of a library, by size and lower bound.

    TPR and mean FPR over kinds at the nominal level `alpha`, and the mean FPR where
    exactly 95 % of the known images are accepted; arrays with a value for each part.
    """
    pvalues = pvalues_of(members, X_calibration, images)
    rng = np.random.default_rng(seed)
    found = {}
    for size in range(2, len(members) + 1, 2):
        parts = parts_of(len(members), size, n_most, rng)
        for name, c_m in FRACTIONS.items():
            if c_m is None and size < 4:
                continue
            rows = [rates_of_part(pvalues, part, c_m, alpha) for part in parts]
            columns = zip(*rows, strict=True)
            rates = dict(zip(("tpr", "fpr", "fpr_at_95"), columns, strict=True))
            found[size, name] = Bunch(**{k: np.array(v) for k, v in rates.items()})
    return found


def pvalues_of(members, X_calibration, images):
    """Return the p-values of all members for each kind of images."""
    calibration = scores_of(members, X_calibration)
    return {
        kind: conformal_pvalues(scores_of(members, rows), calibration)
        for kind, rows in images.items()
    }


def rates_of_part(pvalues, part, c_m, alpha):
    """Return TPR, mean FPR, and mean FPR at a TPR of 95 %, of some of the members."""
    levels = {
        kind: DOSStorey(c_m=c_m).statistic(P[:, part]) for kind, P in pvalues.items()
    }
    known = levels.pop("known")
    fpr = np.mean([accepted(level, alpha).mean() for level in levels.values()])
    at_95 = [
        fpr_at_tpr(
            np.repeat([1, -1], [len(known), len(level)]), np.append(known, level)
        )
        for level in levels.values()
    ]
    return accepted(known, alpha).mean(), fpr, np.mean(at_95)


def print_sizes(found):
    """Print means over parts, in percent."""
    print(f"{'networks':>8}{'parts':>7}" + "".join(f"{n:>27}" for n in FRACTIONS))
    print(f"{'':15}" + f"{'TPR':>13}{'FPR':>7}{'at 95':>7}" * len(FRACTIONS))
    for size in dict.fromkeys(size for size, _ in found):
        rows = [found.get((size, name)) for name in FRACTIONS]
        n_parts = max(len(row.tpr) for row in rows if row)
        cells = "".join(
            f"{100 * row.tpr.mean():13.1f}{100 * row.fpr.mean():7.1f}"
            f"{100 * row.fpr_at_95.mean():7.1f}"
            if row
            else f"{'-':>13}{'-':>7}{'-':>7}"
            for row in rows
        )
        print(f"{size:8}{n_parts:7}{cells}")
