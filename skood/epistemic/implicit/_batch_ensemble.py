"""BatchEnsemble: members with shared weights and rank-one factors."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from contextlib import contextmanager

import torch
from torch import nn
from torch.nn import functional

from skood.epistemic.implicit._implicit_ensemble import (
    ImplicitEnsemble,
    MemberNetwork,
    is_plain,
    moved,
    replaced,
    resized_norm,
)
from skood.nn._functional_network import plain_attention
from skood.utils._param_validation import StrOptions
from skood.utils._stored import stored
from skood.utils._torch import evaluating, parameter_device, parameter_dtype, seeded


class BatchEnsemble(ImplicitEnsemble):
    r"""BatchEnsemble: networks with shared weights and rank-one factors.

    Member m of a BatchEnsemble [1]_ has in each linear layer the weights

    .. math:: W_m = W \circ s_m r_m^T, \qquad W_m x = s_m \circ W (r_m \circ x),

    with W shared by all members, and a separate bias; convolutions have a factor for
    each input and output channel, batch normalization has separate statistics and
    weights for each member. The members need almost no additional memory, and are
    computed by one matrix product on M copies of a batch.

    Read more in the :ref:`User Guide <epistemic>`.

    Parameters
    ----------
    estimator : TorchClassifier
        The network and its training, with a `criterion` of None; a clone of it is
        trained. In its network, instances of :class:`torch.nn.Linear`,
        :class:`torch.nn.Conv2d` and batch normalization are replaced; weights of other
        layers are shared by all members. All members see each sample of a batch, and
        weight decay includes the factors.

    n_members : int, default=4
        Number M of members.

    factor_init : {"sign", "normal"}, default="sign"
        Initial values of the factors :math:`r_m` and :math:`s_m`: random signs, which
        make members differ more, or a normal distribution with mean 1 and standard
        deviation 0.5.

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
    PackedEnsemble : Separate members in a single network.
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
    .. [1] Y. Wen, D. Tran, J. Ba. BatchEnsemble: an alternative approach to efficient
       ensemble and lifelong learning. ICLR 2020.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from skood.epistemic import BatchEnsemble
    >>> from skood.nn import TorchClassifier
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> net = TorchClassifier(max_epochs=50, lr=0.02, random_state=0)
    >>> clf = BatchEnsemble(net)
    >>> clf.fit(X[:100], y[:100]).score(X[100:], y[100:])
    0.99
    >>> clf.predict_members(X[:2]).shape
    (4, 2, 2)
    >>> clf.predict_uncertainty(X[:2]).epistemic.shape
    (2,)
    """

    _parameter_constraints: dict = {
        **ImplicitEnsemble._parameter_constraints,
        "factor_init": [StrOptions({"sign", "normal"})],
    }

    def __init__(self, estimator, *, n_members=4, factor_init="sign", setting="a"):
        self.estimator = estimator
        self.n_members = n_members
        self.factor_init = factor_init
        self.setting = setting

    def _conversion(self):
        options = {"n_members": self.n_members, "factor_init": self.factor_init}
        return batch_ensemble, options


def _factors(n_members, width, like, init):
    """Return factors of the members: random signs, or normal numbers around one."""
    drawn = torch.empty(n_members, width, dtype=like.dtype, device=like.device)
    if init == "normal":
        drawn.normal_(1.0, 0.5)
    else:
        drawn.bernoulli_(0.5).mul_(2).sub_(1)
    return nn.Parameter(drawn)


def _by_member(x, n_members):
    """Split the first axis, ordered by member, into members and samples."""
    return x.unflatten(0, (n_members, -1))


class BatchEnsembleLinear(nn.Module):
    r"""Linear layers of many members: a shared weight W, and two factors for each.

    Member m has the outputs s_m (W (r_m x)) + b_m, elementwise in the factors r
    (n_members, in_features) and s (n_members, out_features). Inputs are ordered by
    member. `factor_init` is "sign", random signs, or "normal", N(1, 0.5^2).
    """

    def __init__(
        self,
        in_features,
        out_features,
        n_members,
        *,
        bias=True,
        factor_init="sign",
        device=None,
        dtype=None,
    ):
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.n_members = n_members
        shared = nn.Linear(
            in_features, out_features, bias=bias, device=device, dtype=dtype
        )
        self.weight = shared.weight
        self.r = _factors(n_members, in_features, self.weight, factor_init)
        self.s = _factors(n_members, out_features, self.weight, factor_init)
        self.bias = _repeated(shared.bias, n_members)

    def forward(self, x):
        """Return outputs for samples ordered by member, shape (n_members * n, ...)."""
        shape = (self.n_members,) + (1,) * (x.ndim - 1) + (-1,)
        x = _by_member(x, self.n_members) * self.r.view(shape)
        x = functional.linear(x, self.weight) * self.s.view(shape)
        if self.bias is not None:
            x = x + self.bias.view(shape)
        return x.flatten(0, 1)

    def extra_repr(self):
        """Return the widths."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"n_members={self.n_members}, bias={self.bias is not None}"
        )


