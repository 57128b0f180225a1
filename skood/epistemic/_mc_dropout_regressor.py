"""Monte Carlo dropout of regression networks."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral

import numpy as np
import torch
from sklearn.utils import check_random_state

from skood.epistemic._base_regressor import BaseMemberRegressor, Normals, of_rows
from skood.nn._dropout_masks import ThinnedNetwork
from skood.utils._atomic_fit import fresh_fit
from skood.utils._param_validation import Interval, fit_context
from skood.utils._progress import progress
from skood.utils._torch import row_chunks


class MCDropoutRegressor(BaseMemberRegressor):
    r"""Monte Carlo dropout: thinned copies of one regression network as members.

    Dropout sets the units of a layer to zero at random, each with probability p, and
    divides the others by 1 - p. S thinned networks are drawn, and predict

    .. math:: \bar\mu(x) = \frac{1}{S} \sum_{s=1}^S \mu(x; w, z_s),
       \qquad z_s \sim \text{Bernoulli}(1 - p)

    [1]_. For dropout of the inputs u of a linear output with weights w, the variance of
    the members is :math:`\frac{p}{1 - p} \sum_i w_i^2 u_i^2`.

    Read more in the :ref:`User Guide <epistemic_regression>`.

    Parameters
    ----------
    estimator : object
        A regressor whose network has ``torch.nn`` dropout modules with a probability
        above zero: a :class:`~skood.nn.TorchRegressor` (its default networks take
        ``module_params={"dropout": 0.2}``), a skorch ``NeuralNetRegressor``, or a
        pipeline that ends in one. It is cloned and fitted, unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`.

    n_samples : int, default=100
        Number of thinned networks.

    batch_size : int, default=256
        Number of samples per forward pass.

    setting : {"auto", "a", "b"}, default="auto"
        "a": the mixture of the thinned networks predicts, and it is uncertain which of
        them is right. "b": the full network predicts, and the uncertainty is how far it
        can be trusted. "auto" is "b" for a frozen estimator, else "a". See
        :func:`~skood.epistemic.gaussian_uncertainty`.

    variance : {"residuals", "network"} or float, default="residuals"
        The variance of the targets: the mean squared residual of the full network on
        the samples of `fit`, which is too small if it overfits; the exponential of the
        second output of the network; or a number.

    random_state : int, RandomState instance or None, default=None
        Seed of the masks. The generators of torch are not used.

    device : {"auto"}, str or torch.device, default="auto"
        Device of the thinned networks: "auto" is CUDA if available, else the CPU.

    verbose : int, default=0
        1 shows a progress bar over the batches of a prediction.

    Attributes
    ----------
    estimator_ : object
        The fitted regressor: the given model.

    variance_ : float
        Variance of the targets; not with ``variance="network"``.

    n_features_in_ : int
        Number of features, if the estimator has this attribute.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, only if all of them are strings.

    See Also
    --------
    MCDropout : The same for classifiers, with notes on masks and modules.

    References
    ----------
    .. [1] Y. Gal, Z. Ghahramani. Dropout as a Bayesian approximation: representing
       model uncertainty in deep learning. ICML 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.epistemic import MCDropoutRegressor
    >>> from skood.nn import TorchRegressor
    >>> X = np.linspace(-3, 3, 100)[:, None]
    >>> net = TorchRegressor(
    ...     module_params={"dropout": 0.1}, max_epochs=50, lr=0.01, random_state=0
    ... )
    >>> reg = MCDropoutRegressor(net, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> mean, std = reg.predict([[0.0], [6.0]], return_std="epistemic")
    >>> bool(std[1] > 2 * std[0])
    True
    """

    _parameter_constraints: dict = {
        **BaseMemberRegressor._parameter_constraints,
        "n_samples": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "device": [str, torch.device],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        estimator,
        n_samples=100,
        *,
        batch_size=256,
        setting="auto",
        variance="residuals",
        random_state=None,
        device="auto",
        verbose=0,
    ):
        self.estimator = estimator
        self.n_samples = n_samples
        self.batch_size = batch_size
        self.setting = setting
        self.variance = variance
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=False)  # the estimator is the user's
    def fit(self, X, y, sample_weight=None):
        """Fit the network, and draw the seed of the masks.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Training samples: input of the estimator.

        y : array-like of shape (n_samples,)
            Targets.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights, for an estimator that supports them; others raise.

        Returns
        -------
        self : MCDropoutRegressor
            The fitted regressor.

        Raises
        ------
        ValueError
            If the network has no dropout module with a probability above zero, or the
            estimator does not take `sample_weight`. The regressor then is left
            unchanged.
        """
        with fresh_fit(self):
            y = self._fit_estimator(X, y, sample_weight)
            self._thinned(0)  # raises if there is no dropout
            self._set_variance(X, y, sample_weight)
            random_state = check_random_state(self.random_state)
            self._seed = int(random_state.randint(np.iinfo(np.int32).max))
        return self

    def _thinned(self, seed):
        """Return the networks that dropout makes of the given one."""
        return ThinnedNetwork(self._network(), self.estimator_, seed)

    def _blocks(self, X):
        networks = self._thinned(self._seed)
        rows = networks.prepare(X)
        given = None
        if self._setting() == "b":
            given = self._given(X)
        batches = list(row_chunks(len(rows), 1, self.batch_size))
        name = type(self).__name__
        with progress(len(batches), desc=name, verbose=self.verbose) as bar:
            for part in batches:
                outputs = networks.outputs(rows[part], self.n_samples, bar)
                reference = None if given is None else of_rows(given, part)
                mean, variance = self._normals(outputs)
                yield Normals(mean, variance, reference)
