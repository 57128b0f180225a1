"""A real convolutional network, and a way to run parts of it by hand."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from collections import OrderedDict

import numpy as np
import torch
from torch import nn

from skood.nn import TorchClassifier, pretrained


def conv_net(dtype=torch.float32, n_classes=3, seed=0, inplace=True):
    """Convolution, batch norm, ReLU, pooling, twice; then a linear head."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(2, 4, 3, padding=1),
            bn1=nn.BatchNorm2d(4),
            relu1=nn.ReLU(inplace=inplace),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(4, 6, 3, padding=1),
            bn2=nn.BatchNorm2d(6),
            relu2=nn.ReLU(inplace=inplace),
            pool2=nn.AdaptiveAvgPool2d(1),
            flat=nn.Flatten(),
            drop=nn.Dropout(0.5),
            head=nn.Linear(6, n_classes),
        )
    )
    with torch.no_grad():  # statistics that are not those of a new layer
        for bn in (net.bn1, net.bn2):
            bn.running_mean.normal_()
            bn.running_var.uniform_(0.5, 2.0)
        # all classes are predicted
        features = net[:-1].eval()(torch.as_tensor(images(50, seed=9)))
        net.head.weight *= 5
        net.head.bias.copy_(-features.mean(0) @ net.head.weight.T)
    return net.train().to(dtype)


def fully_convolutional():
    """Return a network with three logits for images of 4 x 4 pixels, else more."""
    return nn.Sequential(nn.Conv2d(1, 3, 4), nn.Flatten())


def conv_classifier(**options):
    """The network in training mode, as a user may leave it, and a classifier of it."""
    net = conv_net(**options).train()
    return net, pretrained(net, classes=np.arange(net.head.out_features))


def perceptron_in_torch(mlp):
    """A fitted `MLPClassifier`, layer by layer, with two logits for two classes."""
    activations = {"identity": nn.Identity, "relu": nn.ReLU, "tanh": nn.Tanh}
    layers: list = []
    for W, b in zip(mlp.coefs_, mlp.intercepts_, strict=True):
        if W.shape[1] == 1:
            W, b = np.hstack([-W, W]) / 2, np.hstack([-b, b]) / 2
        linear = nn.Linear(*W.shape).double()
        linear.weight.data = torch.as_tensor(W.T.copy())
        linear.bias.data = torch.as_tensor(b.copy())
        layers += [linear, activations.get(mlp.activation, nn.Sigmoid)()]
    return nn.Sequential(*layers[:-1])


def images(n_samples=40, seed=0, size=8, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n_samples, 2, size, size)).astype(dtype)


class MapNet(nn.Module):
    """Makes a feature map of a vector of any width, for checks that give vectors."""

    def __init__(self, input_shape, n_classes):
        super().__init__()
        padding = 2 if input_shape[0] == 1 else 1  # of one position it is no map
        self.conv = nn.Conv1d(1, 4, 3, padding=padding)
        self.head = nn.Linear(4 * (input_shape[0] + 2 * padding - 2), n_classes)

    def forward(self, x):
        return self.head(torch.tanh(self.conv(x[:, None])).flatten(1))


def map_classifier(**params):
    """A classifier with the feature map "conv", quickly trained."""
    return TorchClassifier(MapNet, random_state=0, **{"max_epochs": 30, **params})
