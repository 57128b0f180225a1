"""Tests of what all rectifiers share."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from skood.rectifiers import ASH, LTS, SCALE, VRA, ReAct
from skood.rectifiers import _base_rectifier as _base

ALL = [
    ReAct(),
    VRA(),
    VRA(below="clip", per_feature=False),
    ASH(),
    ASH(variant="b"),
    ASH(variant="p"),
    SCALE(),
    LTS(),
]
LEARNING = [ReAct(), VRA(), VRA(per_feature=False)]

each = pytest.mark.parametrize("rectifier", ALL, ids=repr)


def _features(n_samples=60, n_features=12, dtype=np.float64):
    rng = np.random.default_rng(0)
    Z = np.maximum(rng.normal(size=(n_samples, n_features)) + 0.5, 0)
    return Z.astype(dtype)


@each
def test_precision_is_unchanged(rectifier):
    Z = _features()
    double = rectifier.fit_transform(Z)
    assert double.dtype == np.float64
    single = rectifier.fit_transform(Z.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, double, rtol=2e-6)
    integers = np.arange(12).reshape(3, 4)
    assert rectifier.fit_transform(integers).dtype == np.float64


@each
def test_a_row_does_not_depend_on_the_others(rectifier, monkeypatch):
    Z = _features(dtype=np.float32)
    rectifier.fit(Z[:40])
    together = rectifier.transform(Z)
    alone = np.concatenate([rectifier.transform(row[None]) for row in Z])
    np.testing.assert_allclose(alone, together, rtol=2e-7)
    monkeypatch.setattr(_base, "_CHUNK_BYTES", 7 * Z[0].nbytes)
    np.testing.assert_allclose(rectifier.transform(Z), together, rtol=2e-7)


@each
def test_torch_tensors(rectifier):
    Z = _features(dtype=np.float32)
    expected = rectifier.fit_transform(Z)
    tensor = torch.from_numpy(Z).requires_grad_()
    got = rectifier.fit(tensor).transform(tensor)
    assert type(got) is np.ndarray
    np.testing.assert_array_equal(got, expected, strict=True)
    half = rectifier.transform(torch.from_numpy(Z).to(torch.bfloat16))
    np.testing.assert_allclose(half, expected, rtol=0.1, atol=0.2)


@each
def test_input_is_neither_written_to_nor_returned(rectifier):
    Z = _features()
    before = Z.copy()
    out = rectifier.fit(Z).transform(Z)
    assert not np.shares_memory(out, Z)
    np.testing.assert_array_equal(Z, before)
    fortran = rectifier.transform(np.asfortranarray(Z))
    np.testing.assert_allclose(fortran, out, rtol=1e-14)


@each
def test_names_and_data_frames(rectifier):
    frame = pd.DataFrame(_features(n_features=3), columns=["a", "b", "c"])
    plain = rectifier.fit_transform(frame.to_numpy())
    rectifier = type(rectifier)(**rectifier.get_params()).set_output(transform="pandas")
    out = rectifier.fit_transform(frame)
    assert list(out.columns) == ["a", "b", "c"]
    assert list(rectifier.get_feature_names_out()) == ["a", "b", "c"]
    np.testing.assert_array_equal(out.to_numpy(), plain)


@each
def test_a_row_of_zeros_and_constant_features(rectifier):
    rectifier.fit(_features())
    zeros = np.zeros((2, 12))
    np.testing.assert_array_equal(rectifier.transform(zeros), zeros)
    for value in (1e-300, 0.7, 1e4):
        constant = np.full((3, 12), value)
        out = rectifier.fit_transform(constant)
        assert np.isfinite(out).all()
        assert (out >= 0).all()


@each
def test_errors(rectifier):
    Z = _features()
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        type(rectifier)().transform(Z)
    rectifier.fit(Z)
    with pytest.raises(ValueError, match=r"X has 11 features, but .* is expecting 12"):
        rectifier.transform(Z[:, 1:])
    broken = Z.copy()
    broken[2, 3] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        rectifier.transform(broken)
    before = vars(rectifier).copy()
    with pytest.raises(ValueError, match="Input X contains NaN"):
        rectifier.fit(broken)
    assert vars(rectifier).keys() == before.keys()


@pytest.mark.parametrize("rectifier", LEARNING, ids=repr)
def test_ood_samples_are_left_out(rectifier):
    Z = _features()
    y = np.arange(60) % 3
    expected = rectifier.fit(Z, y).transform(Z)
    np.testing.assert_array_equal(rectifier.fit(Z).transform(Z), expected)
    both = np.concatenate([100 + Z[:20], Z, Z[20:30] - 100])
    for labels, ood in ((y, -1), (np.array(list("abc"))[y], "unknown")):
        ood_rows = np.full(30, ood)
        all_labels = np.concatenate([ood_rows[:20], labels, ood_rows[20:]])
        fitted = rectifier.set_params(ood_label=ood).fit(both, all_labels)
        np.testing.assert_array_equal(fitted.transform(Z), expected)
        with pytest.raises(ValueError, match="every label in y equals ood_label"):
            rectifier.fit(Z, np.full(60, ood))
    rectifier.set_params(ood_label=-1)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        rectifier.fit(Z, y[1:])
    assert not hasattr(rectifier, "classes_")


@pytest.mark.parametrize("rectifier", [ASH(), SCALE(), LTS()], ids=repr)
def test_labels_do_not_matter_where_nothing_is_learned(rectifier):
    Z = _features()
    out = rectifier.fit(Z, np.full(60, -1)).transform(Z)
    np.testing.assert_array_equal(out, rectifier.fit_transform(Z))


@pytest.mark.parametrize("rectifier", [ASH(), SCALE(), LTS()], ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_search_of_largest_features_changes_no_result(rectifier, dtype):
    rng = np.random.default_rng(0)
    dense = rng.uniform(0.1, 1, size=(300, 700)).astype(dtype)
    sparse = dense * (rng.random(dense.shape) < 0.4).astype(dtype)
    by_partition, by_sorting = (clone(rectifier).fit(Z) for Z in (dense, sparse))
    assert by_sorting._by_sorting and not by_partition._by_sorting
    for Z in (dense, sparse):
        actual = by_sorting.transform(Z)
        rtol = 1e-14 if dtype == np.float64 else 1e-6
        np.testing.assert_allclose(actual, by_partition.transform(Z), rtol=rtol)
        np.testing.assert_array_equal(actual[7:8], by_sorting.transform(Z[7:8]))
