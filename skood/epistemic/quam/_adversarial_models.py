"""Adversarial models as objects: their losses, and estimators with their weights."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.frozen import FrozenEstimator

from skood.nn._linear_head import LinearHead
from skood.utils._metaestimators import unwrapped
from skood.utils._param_validation import Interval, validate_params
from skood.utils._torch import parameter_dtype

# Multiple of the machine precision that a loss may differ by, because it is computed
# for many models at once.
_ROUNDING = 32


@dataclass(frozen=True)
class Keep:
    """Options of `BestModels`, and a function of these that returns tensors by name."""

    slack: float
    fields: Callable
    n_iterates: int = 0


class BestModels:
    """Weights of the model of each search with the smallest attack loss.

    Only models whose training loss exceeds the `reference_loss` (n_steps + 1,) by at
    most `slack` are compared; a search without any keeps its last model, and is not
    `feasible`. The `n_iterates` last models of each search are stored, too.
    """

    def __init__(self, tail, reference_loss, slack, n_iterates=0):
        self._tail, self._reference_loss, self._slack = tail, reference_loss, slack
        self._last: deque = deque(maxlen=n_iterates)

    @property
    def iterates(self):
        """Weights of the last models of each search."""
        return torch.stack(list(self._last), dim=1)

    def update(self, step, weights, attack, training):
        """Compare the models of a step, whose losses have the shape (n_searches,)."""
        if step == 0:
            self.weights = [weight.detach().clone() for weight in weights]
            self.attack = torch.full_like(attack, torch.inf)
            self.training, self.step = training.clone(), torch.zeros_like(attack).long()
            self.feasible = torch.zeros_like(attack, dtype=torch.bool)
        reference_loss = float(self._reference_loss[step])
        rounding = (
            _ROUNDING * torch.finfo(training.dtype).eps * max(1.0, abs(reference_loss))
        )
        allowed = training - reference_loss <= self._slack + rounding
        better = allowed & (attack < self.attack)
        if step == len(self._reference_loss) - 1:
            better |= ~(self.feasible | allowed)
        old, new = (self._tail.by_search(each) for each in (self.weights, weights))
        for stored, now in zip(old, new, strict=True):
            stored[better] = now.detach()[better]
        self.attack[better], self.training[better] = attack[better], training[better]
        self.step[better] = step
        if self._last.maxlen:
            self._last.append(self._tail.flatten(weights))
        self.feasible |= allowed & better


@dataclass(repr=False)
class AdversarialModels:
    """Adversarial models of one point, one for each target.

    The model of a target is, of all models along its search, the one with the smallest
    loss of the attack whose training loss exceeds the loss of the given network by at
    most `slack`. It is returned by `QUAM.adversarial_models`.

    Read more in the :ref:`User Guide <quam_models>`.

    Parameters
    ----------
    targets : ndarray of shape (n_targets,)
        Class labels, the numbers of untargeted searches, or "higher" and "lower" of a
        regressor.

    weights : dict of str to ndarray of shape (n_targets, ...)
        Searched weights by their names in the network; for classifiers of scikit-learn
        these are the names in a ``torch.nn.Sequential`` of linear layers and
        activations, with an output for each class.

    divergence : ndarray of shape (n_targets,)
        Divergence KL(p, p̃) of the given prediction from the model's, in nats.

    training_loss : ndarray of shape (n_targets,)
        Mean negative log-likelihood on the training samples of the step.

    penalty : ndarray of shape (n_targets,)
        How much the training loss exceeds the loss of the given network on the same
        samples, and `gamma` of the search.

    step : ndarray of shape (n_targets,), dtype int
        Number of steps before the model.

    is_feasible : ndarray of shape (n_targets,), dtype bool
        Whether the training loss is within `slack`. If no model of a search is, its
        last model is returned.

    log_posterior_drop : ndarray of shape (n_targets,) or None
        Decrease of the log posterior from the given network, in nats; None if it was
        not requested.

    estimator : object
        The given network.

    log_proba : ndarray of shape (n_targets, n_classes) or None
        Log-probabilities at the point by classifiers.

    mean, variance : ndarray of shape (n_targets,) or None
        Predictions at the point by regressors.

    See Also
    --------
    QUAM : The search.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from sklearn.neural_network import MLPClassifier
    >>> from skood.epistemic import QUAM
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> net = MLPClassifier(hidden_layer_sizes=(50, 50), max_iter=500, random_state=0)
    >>> quam = QUAM(net, random_state=0).fit(X[:150], y[:150])
    >>> x = [[-1.5, -1.5]]
    >>> (models,) = quam.adversarial_models(x, slack=0.05)
    >>> clf = models.model(1 - quam.predict(x)[0])  # of the other class
    >>> quam.predict(x), clf.predict(x), clf.score(X[150:], y[150:])
    (array([0]), array([1]), 1.0)
    """

    targets: np.ndarray
    weights: dict
    divergence: np.ndarray
    training_loss: np.ndarray
    penalty: np.ndarray
    step: np.ndarray
    is_feasible: np.ndarray
    log_posterior_drop: np.ndarray | None
    estimator: Any
    log_proba: np.ndarray | None = None
    mean: np.ndarray | None = None
    variance: np.ndarray | None = None

    def __repr__(self):
        return f"AdversarialModels(targets={self.targets.tolist()})"

    def __len__(self):
        return len(self.targets)

    def is_adversarial(self, gamma, Lambda, *, two_sided=False):
        r"""Return which models are :math:`(\gamma, \Lambda)`-adversarial models.

        Parameters
        ----------
        gamma : float
            Maximum decrease of the log posterior, in nats.

        Lambda : float
            Minimum divergence from the given prediction, in nats.

        two_sided : bool, default=False
            Whether an increase of the log posterior is bounded by `gamma`, too, as in
            the definition of [1]_. The objective of the search bounds the decrease
            only.

        Returns
        -------
        is_adversarial : ndarray of shape (n_targets,), dtype bool
            True for adversarial models.

        Raises
        ------
        ValueError
            If the models were returned without ``log_posterior=True``.

        References
        ----------
        .. [1] K. Schweighofer, L. Aichberger, M. Ielanskyi, G. Klambauer, S.
           Hochreiter. Quantification of uncertainty with adversarial models. NeurIPS
           2023, definition 1.
        """
        if self.log_posterior_drop is None:
            raise ValueError(
                "The log posterior of these models is unknown: call "
                "adversarial_models(X, log_posterior=True)."
            )
        drop = self.log_posterior_drop
        drop = np.abs(drop) if two_sided else drop
        return (drop <= gamma) & (self.divergence >= Lambda)

    def model(self, i):
        """Return a model as an estimator of the same kind as the given one.

        Parameters
        ----------
        i : int
            Index of the target.

        Returns
        -------
        model : FrozenEstimator
            A copy of the given classifier or regressor with the weights of the model,
            which predicts for any samples. Networks in half precision are converted to
            float32.
        """
        weights = {name: array[i] for name, array in self.weights.items()}
        return FrozenEstimator(_with_weights(unwrapped(self.estimator), weights))


@dataclass(repr=False)
class SearchRecord:
    """Models along the searches of some points, to be summed by several parameters.

    A search takes longer than many sums over its models. The record is returned by
    `QUAM.search_models`.

    Read more in the :ref:`User Guide <quam_settings>`.

    Parameters
    ----------
    reference : ndarray of shape (n_samples, n_outputs)
        Outputs of the given network: log-probabilities, or of a regressor a mean and
        possibly the logarithm of a variance.

    outputs : ndarray of shape (n_samples, n_targets, n_models, n_outputs)
        Outputs of the models along each search; the first is the initial one.

    loss : ndarray of shape (n_samples, n_targets, n_models)
        Training losses of the models.

    estimator : QUAM
        The estimator that searched.

    See Also
    --------
    QUAM : The search.

    Examples
    --------
    The temperature for which held-out samples are certain:

    >>> from sklearn.datasets import make_moons
    >>> from sklearn.neural_network import MLPClassifier
    >>> from skood.epistemic import QUAM
    >>> X, y = make_moons(250, noise=0.1, random_state=0)
    >>> net = MLPClassifier(hidden_layer_sizes=(50, 50), max_iter=500, random_state=0)
    >>> quam = QUAM(net, random_state=0).fit(X[50:], y[50:])
    >>> record = quam.search_models(X[:50])
    >>> quam = quam.set_params(**record.tune(median=0.1))
    >>> print(f"{np.median(quam.predict_uncertainty(X[:50]).epistemic):.2f}")
    0.09
    """

    reference: np.ndarray
    outputs: np.ndarray
    loss: np.ndarray
    estimator: Any

    def __repr__(self):
        n_samples, n_targets, n_models = self.loss.shape
        return f"SearchRecord({n_samples=}, {n_targets=}, {n_models=})"

    def __len__(self):
        return len(self.loss)

    @validate_params(
        {
            "gamma": [Interval(Real, 0, None, closed="left"), None],
            "n_models": [Interval(Integral, 1, None, closed="left"), None],
        },
        prefer_skip_nested_validation=True,
    )
    def uncertainty(self, temperature=None, gamma=None, component=None, n_models=None):
        """Return the uncertainty of the points, without another search.

        Parameters
        ----------
        temperature : float, default=None
            Temperature T. None: the temperature of the estimator.

        gamma : float, default=None
            Tolerance of the excess loss for "feasible". None: `gamma` of the search.

        component : {"delta", "feasible"}, default=None
            Members. None: the component of the estimator.

        n_models : int, default=None
            Number of models of each search, with the initial one. None: all.

        Returns
        -------
        uncertainty : Bunch
            As of `QUAM.predict_uncertainty`.
        """
        quam = copy.copy(self.estimator)
        params = {"temperature": temperature, "component": component}
        quam.set_params(
            **{k: value for k, value in params.items() if value is not None}
        )
        if gamma is not None:
            search = copy.copy(quam.search)
            quam.set_params(search=search).set_params(search__gamma=gamma)
        quam._validate_params()
        models = slice(n_models)
        return quam._of_record(
            self.reference, self.outputs[:, :, models], self.loss[:, :, models]
        )

    @validate_params(
        {"median": [Interval(Real, 0, None, closed="neither")]},
        prefer_skip_nested_validation=True,
    )
    def tune(self, *, median=0.1):
        """Return the temperature for which these points are certain.

        Parameters
        ----------
        median : float, default=0.1
            Largest median of the epistemic uncertainty, in nats. The points must be
            ID samples that neither the network nor `fit` has seen.

        Returns
        -------
        params : dict
            The largest ``temperature`` of 30 from 1e-5 to 1, for `set_params`.

        Raises
        ------
        ValueError
            If the median is larger for all temperatures.
        """
        medians = []
        for temperature in np.logspace(0, -5, 30):
            epistemic = self.uncertainty(temperature).epistemic
            medians.append(np.median(epistemic))
            if medians[-1] <= median:
                return {"temperature": float(temperature)}
        raise ValueError(
            f"The median epistemic uncertainty of these {len(self)} points is at least "
            f"{min(medians):.3g}, and median={median}. Use eta='adaptive' or a larger "
            "c0 of the search, or points of the training distribution."
        )


def _with_weights(estimator, weights):
    """Return a copy of a fitted estimator with arrays in place of weights, by name."""
    if hasattr(estimator, "steps"):  # a pipeline; its other steps are shared
        pipeline = copy.copy(estimator)
        name, last = estimator.steps[-1]
        last = _with_weights(unwrapped(last), weights)
        pipeline.steps = [*estimator.steps[:-1], (name, last)]
        return pipeline
    with torch.inference_mode(False), torch.no_grad():
        fitted = copy.deepcopy(estimator)
        if hasattr(fitted, "module_"):
            if torch.finfo(parameter_dtype(fitted.module_)).bits < 32:
                fitted.module_.float()
            parameters = dict(fitted.module_.named_parameters())
            for name, array in weights.items():
                parameters[name].copy_(torch.from_numpy(array))
            return fitted
    return _with_arrays(fitted, weights)


def _with_arrays(fitted, weights):
    """Return a classifier or regressor of scikit-learn with other weights of layers."""
    if hasattr(fitted, "coefs_"):
        for i in range(len(fitted.coefs_)):
            coef, bias = (weights.get(f"{2 * i}.{kind}") for kind in ("weight", "bias"))
            if coef is not None:
                fitted.coefs_[i] = _as(fitted.coefs_[i].T, coef).T
            if bias is not None:
                fitted.intercepts_[i] = _as(fitted.intercepts_[i], bias)
        return fitted
    coef, bias = weights.get("0.weight"), weights.get("0.bias")
    if isinstance(fitted, LinearHead):
        coef = fitted.coef_ if coef is None else coef
        bias = fitted.intercept_ if bias is None else bias
        return LinearHead(coef, bias, fitted.classes_)
    if coef is not None:
        fitted.coef_ = _as(fitted.coef_, coef)
    if bias is not None:
        fitted.intercept_ = _as(fitted.intercept_, bias)
    return fitted


def _as(like, array):
    """Return weights in the shape of the given ones, which may be of a margin."""
    if np.size(like) < array.size:  # the logits of the network are (-m/2, m/2)
        array = np.diff(array, axis=0)
    return array.reshape(np.shape(like))
