"""Knowledge bases: weighted constraints, and the distribution that they define."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from typing import Any

import numpy as np

from skood.logic.inference._expectation import check_probabilities, expected_tables
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
from skood.utils._torch import is_tensor, row_chunks, to_numpy
from skood.utils._warnings import warn

__all__ = ["KnowledgeBase"]

# A truth table has at most this many entries, and axes.
_MAX_TABLE, _MAX_AXES = 2**24, 32

# Bytes of the columns and comparisons that are kept at a time: on the CPU so that they
# stay in its cache, with at most 2**15 rows; more on a device.
_BUDGET, _DEVICE_BUDGET = 2**23, 2**28
_MIN_KEPT = 2**8


class KnowledgeBase:
    r"""Constraints over concepts, and the Markov logic network of their weights.

    A world :math:`z` gives each concept one of its values, and :math:`\varphi_i(z)` is
    1 where it satisfies the constraint :math:`i`, else 0. With weights :math:`w`

    .. math::

        P(z) = \frac{\exp \sum_i w_i \varphi_i(z)}{Z(w)}, \qquad
        D(z) = -\sum_i w_i \varphi_i(z)

    [1]_: of worlds that differ in one constraint, the one that satisfies it is
    :math:`e^{w_i}` times as probable. :math:`\log Z` is exact: concepts that no
    constraint names factor out, connected components of the others are independent, and
    in a component its worlds are grouped by the constraints that they satisfy or, where
    there are more than :math:`2^{24}` worlds, concepts are eliminated one after the
    other.

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
        How :math:`\log Z` is computed. "enumeration" goes through all worlds,
        "grouping" through all distinct truth vectors, "components" groups the worlds of
        each connected component, "elimination" eliminates concepts. "auto" groups each
        component, or eliminates in those that are too large; where the tables of this
        are too large, too, weights maximize the pseudo-likelihood, and a warning says
        so.

    Attributes
    ----------
    constraints : list of str
        The constraints as texts.

    names : list of str
        Names of the constraints: the keys of a dict, or the texts.

    formulas : list of Formula
        The constraints.

    concepts : list of str
        Names of the concepts.

    domains : dict of str to list
        Values of the concepts.

    sizes : tuple of int
        Number of values of each concept.

    scopes : list of tuple of int
        Columns of the concepts that each constraint names.

    tables : list of (ndarray of bool or None)
        Truth of each constraint for all values of these concepts; None where there are
        more than 2**24 combinations, or more than 32 concepts.

    method_ : str
        How :math:`\log Z` is computed.

    components_ : list of dict
        Of each connected component, its ``concepts``, ``constraints``, ``method``,
        ``n_worlds`` and ``n_groups``.

    Raises
    ------
    ConstraintSyntaxError
        If a text is no constraint over the concepts.

    ValueError
        If a formula names an unknown concept or value, or if the method cannot compute
        :math:`\log Z`.

    TypeError
        If constraints or domains are of another kind.

    See Also
    --------
    MLNDetector : Detector that reads concepts and penalizes broken constraints.
    parse_constraint : The language.

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
        columns = {name: j for j, name in enumerate(self.concepts)}
        self._compiled = [compile_formula(f, self.domains) for f in self.formulas]
        kept = set().union(*(comparisons(part) for part in self._compiled))
        self._n_kept = max(len(self.sizes) + len(kept), _MIN_KEPT)
        self.scopes = [
            tuple(sorted(columns[name] for name in formula.concepts()))
            for formula in self.formulas
        ]
        self.tables = [
            truth_table(compiled, scope, self.sizes)
            if len(scope) <= _MAX_AXES
            and math.prod(self.sizes[j] for j in scope) <= _MAX_TABLE
            else None
            for compiled, scope in zip(self._compiled, self.scopes, strict=True)
        ]
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
        Y : array-like of shape (n_samples, n_concepts) or data frame
            Labels, in the order of ``concepts``, or in columns with their names.

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
            Labels, objects if those of concepts are of different kinds.
        """
        return decode(Z, self.domains)

    def _codes(self, Z):
        if is_frame(Z):
            return encode(Z, self.domains)
        return check_codes(Z, self.sizes)

    def truth(self, Z):
        """Tell which constraints each row satisfies.

        Parameters
        ----------
        Z : array-like or tensor of shape (n_samples, n_concepts), dtype int
            Codes; or a data frame of labels.

        Returns
        -------
        truth : ndarray or tensor of shape (n_samples, n_constraints), dtype bool
            True where the constraint holds. A tensor, on the same device, where `Z` is
            one.
        """
        return self._truth(self._codes(Z))

    def _truth(self, Z):
        """Truth of rows of valid codes."""
        out: Any = np.empty((len(Z), len(self)), dtype=bool)
        if is_tensor(Z):
            import torch

            out = torch.empty(out.shape, dtype=torch.bool, device=Z.device)
        for rows, found in self._evaluated(Z):
            for i, truth in enumerate(found):
                out[rows, i] = truth
        return out

    def _evaluated(self, Z):
        """Yield slices of rows of valid codes, and the truth of each constraint."""
        budget = _DEVICE_BUDGET if is_tensor(Z) else _BUDGET
        for rows in row_chunks(len(Z), self._n_kept, budget=budget):
            columns = narrow_columns(Z[rows], self.sizes)
            cache: dict = {}
            yield rows, (evaluate(part, columns, cache) for part in self._compiled)

    def expected(self, P):
        r"""Probability that each row satisfies each constraint.

        .. math:: E_i(x) = \sum_z \varphi_i(z) \prod_k p_k(z_k \mid x)

        Parameters
        ----------
        P : list of array-like of shape (n_samples, n_values)
            Of each concept, the probabilities of its values, which are taken for
            independent.

        Returns
        -------
        expected : ndarray of shape (n_samples, n_constraints), dtype float64
            The probabilities.

        Raises
        ------
        ValueError
            If a shape is wrong, if rows are no probabilities, or if a constraint has
            more than 2**24 worlds.
        """
        P = check_probabilities(P, self.domains)
        too_large = [i for i, table in enumerate(self.tables) if table is None]
        if too_large:
            raise ValueError(
                f"The constraint {self.names[too_large[0]]!r} names concepts with more "
                f"than {_MAX_TABLE} combinations of values, or more than {_MAX_AXES} "
                "concepts: its expectation cannot be computed. Write it as several "
                "constraints."
            )
        return expected_tables(P, self.scopes, self.tables)

    def penalty(self, Z, weights):
        r"""Penalty of each row: :math:`D(z) = -\sum_i w_i \varphi_i(z)`.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_concepts), dtype int
            Codes; or a data frame of labels.

        weights : array-like of shape (n_constraints,)
            The weights.

        Returns
        -------
        penalty : ndarray of shape (n_samples,), dtype float64
            High for rows that break constraints of large weight.
        """
        weights, Z = constraint_weights(weights, len(self)), self._codes(Z)
        out = np.zeros(len(Z))
        for rows, found in self._evaluated(Z):
            # term by term: rows that satisfy the same constraints are equal exactly
            for weight, truth in zip(weights, found, strict=True):
                out[rows] -= weight * to_numpy(truth)
        return out

    def max_penalty(self, weights):
        """Largest penalty of any world.

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
        r"""Logarithm of the partition function: :math:`\log Z(w)`.

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
        r"""Probability of each constraint: the gradient of :math:`\log Z`.

        Parameters
        ----------
        weights : array-like of shape (n_constraints,)
            The weights.

        Returns
        -------
        expected : ndarray of shape (n_constraints,), dtype float64
            The probability that a world drawn from the network satisfies it.
        """
        return self._partition.expected_truth(weights)

    def fit_weights(self, Z, prior=1.0, *, fixed=None):
        r"""Fit the weights to rows.

        They minimize the convex :math:`\log Z(w) - w^\top m`, where

        .. math:: m = \frac{n \bar\varphi + \alpha u}{n + \alpha}

        is the mean truth of the constraints over the rows, :math:`u` that over all
        worlds, and :math:`\alpha` the prior: the weights are those of the maximum of
        the likelihood after :math:`\alpha` rows more, spread over all worlds. They are
        finite for a constraint that no row breaks, too.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_concepts), dtype int
            Codes; or a data frame of labels.

        prior : float, default=1.0
            :math:`\alpha`. With 0 the weights of constraints that all rows satisfy, or
            none, are unbounded: they are capped, and a warning says so.

        fixed : array-like of shape (n_constraints,), default=None
            Weights that are not fitted; NaN for those that are.

        Returns
        -------
        weights : ndarray of shape (n_constraints,), dtype float64
            The weights. Those of constraints that hold in all worlds, or in none, are
            0, and a warning says so.

        Raises
        ------
        ValueError
            If there are no rows.
        """
        Z = self._codes(Z)
        if len(Z) == 0:
            raise ValueError("Weights cannot be fitted to 0 rows.")
        if self.method_ != "pseudo-likelihood":
            counts = np.zeros(len(self))
            for _, found in self._evaluated(Z):
                counts += [int(truth.sum()) for truth in found]
            return self.fit_weights_to(counts / len(Z), len(Z), prior, fixed=fixed)
        largest = max(len(c["concepts"]) for c in self.components_)
        warn(
            "Weights maximize the pseudo-likelihood, which leaves out how concepts "
            f"depend on each other beyond their neighbors: constraints tie {largest} "
            "concepts together, too many for exact sums. Remove constraints that "
            "connect concepts, or merge values that are alike."
        )
        return fit_pseudo_weights(
            self._truth,
            self.sizes,
            self.scopes,
            to_numpy(Z),
            prior=prior,
            fixed=fixed,
            names=self.names,
        )

    def fit_weights_to(self, mean_truth, n_samples, prior=1.0, *, fixed=None):
        """Fit the weights to the mean truth of rows that are not at hand.

        Parameters
        ----------
        mean_truth : array-like of shape (n_constraints,)
            Share of the rows that satisfy each constraint, or the mean of the
            probabilities that they do.

        n_samples : int
            Number of rows.

        prior, fixed
            See `fit_weights`.

        Returns
        -------
        weights : ndarray of shape (n_constraints,), dtype float64
            The weights.
        """
        mean_truth = np.asarray(mean_truth, dtype=np.float64)
        if mean_truth.shape != (len(self),) or not np.all(
            (mean_truth >= 0) & (mean_truth <= 1 + 1e-12)
        ):
            raise ValueError(
                f"mean_truth must hold {len(self)} numbers in [0, 1], one for each "
                f"constraint. Got {mean_truth}."
            )
        return fit_weights(
            self._partition,
            np.minimum(mean_truth, 1.0),
            n_samples,
            prior=prior,
            fixed=fixed,
            names=self.names,
        )

    def log_probability(self, Z, weights):
        r"""Log-probability of each row: :math:`\sum_i w_i \varphi_i(z) - \log Z(w)`.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_concepts), dtype int
            Codes; or a data frame of labels.

        weights : array-like of shape (n_constraints,)
            The weights.

        Returns
        -------
        log_probability : ndarray of shape (n_samples,), dtype float64
            The log-probabilities. Where ``method_`` is "pseudo-likelihood" a
            ``ValueError`` says what is left.
        """
        return -self.penalty(Z, weights) - self.log_partition(weights)

    def pseudo_log_likelihood(self, Z, weights):
        r"""Log-probability of each value of a row given the others, summed.

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
        Z = to_numpy(self._codes(Z))
        return pseudo_log_likelihood(self._truth, self.sizes, self.scopes, Z, weights)
