"""Radial flows: their Jacobian, that they are densities, and points far away."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import weakref

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

from skood.graph import _gpn as module_under_test
from skood.graph._gpn import RadialFlows
from tests.graph._messy import naive_log_density


def _flows(n_classes=3, n_features=4, n_layers=5, spread=1.5, seed=0):
    """Flows in float64 that move points visibly."""
    generator = torch.Generator().manual_seed(seed)
    flows = RadialFlows(n_classes, n_features, n_layers).double()
    with torch.no_grad():
        for parameter in flows.parameters():
            noise = torch.randn(
                parameter.shape, dtype=torch.float64, generator=generator
            )
            parameter.copy_(spread * noise)
    return flows


def _points(n_points, n_features, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n_points, n_features, dtype=torch.float64, generator=generator)


def test_density_is_that_of_the_paper():
    flows, z = _flows(), _points(6, 4)
    expected = [
        [naive_log_density(flows, point, c) for c in range(3)] for point in z.numpy()
    ]
    assert_allclose(flows(z).detach(), expected, rtol=1e-12)


def test_determinant_is_that_of_the_jacobian():
    flows = _flows()
    for z in _points(4, 4):
        jacobian = torch.autograd.functional.jacobian(
            lambda point: flows.transform(point[None])[0][0], z
        )  # (n_classes, n_features, n_features)
        sign, log_abs = torch.linalg.slogdet(jacobian)
        assert (sign == 1).all()
        assert_allclose(
            flows.transform(z[None])[1][0].detach(), log_abs.detach(), rtol=1e-9
        )


def test_flow_without_layers_is_standard_normal():
    z = _points(5, 3)
    flows = RadialFlows(2, 3, 0).double()
    expected = multivariate_normal(np.zeros(3)).logpdf(z.numpy())
    assert_allclose(flows(z), np.column_stack([expected] * 2), rtol=1e-12)


def test_new_flows_are_almost_the_identity():
    """So no class is denser than another; but their layers are not all alike."""
    z = _points(50, 3)
    torch.manual_seed(0)
    moved, log_det = RadialFlows(2, 3, 1).double().transform(z)
    change = (moved - z[:, None]).norm(dim=-1) / z.norm(dim=1)[:, None]
    assert 0 < change.max() < 0.1
    assert 0 < log_det.abs().max() < 0.1


def test_density_in_2d_is_normalized():
    flows = _flows(n_classes=2, n_features=2, n_layers=3, spread=0.7)
    axis = torch.linspace(-12, 12, 601, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    density = flows(grid).detach().exp().numpy()
    step = float(axis[1] - axis[0])
    assert_allclose(density.sum(axis=0) * step**2, 1.0, rtol=1e-3)


@pytest.mark.parametrize("raw_a, raw_s", [(3.0, -200.0), (-200.0, 3.0), (5.0, 5.0)])
def test_every_layer_is_invertible(raw_a, raw_s):
    """Along a ray the new distance grows with the old, whatever the parameters."""
    flows = RadialFlows(1, 2, 1).double()
    with torch.no_grad():
        flows.centers.zero_()
        flows.raw_a.fill_(raw_a)
        flows.raw_s.fill_(raw_s)
    r = torch.linspace(0, 20, 400, dtype=torch.float64)
    moved, log_det = flows.transform(torch.stack([r, torch.zeros_like(r)], dim=1))
    assert (moved[:, 0, 0].diff() > 0).all()
    assert torch.isfinite(log_det).all()


def test_classes_do_not_see_each_other():
    flows, z = _flows(n_classes=3), _points(7, 4)
    for c in range(3):
        alone = RadialFlows(1, 4, 5).double()
        with torch.no_grad():
            for separate, of_all in zip(
                alone.parameters(), flows.parameters(), strict=True
            ):
                separate.copy_(of_all[:, c : c + 1])
        # the last digit depends on which samples share a vector instruction
        assert_allclose(
            alone(z)[:, 0].detach(), flows(z)[:, c].detach(), rtol=1e-14, strict=True
        )


@pytest.mark.parametrize("distance", [0.0, 1e3, 1e10, 3e38])
@pytest.mark.parametrize("raw", [0.0, -200.0, 200.0])
def test_points_anywhere_have_finite_densities_and_gradients(distance, raw):
    """At the center of a layer, and as far as float32 reaches."""
    flows = RadialFlows(2, 16, 10)
    with torch.no_grad():
        flows.centers.zero_()
        flows.raw_a.fill_(raw)
        flows.raw_s.fill_(raw)
    z = torch.full((3, 16), distance, requires_grad=True)
    log_density = flows(z)
    assert torch.isfinite(log_density).all()
    log_density.clamp(-30, 30).sum().backward()
    for tensor in (z, *flows.parameters()):
        assert torch.isfinite(tensor.grad).all()


def test_density_falls_to_nothing_far_away():
    flows = _flows(n_classes=3, spread=1.0)
    directions = _points(5, 4)
    directions /= directions.norm(dim=1, keepdim=True)
    near, far, farther = (flows(r * directions) for r in (3.0, 30.0, 300.0))
    assert (far < near - 100).all()
    assert (farther < far).all()


def test_gradient_is_that_of_finite_differences():
    flows, z = _flows(n_layers=2), _points(3, 4).requires_grad_()
    assert torch.autograd.gradcheck(flows, (z,))


def test_activations_of_a_single_block_are_stored(monkeypatch):
    """The results are those of one block, with many that are let go of in turn."""
    flows, z = _flows(), _points(50, 4).requires_grad_()
    weight = _points(50, 3, seed=2)
    expected = torch.autograd.grad(
        (flows.in_blocks(z) * weight).sum(), [z, *flows.parameters()]
    )
    monkeypatch.setattr(module_under_test, "_MAX_BLOCK_BYTES", 7 * 4 * 3 * 4 * 4 * 6)
    assert [block.stop - block.start for block in flows.blocks(50)] == [7] * 7 + [1]
    alive, stored = [], []
    transform = RadialFlows.transform

    def watched(self, z):
        alive.append(sum(ref() is not None for ref in stored))
        features = transform(self, z)
        stored.append(weakref.ref(features[0]))
        return features

    monkeypatch.setattr(RadialFlows, "transform", watched)
    outputs = torch.cat([flows(z[block]) for block in flows.blocks(50)])
    assert max(alive) == 7  # they would all be kept
    del outputs
    alive.clear(), stored.clear()
    value = (flows.in_blocks(z) * weight).sum()
    assert alive == [0] * 8
    value.backward()
    assert len(alive) == 16
    assert max(alive) <= 1
    for tensor, gradient in zip([z, *flows.parameters()], expected, strict=True):
        torch.testing.assert_close(tensor.grad, gradient, rtol=1e-10, atol=1e-12)


def test_blocks_without_gradient(monkeypatch):
    flows, z = _flows(), _points(50, 4)
    expected = flows(z)
    monkeypatch.setattr(module_under_test, "_MAX_BLOCK_BYTES", 1)
    assert len(flows.blocks(50)) == 50
    with torch.no_grad():
        torch.testing.assert_close(flows.in_blocks(z), expected)
    # points that need none do not keep parameters from having theirs
    flows.in_blocks(z).sum().backward()
    assert all(parameter.grad is not None for parameter in flows.parameters())
