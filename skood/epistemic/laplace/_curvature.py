"""Curvature of the cross-entropy in the weights of a linear head (Laplace).

A head has Q outputs of D features; the last feature is 1 if there is a bias. For a
sample with features φ and probabilities p, the Hessian of the cross-entropy in the
weights (in row-major order) is G ⊗ φφᵀ with G = diag(p) - ppᵀ: it does not depend on
the label and is also the Fisher information and the generalized Gauss-Newton matrix.
The sum H over the training samples is stored in one of three forms, each with its
eigenvalues, so that computations with H + τI are cheap for any prior precision τ.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from scipy.optimize import brentq
from torch import nn
from torch.func import jacrev

from skood.epistemic._likelihood import check_residuals
from skood.epistemic._measures import gaussian_uncertainty
from skood.epistemic._vectorized import Vectorized
from skood.utils._array_api import sent_once
from skood.utils._linalg import symmetric_eigh
from skood.utils._optional import pip_install
from skood.utils._torch import row_chunks

# Smaller curvatures and weights count as zero.
_LEAST = 1e-200

# Features whose products with all others and with all pairs of outputs are one matrix.
_BLOCK = 8

# Maximum size in bytes of a matrix for the computation of eigenvectors.
_MATRIX_BYTES = 4 * 2**30


class Outputs:
    """Logits, or a binary margin m of logits (-m/2, m/2), of uncertain weights."""

    is_margin: bool

    def to_logits(self, outputs, dim=-1):
        """Return the logits, or changes of these, of outputs along an axis."""
        if not self.is_margin:
            return outputs
        return torch.cat([-outputs, outputs], dim=dim) / 2

    def class_moments(self, variances, row_sums):
        """Return variances and row sums of the logits' covariance from the outputs'."""
        if not self.is_margin:
            return variances, row_sums
        return variances.expand(-1, 2) / 4, torch.zeros_like(variances.expand(-1, 2))

    def class_covariances(self, covariances):
        """Return covariances of the logits from covariances of the outputs."""
        return self.to_logits(self.to_logits(covariances), dim=-2)


class LastLayer(Outputs):
    """Linear head of a prepared `FunctionalNetwork`; `weights` include biases."""

    def __init__(self, network):
        if network.head_name is None:
            raise ValueError(
                "subset='last_layer' is about the torch.nn.Linear that gives the "
                f"logits, but the logits of {type(network.module).__name__} are not "
                "the output of one. Use subset='all' or a list of its layers."
            )
        self.network = network
        self._layer = network.module.get_submodule(network.head_name)
        parts = [self._layer.weight.detach().double()]
        if self._layer.bias is not None:
            parts.append(self._layer.bias.detach().double()[:, None])
        self._has_bias = len(parts) == 2
        self.weights = torch.cat(parts, dim=1)
        self.is_margin = len(self.weights) == 1

    def read(self, batch):
        """Return float64 input (n, n_features), with ones for biases, and logits."""
        inputs = []
        handle = self._layer.register_forward_pre_hook(
            lambda module, args: inputs.append(args[0].detach().double())
        )
        try:
            with torch.no_grad():
                logits = self.network.logits(batch).double()
        finally:
            handle.remove()
        features = inputs[-1].clone()
        if self._has_bias:
            features = torch.cat([features, torch.ones_like(features[:, :1])], dim=1)
        return features, finite(logits)

    def sums(self, hessian, features, logits):
        """Return a batch's contribution to the sums for a form of H (tensors)."""
        check_full(hessian, self.weights.numel())
        return STRUCTURES[hessian].sums(features, logits, len(self.weights))

    def curvature(self, hessian, arrays, n_samples):
        """Return the curvature from sums over all training samples."""
        return STRUCTURES[hessian](*arrays, n_samples=n_samples)

    def changes(self, features, draws):
        """Return changes (n_draws, n_rows, n_classes) of the logits by draws."""
        return self.to_logits(features @ draws.transpose(1, 2))


