"""Graph posterior network: evidence from class densities, carried along edges."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import nn

from skood.evidential._dirichlet_uncertainty import (
    DirichletMixin,
    dirichlet_uncertainty,
)
from skood.evidential._losses import expected_cross_entropy
from skood.graph._base_node_classifier import BaseGraphClassifier, check_widths
from skood.graph._modules import APPNP
from skood.graph._radial_flows import RadialFlows
from skood.nn._training import check_finite
from skood.utils._input import takes_input
from skood.utils._param_validation import Interval, StrOptions
from skood.utils._torch import evaluating
from skood.utils._warnings import warn

__all__ = ["GraphPosteriorNetwork"]

# The logarithm of evidence is kept within these bounds: from nothing, 1e-13, to as
# much as 1e13.
_MAX_LOG_EVIDENCE = 30.0

# A share of the training nodes that a warning is for.
_MANY = 0.1

_NOT_PARAMETERS = ("batch_size", "n_neighbors")


class GraphPosteriorNetwork(DirichletMixin, BaseGraphClassifier):
    r"""Graph posterior network (GPN): class densities as evidence, along edges.

    A perceptron maps each node to a point z of a small latent space, where a
    normalizing flow for each class has a density. How many training nodes of a class
    are to be expected there is the evidence of the node,

    .. math:: \beta_c = N \, p(z \mid c) \, p(c),

    which is then carried along edges by personalized PageRank, from
    :math:`\beta^{(0)} = \beta`, and added to a uniform prior [1]_:

    .. math:: \beta^{(t+1)} = (1 - \gamma) \hat A \beta^{(t)} + \gamma \beta^{(0)},
        \qquad \alpha = 1 + \beta^{(T)}, \qquad
        p(y \mid x) = \mathrm{Dir}(\alpha),

    with :math:`\hat A = \tilde D^{-1/2} (A + I) \tilde D^{-1/2}`. Densities vanish far
    from the training nodes, so :math:`\alpha` is one there: the prior, which knows
    nothing. A node that no other node sends to keeps the evidence of its own features.

    Read more in the :ref:`User Guide <gpn>`.

    Parameters
    ----------
    hidden : tuple of int, default=(64,)
        Units of the hidden layers of the perceptron.

    latent_dim : int, default=16
        Number of coordinates of the latent space.

    flow_layers : int, default=10
        Radial layers of the flow of a class.

    dropout : float, default=0.5
        Probability of dropout of the hidden units of the perceptron.

    certainty_budget : {"latent", "latent-classes"} or float, default="latent"
        The number N that densities are multiplied by, the total evidence there is to
        be spread over the latent space: "latent" is :math:`(4 \pi)^{d/2}` with d =
        `latent_dim`, so that evidence does not shrink with d; "latent-classes" is that
        times the number of classes, which undoes that p(c) sums to one.

    steps : int, default=10
        Steps of propagation. 0: the network does not see edges.

    teleport : float, default=0.1
        Weight :math:`\gamma` of a node's own evidence in each step.

    warmup_epochs : int, default=5
        So many epochs the flows are trained first, on the likelihood of the training
        nodes, while the perceptron stays as it was initialized.

    lambda_entropy : float, default=1e-3
        Weight of the entropy of the Dirichlet distribution, which the loss rewards.

    lr : float, default=1e-2
        Learning rate of Adam.

    weight_decay : float, default=1e-4
        Its weight decay.

    max_epochs : int, default=1000
        Number of epochs after the warm-up, with early stopping at most.

    early_stopping : bool, default=True
        Stop when the loss of validation nodes no longer falls, and return to the
        weights with the smallest one. Validation nodes that `fit` is given switch it
        on, too.

    validation_fraction : float, default=0.1
        Share of the training nodes held out, stratified by class, if `fit` is given
        no validation nodes. Where there are few labels, give it some.

    patience : int, default=100
        Early stopping waits for this many epochs without a gain of `tol`.

    tol : float, default=0.0
        Smallest decrease of the validation loss that counts.

    class_weight : {"balanced"}, dict or None, default=None
        Weights of the classes, multiplied with `sample_weight`. p(c) follows them.

    random_state : int, RandomState instance or None, default=None
        Seeds the initial weights, dropout and held-out nodes. The generators of torch
        are left as they were.

    device : {"auto"}, str or torch.device, default="auto"
        Where to train: "auto" is CUDA if there is one, else the CPU.

    verbose : int, default=0
        1 shows a progress bar over the epochs.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.

    class_prior_ : ndarray of shape (n_classes,)
        The probabilities p(c): shares of the training nodes, without those held out.

    n_features_in_ : int
        Number of features of a node.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, only if `X` was a data frame with names.

    module_ : torch.nn.Module
        The trained network, in eval mode. It returns the evidence after propagation,
        and then that before it, side by side. It holds no graph.

    n_iter_ : int
        Number of epochs trained, without the warm-up.

    history_ : list of dict
        For each epoch: `epoch` (from 1), `train_loss` and, with validation nodes,
        `valid_loss`.

    Raises
    ------
    ValueError
        If a class has no training node with a weight above zero: it would have no
        density.

    See Also
    --------
    GraphClassifier : A graph network with logits.
    GKDE : Evidence by paths to labeled nodes.
    skood.base.UncertaintyDetector : Makes a detector of an uncertainty.

    Notes
    -----
    With :math:`\alpha_0 = \sum_c \alpha_c` the network minimizes the mean over the
    training nodes of the expected cross-entropy, less a reward for entropy,

    .. math:: \psi(\alpha_0) - \psi(\alpha_y) - \lambda H[\mathrm{Dir}(\alpha)] ,

    the authors' sum over nodes being the same up to the scale of `weight_decay`. The
    network computes in float32 and the loss in float64; :math:`\log \beta` is kept in
    [-30, 30], as by the authors. There it does not change with the density, and has no
    gradient: `fit` warns if many training nodes are there.

    Dropout scatters the points of the training nodes, but not those of nodes that are
    predicted: with few features, use less of it.

    It trains on the whole graph. Flows are run in blocks of nodes, and where there are
    several, again in the backward pass, block by block: the activations of all nodes
    are never kept at once. What is left grows with the nodes, but not with the layers.

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
    >>> train = np.arange(0, 60, 3)
    >>> gpn = GraphPosteriorNetwork(dropout=0.0, max_epochs=50, random_state=0)
    >>> bool(gpn.fit(nodes[train], y[train]).score(nodes, y) > 0.9)
    True
    >>> far = NodeSet((X + 1000, adjacency))
    >>> gpn.predict_uncertainty(far[:3]).epistemic.round(3)
    array([1., 1., 1.])
    """

    _parameter_constraints: dict = {
        **{
            name: constraint
            for name, constraint in BaseGraphClassifier._parameter_constraints.items()
            if name not in _NOT_PARAMETERS
        },
        "hidden": ["array-like"],
        "latent_dim": [Interval(Integral, 1, None, closed="left")],
        "flow_layers": [Interval(Integral, 0, None, closed="left")],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "certainty_budget": [
            StrOptions({"latent", "latent-classes"}),
            Interval(Real, 0, None, closed="neither"),
        ],
        "steps": [Interval(Integral, 0, None, closed="left")],
        "teleport": [Interval(Real, 0, 1, closed="both")],
        "warmup_epochs": [Interval(Integral, 0, None, closed="left")],
        "lambda_entropy": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        hidden=(64,),
        *,
        latent_dim=16,
        flow_layers=10,
        dropout=0.5,
        certainty_budget="latent",
        steps=10,
        teleport=0.1,
        warmup_epochs=5,
        lambda_entropy=1e-3,
        lr=1e-2,
        weight_decay=1e-4,
        max_epochs=1000,
        early_stopping=True,
        validation_fraction=0.1,
        patience=100,
        tol=0.0,
        class_weight=None,
        random_state=None,
        device="auto",
        verbose=0,
    ):
        self.hidden = hidden
        self.latent_dim = latent_dim
        self.flow_layers = flow_layers
        self.dropout = dropout
        self.certainty_budget = certainty_budget
        self.steps = steps
        self.teleport = teleport
        self.warmup_epochs = warmup_epochs
        self.lambda_entropy = lambda_entropy
        self.lr = lr
        self.weight_decay = weight_decay
        self.max_epochs = max_epochs
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.tol = tol
        self.class_weight = class_weight
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    # --- training ------------------------------------------------------------

    def _module_recipe(self):
        """What the network is built of."""
        return {
            "hidden": check_widths(self.hidden),
            "latent_dim": int(self.latent_dim),
            "flow_layers": int(self.flow_layers),
            "dropout": float(self.dropout),
            "log_budget": self._log_budget(),
            "steps": int(self.steps),
            "teleport": float(self.teleport),
        }

    def _log_budget(self):
        """Logarithm of the number that densities are multiplied by."""
        if not isinstance(self.certainty_budget, str):
            return math.log(self.certainty_budget)
        log_budget = 0.5 * self.latent_dim * math.log(4.0 * math.pi)
        if self.certainty_budget == "latent-classes":
            log_budget += math.log(len(self.classes_))
        return log_budget

    def _make_module(self, n_features, n_classes, recipe):
        return _PosteriorNetwork(n_features, n_classes, **recipe)

    def _batch_size(self, module, train):
        """All nodes: evidence comes from so far that sampling would not help."""
        return None

    def _run_epochs(self, module, train, valid, seed, bar):
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
        history = super()._run_epochs(module, train, valid, seed, bar)
        self._warn_of_bounds(module, train)
        return history

    def _warm_up(self, module, train):
        """Train the flows on the likelihood of the training nodes."""
        if self.flow_layers == 0:
            return  # densities without parameters
        nodes, codes, weight = train.on_device()
        with torch.no_grad(), evaluating(module):
            z = module.encoder(train.tensors)[nodes]
        optimizer = torch.optim.Adam(module.flows.parameters(), lr=self.lr)
        for epoch in range(self.warmup_epochs):
            optimizer.zero_grad()
            total = 0.0
            for block in module.flows.blocks(len(z)):
                log_density = module.flows(z[block]).gather(1, codes[block, None])
                value = -(log_density[:, 0] * weight[block]).sum() / len(z)
                value.backward()  # and so lets go of the activations of the block
                total += value.item()
            optimizer.step()
            check_finite(module, total, epoch + 1)

    def _warn_of_bounds(self, module, train):
        """Warn if the evidence of many training nodes cannot change."""
        nodes, codes, _ = train.on_device()
        with torch.no_grad(), evaluating(module):
            z = module.encoder(train.tensors)[nodes]
            found = module.log_evidence(z).gather(1, codes[:, None])
        for bound, share, what, remedy in (
            (
                _MAX_LOG_EVIDENCE,
                (found >= _MAX_LOG_EVIDENCE).double().mean(),
                "it does not tell how dense a class is there, and their vacuity does "
                "not differ",
                "Lower certainty_budget or latent_dim.",
            ),
            (
                -_MAX_LOG_EVIDENCE,
                (found <= -_MAX_LOG_EVIDENCE).double().mean(),
                "they have no evidence, and no gradient that gives them some",
                "Scale the features, raise warmup_epochs or certainty_budget, or lower "
                "latent_dim.",
            ),
        ):
            if share > _MANY:
                warn(
                    f"The logarithm of the evidence of {share:.0%} of the training "
                    f"nodes for their own class is beyond the bound {bound:g}, where "
                    f"it is cut: {what}. {remedy}"
                )

    def _loss(self, outputs, codes):
        alpha = 1.0 + outputs[:, : outputs.shape[1] // 2].double()
        losses = expected_cross_entropy(alpha, codes)
        if self.lambda_entropy > 0:
            losses = losses - self.lambda_entropy * _entropy(alpha)
        return losses.to(outputs.dtype)

    # --- prediction ----------------------------------------------------------

    @takes_input
    def predict_alpha(self, X, *, propagated=True):
        """Parameters of the Dirichlet distribution of each node.

        Parameters
        ----------
        X : NodeSet or array-like of shape (n_samples, n_features)
            Nodes. Rows of an array are nodes without edges.

        propagated : bool, default=True
            False: of the evidence of a node's own features, without network effects.

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
        """Total, aleatoric and epistemic uncertainty.

        Parameters
        ----------
        X : NodeSet or array-like of shape (n_samples, n_features)
            Nodes.

        propagated : bool, default=True
            False: by the evidence of a node's own features, without network effects.

        Returns
        -------
        uncertainty : Bunch
            ``total``, the entropy of the mean; ``aleatoric``, minus its largest
            probability; and ``epistemic``, the vacuity, C over the sum of alpha.
            Each is an ndarray of shape (n_samples,), high for uncertain samples.
        """
        alpha = self.predict_alpha(X, propagated=propagated)
        return dirichlet_uncertainty(alpha)  # evidence was propagated by the network


