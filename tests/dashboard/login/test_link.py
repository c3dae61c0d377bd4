"""The one-time link, with real browsers and a real web server."""

import contextlib
import http.client

from playwright.sync_api import expect

NOWHERE = "http://127.0.0.1:9"


def test_the_link_is_for_one_browser(pages, free_ports, browser):
    first, second = browser.new_context().new_page(), browser.new_context().new_page()
    with pages(NOWHERE, free_ports()) as link:
        root = link.partition("open?")[0]
        first.goto(link)
        expect(first).to_have_url(root)
        refused = second.goto(link)
        assert refused.status == 403
        assert "has been used" in refused.text()
        assert second.goto(root).status == 401
        assert first.goto(root).status == 200


def test_an_open_page_notices_that_the_pages_were_started_again(pages, free_ports, browser):
    page, port = browser.new_page(), free_ports()
    with pages(NOWHERE, port) as link:
        page.goto(link)
        expect(page.get_by_role("status").first).to_have_text("not reachable", timeout=20_000)
    with pages(NOWHERE, port):
        expect(page.get_by_text("Your session has ended.")).to_be_visible(timeout=20_000)


def test_the_websocket_is_closed_to_strangers(pages, free_ports):
    port = free_ports()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with pages(NOWHERE, port), contextlib.closing(connection):
        connection.request(
            "GET",
            "/_nicegui_ws/socket.io/?EIO=4&transport=websocket",
            headers={
                "Connection": "Upgrade",
                "Upgrade": "websocket",
                "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
            },
        )
        assert connection.getresponse().status == 403
