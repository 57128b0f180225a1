"""Tests of the page that a comparison writes."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import re
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from skood.benchmark._compare import Comparison
from skood.benchmark._inputs import METRICS
from skood.benchmark._own_comparison import _summary
from skood.benchmark._report import (
    N_COLORS,
    N_DASHES,
    _corners,
    _round_up,
    curves,
    histogram,
    html_page,
    html_table,
    key,
    leaders,
    roc,
    style,
    write_report,
)
from skood.detectors import KNN, MSP, Energy, Mahalanobis
from skood.metrics import aurc
from tests.benchmark.conftest import compared

RNG = np.random.RandomState(0)
X = RNG.normal(size=(180, 3))
Y = np.arange(180) % 3
X[:, 0] += 1.5 * Y
OOD = {"near": RNG.normal(2, 2, (40, 3)), "far": RNG.normal(9, 3, (30, 3))}
NET = FrozenEstimator(LogisticRegression().fit(X[:60], Y[:60]))
REST = X[60:], Y[60:]
EVIL = "<script>alert('&')</script>\""

_VOID = {"meta"}


class Page(HTMLParser):
    """A page as a list of elements with their text; what is not closed raises."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements = [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        assert len(dict(attrs)) == len(attrs)
        element = {"tag": tag, "text": "", "within": [e["tag"] for e in self.open]}
        self.elements.append(element | dict(attrs))
        if tag not in _VOID:
            self.open.append(self.elements[-1])

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, tag, **attrs):
        return [
            e
            for e in self.elements
            if e["tag"] == tag and all(e.get(k) == v for k, v in attrs.items())
        ]


def rows_of(actual, caption):
    """The cells of the table whose caption begins so, by row."""
    start = next(
        i
        for i, e in enumerate(actual.elements)
        if e["tag"] == "caption" and e["text"].startswith(caption)
    )
    samples = []
    for element in actual.elements[start:]:
        if element["tag"] == "table":
            break
        if element["tag"] == "tr":
            samples.append([])
        elif element["tag"] in ("td", "th"):
            samples[-1].append(element)
    return samples


def report(tmp_path, detectors, *, X=REST[0], y=REST[1], ood=OOD, **params):
    path = tmp_path / "page.html"
    params = {"n_resamples": 99, "random_state": 0} | params
    table = compared(detectors, X, y, ood, report=path, **params)
    text = path.read_text("utf-8")
    return table, Page(text), text


DETECTORS = {"msp": MSP(NET), "energy": Energy(NET), "knn": KNN(n_neighbors=5)}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    groups = {"all": ["near", "far"]}
    metrics = list(METRICS)
    folder = tmp_path_factory.mktemp("report")
    return report(folder, DETECTORS, groups=groups, metrics=metrics)


def test_page_needs_nothing_else(written):
    _, actual, text = written
    assert not re.search(r"https?:|url\(|@import|src=|<link|<script|javascript:", text)
    assert [e["href"] for e in actual.all("a")] == []
    (style,) = actual.all("style")
    assert "prefers-color-scheme: dark" in style["text"]
    assert "@media print" in style["text"]
    assert style["text"].count("{") == style["text"].count("}")
    used = set(re.findall(r"var\((--\w+)\)", style["text"]))
    assert used <= set(re.findall(r"(--\w+):", style["text"]))
    assert "nan" not in re.sub(r"[a-z]nan|nan[a-z]", "", text.lower())
    assert text.startswith("<!DOCTYPE html>")
    assert actual.all("html")[0]["lang"] == "en"


