"""Tests of the examples in docstrings: outputs, and the samples of metrics."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import ast
import doctest
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: What measures an estimator, apart from functions that end in ``_score``.
MEASURES = {"score", "report", "from_estimator"}
#: Methods whose outputs are given to a metric.
OUTPUTS = {"score_samples", "decision_function", "predict", "predict_proba"}
#: Docstrings with a boolean as their subject, and the reason.
BOOLEAN = {
    "skood/benchmark/_hashing.py: content_hash": "two hashes are equal or not",
    "skood/nn/_weight_hash.py: weight_hash": "two hashes are equal or not",
}


@cache
def examples():
    """Return (place, examples) of each docstring with examples."""
    parser = doctest.DocTestParser()
    kinds = (ast.FunctionDef, ast.ClassDef, ast.Module)
    parsed = []
    for path in sorted((ROOT / "skood").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            doc = ast.get_docstring(node) if isinstance(node, kinds) else None
            if ">>>" in (doc or ""):
                place = f"{path.relative_to(ROOT)}: {getattr(node, 'name', 'module')}"
                parsed.append((place, parser.get_examples(doc)))
    return parsed


def samples(call):
    """Return the arguments of a call that are samples or their targets, as text."""
    nodes = [*call.args, *[k.value for k in call.keywords if k.arg in ("X", "y")]]
    return {ast.unparse(node) for node in nodes if not isinstance(node, ast.Constant)}


class Whole(ast.NodeTransformer):
    """Replace ``X[index]`` by ``X``."""

    def visit_Subscript(self, node):
        return self.visit(node.value)


def overlap(a, b):
    """Whether two expressions have samples in common: equal, or one is the whole."""
    whole_a, whole_b = (ast.unparse(Whole().visit(ast.parse(e))) for e in (a, b))
    return a == b or (whole_a == whole_b and (a == whole_a or b == whole_b))


def names(node):
    """Return the variables of a syntax tree."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def measured_after_fit(code):
    """Return the calls that measure an estimator on samples that it was fitted on."""
    fitted, measured = set(), []
    for statement in ast.parse(code).body:
        calls = [
            (getattr(node.func, "attr", getattr(node.func, "id", "")), node)
            for node in ast.walk(statement)
            if isinstance(node, ast.Call)
        ]
        for name, call in calls:
            fitted |= samples(call) if name == "fit" else set()
        for name, call in calls:
            if name == "cross_val_score":
                continue
            if name in MEASURES or name.endswith(("_score", "_at_tpr")):
                inside = set(ast.walk(call))
                outputs = [c for n, c in calls if n in OUTPUTS and c in inside]
                texts = set().union(*(samples(c) for c in [call, *outputs]))
                if any(overlap(a, b) for a in texts for b in fitted):
                    measured.append(ast.unparse(call))
        if isinstance(statement, ast.Assign):
            changed = set().union(*(names(target) for target in statement.targets))
            fitted = {text for text in fitted if not changed & names(ast.parse(text))}
    return measured


def test_outputs_are_no_booleans():
    lines = [
        f"{place}: {example.source.strip()}"
        for place, parsed in examples()
        for example in parsed
        if place not in BOOLEAN
        if example.source.startswith("bool(")
        or example.want.strip() in ("True", "False")
    ]
    assert not lines, "\n".join(lines)


def test_metrics_are_of_held_out_samples():
    fit = "X = draw()\ndetector.fit(X[:9], y[:9])\n"
    assert measured_after_fit(fit + "detector.score(X, y)")
    assert measured_after_fit(fit + "roc_auc_score(y, detector.score_samples(X[:9]))")
    assert not measured_after_fit(fit + "detector.score(X[9:], y[9:])")
    assert not measured_after_fit(fit + "X, y = draw()\ndetector.score(X, y)")
    lines = [
        f"{place}: {call}"
        for place, parsed in examples()
        for call in measured_after_fit("".join(example.source for example in parsed))
    ]
    assert not lines, "\n".join(lines)
