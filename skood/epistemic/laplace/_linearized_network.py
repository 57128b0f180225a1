"""Network linearized in its weights, and the curvature in these weights.

The diagonal of H, or the full H (see ``_curvature``), are sums over the Jacobians.
Kronecker factors per layer are computed by laplace-torch; only their eigenvalues and
eigenvectors are stored, as arrays.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import torch
from torch import nn
from torch.func import jacrev

from skood.epistemic._vectorized import Vectorized
from skood.epistemic.laplace._curvature import (
    DenseCurvature,
    Outputs,
    check_full,
    finite,
)
from skood.utils._linalg import symmetric_eigh
from skood.utils._torch import to_tensor


def _names(network, subset):
    """Return the names of the parameters of some layers of a network, in its order."""
    names = [name for name, _ in network.module.named_parameters()]
    if subset == "all":
        return names
    layers = sorted({name.rpartition(".")[0] for name in names})
    unknown = [
        layer
        for layer in subset
        if not any(name.startswith(f"{layer}.") for name in names)
    ]
    if unknown or not subset:
        raise ValueError(
            f"subset={subset!r}: {type(network.module).__name__} has no layers with "
            f"weights called {unknown}. Choose among {layers}, or pass 'all' or "
            "'last_layer'."
        )
    return [name for name in names if name.startswith(tuple(f"{s}." for s in subset))]


class Linearized(Outputs):
    """Outputs of an open network as a linear function of changes of its weights.

    f(x; w + δ) ≈ f(x; w) + J(x) δ, for a prepared network with `one_margin`; `subset`
    is "all" or names of layers. `weights` (n_weights,) are concatenated, in float64.
    """

    def __init__(self, network, subset):
        self.network, self.subset = network, subset
        self._given = network.weights(_names(network, subset))
        self.names = list(self._given)
        parts = [tensor.double().flatten() for tensor in self._given.values()]
        self.weights = torch.cat(parts)
        self.is_margin = network.is_margin
        self._derivatives = Vectorized(self._mapped_derivatives, self._row_derivatives)

    def read(self, batch):
        """Return Jacobians, of shape (n_rows, n_outputs, n_weights), and logits."""
        with torch.no_grad():
            jacobian, logits = self._derivatives(batch)
        if self.is_margin:
            jacobian = 2 * jacobian[:, 1:]  # the logit of the second class is m / 2
        return jacobian.double(), finite(logits.double())

    def _mapped_derivatives(self, row):
        """Return the Jacobian of the logits of a sample, and logits, under vmap."""
        jacobian, logits = jacrev(self._twice, has_aux=True)(self._given, row)
        parts = [part.reshape(len(part), -1) for part in jacobian.values()]
        return torch.cat(parts, 1), logits

    def _twice(self, weights, row):
        logits = self.network.logits(row[None], weights)[0]
        return logits, logits

    def _row_derivatives(self, row):
        """Return the Jacobian of the logits of a sample, and logits, class by class."""
        with torch.inference_mode(False), torch.enable_grad():
            weights = {k: w.clone().requires_grad_() for k, w in self._given.items()}
            logits, _ = self._twice(weights, row.clone())
            found = [
                torch.autograd.grad(
                    logit,
                    [*weights.values()],
                    retain_graph=True,
                    materialize_grads=True,
                )
                for logit in logits
            ]
        jacobian = [torch.cat([part.flatten() for part in parts]) for parts in found]
        return torch.stack(jacobian), logits.detach()

    def sums(self, hessian, features, logits):
        """Return a tuple of tensors: contribution of a batch to H or its diagonal."""
        check_full(hessian, self.weights.numel())
        p = torch.softmax(logits, 1)[:, :, None]
        features = self.to_logits(features, dim=1)
        # sum of p (J - mean)(J - mean)ᵀ, whose terms are not negative
        centered = features - (p * features).sum(1, keepdim=True)
        stacked = (p.sqrt() * centered).flatten(0, 1)
        if hessian == "diag":
            return ((stacked**2).sum(0),)
        return (stacked.T @ stacked,)

    def curvature(self, hessian, arrays, n_rows):
        """Return the curvature from sums over all training samples."""
        return Eigenbasis([arrays])

    def changes(self, features, draws):
        """Return changes of the logits, of shape (n_draws, n_rows, n_classes)."""
        return self.to_logits((features @ draws.T).movedim(-1, 0))


class Eigenbasis(DenseCurvature):
    """Block-diagonal H by the eigenvalues and eigenvectors of its blocks.

    A block is a tuple of one array, a diagonal (a vector) or a matrix, or of two, the
    factors B and A of a Kronecker product.
    """

    def __init__(self, blocks):
        self.vectors: list[tuple] = []
        values = []
        for block in blocks:
            if block[0].ndim == 1:
                self.vectors.append(())
                values.append(block[0])
                continue
            found = [symmetric_eigh(factor)[:2] for factor in block]
            self.vectors.append(tuple(vectors for _, vectors in found))
            value = np.maximum(found[0][0], 0)
            for other, _ in found[1:]:
                value = np.multiply.outer(value, np.maximum(other, 0))
            values.append(value)
        self.shapes = [value.shape for value in values]
        self.eigenvalues = np.concatenate([value.ravel() for value in values])

    def _turned(self, tensor, back):
        """Transform the last axis to the eigenvectors' coordinates, or back."""
        parts = []
        sizes = [int(np.prod(shape)) for shape in self.shapes]
        blocks = zip(tensor.split(sizes, -1), self.shapes, self.vectors, strict=True)
        for part, shape, vectors in blocks:
            bases = [to_tensor(v, tensor.device) for v in vectors]
            if back:
                bases = [basis.T for basis in bases]
            if len(bases) == 1:
                part = part @ bases[0]
            elif len(bases) == 2:
                matrix = part.unflatten(-1, shape)
                part = (bases[0].T @ matrix @ bases[1]).flatten(-2)
            parts.append(part)
        return torch.cat(parts, -1)

    def _scaled(self, features, precision):
        turned = self._turned(features, back=False)
        return turned * self.scales(precision, features.device)

    def draw(self, normals, precision):
        """See `Curvature`."""
        return self._turned(self._scaled(normals, precision), back=True)


