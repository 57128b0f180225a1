"""Base class of classifiers that train a network on nodes."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
from abc import ABCMeta, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from numbers import Integral, Real

import numpy as np
import torch
from scipy import sparse
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length
from torch.nn import functional

from skood.graph._modules import network_input, warn_of_weights
from skood.graph._node_set import Graph, check_nodes, iter_graphs
from skood.graph._tensors import GraphTensors
from skood.nn import TrainingOptions
from skood.nn._borrowed_module import borrowed
from skood.nn._training import OPTIMIZERS, check_finite, make_schedule
from skood.nn._training_data import (
    check_target,
    normalized,
    row_batches,
    stratified_split,
    with_class_weight,
)
from skood.nn._training_options import training_options
from skood.utils._atomic_fit import fresh_fit
from skood.utils._estimator import SkoodEstimator
from skood.utils._labels import label_codes
from skood.utils._param_validation import Interval, StrOptions, fit_context
from skood.utils._progress import progress
from skood.utils._torch import (
    evaluating,
    parameter_dtype,
    resolve_device,
    to_tensor,
    training,
)
from skood.utils._weights import check_weight

# Above this size in bytes of activations in an epoch, neighborhoods are sampled.
_MAX_EPOCH_BYTES = 8 * 2**30
_SAMPLED_BATCH = 1024


class BaseGraphClassifier(ClassifierMixin, SkoodEstimator, metaclass=ABCMeta):
    """Base class of classifiers that train a network on nodes.

    A subclass has these parameters besides its own. The meaning of the outputs of its
    network, which ``_outputs(X)`` returns, depends on the subclass.
    """

    _parameter_constraints: dict = {
        "lr": [Interval(Real, 0, None, closed="neither")],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "training": [TrainingOptions, None],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "random_state": ["random_state"],
        "device": [str, torch.device],
        "verbose": ["verbose"],
    }

    _default_parts: dict = {"training": TrainingOptions}
    _training_defaults: dict = {
        "weight_decay": 1e-4,
        "early_stopping": True,
        "n_iter_no_change": 50,
        "tol": 0.0,
    }

    # optional parameters of a subclass
    batch_size: int | None = None
    n_neighbors = 10

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None, *, X_val=None, y_val=None):
        """Train the network on nodes.

        Parameters
        ----------
        X : NodeSet or array-like of shape (n_samples, n_features)
            Training nodes. All other nodes of their graph are used, without their
            labels. Samples of an array are nodes without edges.

        y : array-like of shape (n_samples,)
            Class labels of the nodes.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights of the nodes, which need not sum to anything.

        X_val : NodeSet or array-like of shape (n_val, n_features), default=None
            Validation nodes, of the same graph or another one. None: a fraction of the
            training nodes is held out, if `early_stopping`.

        y_val : array-like of shape (n_val,), default=None
            Labels of the validation nodes. Classes have the same weights as in
            training.

        Returns
        -------
        self : object
            The fitted classifier.

        Raises
        ------
        ValueError
            If the data are invalid, a validation label does not occur in the training
            nodes, or training diverges. The estimator then is left unchanged.
        """
        with fresh_fit(self):
            self._fit(X, y, sample_weight, X_val, y_val)
        return self

    def _fit(self, X, y, sample_weight, X_val, y_val, regularizer=None):
        """Train; ``regularizer`` returns the `penalty` of `train_nodes`."""
        nodes = check_nodes(self, X, reset=True)
        y = check_target(y, self)
        check_consistent_length(nodes, y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        user_weight = check_weight(sample_weight, len(codes), default=1)
        weight = with_class_weight(user_weight, self.class_weight, codes, self.classes_)
        if len(np.unique(codes[weight > 0])) < 2:
            raise ValueError(
                f"{type(self).__name__} needs nodes of at least two classes with a "
                f"weight above zero to fit, got 1 class: "
                f"{self.classes_.tolist()[codes[weight > 0][0]]!r}."
            )
        factors = np.ones(len(self.classes_))
        factors[codes[user_weight > 0]] = (
            weight[user_weight > 0] / user_weight[user_weight > 0]
        )
        options = training_options(self)
        rng = check_random_state(self.random_state)
        seed = int(rng.randint(np.iinfo(np.int32).max))
        device = resolve_device(self.device)
        used = np.flatnonzero(weight)
        tensors = GraphTensors(nodes.graph, device)
        samples = NodeRows(tensors, nodes.nodes[used], codes[used], weight[used])
        train, valid = self._validation(samples, factors, X_val, y_val, seed, options)
        self._config = {
            "n_features": nodes.shape[1],
            "n_classes": len(self.classes_),
            "seed": seed,
            "recipe": self._module_recipe(),
        }
        bar = progress(self.max_epochs, desc=type(self).__name__, verbose=self.verbose)
        with training(seed, device), bar:
            module = self._build().to(device)
            warn_of_weights(nodes.graph, module)
            dtype = parameter_dtype(module)  # depends also on torch's default dtype
            train = train.with_dtype(dtype)
            valid = None if valid is None else valid.with_dtype(dtype)
            penalty = None
            if regularizer is not None:
                penalty = regularizer(self, module, train, valid, factors, seed)
            run = {"options": options, "penalty": penalty, "seed": seed, "bar": bar}
            history = self._run_epochs(module, train, valid, **run)
        self.module_ = module
        self.history_ = [{"epoch": i, **done} for i, done in enumerate(history, 1)]
        self.n_iter_ = len(history)

    def _run_epochs(self, module, train, valid, **options):
        """Train the module; return the history of the epochs."""
        return train_nodes(
            module,
            train,
            valid,
            loss=self._make_loss(train.tensors.device),
            lr=self.lr,
            max_epochs=self.max_epochs,
            batch_size=self._batch_size(module, train),
            n_neighbors=self.n_neighbors,
            n_layers=getattr(module, "n_layers", 2),
            **options,
        )

    def _batch_size(self, module, train):
        """Return the number of nodes per step: all, unless the graph is too large."""
        if self.batch_size is not None:
            return self.batch_size
        n_vectors = train.tensors.shape[0]
        if getattr(module, "copies_edges", False):
            n_vectors += train.tensors.graph.adjacency.nnz
        width = 4 * sum(p.shape[0] for p in module.parameters() if p.ndim == 2)
        return None if 4 * n_vectors * width <= _MAX_EPOCH_BYTES else _SAMPLED_BATCH

    def _validation(self, samples, factors, X_val, y_val, seed, options):
        """Return training and validation nodes (or None), with class weights."""
        if (X_val is None) != (y_val is None):
            raise ValueError("Pass both of X_val and y_val, or neither.")
        valid = None
        if X_val is not None:
            nodes = check_nodes(self, X_val, reset=False)
            y_val = check_target(y_val, self)
            check_consistent_length(nodes, y_val)
            codes = label_codes(y_val, self.classes_)
            if (codes < 0).any():
                raise ValueError(
                    f"y_val contains the label {y_val.tolist()[codes.argmin()]!r}, "
                    "which no training node has: the classes are "
                    f"{self.classes_.tolist()!r}. Leave its nodes out of X_val and "
                    "y_val."
                )
            tensors = GraphTensors(nodes.graph, samples.tensors.device)
            valid = NodeRows(tensors, nodes.nodes, codes, normalized(factors[codes]))
        elif options.early_stopping:
            folds = stratified_split(
                samples.codes, options.validation_fraction, np.random.RandomState(seed)
            )
            samples, valid = (samples.take(fold, normalize=True) for fold in folds)
        return samples.take(slice(None), normalize=True), valid

    # --- methods of subclasses --------------------------------------------------

    @abstractmethod
    def _module_recipe(self):
        """Return the parameters of the network, which can be pickled."""

    @abstractmethod
    def _make_module(self, n_features, n_classes, recipe):
        """Return a new network; torch is seeded."""

    def _build(self):
        names = "n_features", "n_classes", "recipe"
        return self._make_module(*(self._config[name] for name in names))

    def _make_loss(self, device):
        """Return the loss of each node as a function of outputs and codes."""
        return cross_entropy

    # --- outputs ----------------------------------------------------------------

    def _prepare_input(self, X):
        """Return validated samples: a `NodeSet`, or an array."""
        return network_input(X, check_nodes(self, X, reset=False), self.module_)

    def _outputs(self, X):
        """Return the network's outputs for samples, (n_samples, k), float64."""
        parts = []
        with borrowed(self.module_, self.device) as device:
            dtype = parameter_dtype(self.module_)
            for graph, indices in iter_graphs(self._prepare_input(X)):
                outputs = self.module_(GraphTensors(graph, device, dtype))
                if np.array_equal(indices, np.arange(len(indices))):
                    outputs = outputs[: len(indices)]
                else:
                    outputs = outputs[torch.tensor(indices, device=outputs.device)]
                parts.append(outputs.double().cpu().numpy())
        outputs = np.concatenate(parts)
        if not np.isfinite(outputs).all():
            raise ValueError(
                "The network returned NaN or infinity for "
                f"{int((~np.isfinite(outputs)).any(axis=1).sum())} of {len(outputs)} "
                "nodes: their features are too large for it. Scale them."
            )
        return outputs

    # --- persistence ---------------------------------------------------------------

    def __getstate__(self):
        state = {**super().__getstate__()}
        if "module_" in state:
            weights = state.pop("module_").state_dict().items()
            state["_weights"] = {n: w.detach().cpu().numpy().copy() for n, w in weights}
        return state

    def __setstate__(self, state):
        state = dict(state)
        weights = state.pop("_weights", None)
        super().__setstate__(state)
        if weights is not None:
            weights = {n: to_tensor(weight.copy()) for n, weight in weights.items()}
            with training(self._config["seed"]):
                module = self._build()
                for name, tensor in module.state_dict(keep_vars=True).items():
                    tensor.data = tensor.data.to(weights[name].dtype)
                module.load_state_dict(weights)
            self.module_ = module.eval()


