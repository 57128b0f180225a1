"""Measurements of ``benchmarks/gpu.py``: file, budget, times, counts and targets."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import gc
import json
import platform
import statistics
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from _detectors_data import make
from _detectors_skood import Method
from torch import nn

# Method, least fraction of the ceilings, precision of the products, and multiply-adds
# of a sample of d features with c classes. Mahalanobis distances are computed in
# float64; other methods project in the precision of the features.
DETECTORS = (
    (Method("Mahalanobis", "features"), 0.5, "float64", lambda d, c: d * (d + c)),
    (Method("ViM", "head"), 0.5, "float32", lambda d, c: d * (d // 2 + c)),
    (Method("PNML", "head"), 0.5, "float32", lambda d, c: d * (d + c)),
    (Method("Energy", "head"), 0.5, "float32", lambda d, c: d * c),
    (Method("SHE", "head"), 0.5, "float32", lambda d, c: d * c),
    (
        Method("RelativeMahalanobis", "features"),
        0.3,
        "float64",
        lambda d, c: d * (d + c),
    ),
    (Method("NCI", "head"), 0.3, "float32", lambda d, c: d * c),
    (Method("FDBD", "head"), 0.3, "float32", lambda d, c: d * c),
    (Method("ReActEnergy", "energy"), 0.3, "float32", lambda d, c: d * c),
)

# Section and name of a measurement: the value that is compared, how, and with what.
TARGETS = {
    ("knn", "bank 1,000,000, 20,000 queries"): ("fraction", ">=", 0.4),
    ("knn", "bank 1,000,000, 1 query"): ("seconds", "<=", 0.002),
    ("quam", "last"): ("points_per_second", ">=", 1000),
    ("quam", "dense"): ("points_per_second", ">=", 500),
    ("quam", "1,000 classes"): ("points_per_second", ">=", 20),
    ("features", "ResNet-50, X on the host"): ("speed", ">=", 0.8),
    ("features", "ResNet-50, X on the device"): ("speed", ">=", 0.8),
    ("training", "TorchClassifier"): ("ratio", "<=", 1.2),
    ("graph", "GCN"): ("ratio", "<=", 1.0),
}
for _method, _least, *_ in DETECTORS:
    _score = "detectors", f"{_method.name}, score, X on the device"
    TARGETS[_score] = "fraction", ">=", _least
    # of three times the score and one pass over the samples
    TARGETS["detectors", f"{_method.name}, fit, X on the device"] = "ratio", "<=", 1.0
    TARGETS["detectors", f"{_method.name}, difference"] = "difference", "<=", 2e-6

# Calls of the CUDA runtime that wait for the device.
WAITS = "cudaStreamSynchronize", "cudaEventSynchronize", "cudaMemcpy"

# Calls of so many seconds are measured once.
LONG = 10.0


@dataclass(frozen=True)
class Sizes:
    """Numbers of samples and others of a run."""

    seconds: float  # to repeat a measurement for
    matrix: int
    transfer: int  # values
    workload: str  # of _detectors_data
    drawn: float  # fraction of its samples; `samples` are noisy copies of them
    samples: int
    checked: int  # samples of the comparison with the CPU
    banks: tuple
    queries: int
    lenet: int  # training samples
    points: dict  # of QUAM
    points_1000: int
    head: tuple  # samples and features of the head of 1,000 classes
    steps: int | None  # of QUAM, None: the default
    images: int
    trained: int  # samples
    epochs: int
    nodes: int
    graph_epochs: int
    members: int


FULL = Sizes(
    seconds=0.5,
    matrix=8192,
    transfer=2**26,
    workload="F",
    drawn=1.0,
    samples=1_000_000,
    checked=20_000,
    banks=(50_000, 1_000_000),
    queries=20_000,
    lenet=2000,
    points={"last": 4000, "dense": 2000, "full": 8},
    points_1000=40,
    head=(6000, 2048),
    steps=None,
    images=2048,
    trained=100_000,
    epochs=5,
    nodes=100_000,
    graph_epochs=200,
    members=100,
)
SMALL = Sizes(
    seconds=0.005,
    matrix=128,
    transfer=2**14,
    workload="tiny",
    drawn=0.3,
    samples=600,
    checked=300,
    banks=(200, 500),
    queries=50,
    lenet=200,
    points={"last": 4, "dense": 4, "full": 1},
    points_1000=1,
    head=(200, 64),
    steps=2,
    images=8,
    trained=300,
    epochs=2,
    nodes=300,
    graph_epochs=3,
    members=3,
)


def stored(path):
    """Return the measurements of a file, without a last line that was interrupted."""
    records = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            print(f"{path}: ignored an incomplete line")
    return records


def verdict(record, compares=True):
    """Return the target of a measurement in words, and whether it is met, or None."""
    target = TARGETS.get((record["section"], record["name"]))
    if target is None:
        return "", None
    field, relation, limit = target
    text = f"{field} {relation} {limit:g}"
    if not compares or (field not in record and "error" not in record):
        return f"{text}: not compared", None
    value = record.get(field, np.nan)  # of a failed measurement: missed
    met = value >= limit if relation == ">=" else value <= limit
    return f"{text}: {'OK' if met else 'missed'}", met


def floor_seconds(n_bytes, n_operations, bandwidth, peak):
    """Return the seconds of the slower of two ceilings: bytes, and operations."""
    return float(np.maximum(n_bytes / bandwidth, n_operations / peak))  # NaN stays


def counted(events):
    """Return launches, waits and bytes of the events of a trace of torch's profiler."""
    launches = sum(event.get("cat") == "kernel" for event in events)
    if not launches:
        return {"counts": "the profiler recorded no kernel"}
    copies = [event for event in events if event.get("cat") == "gpu_memcpy"]

    def moved(direction):
        return sum(e["args"].get("bytes", 0) for e in copies if direction in e["name"])

    return {
        "launches": launches,
        "waits": sum(
            event.get("cat") == "cuda_runtime" and event["name"] in WAITS
            for event in events
        ),
        "bytes_to_device": moved("HtoD"),
        "bytes_to_host": moved("DtoH"),
    }


