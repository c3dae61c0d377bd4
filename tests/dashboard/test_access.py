"""The gate in front of the pages, driven as a web server would."""

import pytest

from duly.dashboard.access import HEADERS, Gate, is_own_name

TOKEN = "the-token-of-the-link"
HOST = "127.0.0.1:8471"


async def inner(scope, receive, send):
    """An app that says yes to everything, as badly as it can."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        return
    headers = [(b"cache-control", b"public"), (b"access-control-allow-origin", b"*")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": repr(scope["headers"]).encode()})


@pytest.fixture
def gate():
    return Gate(inner, TOKEN, "127.0.0.1", 8471)


async def ask(gate, path="/", *, kind="http", query="", method="GET", host=HOST, **headers):
    """Send one request through the gate, and return (status, headers, body)."""
    sent = []

    async def receive():
        return {"type": "websocket.connect" if kind == "websocket" else "http.request"}

    async def send(message):
        sent.append(message)

    named = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
    scope = {
        "type": kind,
        "path": path,
        "query_string": query.encode(),
        "method": method,
        "headers": [(b"host", host.encode()), *named],
    }
    await gate(scope, receive, send)
    if kind == "websocket":
        return sent[0]["type"]
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"].decode()


async def let_in(gate):
    """Open the link, and return the cookie that it gave."""
    _, headers, _ = await ask(gate, "/open", query=f"token={TOKEN}")
    return headers[b"set-cookie"].decode().partition(";")[0]


async def test_without_the_link_every_path_says_where_to_find_it(gate):
    for path in ("/", "/_nicegui_ws/socket.io/", "/favicon.ico", "/anything"):
        status, _, body = await ask(gate, path)
        assert status == 401
        assert "open the link that <code>duly up</code> printed" in body
    assert await ask(gate, kind="websocket") == "websocket.close"


async def test_the_link_is_exchanged_for_a_strict_cookie(gate):
    status, headers, body = await ask(gate, "/open", query=f"token={TOKEN}")
    assert status == 200
    assert 'http-equiv="refresh"' in body
    cookie = headers[b"set-cookie"].decode()
    assert cookie.startswith("duly_pages_8471=")
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict")
    assert TOKEN not in cookie


async def test_the_cookie_opens_pages_and_websocket(gate):
    cookie = await let_in(gate)
    assert (await ask(gate, cookie=f"other=a b[]; {cookie}"))[0] == 200
    origin = f"http://{HOST}"
    assert await ask(gate, kind="websocket", cookie=cookie, origin=origin) == "websocket.accept"


async def test_the_link_works_once(gate):
    await let_in(gate)
    status, headers, body = await ask(gate, "/open", query=f"token={TOKEN}")
    assert status == 403
    assert b"set-cookie" not in headers
    assert "has been used" in body


@pytest.mark.parametrize("query", ["", "token=", "token=wrong", f"token={TOKEN}x"])
async def test_a_wrong_token_lets_nobody_in_and_spends_nothing(gate, query):
    assert (await ask(gate, "/open", query=query))[0] == 403
    assert (await ask(gate, "/open", query=f"token={TOKEN}"))[0] == 200


async def test_only_a_get_spends_the_link(gate):
    assert (await ask(gate, "/open", query=f"token={TOKEN}", method="HEAD"))[0] == 403
    assert (await ask(gate, "/open", query=f"token={TOKEN}"))[0] == 200


@pytest.mark.parametrize("cookie", ["duly_pages_8471=", "duly_pages_8471=guess", "x=1", "=;;="])
async def test_any_other_cookie_is_refused(gate, cookie):
    await let_in(gate)
    assert (await ask(gate, cookie=cookie))[0] == 401


async def test_a_page_of_another_origin_gets_nothing_even_with_the_cookie(gate):
    cookie = await let_in(gate)
    for origin in ("http://evil.example", "http://127.0.0.1:9999", "null", "http://[", ""):
        assert (await ask(gate, cookie=cookie, origin=origin))[0] == 403
        answer = await ask(gate, kind="websocket", cookie=cookie, origin=origin)
        assert answer == "websocket.close"


async def test_a_name_that_was_rebound_to_this_machine_gets_nothing(gate):
    status, _, _ = await ask(gate, "/open", query=f"token={TOKEN}", host="evil.example:8471")
    assert status == 403
    cookie = await let_in(gate)
    assert (await ask(gate, cookie=cookie, host="evil.example:8471"))[0] == 403


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1:8471", True),
        ("localhost:9000", True),
        ("LOCALHOST", True),
        ("[::1]:8471", True),
        ("192.168.1.20:8471", True),
        ("duly.internal:8471", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("", False),
        ("[::1", False),
        ("user@evil.example", False),
    ],
)
def test_only_addresses_and_our_own_names_are_answered(host, own):
    assert is_own_name(host, "duly.internal") is own


async def test_every_answer_carries_the_security_headers_over_the_apps_own(gate):
    cookie = await let_in(gate)
    for answer in (await ask(gate), await ask(gate, cookie=cookie), await ask(gate, "/open")):
        assert answer[1].items() >= dict(HEADERS).items()
        assert b"access-control-allow-origin" not in answer[1]


async def test_forwarded_headers_do_not_reach_the_app(gate):
    cookie = await let_in(gate)
    _, _, body = await ask(gate, cookie=cookie, x_forwarded_prefix="/x", x_kept="1")
    assert "x-forwarded" not in body
    assert "x-kept" in body