def test_page_can_be_read_aloud(written):
    _, actual, _ = written
    assert len(actual.all("table")) == len(actual.all("caption")) == 1 + len(METRICS)
    assert all(e["scope"] in ("row", "col") for e in actual.all("th"))
    drawn = [e for e in actual.all("svg") if "aria-hidden" not in e]
    assert all(e["role"] == "img" and e["aria-label"] for e in drawn)
    # two sets, and risk; one histogram for each detector and set
    kinds = Counter(e["class"] for e in drawn)
    assert kinds == {"chart": 3, "small": 6}
    ids = [e["id"] for e in actual.elements if "id" in e]
    assert len(ids) == len(set(ids))
    headings = [
        int(e["tag"][1]) for e in actual.elements if re.match("h[1-6]", e["tag"])
    ]
    assert headings[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(headings))
    summaries, details = actual.all("summary"), actual.all("details")
    assert len(summaries) == len(details) == 1 + (len(METRICS) - 1) + 2


def test_values_and_marks(written):
    table, actual, _ = written
    captions = {
        "auroc": "Area under",
        "aupr_in": "Average precision of finding the ID",
        "aupr_out": "Average precision of finding the OOD",
        "fpr_at_tpr": "Fraction of the OOD",
        "detection_error": "Error rate",
    }
    for metric, caption in captions.items():
        head, *samples = rows_of(actual, caption)
        names = ["detector", "near", "far", "all mean of group"]
        assert [cell["text"] for cell in head[:4]] == names
        assert [row[0]["text"] for row in samples] == list(DETECTORS)
        for row in samples:
            for cell, ood in zip(row[1:4], ("near", "far", "all"), strict=True):
                is_it = (table.detector == row[0]["text"]) & (table.ood == ood)
                ((_, it),) = table[is_it & (table.metric == metric)].iterrows()
                mark = ("★ " if it.is_best else "☆ ") if it.pvalue > 0.05 else ""
                numbers = f"{it.value:.3f}[{it.low:.3f}, {it.high:.3f}]"
                assert cell["text"] == mark + numbers
                assert ("best" in cell.get("class", "")) == (it.pvalue > 0.05)
        assert len(head) == (7 if metric == "auroc" else 4)
    assert table.pvalue.le(0.05).any()  # so both kinds of cells were seen
    head, *samples = rows_of(actual, "Area under")
    assert [cell["text"] for cell in head[4:]] == [
        "fit s",
        "score s",
        "network s shared",
    ]
    seconds = table.drop_duplicates("detector").set_index("detector")
    for row in samples:
        assert row[4]["text"] == f"{seconds.fit_seconds[row[0]['text']]:.3f}"


def test_sets_and_settings(written):
    _, actual, _ = written
    assert [[c["text"] for c in row] for row in rows_of(actual, "OOD sets")] == [
        ["OOD set", "samples", "groups"],
        ["near", "40", "all"],
        ["far", "30", "all"],
    ]
    (said,) = (e["text"] for e in actual.all("p") if "detectors, fitted" in e["text"])
    assert said == (
        "3 detectors, fitted on 84 ID samples, evaluated on 36 held-out ID samples; "
        "1 repeat; seed 0; 95 % intervals from 99 resamples."
    )
    facts = " ".join(e["text"] for e in actual.all("dd")[:3])
    for name in ("skood", "numpy", "scikit-learn", "torch", "python", "CPUs"):
        assert name in facts
    assert re.match(r"20\d\d-\d\d-\d\d \d\d:\d\d", facts)


def legend(actual, after):
    """Names and numbers of the list behind a caption."""
    texts = [(e["tag"], e["text"]) for e in actual.elements]
    start = texts.index(
        next(e for e in texts if e[0] == "figcaption" and e[1].startswith(after))
    )
    names, numbers = [], []
    for tag, text in texts[start + 1 :]:
        if tag in ("figcaption", "summary", "h3"):
            break
        if tag == "b":
            numbers.append(float(text))
        elif tag == "span":
            names.append(text)
    return names, numbers


