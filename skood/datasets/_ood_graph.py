"""Generated graph with classes that determine its edges and features."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state

from skood.datasets._digits_ood import _left_out_labels
from skood.utils._param_validation import Interval, StrOptions, validate_params


@validate_params(
    {
        "n_samples": [Interval(Integral, 1, None, closed="left")],
        "n_classes": [Interval(Integral, 2, None, closed="left")],
        "n_features": [Interval(Integral, 1, None, closed="left")],
        "average_degree": [Interval(Real, 0, None, closed="left")],
        "homophily": [Interval(Real, 0, 1, closed="both")],
        "features": [StrOptions({"gaussian", "words"})],
        "feature_signal": [Interval(Real, 0, None, closed="left")],
        "left_out": [Integral, "array-like"],
        "ood_label": [Integral],
        "return_X_y": ["boolean"],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_ood_graph(
    n_samples=1000,
    *,
    n_classes=4,
    n_features=32,
    average_degree=6.0,
    homophily=0.8,
    features="gaussian",
    feature_signal=1.0,
    left_out=(),
    ood_label=-1,
    return_X_y=False,
    random_state=None,
):
    r"""Generate an undirected graph with classes that determine edges and features.

    A stochastic block model [1]_: the number of edges is fixed, a fraction `homophily`
    of them is drawn from all pairs of nodes of one class, and the others from all pairs
    of nodes of two classes, without repetition. Classes are of equal size, up to one
    node. Nodes may be isolated.

    Read more in the :ref:`User Guide <datasets>`.

    Parameters
    ----------
    n_samples : int, default=1000
        Number of nodes.

    n_classes : int, default=4
        Number of classes, including left-out ones.

    n_features : int, default=32
        Number of features.

    average_degree : float, default=6.0
        Average number of neighbors of a node.

    homophily : float, default=0.8
        Fraction of edges within a class.

    features : {"gaussian", "words"}, default="gaussian"
        "gaussian": dense float32, with noise of unit variance around the mean of the
        class, which is a random direction of length :math:`s / \sqrt 2`, s being
        `feature_signal`. "words": sparse ones at the words of a node; each node draws
        :math:`\sqrt{n_\text{features}}` words, with repetition, from the probabilities
        of its class, proportional to :math:`\exp(s\, g)` with standard normal g for
        each word and class.

    feature_signal : float, default=1.0
        Separation of classes by their features: the root mean square distance
        between the means of two classes, in standard deviations, or the spread of the
        logarithms of word frequencies. 0: no separation.

    left_out : int or sequence of int, default=()
        Classes whose nodes are labeled `ood_label`.

    ood_label : int, default=-1
        Label of the nodes of left-out classes.

    return_X_y : bool, default=False
        Whether to return `(nodes, y)`.

    random_state : int, RandomState instance or None, default=None
        Determines the graph. Pass an int for reproducible output.

    Returns
    -------
    nodes : :class:`~skood.graph.NodeSet`
        All nodes, with labels.

    (nodes, y) : tuple if ``return_X_y=True``
        The nodes and their labels.

    Raises
    ------
    ValueError
        If there are fewer nodes than classes, or fewer pairs of nodes than edges to
        draw.

    See Also
    --------
    split_nodes : Training, validation and test nodes.
    load_graph : Published graphs.

    Notes
    -----
    For classes that are OOD only in the test part, leave `left_out` empty and pass
    the classes to :func:`split_nodes`, or to
    :class:`~skood.model_selection.LeaveClassesOut`.

    References
    ----------
    .. [1] P. W. Holland, K. B. Laskey, S. Leinhardt, "Stochastic blockmodels: first
       steps", Social Networks, 1983.

    Examples
    --------
    >>> from skood.datasets import make_ood_graph
    >>> nodes, y = make_ood_graph(100, left_out=3, return_X_y=True, random_state=0)
    >>> nodes
    NodeSet of 100 of 100 nodes with 32 features and 600 edges
    >>> int((y == -1).sum())
    25
    """
    from skood.graph import NodeSet

    if n_samples < n_classes:
        raise ValueError(
            f"n_samples={n_samples} nodes cannot be of n_classes={n_classes} classes."
        )
    left = _left_out_labels(left_out, range(n_classes))
    if 0 <= ood_label < n_classes and ood_label not in left:
        raise ValueError(
            f"ood_label={ood_label!r} is one of the classes that are kept. Use a "
            "number that is no class, such as -1."
        )
    rng = check_random_state(random_state)
    codes = rng.permutation(np.arange(n_samples) % n_classes)
    n_edges = round(n_samples * average_degree / 2)
    i, j = _draw_edges(codes, n_classes, n_edges, homophily, rng)
    ones = np.ones(2 * n_edges, dtype=np.float32)
    adjacency = sparse.csr_array(
        sparse.coo_array(
            (ones, (np.concatenate([i, j]), np.concatenate([j, i]))),
            shape=(n_samples, n_samples),
        )
    )
    draw = _draw_gaussian if features == "gaussian" else _draw_words
    X = draw(codes, n_classes, n_features, feature_signal, rng)
    labels = np.where(np.isin(codes, left), ood_label, codes)
    nodes = NodeSet((X, adjacency), labels=labels)
    return (nodes, nodes.labels) if return_X_y else nodes


def _draw_edges(codes, n_classes, n_edges, homophily, rng):
    """Return the ends of distinct edges: edges within classes first."""
    order = np.argsort(codes, kind="stable")  # nodes of class 0, of class 1, …
    sizes = np.bincount(codes)
    first = np.cumsum(sizes) - sizes
    n_within = round(homophily * n_edges)
    pairs = sizes * (sizes - 1) // 2
    block, pair = _draw_pairs(pairs, n_within, "within classes", rng)
    i, j = _unfold(pair, sizes[block])
    within = order[first[block] + i], order[first[block] + j]
    a, b = np.triu_indices(n_classes, 1)
    pairs = sizes[a] * sizes[b]
    block, pair = _draw_pairs(pairs, n_edges - n_within, "between classes", rng)
    i, j = np.divmod(pair, sizes[b[block]])
    between = order[first[a[block]] + i], order[first[b[block]] + j]
    return tuple(np.concatenate(ends) for ends in zip(within, between, strict=True))


def _draw_pairs(pairs, n_drawn, where, rng):
    """Draw distinct pairs of nodes uniformly: their blocks, and numbers there."""
    last = np.cumsum(pairs)
    n_pairs = int(last[-1])
    if n_drawn > n_pairs:
        raise ValueError(
            f"{n_drawn} edges {where} are to be drawn, but there are only {n_pairs} "
            f"pairs of nodes {where}. Lower average_degree or change homophily."
        )
    if n_pairs <= 4 * n_drawn:
        drawn = rng.permutation(n_pairs)[:n_drawn]
    else:  # few of many: draw, and redraw duplicates
        drawn = np.empty(0, dtype=np.int64)
        while len(drawn) < n_drawn:
            more = rng.randint(n_pairs, size=n_drawn - len(drawn), dtype=np.int64)
            drawn = np.unique(np.concatenate([drawn, more]))
    block = np.searchsorted(last, drawn, side="right")
    return block, drawn - (last - pairs)[block]


def _unfold(pair, size):
    """Return i < j of the pair with a number from 0 to size * (size - 1) / 2 - 1.

    Row i of the upper triangle and row size - 1 - i together are size - 1 long.
    """
    i, j = np.divmod(pair, size - 1)
    upper = j >= i
    return np.where(upper, i, size - 1 - i), np.where(upper, j + 1, size - 1 - j)


def _draw_gaussian(codes, n_classes, n_features, signal, rng):
    """Return noise of unit variance around a mean for each class."""
    means = rng.standard_normal((n_classes, n_features))
    means *= signal / np.sqrt(2) / np.linalg.norm(means, axis=1, keepdims=True)
    X = rng.standard_normal((len(codes), n_features)).astype(np.float32)
    X += means.astype(np.float32)[codes]
    return X


def _draw_words(codes, n_classes, n_features, signal, rng):
    """Return sparse ones at words drawn from the word frequencies of each class."""
    logits = signal * rng.standard_normal((n_classes, n_features))
    fractions = np.cumsum(np.exp(logits - logits.max(axis=1, keepdims=True)), axis=1)
    fractions /= fractions[:, -1:]
    n_words = round(np.sqrt(n_features))
    words = np.empty((len(codes), n_words), dtype=np.int64)
    for code in range(n_classes):
        members = codes == code
        drawn = rng.uniform(size=(int(members.sum()), n_words))
        words[members] = np.searchsorted(fractions[code], drawn, side="right")
    nodes = np.repeat(np.arange(len(codes)), n_words)
    ones = np.ones(words.size, dtype=np.float32)
    shape = (len(codes), n_features)
    X = sparse.csr_array(sparse.coo_array((ones, (nodes, words.ravel())), shape=shape))
    X.data[:] = 1
    return X
