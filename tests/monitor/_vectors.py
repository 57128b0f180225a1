"""Checked numbers of the monitors."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import json
from pathlib import Path

import numpy as np
from scipy.stats import norm

VECTORS = json.loads((Path(__file__).parent / "vectors_monitor.json").read_text())


def long_stream():
    """Calibration scores, and a stream that moves after sample 100 ("M-long")."""
    t = np.arange(1, 201)
    calibration = norm.ppf((np.arange(50) + 0.5) / 50)
    return calibration, norm.ppf((0.6180339887498949 * t) % 1) - 0.8 * (t > 100)
