"""What metrics, rules with one score and KNN cost, against an argsort and its peers.

CPU seconds on one thread, minimum over repeats, for two numbers of samples, half of
them OOD except for `aurc`. Each line ends with OK, or with "missed" if the ratio to the
argsort of the same scores, in the same run, is above the target; so do lines of `solve`
and `selective_risk_at`, in alternation with the same search in plain NumPy, by the
median of ratios. Scores by KNN, on features in float32, are compared with scikit-learn
and, if installed, with faiss::

    python benchmarks/metrics.py
    python benchmarks/metrics.py --sizes 100000 --repeat 50
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import time
from importlib.util import find_spec

import numpy as np
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

from skood.detectors import KNN
from skood.metrics import aurc, oscr, selective_risk_at
from skood.rejection import (
    BoundedAbstention,
    BoundedTPRFPR,
    ScoredSamples,
    solve,
)

TARGET = 2.0
TARGET_OF_SEARCHES = 1.5  # of NumPy


def seconds(function, repeat):
    """Return the least CPU seconds of a call."""
    found = []
    for _ in range(repeat):
        start = time.process_time()
        function()
        found.append(time.process_time() - start)
    return min(found)


def cases(n, seed):
    """Return scores, and a call without arguments for each name."""
    rng = np.random.default_rng(seed)
    score, y = rng.normal(size=n), rng.integers(0, 10, n)
    wrong = rng.random(n) < 0.2
    y_pred, y_open = (y + wrong) % 10, np.where(rng.random(n) < 0.5, -1, y)
    loss, half = wrong.astype(float), n // 2
    pair = score[:half], None, loss[:half], score[half:], None
    tpr_fpr, abstention = BoundedTPRFPR(0.5, 0.9), BoundedAbstention(0.7)
    return score, {
        "aurc": lambda: aurc(y, y_pred, score),
        "oscr": lambda: oscr(y_open, y_pred, score),
        "solve, TPR-FPR": lambda: solve(tpr_fpr, ScoredSamples.from_arrays(*pair)),
        "solve, abstention": lambda: solve(
            abstention, ScoredSamples.from_arrays(score, None, loss, None, None)
        ),
    }


def least_risk(risk_id, loss_id, risk_ood):
    """Return the least selective risk at a TPR of .5 and an FPR of .9, by NumPy."""
    scores, n_id = np.concatenate([risk_id, risk_ood]), risk_id.size
    order = np.argsort(scores)
    ranked, loss = scores[order], np.append(loss_id, np.zeros(risk_ood.size))[order]
    N, E = np.cumsum(order < n_id), np.cumsum(loss)
    F = np.arange(1, ranked.size + 1) - N
    allowed = np.append(ranked[1:] != ranked[:-1], True)
    allowed &= (N >= 0.5 * n_id) & (F <= 0.9 * risk_ood.size)
    return np.where(allowed, E / np.maximum(N, 1), np.inf).min()


def searches(n, repeat, seed):
    """Print what the search of a rule takes next to NumPy, from scores and labels."""
    rng = np.random.default_rng(seed)
    score, y = rng.normal(size=n), rng.integers(0, 10, n)
    y_pred, y_open = (y + (rng.random(n) < 0.2)) % 10, np.where(y == 0, -1, y)
    loss = (y_pred != y).astype(float)
    rule, arrays = BoundedTPRFPR(0.5, 0.9), (score[y > 0], loss[y > 0], score[y == 0])

    def of_scores():
        return least_risk(*arrays)

    def of_labels():
        is_ood = y_open == -1
        lost = (y_pred[~is_ood] != y_open[~is_ood]).astype(float)
        return least_risk(-score[~is_ood], lost, -score[is_ood])

    def solved():
        risk_id, loss_id, risk_ood = arrays
        samples = ScoredSamples.from_arrays(risk_id, None, loss_id, risk_ood, None)
        return solve(rule, samples).risk

    def at_bounds():
        return selective_risk_at(y_open, y_pred, score, rule=rule).risk

    pairs = {"solve": (solved, of_scores), "selective_risk_at": (at_bounds, of_labels)}
    for name, (ours, peer) in pairs.items():
        if ours() != peer():
            raise AssertionError(f"{name}: {ours()} is not {peer()} of NumPy")
        ratio = np.median([seconds(ours, 1) / seconds(peer, 1) for _ in range(repeat)])
        verdict = "OK" if ratio <= TARGET_OF_SEARCHES else "missed"
        print(
            f"{n:>9,} {name} over NumPy: {ratio:.2f} ({TARGET_OF_SEARCHES}) {verdict}"
        )


def nearest_neighbors(n, n_features, repeat, seed):
    """Print what one sample, and 32, cost in a bank of `n` samples of unit length."""
    rng = np.random.default_rng(seed)
    bank = 1 + rng.normal(size=(n, n_features)).astype(np.float32)
    bank /= np.linalg.norm(bank, axis=1, keepdims=True)
    queries = bank[:32] + np.float32(0.01)
    peers = {"sklearn": NearestNeighbors(algorithm="brute").fit(bank).kneighbors}
    if find_spec("faiss") is not None:
        import faiss

        peers["faiss"] = lambda some: faiss.knn(some, bank, 5)
    # Not a peer. For one sample it is a matrix-vector product, which in OpenBLAS takes
    # up to 1.2 times what all of faiss takes: both are bounded by the memory.
    product = {"product": lambda some: bank @ (some[0] if len(some) == 1 else some.T)}
    for normalize in (True, False):
        knn = KNN(normalize=normalize).fit(bank)
        for size, target in ((1, 1.2), (32, 1.0)):
            some = queries[:size]
            spent = {
                name: seconds(lambda peer=peer, some=some: peer(some), repeat)
                for name, peer in (peers | product).items()
            }
            ours = seconds(lambda knn=knn, some=some: knn.score_samples(some), repeat)
            best = min(spent[name] for name in peers) if size == 1 else spent["sklearn"]
            verdict = "OK" if ours <= target * best else f"missed ({target:g})"
            others = ", ".join(f"{name} {1e3 * t:.2f}" for name, t in spent.items())
            print(
                f"KNN {n:,} x {n_features}, normalize={normalize}, {size} samples: "
                f"{1e3 * ours:.2f} ms ({others})  {verdict}"
            )


def main():
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    np.ones(30 * 2**17)  # once freed, 30 MiB let malloc keep the memory of later arrays
    print(f"{'samples':>9} {'':<18} {'ms':>8} {'argsorts':>9}")
    for n in args.sizes:
        score, calls = cases(n, args.seed)
        argsort = seconds(lambda score=score: np.argsort(score), args.repeat)
        print(f"{n:>9,} {'numpy.argsort':<18} {1e3 * argsort:8.2f} {1:9.2f}")
        for name, call in calls.items():
            spent = seconds(call, args.repeat)
            ratio = spent / argsort
            verdict = "OK" if ratio <= TARGET else f"missed ({TARGET:g})"
            print(f"{n:>9,} {name:<18} {1e3 * spent:8.2f} {ratio:9.2f}  {verdict}")
        searches(n, args.repeat, args.seed)
    for shape in ((20_000, 512), (100_000, 64)):
        nearest_neighbors(*shape, args.repeat, args.seed)


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        main()
