"""Command line of the main job and the offline suite."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import contextlib
import os
import sys
import warnings
from pathlib import Path

import skood

__all__ = ["PARTS", "main", "make_benchmark_parser", "make_parser"]

_ERROR, _INTERRUPTED = 2, 130

_DESCRIPTION = """\
Train a small network on in-distribution (ID) images, fit detectors of
out-of-distribution (OOD) images on its features, compare them in a table, and tune
reject options on pairs of scores. By default on the handwritten digits that come with
scikit-learn, with the classes 8 and 9 left out as OOD.

commands:
  skood [options]             this job
  skood benchmark [options]   compare detectors on five small data sets that need no
                              download; see skood benchmark --help"""

_EXAMPLES = """\
examples:
  skood
  skood --left-out 3,5 --out results
  skood --id mnist --ood notmnist --data DIR   (DIR/mnist and DIR/notmnist hold
                                                files such as t10k-images-idx3-ubyte.gz)
  skood benchmark --out suite
"""

_BENCHMARK = """\
Compare detectors on five small data sets that need no download, and write one page of
HTML: tables with intervals, ROC and risk-coverage curves, histograms of scores. The
same command goes on where an interruption left it; delete DIR to begin anew."""

#: Names of `skood.benchmark._suite.PARTS`, which is not imported for help.
PARTS = ("digits", "tabular", "signs", "graph", "concepts")


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message):
        self.exit(_ERROR, _line("error", f"{message} (see {self.prog} --help)"))


def _line(kind, message):
    """Return a message without line breaks."""
    return f"skood: {kind}: {' '.join(str(message).split())}\n"


def _count(least):
    """Return an argparse type of integers of at least `least`."""

    def parse(text):
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(
                f"must be a whole number of at least {least}, got {text!r}"
            )
        return value

    return parse


def _seed(text):
    value = _count(0)(text)
    if value >= 2**32:
        raise argparse.ArgumentTypeError(f"must be less than 2**32, got {text!r}")
    return value


def _share(text):
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:  # false for NaN as well
        raise argparse.ArgumentTypeError(f"must be a number in [0, 1], got {text!r}")
    return value


def _classes(text):
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be class numbers with commas between them, such as 8,9, got {text!r}"
        ) from None


def _parts(text):
    names = text.split(",")
    if not set(names) <= set(PARTS) or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(
            f"must be distinct names among {', '.join(PARTS)} with commas between "
            f"them, got {text!r}"
        )
    return names


# flag, parameter of `run_main_job` and further arguments of `add_argument`
_ARGUMENTS = (
    (
        "--id",
        "id_data",
        {
            "default": "digits",
            "metavar": "NAME",
            "help": "ID data: digits, or a folder in --data; mnist without --data is "
            "downloaded (default: digits)",
        },
    ),
    (
        "--ood",
        "ood_data",
        {
            "metavar": "NAME",
            "help": "OOD data, named likewise (default: classes left out of the ID "
            "data)",
        },
    ),
    (
        "--data",
        "folder",
        {"metavar": "DIR", "help": "folder with one folder of IDX files per name"},
    ),
    (
        "--left-out",
        "left_out",
        {
            "type": _classes,
            "metavar": "CLASSES",
            "help": "classes of the ID data that are OOD (default without --ood: 8,9)",
        },
    ),
    (
        "--train",
        "n_train",
        {
            "type": _count(1),
            "metavar": "N",
            "help": "ID samples to train on (default: 70 %% of them, at most 7000)",
        },
    ),
    (
        "--test",
        "n_test",
        {
            "type": _count(3),
            "metavar": "N",
            "help": "ID samples to hold out, and OOD samples (default: 30 %% of the ID "
            "samples, at most 3000)",
        },
    ),
    (
        "--epochs",
        "max_epochs",
        {
            "type": _count(1),
            "metavar": "N",
            "help": "passes over the training samples (default: 80000 / samples, from "
            "10 to 40)",
        },
    ),
    (
        "--tpr",
        "tpr_min",
        {
            "type": _share,
            "default": 0.8,
            "metavar": "SHARE",
            "help": "least share of ID samples to accept (default: 0.8)",
        },
    ),
    (
        "--fpr",
        "fpr_max",
        {
            "type": _share,
            "default": 0.2,
            "metavar": "SHARE",
            "help": "largest share of OOD samples to accept (default: 0.2)",
        },
    ),
    (
        "--seed",
        "random_state",
        {
            "type": _seed,
            "default": 0,
            "metavar": "N",
            "help": "seed of everything that is drawn (default: 0)",
        },
    ),
    (
        "--out",
        "out",
        {"metavar": "DIR", "help": "write the table, all numbers and plots to DIR"},
    ),
)


def make_parser():
    """Return the parser of the main job's options.

    Its results have the names of the parameters of `run_main_job`, and `quiet`.
    """
    parser = _Parser(
        prog="skood",
        usage="skood [options]\n       skood benchmark [options]",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for flag, name, details in _ARGUMENTS:
        parser.add_argument(flag, dest=name, **details)
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    parser.add_argument(
        "--version", action="version", version=f"skood {skood.__version__}"
    )
    return parser


def make_benchmark_parser():
    """Return the parser of the options of ``skood benchmark``.

    Its results are `out`, `suite`, `seed`, `repeats`, `jobs` and `quiet`.
    """
    parser = _Parser(prog="skood benchmark", description=_BENCHMARK, allow_abbrev=False)
    parser.add_argument(
        "--out",
        metavar="DIR",
        required=True,
        help="folder for report.html, benchmark.csv, benchmark.json and finished cells",
    )
    parser.add_argument(
        "--suite",
        type=_parts,
        default=list(PARTS),
        metavar="NAMES",
        help=f"parts, with commas between them (default: all, {','.join(PARTS)})",
    )
    parser.add_argument(
        "--seed",
        type=_seed,
        default=0,
        metavar="N",
        help="seed of everything that is drawn (default: 0)",
    )
    parser.add_argument(
        "--repeats",
        type=_count(1),
        default=1,
        metavar="N",
        help="splits into samples to fit on and samples to judge on (default: 1)",
    )
    parser.add_argument(
        "--jobs",
        type=_count(1),
        default=1,
        metavar="N",
        help="parts that are run side by side (default: 1)",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    return parser


def _printable(text, encoding):
    """Replace characters that the output cannot encode."""
    for character, instead in zip("↑↓–≥≤", ("+", "-", "-", ">=", "<="), strict=True):
        try:
            character.encode(encoding or "ascii")
        except UnicodeEncodeError:
            text = text.replace(character, instead)
    return text


def _show_warning(message, *args, **kwargs):
    sys.stderr.write(_line("warning", message))


def _run_benchmark(argv):
    arguments = make_benchmark_parser().parse_args(argv)
    out = Path(arguments.out).expanduser()
    out.mkdir(parents=True, exist_ok=True)
    from skood.benchmark._suite_run import FILES, run_suite

    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        text = run_suite(
            out,
            arguments.suite,
            seed=arguments.seed,
            repeats=arguments.repeats,
            n_jobs=arguments.jobs,
            verbose=0 if arguments.quiet else 1,
        )
    lines = f"{text}\n\nwritten to {out}: {', '.join(FILES)}"
    print(_printable(lines, sys.stdout.encoding), flush=True)
    return 0


def _run(argv):
    if argv[:1] == ["benchmark"]:
        return _run_benchmark(argv[1:])
    arguments = vars(make_parser().parse_args(argv))
    quiet = arguments.pop("quiet")
    from skood.benchmark._options import Options
    from skood.benchmark._parts import prepare

    # Errors of the user are found here, before the computation.
    try:
        options = Options(**arguments)
        parts = prepare(options)
    except ValueError as error:
        sys.stderr.write(_line("error", error))
        return _ERROR
    from skood.benchmark._run import run

    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        result = run(options, parts, verbose=0 if quiet else 1)
    lines = [result.text]
    if result.files:
        names = ", ".join(path.name for path in result.files)
        lines.append(f"\nwritten to {options.out}: {names}")
    print(_printable("\n".join(lines), sys.stdout.encoding), flush=True)
    return 0


def main(argv=None):
    """Run the main job, or the offline suite, from the command line."""
    try:
        return _run(sys.argv[1:] if argv is None else list(argv))
    except KeyboardInterrupt:
        sys.stderr.write("skood: interrupted\n")
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of the output is gone; further output is discarded.
        with contextlib.suppress(OSError), open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        return 0
    except OSError as error:  # not a folder, or a full disk
        sys.stderr.write(_line("error", error))
        return _ERROR
