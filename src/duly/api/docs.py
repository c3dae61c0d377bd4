"""The reference of the API: the document for programs, and a page for people.

The page is made from the document on this server and loads nothing, so it works
where there is no way out to the internet.
"""

from html import escape
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from duly.api import openapi
from duly.api.auth import Access
from duly.api.responses import ENCODER, JSON
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
<html lang="en"><head><meta charset="utf-8"><title>Duly: reference of the API</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{style}</style></head>
<body><h1>Duly {version}</h1><p>{about}</p>
<p>The same for programs: <a href="/v1/openapi.json"><code>/v1/openapi.json</code></a>.
<code>/v1/jobs</code> is the same as <code>/v1/tasks</code>.</p>
{operations}<h2>Shapes</h2>{shapes}</body></html>
"""


def handlers(described: list[Route]) -> list[Route]:
    """Return the routes that describe `described`, and themselves."""

    @route("GET", "/v1/openapi.json", "Read this description", access=Access.PUBLIC, gives=object)
    async def read_openapi(request: Request) -> Response:
        """Return the OpenAPI document."""
        return Response(document, media_type=JSON)

    @route(
        "GET",
        "/docs",
        "Read the reference",
        access=Access.PUBLIC,
        gives=str,
        media_type="text/html",
    )
    async def read_docs(request: Request) -> Response:
        """Return the reference as a page."""
        return HTMLResponse(page)

    own = [read_openapi, read_docs]
    content = openapi.describe([*described, *own])
    document = ENCODER.encode(content)
    page = render(content)
    return own


def render(document: dict[str, Any]) -> str:
    """Return the document as a page that needs nothing else."""
    operations = "".join(
        _operation(path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    )
    shapes = "".join(
        _shape(name, shape) for name, shape in sorted(document["components"]["schemas"].items())
    )
    return PAGE.format(
        style=STYLE,
        version=escape(document["info"]["version"]),
        about=escape(document["info"]["description"]),
        operations=operations,
        shapes=shapes,
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
    answers = "".join(_response(status, r) for status, r in operation["responses"].items())
    return (
        f"<details><summary><span class=method>{method.upper()}</span> <code>{escape(path)}</code>"
        f" · {escape(operation['summary'])}</summary>"
        f"<p>{escape(operation.get('description', 'Needs no key.'))}</p>"
        f"<table>{rows}</table>{body}<ul>{answers}</ul></details>"
    )


def _response(status: str, response: dict[str, Any]) -> str:
    shapes = [_link(content["schema"]) for content in response.get("content", {}).values()]
    return f"<li>{status} {escape(response['description'])} {''.join(shapes)}</li>"


def _link(schema: dict[str, Any]) -> str:
    name = schema.get("$ref", "").rpartition("/")[2]
    if not name:
        return f"<code>{escape(str(schema.get('type', 'any JSON')))}</code>"
    return f'<a href="#{escape(name)}"><code>{escape(name)}</code></a>'


def _shape(name: str, shape: dict[str, Any]) -> str:
    fields = "\n".join(
        f"{field}: {_kind(kind)}" for field, kind in shape.get("properties", {}).items()
    )
    return (
        f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{escape(shape.get("description", ""))}</p>'
        f"<pre>{escape(fields)}</pre>"
    )


def _kind(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " | ".join(_kind(one) for one in schema["anyOf"])
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if schema.get("type") == "array":
        return f"[{_kind(schema.get('items', {}))}]"
    return str(schema.get("format", schema.get("type", "any")))
