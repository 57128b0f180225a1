"""Graph posterior network (GPN): evidence from class densities, with propagation."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import math
from collections.abc import Callable
from functools import partial
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from skood.graph._base_node_classifier import BaseGraphClassifier
from skood.graph._modules import APPNP, check_propagation
from skood.nn._dirichlet import DirichletMixin, dirichlet_uncertainty
from skood.nn._evidential_loss import expected_cross_entropy
from skood.nn._training import check_finite
from skood.utils._input import takes_input
from skood.utils._param_validation import Interval, StrOptions
from skood.utils._torch import evaluating, row_chunks
from skood.utils._warnings import warn

# Bound of the absolute logarithm of evidence: between 1e-13 and 1e13.
_MAX_LOG_EVIDENCE = 30.0

# A fraction of the training nodes that triggers a warning.
_MANY = 0.1


# Bound of the coordinates, whose square and its gradient are finite floats.
_FAR = 1e18

# Maximum bytes of activations that are stored for the backward pass at once.
_MAX_BLOCK_BYTES = 2**29

# Lower bound of a and s: softplus alone underflows to zero.
_NEAR = 1e-6


class GraphPosteriorNetwork(DirichletMixin, BaseGraphClassifier):
    r"""Graph posterior network (GPN): evidence from class densities, with propagation.

    A perceptron maps each node to a point z of a low-dimensional latent space with a
    density for each class, a normalizing flow. The evidence of the node is the expected
    number of training nodes of a class at this point,

    .. math:: \beta_c = N \, p(z \mid c) \, p(c),

    which is then propagated along edges by personalized PageRank, from
    :math:`\beta^{(0)} = \beta`, and added to a uniform prior [1]_:

    .. math:: \beta^{(t+1)} = (1 - \gamma) \hat A \beta^{(t)} + \gamma \beta^{(0)},
        \qquad \alpha = 1 + \beta^{(T)}, \qquad
        p(y \mid x) = \mathrm{Dir}(\alpha),

    with :math:`\hat A = \tilde D^{-1/2} (A + I) \tilde D^{-1/2}`. Densities vanish far
    from the training nodes, so :math:`\alpha` is one there: the uninformative prior. A
    node without incoming edges has the evidence of its own features.

    Read more in the :ref:`User Guide <gpn>`.

    Parameters
    ----------
    module_params : dict, default=None
        Arguments of the network: `hidden`, the units of the hidden layers of the
        perceptron, by default (64,); `dropout`, the probability of dropout of these
        units, by default 0.5; `latent_dim`, the dimension of the latent space, by
        default 16; `flow_layers`, the number of radial layers of the flow of a class,
        by default 10; `n_steps`, the number of propagation steps, by default 10 (0:
        edges are not used); and `teleport`, the weight :math:`\gamma` of a node's own
        evidence in each step, by default 0.1.

    certainty_budget : {"latent", "latent-classes"} or float, default="latent"
        The number N that multiplies the densities, the total evidence in the latent
        space: "latent" is :math:`(4 \pi)^{d/2}` with d = `latent_dim`, so that evidence
        does not decrease with d; "latent-classes" is "latent" times the number of
        classes, which compensates that p(c) sums to one.

    warmup_epochs : int, default=5
        Number of epochs in which only the flows are trained, on the likelihood of the
        training nodes, with the initial perceptron.

    lambda_entropy : float, default=1e-3
        Weight of the entropy of the Dirichlet distribution, which the loss rewards.

    lr : float, default=1e-2
        Learning rate.

    max_epochs : int, default=1000
        Number of epochs after the warm-up, with early stopping at most.

    training : TrainingOptions, default=None
        Optimizer, learning rate schedule, weight decay and early stopping, see
        :class:`~skood.nn.TrainingOptions`. Defaults that differ: `weight_decay` 1e-4,
        `early_stopping` True, `n_iter_no_change` 100 and `tol` 0. Validation nodes
        passed to `fit` enable early stopping as well; with few labels, pass them.

    class_weight : {"balanced"}, dict or None, default=None
        Weights of the classes, multiplied with `sample_weight`. They also scale p(c).

    random_state : int, RandomState instance or None, default=None
        Seed of the initial weights, dropout and held-out nodes. The generators of torch
        are left unchanged.

    device : {"auto"}, str or torch.device, default="auto"
        Device to train on: "auto" is CUDA if available, else the CPU.

    verbose : int, default=0
        1 shows a progress bar over the epochs.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.

    class_prior_ : ndarray of shape (n_classes,)
        The probabilities p(c): class frequencies of the training nodes, without
        held-out nodes.

    n_features_in_ : int
        Number of features of a node.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, only if `X` was a data frame with names.

    module_ : torch.nn.Module
        The trained network, in eval mode. It returns the evidence after and before
        propagation, side by side. It does not contain the graph.

    n_iter_ : int
        Number of epochs trained, without the warm-up.

    history_ : list of dict
        Results of each epoch: `epoch` (from 1), `train_loss` and, with validation
        nodes, `valid_loss`.

    Raises
    ------
    ValueError
        If a class has no training node with a weight above zero: it would have no
        density.

    See Also
    --------
    GraphClassifier : A graph network with logits.
    GKDE : Evidence by paths to labeled nodes.
    skood.base.UncertaintyDetector : Converts an uncertainty to a detector.

    Notes
    -----
    With :math:`\alpha_0 = \sum_c \alpha_c` the network minimizes the mean over the
    training nodes of the expected cross-entropy, minus a reward for entropy,

    .. math:: \psi(\alpha_0) - \psi(\alpha_y) - \lambda H[\mathrm{Dir}(\alpha)] ,

    which is the authors' sum over nodes up to the scale of `weight_decay`. The network
    computes in float32 and the loss in float64; :math:`\log \beta` is clipped to [-30,
    30], as by the authors. At these bounds it does not change with the density, and has
    no gradient: `fit` warns if many training nodes are there.

    Dropout scatters the latent points of the training nodes, but not of nodes that are
    predicted: with few features, use less dropout.

    It trains on the whole graph. Flows are run in blocks of nodes. Several blocks are
    run again in the backward pass, block by block: the activations of all nodes are
    never stored at once. The remaining memory grows with the number of nodes, but not
    of layers.

    References
    ----------
    .. [1] M. Stadler, B. Charpentier, S. Geisler, D. Zügner, S. Günnemann. "Graph
       posterior network: Bayesian predictive uncertainty for node classification".
       NeurIPS 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.graph import GraphPosteriorNetwork, NodeSet
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 30)
    >>> X = 2 * y[:, None] + rng.normal(size=(60, 4))
    >>> adjacency = rng.random((60, 60)) < np.where(y[:, None] == y, 0.2, 0.02)
    >>> nodes = NodeSet((X, adjacency | adjacency.T))
    >>> train, test = np.arange(0, 60, 2), np.arange(1, 60, 2)
    >>> gpn = GraphPosteriorNetwork({"dropout": 0.0}, max_epochs=50, random_state=0)
    >>> round(gpn.fit(nodes[train], y[train]).score(nodes[test], y[test]), 2)
    0.87
    >>> far = NodeSet((X + 1000, adjacency))
    >>> gpn.predict_uncertainty(far[:3]).epistemic.round(3)
    array([1., 1., 1.])
    """

    _parameter_constraints: dict = {
        **BaseGraphClassifier._parameter_constraints,
        "module_params": [dict, None],
        "certainty_budget": [
            StrOptions({"latent", "latent-classes"}),
            Interval(Real, 0, None, closed="neither"),
        ],
        "warmup_epochs": [Interval(Integral, 0, None, closed="left")],
        "lambda_entropy": [Interval(Real, 0, None, closed="left")],
    }

    _training_defaults: dict = {
        **BaseGraphClassifier._training_defaults,
        "n_iter_no_change": 100,
    }

    def __init__(
        self,
        module_params=None,
        *,
        certainty_budget="latent",
        warmup_epochs=5,
        lambda_entropy=1e-3,
        lr=1e-2,
        max_epochs=1000,
        training=None,
        class_weight=None,
        random_state=None,
        device="auto",
        verbose=0,
    ):
        self.module_params = module_params
        self.certainty_budget = certainty_budget
        self.warmup_epochs = warmup_epochs
        self.lambda_entropy = lambda_entropy
        self.lr = lr
        self.max_epochs = max_epochs
        self.training = training
        self.class_weight = class_weight
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    # --- training ------------------------------------------------------------

    def _module_recipe(self):
        """Return the parameters of the network."""
        return {
            "module_params": copy.deepcopy(self.module_params) or {},
            "budget": self.certainty_budget,
        }

    def _make_module(self, n_features, n_classes, recipe):
        try:
            return _PosteriorNetwork(
                n_features, n_classes, recipe["budget"], **recipe["module_params"]
            )
        except TypeError as error:
            raise TypeError(
                f"{type(self).__name__} cannot be built with "
                f"module_params={recipe['module_params']!r}: {error}."
            ) from error

    def _batch_size(self, module, train):
        """Return None for all nodes: evidence comes from too far for sampling."""
        return None

    def _run_epochs(self, module, train, valid, **options):
        """Set p(c), train the flows alone, and then the whole network."""
        n_classes = len(self.classes_)
        mass = np.bincount(train.codes, weights=train.weight, minlength=n_classes)
        if not mass.all():
            empty = self.classes_.tolist()[mass.argmin()]
            raise ValueError(
                f"{type(self).__name__} estimates a density of each class, and the "
                f"class {empty!r} has no training node with a weight above zero. Give "
                "it some, or leave its nodes out of X and y."
            )
        self.class_prior_ = mass / mass.sum()
        module.log_prior.copy_(torch.tensor(np.log(self.class_prior_)))
        self._warm_up(module, train)
        history = super()._run_epochs(module, train, valid, **options)
        self._warn_of_bounds(module, train)
        return history

    def _warm_up(self, module, train):
        """Train the flows on the likelihood of the training nodes."""
        if len(module.flows.centers) == 0:
            return  # densities without parameters
        nodes, codes, weight = train.on_device
        with torch.no_grad(), evaluating(module):
            z = module.encoder(train.tensors)[nodes]
        optimizer = torch.optim.Adam(module.flows.parameters(), lr=self.lr)
        for epoch in range(self.warmup_epochs):
            optimizer.zero_grad()
            total = 0.0
            for block in module.flows.blocks(len(z)):
                log_density = module.flows(z[block]).gather(1, codes[block, None])
                value = -(log_density[:, 0] * weight[block]).sum() / len(z)
                value.backward()  # and releases the activations of the block
                total += value.detach()
            optimizer.step()
            check_finite(module, float(total), epoch + 1)

    def _warn_of_bounds(self, module, train):
        """Warn if the evidence of many training nodes cannot change."""
        nodes, codes, _ = train.on_device
        with torch.no_grad(), evaluating(module):
            z = module.encoder(train.tensors)[nodes]
            log_evidence = module.log_evidence(z).gather(1, codes[:, None])
        most = _MAX_LOG_EVIDENCE
        for bound, is_beyond, what, remedy in (
            (
                most,
                log_evidence >= most,
                "it does not depend on the density there, and their vacuity does not "
                "differ",
                "Lower certainty_budget or latent_dim.",
            ),
            (
                -most,
                log_evidence <= -most,
                "they have no evidence, and no gradient that gives them some",
                "Scale the features, raise warmup_epochs or certainty_budget, or lower "
                "latent_dim.",
            ),
        ):
            fraction = is_beyond.double().mean()
            if fraction > _MANY:
                warn(
                    f"The logarithm of the evidence of {fraction:.0%} of the training "
                    f"nodes for their own class is beyond the bound {bound:g}, where "
                    f"it is cut: {what}. {remedy}"
                )

    def _make_loss(self, device):
        return self._loss

    def _loss(self, outputs, codes):
        alpha = 1.0 + outputs[:, : outputs.shape[1] // 2].double()
        losses = expected_cross_entropy(alpha, codes)
        if self.lambda_entropy > 0:
            losses = losses - self.lambda_entropy * _entropy(alpha)
        return losses.to(outputs.dtype)

    # --- prediction ----------------------------------------------------------

    @takes_input
    def predict_alpha(self, X, *, propagated=True):
        """Return the parameters of the Dirichlet distribution of each node.

        Parameters
        ----------
        X : NodeSet or array-like of shape (n_samples, n_features)
            Nodes. Samples of an array are nodes without edges.

        propagated : bool, default=True
            False: from the evidence of a node's own features, without network effects.

        Returns
        -------
        alpha : ndarray of shape (n_samples, n_classes), dtype float64
            Evidence plus one, in the order of ``classes_``.
        """
        check_is_fitted(self)
        after, before = np.split(self._outputs(X), 2, axis=1)
        return 1.0 + (after if propagated else before)

    @takes_input
    def predict_uncertainty(self, X, *, propagated=True):
        """Return total, aleatoric and epistemic uncertainty.

        Parameters
        ----------
        X : NodeSet or array-like of shape (n_samples, n_features)
            Nodes.

        propagated : bool, default=True
            False: from the evidence of a node's own features, without network effects.

        Returns
        -------
        uncertainty : Bunch
            ``total``, the entropy of the mean; ``aleatoric``, minus its largest
            probability; and ``epistemic``, the vacuity, C over the sum of alpha.
            Each is an ndarray of shape (n_samples,), larger for more uncertain samples.
        """
        alpha = self.predict_alpha(X, propagated=propagated)
        return dirichlet_uncertainty(alpha)  # evidence was propagated by the network


class _PosteriorNetwork(nn.Module):
    """Encoder, flows and propagation; for the arguments see `GraphPosteriorNetwork`."""

    def __init__(
        self,
        n_features,
        n_classes,
        budget,
        *,
        hidden=(64,),
        dropout=0.5,
        latent_dim=16,
        flow_layers=10,
        n_steps=10,
        teleport=0.1,
    ):
        super().__init__()
        for name, value, least in (
            ("latent_dim", latent_dim, 1),
            ("flow_layers", flow_layers, 0),
        ):
            if not isinstance(value, Integral) or value < least:
                raise ValueError(
                    f"{name} must be an integer of at least {least}, got {value!r}."
                )
        check_propagation(n_steps, teleport)
        # without steps it is a perceptron; features are not dropped, and initial points
        # are where densities are high
        self.encoder = APPNP(n_features, latent_dim, hidden, dropout, n_steps=0)
        self.encoder.dropouts[0] = nn.Identity()
        self.encoder.head.reset_parameters()
        self.flows = RadialFlows(n_classes, latent_dim, flow_layers)
        self.register_buffer("log_prior", torch.zeros(n_classes))
        if budget in ("latent", "latent-classes"):
            factor = n_classes if budget == "latent-classes" else 1
            log_budget = 0.5 * latent_dim * math.log(4.0 * math.pi) + math.log(factor)
        else:
            log_budget = math.log(budget)
        self.log_budget = log_budget
        self.n_steps = n_steps
        self.teleport = teleport

    def forward(self, graph):
        """Return the evidence of all nodes after propagation, then before it."""
        bound = _MAX_LOG_EVIDENCE
        local = self.log_evidence(self.encoder(graph)).clamp(-bound, bound).exp()
        evidence = local
        for _ in range(self.n_steps):
            sent = graph.aggregate("symmetric", evidence)
            evidence = (1 - self.teleport) * sent + self.teleport * local
        return torch.cat([evidence, local], dim=1)

    def log_evidence(self, z):
        """Return the unbounded log evidence at points for each class."""
        return self.flows.in_blocks(z) + (self.log_prior + self.log_budget)


def _entropy(alpha):
    """Return the entropy of Dirichlet distributions, of shape (n_rows,)."""
    total = alpha.sum(dim=1)
    log_normalizer = torch.lgamma(alpha).sum(dim=1) - torch.lgamma(total)
    of_total = (total - alpha.shape[1]) * torch.digamma(total)
    return log_normalizer + of_total - ((alpha - 1) * torch.digamma(alpha)).sum(dim=1)


class RadialFlows(torch.nn.Module):
    r"""Class-conditional densities by radial flows to a standard normal distribution.

    A layer moves points along the rays from its center :math:`c`: with :math:`r = \|z -
    c\|`

    .. math:: f(z) = z + \frac{\beta}{a + r} (z - c), \qquad a > 0, \beta > -a,

    which is invertible, because :math:`\beta = s - a` with :math:`s > 0` [1]_.
    Initially s is about a, so that layers hardly move points: no class is denser by
    chance.

    References
    ----------
    .. [1] D. J. Rezende, S. Mohamed. Variational inference with normalizing flows.
       ICML 2015. Section 4.1.
    """

    def __init__(self, n_classes, n_features, n_layers):
        super().__init__()
        self.n_classes = n_classes
        bound = 1 / math.sqrt(n_features)
        self.centers = self._parameter(bound, n_layers, n_classes, n_features)
        self.raw_a = self._parameter(bound, n_layers, n_classes)
        # not exactly a: the gradient of the centers would be only rounding errors
        self.raw_s = self._parameter(0.1 * bound, n_layers, n_classes)
        with torch.no_grad():
            self.raw_s += self.raw_a

    @staticmethod
    def _parameter(bound, *shape):
        return torch.nn.Parameter(torch.empty(shape).uniform_(-bound, bound))

    def transform(self, z):
        """Return points in the base distribution, and log determinants, by class."""
        n_points, n_features = z.shape
        z = z.clamp(-_FAR, _FAR)[:, None].expand(-1, self.n_classes, -1)
        log_det = z.new_zeros(n_points, self.n_classes)
        a, s = (functional.softplus(raw) + _NEAR for raw in (self.raw_a, self.raw_s))
        for center, a_k, s_k in zip(self.centers, a, s, strict=True):
            from_center = z - center
            r = torch.linalg.vector_norm(from_center, dim=-1)
            reach = a_k + r
            # Eigenvalues of the Jacobian along the ray, and d - 1 across it, without a
            # difference, so that neither is rounded to zero; section 4.1 of [1].
            along = (r * (r + 2 * a_k) + s_k * a_k) / reach**2
            across = (s_k + r) / reach
            z = z + ((s_k - a_k) / reach)[..., None] * from_center
            log_det = log_det + (n_features - 1) * across.log() + along.log()
        return z, log_det

    def forward(self, z):
        """Return the log density of each class, (n_points, n_classes)."""
        n_features = z.shape[1]
        z, log_det = self.transform(z)
        log_base = -0.5 * (z.square().sum(dim=-1) + n_features * math.log(2 * math.pi))
        return log_base + log_det

    def blocks(self, n_points):
        """Cut points into blocks whose activations can be stored at once."""
        n_layers, _, n_features = self.centers.shape
        row_bytes = 4 * self.n_classes * n_features * 4 * (1 + n_layers)
        return list(row_chunks(n_points, row_bytes, _MAX_BLOCK_BYTES))

    def in_blocks(self, z):
        """Return the result of `forward`, with activations of one block at a time."""
        # Several blocks are run again in the backward pass, which adds the gradients of
        # parameters to their `grad`: call `backward`.
        blocks = self.blocks(len(z))
        run: Callable = self
        if len(blocks) > 1 and z.requires_grad:
            # a flow draws no random numbers, so generator states need not be stored
            run = partial(checkpoint, run, use_reentrant=True, preserve_rng_state=False)
        return torch.cat([run(z[block]) for block in blocks])