def check_full(hessian, n_weights):
    """Raise if the full H would be too large a matrix."""
    if hessian == "full" and 8 * n_weights**2 > _MATRIX_BYTES:
        raise ValueError(
            f"hessian='full' needs a matrix over all {n_weights:,} weights, of "
            f"{8e-9 * n_weights**2:.3g} GB, and its eigenvectors. Use hessian='kron' "
            "or 'diag', or a list of small layers as subset."
        )


def finite(logits):
    """Return logits, or raise if one is not finite."""
    bad = ~torch.isfinite(logits).all(dim=1)
    if bad.any():
        raise ValueError(
            f"The network returned NaN or infinite logits for {int(bad.sum())} of "
            f"{len(logits)} samples: their values are too large for it. Scale the "
            "features."
        )
    return logits


def _output_probabilities(logits, n_outputs):
    """Return probabilities p of the outputs, and 1 - p without cancellation."""
    p = torch.softmax(logits, dim=1)
    top = p.argmax(dim=1, keepdim=True)
    others = (1 - p).scatter(1, top, p.scatter(1, top, 0.0).sum(1, keepdim=True))
    return p[:, -n_outputs:], others[:, -n_outputs:]


class Curvature:
    """Base class of the forms of H, with the methods of `Diagonal`.

    A form for heads is created from the sums over all training samples of the tensors
    that its ``sums(features, logits, n_outputs)`` returns, and their number. Its state
    consists of a few arrays.
    """

    eigenvalues: np.ndarray

    def scales(self, precision, device):
        """Return standard deviations along the eigenvectors, as a tensor."""
        return 1 / (sent_once(self.eigenvalues, device) + precision).sqrt()


class Diagonal(Curvature):
    """Diagonal of H: the weights are independent."""

    def __init__(self, total, *, n_samples):
        self.eigenvalues = total

    @staticmethod
    def sums(features, logits, n_outputs):
        p, others = _output_probabilities(logits, n_outputs)
        return ((p * others).T @ features**2,)

    def variances(self, features, precision):
        """Return variances of the outputs, of shape (n_samples, n_outputs)."""
        return features**2 @ self.scales(precision, features.device).T ** 2

    def row_sums(self, features, precision):
        """Return row sums of the covariance of the outputs, of the same shape."""
        return self.variances(features, precision)

    def covariances(self, features, precision):
        """Return covariances of the outputs, (n_samples, n_outputs, n_outputs)."""
        return torch.diag_embed(self.variances(features, precision))

    def draw(self, normals, precision):
        """Map normals of shape (S, n_outputs, n_features) to changes of the weights.

        Uses the symmetric root of the covariance: the root by eigenvectors, which are
        not unique where eigenvalues are equal, would change with rounding.
        """
        return normals * self.scales(precision, normals.device)


