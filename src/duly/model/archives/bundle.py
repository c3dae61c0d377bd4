"""What may be in a bundle: the files that a task brings along, in one archive.

Clients and nodes go by the same rules. A client looks before it sends, so that a person hears
of it at once; a node looks because it believes nobody.
"""

import unicodedata

from duly.errors import Invalid

MOST_ENTRIES = 100_000
"""Files and folders, and all else that has a header of its own."""
MOST_BYTES = 4 * 1024**3
"""Of all files together, once they are unpacked."""
MOST_DEPTH = 64
LONGEST_NAME = 1024
"""Bytes, with all the folders before it."""
LONGEST_PART = 255
UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Kinds of characters that nobody sees, or that turn around what others see."""


def refuse(sentence: str) -> Invalid:
    """Return the error that says why something is no bundle."""
    return Invalid("bundle", sentence)


def split_name(name: str) -> tuple[str, ...]:
    """Return the parts of the name of an entry; none for the top itself.

    Raises Invalid for whatever could lead out of the folder, or fool those who look at it.
    """
    if name.startswith("/"):
        raise refuse(f"It has the absolute name {say(name)}; all must be within the bundle.")
    parts = tuple(part for part in name.removesuffix("/").split("/") if part != ".")
    if ".." in parts:
        raise refuse(f"The name {say(name)} leads out of the bundle.")
    if not name or "" in parts:
        raise refuse(f"The name {say(name)} has an empty part.")
    if len(parts) > MOST_DEPTH:
        raise refuse(f"{say(name)} lies more than {MOST_DEPTH} folders deep.")
    _check_letters(name)
    _check_length(name, parts)
    return parts


def say(name: str) -> str:
    """Return a name as it may be shown to people."""
    return repr(name if len(name) <= 80 else f"{name[:77]}...")


def _check_letters(name: str) -> None:
    if not (name.isascii() and name.isprintable()) and any(
        unicodedata.category(letter) in UNSEEN for letter in name
    ):
        raise refuse(f"The name {say(name)} has characters in it that cannot be seen.")


def _check_length(name: str, parts: tuple[str, ...]) -> None:
    longest = max((len(part.encode()) for part in parts), default=0)
    if longest > LONGEST_PART or len(name.encode()) > LONGEST_NAME:
        raise refuse(
            f"The name {say(name)} is too long: {LONGEST_NAME} bytes are allowed, and "
            f"{LONGEST_PART} of them between two slashes."
        )