def test_curves_are_sorted(written):
    table, actual, _ = written
    names, numbers = legend(actual, "ROC curves; AUROC")
    near = table[(table.ood == "near") & (table.metric == "auroc")]
    near = near.sort_values("value", ascending=False)
    assert names == list(near.detector)
    assert numbers == [round(value, 3) for value in near.value]
    (summary,) = (e["text"] for e in actual.all("summary") if "near" in e["text"])
    assert summary == f"near best AUROC {near.value.iloc[0]:.3f}: {names[0]}"
    (label,) = (
        e["aria-label"]
        for e in actual.all("svg")
        if e.get("aria-label", "").startswith("ROC curves, ID samples against near")
    )
    pairs = zip(names, near.value, strict=True)
    assert label.endswith(", ".join(f"{name} {value:.3f}" for name, value in pairs))
    # the same name, the same style, in each chart
    keys = {
        (e["text"], e["class"]) for e in actual.all("li") if e["within"][-1] == "ol"
    }
    assert (
        len({name for name, _ in {(t.rstrip("0123456789."), k) for t, k in keys}}) == 3
    )


def test_risk_is_that_of_the_classifier(tmp_path):
    """All rows are held out, so that it can be computed here."""
    detectors = {"msp": MSP(NET), "energy": Energy(NET), "gauss": Mahalanobis(NET)}
    fitted = {k: FrozenEstimator(d.fit(X[:60], Y[:60])) for k, d in detectors.items()}
    _, actual, text = report(tmp_path, fitted)
    wrong = NET.predict(REST[0]) != REST[1]
    expected = {
        name: aurc(REST[1], NET.predict(REST[0]), detector.score_samples(REST[0]))
        for name, detector in fitted.items()
    }
    order = sorted(expected, key=expected.get)
    names, numbers = legend(actual, "Risk; the area")
    assert names == order
    assert numbers == [round(expected[name], 4) for name in order]
    assert (
        f"gives {wrong.sum()} of 120 held-out ID samples a wrong class (risk " in text
    )
    assert "3 detectors, frozen, evaluated on 120 held-out" in text


def test_no_classifier_no_risk(tmp_path):
    table, actual, text = report(tmp_path, {"knn": KNN()}, metrics="fpr_at_tpr")
    assert "Risk and coverage" not in text
    assert "1 detector, fitted" in text
    assert "network s" not in text
    assert [row[0]["text"] for row in rows_of(actual, "Fraction of")] == [
        "detector",
        "knn",
    ]
    assert (table.metric == "fpr_at_tpr").all()


def test_no_errors_no_risk(tmp_path):
    far = np.eye(3)[Y] * 50 + X
    net = FrozenEstimator(LogisticRegression().fit(far, Y))
    _, actual, text = report(tmp_path, {"msp": MSP(net)}, X=far, y=Y)
    assert (
        "gives 0 of 54 held-out ID samples a wrong class (risk 0.0000). There" in text
    )
    assert len([e for e in actual.all("svg") if e["class"] == "chart"]) == 2


def test_names_are_text(tmp_path):
    _, actual, text = report(
        tmp_path,
        {EVIL: MSP(NET), "b" * 300: Energy(NET)},
        ood={EVIL: OOD["near"], "ü ∂ \ud800": OOD["far"]},
        groups={EVIL + "2": [EVIL]},
    )
    assert not actual.all("script")
    assert "<script" not in text
    assert rows_of(actual, "Area under")[1][0]["text"] == EVIL
    assert rows_of(actual, "OOD sets")[1][0]["text"] == EVIL
    assert any(EVIL in e.get("aria-label", "") for e in actual.all("svg"))
    assert Page(html_page(EVIL, [])).all("h1")[0]["text"] == EVIL


def test_table_of_a_data_frame():
    """Names are text, cells are HTML."""
    frame = pd.DataFrame({"a": ["<b>1</b>", "2"], "<c>": [3, None]}, index=[EVIL, "y"])
    page = Page(html_page("", [html_table(frame, caption="Two <i>rows</i>")]))
    assert [cell["text"] for cell in page.all("th")] == ["", "a", "<c>", EVIL, "y"]
    assert [cell["text"] for cell in page.all("td")][:2] == ["1", "3.0"]
    assert page.all("caption")[0]["text"] == "Two rows"


