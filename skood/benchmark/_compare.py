"""Compare detectors on in-distribution rows and sets of out-of-distribution rows."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state

from skood.benchmark._cells import ID, Repeat, run_cells
from skood.benchmark._inputs import (
    check_id_labels,
    checked_data,
    checked_groups,
    checked_metrics,
    named,
    split_ood,
)
from skood.benchmark._predictions import PREDICTED, predictor, wrong_rows
from skood.benchmark._significance import (
    FUNCTIONS,
    METRICS,
    Resamples,
    holm,
    pvalues_of_best,
)
from skood.metrics._intervals import covering_interval
from skood.metrics._ranking import Number
from skood.metrics._resampling import finite_values
from skood.utils._metaestimators import n_rows
from skood.utils._pandas import import_pandas
from skood.utils._param_validation import validate_params
from skood.utils._warnings import warn

__all__ = ["Comparison", "compare", "run_comparison"]

_FOLDER = [str, os.PathLike, None]


@validate_params(
    {
        "detectors": [Mapping, list, tuple],
        "ood": [Mapping, None],
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
        "report": _FOLDER,
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
    ood=None,
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
    report=None,
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

    ood : dict of str to array-like of shape (n_rows, ...), default=None
        Sets of OOD samples by name. None: the samples of `X_id` that have the
        `ood_label` of the detectors (-1) in `y_id` are one set, "ood".

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
        Number of bootstrap resamples of the rows. There is a warning if they are too
        few for any detector to be told to be worse than the best.

    confidence_level : float, default=0.95
        Level of the intervals, in (0, 1).

    cache : str or path-like, default=None
        Folder that keeps what is read off fitted networks. Its files are named by the
        SHA-256 of the network, the rows and how they are read, so that it can be used
        again and for other comparisons.

    resume : str or path-like, default=None
        Folder that keeps the scores of finished cells, a detector on a set of rows:
        after an interruption the same call goes on where it was. A cell is found by
        the SHA-256 of the detector, the rows and the versions of the libraries (of a
        development version of skood, of its code); what has changed is computed anew.
        Needs an integer `random_state`.

    report : str or path-like, default=None
        HTML file to write: the table, ROC curves and histograms of scores, which the
        table does not hold, and how risk falls with coverage if detectors read a
        frozen classifier. It needs no other file, script or connection. One that is
        there is replaced.

    n_jobs : int, default=None
        Number of joblib jobs. Detectors that read the same network are one job.

    random_state : int, RandomState instance or None, default=None
        Splits the samples, draws the resamples and seeds the detectors where their own
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
          its interval; with several repeats "std", the standard deviation
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
    OSError
        If the report cannot be written.

    See Also
    --------
    run_main_job : A network, its detectors and reject options on one data set.
    skood.metrics.paired_test : Two detectors.

    Notes
    -----
    *Intervals* are those of :func:`~skood.metrics.bootstrap_ci`: from the variance of
    resampled values, ID and OOD samples drawn with replacement, the same for all
    detectors, in all repeats and groups, and from samples that the data may lack; that
    of "fpr_at_tpr" is exact. They measure how values vary with the samples that are
    scored, not with those of the fit. A metric that is perfect on few samples has an
    interval that ends at 1 and is not a point.

    *Significance.* For a metric :math:`\theta` that is high for good detectors, the
    largest lag of detector i behind another, in standard errors, is compared with that
    of the resampled errors :math:`e_{bj} = \theta^*_{bj} - \hat\theta_j`,

    .. math::
        p_i = \frac{1}{1 + B} \Big( 1 + \# \Big\{ b : \max_j \frac{e_{bj} - e_{bi}}
        {s_{ij}} \ge \max_j \frac{\hat\theta_j - \hat\theta_i}{s_{ij}} \Big\} \Big),
        \quad s_{ij} = \operatorname{sd}_b (e_{bj} - e_{bi}),

    so that it does not matter that the best one was chosen on the same rows [1]_ [2]_.
    The p-values of a metric and a set are adjusted by Holm's method [3]_, not those of
    different sets or metrics.

    References
    ----------
    .. [1] J. C. Hsu. Constrained simultaneous confidence intervals for multiple
       comparisons with the best. Annals of Statistics, 1984.
    .. [2] J. P. Romano and M. Wolf. Stepwise multiple testing as formalized data
       snooping. Econometrica, 2005.
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
    knn         0.94   0.97
    """
    pd = import_pandas("compare")
    if ood is None:
        X_id, y_id, ood = split_ood(named(detectors, "detectors"), X_id, y_id)
    page = _page(report)
    found = run_comparison(
        detectors,
        X_id,
        y_id,
        ood,
        X_train=X_train,
        y_train=y_train,
        metrics=metrics,
        groups=groups,
        predictions=page is not None,
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
    if page is not None:
        from skood.benchmark._report import write_report

        write_report(page, [("Comparison of detectors", "", found)])
    return pd.DataFrame(found.rows)


@dataclass(frozen=True)
class Comparison:
    """What was compared, and what came out.

    Parameters
    ----------
    rows : list of dict
        Rows of the table.

    scores : list of dict
        As `run_cells` returns them.

    wrong : ndarray of bool or None
        Which held-out ID rows of the first repeat the classifier that detectors read
        gets wrong. None: there is none, or it is not known.

    sets : dict of str to int
        Numbers of OOD rows.

    groups : dict of str to list of str
        Groups of sets.

    n_train : int
        Number of ID rows that detectors are fitted on, in a repeat; 0 if all are
        frozen.

    settings : dict
        Numbers that were asked for.
    """

    rows: list
    scores: list
    wrong: Any
    sets: dict
    groups: dict
    n_train: int
    settings: dict


def _page(report):
    """Return the path of a report, or raise before the work."""
    if report is None:
        return None
    page = Path(report)
    if page.is_dir():
        raise IsADirectoryError(
            f"report={str(report)!r} is a folder. Give the name of a file in it, such "
            f"as {str(page / 'report.html')!r}."
        )
    page.parent.mkdir(parents=True, exist_ok=True)
    return page


def _warn_if_none_can_lose(n_detectors, n_resamples, alpha):
    """Warn if no adjusted p-value can be as small as alpha."""
    least = n_detectors / (1 + n_resamples)
    if n_detectors > 1 and least > alpha * (1 + 1e-9):
        needed = math.ceil(n_detectors / alpha * (1 - 1e-9)) - 1
        warn(
            f"With {n_detectors} detectors and n_resamples={n_resamples} no p-value "
            f"can be below {least:.3g}, and so none of them can be told to be worse "
            f"than the best at the level {alpha:.3g}. Set n_resamples={needed} or more."
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
    detectors,
    X_id,
    y_id,
    ood,
    *,
    metrics,
    groups,
    random_state,
    X_train=None,
    y_train=None,
    test_size=0.3,
    repeats=1,
    n_resamples=999,
    confidence_level=0.95,
    predictions=False,
    **others,
):
    """Check what is to be compared, and compare it; see `compare`.

    Returns
    -------
    comparison : Comparison
        With `wrong` if `predictions` are asked for.
    """
    detectors = named(detectors, "detectors", ["fit", "score_samples"])
    data = checked_data(X_id, y_id, ood, X_train, y_train)
    metrics, groups = checked_metrics(metrics), checked_groups(groups, ood)
    check_id_labels(detectors, data)
    _warn_if_none_can_lose(len(detectors), n_resamples, 1 - confidence_level)
    if others["resume"] is not None and not isinstance(random_state, Integral):
        raise ValueError(
            f"resume needs an integer random_state, for other splits make other cells, "
            f"got random_state={random_state!r}."
        )
    rng = check_random_state(random_state)
    are_frozen = all(isinstance(d, FrozenEstimator) for d in detectors.values())
    entropy = np.random.RandomState(rng.randint(np.iinfo(np.int32).max))
    plan = _make_repeats(data, are_frozen, test_size, repeats, rng)
    extra = predictor(detectors, data.y_id) if predictions else {}
    scores, records = run_cells(detectors | extra, data, plan, **others)
    sets = {name: n_rows(X) for name, X in data.ood.items()}
    settings = {
        "repeats": repeats,
        "random_state": random_state,
        "n_resamples": n_resamples,
        "confidence_level": confidence_level,
    }
    wrong = None
    if extra:
        y, columns = data.y_id[plan[0].test], scores[0][PREDICTED, ID]
        wrong = wrong_rows(extra[PREDICTED], columns, y)
    return Comparison(
        rows=_table(
            (scores, records),
            plan,
            (list(detectors), sets, groups, metrics),
            (n_resamples, confidence_level, entropy, others["n_jobs"]),
        ),
        scores=scores,
        wrong=wrong,
        sets=sets,
        groups=groups,
        n_train=0 if are_frozen else _n_train(data, plan),
        settings=settings,
    )


def _n_train(data, plan):
    return n_rows(data.X_train) if plan[0].train is None else len(plan[0].train)


def _table(found, plan, asked, sampling):
    """All rows of the table."""
    scores, records = found
    names, sizes, groups, metrics = asked
    n_resamples, level, entropy, n_jobs = sampling
    sets = list(sizes)
    members = [[sets.index(name) for name in group] for group in groups.values()]
    resamples = Resamples(scores, plan, names, sets, members, metrics, entropy)
    draws = finite_values(resamples, n_resamples, n_jobs, "resamples")
    n_ood = [[n] for n in sizes.values()]
    n_ood += [[sizes[name] for name in group] for group in groups.values()]
    seconds = [_seconds(records, name, sets) for name in names]
    each, ends = resamples.each(), resamples.ends(level)
    n_id = len(plan[0].test)
    return [
        {"ood": ood, "is_group": column >= len(sets), "metric": metric, **row}
        for column, ood in enumerate([*sets, *groups])
        for k, metric in enumerate(metrics)
        for row in _rows(
            names,
            METRICS[metric][0],
            each[..., column, k],
            draws[..., column, k],
            _intervals(
                metric,
                each[..., column, k].mean(axis=0),
                draws[..., column, k],
                [n_id, min(n_ood[column])],
                ends[:, column, k],
                level,
            ),
            (n_id, sum(n_ood[column])),
            seconds,
        )
    ]


def _intervals(metric, values, draws, sizes, ends, level):
    """Return the interval of every detector: one metric on one set."""
    found = ends.tolist()
    if metric == "fpr_at_tpr":  # these intervals need no resamples
        return found
    if min(sizes) < 2:
        return [(0.0, 1.0)] * len(found)
    return [
        covering_interval(
            FUNCTIONS[metric], value, draws[:, j], sizes, (0.0, 1.0), found[j], level
        )
        for j, value in enumerate(values.tolist())
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


def _rows(names, sign, each, draws, intervals, sizes, seconds):
    """Rows of the table: one metric on one set, all detectors."""
    values = each.mean(axis=0)
    pvalues = holm(pvalues_of_best(sign * values, sign * draws))
    best = (sign * values).max()
    for j, name in enumerate(names):
        low, high = intervals[j]
        row = {"detector": name, "value": float(values[j]), "low": low, "high": high}
        if len(each) > 1:
            row["std"] = float(each[:, j].std(ddof=1))
        row["pvalue"] = float(pvalues[j])
        row["is_best"] = bool(sign * values[j] == best)
        row["n_id"], row["n_ood"] = sizes
        yield row | seconds[j]
