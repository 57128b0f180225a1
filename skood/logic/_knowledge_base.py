"""Knowledge bases: weighted constraints and the distribution defined by them."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from typing import Any

import numpy as np

from skood.logic.inference._partition import Partition, constraint_weights
from skood.logic.inference._weights import (
    fit_pseudo_weights,
    fit_weights,
    pseudo_log_likelihood,
)
from skood.logic.language._compiler import (
    comparisons,
    compile_formula,
    evaluate,
    truth_table,
)
from skood.logic.language._domains import check_domains
from skood.logic.language._encoding import (
    check_codes,
    decode,
    encode,
    is_frame,
    narrow_columns,
)
from skood.logic.language._parser import read_constraints
from skood.utils._stored import stored
from skood.utils._torch import is_tensor, row_chunks, to_numpy
from skood.utils._warnings import warn

# A truth table has at most this many entries, and axes.
MAX_TABLE, MAX_AXES = 2**24, 32

# Bytes of the columns and comparisons in memory at a time: on the CPU so that they
# stay in its cache, with at most 2**15 samples; more on a device.
_BUDGET, _DEVICE_BUDGET = 2**23, 2**28
_MIN_STORED = 2**8


@stored
class CompiledConstraints:
    """Bound formulas, compiled: their concepts, tables (None: too large), and truth."""

    def __init__(self, formulas, domains):
        columns = {name: j for j, name in enumerate(domains)}
        self.sizes = tuple(len(values) for values in domains.values())
        self._compiled = [compile_formula(formula, domains) for formula in formulas]
        compared = set().union(*(comparisons(compiled) for compiled in self._compiled))
        self._n_stored = max(len(self.sizes) + len(compared), _MIN_STORED)
        self.scopes = [
            tuple(sorted(columns[name] for name in formula.concepts()))
            for formula in formulas
        ]
        self.tables = [
            truth_table(compiled, scope, self.sizes)
            if len(scope) <= MAX_AXES
            and math.prod(self.sizes[j] for j in scope) <= MAX_TABLE
            else None
            for compiled, scope in zip(self._compiled, self.scopes, strict=True)
        ]

    def truth(self, Z):
        """Return the truth (n_samples, n_constraints) of valid codes."""
        shape = len(Z), len(self._compiled)
        out: Any = np.empty(shape, dtype=bool)
        if is_tensor(Z):
            import torch

            out = torch.empty(shape, dtype=torch.bool, device=Z.device)
        for chunk, truths in self.chunks(Z):
            for i, truth in enumerate(truths):
                out[chunk, i] = truth
        return out

    def chunks(self, Z):
        """Yield slices of samples, and the truth of each constraint for valid codes."""
        budget = _DEVICE_BUDGET if is_tensor(Z) else _BUDGET
        for chunk in row_chunks(len(Z), self._n_stored, budget=budget):
            columns = narrow_columns(Z[chunk], self.sizes)
            cache: dict = {}
            yield (
                chunk,
                (evaluate(compiled, columns, cache) for compiled in self._compiled),
            )


# Entries of the tables and of their sums in memory at a time.
_MAX_ENTRIES = 2**22

# Rows that are summed at a time.
_SUMMED_SAMPLES = 64

# Tolerance of sums of probabilities: networks return float32 or float16.
_MAX_ROUNDING = 1e-2


def check_probabilities(P, domains):
    """Return float64 probabilities, (n_samples, n_values) each, or raise."""
    if len(P) != len(domains):
        raise ValueError(
            f"Expected probabilities of {len(domains)} concepts, got {len(P)}."
        )
    P = [np.asarray(to_numpy(p), dtype=np.float64) for p in P]
    for p, (name, values) in zip(P, domains.items(), strict=True):
        shape = len(P[0]), len(values)
        if p.shape != shape:
            raise ValueError(
                f"Expected probabilities of shape {shape} of the concept {name!r}, got "
                f"{p.shape}."
            )
        off = np.abs(p.sum(axis=1) - 1)
        if not ((p >= 0).all() and (off <= _MAX_ROUNDING).all()):  # also true for NaN
            raise ValueError(
                f"Probabilities of the concept {name!r} are negative, or NaN, or do "
                "not sum to 1 in each row."
            )
    return P


def expected_tables(P, scopes, tables):
    """Return the expectation of truth tables, (n_samples, n_constraints)."""
    out = np.empty((len(P[0]), len(scopes)))
    groups: dict = {}
    for i, scope in enumerate(scopes):
        groups.setdefault(scope, []).append(i)
    for scope, same in groups.items():
        for chunk in row_chunks(len(same), tables[same[0]].size, budget=_MAX_ENTRIES):
            members = same[chunk]
            stacked = np.stack([tables[i] for i in members], axis=-1)
            out[:, members] = _summed(stacked, [P[j] for j in scope])
    return np.minimum(out, 1.0)


def _summed(tables, P):
    """Sum tables of the same concepts over their values."""
    flat = tables.reshape(len(tables), -1).astype(np.float64)
    # padded to a constant number of rows, so that all sums have the same order
    n_samples = min(_SUMMED_SAMPLES, max(1, _MAX_ENTRIES // flat.shape[1]))
    out = np.empty((len(P[0]), tables.shape[-1]))
    for start in range(0, len(out), n_samples):
        chunk = slice(start, min(start + n_samples, len(out)))
        blocks = [np.zeros((n_samples, p.shape[1])) for p in P]
        for padded, p in zip(blocks, P, strict=True):
            padded[: chunk.stop - start] = p[chunk]
        left = blocks[0] @ flat
        for padded in blocks[1:]:
            left = left.reshape(n_samples, padded.shape[1], -1)
            left = np.einsum("nv,nvr->nr", padded, left)
        out[chunk] = left[: chunk.stop - start]
    return out


@stored
class KnowledgeBase:
    r"""Constraints over concepts, and the Markov logic network of their weights.

    A world :math:`z` gives each concept one of its values, and :math:`\varphi_i(z)` is
    1 where it satisfies the constraint :math:`i`, else 0. With weights :math:`w`

    .. math::

        P(z) = \frac{\exp \sum_i w_i \varphi_i(z)}{Z(w)}, \qquad
        D(z) = -\sum_i w_i \varphi_i(z)

    [1]_: if two worlds differ in one constraint, the world that satisfies it is
    :math:`e^{w_i}` times as probable. :math:`\log Z` is exact: concepts without
    constraints factor out, connected components of the other concepts are independent,
    and the worlds of a component are grouped by the constraints that they satisfy or,
    if there are more than :math:`2^{24}` worlds, the concepts are eliminated one by
    one.

    Read more in the :ref:`User Guide <logic>`.

    Parameters
    ----------
    constraints : list of (str or Formula), or dict of str to (str or Formula)
        The constraints, with names if it is a dict.

    domains : dict of str to (list or "bool")
        Values of each concept, in the order of columns; "bool" is short for
        ``[False, True]``.

    method : {"auto", "enumeration", "grouping", "components", "elimination"}, \