class Kronecker(Curvature):
    """Kronecker factorization of H as B ⊗ A: sum of the G and mean of the φφᵀ."""

    def __init__(self, outputs, inputs, *, n_samples):
        out_values, self.out_vectors, _ = symmetric_eigh(outputs)
        in_values, self.in_vectors, _ = symmetric_eigh(inputs / n_samples)
        out_values, in_values = np.maximum(out_values, 0), np.maximum(in_values, 0)
        self.eigenvalues = np.multiply.outer(out_values, in_values)

    @staticmethod
    def sums(features, logits, n_outputs):
        p, others = _output_probabilities(logits, n_outputs)
        outputs = -p.T @ p
        outputs.diagonal().copy_((p * others).sum(0))
        return outputs, features.T @ features

    def _along_outputs(self, features, precision):
        """Return the variances along the eigenvectors of B, and the eigenvectors."""
        vectors = sent_once(self.out_vectors, features.device)
        turned = features @ sent_once(self.in_vectors, features.device)
        return turned**2 @ self.scales(precision, features.device).T ** 2, vectors

    def variances(self, features, precision):
        along, vectors = self._along_outputs(features, precision)
        return along @ vectors.T**2

    def row_sums(self, features, precision):
        along, vectors = self._along_outputs(features, precision)
        return (along * vectors.sum(0)) @ vectors.T

    def covariances(self, features, precision):
        along, vectors = self._along_outputs(features, precision)
        return (vectors * along[:, None]) @ vectors.T

    def pair_variances(self, features, precision, block_bytes):
        """Yield slices of samples and outputs k, and the variances of k minus each l.

        The covariance of a sample is sum_j g_j u_j u_j^T with g_j = sum_i t_i^2 / (b_j
        a_i + τ). As a matrix over i and j the fractions have a numerical rank r of some
        tens, so that all covariances are sums of the same r matrices: a sample takes r
        times the square of the number of outputs, instead of its third power.
        """
        vectors = sent_once(self.out_vectors, features.device)
        turned = features @ sent_once(self.in_vectors, features.device)
        vectors = vectors - vectors.mean(0)  # preserves differences of outputs
        lengths = (vectors**2).sum(0).clamp_min(torch.finfo(vectors.dtype).tiny)
        fractions = lengths[:, None] * self.scales(precision, features.device) ** 2
        # so that rounding is relative to the contribution of each feature
        largest = fractions.amax(0)
        left, values, right = torch.linalg.svd(fractions / largest, full_matrices=False)
        rank = int((values > torch.finfo(values.dtype).eps * values[0]).sum())
        factors = (turned**2 * largest) @ right[:rank].T
        terms = left[:, :rank] * values[:rank] / lengths[:, None]
        variances = factors @ (vectors**2 @ terms).T
        n_outputs = len(vectors)
        for classes in row_chunks(n_outputs, 8 * rank * n_outputs, block_bytes):
            matrices = (vectors[classes] * terms.T[:, None]) @ vectors.T
            block = matrices.shape[1:]
            for chunk in row_chunks(len(features), 8 * block.numel(), block_bytes):
                values_of_pairs = (factors[chunk] @ matrices.flatten(1)).unflatten(
                    1, block
                )
                values_of_pairs.mul_(-2).add_(variances[chunk, classes, None])
                yield chunk, classes, values_of_pairs.add_(variances[chunk, None])

    def draw(self, normals, precision):
        left = sent_once(self.out_vectors, normals.device)
        right = sent_once(self.in_vectors, normals.device)
        scaled = left.T @ normals @ right * self.scales(precision, normals.device)
        return left @ scaled @ right.T


class DenseCurvature(Curvature):
    """Base class of forms of H with eigenvectors over all weights."""

    _scaled: Callable  # scaled Jacobians (n_samples, n_outputs, n_weights)

    def variances(self, features, precision):
        return (self._scaled(features, precision) ** 2).sum(-1)

    def row_sums(self, features, precision):
        scaled = self._scaled(features, precision)
        return (scaled @ scaled.sum(1)[:, :, None])[:, :, 0]

    def covariances(self, features, precision):
        scaled = self._scaled(features, precision)
        return scaled @ scaled.transpose(1, 2)


class Full(DenseCurvature):
    """Full H, a square matrix over all weights of the head."""

    def __init__(self, *grams, n_samples):
        values, self.vectors, _ = symmetric_eigh(self.matrix(*grams))
        self.eigenvalues = np.maximum(values, 0)

    @staticmethod
    def matrix(*grams):
        """Return H from sums over samples."""
        n_pairs, width = grams[0].shape[1:]
        n_outputs = (math.isqrt(8 * n_pairs + 1) - 1) // 2
        first, second = np.triu_indices(n_outputs)
        total = np.empty((n_outputs, width, n_outputs, width))
        for start, gram in zip(range(0, width, _BLOCK), grams, strict=True):
            rows, others = slice(start, start + len(gram)), slice(start, None)
            for k, m in ((first, second), (second, first)):
                total[k, others, m, rows] = gram.transpose(1, 2, 0)
                total[k, rows, m, others] = gram.transpose(1, 0, 2)
        return total.reshape(n_outputs * width, -1)

    @staticmethod
    def sums(features, logits, n_outputs):
        """Return Grams of pairs of outputs k <= m: blocks of features, pairs, features.

        They are symmetric in the features, and G in the outputs.
        """
        p, others = _output_probabilities(logits, n_outputs)
        first, second = torch.triu_indices(n_outputs, n_outputs, device=p.device)
        curvatures = torch.where(
            first == second,
            p[:, first] * others[:, second],
            -p[:, first] * p[:, second],
        )
        grams = []
        for start in range(0, features.shape[1], _BLOCK):
            block = features[:, start : start + _BLOCK, None] * curvatures[:, None]
            gram = block.flatten(1).T @ features[:, start:]
            grams.append(gram.unflatten(0, block.shape[1:]))
        return tuple(grams)

    def _scaled(self, features, precision):
        half = sent_once(self.vectors, features.device)
        half = half * self.scales(precision, features.device)
        scaled = features @ half.view(-1, features.shape[1], len(half))
        return scaled.transpose(0, 1)

    def draw(self, normals, precision):
        vectors = sent_once(self.vectors, normals.device)
        turned = normals.flatten(1) @ vectors * self.scales(precision, normals.device)
        return (turned @ vectors.T).view(normals.shape)


