"""Detectors in ONNX: scores without Python, for onnxruntime and what else reads it."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.onnx._export import register_converters, to_onnx

__all__ = ["register_converters", "to_onnx"]
