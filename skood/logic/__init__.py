"""OOD detection with logical constraints over concepts (Markov logic networks)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.logic._display import ConstraintContributionDisplay
from skood.logic._knowledge_base import KnowledgeBase
from skood.logic._mln_detector import ConceptFusion, MLNDetector
from skood.logic._strict_detector import LogicDetector
from skood.logic._weighted_constraints import WeightedConstraints
from skood.logic.language._formulas import C
from skood.logic.language._parser import parse_constraint
from skood.logic.search._candidates import constraint_candidates
from skood.logic.search._constraint_search import ConstraintSearch
from skood.logic.search._greedy import GreedySearch

__all__ = [
    "C",
    "ConceptFusion",
    "ConstraintContributionDisplay",
    "ConstraintSearch",
    "GreedySearch",
    "KnowledgeBase",
    "LogicDetector",
    "MLNDetector",
    "WeightedConstraints",
    "constraint_candidates",
    "parse_constraint",
]
