import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import duly
from duly.cli.main import COMMANDS, load_command
from tests.cli.imports import HEAVY, imported_by

DULY = Path(sys.executable).with_name("duly")
NOWHERE = "http://127.0.0.1:9"


def run(*args, home="/nonexistent", **environment):
    """Run `duly` in an environment of its own."""
    env = {"PATH": os.environ["PATH"], "HOME": str(home), **environment}
    return subprocess.run(
        [DULY, *args], env=env, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_loads_and_says_what_its_summary_says(name):
    command = load_command(name, COMMANDS[name])
    first = (command.help or "").strip().split("\n\n")[0].replace("\n", " ")
    assert first == COMMANDS[name].summary


def test_the_help_names_every_command():
    done = run("--help")
    assert done.returncode == 0
    assert [name for name in COMMANDS if f"\n  {name} " not in done.stdout] == []


def test_the_version_is_that_of_the_package():
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"duly {duly.__version__}\n")


@pytest.mark.parametrize(
    "args",
    [
        ["shwo"],
        ["show", "--output", "xml"],
        ["submit"],
        ["submit", "--cpu", "much", "--", "true"],
        ["submit", "--cap", "soon", "--", "true"],
        ["run", "--script", "/nonexistent"],
        ["cancel", "7", "--status", "waiting"],
        ["dead", "replay"],
        ["update", "7"],
        ["list", "--limit", "0"],
        ["node"],
        ["server"],
    ],
)
def test_a_usage_error_ends_with_2_and_says_what_is_wrong(args):
    done = run(*args, DULY_URL=NOWHERE)
    assert done.returncode == 2
    assert "Usage: duly" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_a_command_that_was_nearly_right_is_suggested():
    assert "Did you mean 'show'" in run("shwo").stderr


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["status"], 3),
        (["list"], 3),
        (["submit", "--", "true"], 3),
        (["submit", "--wait", "--", "true"], 125),
        (["run", "--", "true"], 125),
        (["wait", "7"], 125),
    ],
)
def test_a_server_that_cannot_be_reached_is_named_with_what_to_do(args, code):
    done = run(*args, DULY_URL=NOWHERE, DULY_KEY="k")
    assert done.returncode == code
    assert NOWHERE in done.stderr
    assert "duly up" in done.stderr
    assert done.stdout == ""


def test_without_configuration_one_is_told_how_to_start(tmp_path):
    done = run("status", home=tmp_path)
    assert done.returncode == 1
    assert "duly up" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete_commands(shell):
    # Ordinarily the shell is found by looking for it among the processes above.
    done = run("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert done.returncode == 0
    assert f"_DULY_COMPLETE=complete_{shell}" in done.stdout


def test_completion_offers_the_commands():
    done = run(_DULY_COMPLETE="complete_bash", COMP_WORDS="duly at", COMP_CWORD="1")
    assert done.stdout.split() == ["attempts"]


def test_looking_for_help_imports_no_command_and_nothing_heavy():
    imported = imported_by(run("--help", PYTHONPROFILEIMPORTTIME="1").stderr)
    ours = {name for name in imported if name.startswith("duly.")}
    assert ours == {"duly.cli", "duly.cli.entry", "duly.cli.main", "duly.errors"}
    assert imported & {*HEAVY, "http.client", "rich", "ssl"} == set()


def test_commands_are_functions_or_groups_of_their_own():
    assert isinstance(load_command("dead", COMMANDS["dead"]), typer.core.TyperGroup)
    assert isinstance(load_command("show", COMMANDS["show"]), typer.core.TyperCommand)
