"""Seconds, memory and AUROC of all detectors, side by side with other libraries.

Workload F has 50,000 x 512 training features in 10 classes, G 50,000 x 1024 in 100
classes; both have 20,000 test rows, half of them OOD, a linear head that classifies
well, and float32 arrays. Workload L is a million rows of 10 logits, for scores that the
memory bandwidth should bound. Each method of each installed library runs in a process
of its own, after a warm-up on a small workload, with as many threads as there are
cores. Where other work keeps these busy, threads wait for each other, and only times
with one thread can be compared::

    python benchmarks/detectors.py
    python benchmarks/detectors.py --methods ViM KNN --workloads F --scale 0.1
    python benchmarks/detectors.py --threads 1
    python benchmarks/detectors.py --device cuda --libraries skood pytorch-ood
    python benchmarks/detectors.py --busy --methods SHE NCI --workloads F

What is printed, per method and library:

fit, thr.
    Seconds of the fit, and how many of them go into the threshold, which our
    detectors, and PyOD's, set from the scores of training rows. The other libraries
    set none, so that our fit without these seconds is what is compared. "-": the
    library has nothing to fit.
fit CPU
    CPU seconds of the fit with its threshold: the minimum of ``--repeat``.
score
    Seconds to score the test rows, the median of ``--repeat``. Of a rectifier: to
    rectify them; with "Energy" in its name, to score them by the energy of the head's
    logits of rectified features. A measurement is not repeated beyond 20 seconds, and
    short ones are repeated for .3 seconds.
us/row
    CPU microseconds per test row: the minimum.
MiB fit, score
    Peak memory above that of the process with its inputs.
AUROC
    ID against OOD; for rectifiers that of the energy of rectified features.
x fit, x score
    Ratio of CPU seconds to the fastest peer that is correct. A peer is "wrong" if it
    does not compute the method, see its note, and is not compared.

The targets, each printed with OK or missed: our fit (without the threshold) and score
take at most 1.05 times the CPU seconds of the fastest correct peer, and at most 10 %
and 8 MiB more memory; Mahalanobis, ViM, KNN, SHE, GEN and KLMatching are at least twice
as fast as pytorch-ood to score; ASH, SCALE and LTS, on features with 60 % zeros,
take at most .5 times its CPU seconds to score, GEN, Entropy, Energy, MSP and KLMatching
.9 and ReAct and VRA with the energy 1.0; at most 256 MiB to score. On one thread, whole
fits of workload F take at most 10 ms (NCI, FDBD), .25 s (Mahalanobis,
RelativeMahalanobis), .4 s (ViM), 4 ms (detectors of logits), 6 ms (MSP with the head),
.42 s (KNN) and 1.2 s (NNGuide), and a score .28 us/row (Energy, workload L) and .4
(ReAct and VRA with the energy of the head, F). Differences below 20 us of CPU are
ignored. With ``--strict`` a miss is an error.

With ``--device cuda`` arrays are on the device, seconds of the wall replace those of
the CPU, in ratios and "us/row", too, memory is that of the host, and "fraction" is the
time of the slower of two ceilings, to read the samples once and to compute the
products, divided by the seconds to score; "-" where the products of a method are not
listed in ``benchmarks/_gpu_bench.py``. The ceilings are measured first, as by
``benchmarks/gpu.py``.

With ``--busy``, the least CPU seconds of our fits and scores with one thread and with
two are compared instead, on a quiet machine and next to two processes that spin: with
two threads they are at most 1.3 times as many.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from _detectors_data import WORKLOADS, make, save
from _detectors_peers import LIBRARIES, is_installed
from _detectors_skood import METHODS
from threadpoolctl import threadpool_limits

CHILD = Path(__file__).with_name("_detectors_child.py")
TWICE = ("Mahalanobis", "ViM", "KNN", "SHE", "GEN", "KLMatching")
WITHIN, WITHIN_MIB = 1.05, 1.1
# of a score, where another value than `WITHIN`
SCORES = dict.fromkeys(("ASH", "SCALE", "LTS"), 0.5)
SCORES |= dict.fromkeys(("GEN", "Entropy", "Energy", "MSP", "KLMatching"), 0.9)
SCORES |= dict.fromkeys(("ReActEnergy", "VRAEnergy"), 1.0)
MAX_SCORE_MIB = 256
MORE_CPU = 1.3  # with two threads
# no difference is seen below these
SECONDS, MIB = 20e-6, 8
# CPU seconds of a whole fit of workload F, on one thread. `floors` prints what bounds
# them: to read the samples once takes .009 s, and to sum them in float64 .018 s, so
# that NCI and FDBD cannot take .010 s; X^T X takes .3 s in float64. In float32 it
# takes half of that, but squared Mahalanobis distances have relative errors of 1e-7,
# 3e-6 and 2e-4 then, at condition numbers of the covariance of 1e2, 1e4 and 1e6; and
# the targets are missed even so: .15 s with .04 s for eigenvectors, .06 s to whiten the
# samples for the threshold and .05 s to center are .30 s (Mahalanobis), with .07 s for
# two eigh and .16 s for residuals .40 s and more (ViM).
FITS = dict.fromkeys(("NCI", "FDBD"), 0.010)
FITS |= {"Mahalanobis": 0.25, "RelativeMahalanobis": 0.25, "ViM": 0.4}
FITS |= dict.fromkeys(
    ("MSP", "MaxLogit", "Energy", "Entropy", "GEN", "KLMatching"), 0.004
)
# with the head, from features; and a third of the seconds at 09628020
FITS |= {"MSPHead": 0.006, "KNN": 0.42, "NNGuide": 1.2}
# CPU microseconds to score one row, on one thread. For a row of F, .14 to read it, and
# .3 to .45 for the product with the 10 rows of weights, are more than the .4 of ReAct
# and VRA where the machine is not idle.
ROWS = {("L", "Energy"): 0.28, ("F", "ReActEnergy"): 0.4, ("F", "VRAEnergy"): 0.4}
HEAD = (
    f"{'method':<20}{'library':<13}{'fit':>8}{'thr.':>8}{'fit CPU':>9}"
    f"{'score':>9}{'us/row':>9}{'fraction':>10}"
    f"{'MiB fit':>9}{'score':>7}{'AUROC':>7}{'x fit':>8}{'x score':>8}  note"
)


def run(options, timeout):
    """Measure in a fresh process; return the result, or a note on what went wrong."""
    threads = str(options["threads"])
    try:
        done = subprocess.run(
            [sys.executable, CHILD, json.dumps(options)],
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            env={
                **os.environ,
                "OMP_NUM_THREADS": threads,
                "OPENBLAS_NUM_THREADS": threads,
                "MKL_NUM_THREADS": threads,
            },
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"stopped after {timeout:g} s"}
    if done.returncode:
        last = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return {"failed": last[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def ceilings_of(device, folder):
    """Return measured ceilings of a GPU; None for the CPU."""
    if device == "cpu":
        return None
    import gpu
    from _gpu_bench import FULL, Bench

    bench = Bench(folder / "ceilings.jsonl", device, FULL, np.inf)
    gpu.ceilings(bench)
    return bench


def fraction_of_ceiling(bench, method, workload, scale, seconds):
    """Return the fraction of the ceilings of a score, in a dict; {} if not known."""
    from _gpu_bench import DETECTORS

    _, n_test, n_features, n_classes = WORKLOADS[workload]
    n_test = max(2, round(scale * n_test))
    products = {m.name: (precision, n) for m, _, precision, n in DETECTORS}
    if method.reads == "logits":
        n_values, (precision, n_products) = n_classes, ("float32", lambda d, c: 0)
    elif method.name in products:
        n_values, (precision, n_products) = n_features, products[method.name]
    else:
        return {}
    n_operations = 2 * n_test * n_products(n_features, n_classes)
    n_bytes = n_test * (4 * n_values + 8)  # float32, and the scores
    return bench.fraction(seconds, n_bytes, n_operations, precision)


def rows_of(workload, args, folder, bench=None):
    """Yield the results of each method, in one list per method."""
    save(make(workload, args.scale, args.seed), folder / workload)
    for method in METHODS:
        if method.name not in args.methods:
            continue
        if workload == "L" and method.name not in ("MSP", "Energy"):
            continue
        rows = []
        for library in args.libraries:
            if not is_installed(library) or (library == "numpy") > (workload == "L"):
                continue
            options = {
                "method": method.name,
                "library": library,
                "device": args.device,
                "inputs": str(folder / workload),
                "warm_up": str(folder / "tiny"),
                "repeat": args.repeat,
                "threads": args.threads,
            }
            result = run(options, args.timeout)
            if result.pop("missing", False):
                if library != "skood":
                    continue
                result = {"failed": "not there"}
            if bench is not None and "score" in result:
                result |= fraction_of_ceiling(
                    bench, method, workload, args.scale, result["score"]
                )
            rows.append(
                {"workload": workload, "method": method.name, "library": library}
                | result
            )
        yield add_ratios(rows)


@contextmanager
def spinning(n_processes):
    """Let processes compute during the block, no longer than this process lives."""
    code = f"import os\nwhile os.getppid() == {os.getpid()}: pass"
    command = [sys.executable, "-c", code]
    processes = [subprocess.Popen(command) for _ in range(n_processes)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def cpu_rows(workload, args, folder):
    """Yield (text, whether it is met) of the CPU seconds of each of our methods."""
    save(make(workload, args.scale, args.seed), folder / workload)
    for method in METHODS:
        if method.name not in args.methods:
            continue
        options = {
            "method": method.name,
            "library": "skood",
            "device": "cpu",
            "inputs": str(folder / workload),
            "warm_up": str(folder / "tiny"),
            "repeat": args.repeat,
        }
        for n_busy in (0, 2):
            with spinning(n_busy):
                one, two = (
                    run(options | {"threads": threads}, args.timeout)
                    for threads in (1, 2)
                )
            for key in ("fit_cpu", "score_cpu"):
                if key in one and key in two:
                    before, after = one[key], two[key]
                    text = (
                        f"{method.name:<20}{key:<11}{n_busy} busy {before:>9.4f}"
                        f"{after:>9.4f} s {after / before:>6.2f} (at most {MORE_CPU})"
                    )
                    yield text, after <= MORE_CPU * before


def floors(inputs, threads):
    """Print the CPU time of what no fit and no score of features can do without."""
    Z, coef, ones = inputs.Z, inputs.coef, np.ones(256)
    few = Z[: len(Z) // 10].astype(np.float64)

    def summed():
        blocks = (Z[k : k + 256].astype(np.float64) for k in range(0, len(Z), 256))
        return sum(ones[: len(block)] @ block for block in blocks)

    def least(call):
        times = []
        for _ in range(5):
            start = time.process_time()
            call()
            times.append(time.process_time() - start)
        return min(times)

    with threadpool_limits(threads):
        once, mean, gram = least(Z.sum), least(summed), 10 * least(lambda: few.T @ few)
        product = 1e6 * least(lambda: inputs.T @ coef.T) / len(inputs.T)
    print(
        f"floors: samples read once {once:.4f} CPU s, their mean in float64 "
        f"{mean:.4f}, X^T X in float64 {gram:.4f}; product with the head "
        f"{product:.3f} us/row"
    )


def own_fit(row):
    """Seconds of the fit without the threshold's, as `score_of`; None without a fit."""
    if "fit_cpu" in row:
        return row["fit_cpu"] - row.get("threshold_cpu", 0)
    return row["fit"] - row.get("threshold", 0) if "fit" in row else None