default="auto"
        Method to compute :math:`\log Z`. "enumeration" goes through all worlds,
        "grouping" through all distinct truth vectors, "components" groups the worlds of
        each connected component, "elimination" eliminates concepts. "auto" groups each
        component, or uses elimination for components that are too large; if the tables
        of elimination are too large as well, weights maximize the pseudo-likelihood,
        with a warning.

    Attributes
    ----------
    constraints : list of str
        The constraints as strings.

    names : list of str
        Names of the constraints: the keys of a dict, or the strings.

    formulas : list of Formula
        The constraints.

    concepts : list of str
        Names of the concepts.

    domains : dict of str to list
        Values of the concepts.

    sizes : tuple of int
        Number of values of each concept.

    scopes : list of tuple of int
        Columns of the concepts in each constraint.

    tables : list of (ndarray of bool or None)
        Truth of each constraint for all values of its concepts; None if there are
        more than 2**24 combinations, or more than 32 concepts.

    method_ : str
        Method used to compute :math:`\log Z`.

    components_ : list of dict
        For each connected component, its ``concepts``, ``constraints``, ``method``,
        ``n_worlds`` and ``n_groups``.

    Raises
    ------
    ConstraintSyntaxError
        If a string is not a constraint over the concepts.

    ValueError
        If a formula contains an unknown concept or value, or if the method cannot
        compute :math:`\log Z`.

    TypeError
        If constraints or domains are of another type.

    See Also
    --------
    MLNDetector : Detector that penalizes violated constraints over predicted concepts.
    parse_constraint : Syntax of constraints.

    References
    ----------
    .. [1] Richardson, M. and Domingos, P. (2006). Markov logic networks. Machine
       Learning, 62, 107-136.

    Examples
    --------
    >>> from skood.logic import KnowledgeBase
    >>> domains = {"class": ["stop", "yield", "other"], "color": ["red", "blue"]}
    >>> kb = KnowledgeBase(["class = stop -> color = red"], domains)
    >>> Z = kb.encode([["stop", "red"], ["stop", "blue"], ["other", "blue"]])
    >>> kb.truth(Z).ravel()
    array([ True, False,  True])
    >>> kb.penalty(Z, [1.5])
    array([-1.5,  0. , -1.5])
    >>> round(kb.log_partition([1.5]), 4)
    3.1531
    >>> kb.fit_weights(Z[[0, 2, 2]]).round(3)
    array([1.526])
    """

    def __init__(self, constraints, domains, *, method="auto"):
        self.domains = check_domains(domains)
        if not self.domains:
            raise ValueError("domains is empty: name at least one concept.")
        self.concepts = list(self.domains)
        self.sizes = tuple(len(values) for values in self.domains.values())
        names, self.formulas = read_constraints(constraints, self.domains)
        self.constraints = [str(formula) for formula in self.formulas]
        self.names = list(self.constraints) if names is None else names
        self._compiled = CompiledConstraints(self.formulas, self.domains)
        self.scopes, self.tables = self._compiled.scopes, self._compiled.tables
        factors = list(zip(self.scopes, self.tables, strict=True))
        self._partition = Partition(self.sizes, factors, method=method)
        self.method_ = self._partition.method_

    @property
    def components_(self):
        """Connected components of the constraints."""
        return self._partition.components_

    def __len__(self):
        return len(self.formulas)

    def __repr__(self):
        return (
            f"KnowledgeBase({len(self)} constraints, {len(self.concepts)} concepts, "
            f"method={self.method_!r})"
        )

    def encode(self, Y):
        """Return the codes of labels.

        Parameters
        ----------
        Labels, with columns in the order of ``concepts`` or with their names.

        Returns
        -------
        Z : ndarray of shape (n_samples, n_concepts), dtype int64
            The index of each label among the values of its concept.

        Raises
        ------
        ValueError
            If columns are missing, or a label is not among the values.
        """
        return encode(Y, self.domains)

    def decode(self, Z):
        """Return the labels of codes.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_concepts), dtype int
            Codes.

        Returns
        -------
        Y : ndarray of shape (n_samples, n_concepts)
            Labels, of dtype object if the labels of the concepts have different types.
        """
        return decode(Z, self.domains)

    def _codes(self, Z):
        if is_frame(Z):
            return encode(Z, self.domains)
        return check_codes(Z, self.sizes)

    def truth(self, Z):
        """Return whether each sample satisfies each constraint.

        Parameters
        ----------
        Z : array-like or tensor of shape (n_samples, n_concepts), dtype int
            Codes; or a data frame of labels.

        Returns
        -------
        truth : ndarray or tensor of shape (n_samples, n_constraints), dtype bool
            True where the constraint holds. A tensor on the same device if `Z` is a
            tensor.
        """
        return self._compiled.truth(self._codes(Z))

    def expected(self, P):
        r"""Return the probability that each sample satisfies each constraint.

        .. math:: E_i(x) = \sum_z \varphi_i(z) \prod_k p_k(z_k \mid x)

        Parameters
        ----------
        P : list of array-like of shape (n_samples, n_values)
            For each concept, the probabilities of its values. Concepts are assumed to
            be independent.

        Returns
        -------
        expected : ndarray of shape (n_samples, n_constraints), dtype float64
            The probabilities.

        Raises
        ------
        ValueError
            If a shape is wrong, if rows are not probabilities, or if a constraint has
            more than 2**24 worlds.
        """
        P = check_probabilities(P, self.domains)
        too_large = [i for i, table in enumerate(self.tables) if table is None]
        if too_large:
            raise ValueError(
                f"The constraint {self.names[too_large[0]]!r} names concepts with more "
                f"than {MAX_TABLE} combinations of values, or more than {MAX_AXES} "
                "concepts: its expectation cannot be computed. Write it as several "
                "constraints."
            )
        return expected_tables(P, self.scopes, self.tables)

    def penalty(self, Z, weights):
        r"""Return the penalty of each sample: :math:`D(z) = -\sum_i w_i \varphi_i(z)`.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_concepts), dtype int
            Codes; or a data frame of labels.

        weights : array-like of shape (n_constraints,)
            The weights.

        Returns
        -------
        penalty : ndarray of shape (n_samples,), dtype float64
            High for samples that violate constraints of large weight.
        """
        weights, Z = constraint_weights(weights, len(self)), self._codes(Z)
        out = np.zeros(len(Z))
        chunks = self._compiled.chunks(Z)
        if is_tensor(Z):  # one copy of all constraints
            chunks = [(slice(None), to_numpy(self._compiled.truth(Z)).T)]
        for chunk, truths in chunks:
            # term by term: samples that satisfy the same constraints are exactly tied
            for weight, truth in zip(weights, truths, strict=True):
                out[chunk] -= weight * truth
        return out

    def max_penalty(self, weights):
        """Return the largest penalty of any world.

        Parameters
        ----------
        weights : array-like of shape (n_constraints,)
            The weights.

        Returns
        -------
        penalty : float
            The maximum.
        """
        return self._partition.max_penalty(weights)

    def log_partition(self, weights):
        r"""Return the log partition function, :math:`\log Z(w)`.

        Parameters
        ----------
        weights : array-like of shape (n_constraints,)
            The weights.

        Returns
        -------
        log_partition : float
            :math:`\log \sum_z \exp \sum_i w_i \varphi_i(z)`.

        Raises
        ------
        ValueError
            If it cannot be computed: ``method_`` is "pseudo-likelihood".
        """
        return self._partition.log_partition(weights)

    def expected_truth(self, weights):
        r"""Return the probability of each constraint: the gradient of :math:`\log Z`.

        Parameters
        ----------
        weights : array-like of shape (n_constraints,)
            The weights.

        Returns
        -------
        expected : ndarray of shape (n_constraints,), dtype float64
            The probability that a world drawn from the network satisfies the
            constraint.
        """
        return self._partition.expected_truth(weights)

    def fit_weights(self, Z, prior=1.0, *, fixed=None):
        r"""Fit the weights to samples.

        The weights minimize the convex :math:`\log Z(w) - w^\top m`, where

        .. math:: m = \frac{n \bar\varphi + \alpha u}{n + \alpha}

        :math:`\bar\varphi` is the mean truth of the constraints over the samples,
        :math:`u` the mean truth over all worlds, and :math:`\alpha` the prior: the
        weights maximize the likelihood of the samples and of :math:`\alpha`
        pseudo-samples spread over all worlds. They are finite even for a constraint
        that all samples satisfy.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_concepts), dtype int
            Codes; or a data frame of labels.

        prior : float, default=1.0
            :math:`\alpha`. With 0 the weights of constraints that hold for all samples,
            or for no sample, are unbounded: they are capped, with a warning.

        fixed : array-like of shape (n_constraints,), default=None
            Weights that are not fitted; NaN for weights that are fitted.

        Returns
        -------
        weights : ndarray of shape (n_constraints,), dtype float64
            The weights; 0, with a warning, for constraints that hold in all worlds or
            in no world.

        Raises
        ------
        ValueError
            If there are no samples.
        """
        Z = self._codes(Z)
        if len(Z) == 0:
            raise ValueError("Weights cannot be fitted to 0 samples.")
        if self.method_ != "pseudo-likelihood":
            counts = np.zeros(len(self))
            for _, truths in self._compiled.chunks(Z):
                counts += [int(truth.sum()) for truth in truths]
            return self.fit_weights_to(counts / len(Z), len(Z), prior, fixed=fixed)
        largest = max(len(c["concepts"]) for c in self.components_)
        warn(
            "Weights maximize the pseudo-likelihood, which leaves out how concepts "
            f"depend on each other beyond their neighbors: constraints tie {largest} "
            "concepts together, too many for exact sums. Remove constraints that "
            "connect concepts, or merge values that are alike."
        )
        return fit_pseudo_weights(
            self._compiled.truth,
            self.sizes,
            self.scopes,
            to_numpy(Z).astype(np.int64),
            prior=prior,
            fixed=fixed,
            names=self.names,
        )

    def fit_weights_to(self, mean_truth, n_samples, prior=1.0, *, fixed=None):
        """Fit the weights to the mean truth of the constraints, without the samples.

        Parameters
        ----------
        mean_truth : array-like of shape (n_constraints,)
            Fraction of the samples that satisfy each constraint, or its expectation.

        n_samples : int
            Number of samples.

        prior, fixed
            See `fit_weights`.

        Returns
        -------
        weights : ndarray of shape (n_constraints,), dtype float64
            The weights.
        """
        return fit_weights(
            self._partition,
            mean_truth,
            n_samples,
            prior=prior,
            fixed=fixed,
            names=self.names,
        )

    def log_probability(self, Z, weights):
        r"""Log-probability: :math:`\sum_i w_i \varphi_i(z) - \log Z`.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_concepts), dtype int
            Codes; or a data frame of labels.

        weights : array-like of shape (n_constraints,)
            The weights.

        Returns
        -------
        log_probability : ndarray of shape (n_samples,), dtype float64
            The log-probabilities. If ``method_`` is "pseudo-likelihood" a
            ``ValueError`` that names the alternatives is raised.
        """
        # Eq. (3) of [1]
        return -self.penalty(Z, weights) - self.log_partition(weights)

    def pseudo_log_likelihood(self, Z, weights):
        r"""Return the pseudo-log-likelihood: each value given the others, summed.

        .. math:: \sum_d \log P(z_d \mid z_{-d})

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_concepts), dtype int
            Codes; or a data frame of labels.

        weights : array-like of shape (n_constraints,)
            The weights.

        Returns
        -------
        pseudo_log_likelihood : ndarray of shape (n_samples,), dtype float64
            The sums.
        """
        Z = to_numpy(self._codes(Z)).astype(np.int64)
        return pseudo_log_likelihood(
            self._compiled.truth, self.sizes, self.scopes, Z, weights
        )
