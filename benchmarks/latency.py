"""Microseconds to score 1 sample, and 32, against pytorch-ood, faiss and scikit-learn.

A service scores samples as they arrive, one by one: what counts is the time of a call,
where the arithmetic of one sample takes a few microseconds. All rows have 512 features
and 10 classes in float32, with a linear head where a detector needs one, except for
a head of 1,000 classes and 2,048 features::

    python benchmarks/latency.py
    python benchmarks/latency.py --threads 2
    python benchmarks/latency.py --busy
    python benchmarks/latency.py --methods Energy ViM KNN
    python benchmarks/latency.py --methods ASH NNGuide --profile

What is printed, per method: the least wall time of a call with 1 and with 32 samples,
the least mean CPU time of consecutive calls with 1 sample, both times of the peer, and
OK or missed for each target. ``--busy`` runs two processes next to it that only spin,
``--profile`` prints below each row the functions with the most time of their own, with
1 and with 32 samples: microseconds and calls in one call. The profiler itself takes
part of these: fractions are more accurate than sums.

The first lines are the cost of scikit-learn's validation of one sample: `check_array`,
and `validate_data`, which also compares the number of features and their names. The
targets, in microseconds:

- a detector of logits, features or a head: at most 100 more than `validate_data`, and
  200 in all; with a larger head, next to the time of its product in NumPy;
- a detector of logits or a head: 32 samples in less than 1.5 times the time of one;
- `RejectOptionClassifier.predict`: at most 300 more than its classifier's;
- `DSDE.predict` of 18 detectors: at most 1,000;
- `KNN` of 20,000 samples, one sample: at most 1.2 times faiss or scikit-learn,
  whichever is faster; 32 samples: at most the time of scikit-learn;
- torch networks: one sample at most 150 more than the plain forward pass; `MCDropout`
  of 30 networks at most 3 times a pass of 30 copies; `DeepEnsemble` 1.2 its members.

Files, fits of `Laplace`, a graph network and a monitor are compared with other packages
where these are installed, see `others`.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import cProfile
import importlib.util
import io
import os
import pstats
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import joblib
import numpy as np
import torch
from detectors import spinning
from scipy import sparse
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from skood import persistence
from skood.detectors import KNN, MSP, Energy
from skood.epistemic import DeepEnsemble, Laplace, MCDropout
from skood.graph import GraphClassifier, NodeSet
from skood.monitor import ExchangeabilityMonitor
from skood.nn import LinearHead, TorchClassifier, pretrained

MARGIN, IN_ALL, GROWTH = 100, 200, 1.5
# The 18 scores of an ensemble one by one, with their matrices in the cache, sum to 550
# microseconds, the network takes 25, p-values and level 75. In turns they read 19 MiB,
# and neither these nor the code stay in the inner caches, so that it takes twice as
# long: what a product with each of these matrices takes is printed next to it.
REJECTION, ENSEMBLE, SEARCH = 300, 1000, 1.2
N_BANK = 20_000

LOGITS = ("MSP", "MaxLogit", "Energy", "Entropy", "GEN", "KLMatching")
HEADS = ("SHE", "NCI", "FDBD", "ViM", "Residual", "NECO", "PNML", "NNGuide")
FEATURES = ("Mahalanobis", "RelativeMahalanobis", "SSD", "GMM")
RECTIFIERS = ("ReAct", "VRA", "ASH", "SCALE", "LTS", "DICE")
OTHERS = ("KNN", "LargeHead", "RejectOptionClassifier", "DSDE", "Networks", "Others")
# What is small compared to others in the 1.5 times of 32 samples: one product per
# sample with a matrix of 512 x 256 weights.
PRODUCTS = {"ViM", "Residual", "NECO", "PNML", "NNGuide"}
# What a method cannot do without, whose time alone is printed next to it: products with
# the 8 MiB of the bank of NNGuide, and with the triangles, 10 MiB of 20, of a factor
# for each class of GMM; the selection of the largest features of each sample.
LARGE = {"NNGuide": "bank", "GMM": "factors"}
LARGE |= dict.fromkeys(("ASH", "SCALE", "LTS"), "partition")


def make(n_samples, n_features=512, n_classes=10, seed=0):
    """Return features, labels, weights and biases of a head that fits them."""
    rng = np.random.default_rng(seed)
    coef = rng.normal(size=(n_classes, n_features)).astype(np.float32)
    y = rng.integers(n_classes, size=n_samples)
    y[:n_classes] = np.arange(n_classes)
    Z = np.abs(rng.normal(size=(n_samples, n_features)) + 0.5 * coef[y])
    Z = Z.astype(np.float32)
    return Z, y, coef / 8, -(Z @ coef.T / 8).mean(axis=0)


class Clock:
    """Least times of calls, in microseconds."""

    def __init__(self, seconds):
        self.seconds = seconds

    def wall(self, call):
        """Return the least wall time of one call."""
        call()
        best, end = np.inf, time.perf_counter() + self.seconds
        while (start := time.perf_counter()) < end:
            call()
            best = min(best, time.perf_counter() - start)
        return 1e6 * best

    def cpu(self, call):
        """Return the least mean CPU time, over all threads, of consecutive calls."""
        n_calls = max(1, int(5000 / self.wall(call)))
        best, end = np.inf, time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            start = time.process_time()
            for _ in range(n_calls):
                call()
            best = min(best, (time.process_time() - start) / n_calls)
        return 1e6 * best


def profile(call, n_calls=1000, n_functions=12):
    """Print the functions with the most time of their own, in one of many calls."""
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(n_calls):
        call()
    profiler.disable()
    found = [
        (own, n, f"{Path(file).name}:{line} {name}" if line else name)
        for (file, line, name), (n, _, own, *_) in pstats.Stats(profiler).stats.items()
    ]
    total = sum(own for own, *_ in found)
    for own, n, name in sorted(found, reverse=True)[:n_functions]:
        us, calls = 1e6 * own / n_calls, n / n_calls
        print(f"{us:>12.1f} us{own / total:>6.0%}{calls:>8.1f} calls  {name}")


class Table:
    """Rows of times, and the verdicts on the targets."""

    def __init__(self, clock, with_profile=False):
        self.clock, self.missed, self.n_targets = clock, 0, 0
        self.with_profile = with_profile
        print(
            f"{'':<26}{'1':>8}{'32':>9}{'CPU 1':>8}  {'peer':<13}{'1':>8}{'32':>9}"
            "  targets"
        )

    def row(self, name, call, X, peer=None, targets=lambda one, many, *peer: ()):
        """Time a function of samples, and the peer, a name and a function or None."""
        one, many = (
            self.clock.wall(lambda rows=rows: call(rows)) for rows in (X[:1], X[:32])
        )
        cpu = self.clock.cpu(lambda: call(X[:1]))
        label, theirs = peer or ("", None)
        times = [
            self.clock.wall(lambda rows=rows: theirs(rows))
            for rows in ((X[:1], X[:32]) if theirs else ())
        ]
        shown = "".join(f"{t:>{w}.0f}" for t, w in zip(times, (8, 9), strict=False))
        verdicts = []
        for what, value, limit in targets(one, many, *times):
            good = value <= limit
            self.n_targets += 1
            self.missed += not good
            verdict = "OK" if good else "missed"
            verdicts.append(f"{what} {value:.4g} <= {limit:.4g} {verdict}")
        print(
            f"{name:<26}{one:>8.0f}{many:>9.0f}{cpu:>8.0f}  {label:<13}{shown:>17}  "
            f"{'; '.join(verdicts)}",
            flush=True,
        )
        for rows in (X[:1], X[:32]) if self.with_profile else ():
            print(f"    {len(rows)} sample{'s' * (len(rows) > 1)}")
            profile(lambda rows=rows: call(rows))
        return one, many

    def ratio(self, name, call, package, peer, limit):
        """Print the CPU times of a function and of a package, if it is installed.

        They alternate: a call that is longer than a slice of a busy processor is always
        interrupted, so that the ratio of least wall times would depend on the load.
        """
        own = self.clock.wall(call)
        if not importlib.util.find_spec(package):
            print(f"{name:<26}{own:>8.0f}  {package} is not installed, skipped")
            return
        peer()
        ratios, end = [], time.perf_counter() + 4 * self.clock.seconds
        while not ratios or time.perf_counter() < end:
            times = [time.process_time()]
            for function in (call, peer):
                function()
                times.append(time.process_time())
            ratios.append((times[1] - times[0]) / (times[2] - times[1]))
        value, verdict = np.median(ratios), ""
        if limit:
            self.n_targets += 1
            self.missed += value > limit
            verdict = f"<= {limit} {'OK' if value <= limit else 'missed'}"
        print(f"{name:<26}{own:>8.0f}  / {package} {value:.3g} {verdict}")


class PytorchOOD:
    """Calls of pytorch-ood, where it is installed, on samples as tensors."""

    def __init__(self, Z, y, coef, intercept, threads):
        import pytorch_ood.detector

        self.torch, self.peer = torch, pytorch_ood.detector
        self.coef, self.intercept = map(torch.from_numpy, (coef, intercept))
        self.Z, self.y = torch.from_numpy(Z), torch.from_numpy(y)
        self.head = torch.nn.Linear(*coef.shape[::-1])
        self.head.weight.data, self.head.bias.data = self.coef, self.intercept

    def of(self, name):
        """Return the name to print, and a function of an array of features, or None."""
        names = {"MSP": "MaxSoftmax", "Energy": "EnergyBased", "FDBD": "fDBD"}
        names |= {"RelativeMahalanobis": "RMD"}
        kind = getattr(self.peer, names.get(name, name), None)
        # its KLMatching takes labels of logits, its rectifiers a network
        if kind is None or name in ("KLMatching", *RECTIFIERS, "NNGuide"):
            return None
        if name in LOGITS:
            return self._call(lambda rows: kind.score(self.head(rows)))
        if name in ("SHE", "NCI", "FDBD", "PNML"):
            fitted = kind(None, self.head)
        elif name == "ViM":
            fitted = kind(None, 256, self.coef, self.intercept)
        else:
            fitted = kind(None)
        with self.torch.no_grad():
            fitted.fit_features(self.Z, self.y)
        return self._call(fitted.predict_features)

    def logits(self):
        """Return `of` for the energy of given logits."""
        return self._call(self.peer.EnergyBased.score)

    def _call(self, function):
        def call(rows):
            with self.torch.no_grad():
                return function(self.torch.from_numpy(rows)).numpy()

        return "pytorch-ood", call


def fastest_search(bank, n_neighbors):
    """Return the faster of faiss, if installed, and scikit-learn for one sample."""
    from sklearn.neighbors import NearestNeighbors
    from sklearn.preprocessing import normalize

    bank = normalize(bank)
    search = NearestNeighbors(n_neighbors=n_neighbors, algorithm="brute").fit(bank)
    calls = {"scikit-learn": lambda rows: search.kneighbors(normalize(rows))}
    if importlib.util.find_spec("faiss"):
        import faiss

        index = faiss.IndexFlatL2(bank.shape[1])
        index.add(bank)
        calls["faiss"] = lambda rows: index.search(normalize(rows), n_neighbors)
    clock = Clock(0.5)
    return min(calls.items(), key=lambda one: clock.wall(lambda: one[1](bank[:1])))


def floor_of(name, detector):
    """Return what a method cannot do without, as a function of samples; see LARGE."""
    if name in RECTIFIERS:
        return lambda rows: np.partition(rows, rows.shape[1] * 3 // 4, axis=1)
    if name == "NNGuide":
        return lambda rows: rows @ detector.bank_.T
    from scipy.linalg.blas import dtrmm, dtrmv

    def product(rows):
        for factor in detector.mixture_.precisions_cholesky_:
            if len(rows) == 1:
                dtrmv(factor.T, rows[0], lower=True)
            else:
                dtrmm(1.0, factor.T, rows.T, lower=True)

    return product


def detectors(args, table, checks):
    """Time the detectors."""
    from skood import detectors, rectifiers

    Z, y, coef, intercept = make(4000)
    head = FrozenEstimator(LinearHead(coef, intercept))
    peer = None
    if importlib.util.find_spec("pytorch_ood"):
        peer = PytorchOOD(Z, y, coef, intercept, args.threads)

    def within(one, many, *_):
        yield "1 sample", one, min(checks + MARGIN, IN_ALL)

    def both(one, many, *_):
        yield from within(one, many)
        yield "32 / 1", many / one, GROWTH

    for name in args.methods:
        if name in OTHERS:
            continue
        targets = within if name in (*FEATURES, *PRODUCTS) else both
        if name in RECTIFIERS:
            kind = getattr(rectifiers, name)
            if name == "DICE":
                steps = kind(head).fit(Z, y)
                detector = detectors.Energy(FrozenEstimator(steps)).fit(Z, y)
            else:
                from sklearn.pipeline import make_pipeline

                steps = make_pipeline(kind().fit(Z), head)
                detector = detectors.Energy(FrozenEstimator(steps)).fit(Z, y)
        elif name in FEATURES:
            detector = getattr(detectors, name)().fit(Z, y)
        else:
            detector = getattr(detectors, name)(head).fit(Z, y)
        other = peer and peer.of(name)
        if name in LARGE:
            other = LARGE[name], floor_of(name, detector)
        label = f"{name} + Energy" if name in RECTIFIERS else name
        table.row(label, detector.score_samples, Z, other, targets)
        if name == "Energy":
            logits = head.predict_logits(Z)
            detector = detectors.Energy().fit(logits)
            other = peer and peer.logits()
            given = f"{name} of given logits"
            table.row(given, detector.score_samples, logits, other, both)


def search(args, table):
    """Time the search of neighbors."""
    Z, _, _, _ = make(N_BANK)
    detector = KNN(normalize=True).fit(Z)
    peer = fastest_search(Z, detector.n_neighbors)

    def targets(one, many, their_one, their_many):
        yield "1 sample / peer", one / their_one, SEARCH
        yield "32 samples / peer", many / their_many, 1.0

    X = np.ascontiguousarray(Z[:32])
    table.row("KNN, 20,000 samples", detector.score_samples, X, peer, targets)


def large_head(args, table, checks):
    """Time a head of 1,000 classes next to its product."""
    Z, y, coef, intercept = make(2000, 2048, 1000)
    head = FrozenEstimator(LinearHead(coef, intercept))
    detector = Energy(head).fit(Z, y)

    def targets(one, many, product, products):
        yield "1 sample - product", one - product, min(checks + MARGIN, IN_ALL)

    peer = "product", lambda rows: rows @ coef.T + intercept
    table.row("Energy, head 1000 x 2048", detector.score_samples, Z, peer, targets)


def rejection(table):
    """Time the reject option next to its classifier."""
    from skood.rejection import BoundedAbstention, RejectOptionClassifier

    Z, y, coef, intercept = make(2000)
    layers = nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10)
    classifiers = (
        LinearHead(coef, intercept),
        LogisticRegression().fit(Z, y),
        pretrained(nn.Sequential(*layers), classes=np.arange(10)),
    )

    def targets(one, many, theirs, _):
        yield "1 sample - classifier", one - theirs, REJECTION

    for classifier in classifiers:
        is_torch = classifier is classifiers[-1]
        name = "torch" if is_torch else type(classifier).__name__
        clf = RejectOptionClassifier(
            FrozenEstimator(classifier),
            risk_detector=MSP(),
            ood_detector=Energy(),
            rule=BoundedAbstention(0.9),
            random_state=0,
        ).fit(Z, y)
        peer = "classifier", classifier.predict
        table.row(f"reject, {name}", clf.predict, Z, peer, targets)


def ensemble(args, table):
    """Time an ensemble of 18 detectors of one head."""
    from skood import detectors
    from skood.combine import DSDE

    Z, y, coef, intercept = make(2000)
    head = FrozenEstimator(LinearHead(coef, intercept))
    names = (*LOGITS, *HEADS, "KNN", "Mahalanobis", "RelativeMahalanobis", "SSD")
    members = [(name, getattr(detectors, name)(head)) for name in names]
    dsde = DSDE(members, random_state=0).fit(Z, y)

    # the banks of KNN and NNGuide; Mahalanobis, two of RelativeMahalanobis, SSD, PNML,
    # and the halves of ViM and Residual
    matrices = [np.ones((1600, 512), np.float32) for _ in range(2)]
    matrices += [np.ones((512, 512)) for _ in range(6)]

    def products(rows):
        for matrix in matrices:
            rows @ matrix.T

    def targets(one, many, *_):
        yield "1 sample", one, ENSEMBLE

    peer = "matrices", products
    table.row(f"DSDE of {len(members)}", dsde.predict, Z, peer, targets)


def mlp():
    """Return a torch network of 512 features and 10 classes, and it as a classifier."""
    layers = nn.Linear(512, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10)
    module = nn.Sequential(*layers).eval()
    return module, FrozenEstimator(pretrained(module, classes=np.arange(10)))


def networks(table):
    """Time torch networks and ensembles next to forward passes."""
    Z, y, _, _ = make(2000)

    @torch.no_grad()
    def forward(module, copies, rows):
        return module(torch.from_numpy(rows).repeat(copies, 1)).numpy()

    def beyond(one, many, theirs, _):
        yield "1 sample - forward", one - theirs, 150

    def at_most(limit):
        return lambda one, many, theirs, _: [("1 sample / peer", one / theirs, limit)]

    net = TorchClassifier(max_epochs=2, random_state=0).fit(Z, y)
    module, frozen = mlp()
    for name, clf, own in (
        ("TorchClassifier", FrozenEstimator(net), net.module_),
        ("pretrained", frozen, module),
    ):
        peer = "forward", partial(forward, own, 1)
        table.row(name, clf.predict_proba, Z, peer, beyond)
        detector = Energy(clf).fit(Z, y)
        table.row(f"Energy, {name}", detector.score_samples, Z, peer, beyond)

    deep = DeepEnsemble(net, 5, random_state=0).fit(Z, y)
    members = "members", lambda rows: [m.predict_proba(rows) for m in deep.estimators_]
    dropout = MCDropout(frozen, 30, random_state=0).fit(Z, y)
    copies = "30 copies", partial(forward, module, 30)
    table.row("MCDropout", dropout.predict_members, Z, copies, at_most(3))
    table.row("DeepEnsemble", deep.predict_members, Z, members, at_most(1.2))


def others(table):
    """Time files, fits, a graph network and a monitor next to other packages."""

    def with_skops():
        from skops.io import dumps, get_untrusted_types, loads

        content = dumps(detector)
        loads(content, trusted=get_untrusted_types(data=content))

    def with_laplace(form):
        import laplace

        how = {"subset_of_weights": "last_layer", "hessian_structure": form}
        peer = laplace.Laplace(module, "classification", **how)
        peer.fit(DataLoader(data, batch_size=256))

    @torch.no_grad()
    def with_geometric():
        gcn(torch.from_numpy(Z), torch.from_numpy(edges))

    def with_crepes():
        from crepes.martingales import SimpleJumper, semi_online_p_values

        SimpleJumper().apply(semi_online_p_values(scores, seed=0))

    Z, y, _, _ = make(5000)
    module, frozen = mlp()
    data = TensorDataset(torch.from_numpy(Z), torch.from_numpy(y))
    for form in ("kron", "full"):
        fit = partial(Laplace(frozen, hessian=form, prior_precision=1.0).fit, Z, y)
        peer = partial(with_laplace, form)
        table.ratio(f"Laplace, {form}", fit, "laplace", peer, 0.5)

    Z, y, _, _ = make(1000, 64)
    edges = np.random.default_rng(0).integers(len(Z), size=(2, 5000))
    edges = np.hstack([edges, edges[::-1]])
    nodes = NodeSet((Z, sparse.csr_array((np.ones(edges.shape[1]), edges)) > 0))
    if importlib.util.find_spec("torch_geometric"):
        from torch_geometric.nn import GCN

        gcn = GCN(64, 64, 2, 10).eval()
    clf = GraphClassifier(max_epochs=2, random_state=0).fit(nodes, y)
    call = partial(clf.predict_proba, nodes)
    table.ratio("GraphClassifier", call, "torch_geometric", with_geometric, 1.0)

    detector = KNN().fit(Z, y)

    def own():
        persistence.loads(persistence.dumps(detector))

    def with_joblib():
        joblib.dump(detector, file := io.BytesIO())
        joblib.load(io.BytesIO(file.getvalue()))

    table.ratio("dumps and loads", own, "skops", with_skops, 1.3)
    table.ratio("dumps and loads", own, "joblib", with_joblib, None)

    scores = np.random.default_rng(0).normal(size=3000)

    def monitor():
        ExchangeabilityMonitor().fit(scores[:1000]).update(scores[1000:])

    table.ratio("ExchangeabilityMonitor", monitor, "crepes", with_crepes, 0.1)


def validation(clock):
    """Print the cost of scikit-learn's validation; return that of `validate_data`."""
    from sklearn.utils.validation import check_array, validate_data

    Z, y, _, _ = make(100)
    fitted, floats = LogisticRegression().fit(Z, y), [np.float64, np.float32]
    one = Z[:1]
    alone = clock.wall(lambda: check_array(one, dtype=floats))
    whole = clock.wall(lambda: validate_data(fitted, one, reset=False, dtype=floats))
    named = clock.wall(
        lambda: validate_data(fitted, one, reset=False, skip_check_array=True)
    )
    print(
        f"scikit-learn, 1 sample: check_array {alone:.0f}, names and features "
        f"{named:.0f}, validate_data {whole:.0f} microseconds"
    )
    return whole


