"""Rules for the names that administrators choose: of plans, tiers and categories."""

import re

from duly.errors import Invalid

NAME_PATTERN = re.compile(r"[a-z][a-z0-9_-]{0,62}")


def check_name(name: str, field: str = "name") -> str:
    """Return `name`; raises Invalid if a URL or a shell would not take it unquoted."""
    if not NAME_PATTERN.fullmatch(name):
        raise Invalid(
            field,
            f"{field} has 1 to 63 lower-case letters, digits, - and _, and begins with a letter; "
            f"not {name[:70]!r}.",
        )
    return name
