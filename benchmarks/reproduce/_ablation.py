"""Studies of constraints: of their number, of a search, and of other OOD samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from contextlib import contextmanager
from numbers import Integral

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.utils import check_random_state

from skood.logic import ConstraintSearch, MLNDetector, WeightedConstraints
from skood.logic._concepts import check_parts, label_columns
from skood.logic.language._encoding import is_frame
from skood.utils._labels import ood_mask
from skood.utils._metaestimators import concept_columns, n_rows
from skood.utils._optional import import_pandas
from skood.utils._param_validation import Interval, validate_params
from skood.utils._sparse import stacked
from skood.utils._warnings import quiet

# Figure 4 of the paper
_MIN_IMPROVEMENTS = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05)


@validate_params(
    {
        "estimator": [MLNDetector],
        "X": "no_validation",
        "y": "no_validation",
        "X_test": "no_validation",
        "y_test": "no_validation",
        "n_repeats": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
    },
    # estimators come from the user, and are validated by their own fit
    prefer_skip_nested_validation=False,
)
def ablate_constraints(
    estimator, X, y, X_test, y_test, *, n_repeats=5, random_state=None, n_jobs=None
):
    r"""Evaluate a detector with the first k of its constraints, for each k.

    Figure 3 of [1]_: the classifiers of the concepts and the detector are fitted once
    for each seed, and weights and threshold for each number of constraints k. With
    k = 0 the detector remains, and with all constraints the whole estimator.

    Parameters
    ----------
    estimator : MLNDetector
        The detector, not fitted. The order of its constraints is the order in which
        they are added; an `id_estimator` belongs to it for any k.

    X : array-like of shape (n_samples, ...)
        Training data.

    y : array-like of shape (n_samples, n_concepts) or (n_samples,)
        Labels of the concepts, as in :meth:`MLNDetector.fit`.

    X_test : array-like of shape (n_test_samples, ...)
        ID and OOD samples to evaluate on.

    y_test : array-like of shape (n_test_samples, n_concepts) or (n_test_samples,)
        Their labels, as in :meth:`MLNDetector.score`.

    n_repeats : int, default=5
        Number of fits with different seeds. Frozen classifiers and detectors with
        ``calibration="same"`` do not depend on the seed.

    random_state : int, RandomState instance or None, default=None
        Draws the seeds.

    n_jobs : int, default=None
        Number of fits in parallel.

    Returns
    -------
    results : pandas.DataFrame
        A row for each seed and k, with the columns ``repeat``; ``n_constraints``, k;
        ``constraint``, the last of the k constraints, "" if there is none; ``auroc``
        on the test samples.

    See Also
    --------
    search_path : Number of constraints of a search.
    ConstraintSearch : Searches for constraints.

    References
    ----------
    .. [1] K. Kirchheim, F. Ortmeier. Improving out-of-distribution detection with
       Markov logic networks. ICML 2025.
    """
    pd = import_pandas("ablate_constraints")
    seeds = _seeds(random_state, n_repeats)
    found = Parallel(n_jobs=n_jobs)(
        delayed(_ablated)(estimator, X, y, X_test, y_test, seed) for seed in seeds
    )
    rows = [
        {"repeat": repeat, "n_constraints": k, "constraint": text, "auroc": value}
        for repeat, values in enumerate(found)
        for k, (text, value) in enumerate(values)
    ]
    return pd.DataFrame(rows)


def _seeds(random_state, n):
    rng = check_random_state(random_state)
    return rng.randint(np.iinfo(np.int32).max, size=n).tolist()


@contextmanager
def may_score_nothing(detector):
    """Allow a detector without constraints and without a detector."""
    detector._may_score_nothing = True
    try:
        yield
    finally:
        del detector._may_score_nothing


def _ablated(estimator, X, y, X_test, y_test, seed):
    """Return the last constraint and the AUROC with the first k ones, for each k."""
    detector = clone(estimator).set_params(random_state=seed)
    parts = check_parts(detector.concepts, detector)
    _, id_rows, _ = detector._labels_and_indices(X, y, parts)
    detector.fit(X, y)
    calibration = detector._held_out(X, id_rows)
    is_ood = _is_ood(detector, y_test, n_rows(X_test))
    read = detector._read(X_test)
    logic, fixed = detector._logic, detector._fixed
    given = logic.constraints
    texts = list(given.items() if isinstance(given, dict) else given)
    found = []
    for k in range(len(texts) + 1):
        some = dict(texts[:k]) if isinstance(given, dict) else texts[:k]
        weights = np.append(fixed[:k], fixed[len(texts) :])
        part = WeightedConstraints(some, weights=weights, prior=logic.prior)
        with may_score_nothing(detector):
            detector._set_constraints(part, calibration)
        text = detector.constraints_[k - 1] if k else ""
        found.append((text, detector._aurocs(read, is_ood)[0]))
    return found


def _is_ood(detector, y, n_samples):
    """Return a mask of the OOD samples; raise unless there are some, and ID samples."""
    is_ood = ood_mask(
        concept_columns(y, detector),
        ood_label=detector.ood_label,
        classes=detector.classes_,
    )
    if len(is_ood) != n_samples:
        raise ValueError(
            f"X_test has {n_samples} samples, and y_test labels of {len(is_ood)}."
        )
    if is_ood.all() or not is_ood.any():
        kind = "OOD" if is_ood.all() else "ID"
        raise ValueError(
            f"All {n_samples} samples of X_test are {kind}. Give ID and OOD samples, "
            f"with ood_label={detector.ood_label!r} in y_test."
        )
    return is_ood


@validate_params(
    {
        "search": [ConstraintSearch],
        "X": "no_validation",
        "y": "no_validation",
        "X_test": "no_validation",
        "y_test": "no_validation",
        "min_improvements": ["array-like"],
        "n_jobs": [Integral, None],
    },
    # estimators come from the user, and are validated by their own fit
    prefer_skip_nested_validation=False,
)
def search_path(
    search,
    X,
    y,
    X_test,
    y_test,
    *,
    min_improvements=_MIN_IMPROVEMENTS,
    n_jobs=None,
):
    r"""Evaluate a search for constraints at several least improvements.

    Figure 4 of [1]_: the smaller the improvement :math:`\delta_{\min}` that a
    constraint must make on validation samples, the more constraints are found. Whether
    they help to detect OOD samples that the search has not used is seen on test samples
    only.

    Parameters
    ----------
    search : ConstraintSearch
        The search, not fitted. Its estimator must have a detector or constraints.

    X : array-like of shape (n_samples, ...)
        Data for the search.

    y : array-like of shape (n_samples, n_concepts) or (n_samples,)
        Labels of the concepts, as in :meth:`ConstraintSearch.fit`.

    X_test : array-like of shape (n_test_samples, ...)
        ID and OOD samples to evaluate on, which the search does not use, such as OOD
        samples of other kinds.

    y_test : array-like of shape (n_test_samples, n_concepts) or (n_test_samples,)
        Their labels, as in :meth:`MLNDetector.score`.

    min_improvements : array-like, default=(0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
        Values of :math:`\delta_{\min}`, the ``min_improvement`` of a
        :class:`GreedySearch`.

    n_jobs : int, default=None
        Number of searches in parallel. Each fits all classifiers that are not frozen.

    Returns
    -------
    results : pandas.DataFrame
        A row for each value, with the columns ``min_improvement``; ``n_found``, the
        number of constraints found; ``validation_auroc``; ``test_auroc``; and
        ``baseline_auroc``, of the detector alone on the test samples.

    See Also
    --------
    ood_transfer : Searches with several sets of OOD samples.

    Notes
    -----
    All searches have the same splits, also if their `random_state` is None.

    References
    ----------
    .. [1] K. Kirchheim, F. Ortmeier. Improving out-of-distribution detection with
       Markov logic networks. ICML 2025.
    """
    pd = import_pandas("search_path")
    search = _seeded(search)
    options = search._part("search")
    options._validate_params()
    jobs = []
    for value in np.asarray(min_improvements, dtype=np.float64).ravel().tolist():
        greedy = clone(options).set_params(min_improvement=value)
        jobs.append((value, clone(search).set_params(search=greedy)))
    found = Parallel(n_jobs=n_jobs)(
        delayed(_searched)(one, X, y, [(X_test, y_test)]) for _, one in jobs
    )
    rows = [
        {
            "min_improvement": value,
            "n_found": n_found,
            "validation_auroc": validation,
            "test_auroc": test,
            "baseline_auroc": baseline,
        }
        for (value, _), (n_found, validation, [(test, baseline)]) in zip(
            jobs, found, strict=True
        )
    ]
    return pd.DataFrame(rows)


def _seeded(search):
    """Return a search with seeds, so that all its clones have the same splits."""
    search = clone(search)
    missing = [
        (name, seed)
        for name in ("random_state", "estimator__random_state")
        if not isinstance(seed := search.get_params()[name], Integral)
    ]
    return search.set_params(**{name: _seeds(seed, 1)[0] for name, seed in missing})


def _searched(search, X, y, tests):
    """Return the number found, the validation AUROC, and AUROCs on test samples."""
    with quiet():  # a search that finds nothing is a result here
        search.fit(X, y)
    detector = search.estimator_
    found = []
    for X_test, y_test in tests:
        is_ood = _is_ood(detector, y_test, n_rows(X_test))
        found.append(detector._aurocs(detector._read(X_test), is_ood))
    return len(search.found_), search.validation_auroc_, found


@validate_params(
    {
        "search": [ConstraintSearch],
        "X": "no_validation",
        "y": "no_validation",
        "ood_sets": [dict],
        "X_test": "no_validation",
        "n_jobs": [Integral, None],
    },
    # estimators come from the user, and are validated by their own fit
    prefer_skip_nested_validation=False,
)
def ood_transfer(search, X, y, ood_sets, X_test, *, n_jobs=None):
    r"""Search constraints with each set of OOD samples, and evaluate on the others.

    Figure 6 of [1]_: constraints are selected because they help to detect some OOD
    samples, and may or may not help to detect others.

    Parameters
    ----------
    search : ConstraintSearch
        The search, not fitted. Its estimator must have a detector or constraints.

    X : array-like of shape (n_samples, ...)
        ID samples for the search.

    y : array-like of shape (n_samples, n_concepts) or (n_samples,)
        Labels of the concepts.

    ood_sets : dict of str to array-like of shape (n_samples, ...)
        At least two sets of OOD samples by name.

    X_test : array-like of shape (n_test_samples, ...)
        ID samples to evaluate on.

    n_jobs : int, default=None
        Number of searches in parallel. Each fits all classifiers that are not frozen.

    Returns
    -------
    results : pandas.DataFrame
        A row for each pair of different sets, with the columns ``searched``, the set of
        the search; ``tested``, the set of the evaluation; ``n_found``, the number of
        constraints found; ``auroc`` and ``baseline_auroc``, of the result and of the
        detector alone, on `X_test` and the second set. ``results.pivot(index=
        "searched", columns="tested", values="auroc")`` is a matrix with an empty
        diagonal.

    Raises
    ------
    ValueError
        If there are fewer than two sets, or OOD samples in `y`.

    See Also
    --------
    search_path : Searches with several least improvements.

    Notes
    -----
    All searches have the same splits, also if their `random_state` is None.

    References
    ----------
    .. [1] K. Kirchheim, F. Ortmeier. Improving out-of-distribution detection with
       Markov logic networks. ICML 2025.
    """
    pd = import_pandas("ood_transfer")
    if len(ood_sets) < 2:
        raise ValueError(
            f"ood_sets must have at least two sets, got {list(ood_sets)}. "
            "ConstraintSearch evaluates on OOD samples of the same kind by itself."
        )
    search = _seeded(search)
    y, is_ood = _labels(search, y)
    if is_ood.any():
        raise ValueError(
            f"X must be ID samples only, and {int(is_ood.sum())} labels of y are "
            f"ood_label={search.ood_label!r}. Pass OOD samples in ood_sets."
        )
    test_labels = np.repeat(y[:1], n_rows(X_test), axis=0)
    tests = {
        name: _with_ood(X_test, test_labels, ood, search.ood_label)
        for name, ood in ood_sets.items()
    }
    found = Parallel(n_jobs=n_jobs)(
        delayed(_searched)(
            clone(search),
            *_with_ood(X, y, ood, search.ood_label),
            [test for other, test in tests.items() if other != name],
        )
        for name, ood in ood_sets.items()
    )
    rows = []
    for name, (n_found, _, values) in zip(ood_sets, found, strict=True):
        others = [other for other in ood_sets if other != name]
        for other, (value, baseline) in zip(others, values, strict=True):
            rows.append(
                {
                    "searched": name,
                    "tested": other,
                    "n_found": n_found,
                    "auroc": value,
                    "baseline_auroc": baseline,
                }
            )
    return pd.DataFrame(rows)


def _labels(search, y):
    """Return the labels of the concepts as a table, and a mask of the OOD samples."""
    parts = check_parts(search.estimator.concepts, search.estimator)
    names = [concept for part in parts for concept in part.concepts]
    columns, is_id = label_columns(y, names, search.ood_label)
    return np.stack([column.astype(object) for column in columns], axis=1), ~is_id


def _with_ood(X, labels, X_ood, ood_label):
    """Return ID and OOD samples, and their labels."""
    if is_frame(X):
        X = import_pandas("ood_transfer").concat([X, X_ood], ignore_index=True)
    else:
        X = stacked([X if hasattr(X, "shape") else np.asarray(X), X_ood])
    ood = np.full((n_rows(X_ood), labels.shape[1]), ood_label, dtype=object)
    return X, np.concatenate([labels, ood])