class BatchEnsembleConv2d(nn.Conv2d):
    """Convolutions as `BatchEnsembleLinear`, with a factor for each channel."""

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        n_members,
        *,
        bias=True,
        factor_init="sign",
        **options,
    ):
        super().__init__(in_channels, out_channels, kernel_size, bias=bias, **options)
        self.n_members = n_members
        self.r = _factors(n_members, in_channels, self.weight, factor_init)
        self.s = _factors(n_members, out_channels, self.weight, factor_init)
        self.bias = _repeated(self.bias, n_members)

    def forward(self, x):
        """Return outputs for samples ordered by member, shape (n_members * n, ...)."""
        x = self._times(x, self.r)
        x = self._conv_forward(x, self.weight, None)
        x = self._times(x, self.s)
        if self.bias is not None:
            x = _by_member(x, self.n_members) + self.bias[:, None, :, None, None]
            x = x.flatten(0, 1)
        return x

    def _times(self, x, factors):
        x = _by_member(x, self.n_members) * factors[:, None, :, None, None]
        return x.flatten(0, 1)

    def extra_repr(self):
        """Return the sizes."""
        return f"{super().extra_repr()}, n_members={self.n_members}"


class MemberBatchNorm(nn.Module):
    """Batch normalization with separate statistics and weights for each member."""

    def __init__(self, norm, n_members):
        super().__init__()
        self.norm = norm
        self.n_members = n_members

    def forward(self, x):
        """Normalize samples ordered by member, shape (n_members * n, channels, ...)."""
        x = _by_member(x, self.n_members).transpose(0, 1)
        x = self.norm(x.flatten(1, 2))
        return x.unflatten(1, (self.n_members, -1)).transpose(0, 1).flatten(0, 1)


def _repeated(bias, n_members):
    """Return biases of the members with equal initial values."""
    if bias is None:
        return None
    return nn.Parameter(bias.detach().repeat(n_members, 1), bias.requires_grad)


class BatchEnsembleNetwork(MemberNetwork):
    """Network whose layers process the samples of one member after the other."""

    def members(self, x):
        """Return logits of all members, of shape (n_rows, n_members, n_classes)."""
        x = x.repeat(self.n_members, *(1,) * (x.ndim - 1))
        with plain_attention():  # the fused form uses the weights without the factors
            x = self.body(x)
        return _by_member(x, self.n_members).transpose(0, 1)