class _PosteriorNetwork(nn.Module):
    """Encoder, flows and propagation.

    Parameters
    ----------
    n_features, n_classes : int
        Width of the features, and number of classes.

    hidden : tuple of int
        Units of the hidden layers of the encoder.

    latent_dim, flow_layers : int
        Coordinates of the latent space, and layers of a flow.

    dropout : float
        Probability of dropout of the hidden units.

    log_budget : float
        Logarithm of what densities are multiplied by.

    steps : int
        Steps of propagation.

    teleport : float
        Weight of a node's own evidence.
    """

    def __init__(
        self,
        n_features,
        n_classes,
        *,
        hidden,
        latent_dim,
        flow_layers,
        dropout,
        log_budget,
        steps,
        teleport,
    ):
        super().__init__()
        # without steps it is a perceptron; features are not dropped, and points start
        # where densities are high
        self.encoder = APPNP(n_features, latent_dim, hidden, dropout, steps=0)
        self.encoder.dropouts[0] = nn.Identity()
        self.encoder.head.reset_parameters()
        self.flows = RadialFlows(n_classes, latent_dim, flow_layers)
        self.register_buffer("log_prior", torch.zeros(n_classes))
        self.log_budget = log_budget
        self.steps = steps
        self.teleport = teleport

    def forward(self, graph):
        """Evidence of all nodes after propagation, then that before it."""
        bound = _MAX_LOG_EVIDENCE
        own = self.log_evidence(self.encoder(graph)).clamp(-bound, bound).exp()
        evidence = own
        for _ in range(self.steps):
            sent = graph.aggregate("symmetric", evidence)
            evidence = (1 - self.teleport) * sent + self.teleport * own
        return torch.cat([evidence, own], dim=1)

    def log_evidence(self, z):
        """Logarithm of the evidence at points for each class, without bounds."""
        return self.flows.in_blocks(z) + (self.log_prior + self.log_budget)


def _entropy(alpha):
    """Entropy of Dirichlet distributions, (n_rows, n_classes) -> (n_rows,)."""
    total = alpha.sum(dim=1)
    log_normalizer = torch.lgamma(alpha).sum(dim=1) - torch.lgamma(total)
    of_total = (total - alpha.shape[1]) * torch.digamma(total)
    return log_normalizer + of_total - ((alpha - 1) * torch.digamma(alpha)).sum(dim=1)
