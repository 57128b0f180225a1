"""The evidential probe: how much evidence a trained network has for what it says."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real

import numpy as np
import torch
from sklearn.base import ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from skood.base import UncertaintyMixin
from skood.evidential._dirichlet_uncertainty import whole_graph
from skood.evidential._probe_inputs import (
    SCHEMES,
    Samples,
    Seen,
    check_options,
    input_scale,
    proba_of,
    probe_uncertainty,
)
from skood.evidential._probe_training import Objective, Part, evidence_of, train_probe
from skood.graph._node_set import NodeSet, as_nodes
from skood.nn._sklearn_network import read
from skood.utils._atomic_fit import fresh_fit
from skood.utils._estimator import SkoodEstimator
from skood.utils._input import takes_input
from skood.utils._metaestimators import copy_input_attributes, fit_wrapped, wrapped_tags
from skood.utils._param_validation import Classifier, Interval, StrOptions, fit_context
from skood.utils._progress import progress
from skood.utils._torch import resolve_device

__all__ = ["EvidentialProbe"]

# What the learning rate and the number of epochs are, unless they are given.
_LR = {"exp": 1e-2, "softplus": 3e-2}
_MAX_EPOCHS = {"exp": 800, "softplus": 2000}


class EvidentialProbe(UncertaintyMixin, ClassifierMixin, SkoodEstimator):
    r"""Evidence for the predictions of a trained network, from a small probe of it.

    The network stays as it is, with the probabilities :math:`\tilde p` that it predicts
    or, if it predicts none, the softmax of its logits. A probe reads its logits, or
    features, z and is trained to tell how much evidence e there is, in all, for the C
    classes [1]_:

    .. math:: q = g(W z + b), \qquad e = \sum_c q_c, \qquad
       \alpha = e \tilde p + 1, \qquad u = \frac{C}{C + e}.

    :math:`\alpha` are the parameters of a Dirichlet distribution over distributions
    over classes, and u, the vacuity, is the epistemic uncertainty. The objective is

    .. math::

        \psi(e + C) - \psi(e \tilde p_y + 1)
        &+ \lambda_{ICE} \|(C + e) \tilde p - q\|^2 \\
        &+ \lambda_{PCL} \Bigl(\max(0, e_{ID} - e)^2
        + \frac{1 - r}{r} \max(0, e - e_{OOD})^2\Bigr),

    with the mean of the first line over the samples of `y`, and of the others, which
    need no labels, over all samples: of a graph, all its nodes. r is the confidence of
    the network.

    Read more in the :ref:`User Guide <evidential>`.

    Parameters
    ----------
    estimator : object
        A classifier that skood can read, on arrays, images or the nodes of a graph; see
        :class:`~skood.nn.FeatureExtractor`. It is cloned and fitted, unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`.

    lambda_ice : float, default=1e-3
        Weight of the term that draws the evidence of each class to what the
        probabilities say: with it, evidence follows the energy of the network. More
        than 1e-2 outweighs the next term.

    lambda_pcl : float, default=1e-3
        Weight of the term that wants much evidence where the network is confident, and
        little where it is not. If both weights are zero, evidence only grows with
        training, up to a cap.

    activation : {"exp", "softplus"}, default="exp"
        The function g. With "exp" no class has more than ten times `e_id`.

    e_id : float, default=100
        Evidence of a sample that the network is sure of.

    e_ood : float, default=0
        Evidence of a sample that it is not sure of at all, at most `e_id`.

    confidence : {"corrected", "max"}, default="corrected"
        What r is: the largest probability of the network, or how far it is above
        chance, :math:`(\max_c \tilde p_c - 1/C) / (1 - 1/C)`, but at least 0.01.

    layer : str or int, default="last"
        What the probe reads: "last", the logits; or features at "penultimate" or
        another layer, see :class:`~skood.nn.FeatureExtractor`.

    propagation : str, default="vacuity"
        What `predict_uncertainty` averages over the neighbors of a node; None:
        nothing. It can be changed without another fit. Predictions do not change. Rows
        of arrays have no neighbors.

        - "vacuity": u, by a random walk of 30 steps with teleport 0.02;
        - "evidence": :math:`\alpha`, by a random walk of 10 steps with teleport 0.1;
        - "both": first :math:`\alpha`, then u;
        - "evidence-sym": :math:`\alpha`, with the symmetric norm, as equation 91 of
          [1]_ has it; nodes with many neighbors so get more evidence;
        - "vacuity-paper": C + e, by a random walk of 2 steps with teleport 0.5, as
          equation 90 of [1]_ has it.

    steps : int, default=None
        Steps of the walk. None: as above.

    teleport : float, default=None
        Weight of a node's own value in each step. None: as above.

    lr : float, default=None
        Learning rate of Adam. None: 1e-2 for "exp", 3e-2 for "softplus".

    weight_decay : float, default=1e-4
        Of Adam, for W and b.

    max_epochs : int, default=None
        Number of steps, each from all samples. None: 800 for "exp", 2000 for
        "softplus".

    early_stopping : bool, default=True
        Hold out validation samples, unless `fit` is given some, stop when the objective
        on them no longer falls, and keep the weights for which it was smallest.

    validation_fraction : float, default=0.1
        Share of the samples of `y` to hold out, stratified by class.

    patience : int, default=50
        Early stopping waits for this many epochs without a gain of `tol`.

    tol : float, default=0.0
        The gain that counts, as a share of the objective.

    random_state : int, RandomState instance or None, default=None
        Draws the samples to hold out and, for features, the weights at the start. It
        does not seed `estimator`.

    device : {"auto"}, str or torch.device, default="auto"
        Where the probe is trained, and the network read: "auto" is CUDA if there is
        one, else the CPU, and for the network what :class:`~skood.nn.FeatureExtractor`
        says.

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
        Class labels: those of the network.

    n_iter_ : int
        Number of epochs trained.

    history_ : list of dict
        For each epoch: `epoch` (from 1), `train_loss` (before its step) and, with
        validation samples, `valid_loss` (after it).

    n_features_in_ : int
        Number of features, if the network tells it.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, only if all of them are strings.

    See Also
    --------
    EvidentialClassifier : Trains a network to give evidence itself.
    skood.base.UncertaintyDetector : Makes a detector of it.
    skood.detectors.Energy : What the probe of logits starts from.
    skood.graph.Propagation : Propagates the scores of any detector.

    Notes
    -----
    With the objective divided by what is the same for all samples, evidence is best at

    .. math:: e^* = r\, e_{ID} + (1 - r)\, e_{OOD}

    where only the last term counts: the probe learns how confident the network is, as a
    linear function of what it reads, and not more. The first term alone has no minimum:
    it falls with e almost everywhere. On logits the probe starts from W = I and b = 0,
    where with "exp" the evidence is that of the energy,
    :math:`e = \sum_c e^{z_c}`, up to the cap. Logits whose energy is above the cap for
    more than 5 % of the samples are divided by a temperature first; `coef_` includes
    it.

    A frozen network may not know all labels of `y`: samples of classes that are not
    among its `classes_`, such as left-out ones, are left out of `fit`. Of a graph they
    remain nodes, as all that are not in the set given to `fit` do, which are in the
    terms without labels. So it is for a frozen network without any `y`.

    The probe distils the confidence of the network, so that it need not be better than
    ``Propagation(Entropy(estimator))``, the entropy of the network after the same walk:
    on CoraML both are level, on AmazonPhoto the probe is behind. On other graphs, such
    as CiteSeer, GNNSafe is level with it or ahead. The :ref:`User Guide
    <graph_default>` combines them.

    Total uncertainty is the entropy of the mean of the Dirichlet distribution,
    aleatoric uncertainty minus the largest probability, between -1 and -1 / C, of the
    network or, where :math:`\alpha` is propagated, of its mean; the first is not the
    sum of the other two. High means uncertain.

    References
    ----------
    .. [1] L. Yu, K. Li, P. K. Saha, Y. Lou, F. Chen. Evidential uncertainty probes for
       graph neural networks. AISTATS 2025.

    Examples
    --------
    Two classes, a network, and samples that are near one class, and between both:

    >>> import numpy as np
    >>> from sklearn.frozen import FrozenEstimator
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.evidential import EvidentialProbe
    >>> y = np.arange(100) % 2
    >>> X = np.random.default_rng(0).normal(size=(100, 2)) + np.c_[0 * y, 4 * y - 2]
    >>> network = LogisticRegression().fit(X, y)
    >>> probe = EvidentialProbe(FrozenEstimator(network), random_state=0).fit(X, y)
    >>> near, between = probe.predict_evidence([[0, 3], [0, 0]])
    >>> bool(near > 2 * between)
    True
    >>> bool(np.allclose(probe.predict_proba(X), network.predict_proba(X)))
    True
    """

    _parameter_constraints: dict = {
        "estimator": [Classifier()],
        "lambda_ice": [Interval(Real, 0, None, closed="left")],
        "lambda_pcl": [Interval(Real, 0, None, closed="left")],
        "activation": [StrOptions({"exp", "softplus"})],
        "e_id": [Interval(Real, 0, None, closed="neither")],
        "e_ood": [Interval(Real, 0, None, closed="left")],
        "confidence": [StrOptions({"corrected", "max"})],
        "layer": [str, Integral],
        "propagation": [StrOptions(SCHEMES), None],
        "steps": [Interval(Integral, 0, None, closed="left"), None],
        "teleport": [Interval(Real, 0, 1, closed="both"), None],
        "lr": [Interval(Real, 0, None, closed="neither"), None],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "max_epochs": [Interval(Integral, 1, None, closed="left"), None],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "patience": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, 1, closed="left")],
        "random_state": ["random_state"],
        "device": [str, torch.device],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        estimator,
        *,
        lambda_ice=1e-3,
        lambda_pcl=1e-3,
        activation="exp",
        e_id=100,
        e_ood=0,
        confidence="corrected",
        layer="last",
        propagation="vacuity",
        steps=None,
        teleport=None,
        lr=None,
        weight_decay=1e-4,
        max_epochs=None,
        early_stopping=True,
        validation_fraction=0.1,
        patience=50,
        tol=0.0,
        random_state=None,
        device="auto",
        verbose=0,
    ):
        self.estimator = estimator
        self.lambda_ice = lambda_ice
        self.lambda_pcl = lambda_pcl
        self.activation = activation
        self.e_id = e_id
        self.e_ood = e_ood
        self.confidence = confidence
        self.layer = layer
        self.propagation = propagation
        self.steps = steps
        self.teleport = teleport
        self.lr = lr
        self.weight_decay = weight_decay
        self.max_epochs = max_epochs
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.tol = tol
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @fit_context(
        # The network comes from the user and is validated by its own fit.
        prefer_skip_nested_validation=False
    )
    def fit(self, X, y=None, *, X_val=None, y_val=None):
        """Fit the network, unless it is frozen, then the probe.

        Parameters
        ----------
        X : array-like or NodeSet of shape (n_samples, ...)
            What the network reads. It is run over it once; of a graph, over all nodes.

        y : array-like of shape (n_samples,), default=None
            Class labels. None, for a frozen network: the probe is trained on the terms
            without labels.

        X_val : array-like or NodeSet of shape (n_val, ...), default=None
            Validation samples, for early stopping; nodes of the same graph or of
            another one. They are passed on to the fit of the network too if it takes
            them, as that of :class:`~skood.graph.GraphClassifier` does.

        y_val : array-like of shape (n_val,), default=None
            Their labels. None: as for `y`.

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
            left to train on, or training diverges. The estimator then is as it was
            before the call.
        """
        with fresh_fit(self):
            check_options(self, y, X_val, y_val)
            self._layer = self.layer
            self._activation, self._e_id = self.activation, self.e_id
            self.estimator_ = self._fit_network(X, y, X_val, y_val)
            self.classes_ = np.asarray(self.estimator_.classes_)
            if len(self.classes_) < 2:
                raise ValueError(
                    "An EvidentialProbe needs a network of at least two classes, got "
                    f"1 class: {self.classes_.tolist()[0]!r}."
                )
            self._fit_probe(X, y, X_val, y_val)
        return self

    # --- fit ---------------------------------------------------------------------

    def _fit_network(self, X, y, X_val, y_val):
        """Return the fitted network, or the frozen one."""
        estimator = self.estimator
        if X_val is None or not has_fit_parameter(estimator, "X_val"):
            return fit_wrapped(self, estimator, X, y)
        fitted = clone(estimator).fit(X, y, X_val=X_val, y_val=y_val)
        copy_input_attributes(self, fitted)
        return fitted

    def _samples(self, X, y, X_val, y_val, rng):
        """Samples to train on, and to validate on or None."""
        seen = self._read_whole(X)
        train = Samples.of(X, y, seen, self)
        if X_val is not None:
            both = isinstance(X, NodeSet) and isinstance(X_val, NodeSet)
            if not (both and X_val.graph is X.graph):
                seen = self._read_whole(X_val)
            return train, Samples.of(X_val, y_val, seen, self)
        if not self.early_stopping:
            return train, None
        return train.split(self.validation_fraction, rng)

    def _fit_probe(self, X, y, X_val, y_val):
        """Train the probe on what the network gives."""
        rng = check_random_state(self.random_state)
        train, valid = self._samples(X, y, X_val, y_val, rng)
        seen = train.seen if isinstance(X, NodeSet) else train.own
        center, scale = input_scale(seen.inputs, self.layer == "last", self.e_id)
        device = resolve_device(self.device)

        def part(seen, codes, regularized=True):
            return Part(
                (seen.inputs - center) / scale,
                seen.proba,
                codes,
                regularized=regularized,
                corrected=self.confidence == "corrected",
                device=device,
            )

        if not isinstance(X, NodeSet):
            parts = [part(seen, train.codes)]
        else:
            parts = [part(train.own, train.codes, False)] if y is not None else []
            if self.lambda_ice or self.lambda_pcl:
                parts.append(part(seen, None))
        if valid is not None:
            valid = [part(valid.own, valid.codes)]
        W, b = self._train(parts, valid, self._start(len(scale), rng))
        self.coef_ = W / scale
        self.intercept_ = b - self.coef_ @ center

    def _train(self, parts, valid, start):
        """Return W and b; set what tells how they were found."""
        max_epochs = self.max_epochs or _MAX_EPOCHS[self.activation]
        bar = progress(max_epochs, desc=type(self).__name__, verbose=self.verbose)
        objective = Objective(
            lambda_ice=self.lambda_ice,
            lambda_pcl=self.lambda_pcl,
            activation=self.activation,
            e_id=self.e_id,
            e_ood=self.e_ood,
        )
        with bar:
            weights, history = train_probe(
                objective,
                parts,
                valid,
                start,
                lr=self.lr or _LR[self.activation],
                weight_decay=self.weight_decay,
                max_epochs=max_epochs,
                patience=self.patience,
                tol=self.tol,
                bar=bar,
            )
        self.history_ = history
        self.n_iter_ = len(history)
        return weights

    def _start(self, n_inputs, rng):
        """W and b before the first step."""
        n_classes = len(self.classes_)
        if self.layer == "last":
            return np.eye(n_classes), np.zeros(n_classes)
        W = rng.uniform(-1.0, 1.0, size=(n_classes, n_inputs)) / np.sqrt(n_inputs)
        return W, np.zeros(n_classes)

    # --- what it reads -----------------------------------------------------------

    @property
    def _reads(self):
        """What it reads off the network, see `make_reader`."""
        last = getattr(self, "_layer", self.layer) == "last"  # of a fitted one: of fit
        return frozenset({"logits"} if last else {"features", "logits"})

    @property
    def _reader_options(self):
        """Options of the reader, see `make_reader`."""
        layer, options = getattr(self, "_layer", self.layer), {"device": self.device}
        return options if layer == "last" else {"layer": layer, **options}

    def _read(self, X):
        return Seen.of(self.estimator_, X, self._reads, **self._reader_options)

    def _read_whole(self, X):
        """Read all nodes of a graph, or rows."""
        if isinstance(X, NodeSet):
            X = whole_graph(as_nodes(X, estimator=self))
        return self._read(X)

    def _evidence(self, seen):
        # not by @, the last digit of which depends on the number of rows
        scores = np.einsum("nd,cd->nc", seen.inputs, self.coef_)
        q = evidence_of(scores + self.intercept_, self._activation, self._e_id)
        return q.sum(axis=1)

    def _alpha(self, seen):
        return self._evidence(seen)[:, None] * seen.proba + 1.0

    # --- prediction --------------------------------------------------------------

    @takes_input
    def predict_proba(self, X):
        """Probabilities of the classes, those of the network.

        Parameters
        ----------
        X : array-like or NodeSet of shape (n_samples, ...)
            Samples.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes), dtype float64
            Those that the network predicts, in the order of ``classes_``; if it has no
            ``predict_proba``, the softmax of its logits.
        """
        check_is_fitted(self)
        return proba_of(self.estimator_, X, device=self.device)

    @takes_input
    def predict(self, X):
        """Class that the network predicts, which has its largest logit.

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
        logits = read(self.estimator_, X, {"logits"}, device=self.device).logits
        return self.classes_[logits.argmax(axis=1)]

    @takes_input
    def predict_evidence(self, X):
        """Total evidence that there is for a prediction.

        Parameters
        ----------
        X : array-like or NodeSet of shape (n_samples, ...)
            Samples.

        Returns
        -------
        evidence : ndarray of shape (n_samples,), dtype float64
            e, not negative; high for samples that the network is sure of. It is that of
            each node, whatever the `propagation`.
        """
        check_is_fitted(self)
        return self._evidence(self._read(X))

    @takes_input
    def predict_alpha(self, X):
        r"""Parameters of the Dirichlet distributions.

        Parameters
        ----------
        X : array-like or NodeSet of shape (n_samples, ...)
            Samples.

        Returns
        -------
        alpha : ndarray of shape (n_samples, n_classes), dtype float64
            :math:`e \tilde p + 1`, in the order of ``classes_``. They are those of
            each node, whatever the `propagation`.
        """
        check_is_fitted(self)
        return self._alpha(self._read(X))

    @takes_input
    def predict_uncertainty(self, X):
        """Total, aleatoric and epistemic uncertainty.

        Parameters
        ----------
        X : array-like or NodeSet of shape (n_samples, ...)
            Samples.

        Returns
        -------
        uncertainty : Bunch
            ``total``, the entropy of the mean of the Dirichlet distribution;
            ``aleatoric``, minus the largest probability; ``epistemic``, the vacuity
            C / (C + e). On nodes of a graph after the `propagation`. Each an ndarray of
            shape (n_samples,), high for uncertain samples.
        """
        check_is_fitted(self)
        seen = self._read_whole(X)
        return probe_uncertainty(
            self._alpha(seen),
            seen.proba,
            X,
            propagation=self.propagation,
            steps=self.steps,
            teleport=self.teleport,
        )

    def __sklearn_tags__(self):
        tags = wrapped_tags(super().__sklearn_tags__(), self.estimator)
        tags.input_tags.sparse = tags.input_tags.sparse and self.layer == "last"
        return tags
