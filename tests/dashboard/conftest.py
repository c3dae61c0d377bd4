"""A Duly of its own with its pages, and a browser to look at them."""

import contextlib
import os
import re
import runpy
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from duly.dashboard.login.link import NAME, LinkFile

ROOT = Path(__file__).parents[2]
THROWAWAY = runpy.run_path(str(ROOT / "scripts" / "throwaway.py"))
"""With which the demo starts a Duly, too; scripts are no package."""
CHROMIUM = Path("/usr/bin/chromium")
PAGES = """
import sys
from duly.dashboard.options import Link, PagesOptions
from duly.launch.dashboard import serve_until_interrupted
url, key, host, port, file = sys.argv[1:]
serve_until_interrupted(PagesOptions(url, host, int(port), Link(file, key)), lambda: None)
"""
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def free_ports():
    """Gives the first of two free ports in a row."""
    return THROWAWAY["free_ports"]


@pytest.fixture
def place():
    """A `duly up`, with its `url`, its `key` and what it said."""
    with THROWAWAY["Throwaway"]({}) as place:
        yield place


@pytest.fixture
def link(place):
    """The one-time link, which `duly up` has put into a file."""
    place.await_output(re.compile(r"^pages: ", re.MULTILINE))
    return (place.folder / "data" / NAME).read_text().strip()


@contextlib.contextmanager
def chromium():
    """Run Debian's Chromium; until it ends no event loop can be run beside it."""
    if not CHROMIUM.exists():
        pytest.skip("Chromium is not installed here")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def browser():
    """A browser, for one test."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def process():
    """Runs a command for as long as a block lasts."""

    @contextlib.contextmanager
    def process(*command, **environment):
        with subprocess.Popen(command, env={**os.environ, **environment}) as running:
            try:
                yield running
            finally:
                running.terminate()

    return process


@pytest.fixture
def pages(process, tmp_path):
    """Runs the pages alone for as long as a block lasts; gives the link that opens them."""
    file = tmp_path / NAME

    @contextlib.contextmanager
    def pages(url, port, key="no key"):
        with process(sys.executable, "-c", PAGES, url, key, "127.0.0.1", str(port), str(file)):
            await_listener(port)
            yield LinkFile(file).renew(f"http://127.0.0.1:{port}")

    return pages


def await_listener(port):
    """Return when somebody listens; a process that starts gives no other sign."""
    while True:
        with (
            contextlib.suppress(ConnectionRefusedError),
            socket.create_connection(("127.0.0.1", port)),
        ):
            return
        time.sleep(0.05)