@stored
def batch_ensemble(module, input_shape=None, *, n_members=4, factor_init="sign"):
    """Convert a network, in place, to a `BatchEnsembleNetwork`, or raise.

    Its weights become the shared weights. Linear layers, 2-D convolutions and batch
    normalization get factors, biases and statistics for each member. `input_shape` is
    the shape of one sample; None: no check that the layers keep the members separate.
    """
    layers = []

    def convert(layer, name):
        width = n_members * getattr(layer, "num_features", 0)
        if (norm := resized_norm(layer, width)) is not None:
            state = layer.state_dict().items()  # the number of batches is a scalar
            norm.load_state_dict(
                {k: v.repeat(n_members) if v.ndim else v for k, v in state}
            )
            return MemberBatchNorm(norm, n_members)
        new: BatchEnsembleLinear | BatchEnsembleConv2d
        if is_plain(layer, nn.Linear):
            new = BatchEnsembleLinear(
                layer.in_features,
                layer.out_features,
                n_members,
                bias=False,
                factor_init=factor_init,
                device=layer.weight.device,
                dtype=layer.weight.dtype,
            )
        elif is_plain(layer, nn.Conv2d):
            new = BatchEnsembleConv2d(
                layer.in_channels,
                layer.out_channels,
                layer.kernel_size,
                n_members,
                bias=False,
                factor_init=factor_init,
                stride=layer.stride,
                padding=layer.padding,
                dilation=layer.dilation,
                groups=layer.groups,
                padding_mode=layer.padding_mode,
                device=layer.weight.device,
                dtype=layer.weight.dtype,
            )
        else:
            return None
        new.weight = layer.weight
        new.bias = _repeated(layer.bias, n_members)
        layers.append(new)
        return new

    body = replaced(module, convert)
    if not layers:
        raise ValueError(
            f"The module {type(module).__name__} has no torch.nn.Linear and no "
            f"torch.nn.Conv2d: a BatchEnsemble of it would have {n_members} equal "
            f"members. Build it of these layers."
        )
    network = BatchEnsembleNetwork(body, n_members).train(module.training)
    if input_shape is not None:
        with _unchanged(network), evaluating(network):
            _check_apart(network, layers, input_shape)
    return network


@contextmanager
def _unchanged(network):
    """Restore the parameters and buffers of a network after a `with` block."""
    tensors = [*network.parameters(), *network.buffers()]
    before = [tensor.detach().clone() for tensor in tensors]
    try:
        with torch.no_grad():
            yield
    finally:
        with torch.no_grad():
            for tensor, values in zip(tensors, before, strict=True):
                tensor.copy_(values)


def _redraw(layer, m=slice(None)):
    """Set the factors and the biases of a member, or of all members, at random."""
    layer.r[m] = torch.rand_like(layer.r[m]) + 0.5
    layer.s[m] = torch.rand_like(layer.s[m]) + 0.5
    if layer.bias is not None:
        layer.bias[m] = torch.rand_like(layer.bias[m])


def _check_apart(network, layers, input_shape):
    """Raise if the factors of a member do not change exactly its own logits."""
    device = parameter_device(network)
    what = (
        f"The module {type(network.body).__name__} cannot be made a BatchEnsemble of "
        f"{network.n_members} members"
    )
    advice = (
        "In all of its layers samples must be the first axis, as with batch_first=True "
        "of torch's, and each must be treated on its own. Use DeepEnsemble otherwise."
    )

    def logits():
        with seeded(0, device):  # the same random numbers, if it draws any
            samples = torch.rand((2, *input_shape), device=device)
            return network.members(samples.to(parameter_dtype(network)))

    with seeded(0, device):
        for layer in layers:
            layer.weight.normal_(0, layer.weight[0].numel() ** -0.5)
            _redraw(layer)
        try:
            before = logits()
        except (AttributeError, RuntimeError) as error:
            raise ValueError(f"{what}: it failed with {error}. {advice}") from error
        for m in range(network.n_members):
            for layer in layers:
                _redraw(layer, m)
            before, changed = (after := logits()), moved(before, after)
            if changed != [m]:
                raise ValueError(
                    f"{what}: the factors of member {m} change the logits of the "
                    f"members {changed}. {advice}"
                )
