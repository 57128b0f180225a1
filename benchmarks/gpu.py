"""Tests, ceilings and speed on a GPU, in about ten minutes.

::

    python benchmarks/gpu.py --out gpu.jsonl
    python benchmarks/gpu.py --out gpu.jsonl --only detectors knn --budget 200
    python benchmarks/gpu.py --out small.jsonl --device cpu --small

Each line of the file is one measurement in JSON. A measurement that is in the file is
not repeated unless it failed, so that the same command continues an interrupted run.
None is started after ``--budget`` seconds. An error, such as a lack of memory, is
stored as the result, and the next measurement follows. The sections, in this order:

tests
    ``pytest -q tests/gpu``, for at most two fifths of the budget.
ceilings
    Products of large matrices in float64, float32, TF32 and bfloat16, copies on the
    device, and transfers from and to pinned and pageable memory. They are measured with
    each section that compares with them.
detectors
    Scores and fits of 1,000,000 x 512 features in float32, on the host and on the
    device, and the error against the CPU for 20,000 samples. "fraction" is the time of
    the slower of two ceilings, to read all samples once and to compute the products in
    their precision, divided by the time.
knn
    Banks of 50,000 and 1,000,000 samples; one query and 20,000.
quam
    Points per second: three scopes of a LeNet, and a head of 1,000 classes.
features
    Features of a ResNet-50 in bfloat16 beside a plain loop. It needs torchvision; the
    weights are random, and nothing is downloaded.
training
    `TorchClassifier` beside a plain loop.
graph
    `GraphClassifier` on 100,000 nodes beside torch_geometric, if that is installed.
dropout
    `MCDropout` beside passes of the network in training mode.
ensemble
    `DSDE` of seven detectors of one network.
one_sample
    `RejectOptionClassifier.predict` of one sample, with the network at home on the CPU
    and on the device.

What is printed, for each measurement: "seconds" is the median of calls after one to
warm up, with the device idle before and after each; a call of ten seconds is not
repeated. Counts of the profiler, only on CUDA, are kernels ("launches"),
synchronizations of a stream or an event ("waits") and bytes to the device and to the
host of one call. "MiB" is the peak of the memory of the device above what it was
before. A target is followed by OK or missed; on a CPU, and with ``--small``, by "not
compared", since the targets are of an H100 or H200. With ``--strict`` a miss is an
error, as a failed measurement always is.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import copy
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch
from _detectors_data import on_device
from _detectors_skood import skood
from _gpu_bench import DETECTORS, FULL, SMALL, Bench, verdict
from sklearn.base import clone
from torch import nn

ROOT = Path(__file__).resolve().parents[1]

# Fraction of the budget that the tests may take.
TESTS_FRACTION = 0.4

# --- sections ----------------------------------------------------------------


def tests(bench):
    """Run the tests that need a GPU."""
    bench.measure("tests", "tests/gpu", partial(run_tests, bench))


def run_tests(bench):
    """Return numbers of tests by outcome; failures are an error."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-o", "addopts=--import-mode=importlib", "-rfE", "tests/gpu"]
    folders = str(ROOT), os.environ.get("PYTHONPATH", "")
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, folders))}
    limit = max(60.0, TESTS_FRACTION * bench.budget)
    start = time.perf_counter()
    # a pipe would stay open in processes of an interrupted test
    with tempfile.TemporaryFile("w+") as file:
        to_file = {"stdout": file, "stderr": subprocess.STDOUT}
        try:
            status = subprocess.run(
                command, cwd=ROOT, env=env, timeout=limit, check=False, **to_file
            ).returncode
        except subprocess.TimeoutExpired:
            status = None
        file.seek(0)
        output = file.read()
    result = {"seconds": time.perf_counter() - start, **outcomes_of(output)}
    if status is None:
        result["error"] = f"stopped after {limit:.0f} s"
    elif status:
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
        result["error"] = ", ".join(failed) or f"exit status {status}"
    return result | ({"output": output[-6000:]} if status != 0 else {})


