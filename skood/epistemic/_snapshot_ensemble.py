"""Snapshot ensembles: members from the cycles of one training run."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import math
from numbers import Integral

import numpy as np
from sklearn.base import clone

from skood.epistemic._base_uncertainty import BaseMembers
from skood.epistemic._deep_ensemble import ensemble_blocks
from skood.nn import TorchClassifier
from skood.nn._training_data import (
    check_target,
    check_two_classes,
    check_weights,
    with_class_weight,
)
from skood.nn._training_options import training_options
from skood.utils._atomic_fit import fresh_fit
from skood.utils._metaestimators import check_one_column, copy_input_attributes
from skood.utils._param_validation import Interval, StrOptions, fit_context
from skood.utils._progress import progress


class SnapshotEnsemble(BaseMembers):
    r"""Snapshot ensemble: networks at the ends of the cycles of one training run.

    The learning rate falls along half a cosine, is reset, and falls again: with `lr`
    :math:`\alpha_0` of the estimator and cycles of C epochs, epoch t = 0, 1, … has the
    learning rate

    .. math:: \alpha(t) = \frac{\alpha_0}{2} \left(\cos \frac{\pi \,
       (t \bmod C)}{C} + 1\right)

    [1]_. At the end of a cycle, when the learning rate is small, the network has
    converged and becomes a member; the next cycle moves to another minimum. All members
    together cost as much as one network that is trained for ``n_members * C`` epochs.

    Read more in the :ref:`User Guide <epistemic>`.

    Parameters
    ----------
    estimator : TorchClassifier
        The network, its training parameters, and `max_epochs` for all cycles together:
        each has ``max_epochs / n_members`` epochs, rounded up. It must not have a
        learning rate schedule or early stopping. A pipeline is built around the
        ensemble.

    n_members : int, default=5
        Number of cycles, and of members.

    setting : {"auto", "a", "b"}, default="auto"
        "a", or "auto": the mixture of the members predicts, and it is uncertain which
        of them is right. "b": the last member, which was trained longest, predicts, and
        the uncertainty is how far it can be trusted. See
        :func:`~skood.epistemic.member_uncertainty`.

    verbose : int, default=0
        1 shows a progress bar over the epochs.

    Attributes
    ----------
    estimators_ : list of TorchClassifier
        The members, in the order of the cycles.

    estimator_ : TorchClassifier
        The last member.

    classes_ : ndarray of shape (n_classes,)
        Class labels.

    n_features_in_ : int
        Number of features, or of channels.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, only if all of them are strings.

    See Also
    --------
    DeepEnsemble : Members that are trained separately.
    CyclicalSGHMC : The same cycles, with samples instead of minima.

    Notes
    -----
    The learning rate changes by epochs, not by batches. The `random_state` of the
    estimator is used.

    References
    ----------
    .. [1] G. Huang, Y. Li, G. Pleiss, Z. Liu, J. E. Hopcroft, K. Q. Weinberger.
       Snapshot ensembles: train 1, get M for free. ICLR 2017.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from skood.epistemic import SnapshotEnsemble
    >>> from skood.nn import TorchClassifier
    >>> X, y = make_moons(100, noise=0.1, random_state=0)
    >>> net = TorchClassifier(max_epochs=60, lr=0.05, random_state=0)
    >>> clf = SnapshotEnsemble(net, n_members=3).fit(X, y)
    >>> clf.predict_members(X).shape
    (3, 100, 2)
    >>> [member.n_iter_ for member in clf.estimators_]
    [20, 40, 60]
    """

    _parameter_constraints: dict = {
        "estimator": [TorchClassifier],
        "n_members": [Interval(Integral, 1, None, closed="left")],
        "setting": [StrOptions({"auto", "a", "b"})],
        "verbose": ["verbose"],
    }

    def __init__(self, estimator, n_members=5, *, setting="auto", verbose=0):
        self.estimator = estimator
        self.n_members = n_members
        self.setting = setting
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=False)  # the estimator is the user's
    def fit(self, X, y, sample_weight=None):
        """Train the network through its cycles.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Input samples.

        y : array-like of shape (n_samples,)
            Class labels.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        Returns
        -------
        self : SnapshotEnsemble
            The fitted classifier.

        Raises
        ------
        ValueError
            If the estimator has a learning rate schedule or early stopping, or the data
            are invalid. The ensemble then is left unchanged.
        """
        with fresh_fit(self):
            self._check_estimator()
            y = check_target(y, self.estimator)
            classes, codes = np.unique(y, return_inverse=True)
            weight = with_class_weight(
                check_weights(sample_weight, len(y)),
                self.estimator.class_weight,
                codes,
                classes,
            )
            check_two_classes(codes[weight > 0], classes, self)
            network = clone(self.estimator).set_params(class_weight=None, verbose=0)
            self.estimators_ = self._cycles(network, X, y, classes, weight)
            self.estimator_ = self.estimators_[-1]
            check_one_column(self.estimator_)
            self.classes_ = self.estimator_.classes_
            copy_input_attributes(self, self.estimator_)
        return self

    def _check_estimator(self):
        """Raise if the estimator is invalid, or has a schedule or early stopping."""
        self.estimator._validate_params()
        options = training_options(self.estimator)
        if options.lr_schedule is not None:
            raise ValueError(
                "SnapshotEnsemble changes the learning rate itself, in cosine cycles "
                f"from lr={self.estimator.lr}: its estimator must have "
                f"lr_schedule=None, got {options.lr_schedule!r}."
            )
        if options.early_stopping:
            raise ValueError(
                "SnapshotEnsemble trains to the end of each cycle, and cannot stop "
                "early: set early_stopping=False of its estimator."
            )

    def _cycles(self, network, X, y, classes, weight):
        """Train epoch by epoch; return copies from the ends of the cycles."""
        n_epochs, members = -(-self.estimator.max_epochs // self.n_members), []
        name, total = type(self).__name__, n_epochs * self.n_members
        with progress(total, desc=name, verbose=self.verbose) as bar:
            for _ in range(self.n_members):
                for t in range(n_epochs):
                    # Eq. (2) of [1]
                    rate = math.cos(math.pi * t / n_epochs) + 1
                    network.lr = self.estimator.lr / 2 * rate
                    network.partial_fit(X, y, classes=classes, sample_weight=weight)
                    bar.set_postfix(
                        train_loss=f"{network.history_[-1]['train_loss']:.3g}"
                    )
                    bar.update(1)
                members.append(copy.deepcopy(network))
        for member in members:
            member.set_params(lr=self.estimator.lr)
        return members

    def _blocks(self, X):
        reference = self._reference if self._setting() == "b" else None
        return ensemble_blocks(self.estimators_, self.likelihood_, X, reference)

    def _has_given_model(self):
        return False