def test_many_detectors_and_repeats(tmp_path):
    many = {f"{k} neighbors": KNN(n_neighbors=k) for k in range(1, 14)}
    _, actual, text = report(tmp_path, many, repeats=2, confidence_level=0.8)
    assert "2 repeats, of which values are averages; seed 0; 80 % intervals" in text
    assert "ROC curves of the first repeat" in text
    assert "(p &gt; 0.2)" in text
    styles = [e["class"] for e in actual.all("polyline") if e["class"][:6] == "curve "]
    assert len({s.split(" ", 2)[2] for s in styles}) == 13


def test_same_table_with_and_without(tmp_path):
    with_page, *_ = report(tmp_path, DETECTORS, resume=tmp_path / "cells")
    plain = compared(DETECTORS, *REST, OOD, n_resamples=99, random_state=0)
    seconds = [name for name in plain if name.endswith("seconds")]
    pd.testing.assert_frame_equal(
        with_page.drop(columns=seconds), plain.drop(columns=seconds)
    )
    # each set and detector, and the predictions, which are kept as well
    cells = (tmp_path / "cells" / "cells.jsonl").read_text().count("\n")
    assert cells == 4 * 3


def test_infinite_scores(tmp_path):
    class Sure(KNN):
        def score_samples(self, X):
            scores = super().score_samples(X)
            return np.where(scores < np.median(scores), -np.inf, scores)

    _, actual, text = report(tmp_path, {"sure": Sure(), "msp": MSP(NET)})
    assert len(actual.all("svg", **{"class": "small"})) == 4
    assert "Risk and coverage" in text


def test_page_replaces_another_page(tmp_path):
    (tmp_path / "page.html").write_text("old")
    report(tmp_path, {"knn": KNN()})
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_folders(tmp_path):
    path = tmp_path / "new" / "folder" / "page.html"
    compared(
        {"knn": KNN()}, *REST, OOD, n_resamples=9, random_state=0, report=str(path)
    )
    assert path.stat().st_size > 10_000
    calls = []

    class Counted(KNN):
        def fit(self, X, y=None):
            calls.append(len(X))
            return super().fit(X, y)

    with pytest.raises(IsADirectoryError, match=r"is a folder\. Give the name of"):
        compared({"knn": Counted()}, *REST, OOD, report=tmp_path)
    assert not calls


class _Comparison:
    def __init__(self, entries):
        self.entries = entries


@pytest.mark.parametrize(("metric", "first"), [("auroc", "b"), ("fpr_at_tpr", "a")])
def test_leaders(metric, first):
    samples = [
        {"metric": metric, "detector": d, "ood": o, "is_group": o == "g", "value": v}
        for d, o, v in [("a", "x", 0.2), ("a", "y", 0.4), ("a", "g", 9.0),
                        ("b", "x", 0.3), ("b", "y", 0.6), ("b", "g", 0.0)]
    ]  # fmt: skip
    samples.append(samples[0] | {"metric": "aupr_in", "value": 5.0})
    name, means, _ = leaders(_Comparison(samples))
    assert name == metric
    assert dict(means) == pytest.approx({"a": 0.3, "b": 0.45})
    assert means[0][0] == first


@pytest.mark.parametrize(
    ("top", "end"), [(1.0, 1), (0.011, 0.012), (0.5, 0.6), (0.95, 1), (0.02, 0.02)]
)
def test_ends_of_axes_are_short_numbers(top, end):
    assert _round_up(top) == pytest.approx(end, rel=1e-12)


def test_error_leaves_no_half_page(tmp_path):
    path = tmp_path / "page.html"
    path.mkdir()
    (path / "file").touch()
    with pytest.raises(OSError, match="page"):
        write_report(path, [])
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]


def comparison(**means):
    """A comparison whose detectors have these AUROCs on two sets, on average."""
    samples = [
        {"detector": name, "ood": ood, "metric": "auroc", "value": value + shift}
        for name, value in means.items()
        for ood, shift in (("a", -0.005), ("b", 0.005))
    ]
    samples = [row | {"is_group": False} for row in samples]
    return Comparison(samples, [], None, {"a": 9, "b": 9}, {}, 0, {})


