"""Cross-validation splitters with ID and OOD samples in each test set."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import abstractmethod
from itertools import combinations
from math import ceil, comb
from numbers import Integral, Real

import numpy as np
from sklearn.model_selection import (
    BaseCrossValidator,
    StratifiedGroupKFold,
    StratifiedKFold,
)
from sklearn.utils import check_array, check_random_state, indexable
from sklearn.utils.multiclass import type_of_target

from skood.utils._labels import check_label_columns, ood_mask, plain_labels
from skood.utils._param_validation import Interval, validate_params
from skood.utils._stored import stored

# Up to this many class sets are enumerated and sampled; beyond, random sets are drawn.
_MAX_LISTED_SETS = 10_000


def _check_random_state_is_used(random_state, used):
    """Raise if a seed has no effect, as in scikit-learn's splitters."""
    if random_state is not None and not used:
        raise ValueError(
            f"random_state={random_state!r} has no effect here. Leave it at None, or "
            "set shuffle=True."
        )


class _OODSplitter(BaseCrossValidator):
    """Base class of splitters that treat OOD samples apart."""

    # With metadata routing, groups are used if they are given.
    __metadata_request__split = {"groups": True}

    @abstractmethod
    def _splits(self, classes, codes, groups):
        """Yield training and test samples.

        `codes` index ID `classes`, -1 for OOD. `groups` are integers, or None.
        """

    def _encode(self, y):
        """Return the sorted ID classes, and the code of each sample, -1 for OOD."""
        name = type(self).__name__
        if y is None:
            raise ValueError(f"{name} splits by the labels: y is required, got None.")
        y = check_label_columns(y)
        is_ood = ood_mask(y, ood_label=self.ood_label)
        is_table = y.ndim == 2
        y = y[:, 0] if is_table else y
        if is_ood.all():
            raise ValueError(
                f"{name} found no in-distribution samples: every label in y equals "
                f"ood_label={self.ood_label!r}."
            )
        id_labels = plain_labels(y[~is_ood]) if is_table else y[~is_ood]
        kind = type_of_target(id_labels)
        if kind not in ("binary", "multiclass"):
            raise ValueError(
                f"{name} needs class labels in y, got {kind!r} values such as "
                f"{id_labels[:1].tolist()[0]!r}."
            )
        classes, id_codes = np.unique(id_labels, return_inverse=True)
        codes = np.full(y.shape, -1, dtype=np.intp)
        codes[~is_ood] = id_codes
        return classes, codes

    def split(self, X, y=None, groups=None):
        """Generate the indices of the training and test samples of each split.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data; only its length counts.

        y : array-like of shape (n_samples,) or (n_samples, n_concepts)
            Classes, and `ood_label` for known OOD samples. With several columns, the
            first contains the classes, and any may contain `ood_label`.

        groups : array-like of shape (n_samples,), default=None
            Groups of samples, such as patients: no group has samples in both the
            training and the test set of a split. None: each sample is a group.

        Yields
        ------
        train : ndarray of int
            Training samples in ascending order.

        test : ndarray of int
            Test samples in ascending order.
        """
        X, y, groups = indexable(X, y, groups)
        if groups is not None:
            names = check_array(
                groups, ensure_2d=False, dtype=None, input_name="groups"
            )
            groups = np.unique(names, return_inverse=True)[1].reshape(-1)
        classes, codes = self._encode(y)
        yield from self._splits(classes, codes, groups)


