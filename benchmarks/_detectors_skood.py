"""The methods of ``benchmarks/detectors.py``, and skood's side of each."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from scipy.special import logsumexp


@dataclass(frozen=True)
class Method:
    """A method under the name of its class in skood, and what it reads.

    ``reads`` is "logits", "features", "head" (features, and the linear head),
    "rectifier" (features; its result is rectified features), "classifier" (features
    and the head; its result is logits) or "energy" (features and the head: a rectifier,
    then the energy of the logits).
    """

    name: str
    reads: str
    options: dict = field(default_factory=dict)


METHODS = (
    Method("MSP", "logits"),
    Method("MSPHead", "head"),
    Method("MaxLogit", "logits"),
    Method("Energy", "logits"),
    Method("Entropy", "logits"),
    Method("GEN", "logits"),
    Method("KLMatching", "logits"),
    Method("OpenMax", "logits"),
    Method("Mahalanobis", "features"),
    Method("RelativeMahalanobis", "features"),
    Method("KNN", "features", {"n_neighbors": 50, "normalize": True}),  # as the others
    Method("SSD", "features"),
    Method("GMM", "features"),
    Method("SklearnDetector", "features"),
    Method("Residual", "head"),
    Method("ViM", "head"),
    Method("SHE", "head"),
    Method("NNGuide", "head"),
    Method("NCI", "head"),
    Method("FDBD", "head"),
    # as in pytorch-ood; the default of ours are the network's own logits
    Method("PNML", "head", {"normalize_logits": True}),
    Method("Relation", "head"),
    Method("NECO", "head"),
    Method("CADRef", "head"),
    Method("CARef", "head"),
    Method("GradNorm", "head"),
    Method("ReAct", "rectifier"),
    # what pytorch-ood does; the default of ours is zero below
    Method("VRA", "rectifier", {"low": 0.01, "high": 0.99, "below": "clip"}),
    Method("ReActEnergy", "energy"),
    Method("VRAEnergy", "energy", {"low": 0.01, "high": 0.99, "below": "clip"}),
    Method("ASH", "rectifier"),
    Method("SCALE", "rectifier"),
    Method("LTS", "rectifier"),
    Method("DICE", "classifier"),
)


@dataclass
class Job:
    """One method of one library, ready to be timed.

    Parameters
    ----------
    fit : callable or None
        Takes nothing, returns something fitted. None: there is nothing to fit.

    score : callable
        Takes what `fit` returned, returns scores of the test rows, high = ID, or what
        `finish` makes scores of.

    finish : callable
        From the result of `score` to scores; not timed.

    note : str
        How the library was used, or what is wrong there.

    correct : bool
        Whether this is the method. If not, its time is no bar for others.

    timed : type or None
        The class whose threshold is timed apart.
    """

    fit: Callable | None
    score: Callable
    finish: Callable = np.asarray
    note: str = ""
    correct: bool = True
    timed: type | None = None


def energy(logits):
    """Return the energy score of logits: what rectified features are ranked by."""
    return logsumexp(logits, axis=1)


def as_numpy(array):
    """Return a NumPy array, or a tensor on any device, as a NumPy array."""
    return array.cpu().numpy() if hasattr(array, "cpu") else np.asarray(array)


def skood(method, inputs, device="cpu"):
    """Return skood's `Job`, or None if there is no such class."""
    import skood.detectors as detectors

    try:
        import skood.rectifiers as rectifiers
    except ImportError:
        rectifiers = None
    name = method.name.removesuffix("Head").removesuffix("Energy") or method.name
    found = getattr(detectors, name, getattr(rectifiers, name, None))
    if found is None:
        return None
    options = dict(method.options)
    if "device" in inspect.signature(found).parameters:
        options["device"] = device

    def make():
        first = () if method.reads == "energy" else _first(method, inputs)
        return found(*first, **options)

    if method.reads == "rectifier":
        return Job(
            lambda: make().fit(inputs.Z, inputs.y),
            lambda fitted: fitted.transform(inputs.T),
            lambda Z: energy(as_numpy(Z) @ inputs.coef.T + inputs.intercept),
        )
    if method.reads == "energy":
        from sklearn.frozen import FrozenEstimator
        from sklearn.pipeline import make_pipeline

        (head,) = _first(method, inputs)

        @cache
        def energy_of(fitted):
            steps = FrozenEstimator(make_pipeline(fitted, head))
            return detectors.Energy(steps, device=device).fit(inputs.Z[:1000])

        return Job(
            lambda: make().fit(inputs.Z, inputs.y),
            lambda fitted: energy_of(fitted).score_samples(inputs.T),
        )
    if method.reads == "classifier":
        return Job(
            lambda: make().fit(inputs.Z, inputs.y),
            lambda fitted: fitted.predict_logits(inputs.T),
            energy,
        )
    train, test = _arrays(method, inputs)
    return Job(
        lambda: make().fit(train, inputs.y),
        lambda fitted: fitted.score_samples(test),
        timed=found,
    )


def _first(method, inputs):
    """Arguments without a name: the frozen head, if there is one."""
    if method.reads not in ("head", "classifier", "energy"):
        return ()
    from sklearn.frozen import FrozenEstimator

    from skood.nn import LinearHead

    return (FrozenEstimator(LinearHead(inputs.coef, inputs.intercept)),)


def _arrays(method, inputs):
    """Training and test rows."""
    if method.reads == "logits":
        return inputs.L, inputs.M
    return inputs.Z, inputs.T
