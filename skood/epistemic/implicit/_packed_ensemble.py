"""Packed ensembles: small networks that are computed as one grouped network."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from numbers import Integral, Real

import torch
from torch import nn

from skood.epistemic._vectorized import stacked_linear
from skood.epistemic.implicit._implicit_ensemble import (
    ImplicitEnsemble,
    MemberNetwork,
    is_plain,
    moved,
    replaced,
    resized_norm,
)
from skood.utils._param_validation import Interval
from skood.utils._stored import stored
from skood.utils._torch import evaluating, parameter_device, parameter_dtype, seeded


class PackedEnsemble(ImplicitEnsemble):
    r"""Packed ensemble: small networks that are computed as one grouped network.

    A packed ensemble [1]_ of M members makes a hidden layer of C channels
    :math:`\alpha` times as wide and divides it into :math:`M \gamma` groups, which are
    not connected: each member has :math:`\alpha C / M` channels. A convolution from C
    to C' channels with kernels of k pixels then has

    .. math:: M \gamma \cdot \frac{\alpha C}{M \gamma} \cdot
       \frac{\alpha C'}{M \gamma} \cdot k
       = \frac{\alpha^2}{M \gamma} C C' k

    weights, as many as in one network if :math:`\alpha^2 = M \gamma`. Members share no
    weights. Each gets the whole input and has its own logits.

    Read more in the :ref:`User Guide <epistemic>`.

    Parameters
    ----------
    estimator : TorchClassifier
        The network and its training, with a `criterion` of None; a clone of it is
        trained. In its network, instances of :class:`torch.nn.Linear`,
        :class:`torch.nn.Conv2d` and batch normalization are replaced by new grouped
        layers of the corresponding sizes; other layers must have no weights and keep
        channels separate. All members see each sample of a batch.

    n_members : int, default=4
        Number M of members.

    alpha : float, default=2.0
        Width :math:`\alpha` of all members together, relative to one network. Widths
        are rounded up to multiples of :math:`M \gamma`.

    gamma : int, default=1
        Number :math:`\gamma` of groups inside a member. The first layers and the layers
        that give the logits have one.

    setting : {"a", "b"}, default="a"
        Kind of uncertainty, see :func:`~skood.epistemic.member_uncertainty`. The
        mixture predicts in both settings; in "b" it also is the given model, whose
        divergence from the members is the epistemic part.

    Attributes
    ----------
    estimator_ : TorchClassifier
        The trained network of all members: ``estimator_.module_`` returns the
        logarithms of the mixture's probabilities, ``estimator_.module_.members(x)`` the
        logits of the members, of shape (n_rows, n_members, n_classes). In its
        `history_`, `train_loss` is the mean of the members' losses, and `valid_loss`
        the loss of the mixture.

    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.

    n_features_in_ : int
        Length of the second axis of `X`: features, or channels.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, only if all of them are strings.

    See Also
    --------
    BatchEnsemble : Members of full size with shared weights.
    DeepEnsemble : Members that are trained separately.
    skood.nn.TorchClassifier : A single network.

    Notes
    -----
    The loss is the mean of the members' cross-entropies. See
    :class:`~skood.nn.TorchClassifier` for seeds, failed fits, `partial_fit` and
    pickles.

    Detectors that use logits support the mixture like any other network. Its logits are
    log-probabilities, whose exponentials sum to one: :class:`~skood.detectors.Energy`
    is the same for all samples and cannot be used.

    References
    ----------
    .. [1] O. Laurent, A. Lafage, E. Tartaglione, G. Daniel, J.-M. Martinez, A. Bursuc,
       G. Franchi. Packed-Ensembles for efficient uncertainty estimation. ICLR 2023.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from skood.epistemic import PackedEnsemble
    >>> from skood.nn import TorchClassifier
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> net = TorchClassifier(max_epochs=50, lr=0.02, random_state=0)
    >>> clf = PackedEnsemble(net)
    >>> clf.fit(X[:100], y[:100]).score(X[100:], y[100:])
    0.98
    >>> clf.predict_members(X[:2]).shape
    (4, 2, 2)
    >>> clf.predict_uncertainty(X[:2]).epistemic.shape
    (2,)
    """

    _parameter_constraints: dict = {
        **ImplicitEnsemble._parameter_constraints,
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "gamma": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(self, estimator, *, n_members=4, alpha=2.0, gamma=1, setting="a"):
        self.estimator = estimator
        self.n_members = n_members
        self.alpha = alpha
        self.gamma = gamma
        self.setting = setting

    def _conversion(self):
        names = "n_members", "alpha", "gamma"
        return pack, {name: getattr(self, name) for name in names}


def packed_width(width, n_members, alpha, gamma):
    """Return ``alpha * width`` as a multiple of ``n_members * gamma`` or more."""
    groups = n_members * gamma
    # rounded to the decimal product: 1.1 * 10 in binary is above 11
    return groups * math.ceil(round(alpha * width, 9) / groups)


class PackedLinear(nn.Module):
    """Grouped linear layer: group g maps slice g of the input to slice g.

    Weights have the shape (groups, out_features / groups, in_features / groups); each
    group is initialized like a separate layer. (Convolutions have groups in torch.)
    """

    def __init__(
        self, in_features, out_features, groups, *, bias=True, device=None, dtype=None
    ):
        super().__init__()
        if in_features % groups or out_features % groups:
            raise ValueError(
                f"in_features={in_features} and out_features={out_features} must be "
                f"multiples of groups={groups}."
            )
        self.in_features = in_features
        self.out_features = out_features
        self.groups = groups
        layers = [
            nn.Linear(
                in_features // groups,
                out_features // groups,
                bias=bias,
                device=device,
                dtype=dtype,
            )
            for _ in range(groups)
        ]
        self.weight = nn.Parameter(torch.stack([x.weight.detach() for x in layers]))
        self.bias = None
        if bias:
            self.bias = nn.Parameter(torch.stack([x.bias.detach() for x in layers]))

    def forward(self, x):
        """Return the outputs, of shape (n_rows, out_features)."""
        x = x.unflatten(1, (self.groups, -1)).transpose(0, 1)
        bias = None if self.bias is None else self.bias[:, None]
        x = stacked_linear(x, self.weight.mT, bias)
        return x.transpose(0, 1).flatten(1)

    def extra_repr(self):
        """Return the widths."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"groups={self.groups}, bias={self.bias is not None}"
        )


