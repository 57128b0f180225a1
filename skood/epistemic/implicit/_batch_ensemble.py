"""BatchEnsemble: members with shared weights and rank-one factors."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.epistemic.implicit._batch_layers import batch_ensemble
from skood.epistemic.implicit._implicit_ensemble import ImplicitEnsemble
from skood.utils._param_validation import StrOptions


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
    >>> bool(clf.fit(X, y).score(X, y) > 0.95)
    True
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