STRUCTURES: dict = {"diag": Diagonal, "full": Full, "kron": Kronecker}


def log_marginal_likelihood(log_likelihood, eigenvalues, square_norm, precision):
    """Return log p(D|w) - τ/2 ||w||^2 - 1/2 sum_i log((h_i + τ) / τ), in nats."""
    log_ratio = np.sum(np.log1p(np.asarray(eigenvalues) / precision))
    return float(log_likelihood - 0.5 * (precision * square_norm + log_ratio))


def best_precision(eigenvalues, square_norm):
    """Return the prior precision with the largest marginal likelihood.

    It is the root of sum_i h_i / (h_i + τ) = τ ||w||^2, whose left side decreases and
    right side increases with τ, so that there is at most one.
    """
    h = np.asarray(eigenvalues, dtype=np.float64).ravel()
    largest = float(h.max())
    if largest * square_norm < _LEAST:
        raise ValueError(
            "prior_precision='marglik' finds no best value: "
            + (
                "the weights are zero, and the larger it is, the better."
                if square_norm < _LEAST
                else "the network is so sure of all training samples that the "
                "curvature of its loss vanishes."
            )
            + " Pass a number."
        )
    # a single eigenvalue gives a root below, all eigenvalues with h << τ a root above
    ratio = 4 / (largest * square_norm)
    low = 2 / square_norm / (1 + np.sqrt(1 + ratio))
    high = min(len(h) / square_norm, np.sqrt(h.sum() / square_norm))

    def slope(log_precision):
        precision = np.exp(log_precision)
        return np.sum(h / (h + precision)) - precision * square_norm

    # rounding may put the root of a single eigenvalue just outside
    bracket = np.log(low) - 1e-6, np.log(high) + 1e-6
    return float(np.exp(brentq(slope, *bracket, xtol=1e-13, rtol=1e-14)))


class GaussianHead:
    """Normal distribution of weights, by eigenvectors of its inverse covariance."""

    def __init__(self, vectors, eigenvalues):
        self.vectors, self.eigenvalues = vectors, eigenvalues

    @property
    def covariance(self):
        """Covariance of the weights."""
        return self.vectors / self.eigenvalues @ self.vectors.T

    def spread(self, features):
        """Return the variance of the output, (n_rows,)."""
        half = self.vectors / np.sqrt(self.eigenvalues)
        return np.square(features @ half).sum(axis=1)

    def draws(self, n_samples, seed):
        """Return changes of the weights, (n_samples, n_weights)."""
        rng = np.random.default_rng(seed)
        normals = rng.standard_normal((n_samples, len(self.vectors)))
        # the symmetric root: eigenvectors are not unique where eigenvalues are equal
        turned = normals @ self.vectors / np.sqrt(self.eigenvalues)
        return turned @ self.vectors.T


