"""Self-contained HTML page: style for light mode, dark mode and print; no script."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from html import escape
from importlib.resources import files
from string import Template

from skood.benchmark._figures import N_COLORS, N_DASHES

__all__ = ["cell", "page", "table"]


def cell(content, kind="td", name="", scope=""):
    """Return a cell of a table; the content is HTML."""
    name = f' class="{name}"' if name else ""
    scope = f' scope="{scope}"' if scope else ""
    return f"<{kind}{name}{scope}>{content}</{kind}>"


def table(caption, head, rows):
    """Return a table that can be scrolled; caption, head and rows are HTML."""
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
    fade = [  # of the other curves, where one is pointed at in the legend
        f"figure:has(.k{i}:hover) .chart .curve:not(.s{i}) {{ opacity: .12; }}"
        for i in range(N_COLORS * N_DASHES)
    ]
    template = files("skood.benchmark").joinpath("template.html").read_text("utf-8")
    return Template(template).substitute(
        title=escape(title), rules="\n".join(fade), parts="\n".join(parts)
    )
