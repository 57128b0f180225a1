"""The methods of ``benchmarks/detectors.py`` in other libraries.

One class per library, one function per method that it has, under our name for it;
each returns a `Job`. The libraries are imported only when requested.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import importlib.util
from functools import partial

import numpy as np
from _detectors_skood import Job, energy, skood

# name in the table: module that must be there
LIBRARIES = {
    "skood": "skood",
    "pytorch-ood": "pytorch_ood",
    "faiss": "faiss",
    "scikit-learn": "sklearn",
    "PyOD": "pyod",
    "oodeel": "oodeel",
    "numpy": "numpy",
}


def is_installed(library):
    """Tell whether a library of `LIBRARIES` can be imported."""
    return importlib.util.find_spec(LIBRARIES[library]) is not None


def job_of(library, method, inputs, device="cpu"):
    """Return the `Job` of a method in a library, or None if it does not have it."""
    if library == "skood":
        return skood(method, inputs, device)
    peers = {
        "pytorch-ood": PytorchOOD,
        "faiss": Faiss,
        "scikit-learn": ScikitLearn,
        "PyOD": PyOD,
        "oodeel": Oodeel,
        "numpy": NumPy,
    }
    if device != "cpu" and library != "pytorch-ood":
        return None
    build = getattr(peers[library], method.name, None)
    return None if build is None else build(peers[library](inputs, device))


def _unit(rows):
    from sklearn.preprocessing import normalize

    return normalize(rows)


class PytorchOOD:
    """pytorch-ood: detectors that are given features or logits as tensors."""

    def __init__(self, inputs, device):
        import pytorch_ood.detector
        import torch

        self.peer = pytorch_ood.detector
        for name in ("Z", "T", "y", "L", "M", "coef", "intercept"):
            tensor = torch.from_numpy(getattr(inputs, name)).to(device)
            setattr(self, name, tensor)
        if inputs.coef.size:
            self.head = torch.nn.Linear(*inputs.coef.shape[::-1], device=device)
            self.head.weight.data, self.head.bias.data = self.coef, self.intercept
        self.finish = partial(_energy_of_features, inputs)

    def _scores(self, of, rows, batch=None):
        """Minus the outlier scores, on the host."""
        import torch

        with torch.no_grad():
            parts = [rows] if batch is None else rows.split(batch)
            return -torch.cat([of(part).detach().cpu() for part in parts]).numpy()

    def _static(self, of, **options):
        return Job(None, lambda _: self._scores(of, self.M), **options)

    def _logits(self, make, *args, note="", correct=True, **options):
        return Job(
            lambda: make(None, *args, **options).fit_logits(self.L, self.y),
            lambda fitted: self._scores(fitted.predict_logits, self.M),
            note=note,
            correct=correct,
        )

    def _features(self, make, *args, batch=None, note="", correct=True, **options):
        if batch is not None:
            note = f"in batches of {batch:,} rows{note and '; '}{note}"
        return Job(
            lambda: make(None, *args, **options).fit_features(self.Z, self.y),
            lambda fitted: self._scores(fitted.predict_features, self.T, batch),
            note=note,
            correct=correct,
        )

    def MSP(self):
        return self._static(self.peer.MaxSoftmax.score)

    def MaxLogit(self):
        return self._static(self.peer.MaxLogit.score)

    def Energy(self):
        return self._static(self.peer.EnergyBased.score)

    def Entropy(self):
        return self._static(self.peer.Entropy.score)

    def GEN(self):
        return self._static(self.peer.GEN.score)

    def KLMatching(self):
        return self._logits(self.peer.KLMatching)

    def OpenMax(self):
        note = "a row's score depends on its batch"
        return self._logits(self.peer.OpenMax, tailsize=20, note=note, correct=False)

    def Mahalanobis(self):
        note = "half the distances / n, ranks are right"
        return self._features(self.peer.Mahalanobis, note=note)

    def RelativeMahalanobis(self):
        note = "difference of distances / n, ranks are right"
        return self._features(self.peer.RMD, note=note)

    def KNN(self):
        return self._features(self.peer.KNN)

    def GMM(self):
        return self._features(self.peer.GMM, batch=1000)

    def ViM(self):
        d = _principal_dimension(self.Z)
        return self._features(self.peer.ViM, d, self.coef, self.intercept)

    def SHE(self):
        return self._features(self.peer.SHE, self.head)

    def NNGuide(self):
        return self._features(self.peer.NNGuide, self.head, batch=1000)

    def NCI(self):
        return self._features(self.peer.NCI, self.head, alpha=0.0001)

    def FDBD(self):
        return self._features(self.peer.fDBD, self.head)

    def PNML(self):
        return self._features(self.peer.PNML, self.head)

    def GradNorm(self):
        score = self.peer.GradNorm(self.head, lambda name: name == "weight").predict
        return Job(None, lambda _: self._scores(score, self.T))

    def _fitted(self, make, change):
        """Rectified features: `change` is what the detector does before its head."""
        return Job(
            lambda: make(None, None).fit_feature_maps(self.Z, self.y),
            lambda fitted: change(fitted).cpu().numpy(),
            self.finish,
        )

    def _unfitted(self, change):
        maps = self.T[:, :, None, None]
        shape = self.T.shape
        return Job(
            None, lambda _: change(maps).reshape(shape).cpu().numpy(), self.finish
        )

    def ReAct(self):
        return self._fitted(self.peer.ReAct, lambda it: self.T.clip(max=it.threshold))

    def VRA(self):
        return self._fitted(self.peer.VRA, lambda it: it._clip(self.T))

    def _energy(self, make, change):
        """The energy of rectified features, by the head."""
        job = self._fitted(make, change)

        def score(fitted):
            return self._scores(
                lambda rows: self.peer.EnergyBased.score(self.head(rows)),
                change(fitted),
            )

        return Job(job.fit, score)

    def ReActEnergy(self):
        return self._energy(self.peer.ReAct, lambda it: self.T.clip(max=it.threshold))

    def VRAEnergy(self):
        return self._energy(self.peer.VRA, lambda it: it._clip(self.T))

    def ASH(self):
        rectifier = self.peer.ASH(None, None)
        return self._unfitted(lambda maps: rectifier.ash(maps, 0.65))

    def SCALE(self):
        from pytorch_ood.detector.scale import scale

        return self._unfitted(lambda maps: scale(maps, 0.85))

    def LTS(self):
        factor = self.peer.LTS.scaling_factor
        return self._unfitted(lambda _: self.T * factor(self.T, 0.05)[:, None])

    def DICE(self):
        job = self._features(
            self.peer.DICE,
            self.coef,
            self.intercept,
            0.9,
            detector=torch_negative,
            batch=1000,
        )
        job.finish = energy
        return job


def torch_negative(logits):
    """The "detector" of DICE, so that it gives the logits themselves."""
    return -logits


def _energy_of_features(inputs, features):
    return energy(features @ inputs.coef.T + inputs.intercept)


def _principal_dimension(features):
    """The dimension that ViM's paper takes."""
    size = features.shape[1]
    return 512 if size >= 1024 else 256 if size >= 512 else size // 2


