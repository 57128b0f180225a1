"""Truth of compiled constraints for many samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from typing import Any

import numpy as np

from skood.logic.language._compiler import (
    comparisons,
    compile_formula,
    evaluate,
    truth_table,
)
from skood.logic.language._encoding import narrow_columns
from skood.utils._stored import stored
from skood.utils._torch import is_tensor, row_chunks

# A truth table has at most this many entries, and axes.
MAX_TABLE, MAX_AXES = 2**24, 32

# Bytes of the columns and comparisons in memory at a time: on the CPU so that they
# stay in its cache, with at most 2**15 samples; more on a device.
_BUDGET, _DEVICE_BUDGET = 2**23, 2**28
_MIN_KEPT = 2**8


@stored
class CompiledConstraints:
    """Bound formulas, compiled: their concepts, tables (None: too large), and truth."""

    def __init__(self, formulas, domains):
        columns = {name: j for j, name in enumerate(domains)}
        self.sizes = tuple(len(values) for values in domains.values())
        self._compiled = [compile_formula(formula, domains) for formula in formulas]
        kept = set().union(*(comparisons(part) for part in self._compiled))
        self._n_kept = max(len(self.sizes) + len(kept), _MIN_KEPT)
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
        for rows, found in self.chunks(Z):
            for i, truth in enumerate(found):
                out[rows, i] = truth
        return out

    def chunks(self, Z):
        """Yield slices of samples, and the truth of each constraint for valid codes."""
        budget = _DEVICE_BUDGET if is_tensor(Z) else _BUDGET
        for rows in row_chunks(len(Z), self._n_kept, budget=budget):
            columns = narrow_columns(Z[rows], self.sizes)
            cache: dict = {}
            yield rows, (evaluate(part, columns, cache) for part in self._compiled)