def cross_entropy(outputs, codes):
    """Return the cross-entropy of logits, one value per node."""
    return functional.cross_entropy(outputs, codes, reduction="none")


@dataclass(frozen=True)
class NodeRows:
    """Nodes with their class and their weight, all of shape (n_samples,)."""

    tensors: GraphTensors
    nodes: np.ndarray
    codes: np.ndarray
    weight: np.ndarray
    numbers: np.ndarray | slice = field(default_factory=partial(slice, None))

    @cached_property
    def on_device(self):
        """Nodes, codes and weights as tensors."""
        device, dtype = self.tensors.device, self.tensors.dtype
        return (
            torch.tensor(self.nodes, device=device),
            torch.tensor(self.codes, device=device),
            torch.tensor(self.weight, device=device, dtype=dtype),
        )

    def with_dtype(self, dtype):
        """Return the same nodes of a graph in another dtype."""
        tensors = GraphTensors(self.tensors.graph, self.tensors.device, dtype)
        return replace(self, tensors=tensors)

    def take(self, indices, *, normalize=False):
        """Return a selection of the nodes, with weights of mean one if `normalize`."""
        arrays = self.nodes, self.codes, self.weight
        nodes, codes, weight = (array[indices] for array in arrays)
        weight = normalized(weight) if normalize else weight
        return replace(self, nodes=nodes, codes=codes, weight=weight)