class PackedNetwork(MemberNetwork):
    """Network whose channels are ordered by member."""

    def members(self, x):
        """Return logits of all members, of shape (n_rows, n_members, n_classes)."""
        x = x.repeat(1, self.n_members, *(1,) * (x.ndim - 2))
        return self.body(x).unflatten(1, (self.n_members, -1))

    def build(self, samples):
        """Run the network once, which builds its layers, and insert them."""
        kind = type(self.body).__name__
        try:
            with torch.no_grad():
                self.members(samples.clone())
        except (AttributeError, RuntimeError) as error:
            raise ValueError(
                f"The module {kind} cannot be packed: with the channels of "
                f"{self.n_members} members side by side it failed: {error}. It may "
                "call layers and functions that keep channels apart, and flatten; it "
                "may not read weights or rely on numbers of channels. Use "
                "BatchEnsemble or DeepEnsemble."
            ) from error

        def built(layer, name):
            if not isinstance(layer, _Pending):
                return None
            if layer.built is None:
                raise ValueError(
                    f"The layer {name!r} of the module {kind} did not run on samples "
                    "in eval mode, so it cannot be packed. Leave it out."
                )
            return layer.built

        self.body = replaced(self.body, built)

    def check_separate(self, samples):
        """Raise if a member's logits depend on channels of another member."""
        for m, members in self._dependencies(samples):
            others = [k for k in members if k != m]
            if others:
                raise ValueError(
                    f"The module {type(self.body).__name__} cannot be packed: the "
                    f"logits of member {m} would depend on the channels of the members "
                    f"{others}. Something in it mixes channels, such as a "
                    "concatenation, a permutation, or a normalization or softmax over "
                    "channels. Use BatchEnsemble or DeepEnsemble."
                )

    def _dependencies(self, samples):
        """Yield each member with the members on whose channels its logits depend."""
        n_members = self.n_members
        x = samples.repeat(1, n_members, *(1,) * (samples.ndim - 2))

        def logits(x):
            with seeded(0, x.device):  # the same random numbers, if it draws any
                return self.body(x.clone()).unflatten(1, (n_members, -1))

        with torch.enable_grad():
            x.requires_grad_(True)
            before = logits(x)
            for m in range(n_members):
                (gradient,) = torch.autograd.grad(
                    before[:, m].sum(), x, retain_graph=True, allow_unused=True
                )
                if gradient is not None:
                    by_member = gradient.unflatten(1, (n_members, -1)).flatten(2)
                    yield m, torch.nonzero(by_member.any(2).any(0)).flatten().tolist()
        # operations without a gradient, such as a threshold
        with torch.no_grad():
            for m in range(n_members):
                for factor in (-8, 8):
                    changed = x.detach().clone()
                    changed.unflatten(1, (n_members, -1))[:, m] *= factor
                    for k in moved(before, logits(changed)):
                        yield k, [m]


class _Pending(nn.Module):
    """Placeholder of a layer that builds the packed layer from its first input."""

    def __init__(self, build):
        super().__init__()
        self.build = build
        self.built: nn.Module | None = None

    def forward(self, x):
        if self.built is None:
            self.built = self.build(x).eval()
        return self.built(x)