def main(argv=None):
    """Print the table; with ``--strict`` return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    every = (*LOGITS, *HEADS, *FEATURES, *RECTIFIERS, *OTHERS)
    parser.add_argument("--methods", nargs="+", choices=every, default=every)
    parser.add_argument("--threads", type=int, default=1, help="of BLAS (default: 1)")
    parser.add_argument("--busy", action="store_true", help="next to two that spin")
    parser.add_argument("--seconds", type=float, default=0.3, help="per time")
    parser.add_argument("--profile", action="store_true", help="below each row")
    parser.add_argument("--strict", action="store_true", help="a miss is an error")
    args = parser.parse_args(argv)
    warnings.simplefilter("ignore")

    # the limit is of libraries that are loaded, and SciPy has its own
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(args.threads)

    if importlib.util.find_spec("pytorch_ood"):
        import pytorch_ood  # noqa: F401
    if importlib.util.find_spec("faiss"):
        pass

    clock = Clock(args.seconds)
    with threadpool_limits(args.threads), spinning(2 if args.busy else 0):
        busy = "two spinning processes" if args.busy else "nothing"
        print(f"{args.threads} thread(s) of {os.cpu_count()}, next to {busy}")
        checks = validation(clock)
        table = Table(clock, args.profile)
        detectors(args, table, checks)
        if "KNN" in args.methods:
            search(args, table)
        if "LargeHead" in args.methods:
            large_head(args, table, checks)
        if "RejectOptionClassifier" in args.methods:
            rejection(table)
        if "DSDE" in args.methods:
            ensemble(args, table)
        if "Networks" in args.methods:
            networks(table)
        if "Others" in args.methods:
            others(table)
    print(f"{table.n_targets - table.missed} of {table.n_targets} targets met")
    return int(args.strict and table.missed > 0)


if __name__ == "__main__":
    sys.exit(main())
