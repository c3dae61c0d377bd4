"""The entry point of `duly`: what may take time is imported where Ctrl-C is handled."""

import sys

INTERRUPTED = 130
"""The exit code of a shell for a command that was ended by SIGINT."""


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback, whatever it is doing."""
    try:
        from duly.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