class Faiss:
    """faiss: exact search."""

    def __init__(self, inputs, device):
        import faiss

        self.faiss, self.inputs = faiss, inputs

    def KNN(self):
        def fit():
            index = self.faiss.IndexFlatL2(self.inputs.Z.shape[1])
            index.add(_unit(self.inputs.Z))
            return index

        def score(index):
            squared, _ = index.search(_unit(self.inputs.T), 50)
            return -np.sqrt(squared[:, -1])

        return Job(fit, score)


class ScikitLearn:
    """scikit-learn: what its estimators give after a few lines of NumPy."""

    def __init__(self, inputs, device):
        self.Z, self.y, self.T = inputs.Z, inputs.y, inputs.T

    def KNN(self):
        from sklearn.neighbors import NearestNeighbors

        def fit():
            search = NearestNeighbors(n_neighbors=50, algorithm="brute", n_jobs=-1)
            return search.fit(_unit(self.Z))

        return Job(fit, lambda search: -search.kneighbors(_unit(self.T))[0][:, -1])

    def Mahalanobis(self):
        from sklearn.covariance import EmpiricalCovariance

        def fit():
            classes = np.unique(self.y)
            means = np.stack([self.Z[self.y == k].mean(axis=0) for k in classes])
            return means, EmpiricalCovariance().fit(self.Z - means[self.y])

        def score(fitted):
            means, covariance = fitted
            gaps = [covariance.mahalanobis(self.T - mean) for mean in means]
            return -np.min(gaps, axis=0)

        return Job(fit, score)

    def SSD(self):
        from sklearn.covariance import EmpiricalCovariance

        return Job(
            lambda: EmpiricalCovariance().fit(_unit(self.Z)),
            lambda covariance: -covariance.mahalanobis(_unit(self.T)),
        )

    def SklearnDetector(self):
        from sklearn.ensemble import IsolationForest

        return Job(
            lambda: IsolationForest(random_state=0).fit(self.Z),
            lambda forest: forest.score_samples(self.T),
        )


