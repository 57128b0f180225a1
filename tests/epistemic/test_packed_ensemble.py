"""What is special to `PackedEnsemble`; the rest is in test_implicit_ensemble."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

from skood.epistemic import PackedEnsemble
from skood.epistemic.implicit._packed_ensemble import PackedLinear
from skood.nn import TorchClassifier
from tests.epistemic._member_nets import ensemble


def n_weights(clf):
    return sum(parameter.numel() for parameter in clf.module_.parameters())


@pytest.mark.parametrize(
    "params, groups, width",
    [
        ({}, (4, 4, 4), 200),
        ({"n_members": 2, "alpha": 1, "gamma": 5}, (2, 10, 2), 100),
        ({"n_members": 3, "alpha": 1.0, "gamma": 1}, (3, 3, 3), 102),
    ],
)
def test_layers(params, groups, width, iris):
    options = {"module_params": {"hidden": (100, 100)}, "max_epochs": 1}
    clf = ensemble(PackedEnsemble, **params, **options).fit(*iris)
    body = clf.estimator_.module_.body
    results = [component for component in body if isinstance(component, PackedLinear)]
    assert tuple(layer.groups for layer in results) == groups
    assert results[0].out_features == results[1].out_features == width
    assert results[2].out_features == 3 * clf.n_members


def test_as_many_weights_between_hidden_layers_as_a_network(iris):
    """With alpha^2 = M gamma; what reads the input and gives the logits has more."""
    options = {"module_params": {"hidden": (64, 64)}, "max_epochs": 1}
    packed = ensemble(PackedEnsemble, **options).fit(*iris)
    fitted = TorchClassifier(**options).fit(*iris)
    hidden = packed.estimator_.module_.body.linear_2.weight.numel()
    assert hidden == fitted.module_.linear_2.weight.numel()
    assert (
        n_weights(packed.estimator_)
        == n_weights(fitted) + (4 + 1) * 64 + 64 + 64 * 3 + 3 * 3
    )


def test_weights_of_the_module_are_not_used(iris):
    """Layers are built anew: other widths need other weights."""

    def module(input_shape, n_classes):
        network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, n_classes))
        for parameter in network.parameters():
            nn.init.zeros_(parameter)
        return network

    clf = ensemble(PackedEnsemble, module, max_epochs=30, lr=0.02, random_state=0)
    assert clf.fit(*iris).score(*iris) > 0.9


def test_members_equal_networks_that_are_trained_alone(iris):
    """Adam on the mean of losses moves each member as it would move it alone.

    Its step does not depend on the scale of the loss, but for eps.
    """
    X, y = iris
    clf = ensemble(
        PackedEnsemble,
        n_members=3,
        max_epochs=4,
        batch_size=200,
        lr=0.01,
        random_state=0,
    )
    start = clone_state(clf.set_params(estimator__lr=1e-30).fit(X, y))
    clf.set_params(estimator__lr=0.01).fit(X, y)
    samples, codes = torch.as_tensor(X).float(), torch.as_tensor(y)
    for m in range(3):
        first, last = (
            nn.Linear(*shape) for shape in ((4, 67), (67, 3))
        )  # 200 / 3, rounded up
        with torch.no_grad():
            for layer, name in ((first, "linear_1"), (last, "head")):
                layer.weight.copy_(start[f"body.{name}.weight"][m])
                layer.bias.copy_(start[f"body.{name}.bias"][m])
        alone = nn.Sequential(first, nn.ReLU(), last)
        optimizer = torch.optim.Adam(alone.parameters(), lr=0.01)
        for _ in range(4):
            optimizer.zero_grad()
            nn.functional.cross_entropy(alone(samples), codes).backward()
            optimizer.step()
        p = torch.softmax(alone(samples), 1).detach()
        assert_allclose(clf.predict_members(X)[m], p, atol=1e-4)


def clone_state(clf):
    return {name: x.clone() for name, x in clf.estimator_.module_.state_dict().items()}


def test_network_that_cannot_be_packed(iris):
    def module(input_shape, n_classes):
        return nn.Sequential(nn.Linear(4, 8), nn.Softmax(1), nn.Linear(8, n_classes))

    clf = ensemble(PackedEnsemble, max_epochs=1, random_state=0).fit(*iris)
    p = clf.predict_proba(iris[0])
    with pytest.raises(ValueError, match="Something in it mixes channels"):
        clf.set_params(estimator__module=module).fit(*iris)
    assert_array_equal(clf.predict_proba(iris[0]), p)
