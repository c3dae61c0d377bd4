"""The description of the API, made from what the routes declare of themselves."""

from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Any

import msgspec

import duly
from duly.api.auth import SCOPES, Access
from duly.api.routes import Operation, Parameter, Route
from duly.api.shapes import ErrorAnswer

KINDS = {str: "string", int: "integer", float: "number", bool: "boolean"}
BINARY = {"type": "string", "format": "binary"}
TEMPLATE = "#/components/schemas/{name}"
ALIAS = "/v1/jobs"
"""The same as /v1/tasks; described once."""
TENANT = Parameter("tenant", "Act for this tenant; only with the scope `admin`.")
"""Where a key with a scope is asked for, an administrator may name a tenant."""


def describe(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of `routes`."""
    listed = list(_operations(routes))
    kinds = [ErrorAnswer]
    for _, _, operation in listed:
        several = operation.gives if isinstance(operation.gives, tuple) else (operation.gives,)
        kinds += [k for k in (operation.takes, *several) if k not in (None, str, bytes, object)]
    refs, components = msgspec.json.schema_components(kinds, ref_template=TEMPLATE)
    schemas = dict(zip(kinds, refs, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for path, name, operation in listed:
        described = _operation(path, name, operation, schemas)
        paths.setdefault(path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Duly",
            "version": duly.__version__,
            "description": "A distributed, multi-tenant task scheduler: in due time, as promised.",
        },
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": components,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "An API key."}
            },
        },
    }


def _operations(routes: Iterable[Route]) -> Iterator[tuple[str, str, Operation]]:
    for route in routes:
        for path in sorted(route.paths):
            if not path.startswith(ALIAS):
                yield path, route.name, route.operation


def _operation(path: str, name: str, operation: Operation, schemas: Any) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": name,
        "summary": operation.summary,
        "tags": [path.removeprefix("/v1/").strip("/").partition("/")[0]],
        "parameters": [*_path_parameters(path), *map(_parameter, _query(operation))],
        "responses": _responses(operation, schemas),
    }
    if operation.takes_key:
        described["parameters"].append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "schema": {"type": "string"},
                "description": "Makes a repeated submission the same one.",
            }
        )
    if operation.access is not Access.PUBLIC:
        described["security"] = [{"key": []}]
        described["description"] = f"Access: `{operation.access}`."
    if operation.takes is not None:
        described["requestBody"] = {
            "required": True,
            "content": {_request_type(operation): {"schema": schemas.get(operation.takes, BINARY)}},
        }
    return described


def _request_type(operation: Operation) -> str:
    if operation.takes is bytes:
        return "application/octet-stream"
    text = operation.media_type == "text/plain"
    return "application/json" if text else operation.media_type


def _responses(operation: Operation, schemas: Any) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status in operation.statuses:
        responses[str(status)] = {"description": HTTPStatus(status).phrase}
        if operation.gives is not None:
            schema = schemas.get(operation.gives, {"type": "string"})
            if operation.gives is bytes:
                schema = BINARY
            elif operation.gives is object:
                schema = {}
            elif isinstance(operation.gives, tuple):
                schema = {"oneOf": [schemas[kind] for kind in operation.gives]}
            responses[str(status)]["content"] = {operation.media_type: {"schema": schema}}
    known = {*operation.errors, 503}
    if operation.access in SCOPES:
        known.add(404)  # if it names a tenant that does not exist
    if operation.access is not Access.PUBLIC:
        known |= {400, 401, 403, 422}
    if operation.query or operation.takes is not None:
        known |= {400, 422}
    for status in sorted(known):
        responses[str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {"application/json": {"schema": schemas[ErrorAnswer]}},
        }
    return responses


def _query(operation: Operation) -> tuple[Parameter, ...]:
    own = operation.query
    return (*own, TENANT) if operation.access in SCOPES else own


def _path_parameters(path: str) -> list[dict[str, Any]]:
    if "{id}" not in path:
        return []
    return [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": KINDS[parameter.kind]}
    if parameter.minimum is not None:
        schema["minimum"] = parameter.minimum
    if parameter.maximum is not None:
        schema["maximum"] = parameter.maximum
    if parameter.several:
        schema = {"type": "array", "items": schema}
    return {
        "name": parameter.name,
        "in": "query",
        "description": parameter.description,
        "schema": schema,
    }
