"""The script that measures on a GPU, on a CPU and with made-up numbers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

FOLDER = Path(__file__).parents[2] / "benchmarks"

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="benchmarks/ is only in the source tree"
)


@pytest.fixture
def gpu(monkeypatch):
    """The script; modules next to it are imported from its folder."""
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("gpu")


@pytest.fixture
def core(gpu):
    """The module with the file, the budget, times and targets."""
    return importlib.import_module("_gpu_bench")


class Clock:
    """Seconds that tests set."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def make(core, tmp_path, clock):
    """A function that opens the file of measurements anew."""

    def opened(budget=100.0):
        path = tmp_path / "measurements.jsonl"
        return core.Bench(path, "cpu", core.SMALL, budget, clock)

    return opened


def lines(bench):
    return [json.loads(line) for line in bench.path.read_text().splitlines()]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """One file for all sections: ceilings are measured once."""
    return tmp_path_factory.mktemp("gpu") / "measurements.jsonl"


NAMES = {
    "ceilings": 9,
    "detectors": 15,  # three detectors
    "knn": 4,
    "quam": 4,
    "features": 2,
    "training": 1,
    "graph": 1,
    "dropout": 1,
    "ensemble": 1,
    "one_sample": 1,
}


@pytest.mark.parametrize("section", NAMES)
def test_section_runs_in_small(gpu, core, section, path, capsys, monkeypatch):
    """`tests` runs at night, with the whole script."""
    assert set(NAMES) == set(gpu.SECTIONS) - {"tests"}
    chosen = {"Mahalanobis", "Energy", "ReActEnergy"}
    few = [item for item in gpu.DETECTORS if item[0].name in chosen]
    monkeypatch.setattr(gpu, "DETECTORS", few)
    options = "--device", "cpu", "--small", "--only", section
    assert gpu.main(["--out", str(path), *options]) == 0
    printed = capsys.readouterr().out
    assert "0 measurements failed, 0 skipped" in printed
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert records[0]["device"] == "CPU" and records[0]["small"]
    measured = [record for record in records if record["section"] == section]
    assert len(measured) == NAMES[section]
    for record in measured:
        values = [v for v in record.values() if isinstance(v, float)]
        assert values and np.isfinite(values).all() and min(values) >= 0, record
        assert f"{section}: {record['name']}: " in printed
        difference = record.get("difference", 0.0)
        assert difference < (0.02 if section == "features" else 1e-6)


def test_measurements_are_stored_line_by_line(make, core):
    bench, seen = make(), []
    for name, value in (("a", 1.5), ("b", 2.5)):
        record = bench.measure("training", name, lambda value=value: {"seconds": value})
        seen.append(record)
        assert lines(bench)[-1] == record
    about, *measured = lines(bench)
    assert about["section"] == "about" and about["torch"] == torch.__version__
    assert measured == seen
    assert measured[1] == {"section": "training", "name": "b", "seconds": 2.5}


def test_file_is_continued(make):
    """Failed measurements are repeated, and a line cut by a signal is dropped."""
    bench, calls = make(), []

    def fails():
        calls.append("b")
        raise ValueError("no memory\nand more")

    bench.measure("knn", "a", lambda: calls.append("a") or {"seconds": 1.0})
    failed = bench.measure("knn", "b", fails)
    assert failed["error"] == "ValueError: no memory"
    with bench.path.open("a") as file:
        file.write('{"section": "knn", "na')
    again = make()
    assert again.measure("knn", "a", fails)["seconds"] == 1.0
    assert again.measure("knn", "b", lambda: {"seconds": 3.0})["seconds"] == 3.0
    assert calls == ["a", "b"]
    assert [record["name"] for record in lines(again)] == ["machine", "a", "b", "b"]
    final = make()
    assert "error" not in final.records["knn", "b"]


def test_file_of_another_machine(make, core, gpu):
    bench = make()
    about = lines(bench)[0]
    bench.path.write_text(json.dumps(about | {"device": "NVIDIA H100"}) + "\n")
    with pytest.raises(SystemExit, match="device='NVIDIA H100', and this run has"):
        make()
    bench.path.write_text(json.dumps(about | {"small": False}) + "\n")
    with pytest.raises(SystemExit, match=r"small=False.*Choose another file"):
        make()


