"""The key of an attempt: good for what is said on behalf of that attempt, and for nothing else.

It names the attempt with its fence, so that whoever is shown it looks at one row. What is
stored is a digest of all of it, secret and fence together: the secret of an attempt that
is over opens nothing under the number of the next one.
"""

import hashlib
import re
import secrets

import msgspec

PREFIX = "dulyattempt_"
FORM = re.compile(PREFIX + r"([0-9]{1,19})_([0-9]{1,9})_([0-9]{1,19})_[0-9a-f]{64}", re.ASCII)
LARGEST = 2**63 - 1


class AttemptKey(msgspec.Struct, frozen=True):
    """What an attempt key says by itself, which nobody has to believe yet."""

    task: int
    attempt: int
    token: int
    digest: bytes


def mint(task: int, attempt: int, token: int) -> str:
    """Return a new key for an attempt: 256 random bits behind what they are good for."""
    return f"{PREFIX}{task}_{attempt}_{token}_{secrets.token_hex(32)}"


def digest(key: str) -> bytes:
    """Return what is stored of a key."""
    return hashlib.sha256(key.encode()).digest()


def read(text: str) -> AttemptKey | None:
    """Return what `text` says as the key of an attempt; None when it cannot be one."""
    found = FORM.fullmatch(text)
    if found is None:
        return None
    task, attempt, token = (int(number) for number in found.groups())
    if max(task, token) > LARGEST:
        return None
    return AttemptKey(task, attempt, token, digest(text))
