"""Survival functions: against SciPy's distributions, loops, and edge cases."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle
import warnings

import numpy as np
import pytest
from scipy import stats

from skood.exceptions import SkoodWarning
from skood.stats._survival import (
    FLOOR,
    NORMALIZERS,
    SurvivalFunction,
    _fit_genextreme,
    _genextreme_by_l_moments,
    fit_survival,
)
from tests._loops import looped

FAMILIES = {
    "genextreme": stats.genextreme(-0.2, 5.0, 0.01),
    "norm": stats.norm(3.0, 2.0),
    "gennorm": stats.gennorm(1.3, -5.0, 0.2),
    "lognorm": stats.lognorm(0.7, 100.0, 4.0),
    "uniform": stats.uniform(2.0, 3.0),
}


@pytest.mark.parametrize(
    "c, expected",
    [
        (
            0.1,
            [
                0.9252601947105411,
                0.6321205588285577,
                0.10181047660792183,
                0.0009760858180243377,
                FLOOR,  # beyond the upper end, where the survival is 0
            ],
        ),
        (
            -0.2,
            [
                0.9527242505937095,
                0.6321205588285577,
                0.16967196392219147,
                0.03076676552365592,
                0.00031994880546089646,
            ],
        ),
    ],
)
def test_survival_of_generalized_extreme_values(c, expected):
    survival = SurvivalFunction("genextreme", {"c": c, "loc": 0.0, "scale": 1.0})
    x = np.array([-1.0, 0.0, 2.0, 5.0, 20.0])
    np.testing.assert_allclose(survival.sf(x), expected, rtol=1e-12)
    np.testing.assert_allclose(survival.log_sf(x), np.log(expected), rtol=1e-12)


def test_fit_of_generalized_extreme_values():
    """Quantiles at plotting positions; the maximum of the likelihood is SciPy's."""
    q = stats.genextreme.ppf((np.arange(2000) + 0.5) / 2000, 0.1, 2.0, 3.0)
    params = fit_survival("genextreme", q).params
    estimates = [params["c"], params["loc"], params["scale"]]
    np.testing.assert_allclose(estimates, [0.1, 2.0, 3.0], atol=0.01)
    maximum = [0.10056701057296899, 2.001024981046779, 2.99940654456167]
    np.testing.assert_allclose(estimates, maximum, atol=1e-4)


@pytest.mark.parametrize("c", [0.3, 0.0, -0.3])
def test_l_moments_of_quantiles_give_the_parameters(c):
    q = stats.genextreme.ppf((np.arange(200_000) + 0.5) / 200_000, c, 2.0, 3.0)
    shape, loc, log_scale = _genextreme_by_l_moments(q)
    np.testing.assert_allclose([shape, loc, np.exp(log_scale)], [c, 2, 3], atol=0.02)


def test_the_fit_has_no_larger_likelihood_beside_it():
    rng = np.random.default_rng(0)
    for c in (0.5, -0.4, 0.0):
        x = stats.genextreme.rvs(c, 1.0, 2.0, size=500, random_state=rng)
        p = fit_survival("genextreme", x).params
        best = stats.genextreme.logpdf(x, p["c"], p["loc"], p["scale"]).sum()
        for step in rng.normal(scale=0.02, size=(50, 3)):
            beside = p["c"] + step[0], p["loc"] + step[1], p["scale"] + step[2]
            assert stats.genextreme.logpdf(x, *beside).sum() <= best + 1e-7


@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_recovers_itself(name):
    truth = FAMILIES[name]
    x = truth.rvs(4000, random_state=0)
    survival = fit_survival(name, x)
    assert survival.name == name
    grid = truth.ppf(np.linspace(0.01, 0.99, 50))
    np.testing.assert_allclose(survival.sf(grid), truth.sf(grid), atol=0.025)
    # ... and it is exactly SciPy's function with the fitted parameters
    shape = [v for k, v in survival.params.items() if k not in ("loc", "scale")]
    theirs = getattr(stats, name)(
        *shape, survival.params["loc"], survival.params["scale"]
    )
    np.testing.assert_allclose(survival.sf(grid), theirs.sf(grid), rtol=1e-9)
    np.testing.assert_allclose(survival.log_sf(grid), theirs.logsf(grid), rtol=1e-9)


