"""Memory and rows per second of detectors on a memory-mapped file.

A file of float32 rows is written to ``--folder`` and opened by
``np.load(path, mmap_mode="r")``. Each detector fits it and scores it in a process of
its own::

    python benchmarks/scale.py
    python benchmarks/scale.py --rows 100000 400000 --columns 512 --detectors KNN SSD
    python benchmarks/scale.py --rows 2000000 --ood 0.1

What is printed, per detector and number of rows:

fit, score
    Thousands of rows per second of the processor, of all threads together: set
    ``OMP_NUM_THREADS=1`` where others work, too. Rows of the file are features,
    logits, or features of a frozen linear head of 10 classes.
MiB fit, score
    Peak anonymous and shared memory of the process above what it had after its
    imports. Pages of the file, which the kernel drops where memory is short, are not
    in it. It is polled from outside, so that nothing is missed while Python waits.
kept
    MiB of the pickled detector.

With ``--sparse`` the rows are a CSR matrix in memory with 50 values in each of them,
such as 20,000 documents of 50,000 words. The targets of KNN with all of these 20,000 in
its bank are 2 s of a thread for the fit, 15 s for the scores, and 200 MiB::

    python benchmarks/scale.py --sparse --rows 20000 --columns 50000 --detectors KNN

With ``--ood`` a fraction of the rows carries the label -1, and is left out of the fit.
With ``--dtype float16`` rows have to be converted, too. Linux only.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array, load_npz, save_npz

N_CLASSES = 10

# Banks of all rows would take minutes to search.
OPTIONS = {
    "KNN": {"normalize": True, "max_samples": 5000, "random_state": 0},
    "NNGuide": {"max_samples": 0.01, "random_state": 0},
    "Relation": {"max_samples": 5000, "random_state": 0},
}

_BLOCK = 16384


def write_rows(folder, n_rows, n_columns, dtype="float32", ood=0.0):
    """Write rows and labels; return the path of the rows."""
    path = Path(folder) / f"rows_{n_rows}_{n_columns}_{dtype}_{ood}.npy"
    rng = np.random.default_rng(0)
    y = rng.integers(N_CLASSES, size=n_rows)
    y[rng.random(n_rows) < ood] = -1
    np.save(path.with_suffix(".y.npy"), y)
    X = np.lib.format.open_memmap(path, "w+", dtype, (n_rows, n_columns))
    for start in range(0, n_rows, _BLOCK):
        own = y[start : start + _BLOCK]
        block = rng.standard_normal((len(own), n_columns), dtype=np.float32)
        block[np.arange(len(own)), own] += 4.0  # -1 is the last column
        X[start : start + _BLOCK] = block
    X.flush()
    return path


def write_sparse_rows(folder, n_rows, n_columns):
    """Write rows with 50 values each, and labels; return the path of the rows."""
    path = Path(folder) / f"rows_{n_rows}_{n_columns}.npz"
    rng = np.random.default_rng(0)
    np.save(path.with_suffix(".y.npy"), rng.integers(N_CLASSES, size=n_rows))
    columns = rng.integers(n_columns, size=50 * n_rows)
    values = rng.exponential(size=50 * n_rows)
    X = csr_array((values, columns, np.arange(0, 50 * n_rows + 1, 50)))
    X.resize(n_rows, n_columns)
    X.sum_duplicates()
    save_npz(path, X)
    return path


def output_detectors():
    """Return the names of all detectors that use the outputs of a classifier."""
    from skood.utils.discovery import all_estimators

    return [name for name, cls in all_estimators("detector") if hasattr(cls, "_needs")]


def make(name, n_columns, options):
    """Return a detector; those that read a head get a frozen one."""
    from sklearn.frozen import FrozenEstimator

    import skood.detectors as detectors
    from skood.nn import LinearHead

    found = getattr(detectors, name)
    detector = found(**options)
    if not detector._fits_head:
        return detector
    rng = np.random.default_rng(1)
    coef = np.eye(N_CLASSES, n_columns) + 0.01 * rng.normal(size=(N_CLASSES, n_columns))
    head = LinearHead(coef.astype(np.float32), np.full(N_CLASSES, 4.0, np.float32))
    return found(FrozenEstimator(head), **options)


def child(job):
    """Fit and score one detector in this process; say what is going on."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    y = np.arange(400) % N_CLASSES
    warm = rng.normal(size=(400, job["columns"])).astype(np.float32)
    warm[np.arange(400), y] += 4.0
    options = {k: v for k, v in job["options"].items() if k == "n_neighbors"}
    is_sparse = job["path"].endswith(".npz")
    warm = csr_array(warm[:, :200]) if is_sparse else warm
    make(job["name"], warm.shape[1], options).fit(warm, y).score_samples(warm)
    X = load_npz(job["path"]) if is_sparse else np.load(job["path"], mmap_mode="r")
    y = np.load(Path(job["path"]).with_suffix(".y.npy"))
    detector = make(job["name"], job["columns"], job["options"])
    result = {}
    for stage in ("fit", "score"):
        print(stage, flush=True)
        start = time.process_time()
        if stage == "fit":
            detector.fit(X, y)
        else:
            scores = detector.score_samples(X)
        result[stage] = time.process_time() - start
    print("end", flush=True)
    assert len(scores) == len(y)
    result["kept"] = len(pickle.dumps(detector)) / 2**20
    print(json.dumps(result), flush=True)


