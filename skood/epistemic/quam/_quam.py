"""Epistemic uncertainty of a given classifier by adversarial models."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral

import numpy as np
import torch
from sklearn.utils import Bunch
from sklearn.utils.validation import check_is_fitted

from skood.epistemic._base_uncertainty import BaseMembers, Block
from skood.epistemic._measures import kl_divergence
from skood.epistemic.quam._adversarial_search import Classes
from skood.epistemic.quam._base_quam import (
    SearchMixin,
    check_loader,
    is_loader,
    member_weights,
)
from skood.nn._functional_network import OpenNetwork
from skood.nn._training_data import check_target, class_codes
from skood.utils._atomic_fit import fresh_fit
from skood.utils._batches import blockwise, labeled_rows
from skood.utils._metaestimators import check_one_column, fit_wrapped
from skood.utils._param_validation import Interval, StrOptions, fit_context

__all__ = ["QUAM"]


class QUAM(SearchMixin, BaseMembers):
    r"""Epistemic uncertainty by a search for adversarial models.

    An adversarial model explains the training data as well as the given network, but
    predicts otherwise at a point x. It is searched for each point and class t, from
    the given weights w, by steps of Adam on

    .. math:: L(\tilde w) = CE\bigl(t, p(\cdot \mid x, \tilde w)\bigr) + c_k
       \bigl(L_{\text{train}}(\tilde w) - (L_{\text{train}}(w) + \gamma)\bigr),

    with the loss on a batch of training rows in each step. All models met on the way
    are members, with weights :math:`\omega_n \propto
    e^{-L_{\text{train}}(\tilde w_n) / T}`, of the sums in
    :func:`member_uncertainty` [1]_.

    Read more in the :ref:`User Guide <quam>`.

    Parameters
    ----------
    estimator : object
        The classifier: a `TorchClassifier`, a module wrapped by
        :func:`skood.nn.pretrained`, a skorch net, a linear classifier or
        `MLPClassifier` of scikit-learn, or a `Pipeline` that ends in one. It is
        cloned and fitted, unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`. It is never changed.

    scope : {"dense", "last", "full"}, default="dense"
        Which weights are searched: of all linear layers at the end of the network,
        between which there are functions of each row alone (for a convolutional
        network its dense layers, for a perceptron all); of the last linear layer; or
        all. What comes before is computed once for each row. "last" is the fastest and
        the weakest: with the other parameters at their defaults it can be behind the
        largest probability of the same network. See the :ref:`User Guide <quam_loses>`.

    setting : {"b", "a", "auto"}, default="b"
        Whether the uncertainty is about the given network ("b") or about which
        network will be used ("a"); see :func:`member_uncertainty`. "auto" is "b" for
        a frozen estimator, else "a".

    targets : {"all"} or int, default="all"
        Number of classes to search for: the most probable ones of the given network.

    n_steps : int, default=56
        Steps of each search.

    lr : float, default=5e-3
        Learning rate of Adam.

    weight_decay : float, default=1e-3
        Its weight decay.

    c0 : float, default=10.0
        Weight of the penalty at first.

    eta : float, default=1.0
        After each `update_every` steps the weight of the penalty is multiplied, and
        the learning rate divided, by it: :math:`c_k = c_0 \eta^k`.

    update_every : int, default=14
        See `eta`.

    gamma : float, default=0.0
        How much larger the training loss may be before the penalty counts as
        violated. It moves the loss that `trace` shows by a constant, and not the
        search.

    temperature : float, default=0.1
        Temperature T of the members' weights, in nats. ``np.inf``: equal weights.

    penalty_batch : int, default=64
        Training rows in each step. They are the same for all searches.

    evaluation_rows : int, default=None
        Number of training rows, the same for all models, whose loss gives the
        weights. None: the loss on the rows of the step does, which costs nothing.

    chunk_size : {"auto"} or int, default="auto"
        Points whose searches advance together. "auto" bounds memory: about 40 MiB on
        a CPU, so that it stays near its caches, 2 GiB on an accelerator.

    n_jobs : int, default=None
        Processes that share the points, see :class:`joblib.Parallel`.

    random_state : int, RandomState instance or None, default=None
        Draws the training rows, in `fit`.

    device : str or torch.device, default="auto"
        Where to search: "auto" is CUDA if there is one, else the CPU.

    verbose : int, default=0
        1 shows a progress bar over the points.

    Attributes
    ----------
    estimator_ : object
        The given network.

    classes_ : ndarray of shape (n_classes,)
        Class labels.

    penalty_features_ : ndarray of shape (n_kept, ...)
        What the searched layers read of the training rows that are used.

    penalty_answers_ : ndarray of shape (n_kept,)
        Their classes, as numbers.

    penalty_index_ : ndarray of shape (n_steps + 1, penalty_batch)
        Which of them each step uses; the last batch only judges the last model.

    evaluation_index_ : ndarray of shape (evaluation_rows,)
        Which of them weigh the models.

    reference_loss_ : ndarray of shape (n_steps + 1,)
        Loss of the given network on each batch.

    n_features_in_ : int
        Number of features, if the estimator knows it.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, if the estimator knows them.

    Raises
    ------
    ValueError
        If the logits of the network are not the output of a linear layer, and `scope`
        is not "full".

    See Also
    --------
    QUAMRegressor : The same for regression.
    AdversarialModelDisplay : What happens in a search.
    DeepEnsemble : Models that are trained apart.

    Notes
    -----
    The searches of many points and classes are rows of the same matrix products.
    Layers in front of the searched ones run once, batch normalization and dropout are
    in eval mode, and the network itself is not touched.

    `predict_proba` and `predict` are those of the given network in both settings.

    `fit` also takes a torch ``DataLoader`` of inputs and class labels in place of
    `X`, if the estimator is frozen; only the rows that the steps use are kept of it,
    and only what the searched layers read of them. Of a `numpy.memmap` only these rows
    are read, again if the estimator is frozen.

    In float32, results change in the last digits with `chunk_size`, and Adam makes
    more of them where a gradient is nearly zero.

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
        **SearchMixin._search_constraints,
        "targets": [StrOptions({"all"}), Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        estimator,
        *,
        scope="dense",
        setting="b",
        targets="all",
        n_steps=56,
        lr=5e-3,
        weight_decay=1e-3,
        c0=10.0,
        eta=1.0,
        update_every=14,
        gamma=0.0,
        temperature=0.1,
        penalty_batch=64,
        evaluation_rows=None,
        chunk_size="auto",
        n_jobs=None,
        random_state=None,
        device="auto",
        verbose=0,
    ):
        self.estimator = estimator
        self.scope = scope
        self.setting = setting
        self.targets = targets
        self.n_steps = n_steps
        self.lr = lr
        self.weight_decay = weight_decay
        self.c0 = c0
        self.eta = eta
        self.update_every = update_every
        self.gamma = gamma
        self.temperature = temperature
        self.penalty_batch = penalty_batch
        self.evaluation_rows = evaluation_rows
        self.chunk_size = chunk_size
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Fit the network, if it is not frozen, and draw the training rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...) or torch.utils.data.DataLoader
            Training rows of the network.

        y : array-like of shape (n_samples,), default=None
            Class labels; None with a loader, which gives them.

        Returns
        -------
        self : QUAM
            The fitted estimator.
        """
        with fresh_fit(self):
            if is_loader(X):
                check_loader(self.estimator, y)
            else:
                X, y = labeled_rows(X, y)
                y = check_target(y, self)
            self.estimator_ = fit_wrapped(self, self.estimator, X, y)
            check_one_column(self.estimator_)
            self.classes_ = np.asarray(self.estimator_.classes_)
            self._keep_rows(X, y)
        return self

    # --- what the searches ask for -------------------------------------------

    def _open(self):
        return OpenNetwork.for_steps(self.estimator_, device=self.device)

    def _codes(self, y):
        return class_codes(check_target(y, self), self.classes_)

    def _outputs(self, network, rows):
        return network.log_proba(rows)

    def _losses(self, outputs, answers):
        return -np.take_along_axis(outputs, answers[:, None], axis=1)[:, 0]

    def _targets(self, reference):
        n_classes = reference.shape[1]
        if self.targets == "all" or self.targets >= n_classes:
            return np.tile(np.arange(n_classes), (len(reference), 1))
        order = np.argsort(-reference, axis=1, kind="stable")
        return order[:, : self.targets]

    def _task(self, targets, reference, tail):
        return Classes(torch.from_numpy(targets.ravel()).to(tail.network.device))

    # --- uncertainty ---------------------------------------------------------

    def _blocks(self, X):
        for reference, _, found in self._iter_found(X):
            log_proba, judged = (
                np.concatenate([getattr(one, name) for one in found], axis=1)
                for name in ("outputs", "judged")
            )
            n_points, n_classes = reference.shape
            yield Block(
                log_proba.reshape(-1, n_points, n_classes),
                member_weights(judged.reshape(-1, n_points), self.temperature),
                reference,
            )

    @blockwise
    def predict_proba(self, X):
        """Probabilities of the classes, by the given network.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input samples.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes), dtype float64
            In the order of ``classes_``.
        """
        check_is_fitted(self)
        return np.exp(self._reference_log_proba(X))

    @blockwise
    def predict_uncertainty(self, X):
        """Search adversarial models for each point, and measure what they say.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input samples.

        Returns
        -------
        uncertainty : Bunch
            ``total``, ``aleatoric`` and ``epistemic``, each an ndarray of shape
            (n_samples,), in nats, high for uncertain samples.
        """
        check_is_fitted(self)
        parts = self._in_parallel(X, BaseMembers.predict_uncertainty)
        return Bunch(
            **{
                name: np.concatenate([part[name] for part in parts])
                for name in parts[0]
            }
        )

    def trace(self, x):
        """What happens in the searches of one point.

        Parameters
        ----------
        x : array-like of shape (1, ...)
            The point, as a batch of one row.

        Returns
        -------
        trace : Bunch
            ``targets``, the class labels, of shape (n_targets,); of shape
            (n_steps + 1, n_targets), for the model before each step and after the
            last one, ``loss``, ``attack_loss``, ``training_loss``, ``penalty`` (how
            much the training loss exceeds that of the given network and `gamma`),
            ``divergence`` (of the given prediction from the model's), ``weights``
            (they sum to one), and ``log_proba`` with a third axis of classes;
            ``reference``, the log-probabilities of the given network, of shape
            (n_classes,).
        """
        trace, outputs, reference = self._trace(x)
        trace.targets = self.classes_[trace.targets]
        trace.divergence = kl_divergence(reference, outputs)
        trace.log_proba = outputs
        trace.reference = reference[0]
        return trace
