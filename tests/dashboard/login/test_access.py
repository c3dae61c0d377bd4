"""The gate in front of the pages, driven as a web server would."""

from urllib.parse import urlencode, urlsplit

import pytest

from duly import clock
from duly.dashboard.login.access import Gate
from duly.dashboard.login.authentication import NO_RESPONSE, Authenticator
from duly.dashboard.login.gate_request import is_own_host, known_page
from duly.dashboard.login.link import LinkFile
from duly.dashboard.login.responses import HEADERS
from duly.dashboard.login.sessions import Sessions
from duly.dashboard.options import Link

HOST = "127.0.0.1:8471"
ORIGIN = f"http://{HOST}"
NOWHERE = "http://127.0.0.1:9"
FORM = "application/x-www-form-urlencoded"


async def inner(scope, receive, send):
    """An app that says yes to everything, as badly as it can."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        return
    headers = [(b"cache-control", b"public"), (b"access-control-allow-origin", b"*")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": repr(scope["headers"]).encode()})


@pytest.fixture
def link_file(tmp_path):
    """The file that the pages find their link in."""
    file = LinkFile(tmp_path / "pages.link")
    file.renew(ORIGIN)
    return file


@pytest.fixture
def gate(link_file):
    authenticator = Authenticator(NOWHERE, link=Link(str(link_file.file), "a key"))
    gate = Gate(inner, authenticator, Sessions(), "127.0.0.1", 8471)
    gate.link_query = query_of(link_file.file.read_text().strip())
    return gate


def query_of(link):
    return urlsplit(link).query


async def ask(
    gate,
    path="/",
    *,
    kind="http",
    query="",
    method="GET",
    host=HOST,
    scheme="http",
    body=b"",
    **headers,
):
    """Send one request through the gate, and return (status, headers, body)."""
    sent = []

    async def receive():
        kinds = {"websocket": "websocket.connect", "http": "http.request"}
        return {"type": kinds[kind], "body": body}

    async def send(message):
        sent.append(message)

    named = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
    scope = {
        "type": kind,
        "scheme": scheme,
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
    _, headers, _ = await ask(gate, "/open", query=gate.link_query)
    return headers[b"set-cookie"].decode().partition(";")[0]


async def send_form(gate, path="/login", **options):
    """Send the form to log in, as a browser does."""
    filled = b"tenant=acme&user=kim&password=correct+horse"
    asked = {"body": filled, "origin": ORIGIN, "content_type": FORM} | options
    return await ask(gate, path, method="POST", **asked)


async def test_a_stranger_is_led_to_the_form_from_every_path(gate):
    for path in ("/", "/_nicegui_ws/socket.io/", "/favicon.ico", "/anything"):
        status, _, body = await ask(gate, path)
        assert status == 401
        assert 'content="0; url=/login"' in body
        assert "open a link that <code>duly link</code> prints" in body
    assert await ask(gate, kind="websocket") == "websocket.close"


async def test_the_link_is_exchanged_for_a_strict_cookie(gate):
    status, headers, body = await ask(gate, "/open", query=gate.link_query)
    assert status == 200
    assert 'http-equiv="refresh"' in body
    cookie = headers[b"set-cookie"].decode()
    assert cookie.startswith("duly_pages_8471=")
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict")
    assert gate.link_query.removeprefix("token=") not in cookie


async def test_the_cookie_opens_pages_and_websocket(gate):
    cookie = await let_in(gate)
    assert (await ask(gate, cookie=f"other=a b[]; {cookie}"))[0] == 200
    origin = f"http://{HOST}"
    assert await ask(gate, kind="websocket", cookie=cookie, origin=origin) == "websocket.accept"


async def test_the_link_works_once(gate):
    await let_in(gate)
    status, headers, body = await ask(gate, "/open", query=gate.link_query)
    assert status == 403
    assert b"set-cookie" not in headers
    assert "has been used" in body


async def test_the_link_works_for_five_minutes(gate, link_file, monkeypatch):
    began = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: began + 301)
    status, headers, body = await ask(gate, "/open", query=gate.link_query)
    assert status == 403
    assert b"set-cookie" not in headers
    assert "has expired" in body and "<code>duly link</code>" in body
    monkeypatch.setattr(clock, "monotonic", lambda: began + 298)
    assert (await ask(gate, "/open", query=gate.link_query))[0] == 200


async def test_a_new_link_opens_and_voids_the_one_before(gate, link_file):
    new = query_of(link_file.renew(ORIGIN))
    status, _, body = await ask(gate, "/open", query=gate.link_query)
    assert (status, "<code>duly link</code>" in body) == (403, True)
    assert (await ask(gate, "/open", query=new))[0] == 200
    assert (await ask(gate, "/open", query=new))[0] == 403
    assert (await ask(gate, "/open", query=query_of(link_file.renew(ORIGIN))))[0] == 200


async def test_without_its_file_no_link_opens(gate, link_file):
    link_file.file.unlink()
    for query in ("", "token=", gate.link_query):
        assert (await ask(gate, "/open", query=query))[0] == 403


@pytest.mark.parametrize("query", ["", "token=", "token=wrong", "{right}x", "{right}0"])
async def test_a_wrong_token_lets_nobody_in_and_spends_nothing(gate, query):
    query = query.format(right=gate.link_query)
    assert (await ask(gate, "/open", query=query))[0] == 403
    assert (await ask(gate, "/open", query=gate.link_query))[0] == 200


async def test_only_a_get_spends_the_link(gate):
    assert (await ask(gate, "/open", query=gate.link_query, method="HEAD"))[0] == 403
    assert (await ask(gate, "/open", query=gate.link_query))[0] == 200


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
    status, _, _ = await ask(gate, "/open", query=gate.link_query, host="evil.example:8471")
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
    assert is_own_host(host, "duly.internal") is own


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


async def test_who_was_going_to_a_page_is_led_back_to_it(gate):
    _, _, body = await ask(gate, query="task=7251039274172416")
    assert 'url=/login?next=%2F%3Ftask%3D7251039274172416"' in body
    _, _, body = await ask(gate, "/login", query="next=/?task=7251039274172416")
    assert 'name="next" value="/?task=7251039274172416"' in body


@pytest.mark.parametrize(
    "where",
    [
        "//evil.example",
        "/\\evil.example",
        "https://evil.example/",
        "javascript:alert(1)",
        "/?task=1&x=//evil",
        "/?task=1\r\nSet-Cookie: a=b",
        "/\t/evil.example",
        "/logout",
        "/_nicegui/x",
        '/"><script>',
        "",
    ],
)
async def test_nobody_is_led_anywhere_else(gate, where):
    assert known_page(where) == "/"
    cookie = await let_in(gate)
    status, headers, _ = await ask(gate, "/login", query=urlencode({"next": where}), cookie=cookie)
    assert (status, headers[b"location"]) == (303, b"/")


async def test_the_form_shows_what_was_given_as_text(gate):
    _, _, body = await ask(gate, "/login", query=urlencode({"tenant": '"><script>', "why": "<b>"}))
    assert 'value="&quot;&gt;&lt;script&gt;"' in body
    assert "<b>" not in body


@pytest.mark.parametrize("origin", ["http://evil.example", "null", f"{ORIGIN}0", None])
@pytest.mark.parametrize("path", ["/login", "/logout"])
async def test_no_other_page_logs_a_browser_in_or_out(gate, path, origin):
    cookie = await let_in(gate)
    foreign = {} if origin is None else {"origin": origin}
    answer = await ask(gate, path, method="POST", cookie=cookie, content_type=FORM, **foreign)
    assert answer[0] == 403
    assert b"set-cookie" not in answer[1]
    assert (await ask(gate, cookie=cookie))[0] == 200


async def test_without_a_server_the_form_says_so_and_keeps_all_but_the_password(gate):
    status, headers, body = await send_form(gate)
    assert status == 503
    assert NO_RESPONSE in body
    assert NOWHERE not in body
    assert 'value="kim"' in body
    assert "horse" not in body
    assert b"set-cookie" not in headers


@pytest.mark.parametrize(
    "odd",
    [
        {"content_type": "text/plain"},
        {"body": b"x" * 20_000},
        {"body": b"&".join(b"a=1" for _ in range(30))},
        {"body": b"tenant=%ff%00&user=%ed%a0%80&password="},
    ],
)
async def test_what_is_no_form_lets_nobody_in(gate, odd):
    status, headers, _ = await send_form(gate, **odd)
    assert status in (400, 401, 503)
    assert b"set-cookie" not in headers


async def test_the_cookie_is_for_tls_alone_where_there_is_tls(gate):
    _, headers, _ = await ask(gate, "/open", query=gate.link_query, scheme="https")
    assert headers[b"set-cookie"].endswith(b"; HttpOnly; SameSite=Strict; Secure")


async def test_who_logs_out_is_out(gate):
    cookie = await let_in(gate)
    status, headers, _ = await send_form(gate, "/logout", cookie=cookie)
    assert (status, headers[b"location"]) == (303, b"/login?why=out")
    assert headers[b"set-cookie"].startswith(b"duly_pages_8471=; ")
    assert headers[b"set-cookie"].endswith(b"; Max-Age=0")
    assert (await ask(gate, cookie=cookie))[0] == 401
    assert (await ask(gate, "/logout", cookie=cookie))[0] == 405


async def test_pages_without_a_link_speak_of_none():
    gate = Gate(inner, Authenticator(NOWHERE), Sessions(), "127.0.0.1", 8471)
    for path in ("/", "/login", "/open"):
        assert "duly up" not in (await ask(gate, path, query="token="))[2]
