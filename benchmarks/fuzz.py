"""Fuzz all public estimators: how many outcomes are unclean?

Inputs are drawn over contents (scales from denormal to 1.7e308, NaN, duplicates, few
samples, ...), containers (NumPy dtypes, sparse, frames, tensors, ...) and kinds of
labels. An estimator is fitted on the input, or was fitted on clean data and gets the
input afterwards::

    python benchmarks/fuzz.py --inputs 20000 --seed 0
    python benchmarks/fuzz.py --case "KNN[0]|fit|1e154|float32|int|7"

An outcome is clean if all results are finite and of the right shape and kind, or if
scikit-learn or skood raises a ValueError, a TypeError or one of their subclasses on
purpose, which means by a ``raise`` statement of theirs. Unclean are NaN or infinite
results, other errors, errors that another library or the interpreter raised, more than
60 seconds of CPU time, and changed global state (torch's generator, gradient mode and
default dtype, filters of warnings, NumPy's error state). Prints a table by kind of
input and each unclean case with the command that repeats it; exits with 1 if there is
any.

It needs the development environment, because the estimators are the instances of
``tests/_instances.py``.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import dis
import os
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import sklearn
import torch
from _fuzz_inputs import CONTAINERS, CONTENTS, LABELS, clean_data
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

import skood
from skood.base import BaseDetector, UncertaintyDetector
from skood.detectors import KNN, MSP, ODIN, Mahalanobis, ViM
from skood.epistemic import Laplace
from skood.model_selection import RuleSearchCV
from skood.nn import TorchClassifier
from skood.rejection import BoundedTPRFPR, RejectOptionClassifier
from skood.utils.discovery import all_estimators

LIMIT = 60.0

_SOURCES = tuple(str(Path(m.__file__).parent) for m in (skood, sklearn))

# Where scikit-learn hands an input to NumPy, whose text then is about the input.
_CONVERSIONS = tuple(
    os.path.join(_SOURCES[1], "utils", name)
    for name in ("validation.py", "_array_api.py", "_param_validation.py")
)

# Parameters that make a fit short.
_SHORT = {
    "max_epochs": 3,
    "max_iter": 20,
    "n_warmup": 3,
    "epochs_per_cycle": 3,
    "n_leapfrog": 2,
    "n_estimators": 5,
}

_METHODS = (
    "score_samples",
    "decision_function",
    "predict",
    "predict_proba",
    "predict_log_proba",
    "predict_logits",
    "predict_uncertainty",
    "transform",
)


class TooLong(BaseException):
    """Raised by the alarm clock."""


# --- estimators ----------------------------------------------------------------------


def _shortened(estimator):
    estimator = clone(estimator)
    parameters = estimator.get_params()
    short = {
        key: min(value, _SHORT[key.split("__")[-1]])
        for key, value in parameters.items()
        if key.split("__")[-1] in _SHORT and isinstance(value, int)
    }
    return estimator.set_params(**short)


def _more():
    """Return compositions that no single instance covers."""
    linear = LogisticRegression(max_iter=50)
    net = TorchClassifier(module_params={"hidden": (8,)}, max_epochs=3, random_state=0)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(max_iter=50))
    return {
        "KNN(network)": KNN(net, n_neighbors=3),
        "ViM(network)": ViM(net),
        "ODIN(network)": ODIN(net),
        "Mahalanobis(pipeline)": Mahalanobis(pipeline),
        "MSP(boosting)": MSP(HistGradientBoostingClassifier(max_iter=3)),
        "KNN(boosting)": KNN(HistGradientBoostingClassifier(max_iter=3), n_neighbors=3),
        "RuleSearchCV(network)": RuleSearchCV(
            net, {"lr": [0.01, 0.1]}, cv=2, error_score="raise"
        ),
        "Uncertainty(Laplace)": UncertaintyDetector(Laplace(linear, random_state=0)),
        "Reject(KNN)": RejectOptionClassifier(
            linear,
            KNN(n_neighbors=3),
            rule=BoundedTPRFPR(tpr_min=0.5, fpr_max=0.9),
            random_state=0,
        ),
    }


@cache
def estimators():
    """Instances of all public estimators, by a name for each."""
    sys.path.append(str(Path(__file__).parents[1]))
    from tests._instances import instances_of

    found = {
        f"{name}[{i}]": one
        for name, cls in all_estimators()
        for i, one in enumerate(instances_of(name, cls))
        if name != "RuleSearchCV"  # of models of scikit-learn
    }
    return {name: _shortened(one) for name, one in (found | _more()).items()}


def _suited(name, X):
    """Return samples without negative numbers for transformers that refuse them."""
    return np.abs(X) if name.startswith(("ASH", "SCALE")) else X


def _clean_samples(name):
    """Return clean samples: rows of numbers, or strings."""
    X = _suited(name, clean_data()[0])
    estimator = estimators()[name]  # extends the path
    from tests._instances import documents, takes_documents

    return documents(X) if takes_documents(estimator) else X


@cache
def fitted(name):
    """Return an estimator that is fitted on clean data, and the seconds it took."""
    X, y = clean_data()
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = clone(estimators()[name])
        if "Regressor" in name:
            y = X[:, 0]
        estimator.fit(_clean_samples(name), y)
    return estimator, time.perf_counter() - start


# --- outcomes ------------------------------------------------------------------------


def _by_raise(error):
    """Whether a ``raise`` statement raised an error, by the code that was running.

    The source may be another one by now.
    """
    at = error.__traceback__
    while at.tb_next is not None:
        at = at.tb_next
    return at.tb_frame.f_code.co_code[at.tb_lasti] == dis.opmap["RAISE_VARARGS"]


def _on_purpose(error):
    """Whether skood or scikit-learn raised an error by a statement of theirs."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    compiled = frame.filename.startswith("sklearn/") and frame.filename.endswith(".pyx")
    if frame.filename in _CONVERSIONS or compiled:
        return True
    if str(error).startswith("could not convert string to float"):
        frames = traceback.extract_tb(error.__traceback__)  # pandas and polars, too
        return any(one.filename in _CONVERSIONS for one in frames)
    return frame.filename.startswith(_SOURCES) and _by_raise(error)