def anonymous_mib(pid):
    """Anonymous and shared memory of a process."""
    names = ("RssAnon:", "RssShmem:")
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(names)) / 1024


def measure(job):
    """Run a child and watch its memory."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--child", json.dumps(job)],
        stdout=subprocess.PIPE,
        text=True,
    )
    said, peaks = [], {"now": "start"}
    listener = threading.Thread(target=lambda: said.extend(_heard(process, peaks)))
    listener.start()
    while process.poll() is None:
        try:
            now = anonymous_mib(process.pid)
        except (OSError, ProcessLookupError):
            break
        stage = peaks["now"]
        peaks[stage] = max(peaks.get(stage, 0.0), now)
        time.sleep(0.002)
    process.wait()
    listener.join()
    if process.returncode or not said:
        return None
    result = json.loads(said[-1])
    for stage in ("fit", "score"):
        peak = max(peaks.get(stage, 0.0), peaks["base"])
        result[f"{stage}_mib"] = peak - peaks["base"]
    return result


def _heard(process, peaks):
    """Yield what the child says; note the stage that it is in."""
    for line in process.stdout:
        line = line.strip()
        if line == "fit":
            peaks["base"] = anonymous_mib(process.pid)
        if line in ("fit", "score", "end"):
            peaks["now"] = line
        else:
            yield line


def main():
    """Measure all, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[50_000, 200_000])
    parser.add_argument("--columns", type=int, default=512)
    parser.add_argument("--detectors", nargs="+", default=output_detectors())
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--sparse", action="store_true")
    parser.add_argument("--ood", type=float, default=0.0)
    parser.add_argument("--folder", default=None)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(json.loads(given.child))
        return
    print(
        f"{'detector':<21}{'rows':>9}{'fit k/s':>9}{'score k/s':>11}"
        f"{'MiB fit':>9}{'score':>8}{'kept':>7}"
    )
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for n_rows in given.rows:
            if given.sparse:
                path = write_sparse_rows(folder, n_rows, given.columns)
            else:
                path = write_rows(folder, n_rows, given.columns, given.dtype, given.ood)
            for name in given.detectors:
                job = {"name": name, "path": str(path), "columns": given.columns}
                options = {} if given.sparse else OPTIONS.get(name, {})
                result = measure({**job, "options": options})
                if result is None:
                    print(f"{name:<21}{n_rows:>9}  failed", flush=True)
                    continue
                fit, score = (n_rows / result[k] / 1e3 for k in ("fit", "score"))
                print(
                    f"{name:<21}{n_rows:>9}{fit:>9.1f}{score:>11.1f}"
                    f"{result['fit_mib']:>9.0f}{result['score_mib']:>8.0f}"
                    f"{result['kept']:>7.1f}",
                    flush=True,
                )
            os.remove(path)


if __name__ == "__main__":
    main()