class _Logits(nn.Module):
    """Open network as a module that returns logits."""

    def __init__(self, network):
        super().__init__()
        self.module = network.module
        self._logits = network.logits

    def forward(self, batch):
        return self._logits(batch)


class _Loader:
    """Iterable over batches of prepared samples and class indices."""

    def __init__(self, network, rows, codes, batch_size):
        self.dataset = codes
        self._rows, self._network = rows, network
        self._batch_size = batch_size

    def __iter__(self):
        start = 0
        for batch in self._network.batches(self._rows, self._batch_size):
            codes = self.dataset[start : start + len(batch)]
            yield batch, codes
            start += len(batch)


def laplace_torch():
    """Return ``Laplace`` of laplace-torch, or raise with the reason."""
    try:
        from laplace import Laplace
    except ImportError as error:
        needs = "hessian='kron' for other weights than the last layer's needs the "
        if isinstance(error, ModuleNotFoundError) and error.name == "laplace":
            needs += 'package laplace-torch: pip install "skood[laplace]". Or use '
        else:
            needs += (
                f"package laplace-torch, which cannot be imported here ({error}): "
                'pip install --upgrade "skood[laplace]". Or use '
            )
        raise ImportError(f"{needs}subset='last_layer' or hessian='diag'.") from error
    return Laplace


def kronecker_curvature(part, rows, codes, batch_size, verbose=0):
    """Compute Kronecker factors for each layer by laplace-torch.

    `part` is a `Linearized`, `codes` (n_rows,) are class indices of the prepared
    samples. Returns the generalized Gauss-Newton matrix, an `Eigenbasis`, and the
    log-likelihood.
    """
    network, subset = part.network, part.subset
    for name, parameter in network.module.named_parameters():
        parameter.requires_grad_(name in part.names)
    model = _Logits(network)
    codes = torch.from_numpy(codes).to(network.device)
    posterior = laplace_torch()(
        model,
        likelihood="classification",
        subset_of_weights="all",
        hessian_structure="kron",
    )
    loader = _Loader(network, rows, codes, batch_size)
    try:
        posterior.fit(loader, progress_bar=bool(verbose))
    except NotImplementedError as error:
        raise ValueError(
            "laplace-torch has no Kronecker factors for some of the layers of "
            f"subset={subset!r}: {error} Name linear and convolutional layers only, or "
            "use hessian='diag'."
        ) from error
    arrays = [
        tuple(factor.detach().double().cpu().numpy() for factor in factors)
        for factors in posterior.H_facs.kfacs
    ]
    return Eigenbasis(arrays), -float(posterior.loss)
