"""Deep ensembles: members trained from different seeds or bootstrap samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import math
from functools import partial
from numbers import Integral

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.parallel import delayed
from sklearn.utils.validation import check_consistent_length

from skood.epistemic._base_uncertainty import BaseMembers, fit_model
from skood.epistemic._likelihood import BaseLikelihood, Block, combined
from skood.graph import NodeSet
from skood.nn import TorchClassifier
from skood.nn._training_data import check_target, check_two_classes, with_class_weight
from skood.nn._training_options import training_options
from skood.utils._atomic_fit import fresh_fit
from skood.utils._labels import check_one_kind
from skood.utils._metaestimators import (
    check_one_column,
    check_takes_weight,
    copy_input_attributes,
    n_rows,
    take_rows,
)
from skood.utils._named_estimators import missing_methods
from skood.utils._param_validation import HasMethods, Interval, StrOptions, fit_context
from skood.utils._progress import as_they_come, is_shown, progress
from skood.utils._torch import row_chunks
from skood.utils._warnings import warn
from skood.utils._weights import check_weight

# Block size, in bytes, of member predictions for nodes of a graph.
GRAPH_BYTES = 2**30

# Number of samples on which members are compared, to find out whether they differ.
_N_COMPARED = 100


class DeepEnsemble(BaseMembers):
    r"""Deep ensemble: models trained in the same way from different seeds.

    The prediction of classifiers is the mean of the members' probabilities

    .. math:: \bar p(y \mid x) = \frac{1}{M} \sum_{m=1}^M p_m(y \mid x)

    [1]_. Of regressors, whose member m predicts :math:`N(\mu_m, \sigma_m^2)`, it is the
    mean and the variance of the mixture,

    .. math:: \bar\mu(x) = \frac{1}{M} \sum_{m=1}^M \mu_m(x), \qquad
       \bar\sigma^2(x) = \frac{1}{M} \sum_{m=1}^M \sigma_m^2(x)
       + \frac{1}{M} \sum_{m=1}^M \bigl(\mu_m(x) - \bar\mu(x)\bigr)^2 .

    Training by gradient descent from different initial weights ends in different
    models that explain the data; where these contradict each other, the data do not
    determine which of them is right, and the epistemic uncertainty is high.

    Read more in the :ref:`User Guide <epistemic>`, for regressors in :ref:`another
    section <epistemic_regression>`.

    Parameters
    ----------
    estimator : object or list of objects
        A classifier with ``predict_proba``, or a regressor: each member is a clone of
        it with its own seed. Or a list of members, each cloned and fitted unless it is
        in a :class:`~sklearn.frozen.FrozenEstimator`; use this for networks that are
        already trained.

    n_members : int, default=10
        Number of members. Ignored if `estimator` is a list.

    bootstrap : bool, default=False
        Whether each member is trained on samples drawn with replacement instead of all
        samples. The draw is stratified by class, so that no member misses a class.
        Samples of weight zero are not drawn.

    reference : object, default=None
        The given model of setting "b". It is cloned and fitted, unless it is frozen.
        None: the first member, whose divergence from itself, zero, is one of the terms.

    setting : {"auto", "a", "b"}, default="auto"
        "a": the mixture of the members predicts, and it is uncertain which of them is
        right. "b": the given model predicts, and the uncertainty is how far it can be
        trusted. "auto" is "b" if there is a `reference`, else "a". See
        :func:`~skood.epistemic.member_uncertainty` and, for regressors,
        :func:`~skood.epistemic.gaussian_uncertainty`.

    likelihood : "auto", Categorical or Gaussian, default="auto"
        The distribution of the targets. "auto": :class:`Categorical` for classifiers,
        :class:`Gaussian` for regressors, with the residuals of `predict`.

    n_jobs : int, default=None
        Number of members that are fitted in parallel, in processes. None: one, unless
        in a :obj:`joblib.parallel_config`; -1: the number of cores.

    random_state : int, RandomState instance or None, default=None
        Seed of the members, where every parameter named ``random_state`` is set,
        including nested ones, and of the drawn samples. The first members do not depend
        on the number of members.

    verbose : int, default=0
        1 shows a progress bar over the members.

    Attributes
    ----------
    estimators_ : list of objects
        The fitted members.

    estimator_ : object
        The given model: the fitted `reference`, or the first member.

    likelihood_ : Categorical or Gaussian
        The fitted likelihood, with ``variance_``.

    classes_ : ndarray of shape (n_classes,)
        Class labels; only of a classifier.

    n_features_in_ : int
        Number of features, if the members have this attribute.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, only if all of them are strings.

    See Also
    --------
    SnapshotEnsemble : Members from a single training run.
    MCDropout : Members from a single network.

    Notes
    -----
    Members are the same for every `n_jobs`. Networks are trained in processes and not
    in threads, because torch has one random number generator for all threads; a
    threading backend, chosen by the caller, makes them irreproducible. If there are as
    many workers as cores, each uses one thread.

    Graph networks are supported as members; `X` then is a
    :class:`~skood.graph.NodeSet`. To use validation nodes, fit the members, and pass
    them as a list, each in a :class:`~sklearn.frozen.FrozenEstimator`.

    References
    ----------
    .. [1] B. Lakshminarayanan, A. Pritzel, C. Blundell. Simple and scalable predictive
       uncertainty estimation using deep ensembles. NIPS 2017.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from skood.epistemic import DeepEnsemble
    >>> from skood.nn import TorchClassifier
    >>> X, y = make_moons(100, noise=0.1, random_state=0)
    >>> net = TorchClassifier(max_epochs=30, lr=0.01)
    >>> clf = DeepEnsemble(net, n_members=4, random_state=0).fit(X, y)
    >>> near_and_far = [[0.0, 1.0], [-2.0, -1.5]]
    >>> clf.predict_uncertainty(near_and_far).epistemic.round(2)
    array([0.  , 0.13])

    An ensemble of regressors:

    >>> import numpy as np
    >>> from sklearn.neural_network import MLPRegressor
    >>> X = np.linspace(-3, 3, 40)[:, None]
    >>> net = MLPRegressor(hidden_layer_sizes=(20,), solver="lbfgs")
    >>> reg = DeepEnsemble(net, n_members=4, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> mean, std = reg.predict([[0.0], [6.0]], return_std=True)
    >>> std.round(1)
    array([0. , 0.4])
    """

    _parameter_constraints: dict = {
        **BaseMembers._parameter_constraints,
        "estimator": [HasMethods(["fit", "predict"]), list],
        "n_members": [Interval(Integral, 1, None, closed="left")],
        "bootstrap": ["boolean"],
        "reference": [HasMethods(["fit", "predict"]), None],
        "likelihood": [StrOptions({"auto"}), BaseLikelihood],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        estimator,
        n_members=10,
        *,
        bootstrap=False,
        reference=None,
        setting="auto",
        likelihood="auto",
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.estimator = estimator
        self.n_members = n_members
        self.bootstrap = bootstrap
        self.reference = reference
        self.setting = setting
        self.likelihood = likelihood
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=False)  # the estimator is the user's
    def fit(self, X, y, sample_weight=None):
        """Fit the members.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Training samples: input of the members.

        y : array-like of shape (n_samples,)
            Class labels, or targets of regressors.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights, for members and a `reference` that support them; others
            raise. With `bootstrap`, samples that are drawn keep their weights.

        Returns
        -------
        self : DeepEnsemble
            The fitted ensemble.

        Raises
        ------
        ValueError
            If `estimator` is frozen, the members have different classes, one does not
            take `sample_weight`, or all residuals are zero. The ensemble then is left
            unchanged.
        """
        with fresh_fit(self):
            self.likelihood_ = likelihood = self._new_likelihood()
            is_classifier = likelihood.kind == "classifier"
            if is_classifier:
                check_one_kind(y)
            else:
                y = likelihood.checked(y, self)
            members = self._new_members()
            strata = self._strata(X, y, sample_weight) if self.bootstrap else None
            self._fit_members(members, X, y, sample_weight, strata)
            if is_classifier:
                fitted = [*self.estimators_, self.estimator_]
                self.classes_ = check_members(self, fitted)
            self._warn_if_equal(X)
            likelihood.fit_targets(y, partial(self.predict, X), sample_weight)
        return self

    def _new_members(self):
        """Return unfitted members, or frozen ones."""
        name, method = type(self).__name__, self.likelihood_.method
        if self.reference is not None:
            self._check_methods(reference=self.reference)
        if isinstance(self.estimator, list):
            if not self.estimator:
                raise ValueError(
                    f"estimator is an empty list: {name} needs at least one member."
                )
            for member in self.estimator:
                if missing_methods(member, ("fit", method)):
                    raise TypeError(
                        f"The list estimator must hold models with fit and {method}, "
                        f"got {member!r}. Wrap a trained torch module with "
                        "skood.nn.pretrained (a classifier) or skorch."
                    )
            return [clone(member) for member in self.estimator]
        self._check_methods(estimator=self.estimator)
        if isinstance(self.estimator, FrozenEstimator):
            raise ValueError(
                f"estimator is frozen, so that all {self.n_members} members would be "
                "the same model. Pass a model to fit, or a list of several frozen "
                "ones as the members; pass the model of setting 'b' as reference."
            )
        return [clone(self.estimator) for _ in range(self.n_members)]

    def _strata(self, X, y, sample_weight):
        """Return the strata of the samples for `bootstrap`: codes of the classes."""
        if self.likelihood_.kind == "classifier":
            y = self.likelihood_.checked(y, self)
        check_consistent_length(X, y, sample_weight)
        if self.likelihood_.kind == "regressor":
            return np.zeros(len(y), dtype=int)
        return np.unique(y, return_inverse=True)[1]

    def _fit_members(self, members, X, y, sample_weight, strata):
        """Set ``estimators_``, and ``estimator_``, the fitted reference or first."""
        references = [] if self.reference is None else [self.reference]
        for member in [*members, *references]:
            check_takes_weight(member, sample_weight)
        random_state = check_random_state(self.random_state)
        jobs = _jobs(random_state, members, X, y, sample_weight, strata)
        parallel = as_they_come(self.n_jobs)
        verbose, name = self.verbose or is_shown(), type(self).__name__
        with progress(len(members), desc=name, verbose=verbose) as bar:
            self.estimators_ = []
            for member in parallel(delayed(_fit)(*job) for job in jobs):
                self.estimators_.append(member)
                bar.update(1)
        copy_input_attributes(self, self.estimators_[0])
        self.estimator_ = self.estimators_[0]
        for reference in references:
            self.estimator_ = fit_model(self, reference, X, y, sample_weight)

    def _warn_if_equal(self, X):
        """Warn if the members give identical predictions on training samples."""
        if len(self.estimators_) == 1:
            return
        X, method = _indexable(X), self.likelihood_.method
        n_compared = min(_N_COMPARED, n_rows(X))
        indices = np.linspace(0, n_rows(X) - 1, n_compared).astype(int)
        samples = take_rows(X, indices)
        first, *others = (getattr(member, method) for member in self.estimators_)
        expected = first(samples)
        if not all(np.array_equal(predict(samples), expected) for predict in others):
            return
        what = "probabilities" if method == "predict_proba" else "predictions"
        on, advice = "random_state", "bootstrap=True, or another estimator"
        if self.bootstrap:
            on, advice = f"{on} and the samples that are drawn", "another estimator"
        warn(
            f"All {len(self.estimators_)} members of {type(self).__name__} give the "
            f"same {what} for {n_compared} of the training samples: their fit seems "
            f"not to depend on {on}, and there is no epistemic uncertainty. Use "
            f"{advice}."
        )

    def _blocks(self, X):
        reference = self._reference if self._setting() == "b" else None
        return ensemble_blocks(self.estimators_, self.likelihood_, X, reference)

    def _reference(self, X):
        return self.likelihood_.of_model(self.estimator_, X)

    def _has_fixed_model(self):
        return self.reference is not None

    def _models(self):
        models = self.estimator
        return models if isinstance(models, list) else [models]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        sparse = [get_tags(model).input_tags.sparse for model in self._models()]
        tags.input_tags.sparse = bool(sparse) and all(sparse)
        return tags


def _jobs(random_state, members, X, y, sample_weight, strata):
    """Seed the members; yield each with its training samples."""
    for member in members:
        # one seed per member, independent of the numbers that a member draws
        rng = np.random.RandomState(random_state.randint(np.iinfo(np.int32).max))
        if isinstance(member, FrozenEstimator):
            yield member, X, y, None
            continue
        _seed(member, rng)
        if strata is None:
            yield member, X, y, sample_weight
            continue
        weight = None if sample_weight is None else np.asarray(sample_weight)
        indices = _bootstrap(strata, weight, rng)
        weight = None if weight is None else weight[indices]
        yield member, take_rows(X, indices), take_rows(y, indices), weight


def _indexable(X):
    """Return X if it has a length, else X as an ndarray."""
    return X if hasattr(X, "shape") or hasattr(X, "__len__") else np.asarray(X)


def row_blocks(X, bytes_per_row):
    """Yield blocks of samples that need `bytes_per_row` each; few stay uncut."""
    X = _indexable(X)
    # the whole graph is run for each block
    budget = {"budget": GRAPH_BYTES} if isinstance(X, NodeSet) else {}
    chunks = list(row_chunks(n_rows(X), bytes_per_row, **budget))
    if len(chunks) <= 1:  # empty or invalid input is checked by the members
        yield X
        return
    for chunk in chunks:
        yield take_rows(X, np.arange(chunk.start, chunk.stop))


def ensemble_blocks(members, likelihood, X, reference=None):
    """Yield a `Block` for consecutive samples; `reference` is a function of these."""
    n_outputs = len(getattr(members[0], "classes_", [])) or 2
    for samples in row_blocks(X, 32 * len(members) * n_outputs):
        predictions = [likelihood.of_model(member, samples) for member in members]
        yield Block(
            combined(np.stack, predictions),
            reference=None if reference is None else reference(samples),
        )


def _bootstrap(strata, weight, random_state):
    """Draw indices with replacement by stratum; none, and not to, weight zero."""
    indices = np.arange(len(strata))
    counts = np.ones(len(strata), dtype=bool)
    if weight is not None and weight.ndim == 1:  # other weights: members raise
        counts = weight > 0
    for stratum in np.unique(strata[counts]):
        of_stratum = np.flatnonzero(counts & (strata == stratum))
        indices[of_stratum] = random_state.choice(of_stratum, size=len(of_stratum))
    return indices


def _seed(estimator, random_state):
    """Set every parameter named random_state, including nested ones, to a number."""
    seeds = {
        name: int(random_state.randint(np.iinfo(np.int32).max))
        for name in sorted(estimator.get_params(deep=True))
        if name.split("__")[-1] == "random_state"
    }
    if seeds:
        estimator.set_params(**seeds)


def _fit(member, X, y, sample_weight):
    weight = {} if sample_weight is None else {"sample_weight": sample_weight}
    return member.fit(X, y, **weight)


def check_members(owner, members):
    """Return the classes of fitted members, or raise for `owner` if they differ."""
    for member in members:
        check_one_column(member)
    classes = np.asarray(members[0].classes_)
    for member in members[1:]:
        if not np.array_equal(member.classes_, classes):
            raise ValueError(
                f"All members of {type(owner).__name__}, and its reference, must have "
                f"the same classes in the same order, got {classes.tolist()} and "
                f"{np.asarray(member.classes_).tolist()}."
            )
    return classes


class SnapshotEnsemble(BaseMembers):
    r"""Snapshot ensemble: networks at the ends of the cycles of one training run.

    The learning rate falls along half a cosine, is reset, and falls again: with `lr`
    :math:`\alpha_0` of the estimator and cycles of C epochs, epoch t = 0, 1, … has the
    learning rate

    .. math:: \alpha(t) = \frac{\alpha_0}{2} \left(\cos \frac{\pi \,
       (t \bmod C)}{C} + 1\right)

    [1]_. At the end of a cycle, when the learning rate is small, the network has
    converged and becomes a member; the next cycle moves to another minimum. All members
    together cost as much as one network that is trained for ``n_members * C`` epochs.

    Read more in the :ref:`User Guide <epistemic>`.

    Parameters
    ----------
    estimator : TorchClassifier
        The network, its training parameters, and `max_epochs` for all cycles together:
        each has ``max_epochs / n_members`` epochs, rounded up. It must not have a
        learning rate schedule or early stopping. A pipeline is built around the
        ensemble.

    n_members : int, default=5
        Number of cycles, and of members.

    setting : {"auto", "a", "b"}, default="auto"
        "a", or "auto": the mixture of the members predicts, and it is uncertain which
        of them is right. "b": the last member, which was trained longest, predicts, and
        the uncertainty is how far it can be trusted. See
        :func:`~skood.epistemic.member_uncertainty`.

    verbose : int, default=0
        1 shows a progress bar over the epochs.

    Attributes
    ----------
    estimators_ : list of TorchClassifier
        The members, in the order of the cycles.

    estimator_ : TorchClassifier
        The last member.

    classes_ : ndarray of shape (n_classes,)
        Class labels.

    n_features_in_ : int
        Number of features, or of channels.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, only if all of them are strings.

    See Also
    --------
    DeepEnsemble : Members that are trained separately.
    CyclicalSGHMC : The same cycles, with samples instead of minima.

    Notes
    -----
    The learning rate changes by epochs, not by batches. The `random_state` of the
    estimator is used.

    References
    ----------
    .. [1] G. Huang, Y. Li, G. Pleiss, Z. Liu, J. E. Hopcroft, K. Q. Weinberger.
       Snapshot ensembles: train 1, get M for free. ICLR 2017.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from skood.epistemic import SnapshotEnsemble
    >>> from skood.nn import TorchClassifier
    >>> X, y = make_moons(100, noise=0.1, random_state=0)
    >>> net = TorchClassifier(max_epochs=60, lr=0.05, random_state=0)
    >>> clf = SnapshotEnsemble(net, n_members=3).fit(X, y)
    >>> clf.predict_members(X).shape
    (3, 100, 2)
    >>> [member.n_iter_ for member in clf.estimators_]
    [20, 40, 60]
    """

    _parameter_constraints: dict = {
        "estimator": [TorchClassifier],
        "n_members": [Interval(Integral, 1, None, closed="left")],
        "setting": [StrOptions({"auto", "a", "b"})],
        "verbose": ["verbose"],
    }

    def __init__(self, estimator, n_members=5, *, setting="auto", verbose=0):
        self.estimator = estimator
        self.n_members = n_members
        self.setting = setting
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=False)  # the estimator is the user's
    def fit(self, X, y, sample_weight=None):
        """Train the network through its cycles.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Input samples.

        y : array-like of shape (n_samples,)
            Class labels.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        Returns
        -------
        self : SnapshotEnsemble
            The fitted classifier.

        Raises
        ------
        ValueError
            If the estimator has a learning rate schedule or early stopping, or the data
            are invalid. The ensemble then is left unchanged.
        """
        with fresh_fit(self):
            self._check_estimator()
            y = check_target(y, self.estimator)
            classes, codes = np.unique(y, return_inverse=True)
            weight = with_class_weight(
                check_weight(sample_weight, len(y), default=1),
                self.estimator.class_weight,
                codes,
                classes,
            )
            check_two_classes(codes[weight > 0], classes, self)
            network = clone(self.estimator).set_params(class_weight=None, verbose=0)
            self.estimators_ = self._cycles(network, X, y, classes, weight)
            self.estimator_ = self.estimators_[-1]
            check_one_column(self.estimator_)
            self.classes_ = self.estimator_.classes_
            copy_input_attributes(self, self.estimator_)
        return self

    def _check_estimator(self):
        """Raise if the estimator is invalid, or has a schedule or early stopping."""
        self.estimator._validate_params()
        options = training_options(self.estimator)
        if options.lr_schedule is not None:
            raise ValueError(
                "SnapshotEnsemble changes the learning rate itself, in cosine cycles "
                f"from lr={self.estimator.lr}: its estimator must have "
                f"lr_schedule=None, got {options.lr_schedule!r}."
            )
        if options.early_stopping:
            raise ValueError(
                "SnapshotEnsemble trains to the end of each cycle, and cannot stop "
                "early: set early_stopping=False of its estimator."
            )

    def _cycles(self, network, X, y, classes, weight):
        """Train epoch by epoch; return copies from the ends of the cycles."""
        n_epochs, members = -(-self.estimator.max_epochs // self.n_members), []
        name, total = type(self).__name__, n_epochs * self.n_members
        with progress(total, desc=name, verbose=self.verbose) as bar:
            for _ in range(self.n_members):
                for t in range(n_epochs):
                    # Eq. (2) of [1]
                    rate = math.cos(math.pi * t / n_epochs) + 1
                    network.lr = self.estimator.lr / 2 * rate
                    network.partial_fit(X, y, classes=classes, sample_weight=weight)
                    bar.set_postfix(
                        train_loss=f"{network.history_[-1]['train_loss']:.3g}"
                    )
                    bar.update(1)
                members.append(copy.deepcopy(network))
        for member in members:
            member.set_params(lr=self.estimator.lr)
        return members

    def _blocks(self, X):
        reference = self._reference if self._setting() == "b" else None
        return ensemble_blocks(self.estimators_, self.likelihood_, X, reference)

    def _has_fixed_model(self):
        return False
