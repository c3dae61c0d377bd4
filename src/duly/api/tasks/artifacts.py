"""Routes for artifacts: bundles that tasks run in, uploaded once and addressed by their SHA-256.

Uploads and downloads are streamed; no more than a chunk is in memory at a time.
"""

from starlette.requests import Request
from starlette.responses import Response

from duly.api.auth import Access, may_submit
from duly.api.limits.downloads import Download
from duly.api.requests.body import content_length, stream_body
from duly.api.requests.lookups import tenant_connection
from duly.api.requests.query import encode_cursor, query_of
from duly.api.responses import as_json, no_content
from duly.api.routes import components_of, credential_of, route
from duly.api.tasks.task_shapes import ArtifactInfo, Page
from duly.api.tasks.tasks import PAGE_PARAMETERS
from duly.errors import NotFound
from duly.model.artifact import SHA256_PATTERN
from duly.server.artifacts.artifacts import artifact_not_found
from duly.store.tasks import artifacts
from duly.store.tasks.artifacts import Artifact

ARTIFACTS_PATH = "/v1/artifacts"
ARTIFACT_PATH = "/v1/artifacts/{id}"
BINARY_MEDIA_TYPE = "application/octet-stream"


@route(
    "PUT",
    ARTIFACT_PATH,
    "Upload an artifact",
    access=Access.SUBMIT,
    request_body=bytes,
    response_body=ArtifactInfo,
    statuses=(200, 201),
    errors=(400, 413, 422, 429),
)
async def put_artifact(request: Request) -> Response:
    """Upload an artifact. 200 means that it existed already."""
    components, credential = components_of(request), credential_of(request)
    query_of(request)
    sha256 = _hash_of(request)
    async with components.timeouts.reading():
        upload = await components.artifacts.begin(credential, sha256, content_length(request.scope))
    created = False
    if upload is not None:
        async with upload:
            async for data in stream_body(request):
                await upload.write(data)
            upload.verify()
            created = await components.timeouts.writing(upload.finish())
    return as_json(_artifact_info(await _find(request, sha256)), 201 if created else 200)


@route(
    "GET",
    ARTIFACT_PATH,
    "Download an artifact",
    access=Access.READ,
    response_body=bytes,
    media_type=BINARY_MEDIA_TYPE,
)
async def get_artifact(request: Request) -> Download:
    """Download an artifact."""
    query_of(request)
    artifact = await _find(request, _hash_of(request))
    data = await components_of(request).artifacts.open(credential_of(request).tenant_id, artifact)
    headers = {"content-length": str(artifact.bytes), "etag": f'"{artifact.sha256.hex()}"'}
    return Download(request, data, BINARY_MEDIA_TYPE, headers)


@route(
    "HEAD",
    ARTIFACT_PATH,
    "Check whether an artifact exists",
    access=Access.READ,
    response_body=bytes,
    media_type=BINARY_MEDIA_TYPE,
)
async def head_artifact(request: Request) -> Response:
    """Check whether an artifact exists, and get its size.

    For a caller that may submit, this counts as a use of the artifact: it checks in order to
    skip an upload, and submits a task with the artifact soon.
    """
    query_of(request)
    components, credential, sha256 = (
        components_of(request),
        credential_of(request),
        _hash_of(request),
    )
    artifact = await _find(request, sha256)
    if may_submit(credential):
        async with components.timeouts.reading():
            if not await components.artifacts.is_stored(credential.tenant_id, artifact):
                raise artifact_not_found(sha256)
    return Response(headers={"content-length": str(artifact.bytes)}, media_type=BINARY_MEDIA_TYPE)


@route(
    "GET",
    ARTIFACTS_PATH,
    "List artifacts, newest first",
    access=Access.READ,
    response_body=Page[ArtifactInfo],
    query=PAGE_PARAMETERS,
    errors=(422,),
)
async def list_artifacts(request: Request) -> Response:
    """List artifacts, newest first."""
    credential, query = credential_of(request), query_of(request)
    limit, before = query.limit(), query.before_id()
    async with tenant_connection(components_of(request), credential) as conn:
        rows = await artifacts.read(conn, credential.tenant_id, before=before, limit=limit + 1)
    cursor = encode_cursor(rows[limit - 1].id) if len(rows) > limit else None
    return as_json(Page([_artifact_info(row) for row in rows[:limit]], cursor))


@route(
    "DELETE",
    ARTIFACT_PATH,
    "Remove an unused artifact",
    access=Access.MANAGE,
    statuses=(204,),
    errors=(404, 409),
)
async def remove_artifact(request: Request) -> Response:
    """Remove an artifact. One that a live task or a schedule uses is not removed (409)."""
    components = components_of(request)
    query_of(request)
    sha256 = _hash_of(request)
    await components.timeouts.writing(components.artifacts.remove(credential_of(request), sha256))
    return no_content()


async def _find(request: Request, sha256: bytes) -> Artifact:
    credential = credential_of(request)
    async with tenant_connection(components_of(request), credential) as conn:
        rows = await artifacts.read(conn, credential.tenant_id, sha256=sha256)
    if not rows:
        raise artifact_not_found(sha256)
    return rows[0]


def _hash_of(request: Request) -> bytes:
    """Return the hash in the path; raises NotFound if it is not a SHA-256."""
    text = str(request.path_params["id"])
    if not SHA256_PATTERN.fullmatch(text):
        raise NotFound("An artifact is named by its SHA-256: 64 lower-case hex digits.")
    return bytes.fromhex(text)


def _artifact_info(row: Artifact) -> ArtifactInfo:
    return ArtifactInfo(row.sha256.hex(), row.bytes, row.created_at, row.last_used_at)


HANDLERS = [
    put_artifact,
    get_artifact,
    head_artifact,
    list_artifacts,
    remove_artifact,
]
