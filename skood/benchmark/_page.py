"""Self-contained HTML page: style for light mode, dark mode and print; no script."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from html import escape

from skood.benchmark._figures import N_COLORS, N_DASHES

__all__ = ["cell", "page", "table"]

# The contrast of all colors with the background is at least 4.5.
_LIGHT = "#0b62b0 #b85000 #137a3b #8e24aa #806000 #c2255c #0b7285 #57534e".split()
_DARK = "#6cb6ff #ff9f57 #5fd38d #d9a0fa #e6c34a #ff8fb3 #4fd1e5 #bdb7b0".split()

_STYLE = """\
:root { color-scheme: light dark; --back: #ffffff; --text: #1c1c1c; --soft: #5a5a5a;
  --line: #c4c4c4; --faint: #ececec; --mark: #dcefdc; --link: #0b5cad; LIGHT }
@media (prefers-color-scheme: dark) { :root { --back: #16181c; --text: #e6e6e6;
  --soft: #a6abb3; --line: #545a64; --faint: #2a2e35; --mark: #1d4029;
  --link: #7cbcff; DARK } }
* { box-sizing: border-box; }
body { background: var(--back); color: var(--text); max-width: 76rem;
  font: 15px/1.5 system-ui, sans-serif; margin: 1.5rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .3rem; }
h2 { font-size: 1.3rem; border-top: 1px solid var(--line); padding-top: 1.2rem;
  margin: 2rem 0 .3rem; }
h3 { font-size: 1.05rem; margin: 1.4rem 0 .3rem; }
p { max-width: 48rem; margin: .4rem 0; }
a { color: var(--link); }
.soft, caption, small { color: var(--soft); }
.soft, caption { font-size: 13px; }
caption span.text { display: inline-block; position: sticky; left: 0;
  max-width: min(48rem, calc(100vw - 2rem)); }
.wide { overflow-x: auto; margin: .5rem 0 1rem; }
table { border-collapse: collapse; font-size: 13px;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: .2rem 0; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .6rem; text-align: right;
  white-space: nowrap; }
thead th { font-weight: 600; vertical-align: bottom; min-width: 5rem;
  max-width: 12rem; white-space: normal; overflow-wrap: anywhere; }
th:first-child, .text { text-align: left; }
tbody th { font-weight: 500; position: sticky; left: 0; background: var(--back);
  min-width: 7.5rem; max-width: 16rem; white-space: normal; overflow-wrap: anywhere; }
td.text { white-space: normal; min-width: 9rem; }
td.group, th.group { border-left: 1px solid var(--line); }
td.best { background: var(--mark); }
td.best b { font-weight: 700; }
small { font-size: 11px; display: block; line-height: 1.25; }
details { margin: .4rem 0; }
summary { cursor: pointer; padding: .3rem 0; font-weight: 600;
  overflow-wrap: anywhere; }
summary .soft { font-weight: 400; margin-left: .5em; }
figure { margin: .4rem 0 1rem; min-width: 0; }
figcaption { font-size: 13px; overflow-wrap: anywhere; }
.both { display: flex; flex-wrap: wrap; gap: .5rem 1.5rem; align-items: flex-start; }
.grid-of { display: grid; gap: .6rem 1rem;
  grid-template-columns: repeat(auto-fill, minmax(11.5rem, 1fr)); }
.legend { list-style: none; margin: 0; padding: 0; font-size: 13px;
  columns: 15rem auto; flex: 1 1 15rem; max-width: 36rem; }
.legend li { break-inside: avoid; display: flex; gap: .5em; align-items: center;
  padding: .1rem .2rem; overflow-wrap: anywhere; }
.legend b { margin-left: auto; font-weight: 600; font-variant-numeric: tabular-nums; }
svg { fill: var(--text); display: block; max-width: 100%; height: auto; }
svg.chart { width: 460px; flex: 0 1 460px; min-width: 0; }
svg.small { width: 100%; }
svg.key { width: 34px; height: 8px; flex: none; }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft); }
svg .tick { text-anchor: middle; }
svg .end { text-anchor: end; }
svg .frame { fill: none; stroke: var(--line); }
svg .grid { stroke: var(--faint); }
svg .axis { stroke: var(--line); }
svg .guide { fill: none; stroke: var(--line); stroke-dasharray: 2 3; }
svg .cut { fill: none; stroke: var(--soft); stroke-width: 1; }
svg .curve { fill: none; stroke-width: 1.7; stroke-linejoin: round; }
svg.chart .curve:hover { stroke-width: 4; }
svg .id { fill: var(--c0); fill-opacity: .35; stroke: var(--c0); stroke-width: .8; }
svg .ood { fill: none; stroke: var(--c1); stroke-width: 1.5; stroke-dasharray: 4 2; }
svg .d1 { stroke-dasharray: 7 3; }
svg .d2 { stroke-dasharray: 2 2.5; }
svg .d3 { stroke-dasharray: 9 3 2 3; }
dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem;
  margin: .4rem 0; font-size: 13px; }
dl.facts dt { color: var(--soft); }
dl.facts dd { margin: 0; overflow-wrap: anywhere; }
@media print { :root { --back: #ffffff; --text: #000000; --soft: #444444;
  --line: #aaaaaa; --faint: #eeeeee; --mark: #dcefdc; LIGHT }
  details::details-content { content-visibility: visible; block-size: auto; }
  figure, tr { break-inside: avoid; } .wide { overflow: visible; }
  th, td { white-space: normal; min-width: 0 !important; } }
"""


def _style():
    """Return the style sheet: colors of curves, and fading of unselected curves."""
    text = _STYLE
    for word, colors in (("LIGHT", _LIGHT), ("DARK", _DARK)):
        named = " ".join(f"--c{i}: {color};" for i, color in enumerate(colors))
        text = text.replace(word, named)
    rules = [f"svg .c{i} {{ stroke: var(--c{i}); }}" for i in range(N_COLORS)]
    rules += [
        f"figure:has(.k{i}:hover) .chart .curve:not(.s{i}) {{ opacity: .12; }}"
        for i in range(N_COLORS * N_DASHES)
    ]
    return text + "\n".join(rules)


def cell(content, kind="td", name="", scope=""):
    """Return a cell of a table; the content is HTML."""
    name = f' class="{name}"' if name else ""
    scope = f' scope="{scope}"' if scope else ""
    return f"<{kind}{name}{scope}>{content}</{kind}>"


def table(caption, head, rows):
    """Return a table as HTML; wide tables can be scrolled.

    `caption`, the cells of `head` and of the `rows` are HTML.
    """
    lines = ["<tr>" + "".join(row) + "</tr>" for row in rows]
    return "\n".join(
        [
            '<div class="wide"><table>',
            f'<caption><span class="text">{caption}</span></caption>',
            f"<thead><tr>{''.join(head)}</tr></thead>",
            "<tbody>",
            *lines,
            "</tbody></table></div>",
        ]
    )


def page(title, parts):
    """Return a page with a plain title and parts in HTML."""
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{_style()}\n</style>",
            "</head>",
            "<body>",
            "<main>",
            f"<h1>{escape(title)}</h1>",
            *parts,
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )
