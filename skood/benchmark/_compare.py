"""Compare detectors on in-distribution rows and sets of out-of-distribution rows."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import os
from collections.abc import Mapping
from numbers import Integral, Real

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import check_consistent_length, check_random_state

from skood.base import n_rows
from skood.benchmark._cells import ID, Data, Repeat, run_cells
from skood.benchmark._significance import METRICS, Resamples, holm, pvalues_of_best
from skood.metrics._ranking import Number
from skood.metrics._resampling import finite_values, interval
from skood.utils._labels import check_label_rows, ood_mask
from skood.utils._pandas import import_pandas
from skood.utils._params import validate_params

__all__ = ["compare"]

_FOLDER = [str, os.PathLike, None]


@validate_params(
    {
        "detectors": [Mapping, list, tuple],
        "ood": [Mapping],
        "metrics": [list, tuple, str],
        "groups": [Mapping, None],
        "test_size": [
            Number(Integral, 1, None, closed="left"),
            Number(Real, 0, 1, closed="neither"),
        ],
        "repeats": [Number(Integral, 1, None, closed="left")],
        "n_resamples": [Number(Integral, 1, None, closed="left")],
        "confidence_level": [Number(Real, 0, 1, closed="neither")],
        "cache": _FOLDER,
        "resume": _FOLDER,
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    },
    prefer_skip_nested_validation=True,
)
def compare(
    detectors,
    X_id,
    y_id,
    ood,
    *,
    X_train=None,
    y_train=None,
    metrics=("auroc", "aupr_in", "aupr_out", "fpr_at_tpr"),
    groups=None,
    test_size=0.3,
    repeats=1,
    n_resamples=999,
    confidence_level=0.95,
    cache=None,
    resume=None,
    n_jobs=None,
    random_state=None,
    verbose=0,
):
    r"""Compare detectors on held-out ID rows and sets of OOD rows.

    Each detector is fitted on a part of the ID rows, and scores the others and all OOD
    rows. The table has every metric of every detector on every set, with its interval
    and a p-value of being among the best. A network that several detectors read runs
    once over each array. Read more in the :ref:`User Guide <benchmark>`.

    Parameters
    ----------
    detectors : dict of str to detector, or list of (str, detector)
        What is compared: anything with ``fit`` and ``score_samples``, high for ID rows.
        Each is cloned and fitted, unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`.

    X_id : array-like of shape (n_samples, ...)
        ID rows.

    y_id : array-like of shape (n_samples,) or (n_samples, n_columns), or None
        Their classes, by whose shares (of several columns, the first) the rows are
        split. None: there are none.

    ood : dict of str to array-like of shape (n_rows, ...)
        Sets of OOD rows by name.

    X_train, y_train : array-like, default=None
        Rows to fit on. All of `X_id` are held out then; so they are if all detectors
        are frozen. None: part of `X_id`.

    metrics : str or sequence of str
        Among "auroc", "aupr_in", "aupr_out", "fpr_at_tpr" (of 0.95) and
        "detection_error", see :func:`~skood.metrics.ranking_metrics`. The default is
        all but the last.

    groups : dict of str to list of str, default=None
        Groups of sets, such as ``{"near": ["a", "b"], "far": ["c"]}``: each metric is
        also averaged over the sets of a group.

    test_size : float or int, default=0.3
        Share or number of the ID rows that are held out.

    repeats : int, default=1
        Number of splits, of which values are averaged. With `X_train` repeats differ
        only in what detectors draw.

    n_resamples : int, default=999
        Number of bootstrap resamples of the rows.

    confidence_level : float, default=0.95
        Level of the intervals, in (0, 1).

    cache : str or path-like, default=None
        Folder that keeps what is read off fitted networks. Its files are named by the
        SHA-256 of the network, the rows and how they are read, so that it can be used
        again and for other comparisons.

    resume : str or path-like, default=None
        Folder that keeps the scores of finished cells, a detector on a set of rows:
        after an interruption the same call goes on where it was. A cell is found by
        the SHA-256 of the detector, the rows and the versions of the libraries; what
        has changed is computed anew. Needs an integer `random_state`.

    n_jobs : int, default=None
        Number of joblib jobs. Detectors that read the same network are one job.

    random_state : int, RandomState instance or None, default=None
        Splits the rows, draws the resamples and is handed on to detectors whose
        `random_state` is None.

    verbose : int, default=0
        1 shows a progress bar.

    Returns
    -------
    table : pandas.DataFrame
        One row for each detector (in the order given), metric and set or group, with
        the columns

        - "ood", "metric", "detector": names; "is_group": whether "ood" is a group;
        - "value": the metric, averaged over repeats, and "low" and "high", the ends of
          its bootstrap interval; with several repeats "std", the standard deviation
          over them;
        - "pvalue": adjusted p-value of the hypothesis that no detector is better;
          small: this one is not among the best;
        - "is_best": whether "value" is the best;
        - "n_id", "n_ood": numbers of rows (in a repeat);
        - "fit_seconds", "score_seconds": of the fit, and of scoring all sets, without
          the "network_seconds" that a frozen network took, which detectors that read
          the same one share. Averages over repeats.

    Raises
    ------
    ValueError
        If names, rows or labels do not fit together, or a detector gives no finite or
        infinite number for a row.
    ImportError
        If pandas is not installed.

    See Also
    --------
    run_main_job : A network, its detectors and reject options on one data set.
    skood.metrics.paired_test : Two detectors.

    Notes
    -----
    *Intervals* are percentile intervals of resampled rows: ID and OOD rows are drawn
    with replacement, the same for all detectors, in all repeats and groups. They tell
    how values vary with the rows that are scored, not with those of the fit. A metric
    that is perfect on the rows is so on each resample, and its interval is a point.

    *Significance.* For a metric :math:`\theta` that is high for good detectors, the
    distance of detector i from the best is compared with that of the resampled errors,

    .. math::
        p_i = \frac{1}{1 + B} \Big( 1 + \# \big\{ b : \max_j (\theta^*_{bj} -
        \hat\theta_j) - (\theta^*_{bi} - \hat\theta_i) \ge \max_j \hat\theta_j -
        \hat\theta_i \big\} \Big),

    so that it does not matter that the best one was chosen on the same rows [1]_ [2]_.
    The p-values of a metric and a set are adjusted by Holm's method [3]_, not those of
    different sets or metrics.

    References
    ----------
    .. [1] J. C. Hsu. Constrained simultaneous confidence intervals for multiple
       comparisons with the best. Annals of Statistics, 1984.
    .. [2] H. White. A reality check for data snooping. Econometrica, 2000.
    .. [3] S. Holm. A simple sequentially rejective multiple test procedure.
       Scandinavian Journal of Statistics, 1979.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skood.benchmark import compare
    >>> from skood.detectors import KNN, Mahalanobis
    >>> X, y = load_digits(return_X_y=True)
    >>> is_id = y < 8
    >>> table = compare(
    ...     {"knn": KNN(), "gauss": Mahalanobis()},
    ...     X[is_id],
    ...     y[is_id],
    ...     {"eights": X[y == 8], "nines": X[y == 9]},
    ...     metrics="auroc",
    ...     n_resamples=99,
    ...     random_state=0,
    ... )
    >>> list(table.columns)[:6]
    ['ood', 'is_group', 'metric', 'detector', 'value', 'low']
    >>> table.pivot(index="detector", columns="ood", values="value").round(2)
    ood       eights  nines
    detector
    gauss       0.87   0.86
    knn         0.77   0.82
    """
    pd = import_pandas("compare")
    found = run_comparison(
        _named(detectors, "detectors", ["fit", "score_samples"]),
        _data(X_id, y_id, ood, X_train, y_train),
        metrics=_checked_metrics(metrics),
        groups=_checked_groups(groups, ood),
        test_size=test_size,
        repeats=repeats,
        n_resamples=n_resamples,
        confidence_level=confidence_level,
        cache=cache,
        resume=resume,
        n_jobs=n_jobs,
        random_state=random_state,
        verbose=verbose,
    )
    return pd.DataFrame(found)


def _named(given, what, methods=()):
    """Return a dict of names to things, or raise."""
    pairs = list(given.items()) if isinstance(given, Mapping) else list(given)
    is_pairs = all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs)
    if not pairs or not is_pairs or not all(isinstance(k, str) for k, _ in pairs):
        raise ValueError(
            f"{what} must be a dict with one name or more, or a list of (name, "
            f"value), got {given!r}. Write {what}={{'name': …}}."
        )
    names = [name for name, _ in pairs]
    bad = sorted({name for name in names if not name or names.count(name) > 1})
    if bad:
        raise ValueError(
            f"Names in {what} must be distinct and not empty, got {bad}. Rename them."
        )
    for name, thing in pairs:
        lacking = [method for method in methods if not hasattr(thing, method)]
        if lacking or (methods and isinstance(thing, type)):
            raise TypeError(
                f"{name!r} in {what} must be a detector with {' and '.join(methods)}, "
                f"got {thing!r}. A network or classifier is read by a detector, such "
                "as Energy(estimator=FrozenEstimator(classifier))."
            )
    return dict(pairs)


def _labels(X, y, name):
    if y is None:
        return None
    y = check_label_rows(y, name)
    check_consistent_length(X, y)
    return y


def _data(X_id, y_id, ood, X_train, y_train):
    """Return checked rows."""
    ood = _named(ood, "ood")
    for name, X in {"X_id": X_id, **ood}.items():
        if n_rows(X) == 0:
            raise ValueError(f"{name} has no rows. Leave it out, or give some.")
    if X_train is None and y_train is not None:
        raise ValueError("y_train is given without X_train. Give both, or neither.")
    y_train = _labels(X_train, y_train, "y_train")
    return Data(X_id, _labels(X_id, y_id, "y_id"), ood, X_train, y_train)


def _checked_metrics(metrics):
    metrics = [metrics] if isinstance(metrics, str) else list(metrics)
    unknown = [name for name in metrics if name not in METRICS]
    if unknown or not metrics or len(set(metrics)) < len(metrics):
        raise ValueError(
            f"metrics must be distinct names among {list(METRICS)}, got {metrics}."
        )
    return metrics


def _checked_groups(groups, ood):
    """Return the sets of each group by name."""
    groups = {name: list(sets) for name, sets in (groups or {}).items()}
    for name, sets in groups.items():
        if name in ood:
            raise ValueError(
                f"The group {name!r} has the name of a set in ood. Rename it."
            )
        if not sets or not set(sets) <= set(ood) or len(set(sets)) < len(sets):
            raise ValueError(
                f"The group {name!r} must have distinct sets among {list(ood)}, got "
                f"{sets}."
            )
    return groups


def _check_id_labels(detectors, data):
    """Raise if a detector would leave ID rows out of its fit."""
    for name, detector in detectors.items():
        label = getattr(detector, "ood_label", None)
        if label is None or data.y_id is None:
            continue
        is_ood = ood_mask(data.y_id, ood_label=label)
        if is_ood.any():
            raise ValueError(
                f"y_id has {int(is_ood.sum())} rows with the ood_label={label!r} of "
                f"the detector {name!r}: X_id must hold ID rows only. Give the others "
                "as a set in ood, or set another ood_label."
            )


def _make_repeats(data, are_frozen, test_size, n_repeats, rng):
    """Split the ID rows, or hold all of them out."""
    rows = np.arange(n_rows(data.X_id))
    classes = data.y_id
    if classes is not None and classes.ndim == 2:
        classes = classes[:, 0]
    repeats = []
    for seed in rng.randint(np.iinfo(np.int32).max, size=n_repeats).tolist():
        train, test = None, rows
        if data.X_train is None and not are_frozen:
            train, test = map(
                np.sort,
                train_test_split(
                    rows, test_size=test_size, stratify=classes, random_state=seed
                ),
            )
        repeats.append(Repeat(train, test, seed))
    return repeats


def run_comparison(
    detectors, data, *, metrics, groups, test_size, repeats, random_state, **others
):
    """Run a comparison with checked arguments; see `compare`.

    Returns
    -------
    columns : list of dict
        The rows of the table.
    """
    n_resamples, level = others.pop("n_resamples"), others.pop("confidence_level")
    _check_id_labels(detectors, data)
    if others["resume"] is not None and not isinstance(random_state, Integral):
        raise ValueError(
            f"resume needs an integer random_state, for other splits make other cells, "
            f"got random_state={random_state!r}."
        )
    rng = check_random_state(random_state)
    are_frozen = all(isinstance(d, FrozenEstimator) for d in detectors.values())
    entropy = np.random.RandomState(rng.randint(np.iinfo(np.int32).max))
    plan = _make_repeats(data, are_frozen, test_size, repeats, rng)
    scores, records = run_cells(detectors, data, plan, **others)
    names, sets = list(detectors), list(data.ood)
    members = [[sets.index(name) for name in group] for group in groups.values()]
    resamples = Resamples(scores, plan, names, sets, members, metrics, entropy)
    draws = finite_values(resamples, n_resamples, others["n_jobs"], "resamples")
    sizes = len(plan[0].test), [n_rows(X) for X in data.ood.values()]
    sizes[1].extend(sum(sizes[1][i] for i in group) for group in members)
    seconds = [_seconds(records, name, sets) for name in names]
    each = resamples.each()
    return [
        {"ood": ood, "is_group": column >= len(sets), "metric": metric, **row}
        for column, ood in enumerate([*sets, *groups])
        for k, metric in enumerate(metrics)
        for row in _rows(
            names,
            METRICS[metric][0],
            each[..., column, k],
            draws[..., column, k],
            level,
            (sizes[0], sizes[1][column]),
            seconds,
        )
    ]


def _seconds(records, name, sets):
    """Average seconds of a detector in a repeat."""
    found = [[record[name, rows] for rows in (ID, *sets)] for record in records]
    return {
        "fit_seconds": float(np.mean([cells[0]["fit_seconds"] for cells in found])),
        **{
            key: float(np.mean([sum(cell[key] for cell in cells) for cells in found]))
            for key in ("score_seconds", "network_seconds")
        },
    }


def _rows(names, sign, each, draws, level, sizes, seconds):
    """Rows of the table: one metric on one set, all detectors."""
    values = each.mean(axis=0)
    pvalues = holm(pvalues_of_best(sign * values, sign * draws))
    best = (sign * values).max()
    for j, name in enumerate(names):
        low, high = interval(values[j], draws[:, j], "percentile", level)
        row = {"detector": name, "value": float(values[j]), "low": low, "high": high}
        if len(each) > 1:
            row["std"] = float(each[:, j].std(ddof=1))
        row["pvalue"] = float(pvalues[j])
        row["is_best"] = bool(sign * values[j] == best)
        row["n_id"], row["n_ood"] = sizes
        yield row | seconds[j]
