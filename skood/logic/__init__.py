"""Logical constraints over concepts: Markov logic networks that know what is odd."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.logic._candidates import constraint_candidates
from skood.logic._detector import MLNDetector
from skood.logic._display import ConstraintContributionDisplay
from skood.logic._knowledge import KnowledgeBase
from skood.logic._language import C
from skood.logic._logic_detector import LogicDetector
from skood.logic._parser import parse_constraint
from skood.logic._search import ConstraintSearch

__all__ = [
    "C",
    "ConstraintContributionDisplay",
    "ConstraintSearch",
    "KnowledgeBase",
    "LogicDetector",
    "MLNDetector",
    "constraint_candidates",
    "parse_constraint",
]