def fastest_peer(rows, key):
    """The correct peer with the least seconds; None if there is none."""
    peers = [
        row
        for row in rows
        if row["library"] != "skood" and row.get("correct") and key(row) is not None
    ]
    return min(peers, key=key, default=None)


def score_of(row):
    """Seconds to score, of the CPU, or of the wall on a GPU; None if that failed."""
    return row.get("score_cpu", row.get("score"))


def add_ratios(rows):
    """Divide seconds by those of the fastest correct peer."""
    for name, key in (("x_fit", own_fit), ("x_score", score_of)):
        peer = fastest_peer(rows, key)
        for row in rows:
            if peer is not None and key(row) is not None:
                row[name] = key(row) / max(key(peer), 1e-9)
    return rows


def _number(row, name, width, form):
    return f"{row[name]:>{width}{form}}" if name in row else f"{'-':>{width}}"


def line(row):
    """One line of the table."""
    text = f"{row['method']:<20}{row['library']:<13}"
    if "failed" in row:
        return f"{text}{row['failed']}"
    for name, width, form in (
        ("fit", 8, ".3f"),
        ("threshold", 8, ".3f"),
        ("fit_cpu", 9, ".4f"),
        ("score", 9, ".4f"),
        ("us_per_row", 9, ".3f"),
        ("fraction", 10, ".2f"),
        ("fit_mib", 9, ".0f"),
        ("score_mib", 7, ".0f"),
        ("auroc", 7, ".3f"),
        ("x_fit", 8, ".2f"),
        ("x_score", 8, ".2f"),
    ):
        text += _number(row, name, width, form)
    wrong = "" if row["correct"] else "wrong: "
    return f"{text}  {wrong}{row['note']}".rstrip()


