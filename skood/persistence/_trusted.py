"""Names of types allowed in files of skood."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

__all__ = ["trusted_types"]

# Below `skood.`, by module. Types listed here may be created, and called, with any
# content of a file. Therefore only types that do nothing except computing are listed:
# none that opens files, starts programs or imports modules by name. Completeness is
# tested.
_OURS = {
    "base": "UncertaintyDetector",
    "combine._multiple_tests": (
        "BenjaminiHochberg BenjaminiYekutieli Bonferroni DOSStorey Naive Storey Vote"
    ),
    "combine._dsde": "DSDE",
    "combine._levels": "Levels",
    "combine._detector_ensemble": "DetectorEnsemble",
    "combine._combination_tests": "Cauchy Fisher HarmonicMean Stouffer",
    "detectors._cadref": "CADRef",
    "detectors._caref": "CARef",
    "detectors._common._predicted_means": "PredictedMeans",
    "detectors._energy": "Energy",
    "detectors._entropy": "Entropy",
    "detectors._fdbd": "FDBD",
    "detectors._common._gaussian": "Whitening",
    "detectors._gen": "GEN",
    "detectors._gmm": "GMM",
    "detectors._grad_norm": "GradNorm",
    "detectors._gram": "Gram",
    "detectors._kl_matching": "KLMatching",
    "detectors._knn": "KNN",
    "detectors._mahalanobis": "Mahalanobis",
    "detectors._max_logit": "MaxLogit",
    "detectors._common._class_moments": "ClassMoments",
    "detectors._msp": "MSP",
    "detectors._multi_layer_mahalanobis": "MultiLayerMahalanobis",
    "detectors._nci": "NCI",
    "detectors._neco": "NECO",
    "detectors._nn_guide": "NNGuide",
    "detectors._odin": "ODIN",
    "detectors._openmax": "OpenMax",
    "detectors._pnml": "PNML",
    "detectors._common._principal_space": "PrincipalSpace",
    "detectors._rank_feat": "RankFeat",
    "detectors._relation": "Relation",
    "detectors._relative_mahalanobis": "RelativeMahalanobis",
    "detectors._residual": "Residual",
    "detectors._she": "SHE",
    "detectors._sklearn": "SklearnDetector",
    "detectors._ssd": "SSD",
    "detectors._common._partial_fit": "RowSample",
    "detectors._vim": "ViM",
    "epistemic.implicit._batch_ensemble": "BatchEnsemble",
    "epistemic.implicit._batch_layers": "batch_ensemble",
    "epistemic._mc_dropout": "MCDropout",
    "epistemic._deep_ensemble": "DeepEnsemble",
    "epistemic.mcmc._hmc": "HMC HMCKernel",
    "epistemic.laplace._laplace": "Laplace",
    "epistemic.laplace._mixture_laplace": "MixtureLaplace",
    "epistemic.implicit._packed_ensemble": "PackedEnsemble",
    "epistemic.implicit._packed_layers": "pack",
    "epistemic.quam._adversarial_search": "AdversarialSearch",
    "epistemic.quam._quam": "QUAM",
    "epistemic.quam._quam_regressor": "QUAMRegressor",
    "epistemic.mcmc._sgmcmc": "CyclicalSGHMC CyclicalSchedule",
    "epistemic.implicit._implicit_ensemble": "NetworkFactory",
    "epistemic._snapshot_ensemble": "SnapshotEnsemble",
    "evidential._classifier": "EvidentialClassifier",
    "nn._evidential_loss": "EvidentialLoss",
    "evidential._probe": "EvidentialProbe",
    "graph._classifier": "GraphClassifier",
    "graph._gkde": "GKDE",
    "graph._gkde_network": "GKDENetwork",
    "graph._gpn": "GraphPosteriorNetwork",
    "graph._pretrained": "_PretrainedGraph",
    "graph._propagation": "Propagation",
    "logic._concepts": "ConceptPart",
    "logic._fusion": "Fusion",
    "logic._mln_detector": "MLNDetector",
    "logic.inference._variable_elimination": "Elimination EliminationPlan _Step",
    "logic.inference._truth_vectors": "GroupedWorlds",
    "logic._knowledge_base": "KnowledgeBase",
    "logic.language._compiled_constraints": "CompiledConstraints",
    "logic.language._formulas": "And C Equals Iff Implies Not Or Same Xor",
    "logic._strict_detector": "LogicDetector",
    "logic._survival": "SurvivalFunction",
    "logic.inference._partition": "Component Partition _Intractable",
    "logic._weighted_constraints": "WeightedConstraints",
    "logic.search._constraint_search": "ConstraintSearch",
    "logic.search._greedy": "GreedySearch",
    "metrics._ranking": "aupr_in aupr_out auroc detection_error fpr_at_tpr",
    "metrics._rule_scorers": "_RuleScorer",
    "metrics._scorers": "_MisclassificationScorer _OODScorer",
    "model_selection._id_only": "IDOnly",
    "model_selection._split": "LeaveClassesOut OODStratifiedKFold",
    "nn._classifier": "TorchClassifier",
    "nn._extractor": "FeatureExtractor",
    "nn._linear_head": "LinearHead",
    "nn._multi_head_network": "HeadClassifier MultiHeadFactory",
    "nn._multi_head": "MultiHeadClassifier",
    "nn._pretrained": "_PretrainedClassifier",
    "nn._outputs": "Reading",
    "nn._training_options": "TrainingOptions",
    "persistence._network": "DetachedNetwork",
    "rectifiers._ash": "ASH",
    "rectifiers._dice": "DICE",
    "rectifiers._lts": "LTS",
    "rectifiers._react": "ReAct",
    "rectifiers._scale": "SCALE",
    "rectifiers._vra": "VRA",
    "rejection._classifier": "RejectOptionClassifier",
    "decision._cost_rules": "BoundedImprovement CostBased PlugInCost",
    "decision._operating_point": "OperatingPoint",
    "rejection._explanation": "Reference",
    "decision._bounded_rules": "BoundedAbstention BoundedPrecisionRecall BoundedTPRFPR",
    "utils._calibration": "Calibration",
}

# Of scikit-learn, plain Python that skops does not trust by default.
_OF_SKLEARN = (
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.utils._bunch.Bunch",
)

# Of scikit-learn, compiled: indices are not checked, so that a forged file could crash
# Python or read memory out of bounds.
_COMPILED = (
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
    "sklearn.neighbors._ball_tree.BallTree",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.tree._tree.Tree",
)


def trusted_types(*, compiled=False):
    """List the names of types in files of skood's estimators.

    They are the classes of skood's estimators and of their fitted attributes, and a few
    of scikit-learn, in addition to the types that skops trusts by default. Creating
    them runs no program, imports no module named in a file and opens no file, for any
    arguments.

    Read more in the :ref:`User Guide <persistence>`.

    Parameters
    ----------
    compiled : bool, default=False
        Whether to include the compiled trees of scikit-learn, which are used by
        forests, ``IsolationForest`` and ``LocalOutlierFactor``. They do not check
        the indices in a file: a forged file can crash Python or read memory. Trust
        them only in files from a trusted source.

    Returns
    -------
    names : list of str
        Sorted names with modules, for `trusted` of :func:`skops.io.load`.

    See Also
    --------
    load : Load a file with these types trusted.

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
    """Return the full names of a list of types, functions or names.

    Raises a TypeError for other objects.
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
    """Return whether a type is in ``trusted_types(compiled=True)`` only."""
    return name in _COMPILED
