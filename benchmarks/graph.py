"""The models of the study of evidential probes on graphs, and how fast a probe trains.

::

    python benchmarks/graph.py --data DIR [--settings OS-1,OS-2] [--models GPN,EPN-reg]
    python benchmarks/graph.py --data DIR --conv gat --out gat.jsonl
    python benchmarks/graph.py --data DIR --layer previous --activation softplus
    python benchmarks/graph.py --data DIR --graph OGBN-Arxiv --split public \\
        --hidden 256,128 --batch-norm --splits 1
    python benchmarks/graph.py --data DIR --graph AmazonPhoto --inits 1 \\
        --models VGNN-gnnsafe,VGNN-entropy/walk,EPN-reg,combined
    python benchmarks/graph.py --speed [--data DIR]

DIR holds ``cora_ml/raw/cora_ml.npz``, or the files of another ``--graph``. In each
setting some classes are left out, and their test nodes are the OOD ones; in "clean"
none are. The nodes are split ``--splits`` times, and models are trained on each split
from ``--inits`` initializations. With
``--out`` what is found is appended to a file, one line for each row of the table and
each run, and runs that are in this file are not done again.

All models of an initialization read the same trained network, those that do not train
their own. An ensemble has the networks of ten initializations; the first one is
its own, so that the ensembles of the five initializations of a split overlap.

``--layer`` and ``--activation`` are options of all probes: "last" are the logits of the
network, "previous" its features. ``--hidden`` and ``--batch-norm`` are of all networks.
``--split public`` uses the parts that are published with a graph.

The columns, all but the seconds in percent, and means over splits and initializations:

AUROC, sd
    ID against OOD test nodes, and the standard deviation. Of the probes and the other
    evidential models by the vacuity, of dropout and ensemble by the entropy of the
    mean, else by the score of the detector.
FPR95
    Share of OOD nodes that is accepted where 95 % of the ID nodes are.
errors
    AUROC of correctly classified against other ID test nodes, by the aleatoric
    uncertainty, or the score of a detector.
acc., Brier, ECE
    Accuracy, Brier score and calibration error on ID test nodes.
fit, network
    CPU seconds, with one thread, of the fit, and of the training before it of the
    networks that are read.
paper
    AUROC that the study has, as far as it is known here: with a GCN. A model should
    not be more than three points below it.

A row with a suffix propagates: "EPN-reg/vacuity" is `EvidentialProbe` with its
defaults, and "EPN-reg" the same without propagation; "/walk" is the random walk of the
vacuity with the scores of a detector. "combined" is what the user guide recommends:
p-values of the probe, of the walked entropy and of GNNSafe, combined by Fisher's test.
Its mean AUROC over the settings must exceed that of each of these three; beside the
difference stands its standard error over splits.

With ``--speed`` seconds of epochs are measured on a generated graph of the size of
ogbn-arxiv, 169,343 nodes with 128 features, 40 classes and 2.3 million directed edges:
those of a graph convolutional network with layers of 256 and 128, and those of a probe
of it, without validation nodes. Two fits, one of them with twice as many epochs, tell
the seconds of one epoch, and what is printed is the median of ``--repeat`` pairs. Where
other work keeps the cores busy, threads wait for each other, and only the CPU seconds
of ``--threads 1`` can be compared. With ``--data`` it also prints the seconds that all
models take on Cora ML.

The script fails if a target is missed.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import json
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np
from graph_models import MODELS, Case, judged
from joblib import Parallel, delayed
from sklearn.frozen import FrozenEstimator
from threadpoolctl import threadpool_limits

from skood.datasets import load_graph, make_ood_graph, paper_ood_splits
from skood.evidential import EvidentialProbe, ProbeObjective
from skood.graph import GraphClassifier
from skood.nn import TrainingOptions

# The left-out classes of each setting, by graph.
SETTINGS = {
    name: {**paper_ood_splits(name), "clean": ()}
    for name in (
        "CoraML",
        "CiteSeerFull",
        "PubMed",
        "AmazonPhoto",
        "AmazonComputers",
        "CoauthorCS",
        "CoauthorPhysics",
        "OGBN-Arxiv",
    )
}

# AUROC of the study on CoraML. All of the probe's settings, the first of all others.
PAPER = {
    "OS-1": {
        "VGNN-entropy": 0.860,
        "VGNN-max_score": 0.852,
        "VGNN-energy": 0.861,
        "VGNN-gnnsafe": 0.890,
        "VGNN-dropout": 0.874,
        "VGNN-ensemble": 0.880,
        "GPN": 0.868,
        "SGNN-GKDE": 0.899,
        "EGNN": 0.830,
        "EGNN/vacuity": 0.897,
        "EGNN/evidence": 0.874,
        "EPN-reg/vacuity": 0.8997,
    },
    "OS-2": {"EPN-reg/vacuity": 0.8591},
    "OS-3": {"EPN-reg/vacuity": 0.8896},
    "OS-4": {"EPN-reg/vacuity": 0.8546},
    "OS-5": {"EPN-reg/vacuity": 0.9127},
}
BELOW_PAPER = 0.03

# AUROC that the probe must reach, in settings and on average over the five.
PROBE, SMOOTHED = "EPN-reg/vacuity", "VGNN-entropy/walk"
REACHED = {"OS-1": 0.92, "OS-2": 0.89}
REACHED_ON_AVERAGE = 0.915
BELOW_SMOOTHED = 0.003

# The combination must be ahead of each of these, in the mean over settings.
COMBINED, SINGLE = "combined", (PROBE, SMOOTHED, "VGNN-gnnsafe")

# The size of ogbn-arxiv, and the share of its nodes that are for training.
N_NODES, DEGREE, LABELED = 169_343, 13.6, 0.54
SLOWER = {"UCE alone": 60, "UCE, ICE and PCL": 15}
MAX_GIB = 6

COLUMNS = {
    "auroc": "AUROC",
    "sd": "sd",
    "fpr95": "FPR95",
    "errors": "errors",
    "accuracy": "acc.",
    "brier": "Brier",
    "ece": "ECE",
    "seconds": "fit",
    "network_seconds": "network",
}
RUN = "graph", "conv", "max_epochs", "options", "setting", "split", "init", "row"


# --- running -----------------------------------------------------------------------


def read(path):
    """Return what a file of results holds; an absent one nothing."""
    if path is None or not path.exists():
        return []
    # files of earlier versions name neither the graph nor options
    return [
        {"graph": "CoraML", "options": "", **json.loads(line)}
        for line in path.read_text().splitlines()
    ]


def run_of(record):
    """What tells one line of results from others."""
    return tuple(record[name] for name in RUN)


def conv_params(arguments):
    """Return the parameters of networks, None for their defaults."""
    params = {"hidden": arguments.hidden, "batch_norm": arguments.batch_norm}
    return {name: value for name, value in params.items() if value} or None


def options_of(arguments):
    """Return the options that differ from the defaults, as text."""
    defaults = parsed(["--speed"])
    names = ("layer", "activation", "hidden", "batch_norm", "split")
    return " ".join(
        f"{name}={getattr(arguments, name)}"
        for name in names
        if getattr(arguments, name) != getattr(defaults, name)
    )


def run(nodes, setting, split, arguments, done):
    """Run the models on one split; return what is not done yet."""
    case = Case(
        nodes,
        SETTINGS[arguments.graph][setting],
        split,
        conv=arguments.conv,
        device=arguments.device,
        max_epochs=arguments.max_epochs,
        conv_params=conv_params(arguments),
        probe={
            "layer": {"previous": "penultimate"}.get(arguments.layer, arguments.layer),
            "activation": arguments.activation,
        },
        split=arguments.split,
    )
    records = []
    with threadpool_limits(limits=1):
        for init in range(arguments.inits):
            for model in arguments.models:
                train, rows = MODELS[model]
                network = arguments.graph, arguments.conv, arguments.max_epochs
                network = *network, options_of(arguments)
                runs = [(*network, setting, split, init, row) for row in rows]
                if done.issuperset(runs):
                    continue
                of_rows = judged(train(case, init), case)
                new = [
                    {**dict(zip(RUN, key, strict=True)), **of_rows[key[-1]]}
                    for key in runs
                    if key not in done
                ]
                append(arguments.out, new)
                records += new
    return records


def append(path, records):
    """Add lines to a file in one piece: other processes do so, too."""
    if path is not None:
        lines = "".join(json.dumps(record) + "\n" for record in records)
        with path.open("a") as file:
            file.write(lines)


def run_all(arguments):
    """Return the results that were asked for, new ones and those of the file."""
    nodes = load_graph(arguments.graph, arguments.data)
    found = {run_of(record): record for record in read(arguments.out)}
    done = set(found)
    for records in Parallel(n_jobs=arguments.jobs)(
        delayed(run)(nodes, setting, split, arguments, done)
        for setting in arguments.settings
        for split in range(arguments.splits)
    ):
        found |= {run_of(record): record for record in records}
    asked = product(
        [arguments.graph],
        [arguments.conv],
        [arguments.max_epochs],
        [options_of(arguments)],
        arguments.settings,
        range(arguments.splits),
        range(arguments.inits),
        [row for model in arguments.models for row in MODELS[model][1]],
    )
    return [found[key] for key in asked]


# --- tables ------------------------------------------------------------------------


def averaged(records):
    """Means over runs, by setting and row: a dict of dicts of dicts."""
    runs: dict = {}
    for record in records:
        rows = runs.setdefault(record["setting"], {})
        rows.setdefault(record["row"], []).append(record)
    return {
        setting: {row: mean_of(found) for row, found in rows.items()}
        for setting, rows in runs.items()
    }


def mean_of(records):
    """Means over runs of one row, and the standard deviation of the AUROC."""
    mean = {
        name: float(np.mean([record[name] for record in records], dtype=float))
        for name in COLUMNS
        if name != "sd"
    }
    aurocs = np.array([record["auroc"] for record in records], dtype=float)
    mean["sd"] = float(aurocs.std(ddof=1)) if len(aurocs) > 1 else np.nan
    return mean | {"n": len(records), "aurocs": aurocs}


def judgment(met):
    """What is said of a target."""
    return "OK" if met else "missed"


def beside_paper(setting, row, mean, conv, graph="CoraML"):
    """Return what the study has and whether this is near it, or None twice."""
    paper = PAPER.get(setting, {}).get(row)
    if paper is None or (graph, conv) != ("CoraML", "gcn"):
        return None, None
    return paper, mean["auroc"] >= paper - BELOW_PAPER


def print_setting(setting, rows, conv, graph):
    """Print the table of a setting."""
    n_runs = max(mean["n"] for mean in rows.values())
    left_out = ", ".join(map(str, SETTINGS[graph][setting])) or "none"
    title = f"{graph}, {setting}: left-out classes {left_out}"
    print(f"\n{title}; {conv}; {n_runs} runs")
    print(
        f"{'':22}" + "".join(f"{title:>8}" for title in COLUMNS.values()) + "   paper"
    )
    for row, mean in rows.items():
        cells = "".join(cell(name, mean[name]) for name in COLUMNS)
        paper, near = beside_paper(setting, row, mean, conv, graph)
        beside = "" if paper is None else f"{100 * paper:8.2f}  {judgment(near)}"
        fewer = "" if mean["n"] == n_runs else f"  {mean['n']} runs"
        print(f"{row:22}{cells}{beside}{fewer}")


def cell(name, value):
    """One number of the table."""
    if np.isnan(value):
        return f"{'-':>8}"
    return f"{value if 'seconds' in name else 100 * value:8.2f}"


def print_aurocs(means):
    """Print the AUROC of all settings side by side."""
    settings = [setting for setting in means if setting != "clean"]
    if len(settings) < 2:
        return
    print(
        "\nAUROC" + f"{'':17}" + "".join(f"{name:>8}" for name in settings) + "    mean"
    )
    for row in {row: None for setting in settings for row in means[setting]}:
        values = [
            means[setting].get(row, {}).get("auroc", np.nan) for setting in settings
        ]
        cells = "".join(cell("auroc", value) for value in [*values, np.mean(values)])
        print(f"{row:22}{cells}")


def targets(means, conv, graph="CoraML"):
    """Yield what should be, as text, and whether it is."""
    yield from ahead_of_single(means)
    if graph != "CoraML":
        return
    for setting, rows in means.items():
        for row, mean in rows.items():
            paper, near = beside_paper(setting, row, mean, conv)
            if paper is not None:
                least = paper - BELOW_PAPER
                yield text_of(f"{setting} {row}", mean["auroc"], least), near
    of_probe = {
        setting: rows[PROBE]["auroc"]
        for setting, rows in means.items()
        if PROBE in rows and setting != "clean"
    }
    if conv == "gcn":
        found = {setting: of_probe.get(setting) for setting in REACHED}
        if len(of_probe) == len(SETTINGS["CoraML"]) - 1:
            found["mean"] = np.mean(list(of_probe.values()))
        for name, auroc in found.items():
            if auroc is not None:
                least = REACHED.get(name, REACHED_ON_AVERAGE)
                yield text_of(f"{name} {PROBE}", auroc, least), auroc >= least
    ahead = {
        setting: found - means[setting][SMOOTHED]["auroc"]
        for setting, found in of_probe.items()
        if SMOOTHED in means[setting]
    }
    if len(ahead) > 1:
        ahead["mean"] = np.mean(list(ahead.values()))
    for name, by in ahead.items():
        text = text_of(f"{name} {PROBE} - {SMOOTHED}", by, -BELOW_SMOOTHED)
        yield text, by >= -BELOW_SMOOTHED


def ahead_of_single(means):
    """Yield whether the combination is ahead of each of its parts, in the mean."""
    found = [rows for setting, rows in means.items() if setting != "clean"]
    for name in SINGLE:
        if not found or not all({COMBINED, name} <= rows.keys() for rows in found):
            continue
        ahead = np.concatenate(
            [rows[COMBINED]["aurocs"] - rows[name]["aurocs"] for rows in found]
        )
        error = ahead.std(ddof=1) / len(ahead) ** 0.5 if len(ahead) > 1 else np.nan
        by = float(np.mean(ahead))
        text = f"mean {COMBINED} - {name}: {by:+.4f} (standard error {error:.4f})"
        yield f"{text}, more than 0", by > 0


def text_of(name, found, least):
    """One target in words."""
    return f"{name}: {found:.4f}, at least {least:.4f}"


# --- speed -------------------------------------------------------------------------


def epoch_seconds(name, make, n_epochs, data, repeat):
    """Print and return seconds of an epoch, from pairs of fits of n and 2 n epochs."""
    found = []
    for _ in range(repeat):
        clocks = []
        for epochs in (n_epochs, 2 * n_epochs):
            estimator = make(epochs)
            start = np.array([time.perf_counter(), time.process_time()])
            estimator.fit(*data)
            clocks.append([time.perf_counter(), time.process_time()] - start)
        found.append((clocks[1] - clocks[0]) / n_epochs)
    seconds, of_cpu = np.median(found, axis=0)
    print(f"{'epoch of ' + name:34}{seconds:10.4f} s{of_cpu:10.4f} s of CPU")
    return seconds


def measure_speed(scale, repeat, device):
    """Print seconds of epochs, and peak memory; yield targets as `targets` does."""
    nodes, y = make_ood_graph(
        round(N_NODES * scale),
        n_classes=40,
        n_features=128,
        average_degree=DEGREE,
        return_X_y=True,
        random_state=0,
    )
    rng = np.random.default_rng(0)
    rows = np.sort(rng.permutation(len(y))[: round(LABELED * len(y))])
    data = nodes[rows], y[rows]
    shared = {"random_state": 0, "device": device}

    def network(epochs):
        return GraphClassifier(
            conv_params={"hidden": (256, 128)},
            max_epochs=epochs,
            training=TrainingOptions(early_stopping=False),
            **shared,
        )

    n_edges = nodes.adjacency.nnz
    print(f"{len(y)} nodes, {n_edges} directed edges, {len(rows)} training nodes")
    of_network = epoch_seconds("the network", network, 2, data, repeat)
    frozen = FrozenEstimator(network(2).fit(*data))
    objectives = [ProbeObjective(lambda_ice=0, lambda_pcl=0), ProbeObjective()]
    for (name, least), objective in zip(SLOWER.items(), objectives, strict=True):

        def probe(epochs, objective=objective):
            return EvidentialProbe(
                frozen,
                objective,
                max_epochs=epochs,
                training=TrainingOptions(early_stopping=False),
                **shared,
            )

        of_probe = epoch_seconds(f"a probe, {name}", probe, 40, data, repeat)
        ratio = of_network / of_probe if of_probe > 0 else np.inf
        text = f"epoch of a probe, {name}: 1/{ratio:.1f} of the network's"
        yield f"{text}, at most 1/{least}", ratio >= least
    peak = peak_memory()
    yield f"peak memory: {peak:.2f} GiB, at most {MAX_GIB}", peak <= MAX_GIB


def peak_memory():
    """Most memory that the process has had, in GiB."""
    import resource  # not on Windows

    unit = 2**30 if sys.platform == "darwin" else 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def print_seconds(records):
    """Print how long the fit of each row took."""
    print(f"\n{'CPU seconds on Cora ML':22}{'fit':>8}{'network':>9}")
    for record in records:
        seconds = f"{record['seconds']:8.2f}{record['network_seconds']:9.2f}"
        print(f"{record['row']:22}{seconds}")


# --- command line ------------------------------------------------------------------


def names(known):
    """Parser of names that are separated by commas."""

    def parse(text):
        found = text.split(",")
        for name in found:
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"invalid choice: {name!r} (choose from {', '.join(known)})"
                )
        return found

    return parse


def parsed(argv):
    """Arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", metavar="DIR", type=Path, default=None)
    parser.add_argument(
        "--conv", choices=("gcn", "gat", "sage", "appnp"), default="gcn"
    )
    parser.add_argument("--graph", choices=SETTINGS, default="CoraML")
    parser.add_argument("--layer", choices=("last", "previous"), default="last")
    parser.add_argument("--activation", choices=("exp", "softplus"), default="exp")
    parser.add_argument(
        "--hidden",
        type=lambda text: tuple(map(int, text.split(","))),
        default=None,
        help="widths of networks, such as 256,128",
    )
    parser.add_argument("--batch-norm", action="store_true", help="of networks")
    parser.add_argument("--split", choices=("random", "public"), default="random")
    parser.add_argument("--settings", type=lambda text: text.split(","), default=None)
    parser.add_argument("--models", type=names(MODELS), default=list(MODELS))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--inits", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2, help="splits at the same time")
    parser.add_argument("--out", metavar="FILE", type=Path, default=None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--max-epochs", type=int, default=None, help="of all training")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--scale", type=float, default=1.0, help="of the large graph")
    parser.add_argument("--repeat", type=int, default=5, help="measurements of speed")
    parser.add_argument("--threads", type=int, default=2, help="of these")
    arguments = parser.parse_args(argv)
    if arguments.data is None and not arguments.speed:
        parser.error("give --data or --speed")
    known = list(SETTINGS[arguments.graph])
    if arguments.settings is None:
        arguments.settings = known[:-1]
    unknown = [name for name in arguments.settings if name not in known]
    if unknown:
        parser.error(
            f"argument --settings: invalid choice: {unknown[0]!r} (choose from "
            f"{', '.join(known)})"
        )
    return arguments


def main(argv=None):
    """Print the tables; return 1 if a target is missed."""
    arguments = parsed(argv)
    if arguments.speed:
        with threadpool_limits(arguments.threads):
            outcomes = list(
                measure_speed(arguments.scale, arguments.repeat, arguments.device)
            )
        if arguments.data is not None:
            arguments.settings, arguments.splits = arguments.settings[:1], 1
            arguments.inits, arguments.out = 1, None
            print_seconds(run_all(arguments))
    else:
        means = averaged(run_all(arguments))
        for setting, rows in means.items():
            network = " ".join([arguments.conv, options_of(arguments)]).rstrip()
            print_setting(setting, rows, network, arguments.graph)
        print_aurocs(means)
        outcomes = []
        if not options_of(arguments):  # targets are of the defaults
            outcomes = list(targets(means, arguments.conv, arguments.graph))
    print()
    for text, met in outcomes:
        print(f"{text}  {judgment(met)}")
    return 0 if all(met for _, met in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
