"""Rectifiers: transformers of features, and a sparse head, for use with detectors."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.rectifiers._ash import ASH
from skood.rectifiers._dice import DICE
from skood.rectifiers._lts import LTS
from skood.rectifiers._react import ReAct
from skood.rectifiers._scale import SCALE
from skood.rectifiers._vra import VRA

__all__ = ["ASH", "DICE", "LTS", "SCALE", "VRA", "ReAct"]
