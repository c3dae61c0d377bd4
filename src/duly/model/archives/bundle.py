"""Rules for the contents of a bundle: the files that a task brings along, in one archive.

Clients and nodes apply the same rules. A client checks before it uploads, so that its user sees the
error at once; a node checks because it trusts no client.
"""

import unicodedata

from duly.errors import Invalid

MAX_ENTRIES = 100_000
"""Files, folders, and everything else that has a header of its own."""
MAX_UNPACKED_BYTES = 4 * 1024**3
"""Total size of all files, once they are unpacked."""
MAX_DEPTH = 64
MAX_NAME_BYTES = 1024
"""Length of an entry's name in bytes, including all its folders."""
MAX_NAME_PART_BYTES = 255
INVISIBLE_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories of characters that are invisible, or that reorder visible text."""


def bundle_error(sentence: str) -> Invalid:
    """Return the error for an archive that is not a valid bundle."""
    return Invalid("bundle", sentence)


def split_name(name: str) -> tuple[str, ...]:
    """Return the parts of an entry's name; none for the top folder itself.

    Raises Invalid for a name that could lead out of the folder, or mislead its readers.
    """
    if name.startswith("/"):
        raise bundle_error(
            f"the name {quote_name(name)} is absolute; names must be relative to the bundle."
        )
    parts = tuple(part for part in name.removesuffix("/").split("/") if part != ".")
    if ".." in parts:
        raise bundle_error(f"the name {quote_name(name)} leads out of the bundle.")
    if not name or "" in parts:
        raise bundle_error(f"the name {quote_name(name)} has an empty part.")
    if len(parts) > MAX_DEPTH:
        raise bundle_error(f"{quote_name(name)} is more than {MAX_DEPTH} folders deep.")
    _check_letters(name)
    _check_length(name, parts)
    return parts


def quote_name(name: str) -> str:
    """Return a name quoted and shortened, for error messages."""
    return repr(name if len(name) <= 80 else f"{name[:77]}...")


def _check_letters(name: str) -> None:
    if not (name.isascii() and name.isprintable()) and any(
        unicodedata.category(letter) in INVISIBLE_CATEGORIES for letter in name
    ):
        raise bundle_error(f"the name {quote_name(name)} contains invisible characters.")


def _check_length(name: str, parts: tuple[str, ...]) -> None:
    longest = max((len(part.encode()) for part in parts), default=0)
    if longest > MAX_NAME_PART_BYTES or len(name.encode()) > MAX_NAME_BYTES:
        raise bundle_error(
            f"the name {quote_name(name)} is too long: {MAX_NAME_BYTES} bytes are allowed, and "
            f"{MAX_NAME_PART_BYTES} between two slashes."
        )
