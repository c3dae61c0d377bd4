"""What is said of a node on the command line: sizes, ranges, pairs."""

import re

from typer import BadParameter

from duly.errors import Invalid
from duly.model.amounts import parse_size

RANGE = re.compile(r"(\d{1,5})-(\d{1,5})")
HIGHEST_PORT = 65_535


def read_size(text: str | None, flag: str) -> int | None:
    """Return a size in MiB: 4GiB is 4096, and so is a bare 4096."""
    if text is None:
        return None
    if text.isdecimal():
        return int(text)
    try:
        return parse_size(text, flag)
    except Invalid as error:
        raise BadParameter(error.message, param_hint=flag) from error


def read_range(text: str | None) -> tuple[int, int] | None:
    """Return the first and the last port of a range such as 20000-20999."""
    if text is None:
        return None
    found = RANGE.fullmatch(text.strip())
    first, last = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 0 < first <= last <= HIGHEST_PORT:
        raise BadParameter(f"Not a range of ports: {text!r}.", param_hint="--port-range")
    return first, last


def read_amounts(texts: list[str]) -> dict[str, int]:
    """Return amounts by kind, from texts such as gpu=1."""
    amounts = read_pairs(texts, "--extra")
    for kind, amount in amounts.items():
        if not amount.isdecimal():
            raise BadParameter(f"{kind} needs a whole number.", param_hint="--extra")
    return {kind: int(amount) for kind, amount in amounts.items()}


def read_pairs(texts: list[str], flag: str) -> dict[str, str]:
    """Return values by name, from texts such as zone=a."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise BadParameter(f"Write NAME=VALUE, not {text!r}.", param_hint=flag)
        pairs[name] = value
    return pairs
