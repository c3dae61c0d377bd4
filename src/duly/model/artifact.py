"""Artifacts: bundles that tenants upload, each named by the SHA-256 of its bytes."""

import re

from duly.errors import Invalid

LEAST_BYTES = 4096
"""What an artifact counts for at least among all of a tenant: its row and its file take that."""
SHA256 = re.compile(r"[0-9a-f]{64}")


def check_sha256(text: str, field: str) -> bytes:
    """Return the hash that `text` is, in lower-case hex; raises Invalid for anything else."""
    if not SHA256.fullmatch(text):
        raise Invalid(field, f"{field} is a SHA-256 in 64 lower-case hex digits.")
    return bytes.fromhex(text)
