"""How far an attempt says that it has come: for people, and nothing depends on it."""

import msgspec

from duly.errors import Invalid

TEXT_LIMIT = 500
"""Characters of the text: one line on a page."""


class Progress(msgspec.Struct, frozen=True):
    """A part of the whole from 0 to 1, and what the task says of it."""

    fraction: float
    text: str | None = None


def check_progress(fraction: float, text: str | None, *, field: str = "fraction") -> Progress:
    """Return what was said; raises Invalid when it cannot be shown. `field` names the fraction."""
    # Neither is NaN within these bounds.
    if not 0 <= fraction <= 1:
        raise Invalid(field, f"{field} must be from 0 to 1.")
    if text is not None and len(text) > TEXT_LIMIT:
        raise Invalid("text", f"text may have at most {TEXT_LIMIT} characters, not {len(text)}.")
    if text is not None and "\0" in text:
        raise Invalid("text", "text contains a NUL character; take it out.")
    return Progress(fraction, text)
