"""Packed ensembles: small networks that are computed as one grouped network."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real

from skood.epistemic.implicit._implicit_ensemble import ImplicitEnsemble
from skood.epistemic.implicit._packed_layers import pack
from skood.utils._param_validation import Interval


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
    >>> bool(clf.fit(X, y).score(X, y) > 0.95)
    True
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
