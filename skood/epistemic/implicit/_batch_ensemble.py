"""BatchEnsemble: members that share their weights up to factors of rank one."""

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
    r"""Networks with common weights that differ by factors of rank one.

    Member m of a BatchEnsemble [1]_ has in each linear layer the weights

    .. math:: W_m = W \circ s_m r_m^T, \qquad W_m x = s_m \circ W (r_m \circ x),

    with W common to all members, and a bias of its own; convolutions have a factor for
    each channel in and out, batch normalization the statistics and weights of each
    member. The members cost nearly no memory, and their
    computations are one matrix product on M copies of a batch.

    Read more in the :ref:`User Guide <epistemic>`.

    Parameters
    ----------
    module : callable, default=None
        A module class or factory, called as ``module(input_shape, n_classes,
        **module_params)``, see :class:`~skood.nn.TorchClassifier`. None: its default
        networks. Instances of :class:`torch.nn.Linear`, :class:`torch.nn.Conv2d` and
        batch normalization in it are replaced; weights of other layers are shared by
        all members as they are.

    n_members : int, default=4
        Number M of members.

    factor_init : {"sign", "normal"}, default="sign"
        How the factors :math:`r_m` and :math:`s_m` start: as random signs, which makes
        members differ more, or from a normal distribution with mean 1 and standard
        deviation 0.5.

    setting : {"a", "b"}, default="a"
        What the uncertainty is about, see :func:`~skood.epistemic.member_uncertainty`.
        The mixture predicts in both; in "b" it also is the given model, whose
        divergence from the members is the epistemic part.

    module_params : dict, default=None
        Further arguments of `module`.

    max_epochs : int, default=200
        Number of passes over the training samples; with early stopping at most.

    lr : float, default=1e-3
        Learning rate.

    batch_size : int, default=128
        Number of samples per training step, each of which all members see.

    optimizer : {"adam", "adamw", "sgd"}, default="adam"
        The optimizer.

    weight_decay : float, default=0.0
        Strength of the penalty on all parameters, which are the factors too.

    lr_schedule : {"cosine", "step", "one_cycle"} or None, default=None
        How `fit` changes the learning rate.

    early_stopping : bool, default=False
        Hold out validation rows, and return to the weights with the smallest loss of
        the mixture on them.

    validation_fraction : float, default=0.1
        Share of the rows held out.

    n_iter_no_change : int, default=10
        Early stopping waits for this many epochs without a gain of `tol`.

    tol : float, default=1e-4
        Smallest decrease of the validation loss that counts.

    class_weight : {"balanced"}, dict or None, default=None
        Weights of the classes.

    random_state : int, RandomState instance or None, default=None
        Seeds weights, factors, the order of the rows, dropout and held-out rows.

    device : {"auto"}, str or torch.device, default="auto"
        Where to train: "auto" is CUDA if there is one, else the CPU.

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
        What each epoch did, see :class:`~skood.nn.TorchClassifier`. `train_loss` is the
        mean of the members' losses, `valid_loss` that of the mixture.

    See Also
    --------
    PackedEnsembleClassifier : Members that share no weights, but a network.
    DeepEnsemble : Members that are trained one by one.
    skood.nn.TorchClassifier : One network.

    Notes
    -----
    The loss is the mean of the members' cross-entropies. What holds for seeds, failed
    fits, `partial_fit` and pickles is said at :class:`~skood.nn.TorchClassifier`.

    To detectors that read logits the mixture is a network like any other. Its logits
    are log-probabilities, whose exponentials sum to one:
    :class:`~skood.detectors.Energy` is the same for all samples and of no use here.

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
        optimizer="adam",
        weight_decay=0.0,
        lr_schedule=None,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        tol=1e-4,
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
            optimizer=optimizer,
            weight_decay=weight_decay,
            lr_schedule=lr_schedule,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            tol=tol,
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
