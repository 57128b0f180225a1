"""Detectors that tell which process fitted them. Workers import this module."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import os
import time
from pathlib import Path

from tests.combine._members import Column

_PATIENCE = 30.0  # seconds


class Meeting(Column):
    """Its fit ends when as many processes as requested are, or were, in a fit.

    Processes leave files in a folder: ``fit-PID`` and ``score-PID``.
    """

    def __init__(self, column=0, ood_label=-1, folder=".", n_processes=2):
        super().__init__(column, ood_label)
        self.folder = folder
        self.n_processes = n_processes

    def fit(self, X, y=None):
        """Wait for the others."""
        self._sign("fit")
        end = time.monotonic() + _PATIENCE
        while len(list(Path(self.folder).glob("fit-*"))) < self.n_processes:
            if time.monotonic() > end:
                raise TimeoutError(f"Alone in {self.folder} for {_PATIENCE} s.")
            time.sleep(0.01)
        return super().fit(X, y)

    def score_samples(self, X):
        """Return the column."""
        self._sign("score")
        return super().score_samples(X)

    def _sign(self, what):
        Path(self.folder, f"{what}-{os.getpid()}").touch()


class Broken(Column):
    """Raises in fit, or where a score is large."""

    def __init__(self, column=0, ood_label=-1, largest=None):
        super().__init__(column, ood_label)
        self.largest = largest

    def fit(self, X, y=None):
        """Raise if no score is allowed."""
        if self.largest is None:
            raise RuntimeError(f"sensor {self.column} is off")
        return super().fit(X, y)

    def score_samples(self, X):
        """Return the column, if it is small."""
        scores = super().score_samples(X)
        if scores.max() > self.largest:
            raise RuntimeError(f"sensor {self.column} gave {scores.max():.0f}")
        return scores
