"""What tenants, users, services and keys may be called.

A name goes into addresses, tables and the audit log, where `tenant/user` must mean one
thing: so neither a slash nor a colon, and never digits alone, which would be an id.
"""

import re

from duly.errors import Invalid

LONGEST = 63
TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]*")


def check_tenant(name: str, field: str = "name") -> str:
    """Return the name of a tenant; raises Invalid when it can be none."""
    return _check(name, field, TENANT, "letters, digits, '.', '_' and '-'")


def check_user(name: str, field: str = "name") -> str:
    """Return the name of a user or of a service; raises Invalid when it can be none."""
    return _check(name, field, USER, "letters, digits, '.', '_', '-', '+' and '@'")


def _check(name: str, field: str, form: re.Pattern[str], holds: str) -> str:
    if len(name) > LONGEST:
        raise Invalid(field, f"{field} may have at most {LONGEST} characters, not {len(name)}.")
    if not form.fullmatch(name):
        raise Invalid(field, f"{field} holds {holds} and begins with a letter or a digit.")
    if name.isdecimal():
        raise Invalid(field, f"{field} cannot be digits alone, for that would be an id.")
    return name