class GaussianFit:
    """Posterior `head` of a linear output, from passes over the training samples.

    `passes` yields features and outputs, `weights` are the given ones, and `variance`
    (None: the network predicts it) and `precision` are chosen if they are "marglik".
    """

    def __init__(self, passes, y, weights, variance, precision):
        gram, residuals, variances = _sums(passes, y, variance == "network")
        values, vectors, _ = symmetric_eigh(gram)
        values, square_norm = np.maximum(values, 0.0), float((weights**2).sum())
        self.variance = self._chosen_variance(
            variance, precision, values, square_norm, residuals, y
        )
        if self.variance is not None:
            values, variances = values / self.variance, self.variance
        if precision == "marglik":
            precision = best_precision(values, square_norm)
        self.precision = float(precision)
        log_p = -0.5 * (residuals**2 / variances + np.log(2 * np.pi * variances))
        self.log_marginal_likelihood = log_marginal_likelihood(
            log_p.sum(), values, square_norm, self.precision
        )
        self.head = GaussianHead(vectors, values + self.precision)

    def _chosen_variance(self, variance, precision, values, square_norm, residuals, y):
        """Return the variance of the targets; None if the network predicts it."""
        n_samples, square_error = len(residuals), float(np.sum(residuals**2))
        if variance in ("marglik", "residuals"):
            check_residuals(square_error / n_samples, y)
        if variance == "residuals":
            variance = square_error / n_samples
        if variance == "marglik":
            known = None if precision == "marglik" else precision
            variance = best_variance(
                values, square_norm, square_error, n_samples, known
            )
        return None if variance == "network" else float(variance)


def _sums(passes, y, is_predicted):
    """Return the sum of φφ^T / σ^2, residuals, and the σ^2, 1 if not predicted."""
    gram, residuals, variances, start = 0.0, [], [], 0
    for features, outputs in passes:
        stop = start + len(outputs)
        residuals.append(y[start:stop] - outputs[:, 0])
        variance = np.exp(outputs[:, 1]) if is_predicted else np.ones(len(outputs))
        variances.append(variance)
        gram = gram + (features / variance[:, None]).T @ features
        start = stop
    return gram, np.concatenate(residuals), np.concatenate(variances)


def exact_uncertainty(normals, spread, setting):
    """Return the uncertainty for a normal distribution of the mean."""
    # divergences are quadratic in the mean: their averages over the distribution and
    # over two points, one standard deviation away, are the same
    (mean, variance), std = normals, np.sqrt(spread)
    members = np.stack([mean - std, mean + std])
    return gaussian_uncertainty(
        members,
        variance if np.ndim(variance) == 0 else np.stack([variance] * 2),
        reference=normals,
        setting=setting,
    )


