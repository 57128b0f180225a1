"""Largest probability of a class under a bound on the log posterior of a linear head.

The head has weights W (C classes, D features), and L(W) is its negative log posterior:
the sum of the cross entropies of the training samples, plus τ/2 ||W||². Around its
minimum W*, with L* = L(W*), the problem

    minimize f(W) = -log softmax(W x)_t  subject to  L(W) - L* <= γ

is convex. It is solved by sequential quadratic programming (SQP) for many pairs of a
point x and a class t at a time. The model of L has the Hessian H of W* with the BFGS
updates of each pair [1, chapter 18]. Steps in W then depend on C numbers u only:

    W = W_k - H⁻¹ g + H⁻¹ (u ⊗ x),  u = (e_t - p(x)) / λ,

which minimize f on an ellipsoid; H is factored once for all points.

Each evaluation of L and its gradient g at any W gives bounds on the minimum of f:

- the segment from W* to W, as L is convex, has L - L* <= γ up to its share
  min(1, γ / (L(W) - L*)), whose end gives an upper bound;
- for any λ > 0 and any W' with L(W') - L* <= γ, as L is strongly convex,

      f(W') >= f(W) + λ (L(W) - L* - γ) - ||∇f(W) + λ g||² / (2 λ τ),

  with its maximum over λ in closed form.

[1] J. Nocedal, S. J. Wright. Numerical Optimization. Springer, 2nd edition 2006.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import torch

from skood.epistemic.laplace._curvature import Full
from skood.utils._torch import row_chunks

# Bytes of the probabilities of training samples that are computed at a time: larger
# blocks do not fit in the caches of a CPU.
_CPU_BYTES = 2 * 2**20
_DEVICE_BYTES = 512 * 2**20

# Bytes of the states of pairs that are searched at a time.
_STATE_BYTES = 128 * 2**20

# A Newton step is accepted with this share of the decrease that it predicts.
_ARMIJO = 0.25

_TINY = 1e-300


class HeadPosterior:
    """Negative log posterior L of a linear head, in float64.

    `features` (n_samples, D), `codes` (n_samples,) class indices, `precision` τ > 0.
    """

    def __init__(self, features, codes, n_classes, precision):
        self.features, self.codes = features, codes
        self.n_classes, self.precision = n_classes, precision
        self._transposed = features.T.contiguous()
        one_hot = torch.zeros(len(codes), n_classes).to(features)
        one_hot[torch.arange(len(codes)), codes] = 1.0
        self._sums = (one_hot.T @ features).flatten()

    def evaluate(self, weights):
        """Return L (n_models,) and its gradient, of weights (n_models, C * D)."""
        on_cpu = weights.device.type == "cpu"
        budget = _CPU_BYTES if on_cpu else _DEVICE_BYTES
        each = 8 * self.n_classes * len(self.codes)
        parts = [
            self._block(weights[some])
            for some in row_chunks(len(weights), each, budget)
        ]
        losses, gradients = zip(*parts, strict=True)
        return torch.cat(losses), torch.cat(gradients)

    def _block(self, weights):
        n_models, shape = len(weights), (-1, self.features.shape[1])
        logits = weights.reshape(shape) @ self._transposed
        proba = torch.softmax(logits.view(n_models, self.n_classes, -1), dim=1)
        own = proba.gather(1, self.codes.expand(n_models, 1, -1))
        prior = self.precision / 2 * weights.square().sum(1)
        losses = prior - own.log().sum((1, 2))
        gradients = proba.view(-1, len(self.codes)) @ self.features
        gradients = gradients.view(n_models, -1) - self._sums
        return losses, gradients + self.precision * weights

    def hessian(self, weights):
        """Return the Hessian (C * D, C * D) of L at weights (C * D,)."""
        logits = self.features @ weights.view(self.n_classes, -1).T
        (total,) = Full.sums(self.features, logits, self.n_classes)
        total.diagonal().add_(self.precision)
        return total


def maximum_posterior(posterior, weights, max_iter=200):
    """Return the weights that minimize L, from initial weights, by Newton's method.

    Returns weights (C * D,), and the inverse of the Hessian there.
    """
    (loss,), (gradient,) = posterior.evaluate(weights[None])
    for _ in range(max_iter):
        factor = torch.linalg.cholesky(posterior.hessian(weights))
        step = torch.cholesky_solve(gradient[:, None], factor)[:, 0]
        decrement = float(step @ gradient)  # twice the decrease of the quadratic model
        # below the rounding error of L, and always after a full step
        if decrement <= 1e-20 * max(1.0, float(loss)):
            break
        share = 1.0
        while share > 1e-10:
            (new,), (at,) = posterior.evaluate((weights - share * step)[None])
            if new <= loss - _ARMIJO * share * decrement + 1e-13 * abs(loss):
                break
            share /= 2
        else:
            break
        weights, loss, gradient = weights - share * step, new, at
    return weights, torch.cholesky_inverse(factor).contiguous()


def attainable_bounds(posterior, center, inverse, points, gamma, options):
    """Return bounds on the largest attainable log-probability of each class.

    `center` (C * D,) are the weights W*, `inverse` the inverse of their Hessian,
    `points` (n_points, D) features. `options` has ``tol``, ``max_evaluations`` and
    ``all_classes``: whether to search until the bounds of each class, or only of the
    maximum over the classes that are not predicted, are within the relative gap `tol`.

    Returns log-probabilities (n_points, C): attained ones, and those no model exceeds.
    """
    shape = posterior.n_classes, points.shape[1]
    # states: weights, gradients and the products of H with C directions
    each = 8 * center.numel() * (posterior.n_classes + 40) * posterior.n_classes
    parts = [
        _Search(posterior, center.view(shape), inverse, points[some], gamma).run(
            options
        )
        for some in row_chunks(len(points), each, _STATE_BYTES)
    ]
    lower, upper = zip(*parts, strict=True)
    return torch.cat(lower), torch.cat(upper)


class _Search:
    """Searches of some points; a pair of a point and a class is a row of each state."""

    def __init__(self, posterior, center, inverse, points, gamma):
        self.posterior, self.center, self.inverse = posterior, center, inverse
        self.points, self.gamma = points, gamma
        (self.least,), _ = posterior.evaluate(center.view(1, -1))
        self.logits = points @ center.T
        self.lower = torch.log_softmax(self.logits, 1)
        self.upper = torch.zeros_like(self.lower)
        self.predicted = self.logits.argmax(1)

    def run(self, options):
        """Return bounds on the largest log-probabilities, see `attainable_bounds`."""
        if self.gamma == 0:
            return self.lower, self.lower.clone()
        pairs = self._open_pairs(options)
        state = self._start(pairs)
        for _ in range(options["max_evaluations"]):
            trial = self._step(state)
            self._update_bounds(state, trial)
            keep = self._open_pairs(options)[state["point"], state["target"]]
            if not keep.any():
                break
            state, trial = _rows(state, keep), _rows(trial, keep)
            self._accept(state, trial)
        return self.lower, self.upper

    def _open_pairs(self, options):
        """Return which pairs (n_points, C) are searched, as a mask."""
        tol = options["tol"]
        is_open = -torch.expm1(self.lower - self.upper) > tol
        if options["all_classes"]:
            return is_open
        other = torch.ones_like(is_open).scatter_(1, self.predicted[:, None], False)
        best = self.lower.masked_fill(~other, -torch.inf).amax(1, keepdim=True)
        # a class that cannot exceed the best one by more than the gap is settled
        return other & is_open & (-torch.expm1(best - self.upper) > tol)

    def _start(self, pairs):
        """Return the state of the pairs before the first step, at the center."""
        n_classes, width = self.center.shape
        point, target = pairs.nonzero(as_tuple=True)
        x = self.points[point]
        # H⁻¹ (e_c ⊗ x) for each class c
        products = self.inverse.view(-1, width) @ self.points.T
        products = products.view(-1, n_classes, len(self.points)).permute(2, 1, 0)
        zeros = self.center.new_zeros(len(x), self.center.numel())
        one_hot = torch.nn.functional.one_hot(target, n_classes).to(x)
        logits = self.logits[point]
        return {
            "point": point,
            "target": target,
            "x": x,
            "directions": products.contiguous()[point],
            "weights": self.center.flatten().expand(len(x), -1),
            "gradient": zeros,
            "newton": zeros,  # inverse of the updated Hessian times the gradient
            "plain": zeros,  # inverse of the Hessian at the center times it
            "excess": zeros[:, 0],
            "loss": -self.lower[point, target],
            "u": one_hot - torch.softmax(logits, 1),
            "multiplier": zeros[:, 0],
            "share": torch.ones_like(zeros[:, 0]),
            "updates": [],
        }

    def _step(self, state):
        """Return the next weights of each pair, evaluated."""
        x, shape = state["x"], (len(state["x"]), *self.center.shape)
        # logits of the point along the directions, (n_pairs, C, C)
        matrix = (
            state["directions"].reshape(*shape[:2], *shape[1:]) @ x[:, None, :, None]
        )
        matrix = matrix[..., 0]
        center = state["weights"] - state["newton"]
        decrease = 0.5 * (state["gradient"] * state["newton"]).sum(1)
        room = self.gamma - state["excess"] + decrease
        room = room.clamp_min(0.1 * self.gamma)
        u, multiplier = on_ellipsoid(
            _logits(center, x), matrix, state["target"], room, state["u"]
        )
        state["u"], state["multiplier"] = u, multiplier
        aim = center + torch.einsum("pc,pce->pe", u, state["directions"])
        share = state["share"][:, None]
        weights = torch.where(share == 1, aim, torch.lerp(state["weights"], aim, share))
        losses, gradients = self.posterior.evaluate(weights)
        logits = _logits(weights, x)
        log_proba = torch.log_softmax(logits, 1)
        return {
            "weights": weights,
            "gradient": gradients,
            "excess": losses - self.least,
            "logits": logits,
            "log_proba": log_proba,
            "loss": -_own(log_proba, state["target"]),
        }

    def _update_bounds(self, state, trial):
        """Update the bounds by the evaluated weights, see the head of this file."""
        point, target, excess = state["point"], state["target"], trial["excess"]
        finite = torch.isfinite(excess)
        share = (self.gamma / excess.clamp_min(_TINY)).clamp_max(1.0)[:, None]
        start = self.logits[point]
        logits = torch.where(
            finite[:, None], torch.lerp(start, trial["logits"], share), start
        )
        attained = _own(torch.log_softmax(logits, 1), target)
        tau, x = self.posterior.precision, state["x"]
        slope = trial["log_proba"].exp()
        slope[torch.arange(len(slope)), target] -= 1.0  # of f in the logits of x
        gradient = trial["gradient"]
        # maximum over λ of λ (L - L* - γ) - ||∇f + λ g||² / (2 λ τ)
        cross = (slope * _logits(gradient, x)).sum(1) / tau
        a = slope.square().sum(1) * x.square().sum(1) / (2 * tau)
        b = gradient.square().sum(1) / (2 * tau) - (excess - self.gamma)
        dual = trial["loss"] - cross - 2 * (a * b.clamp_min(0)).sqrt()
        dual = torch.where(finite & (b > 0), dual, 0.0).clamp_min(0)
        self.lower[point, target] = torch.maximum(self.lower[point, target], attained)
        self.upper[point, target] = torch.minimum(self.upper[point, target], -dual)

    def _accept(self, state, trial):
        """Update the Hessian of each pair, and move where the merit decreases."""
        gamma, penalty = self.gamma, 2 * state["multiplier"]
        before = state["loss"] + penalty * (state["excess"] - gamma).clamp_min(0)
        after = trial["loss"] + penalty * (trial["excess"] - gamma).clamp_min(0)
        better = (after <= before) & (trial["excess"] <= 2 * gamma)
        state["share"] = torch.where(
            better, (2 * state["share"]).clamp_max(1), state["share"] / 2
        )
        plain = trial["gradient"] @ self.inverse
        self._update_hessian(state, trial, plain)
        move = better[:, None]
        for name in ("weights", "gradient"):
            state[name] = torch.where(move, trial[name], state[name])
        for name in ("excess", "loss"):
            state[name] = torch.where(better, trial[name], state[name])
        state["plain"] = torch.where(move, plain, state["plain"])
        state["newton"] = _inverse_times(
            state["updates"], state["gradient"], state["plain"]
        )

    def _update_hessian(self, state, trial, plain):
        """Store a BFGS update of each pair, and update the directions by it."""
        s = trial["weights"] - state["weights"]
        y = trial["gradient"] - state["gradient"]
        product = (s * y).sum(1)
        # not after an overflow, or rounding errors: L is convex
        usable = torch.isfinite(y).all(1) & (product > 1e-14)
        s = torch.where(usable[:, None], s, 0.0)
        y = torch.where(usable[:, None], y, 0.0)
        plain_y = torch.where(usable[:, None], plain - state["plain"], 0.0)
        rho = torch.where(usable, 1 / product, 0.0)
        inverse_y = _inverse_times(state["updates"], y, plain_y)
        # (I - ρ s yᵀ) H⁻¹ (I - ρ y sᵀ) + ρ s sᵀ, times e_c ⊗ x
        along = rho[:, None] * _logits(s, state["x"])
        state["directions"] -= along[:, :, None] * inverse_y[:, None]
        across = (state["directions"] @ y[:, :, None])[..., 0]
        along = along - rho[:, None] * across
        state["directions"] += along[:, :, None] * s[:, None]
        state["updates"].append({"s": s, "y": y, "plain": plain_y, "rho": rho})


def _rows(state, keep):
    """Return the rows of all tensors of a state by a mask."""
    if keep.all():
        return state
    return {
        name: [_rows(update, keep) for update in value]
        if isinstance(value, list)
        else value[keep]
        for name, value in state.items()
    }


def _own(values, target):
    """Return the value of the target of each row."""
    return values.gather(1, target[:, None])[:, 0]


def _logits(weights, x):
    """Return the logits (n, C) of weights (n, C * D), each of its own point (n, D)."""
    return (weights.view(len(x), -1, x.shape[1]) @ x[:, :, None])[..., 0]


def _inverse_times(updates, vector, plain):
    """Return the inverse of each updated Hessian times a vector, by two loops.

    `plain` is the inverse of the Hessian without updates times the vector. [1],
    algorithm 7.4, with the products of the inverse known in place of the inverse.
    """
    shares = []
    for update in reversed(updates):
        share = update["rho"] * (update["s"] * vector).sum(1)
        shares.append(share)
        vector = vector - share[:, None] * update["y"]
        plain = plain - share[:, None] * update["plain"]
    for update, share in zip(updates, reversed(shares), strict=True):
        back = update["rho"] * (update["y"] * plain).sum(1)
        plain = plain + (share - back)[:, None] * update["s"]
    return plain


def on_ellipsoid(center, matrix, target, room, u, max_iter=60, tol=1e-6):
    """Minimize -log softmax(center + B u)_t for uᵀ B u / 2 <= r, row by row.

    `center` (n, C), `matrix` B (n, C, C), `target` t (n,), `room` r (n,), and `u` (n,
    C) to start from. The minimum is on the boundary, with λ u = e_t - p. Newton's
    method on these equations, with steps back to the boundary that are halved until
    the loss decreases. Returns u, and the multipliers λ (n,).
    """
    n_classes = center.shape[1]
    one_hot = torch.nn.functional.one_hot(target, n_classes).to(center)
    found = u.clone()
    multipliers = torch.zeros_like(room)
    rows = torch.arange(len(u), device=u.device)

    def scaled(u, center, matrix, one_hot, room):
        product = (matrix @ u[:, :, None])[..., 0]
        length = (room / (0.5 * (u * product).sum(1)).clamp_min(_TINY)).sqrt()[:, None]
        log_proba = torch.log_softmax(center + length * product, 1)
        return length * u, length * product, log_proba, -(log_proba * one_hot).sum(1)

    data = [center, matrix, one_hot, room]
    state = scaled(u, *data)
    size = torch.ones_like(room)
    for _ in range(max_iter):
        u, product, log_proba, loss = state
        center, matrix, one_hot, room = data
        proba = log_proba.exp()
        slope = one_hot - proba
        # the best multiplier for u: uᵀ B (λ u - slope) = 0, uᵀ B u = 2 r
        multiplier = ((product * slope).sum(1) / (2 * room)).clamp_min(_TINY)
        error = multiplier[:, None] * u - slope
        found[rows], multipliers[rows] = u, multiplier
        scale = slope.abs().amax(1)
        # nothing is left to gain where the class is certain, or no step succeeds
        todo = (error.abs().amax(1) > tol * scale) & (scale > 1e-9) & (size > 1e-6)
        if not todo.any():
            break
        if not todo.all():
            rows, size = rows[todo], size[todo]
            state = [part[todo] for part in state]
            data = [part[todo] for part in data]
            u, product, log_proba, loss = state
            center, matrix, one_hot, room = data
            proba, multiplier, error = proba[todo], multiplier[todo], error[todo]
        step = _newton_step(matrix, proba, u, product, multiplier, error)
        new = scaled(u + size[:, None] * step, *data)
        better = new[3] <= loss
        state = [
            torch.where(better.view(-1, *[1] * (old.ndim - 1)), part, old)
            for part, old in zip(new, state, strict=True)
        ]
        size = torch.where(better, (2 * size).clamp_max(1.0), size / 2)
    return found, multipliers


def _newton_step(matrix, proba, u, product, multiplier, error):
    """Return the Newton step of λ u + p(center + B u) = e_t along the boundary."""
    n, n_classes = u.shape
    system = u.new_zeros(n, n_classes + 1, n_classes + 1)
    curvature = proba[:, :, None] * (matrix - (proba[:, None] @ matrix))
    system[:, :n_classes, :n_classes] = curvature
    system[:, :n_classes, :n_classes].diagonal(dim1=1, dim2=2).add_(multiplier[:, None])
    system[:, :n_classes, -1] = u
    system[:, -1, :n_classes] = product
    right = torch.cat([-error, u.new_zeros(n, 1)], dim=1)
    return torch.linalg.solve_ex(system, right)[0][:, :n_classes]
