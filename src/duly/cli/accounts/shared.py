"""Flags, password prompts and tables shared by the commands for tenants, users and keys."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from duly.cli.output.pages import print_next_cursor
from duly.cli.output.printing import Output, print_items, print_value
from duly.cli.output.text import format_age, format_percent, format_time
from duly.client.shapes.account_shapes import AuditEntry, Key, Tenant, User

TenantFlag = Annotated[
    str | None, typer.Option(metavar="NAME", help="Another tenant; needs the scope admin.")
]
SCOPES = "a comma-separated list of submit, read, manage, admin, node and metrics"


def read_scopes(text: str) -> list[str]:
    """Parse a comma-separated list of scopes."""
    return [name.strip() for name in text.split(",") if name.strip()]


def read_password(*, from_stdin: bool) -> str:
    """Read a new password from the first line of stdin, or prompt for it twice."""
    if from_stdin:
        return sys.stdin.readline().rstrip("\n")
    if not sys.stdin.isatty():
        raise typer.BadParameter(
            "There is no terminal to ask for the password at. Use --password-stdin."
        )
    password: str = typer.prompt(
        "New password", hide_input=True, confirmation_prompt="Repeat the password", err=True
    )
    return password


def print_item(
    item: Mapping[str, Any],
    output: Output,
    columns: Sequence[str],
    pairs: Iterable[tuple[str, str]],
) -> None:
    """Print an item: its pairs for people, or its columns for programs."""
    if output is not Output.TABLE:
        print_value(item, output, columns)
        return
    from duly.cli.output.tables import print_pairs

    print_pairs(pairs)


def print_page(
    page: Mapping[str, Any],
    output: Output,
    columns: Sequence[str],
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    nothing: str,
) -> None:
    """Print a page of a list, and the cursor of the next page."""
    if output is not Output.TABLE:
        print_items(page["items"], page["next_cursor"], output, columns)
        return
    if not page["items"]:
        print(nothing)
        return
    from duly.cli.output.tables import print_table

    print_table(head, rows)
    print_next_cursor(page["next_cursor"])


def tenant_row(tenant: Tenant, now: Any) -> Sequence[str]:
    """Return the table row of a tenant."""
    created = format_age(tenant["created_at"], now)
    return (
        tenant["name"],
        tenant["plan"],
        str(tenant["weight"]),
        format_percent(tenant["share"]),
        format_percent(tenant["fair_share"]),
        tenant["status"],
        str(tenant["users"]),
        created,
    )


def tenant_pairs(tenant: Tenant, now: Any) -> list[tuple[str, str]]:
    """Return the fields of a tenant for display."""
    whose = "the plan's" if tenant["weight_override"] is None else "its own"
    pairs = [
        ("name", tenant["name"]),
        ("id", tenant["id"]),
        ("plan", tenant["plan"]),
        ("weight", f"{tenant['weight']} ({whose})"),
        ("share", format_percent(tenant["share"]) or "no node is ready"),
        ("fair share", format_percent(tenant["fair_share"]) or "none: no task of it waits"),
        ("fair users", "yes" if tenant["fair_users"] else "no"),
        ("status", tenant["status"]),
        ("users", str(tenant["users"])),
        ("created", format_time(tenant["created_at"], now)),
    ]
    if tenant["suspended_at"]:
        pairs.append(("suspended", format_time(tenant["suspended_at"], now)))
    return pairs


def user_row(user: User, now: Any) -> Sequence[str]:
    """Return the table row of a user."""
    password = "yes" if user["has_password"] else "no"
    created = format_age(user["created_at"], now)
    return (user["name"], ",".join(user["scopes"]), password, str(user["keys"]), created)


def user_pairs(user: User, now: Any) -> list[tuple[str, str]]:
    """Return the fields of a user for display."""
    return [
        ("name", user["name"]),
        ("id", user["id"]),
        ("tenant", user["tenant"]),
        ("scopes", ", ".join(user["scopes"])),
        ("password", "yes" if user["has_password"] else "none: it cannot log in"),
        ("keys", str(user["keys"])),
        ("created", format_time(user["created_at"], now)),
    ]


def key_holder(key: Key) -> str:
    """Return the user or service that holds a key; empty if neither."""
    if key["user"] is not None:
        return key["user"]
    return "" if key["service"] is None else f"service:{key['service']}"


def key_row(key: Key, now: Any) -> Sequence[str]:
    """Return the table row of a key."""
    return (
        key["id"],
        key["prefix"],
        key_holder(key),
        ",".join(key["scopes"]),
        key["status"],
        format_age(key["expires_at"], now) or "never",
        key["name"] or ("login" if key["login"] else ""),
    )


def key_pairs(key: Key, now: Any) -> list[tuple[str, str]]:
    """Return the fields of a key for display."""
    pairs = [
        ("id", key["id"]),
        ("prefix", key["prefix"]),
        ("name", key["name"] or ""),
        ("tenant", key["tenant"]),
        ("holder", key_holder(key) or "none"),
        ("scopes", ", ".join(key["scopes"])),
        ("status", key["status"]),
        ("created", format_time(key["created_at"], now)),
        ("created by", key["created_by"] or ""),
        ("expires", format_time(key["expires_at"], now) or "never"),
    ]
    if key["revoked_at"]:
        pairs.append(("revoked", format_time(key["revoked_at"], now)))
    return [(name, value) for name, value in pairs if value]


BEFORE_AND_AFTER = ("tenant.update", "user.update", "key.update", "plan.update")
"""Actions whose audit details are pairs of the old and the new value."""


def audit_row(entry: AuditEntry, now: Any) -> Sequence[str]:
    """Return the table row of an audit entry."""
    sign = " → " if entry["action"] in BEFORE_AND_AFTER else "+"
    details = ", ".join(
        f"{name}={_format_detail(value, sign)}" for name, value in entry["details"].items()
    )
    return (
        format_time(entry["at"], now),
        entry["actor"],
        entry["action"],
        entry["target"],
        entry["tenant"] or "",
        details,
    )


def _format_detail(value: Any, sign: str = "+") -> str:
    if isinstance(value, list):
        return sign.join(_format_detail(item) for item in value)
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{name}={_format_detail(item)}" for name, item in value.items()) + "}"
        )
    return (
        "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )
