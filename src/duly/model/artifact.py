"""Artifacts: bundles that tenants upload, each named by the SHA-256 of its bytes."""

import re

from duly.errors import Invalid

MIN_ACCOUNTED_BYTES = 4096
"""The least that an artifact counts against its tenant's limit: its row and its file take it."""
SHA256_PATTERN = re.compile(r"[0-9a-f]{64}")


def check_sha256(text: str, field: str) -> bytes:
    """Return the hash in `text`, in lower-case hex; raises Invalid for anything else."""
    if not SHA256_PATTERN.fullmatch(text):
        raise Invalid(
            field, f"{text[:70]!r} is not a SHA-256. Write it as 64 lower-case hex digits."
        )
    return bytes.fromhex(text)
