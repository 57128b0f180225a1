"""Comparison of detectors on ID samples and sets of OOD samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state

from skood.benchmark._cells import ID, Repeat, run_cells
from skood.benchmark._inputs import (
    METRICS,
    check_id_labels,
    checked_data,
    checked_groups,
    checked_metrics,
    named,
    split_ood,
)
from skood.metrics import Resampling, compare_with_best
from skood.nn._make_network import make_network
from skood.nn._shared_forward import _uses
from skood.utils._array_api import to_host
from skood.utils._estimator import BaseOptions
from skood.utils._metaestimators import n_rows
from skood.utils._optional import import_pandas
from skood.utils._param_validation import HasMethods, Number, validate_params
from skood.utils._warnings import warn


class Output(BaseOptions):
    """Files of a comparison, and its progress bar: the options of :func:`compare`.

    Read more in the :ref:`User Guide <comparing>`.

    Parameters
    ----------
    cache : str or path-like, default=None
        Folder for the outputs of fitted networks, by the SHA-256 of network and
        samples. Comparisons can share it.

    resume : str or path-like, default=None
        Folder for the scores of finished cells, a detector on a set of samples: after
        an interruption the same call continues with the remaining cells. A cell is
        identified by the SHA-256 of the detector, the samples and the versions of the
        libraries. Requires an integer `random_state`, also of a splitter.

    report : str or path-like, default=None
        Self-contained HTML file to write: the table, ROC curves, histograms of scores,
        and risk-coverage curves if detectors use a frozen classifier.

    verbose : int, default=0
        1 shows a progress bar.

    See Also
    --------
    compare : Compares detectors.

    Examples
    --------
    >>> from skood.benchmark import Output
    >>> Output(report="report.html")
    Output(report='report.html')
    """

    _parameter_constraints: dict = {
        "cache": [str, os.PathLike, None],
        "resume": [str, os.PathLike, None],
        "report": [str, os.PathLike, None],
        "verbose": ["verbose"],
    }

    def __init__(self, *, cache=None, resume=None, report=None, verbose=0):
        self.cache = cache
        self.resume = resume
        self.report = report
        self.verbose = verbose


@validate_params(
    {
        "detectors": [Mapping, list, tuple],
        "ood": [Mapping, None],
        "metrics": [list, tuple, str],
        "groups": [Mapping, None],
        "train": [tuple, list, None],
        "split": [
            Number(Integral, 1, None, closed="left"),
            Number(Real, 0, 1, closed="neither"),
            HasMethods(["split", "get_n_splits"]),
        ],
        "resampling": [Resampling, None],
        "output": [Output, None],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def compare(
    detectors,
    X_id,
    y_id,
    ood=None,
    *,
    train=None,
    metrics=("auroc", "aupr_in", "aupr_out", "fpr_at_tpr"),
    groups=None,
    split=0.3,
    resampling=None,
    output=None,
    n_jobs=None,
    random_state=None,
):
    """Compare detectors on held-out ID samples and sets of OOD samples.

    Each detector is fitted on a part of the ID samples, and computes scores of the
    others and of all OOD samples. The table has every metric of every detector on every
    set, with its interval and a p-value of being among the best. A network used by
    several detectors runs once over each array. Read more in the
    :ref:`User Guide <comparing>`.

    Parameters
    ----------
    detectors : dict of str to detector, or list of (str, detector)
        Detectors to compare: objects with ``fit`` and ``score_samples``, high for ID
        samples. Each detector is cloned and fitted, unless wrapped in a
        :class:`~sklearn.frozen.FrozenEstimator`.

    X_id : array-like of shape (n_samples, ...)
        ID samples.

    y_id : array-like of shape (n_samples,) or (n_samples, n_columns), or None
        Their classes, used to stratify the split (with several columns, the first
        one). None: not stratified.

    ood : dict of str to array-like of shape (n_rows, ...), default=None
        Sets of OOD samples by name. None: the samples of `X_id` that have the
        `ood_label` of the detectors (-1) in `y_id` are one set, "ood".

    train : tuple of (X, y), default=None
        Training samples and their classes, which may be None. All of `X_id` are held
        out then, as they are if all detectors are frozen. None: part of `X_id`.

    metrics : str or sequence of str
        As in :func:`~skood.metrics.compare_with_best`.

    groups : dict of str to list of str, default=None
        Groups of sets, such as ``{"near": ["a", "b"], "far": ["c"]}``: each metric is
        also averaged over the sets of a group.

    split : float, int or CV splitter, default=0.3
        Fraction or number of ID samples to hold out, in one stratified split. A
        splitter, such as ``StratifiedShuffleSplit(5, random_state=0)``: each of its
        splits is a repeat, and values are averaged over repeats. If all of `X_id` are
        held out, repeats differ only by the random state of detectors.

    resampling : Resampling, default=None
        Number of bootstrap resamples, and level of the intervals. None:
        ``Resampling()``, 999 resamples and 95 %. A warning is issued if they are too
        few for any detector to be significantly worse than the best.

    output : Output, default=None
        Files to write and to continue from, and the progress bar. None: no files.

    n_jobs : int, default=None
        Number of joblib jobs. Detectors that use the same network are one job.

    random_state : int, RandomState instance or None, default=None
        Controls the splits and the resamples, and seeds detectors with `random_state`
        None.

    Returns
    -------
    table : pandas.DataFrame
        One row for each detector (in the order given), metric and set or group, with
        the columns

        - "ood", "metric", "detector": names; "is_group": whether "ood" is a group;
        - "value": the metric, averaged over repeats, and "low" and "high", the ends of
          its interval; with several repeats "std", the standard deviation over them;
        - "pvalue": adjusted p-value of the hypothesis that no detector is better;
          if small, this detector is not among the best;
        - "is_best": whether "value" is the best;
        - "n_id", "n_ood": numbers of samples (in a repeat);
        - "fit_seconds", "score_seconds": of the fit, and of scoring all sets, without
          the "network_seconds" of a frozen network, which are shared by detectors with
          the same network. Averages over repeats.

    Raises
    ------
    ValueError
        If names, samples or labels do not match, or a detector returns NaN as a score.
    ImportError
        If pandas is not installed.
    OSError
        If the report cannot be written.

    See Also
    --------
    run_demo : A network, its detectors and reject options on one data set.
    skood.metrics.compare_with_best : The comparison, from scores.
    skood.metrics.paired_test : Two detectors.

    Notes
    -----
    Intervals and p-values are from :func:`~skood.metrics.compare_with_best`, which has
    the equations and their sources. Resamples are the same for all detectors, repeats
    and groups. They measure the variation due to the samples scored, not due to the
    training samples.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skood.benchmark import compare
    >>> from skood.detectors import KNN, Mahalanobis
    >>> from skood.metrics import Resampling
    >>> X, y = load_digits(return_X_y=True)
    >>> is_id = y < 8
    >>> table = compare(
    ...     {"knn": KNN(), "gauss": Mahalanobis()},
    ...     X[is_id],
    ...     y[is_id],
    ...     {"eights": X[y == 8], "nines": X[y == 9]},
    ...     metrics="auroc",
    ...     resampling=Resampling(n_resamples=99),
    ...     random_state=0,
    ... )
    >>> list(table.columns)[:6]
    ['ood', 'is_group', 'metric', 'detector', 'value', 'low']
    >>> table.pivot(index="detector", columns="ood", values="value").round(2)
    ood       eights  nines
    detector
    gauss       0.87   0.86
    knn         0.97   0.96
    """
    pd = import_pandas("compare")
    if ood is None:
        X_id, y_id, ood = split_ood(named(detectors, "detectors"), X_id, y_id)
    output = Output._checked(output)
    page = _page(output.report)
    comparison = run_comparison(
        detectors,
        X_id,
        y_id,
        ood,
        train=train,
        metrics=metrics,
        groups=groups,
        predictions=page is not None,
        split=split,
        resampling=resampling,
        output=output,
        n_jobs=n_jobs,
        random_state=random_state,
    )
    if page is not None:
        from skood.benchmark._report import write_report

        write_report(page, [("Comparison of detectors", "", comparison)])
    return pd.DataFrame(comparison.entries)


@dataclass(frozen=True)
class Comparison:
    """A comparison and its results.

    ``entries`` are rows of the table, ``scores`` is from `run_cells`, ``wrong`` a mask
    of ID samples of the first repeat that the classifier misclassifies, or None;
    ``sets`` has numbers of OOD samples, ``n_train`` is 0 if all detectors are frozen.
    """

    entries: list
    scores: list
    wrong: Any
    sets: dict
    groups: dict
    n_train: int
    settings: dict


def _page(report):
    """Return the path of a report, or raise an error before the computation."""
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
            f"can be below {least:.3g}, and so none of them can be significantly worse "
            f"than the best at the level {alpha:.3g}. Set n_resamples={needed} or more."
        )


def _make_repeats(data, are_frozen, split, n_repeats, rng):
    """Split the ID samples, or hold all of them out."""
    indices = np.arange(n_rows(data.X_id))
    classes = data.y_id
    if classes is not None and classes.ndim == 2:
        classes = classes[:, 0]
    is_splitter = hasattr(split, "split")
    if is_splitter:
        n_repeats = split.get_n_splits(indices, classes)
    seeds = rng.randint(np.iinfo(np.int32).max, size=n_repeats).tolist()
    if data.X_train is not None or are_frozen:
        return [Repeat(None, indices, seed) for seed in seeds]
    if is_splitter:
        pairs = split.split(indices, classes)
    else:
        pairs = (
            train_test_split(
                indices, test_size=split, stratify=classes, random_state=seed
            )
            for seed in seeds
        )
    return [
        Repeat(np.sort(train), np.sort(test), seed)
        for seed, (train, test) in zip(seeds, pairs, strict=True)
    ]


def run_comparison(
    detectors,
    X_id,
    y_id,
    ood,
    *,
    metrics,
    groups,
    random_state,
    train=None,
    split=0.3,
    repeats=1,
    resampling=None,
    output=None,
    n_jobs=None,
    predictions=False,
    desc="compare",
):
    """Validate the arguments and run the comparison, with `wrong` if `predictions`."""
    detectors = named(detectors, "detectors", ["fit", "score_samples"])
    data = checked_data(X_id, y_id, ood, train)
    output, resampling = Output._checked(output), Resampling._checked(resampling)
    if resampling.method != "permutation" or not resampling.stratify:
        raise ValueError(
            "compare draws bootstrap resamples of ID and of OOD samples: method and "
            f"stratify are options of paired_test, got {resampling!r}. Leave them out."
        )
    level = resampling.confidence_level
    metrics, groups = checked_metrics(metrics), checked_groups(groups, ood)
    check_id_labels(detectors, data)
    _warn_if_none_can_lose(len(detectors), resampling.n_resamples, 1 - level)
    if output.resume is not None and not isinstance(random_state, Integral):
        raise ValueError(
            f"resume needs an integer random_state, because cells depend on the "
            f"splits, got random_state={random_state!r}."
        )
    rng = check_random_state(random_state)
    are_frozen = all(isinstance(d, FrozenEstimator) for d in detectors.values())
    entropy = np.random.RandomState(rng.randint(np.iinfo(np.int32).max))
    plan = _make_repeats(data, are_frozen, split, repeats, rng)
    extra = predictor(detectors, data.y_id) if predictions else {}
    scores, records = run_cells(
        detectors | extra, data, plan, output, n_jobs=n_jobs, desc=desc
    )
    sets = {name: n_rows(X) for name, X in data.ood.items()}
    sampling = {"n_resamples": resampling.n_resamples, "confidence_level": level}
    settings = {"repeats": len(plan), "random_state": random_state, **sampling}
    n_train = 0
    if not are_frozen:
        train = plan[0].train
        n_train = n_rows(data.X_train) if train is None else len(train)
    wrong = None
    if extra:
        y, columns = data.y_id[plan[0].test], scores[0][PREDICTED, ID]
        wrong = misclassified(extra[PREDICTED], columns, y)
    return Comparison(
        entries=_table(
            (scores, records),
            plan,
            (list(detectors), sets, groups, metrics),
            {**sampling, "random_state": entropy, "n_jobs": n_jobs},
        ),
        scores=scores,
        wrong=wrong,
        sets=sets,
        groups=groups,
        n_train=n_train,
        settings=settings,
    )


def _table(cells, plan, columns, sampling):
    """Return all rows of the table."""
    scores, records = cells
    names, sizes, groups, metrics = columns
    result = compare_with_best(
        [np.stack([s[name, ID] for name in names]) for s in scores],
        {
            ood: [np.stack([s[name, ood] for name in names]) for s in scores]
            for ood in sizes
        },
        held_out=[repeat.test for repeat in plan],
        groups=groups,
        metrics=metrics,
        **sampling,
    )
    n_ood = [*sizes.values(), *(sum(sizes[k] for k in g) for g in groups.values())]
    seconds = [_seconds(records, name, sizes) for name in names]
    return [
        {"ood": ood, "is_group": column >= len(sizes), "metric": metric, **row}
        for column, ood in enumerate([*sizes, *groups])
        for k, metric in enumerate(metrics)
        for row in _entries(
            names,
            METRICS[metric],
            result.values[..., column, k],
            [ends[:, column, k].tolist() for ends in result[1:]],
            (len(plan[0].test), n_ood[column]),
            seconds,
        )
    ]


def _seconds(records, name, sets):
    """Return the average seconds of a detector in a repeat."""
    repeats = [
        [record[name, set_name] for set_name in (ID, *sets)] for record in records
    ]
    return {
        "fit_seconds": float(np.mean([cells[0]["fit_seconds"] for cells in repeats])),
        **{
            key: float(np.mean([sum(cell[key] for cell in cells) for cells in repeats]))
            for key in ("score_seconds", "network_seconds")
        },
    }


def _entries(names, sign, each, others, sizes, seconds):
    """Return rows of the table for one metric on one set, all detectors."""
    values = each.mean(axis=0)
    best = (sign * values).max()
    for j, name in enumerate(names):
        low, high, pvalue = (ends[j] for ends in others)
        row = {"detector": name, "value": float(values[j]), "low": low, "high": high}
        if len(each) > 1:
            row["std"] = float(each[:, j].std(ddof=1))
        row["pvalue"] = pvalue
        row["is_best"] = bool(sign * values[j] == best)
        row["n_id"], row["n_ood"] = sizes
        yield row | seconds[j]


#: Name of the predictor of classes among detectors; reserved.
PREDICTED = ""


class _Predictions(BaseEstimator):
    """Index of the predicted class as a score: it shares forward pass and cache."""

    _needs: ClassVar[frozenset] = frozenset({"logits"})

    def __init__(self, estimator):
        self.estimator = estimator

    def fit(self, X, y=None):
        """Do nothing."""
        return self

    def score_samples(self, X):
        """Return the column of the largest logit."""
        chunks = make_network(self.estimator).iter_outputs(X, self._needs)
        columns = [np.argmax(to_host(chunk.logits), axis=1) for chunk in chunks]
        return np.concatenate(columns).astype(np.float64)


def predictor(detectors, y):
    """Return a predictor of classes: a dict with at most one FrozenEstimator.

    It is present if all detectors with a frozen classifier use the same one, and its
    classes include some of `y`, the classes of the ID samples.
    """
    networks = {
        id(use.network): use.network
        for detector in detectors.values()
        for use in _uses(detector)
    }
    known = [n for n in networks.values() if is_classifier(n) and _knows(n, y)]
    if len(known) != 1:
        return {}
    return {PREDICTED: FrozenEstimator(_Predictions(FrozenEstimator(known[0])))}


def _knows(network, y):
    """Return whether the classes of a classifier are among the classes in y."""
    classes = getattr(network, "classes_", None)
    if classes is None or y is None or y.ndim != 1:
        return False
    return bool(np.isin(y, classes).any())


def misclassified(predicting, columns, y):
    """Return a mask of misclassified samples, from the scores of a `predictor`."""
    classes = predicting.estimator.estimator.classes_
    return np.asarray(classes)[columns.astype(int)] != y
