"""How long imports take, and whether they stay clear of torch.

Each import is timed in fresh processes, in turns with the others: printed are the
minimum and the median, and OK or missed for the targets: `TARGETS` in CPU seconds,
relative to ``import sklearn.neighbors``, and ``python -m skood --help`` at most .15 s
with the start of Python. The script fails if torch or skorch gets imported on the
way::

    python benchmarks/import_time.py
    python benchmarks/import_time.py --repeat 11 skood skood.datasets
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import os
import statistics
import subprocess
import sys
import time

PEER = "import sklearn.neighbors"
# Most of the CPU seconds of PEER that each takes.
TARGETS = {
    "from skood.detectors import KNN": 1.04,
    "from skood.rejection import RejectOptionClassifier": 1.10,
    "from skood.monitor import ExchangeabilityMonitor": 1.10,
    "import skood.metrics": 1.08,
}
HELP = "python -m skood --help"

MODULES = (
    "skood",
    "skood.__main__",
    "skood.datasets",
    "skood.model_selection",
)

# Compiled files are stored, as by an installation.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}

CODE = """
import sys, time
wall, cpu = time.perf_counter(), time.process_time()
{statement}
print(time.perf_counter() - wall, time.process_time() - cpu,
      *{{"torch", "skorch"}} & set(sys.modules))
"""


def measure(statement):
    """Import in a fresh process; return wall and CPU seconds, and unwanted modules."""
    code = CODE.format(statement=statement)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
    )
    if done.returncode:
        sys.exit(f"{statement} failed:\n{done.stderr}")
    wall, cpu, *unwanted = done.stdout.split()
    return float(wall), float(cpu), unwanted


def measure_help():
    """Return the wall seconds of the help of the command line, in a fresh process."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "skood", "--help"]
    subprocess.run(command, capture_output=True, check=True, env=ENVIRONMENT)
    return time.perf_counter() - start


def show(what, seconds, note=""):
    """Print the minimum and the median of seconds."""
    least, middle = min(seconds), statistics.median(seconds)
    print(f"{what:<50}{least:>8.3f}{middle:>8.3f} s{note}", flush=True)


def verdict(what, value, target):
    """Print a value next to its target, and OK or missed."""
    word = "OK" if value <= target else "missed"
    print(f"{what}: {value:.2f} (at most {target}): {word}")


def main(argv=None):
    """Print seconds of each import and the targets; return 1 if torch was imported."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", default=MODULES)
    parser.add_argument("--repeat", type=int, default=15, help="default: 15")
    arguments = parser.parse_args(argv)
    statements = [PEER, *TARGETS, *(f"import {name}" for name in arguments.modules)]
    runs = {statement: [] for statement in statements}
    help_runs = []
    for statement in statements:  # read and compile the files
        measure(statement)
    for _ in range(max(1, arguments.repeat)):
        for statement in statements:
            runs[statement].append(measure(statement))
        help_runs.append(measure_help())
    print(f"{'CPU seconds':<50}{'minimum':>8}{'median':>8}")
    failed = False
    for statement, found in runs.items():
        unwanted = found[0][2]
        note = f"  imports {' and '.join(sorted(unwanted))}!" if unwanted else ""
        show(statement, [cpu for _, cpu, _ in found], note)
        failed |= bool(unwanted)
    print(f"{'wall seconds':<50}{'minimum':>8}{'median':>8}")
    for statement, found in runs.items():
        show(statement, [wall for wall, _, _ in found])
    show(HELP, help_runs)
    least = {k: min(cpu for _, cpu, _ in runs[k]) for k in (PEER, *TARGETS)}
    for statement, target in TARGETS.items():
        ratio = least[statement] / least[PEER]
        verdict(f"{statement} over {PEER}, minimum of CPU seconds", ratio, target)
    verdict(f"{HELP}, minimum of wall seconds", min(help_runs), 0.15)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