def test_budget(make, clock, capsys):
    """Measurements that are not stored are skipped once it is spent, not before."""
    bench, calls = make(budget=10.0), []
    clock.now += 9.9
    bench.measure("quam", "first", lambda: calls.append(1) or {"seconds": 1.0})
    clock.now += 0.1
    assert bench.measure("quam", "second", lambda: calls.append(2)) is None
    assert bench.measure("quam", "first", lambda: calls.append(3))["seconds"] == 1.0
    assert calls == [1] and bench.n_skipped == 1
    assert "quam: second: skipped, 10 s are spent" in capsys.readouterr().out
    again = make(budget=10.0)  # its time starts anew
    assert again.measure("quam", "second", lambda: {"seconds": 2.0})["seconds"] == 2.0


def test_sections_without_time(gpu, tmp_path, capsys):
    path = tmp_path / "none.jsonl"
    options = "--device", "cpu", "--small", "--budget", "0"
    assert gpu.main(["--out", str(path), *options]) == 0
    printed = capsys.readouterr().out
    assert "0 targets OK, 0 missed; 0 measurements failed, " in printed
    places = [printed.index(f"\n{name}: ") for name in gpu.SECTIONS]
    assert places == sorted(places)
    assert len(path.read_text().splitlines()) == 1


def test_failed_measurement_is_an_error(gpu, monkeypatch, tmp_path):
    def fails(bench):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr(gpu, "training_values", fails)
    path = tmp_path / "failed.jsonl"
    options = "--device", "cpu", "--small", "--only", "training"
    assert gpu.main(["--out", str(path), *options]) == 1
    record = json.loads(path.read_text().splitlines()[-1])
    assert record["error"].startswith("OutOfMemoryError: CUDA out of memory. Tried")


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        (("knn", "bank 1,000,000, 1 query"), {"seconds": 0.002}, "OK"),
        (("knn", "bank 1,000,000, 1 query"), {"seconds": 0.0021}, "missed"),
        (("knn", "bank 50,000, 1 query"), {"seconds": 9.0}, None),
        (("quam", "dense"), {"points_per_second": 499.0}, "missed"),
        (("quam", "dense"), {"points_per_second": 500.0}, "OK"),
        (("quam", "dense"), {"error": "no memory"}, "missed"),
        (("graph", "GCN"), {"seconds": 1.0}, "not compared"),  # without the peer
        (("detectors", "FDBD, score, X on the device"), {"fraction": 0.3}, "OK"),
        (("detectors", "Energy, score, X on the device"), {"fraction": 0.3}, "missed"),
        (("detectors", "ViM, difference"), {"difference": 1e-6}, "OK"),
        (("detectors", "ViM, difference"), {"difference": np.nan}, "missed"),
        (("features", "ResNet-50, X on the host"), {"speed": 0.79}, "missed"),
    ],
)
def test_targets(core, name, values, expected):
    record = {"section": name[0], "name": name[1], **values}
    text, met = core.verdict(record)
    assert text.rpartition(": ")[2] == (expected or "")
    assert met is {"OK": True, "missed": False}.get(expected)
    text, met = core.verdict(record, compares=False)
    assert met is None and ("not compared" in text) == (expected is not None)


def test_every_target_is_measured(gpu, core, tmp_path, monkeypatch, capsys):
    """Names of targets are names of measurements in full size."""
    monkeypatch.setattr(core.Bench, "_measured", lambda *_: {"seconds": 1.0})
    path = tmp_path / "names.jsonl"
    bench = core.Bench(path, "cpu", core.FULL, 100.0)
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: True)
    for section in gpu.SECTIONS.values():
        section(bench)
    assert set(core.TARGETS) <= set(bench.records)


def test_fraction_of_the_ceilings(make, core, gpu, monkeypatch):
    """A million samples of 512 values in 10 classes, on made-up ceilings."""
    bench = make()
    for name, rate in (("copy", 4e12), ("float64", 5e13), ("float32", 4e13)):
        record = {"section": "ceilings", "name": name, "per_second": rate}
        bench.records["ceilings", name] = record
    n_bytes = 1e6 * (4 * 512 + 8)
    for method, _, precision, products in core.DETECTORS:
        n_operations = 2e6 * products(512, 10)
        fraction = bench.fraction(0.02, n_bytes, n_operations, precision)["fraction"]
        by_name = {
            "Mahalanobis": 2e6 * 512 * 522 / 5e13,
            "RelativeMahalanobis": 2e6 * 512 * 522 / 5e13,
            "ViM": 2e6 * 512 * 266 / 4e13,
            "PNML": 2e6 * 512 * 522 / 4e13,
        }
        floor = by_name.get(method.name, 2.056e9 / 4e12)
        assert fraction == pytest.approx(floor / 0.02, rel=1e-12)
    assert bench.fraction(1.0, 1.0, 1.0, "TF32") == {}  # not measured
    del bench.records["ceilings", "copy"]
    assert bench.fraction(1.0, 1.0, 1.0, "float32") == {}


