"""Likelihood of the training data that networks with a given prediction attain."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.utils import check_array, check_consistent_length
from torch.func import functional_call

from skood.epistemic._vectorized import Vectorized
from skood.utils._param_validation import Interval, validate_params
from skood.utils._torch import resolve_device, row_chunks, training

# Targets are at least this far from 0 and 1, so that they can be attained.
_CLIP = 1e-4

# Bytes of weights, gradients, moments and activations that are trained at a time.
_BYTES = 256 * 2**20


@validate_params(
    {
        "module": [torch.nn.Module],
        "n_runs": [Interval(Integral, 1, None, closed="left")],
        "n_steps": [Interval(Integral, 1, None, closed="left")],
        "lr": [Interval(Real, 0, None, closed="neither")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "label_smoothing": [Interval(Real, 0, 1, closed="left")],
        "random_state": ["random_state"],
        "device": [str, torch.device],
    },
    prefer_skip_nested_validation=True,
)
def attainable_likelihood(
    module,
    X,
    y,
    x,
    targets,
    *,
    n_runs=20,
    n_steps=500,
    lr=1e-2,
    weight_decay=1e-2,
    label_smoothing=1e-3,
    random_state=None,
    device="auto",
):
    r"""Train networks with a given prediction at a point; return their training loss.

    For each target :math:`\tilde y`, probabilities at the point x, networks are trained
    from different initial weights to minimize

    .. math:: \frac1K \sum_{k=1}^K CE\bigl(y_k, p(\cdot \mid x_k, w)\bigr)
       + CE\bigl(\tilde y, p(\cdot \mid x, w)\bigr) ,

    and the median of the first term over the networks is returned: the negative mean
    log-likelihood that networks with this prediction attain. Over a grid of targets it
    shows which predictions the training data support, as the background of the
    probability simplex in [1]_. Read more in the :ref:`User Guide <simplex>`.

    Parameters
    ----------
    module : torch.nn.Module
        The network, with one logit for each class. It is copied, and each run starts
        from weights drawn by ``reset_parameters`` of its layers. Dropout and batch
        normalization are in eval mode.

    X : array-like of shape (n_samples, n_features)
        Training samples.

    y : array-like of shape (n_samples,)
        Class labels.

    x : array-like of shape (n_features,)
        The point.

    targets : array-like of shape (n_targets, n_classes)
        Probabilities of the sorted classes at the point. They are clipped to [1e-4, 1 -
        1e-4].

    n_runs : int, default=20
        Number of networks for each target; all targets have the same initial weights.

    n_steps : int, default=500
        Number of steps of Adam, each on all training samples.

    lr : float, default=1e-2
        Learning rate.

    weight_decay : float, default=1e-2
        Weight decay.

    label_smoothing : float, default=1e-3
        Fraction of the training labels that is distributed over all classes.

    random_state : int, RandomState instance or None, default=None
        Seed of the initial weights.

    device : str or torch.device, default="auto"
        Device: "auto" is CUDA if available, else the CPU.

    Returns
    -------
    loss : ndarray of shape (n_targets,), dtype float64
        Median training loss, in nats, smaller where predictions are more likely.

    Raises
    ------
    ValueError
        If targets are not probabilities of the classes of `y`, the network does not
        have a logit for each class, or a layer has no ``reset_parameters``.

    See Also
    --------
    SimplexDisplay : Plot of members, with this loss as background.
    QUAM : Search for models with another prediction around a given network.

    References
    ----------
    .. [1] K. Schweighofer, L. Aichberger, M. Ielanskyi, G. Klambauer, S. Hochreiter.
       Quantification of uncertainty with adversarial models. NeurIPS 2023.

    Examples
    --------
    Between two classes, both predictions are attained at about the same loss; in the
    middle of a class, only its own is:

    >>> from sklearn.datasets import make_blobs
    >>> from skood.epistemic import attainable_likelihood
    >>> from torch import nn
    >>> X, y = make_blobs(60, centers=[[-3, 0], [3, 0]], random_state=0)
    >>> net = nn.Sequential(nn.Linear(2, 10), nn.ReLU(), nn.Linear(10, 2))
    >>> options = {"targets": [[1, 0], [0, 1]], "n_runs": 3, "random_state": 0}
    >>> options["n_steps"] = 200
    >>> between = attainable_likelihood(net, X, y, [0.0, 6.0], **options)
    >>> inside = attainable_likelihood(net, X, y, [-3.0, 0.0], **options)
    >>> between.round(2), inside.round(2)
    (array([0.01, 0.01]), array([0.01, 0.31]))
    """
    X, y, x, targets = _checked(X, y, x, targets)
    device = resolve_device(device)
    with training(random_state, device):
        module = copy.deepcopy(module).to(device).eval().requires_grad_(True)
        dtype = next(module.parameters()).dtype
        starts = _initial_weights(module, n_runs)
        n_classes = targets.shape[1]
        labels = (1 - label_smoothing) * np.eye(n_classes)[y]
        labels += label_smoothing / n_classes
        samples = torch.as_tensor(np.r_[X, x], dtype=dtype, device=device)
        labels = torch.as_tensor(labels, dtype=dtype, device=device)
        _check_outputs(module, samples, n_classes)
        n_weights = sum(start[0].numel() for start in starts.values())
        each = 8 * n_runs * (4 * n_weights + 16 * len(samples) * n_classes)
        losses = []
        for chunk in row_chunks(len(targets), each, _BYTES):
            wanted = torch.as_tensor(targets[chunk], dtype=dtype, device=device)
            weights = {}
            for name, start in starts.items():
                repeats = len(wanted), *[1] * (start.ndim - 1)
                weights[name] = start.repeat(repeats).requires_grad_()
            wanted = wanted.repeat_interleave(n_runs, dim=0)
            run = _Training(module, weights, samples, labels, wanted)
            run.train(n_steps, lr, weight_decay)
            losses.append(run.training_loss().view(-1, n_runs).double().cpu().numpy())
    return np.median(np.concatenate(losses), axis=1)


def _checked(X, y, x, targets):
    """Return samples, class indices, the point as a row, and clipped targets."""
    X = check_array(X)
    classes, y = np.unique(np.asarray(y), return_inverse=True)
    check_consistent_length(X, y)
    x = check_array(np.reshape(x, (1, -1)), input_name="x")
    if x.shape[1] != X.shape[1]:
        raise ValueError(
            f"x has {x.shape[1]} features, and the training samples {X.shape[1]}. Pass "
            "one point with the same features."
        )
    targets = check_array(targets, dtype=np.float64, input_name="targets")
    sums = targets.sum(axis=1)
    if (
        targets.shape[1] != len(classes)
        or (targets < 0).any()
        or not np.allclose(sums, 1, atol=1e-6)
    ):
        raise ValueError(
            f"targets must be probabilities of the {len(classes)} classes of y, of "
            f"shape (n_targets, {len(classes)}) and with sums of 1; got the shape "
            f"{targets.shape}, values from {targets.min():.3g} to {targets.max():.3g} "
            f"and sums from {sums.min():.3g} to {sums.max():.3g}."
        )
    return X, y, x, np.clip(targets, _CLIP, 1 - _CLIP)


def _initial_weights(module, n_runs):
    """Return stacked initial weights (n_runs, ...) by parameter name."""
    drawn = []
    for _ in range(n_runs):
        for layer in module.modules():
            if hasattr(layer, "reset_parameters"):
                layer.reset_parameters()
            elif next(layer.parameters(recurse=False), None) is not None:
                raise ValueError(
                    f"The layer {type(layer).__name__} has weights, but no method "
                    "reset_parameters, which draws initial weights. Add one."
                )
        weights = module.named_parameters()
        drawn.append({name: weight.detach().clone() for name, weight in weights})
    return {
        name: torch.stack([weights_of_run[name] for weights_of_run in drawn])
        for name in drawn[0]
    }


def _check_outputs(module, samples, n_classes):
    """Raise unless the network has a logit for each class."""
    with torch.no_grad():
        shape = tuple(module(samples).shape)
    if shape != (len(samples), n_classes):
        raise ValueError(
            f"The network {type(module).__name__} has outputs of the shape {shape} for "
            f"{len(samples)} samples, expected ({len(samples)}, {n_classes}): one "
            "logit for each class."
        )


class _Training:
    """Networks with stacked weights that are trained together, each to its target."""

    def __init__(self, module, weights, samples, labels, targets):
        self.module, self.weights, self.targets = module, weights, targets
        self.samples, self.labels = samples, labels
        self._log_proba = Vectorized(self._log_proba_of)

    def _log_proba_of(self, *weights):
        named = dict(zip(self.weights, weights, strict=True))
        return torch.log_softmax(
            functional_call(self.module, named, (self.samples,)), 1
        )

    def _losses(self):
        """Return training loss and loss at the point, both (n_networks,)."""
        log_proba = self._log_proba(*self.weights.values())
        training = -(self.labels * log_proba[:, :-1]).sum(2).mean(1)
        return training, -(self.targets * log_proba[:, -1]).sum(1)

    def training_loss(self):
        """Return the training loss of each network."""
        with torch.no_grad():
            return self._losses()[0]

    def train(self, n_steps, lr, weight_decay):
        """Train all networks; their losses and the steps of Adam are independent."""
        parameters = list(self.weights.values())
        optimizer = torch.optim.Adam(parameters, lr=lr, weight_decay=weight_decay)
        for _ in range(n_steps):
            optimizer.zero_grad()
            with torch.enable_grad():
                training, at_point = self._losses()
                (training + at_point).sum().backward()
            optimizer.step()
