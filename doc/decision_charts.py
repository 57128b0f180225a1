"""Decision charts of the page "Choosing": ``python doc/decision_charts.py FOLDER``.

Writes a drawing with links and a nested list for each chart of decision_charts.json: a
question, and for each answer another question or a leaf. A leaf has the names to use,
the reason (why) and a page.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import json
import sys
from html import escape
from pathlib import Path
from string import Template
from textwrap import wrap

HERE = Path(__file__).resolve().parent
#: A question with its answers for each chart, and under "parts" the names that no
#: chart needs, with reasons.
CHARTS = json.loads((HERE / "decision_charts.json").read_text(encoding="utf-8"))

# Pixels: the drawing, its left column of answers, the step of a deeper question, the
# lines of text and what surrounds them.
WIDTH, LEFT, STEP, LINE, PAD, GAP = 720, 270, 22, 18, 8, 10
# Characters of 13 pixels, with room for wide letters.
LETTER = 7.1

SVG = Template("""\
<svg class="decision-chart" xmlns="http://www.w3.org/2000/svg" width="$width" \
height="$height" viewBox="0 0 $width $height" role="group" aria-label="$label">
<style>
.decision-chart { --ink: #1f2328; --dim: #59636e; --line: #8c959f; --box: #f6f8fa;
  --ask: #dcebf7; --link: #0b5394; font: 13px sans-serif; }
@media (prefers-color-scheme: dark) { .decision-chart { --ink: #e6edf3; --dim: #a5b0bb;
  --line: #6e7681; --box: #21262d; --ask: #17375a; --link: #79b8ff; } }
html[data-theme="light"] .decision-chart { --ink: #1f2328; --dim: #59636e;
  --line: #8c959f; --box: #f6f8fa; --ask: #dcebf7; --link: #0b5394; }
html[data-theme="dark"] .decision-chart { --ink: #e6edf3; --dim: #a5b0bb;
  --line: #6e7681; --box: #21262d; --ask: #17375a; --link: #79b8ff; }
.decision-chart rect { fill: var(--box); stroke: var(--line); }
.decision-chart rect.ask { fill: var(--ask); }
.decision-chart path { fill: none; stroke: var(--line); stroke-width: 1.5; }
.decision-chart text { fill: var(--ink); }
.decision-chart .ask { font-weight: bold; }
.decision-chart .why { fill: var(--dim); }
.decision-chart a { fill: var(--link); }
.decision-chart a:hover, .decision-chart a:focus { text-decoration: underline; }
</style>
$parts
</svg>
""")
RECT = Template('<rect$kind x="$x" y="$y" width="$w" height="$h" rx="6"/>')
TEXT = Template('<text$kind x="$x" y="$y">$text</text>')
LINK = Template('<a href="$href">$text</a>')
PATH = Template('<path d="$d"/>')


def page_of(leaf):
    """Return the page of a leaf, relative to the pages, without its suffix."""
    page = leaf["page"]
    return page if "/" in page else f"user_guide/{page}"


def _title(page):
    """Return the title of a page."""
    lines = (HERE / f"{page}.rst").read_text(encoding="utf-8").splitlines()
    rule = next(k for k, line in enumerate(lines) if line.startswith("==="))
    return lines[rule + 1]


def leaves(node):
    """Yield the leaves of a chart."""
    if "use" in node:
        yield node
    for answer in node.get("a", {}).values():
        yield from leaves(answer)


def placed(charts=CHARTS):
    """Return the names that charts place, without modules, and the names of parts."""
    nodes = (node for name, node in charts.items() if name != "parts")
    names = {
        use.rsplit(".", 1)[1]
        for node in nodes
        for x in leaves(node)
        for use in x["use"]
    }
    return names | set(charts["parts"])


# --- drawings -------------------------------------------------------------------------


def _link(href, text):
    return LINK.substitute(href=escape(href), text=escape(text))


def _lines_of_names(leaf, width):
    """Return lines of links to names, broken by their estimated width."""
    lines, used = [[]], 0
    for use in leaf["use"]:
        name = use.rsplit(".", 1)[1]
        if used and used + len(name) + 2 > width:
            lines.append([])
            used = 0
        lines[-1].append(_link(f"generated/{use}.html", name))
        used += len(name) + 2
    return ",\n".join(", ".join(line) for line in lines).split("\n")


class _Drawing:
    """Boxes from top to bottom: answers in the left column, what follows at right."""

    def __init__(self, label, node):
        self.parts, self.y = [], 1
        self._box(1, self.y, WIDTH - 2, [("ask", escape(node["q"]))], "ask")
        self.y += LINE + 2 * PAD + GAP
        self._answers(node, 1)
        self.svg = SVG.substitute(
            width=WIDTH,
            height=self.y,
            label=escape(f"Decision chart: {label}", quote=True),
            parts="\n".join(self.parts),
        )

    def _box(self, x, y, width, lines, kind="", height=None):
        height = height or LINE * len(lines) + 2 * PAD
        kind = f' class="{kind}"' if kind else ""
        self.parts.append(RECT.substitute(kind=kind, x=x, y=y, w=width, h=height))
        top = y + (height - LINE * len(lines)) / 2
        for k, (style, text) in enumerate(lines):
            style = f' class="{style}"' if style else ""
            line = TEXT.substitute(
                kind=style, x=x + PAD, y=f"{top + LINE * k + 13:g}", text=text
            )
            self.parts.append(line)

    def _target(self, node, width):
        """Return the lines of text of what follows an answer."""
        n = int((width - 2 * PAD) / LETTER)
        if "q" in node:
            return [("ask", escape(line)) for line in wrap(node["q"], int(0.93 * n))]
        more = f"more: {_title(page_of(node))}"
        why = [("why", escape(line)) for line in wrap(node["why"], n)]
        page = _link(f"{page_of(node)}.html", more)
        return [*(("", line) for line in _lines_of_names(node, n)), *why, ("", page)]

    def _answers(self, node, depth):
        """Draw the answers to a question, below each other, and what follows each."""
        x, stem, start = 1 + STEP * depth, 1 + STEP * (depth - 0.5), self.y - GAP
        last = start
        for answer, child in node["a"].items():
            n = int((LEFT - x - 2 * PAD) / LETTER)
            lines = [("", escape(line)) for line in wrap(answer, n)]
            right = self._target(child, WIDTH - 1 - LEFT - 24)
            height = LINE * max(len(lines), len(right)) + 2 * PAD
            middle = self.y + height / 2
            self._box(x, self.y, LEFT - x, lines, height=height)
            kind = "ask" if "q" in child else ""
            self._box(LEFT + 24, self.y, WIDTH - 25 - LEFT, right, kind, height)
            arrow = f"M{LEFT} {middle:g}h23m-6 -4l6 4l-6 4"
            self.parts.append(PATH.substitute(d=f"M{stem:g} {middle:g}H{x}{arrow}"))
            last = middle
            self.y += height + GAP
            if "q" in child:
                self._answers(child, depth + 1)
        self.parts.append(PATH.substitute(d=f"M{stem:g} {start}V{last:g}"))


def svg(label):
    """Return the drawing of a chart, with links relative to the folder of pages."""
    return _Drawing(label, CHARTS[label]).svg


# --- lists ----------------------------------------------------------------------------


def nested_list(node, indent=""):
    """Return the lines of a chart as a nested list of reStructuredText."""
    lines = [f"{indent}*{node['q']}*", ""]
    for answer, child in node["a"].items():
        if "q" in child:
            lines += [f"{indent}- {answer}:", ""]
            lines += nested_list(child, indent + "  ")
        else:
            names = ", ".join(f":obj:`~{use}`" for use in child["use"])
            more = f":doc:`/{page_of(child)}`"
            lines += [f"{indent}- {answer}: {names}; {child['why']} ({more})"]
    return [*lines, ""]


def parts_list():
    """Return the lines of a list of the names that no chart needs, with reasons."""
    return [f"- ``{name}``: {why}" for name, why in CHARTS["parts"].items()]


def write(folder):
    """Write all drawings and lists to a folder."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for label in CHARTS.keys() - {"parts"}:
        (folder / f"{label}.svg").write_text(svg(label), encoding="utf-8")
        text = "\n".join(nested_list(CHARTS[label]))
        (folder / f"{label}.inc").write_text(text, encoding="utf-8")
    text = "\n".join(parts_list()) + "\n"
    (folder / "parts.inc").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(sys.argv[1])