def limits(row, threads):
    """Return (text, whether it is met) for each limit of one row, on one thread."""
    if threads != 1 or "score_cpu" not in row:
        return []
    method, name, met = row["method"], f"{row['workload']} {row['method']}", []
    if row["workload"] == "F" and method in FITS and "fit_cpu" in row:
        text = f"{name}: fit {row['fit_cpu']:.4f} CPU s, at most {FITS[method]:g}"
        met.append((text, row["fit_cpu"] <= FITS[method]))
    most = ROWS.get((row["workload"], method))
    if most is not None:
        text = f"{name}: {row['us_per_row']:.3f} us/row, at most {most:g}"
        met.append((text, row["us_per_row"] <= most))
    return met


def targets(rows, threads):
    """Return (text, whether it is met) for each target of one method's rows."""
    ours = next((row for row in rows if row["library"] == "skood"), {})
    if "score" not in ours:
        return []
    name = f"{ours['workload']} {ours['method']}"
    mib = ours["score_mib"]
    text = f"{name}: {mib:.0f} MiB to score, at most {MAX_SCORE_MIB}"
    met = [(text, mib <= MAX_SCORE_MIB), *limits(ours, threads)]
    unit = "CPU s" if "score_cpu" in ours else "s"
    for what, key in (("fit", own_fit), ("score", score_of)):
        peer = fastest_peer(rows, key)
        if peer is None or key(ours) is None:
            continue
        seconds, bar = key(ours), key(peer)
        most = SCORES.get(ours["method"], WITHIN) if what == "score" else WITHIN
        text = f"{name}: {what} {seconds:.5f} {unit}, {peer['library']} {bar:.5f}"
        text += f", at most {most:g} times" if most != WITHIN else ""
        met.append((text, seconds <= max(most * bar, SECONDS)))
        mib, bar = ours[f"{what}_mib"], peer[f"{what}_mib"]
        text = f"{name}: {what} {mib:.0f} MiB, {peer['library']} {bar:.0f} MiB"
        met.append((text, mib <= WITHIN_MIB * bar + MIB))
    peer = next((row for row in rows if row["library"] == "pytorch-ood"), {})
    if ours["method"] in TWICE and "score" in peer:
        factor = score_of(peer) / score_of(ours)
        text = f"{name}: {factor:.1f} times as fast as pytorch-ood to score, at least 2"
        met.append((text, factor >= 2 or score_of(ours) <= SECONDS))
    return met


