"""Bootstrap resamples of metrics, and intervals from them."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import inspect
import math
from collections.abc import Callable
from functools import partial
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
from joblib import effective_n_jobs
from scipy.special import ndtr, ndtri
from sklearn.utils.parallel import Parallel, delayed

from skood.metrics._sample_checks import check_ood
from skood.utils._estimator import BaseOptions
from skood.utils._labels import check_labels
from skood.utils._param_validation import Number, StrOptions
from skood.utils._torch import to_numpy
from skood.utils._weights import check_weight

# Parameters with one entry per sample even if they have several dimensions.
_PER_ROW = ("y_pred", "y_score", "ood_score", "y_proba", "sample_weight")


class Resampling(BaseOptions):
    """Resamples of a comparison, and the level of its intervals.

    The options of :func:`paired_test` and :func:`skood.benchmark.compare`. Read more in
    the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    n_resamples : int, default=999
        Number of bootstrap resamples, and of permutations.

    method : {"permutation", "bootstrap"}, default="permutation"
        Type of the test of `paired_test`. "permutation": samples are swapped between
        the systems at random. "bootstrap": samples are resampled.

    confidence_level : float, default=0.95
        Level of the intervals, in (0, 1).

    stratify : bool, default=True
        Whether the bootstrap of `paired_test` resamples ID and OOD samples separately,
        as the bootstrap of `compare` does.

    See Also
    --------
    paired_test : Compares two systems.
    skood.benchmark.compare : Compares detectors.

    Examples
    --------
    >>> from skood.metrics import Resampling
    >>> Resampling(199, "bootstrap")
    Resampling(method='bootstrap', n_resamples=199)
    """

    _parameter_constraints: dict = {
        "n_resamples": [Number(Integral, 1, None, closed="left")],
        "method": [StrOptions({"permutation", "bootstrap"})],
        "confidence_level": [Number(Real, 0, 1, closed="neither")],
        "stratify": ["boolean"],
    }

    def __init__(
        self,
        n_resamples=999,
        method="permutation",
        *,
        confidence_level=0.95,
        stratify=True,
    ):
        self.n_resamples = n_resamples
        self.method = method
        self.confidence_level = confidence_level
        self.stratify = stratify


class System(NamedTuple):
    """Metric with its arguments: arrays with one entry per sample, and all others."""

    metric: Callable
    y_true: np.ndarray
    arrays: tuple
    row_params: dict
    params: dict

    def value(self, indices=slice(None)):
        """Return the metric of some samples, which must be a number."""
        value = self.metric(
            self.y_true[indices],
            *(None if a is None else a[indices] for a in self.arrays),
            **{name: a[indices] for name, a in self.row_params.items()},
            **self.params,
        )
        if not isinstance(value, Real):
            raise TypeError(
                f"metric must return a number, got {type(value).__name__}; pass a "
                f"function that returns one of its numbers."
            )
        return float(value)


def parameters_of(metric):
    """Return the parameters of a metric by name; empty if they are unknown."""
    try:
        return inspect.signature(metric).parameters
    except ValueError:  # some functions that are not written in Python
        return {}


def _per_sample(array, n_samples, name):
    """Return an array with one entry per sample."""
    array = np.asarray(to_numpy(array))
    if array.ndim == 0 or array.shape[0] != n_samples:
        raise ValueError(
            f"{name} must have one entry per sample, {n_samples} as y_true has, got an "
            f"array of shape {array.shape}."
        )
    return array


def _is_per_row(name, value, n_samples):
    """Return whether a parameter has one entry per sample; raise if it is unclear."""
    if isinstance(value, str | bytes | dict) or not hasattr(value, "__len__"):
        return False
    n_dims = np.ndim(to_numpy(value))
    if n_dims == 0 or len(value) != n_samples or (name == "loss" and n_dims == 2):
        return False  # a loss matrix may happen to have as many classes as samples
    if n_dims > 1 and name not in _PER_ROW:
        raise ValueError(
            f"{name} has the shape {np.shape(to_numpy(value))}, and as many samples as "
            f"y_true, but it is not known whether it belongs to the samples. If so, "
            f"pass it after y_true, by a function of y_true and what else belongs to "
            f"the samples; if not, fix it by functools.partial."
        )
    return True


def make_system(metric, y_true, arrays, metric_params, ood_label, classes):
    """Return the system of a metric and its arguments; `arrays` is a tuple or dict."""
    y_true = check_labels(y_true, "y_true")
    n_samples = y_true.shape[0]
    names = parameters_of(metric)
    params, row_params = {}, {}
    for name, value in (("ood_label", ood_label), ("classes", classes)):
        if name in names:
            params[name] = value
    named, positional = (arrays, ()) if isinstance(arrays, dict) else ({}, arrays)
    for name, value in {**metric_params, **named}.items():
        if value is not None and (name in named or _is_per_row(name, value, n_samples)):
            row_params[name] = _per_sample(value, n_samples, name)
        else:
            params[name] = value
    positional = tuple(
        None if a is None else _per_sample(a, n_samples, f"Array {i} after y_true")
        for i, a in enumerate(positional, 1)
    )
    return System(metric, y_true, positional, row_params, params)


def strata_of(y_true, stratify, ood_label, classes, sample_weight=None):
    """Return the positions of the samples that are resampled among themselves.

    Samples with a weight of zero are absent.
    """
    is_ood = check_ood(y_true, ood_label, classes)
    weight = check_weight(sample_weight, is_ood.size)
    present = np.ones(is_ood.size, bool) if weight is None else weight > 0
    if not stratify:
        return [np.flatnonzero(present)]
    kinds = ~is_ood & present, is_ood & present
    return [indices for indices in map(np.flatnonzero, kinds) if indices.size]


def effective_sizes(system, strata):
    """Return the numbers of samples of strata; with weights, the effective numbers."""
    weight = system.row_params.get("sample_weight")
    if weight is None:
        return [indices.size for indices in strata]
    # (sum w)^2 / sum w^2: L. Kish. Survey sampling, section 11.7. Wiley, 1965.
    parts = [weight[indices] / weight[indices].max() for indices in strata]
    return [float(w.sum() ** 2 / (w @ w)) for w in parts]


def finite_value(system, where):
    """Return the metric on all samples, or raise."""
    value = system.value()
    if not math.isfinite(value):
        raise ValueError(
            f"metric is {value} on {where}; there must be a finite number to put an "
            f"interval on."
        )
    return value


def finite_values(function, n, n_jobs, what):
    """Return the values of a function of 0, ..., n - 1, all finite."""
    chunks = np.array_split(np.arange(n), min(n, effective_n_jobs(n_jobs)))
    parts = Parallel(n_jobs=n_jobs)(delayed(_chunk)(function, c) for c in chunks)
    values = np.concatenate(parts)
    bad = ~np.isfinite(values).reshape(n, -1).all(axis=1)
    if bad.any():
        raise ValueError(
            f"metric is NaN or infinite in {int(bad.sum())} of {n} {what}, so that it "
            f"has no distribution there. Pass a metric that is defined on all of "
            f"them, or more samples; stratify=True keeps ID and OOD samples in each."
        )
    return values


def _chunk(function, items):
    """Return the values of a function of some integers."""
    return np.array([function(int(i)) for i in items], dtype=np.float64)


def seed_of(random_state):
    """Draw a seed, to which each resample adds its index, in any joblib job."""
    return random_state.randint(np.iinfo(np.int32).max, size=4).tolist()


class Bootstrap:
    """Return metrics of systems on the i-th resample."""

    def __init__(self, systems, strata, random_state):
        self.systems = systems
        self.strata = strata
        self.entropy = seed_of(random_state)

    def draw(self, i):
        """Draw samples with replacement, with the size of each stratum."""
        rng = np.random.default_rng([*self.entropy, i])
        return np.concatenate(
            [s[rng.integers(s.size, size=s.size)] for s in self.strata]
        )

    def __call__(self, i):
        draw = self.draw(i)
        return [system.value(draw) for system in self.systems]


def _value_without(system, indices, i):
    """Return the metric without the i-th of some samples."""
    others = np.ones(system.y_true.shape[0], dtype=bool)
    others[indices[i]] = False
    return system.value(others)


def jackknife_values(system, strata, n_jobs):
    """Return the leave-one-out values of every stratum."""
    smallest = min(indices.size for indices in strata)
    if smallest < 2:
        raise ValueError(
            "The BCa interval leaves out one sample at a time, but there is a single "
            "ID or OOD sample. Add samples, or use method='percentile'."
        )
    return [
        finite_values(
            partial(_value_without, system, indices),
            indices.size,
            n_jobs,
            "leave-one-out samples",
        )
        for indices in strata
    ]


def _acceleration(jackknife):
    """Return the acceleration of BCa from the leave-one-out values of the strata."""
    third = second = 0.0
    for values in jackknife:
        n = values.size
        influence = (n - 1) * (values.mean() - values)
        # Eq. (14.15) of [2] of `bootstrap_ci`, whose sums here go over the strata
        third += np.sum(influence**3) / n**3
        second += np.sum(influence**2) / n**2
    return third / (6 * second**1.5) if second > 0 else 0.0


def _bca_levels(value, draws, jackknife, tail):
    """Return the two levels of the bootstrap distribution used by BCa."""
    below = (np.mean(draws < value) + np.mean(draws <= value)) / 2
    if below in (0, 1):
        raise ValueError(
            f"The BCa interval is undefined: all {draws.size} resamples are "
            f"{'above' if below == 0 else 'below'} the value {value:.6g}, so its bias "
            f"is undefined. Use method='basic' or more resamples."
        )
    z0, a = ndtri(below), _acceleration(jackknife)  # Eq. (14.14) of [2]
    levels = []
    for z in (ndtri(tail), -ndtri(tail)):
        shifted = z0 + z
        divisor = 1 - a * shifted  # Eq. (14.10) of [2]
        levels.append(
            ndtr(
                z0 + shifted / divisor
                if divisor > 0
                else math.copysign(math.inf, shifted)
            )
        )
    return levels


def interval(value, draws, method, confidence_level, jackknife=None):
    """Return the ends of a bootstrap interval."""
    tail = (1 - confidence_level) / 2
    levels = [tail, 1 - tail]
    if method == "bca":
        levels = _bca_levels(value, draws, jackknife, tail)
    low, high = np.quantile(draws, levels)
    if method == "basic":
        low, high = 2 * value - high, 2 * value - low
    return float(low), float(high)
