"""Fixtures for pytest: `pytest_plugins = ["duly.testing.fixtures"]` in your conftest.py.

`duly_inline` runs tasks in the test's process. `duly_server` is a throw-away Duly for the whole
run; set `duly_app = shop.tasks:app` in the configuration of pytest, and it has a worker.
"""

from collections.abc import Iterator

import pytest

from duly.client.functions.inline import Inline
from duly.testing.inline_tasks import inline
from duly.testing.throw_away import Server, server


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting with the app of the worker."""
    parser.addini("duly_app", "MODULE:APP of the worker of duly_server")


@pytest.fixture
def duly_inline() -> Iterator[Inline]:
    """Run tasks in this process as they are submitted."""
    with inline() as tasks:
        yield tasks


@pytest.fixture(scope="session")
def duly_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Run a throw-away Duly, with a worker if there is a setting duly_app."""
    with server(request.config.getini("duly_app") or None) as running:
        yield running
