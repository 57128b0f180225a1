"""The pages that a visitor meets first: landing page, README and the first steps."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIMITS = {
    "README.md": 900,
    "doc/index.rst": 450,
    "doc/install.rst": 500,
    "doc/getting_started.rst": 1_000,
    "doc/choosing.rst": 1_500,
    "doc/faq.rst": 1_200,
}
#: Terms that users search for, on landing page, README and glossary.
TERMS = [
    "selective classification",
    "open-set recognition",
    "anytime-valid",
    "novelt(y|ies)",
    "anomal(y|ies)",
    "abstention",
    "LLM answers",
    "defer",
    "distribution shift",
    "conformal",
]
#: Further terms of the glossary.
GLOSSARY = [
    "selective prediction",
    "learning to reject",
    "outlier",
    "misclassification detection",
    "false discovery rate",
    "covariate shift",
    "expert",
    "capacity",
]

#: What users want to do, and what they look for: a name or a page.
JOBS = {
    "detect unusual rows of a table": "Mahalanobis",
    "detect new classes": "KNN",
    "detect OOD inputs of a network": "ViM",
    "use a detector of scikit-learn or PyOD": "SklearnDetector",
    "detect documents that are off topic": "KnownWords",
    "combine detectors": "DetectorEnsemble",
    "reject without OOD samples": "TwoThresholds",
    "bound accepted fractions": "BoundedTPRFPR",
    "reject a fixed fraction": "BoundedAbstention",
    "bound the error rate of all answers": "BoundedErrorRate",
    "reject by costs": "CostBased",
    "certify bounds for new data": "Certificate",
    "select the OOD samples of a batch": "NoveltySelector",
    "raise an alarm without labels": "ExchangeabilityMonitor",
    "raise an alarm from some labels": "RateMonitor",
    "compare detectors": "compare",
    "measure epistemic uncertainty": "DeepEnsemble",
    "add uncertainty to a trained network": "Laplace",
    "detect unknown nodes of a graph": "Propagation",
    "detect violated rules": "MLNDetector",
    "explain a rejection": "recipes/explain",
    "answer, or defer to an expert": "recipes/llm_answers",
}


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", LIMITS)
def test_length(name):
    assert len(read(name).split()) <= LIMITS[name]


@pytest.mark.parametrize("name", ["README.md", "doc/index.rst"])
def test_terms_are_on_the_page(name):
    text = " ".join(read(name).split())
    missing = [term for term in TERMS if not re.search(term, text)]
    assert missing == []


def test_terms_are_in_the_glossary():
    entries = re.findall(r"^   (\S.*)$", read("doc/glossary.rst"), flags=re.M)
    for term in TERMS + GLOSSARY:
        assert any(re.fullmatch(term, entry) for entry in entries), term


def test_first_pages_are_in_the_table_of_contents():
    contents = read("doc/index.rst").split(".. toctree::")[1]
    sections = re.findall(r"^   ([A-Z][^<]+) <|^   (more)$", contents, flags=re.M)
    names = [name or other for name, other in sections]
    assert names == ["Get started", "User guide", "Examples", "API", "more"]
    contents = read("doc/getting_started.rst").split(".. toctree::")[1].split()
    assert contents[1:] == ["install", "choosing", "faq", "recipes/index"]


def test_jobs_within_two_clicks():
    """They are on the landing page, or on one of two pages that it links to."""
    pages = ["index.rst", "getting_started.rst", "choosing.rst", "decision_charts.json"]
    text = "".join(read(f"doc/{page}") for page in pages)
    links = set(re.findall(r"""[`"<~](?:skood[.\w]*\.)?([\w/]+)[`">]""", text))
    assert {"getting_started", "choosing"} <= links
    missing = [job for job, target in JOBS.items() if target not in links]
    assert missing == []


def test_links_of_the_readme():
    links = re.findall(r"(?<!!)\[[^]]+\]\(([^)]+)\)", read("README.md"))
    assert len(links) >= 5
    for link in links:
        assert re.fullmatch(r"LICENSE|[\w/]+\.md|examples/[\w/]+\.py", link), link
        assert (ROOT / link).is_file(), link
    assert ".rst" not in read("README.md")


def test_commands_of_the_readme():
    (commands,) = (b for b in blocks("sh") if "make" in b)
    assert [line.split("#")[0].split() for line in commands.splitlines()] == [
        ["make", "demo"],
        ["make", "test"],
    ]


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", read("README.md"), flags=re.S)


def test_example_of_the_readme():
    """The text block is the output of the python block, but for line breaks."""
    (code,), (expected,) = blocks("python"), blocks("text")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(code, {})
    assert output.getvalue().split() == expected.split()
    assert not re.search(r">>>|# doctest|array\(", read("README.md"))


def test_example_of_the_landing_page():
    lines = re.findall(r"^(?:>>>|\.\.\.) ", read("doc/index.rst"), flags=re.M)
    assert len(lines) <= 12