@pytest.mark.parametrize("name", ["norm", "uniform"])
def test_closed_forms(name):
    x = np.array([1.0, 2.0, 4.0, 9.0])
    params = fit_survival(name, x).params
    if name == "norm":
        assert params == {"loc": 4.0, "scale": pytest.approx(np.std(x))}
    else:
        assert params == {"loc": pytest.approx(1.0), "scale": pytest.approx(8.0)}


@pytest.mark.parametrize("beta", [1.2, 2.0, 4.0])
def test_gennorm_is_the_maximum_of_the_likelihood(beta):
    x = stats.gennorm(beta, 1.0, 2.0).rvs(1000, random_state=1)
    p = fit_survival("gennorm", x).params
    ours = stats.gennorm.logpdf(x, p["beta"], p["loc"], p["scale"]).sum()
    theirs = stats.gennorm.logpdf(x, *stats.gennorm.fit(x)).sum()
    assert ours >= theirs - 1e-3


def test_gennorm_of_uniform_scores_has_a_bounded_shape():
    p = fit_survival("gennorm", np.linspace(0.0, 1.0, 500)).params
    assert 20.0 < p["beta"] <= 50.0


def test_lognorm_of_scores_skewed_to_the_left_is_nearly_normal():
    x = -stats.lognorm(0.5).rvs(500, random_state=0)
    survival = fit_survival("lognorm", x)
    normal = fit_survival("norm", x)
    np.testing.assert_allclose(survival.sf(x), normal.sf(x), atol=0.01)
    assert survival.params["loc"] < x.min()


def test_empirical_against_a_loop_with_ties_and_infinities():
    rng = np.random.default_rng(0)
    x = np.append(rng.integers(0, 6, size=30).astype(float), [np.inf, -np.inf])
    survival = fit_survival("empirical", x)
    asked = np.array([-np.inf, -1.0, 0.0, 2.0, 2.5, 5.0, 9.0, np.inf])
    expected = [(1 + sum(v >= o for v in x)) / (len(x) + 1) for o in asked]
    np.testing.assert_allclose(survival.sf(asked), expected, rtol=1e-12)


@pytest.mark.parametrize("name", sorted(NORMALIZERS - {"none"}))
def test_survival_functions_decrease_between_one_and_the_floor(name):
    x = stats.gumbel_r.rvs(size=300, random_state=0)
    survival = fit_survival(name, x)
    asked = np.concatenate([[-np.inf, -1e300], np.linspace(-5, 30, 300), [1e300]])
    asked = np.append(asked, np.inf)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p, log_p = survival.sf(asked), survival.log_sf(asked)
    assert p[0] == 1.0
    assert np.all(np.diff(p) <= 0)
    np.testing.assert_allclose(p, np.exp(log_p), rtol=1e-12)
    floor = 1 / 301 if name == "empirical" else FLOOR
    np.testing.assert_allclose(p[-1], floor, rtol=1e-12)


@pytest.mark.parametrize("name", sorted(NORMALIZERS - {"none", "empirical"}))
def test_shifts_and_scales_go_through(name):
    x = stats.gumbel_r.rvs(size=200, random_state=0)
    p = fit_survival(name, x).sf(x)
    moved = 1e6 * x - 3e7
    np.testing.assert_allclose(fit_survival(name, moved).sf(moved), p, atol=1e-5)


def test_none_takes_minus_the_scores_for_logarithms():
    survival = fit_survival("none", np.arange(5.0))
    np.testing.assert_array_equal(survival.log_sf([2.0, -np.inf]), [-2.0, np.inf])


