"""Base class of samplers of the weights of a network."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import abstractmethod
from numbers import Real

import numpy as np
import torch
from sklearn.utils import check_consistent_length, check_random_state

from skood.epistemic._base_uncertainty import BaseMembers
from skood.epistemic._likelihood import BaseLikelihood, Block, of_rows
from skood.epistemic.mcmc._posterior import Posterior, member_outputs
from skood.utils._atomic_fit import fresh_fit
from skood.utils._param_validation import Interval, StrOptions, fit_context


class BaseSampler(BaseMembers):
    """Base class of estimators whose members are samples of a network's weights."""

    _parameter_constraints: dict = {
        **BaseMembers._parameter_constraints,
        "prior_scale": [
            Interval(Real, 0, None, closed="neither"),
            StrOptions({"he"}),
            dict,
        ],
        "temperature": [Interval(Real, 0, None, closed="neither")],
        "init": [StrOptions({"prior", "estimator"})],
        "likelihood": [StrOptions({"auto"}), BaseLikelihood],
        "random_state": ["random_state"],
        "device": [str, torch.device],
        "verbose": ["verbose"],
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
            Class labels, or targets of a regressor.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        with fresh_fit(self):
            options = self._options()
            y = self._fit_estimator(X, y)
            check_consistent_length(X, y)
            self._fit_targets(X, y)
            targets = self.likelihood_.targets(y, self)
            random_state = check_random_state(self.random_state)
            seed = random_state.randint(np.iinfo(np.int32).max)
            # the caller may be in inference mode, which has no gradients
            with torch.inference_mode(False), torch.no_grad():
                posterior = Posterior(
                    self.estimator_,
                    X,
                    targets,
                    self.likelihood_,
                    prior_scale=self.prior_scale,
                    temperature=self.temperature,
                    device=self.device,
                )
                generator = torch.Generator(posterior.device).manual_seed(int(seed))
                theta = self._sample(options, posterior, generator)
                samples = posterior.models.split(theta)
            self.samples_ = {k: w.cpu().numpy().copy() for k, w in samples.items()}
        return self

    def _blocks(self, X):
        reference, start = None, 0
        if self._setting() == "b":
            reference = self._reference(X)
        likelihood = self.likelihood_
        # in float64, so that the result for a sample does not depend on the others
        network = likelihood.open(self.estimator_, self.device, dtype=torch.float64)
        for outputs in member_outputs(network, self.samples_, X):
            rows = slice(start, start + outputs.shape[1])
            predictions = likelihood.predictions(outputs)
            yield Block(predictions, reference=of_rows(reference, rows))
            start = rows.stop
