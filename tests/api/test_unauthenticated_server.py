"""The benchmark server without authentication really skips it on every route."""

import pytest

from benchmarks import unauthenticated_server
from duly.api import app


@pytest.fixture
def opened(monkeypatch):
    monkeypatch.setattr(app, "guard", app.guard)
    monkeypatch.setattr(unauthenticated_server, "KNOWN", [])
    unauthenticated_server.open_up()


@pytest.mark.usefixtures("opened")
async def test_who_called_first_is_taken_for_everybody(api):
    assert (await api.submit())["tenant"] == "default"
    nobody = api.with_key(None)
    task = await nobody.submit()
    assert (await nobody.get(f"/v1/tasks/{task['id']}"))["tenant"] == "default"
    assert (await nobody.call("GET", "/v1/nodes")).status_code == 200


async def test_any_other_server_asks_for_a_key(api):
    assert (await api.with_key(None).call("POST", "/v1/tasks", json={})).status_code == 401