class _Sample(Graph):
    """Sampled graph, whose "symmetric" operator has the degrees of the whole graph."""

    def __init__(self, X, adjacency, degrees):
        super().__init__(X, adjacency)
        self.degrees = degrees

    def _operator(self, kind):
        operator = super()._operator(kind)
        if kind != "symmetric":
            return operator
        scale = np.sqrt(_degrees(self) / self.degrees)
        operator.data *= np.repeat(scale, np.diff(operator.indptr))
        operator.data *= scale[operator.indices]
        return operator


def _degrees(graph):
    """Return the weighted in-degrees, with a loop of one for nodes without a loop."""
    incoming = graph.operator("sum")
    return incoming.sum(axis=1) + (incoming.diagonal() == 0)


def _incoming(graph):
    """Return incoming edges except loops, weights of the loops, and degrees."""
    edges = graph.adjacency.tocoo()
    between = edges.row != edges.col
    edges = sparse.coo_array(
        (edges.data[between], (edges.col[between], edges.row[between])),
        shape=edges.shape,
    )
    return sparse.csr_array(edges), graph.adjacency.diagonal(), _degrees(graph)


def neighborhood(graph, nodes, n_layers, n_neighbors, rng):
    """Sample the subgraph of the messages that reach some nodes.

    In each layer, a newly reached node retains its loop and at most `n_neighbors` of
    its incoming edges, with greater weights so that sums over edges are unbiased.
    """
    incoming, loops, degrees = graph.derived("incoming", lambda: _incoming(graph))
    numbers, of_nodes = np.unique(nodes, return_inverse=True)
    place = np.full(graph.n_nodes, -1, dtype=np.int64)
    place[numbers] = np.arange(len(numbers))
    frontier = numbers
    edges: list = []
    for _ in range(n_layers):
        edge_indices, targets, factor = _draw_edges(
            incoming, frontier, n_neighbors, rng
        )
        sources = incoming.indices[edge_indices]
        new = np.unique(sources[place[sources] < 0])
        place[new] = np.arange(len(numbers), len(numbers) + len(new))
        numbers = np.concatenate([numbers, new])
        edges.append(
            (place[sources], place[targets], factor * incoming.data[edge_indices])
        )
        frontier = new
    with_loop = np.flatnonzero(loops[numbers])
    edges.append((with_loop, with_loop, loops[numbers[with_loop]]))
    first, second, weights = (
        np.concatenate(parts) for parts in zip(*edges, strict=True)
    )
    adjacency = sparse.csr_array(
        (weights.astype(np.float32), (first, second)), shape=(len(numbers),) * 2
    )
    sample = _Sample(graph.X[numbers], adjacency, degrees[numbers])
    return sample, numbers, of_nodes.ravel()


