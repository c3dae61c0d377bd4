"""Formats a call of a function as in Python: `shop.tasks:encode("a.mp4", height=720)`."""

import json
from collections.abc import Mapping
from typing import Any


def format_call(call: Mapping[str, Any]) -> str:
    """Return a call as text, from the JSON of an answer."""
    args, kwargs = call.get("args"), call.get("kwargs")
    if args is None and kwargs is None:
        return f"{call['function']}(…)"
    shown = [_text(value) for value in args or ()]
    shown += [f"{name}={_text(value)}" for name, value in (kwargs or {}).items()]
    return f"{call['function']}({', '.join(shown)})"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