class _Packer:
    """Builder of packed layers from their inputs."""

    def __init__(self, n_members, alpha, gamma, first, last):
        self.n_members = n_members
        self.alpha = alpha
        self.gamma = gamma
        self.first = first
        self.last = last

    def pending(self, layer, name):
        """Return the replacement of a layer, None for parts without weights."""
        if is_plain(layer, nn.Linear):
            return _Pending(lambda x: self._linear(layer, name, x))
        if is_plain(layer, nn.Conv2d):
            return _Pending(lambda x: self._conv(layer, name, x))
        if resized_norm(layer, 1) is not None:
            return _Pending(lambda x: resized_norm(layer, x.shape[1]))
        if next(layer.parameters(recurse=False), None) is not None:
            raise TypeError(
                f"The layer {name!r} of the module is a {type(layer).__name__}, whose "
                "weights cannot be packed: only torch.nn.Linear, Conv2d and batch "
                "normalization can, without parametrizations. Use "
                "BatchEnsemble or DeepEnsemble."
            )
        return None

    def _sizes(self, layer, name, width):
        """Return the output width and the number of groups of a layer."""
        if name in self.last:
            width = self.n_members * width
        else:
            width = packed_width(width, self.n_members, self.alpha, self.gamma)
        inner = name not in self.first and name not in self.last
        return width, self.n_members * (self.gamma if inner else 1)

    def _check_channels(self, name, n_channels, groups):
        """Raise if the input channels of a layer cannot be divided into groups."""
        if n_channels % groups:
            raise ValueError(
                f"The layer {name!r} of the module uses {n_channels} channels of the "
                f"{self.n_members} members together, which cannot be divided into "
                f"{groups} groups: what comes before it moves channels to another axis "
                "or puts some together. Use gamma=1, BatchEnsemble or "
                "DeepEnsemble."
            )

    def _linear(self, layer, name, x):
        if x.ndim != 2:
            raise ValueError(
                f"The layer {name!r} of the module gets a tensor of shape "
                f"{tuple(x.shape)}, but linear layers can be packed for inputs of "
                "shape (n_rows, n_features) only. Use BatchEnsemble."
            )
        width, groups = self._sizes(layer, name, layer.out_features)
        self._check_channels(name, x.shape[1], groups)
        return PackedLinear(
            x.shape[1], width, groups, bias=layer.bias is not None, **_kind(layer)
        )

    def _conv(self, layer, name, x):
        width, groups = self._sizes(layer, name, layer.out_channels)
        if layer.groups == layer.in_channels > 1:  # depthwise convolution
            groups = x.shape[1]
            width = groups * (layer.out_channels // layer.in_channels)
        elif layer.groups > 1:
            raise ValueError(
                f"The convolution {name!r} of the module has groups={layer.groups}: "
                "use groups=1, or as many as it has channels. Groups inside a member "
                "are the parameter gamma."
            )
        self._check_channels(name, x.shape[1], groups)
        return nn.Conv2d(
            x.shape[1],
            width,
            layer.kernel_size,
            stride=layer.stride,
            padding=layer.padding,
            dilation=layer.dilation,
            groups=groups,
            bias=layer.bias is not None,
            padding_mode=layer.padding_mode,
            **_kind(layer),
        )


def _kind(layer):
    return {"device": layer.weight.device, "dtype": layer.weight.dtype}


def _ends(module, samples):
    """Return names of the layers that no other precedes, and that none follows."""
    layers = {
        name: layer
        for name, layer in module.named_modules()
        if is_plain(layer, nn.Linear) or is_plain(layer, nn.Conv2d)
    }
    if not layers:
        raise ValueError(
            f"The module {type(module).__name__} has no torch.nn.Linear and no "
            "torch.nn.Conv2d: there is nothing to pack. Build it of these layers."
        )
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    weights = {
        name: layer.weight.requires_grad_(True) for name, layer in layers.items()
    }
    first = set()

    def cut(name):
        def hook(layer, args):
            # only outputs of layers require a gradient
            if not args[0].requires_grad:
                first.add(name)
            return (args[0].detach().clone(), *args[1:])

        return hook

    handles = [
        layer.register_forward_pre_hook(cut(name)) for name, layer in layers.items()
    ]
    with torch.enable_grad():
        output = module(samples.clone())
    for handle in handles:
        handle.remove()
    # inputs that are connected to the output have a gradient
    gradients = torch.autograd.grad(
        output.sum(), list(weights.values()), allow_unused=True
    )
    named = zip(weights, gradients, strict=True)
    return first, {name for name, gradient in named if gradient is not None}


@stored
def pack(module, input_shape, *, n_members=4, alpha=2.0, gamma=1):
    """Convert a network, in place, to a `PackedNetwork`, or raise.

    Linear layers, 2-D convolutions and batch normalization are built anew, with grouped
    channels; other layers must have no weights, and must keep channels separate.
    """
    training = module.training
    # not zeros, for which many gradients vanish; torch's generator is not used
    generator = torch.Generator().manual_seed(0)
    samples = torch.randn((4, *input_shape), generator=generator)
    samples = samples.to(parameter_device(module), parameter_dtype(module))
    with evaluating(module):
        first, last = _ends(module, samples)
    packer = _Packer(n_members, alpha, gamma, first, last)
    network = PackedNetwork(replaced(module, packer.pending), n_members).eval()
    network.build(samples)
    network.check_separate(samples)
    return network.train(training)