def _draw_edges(incoming, nodes, n_neighbors, rng):
    """Return positions and targets of the retained edges, and weight factors."""
    starts = incoming.indptr[nodes].astype(np.int64)
    degrees = incoming.indptr[nodes + 1] - starts
    owner = np.repeat(np.arange(len(nodes)), degrees)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    is_retained = np.ones(len(owner), dtype=bool)
    drawn = np.flatnonzero(degrees[owner] > n_neighbors)
    # edges of each node in random order; the first of them are retained
    order = drawn[np.lexsort((rng.random(len(drawn)), owner[drawn]))]
    is_retained[order] = within[drawn] < n_neighbors
    owner = owner[is_retained]
    factor = np.maximum(degrees / n_neighbors, 1.0)
    return starts[owner] + within[is_retained], nodes[owner], factor[owner]


def train_nodes(
    module,
    train,
    valid=None,
    *,
    loss=cross_entropy,
    penalty=None,
    lr=1e-2,
    max_epochs=200,
    options,
    batch_size=None,
    n_neighbors=10,
    n_layers=2,
    seed=0,
    bar=None,
):
    """Train a network; with validation nodes return to the best weights."""
    make, defaults = OPTIMIZERS[options.optimizer]
    optimizer = make(
        module.parameters(), lr=lr, weight_decay=options.weight_decay, **defaults
    )
    n_steps = 1 if batch_size is None else -(-len(train.nodes) // batch_size)
    schedule, by_step = make_schedule(
        options.lr_schedule, optimizer, max_epochs, n_steps
    )
    rng = np.random.default_rng(seed)
    history: list[dict] = []
    best_loss, best_state, waited = np.inf, None, 0

    def objective(samples):
        nodes, codes, weight = samples.on_device
        outputs = _outputs(module, samples.tensors)
        value = (loss(outputs[nodes], codes) * weight).mean()
        if penalty is not None:
            value = value + penalty(outputs, samples.numbers, len(history))
        return value

    def step(samples):
        optimizer.zero_grad()
        value = objective(samples)
        value.backward()
        optimizer.step()
        if by_step:
            schedule.step()
        return value.detach()

    while len(history) < max_epochs and waited < options.n_iter_no_change:
        module.train()
        if batch_size is None:
            done = {"train_loss": float(step(train))}
        else:
            batches = _sampled(train, batch_size, n_layers, n_neighbors, rng)
            steps = [(step(batch), len(batch.nodes)) for batch in batches]
            losses = torch.stack([value for value, _ in steps]).tolist()  # one wait
            total = sum(value * n for value, (_, n) in zip(losses, steps, strict=True))
            done = {"train_loss": total / len(train.nodes)}
        history.append(done)
        if schedule is not None and not by_step:
            schedule.step()
        check_finite(module, done["train_loss"], len(history))
        if valid is not None:
            with torch.no_grad(), evaluating(module):
                done["valid_loss"] = float(objective(valid))
            if not np.isfinite(done["valid_loss"]):
                raise ValueError(
                    f"The loss of the validation nodes was {done['valid_loss']} in "
                    f"epoch {len(history)}: their features are too large for the "
                    "network. Scale them like the training nodes."
                )
            waited = 0 if done["valid_loss"] < best_loss - options.tol else waited + 1
            if done["valid_loss"] < best_loss:
                best_loss = done["valid_loss"]
                best_state = copy.deepcopy(module.state_dict())
        if bar is not None:
            bar.set_postfix(**{name: f"{value:.3g}" for name, value in done.items()})
            bar.update(1)
    if best_state is not None:
        module.load_state_dict(best_state)
    module.eval()
    return history


def _outputs(module, tensors):
    """Run a network on a graph; raise if it does not return one row per node."""
    outputs = module(tensors)
    n_nodes = tensors.shape[0]
    if not isinstance(outputs, torch.Tensor):
        description = f"an object of type {type(outputs).__name__}"
    elif outputs.ndim != 2 or outputs.shape[0] != n_nodes:
        description = f"a tensor of shape {tuple(outputs.shape)}"
    else:
        return outputs
    raise ValueError(
        f"The network must return a tensor with a row for each of the {n_nodes} nodes "
        f"of the graph, got {description}."
    )


def _sampled(samples, batch_size, n_layers, n_neighbors, rng):
    """Yield the nodes of each batch as nodes of a sampled graph."""
    tensors = samples.tensors
    for indices in row_batches(len(samples.nodes), batch_size, shuffle=True):
        batch = samples.take(indices)
        graph, numbers, of_nodes = neighborhood(
            tensors.graph, batch.nodes, n_layers, n_neighbors, rng
        )
        sampled = GraphTensors(graph, tensors.device, tensors.dtype)
        yield replace(batch, tensors=sampled, nodes=of_nodes, numbers=numbers)