def test_counts_of_a_trace(core, make):
    def event(cat, name, **args):
        return {"cat": cat, "name": name, "args": args}

    events = [
        {"name": "process_name", "ph": "M"},
        event("cuda_runtime", "cudaLaunchKernel"),
        event("kernel", "void gemm"),
        event("kernel", "reduce"),
        event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", bytes=100),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", bytes=20),
        event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", bytes=8),
        event("gpu_memcpy", "Memcpy DtoD (Device -> Device)", bytes=1000),
        event("cuda_runtime", "cudaMemcpyAsync"),
        event("cuda_runtime", "cudaStreamSynchronize"),
        event("cuda_runtime", "cudaDeviceSynchronize"),  # of the benchmark
    ]
    assert core.counted(events) == {
        "launches": 2,
        "waits": 1,
        "bytes_to_device": 120,
        "bytes_to_host": 8,
    }
    assert core.counted(events[:2]) == {"counts": "the profiler recorded no kernel"}
    assert make().counts(lambda: 1 / 0) == {}  # not on a CPU


def test_outcomes_of_pytest(gpu):
    output = "FAILED tests/gpu/x.py::test_x\n3 failed, 219 passed, 1 error in 9.5s\n"
    assert gpu.outcomes_of(output) == {"n_failed": 3, "n_passed": 219, "n_error": 1}
    assert gpu.outcomes_of("") == {}


def test_median_of_calls(core, make, monkeypatch):
    """The first call is not counted, unless it takes so long that it is the last."""
    bench = make()
    times = iter([7.0, 0.001, 0.009, 0.002])
    monkeypatch.setattr(core.Bench, "once", lambda *_: next(times))
    assert bench.seconds(None) == pytest.approx(0.005)  # until .005 s are spent
    times = iter([60.0])
    assert bench.seconds(None) == 60.0


def test_seconds_of_the_wall_are_compared_on_a_gpu(gpu, core, monkeypatch, make):
    script = importlib.import_module("detectors")
    common = {"workload": "F", "method": "Energy", "us_per_row": 1.0, "correct": True}
    common |= {"score_mib": 1.0, "fit_mib": 1.0, "note": ""}
    ours = common | {"library": "skood", "fit": 3.0, "threshold": 1.0, "score": 0.5}
    peer = common | {"library": "pytorch-ood", "fit": 1.0, "score": 1.0}
    records = script.add_ratios([ours, peer])
    assert (records[0]["x_fit"], records[0]["x_score"]) == (2.0, 0.5)
    texts = dict(script.targets(records, 1))
    assert texts["F Energy: fit 2.00000 s, pytorch-ood 1.00000"] is False
    assert (
        texts["F Energy: score 0.50000 s, pytorch-ood 1.00000, at most 0.9 times"]
        is True
    )
    bench = make()
    for name, rate in (("copy", 1e9), ("float32", 1e9), ("float64", 1e9)):
        record = {"section": "ceilings", "name": name, "per_second": rate}
        bench.records["ceilings", name] = record
    methods = {method.name: method for method in script.METHODS}
    fractions = [
        script.fraction_of_ceiling(bench, methods[name], workload, 1.0, 2.0)
        for name, workload in (
            ("Energy", "L"),
            ("SHE", "F"),
            ("PNML", "G"),
            ("GMM", "F"),
        )
    ]
    # bytes of 10 logits of a million samples; products with the head, and of PNML
    expected = [1e6 * 48 / 2e9, 4e4 * 512 * 10 / 2e9, 4e4 * 1024 * 1124 / 2e9]
    assert [record.get("fraction") for record in fractions[:3]] == pytest.approx(
        expected
    )
    assert fractions[3] == {}


def test_methods_take_tensors(gpu):
    """Scores of tensors, as on a GPU, are those of arrays."""
    skood = importlib.import_module("_detectors_skood")
    data = importlib.import_module("_detectors_data")
    inputs = data.make("tiny", 0.4)
    tensors = data.on_device(inputs, "cpu")
    assert isinstance(tensors.T, torch.Tensor) and isinstance(tensors.coef, np.ndarray)
    for method in skood.METHODS:
        if method.name in ("OpenMax", "SklearnDetector", "NNGuide", "GMM"):
            continue
        results = []
        for arrays in (inputs, tensors):
            job = skood.skood(method, arrays, "cpu")
            results.append(np.asarray(job.finish(job.score(job.fit()))))
        difference = np.abs(results[1] - results[0]).max()
        assert difference < 1e-5 * np.abs(results[0]).max(), method.name
