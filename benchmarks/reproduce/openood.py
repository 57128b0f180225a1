"""OpenOOD v1.5: near and far OOD sets, and covariate-shifted ID sets.

The image lists of OpenOOD and its images are below DIR, in the folders in which OpenOOD
publishes them: ``benchmark_imglist``, ``images_classic`` and ``images_largescale``.
There is a table for each ID set, cifar10, cifar100, imagenet200 and imagenet, and a
second one with the ending ``-fs`` for the full-spectrum protocol, where the samples of
the covariate-shifted sets count as ID. CIFAR-100 has no covariate-shifted set there.

Rows are post-hoc detectors of one network: ResNet-18 with OpenOOD's recipe in three
runs, or with weights from ``DIR/weights/openood-ID-SEED.pth``. ImageNet needs weights:
``weights/openood-imagenet200-SEED.pth`` of a ResNet-18 and ``weights/resnet50.pth``,
under the names of OpenOOD or torchvision. A set whose list is absent has no columns,
and then its group has no mean. ID samples are the positive class of FPR95 and AUPR-in,
OOD samples of AUPR-out, all in percent. As in OpenOOD, the shorter side of an image is
resized, and the center cropped. A choice of ours: detectors use at most 50,000 training
images.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings
from functools import cached_property, partial

import numpy as np
from scipy.ndimage import rotate
from sklearn.datasets import load_digits, load_sample_images
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils import Bunch

from benchmarks.reproduce._networks import load_weights
from benchmarks.reproduce._openood_lists import (
    BENCHMARKS,
    CLASSIC,
    LARGE,
    SOURCE,
)
from benchmarks.reproduce._paper import Claim, Experiment, Paper, Row, own_method
from benchmarks.reproduce._run import replacing
from benchmarks.reproduce._training import OPENOOD, prepare, trained_openood
from skood.detectors import (
    FDBD,
    GEN,
    KNN,
    MSP,
    ODIN,
    SHE,
    Energy,
    KLMatching,
    Mahalanobis,
    MaxLogit,
    NNGuide,
    RelativeMahalanobis,
    Residual,
    ViM,
)
from skood.metrics import ranking_metrics
from skood.nn import split
from skood.rectifiers import ASH, SCALE, ReAct

#: Functions from (head, settings) to detectors of features.
DETECTORS = {
    "MSP": lambda head, settings: MSP(head),
    "MaxLogit": lambda head, settings: MaxLogit(head),
    "Energy": lambda head, settings: Energy(head),
    "GEN": lambda head, settings: GEN(head),
    "KLMatching": lambda head, settings: KLMatching(head),
    "ReAct": lambda head, settings: make_pipeline(ReAct(quantile=0.9), Energy(head)),
    "ASH": lambda head, settings: make_pipeline(ASH(), Energy(head)),
    "SCALE": lambda head, settings: make_pipeline(SCALE(), Energy(head)),
    "FDBD": lambda head, settings: FDBD(head),
    "SHE": lambda head, settings: SHE(head),
    "KNN": lambda head, settings: KNN(
        n_neighbors=settings["n_neighbors"], normalize=True
    ),
    "NNGuide": lambda head, settings: NNGuide(head),
    "Mahalanobis": lambda head, settings: Mahalanobis(),
    "RelativeMahalanobis": lambda head, settings: RelativeMahalanobis(),
    "Residual": lambda head, settings: Residual(
        head, n_components=settings["n_components"]
    ),
    "ViM": lambda head, settings: ViM(head, n_components=settings["n_components"]),
}
NAMES = ("ODIN", *DETECTORS)
_RATES = {
    "FPR95": "fpr_at_tpr",
    "AUROC": "auroc",
    "AUPR-in": "aupr_in",
    "AUPR-out": "aupr_out",
}


# --- scores and rates -----------------------------------------------------------------


class Scores:
    """Scores of one network on all sets.

    A subclass has ``groups``, names of sets by group (near, far, csid), ``complete``,
    the groups in which no set is absent, and ``features``: a Bunch with ``head``,
    ``train`` (Z, y) and ``sets``, a Bunch (Z, y, odin) for "ID" and for each set of
    the groups.
    """

    settings = {"n_neighbors": 50, "n_components": 256}

    def __init__(self, run, seed):
        self.run, self.seed = run, seed
        self._scores = {}

    def scores(self, name, method=None):
        """Return the scores of a detector by set."""
        if name not in self._scores:
            parts = self.features
            if name == "ODIN" and method is None:
                found = {key: part.odin for key, part in parts.sets.items()}
            else:
                detector = (
                    DETECTORS[name](parts.head, self.settings)
                    if method is None
                    else own_method(method, parts.head)
                )
                detector = self.run.placed(detector).fit(parts.train.Z, parts.train.y)
                found = {
                    key: detector.score_samples(part.Z)
                    for key, part in parts.sets.items()
                }
            self._scores[name] = found
        return self._scores[name]

    def rates(self, name, method=None, *, full_spectrum=False):
        """Return rates of each OOD set, and means of complete groups, in percent."""
        scores, found = self.scores(name, method), {}
        known = ["ID", *(self.groups["csid"] if full_spectrum else ())]
        known = np.concatenate([scores[key] for key in known])
        for group in ("near", "far"):
            rows = []
            for ood in self.groups[group]:
                y = np.repeat([1, -1], [len(known), len(scores[ood])])
                values = ranking_metrics(y, np.append(known, scores[ood]), tpr=0.95)
                rows.append({k: 100 * values[name] for k, name in _RATES.items()})
                found |= {f"{group}/{ood}/{k}": v for k, v in rows[-1].items()}
            if rows and group in self.complete:
                for k in _RATES:
                    found[f"{group}/mean/{k}"] = np.mean([row[k] for row in rows])
        return found

    def accuracies(self):
        """Return the accuracy on the ID set and on shifted ID sets, in percent."""
        parts, found = self.features, {}
        for key in ("ID", *self.groups["csid"]):
            predicted = parts.head.predict(parts.sets[key].Z)
            found[f"{key}/accuracy"] = 100 * np.mean(predicted == parts.sets[key].y)
        shifted = list(found.values())[1:]
        if shifted and "csid" in self.complete:
            found["csid mean/accuracy"] = np.mean(shifted)
        return found


def table(parts, full_spectrum=False):
    """Yield the detectors; before them, in the standard table, accuracies."""
    if full_spectrum and not parts.groups["csid"]:
        return
    if not full_spectrum:
        yield Row("network", parts.accuracies)
    for name, method in {**dict.fromkeys(NAMES), **parts.run.methods}.items():
        compute = partial(parts.rates, name, method, full_spectrum=full_spectrum)
        yield Row(name, compute, method)


def _tables(name):
    return {name: table, f"{name}-fs": partial(table, full_spectrum=True)}


class Stored(Scores):
    """Scores by a network that is stored with its features."""

    def __init__(self, run, seed, name):
        super().__init__(run, seed)
        self.name, self.benchmark = name, BENCHMARKS[name]
        self.groups = {
            group: {key: files for key, files in sets.items() if run.has(files[0])}
            for group, sets in self.benchmark.groups.items()
        }
        self.complete = [
            group
            for group, sets in self.benchmark.groups.items()
            if len(self.groups[group]) == len(sets)
        ]

    def images(self, files, n_most=None):
        """Return images of a list, uint8, and labels; of longer ones a random part."""
        path, folder = files
        path = self.run.data / path
        if n_most is not None:
            lines = [line for line in path.read_text().splitlines() if line.strip()]
            if len(lines) > n_most:
                chosen = np.random.default_rng(0).choice(len(lines), n_most, False)
                path = self.run.out / "lists" / f"{self.name}-{path.name}"
                with replacing(path) as file:
                    chosen = "\n".join(lines[i] for i in sorted(chosen))
                    file.write(chosen.encode())
        return self.run.images(
            "list",
            subset=path.absolute(),
            size=self.benchmark.size,
            shorter_side=self.benchmark.shorter_side,
            gray=False,
            root=self.run.data / folder,
        )

    @cached_property
    def stored(self):
        """Return the network: from a file of weights, or trained."""
        made = self.benchmark
        shape, classes = (3, made.size, made.size), np.arange(made.n_classes)
        weights = made.weights.format(seed=self.seed)
        given = self.run.data / weights

        def train():
            if given.is_file():
                return Bunch(
                    module_=load_weights(made.network(shape, made.n_classes), given)
                )
            if made.n_train is not None:
                raise FileNotFoundError(
                    f"There is no {given}: networks for {self.name} are not trained "
                    "here."
                )
            X, y = self.images(made.id_sets["train"])
            return trained_openood(
                *(made.network, prepare(X), y),
                seed=self.seed,
                device=self.run.device,
                verbose=self.run.verbose,
            )

        return self.run.network(
            f"openood-{self.name}-{self.seed}",
            train=train,
            module=lambda: made.network(shape, made.n_classes),
            classes=classes,
            depends=(
                *("openood", OPENOOD, self.seed),
                self.run.digest(
                    weights if given.is_file() else made.id_sets["train"][0]
                ),
            ),
        )

    @cached_property
    def features(self):
        """Return the features of all sets."""
        made = self.benchmark
        odin = ODIN(self.stored.network, scale=1 / np.array(made.std))
        self.run.placed(odin)
        sets = {"ID": made.id_sets["test"]}
        for group in self.groups.values():
            sets |= group
        X, y = self.images(made.id_sets["test"])
        odin.fit(prepare(X[:500]), y[:500])  # for its threshold, which is not used

        def extra(X):
            return {"odin": odin.score_samples(X)}

        def of(name, load, extra=extra):
            return self.run.features(self.stored, name, load, extra, prepare=prepare)

        train = partial(self.images, made.id_sets["train"], made.n_train)
        return Bunch(
            head=split(self.stored.network)[1],
            train=of("train", train, None),
            sets={
                key: of(key, partial(self.images, files)) for key, files in sets.items()
            },
        )


def _experiment(name):
    made, large = BENCHMARKS[name], BENCHMARKS[name].n_train is not None
    optional = [list for sets in made.groups.values() for list, _ in sets.values()]
    weights = made.weights.format(seed="*")
    needs = [path for path, _ in made.id_sets.values()]
    needs += [CLASSIC] * (not large) + [LARGE, f"?{CLASSIC}"] * large
    needs.append(weights if large else f"?{weights}")
    return Experiment(
        name,
        partial(Stored, name=name),
        _tables(name),
        needs=(*needs, *(f"?{path}" for path in optional)),
        seeds=1 if name == "imagenet" else 3,
        recipe=OPENOOD,
        time="30 minutes a network on a GPU",
        recipes=("ours",),
    )


# --- small ----------------------------------------------------------------------------


def _pieces(n, rng):
    """Return pieces of photographs, 32 x 32 pixels reduced to 8 x 8, in gray."""
    photographs = np.stack(
        [image.mean(axis=2) for image in load_sample_images().images]
    )
    found = []
    for which in rng.integers(len(photographs), size=n):
        row, column = rng.integers(np.array(photographs.shape[1:]) - 32)
        piece = photographs[which, row : row + 32, column : column + 32]
        found.append(piece.reshape(8, 4, 8, 4).mean(axis=(1, 3)).ravel() / 255)
    return np.array(found, dtype=np.float32)


class Digits(Scores):
    """A perceptron on the digits 0 to 7.

    Near sets are the digits 8 and 9, far sets noise and pieces of photographs; shifted
    ID sets are rotated and dimmed digits.
    """

    settings = {"n_neighbors": 5, "n_components": 24}
    groups = {
        "near": ["8", "9"],
        "far": ["noise", "photographs"],
        "csid": ["rotated", "dimmed"],
    }
    complete = ("near", "far", "csid")

    @cached_property
    def features(self):
        """Return features of all sets."""
        X, y = load_digits(return_X_y=True)
        X, known = X.astype(np.float32) / 16, y < 8
        X_train, X_test, y_train, y_test = train_test_split(
            *(X[known], y[known]),
            train_size=700,
            stratify=y[known],
            random_state=self.seed,
        )
        network = MLPClassifier(
            (64,), max_iter=60, learning_rate_init=0.003, random_state=self.seed
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            frozen = FrozenEstimator(network.fit(X_train, y_train))
        body, head = split(frozen)
        odin = self.run.placed(ODIN(frozen)).fit(X_train, y_train)
        rng = np.random.default_rng(self.seed)
        turned = rotate(
            X_test.reshape(-1, 8, 8), 20, axes=(2, 1), reshape=False, order=1
        )
        n_far = (300, 64)
        sets = {
            "ID": (X_test, y_test),
            "8": (X[y == 8], y[y == 8]),
            "9": (X[y == 9], y[y == 9]),
            "noise": (rng.random(n_far, dtype=np.float32), np.full(300, -1)),
            "photographs": (_pieces(300, rng), np.full(300, -1)),
            "rotated": (turned.reshape(-1, 64), y_test),
            "dimmed": (0.5 * X_test, y_test),
        }
        return Bunch(
            head=head,
            train=Bunch(Z=body.transform(X_train), y=y_train),
            sets={
                key: Bunch(Z=body.transform(Z), y=labels, odin=odin.score_samples(Z))
                for key, (Z, labels) in sets.items()
            },
        )


# --- claims ---------------------------------------------------------------------------


def _aurocs(records, name, group, rows=NAMES):
    """Return mean AUROCs (n_detectors, n_runs) of a group in a table."""
    column = f"{group}/mean/AUROC"
    rows = [row for row in rows if column in records.columns(name, row)]
    return np.array([records.of(name, row, column) for row in rows])


def far_is_easier(records, name, rows):
    """Return AUROC on far sets minus AUROC on near sets, means over detectors."""
    near, far = (_aurocs(records, name, group, rows) for group in ("near", "far"))
    if not len(near) or len(near) != len(far):
        return None
    return (far - near).mean(axis=0)


def shift_costs(records, name):
    """Return AUROC without minus AUROC with shifted ID samples, over detectors."""
    found = []
    for group in ("near", "far"):
        standard, full = (
            _aurocs(records, f"{name}{end}", group) for end in ("", "-fs")
        )
        if len(full) and len(standard) == len(full):
            found.append((standard - full).mean(axis=0))
    return np.transpose(found) if found else None


# Detectors of the distance of features to training features, or to their subspace.
DISTANCES = ("KNN", "Mahalanobis", "RelativeMahalanobis", "Residual", "ViM")


def _claims(name):
    """Yield the claims on an ID set.

    Confidence scores of the perceptron on digits are high for noise: there the first
    claim does not hold, and is not tested.
    """
    if name in BENCHMARKS:
        yield Claim(
            f"{name}: AUROC is larger for far sets than for near ones, mean over "
            "detectors",
            name,
            partial(far_is_easier, name=name, rows=NAMES),
        )
    yield Claim(
        f"{name}: AUROC is larger for far sets than for near ones, mean over detectors "
        "of distances",
        name,
        partial(far_is_easier, name=name, rows=DISTANCES),
    )
    yield Claim(
        f"{name}: AUROC is smaller if covariate-shifted samples count as ID, mean over "
        "detectors",
        f"{name}-fs",
        partial(shift_costs, name=name),
    )


_NOTE = (
    "The shorter side of images is resized, and the center cropped; detectors use at "
    "most 50,000 training images. A group has a mean if all of its sets are there."
)
PAPER = Paper(
    name="openood",
    title="OpenOOD v1.5: near and far OOD, and covariate-shifted ID samples",
    experiments=[_experiment(name) for name in BENCHMARKS],
    small=[Experiment("digits", Digits, _tables("digits"), seeds=2, recipes=("ours",))],
    claims=[claim for name in (*BENCHMARKS, "digits") for claim in _claims(name)],
    sources=[SOURCE],
    notes=dict.fromkeys([t for name in BENCHMARKS for t in _tables(name)], _NOTE),
)
