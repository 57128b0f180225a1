"""Validation of indices in trees of scikit-learn that compiled code does not check."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

_LEAF = -1


def require(condition, message):
    """Raise a ValueError if a condition does not hold."""
    if not condition:
        raise ValueError(message)


def _check_nodes(left, right, is_leaf, features, n_features, max_depth=None):
    """Check that inner nodes have later nodes as children, and valid features."""
    n = len(left)
    inner = np.flatnonzero(~is_leaf)
    left, right = left[inner].astype(np.int64), right[inner].astype(np.int64)
    # children come after their parents, so that every path is finite
    for children in (left, right):
        within = (children > inner) & (children < n)
        require(within.all(), f"a child is not a later one of {n} nodes")
    features = features[inner]
    within = (features >= 0) & (features < n_features)
    require(within.all(), f"a node has a feature outside of [0, {n_features})")
    if max_depth is None:
        return
    depth = np.zeros(n, dtype=np.int64)
    for node, one, other in zip(
        inner.tolist(), left.tolist(), right.tolist(), strict=True
    ):
        depth[one] = max(depth[one], depth[node] + 1)
        depth[other] = max(depth[other], depth[node] + 1)
    require(depth.max() <= max_depth, f"the depth is {depth.max()}, not {max_depth}")


def check_tree(tree):
    """Check the nodes of a decision tree."""
    # before accessing any array, which would have this many nodes
    require(
        0 < tree.node_count <= tree.capacity,
        f"node_count is {tree.node_count} of {tree.capacity}",
    )
    left = tree.children_left
    _check_nodes(
        left,
        tree.children_right,
        left == _LEAF,
        tree.feature,
        tree.n_features,
        tree.max_depth,
    )


def check_tree_estimator(estimator):
    """Check that a decision tree has as many features as its estimator."""
    if "tree_" not in vars(estimator):
        return
    tree = estimator.tree_
    require(type(tree).__name__ == "Tree", f"tree_ is a {type(tree).__name__}")
    require(
        tree.n_features == estimator.n_features_in_,
        f"tree_ has {tree.n_features} features for {estimator.n_features_in_}",
    )


def check_boosting(estimator):
    """Check the trees of a gradient boosting classifier or regressor."""
    if "estimators_" not in vars(estimator):
        return
    trees, n_columns = estimator.estimators_, estimator.n_trees_per_iteration_
    require(
        type(trees) is np.ndarray and trees.ndim == 2 and trees.shape[1] == n_columns,
        f"estimators_ is not of shape (n_estimators, {n_columns})",
    )
    n_classes = getattr(estimator, "n_classes_", 1)
    expected = 1 if n_classes <= 2 else n_classes
    require(n_columns == expected, f"n_trees_per_iteration_ is not {expected}")
    for one in trees.ravel():
        tree = one.tree_
        require(type(tree).__name__ == "Tree", f"tree_ is a {type(tree).__name__}")
        require(
            tree.n_features == estimator.n_features_in_,
            f"a tree has {tree.n_features} features for {estimator.n_features_in_}",
        )
        require(tree.n_outputs == tree.max_n_classes == 1, "a tree is no regressor")
    found = estimator._raw_predict_init(np.zeros((1, estimator.n_features_in_)))
    require(found.shape == (1, n_columns), f"init_ predicts {found.shape[1:]} columns")


def check_hist_boosting(estimator):
    """Check the trees of a histogram gradient boosting classifier or regressor."""
    if "_predictors" not in vars(estimator):
        return
    n_features = estimator.n_features_in_
    is_categorical = np.zeros(n_features, dtype=bool)
    if estimator.is_categorical_ is not None:
        is_categorical = np.asarray(estimator.is_categorical_)
        require(is_categorical.shape == (n_features,), "is_categorical_")
    mapper = estimator._bin_mapper
    require(
        np.array_equal(mapper.is_categorical_, is_categorical)
        and len(mapper.bin_thresholds_) == n_features,
        "_bin_mapper is of other features",
    )
    for group in estimator._predictors:
        require(
            len(group) == estimator.n_trees_per_iteration_,
            f"an iteration has {len(group)} trees",
        )
        for predictor in group:
            _check_predictor(predictor, n_features, is_categorical)


def _check_predictor(predictor, n_features, is_categorical):
    from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE

    nodes = predictor.nodes
    require(nodes.dtype == PREDICTOR_RECORD_DTYPE, f"nodes have dtype {nodes.dtype}")
    require(nodes.ndim == 1 and len(nodes) > 0, f"nodes have shape {nodes.shape}")
    is_leaf, features = nodes["is_leaf"] != 0, nodes["feature_idx"]
    _check_nodes(nodes["left"], nodes["right"], is_leaf, features, n_features)
    by_category = ~is_leaf & (nodes["is_categorical"] != 0)
    require(
        is_categorical[features[by_category]].all(),
        "a node has categories of a feature that has none",
    )
    bitsets = predictor.raw_left_cat_bitsets
    require(
        bitsets.dtype == np.uint32 and bitsets.ndim == 2 and bitsets.shape[1] == 8,
        f"raw_left_cat_bitsets is {bitsets.dtype} of shape {bitsets.shape}",
    )
    within = nodes["bitset_idx"][by_category] < len(bitsets)
    require(within.all(), f"a node has none of {len(bitsets)} sets of categories")


def check_neighbor_tree(tree):
    """Check the nodes of a KDTree or a BallTree."""
    state = tree.__getstate__()
    data, index, nodes, bounds = (np.asarray(part) for part in state[:4])
    leaf_size, n_levels, n_nodes = state[4:7]
    n, n_features = data.shape
    # queries divide by it, and it determines the levels
    require(leaf_size >= 1, f"leaf_size is {leaf_size}")
    depth = int(np.log2(max(1, (n - 1) / leaf_size)) + 1)
    require(n_levels == depth, f"{n} samples have {depth} levels, not {n_levels}")
    require(index.shape == (n,), f"the index has shape {index.shape} for {n} samples")
    require(np.array_equal(np.sort(index), np.arange(n)), "the index is no permutation")
    require(nodes.shape == (n_nodes,), f"there are {len(nodes)} nodes, not {n_nodes}")
    require(n_nodes == 2**n_levels - 1, f"{n_levels} levels have not {n_nodes} nodes")
    n_parts = 2 if type(tree).__name__ == "KDTree" else 1
    expected = n_parts, n_nodes, n_features
    require(bounds.shape == expected, f"bounds have shape {bounds.shape}")
    start, end = nodes["idx_start"], nodes["idx_end"]
    within = (start >= 0) & (start <= end) & (end <= n)
    require(within.all(), f"a node has samples outside of [0, {n})")
    without_children = 2 * np.arange(n_nodes) + 2 >= n_nodes
    require((nodes["is_leaf"][without_children] != 0).all(), "a child is missing")
    weights = state[12]
    require(weights is None or np.shape(weights) == (n,), "weights of other samples")
