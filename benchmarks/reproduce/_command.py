"""The command ``python -m benchmarks.reproduce``."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import sys
from importlib import import_module
from pathlib import Path

from benchmarks.reproduce import _files
from benchmarks.reproduce._jobs import RECIPES, available_papers, load_paper, reproduce


def parser():
    """Return the parser of the command."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.reproduce",
        description="Redo tables of a paper, and compare them with the printed ones.",
        epilog="Exit codes: 0 if something was computed, 1 if a claim fails (of "
        "--small, or with --claims), 2 if nothing could be computed.",
    )
    add = made.add_argument
    add("paper", choices=available_papers())
    add("tables", nargs="*", metavar="TABLE", help="as printed: 2, C.4, fig-1")
    add("--data", metavar="DIR", help="folder of the data sets")
    add("--out", metavar="DIR", default="results", help="default: results")
    add("--seeds", type=_count, metavar="N", help="number of runs of each experiment")
    add("--device", default="auto", help="of networks; default: CUDA if there is one")
    add(
        "--memory",
        type=_size,
        default=2.0,
        metavar="GIB",
        help="images whose features are computed at a time; default: 2",
    )
    add("--jobs", type=int, default=1, metavar="N", help="number of processes")
    add("--small", action="store_true", help="small versions that need no files")
    add("--only", nargs="+", metavar="ROW", help="names of rows, with wildcards * ?")
    add(
        "--method",
        action="append",
        default=[],
        metavar="NAME=MODULE:OBJECT",
        help="a detector or estimator of your own to add to the tables",
    )
    add("--list", action="store_true", help="list tables, files and times, and exit")
    add(
        "--recipe",
        choices=list(RECIPES),
        default="ours",
        help="skood's settings, those printed in the paper, or both; default: ours",
    )
    add("--claims", action="store_true", help="exit with 1 if a claim fails")
    add("--quiet", action="store_true", help="print nothing")
    return made


def _count(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def _size(text):
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number, got {text}")
    return value


def load_method(text):
    """Return the name and the object of ``NAME=module:object``, or raise."""
    name, equals, place = text.partition("=")
    module, colon, attribute = place.partition(":")
    if not (name and equals and module and colon and attribute):
        raise ValueError(f"--method must be NAME=module:object, got {text!r}.")
    if "" not in sys.path:
        sys.path.insert(0, "")  # modules in the current folder
    try:
        return name, getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"--method {text} cannot be imported: {error}.") from error


def listing(paper, data, small):
    """Yield lines: experiments, their tables, runs, time, and files.

    The time of recorded runs by our recipe is in place of an estimate.
    """
    from benchmarks.reproduce.record import load_record

    minutes = {
        run[
            "experiment"
        ]: f"{run['minutes'] / run['n_runs']:.2g} minutes a run, recorded"
        for run in load_record(paper.name)["runs"]
        if run["recipe"] == "ours"
    }
    for experiment in paper.small if small else paper.experiments:
        time = minutes.get(experiment.name, experiment.time)
        time = f", {time}" if time and not small else ""
        yield (
            f"{', '.join(experiment.tables)}: {experiment.name}, "
            f"{experiment.seeds} runs{time}"
        )
        for need in experiment.needs:
            name = need.removeprefix("?")
            optional = " (optional)" if need != name else ""
            if _files.find(name, data) is not None:
                yield f"    there   {name}{optional}"
            else:
                yield f"    absent  {name}{optional}: {_files.expected(name, data)}"


def main(argv=None):
    """Run the command; return the exit code."""
    made = parser()
    arguments = made.parse_args(argv)
    paper = load_paper(arguments.paper)
    if arguments.list:
        print("\n".join(listing(paper, arguments.data, arguments.small)))
        return 0
    try:
        methods = dict(map(load_method, arguments.method))
        result = reproduce(
            paper,
            arguments.tables or None,
            data=arguments.data,
            out=arguments.out,
            seeds=arguments.seeds,
            device=arguments.device,
            jobs=arguments.jobs,
            small=arguments.small,
            only=arguments.only,
            methods=methods,
            memory=arguments.memory,
            quiet=arguments.quiet,
            recipe=arguments.recipe,
        )
    except ValueError as error:
        if getattr(error, "__notes__", None):  # of a row: not of the arguments
            raise
        made.error(str(error))
    return _finish(result, arguments)


def _finish(result, arguments):
    """Write and print the report, and return the exit code."""
    from benchmarks.reproduce._page import FILES, console, write

    if not len(result.cells):
        reasons = "\n".join(result.skipped.values()) or "no row matches --only"
        print(f"Nothing could be computed.\n{reasons}", file=sys.stderr)
        return 2
    out = Path(arguments.out)
    write(result, out, arguments.device)
    if not arguments.quiet:
        print(console(result))
        print(f"\n{', '.join(FILES)} are in {out}.")
    bad = [c for c in result.claims if c["verdict"] in ("fails", "against")]
    return int(bool(bad) and (arguments.small or arguments.claims))
