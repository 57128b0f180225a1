"""Conversion of detectors to ONNX models with converters of skl2onnx."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from skood.nn._make_network import make_network
from skood.nn._sklearn_network import LayeredNetwork
from skood.utils._metaestimators import unwrapped
from skood.utils._optional import import_optional
from skood.utils.discovery import all_estimators

# Since this version the axes of all reductions are inputs.
_LEAST_OPSET = 18

# Activations of scikit-learn's networks.
_NODES = {"identity": "Identity", "relu": "Relu", "tanh": "Tanh", "logistic": "Sigmoid"}


def _import_skl2onnx():
    return import_optional("skl2onnx", "skood.onnx", "onnx")


def to_onnx(estimator, *, target_opset=None, dtype=np.float64):
    """Convert a fitted detector, or a pipeline that ends in one, to an ONNX model.

    The model has one input, "X", of shape (n_samples, n_features) and type `dtype`,
    and two outputs: "label", the result of ``predict``, and "scores", the result of
    ``score_samples`` (float64), each of shape (n_samples,).

    Read more in the :ref:`User Guide <onnx>`.

    Parameters
    ----------
    estimator : object
        A fitted detector with a formula in ONNX: the
        :ref:`User Guide <onnx>` lists them. It takes arrays
        (``estimator=None``), or the outputs of a linear classifier or an
        `MLPClassifier`. Or a :class:`~sklearn.pipeline.Pipeline` of such a detector and
        transformers supported by skl2onnx.

    target_opset : int, default=None
        Version of ONNX's operators, 18 or more. None: the newest one of skl2onnx.

    dtype : {np.float64, np.float32}, default=np.float64
        Type of the input "X"; runtimes reject all others. The features of torch
        networks are float32. The detector computes in float64 from either; the
        transformers of a pipeline compute in `dtype`.

    Returns
    -------
    model : onnx.ModelProto
        The model; ``model.SerializeToString()`` is the content of its file.

    Raises
    ------
    ImportError
        If skl2onnx is not installed.
    TypeError
        If there is no converter for this kind of detector, or for its classifier.
    ValueError
        If `dtype` is neither float64 nor float32, `target_opset` is too old, the
        metric of `KNN` is not Euclidean, or skl2onnx has no version of a transformer
        in `dtype`.

    See Also
    --------
    register_converters : For use with skl2onnx itself.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.detectors import KNN
    >>> from skood.onnx import to_onnx
    >>> X = np.random.default_rng(0).normal(size=(50, 4))
    >>> detector = KNN(n_neighbors=3).fit(X)
    >>> model = to_onnx(detector)
    >>> import onnxruntime
    >>> session = onnxruntime.InferenceSession(model.SerializeToString())
    >>> label, scores = session.run(None, {"X": X})
    >>> np.c_[scores[:3], detector.score_samples(X[:3])].round(2)
    array([[-0.88, -0.88],
           [-1.12, -1.12],
           [-1.06, -1.06]])
    """
    skl2onnx = _import_skl2onnx()
    dtype = _checked_dtype(dtype)
    last = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    if not _has_formula(type(last)):
        known = ", ".join(sorted(kind.__name__ for kind in _exportable()))
        raise TypeError(
            f"There is no formula in ONNX for {type(last).__name__}. There is one for "
            f"{known}."
        )
    check_is_fitted(estimator)
    _register(type(last))
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType

    kind = DoubleTensorType if dtype == np.float64 else FloatTensorType
    if isinstance(estimator, Pipeline):
        steps = [
            step for step in estimator.steps if step[1] not in ("passthrough", None)
        ]
        estimator = Pipeline(steps)  # skl2onnx has no converter for identity steps
    model = skl2onnx.to_onnx(
        estimator,
        initial_types=[("X", kind([None, estimator.n_features_in_]))],
        target_opset=target_opset,
    )
    if estimator is not last:
        _check_steps(model, estimator, dtype)
    return model


def _has_formula(kind):
    """Return whether a class itself, not only its parent, has an ONNX formula."""
    return "_onnx_score" in vars(kind)


def _exportable():
    """Return all public detectors that have an ONNX formula."""
    return [kind for _, kind in all_estimators() if _has_formula(kind)]


def _checked_dtype(dtype):
    """Return one of the two valid types of the input of a model."""
    try:
        checked = np.dtype(dtype)
    except TypeError:
        checked = None
    if dtype is None or checked not in (np.float64, np.float32):
        raise ValueError(f"dtype must be np.float64 or np.float32, got {dtype!r}.")
    return checked


def _check_steps(model, pipeline, dtype):
    """Raise an error if other converters wrote a model that no runtime can load."""
    from onnx import checker, shape_inference

    try:
        checker.check_model(model, full_check=True)
    except (checker.ValidationError, shape_inference.InferenceError) as error:
        steps = ", ".join(type(step).__name__ for _, step in pipeline.steps[:-1])
        raise ValueError(
            f"skl2onnx writes no valid model of {dtype} for {steps} ({error}). Take "
            "other transformers, or write the detector alone and transform the samples "
            "before."
        ) from error


def register_converters():
    """Register the converters of detectors in skl2onnx.

    Afterwards ``skl2onnx.to_onnx`` converts models with detectors as the last step,
    also in float32: scores are computed in float64.

    Raises
    ------
    ImportError
        If skl2onnx is not installed.

    See Also
    --------
    to_onnx : Convert a detector to a model.

    Examples
    --------
    >>> from skood.onnx import register_converters
    >>> register_converters()
    """
    _import_skl2onnx()
    for kind in _exportable():
        _register(kind)


def _register(kind):
    """Register the converter of a class of detectors."""
    from skl2onnx import update_registered_converter

    update_registered_converter(
        kind,
        f"Skood{kind.__name__}",
        _outputs_of,
        _convert,
        parser=_parse,
        overwrite=True,
    )


def _parse(scope, model, inputs, custom_parsers=None):
    """Declare the outputs of a detector."""
    from skl2onnx.common.data_types import DoubleTensorType, Int64TensorType

    operator = scope.declare_local_operator(f"Skood{type(model).__name__}", model)
    operator.inputs = inputs
    for name, kind in (("label", Int64TensorType), ("scores", DoubleTensorType)):
        operator.outputs.append(scope.declare_local_variable(name, kind()))
    return operator.outputs


def _outputs_of(operator):
    """Set the shapes of the outputs: one number for each sample."""
    for variable in operator.outputs:
        variable.type.shape = [None]


def _convert(scope, operator, container):
    """Add the nodes of a detector."""
    if container.target_opset < _LEAST_OPSET:
        raise ValueError(
            f"target_opset={container.target_opset} is too old: detectors are written "
            f"with operators of version {_LEAST_OPSET} or newer."
        )
    detector = operator.raw_operator
    graph = OnnxGraph(scope, container)
    label, scores = (variable.full_name for variable in operator.outputs)
    X = graph.node("Cast", graph.value(operator.inputs[0].full_name), to=11)  # float64
    column = detector._onnx_score(_read(detector, X))
    score = graph.node("Squeeze", column, [1], outputs=[scores])
    known = graph.node("GreaterOrEqual", score - detector.offset_, 0.0)
    graph.node("Where", known, np.int64(1), np.int64(-1), outputs=[label])


def _read(detector, X):
    """Return the features and logits of the samples."""
    if not hasattr(detector, "estimator_"):
        return GraphOutputs(X, X, detector.n_features_in_)
    network = make_network(detector.estimator_)
    if not isinstance(network, LayeredNetwork):
        name, kind = type(detector).__name__, type(unwrapped(detector.estimator_))
        advice = (
            f"Put its other steps before the detector: make_pipeline(..., {name}(...))."
            if issubclass(kind, Pipeline)
            else "Write the body of a network by its own exporter, such as "
            "torch.onnx.export, and a detector that uses features with "
            "estimator=None or a LinearHead."
        )
        raise TypeError(
            f"{name} uses the outputs of a {kind.__name__}, which has no formula in "
            f"ONNX: linear classifiers and MLPClassifier have. {advice}"
        )
    hidden, activation = network.hidden()
    for weight, bias in hidden:
        X = (X @ weight + bias).apply(_NODES[activation])
    head, _ = network.find_head()
    return GraphOutputs(X, X @ head.coef.T + head.intercept, len(head.coef))


class OnnxGraph:
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
        scaled = self / self.apply("Abs").max().or_one()
        return scaled / scaled.squared().apply("Sqrt").or_one()

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
