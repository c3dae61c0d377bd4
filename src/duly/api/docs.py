"""Serves the OpenAPI document and an HTML reference rendered from it.

The page loads no external resources, so it also works without access to the internet.
"""

from html import escape
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from duly.api import openapi
from duly.api.auth import Access
from duly.api.responses import ENCODER, JSON_MEDIA_TYPE
from duly.api.routes import Route, route

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 56rem; padding: 0 1rem;
  color: #1d2129; background: #fff; }
h1, h2 { line-height: 1.2; } code, pre { font: 14px/1.45 ui-monospace, monospace; }
pre { background: #f5f6f8; padding: .75rem; overflow-x: auto; border-radius: 6px; }
details { border-top: 1px solid #dfe2e8; padding: .5rem 0; } summary { cursor: pointer; }
.method { display: inline-block; min-width: 4.5rem; font-weight: 700; }
td, th { text-align: left; vertical-align: top; padding: .15rem 1rem .15rem 0; }
@media (prefers-color-scheme: dark) {
  body { color: #e6e8ec; background: #15181d; } pre { background: #20242b; }
  details { border-color: #333943; } a { color: #8ab4ff; } }
"""
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Duly: API reference</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{style}</style></head>
<body><h1>Duly: API {version}</h1><p>{about}</p>
<p>OpenAPI document: <a href="/v1/openapi.json"><code>/v1/openapi.json</code></a>.
<code>/v1/jobs</code> is an alias of <code>/v1/tasks</code>.</p>
{operations}<h2>Schemas</h2>{schemas}</body></html>
"""


def handlers(described: list[Route]) -> list[Route]:
    """Return the routes that serve the reference of `described` and of themselves."""

    @route(
        "GET",
        "/v1/openapi.json",
        "Get the OpenAPI document",
        access=Access.PUBLIC,
        response_body=object,
    )
    async def read_openapi(request: Request) -> Response:
        """Get the OpenAPI document."""
        return Response(document, media_type=JSON_MEDIA_TYPE)

    @route(
        "GET",
        "/docs",
        "Get the API reference as a web page",
        access=Access.PUBLIC,
        response_body=str,
        media_type="text/html",
    )
    async def read_docs(request: Request) -> Response:
        """Get the API reference as a web page."""
        return HTMLResponse(page)

    own = [read_openapi, read_docs]
    content = openapi.describe([*described, *own])
    document = ENCODER.encode(content)
    page = render(content)
    return own


def render(document: dict[str, Any]) -> str:
    """Return the OpenAPI document as a self-contained HTML page."""
    operations = "".join(
        _operation(path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    )
    schemas = "".join(
        _schema(name, schema) for name, schema in sorted(document["components"]["schemas"].items())
    )
    return PAGE.format(
        style=STYLE,
        version=escape(document["info"]["version"]),
        about=escape(document["info"]["description"]),
        operations=operations,
        schemas=schemas,
    )


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(p['name'])}</code></td>"
        f"<td>{escape(p.get('description', ''))}</td></tr>"
        for p in operation["parameters"]
    )
    body = "".join(
        f"<p>Takes {_link(content['schema'])}.</p>"
        for content in operation.get("requestBody", {}).get("content", {}).values()
    )
    responses = "".join(_response(status, r) for status, r in operation["responses"].items())
    return (
        f"<details><summary><span class=method>{method.upper()}</span> <code>{escape(path)}</code>"
        f" · {escape(operation['summary'])}</summary>"
        f"<p>{escape(operation.get('description', 'Needs no key.'))}</p>"
        f"<table>{rows}</table>{body}<ul>{responses}</ul></details>"
    )


def _response(status: str, response: dict[str, Any]) -> str:
    links = [_link(content["schema"]) for content in response.get("content", {}).values()]
    return f"<li>{status} {escape(response['description'])} {''.join(links)}</li>"


def _link(schema: dict[str, Any]) -> str:
    name = schema.get("$ref", "").rpartition("/")[2]
    if not name:
        return f"<code>{escape(str(schema.get('type', 'any JSON_MEDIA_TYPE')))}</code>"
    return f'<a href="#{escape(name)}"><code>{escape(name)}</code></a>'


def _schema(name: str, schema: dict[str, Any]) -> str:
    fields = "\n".join(
        f"{field}: {_type_name(kind)}" for field, kind in schema.get("properties", {}).items()
    )
    return (
        f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{escape(schema.get("description", ""))}</p>'
        f"<pre>{escape(fields)}</pre>"
    )


def _type_name(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " | ".join(_type_name(option) for option in schema["anyOf"])
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if schema.get("type") == "array":
        return f"[{_type_name(schema.get('items', {}))}]"
    return str(schema.get("format", schema.get("type", "any")))
