"""Detectors of out-of-distribution samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.detectors._energy import Energy
from skood.detectors._entropy import Entropy
from skood.detectors._knn import KNN
from skood.detectors._mahalanobis import Mahalanobis
from skood.detectors._max_logit import MaxLogit
from skood.detectors._msp import MSP
from skood.detectors._sklearn import SklearnDetector
from skood.detectors._vim import ViM

__all__ = [
    "KNN",
    "MSP",
    "Energy",
    "Entropy",
    "Mahalanobis",
    "MaxLogit",
    "SklearnDetector",
    "ViM",
]
