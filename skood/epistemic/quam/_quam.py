"""Epistemic uncertainty of a given classifier by adversarial models (QUAM)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral

import numpy as np
import torch

from skood.epistemic._base_uncertainty import BaseMembers, Block
from skood.epistemic._measures import kl_divergence
from skood.epistemic.quam._adversarial_models import AdversarialModels
from skood.epistemic.quam._adversarial_search import (
    AdversarialSearch,
    Classes,
    Untargeted,
)
from skood.epistemic.quam._local_components import LocalComponent
from skood.epistemic.quam._searches import (
    MODEL_CONSTRAINTS,
    QUAM_CONSTRAINTS,
    Searches,
    check_loader,
    in_parallel,
    is_loader,
)
from skood.nn._make_network import make_network
from skood.nn._training_data import check_target, class_codes
from skood.utils._atomic_fit import fresh_fit
from skood.utils._batches import labeled_rows
from skood.utils._metaestimators import check_one_column, fit_wrapped
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

    Read more in the :ref:`User Guide <quam>`.

    Parameters
    ----------
    estimator : object
        The classifier: a `TorchClassifier`, a module wrapped by
        :func:`skood.nn.pretrained`, a skorch net, a linear classifier or
        `MLPClassifier` of scikit-learn, or a `Pipeline` that ends in one. It is
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
        layers ("adapter", with `rank` of the search).

    setting : {"b", "a", "auto"}, default="b"
        Whether the uncertainty is about the given network ("b") or about which network
        will be used ("a"); see :func:`member_uncertainty`. "auto" is "b" for a frozen
        estimator, else "a".

    targets : {"all", "untargeted"} or int, default="all"
        Number of target classes: the most probable ones of the given network.
        "untargeted": `n_starts` searches, from different initial weights, that maximize
        the divergence :math:`KL(p \,\|\, \tilde p)` from the given prediction instead.

    component : str or LocalComponent, default="delta"
        Members. "delta": all models along the searches. Otherwise, for "laplace",
        "subspace", "sgmcmc" or an object with options, draws from distributions around
        the best model of each search, see :class:`LocalComponent`.

    temperature : float, default=0.1
        Temperature T of the members' weights, in nats. ``np.inf``: equal weights. To be
        chosen together with ``search__c0``, see the :ref:`User Guide <quam_settings>`.
        With `component` "laplace" and "subspace" the posterior determines the weights.

    n_evaluation_samples : int, default=None
        Number of training samples, the same for all models, whose loss determines the
        weights. None: the loss on the samples of the step, at no additional cost.

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

    classes_ : ndarray of shape (n_classes,)
        Class labels.

    n_samples_fit_ : int
        Number of training samples.

    penalty_features_ : ndarray of shape (n_kept, ...)
        Input of the searched layers for the training samples that are used.

    penalty_targets_ : ndarray of shape (n_kept,)
        Class indices of these samples.

    penalty_index_ : ndarray of shape (n_steps + 1, batch_size)
        Indices of these samples for each step; the last batch evaluates the last model.

    evaluation_index_ : ndarray of shape (n_evaluation_samples,)
        Indices of the samples that weight the models.

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
    QUAMRegressor : Adversarial models for regression.
    AdversarialModels : The models of one point.
    AdversarialModelDisplay : Plot of the searches of one point.
    DeepEnsemble : Models that are trained separately.

    Notes
    -----
    The searches of many points and classes share matrix products. Layers before the
    searched ones run once, batch normalization and dropout are in eval mode, and the
    network itself is not modified.

    `predict_proba` and `predict` use the given network in both settings.

    `fit` also takes a torch ``DataLoader`` of inputs and class labels in place of `X`,
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
    >>> bool(found.epistemic[1] > 2 * found.epistemic[0])
    True
    """

    _parameter_constraints: dict = {
        **BaseMembers._parameter_constraints,
        **QUAM_CONSTRAINTS,
        "component": [
            StrOptions({"delta", "laplace", "subspace", "sgmcmc"}),
            LocalComponent,
        ],
        "targets": [
            StrOptions({"all", "untargeted"}),
            Interval(Integral, 1, None, closed="left"),
        ],
    }

    _default_parts: dict = {"search": AdversarialSearch, "component": LocalComponent}
    _search_defaults: dict = {"n_steps": 56, "weight_decay": 1e-3, "c0": 10.0}

    def __init__(
        self,
        estimator,
        search=None,
        *,
        scope="dense",
        setting="b",
        targets="all",
        component="delta",
        temperature=0.1,
        n_evaluation_samples=None,
        n_jobs=None,
        random_state=None,
        device="auto",
        verbose=0,
    ):
        self.estimator = estimator
        self.search = search
        self.scope = scope
        self.setting = setting
        self.targets = targets
        self.component = component
        self.temperature = temperature
        self.n_evaluation_samples = n_evaluation_samples
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
            Class labels; None with a loader, which contains them.

        Returns
        -------
        self : QUAM
            The fitted estimator.
        """
        with fresh_fit(self):
            searches = Searches(self)
            if is_loader(X):
                check_loader(self.estimator, y)
            else:
                X, y = labeled_rows(X, y)
                y = check_target(y, self)
            self.estimator_ = fit_wrapped(self, self.estimator, X, y)
            check_one_column(self.estimator_)
            self.classes_ = np.asarray(self.estimator_.classes_)
            searches.draw_samples(X, y)
        return self

    # --- objective of the searches -------------------------------------------

    def _open(self):
        network = make_network(self.estimator_)
        return network.with_weights(device=self.device, for_steps=True)

    def _codes(self, y):
        return class_codes(check_target(y, self), self.classes_)

    def _outputs(self, network, rows, logits):
        return network.log_proba(rows, logits=logits)

    def _losses(self, outputs, targets):
        return -np.take_along_axis(outputs, targets[:, None], axis=1)[:, 0]

    def _targets(self, reference):
        n_classes = reference.shape[1]
        if self.targets == "untargeted":
            n_starts = self._part("search").n_starts
            return np.tile(np.arange(n_starts), (len(reference), 1))
        if self.targets == "all" or self.targets >= n_classes:
            return np.tile(np.arange(n_classes), (len(reference), 1))
        order = np.argsort(-reference, axis=1, kind="stable")
        return order[:, : self.targets]

    def _task(self, targets, reference, tail):
        network = tail.network
        chosen = torch.from_numpy(targets.ravel()).to(network.device)
        if self.targets != "untargeted":
            return Classes(chosen)
        each = torch.from_numpy(np.repeat(reference, targets.shape[1], axis=0))
        each = each.to(network.device, network.dtype)
        return Untargeted(chosen, each, self._seed)

    # --- uncertainty ---------------------------------------------------------

    def _blocks(self, X):
        for reference, outputs, weights, searches in Searches(self).members(X):
            yield Block(outputs, weights, reference, groups=searches)

    def _mixture_proba(self, X):
        """Return the class probabilities of the given network."""
        return np.exp(self._reference_log_proba(X))

    def _uncertainty(self, X, return_error):
        """Return the uncertainty of samples, computed in several processes."""
        return in_parallel(self, X, BaseMembers._uncertainty, return_error)

    def trace(self, x):
        """Return the details of the searches of one point.

        Parameters
        ----------
        x : array-like of shape (1, ...)
            The point, as a batch of one sample.

        Returns
        -------
        trace : Bunch
            ``targets``, the class labels, or the numbers of untargeted searches, of
            shape (n_targets,); of shape
            (n_steps + 1, n_targets), for the model before each step and after the
            last one, ``loss``, ``attack_loss``, ``training_loss``, ``penalty`` (how
            much the training loss exceeds that of the given network and `gamma`),
            ``divergence`` (of the given prediction from the model's), ``weights``
            (they sum to one), and ``log_proba`` with a third axis of classes;
            ``reference``, the log-probabilities of the given network, of shape
            (n_classes,).
        """
        trace, outputs, reference = Searches(self).trace(x)
        trace.targets = self._labels(trace.targets)
        trace.divergence = kl_divergence(reference, outputs)
        trace.log_proba = outputs
        trace.reference = reference[0]
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
            The models of each sample, one for each target.
        """
        return [
            AdversarialModels(
                targets=self._labels(targets),
                divergence=kl_divergence(reference, outputs),
                log_proba=outputs,
                **fields,
            )
            for reference, targets, outputs, fields in Searches(self).models(
                X, slack, log_posterior
            )
        ]

    def _labels(self, targets):
        """Return class labels of targets, or the numbers of untargeted searches."""
        return targets if self.targets == "untargeted" else self.classes_[targets]
