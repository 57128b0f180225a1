"""Evidential probe: evidence for the predictions of a trained network."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass
from math import log
from numbers import Integral, Real

import numpy as np
import torch
from scipy.special import logsumexp, softmax
from sklearn.base import ClassifierMixin, clone, is_regressor
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    has_fit_parameter,
)

from skood.base import UncertaintyMixin
from skood.evidential._graph_uncertainty import (
    WALKS,
    evidential_uncertainty,
    whole_graph,
)
from skood.evidential._probe_objective import (
    CAP,
    LEAST,
    ObjectiveSamples,
    ProbeObjective,
    concentrations,
    evidence_of,
)
from skood.graph import NodeSet
from skood.nn import TrainingOptions
from skood.nn._make_network import has_dense_features, make_network, predicts_softmax
from skood.nn._training import OPTIMIZERS, make_schedule
from skood.nn._training_data import check_target, stratified_split
from skood.nn._training_options import training_options
from skood.utils._atomic_fit import fresh_fit
from skood.utils._estimator import SkoodEstimator, with_aliases
from skood.utils._input import takes_input
from skood.utils._labels import label_codes
from skood.utils._log_proba import log_proba_of
from skood.utils._metaestimators import copy_input_attributes, fit_wrapped, wrapped_tags
from skood.utils._param_validation import Classifier, Interval, StrOptions, fit_context
from skood.utils._progress import progress
from skood.utils._sparse import check_dense
from skood.utils._torch import resolve_device, to_numpy, to_tensor
from skood.utils._warnings import warn

# Default learning rate and number of epochs for each activation.
_LR = {"exp": 1e-2, "softplus": 3e-2}
_MAX_EPOCHS = {"exp": 800, "softplus": 2000}


class EvidentialProbe(UncertaintyMixin, ClassifierMixin, SkoodEstimator):
    r"""Evidential probe: evidence for the predictions of a trained network.

    The network is not changed; it predicts the probabilities :math:`\tilde p` or, if it
    has no probabilities, the softmax of its logits. A small linear probe of its logits,
    or features, z is trained to predict the total evidence e for the C classes [1]_:

    .. math:: q = g(W z + b), \qquad e = \sum_c q_c, \qquad
       \alpha = e \tilde p + 1, \qquad u = \frac{C}{C + e}.

    :math:`\alpha` are the parameters of a Dirichlet distribution over class
    probabilities, and u, the vacuity, is the epistemic uncertainty. The probe minimizes
    a :class:`ProbeObjective`: the expected cross-entropy of the labeled samples, and
    two regularizers of the evidence, which need no labels, of all samples (all nodes of
    a graph).

    Read more in the :ref:`User Guide <evidential>`.

    Parameters
    ----------
    estimator : object
        A classifier supported by :class:`~skood.nn.FeatureExtractor`, on arrays, images
        or the nodes of a graph. It is cloned and fitted, unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`.

    objective : ProbeObjective, default=None
        The function g, the weights of the regularizers, and the values of the evidence
        for confident and other samples. None: ``ProbeObjective()``. The weights
        ``lambda_1`` and ``lambda_2`` in [1]_ are set as ``objective__lambda_ice`` and
        ``objective__lambda_pcl``.

    layer : str or int, default="last"
        Input of the probe: "last", the logits; or features at "penultimate" or another
        layer, see :class:`~skood.nn.FeatureExtractor`.

    propagation : str, default="vacuity"
        Values that `predict_uncertainty` averages over the neighbors of a node; None:
        no propagation. It can be changed without refitting. Predictions do not change.
        Samples of arrays have no neighbors.

        - "vacuity": u, by a random walk of 30 steps with teleport 0.02;
        - "log-evidence": :math:`\log(C + e)`, by the same walk. The epistemic
          uncertainty is :math:`\log C` minus the result, at most 0; without neighbors
          it is :math:`\log u`, whose order is that of u;
        - "evidence": :math:`\alpha`, by a random walk of 10 steps with teleport 0.1;
        - "both": first :math:`\alpha`, then u;
        - "evidence-sym": :math:`\alpha`, with the symmetric norm, as in equation 91 of
          [1]_; nodes with many neighbors get more evidence;
        - "vacuity-paper": C + e, by a random walk of 2 steps with teleport 0.5, as in
          equation 90 of [1]_.

    n_steps : int, default=None
        Number of steps of the walk. None: as above.

    teleport : float, default=None
        Weight of a node's own value in each step. None: as above.

    lr : float, default=None
        Learning rate. None: 1e-2 for "exp", 3e-2 for "softplus".

    max_epochs : int, default=None
        Number of full-batch steps. None: 800 for "exp", 2000 for "softplus".

    training : TrainingOptions, default=None
        Optimizer, learning rate schedule, weight decay and early stopping, see
        :class:`~skood.nn.TrainingOptions`. Defaults that differ: `weight_decay` 1e-4,
        `early_stopping` True, `n_iter_no_change` 50 and `tol` 0, which is a fraction of
        the objective. Validation samples passed to `fit` are used in any case.

    random_state : int, RandomState instance or None, default=None
        Seed of the choice of held-out samples and, for features, of the initial
        weights; not used by `estimator`.

    device : {"auto"}, str or torch.device, default="auto"
        Device of the probe: "auto" is CUDA if available, else the CPU. For the network,
        see :class:`~skood.nn.FeatureExtractor`.

    verbose : int, default=0
        1 shows a progress bar over the epochs.

    Attributes
    ----------
    estimator_ : object
        The fitted network.

    coef_ : ndarray of shape (n_classes, n_features)
        Weights W of the probe.

    intercept_ : ndarray of shape (n_classes,)
        Biases b of the probe.

    classes_ : ndarray of shape (n_classes,)
        Class labels of the network.

    n_iter_ : int
        Number of epochs trained.

    history_ : list of dict
        For each epoch: `epoch` (from 1), `train_loss` (before its step) and, with
        validation samples, `valid_loss` (after it).

    n_features_in_ : int
        Number of features, if the network has this attribute.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, only if all of them are strings.

    See Also
    --------
    EvidentialClassifier : Trains a network to predict evidence itself.
    skood.base.UncertaintyDetector : Converts its uncertainty to a detector.
    skood.detectors.Energy : Score of the initial probe of logits.
    skood.graph.Propagation : Propagates the scores of any detector.

    Notes
    -----
    Samples whose class is not in the `classes_` of a frozen network, such as left-out
    classes, are left out of `fit`. On a graph they remain nodes, like all nodes that
    are not in the set given to `fit`, which are in the terms without labels. This also
    holds for a frozen network without `y`.

    The probe distills the confidence of the network, so that it need not be better than
    ``Propagation(Entropy(estimator))``, the entropy of the network after the same walk:
    on CoraML both are comparable, on AmazonPhoto the probe is worse. On other graphs,
    such as CiteSeer, GNNSafe is comparable or better. The
    :ref:`User Guide <graph_default>` combines them.

    Total uncertainty is the entropy of the mean of the Dirichlet distribution,
    aleatoric uncertainty minus the largest probability, between -1 and -1 / C, of the
    network or, where :math:`\alpha` is propagated, of its mean; the first is not the
    sum of the other two. Larger values are more uncertain.

    References
    ----------
    .. [1] L. Yu, K. Li, P. K. Saha, Y. Lou, F. Chen. Evidential uncertainty probes for
       graph neural networks. AISTATS 2025.

    Examples
    --------
    Two classes, a network, and samples near one class and between both:

    >>> import numpy as np
    >>> from sklearn.frozen import FrozenEstimator
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.evidential import EvidentialProbe
    >>> y = np.arange(100) % 2
    >>> X = np.random.default_rng(0).normal(size=(100, 2)) + np.c_[0 * y, 4 * y - 2]
    >>> network = LogisticRegression().fit(X, y)
    >>> probe = EvidentialProbe(FrozenEstimator(network), random_state=0).fit(X, y)
    >>> probe.predict_evidence([[0, 3], [0, 0]]).round()
    array([362.,  49.])
    >>> probe.predict_proba([[0, 1]]).round(2), network.predict_proba([[0, 1]]).round(2)
    (array([[0.06, 0.94]]), array([[0.06, 0.94]]))
    """

    _parameter_constraints: dict = {
        "estimator": [Classifier()],
        "objective": [ProbeObjective, None],
        "layer": [str, Integral],
        "propagation": [StrOptions({"both", *WALKS}), None],
        "n_steps": [Interval(Integral, 0, None, closed="left"), None],
        "teleport": [Interval(Real, 0, 1, closed="both"), None],
        "lr": [Interval(Real, 0, None, closed="neither"), None],
        "max_epochs": [Interval(Integral, 1, None, closed="left"), None],
        "training": [TrainingOptions, None],
        "random_state": ["random_state"],
        "device": [str, torch.device],
        "verbose": ["verbose"],
    }

    _default_parts: dict = {"objective": ProbeObjective, "training": TrainingOptions}
    _aliases: dict = {
        **dict.fromkeys(("lambda_1", "lambda1", "lambda_ice"), "objective__lambda_ice"),
        **dict.fromkeys(("lambda_2", "lambda2", "lambda_pcl"), "objective__lambda_pcl"),
    }
    _training_defaults: dict = {
        "weight_decay": 1e-4,
        "early_stopping": True,
        "n_iter_no_change": 50,
        "tol": 0.0,
    }

    @with_aliases
    def __init__(
        self,
        estimator,
        objective=None,
        *,
        layer="last",
        propagation="vacuity",
        n_steps=None,
        teleport=None,
        lr=None,
        max_epochs=None,
        training=None,
        random_state=None,
        device="auto",
        verbose=0,
    ):
        self.estimator = estimator
        self.objective = objective
        self.layer = layer
        self.propagation = propagation
        self.n_steps = n_steps
        self.teleport = teleport
        self.lr = lr
        self.max_epochs = max_epochs
        self.training = training
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=False)  # the estimator is the user's
    def fit(self, X, y=None, *, X_val=None, y_val=None):
        """Fit the network, unless it is frozen, then the probe.

        Parameters
        ----------
        X : array-like or NodeSet of shape (n_samples, ...)
            Input of the network. It is run once; on a graph, for all nodes.

        y : array-like of shape (n_samples,), default=None
            Class labels. None, for a frozen network: the probe is trained only on the
            terms without labels.

        X_val : array-like or NodeSet of shape (n_val, ...), default=None
            Validation samples, for early stopping; nodes of the same graph or of
            another one. They are also passed to the fit of the network if it supports
            them, as in :class:`~skood.graph.GraphClassifier`.

        y_val : array-like of shape (n_val,), default=None
            Labels of the validation samples. None: as for `y`.

        Returns
        -------
        self : EvidentialProbe
            The fitted classifier.

        Raises
        ------
        TypeError
            If the estimator is a regressor.
        ValueError
            If the data are invalid, no sample is of a class of the network, nothing is
            left to train on, or training diverges. The estimator then is left
            unchanged.
        """
        with fresh_fit(self):
            self._objective = clone(self._part("objective"))
            options = training_options(self)
            self._check_options(options, y, X_val, y_val)
            self._layer = self.layer
            self.estimator_ = self._fit_network(X, y, X_val, y_val)
            self.classes_ = np.asarray(self.estimator_.classes_)
            if len(self.classes_) < 2:
                raise ValueError(
                    "An EvidentialProbe needs a network of at least two classes, got "
                    f"1 class: {self.classes_.tolist()[0]!r}."
                )
            self._fit_probe(X, y, X_val, y_val, options)
        return self

    # --- fit ---------------------------------------------------------------------

    def _check_options(self, options, y, X_val, y_val):
        """Raise for regressors, and for invalid combinations of parameters."""
        name, estimator, objective = (
            type(self).__name__,
            self.estimator,
            self._objective,
        )
        if hasattr(estimator, "__sklearn_tags__") and is_regressor(estimator):
            raise TypeError(
                f"{name} adds evidence to the probabilities of a classifier, and its "
                f"estimator {estimator!r} is a regressor. Pass a classifier."
            )
        if objective.e_ood > objective.e_id:
            raise ValueError(
                f"e_ood={objective.e_ood} must not be above e_id={objective.e_id}: it "
                "is the evidence of samples that the network is not sure of."
            )
        if options.tol >= 1:
            raise ValueError(
                f"tol={options.tol} must be below 1: it is a fraction of the objective."
            )
        if y is None and not isinstance(estimator, FrozenEstimator):
            raise ValueError(
                f"{name} requires y to be passed, but the target y is None: it fits "
                f"its estimator {estimator!r}. Pass class labels, or a fitted "
                "estimator inside sklearn.frozen.FrozenEstimator."
            )
        if y is None and not objective.lambda_ice and not objective.lambda_pcl:
            raise ValueError(
                "Without y only the terms that need no labels are trained, and both "
                "lambda_ice and lambda_pcl are 0. Pass y, or raise one of them."
            )
        if X_val is None and y_val is not None:
            raise ValueError("y_val was passed without X_val. Pass both, or neither.")
        if X_val is not None and (y is None) != (y_val is None):
            raise ValueError(
                "Pass y_val with X_val if y is given, and leave it out if not: the "
                "objective is the same for training and validation."
            )

    def _fit_network(self, X, y, X_val, y_val):
        """Return the fitted network, or the frozen one."""
        estimator = self.estimator
        if X_val is None or not has_fit_parameter(estimator, "X_val"):
            return fit_wrapped(self, estimator, X, y)
        fitted = clone(estimator).fit(X, y, X_val=X_val, y_val=y_val)
        copy_input_attributes(self, fitted)
        return fitted

    def _labeled(self, X, y, outputs):
        """Return a selection of the outputs: samples whose class is in `classes_`."""
        indices = X.nodes if isinstance(X, NodeSet) else np.arange(len(outputs.proba))
        if y is None:
            return outputs.take(indices)
        y = check_target(y, self)
        check_consistent_length(indices, y)
        codes = label_codes(y, self.classes_)
        known = codes >= 0
        if not known.any():
            raise ValueError(
                "No sample of y is of a class of the network, whose classes_ are "
                f"{self.classes_.tolist()}; got labels such as {y.tolist()[0]!r}. Pass "
                "samples of these classes, or no y."
            )
        return outputs.take(indices[known], codes[known])

    def _fit_probe(self, X, y, X_val, y_val, options):
        """Train the probe on the outputs of the network.

        On a graph, the terms without labels are averaged over all nodes.
        """
        rng, objective = check_random_state(self.random_state), self._objective
        outputs = self._outputs(whole_graph(X, self))
        train, valid = self._labeled(X, y, outputs), None
        is_graph = isinstance(X, NodeSet)
        if X_val is not None:
            is_same = is_graph and isinstance(X_val, NodeSet) and X_val.graph is X.graph
            of_valid = outputs if is_same else self._outputs(whole_graph(X_val, self))
            valid = self._labeled(X_val, y_val, of_valid)
        elif options.early_stopping:
            train, valid = train.split(options.validation_fraction, rng)
        device, is_logits = resolve_device(self.device), self.layer == "last"
        inputs = (outputs if is_graph else train).inputs
        center, scale = input_scale(inputs, is_logits, objective.e_id)

        def scaled(samples, regularized=True):
            return ObjectiveSamples(
                (samples.inputs - center) / scale,
                samples.proba,
                samples.codes,
                regularized=regularized,
                corrected=objective.confidence == "corrected",
                device=device,
            )

        if objective.concentration == "paper" and train.codes is not None:
            _warn_of_poles(train.proba, train.codes)
        if not is_graph:
            training = [scaled(train)]
        else:
            training = [] if train.codes is None else [scaled(train, False)]
            if objective.lambda_ice or objective.lambda_pcl:
                training.append(scaled(outputs))
        n_classes = len(self.classes_)
        start = np.eye(n_classes), np.zeros(n_classes)
        if not is_logits:
            W = rng.uniform(-1.0, 1.0, size=(n_classes, len(scale)))
            start = W / np.sqrt(len(scale)), start[1]
        max_epochs = self.max_epochs or _MAX_EPOCHS[objective.activation]
        with progress(max_epochs, desc="EvidentialProbe", verbose=self.verbose) as bar:
            (W, b), self.history_ = train_probe(
                objective,
                training,
                None if valid is None else [scaled(valid)],
                start,
                lr=self.lr or _LR[objective.activation],
                max_epochs=max_epochs,
                options=options,
                bar=bar,
            )
        self.coef_ = W / scale
        self.intercept_ = b - self.coef_ @ center
        self.n_iter_ = len(self.history_)

    # --- outputs of the network --------------------------------------------------

    @property
    def _needs(self):
        """Return the outputs of the network that are used, see `make_network`."""
        last = getattr(self, "_layer", self.layer) == "last"  # fitted: value in fit
        return frozenset({"logits"} if last else {"features", "logits"})

    @property
    def _network_options(self):
        """Return the options of the reader, see `make_network`."""
        layer, options = getattr(self, "_layer", self.layer), {"device": self.device}
        return options if layer == "last" else {"layer": layer, **options}

    def _outputs(self, X):
        """Return the inputs of the probe and the probabilities, from one pass."""
        if "estimator_" not in vars(self):  # for the speed of small calls
            check_is_fitted(self)
        network = make_network(self.estimator_, **self._network_options)
        outputs = network.outputs(X, self._needs)
        inputs = outputs.logits
        if outputs.features is not None:
            check_dense(inputs := outputs.features)
        inputs = np.asarray(inputs, dtype=np.float64)
        return ProbeSamples(inputs, self._proba(X, outputs.logits))

    def _proba(self, X, logits=None):
        """Return the float64 probabilities of the network, (n_samples, n_classes).

        They are the softmax of the logits (computed if None), or the output of
        ``predict_proba`` if it is another function.
        """
        if not predicts_softmax(self.estimator_):
            return np.exp(log_proba_of(self.estimator_, to_numpy(X)))
        logits = self._logits(X) if logits is None else logits
        return softmax(np.asarray(logits, dtype=np.float64), axis=1)

    def _logits(self, X):
        network = make_network(self.estimator_, device=self.device)
        return network.outputs(X, {"logits"}).logits

    def _evidence(self, outputs):
        # not by @, whose last digit depends on the number of samples
        scores = np.einsum("nd,cd->nc", outputs.inputs, self.coef_) + self.intercept_
        objective = self._objective
        return evidence_of(scores, objective.activation, objective.e_id).sum(axis=1)

    def _alpha(self, outputs):
        kind = self._objective.concentration
        return concentrations(self._evidence(outputs), outputs.proba, kind)

    # --- prediction --------------------------------------------------------------

    @takes_input
    def predict_proba(self, X):
        """Return the class probabilities of the network.

        Parameters
        ----------
        X : array-like or NodeSet of shape (n_samples, ...)
            Samples.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes), dtype float64
            Probabilities of the network, in the order of ``classes_``; if it has no
            ``predict_proba``, the softmax of its logits.
        """
        check_is_fitted(self)
        return self._proba(X)

    @takes_input
    def predict(self, X):
        """Return the class predicted by the network, which has its largest logit.

        Parameters
        ----------
        X : array-like or NodeSet of shape (n_samples, ...)
            Samples.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Class labels.
        """
        check_is_fitted(self)
        return self.classes_[self._logits(X).argmax(axis=1)]

    @takes_input
    def predict_evidence(self, X):
        """Return the total evidence for a prediction.

        Parameters
        ----------
        X : array-like or NodeSet of shape (n_samples, ...)
            Samples.

        Returns
        -------
        evidence : ndarray of shape (n_samples,), dtype float64
            e, not negative; larger for samples with confident predictions. It is not
            propagated.
        """
        return self._evidence(self._outputs(X))

    @takes_input
    def predict_alpha(self, X):
        r"""Return the parameters of the Dirichlet distributions.

        Parameters
        ----------
        X : array-like or NodeSet of shape (n_samples, ...)
            Samples.

        Returns
        -------
        alpha : ndarray of shape (n_samples, n_classes), dtype float64
            :math:`e \tilde p + 1`, or as set by ``objective__concentration``, in the
            order of ``classes_``. They are not propagated.
        """
        return self._alpha(self._outputs(X))

    @takes_input
    def predict_uncertainty(self, X):
        """Return total, aleatoric and epistemic uncertainty.

        Parameters
        ----------
        X : array-like or NodeSet of shape (n_samples, ...)
            Samples.

        Returns
        -------
        uncertainty : Bunch
            ``total``, the entropy of the mean of the Dirichlet distribution;
            ``aleatoric``, minus the largest probability; ``epistemic``, the vacuity C /
            (C + e), or its logarithm with "log-evidence". On nodes of a graph after the
            `propagation`. Each is an ndarray of shape (n_samples,), larger for more
            uncertain samples.
        """
        outputs = self._outputs(whole_graph(X, self))
        kind = self._objective.concentration
        alpha = concentrations(self._evidence(outputs), outputs.proba, kind)
        return evidential_uncertainty(
            alpha,
            X,
            propagation=self.propagation,
            n_steps=self.n_steps,
            teleport=self.teleport,
            proba=outputs.proba,
        )

    def __sklearn_tags__(self):
        tags = wrapped_tags(super().__sklearn_tags__(), self.estimator)
        if self.layer != "last":  # features may be X itself
            tags.input_tags.sparse &= has_dense_features(self.estimator)
        return tags


@dataclass(frozen=True)
class ProbeSamples:
    """Inputs of the probe, probabilities of the network, and class codes or None."""

    inputs: np.ndarray
    proba: np.ndarray
    codes: np.ndarray | None = None

    def take(self, indices, codes=None):
        """Return a selection of samples, with classes or without."""
        return ProbeSamples(self.inputs[indices], self.proba[indices], codes)

    def split(self, fraction, random_state):
        """Split into training and validation samples, stratified by class."""
        codes = self.codes
        strata = np.zeros(len(self.proba), dtype=np.int64) if codes is None else codes
        return tuple(
            self.take(fold, None if codes is None else codes[fold])
            for fold in stratified_split(strata, fraction, random_state)
        )


def _warn_of_poles(proba, codes):
    """Warn if classes have nearly no probability: their digamma is about -1 / alpha."""
    of_class = proba[np.arange(len(codes)), codes]
    n_below = int(np.sum(of_class * proba.shape[1] < LEAST))
    if n_below:
        warn(
            f"concentration='paper' has the parameter {LEAST:g} in place of less for "
            f"the class of {n_below} of {len(codes)} samples, whose cross-entropy is "
            "about a million. Use concentration='shifted'."
        )


def train_probe(objective, parts, valid, start, *, lr, max_epochs, options, bar):
    """Minimize a `ProbeObjective` in full-batch steps; return (W, b) and the history.

    `parts` and `valid` are lists of `ObjectiveSamples`; the latter, or None, determine
    the stopping epoch and the weights. `start` are W and b.
    """
    like = parts[0].proba
    weights = [to_tensor(array.copy(), like.device, like.dtype) for array in start]
    make, defaults = OPTIMIZERS[options.optimizer]
    optimizer = make(weights, lr=lr, weight_decay=options.weight_decay, **defaults)
    schedule, _ = make_schedule(options.lr_schedule, optimizer, max_epochs, 1)
    best_weights = [tensor.clone() for tensor in weights]
    best, waited_for, waited, history = np.inf, np.inf, 0, []
    for epoch in range(1, max_epochs + 1):
        loss, gradients = objective(*weights, parts)
        if not np.isfinite(loss):
            raise ValueError(
                f"The objective of the probe is {loss} in epoch {epoch}: training "
                "diverges. Lower lr or e_id, or scale the inputs of the probe."
            )
        for tensor, gradient in zip(weights, gradients, strict=True):
            tensor.grad = gradient
        optimizer.step()
        if schedule is not None:
            schedule.step()
        history.append({"epoch": epoch, "train_loss": loss})
        bar.update(1)
        if valid is None:
            bar.set_postfix(train_loss=loss)
            continue
        loss, _ = objective(*weights, valid, gradient=False)
        history[-1]["valid_loss"] = loss
        bar.set_postfix(valid_loss=loss)
        if loss < best:
            best, best_weights = loss, [tensor.clone() for tensor in weights]
        gained = loss < waited_for - options.tol * abs(waited_for)
        if gained or not np.isfinite(waited_for):
            waited_for, waited = loss, 0
        else:
            waited += 1
            if waited >= options.n_iter_no_change:
                break
    result = weights if valid is None else best_weights
    return tuple(t.cpu().numpy().astype(np.float64) for t in result), history


def input_scale(z, is_logits, e_id):
    """Return the center and scale, of shape (n_inputs,), for the inputs of a probe.

    Logits are divided by one temperature, or not at all; features are standardized.
    `e_id` is the evidence of a sample with full confidence.
    """
    if not is_logits:
        scale = z.std(axis=0)
        return z.mean(axis=0), np.where(scale > 0, scale, 1.0)
    energy = np.quantile(logsumexp(z, axis=1), 0.95)
    temperature = max(1.0, energy / max(1.0, log(CAP * e_id)))
    return np.zeros(z.shape[1]), np.full(z.shape[1], temperature)
