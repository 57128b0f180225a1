"""Metadata routing of sample weights to the parts of meta-estimators."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from sklearn import get_config
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    process_routing,
)
from sklearn.utils.validation import has_fit_parameter

from skood.utils._optional import is_instance


def router_of(owner, request, parts):
    """Return the router of an estimator that fits `parts`, a dict of estimators.

    `request` is the metadata request of the estimator itself.
    """
    if not parts:
        return request
    router = MetadataRouter(owner=type(owner).__name__)
    router.add_self_request(owner)
    mapping = MethodMapping().add(caller="fit", callee="fit")
    return router.add(method_mapping=mapping, **parts)


def weight_params(owner, name, estimator, sample_weight, *, required=True):
    """Return the keyword arguments that pass sample weights to the fit of a part.

    `name` is the part in the metadata routing of `owner`. Without routing, weights go
    to the part, or to all steps of a pipeline that take them; raise if the part, or the
    last step, takes none, unless they are not `required`.
    """
    if sample_weight is None or isinstance(estimator, FrozenEstimator):
        return {}
    # a part that is None by default is not the user's, and requests nothing
    is_user_part = hasattr(getattr(owner, name, estimator), "fit")
    if is_user_part and get_config()["enable_metadata_routing"]:
        routed = process_routing(owner, "fit", sample_weight=sample_weight)
        return routed[name].fit
    names = _weight_names(estimator, required)
    if not names and required:
        last = _last_step(estimator)
        raise ValueError(
            f"sample_weight was passed, but {type(last).__name__} has no "
            f"sample_weight in its fit, and {type(owner).__name__} fits it. Leave "
            "sample_weight out, or use an estimator that has it."
        )
    return dict.fromkeys(names, sample_weight)


def _last_step(estimator):
    """Return the estimator in searches and pipelines that predicts."""
    while True:
        if isinstance(estimator, (GridSearchCV, RandomizedSearchCV)):
            estimator = estimator.estimator
        elif is_instance(estimator, "sklearn.pipeline", "Pipeline"):
            estimator = estimator.steps[-1][1]
        else:
            return estimator


def _weight_names(estimator, required):
    """Return the names of sample weights in the fit of an estimator.

    If weights are `required`, they have to reach the last step of a pipeline, else no
    name is returned.
    """
    if isinstance(estimator, (GridSearchCV, RandomizedSearchCV)):
        return _weight_names(estimator.estimator, required)
    if not is_instance(estimator, "sklearn.pipeline", "Pipeline"):
        takes = has_fit_parameter(estimator, "sample_weight")
        return ["sample_weight"] if takes else []
    steps = [
        (name, step)
        for name, step in estimator.steps
        if step is not None and not isinstance(step, str)
    ]
    last = steps[-1][1] if steps else None
    if required and not (
        isinstance(last, FrozenEstimator) or (steps and _weight_names(last, True))
    ):
        return []
    return [
        f"{step}__{name}"
        for step, inner in steps
        for name in _weight_names(inner, False)
    ]