def check_error(error):
    """Return what is wrong with an error, or None."""
    if isinstance(error, TooLong):
        return f"took more than {LIMIT:.0f} s of CPU time"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{frame.filename}:{frame.lineno}"
    text = f"{type(error).__name__}: {str(error)[:150]!r} ({place})"
    if not isinstance(error, (ValueError, TypeError)):
        return text
    if not _on_purpose(error):
        return f"raw {text}"
    if not 15 <= len(str(error)) <= 4000:
        return f"length {len(str(error))} {text}"
    return None


def _check_values(values, method, n_samples):
    """Return what is wrong with a result, or None."""
    if method == "predict_uncertainty":
        for key in ("total", "aleatoric", "epistemic"):
            wrong = _check_values(values[key], f"uncertainty.{key}", n_samples)
            if wrong:
                return wrong
        return None
    if isinstance(values, list) and values and isinstance(values[0], np.ndarray):
        wrongs = [_check_values(one, method, n_samples) for one in values]
        return next((wrong for wrong in wrongs if wrong), None)
    if hasattr(values, "detach"):
        return f"{method} returned a tensor"
    if issparse(values):  # of a transformer that keeps sparse samples sparse
        values = values.toarray()
    values = np.asarray(values)
    if values.ndim == 0 or (n_samples is not None and len(values) != n_samples):
        return f"{method} has the shape {values.shape} for {n_samples} samples"
    if method == "predict" and values.dtype.kind in "OUSbiuM":
        return None
    if values.dtype.kind not in "fiub":
        return f"{method} has the dtype {values.dtype}"
    if method == "predict_log_proba":
        return "predict_log_proba is NaN" if np.isnan(values).any() else None
    if not np.isfinite(values).all():
        return f"{method} is not finite"
    if method == "predict_proba" and not (
        np.all(values >= 0) and np.allclose(values.sum(axis=-1), 1, atol=1e-3)
    ):
        return "predict_proba does not sum to one"
    return None


def _results(estimator, X, y, n_samples):
    """Return what is wrong with the results for `X`, or None."""
    for method in _METHODS:
        if not hasattr(estimator, method):
            continue
        with warnings.catch_warnings():
            values = getattr(estimator, method)(X)
        wrong = _check_values(values, method, n_samples)
        passed_on = method == "transform" and get_tags(estimator).input_tags.allow_nan
        if wrong and not (passed_on and wrong == "transform is not finite"):
            return wrong
    if isinstance(estimator, BaseDetector) and y is not None:
        score = estimator.score(X, y)
        if not 0 <= score <= 1:
            return f"score is {score}"
    return None


