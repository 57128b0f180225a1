"""Export of detectors to ONNX, to compute scores without Python."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.onnx._export import register_converters, to_onnx

__all__ = ["register_converters", "to_onnx"]
