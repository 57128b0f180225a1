"""Scored samples: the record on which rules are chosen and certified."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import column_or_1d

from skood.decision._base_rule import check_rule
from skood.decision._operating_point import check_pair, project, standardize
from skood.decision._options import Certificate
from skood.exceptions import NotCertifiableError
from skood.utils._labels import is_missing
from skood.utils._scores import check_nonnegative
from skood.utils._stored import stored
from skood.utils._warnings import warn
from skood.utils._weights import check_weight

# Larger equal numbers of ID and OOD samples are hardly those of a mixture.
_BALANCED = 50

_ARRAYS = "risk", "ood", "loss", "is_ood", "group", "source", "weight"


class Counts(NamedTuple):
    """Accepted samples at some thresholds, and their losses; sums of weights with them.

    Shapes: (n_thresholds,), or numbers. ``n_lossy`` counts positive losses, ``squares``
    is the sum of squared losses.
    """

    N: Any
    E: Any
    squares: Any
    n_lossy: Any
    F: Any
    n_id: float
    n_ood: float


@stored
@dataclass(frozen=True, eq=False)
class ScoredSamples:
    """Scores, losses and labels of samples, on which a rule is chosen.

    The order of the samples is free, and matters only where "latest" samples are taken,
    and for bets of :func:`certify_path` on samples that were drawn as one mixture.
    :meth:`from_arrays` makes the record of separate arrays of ID and of OOD samples.
    Read more in the :ref:`User Guide <rejection>`.

    Parameters
    ----------
    risk : array-like of shape (n_samples,)
        Scores a, high for samples that are likely misclassified.

    ood : array-like of shape (n_samples,) or None
        Scores b, high for OOD samples; -inf is not allowed. None: there is only the
        score a, and the angle of rules is 0.

    loss : array-like of shape (n_samples,)
        Losses, not negative; 0 for OOD samples.

    is_ood : array-like of shape (n_samples,), dtype bool
        Which samples are OOD.

    group : array-like of shape (n_samples,), default=None
        Groups; None for all ID samples, or for all OOD samples, if these have none.

    source : array-like of shape (n_samples,), default=None
        Sources of OOD samples; None for ID samples.

    weight : array-like of shape (n_samples,), default=None
        Weights, see :ref:`rejection_weights`; NaN for all samples of a kind, ID or OOD,
        that has none.

    See Also
    --------
    solve : Finds the best rule on the samples.
    certify : Finds a rule whose bounds hold on new data.

    Examples
    --------
    >>> from skood.rejection import BoundedTPRFPR, ScoredSamples, solve
    >>> samples = ScoredSamples.from_arrays(
    ...     risk_id=[0, 0, 1, 1, 2, 3],
    ...     ood_id=None,
    ...     loss_id=[0, 0, 1, 0, 0, 1],
    ...     risk_ood=[0, 2, 2, 3],
    ...     ood_ood=None,
    ... )
    >>> samples.sizes
    (6, 4)
    >>> solve(BoundedTPRFPR(tpr_min=0.5, fpr_max=0.25), samples).risk
    0.25
    """

    risk: np.ndarray
    ood: np.ndarray | None
    loss: np.ndarray
    is_ood: np.ndarray
    group: np.ndarray | None = None
    source: np.ndarray | None = None
    weight: np.ndarray | None = None

    def __post_init__(self):
        shapes = {}
        for name in _ARRAYS:
            array = getattr(self, name)
            if array is not None:
                object.__setattr__(self, name, np.asarray(array))
                shapes[name] = np.shape(array)
        if set(shapes.values()) != {(np.size(self.risk),)}:
            raise ValueError(
                "The arrays of ScoredSamples must have the same shape (n_samples,), "
                f"got {shapes}."
            )
        if self.is_ood.dtype != bool:
            raise ValueError(
                f"is_ood must be Boolean, True for OOD samples, got the dtype "
                f"{self.is_ood.dtype}."
            )

    @classmethod
    def from_arrays(
        cls,
        risk_id,
        ood_id,
        loss_id,
        risk_ood,
        ood_ood,
        *,
        group_id=None,
        group_ood=None,
        source_ood=None,
        weight_id=None,
        weight_ood=None,
    ):
        """Return the record of separate arrays of ID and of OOD samples, ID first.

        Parameters
        ----------
        risk_id : array-like of shape (n_id,)
            Scores a of ID samples, high for samples that are likely misclassified.

        ood_id : array-like of shape (n_id,) or None
            Scores b of ID samples, high for OOD samples; -inf is not allowed. None
            (then also in `ood_ood`): there is only the score a.

        loss_id : array-like of shape (n_id,)
            Losses of ID samples, not negative.

        risk_ood : array-like of shape (n_ood,) or None
            Scores a of OOD samples. None: no OOD samples, for rules that do not require
            them.

        ood_ood : array-like of shape (n_ood,) or None
            Scores b of OOD samples.

        group_id, group_ood : array-like of shape (n_id,) and (n_ood,), default=None
            Groups, such as classes or an attribute.

        source_ood : array-like of shape (n_ood,), default=None
            Sources of OOD samples.

        weight_id, weight_ood : array-like of shape (n_id,) and (n_ood,), default=None
            Weights. A weight of 0 leaves a sample out.

        Returns
        -------
        samples : ScoredSamples
            The samples.

        Raises
        ------
        ValueError
            If a score is NaN, an OOD score is -inf, a loss is negative, a label is
            missing, or shapes do not fit.
        """
        double = ood_id is not None
        risk_id, ood_id = check_pair(risk_id, ood_id, ("risk_id", "ood_id"), False)
        n_id = risk_id.size
        loss_id = check_nonnegative(loss_id, "loss_id", n_id)
        if risk_ood is None:
            if ood_ood is not None:
                raise ValueError(
                    "ood_ood is given although risk_ood is None; pass both scores of "
                    "the OOD samples, or none."
                )
            risk_ood, ood_ood = np.empty(0), np.empty(0) if double else None
        names = "risk_ood", "ood_ood"
        risk_ood, ood_ood = check_pair(risk_ood, ood_ood, names, double)
        n_ood = risk_ood.size
        if ood_ood is not None and not double:
            raise ValueError(
                "ood_ood is given although ood_id is None; pass both scores for ID and "
                "for OOD samples, or one for both."
            )
        group_id = _check_labels(group_id, "group_id", n_id)
        group_ood = _check_labels(group_ood, "group_ood", n_ood)
        source_ood = _check_labels(source_ood, "source_ood", n_ood)
        weight_id = check_weight(weight_id, n_id, "weight_id") if n_id else None
        weight_ood = check_weight(weight_ood, n_ood, "weight_ood") if n_ood else None
        return cls(
            np.concatenate([risk_id, risk_ood]),
            np.concatenate([ood_id, ood_ood]) if double else None,
            np.concatenate([loss_id, np.zeros(n_ood)]),
            np.repeat([False, True], [n_id, n_ood]),
            _joined(group_id, group_ood, (n_id, n_ood), None),
            _joined(None, source_ood, (n_id, n_ood), None),
            _joined(weight_id, weight_ood, (n_id, n_ood), np.nan),
        )

    @property
    def sizes(self):
        """Numbers of ID and of OOD samples."""
        n_ood = int(np.count_nonzero(self.is_ood))
        return self.is_ood.size - n_ood, n_ood

    @property
    def indices(self):
        """Indices of ID and of OOD samples."""
        return np.flatnonzero(~self.is_ood), np.flatnonzero(self.is_ood)

    def by_kind(self, name):
        """Return an array of ID and of OOD samples; None where labels are missing.

        Parameters
        ----------
        name : str
            Name of the array.

        Returns
        -------
        of_id, of_ood : ndarray or None
            Its entries of ID and of OOD samples.
        """
        array = getattr(self, name)
        if array is None:
            return None, None
        n_id = self.sizes[0]
        if self.is_ood[n_id:].all():  # ID samples first: without a copy
            pair = array[:n_id], array[n_id:]
        else:
            of_id, of_ood = self.indices  # faster than masks
            pair = array[of_id], array[of_ood]
        if name in ("group", "source", "weight"):
            return tuple(x if not x.size or _present(x).any() else None for x in pair)
        return pair

    def take(self, indices):
        """Return some of the samples, in the given order.

        Parameters
        ----------
        indices : ndarray or slice
            Indices, which may repeat, or a mask.

        Returns
        -------
        samples : ScoredSamples
            The samples.
        """
        arrays: dict = {}
        for name in _ARRAYS:
            array = getattr(self, name)
            arrays[name] = None if array is None else array[indices]
        return replace(self, **arrays)

    def split(self, fraction, rng, *, together=False):
        """Split the samples at random, ID samples first, then OOD samples.

        The split is random within each group of ID samples and each source of OOD
        samples, and within nothing else: the second samples of a label are a sample of
        it given the first.

        Parameters
        ----------
        fraction : float, tuple of (float, float) or ndarray of shape (n_samples,)
            Fraction of the first samples, or of ID and of OOD samples, or a mask.

        rng : RandomState instance
            Draws the samples, and their order.

        together : bool, default=False
            Draw from all samples alike, in one random order of ID and OOD samples.

        Returns
        -------
        first, second : ScoredSamples
            The two parts, in random order.
        """
        if together:
            parts = split_indices(None, self.is_ood.size, fraction, rng)
            return self.take(parts[0]), self.take(parts[1])
        labels = self.by_kind("group")[0], self.by_kind("source")[1]
        fractions = fraction if isinstance(fraction, tuple) else (fraction, fraction)
        first: list = []
        second: list = []
        for indices, label, size in zip(self.indices, labels, fractions, strict=True):
            mask = size[indices] if isinstance(size, np.ndarray) else size
            chosen, others = split_indices(label, len(indices), mask, rng)
            first.append(indices[chosen])
            second.append(indices[others])
        return self.take(np.concatenate(first)), self.take(np.concatenate(second))

    def latest(self, window):
        """Return the last ID and OOD samples.

        Parameters
        ----------
        window : int or None
            Number of samples of each kind. None: all.

        Returns
        -------
        samples : ScoredSamples
            The samples, in their order.
        """
        if window is None:
            return self
        latest = [indices[::-1][:window] for indices in self.indices]
        return self.take(np.sort(np.concatenate(latest)))

    def project(self, theta, scales):
        """Return the scores that a rule compares with its threshold.

        Parameters
        ----------
        theta : float
            The angle between the two scores, see :class:`OperatingPoint`.

        scales : tuple of (float, float)
            The scales of the two scores.

        Returns
        -------
        projected : ndarray of shape (n_samples,)
            Projected scores, high for samples to reject.
        """
        return project(theta, *standardize(self.risk, self.ood, scales))

    def counts(self, theta, lam, scales):
        """Return the counts of accepted samples at thresholds of projected scores.

        Parameters
        ----------
        theta, scales
            As in :meth:`project`.

        lam : ndarray of shape (n_thresholds,)
            The thresholds.

        Returns
        -------
        counts : Counts
            Accepted ID samples ``N``, their summed loss ``E``, accepted OOD samples
            ``F``; with weights, their sums.
        """
        projected = self.project(theta, scales)
        of_id, of_ood = ~self.is_ood, self.is_ood
        w_id, w_ood = self.by_kind("weight")
        N, E, squares, n_lossy, n_id = sums_up_to(
            lam, projected[of_id], w_id, self.loss[of_id]
        )
        F, *_, n_ood = sums_up_to(lam, projected[of_ood], w_ood)
        return Counts(N, E, squares, n_lossy, F, n_id, n_ood)

    def __add__(self, other):
        arrays: Any = []
        for name in _ARRAYS:
            pair = getattr(self, name), getattr(other, name)
            if name == "weight" and any(x is not None for x in pair):
                pair = _weights_of(self), _weights_of(other)
            sizes = self.is_ood.size, other.is_ood.size
            is_joined = any(x is None for x in pair)
            joined = _joined(*pair, sizes, None) if is_joined else np.concatenate(pair)
            arrays.append(joined)
        return ScoredSamples(*arrays)


def sums_up_to(lam, projected, weight, loss=None):
    """Return N, E, summed squares, positive losses at thresholds; and the size.

    With weights all are sums of them. Without `loss` only N and the size.
    """
    if loss is None and weight is None:
        N = np.searchsorted(np.sort(projected), lam, side="right")
        return N, None, None, None, projected.size
    order = np.argsort(projected, kind="stable")
    N = np.searchsorted(projected[order], lam, side="right")
    sums: list = [None] * 3
    if loss is not None:
        for k, column in enumerate((loss, loss**2, loss > 0)):
            column = column if weight is None else weight * column
            sums[k] = np.append(0.0, np.cumsum(column[order]))[N]
    if weight is None:
        return N, *sums, projected.size
    ends = np.append(0.0, np.cumsum(weight[order]))
    return ends[N], *sums, ends[-1]


def _weights_of(samples):
    """Return weights, 1 where samples have none."""
    if samples.weight is None:
        return np.ones(samples.is_ood.size)
    return np.where(np.isnan(samples.weight), 1.0, samples.weight)


def _present(labels):
    """Return which labels or weights are not missing."""
    if labels.dtype.kind == "f":
        return ~np.isnan(labels)
    return np.array([label is not None for label in labels.tolist()], dtype=bool)


def _joined(first, second, sizes, missing):
    """Return an array after another one, each may be None; labels become objects."""
    if first is None and second is None:
        return None
    pair = [
        np.full(n, missing) if array is None else array
        for array, n in zip((first, second), sizes, strict=True)
    ]
    if missing is None:
        pair = [array.astype(object) for array in pair]
    return np.concatenate(pair)


def split_indices(labels, n, fraction, rng):
    """Return indices that choose, and those that certify, each in random order.

    `fraction` is that of the first within each label, or a mask of them; `labels`
    may be None.
    """
    order = rng.permutation(n)
    if isinstance(fraction, np.ndarray):
        return order[fraction[order]], order[~fraction[order]]
    if labels is None:
        size = max(1, int(fraction * n)) if n and fraction else 0
        return order[:size], order[size:]
    first = np.zeros(n, dtype=bool)
    for label in set(labels.tolist()):
        chosen = order[labels[order] == label]
        first[chosen[: int(fraction * len(chosen))]] = True
    return order[first[order]], order[~first[order]]


def _check_labels(labels, name, n_samples):
    """Return the labels of samples of one kind, or raise; None stays None."""
    if labels is None:
        return None
    labels = column_or_1d(labels)
    if len(labels) != n_samples:
        kind = "ID" if name == "group_id" else "OOD"
        raise ValueError(
            f"{name} must have one label per {kind} sample, got {len(labels)} for "
            f"{n_samples} samples."
        )
    if any(map(is_missing, labels)):
        raise ValueError(
            f"{name} contains missing labels; leave these samples out, or give "
            f"them a label of their own."
        )
    return labels


def checked_samples(rule, samples, certificate=None, unlabeled=None):
    """Return the samples of positive weight, or raise if a rule has too few.

    Samples of one mixture must suit its `certificate`.
    """
    check_rule(rule)
    if not isinstance(samples, ScoredSamples):
        raise TypeError(
            f"samples must be ScoredSamples, got {type(samples).__name__}: write "
            "ScoredSamples.from_arrays(risk_id, ood_id, loss_id, risk_ood, ood_ood)."
        )
    risk, ood = check_pair(samples.risk, samples.ood, ("risk", "ood"), False)
    loss = check_nonnegative(samples.loss, "loss")
    samples = replace(samples, risk=risk, ood=ood, loss=loss)
    n_id, n_ood = samples.sizes
    if certificate is not None and certificate.sampling == "mixture":
        labels = {"groups": samples.group, "sources": samples.source}
        others = {"weights": samples.weight, "unlabeled samples": unlabeled}
        rule = Certificate._checked_rule(certificate, rule, **labels, **others)
        if n_ood and not n_id:
            raise NotCertifiableError(f"All of the {n_ood} samples are OOD.")
        if n_id == n_ood > _BALANCED:
            warn(
                f"sampling='mixture' requires samples that were drawn together, but "
                f"there are {n_id} ID and {n_ood} OOD samples. If these numbers were "
                "chosen, use sampling='separate' and a prior."
            )
    arrays = map(samples.by_kind, ("group", "source", "weight"))
    kinds = zip(("id", "ood"), samples.sizes, *arrays, strict=True)
    for kind, n, group, source, weight in kinds:
        for name, labels in (("group", group), ("source", source)):
            if labels is not None:
                _check_labels(labels, f"{name}_{kind}", n)
        if weight is not None and n:
            check_weight(weight, n, f"weight_{kind}")
    if not n_id:
        raise ValueError("No ID samples: risk_id is empty; a rule needs ID samples.")
    if rule.needs_ood and not n_ood:
        raise ValueError(
            f"{type(rule).__name__} needs OOD samples, since it depends on the "
            f"fraction of them that is accepted; got none. Add OOD samples, or use a "
            f"rule that needs none, such as TwoThresholds(ood=0.05, risk=0.05)."
        )
    if samples.weight is not None and not samples.weight.all():
        return samples.take(samples.weight != 0)
    return samples
