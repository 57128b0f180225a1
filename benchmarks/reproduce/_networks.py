"""Networks of the papers as plain modules: ``factory(input_shape, n_classes, …)``.

Images are in [0, 1]; `mean` and `std` of the pixels are part of the network. The last
layer is linear, and the features are its input.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from importlib import import_module

import torch
from torch import nn

# Channel statistics of the training images.
CIFAR10 = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2470, 0.2435, 0.2616)}
CIFAR100 = {"mean": (0.5071, 0.4867, 0.4408), "std": (0.2675, 0.2565, 0.2761)}
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


class Standardize(nn.Module):
    """Subtract the mean of each channel, and divide by its standard deviation."""

    def __init__(self, mean, std):
        super().__init__()
        mean, std = (torch.tensor(v).reshape(-1, 1, 1) for v in (mean, std))
        self.register_buffer("mean", mean, persistent=False)
        self.register_buffer("std", std, persistent=False)

    def forward(self, x):
        """Return standardized images."""
        return (x - self.mean) / self.std


def _standardized(layers, mean, std):
    first = [] if mean is None else [Standardize(mean, std)]
    return nn.Sequential(*first, *layers)


def lenet(input_shape, n_classes, *, padding=2, dropout=0.0, mean=None, std=None):
    """Return a LeNet with 6, 16, 120 and 84 units, for images of 28 x 28 pixels.

    `padding` of the first 5 x 5 convolution is 2 ("same") or 0 ("valid"). Dropout is
    before the last layer.
    """
    n_channels, height, width = input_shape
    side = [((n + 2 * padding - 4) // 2 - 4) // 2 for n in (height, width)]
    return _standardized(
        [
            nn.Conv2d(n_channels, 6, 5, padding=padding),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * side[0] * side[1], 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            *[nn.Dropout(dropout)] * bool(dropout),
            nn.Linear(84, n_classes),
        ],
        mean,
        std,
    )


def _conv(n_in, n_out, size, stride=1):
    return nn.Conv2d(n_in, n_out, size, stride, padding=size // 2, bias=False)


class _Residual(nn.Module):
    """Residual block of convolutions with batch normalization after each."""

    def __init__(self, n_in, n_out, layers, stride):
        super().__init__()
        self.layers = layers
        self.shortcut = nn.Sequential()
        if stride != 1 or n_in != n_out:
            self.shortcut = nn.Sequential(
                _conv(n_in, n_out, 1, stride), nn.BatchNorm2d(n_out)
            )

    def forward(self, x):
        return torch.relu(self.layers(x) + self.shortcut(x))


def _basic(n_in, width, stride):
    layers = nn.Sequential(
        _conv(n_in, width, 3, stride),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        _conv(width, width, 3),
        nn.BatchNorm2d(width),
    )
    return _Residual(n_in, width, layers, stride), width


def _bottleneck(n_in, width, stride):
    layers = nn.Sequential(
        _conv(n_in, width, 1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        _conv(width, width, 3, stride),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        _conv(width, 4 * width, 1),
        nn.BatchNorm2d(4 * width),
    )
    return _Residual(n_in, 4 * width, layers, stride), 4 * width


_RESNETS = {
    18: (_basic, (2, 2, 2, 2)),
    34: (_basic, (3, 4, 6, 3)),
    50: (_bottleneck, (3, 4, 6, 3)),
    101: (_bottleneck, (3, 4, 23, 3)),
    152: (_bottleneck, (3, 8, 36, 3)),
}


def resnet(input_shape, n_classes, *, depth=18, small_images=True, mean=None, std=None):
    """Return a ResNet of a depth: 18, 34, 50, 101 or 152.

    For small images the stem is a 3 x 3 convolution without pooling. `n_classes` None:
    no head, the output are the features.
    """
    block, numbers = _RESNETS[depth]
    n_channels, width = input_shape[0], 64
    layers = [
        _conv(n_channels, 64, 3) if small_images else _conv(n_channels, 64, 7, 2),
        nn.BatchNorm2d(64),
        nn.ReLU(),
    ]
    if not small_images:
        layers.append(nn.MaxPool2d(3, 2, padding=1))
    for stage, number in enumerate(numbers):
        for i in range(number):
            made, width = block(width, 64 * 2**stage, 2 if stage and not i else 1)
            layers.append(made)
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    if n_classes is not None:
        layers.append(nn.Linear(width, n_classes))
    return _standardized(layers, mean, std)


class _Concatenated(nn.Module):
    """Bottleneck of a DenseNet, concatenated with its input."""

    def __init__(self, n_in, growth):
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm2d(n_in),
            nn.ReLU(),
            _conv(n_in, 4 * growth, 1),
            nn.BatchNorm2d(4 * growth),
            nn.ReLU(),
            _conv(4 * growth, growth, 3),
        )

    def forward(self, x):
        return torch.cat([x, self.layers(x)], dim=1)


def densenet100(input_shape, n_classes, *, growth=12, mean=None, std=None):
    """Return a DenseNet-BC of 100 layers, with growth 12 and reduction 0.5."""
    width = 2 * growth
    layers = [_conv(input_shape[0], width, 3)]
    for stage in range(3):
        for _ in range(16):
            layers.append(_Concatenated(width, growth))
            width += growth
        layers += [nn.BatchNorm2d(width), nn.ReLU()]
        if stage < 2:
            layers += [_conv(width, width // 2, 1), nn.AvgPool2d(2)]
            width //= 2
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, n_classes)]
    return _standardized(layers, mean, std)


class _Wide(nn.Module):
    """Block of a wide ResNet, with normalization before its convolutions."""

    def __init__(self, n_in, n_out, stride, dropout):
        super().__init__()
        self.first = nn.Sequential(nn.BatchNorm2d(n_in), nn.ReLU())
        self.layers = nn.Sequential(
            _conv(n_in, n_out, 3, stride),
            nn.BatchNorm2d(n_out),
            nn.ReLU(),
            nn.Dropout(dropout),
            _conv(n_out, n_out, 3),
        )
        self.shortcut = None if n_in == n_out else _conv(n_in, n_out, 1, stride)

    def forward(self, x):
        z = self.first(x)
        return self.layers(z) + (x if self.shortcut is None else self.shortcut(z))


def wide_resnet(
    input_shape, n_classes, *, depth=40, widen=2, dropout=0.0, mean=None, std=None
):
    """Return a wide ResNet of a depth of 6 k + 4."""
    number, widths = (depth - 4) // 6, (16, 16 * widen, 32 * widen, 64 * widen)
    layers = [_conv(input_shape[0], 16, 3)]
    for stage in range(3):
        for i in range(number):
            n_in = widths[stage] if i == 0 else widths[stage + 1]
            stride = 2 if stage and i == 0 else 1
            layers.append(_Wide(n_in, widths[stage + 1], stride, dropout))
    layers += [nn.BatchNorm2d(widths[3]), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[3], n_classes)]
    return _standardized(layers, mean, std)


def of_torchvision(name, n_classes, *, mean, std):
    """Return an untrained network of torchvision, standardized."""
    make = import_module("torchvision.models").get_model
    return _standardized([make(name, weights=None, num_classes=n_classes)], mean, std)


def load_weights(module, path, *, head=True):
    """Return a module with the weights of a file whose names may differ.

    Tensors are matched by their order and must have equal shapes: ResNets of OpenOOD
    and of torchvision have the same layers in the same order. With ``head=False`` the
    last layer stays as it is.
    """
    given = torch.load(path, map_location="cpu", weights_only=True)
    own, given = (
        # the counters of batch normalization have no effect; old files have none
        [v for k, v in state.items() if not k.endswith("num_batches_tracked")]
        for state in (module.state_dict(), given.get("state_dict", given))
    )
    if not head:
        own, given = own[:-2], given[:-2]
    if [v.shape for v in own] != [v.shape for v in given]:
        last = 0 if head else 2
        raise ValueError(
            f"{path} must have the weights of {type(module).__name__}, in its order "
            f"and of its shapes: it has {len(given) + last} tensors, the network "
            f"{len(own) + last}."
        )
    with torch.no_grad():
        for mine, theirs in zip(own, given, strict=True):
            mine.copy_(theirs)
    return module
