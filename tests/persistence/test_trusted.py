"""The list of trusted types is what fitted estimators hold, and no more."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import importlib
import inspect
import io
import json
import warnings
from functools import partial
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.ensemble import IsolationForest
from sklearn.metrics import balanced_accuracy_score

from skood.base import UncertaintyDetector
from skood.benchmark import Output
from skood.detectors import SSD, Energy, SklearnDetector
from skood.detectors._common import _base_output_detector
from skood.metrics import Resampling
from skood.nn import pretrained
from skood.persistence import dumps, loads, trusted_types
from tests._instances import PlainUncertainty
from tests.persistence._examples import (
    HAS_BOOSTING,
    data_for,
    fitted_examples,
    knowledge_bases,
    rewritten,
    score,
)

skops_io = pytest.importorskip("skops.io")

pytestmark = pytest.mark.filterwarnings("ignore")

X, Y = data_for(None)
_TREES = "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor"
_LEARNED_LOSS = "skood.rejection._regression_scores.DecisionLoss"


@pytest.fixture(scope="module")
def examples():
    """Fitted estimators, samples, their files, and types that skops does not trust."""
    untrusted = skops_io.get_untrusted_types
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        # fewer heads for thresholds, which files do not contain
        patch.setattr(_base_output_detector, "_HEAD_FOLDS", 4)
        files = [(fitted, X, dumps(fitted)) for fitted, X in fitted_examples()]
    return [(fitted, X, data, untrusted(data=data)) for fitted, X, data in files]


def _without_network(kind):
    """What is written of a detector without its network."""
    if kind == "torch":
        module = torch.nn.Linear(3, 3)
        detector = Energy(pretrained(module)).fit(X)
    else:
        graph = pytest.importorskip("skood.graph")
        module = _Nodes(3, 3)
        classifier = graph.pretrained_graph(module, np.arange(3))
        nodes = graph.NodeSet((X, np.eye(len(X))))
        detector = Energy(classifier).fit(nodes)
    return dumps(detector, network=False)


class _Nodes(torch.nn.Linear):
    """A graph network that looks at no edges."""

    def forward(self, x, edge_index):
        """Logits of the nodes."""
        return super().forward(x)


def _named(data):
    """All types and functions that a file names, trusted by skops or not."""
    with ZipFile(io.BytesIO(data)) as archive:
        todo, found = [json.loads(archive.read("schema.json"))], set()
    while todo:
        part = todo.pop()
        if isinstance(part, dict):
            if "__module__" in part:
                found.add(f"{part['__module__']}.{part['__class__']}")
            todo += part.values()
        elif isinstance(part, list):
            todo += part
    return found


def test_the_list_is_what_is_needed(examples):
    """No estimator holds anything that is not listed, or skops trusts; all is held."""
    more = [dumps(base) for base in (*knowledge_bases(), Output(), Resampling())]
    more += [_without_network("torch"), _without_network("graph")]
    written = [*(data for _, _, data, _ in examples), *more]
    unknown = set().union(
        *(types for *_, types in examples),
        *(skops_io.get_untrusted_types(data=data) for data in more),
    )
    needed = {name for name in unknown if not name.startswith("tests.")}
    hint = "Mark it by skood.utils._stored.stored, if it does no more than compute."
    assert needed <= set(trusted_types(compiled=True)), hint
    listed = set(trusted_types(compiled=True))
    if HAS_BOOSTING:  # of default scorers in older versions of scikit-learn
        requests = "MetadataRequest", "MethodMetadataRequest"
        listed -= {f"sklearn.utils._metadata_requests.{name}" for name in requests}
    else:
        listed -= {"functools.partial", "numpy.dtype", _TREES}
        listed -= {"sklearn.utils.validation.check_array", _LEARNED_LOSS}
    assert listed <= set().union(*map(_named, written))


def test_all_examples_come_back(examples):
    trusted = trusted_types(compiled=True)
    for estimator, rows, data, unknown in examples:
        of_tests = [name for name in unknown if name.startswith("tests.")]
        loaded = loads(data, trusted=[*trusted, *of_tests])
        assert set(vars(loaded)) == set(vars(estimator))
        np.testing.assert_array_equal(
            score(loaded, rows), score(estimator, rows), err_msg=repr(estimator)
        )


def test_skops_loads_the_file_with_the_list():
    detector = SSD().fit(X)
    loaded = skops_io.loads(dumps(detector), trusted=trusted_types())
    np.testing.assert_array_equal(loaded.score_samples(X), detector.score_samples(X))


def test_names_are_where_things_are_defined():
    assert trusted_types() == sorted(set(trusted_types()))
    functions = set()
    for name in trusted_types():
        module, _, last = name.rpartition(".")
        thing = getattr(importlib.import_module(module), last)
        assert (thing.__module__, thing.__name__) == (module, last)
        of_others = thing in (csr_array, np.dtype, partial)
        assert module.split(".")[0] in ("skood", "sklearn") or of_others
        if not inspect.isclass(thing):
            functions.add(last)
    # a file can have functions called with anything: look at each that comes here
    assert functions == {
        "aupr_in",
        "aupr_out",
        "auroc",
        "batch_ensemble",
        "check_array",
        "detection_error",
        "f1_at_tpr",
        "fpr_at_tpr",
        "max_f1",
        "pack",
        "tnr_at_tpr",
    }


@pytest.mark.parametrize("how", ["type", "name"])
def test_types_of_the_user_must_be_named(how):
    detector = UncertaintyDetector(PlainUncertainty()).fit(X, Y)
    data = dumps(detector)
    name = f"{PlainUncertainty.__module__}.PlainUncertainty"
    expected = rf"types that are not trusted: \['{name}'\]. No object was created. If "
    with pytest.raises(ValueError, match=expected + rf".* trusted=\['{name}'\].$"):
        loads(data)
    loaded = loads(data, trusted=[PlainUncertainty if how == "type" else name])
    np.testing.assert_array_equal(loaded.score_samples(X), detector.score_samples(X))


def test_compiled_trees_must_be_named():
    forest = IsolationForest(n_estimators=2, random_state=0)
    detector = SklearnDetector(detector=forest).fit(X)
    data = dumps(detector)
    if not skops_io.get_untrusted_types(data=data).count("sklearn.tree._tree.Tree"):
        pytest.skip("this skops trusts the trees of scikit-learn")
    with pytest.raises(ValueError, match=r"\['sklearn.tree._tree.Tree'\] are compiled"):
        loads(data)
    loaded = loads(data, trusted=trusted_types(compiled=True))
    np.testing.assert_array_equal(loaded.score_samples(X), detector.score_samples(X))


@pytest.mark.parametrize("loader", ["ObjectNode", "ConstructorFromReduceNode"])
def test_a_dtype_with_a_forged_state_is_refused(loader):
    """A state without "holds references" would make NumPy follow the file's bytes."""
    state = (*np.dtype("O").__reduce__()[2][:-1], 0)
    with ZipFile(io.BytesIO(skops_io.dumps({"a": (state, ("O8", False, True))}))) as z:
        dumped = json.loads(z.read("schema.json"))["content"]["a"]
    content = dumped["content"][loader == "ConstructorFromReduceNode"]
    node = {"__module__": "numpy", "__class__": "dtype", "__loader__": loader}
    data = dumps(SSD().fit(X))
    with ZipFile(io.BytesIO(data)) as archive:
        schema = json.loads(archive.read("schema.json"))
    schema["content"]["content"]["offset_"] = node | {"content": content}
    data = rewritten(data, {"schema.json": json.dumps(schema)})
    if loader == "ObjectNode":
        with pytest.raises(ValueError, match="cannot be created"):
            loads(data)
    else:  # without a state, it is an ordinary dtype
        dtype = loads(data).offset_
        assert dtype == np.dtype("O") and dtype.hasobject


def test_a_function_is_trusted_by_itself():
    from skood.persistence._files import names_of

    name = f"{balanced_accuracy_score.__module__}.balanced_accuracy_score"
    assert names_of({balanced_accuracy_score}) == [name]


@pytest.mark.parametrize("trusted", [True, None, "a.b", [3], [PlainUncertainty()]])
def test_trusted_must_be_a_list_of_names(trusted):
    data = dumps(SSD().fit(X))
    with pytest.raises(TypeError, match="trusted must be a list of types, functions"):
        loads(data, trusted=trusted)
