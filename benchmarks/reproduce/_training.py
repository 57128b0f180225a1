"""Recipes of training, and augmentation of images."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch.nn import functional

from skood.nn import TorchClassifier, TrainingOptions


def prepare(X, size=None, n_channels=None):
    """Return uint8 images as float32 in [0, 1], of a size and a number of channels."""
    X = torch.from_numpy(np.array(X, dtype=np.float32, order="C")).div_(255)
    if n_channels == 3 and X.shape[1] == 1:
        X = X.repeat(1, 3, 1, 1)
    if n_channels == 1 and X.shape[1] == 3:
        X = (X * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(1, True)
    if size is not None and X.shape[2:] != (size, size):
        X = functional.interpolate(
            X, (size, size), mode="bilinear", antialias=True, align_corners=False
        )
    return X.numpy()


def cropped_and_flipped(X, padding=4):
    """Return images after random crops of padded images, and random flips."""
    n, _, height, width = X.shape
    padded = functional.pad(X, (padding,) * 4)
    corners = torch.randint(2 * padding + 1, (2, n, 1), device=X.device)
    rows = corners[0] + torch.arange(height, device=X.device)
    columns = torch.arange(width, device=X.device).expand(n, width)
    flipped = torch.rand(n, 1, device=X.device) < 0.5
    columns = corners[1] + torch.where(flipped, width - 1 - columns, columns)
    at = torch.arange(n, device=X.device)[:, None, None]
    return padded[at, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


#: OpenOOD's recipe, by its code: learning rate, epochs and batch size.
OPENOOD = {"lr": 0.1, "max_epochs": 100, "batch_size": 128, "weight_decay": 5e-4}


def openood_classifier(
    module, *, seed, device="auto", verbose=0, recipe=None, **params
):
    """Return an untrained classifier with OpenOOD's recipe.

    SGD with Nesterov's momentum of 0.9, weight decay, a cosine schedule over steps,
    random crops with a padding of 4, and flips. ``params`` are of the module.
    """
    recipe = {**OPENOOD, **(recipe or {})}
    return TorchClassifier(
        module,
        module_params=params,
        lr=recipe["lr"],
        max_epochs=recipe["max_epochs"],
        batch_size=recipe["batch_size"],
        training=TrainingOptions(
            optimizer="nesterov",
            weight_decay=recipe["weight_decay"],
            lr_schedule="cosine_steps",
            transform=cropped_and_flipped,
            mixed_precision=True,
        ),
        random_state=seed,
        device=device,
        verbose=verbose,
    )


#: A network is at chance with an accuracy of up to so many times that of a constant.
AT_CHANCE = 2.0


def trained_openood(module, X, y, *, seed, device="auto", verbose=0):
    """Return a classifier trained by OpenOOD's recipe.

    Without batch normalization, its learning rate leaves some networks at chance. Such
    a network is trained again with another seed, up to five times.
    """
    sample = np.random.default_rng(seed).permutation(len(X))[:2000]
    for attempt in range(5):
        made = openood_classifier(
            module, seed=seed + 1000 * attempt, device=device, verbose=verbose
        ).fit(X, y)
        if made.score(X[sample], y[sample]) > AT_CHANCE / len(made.classes_):
            return made
    raise ValueError(f"Training left the network of seed {seed} at chance five times.")


#: The paper of DSDE names the loss only; these are the usual settings.
SUPCON = {
    **{"max_epochs": 500, "batch_size": 512, "lr": 0.5, "warm_up": 10},
    **{"temperature": 0.1, "projection": 128, "weight_decay": 1e-4},
}


def supcon_views(X):
    """Return views of images: resized crops, flips, color jitter, gray images."""
    n, device = len(X), X.device

    def uniform(low, high):
        return torch.rand(n, 1, 1, 1, device=device) * (high - low) + low

    side = uniform(0.2, 1.0).sqrt()  # of a crop with this fraction of the area
    ratio = torch.exp(uniform(np.log(3 / 4), np.log(4 / 3))).sqrt()
    width, height = (side * ratio).clamp(max=1), (side / ratio).clamp(max=1)
    maps = torch.zeros(n, 2, 3, device=device)
    sign = torch.where(uniform(0, 1) < 0.5, -1.0, 1.0)
    maps[:, 0, 0], maps[:, 1, 1] = (sign * width).reshape(n), height.reshape(n)
    maps[:, 0, 2] = ((1 - width) * uniform(-1, 1)).reshape(n)
    maps[:, 1, 2] = ((1 - height) * uniform(-1, 1)).reshape(n)
    grid = functional.affine_grid(maps, X.shape, align_corners=False)
    X = functional.grid_sample(X, grid, padding_mode="border", align_corners=False)
    jittered = (X * uniform(0.6, 1.4)).clamp(0, 1)
    mean = _gray(jittered).mean(dim=(2, 3), keepdim=True)
    jittered = (mean + (jittered - mean) * uniform(0.6, 1.4)).clamp(0, 1)
    gray = _gray(jittered)
    jittered = (gray + (jittered - gray) * uniform(0.6, 1.4)).clamp(0, 1)
    jittered = _with_hue(jittered, uniform(-0.1, 0.1)).clamp(0, 1)
    X = torch.where(uniform(0, 1) < 0.8, jittered, X)
    return torch.where(uniform(0, 1) < 0.2, _gray(X).expand_as(X), X)


def _gray(X):
    weights = torch.tensor([0.299, 0.587, 0.114], device=X.device)
    return (X * weights[:, None, None]).sum(dim=1, keepdim=True)


def _with_hue(X, turn):
    """Return images with colors rotated about the gray axis, by fractions of a turn."""
    angle = 2 * np.pi * turn[:, 0]
    cos, sin = torch.cos(angle), torch.sin(angle)
    third, root = 1 / 3, 3**-0.5
    b, c = third * (1 - cos) - root * sin, third * (1 - cos) + root * sin
    a = cos + third * (1 - cos)
    red, green, blue = X.unbind(1)
    return torch.stack(
        [
            a * red + b * green + c * blue,
            c * red + a * green + b * blue,
            b * red + c * green + a * blue,
        ],
        dim=1,
    )


def train_supcon(body, head, X, y, loss, *, seed, device="auto", recipe=SUPCON):
    """Train a body by a contrastive loss of two views, then a linear head.

    SGD with momentum, a linear warm-up, then a half cosine over steps, in bfloat16 and
    with channels last on CUDA.

    Parameters
    ----------
    body, head : torch.nn.Module
        Images to features, and features to logits; trained in place.

    X, y : ndarray
        Images (n, channels, height, width) in [0, 1], and classes 0, 1, ….

    loss : callable
        Called with unit vectors and classes.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    kind = torch.device(device).type
    layout = torch.channels_last if kind == "cuda" else torch.contiguous_format
    X, y = torch.as_tensor(X), torch.as_tensor(y)
    n_steps = max(1, len(X) // recipe["batch_size"])
    total, warm_up = n_steps * recipe["max_epochs"], n_steps * recipe["warm_up"]

    def rate(step):
        if step < warm_up:
            return (step + 1) / warm_up
        return (1 + np.cos(np.pi * (step - warm_up) / max(1, total - warm_up))) / 2

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        width = head.in_features
        project = torch.nn.Sequential(
            torch.nn.Linear(width, width),
            torch.nn.ReLU(),
            torch.nn.Linear(width, recipe["projection"]),
        ).to(device)
        body.to(device, memory_format=layout).train()
        optimizer = torch.optim.SGD(
            [*body.parameters(), *project.parameters()],
            lr=recipe["lr"],
            momentum=0.9,
            weight_decay=recipe["weight_decay"],
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
        for _ in range(recipe["max_epochs"]):
            order = torch.randperm(len(X))
            for rows in order[: n_steps * recipe["batch_size"]].chunk(n_steps):
                images, codes = X[rows].to(device), y[rows].to(device)
                views = torch.cat([supcon_views(images) for _ in range(2)])
                with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
                    z = project(body(views.contiguous(memory_format=layout)))
                z = functional.normalize(z.float())
                value = loss(z, codes.repeat(2), recipe["temperature"])
                optimizer.zero_grad()
                value.backward()
                optimizer.step()
                schedule.step()
    body.eval()
    with torch.no_grad():
        parts = [body(rows.to(device)).cpu() for rows in X.split(512)]
    model = LogisticRegression(max_iter=1000).fit(torch.cat(parts).numpy(), y.numpy())
    coef, intercept = torch.from_numpy(model.coef_), torch.from_numpy(model.intercept_)
    if len(coef) == 1:  # of two classes there is the second one only
        coef, intercept = torch.cat([-coef, coef]), torch.cat([-intercept, intercept])
    with torch.no_grad():
        head.weight.copy_(coef)
        head.bias.copy_(intercept)
    body.cpu()