def test_less_than_a_hundredth_is_a_tie():
    near = comparison(MSP=0.98, ViM=0.99, GMM=0.9801, KNN=0.9798)
    tied = leaders(near)[2]
    assert tied == ["ViM", "GMM", "MSP"]
    head, *lines = _summary(near)
    assert "tie" not in head
    assert [line.split()[0] for line in lines if line.endswith("  tie")] == tied
    apart = comparison(MSP=0.97, ViM=0.99)
    assert leaders(apart)[2] == ["ViM"]
    assert not any("tie" in line for line in _summary(apart))


def test_verdict_and_seed_are_at_the_top(written, tmp_path):
    table, _, text = written
    means = table[(table.metric == "auroc") & ~table.is_group]
    means = means.groupby("detector").value.mean()
    top = re.split("<details|<section", text.split("<h1>")[1])[0]
    assert f"{means.idxmax()} is best (AUROC ↑ {means.max():.3f} on average" in top
    assert top.index("is best") < top.index("<dt>Date</dt>")
    assert "<dt>Seed</dt><dd>0</dd>" in top
    assert "Command" not in top  # of a call in Python
    same = {"msp": MSP(NET), "first": KNN(), "second": KNN()}
    _, _, text = report(tmp_path, same, metrics="fpr_at_tpr", random_state=3)
    top = re.split("<details|<section", text.split("<h1>")[1])[0]
    assert "tie of first, second (within 0.01; the best has FPR95 ↓" in top
    assert "<dt>Seed</dt><dd>3</dd>" in top


def test_lines_of_a_chart_differ(written):
    """In color and, for readers who do not see it, in dashes."""
    _, actual, _ = written
    for chart in (e for e in actual.elements if e.get("class") == "chart"):
        place = actual.elements.index(chart)
        lines = []
        for element in actual.elements[place + 1 :]:
            if element["tag"] == "svg":
                break
            if element.get("class", "").startswith("curve "):
                lines.append(element["class"].split()[2:])
        assert len(lines) == len(DETECTORS)
        colors, dashes = zip(*lines, strict=True)
        assert len(set(colors)) == len(set(dashes)) == len(DETECTORS)


def corners(svg, name):
    """Points of the line or polygon of a class."""
    (points,) = re.findall(rf'class="{name}" points="([^"]*)"', svg)
    return np.array([[float(n) for n in pair.split(",")] for pair in points.split()])


def test_roc_by_hand():
    id_scores, ood_scores = RNG.randint(6, size=30), RNG.randint(-2, 4, size=20)
    fpr, tpr = roc(id_scores.astype(float), ood_scores.astype(float))
    expected = [(0, 0)]
    for cut in sorted({*id_scores, *ood_scores}, reverse=True):
        expected.append((np.mean(ood_scores >= cut), np.mean(id_scores >= cut)))
    assert_allclose(np.column_stack([fpr, tpr]), expected, rtol=1e-12)


def test_roc_of_infinite_scores():
    fpr, tpr = roc(np.array([np.inf, 0.0]), np.array([-np.inf, np.inf]))
    assert_allclose(fpr, [0, 0.5, 0.5, 1])
    assert_allclose(tpr, [0, 0.5, 1, 1])


def test_no_two_of_many_styles_are_alike():
    pairs = [tuple(style(i).split()[1:]) for i in range(N_COLORS * N_DASHES)]
    assert len(set(pairs)) == N_COLORS * N_DASHES
    assert style(9).startswith("s9 ")
    assert style(9) in key(9)


def distance(point, places):
    """How far a point is from a line through places, by brute force."""
    t = np.linspace(0, 1, 400)[:, None]
    line = np.concatenate([a + t * (b - a) for a, b in pairwise(places)])
    return np.linalg.norm(line - point, axis=1).min()


