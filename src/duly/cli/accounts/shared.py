"""What the commands about tenants, users and keys share: flags, secrets, and tables."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from duly.cli.output import Output, print_items, print_value
from duly.cli.text import say_age, say_time
from duly.client.people_shapes import AuditEntry, Key, Tenant, User

TenantFlag = Annotated[
    str | None, typer.Option(metavar="NAME", help="The tenant, if not yours; needs admin.")
]
LimitFlag = Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="At most so many.")]
CursorFlag = Annotated[
    str | None, typer.Option(metavar="TEXT", help="The next_cursor of the page before.")
]
SCOPES = "submit, read, manage, admin or node, in a comma list"


def read_scopes(text: str) -> list[str]:
    """Return the scopes of a comma list."""
    return [name.strip() for name in text.split(",") if name.strip()]


def read_password(*, from_stdin: bool) -> str:
    """Return a new password: the first line of stdin, or what is typed twice; never a flag."""
    if from_stdin:
        return sys.stdin.readline().rstrip("\n")
    if not sys.stdin.isatty():
        raise typer.BadParameter("There is no terminal to ask at; use --password-stdin.")
    password: str = typer.prompt(
        "New password", hide_input=True, confirmation_prompt="Once more", err=True
    )
    return password


def print_one(
    found: Mapping[str, Any],
    output: Output,
    columns: Sequence[str],
    pairs: Iterable[tuple[str, str]],
) -> None:
    """Print one thing."""
    if output is not Output.TABLE:
        print_value(found, output, columns)
        return
    from duly.cli.tables import draw_pairs

    draw_pairs(pairs)


def print_page(
    page: Mapping[str, Any],
    output: Output,
    columns: Sequence[str],
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    nothing: str,
) -> None:
    """Print a page of a list, and say when there is more."""
    if output is not Output.TABLE:
        print_items(page["items"], page["next_cursor"], output, columns)
        return
    if not page["items"]:
        print(nothing)
        return
    from duly.cli.tables import draw

    draw(head, rows)
    if page["next_cursor"]:
        print(f"There are more: --cursor {page['next_cursor']}")


def tenant_row(tenant: Tenant, now: Any) -> Sequence[str]:
    """Return what a list says of a tenant."""
    created = say_age(tenant["created_at"], now)
    return (tenant["name"], tenant["plan"], tenant["status"], str(tenant["users"]), created)


def tenant_pairs(tenant: Tenant, now: Any) -> list[tuple[str, str]]:
    """Return everything about a tenant."""
    pairs = [
        ("name", tenant["name"]),
        ("id", tenant["id"]),
        ("plan", tenant["plan"]),
        ("status", tenant["status"]),
        ("users", str(tenant["users"])),
        ("created", say_time(tenant["created_at"], now)),
    ]
    if tenant["suspended_at"]:
        pairs.append(("suspended", say_time(tenant["suspended_at"], now)))
    return pairs


def user_row(user: User, now: Any) -> Sequence[str]:
    """Return what a list says of a user."""
    password = "yes" if user["has_password"] else "no"
    created = say_age(user["created_at"], now)
    return (user["name"], ",".join(user["scopes"]), password, str(user["keys"]), created)


def user_pairs(user: User, now: Any) -> list[tuple[str, str]]:
    """Return everything about a user."""
    return [
        ("name", user["name"]),
        ("id", user["id"]),
        ("tenant", user["tenant"]),
        ("scopes", ", ".join(user["scopes"])),
        ("password", "yes" if user["has_password"] else "none: it cannot log in"),
        ("keys", str(user["keys"])),
        ("created", say_time(user["created_at"], now)),
    ]


def holder_of(key: Key) -> str:
    """Say to whom a key belongs."""
    if key["user"] is not None:
        return key["user"]
    return "" if key["service"] is None else f"service:{key['service']}"


def key_row(key: Key, now: Any) -> Sequence[str]:
    """Return what a list says of a key."""
    return (
        key["id"],
        key["prefix"],
        holder_of(key),
        ",".join(key["scopes"]),
        key["status"],
        say_age(key["expires_at"], now) or "never",
        key["name"] or ("login" if key["login"] else ""),
    )


def key_pairs(key: Key, now: Any) -> list[tuple[str, str]]:
    """Return everything about a key."""
    pairs = [
        ("id", key["id"]),
        ("prefix", key["prefix"]),
        ("name", key["name"] or ""),
        ("tenant", key["tenant"]),
        ("holder", holder_of(key) or "nobody in particular"),
        ("scopes", ", ".join(key["scopes"])),
        ("status", key["status"]),
        ("created", say_time(key["created_at"], now)),
        ("created by", key["created_by"] or ""),
        ("expires", say_time(key["expires_at"], now) or "never"),
    ]
    if key["revoked_at"]:
        pairs.append(("revoked", say_time(key["revoked_at"], now)))
    return [(name, value) for name, value in pairs if value]


BEFORE_AND_AFTER = ("tenant.update", "user.update", "key.update", "plan.update")
"""Actions of which the audit log has what was, and what is."""


def audit_row(entry: AuditEntry, now: Any) -> Sequence[str]:
    """Return what a list says of a change."""
    sign = " → " if entry["action"] in BEFORE_AND_AFTER else "+"
    details = ", ".join(f"{name}={_say(value, sign)}" for name, value in entry["details"].items())
    return (
        say_time(entry["at"], now),
        entry["actor"],
        entry["action"],
        entry["target"],
        entry["tenant"] or "",
        details,
    )


def _say(value: Any, sign: str = "+") -> str:
    if isinstance(value, list):
        return sign.join(_say(one) for one in value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}={_say(one)}" for name, one in value.items()) + "}"
    return (
        "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )
