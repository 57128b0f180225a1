"""Seconds of logical constraints: truth, partition, weights, search, overhead.

::

    python benchmarks/logic.py [--parts truth,partition,weights] [--scale 1.0]

truth
    A million rows of codes against 43 rules of traffic signs, one for each class,
    next to the same rules written by hand in NumPy, and as a plain Python loop (on a
    thousandth of the rows).
partition
    The logarithm of the partition function by each method: 860 worlds of traffic
    signs; 20 two-valued concepts with 20 constraints on pairs of them, about a million
    worlds; 40 with 40, which only elimination reaches. All that go through must agree.
weights
    Weights of the 43 rules fitted to a million rows, next to what Newton's method is
    meant to replace: ten full-batch epochs of L-BFGS with learning rate 0.01, and how
    far its weights are from the optimum, by the gradient.
search
    702 candidates over 13 two-valued concepts, 2,000 rows to evaluate on: in the listed
    order, and by gain.
overhead
    A batch of 1,000 rows of features by the detector alone, and with the three concepts
    and 43 rules on top.

A line with a target ends in OK or missed.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import sys
import time

import numpy as np
from sklearn.linear_model import LogisticRegression

from skood.detectors import Mahalanobis
from skood.logic import ConstraintSearch, KnowledgeBase, MLNDetector

COLORS = ["red", "blue", "white", "yellow"]
SHAPES = ["circle", "triangle", "octagon", "diamond", "square"]
N_CLASSES = 43

missed = []


def seconds(function, repeat=3):
    """Return the least seconds of a few runs, and the result."""
    best, result = np.inf, None
    for _ in range(repeat):
        start = time.perf_counter()
        result = function()
        best = min(best, time.perf_counter() - start)
    return best, result


def report(name, value, most=None, note=""):
    """Print a line; one with a target says whether it was reached."""
    verdict = ""
    if most is not None:
        verdict = f"at most {most:g} s  " + ("OK" if value <= most else "missed")
        if value > most:
            missed.append(name)
    print(f"{name:52}{value:10.4f} s  {verdict}{note}", flush=True)


def signs(seed=0):
    """Return rules of traffic signs, one for each class, and their domains."""
    rng = np.random.default_rng(seed)
    domains = {
        "class": [f"sign_{c}" for c in range(N_CLASSES)],
        "color": COLORS,
        "shape": SHAPES,
    }
    truth = {
        name: (str(rng.choice(COLORS)), str(rng.choice(SHAPES)))
        for name in domains["class"]
    }
    rules = [
        f"class = {name} -> color = {color} and shape = {shape}"
        for name, (color, shape) in truth.items()
    ]
    return rules, domains, truth


def codes(kb, n_rows, seed=0):
    """Return random codes."""
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.integers(size, size=n_rows) for size in kb.sizes])


def by_hand(Z, kb, truth):
    """The same rules as one would write them in NumPy."""
    columns = [np.ascontiguousarray(column) for column in Z.T]
    out = np.empty((len(Z), N_CLASSES), dtype=bool)
    for i, name in enumerate(kb.domains["class"]):
        color, shape = truth[name]
        out[:, i] = (columns[0] != i) | (
            (columns[1] == COLORS.index(color)) & (columns[2] == SHAPES.index(shape))
        )
    return out


def plain_loop(Z, kb, truth):
    """The same rules in plain Python."""
    expected = [
        (COLORS.index(truth[name][0]), SHAPES.index(truth[name][1]))
        for name in kb.domains["class"]
    ]
    return [
        [
            sign != i or (color == red and shape == octagon)
            for i, (red, octagon) in enumerate(expected)
        ]
        for sign, color, shape in Z.tolist()
    ]


def part_truth(scale):
    """How fast rows are evaluated."""
    rules, domains, truth = signs()
    took, kb = seconds(lambda: KnowledgeBase(rules, domains))
    report("compile 43 rules", took)
    n_rows = int(1_000_000 * scale)
    Z = codes(kb, n_rows)
    took, found = seconds(lambda: kb.truth(Z))
    report(f"truth, {n_rows:,} rows x 43 rules", took, 1.0)
    took, wanted = seconds(lambda: by_hand(Z, kb, truth))
    report("the same by hand in NumPy", took)
    assert (found == wanted).all()
    few = Z[: max(n_rows // 1000, 10)]
    took, wanted = seconds(lambda: plain_loop(few, kb, truth))
    report("the same in plain Python, scaled", took * n_rows / len(few))
    assert (found[: len(few)] == np.array(wanted)).all()
    took, _ = seconds(lambda: kb.penalty(Z, np.ones(43)))
    report("penalty of these rows", took)


def pairs(n, seed=0):
    """Return constraints on random pairs of two-valued concepts."""
    rng = np.random.default_rng(seed)
    names = [f"c{i}" for i in range(n)]
    operators = ["->", "and", "or", "xor", "<->"]
    rules = []
    for i in range(n):
        j = (i + int(rng.integers(1, n))) % n
        rules.append(f"{names[i]} {rng.choice(operators)} {names[j]}")
    return rules, dict.fromkeys(names, "bool")


def part_partition(scale):
    """How fast partition functions are, and whether methods agree."""
    rng = np.random.default_rng(1)
    rules, domains, _ = signs()
    cases = [("860 worlds, 43 rules", rules, domains, 4)]
    rules, domains = pairs(20 if scale >= 1 else 14)
    cases.append((f"{len(rules)} concepts in pairs", rules, domains, 4))
    cases.append(("40 concepts in pairs", *pairs(40), 1))
    for name, rules, domains, n_methods in cases:
        w = rng.normal(size=len(rules))
        methods = ("elimination", "components", "grouping", "enumeration")[:n_methods]
        values = []
        for method in methods:
            took, kb = seconds(
                lambda r=rules, d=domains, m=method: KnowledgeBase(r, d, method=m), 1
            )
            first, value = seconds(lambda kb=kb, w=w: kb.log_partition(w), 1)
            again, _ = seconds(lambda kb=kb, w=w: kb.log_partition(w))
            values.append(value)
            most = 1.0 if name.startswith("40") else None
            report(f"{name}, {method}", took + first, most, f"  again {again:.5f} s")
        assert np.allclose(values, values[0], rtol=0, atol=1e-10), values


def lbfgs(kb, mean_truth):
    """Ten epochs of L-BFGS with learning rate 0.01 on the same likelihood, in torch."""
    import torch

    worlds = np.stack(np.meshgrid(*map(np.arange, kb.sizes), indexing="ij"), axis=-1)
    truth = torch.tensor(kb.truth(worlds.reshape(-1, len(kb.sizes))).astype(float))
    m = torch.tensor(mean_truth)
    w = torch.zeros(len(m), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([w], lr=0.01)

    def closure():
        optimizer.zero_grad()
        loss = torch.logsumexp(truth @ w, 0) - m @ w
        loss.backward()
        return loss

    for _ in range(10):
        optimizer.step(closure)
    return w.detach().numpy()


def part_weights(scale):
    """How fast weights are fitted, and how far they are from the optimum."""
    rules, domains, truth = signs()
    kb = KnowledgeBase(rules, domains)
    n_rows = int(1_000_000 * scale)
    rng = np.random.default_rng(2)
    Z = codes(kb, n_rows)
    keeps = rng.random(n_rows) < 0.98
    right = np.array(
        [(COLORS.index(c), SHAPES.index(s)) for c, s in truth.values()], dtype=int
    )
    Z[keeps, 1:] = right[Z[keeps, 0]]
    kb.fit_weights(Z[:100])
    took, w = seconds(lambda: kb.fit_weights(Z))
    mean = kb.truth(Z).mean(axis=0)
    m = (n_rows * mean + kb.expected_truth(np.zeros(43))) / (n_rows + 1)
    gradient = np.abs(kb.expected_truth(w) - m).max()
    report(
        f"weights of 43 rules, {n_rows:,} rows", took, None, f"  |grad| {gradient:.1e}"
    )
    took, w = seconds(lambda: kb.fit_weights_to(mean, n_rows))
    report("the same from the mean truth", took)
    took, w = seconds(lambda: lbfgs(kb, m), 1)
    gradient = np.abs(kb.expected_truth(w) - m).max()
    report("10 epochs of L-BFGS at lr 0.01", took, None, f"  |grad| {gradient:.1e}")


def concept_data(n_rows, seed=0):
    """Return features that show 13 two-valued concepts, and their labels."""
    rng = np.random.default_rng(seed)
    concepts = rng.random((n_rows, 13)) < 0.5
    is_ood = np.arange(n_rows) % 2 == 1
    for a, b in ((0, 1), (2, 3), (4, 5)):  # in-distribution, a implies b
        concepts[:, b] |= concepts[:, a] & ~is_ood
    X = np.where(concepts, 1.0, -1.0) + rng.normal(scale=0.7, size=concepts.shape)
    y = concepts.astype(int)
    y[is_ood] = -1
    return X, y


def part_search(scale):
    """How fast rules are searched."""
    X, y = concept_data(max(int(10_000 * scale), 1000))
    concepts = [(f"c{i}", LogisticRegression()) for i in range(13)]
    for order, most in (("listed", 6.0), ("gain", 2.0)):
        search = ConstraintSearch(
            MLNDetector([], concepts, Mahalanobis(), random_state=0),
            search=order,
            random_state=0,
        )
        took, search = seconds(lambda one=search: one.fit(X, y), 1)
        note = (
            f"  {len(search.search_history_)} fits, {len(search.found_)} rules, AUROC "
            f"of test rows {search.baseline_test_auroc_:.3f} -> "
            f"{search.test_auroc_:.3f}"
        )
        report(f"search, {order}, whole fit", took, most, note)


def part_overhead(scale):
    """What constraints cost on top of a detector."""
    rules, domains, truth = signs()
    rng = np.random.default_rng(3)
    classes = rng.integers(N_CLASSES, size=6000)
    names = np.array(domains["class"])[classes]
    labels = np.array([[name, *truth[name]] for name in names.tolist()], dtype=object)
    X = 3 * rng.normal(size=(N_CLASSES, 64))[classes] + rng.normal(size=(6000, 64))
    concepts = [(name, LogisticRegression()) for name in domains]
    fitted = MLNDetector(rules, concepts, Mahalanobis(), random_state=0).fit(X, labels)
    batch = X[:1000]
    alone, _ = seconds(lambda: fitted.detector_.score_samples(batch), 20)
    report("detector alone, 1,000 rows", alone)
    read, _ = seconds(lambda: fitted.predict_concepts(batch), 20)
    report("reading three concepts", read)
    both, _ = seconds(lambda: fitted.score_samples(batch), 20)
    report("detector, concepts and 43 rules", both, None, f"  {both / alone:.2f} times")
    Z = fitted.knowledge_base_.encode(fitted.predict_concepts(batch))
    rules_alone, _ = seconds(lambda: fitted.knowledge_base_.penalty(Z, fitted.weights_))
    report("the 43 rules alone", rules_alone)


def main():
    """Run the parts."""
    parser = argparse.ArgumentParser(
        description="Seconds of truth, partition functions, weights and searches."
    )
    parser.add_argument("--parts", default="truth,partition,weights,search,overhead")
    parser.add_argument("--scale", type=float, default=1.0, help="of the rows")
    args = parser.parse_args()
    for part in args.parts.split(","):
        print(f"\n{part}")
        globals()[f"part_{part}"](args.scale)
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