def parse(argv):
    """Read the options."""
    names = [method.name for method in METHODS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    shown = [name for name in WORKLOADS if name != "tiny"]
    add("--methods", nargs="+", choices=names, default=names, metavar="METHOD")
    add("--workloads", nargs="+", choices=shown, default=shown)
    add("--libraries", nargs="+", choices=list(LIBRARIES), default=list(LIBRARIES))
    add("--scale", type=float, default=1.0, help="fraction of the samples (default: 1)")
    add("--repeat", type=int, default=3, help="measurements (default: 3)")
    add("--threads", type=int, default=os.cpu_count(), help="default: one per core")
    add("--device", default="cpu", help="cpu (default) or cuda")
    add("--busy", action="store_true", help="CPU seconds with one and two threads")
    add("--seed", type=int, default=0, help="of the workloads (default: 0)")
    add("--timeout", type=float, default=900, help="seconds per process (default: 900)")
    add("--json", type=Path, metavar="FILE", help="also write the rows to a file")
    add("--strict", action="store_true", help="exit with 1 if a target is missed")
    return parser.parse_args(argv)


def main(argv=None):
    """Print the tables and what was missed; return 1 if that matters."""
    args = parse(argv)
    kept, outcomes = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save(make("tiny"), folder / "tiny")
        bench = ceilings_of(args.device, folder)
        for workload in args.workloads:
            if args.busy:
                print(f"\n{workload}: CPU seconds with one and with two threads")
                for text, met in cpu_rows(workload, args, folder):
                    print(text, "OK" if met else "missed", flush=True)
                    outcomes.append((f"{workload} {text}", met))
                continue
            n_train, n_test, n_features, n_classes = WORKLOADS[workload]
            print(
                f"\n{workload}: {args.scale * n_train:,.0f} training and "
                f"{args.scale * n_test:,.0f} test rows, {n_features} features, "
                f"{n_classes} classes, {args.threads} threads, {args.device}\n{HEAD}"
            )
            if n_features:
                floors(make(workload, args.scale, args.seed), args.threads)
            for rows in rows_of(workload, args, folder, bench):
                for row in rows:
                    print(line(row), flush=True)
                kept += rows
                outcomes += targets(rows, args.threads)
    missed = [text for text, met in outcomes if not met]
    print(f"\n{len(outcomes) - len(missed)} targets OK, {len(missed)} missed")
    for text, met in outcomes:
        print(f"{'OK' if met else 'missed':<8}{text}")
    if args.json is not None:
        about = {"scale": args.scale, "device": args.device, "threads": args.threads}
        about |= {"machine": platform.platform(), "python": platform.python_version()}
        args.json.write_text(json.dumps({"about": about, "rows": kept}, indent=1))
    return int(args.strict and bool(missed))


if __name__ == "__main__":
    sys.exit(main())
