"""The key of an attempt: valid for requests on behalf of that attempt, and for nothing else.

It names the attempt and its fencing token, so that checking it reads one row. The stored digest
covers the whole key, secret and token together: the secret of an attempt that has ended is useless
with the number of the next one.
"""

import hashlib
import re
import secrets

import msgspec

PREFIX = "dulyattempt_"
KEY_PATTERN = re.compile(
    PREFIX + r"([0-9]{1,19})_([0-9]{1,9})_([0-9]{1,19})_[0-9a-f]{64}", re.ASCII
)
MAX_BIGINT = 2**63 - 1


class AttemptKey(msgspec.Struct, frozen=True):
    """The contents of an attempt key, parsed but not verified."""

    task: int
    attempt: int
    token: int
    digest: bytes


def mint(task: int, attempt: int, token: int) -> str:
    """Return a new key for an attempt: its identity, followed by 256 random bits."""
    return f"{PREFIX}{task}_{attempt}_{token}_{secrets.token_hex(32)}"


def digest(key: str) -> bytes:
    """Return the digest of a key, which is stored in its place."""
    return hashlib.sha256(key.encode()).digest()


def parse(text: str) -> AttemptKey | None:
    """Parse `text` as the key of an attempt; None if it cannot be one."""
    found = KEY_PATTERN.fullmatch(text)
    if found is None:
        return None
    task, attempt, token = (int(number) for number in found.groups())
    if max(task, token) > MAX_BIGINT:
        return None
    return AttemptKey(task, attempt, token, digest(text))
