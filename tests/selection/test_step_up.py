"""StepUp and ConditionalStepUp: checked numbers, exact rates, and peers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import re
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import beta, false_discovery_control

from skood.combine import BenjaminiHochberg, Storey, conformal_pvalues
from skood.selection import (
    ConditionalStepUp,
    Selection,
    StepUp,
    fdp_power,
    select_novelties,
)
from skood.stats._fdp_bands import _CHUNK, _smallest_tails, local_band, simes_band
from tests.selection._cases import orders, vector


def test_ties():
    arguments, expected = vector("S-bh-ties")
    p = conformal_pvalues(arguments["scores"], arguments["cal"])
    assert_allclose(p, expected["p"], rtol=1e-12)
    assert_allclose(StepUp().qvalues(p, 19), expected["q"], rtol=1e-12)
    for alpha, selected in expected["selected"].items():
        actual = StepUp().selected(p, 19, float(alpha))
        assert actual.nonzero()[0].tolist() == selected


@pytest.mark.parametrize("kind", ["storey", "quantile"])
def test_estimates(kind):
    arguments, expected = vector(f"S-{kind}")
    name = "lam" if kind == "storey" else "fraction"
    for value in arguments["share" if kind == "quantile" else name]:
        procedure = StepUp(kind, **{name: value})
        n_id = expected["m0"][str(value)]
        actual = procedure.n_id(arguments["p"], 19)
        assert actual == pytest.approx(np.inf if n_id is None else n_id, rel=1e-12)
        chosen = procedure.selected(arguments["p"], 19, arguments["alpha"]).nonzero()[0]
        assert chosen.tolist() == expected["selected"][str(value)]


def test_smallest_selection():
    arguments, expected = vector("S-resolution")
    for (n, m, alpha), size in zip(
        arguments["cases"], expected["min_selected"], strict=True
    ):
        none = np.zeros(m, dtype=bool)
        assert Selection(none, np.ones(m), alpha, n).min_selected == size
        for smaller in (size - 1, size):
            p = np.ones(m)
            p[:smaller] = 1 / (n + 1)
            assert StepUp().selected(p, n, alpha).sum() == (smaller == size) * size


class _Clipped(StepUp):
    def _n_id(self, ranks, n):
        return min(super()._n_id(ranks, n), len(ranks))


@pytest.mark.parametrize("case", list(vector("S-exact-fdr")[1]))
def test_exact_rate(case):
    """By enumeration: the offered estimates keep the level, two others do not."""
    n, m0, m1 = map(int, case.split(",")[:3])
    alpha = float(case.split(",")[3])
    expected = vector("S-exact-fdr")[1][case]
    ranks = np.array(list(orders(n, m0, m1)))
    selected = {
        "bh": BenjaminiHochberg().selected(ranks / (n + 1), alpha),
        "p>lam, no plus one": Storey().selected(ranks / (n + 1), alpha),
        "storey": _by_batch(StepUp("storey"), ranks, n, alpha),
        "quant": _by_batch(StepUp("quantile"), ranks, n, alpha),
        "clipped": _by_batch(_Clipped("storey"), ranks, n, alpha),
    }
    for name, actual in selected.items():
        rate = np.mean(actual[:, :m0].sum(axis=1) / np.maximum(actual.sum(axis=1), 1))
        assert rate == pytest.approx(expected[name], abs=1e-9), name
        if name in ("bh", "storey", "quant"):
            assert rate <= alpha + 1e-12


def _by_batch(procedure, batches, n, alpha):
    # without the validation of thousands of calls
    return np.array(
        [procedure._levels(ranks, n)[ranks] <= alpha * (1 + 1e-12) for ranks in batches]
    )


def test_equals_other_libraries(rng):
    for n, m in ((1, 1), (9, 30), (199, 50), (50, 700)):
        p = rng.integers(1, n + 2, m) / (n + 1) * rng.choice([0.1, 1], m)
        p = np.maximum(np.rint(p * (n + 1)), 1) / (n + 1)
        for alpha in (0.05, 0.3, 0.7):
            selected = StepUp().selected(p, n, alpha)
            combined = BenjaminiHochberg().selected(p[None], alpha)[0]
            assert_array_equal(selected, combined)
        q = np.minimum(StepUp().qvalues(p, n), 1)
        assert_allclose(q, false_discovery_control(p), rtol=1e-12)


def test_qvalues_are_the_smallest_levels(rng):
    p = rng.integers(1, 60, 40) / 100
    for procedure in (StepUp(), StepUp("storey"), StepUp("quantile", fraction=0.8)):
        q = procedure.qvalues(p, 99)
        for j in np.flatnonzero(q < 1):
            assert procedure.selected(p, 99, q[j])[j]
            if q[j] > 1e-3:
                assert not procedure.selected(p, 99, q[j] * (1 - 1e-9))[j]


def test_order_and_float32_do_not_matter(rng):
    p = rng.integers(1, 1001, 300) / 1000 * 1.0
    p[:60] = rng.integers(1, 9, 60) / 1000
    order = rng.permutation(300)
    for procedure in (StepUp("storey"), ConditionalStepUp(), StepUp("quantile")):
        selected = procedure.selected(p, 999, 0.2)
        assert 0 < selected.sum() < 300
        assert_array_equal(procedure.selected(p[order], 999, 0.2), selected[order])
        assert_array_equal(procedure.selected(p.astype(np.float32), 999, 0.2), selected)


def test_simes_band():
    arguments, expected = vector("S-band-simes")
    band = simes_band(arguments["n"], arguments["delta"])
    assert_allclose(band[1:-1], expected, rtol=1e-12)
    arguments, expected = vector("S-ccv")
    p, n = np.array(arguments["ranks"]) / 201, arguments["n"]
    procedure = ConditionalStepUp(arguments["delta"])
    assert_allclose(procedure.pvalues(p, n), expected["p"], rtol=1e-10)
    for alpha, selected in expected["selected"].items():
        actual = procedure.selected(p, n, float(alpha)).nonzero()[0]
        assert actual.tolist() == selected


def test_local_band_by_all_ranks():
    """The candidates of each draw contain the rank of the smallest tail."""
    n = 120
    u = np.sort(np.random.default_rng(3).random((_CHUNK, n)), axis=1)
    r = np.arange(1, n + 1)
    actual = _smallest_tails(n, np.random.default_rng(3))
    assert_allclose(actual, beta(r, n + 1 - r).sf(u).min(axis=1), rtol=1e-9)


@pytest.mark.parametrize("band", [simes_band, local_band])
def test_coverage_of_bands(band, rng):
    """All order statistics are below with probability 1 - delta, also of one sample."""
    for n in (1, 2, 60):
        u = np.sort(rng.random((4000, n)), axis=1)
        b = band(n, 0.1)
        assert (np.diff(b) >= 0).all() and b[-1] == 1 and len(b) == n + 2
        covered = (u <= b[1:-1]).all(axis=1).mean()
        assert 0.885 < covered < 0.915


@pytest.mark.parametrize("band", ["simes", "local"])
@pytest.mark.parametrize(("n", "alpha"), [(20, 0.3), (60, 0.1), (60, 0.3), (500, 0.1)])
def test_conditional_rate(band, n, alpha, rng):
    """Exact rates of one and of two ID samples, for 2000 calibration sets."""
    delta, n_sets = 0.2, 2000
    uniform = np.sort(rng.random((n_sets, n)), axis=1)
    limits = np.insert(uniform, 0, 0, axis=1)  # P(rank <= r | calibration samples)

    def exceeded(procedure):
        ranks = np.arange(1, n + 1)
        by_level = [
            sum(procedure.selected([r / (n + 1)], n, level)[0] for r in ranks)
            for level in (alpha / 2, alpha)
        ]
        half, full = limits[:, by_level].T
        both = 1 - (1 - half) ** 2 + (full - half) ** 2
        return np.mean(full > alpha), np.mean(both > alpha)

    bound = delta + 3 * np.sqrt(delta * (1 - delta) / n_sets)
    assert max(exceeded(ConditionalStepUp(delta, band))) <= bound
    assert min(exceeded(StepUp())) > bound or n == 20


def test_few_samples():
    for procedure in (StepUp(), StepUp("storey"), StepUp("quantile")):
        assert procedure.selected([], 9, 0.2).shape == (0,)
        assert procedure.qvalues([], 9).shape == (0,)
        assert procedure.qvalues([0.1], 1 - 0 + 8).shape == (1,)
    for p in (0.1, 0.2, 0.3):  # a batch of one is the test p <= alpha
        assert select_novelties([p], 9, alpha=0.2).n_selected == (p <= 0.2)
    batch = select_novelties([], 9, alpha=0.2, delta=0.1)
    assert (batch.n_selected, batch.threshold, batch.fdp_bound) == (0, 0.0, 0.0)
    # all calibration scores are equal: nothing is selected, and nothing divides by 0
    tied = select_novelties(conformal_pvalues(np.zeros(5), np.zeros(20)), 20)
    assert tied.n_selected == 0
    everything = StepUp("quantile", fraction=1.0)
    assert np.isinf(select_novelties([1.0, 0.1], 9, 0.5, everything).qvalues).all()


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (([0.0, 0.5], 9), ValueError, "multiples of 1/10.*Got 0 at the index 0"),
        (([0.25], 9), ValueError, "must be conformal p-values of n_calibration=9"),
        (([np.nan], 9), ValueError, "pvalues has 1 NaN among 1 values"),
        (([1.2], 9), ValueError, r"must be in \[0, 1\], got values from 1.2"),
        (([[0.1]], 9), ValueError, r"must have the shape \(n_samples,\), got \(1, 1\)"),
        ((["a"], 9), ValueError, "pvalues must be numbers"),
        (([0.1], 0), ValueError, "There is no calibration sample"),
        (([0.1], 9.0), TypeError, "n_calibration must be an integer"),
        (([0.1], 9, 1.0), ValueError, r"alpha must be in \(0, 1\), got 1.0"),
        (([0.1], 9, "5"), TypeError, r"alpha must be a number in \(0, 1\), got '5'"),
        (([0.1], 9, 0.1, StepUp), TypeError, "procedure must be an object"),
        (([0.1], 9, 0.1, StepUp("by")), ValueError, "'pi0' parameter of StepUp"),
    ],
)
def test_invalid_input(arguments, error, message):
    with pytest.raises(error, match=message):
        select_novelties(*arguments)


def test_fdp_and_power():
    ood = np.array([True, False, True, True])
    assert fdp_power(~ood, ood) == (1.0, 0.0)
    assert fdp_power(np.zeros(4, bool), ood) == (0.0, 0.0)
    assert np.isnan(fdp_power(ood, np.zeros(4, bool)).power)
    with pytest.raises(ValueError, match="selected must be a boolean array"):
        fdp_power([1, 0, 1, 1], ood)
    with pytest.raises(ValueError, match="the same length, got 3 and 4"):
        fdp_power(ood[:3], ood)


def _selection(m=60):
    ranks = np.arange(m) % 40 + 60
    return select_novelties(ranks / 100, 99, alpha=0.1)


def test_repr():
    selection = _selection()
    assert repr(selection) == "0 of 60 selected at alpha=0.1; smallest q-value 0.99"
    without = replace(selection, qvalues=None)
    assert repr(without) == "0 of 60 selected at alpha=0.1; smallest p-value 0.6"
    few = select_novelties([0.01, 0.5, 0.02], 99, alpha=0.05)
    assert repr(few) == "2 of 3 selected at alpha=0.05; smallest q-value 0.03"
    assert repr(select_novelties([], 99)) == "0 of 0 selected at alpha=0.1"


def test_table_for_notebooks():
    names = np.array(["<b>"] * 60)
    html = replace(_selection(), detector=names)._repr_html_()
    assert html.count("<tr>") == 11  # a head and ten samples
    shown = [int(i) for i in re.findall(r"<tr><th>(\d+)</th>", html)]
    expected = np.argsort(_selection().pvalues, kind="stable")[:10]
    assert_array_equal(shown, expected)
    assert "<b>" not in html
    assert "&lt;b&gt;" in html
    assert "0 of 60 selected at alpha=0.1" in html
    assert "detector" not in _selection()._repr_html_()
    assert select_novelties([], 99)._repr_html_().count("<tr>") == 1
