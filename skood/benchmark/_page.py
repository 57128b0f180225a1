"""Self-contained HTML page: style for light mode, dark mode and print; no script."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from html import escape
from importlib.resources import files
from string import Template

from skood.benchmark._figures import N_COLORS, N_DASHES


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


def html_table(frame, caption=""):
    """Return a table of HTML from a data frame, for a page of `html_page`.

    On narrow screens it scrolls, and its first column stays visible.

    Parameters
    ----------
    frame : pandas.DataFrame
        The cells, as HTML: text has to be escaped. Names of rows and columns are text.

    caption : str, default=""
        Caption above the table, as HTML.

    Returns
    -------
    table : str
        HTML.

    See Also
    --------
    html_page : A page with tables.

    Examples
    --------
    >>> import pandas as pd
    >>> from skood.benchmark import html_table
    >>> frame = pd.DataFrame({"AUROC": ["<b>0.97</b>"]}, index=["KNN"])
    >>> "<td><b>0.97</b></td>" in html_table(frame, caption="Digits")
    True
    """
    names = ["", *map(str, frame.columns)]
    head = [cell(escape(name), "th", scope="col") for name in names]
    rows = [
        [cell(escape(str(name)), "th", scope="row"), *map(cell, map(str, values))]
        for name, *values in frame.itertuples(name=None)
    ]
    return table(caption, head, rows)


def html_page(title, parts):
    """Return a self-contained HTML page: style for light mode, dark mode and print.

    The page that :func:`compare` writes as a report, for other results.

    Parameters
    ----------
    title : str
        Title, as text.

    parts : sequence of str
        Content in HTML, such as ``"<h2>Digits</h2>"``, tables of `html_table`, or
        figures of matplotlib as SVG.

    Returns
    -------
    page : str
        The page, without a script and without references to other files.

    See Also
    --------
    html_table : A table for it.

    Examples
    --------
    >>> from skood.benchmark import html_page
    >>> page = html_page("My results", ["<p>All methods are equally good.</p>"])
    >>> page.startswith("<!DOCTYPE html>")
    True
    """
    fade = [  # of the other curves, where one is pointed at in the legend
        f"figure:has(.k{i}:hover) .chart .curve:not(.s{i}) {{ opacity: .12; }}"
        for i in range(N_COLORS * N_DASHES)
    ]
    template = files("skood.benchmark").joinpath("template.html").read_text("utf-8")
    return Template(template).substitute(
        title=escape(title), rules="\n".join(fade), parts="\n".join(parts)
    )
