"""Geng et al.: DSDE, using proportion estimation to improve model selection (2024).

Tables 1 to 6 on CIFAR-10 and CIFAR-100, and the same tables on two libraries of eight
small networks: scikit-learn's digits (``--small``) and MNIST with notMNIST as letters,
with other samples, left-out digits and weights in each run. Where the paper is silent:
p-values are of 5,000 training images held out, TPRs are on test images, networks have
OpenOOD's recipe, and LSUN is cropped.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from sklearn.utils import Bunch

from benchmarks.reproduce import _networks
from benchmarks.reproduce._paper import Claim, Experiment, Paper, Row, own_method
from benchmarks.reproduce._training import (
    OPENOOD,
    SUPCON,
    openood_classifier,
    prepare,
    train_supcon,
)
from skood.combine import (
    BenjaminiHochberg,
    BenjaminiYekutieli,
    Bonferroni,
    DOSStorey,
    Naive,
    Vote,
    conformal_pvalues,
)
from skood.datasets import load_digits_ood
from skood.detectors import KNN, MSP, ODIN, Energy
from skood.metrics import auroc, fpr_at_tpr
from skood.nn import split

_LIBRARY = Path(__file__).parents[2] / "examples" / "combine" / "_library.py"
sys.path.insert(0, str(_LIBRARY.parent))

from _library import contrastive_loss, divide, parts_of, train_library  # noqa: E402

ALPHA = 0.05
METHODS = ("MSP", "ODIN", "Energy", "KNN")
SCHEMES = {
    "Naive": Naive(),
    "Bonferroni": Bonferroni(),
    "Voting(50%)": Vote(share=0.5),
    "Voting(60%)": Vote(share=0.6),
    "BY": BenjaminiYekutieli(),
    "BH": BenjaminiHochberg(),
}
# Lower bounds of the change point: 2/m, and the paper's for 7 and for 18 networks.
_SHARES = {"2/m": None, "2/7": 2 / 7, "2/15": 2 / 15}
_MOST_PARTS = 70


class Library:
    """Scores of a library of networks on calibration, ID and OOD images.

    A subclass has ``prefix`` of the names of rows, ``models``, the names of networks,
    ``c_m`` and ``pvalue_method``, and ``scores_of(method)``: by set ("calibration",
    "ID", and the OOD sets) an array (n_samples, n_models).
    """

    prefix = ""
    c_m = None
    pvalue_method = "conformal"

    def __init__(self, run, seed):
        self.run, self.seed = run, seed
        self._scores, self._pvalues = {}, {}

    def scores(self, method):
        """Return scores by set."""
        if method not in self._scores:
            self._scores[method] = self.scores_of(method)
        return self._scores[method]

    def pvalues(self, method):
        """Return p-values by set."""
        if method not in self._pvalues:
            scores = dict(self.scores(method))
            calibration = scores.pop("calibration")
            self._pvalues[method] = {
                name: conformal_pvalues(S, calibration, method=self.pvalue_method)
                for name, S in scores.items()
            }
        return self._pvalues[method]

    def dsde(self):
        """Return the combiner."""
        return DOSStorey(c_m=self.c_m)


def _on_sets(values, rate, name):
    """Return columns of a rate on each OOD set, and the average, in percent.

    `values` are arrays by set, high for ID, and `rate` a function of ID and OOD values.
    """
    known = values["ID"]
    found = {
        ood: 100 * rate(known, other) for ood, other in values.items() if ood != "ID"
    }
    found["average"] = np.mean(list(found.values()))
    return {f"{ood}/{name}": value for ood, value in found.items()}


def _task(known, other):
    return np.repeat([1, -1], [len(known), len(other)]), np.append(known, other)


def _auc(known, other):
    return auroc(*_task(known, other))


def _fpr_at(tpr, known, other):
    return fpr_at_tpr(*_task(known, other), tpr=tpr)


def _is_accepted(level):
    """Return which samples are accepted, with a tolerance for rounding."""
    return level > ALPHA * (1 + 1e-12)


def network_row(parts, method, j):
    """Return the rates of a single network: its FPR at its own TPR of 95 %."""
    pvalues = parts.pvalues(method)
    scores = {name: parts.scores(method)[name][:, j] for name in pvalues}
    tpr = _is_accepted(parts.dsde().statistic(pvalues["ID"])).mean()
    return {
        "TPR": 95.0,
        **_on_sets(scores, partial(_fpr_at, 0.95), "FPR"),
        **_on_sets(scores, _auc, "AUC"),
        "average/FPR at the TPR of DSDE": _on_sets(
            scores, partial(_fpr_at, tpr), "FPR"
        )["average/FPR"],
    }


def mean_row(parts, method):
    """Return the means of the rates over all networks."""
    rows = [network_row(parts, method, j) for j in range(len(parts.models))]
    return {column: np.mean([row[column] for row in rows]) for column in rows[0]}


def combined_row(parts, method, combiner):
    """Return the rates of a combiner: nominal, conformal, and at a TPR of 95 %."""
    levels = {name: combiner.statistic(P) for name, P in parts.pvalues(method).items()}
    nominal = {name: _is_accepted(level) for name, level in levels.items()}
    conformal = {
        name: _is_accepted(level)
        for name, level in conformal_levels(parts, method, combiner).items()
    }

    def accepted(known, other):
        return other.mean()

    return {
        "TPR": 100 * nominal["ID"].mean(),
        **_on_sets(nominal, accepted, "FPR"),
        **_on_sets(levels, _auc, "AUC"),
        "TPR, conformal level": 100 * conformal["ID"].mean(),
        **_on_sets(conformal, accepted, "FPR, conformal level"),
        "average/FPR at 95 % TPR": _on_sets(levels, partial(_fpr_at, 0.95), "FPR")[
            "average/FPR"
        ],
    }


def conformal_levels(parts, method, combiner):
    """Return levels that hold under any dependence of the networks, by set.

    One half of the calibration images is for p-values, and the statistic of the other
    half for its rank, as in `DetectorEnsemble`.
    """
    scores = dict(parts.scores(method))
    calibration = scores.pop("calibration")
    first, second = calibration[::2], calibration[1::2]
    ranked = combiner.statistic(conformal_pvalues(second, first))
    return {
        name: conformal_pvalues(combiner.statistic(conformal_pvalues(S, first)), ranked)
        for name, S in scores.items()
    }


# --- tables ---------------------------------------------------------------------------


def single_models(parts):
    """Yield the networks with KNN, and DSDE of them: Tables 1 and 3."""
    for j, name in enumerate(parts.models):
        yield Row(parts.prefix + name, partial(network_row, parts, "KNN", j))
    dsde = partial(combined_row, parts, "KNN", parts.dsde())
    yield Row(f"{parts.prefix}DSDE", dsde)


def all_scores(parts):
    """Yield scores as means over the library, and DSDE of each: Tables 2 and 4."""
    own = parts.run.methods
    for name in (*METHODS, *own):
        depends = own.get(name)
        yield Row(parts.prefix + name, partial(mean_row, parts, name), depends)
        dsde = partial(combined_row, parts, name, parts.dsde())
        yield Row(f"{parts.prefix}DSDE-{name}", dsde, depends)


def networks(parts):
    """Yield all networks with all scores: not in the paper."""
    for name in METHODS:
        for j, model in enumerate(parts.models):
            row = partial(network_row, parts, name, j)
            yield Row(f"{parts.prefix}{name}/{model}", row)


def schemes(parts):
    """Yield combiners of KNN on all networks: Table 5."""
    for name, combiner in {**SCHEMES, "DSDE-KNN": parts.dsde()}.items():
        row = partial(combined_row, parts, "KNN", combiner)
        yield Row(parts.prefix + name, row)


def sizes(parts):
    """Yield DSDE on the library, and on parts of it of each size: Table 6."""
    dsde = partial(combined_row, parts, "KNN", parts.dsde())
    yield Row(f"{parts.prefix}DSDE-KNN(Small)", dsde)
    for size in range(2, len(parts.models) + 1, 2):
        for share in _SHARES:
            if share != "2/m" or size > 2:  # 2/m is 1: two networks have no range
                name = f"{parts.prefix}{size} networks, c_m {share}"
                yield Row(name, partial(size_row, parts, size, share))


def size_row(parts, size, share):
    """Return the mean rates of DSDE over parts of the library of a size."""
    pvalues = parts.pvalues("KNN")
    rng = np.random.default_rng(parts.seed)
    found = []
    for part in parts_of(len(parts.models), size, _MOST_PARTS, rng):
        combiner = DOSStorey(c_m=_SHARES[share])
        levels = {name: combiner.statistic(P[:, part]) for name, P in pvalues.items()}
        accepted = {name: _is_accepted(level) for name, level in levels.items()}
        rates = _on_sets(accepted, lambda _, other: other.mean(), "FPR")
        at_95 = _on_sets(levels, partial(_fpr_at, 0.95), "FPR at 95 % TPR")
        found.append({"TPR": 100 * accepted["ID"].mean(), **rates, **at_95})
    return {column: np.mean([row[column] for row in found]) for column in found[0]}


_TABLES = {
    "1": single_models,
    "2": all_scores,
    "5": schemes,
    "6": sizes,
    "networks": networks,
}


# --- small networks: digits, and MNIST ------------------------------------------------

_LEFT_OUT = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))


class Digits(Library):
    """Eight small networks of four structures and two losses, trained on digits.

    The sets of OOD images are of ``examples/combine``: left-out digits, mirrored
    digits, digits with permuted quarters, letters, and pieces of photographs.
    """

    prefix = "digits/"
    n_views, n_neighbors, n_most = 64, 5, 300

    def divided(self):
        """Return the parts of the images, see `divide`."""
        X, y = load_digits_ood(left_out=(), as_images=True, return_X_y=True)
        left_out = _LEFT_OUT[self.seed % len(_LEFT_OUT)]
        return divide(X, y, left_out, n_train=600, seed=self.seed, n_most=self.n_most)

    @cached_property
    def images(self):
        """Return the images by part."""
        return self.divided()

    @cached_property
    def library(self):
        """Return the trained networks by name."""
        X, y = self.images.X_train, self.images.y_train
        return train_library(X, y, n_views=self.n_views, seed=self.seed)

    @property
    def models(self):
        """Names of the networks, which are not trained for them."""
        return [
            f"{body} {loss}"
            for loss in ("CE", "SupCon")
            for body in ("perceptron", "plain", "residual", "dense")
        ]

    def detector(self, method, network):
        """Return an unfitted detector of a network."""
        if method == "KNN":
            return KNN(network, n_neighbors=self.n_neighbors)
        if method in METHODS:
            return {"MSP": MSP, "ODIN": ODIN, "Energy": Energy}[method](network)
        return own_method(self.run.methods[method], network)

    def scores_of(self, method):
        """Return the scores of all networks by set."""
        parts = self.images
        sets = {"calibration": parts.X_calibration, "ID": parts.images["known"]}
        sets |= {name: X for name, X in parts.images.items() if name != "known"}
        detectors = [
            self.detector(method, self.library[name]).fit(parts.X_train, parts.y_train)
            for name in self.models
        ]
        return {
            name: np.column_stack([d.score_samples(X) for d in detectors])
            for name, X in sets.items()
        }


class SmallDigits(Digits):
    """The same with few steps of training, and fewer OOD images."""

    n_views, n_most = 8, 150


class MNIST(Digits):
    """The same on MNIST, with notMNIST as letters."""

    prefix = "MNIST/"
    n_views, n_neighbors, n_most = 16, 10, 1000

    def divided(self):
        """Return the parts of the images."""
        X, y = self.run.images("mnist")
        letters = prepare(self.run.images("notmnist")[0])
        left_out = _LEFT_OUT[self.seed % len(_LEFT_OUT)]
        options = {"n_train": 4000, "letters": letters, "n_most": self.n_most}
        return divide(prepare(X), y, left_out, seed=self.seed, **options)


# --- CIFAR ----------------------------------------------------------------------------

_OOD = {
    "SVHN": "svhn",
    "LSUN": "lsun_crop",
    "iSUN": "isun",
    "DTD": "textures",
    "Places365": "places365",
}
_DEPTHS = (18, 34, 50, 101, 152)
_RESNETS = {
    f"ResNet{depth}": partial(_networks.resnet, depth=depth) for depth in _DEPTHS
}


class Stored(Library):
    """Networks that are stored with their features."""

    c_m = 2 / 7
    pvalue_method = "ecdf"
    n_calibration = 5000

    def __init__(self, run, seed, id_name, statistics, n_classes, supcon):
        super().__init__(run, seed)
        self.id_name, self.statistics, self.n_classes = id_name, statistics, n_classes
        self.factories = {
            **({"ResNet18*": _networks.resnet} if supcon else {}),
            **_RESNETS,
            "DenseNet": _networks.densenet100,
        }

    @property
    def models(self):
        """Names of the networks."""
        return list(self.factories)

    @cached_property
    def training(self):
        """Return training and calibration images with labels."""
        X, y = self.run.images(self.id_name, "train")
        parts = train_test_split(
            *(prepare(X), y),
            test_size=self.n_calibration,
            stratify=y,
            random_state=self.seed,
        )
        return Bunch(train=(parts[0], parts[2]), calibration=(parts[1], parts[3]))

    def stored(self, name):
        """Return a trained network."""
        factory = partial(self.factories[name], **self.statistics)
        supcon, shape = name.endswith("*"), (3, 32, 32)
        device = self.run.device

        def train():
            X, y = self.training.train
            if not supcon:
                made = openood_classifier(
                    factory, seed=self.seed, device=device, verbose=self.run.verbose
                )
                return made.fit(X, y)
            with torch.random.fork_rng():
                torch.manual_seed(self.seed)
                module = factory(shape, self.n_classes)
            train_supcon(
                *(module[:-1], module[-1], X, y, contrastive_loss),
                seed=self.seed,
                device=device,
            )
            return Bunch(module_=module)

        return self.run.network(
            f"dsde-{self.id_name}-{name}-{self.seed}".replace("*", "-supcon"),
            train=train,
            module=lambda: factory(shape, self.n_classes),
            classes=np.arange(self.n_classes),
            depends=(
                *("dsde", name, self.seed, SUPCON if supcon else OPENOOD),
                self.run.digest(self.id_name),
            ),
        )

    def loaders(self):
        """Return functions that load images and labels, by set."""

        def load(name):
            X, y = self.run.images(name)
            return prepare(X, 32, 3), y

        return {
            "train": lambda: self.training.train,
            "calibration": lambda: self.training.calibration,
            "ID": partial(load, self.id_name),
            **{ood: partial(load, name) for ood, name in _OOD.items()},
        }

    @cached_property
    def features(self):
        """Return the head, and features by set, of each network."""
        found = {}
        for name in self.models:
            stored = self.stored(name)
            scale = 1 / np.array(self.statistics["std"])
            odin = ODIN(stored.network, scale=scale, device=self.run.device)
            X, y = self.training.calibration
            odin.fit(X[:500], y[:500])  # only for its threshold, which is not used

            def extra(X, odin=odin):
                return {"odin": odin.score_samples(X)}

            sets = {
                part: self.run.features(
                    stored, part, load, None if part == "train" else extra
                )
                for part, load in self.loaders().items()
            }
            found[name] = Bunch(head=split(stored.network)[1], **sets)
        return found

    def scores_of(self, method):
        """Return the scores of all networks by set."""
        columns = {name: [] for name in ("calibration", "ID", *_OOD)}
        for part in self.features.values():
            detector = self.detector(method, part.head)
            if detector is not None:
                detector.fit(part.train.Z, part.train.y)
            for name, found in columns.items():
                given = part[name]
                found.append(
                    given.odin if detector is None else detector.score_samples(given.Z)
                )
        return {name: np.column_stack(found) for name, found in columns.items()}

    def detector(self, method, head):
        """Return an unfitted detector of features; None for ODIN, which is stored."""
        if method == "ODIN":
            return None
        if method == "KNN":
            return KNN(n_neighbors=50)
        if method in METHODS:
            return {"MSP": MSP, "Energy": Energy}[method](head)
        return own_method(self.run.methods[method], head)


# --- claims ---------------------------------------------------------------------------


def _prefixes(records, table, name):
    """Return the prefixes of the rows with a name."""
    return [
        row.removesuffix(name)
        for row in records.rows(table)
        if row == name or row.endswith(f"/{name}")
    ]


def gain_over_best(records, method):
    """Return FPR of the network that is best on average minus FPR of DSDE.

    At the TPR of DSDE; averages over OOD sets.
    """
    gains = []
    for prefix in _prefixes(records, "2", f"DSDE-{method}"):
        dsde = records.of("2", f"{prefix}DSDE-{method}", "average/FPR")
        names = [
            row
            for row in records.rows("networks")
            if row.startswith(f"{prefix}{method}/")
        ]
        if names:
            column = "average/FPR at the TPR of DSDE"
            single = np.array([records.of("networks", row, column) for row in names])
            gains.append(single[np.nanmean(single, axis=1).argmin()] - dsde)
    return np.transpose(gains) if gains else None


def gain_over_scheme(records, scheme):
    """Return FPR of another scheme minus FPR of DSDE, at a TPR of 95 %."""
    column, gains = "average/FPR at 95 % TPR", []
    for prefix in _prefixes(records, "5", "DSDE-KNN"):
        other = records.of("5", prefix + scheme, column)
        gains.append(other - records.of("5", f"{prefix}DSDE-KNN", column))
    return np.transpose(gains) if gains else None


def _cifar(name, id_name, statistics, n_classes, tables, supcon):
    return Experiment(
        name,
        partial(
            Stored,
            id_name=id_name,
            statistics=statistics,
            n_classes=n_classes,
            supcon=supcon,
        ),
        tables,
        needs=(id_name, *_OOD.values()),
        recipe={"openood": OPENOOD, "supcon": SUPCON},
        time="20 hours of a GPU",
    )


PAPER = Paper(
    name="dsde",
    title="Geng et al. (2024), DSDE",
    experiments=[
        _cifar("CIFAR-10", "cifar10", _networks.CIFAR10, 10, _TABLES, supcon=True),
        _cifar(
            *("CIFAR-100", "cifar100", _networks.CIFAR100, 100),
            {"3": single_models, "4": all_scores},
            supcon=False,
        ),
        Experiment(
            "MNIST",
            MNIST,
            _TABLES,
            needs=("mnist", "notmnist"),
            seeds=5,
            time="2 minutes a run",
        ),
        Experiment("digits", Digits, _TABLES, seeds=10, time="1 minute a run"),
    ],
    small=[Experiment("digits", SmallDigits, _TABLES, seeds=2)],
    claims=[
        *(
            Claim(
                f"DSDE of {method} has a smaller mean FPR than the network that is "
                "best on average, at the same TPR",
                "2",
                partial(gain_over_best, method=method),
            )
            for method in METHODS
        ),
        *(
            Claim(
                f"DSDE has a smaller mean FPR than {scheme} at a TPR of 95 %",
                "5",
                partial(gain_over_scheme, scheme=scheme),
            )
            for scheme in ("BH", "BY", "Bonferroni")
        ),
    ],
    cannot_follow={
        ("2", "KNN", "average/*"): "printed is the entry of SVHN; the mean of the "
        "printed entries is 22.14 and 96.03",
        ("4", "MSP", "average/AUC"): "printed is 76.69; the mean of the entries 78.50",
        ("5", "*", "TPR"): "printed TPRs are of independent uniform p-values",
        ("6", "DSDE-KNN(Large)", "*"): "weights, training data and input sizes of the "
        "18 networks are not stated",
    },
    notes={
        "1": "Single networks at their own TPR of 95 %; DSDE at the level 0.05.",
        "2": "Scores without DSDE are means over all networks, as the printed ones of "
        "KNN are.",
        "6": "Means over all parts of a library of a size, or 70 drawn.",
        "networks": "Not in the paper: each network, and its FPR at the TPR of DSDE.",
    },
    sources=[_LIBRARY],
)