@stored
class OODStratifiedKFold(_OODSplitter):
    """Stratified K-fold that treats the known OOD samples as one more stratum.

    Each test fold has its fraction of every class and of the OOD samples, so that
    scorers that compare ID with OOD samples have both in every fold.

    Read more in the :ref:`User Guide <model_selection>`.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds, at least 2.

    shuffle : bool, default=False
        Whether to shuffle the samples of each stratum before splitting.

    random_state : int, RandomState instance or None, default=None
        Determines the order when `shuffle` is True. Pass an int for the same folds
        in every call.

    ood_label : int or str, default=-1
        The label of the OOD samples in `y`.

    ood_in_train : bool, default=True
        Whether the OOD samples of the other folds are part of the training samples.
        False excludes them, for estimators that would treat `ood_label` as a class.

    See Also
    --------
    LeaveClassesOut : For data without known OOD samples: left-out classes are OOD.
    sklearn.model_selection.StratifiedKFold : The same without OOD samples.
    sklearn.model_selection.StratifiedGroupKFold : Groups, without OOD samples.

    Notes
    -----
    The sizes of the test folds differ by at most one. With `groups`, folds are made by
    :class:`~sklearn.model_selection.StratifiedGroupKFold`, with the OOD samples as one
    more class: sizes and fractions are as equal as groups permit.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.model_selection import OODStratifiedKFold
    >>> y = np.array([0, 0, 1, 1, -1, -1])
    >>> cv = OODStratifiedKFold(n_splits=2, ood_in_train=False)
    >>> for train, test in cv.split(np.zeros((6, 1)), y):
    ...     print(train, test)
    [1 3] [0 2 4]
    [0 2] [1 3 5]
    """

    @validate_params(
        {
            "n_splits": [Interval(Integral, 2, None, closed="left")],
            "shuffle": ["boolean"],
            "random_state": ["random_state"],
            "ood_label": [Integral, str],
            "ood_in_train": ["boolean"],
        },
        prefer_skip_nested_validation=True,
    )
    def __init__(
        self,
        n_splits=5,
        *,
        shuffle=False,
        random_state=None,
        ood_label=-1,
        ood_in_train=True,
    ):
        _check_random_state_is_used(random_state, shuffle)
        self.n_splits = n_splits
        self.shuffle = shuffle
        self.random_state = random_state
        self.ood_label = ood_label
        self.ood_in_train = ood_in_train

    def get_n_splits(self, X=None, y=None, groups=None):
        """Return the number of folds.

        Parameters
        ----------
        X, y, groups : object
            Ignored.

        Returns
        -------
        n_splits : int
            The number of folds.
        """
        return self.n_splits

    def _splits(self, classes, codes, groups):
        is_ood = codes == -1
        kinds = ("out-of-distribution", is_ood), ("in-distribution", ~is_ood)
        unit = "samples" if groups is None else "groups of samples"
        for kind, members in kinds:
            n_units = (
                members.sum() if groups is None else np.unique(groups[members]).size
            )
            if n_units < self.n_splits:
                raise ValueError(
                    f"y has {n_units} {kind} {unit} (ood_label={self.ood_label!r}), "
                    f"too few for one in each of n_splits={self.n_splits} test folds. "
                    "Lower n_splits or give more samples; without known OOD samples, "
                    "use LeaveClassesOut."
                )
        for in_test in self._test_folds(codes, groups):
            for kind, members in kinds:
                if not (in_test & members).any():
                    raise ValueError(
                        f"A test fold has no {kind} samples: their groups are too "
                        f"large for n_splits={self.n_splits} folds. Lower n_splits."
                    )
            in_train = ~in_test if self.ood_in_train else ~in_test & ~is_ood
            yield np.flatnonzero(in_train), np.flatnonzero(in_test)

    def _test_folds(self, codes, groups):
        """Yield a mask of the test samples of each fold."""
        options = {"shuffle": self.shuffle, "random_state": self.random_state}
        order = np.arange(codes.size)
        if groups is None:
            # StratifiedKFold assigns folds in turn over the sorted strata, which are
            # numbered by their first appearance. With the OOD samples last, all ID
            # samples are adjacent, so that each fold has ID samples even when classes
            # are smaller than n_splits.
            order = np.argsort(codes == -1, kind="stable")
        kind = StratifiedKFold if groups is None else StratifiedGroupKFold
        folds = kind(self.n_splits, **options).split(order, codes[order], groups)
        for _, position in folds:
            in_test = np.zeros(codes.size, dtype=bool)
            in_test[order[position]] = True
            yield in_test


