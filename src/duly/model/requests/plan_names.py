"""Names that administrators give: of plans, tiers and categories."""

import re

from duly.errors import Invalid

NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")


def check_name(name: str, field: str = "name") -> str:
    """Return `name`, unless it is one that no address or shell takes as it is."""
    if not NAME.fullmatch(name):
        raise Invalid(
            field,
            f"{field} has 1 to 63 lower-case letters, digits, - and _, and begins with a letter; "
            f"not {name[:70]!r}.",
        )
    return name
