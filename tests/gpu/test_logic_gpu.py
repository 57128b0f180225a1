"""Constraints on a GPU say what they say on the CPU."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from skood.logic import KnowledgeBase

pytestmark = pytest.mark.gpu

DOMAINS = {
    "class": [f"c{i}" for i in range(300)],
    "color": ["red", "blue", "white"],
    "other": ["red", "blue", "white"],
    "round": "bool",
}
RULES = [
    "class = c299 -> color = red and round",
    "class = c43 or color = other",
    "not (round xor color != blue) <-> class != c7",
]


@pytest.mark.parametrize("kind", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_truth_and_penalty(kind):
    kb = KnowledgeBase(RULES, DOMAINS)
    rng = np.random.default_rng(0)
    Z = rng.integers(0, kb.sizes, size=(1_500_000, 4))
    Z[:, 0] = rng.choice([7, 43, 255 if kind == torch.uint8 else 299], size=len(Z))
    codes = torch.as_tensor(Z).to(kind).cuda()
    result = kb.truth(codes)
    assert result.dtype == torch.bool
    assert result.device == codes.device
    truth = kb.truth(Z)
    assert (result.cpu().numpy() == truth).all()
    weights = rng.normal(size=3)
    assert (kb.penalty(codes, weights) == kb.penalty(Z, weights)).all()
    assert (kb.fit_weights(codes) == kb.fit_weights(Z)).all()
    assert (
        kb.pseudo_log_likelihood(codes[:50], weights)
        == kb.pseudo_log_likelihood(Z[:50], weights)
    ).all()


def test_boolean_codes_and_probabilities():
    kb = KnowledgeBase(["a and not b", "a xor b"], {"a": "bool", "b": "bool"})
    Z = torch.tensor([[False, False], [True, False], [True, True]], device="cuda")
    assert kb.truth(Z).tolist() == [[False, False], [True, True], [False, False]]
    with pytest.raises(ValueError, match="Column 0 holds the code 2"):
        kb.truth(Z.long() * 2)
    P = [torch.tensor([[0.25, 0.75]], device="cuda")] * 2
    assert_allclose(kb.expected(P), [[0.1875, 0.375]], rtol=1e-12)


def test_no_samples():
    kb = KnowledgeBase(RULES, DOMAINS)
    result = kb.truth(torch.empty((0, 4), dtype=torch.int64, device="cuda"))
    assert result.shape == (0, 3)
    assert result.is_cuda
