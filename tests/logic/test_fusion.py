"""Fusions: the numbers, and what a relabeling of constraints must not change."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest

from skood.logic import ConceptFusion
from skood.logic._mln_detector import check_product
from skood.metrics import auroc

D = np.array([-3.0, -3.0, 0.0, 1.5])
P = np.array([0.9, 0.001, 0.5, 0.5])


def test_log():
    expected = [
        -2.8946394843421737,
        3.907755278982137,
        0.6931471805599453,
        2.1931471805599454,
    ]
    np.testing.assert_allclose(ConceptFusion().fuse(D, np.log(P)), expected, rtol=1e-12)
    np.testing.assert_allclose(
        ConceptFusion(gamma=2.0).fuse(D, np.log(P)), np.array(expected) + D, rtol=1e-12
    )


def test_log_has_the_order_of_the_exponential_form():
    rng = np.random.default_rng(0)
    penalty, p = rng.normal(size=500, scale=3), rng.random(500)
    exponential = -np.exp(-penalty) * p
    expected = [-18.0769832308689, -0.02008553692318767, -0.5, -0.11156508007421491]
    np.testing.assert_allclose(-np.exp(-D) * P, expected, rtol=1e-12)
    np.testing.assert_array_equal(
        np.argsort(ConceptFusion().fuse(penalty, np.log(p))), np.argsort(exponential)
    )


def test_product():
    found = ConceptFusion("product").fuse(D[:3], np.log(P[:3]))
    np.testing.assert_allclose(found, [-2.7, -0.003, 0.0], rtol=1e-12)
    text = r"inverts its order .* can be 1\.5.*fusion='log'.*'shifted_product'"
    with pytest.raises(ValueError, match=text):
        ConceptFusion("product").fuse(D, np.log(P))
    with pytest.raises(ValueError, match=text):
        ConceptFusion("product").fuse(D[:1], np.log(P[:1]), max_penalty=1.5)
    check_product(0.0)
    check_product(1e-12)  # rounding


def test_shifted_product():
    found = ConceptFusion("shifted_product").fuse(D, np.log(P), max_penalty=1.5)
    np.testing.assert_allclose(found, (D - 1.5) * P, rtol=1e-12)


@pytest.mark.parametrize("fusion", ["log", "product", "shifted_product"])
def test_outliers_are_more_outlying(fusion):
    """Each grows with the penalty, and with a falling survival."""
    penalty, log_p = np.meshgrid(np.linspace(-4, -1, 9), np.linspace(-20, 0, 7))
    found = ConceptFusion(fusion).fuse(penalty, log_p)
    assert np.all(np.diff(found, axis=1) > 0)
    assert np.all(np.diff(found, axis=0) < 0)


def test_logarithms_that_are_too_large():
    found = ConceptFusion("product").fuse(np.array([-1.0, 0.0]), np.array([1e4, 1e4]))
    assert np.isfinite(found).all()
    assert found[0] < found[1] == 0


def _relabeled(negated, n=4000):
    """Penalties of an ID and an OOD sample before and after a relabeling."""
    rng = np.random.default_rng(0)
    is_ood = np.arange(n) % 2 == 1
    broken = rng.random((n, 3)) < np.where(is_ood, 0.15, 0.05)[:, None]
    truth, weights = ~broken, np.array([2.0, 1.0, 3.0])
    if negated:
        truth, weights = broken, -weights
    p = np.where(is_ood, rng.random(n) ** 6, rng.random(n))
    largest = np.maximum(-weights, 0).sum()
    return is_ood, -(truth @ weights), np.log(p), largest


def test_negating_all_constraints_and_weights_changes_nothing():
    """It leaves the network the same; the plain product of D and p it does not."""
    y, aurocs = None, {}
    for negated in (False, True):
        is_ood, penalty, log_p, largest = _relabeled(negated)
        y = np.where(is_ood, -1, 1)
        scores = {
            "log": ConceptFusion().fuse(penalty, log_p),
            "shifted": ConceptFusion("shifted_product").fuse(penalty, log_p, largest),
            "plain": penalty * np.exp(log_p),
        }
        aurocs[negated] = {name: auroc(y, -s) for name, s in scores.items()}
    for name in ("log", "shifted"):
        assert aurocs[True][name] == pytest.approx(aurocs[False][name], abs=1e-4)
    assert aurocs[False]["plain"] - aurocs[True]["plain"] > 0.1
    # so that the product is refused there
    _, penalty, log_p, largest = _relabeled(True)
    with pytest.raises(ValueError, match="inverts its order"):
        ConceptFusion("product").fuse(penalty, log_p, largest)


@pytest.mark.parametrize("fusion", ["product", "shifted_product"])
def test_the_largest_penalty_is_tied_whatever_its_rounding(fusion):
    """Summed up in another way it is off by a rounding error, which p must not order.

    Products of 0 are equal for all p; those of -4e-16 are not.
    """
    weights = np.array([0.1, 0.7, 1.3])
    log_p = np.log([0.9, 0.1, 0.5])
    for largest in (0.0, 123.4) if fusion == "shifted_product" else (0.0,):
        rounded = largest - np.abs(np.spacing(largest + weights.sum()))
        found = ConceptFusion(fusion).fuse(
            np.array([rounded, largest, largest - 0.1]), log_p, largest
        )
        assert found[0] == found[1] == 0.0
        assert found[2] == pytest.approx(-0.05)
