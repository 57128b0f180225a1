"""Fit and score detectors on a memory-mapped file, within a limit of memory.

Run as a script, by ``tests/test_scale.py``; the only argument is a JSON object with

path : the file of rows; labels are in the file of the same name that ends in ``.y.npy``
names : which of `detectors` to run
chunk : bytes that a chunk of rows may have, or null for the default
limit : bytes that a detector may add to what the process has, or null
total : bytes that the whole process may have, or null

What counts is the data segment: all private writable memory, used or not, which is more
than the anonymous memory in use. Pages of the file are shared with the kernel's cache,
and do not count. Beyond the limit an allocation fails, and with it the process.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import ctypes
import gc
import json
import resource
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np

N_CLASSES = 10


def status(*names):
    """Lines of ``/proc/self/status``, added up, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(names))


def write_rows(path, n_rows, n_columns):
    """Write float32 rows of 10 classes, and labels, of which some are OOD."""
    rng = np.random.default_rng(0)
    y = rng.integers(N_CLASSES, size=n_rows)
    y[rng.random(n_rows) < 0.05] = -1
    np.save(Path(path).with_suffix(".y.npy"), y)
    X = np.lib.format.open_memmap(path, "w+", np.float32, (n_rows, n_columns))
    for start in range(0, n_rows, 16384):
        own = y[start : start + 16384]
        block = rng.standard_normal((len(own), n_columns), dtype=np.float32)
        block[np.arange(len(own)), own] += 4.0  # -1 is the last column
        X[start : start + 16384] = block
    X.flush()


def detectors(n_columns):
    """Detectors by name; heads are frozen."""
    from sklearn.frozen import FrozenEstimator
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    from skood.detectors import (
        KNN,
        MSP,
        SSD,
        Energy,
        Mahalanobis,
        RelativeMahalanobis,
        Residual,
        ViM,
    )
    from skood.nn import LinearHead

    head = LinearHead(np.eye(N_CLASSES, n_columns, dtype=np.float32)).fit(
        np.zeros((N_CLASSES, n_columns), np.float32), np.arange(N_CLASSES)
    )
    frozen = FrozenEstimator(head)
    body = FunctionTransformer(np.abs).fit(np.zeros((1, n_columns)))
    pipeline = FrozenEstimator(make_pipeline(body, head))

    class Copies(SSD):
        def _fit_outputs(self, outputs, y):
            self.copy = np.array(outputs.features)
            super()._fit_outputs(outputs, y)

    return {
        "MSP": MSP(),
        "Energy": Energy(),
        "Energy of a head": Energy(frozen),
        "Energy of a pipeline": Energy(pipeline),
        "Mahalanobis": Mahalanobis(),
        "RelativeMahalanobis": RelativeMahalanobis(),
        "SSD": SSD(),
        "Residual": Residual(frozen),
        "ViM": ViM(frozen),
        "KNN": KNN(n_neighbors=5, max_samples=200, algorithm="sklearn", random_state=0),
        "Copies": Copies(),
    }


class Peak:
    """Largest anonymous and shared memory that a thread sees in the block, in bytes."""

    def __enter__(self):
        self.bytes, self._ended = 0, threading.Event()
        threading.stack_size(256 * 1024)  # it counts
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self):
        while not self._ended.wait(0.005):
            self.bytes = max(self.bytes, status("RssAnon:", "RssShmem:"))

    def __exit__(self, *error):
        self._ended.set()
        self._thread.join()


def limit_data(n_bytes):
    """Limit the data segment."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (n_bytes, hard))


def main(job):
    """Run detectors; print a line of JSON for each."""
    warnings.simplefilter("ignore")
    if job["total"]:
        limit_data(job["total"])
    import skood.detectors._common._base_output_detector as base

    if job["chunk"]:
        base.OutputDetector._chunk_bytes = job["chunk"]
        base.BLOCK_BYTES = job["chunk"]
    X = np.load(job["path"], mmap_mode="r")
    y = np.load(Path(job["path"]).with_suffix(".y.npy"))
    found = detectors(X.shape[1])
    for name in job["names"]:
        detector = found[name]
        labels = None if name in ("MSP", "Energy") else y  # of columns that are logits
        few = None if labels is None else labels[:2000]
        detector.fit(np.array(X[:2000]), few).score_samples(X[:2000])  # warm up
        gc.collect()
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        start = time.perf_counter()
        with Peak() as peak:
            if job["limit"]:
                limit_data(status("VmData:") + job["limit"])
            scores = detector.fit(X, labels).score_samples(X)
        assert scores.shape == y.shape
        seconds = time.perf_counter() - start
        result = {"name": name, "seconds": seconds, "mib": peak.bytes / 2**20}
        print(json.dumps(result), flush=True)
        if job["limit"]:
            limit_data(resource.RLIM_INFINITY)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
