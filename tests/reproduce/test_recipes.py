"""Tests of printed recipes, and of the list of our own choices."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import inspect
import json
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.utils import Bunch

pytest.importorskip("benchmarks.reproduce", reason="only in the source tree")

from benchmarks.reproduce import (
    Experiment,
    Paper,
    Row,
    _graph_models,
    _networks,
    epn,
    own_choices,
    printed_recipe,
    reproduce,
)
from benchmarks.reproduce._command import main
from benchmarks.reproduce._dsde_libraries import Library, SmallDigits
from benchmarks.reproduce._epn_ranks import GRAPHS
from benchmarks.reproduce._gtsrb import gtsrb_constraints
from benchmarks.reproduce._jobs import available_papers, load_paper
from benchmarks.reproduce._mln_faces import Faces
from benchmarks.reproduce._mln_signs import Digits, Study, printed_weights
from benchmarks.reproduce._page import console, write
from benchmarks.reproduce._quam_imagenet import ImageNet
from benchmarks.reproduce._quam_images import PUBLISHED, RECIPE, Images
from benchmarks.reproduce._recipes import choice_rows, settings
from benchmarks.reproduce._run import Run
from benchmarks.reproduce.record import page
from skood.detectors import KNN
from skood.epistemic import QUAM, AdversarialSearch
from skood.graph import GKDE
from skood.graph._gpn import _PosteriorNetwork
from skood.graph._modules import GCN
from skood.logic import KnowledgeBase, WeightedConstraints
from skood.nn._training_options import training_options

PAPERS = ("epn", "quam", "dsde", "mln", "franc")
BOTH = pytest.mark.parametrize("recipe", ["ours", "printed"])


# --- the option -----------------------------------------------------------------------


class Parts:
    """A cell of Table 10 of epn that agrees by the printed recipe only."""

    computed: list = []

    def __init__(self, run, seed):
        self.run, self.seed = run, seed

    def table(self):
        """Yield a row."""
        yield Row("CoraML/EPN-reg", self.values)

    def values(self):
        """Return the value by the recipe."""
        self.computed.append((self.run.recipe, self.seed))
        value = {"ours": 70.0, "printed": 89.97}[self.run.recipe]
        return {"OS-1/OOD-AUROC": value + 0.01 * self.seed}


def tiny(**params):
    """Return a paper of one experiment, and the rows that are computed."""
    Parts.computed = []
    experiment = Experiment("one", Parts, {"10": Parts.table}, seeds=2, **params)
    return Paper("epn", "Tiny", [experiment], [experiment]), Parts.computed


def test_recipes_have_cells_and_verdicts_of_their_own(tmp_path):
    paper, computed = tiny()
    result = reproduce(paper, out=tmp_path, recipe="both")
    assert sorted(computed) == [(r, s) for r in ("ours", "printed") for s in (0, 1)]
    cells = result.cells.set_index("recipe")
    assert list(cells.index) == ["ours", "printed"]
    assert cells.value.tolist() == pytest.approx([70.005, 89.975])
    assert cells.verdict.tolist() == ["worse", "agrees"]
    assert set(cells.paper) == {89.97}
    lines = (tmp_path / "records.jsonl").read_text().splitlines()
    journal = [json.loads(line) for line in lines]
    assert len({record["key"] for record in journal}) == len(journal) == 4
    assert [record["recipe"] for record in journal] == 2 * ["ours"] + 2 * ["printed"]


def test_recipes_are_in_the_key_of_the_journal(tmp_path):
    """Each is computed once, in whatever order and company."""
    paper, computed = tiny()
    for recipe, expected in (
        ("printed", [("printed", 0), ("printed", 1)]),
        ("printed", []),
        ("both", [("ours", 0), ("ours", 1)]),
        ("ours", []),
    ):
        computed.clear()
        cells = reproduce(paper, out=tmp_path, recipe=recipe).cells
        assert computed == expected
        assert set(cells.recipe) == set(
            ("ours", "printed") if recipe == "both" else (recipe,)
        )


def test_page_of_both_recipes(tmp_path):
    result = reproduce(tiny()[0], out=tmp_path, recipe="both")
    write(result, tmp_path, "cpu")
    text = (tmp_path / "report.html").read_text()
    assert "CoraML/EPN-reg, ours" in text and "CoraML/EPN-reg, printed" in text
    for choice in own_choices("epn"):
        assert f">{choice.name}<" in text
    lines = [line.split() for line in console(result).splitlines()]
    actual = {line[1]: line[-1] for line in lines if line[:1] == ["CoraML/EPN-reg,"]}
    assert actual == {"ours": "worse", "printed": "agrees"}
    header = (tmp_path / "cells.csv").read_text().partition("\n")[0]
    assert header.split(",")[:4] == ["table", "row", "column", "recipe"]


def test_experiments_without_settings(tmp_path):
    """They have our recipe only."""
    paper, computed = tiny(recipes=("ours",))
    result = reproduce(paper, out=tmp_path, recipe="printed")
    assert not computed and not len(result.cells)
    assert "same values as ours" in result.skipped["one"]
    result = reproduce(paper, out=tmp_path, recipe="both")
    assert set(result.cells.recipe) == {"ours"} and result.skipped == {}


def test_recipe_of_the_command(tmp_path, capsys):
    with pytest.raises(ValueError, match="recipe must be of"):
        reproduce(tiny()[0], out=tmp_path, recipe="theirs")
    out = tmp_path / "out"
    command = ["franc", "1", "--small", "--out", str(out), "--recipe"]
    assert main([*command, "printed"]) == 2
    assert "same values as ours" in capsys.readouterr().err
    command += ["both", "--quiet", "--only", "A"]
    assert main(command) == 0
    assert set(json.loads((out / "cells.json").read_text())["cells"][0]) >= {"recipe"}


# --- the lists ------------------------------------------------------------------------


@pytest.mark.parametrize("paper", PAPERS)
def test_choices(paper):
    """Names are unique, and changes of the recipe have another value."""
    choices = own_choices(paper)
    printed = settings(printed_recipe(paper))
    assert len({choice.name for choice in choices}) == len(choices) > 5
    for choice in choices:
        assert choice.reason
        values = [v for place, v in printed.items() if fnmatchcase(place, choice.name)]
        assert not values or values != len(values) * [choice.value]
    with pytest.raises(ValueError, match="no recipe of 'openood'"):
        printed_recipe("openood")


def test_choices_of_what_is_not_stated():
    """Everything that the recipe calls unstated is a choice."""
    names = " ".join(choice.name for choice in own_choices("epn"))
    for words in (
        *("probe/confidence", "probe/epochs", "probe/start", "lambda_1", "lambda_2"),
        *("hidden width", "hidden dropout of VGNN", "Table 22/epochs", "tuning grid"),
        "temperature of large logits",
    ):
        assert words in names
    assert len(printed_recipe("epn")["unstated"]) == 7


@pytest.mark.parametrize("paper", available_papers())
def test_pages_have_the_choices(paper):
    """The page of the guide is made of the lists."""
    lines = page(paper)
    for setting, *others in choice_rows(paper):
        row = f"``{setting}``", *others  # wildcards would be markup
        assert ",".join('"' + text.replace('"', '""') + '"' for text in row) in lines
    if paper == "epn":
        assert '"``baselines/GPN/*/teleport``","0.1; 0.2","0.1",' in lines


def test_values_are_returned_anew():
    printed_recipe("epn")["training"]["lr"] = 7
    assert printed_recipe("epn")["training"]["lr"] == 0.001


# --- graphs ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def untrained():
    """Return a function from recipe and graph to the case of unfitted models."""
    nodes = epn._generated(0)

    def case(monkeypatch, recipe, graph):
        monkeypatch.setattr(_graph_models, "timed", lambda model, *_, **__: (model, 0))
        monkeypatch.setattr(epn.Parts, "nodes", nodes)
        monkeypatch.setattr(_graph_models.Case, "weights", lambda *_: {}, raising=False)
        settings = {"OS-1": (3, 4), "clean": ()}
        monkeypatch.setattr(epn.Parts, "settings", settings)
        monkeypatch.setattr(epn.Parts, "weights", lambda *_: {})
        monkeypatch.setattr(_graph_models, "split_nodes", _split)
        run = Run(Path(f"{recipe} {graph}"), Path("out"), device="cpu", recipe=recipe)
        return epn.Parts(run, 0, graph).case("OS-1")

    return case


def _split(nodes, left_out, *, split, random_state):
    return _original_split(nodes, left_out, random_state=random_state)


_original_split = _graph_models.split_nodes


def effective(case, graph):
    """Return the settings of the models of a case, at the places of the recipe."""
    network = case.network()[0].estimator
    defaults = {
        name: p.default for name, p in inspect.signature(GCN).parameters.items()
    }
    module = {**defaults, **(network.conv_params or {})}
    options, dropout = training_options(network), module["dropout"]
    gpn, sgnn, egnn = (case.fitted(name)[0] for name in ("GPN", "SGNN-GKDE", "EGNN"))
    probe = case.fitted("EPN-reg")[0]
    mc = case.fitted("VGNN-dropout")[0]
    safe = _graph_models._detector("VGNN-gnnsafe", case, case.network()[0], None)
    flows = inspect.signature(_PosteriorNetwork).parameters.items()
    of_gpn = {name: p.default for name, p in flows} | (gpn.module_params or {})
    gkde = sgnn.gkde or GKDE()
    backbone = {**defaults, **(sgnn.estimator.conv_params or {})}["hidden"]
    teacher = {**defaults, **(sgnn.teacher.estimator.conv_params or {})}["hidden"]
    weight = sgnn.lambda_teacher
    if sgnn.ramp is not None:
        weight = f"min({weight:g}, t / {sgnn.ramp})"
    inner = module["input_dropout"]
    assert (probe.lr or 1e-2) == gpn.lr == egnn.estimator.lr == network.lr
    assert training_options(probe).weight_decay == options.weight_decay
    n_epochs = {1e-2: 1000, 1e-3: 10_000}[network.lr]
    for model in (network, gpn, sgnn.estimator, egnn.estimator):
        assert model.max_epochs == n_epochs
    assert probe.max_epochs is None
    prefix = f"baselines/GPN/{graph}"
    decay = training_options(gpn).weight_decay
    if case.printed is not None:  # the printed loss is a sum over nodes
        decay = pytest.approx(decay * len(case.train[1]), rel=1e-12)
    return {
        f"network/{graph}/hidden": list(module["hidden"]),
        f"network/{graph}/batch_norm": module["batch_norm"],
        f"network/{graph}/patience": options.n_iter_no_change,
        "training/optimizer": options.optimizer,
        "training/lr": network.lr,
        "training/weight_decay": options.weight_decay,
        "input_dropout": dropout if inner is None else inner,
        "hidden_dropout": dropout,
        "baselines/VGNN-gnnsafe/n_steps": 2 if safe.n_steps is None else safe.n_steps,
        "baselines/VGNN-gnnsafe/alpha": safe.alpha,
        "baselines/VGNN-gnnsafe/temperature": safe.estimator.temperature,
        "baselines/VGNN-dropout/dropout": dropout,
        "baselines/VGNN-dropout/n_samples": mc.n_samples,
        "baselines/VGNN-ensemble/n_members": case.n_members,
        f"{prefix}/hidden": list(of_gpn["hidden"]),
        **{
            f"{prefix}/{name}": of_gpn[name]
            for name in ("latent_dim", "dropout", "teleport", "n_steps")
        },
        f"{prefix}/lambda_entropy": gpn.lambda_entropy,
        f"{prefix}/weight_decay": decay,
        f"{prefix}/certainty_budget": gpn.certainty_budget,
        f"{prefix}/warmup_epochs": gpn.warmup_epochs,
        f"{prefix}/warmup_lr": gpn.lr,
        "GPN/patience": training_options(gpn).n_iter_no_change,
        "baselines/SGNN-GKDE/teacher_hidden": list(teacher),
        "baselines/SGNN-GKDE/backbone_hidden": list(backbone),
        "baselines/SGNN-GKDE/cutoff": gkde.cutoff,
        "baselines/SGNN-GKDE/sigma": gkde.sigma,
        "baselines/SGNN-GKDE/lambda_gkde": sgnn.lambda_gkde,
        "baselines/SGNN-GKDE/lambda_teacher": weight,
        "baselines/EGNN/loss": egnn.loss,
        "baselines/EGNN/penalty": egnn.penalty,
        "baselines/EGNN/lambda_kl": egnn.lambda_kl,
        "probe/activation": probe.objective.activation,
        "probe/layer": probe.layer,
        "probe/e_id": probe.objective.e_id,
        "probe/e_ood": probe.objective.e_ood,
        "probe/concentration": probe.objective.concentration,
    }


def test_settings_of_graphs_arrive(monkeypatch, untrained):
    """By the printed recipe all are as printed, and choices name each difference."""
    printed = settings(printed_recipe("epn"))
    choices = {c.name: c.value for c in own_choices("epn")}
    different = {}
    for graph in GRAPHS:
        ours, theirs = (
            effective(untrained(monkeypatch, recipe, graph), graph)
            for recipe in ("ours", "printed")
        )
        for place, value in theirs.items():
            if graph == "OGBN-Arxiv" and "SGNN-GKDE" in place:
                continue  # not run in the paper
            if place in printed:
                assert value == printed[place], place
            if value != ours[place]:
                different[place] = ours[place]
    assert different
    named = set()
    for place, value in different.items():
        (name,) = (name for name in choices if fnmatchcase(place, name))
        named.add(name)
        if name == "training/lr":
            assert str(choices[name]).startswith(str(value))
        else:
            assert choices[name] == value, place
    changes = {
        name
        for name in choices
        if any(fnmatchcase(place, name) for place in printed)
        and not name.endswith(("/score", "/errors"))
    }
    assert changes <= named
    assert named - changes == {"GPN/patience", "probe/concentration"}


def test_attention_has_the_printed_dropout(monkeypatch, untrained):
    """Eight heads of eight, also by the printed recipe."""
    run = Run(None, Path("out"), device="cpu", recipe="printed")
    case = epn.SmallParts(run, 0, "words", "GAT").case("OS-1")
    expected = {"hidden": [64], "heads": 8, "batch_norm": False}
    expected |= {"dropout": 0.5, "input_dropout": 0.0}
    assert case.new_network(0).conv_params == expected


@pytest.mark.parametrize("name", ["VGNN-dropout", "VGNN-ensemble"])
def test_scores_of_members(monkeypatch, name):
    """By the printed recipe the largest mean probability, also for errors."""
    monkeypatch.setattr(epn.SmallParts, "epochs", {"network": 5, "GPN": 2, "probe": 20})
    for recipe in ("ours", "printed"):
        run = Run(None, Path(f"out {recipe}"), device="cpu", recipe=recipe)
        parts = epn.SmallParts(run, 0, "words")
        parts.epochs = {"network": 5}
        case = parts.case("OS-1")
        scores = case.scores(name)
        model = scores.classifier
        proba = model.predict_proba(case.test)
        if recipe == "printed":
            np.testing.assert_array_equal(scores.score, proba.max(axis=1))
            np.testing.assert_array_equal(scores.certainty, proba.max(axis=1))
        else:
            entropy = -(proba * np.log(proba)).sum(axis=1)
            np.testing.assert_allclose(-scores.score, entropy, rtol=1e-5)
            uncertainty = model.predict_uncertainty(case.test)
            np.testing.assert_array_equal(scores.certainty, -uncertainty.aleatoric)
        lr = case.network()[0].estimator.lr
        assert lr == {"ours": 1e-2, "printed": 1e-3}[recipe]  # not of the cache


# --- images ---------------------------------------------------------------------------


class Pictures(Images):
    """An untrained LeNet, and few images."""

    recipe = {**RECIPE, "max_epochs": 1}
    sets = Bunch(
        train=(
            np.random.default_rng(0).random((60, 1, 28, 28), dtype=np.float32),
            np.arange(60) % 10,
        )
    )


def test_printed_network_of_images(tmp_path):
    """Pixels are standardized, no padding, one dropout before the last layer."""
    recipe = printed_recipe("quam")
    lenet = recipe["lenet"]
    actual = {}
    for name in ("ours", "printed"):
        parts = Pictures(
            Run(tmp_path, tmp_path, device="cpu", recipe=name), 0, "FMNIST"
        )
        actual[name] = parts.network.estimator.module_
    convolutions = [m for m in actual["printed"].modules() if hasattr(m, "kernel_size")]
    shapes = [
        [m.in_channels, m.out_channels, m.kernel_size[0]]
        for m in convolutions
        if hasattr(m, "in_channels")
    ]
    assert shapes == lenet["conv"]
    linear = [m for m in actual["printed"].modules() if isinstance(m, torch.nn.Linear)]
    assert [m.in_features for m in linear] + [linear[-1].out_features] == lenet["dense"]
    dropout = [
        m for m in actual["printed"].modules() if isinstance(m, torch.nn.Dropout)
    ]
    assert [m.p for m in dropout] == [lenet["dropout_before_last"]]
    first = actual["printed"][0]
    assert isinstance(first, _networks.Standardize)
    image = torch.full((1, 1, 28, 28), lenet["mean"] + lenet["std"])
    torch.testing.assert_close(first(image), torch.ones_like(image))
    assert len(list((tmp_path / "networks").iterdir())) == 2  # one for each recipe
    choices = {c.name: c.value for c in own_choices("quam")}
    ours = next(m for m in actual["ours"].modules() if isinstance(m, torch.nn.Conv2d))
    assert ours is actual["ours"][0]  # not standardized
    assert choices["lenet/padding"] == ours.padding[0] != convolutions[0].padding[0]
    search = {k: v for k, v in recipe["mnist_search"].items() if k in PUBLISHED}
    assert search == PUBLISHED == RECIPE["search"]
    baselines = recipe["baselines"]
    names = "n_members", "mc_dropout_passes", "laplace_draws"
    assert [baselines[name] for name in names] == [
        RECIPE[name] for name in ("n_members", "n_passes", "n_draws")
    ]
    quam = parts.method("QUAM")
    assert (quam.temperature, quam.scope) == (
        recipe["mnist_search"]["temperature"],
        recipe["mnist_search"]["scope"],
    )


class Head(ImageNet):
    """A head of few classes."""

    head = FrozenEstimator(LogisticRegression())


@BOTH
def test_printed_models_of_imagenet(recipe):
    """Temperature and number of models of each task, and the search."""
    parts = Head(Run(None, Path("out"), recipe=recipe), 0)
    printed, search = (
        printed_recipe("quam")[k] for k in ("imagenet", "imagenet_search")
    )
    choices = {c.name: c.value for c in own_choices("quam")}
    for task, expected in printed.items():
        if task == "code":
            continue
        quam = parts.method("QUAM", task)
        n_models = quam.search.n_steps + 1
        if recipe == "printed":
            assert (quam.temperature, n_models) == tuple(expected.values())
        else:
            assert quam.temperature == choices[f"imagenet/{task}/temperature"]
            assert quam.temperature != expected["temperature"]
            steps = search["epochs"][task] * search["n_train"] // search["batch_size"]
            assert quam.search.n_steps == steps
            assert f"imagenet/{task}/n_models" in choices
        assert quam.search.eta == search["eta"][task]
        names = "c0", "lr", "weight_decay", "gamma", "batch_size", "update_every"
        assert {name: getattr(quam.search, name) for name in names} == {
            name: search[name] for name in names
        }
        assert (quam.scope, quam.targets) == (search["scope"], search["n_targets"])


def test_first_models_of_a_search():
    """A search of k - 1 steps has the reference and the first steps of a longer one."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 4)) + y[:, None]
    network = FrozenEstimator(LogisticRegression().fit(X, y))
    longer, shorter = (
        QUAM(
            network,
            AdversarialSearch(n, lr=1e-3, c0=1.0, eta=1.01, update_every=1),
            scope="last",
            random_state=0,
        ).fit(X, y)
        for n in (9, 4)
    )
    traces = [quam.trace(X[:1]) for quam in (longer, shorter)]
    for name in ("log_proba", "training_loss"):
        first = traces[0][name][:5]
        assert len(traces[1][name]) == 5
        np.testing.assert_allclose(traces[1][name], first, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(first[0], first[0].mean(), rtol=1e-5)  # the reference


def test_tasks_of_imagenet_have_scores_of_their_own(monkeypatch):
    """QUAM by the printed recipe only; others are searched once for a set."""
    for recipe in ("ours", "printed"):
        parts = Head(Run(None, Path("out"), recipe=recipe), 0)
        monkeypatch.setattr(parts, "_scores", lambda *task: task)
        tasks = [name for name in printed_recipe("quam")["imagenet"] if name != "code"]
        of_quam = {parts.scores("QUAM", task) for task in tasks}
        assert len(of_quam) == {"ours": 2, "printed": 4}[recipe]
        assert len({parts.scores("MCD", task) for task in tasks}) == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
@pytest.mark.parametrize(
    "paper, tables, only",
    [
        ("epn", ["10", "4", "8"], ["words/*", "EPN*"]),
        ("dsde", ["5"], None),
        ("mln", ["3"], ["faces*"]),
    ],
)
def test_small_versions_by_both_recipes(tmp_path, paper, tables, only):
    """All rows are computed, and most differ."""
    cells = reproduce(
        *(paper, tables), out=tmp_path, seeds=1, small=True, only=only, recipe="both"
    ).cells
    values = cells.set_index(["table", "row", "column", "recipe"]).value.unstack()
    assert len(values) and values.notna().all(axis=None)
    assert (values.ours != values.printed).mean() > 0.3


# --- p-values and weights -------------------------------------------------------------


@BOTH
def test_library_of_detectors(tmp_path, recipe):
    """The published p-values, number of neighbors and combiner."""
    printed = printed_recipe("dsde")
    choices = {c.name: c.value for c in own_choices("dsde")}
    parts = SmallDigits(Run(None, tmp_path, device="cpu", recipe=recipe), 0)
    scores = {
        "calibration": np.array([[3.0], [1.0], [2.0]]),
        "ID": np.array([[2.5], [0]]),
    }
    parts._scores["KNN"] = scores
    expected = {"ours": [[0.75], [0.25]], "printed": [[2 / 3], [0.0]]}[recipe]
    np.testing.assert_allclose(parts.pvalues("KNN")["ID"], expected)
    combiner, knn = parts.dsde(), parts.detector("KNN", None)
    assert isinstance(knn, KNN) and combiner.beta == printed["beta"]
    if recipe == "printed":
        assert (combiner.c_m, knn.n_neighbors) == (2 / 7, printed["knn"])
        assert parts.pvalue_method == printed["method"]
    else:
        assert combiner.c_m is None and {"c_m", "method", "knn"} <= choices.keys()
        assert parts.pvalue_method == choices["method"]
    assert Library.c_m is None  # of the class, not of other parts


def test_printed_weights():
    """A constraint that always holds has the weight of the number of steps."""
    domains = {
        "class": list(range(43)),
        "color": ["red", "blue", "yellow", "white"],
        "shape": ["triangle", "circle", "square", "octagon", "inverse_triangle"],
    }
    kb = KnowledgeBase(gtsrb_constraints(), domains=domains)
    truth = kb.truth(np.zeros((1, 3), dtype=int))
    assert not truth.all()  # class 0 is a red circle
    right = np.array([[0, 0, 1]])
    assert kb.truth(right).all()
    weights = printed_weights(kb, right)
    np.testing.assert_allclose(weights, 4.85, atol=0.02)
    # the likelihood grows without bound, and the steps stop far from its maximum
    assert kb.log_probability(right, weights) < kb.log_probability(right, 2 * weights)
    # weights of a mixture are near the maximum, where observed truth is expected
    mixed = np.array([[0, 0, 1]] * 8 + [[0, 1, 1], [1, 1, 2]])
    moved = printed_weights(kb, mixed)
    gap = [
        kb.truth(mixed).mean(axis=0) - kb.expected_truth(w) for w in (moved, weights)
    ]
    assert np.abs(gap[0]).max() < np.abs(gap[1]).max()


class Rules(Study):
    """Two concepts of two columns, and a rule that one sample in four violates."""

    concepts, oods, constraints = ("a", "b"), ("ood",), ["a -> b", "b -> a"]

    def __init__(self, run, seed):
        super().__init__(run, seed)
        X = np.random.default_rng(seed).normal(size=(400, 2))
        self.X, self.y = X, X > 0
        heads = {
            name: LogisticRegression().fit(X, column)
            for name, column in zip("ab", self.y.T, strict=True)
        }
        heads["is_id"] = LogisticRegression().fit(X, X[:, 0] < 1.5)
        self.readings = Bunch(classifier=lambda name: FrozenEstimator(heads[name]))

    def Z(self, name):
        """Return samples of a set."""
        return self.X


@BOTH
@pytest.mark.parametrize("id_network", [None, "is_id"])
def test_printed_weights_arrive(tmp_path, recipe, id_network):
    parts = Rules(Run(None, tmp_path, recipe=recipe), 0)
    model = parts.mln(None, id_network)
    kb = model.knowledge_base_
    Y = model.predict_concepts(parts.X).astype(object)
    if id_network:
        is_id = parts.readings.classifier("is_id").predict(parts.X)
        Y = np.column_stack([Y, is_id])
    weights = {
        "ours": kb.fit_weights(kb.encode(Y)),
        "printed": printed_weights(kb, kb.encode(Y)),
    }
    np.testing.assert_allclose(model.weights_, weights[recipe], rtol=1e-9)
    assert np.abs(weights["ours"] - weights["printed"]).max() > 1e-3
    rules = WeightedConstraints(parts.constraints, weights=[1.0, 2.0])
    chosen = parts.mln(None, constraints=rules)
    np.testing.assert_array_equal(chosen.weights_, [1.0, 2.0])


@BOTH
def test_search_of_algorithm_2(tmp_path, recipe):
    """The printed search retains what it has accepted."""
    expected = {"ours": True, "printed": printed_recipe("mln")["prune"]}[recipe]
    for kind in (Digits, partial(Faces, n=400)):
        parts = kind(Run(None, tmp_path, recipe=recipe), 0)
        assert parts.search.search.prune is expected
    assert {c.name: c.value for c in own_choices("mln")}["prune"] is True


def test_papers_with_printed_recipes():
    """Experiments without settings, such as known densities, have ours only."""
    for name in available_papers():
        recipes = {e.recipes for e in load_paper(name).experiments}
        assert (recipes == {("ours",)}) == (name in ("franc", "openood"))
