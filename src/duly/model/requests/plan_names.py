"""Rules for the names that administrators choose: of plans, tiers and categories."""

import re

from duly.errors import Invalid

NAME_PATTERN = re.compile(r"[a-z][a-z0-9_-]{0,62}")


def check_name(name: str, field: str = "name") -> str:
    """Return `name`; raises Invalid if a URL or a shell would not take it unquoted."""
    if not NAME_PATTERN.fullmatch(name):
        raise Invalid(
            field,
            f"{name[:70]!r} is not a valid name. Begin with a letter, and use at most 63 "
            "lower-case letters, digits, '-' and '_'.",
        )
    return name
