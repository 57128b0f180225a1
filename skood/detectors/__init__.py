"""Detectors of out-of-distribution samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.detectors._cadref import CADRef
from skood.detectors._caref import CARef
from skood.detectors._energy import Energy
from skood.detectors._entropy import Entropy
from skood.detectors._fdbd import FDBD
from skood.detectors._gen import GEN
from skood.detectors._gmm import GMM
from skood.detectors._grad_norm import GradNorm
from skood.detectors._gram import Gram
from skood.detectors._kl_matching import KLMatching
from skood.detectors._knn import KNN
from skood.detectors._mahalanobis import Mahalanobis
from skood.detectors._max_logit import MaxLogit
from skood.detectors._msp import MSP
from skood.detectors._multi_layer_mahalanobis import MultiLayerMahalanobis
from skood.detectors._nci import NCI
from skood.detectors._neco import NECO
from skood.detectors._nn_guide import NNGuide
from skood.detectors._odin import ODIN
from skood.detectors._openmax import OpenMax
from skood.detectors._pnml import PNML
from skood.detectors._rank_feat import RankFeat
from skood.detectors._relation import Relation
from skood.detectors._relative_mahalanobis import RelativeMahalanobis
from skood.detectors._residual import Residual
from skood.detectors._she import SHE
from skood.detectors._sklearn import SklearnDetector
from skood.detectors._ssd import SSD
from skood.detectors._vim import ViM

__all__ = [
    "FDBD",
    "GEN",
    "GMM",
    "KNN",
    "MSP",
    "NCI",
    "NECO",
    "ODIN",
    "PNML",
    "SHE",
    "SSD",
    "CADRef",
    "CARef",
    "Energy",
    "Entropy",
    "GradNorm",
    "Gram",
    "KLMatching",
    "Mahalanobis",
    "MaxLogit",
    "MultiLayerMahalanobis",
    "NNGuide",
    "OpenMax",
    "RankFeat",
    "Relation",
    "RelativeMahalanobis",
    "Residual",
    "SklearnDetector",
    "ViM",
]