class PyOD:
    """PyOD, whose fit sets a threshold as ours does."""

    def __init__(self, inputs, device):
        self.Z, self.T = inputs.Z, inputs.T

    def _job(self, make, change=lambda rows: rows, **options):
        return Job(
            lambda: make(**options).fit(change(self.Z)),
            lambda fitted: -fitted.decision_function(change(self.T)),
        )

    def KNN(self):
        from pyod.models.knn import KNN

        return self._job(KNN, _unit, n_neighbors=50, n_jobs=-1)

    def SklearnDetector(self):
        from pyod.models.iforest import IForest

        return self._job(IForest, random_state=0)


class Oodeel:
    """oodeel: detectors of a torch network, fed in batches of 500 rows."""

    def __init__(self, inputs, device):
        import torch

        self.torch, self.inputs = torch, inputs

    def _job(self, name, *, logits=False, note="", correct=True, **options):
        import oodeel.methods

        torch, inputs = self.torch, self.inputs
        if logits:  # a network whose output is its input
            last = torch.nn.Identity()
            last.place = torch.nn.Parameter(torch.zeros(1))
            train, test = inputs.L, inputs.M
        else:
            last = torch.nn.Linear(*inputs.coef.shape[::-1])
            last.weight.data = torch.from_numpy(inputs.coef)
            last.bias.data = torch.from_numpy(inputs.intercept)
            train, test = inputs.Z, inputs.T
        network = torch.nn.Sequential(torch.nn.Identity(), last)
        train, test = self._batches(train, inputs.y), self._batches(test)

        def fit():
            detector = getattr(oodeel.methods, name)(**options)
            detector.fit(network, train, feature_layers_id=[0])
            return detector

        def score(detector):
            return -detector.score(test)[0]

        if logits:  # nothing to fit
            ready = fit()
            return Job(None, lambda _: score(ready), note=note, correct=correct)
        return Job(fit, score, note=note, correct=correct)

    def _batches(self, X, y=None, size=500):
        X = self.torch.from_numpy(X)
        y = self.torch.from_numpy(np.zeros(len(X), int) if y is None else y)
        batches = list(zip(X.split(size), y.split(size), strict=True))
        return self.torch.utils.data.DataLoader(batches, batch_size=None)

    def MaxLogit(self):
        return self._job("MLS", logits=True)

    def Energy(self):
        return self._job("Energy", logits=True)

    def Entropy(self):
        return self._job("Entropy", logits=True)

    def GEN(self):
        return self._job("GEN", logits=True)

    def Mahalanobis(self):
        return self._job("Mahalanobis", eps=0.0)

    def RelativeMahalanobis(self):
        return self._job("RMDS", eps=0.0)

    def KNN(self):
        return self._job("DKNN")

    def ViM(self):
        dims = _principal_dimension(self.inputs.Z)
        note = "origin is the mean, whatever pca_origin says"
        return self._job(
            "VIM", princ_dims=dims, pca_origin="pseudo", note=note, correct=False
        )

    def SHE(self):
        note = "largest product of all classes, not that of the predicted one"
        return self._job("SHE", eps=0.0, note=note, correct=False)


class NumPy:
    """No library: what the memory bandwidth allows, as a bar for cheap scores."""

    def __init__(self, inputs, device):
        self.inputs = inputs

    def _copy(self):
        note = "one copy of the logits: the memory bandwidth, no scores"
        score = self.inputs.M.copy
        return Job(None, lambda _: score()[:, 0], note=note, correct=False)

    def MSP(self):
        return self._copy()

    def Energy(self):
        return self._copy()
