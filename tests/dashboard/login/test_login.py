"""Logging in to the pages with a password, and out again: one server, one browser."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

import duly
from duly.dashboard.login.authentication import NO_RETRIES
from duly.errors import DulyError, LimitExceeded
from tests.conftest import _run, drop_database, with_database
from tests.dashboard.conftest import await_listener, chromium

DULY = Path(sys.executable).with_name("duly")
SECRET = "correct horse"
SCOPES = {"kim": ["read", "submit"], "sam": ["submit"], "ann": ["admin"], "lee": ["read"]}


@pytest.fixture(scope="module")
def served(postgres, process, free_ports, tmp_path_factory):
    """A server with the tenants acme and globex: its process, and the administrator's client."""
    name = f"pages_{os.getpid()}"
    asyncio.run(_run(postgres, f"create database {name} template template_duly"))
    dsn, folder, port = (
        with_database(postgres, name),
        tmp_path_factory.mktemp("pages"),
        free_ports(),
    )
    environment = {**os.environ, "DULY_DATABASE": dsn}
    init = [DULY, "db", "init", "--admin-key-file", folder / "admin.key"]
    subprocess.run(init, env=environment, check=True)
    serve = [DULY, "serve", "--port", str(port), "--store", str(folder / "objects")]
    with process(*serve, DULY_DATABASE=dsn) as server:
        key = (folder / "admin.key").read_text().strip()
        with duly.Client(f"http://127.0.0.1:{port}", key) as client:
            client.healthz()
            settle(client)
            yield server, client
    asyncio.run(drop_database(postgres, name))


@pytest.fixture(scope="module")
def admin(served):
    """The administrator's client."""
    return served[1]


def settle(client):
    """Make the people: in acme one of each kind, and somebody elsewhere with a task."""
    for tenant in ("acme", "globex"):
        client.create_tenant(tenant, "standard")
    for user, scopes in SCOPES.items():
        client.create_user(user, tenant="acme", password=SECRET, scopes=scopes)
    client.create_user("eve", tenant="globex", password=SECRET)
    for tenant in ("acme", "globex"):
        key = client.create_key(["submit"], tenant=tenant)["key"]
        with duly.Client(client.endpoint.name, key) as own:
            own.submit(name=f"a task of {tenant}", command=["true"], run_at="2099-01-01T00:00:00Z")


@pytest.fixture(scope="module")
def root(admin, process, free_ports, tmp_path_factory):
    """Where `duly dashboard` serves the pages, with TLS."""
    folder, port = tmp_path_factory.mktemp("certificate"), free_ports()
    certify = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 1"
    made = [*certify.split(), "-subj", "/CN=localhost", "-keyout", "key", "-out", "certificate"]
    subprocess.run(made, cwd=folder, capture_output=True, check=True)
    tls = ["--tls-cert", str(folder / "certificate"), "--tls-key", str(folder / "key")]
    with process(DULY, "dashboard", "--url", admin.endpoint.name, "--port", str(port), *tls):
        await_listener(port)
        yield f"https://127.0.0.1:{port}/"
    # When the pages end, what was begun there ends at the server, too.
    assert not live_logins(admin, "sam")


@pytest.fixture(scope="module")
def browser(root):
    """One browser for all; it begins after the database and ends before it."""
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser, root):
    """A browser that was never here, on its way to the overview."""
    page = browser.new_context(ignore_https_errors=True).new_page()
    page.on("pageerror", lambda error: pytest.fail(f"the page broke: {error}"))
    page.set_default_timeout(20_000)
    page.goto(root)
    expect(page).to_have_url(f"{root}login")
    return page


def log_in(page, tenant="acme", user="kim", password=SECRET):
    page.get_by_label("Tenant").fill(tenant)
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


def live_logins(admin, user):
    keys = admin.list_keys(tenant="acme", user=user)["items"]
    return [key for key in keys if key["login"] and key["status"] == "active"]