def _state():
    return (
        torch.random.get_rng_state().numpy().tobytes(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        tuple(sorted(np.geterr().items())),
        tuple(map(repr, warnings.filters)),
        tuple(sorted(map(str, sklearn.get_config().items()))),
    )


@contextmanager
def _alarm(seconds):
    def ring(signum, frame):
        raise TooLong

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def run_case(case):
    """Run a case, ``name|mode|content|container|labels|seed``.

    Returns
    -------
    outcome : {"result", "error", "unclean"}
        Whether it gave results or a clear error.

    text : str
        The error, or what is unclean.
    """
    name, mode, content, container, labels, seed = case.split("|")
    rng = np.random.default_rng(int(seed))
    X, y = clean_data()
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        X = CONTENTS[content](rng, _suited(name, X))
        n_samples = len(X) if np.ndim(X) else None
        y = y if n_samples is None else np.resize(y, n_samples)
        if "Regressor" in name and labels == "int":
            y = np.arange(len(y)) + 0.5
        else:
            y = LABELS[labels](rng, y) if len(y) else y
        try:
            X = CONTAINERS[container](rng, X)
        except (ValueError, TypeError, OverflowError, RuntimeError, IndexError):
            X = CONTAINERS["strange"](rng, X)  # there is no such input
            n_samples = None
        if container in ("strange", "records", "pandas series", "ragged list"):
            n_samples = None
        if container in ("CSR", "CSC", "COO", "sparse tensor"):
            n_samples = X.shape[0] if hasattr(X, "shape") else None
    before = _state()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        filters = tuple(map(repr, warnings.filters))
        try:
            with _alarm(LIMIT):
                if mode == "fit":
                    estimator = clone(estimators()[name])
                    estimator.fit(X, y)
                    again, again_n = X, n_samples
                    if rng.random() < 0.3:  # clean samples after unclean training
                        again, y = _clean_samples(name), None
                        again_n = len(again)
                    wrong = _results(estimator, again, y, again_n)
                else:
                    wrong = _results(fitted(name)[0], X, y, n_samples)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            wrong = check_error(error)
            text = f"{type(error).__name__}: {str(error)[:300]}"
            if os.environ.get("FUZZ_TRACEBACK"):
                traceback.print_exc()
        else:
            text = ""
        if tuple(map(repr, warnings.filters)) != filters:
            wrong = wrong or "changed the filters of warnings"
    after = _state()
    if after != before:
        wrong = wrong or "changed global state"
        np.seterr(**dict(before[4]))
    if wrong:
        return "unclean", wrong
    return ("error", text) if text else ("result", "")


# --- the draw ------------------------------------------------------------------------


def draw_cases(n_inputs, seed):
    """Yield cases; estimators take turns, those that are slow to fit are fitted less.

    Nine in ten of the inputs have one strange trait: content, container or labels.
    """
    rng = np.random.default_rng(seed)
    names = list(estimators())
    pick = [list(CONTENTS), list(CONTAINERS), list(LABELS)]
    usual = ["plain", "float64", "int"]
    for i in range(n_inputs):
        name = names[i % len(names)]
        mode = "fit" if rng.random() < 0.5 else "score"
        if mode == "fit" and fitted(name)[1] > 0.1 and rng.random() < 0.6:
            mode = "score"
        traits = list(usual)
        chances = [0.45, 0.4, 0.3] if mode == "fit" else [0.6, 0.6, 0.1]
        for k, chance in enumerate(chances):
            if rng.random() < chance:
                traits[k] = str(rng.choice(pick[k]))
        if traits == usual:
            k = int(rng.integers(3))
            traits[k] = str(rng.choice(pick[k]))
        number = int(rng.integers(2**31))
        yield "|".join([name, mode, *traits, str(number)])


def run(cases, *, verbose=False):
    """Run cases; return counts by kind of input and the unclean cases.

    Parameters
    ----------
    cases : iterable of str
        See `run_case`.

    verbose : bool, default=False
        Whether to print unclean cases as they come.

    Returns
    -------
    counts : Counter
        Numbers of (kind, outcome).

    unclean : list of (str, str)
        Cases and what is wrong.
    """
    counts, unclean = Counter(), []
    for case in cases:
        outcome, text = run_case(case)
        _, mode, *traits, _ = case.split("|")
        kinds = zip(("content", "container", "labels"), traits, strict=True)
        for kind in (f"all, mode {mode}", *(f"{k}: {t}" for k, t in kinds)):
            counts[kind, outcome] += 1
        if outcome == "unclean":
            unclean.append((case, text))
            if verbose:
                print(f"UNCLEAN {text}\n  python benchmarks/fuzz.py --case '{case}'")
                sys.stdout.flush()
    return counts, unclean


def table(counts):
    """Return counts as text: a line for each kind of input."""
    outcomes = ("result", "error", "unclean")
    kinds = sorted({kind for kind, _ in counts})
    lines = [f"{'input':36s} {'results':>8s} {'errors':>8s} {'unclean':>8s}"]
    for kind in kinds:
        numbers = " ".join(f"{counts[kind, outcome]:8d}" for outcome in outcomes)
        lines.append(f"{kind:36s} {numbers}")
    return "\n".join(lines)


def main():
    """Run as a script."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--inputs", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", help="run one case and print its outcome")
    parser.add_argument("--only", default="", help="names of estimators start so")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.case:
        os.environ["FUZZ_TRACEBACK"] = "1"
        outcome, text = run_case(options.case)
        print(outcome, text)
        return int(outcome == "unclean")
    start = time.process_time()
    cases = draw_cases(options.inputs, options.seed)
    if options.only:
        cases = (case for case in cases if case.startswith(options.only))
    counts, unclean = run(cases, verbose=True)
    print(table(counts))
    total = sum(n for (kind, _), n in counts.items() if kind.startswith("all"))
    print(
        f"{total} inputs, {len(unclean)} unclean, {len(estimators())} estimators, "
        f"{time.process_time() - start:.0f} s of CPU time"
    )
    return int(bool(unclean))


if __name__ == "__main__":
    sys.exit(main())
