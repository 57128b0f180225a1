"""Recipes of training, and augmentation of images."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import torch
from torch.nn import functional

from skood.nn import TorchClassifier, TrainingOptions


def prepare(X, size=None, n_channels=None):
    """Return uint8 images as float32 in [0, 1], of a size and a number of channels."""
    X = torch.as_tensor(np.ascontiguousarray(X)).to(torch.float32) / 255
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
