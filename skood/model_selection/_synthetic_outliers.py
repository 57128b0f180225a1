"""Synthetic outliers, to compare detectors if there are no OOD samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from numbers import Integral

import numpy as np
from scipy.sparse import issparse
from scipy.stats import chi2
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_consistent_length

from skood.utils._input import check_input
from skood.utils._labels import check_id_mask, check_labels, put_label, sortable_labels
from skood.utils._optional import import_pandas
from skood.utils._param_validation import Interval, StrOptions, validate_params
from skood.utils._torch import to_numpy

# Boundary samples are among this fraction of the least likely samples of a class: VOS
# selects one of 10,000 draws.
_TAIL = 1e-4


def _pairs(codes, n_samples, rng):
    """Return random samples, and for each a random sample of another class."""
    first = rng.randint(len(codes), size=n_samples)
    counts = np.bincount(codes)
    n_class = counts[codes[first]]
    order = np.argsort(codes, kind="stable")
    drawn = rng.randint(len(codes) - n_class)
    # skip the block of the own class in the samples sorted by class
    class_start = (np.cumsum(counts) - counts)[codes[first]]
    return first, order[drawn + np.where(drawn >= class_start, n_class, 0)]


def _half_of_columns(shape, rng):
    """Return a mask with a random half of the columns in each row, rounded down."""
    ranks = rng.uniform(size=shape).argsort(axis=1)
    return ranks < shape[1] // 2


def _mixing(X, codes, n_samples, rng):
    first, second = _pairs(codes, n_samples, rng)
    return (X[first] + X[second]) / 2


def _dropout(X, codes, n_samples, rng):
    drawn = X[rng.randint(len(X), size=n_samples)]
    return np.where(_half_of_columns(drawn.shape, rng), X.mean(axis=0), drawn)


def _uniform(X, codes, n_samples, rng):
    low, high = X.min(axis=0), X.max(axis=0)
    return low + rng.uniform(size=(n_samples, X.shape[1])) * (high - low)


def _boundary(X, codes, n_samples, rng):
    n_classes = codes.max() + 1
    centers = np.stack([X[codes == k].mean(axis=0) for k in range(n_classes)])
    residuals = X - centers[codes]
    _, values, axes = np.linalg.svd(residuals, full_matrices=False)
    # without this, rounding errors would be directions of a singular covariance
    nonzero = values > values.max() * max(X.shape) * np.finfo(X.dtype).eps
    freedom = len(X) - n_classes
    if freedom < 1 or not nonzero.any():
        raise ValueError(
            "kind='boundary' requires a class with two different samples, whose spread "
            f"is estimated; got {len(X)} samples of {n_classes} classes."
        )
    directions = rng.normal(size=(n_samples, nonzero.sum()))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    tail = _TAIL * (1 - rng.uniform(size=(n_samples, 1)))  # in (0, _TAIL]
    radii = np.sqrt(chi2.isf(tail, directions.shape[1]))
    scaled = directions * (values[nonzero] / np.sqrt(freedom))
    drawn = codes[rng.randint(len(codes), size=n_samples)]
    return centers[drawn] + radii * scaled @ axes[nonzero]


_NUMERIC = {
    "boundary": _boundary,
    "mixing": _mixing,
    "dropout": _dropout,
    "uniform": _uniform,
}


def _swapped_indices(shape, codes, n_samples, rng):
    """Return the sample that each entry of an outlier is taken from."""
    first, second = _pairs(codes, n_samples, rng)
    taken = _half_of_columns((n_samples, shape[1]), rng)
    return np.where(taken, second[:, None], first[:, None])


def _numeric(X, kind):
    """Return `X` as a finite array of floats with two axes."""
    if hasattr(X, "iloc"):
        kinds = {str(name): dtype.kind for name, dtype in X.dtypes.items()}
        other = [name for name, letter in kinds.items() if letter not in "biuf"]
        if other:
            raise ValueError(
                f"kind={kind!r} requires numbers; the columns {other[:5]} are not. "
                "Encode them first, or use kind='swapping'."
            )
    X = check_array(
        X, dtype=[np.float64, np.float32], order="C", allow_nd=True, input_name="X"
    )
    return X.reshape(len(X), -1)


def _check_samples(X):
    """Return `X` as a frame of pandas or an array, with at least two axes."""
    if issparse(X):
        raise TypeError(
            "X is sparse, and synthetic outliers are dense. Reduce it first, for "
            "example with sklearn.decomposition.TruncatedSVD."
        )
    X = check_input(X)
    if hasattr(X, "iloc"):
        return X
    if hasattr(X, "to_pandas"):
        raise TypeError(
            f"X must be an array or a pandas.DataFrame, got {type(X).__module__}."
            f"{type(X).__name__}. Pass X.to_pandas()."
        )
    X = np.asarray(to_numpy(X))
    if X.ndim < 2:
        raise ValueError(f"Expected 2D array, got {X.ndim}D array instead.")
    return X


@validate_params(
    {
        "X": "no_validation",
        "y": "no_validation",
        "kind": [StrOptions({*_NUMERIC, "swapping"})],
        "n_samples": [Interval(Integral, 1, None, closed="left"), None],
        "random_state": ["random_state"],
        "ood_label": [Integral, str],
    },
    prefer_skip_nested_validation=True,
)
def make_synthetic_outliers(
    X, y, *, kind="swapping", n_samples=None, random_state=None, ood_label=-1
):
    r"""Append synthetic outliers to in-distribution (ID) samples.

    To compare detectors if there are no out-of-distribution (OOD) samples, and the
    classifier cannot be fitted without some of its classes: a frozen network.

    Read more in the :ref:`User Guide <synthetic_outliers>`, which reports how well each
    kind predicts the ranking of detectors on real OOD samples.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features) or (n_samples, ...)
        Samples: inputs or features. An array, a tensor, or a data frame of pandas;
        with more than two axes, all axes but the first are columns.

    y : array-like of shape (n_samples,)
        Classes. Samples labeled `ood_label` are returned, but not used.

    kind : {"boundary", "swapping", "mixing", "dropout", "uniform"}, default="swapping"
        With two ID samples :math:`x_i, x_j` of different classes, drawn at random, a
        random half J of the columns, and class means :math:`\mu_k`, an outlier is

        - "boundary": :math:`\mu_k + r \Sigma^{1/2} u`, with the pooled covariance
          :math:`\Sigma` of rank d within classes, a random direction u and
          :math:`P(\chi^2_d > r^2) \le 10^{-4}`: the least likely samples of Gaussian
          classes, as in VOS [1]_;
        - "swapping": :math:`x_i` with the columns J of :math:`x_j`, as in CutMix [2]_.
          Columns of frames may have any type;
        - "mixing": :math:`(x_i + x_j) / 2` [3]_;
        - "dropout": :math:`x_i` with the means of the columns in J;
        - "uniform": uniform between the smallest and largest value of each column
          [3]_, [4]_.

    n_samples : int, default=None
        Number of outliers. None: the number of ID samples.

    random_state : int, RandomState instance or None, default=None
        Determines the draws. Pass an int for the same outliers in every call.

    ood_label : int or str, default=-1
        The label of OOD samples, not a class.

    Returns
    -------
    X_all : ndarray or DataFrame of shape (n_samples + n_outliers, ...)
        The samples followed by the outliers. Numbers are floats, unless swapped.

    y_all : ndarray of shape (n_samples + n_outliers,)
        The classes, and `ood_label` for each outlier.

    Raises
    ------
    TypeError
        If `X` is sparse, or a frame of another package.

    ValueError
        If a kind other than "swapping" is given missing values or columns that are
        not numbers, or if there is only one class, for pairs, or only one column, for
        halves.

    See Also
    --------
    LeaveClassesOut : For estimators that are fitted: left-out classes are OOD.
    OODStratifiedKFold : Splits of the returned samples.

    Notes
    -----
    Pass held-out samples: detectors have low scores for outliers made of samples that
    they were not fitted on, and higher ones for mixtures of training samples. In a
    cross-validation, make outliers of the test samples, within the scorer.

    References
    ----------
    .. [1] X. Du, Z. Wang, M. Cai, Y. Li. VOS: learning what you don't know by virtual
       outlier synthesis. ICLR 2022.
    .. [2] S. Yun, D. Han, S. J. Oh, S. Chun, J. Choe, Y. Yoo. CutMix: regularization
       strategy to train strong classifiers with localizable features. ICCV 2019.
    .. [3] D. Hendrycks, M. Mazeika, T. Dietterich. Deep anomaly detection with outlier
       exposure. ICLR 2019. Uniform noise and means of pairs, among others, are its
       validation data.
    .. [4] D. M. J. Tax, R. P. W. Duin. Uniform object generation for optimizing
       one-class classifiers. Journal of Machine Learning Research 2, 2001.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.model_selection import make_synthetic_outliers
    >>> X, y = np.array([[0.0, 0.0], [4.0, 8.0]]), np.array([0, 1])
    >>> X_all, y_all = make_synthetic_outliers(X, y, kind="mixing", n_samples=1)
    >>> X_all
    array([[0., 0.],
           [4., 8.],
           [2., 4.]])
    >>> y_all
    array([ 0,  1, -1])
    """
    X, y = _check_samples(X), check_labels(y)
    check_consistent_length(X, y)
    rng = check_random_state(random_state)
    id_indices = np.flatnonzero(check_id_mask(y, ood_label))
    classes, codes = np.unique(sortable_labels(y[id_indices]), return_inverse=True)
    if kind in ("mixing", "swapping") and len(classes) < 2:
        raise ValueError(
            f"kind={kind!r} requires samples of two classes, got only the class "
            f"{classes.tolist()[0]!r}. Use another kind."
        )
    n_columns = math.prod(X.shape[1:])
    if kind in ("swapping", "dropout") and n_columns < 2:
        raise ValueError(
            f"kind={kind!r} changes half of the columns, and X has {n_columns}. Use "
            "another kind."
        )
    n_samples = len(id_indices) if n_samples is None else n_samples
    X_all = _with_outliers(X, id_indices, codes, kind, n_samples, rng)
    labels = np.concatenate([y, np.repeat(y[id_indices[:1]], n_samples)])
    return X_all, put_label(labels, slice(len(y), None), ood_label)


def _with_outliers(X, id_indices, codes, kind, n_samples, rng):
    """Return the samples followed by outliers, in the type of the samples."""
    is_frame = hasattr(X, "iloc")
    known = X.iloc[id_indices] if is_frame else X[id_indices]
    if kind != "swapping":
        values = _numeric(known, kind)
        outliers = _NUMERIC[kind](values, codes, n_samples, rng).astype(values.dtype)
    else:
        known = known if is_frame else known.reshape(len(known), -1)
        indices = _swapped_indices(known.shape, codes, n_samples, rng)
        if is_frame:
            columns = zip(known.columns, indices.T, strict=True)
            outliers = {name: known[name].array[taken] for name, taken in columns}
        else:
            outliers = np.take_along_axis(known, indices, axis=0)
    if not is_frame:
        return np.concatenate([X, outliers.reshape(n_samples, *X.shape[1:])])
    pd = import_pandas("make_synthetic_outliers")
    outliers = pd.DataFrame(outliers, columns=X.columns)
    return pd.concat([X, outliers], ignore_index=True)
