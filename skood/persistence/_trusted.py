"""Names of what files of skood may hold."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

__all__ = ["trusted_types"]

# Below `skood.`, by module. What is here may be made, and called, with whatever a file
# says. So only that is here which then does no more than compute: nothing that opens a
# file, starts a program or imports what it is told. A test says if a name is missing.
_OURS = {
    "base": "UncertaintyDetector",
    "combine._combiners": (
        "BenjaminiHochberg BenjaminiYekutieli Bonferroni DOSStorey Naive Storey Vote"
    ),
    "combine._committee": "Calibration",
    "combine._dsde": "DSDE",
    "combine._ensemble": "DetectorEnsemble",
    "combine._global_tests": "Cauchy Fisher HarmonicMean Stouffer",
    "detectors._cadref": "CADRef",
    "detectors._caref": "CARef PredictedMeans",
    "detectors._energy": "Energy",
    "detectors._entropy": "Entropy",
    "detectors._fdbd": "FDBD",
    "detectors._gaussian": "Whitening",
    "detectors._gen": "GEN",
    "detectors._gmm": "GMM",
    "detectors._grad_norm": "GradNorm",
    "detectors._gram": "Gram",
    "detectors._kl_matching": "KLMatching",
    "detectors._knn": "KNN",
    "detectors._mahalanobis": "Mahalanobis",
    "detectors._max_logit": "MaxLogit",
    "detectors._moments": "ClassMoments",
    "detectors._msp": "MSP",
    "detectors._multi_layer_mahalanobis": "MultiLayerMahalanobis",
    "detectors._nci": "NCI",
    "detectors._neco": "NECO",
    "detectors._nn_guide": "NNGuide",
    "detectors._odin": "ODIN",
    "detectors._openmax": "OpenMax",
    "detectors._pnml": "PNML",
    "detectors._principal": "PrincipalSpace",
    "detectors._rank_feat": "RankFeat",
    "detectors._relation": "Relation",
    "detectors._relative_mahalanobis": "RelativeMahalanobis",
    "detectors._residual": "Residual",
    "detectors._she": "SHE",
    "detectors._sklearn": "SklearnDetector",
    "detectors._ssd": "SSD",
    "detectors._streaming": "RowSample",
    "detectors._vim": "ViM",
    "epistemic._batch_ensemble": "BatchEnsembleClassifier",
    "epistemic._batch_layers": "batch_ensemble",
    "epistemic._dropout": "MCDropout",
    "epistemic._ensembles": "DeepEnsemble",
    "epistemic._hmc": "HMC",
    "epistemic._laplace": "Laplace",
    "epistemic._mixture_laplace": "MixtureLaplace",
    "epistemic._packed_ensemble": "PackedEnsembleClassifier",
    "epistemic._packed_layers": "pack",
    "epistemic._quam": "QUAM",
    "epistemic._quam_regressor": "QUAMRegressor",
    "epistemic._sgmcmc": "CyclicalSGHMC",
    "epistemic._shared_members": "NetworkFactory",
    "epistemic._snapshots": "SnapshotEnsemble",
    "evidential._classifier": "EvidentialClassifier",
    "evidential._losses": "EvidentialLoss",
    "evidential._probe": "EvidentialProbe",
    "graph._classifier": "GraphClassifier",
    "graph._gkde": "GKDE",
    "graph._gkde_network": "GKDENetwork",
    "graph._gpn": "GraphPosteriorNetwork",
    "graph._pretrained": "_PretrainedGraph",
    "graph._propagation": "Propagation",
    "logic._concepts": "ConceptPart",
    "logic._detector": "MLNDetector",
    "logic._elimination": "Elimination EliminationPlan _Step",
    "logic._grouping": "GroupedWorlds",
    "logic._knowledge": "KnowledgeBase",
    "logic._language": "And C Equals Iff Implies Not Or Same Xor",
    "logic._logic_detector": "LogicDetector",
    "logic._normalizers": "SurvivalFunction",
    "logic._partition": "Component Partition _Intractable",
    "logic._search": "ConstraintSearch",
    "metrics._ranking": "aupr_in aupr_out auroc detection_error fpr_at_tpr",
    "metrics._rule_scorers": "_RuleScorer",
    "metrics._scorers": "_MisclassificationScorer _OODScorer",
    "model_selection._id_only": "IDOnly",
    "model_selection._split": "LeaveClassesOut OODStratifiedKFold",
    "nn._classifier": "TorchClassifier",
    "nn._extractor": "FeatureExtractor",
    "nn._head": "LinearHead",
    "nn._heads": "MultiHeadFactory",
    "nn._multi_head": "MultiHeadClassifier",
    "nn._one_head": "HeadClassifier",
    "nn._pretrained": "_PretrainedClassifier",
    "nn._reading": "Reading",
    "persistence._network": "DetachedNetwork",
    "rectifiers._ash": "ASH",
    "rectifiers._dice": "DICE",
    "rectifiers._lts": "LTS",
    "rectifiers._react": "ReAct",
    "rectifiers._scale": "SCALE",
    "rectifiers._vra": "VRA",
    "rejection._classifier": "RejectOptionClassifier",
    "rejection._cost": "BoundedImprovement CostBased PlugInCost",
    "rejection._operating_point": "OperatingPoint",
    "rejection._reason": "Reference",
    "rejection._rules": "BoundedAbstention BoundedPrecisionRecall BoundedTPRFPR",
}

# Of scikit-learn, plain Python that skops does not trust by itself.
_OF_SKLEARN = (
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.utils._bunch.Bunch",
)

# Of scikit-learn, compiled: what they are given as indices is not checked, so that a
# forged file could crash Python or read memory that is not its own.
_COMPILED = (
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
    "sklearn.neighbors._ball_tree.BallTree",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.tree._tree.Tree",
)


def trusted_types(*, compiled=False):
    """List the names of types that files of skood's estimators hold.

    They are the classes of skood's estimators and of what they learn, and a few of
    scikit-learn, beyond those that skops trusts by itself. Making them runs no program,
    imports no module that a file names and opens no file, whatever they are made of.

    Read more in the :ref:`User Guide <persistence>`.

    Parameters
    ----------
    compiled : bool, default=False
        Whether to list the compiled trees of scikit-learn too, which forests,
        ``IsolationForest`` and ``LocalOutlierFactor`` are made of. They do not check
        the indices that a file gives them: a forged one can crash Python or read
        memory. Trust them in files only whose source you trust.

    Returns
    -------
    names : list of str
        Modules and names, sorted: what `trusted` of :func:`skops.io.load` takes.

    See Also
    --------
    load : Load a file, trusting these.

    Examples
    --------
    >>> from skood.persistence import trusted_types
    >>> "skood.detectors._knn.KNN" in trusted_types()
    True
    >>> set(trusted_types(compiled=True)) - set(trusted_types())
    {...'sklearn.tree._tree.Tree'...}
    """
    ours = [f"skood.{module}.{n}" for module in _OURS for n in _OURS[module].split()]
    return sorted([*ours, *_OF_SKLEARN, *(_COMPILED if compiled else ())])


def names_of(trusted):
    """Names of types and functions that a user trusts.

    Parameters
    ----------
    trusted : list of str, type or function
        What the user gave.

    Returns
    -------
    names : list of str
        Modules and names.

    Raises
    ------
    TypeError
        If it is something else.
    """
    if isinstance(trusted, (list, tuple, set, frozenset)):
        names = [
            one
            if isinstance(one, str)
            else f"{getattr(one, '__module__', None)}.{getattr(one, '__name__', None)}"
            for one in trusted
        ]
        if not any("None" in name.split(".") for name in names):
            return names
    raise TypeError(
        "trusted must be a list of types, functions or their full names such as "
        f"'my_package.my_module.MyNetwork', got {trusted!r}."
    )


def is_compiled(name):
    """Tell whether a type is listed by ``trusted_types(compiled=True)`` only."""
    return name in _COMPILED
