"""Check the built pages: ``python doc/check_links.py doc/_build``.

Every link and anchor within the site has to be there, and no page may load a script, a
style or a picture from the network.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {"script": "src", "img": "src", "link": "href", "source": "srcset"}
ONLY_NAMES = {"canonical", "search", "author"}  # links that load nothing


class Page(HTMLParser):
    """What a page names, links to and loads."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.loads = set(), set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Note one tag."""
        attrs = dict(attrs)
        self.anchors |= {attrs[key] for key in ("id", "name") if attrs.get(key)}
        if tag == "a" and attrs.get("href"):
            self.links.add(attrs["href"])
        if (
            tag in LOADS
            and attrs.get(LOADS[tag])
            and attrs.get("rel") not in ONLY_NAMES
        ):
            self.loads.add(attrs[LOADS[tag]].split(" ")[0])


def problems(root):
    """Yield a line for everything that is missing or comes from the network."""
    files = {
        path.resolve(): Page(path.read_text(encoding="utf-8"))
        for path in sorted(root.rglob("*.html"))
        if "_static" not in path.parts
    }
    for path, page in files.items():
        here = path.relative_to(root.resolve())
        for link in sorted(page.links | page.loads):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loads and parts.scheme != "data":
                    yield f"{here}: loads {link}"
                continue
            target = (
                (path.parent / unquote(parts.path)).resolve() if parts.path else path
            )
            if not target.exists():
                yield f"{here}: {link} is not there"
            elif parts.fragment and target in files:
                if unquote(parts.fragment) not in files[target].anchors:
                    yield f"{here}: {link} has no such anchor"


def main():
    """Print the problems; the exit status says whether there are any."""
    found = list(problems(Path(sys.argv[1])))
    print(*found, f"{len(found)} problems", sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
