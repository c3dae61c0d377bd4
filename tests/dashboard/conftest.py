"""A Duly of its own with its pages, and a browser to look at them."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
THROWAWAY = runpy.run_path(str(ROOT / "scripts" / "throwaway.py"))
"""With which the demo starts a Duly, too; scripts are no package."""
CHROMIUM = Path("/usr/bin/chromium")
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


@pytest.fixture
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
    """The one-time link that `duly up` printed."""
    return place.await_output(re.compile(r"http://\S+/open\?token=\S+"))[0]


@pytest.fixture
def browser():
    """Debian's Chromium."""
    if not CHROMIUM.exists():
        pytest.skip("Chromium is not installed here")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()
