"""The private names of uvicorn that `duly.http` relies on still exist.

Each entry says what it is needed for. When a version of uvicorn no longer has a name, its test
fails: then look whether the reason still holds, before the upper bound in pyproject.toml is raised.
"""

import ast
import inspect
import re
from importlib.metadata import requires
from pathlib import Path

import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

import duly.http

CALLED_BY_UVICORN = {
    # Bounds of the head of a request in bytes and time, and of connections in number.
    (HttpToolsProtocol, "connection_made"),
    (HttpToolsProtocol, "connection_lost"),
    (HttpToolsProtocol, "data_received"),
    (HttpToolsProtocol, "on_message_begin"),
    (HttpToolsProtocol, "on_headers_complete"),
    (HttpToolsProtocol, "on_body"),
    # A body that is here already is read without a timeout for it.
    (HttpToolsProtocol, "on_message_complete"),
    # Headers in trailers are dropped.
    (HttpToolsProtocol, "on_header"),
    # A client that does not read its response is cut off.
    (HttpToolsProtocol, "pause_writing"),
    (HttpToolsProtocol, "resume_writing"),
    (HttpToolsProtocol, "on_response_complete"),
    (HttpToolsProtocol, "timeout_keep_alive_handler"),
    # The timer of the head must not close a websocket of the pages.
    (HttpToolsProtocol, "handle_websocket_upgrade"),
    # What strangers ask for fills no log.
    (HttpToolsProtocol, "_unsupported_upgrade_warning"),
    # A tenant over its rate is refused without a task for each request.
    (HttpToolsProtocol, "_start_asgi_task"),
    # The server sleeps while nothing is asked, and ends when it is told.
    (uvicorn.Server, "main_loop"),
    (uvicorn.Server, "capture_signals"),
    (uvicorn.Server, "startup"),
}
"""Methods that are overridden: uvicorn has to have them, and to call them."""
READ_BY_US = {
    HttpToolsProtocol: {"app", "connections", "cycle", "flow", "loop", "scope", "transport"},
    RequestResponseCycle: {
        "body",
        "default_headers",
        "disconnected",
        "keep_alive",
        "message_event",
        "more_body",
        "on_response",
        "response_complete",
        "response_started",
        "scope",
        "waiting_for_100_continue",
    },
    FlowControl: {"write_paused"},
    ServerState: {"connections", "default_headers"},
}
"""Attributes that are read or set: uvicorn has to set them in its constructors."""


@pytest.mark.parametrize(("owner", "name"), sorted(CALLED_BY_UVICORN, key=str))
def test_a_method_that_is_overridden_is_one_of_uvicorn(owner, name):
    assert inspect.isfunction(inspect.getattr_static(owner, name)) or name == "capture_signals"


@pytest.mark.parametrize("owner", READ_BY_US, ids=lambda owner: owner.__name__)
def test_an_attribute_that_is_read_is_set_by_uvicorn(owner):
    source = inspect.getsource(owner.__init__)
    assert {n for n in READ_BY_US[owner] if f"self.{n}" not in source} == set()


def test_no_other_method_of_uvicorn_is_overridden():
    listed = {name for _, name in CALLED_BY_UVICORN}
    for source in Path(duly.http.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.ClassDef) and node.bases:
                defined = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
                own = {HttpToolsProtocol, uvicorn.Server}
                overridden = {n for n in defined if any(n in vars(base) for base in own)}
                assert overridden - {"__init__"} <= listed, source.name


def test_uvicorn_is_bounded_by_version():
    bound = next(
        requirement for requirement in requires("duly") if re.match(r"uvicorn\b", requirement)
    )
    assert re.search(r">=\d+\.\d+", bound), bound
    assert re.search(r"<\d+\.\d+", bound), bound
