"""The calls about artifacts, and their methods for both clients."""

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from duly.client.call import Call
from duly.client.calls.plan_calls import limits
from duly.client.calls.task_calls import _get, _page_query, _path_segment
from duly.client.shapes.plan_shapes import Limits
from duly.client.shapes.task_shapes import Artifact, Page
from duly.errors import Forbidden, NotFound, TooLarge

if TYPE_CHECKING:
    from duly.client.bundle import Bundle

T = TypeVar("T")

UPLOAD_TIMEOUT_SECONDS = 300.0
"""A server responds only once the whole upload is stored."""


def head_artifact(sha256: str) -> Call[None]:
    """Check whether the tenant has an artifact; the response is NotFound if not."""
    return Call("HEAD", _artifact_path(sha256), lambda body: None, repeatable=True)


def put_artifact(bundle: "Bundle") -> Call[None]:
    """Upload an artifact. It is content-addressed, so the upload is idempotent."""
    return Call(
        "PUT",
        _artifact_path(bundle.sha256),
        lambda body: None,
        file=bundle.file,
        repeatable=True,
        timeout=UPLOAD_TIMEOUT_SECONDS,
    )


def check_size(path: str | Path, bundle: "Bundle", granted: Limits) -> None:
    """Refuse a bundle over the plan's limit before the upload, which may take minutes to fail."""
    max_bytes = granted.get("max_artifact_bytes")
    if max_bytes is not None and bundle.size > max_bytes:
        raise TooLarge(
            f"bundle: {str(path)!r} has {bundle.size} bytes; your plan allows {max_bytes}. Leave "
            "out what the task does not need, or let the task fetch its data itself.",
            field="bundle",
        )


def list_artifacts(limit: int | None, cursor: str | None) -> Call[Page[Artifact]]:
    """List a page of artifacts."""
    return _get("/v1/artifacts", _page_query(limit, cursor))


def remove_artifact(sha256: str) -> Call[None]:
    """Remove an artifact."""
    return Call("DELETE", _artifact_path(sha256), lambda body: None)


def _artifact_path(sha256: str) -> str:
    return f"/v1/artifacts/{_path_segment(sha256)}"


class ArtifactMethods:
    """Methods for artifacts."""

    def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    def upload(self, path: str | Path) -> str:
        """Upload a folder or a tar archive, and return its SHA-256 for a task's `artifact`.

        Nothing is sent if the servers already have it.
        """
        from duly.client.bundle import packed_bundle

        with packed_bundle(path) as bundle:
            try:
                if self.has_artifact(bundle.sha256):
                    return bundle.sha256
                check_size(path, bundle, self._send(limits()))
            except Forbidden:
                pass  # This key lacks the scope `read`; the server checks the size anyway.
            self._send(put_artifact(bundle))
            return bundle.sha256

    def upload_data(self, data: bytes) -> str:
        """Upload data as it is, such as large arguments of a function; return its SHA-256."""
        from duly.client.bundle import data_bundle

        with data_bundle(data) as bundle:
            try:
                if self.has_artifact(bundle.sha256):
                    return bundle.sha256
            except Forbidden:
                pass  # This key lacks the scope `read`; the upload is idempotent.
            self._send(put_artifact(bundle))
            return bundle.sha256

    def has_artifact(self, sha256: str) -> bool:
        """Return True if your tenant has an artifact with this SHA-256."""
        try:
            self._send(head_artifact(sha256))
        except NotFound:
            return False
        return True

    def list_artifacts(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[Artifact]:
        """Return a page of the tenant's artifacts, newest first."""
        return self._send(list_artifacts(limit, cursor))

    def remove_artifact(self, sha256: str) -> None:
        """Remove an artifact; raises Conflict while a task needs it."""
        self._send(remove_artifact(sha256))


class AsyncArtifactMethods:
    """The same methods with `await`."""

    async def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    async def upload(self, path: str | Path) -> str:
        """Upload a folder or a tar archive, and return its SHA-256 for a task's `artifact`.

        Nothing is sent if the servers already have it. Packing runs in a thread.
        """
        import asyncio

        from duly.client.bundle import packed_bundle

        packing = packed_bundle(path)
        bundle = await asyncio.to_thread(packing.__enter__)
        try:
            try:
                if await self.has_artifact(bundle.sha256):
                    return bundle.sha256
                check_size(path, bundle, await self._send(limits()))
            except Forbidden:
                pass  # This key lacks the scope `read`; the server checks the size anyway.
            await self._send(put_artifact(bundle))
        finally:
            packing.__exit__(None, None, None)
        return bundle.sha256

    async def upload_data(self, data: bytes) -> str:
        """Upload data as it is, such as large arguments of a function; return its SHA-256."""
        from duly.client.bundle import data_bundle

        with data_bundle(data) as bundle:
            try:
                if await self.has_artifact(bundle.sha256):
                    return bundle.sha256
            except Forbidden:
                pass  # This key lacks the scope `read`; the upload is idempotent.
            await self._send(put_artifact(bundle))
            return bundle.sha256

    async def has_artifact(self, sha256: str) -> bool:
        """Return True if your tenant has an artifact with this SHA-256."""
        try:
            await self._send(head_artifact(sha256))
        except NotFound:
            return False
        return True

    async def list_artifacts(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[Artifact]:
        """Return a page of the tenant's artifacts, newest first."""
        return await self._send(list_artifacts(limit, cursor))

    async def remove_artifact(self, sha256: str) -> None:
        """Remove an artifact; raises Conflict while a task needs it."""
        await self._send(remove_artifact(sha256))
