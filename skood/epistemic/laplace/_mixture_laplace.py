"""Mixture of Laplace approximations around the members of a deep ensemble."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
from numbers import Integral

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_random_state

from skood.epistemic._base_uncertainty import BaseMembers
from skood.epistemic._deep_ensemble import DeepEnsemble, SnapshotEnsemble, row_blocks
from skood.epistemic._likelihood import Block
from skood.epistemic.laplace._laplace import Laplace, check_installed
from skood.utils._atomic_fit import fresh_fit
from skood.utils._metaestimators import fit_wrapped, unwrapped
from skood.utils._param_validation import Interval, fit_context


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
    estimator : Laplace
        The approximation of each member, whose `estimator` is a network supported by
        :class:`Laplace`: each member is a clone of it with its own seed. Or an ensemble
        of skood with ``estimators_``, such as
        :class:`~skood.epistemic.DeepEnsemble`, which is fitted unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`. Or a list of the members, as in
        `DeepEnsemble`. Its `setting` and `random_state` are ignored; its `n_samples`
        are drawn around each member.

    n_members : int, default=5
        Number of members. Ignored if there is an ensemble or a list.

    setting : {"auto", "a", "b"}, default="auto"
        "a": the mixture predicts. "b": the ensemble predicts, and the uncertainty is
        how far it can be trusted. "auto" is "b" for a frozen ensemble, else "a".

    n_jobs : int, default=None
        Number of networks that are trained in parallel, see `DeepEnsemble`.

    random_state : int, RandomState instance or None, default=None
        Seed of the members, unless there is an ensemble, and of the draws.

    verbose : int, default=0
        1 shows a progress bar over the members.

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
    >>> from skood.epistemic import Laplace, MixtureLaplace
    >>> from skood.nn import TorchClassifier
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> net = TorchClassifier(max_epochs=50, lr=0.01)
    >>> laplace = Laplace(net, n_samples=20)
    >>> clf = MixtureLaplace(laplace, n_members=2, random_state=0).fit(X, y)
    >>> near_and_far = [[0.0, 1.0], [3.0, 3.0]]
    >>> clf.predict_uncertainty(near_and_far).epistemic.round(2)
    array([0.01, 0.4 ])
    """

    _parameter_constraints: dict = {
        **BaseMembers._parameter_constraints,
        "estimator": [Laplace],
        "n_members": [Interval(Integral, 1, None, closed="left")],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        estimator,
        n_members=5,
        *,
        setting="auto",
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.estimator = estimator
        self.n_members = n_members
        self.setting = setting
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=False)  # the estimator is the user's
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
            If the network is frozen, so that all members would be the same, or as in
            `Laplace`. The estimator then is left unchanged.

        ImportError
            If the form of H needs laplace-torch, and it is not installed.
        """
        with fresh_fit(self):
            self._new_likelihood()  # raises for a regressor
            random_state = check_random_state(self.random_state)
            seed = random_state.randint(np.iinfo(np.int32).max)
            ensemble = self._ensemble(seed)
            params = {**self.estimator.get_params(deep=False), "setting": "a"}
            Laplace(**{**params, "estimator": ensemble})._validate_params()
            check_installed(self.estimator.subset, self.estimator.hessian)
            self.estimator_ = fit_wrapped(self, ensemble, X, y)
            self.classes_ = np.asarray(self.estimator_.classes_)
            self.approximations_ = []
            for member in self.estimator_.estimators_:
                params["estimator"] = FrozenEstimator(member)
                params["random_state"] = random_state.randint(np.iinfo(np.int32).max)
                self.approximations_.append(Laplace(**params).fit(X, y))
        return self

    def _ensemble(self, seed):
        """Return the given ensemble, or an ensemble of clones of the given network."""
        model = self.estimator.estimator
        if isinstance(unwrapped(model), DeepEnsemble | SnapshotEnsemble):
            return model
        if isinstance(model, FrozenEstimator):
            raise ValueError(
                f"The network is frozen, so that all {self.n_members} members would be "
                "the same network. Pass a network to fit, a list of several frozen "
                "ones as the members, or a frozen ensemble; for a single trained "
                "network use Laplace."
            )
        return DeepEnsemble(
            model,
            self.n_members,
            n_jobs=self.n_jobs,
            random_state=seed,
            verbose=self.verbose,
        )

    def _has_fixed_model(self):
        return isinstance(self.estimator.estimator, FrozenEstimator)

    def _now(self):
        """Return the approximations with the current values of the parameters."""
        now = [copy.copy(laplace) for laplace in self.approximations_]
        names = "predictive", "n_samples", "batch_size", "device"
        params = {name: getattr(self.estimator, name) for name in names}
        return [laplace.set_params(**params) for laplace in now]

    def _blocks(self, X):
        setting = self._setting()
        approximations = self._now()
        n_members = self.estimator.n_samples * len(approximations)
        for samples in row_blocks(X, 32 * n_members * len(self.classes_)):
            members = [
                np.concatenate(
                    [b.predictions for b in laplace._blocks(samples)], axis=1
                )
                for laplace in approximations
            ]
            reference = self._reference(samples) if setting == "b" else None
            yield Block(np.concatenate(members), reference=reference)

    def _mixture_proba(self, X):
        """Return the mean of the class probabilities of the approximations."""
        return np.mean([laplace.predict_proba(X) for laplace in self._now()], axis=0)

    def _models(self):
        model = getattr(self.estimator, "estimator", self.estimator)
        return model if isinstance(model, list) else [model]