def test_a_user_logs_in_sees_its_own_tenant_and_logs_out(page, root, admin, browser):
    # A wrong password, user or tenant: the same sentence, and no session.
    for wrong in ({"password": "wrong horse"}, {"user": "nobody"}, {"tenant": "globex"}):
        log_in(page, **wrong)
        alert = page.get_by_role("alert")
        expect(alert).to_have_text("The tenant, the user or the password is wrong.")
        assert page.context.cookies() == []

    log_in(page)
    expect(page).to_have_url(root)
    expect(page.get_by_label("Logged in as")).to_have_text("acme / kim")
    expect(page.get_by_role("button", name="a task of acme")).to_be_visible()
    expect(page.get_by_text("globex")).to_have_count(0)
    expect(page.get_by_role("region", name="Nodes")).to_have_count(0)
    expect(page.get_by_role("combobox")).to_have_count(0)

    # The browser holds a random id that no script can read; the key is not in it, nor the page.
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["secure"]) == (True, "Strict", True)
    assert page.evaluate("document.cookie") == ""
    assert "duly_" not in page.content().replace("duly_pages", "")
    (key,) = live_logins(admin, "kim")
    assert key["prefix"] not in str(page.context.storage_state())

    # Whoever is in need not log in again; whoever logs out is out, here and at the server.
    page.goto(f"{root}login")
    expect(page).to_have_url(root)
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("status")).to_have_text("You have logged out.")
    assert live_logins(admin, "kim") == []
    assert page.context.cookies() == []
    thief = browser.new_context(ignore_https_errors=True)
    thief.add_cookies([cookie])
    assert thief.new_page().goto(root).status == 401


def test_a_session_that_ends_leads_to_the_form_and_back(page, root, admin):
    log_in(page)
    page.get_by_role("button", name="a task of acme").click()
    expect(page.get_by_role("dialog").locator("h2")).to_have_text("a task of acme")
    expect(page).to_have_url(re.compile(r"\?task="))
    where = page.url

    # A new password ends what the old one began.
    admin.update_user("kim", tenant="acme", password="another horse")
    expect(page.get_by_role("status")).to_contain_text("Your session has ended.")
    log_in(page)
    expect(page.get_by_role("alert")).to_contain_text("is wrong")
    log_in(page, password="another horse")
    expect(page).to_have_url(where)
    expect(page.get_by_role("dialog").locator("h2")).to_have_text("a task of acme")
    admin.update_user("kim", tenant="acme", password=SECRET)


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ("sam", "Your user lacks the scope read; its scopes are submit."),
        ("ann", "No nodes yet, so no task can start."),
    ],
)
def test_a_user_is_shown_what_its_scopes_allow(page, user, message):
    log_in(page, user=user)
    expect(page.get_by_label("Logged in as")).to_have_text(f"acme / {user}")
    expect(page.get_by_text(message)).to_be_visible()
    expect(page.get_by_role("alert")).to_be_hidden()


def test_too_many_guesses_are_told_how_long_to_wait(page, admin):
    with duly.Client(admin.endpoint.name, patience=NO_RETRIES) as stranger:
        for _ in range(20):
            with pytest.raises(DulyError) as refused:
                stranger.log_in("acme", "lee", "wrong horse")
            if isinstance(refused.value, LimitExceeded):
                break
    log_in(page, user="lee")
    expect(page.get_by_role("alert")).to_contain_text("Limit exceeded")
    expect(page.get_by_role("alert")).to_contain_text("try again in")


def test_a_suspended_tenant_may_look(page, root, admin):
    admin.suspend_tenant("acme")
    try:
        log_in(page)
        expect(page).to_have_url(root)
        expect(page.get_by_text("Your tenant is suspended")).to_be_visible()
        expect(page.get_by_role("button", name="a task of acme")).to_be_visible()
    finally:
        admin.resume_tenant("acme")


def test_whoever_logs_out_is_told_so_however_long_it_takes(page, root, served):
    server, admin = served
    log_in(page)
    expect(page).to_have_url(root)
    server.send_signal(signal.SIGSTOP)
    try:
        # The pages wait for the server longer than from one look of a page to the next.
        page.get_by_role("button", name="Log out").click(no_wait_after=True)
        note = page.get_by_role("status")
        expect(note).to_have_text(re.compile("You have logged out here"), timeout=20_000)
    finally:
        server.send_signal(signal.SIGCONT)
    for key in live_logins(admin, "kim"):
        admin.revoke_key(key["id"], tenant="acme")