@looped("name", sorted(NORMALIZERS - {"none", "empirical"}))
@looped(
    "x, why",
    [
        (np.full(20, 3.0), "the detector gave 1 distinct scores"),
        (np.array([1.0, 2.0]), "the detector gave 2 distinct scores"),
        (np.array([1.0, 2.0, 3.0, np.inf]), "1 of the detector's scores are infinite"),
        (
            np.array([-1e308, 0.0, 1e307, 1e308]),
            "the range .* is too large or too small",
        ),
        (np.array([0.0, 0.0, 5e-324]), "the range .* is too large or too small"),
    ],
)
def test_what_no_family_can_be_fitted_to_is_ranked(name, x, why):
    with pytest.warns(
        SkoodWarning, match=f"{name!r} is replaced by 'empirical': {why}"
    ):
        survival = fit_survival(name, x)
    assert survival.name == "empirical"
    expected = [(1 + sum(v >= o for v in x)) / (len(x) + 1) for o in x]
    np.testing.assert_allclose(survival.sf(x), expected, rtol=1e-12)


def test_genextreme_with_a_heavy_tail_is_replaced():
    x = stats.genextreme.rvs(-1.5, size=500, random_state=0)
    with pytest.warns(SkoodWarning, match=r"shape ξ=1\.\d+ is at least 1"):
        assert fit_survival("genextreme", x).name == "empirical"


def test_genextreme_that_does_not_fit_is_replaced():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-5, 1, 300), rng.normal(5, 1, 300)])
    with pytest.warns(SkoodWarning, match=r"Kolmogorov-Smirnov distance .* is 0\.\d+"):
        assert fit_survival("genextreme", x).name == "empirical"
    # others are taken as they are requested
    assert fit_survival("norm", x).name == "norm"


@pytest.mark.parametrize("name", ["genextreme", "gennorm"])
def test_failed_fit(name, monkeypatch):
    monkeypatch.setattr("skood.stats._survival._minimum", lambda loss, *starts: None)
    with pytest.warns(SkoodWarning, match="no maximum that could be found"):
        assert fit_survival(name, np.arange(50.0)).name == "empirical"


def test_l_moments_that_put_scores_beyond_the_end():
    """Then the search starts from Gumbel's distribution alone."""
    x = np.array([0.01, 0.26, 0.21, 0.26, 0.17, -2.24, 1.33])
    c, loc, log_scale = _genextreme_by_l_moments(x)
    assert stats.genextreme.logpdf(x.max(), c, loc, np.exp(log_scale)) == -np.inf
    params = _fit_genextreme(x)
    fitted = stats.genextreme(params["c"], params["loc"], params["scale"])
    assert (
        fitted.logpdf(x).sum() > stats.gumbel_r(*stats.gumbel_r.fit(x)).logpdf(x).sum()
    )
    heavy = np.append(np.linspace(0, 1, 50), 1e9)
    c, _, _ = _genextreme_by_l_moments(heavy)
    assert c == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_distance_is_that_of_scipy(seed):
    x = stats.norm.rvs(size=50, random_state=seed)
    survival = fit_survival("norm", x)
    p = survival.params
    expected = stats.kstest(x, stats.norm(p["loc"], p["scale"]).cdf).statistic
    assert survival.distance(x) == pytest.approx(expected, rel=1e-9)


def test_distance_with_ties():
    survival = SurvivalFunction("uniform", {"loc": 0.0, "scale": 1.0})
    # the empirical function jumps from 0 to 1 at 0.3
    assert survival.distance(np.full(4, 0.3)) == pytest.approx(0.7)


def test_repr_and_pickle():
    x = stats.norm.rvs(size=50, random_state=0)
    survival = fit_survival("norm", x)
    assert repr(survival).startswith("norm(loc=0.")
    assert repr(fit_survival("empirical", x)) == "empirical(50 scores)"
    assert repr(fit_survival("none", x)) == "none()"
    for name in sorted(NORMALIZERS):
        survival = fit_survival(name, x)
        loaded = pickle.loads(pickle.dumps(survival))
        np.testing.assert_array_equal(loaded.log_sf(x), survival.log_sf(x))
        assert all(type(value) is float for value in survival.params.values())
