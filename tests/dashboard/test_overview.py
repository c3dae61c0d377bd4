"""The overview in a real browser, with a real Duly behind it."""

import signal
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

import duly

EVIL = "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'> **b** {{ 7 * 7 }}"
SECONDS = 1000


@pytest.fixture
def client(place):
    with duly.Client(place.url, place.key) as client:
        yield client


@pytest.fixture
def asked():
    """The addresses that the browser asks for."""
    return []


@pytest.fixture
def page(browser, asked):
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.set_default_timeout(20 * SECONDS)
    page.on("request", lambda request: asked.append(request.url))
    page.on("websocket", lambda socket: asked.append(socket.url))
    page.on("pageerror", lambda error: pytest.fail(f"the page broke: {error}"))
    return page


def count(page, status):
    return page.locator(f".count.{status} .number")


@pytest.mark.timeout(180)
def test_the_overview_shows_what_happens_and_nothing_of_it_as_code(link, client, page, asked):
    root = link.partition("open?")[0]

    # Without the link there is nothing to see.
    assert page.goto(root).status == 401
    expect(page.locator("body")).to_contain_text("open a link that duly link prints")

    # The link opens it; a newcomer is told what to type.
    page.goto(link)
    expect(page).to_have_url(root)
    expect(page.get_by_text("duly run -- echo hello")).to_be_visible()
    expect(page.get_by_role("meter", name="cpu in use")).to_have_count(1)

    # A task appears by itself, its name as text.
    task = client.submit(
        name=EVIL,
        command=["sh", "-c", "echo '<b onclick=alert(1)>the end</b>'; exit 3"],
        max_attempts=1,
    )
    client.wait(task["id"], timeout=60)
    row = page.locator("tbody tr").filter(has_text=task["id"])
    expect(row).to_contain_text("failed")
    expect(row).to_contain_text(EVIL)
    expect(count(page, "failed")).to_have_text("1")

    # Its details open with the keyboard, with the reason and the end of the log as text.
    row.get_by_role("button").focus()
    page.keyboard.press("Enter")
    details = page.get_by_role("dialog")
    expect(details.locator("h2")).to_have_text(EVIL)
    expect(details.locator("pre")).to_have_text("<b onclick=alert(1)>the end</b>")
    expect(details.locator(".why")).to_contain_text("3")
    page.keyboard.press("Escape")
    expect(details).to_have_count(0)

    assert page.evaluate("window.pwned") is None
    assert {urlsplit(url).hostname for url in asked if not url.startswith("data:")} == {"127.0.0.1"}
    assert client.endpoint.key not in page.content()


@pytest.mark.timeout(180)
def test_an_administrator_chooses_a_tenant(link, client, place, page):
    client.create_tenant("acme", "standard")
    client.create_tenant("idle", "standard")
    key = client.create_key(tenant="acme", scopes=["submit", "read"])["key"]
    mine = client.submit(command=["true"], run_at="2100-01-01T00:00:00Z")["id"]
    with duly.Client(place.url, key) as acme:
        theirs = acme.submit(command=["true"], run_at="2100-01-01T00:00:00Z")["id"]

    page.goto(link)
    rows = page.locator("tbody tr")
    select = page.get_by_label("Tenant")
    expect(rows).to_have_count(2)
    expect(select).to_have_value("")
    expect(select.locator("option")).to_have_text(["All tenants", "acme", "default", "idle"])
    expect(count(page, "scheduled")).to_have_text("2")

    select.select_option("acme")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text(theirs)
    expect(count(page, "scheduled")).to_have_text("1")
    expect(page.get_by_role("meter", name="cpu in use")).to_have_count(1)

    # It stays chosen while the page refreshes, and its details open.
    with duly.Client(place.url, key) as acme:
        acme.submit(command=["true"], run_at="2100-01-01T00:00:00Z")
    client.submit(command=["true"], run_at="2100-01-01T00:00:00Z")
    expect(rows).to_have_count(2)
    expect(select).to_have_value("acme")
    rows.filter(has_text=theirs).get_by_role("button").click()
    expect(page.get_by_role("dialog")).to_contain_text("acme")
    page.keyboard.press("Escape")

    select.select_option("idle")
    expect(page.get_by_text("This tenant has no tasks.")).to_be_visible()
    expect(page.get_by_text("duly run -- echo hello")).to_be_hidden()

    select.select_option("")
    expect(rows).to_have_count(4)
    expect(rows.filter(has_text=mine)).to_have_count(1)


@pytest.mark.timeout(180)
def test_a_refresh_leaves_the_focus_where_it_is(link, client, page):
    page.goto(link)
    task = client.submit(name="nap", command=["sleep", "60"])
    row = page.locator("tbody tr").filter(has_text=task["id"])
    expect(row).to_contain_text("running")
    ran = row.locator(".c-ran")
    before = ran.text_content()
    row.get_by_role("button").focus()
    expect(ran).not_to_have_text(before)
    expect(row.get_by_role("button")).to_be_focused()


@pytest.mark.timeout(180)
def test_ctrl_c_at_duly_up_with_an_open_page_leaves_no_traceback(link, place, page):
    page.goto(link)
    expect(page.get_by_role("status").first).to_have_text("live")
    place._up.send_signal(signal.SIGINT)
    assert place._up.wait(60) == 130
    assert "Traceback" not in place.output and "ERROR" not in place.output
