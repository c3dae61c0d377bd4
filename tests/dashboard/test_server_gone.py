"""The pages without a server, and when it comes back."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

DULY = Path(sys.executable).with_name("duly")


@pytest.fixture
def key(dsn, tmp_path):
    """The administrator's key of a database that no server serves yet."""
    file = tmp_path / "admin.key"
    init = [DULY, "db", "init", "--admin-key-file", file]
    subprocess.run(init, env={**os.environ, "DULY_DATABASE": dsn}, check=True)
    return file.read_text().strip()


@pytest.mark.timeout(120)
def test_the_page_says_that_the_server_is_gone_and_comes_back_by_itself(
    dsn, key, browser, process, pages, free_ports, tmp_path
):
    port = free_ports()
    url = f"http://127.0.0.1:{port}"
    serve = [DULY, "serve", "--port", str(port), "--store", str(tmp_path / "objects")]
    page = browser.new_page()
    with pages(url, port + 1, key) as link:
        page.goto(link)
        expect(page.get_by_role("alert")).to_contain_text(f"cannot be reached at {url}")
        expect(page.get_by_role("status")).to_have_text("not reachable")

        with process(*serve, DULY_DATABASE=dsn):
            expect(page.get_by_role("status")).to_have_text("live", timeout=30_000)
            expect(page.get_by_role("alert")).to_be_hidden()
            expect(page.get_by_text("No nodes yet, so no task can start.")).to_be_visible()

        expect(page.get_by_role("status")).to_have_text("not reachable", timeout=30_000)
        expect(page.locator(".count.done .number")).to_have_text("0")
