"""The calls of the API about artifacts, and their methods for both clients."""

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from duly.client.call import Call
from duly.client.calls import _get, _page, _segment
from duly.client.plan_calls import limits
from duly.client.plan_shapes import Limits
from duly.client.shapes import Artifact, Page
from duly.errors import Forbidden, NotFound, TooLarge

if TYPE_CHECKING:
    from duly.client.bundle import Bundle

T = TypeVar("T")

UPLOAD_TIMEOUT = 300.0
"""A server says nothing before all of it is stored."""


def find_artifact(sha256: str) -> Call[None]:
    """Ask whether the servers have an artifact of this tenant; NotFound says that they do not."""
    return Call("HEAD", _artifact(sha256), lambda body: None, repeatable=True)


def put_artifact(bundle: "Bundle") -> Call[None]:
    """Send an artifact; named by what it holds, it may be sent twice."""
    return Call(
        "PUT",
        _artifact(bundle.sha256),
        lambda body: None,
        file=bundle.file,
        repeatable=True,
        timeout=UPLOAD_TIMEOUT,
    )


def check_size(path: str | Path, bundle: "Bundle", granted: Limits) -> None:
    """Refuse to send what the plan does not allow: it may take minutes until a server says so."""
    most = granted.get("max_artifact_bytes")
    if most is not None and bundle.size > most:
        raise TooLarge(
            f"The bundle of {str(path)!r} has {bundle.size} bytes, and your plan allows {most} of "
            "one. Leave out what the task does not need, or let it fetch its data itself.",
            field="bundle",
        )


def list_artifacts(limit: int | None, cursor: str | None) -> Call[Page[Artifact]]:
    """Ask for a page of the artifacts."""
    return _get("/v1/artifacts", _page(limit, cursor))


def remove_artifact(sha256: str) -> Call[None]:
    """Remove an artifact."""
    return Call("DELETE", _artifact(sha256), lambda body: None)


def _artifact(sha256: str) -> str:
    return f"/v1/artifacts/{_segment(sha256)}"


class ArtifactMethods:
    """What a client can do about artifacts."""

    def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    def upload(self, path: str | Path) -> str:
        """Send a folder, or a tar archive, and return its SHA-256: a task's `artifact`.

        What the servers have is not sent again.
        """
        from duly.client.bundle import packed

        with packed(path) as bundle:
            try:
                if self.has_artifact(bundle.sha256):
                    return bundle.sha256
                check_size(path, bundle, self._send(limits()))
            except Forbidden:
                pass  # This key may send and not look; the server looks anyway.
            self._send(put_artifact(bundle))
            return bundle.sha256

    def has_artifact(self, sha256: str) -> bool:
        """Say whether the servers have an artifact of yours with this SHA-256."""
        try:
            self._send(find_artifact(sha256))
        except NotFound:
            return False
        return True

    def list_artifacts(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[Artifact]:
        """Return a page of your artifacts, newest first."""
        return self._send(list_artifacts(limit, cursor))

    def remove_artifact(self, sha256: str) -> None:
        """Remove an artifact that no task needs any more."""
        self._send(remove_artifact(sha256))


class AsyncArtifactMethods:
    """What an async client can do about artifacts."""

    async def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    async def upload(self, path: str | Path) -> str:
        """Send a folder, or a tar archive, and return its SHA-256: a task's `artifact`.

        What the servers have is not sent again. It is packed in a thread.
        """
        import asyncio

        from duly.client.bundle import packed

        packing = packed(path)
        bundle = await asyncio.to_thread(packing.__enter__)
        try:
            try:
                if await self.has_artifact(bundle.sha256):
                    return bundle.sha256
                check_size(path, bundle, await self._send(limits()))
            except Forbidden:
                pass  # This key may send and not look; the server looks anyway.
            await self._send(put_artifact(bundle))
        finally:
            packing.__exit__(None, None, None)
        return bundle.sha256

    async def has_artifact(self, sha256: str) -> bool:
        """Say whether the servers have an artifact of yours with this SHA-256."""
        try:
            await self._send(find_artifact(sha256))
        except NotFound:
            return False
        return True

    async def list_artifacts(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[Artifact]:
        """Return a page of your artifacts, newest first."""
        return await self._send(list_artifacts(limit, cursor))

    async def remove_artifact(self, sha256: str) -> None:
        """Remove an artifact that no task needs any more."""
        await self._send(remove_artifact(sha256))
