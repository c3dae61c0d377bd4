"""The pages of the documentation hang together, and the commands on them can be typed."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from duly.cli.main import COMMANDS, app

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name_of(page):
    return str(page.relative_to(ROOT))


def blocks(page, language):
    return [text for kind, text in BLOCK.findall(page.read_text()) if kind == language]


def typed():
    """Yield (page, words) for every `duly` or `make` command in a shell block."""
    for page in PAGES:
        for block in blocks(page, "sh"):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                    words.pop(0)
                if words and words[0] in ("duly", ".venv/bin/duly", "make"):
                    yield name_of(page), words


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    targets = [link.partition("#")[0] for link in LINK.findall(text)]
    local = [target for target in targets if target and "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_python_example_is_python(page):
    for block in blocks(page, "python"):
        compile(block, name_of(page), "exec")


def test_every_page_of_the_documentation_can_be_reached():
    linked = {
        (page.parent / link.partition("#")[0]).resolve()
        for page in PAGES
        for link in LINK.findall(page.read_text())
    }
    assert [
        name_of(page) for page in PAGES if page.resolve() not in linked | {ROOT / "README.md"}
    ] == []


def test_the_first_screen_of_the_readme_has_the_two_commands():
    first_screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:30])
    assert "\nmake demo  " in first_screen and "\nmake test  " in first_screen
    assert "\nmake up\n" in first_screen
    assert "duly run -- echo hello" in first_screen


def test_every_make_target_exists():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert [
        (page, words) for page, words in typed() if words[0] == "make" and words[1] not in targets
    ] == []


def options_of(command):
    return {
        name for parameter in command.params for name in parameter.opts + parameter.secondary_opts
    }


def find(words):
    """Return the command that `words` name, and the words that are left."""
    command = typer.main.get_command(app)
    rest = words[1:]
    while rest and hasattr(command, "get_command"):
        context = command.make_context("duly", [], resilient_parsing=True)
        inner = command.get_command(context, rest[0])
        if inner is None:
            return None, rest
        command, rest = inner, rest[1:]
    return command, rest


@pytest.mark.parametrize(
    "words", [pytest.param(words, id=f"{page}: {' '.join(words)}"[:80]) for page, words in typed()]
)
def test_every_command_on_a_page_exists_with_its_options(words):
    if words[0] == "make":
        return
    command, rest = find(words)
    assert command is not None, f"there is no command {rest[0]!r}"
    ours = rest[: rest.index("--")] if "--" in rest else rest
    asked = {word.partition("=")[0] for word in ours if word.startswith("--")}
    assert asked - options_of(command) == set()


def test_every_command_is_in_the_reference():
    text = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert [name for name in COMMANDS if f"## `duly {name}`" not in text] == []