def best_variance(eigenvalues, square_norm, square_error, n_samples, precision=None):
    """Return the variance of the targets with the largest marginal likelihood.

    With γ = sum_j λ_j / (λ_j + ρ) and ρ = τ σ^2 it is σ^2 = `square_error` / (n - γ);
    for an unknown `precision` τ = γ / `square_norm`. Each is one equation for ρ with
    one root: γ decreases with ρ.
    """
    values = eigenvalues[eigenvalues > 0]
    if len(values) == 0 or (precision is None and square_norm == 0):
        raise ValueError(
            "variance='marglik' finds no best value: the features, or the weights, of "
            "the last layer are zero. Pass numbers as variance and prior_precision."
        )

    def slope(log_ratio):
        ratio = np.exp(log_ratio)
        # n - γ, without cancellation
        factors = ratio / (values + ratio)
        left = n_samples - len(values) + factors.sum()
        if precision is None:
            return ratio * left * square_norm - (1 - factors).sum() * square_error
        return ratio * left - precision * square_error

    low = high = np.log(values.mean())
    while slope(low) > 0:
        low -= 5.0
    while slope(high) < 0:
        high += 5.0
    ratio = np.exp(brentq(slope, low, high, xtol=1e-13, rtol=1e-14))
    left = n_samples - len(values) + (ratio / (values + ratio)).sum()
    return square_error / left


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
        self._initial = network.weights(_names(network, subset))
        self.names = list(self._initial)
        parts = [tensor.double().flatten() for tensor in self._initial.values()]
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
        jacobian, logits = jacrev(self._twice, has_aux=True)(self._initial, row)
        parts = [block.reshape(len(block), -1) for block in jacobian.values()]
        return torch.cat(parts, 1), logits

    def _twice(self, weights, row):
        logits = self.network.logits(row[None], weights)[0]
        return logits, logits

    def _row_derivatives(self, row):
        """Return the Jacobian of the logits of a sample, and logits, class by class."""
        with torch.inference_mode(False), torch.enable_grad():
            weights = {k: w.clone().requires_grad_() for k, w in self._initial.items()}
            logits, _ = self._twice(weights, row.clone())
            differentiate = partial(
                torch.autograd.grad,
                inputs=[*weights.values()],
                retain_graph=True,
                materialize_grads=True,
            )
            gradients = [*map(differentiate, logits)]
        jacobian = [torch.cat([g.flatten() for g in row]) for row in gradients]
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

    def curvature(self, hessian, arrays, n_samples):
        """Return the curvature from sums over all training samples."""
        return Eigenbasis([arrays])

    def changes(self, features, draws):
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
            decompositions = [symmetric_eigh(factor)[:2] for factor in block]
            self.vectors.append(tuple(vectors for _, vectors in decompositions))
            value = np.maximum(decompositions[0][0], 0)
            for other, _ in decompositions[1:]:
                value = np.multiply.outer(value, np.maximum(other, 0))
            values.append(value)
        self.shapes = [value.shape for value in values]
        self.eigenvalues = np.concatenate([value.ravel() for value in values])

    def _turned(self, tensor, back):
        """Transform the last axis to the eigenvectors' coordinates, or back."""
        parts = []
        sizes = [int(np.prod(shape)) for shape in self.shapes]
        blocks = zip(tensor.split(sizes, -1), self.shapes, self.vectors, strict=True)
        for coordinates, shape, vectors in blocks:
            bases = [sent_once(v, tensor.device) for v in vectors]
            if back:
                bases = [basis.T for basis in bases]
            if len(bases) == 1:
                coordinates = coordinates @ bases[0]
            elif len(bases) == 2:
                matrix = coordinates.unflatten(-1, shape)
                coordinates = (bases[0].T @ matrix @ bases[1]).flatten(-2)
            parts.append(coordinates)
        return torch.cat(parts, -1)

    def _scaled(self, features, precision):
        turned = self._turned(features, back=False)
        return turned * self.scales(precision, features.device)

    def draw(self, normals, precision):
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

    def __init__(self, network, samples, codes, batch_size):
        self.dataset = codes
        self._network, self._samples, self._batch_size = network, samples, batch_size

    def __iter__(self):
        batches = self._network.batches(self._samples, self._batch_size)
        return zip(batches, self.dataset.split(self._batch_size), strict=True)


def laplace_torch():
    """Return ``Laplace`` of laplace-torch, or raise with the reason."""
    try:
        from laplace import Laplace
    except ImportError as error:
        needs = "hessian='kron' for other weights than the last layer's needs the "
        if isinstance(error, ModuleNotFoundError) and error.name == "laplace":
            needs += f"package laplace-torch: {pip_install('laplace')}. Or use "
        else:
            needs += (
                f"package laplace-torch, which cannot be imported here ({error}): "
                f"{pip_install('laplace')}. Or use "
            )
        raise ImportError(f"{needs}subset='last_layer' or hessian='diag'.") from error
    return Laplace


def kronecker_curvature(linearized, samples, codes, batch_size, verbose=0):
    """Return the `Eigenbasis` of a `Linearized`, and the log-likelihood."""
    network, subset = linearized.network, linearized.subset
    for name, parameter in network.module.named_parameters():
        parameter.requires_grad_(name in linearized.names)
    codes = torch.from_numpy(codes).to(network.device)
    posterior = laplace_torch()(
        _Logits(network),
        likelihood="classification",
        subset_of_weights="all",
        hessian_structure="kron",
    )
    loader = _Loader(network, samples, codes, batch_size)
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
