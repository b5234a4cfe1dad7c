"""Checks the built documentation: links and anchors lead somewhere, and nothing is loaded from another host.

python scripts/check_site.py [build/site]            (`make docs` runs it)
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# A page must be readable without a network: what a browser loads by itself, by element.
LOADED = dict.fromkeys(("script", "img", "source", "video", "audio", "iframe", "embed"), "src")
LOADING_RELATIONS = {"stylesheet", "preload", "modulepreload", "prefetch", "preconnect", "dns-prefetch", "icon"}
CSS_URL = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])((?:https?:)?//[^"')\s]+)""")


@dataclass
class Page(HTMLParser):
    """What one page links to, loads and can be linked at."""

    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and "href" in given and LOADING_RELATIONS & set(given.get("rel", "").split()):
            self.loaded.append(given["href"])
        if LOADED.get(tag) in given:
            self.loaded.append(given[LOADED[tag]])
        self.loaded += CSS_URL.findall(given.get("style", ""))

    def handle_data(self, data: str) -> None:
        if self.lasttag == "style":
            self.loaded += CSS_URL.findall(data)


def outside(link: str) -> bool:
    """Whether a link names another host, or anything that is not a file of the site."""
    parts = urlsplit(link)
    return bool(parts.scheme or parts.netloc)


def read_pages(site: Path) -> dict[Path, Page]:
    pages = {}
    for path in sorted(site.rglob("*.html")):
        page = pages[path] = Page()
        page.feed(path.read_text(encoding="utf-8"))
    return pages


def problems(site: Path) -> list[str]:
    """One line for each broken link, and for each thing that a page or style loads from outside."""
    pages, found = read_pages(site), []
    for path, page in pages.items():
        name = path.relative_to(site)
        found += [f"{name}: loads {link} from another host" for link in page.loaded if outside(link)]
        if name.name == "404.html":  # served at any address, so its links start at the root
            continue
        for link in [*page.links, *page.loaded]:
            if outside(link):
                continue
            file, _, anchor = unquote(link).partition("#")
            target = (path.parent / file.partition("?")[0]).resolve() if file else path
            if not target.is_file():
                found.append(f"{name}: {link} does not exist")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                found.append(f"{name}: {link} has no such anchor")
    for path in sorted(site.rglob("*.css")):
        found += [f"{path.relative_to(site)}: loads {url}" for url in CSS_URL.findall(path.read_text(encoding="utf-8"))]
    return found


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/site")
    broken = problems(folder.resolve())
    print("\n".join(broken) or f"docs: the links of {len(list(folder.rglob('*.html')))} pages lead somewhere")
    sys.exit(bool(broken))
