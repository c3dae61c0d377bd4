"""Generates the OpenAPI document from what the routes declare."""

from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Any

import msgspec

from duly.api.auth import REQUIRED_SCOPES, Access
from duly.api.routes import Operation, Parameter, Route
from duly.api.tasks.task_shapes import ErrorResponse

JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
BINARY_SCHEMA = {"type": "string", "format": "binary"}
REF_TEMPLATE = "#/components/schemas/{name}"
ALIAS_PREFIX = "/v1/jobs"
"""An alias of /v1/tasks, which is left out of the document."""
TENANT_PARAMETER = Parameter("tenant", "Act for this tenant. Requires the scope `admin`.")
"""Accepted by every route that requires a scope."""


def describe(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of `routes`."""
    listed = list(_operations(routes))
    kinds = [ErrorResponse]
    for _, _, operation in listed:
        several = (
            operation.response_body
            if isinstance(operation.response_body, tuple)
            else (operation.response_body,)
        )
        kinds += [
            k for k in (operation.request_body, *several) if k not in (None, str, bytes, object)
        ]
    refs, components = msgspec.json.schema_components(kinds, ref_template=REF_TEMPLATE)
    schemas = dict(zip(kinds, refs, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for path, name, operation in listed:
        described = _operation(path, name, operation, schemas)
        paths.setdefault(path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Duly",
            "version": "v1",
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
            if not path.startswith(ALIAS_PREFIX):
                yield path, route.name, route.operation


def _operation(path: str, name: str, operation: Operation, schemas: Any) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": name,
        "summary": operation.summary,
        "tags": [path.removeprefix("/v1/").strip("/").partition("/")[0]],
        "parameters": [*_path_parameters(path), *map(_parameter, _query_parameters(operation))],
        "responses": _responses(operation, schemas),
    }
    if operation.accepts_idempotency_key:
        described["parameters"].append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "schema": {"type": "string"},
                "description": "Repeating a submission with the same key submits nothing new.",
            }
        )
    if operation.access is not Access.PUBLIC:
        described["security"] = [{"key": []}]
        described["description"] = f"Access: `{operation.access}`."
    if operation.request_body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {
                _request_type(operation): {
                    "schema": schemas.get(operation.request_body, BINARY_SCHEMA)
                }
            },
        }
    return described


def _request_type(operation: Operation) -> str:
    if operation.request_body is bytes:
        return "application/octet-stream"
    text = operation.media_type == "text/plain"
    return "application/json" if text else operation.media_type


def _responses(operation: Operation, schemas: Any) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status in operation.statuses:
        responses[str(status)] = {"description": HTTPStatus(status).phrase}
        if operation.response_body is not None:
            schema = schemas.get(operation.response_body, {"type": "string"})
            if operation.response_body is bytes:
                schema = BINARY_SCHEMA
            elif operation.response_body is object:
                schema = {}
            elif isinstance(operation.response_body, tuple):
                schema = {"oneOf": [schemas[kind] for kind in operation.response_body]}
            responses[str(status)]["content"] = {operation.media_type: {"schema": schema}}
    errors = {*operation.errors, 503}
    if operation.access in REQUIRED_SCOPES:
        errors.add(404)  # if it names a tenant that does not exist
    if operation.access is not Access.PUBLIC:
        errors |= {400, 401, 403, 422}
    if operation.query or operation.request_body is not None:
        errors |= {400, 422}
    for status in sorted(errors):
        responses[str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {"application/json": {"schema": schemas[ErrorResponse]}},
        }
    return responses


def _query_parameters(operation: Operation) -> tuple[Parameter, ...]:
    own = operation.query
    return (*own, TENANT_PARAMETER) if operation.access in REQUIRED_SCOPES else own


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in ("id", "name")
        if f"{{{name}}}" in path
    ]


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": JSON_TYPES[parameter.kind]}
    if parameter.minimum is not None:
        schema["minimum"] = parameter.minimum
    if parameter.maximum is not None:
        schema["maximum"] = parameter.maximum
    if parameter.repeatable:
        schema = {"type": "array", "items": schema}
    return {
        "name": parameter.name,
        "in": "query",
        "description": parameter.description,
        "schema": schema,
    }
