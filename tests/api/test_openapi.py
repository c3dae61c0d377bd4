"""The OpenAPI document describes every route and its responses correctly."""

from html.parser import HTMLParser

import jsonschema_rs


async def test_every_route_is_described(api):
    document = await api.get("/v1/openapi.json")
    app = api.client._transport.app
    served = {
        (path, route.operation.method.lower())
        for path, route in app.routes
        if not path.startswith("/v1/jobs")
    }
    described = {
        (path, method) for path, methods in document["paths"].items() for method in methods
    }
    assert described == served


async def test_every_operation_says_what_it_takes_and_gives_and_refuses(api):
    document = await api.get("/v1/openapi.json")
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            responses = operation["responses"]
            assert operation["summary"], path
            if method in ("put", "patch"):
                assert "requestBody" in operation, path
            assert any(status.startswith("2") for status in responses)
            for status, response in responses.items():
                assert status == "204" or response["content"], (path, status)
            if "security" in operation:
                assert {"401", "403", "503"} <= responses.keys()
            if "{id}" in path:
                assert "404" in responses


async def test_every_schema_is_a_valid_one(api):
    document = await api.get("/v1/openapi.json")
    for name, schema in document["components"]["schemas"].items():
        assert jsonschema_rs.meta.is_valid(schema), name
    assert document["openapi"] == "3.1.0"


class Links(HTMLParser):
    """Collects what a page would load or lead to."""

    def __init__(self):
        super().__init__()
        self.loads, self.anchors, self.names = [], set(), set()

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.names.add(given.get("id"))
        if tag in ("script", "link", "img", "iframe") or "src" in given:
            self.loads.append(tag)
        if given.get("href", "").startswith("#"):
            self.anchors.add(given["href"][1:])


async def test_the_page_for_people_loads_nothing_and_its_links_lead_somewhere(api):
    answer = await api.with_key(None).call("GET", "/docs")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    links = Links()
    links.feed(answer.text)
    assert links.loads == []
    assert links.anchors <= links.names
    assert "http://" not in answer.text
    assert "https://" not in answer.text
    assert "/v1/tasks/{id}/why" in answer.text
