"""Checks of text in requests: length, and characters that a process or PostgreSQL cannot take."""

from duly.errors import Invalid


def check_text(text: str, field: str) -> str:
    """Return `text`; raises Invalid if neither PostgreSQL nor a process could take it."""
    if "\0" in text:
        raise Invalid(field, "it contains a NUL character. Remove it.")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Invalid(field, "it contains half of a surrogate pair. Send valid UTF-8.") from None
    return text


def bounded_text(value: str | None, field: str, limit: int) -> str | None:
    """Return `value`; raises Invalid if it is blank, longer than `limit`, or not storable."""
    if value is None:
        return None
    if not value.strip():
        raise Invalid(field, "it is empty. Give a value, or leave it out.")
    if len(value) > limit:
        raise Invalid(field, f"it has {len(value)} characters; at most {limit} are allowed.")
    return check_text(value, field)
