"""Precision of the tests on a GPU."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pytest
import torch


@pytest.fixture(autouse=True)
def full_precision():
    """Convolutions in TF32 have three digits only."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before
