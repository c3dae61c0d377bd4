"""Rules for the names of tenants, users, services and keys.

A name appears in URLs, tables and the audit log, where `tenant/user` must be unambiguous: so it has
neither a slash nor a colon, and is never digits alone, which would be an id.
"""

import re

from duly.errors import Invalid

MAX_NAME_CHARS = 63
TENANT_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
USER_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]*")


def check_tenant(name: str, field: str = "name") -> str:
    """Return the name of a tenant; raises Invalid if it is not allowed."""
    return _check(name, field, TENANT_PATTERN, "letters, digits, '.', '_' and '-'")


def check_user(name: str, field: str = "name") -> str:
    """Return the name of a user or a service; raises Invalid if it is not allowed."""
    return _check(name, field, USER_PATTERN, "letters, digits, '.', '_', '-', '+' and '@'")


def _check(name: str, field: str, form: re.Pattern[str], holds: str) -> str:
    if len(name) > MAX_NAME_CHARS:
        raise Invalid(
            field, f"it has {len(name)} characters; at most {MAX_NAME_CHARS} are allowed."
        )
    if not form.fullmatch(name):
        raise Invalid(
            field,
            f"{name!r} is not a valid name. Begin with a letter or a digit, and use {holds}.",
        )
    if name.isdecimal():
        raise Invalid(field, f"{name!r} looks like an ID. Use at least one letter.")
    return name
