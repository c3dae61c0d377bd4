"""Artifacts: bundles that tasks are run in, uploaded once and named by their hash.

Bytes pass through: neither on the way in nor on the way out is more than a part of them held.
"""

from starlette.requests import Request
from starlette.responses import Response

from duly.api.auth import Access, may_submit
from duly.api.body import announced_bytes, stream_body
from duly.api.download import Download
from duly.api.query import query_of, write_cursor
from duly.api.reading import reading
from duly.api.responses import as_json, no_content
from duly.api.routes import credential_of, parts_of, route
from duly.api.shapes import ArtifactAnswer, Page
from duly.api.tasks import PAGE
from duly.errors import NotFound
from duly.model.artifact import SHA256
from duly.server.artifacts import no_artifact
from duly.store import artifacts
from duly.store.artifacts import Artifact

ALL = "/v1/artifacts"
ONE = "/v1/artifacts/{id}"
BYTES = "application/octet-stream"


@route(
    "PUT",
    ONE,
    "Upload an artifact",
    access=Access.SUBMIT,
    takes=bytes,
    gives=ArtifactAnswer,
    statuses=(200, 201),
    errors=(400, 413, 422, 429),
)
async def put_artifact(request: Request) -> Response:
    """Take in the bytes; 200 means that they were there already."""
    parts, credential = parts_of(request), credential_of(request)
    query_of(request)
    sha256 = _hash_of(request)
    async with parts.timeouts.reading():
        upload = await parts.artifacts.begin(credential, sha256, announced_bytes(request.scope))
    created = False
    if upload is not None:
        async with upload:
            async for data in stream_body(request):
                await upload.take(data)
            upload.seal()
            created = await parts.timeouts.writing(upload.finish())
    return as_json(_told(await _find(request, sha256)), 201 if created else 200)


@route("GET", ONE, "Download an artifact", access=Access.READ, gives=bytes, media_type=BYTES)
async def get_artifact(request: Request) -> Download:
    """Return the bytes."""
    query_of(request)
    found = await _find(request, _hash_of(request))
    data = await parts_of(request).artifacts.open(credential_of(request).tenant_id, found)
    headers = {"content-length": str(found.bytes), "etag": f'"{found.sha256.hex()}"'}
    return Download(request, data, BYTES, headers)


@route(
    "HEAD",
    ONE,
    "See whether there is an artifact",
    access=Access.READ,
    gives=bytes,
    media_type=BYTES,
)
async def head_artifact(request: Request) -> Response:
    """Say how many bytes there are.

    Whoever may submit asks in order not to send it, and names it in a task soon.
    """
    query_of(request)
    parts, credential, sha256 = parts_of(request), credential_of(request), _hash_of(request)
    found = await _find(request, sha256)
    if may_submit(credential):
        async with parts.timeouts.reading():
            if not await parts.artifacts.is_there(credential.tenant_id, found):
                raise no_artifact(sha256)
    return Response(headers={"content-length": str(found.bytes)}, media_type=BYTES)


@route(
    "GET",
    ALL,
    "List the artifacts, newest first",
    access=Access.READ,
    gives=Page[ArtifactAnswer],
    query=PAGE,
    errors=(422,),
)
async def list_artifacts(request: Request) -> Response:
    """Return a page of the artifacts."""
    credential, query = credential_of(request), query_of(request)
    limit, before = query.limit(), query.before()
    async with reading(parts_of(request), credential) as conn:
        found = await artifacts.read(conn, credential.tenant_id, before=before, limit=limit + 1)
    cursor = write_cursor(found[limit - 1].id) if len(found) > limit else None
    return as_json(Page([_told(one) for one in found[:limit]], cursor))


@route(
    "DELETE",
    ONE,
    "Remove an artifact that nobody needs",
    access=Access.MANAGE,
    statuses=(204,),
    errors=(404, 409),
)
async def remove_artifact(request: Request) -> Response:
    """Remove it, unless a live task or a schedule needs it."""
    parts = parts_of(request)
    query_of(request)
    sha256 = _hash_of(request)
    await parts.timeouts.writing(parts.artifacts.remove(credential_of(request), sha256))
    return no_content()


async def _find(request: Request, sha256: bytes) -> Artifact:
    credential = credential_of(request)
    async with reading(parts_of(request), credential) as conn:
        found = await artifacts.read(conn, credential.tenant_id, sha256=sha256)
    if not found:
        raise no_artifact(sha256)
    return found[0]


def _hash_of(request: Request) -> bytes:
    """Return the hash in the path; what is no hash names nothing."""
    text = str(request.path_params["id"])
    if not SHA256.fullmatch(text):
        raise NotFound("An artifact is named by its SHA-256, in 64 lower-case hex digits.")
    return bytes.fromhex(text)


def _told(found: Artifact) -> ArtifactAnswer:
    return ArtifactAnswer(found.sha256.hex(), found.bytes, found.created_at, found.last_used_at)


HANDLERS = [
    put_artifact,
    get_artifact,
    head_artifact,
    list_artifacts,
    remove_artifact,
]
