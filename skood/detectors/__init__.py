"""Detectors of out-of-distribution samples.

Each is imported on first use, with the parts of scikit-learn that it needs.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import TYPE_CHECKING

from skood.utils._optional import lazy_names

if TYPE_CHECKING:
    from skood.detectors._cadref import CADRef as CADRef
    from skood.detectors._caref import CARef as CARef
    from skood.detectors._column_contributions import (
        column_contributions as column_contributions,
    )
    from skood.detectors._column_contributions import (
        has_contributions as has_contributions,
    )
    from skood.detectors._energy import Energy as Energy
    from skood.detectors._entropy import Entropy as Entropy
    from skood.detectors._fdbd import FDBD as FDBD
    from skood.detectors._gen import GEN as GEN
    from skood.detectors._gmm import GMM as GMM
    from skood.detectors._grad_norm import GradNorm as GradNorm
    from skood.detectors._gram import Gram as Gram
    from skood.detectors._kl_matching import KLMatching as KLMatching
    from skood.detectors._knn import KNN as KNN
    from skood.detectors._known_words import KnownWords as KnownWords
    from skood.detectors._mahalanobis import Mahalanobis as Mahalanobis
    from skood.detectors._max_logit import MaxLogit as MaxLogit
    from skood.detectors._msp import MSP as MSP
    from skood.detectors._multi_layer_mahalanobis import (
        MultiLayerMahalanobis as MultiLayerMahalanobis,
    )
    from skood.detectors._nci import NCI as NCI
    from skood.detectors._neco import NECO as NECO
    from skood.detectors._nn_guide import NNGuide as NNGuide
    from skood.detectors._odin import ODIN as ODIN
    from skood.detectors._openmax import OpenMax as OpenMax
    from skood.detectors._pnml import PNML as PNML
    from skood.detectors._rank_feat import RankFeat as RankFeat
    from skood.detectors._relation import Relation as Relation
    from skood.detectors._relative_mahalanobis import (
        RelativeMahalanobis as RelativeMahalanobis,
    )
    from skood.detectors._residual import Residual as Residual
    from skood.detectors._she import SHE as SHE
    from skood.detectors._sklearn import SklearnDetector as SklearnDetector
    from skood.detectors._ssd import SSD as SSD
    from skood.detectors._vim import ViM as ViM

# Names that are imported on first use, and the file that defines them.
_LAZY = {
    "CADRef": "._cadref",
    "CARef": "._caref",
    "Energy": "._energy",
    "Entropy": "._entropy",
    "FDBD": "._fdbd",
    "GEN": "._gen",
    "GMM": "._gmm",
    "GradNorm": "._grad_norm",
    "Gram": "._gram",
    "KLMatching": "._kl_matching",
    "KNN": "._knn",
    "KnownWords": "._known_words",
    "Mahalanobis": "._mahalanobis",
    "MaxLogit": "._max_logit",
    "MSP": "._msp",
    "MultiLayerMahalanobis": "._multi_layer_mahalanobis",
    "NCI": "._nci",
    "NECO": "._neco",
    "NNGuide": "._nn_guide",
    "ODIN": "._odin",
    "OpenMax": "._openmax",
    "PNML": "._pnml",
    "RankFeat": "._rank_feat",
    "Relation": "._relation",
    "RelativeMahalanobis": "._relative_mahalanobis",
    "Residual": "._residual",
    "SHE": "._she",
    "SklearnDetector": "._sklearn",
    "SSD": "._ssd",
    "ViM": "._vim",
    "column_contributions": "._column_contributions",
    "has_contributions": "._column_contributions",
}

__all__ = [*_LAZY]

__getattr__, __dir__ = lazy_names(__name__, __all__, _LAZY)
