"""Logic and detectors on traffic signs: does it pay to know what a sign looks like?

::

    python benchmarks/logic_signs.py [--seeds 10] [--threads 2] [--out FILE]

For each seed, networks are trained on 4,000 generated signs: one for the class, one for
the color and one for the shape ("networks"), and one with a head for each ("heads").
Detectors read the class, all but the ensemble, which reads all three; they are fitted
to the same 4,000 signs. Weights of the 29 rules, one for each class, and the
distributions of the detectors' scores are fitted to 1,000 other signs. The test has
2,000 signs and 300 pictures of each of six kinds of OOD samples.

alone
    The detector.
Logic
    The strict baseline, `LogicDetector`: whatever breaks a rule is rejected first.
MLN
    `MLNDetector` with its defaults.
supervised
    The same, and a network that was trained to tell the 4,000 signs from 1,800 OOD
    pictures: others than those of the test, of the same six kinds.
other kinds
    The same, but the network has seen OOD pictures of three kinds, and the three others
    are to be found; a mean over both ways to divide the kinds so.

All tables are means over seeds, in percent, and with +- the standard deviation. Effect
sizes of the MLN are over seeds, and over kinds of OOD samples as in the study. With
signs as the positive class, AUPR depends on the share of OOD pictures, and "other
kinds", which has half as many, is left out.

Networks are trained once for each seed, and what their last layers read is kept, so
that everything else takes seconds. With ``--out`` results are appended to a file, a
line for each row, and what is in this file is not done again.

The script fails if the MLN is above the detector alone, by the mean AUROC, for less
than 6 of the 8 detectors.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import json
import sys
import time
import warnings
from itertools import product
from pathlib import Path

import numpy as np
from sklearn.frozen import FrozenEstimator
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "logic"))

from _signs import (
    CONCEPTS,
    KINDS,
    Readings,
    judge,
    make_detectors,
    make_signs,
    train_heads,
    train_is_id,
    train_networks,
)

from skood.exceptions import SkoodWarning
from skood.logic import Fusion, LogicDetector, MLNDetector, WeightedConstraints
from skood.metrics import cohen_d

BLOCKS = ("networks", "heads")
DETECTORS = ("Ensemble", "Mahalanobis", "MSP", "Energy", "ViM", "ReAct", "DICE", "SHE")
AT_LEAST = 6
NO_DETECTOR = "none"

# Kinds that a network of ID rows has seen, and those that it has not.
HALVES = (("color", "pictogram", "noise"), ("shape", "texture", "natural"))

MAIN = ("alone", "Logic", "MLN", "supervised", "other kinds")

# The parts of the MLN, one replaced at a time.
ABLATION = {
    "shifted product": {"fusion": "shifted_product"},
    # with genextreme, the default, the normalizers of Table 5 of the study
    **{
        name: {"fusion": Fusion(normalizer=name)}
        for name in ("empirical", "uniform", "norm", "gennorm", "lognorm", "none")
    },
    "marginalize": {"marginalize": True},
    "weights 1": {"weights": 1.0},
}
FACTS = "facts"
RUN = "max_epochs", "scale", "seed", "block", "variant", "detector"

# --- one seed ----------------------------------------------------------------------


class Case:
    """The data of a seed, and its networks, which are trained when they are asked for.

    Parameters
    ----------
    seed : int
        Seeds pictures and networks.

    max_epochs : int
        Of the networks of concepts; the others have half as many.

    scale : float
        Of the number of pictures.
    """

    def __init__(self, seed, max_epochs, scale):
        sizes = {"n_train": 4000, "n_calibration": 1000, "n_test": 2000, "n_ood": 300}
        sizes = {name: round(scale * size) for name, size in sizes.items()}
        self.seed, self.max_epochs = seed, max_epochs
        self.signs = make_signs(seed, **sizes)
        self._is_id = None

    def is_id(self):
        """Return networks that have seen OOD pictures: of all kinds, of each half."""
        if self._is_id is None:
            train, outliers = self.signs.train, self.signs.outliers
            self._is_id = {
                name: train_is_id(
                    train, outliers, kinds, self.seed, max(self.max_epochs // 2, 1)
                )
                for name, kinds in (
                    ("is_id", KINDS),
                    ("half 0", HALVES[0]),
                    ("half 1", HALVES[1]),
                )
            }
        return self._is_id

    def block(self, name):
        """Return a block: with a network for each concept, or one with heads."""
        start = time.process_time()
        if name == "networks":
            networks = train_networks(self.signs.train, self.seed, self.max_epochs)
            groups = [{concept: network} for concept, network in networks.items()]
        else:
            network = train_heads(self.signs.train, self.seed, self.max_epochs)
            groups = [{c: network.head(j) for j, c in enumerate(CONCEPTS)}]
        seconds = time.process_time() - start
        return Block(self.signs, groups, self.is_id(), seconds)


class Block:
    """What networks make of the pictures, and the detectors that are fitted to it.

    Parameters
    ----------
    signs : Bunch
        See ``make_signs``.

    groups : list of dict
        Networks of the concepts, see ``Readings``.

    is_id : dict of str to object
        Networks that have seen OOD pictures.

    seconds : float
        How long the training took.
    """

    def __init__(self, signs, groups, is_id, seconds):
        self.signs, self.seconds = signs, seconds
        self.readings = Readings([*groups, *({name: n} for name, n in is_id.items())])
        self.Z = {
            part: self.readings.of(signs[part].data)
            for part in ("train", "calibration", "test")
        }
        self.detectors = {NO_DETECTOR: None, **make_detectors(self.readings)}

    def detector(self, name):
        """Return a detector that is fitted to the training signs."""
        found = self.detectors[name]
        if hasattr(found, "fit") and not isinstance(found, FrozenEstimator):
            found.fit(self.Z["train"], self.signs.train.target)
            found = self.detectors[name] = FrozenEstimator(found)
        return found

    def fitted(self, kind, detector, **options):
        """Return a logical detector, fitted to the signs for calibration."""
        rules = options.pop("rules", self.signs.train.constraints)
        model = kind(
            rules,
            self.readings.concepts(),
            self.detector(detector),
            calibration="same",
            **options,
        )
        return model.fit(self.Z["calibration"], self.signs.calibration.concepts)

    def supervised(self, detector, name="is_id"):
        """Return an MLN that asks a network which has seen OOD pictures."""
        id_estimator = self.readings.classifier(name)
        return self.fitted(MLNDetector, detector, id_estimator=id_estimator)

    def model(self, variant, detector):
        """Return what a row of the tables is about."""
        if variant == "alone":
            return self.fitted(
                MLNDetector, detector, rules=[], fusion=Fusion(normalizer="none")
            )
        if variant == "Logic":
            return self.fitted(LogicDetector, detector)
        if variant == "supervised":
            return self.supervised(detector)
        options = dict(ABLATION.get(variant, {}))
        if "weights" in options:
            n_rules = len(self.signs.train.constraints)
            weights = np.full(n_rules, options.pop("weights"))
            options["rules"] = WeightedConstraints(
                self.signs.train.constraints, weights=weights
            )
        return self.fitted(MLNDetector, detector, **options)

    def judged(self, variant, detector):
        """Return a row of the tables."""
        if variant == FACTS:
            return self.facts()
        start = time.process_time()
        Z, kinds = self.Z["test"], self.signs.test.ood_kind
        if variant == "other kinds":
            found = self.judged_by_halves(detector)
        else:
            model = self.model(variant, detector)
            found = judge(model.score_samples(Z), kinds)
            if getattr(model, "normalizer_", None) is not None:
                found["normalizer"] = model.normalizer_.name
        return found | {"seconds": time.process_time() - start}

    def judged_by_halves(self, detector):
        """The kinds of each half, by the network that has seen the other one."""
        kinds = self.signs.test.ood_kind
        halves = []
        for j, unseen in enumerate(reversed(HALVES)):
            rows = np.isin(kinds, ("id", *unseen))
            model = self.supervised(detector, f"half {j}")
            halves.append(judge(model.score_samples(self.Z["test"][rows]), kinds[rows]))
        means = {
            name: np.mean([half[name] for half in halves])
            for name in ("auroc", "fpr95")
        }
        return halves[0] | halves[1] | means | {"aupr": None}

    def facts(self):
        """What the networks say of the pictures of each kind, in percent."""
        test, Z = self.signs.test, self.Z["test"]
        model = self.supervised(NO_DETECTOR)
        truth = model.knowledge_base_.truth(model._read(Z).codes)
        broken = ~truth[:, :-1].all(axis=1)
        halves = [~self.readings.classifier(f"half {j}").predict(Z) for j in (0, 1)]
        rows = test.ood_kind == "id"
        right = model.predict_concepts(Z[rows]) == test.concepts[rows]
        found = dict(zip(CONCEPTS, right.mean(axis=0), strict=True))
        for kind in ("id", *KINDS):
            rows = test.ood_kind == kind
            found[f"breaks rules, {kind}"] = broken[rows].mean()
            found[f"taken for OOD, {kind}"] = (~truth[rows, -1]).mean()
            unseen = [
                half[rows].mean()
                for half, seen in zip(halves, HALVES, strict=True)
                if kind not in seen
            ]
            found[f"and by a network that has not seen them, {kind}"] = np.mean(unseen)
        found = {name: 100 * float(value) for name, value in found.items()}
        weights = model.weights_
        return found | {
            "least weight": float(weights[:-1].min()),
            "largest weight": float(weights[:-1].max()),
            "weight of is_id": float(weights[-1]),
            "seconds": self.seconds,
        }


# --- running -----------------------------------------------------------------------


def rows_of(block, detectors):
    """Yield variants and detectors of a block."""
    yield FACTS, NO_DETECTOR
    yield from product(MAIN[1:], [NO_DETECTOR])
    yield from product(MAIN, detectors)
    if block == "networks":
        yield from product(ABLATION, detectors)


def read(path):
    """Return what a file of results holds; an absent one nothing."""
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def run_all(arguments):
    """Return the results that were asked for, new ones and those of the file."""
    found = {
        tuple(record[name] for name in RUN): record for record in read(arguments.out)
    }
    asked = []
    for seed in range(arguments.seeds):
        case = None
        for block in arguments.blocks:
            first = arguments.max_epochs, arguments.scale, seed, block
            keys = [(*first, *row) for row in rows_of(block, arguments.detectors)]
            asked += keys
            keys = [key for key in keys if key not in found]
            if keys:
                case = case or Case(seed, arguments.max_epochs, arguments.scale)
                records = run(case.block(block), keys)
                append(arguments.out, records)
                found |= zip(keys, records, strict=True)
    return [found[key] for key in asked]


def run(block, keys):
    """Return the results of some rows of a block."""
    with warnings.catch_warnings():
        # the tables say which distributions were replaced
        warnings.simplefilter("ignore", SkoodWarning)
        return [
            {**dict(zip(RUN, key, strict=True)), **block.judged(*key[-2:])}
            for key in keys
        ]


def append(path, records):
    """Add lines to a file."""
    if path is not None:
        with path.open("a") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)


# --- tables ------------------------------------------------------------------------


def values_of(records, name, **chosen):
    """Return a number of some rows, one for each seed."""
    return np.array(
        [
            np.nan if record[name] is None else record[name]
            for record in records
            if all(record[key] == value for key, value in chosen.items())
        ]
    )


def print_facts(records):
    """Print what the networks say of each kind of pictures."""
    (first, *_) = records
    mean = {
        name: np.mean(values_of(records, name)) for name in first if name not in RUN
    }
    accuracy = ", ".join(f"{name} {mean[name]:.1f}" for name in CONCEPTS)
    print(f"accuracy: {accuracy}; {mean['seconds']:.0f} s of CPU to train")
    print(
        f"weights of the rules {mean['least weight']:.1f} to "
        f"{mean['largest weight']:.1f}, of is_id {mean['weight of is_id']:.1f}"
    )
    kinds = "id", *KINDS
    print(f"\n{'':46}" + "".join(f"{kind:>10}" for kind in kinds))
    for what in (
        "breaks rules",
        "taken for OOD",
        "and by a network that has not seen them",
    ):
        cells = "".join(f"{mean[f'{what}, {kind}']:10.1f}" for kind in kinds)
        print(f"{what:46}{cells}")


def print_table(title, records, name, variants, detectors):
    """Print a number of all variants and detectors, and its standard deviation."""
    print(f"\n{title:14}" + "".join(f"{variant:>17}" for variant in variants))
    for detector in detectors:
        cells = ""
        for variant in variants:
            values = values_of(records, name, variant=variant, detector=detector)
            cells += f"{text_of(values):>17}"
        print(f"{detector:14}{cells}")


def text_of(values):
    """Mean and standard deviation."""
    if len(values) == 0 or np.isnan(values).any():
        return "-"
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{values.mean():.2f} +-{values.std(ddof=1):5.2f}"


def print_kinds(records, variant, detectors):
    """Print the AUROC of each kind."""
    print(f"\n{variant:14}" + "".join(f"{kind:>11}" for kind in KINDS))
    for detector in detectors:
        cells = ""
        for kind in KINDS:
            values = values_of(
                records, f"auroc {kind}", variant=variant, detector=detector
            )
            cells += f"{values.mean():11.2f}"
        print(f"{detector:14}{cells}")


def print_effects(records, detectors):
    """Print effect sizes of the MLN against the detector alone, in paired samples.

    Over seeds, each a mean over kinds, and over kinds, each a mean over seeds: the
    standard errors of the study are of the second sort.
    """
    print(f"\n{'MLN - alone':14}{'d over seeds':>25}{'d over kinds':>25}")
    for detector in detectors:
        gains = np.array(
            [
                values_of(records, f"auroc {kind}", variant="MLN", detector=detector)
                - values_of(
                    records, f"auroc {kind}", variant="alone", detector=detector
                )
                for kind in KINDS
            ]
        )
        cells = "".join(effect_of(gains.mean(axis=axis)) for axis in (0, 1))
        print(f"{detector:14}{cells}")


def effect_of(gains):
    """Cohen's d of paired differences, and its interval, as text."""
    if len(gains) < 2 or np.ptp(gains) < 1e-9:
        return f"{'-':>25}"
    d = cohen_d(gains, np.zeros(len(gains)), paired=True)
    return f"{f'{d.value:.2f} [{d.low:.2f}, {d.high:.2f}]':>25}"