@stored
class LeaveClassesOut(_OODSplitter):
    """Leave whole classes out of the training samples, to be OOD in the test samples.

    In each split, all samples of `n_classes` classes are in the test set, together with
    a fraction of the samples of every other class; the other samples are for training.
    Labels are unchanged: an estimator fitted on the training samples does not have the
    left-out classes in its `classes_`, so that the scorers of skood treat them as OOD.
    With `groups`, the fraction consists of whole groups, and samples of left-out
    classes or OOD samples whose group has training samples are in neither set.

    Read more in the :ref:`User Guide <model_selection>`.

    Parameters
    ----------
    n_classes : int, default=1
        Number of classes that each split leaves out. Ignored if `left_out` is given.

    n_splits : int, default=None
        None: the sorted classes are taken in groups of `n_classes`, the last group
        filled up from the first classes, so that every class is left out at least once.
        An int: that many different sets of classes, drawn at random.

    left_out : list of tuples, default=None
        The classes to leave out, one tuple for each split.

    test_size : float, default=0.2
        Fraction of the samples of each remaining class in the test set; at least one
        sample and not all of them. With groups, as many of them as contain this
        fraction.

    shuffle : bool, default=True
        Whether this fraction is drawn at random. False: the last samples, or groups.

    random_state : int, RandomState instance or None, default=None
        Determines the draws of samples and of class sets. Pass an int for the same
        splits in every call.

    ood_label : int or str, default=-1
        Label of known OOD samples: they are in every test set and in no training set,
        and their label is not a class.

    See Also
    --------
    OODStratifiedKFold : For data with known OOD samples.
    skood.metrics.make_ood_scorer : A scorer that treats left-out classes as OOD.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.model_selection import LeaveClassesOut
    >>> y = np.array(["a", "a", "b", "b", "c", "c"])
    >>> cv = LeaveClassesOut(shuffle=False)
    >>> for train, test in cv.split(np.zeros((6, 1)), y):
    ...     print(y[train], y[test])
    ['b' 'c'] ['a' 'a' 'b' 'c']
    ['a' 'c'] ['a' 'b' 'b' 'c']
    ['a' 'b'] ['a' 'b' 'c' 'c']
    """

    @validate_params(
        {
            "n_classes": [Interval(Integral, 1, None, closed="left")],
            "n_splits": [Interval(Integral, 1, None, closed="left"), None],
            "left_out": ["array-like", None],
            "test_size": [Interval(Real, 0, 1, closed="neither")],
            "shuffle": ["boolean"],
            "random_state": ["random_state"],
            "ood_label": [Integral, str],
        },
        prefer_skip_nested_validation=True,
    )
    def __init__(
        self,
        n_classes=1,
        *,
        n_splits=None,
        left_out=None,
        test_size=0.2,
        shuffle=True,
        random_state=None,
        ood_label=-1,
    ):
        if left_out is not None:
            if n_splits is not None:
                raise ValueError(
                    "left_out lists the splits, so that n_splits has no meaning. "
                    f"Give one of them. Got n_splits={n_splits!r} and "
                    f"left_out={left_out!r}."
                )
            if len(left_out) == 0 or any(
                isinstance(group, str) or not hasattr(group, "__len__")
                for group in left_out
            ):
                raise ValueError(
                    "left_out must be a list with one tuple of classes for each "
                    f"split, such as [(7, 8), (9,)]. Got {left_out!r}."
                )
        _check_random_state_is_used(random_state, shuffle or n_splits is not None)
        self.n_classes = n_classes
        self.n_splits = n_splits
        self.left_out = left_out
        self.test_size = test_size
        self.shuffle = shuffle
        self.random_state = random_state
        self.ood_label = ood_label

    def get_n_splits(self, X=None, y=None, groups=None):
        """Return the number of splits.

        Parameters
        ----------
        X : object
            Ignored.

        y : array-like of shape (n_samples,), default=None
            Classes. Needed unless `n_splits` or `left_out` was given.

        groups : object
            Ignored.

        Returns
        -------
        n_splits : int
            The number of splits.
        """
        if self.left_out is not None:
            return len(self.left_out)
        if self.n_splits is not None:
            return self.n_splits
        classes, _ = self._encode(y)
        return ceil(len(classes) / self.n_classes)

    def _splits(self, classes, codes, groups):
        rng = check_random_state(self.random_state)
        units = np.arange(codes.size) if groups is None else groups
        for group in self._class_sets(classes, rng):
            is_out = (codes == -1) | np.isin(codes, group)
            in_test = np.zeros(codes.size, dtype=bool)
            for code in np.setdiff1d(np.arange(len(classes)), group):
                members = np.flatnonzero(codes == code)
                tested = self._test_units(units[members], in_test[members], rng)
                in_test |= np.isin(units, tested)
            in_train = ~in_test & ~is_out
            in_test |= is_out & ~np.isin(units, units[in_train])
            self._check_classes(classes, codes, group, in_train, in_test, groups)
            yield np.flatnonzero(in_train), np.flatnonzero(in_test)

    def _test_units(self, units, in_test, rng):
        """Return the groups of the samples of a class that are tested on.

        Groups that other classes have in the test set, `in_test`, count. At least one
        group is left for training. Shapes: units, in_test (n_samples,).
        """
        n_test = max(round(self.test_size * units.size), 1) - in_test.sum()
        names, first, counts = np.unique(
            units[~in_test], return_index=True, return_counts=True
        )
        order = np.argsort(first)
        if self.shuffle:
            order = rng.permutation(order)
        order = order[::-1]
        n_before = np.cumsum(counts[order]) - counts[order]
        return names[order[:-1]][n_before[:-1] < n_test]

    def _check_classes(self, classes, codes, group, in_train, in_test, groups):
        """Raise if a remaining class has no training or no test samples."""
        for code, label in enumerate(classes.tolist()):
            in_class = codes == code
            is_left_out = code in group
            if in_test[in_class].any() and (is_left_out or in_train[in_class].any()):
                continue
            if is_left_out:
                raise ValueError(
                    f"Class {label!r} is left out, but each of its groups also has "
                    "training samples of other classes, so that none of its samples "
                    "can be tested on. Raise test_size, or give smaller groups."
                )
            if groups is None:
                raise ValueError(
                    f"Class {label!r} has a single sample, which cannot be both "
                    "trained and tested on. Give more samples or drop the class."
                )
            raise ValueError(
                f"Class {label!r} has samples in too few groups to be both trained and "
                "tested on. Give samples of more groups, or drop the class."
            )

    def _class_sets(self, classes, rng):
        """Return the indices of the left-out classes of each split."""
        if self.left_out is not None:
            return [self._listed_set(group, classes) for group in self.left_out]
        n_known, n_out = len(classes), self.n_classes
        if n_out >= n_known:
            raise ValueError(
                f"n_classes={n_out} must be smaller than the number of classes in y, "
                f"which is {n_known}, so that one remains to train on. Lower "
                "n_classes or give samples of more classes."
            )
        if self.n_splits is None:
            starts = range(0, n_known, n_out)
            return [np.arange(start, start + n_out) % n_known for start in starts]
        n_sets = comb(n_known, n_out)
        if self.n_splits > n_sets:
            raise ValueError(
                f"There are only {n_sets} ways to leave n_classes={n_out} of "
                f"{n_known} classes out, fewer than n_splits={self.n_splits}."
            )
        if n_sets <= _MAX_LISTED_SETS:
            listed = list(combinations(range(n_known), n_out))
            return [listed[i] for i in rng.permutation(n_sets)[: self.n_splits]]
        drawn: dict[tuple, None] = {}
        while len(drawn) < self.n_splits:
            chosen = rng.choice(n_known, size=n_out, replace=False)
            drawn[tuple(sorted(chosen.tolist()))] = None
        return list(drawn)

    def _listed_set(self, group, classes):
        """Return the indices of the classes in one tuple of `left_out`."""
        numbers = {label: code for code, label in enumerate(classes.tolist())}
        unknown = [label for label in group if label not in numbers]
        if unknown:
            raise ValueError(
                f"left_out names {unknown}, which y does not contain. Its classes are "
                f"{list(numbers)}."
            )
        listed = np.unique([numbers[label] for label in group]).astype(np.intp)
        if not 0 < listed.size < len(classes) or listed.size < len(group):
            raise ValueError(
                "Each tuple of left_out must name at least one class, each class "
                f"once, and not all {len(classes)} of them. Got {group!r}."
            )
        return listed
