"""Mixture of Laplace approximations around the members of a deep ensemble."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
from numbers import Integral

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skood.epistemic._base_uncertainty import BaseMembers, Block
from skood.epistemic._deep_ensemble import DeepEnsemble, row_blocks
from skood.epistemic._snapshot_ensemble import SnapshotEnsemble
from skood.epistemic.laplace._laplace import (
    COMMON_CONSTRAINTS,
    Laplace,
    check_installed,
)
from skood.utils._atomic_fit import fresh_fit
from skood.utils._input import takes_input
from skood.utils._metaestimators import fit_wrapped, unwrapped
from skood.utils._param_validation import HasMethods, Interval, fit_context

__all__ = ["MixtureLaplace"]


class MixtureLaplace(BaseMembers):
    r"""Mixture of Laplace approximations around the members of a deep ensemble.

    With :math:`N(\hat w_m, \Sigma_m)` the approximation of member m, see `Laplace`, the
    weights of the network are a mixture of normal distributions of equal weights [1]_:

    .. math:: w \sim \frac1M \sum_{m=1}^M N(\hat w_m, \Sigma_m) .

    The ensemble represents different explanations of the data, the approximations the
    remaining uncertainty around each of them.

    Read more in the :ref:`User Guide <epistemic>`.

    Parameters
    ----------
    estimator : object or list of objects
        A network supported by `Laplace`: each member is a clone of it with its own
        seed. Or an ensemble with ``estimators_`` of skood, such as
        :class:`~skood.epistemic.DeepEnsemble`, which is fitted unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`. Or a list of the members, as in
        `DeepEnsemble`.

    n_members : int, default=5
        Number of members. Ignored if `estimator` is an ensemble or a list.

    subset : {"last_layer", "all"} or list of str, default="last_layer"
        Uncertain weights, see `Laplace`.

    hessian : {"kron", "diag", "full"}, default="kron"
        Form of the curvature, see `Laplace`.

    prior_precision : "marglik" or float, default="marglik"
        Precision of the prior; "marglik" determines one for each member.

    predictive : str, default="mean_field"
        Computation of each member's probabilities in setting "a"; their mean is
        returned.

    n_samples : int, default=20
        Number of draws around each member: there are ``n_members * n_samples`` members
        in total.

    batch_size : int, default=256
        Maximum number of samples per forward pass.

    setting : {"auto", "a", "b"}, default="auto"
        "a": the mixture predicts. "b": the ensemble predicts, and the uncertainty is
        how far it can be trusted. "auto" is "b" for a frozen `estimator`, else "a".

    n_jobs : int, default=None
        Number of networks that are trained in parallel, see `DeepEnsemble`.

    random_state : int, RandomState instance or None, default=None
        Seed of the members, unless `estimator` is an ensemble, and of the draws.

    device : {"auto"}, str or torch.device, default="auto"
        Device: "auto" is CUDA if available, else the CPU.

    verbose : int, default=0
        1 shows progress bars.

    Attributes
    ----------
    estimator_ : object
        The fitted ensemble.

    approximations_ : list of Laplace
        One for each member.

    classes_ : ndarray of shape (n_classes,)
        Class labels.

    n_features_in_ : int
        Number of features, if the networks have this attribute.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, only if all of them are strings.

    See Also
    --------
    Laplace : Approximation around one network.
    skood.epistemic.DeepEnsemble : Ensemble without approximations.

    References
    ----------
    .. [1] R. Eschenhagen, E. Daxberger, P. Hennig, A. Kristiadi. Mixtures of Laplace
       approximations for improved post-hoc uncertainty in deep learning. 2021.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from skood.epistemic import MixtureLaplace
    >>> from skood.nn import TorchClassifier
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> net = TorchClassifier(max_epochs=50, lr=0.01)
    >>> clf = MixtureLaplace(net, n_members=2, random_state=0).fit(X, y)
    >>> near, far = clf.predict_uncertainty([[0.0, 1.0], [3.0, 3.0]]).epistemic
    >>> bool(near < far)
    True
    """

    _parameter_constraints: dict = {
        **BaseMembers._parameter_constraints,
        **COMMON_CONSTRAINTS,
        "estimator": [HasMethods(["fit", "predict_proba"]), list],
        "n_members": [Interval(Integral, 1, None, closed="left")],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        estimator,
        n_members=5,
        *,
        subset="last_layer",
        hessian="kron",
        prior_precision="marglik",
        predictive="mean_field",
        n_samples=20,
        batch_size=256,
        setting="auto",
        n_jobs=None,
        random_state=None,
        device="auto",
        verbose=0,
    ):
        self.estimator = estimator
        self.n_members = n_members
        self.subset = subset
        self.hessian = hessian
        self.prior_precision = prior_precision
        self.predictive = predictive
        self.n_samples = n_samples
        self.batch_size = batch_size
        self.setting = setting
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @fit_context(
        # The networks are validated by their own fit.
        prefer_skip_nested_validation=False
    )
    def fit(self, X, y):
        """Fit the ensemble, then the normal distributions around its members.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Training samples: input of the networks.

        y : array-like of shape (n_samples,)
            Class labels.

        Returns
        -------
        self : MixtureLaplace
            The fitted classifier.

        Raises
        ------
        ValueError
            If `estimator` is a frozen network, so that all members would be the same,
            or as in `Laplace`. The estimator then is left unchanged.

        ImportError
            If `hessian` needs laplace-torch, and it is not installed.
        """
        with fresh_fit(self):
            check_installed(self.subset, self.hessian)
            random_state = check_random_state(self.random_state)
            seed = random_state.randint(np.iinfo(np.int32).max)
            self.estimator_ = fit_wrapped(self, self._ensemble(seed), X, y)
            self.classes_ = np.asarray(self.estimator_.classes_)
            same = ("subset", "hessian", "prior_precision", "predictive", "n_samples")
            params = {name: getattr(self, name) for name in same}
            self.approximations_ = [
                Laplace(
                    FrozenEstimator(member),
                    **params,
                    batch_size=self.batch_size,
                    setting="a",
                    random_state=random_state.randint(np.iinfo(np.int32).max),
                    device=self.device,
                    verbose=self.verbose,
                ).fit(X, y)
                for member in self.estimator_.estimators_
            ]
        return self

    def _ensemble(self, seed):
        """Return the given ensemble, or an ensemble of clones of the given network."""
        if isinstance(unwrapped(self.estimator), DeepEnsemble | SnapshotEnsemble):
            return self.estimator
        if isinstance(self.estimator, FrozenEstimator):
            raise ValueError(
                f"estimator is frozen, so that all {self.n_members} members would be "
                "the same network. Pass a network to fit, a list of several frozen "
                "ones as the members, or a frozen ensemble; for a single trained "
                "network there is Laplace."
            )
        return DeepEnsemble(
            self.estimator,
            self.n_members,
            n_jobs=self.n_jobs,
            random_state=seed,
            verbose=self.verbose,
        )

    def _now(self):
        """Return the approximations with the current values of the parameters."""
        now = [copy.copy(one) for one in self.approximations_]
        names = "predictive", "n_samples", "batch_size", "device"
        params = {name: getattr(self, name) for name in names}
        return [one.set_params(**params) for one in now]

    def _blocks(self, X):
        setting = self._setting()
        approximations = self._now()
        n_members = self.n_samples * len(approximations)
        for rows in row_blocks(X, 32 * n_members * len(self.classes_)):
            members = [
                np.concatenate([b.log_proba for b in one._blocks(rows)], axis=1)
                for one in approximations
            ]
            reference = self._reference_log_proba(rows) if setting == "b" else None
            yield Block(np.concatenate(members), reference=reference)

    @takes_input
    def predict_proba(self, X):
        """Return the class probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input samples.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes), dtype float64
            Mean probabilities of the approximations in setting "a", probabilities of
            the ensemble in setting "b", in the order of ``classes_``.
        """
        check_is_fitted(self)
        if self._setting() == "b":
            return super().predict_proba(X)
        return np.mean([one.predict_proba(X) for one in self._now()], axis=0)

    def __sklearn_tags__(self):
        tags = DeepEnsemble(self.estimator).__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags
