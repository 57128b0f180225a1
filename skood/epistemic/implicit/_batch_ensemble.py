"""BatchEnsemble: members with shared weights and rank-one factors."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral

from skood.epistemic.implicit._batch_layers import batch_ensemble
from skood.epistemic.implicit._implicit_ensemble import (
    TRAINING_CONSTRAINTS,
    NetworkFactory,
    SharedMembersClassifier,
)
from skood.utils._param_validation import Interval, StrOptions

__all__ = ["BatchEnsembleClassifier"]


class BatchEnsembleClassifier(SharedMembersClassifier):
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
    module : callable, default=None
        A module class or factory, called as ``module(input_shape, n_classes,
        **module_params)``, see :class:`~skood.nn.TorchClassifier`. None: its default
        networks. Instances of :class:`torch.nn.Linear`, :class:`torch.nn.Conv2d` and
        batch normalization are replaced; weights of other layers are shared by all
        members.

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

    module_params : dict, default=None
        Further arguments of `module`.

    max_epochs : int, default=200
        Number of passes over the training samples; with early stopping at most.

    lr : float, default=1e-3
        Learning rate.

    batch_size : int, default=128
        Number of samples per training step; all members see each sample.

    training : TrainingOptions, default=None
        Further options of training, see :class:`~skood.nn.TrainingOptions`. None: as in
        `TorchClassifier`.

    class_weight : {"balanced"}, dict or None, default=None
        Weights of the classes.

    random_state : int, RandomState instance or None, default=None
        Seed of weights, factors, sample order, dropout and held-out samples.

    device : {"auto"}, str or torch.device, default="auto"
        Device to train on: "auto" is CUDA if available, else the CPU.

    verbose : int, default=0
        1 shows a progress bar over the epochs.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.

    input_shape_ : tuple of int
        Shape of one sample.

    n_features_in_ : int
        Length of the second axis of `X`: features, or channels.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, only if all of them are strings.

    net_ : skorch.NeuralNetClassifier
        The trained net.

    module_ : torch.nn.Module
        The trained network, in eval mode: it returns the logarithms of the mixture's
        probabilities. ``module_.members(x)`` are the logits of the members, of shape
        (n_rows, n_members, n_classes).

    n_iter_ : int
        Number of epochs trained.

    history_ : list of dict
        Results of each epoch, see :class:`~skood.nn.TorchClassifier`. `train_loss` is
        the mean of the members' losses, `valid_loss` the loss of the mixture.

    See Also
    --------
    PackedEnsembleClassifier : Separate members in a single network.
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
    >>> from skood.epistemic import BatchEnsembleClassifier
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> clf = BatchEnsembleClassifier(max_epochs=50, lr=0.02, random_state=0)
    >>> bool(clf.fit(X, y).score(X, y) > 0.95)
    True
    >>> clf.predict_members(X[:2]).shape
    (4, 2, 2)
    >>> clf.predict_uncertainty(X[:2]).epistemic.shape
    (2,)
    """

    _parameter_constraints: dict = {
        **TRAINING_CONSTRAINTS,
        "n_members": [Interval(Integral, 1, None, closed="left")],
        "factor_init": [StrOptions({"sign", "normal"})],
        "setting": [StrOptions({"a", "b"})],
    }

    def __init__(
        self,
        module=None,
        *,
        n_members=4,
        factor_init="sign",
        setting="a",
        module_params=None,
        max_epochs=200,
        lr=1e-3,
        batch_size=128,
        training=None,
        class_weight=None,
        random_state=None,
        device="auto",
        verbose=0,
    ):
        super().__init__(
            module,
            module_params=module_params,
            max_epochs=max_epochs,
            lr=lr,
            batch_size=batch_size,
            training=training,
            class_weight=class_weight,
            random_state=random_state,
            device=device,
            verbose=verbose,
        )
        self.n_members = n_members
        self.factor_init = factor_init
        self.setting = setting

    def _module_factory(self):
        options = {"n_members": self.n_members, "factor_init": self.factor_init}
        return NetworkFactory(self.module, batch_ensemble, options)
