"""A small LeNet, images it has learned a little, and a search in plain torch."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
from functools import cache

import numpy as np
import torch
from torch import nn
from torch.nn import functional

N_CLASSES = 4


class LeNet(nn.Module):
    """Two convolutions and three dense layers, for 28 x 28 pixels."""

    def __init__(self, n_classes=N_CLASSES):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(256, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, n_classes)

    def forward(self, x):
        """Logits of images (n, 1, 28, 28)."""
        x = functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        x = functional.relu(self.fc1(x.flatten(1)))
        return self.fc3(functional.relu(self.fc2(x)))


def digits(n_images, seed=0, dtype=np.float32):
    """Random images, and their classes: where they are bright."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_images) % N_CLASSES
    X = rng.normal(size=(n_images, 1, 28, 28))
    for i, k in enumerate(y):
        X[i, 0, 7 * k : 7 * k + 7] += 0.6
    return X.astype(dtype), y


@cache
def _trained():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = LeNet()
    X, y = (torch.from_numpy(a) for a in digits(256, seed=1))
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    for step in range(24):
        samples = slice(step % 4 * 64, step % 4 * 64 + 64)
        optimizer.zero_grad()
        functional.cross_entropy(net(X[samples]), y[samples]).backward()
        optimizer.step()
    return net.eval()


def lenet(dtype=torch.float32):
    """A copy of the network, trained a little."""
    net = copy.deepcopy(_trained()).to(dtype)
    net.zero_grad()
    return net


class PlainSearch:
    """What `plain_search` finds, model by model."""

    def __init__(self):
        self.outputs, self.training_loss, self.attack_loss = [], [], []
        self.weights = {}


def plain_search(
    module, names, x, target, batches, *, lr, weight_decay, c0, eta=1.0, update_every=1
):
    """Search one adversarial model: a copy of the network, Adam, and a loop.

    `names` are the weights that move, `x` is one row, and `batches` holds the rows and
    classes of each step, and those of the last model.
    """
    net = copy.deepcopy(module).eval()
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(name in names)
    moving = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(moving, lr=lr, weight_decay=weight_decay)
    result = PlainSearch()
    for step, (samples, answers) in enumerate(batches):
        power = step // update_every
        logits = net(x[None])
        attack = functional.cross_entropy(logits, torch.tensor([target]))
        training = functional.cross_entropy(net(samples), answers)
        result.outputs.append(torch.log_softmax(logits, 1)[0].tolist())
        result.training_loss.append(float(training.detach()))
        result.attack_loss.append(float(attack.detach()))
        if step == len(batches) - 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = lr / eta**power
        optimizer.zero_grad()
        (attack + c0 * eta**power * (training - 0.25)).backward()
        optimizer.step()
    result.weights = {
        name: parameter.detach()
        for name, parameter in net.named_parameters()
        if name in names
    }
    return result
