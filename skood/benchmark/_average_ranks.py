"""Average ranks of methods over data sets, with a critical difference."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import numpy as np
from scipy.stats import friedmanchisquare, rankdata, studentized_range
from sklearn.utils import Bunch

from skood.utils._param_validation import Interval, validate_params


@validate_params(
    {
        "block": [str],
        "method": [str],
        "value": [str],
        "greater_is_better": ["boolean"],
        "alpha": [Interval(Real, 0, 1, closed="neither")],
    },
    prefer_skip_nested_validation=True,
)
def average_ranks(table, *, block, method, value, greater_is_better=True, alpha=0.05):
    r"""Rank methods within each data set, and average the ranks over data sets.

    The best method of a block has rank 1, and tied methods have the mean of their
    ranks. The Friedman test is of the hypothesis that all methods are equally good. By
    the Nemenyi test two of k methods on N blocks differ if their average ranks differ
    by at least

    .. math:: CD = q_\alpha \sqrt{\frac{k (k + 1)}{6 N}} ,

    with the quantile of the studentized range over :math:`\sqrt 2` as :math:`q_\alpha`
    [1]_.

    Read more in the :ref:`User Guide <average_ranks>`.

    Parameters
    ----------
    table : DataFrame, dict of str to array-like, or list of dict
        Results in long form: a row for each method and block.

    block : str
        Column of the blocks, such as data sets.

    method : str
        Column of the methods.

    value : str
        Column of the values. NaN, or no row: the method has no result for this block.

    greater_is_better : bool, default=True
        Whether the largest value has rank 1.

    alpha : float, default=0.05
        Significance level of the critical difference.

    Returns
    -------
    result : Bunch
        ``methods``, sorted by ``mean_rank``, an ndarray of shape (n_methods,) with the
        average over the blocks that have a value, and ``n_blocks``, their number, of
        shape (n_methods,). A method without a result is left out of the ranks of that
        block. Over the methods that have a result for each block, ``statistic`` and
        ``pvalue`` of the Friedman test (NaN for fewer than three), and
        ``critical_difference`` (NaN for fewer than two).

    Raises
    ------
    ValueError
        If a column is missing, or a method has two values for a block.

    See Also
    --------
    skood.metrics.paired_test : Compares two methods on the samples of one data set.

    References
    ----------
    .. [1] J. Demsar. Statistical comparisons of classifiers over multiple data sets.
       JMLR 2006.

    Examples
    --------
    >>> from skood.benchmark import average_ranks
    >>> table = {
    ...     "data": ["A", "A", "A", "B", "B", "B"],
    ...     "detector": ["KNN", "MSP", "ViM"] * 2,
    ...     "auroc": [0.95, 0.90, 0.93, 0.85, 0.80, 0.85],
    ... }
    >>> found = average_ranks(table, block="data", method="detector", value="auroc")
    >>> found.methods.tolist(), found.mean_rank.tolist()
    (['KNN', 'ViM', 'MSP'], [1.25, 1.75, 3.0])
    >>> round(found.critical_difference, 2)
    2.34
    """
    blocks, methods, values = _columns(table, (block, method, value))
    values = values.astype(np.float64)
    cells, names = _cells(blocks, methods, values)
    sign = -1.0 if greater_is_better else 1.0
    ranks = rankdata(sign * cells, axis=1, nan_policy="omit")
    present = ~np.isnan(cells)
    n_blocks = present.sum(axis=0)
    mean_rank = np.nansum(ranks, axis=0) / n_blocks
    order = np.argsort(mean_rank, kind="stable")
    whole = cells[:, n_blocks == len(cells)]
    k = whole.shape[1]
    test = (np.nan, np.nan)
    if k > 2:
        test = friedmanchisquare(*whole.T)
    difference = np.nan
    if k > 1:
        q = studentized_range.ppf(1 - alpha, k, np.inf) / np.sqrt(2)
        difference = q * np.sqrt(k * (k + 1) / (6 * len(cells)))
    return Bunch(
        methods=names[order],
        mean_rank=mean_rank[order],
        n_blocks=n_blocks[order],
        statistic=float(test[0]),
        pvalue=float(test[1]),
        critical_difference=float(difference),
    )


def _columns(table, names):
    """Return columns of a table in any form as arrays."""
    if isinstance(table, (list, tuple)):
        keys = set().union(*table)
        table = {name: [row.get(name, np.nan) for row in table] for name in keys}
    missing = [name for name in names if name not in table]
    if missing:
        raise ValueError(
            f"The table has no column {missing[0]!r}. Its columns are {list(table)}."
        )
    columns = [np.asarray(table[name]) for name in names]
    if len({len(column) for column in columns}) > 1:
        raise ValueError(
            f"The columns {list(names)} must have the same length, got "
            f"{[len(column) for column in columns]}."
        )
    if not len(columns[0]):
        raise ValueError("The table has no rows.")
    return columns


def _cells(blocks, methods, values):
    """Return values of shape (n_blocks, n_methods), NaN if missing, and the methods."""
    known, positions = np.unique(blocks, return_inverse=True)
    names, columns = np.unique(methods, return_inverse=True)
    counts = np.zeros((len(known), len(names)), dtype=int)
    np.add.at(counts, (positions, columns), 1)
    if counts.max() > 1:
        i, j = np.argwhere(counts > 1)[0]
        raise ValueError(
            f"The method {names[j]!s} has {counts[i, j]} values for the block "
            f"{known[i]!s}. Average them first, for example over seeds."
        )
    cells = np.full(counts.shape, np.nan)
    cells[positions, columns] = values
    empty = np.isnan(cells).all(axis=0)
    if empty.any():
        raise ValueError(f"The method {names[empty][0]!s} has no value.")
    return cells[~np.isnan(cells).all(axis=1)], names
