"""Packed ensembles: small networks that are computed as one grouped network."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real

from skood.epistemic.implicit._implicit_ensemble import (
    TRAINING_CONSTRAINTS,
    NetworkFactory,
    SharedMembersClassifier,
)
from skood.epistemic.implicit._packed_layers import pack
from skood.utils._param_validation import Interval, StrOptions

__all__ = ["PackedEnsembleClassifier"]


class PackedEnsembleClassifier(SharedMembersClassifier):
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
    module : callable, default=None
        A module class or factory, called as ``module(input_shape, n_classes,
        **module_params)``, see :class:`~skood.nn.TorchClassifier`. None: its default
        networks. Instances of :class:`torch.nn.Linear`, :class:`torch.nn.Conv2d` and
        batch normalization are replaced by new grouped layers of the corresponding
        sizes; other layers must have no weights and keep channels separate.

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
        Seed of weights, sample order, dropout and held-out samples.

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
    BatchEnsembleClassifier : Members of full size with shared weights.
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
    >>> from skood.epistemic import PackedEnsembleClassifier
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> clf = PackedEnsembleClassifier(max_epochs=50, lr=0.02, random_state=0)
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
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "gamma": [Interval(Integral, 1, None, closed="left")],
        "setting": [StrOptions({"a", "b"})],
    }

    def __init__(
        self,
        module=None,
        *,
        n_members=4,
        alpha=2.0,
        gamma=1,
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
        self.alpha = alpha
        self.gamma = gamma
        self.setting = setting

    def _module_factory(self):
        options = {
            name: getattr(self, name) for name in ("n_members", "alpha", "gamma")
        }
        return NetworkFactory(self.module, pack, options)
