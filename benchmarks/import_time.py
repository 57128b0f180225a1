"""How long imports take, and whether they stay clear of torch.

Each import is timed in fresh processes; printed is the median. The script fails if
torch or skorch gets imported on the way::

    python benchmarks/import_time.py
    python benchmarks/import_time.py --repeat 11 skood skood.metrics
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import statistics
import subprocess
import sys

MODULES = (
    "skood",
    "skood.__main__",
    "skood.datasets",
    "skood.metrics",
    "skood.model_selection",
    "skood.rejection",
)

CODE = """
import sys, time
start = time.perf_counter()
import {module}
print(time.perf_counter() - start, *{{"torch", "skorch"}} & set(sys.modules))
"""


def measure(module):
    """Import `module` in a fresh process; return seconds, and what it should not."""
    code = CODE.format(module=module)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"import {module} failed:\n{done.stderr}")
    seconds, *unwanted = done.stdout.split()
    return float(seconds), unwanted


def main(argv=None):
    """Print the median seconds of each import; return 1 if torch was imported."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", default=MODULES)
    parser.add_argument("--repeat", type=int, default=5, help="processes (default: 5)")
    arguments = parser.parse_args(argv)
    failed = False
    for module in arguments.modules:
        runs = [measure(module) for _ in range(max(1, arguments.repeat))]
        median = statistics.median(seconds for seconds, _ in runs)
        unwanted = runs[0][1]
        verdict = f"  imports {' and '.join(sorted(unwanted))}!" if unwanted else ""
        print(f"import {module:<24}{median:>8.3f} s{verdict}", flush=True)
        failed |= bool(unwanted)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
