"""The documentation site can be built, hangs together, and needs nothing from elsewhere."""

import functools
import re
import subprocess
import sys
import threading
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import expect

from tests.dashboard.conftest import chromium

ROOT = Path(__file__).parents[2]


class References(HTMLParser):
    """Collects what a page links to, what it loads, and the anchors that it has."""

    def __init__(self, page):
        super().__init__()
        self.linked, self.loaded, self.anchors = set(), set(), set()
        self.feed(page.read_text())

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.anchors.add(given.get("id"))
        if tag == "a" and "href" in given:
            self.linked.add(given["href"])
        if tag == "link" and given.get("rel") != "canonical":
            self.loaded.add(given["href"])
        if tag in ("script", "img", "iframe") and "src" in given:
            self.loaded.add(given["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of a site that is built for these tests alone."""
    folder = tmp_path_factory.mktemp("documentation")
    command = [sys.executable, ROOT / "scripts" / "site.py", folder]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site):
    references = {
        page: References(page) for page in site.rglob("*.html") if page.name != "404.html"
    }
    assert len(references) > 50
    return references


@pytest.fixture(scope="module")
def address(site):
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_every_link_leads_to_a_page_and_an_anchor_of_it(pages):
    broken = []
    for page, references in pages.items():
        for link in references.linked | references.loaded:
            target = urlsplit(link)
            if target.scheme in ("http", "https", "mailto"):
                continue
            file = (page.parent / unquote(target.path)).resolve() if target.path else page
            if not file.exists():
                broken.append((page.name, link))
            elif target.fragment and file in pages:
                known = pages[file].anchors | {"__toc", "__nav", "__search"}
                if unquote(target.fragment) not in known:
                    broken.append((page.name, link))
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(pages):
    assert {url for page in pages.values() for url in page.loaded if "//" in url} == set()


def test_every_page_is_there_as_plain_markdown_and_in_the_index_for_programs(site, pages):
    listed = re.findall(r"\]\((\S+)\)", (site / "llms.txt").read_text())
    assert sorted(listed) == sorted(str(page.relative_to(site)) for page in site.rglob("*.md"))
    assert len(listed) == len(pages)
    assert (site / "reference/cli.md").read_text() == (ROOT / "docs/reference/cli.md").read_text()


def test_diagrams_are_drawn(address):
    asked = []
    with chromium() as browser:
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{address}/explanation/scheduling.html")
        expect(page.locator("svg[aria-roledescription=sequence]")).to_be_visible()
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