def outcomes_of(output):
    """Return the numbers of tests by outcome, from the last line of pytest."""
    last = output.strip().rpartition("\n")[2]
    counts = re.findall(r"(\d+) (passed|failed|skipped|error)", last)
    return {f"n_{outcome}": int(number) for number, outcome in counts}


@contextmanager
def tensor_cores(allowed):
    """Allow, or not, TF32 for products in float32."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def ceilings(bench):
    """Measure rates of products, copies and transfers."""
    n, n_values = bench.sizes.matrix, bench.sizes.transfer

    def product(dtype, uses_tf32):
        A, B = torch.randn(2, n, n, device=bench.device, dtype=dtype)
        out = torch.empty_like(A)
        with tensor_cores(uses_tf32):
            seconds = bench.seconds(lambda: torch.mm(A, B, out=out))
        return {"per_second": 2.0 * n**3 / seconds, "unit": "operations"}

    def copied(source, target, n_passes):
        seconds = bench.seconds(lambda: target.copy_(source, non_blocking=True))
        n_bytes = n_passes * source.numel() * source.element_size()
        return {"per_second": n_bytes / seconds, "unit": "bytes"}

    def on_the_device():
        source = torch.ones(4 * n_values, device=bench.device)
        return copied(source, torch.empty_like(source), 2)

    def transfer(to_device, is_pinned):
        host = torch.ones(n_values, pin_memory=is_pinned)
        there = torch.ones(n_values, device=bench.device)
        return copied(host, there, 1) if to_device else copied(there, host, 1)

    for name, dtype, uses_tf32 in (
        ("float64", torch.float64, False),
        ("float32", torch.float32, False),
        ("TF32", torch.float32, True),
        ("bfloat16", torch.bfloat16, False),
    ):
        bench.measure("ceilings", name, partial(product, dtype, uses_tf32))
    bench.measure("ceilings", "copy", on_the_device)
    for kind in ("pinned", "pageable"):
        for to_device in (True, False):
            is_pinned = kind == "pinned" and bench.on_card  # without CUDA there is none
            name = f"{kind}, {'host to device' if to_device else 'device to host'}"
            bench.measure("ceilings", name, partial(transfer, to_device, is_pinned))


def detectors(bench):
    """Measure scores, fits and errors of detectors."""
    for method, _, precision, products in DETECTORS:
        for place in ("device", "host"):
            score = bench.measure(
                "detectors",
                f"{method.name}, score, X on the {place}",
                partial(score_values, bench, method, place, precision, products),
            )
            if score is not None and "error" not in score:
                bench.measure(
                    "detectors",
                    f"{method.name}, fit, X on the {place}",
                    partial(fit_values, bench, method, place, score["seconds"]),
                )
        bench.measure(
            "detectors",
            f"{method.name}, difference",
            partial(difference_values, bench, method),
        )


def detector_job(bench, method, place):
    """Return the fit and the score of a detector, and its inputs."""
    inputs = bench.features if place == "device" else bench.host_features
    return skood(method, inputs, str(bench.device)), inputs


def score_values(bench, method, place, precision, products):
    """Measure scores of all samples."""
    job, inputs = detector_job(bench, method, place)
    call = partial(job.score, job.fit())
    seconds = bench.seconds(call)
    n_samples, n_features = inputs.Z.shape
    n_bytes = n_samples * (4 * n_features + 8)  # features in float32, and the scores
    n_operations = 2 * n_samples * products(n_features, len(inputs.coef))
    return {
        "seconds": seconds,
        "samples": n_samples,
        **bench.fraction(seconds, n_bytes, n_operations, precision),
        **bench.counts(call),
    }


def fit_values(bench, method, place, score_seconds):
    """Measure fits to all samples."""
    job, inputs = detector_job(bench, method, place)
    seconds = bench.seconds(job.fit)
    limit = 3 * score_seconds + inputs.Z.nbytes / bench.rate("copy")
    ratio = {"ratio": seconds / limit} if np.isfinite(limit) else {}
    return {"seconds": seconds, **ratio, **bench.counts(job.fit)}


def difference_values(bench, method):
    """Compare scores with those of a fit on the CPU, relative to the largest score."""
    Z, y = bench.samples(bench.sizes.checked)
    inputs = replace(bench.features, Z=Z, y=y, T=Z)
    there = on_device(inputs, bench.device)
    jobs = skood(method, inputs, "cpu"), skood(method, there, str(bench.device))
    expected, scores = (np.asarray(job.score(job.fit())) for job in jobs)
    difference = np.abs(scores - expected).max() / max(1.0, np.abs(expected).max())
    return {"samples": len(y), "difference": float(difference)}


def knn(bench):
    """Measure the search in a memory bank, by torch."""
    for n_bank in bench.sizes.banks:
        # fitted once, by the first measurement that is missing
        fitted = cache(partial(fitted_knn, bench, n_bank))
        for n_queries in (bench.sizes.queries, 1):
            word = "query" if n_queries == 1 else "queries"
            bench.measure(
                "knn",
                f"bank {n_bank:,}, {n_queries:,} {word}",
                partial(search_values, bench, fitted, n_queries),
            )


def fitted_knn(bench, n_bank):
    """Return a detector with a bank of so many samples, and seconds of its fit."""
    from skood.detectors import KNN

    detector = KNN(normalize=True, algorithm="torch", device=str(bench.device))
    bank = bench.features.Z[:n_bank]
    start = time.perf_counter()
    detector.fit(bank)
    return detector, time.perf_counter() - start


def search_values(bench, fitted, n_queries):
    """Measure the scores of queries on the device, which are not in the bank."""
    detector, fit_seconds = fitted()
    queries = 1.5 * bench.features.Z[:n_queries] + 0.1
    call = partial(detector.score_samples, queries)
    seconds = bench.seconds(call)
    n_operations = 2.0 * len(queries) * detector.bank_.size
    fraction = bench.fraction(seconds, detector.bank_.nbytes, n_operations, "float32")
    return {
        "seconds": seconds,
        "first_fit_seconds": fit_seconds,
        **fraction,
        **bench.counts(call),
    }


def quam(bench):
    """Measure adversarial searches."""
    for scope, n_points in bench.sizes.points.items():
        bench.measure("quam", scope, partial(lenet_values, bench, scope, n_points))
    bench.measure("quam", "1,000 classes", partial(large_head_values, bench))


def points_per_second(bench, net, X, y, points, **options):
    """Measure QUAM around a network, with its home on the device."""
    from epistemic import SEARCH

    from skood.epistemic import QUAM
    from skood.nn import pretrained

    search = SEARCH
    if bench.sizes.steps is not None:
        search = clone(SEARCH).set_params(n_steps=bench.sizes.steps)
    frozen = pretrained(net.to(bench.device))
    device = str(bench.device)
    model = QUAM(frozen, search, random_state=0, device=device, **options).fit(X, y)
    call = partial(model.predict_uncertainty, points)
    rate = len(points) / bench.seconds(call)
    few = partial(model.predict_uncertainty, points[:1])
    return {"points_per_second": rate, "points": len(points), **bench.counts(few)}


def lenet_values(bench, scope, n_points):
    """Measure the searches of a scope of a LeNet."""
    from epistemic import images, lenet

    net, X, y = lenet(10)
    n, points = bench.sizes.lenet, images(n_points, 2)
    return points_per_second(bench, net, X[:n], y[:n], points, scope=scope)


def large_head_values(bench):
    """Measure searches of 20 of 1,000 classes in the weights of a head."""
    torch.manual_seed(0)
    head = nn.Linear(bench.sizes.head[1], 1000)
    rng = np.random.default_rng(0)
    Z = rng.exponential(0.45, size=bench.sizes.head).astype(np.float32)
    with torch.no_grad():
        y = head(torch.from_numpy(Z)).argmax(1).numpy()
    points = Z[: bench.sizes.points_1000]
    return points_per_second(bench, head, Z, y, points, scope="last", targets=20)


def features(bench):
    """Measure features of a ResNet-50, or of a small network in small."""
    name = "small network" if bench.sizes is SMALL else "ResNet-50"
    if name == "ResNet-50" and importlib.util.find_spec("torchvision") is None:
        print("features: torchvision, which has the ResNet-50, is not installed")
        return
    for place in ("host", "device"):
        bench.measure(
            "features",
            f"{name}, X on the {place}",
            partial(feature_values, bench, place),
        )


def image_network(bench):
    """Return a network for images with random weights, its features, and images."""
    torch.manual_seed(0)
    if bench.sizes is SMALL:
        body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        net = nn.Sequential(body, nn.Flatten(), nn.Linear(8, 5))
        features_of, width = net[:2], 12
    else:
        from torchvision.models import resnet50

        net, width = resnet50(weights=None), 224
        features_of = nn.Sequential(*list(net.children())[:-1], nn.Flatten())
    net = net.eval().to(bench.device, memory_format=torch.channels_last)
    images = torch.rand(bench.sizes.images, 3, width, width)
    return net, features_of.eval(), images


def feature_values(bench, place):
    """Compare features by `split` with a plain loop, both in batches of 256."""
    from skood.nn import pretrained, split

    net, features_of, images = image_network(bench)
    body, _ = split(pretrained(net, batch_size=256, precision="bfloat16"))
    X = images.numpy() if place == "host" else images.to(bench.device)

    def plain():
        results = []
        autocast = torch.autocast(bench.device.type, torch.bfloat16)
        with torch.inference_mode(), autocast:
            for batch in torch.as_tensor(X).split(256):
                batch = batch.to(bench.device, memory_format=torch.channels_last)
                results.append(features_of(batch).float())
        return torch.cat(results).cpu().numpy()

    here, there = plain(), body.transform(X)
    difference = float(np.abs(there - here).max() / np.abs(here).max())
    seconds, loop = bench.seconds(partial(body.transform, X)), bench.seconds(plain)
    return {
        "images_per_second": len(X) / seconds,
        "plain_images_per_second": len(X) / loop,
        "speed": loop / seconds,
        "difference": difference,
    }


def training(bench):
    """Measure training."""
    bench.measure("training", "TorchClassifier", partial(training_values, bench))


def training_values(bench):
    """Compare epochs of `TorchClassifier` with a plain loop over the same batches."""
    from skood.nn import TorchClassifier

    Z, y = bench.samples(bench.sizes.trained)
    epochs, size = bench.sizes.epochs, 512
    options = {"max_epochs": epochs, "batch_size": size, "random_state": 0}
    clf = TorchClassifier(device=str(bench.device), **options).fit(Z, y)
    module = copy.deepcopy(clf.module_).to(bench.device).train()

    def plain():
        inputs = torch.from_numpy(Z).to(bench.device)
        targets = torch.from_numpy(y).to(bench.device)
        optimizer = torch.optim.Adam(module.parameters(), lr=1e-3)
        for _ in range(epochs):
            order = torch.randperm(len(inputs), device=bench.device)
            for indices in order.split(size):
                optimizer.zero_grad()
                logits = module(inputs[indices])
                nn.functional.cross_entropy(logits, targets[indices]).backward()
                optimizer.step()

    seconds, loop = bench.seconds(partial(clf.fit, Z, y)), bench.seconds(plain)
    return {"seconds": seconds, "plain_seconds": loop, "ratio": seconds / loop}


def graph(bench):
    """Measure training on a graph."""
    bench.measure("graph", "GCN", partial(graph_values, bench))


def graph_values(bench):
    """Compare the epochs of a GCN with torch_geometric, if that is installed."""
    from scipy.sparse import coo_array

    from skood.graph import GraphClassifier, NodeSet
    from skood.nn import TrainingOptions

    n_nodes, n_classes, width = bench.sizes.nodes, 10, 128
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(n_nodes) % n_classes)
    X = rng.normal(size=(n_nodes, width)).astype(np.float32)
    X[np.arange(n_nodes), y] += 2.0
    edges = rng.integers(n_nodes, size=(2, 5 * n_nodes))
    edges = np.concatenate([edges, edges[::-1]], axis=1)  # both directions
    ones = np.ones(edges.shape[1], dtype=np.float32)
    adjacency = coo_array((ones, tuple(edges)), (n_nodes, n_nodes)).tocsr()
    adjacency.data[:] = 1.0  # of parallel edges, too
    nodes = NodeSet((X, adjacency), labels=y)
    epochs = bench.sizes.graph_epochs
    clf = GraphClassifier(
        "gcn",
        max_epochs=epochs,
        training=TrainingOptions(early_stopping=False),
        random_state=0,
        device=str(bench.device),
    )
    values = {"seconds": bench.seconds(partial(clf.fit, nodes[::2], y[::2]))}
    values["accuracy"] = float(clf.score(nodes[1::2], y[1::2]))
    if importlib.util.find_spec("torch_geometric") is None:
        print("graph: torch_geometric, the peer, is not installed")
        return values
    peer = partial(geometric_epochs, bench, X, np.stack(adjacency.nonzero()), y, epochs)
    values["peer_accuracy"] = peer()
    values["peer_seconds"] = bench.seconds(peer)
    return values | {"ratio": values["seconds"] / values["peer_seconds"]}


def geometric_epochs(bench, X, edges, y, epochs):
    """Train the same network by torch_geometric; return its accuracy."""
    from torch_geometric.nn import GCNConv

    class Net(nn.Module):
        def __init__(self, n_classes, n_hidden=64):
            super().__init__()
            self.first = GCNConv(X.shape[1], n_hidden, cached=True)
            self.last = GCNConv(n_hidden, n_classes, cached=True)

        def forward(self, x, edges):
            x = nn.functional.dropout(x, 0.5, self.training)
            x = self.first(x, edges).relu()
            x = nn.functional.dropout(x, 0.5, self.training)
            return self.last(x, edges)

    torch.manual_seed(0)
    net = Net(int(y.max()) + 1).to(bench.device)
    x, edges, codes = (torch.from_numpy(a).to(bench.device) for a in (X, edges, y))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(epochs):
        optimizer.zero_grad()
        logits = net(x, edges)
        nn.functional.cross_entropy(logits[::2], codes[::2]).backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        hits = net(x, edges).argmax(1)[1::2] == codes[1::2]
    return float(hits.float().mean())


def dropout(bench):
    """Measure thinned networks."""
    bench.measure("dropout", "MCDropout", partial(dropout_values, bench))


def dropout_values(bench):
    """Compare `MCDropout` with as many passes in training mode."""
    from skood.epistemic import MCDropout
    from skood.nn import pretrained

    Z, y = bench.samples(bench.sizes.checked)
    net = nn.Sequential(*bench.network[:2], nn.Dropout(0.2), bench.network[2]).eval()
    n_members, device = bench.sizes.members, str(bench.device)
    frozen = pretrained(net, batch_size=4096)
    model = MCDropout(frozen, n_members, batch_size=4096, random_state=0, device=device)
    call = partial(model.fit(Z, y).predict_uncertainty, Z)

    def plain():
        net.train()
        with torch.inference_mode():
            inputs, mean = torch.from_numpy(Z).to(bench.device), 0.0
            for _ in range(n_members):
                mean = mean + net(inputs).softmax(1)
            mean = mean.cpu() / n_members
        net.eval()

    seconds, loop = bench.seconds(call), bench.seconds(plain)
    return {
        "seconds": seconds,
        "plain_seconds": loop,
        "ratio": seconds / loop,
        **bench.counts(call),
    }


def ensemble(bench):
    """Measure an ensemble of detectors."""
    bench.measure("ensemble", "DSDE of seven", partial(ensemble_values, bench))


def ensemble_values(bench):
    """Measure levels of samples by seven detectors of one network."""
    from skood import detectors as all_detectors
    from skood.combine import DSDE
    from skood.nn import pretrained

    Z, y = bench.samples(bench.sizes.trained)
    frozen, device = pretrained(bench.network, batch_size=4096), str(bench.device)
    names = "MSP", "Energy", "SHE", "NCI", "FDBD", "ViM", "Mahalanobis"
    members = [
        (name, getattr(all_detectors, name)(frozen, device=device)) for name in names
    ]
    n_fitted = len(Z) // 2
    model = DSDE(members, random_state=0).fit(Z[:n_fitted], y[:n_fitted])
    call = partial(model.predict, Z)
    seconds = bench.seconds(call)
    return {"seconds": seconds, "per_second": len(Z) / seconds, **bench.counts(call)}


def one_sample(bench):
    """Measure one sample, with the network on the CPU and on the device."""
    for home in dict.fromkeys(("cpu", bench.device.type)):
        bench.measure("one_sample", f"network on {home}", partial(latency, bench, home))


def latency(bench, home):
    """Measure a prediction with a reject option of one sample."""
    from skood.detectors import MSP, Energy
    from skood.nn import pretrained
    from skood.rejection import BoundedAbstention, RejectOptionClassifier

    Z, y = bench.samples(min(2000, bench.sizes.samples))
    net = copy.deepcopy(bench.network).to(home)
    clf = RejectOptionClassifier(
        pretrained(net, classes=np.arange(len(bench.features.coef))),
        risk_detector=MSP(),
        ood_detector=Energy(),
        rule=BoundedAbstention(0.9),
        random_state=0,
    ).fit(Z, y)
    call = partial(clf.predict, Z[:1])
    return {"seconds": bench.seconds(call), **bench.counts(call)}


SECTIONS = {
    function.__name__: function
    for function in (
        tests,
        ceilings,
        detectors,
        knn,
        quam,
        features,
        training,
        graph,
        dropout,
        ensemble,
        one_sample,
    )
}
COMPARED = {"detectors", "knn"}  # with ceilings


def parse(argv):
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="FILE", help="JSON lines; continued")
    add("--budget", type=float, default=480, help="seconds (default: 480)")
    add(
        "--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), metavar="SECTION"
    )
    add("--device", choices=("cuda", "cpu"), default="cuda")
    add("--small", action="store_true", help="a few samples, to test the program")
    add("--strict", action="store_true", help="a missed target is an error")
    args = parser.parse_args(argv)
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error(
            "torch finds no CUDA device. Run it where there is one, or test the "
            "program with --device cpu --small."
        )
    return args


def main(argv=None):
    """Measure, and print the targets; return 1 if a measurement failed."""
    args = parse(argv)
    warnings.simplefilter("ignore")
    sizes = SMALL if args.small else FULL
    bench = Bench(args.out, args.device, sizes, args.budget)
    chosen = set(args.only)
    if chosen & COMPARED:
        chosen.add("ceilings")
    for name, section in SECTIONS.items():
        if name in chosen:
            section(bench)
    outcomes = [verdict(r, bench.compares)[1] for r in bench.records.values()]
    failed = [r["name"] for r in bench.records.values() if "error" in r]
    missed = outcomes.count(False)
    print(
        f"{outcomes.count(True)} targets OK, {missed} missed; {len(failed)} "
        f"measurements failed, {bench.n_skipped} skipped"
    )
    return int(bool(failed) or (args.strict and missed > 0))


if __name__ == "__main__":
    sys.exit(main())
