"""Writes the reference of the command line from its own help texts.

python scripts/reference.py            write docs/reference/cli.md
python scripts/reference.py --check    fail if the page is out of date
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from duly.cli.main import app

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "cli.md"
WIDTH = 100
HEAD = """# The command line

This page is written by `scripts/reference.py` from the help texts; change those instead.

Every command speaks REST through the Python client. The server and the key come from `DULY_URL` and
`DULY_KEY`, or else from the file that `duly up` writes. An ID in brackets is optional; it defaults
to the last task that you submitted.

| exit code | means |
|---|---|
| 0 | success |
| 1 | refused or failed; the message is on stderr |
| 2 | usage error: an unknown command or flag, or a value refused before it is sent |
| 3 | no server can be reached |
| 130 | interrupted with Ctrl-C (SIGINT) |

`run`, `wait` and `submit --wait` exit as the task did: with its exit code, with 128 + n for signal
n, with 124 if it was stopped at its execution cap, and with 125 for any other reason of Duly's.

`up`, `serve`, `agent` and `dashboard` stop cleanly after SIGINT, SIGTERM and SIGHUP, and exit with
130 after SIGINT and with 0 after the others. Ctrl-C at a prompt changes nothing and says so.
"""


def page() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *_sections(typer.main.get_command(app), "duly")])


def _sections(command: Any, path: str) -> Iterator[str]:
    context = command.make_context(path, [], resilient_parsing=True)
    context.terminal_width = context.max_content_width = WIDTH
    lines = [line.rstrip() for line in command.get_help(context).splitlines()]
    text = "\n".join(lines).strip()
    yield f"## `{path}`\n\n```text\n{text}\n```\n"
    names = command.list_commands(context) if hasattr(command, "list_commands") else []
    for name in names:
        yield from _sections(command.get_command(context, name), f"{path} {name}")


def main() -> int:
    """Write the page, or with --check compare it with the file."""
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page())
        return 0
    if PAGE.read_text() == page():
        return 0
    sys.stderr.write(f"{PAGE.name} is out of date; run python scripts/reference.py\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
