"""Deep ensembles of regressors."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral

import numpy as np
from sklearn.utils import check_consistent_length

from skood.epistemic._base_regressor import BaseMemberRegressor, Normals
from skood.epistemic._deep_ensemble import (
    fit_members,
    members_tags,
    new_members,
    row_blocks,
    warn_if_equal,
)
from skood.nn._training_data import check_numbers
from skood.utils._atomic_fit import fresh_fit
from skood.utils._param_validation import HasMethods, Interval, fit_context


class DeepEnsembleRegressor(BaseMemberRegressor):
    r"""Deep ensemble: regressors trained in the same way from different seeds.

    Member m predicts a normal distribution :math:`N(\mu_m, \sigma_m^2)`; the prediction
    is the mean and the variance of their mixture

    .. math:: \bar\mu(x) = \frac{1}{M} \sum_{m=1}^M \mu_m(x), \qquad
       \bar\sigma^2(x) = \frac{1}{M} \sum_{m=1}^M \sigma_m^2(x)
       + \frac{1}{M} \sum_{m=1}^M \bigl(\mu_m(x) - \bar\mu(x)\bigr)^2

    [1]_. The second term, the disagreement of the members, is large where the data do
    not determine the function.

    Read more in the :ref:`User Guide <epistemic_regression>`.

    Parameters
    ----------
    estimator : object or list of objects
        A regressor: each member is a clone of it with its own seed. Or a list of
        members, each cloned and fitted unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`; use this for models that are already
        trained.

    n_members : int, default=10
        Number of members. Ignored if `estimator` is a list.

    bootstrap : bool, default=False
        Whether each member is trained on samples drawn with replacement instead of all
        samples. Samples of weight zero are not drawn.

    reference : object, default=None
        The given model of setting "b". It is cloned and fitted, unless it is frozen.
        None: the first member, whose divergence from itself, zero, is one of the terms.

    setting : {"auto", "a", "b"}, default="auto"
        "a": the mixture of the members predicts, and it is uncertain which of them is
        right. "b": the given model predicts, and the uncertainty is how far it can be
        trusted. "auto" is "b" if there is a `reference`, else "a". See
        :func:`~skood.epistemic.gaussian_uncertainty`.

    variance : {"residuals", "network"} or float, default="residuals"
        The variance of the targets. "residuals": the mean squared residual of `predict`
        on the samples of `fit`, which is too small if the members overfit; "network":
        each member predicts it, by ``predict(X, return_std=True)``; or a number.

    n_jobs : int, default=None
        Number of members that are fitted in parallel, in processes. None: one, unless
        in a :obj:`joblib.parallel_config`; -1: the number of cores.

    random_state : int, RandomState instance or None, default=None
        Seed of the members, where every parameter named ``random_state`` is set,
        including nested ones, and of the drawn samples. The first members do not depend
        on the number of members.

    verbose : int, default=0
        1 shows a progress bar over the members.

    Attributes
    ----------
    estimators_ : list of objects
        The fitted members.

    estimator_ : object
        The given model: the fitted `reference`, or the first member.

    variance_ : float
        Variance of the targets; not with ``variance="network"``.

    n_features_in_ : int
        Number of features, if the members have this attribute.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, only if all of them are strings.

    See Also
    --------
    DeepEnsemble : The same for classifiers.
    skood.nn.TorchRegressor : Members with a mean and a variance.

    References
    ----------
    .. [1] B. Lakshminarayanan, A. Pritzel, C. Blundell. Simple and scalable predictive
       uncertainty estimation using deep ensembles. NIPS 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.neural_network import MLPRegressor
    >>> from skood.epistemic import DeepEnsembleRegressor
    >>> X = np.linspace(-3, 3, 40)[:, None]
    >>> net = MLPRegressor(hidden_layer_sizes=(20,), solver="lbfgs")
    >>> reg = DeepEnsembleRegressor(net, n_members=4, random_state=0)
    >>> reg = reg.fit(X, np.sin(X[:, 0]))
    >>> mean, std = reg.predict([[0.0], [6.0]], return_std=True)
    >>> bool(std[1] > 5 * std[0])
    True
    """

    _parameter_constraints: dict = {
        **BaseMemberRegressor._parameter_constraints,
        "estimator": [HasMethods(["fit", "predict"]), list],
        "n_members": [Interval(Integral, 1, None, closed="left")],
        "bootstrap": ["boolean"],
        "reference": [HasMethods(["fit", "predict"]), None],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        estimator,
        n_members=10,
        *,
        bootstrap=False,
        reference=None,
        setting="auto",
        variance="residuals",
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.estimator = estimator
        self.n_members = n_members
        self.bootstrap = bootstrap
        self.reference = reference
        self.setting = setting
        self.variance = variance
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=False)  # the estimator is the user's
    def fit(self, X, y, sample_weight=None):
        """Fit the members.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Training samples: input of the members.

        y : array-like of shape (n_samples,)
            Targets.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights, for members and a `reference` that support them; others
            raise. With `bootstrap`, samples that are drawn keep their weights.

        Returns
        -------
        self : DeepEnsembleRegressor
            The fitted regressor.

        Raises
        ------
        ValueError
            If `estimator` is frozen, a member does not take `sample_weight`, or all
            residuals are zero. The ensemble then is left unchanged.
        """
        with fresh_fit(self):
            y = check_numbers(y, self)
            codes = None
            if self.bootstrap:
                check_consistent_length(X, y, sample_weight)
                codes = np.zeros(len(y), dtype=int)
            members = new_members(self, "predict")
            fit_members(self, members, X, y, sample_weight, codes)
            warn_if_equal(self, X, "predict")
            self._set_variance(X, y, sample_weight)
        return self

    def _fitted_means(self, X):
        return self.predict(X)

    def _normals_of(self, model, X):
        """Return the mean and the variance (n_rows,) that a model predicts."""
        if self.variance != "network":
            return _checked(model, model.predict(X)), self.variance_
        try:
            mean, std = model.predict(X, return_std=True)
        except TypeError as error:
            raise TypeError(
                "variance='network' needs members with predict(X, return_std=True), "
                f"but {type(model).__name__} fails: {error}. Use "
                "skood.nn.TorchRegressor(criterion='gaussian_nll'), or another "
                "variance."
            ) from error
        return _checked(model, mean), np.square(np.asarray(std, dtype=np.float64))

    def _given(self, X):
        return self._normals_of(self.estimator_, X)

    def _blocks(self, X):
        is_given = self._setting() == "b"
        for rows in row_blocks(X, 64 * len(self.estimators_)):
            normals = [self._normals_of(member, rows) for member in self.estimators_]
            means, variances = zip(*normals, strict=True)
            yield Normals(
                np.stack(means),
                np.stack(variances) if self.variance == "network" else self.variance_,
                self._given(rows) if is_given else None,
            )

    def _has_given_model(self):
        return self.reference is not None

    def __sklearn_tags__(self):
        # of the base of BaseMemberRegressor, which does not support lists
        tags = super(BaseMemberRegressor, self).__sklearn_tags__()
        return members_tags(tags, self.estimator)


def _checked(model, mean):
    """Return predictions of a member as float64, one number for each sample."""
    mean = np.asarray(mean, dtype=np.float64)
    if mean.ndim == 2 and mean.shape[1] == 1:  # skorch
        mean = mean[:, 0]
    if mean.ndim != 1:
        raise ValueError(
            f"{type(model).__name__} predicts an array of shape {mean.shape}; members "
            "must predict one number for each sample."
        )
    return mean
