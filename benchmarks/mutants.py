"""Small changes of the code that the tests must notice.

::

    python benchmarks/mutants.py --list
    python benchmarks/mutants.py [--jobs 2] [--only combine _ranking.py] [--check]

Each mutant changes one line of a copy of the package and runs a few tests there. They
must fail ("killed"), or the mutant survives, and the script exits with 1. A mutant with
a reason cannot change a result ("harmless"): its tests must pass. With ``--check`` all
tests are first run without a change. The working tree is never modified.

In `MUTANTS` a mutant is "- file: old line", which must be in the file exactly once, and
"+ new line"; then "@ tests", unless they are of the file's name, and "= reason".
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
COPIED = "skood", "tests", "examples", "conftest.py", "pyproject.toml", "setup.cfg"

MUTANTS = r"""
- decision/_statements.py: return at_most(int(np.count_nonzero(loss[accepted])), N, self.limit)
+ return at_most(int(loss[accepted].sum()), N, self.limit)
@ decision/test_statements.py::test_losses_below_the_largest_count_as_errors
- stats/_rate_tests.py: return float(binom.sf(count - 1, n, fraction)) if fraction > 0 else 0.0
+ return float(binom.sf(count, n, fraction)) if fraction > 0 else 0.0
@ decision/test_statements.py
- stats/_binomial_bounds.py: return max(-1, int(near[binom.cdf(near, n_ood, fpr_max) <= delta].max()))
+ return max(-1, int(near[binom.cdf(near - 1, n_ood, fpr_max) <= delta].max()))
- decision/_certified_path.py: if level and max(pvalues) <= level:
+ if level and min(pvalues) <= level:
@ decision/test_statements.py decision/test_certify.py
- stats/_evalues.py: return e >= ordered[np.flatnonzero(enough)[-1]]
+ return e >= ordered[np.flatnonzero(enough)[0]]
- metrics/_risk_coverage.py: harmonic = digamma(N + 1.0) - digamma(before + 1.0)
+ harmonic = digamma(N + 1.0) - digamma(before + 1.5)
@ metrics/test_risk_coverage.py metrics/test_weights.py
- metrics/_paired_test.py: scale, df = np.sqrt(1 / len(a) + 1 / len(b)), len(a) + len(b) - 2
+ scale, df = np.sqrt(1 / len(a) + 1 / len(b)), len(a) + len(b) - 1
@ metrics/test_bootstrap.py
- metrics/_risk_coverage.py: lowest = np.searchsorted(n_ood, bound, side="right") - 1
+ lowest = np.searchsorted(n_ood, bound, side="left") - 1
@ metrics/test_risk_coverage.py
- stats/_conformal.py: return (1.0 + counts) / (n_calibration + 1.0)
+ return (1.0 + counts) / (n_calibration + 2.0)
- stats/_ranks.py: count = np.count_nonzero(p > lam, axis=0) + int(plus_one)
+ count = np.count_nonzero(p >= lam, axis=0) + int(plus_one)
@ stats/test_null_proportion.py
- combine/_base_combiner.py: last = len(p) - rejected[::-1].argmax(axis=0)
+ last = rejected.sum(axis=0)
@ combine/test_multiple_tests.py
- selection/_best_of.py: return passed & (xi * counts <= loosened(largest))
+ return passed & (xi * counts <= loosened(largest + 1))
@ selection/test_best_of.py
= with one more sample of xi R_j <= R* + 1 there are R* + 1 of them, and R* is not the maximum
- selection/_best_of.py: n_within = bounds.searchsorted(loosened(r), side="right")
+ n_within = bounds.searchsorted(r, side="left")
@ selection/test_best_of.py
- selection/_step_up.py: return (1 + np.count_nonzero(ranks >= first)) / (1 - first / (n + 1))
+ return (1 + np.count_nonzero(ranks > first)) / (1 - first / (n + 1))
- stats/_betting.py: return wait[:-1] * wait[1:] * np.log1p(1 / (time_scale + t[:-1])), wait[1:]
+ return wait[:-1] * wait[:-1] * np.log1p(1 / (time_scale + t[:-1])), wait[1:]
@ monitor/test_exchangeability.py
- stats/_reference_ranks.py: bets /= totals[:, :-1]
+ bets /= totals[:, 1:]
@ monitor/test_exchangeability.py
- monitor/_rates.py: value = np.where(lost, 0.0, x if is_upper else 1 - x)
+ value = np.where(lost, 1.0, x if is_upper else 1 - x)
@ monitor/test_rates.py
- detectors/_gen.py: terms = (1.0 + others)[:, None] - exponentials
+ terms = (1.0 + others)[:, None] + exponentials
- detectors/_vim.py: return log_sum_exp(outputs.logits) - self.alpha_ * residuals
+ return log_sum_exp(outputs.logits) - residuals
- detectors/_she.py: codes[codes != predicted] = -1
+ codes[codes < 0] = -1
- detectors/_common/_gaussian.py: squared[indices, codes] *= growth**2
+ squared[indices, codes] *= growth
@ detectors/test_left_out.py::test_formulas_are_fits_without_each_sample
- detectors/_common/_memory_bank.py: error = kind.eps * (n_features / 2 + 4) * length * longest
+ error = 0.0 * length * longest
@ detectors/test_memory_bank.py detectors/test_knn.py
- detectors/_common/_principal_space.py: wanted = int(np.searchsorted(explained, n_components) + 1)
+ wanted = int(np.searchsorted(explained, n_components))
- rectifiers/_vra.py: np.copyto(out, 0.0, where=Z < low)
+ np.copyto(out, 0.0, where=Z <= low)
- epistemic/_measures.py: divergence[:, block] = _kl(*of_block, log_p)
+ divergence[:, block] = _kl(log_p, p, of_block[0])
- epistemic/_measures.py: epistemic = np.sum(weights * from_n, axis=0)
+ epistemic = np.sum(weights * to_n, axis=0)
= both are the double sum of w_n w_m KL(n || m): to_n sums it over n first
- epistemic/_measures.py: error = np.sqrt(n_draws / (n_draws - 1) * np.sum(terms**2, axis=0))
+ error = np.sqrt(np.sum(terms**2, axis=0))
@ epistemic/test_measures.py
- epistemic/quam/_searches.py: return softmax(-losses / self.temperature, axis=0)
+ return softmax(-losses * self.temperature, axis=0)
@ epistemic/test_quam.py epistemic/test_base_quam.py
- epistemic/laplace/_laplace.py: spread = variances[:, :, None] + variances[:, None, :] - 2 * covariances
+ spread = variances[:, :, None] + variances[:, None, :] - covariances
- epistemic/laplace/_curvature.py: outputs.diagonal().copy_((p * others).sum(0))
+ outputs.diagonal().copy_(p.sum(0))
- epistemic/mcmc/_hmc.py: r = r + (step if i + 1 < n_steps else 0.5 * step) * grad
+ r = r + step * grad
- evidential/_dirichlet.py: pairs[..., j] = 0.0
+ pairs[..., j] *= 1.0
@ evidential/test_graph_uncertainty.py evidential/test_dirichlet.py
- graph/_propagation.py: received = edges.col[(edges.row != edges.col) & (edges.data != 0)]
+ received = edges.row[(edges.row != edges.col) & (edges.data != 0)]
- graph/_gkde.py: return np.where(distance > self._cutoff, 0.0, g)
+ return np.where(distance >= self._cutoff, 0.0, g)
- graph/_gpn.py: evidence = (1 - self.teleport) * sent + self.teleport * local
+ evidence = (1 - self.teleport) * sent + self.teleport * evidence
@ graph/test_gpn.py::test_evidence_is_propagated_as_values_are
- logic/inference/_weights.py: target = (n * mean_truth + prior * uniform) / (n + prior)
+ target = (n * mean_truth + prior * 0.5) / (n + prior)
- logic/language/_compiler.py: return "or", (("not", compiled(node.left)), compiled(node.right))
+ return "or", (compiled(node.left), ("not", compiled(node.right)))
- persistence/_arrays.py: within = (children > inner) & (children < n)
+ within = (children >= inner) & (children < n)
@ persistence/test_arrays.py::test_node_that_is_a_child_of_itself_is_refused
- model_selection/_split.py: in_test |= is_out & ~np.isin(units, units[in_train])
+ in_test |= is_out
- datasets/_ood_graph.py: means *= signal / np.sqrt(2) / np.linalg.norm(means, axis=1, keepdims=True)
+ means *= signal / np.linalg.norm(means, axis=1, keepdims=True)
- utils/_ties.py: rank = int(fraction * len(scores) * (1 + 1e-12))
+ rank = int(fraction * len(scores))
- utils/_weights.py: remaining = np.flatnonzero(left > _ROUNDING * weight)
+ remaining = np.flatnonzero(left > 0)
- utils/_folds.py: n_held_out = min(max(1, round(calibration * n_samples)), n_samples - 1)
+ n_held_out = min(max(1, round(calibration * n_samples)), n_samples)
@ utils/test_folds.py combine/test_detector_ensemble.py
- nn/_evidential_loss.py: variance = mean * (1.0 - mean) / (total + 1.0)
+ variance = mean * (1.0 - mean) / total
- rejection/_report.py: row[rate] = estimate(1 - (1 - level) / len(cells))
+ row[rate] = estimate(level)
@ rejection/test_groups.py::test_report_of_groups_has_simultaneous_intervals
"""  # noqa: E501


class Mutant(NamedTuple):
    """A changed line of a file, and the tests that must notice it."""

    path: str
    tests: list
    old: str
    new: str
    reason: str | None = None

    def line(self, root=ROOT):
        """Return the index of the old line; raise unless it is there exactly once."""
        lines = (root / self.path).read_text().splitlines()
        numbers = [i for i, line in enumerate(lines) if line.strip() == self.old]
        if len(numbers) != 1:
            raise ValueError(
                f"{self.path} has {len(numbers)} lines {self.old!r}, expected one. "
                "Update MUTANTS in benchmarks/mutants.py."
            )
        return numbers[0]

    def __str__(self):
        return f"{self.path}:{self.line() + 1}: {self.old} -> {self.new}"


def all_mutants():
    """Return the mutants of the table."""
    mutants: list = []
    for mark, text in (line.split(" ", 1) for line in MUTANTS.strip().splitlines()):
        if mark == "-":
            path, _, old = text.partition(": ")
            test = f"tests/{path.split('/')[0]}/test{path.split('/')[-1]}"
            mutants.append(Mutant(f"skood/{path}", [test], old, ""))
        elif mark == "+":
            mutants[-1] = mutants[-1]._replace(new=text)
        elif mark == "@":
            tests = [f"tests/{one}" for one in text.split()]
            mutants[-1] = mutants[-1]._replace(tests=tests)
        else:
            mutants[-1] = mutants[-1]._replace(reason=text)
    return mutants


def run_tests(folder, tests):
    """Return the exit status of pytest in a copy of the package, and seconds."""
    start = time.perf_counter()
    options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # a file may change within a second
    command = [sys.executable, "-m", "pytest", *options, *tests]
    run = {"cwd": folder, "env": environment, "capture_output": True, "timeout": 600}
    try:
        status = subprocess.run(command, check=False, **run).returncode
    except subprocess.TimeoutExpired:  # the change causes an endless loop
        status = 1
    return status, time.perf_counter() - start


def verdict_of(mutant, folder):
    """Return the verdict and the seconds of a mutant, tested in a folder."""
    path = folder / mutant.path
    text, number = path.read_text(), mutant.line(folder)
    lines = text.splitlines(keepends=True)
    lines[number] = lines[number].replace(mutant.old, mutant.new)
    path.write_text("".join(lines))
    try:
        status, seconds = run_tests(folder, mutant.tests)
    finally:
        path.write_text(text)
    if status not in (0, 1):
        return f"error: pytest exited with {status}", seconds
    if mutant.reason is None:
        return "killed" if status else "survived", seconds
    return "error: not harmless" if status else f"harmless: {mutant.reason}", seconds


def main(argv=None):
    """Run the mutants; return 1 unless all are killed or harmless."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print them, run nothing")
    parser.add_argument("--only", nargs="+", default=[""], help="parts of paths")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--check", action="store_true", help="tests pass unchanged")
    arguments = parser.parse_args(argv)
    mutants = [m for m in all_mutants() if any(one in m.path for one in arguments.only)]
    shown = [str(mutant) for mutant in mutants]  # finds each line
    if arguments.list:
        print("\n".join(shown))
        return 0
    folders: SimpleQueue = SimpleQueue()

    def in_folder(function, *args):
        folder = folders.get()
        try:
            return function(*args, folder)
        finally:
            folders.put(folder)

    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        for job in range(arguments.jobs):
            folder = Path(temporary, str(job))
            folder.mkdir()
            for name in COPIED:
                copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
                copy(ROOT / name, folder / name)
            folders.put(folder)
        with ThreadPoolExecutor(arguments.jobs) as pool:
            if arguments.check:
                tests = sorted({one for mutant in mutants for one in mutant.tests})
                status, _ = in_folder(lambda folder: run_tests(folder, tests))
                print(f"without a change pytest exits with {status}", flush=True)
                failed += status != 0
            results = pool.map(lambda m: in_folder(verdict_of, m), mutants)
            for text, (verdict, seconds) in zip(shown, results, strict=True):
                print(f"{verdict:<9} {seconds:5.1f} s  {text}", flush=True)
                failed += not verdict.startswith(("killed", "harmless"))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
