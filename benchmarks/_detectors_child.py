"""Time one method of one library of ``benchmarks/detectors.py`` in this process.

The only argument is a JSON object; the last line printed is one, too.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import ctypes
import gc
import json
import resource
import statistics
import sys
import time
import warnings
from contextlib import nullcontext
from pathlib import Path

import numpy as np
from _detectors_data import load, on_device
from _detectors_peers import job_of
from _detectors_skood import METHODS

# No measurement is repeated once this many seconds are spent on it, and each is while
# fewer than these are spent: short ones vary most.
BUDGET, LEAST = 20.0, 0.3


def _status(name):
    """A line of ``/proc/self/status`` in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise LookupError(name)


class Memory:
    """Peak memory of the block, in MiB above what the process had before it.

    Linux tells the peak since a reset; elsewhere it is the growth of the peak since
    the process began, which misses what fits below an earlier peak.
    """

    def __enter__(self):
        gc.collect()
        try:
            ctypes.CDLL("libc.so.6").malloc_trim(0)
            Path("/proc/self/clear_refs").write_text("5")
            self._before = _status("VmRSS")
        except OSError:
            self._before = None
            self._peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return self

    def __exit__(self, *error):
        if self._before is None:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            self.mib = peak - self._peak
        else:
            self.mib = max(0.0, _status("VmHWM") - self._before)


def _synchronize(device):
    if device != "cpu":
        import torch

        torch.cuda.synchronize()


def timed(call, repeat, device):
    """Repeat a call; return the last result, seconds, CPU seconds, and the peak."""
    seconds, cpu, peak, result = [], [], 0.0, None
    while (len(seconds) < repeat or sum(seconds) < LEAST) and sum(seconds) < BUDGET:
        result = None  # not in memory twice
        # returning the free memory before a short call would slow it down
        measures = Memory() if len(seconds) < repeat else nullcontext()
        with measures as memory:
            start, start_cpu = time.perf_counter(), time.process_time()
            result = call()
            _synchronize(device)
            cpu.append(time.process_time() - start_cpu)
            seconds.append(time.perf_counter() - start)
        if memory is not None:
            peak = max(peak, memory.mib)
    return result, seconds, cpu, peak


def watch_threshold(job):
    """Let the detector's class list the seconds, and CPU, that its thresholds take."""
    spent = []
    training_scores = getattr(job.timed, "_training_scores", None)
    if training_scores is not None:

        def wrapped(self, *args):
            start, start_cpu = time.perf_counter(), time.process_time()
            scores = training_scores(self, *args)
            cpu = time.process_time() - start_cpu
            spent.append((time.perf_counter() - start, cpu))
            return scores

        job.timed._training_scores = wrapped
    return spent


def measure(job, inputs, repeat, device):
    """Time fit and score, and see how well the scores separate.

    CPU seconds mean nothing where a GPU computes, and are left out.
    """
    from sklearn.metrics import roc_auc_score

    on_cpu = device == "cpu"
    result = {"note": job.note, "correct": job.correct}
    spent = watch_threshold(job)
    fitted = None
    if job.fit is not None:
        fitted, seconds, cpu, peak = timed(job.fit, repeat, device)
        result |= {"fit": statistics.median(seconds), "fit_mib": peak}
        result |= {"fit_cpu": min(cpu)} if on_cpu else {}
        if spent:
            result["threshold"] = statistics.median(wall for wall, _ in spent)
            if on_cpu:
                result["threshold_cpu"] = min(cpu for _, cpu in spent)
    scores, seconds, cpu, peak = timed(lambda: job.score(fitted), repeat, device)
    score = statistics.median(seconds)
    result |= {"score": score, "score_mib": peak}
    result |= {"score_cpu": min(cpu)} if on_cpu else {}
    result["us_per_row"] = 1e6 * (min(cpu) if on_cpu else score) / len(inputs.M)
    scores = np.asarray(job.finish(scores), dtype=np.float64)
    if np.isfinite(scores).all():
        result["auroc"] = float(roc_auc_score(inputs.is_id, scores))
    else:
        result |= {"note": "scores are not finite", "correct": False}
    return result


def main(options):
    """Warm up, load the inputs, measure; print the result."""
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(options["threads"])
    method = next(m for m in METHODS if m.name == options["method"])
    library, device = options["library"], options["device"]
    warm = load(options["warm_up"])
    job = job_of(library, method, warm, device)
    if job is None:
        return {"missing": True}
    job.score(None if job.fit is None else job.fit())
    inputs = load(options["inputs"])
    if library == "skood" and device != "cpu":
        inputs = on_device(inputs, device)
    job = job_of(library, method, inputs, device)
    return measure(job, inputs, options["repeat"], device)


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
