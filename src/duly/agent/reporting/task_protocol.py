"""The protocol of the task socket: a JSON object per line, and a response to each.

Pure: bytes in, a report of progress or throttling, or an error out.
"""

from collections.abc import Collection
from typing import Any

import msgspec

from duly.errors import DulyError, Invalid, Malformed
from duly.model.progress import Progress, check_progress
from duly.model.queues.downstream import MAX_RETRY_AFTER_SECONDS
from duly.model.wording import either
from duly.wire import Throttled

MAX_LINE_BYTES = 8192
"""Maximum length of a line in bytes, including its newline."""
FIELDS = {"progress", "text"}
THROTTLED_FIELDS = {"throttled", "retry_after"}
THROTTLED_EXAMPLE = 'Write it like {"throttled": "stripe", "retry_after": 2}.'
EXAMPLE = 'Write it like {"progress": 0.4, "text": "…"}.'
RESERVED_FIELDS = ("stage", "stages", "checkpoint", "submit")
"""Fields of future versions."""
OK = b'{"ok":true}\n'


def read(line: bytes, uses: Collection[str] = ()) -> Progress | Throttled:
    """Return the report in a line; raises Malformed or Invalid.

    Only a downstream that the task `uses` can have throttled it.
    """
    said = _decode(line)
    if "throttled" in said:
        return _throttled(said, uses)
    if "progress" not in said:
        raise _unknown(said)
    for name in said.keys() - FIELDS:
        raise Invalid(name[:60], f"there is no such field. {EXAMPLE}")
    fraction, text = said["progress"], said.get("text")
    # In Python, but not in JSON, a boolean is a number.
    if isinstance(fraction, bool) or not isinstance(fraction, int | float):
        raise Invalid("progress", "it must be a number from 0 to 1.")
    if text is not None and not isinstance(text, str):
        raise Invalid("text", "it must be text.")
    return check_progress(fraction, text, field="progress")


def _throttled(said: dict[str, Any], uses: Collection[str]) -> Throttled:
    for name in said.keys() - THROTTLED_FIELDS:
        raise Invalid(name[:60], f"there is no such field. {THROTTLED_EXAMPLE}")
    key, retry_after = said["throttled"], said.get("retry_after")
    if not isinstance(key, str):
        raise Invalid("throttled", f"it must be text. {THROTTLED_EXAMPLE}")
    if key not in uses:
        known = f"It uses {either(uses, 'and')}." if uses else "Submit it with uses."
        raise Invalid("throttled", f"the task does not use {key[:60]!r}. {known}")
    if retry_after is None:
        return Throttled(key)
    is_number = isinstance(retry_after, int | float) and not isinstance(retry_after, bool)
    if not is_number or not retry_after >= 0:
        raise Invalid("retry_after", "it must be a number of seconds, 0 or more.")
    return Throttled(key, min(float(retry_after), MAX_RETRY_AFTER_SECONDS))


def refusal(error: DulyError) -> bytes:
    """Return the error response for a refused line."""
    told = {"error": {"code": error.code, "message": error.message}}
    return msgspec.json.encode(told) + b"\n"


def _decode(line: bytes) -> dict[str, Any]:
    try:
        said = msgspec.json.decode(line)
    except RecursionError:
        raise Malformed("The line is nested too deeply.") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise Malformed(f"The line is not valid JSON: {str(error)[:200]}.") from None
    if not isinstance(said, dict):
        raise Malformed(f"The line is not a JSON object. {EXAMPLE}")
    return said


def _unknown(said: dict[str, Any]) -> Invalid:
    later = next((name for name in RESERVED_FIELDS if name in said), None)
    if later is not None:
        return Invalid(later, f"this version of Duly does not support it. {EXAMPLE}")
    names = ", ".join(_shown(name) for name in list(said)[:3]) or "an empty object"
    return Invalid("", f"The line has no known field ({names}). {EXAMPLE}")


def _shown(name: str) -> str:
    return repr(name[:60])
