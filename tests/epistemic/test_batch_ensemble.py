"""What is special to `BatchEnsemble`; the rest is in test_implicit_ensemble."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pytest
import torch
from numpy.testing import assert_allclose

from skood.epistemic import BatchEnsemble
from skood.epistemic.implicit._batch_ensemble import BatchEnsembleLinear
from tests.epistemic._member_nets import ensemble


@pytest.mark.parametrize("n_members", [1, 5])
def test_layers(n_members, iris):
    clf = ensemble(BatchEnsemble, n_members=n_members, max_epochs=1).fit(*iris)
    layer = clf.estimator_.module_.body.linear_1
    assert isinstance(layer, BatchEnsembleLinear)
    assert layer.weight.shape == (100, 4)
    assert layer.r.shape == (n_members, 4)
    assert layer.s.shape == layer.bias.shape == (n_members, 100)


def test_start_of_the_factors(iris):
    """A learning rate that moves nothing shows what they start from."""
    clf = ensemble(BatchEnsemble, max_epochs=1, lr=1e-12, random_state=0)
    factors = clf.fit(*iris).estimator_.module_.body.linear_1.s.detach()
    assert set(factors.round().unique().tolist()) == {-1.0, 1.0}
    clf.set_params(factor_init="normal").fit(*iris)
    factors = clf.estimator_.module_.body.linear_1.s.detach()
    assert abs(float(factors.mean()) - 1) < 0.1
    assert abs(float(factors.std()) - 0.5) < 0.1


def test_factors_and_common_weights_are_trained(iris):
    clf = ensemble(BatchEnsemble, max_epochs=1, lr=1e-12, random_state=0)
    start = clf.fit(*iris).estimator_.module_.state_dict()
    clf.set_params(estimator__lr=0.01).fit(*iris)
    for name, result in clf.estimator_.module_.state_dict().items():
        moved = (result - start[name]).abs()
        assert 1e-3 < float(moved.max()) < 0.1, name


def test_single_member_is_the_mixture(iris):
    X, y = iris
    clf = ensemble(BatchEnsemble, n_members=1, max_epochs=3, random_state=0).fit(X, y)
    assert_allclose(clf.predict_members(X)[0], clf.predict_proba(X), rtol=1e-12)
    assert (clf.predict_uncertainty(X).epistemic < 1e-14).all()


def test_weights_of_other_layers_are_shared(iris):
    def module(input_shape, n_classes):
        return torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.PReLU(8), torch.nn.Linear(8, n_classes)
        )

    clf = ensemble(BatchEnsemble, module, max_epochs=20, lr=0.02, random_state=0)
    assert clf.fit(*iris).score(*iris) > 0.8
    assert clf.estimator_.module_.body[1].weight.shape == (8,)
