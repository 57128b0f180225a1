"""ONNX graphs written as formulas of arrays, for ``_onnx_score`` of detectors."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass
from typing import ClassVar

import numpy as np


class Graph:
    """Nodes added to an ONNX graph, through a container of skl2onnx.

    ``scope`` (skl2onnx.common._topology.Scope) generates names, ``container``
    (skl2onnx.common._container.ModelComponentContainer) takes nodes and constants.
    """

    def __init__(self, scope, container):
        self.scope = scope
        self.container = container

    def value(self, name):
        """Return a variable of the graph."""
        return Value(self, name)

    def constant(self, array):
        """Return an array of float64, of int64 or of booleans as a constant."""
        from onnx.numpy_helper import from_array

        array = np.asarray(array)
        if array.dtype.kind == "f":
            array = array.astype(np.float64)
        name = self.scope.get_unique_variable_name("constant")
        self.container.add_initializer(name, None, None, from_array(array))
        return Value(self, name)

    def node(self, kind, *inputs, n_outputs=1, outputs=None, **attributes):
        """Add a node; return its last output."""
        names = [
            (value if isinstance(value, Value) else self.constant(value)).name
            for value in inputs
        ]
        if outputs is None:
            outputs = [
                self.scope.get_unique_variable_name(kind.lower())
                for _ in range(n_outputs)
            ]
        self.container.add_node(
            kind,
            names,
            outputs,
            name=self.scope.get_unique_operator_name(kind),
            op_version=self.container.target_opset,
            **attributes,
        )
        return Value(self, outputs[-1])


class Value:
    """An array of a graph: formulas add nodes. Reductions keep the axis."""

    def __init__(self, graph, name):
        self.graph = graph
        self.name = name

    def __add__(self, other):
        return self.graph.node("Add", self, other)

    def __sub__(self, other):
        return self.graph.node("Sub", self, other)

    def __mul__(self, other):
        return self.graph.node("Mul", self, other)

    def __truediv__(self, other):
        return self.graph.node("Div", self, other)

    def __matmul__(self, other):
        return self.graph.node("MatMul", self, other)

    def __neg__(self):
        return self.graph.node("Neg", self)

    def apply(self, kind):
        """Return a function of each entry, such as "Exp"."""
        return self.graph.node(kind, self)

    def sum(self):
        """Return the sum of each row."""
        return self.graph.node("ReduceSum", self, [1], keepdims=1)

    def max(self):
        """Return the largest entry of each row."""
        return self.graph.node("ReduceMax", self, [1], keepdims=1)

    def argmax(self):
        """Return the index of the first largest entry of each row."""
        return self.graph.node("ArgMax", self, axis=1, keepdims=1)

    def smallest(self, k):
        """Return the indices of the k smallest entries of each row, in their order."""
        return self.graph.node(
            "TopK", self, [k], n_outputs=2, axis=1, largest=0, sorted=1
        )

    def largest(self, k):
        """Return the k largest entries of each row, in descending order."""
        index = (-self).smallest(k)
        return self.graph.node("GatherElements", self, index, axis=1)

    def where(self, other, mask):
        """Return this array where the mask is True, and `other` elsewhere."""
        return self.graph.node("Where", mask, self, other)

    def or_one(self):
        """Return positive entries, and ones in place of zeros, for divisions."""
        positive = self.graph.node("Greater", self, 0.0)
        return self.where(1.0, positive)

    def rows_of(self, array):
        """Return rows of an array at these indices, which are (n_samples, 1)."""
        numbers = self.graph.node("Squeeze", self, [1])
        return self.graph.node("Gather", array, numbers, axis=0)

    def squared(self):
        """Return the squared length of each row."""
        return (self * self).sum()

    def unit(self):
        """Return rows of unit length; zeros stay zero."""
        rows = self / self.apply("Abs").max().or_one()
        return rows / rows.squared().apply("Sqrt").or_one()

    def logsumexp(self):
        """Return the log-sum-exp of each row."""
        top = self.max()
        return top + (self - top).apply("Exp").sum().apply("Log")

    def log1p(self):
        """Return log(1 + x) for x >= 0, also if rounding loses most or all of x."""
        whole = self + 1.0
        added = whole - 1.0  # x after rounding
        logs = whole.apply("Log") * (self / added.or_one())
        return logs.where(self, self.graph.node("Greater", added, 0.0))

    def nearest(self, points, k=1):
        """Return squared distances to the k-th nearest point, from the differences."""
        gaps = self @ (-2.0 * points.T) + (points**2).sum(axis=1)
        kth = self.graph.node("Slice", gaps.smallest(k), [k - 1], [k], [1])
        return (self - kth.rows_of(points)).squared()


@dataclass
class GraphOutputs:
    """Features and logits of samples in a graph, as `Value`, and number of logits."""

    features: Value
    logits: Value
    n_classes: int

    # Replaces -inf for terms excluded from a log-sum-exp.
    far_below: ClassVar[float] = float(np.finfo(np.float64).min) / 4

    def constant(self, array):
        """Return a constant of the graph."""
        return self.logits.graph.constant(array)

    def stack(self, columns):
        """Return columns (n_samples, 1) side by side."""
        return self.logits.graph.node("Concat", *columns, axis=1)

    def shifted_exponentials(self, temperature=1.0):
        """Return exponentials without the largest, their sum, shifted logits and mask.

        The mask is True at the largest logit.
        """
        top = self.logits.argmax()
        mask = self.logits.graph.node("Equal", top, np.arange(self.n_classes)[None])
        shifted = (self.logits - self.logits.max()) / temperature
        exponentials = self.constant(0.0).where(shifted.apply("Exp"), mask)
        return exponentials, exponentials.sum(), shifted, mask
