"""Inputs for ``fuzz.py``: contents of `X`, containers that hold it, kinds of `y`."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import os
import tempfile

import numpy as np
import scipy.sparse as sp

try:
    import pandas as pd
except ImportError:
    pd = None
try:
    import polars as pl
except ImportError:
    pl = None

N_CLASSES = 3


def clean_data(n_samples=36, n_ood=4):
    """Three separated classes in three columns, and samples far from them."""
    rng = np.random.default_rng(0)
    y = np.arange(n_samples) % N_CLASSES
    X = rng.normal(size=(n_samples, N_CLASSES)) + 5 * np.eye(N_CLASSES)[y]
    X = np.concatenate([X, rng.normal(size=(n_ood, N_CLASSES)) - 8])
    return X, np.append(y, np.full(n_ood, -1))


# --- contents: functions of (rng, X) that return an array of numbers ------------------


def _put(X, rng, value):
    X = X.copy()
    X[rng.integers(len(X)), rng.integers(X.shape[1])] = value
    return X


def _scaled(exponent):
    return lambda rng, X: X * 10.0**exponent


def _mixed_scales(rng, X):
    return X * 10.0 ** rng.uniform(-300, 300, size=X.shape[1])


def _sample_scales(rng, X):
    return X * 10.0 ** rng.uniform(-300, 300, size=(len(X), 1))


def _constant_column(rng, X):
    X = X.copy()
    X[:, rng.integers(X.shape[1])] = rng.choice([0.0, 7.0, 1e150])
    return X


CONTENTS = {
    "plain": lambda rng, X: X,
    "few": lambda rng, X: X[: rng.integers(2, 9)],
    "one sample": lambda rng, X: X[:1],
    "no sample": lambda rng, X: X[:0],
    "one feature": lambda rng, X: X[:, :1],
    "no feature": lambda rng, X: X[:, :0],
    "wide": lambda rng, X: np.hstack([X] * 15),
    "1-D": lambda rng, X: X[:, 0],
    "3-D": lambda rng, X: X[:, :, None],
    "0-D": lambda rng, X: X[0, 0],
    "constant": lambda rng, X: np.full_like(X, rng.choice([0.0, 1.0, -3.5])),
    "constant column": _constant_column,
    "duplicates": lambda rng, X: X[np.arange(len(X)) // 8],
    "integers": lambda rng, X: np.round(X),
    "zeros and ones": lambda rng, X: (X > 1).astype(float),
    "NaN": lambda rng, X: _put(X, rng, np.nan),
    "all NaN": lambda rng, X: np.full_like(X, np.nan),
    "infinity": lambda rng, X: _put(X, rng, rng.choice([np.inf, -np.inf])),
    "one of 1e300": lambda rng, X: _put(X, rng, rng.choice([1e300, -1e300])),
    "one of 1e30": lambda rng, X: _put(X, rng, 1e30),
    "float32 overflow": _scaled(39),
    "1e-300": _scaled(-300),
    "denormal": _scaled(-310),
    "1e-160": _scaled(-160),
    "1e-40": _scaled(-40),
    "1e10": _scaled(10),
    "1e20": _scaled(20),
    "1e100": _scaled(100),
    "1e154": _scaled(154),
    "1e160": _scaled(160),
    "1e300": _scaled(300),
    "largest": lambda rng, X: np.sign(X) * 1.7e308,
    "mixed scales": _mixed_scales,
    "scales of samples": _sample_scales,
    "heavy tails": lambda rng, X: np.sinh(X * rng.uniform(1, 60)),
    "collinear": lambda rng, X: np.repeat(X[:, :1], X.shape[1], axis=1),
    "shifted by 1e12": lambda rng, X: X + 1e12,
}

# --- containers: functions of (rng, X) that return what is passed ---------------------


def _as(dtype):
    def cast(rng, X):
        with np.errstate(all="ignore"):
            if np.dtype(dtype).kind in "iu":
                X = np.nan_to_num(X, posinf=100, neginf=-100).clip(-100, 100)
                X = np.abs(X) if np.dtype(dtype).kind == "u" else X
            return np.asarray(X).astype(dtype)

    return cast


def _objects(rng, X):
    X = np.asarray(X).astype(object)
    if X.size and rng.random() < 0.5:
        X = X.copy()
        strange = [None, "a", "1.5", b"x", {}, object(), [1, 2], 10**400, 1j]
        X.flat[rng.integers(X.size)] = strange[rng.integers(len(strange))]
    return X


def _dates(rng, X):
    return np.zeros(np.shape(X), dtype="datetime64[s]")


def _records(rng, X):
    return np.zeros(len(np.atleast_1d(X)), dtype=[("a", float), ("b", int)])


def _masked(rng, X):
    return np.ma.masked_array(X, mask=np.asarray(X) > 2)


def _non_contiguous(rng, X):
    if np.ndim(X) < 2:
        return np.repeat(np.atleast_1d(X), 2)[::2]
    return [np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2], X[::-1]][
        rng.integers(3)
    ]


def _read_only(rng, X):
    X = np.array(X)
    X.flags.writeable = False
    return X


def _memory_map(rng, X):
    X = np.ascontiguousarray(X)
    handle, path = tempfile.mkstemp(suffix=".npy")
    os.close(handle)
    try:
        if rng.random() < 0.5 and X.ndim:
            X = X.astype(np.float32 if rng.random() < 0.5 else np.float16)
        np.save(path, X)
        # the mapping outlives the name of the file
        return np.load(path, mmap_mode="r")
    finally:
        try:
            os.unlink(path)
        except OSError:
            pass


def _sparse(kind):
    def convert(rng, X):
        X = np.atleast_2d(X)
        X = X.reshape(len(X), -1)
        array = rng.random() < 0.5
        return getattr(sp, f"{kind}_{'array' if array else 'matrix'}")(X)

    return convert


def _table(X):
    X = np.atleast_1d(X)
    return X.reshape(len(X), -1) if X.size else np.zeros((len(X), X.shape[-1]))


def _frame(rng, X):
    X = _table(X)
    return pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])


def _mixed_frame(rng, X):
    frame = _frame(rng, X)
    n, name = len(frame), f"x{rng.integers(max(frame.shape[1], 1))}"
    extra = [
        pd.Categorical(np.resize(["a", "b"], n)),
        np.resize(np.array(["u", "v"], dtype=object), n),
        pd.date_range("2020-01-01", periods=n),
        pd.array(np.resize([True, False], n), dtype="boolean"),
        pd.array(np.resize([1, 2, None], n), dtype="Int64"),
        pd.array(np.resize([1.5, None], n), dtype="Float64"),
        pd.arrays.SparseArray(np.zeros(n)),
        pd.array(np.resize(["a", None], n), dtype="string"),
    ][rng.integers(8)]
    frame[name] = extra
    return frame


def _nullable_frame(rng, X):
    return _frame(rng, X).convert_dtypes()


def _renamed_frame(rng, X):
    frame = _frame(rng, X)
    names = [list(range(frame.shape[1])), [f"z{i}" for i in range(frame.shape[1])]]
    names.append(["x0"] * frame.shape[1])  # not unique
    names.append(["x0", *range(1, frame.shape[1])][: frame.shape[1]])
    frame.columns = names[rng.integers(4)]
    return frame


def _polars(rng, X):
    X = _table(X)
    frame = pl.DataFrame({f"x{i}": X[:, i] for i in range(X.shape[1])})
    if rng.random() < 0.3 and frame.width:
        frame = frame.with_columns(pl.lit("a").alias("x0"))
    elif rng.random() < 0.2 and frame.width:
        frame = frame.with_columns(pl.lit(None).alias("x0"))
    return frame


def _series(rng, X):
    return pd.Series(np.ravel(X))


def _tensor(rng, X):
    import torch

    kinds = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
    kinds += [torch.int32, torch.int64, torch.bool, torch.uint8, torch.complex64]
    with np.errstate(all="ignore"):
        X = torch.from_numpy(np.array(X, order="C"))
    return X.to(kinds[rng.integers(len(kinds))])


def _grad_tensor(rng, X):
    import torch

    kind = [torch.float32, torch.float64, torch.bfloat16][rng.integers(3)]
    tensor = torch.from_numpy(np.array(X, order="C")).to(kind).requires_grad_()
    return tensor if rng.random() < 0.5 else tensor * 2


def _meta_tensor(rng, X):
    import torch

    return torch.from_numpy(np.array(X, order="C")).to("meta")


def _sparse_tensor(rng, X):
    import torch

    tensor = torch.from_numpy(np.atleast_2d(X).copy()).float()
    if rng.random() < 0.5 or tensor.ndim != 2:
        return tensor.to_sparse()
    return tensor.to_sparse_csr()


def _ragged(rng, X):
    rows = _table(X).tolist()
    return [row[: 1 + i % 2] for i, row in enumerate(rows)]


def _strange(rng, X):
    things = [None, "text", 3, 2.5, {}, {"a": [1.0]}, [], [[]], object(), b"bytes"]
    things += [range(40), {1, 2}, True, len, iter([[1.0, 2.0, 3.0]]), [None] * 40]
    return things[rng.integers(len(things))]


CONTAINERS = {
    "float64": lambda rng, X: X,
    "float16": _as(np.float16),
    "float32": _as(np.float32),
    "longdouble": _as(np.longdouble),
    "big-endian": _as(">f8"),
    "bool": _as(bool),
    "int8": _as(np.int8),
    "int16": _as(np.int16),
    "int32": _as(np.int32),
    "int64": _as(np.int64),
    "uint8": _as(np.uint8),
    "uint64": _as(np.uint64),
    "complex": _as(complex),
    "str": _as(str),
    "bytes": _as("S8"),
    "object": _objects,
    "dates": _dates,
    "records": _records,
    "masked": _masked,
    "non-contiguous": _non_contiguous,
    "read-only": _read_only,
    "memory map": _memory_map,
    "CSR": _sparse("csr"),
    "CSC": _sparse("csc"),
    "COO": _sparse("coo"),
    "list": lambda rng, X: np.asarray(X).tolist(),
    "list of arrays": lambda rng, X: list(np.atleast_1d(X)),
    "tuple": lambda rng, X: tuple(map(tuple, _table(X).tolist())),
    "ragged list": _ragged,
    "tensor": _tensor,
    "tensor with grad": _grad_tensor,
    "meta tensor": _meta_tensor,
    "sparse tensor": _sparse_tensor,
    "list of tensors": lambda rng, X: list(_tensor(rng, np.atleast_1d(X))),
    "strange": _strange,
}
if pd is not None:
    CONTAINERS |= {
        "pandas": _frame,
        "pandas, mixed": _mixed_frame,
        "pandas, nullable": _nullable_frame,
        "pandas, other names": _renamed_frame,
        "pandas series": _series,
    }
if pl is not None:
    CONTAINERS["polars"] = _polars

# --- labels: functions of (rng, y) that return what is passed -------------------------

_NAMES = np.array(["ant", "bee", "cat", "ood"])


def _objects_of(values):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _with(value):
    def put(rng, y):
        labels = _objects_of(y.tolist())
        labels[rng.integers(len(labels))] = value
        return labels

    return put


def _names_and_minus_one(rng, y):
    return _objects_of([-1 if v == -1 else str(_NAMES[v]) for v in y.tolist()])


def _text_and_numbers(rng, y):
    return _objects_of([str(v) if i % 2 else v for i, v in enumerate(y.tolist())])


def _label_tensor(rng, y):
    import torch

    tensor = torch.from_numpy(y.copy())
    kinds = [tensor, tensor.to("meta"), tensor.double().requires_grad_()]
    kinds += [tensor.to_sparse(), tensor.bfloat16(), tensor[:, None]]
    return kinds[rng.integers(len(kinds))]


LABELS = {
    "int": lambda rng, y: y,
    "no OOD": lambda rng, y: np.abs(y),
    "none": lambda rng, y: None,
    "int8": lambda rng, y: y.astype(np.int8),
    "uint8": lambda rng, y: y.astype(np.uint8),
    "far apart": lambda rng, y: np.array([7, 100, -50, -1])[y],
    "large": lambda rng, y: np.array([2**62, -(2**62), 0, -1])[y],
    "bool": lambda rng, y: y > 0,
    "minus one and one": lambda rng, y: np.where(y > 0, 1, -1),
    "str": lambda rng, y: _NAMES[y],
    "bytes": lambda rng, y: _NAMES[y].astype("S"),
    "str objects": lambda rng, y: _NAMES[y].astype(object),
    "str and -1": _names_and_minus_one,
    "list of str and -1": lambda rng, y: _names_and_minus_one(rng, y).tolist(),
    "str and int": _text_and_numbers,
    "objects": lambda rng, y: _objects_of([("a", v) for v in y.tolist()]),
    "int objects": lambda rng, y: y.astype(object),
    "float": lambda rng, y: y.astype(float),
    "fractions": lambda rng, y: y + 0.5,
    "real": lambda rng, y: rng.normal(size=len(y)),
    "NaN": lambda rng, y: np.where(rng.random(len(y)) < 0.2, np.nan, y),
    "one None": _with(None),
    "one NaN": _with(float("nan")),
    "infinity": lambda rng, y: np.where(y == 1, np.inf, y),
    "complex": lambda rng, y: y.astype(complex),
    "single class": lambda rng, y: np.zeros(len(y), dtype=int),
    "all OOD": lambda rng, y: np.full(len(y), -1),
    "one sample a class": lambda rng, y: np.arange(len(y)),
    "one lonely class": lambda rng, y: np.where(np.arange(len(y)) == 0, 9, y),
    "one-hot": lambda rng, y: np.eye(4, dtype=int)[y],
    "two columns": lambda rng, y: np.column_stack([y, y > 0]),
    "one column": lambda rng, y: y[:, None],
    "too short": lambda rng, y: y[:-1],
    "too long": lambda rng, y: np.append(y, 0),
    "empty": lambda rng, y: y[:0],
    "scalar": lambda rng, y: 1,
    "text": lambda rng, y: "labels",
    "list": lambda rng, y: y.tolist(),
    "ragged": lambda rng, y: [[v] * (1 + i % 2) for i, v in enumerate(y.tolist())],
    "dates": lambda rng, y: y.astype("datetime64[D]"),
    "tensor": _label_tensor,
    "read-only": lambda rng, y: _read_only(rng, y),
}
if pd is not None:
    LABELS |= {
        "categorical": lambda rng, y: pd.Categorical(_NAMES[y]),
        "series": lambda rng, y: pd.Series(y, index=np.arange(len(y))[::-1]),
        "categorical series": lambda rng, y: pd.Series(pd.Categorical(_NAMES[y])),
        "nullable series": lambda rng, y: pd.Series(y).astype("Int64"),
        "nullable with NA": lambda rng, y: pd.Series(y).astype("Int64").where(y != 1),
        "string series": lambda rng, y: pd.Series(_NAMES[y], dtype="string"),
        "label frame": lambda rng, y: pd.DataFrame({"y": y}),
    }
if pl is not None:
    LABELS["polars series"] = lambda rng, y: pl.Series(y)
