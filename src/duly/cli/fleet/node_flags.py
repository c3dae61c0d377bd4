"""Parses the flags of a node: sizes, port ranges and pairs."""

import re

from typer import BadParameter

from duly.cli.tasks.submission.request import parse_pairs
from duly.errors import Invalid
from duly.model.requests.amounts import parse_size

PORT_RANGE = re.compile(r"(\d{1,5})-(\d{1,5})")
MAX_PORT = 65_535


def read_size(text: str | None, flag: str) -> int | None:
    """Parse a size into MiB: 4GiB is 4096, and so is a bare 4096."""
    if text is None:
        return None
    if text.isdecimal():
        return int(text)
    try:
        return parse_size(text, flag)
    except Invalid as error:
        raise BadParameter(error.problem, param_hint=flag) from error


def read_range(text: str | None) -> tuple[int, int] | None:
    """Parse a port range such as 20000-20999 into its first and last port."""
    if text is None:
        return None
    match = PORT_RANGE.fullmatch(text.strip())
    first, last = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 0 < first <= last <= MAX_PORT:
        raise BadParameter(
            f"{text!r} is not a range of ports. Write it like 20000-20999.",
            param_hint="--port-range",
        )
    return first, last


def read_amounts(texts: list[str]) -> dict[str, int]:
    """Parse amounts by kind, such as gpu=1."""
    amounts = parse_pairs("--extra", texts)
    for kind, amount in amounts.items():
        if not amount.isdecimal():
            raise BadParameter(
                f"{amount!r} is not a whole number. Write it like {kind}=1.", param_hint="--extra"
            )
    return {kind: int(amount) for kind, amount in amounts.items()}
