"""Command line of the demo and the offline suite."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import contextlib
import os
import sys
import warnings
from functools import partial
from pathlib import Path

import skood

_ERROR, _INTERRUPTED = 2, 130

_DESCRIPTION = """\
Train a small network on in-distribution (ID) images, fit detectors of
out-of-distribution (OOD) images on its features, compare them in a table, and tune
reject options on pairs of scores. By default on the handwritten digits that come with
scikit-learn, with the classes 8 and 9 left out as OOD.

commands:
  skood [options]             the demo
  skood benchmark [options]   compare detectors on five small data sets that need no
                              download; see skood benchmark --help
  skood compare [options]     compare detectors on tables in files; see skood compare
                              --help"""

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
same command continues after an interruption; delete DIR to start again."""

_COMPARE = """\
Compare detectors on a table of in-distribution (ID) samples in a file, and on tables
of out-of-distribution (OOD) samples in others: .csv, .tsv, .parquet, or .npz with
arrays X and y. A classifier is trained on most of the ID samples; text is one-hot
encoded, dates become days, and missing numbers their median. Writes one page of HTML
with intervals, ROC curves and histograms, and all numbers as CSV."""

_COMPARE_EXAMPLES = """\
examples:
  skood compare --id loans.csv --label default --ood 2020.csv --ood fraud.csv --out DIR
  skood compare --id train.npz --ood other.npz --classifier mymodel:make --out DIR
"""

_NEXT = """
Next:
  page     doc/user_guide/rejection.rst
  example  examples/rejection/plot_reject_option_digits.py
  command  skood compare --id FILE --label COLUMN --ood FILE --out DIR"""

#: Names of `skood.benchmark._suite.PARTS`, which is not imported for help.
PARTS = ("digits", "tabular", "signs", "graph", "concepts")


class _OneLineParser(argparse.ArgumentParser):
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


def _fraction(text):
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:  # false for NaN as well
        raise argparse.ArgumentTypeError(f"must be a number in [0, 1], got {text!r}")
    return value


def _classes(text):
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be class numbers with commas between them, such as 8,9, got {text!r}"
        ) from None


def _names(text, known=()):
    names = text.split(",")
    among = f" among {', '.join(known)}" if known else ""
    is_known = set(names) <= set(known) if known else all(names)
    if not is_known or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(
            f"must be distinct names{among} with commas between them, got {text!r}"
        )
    return names


