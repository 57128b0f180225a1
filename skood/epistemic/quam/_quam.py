"""Epistemic uncertainty of a given network by adversarial models (QUAM)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real

import numpy as np
import torch

from skood.epistemic._base_uncertainty import BaseMembers
from skood.epistemic._likelihood import Block
from skood.epistemic.quam._adversarial_models import AdversarialModels, SearchRecord
from skood.epistemic.quam._adversarial_search import (
    AdversarialSearch,
    Classes,
    Means,
    Untargeted,
)
from skood.epistemic.quam._local_components import LocalComponent
from skood.epistemic.quam._searches import (
    MODEL_CONSTRAINTS,
    Searches,
    check_loader,
    in_parallel,
    is_loader,
)
from skood.utils._atomic_fit import fresh_fit
from skood.utils._batches import joined, labeled_rows
from skood.utils._param_validation import (
    Interval,
    StrOptions,
    fit_context,
    validate_params,
)


class QUAM(BaseMembers):
    r"""Quantification of model uncertainty (QUAM) by a search for adversarial models.

    An adversarial model explains the training data as well as the given network, but
    has a different prediction at a point x. It is searched for each point and class t,
    from the given weights w, by Adam steps on

    .. math:: L(\tilde w) = CE\bigl(t, p(\cdot \mid x, \tilde w)\bigr) + c_k
       \bigl(L_{\text{train}}(\tilde w) - (L_{\text{train}}(w) + \gamma)\bigr),

    with the loss on a batch of training samples in each step. All models along the
    search are members, with weights :math:`\omega_n \propto e^{-L_{\text{train}}(\tilde
    w_n) / T}`, of the sums in :func:`member_uncertainty` [1]_.

    A regression network predicts a normal distribution :math:`N(\mu, \sigma^2)`. For
    each point two searches, one to a higher and one to a lower mean, take steps on

    .. math:: -KL\bigl(N(\mu, \sigma^2) \,\|\, N(\tilde\mu, \tilde\sigma^2)\bigr) +
       c_k \bigl(L_{\text{train}}(\tilde w) - (L_{\text{train}}(w) + \gamma)\bigr),

    where L is the negative log-likelihood. The divergence has a stationary point at the
    given weights, so that the searches start with a shifted bias of the last layer. The
    members are summed as in :func:`gaussian_uncertainty`.

    Read more in the :ref:`User Guide <quam>`.

    Parameters
    ----------
    estimator : object
        The network: a `TorchClassifier` or `TorchRegressor`, a module wrapped by
        :func:`skood.nn.pretrained`, a skorch net, a linear model, `MLPClassifier` or
        `MLPRegressor` of scikit-learn, or a `Pipeline` that ends in one. It is
        cloned and fitted, unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`. It is never changed.

    search : AdversarialSearch, default=None
        Optimization of the searches. None: the defaults of :class:`AdversarialSearch`.

    scope : {"dense", "last", "full", "norm", "bias", "adapter"}, default="dense"
        Searched weights: of all linear layers at the end of the network with only
        samplewise functions between them (for a convolutional network its dense layers,
        for a perceptron all); of the last linear layer; or of all layers. The preceding
        part is computed once for each sample. "last" is the fastest and the weakest:
        with the other parameters at their defaults it can be worse than the largest
        probability of the same network, and needs a stronger penalty. See the
        :ref:`User Guide <quam_settings>`.
        Few weights in all layers: scales and shifts of normalization layers ("norm"),
        all biases ("bias"), or changes of low rank of all linear and convolutional
        layers ("adapter", with `rank` of the search). "norm" and "adapter" do not
        contain the bias of the last layer, and raise for regressors.

    setting : {"b", "a", "auto"}, default="b"
        Whether the uncertainty is about the given network ("b") or about which network
        will be used ("a"); see :func:`member_uncertainty`. "auto" is "b" for a frozen
        estimator, else "a".

    likelihood : "auto", Categorical or Gaussian, default="auto"
        The distribution of the targets. "auto": :class:`Categorical` for a classifier,
        :class:`Gaussian` for a regressor, with the residuals on the samples of `fit`
        that are used in the steps, which should not be the training samples of a frozen
        network that overfits.

    targets : {"all", "untargeted"} or int, default="all"
        Number of target classes, for classifiers: the most probable ones of the given
        network.
        "untargeted": `n_starts` searches, from different initial weights, that maximize
        the divergence :math:`KL(p \,\|\, \tilde p)` from the given prediction instead.

    component : str or LocalComponent, default="delta"
        Members. "delta": all models along the searches. "feasible": of each search the
        model with the largest divergence among the models that explain the training
        data as well, see :func:`feasible_divergence`, in setting "b" only. The excess
        is relative to the least loss of the network and of a search without attack.
        Otherwise, for "laplace", "subspace", "sgmcmc" or an object with options, draws
        from distributions around the best model of each search, see
        :class:`LocalComponent`; of classifiers only.

    temperature : float, default=None
        Temperature T of the members' weights, in nats. ``np.inf``: equal weights. None:
        0.001 for "feasible", else 0.01 for ``search__eta="adaptive"`` and 0.1 for a
        fixed schedule, where it is to be chosen together with ``search__c0``, see the
        :ref:`User Guide <quam_settings>`. With `component` "laplace" and "subspace" the
        posterior determines the weights.

    n_jobs : int, default=None
        Number of processes that share the points, see :class:`joblib.Parallel`.

    random_state : int, RandomState instance or None, default=None
        Seed of the choice of training samples in `fit`.

    device : str or torch.device, default="auto"
        Device to search on: "auto" is CUDA if available, else the CPU.

    verbose : int, default=0
        1 shows a progress bar over the points.

    Attributes
    ----------
    estimator_ : object
        The given network.

    likelihood_ : Categorical or Gaussian
        The fitted likelihood, with ``variance_``.

    classes_ : ndarray of shape (n_classes,)
        Class labels; only of a classifier.

    n_samples_fit_ : int
        Number of training samples.

    penalty_features_ : ndarray of shape (n_stored, ...)
        Input of the searched layers for the training samples that are used.

    penalty_targets_ : ndarray of shape (n_stored,)
        Class indices, or targets of a regressor, of these samples.

    penalty_index_ : ndarray of shape (n_steps + 1, batch_size)
        Indices of these samples for each step; the last batch evaluates the last model.

    evaluation_index_ : ndarray of shape (n_evaluation_samples,)
        Indices of the samples that weight the models.

    evaluation_loss_, least_loss_ : float or None
        Loss of the given network on these samples, and the least loss of it and of a
        search without attack. Of adaptive searches and "feasible".

    reference_loss_ : ndarray of shape (n_steps + 1,)
        Loss of the given network on each batch.

    n_features_in_ : int
        Number of features, if the estimator has this attribute.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, if the estimator has this attribute.

    Raises
    ------
    ValueError
        If the logits of the network are not the output of a linear layer, and `scope`
        is not "full".

    See Also
    --------
    AdversarialSearch : Parameters of the searches.
    LocalComponent : Distributions around adversarial models.
    AdversarialModels : The models of one point.
    SearchRecord : Models of many points, for other parameters of the sums.
    AdversarialModelDisplay : Plot of the searches of one point.
    DeepEnsemble : Models that are trained separately.

    Notes
    -----
    The searches of many points and classes share matrix products. Layers before the
    searched ones run once, batch normalization and dropout are in eval mode, and the
    network itself is not modified.

    `predict_proba` and `predict` use the given network in both settings.

    `fit` also takes a torch ``DataLoader`` of inputs and targets in place of `X`,
    if the estimator is frozen; only the samples of the steps, as input of the searched
    layers, are stored. From a `numpy.memmap` only these samples are loaded, also if the
    estimator is frozen.

    In float32, results change in the last digits with `chunk_size`, and Adam amplifies
    this where a gradient is nearly zero.

    References
    ----------
    .. [1] K. Schweighofer, L. Aichberger, M. Ielanskyi, G. Klambauer, S. Hochreiter.
       Quantification of uncertainty with adversarial models. NeurIPS 2023.

    Examples
    --------
    A point between the classes, and one where there are no training data:

    >>> from sklearn.datasets import make_moons
    >>> from sklearn.neural_network import MLPClassifier
    >>> from skood.epistemic import QUAM
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> net = MLPClassifier(hidden_layer_sizes=(50, 50), max_iter=500, random_state=0)
    >>> quam = QUAM(net, random_state=0).fit(X, y)
    >>> found = quam.predict_uncertainty([[-1.0, 0.0], [-1.5, -1.5]])
    >>> found.epistemic.round(1)
    array([0.6, 4.1])

    A regressor, far from its training data:

    >>> import numpy as np
    >>> from sklearn.neural_network import MLPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(200, 1))
    >>> y = np.sin(X[:, 0]) + rng.normal(scale=0.1, size=200)
    >>> net = MLPRegressor(hidden_layer_sizes=(50, 50), random_state=0)
    >>> quam = QUAM(net, random_state=0).fit(X, y)
    >>> found = quam.predict_uncertainty([[0.0], [6.0]])
    >>> found.epistemic.round()
    array([ 0., 29.])
    """

    _parameter_constraints: dict = {
        **BaseMembers._parameter_constraints,
        **BaseMembers._network_constraints,
        "search": [AdversarialSearch, None],
        "scope": [StrOptions({"last", "dense", "full", "norm", "bias", "adapter"})],
        "component": [
            StrOptions({"delta", "feasible", "laplace", "subspace", "sgmcmc"}),
            LocalComponent,
        ],
        "targets": [
            StrOptions({"all", "untargeted"}),
            Interval(Integral, 1, None, closed="left"),
        ],
        "temperature": [Interval(Real, 0, None, closed="right"), None],
        "n_jobs": [Integral, None],
    }

    _default_parts: dict = {
        **BaseMembers._default_parts,
        "search": AdversarialSearch,
        "component": LocalComponent,
    }

    def __init__(
        self,
        estimator,
        search=None,
        *,
        scope="dense",
        setting="b",
        likelihood="auto",
        targets="all",
        component="delta",
        temperature=None,
        n_jobs=None,
        random_state=None,
        device="auto",
        verbose=0,
    ):
        self.estimator = estimator
        self.search = search
        self.scope = scope
        self.setting = setting
        self.likelihood = likelihood
        self.targets = targets
        self.component = component
        self.temperature = temperature
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Fit the network, if it is not frozen, and draw the training samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...) or torch.utils.data.DataLoader
            Training samples of the network.

        y : array-like of shape (n_samples,), default=None
            Class labels, or targets of a regressor; None with a loader, which contains
            them.

        Returns
        -------
        self : QUAM
            The fitted estimator.
        """
        with fresh_fit(self):
            searches = Searches(self)
            self.likelihood_ = likelihood = self._new_likelihood()
            self._check_methods(estimator=self.estimator)
            if is_loader(X):
                check_loader(self.estimator, y)
            else:
                X, y = labeled_rows(X, y)
                if likelihood.kind == "classifier":
                    y = likelihood.checked(y, self)
                else:
                    likelihood.targets(y, self)  # raises before the fit
            self._fit_model(X, y)
            searches.draw_samples(X, y)
        return self

    def _check_component(self):
        """Raise if the members cannot be of this kind of estimator or setting."""
        kind = self._part("component").kind
        if kind not in ("delta", "feasible") and not self._is_classifier():
            raise ValueError(
                f"component={kind!r} is for classifiers, but {type(self).__name__} is "
                "a regressor. Use component='delta'."
            )
        if kind == "feasible" and self._setting() == "a":
            raise ValueError(
                "component='feasible' is about a given network, setting='b', but the "
                "setting is 'a'. Use component='delta'."
            )

    # --- objective of the searches -------------------------------------------

    def _search(self):
        """Return the valid part `search`, with the defaults of the estimator's kind."""
        defaults = {"n_steps": 56, "weight_decay": 1e-3, "c0": 10.0}
        if not self._is_classifier():
            defaults = {"n_steps": 150, "weight_decay": 0.0, "c0": 100.0}
        is_adaptive = self._part("search").eta == "adaptive"
        defaults["gamma"], defaults["update_every"] = (
            (0.003, 4) if is_adaptive else (0.0, 14)
        )
        return self._part("search", **defaults)

    def _open(self):
        return self.likelihood_.open(self.estimator_, self.device, for_steps=True)

    def _targets(self, reference):
        """Return the targets of points, int (n_points, n_targets)."""
        n_points, n_classes = reference.shape
        if self.likelihood_.kind == "regressor":
            targets = np.array([1, -1])
        elif self.targets == "untargeted":
            targets = np.arange(self._part("search").n_starts)
        elif self.targets == "all" or self.targets >= n_classes:
            targets = np.arange(n_classes)
        else:
            order = np.argsort(-reference, axis=1, kind="stable")
            return order[:, : self.targets]
        return np.broadcast_to(targets, (n_points, len(targets)))

    def _task(self, targets, reference, tail):
        """Return the `Task` of searches."""
        network = tail.network

        def on_device(array):
            n_sent = len(array) if array.strides[0] else 1  # 1: the same for all points
            tensor = torch.from_numpy(array[:n_sent].copy()).to(network.device)
            return tensor.expand(array.shape)

        def repeated(array):
            array = on_device(array).to(network.dtype)
            return array.repeat_interleave(targets.shape[1], 0)

        chosen = on_device(targets).flatten()
        if self.likelihood_.kind == "regressor":
            mean, variance = self.likelihood_.predictions(reference)
            variance = np.broadcast_to(variance, mean.shape)
            shifts = chosen.double() * self._part("search").perturbation
            fields = shifts.to(network.dtype), repeated(mean), repeated(variance)
            return Means(*fields, fixed=self.likelihood_.variance != "network")
        if self.targets != "untargeted":
            return Classes(chosen)
        return Untargeted(chosen, repeated(reference), self._seed)

    # --- uncertainty ---------------------------------------------------------

    def _blocks(self, X):
        for members in Searches(self).members(X):
            yield self._block(*members)

    def _block(self, reference, outputs, weights, searches):
        """Return the `Block` of members by their outputs."""
        if self.likelihood_.kind != "classifier":
            outputs = self.likelihood_.predictions(outputs)
            reference = self.likelihood_.predictions(reference)
        return Block(outputs, weights, reference, groups=searches)

    def _mixture_proba(self, X):
        """Return the class probabilities of the given network."""
        return np.exp(self._reference(X))

    def _mean(self, X):
        """Return the means by the given network, in the dtype of the searches."""
        network = self._open()
        return network.outputs(network.prepare(X))[:, 0]

    def _moments(self, X):
        """Return the moments of samples, computed in several processes."""
        return in_parallel(self, X, BaseMembers._moments)

    def _uncertainty(self, X, return_error):
        """Return the uncertainty of samples, computed in several processes."""
        if return_error and self._part("component").kind == "feasible":
            raise ValueError(
                "return_error=True needs members that are draws, but of "
                "component='feasible' they are the largest divergences. Use 'delta'."
            )
        return in_parallel(self, X, BaseMembers._uncertainty, return_error)

    def search_models(self, X):
        """Search models for points, to compute uncertainties by several parameters.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input samples.

        Returns
        -------
        record : SearchRecord
            The predictions and losses of the models along the searches.
        """
        self._check_fitted()
        reference, outputs, loss = in_parallel(self, X, QUAM._recorded)
        return SearchRecord(reference, outputs, loss, self)

    def _recorded(self, X):
        return joined([*Searches(self).records(X)])

    def _of_record(self, *arrays):
        """Return the uncertainty of points from arrays of a `SearchRecord`."""
        block = self._block(*Searches(self).recorded_members(*arrays))
        return self.likelihood_.uncertainty(block, self._setting(), False)

    def trace(self, x):
        """Return the details of the searches of one point.

        Parameters
        ----------
        x : array-like of shape (1, ...)
            The point, as a batch of one sample.

        Returns
        -------
        trace : Bunch
            ``targets``, the class labels, the numbers of untargeted searches, or
            "higher" and "lower" of a regressor, of shape (n_targets,); of shape
            (n_steps + 1, n_targets), for the model before each step and after the
            last one, ``loss``, ``attack_loss``, ``training_loss``, ``penalty`` (how
            much the training loss exceeds that of the given network and `gamma`),
            ``divergence`` (of the given prediction from the model's), ``weights``
            (they sum to one), and ``log_proba`` with a third axis of classes;
            ``reference``, the log-probabilities of the given network, of shape
            (n_classes,). Of a regressor there are ``mean`` and ``variance``, of shape
            (n_steps + 1, n_targets), in place of ``log_proba``, and ``reference`` is a
            tuple of these.
        """
        trace, outputs, reference = Searches(self).trace(x)
        likelihood = self.likelihood_
        trace.targets = self._labels(trace.targets)
        trace.divergence = likelihood.divergence(reference, outputs)
        trace |= likelihood.fields(outputs)
        reference_fields = likelihood.fields(reference)
        if likelihood.kind == "classifier":
            trace.reference = reference_fields["log_proba"][0]
        else:
            trace.reference = tuple(
                float(array[0]) for array in reference_fields.values()
            )
        return trace

    @validate_params(MODEL_CONSTRAINTS, prefer_skip_nested_validation=True)
    def adversarial_models(self, X, *, slack=None, log_posterior=False):
        """Return the adversarial models of points, to be examined or used.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input samples. All searched weights of all models are returned.

        slack : float, default=None
            Of each search the model with the smallest loss of the attack is returned
            whose training loss exceeds the loss of the given network, on the training
            samples of the step, by at most `slack`. None: `gamma` of the search;
            ``np.inf``: any model.

        log_posterior : bool, default=False
            Whether to evaluate the log posterior: on the stored training samples, as a
            sum over all training samples, with a normal prior of precision
            `weight_decay`.

        Returns
        -------
        models : list of AdversarialModels
            The models of each sample, one for each target; of a regressor one with a
            higher and one with a lower mean.
        """
        return [
            AdversarialModels(
                targets=self._labels(targets),
                divergence=self.likelihood_.divergence(reference, outputs),
                **self.likelihood_.fields(outputs),
                **fields,
            )
            for reference, targets, outputs, fields in Searches(self).models(
                X, slack, log_posterior
            )
        ]

    def _labels(self, targets):
        """Return class labels, numbers of untargeted searches, or directions."""
        if self.likelihood_.kind == "regressor":
            return np.where(targets > 0, "higher", "lower")
        return targets if self.targets == "untargeted" else self.classes_[targets]
