"""Validation of arrays that compiled code uses without checks.

The predictions of some estimators of scikit-learn are computed by compiled code that
does not check shapes and indices: with a forged file it would read memory out of
bounds. Arrays are therefore validated for consistency before any prediction.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from functools import partial
from types import MethodType

import numpy as np
from scipy import sparse

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
    for node, left_child, right_child in zip(
        inner.tolist(), left.tolist(), right.tolist(), strict=True
    ):
        depth[left_child] = max(depth[left_child], depth[node] + 1)
        depth[right_child] = max(depth[right_child], depth[node] + 1)
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
    for regressor in trees.ravel():
        tree = regressor.tree_
        require(type(tree).__name__ == "Tree", f"tree_ is a {type(tree).__name__}")
        require(
            tree.n_features == estimator.n_features_in_,
            f"a tree has {tree.n_features} features for {estimator.n_features_in_}",
        )
        require(tree.n_outputs == tree.max_n_classes == 1, "a tree is no regressor")
    initial = estimator._raw_predict_init(np.zeros((1, estimator.n_features_in_)))
    require(
        initial.shape == (1, n_columns), f"init_ predicts {initial.shape[1:]} columns"
    )


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
    data, index, nodes, bounds = (np.asarray(array) for array in state[:4])
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


def check_arrays(estimator):
    """Raise a ValueError if a part is not as `fit` of a compiled estimator makes it."""
    checks = [
        (_CHECKS[name], component)
        for component in _parts(estimator)
        for kind in type(component).__mro__
        if (name := f"{kind.__module__}.{kind.__qualname__}") in _CHECKS
    ]
    # boosting comes last: it calls its initial estimator
    for check, component in sorted(checks, key=lambda pair: pair[0] is check_boosting):
        try:
            check(component)
        except Exception as error:  # a forged file may contain anything
            raise ValueError(
                f"The file contains a {type(component).__name__} that no fit creates: "
                f"{error or type(error).__name__}. Its predictions would access memory "
                "beyond its arrays, so that nothing of the file is used. "
                "skood.persistence.dump wrote no such file: do not trust it."
            ) from error


def _parts(value):
    """Yield an object and all its parts, each once."""
    todo, seen = [value], {}
    while todo:
        component = todo.pop()
        if id(component) in seen or isinstance(
            component, (str, bytes, int, float, type(None))
        ):
            continue
        seen[id(component)] = component  # a reference keeps its id unique
        yield component
        if isinstance(component, dict):
            todo += [*component, *component.values()]
        elif isinstance(component, (list, tuple, set, frozenset)):
            todo += component
        elif isinstance(component, np.ndarray):
            todo += component.ravel().tolist() if component.dtype == object else []
        elif isinstance(component, partial):
            todo += [component.func, component.args, component.keywords]
        elif isinstance(component, MethodType):
            todo.append(component.__self__)
        elif not isinstance(component, type):
            todo.append(getattr(component, "__dict__", None))


# --- libsvm ---------------------------------------------------------------------------


def _check_svm(svm):
    if "support_" not in vars(svm):
        require("support_vectors_" not in vars(svm), "support_ is missing")
        return
    n_vectors = len(svm.support_)
    require("_impl" not in vars(svm), "_impl is set")
    is_classifier = any(kind.__name__ == "BaseSVC" for kind in type(svm).__mro__)
    n_classes = len(svm.classes_) if is_classifier else 2
    n_pairs = n_classes * (n_classes - 1) // 2
    _check_array(svm, "support_", np.int32, (n_vectors,))
    _check_array(svm, "_n_support", np.int32, (n_classes,))
    counts = svm._n_support.astype(np.int64)
    require((counts >= 0).all(), "_n_support is wrong")
    if is_classifier:  # predictions of other kinds do not use it
        require((counts <= n_vectors).all(), "_n_support is wrong")
        require(counts.sum() == n_vectors, "_n_support does not sum to len(support_)")
    _check_array(svm, "_intercept_", np.float64, (n_pairs,))
    n_proba = np.size(svm._probA)
    require(n_proba in (0, n_pairs), f"_probA has {n_proba} values")
    _check_array(svm, "_probA", np.float64, (n_proba,))
    _check_array(svm, "_probB", np.float64, (n_proba,))
    _check_support_vectors(svm, n_vectors, n_classes)


def _check_support_vectors(svm, n_vectors, n_classes):
    shape = n_classes - 1, n_vectors
    n_fitted, n_columns = (int(n) for n in svm.shape_fit_)
    if svm._sparse:
        for name, expected in (
            ("support_vectors_", (n_vectors, svm.n_features_in_)),
            ("_dual_coef_", shape),
        ):
            matrix = getattr(svm, name)
            require(sparse.issparse(matrix), f"{name} is not sparse")
            require(matrix.format == "csr", f"{name} is not in CSR format")
            require(matrix.shape == expected, f"{name} has shape {matrix.shape}")
            require(matrix.dtype == np.float64, f"{name} has dtype {matrix.dtype}")
            # only the values are passed to libsvm
            full = name == "support_vectors_" or matrix.data.size == np.prod(expected)
            require(full, f"{name} has {matrix.data.size} values")
        require(svm.kernel != "precomputed", "a precomputed kernel is never sparse")
        return
    _check_array(svm, "_dual_coef_", np.float64, shape)
    if callable(svm.kernel) or svm.kernel == "precomputed":
        _check_array(svm, "support_vectors_", np.float64, (0, 0))
        within = (svm.support_ >= 0) & (svm.support_ < n_fitted)
        require(within.all(), f"support_ has indices outside of [0, {n_fitted})")
        if callable(svm.kernel):
            n_fitted = len(svm._BaseLibSVM__Xfit)
        require(
            n_fitted == (int(svm.shape_fit_[0]) if callable(svm.kernel) else n_columns),
            f"shape_fit_ is {svm.shape_fit_}",
        )
        return
    _check_array(svm, "support_vectors_", np.float64, (n_vectors, svm.n_features_in_))
    require(n_columns == svm.n_features_in_, f"shape_fit_ is {svm.shape_fit_}")


def _check_array(owner, name, dtype, shape):
    array = getattr(owner, name)
    require(type(array) is np.ndarray, f"{name} is a {type(array).__name__}")
    require(
        array.dtype == dtype and array.shape == shape,
        f"{name} is {array.dtype} of shape {array.shape}, expected {np.dtype(dtype)} "
        f"of shape {shape}",
    )


# --- others that skops trusts ---------------------------------------------------------


def _check_clusters(kmeans):
    if "cluster_centers_" not in vars(kmeans):
        return
    centers = kmeans.cluster_centers_
    require(type(centers) is np.ndarray, "cluster_centers_ is no array")
    require(centers.dtype in (np.float64, np.float32), "cluster_centers_ is no float")
    require(
        centers.ndim == 2 and len(centers) > 0, "cluster_centers_ is not of two axes"
    )
    n_features = kmeans.n_features_in_
    require(
        centers.shape[1] == n_features,
        f"cluster_centers_ has {centers.shape[1]} columns for {n_features} features",
    )
    n_threads = getattr(kmeans, "_n_threads", 1)
    require(isinstance(n_threads, (int, np.integer)), "_n_threads is no number")
    require(0 < n_threads <= 4096, f"_n_threads is {n_threads}")


def _check_neighbors(estimator):
    if "_fit_X" not in vars(estimator):
        return
    X, tree = estimator._fit_X, getattr(estimator, "_tree", None)
    require(sparse.issparse(X) or type(X) is np.ndarray, "_fit_X is no array")
    require(X.ndim == 2, f"_fit_X has {X.ndim} axes")
    if estimator.effective_metric_ == "precomputed":
        require(X.shape[0] == X.shape[1] == estimator.n_features_in_, "_fit_X")
    else:
        require(
            X.shape[1] == estimator.n_features_in_,
            f"_fit_X has {X.shape[1]} columns for {estimator.n_features_in_} features",
        )
    n = X.shape[0]
    require(estimator.n_samples_fit_ == n, f"n_samples_fit_ is not {n}")
    if tree is not None:
        require(np.shape(tree.data) == X.shape, "_tree has other samples than _fit_X")
    targets = getattr(estimator, "_y", None)
    if targets is None:
        return
    require(type(targets) is np.ndarray and len(targets) == n, "_y is of other samples")
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        return
    require(targets.dtype.kind == "i", f"_y has dtype {targets.dtype}")
    is_single = targets.ndim == 1 or not isinstance(classes, list)
    for labels, labels_of in zip(
        [targets.ravel()] if is_single else targets.T,
        [classes] if is_single else classes,
        strict=True,
    ):
        within = (labels >= 0) & (labels < len(labels_of))
        require(within.all(), f"_y has labels outside of [0, {len(labels_of)})")


def _check_sparse(matrix):
    for name in ("indices", "indptr"):
        dtype = getattr(matrix, name).dtype
        require(dtype in (np.int32, np.int64), f"{name} has dtype {dtype}")
    ends = matrix.indptr[0], matrix.indptr[-1]
    n = len(matrix.indices)
    require(ends == (0, n) and len(matrix.data) == n, f"indptr ends at {ends} of {n}")
    require((np.diff(matrix.indptr.astype(np.int64)) >= 0).all(), "indptr decreases")
    matrix.check_format(full_check=True)


_CHECKS = {
    "scipy.sparse._compressed._cs_matrix": _check_sparse,
    "scipy.sparse._bsr._bsr_base": _check_sparse,
    "sklearn.cluster._kmeans._BaseKMeans": _check_clusters,
    "sklearn.ensemble._gb.BaseGradientBoosting": check_boosting,
    "sklearn.ensemble._hist_gradient_boosting.gradient_boosting"
    ".BaseHistGradientBoosting": check_hist_boosting,
    "sklearn.neighbors._base.NeighborsBase": _check_neighbors,
    "sklearn.neighbors._ball_tree.BallTree": check_neighbor_tree,
    "sklearn.neighbors._kd_tree.KDTree": check_neighbor_tree,
    "sklearn.svm._base.BaseLibSVM": _check_svm,
    "sklearn.tree._classes.BaseDecisionTree": check_tree_estimator,
    "sklearn.tree._tree.Tree": check_tree,
}
