"""Evidential networks: classifiers that predict Dirichlet distributions."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import inspect
from numbers import Integral, Real

import torch
from sklearn.base import ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from skood.evidential._graph_uncertainty import evidential_uncertainty, whole_graph
from skood.graph import NodeSet
from skood.nn import TorchClassifier
from skood.nn._dirichlet import DirichletMixin
from skood.nn._evidential_loss import EVIDENCES, LOSSES, PENALTIES, EvidentialLoss
from skood.utils._atomic_fit import fresh_fit
from skood.utils._estimator import SkoodEstimator
from skood.utils._input import takes_input
from skood.utils._metaestimators import (
    check_one_column,
    check_takes_weight,
    copy_input_attributes,
    wrapped_tags,
)
from skood.utils._param_validation import HasMethods, Interval, StrOptions, fit_context


class EvidentialClassifier(DirichletMixin, ClassifierMixin, SkoodEstimator):
    r"""Evidential network: classifier that predicts Dirichlet distributions.

    Its outputs l for a sample are mapped to evidence :math:`e = g(l) \ge 0` for each of
    the C classes, and to the parameters :math:`\alpha = e + 1` of a Dirichlet
    distribution over class probabilities [1]_. With :math:`S = \sum_c \alpha_c`, the
    mean :math:`\alpha / S` is the prediction, and the vacuity C / S measures the lack
    of evidence. The loss of a sample of class y is

    .. math:: \psi(S) - \psi(\alpha_y) + \lambda \, KL\bigl(\mathrm{Dir}(\tilde\alpha)
       \,\|\, \mathrm{Dir}(1)\bigr), \qquad
       \tilde\alpha_y = 1, \quad \tilde\alpha_c = \alpha_c \text{ for } c \neq y:

    the expected cross-entropy, and the divergence of the evidence for wrong classes
    from zero evidence. On arrays and images this is an evidential network (ENN), on the
    nodes of a graph an evidential graph network (EGNN) [2]_.

    Read more in the :ref:`User Guide <evidential>`.

    Parameters
    ----------
    estimator : TorchClassifier or GraphClassifier, default=None
        Unfitted estimator that builds and trains the network. It is cloned, and the
        clone's `criterion` is set to the loss. None: a
        :class:`~skood.graph.GraphClassifier` for a :class:`~skood.graph.NodeSet`, else
        a :class:`~skood.nn.TorchClassifier`.

    evidence : {"softplus", "exp", "relu"}, default="softplus"
        The function g. "exp" is continued by its tangent for outputs above 10. "relu"
        has no gradient where there is no evidence, and may fail to learn some of the
        samples.

    loss : {"cross_entropy", "squared_error", "log_likelihood"}, default="cross_entropy"
        The first term of the loss: see :class:`EvidentialLoss`.

    lambda_kl : float, default=0.1
        Weight :math:`\lambda` of the second term. With a small weight, wrong classes
        retain evidence; with a large weight there is no evidence at all.

    penalty : {"misleading", "uniform"}, default="misleading"
        The divergence of the second term: of :math:`\tilde\alpha`, or of
        :math:`\alpha` as in equation 89 of [3]_, which also lowers the evidence for
        the class y; see :func:`uniform_kl`.

    propagation : {"vacuity", "evidence", "both"} or None, default=None
        Values that `predict_uncertainty` averages over the neighbors of a node, by a
        random walk with restarts: the vacuity; the parameters, from which all
        uncertainties are computed; or first the parameters and then the vacuity. It can
        be changed without refitting. Predictions do not change. Samples of arrays have
        no neighbors.

    n_steps : int, default=None
        Number of steps of the walk. None: 30 for the vacuity, 10 for the parameters.

    teleport : float, default=None
        Weight of a node's own value in each step. None: 0.02 for the vacuity, 0.1 for
        the parameters.

    random_state : int, RandomState instance or None, default=None
        Seed of the training, if the `random_state` of the estimator is None.

    Attributes
    ----------
    estimator_ : TorchClassifier or GraphClassifier
        The trained network, whose logits are the outputs l. Its own probabilities, the
        softmax of the outputs, are not meaningful.

    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.

    n_features_in_ : int
        Number of features, or of channels of images.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, only if all of them are strings.

    Raises
    ------
    ValueError
        If the estimator has no parameter `criterion`, or has one set.

    See Also
    --------
    EvidentialLoss : The loss.
    EvidentialProbe : Evidence for a network that is already trained.
    dirichlet_mutual_information : Another epistemic uncertainty from the output of
        `predict_alpha`.
    skood.base.UncertaintyDetector : Converts its uncertainty to a detector.

    Notes
    -----
    The total uncertainty is the entropy of the mean; the aleatoric uncertainty is minus
    its largest probability, between -1 and -1 / C; the epistemic uncertainty is the
    vacuity, in (0, 1]. The first is not the sum of the others. Larger values are more
    uncertain.

    The loss does not reduce evidence far from all training data: outputs of a network
    may grow there.

    References
    ----------
    .. [1] M. Sensoy, L. Kaplan, M. Kandemir. Evidential deep learning to quantify
       classification uncertainty. NeurIPS 2018.
    .. [2] X. Zhao, F. Chen, S. Hu, J.-H. Cho. Uncertainty aware semi-supervised
       learning on graph data. NeurIPS 2020.
    .. [3] L. Yu, K. Li, P. K. Saha, Y. Lou, F. Chen. Evidential uncertainty probes for
       graph neural networks. AISTATS 2025.

    Examples
    --------
    Two classes around (0, 2) and (0, -2), and a sample between them:

    >>> import numpy as np
    >>> from skood.evidential import EvidentialClassifier
    >>> from skood.nn import TorchClassifier
    >>> y = np.arange(100) % 2
    >>> X = np.random.default_rng(0).normal(size=(100, 2)) + np.c_[0 * y, 4 * y - 2]
    >>> net = TorchClassifier(lr=0.01, max_epochs=50, random_state=0)
    >>> clf = EvidentialClassifier(net).fit(X, y)
    >>> clf.predict([[0, 2], [0, -2]])
    array([1, 0])
    >>> clf.predict_uncertainty([[0, 2], [0, 0]]).epistemic.round(2)
    array([0.12, 0.28])
    """

    _parameter_constraints: dict = {
        "estimator": [HasMethods(["fit", "predict_logits"]), None],
        "evidence": [StrOptions(set(EVIDENCES))],
        "loss": [StrOptions(set(LOSSES))],
        "lambda_kl": [Interval(Real, 0, None, closed="left")],
        "penalty": [StrOptions(set(PENALTIES))],
        "propagation": [StrOptions({"vacuity", "evidence", "both"}), None],
        "n_steps": [Interval(Integral, 0, None, closed="left"), None],
        "teleport": [Interval(Real, 0, 1, closed="both"), None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        estimator=None,
        *,
        evidence="softplus",
        loss="cross_entropy",
        lambda_kl=0.1,
        penalty="misleading",
        propagation=None,
        n_steps=None,
        teleport=None,
        random_state=None,
    ):
        self.estimator = estimator
        self.evidence = evidence
        self.loss = loss
        self.lambda_kl = lambda_kl
        self.penalty = penalty
        self.propagation = propagation
        self.n_steps = n_steps
        self.teleport = teleport
        self.random_state = random_state

    @fit_context(prefer_skip_nested_validation=False)  # the estimator is the user's
    def fit(self, X, y, sample_weight=None, *, X_val=None, y_val=None):
        """Train the network.

        Parameters
        ----------
        X : array-like, torch.Tensor or NodeSet of shape (n_samples, ...)
            Samples of an array, images or nodes.

        y : array-like of shape (n_samples,)
            Class labels.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples.

        X_val : NodeSet or array-like of shape (n_val, ...), default=None
            Validation samples, if the `fit` of the estimator supports them, as in
            :class:`~skood.graph.GraphClassifier`.

        y_val : array-like of shape (n_val,), default=None
            Labels of the validation samples.

        Returns
        -------
        self : EvidentialClassifier
            The fitted classifier.

        Raises
        ------
        ValueError
            If the data are invalid, or the estimator does not support an argument. The
            classifier then is left unchanged.
        """
        with fresh_fit(self):
            estimator = self._new_estimator(X)
            check_takes_weight(estimator, sample_weight)
            passed = {"sample_weight": sample_weight, "X_val": X_val, "y_val": y_val}
            passed = {name: v for name, v in passed.items() if v is not None}
            missing = set(passed) - set(inspect.signature(estimator.fit).parameters)
            if missing:
                raise ValueError(
                    f"{' and '.join(sorted(missing))} were passed, but the fit of "
                    f"{type(estimator).__name__} does not take them. Leave them out; "
                    "TorchClassifier holds out samples with early_stopping=True."
                )
            self.estimator_ = estimator.fit(X, y, **passed)
            check_one_column(self.estimator_)
            self.classes_ = self.estimator_.classes_
            copy_input_attributes(self, self.estimator_)
        return self

    def _new_estimator(self, X):
        """Return an unfitted estimator with the evidential loss."""
        if self.estimator is not None:
            estimator = clone(self.estimator)
        elif isinstance(X, NodeSet):
            from skood.graph import GraphClassifier

            estimator = GraphClassifier()
        else:
            estimator = TorchClassifier()
        params = estimator.get_params(deep=False)
        if "criterion" not in params:
            raise ValueError(
                "EvidentialClassifier trains a network by its own loss, so its "
                "estimator needs a parameter criterion: use a TorchClassifier or a "
                f"GraphClassifier, got {type(estimator).__name__}. Transformers go "
                "before an EvidentialClassifier in a Pipeline; for a network that is "
                "trained already there is EvidentialProbe."
            )
        if params["criterion"] is not None:
            raise ValueError(
                "EvidentialClassifier sets the criterion of its estimator, which must "
                f"be None, got {params['criterion']!r}. Choose the loss by evidence, "
                "loss, lambda_kl and penalty."
            )
        new = {
            "criterion": EvidentialLoss(
                evidence=self.evidence,
                loss=self.loss,
                lambda_kl=self.lambda_kl,
                penalty=self.penalty,
            )
        }
        if params.get("random_state") is None:
            new["random_state"] = self.random_state
        return estimator.set_params(**new)

    @takes_input
    def predict_alpha(self, X):
        r"""Return the parameters of the Dirichlet distributions.

        Parameters
        ----------
        X : array-like, torch.Tensor or NodeSet of shape (n_samples, ...)
            Samples.

        Returns
        -------
        alpha : ndarray of shape (n_samples, n_classes), dtype float64
            At least one: evidence plus one, in the order of ``classes_``. They are not
            propagated.
        """
        check_is_fitted(self)
        outputs = torch.from_numpy(self.estimator_.predict_logits(X))
        return self.estimator_.criterion.alpha(outputs).numpy()

    @takes_input
    def predict_uncertainty(self, X):
        """Return total, aleatoric and epistemic uncertainty.

        Parameters
        ----------
        X : array-like, torch.Tensor or NodeSet of shape (n_samples, ...)
            Samples.

        Returns
        -------
        uncertainty : Bunch
            ``total``, the entropy of the mean, ``aleatoric``, minus its largest
            probability, and ``epistemic``, the vacuity, each an ndarray of shape
            (n_samples,), larger for more uncertain samples.
        """
        check_is_fitted(self)
        return evidential_uncertainty(
            self.predict_alpha(whole_graph(X, self)),
            X,
            propagation=self.propagation,
            n_steps=self.n_steps,
            teleport=self.teleport,
        )

    def __sklearn_tags__(self):
        inner = TorchClassifier() if self.estimator is None else self.estimator
        return wrapped_tags(super().__sklearn_tags__(), inner)
