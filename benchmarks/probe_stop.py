"""Whether known classes can choose the number of steps of an evidential probe.

::

    python benchmarks/probe_stop.py DIR [--graph CoraML] [--runs 5] [--out FILE.json]

DIR holds ``cora_ml`` and ``Photo`` (raw graphs). For each class of a network its logit
is dropped, and the probe is trained on the other nodes. Every 20 steps, 0 included, the
AUROC of the log evidence, after a random walk, is computed with the validation nodes of
the dropped class as OOD. The rule takes the step with the largest mean over classes;
"careful" is step 0 unless no class has less there. The table has the OOD-AUROC on test
nodes, in percent, for these steps of the probe of all classes, for step 0 (the energy
of the network, up to the cap), and for early stopping by validation nodes; means over
the five settings of the paper, and the gain over early stopping, paired by runs.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.special import softmax
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.reproduce._run import Run
from benchmarks.reproduce.epn import Parts
from skood.evidential import EvidentialProbe, ProbeObjective
from skood.evidential._probe import input_scale, train_probe
from skood.evidential._probe_objective import (
    ObjectiveSamples,
    evidence_of,
)
from skood.graph import propagate
from skood.metrics import auroc
from skood.nn._training_options import training_options
from skood.utils._progress import progress

SETTINGS = ("OS-1", "OS-2", "OS-3", "OS-4", "OS-5")
EVERY, N_STEPS, LR = 20, 800, 0.01


class Recorded(ProbeObjective):
    """The objective of the probe, which records the weights every 20 steps."""

    def __call__(self, W, b, parts, *, gradient=True):
        """Return the objective, and its gradients by W and b."""
        path = self.__dict__.setdefault("path", [])
        if len(path) * EVERY == self.__dict__.setdefault("calls", 0):
            path.append((W.detach().numpy().copy(), b.detach().numpy().copy()))
        self.calls += 1
        return super().__call__(W, b, parts, gradient=gradient)


def walked_path(logits, codes, train, others, nodes):
    """Return walked log evidences, a row for each recorded step, of all nodes.

    The probe is trained on the labels of some nodes, and without labels on `others`.
    """
    center, scale = input_scale(logits[others], True, 100.0)
    z, proba = (logits - center) / scale, softmax(logits, axis=1)
    device = torch.device("cpu")

    def samples(index, codes=None):
        return ObjectiveSamples(
            *(z[index], proba[index], codes),
            regularized=codes is None,
            corrected=True,
            device=device,
        )

    objective, n_classes = Recorded(), logits.shape[1]
    with progress(N_STEPS, desc="", verbose=0) as bar:
        train_probe(
            objective,
            [samples(train, codes), samples(others)],
            None,
            (np.eye(n_classes), np.zeros(n_classes)),
            lr=LR,
            max_epochs=N_STEPS,
            options=training_options(EvidentialProbe(None)),
            bar=bar,
        )
    evidence = [
        evidence_of(z @ W.T + b, "exp", 100.0).sum(axis=1) for W, b in objective.path
    ]
    values = np.log(n_classes + np.stack(evidence, axis=1))
    return propagate(values, nodes).T


def chosen_steps(case, nodes, logits, classes):
    """Return the steps that the rules choose, and the means over classes by step."""
    train, y = case.train
    valid, y_valid = case.valid["X_val"], case.valid["y_val"]
    curves = []
    for code, label in enumerate(classes):
        kept, known = np.delete(logits, code, axis=1), y != label
        codes = np.searchsorted(np.delete(classes, code), y[known])
        of_class = np.concatenate([train.nodes[~known], valid.nodes[y_valid == label]])
        others = np.setdiff1d(np.arange(len(logits)), of_class)
        path = walked_path(kept, codes, train.nodes[known], others, nodes)
        is_id = np.where(y_valid == label, -1, 1)
        curves.append([auroc(is_id, scores[valid.nodes]) for scores in path])
    curves = 100 * np.array(curves)
    best = int(curves.mean(axis=0).argmax())
    careful = curves.mean(axis=0)
    careful = np.where((curves >= curves[:, :1]).all(axis=0), careful, -np.inf)
    return best, int(careful.argmax()), curves.mean(axis=0)


def study(parts, setting):
    """Return the values of one setting in one run."""
    case, nodes = parts.case(setting), parts.nodes
    network = case.network()[0].estimator
    logits = np.asarray(network.predict_logits(nodes.whole()), dtype=np.float64)
    classes, (train, y) = network.classes_, case.train
    codes = np.searchsorted(classes, y)
    path = walked_path(logits, codes, train.nodes, np.arange(len(logits)), nodes)
    is_id = np.where(case.is_ood, -1, 1)
    test = [100 * auroc(is_id, scores[case.test.nodes]) for scores in path]
    best, careful, curve = chosen_steps(case, nodes, logits, classes)
    probe, _ = case.fitted("EPN-reg, default weights")
    found = {"early stopping, vacuity": probe.predict_uncertainty(case.test).epistemic}
    probe.set_params(propagation="log-evidence")
    found["early stopping"] = probe.predict_uncertainty(case.test).epistemic
    return {
        **{name: 100 * auroc(is_id, -values) for name, values in found.items()},
        "step 0": test[0],
        "known classes": test[best],
        "known classes, careful": test[careful],
        "last step": test[-1],
        "best step (by OOD test nodes)": max(test),
        "step of known classes": EVERY * best,
        "validation AUROC at the step": curve[best],
    }


def main():
    """Print the table."""
    made = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    made.add_argument("data", type=Path)
    made.add_argument("--graph", default="CoraML")
    made.add_argument("--runs", type=int, default=5, help="splits first")
    made.add_argument("--out", type=Path)
    arguments = made.parse_args()
    run = Run(arguments.data, Path("results"), device="cpu")
    order = [5 * split + init for init in range(5) for split in range(5)]
    lines = []
    for seed in order[: arguments.runs]:
        parts = Parts(run, seed, arguments.graph)
        for setting in SETTINGS:
            lines.append({"seed": seed, "setting": setting, **study(parts, setting)})
            print(json.dumps(lines[-1]), file=sys.stderr, flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps(lines))
    frame = pd.DataFrame(lines).drop(columns="setting")
    runs = frame.groupby("seed").mean()
    for name in runs:
        gain = runs[name] - runs["early stopping"]
        print(
            f"{name:32} {runs[name].mean():7.2f}  {gain.mean():+.2f} ± {gain.sem():.2f}"
        )


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        main()