class Bench:
    """The measurements of one file, and what they share: device, sizes, features.

    Parameters
    ----------
    path : Path
        The file of measurements.

    device : str
        "cuda", or "cpu".

    sizes : Sizes
        Numbers of samples.

    budget : float
        Seconds after which no measurement is started.

    clock : callable
        Returns seconds.
    """

    def __init__(self, path, device, sizes, budget, clock=time.perf_counter):
        self.path, self.sizes, self.budget, self.clock = path, sizes, budget, clock
        self.device = torch.device(device)
        self.on_card = self.device.type == "cuda"
        self.start, self.n_skipped = clock(), 0
        self.compares = self.on_card and sizes is FULL
        records = stored(path)
        about = self._about()
        for key in ("device", "small"):
            if records and records[0].get(key) != about[key]:
                raise SystemExit(
                    f"{path} has measurements with {key}={records[0].get(key)!r}, and "
                    f"this run has {key}={about[key]!r}. Choose another file."
                )
        records = records or [about]
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        print(", ".join(f"{key} {value}" for key, value in records[0].items()))
        self.records = {(r["section"], r["name"]): r for r in records}

    def _about(self):
        name = torch.cuda.get_device_name(self.device) if self.on_card else "CPU"
        return {
            "section": "about",
            "name": "machine",
            "device": name,
            "small": self.sizes is SMALL,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
            "machine": platform.platform(),
        }

    def remaining(self):
        """Return the seconds of the budget that are left."""
        return self.budget - (self.clock() - self.start)

    def measure(self, section, name, function):
        """Return the measurement that is stored, or that `function` returns now.

        None: there is no time. An error of the function is stored.
        """
        record = self.records.get((section, name))
        if record is None or "error" in record:
            if self.remaining() <= 0:
                self.n_skipped += 1
                print(f"{section}: {name}: skipped, {self.budget:g} s are spent")
                return None
            record = {"section": section, "name": name} | self._measured(function)
            with self.path.open("a") as file:
                file.write(json.dumps(record) + "\n")
            self.records[section, name] = record
        print(shown(record, self.compares), flush=True)
        return record

    def _measured(self, function):
        if self.on_card:
            before = torch.cuda.memory_allocated(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
        try:
            values = function()
            self.synchronize()
        except Exception as error:  # the next measurement may be possible
            first = str(error).strip().partition("\n")[0]
            values = {"error": f"{type(error).__name__}: {first[:300]}"}
        if "error" in values:
            gc.collect()  # its frames have tensors
        if self.on_card:
            peak = torch.cuda.max_memory_allocated(self.device)
            values["MiB"] = (peak - before) >> 20
            with suppress(RuntimeError):  # after an error of a kernel all calls fail
                torch.cuda.empty_cache()
        return values

    def synchronize(self):
        """Wait until the device is idle."""
        if self.on_card:
            torch.cuda.synchronize(self.device)

    def seconds(self, call):
        """Return the median seconds of a call, after one to warm up."""
        times = [self.once(call)]
        if times[0] < LONG:
            times = [self.once(call)]
        while sum(times) < self.sizes.seconds and len(times) < 100:
            times.append(self.once(call))
        return statistics.median(times)

    def once(self, call):
        """Return the seconds of one call, from an idle device to an idle device."""
        self.synchronize()
        start = time.perf_counter()
        call()
        self.synchronize()
        return time.perf_counter() - start

    def counts(self, call):
        """Return launches, waits and bytes of a call; {} on a CPU."""
        if not self.on_card:
            return {}
        from torch.profiler import ProfilerActivity, profile

        try:
            with profile(activities=[ProfilerActivity.CUDA]) as profiler:
                call()
                self.synchronize()
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "trace.json"
                profiler.export_chrome_trace(str(path))
                return counted(json.loads(path.read_text())["traceEvents"])
        except Exception as error:  # some machines do not permit it; the time is valid
            return {"counts": f"{type(error).__name__}: {error}"}

    def rate(self, name):
        """Return a ceiling, or NaN if it could not be measured."""
        return self.records.get(("ceilings", name), {}).get("per_second", np.nan)

    def fraction(self, seconds, n_bytes, n_operations, precision):
        """Return the fraction of the ceilings, in a dict; {} without ceilings."""
        floor = floor_seconds(
            n_bytes, n_operations, self.rate("copy"), self.rate(precision)
        )
        return {"fraction": floor / seconds} if np.isfinite(floor) else {}

    @cached_property
    def inputs(self):
        """A workload of ``benchmarks/detectors.py``."""
        return make(self.sizes.workload, self.sizes.drawn)

    @cached_property
    def features(self):
        """Noisy copies of the features of the workload, tensors on the device."""
        sizes = self.sizes
        inputs = self.inputs
        copies = -(-sizes.samples // len(inputs.Z))
        Z = torch.from_numpy(inputs.Z).to(self.device)
        Z = Z.repeat(copies, 1)[: sizes.samples]
        generator = torch.Generator(self.device).manual_seed(0)
        Z *= torch.empty_like(Z).normal_(1.0, 0.05, generator=generator)
        y = np.tile(inputs.y, copies)[: sizes.samples]
        return replace(inputs, Z=Z, y=y, T=Z)

    @cached_property
    def host_features(self):
        """The same features as NumPy arrays."""
        Z = self.features.Z.cpu().numpy()
        return replace(self.features, Z=Z, T=Z)

    @cached_property
    def network(self):
        """Network whose features and head are those of `features`, on the device."""
        inputs = self.inputs
        n_features, n_classes = inputs.coef.shape[::-1]
        net = nn.Sequential(
            nn.Linear(n_features, n_features),
            nn.ReLU(),
            nn.Linear(n_features, n_classes),
        )
        with torch.no_grad():
            net[0].weight.copy_(torch.eye(n_features))
            net[0].bias.zero_()
            net[2].weight.copy_(torch.from_numpy(inputs.coef))
            net[2].bias.copy_(torch.from_numpy(inputs.intercept))
        return net.eval().to(self.device)

    def samples(self, n_samples):
        """Return features, as a NumPy array, and labels of so many samples."""
        return self.features.Z[:n_samples].cpu().numpy(), self.features.y[:n_samples]


def shown(record, compares):
    """Return the line of a measurement."""
    values = {k: v for k, v in record.items() if k not in ("section", "name", "output")}
    text = ", ".join(
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in values.items()
    )
    target, _ = verdict(record, compares)
    return f"{record['section']}: {record['name']}: {text}  {target}".rstrip()