def print_block(block, records, detectors):
    """Print all tables of a block."""
    seeds = {record["seed"] for record in records}
    print(f"\n--- {block}, {len(seeds)} seeds")
    print_facts([record for record in records if record["variant"] == FACTS])
    records = [record for record in records if record["variant"] != FACTS]
    with_none = [*detectors, NO_DETECTOR]
    for title, name in (("AUROC", "auroc"), ("AUPR", "aupr"), ("FPR95", "fpr95")):
        print_table(title, records, name, MAIN, with_none)
    for variant in MAIN:
        rows = detectors if variant == "alone" else with_none
        print_kinds(records, variant, rows)
    print_effects(records, detectors)
    if block == "networks":
        print_table("MLN: AUROC", records, "auroc", ["MLN", *ABLATION], detectors)
    replaced = [
        record["detector"]
        for record in records
        if record["variant"] == "MLN" and record.get("normalizer") == "empirical"
    ]
    if replaced:
        names = ", ".join(f"{d} {replaced.count(d)}" for d in dict.fromkeys(replaced))
        print(f"\ngenextreme replaced by empirical: {names}")


def targets(records, block, detectors):
    """Yield what should be, as text, and whether it is; None if nothing has to be."""
    mean = {
        (variant, detector): np.mean(
            values_of(records, "auroc", variant=variant, detector=detector)
        )
        for variant in MAIN
        for detector in detectors
    }

    def above(variant, other):
        return sum(mean[variant, d] > mean[other, d] for d in detectors)

    n = len(detectors)
    k = above("MLN", "alone")
    least = min(AT_LEAST, n)
    text = f"{block}: MLN + detector above the detector alone: {k} of {n}"
    yield f"{text}, at least {least}", bool(k >= least)
    k = above("supervised", "MLN")
    yield f"{block}: supervised above that: {k} of {n}", None
    k = above("other kinds", "MLN")
    yield f"{block}: the same, of kinds not seen in training: {k} of {n}", None


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
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", metavar="FILE", type=Path, default=None)
    parser.add_argument("--blocks", type=names(BLOCKS), default=list(BLOCKS))
    parser.add_argument("--detectors", type=names(DETECTORS), default=list(DETECTORS))
    parser.add_argument("--max-epochs", type=int, default=12)
    parser.add_argument("--scale", type=float, default=1.0, help="of all samples")
    return parser.parse_args(argv)


def main(argv=None):
    """Print the tables; return 1 if a target is missed."""
    arguments = parsed(argv)
    with threadpool_limits(arguments.threads):
        records = run_all(arguments)
    outcomes = []
    for block in arguments.blocks:
        chosen = [record for record in records if record["block"] == block]
        print_block(block, chosen, arguments.detectors)
        outcomes += targets(chosen, block, arguments.detectors)
    print()
    for text, met in outcomes:
        print(text if met is None else f"{text}  {'OK' if met else 'missed'}")
    return 0 if all(met is not False for _, met in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