def test_drawn_line_is_near_its_points():
    steps = RNG.exponential(size=(150, 2)) * (RNG.rand(150, 1) < [[0.5, 2]])
    places = np.cumsum(steps, axis=0)
    accepted = _corners(places)
    assert accepted[0]
    assert accepted[-1]
    assert accepted.sum() < 130
    for point in places[~accepted]:
        assert distance(point, places[accepted]) <= 0.41
    straight = np.linspace([0, 0], [10, 20], 30)
    assert _corners(straight).sum() == 2
    there_and_back = np.array([[0.0, 0], [5, 0], [0, 0]])
    assert _corners(there_and_back).all()


def test_curves_are_in_the_frame():
    x = np.array([0.0, 0.25, 1.0])
    svg = curves(
        "what is seen",
        {"<a>": (3, x, np.array([0.0, 1.0, 8.0]))},
        "across",
        "up & down",
        y_max=2.0,
        diagonal=True,
    )
    (frame,) = re.findall(
        r'class="frame" x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)"', svg
    )
    left, top, width, height = map(int, frame)
    expected = [(0, 1), (0.25, 0.5), (1, 0)]  # what is too high ends at the top
    assert_allclose(
        corners(svg, f"curve {style(3)}"),
        [(left + a * width, top + b * height) for a, b in expected],
        atol=0.05,
    )
    assert_allclose(
        corners(svg, "guide"), [(left, top + height), (left + width, top)], atol=0.05
    )
    for subset in ("<title>&lt;a&gt;</title>", ">up &amp; down<", ">0.5</text>", ">2<"):
        assert subset in svg
    assert 'role="img" aria-label="what is seen"' in svg


def test_histogram_by_hand():
    id_scores = np.concatenate([RNG.normal(3, 1, 300), [50.0, np.inf]])
    ood_scores = np.concatenate([RNG.normal(0, 1, 200), [-np.inf]])
    svg = histogram("h", id_scores, ood_scores)
    finite = np.concatenate([id_scores[:-1], ood_scores[:-1]])
    low, high = np.quantile(finite, [0.005, 0.995])
    shares = []
    for scores in (id_scores, ood_scores):
        counts = [0] * 40
        for score in scores:
            bin_ = int((min(max(score, low), high) - low) / (high - low) * 40)
            counts[min(bin_, 39)] += 1
        shares.append(np.sqrt(np.array(counts) / len(scores)))
    for subset, kind in zip(shares, ("id", "ood"), strict=True):
        drawn = corners(svg, kind)
        at_top, bottom = drawn[:, 1].min(), drawn[:, 1].max()
        assert bottom == 100
        height = 100 - 4
        assert at_top == pytest.approx(
            100 - height * subset.max() / np.max(shares), abs=0.06
        )
        # the height in the middle of each bin
        middles = 6 + (np.arange(40) + 0.5) / 40 * (220 - 12)
        order = np.interp(middles, drawn[:, 0], drawn[:, 1])
        assert_allclose(order, 100 - height * subset / np.max(shares), atol=0.6)
    cut = (np.quantile(np.clip(id_scores, low, high), 0.05) - low) / (high - low)
    assert_allclose(corners(svg, "cut")[:, 0], 6 + cut * (220 - 12), atol=0.06)
    assert f">{high:.3g}<" in svg
    assert f">−{-low:.3g}<" in svg


@pytest.mark.parametrize("value", [0.0, 1e300, -7.0, np.inf])
def test_histogram_of_a_single_score(value):
    svg = histogram("h", np.full(3, value), np.full(2, value))
    assert "nan" not in svg
    assert "inf" not in svg.replace("info", "")
    assert np.isfinite(corners(svg, "ood")).all()


def test_ends_that_are_zero_but_for_rounding():
    svg = histogram("h", np.linspace(-5, -1e-9, 50), np.linspace(-5, -1e-9, 50))
    assert ">0</text>" in svg
