"""Monte Carlo dropout: thinned copies of one network as members."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from functools import partial
from numbers import Integral
from weakref import WeakKeyDictionary

import numpy as np
from sklearn.utils import check_random_state

from skood.epistemic._base_uncertainty import BaseMembers
from skood.epistemic._deep_ensemble import GRAPH_BYTES
from skood.epistemic._likelihood import Block, combined, taken
from skood.graph import NodeSet
from skood.utils._atomic_fit import fresh_fit
from skood.utils._param_validation import Interval, fit_context
from skood.utils._progress import progress
from skood.utils._torch import row_chunks

# Networks for few samples, by the fitted likelihood; files do not contain them.
_OPENED: WeakKeyDictionary = WeakKeyDictionary()


class MCDropout(BaseMembers):
    r"""Monte Carlo dropout: thinned copies of one network as members.

    Dropout sets the units of a layer to zero at random, each with probability p, and
    divides the others by 1 - p. A network trained with dropout represents all thinned
    networks; S of them are drawn, and predict

    .. math:: \bar p(y \mid x) = \frac{1}{S} \sum_{s=1}^S p(y \mid x, w, z_s),
       \qquad z_s \sim \text{Bernoulli}(1 - p)

    [1]_. For a regressor the mean and the variance of the targets are averaged. For
    dropout of the inputs u of a linear output with weights w, the variance of its
    members is :math:`\frac{p}{1 - p} \sum_i w_i^2 u_i^2`.

    Read more in the :ref:`User Guide <epistemic>`, for regressors in :ref:`another
    section <epistemic_regression>`.

    Parameters
    ----------
    estimator : object
        A classifier or regressor whose network has ``torch.nn`` dropout modules with a
        probability above zero: a :class:`~skood.nn.TorchClassifier` or
        :class:`~skood.nn.TorchRegressor` (their default networks take
        ``module_params={"dropout": 0.2}``), a module wrapped by
        :func:`skood.nn.pretrained`, a skorch net, a graph network
        (:class:`~skood.graph.GraphClassifier`, :func:`skood.graph.pretrained_graph`),
        or a pipeline that ends in one. It is cloned and fitted, unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`.

    n_samples : int, default=100
        Number of thinned networks.

    batch_size : int, default=256
        Number of samples per forward pass. A graph is always run as a whole.

    setting : {"auto", "a", "b"}, default="auto"
        "a": the mixture of the thinned networks predicts, and it is uncertain which of
        them is right. "b": the full network predicts, and the uncertainty is how far it
        can be trusted. "auto" is "b" for a frozen estimator, else "a". See
        :func:`~skood.epistemic.member_uncertainty` and, for regressors,
        :func:`~skood.epistemic.gaussian_uncertainty`.

    likelihood : "auto", Categorical or Gaussian, default="auto"
        The distribution of the targets. "auto": :class:`Categorical` for a classifier,
        :class:`Gaussian` for a regressor, with the residuals of the full network.

    random_state : int, RandomState instance or None, default=None
        Seed of the masks. The generators of torch are not used.

    device : {"auto"}, str or torch.device, default="auto"
        Device of the thinned networks: "auto" is CUDA if available, else the CPU.

    verbose : int, default=0
        1 shows a progress bar over the batches of a prediction, or over the members
        on a graph.

    Attributes
    ----------
    estimator_ : object
        The fitted classifier or regressor: the given model.

    likelihood_ : Categorical or Gaussian
        The fitted likelihood, with ``variance_``.

    classes_ : ndarray of shape (n_classes,)
        Class labels; only of a classifier.

    n_features_in_ : int
        Number of features, if the estimator has this attribute.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, only if all of them are strings.

    See Also
    --------
    DeepEnsemble : Networks that are trained separately.
    Laplace : Normal distribution around the weights of one network.

    Notes
    -----
    One mask is drawn for each thinned network and is the same for all samples: the
    members are fixed models, and the prediction for a sample does not depend on the
    other samples. (With a mask for each sample, as in training, they would not be; the
    distribution for a single sample is the same either way.)

    All of the network except the dropout modules is in eval mode. ``torch.nn.Dropout``
    and ``AlphaDropout`` drop single units, ``Dropout1d``, ``Dropout2d``, ``Dropout3d``
    and ``FeatureAlphaDropout`` whole channels. Dropout by functions
    (``torch.nn.functional.dropout``), and dropout inside attention and recurrent
    modules, cannot be detected, and stays off: in graph networks also the dropout of
    attention weights, such as the ``dropout`` of ``GATConv``.

    On a graph, too, a mask is the same for all nodes (and for all edges, where dropout
    is applied to edges): the members are the same models on every graph. With few
    members, a separate mask for each node would detect OOD nodes slightly better, see
    the :ref:`User Guide <graph_details>`.

    The part of the network before its first dropout module is the same for all thinned
    networks, and is computed once for a batch of samples, unless copies of few samples
    are run as one batch; a graph is run separately for each network.

    References
    ----------
    .. [1] Y. Gal, Z. Ghahramani. Dropout as a Bayesian approximation: representing
       model uncertainty in deep learning. ICML 2016.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from skood.epistemic import MCDropout
    >>> from skood.nn import TorchClassifier
    >>> X, y = make_moons(100, noise=0.1, random_state=0)
    >>> net = TorchClassifier(
    ...     module_params={"dropout": 0.2}, max_epochs=50, lr=0.01, random_state=0
    ... )
    >>> clf = MCDropout(net, n_samples=20, random_state=0).fit(X, y)
    >>> clf.predict_members(X).shape
    (20, 100, 2)

    Dropout of a regressor:

    >>> import numpy as np
    >>> from skood.nn import TorchRegressor
    >>> X = np.linspace(-3, 3, 100)[:, None]
    >>> net = TorchRegressor(
    ...     module_params={"dropout": 0.1}, max_epochs=50, lr=0.01, random_state=0
    ... )
    >>> reg = MCDropout(net, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> mean, std = reg.predict([[0.0], [6.0]], return_std="epistemic")
    >>> std.round(2)
    array([0.07, 0.39])
    """

    _parameter_constraints: dict = {
        **BaseMembers._parameter_constraints,
        **BaseMembers._network_constraints,
        "n_samples": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        estimator,
        n_samples=100,
        *,
        batch_size=256,
        setting="auto",
        likelihood="auto",
        random_state=None,
        device="auto",
        verbose=0,
    ):
        self.estimator = estimator
        self.n_samples = n_samples
        self.batch_size = batch_size
        self.setting = setting
        self.likelihood = likelihood
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
            Class labels, or targets of a regressor.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights, for an estimator that supports them; others raise.

        Returns
        -------
        self : MCDropout
            The fitted estimator.

        Raises
        ------
        ValueError
            If the network has no dropout module with a probability above zero, the
            estimator does not take `sample_weight`, or all residuals are zero. It then
            is left unchanged.
        """
        with fresh_fit(self):
            y = self._fit_estimator(X, y, sample_weight)
            self._networks(0)  # raises if there is no dropout
            self._fit_targets(X, y, sample_weight)
            random_state = check_random_state(self.random_state)
            self._seed = int(random_state.randint(np.iinfo(np.int32).max))
        return self

    def _networks(self, seed):
        """Return the networks that dropout makes of the estimator."""
        return self.likelihood_.thinned(self.estimator_, self.device, seed)

    def _member_blocks(self, X):
        return self._blocks(X, "a")

    def _blocks(self, X, setting=None):
        networks = _OPENED.pop(self.likelihood_, None)  # for this thread alone
        if not (networks and networks.is_of(self.estimator_, self.device, self._seed)):
            networks = self._networks(self._seed)
        samples = networks.prepare(X)
        reference = self._reference(X) if (setting or self._setting()) == "b" else None
        n_outputs = len(getattr(self, "classes_", [])) or 2
        size, batch_size = 32 * self.n_samples * n_outputs, self.batch_size
        if isinstance(samples, NodeSet):  # the whole graph is run for each block
            batch_size = len(samples)
            blocks = list(row_chunks(len(samples), size, GRAPH_BYTES))
            n_updates = self.n_samples * len(blocks)
        else:
            blocks = list(row_chunks(len(samples), size))
            n_updates = sum(-(-(b.stop - b.start) // batch_size) for b in blocks)
        name = type(self).__name__
        with progress(n_updates, desc=name, verbose=self.verbose) as bar:
            for block in blocks:
                predictions = []
                for batch in row_chunks(block.stop - block.start, 1, batch_size):
                    arguments = networks, samples[block][batch], self.n_samples, bar
                    predictions.append(self.likelihood_.thinned_predictions(*arguments))
                yield Block(
                    combined(partial(np.concatenate, axis=1), predictions),
                    reference=taken(reference, block),
                )
        if networks.is_small:
            _OPENED[self.likelihood_] = networks