def _open_fraction(text):
    if not 0 < (value := _fraction(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1, got {text!r}")
    return value


# flag: parameter of `run_demo`, type, name of the value in the help, default
_OPTIONS = {
    "--id": ("id_data", str, "NAME", "digits"),
    "--ood": ("ood_data", str, "NAME", None),
    "--data": ("folder", str, "DIR", None),
    "--left-out": ("left_out", _classes, "CLASSES", None),
    "--train": ("n_train", _count(1), "N", None),
    "--test": ("n_test", _count(3), "N", None),
    "--epochs": ("max_epochs", _count(1), "N", None),
    "--tpr": ("tpr_min", _fraction, "FRACTION", 0.8),
    "--fpr": ("fpr_max", _fraction, "FRACTION", 0.2),
    "--seed": ("random_state", _seed, "N", 0),
    "--out": ("out", str, "DIR", None),
}
_BENCHMARK_OPTIONS = {
    "--out": ("out", str, "DIR", None),
    "--suite": ("suite", partial(_names, known=PARTS), "NAMES", list(PARTS)),
    "--seed": ("seed", _seed, "N", 0),
    "--repeats": ("repeats", _count(1), "N", 1),
    "--jobs": ("jobs", _count(1), "N", 1),
}
_DETECTORS = "MSP,Energy,Mahalanobis,KNN,GMM,SklearnDetector"
_COMPARE_OPTIONS = {
    "--id": ("id_file", str, "FILE", None),
    "--label": ("label", str, "COLUMN", None),
    "--ood": ("ood_files", str, "FILE", None),
    "--out": ("out", str, "DIR", None),
    "--drop": ("drop", _names, "COLUMNS", []),
    "--classifier": ("classifier", str, "NAME", "boosting"),
    "--detectors": ("detectors", _names, "NAMES", _DETECTORS.split(",")),
    "--test": ("test_size", _open_fraction, "FRACTION", 0.3),
    "--seed": ("seed", _seed, "N", 0),
    "--jobs": ("n_jobs", _count(1), "N", 1),
}
_HELP = {
    "--id": "ID data: digits, or a folder in --data; mnist without --data is "
    "downloaded (default: digits)",
    "--ood": "OOD data, named likewise (default: classes left out of the ID data)",
    "--data": "folder with one folder of IDX files per name",
    "--left-out": "classes of the ID data that are OOD (default without --ood: 8,9)",
    "--train": "ID samples to train on (default: 70 %% of them, at most 7000)",
    "--test": "ID samples to hold out, and OOD samples (default: 30 %% of the ID "
    "samples, at most 3000)",
    "--epochs": "passes over the training samples (default: 80000 / samples, from 10 "
    "to 40)",
    "--tpr": "least fraction of ID samples to accept (default: 0.8)",
    "--fpr": "largest fraction of OOD samples to accept (default: 0.2)",
    "--seed": "seed of everything that is drawn (default: 0)",
    "--out": "write the table, all numbers and plots to DIR",
}
_BENCHMARK_HELP = {
    "--out": "folder for report.html, benchmark.csv, benchmark.json and finished cells",
    "--suite": f"parts, with commas between them (default: all, {','.join(PARTS)})",
    "--seed": _HELP["--seed"],
    "--repeats": "splits into samples to fit on and samples to evaluate (default: 1)",
    "--jobs": "parts that are run side by side (default: 1)",
}


_COMPARE_HELP = {
    "--id": "table of ID samples",
    "--label": "its column with the classes (.npz: y)",
    "--ood": "table of OOD samples with the same columns; may be repeated",
    "--out": "folder for report.html and table.csv",
    "--drop": "columns to leave out, with commas between them, such as row numbers",
    "--classifier": "boosting, forest, logistic, mlp, or module:object, a classifier "
    "of scikit-learn (default: boosting)",
    "--detectors": "classes of skood.detectors, with commas between them (default: "
    f"{_DETECTORS})",
    "--test": "fraction of the ID samples to hold out (default: 0.3)",
    "--seed": _HELP["--seed"],
    "--jobs": "joblib jobs (default: 1)",
}


# command: its options, their texts, which are required, and texts of the parser
_COMMANDS: dict = {
    "": (
        _OPTIONS,
        _HELP,
        [],
        {
            "usage": "skood [options]\n       skood benchmark [options]\n"
            "       skood compare [options]",
            "description": _DESCRIPTION,
            "epilog": _EXAMPLES,
        },
    ),
    "benchmark": (
        _BENCHMARK_OPTIONS,
        _BENCHMARK_HELP,
        ["--out"],
        {"description": _BENCHMARK},
    ),
    "compare": (
        _COMPARE_OPTIONS,
        _COMPARE_HELP,
        ["--id", "--ood", "--out"],
        {"description": _COMPARE, "epilog": _COMPARE_EXAMPLES},
    ),
}


def make_parser(command=""):
    """Return the parser of the demo, or of a command, with the option ``--quiet``."""
    options, texts, required, about = _COMMANDS[command]
    parser = _OneLineParser(
        prog=f"skood {command}".strip(),
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **about,
    )
    for flag, (name, kind, metavar, default) in options.items():
        details = {"type": kind, "metavar": metavar, "default": default}
        details |= {"dest": name, "help": texts[flag], "required": flag in required}
        if name == "ood_files":  # may be repeated
            details["action"] = "append"
        parser.add_argument(flag, **details)
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    if not command:
        version = f"skood {skood.__version__}"
        parser.add_argument("--version", action="version", version=version)
    return parser


def _printable(text, encoding):
    """Replace characters that the output cannot encode."""
    for character, instead in zip("↑↓–≥≤", ("+", "-", "-", ">=", "<="), strict=True):
        try:
            character.encode(encoding or "ascii")
        except UnicodeEncodeError:
            text = text.replace(character, instead)
    return text


def _print(*lines):
    """Print lines, and return the exit status of success."""
    print(_printable("\n".join(lines), sys.stdout.encoding), flush=True)
    return 0


def _show_warning(message, *args, **kwargs):
    sys.stderr.write(_line("warning", message))


def _run_benchmark(argv):
    arguments = make_parser("benchmark").parse_args(argv)
    out = Path(arguments.out).expanduser()
    out.mkdir(parents=True, exist_ok=True)
    from skood.benchmark._suite import FILES, run_suite

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
    return _print(text, f"\nwritten to {out}: {', '.join(FILES)}")


def _run_compare(argv):
    arguments = vars(make_parser("compare").parse_args(argv))
    quiet, out = arguments.pop("quiet"), Path(arguments.pop("out")).expanduser()
    sampling = {name: arguments.pop(name) for name in ("test_size", "seed", "n_jobs")}
    # Errors of the user are found here, before the computation.
    try:
        from skood.benchmark._own_comparison import FILES, prepare, run

        prepared = prepare(**arguments)
        out.mkdir(parents=True, exist_ok=True)
    except (ImportError, ValueError) as error:
        sys.stderr.write(_line("error", error))
        return _ERROR
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        verbose = 0 if quiet else 1
        id_file = arguments["id_file"]
        text = run(prepared, out, id_file=id_file, verbose=verbose, **sampling)
    return _print(text, f"\nwritten to {out}: {', '.join(FILES)}")


def _run(argv):
    if argv[:1] == ["benchmark"]:
        return _run_benchmark(argv[1:])
    if argv[:1] == ["compare"]:
        return _run_compare(argv[1:])
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
    lines.append(_NEXT)
    return _print(*lines)


def main(argv=None):
    """Run the demo, or the offline suite, from the command line."""
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
