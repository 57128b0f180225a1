"""Base class of samplers of the weights of a network."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import abstractmethod
from functools import partial
from numbers import Real

import numpy as np
import torch
from sklearn.utils import check_consistent_length, check_random_state

from skood.epistemic._base_regressor import BaseMemberRegressor, Normals, of_rows
from skood.epistemic._base_uncertainty import BaseMembers, Block
from skood.epistemic.mcmc._posterior import (
    GaussianPosterior,
    Posterior,
    member_log_proba,
    member_outputs,
)
from skood.nn._training_data import check_target, class_codes
from skood.utils._atomic_fit import fresh_fit
from skood.utils._param_validation import Interval, StrOptions, fit_context

_CONSTRAINTS: dict = {
    "prior_scale": [
        Interval(Real, 0, None, closed="neither"),
        StrOptions({"he"}),
        dict,
    ],
    "temperature": [Interval(Real, 0, None, closed="neither")],
    "init": [StrOptions({"prior", "estimator"})],
    "random_state": ["random_state"],
    "device": [str, torch.device],
    "verbose": ["verbose"],
}


class BaseSampler(BaseMembers):
    """Base class of classifiers whose members are samples of a network's weights."""

    _parameter_constraints: dict = {
        **BaseMembers._parameter_constraints,
        **_CONSTRAINTS,
    }

    @abstractmethod
    def _options(self):
        """Return the valid part of the options, or its default."""

    @abstractmethod
    def _sample(self, options, posterior, generator):
        """Return the weights (n_members, n_weights), and set attributes of the run."""

    @fit_context(prefer_skip_nested_validation=False)  # the estimator is the user's
    def fit(self, X, y):
        """Fit the given model, then sample the weights of its network.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Training samples: input of the estimator.

        y : array-like of shape (n_samples,)
            Class labels.

        Returns
        -------
        self : object
            The fitted classifier.
        """
        with fresh_fit(self):
            options = self._options()
            self._fit_estimator(X, y)
            check_consistent_length(X, y)
            codes = class_codes(check_target(y, self), self.classes_)
            draw_samples(self, options, Posterior, X, codes)
        return self

    def _blocks(self, X):
        reference, start = None, 0
        if self._setting() == "b":
            reference = self._reference_log_proba(X)
        for log_proba in member_log_proba(
            self.estimator_, self.samples_, X, self.device
        ):
            rows = slice(start, start + log_proba.shape[1])
            yield Block(log_proba, None, None if reference is None else reference[rows])
            start = rows.stop


class BaseRegressionSampler(BaseMemberRegressor):
    """Base class of regressors whose members are samples of a network's weights."""

    _parameter_constraints: dict = {
        **BaseMemberRegressor._parameter_constraints,
        **_CONSTRAINTS,
    }

    @abstractmethod
    def _options(self):
        """Return the valid part of the options, or its default."""

    @abstractmethod
    def _sample(self, options, posterior, generator):
        """Return the weights (n_members, n_weights), and set attributes of the run."""

    @fit_context(prefer_skip_nested_validation=False)  # the estimator is the user's
    def fit(self, X, y):
        """Fit the given model, then sample the weights of its network.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Training samples: input of the estimator.

        y : array-like of shape (n_samples,)
            Targets.

        Returns
        -------
        self : object
            The fitted regressor.
        """
        with fresh_fit(self):
            options = self._options()
            y = self._fit_estimator(X, y)
            check_consistent_length(X, y)
            self._set_variance(X, y)
            variance = getattr(self, "variance_", self.variance)
            draw_samples(
                self, options, partial(GaussianPosterior, variance=variance), X, y
            )
        return self

    def _blocks(self, X):
        given = self._given(X) if self._setting() == "b" else None
        network, start = self._network(dtype=torch.float64), 0
        for outputs in member_outputs(network, self.samples_, X):
            rows = slice(start, start + outputs.shape[1])
            reference = None if given is None else of_rows(given, rows)
            mean, variance = self._normals(outputs)
            yield Normals(mean, variance, reference)
            start = rows.stop


def draw_samples(sampler, options, posterior, X, targets):
    """Set ``samples_`` to draws from a posterior, made by a class of this name."""
    random_state = check_random_state(sampler.random_state)
    seed = random_state.randint(np.iinfo(np.int32).max)
    # the caller may be in inference mode, which has no gradients
    with torch.inference_mode(False), torch.no_grad():
        posterior = posterior(
            sampler.estimator_,
            X,
            targets,
            prior_scale=sampler.prior_scale,
            temperature=getattr(sampler, "temperature", 1.0),
            device=sampler.device,
        )
        generator = torch.Generator(posterior.device).manual_seed(int(seed))
        theta = sampler._sample(options, posterior, generator)
        samples = posterior.models.split(theta)
    sampler.samples_ = {k: w.cpu().numpy().copy() for k, w in samples.items()}
